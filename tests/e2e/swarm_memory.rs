//! The Swarm in memory behaves as a real one: the same operations on both, and after each the same to be seen.
//! `make e2e-swarm`, as root.

use std::{collections::BTreeMap, fs, path::Path, sync::Mutex, time::Duration};

use driftless_clock::Clock;
use driftless_config::DockerHost;
use driftless_docker::{
    Docker as _, Effect, Engine, EngineOptions, Error, ObserveScope, RegistryLogins, SimulatedEngine,
    SimulatedSwarm,
};
use driftless_model::{
    AgentId, AppName, ContentId, Network, Observed, SWARM_OWNER, SharedState, SwarmFile, label,
};
use driftless_plan::{Action, PresentFile, SwarmAction};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::UnixStream,
    time::{Instant, sleep},
};

use crate::harness::Swarm;

/// The time for both to come to rest in the same state.
const PATIENCE: Duration = Duration::from_secs(30);
/// The time that a Job takes.
const SHORT: Duration = Duration::from_millis(200);
const CONTENT: &str = "1111";
const SECRET: &str = "2222";

/// A real Swarm of one node, and one in memory.
struct Pair {
    app: AppName,
    real: Engine,
    memory: SimulatedEngine,
    in_memory: SimulatedSwarm,
    swarm: Swarm,
    image: String,
    /// Its command does not exist.
    broken: String,
    /// Its command ends: with success, and without.
    once: String,
    failing: String,
    /// The differences, and after which step. All of them are reported at the end.
    differences: Mutex<Vec<String>>,
    _directory: tempfile::TempDir,
}

/// All input of a plan, without ids and times.
#[derive(Debug, Default, PartialEq)]
struct Seen {
    /// By name: the specification, the state and words of the update, and the number of wanted tasks.
    services: BTreeMap<String, (Value, String, String, Option<u64>)>,
    tasks: Vec<String>,
    configs: Vec<String>,
    secrets: Vec<String>,
    networks: Vec<String>,
    shared: Option<SharedState>,
    leads: bool,
}

fn seen(observed: &Observed) -> Seen {
    let swarm = observed.swarm.as_deref().unwrap();
    let mut ids: BTreeMap<&str, String> = BTreeMap::new();
    ids.extend(observed.networks.iter().map(|(name, network)| (network.id.as_str(), name.clone())));
    ids.extend(
        swarm.configs.iter().chain(&swarm.secrets).map(|(name, object)| (object.id.as_str(), name.clone())),
    );
    ids.extend(swarm.tasks.keys().map(|id| (id.as_str(), "TASK".to_owned())));
    let services = swarm.services.iter().map(|(name, service)| {
        let mut spec = service.spec.clone();
        named(&mut spec, &ids);
        // A task that an update speaks of may be forgotten by then.
        let message = service.update_message.split(" of task ").next().unwrap_or_default();
        (name.clone(), (spec, service.update_state.clone(), message.to_owned(), service.desired_tasks))
    });
    let mut tasks: Vec<String> = swarm
        .tasks
        .values()
        .filter_map(|task| {
            let (name, service) = swarm.services.iter().find(|(_, it)| it.id == task.service)?;
            // Of a Job, those that have ended count.
            let is_seen = task.desired_state == "running" || (service.is_job() && task.is_current);
            let error = task.error.split(": ").next().unwrap();
            // Any of the tasks that wait may get a node that is free.
            let (has_slot, state) = (task.slot.is_some(), &task.state);
            let job = if service.is_job() { &*format!(" {:?} {:?}", task.slot, task.exit_code) } else { "" };
            let line =
                format!("{name} {has_slot} {state} {error} {} {}{job}", task.is_current, task.node.is_some());
            is_seen.then_some(line)
        })
        .collect();
    tasks.sort();
    let names = |all: &BTreeMap<String, _>| all.keys().cloned().collect();
    Seen {
        services: services.collect(),
        tasks,
        configs: names(&swarm.configs),
        secrets: names(&swarm.secrets),
        networks: observed.networks.keys().cloned().collect(),
        shared: swarm.shared.as_ref().and_then(|shared| shared.state.clone()),
        leads: swarm.is_leader(),
    }
}

/// Replaces ids by names.
fn named(value: &mut Value, ids: &BTreeMap<&str, String>) {
    match value {
        Value::String(text) => {
            if let Some(name) = ids.get(text.as_str()) {
                text.clone_from(name);
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| named(item, ids)),
        Value::Object(map) => map.values_mut().for_each(|value| named(value, ids)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// The answer to a step: whether it was done, and else the kind of error and the words without ids.
fn answer(result: &Result<Effect, Error>) -> String {
    match result {
        Ok(Effect::Swarm(_)) => "written".to_owned(),
        Ok(Effect::Done | Effect::Created(_)) => "done".to_owned(),
        Err(error) => {
            let kind = match error {
                Error::Refused { .. } => "refused",
                Error::Rejected { .. } => "rejected",
                Error::Transient { .. } => "transient",
                _ => "other",
            };
            let text = driftless_model::error_chain(error);
            let is_id = |word: &str| {
                let word = word.trim_matches(['(', ')']);
                word.len() == 25 || word.ends_with(|last: char| last.is_ascii_digit())
            };
            let words: Vec<&str> =
                text.split(' ').map(|word| if is_id(word) { "ID" } else { word }).collect();
            format!("{kind}: {}", words.join(" "))
        }
    }
}

impl Pair {
    async fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let swarm = Swarm::start(directory.path()).await;
        let folder = |name: &str| directory.path().join(name);
        for (name, content) in [("content", CONTENT), ("secret", SECRET)] {
            fs::create_dir_all(folder(name)).unwrap();
            fs::write(folder(name).join(content), "content").unwrap();
        }
        let agent = AgentId("agent".to_owned());
        let options = EngineOptions {
            remembered: None,
            host: DockerHost { address: swarm.engine.host(), tls: None },
            agent: agent.clone(),
            content_dir: folder("content"),
            secret_dir: folder("secret"),
            app_dir: folder("app"),
            registries: RegistryLogins::default(),
            clock: Clock::System,
        };
        let real = Engine::connect(options).unwrap();
        let memory = SimulatedEngine::new(agent, Clock::System);
        let in_memory = SimulatedSwarm::new(Clock::System, &["one"]);
        memory.join(&in_memory, "one", &folder("content"), &folder("secret"));
        let image = swarm.publish("server", "1.0").await;
        let broken = swarm.publish("broken", "1.0").await;
        let (once, failing) = (swarm.publish("once", "1.0").await, swarm.publish("failing", "1.0").await);
        in_memory.faults(|faults| {
            faults.broken.insert(broken.clone());
            faults.exits.insert(once.clone(), (SHORT, 0));
            faults.exits.insert(failing.clone(), (SHORT, 1));
        });
        Self {
            app: "shop".into(),
            real,
            memory,
            in_memory,
            swarm,
            image,
            broken,
            once,
            failing,
            differences: Mutex::default(),
            _directory: directory,
        }
    }

    async fn observed(&self) -> (Observed, Observed) {
        // Tasks of removed services are asked for by the stack.
        let scope = ObserveScope { is_swarm: true, namespace: "shop".to_owned(), ..ObserveScope::default() };
        let real = self.real.observe(&self.app, &scope).await.unwrap();
        (real, self.memory.observe(&self.app, &scope).await.unwrap())
    }

    /// Does the same with both, and compares the answers, and what is seen once both are at rest. `expected` is the begin of
    /// the answer. A step is made of what was observed.
    async fn both(&self, expected: &str, step: impl Fn(&Observed) -> Action) {
        let (real, memory) = self.observed().await;
        let (for_real, for_memory) = (step(&real), step(&memory));
        let answers = (
            self.real.perform(&self.app, &for_real, &|_| {}).await,
            self.memory.perform(&self.app, &for_memory, &|_| {}).await,
        );
        let (found, in_memory) = (answer(&answers.0), answer(&answers.1));
        if found != in_memory || !found.starts_with(expected) {
            self.differs(format!(
                "answer to {for_real}: {found}\nin memory: {in_memory}\nexpected: {expected}"
            ));
        }
        self.compare(&for_real.to_string()).await;
    }

    fn differs(&self, what: String) {
        println!("{what}");
        self.differences.lock().unwrap().push(what);
    }

    /// Waits until both show the same, and go on to do so.
    async fn compare(&self, after: &str) {
        let (began, mut same) = (Instant::now(), 0);
        while same < 4 {
            let (real, memory) = self.observed().await;
            let (real, memory) = (seen(&real), seen(&memory));
            same = if real == memory && at_rest(&real) { same + 1 } else { 0 };
            if began.elapsed() > PATIENCE {
                self.differs(format!("after {after}\n{}", different_lines(&real, &memory)));
                return;
            }
            sleep(Duration::from_millis(500)).await;
        }
        println!("same after {after}");
    }

    fn spec(&self, name: &str, change: impl Fn(&mut Value)) -> Value {
        let mut spec = json!({
            "Name": format!("shop_{name}"),
            "Labels": {label::AGENT: SWARM_OWNER, label::APPLICATION: "shop", label::WORKLOAD: name},
            "TaskTemplate": {
                "ContainerSpec": {"Image": self.image, "StopGracePeriod": 1_000_000_000_u64},
                "RestartPolicy": {"Condition": "any", "Delay": 1_000_000_000_u64},
            },
            "Mode": {"Replicated": {"Replicas": 2}},
            "UpdateConfig": {"Parallelism": 1, "Monitor": 2_000_000_000_u64},
        });
        change(&mut spec);
        spec
    }

    async fn create(&self, expected: &str, name: &str, change: impl Fn(&mut Value)) {
        let spec = self.spec(name, change);
        let make = |_: &Observed| {
            let name = format!("shop_{name}");
            swarm(SwarmAction::CreateService {
                name,
                image: self.image.clone(),
                secrets: Vec::new(),
                spec: spec.clone(),
            })
        };
        self.both(expected, make).await;
    }

    /// Updates a service to its present specification and a change. `stale`: of an older version.
    async fn update(&self, expected: &str, name: &str, stale: bool, change: impl Fn(&mut Value)) {
        let make = |observed: &Observed| {
            let name = format!("shop_{name}");
            let service = &observed.swarm.as_ref().unwrap().services[&name];
            let mut spec = service.spec.clone();
            change(&mut spec);
            let version = service.version - u64::from(stale);
            swarm(SwarmAction::UpdateService {
                name,
                id: service.id.clone(),
                version,
                image: self.image.clone(),
                secrets: Vec::new(),
                spec,
            })
        };
        self.both(expected, make).await;
    }

    /// Sets the availability of the only node of both.
    async fn set_availability(&self, availability: &str) {
        let list = call(&self.swarm.engine.host(), "GET", "/nodes", &Value::Null).await;
        let node = &list[0];
        let mut spec = node["Spec"].clone();
        spec["Availability"] = availability.into();
        let path =
            format!("/nodes/{}/update?version={}", node["ID"].as_str().unwrap(), node["Version"]["Index"]);
        call(&self.swarm.engine.host(), "POST", &path, &spec).await;
        self.in_memory.set_availability("one", availability);
        self.compare(&format!("{availability} of the node")).await;
    }
}

/// The lines of either that the other does not have.
fn different_lines(real: &Seen, memory: &Seen) -> String {
    let (real, memory) = (format!("{real:#?}"), format!("{memory:#?}"));
    let missing = |of: &str, other: &str| -> Vec<String> {
        let other: Vec<&str> = other.lines().collect();
        of.lines().filter(|line| !other.contains(line)).map(str::to_owned).collect()
    };
    format!("real: {:#?}\nin memory: {:#?}", missing(&real, &memory), missing(&memory, &real))
}

/// Whether no update is under way, and no task on its way.
fn at_rest(seen: &Seen) -> bool {
    let is_over = |state: &str| !matches!(state, "updating" | "rollback_started");
    let lasting = ["running", "pending", "complete", "failed", "shutdown"];
    let stays = |task: &String| task.split(' ').nth(2).is_some_and(|state| lasting.contains(&state));
    seen.services.values().all(|(_, state, ..)| is_over(state)) && seen.tasks.iter().all(stays)
}

fn swarm(action: SwarmAction) -> Action {
    Action::Swarm(Box::new(action))
}

fn file(name: &str, content: &str, secret: bool) -> SwarmFile {
    SwarmFile {
        target: "/file".to_owned(),
        content: Some(ContentId(content.to_owned())),
        name: name.to_owned(),
        secret,
        ..SwarmFile::default()
    }
}

/// A call to the API of an engine.
async fn call(host: &str, method: &str, path: &str, body: &Value) -> Value {
    let mut socket = UnixStream::connect(Path::new(host.strip_prefix("unix://").unwrap())).await.unwrap();
    let body = if body.is_null() { String::new() } else { body.to_string() };
    let head = format!(
        "{method} /v1.41{path} HTTP/1.0\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    socket.write_all((head + &body).as_bytes()).await.unwrap();
    let mut answer = String::new();
    socket.read_to_string(&mut answer).await.unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.contains(" 200 ") || head.contains(" 201 "), "{method} {path}: {answer}");
    serde_json::from_str(body).unwrap_or(Value::Null)
}

#[tokio::test]
#[ignore = "needs root for an engine of its own; `make e2e-swarm`"]
async fn swarm_in_memory_behaves_as_a_real_one() {
    let both = Pair::new().await;
    let network = || {
        let labels = [(label::AGENT.to_owned(), SWARM_OWNER.to_owned())];
        Network {
            key: "net".into(),
            driver: Some("overlay".into()),
            labels: labels.into(),
            ..Network::default()
        }
    };
    for _ in 0..2 {
        both.both("done", |_| Action::CreateNetwork {
            name: "shop_net".into(),
            network: network(),
            project: "shop".to_owned(),
            addresses: None,
        })
        .await;
    }
    for (name, content, secret) in [("shop_motd", CONTENT, false), ("shop_key", SECRET, true)] {
        for _ in 0..2 {
            let project = || "shop".to_owned();
            let make = |_: &Observed| {
                swarm(SwarmAction::CreateFile {
                    project: project(),
                    file: file(name, content, secret),
                    present: None,
                })
            };
            both.both("done", make).await;
        }
    }
    networks(&both).await;
    services(&both).await;
    updates(&both).await;
    placement(&both).await;
    jobs(&both).await;
    shared_state(&both).await;
    adoption(&both).await;
    removal(&both).await;
    assert_eq!(*both.differences.lock().unwrap(), Vec::<String>::new());
}

/// Networks that need a larger range than the Swarm gives, or one that another network has.
async fn networks(both: &Pair) {
    let labels = || [(label::AGENT.to_owned(), SWARM_OWNER.to_owned())].into();
    let plain = || Network { driver: Some("overlay".into()), labels: labels(), ..Network::default() };
    for (name, addresses) in [("shop_few", 252), ("shop_many", 253), ("shop_all", 1 << 40)] {
        let expected =
            if name == "shop_all" { "refused: could not create network shop_all: no range" } else { "done" };
        both.both(expected, |_| Action::CreateNetwork {
            name: name.to_owned(),
            network: plain(),
            project: "shop".to_owned(),
            addresses: Some(addresses),
        })
        .await;
    }
    let overlapping = || Network { ipam: vec![(Some("10.0.4.0/24".into()), None, None)], ..plain() };
    let action = |_: &Observed| Action::CreateNetwork {
        name: "shop_overlapping".into(),
        network: overlapping(),
        project: "shop".to_owned(),
        addresses: None,
    };
    both.both("refused: could not create network shop_overlapping: the Swarm gives it no addresses", action)
        .await;
    let (real, memory) = both.observed().await;
    for (name, addresses) in [("shop_net", 252), ("shop_few", 252), ("shop_many", 508)] {
        for observed in [&real, &memory] {
            assert_eq!(observed.networks[name].addresses, Some(addresses), "{name}");
        }
    }
}

/// Creation, and what is refused.
async fn services(both: &Pair) {
    let with_all = |spec: &mut Value| {
        let place = json!({"Name": "/file", "UID": "0", "GID": "0", "Mode": 0o444});
        let container = &mut spec["TaskTemplate"]["ContainerSpec"];
        container["Configs"] = json!([{"ConfigName": "shop_motd", "File": place}]);
        container["Secrets"] = json!([{"SecretName": "shop_key", "File": place}]);
        container["Env"] = json!(["A=1", "B="]);
        spec["TaskTemplate"]["Networks"] = json!([{"Target": "shop_net", "Aliases": ["web"]}]);
        spec["EndpointSpec"] = json!({"Ports": [{"TargetPort": 80, "PublishedPort": 8080}]});
        spec["RollbackConfig"] = json!({"Parallelism": 0});
    };
    both.create("written", "web", with_all).await;
    both.create("rejected", "web", with_all).await;
    both.create("transient", "net", |spec| {
        spec["TaskTemplate"]["Networks"] = json!([{"Target": "missing"}]);
    })
    .await;
    both.create("rejected", "config", |spec| {
        let place = json!({"Name": "/file", "UID": "0", "GID": "0", "Mode": 0o444});
        spec["TaskTemplate"]["ContainerSpec"]["Configs"] =
            json!([{"ConfigName": "none", "ConfigID": "none", "File": place}]);
    })
    .await;
    both.create("rejected", "port", |spec| {
        spec["EndpointSpec"] = json!({"Ports": [{"TargetPort": 80, "PublishedPort": 8080}]});
    })
    .await;
    both.create("written", "each", |spec| spec["Mode"] = json!({"Global": {}})).await;
    both.create("written", "none", |spec| spec["Mode"] = json!({"Replicated": {"Replicas": 0}})).await;
    for (name, secret) in [("shop_motd", false), ("shop_key", true)] {
        let make = |observed: &Observed| {
            let swarm_seen = observed.swarm.as_ref().unwrap();
            let all = if secret { &swarm_seen.secrets } else { &swarm_seen.configs };
            swarm(SwarmAction::RemoveFile { name: name.into(), id: all[name].id.clone(), secret })
        };
        both.both("rejected", make).await;
    }
    let make = |observed: &Observed| Action::RemoveNetwork {
        name: "shop_net".into(),
        id: observed.networks["shop_net"].id.clone(),
    };
    let (real, memory) = both.observed().await;
    let found = both.real.perform(&both.app, &make(&real), &|_| {}).await;
    let in_memory = both.memory.perform(&both.app, &make(&memory), &|_| {}).await;
    assert!(found.is_err() && in_memory.is_err(), "{found:?} and in memory {in_memory:?}");
}

/// Updates that succeed, that are refused, and that fail.
async fn updates(both: &Pair) {
    let env = |value: &'static str| {
        move |spec: &mut Value| spec["TaskTemplate"]["ContainerSpec"]["Env"] = json!([value])
    };
    both.update("refused", "web", true, |_| {}).await;
    both.update("written", "web", false, |_| {}).await;
    both.update("written", "web", false, |spec| spec["Labels"]["team"] = "shop".into()).await;
    both.update("written", "web", false, |spec| spec["Mode"]["Replicated"]["Replicas"] = 4.into()).await;
    both.update("written", "web", false, |spec| spec["Mode"]["Replicated"]["Replicas"] = 2.into()).await;
    both.update("rejected", "web", false, |spec| spec["Mode"] = json!({"Global": {}})).await;
    both.update("written", "web", false, env("A=2")).await;
    both.update("written", "each", false, env("A=2")).await;
    both.update("written", "web", false, |spec| {
        spec["UpdateConfig"]["Order"] = "start-first".into();
        spec["UpdateConfig"]["Parallelism"] = 0.into();
        env("A=3")(spec);
    })
    .await;
    let image = |image: &str, action: &'static str| {
        let image = image.to_owned();
        move |spec: &mut Value| {
            spec["UpdateConfig"]["FailureAction"] = action.into();
            spec["TaskTemplate"]["ContainerSpec"]["Image"] = image.as_str().into();
            spec["TaskTemplate"]["ContainerSpec"]["Command"] =
                if image.contains("broken") { json!(["/none"]) } else { Value::Null };
        }
    };
    // Rolled back by the Swarm, for one of them after another.
    both.update("written", "web", false, image(&both.broken, "rollback")).await;
    both.update("written", "web", false, env("A=4")).await;
}

/// Services without a node, and a node that takes no tasks.
async fn placement(both: &Pair) {
    both.create("written", "nowhere", |spec| {
        spec["TaskTemplate"]["Placement"] = json!({"Constraints": ["node.labels.none == 1"]});
    })
    .await;
    both.create("written", "full", |spec| {
        spec["TaskTemplate"]["Placement"] = json!({"Constraints": ["node.role==manager"], "MaxReplicas": 1});
    })
    .await;
    both.create("written", "held", |spec| {
        let port = json!({"TargetPort": 80, "PublishedPort": 8090, "PublishMode": "host", "Protocol": "tcp"});
        spec["EndpointSpec"] = json!({"Ports": [port]});
    })
    .await;
    for availability in ["drain", "active", "pause", "active"] {
        both.set_availability(availability).await;
    }
}

/// Jobs that complete, that fail, that are run again, and that are stopped.
async fn jobs(both: &Pair) {
    const SECOND: u64 = 1_000_000_000;
    let job = |image: &str, args: Value, mode: Value, restart: Value| {
        let image = image.to_owned();
        move |spec: &mut Value| {
            let container = &mut spec["TaskTemplate"]["ContainerSpec"];
            (container["Image"], container["Args"]) = (image.as_str().into(), args.clone());
            (spec["Mode"], spec["TaskTemplate"]["RestartPolicy"]) = (mode.clone(), restart.clone());
            spec.as_object_mut().unwrap().remove("UpdateConfig");
        }
    };
    let (ends, fails) = (json!(["--once"]), json!(["--healthcheck", "http://127.0.0.1:1/"]));
    let some = |concurrent: u64, total: u64| json!({"ReplicatedJob": {"MaxConcurrent": concurrent, "TotalCompletions": total}});
    let each = || json!({"GlobalJob": {}});
    let once = || json!({"Condition": "none"});
    let tries = |most: u64| json!({"Condition": "on-failure", "Delay": SECOND, "MaxAttempts": most});
    both.create("written", "three", job(&both.once, ends.clone(), some(2, 3), once())).await;
    both.create("written", "node", job(&both.once, ends.clone(), each(), once())).await;
    both.create("written", "again", job(&both.failing, fails.clone(), some(1, 1), tries(2))).await;
    both.create("written", "never", job(&both.failing, fails.clone(), some(1, 2), once())).await;
    both.create("written", "default", job(&both.once, ends, json!({"ReplicatedJob": {}}), tries(1))).await;
    both.create("rejected", "updated", |spec| spec["Mode"] = some(1, 1)).await;
    // Each write is another run of all its tasks, also of those that have failed.
    for name in ["three", "node", "never"] {
        both.update("written", name, false, |spec| spec["Labels"]["team"] = "shop".into()).await;
    }
    both.update("written", "three", false, |spec| spec["Mode"] = some(1, 4)).await;
    both.update("rejected", "three", false, |spec| spec["Mode"] = each()).await;
    // As the agent stops one.
    both.create("written", "long", job(&both.image, json!(null), some(2, 2), once())).await;
    both.update("written", "long", false, |spec| spec["TaskTemplate"]["ForceUpdate"] = 1.into()).await;
    both.update("written", "long", false, |spec| spec["Mode"] = some(0, 0)).await;
    both.create("written", "everywhere", job(&both.image, json!(null), each(), once())).await;
    both.update("written", "everywhere", false, |spec| {
        spec["TaskTemplate"]["Placement"] = json!({"Constraints": ["node.labels.none == 1"]});
    })
    .await;
    both.create("written", "placeless", |spec| {
        job(&both.image, json!(null), some(1, 1), once())(spec);
        spec["TaskTemplate"]["Placement"] = json!({"Constraints": ["node.labels.none == 1"]});
    })
    .await;
}

/// The config that agents of several managers share.
async fn shared_state(both: &Pair) {
    let share = |present: Option<(String, u64)>, suspended: bool| {
        swarm(SwarmAction::ShareState {
            project: "shop".into(),
            name: "driftless.shop".into(),
            present,
            state: Box::new(SharedState { suspended, ..SharedState::default() }),
        })
    };
    let present = |observed: &Observed, older: u64| {
        let shared = observed.swarm.as_ref().unwrap().shared.as_ref().unwrap();
        Some((shared.id.clone(), shared.version - older))
    };
    both.both("done", |_| share(None, false)).await;
    both.both("refused", |_| share(None, true)).await;
    both.both("done", |observed| share(present(observed, 0), true)).await;
    both.both("refused", |observed| share(present(observed, 1), false)).await;
}

/// Configs and secrets of `docker stack deploy` are adopted if they have the same content.
async fn adoption(both: &Pair) {
    for (kind, name, content, secret) in
        [("configs", "old_motd", CONTENT, false), ("secrets", "old_key", SECRET, true)]
    {
        // `content` and `another` in Base64.
        for (name, data) in [(name.to_owned(), "Y29udGVudA=="), (format!("{name}_other"), "YW5vdGhlcg==")] {
            let labels = json!({"com.docker.stack.namespace": "shop", "team": "shop"});
            let body = json!({"Name": name, "Labels": labels, "Data": data});
            let path = format!("/{kind}/create");
            call(&both.swarm.engine.host(), "POST", &path, &body).await;
            both.in_memory.user_call("POST", &path, &body).unwrap();
        }
        let adopt = |present: String, name: String| {
            swarm(SwarmAction::CreateFile {
                project: "shop".into(),
                file: file(&name, content, secret),
                present: Some(PresentFile { id: present.clone(), name: present }),
            })
        };
        // Mounted at two paths, it has two names.
        for number in [1, 2, 2] {
            both.both("done", |_| adopt(name.to_owned(), format!("{name}_{number}"))).await;
        }
        both.both("done", |_| adopt(format!("{name}_other"), format!("{name}_3"))).await;
        both.both("done", |_| adopt("gone".to_owned(), format!("{name}_4"))).await;
        let (real, _) = both.observed().await;
        let seen = real.swarm.as_ref().unwrap();
        let all = if secret { &seen.secrets } else { &seen.configs };
        for (known, expected) in [(1, name), (2, name), (3, &format!("{name}_3")), (4, &format!("{name}_4"))]
        {
            assert_eq!(all[&format!("{name}_{known}")].name, *expected);
        }
    }
}

/// Everything is removed, and removed again.
async fn removal(both: &Pair) {
    let (real, memory) = both.observed().await;
    for name in real.swarm.as_ref().unwrap().services.keys() {
        let remove = |observed: &Observed| {
            let id = observed.swarm.as_ref().unwrap().services.get(name).map(|found| found.id.clone());
            swarm(SwarmAction::RemoveService { name: name.clone(), id: id.unwrap_or("gone".into()) })
        };
        both.both("done", remove).await;
        both.both("done", remove).await;
    }
    for (name, secret) in [("shop_motd", false), ("shop_key", true)] {
        let remove = |observed: &Observed| {
            let swarm_seen = observed.swarm.as_ref().unwrap();
            let all = if secret { &swarm_seen.secrets } else { &swarm_seen.configs };
            let id = all.get(name).map_or("gone".to_owned(), |found| found.id.clone());
            swarm(SwarmAction::RemoveFile { name: name.into(), id, secret })
        };
        both.both("done", remove).await;
        both.both("done", remove).await;
    }
    let id = |observed: &Observed| observed.networks["shop_net"].id.clone();
    for (of, engine) in [(&real, true), (&memory, false)] {
        let remove = Action::RemoveNetwork { name: "shop_net".into(), id: id(of) };
        let result = if engine {
            both.real.perform(&both.app, &remove, &|_| {}).await
        } else {
            both.memory.perform(&both.app, &remove, &|_| {}).await
        };
        assert_eq!(answer(&result), "done");
    }
    both.compare("the removal of all").await;
}
