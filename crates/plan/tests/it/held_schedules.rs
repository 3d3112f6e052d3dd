//! CronJobs of a commit that is held: until their turn comes, those of the version reached last run.

use std::{collections::BTreeSet, time::Duration};

use driftless_files::{AppSpec, MemoryFiles};
use driftless_manifest::render;
use driftless_model::{Format, Stack};
use driftless_plan::{Plan, schedule, with_runs};

use crate::fixture::{Stage, manifests};

/// A database, and a job that runs each minute once the database of its version is ready.
fn version(number: u8) -> Stack {
    let text = format!(
        "services:
  db: {{image: 'db:{number}'}}
  backup: {{image: 'job:{number}', x-driftless: {{wave: 1, schedule: '* * * * *'}}}}
"
    );
    rendered(&text)
}

fn rendered(text: &str) -> Stack {
    let files = MemoryFiles::new([("compose.yaml", text)]);
    let spec = AppSpec { format: Format::Compose, ..manifests("", &["compose.yaml"]) };
    let found = render(&files, &spec);
    found.stack.unwrap_or_else(|| panic!("{:?}", found.findings))
}

fn stage() -> Stage {
    let mut stage = Stage::new(version(1));
    for image in ["db:1", "db:2", "job:1", "job:2"] {
        stage.world.observed.images.entry(image.to_owned()).or_default();
    }
    stage.finishing.extend(["job:1".to_owned(), "job:2".to_owned()]);
    stage
}

fn round(stage: &mut Stage, git: &Stack) -> Plan {
    stage.stack = with_runs(git, &stage.record).into_owned();
    let plan = stage.round();
    if let Some(stack) = &plan.due_runs {
        let now = stage.now;
        schedule(&mut stage.record, stack, now);
    }
    plan
}

/// The images of the runs that are there in the second half of so many minutes.
fn seen(stage: &mut Stage, git: &Stack, minutes: usize) -> BTreeSet<String> {
    let mut seen = BTreeSet::new();
    // The runs of the time before are not kept after the next three.
    for second in (0..minutes * 60).step_by(5) {
        round(stage, git);
        let is_late = second >= minutes * 30;
        let images = stage.world.observed.containers().map(|container| &container.config.image);
        seen.extend(images.filter(|image| is_late && image.starts_with("job")).cloned());
        stage.tick(Duration::from_secs(5));
    }
    seen
}

#[test]
fn cron_job_of_a_higher_wave_keeps_its_version() {
    let mut stage = stage();
    assert_eq!(seen(&mut stage, &version(1), 5), BTreeSet::from(["job:1".to_owned()]));
    stage.sick.insert("db:2".to_owned());
    assert_eq!(seen(&mut stage, &version(2), 10), BTreeSet::from(["job:1".to_owned()]));
    stage.sick.clear();
    assert_eq!(seen(&mut stage, &version(2), 10), BTreeSet::from(["job:2".to_owned()]));
}

#[test]
fn new_cron_job_of_a_higher_wave_waits_for_its_turn() {
    let mut stage = stage();
    stage.sick.insert("db:1".to_owned());
    for _ in 0..30 {
        round(&mut stage, &version(1));
        stage.tick(Duration::from_secs(5));
    }
    assert!(stage.record.crons.is_empty(), "{:?}", stage.record.crons);
    stage.sick.clear();
    assert_eq!(seen(&mut stage, &version(1), 5), BTreeSet::from(["job:1".to_owned()]));
}

#[test]
fn cron_job_runs_until_the_commit_that_drops_it_is_complete() {
    let mut stage = stage();
    assert_eq!(seen(&mut stage, &version(1), 5), BTreeSet::from(["job:1".to_owned()]));
    let without = rendered("services:\n  db: {image: 'db:2'}\n");
    stage.world.observed.images.remove("db:2");
    stage.world.registry = Some(BTreeSet::new());
    let before = stage.record.crons[&"backup".into()].last;
    assert_eq!(seen(&mut stage, &without, 5), BTreeSet::from(["job:1".to_owned()]));
    assert!(stage.record.crons[&"backup".into()].last > before, "{:?}", stage.record.crons);
    stage.world.registry = None;
    assert_eq!(seen(&mut stage, &without, 20), BTreeSet::new());
    assert!(stage.record.crons.is_empty());
}
