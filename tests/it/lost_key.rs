//! The key of the database or the database itself is lost: what runs stays as it is, a rolled back application does not roll
//! forward, and no Job runs again.

use std::{fs, path::Path, time::Duration};

use driftless_agent::{RequestKind, Rollback};
use driftless_clock::Clock;
use driftless_docker::UserAction;
use driftless_model::{Observed, OnFailure, StatusCondition, Until};
use driftless_store::{RestoreOptions, StateDir, Store, back_up, restore};

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

/// Nothing says any more what the application went back to.
#[tokio::test(start_paused = true)]
async fn failed_commit_stays_skipped_without_the_key() {
    let with_check = |image: &str| {
        format!("services: {{web: {{image: '{image}', healthcheck: {{test: [CMD, check]}}}}}}\n")
    };
    let directory = tempfile::tempdir().unwrap();
    let state = StateDir::lock(directory.path()).unwrap();
    let mut simulation = Simulation::prepared(&with_check("web:1"), Clock::starting_at(NOON));
    simulation.settings.policy.on_failure = OnFailure::Rollback;
    simulation.settings.policy.progress_deadline = Some(Duration::from_mins(1));
    simulation.store = Store::open(&state, simulation.clock).unwrap().store;
    let mut simulation = simulation.begun();
    simulation.synced_with_tip().await;
    simulation.docker.faults(|faults| {
        faults.unhealthy.insert("bad:2".to_owned());
    });
    simulation.git.push(&with_check("bad:2"));
    let is_back = |condition: &StatusCondition| condition.reason == StatusCondition::ROLLED_BACK;
    let back = simulation.until("it is back", |application| {
        application.status.conditions.iter().any(is_back) && simulation.images() == ["web:1"]
    });
    back.await;
    minutes(5).await;

    restart_without_key(&mut simulation, &state, directory.path());
    let begun = simulation.docker.transcript().len();
    minutes(10).await;
    assert_eq!(simulation.images(), ["web:1"], "{}", simulation.story());
    let is_failed =
        |observed: &Observed| observed.containers().any(|container| container.config.image == "bad:2");
    let since = simulation.docker.transcript().split_off(begun);
    assert!(!since.iter().any(|entry| is_failed(&entry.after)), "{}", simulation.story());
    let said = simulation.until("the status says why", |application| {
        application.status.message.contains("because the stored revision 1 cannot be read")
    });
    said.await;

    simulation.git.push(&with_check("web:3"));
    simulation.synced_with_tip().await;
    assert_eq!(simulation.images(), ["web:3"]);
}

#[tokio::test(start_paused = true)]
async fn expired_job_is_not_run_again_without_the_database() {
    let manifests = "apiVersion: batch/v1
kind: Job
metadata: {name: migrate}
spec:
  ttlSecondsAfterFinished: 60
  template:
    spec:
      restartPolicy: Never
      containers: [{name: migrate, image: 'migrate:1'}]
---
apiVersion: v1
kind: Pod
metadata: {name: web}
spec: {containers: [{name: web, image: 'web:1'}]}
";
    let directory = tempfile::tempdir().unwrap();
    let state = StateDir::lock(directory.path()).unwrap();
    let mut simulation = Simulation::idle_at(Clock::starting_at(NOON));
    simulation.store = Store::open(&state, simulation.clock).unwrap().store;
    simulation.docker.faults(|faults| {
        faults.exits.insert("migrate:1".to_owned(), (Duration::from_secs(2), 0));
    });
    simulation.git.push_files("Ada", &[("shop/app.yaml", manifests)]);
    let mut simulation = simulation.begun();
    simulation.synced_with_tip().await;
    minutes(5).await;
    let migrations = |observed: &Observed| {
        observed.containers().filter(|container| container.config.image == "migrate:1").count()
    };
    let created = |simulation: &Simulation| {
        let transcript = simulation.docker.transcript();
        transcript.iter().filter(|entry| migrations(&entry.after) > migrations(&entry.before)).count()
    };
    assert_eq!((created(&simulation), migrations(&simulation.docker.observed(&app()))), (1, 0));

    simulation.crash();
    simulation.store = Store::in_memory(simulation.clock).unwrap();
    for file in ["driftless.db", "driftless.db-wal", "driftless.db-shm"] {
        let _ = fs::remove_file(directory.path().join(file));
    }
    let opened = Store::open(&state, simulation.clock).unwrap();
    assert!(opened.recovered.is_some());
    simulation.store = opened.store;
    simulation.begin();
    simulation.synced_with_tip().await;
    minutes(5).await;
    assert_eq!(created(&simulation), 1, "{}", simulation.story());
    assert_eq!(simulation.images(), ["web:1"]);
    let events = simulation.store.events(0, 1000, None).unwrap();
    assert_eq!(events.iter().filter(|event| event.reason == "JobsNotRunAgain").count(), 1);
}

/// The next life of the agent, with the state directory of the backup. Git cannot be read yet, so the newest known commit is that of
/// the backup.
fn begin_restored(simulation: &mut Simulation, state: StateDir, folder: &Path, file: &Path) -> StateDir {
    simulation.store = Store::in_memory(simulation.clock).unwrap();
    drop(state);
    restore(file, folder, RestoreOptions { replace: true, force: false }).unwrap();
    let state = StateDir::lock(folder).unwrap();
    simulation.store = Store::open(&state, simulation.clock).unwrap().store;
    simulation.git.down(true);
    simulation.begin();
    state
}

/// The backup is older than the last commit, of which everything was done.
#[tokio::test(start_paused = true)]
async fn restored_backup_runs_no_job_or_hook_again() {
    let pod = |version: u8| {
        format!(
            "apiVersion: v1
kind: Pod
metadata: {{name: web}}
spec: {{containers: [{{name: web, image: 'web:{version}'}}]}}
"
        )
    };
    let job = |name: &str, more: &str, ttl: &str| {
        format!(
            "---
apiVersion: batch/v1
kind: Job
metadata: {{name: {name}{more}}}
spec:
{ttl}  template:
    spec:
      restartPolicy: Never
      containers: [{{name: {name}, image: '{name}:1'}}]
"
        )
    };
    let hook = |phase: &str| format!(", annotations: {{argocd.argoproj.io/hook: {phase}}}");
    let hooks = job("dump", &hook("PreSync"), "") + &job("warm", &hook("PostSync"), "");
    let job = job("migrate", "", "  ttlSecondsAfterFinished: 60\n");
    let first = pod(1) + &hooks;
    let [second, third] = [2, 3].map(|version| pod(version) + &hooks + &job);
    let directory = tempfile::tempdir().unwrap();
    let (folder, file) = (directory.path().join("state"), directory.path().join("backup.tar"));
    let state = StateDir::lock(&folder).unwrap();
    let mut simulation = Simulation::idle_at(Clock::starting_at(NOON));
    simulation.store = Store::open(&state, simulation.clock).unwrap().store;
    simulation.store.agent_id().unwrap();
    simulation.docker.faults(|faults| {
        for image in ["migrate:1", "dump:1", "warm:1"] {
            faults.exits.insert(image.to_owned(), (Duration::from_secs(2), 0));
        }
    });
    simulation.git.push_files("Ada", &[("shop/app.yaml", first.as_str())]);
    let mut simulation = simulation.begun();
    simulation.synced_with_tip().await;
    back_up(&folder, &file).unwrap();
    simulation.git.push_files("Ada", &[("shop/app.yaml", second.as_str())]);
    simulation.synced_with_tip().await;
    minutes(5).await;
    let created = |simulation: &Simulation, image: &str| {
        let count = |observed: &Observed| {
            observed.containers().filter(|container| container.config.image == image).count()
        };
        let transcript = simulation.docker.transcript();
        transcript.iter().filter(|entry| count(&entry.after) > count(&entry.before)).count()
    };
    let all =
        |simulation: &Simulation| ["migrate:1", "dump:1", "warm:1"].map(|image| created(simulation, image));
    assert_eq!(all(&simulation), [1, 2, 2], "{}", simulation.story());

    simulation.crash();
    let _state = begin_restored(&mut simulation, state, &folder, &file);
    minutes(5).await;
    assert_eq!(simulation.images(), ["web:2"], "{}", simulation.story());
    assert_eq!(all(&simulation), [1, 2, 2], "{}", simulation.story());
    assert!(simulation.store.is_restored(&app()).unwrap());
    simulation.git.down(false);
    simulation.synced_with_tip().await;
    minutes(5).await;
    assert_eq!(all(&simulation), [1, 2, 2], "{}", simulation.story());
    assert!(!simulation.store.is_restored(&app()).unwrap());
    // The next commit is applied as usual.
    simulation.git.push_files("Ada", &[("shop/app.yaml", third.as_str())]);
    simulation.synced_with_tip().await;
    assert_eq!(all(&simulation), [1, 3, 3], "{}", simulation.story());
}

/// The server of Git, or a VPN on the way to it, may be such an application.
#[tokio::test(start_paused = true)]
async fn restored_application_starts_without_git_on_request() {
    let directory = tempfile::tempdir().unwrap();
    let (folder, file) = (directory.path().join("state"), directory.path().join("backup.tar"));
    let state = StateDir::lock(&folder).unwrap();
    let mut simulation = prepared(&state);
    simulation.store.agent_id().unwrap();
    simulation.synced_with_tip().await;
    back_up(&folder, &file).unwrap();
    simulation.crash();
    simulation.hand(&UserAction::Stop { name: "shop-web-1".into() });
    let _state = begin_restored(&mut simulation, state, &folder, &file);
    minutes(5).await;
    assert_eq!(simulation.images(), [""; 0], "{}", simulation.story());
    let why = simulation.refusal(RequestKind::Resume).await;
    assert!(why.contains("`driftless rollback shop REVISION` start what the backup has"), "{why}");
    let back = Rollback { to: Some("1".to_owned()), reason: String::new(), until: Until::Manual };
    simulation.ask(RequestKind::Rollback(back)).await;
    minutes(1).await;
    assert_eq!(simulation.images(), ["web:1"], "{}", simulation.story());

    simulation.git.down(false);
    simulation.git.push(&compose("web:2"));
    minutes(5).await;
    simulation.ask(RequestKind::Resume).await;
    simulation.synced_with_tip().await;
    assert_eq!(simulation.images(), ["web:2"], "{}", simulation.story());
}
