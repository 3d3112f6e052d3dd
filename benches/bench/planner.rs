//! Rendering and planning alone: no engine, no Git, no clock.

use std::{collections::BTreeMap, fmt::Write as _, time::Duration};

use driftless_files::{AppSpec, MemoryFiles};
use driftless_manifest as manifest;
use driftless_model::{AgentId, Mask, Policy, Record, Stack, StackHashes, Timestamp};
use driftless_plan as plan;
use driftless_plan::{StepOutcome, Target, World};
use tokio::time::Instant;

use crate::{
    few,
    process::own_cpu,
    report::{Report, Row, Samples, time},
};

/// Workloads of one application, each with one instance.
const WORKLOADS: usize = 10;

/// Rendering and planning of a number of applications in which nothing is left to do.
struct Planned {
    instances: usize,
    /// On one core.
    render: Samples,
    plan: Samples,
    /// As the agent does, on all cores.
    together: Samples,
    /// That and the plans.
    both: Samples,
}

pub fn planner(report: &mut Report) {
    let sizes = [100, 300, 1000];
    let all: Vec<Planned> = sizes.into_iter().map(measure).collect();
    report.section("Planner");
    report.text(
        "Compose files of ten services each, with health checks and volumes, are rendered and planned without IO; \
         everything is synced. Times on one core are the thread's processor time. The agent renders applications in \
         parallel on all cores; that time, and the time with all plans after it, is wall-clock time. The ratio is \
         the time per instance relative to the smallest number of instances.",
    );
    let per_instance = |it: &Planned| it.both.median().as_secs_f64() / it.instances as f64;
    let mut rows = Vec::new();
    for it in &all {
        let ratio = per_instance(it) / per_instance(&all[0]);
        rows.push((format!("{} instances: render, on one core", it.instances), &it.render, None));
        rows.push((format!("{} instances: render, on all cores", it.instances), &it.together, None));
        rows.push((format!("{} instances: plan, on one core", it.instances), &it.plan, None));
        rows.push((format!("{} instances: both", it.instances), &it.both, Some(ratio)));
    }
    let rows: Vec<Row<'_>> =
        rows.iter().map(|(what, samples, ratio)| Row { what, samples, ratio: *ratio }).collect();
    report.times(&rows);
    let last = all.last().expect("there are sizes");
    let both = last.both.median();
    let goal = "≤ 200 ms for 10,000 instances in 1,000 applications";
    report.goal(goal, &time(both), both <= Duration::from_millis(200));
    let growth = per_instance(last) / per_instance(&all[0]);
    report.goal(
        "linear: time per instance does not grow",
        &format!("{growth:.2} × at 10,000"),
        growth <= 1.5,
    );
}

fn measure(applications: usize) -> Planned {
    let files = files(applications);
    let specs: Vec<AppSpec> = (0..applications).map(spec).collect();
    let (agent, policy, images, mask) =
        (AgentId::from("bench"), Policy::default(), BTreeMap::new(), Mask::new([0; 32]));
    // The agent makes the hashes where it renders.
    let render_one = |spec: &AppSpec| {
        let stack = manifest::render(&files, spec).stack?;
        let hashes = StackHashes::of(&stack);
        Some((stack, hashes))
    };
    let render = || -> Vec<(Stack, StackHashes)> { specs.iter().filter_map(render_one).collect() };
    let stacks = render();
    assert_eq!(stacks.len(), applications, "every application renders");
    let target = |(stack, hashes)| Target {
        stack,
        hashes,
        reached: None,
        agent: &agent,
        policy: &policy,
        images: &images,
        mask: &mask,
    };
    let settled: Vec<((&Stack, &StackHashes), World, Record)> = stacks
        .iter()
        .map(|(stack, hashes)| {
            let (world, record) = settle(&target((stack, hashes)));
            ((stack, hashes), world, record)
        })
        .collect();
    let (mut renders, mut together, mut plans, mut both) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for _ in 0..few() {
        let began = own_cpu();
        let rendered = render();
        renders.push(own_cpu() - began);
        drop(rendered);
        let began = Instant::now();
        let rendered = manifest::on_all_cores(specs.iter().collect(), render_one);
        together.push(began.elapsed());
        let before = own_cpu();
        for (stack, world, record) in &settled {
            let plan = plan::plan(&target(*stack), &world.observed, record, Timestamp(10_000_000));
            assert!(plan.is_settled(), "{plan}");
        }
        plans.push(own_cpu() - before);
        both.push(began.elapsed());
        drop(rendered);
    }
    Planned {
        instances: settled.iter().map(|(_, world, _)| world.observed.instances.len()).sum(),
        render: Samples::new(renders),
        plan: Samples::new(plans),
        together: Samples::new(together),
        both: Samples::new(both),
    }
}

/// Round after round in memory until all runs.
pub fn settle(target: &Target<'_>) -> (World, Record) {
    let (mut world, mut record, mut now) = (World::default(), Record::default(), Timestamp(1_000));
    for _ in 0..20 {
        plan::note_observed(&mut record, target, &world.observed, now);
        let plan = plan::plan(target, &world.observed, &record, now);
        if plan.is_settled() {
            plan::note_settled(&mut record, target, &world.observed);
            break;
        }
        let outcomes: Vec<StepOutcome> = plan
            .steps
            .iter()
            .map(|step| match world.apply(target.agent, &step.action, now).expect("the world accepts it") {
                Some(id) => StepOutcome::Created(id),
                None => StepOutcome::Done,
            })
            .collect();
        plan::note_executed(&mut record, target, &plan, &outcomes, now);
        now = now.after(Duration::from_secs(60));
        world.finish_starting(now, |_| false);
    }
    (world, record)
}

pub fn spec(number: usize) -> AppSpec {
    let file = format!("app{number}/compose.yaml");
    AppSpec { has_listed_files: false, ..AppSpec::compose(&format!("app{number}"), &[&file]) }
}

fn files(applications: usize) -> MemoryFiles {
    let mut compose = String::from("services:\n");
    for number in 0..WORKLOADS {
        let _ = write!(
            compose,
            "  service{number}:\n    image: registry.example.com/team/service{number}:1.{number}\n    \
             restart: unless-stopped\n    environment:\n      PORT: \"8080\"\n      GREETING: hello\n    \
             healthcheck: {{test: [CMD, /bin/true], interval: 10s}}\n    volumes: [data{number}:/data]\n"
        );
    }
    compose.push_str("volumes:\n");
    for number in 0..WORKLOADS {
        let _ = writeln!(compose, "  data{number}:");
    }
    let paths: Vec<String> = (0..applications).map(|it| format!("app{it}/compose.yaml")).collect();
    MemoryFiles::new(paths.iter().map(|it| (it.as_str(), compose.as_str())))
}
