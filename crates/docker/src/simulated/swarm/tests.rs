use std::{path::Path, time::Duration};

use driftless_clock::Clock;
use driftless_model::{AgentId, AppName, ObservedSwarm, STACK_NAMESPACE, Timestamp};
use serde_json::{Value, json};
use tokio::time::sleep;

use super::SimulatedSwarm;
use crate::{
    docker::{Docker as _, ObserveScope},
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

    async fn observed(&self) -> ObservedSwarm {
        let scope = ObserveScope { is_swarm: true, namespace: "shop".to_owned(), ..ObserveScope::default() };
        let observed = self.engine.observe(&AppName::from("shop"), &scope).await.unwrap();
        *observed.swarm.unwrap()
    }
}

#[tokio::test(start_paused = true)]
async fn tasks_of_a_removed_service_are_seen_until_they_stop() {
    let scene = Scene::new();
    scene.create("shop");
    scene.create("blog");
    sleep(Duration::from_secs(5)).await;
    // The services are none of the application, and present.
    assert!(scene.observed().await.tasks.is_empty());
    for stack in ["shop", "blog"] {
        scene.swarm.user_call("DELETE", &format!("/services/{stack}_db"), &Value::Null).unwrap();
    }
    let observed = scene.observed().await;
    let tasks: Vec<_> = observed.tasks.values().map(|task| (&*task.state, &*task.desired_state)).collect();
    assert_eq!(tasks, [("running", "remove")]);
    assert!(observed.tasks.values().all(|task| task.writes.contains("shop_data")));
    sleep(Duration::from_secs(5)).await;
    assert!(scene.observed().await.tasks.is_empty());
}
