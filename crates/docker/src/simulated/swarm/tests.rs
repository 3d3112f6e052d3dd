//! Tests of the Swarm in memory, seen as the planner sees it.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    time::Duration,
};

use driftless_clock::Clock;
use driftless_model::{
    AgentId, AppName, Observed, STACK_NAMESPACE, SWARM_OWNER, SwarmTask, Timestamp, label,
};
use driftless_plan::{Action, SwarmAction};
use serde_json::{Value, json};
use tokio::time::sleep;

use super::{Outage, SimulatedSwarm};
use crate::{
    docker::{Docker as _, ObserveScope},
    error::Error,
    simulated::SimulatedEngine,
};

/// A Swarm of one manager, and what an agent on it observes of the application `shop`.
struct Scene {
    swarm: SimulatedSwarm,
    engine: SimulatedEngine,
}

impl Scene {
    fn new() -> Self {
        let clock = Clock::starting_at(Timestamp(0));
        let swarm = SimulatedSwarm::new(clock, &["one"]);
        let engine = SimulatedEngine::new(AgentId("agent".to_owned()), clock);
        engine.join(&swarm, "one", Path::new("/content"), Path::new("/secret"));
        Self { swarm, engine }
    }

    /// A user creates a service of a stack that writes to a volume.
    fn create(&self, stack: &str) {
        let mount = json!({"Type": "volume", "Source": format!("{stack}_data"), "Target": "/data"});
        let spec = json!({
            "Name": format!("{stack}_db"),
            "Labels": {STACK_NAMESPACE: stack},
            "TaskTemplate": {"ContainerSpec": {"Image": "db:1", "Mounts": [mount]}},
            "Mode": {"Replicated": {"Replicas": 1}},
        });
        self.swarm.user_call("POST", "/services/create", &spec).unwrap();
    }

    async fn observed(&self) -> Observed {
        let scope = ObserveScope { is_swarm: true, namespace: "shop".to_owned(), ..ObserveScope::default() };
        self.engine.observe(&AppName::from("shop"), &scope).await.unwrap()
    }

    async fn tasks(&self) -> BTreeMap<String, SwarmTask> {
        self.observed().await.swarm.unwrap().tasks
    }
}

#[tokio::test(start_paused = true)]
async fn tasks_of_a_removed_service_are_seen_until_they_stop() {
    let scene = Scene::new();
    scene.create("shop");
    scene.create("blog");
    sleep(Duration::from_secs(5)).await;
    // The services are none of the application, and present.
    assert!(scene.tasks().await.is_empty());
    for stack in ["shop", "blog"] {
        scene.swarm.user_call("DELETE", &format!("/services/{stack}_db"), &Value::Null).unwrap();
    }
    let tasks = scene.tasks().await;
    let states: Vec<_> = tasks.values().map(|task| (&*task.state, &*task.desired_state)).collect();
    assert_eq!(states, [("running", "remove")]);
    assert!(tasks.values().all(|task| task.writes.contains("shop_data")));
    sleep(Duration::from_secs(5)).await;
    assert!(scene.tasks().await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn writers_of_others_are_seen_while_data_are_awaited() {
    let scene = Scene::new();
    scene.create("shop");
    let mount = json!({"Type": "volume", "Source": "shop_data", "Target": "/data"});
    let spec = json!({
        "Name": "blog_db",
        "Labels": {STACK_NAMESPACE: "blog", label::AGENT: SWARM_OWNER, label::APPLICATION: "blog"},
        "TaskTemplate": {"ContainerSpec": {"Image": "db:1", "Mounts": [mount]}},
        "Mode": {"Replicated": {"Replicas": 1}},
    });
    scene.swarm.user_call("POST", "/services/create", &spec).unwrap();
    sleep(Duration::from_secs(5)).await;
    let observed = async |service: &str| {
        let scope = ObserveScope {
            is_swarm: true,
            namespace: "shop".to_owned(),
            services: BTreeSet::from(["shop_db".to_owned()]),
            data: BTreeMap::from([(service.to_owned(), BTreeSet::from(["shop_data".to_owned()]))]),
            ..ObserveScope::default()
        };
        let observed = scene.engine.observe(&AppName::from("shop"), &scope).await.unwrap();
        let swarm = *observed.swarm.unwrap();
        (swarm.other_services.into_keys().collect::<Vec<_>>(), swarm.tasks)
    };
    // The service of the application has the data already.
    let (others, tasks) = observed("shop_db").await;
    assert_eq!((others.len(), tasks.len()), (0, 1));
    let (others, tasks) = observed("shop_new").await;
    assert_eq!((others, tasks.len()), (vec!["blog_db".to_owned()], 2));
    assert!(tasks.values().all(|task| task.writes.contains("shop_data")));
    // A user removes it.
    scene.swarm.user_call("DELETE", "/services/blog_db", &Value::Null).unwrap();
    let (others, tasks) = observed("shop_new").await;
    assert_eq!((others.len(), tasks.len()), (0, 2));
}

#[tokio::test(start_paused = true)]
async fn service_without_labels_is_known_by_its_id() {
    let scene = Scene::new();
    scene.create("shop");
    let services = async |scope: ObserveScope| {
        let scope = ObserveScope { is_swarm: true, ..scope };
        let observed = scene.engine.observe(&AppName::from("shop"), &scope).await.unwrap();
        observed.swarm.unwrap().services
    };
    let wanted = BTreeSet::from(["shop_db".to_owned()]);
    let found = services(ObserveScope { services: wanted, ..ObserveScope::default() }).await;
    for (id, count) in [(found["shop_db"].id.clone(), 1), ("another".to_owned(), 0)] {
        let left = ObserveScope { own_services: BTreeSet::from([id]), ..ObserveScope::default() };
        assert_eq!(services(left).await.len(), count);
    }
}

#[tokio::test(start_paused = true)]
async fn network_names_the_services_of_others_that_use_it() {
    let scene = Scene::new();
    let network = json!({
        "Name": "public", "Driver": "overlay", "Labels": {label::AGENT: SWARM_OWNER, label::APPLICATION: "shop"},
    });
    scene.swarm.user_call("POST", "/networks/create", &network).unwrap();
    let users = async || scene.observed().await.networks["public"].foreign.clone();
    for (name, labels) in [
        ("blog_web", json!({STACK_NAMESPACE: "blog"})),
        ("shop_web", json!({label::AGENT: SWARM_OWNER, label::APPLICATION: "shop"})),
    ] {
        assert!(users().await.is_empty());
        let spec = json!({
            "Name": name,
            "Labels": labels,
            "TaskTemplate": {"ContainerSpec": {"Image": "web:1"}, "Networks": [{"Target": "public"}]},
            "Mode": {"Replicated": {"Replicas": 0}},
        });
        scene.swarm.user_call("POST", "/services/create", &spec).unwrap();
        if name == "blog_web" {
            assert_eq!(users().await, ["blog_web"]);
            scene.swarm.user_call("DELETE", "/services/blog_web", &Value::Null).unwrap();
        }
    }
    // A service of the application says itself whether it needs the network.
    assert!(users().await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn service_that_is_adopted_is_stopped_in_the_version_seen() {
    let scene = Scene::new();
    scene.create("shop");
    let found = scene.swarm.user_call("GET", "/services/shop_db", &Value::Null).unwrap();
    let mut spec = found["Spec"].clone();
    spec["Mode"]["Replicated"]["Replicas"] = json!(0);
    let version = found["Version"]["Index"].as_u64().unwrap();
    let stop = async |version: u64| {
        let (name, id) = ("shop_db".to_owned(), found["ID"].as_str().unwrap().to_owned());
        let action = SwarmAction::StopService { name, id, version, spec: spec.clone() };
        scene.engine.perform(&AppName::from("shop"), &Action::Swarm(Box::new(action)), &|_| {}).await
    };
    assert!(matches!(stop(version + 1).await, Err(Error::Refused { .. })));
    stop(version).await.unwrap();
    let found = scene.swarm.user_call("GET", "/services/shop_db", &Value::Null).unwrap();
    assert_eq!(found["Spec"]["Mode"]["Replicated"]["Replicas"], 0);
}

#[tokio::test(start_paused = true)]
async fn task_that_an_update_keeps_has_the_present_specification() {
    let scene = Scene::new();
    scene.create("shop");
    let write = |change: fn(&mut Value)| {
        let found = scene.swarm.user_call("GET", "/services/shop_db", &Value::Null).unwrap();
        let mut spec = found["Spec"].clone();
        change(&mut spec);
        let version = &found["Version"]["Index"];
        let path = format!("/services/shop_db/update?version={version}");
        scene.swarm.user_call("POST", &path, &spec).unwrap();
    };
    write(|spec| spec["Labels"][label::APPLICATION] = json!("shop"));
    sleep(Duration::from_secs(10)).await;
    let first: Vec<String> = scene.tasks().await.into_keys().collect();
    assert_eq!(first.len(), 1);
    // A task tells no ports, but the manager knows them.
    write(|spec| {
        let port = json!({"PublishedPort": 80, "TargetPort": 80, "PublishMode": "ingress"});
        spec["EndpointSpec"] = json!({"Ports": [port]});
    });
    assert!(!scene.tasks().await[&first[0]].is_current);
    sleep(Duration::from_secs(10)).await;
    let running = scene.tasks().await.into_values().find(|task| task.state == "running").unwrap();
    assert!(running.is_current && running.id != first[0]);
    // Its node meets the constraint.
    write(|spec| spec["TaskTemplate"]["Placement"] = json!({"Constraints": ["node.hostname == one"]}));
    sleep(Duration::from_secs(10)).await;
    let kept = scene.tasks().await.into_values().find(|task| task.state == "running").unwrap();
    assert!(kept.is_current && kept.id == running.id);
}

#[tokio::test(start_paused = true)]
async fn objects_that_the_swarm_does_not_list_are_unknown() {
    for (outage, words) in
        [(Outage::Lock, "run `docker swarm unlock`"), (Outage::Link, "does not have a leader")]
    {
        let scene = Scene::new();
        let left = async |had_services: bool| {
            let scope = ObserveScope { had_services, ..ObserveScope::default() };
            scene.engine.observe(&AppName::from("shop"), &scope).await.unwrap().left_in_swarm
        };
        assert!(left(true).await.is_empty());
        scene.swarm.fail("one", outage);
        let unknown = left(true).await.unknown.unwrap();
        assert!(unknown.contains(words), "{unknown}");
        // It may have nothing to do with the Swarm.
        assert!(left(false).await.is_empty());
        scene.swarm.restore("one");
        assert!(left(true).await.is_empty());
    }
    let scene = Scene::new();
    scene.engine.join(&scene.swarm, "another", Path::new("/content"), Path::new("/secret"));
    let scope = ObserveScope { had_services: true, ..ObserveScope::default() };
    let observed = scene.engine.observe(&AppName::from("shop"), &scope).await.unwrap();
    assert!(observed.left_in_swarm.is_empty(), "its engine is in no Swarm");
}

#[tokio::test(start_paused = true)]
async fn advice_fits_the_state_of_the_engine_in_the_swarm() {
    let scene = Scene::new();
    let failure = async || {
        let scope = ObserveScope { is_swarm: true, ..ObserveScope::default() };
        scene.engine.observe(&AppName::from("shop"), &scope).await.unwrap_err().to_string()
    };
    scene.swarm.fail("one", Outage::Lock);
    let locked = failure().await;
    assert!(locked.contains("run `docker swarm unlock`") && !locked.contains("engine: docker"), "{locked}");
    assert!(!locked.contains("swarm init"), "{locked}");
    scene.engine.join(&scene.swarm, "another", Path::new("/content"), Path::new("/secret"));
    let in_none = failure().await;
    assert!(in_none.contains("`docker swarm init`, or set `engine: docker`"), "{in_none}");
}

#[tokio::test(start_paused = true)]
async fn ports_of_other_services_are_seen() {
    let scene = Scene::new();
    for stack in ["shop", "blog"] {
        let number = if stack == "shop" { 80 } else { 8080 };
        let port =
            json!({"Protocol": "tcp", "TargetPort": 80, "PublishedPort": number, "PublishMode": "ingress"});
        let spec = json!({
            "Name": format!("{stack}_web"),
            "Labels": {STACK_NAMESPACE: stack, label::AGENT: SWARM_OWNER, label::APPLICATION: stack},
            "TaskTemplate": {"ContainerSpec": {"Image": "web:1"}},
            "Mode": {"Replicated": {"Replicas": 1}},
            "EndpointSpec": {"Ports": [port]},
        });
        scene.swarm.user_call("POST", "/services/create", &spec).unwrap();
    }
    let swarm = scene.observed().await.swarm.unwrap();
    let users: Vec<_> =
        swarm.port_users.iter().map(|(port, name)| (port.to_string(), name.as_str())).collect();
    assert_eq!(users, [("8080/tcp".to_owned(), "blog_web")]);
    assert_eq!(swarm.services["shop_web"].ports().len(), 1);
}
