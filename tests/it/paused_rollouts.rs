//! Commits that meet a paused rollout, on the simulated engine: they neither succeed nor fail until it goes on.

use std::{collections::BTreeMap, time::Duration};

use driftless_agent::RequestKind;
use driftless_clock::Clock;
use driftless_model::{Application, OnFailure, Outcome};

use crate::{
    sample::NOON,
    simulation::{Simulation, app, minutes},
};

/// Two replicas with a health check, and a database.
fn web(image: &str) -> String {
    format!(
        "services:\n  web:\n    image: {image}\n    deploy: {{replicas: 2}}\n    healthcheck: {{test: [CMD, check]}}\n  \
         db:\n    image: db:1\n    restart: always\n"
    )
}

/// An agent that goes back to the older revision a minute after a rollout has made its last progress.
fn begun() -> Simulation {
    let mut it = Simulation::prepared(&web("web:1"), Clock::starting_at(NOON));
    it.settings.policy.on_failure = OnFailure::Rollback;
    it.settings.policy.progress_deadline = Some(Duration::from_mins(1));
    it.begun()
}

fn outcomes(it: &Simulation) -> Vec<Outcome> {
    it.store.revisions(&app()).unwrap().into_iter().map(|revision| revision.outcome).collect()
}

/// Whether an image is among the containers at any time.
fn has_run(it: &Simulation, image: &str) -> bool {
    let transcript = it.docker.transcript();
    transcript.iter().any(|entry| entry.after.containers().any(|container| container.config.image == image))
}

fn is_back(application: &Application, commit: &str) -> bool {
    let outcome = application.status.operation.as_ref().and_then(|operation| operation.outcome.clone());
    outcome == Some(Outcome::Succeeded)
        && application.status.commit.as_ref().is_some_and(|it| it.id == commit)
}

/// A commit that met a paused rollout has not run, so it has not succeeded and nothing goes back to it.
#[tokio::test(start_paused = true)]
async fn commit_behind_a_pause_is_no_way_back() {
    let it = begun();
    it.synced_with_tip().await;
    let first = it.tip();
    it.ask(RequestKind::Pause("web".into())).await;
    it.docker.faults(|faults| faults.unhealthy = ["web:2".to_owned(), "web:3".to_owned()].into());
    for image in ["web:2", "web:3"] {
        it.push(&web(image)).await;
        // The deadline of a minute does not run.
        minutes(30).await;
    }
    let expected = [Outcome::InProgress, Outcome::Superseded, Outcome::Succeeded];
    assert_eq!(outcomes(&it), expected, "{}", it.story());
    assert_eq!(it.images(), ["db:1", "web:1", "web:1"], "{}", it.story());
    it.ask(RequestKind::Unpause("web".into())).await;
    it.until("it is back", |found| is_back(found, &first)).await;
    assert_eq!(it.images(), ["db:1", "web:1", "web:1"], "{}", it.story());
    let outcomes = outcomes(&it);
    assert!(matches!(outcomes[1], Outcome::Failed { .. }), "{outcomes:?}");
    assert_eq!((has_run(&it, "web:2"), has_run(&it, "web:3")), (false, true), "{}", it.story());
    it.check(&BTreeMap::from([("web", 2)]));
}

/// A commit that waits for the end of a pause has all of its time afterwards.
#[tokio::test(start_paused = true)]
async fn commit_succeeds_once_its_pause_has_ended() {
    let it = begun();
    it.synced_with_tip().await;
    it.ask(RequestKind::Pause("web".into())).await;
    let commit = it.push(&web("web:2")).await;
    minutes(30).await;
    assert_eq!(outcomes(&it)[0], Outcome::InProgress);
    it.ask(RequestKind::Unpause("web".into())).await;
    it.synced(&commit).await;
    assert_eq!(outcomes(&it)[0], Outcome::Succeeded);
    assert_eq!(it.images(), ["db:1", "web:2", "web:2"], "{}", it.story());
    it.check(&BTreeMap::from([("web", 2)]));
}
