//! A fleet: two real agents report to a third one.

use serde_json::{Value, json};

use crate::harness::{Agent, Docker, Engine, Settings, Site, images, wait_until};

fn site(name: &str, whole: Value) -> Site {
    let mut whole = whole;
    whole["host"] = json!({ "name": name });
    Site::with(name, Settings { whole: Some(whole), ..Settings::default() })
}

fn compose(greeting: &str) -> String {
    let image = images::server("1.0");
    format!("services:\n  web:\n    image: {image}\n    environment: {{GREETING: {greeting}}}\n")
}

fn state(hub: &Agent, host: &str) -> String {
    let status: Value = serde_json::from_str(&hub.said("fleet status -o json")).unwrap();
    let hosts = status["hosts"].as_array().unwrap();
    let found = hosts.iter().find(|it| it["name"] == host);
    found.map_or_else(String::new, |it| it["state"].as_str().unwrap().to_owned())
}

#[tokio::test]
async fn two_agents_report_to_a_third() {
    let hub_site = site("hub", json!({ "fleet": { "accept": true, "expected": ["web-1", "tv"] } }));
    let hub = hub_site.running(&compose("hub")).await;
    let report = json!({ "to": format!("http://{}", hub.address()), "every": "5s" });
    let nas_site = site("nas", json!({ "report": report }));
    let web_site = site("web-1", json!({ "report": report }));
    let mut nas = nas_site.running(&compose("nas")).await;
    let web = web_site.running(&compose("web")).await;
    let commit = web_site.repository.head();

    // The command is what a CI would run: the commit runs on the host that follows it.
    let line = format!("fleet wait --commit {commit} --only web-1 --timeout 60s");
    let (code, _, said) = hub.asks(&line);
    assert_eq!(code, 0, "{said}");
    let (code, _, said) = hub.asks(&format!("fleet wait --commit {commit} --timeout 2s"));
    assert_eq!(code, 1, "{said}");
    assert!(said.contains("tv: it is expected and has never reported"), "{said}");
    assert!(said.contains("nas: the newest commit there is"), "{said}");
    assert_eq!(
        [state(&hub, "nas"), state(&hub, "web-1"), state(&hub, "tv")],
        ["Healthy", "Healthy", "NeverReported"]
    );
    let table = hub.said("fleet status");
    assert!(table.lines().all(|line| line.chars().count() <= 80), "{table}");
    assert!(table.lines().nth(1).unwrap().starts_with("tv"), "worst first: {table}");
    assert!(nas.said("fleet status").contains("this host reports to http://"));

    // A host that dies is not healthy for long, and is as it was when it is back.
    nas.kill9();
    let end = tokio::time::Instant::now() + crate::harness::PATIENCE;
    while state(&hub, "nas") != "Stale" {
        assert!(tokio::time::Instant::now() < end, "{}", hub.said("fleet status"));
        tokio::time::sleep(std::time::Duration::from_millis(500)).await;
    }
    nas.restart().await;
    while state(&hub, "nas") != "Healthy" {
        assert!(tokio::time::Instant::now() < end, "{}", hub.said("fleet status"));
        tokio::time::sleep(std::time::Duration::from_millis(500)).await;
    }
    let (code, _, _) = hub.asks("fleet remove tv");
    assert_eq!(code, 2, "a host that never reported is not there");
    drop(web);
}

/// A service whose health check asks for this path, so that it decides whether the version is good.
fn checked(version: &str, path: &str) -> String {
    let image = images::server(version);
    format!(
        "services:
  web:
    image: {image}
    stop_grace_period: 0s
    network_mode: none
    healthcheck:
      test: [CMD, /server, --healthcheck, 'http://127.0.0.1:8080{path}']
      interval: 1s
      retries: 2
"
    )
}

#[tokio::test]
async fn commit_reaches_other_hosts_after_the_canary() {
    let hub_site = site("ring-hub", json!({ "fleet": { "accept": true } }));
    let hub = hub_site.running(&checked("1.0", "/healthz")).await;
    let settings = |ring: &str, docker_host: Option<String>, url: Option<String>| Settings {
        poll: "1s",
        docker_host,
        url,
        whole: Some(json!({
            "host": { "name": ring, "labels": { "ring": ring } },
            "report": { "to": format!("http://{}", hub.address()), "every": "5s" },
        })),
        more: Some(json!({
            "onFailure": "rollback",
            "progressDeadline": "30s",
            "after": {
                "labels": { "ring": "canary" }, "healthyFor": "4s", "else": "proceed", "maxWait": "1h",
            },
        })),
        ..Settings::default()
    };
    let late_site = Site::with("ring", settings("late", None, None));
    // The canary has the same application, so it needs an engine of its own.
    let mut engine = Engine::new(&late_site.directory()).expect("root and network namespaces");
    engine.start().await;
    let canary_docker = Docker { host: Some(engine.host()) };
    for version in ["1.0", "2.0", "3.0"] {
        images::server_as(&canary_docker, &format!("driftless-e2e/server:{version}"), version);
    }
    let url = Some(late_site.server.url());
    let mut canary_site = Site::with("ring-canary", settings("canary", Some(engine.host()), url));
    canary_site.app.clone_from(&late_site.app);
    let version = |site: &Site| site.of("web").first().and_then(|it| it.variable("VERSION"));
    let runs = |site: &Site, wanted: &str| {
        let found = version(site);
        (found.as_deref() == Some(wanted)).then_some(())
    };

    // Not even the first commit starts before the canary runs it.
    let first = late_site.compose(&checked("1.0", "/healthz"));
    let mut late = late_site.agent().await;
    let held = |reason: &'static str| {
        move |it: &driftless_model::Application| {
            it.status.conditions.iter().any(|it| it.kind == "SyncAllowed" && it.reason == reason)
                && it.status.waits.iter().any(|it| it.reason == reason)
        }
    };
    late.until("it waits", held("FirstHostsUnknown")).await;
    assert!(late_site.of("web").is_empty());
    let canary = canary_site.agent().await;
    canary.settled(&first).await;
    late.settled(&first).await;
    late.event("the end of the wait", |it| it.reason == "FirstHostsReady").await;

    // A bad commit stays on the canary, which goes back, and the other host keeps what it has over a kill.
    let bad = late_site.compose(&checked("2.0", "/nowhere"));
    late.until("the bad commit is held", held("FirstHostFailed")).await;
    late.kill9();
    late.restart().await;
    let found = late.until("it is still held", held("FirstHostFailed")).await;
    assert!(found.status.message.contains(&bad[..12]), "{}", found.status.message);
    assert_eq!(version(&late_site).as_deref(), Some("1.0"));
    let said = late.said("status");
    assert!(said.contains("is held for a newer commit"), "{said}");

    // The running version is healed meanwhile.
    let web = late_site.container("web");
    late_site.docker.run(&["rm", "-f", &web.id()]);
    wait_until("it is healed", || runs(&late_site, "1.0")).await;

    // The commit that mends it reaches the canary first.
    let good = late_site.compose(&checked("3.0", "/healthz"));
    wait_until("the canary runs it", || runs(&canary_site, "3.0")).await;
    late.deployed(&good).await;
    assert_eq!(version(&late_site).as_deref(), Some("3.0"));

    let (code, listed, _) = hub.asks("fleet history --only late -o json");
    let entries: Vec<Value> = serde_json::from_str(&listed).unwrap();
    assert_eq!(code, 0);
    assert!(entries.iter().all(|it| it["commit"] != bad.as_str()), "the bad commit never ran: {listed}");
    let (_, failed, _) = hub.asks("fleet history --only canary");
    assert!(failed.lines().any(|line| line.contains("failed") && line.contains(&bad[..12])), "{failed}");
    // A report follows within about a second.
    wait_until("the collector sees no drift", || {
        let (code, drifted, _) = hub.asks("fleet drift");
        ((code, drifted.as_str()) == (0, "no drift on 2 hosts\n")).then_some(())
    })
    .await;
    canary_site.docker.remove_application(&canary_site.app);
    engine.stop();
}
