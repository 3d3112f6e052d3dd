//! The view of a large fleet on a collector: worst first, filters, parts of the list, and one host with all of its applications.

use axum::{Router, body::Body};
use driftless_clock::Clock;
use driftless_config::Fleet;
use driftless_fleet::{ApplicationReport, FleetStatus, HostReport, HostState, RepositoryReport};
use driftless_model::{AppName, CommitId, HealthStatus, SyncStatus, Timestamp};
use driftless_store::{FleetBounds, FleetChange, Store, StoredHost};
use driftless_web::{Access, router};
use http::{Request, StatusCode};
use http_body_util::BodyExt;
use tower::ServiceExt;

use crate::{
    page::{next_change, version_of},
    sample,
};

struct Collector {
    router: Router,
    store: Store,
    _inbox: driftless_agent::Inbox,
}

impl Collector {
    fn new() -> Self {
        let sample::Agent { handle, store, inbox } = sample::agent([]);
        let handle = handle.with_fleet(Fleet { accept: true, ..Fleet::default() });
        Self { router: router(handle, store.clone(), Access::loopback()), store, _inbox: inbox }
    }

    async fn send(&self, request: Request<Body>) -> (StatusCode, String) {
        let response = self.router.clone().oneshot(request).await.unwrap();
        let status = response.status();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (status, String::from_utf8_lossy(&body).into_owned())
    }

    async fn get(&self, path: &str) -> (StatusCode, String) {
        self.send(Request::get(path).header("host", "localhost").body(Body::empty()).unwrap()).await
    }

    async fn page(&self, path: &str) -> String {
        let (status, page) = self.get(path).await;
        assert_eq!(status, StatusCode::OK, "{path}: {page}");
        page
    }

    async fn report(&self, report: &HostReport) {
        let request =
            Request::put(format!("/api/v1/fleet/hosts/{}", report.host)).header("host", "localhost");
        let body = Body::from(serde_json::to_vec(report).unwrap());
        let (status, answer) = self.send(request.body(body).unwrap()).await;
        assert_eq!(status, StatusCode::NO_CONTENT, "{answer}");
    }

    /// Stores a report that arrived some seconds ago.
    fn report_long_ago(&self, report: &HostReport, age: u64) {
        let host = StoredHost {
            name: report.host.clone(),
            instance: report.instance.clone(),
            digest: "1".to_owned(),
            received: Timestamp(Clock::System.now().0 - age * 1000),
            report: serde_json::to_string(report).unwrap(),
            conflict: None,
        };
        let bounds = FleetBounds { hosts: 1000, bytes: 1 << 20 };
        let stored = |_| (FleetChange::Report(host), Vec::new(), ());
        self.store.change_fleet_host(&report.host, bounds, stored).unwrap().unwrap();
    }

    async fn states(&self) -> Vec<(String, HostState)> {
        let status: FleetStatus = serde_json::from_str(&self.page("/api/v1/fleet/hosts").await).unwrap();
        status.hosts.into_iter().map(|host| (host.name, host.state)).collect()
    }
}

/// The hosts in the table, in their order.
fn hosts(page: &str) -> Vec<String> {
    let rows = page.split("<td><a href=\"fleet/").skip(1);
    rows.map(|row| row.split('"').next().unwrap().to_owned()).collect()
}

fn application(name: &str, health: HealthStatus) -> ApplicationReport {
    ApplicationReport {
        name: AppName::from(name),
        repository: "infra".to_owned(),
        sync: SyncStatus::Synced,
        health,
        suspended: None,
        pinned: None,
        well: false,
        revision: Some(1),
        revision_commit: None,
        commit: None,
        failed: None,
        images: None,
        failed_images: None,
        message: String::new(),
        drift: 0,
    }
}

/// A host with some healthy applications, `calm-0` and so on.
fn host(name: &str, healthy: usize) -> HostReport {
    let applications = (0..healthy).map(|it| application(&format!("calm-{it}"), HealthStatus::Healthy));
    HostReport {
        host: name.to_owned(),
        instance: "a1".to_owned(),
        repositories: vec![repository('a', 1)],
        applications: applications.collect(),
        ..HostReport::default()
    }
}

fn repository(commit: char, time: u64) -> RepositoryReport {
    RepositoryReport {
        name: "infra".to_owned(),
        commit: Some(CommitId::from_stored(commit.to_string().repeat(40))),
        commit_time: Some(Timestamp(time)),
        reference: "main".to_owned(),
        ..RepositoryReport::default()
    }
}

#[tokio::test]
async fn large_fleet_is_shown_in_parts_with_worst_hosts_first() {
    let collector = Collector::new();
    for number in 0..119 {
        collector.report(&host(&format!("web-{number:03}"), 1)).await;
    }
    let mut sick = host("zoo", 1);
    sick.applications.push(application("shop", HealthStatus::Degraded));
    collector.report(&sick).await;
    let first = collector.page("/fleet").await;
    let names = hosts(&first);
    assert_eq!((names.len(), names[0].as_str(), names[1].as_str()), (50, "zoo", "web-000"));
    assert!(first.contains("Hosts 1 to 50 of 120") && !first.contains("rel=\"prev\""), "{first}");
    assert!(first.contains("href=\"fleet?page=2\""), "{first}");
    let mut all = names;
    for page in 2..=3 {
        all.extend(hosts(&collector.page(&format!("/fleet?page={page}")).await));
    }
    assert_eq!(all.len(), 120, "each host is on one page");
    all.sort();
    all.dedup();
    assert_eq!(all.len(), 120);
    let last = collector.page("/fleet?page=3").await;
    assert!(last.contains("Hosts 101 to 120 of 120") && !last.contains("rel=\"next\""), "{last}");
    for beyond in ["4", "18446744073709551615"] {
        assert_eq!(hosts(&collector.page(&format!("/fleet?page={beyond}")).await), hosts(&last), "{beyond}");
    }
    for none in ["0", "-1", "x", ""] {
        assert_eq!(hosts(&collector.page(&format!("/fleet?page={none}")).await), hosts(&first), "{none}");
    }
}

#[tokio::test]
async fn filters_of_the_fleet_are_in_the_url() {
    let collector = Collector::new();
    for number in 0..60 {
        let mut report = host(&format!("web-{number:02}"), 1);
        report.labels.insert("ring".to_owned(), "a&b".to_owned());
        collector.report(&report).await;
    }
    let mut sick = host("nas", 0);
    sick.engine_version = "20.10.24".to_owned();
    sick.applications.push(application("Shop", HealthStatus::Degraded));
    collector.report(&sick).await;
    for (query, found) in [
        ("state=degraded", "nas"),
        ("state=Degraded&q=shop", "nas"),
        ("q=20.10", "nas"),
        ("q=web-07", "web-07"),
        ("q=WEB-07&state=Healthy", "web-07"),
    ] {
        assert_eq!(hosts(&collector.page(&format!("/fleet?{query}")).await), [found], "{query}");
    }
    for query in ["state=Lost", "state=Degraded&q=web", "q=%3Cscript%3E", "state=nonsense"] {
        let page = collector.page(&format!("/fleet?{query}")).await;
        assert!(page.contains("No host matches.") && !page.contains("<script>"), "{query}: {page}");
    }
    // The other parts of the list keep the filters, with all letters.
    let page = collector.page("/fleet?q=ring%3Da%26b&state=healthy").await;
    assert!(page.contains("Hosts 1 to 50 of 60"), "{page}");
    let next = "fleet?q=ring%3Da%26b&amp;state=healthy&amp;page=2";
    assert!(page.contains(next), "{page}");
    let page = collector.page(&format!("/{}", next.replace("&amp;", "&"))).await;
    assert_eq!(hosts(&page).len(), 10);
    // Counters count all hosts, also those that are not shown.
    assert!(page.contains("<b>61</b> hosts") && page.contains("<b>60</b> Healthy"), "{page}");
    assert!(page.contains("<b>1</b> Degraded") && page.contains("<b>0</b> Lost"), "{page}");
}

#[tokio::test]
async fn suspended_job_is_no_suspended_application_of_a_host() {
    let collector = Collector::new();
    let mut report = host("nas", 0);
    for (name, suspended) in [("whole", Some(true)), ("batch", Some(false)), ("older", None)] {
        let application = application(name, HealthStatus::Suspended);
        report.applications.push(ApplicationReport { suspended, ..application });
    }
    collector.report(&report).await;
    let page = collector.page("/?host=nas&only=suspended").await;
    let is_listed = |name: &str| page.contains(&format!("id=\"a-{name}\""));
    assert!(is_listed("whole") && is_listed("older") && !is_listed("batch"), "{page}");
}

#[tokio::test]
async fn host_shows_unwell_applications_and_its_page_all() {
    let collector = Collector::new();
    let mut report = host("nas", 40);
    for number in 0..7 {
        report.applications.push(application(&format!("sick-{number}"), HealthStatus::Degraded));
    }
    report.applications.push(ApplicationReport { drift: 3, ..application("late", HealthStatus::Healthy) });
    report.engine_version = "20.10.24".to_owned();
    collector.report(&report).await;
    let page = collector.page("/fleet").await;
    assert!(page.contains("40 of 48") && page.contains("data-label=\"drift\">3</td>"), "{page}");
    assert!(page.contains("sick-4") && !page.contains("sick-5") && !page.contains("calm-0"), "{page}");
    assert!(page.contains("and 3 more"), "{page}");
    let own = collector.page("/fleet/nas").await;
    assert!(report.applications.iter().all(|it| own.contains(it.name.as_str())), "{own}");
    assert!(own.contains("20.10.24") && own.contains("href=\"../fleet\""), "{own}");
    let (status, missing) = collector.get("/fleet/%3Cb%3E").await;
    assert_eq!(status, StatusCode::NOT_FOUND);
    assert!(missing.contains("there is no host") && !missing.contains("<b>"), "{missing}");
    // The API is complete.
    let status: FleetStatus = serde_json::from_str(&collector.page("/api/v1/fleet/hosts").await).unwrap();
    assert_eq!(*status.hosts[0].report.clone().unwrap(), report);
}

/// The stream of a page, from its version on.
async fn stream(collector: &Collector, path: &str) -> Body {
    let loaded = collector.page(path).await;
    let separator = if path.contains('?') { '&' } else { '?' };
    let path = format!("{path}{separator}v={}", version_of(&loaded));
    let request = Request::get(path).header("host", "localhost").header("accept", "text/event-stream");
    let response = collector.router.clone().oneshot(request.body(Body::empty()).unwrap()).await.unwrap();
    assert_eq!(response.status(), StatusCode::OK);
    response.into_body()
}

#[tokio::test(start_paused = true)]
async fn open_pages_of_the_fleet_follow_the_reports() {
    let collector = Collector::new();
    let mut fleet = stream(&collector, "/fleet").await;
    let mut filtered = stream(&collector, "/fleet?state=Healthy").await;
    let report = host("nas", 1);
    collector.report(&report).await;
    let mut own = stream(&collector, "/fleet/nas").await;
    let change = next_change(&mut fleet).await;
    assert_eq!(change["lists"]["hosts"], serde_json::json!(["h-nas"]), "{change}");
    assert!(change["parts"]["h-nas"].to_string().contains("1 of 1"), "{change}");
    assert!(change["parts"]["counters"].to_string().contains("<b>1</b> Healthy"), "{change}");
    assert!(change["parts"]["paging"].to_string().contains("Hosts 1 to 1 of 1"), "{change}");
    assert_eq!(next_change(&mut filtered).await["lists"]["hosts"], serde_json::json!(["h-nas"]));

    let mut sick = report;
    sick.applications.push(application("shop", HealthStatus::Degraded));
    collector.report(&sick).await;
    let change = next_change(&mut fleet).await;
    assert!(change["parts"]["h-nas"].to_string().contains("badge bad"), "{change}");
    assert!(change["lists"].as_object().unwrap().is_empty(), "{change}");
    let change = next_change(&mut filtered).await;
    assert_eq!(change["lists"]["hosts"], serde_json::json!(["no-host"]));
    assert!(change["parts"]["no-host"].to_string().contains("No host matches."), "{change}");
    let change = next_change(&mut own).await;
    assert_eq!(change["lists"]["applications"], serde_json::json!(["a-calm-0", "a-shop"]));
    assert!(change["parts"]["head"].to_string().contains("Degraded"), "{change}");
    assert!(change["parts"].get("a-calm-0").is_none(), "{change}");

    assert!(collector.store.remove_fleet_host("nas").unwrap());
    assert!(own.frame().await.is_none_or(|frame| frame.is_ok()), "the stream ends");
    let gone = Request::get("/fleet/nas").header("host", "localhost").header("accept", "text/event-stream");
    assert_eq!(collector.send(gone.body(Body::empty()).unwrap()).await.0, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn reason_of_a_host_is_on_the_fleet_page_once() {
    let collector = Collector::new();
    let mut report = host("nas", 2);
    for (name, health) in [("late", HealthStatus::Progressing), ("sick", HealthStatus::Degraded)] {
        let message = format!("{name}: web.1 is not ready");
        report.applications.push(ApplicationReport { message, ..application(name, health) });
    }
    collector.report(&report).await;
    let page = collector.page("/fleet").await;
    assert_eq!(page.matches("sick: web.1 is not ready").count(), 1, "{page}");
    assert!(page.find("sick: web.1").unwrap() < page.find("late: web.1").unwrap(), "{page}");
    // A reason that is about no application stands alone.
    report.repositories[0].message = "could not fetch".to_owned();
    report.applications.clear();
    collector.report(&report).await;
    assert_eq!(collector.page("/fleet").await.matches("infra: could not fetch").count(), 1);
}

#[tokio::test]
async fn overview_lists_the_applications_of_another_host() {
    let collector = Collector::new();
    let mut report = host("nas", 2);
    let message = "web.1 is <gone>".to_owned();
    report.applications.push(ApplicationReport { message, ..application("sick", HealthStatus::Degraded) });
    report.applications.push(ApplicationReport { drift: 3, ..application("late", HealthStatus::Healthy) });
    collector.report(&report).await;
    assert!(collector.page("/").await.contains("<option value=\"nas\">nas</option>"));
    let page = collector.page("/?host=nas").await;
    for shown in [
        "Applications of <a href=\"fleet/nas\">nas</a>",
        "<option value=\"nas\" selected>",
        "<b>4</b> applications",
        "<b>2</b> need attention",
        "href=\"./?host=nas&amp;health=Degraded\"",
        "web.1 is &lt;gone&gt;",
        "3 differences from Git",
        "calm-1",
    ] {
        assert!(page.contains(shown), "{shown}: {page}");
    }
    // No link leads to an application of this host, and nothing can be done from here.
    assert!(!page.contains("href=\"applications/") && !page.contains("class=\"button"), "{page}");
    let filtered = collector.page("/?host=nas&health=Degraded&repository=infra&q=SIC").await;
    assert!(filtered.contains("id=\"a-sick\"") && !filtered.contains("id=\"a-calm-0\""), "{filtered}");
    // A host that has a page of its own is linked there.
    report.page = "https://nas.example.com/gitops/".to_owned();
    collector.report(&report).await;
    let page = collector.page("/?host=nas").await;
    assert!(page.contains("href=\"https://nas.example.com/gitops/applications/sick\""), "{page}");
    assert!(page.contains("href=\"https://nas.example.com/gitops/repositories/infra\""), "{page}");
    // Nothing of a host that is not heard is green.
    collector.report_long_ago(&report, 700);
    let page = collector.page("/?host=nas").await;
    assert!(page.contains("was Healthy") && !page.contains(">Healthy</td>"), "{page}");
    assert!(page.contains("badge bad\">Lost") && page.contains("nothing was heard for 10 minutes"), "{page}");
    let (status, missing) = collector.get("/?host=%3Cb%3E").await;
    assert_eq!(status, StatusCode::NOT_FOUND);
    assert!(missing.contains("there is no host") && !missing.contains("<b>&"), "{missing}");
}

#[tokio::test]
async fn pages_of_a_host_show_the_commit_of_the_revision() {
    let collector = Collector::new();
    let mut nas = host("nas", 1);
    for application in &mut nas.applications {
        application.revision_commit = Some(CommitId::from_stored("c".repeat(40)));
        application.commit = Some(CommitId::from_stored("d".repeat(40)));
    }
    collector.report(&nas).await;
    for path in ["/?host=nas", "/fleet/nas"] {
        let page = collector.page(path).await;
        assert!(page.contains("ccccccc") && !page.contains("ddddddd"), "{path}: {page}");
    }
}

#[tokio::test]
async fn stale_host_is_never_green_on_any_page() {
    let collector = Collector::new();
    // It is fresh when it is first parsed, and must not stay so.
    let report = host("nas", 2);
    collector.report_long_ago(&report, 1);
    assert_eq!(collector.states().await, [("nas".to_owned(), HostState::Healthy)]);
    for (age, state) in [(91, HostState::Stale), (599, HostState::Stale), (601, HostState::Lost)] {
        collector.report_long_ago(&report, age);
        assert_eq!(collector.states().await, [("nas".to_owned(), state)]);
        for path in ["/fleet", "/fleet/nas"] {
            let page = collector.page(path).await;
            assert!(!page.contains("badge good"), "{age} s, {path}: {page}");
        }
        let own = collector.page("/fleet/nas").await;
        assert!(own.contains("was Healthy") && own.contains("As it was last heard"), "{own}");
    }
    // A heartbeat makes it fresh again.
    let now = Clock::System.now();
    assert!(collector.store.hear_fleet_host("nas", "a1", "1", now).unwrap());
    assert!(collector.page("/fleet").await.contains("badge good\">Healthy"));
}

#[tokio::test]
async fn host_with_an_older_commit_is_shown_as_behind() {
    let collector = Collector::new();
    let counted =
        |commit, length| RepositoryReport { history_length: Some(length), ..repository(commit, length) };
    collector.report(&HostReport { repositories: vec![counted('b', 9)], ..host("new", 1) }).await;
    collector.report(&HostReport { repositories: vec![counted('a', 6)], ..host("old", 1) }).await;
    let page = collector.page("/fleet").await;
    assert_eq!(page.matches("3 commits behind bbbbbbbbbbbb").count(), 1, "{page}");
    assert!(collector.page("/fleet/old").await.contains("3 commits behind bbbbbbbbbbbb"));
    // An older agent does not count.
    collector.report(&host("old", 1)).await;
    let page = collector.page("/fleet").await;
    assert!(page.contains(">behind bbbbbbbbbbbb") && !page.contains("commits behind"), "{page}");
    assert!(!collector.page("/fleet/new").await.contains("behind"));
    // It catches up.
    collector.report(&HostReport { repositories: vec![counted('b', 9)], ..host("old", 1) }).await;
    assert!(!collector.page("/fleet").await.contains("behind"));
}
