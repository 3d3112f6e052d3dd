//! Applications of a Docker Swarm: services that are created, updated, healed, removed, and left alone.

mod engine_change;
mod explain;
mod images;
mod jobs;
mod keys;
mod leaving;
mod networks;
mod ports;
mod tasks;
mod updates;
mod volumes;
mod writers;

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use driftless_model::{
    Actor, Adopt, AgentId, Condition, Container, Dependency, EngineKind, IgnoredDifferences, Mask, Network,
    NetworkMode, Observed, ObservedNetwork, ObservedService, ObservedSwarm, Policy, Record, ResolvedImage,
    SWARM_OWNER, ScaleOverride, SharedObject, SpecHash, Stack, StackHash, StackHashes, SwarmFile,
    SwarmFileKind, SwarmMode, SwarmNode, SwarmObject, SwarmService, SwarmTask, SyncStatus, Timestamp,
    Workload, label, written_data,
};
use driftless_plan::{
    Action, Assessment, Plan, Round, StepOutcome, SwarmAction, SwarmResult, Target, assess, note_executed,
    note_observed, note_planned, note_settled, plan, with_tasks, without_runs,
};
use serde_json::{Value, json};

use crate::fixture::{NOON, stack, workload};

/// An application and the Swarm that runs it.
struct Cluster {
    stack: Stack,
    reached: Option<Stack>,
    policy: Policy,
    record: Record,
    observed: Observed,
    swarm: ObservedSwarm,
    now: Timestamp,
    /// Updates to these images are rolled back.
    broken: Vec<&'static str>,
    /// The state that tasks come to, by service, and the exit code. Others run.
    ends: BTreeMap<&'static str, (&'static str, i64)>,
    /// Tasks that still run although the Swarm has stopped them.
    lingering: Vec<SwarmTask>,
}

impl Cluster {
    fn new(workloads: impl IntoIterator<Item = (&'static str, Workload)>) -> Self {
        let mut stack = stack(workloads);
        stack.swarm = stack.workloads.keys().map(|name| (name.clone(), SwarmService::default())).collect();
        let leader =
            SwarmNode { name: "one".to_owned(), is_manager: true, is_leader: true, ..SwarmNode::default() };
        let swarm = ObservedSwarm {
            node: "n1".to_owned(),
            nodes: [("n1".to_owned(), leader)].into(),
            ..ObservedSwarm::default()
        };
        let policy = Policy { engine: EngineKind::Swarm, ..Policy::default() };
        Self {
            stack,
            reached: None,
            policy,
            record: Record::default(),
            observed: Observed::default(),
            swarm,
            now: NOON,
            broken: Vec::new(),
            ends: BTreeMap::new(),
            lingering: Vec::new(),
        }
    }

    /// One round, in which each step succeeds, and the Swarm then does what its services say.
    fn round(&mut self) -> Plan {
        let (mask, images, agent) = (Mask::new([7; 32]), BTreeMap::new(), AgentId("agent".to_owned()));
        let hashes = StackHashes::of(&self.stack);
        let target = Target {
            stack: &self.stack,
            hashes: &hashes,
            reached: self.reached.as_ref(),
            agent: &agent,
            policy: &self.policy,
            images: &images,
            mask: &mask,
        };
        let mut observed = self.seen();
        with_tasks(&target, &mut observed, &mut self.record);
        note_observed(&mut self.record, &target, &observed, self.now);
        let made = plan(&target, &observed, &self.record, self.now);
        note_planned(&mut self.record, &made, self.now);
        if made.is_reached() {
            note_settled(&mut self.record, &target, &observed);
            return made;
        }
        let outcomes: Vec<StepOutcome> = made
            .steps
            .iter()
            .map(|step| perform(&mut self.swarm, &mut self.observed, &step.action))
            .collect();
        note_executed(&mut self.record, &target, &made, &outcomes, self.now);
        self.run();
        self.now = self.now.after(Duration::from_secs(2));
        made
    }

    /// The engine as it is observed now.
    fn seen(&self) -> Observed {
        Observed { swarm: Some(Box::new(self.swarm.clone())), ..self.observed.clone() }
    }

    /// Calls a function with the target of the planner.
    fn with_target(&self, call: impl FnOnce(&Target<'_>)) {
        let (mask, images, agent) = (Mask::new([7; 32]), BTreeMap::new(), AgentId("agent".to_owned()));
        let hashes = StackHashes::of(&self.stack);
        call(&Target {
            stack: &self.stack,
            hashes: &hashes,
            reached: self.reached.as_ref(),
            agent: &agent,
            policy: &self.policy,
            images: &images,
            mask: &mask,
        });
    }

    /// Rounds until nothing is left to do. Returns the steps.
    fn settle(&mut self) -> Vec<String> {
        let mut steps = Vec::new();
        for _ in 0..30 {
            let made = self.round();
            if made.is_settled() {
                return steps;
            }
            steps.extend(made.steps.iter().map(|step| step.action.to_string()));
        }
        panic!("not settled after {steps:?}");
    }

    /// The steps of the rounds until one has none. Waits may be left.
    fn steps(&mut self) -> Vec<String> {
        let rounds = std::iter::repeat_with(|| self.round().steps).take_while(|steps| !steps.is_empty());
        rounds.take(30).flatten().map(|step| step.action.to_string()).collect()
    }

    /// The Swarm runs what the services say, and rolls back what is broken. A paused update has reached all tasks but the first.
    fn run(&mut self) {
        let is_job = |swarm: &ObservedSwarm, task: &SwarmTask| {
            !swarm.services.values().any(|it| it.id == task.service && !it.is_job())
        };
        let swarm = self.swarm.clone();
        self.swarm.tasks.retain(|_, task| is_job(&swarm, task));
        self.run_jobs();
        self.swarm.tasks.extend(self.lingering.iter().map(|task| (task.id.clone(), task.clone())));
        for (name, service) in self.swarm.services.iter_mut().filter(|(_, it)| !it.is_job()) {
            let end = self.ends.get(name.as_str()).copied();
            let image = service.image().unwrap_or_default().to_owned();
            if self.broken.iter().any(|broken| image.starts_with(broken)) {
                service.update_state = "rollback_completed".to_owned();
                service.update_message = "update rolled back due to failure".to_owned();
            }
            let replicas = service.spec.pointer("/Mode/Replicated/Replicas").and_then(Value::as_u64);
            let is_nowhere = service.spec.to_string().contains("node.id==none");
            let replicas = if is_nowhere { 0 } else { replicas.or(service.desired_tasks).unwrap_or(1) };
            for slot in 1..=u32::try_from(replicas).unwrap() {
                let task = SwarmTask {
                    id: format!("{}.{slot}", service.id),
                    service: service.id.clone(),
                    slot: Some(slot),
                    node: Some("n1".to_owned()),
                    state: end.map_or("running", |(state, _)| state).to_owned(),
                    desired_state: if end.is_some() { "shutdown" } else { "running" }.to_owned(),
                    exit_code: end.map(|(_, code)| code),
                    is_current: service.update_state != "paused" || slot > 1,
                    writes: written_data(&service.spec["TaskTemplate"]),
                    ..SwarmTask::default()
                };
                self.swarm.tasks.insert(task.id.clone(), task);
            }
        }
    }

    /// Each run of a Job has its tasks, which run or end. Those of a run before are removed if they run, as by a Swarm.
    fn run_jobs(&mut self) {
        let now = self.now;
        for (name, service) in self.swarm.services.iter().filter(|(_, it)| it.is_job()) {
            let iteration = service.iteration;
            let is_former = |task: &SwarmTask| {
                task.service == service.id && !task.id.starts_with(&format!("{}.{iteration}.", service.id))
            };
            self.swarm.tasks.retain(|_, task| !is_former(task) || task.state == "complete");
            for task in self.swarm.tasks.values_mut().filter(|it| is_former(it)) {
                task.is_current = false;
            }
            let total = service.spec.pointer("/Mode/ReplicatedJob/TotalCompletions").and_then(Value::as_u64);
            for slot in 0..u32::try_from(total.unwrap_or(1)).unwrap() {
                let id = format!("{}.{iteration}.{slot}", service.id);
                let task = self.swarm.tasks.entry(id.clone()).or_insert_with(|| SwarmTask {
                    id,
                    service: service.id.clone(),
                    slot: Some(slot).filter(|it| *it > 0),
                    node: Some("n1".to_owned()),
                    state: "running".to_owned(),
                    desired_state: "complete".to_owned(),
                    is_current: true,
                    since: now,
                    created: now,
                    ..SwarmTask::default()
                });
                if let Some((state, code)) = self.ends.get(name.as_str()).filter(|_| task.state == "running")
                {
                    (task.state, task.since, task.exit_code) = ((*state).to_owned(), now, Some(*code));
                    if *code != 0 {
                        task.error = format!("task: non-zero exit ({code})");
                    }
                }
            }
        }
    }

    fn spec(&mut self, service: &str) -> &mut Value {
        let service = self.swarm.services.get_mut(service).unwrap();
        service.version += 1;
        &mut service.spec
    }

    /// The status of the application now, without a round.
    fn assess(&self) -> Assessment {
        let mut assessed = None;
        self.with_target(|target| {
            let (mut observed, mut record) = (self.seen(), self.record.clone());
            with_tasks(target, &mut observed, &mut record);
            note_observed(&mut record, target, &observed, self.now);
            let plan = plan(target, &observed, &record, self.now);
            let round = Round {
                stack: target.stack,
                hashes: target.hashes,
                policy: target.policy,
                observed: &observed,
                record: &record,
                plan: &plan,
                now: self.now,
            };
            assessed = Some(assess(&round, &[], &BTreeMap::new()));
        });
        assessed.unwrap()
    }

    fn waits(&mut self) -> String {
        self.round().waits.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
    }
}

/// The id of configs and secrets that have the content of Git.
const SAME: &str = "same";

fn perform(swarm: &mut ObservedSwarm, observed: &mut Observed, action: &Action) -> StepOutcome {
    let failed =
        |error: &str| StepOutcome::Failed { error: error.to_owned(), retry_after: None, is_final: false };
    match action {
        Action::CreateNetwork { name, network, project: _, addresses } => {
            let made = ObservedNetwork {
                id: format!("id-{name}"),
                agent: Some(AgentId(SWARM_OWNER.to_owned())),
                app: Some("shop".into()),
                spec: Some(SpecHash::of(network)),
                addresses: addresses.map(|wanted| wanted.max(252)),
                ..ObservedNetwork::default()
            };
            observed.networks.insert(name.clone(), made);
        }
        Action::RemoveNetwork { name, .. } => {
            observed.networks.remove(name).unwrap();
        }
        Action::Swarm(action) => match action.as_ref() {
            SwarmAction::ResolveImage { image, .. } => {
                let image = if image.contains('@') { image.clone() } else { format!("{image}@sha256:1") };
                let resolved = ResolvedImage { image, ..ResolvedImage::default() };
                return StepOutcome::Swarm(Box::new(SwarmResult::Resolved(resolved)));
            }
            SwarmAction::CreateFile { file, present, .. } => {
                let all = swarm.files_of_mut(file.kind());
                let same = present.as_ref().filter(|present| present.id == SAME);
                let object = SwarmObject {
                    id: same.map_or_else(|| format!("id-{}", file.name), |same| same.id.clone()),
                    name: same.map_or_else(|| file.name.clone(), |same| same.name.clone()),
                };
                all.insert(file.name.clone(), object);
            }
            SwarmAction::RemoveFile { name, secret, .. } => {
                if swarm.shared.take_if(|shared| shared.name == *name).is_none() {
                    let all = swarm.files_of_mut(SwarmFileKind::of(*secret));
                    let before = all.len();
                    all.retain(|_, object| object.name != *name);
                    assert_eq!(all.len() + 1, before, "{name} is not there");
                }
            }
            SwarmAction::CreateService { name, spec, .. } => {
                ports::check(swarm, name, spec);
                // Each service has an id of its own.
                static NUMBER: AtomicU64 = AtomicU64::new(0);
                let id = format!("id-{name}-{}", NUMBER.fetch_add(1, Ordering::Relaxed));
                let service =
                    ObservedService { id: id.clone(), version: 1, spec: spec.clone(), ..Default::default() };
                assert!(swarm.services.insert(name.clone(), service).is_none(), "{name} exists");
                return StepOutcome::Swarm(Box::new(SwarmResult::Written { id, spec: spec.clone() }));
            }
            SwarmAction::UpdateService { name, id, version, spec, .. } => {
                ports::check(swarm, name, spec);
                let service = swarm.services.get_mut(name).unwrap();
                assert!(!service.is_job(), "an update runs the Job {name} again");
                if service.version != *version {
                    return failed("update out of sequence");
                }
                service.version += 1;
                service.spec = spec.clone();
                service.update_state = "completed".to_owned();
                return StepOutcome::Swarm(Box::new(SwarmResult::Written {
                    id: id.clone(),
                    spec: spec.clone(),
                }));
            }
            SwarmAction::StopService { name, spec, .. } => {
                let service = swarm.services.get_mut(name).unwrap();
                service.version += 1;
                service.iteration = service.version;
                service.spec = spec.clone();
            }
            SwarmAction::RemoveService { name, .. } => {
                let service = swarm.services.remove(name).unwrap();
                let is_labelled =
                    [label::AGENT, label::APPLICATION].iter().any(|it| service.label(it).is_some());
                assert!(is_labelled, "the removal of {name} is refused without labels");
                let runs = |it: &SwarmTask| it.service == service.id && it.state == "running";
                // Engine 20.10 stops no task of a Job with its service.
                assert!(!service.is_job() || !swarm.tasks.values().any(runs), "tasks of {name} would run on");
                swarm.tasks.retain(|_, task| task.service != service.id);
            }
            SwarmAction::ShareState { .. } => panic!("the planner shares no state"),
        },
        other => panic!("no step for a Swarm: {other}"),
    }
    StepOutcome::Done
}

fn shop() -> Cluster {
    let mut web = workload("web:1", 2);
    let on_db =
        Dependency { workload: "db".into(), condition: Condition::Healthy, restart: false, required: true };
    web.after.push(on_db);
    Cluster::new([("web", web), ("db", workload("db:1", 1))])
}

fn change(cluster: &mut Cluster, name: &str, image: &str) {
    cluster.stack.workloads.get_mut(&name.into()).unwrap().container.image = image.to_owned();
}

#[test]
fn services_are_created_in_the_order_of_depends_on() {
    let mut cluster = shop();
    let steps = cluster.settle();
    assert_eq!(
        steps,
        [
            "find the digest of db:1",
            "find the digest of web:1",
            "create service shop_db from db:1",
            "create service shop_web from web:1"
        ]
    );
    // The second service waits for a round in which the first one runs.
    let image = cluster.swarm.services["shop_web"].image().map(str::to_owned);
    assert_eq!(image.as_deref(), Some("web:1@sha256:1"));
}

#[test]
fn rounds_after_the_last_change_write_nothing() {
    let mut cluster = shop();
    cluster.settle();
    let before = cluster.swarm.clone();
    for _ in 0..100 {
        let made = cluster.round();
        assert!(made.steps.is_empty() && made.is_settled(), "{made}");
    }
    assert_eq!(cluster.swarm, before);
}

#[test]
fn update_is_of_the_version_that_was_seen() {
    let mut cluster = shop();
    cluster.settle();
    cluster.swarm.services.get_mut("shop_web").unwrap().version = 41;
    change(&mut cluster, "web", "web:2");
    let steps = cluster.settle();
    assert_eq!(steps, ["find the digest of web:2", "update service shop_web"]);
    assert_eq!(cluster.swarm.services["shop_web"].version, 42);
}

#[test]
fn update_of_an_outdated_version_looks_again() {
    let mut cluster = shop();
    cluster.settle();
    change(&mut cluster, "web", "web:2");
    cluster.round();
    // Somebody scales between the observation and the update.
    let mut stale = cluster.swarm.clone();
    stale.services.get_mut("shop_web").unwrap().version += 1;
    let service = cluster.swarm.services["shop_web"].clone();
    let action = SwarmAction::UpdateService {
        name: "shop_web".to_owned(),
        id: service.id,
        version: service.version,
        image: "web:2".to_owned(),
        secrets: Vec::new(),
        spec: json!({}),
    };
    let outcome = perform(&mut stale, &mut Observed::default(), &Action::Swarm(Box::new(action)));
    assert!(matches!(outcome, StepOutcome::Failed { .. }));
    cluster.swarm = stale;
    assert_eq!(cluster.settle(), ["update service shop_web"]);
}

#[test]
fn changes_by_hand_are_undone_by_one_update_each() {
    for (pointer, value) in
        [("/Mode/Replicated/Replicas", json!(5)), ("/TaskTemplate/ContainerSpec/Image", json!("other:1"))]
    {
        let mut cluster = shop();
        cluster.settle();
        *cluster.spec("shop_web").pointer_mut(pointer).unwrap() = value;
        assert_eq!(cluster.settle(), ["update service shop_web"], "{pointer}");
    }
    for (field, value) in [("Env", json!(["A=1"])), ("Command", json!(["sh"])), ("User", json!("root"))] {
        let mut cluster = shop();
        cluster.settle();
        cluster.spec("shop_web")["TaskTemplate"]["ContainerSpec"][field] = value;
        let made = cluster.round();
        assert!(made.steps[0].cause.to_string().ends_with(", not unset"), "{}", made.steps[0].cause);
        assert_eq!(made.steps[0].action.to_string(), "update service shop_web", "{field}");
        assert_eq!(cluster.settle(), Vec::<String>::new(), "{field}");
        assert_eq!(
            cluster.swarm.services["shop_web"].spec["TaskTemplate"]["ContainerSpec"][field],
            Value::Null
        );
    }
    let mut cluster = shop();
    cluster.settle();
    cluster.swarm.services.remove("shop_web");
    assert_eq!(cluster.settle(), ["create service shop_web from web:1"]);
}

#[test]
fn changes_by_hand_are_left_without_self_heal() {
    let mut cluster = shop();
    cluster.policy.self_heal = false;
    cluster.settle();
    *cluster.spec("shop_web").pointer_mut("/Mode/Replicated/Replicas").unwrap() = json!(5);
    let made = cluster.round();
    assert!(made.steps.is_empty());
    assert_eq!(made.drifts[0].field, "Mode.Replicated.Replicas");
}

#[test]
fn commit_is_reached_while_a_service_is_scaled_by_hand() {
    let mut cluster = shop();
    cluster.policy.self_heal = false;
    cluster.settle();
    *cluster.spec("shop_web").pointer_mut("/Mode/Replicated/Replicas").unwrap() = json!(1);
    cluster.run();
    change(&mut cluster, "db", "db:2");
    let last = (0..30).map(|_| cluster.round()).find(Plan::is_reached).unwrap();
    assert_eq!(last.drifts[0].field, "Mode.Replicated.Replicas", "{last}");
    assert!(cluster.record.settled.is_some());
}

#[test]
fn secret_in_a_command_by_hand_is_not_shown() {
    let mut cluster = shop();
    cluster.settle();
    cluster.spec("shop_web")["TaskTemplate"]["ContainerSpec"]["Args"] = json!(["--password", "hunter2"]);
    let made = cluster.round();
    let fields: Vec<&str> = made.drifts.iter().map(|drift| drift.field.as_str()).collect();
    assert!(fields.iter().any(|field| field.contains("Args")), "{fields:?}");
    assert!(!format!("{:?} {:?}", made.drifts, made.waits).contains("hunter2"), "{:?}", made.drifts);
}

#[test]
fn restart_by_force_is_no_drift() {
    let mut cluster = shop();
    cluster.settle();
    cluster.spec("shop_web")["TaskTemplate"]["ForceUpdate"] = json!(1);
    assert!(cluster.round().steps.is_empty());
}

#[test]
fn many_services_are_removed_after_a_confirmation() {
    let names = ["a", "b", "c", "d", "e"];
    let mut cluster = Cluster::new(names.map(|name| (name, workload("web:1", 1))));
    cluster.settle();
    cluster.stack.workloads.retain(|name, _| name.as_str() == "a");
    assert!(cluster.waits().contains("maxPrunePercent"));
    assert_eq!(cluster.swarm.services.len(), 5);
    cluster.record.prune = Some(StackHashes::of(&cluster.stack).stack);
    let steps = cluster.settle();
    assert_eq!(steps.len(), 4, "{steps:?}");
    assert_eq!(cluster.swarm.services.keys().collect::<Vec<_>>(), ["shop_a"]);
}

#[test]
fn protected_services_are_kept() {
    let mut cluster = shop();
    cluster.settle();
    cluster.spec("shop_web")["Labels"]["driftless.prune"] = json!("false");
    let name = "shop_web";
    let labels = cluster.swarm.services[name].spec["Labels"].clone();
    cluster.stack.workloads.retain(|name, _| name.as_str() == "db");
    let waits = cluster.waits();
    assert!(waits.contains("remove it with `docker service rm shop_web`"), "{waits}");
    assert!(cluster.swarm.services.contains_key(name), "{labels}");
}

#[test]
fn protected_service_keeps_its_files_and_networks() {
    let mut web = workload("web:1", 1);
    let attached = [("shop_net".to_owned(), Box::default())];
    web.container.network_mode = NetworkMode::Networks(attached.into());
    let mut cluster = Cluster::new([("web", web), ("db", workload("db:1", 1))]);
    for name in ["shop_net", "shop_back"] {
        let network = Network { driver: Some("overlay".to_owned()), ..Network::default() };
        cluster.stack.networks.insert(name.to_owned(), network);
    }
    let file = |name: &str, secret: bool| SwarmFile {
        name: name.to_owned(),
        target: format!("/{name}"),
        secret,
        ..SwarmFile::default()
    };
    cluster.stack.swarm.get_mut(&"web".into()).unwrap().files =
        vec![file("shop_a", false), file("shop_key", true)];
    cluster.stack.swarm.get_mut(&"db".into()).unwrap().files = vec![file("shop_b", false)];
    cluster.settle();
    cluster.spec("shop_web")["Labels"]["driftless.prune"] = json!("false");
    cluster.stack = cluster.stack.emptied();
    let steps = cluster.settle();
    assert_eq!(steps, ["remove service shop_db", "remove config shop_b", "remove network shop_back"]);
    // Without the service, the rest goes as well.
    cluster.swarm.services.clear();
    let steps = cluster.settle();
    assert_eq!(steps, ["remove config shop_a", "remove secret shop_key", "remove network shop_net"]);
}

#[test]
fn labels_of_the_agent_removed_by_hand_are_written_again() {
    for label in ["driftless.agent", "driftless.application"] {
        let mut cluster = shop();
        cluster.settle();
        let before = cluster.swarm.services["shop_web"].spec.clone();
        cluster.spec("shop_web")["Labels"].as_object_mut().unwrap().remove(label).unwrap();
        let made = cluster.round();
        assert_eq!(made.drifts[0].field, format!("Labels.{label}"), "{made}");
        assert_eq!(made.steps[0].action.to_string(), "update service shop_web");
        assert_eq!(cluster.settle(), [""; 0]);
        assert_eq!(cluster.swarm.services["shop_web"].spec, before);
    }
}

#[test]
fn service_without_one_label_goes_when_it_leaves_git() {
    for label in ["driftless.agent", "driftless.application"] {
        let mut cluster = shop();
        cluster.settle();
        cluster.spec("shop_web")["Labels"].as_object_mut().unwrap().remove(label).unwrap();
        cluster.stack.workloads.remove(&"web".into());
        cluster.stack.swarm.remove(&"web".into());
        assert!(cluster.settle().contains(&"remove service shop_web".to_owned()), "{label}");
        assert!(!cluster.swarm.services.contains_key("shop_web"), "{label}");
    }
}

#[test]
fn services_and_networks_of_others_are_left_alone() {
    let mut cluster = shop();
    let theirs = ObservedService {
        id: "theirs".to_owned(),
        version: 1,
        spec: json!({"Name": "shop_web", "Labels": {"com.docker.stack.namespace": "shop"}, "Mode": {"Replicated": {"Replicas": 1}}}),
        ..ObservedService::default()
    };
    cluster.swarm.services.insert("shop_web".to_owned(), theirs.clone());
    for _ in 0..5 {
        cluster.round();
    }
    assert_eq!(cluster.swarm.services["shop_web"], theirs);
    assert!(cluster.waits().contains("adopt it with `driftless adopt shop`, set `adopt: auto`"));
    cluster.record.swarm.get_or_insert_default().adopts.insert("web".into());
    cluster.policy.adopt = Adopt::Never;
    cluster.round();
    assert_eq!(cluster.swarm.services["shop_web"], theirs);
    assert!(cluster.waits().contains("`adopt` is `never`"));
    cluster.policy.adopt = Adopt::Ask;
    assert_eq!(cluster.settle(), ["update service shop_web"]);
    assert!(cluster.record.swarm.as_ref().is_some_and(|kept| kept.adopts.is_empty()));
    cluster.swarm.services.insert("shop_web".to_owned(), theirs.clone());
    cluster.policy.adopt = Adopt::Auto;
    assert_eq!(cluster.settle(), ["update service shop_web"]);
    // A service of the application without our labels is not removed either.
    let mut cluster = shop();
    cluster.settle();
    let foreign = ObservedService {
        spec: json!({"Name": "shop_x", "Labels": {}, "Mode": {"Replicated": {"Replicas": 1}}}),
        ..theirs
    };
    cluster.swarm.services.insert("shop_x".to_owned(), foreign);
    let network = ObservedNetwork { id: "n".to_owned(), ..ObservedNetwork::default() };
    cluster.observed.networks.insert("shop_other".to_owned(), network);
    cluster.stack.workloads.clear();
    cluster.stack.swarm.clear();
    cluster.settle();
    assert_eq!(cluster.swarm.services.keys().collect::<Vec<_>>(), ["shop_x"]);
    assert_eq!(cluster.observed.networks.keys().collect::<Vec<_>>(), ["shop_other"]);
}

#[test]
fn adopted_service_keeps_the_form_of_its_tasks() {
    let mut cluster = shop();
    let container = &mut cluster.stack.workloads.get_mut(&"web".into()).unwrap().container;
    container.extra_hosts = vec!["a:10.0.0.1".to_owned(), "b:10.0.0.2".to_owned()];
    cluster.settle();
    // As `docker stack deploy` would have made it: another order of lists, defaults left out or written out.
    let spec = cluster.spec("shop_web");
    for name in ["driftless.agent", "driftless.application", "driftless.workload", "driftless.spec"] {
        spec["Labels"].as_object_mut().unwrap().remove(name);
    }
    spec["EndpointSpec"] = json!({"Mode": "vip"});
    let task = spec["TaskTemplate"].as_object_mut().unwrap();
    task.remove("RestartPolicy");
    task.insert("ForceUpdate".to_owned(), 2.into());
    task["ContainerSpec"]["Hosts"].as_array_mut().unwrap().reverse();
    task["ContainerSpec"]["Isolation"] = "default".into();
    let made = spec.clone();
    cluster.record = Record::default();
    cluster.policy.adopt = Adopt::Auto;
    assert_eq!(cluster.settle(), ["update service shop_web"]);
    let adopted = cluster.spec("shop_web").clone();
    assert_eq!(adopted["Labels"]["driftless.agent"], "swarm");
    assert_eq!(adopted["TaskTemplate"], made["TaskTemplate"]);
    assert_eq!(adopted["EndpointSpec"], made["EndpointSpec"]);
    // A change in Git is made all the same, also to `false`, which is no value elsewhere.
    cluster.stack.workloads.get_mut(&"web".into()).unwrap().container.init = Some(false);
    assert_eq!(cluster.settle(), ["update service shop_web"]);
    assert_eq!(cluster.spec("shop_web")["TaskTemplate"]["ContainerSpec"]["Init"], false);
}

#[test]
fn number_that_a_user_sets_costs_no_more_looks() {
    let mut cluster = shop();
    cluster.settle();
    let looks = |cluster: &mut Cluster| {
        let made = cluster.round();
        assert!(made.is_settled(), "{made}");
        made.look_again.unwrap().since(cluster.now)
    };
    let quiet = looks(&mut cluster);
    let until = cluster.now.after(Duration::from_hours(1));
    let scale = ScaleOverride { replicas: 2, until, at: cluster.now, actor: Actor::agent() };
    cluster.record.scales.insert("web".into(), scale);
    cluster.stack.workloads.get_mut(&"web".into()).unwrap().scaled_from = Some(1);
    assert!(cluster.waits().contains("is scaled to 2"));
    assert_eq!(looks(&mut cluster), quiet);
    // Until something is on its way.
    change(&mut cluster, "web", "web:2");
    let sooner = cluster.round().look_again.unwrap().since(cluster.now);
    assert!(sooner < quiet, "{sooner:?} and {quiet:?}");
}

#[test]
fn files_and_networks_go_with_their_services() {
    let mut cluster = shop();
    let file =
        |name: &str| SwarmFile { name: name.to_owned(), target: "/a".to_owned(), ..SwarmFile::default() };
    cluster.stack.swarm.get_mut(&"web".into()).unwrap().files = vec![file("shop_a_1")];
    cluster.stack.networks.insert(
        "shop_default".to_owned(),
        Network { driver: Some("overlay".to_owned()), ..Network::default() },
    );
    let steps = cluster.settle();
    assert!(steps.iter().any(|step| step == "create config shop_a_1"), "{steps:?}");
    cluster.stack.swarm.get_mut(&"web".into()).unwrap().files = vec![file("shop_a_2")];
    let steps = cluster.settle();
    // The former content is kept for a rollback.
    assert_eq!(steps, ["create config shop_a_2", "update service shop_web"]);
    // One that no revision needs any more is removed.
    cluster.record.swarm.as_mut().unwrap().kept.remove(0);
    cluster.swarm.nodes.get_mut("n1").unwrap().is_leader = false;
    assert!(cluster.round().is_settled(), "the agent on another manager has nothing to do");
    cluster.swarm.nodes.get_mut("n1").unwrap().is_leader = true;
    assert_eq!(cluster.settle(), ["remove config shop_a_1"]);
    // As the agent removes an application that has left Git.
    cluster.stack = cluster.stack.emptied();
    cluster.settle();
    assert!(cluster.swarm.services.is_empty());
    assert!(cluster.swarm.configs.is_empty(), "{:?}", cluster.swarm.configs);
    assert!(cluster.observed.networks.is_empty());
}

/// A service of `docker stack deploy` that mounts a config and a secret. `id` is that of both.
fn stack_with_files(id: &str) -> Cluster {
    let mut cluster = Cluster::new([("web", workload("web:1", 2))]);
    let file = |name: &str, target: &str, secret: bool| SwarmFile {
        name: name.to_owned(),
        target: target.to_owned(),
        secret,
        mode: 0o444,
        ..SwarmFile::default()
    };
    cluster.stack.swarm.get_mut(&"web".into()).unwrap().files =
        vec![file("shop_a_1", "/a", false), file("shop_key_1", "/run/secrets/key", true)];
    cluster.settle();
    let spec = cluster.spec("shop_web");
    spec["Labels"] = json!({"com.docker.stack.image": "web:1", "com.docker.stack.namespace": "shop"});
    let place = |name: &str| json!({"Name": name, "UID": "0", "GID": "0", "Mode": 0o444});
    let container = &mut spec["TaskTemplate"]["ContainerSpec"];
    container["Configs"] = json!([{"ConfigName": "shop_a", "ConfigID": id, "File": place("/a")}]);
    // As `docker stack deploy` writes it.
    container["Secrets"] = json!([{"SecretName": "shop_key", "SecretID": id, "File": place("key")}]);
    cluster.swarm.configs.clear();
    cluster.swarm.secrets.clear();
    cluster.record = Record::default();
    cluster
}

#[test]
fn adopted_service_keeps_its_configs_and_secrets() {
    let mut cluster = stack_with_files(SAME);
    let made = cluster.spec("shop_web")["TaskTemplate"].clone();
    // Nothing is created for a service that is not adopted.
    assert!(cluster.round().steps.is_empty());
    cluster.policy.adopt = Adopt::Auto;
    let adopted = [
        "adopt config shop_a, or create shop_a_1 if its content differs",
        "adopt secret shop_key, or create shop_key_1 if its content differs",
        "update service shop_web",
    ];
    let mut steps = cluster.settle();
    steps.sort_by_key(|step| adopted.iter().position(|it| it == step));
    assert_eq!(steps, adopted);
    assert_eq!(cluster.spec("shop_web")["TaskTemplate"], made);
    assert_eq!(explain::differences(&cluster), [""; 0]);
    // Another content is another config, and the adopted one is removed once no revision needs it.
    cluster.stack.swarm.get_mut(&"web".into()).unwrap().files[0].name = "shop_a_2".to_owned();
    assert_eq!(cluster.settle(), ["create config shop_a_2", "update service shop_web"]);
    cluster.record.swarm.as_mut().unwrap().kept.remove(0);
    assert_eq!(cluster.settle(), ["remove config shop_a"]);
}

#[test]
fn adopted_service_gets_the_files_of_git_if_its_own_differ() {
    let mut cluster = stack_with_files("other");
    cluster.policy.adopt = Adopt::Auto;
    assert_eq!(cluster.settle().last().map(String::as_str), Some("update service shop_web"));
    let container = cluster.spec("shop_web")["TaskTemplate"]["ContainerSpec"].clone();
    assert_eq!(container["Configs"][0]["ConfigName"], "shop_a_1");
    assert_eq!(container["Secrets"][0]["SecretName"], "shop_key_1");
    assert_eq!(cluster.swarm.secrets["shop_key_1"].name, "shop_key_1");
}

#[test]
fn service_waits_for_its_external_configs_and_secrets() {
    let mut cluster = shop();
    let external = |name: &str, secret: bool| SwarmFile {
        name: name.to_owned(),
        target: format!("/{name}"),
        external: true,
        secret,
        ..SwarmFile::default()
    };
    cluster.stack.swarm.get_mut(&"web".into()).unwrap().files =
        vec![external("rules", false), external("key", true)];
    for _ in 0..5 {
        cluster.round();
    }
    assert_eq!(cluster.swarm.services.keys().collect::<Vec<_>>(), ["shop_db"]);
    let waits = cluster.waits();
    for text in [
        "web needs the external config `rules`, which does not exist",
        "web needs the external secret `key`, which does not exist: create it with `docker secret create key FILE`",
    ] {
        assert!(waits.contains(text), "{waits}");
    }
    assert!(explain::differences(&cluster).contains(&"secret key: Missing".to_owned()));
    cluster.swarm.external_configs.insert("rules".to_owned(), None);
    cluster.swarm.external_secrets.insert("key".to_owned(), Some("db".into()));
    let waits = cluster.waits();
    assert!(
        waits.contains("needs the external secret `key`, which the application `db` has for itself alone"),
        "{waits}"
    );
    assert!(!waits.contains("config"), "{waits}");
    cluster.swarm.external_secrets.insert("key".to_owned(), None);
    assert_eq!(cluster.settle(), ["create service shop_web from web:1"]);
    let container = cluster.spec("shop_web")["TaskTemplate"]["ContainerSpec"].clone();
    assert_eq!(container["Secrets"][0]["SecretName"], "key");
    // Nothing that somebody else created is removed.
    cluster.stack = cluster.stack.emptied();
    assert!(cluster.settle().iter().all(|step| step.starts_with("remove service")));
}

#[test]
fn agent_on_another_manager_writes_nothing_and_says_so() {
    let mut cluster = shop();
    cluster.swarm.nodes.get_mut("n1").unwrap().is_leader = false;
    for _ in 0..5 {
        assert!(cluster.round().steps.is_empty());
    }
    assert!(cluster.waits().contains("is left to the agent on the leader of the Swarm"));
    assert!(cluster.swarm.services.is_empty());
}

#[test]
fn agent_on_standby_soon_looks_whether_it_leads() {
    let mut cluster = shop();
    cluster.settle();
    cluster.swarm.nodes.get_mut("n1").unwrap().is_leader = false;
    // Nothing is left to do.
    assert_eq!(cluster.round().look_again, Some(cluster.now.after(Duration::from_secs(15))));
    change(&mut cluster, "web", "web@sha256:2");
    let soon = cluster.now.after(Duration::from_secs(2));
    assert_eq!(cluster.round().look_again, Some(soon));
    cluster.swarm.nodes.get_mut("n1").unwrap().is_leader = true;
    assert_eq!(cluster.settle(), ["update service shop_web"]);
}

#[test]
fn shared_state_is_removed_with_its_application() {
    let mut cluster = shop();
    cluster.settle();
    let shared =
        SharedObject { name: "driftless.shop".to_owned(), id: "c1".to_owned(), ..SharedObject::default() };
    cluster.swarm.shared = Some(shared);
    assert_eq!(cluster.settle(), Vec::<String>::new());
    cluster.stack = cluster.stack.emptied();
    let steps = cluster.settle();
    assert_eq!(steps.last().map(String::as_str), Some("remove config driftless.shop"), "{steps:?}");
}

#[test]
fn settings_without_a_meaning_in_a_swarm_are_refused() {
    let change: [(&str, fn(&mut Policy)); 2] = [
        ("ignoreDifferences", |policy| {
            policy.ignore_differences.push(IgnoredDifferences {
                workload: None,
                fields: Vec::new(),
                place: None,
            })
        }),
        ("filesystemDrift", |policy| policy.filesystem_drift = driftless_model::FilesystemDrift::Revert),
    ];
    for (key, set) in change {
        let mut cluster = shop();
        set(&mut cluster.policy);
        let waits = cluster.waits();
        assert!(waits.contains(key), "{key}: {waits}");
        cluster.round();
        assert!(cluster.swarm.services.is_empty());
    }
}

#[test]
fn revision_does_not_depend_on_the_number_of_nodes() {
    let mut cluster = Cluster::new([("logs", workload("logs:1", 1))]);
    for service in cluster.stack.swarm.values_mut() {
        service.mode = SwarmMode::Global;
    }
    let given = cluster.stack.as_given();
    let mut fitted = Stack { given: Some(given.clone()), ..cluster.stack };
    for workload in fitted.workloads.values_mut() {
        workload.replicas = 3;
    }
    assert_eq!(StackHash::of(&without_runs(&fitted)), given.hash);
}
