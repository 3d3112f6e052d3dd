//! Hooks and waves on the simulated engine: once for each attempt, whenever the agent ends, and before a removal.

use std::{collections::BTreeMap, time::Duration};

use driftless_agent::{RequestError, RequestKind, Rollback, Supposed};
use driftless_clock::Clock;
use driftless_model::{Application, ConditionStatus, Event, OnFailure, Outcome, Removal, Until};

use crate::{
    sample::NOON,
    simulation::{Simulation, app, minutes},
};

/// A web service of a version, and a hook of each phase. `dump` is the image of the hook before the sync.
fn shop(version: u8, dump: &str) -> String {
    format!(
        "services:
  web: {{image: 'web:{version}', restart: always, deploy: {{replicas: 2}}}}
  dump: {{image: '{dump}', x-driftless: {{hook: PreSync}}}}
  warm: {{image: 'warm:1', x-driftless: {{hook: PostSync}}}}
  tell: {{image: 'tell:1', x-driftless: {{hook: SyncFail}}}}
  save: {{image: 'save:1', x-driftless: {{hook: PreDelete}}}}
"
    )
}

fn prepared(compose: &str, on_failure: OnFailure) -> Simulation {
    let mut it = Simulation::prepared(compose, Clock::starting_at(NOON));
    it.settings.policy.on_failure = on_failure;
    it.settings.policy.progress_deadline = Some(Duration::from_mins(1));
    let good = ["dump:1", "warm:1", "tell:1", "save:1"];
    it.docker.faults(|faults| {
        faults.exits = good.map(|image| (image.to_owned(), (Duration::from_secs(2), 0))).into();
        for image in ["dump:bad", "save:bad"] {
            faults.exits.insert(image.to_owned(), (Duration::from_secs(2), 3));
            faults.outputs.insert(image.to_owned(), "no space left".to_owned());
        }
    });
    it
}

/// The number of containers of this image that were created, and of their starts.
fn runs(it: &Simulation, image: &str) -> (usize, usize) {
    let count = |observed: &driftless_model::Observed| {
        observed.containers().filter(|container| container.config.image == image).count()
    };
    let running = |observed: &driftless_model::Observed| {
        let is_running = |container: &&driftless_model::Instance| {
            container.config.image == image && container.is_running()
        };
        observed.containers().filter(is_running).count()
    };
    let transcript = it.docker.transcript();
    let created = transcript.iter().filter(|entry| count(&entry.after) > count(&entry.before)).count();
    let started = transcript.iter().filter(|entry| running(&entry.after) > running(&entry.before)).count();
    (created, started)
}

fn is_failed(application: &Application) -> bool {
    application
        .status
        .conditions
        .iter()
        .any(|it| it.kind == "CommitFailed" && it.status == ConditionStatus::True)
}

fn web_images(it: &Simulation) -> Vec<String> {
    it.images().into_iter().filter(|image| image.starts_with("web")).collect()
}

#[tokio::test(start_paused = true)]
async fn hooks_run_once_around_each_revision() {
    let it = prepared(&shop(1, "dump:1"), OnFailure::Pause).begun();
    it.synced_with_tip().await;
    assert_eq!((runs(&it, "dump:1"), runs(&it, "warm:1")), ((1, 1), (1, 1)), "{}", it.story());
    it.push(&shop(2, "dump:1")).await;
    it.synced_with_tip().await;
    assert_eq!((runs(&it, "dump:1"), runs(&it, "warm:1")), ((2, 2), (2, 2)), "{}", it.story());
    assert_eq!((runs(&it, "tell:1"), runs(&it, "save:1")), ((0, 0), (0, 0)));
    // The dump was over before the first instance was replaced, and the warm-up began after the last one.
    let story = it.docker.transcript();
    let first = |what: &str| story.iter().position(|entry| entry.what.contains(what));
    assert!(first("create shop-dump-2-1") < first("from web:2"), "{}", it.story());
    minutes(60).await;
    assert_eq!(runs(&it, "dump:1"), (2, 2), "{}", it.story());
    it.check(&BTreeMap::from([("web", 2)]));
}

#[tokio::test(start_paused = true)]
async fn post_sync_hooks_wait_for_the_end_of_a_pause() {
    let it = prepared(&shop(1, "dump:1"), OnFailure::Rollback).begun();
    it.synced_with_tip().await;
    it.ask(RequestKind::Pause("web".into())).await;
    it.push(&shop(2, "dump:1")).await;
    minutes(30).await;
    assert_eq!(web_images(&it), ["web:1", "web:1"], "{}", it.story());
    assert_eq!((runs(&it, "dump:1"), runs(&it, "warm:1")), ((2, 2), (1, 1)), "{}", it.story());
    it.ask(RequestKind::Unpause("web".into())).await;
    it.synced_with_tip().await;
    assert_eq!(web_images(&it), ["web:2", "web:2"], "{}", it.story());
    assert_eq!((runs(&it, "dump:1"), runs(&it, "warm:1")), ((2, 2), (2, 2)), "{}", it.story());
    it.check(&BTreeMap::from([("web", 2)]));
}

#[tokio::test(start_paused = true)]
async fn failed_hook_stops_a_sync_and_its_retry_runs_again() {
    let it = prepared(&shop(1, "dump:1"), OnFailure::Pause).begun();
    it.synced_with_tip().await;
    it.push(&shop(2, "dump:bad")).await;
    let failed = it.until("the hook has failed", is_failed).await;
    let message = &failed.status.conditions.iter().find(|it| it.kind == "CommitFailed").unwrap().message;
    assert!(message.contains("dump-2-1 failed") && message.contains("no space left"), "{message}");
    minutes(30).await;
    assert_eq!(web_images(&it), ["web:1", "web:1"], "{}", it.story());
    assert_eq!((runs(&it, "dump:bad"), runs(&it, "tell:1")), ((1, 1), (1, 1)), "{}", it.story());
    it.docker.faults(|faults| _ = faults.exits.insert("dump:bad".into(), (Duration::from_secs(2), 0)));
    it.ask(RequestKind::Retry).await;
    it.synced_with_tip().await;
    assert_eq!(web_images(&it), ["web:2", "web:2"], "{}", it.story());
    assert_eq!(runs(&it, "dump:bad"), (2, 2), "{}", it.story());
    it.check(&BTreeMap::from([("web", 2)]));
}

#[tokio::test(start_paused = true)]
async fn retry_that_was_cut_off_still_runs_the_hooks() {
    let mut it = prepared(&shop(1, "dump:1"), OnFailure::Pause).begun();
    it.synced_with_tip().await;
    it.push(&shop(2, "dump:bad")).await;
    it.until("the hook has failed", is_failed).await;
    minutes(5).await;
    it.docker.faults(|faults| _ = faults.exits.insert("dump:bad".into(), (Duration::from_secs(2), 0)));
    it.crash();
    minutes(1).await;
    // The agent ended after the request had changed the record, and before it changed the revision.
    let mut record = it.store.record(&app()).unwrap();
    assert!(record.failed.take().is_some());
    record.jobs.retain(|_, job| !job.has_failed());
    let hooks = record.hooks.as_mut().unwrap();
    (hooks.again, hooks.passed) = (true, false);
    it.store.save_record(&app(), &record).unwrap();
    it.begin();
    it.synced_with_tip().await;
    assert_eq!(web_images(&it), ["web:2", "web:2"], "{}", it.story());
    assert_eq!((runs(&it, "dump:bad"), runs(&it, "warm:1")), ((2, 2), (2, 2)), "{}", it.story());
    it.check(&BTreeMap::from([("web", 2)]));
}

#[tokio::test(start_paused = true)]
async fn failed_hook_is_retried_without_a_failed_commit() {
    let it = prepared(&shop(1, "dump:1"), OnFailure::None).begun();
    it.synced_with_tip().await;
    it.push(&shop(2, "dump:bad")).await;
    let has_failed = |found: &Application| {
        let outcome = found.status.operation.as_ref().and_then(|operation| operation.outcome.clone());
        matches!(outcome, Some(Outcome::Failed { .. }))
    };
    let failed = it.until("the hook has failed", has_failed).await;
    assert!(!is_failed(&failed));
    minutes(30).await;
    assert_eq!(web_images(&it), ["web:1", "web:1"], "{}", it.story());
    it.docker.faults(|faults| _ = faults.exits.insert("dump:bad".into(), (Duration::from_secs(2), 0)));
    it.ask(RequestKind::Retry).await;
    it.synced_with_tip().await;
    assert_eq!(web_images(&it), ["web:2", "web:2"], "{}", it.story());
    assert_eq!(runs(&it, "dump:bad"), (2, 2), "{}", it.story());
    it.check(&BTreeMap::from([("web", 2)]));
}

#[tokio::test(start_paused = true)]
async fn automatic_rollback_runs_no_hooks_but_the_one_for_failures() {
    let it = prepared(&shop(1, "dump:1"), OnFailure::Rollback).begun();
    it.synced_with_tip().await;
    let before = (runs(&it, "dump:1"), runs(&it, "warm:1"));
    it.docker.faults(|faults| faults.unhealthy = ["web:2".to_owned()].into());
    let checked = shop(2, "dump:1").replace("restart: always, ", "healthcheck: {test: [CMD, check]}, ");
    it.push(&checked).await;
    it.until("it is back", |found| {
        is_failed(found)
            && found.status.operation.as_ref().is_some_and(|it| it.outcome == Some(Outcome::Succeeded))
    })
    .await;
    minutes(30).await;
    assert_eq!(web_images(&it), ["web:1", "web:1"], "{}", it.story());
    assert_eq!(runs(&it, "tell:1"), (1, 1), "{}", it.story());
    assert_eq!(runs(&it, "dump:1"), (before.0.0 + 1, before.0.1 + 1), "only that of the failed commit");
    assert_eq!(runs(&it, "warm:1"), before.1, "{}", it.story());
}

#[tokio::test(start_paused = true)]
async fn hooks_run_once_although_the_agent_is_killed_at_any_step() {
    for steps in 1..22 {
        let mut it = prepared(&shop(1, "dump:1"), OnFailure::Pause).begun();
        it.synced_with_tip().await;
        it.docker.crash_after(steps);
        it.push(&shop(2, "dump:1")).await;
        minutes(2).await;
        it.crash();
        it.begin();
        it.synced_with_tip().await;
        minutes(10).await;
        let counted = (runs(&it, "dump:1"), runs(&it, "warm:1"));
        assert_eq!(counted, ((2, 2), (2, 2)), "after {steps} steps\n{}", it.story());
        assert_eq!(web_images(&it), ["web:2", "web:2"], "after {steps} steps\n{}", it.story());
        it.check(&BTreeMap::from([("web", 2)]));
    }
}

#[tokio::test(start_paused = true)]
async fn rollback_by_a_user_runs_the_hooks_of_its_revision() {
    let it = prepared(&shop(1, "dump:1"), OnFailure::Pause).begun();
    it.synced_with_tip().await;
    it.push(&shop(2, "dump:1")).await;
    it.synced_with_tip().await;
    let back = Rollback { to: Some("1".into()), reason: "slow".into(), until: Until::Manual };
    it.ask(RequestKind::Rollback(back)).await;
    minutes(2).await;
    assert_eq!(web_images(&it), ["web:1", "web:1"], "{}", it.story());
    assert_eq!(runs(&it, "dump:1"), (3, 3), "{}", it.story());
}

#[tokio::test(start_paused = true)]
async fn new_commit_does_not_wait_for_the_hooks_of_the_one_before() {
    let it = prepared(&shop(1, "dump:1"), OnFailure::Pause).begun();
    it.synced_with_tip().await;
    // This hook never ends.
    it.push(&shop(2, "dump:endless")).await;
    minutes(5).await;
    assert_eq!(web_images(&it), ["web:1", "web:1"], "{}", it.story());
    it.push(&shop(3, "dump:1")).await;
    it.synced_with_tip().await;
    assert_eq!(web_images(&it), ["web:3", "web:3"], "{}", it.story());
    assert!(!it.images().contains(&"dump:endless".to_owned()), "{}", it.story());
    // They never work at the same time on the same data.
    let is_dump = |container: &&driftless_model::Instance| {
        container.config.image.starts_with("dump:") && container.is_running()
    };
    let most =
        it.docker.transcript().iter().map(|entry| entry.after.containers().filter(is_dump).count()).max();
    assert_eq!(most, Some(1), "{}", it.story());
}

#[tokio::test(start_paused = true)]
async fn application_is_removed_after_its_hook_has_succeeded() {
    let mut idle = prepared(&shop(1, "dump:1").replace("save:1", "save:bad"), OnFailure::Pause);
    idle.settings.policy.prune = false;
    let it = idle.begun();
    it.synced_with_tip().await;
    it.git.push_files("Ada", &[("blog/compose.yaml", "services: {web: {image: 'blog:1'}}")]);
    minutes(3).await;
    it.ask(RequestKind::Remove(Removal::KeepVolumes)).await;
    minutes(5).await;
    assert_eq!(web_images(&it), ["web:1", "web:1"], "its hook failed, so it stays: {}", it.story());
    let status = it.handle().applications().get(&app()).unwrap().status.clone();
    assert!(status.message.contains("so shop is not removed"), "{}", status.message);
    assert!(status.message.contains("`--force`"), "{}", status.message);
    it.docker.faults(|faults| _ = faults.exits.insert("save:bad".into(), (Duration::from_secs(2), 0)));
    it.ask(RequestKind::Remove(Removal::KeepVolumes)).await;
    minutes(5).await;
    assert_eq!(runs(&it, "save:bad"), (2, 2), "{}", it.story());
    assert!(it.docker.observed(&app()).instances.is_empty(), "{}", it.story());
    assert!(it.handle().applications().get(&app()).is_none());
}

#[tokio::test(start_paused = true)]
async fn rollback_during_a_removal_is_refused() {
    let mut idle = prepared(&shop(1, "dump:1"), OnFailure::Pause);
    idle.settings.policy.prune = false;
    idle.docker.faults(|faults| _ = faults.exits.insert("save:1".into(), (Duration::from_mins(20), 0)));
    let it = idle.begun();
    it.synced_with_tip().await;
    it.push(&shop(2, "dump:1")).await;
    it.synced_with_tip().await;
    it.git.push_files("Ada", &[("blog/compose.yaml", "services: {web: {image: 'blog:1'}}")]);
    minutes(3).await;
    it.ask(RequestKind::Remove(Removal::WithVolumes)).await;
    minutes(1).await;
    let back = Rollback { to: None, reason: String::new(), until: Until::Manual };
    for kind in [RequestKind::Rollback(back), RequestKind::PlanAfter(Supposed::Rollback(None))] {
        let why = it.refusal(kind).await;
        assert!(why.contains("is being removed") && why.contains("`driftless suspend shop`"), "{why}");
    }
    assert_eq!(it.store.pin(&app()).unwrap(), None);
    // As the sentence says: a suspension stops the removal, and Git ends it.
    it.ask(RequestKind::Suspend).await;
    minutes(40).await;
    assert_eq!(runs(&it, "save:1"), (1, 1), "{}", it.story());
    assert_eq!(web_images(&it), ["web:2", "web:2"], "{}", it.story());
    it.push(&shop(2, "dump:1")).await;
    minutes(3).await;
    it.ask(RequestKind::Resume).await;
    it.synced_with_tip().await;
    assert_eq!(web_images(&it), ["web:2", "web:2"], "{}", it.story());
}

/// Removes the application from Git, and asks the agent to remove it. Its hook takes 20 minutes.
async fn leave(it: &Simulation) {
    it.docker.faults(|faults| _ = faults.exits.insert("save:1".into(), (Duration::from_mins(20), 0)));
    it.git.push_files("Ada", &[("blog/compose.yaml", "services: {web: {image: 'blog:1'}}")]);
    minutes(3).await;
    it.ask(RequestKind::Remove(Removal::KeepVolumes)).await;
    minutes(5).await;
    assert_eq!(runs(it, "save:1"), (1, 1), "{}", it.story());
}

#[tokio::test(start_paused = true)]
async fn removal_applies_no_commit_while_its_hooks_run() {
    let mut idle = prepared(&shop(1, "dump:1"), OnFailure::None);
    idle.settings.policy.prune = false;
    let it = idle.begun();
    it.synced_with_tip().await;
    it.push(&shop(2, "dump:endless")).await;
    minutes(2).await;
    leave(&it).await;
    assert_eq!(web_images(&it), ["web:1", "web:1"], "{}", it.story());
    assert!(!it.images().contains(&"dump:endless".to_owned()), "{}", it.story());
    // Git has it again: the commit gets another attempt, with all its hooks.
    it.docker.faults(|faults| _ = faults.exits.insert("dump:endless".into(), (Duration::from_secs(2), 0)));
    it.push(&shop(2, "dump:endless")).await;
    it.synced_with_tip().await;
    assert_eq!(web_images(&it), ["web:2", "web:2"], "{}", it.story());
    assert_eq!((runs(&it, "dump:endless"), runs(&it, "warm:1")), ((2, 2), (2, 2)), "{}", it.story());
    it.check(&BTreeMap::from([("web", 2)]));
}

#[tokio::test(start_paused = true)]
async fn failed_rollback_stays_failed_after_a_cancelled_removal() {
    let compose = |version: u8| {
        format!(
            "services:
  web: {{image: 'web:{version}', healthcheck: {{test: [CMD, check]}}, deploy: {{update_config: {{order: stop-first}}}}}}
  save: {{image: 'save:1', x-driftless: {{hook: PreDelete}}}}
"
        )
    };
    let mut idle = prepared(&compose(1), OnFailure::Rollback);
    idle.settings.policy.prune = false;
    let it = idle.begun();
    it.synced_with_tip().await;
    // The older version does not come up again either.
    it.docker.faults(|faults| faults.unhealthy = ["web:1".to_owned(), "web:2".to_owned()].into());
    it.push(&compose(2)).await;
    minutes(30).await;
    let failed = it.store.revisions(&app()).unwrap();
    let has_failed = matches!(failed[0].outcome, Outcome::Failed { .. });
    assert!(has_failed && failed[0].rollback_of == Some(1), "{failed:?}");
    leave(&it).await;
    it.push(&compose(2)).await;
    minutes(30).await;
    assert_eq!(it.store.revisions(&app()).unwrap(), failed, "{}", it.story());
}

#[tokio::test(start_paused = true)]
async fn failed_commit_stays_failed_after_a_cancelled_removal() {
    let mut idle = prepared(&shop(1, "dump:1"), OnFailure::Pause);
    idle.settings.policy.prune = false;
    let it = idle.begun();
    it.synced_with_tip().await;
    let with_more = format!("{}  more: {{image: 'more:1'}}\n", shop(2, "dump:bad"));
    it.push(&with_more).await;
    it.until("the hook has failed", is_failed).await;
    leave(&it).await;
    it.push(&with_more).await;
    minutes(30).await;
    assert_eq!(web_images(&it), ["web:1", "web:1"], "{}", it.story());
    assert_eq!((runs(&it, "dump:bad"), runs(&it, "more:1")), ((1, 1), (0, 0)), "{}", it.story());
    it.until("it is still failed", is_failed).await;
    it.docker.faults(|faults| _ = faults.exits.insert("dump:bad".into(), (Duration::from_secs(2), 0)));
    it.ask(RequestKind::Retry).await;
    it.synced_with_tip().await;
    assert_eq!(web_images(&it), ["web:2", "web:2"], "{}", it.story());
    assert_eq!(runs(&it, "dump:bad"), (2, 2), "{}", it.story());
    it.check(&BTreeMap::from([("web", 2)]));
}

#[tokio::test(start_paused = true)]
async fn removal_after_a_sync_repeats_no_hook_when_it_ends() {
    let mut idle = prepared(&shop(1, "dump:1"), OnFailure::Pause);
    idle.settings.policy.prune = false;
    let it = idle.begun();
    it.synced_with_tip().await;
    leave(&it).await;
    it.push(&shop(1, "dump:1")).await;
    minutes(30).await;
    it.synced_with_tip().await;
    assert_eq!((runs(&it, "dump:1"), runs(&it, "warm:1")), ((1, 1), (1, 1)), "{}", it.story());
}

#[tokio::test(start_paused = true)]
async fn forced_removal_runs_no_hook() {
    let mut idle = prepared(&shop(1, "dump:1").replace("save:1", "save:bad"), OnFailure::Pause);
    idle.settings.policy.prune = false;
    let it = idle.begun();
    it.synced_with_tip().await;
    let refused = it.handle().request(app(), RequestKind::ForceRemove(Removal::KeepVolumes)).await;
    assert!(matches!(refused, Err(RequestError::Refused(why)) if why.contains("is in Git")));
    it.git.push_files("Ada", &[("blog/compose.yaml", "services: {web: {image: 'blog:1'}}")]);
    minutes(3).await;
    it.ask(RequestKind::ForceRemove(Removal::KeepVolumes)).await;
    minutes(5).await;
    assert_eq!(runs(&it, "save:bad"), (0, 0), "{}", it.story());
    assert!(it.docker.observed(&app()).instances.is_empty(), "{}", it.story());
    let said = it.store.events(0, 1000, None).unwrap();
    let said = said.iter().find(|event| event.reason == "RemovalRequested").unwrap();
    assert!(said.message.contains("without its PreDelete hooks (save)"), "{}", said.message);
}

#[tokio::test(start_paused = true)]
async fn service_with_a_schedule_runs_when_it_is_due() {
    let compose = "services:
  web: {image: 'web:1'}
  backup: {image: 'dump:1', x-driftless: {schedule: {cron: '30 * * * *', successful-history: 1}}}
";
    let it = prepared(compose, OnFailure::Pause).begun();
    it.synced_with_tip().await;
    assert_eq!(runs(&it, "dump:1"), (0, 0));
    minutes(31).await;
    assert_eq!(runs(&it, "dump:1"), (1, 1), "{}", it.story());
    minutes(60).await;
    assert_eq!(runs(&it, "dump:1"), (2, 2), "{}", it.story());
    let observed = it.docker.observed(&app());
    let kept = observed.containers().filter(|container| container.config.image == "dump:1").count();
    assert_eq!(kept, 1, "{}", it.story());
}

/// With `Forbid` and without a deadline, it would be the last one.
#[tokio::test(start_paused = true)]
async fn scheduled_run_that_hangs_ends_at_its_deadline() {
    let compose = "services:
  web: {image: 'web:1'}
  backup: {image: 'hang:1', x-driftless: {schedule: {cron: '30 * * * *', concurrency: Forbid, deadline: 70m}}}
";
    let it = prepared(compose, OnFailure::Pause).begun();
    it.synced_with_tip().await;
    let is_running = || {
        let observed = it.docker.observed(&app());
        observed.containers().any(|found| found.config.image == "hang:1" && found.is_running())
    };
    minutes(95).await;
    assert!(is_running() && runs(&it, "hang:1") == (1, 1), "{}", it.story());
    // The time that it has made its schedule skip is made up for at once.
    minutes(8).await;
    assert!(is_running() && runs(&it, "hang:1") == (2, 2), "{}", it.story());
    let events = it.store.newest_events(1000, Some(&app())).unwrap();
    let is_end =
        |event: &&Event| event.reason == "Stopped" && event.message.contains("longer than its deadline");
    let ended = events.iter().filter(is_end);
    assert_eq!(ended.count(), 1, "{events:#?}");
    let observed = it.docker.observed(&app());
    let all = observed.containers().filter(|found| found.config.image == "hang:1" && found.is_running());
    assert_eq!(all.count(), 1, "{}", it.story());
}

/// It would run on the data that the hook of its commit has not migrated.
#[tokio::test(start_paused = true)]
async fn schedule_of_a_commit_that_waits_is_not_in_force() {
    let version = |dump: &str, backup: &str| {
        format!(
            "services:
  dump: {{image: '{dump}', x-driftless: {{hook: PreSync}}}}
  web: {{image: 'web:1'}}
{backup}"
        )
    };
    let backup =
        |image: &str| format!("  backup: {{image: '{image}', x-driftless: {{schedule: '30 * * * *'}}}}\n");
    let it = prepared(&version("dump:1", &backup("tell:1")), OnFailure::Pause).begun();
    it.synced_with_tip().await;
    let new = format!(
        "{}  report: {{image: 'warm:1', x-driftless: {{schedule: '40 * * * *'}}}}\n",
        backup("save:1")
    );
    it.push(&version("dump:bad", &new)).await;
    it.until("the hook has failed", is_failed).await;
    minutes(125).await;
    let now = || [runs(&it, "tell:1").0, runs(&it, "save:1").0, runs(&it, "warm:1").0];
    assert_eq!(now(), [2, 0, 0], "{}", it.story());
    it.docker.faults(|faults| _ = faults.exits.insert("dump:bad".into(), (Duration::from_secs(2), 0)));
    it.ask(RequestKind::Retry).await;
    it.synced_with_tip().await;
    minutes(60).await;
    let [before, backups, reports] = now();
    assert!(before == 2 && backups == 1 && reports >= 1, "{}", it.story());
}

#[tokio::test(start_paused = true)]
async fn schedule_that_comes_back_does_not_repeat_its_runs() {
    let without = "services:\n  web: {image: 'web:1'}\n";
    let with = format!("{without}  backup: {{image: 'dump:1', x-driftless: {{schedule: '30 * * * *'}}}}\n");
    let mut it = prepared(without, OnFailure::Pause);
    it.settings.policy.max_prune_percent = 100;
    let it = it.begun();
    it.synced_with_tip().await;
    it.push(&with).await;
    it.synced_with_tip().await;
    minutes(95).await;
    assert_eq!(runs(&it, "dump:1"), (2, 2), "{}", it.story());
    let kept = |it: &Simulation| {
        let observed = it.docker.observed(&app());
        observed.containers().filter(|container| container.config.image == "dump:1").count()
    };
    assert_eq!(kept(&it), 2, "{}", it.story());

    let back = Rollback { to: Some("1".to_owned()), reason: String::new(), until: Until::Manual };
    it.ask(RequestKind::Rollback(back)).await;
    minutes(5).await;
    assert_eq!(kept(&it), 0, "{}", it.story());
    it.ask(RequestKind::Resume).await;
    minutes(5).await;
    it.synced_with_tip().await;
    assert_eq!(runs(&it, "dump:1"), (2, 2), "after the rollback: {}", it.story());

    it.push(without).await;
    minutes(2).await;
    it.push(&with).await;
    minutes(2).await;
    it.synced_with_tip().await;
    assert_eq!(runs(&it, "dump:1"), (2, 2), "after the revert: {}", it.story());
    minutes(60).await;
    assert_eq!(runs(&it, "dump:1"), (3, 3), "{}", it.story());
}

/// A web service of a version, its hook before the sync, and a job with a schedule.
fn scheduled(version: u8, dump: &str) -> String {
    format!(
        "services:
  web: {{image: 'web:{version}'}}
  dump: {{image: '{dump}', x-driftless: {{hook: PreSync}}}}
  backup: {{image: 'job:{version}', x-driftless: {{schedule: '0 * * * *'}}}}
"
    )
}

/// Its job has run once.
async fn scheduled_once() -> Simulation {
    let it = prepared(&scheduled(1, "dump:1"), OnFailure::Pause);
    it.docker.faults(|faults| {
        for image in ["job:1", "job:2"] {
            faults.exits.insert(image.to_owned(), (Duration::from_secs(2), 0));
        }
    });
    let it = it.begun();
    it.synced_with_tip().await;
    minutes(61).await;
    assert_eq!(runs(&it, "job:1"), (1, 1), "{}", it.story());
    it
}

#[tokio::test(start_paused = true)]
async fn schedule_stays_that_of_the_version_in_force() {
    let it = scheduled_once().await;
    it.push(&scheduled(2, "dump:bad")).await;
    it.until("the hook has failed", is_failed).await;
    minutes(120).await;
    assert_eq!((runs(&it, "job:1"), runs(&it, "job:2")), ((3, 3), (0, 0)), "{}", it.story());
    it.push(&scheduled(2, "dump:1")).await;
    it.synced_with_tip().await;
    minutes(60).await;
    assert_eq!((runs(&it, "job:1"), runs(&it, "job:2")), ((3, 3), (1, 1)), "{}", it.story());
}

#[tokio::test(start_paused = true)]
async fn schedule_goes_on_until_its_removal_is_applied() {
    let it = scheduled_once().await;
    let without = |dump: &str| {
        let with = scheduled(2, dump);
        with.split("  backup").next().unwrap().to_owned()
    };
    it.push(&without("dump:bad")).await;
    it.until("the hook has failed", is_failed).await;
    minutes(120).await;
    assert_eq!(runs(&it, "job:1"), (3, 3), "{}", it.story());
    it.push(&without("dump:1")).await;
    it.synced_with_tip().await;
    minutes(120).await;
    assert_eq!(runs(&it, "job:1"), (3, 3), "{}", it.story());
}
