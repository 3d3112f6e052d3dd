//! CronJobs, over days that take milliseconds: what is begun when, what is kept, and what is never done twice.

use std::{sync::Arc, time::Duration};

use driftless_files::{AppSpec, MemoryFiles, Rendered};
use driftless_manifest::render;
use driftless_model::{
    Attempt, ContainerId, Format, HealthStatus, JobOutcome, Peer, Schedule, Severity, Stack, StackHash,
    State, SyncStatus, Timestamp, WorkloadName,
};
use driftless_plan::{
    Action, Creation, CronEvent, Plan, Step, WaitReason, leave_out_ended_runs, schedule, with_runs,
    without_runs,
};
use proptest::prelude::*;

use crate::{
    fixture::{Stage, manifests},
    jobs::exit,
};

fn rendered(text: &str) -> Rendered {
    let files = MemoryFiles::new([("cron.yaml", text)]);
    let spec = manifests("", &["cron.yaml"]);
    render(&files, &spec)
}

pub(crate) fn manifest(schedule: &str, image: &str, more: &str) -> String {
    format!(
        "apiVersion: batch/v1
kind: CronJob
metadata: {{name: report, namespace: prod}}
spec:
  schedule: \"{schedule}\"
{more}
  jobTemplate:
    spec:
      backoffLimit: 0
      template:
        spec:
          restartPolicy: Never
          containers: [{{name: report, image: \"{image}\"}}]
"
    )
}

pub(crate) fn stack(text: &str) -> Stack {
    let Rendered { stack, findings, .. } = rendered(text);
    stack.unwrap_or_else(|| panic!("{findings:?}"))
}

/// A stage with a stack that contains the started runs.
pub(crate) struct Clock {
    pub(crate) git: Stack,
    pub(crate) stage: Stage,
    pub(crate) told: Vec<CronEvent>,
}

impl Clock {
    pub(crate) fn new(text: &str) -> Self {
        let git = stack(text);
        let mut stage = Stage::new(git.clone());
        for image in ["good:1", "good:2", "bad:1", "long:1"] {
            stage.world.observed.images.entry(image.to_owned()).or_default();
        }
        stage.finishing.extend(["good:1".to_owned(), "good:2".to_owned()]);
        stage.crashing.insert("bad:1".to_owned());
        Self { git, stage, told: Vec::new() }
    }

    pub(crate) fn round(&mut self) -> Plan {
        self.begin_due();
        self.stage.round()
    }

    fn begin_due(&mut self) {
        let now = self.stage.now;
        self.told.extend(schedule(&mut self.stage.record, &self.git, now));
        self.stage.stack = with_runs(&self.git, &self.stage.record).into_owned();
    }

    /// Everything that is made and removed until then, in minutes since noon. Time passes as the plans say.
    pub(crate) fn until(&mut self, end: Duration) -> Vec<String> {
        let end = crate::fixture::NOON.after(end);
        let mut all = Vec::new();
        while self.stage.now < end {
            let mut plan = self.round();
            let mut rounds = 0;
            while !plan.steps.is_empty() && rounds < 10 {
                all.extend(self.told_of(&plan));
                self.stage.tick(Duration::from_secs(1));
                plan = self.round();
                rounds += 1;
            }
            assert!(plan.drifts.is_empty(), "what is begun and forgotten is no drift: {plan}");
            let next = plan.look_again.unwrap_or(end).min(end);
            let pause = next.since(self.stage.now).max(Duration::from_secs(1));
            self.stage.tick(pause);
        }
        all
    }

    fn told_of(&self, plan: &Plan) -> Vec<String> {
        let minutes = self.stage.now.since(crate::fixture::NOON).as_secs() / 60;
        let of = |action: &Action| match action {
            Action::CreateInstance(it) => {
                Some(format!("{minutes}m +{}", short(it.instance.workload.as_str())))
            }
            Action::RemoveInstance { .. } => Some(format!("{minutes}m -")),
            _ => None,
        };
        plan.steps.iter().filter_map(|it| of(&it.action)).collect()
    }

    pub(crate) fn reasons(&mut self) -> Vec<&'static str> {
        std::mem::take(&mut self.told).iter().map(|it| it.reason).collect()
    }

    pub(crate) fn runs(&self) -> Vec<String> {
        let all = self.stage.world.observed.instances.values();
        let mut all: Vec<_> = all.map(|it| short(it.instance.workload.as_str())).collect();
        all.sort();
        all
    }

    fn health(&mut self) -> (HealthStatus, String) {
        let plan = self.round();
        let all = self.stage.assess(&plan);
        (all.health, all.workloads[&"report.prod".into()].reason.clone())
    }
}

/// A run by its minute after noon.
fn short(name: &str) -> String {
    let minute: u64 = name.trim_start_matches("report-").trim_end_matches(".prod").parse().unwrap();
    (minute - crate::fixture::NOON.0 / 60_000).to_string()
}

const HOUR: Duration = Duration::from_secs(3600);
pub(crate) const MINUTE: Duration = Duration::from_secs(60);

#[test]
fn each_time_has_one_run_and_the_last_ones_are_kept() {
    let mut clock = Clock::new(&manifest("*/10 * * * *", "good:1", ""));
    let done = clock.until(MINUTE * 65);
    assert_eq!(
        done,
        ["10m +10", "20m +20", "30m +30", "40m +40", "40m -", "50m +50", "50m -", "60m +60", "60m -"]
    );
    assert_eq!(clock.runs(), ["40", "50", "60"]);
    assert_eq!(clock.health(), (HealthStatus::Healthy, String::new()));
    let record = &clock.stage.record.crons[&"report.prod".into()];
    assert_eq!(record.last, Some(crate::fixture::NOON.after(HOUR)));
    assert!(record.last_success >= record.last && record.runs.len() == 3);
    let object = &clock.stage.stack.inventory.workloads[clock.stage.record.jobs.keys().last().unwrap()];
    assert!(object.to_string().starts_with("Job prod/report-29"), "{object}");

    // Another template is for the next run; what was begun with the old one is left as it is.
    let before: Vec<_> = clock.stage.world.observed.instances.keys().cloned().collect();
    clock.git = stack(&manifest("*/10 * * * *", "good:2", ""));
    assert_eq!(clock.until(MINUTE * 69), [""; 0]);
    assert!(before.iter().all(|it| clock.stage.world.observed.instances.contains_key(it)));
    assert_eq!(clock.until(MINUTE * 71), ["70m +70", "70m -"]);
    // Without it, everything of it goes.
    clock.git.workloads.clear();
    clock.round();
    assert_eq!(clock.runs(), [""; 0]);
}

#[test]
fn anonymous_volumes_are_removed_with_a_run() {
    let mut clock = Clock::new(&manifest("*/10 * * * *", "good:1", ""));
    let mut removals = Vec::new();
    while clock.stage.now < crate::fixture::NOON.after(MINUTE * 45) {
        let plan = clock.round();
        removals.extend(plan.steps.iter().filter_map(|step| match &step.action {
            Action::RemoveInstance { container: _, with_volumes } => Some(*with_volumes),
            _ => None,
        }));
        clock.stage.tick(Duration::from_secs(10));
    }
    assert_eq!(removals, [true], "the first of four runs is not kept");
}

#[test]
fn run_of_a_cron_job_is_no_difference_from_git() {
    let mut clock = Clock::new(&manifest("*/10 * * * *", "good:1", "  successfulJobsHistoryLimit: 1"));
    clock.until(MINUTE);
    let mut changing = 0;
    while clock.stage.now < crate::fixture::NOON.after(MINUTE * 35) {
        clock.begin_due();
        let plan = clock.stage.round_cut_short(0, |_| 0);
        let all = clock.stage.assess(&plan);
        let found = (all.sync, all.health, all.message.as_str());
        assert_eq!(found, (SyncStatus::Synced, HealthStatus::Healthy, ""), "{plan}");
        changing += usize::from(!plan.steps.is_empty());
        clock.round();
        clock.stage.tick(Duration::from_secs(5));
    }
    assert!(changing >= 3, "{changing}");
    // Without the CronJob, its runs are one.
    clock.git.workloads.clear();
    clock.begin_due();
    let plan = clock.stage.round_cut_short(0, |_| 0);
    assert_eq!(clock.stage.assess(&plan).sync, SyncStatus::OutOfSync, "{plan}");
}

/// Two agents with one CronJob give their runs the same names.
#[test]
fn run_of_another_agent_is_not_reported() {
    let mut clock = Clock::new(&manifest("*/10 * * * *", "long:1", ""));
    clock.until(MINUTE * 11);
    let instances = &mut clock.stage.world.observed.instances;
    let mut theirs = instances.values().next().unwrap().clone();
    assert!(theirs.is_running(), "{theirs:?}");
    (theirs.id, theirs.name) = (ContainerId("f".repeat(64)), "theirs".to_owned());
    theirs.agent = "0123456789abcdef".into();
    instances.insert(theirs.id.clone(), theirs);
    let plan = clock.round();
    assert!(plan.waits.iter().all(|wait| !wait.is(WaitReason::OfAnotherAgent)), "{plan}");
}

#[test]
fn nightly_run_is_skipped_only_when_clocks_go_forward() {
    let text = manifest("30 2 * * *", "good:1", "  timeZone: Europe/Berlin");
    let mut clock = Clock::new(&text);
    let made = clock.until(HOUR * 24 * 365).into_iter().filter(|it| it.contains('+')).count();
    // The night of 29 March has none, that of 25 October has two.
    assert_eq!(made, 365);
}

#[test]
fn changed_schedule_has_missed_no_time_before() {
    // It has run at 12:10, and the new time is 12:20.
    let mut clock = Clock::new(&manifest("10 * * * *", "good:1", ""));
    assert_eq!(clock.until(MINUTE * 30), ["10m +10"]);
    clock.git = stack(&manifest("20 * * * *", "good:1", ""));
    assert_eq!(clock.until(MINUTE * 81), ["80m +80"]);

    // 9:00 in New York was three hours ago.
    let mut clock = Clock::new(&manifest("0 9 * * *", "good:1", ""));
    assert_eq!(clock.until(HOUR * 5), [""; 0]);
    clock.git = stack(&manifest("0 9 * * *", "good:1", "  timeZone: America/New_York"));
    assert_eq!(clock.until(HOUR * 6), [""; 0]);
    // The next one counts as missed.
    clock.stage.tick(HOUR * 24);
    assert_eq!(clock.until(HOUR * 30 + MINUTE), ["1800m +1560"]);

    // An older agent has recorded no schedule.
    let mut clock = Clock::new(&manifest("10 * * * *", "good:1", ""));
    clock.until(MINUTE * 30);
    for known in clock.stage.record.crons.values_mut() {
        known.schedule = None;
    }
    clock.stage.tick(HOUR);
    assert_eq!(clock.until(HOUR * 2), ["90m +70"]);
}

#[test]
fn concurrency_policy_allows_forbids_or_replaces_runs() {
    let with = |policy: &str| {
        Clock::new(&manifest("* * * * *", "long:1", &format!("  concurrencyPolicy: {policy}")))
    };
    let mut allow = with("Allow");
    assert_eq!(allow.until(MINUTE * 3 + MINUTE / 2), ["1m +1", "2m +2", "3m +3"]);
    assert_eq!(allow.health().0, HealthStatus::Healthy);

    let mut replace = with("Replace");
    let done = replace.until(MINUTE * 3 + MINUTE / 2);
    assert_eq!(done, ["1m +1", "2m -", "2m +2", "3m -", "3m +3"]);

    // At no moment do two of them run, also if the steps of a plan are performed in another order.
    let mut replace = with("Replace");
    let mut seen = 0;
    for _ in 0..40 {
        replace.begin_due();
        for _ in 0..9 {
            replace.stage.round_cut_short(1, |ready| ready - 1);
            let all = replace.stage.world.observed.instances.values();
            let running = all.filter(|instance| instance.is_running()).count();
            assert!(running <= 1, "{:?}", replace.runs());
            seen += running;
        }
        replace.stage.tick(MINUTE / 4);
    }
    assert!(seen > 0 && replace.runs() == ["9"], "{:?}", replace.runs());

    let mut forbid = with("Forbid");
    assert_eq!(forbid.until(MINUTE * 5 + MINUTE / 2), ["1m +1"]);
    let reasons = forbid.reasons();
    assert_eq!(reasons.iter().filter(|it| **it == "JobAlreadyActive").count(), 4, "{reasons:?}");
    // When it has ended, what was missed last is made up for.
    for it in forbid.stage.world.observed.instances.values_mut() {
        let finished = forbid.stage.now;
        it.state = State::Exited { code: 0, finished, out_of_memory: false, error: String::new() };
    }
    assert_eq!(forbid.until(MINUTE * 5 + MINUTE * 3 / 4), ["5m +5"]);
}

#[test]
fn last_missed_run_starts_before_its_deadline() {
    let mut clock = Clock::new(&manifest("*/10 * * * *", "good:1", ""));
    clock.until(MINUTE * 15);
    clock.reasons();
    // The agent is away for three hours.
    clock.stage.tick(HOUR * 3);
    assert_eq!(clock.until(MINUTE * 196), ["195m +190"]);
    assert_eq!(clock.reasons(), ["SuccessfulCreate"]);
    clock.stage.tick(HOUR * 24);
    clock.until(clock.stage.now.since(crate::fixture::NOON) + MINUTE);
    assert_eq!(clock.reasons(), ["TooManyMissedTimes", "SuccessfulCreate"]);

    let mut late = Clock::new(&manifest("0 * * * *", "good:1", "  startingDeadlineSeconds: 60"));
    late.until(MINUTE * 61);
    late.reasons();
    late.stage.tick(HOUR * 2 + MINUTE * 5);
    assert_eq!(late.until(MINUTE * 239), [""; 0], "it was due six minutes ago");
    assert_eq!(late.reasons(), ["MissSchedule"]);
    assert_eq!(late.until(MINUTE * 241), ["240m +240"]);
}

#[test]
fn clock_that_is_behind_for_a_moment_begins_no_run() {
    // The clock of a board without a battery, before it asks a time server.
    let boot = |clock: &mut Clock, at: Timestamp| {
        clock.reasons();
        let right = std::mem::replace(&mut clock.stage.now, at);
        clock.round();
        clock.round();
        clock.stage.now = right;
    };
    let night = crate::fixture::NOON.after(HOUR * 14);
    for at in [Timestamp(10_000), crate::fixture::NOON.before(HOUR * 24 * 90)] {
        // It has never run, and its time of this month is over.
        let mut unused = Clock::new(&manifest("0 3 1 * *", "good:1", ""));
        unused.until(MINUTE);
        boot(&mut unused, at);
        assert_eq!(unused.until(HOUR), [""; 0], "{at}");
        assert_eq!(unused.reasons(), [""; 0], "{at}");
        // No run is kept.
        let mut nightly = Clock::new(&manifest("0 2 * * *", "good:1", "  successfulJobsHistoryLimit: 0"));
        nightly.until(HOUR * 14 + MINUTE * 10);
        assert_eq!(nightly.stage.record.crons[&"report.prod".into()].last, Some(night));
        boot(&mut nightly, at);
        assert_eq!(nightly.until(HOUR * 15), [""; 0], "{at}");
        assert_eq!(nightly.reasons(), [""; 0], "{at}");
        let known = &nightly.stage.record.crons[&"report.prod".into()];
        assert_eq!((known.last, known.floor), (Some(night), None));
        // The next one is due as ever.
        assert_eq!(nightly.until(HOUR * 38 + MINUTE), ["2280m +2280", "2280m -"]);
    }
}

#[test]
fn runs_go_on_after_the_clock_was_set_back() {
    let mut clock = Clock::new(&manifest("*/10 * * * *", "good:1", "  successfulJobsHistoryLimit: 0"));
    clock.until(HOUR * 5);
    clock.stage.now = crate::fixture::NOON.after(HOUR + MINUTE);
    assert_eq!(clock.until(HOUR + MINUTE * 21), ["70m +70", "70m -", "80m +80", "80m -"]);
}

#[test]
fn suspended_cron_job_starts_no_run_and_failures_are_shown() {
    let mut clock = Clock::new(&manifest("* * * * *", "good:1", "  suspend: true"));
    assert_eq!(clock.until(MINUTE * 10), [""; 0]);

    let mut bad = Clock::new(&manifest("*/10 * * * *", "bad:1", ""));
    bad.until(MINUTE * 35);
    assert_eq!(bad.runs(), ["30"], "one that failed is kept");
    assert_eq!(bad.health(), (HealthStatus::Degraded, "LastRunFailed".to_owned()));
    assert!(bad.round().is_settled(), "nobody waits for it");
    bad.git = stack(&manifest("*/10 * * * *", "good:1", ""));
    bad.until(MINUTE * 45);
    assert_eq!(bad.health().0, HealthStatus::Healthy);
}

#[test]
fn a_record_that_was_lost_with_the_agent_begins_no_minute_twice() {
    let mut clock = Clock::new(&manifest("* * * * *", "good:1", "  successfulJobsHistoryLimit: 50"));
    let mut made = Vec::new();
    for _ in 0..30 {
        let before = clock.stage.record.clone();
        let plan = clock.round();
        made.extend(clock.told_of(&plan));
        // It is killed after it has acted, and before it has written anything down.
        clock.stage.record = before;
        clock.stage.tick(Duration::from_secs(10));
        let plan = clock.round();
        made.extend(clock.told_of(&plan));
        clock.stage.tick(Duration::from_secs(10));
    }
    let mut once = made.clone();
    once.dedup();
    assert_eq!(made, once);
    assert_eq!(made.len(), 9, "{made:?}");
}

#[test]
fn run_under_way_outlives_a_lost_record() {
    let forbid = manifest("*/10 * * * *", "long:1", "  concurrencyPolicy: Forbid");
    let mut clock = Clock::new(&forbid);
    assert_eq!(clock.until(MINUTE * 11), ["10m +10"]);
    clock.stage.record = Default::default();
    // The next one waits for it, as for any other that is not known any more.
    assert_eq!(clock.until(MINUTE * 25), [""; 0]);
    let plan = clock.round();
    assert!(plan.waits.iter().any(|wait| wait.is(WaitReason::ForgottenRun)), "{plan}");
    clock.stage.finishing.insert("long:1".to_owned());
    clock.stage.tick(Duration::from_secs(1));
    let done = clock.until(MINUTE * 27);
    assert!(done.contains(&"25m -".to_owned()) && done.contains(&"25m +20".to_owned()), "{done:?}");

    let mut replace = Clock::new(&manifest("*/10 * * * *", "long:1", "  concurrencyPolicy: Replace"));
    assert_eq!(replace.until(MINUTE * 11), ["10m +10"]);
    replace.stage.record = Default::default();
    assert_eq!(replace.until(MINUTE * 25), ["20m -", "20m +20"]);

    // They may run side by side.
    let mut allow = Clock::new(&manifest("*/10 * * * *", "long:1", ""));
    assert_eq!(allow.until(MINUTE * 11), ["10m +10"]);
    allow.stage.record = Default::default();
    assert_eq!(allow.until(MINUTE * 25), ["20m +20"]);
    assert_eq!(allow.runs(), ["10", "20"]);

    // Its time ends as that of any other.
    let limited = forbid.replace("backoffLimit: 0", "backoffLimit: 0\n      activeDeadlineSeconds: 900");
    let mut clock = Clock::new(&limited);
    assert_eq!(clock.until(MINUTE * 11), ["10m +10"]);
    clock.stage.record = Default::default();
    assert_eq!(clock.until(MINUTE * 24), [""; 0]);
    let done = clock.until(MINUTE * 27);
    assert!(done.contains(&"25m -".to_owned()) && done.contains(&"25m +20".to_owned()), "{done:?}");
}

#[test]
fn ended_runs_are_left_out_without_a_record() {
    let left = |image: &str| {
        let mut clock = Clock::new(&manifest("*/10 * * * *", image, ""));
        clock.until(MINUTE * 15);
        assert_eq!(clock.runs(), ["10"]);
        let mut observed = clock.stage.world.observed.clone();
        leave_out_ended_runs(&mut observed, &clock.git);
        observed.instances.len()
    };
    assert_eq!(left("good:1"), 0);
    assert_eq!(left("long:1"), 1, "it works");
}

#[test]
fn unsupported_cron_job_fields_are_reported_at_their_place() {
    let told = |text: &str| -> Vec<String> {
        let findings = rendered(text).findings.into_iter().filter(|it| it.severity == Severity::Error);
        findings
            .map(|it| format!("{}:{}:{} {}", it.location.line, it.location.column, it.path, it.message))
            .collect()
    };
    assert_eq!(
        told(&manifest("61 * * * *", "a:1", "")),
        ["5:13:spec.schedule `61` is not a minute: it is from 0 to 59"]
    );
    let zone = told(&manifest("@daily", "a:1", "  timeZone: Moon/Base"));
    assert!(zone[0].starts_with("6:13:spec.timeZone `Moon/Base` is not a time zone"), "{zone:?}");
    assert!(told(&manifest("CRON_TZ=UTC 0 0 * * *", "a:1", ""))[0].contains("in `timeZone`"));
    assert_eq!(told(&manifest("@daily", "a:1", "  concurrencyPolicy: Sometimes")).len(), 1);
    let many = manifest("@daily", "a:1", "").replace("backoffLimit: 0", "completions: 2");
    assert!(told(&many)[0].contains("other than 1 is not supported in a CronJob yet"), "{:?}", told(&many));
    let long = manifest("@daily", "a:1", "").replace("name: report,", &format!("name: {},", "a".repeat(53)));
    assert!(told(&long)[0].contains("at most 52 characters"));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn every_text_is_a_schedule_or_an_error(text in "[-0-9*/,? a-z@=]{0,24}") {
        if let Err(error) = Schedule::parse(&text, None) {
            prop_assert!(!error.is_empty());
        }
    }

    /// Looked for minute by minute, the next time is the same.
    #[test]
    fn the_next_time_is_the_first_that_suits(
        minute in 0_u64..60, hour in 0_u64..24, day in 1_u64..29, begin in 0_u64..(3 * 366 * 24 * 60),
    ) {
        let text = format!("{minute} {hour} {day} * *");
        let parsed = Schedule::parse(&text, None).unwrap();
        let begin = Timestamp(1_700_000_000_000 / 60_000 * 60_000 + begin * 60_000);
        let next = parsed.next(begin).unwrap();
        prop_assert!(next > begin && next.since(begin) <= Duration::from_secs(32 * 24 * 3600));
        let printed = next.to_string();
        prop_assert!(printed.ends_with(&format!("-{day:02}T{hour:02}:{minute:02}:00.000Z")), "{printed}");
        prop_assert_eq!(parsed.missed(begin, next, 10), Some((next, 1)));
        prop_assert_eq!(parsed.missed(begin, Timestamp(next.0 - 1), 10), None);
    }
}

#[test]
fn later_success_clears_a_failed_cron_run() {
    let none_kept = "  successfulJobsHistoryLimit: 0";
    let mut clock = Clock::new(&manifest("*/10 * * * *", "bad:1", none_kept));
    clock.until(MINUTE * 15);
    assert_eq!(clock.health(), (HealthStatus::Degraded, "LastRunFailed".to_owned()));
    clock.git = stack(&manifest("*/10 * * * *", "good:1", none_kept));
    clock.until(MINUTE * 25);
    assert_eq!(clock.runs(), ["10"]);
    assert_eq!(clock.health(), (HealthStatus::Healthy, String::new()));
}

#[test]
fn later_success_clears_a_failure_of_a_clock_that_was_ahead() {
    for kept in [0, 1] {
        let limit = format!("  failedJobsHistoryLimit: {kept}");
        let mut clock = Clock::new(&manifest("*/10 * * * *", "bad:1", &limit));
        let ahead = HOUR * 24 * 365 * 70;
        clock.stage.now = crate::fixture::NOON.after(ahead);
        clock.until(ahead + MINUTE * 15);
        assert_eq!(clock.health(), (HealthStatus::Degraded, "LastRunFailed".to_owned()));
        clock.stage.now = crate::fixture::NOON;
        assert_eq!(clock.health(), (HealthStatus::Degraded, "LastRunFailed".to_owned()));
        clock.git = stack(&manifest("*/10 * * * *", "good:1", &limit));
        clock.until(MINUTE * 15);
        assert_eq!(clock.health(), (HealthStatus::Healthy, String::new()), "{kept}");
    }
}

#[test]
fn failure_is_shown_when_no_failed_run_is_kept() {
    let none_kept = "  failedJobsHistoryLimit: 0";
    let mut clock = Clock::new(&manifest("*/10 * * * *", "bad:1", none_kept));
    clock.until(MINUTE * 15);
    assert_eq!(clock.runs(), [""; 0]);
    assert_eq!(clock.health(), (HealthStatus::Degraded, "LastRunFailed".to_owned()));
    clock.git = stack(&manifest("*/10 * * * *", "good:1", none_kept));
    clock.until(MINUTE * 25);
    assert_eq!(clock.health(), (HealthStatus::Healthy, String::new()));
}

#[test]
fn cron_run_without_image_uses_the_next_template() {
    let text = |image: &str, web: &str| {
        let report = manifest("*/10 * * * *", image, "  concurrencyPolicy: Forbid");
        report + &deployment("web", web)
    };
    let mut clock = Clock::new(&text("typo:1", "long:1"));
    clock.stage.world.registry = Some(["good:1", "long:1", "web:2"].map(str::to_owned).into());
    let rounds = |clock: &mut Clock, count: u32| {
        for _ in 0..count {
            clock.round();
            clock.stage.tick(Duration::from_secs(5));
        }
    };
    rounds(&mut clock, 150);
    assert_eq!(clock.stage.record.crons[&"report.prod".into()].runs.len(), 1);
    let images = |clock: &Clock| -> Vec<String> {
        clock.stage.world.observed.instances.values().map(|it| it.config.image.clone()).collect()
    };
    assert_eq!(images(&clock), ["long:1"]);
    clock.git = stack(&text("typo:1", "web:2"));
    rounds(&mut clock, 60);
    assert_eq!(images(&clock), ["web:2"], "{}", clock.round());
    clock.git = stack(&text("good:1", "web:2"));
    rounds(&mut clock, 20);
    let plan = clock.round();
    assert!(images(&clock).contains(&"good:1".to_owned()) && plan.is_settled(), "{plan}");
}

#[test]
fn failed_pull_of_a_cron_run_is_repeated_after_pauses() {
    // Kubernetes pulls `latest` before each creation.
    let mut clock = Clock::new(&manifest("0 * * * *", "long:latest", ""));
    clock.stage.world.observed.images.entry("long:latest".to_owned()).or_default();
    clock.stage.world.registry = Some(["long:1".to_owned()].into());
    clock.round();
    clock.stage.tick(MINUTE * 60);
    let mut asked = 0;
    for _ in 0..300 {
        let plan = clock.round();
        asked += plan.steps.iter().filter(|step| matches!(step.action, Action::PullImage { .. })).count();
        clock.stage.tick(Duration::from_secs(1));
    }
    assert!((3..9).contains(&asked), "{asked} pulls");
    let plan = clock.round();
    assert!(plan.waits.iter().any(|wait| wait.is(WaitReason::ImagePullBackOff)), "{plan}");
    assert!(clock.stage.world.observed.instances.is_empty());
    clock.stage.world.registry = None;
    for _ in 0..400 {
        clock.round();
        clock.stage.tick(Duration::from_secs(1));
    }
    assert_eq!(clock.stage.world.observed.instances.len(), 1);
}

#[test]
fn cron_run_that_cannot_start_uses_the_next_template() {
    let text = |image: &str| manifest("*/10 * * * *", image, "  concurrencyPolicy: Forbid");
    let cron: WorkloadName = "report.prod".into();
    let error = "bind source path does not exist: /backup";
    // The engine refuses to create the container, to start it, and to start it again after it has run.
    for (steps, image) in [(0, "good:1"), (1, "good:1"), (2, "long:1")] {
        let mut clock = Clock::new(&text("long:1"));
        clock.round();
        clock.stage.tick(MINUTE * 10);
        clock.begin_due();
        let plan = clock.stage.round_cut_short(steps, |_| 0);
        let made = plan.steps.iter().find_map(|step| match &step.action {
            Action::CreateInstance(creation) => Some(creation.name.clone()),
            _ => None,
        });
        let finished = clock.stage.now;
        for it in clock.stage.world.observed.instances.values_mut() {
            it.state = State::Exited { code: 128, finished, out_of_memory: false, error: error.to_owned() };
        }
        let failed = Attempt { count: 1, next: finished, error: error.to_owned() };
        clock.stage.record.failures.insert(made.unwrap(), failed);
        let begun = clock.stage.record.crons[&cron].runs.clone();
        for _ in 0..3 {
            clock.stage.tick(Duration::from_secs(1));
            clock.begin_due();
            clock.stage.round_cut_short(0, |_| 0);
        }
        assert_eq!(clock.stage.record.crons[&cron].runs, begun);

        clock.git = stack(&text("good:1"));
        for _ in 0..5 {
            clock.round();
            clock.stage.tick(Duration::from_secs(1));
        }
        let all = clock.stage.world.observed.instances.values();
        let images: Vec<&str> = all.map(|it| it.config.image.as_str()).collect();
        assert_eq!(images, [image], "after {steps} steps");
        assert_eq!(clock.runs(), ["10"]);
        let is_done = clock.stage.record.jobs.values().any(|job| job.ended.is_some());
        assert_eq!(is_done, image == "good:1", "after {steps} steps");
    }
}

#[test]
fn runs_of_a_cron_job_know_the_names_of_their_jobs() {
    let env = "env: [{name: JOB, valueFrom: {fieldRef: {fieldPath: \"metadata.labels['job-name']\"}}}]";
    let text = manifest("*/10 * * * *", "good:1", "");
    let text =
        text.replace("{name: report, image", &format!("{{{env}, args: ['/$(JOB).sql'], name: report, image"));
    let mut clock = Clock::new(&text);
    clock.until(MINUTE * 25);
    assert_eq!(clock.runs(), ["10", "20"]);
    for it in clock.stage.world.observed.instances.values() {
        let job = it.instance.workload.as_str().trim_end_matches(".prod");
        assert_eq!(it.config.env["JOB"].as_deref(), Some(job));
        assert_eq!(it.config.command, Some(vec![format!("/{job}.sql")]));
    }
}

#[test]
fn run_in_retry_keeps_the_network_that_git_drops() {
    let report = manifest("*/10 * * * *", "bad:1", "").replace("backoffLimit: 0", "backoffLimit: 6");
    let prod = report + &deployment("web", "long:1") + &deployment("api", "long:1");
    let tools = deployment("tool", "long:1").replace("namespace: prod", "namespace: tools");
    let mut clock = Clock::new(&(prod.clone() + &tools));
    let rounds = |clock: &mut Clock, count: u32| {
        for _ in 0..count {
            clock.round();
            clock.stage.tick(Duration::from_secs(1));
        }
    };
    rounds(&mut clock, 3);
    clock.stage.tick(MINUTE * 10);
    rounds(&mut clock, 5);
    let failures = |clock: &Clock| clock.stage.record.jobs.values().map(|job| job.failures).sum::<u32>();
    assert_eq!(failures(&clock), 1);
    // With one namespace left, Git has no network for each.
    clock.git = stack(&prod);
    let network = "shop_namespace-prod";
    assert!(!clock.git.networks.contains_key(network));
    rounds(&mut clock, 60);
    assert_eq!(failures(&clock), 3);
    assert!(clock.stage.world.observed.networks.contains_key(network));
    assert_eq!(without_runs(&clock.stage.stack).networks, clock.git.networks);
    assert_eq!(StackHash::of(&clock.stage.stack), StackHash::of(&clock.git));

    clock.stage.crashing.clear();
    clock.stage.finishing.insert("bad:1".to_owned());
    rounds(&mut clock, 60);
    assert!(clock.stage.record.jobs.values().all(|job| job.ended.is_some()));
    assert!(clock.stage.record.crons[&"report.prod".into()].networks.is_empty());
    let plan = clock.round();
    assert!(plan.is_settled(), "{plan}");
}

#[test]
fn workload_of_git_with_the_name_of_a_run_is_kept() {
    let mut clock = Clock::new(&manifest("*/10 * * * *", "good:1", ""));
    clock.until(MINUTE * 15);
    let run = clock.stage.record.crons[&"report.prod".into()].runs.keys().next().unwrap().clone();
    let plain = run.as_str().trim_end_matches(".prod");
    let own = format!(
        "---\n{}",
        manifest("@yearly", "good:2", "").replace("name: report, n", &format!("name: {plain}, n"))
    );
    clock.git = stack(&(manifest("*/10 * * * *", "good:1", "") + &own));
    clock.round();
    assert!(clock.stage.stack.workloads[&run].schedule().is_some());
}

#[test]
fn a_run_that_is_tried_again_makes_nobody_unwell() {
    let text = manifest("*/10 * * * *", "bad:1", "").replace("backoffLimit: 0", "backoffLimit: 6");
    let mut clock = Clock::new(&text);
    clock.until(MINUTE * 10);
    for _ in 0..40 {
        assert_eq!(clock.health().0, HealthStatus::Healthy);
        clock.stage.tick(Duration::from_secs(1));
    }
    let failed: Vec<u32> = clock.stage.record.jobs.values().map(|it| it.failures).collect();
    assert_eq!(failed, [3], "and it is tried again all the same");
}

/// A CronJob with an init container, a sidecar and two containers that see the processes of each other.
fn pod_manifest() -> String {
    manifest("*/10 * * * *", "good:1", "").replace(
        "containers: [",
        "shareProcessNamespace: true
          initContainers:
            - {name: first, image: 'good:1'}
            - {name: proxy, image: 'long:1', restartPolicy: Always}
          containers: [{name: upload, image: 'good:2'}, ",
    )
}

/// Rounds from the tenth minute on. Returns what was created.
fn containers_of_a_run(clock: &mut Clock) -> Vec<Creation> {
    let mut made = Vec::new();
    for _ in 0..20 {
        let created = clock.round().steps.into_iter().filter_map(|step| match step.action {
            Action::CreateInstance(creation) => Some(*creation),
            _ => None,
        });
        made.extend(created);
        clock.stage.tick(Duration::from_secs(1));
    }
    made
}

#[test]
fn run_of_several_containers_completes_in_its_own_pod() {
    let mut clock = Clock::new(&pod_manifest());
    clock.round();
    clock.stage.tick(MINUTE * 10);
    let made = containers_of_a_run(&mut clock);
    assert_eq!(made.len(), 5);
    let run = made[0].instance.workload.clone();
    let job = run.as_str().trim_end_matches(".prod");
    for creation in &made {
        let peers: Vec<&Peer> = creation.container.peers().collect();
        assert!(peers.iter().all(|peer| **peer == Peer::Workload(run.clone())), "{peers:?}");
        assert_eq!(peers.len(), if creation.part.is_some() { 3 } else { 0 });
        let labels = &creation.container.labels;
        assert_eq!(labels["batch.kubernetes.io/job-name"], job);
        assert_eq!(labels["driftless.cron"], "report.prod");
    }
    assert_eq!(clock.stage.record.jobs[&run].ended.as_ref().unwrap().outcome, JobOutcome::Complete);
    assert!(clock.stage.world.observed.containers().all(|it| !it.is_running()));
}

#[test]
fn recorded_run_with_the_name_of_its_template_runs() {
    let mut clock = Clock::new(&pod_manifest());
    clock.round();
    clock.stage.tick(MINUTE * 10);
    let now = clock.stage.now;
    schedule(&mut clock.stage.record, &clock.git, now);
    let cron: WorkloadName = "report.prod".into();
    let runs = &mut clock.stage.record.crons.get_mut(&cron).unwrap().runs;
    let (name, run) = runs.iter_mut().next().unwrap();
    *run = run.renamed(name, &cron);
    let name = name.clone();
    assert_eq!(containers_of_a_run(&mut clock).len(), 5);
    assert_eq!(clock.stage.record.jobs[&name].ended.as_ref().unwrap().outcome, JobOutcome::Complete);
}

fn deployment(name: &str, image: &str) -> String {
    format!(
        "---
apiVersion: apps/v1
kind: Deployment
metadata: {{name: {name}, namespace: prod}}
spec:
  selector: {{matchLabels: {{app: {name}}}}}
  template:
    metadata: {{labels: {{app: {name}}}}}
    spec: {{containers: [{{name: web, image: \"{image}\"}}]}}
"
    )
}

#[test]
fn replaced_run_ends_while_an_image_is_missing() {
    let report = manifest("* * * * *", "long:1", "  concurrencyPolicy: Replace");
    let mut clock = Clock::new(&(report + &deployment("web", "typo:1")));
    clock.stage.world.registry = Some(["long:1".to_owned()].into());
    for _ in 0..50 {
        clock.round();
        clock.stage.tick(Duration::from_secs(5));
    }
    assert_eq!(clock.runs(), ["4"]);
}

#[test]
fn workloads_named_after_a_cron_job_are_none_of_its_runs() {
    let report = manifest("*/10 * * * *", "good:1", "");
    let names: Vec<String> = (0..5).map(|number| format!("report-web{number}")).collect();
    let all: String = names.iter().map(|name| deployment(name, "long:1")).collect();
    let mut clock = Clock::new(&(report.clone() + &all));
    for _ in 0..10 {
        clock.round();
        clock.stage.tick(Duration::from_secs(5));
    }
    let deployed = |clock: &Clock| {
        let all = clock.stage.world.observed.instances.values();
        all.filter(|it| it.instance.workload.as_str().starts_with("report-web")).count()
    };
    assert_eq!(deployed(&clock), 5);
    clock.git = stack(&report);
    let plan = clock.round();
    assert!(plan.waits.iter().any(|it| it.is(WaitReason::PruneHeld)), "{plan}");
    assert_eq!(deployed(&clock), 5);

    // Runs that are no longer kept go all the same, also those that a release without the label began.
    clock.stage.tick(MINUTE * 10);
    for is_labelled in [true, false] {
        clock.stage.tick(MINUTE * 10);
        for _ in 0..3 {
            clock.round();
            clock.stage.tick(Duration::from_secs(1));
        }
        let all = clock.stage.world.observed.instances.values_mut();
        let run = all.into_iter().find(|it| it.config.labels.contains_key("driftless.cron")).unwrap();
        let (id, name) = (run.id.clone(), run.instance.workload.clone());
        if !is_labelled {
            Arc::make_mut(&mut run.config).labels.remove("driftless.cron");
        }
        clock.stage.record.crons.get_mut(&"report.prod".into()).unwrap().runs.remove(&name);
        clock.round();
        assert!(!clock.stage.world.observed.instances.contains_key(&id));
        assert_eq!(deployed(&clock), 5);
    }
}

#[test]
fn run_of_compose_that_ended_well_without_the_engine_is_done() {
    let text = "services:\n  report:\n    image: long:1\n    x-driftless: {schedule: '0 * * * *'}\n";
    let files = MemoryFiles::new([("compose.yaml", text)]);
    let spec = AppSpec { format: Format::Compose, ..manifests("", &["compose.yaml"]) };
    let Rendered { stack, findings, .. } = render(&files, &spec);
    let git = stack.unwrap_or_else(|| panic!("{findings:?}"));
    let mut stage = Stage::new(git.clone());
    stage.world.observed.images.entry("long:1".to_owned()).or_default();
    let mut clock = Clock { git, stage, told: Vec::new() };
    let made = clock.until(Duration::from_mins(61));
    assert_eq!(made.len(), 1, "{made:?}");
    let ended = clock.stage.now;
    exit(&mut clock.stage, 0, ended, "");
    clock.stage.tick(Duration::from_secs(20));
    clock.stage.world.observed.engine_started = Some(clock.stage.now);
    for _ in 0..5 {
        let plan = clock.round();
        let is_start =
            |step: &Step| matches!(step.action, Action::CreateInstance(_) | Action::StartInstance { .. });
        assert!(!plan.steps.iter().any(is_start), "it runs twice: {plan}");
        clock.stage.tick(Duration::from_secs(5));
    }
    let run = clock.stage.record.jobs.values().next().unwrap();
    assert_eq!(run.ended.as_ref().map(|end| end.outcome), Some(JobOutcome::Complete));
}
