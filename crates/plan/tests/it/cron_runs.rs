//! Runs of CronJobs that do not go on by themselves: what the engine refuses, and what hangs.

use std::time::Duration;

use driftless_model::{Attempt, ContentId, EventKind, Mount, MountSource, Stack, State, WorkloadName};
use driftless_plan::WaitReason;

use crate::cron::{Clock, MINUTE, manifest, stack};

/// A CronJob that mounts a secret.
fn with_secret(image: &str, value: &str) -> Stack {
    let mut git = stack(&manifest("*/10 * * * *", image, "  concurrencyPolicy: Forbid"));
    let report: WorkloadName = "report.prod".into();
    let source = MountSource::Secret(ContentId(value.to_owned()));
    let mount = Mount { target: "/key".to_owned(), source, read_only: true };
    git.workloads.get_mut(&report).unwrap().container.mounts.push(mount);
    git
}

#[test]
fn refused_run_goes_on_with_a_rotated_secret() {
    let mut clock = Clock::new(&manifest("*/10 * * * *", "long:1", "  concurrencyPolicy: Forbid"));
    clock.git = with_secret("long:1", "old");
    clock.round();
    clock.stage.tick(MINUTE * 10);
    clock.round();
    clock.stage.tick(Duration::from_secs(5));
    clock.round();
    // After a restart of the host, the older value is gone.
    let (finished, error) = (clock.stage.now, "bind source path does not exist");
    let run = clock.stage.world.observed.instances.values_mut().next().unwrap();
    assert!(run.is_running(), "{run:?}");
    run.state = State::Exited { code: 128, finished, out_of_memory: false, error: error.to_owned() };
    let failed = Attempt { count: 1, next: finished, error: error.to_owned() };
    clock.stage.record.failures.insert(run.name.clone(), failed);
    clock.git = with_secret("good:1", "new");
    for _ in 0..5 {
        clock.round();
        clock.stage.tick(Duration::from_secs(1));
    }
    let run = clock.stage.world.observed.instances.values().next().unwrap();
    let mounted: Vec<&MountSource> = run.config.mounts.iter().map(|mount| &mount.source).collect();
    assert_eq!(mounted, [&MountSource::Secret(ContentId("new".to_owned()))]);
    assert!(run.is_running() && run.config.image == "long:1", "it keeps the rest of its template: {run:?}");

    clock.stage.finishing.insert("long:1".to_owned());
    clock.until(MINUTE * 25);
    assert_eq!(clock.runs(), ["10", "20"]);
}

#[test]
fn times_that_a_hanging_run_skips_are_reported() {
    let mut clock = Clock::new(&manifest("*/10 * * * *", "long:1", "  concurrencyPolicy: Forbid"));
    clock.until(MINUTE * 15);
    let waits = |clock: &mut Clock| {
        let plan = clock.round();
        let skipped = plan.waits.iter().find(|wait| wait.is(WaitReason::RunSkipped));
        skipped.map(ToString::to_string)
    };
    assert_eq!(waits(&mut clock), None);
    clock.until(MINUTE * 35);
    let found = waits(&mut clock).unwrap();
    assert!(found.contains("was not run for") && found.contains("has not ended and runs since"), "{found}");
    let skipped = clock.told.iter().filter(|event| event.reason == "JobAlreadyActive");
    let kinds: Vec<EventKind> = skipped.map(|event| event.kind).collect();
    assert_eq!(kinds, [EventKind::Normal, EventKind::Warning]);

    clock.stage.finishing.insert("long:1".to_owned());
    clock.until(MINUTE * 36);
    assert_eq!(waits(&mut clock), None);
    clock.until(MINUTE * 37);
    assert_eq!(clock.runs(), ["10", "30"]);
}
