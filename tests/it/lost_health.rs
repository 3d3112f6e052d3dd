//! Commits that lose their health after they were reached, on the simulated engine: which version stays, another try, and a rollback.

use std::time::Duration;

use driftless_agent::{Promotion, RequestKind, Rollback};
use driftless_clock::Clock;
use driftless_docker::UserAction;
use driftless_model::{Application, Cause, ConditionStatus, HealthStatus, OnFailure, Outcome, Record, Until};

use crate::{
    sample::NOON,
    simulation::{Simulation, app, minutes},
};

/// A service that loses its health after the second commit, and a database that this commit changes as well.
fn shop(version: u32) -> String {
    format!(
        "services:\n  web:\n    image: web:{version}\n    restart: always\n  \
         db:\n    image: db:{version}\n    restart: always\n"
    )
}

/// A service with a canary, and another one that loses its health after the second commit.
fn with_canary(version: u32) -> String {
    format!(
        "services:\n  web:\n    image: web:{version}\n    restart: always\n    \
         deploy: {{replicas: 5, update_config: {{order: start-first}}}}\n    x-driftless: {{canary: ['1']}}\n  \
         api:\n    image: api:{version}\n    restart: always\n"
    )
}

fn prepared(compose: &str) -> Simulation {
    let mut it = Simulation::prepared(compose, Clock::starting_at(NOON));
    it.settings.policy.on_failure = OnFailure::Pause;
    it
}

/// From now on, containers of this image end with an error so long after their start. `None`: they stay.
fn exits(it: &Simulation, image: &str, after: Option<Duration>) {
    it.docker.faults(|faults| {
        faults.exits.clear();
        faults.exits.extend(after.map(|after| (image.to_owned(), (after, 3))));
    });
}

fn has_failed(application: &Application) -> bool {
    let mut conditions = application.status.conditions.iter();
    conditions.any(|it| it.kind == "CommitFailed" && it.status == ConditionStatus::True)
}

fn outcome(application: &Application) -> Option<Outcome> {
    application.status.operation.as_ref().and_then(|operation| operation.outcome.clone())
}

/// The second commit was reached, has lost its health soon after, and its rollouts are paused.
async fn reached_and_failed() -> Simulation {
    let it = prepared(&shop(1)).begun();
    it.synced_with_tip().await;
    exits(&it, "web:2", Some(Duration::from_secs(15)));
    it.push(&shop(2)).await;
    it.until("it has failed", has_failed).await;
    let history = it.store.revisions(&app()).unwrap();
    assert!(matches!(history[0].outcome, Outcome::Failed { .. }) && history[0].was_reached, "{history:?}");
    it
}

/// Reaches the second version, of which `api` loses its health then.
async fn promote_and_fail(it: &Simulation, compose: &str) {
    let ends = |after: Duration| {
        it.docker.faults(|faults| _ = faults.exits.insert("api:2".to_owned(), (after, 3)));
    };
    // The first end comes when the canary is over.
    ends(Duration::from_mins(20));
    it.push(compose).await;
    minutes(5).await;
    it.ask(RequestKind::Promote(Promotion { workload: None, is_full: true })).await;
    it.synced_with_tip().await;
    ends(Duration::from_secs(15));
    it.until("it has failed", has_failed).await;
    let history = it.store.revisions(&app()).unwrap();
    assert!(matches!(history[0].outcome, Outcome::Failed { .. }) && history[0].was_reached, "{history:?}");
}

/// Pins the application to its first revision, and waits until that has succeeded.
async fn back_to_first(it: &Simulation) {
    let rollback = Rollback { to: Some("1".to_owned()), reason: String::new(), until: Until::Manual };
    it.ask(RequestKind::Rollback(rollback)).await;
    let is_back =
        |found: &Application| found.status.pin.is_some() && outcome(found) == Some(Outcome::Succeeded);
    it.until("it is back", is_back).await;
}

/// Whether a container of one of these images was there since this entry of the transcript.
fn has_run_since(it: &Simulation, from: usize, images: &[&str]) -> bool {
    it.docker.transcript()[from..].iter().any(|entry| {
        let mut containers = entry.after.containers();
        containers.any(|container| images.contains(&container.config.image.as_str()))
    })
}

fn remove_all(it: &Simulation, workload: &str) {
    let observed = it.docker.observed(&app());
    let of_it = observed.instances.values().filter(|it| it.instance.workload.as_str() == workload);
    let names: Vec<String> = of_it.map(|instance| instance.name.clone()).collect();
    assert!(!names.is_empty(), "{workload} has no container\n{}", it.story());
    for name in names {
        it.hand(&UserAction::Remove { name });
    }
}

/// The name of the container of a workload.
fn running(it: &Simulation, workload: &str) -> String {
    let observed = it.docker.observed(&app());
    let mut of_it = observed.instances.values().filter(|it| it.instance.workload.as_str() == workload);
    of_it.next().unwrap().name.clone()
}

#[tokio::test(start_paused = true)]
async fn lost_containers_come_back_at_the_version_reached() {
    for is_ill in [true, false] {
        let mut it = reached_and_failed().await;
        if !is_ill {
            exits(&it, "web:2", None);
            minutes(30).await;
        }
        it.crash();
        it.begin();
        minutes(2).await;
        let from = it.docker.transcript().len();
        remove_all(&it, "db");
        minutes(5).await;
        remove_all(&it, "web");
        minutes(5).await;
        assert!(it.images().contains(&"db:2".to_owned()), "is ill: {is_ill}\n{}", it.story());
        assert!(has_run_since(&it, from, &["web:2"]), "is ill: {is_ill}\n{}", it.story());
        assert!(!has_run_since(&it, from, &["db:1", "web:1"]), "is ill: {is_ill}\n{}", it.story());
    }
}

#[tokio::test(start_paused = true)]
async fn retry_of_a_reached_commit_begins_no_canary() {
    let mut it = prepared(&with_canary(1));
    it.settings.policy.monitor = Duration::from_mins(40);
    let it = it.begun();
    it.synced_with_tip().await;
    promote_and_fail(&it, &with_canary(2)).await;
    exits(&it, "api:2", None);
    let from = it.docker.transcript().len();
    it.ask(RequestKind::Retry).await;
    it.synced_with_tip().await;
    minutes(30).await;
    assert!(!has_run_since(&it, from, &["web:1", "api:1"]), "{}", it.story());
    let history = it.store.revisions(&app()).unwrap();
    assert_eq!((history.len(), history[0].outcome.clone()), (2, Outcome::Succeeded), "{history:?}");
    it.check(&[("web", 5)].into());
}

#[tokio::test(start_paused = true)]
async fn overtaken_revert_leaves_the_failed_commit() {
    let compose = |version: u32| {
        format!("{}  warm: {{image: 'warm:1', x-driftless: {{hook: PostSync}}}}\n", with_canary(version))
    };
    let mut it = prepared(&compose(1));
    it.settings.policy.monitor = Duration::from_mins(40);
    it.docker.faults(|faults| _ = faults.exits.insert("warm:1".to_owned(), (Duration::from_secs(2), 0)));
    let it = it.begun();
    it.synced_with_tip().await;
    promote_and_fail(&it, &compose(2)).await;
    // The hook of the revert does not end before the next commit.
    it.docker.faults(|faults| _ = faults.exits.remove("warm:1"));
    it.push(&compose(1)).await;
    minutes(3).await;
    let from = it.docker.transcript().len();
    it.push(&compose(3)).await;
    minutes(5).await;
    assert!(!has_run_since(&it, from, &["web:2", "api:2"]), "{}", it.story());
    let images = it.images();
    let count = |image: &str| images.iter().filter(|other| *other == image).count();
    assert_eq!((count("web:1"), count("web:3"), count("api:3")), (4, 1, 1), "{}", it.story());
    let history = it.store.revisions(&app()).unwrap();
    assert_eq!((history.len(), &history[1].outcome), (4, &Outcome::Superseded), "{history:?}");
    it.check(&[("web", 5)].into());
}

#[tokio::test(start_paused = true)]
async fn revert_to_the_version_of_a_rollback_has_no_canary() {
    let mut it = prepared(&with_canary(1));
    it.settings.policy.monitor = Duration::from_mins(40);
    let it = it.begun();
    it.synced_with_tip().await;
    it.push(&with_canary(3)).await;
    minutes(5).await;
    it.ask(RequestKind::Abort).await;
    minutes(5).await;
    let history = it.store.revisions(&app()).unwrap();
    assert_eq!((history[0].rollback_of, &history[0].outcome), (Some(1), &Outcome::Succeeded), "{history:?}");
    assert_ne!(history[0].stack, history[2].stack);
    promote_and_fail(&it, &with_canary(2)).await;
    it.push(&with_canary(1)).await;
    minutes(5).await;
    let expected = ["api:1", "web:1", "web:1", "web:1", "web:1", "web:1"];
    assert_eq!(it.images(), expected, "{}", it.story());
    it.check(&[("web", 5)].into());
}

#[tokio::test(start_paused = true)]
async fn jobs_of_a_failed_commit_outlive_a_lost_record() {
    let manifests = |version: u32| {
        format!(
            "apiVersion: batch/v1
kind: Job
metadata: {{name: migrate}}
spec:
  template:
    spec:
      restartPolicy: Never
      containers: [{{name: migrate, image: 'migrate:{version}'}}]
---
apiVersion: apps/v1
kind: Deployment
metadata: {{name: web}}
spec:
  selector: {{matchLabels: {{app: web}}}}
  template:
    metadata: {{labels: {{app: web}}}}
    spec: {{containers: [{{name: web, image: 'web:{version}'}}]}}
"
        )
    };
    let mut idle = Simulation::idle_at(Clock::starting_at(NOON));
    idle.settings.policy.on_failure = OnFailure::Pause;
    idle.docker.faults(|faults| {
        for image in ["migrate:1", "migrate:2"] {
            faults.exits.insert(image.to_owned(), (Duration::from_secs(2), 0));
        }
        faults.exits.insert("web:2".to_owned(), (Duration::from_secs(15), 3));
    });
    idle.git.push_files("Ada", &[("shop/app.yaml", &manifests(1))]);
    let mut it = idle.begun();
    it.synced_with_tip().await;
    minutes(1).await;
    it.git.push_files("Ada", &[("shop/app.yaml", &manifests(2))]);
    it.until("it has failed", has_failed).await;
    assert!(it.store.revisions(&app()).unwrap()[0].was_reached, "{}", it.story());
    it.crash();
    remove_all(&it, "migrate");
    it.store.save_record(&app(), &Record::default()).unwrap();
    let from = it.docker.transcript().len();
    it.begin();
    minutes(10).await;
    assert!(!has_run_since(&it, from, &["migrate:1", "migrate:2"]), "{}", it.story());
    assert!(has_run_since(&it, from, &["web:2"]), "{}", it.story());
}

#[tokio::test(start_paused = true)]
async fn rollback_after_lost_health_succeeds() {
    let it = reached_and_failed().await;
    back_to_first(&it).await;
    assert_eq!(it.images(), ["db:1", "web:1"], "{}", it.story());
    // A crash later is no failure of its rollout.
    minutes(30).await;
    exits(&it, "web:1", Some(Duration::from_secs(15)));
    it.hand(&UserAction::Kill { name: running(&it, "web") });
    minutes(30).await;
    let history = it.store.revisions(&app()).unwrap();
    assert_eq!((history[0].cause.clone(), &history[0].outcome), (Cause::Rollback, &Outcome::Succeeded));
    // Another try of the commit may succeed.
    exits(&it, "web:1", None);
    it.ask(RequestKind::Resume).await;
    let found = it.synced_with_tip().await;
    assert_eq!(outcome(&found), Some(Outcome::Succeeded), "{}", it.story());
    assert_eq!(it.images(), ["db:2", "web:2"], "{}", it.story());
}

#[tokio::test(start_paused = true)]
async fn restart_is_accepted_while_pinned_after_a_failure() {
    let it = reached_and_failed().await;
    let refused = it.refusal(RequestKind::Restart("web".into())).await;
    assert!(refused.contains("the rollouts of shop are paused"), "{refused}");
    back_to_first(&it).await;
    let before = running(&it, "web");
    let from = it.docker.transcript().len();
    it.ask(RequestKind::Restart("web".into())).await;
    minutes(5).await;
    let is_removed = it.docker.transcript()[from..]
        .iter()
        .any(|entry| entry.after.containers().all(|container| container.name != before));
    assert!(is_removed, "{}", it.story());
    assert_eq!(it.images(), ["db:1", "web:1"], "{}", it.story());
    it.ask(RequestKind::Retry).await;
    let events = it.store.events(0, 1000, None).unwrap();
    let said = events.iter().rfind(|event| event.reason == "RetryRequested").unwrap();
    assert!(said.message.ends_with("`driftless resume shop` tries the newest commit"), "{}", said.message);
}

#[tokio::test(start_paused = true)]
async fn retry_while_pinned_restarts_failed_containers() {
    let compose = |version: u32| format!("services: {{web: {{image: 'web:{version}', restart: 'no'}}}}\n");
    let mut it = prepared(&compose(1));
    it.settings.policy.on_failure = OnFailure::Rollback;
    let it = it.begun();
    it.synced_with_tip().await;
    it.push(&compose(2)).await;
    it.synced_with_tip().await;
    exits(&it, "web:3", Some(Duration::from_secs(2)));
    it.push(&compose(3)).await;
    minutes(10).await;
    let history = it.store.revisions(&app()).unwrap();
    assert_eq!((history[0].cause.clone(), history[0].rollback_of), (Cause::AutomaticRollback, Some(2)));
    assert_eq!(it.images(), ["web:2"], "{}", it.story());
    exits(&it, "web:1", Some(Duration::from_secs(2)));
    let rollback = Rollback { to: Some("1".to_owned()), reason: String::new(), until: Until::Manual };
    it.ask(RequestKind::Rollback(rollback)).await;
    minutes(10).await;
    assert!(it.images().is_empty(), "{}", it.story());
    exits(&it, "web:1", None);
    it.ask(RequestKind::Retry).await;
    minutes(5).await;
    assert_eq!(it.images(), ["web:1"], "{}", it.story());
    assert!(it.store.pin(&app()).unwrap().is_some());
}

/// A one-shot that fails, next to a service that does not wait for its end.
fn with_setup(web: &str) -> String {
    format!(
        "services:\n  web: {{image: '{web}', restart: always}}\n  setup: {{image: 'setup:1', restart: 'no'}}\n"
    )
}

/// It is no fault of that commit, so that nothing is taken back, and nobody waits for an end that never comes.
#[tokio::test(start_paused = true)]
async fn commit_that_leaves_a_failed_one_shot_succeeds() {
    let mut it = prepared(&with_setup("web:1"));
    it.settings.policy.on_failure = OnFailure::Rollback;
    exits(&it, "setup:1", Some(Duration::from_secs(2)));
    let it = it.begun();
    it.until("it has failed", has_failed).await;
    let second = it.push(&with_setup("web:2")).await;
    minutes(5).await;
    let found = it.handle().applications().get(&app()).unwrap().clone();
    let history = it.store.revisions(&app()).unwrap();
    assert_eq!((history[0].number, &history[0].outcome), (2, &Outcome::Succeeded), "{}", it.story());
    assert_eq!(found.status.health, HealthStatus::Degraded, "{}", found.status.message);
    assert!(found.status.commit.as_ref().is_some_and(|commit| commit.id == second), "{}", it.story());
    assert_eq!(found.status.obstacle, None, "the commit is reached");
    let failure = found.status.lasting_failure.clone().unwrap_or_default();
    assert!(failure.starts_with("setup.1 failed with code 3"), "{failure}");
    assert!(failure.contains("`driftless sync shop --retry`"), "{failure}");
    let message = &found.status.message;
    assert!(message.ends_with("; `driftless sync shop --retry` tries it again"), "{message}");
    exits(&it, "setup:1", None);
    it.ask(RequestKind::Retry).await;
    it.synced_with_tip().await;
}
