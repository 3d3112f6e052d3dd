//! The key of the database is lost: what runs stays as it is, and a rolled back application does not roll forward.

use std::{fs, path::Path};

use driftless_agent::{RequestKind, Rollback};
use driftless_clock::Clock;
use driftless_model::Until;
use driftless_store::{StateDir, Store};

use crate::sample::NOON;
use crate::simulation::{Simulation, app, minutes};

fn compose(image: &str) -> String {
    format!("services: {{web: {{image: '{image}', environment: {{TOKEN: PLANTED}}}}}}\n")
}

/// A simulation with a database on disk.
fn prepared(state: &StateDir) -> Simulation {
    let mut simulation = Simulation::prepared(&compose("web:1"), Clock::starting_at(NOON));
    simulation.store = Store::open(state, simulation.clock).unwrap().store;
    simulation.begun()
}

/// The next life of the agent, without the key.
fn restart_without_key(simulation: &mut Simulation, state: &StateDir, directory: &Path) {
    simulation.crash();
    simulation.store = Store::in_memory(simulation.clock).unwrap();
    fs::remove_file(directory.join("database.key")).unwrap();
    let opened = Store::open(state, simulation.clock).unwrap();
    assert!(opened.recovered.is_some());
    simulation.store = opened.store;
    simulation.begin();
}

#[tokio::test(start_paused = true)]
async fn lost_key_changes_nothing_that_runs() {
    let directory = tempfile::tempdir().unwrap();
    let state = StateDir::lock(directory.path()).unwrap();
    let mut simulation = prepared(&state);
    simulation.synced_with_tip().await;
    simulation.git.push(&compose("web:2"));
    simulation.synced_with_tip().await;
    let before = simulation.docker.observed(&app()).instances;

    restart_without_key(&mut simulation, &state, directory.path());
    simulation.synced_with_tip().await;
    minutes(10).await;
    let after = simulation.docker.observed(&app()).instances;
    assert_eq!(before.keys().collect::<Vec<_>>(), after.keys().collect::<Vec<_>>(), "{}", simulation.story());
    assert!(simulation.store.stack(&app(), 2).unwrap().is_some(), "the running revision is stored again");
    let rollback = Rollback { to: Some("1".to_owned()), reason: String::new(), until: Until::Manual };
    let refused = simulation.handle().request(app(), RequestKind::Rollback(rollback)).await.unwrap_err();
    assert!(refused.to_string().contains("it was encrypted with another key"), "{refused}");

    simulation.git.push(&compose("web:3"));
    simulation.synced_with_tip().await;
    assert_eq!(simulation.images(), ["web:3"]);
}

#[tokio::test(start_paused = true)]
async fn rolled_back_application_stays_until_recover_without_its_key() {
    let directory = tempfile::tempdir().unwrap();
    let state = StateDir::lock(directory.path()).unwrap();
    let mut simulation = prepared(&state);
    simulation.synced_with_tip().await;
    simulation.git.push(&compose("bad:2"));
    simulation.synced_with_tip().await;
    let rollback = Rollback { to: None, reason: "2 is bad".to_owned(), until: Until::Manual };
    simulation.ask(RequestKind::Rollback(rollback)).await;
    simulation.until("the rollback is done", |_| simulation.images() == ["web:1"]).await;

    restart_without_key(&mut simulation, &state, directory.path());
    minutes(10).await;
    assert_eq!(simulation.images(), ["web:1"], "{}", simulation.story());
    let lost = simulation.until("the loss is reported", |application| {
        application.status.conditions.iter().any(|condition| condition.kind == "StateLost")
    });
    lost.await;

    simulation.handle().recover().await.unwrap();
    simulation.until("the newest commit is applied", |_| simulation.images() == ["bad:2"]).await;
    assert_eq!(simulation.store.pin(&app()).unwrap(), None, "a pin without effect is not shown");
}
