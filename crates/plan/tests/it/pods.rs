//! Pods of several containers, planned round by round: order, readiness, healing, replacement and completion.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use driftless_model::{
    Completion, Container, ContainerId, Downward, DownwardValues, Endpoint, HELPER_IMAGE, Health,
    NetworkMode, Part, Peer, Probe, ProbeAction, Probes, PullPolicy, Readiness, RestartPolicy, Role, State,
    Strategy, Timestamp, Workload,
};
use driftless_plan::{Action, Plan, WaitReason, whole};

use crate::fixture::{Stage, stack, workload};

fn part(name: &str, role: Role, image: &str) -> Part {
    let (restart, completion) = match role {
        Role::Init => (RestartPolicy::OnFailure { max_retries: None }, Completion::OnSuccess),
        Role::Sidecar | Role::App => (RestartPolicy::UnlessStopped, Completion::Never),
    };
    Part {
        name: name.to_owned(),
        role,
        container: Container {
            image: image.to_owned(),
            restart,
            network_mode: NetworkMode::Of(Peer::Workload("web".into())),
            ..Container::default()
        },
        volumes: BTreeMap::new(),
        probes: Probes::default(),
        pull: PullPolicy::IfNotPresent,
        completion,
    }
}

/// Two init containers, one sidecar, and two app containers.
fn pod(version: &str, replicas: u32) -> Workload {
    let image = |name: &str| format!("{name}:{version}");
    Workload {
        parts: vec![
            part("first", Role::Init, "init:1"),
            part("sidecar", Role::Sidecar, "sidecar:1"),
            part("second", Role::Init, "init:1"),
            part("serve", Role::App, &image("serve")),
            part("log", Role::App, "log:1"),
        ],
        ..workload(HELPER_IMAGE, replicas)
    }
}

fn stage(workload: Workload) -> Stage {
    let mut stage = Stage::new(stack([("web", workload)]));
    stage.finishing.insert("init:1".to_owned());
    stage
}

/// Containers that a plan creates, by the ends of their names.
fn made(plan: &Plan) -> Vec<String> {
    let created = plan.steps.iter().filter_map(|it| match &it.action {
        Action::CreateInstance(creation) => Some(creation.instance.to_string()),
        _ => None,
    });
    created.collect()
}

/// Rounds until nothing is left to do. Returns what was made in each.
fn settle(stage: &mut Stage) -> Vec<Vec<String>> {
    let mut all = Vec::new();
    for _ in 0..80 {
        let plan = stage.round();
        if plan.is_settled() {
            return all;
        }
        all.push(made(&plan));
        all.retain(|it| !it.is_empty());
        stage.tick(Duration::from_secs(1));
    }
    panic!("it never settles: {:#?}", stage.round());
}

fn ids(stage: &Stage) -> BTreeMap<String, String> {
    stage.world.observed.containers().map(|it| (it.instance.to_string(), it.id.to_string())).collect()
}

#[test]
fn a_pod_comes_up_in_order_and_is_ready_when_all_of_it_is() {
    let mut stage = stage(pod("1", 1));
    let order = settle(&mut stage);
    let expected: [&[&str]; 5] =
        [&["web.1"], &["web/first.1"], &["web/sidecar.1"], &["web/second.1"], &["web/serve.1", "web/log.1"]];
    assert_eq!(order, expected);
    assert_eq!(stage.available(&"web".into()), 1);
    // One that is not ready makes the pod so, and by its name.
    stage.named("shop-web-1-log").readiness = Readiness::NotReady { reason: "busy".into() };
    let observed = whole(&stage.stack, &stage.world.observed);
    let pod = observed.instances.values().next().unwrap();
    assert_eq!(pod.readiness, Readiness::NotReady { reason: "log: busy".into() });
}

#[test]
fn missing_part_returns_to_its_pod_without_new_init_run() {
    let mut stage = stage(pod("1", 1));
    settle(&mut stage);
    let before = ids(&stage);
    for gone in ["web/serve.1", "web/sidecar.1", "web/first.1"] {
        let id = ContainerId(before[gone].clone());
        stage.world.observed.parts.remove(&id);
    }
    let order = settle(&mut stage);
    assert_eq!(order, [["web/sidecar.1", "web/serve.1"]]);
    let after = ids(&stage);
    assert_eq!((&after["web.1"], &after["web/log.1"]), (&before["web.1"], &before["web/log.1"]));
    // Its first container takes all others along.
    let pause = ContainerId(after["web.1"].clone());
    stage.world.observed.instances.remove(&pause);
    settle(&mut stage);
    let last = ids(&stage);
    assert_eq!(last.len(), 6);
    assert!(last.values().all(|it| !after.values().any(|old| old == it)), "{last:?}");
}

/// The host is restarted: the engine starts what ran, the pod's first container before its parts.
fn reboot(stage: &mut Stage) {
    stage.tick(Duration::from_secs(60));
    let now = stage.now;
    let observed = &mut stage.world.observed;
    for container in observed.instances.values_mut().chain(observed.parts.values_mut()) {
        if container.is_running() {
            container.state = State::Running { since: now, health: Health::Starting };
            container.readiness = Readiness::Starting { reason: "not probed yet".into() };
            container.started = Some(now);
        }
    }
}

/// The containers that are stopped (`-`) and started (`+`) in the next rounds, and those created (`*`).
fn acted(stage: &mut Stage, rounds: u32) -> Vec<String> {
    let mut all = Vec::new();
    for _ in 0..rounds {
        for step in stage.round().steps {
            match step.action {
                Action::StopInstance { container, .. } => all.push(format!("-{container}")),
                Action::StartInstance { container } => all.push(format!("+{container}")),
                Action::CreateInstance(creation) => all.push(format!("*{}", creation.name)),
                _ => {}
            }
        }
        stage.tick(Duration::from_secs(1));
    }
    all.iter().map(|it| it.replace("shop-web-1-", "")).collect()
}

#[test]
fn init_containers_run_again_in_new_namespaces() {
    let mut stage = stage(pod("1", 1));
    settle(&mut stage);
    let before = ids(&stage);
    let expected = ["-sidecar", "-serve", "-log", "+first", "+sidecar", "+second", "+serve", "+log"];
    for _ in 0..2 {
        reboot(&mut stage);
        assert_eq!(acted(&mut stage, 12), expected);
        assert!(stage.round().is_settled());
        assert_eq!((stage.available(&"web".into()), ids(&stage)), (1, before.clone()));
    }
    // One of an older agent, which noted nothing, goes on.
    reboot(&mut stage);
    stage.record.prepared.clear();
    assert_eq!(acted(&mut stage, 12), [""; 0]);
    // The clock is set back between the start of the pod and the end of its init containers.
    reboot(&mut stage);
    stage.now = Timestamp(stage.now.0 - 3_600_000);
    let acted = acted(&mut stage, 5);
    for init in ["+first", "+second"] {
        assert_eq!(acted.iter().filter(|it| *it == init).count(), 1, "{acted:?}");
    }
}

/// Its pod was started by the clock that was ahead.
#[test]
fn container_is_restarted_once_after_the_clock_was_set_back() {
    let mut stage = stage(pod("1", 1));
    settle(&mut stage);
    stage.now = Timestamp(stage.now.0 - 3_600_000);
    let finished = stage.now;
    stage.named("shop-web-1-serve").state =
        State::Exited { code: 1, finished, out_of_memory: false, error: String::new() };
    let acted = acted(&mut stage, 40);
    assert_eq!(acted, ["+serve"]);
}

#[test]
fn app_waits_for_an_init_container_that_fails_when_run_again() {
    let mut stage = stage(pod("1", 1));
    settle(&mut stage);
    reboot(&mut stage);
    stage.finishing.clear();
    stage.crashing.insert("init:1".to_owned());
    let failing = acted(&mut stage, 12);
    assert_eq!(failing[..4], ["-sidecar", "-serve", "-log", "+first"]);
    assert!(failing.len() > 4 && failing[4..].iter().all(|it| it == "+first"), "{failing:?}");
    stage.crashing.clear();
    stage.finishing.insert("init:1".to_owned());
    stage.tick(Duration::from_secs(300));
    settle(&mut stage);
    assert_eq!(stage.available(&"web".into()), 1);
}

#[test]
fn init_container_with_the_address_of_its_pod_is_replaced_first() {
    let mut stage = stage(pod("1", 1));
    settle(&mut stage);
    let told: DownwardValues = [(Downward::PodIp, "10.0.0.2".to_owned())].into();
    stage.named("shop-web-1-first").part.as_mut().unwrap().downward = told;
    reboot(&mut stage);
    let pod = stage.world.observed.instances.values_mut().next().unwrap();
    let endpoint = Endpoint { ip: Some("10.0.0.3".to_owned()), ..Endpoint::default() };
    pod.networks.insert("shop_default".to_owned(), endpoint);
    let expected =
        ["-sidecar", "-serve", "-log", "*first", "+first", "+sidecar", "+second", "+serve", "+log"];
    assert_eq!(acted(&mut stage, 12), expected);
}

#[test]
fn init_containers_of_a_job_do_not_run_again() {
    for restart in [RestartPolicy::No, RestartPolicy::OnFailure { max_retries: Some(2) }] {
        let mut stage = stage(job(restart));
        acted(&mut stage, 12);
        reboot(&mut stage);
        assert_eq!(acted(&mut stage, 12), [""; 0], "{restart:?}");
    }
}

#[test]
fn part_with_pod_address_is_replaced_when_it_changes() {
    let strategy = Strategy::RollingUpdate { max_surge: 0, max_unavailable: 1 };
    let mut stage = stage(Workload { strategy, ..pod("1", 1) });
    settle(&mut stage);
    let address = |stage: &mut Stage, ip: &str| {
        let pod = stage.world.observed.instances.values_mut().next().unwrap();
        let (ip, gateway) = (Some(ip.to_owned()), Some("10.0.0.1".to_owned()));
        pod.networks.insert("shop_default".to_owned(), Endpoint { ip, gateway, ..Endpoint::default() });
    };
    address(&mut stage, "10.0.0.2");
    let told =
        [(Downward::PodIp, "10.0.0.2"), (Downward::HostIp, "10.0.0.1"), (Downward::PodName, "shop-web-1")];
    let told: DownwardValues = told.into_iter().map(|(told, value)| (told, value.to_owned())).collect();
    stage.named("shop-web-1-serve").part.as_mut().unwrap().downward = told;
    let before = ids(&stage);
    assert!(stage.round().is_settled(), "{:#?}", stage.round());
    // The engine was restarted, and gave the pod's first container another address.
    address(&mut stage, "10.0.0.3");
    assert_eq!(settle(&mut stage), [["web/serve.1"]]);
    let after = ids(&stage);
    assert_ne!(after["web/serve.1"], before["web/serve.1"]);
    assert_eq!(after.iter().filter(|(name, id)| before[*name] != **id).count(), 1);
}

#[test]
fn a_rollout_waits_for_whole_pods_and_old_ones_serve_meanwhile() {
    // The stage checks after each step that two are available, and no more than three there.
    let mut stage = stage(pod("1", 2));
    settle(&mut stage);
    stage.stack = stack([("web", pod("2", 2))]);
    settle(&mut stage);
    assert_eq!(stage.world.observed.parts.len(), 10);
    let mut images = stage.world.observed.parts.values().map(|it| it.config.image.clone());
    assert!(!images.any(|it| it == "serve:1"));

    // An instance that never becomes ready removes no other.
    let before = ids(&stage);
    stage.sick.insert("serve:3".to_owned());
    stage.stack = stack([("web", pod("3", 2))]);
    for _ in 0..20 {
        stage.round();
        stage.tick(Duration::from_secs(5));
    }
    assert_eq!(stage.available(&"web".into()), 2);
    let after = ids(&stage);
    assert!(before.iter().all(|(name, id)| after.get(name) == Some(id)), "{before:?} {after:?}");
}

#[test]
fn failing_init_container_backs_off_and_blocks_the_others() {
    let mut stage = stage(pod("1", 1));
    stage.finishing.clear();
    stage.crashing.insert("init:1".to_owned());
    let mut held = false;
    for _ in 0..40 {
        let plan = stage.round();
        held |= plan
            .waits
            .iter()
            .any(|it| it.is(WaitReason::CrashLoopBackOff) && it.object.to_string() == "web/first.1");
        stage.tick(Duration::from_secs(2));
    }
    assert!(held);
    assert_eq!(stage.world.observed.parts.len(), 1);
    assert_eq!(stage.available(&"web".into()), 0);
    stage.crashing.clear();
    stage.finishing.insert("init:1".to_owned());
    stage.tick(Duration::from_secs(300));
    settle(&mut stage);
    assert_eq!(stage.available(&"web".into()), 1);
}

/// The startup probe of the sidecar fails for good, each time that it runs.
#[test]
fn failing_startup_probe_of_a_sidecar_blocks_the_others() {
    let mut workload = pod("1", 1);
    let second = Duration::from_secs(1);
    workload.parts[1].probes.startup = Some(Probe {
        action: ProbeAction::TcpSocket { port: 9999, host: None },
        initial_delay: Duration::ZERO,
        period: second,
        timeout: second,
        success_threshold: 1,
        failure_threshold: 5,
    });
    let mut stage = stage(workload);
    stage.sick.insert("sidecar:1".to_owned());
    for _ in 0..60 {
        stage.round();
        stage.tick(Duration::from_secs(5));
        let parts = stage.world.observed.parts.values_mut();
        for sidecar in parts.filter(|part| part.config.image == "sidecar:1" && part.is_running()) {
            sidecar.readiness = Readiness::Dead { reason: "startup probe: refused".to_owned() };
        }
        let names: Vec<String> =
            stage.world.observed.parts.values().map(|part| part.instance.to_string()).collect();
        assert!(names.iter().all(|name| name == "web/first.1" || name == "web/sidecar.1"), "{names:?}");
    }
    let crash = stage.record.crashes.values().next().map(|crash| crash.count);
    assert!(crash.is_some_and(|count| count >= 2), "{crash:?}");
    stage.sick.clear();
    stage.tick(Duration::from_secs(600));
    settle(&mut stage);
    assert_eq!(stage.available(&"web".into()), 1);
}

/// A Job of two containers that end, with a sidecar that does not.
fn job(restart: RestartPolicy) -> Workload {
    let mut job = pod("1", 1);
    job.completion = Completion::OnSuccess;
    job.container.restart = restart;
    for part in job.parts.iter_mut().filter(|it| it.role == Role::App) {
        part.completion = Completion::OnSuccess;
        part.container.restart = restart;
    }
    job
}

#[test]
fn pod_of_a_job_completes_and_then_its_sidecars_end() {
    let mut stage = stage(job(RestartPolicy::OnFailure { max_retries: Some(2) }));
    stage.finishing.extend(["serve:1".to_owned(), "log:1".to_owned()]);
    settle(&mut stage);
    let states = || stage.world.observed.containers().map(|it| (it.instance.to_string(), it.state.clone()));
    for (name, state) in states() {
        assert!(matches!(state, State::Exited { .. }), "{name}: {state:?}");
    }
    let before = ids(&stage);
    stage.tick(Duration::from_secs(600));
    assert!(stage.round().is_settled());
    assert_eq!(ids(&stage), before);
}

#[test]
fn failed_job_ends_its_pod_and_is_reported() {
    let mut stage = stage(job(RestartPolicy::No));
    stage.finishing.insert("log:1".to_owned());
    stage.crashing.insert("serve:1".to_owned());
    let mut last = Plan::default();
    for _ in 0..20 {
        last = stage.round();
        stage.tick(Duration::from_secs(30));
    }
    assert!(last.steps.is_empty(), "{last}");
    assert!(last.waits.iter().any(|it| it.is(WaitReason::Failed)), "{last}");
    assert!(stage.world.observed.containers().all(|it| !it.is_running()));
}

#[test]
fn wherever_we_are_cut_off_the_pod_is_finished_as_it_was_begun() {
    let mut stage = stage(pod("1", 1));
    let mut begun = Vec::new();
    for _ in 0..200 {
        // The agent ends after each single step, and remembers nothing of it.
        let plan = stage.round_cut_short(1, |_| 0);
        if plan.is_settled() {
            break;
        }
        begun.extend(made(&plan).into_iter().next());
        stage.record.own_containers.clear();
        stage.tick(Duration::from_secs(1));
    }
    assert!(stage.round().is_settled());
    assert_eq!(ids(&stage).len(), 6);
    begun.dedup();
    let expected = ["web.1", "web/first.1", "web/sidecar.1", "web/second.1", "web/serve.1", "web/log.1"];
    assert_eq!(begun, expected);
}

#[test]
fn pod_loses_its_traffic_with_its_first_stopped_container() {
    let command = ["proxy", "--ready-only", "80/tcp=_web:8080"].map(str::to_owned).to_vec();
    let container =
        Container { command: Some(command), ..workload(driftless_model::PROXY_IMAGE, 1).container };
    let front = Workload { container, ..workload(driftless_model::PROXY_IMAGE, 1) };
    let mut stage = Stage::new(stack([("web", pod("1", 2)), ("front", front)]));
    stage.finishing.insert("init:1".to_owned());
    for _ in 0..40 {
        stage.round();
        stage.tick(Duration::from_secs(1));
    }
    for instance in stage.world.observed.instances.values_mut() {
        if instance.instance.workload.as_str() == "web" {
            let ip = Some(format!("10.0.0.{}", instance.instance.slot));
            let endpoint = Endpoint { aliases: vec!["_web".to_owned()], ip, ..Endpoint::default() };
            instance.networks = BTreeMap::from([("shop_default".to_owned(), endpoint)]);
        }
    }
    let observed = stage.world.observed.clone();
    let part = observed.parts.values().find(|part| {
        let of = part.part.as_ref().unwrap();
        of.name == "serve" && observed.instances[&of.pod].instance.slot == 2
    });
    let stopping: BTreeSet<ContainerId> = [part.unwrap().id.clone()].into();
    let told = |stopping: &BTreeSet<ContainerId>| {
        driftless_plan::proxy_endpoints(&stage.stack, &observed, &Plan::default(), stopping)[0]
            .endpoints
            .words()
    };
    assert_eq!(told(&BTreeSet::new()), ["_web=10.0.0.1,10.0.0.2"]);
    assert_eq!(told(&stopping), ["_web=10.0.0.1"]);
}
