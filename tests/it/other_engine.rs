//! An engine that has lost its data, or that is another one than before: nothing is created there until a user says so.

use driftless_agent::RequestKind;
use driftless_model::{Application, ConditionStatus, SyncStatus};

use crate::simulation::{Simulation, app, minutes};

fn shop(image: &str) -> String {
    format!("services:\n  db: {{image: '{image}', volumes: ['data:/data']}}\nvolumes: {{data: }}\n")
}

fn is_held(application: &Application) -> bool {
    application
        .status
        .conditions
        .iter()
        .any(|condition| condition.kind == "StateLost" && condition.status == ConditionStatus::True)
}

fn is_empty(it: &Simulation) -> bool {
    let observed = it.docker.observed(&app());
    observed.instances.is_empty() && observed.volumes.is_empty()
}

#[tokio::test(start_paused = true)]
async fn nothing_is_created_until_the_data_are_back() {
    let mut it = Simulation::of(&shop("db:1"));
    it.synced_with_tip().await;
    it.docker.swap_disks("empty");
    let held = it.until("it is held", is_held).await;
    assert_eq!(held.status.sync, SyncStatus::Unknown);
    let obstacle = held.status.obstacle.clone().unwrap_or_default();
    assert!(obstacle.contains("no container of shop; nothing is changed: mount the disk"), "{obstacle}");
    assert!(obstacle.contains("run `driftless recover`"), "{obstacle}");
    minutes(10).await;
    let readiness = it.handle().readiness();
    assert!(!readiness.state && readiness.message.contains("driftless recover"), "{readiness:?}");
    let events = it.store.newest_events(20, Some(&app())).unwrap();
    assert_eq!(events.iter().filter(|event| event.reason == "StateLost").count(), 1, "{events:#?}");
    for kind in [RequestKind::Restart("db".into()), RequestKind::Heal, RequestKind::Adopt] {
        let why = it.refusal(kind).await;
        assert!(why.contains("run `driftless recover`"), "{why}");
    }
    // It is so in the next life of the agent, and for a newer commit.
    it.crash();
    it.begin();
    it.git.push(&shop("db:2"));
    minutes(10).await;
    assert!(is_empty(&it), "{}", it.story());

    it.docker.swap_disks("data");
    it.synced_with_tip().await;
    assert_eq!(it.images(), ["db:2"]);
    assert!(it.handle().readiness().is_ready(), "{:?}", it.handle().readiness());
    let shown = it.until("it is not held", |application| !is_held(application)).await;
    assert_eq!(shown.status.obstacle, None);
}

#[tokio::test(start_paused = true)]
async fn containers_are_kept_when_the_data_are_back() {
    let it = Simulation::of(&shop("db:1"));
    it.synced_with_tip().await;
    let before = it.docker.observed(&app()).instances;
    let writes = it.docker.transcript().len();
    it.docker.swap_disks("empty");
    it.until("it is held", is_held).await;
    it.docker.swap_disks("data");
    it.synced_with_tip().await;
    minutes(10).await;
    assert_eq!(it.docker.observed(&app()).instances, before, "{}", it.story());
    assert_eq!(it.docker.transcript().len(), writes, "{}", it.story());
}

#[tokio::test(start_paused = true)]
async fn recover_deploys_to_the_engine_that_is_there() {
    let mut it = Simulation::of(&shop("db:1"));
    it.synced_with_tip().await;
    it.docker.swap_disks("other");
    it.until("it is held", is_held).await;
    let done = it.handle().recover().await.unwrap();
    assert!(done.iter().any(|line| line.contains("deployed to this engine")), "{done:?}");
    it.synced_with_tip().await;
    assert_eq!(it.images(), ["db:1"]);
    it.crash();
    it.begin();
    minutes(2).await;
    it.push(&shop("db:2")).await;
    it.synced_with_tip().await;
    assert!(it.handle().readiness().is_ready(), "{:?}", it.handle().readiness());
}

#[tokio::test(start_paused = true)]
async fn another_id_of_the_same_data_holds_nothing() {
    let mut it = Simulation::of(&shop("db:1"));
    it.synced_with_tip().await;
    it.crash();
    it.docker.faults(|faults| faults.data_id = "renewed".into());
    it.begin();
    it.push(&shop("db:2")).await;
    it.synced_with_tip().await;
    assert_eq!(it.store.engine_data_id().unwrap().as_deref(), Some("renewed"));
    assert!(it.handle().readiness().is_ready(), "{:?}", it.handle().readiness());
}
