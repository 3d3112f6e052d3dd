//! The page through the router: what it shows, what it never executes, its filters, actions and stream of changes.

use std::{
    collections::{BTreeMap, BTreeSet},
    future::ready,
    pin::Pin,
    sync::Arc,
    time::Duration,
};

use axum::{Router, body::Body};
use driftless_agent::{Answer, Inspection, Logs, RequestKind, Rollback, Supposed};
use driftless_docker::{LogOptions, LogStream};
use driftless_model::{
    Actor, ApiToken, AppName, Application, Cause, ConditionStatus, Finding, HELPER_IMAGE, HealthStatus,
    InstanceStatus, JobStatus, Outcome, PROXY_IMAGE, RepositoryStatus, Scope, Severity, StatusCondition,
    SyncStatus, Timestamp, Until, WaitStatus, WorkloadName, WorkloadStatus,
};
use driftless_store::Suspension;
use driftless_web::{Access, Token, router};
use http::{Request, Response, StatusCode};
use http_body_util::BodyExt;
use tokio::time::{Instant, timeout};
use tower::ServiceExt;

use crate::sample::{self, LastWords, agent, answer, blog, crashing, not_in_git, shop};

type Seen = Arc<std::sync::Mutex<Vec<(AppName, RequestKind)>>>;

fn answering() -> (Router, Seen, driftless_store::Store) {
    let seen = Seen::default();
    let sample::Agent { handle, store, inbox } = agent([shop(), blog()]);
    tokio::spawn(answer(inbox, seen.clone()));
    (router(handle, store.clone(), Access::loopback()), seen, store)
}

fn request(method: &str, path: &str, body: &str) -> Request<Body> {
    let request = Request::builder().method(method).uri(path).header("host", "localhost:8484");
    request.header("accept", "text/html").body(Body::from(body.to_owned())).unwrap()
}

async fn ask(router: &Router, request: Request<Body>) -> Response<Body> {
    router.clone().oneshot(request).await.unwrap()
}

async fn text(response: Response<Body>) -> String {
    String::from_utf8(response.into_body().collect().await.unwrap().to_bytes().to_vec()).unwrap()
}

/// The version of a page, from which its stream goes on.
pub(crate) fn version_of(page: &str) -> &str {
    page.split("data-version=\"").nth(1).unwrap().split('"').next().unwrap()
}

/// The next change that a stream sends.
pub(crate) async fn next_change(stream: &mut Body) -> serde_json::Value {
    loop {
        let frame = stream.frame().await.unwrap().unwrap().into_data().unwrap();
        let text = String::from_utf8(frame.to_vec()).unwrap();
        if let Some((_, data)) = text.split_once("data: ") {
            return serde_json::from_str(data.trim()).unwrap();
        }
    }
}

async fn page(router: &Router, path: &str) -> String {
    let response = ask(router, request("GET", path, "")).await;
    assert_eq!(response.status(), StatusCode::OK, "{path}");
    text(response).await
}

/// Asserts that all of these texts are on a page.
fn assert_shown(page: &str, texts: &[&str]) {
    for shown in texts {
        assert!(page.contains(shown), "{shown} in {page}");
    }
}

#[tokio::test]
async fn overview_shows_failures_first_and_filters() {
    let (router, _, _) = answering();
    let all = page(&router, "/").await;
    assert_shown(
        &all,
        &["<b>2</b> applications", "<b>1</b> need attention", "Needs attention", "&lt;cannot&gt;", "pinned"],
    );
    assert!(all.find("applications/blog").unwrap() < all.find("applications/shop").unwrap());
    for (query, has_shop, has_blog) in [
        ("?health=Degraded", false, true),
        ("?sync=Synced", true, false),
        ("?only=attention", false, true),
        ("?only=pinned", false, true),
        ("?q=SHO", true, false),
        ("?repository=infra", true, true),
        ("?repository=other", false, false),
        ("?q=%3Cscript%3E", false, false),
    ] {
        let shown = page(&router, &format!("/{query}")).await;
        assert_eq!(shown.contains("href=\"applications/shop\""), has_shop, "{query}");
        assert_eq!(shown.contains("href=\"applications/blog\""), has_blog, "{query}");
        assert!(!shown.contains("Nothing needs attention"), "{query}: blog does");
        assert_eq!(shown.contains("No application matches the filter"), !has_shop && !has_blog, "{query}");
        assert_eq!(shown.contains("1 other application needs attention"), !has_blog, "{query}");
        assert!(!shown.contains("<script>"), "{query}");
    }
}

#[tokio::test]
async fn application_page_explains_the_difference() {
    let (router, _, _) = answering();
    let shop = page(&router, "/applications/shop").await;
    let links = [
        "https://git.example.com/me/infra/commit/aaaa",
        "shop-web-2",
        "http://127.0.0.1:8082/",
        "sites/shop",
    ];
    assert_shown(&shop, &links);
    let blog = page(&router, "/applications/blog").await;
    assert_shown(
        &blog,
        &[
            "<b>Pinned</b> to revision 1",
            "by user ada",
            "2 behind",
            "until the next commit",
            "ImagePullBackOff",
            "manifest unknown",
            "attempt 3",
            "being healed",
            "sites/blog/compose.yaml:9:5",
            "First &lt;script&gt;alert('post')&lt;/script&gt;",
            "registry.example.com/blog:2.0.0",
        ],
    );
    let missing = ask(&router, request("GET", "/applications/nothing", "")).await;
    assert_eq!(missing.status(), StatusCode::NOT_FOUND);
    assert_shown(&text(missing).await, &["Not found", "there is no application `nothing`", "href=\"./../\""]);
}

#[tokio::test]
async fn page_executes_nothing_from_outside() {
    let agent = agent([shop(), blog()]);
    agent.happens(sample::event("shop", "BackOff", "</td><img src=x onerror=alert(1)>"));
    let router = router(agent.handle, agent.store, Access::loopback());
    for path in ["/", "/applications/shop", "/applications/blog", "/audit"] {
        let response = ask(&router, request("GET", path, "")).await;
        let policy = response.headers()["content-security-policy"].to_str().unwrap().to_owned();
        assert!(policy.starts_with("default-src 'none'") && !policy.contains("unsafe"), "{policy}");
        assert_eq!(response.headers()["x-content-type-options"], "nosniff");
        assert_eq!(response.headers()["cache-control"], "no-store");
        let page = text(response).await;
        assert_eq!(page.matches("<script").count(), 1, "{path}: only its own script");
        assert!(!page.contains("<img") && !page.contains("style=") && !page.contains("onclick"), "{path}");
        let links = page.split(" href=\"").skip(1).chain(page.split(" src=\"").skip(1));
        for link in links.map(|rest| rest.split('"').next().unwrap()) {
            let is_forge =
                link.starts_with("https://git.example.com/") || link.starts_with("http://127.0.0.1:808");
            let is_relative = !link.starts_with('/') && !link.contains("://");
            assert!(is_forge || is_relative || link.starts_with("data:"), "{path}: {link}");
        }
    }
    let shop = page(&router, "/applications/shop").await;
    assert_shown(&shop, &["&lt;/td&gt;&lt;img src=x"]);
    let start = shop.find("assets/").unwrap();
    let asset = shop[start..].split('"').next().unwrap();
    let style = ask(&router, request("GET", &format!("/{asset}"), "")).await;
    assert!(style.headers()["cache-control"].to_str().unwrap().contains("immutable"));
    assert_eq!(style.headers()["content-type"], "text/css; charset=utf-8");
}

#[tokio::test]
async fn action_is_asked_for_and_then_performed() {
    let (router, seen, store) = answering();
    let asked = page(&router, "/applications/blog/sync").await;
    assert_shown(&asked, &["Sync blog?", "pull image blog:2.0.0", "<form class=\"confirm\" method=\"post\""]);
    assert_eq!(*seen.lock().unwrap(), [("blog".into(), RequestKind::Plan)], "asking changes nothing");
    seen.lock().unwrap().clear();
    let body = "to=2&reason=orders+fail&until=next-commit";
    let done = ask(&router, request("POST", "/applications/blog/rollback", body)).await;
    assert_eq!(done.status(), StatusCode::SEE_OTHER);
    assert_eq!(done.headers()["location"], "../blog?did=rollback");
    let rollback =
        Rollback { to: Some("2".to_owned()), reason: "orders fail".to_owned(), until: Until::NextCommit };
    assert_eq!(*seen.lock().unwrap(), [("blog".into(), RequestKind::Rollback(rollback))]);
    assert_shown(&page(&router, "/applications/blog?did=rollback").await, &["The rollback was accepted"]);
    let refused = ask(&router, request("POST", "/applications/shop/suspend", "")).await;
    assert_eq!(refused.status(), StatusCode::CONFLICT);
    let way_back = "<a href=\"./../../applications/shop\" data-key=\"Escape\"";
    assert_shown(&text(refused).await, &["Refused", "is suspended already", way_back]);
    let restart = page(&router, "/applications/shop/restart?workload=web").await;
    let address = "method=\"post\" action=\"restart?workload=web\"";
    assert_shown(&restart, &["Restart web of shop?", "shop-web-1, shop-web-2", address]);
    let unknown = ask(&router, request("GET", "/applications/shop/explode", "")).await;
    assert_eq!(unknown.status(), StatusCode::NOT_FOUND);
    let audit = page(&router, "/audit").await;
    assert_shown(&audit, &["rollback", "to 2: orders fail", "suspend", "refused"]);
    let entries = store.audit(None, 10, None).unwrap();
    assert_eq!(entries.len(), 2);
    assert_eq!(
        (entries[1].action.as_str(), entries[1].channel),
        ("rollback", driftless_model::Channel::Page)
    );
}

#[tokio::test]
async fn resume_and_heal_are_foreseen_as_accepted() {
    let (router, seen, _) = answering();
    for (action, supposed) in [("resume", Supposed::Resume), ("heal", Supposed::Heal)] {
        let asked = page(&router, &format!("/applications/blog/{action}")).await;
        assert_shown(&asked, &["pull image blog:2.0.0"]);
        assert_eq!(seen.lock().unwrap().pop().unwrap().1, RequestKind::PlanAfter(supposed));
    }
}

/// The page of an application that is the only one.
async fn page_of(application: Application, path: &str) -> String {
    let sample::Agent { handle, store, inbox } = agent([application]);
    tokio::spawn(answer(inbox, Seen::default()));
    page(&router(handle, store, Access::loopback()), path).await
}

#[tokio::test]
async fn retry_is_offered_for_every_failed_commit() {
    for (status, is_offered) in [(ConditionStatus::True, true), (ConditionStatus::False, false)] {
        let mut failed = shop();
        failed.status.conditions.push(StatusCondition {
            kind: "CommitFailed".to_owned(),
            status,
            reason: "RolledBack".to_owned(),
            ..not_in_git()
        });
        let shown = page_of(failed, "/applications/shop").await;
        assert_eq!(shown.contains("shop/retry"), is_offered, "{shown}");
    }
}

#[tokio::test]
async fn retry_is_offered_for_failures_without_a_commit() {
    let failed = |reason: &str| {
        let mut application = shop();
        application.status.waits = vec![WaitStatus {
            reason: reason.to_owned(),
            object: "setup".to_owned(),
            message: "setup failed".to_owned(),
            attempt: None,
            until: None,
        }];
        application
    };
    for (reason, is_offered) in [("JobFailed", true), ("Failed", true), ("HookFailed", false)] {
        let shown = page_of(failed(reason), "/applications/shop").await;
        assert_eq!(shown.contains("shop/retry"), is_offered, "{reason}: {shown}");
    }
    let mut suspended = failed("JobFailed");
    suspended.spec.policy.suspended = true;
    assert!(!page_of(suspended, "/applications/shop").await.contains("shop/retry"));
    // The hook of a removal has failed.
    let mut removed = failed("JobFailed");
    removed.status.conditions.push(not_in_git());
    assert!(!page_of(removed, "/applications/shop").await.contains("shop/retry"));
}

#[tokio::test]
async fn suspended_application_offers_nothing_that_is_refused() {
    let mut suspended = blog();
    suspended.spec.policy.suspended = true;
    suspended.spec.policy.self_heal = false;
    let active = Application { spec: blog().spec, ..suspended.clone() };
    let shown = page_of(active, "/applications/blog").await;
    assert_shown(&shown, &["blog/restart?", "blog/scale?"]);
    let shown = page_of(suspended.clone(), "/applications/blog").await;
    assert_shown(&shown, &["blog/resume", "blog/sync"]);
    for action in ["restart", "scale", "heal"] {
        assert!(!shown.contains(&format!("blog/{action}")), "{action}");
        let path = format!("/applications/blog/{action}?workload=web");
        let asked = page_of(suspended.clone(), &path).await;
        assert_shown(&asked, &["blog is suspended, so nothing is changed", ">Back</a>"]);
        assert!(!asked.contains("<form class=\"confirm\""), "{action}");
    }
}

#[tokio::test]
async fn rollback_of_a_suspended_one_has_a_note_on_the_page() {
    let (router, _, store) = answering();
    let old = store_revision(&store, "shop-1", Cause::Commit);
    store_revision(&store, "shop-2", Cause::Commit);
    let note = "is suspended, so nothing is changed yet";
    assert!(!page(&router, "/applications/shop/rollback").await.contains(note));
    let mut by_settings = shop();
    by_settings.spec.policy.suspended = true;
    let other = agent([by_settings]);
    tokio::spawn(answer(other.inbox, Seen::default()));
    store_revision(&other.store, "shop-1", Cause::Commit);
    store_revision(&other.store, "shop-2", Cause::Commit);
    let other = driftless_web::router(other.handle, other.store, Access::loopback());
    assert_shown(
        &page(&other, "/applications/shop/rollback").await,
        &["shop is suspended. If that is by its settings", "<code>suspend: false</code>"],
    );
    store.set_suspended(&"shop".into(), Suspension::Suspended).unwrap();
    assert_shown(
        &page(&router, "/applications/shop/rollback").await,
        &[note, "ends the suspension and this pin"],
    );
    // The agent of this test has its note for this reason.
    let body = format!("to={old}&reason=suspended");
    let done = ask(&router, request("POST", "/applications/shop/rollback", &body)).await;
    assert_eq!(done.status(), StatusCode::OK);
    assert_shown(
        &text(done).await,
        &["The rollback was accepted", "<p class=\"note warn\" role=\"alert\">shop is suspended</p>"],
    );
}

#[tokio::test]
async fn suspended_application_is_called_so_once() {
    let mut suspended = blog();
    suspended.spec.policy.suspended = true;
    suspended.status.operation = None;
    suspended.status.message = "suspended: differences are reported and left".to_owned();
    let shown = page_of(suspended.clone(), "/").await;
    assert!(shown.contains("suspended: differences") && !shown.contains("<b>suspended </b>"), "{shown}");
    suspended.status.message = "web: ImagePullBackOff".to_owned();
    assert_shown(&page_of(suspended, "/").await, &["<b>suspended </b>web: ImagePullBackOff"]);
}

#[tokio::test]
async fn workload_without_containers_offers_no_restart() {
    let mut application = shop();
    for workload in Arc::make_mut(&mut application.status.workloads).values_mut() {
        workload.instances.clear();
    }
    let shown = page_of(application.clone(), "/applications/shop").await;
    assert!(shown.contains("shop/scale?workload=web") && !shown.contains("shop/restart"), "{shown}");
    let asked = page_of(application, "/applications/shop/restart?workload=web").await;
    assert_shown(&asked, &["web of shop has no container to restart", ">Back</a>"]);
    assert!(!asked.contains("<form class=\"confirm\""), "{asked}");
}

#[tokio::test]
async fn missing_container_is_called_missing_in_a_diff() {
    let sample::Agent { handle, store, mut inbox } = agent([shop()]);
    tokio::spawn(async move {
        while let Some(request) = inbox.requests.recv().await {
            let mut app = driftless_report::application(&request.app, "sites/shop");
            app.items.push(driftless_report::Item {
                change: driftless_report::Type::Missing,
                path: String::new(),
                want: String::new(),
                got: String::new(),
                ..sample::stopped()
            });
            let inspection = Inspection { app, unmanaged: BTreeSet::new() };
            let _ = request.reply.send(Ok(Answer::Drift(Box::new(inspection))));
        }
    });
    let shown = page(&router(handle, store, Access::loopback()), "/applications/shop/diff").await;
    assert_shown(&shown, &["<td class=\"mono\">missing</td>"]);
}

#[tokio::test]
async fn completed_instances_are_well_and_count_as_no_outage() {
    let mut application = shop();
    let workloads = Arc::make_mut(&mut application.status.workloads);
    let mut migrate = workloads[&WorkloadName::from("web")].clone();
    (migrate.ready_replicas, migrate.replicas, migrate.job) = (0, 1, Some(JobStatus::default()));
    migrate.instances.truncate(1);
    for instance in &mut migrate.instances {
        (instance.ready, instance.state) = (false, "Completed".to_owned());
    }
    let once = WorkloadStatus { job: None, reason: "Completed".to_owned(), ..migrate.clone() };
    workloads.insert("migrate".into(), migrate);
    workloads.insert("once".into(), once);
    let shown = page_of(application.clone(), "/applications/shop").await;
    assert_eq!(shown.matches("<span class=\"badge good\">Completed</span>").count(), 3, "{shown}");
    assert!(!shown.contains("badge bad"), "{shown}");
    assert_shown(&page_of(application, "/").await, &["<td>2/2</td>"]);
}

#[tokio::test]
async fn proxies_offer_no_actions() {
    let mut application = shop();
    let workloads = Arc::make_mut(&mut application.status.workloads);
    let web = workloads[&WorkloadName::from("web")].clone();
    for (name, image) in [("web_proxy", HELPER_IMAGE), ("web_proxy_worker", PROXY_IMAGE)] {
        workloads.insert(name.into(), WorkloadStatus { image: image.to_owned(), ..web.clone() });
    }
    let shown = page_of(application, "/applications/shop").await;
    assert_shown(&shown, &["shop/scale?workload=web\"", "shop/restart?workload=web\""]);
    assert!(!shown.contains("workload=web_proxy"), "{shown}");
}

#[tokio::test]
async fn application_with_a_suspended_job_is_not_suspended() {
    let mut application = shop();
    application.status.health = HealthStatus::Suspended;
    let shown = page_of(application.clone(), "/applications/shop").await;
    assert_shown(&shown, &["shop/suspend", "shop/restart?", "shop/scale?"]);
    assert!(!shown.contains("shop/resume"), "{shown}");
    let asked = page_of(application.clone(), "/applications/shop/restart?workload=web").await;
    assert_shown(&asked, &["<form class=\"confirm\""]);
    let listed = page_of(application, "/?only=suspended").await;
    assert!(!listed.contains("href=\"applications/shop\""), "{listed}");
}

#[tokio::test]
async fn newest_commit_is_shown_beyond_a_pin() {
    let sample::Agent { handle, store, inbox } = agent([blog(), shop()]);
    let newest = sample::commit('e', "The newest subject");
    let repository = many(1).1.remove(0);
    let repository = RepositoryStatus { name: "infra".to_owned(), commit: Some(newest), ..repository };
    inbox.repositories.send_replace(Arc::new(vec![repository]));
    tokio::spawn(answer(inbox, Seen::default()));
    let router = router(handle, store, Access::loopback());
    let pinned = page(&router, "/applications/blog").await;
    let (git, runs) = pinned.split_once("<h2>Runs</h2>").unwrap();
    let git = git.split_once("<h2>Git says</h2>").unwrap().1;
    assert!(git.contains("The newest subject") && !git.contains("alert("), "{git}");
    assert!(runs.contains("alert("), "the pinned commit runs");
    assert_shown(&pinned, &["<th scope=\"col\">Revision 1</th>"]);
    for (path, heading) in [
        ("blog/diff", "Revision 1"),
        ("blog/diff?against=head", "Git says"),
        ("blog/diff?against=3", "Revision 3"),
        ("blog/diff?against=abcdef0", "Commit abcdef0"),
    ] {
        let shown = page(&router, &format!("/applications/{path}")).await;
        assert_shown(&shown, &[&format!("<th scope=\"col\">{heading}</th>")]);
    }
}

#[tokio::test]
async fn rollback_without_an_older_revision_has_no_button() {
    let (router, ..) = answering();
    assert!(!page(&router, "/applications/shop").await.contains("shop/rollback"));
    for (path, why) in [
        ("shop/rollback", "shop has no older revision that succeeded"),
        ("shop/rollback?to=99", "shop has no revision 99"),
        ("shop/restart?workload=nothing", "shop has no workload `nothing`"),
    ] {
        let page = page(&router, &format!("/applications/{path}")).await;
        assert_shown(&page, &[why, ">Back</a>"]);
        assert!(!page.contains("<form class=\"confirm\""), "{path}");
    }
}

/// A user has set the number of instances of `web`.
pub(crate) fn scaled_wait() -> WaitStatus {
    WaitStatus {
        reason: "Scaled".to_owned(),
        object: "web".to_owned(),
        message: "web is scaled to 2 by token ci until 2026-01-01T02:00:00Z, and Git says 1; `driftless scale shop/web \
                  --reset` ends it"
            .to_owned(),
        attempt: None,
        until: None,
    }
}

#[tokio::test]
async fn workload_is_scaled_for_a_time_and_reset() {
    let seen = Seen::default();
    let sample::Agent { handle, store, inbox } = agent([shop()]);
    let applications = inbox.applications.clone();
    tokio::spawn(answer(inbox, seen.clone()));
    let router = router(handle, store.clone(), Access::loopback());
    let links = page(&router, "/applications/shop").await;
    assert_shown(&links, &["shop/scale?workload=web", "shop/restart?workload=web"]);
    assert!(!links.contains("reset-scale"), "nobody has scaled it");
    let asked = page(&router, "/applications/shop/scale?workload=web").await;
    assert_shown(&asked, &["Scale web of shop?", "shop-web-1, shop-web-2", "type=\"number\"", "value=\"2\""]);
    let body = "workload=web&replicas=5&until=8h";
    let done = ask(&router, request("POST", "/applications/shop/scale", body)).await;
    assert_eq!(done.headers()["location"], "../shop?did=scale");
    let (_, RequestKind::Scale(scale)) = seen.lock().unwrap().pop().unwrap() else { panic!("{seen:?}") };
    assert_eq!((scale.workload.as_str(), scale.replicas), ("web", 5));
    let entry = store.audit(None, 1, None).unwrap().remove(0);
    assert_eq!((entry.action.as_str(), entry.detail), ("scale", format!("web to 5 until {}", scale.until)));
    for wrong in
        ["workload=web&replicas=-1&until=1h", "workload=web&replicas=5&until=soon", "replicas=5&until=1h"]
    {
        let refused = ask(&router, request("POST", "/applications/shop/scale", wrong)).await;
        assert_eq!(refused.status(), StatusCode::BAD_REQUEST, "{wrong}");
    }
    let nothing = page(&router, "/applications/shop/reset-scale?workload=web").await;
    assert_shown(&nothing, &["web of shop is not scaled"]);

    let mut scaled = shop();
    scaled.status.waits = vec![scaled_wait()];
    applications.send_replace(Arc::new([(scaled.name.clone(), Arc::new(scaled))].into()));
    let shown = page(&router, "/applications/shop").await;
    assert_shown(&shown, &["shop/reset-scale?workload=web", "<b>web</b> is scaled to 2 by token ci"]);
    let asked = page(&router, "/applications/shop/reset-scale?workload=web").await;
    assert_shown(&asked, &["End the scaling of web of shop?", "Git says 1"]);
    ask(&router, request("POST", "/applications/shop/reset-scale", "workload=web")).await;
    assert_eq!(seen.lock().unwrap().pop().unwrap().1, RequestKind::ResetScale("web".into()));
}

#[tokio::test]
async fn page_names_the_configured_host() {
    let mut shop = shop();
    shop.status.node = Some("name-of-the-engine".to_owned());
    let sample::Agent { handle, store, .. } = agent([shop]);
    let handle = handle.with_place("nas".to_owned(), "http://localhost:8484".to_owned());
    let router = router(handle, store, Access::loopback());
    for path in ["/", "/applications/shop"] {
        let page = page(&router, path).await;
        assert_shown(&page, &["<span class=\"host\">nas</span>"]);
        assert!(!page.contains("name-of-the-engine"), "{path}");
    }
}

#[tokio::test]
async fn readers_see_no_buttons_and_may_not_act() {
    let sample::Agent { handle, store, inbox } = agent([shop(), blog()]);
    tokio::spawn(answer(inbox, Seen::default()));
    let token = |name: &str, scope: &str| {
        let scopes = vec![Scope::parse(scope).unwrap()];
        let (created, created_by) = (Timestamp(1), Actor::agent());
        let token = ApiToken { name: name.to_owned(), scopes, created, created_by, expires: None };
        store.create_token(&token).unwrap().unwrap()
    };
    let (reader, shopkeeper) = (token("reader", "read"), token("shopkeeper", "act:app/shop"));
    let router = router(handle, store.clone(), Access::token(Token::new("correct-horse-battery").unwrap()));
    let get = async |path: &str, token: &str| {
        let mut request = request("GET", path, "");
        request.headers_mut().insert("authorization", format!("Bearer {token}").parse().unwrap());
        let response = ask(&router, request).await;
        (response.status(), text(response).await)
    };
    let (status, shop) = get("/applications/shop", &reader).await;
    assert_eq!(status, StatusCode::OK);
    for button in [">Sync<", ">Roll back<", ">Suspend<", ">Restart<"] {
        assert!(!shop.contains(button), "{button}");
    }
    assert!(shop.contains(">Plan<") && shop.contains(">Diff<"));
    assert_eq!(get("/applications/shop/sync", &reader).await.0, StatusCode::FORBIDDEN);
    assert_eq!(get("/audit", &reader).await.0, StatusCode::FORBIDDEN);
    assert!(get("/applications/shop", &shopkeeper).await.1.contains(">Sync<"));
    assert!(!get("/applications/blog", &shopkeeper).await.1.contains(">Sync<"));
    let mut post = request("POST", "/applications/shop/sync", "");
    post.headers_mut().insert("authorization", format!("Bearer {reader}").parse().unwrap());
    assert_eq!(ask(&router, post).await.status(), StatusCode::FORBIDDEN);
}

/// Many applications in several repositories, some of which fail.
pub(crate) fn many(count: usize) -> (Vec<Application>, Vec<RepositoryStatus>) {
    let applications = (0..count).map(|number| {
        let mut application = shop();
        application.name = AppName(format!("application-{number:03}"));
        application.spec.repository = format!("repository-{}", number % 5);
        if number % 25 == 0 {
            application.status.health = HealthStatus::Degraded;
            application.status.sync = SyncStatus::OutOfSync;
            application.status.message =
                format!("web: container {number} restarts again and again, exit code 137");
        }
        application
    });
    let repositories = (0..5).map(|number| RepositoryStatus {
        name: format!("repository-{number}"),
        url: format!("https://git.example.com/me/repository-{number}.git"),
        reference: "branch main".to_owned(),
        commit: Some(sample::commit('a', "Serve the spring catalogue")),
        history_length: None,
        applications: count / 5,
        message: String::new(),
        reason: String::new(),
        fetched_at: Some(sample::NOW),
        next_fetch: Some(sample::NOON),
        keys: vec!["the SSH key /etc/driftless/id logs in".to_owned()],
        hosts: Vec::new(),
    });
    (applications.collect(), repositories.collect())
}

#[tokio::test]
async fn overview_of_500_applications_stays_small() {
    let (applications, repositories) = many(500);
    let sample::Agent { handle, store, inbox } = agent(applications);
    inbox.repositories.send_replace(Arc::new(repositories));
    let router = router(handle, store, Access::loopback());
    let page = page(&router, "/").await;
    assert_eq!(page.matches("<tr id=\"a-").count(), 500);
    assert!(page.len() <= 100_000, "{} bytes", page.len());
}

#[tokio::test]
async fn stream_sends_only_changed_parts() {
    let sample::Agent { handle, store, inbox } = agent([shop(), blog()]);
    let router = router(handle, store, Access::loopback());
    let loaded = page(&router, "/").await;
    let version = version_of(&loaded);
    let open = async |path: &str| {
        let request = Request::get(path).header("host", "localhost").header("accept", "text/event-stream");
        ask(&router, request.body(Body::empty()).unwrap()).await.into_body()
    };
    let mut stream = open(&format!("/?v={version}")).await;
    let mut next =
        async || timeout(Duration::from_secs(20), next_change(&mut stream)).await.expect("a change arrives");
    let mut changed = shop();
    changed.status.health = HealthStatus::Degraded;
    changed.status.message = "web.1 is gone".to_owned();
    let mut waiting = Box::pin(next());
    assert!(futures_util::poll!(&mut waiting).is_pending(), "the page is up to date");
    sample::publish(&inbox, [changed, blog()]);
    let change = waiting.await;
    let parts = change["parts"].as_object().unwrap();
    assert!(parts["a-shop"].as_str().unwrap().contains("web.1 is gone"), "{change}");
    assert!(parts.contains_key("counters") && !parts.contains_key("a-blog"), "{change}");
    assert!(change["lists"]["attention"].to_string().contains("a-shop"), "{change}");
    sample::publish(&inbox, [shop(), blog()]);
    let healed = next().await;
    assert!(healed["lists"]["r-infra"].to_string().contains("a-shop"), "{healed}");
    assert_eq!(healed["version"], version, "the page is as it was loaded");

    // A browser that has missed something gets everything.
    let mut stale = open("/applications/blog?v=0000").await;
    let first = timeout(Duration::from_secs(20), async {
        let mut text = String::new();
        while !text.contains("data: ") {
            let frame = stale.frame().await.unwrap().unwrap().into_data().unwrap();
            text.push_str(std::str::from_utf8(&frame).unwrap());
        }
        text
    });
    assert_shown(&first.await.unwrap(), &["\"head\"", "\"events\"", "ImagePullBackOff"]);
}

#[tokio::test]
async fn repository_without_a_match_leaves_a_filtered_page() {
    let sample::Agent { handle, store, inbox } = agent([]);
    let router = router(handle, store, Access::loopback());
    let open = async |path: &str| {
        let request = Request::get(path).header("host", "localhost").header("accept", "text/event-stream");
        ask(&router, request.body(Body::empty()).unwrap()).await.into_body()
    };
    let next = async |stream: &mut Body| {
        timeout(Duration::from_secs(20), next_change(stream)).await.expect("a change arrives")
    };
    assert_shown(
        &page(&router, "/?q=shop").await,
        &["<div id=\"empty\" class=\"empty\">", "No application yet."],
    );
    let mut stale = open("/?q=shop&v=0").await;
    let first = next(&mut stale).await;
    assert!(first["parts"]["empty"].to_string().contains("No application yet."), "{first}");

    sample::publish(&inbox, [shop()]);
    let found = next(&mut stale).await;
    assert_eq!(found["parts"]["empty"], "<div id=\"empty\"></div>", "{found}");
    assert!(found["lists"]["r-infra"].to_string().contains("a-shop"), "{found}");
    let loaded = page(&router, "/?q=shop").await;
    let mut stream = open(&format!("/?q=shop&v={}", version_of(&loaded))).await;
    let mut waiting = Box::pin(next(&mut stream));
    assert!(futures_util::poll!(&mut waiting).is_pending(), "the page is up to date");
    let mut changed = shop();
    changed.status.health = HealthStatus::Degraded;
    sample::publish(&inbox, [changed.clone()]);
    let change = waiting.await;
    assert!(change["lists"]["attention"].to_string().contains("a-shop"), "{change}");
    assert_eq!(change["lists"]["r-infra"], serde_json::json!([]), "no row is left in the repository");
    assert_eq!(change["whole"], false);

    // The page was loaded while the application was calm, and its connection was lost for a while.
    let mut back = open(&format!("/?q=shop&v={}", version_of(&loaded))).await;
    let whole = next(&mut back).await;
    assert!(whole["whole"] == true && whole["lists"].get("r-infra").is_none(), "{whole}");
    let script = include_str!("../../crates/web/src/page/script.js");
    assert!(script.contains("change.whole"), "the script empties the lists that are not named");
}

#[tokio::test]
async fn no_page_has_a_key_twice() {
    let sample::Agent { handle, store, inbox } = agent([shop(), blog(), crashing()]);
    let repository = RepositoryStatus { name: "infra".to_owned(), ..many(1).1.remove(0) };
    inbox.repositories.send_replace(Arc::new(vec![repository]));
    tokio::spawn(answer(inbox, Seen::default()));
    let handle = handle.with_logs(Arc::new(LastWords));
    let handle = handle.with_fleet(driftless_config::Fleet { accept: true, ..Default::default() });
    store_revision(&store, "shop-1", Cause::Commit);
    let router = router(handle, store, Access::loopback());
    for path in [
        "/",
        "/applications/shop",
        "/applications/blog",
        "/applications/blog/plan",
        "/applications/blog/diff",
        "/applications/blog/sync",
        "/applications/shop/rollback",
        "/applications/shop/restart?workload=web",
        "/applications/shop/revisions/1",
        "/applications/crash/logs/shop-web-1",
        "/applications/nothing",
        "/repositories/infra",
        "/fleet",
        "/audit",
    ] {
        let page = text(ask(&router, request("GET", path, "")).await).await;
        assert_shown(&page, &["data-key=\"l\" data-name=\"fleet\"", "data-key=\"a\" data-name=\"audit\""]);
        let mut keys: Vec<&str> =
            page.split("data-key=\"").skip(1).filter_map(|it| it.split('"').next()).collect();
        // The script has these.
        keys.extend(["?", "j", "k"]);
        keys.sort_unstable();
        let all = keys.clone();
        keys.dedup();
        assert_eq!(keys, all, "{path}");
    }
}

#[tokio::test(start_paused = true)]
async fn open_page_hears_from_the_agent_without_a_change() {
    let (router, ..) = answering();
    let loaded = page(&router, "/").await;
    let path = format!("/?v={}", version_of(&loaded));
    let request = Request::get(path).header("host", "localhost").header("accept", "text/event-stream");
    let mut stream = ask(&router, request.body(Body::empty()).unwrap()).await.into_body();
    let mut text = String::new();
    while text.matches("event: alive\n").count() < 3 {
        let frame = stream.frame().await.unwrap().unwrap().into_data().unwrap();
        text.push_str(std::str::from_utf8(&frame).unwrap());
    }
    assert!(!text.contains("event: change"), "{text}");
    let script = include_str!("../../crates/web/src/page/script.js");
    assert!(script.contains("addEventListener(\"alive\""), "a comment is not seen by the script");
}

#[tokio::test]
async fn repository_page_sends_its_changes() {
    let sample::Agent { handle, store, inbox } = agent([shop()]);
    let repository = RepositoryStatus { name: "infra".to_owned(), ..many(1).1.remove(0) };
    inbox.repositories.send_replace(Arc::new(vec![repository.clone()]));
    for id in ["a", "b", "c"] {
        store.accept_delivery("infra", &sample::delivery(id)).unwrap();
    }
    let router = router(handle, store, Access::loopback());
    let loaded = page(&router, "/repositories/infra").await;
    assert_shown(
        &loaded,
        &[
            "Serve the spring catalogue",
            "../applications/shop",
            "No webhook is configured",
            "the SSH key /etc/driftless/id logs in",
            "Earlier deliveries: 3",
        ],
    );
    let version = version_of(&loaded);
    let path = format!("/repositories/infra?v={version}");
    let request = Request::get(path).header("host", "localhost").header("accept", "text/event-stream");
    let mut stream = ask(&router, request.body(Body::empty()).unwrap()).await.into_body();
    // A change is announced, and waits for no timer.
    let mut next =
        async || timeout(Duration::from_secs(8), next_change(&mut stream)).await.expect("a change arrives");
    for (message, title) in [
        ("could not fetch: the forge does not answer", "Error: repository infra"),
        ("could not fetch: the forge refuses the key", "Error: repository infra"),
        ("", "Repository infra"),
    ] {
        let message = message.to_owned();
        let status = RepositoryStatus { message: message.clone(), ..repository.clone() };
        inbox.repositories.send_replace(Arc::new(vec![status]));
        let changed = next().await;
        assert!(changed["parts"]["facts"].as_str().unwrap().contains(&message), "{changed}");
        assert_eq!(changed["title"], title);
        // The first change may come before the first look of the stream, which then sends everything.
        if !message.contains("does not answer") {
            assert_eq!(changed["parts"].as_object().unwrap().keys().collect::<Vec<_>>(), ["facts"]);
        }
    }
}

#[tokio::test]
async fn wrong_parameters_get_a_page_that_says_so() {
    let (router, _, _) = answering();
    for path in [
        "/?host=a&host=b",
        "/fleet?host=a&host=b&q=1&q=2",
        "/applications/shop/diff?against=a&against=b",
        "/audit?before=x",
    ] {
        let response = ask(&router, request("GET", path, "")).await;
        assert_eq!(response.status(), StatusCode::BAD_REQUEST, "{path}");
        let page = text(response).await;
        assert_shown(
            &page,
            &["<h1>Failed</h1>", "All applications", "<p class=\"note bad\" role=\"alert\">"],
        );
    }
}

#[tokio::test]
async fn long_lists_and_values_are_folded() {
    let mut application = blog();
    let warning = application.status.findings[0].clone();
    application.status.findings = (0..7)
        .map(|number| Finding { message: format!("warning {number}"), ..warning.clone() })
        .chain([Finding { severity: Severity::Error, message: "an error".to_owned(), ..warning.clone() }])
        .collect();
    application.status.drift[0].found = "x".repeat(500);
    let agent = agent([application]);
    let router = router(agent.handle, agent.store, Access::loopback());
    let shown = page(&router, "/applications/blog").await;
    assert_shown(
        &shown,
        &["<details id=\"more-findings\"><summary>3 more findings</summary>", "…</summary>xxx"],
    );
    let folded = shown.find("more-findings").unwrap();
    assert!(shown.find("an error").unwrap() < folded && folded < shown.find("warning 4").unwrap(), "{shown}");
}

#[tokio::test]
async fn last_output_of_a_crash_is_on_the_page() {
    let sample::Agent { handle, store, inbox } = agent([crashing(), shop()]);
    tokio::spawn(answer(inbox, Seen::default()));
    let handle = handle.with_logs(Arc::new(LastWords));
    let router = router(handle, store, Access::loopback());
    let crash = page(&router, "/applications/crash").await;
    assert_shown(
        &crash,
        &["Last output", "exited with code 3", "fatal: password of &lt;orders&gt; was refused", "All logs"],
    );
    let calm = page(&router, "/applications/shop").await;
    assert!(!calm.contains("fatal: password"), "nothing crashes there");
}

#[tokio::test]
async fn last_output_of_a_crash_stays_while_it_runs_again() {
    let shown = async |crashes: u32| {
        let mut application = crashing();
        for workload in Arc::make_mut(&mut application.status.workloads).values_mut() {
            let instance = &mut workload.instances[0];
            // Without a health check, it is ready as soon as it runs.
            (instance.ready, instance.state) = (true, "Running".to_owned());
            (instance.exit, instance.crashes) = (None, crashes);
        }
        let sample::Agent { handle, store, inbox } = agent([application]);
        tokio::spawn(answer(inbox, Seen::default()));
        let router = router(handle.with_logs(Arc::new(LastWords)), store, Access::loopback());
        page(&router, "/applications/crash").await
    };
    let link = "crash/logs/shop-web-1?previous=true\"";
    assert_shown(&shown(2).await, &["<h2>Last output</h2>", "fatal: password", link]);
    assert!(!shown(0).await.contains("fatal: password"), "it has run for long enough since");
}

/// An engine that does not answer.
struct NoEngine;

impl Logs for NoEngine {
    fn open<'a>(
        &'a self,
        _: &'a str,
        _: &'a LogOptions,
    ) -> Pin<Box<dyn Future<Output = Result<LogStream, String>> + Send + 'a>> {
        Box::pin(ready(Err("nothing listens on the socket".to_owned())))
    }
}

#[tokio::test]
async fn output_that_cannot_be_read_is_not_called_empty() {
    let sample::Agent { handle, store, inbox } = agent([crashing()]);
    tokio::spawn(answer(inbox, Seen::default()));
    let router = router(handle.with_logs(Arc::new(NoEngine)), store, Access::loopback());
    let crash = page(&router, "/applications/crash").await;
    assert_shown(&crash, &["Its output could not be read: ", "nothing listens on the socket"]);
    assert!(!crash.contains("It printed nothing"));
    let logs = ask(&router, request("GET", "/applications/crash/logs/shop-web-1", "")).await;
    assert_eq!(logs.status(), StatusCode::BAD_GATEWAY);
    assert_shown(&text(logs).await, &["<h1>Failed</h1>", "nothing listens on the socket"]);
    let logs = request("GET", "/api/v1/applications/crash/instances/shop-web-1/logs", "");
    assert_shown(&text(ask(&router, logs).await).await, &["\"code\":\"engine\""]);
}

/// An engine that takes connections and says nothing.
struct HungEngine;

impl Logs for HungEngine {
    fn open<'a>(
        &'a self,
        _: &'a str,
        _: &'a LogOptions,
    ) -> Pin<Box<dyn Future<Output = Result<LogStream, String>> + Send + 'a>> {
        Box::pin(std::future::pending())
    }
}

#[tokio::test(start_paused = true)]
async fn page_of_crashes_waits_once_for_an_engine_that_hangs() {
    let mut application = crashing();
    for workload in Arc::make_mut(&mut application.status.workloads).values_mut() {
        let instance = workload.instances[0].clone();
        let named = |number| InstanceStatus { name: format!("shop-web-{number}"), ..instance.clone() };
        workload.instances = (1..=3).map(named).collect();
    }
    let sample::Agent { handle, store, inbox } = agent([application]);
    tokio::spawn(answer(inbox, Seen::default()));
    let router = router(handle.with_logs(Arc::new(HungEngine)), store, Access::loopback());
    let begun = Instant::now();
    let crash = page(&router, "/applications/crash").await;
    let seconds = begun.elapsed().as_secs();
    assert!(seconds < 4, "{seconds} s");
    assert_eq!(crash.matches("the engine did not answer in time").count(), 3);
}

#[tokio::test]
async fn application_that_left_git_can_be_forgotten() {
    let seen = Seen::default();
    let mut gone = shop();
    gone.status.conditions.push(not_in_git());
    let sample::Agent { handle, store, inbox } = agent([gone]);
    tokio::spawn(answer(inbox, seen.clone()));
    let router = router(handle, store, Access::loopback());
    assert_shown(&page(&router, "/applications/shop").await, &["shop/forget", "shop/remove"]);
    assert_shown(&page(&router, "/applications/shop/forget").await, &["stops managing it"]);
    let mut forget = request("POST", "/applications/shop/forget", "");
    forget.headers_mut().insert("origin", "http://localhost:8484".parse().unwrap());
    let response = ask(&router, forget).await;
    assert_eq!(
        (response.status(), &response.headers()["location"]),
        (StatusCode::SEE_OTHER, &"../../".parse().unwrap())
    );
    assert_eq!(*seen.lock().unwrap(), [("shop".into(), RequestKind::Forget)]);
}

/// A revision of `shop` that has succeeded.
fn store_revision(store: &driftless_store::Store, project: &str, cause: Cause) -> u64 {
    store_ended_revision(store, project, cause, &Outcome::Succeeded)
}

/// A revision of `shop` that has ended in this way.
fn store_ended_revision(
    store: &driftless_store::Store,
    project: &str,
    cause: Cause,
    outcome: &Outcome,
) -> u64 {
    let compose = format!(r#"{{"app":"shop","format":"compose","project":"{project}","workloads":{{}}}}"#);
    let revision = driftless_store::NewRevision {
        app: "shop".into(),
        commit: sample::commit('c', "Serve the winter catalogue"),
        reference: "main".to_owned(),
        cause,
        changes: Vec::new(),
        rollback_of: None,
        actor: None,
    };
    let number = store.begin_revision(&revision, &serde_json::from_str(&compose).unwrap()).unwrap().number;
    store.finish_revision(&"shop".into(), number, outcome, &BTreeMap::new()).unwrap();
    number
}

#[tokio::test]
async fn rollback_goes_to_the_revision_that_was_shown() {
    let (router, seen, store) = answering();
    let old = store_revision(&store, "shop-1", Cause::Commit);
    let removal = store_revision(&store, "none", Cause::Removal);
    store_revision(&store, "shop-2", Cause::Commit);
    let shown = page(&router, "/applications/shop").await;
    assert_shown(&shown, &[&format!("rollback?to={old}\""), "removal of the application"]);
    let to_removal = format!("rollback?to={removal}");
    assert!(!shown.contains(&to_removal), "{shown}");
    let refused = page(&router, &format!("/applications/shop/{to_removal}")).await;
    assert_shown(&refused, &[&format!("Revision {removal} of shop removed the application")]);
    let asked = page(&router, "/applications/shop/rollback").await;
    assert_shown(&asked, &[&format!("To revision <b>#{old}</b>")]);
    let field = format!("<input type=\"hidden\" name=\"to\" value=\"{old}\">");
    assert_shown(&asked, &[&field]);
    assert_shown(&page(&router, "/applications/shop/rollback?to=abc").await, &["shop has no revision abc"]);
    seen.lock().unwrap().clear();
    for wrong in ["", "to=", "to=abc", "to=-1"] {
        let refused = ask(&router, request("POST", "/applications/shop/rollback", wrong)).await;
        assert_eq!(refused.status(), StatusCode::BAD_REQUEST, "{wrong}");
    }
    assert_eq!(*seen.lock().unwrap(), []);
}

#[tokio::test]
async fn rollback_warns_of_a_revision_that_was_not_reached() {
    let (router, _, store) = answering();
    let failed = Outcome::Failed { reason: "web made no progress".to_owned() };
    let failed = store_ended_revision(&store, "shop-1", Cause::Commit, &failed);
    let good = store_revision(&store, "shop-2", Cause::Commit);
    store_revision(&store, "shop-3", Cause::Commit);
    let asked = page(&router, &format!("/applications/shop/rollback?to={failed}")).await;
    assert_shown(&asked, &["This revision failed: web made no progress", "<form class=\"confirm\""]);
    let asked = page(&router, &format!("/applications/shop/rollback?to={good}")).await;
    assert!(!asked.contains("This revision"), "{asked}");
}

#[tokio::test]
async fn rewritten_history_is_accepted_as_it_was_shown() {
    let sentence = "the commit 1234567 is refused: the history was rewritten";
    let condition = |kind: &str, status| StatusCondition {
        kind: kind.to_owned(),
        status,
        reason: "HistoryRewritten".to_owned(),
        message: sentence.to_owned(),
        ..not_in_git()
    };
    let mut followed = shop();
    followed.status.conditions.push(condition("SourceReady", ConditionStatus::True));
    assert!(!page_of(followed.clone(), "/applications/shop").await.contains("shop/accept-rewrite"));
    let asked = page_of(followed, "/applications/shop/accept-rewrite").await;
    assert_shown(&asked, &["shop has no rewritten history to accept", ">Back</a>"]);

    let mut rejected = shop();
    rejected.status.conditions.push(condition("Trusted", ConditionStatus::False));
    let seen = Seen::default();
    let sample::Agent { handle, store, inbox } = agent([rejected]);
    tokio::spawn(answer(inbox, seen.clone()));
    let router = router(handle, store, Access::loopback());
    assert_shown(&page(&router, "/applications/shop").await, &["shop/accept-rewrite"]);
    let asked = page(&router, "/applications/shop/accept-rewrite").await;
    let field = format!("<input type=\"hidden\" name=\"seen\" value=\"{sentence}\">");
    assert_shown(&asked, &[&format!("<p class=\"note\">{sentence}</p>"), &field]);
    let blind = ask(&router, request("POST", "/applications/shop/accept-rewrite", "")).await;
    assert_eq!(blind.status(), StatusCode::BAD_REQUEST);
    let body = format!("seen={}", sentence.replace(' ', "+"));
    let accepted = ask(&router, request("POST", "/applications/shop/accept-rewrite", &body)).await;
    assert_eq!(accepted.status(), StatusCode::SEE_OTHER);
    let wanted = RequestKind::AcceptRewrite(Some(sentence.to_owned()));
    assert_eq!(*seen.lock().unwrap(), [("shop".into(), wanted)]);
}

#[tokio::test]
async fn stream_of_a_page_that_is_gone_is_refused() {
    let agent = agent([shop()]);
    agent.happens(sample::event("old", "Forgotten", "containers stay and are not managed"));
    let router = router(agent.handle, agent.store, Access::loopback());
    for path in ["/applications/old?v=0", "/?host=old&v=0", "/repositories/old?v=0", "/fleet/old?v=0"] {
        let mut stream = request("GET", path, "");
        stream.headers_mut().insert("accept", "text/event-stream".parse().unwrap());
        assert_eq!(ask(&router, stream).await.status(), StatusCode::NOT_FOUND, "{path}");
    }
    let old = ask(&router, request("GET", "/applications/old?did=remove", "")).await;
    assert_eq!(old.status(), StatusCode::NOT_FOUND);
    assert_shown(
        &text(old).await,
        &[
            "id=\"fresh\"",
            "<b>old</b> is gone: it was removed or forgotten",
            "containers stay and are not managed",
        ],
    );
    let unknown = text(ask(&router, request("GET", "/applications/nothing", "")).await).await;
    assert!(!unknown.contains("is gone"), "it was never there: {unknown}");
}

#[tokio::test]
async fn page_of_logs_follows_from_its_first_line_on() {
    let sample::Agent { handle, store, inbox } = agent([crashing()]);
    tokio::spawn(answer(inbox, Seen::default()));
    let router = router(handle.with_logs(Arc::new(LastWords)), store, Access::loopback());
    let path = "/applications/crash/logs/shop-web-1";
    let follow = "shop-web-1/logs?follow=true&amp;tail=300";
    assert_shown(&page(&router, path).await, &[&format!("{follow}\"")]);
    assert_shown(&page(&router, &format!("{path}?since=5m")).await, &[&format!("{follow}&amp;since=5m\"")]);
}

#[tokio::test]
async fn page_of_logs_names_the_run_while_it_is_open() {
    let sample::Agent { handle, store, inbox } = agent([shop()]);
    let router = router(handle.with_logs(Arc::new(LastWords)), store, Access::loopback());
    let path = "/applications/shop/logs/shop-web-1";
    let loaded = page(&router, path).await;
    let live = Request::get(format!("{path}?v={}", version_of(&loaded)))
        .header("host", "localhost")
        .header("accept", "text/event-stream");
    let mut stream = ask(&router, live.body(Body::empty()).unwrap()).await.into_body();
    let mut next =
        async || timeout(Duration::from_secs(20), next_change(&mut stream)).await.expect("a change arrives");
    let mut restarted = shop();
    for workload in Arc::make_mut(&mut restarted.status.workloads).values_mut() {
        workload.instances[0].started = Some(Timestamp(1_800_000_000_000));
    }
    sample::publish(&inbox, [restarted]);
    let change = next().await;
    assert!(change["parts"]["run"].to_string().contains("1800000000000"), "{change}");
    assert_eq!(change["title"], "Logs of shop-web-1");
    let logs = request("GET", "/api/v1/applications/shop/instances/shop-web-1/logs", "");
    assert_eq!(ask(&router, logs).await.headers()["driftless-started"], "1800000000000");
    // The lines of a container that is gone stay.
    sample::publish(&inbox, []);
    let change = next().await;
    assert!(change["parts"]["run"].to_string().contains("there is no application"), "{change}");
}

/// Containers that print another line in the present run than in those before.
struct Runs;

impl Logs for Runs {
    fn open<'a>(
        &'a self,
        _: &'a str,
        options: &'a LogOptions,
    ) -> Pin<Box<dyn Future<Output = Result<LogStream, String>> + Send + 'a>> {
        let line = if options.previous { "PANIC: disk quota\n" } else { "run begins\n" };
        let lines: LogStream = Box::pin(futures_util::stream::iter([Ok(line.into())]));
        Box::pin(ready(Ok(lines)))
    }
}

#[tokio::test]
async fn logs_lead_to_the_output_of_earlier_runs() {
    let sample::Agent { handle, store, inbox } = agent([crashing(), shop()]);
    tokio::spawn(answer(inbox, Seen::default()));
    let router = router(handle.with_logs(Arc::new(Runs)), store, Access::loopback());
    let path = "/applications/crash/logs/shop-web-1";
    let present = page(&router, &format!("{path}?since=1h")).await;
    assert_shown(
        &present,
        &["run begins", "href=\"?since=1h&amp;previous=true\"", "7 earlier runs", "id=\"follow\""],
    );
    let earlier = page(&router, &format!("{path}?since=1h&previous=true")).await;
    assert_shown(&earlier, &["PANIC: disk quota", "href=\"?since=1h\"", "name=\"previous\" value=\"true\""]);
    assert!(!earlier.contains("id=\"follow\""), "they have ended");
    let only = page(&router, "/applications/shop/logs/shop-web-1").await;
    assert!(!only.contains("previous=true"), "it was never started again");
    // Its start after an end that somebody brought about is not counted.
    let killed = page(&router, "/applications/shop/logs/shop-web-1?previous=true").await;
    assert_shown(&killed, &["PANIC: disk quota"]);
}

/// Containers that have printed as many lines as are asked for.
struct LongOutput;

impl Logs for LongOutput {
    fn open<'a>(
        &'a self,
        _: &'a str,
        options: &'a LogOptions,
    ) -> Pin<Box<dyn Future<Output = Result<LogStream, String>> + Send + 'a>> {
        let lines = 1..=options.tail.unwrap_or(1);
        let lines = lines.map(|number| Ok(format!("line {number}\n").into()));
        let lines: LogStream = Box::pin(futures_util::stream::iter(lines));
        Box::pin(ready(Ok(lines)))
    }
}

#[tokio::test]
async fn page_of_logs_says_that_there_are_older_lines() {
    let note = "Older lines are left out";
    let sources: [(Arc<dyn Logs>, bool); 2] = [(Arc::new(LongOutput), true), (Arc::new(LastWords), false)];
    for (logs, is_long) in sources {
        let sample::Agent { handle, store, inbox } = agent([crashing()]);
        tokio::spawn(answer(inbox, Seen::default()));
        let router = router(handle.with_logs(logs), store, Access::loopback());
        let shown = page(&router, "/applications/crash/logs/shop-web-1").await;
        assert_eq!(shown.contains(note), is_long, "{shown}");
        assert_eq!(shown.contains("<span>line 301\n</span>"), is_long);
        assert!(!shown.contains("<span>line 1\n</span>"), "there are 300 lines");
    }
}
