//! A fleet without a server: hosts keep their reports in a bucket or in a WebDAV folder, and people read them there.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use axum::body::Body;
use driftless_agent::{
    FleetReader, FleetTargets, Handle, Inbox, PeerAccess, PeerSources, ReportSource, fleet_hosts,
    start_fleet_reports, start_fleet_source, start_peers,
};
use driftless_clock::Clock;
use driftless_config::{Fleet, FleetPlace, FleetReports, PlaceKind, Secret, Settings};
use driftless_fleet::{
    FleetDrift, FleetGoal, FleetStatus, HostState, HostView, fleet_drift, merge, unreached,
};
use driftless_git::Lookup;
use driftless_model::{
    After, AgentId, Application, CommitId, HealthStatus, HostIdentity, Otherwise, RepositoryStatus,
    SyncStatus, Timestamp,
};
use driftless_store::Store;
use driftless_web::{Access, router, serve};
use http_body_util::BodyExt;
use tokio::{net::TcpListener, time::sleep};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tower::ServiceExt;

use crate::{
    fleet::{followed, until},
    object_server::{KEY_ID, ObjectServer, Rights},
    sample::{self, agent, commit, publish, shop},
    simulation::Simulation,
};

/// Of the key of the bucket. It is never sent.
const SECRET: &str = "a-secret-that-stays-here";

fn environment(name: &str) -> Option<String> {
    let value = match name {
        "AWS_ACCESS_KEY_ID" => KEY_ID,
        "AWS_SECRET_ACCESS_KEY" => SECRET,
        "WEBDAV_USER" => "me",
        "WEBDAV_PASSWORD" => "hush",
        _ => return None,
    };
    Some(value.to_owned())
}

/// The bucket and the folder of a server.
fn places(server: &ObjectServer) -> [FleetPlace; 2] {
    let mut bucket = FleetPlace::parse("s3://bucket/prod").unwrap();
    if let PlaceKind::Bucket(bucket) = &mut bucket.kind {
        bucket.endpoint = Some(server.url.clone());
    }
    let folder = FleetPlace::parse(&format!("{}/dav", server.url.replace("http", "dav"))).unwrap();
    [bucket, folder]
}

/// An agent that reports.
struct Host {
    handle: Handle,
    inbox: Inbox,
    targets: FleetTargets,
    stop: CancellationToken,
}

impl Host {
    fn start(name: &str, instance: &str, to: &[FleetPlace], clock: Clock) -> Self {
        Self::labelled((name, BTreeMap::new()), instance, to, clock)
    }

    fn labelled(
        (name, labels): (&str, BTreeMap<String, String>),
        instance: &str,
        to: &[FleetPlace],
        clock: Clock,
    ) -> Self {
        let sample::Agent { handle, store: _, inbox } = agent([shop()]);
        let commit = Some(commit('a', "First"));
        inbox.repositories.send_replace(Arc::new(vec![RepositoryStatus { commit, ..followed() }]));
        let settings = FleetReports { to: to.to_vec(), every: Duration::from_millis(200) };
        let source = ReportSource {
            enrolments: driftless_agent::Enrolments::default(),
            handle: handle.clone(),
            host: HostIdentity { name: name.to_owned(), labels },
            instance: AgentId(instance.to_owned()),
            engine_version: Arc::new(|| Some("20.10.24".to_owned())),
            page: String::new(),
            environment: Arc::new(environment),
            requests: Default::default(),
            is_released: false,
            clock,
        };
        let stop = CancellationToken::new();
        let targets = start_fleet_reports(&settings, &source, &stop, &TaskTracker::new());
        Self { handle, inbox, targets, stop }
    }

    /// It runs this commit of the shop, and is healthy.
    fn runs(&self, commit: &str) {
        let mut app = shop();
        app.status.commit.as_mut().unwrap().id = CommitId::from_stored(commit);
        publish(&self.inbox, [app]);
    }

    fn error(&self, index: usize) -> String {
        self.targets.list()[index].error.clone()
    }

    fn has_sent(&self) -> bool {
        self.targets.list().iter().all(|target| target.last_sent.is_some() && target.error.is_empty())
    }
}

fn reader(place: &FleetPlace) -> FleetReader {
    FleetReader::new(place, &(Arc::new(environment) as _), Clock::System).unwrap()
}

async fn seen(reader: &mut FleetReader) -> Vec<HostView> {
    let picture = reader.read().await.unwrap_or_else(|error| panic!("{error}"));
    merge(picture.hosts, &[])
}

fn states(hosts: &[HostView]) -> Vec<(&str, HostState)> {
    hosts.iter().map(|host| (host.name.as_str(), host.state)).collect()
}

#[tokio::test]
async fn hosts_report_to_a_bucket_and_a_folder_at_once() {
    let server = ObjectServer::start().await;
    // Nobody's clock counts but that of the server, which is a day ahead. One host's is two hours behind.
    server.advance(Duration::from_hours(24));
    let places = places(&server);
    for place in &places {
        assert_eq!(seen(&mut reader(place)).await, [], "nobody has reported yet");
    }
    let late = Clock::starting_at(Timestamp(Clock::System.now().0 - 7_200_000));
    let nas = Host::start("nas", "a1", &places, late);
    let web = Host::start("web", "b2", &places, Clock::System);
    until("both report", || nas.has_sent() && web.has_sent()).await;
    let names = ["bucket/prod/nas.json.gz", "bucket/prod/web.json.gz", "dav/nas.json.gz", "dav/web.json.gz"];
    assert_eq!(server.names(), names);
    let goal = FleetGoal { commit: "a".repeat(40), is_healthy: true, ..FleetGoal::default() };
    for place in &places {
        let mut reader = reader(place);
        let hosts = seen(&mut reader).await;
        assert_eq!(states(&hosts), [("nas", HostState::Healthy), ("web", HostState::Healthy)]);
        assert_eq!(unreached(&hosts, &goal), Vec::<String>::new());
        // Objects that have not changed are not read again, and are heard all the same.
        let before = server.requests("GET");
        seen(&mut reader).await;
        let reads = server.requests("GET") - before;
        assert!(reads <= 1 + 2 * 4, "{reads}");
    }

    let mut changed = shop();
    changed.status.health = HealthStatus::Degraded;
    changed.status.message = "web is not ready".to_owned();
    publish(&nas.inbox, [changed]);
    let mut readers = places.each_ref().map(reader);
    for reader in &mut readers {
        while seen(reader).await[0].state != HostState::Degraded {
            sleep(Duration::from_millis(20)).await;
        }
    }
    for reader in &mut readers {
        assert_eq!(fleet_drift(&seen(reader).await, &[]), FleetDrift { hosts: 2, ..FleetDrift::default() });
    }
    let mut drifted = shop();
    drifted.status.sync = SyncStatus::OutOfSync;
    publish(&nas.inbox, [drifted]);
    for reader in &mut readers {
        while fleet_drift(&seen(reader).await, &[]).applications.is_empty() {
            sleep(Duration::from_millis(20)).await;
        }
    }
    nas.stop.cancel();
    web.stop.cancel();
    server.advance(Duration::from_mins(5));
    for reader in &mut readers {
        let hosts = seen(reader).await;
        assert_eq!(states(&hosts), [("nas", HostState::Stale), ("web", HostState::Stale)]);
        assert_eq!(fleet_drift(&hosts, &[]).unknown.len(), 2, "drift that is not known is no drift");
    }
}

#[tokio::test]
async fn second_machine_in_a_bucket_is_refused_and_both_say_so() {
    for is_without_conditions in [false, true] {
        let server = ObjectServer::start().await;
        if is_without_conditions {
            server.forget_conditions();
        }
        let [bucket, _] = places(&server);
        let first = Host::start("nas", "a1", std::slice::from_ref(&bucket), Clock::System);
        until("the first reports", || first.has_sent()).await;
        let second = Host::start("nas", "b2", std::slice::from_ref(&bucket), Clock::System);
        until("the second is refused", || !second.error(0).is_empty()).await;
        let error = "another machine (instance a1) reports as `nas`: give one of the two another name";
        assert_eq!(second.error(0), error);
        let problem = &second.handle.problems().list()[0].message;
        assert!(problem.contains("s3://bucket/prod: another machine"), "{problem}");
        until("the first says so", || !first.targets.list()[0].warning.is_empty()).await;
        let warning = "another machine (instance b2) reports as `nas` and is refused";
        assert_eq!(first.targets.list()[0].warning, warning);
        let host = seen(&mut reader(&bucket)).await.remove(0);
        assert_eq!(
            (host.report.unwrap().instance.as_str(), host.conflict.unwrap().instance.as_str()),
            ("a1", "b2")
        );

        first.stop.cancel();
        server.advance(Duration::from_mins(2));
        until("the second takes the name", || second.has_sent()).await;
        assert!(second.handle.problems().list().is_empty());
    }
}

#[tokio::test]
async fn key_that_may_not_list_writes_the_report() {
    let server = ObjectServer::start().await;
    server.restrict(Rights::ReadAndWrite);
    let [bucket, _] = places(&server);
    let first = Host::start("nas", "a1", std::slice::from_ref(&bucket), Clock::System);
    until("the first reports", || first.has_sent()).await;
    let second = Host::start("nas", "b2", std::slice::from_ref(&bucket), Clock::System);
    until("the second is refused", || second.error(0).contains("another machine (instance a1)")).await;
    until("the first says so", || !first.targets.list()[0].warning.is_empty()).await;
    first.stop.cancel();
    second.stop.cancel();

    // The key may not even read what is there: one report is written, and it could be that of another machine.
    server.restrict(Rights::WriteOnly);
    let blind = Host::start("web", "c3", std::slice::from_ref(&bucket), Clock::System);
    until("it reports", || blind.has_sent()).await;
    blind.stop.cancel();
    let again = Host::start("web", "c3", std::slice::from_ref(&bucket), Clock::System);
    until("it is refused", || !again.error(0).is_empty()).await;
    let error = again.error(0);
    assert!(error.starts_with("`web.json.gz` is there and may not be read"), "{error}");
    assert!(error.contains("`s3:GetObject`"), "{error}");
    assert!(again.handle.problems().list()[0].message.contains("`s3:GetObject`"));
}

#[tokio::test]
async fn agent_that_reads_a_fleet_links_to_its_page() {
    let server = ObjectServer::start().await;
    let [bucket, _] = places(&server);
    let (stop, tasks) = (CancellationToken::new(), TaskTracker::new());
    let source = start_fleet_source(&bucket, &(Arc::new(environment) as _), Clock::System, &stop, &tasks);
    let sample::Agent { handle, store, inbox: _inbox } = agent([]);
    let fleet = Fleet { from: Some(bucket), ..Fleet::default() };
    let router = router(handle.with_fleet(fleet).with_fleet_source(source), store, Access::loopback());
    let request = http::Request::get("/").header("host", "localhost").body(Body::empty()).unwrap();
    let page = router.oneshot(request).await.unwrap().into_body().collect().await.unwrap().to_bytes();
    assert!(String::from_utf8_lossy(&page).contains("href=\"fleet\""), "{page:?}");
    stop.cancel();
}

#[tokio::test]
async fn report_that_somebody_overwrote_is_written_again() {
    let server = ObjectServer::start().await;
    let [bucket, _] = places(&server);
    let host = Host::start("nas", "a1", std::slice::from_ref(&bucket), Clock::System);
    until("the host reports", || host.has_sent()).await;
    let good = server.body("bucket/prod/nas.json.gz");
    let (mut reader, mut new) = (reader(&bucket), reader(&bucket));
    assert_eq!(states(&seen(&mut reader).await), [("nas", HostState::Healthy)]);
    host.stop.cancel();
    server.set("bucket/prod/nas.json.gz", b"no gzip");
    server.set("bucket/prod/readme.txt", b"no report");
    let picture = reader.read().await.unwrap();
    assert_eq!(states(&picture.hosts), [("nas", HostState::Stale)], "it is not forgotten");
    assert_eq!(picture.unreadable.len(), 1);
    assert!(picture.unreadable[0].starts_with("nas: it is no gzip"), "{:?}", picture.unreadable);
    assert!(picture.hosts[0].report.is_some(), "with its last report");
    for reader in [&mut reader, &mut new] {
        let hosts = seen(reader).await;
        assert!(hosts[0].reason.starts_with("its report cannot be read: it is no gzip"), "{hosts:?}");
        assert_eq!(fleet_drift(&hosts, &[]).unknown.len(), 1, "drift that is not known is no drift");
        let goal = FleetGoal { commit: "a".repeat(40), ..FleetGoal::default() };
        assert_eq!(unreached(&hosts, &goal), [format!("nas: {}", hosts[0].reason)]);
    }
    let again = Host::start("nas", "a1", std::slice::from_ref(&bucket), Clock::System);
    until("the host reports again", || again.has_sent()).await;
    assert_eq!(server.body("bucket/prod/nas.json.gz"), good);
}

#[tokio::test]
async fn object_that_cannot_be_read_hides_no_other_host() {
    let server = ObjectServer::start().await;
    let [bucket, _] = places(&server);
    let nas = Host::start("nas", "a1", std::slice::from_ref(&bucket), Clock::System);
    let web = Host::start("web", "b2", std::slice::from_ref(&bucket), Clock::System);
    until("both report", || nas.has_sent() && web.has_sent()).await;
    let mut known = reader(&bucket);
    let healthy = [("nas", HostState::Healthy), ("web", HostState::Healthy)];
    assert_eq!(states(&seen(&mut known).await), healthy);
    nas.stop.cancel();
    server.set("bucket/prod/nas.json.gz", b"newer");
    server.refuse("bucket/prod/nas.json.gz");
    server.set("bucket/prod/web.conflict.json", &[b'x'; 8192]);
    assert_eq!(states(&seen(&mut known).await), healthy, "it may be given in a moment");
    let mut new = reader(&bucket);
    let picture = new.read().await.unwrap();
    assert_eq!(picture.unreadable, ["nas: the server answered 403 Forbidden: without a reason"]);
    assert_eq!(states(&merge(picture.hosts, &[])), [("nas", HostState::Stale), ("web", HostState::Healthy)]);
    // Not one can be read: that is an error of the place.
    server.refuse("bucket/prod/web.json.gz");
    let error = reader(&bucket).read().await.err().unwrap();
    assert_eq!(error.to_string(), "the server answered 403 Forbidden: without a reason");
    web.stop.cancel();
}

#[tokio::test]
async fn wrong_credentials_are_named_and_never_shown() {
    let server = ObjectServer::start().await;
    let [mut bucket, mut folder] = places(&server);
    if let PlaceKind::Folder(folder) = &mut folder.kind {
        folder.user = Some("me".to_owned());
        folder.password = Some(Secret::Plain("wrong-password".to_owned()));
    }
    if let PlaceKind::Bucket(bucket) = &mut bucket.kind {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.keep().join("keys");
        std::fs::write(&path, "[default]\naws_access_key_id=OTHER\naws_secret_access_key=wrong-secret\n")
            .unwrap();
        bucket.credentials_file = Some(path);
    }
    let host = Host::start("nas", "a1", &[bucket, folder], Clock::System);
    until("both fail", || !host.error(0).is_empty() && !host.error(1).is_empty()).await;
    assert_eq!(host.error(0), "the server answered 403 Forbidden: InvalidAccessKeyId: no such key");
    assert_eq!(host.error(1), "the server answered 401 Unauthorized: without a reason");
    let shown = format!("{:?} {:?}", host.targets.list(), host.handle.problems().list());
    assert!(!shown.contains("wrong-"), "{shown}");
}

#[tokio::test]
async fn hosts_are_stale_and_not_lost_while_their_bucket_is_down() {
    let server = ObjectServer::start().await;
    let [bucket, _] = places(&server);
    let host = Host::start("nas", "a1", std::slice::from_ref(&bucket), Clock::System);
    until("the host reports", || host.has_sent()).await;
    let sample::Agent { handle, store, inbox: _inbox } = agent([]);
    let (stop, tasks) = (CancellationToken::new(), TaskTracker::new());
    let clock = Clock::System;
    let source = start_fleet_source(&bucket, &(Arc::new(environment) as _), clock, &stop, &tasks);
    let expected = vec!["tv".to_owned()];
    let fleet = Fleet { from: Some(bucket), expected, ..Fleet::default() };
    let handle = handle.with_fleet(fleet).with_fleet_source(source.clone());
    let hosts = |store: &Store, at| fleet_hosts(&handle, store, at).unwrap();
    until("the bucket is read", || source.status().unwrap().last_read.is_some()).await;
    let now = clock.now();
    assert_eq!(states(&hosts(&store, now)), [("tv", HostState::NeverReported), ("nas", HostState::Healthy)]);
    // The reports are as old as at the last look, which is not long ago: heartbeats come every second.
    let soon = hosts(&store, now.after(Duration::from_secs(30)));
    assert_eq!(states(&soon), [("tv", HostState::NeverReported), ("nas", HostState::Healthy)]);
    // An hour later, without another look.
    let later = hosts(&store, now.after(Duration::from_hours(1)));
    assert_eq!(states(&later), [("tv", HostState::NeverReported), ("nas", HostState::Stale)]);
    assert_eq!(later[1].reason, "the reports at s3://bucket/prod have not been read yet");

    server.set_down(true);
    until("the host notices", || !host.error(0).is_empty()).await;
    assert_eq!(host.error(0), "the server answered 502 Bad Gateway: without a reason");
    assert!(host.handle.problems().list().is_empty(), "nobody has to do anything");
    server.set_down(false);
    until("the host reports again", || host.error(0).is_empty()).await;
    stop.cancel();
}

#[tokio::test]
async fn hosts_are_unknown_until_their_bucket_is_read() {
    let server = ObjectServer::start().await;
    server.set_down(true);
    let [bucket, _] = places(&server);
    let sample::Agent { handle, store, inbox: _inbox } = agent([]);
    let (stop, tasks) = (CancellationToken::new(), TaskTracker::new());
    let clock = Clock::System;
    let source = start_fleet_source(&bucket, &(Arc::new(environment) as _), clock, &stop, &tasks);
    let expected = vec!["ghost".to_owned()];
    let fleet = Fleet { accept: true, from: Some(bucket), expected, ..Fleet::default() };
    let handle = handle.with_fleet(fleet).with_fleet_source(source.clone());
    let hosts = || fleet_hosts(&handle, &store, clock.now()).unwrap();
    assert_eq!(states(&hosts()), [("ghost", HostState::Stale)]);
    assert!(hosts()[0].reason.contains("have not been read yet") && hosts()[0].expected, "{:?}", hosts());
    until("it fails", || !source.status().unwrap().error.is_empty()).await;
    assert!(hosts()[0].reason.contains("cannot be read: the server answered 502"), "{:?}", hosts());
    let status = FleetStatus { hosts: hosts(), source: source.status(), ..FleetStatus::default() };
    assert!(status.unread(&[]).is_some());
    stop.cancel();
}

#[tokio::test]
async fn agent_that_reads_another_one_knows_that_hosts_are_missing() {
    let server = ObjectServer::start().await;
    let [bucket, _] = places(&server);
    let elsewhere = Host::start("web", "a2", std::slice::from_ref(&bucket), Clock::System);
    until("the other host reports", || elsewhere.has_sent()).await;
    server.set_down(true);
    let (stop, tasks, clock) = (CancellationToken::new(), TaskTracker::new(), Clock::System);
    let environment: Lookup = Arc::new(environment);
    let source_of = |place: &FleetPlace| start_fleet_source(place, &environment, clock, &stop, &tasks);
    let sample::Agent { handle, store, inbox: _inbox } = agent([]);
    let fleet = Fleet { accept: true, from: Some(bucket.clone()), ..Fleet::default() };
    let handle = handle.with_fleet(fleet).with_fleet_source(source_of(&bucket));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let hub = FleetPlace::parse(&format!("http://{}", listener.local_addr().unwrap())).unwrap();
    let served = router(handle, store, Access::loopback());
    tokio::spawn(serve(listener, served, stop.clone().cancelled_owned()));
    let host = Host::start("nas", "a1", std::slice::from_ref(&hub), Clock::System);
    until("the host reports", || host.has_sent()).await;

    let sample::Agent { handle, store, inbox: _inbox } = agent([]);
    let source = source_of(&hub);
    let expected = vec!["web".to_owned()];
    let fleet = Fleet { from: Some(hub), expected, ..Fleet::default() };
    let handle = handle.with_fleet(fleet).with_fleet_source(source.clone());
    until("the hub is read", || source.status().unwrap().last_read.is_some()).await;
    let hosts = fleet_hosts(&handle, &store, clock.now()).unwrap();
    assert_eq!(states(&hosts), [("web", HostState::Stale), ("nas", HostState::Healthy)]);
    assert!(hosts[0].reason.contains("it has not read the reports of its own place yet"), "{hosts:?}");
    let status = FleetStatus { hosts, source: source.status(), ..FleetStatus::default() };
    assert!(status.unread(&[]).is_some_and(|problem| problem.contains("are not all known")));
    assert!(status.unread(&["nas".to_owned()]).is_none());
    stop.cancel();
}

/// A host whose commits wait for the canary, which reports to the bucket or folder only. In real time.
async fn commit_waits_for_the_canary_at(index: usize) {
    let server = ObjectServer::start().await;
    let place = places(&server)[index].clone();
    let labels = BTreeMap::from([("ring".to_owned(), "canary".to_owned())]);
    let mut late = Simulation::idle();
    late.settings.host.name = "late".to_owned();
    late.settings.policy.after = Some(After {
        labels: labels.clone(),
        healthy_for: Duration::from_millis(300),
        otherwise: Otherwise::Hold,
        max_wait: Duration::from_hours(2),
    });
    let compose = |version| format!("services: {{web: {{image: 'web:{version}', restart: always}}}}");
    let first = late.git.push(&compose(1));
    let canary = Host::labelled(("canary", labels), "a1", std::slice::from_ref(&place), Clock::System);
    canary.runs(&first);
    until("the canary reports", || canary.has_sent()).await;
    late.begin();
    let (stop, tasks) = (CancellationToken::new(), TaskTracker::new());
    let sources = PeerSources {
        accepted: None,
        from: None,
        access: PeerAccess {
            environment: Arc::new(environment),
            enrolments: driftless_agent::Enrolments::default(),
            every: Duration::from_millis(100),
            clock: Clock::System,
        },
    };
    let settings = FleetReports { to: vec![place], every: Duration::from_millis(200) };
    start_peers(late.handle().fleet().peers(), &settings, sources, &stop, &tasks);
    late.synced(&first).await;
    let reads = server.requests("GET") + server.requests("PROPFIND");

    let second = late.push(&compose(2)).await;
    let is_held = |it: &Application| it.status.waits.iter().any(|it| it.reason == "FirstHostsNotReady");
    let held = late.until("the commit is held", is_held).await;
    assert_eq!(held.status.sync, SyncStatus::OutOfSync);
    assert_eq!(late.images(), ["web:1"], "{}", late.story());
    canary.runs(&second);
    late.synced(&second).await;
    assert_eq!(late.images(), ["web:2"], "{}", late.story());
    assert!(server.requests("GET") + server.requests("PROPFIND") > reads);
    stop.cancel();
}

#[tokio::test]
async fn commit_waits_for_the_canary_in_a_bucket() {
    commit_waits_for_the_canary_at(0).await;
}

#[tokio::test]
async fn commit_waits_for_the_canary_in_a_folder() {
    commit_waits_for_the_canary_at(1).await;
}

#[test]
fn places_of_reports_are_checked() {
    let parse = |text: &str| {
        let text = format!("repositories:\n- url: https://git.example.com/me/infra.git\n{text}");
        Settings::parse("driftless.yaml", &text)
    };
    let settings = parse(
        "report:\n  tokenFile: /etc/token\n  to:\n  - https://hub.example.com\n  - url: s3://fleet/prod\n    endpoint: https://s3.example.com/\n    region: eu\n    credentialsFile: /etc/keys\n  - url: davs://dav.example.com/fleet\n    user: nas\n    passwordFile: /etc/password\nfleet: {from: 's3://fleet/prod', expected: [nas]}\n",
    )
    .unwrap();
    let [hub, bucket, folder] = settings.report.to.as_slice() else { panic!() };
    assert_eq!(hub.kind, PlaceKind::Collector { token: Some(Secret::File("/etc/token".into())) });
    let PlaceKind::Bucket(bucket) = &bucket.kind else { panic!() };
    assert_eq!((bucket.name.as_str(), bucket.prefix.as_str()), ("fleet", "prod"));
    assert_eq!(bucket.endpoint.as_deref(), Some("https://s3.example.com"));
    let PlaceKind::Folder(folder) = &folder.kind else { panic!() };
    assert_eq!((folder.url.as_str(), folder.user.as_deref()), ("https://dav.example.com/fleet", Some("nas")));
    assert_eq!(settings.fleet.from.unwrap().url, "s3://fleet/prod");
    for (text, message) in [
        ("report: {to: {endpoint: 'https://a'}}\n", "url"),
        ("report: {to: {url: 's3://a', tokenFile: /a}}\n", "is no setting of a bucket"),
        ("report: {to: {url: 'https://a', user: me}}\n", "is no setting of another agent"),
        ("report: {to: {url: 'davs://a/b', user: me}}\n", "needs `passwordFile`"),
        ("report: {to: {url: 's3://a', endpoint: 'https://a?x=1'}}\n", "is written as"),
        ("report: {to: {url: 's3://a', credentialsFile: keys}}\n", "must be absolute"),
        ("report: {to: ['s3://a', {url: 's3://a/'}]}\n", "already"),
        ("report: {to: 's3://a b'}\n", "a bucket is written as"),
        ("report: {to: 'davs://me:pw@a/b'}\n", "without a user"),
        ("fleet: {from: 'ftp://a'}\n", "a place of reports"),
    ] {
        let findings = parse(text).unwrap_err();
        let all: Vec<String> = findings.iter().map(ToString::to_string).collect();
        assert!(all.iter().any(|finding| finding.contains(message)), "{text}: {all:?}");
        assert!(!all.iter().any(|finding| finding.contains("pw")), "{all:?}");
    }
}
