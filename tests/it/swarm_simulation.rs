//! The whole agent on a Swarm in memory and a simulated Git, under paused time. Several agents share a Swarm as those of
//! its managers do.

use std::{collections::BTreeMap, time::Duration};

use driftless_agent::{Against, Answer, RequestKind, Rollback, Scale, release_notes};
use driftless_clock::Clock;
use driftless_docker::{Outage, SimulatedSwarm, SwarmWrite, UserAction};
use driftless_model::{
    AgentId, Application, EngineKind, HealthStatus, Removal, SHARED_LABEL, SyncStatus, Timestamp, Until,
};
use driftless_store::{Store, Visibility};
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::{
    sample::NOON,
    simulation::{Dice, Simulation, minutes},
};

/// An update may be on its way when the leader changes.
const IN_FLIGHT: Duration = Duration::from_secs(2);

fn shop(version: u32, failure_action: &str) -> String {
    let update = format!("{{parallelism: 1, delay: 1s, monitor: 2s, failure_action: {failure_action}}}");
    format!(
        "services:
  web:
    image: web:{version}
    depends_on: [db]
    configs: [motd]
    deploy: {{replicas: 3, update_config: {update}}}
  db: {{image: 'db:1'}}
  each:
    image: each:{version}
    deploy: {{mode: global, update_config: {update}}}
configs: {{motd: {{content: 'version {version}'}}}}
"
    )
}

/// A Swarm of three managers, with agents on the first of them.
pub(crate) struct Cluster {
    pub(crate) swarm: SimulatedSwarm,
    pub(crate) agents: Vec<Simulation>,
    /// When the leader has changed.
    changes: Vec<Timestamp>,
}

pub(crate) const NODES: [&str; 3] = ["one", "two", "three"];

impl Cluster {
    pub(crate) fn of(compose: &str, agents: usize) -> Self {
        Self::begun(compose, agents, true, EngineKind::Swarm)
    }

    /// Agents that do not fetch from the same server.
    fn with_own_gits(compose: &str, agents: usize) -> Self {
        Self::begun(compose, agents, false, EngineKind::Swarm)
    }

    fn begun(compose: &str, agents: usize, share_git: bool, engine: EngineKind) -> Self {
        let clock = Clock::starting_at(NOON);
        let swarm = SimulatedSwarm::new(clock, &NODES);
        let mut all = Self { swarm, agents: Vec::new(), changes: Vec::new() };
        for node in NODES.iter().take(agents) {
            let mut agent = Simulation::idle_as(AgentId(node.to_string()), clock);
            if let Some(first) = all.agents.first().filter(|_| share_git) {
                agent.git = first.git.clone();
            } else {
                agent.git.push(compose);
            }
            agent.settings.policy.engine = engine;
            agent.settings.policy.prune = true;
            let folder = |visibility| agent.contents.folder(visibility).to_owned();
            agent.docker.join(&all.swarm, node, &folder(Visibility::Public), &folder(Visibility::Secret));
            agent.begin();
            all.agents.push(agent);
        }
        all
    }

    pub(crate) fn first(&self) -> &Simulation {
        &self.agents[0]
    }

    /// Waits until all agents see the newest commit in place.
    pub(crate) async fn synced(&self) {
        for agent in &self.agents {
            agent.synced_with_tip().await;
        }
    }

    /// Waits until the services are as the newest commit says, by any of the agents.
    async fn whole(&self, version: u32) {
        for _ in 0..3600 {
            if self.images() == wanted_images(version) {
                return;
            }
            sleep(Duration::from_secs(1)).await;
        }
        panic!("{:#?} run\n{}", self.images(), self.story());
    }

    pub(crate) fn lead(&mut self, node: &str) {
        self.swarm.lead(node);
        self.changes.push(self.first().clock.now());
    }

    fn user(&self, method: &str, path: &str, body: &Value) -> Value {
        self.swarm.user_call(method, path, body).unwrap()
    }

    fn list(&self, path: &str) -> Vec<Value> {
        self.user("GET", path, &Value::Null).as_array().unwrap().clone()
    }

    fn service(&self, name: &str) -> Value {
        self.user("GET", &format!("/services/{name}"), &Value::Null)
    }

    /// A user changes the specification of a service.
    fn change(&self, name: &str, change: impl FnOnce(&mut Value)) {
        let found = self.service(name);
        let mut spec = found["Spec"].clone();
        change(&mut spec);
        self.user("POST", &format!("/services/{name}/update?version={}", found["Version"]["Index"]), &spec);
    }

    /// The specifications of all services, by name.
    fn specs(&self) -> BTreeMap<String, Value> {
        let all = self.list("/services").into_iter();
        all.map(|service| (service["Spec"]["Name"].as_str().unwrap().to_owned(), service["Spec"].clone()))
            .collect()
    }

    /// The images of the tasks that run, and how many there are of each.
    fn images(&self) -> BTreeMap<String, usize> {
        let mut images = BTreeMap::new();
        let tasks = self.list("/tasks");
        let running = tasks
            .iter()
            .filter(|task| task["Status"]["State"] == "running" && task["DesiredState"] == "running");
        for task in running {
            let image = task["Spec"]["ContainerSpec"]["Image"].as_str().unwrap();
            *images.entry(image.split('@').next().unwrap().to_owned()).or_default() += 1;
        }
        images
    }

    pub(crate) fn names(&self, kind: &str) -> Vec<String> {
        let all = self.list(&format!("/{kind}"));
        all.iter().map(|object| object["Spec"]["Name"].as_str().unwrap().to_owned()).collect()
    }

    /// The configs with files. Another has the state that agents share.
    fn files(&self) -> Vec<String> {
        self.names("configs").into_iter().filter(|name| !name.starts_with("driftless.")).collect()
    }

    pub(crate) fn story(&self) -> String {
        let all = self.swarm.writes();
        let line = |write: &SwarmWrite| {
            let by = write.by.as_deref().unwrap_or("user");
            format!("{} {by} (leads: {}) {} {}\n", write.at, write.was_leader, write.call, write.body["Name"])
        };
        all.iter().map(line).collect()
    }

    /// Ends all faults.
    pub(crate) fn repair(&self) {
        for node in NODES {
            self.swarm.restore(node);
            self.swarm.set_availability(node, "active");
        }
        for agent in &self.agents {
            agent.docker.reconnect();
            agent.docker.faults(|faults| *faults = Default::default());
        }
    }

    /// The writes of agents, but for what they share.
    pub(crate) fn writes(&self) -> usize {
        self.swarm.writes().iter().filter(|write| write.by.is_some() && !is_shared(write)).count()
    }

    /// Invariants of every history: only the agent on the leader writes, but for what agents share; and no agent writes a
    /// service as it is already.
    pub(crate) fn check(&self) {
        let mut specs: BTreeMap<String, Value> = BTreeMap::new();
        for write in self.swarm.writes() {
            let changed_now = |at: &Timestamp| write.at.since(*at) < IN_FLIGHT && *at <= write.at;
            let may_write = write.was_leader || is_shared(&write) || self.changes.iter().any(changed_now);
            assert!(
                write.by.is_none() || may_write,
                "{} writes without leading: {}\n{}",
                write.by.unwrap(),
                write.call,
                self.story()
            );
            if write.call.starts_with("DELETE /services/") {
                specs.clear();
            }
            if write.call.starts_with("POST /services/") {
                let name = write.body["Name"].as_str().unwrap().to_owned();
                let before = specs.insert(name, write.body.clone());
                let is_twice = before.as_ref() == Some(&write.body) && write.by.is_some();
                assert!(!is_twice, "{} is written twice\n{}", write.body["Name"], self.story());
            }
        }
    }
}

fn is_shared(write: &SwarmWrite) -> bool {
    write.body["Labels"].get(SHARED_LABEL).is_some()
}

fn wanted_images(version: u32) -> BTreeMap<String, usize> {
    let images = [("db:1".to_owned(), 1), (format!("each:{version}"), 3), (format!("web:{version}"), 3)];
    images.into_iter().collect()
}

pub(crate) fn is_settled(app: &Application) -> bool {
    app.status.sync == SyncStatus::Synced && app.status.health == HealthStatus::Healthy
}

#[tokio::test(start_paused = true)]
async fn services_are_deployed_in_order_and_then_left_alone() {
    let all = Cluster::of(&shop(1, "pause"), 2);
    all.synced().await;
    assert_eq!(all.images(), wanted_images(1));
    let story = all.story();
    let place = |name: &str| story.find(&format!("POST /services/create \"{name}\"")).unwrap();
    assert!(place("shop_db") < place("shop_web"), "{story}");

    let before = all.swarm.writes();
    for _ in 0..100 {
        for agent in &all.agents {
            agent.ask(RequestKind::Sync).await;
        }
        sleep(Duration::from_secs(20)).await;
    }
    assert_eq!(all.swarm.writes(), before, "{}", all.story());
    all.check();
}

#[tokio::test(start_paused = true)]
async fn configs_of_the_last_ten_revisions_are_kept() {
    let all = Cluster::of(&shop(1, "pause"), 1);
    all.synced().await;
    let first = all.files();
    for version in 2..=11 {
        all.first().push(&shop(version, "pause")).await;
        all.synced().await;
        minutes(1).await;
        assert_eq!(all.images(), wanted_images(version));
        assert_eq!(all.files().len(), 10.min(version as usize), "{}", all.story());
    }
    assert!(!all.files().contains(&first[0]));
    // A rollback writes no config.
    let rollback = Rollback { to: None, reason: "slow".into(), until: Until::Manual };
    let configs = all.files();
    all.first().ask(RequestKind::Rollback(rollback)).await;
    all.whole(10).await;
    minutes(1).await;
    assert_eq!(all.files(), configs, "{}", all.story());
    all.check();
}

#[tokio::test(start_paused = true)]
async fn swarm_rollout_continues_after_a_kill_at_any_step() {
    for keeps_store in [true, false] {
        for steps in 1..10 {
            let mut all = Cluster::of(&shop(1, "pause"), 1);
            all.synced().await;
            all.first().docker.crash_after(steps);
            all.first().push(&shop(2, "pause")).await;
            minutes(1).await;
            let agent = &mut all.agents[0];
            agent.crash();
            if !keeps_store {
                agent.store = Store::in_memory(agent.clock).unwrap();
            }
            agent.begin();
            all.synced().await;
            minutes(5).await;
            assert_eq!(all.images(), wanted_images(2), "after {steps} steps\n{}", all.story());
            // A lost store does not know the former revision.
            let configs = if keeps_store { 2 } else { 1 };
            assert!(all.files().len() <= configs, "after {steps} steps\n{}", all.story());
            all.check();
        }
    }
}

#[tokio::test(start_paused = true)]
async fn first_deployment_continues_after_a_kill_at_any_step() {
    for steps in 1..8 {
        let mut all = Cluster::of(&shop(1, "pause"), 1);
        all.first().docker.crash_after(steps);
        minutes(1).await;
        all.agents[0].crash();
        all.agents[0].begin();
        all.synced().await;
        assert_eq!(all.images(), wanted_images(1), "after {steps} steps\n{}", all.story());
        assert_eq!((all.specs().len(), all.files().len()), (3, 1), "{}", all.story());
        all.check();
    }
}

#[tokio::test(start_paused = true)]
async fn lost_answers_of_managers_deploy_nothing_twice() {
    for lost in 1..6 {
        let all = Cluster::of(&shop(1, "pause"), 1);
        all.synced().await;
        all.first().docker.faults(|faults| faults.lost_answers = lost);
        all.first().push(&shop(2, "pause")).await;
        all.synced().await;
        assert_eq!(all.images(), wanted_images(2));
        all.check();
    }
}

#[tokio::test(start_paused = true)]
async fn lost_race_against_a_user_looks_again() {
    // The user is at it at any time of the agent's round.
    for delay in (0..100).step_by(10) {
        let all = Cluster::of(&shop(1, "pause"), 1);
        all.synced().await;
        all.first().push(&shop(2, "pause")).await;
        sleep(Duration::from_millis(delay)).await;
        all.change("shop_web", |spec| spec["Labels"]["team"] = json!("ops"));
        all.synced().await;
        minutes(1).await;
        assert_eq!(all.images(), wanted_images(2), "after {delay} ms\n{}", all.story());
        assert_eq!(all.service("shop_web")["Spec"]["Labels"]["team"], Value::Null, "after {delay} ms");
    }
}

#[tokio::test(start_paused = true)]
async fn drift_of_every_kind_is_undone_with_one_update() {
    let all = Cluster::of(&shop(1, "pause"), 2);
    all.synced().await;
    let before = all.specs();
    type Change = fn(&mut Value);
    let changes: [(&str, Change); 9] = [
        ("replicas", |spec| spec["Mode"]["Replicated"]["Replicas"] = json!(5)),
        ("image", |spec| spec["TaskTemplate"]["ContainerSpec"]["Image"] = json!("other:1")),
        ("variable", |spec| spec["TaskTemplate"]["ContainerSpec"]["Env"] = json!(["A=1"])),
        ("command", |spec| spec["TaskTemplate"]["ContainerSpec"]["Command"] = json!(["sh"])),
        ("no configs", |spec| spec["TaskTemplate"]["ContainerSpec"]["Configs"] = json!([])),
        ("memory", |spec| spec["TaskTemplate"]["Resources"] = json!({"Limits": {"MemoryBytes": 1 << 26}})),
        ("port", |spec| spec["EndpointSpec"]["Ports"] = json!([{"TargetPort": 80, "PublishedPort": 8080}])),
        ("label", |spec| spec["Labels"]["team"] = json!("ops")),
        ("update settings", |spec| spec["UpdateConfig"]["Parallelism"] = json!(2)),
    ];
    for (what, change) in changes {
        let writes = all.writes();
        all.change("shop_web", change);
        sleep(Duration::from_secs(1)).await;
        assert_eq!(all.specs(), before, "{what}\n{}", all.story());
        minutes(5).await;
        assert_eq!(all.writes(), writes + 1, "{what}\n{}", all.story());
        all.synced().await;
    }
    for service in ["shop_web", "shop_db", "shop_each"] {
        all.user("DELETE", &format!("/services/{service}"), &Value::Null);
        all.whole(1).await;
        all.synced().await;
        assert_eq!(all.specs(), before, "{service}\n{}", all.story());
    }
    // A restart is none.
    let writes = all.writes();
    all.change("shop_web", |spec| spec["TaskTemplate"]["ForceUpdate"] = json!(1));
    minutes(5).await;
    assert_eq!(all.writes(), writes, "{}", all.story());
    all.check();
}

#[tokio::test(start_paused = true)]
async fn plan_and_drift_answer_on_every_manager() {
    let all = Cluster::of(&shop(1, "pause"), 2);
    all.synced().await;
    let ask = async |node: usize, kind: RequestKind| {
        all.agents[node].handle().request("shop".into(), kind).await.unwrap()
    };
    for node in [0, 1] {
        let Answer::Plan(plan) = ask(node, RequestKind::Plan).await else { panic!("no plan") };
        assert!(plan.rounds.is_empty() && plan.waits.is_empty(), "{node}: {plan:?}");
    }
    for agent in &all.agents {
        agent.handle().request("shop".into(), RequestKind::Suspend).await.unwrap();
    }
    minutes(1).await;
    all.change("shop_web", |spec| spec["Mode"]["Replicated"]["Replicas"] = json!(5));
    all.user("DELETE", "/services/shop_db", &Value::Null);
    minutes(1).await;
    for node in [0, 1] {
        let Answer::Drift(found) = ask(node, RequestKind::Drift(Against::Pin)).await else {
            panic!("no answer")
        };
        assert_eq!(found.app.error, None);
        let items: Vec<String> = found
            .app
            .items
            .iter()
            .map(|it| format!("{} {} {} {} -> {}", it.kind, it.name, it.path, it.got, it.want))
            .collect();
        assert_eq!(
            items,
            ["service shop_db   -> ", "service shop_web Mode.Replicated.Replicas 5 -> 3"],
            "{node}"
        );
        let Answer::Plan(plan) = ask(node, RequestKind::Plan).await else { panic!("no plan") };
        assert!(plan.suspended, "{plan:?}");
        let is_standby = plan.waits.iter().any(|wait| wait.contains("the leader of the Swarm (one leads)"));
        assert_eq!(is_standby, node == 1, "{plan:?}");
        let steps = plan.rounds.concat().join("\n");
        assert!(steps.contains("create service shop_db"), "{node}: {steps}");
        assert!(
            steps.contains("update service shop_web (drift: Mode.Replicated.Replicas"),
            "{node}: {steps}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn lost_node_is_the_business_of_the_swarm() {
    let all = Cluster::of(&shop(1, "pause"), 2);
    all.synced().await;
    let writes = all.writes();
    all.swarm.fail("three", Outage::Power);
    minutes(2).await;
    let images = all.images();
    // The tasks of the lost node stay in the list, as nobody can say what has become of them.
    assert!(images["web:1"] >= 3 && all.writes() == writes, "{images:?}\n{}", all.story());
    for agent in &all.agents {
        agent.until("it is whole without the node", is_settled).await;
    }
    all.first().push(&shop(2, "pause")).await;
    all.synced().await;
    all.swarm.restore("three");
    all.whole(2).await;
    all.check();
}

#[tokio::test(start_paused = true)]
async fn drained_node_gets_no_tasks() {
    let all = Cluster::of(&shop(1, "pause"), 1);
    all.synced().await;
    let writes = all.writes();
    all.swarm.set_availability("three", "drain");
    minutes(1).await;
    all.synced().await;
    assert_eq!(all.images()["each:1"], 2);
    let on_node = |task: &Value| task["NodeID"] == "node-three" && task["DesiredState"] == "running";
    assert!(!all.list("/tasks").iter().any(on_node));
    all.swarm.set_availability("three", "active");
    all.whole(1).await;
    all.swarm.remove_node("three");
    minutes(1).await;
    all.synced().await;
    assert_eq!((all.images()["each:1"], all.images()["web:1"]), (2, 3));
    assert_eq!(all.writes(), writes, "{}", all.story());
}

#[tokio::test(start_paused = true)]
async fn change_of_the_leader_deploys_nothing_twice() {
    // The leader changes at any time of the rollout.
    for delay in [0, 20, 40, 60, 80, 120, 500, 5000] {
        let mut all = Cluster::of(&shop(1, "pause"), 2);
        all.synced().await;
        let before = all.writes();
        all.first().push(&shop(2, "pause")).await;
        sleep(Duration::from_millis(delay)).await;
        all.lead("two");
        all.agents[1].ask(RequestKind::Sync).await;
        all.synced().await;
        all.whole(2).await;
        minutes(2).await;
        let story = all.story();
        for service in ["shop_web", "shop_each"] {
            let updates = all.swarm.writes();
            let updates = updates
                .iter()
                .filter(|write| write.call.ends_with("/update") && write.body["Name"] == service);
            assert_eq!(updates.count(), 1, "{service} after {delay} ms\n{story}");
        }
        // The new config and two updates.
        assert_eq!(all.writes() - before, 3, "after {delay} ms\n{story}");
        all.check();
        // Drift is undone by the new leader.
        all.change("shop_web", |spec| spec["Labels"]["team"] = json!("ops"));
        sleep(Duration::from_secs(1)).await;
        let last = all.swarm.writes().pop().unwrap();
        assert_eq!(last.by.as_deref(), Some("two"), "{}", all.story());
    }
}

#[tokio::test(start_paused = true)]
async fn agent_of_a_lost_leader_is_followed_by_another() {
    for outage in [Outage::Power, Outage::Link] {
        let mut all = Cluster::of(&shop(1, "pause"), 3);
        all.synced().await;
        all.swarm.fail("one", outage);
        all.changes.push(all.first().clock.now());
        if outage == Outage::Power {
            all.agents[0].crash();
        }
        let commit = all.first().git.push(&shop(2, "pause"));
        for agent in &all.agents[1..] {
            agent.ask(RequestKind::Sync).await;
            agent.synced(&commit).await;
        }
        assert_ne!(all.swarm.leader().as_deref(), Some("one"));
        minutes(1).await;
        all.swarm.restore("one");
        if outage == Outage::Power {
            all.agents[0].begin();
        }
        all.whole(2).await;
        all.synced().await;
        all.check();
    }
}

#[tokio::test(start_paused = true)]
async fn new_leader_with_an_older_fetch_waits_for_git() {
    let mut all = Cluster::with_own_gits(&shop(1, "pause"), 2);
    all.synced().await;
    // The second agent does not reach Git, and so knows the first commit only.
    all.agents[1].git.down(true);
    all.first().push(&shop(2, "pause")).await;
    all.first().synced_with_tip().await;
    all.whole(2).await;
    let (specs, writes) = (all.specs(), all.writes());
    all.agents[0].crash();
    all.lead("two");
    let says_why = |app: &Application| {
        app.status.waits.iter().any(|wait| wait.message.contains("has not fetched since"))
    };
    all.agents[1].until("it waits for Git", says_why).await;
    minutes(30).await;
    assert_eq!((all.specs(), all.writes()), (specs.clone(), writes), "{}", all.story());
    let waiting = all.agents[1].until("it still waits for Git", says_why).await;
    assert!(waiting.status.health != HealthStatus::Degraded, "{waiting:?}");
    assert!(!all.story().contains("CommitFailed"), "{}", all.story());
    // After a restart it knows no better.
    all.agents[1].crash();
    all.agents[1].begin();
    all.agents[1].until("it waits for Git again", says_why).await;
    minutes(5).await;
    assert_eq!((all.specs(), all.writes()), (specs, writes), "{}", all.story());
    // Git answers, but has the first commit only: this is what Git says now.
    all.agents[1].git.down(false);
    all.whole(1).await;
    all.agents[1].push(&shop(3, "pause")).await;
    all.agents[1].synced_with_tip().await;
    all.whole(3).await;
    all.check();
}

#[tokio::test(start_paused = true)]
async fn restart_by_request_replaces_the_tasks_once() {
    for steps in [0, 1, 2] {
        let mut all = Cluster::of(&shop(1, "pause"), 2);
        all.synced().await;
        let before = all.writes();
        let restart = RequestKind::Restart("web".into());
        let refused = all.agents[1].refusal(restart.clone()).await;
        assert!(refused.ends_with("ask the agent on one"), "{refused}");
        // The agent ends at once after its request, and after the update.
        all.first().docker.crash_after(if steps == 0 { u32::MAX } else { steps });
        all.first().ask(restart).await;
        minutes(1).await;
        if steps > 0 {
            all.agents[0].crash();
            all.agents[0].begin();
        }
        all.synced().await;
        minutes(10).await;
        let updates: Vec<Value> =
            all.swarm.writes().into_iter().skip(before).map(|write| write.body).collect();
        let forced = all.service("shop_web")["Spec"]["TaskTemplate"]["ForceUpdate"].clone();
        assert_eq!((forced, all.writes() - before), (json!(1), 1), "after {steps} steps {updates:#?}");
        assert!(all.first().synced_with_tip().await.status.drift.is_empty());
        all.check();
    }
}

#[tokio::test(start_paused = true)]
async fn release_names_the_agents_on_other_managers() {
    let all = Cluster::of(&shop(1, "pause"), 2);
    all.synced().await;
    let notes = release_notes(&all.first().store);
    let sentence = "shop: agents on other managers of the Swarm, if there are any, go on managing its services: ask each of them too; ";
    assert!(notes.len() == 1 && notes[0].starts_with(sentence), "{notes:?}");
}

#[tokio::test(start_paused = true)]
async fn number_that_a_user_sets_is_that_of_all_managers() {
    let mut all = Cluster::of(&shop(1, "pause"), 2);
    all.synced().await;
    let until = all.first().clock.now().after(Duration::from_hours(1));
    let scale =
        |workload: &str, replicas| RequestKind::Scale(Scale { workload: workload.into(), replicas, until });
    let refused = all.agents[1].refusal(scale("each", 2)).await;
    assert!(refused.ends_with("a global service runs once on each node"), "{refused}");
    // Asked of the agent that does not lead.
    let before = all.writes();
    all.agents[1].ask(scale("web", 5)).await;
    let is_scaled = |app: &Application| {
        let mut waits = app.status.waits.iter();
        is_settled(app) && waits.any(|wait| wait.reason == "Scaled" && wait.message.contains("scaled to 5"))
    };
    for agent in &all.agents {
        agent.until("all know the number", is_scaled).await;
    }
    minutes(10).await;
    assert_eq!((all.images()["web:1"], all.writes() - before), (5, 1), "{}", all.story());
    // Neither another leader, nor a start of its agent, nor a commit ends it.
    all.lead("two");
    all.agents[1].crash();
    all.agents[1].begin();
    all.first().push(&shop(2, "pause")).await;
    for agent in &all.agents {
        agent.synced_with_tip().await;
    }
    minutes(5).await;
    assert_eq!(all.images()["web:2"], 5, "{}", all.story());
    // Set back at the other agent.
    all.first().ask(RequestKind::ResetScale("web".into())).await;
    all.whole(2).await;
    all.agents[1].ask(scale("web", 4)).await;
    minutes(5).await;
    assert_eq!(all.images()["web:2"], 4, "{}", all.story());
    // Its time is over.
    minutes(60).await;
    all.whole(2).await;
    let writes = all.writes();
    minutes(10).await;
    assert_eq!(all.writes(), writes, "{}", all.story());
    for agent in &all.agents {
        let status = agent.synced_with_tip().await.status.clone();
        assert!(status.waits.is_empty() && status.drift.is_empty(), "{status:?}");
    }
    all.check();
}

/// From now on, the registry names an image by this reference, for each of the agents.
fn registry_has(all: &Cluster, reference: &str, digest: &str) {
    for agent in &all.agents {
        agent.docker.faults(|faults| _ = faults.digests.insert(reference.to_owned(), digest.to_owned()));
    }
}

/// The digest that a manager of the Swarm in memory finds.
fn digest_of(reference: &str) -> String {
    format!("sha256:{}", driftless_model::digest_hex(reference.as_bytes()))
}

fn following(mode: &str) -> String {
    shop(1, "pause").replace(
        "image: web:1",
        &format!("image: web:1\n    x-driftless: {{update: {{mode: {mode}, every: 10m}}}}"),
    )
}

#[tokio::test(start_paused = true)]
async fn age_of_a_newer_image_goes_on_with_the_next_leader() {
    let mut all = Cluster::of(&following("apply, min-age: 2h"), 2);
    registry_has(&all, "web:1", &digest_of("web:1"));
    all.synced().await;
    let newer = format!("sha256:{}", "b".repeat(64));
    registry_has(&all, "web:1", &newer);
    minutes(60).await;
    all.lead("two");
    let due = |app: &Application| app.status.images.iter().find_map(|image| image.due);
    let found = all.agents[1].until("the next leader knows it", |app| due(app).is_some()).await;
    // Its agent has lost what it knew.
    all.agents[1].crash();
    all.agents[1].store = Store::in_memory(all.agents[1].clock).unwrap();
    all.agents[1].begin();
    let again = all.agents[1].until("it knows it again", |app| due(app).is_some()).await;
    assert_eq!(due(&again), due(&found), "{}", all.story());
    let image =
        |all: &Cluster| all.service("shop_web")["Spec"]["TaskTemplate"]["ContainerSpec"]["Image"].clone();
    minutes(40).await;
    assert_ne!(image(&all), format!("web:1@{newer}"), "{}", all.story());
    minutes(30).await;
    assert_eq!(image(&all), format!("web:1@{newer}"), "{}", all.story());
    all.synced().await;
    minutes(5).await;
    let shared = all.user("GET", "/configs/driftless.shop", &Value::Null);
    assert!(!shared.to_string().contains(&newer), "it is deployed: {shared}");
    all.check();
}

#[tokio::test(start_paused = true)]
async fn newer_image_of_the_leader_is_kept_by_the_next_one() {
    let mut all = Cluster::of(&following("apply"), 2);
    registry_has(&all, "web:1", &digest_of("web:1"));
    all.synced().await;
    minutes(25).await;
    let (first, writes) = (all.service("shop_web"), all.writes());
    let newer = format!("sha256:{}", "b".repeat(64));
    registry_has(&all, "web:1", &newer);
    minutes(15).await;
    let resolved = format!("web:1@{newer}");
    let spec = |all: &Cluster| all.service("shop_web")["Spec"].clone();
    assert_eq!(spec(&all)["TaskTemplate"]["ContainerSpec"]["Image"], *resolved, "{}", all.story());
    assert_eq!(spec(&all)["Labels"]["com.docker.stack.image"], *resolved);
    let platforms = |service: &Value| service["TaskTemplate"]["Placement"]["Platforms"].clone();
    assert_eq!(platforms(&spec(&all)), platforms(&first["Spec"]), "those of the newer image");
    assert_eq!(all.writes(), writes + 1, "{}", all.story());
    let is_of_image = |app: &Application| {
        is_settled(app) && app.status.images.iter().any(|image| image.resolved.as_ref() == Some(&resolved))
    };
    for agent in &all.agents {
        agent.until("all agents know the image", is_of_image).await;
    }

    // Another leader and a killed agent go on with it.
    all.lead("two");
    minutes(5).await;
    all.agents[1].crash();
    all.agents[1].begin();
    minutes(25).await;
    assert_eq!(all.writes(), writes + 1, "{}", all.story());
    let refused = all.first().refusal(RequestKind::UpdateImages).await;
    assert!(refused.ends_with("ask the agent on two"), "{refused}");

    // The next leader follows the tag as well.
    let newest = format!("sha256:{}", "c".repeat(64));
    registry_has(&all, "web:1", &newest);
    minutes(25).await;
    assert_eq!(spec(&all)["TaskTemplate"]["ContainerSpec"]["Image"], format!("web:1@{newest}"));
    assert_eq!(all.writes(), writes + 2, "{}", all.story());

    // A rollback goes back to the digest, though the tag has moved on, and though the registry does not have it any more.
    let former = format!("web:1@{}", digest_of("web:1"));
    all.swarm.faults(|faults| _ = faults.missing.insert(former));
    let back = Rollback { to: Some("1".to_owned()), reason: String::new(), until: Until::NextCommit };
    all.agents[1].ask(RequestKind::Rollback(back)).await;
    minutes(5).await;
    let image = first["Spec"]["TaskTemplate"]["ContainerSpec"]["Image"].clone();
    assert_eq!(spec(&all)["TaskTemplate"]["ContainerSpec"]["Image"], image, "{}", all.story());
    assert_eq!(platforms(&spec(&all)), Value::Null, "nobody knows them");
    let pinned = all.writes();
    minutes(25).await;
    assert_eq!(all.writes(), pinned, "it stays pinned\n{}", all.story());
    all.agents[1].ask(RequestKind::Resume).await;
    minutes(5).await;
    assert_eq!(spec(&all)["TaskTemplate"]["ContainerSpec"]["Image"], format!("web:1@{newest}"));
    all.synced().await;
    all.check();
}

#[tokio::test(start_paused = true)]
async fn newer_image_of_services_is_deployed_on_request() {
    let all = Cluster::of(&following("report"), 2);
    registry_has(&all, "web:1", &digest_of("web:1"));
    all.synced().await;
    let newer = format!("sha256:{}", "b".repeat(64));
    registry_has(&all, "web:1", &newer);
    minutes(25).await;
    let image = |all: &Cluster| {
        let spec = all.service("shop_web")["Spec"]["TaskTemplate"]["ContainerSpec"].clone();
        spec["Image"].as_str().unwrap().to_owned()
    };
    assert_eq!(image(&all), format!("web:1@{}", digest_of("web:1")), "{}", all.story());
    let resolved = format!("web:1@{newer}");
    let has_news = |app: &Application| {
        let available = app.status.images.iter().filter_map(|image| image.available.as_ref());
        available.map(|available| available.image.clone()).eq([resolved.clone()])
    };
    all.first().until("the newer image is reported", has_news).await;
    all.first().ask(RequestKind::UpdateImages).await;
    minutes(5).await;
    assert_eq!(image(&all), resolved, "{}", all.story());
    let writes = all.writes();
    minutes(40).await;
    assert_eq!(all.writes(), writes, "{}", all.story());
    all.check();
}

#[tokio::test(start_paused = true)]
async fn services_of_a_stack_are_adopted_by_request() {
    let all = Cluster::of(&shop(1, "pause"), 2);
    all.synced().await;
    // As `docker stack deploy` makes it. It is not the service that the agents know.
    let is_of_agent = |label: &str| label.starts_with("driftless.");
    let mut spec = all.service("shop_web")["Spec"].clone();
    spec["Labels"].as_object_mut().unwrap().retain(|label, _| !is_of_agent(label));
    all.user("DELETE", "/services/shop_web", &Value::Null);
    all.user("POST", "/services/create", &spec);
    let has_wait = |app: &Application| {
        app.status.waits.iter().any(|wait| wait.message.contains("adopt it with `driftless adopt shop`"))
    };
    all.first().until("it asks for the adoption", has_wait).await;
    minutes(1).await;
    let (tasks, writes) = (all.images(), all.writes());
    let refused = all.agents[1].refusal(RequestKind::Adopt).await;
    assert!(refused.ends_with("ask the agent on one"), "{refused}");
    for agent in &all.agents {
        let answer = agent.handle().request("shop".into(), RequestKind::Plan).await.unwrap();
        let Answer::Plan(plan) = answer else { panic!("no plan") };
        assert_eq!(plan.adoption, ["service shop_web"]);
        assert!(plan.rounds.concat().concat().contains("update service shop_web"), "{plan:?}");
    }
    let answer = all.first().handle().request("shop".into(), RequestKind::Adopt).await.unwrap();
    assert!(matches!(&answer, Answer::Adopted(adopted) if adopted == &["service shop_web"]), "{answer:?}");
    all.synced().await;
    minutes(5).await;
    assert_eq!((all.images(), all.writes()), (tasks, writes + 1), "{}", all.story());
    assert_eq!(all.service("shop_web")["Spec"]["Labels"]["driftless.agent"], "swarm");
    let answer = all.first().handle().request("shop".into(), RequestKind::Adopt).await.unwrap();
    assert!(matches!(&answer, Answer::Adopted(adopted) if adopted.is_empty()), "{answer:?}");
    all.check();
}

#[tokio::test(start_paused = true)]
async fn digest_set_by_hand_is_undone_by_the_next_leader() {
    let mut all = Cluster::of(&shop(1, "pause"), 2);
    all.synced().await;
    minutes(5).await;
    let image = |all: &Cluster| {
        let spec = all.service("shop_web")["Spec"].clone();
        spec["TaskTemplate"]["ContainerSpec"]["Image"].as_str().unwrap().to_owned()
    };
    let before = image(&all);
    let writes = all.writes();
    all.lead("two");
    all.change("shop_web", |spec| {
        spec["TaskTemplate"]["ContainerSpec"]["Image"] = json!(format!("web:1@sha256:{}", "9".repeat(64)));
    });
    minutes(10).await;
    assert_eq!((image(&all), all.writes()), (before, writes + 1), "{}", all.story());
    all.check();
}

#[tokio::test(start_paused = true)]
async fn broken_commit_is_rolled_back_once() {
    let all = Cluster::of(&shop(1, "rollback"), 2);
    all.synced().await;
    let before = all.specs();
    all.swarm.faults(|faults| {
        faults.broken.insert("web:2".to_owned());
    });
    all.first().push(&shop(2, "rollback")).await;
    minutes(10).await;
    let status = all.first().until("it is rolled back", |app| app.status.message.contains("rollback_")).await;
    assert_eq!(status.status.sync, SyncStatus::OutOfSync, "{}", status.status.message);
    all.first().until("the former version runs", |app| app.status.health == HealthStatus::Healthy).await;
    assert_eq!(all.specs(), before, "{}", all.story());
    let writes = all.writes();
    minutes(15).await;
    assert_eq!(all.writes(), writes, "{}", all.story());
    all.first().push(&shop(3, "rollback")).await;
    all.synced().await;
    assert_eq!(all.images(), wanted_images(3));
    all.check();
}

#[tokio::test(start_paused = true)]
async fn commit_that_was_rolled_back_is_deployed_after_a_revert() {
    let all = Cluster::of(&shop(1, "rollback"), 2);
    all.synced().await;
    all.swarm.faults(|faults| {
        faults.broken.insert("web:2".to_owned());
    });
    all.first().push(&shop(2, "rollback")).await;
    all.first().until("it is rolled back", |app| app.status.message.contains("rollback_")).await;
    all.first().push(&shop(1, "rollback")).await;
    all.synced().await;
    minutes(5).await;
    assert_eq!(all.images(), wanted_images(1));
    all.swarm.faults(|faults| faults.broken.clear());
    all.first().push(&shop(2, "rollback")).await;
    all.synced().await;
    assert_eq!(all.images(), wanted_images(2), "{}", all.story());
    all.check();
}

#[tokio::test(start_paused = true)]
async fn paused_update_is_degraded_and_stays_so() {
    let all = Cluster::of(&shop(1, "pause"), 2);
    all.synced().await;
    all.swarm.faults(|faults| {
        faults.exits.insert("web:2".to_owned(), (Duration::from_millis(500), 1));
    });
    all.first().push(&shop(2, "pause")).await;
    let is_paused = |app: &Application| {
        app.status.message.contains("paused: update paused due to failure")
            && app.status.health == HealthStatus::Degraded
    };
    all.first().until("the update is paused", is_paused).await;
    minutes(1).await;
    let writes = all.writes();
    minutes(15).await;
    assert_eq!(all.writes(), writes, "{}", all.story());
    assert_eq!(all.images()["web:1"], 2, "the other tasks are as before");
    all.check();
}

#[tokio::test(start_paused = true)]
async fn other_engine_waits_for_all_objects_of_the_swarm() {
    let mut all =
        Cluster::of("services: {web: {image: 'web:1', configs: [c]}}\nconfigs: {c: {content: hi}}\n", 1);
    all.synced().await;
    let agent = &mut all.agents[0];
    agent.crash();
    agent.settings.policy.engine = EngineKind::Docker;
    agent.begin();
    let waits_for = async |command: String| {
        let has_wait = |app: &Application| app.status.waits.iter().any(|it| it.message.contains(&command));
        all.first().until(&command, has_wait).await;
    };
    let configs = all.names("configs").join(" ");
    let left = format!("docker config rm {configs} && docker network rm shop_default`");
    waits_for(format!("`docker service rm shop_web && {left}")).await;
    all.user("DELETE", "/services/shop_web", &Value::Null);
    waits_for(format!("`{left}")).await;
    for name in all.names("configs") {
        all.user("DELETE", &format!("/configs/{name}"), &Value::Null);
    }
    waits_for("`docker network rm shop_default`".to_owned()).await;
    assert_eq!(all.first().docker.observed(&"shop".into()).instances.len(), 0);
    all.user("DELETE", "/networks/shop_default", &Value::Null);
    all.synced().await;
    let observed = all.first().docker.observed(&"shop".into());
    assert_eq!((observed.instances.len(), observed.networks.len()), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn other_engine_waits_while_the_swarm_is_locked() {
    let mut all = Cluster::of("services: {web: {image: 'web:1'}}\n", 1);
    all.synced().await;
    let agent = &mut all.agents[0];
    agent.crash();
    agent.settings.policy.engine = EngineKind::Docker;
    all.swarm.fail("one", Outage::Lock);
    all.agents[0].begin();
    let has_wait = |words: &'static str| {
        move |app: &Application| app.status.waits.iter().any(|wait| wait.message.contains(words))
    };
    all.first().until("it names the lock", has_wait("`docker swarm unlock`")).await;
    minutes(10).await;
    assert_eq!(all.first().docker.observed(&"shop".into()).instances.len(), 0, "{}", all.story());
    all.swarm.restore("one");
    all.first().until("it names the service", has_wait("`docker service rm shop_web")).await;
    assert_eq!(all.first().docker.observed(&"shop".into()).instances.len(), 0, "{}", all.story());
}

#[tokio::test(start_paused = true)]
async fn containers_are_healed_on_a_manager_without_a_leader() {
    let all = Cluster::begun("services: {web: {image: 'web:1'}}\n", 1, true, EngineKind::Docker);
    for node in ["two", "three"] {
        all.swarm.fail(node, Outage::Power);
    }
    all.synced().await;
    let removed = UserAction::Remove { name: "shop-web-1".to_owned() };
    all.first().docker.user_action(&"shop".into(), &removed).unwrap();
    minutes(10).await;
    all.synced().await;
    assert_eq!(all.first().docker.observed(&"shop".into()).instances.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn removal_ends_although_another_manager_has_not_fetched() {
    let all = Cluster::with_own_gits(&shop(1, "pause"), 2);
    all.synced().await;
    all.first().git.push_files("Ada <a@b.c>", &[("other/README.md", "")]);
    minutes(10).await;
    assert_eq!(all.specs(), BTreeMap::new(), "{}", all.story());
    // Nobody writes the shared state again, over and over.
    let writes = all.swarm.writes().len();
    minutes(10).await;
    assert_eq!(all.swarm.writes().len(), writes, "{}", all.story());
    assert_eq!(all.names("configs"), [] as [&str; 0]);
}

#[tokio::test(start_paused = true)]
async fn service_that_lost_a_label_is_removed_from_the_swarm() {
    let all = Cluster::of(&shop(1, "pause"), 1);
    all.synced().await;
    all.first().ask(RequestKind::Suspend).await;
    for label in ["driftless.application", "driftless.agent"] {
        let name = if label.ends_with("agent") { "shop_web" } else { "shop_db" };
        all.change(name, |spec| drop(spec["Labels"].as_object_mut().unwrap().remove(label).unwrap()));
    }
    all.first().git.push("services: {each: {image: 'each:1', deploy: {mode: global}}}\n");
    all.first().ask(RequestKind::Resume).await;
    minutes(3).await;
    assert_eq!(all.names("services"), ["shop_each"], "{}", all.story());
}

#[tokio::test(start_paused = true)]
async fn service_that_lost_all_labels_is_removed_from_the_swarm() {
    let all = Cluster::of(&shop(1, "pause"), 1);
    all.synced().await;
    all.first().ask(RequestKind::Suspend).await;
    for name in ["shop_db", "shop_web"] {
        all.change(name, |spec| {
            spec["Labels"].as_object_mut().unwrap().retain(|label, _| !label.starts_with("driftless."));
        });
    }
    all.first().git.push("services: {each: {image: 'each:1', deploy: {mode: global}}}\n");
    // The agent fetches while it is suspended, so that it does not heal the labels for the commit before.
    minutes(10).await;
    let resumed = all.swarm.writes().len();
    all.first().ask(RequestKind::Resume).await;
    minutes(3).await;
    assert_eq!(all.names("services"), ["shop_each"], "{}", all.story());
    let later = all.swarm.writes().split_off(resumed);
    let replicas: Vec<u64> =
        later.iter().filter_map(|write| write.body.pointer("/Mode/Replicated/Replicas")?.as_u64()).collect();
    assert_eq!(replicas, [0, 0], "{}", all.story());
}

#[tokio::test(start_paused = true)]
async fn services_wait_for_containers_on_another_manager() {
    let mut all = Cluster::begun("services: {web: {image: 'web:1'}}\n", 2, true, EngineKind::Docker);
    all.synced().await;
    let remove = |agent: &Simulation| {
        for action in [
            UserAction::Remove { name: "shop-web-1".to_owned() },
            UserAction::RemoveNetwork { name: "shop_default".to_owned() },
        ] {
            agent.docker.user_action(&"shop".into(), &action).unwrap();
        }
    };
    for agent in &mut all.agents {
        agent.crash();
        agent.settings.policy.engine = EngineKind::Swarm;
    }
    remove(&all.agents[0]);
    let has_wait = |words: &'static str| {
        move |app: &Application| app.status.waits.iter().any(|wait| wait.message.contains(words))
    };
    let command = "on this host: remove them with `docker rm -f shop-web-1`";
    all.agents[1].begin();
    all.agents[1].until("the other manager waits", has_wait(command)).await;
    // The leader sees nothing on its own host.
    all.agents[0].begin();
    let sentence = "on two, as the agent there says: remove them there with `docker rm -f shop-web-1";
    all.first().until("the leader waits", has_wait(sentence)).await;
    minutes(5).await;
    assert_eq!(all.names("services"), [] as [&str; 0], "{}", all.story());
    remove(&all.agents[1]);
    all.synced().await;
    assert_eq!(all.names("services"), ["shop_web"], "{}", all.story());
    minutes(5).await;
    all.check();
}

#[tokio::test(start_paused = true)]
async fn removal_from_git_leaves_nothing_in_the_swarm() {
    let all = Cluster::of(&shop(1, "pause"), 2);
    all.synced().await;
    all.first().ask(RequestKind::Suspend).await;
    minutes(1).await;
    all.first().ask(RequestKind::Resume).await;
    minutes(1).await;
    all.user("POST", "/configs/create", &json!({"Name": "theirs", "Data": ""}));
    all.first().git.push_files("Ada <a@b.c>", &[("other/README.md", "")]);
    minutes(10).await;
    assert_eq!(all.specs(), BTreeMap::new(), "{}", all.story());
    assert_eq!(all.names("configs"), ["theirs"], "{}", all.story());
    assert_eq!(all.list("/networks"), [] as [Value; 0], "{}", all.story());
    assert_eq!(all.list("/tasks"), [] as [Value; 0]);
    assert_eq!(all.first().handle().applications().len(), 0);
    all.check();
}

#[tokio::test(start_paused = true)]
async fn application_is_removed_by_the_agent_on_the_leader() {
    let mut all = Cluster::of(&shop(1, "pause"), 2);
    for agent in &mut all.agents {
        agent.crash();
        agent.settings.policy.prune = false;
        agent.begin();
    }
    all.synced().await;
    let refused = all.agents[1].refusal(RequestKind::Heal).await;
    assert!(refused.ends_with("ask the agent on one"), "{refused}");
    all.first().git.push_files("Ada <a@b.c>", &[("other/README.md", "")]);
    minutes(10).await;
    let refused = all.agents[1].refusal(RequestKind::Remove(Removal::KeepVolumes)).await;
    assert!(refused.ends_with("ask the agent on one"), "{refused}");
    let refused = all.first().refusal(RequestKind::Remove(Removal::WithVolumes)).await;
    assert!(refused.ends_with("`docker volume rm` on each node"), "{refused}");
    assert_eq!(all.specs().len(), 3, "{}", all.story());
    all.first().ask(RequestKind::Remove(Removal::KeepVolumes)).await;
    minutes(10).await;
    assert_eq!(all.specs(), BTreeMap::new(), "{}", all.story());
    all.check();
}

#[tokio::test(start_paused = true)]
async fn service_without_task_and_label_stays_without_prune() {
    let mut all = Cluster::of("services: {web: {image: 'web:1', deploy: {replicas: 0}}}\n", 2);
    for agent in &mut all.agents {
        agent.crash();
        agent.settings.policy.prune = false;
        agent.begin();
    }
    all.synced().await;
    all.first().git.push_files("Ada <a@b.c>", &[("other/README.md", "")]);
    minutes(10).await;
    all.change("shop_web", |spec| {
        spec["Labels"].as_object_mut().unwrap().remove("driftless.application").unwrap();
    });
    minutes(10).await;
    // The next leader finds it, too.
    all.lead("two");
    minutes(10).await;
    assert_eq!(all.names("services"), ["shop_web"], "{}", all.story());
    for agent in &all.agents {
        assert_eq!(agent.handle().applications().len(), 1);
    }
}

/// One thing that goes wrong, or a push. Returns the version of a push.
pub(crate) async fn mishap(
    all: &mut Cluster,
    dice: &mut Dice,
    manifest: fn(u32, &str) -> String,
) -> Option<u32> {
    let node = NODES[dice.roll(3) as usize];
    let agent = dice.roll(3) as usize;
    match dice.roll(14) {
        0..=3 => {
            let version = dice.roll(4) as u32;
            let action = if dice.roll(2) == 0 { "pause" } else { "rollback" };
            all.first().git.push(&manifest(version, action));
            return Some(version);
        }
        4 => all.lead(node),
        5 => {
            // Two at once would leave no majority.
            for node in NODES {
                all.swarm.restore(node);
            }
            let outage = if dice.roll(2) == 0 { Outage::Power } else { Outage::Link };
            all.swarm.fail(node, outage);
            all.changes.push(all.first().clock.now());
        }
        6 => {
            for node in NODES {
                all.swarm.restore(node);
            }
        }
        7 => all.agents[agent].docker.faults(|faults| faults.lost_answers = 2),
        8 => all.agents[agent].docker.faults(|faults| faults.failing_calls = 3),
        9 => {
            let availability = ["active", "drain", "pause"][dice.roll(3) as usize];
            all.swarm.set_availability(node, availability);
        }
        10 => {
            let agent = &mut all.agents[agent];
            agent.docker.crash_after(1 + dice.roll(3) as u32);
            sleep(Duration::from_secs(dice.roll(40))).await;
            agent.crash();
            agent.begin();
        }
        11 => all.agents[agent].docker.disconnect(),
        12 => all.agents.iter().for_each(|agent| agent.docker.reconnect()),
        _ => {
            let service = ["shop_web", "shop_db", "shop_each"][dice.roll(3) as usize];
            let path = format!("/services/{service}");
            // It may not be there at this moment, and nobody may lead.
            let Ok(found) = all.swarm.user_call("GET", &path, &Value::Null) else { return None };
            if dice.roll(3) == 0 {
                let _ = all.swarm.user_call("DELETE", &path, &Value::Null);
                return None;
            }
            let mut spec = found["Spec"].clone();
            spec["Labels"]["team"] = json!(dice.roll(9).to_string());
            let path = format!("{path}/update?version={}", found["Version"]["Index"]);
            let _ = all.swarm.user_call("POST", &path, &spec);
        }
    }
    None
}

async fn survive(seed: u64) {
    eprintln!("seed {seed}; to run it alone: SEED={seed}");
    let mut dice = Dice(seed);
    let mut all = Cluster::of(&shop(0, "pause"), NODES.len());
    let mut version = 0;
    for _ in 0..25 {
        version = mishap(&mut all, &mut dice, shop).await.unwrap_or(version);
        sleep(Duration::from_millis(dice.roll(40_000))).await;
    }
    all.repair();
    all.whole(version).await;
    all.synced().await;
    minutes(6).await;
    let writes = all.writes();
    minutes(30).await;
    assert_eq!(all.writes(), writes, "seed {seed}\n{}", all.story());
    assert_eq!(all.images(), wanted_images(version), "seed {seed}\n{}", all.story());
    all.check();
}

#[tokio::test(start_paused = true)]
async fn faults_of_a_swarm_in_any_order_end_as_git_says() {
    if let Ok(seed) = std::env::var("SEED") {
        return survive(seed.parse().unwrap()).await;
    }
    for seed in 0..4 {
        survive(seed).await;
    }
}
