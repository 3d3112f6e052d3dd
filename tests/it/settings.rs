//! Settings of one application in the agent's configuration: an error among them stops that application.

use std::collections::BTreeMap;

use driftless_agent::RequestKind;
use driftless_clock::Clock;
use driftless_config as config;
use driftless_model::{AppName, SyncStatus};

use crate::sample::NOON;
use crate::simulation::{Simulation, app, minutes};

const COMPOSE: &str = "services: {web: {image: 'web:1', environment: ['GREETING=${GREETING}']}}";

#[tokio::test(start_paused = true)]
async fn application_with_an_error_in_its_settings_is_not_applied() {
    for setting in ["envFiles: [/etc/shop.env]", "envFiles: [../../shop.env]", "files: [../../x.yaml]"] {
        let text = format!(
            "repositories: [{{url: /srv/a, applications: [{{path: shop, {setting}}}, {{path: blog}}]}}]\n"
        );
        let mut it = Simulation::prepared(COMPOSE, Clock::starting_at(NOON));
        it.settings = config::Settings::parse("driftless.yaml", &text).unwrap().repositories.remove(0);
        it.git.push_files("Ada", &[("shop/compose.yaml", COMPOSE), ("blog/compose.yaml", COMPOSE)]);
        it.begin();
        minutes(5).await;
        let applications = it.handle().applications();
        let running: BTreeMap<&AppName, usize> =
            applications.keys().map(|app| (app, it.docker.observed(app).instances.len())).collect();
        assert_eq!(running, BTreeMap::from([(&"blog".into(), 1), (&"shop".into(), 0)]), "{setting}");
        let status = &applications[&AppName::from("shop")].status;
        assert!(status.message.contains("outside of the repository"), "{setting}: {status:#?}");
        assert_eq!(status.sync, SyncStatus::Unknown);
        let refusal = it.handle().request("shop".into(), RequestKind::Plan).await.unwrap_err().to_string();
        assert!(refusal.contains("shop has nothing to apply: shop: error: "), "{setting}: {refusal}");
        assert!(refusal.contains("outside of the repository"), "{setting}: {refusal}");
    }
}

#[tokio::test(start_paused = true)]
async fn rule_for_a_missing_workload_is_a_finding_at_its_place() {
    let text = "repositories:\n  - url: /srv/a\n    ignoreDifferences:\n      - {workload: web, fields: [restart]}\n      \
                - {workload: wbe, fields: [restart]}\n      - {fields: [state]}\n    applications: [{path: shop}, {path: blog}]\n";
    let mut it = Simulation::prepared(COMPOSE, Clock::starting_at(NOON));
    it.settings = config::Settings::parse("driftless.yaml", text).unwrap().repositories.remove(0);
    let blog = "services: {blog: {image: 'blog:1'}}";
    it.git.push_files("Ada", &[("shop/compose.yaml", COMPOSE), ("blog/compose.yaml", blog)]);
    it.begin();
    minutes(5).await;
    let expected = "driftless.yaml:5:9: warning: ignoreDifferences: no application has a workload `wbe` that this rule is for, so it has \
                    no effect (correct the name of the workload, or remove the rule)";
    let findings = |it: &Simulation, app: &str| {
        let applications = it.handle().applications();
        let found = &applications[&AppName::from(app)].status.findings;
        found.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    for app in ["shop", "blog"] {
        assert!(findings(&it, app).contains(&expected.to_owned()), "{:#?}", findings(&it, app));
    }
    // A commit that adds it.
    let with = "services: {blog: {image: 'blog:1'}, wbe: {image: 'blog:1'}}";
    it.git.push_files("Ada", &[("shop/compose.yaml", COMPOSE), ("blog/compose.yaml", with)]);
    minutes(5).await;
    for app in ["shop", "blog"] {
        assert!(!findings(&it, app).contains(&expected.to_owned()), "{:#?}", findings(&it, app));
    }
}

#[tokio::test(start_paused = true)]
async fn commit_with_invalid_manifests_is_an_event_once() {
    let mut it = Simulation::of(COMPOSE);
    it.synced_with_tip().await;
    let reported = |it: &Simulation| {
        let events = it.store.newest_events(500, Some(&app())).unwrap();
        let invalid = events.into_iter().filter(|event| event.reason == "InvalidManifest");
        invalid.map(|event| (event.object, event.message)).collect::<Vec<_>>()
    };
    assert!(reported(&it).is_empty());
    let bad = it.push("services: {web: {imagee: 'web:2'}}").await;
    minutes(10).await;
    let events = reported(&it);
    let [(object, message)] = events.as_slice() else { panic!("{events:?}") };
    assert_eq!(object.as_str(), &bad[..12]);
    assert!(message.contains("needs an `image`"), "{message}");
    // Nor after a restart, and it stays readable after the next good commit.
    it.crash();
    it.begin();
    minutes(10).await;
    it.push(COMPOSE).await;
    it.synced_with_tip().await;
    assert_eq!(reported(&it).len(), 1);
}
