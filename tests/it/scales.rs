//! `driftless scale`: another number of instances than Git says, for a time.

use std::{collections::BTreeMap, time::Duration};

use driftless_agent::{RequestError, RequestKind, Scale};
use driftless_clock::Clock;
use driftless_docker::UserAction;
use driftless_model::{Application, HealthStatus, SyncStatus};

use crate::{
    sample::NOON,
    simulation::{Simulation, app, minutes},
};

fn web(image: &str, replicas: u32) -> String {
    format!(
        "services:\n  web:\n    image: {image}\n    restart: always\n    deploy: {{replicas: {replicas}}}\n"
    )
}

fn begun(compose: &str) -> Simulation {
    Simulation::prepared(compose, Clock::starting_at(NOON)).begun()
}

fn scale_until(minutes: u64, workload: &str, replicas: u32) -> RequestKind {
    let until = NOON.after(Duration::from_mins(minutes));
    RequestKind::Scale(Scale { workload: workload.into(), replicas, until })
}

fn running(it: &Simulation) -> usize {
    it.docker.observed(&app()).instances.values().filter(|instance| instance.is_running()).count()
}

fn is_scaled(application: &Application) -> bool {
    application.status.waits.iter().any(|wait| wait.reason == "Scaled")
}

async fn refusal(it: &Simulation, kind: RequestKind) -> String {
    match it.handle().request(app(), kind).await {
        Err(RequestError::Refused(why)) => why,
        other => panic!("{other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn override_is_neither_drift_nor_revision_and_ends() {
    let mut it = begun(&web("web:1", 2));
    it.synced_with_tip().await;
    it.ask(scale_until(60, "web", 5)).await;
    minutes(2).await;
    assert_eq!(running(&it), 5, "{}", it.story());
    let found = it.until("it is scaled", is_scaled).await;
    assert_eq!((found.status.sync, found.status.health), (SyncStatus::Synced, HealthStatus::Healthy));
    assert!(found.status.drift.is_empty(), "{:?}", found.status.drift);
    let wait = found.status.waits.iter().find(|wait| wait.reason == "Scaled").unwrap();
    assert!(
        wait.message.contains("is scaled to 5") && wait.message.contains("Git says 2"),
        "{}",
        wait.message
    );
    // It holds for a commit, and for another life of the agent.
    it.push(&web("web:2", 3)).await;
    it.synced_with_tip().await;
    assert_eq!(it.images(), ["web:2"; 5], "{}", it.story());
    it.crash();
    it.begin();
    minutes(5).await;
    assert_eq!(running(&it), 5, "{}", it.story());
    assert_eq!(it.store.revisions(&app()).unwrap().len(), 2);
    // Its end is no drift either.
    minutes(60).await;
    assert_eq!(running(&it), 3, "{}", it.story());
    let events = it.store.events(0, 1000, None).unwrap();
    assert!(!events.iter().any(|event| event.reason == "DriftDetected"), "{events:?}");
    assert_eq!(events.iter().filter(|event| event.reason == "ScaleEnded").count(), 1);
    assert_eq!(it.store.revisions(&app()).unwrap().len(), 2);
    it.check(&BTreeMap::new());
}

/// Waves order the changes of a commit.
#[tokio::test(start_paused = true)]
async fn override_does_not_wait_for_a_lower_wave() {
    let compose = format!(
        "{}    x-driftless: {{wave: 1}}
  cache:
    image: cache:1
    restart: always
    healthcheck: {{test: [CMD, 'true'], interval: 5s}}
",
        web("web:1", 2)
    );
    let it = begun(&compose);
    it.synced_with_tip().await;
    minutes(5).await;
    it.docker.faults(|faults| _ = faults.unhealthy.insert("cache:1".to_owned()));
    it.hand(&UserAction::Remove { name: "shop-cache-1".to_owned() });
    minutes(2).await;
    it.ask(scale_until(60, "web", 3)).await;
    minutes(2).await;
    assert_eq!(running(&it), 4, "{}", it.story());
    it.hand(&UserAction::Remove { name: "shop-web-1".to_owned() });
    minutes(2).await;
    assert_eq!(running(&it), 4, "it is healed: {}", it.story());
}

#[tokio::test(start_paused = true)]
async fn override_ends_while_the_agent_is_stopped() {
    let mut it = begun(&web("web:1", 2));
    it.synced_with_tip().await;
    it.ask(scale_until(10, "web", 4)).await;
    minutes(2).await;
    it.crash();
    minutes(20).await;
    assert_eq!(running(&it), 4);
    it.begin();
    minutes(2).await;
    assert_eq!(running(&it), 2, "{}", it.story());
    let events = it.store.events(0, 1000, None).unwrap();
    assert!(!events.iter().any(|event| event.reason == "DriftDetected"), "{events:?}");
}

#[tokio::test(start_paused = true)]
async fn repeated_override_moves_its_end_and_reset_ends_it() {
    let it = begun(&web("web:1", 2));
    it.synced_with_tip().await;
    for end in [5, 30, 60] {
        it.ask(scale_until(end, "web", 3)).await;
    }
    minutes(20).await;
    assert_eq!(running(&it), 3, "{}", it.story());
    let scaled = |reason: &str| {
        it.store.events(0, 1000, None).unwrap().into_iter().filter(|event| event.reason == reason).count()
    };
    assert_eq!(scaled("Scaled"), 1, "only the end has moved");
    it.ask(scale_until(60, "web", 0)).await;
    minutes(2).await;
    assert_eq!(running(&it), 0, "{}", it.story());
    it.ask(RequestKind::ResetScale("web".into())).await;
    minutes(2).await;
    assert_eq!(running(&it), 2, "{}", it.story());
    assert_eq!(
        refusal(&it, RequestKind::ResetScale("web".into())).await,
        "shop/web is not scaled; Git says its number"
    );
}

#[tokio::test(start_paused = true)]
async fn impossible_overrides_are_refused_with_their_place() {
    let compose = "services:\n  fixed:\n    image: a\n    container_name: one\n  port:\n    image: a\n    ports: ['80:80']\n  \
                   many:\n    image: a\n    ports: ['81:81']\n    deploy: {replicas: 2}\n  \
                   nightly:\n    image: a\n    restart: 'no'\n    x-driftless: {schedule: '@daily'}\n";
    let it = begun(compose);
    it.until("it is there", |found| found.status.sync == SyncStatus::Synced).await;
    for (name, replicas, expected) in [
        (
            "fixed",
            2,
            "shop/fixed cannot be scaled (shop/compose.yaml:2:3): 2 replicas cannot all have the container name `one`",
        ),
        (
            "port",
            3,
            "shop/port cannot be scaled (shop/compose.yaml:5:3): 3 replicas cannot share the host port 80/tcp",
        ),
        (
            "nightly",
            2,
            "shop/nightly cannot be scaled (shop/compose.yaml:12:3): a Job runs as often as its manifest says",
        ),
        (
            "many_proxy",
            2,
            "shop/many_proxy cannot be scaled (shop/compose.yaml:8:3): it is a proxy; scale the workload that it forwards to",
        ),
        (
            "many",
            1001,
            "shop/many cannot be scaled (shop/compose.yaml:8:3): more than 1000 instances are not supported on one host",
        ),
        ("nothing", 2, "shop has no workload `nothing`"),
    ] {
        assert_eq!(refusal(&it, scale_until(60, name, replicas)).await, expected, "{name}");
    }
    // The number that it has anyway, and none at all, are possible.
    it.ask(scale_until(60, "fixed", 1)).await;
    it.ask(scale_until(60, "port", 0)).await;
    assert!(refusal(&it, scale_until(0, "many", 3)).await.contains("is no end of an override"));
    it.ask(RequestKind::Suspend).await;
    assert!(refusal(&it, scale_until(60, "many", 3)).await.contains("is suspended"));
}

#[tokio::test(start_paused = true)]
async fn refusal_of_an_unknown_workload_names_near_ones() {
    let deployment = |namespace: &str| {
        format!(
            "apiVersion: apps/v1
kind: Deployment
metadata: {{name: web, namespace: {namespace}}}
spec:
  selector: {{matchLabels: {{app: web}}}}
  template:
    metadata: {{labels: {{app: web}}}}
    spec: {{containers: [{{name: web, image: \"web:1\"}}]}}
"
        )
    };
    let it = Simulation::prepared("services: {}\n", Clock::starting_at(NOON));
    let manifests = format!("{}---\n{}", deployment("one"), deployment("two"));
    it.git.push_files("Ada <a@b.c>", &[("shop/web.yaml", &manifests)]);
    let it = it.begun();
    it.synced_with_tip().await;
    let expected = "shop has no workload `web`; did you mean `web.one` or `web.two`?";
    assert_eq!(refusal(&it, scale_until(60, "web", 2)).await, expected);
    assert_eq!(refusal(&it, RequestKind::Restart("web".into())).await, expected);
}

/// Somebody works on the data of the database, and the override is about the web server.
#[tokio::test(start_paused = true)]
async fn override_creates_nothing_that_was_removed_by_hand() {
    let compose = format!("{}  db:\n    image: db:1\n    restart: always\n", web("web:1", 2));
    let mut it = Simulation::prepared(&compose, Clock::starting_at(NOON));
    it.settings.policy.self_heal = false;
    let it = it.begun();
    it.synced_with_tip().await;
    it.ask(scale_until(30, "web", 5)).await;
    minutes(2).await;
    it.hand(&UserAction::Remove { name: "shop-db-1".to_owned() });
    minutes(2).await;
    it.ask(scale_until(40, "web", 4)).await;
    minutes(2).await;
    assert_eq!(it.images(), ["web:1"; 4], "{}", it.story());
    minutes(60).await;
    assert_eq!(it.images(), ["web:1"; 2], "{}", it.story());
    let found = it.until("it is reported", |found| found.status.drift.len() == 1).await;
    assert_eq!(found.status.drift[0].object, "shop-db-1");
}
