//! One application with many services: a pass over it, and the repair of one of its containers.

use std::{collections::BTreeMap, fmt::Write as _, path::Path, time::Duration};

use driftless_files::MemoryFiles;
use driftless_manifest as manifest;
use driftless_model::{AgentId, ContainerId, Mask, Policy, Record, Stack, StackHashes, Timestamp};
use driftless_plan as plan;
use driftless_plan::{Round, StepOutcome, Target, World};
use serde_json::Value;
use tokio::time::{Instant, sleep};

use crate::{
    few,
    harness::{self, Agent, Docker, Engine, Settings, Site, images},
    idle, planner,
    process::{self, own_cpu},
    raw::{self, Api},
    report::{Report, Row, Samples, time},
    samples, setting,
};

/// Numbers of services of which the planner's part of a round is measured. The first one is that of the goals.
const PLANNED: [usize; 2] = [1000, 5000];

/// After a repair, the time for the rounds that follow it.
const AFTER_REPAIR: Duration = Duration::from_secs(4);

pub async fn large(report: &mut Report) {
    let size: usize = setting("BENCH_SERVICES", "1000").parse().expect("BENCH_SERVICES is a number");
    let found = live(size).await;
    let planned = PLANNED.map(planned);

    report.section("One large application");
    report.text(&format!(
        "One application of {size} one-shot services that have completed, on an engine of its own. A pass is requested \
         by `sync`; its processor time is the agent's, for each of the two requests that start it and wait for its end. \
         Then one container is removed by force, and the agent creates and starts it again. The processor time of a repair \
         is that of all rounds in the {} s from the removal on: those that notice it, those that the start and the end of \
         the new container cause, and the status after each. The part of the planner in one round is measured in memory: \
         reading the record, planning, and assessing the status. Times in memory are the thread's processor time.",
        AFTER_REPAIR.as_secs()
    ));
    let planner_row = |what: &str, size: usize| format!("{size} services: {what} in the planner");
    let rows: Vec<(String, &Samples)> = [
        (format!("{size} services: pass"), &found.passes),
        (format!("{size} services: pass, processor time"), &found.pass_cpu),
        (format!("{size} services: repair, until the container is created"), &found.created),
        (format!("{size} services: repair, processor time of all rounds"), &found.repair_cpu),
    ]
    .into_iter()
    .chain(PLANNED.iter().zip(&planned).flat_map(|(size, planned)| {
        [
            (planner_row("a round without changes", *size), &planned.round),
            (planner_row("a round with a missing container", *size), &planned.repair),
        ]
    }))
    .collect();
    let rows: Vec<Row<'_>> = rows.iter().map(|(what, samples)| Row { what, samples, ratio: None }).collect();
    report.times(&rows);
    let pass = found.pass_cpu.median();
    report.goal("≤ 60 ms of processor time a pass", &time(pass), pass <= Duration::from_millis(60));
    let repair = planned[0].repair.median();
    report.goal(
        "≤ 20 ms of the planner's time before a repair",
        &time(repair),
        repair <= Duration::from_millis(20),
    );
    let growth = planned[1].round.against(&planned[0].round) * PLANNED[0] as f64 / PLANNED[1] as f64;
    report.goal("linear: time per service does not grow to 5,000", &format!("{growth:.2} ×"), growth <= 1.1);
}

/// The measurements on an engine.
struct Live {
    passes: Samples,
    pass_cpu: Samples,
    created: Samples,
    repair_cpu: Samples,
}

async fn live(size: usize) -> Live {
    let directory = tempfile::Builder::new().prefix("driftless-bench-").tempdir().unwrap();
    let mut engine = Engine::new(directory.path());
    if let Some(engine) = &mut engine {
        engine.start().await;
    }
    let docker = Docker { host: engine.as_ref().map(Engine::host) };
    let socket = docker.host.as_deref().map_or(raw::SOCKET, |host| host.trim_start_matches("unix://"));
    let image = images::server_as(&docker, "driftless-e2e/server:1.0", "1.0");
    let mut site =
        Site::with("bench-large", Settings { docker_host: docker.host.clone(), ..Settings::default() });
    site.docker = docker.clone();
    let commit = site.compose(&one_shots(size, &image));
    let agent = site.agent().await;
    let began = Instant::now();
    while !agent.application().await.is_some_and(|found| harness::is_settled(&found, &commit)) {
        assert!(began.elapsed() < Duration::from_secs(60 + size as u64), "not settled");
        sleep(Duration::from_secs(1)).await;
    }
    sleep(AFTER_REPAIR).await;
    let (mut passes, mut pass_cpu) = (Vec::new(), Vec::new());
    for _ in 0..samples() {
        let before = process::cpu_of_threads(agent.process());
        passes.push(idle::pass(&agent).await);
        pass_cpu.push(process::cpu_of_threads(agent.process()).saturating_sub(before) / 2);
        sleep(Duration::from_millis(200)).await;
    }
    let (mut created, mut repair_cpu) = (Vec::new(), Vec::new());
    for round in 0..few() {
        let name = site.name(&format!("job{}", (round * 37) % size));
        let repair = repair(&agent, Path::new(socket), &name).await;
        created.push(repair.0);
        repair_cpu.push(repair.1);
    }
    drop(agent);
    Api(socket.to_owned()).remove_application(&docker, &site.app).await;
    Live {
        passes: Samples::new(passes),
        pass_cpu: Samples::new(pass_cpu),
        created: Samples::new(created),
        repair_cpu: Samples::new(repair_cpu),
    }
}

/// Removes a container by force. Returns the time until its successor was created, and the processor time of the agent.
async fn repair(agent: &Agent, socket: &Path, name: &str) -> (Duration, Duration) {
    let api = Api(socket.display().to_string());
    let cpu = process::cpu_of_threads(agent.process());
    api.remove(name).await;
    let removed = raw::now();
    sleep(AFTER_REPAIR).await;
    let cpu = process::cpu_of_threads(agent.process()).saturating_sub(cpu);
    let (status, body) = api.call("GET", &format!("/containers/{name}/json"), &Value::Null).await;
    assert_eq!(status, 200, "{name} was created again: {body}");
    let found: Value = serde_json::from_str(&body).unwrap();
    let created = Timestamp::parse(found["Created"].as_str().unwrap()).unwrap();
    (Duration::from_millis(created.0).saturating_sub(removed), cpu)
}

/// The part of the planner in one round, in memory.
struct Planned {
    round: Samples,
    repair: Samples,
}

fn planned(size: usize) -> Planned {
    let files =
        MemoryFiles::new([("app0/compose.yaml", one_shots(size, "registry.example.com/job:1").as_str())]);
    let stack: Stack = manifest::render(&files, &planner::spec(0)).stack.expect("it renders");
    let (agent, policy, images) = (AgentId::from("bench"), Policy::default(), BTreeMap::new());
    let mask = Mask::new([0; 32]).with_stacks([&stack]);
    let hashes = StackHashes::of(&stack);
    let target = Target {
        stack: &stack,
        hashes: &hashes,
        reached: None,
        agent: &agent,
        policy: &policy,
        images: &images,
        mask: &mask,
    };
    let (mut world, mut record) = planner::settle(&target);
    let now = Timestamp(10_000_000);
    let workloads = BTreeMap::new();
    let round = |world: &World, record: &mut Record| {
        let began = own_cpu();
        plan::note_observed(record, &target, &world.observed, now);
        let plan = plan::plan(&target, &world.observed, record, now);
        plan::note_planned(record, &plan, now);
        let (stack, hashes, policy, observed) = (&stack, &hashes, &policy, &world.observed);
        let round = Round { stack, hashes, policy, observed, record, plan: &plan, now };
        let assessed = plan::assess(&round, &[], &workloads);
        let took = own_cpu() - began;
        assert_eq!(assessed.workloads.len(), size);
        (took, plan)
    };
    let (mut rounds, mut repairs) = (Vec::new(), Vec::new());
    for number in 0..samples() {
        let (took, plan) = round(&world, &mut record);
        assert!(plan.is_settled(), "{plan}");
        rounds.push(took);
        let id: ContainerId =
            world.observed.instances.keys().nth(number * 7 % size).expect("it is there").clone();
        let removed = world.observed.instances.remove(&id).expect("it is there");
        let (took, plan) = round(&world, &mut record);
        assert_eq!(plan.steps.len(), 2, "{plan}");
        repairs.push(took);
        plan::note_executed(&mut record, &target, &plan, &vec![StepOutcome::Skipped; 2], now);
        world.observed.instances.insert(id, removed);
    }
    Planned { round: Samples::new(rounds), repair: Samples::new(repairs) }
}

/// 17 values each: a file may have 100,000.
fn one_shots(size: usize, image: &str) -> String {
    let mut compose = "services:\n".to_owned();
    for service in 0..size {
        let _ = writeln!(
            compose,
            "  job{service}:\n    image: {image}\n    command: [--once]\n    restart: \"no\"\n    network_mode: none\n    \
             environment: {{GREETING: hello, PORT: \"8080\"}}"
        );
    }
    compose
}
