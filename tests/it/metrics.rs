//! Metrics: what `/metrics` says, the documents, the dashboard and the alert rules about it.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    io::Write,
    path::Path,
    process::{Command, Stdio},
    time::Duration,
};

use axum::{Router, body::Body};
use driftless_agent::ProxyCounters;
use driftless_clock::Clock;
use driftless_docker::UserAction;
use driftless_metrics::{Called, EngineCall, Fetched, Kind, METRICS, Metric, ProxyCounts, RoundFailure};
use driftless_model::{
    AvailableImage, CheckFailure, DeliveryResult, Expiry, ImageUpdateStatus, Outcome, PortCounters,
    RepositoryStatus, TargetCounters, Timestamp, UpdateMode,
};
use driftless_store::{StateDir, Store};
use driftless_web::{Access, Token, metrics_router, router};
use http::{Request, StatusCode};
use http_body_util::BodyExt;
use tower::ServiceExt;

use crate::{
    sample::{self, NOW, agent, before, blog, shop},
    simulation::{Simulation, minutes},
};

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/deploy/monitoring");

/// An agent that has counted everything once.
fn busy_agent() -> sample::Agent {
    busy_agent_with(Store::in_memory(Clock::starting_at(NOW)).unwrap())
}

fn busy_agent_with(store: Store) -> sample::Agent {
    let mut shop = shop();
    shop.status.images = std::sync::Arc::new(vec![ImageUpdateStatus {
        image: "postgres:17".to_owned(),
        mode: UpdateMode::Report,
        resolved: None,
        available: Some(AvailableImage { image: "postgres:17@sha256:0".to_owned(), since: NOW }),
        due: None,
        checked: Some(NOW),
        failure: Some(CheckFailure {
            reason: "TooManyRequests".to_owned(),
            message: String::new(),
            count: 1,
            since: None,
        }),
        note: String::new(),
    }]);
    let agent = sample::Agent { store, ..agent([shop, blog()]) };
    let metrics = agent.handle.metrics();
    metrics.round(Duration::from_millis(40));
    metrics.round_failed(RoundFailure::Engine);
    metrics.synced(&"shop".into(), &Outcome::Succeeded);
    metrics.drifted(&"blog".into(), "container");
    metrics.healed("container", Duration::from_secs(3));
    metrics.fetched("infra", Fetched::Done, Duration::from_millis(300));
    metrics.delivered("infra", DeliveryResult::Accepted);
    metrics.engine_called(EngineCall::new("observe"), Called::Done, Duration::from_millis(9));
    metrics.engine_called(EngineCall::of_image("pull_image"), Called::Failed, Duration::from_secs(9));
    agent.inbox.repositories.send_replace(std::sync::Arc::new(vec![RepositoryStatus {
        name: "infra".to_owned(),
        url: "https://git.example.com/me/infra.git".to_owned(),
        reference: "main".to_owned(),
        commit: None,
        history_length: None,
        applications: 2,
        message: "could not fetch".to_owned(),
        reason: "TimedOut".to_owned(),
        fetched_at: Some(before(40)),
        next_fetch: None,
        keys: Vec::new(),
        hosts: Vec::new(),
    }]));
    agent.store.accept_delivery("infra", &sample::delivery("1")).unwrap();
    let now = Clock::System.now();
    for (name, commit, length, received) in [("nas", 'a', 6, now), ("pi", 'b', 9, now), ("off", 'a', 5, NOW)]
    {
        let repository = driftless_fleet::RepositoryReport {
            name: "infra".to_owned(),
            commit: Some(sample::commit(commit, "").id),
            commit_time: Some(before(if commit == 'a' { 60 } else { 0 })),
            history_length: Some(length),
            ..Default::default()
        };
        let report = driftless_fleet::HostReport {
            host: name.to_owned(),
            repositories: vec![repository],
            ..Default::default()
        };
        let host = driftless_store::StoredHost {
            name: name.to_owned(),
            instance: "a1".to_owned(),
            digest: String::new(),
            received,
            report: serde_json::to_string(&report).unwrap(),
            conflict: None,
        };
        sample::keep_report(&agent.store, host);
    }
    let fleet = driftless_config::Fleet { accept: true, ..driftless_config::Fleet::default() };
    let handle = agent.handle.with_fleet(fleet).with_proxy_counters(std::sync::Arc::new(OneProxy));
    sample::Agent { handle, ..agent }
}

/// A proxy that has had some connections.
struct OneProxy;

impl ProxyCounters for OneProxy {
    fn read<'a>(
        &'a self,
    ) -> std::pin::Pin<Box<dyn Future<Output = std::sync::Arc<Vec<ProxyCounts>>> + Send + 'a>> {
        let target = TargetCounters {
            target: "_web:8080".to_owned(),
            open: 3,
            opened: 12,
            failed: 2,
            bytes_in: 1000,
            bytes_out: 5000,
        };
        let port = PortCounters { port: "80/tcp".to_owned(), refused: 4, retried: 1, targets: vec![target] };
        let proxy =
            ProxyCounts { application: "shop".into(), proxy: "web_proxy".to_owned(), ports: vec![port] };
        Box::pin(async { std::sync::Arc::new(vec![proxy]) })
    }
}

async fn get(router: &Router, host: &str, authorization: Option<&str>) -> (StatusCode, String, String) {
    let mut request = Request::get("/metrics").header("host", host);
    if let Some(value) = authorization {
        request = request.header("authorization", value);
    }
    let response = router.clone().oneshot(request.body(Body::empty()).unwrap()).await.unwrap();
    let status = response.status();
    let kind = response.headers()["content-type"].to_str().unwrap().to_owned();
    let text = response.into_body().collect().await.unwrap().to_bytes();
    (status, kind, String::from_utf8(text.to_vec()).unwrap())
}

async fn metrics_of(agent: &sample::Agent) -> String {
    let router = router(agent.handle.clone(), agent.store.clone(), Access::loopback());
    let (status, kind, text) = get(&router, "localhost", None).await;
    assert_eq!((status, kind.as_str()), (StatusCode::OK, "text/plain; version=0.0.4; charset=utf-8"));
    text
}

/// Runs promtool and returns whether it succeeded, with all that it printed.
fn promtool(arguments: &[&str], input: &str) -> (bool, String) {
    let mut child = Command::new("promtool")
        .args(arguments)
        .current_dir(FOLDER)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("promtool is missing: run scripts/test-tools.sh");
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8_lossy(&text).into_owned())
}

#[tokio::test]
async fn every_metric_of_the_table_is_served_and_promtool_is_content() {
    let directory = tempfile::tempdir().unwrap();
    let state = StateDir::lock(&directory.path().join("state")).unwrap();
    let agent = busy_agent_with(Store::open(&state, Clock::starting_at(NOW)).unwrap().store);
    agent.handle.expiries().set(vec![Expiry {
        subject: "tls".to_owned(),
        what: "the certificate c.pem".to_owned(),
        begins: Timestamp(0),
        ends: Timestamp(1_800_000_000_000),
    }]);
    let text = metrics_of(&agent).await;
    assert!(text.contains("{credential=\"the certificate c.pem\",subject=\"tls\"} 1800000000\n"), "{text}");
    assert!(text.contains("{credential=\"the certificate c.pem\",subject=\"tls\"} 1798790400\n"), "{text}");
    for Metric { name, kind, help, .. } in METRICS {
        let kind = match kind {
            Kind::Gauge => "gauge",
            Kind::Counter => "counter",
            Kind::Histogram => "histogram",
        };
        assert!(text.contains(&format!("# HELP {name} {help}\n# TYPE {name} {kind}\n")), "{name}:\n{text}");
    }
    let served = text.lines().filter(|line| line.starts_with("# TYPE")).count();
    assert_eq!(served, METRICS.len(), "no metric is outside of the table");
    let (is_good, output) = promtool(&["check", "metrics"], &text);
    assert!(is_good && output.is_empty(), "{output}");
}

#[tokio::test]
async fn metrics_agree_with_the_published_status() {
    let text = metrics_of(&busy_agent()).await;
    for line in [
        r#"driftless_app_info{autosync_enabled="false",health_status="Degraded",name="blog",operation="Waiting",repo="https://git.example.com/me/infra.git",repository="infra",sync_status="OutOfSync"} 1"#,
        r#"driftless_app_instances{name="shop",state="ready"} 2"#,
        r#"driftless_app_container_restarts{name="shop"} 1"#,
        r#"driftless_app_drift{action="heal",kind="container",name="blog"} 1"#,
        r#"driftless_app_waits{name="blog",reason="ImagePullBackOff"} 1"#,
        r#"driftless_app_condition{condition="Available",name="shop",status="True"} 1"#,
        r#"driftless_app_observed_timestamp_seconds{name="shop"} 1767225598"#,
        r#"driftless_app_pinned{name="blog"} 1"#,
        r#"driftless_app_sync_total{name="shop",phase="Succeeded"} 1"#,
        r#"driftless_app_sync_total{name="shop",phase="Failed"} 0"#,
        r#"driftless_repository_up{repository="infra"} 0"#,
        r#"driftless_queue_length{queue="webhook_deliveries"} 1"#,
        r#"driftless_queue_oldest_timestamp_seconds{queue="webhook_deliveries"} 1767225600"#,
        r#"driftless_queue_length{queue="commit_statuses"} 0"#,
        r#"driftless_git_fetch_fail_total{repository="infra"} 0"#,
        r#"driftless_image_duration_seconds_bucket{operation="pull_image",result="error",le="10"} 1"#,
        r#"driftless_proxy_open_connections{name="shop",port="80/tcp",proxy="web_proxy",target="_web:8080"} 3"#,
        r#"driftless_proxy_connections_total{name="shop",port="80/tcp",proxy="web_proxy",target="_web:8080"} 12"#,
        r#"driftless_proxy_connect_failures_total{name="shop",port="80/tcp",proxy="web_proxy",target="_web:8080"} 2"#,
        r#"driftless_proxy_retries_total{name="shop",port="80/tcp",proxy="web_proxy"} 1"#,
        r#"driftless_proxy_refused_total{name="shop",port="80/tcp",proxy="web_proxy"} 4"#,
        r#"driftless_proxy_bytes_total{direction="out",name="shop",port="80/tcp",proxy="web_proxy",target="_web:8080"} 5000"#,
        r#"driftless_fleet_commits_behind{host="nas",repository="infra"} 3"#,
        r#"driftless_fleet_commits_behind{host="pi",repository="infra"} 0"#,
        "driftless_ready 1",
    ] {
        assert!(text.contains(&format!("{line}\n")), "{line}\n{text}");
    }
    assert!(
        !text.contains(r#"commits_behind{host="off""#),
        "nothing is known of a host that is not heard: {text}"
    );
}

#[tokio::test]
async fn full_disk_that_stops_fetches_is_not_writable() {
    let agent = busy_agent();
    assert!(metrics_of(&agent).await.contains("driftless_state_writable 1\n"));
    agent.inbox.repositories.send_modify(|repositories| {
        "DiskFull".clone_into(&mut std::sync::Arc::make_mut(repositories)[0].reason);
    });
    let text = metrics_of(&agent).await;
    assert!(text.contains("driftless_state_writable 0\n"), "{text}");
}

#[tokio::test]
async fn counters_of_a_removed_application_end_with_it() {
    let agent = busy_agent();
    assert!(
        metrics_of(&agent).await.contains(r#"driftless_app_drift_total{kind="container",name="blog"} 1"#)
    );
    sample::publish(&agent.inbox, [shop()]);
    let text = metrics_of(&agent).await;
    assert!(!text.contains(r#"name="blog""#), "{text}");
    assert!(text.contains(r#"driftless_app_sync_total{name="shop",phase="Succeeded"} 1"#), "{text}");
}

#[tokio::test]
async fn first_failed_sync_after_a_start_is_an_increase() {
    let agent = agent([shop()]);
    let failed = |count: u32| format!("driftless_app_sync_total{{name=\"shop\",phase=\"Failed\"}} {count}\n");
    let text = metrics_of(&agent).await;
    assert!(text.contains(&failed(0)), "{text}");
    agent.handle.metrics().synced(&"shop".into(), &Outcome::Failed { reason: String::new() });
    let text = metrics_of(&agent).await;
    assert!(text.contains(&failed(1)), "{text}");
}

#[tokio::test]
async fn hostile_names_and_urls_stay_inside_their_label() {
    let mut application = blog();
    application.spec.url = "https://git.example.com/\"} 1\nfake_metric 1\\".to_owned();
    let agent = agent([application]);
    let text = metrics_of(&agent).await;
    assert!(!text.lines().any(|line| line.starts_with("fake_metric")), "{text}");
    let (is_good, output) = promtool(&["check", "metrics"], &text);
    assert!(is_good, "{output}");
}

#[tokio::test]
async fn metrics_need_the_token_except_at_their_own_listener() {
    let agent = busy_agent();
    let token = "0123456789abcdef0123456789abcdef";
    let access = Access::token(Token::new(token).unwrap());
    let router = router(agent.handle.clone(), agent.store.clone(), access);
    assert_eq!(get(&router, "nas", None).await.0, StatusCode::UNAUTHORIZED);
    assert_eq!(get(&router, "nas", Some(&format!("Bearer {token}"))).await.0, StatusCode::OK);
    let open =
        |address: &str| metrics_router(agent.handle.clone(), agent.store.clone(), address.parse().unwrap());
    let (status, _, text) = get(&open("0.0.0.0:9484"), "nas:9484", None).await;
    assert!(status == StatusCode::OK && text.contains("driftless_build_info"));
    assert_eq!(get(&open("127.0.0.1:9484"), "evil.example", None).await.0, StatusCode::FORBIDDEN);
    assert_eq!(get(&open("127.0.0.1:9484"), "localhost:9484", None).await.0, StatusCode::OK);
    let other = Request::get("/api/v1/applications").header("host", "nas").body(Body::empty()).unwrap();
    let other = open("0.0.0.0:9484").oneshot(other).await.unwrap();
    assert_eq!(other.status(), StatusCode::NOT_FOUND);
}

#[test]
fn alert_rules_pass_their_tests() {
    for arguments in [["check", "rules", "rules.yaml"], ["test", "rules", "rules_test.yaml"]] {
        let (is_good, output) = promtool(&arguments, "");
        assert!(is_good && output.contains("SUCCESS"), "{output}");
    }
    let read = |name: &str| fs::read_to_string(Path::new(FOLDER).join(name)).unwrap();
    let (rules, tests) = (read("rules.yaml"), read("rules_test.yaml"));
    let alerts: Vec<&str> = rules.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")).collect();
    assert!(alerts.len() > 10);
    for alert in alerts {
        assert!(tests.contains(alert), "{alert} has no test");
    }
}

/// The metrics that a text names, each with the labels that are used with it in braces.
fn used(text: &str) -> BTreeMap<String, BTreeSet<String>> {
    let is_letter = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    let mut found: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for start in ["driftless_", "process_"] {
        for (index, _) in text.match_indices(start) {
            if text[..index].ends_with(is_letter) {
                continue;
            }
            let name: String = text[index..].chars().take_while(|letter| is_letter(*letter)).collect();
            let rest = &text[index + name.len()..];
            let labels = rest.strip_prefix('{').and_then(|rest| rest.split('}').next()).unwrap_or_default();
            let labels = labels.split(',').filter_map(|label| label.split(['=', '!']).next());
            let labels = labels.map(|label| label.trim().to_owned()).filter(|label| !label.is_empty());
            found.entry(name).or_default().extend(labels);
        }
    }
    found
}

#[test]
fn dashboard_and_rules_use_metrics_and_labels_that_exist() {
    for (file, least) in [("grafana-dashboard.json", 15), ("rules.yaml", 12), ("rules_test.yaml", 12)] {
        let text = fs::read_to_string(Path::new(FOLDER).join(file)).unwrap();
        let text = text.replace("\\\"", "\"");
        let used = used(&text);
        assert!(used.len() >= least, "{file}: {used:?}");
        for (name, labels) in used {
            let base = ["_bucket", "_sum", "_count"].iter().find_map(|suffix| name.strip_suffix(suffix));
            let metric = METRICS.iter().find(|metric| {
                metric.name == name || (metric.kind == Kind::Histogram && Some(metric.name) == base)
            });
            let metric = metric.unwrap_or_else(|| panic!("{file}: there is no metric {name}"));
            for label in labels {
                let is_known =
                    metric.labels.contains(&label.as_str()) || ["instance", "job"].contains(&&*label);
                assert!(is_known, "{file}: {name} has no label {label}");
            }
        }
    }
    let dashboard = fs::read_to_string(Path::new(FOLDER).join("grafana-dashboard.json")).unwrap();
    let dashboard: serde_json::Value = serde_json::from_str(&dashboard).unwrap();
    assert!(dashboard["panels"].as_array().unwrap().len() > 15);
}

#[test]
fn documented_metrics_are_those_of_the_table() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/metrics.md");
    let page = fs::read_to_string(path).unwrap();
    let mut table = "| metric | kind | labels | |\n|---|---|---|---|\n".to_owned();
    for Metric { name, kind, labels, help } in METRICS {
        let kind = format!("{kind:?}").to_lowercase();
        let labels: Vec<String> = labels.iter().map(|label| format!("`{label}`")).collect();
        let help = help.trim_end_matches('.');
        table.push_str(&format!("| `{name}` | {kind} | {} | {help} |\n", labels.join(", ")));
    }
    let (start, rest) = page.split_once("<!-- table -->\n").unwrap();
    let (found, end) = rest.split_once("<!-- end -->").unwrap();
    if std::env::var_os("UPDATE_DOCS").is_some() {
        fs::write(path, format!("{start}<!-- table -->\n{table}<!-- end -->{end}")).unwrap();
    } else {
        assert!(
            found == table,
            "docs/metrics.md is out of date: UPDATE_DOCS=1 cargo test --test it metrics::"
        );
    }
}

/// The values of the lines that begin so, added up.
fn sum(text: &str, start: &str) -> f64 {
    let lines = text.lines().filter(|line| line.starts_with(start));
    lines.filter_map(|line| line.rsplit_once(' ')?.1.parse::<f64>().ok()).sum()
}

#[tokio::test(start_paused = true)]
async fn running_agent_counts_rounds_syncs_drift_and_heals() {
    let it = Simulation::of("services:\n  web:\n    image: web:1\n");
    it.synced_with_tip().await;
    let served = || async {
        let router = router(it.handle(), it.store.clone(), Access::loopback());
        get(&router, "localhost", None).await.2
    };
    let before = served().await;
    for (start, least) in [
        ("driftless_app_sync_total{name=\"shop\",phase=\"Succeeded\"}", 1.0),
        ("driftless_app_reconcile_count", 2.0),
        ("driftless_git_request_total", 1.0),
        ("driftless_engine_request_total{operation=\"create_container\",result=\"ok\"}", 1.0),
        ("driftless_engine_request_total{operation=\"observe\",result=\"ok\"}", 2.0),
        ("driftless_image_duration_seconds_count{operation=\"pull_image\",result=\"ok\"}", 1.0),
    ] {
        assert!(sum(&before, start) >= least, "{start}\n{before}");
    }
    assert_eq!(sum(&before, "driftless_app_drift_total"), 0.0, "{before}");
    it.hand(&UserAction::Stop { name: "shop-web-1".into() });
    let mut after = served().await;
    for _ in 0..120 {
        if sum(&after, "driftless_app_heal_duration_seconds_count{kind=\"container\"}") >= 1.0 {
            break;
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
        after = served().await;
    }
    assert!(sum(&after, "driftless_app_heal_duration_seconds_count{kind=\"container\"}") >= 1.0, "{after}");
    assert!(sum(&after, "driftless_app_drift_total{kind=\"container\",name=\"shop\"}") >= 1.0, "{after}");
    it.git.down(true);
    minutes(3).await;
    assert!(sum(&served().await, "driftless_git_fetch_fail_total{repository=") >= 1.0);
}
