//! A fleet: two real agents report to a third one.

use serde_json::{Value, json};

use crate::harness::{Agent, Settings, Site, images};

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
