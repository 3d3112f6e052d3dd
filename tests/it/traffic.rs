//! The reports to the proxies of Services, on the simulated engine: each names a ready endpoint while there is one.

use std::{collections::BTreeSet, net::IpAddr, time::Duration};

use driftless_agent::RequestKind;
use driftless_clock::Clock;
use driftless_docker::UserAction;
use driftless_model::{ContainerId, Instance, is_proxy_image};
use tokio::time::sleep;

use crate::{
    sample::NOON,
    simulation::{Simulation, app},
};

fn manifests(image: &str, replicas: u32) -> String {
    format!(
        "apiVersion: apps/v1
kind: Deployment
metadata: {{name: web}}
spec:
  replicas: {replicas}
  selector: {{matchLabels: {{app: web}}}}
  template:
    metadata: {{labels: {{app: web}}}}
    spec:
      containers:
        - name: web
          image: '{image}'
          readinessProbe: {{exec: {{command: [ready]}}, initialDelaySeconds: 5, periodSeconds: 1, failureThreshold: 1}}
---
apiVersion: v1
kind: Service
metadata: {{name: front}}
spec: {{type: NodePort, selector: {{app: web}}, ports: [{{port: 80, nodePort: 30080}}]}}
"
    )
}

fn push(it: &Simulation, image: &str, replicas: u32) -> String {
    it.git.push_files("Ada <a@b.c>", &[("shop/shop.yaml", &manifests(image, replicas))])
}

/// An agent on an empty host.
async fn deployed(replicas: u32) -> Simulation {
    let mut it = Simulation::idle_at(Clock::starting_at(NOON));
    let commit = push(&it, "web:1", replicas);
    it.begin();
    it.synced(&commit).await;
    it
}

fn containers(it: &Simulation, is_one: impl Fn(&Instance) -> bool) -> Vec<Instance> {
    let observed = it.docker.observed(&app());
    observed.instances.into_values().filter(|it| it.is_running() && is_one(it)).collect()
}

fn addresses(it: &Simulation, image: &str) -> BTreeSet<IpAddr> {
    let all = containers(it, |it| it.config.image == image);
    let all = all.iter().flat_map(|it| it.networks.values());
    all.map(|endpoint| endpoint.ip.as_ref().unwrap().parse().unwrap()).collect()
}

/// The proxy with the ready endpoints.
fn proxy(it: &Simulation) -> ContainerId {
    let told = |instance: &Instance| {
        is_proxy_image(&instance.config.image) && !it.docker.traffic(&instance.id).is_empty()
    };
    let mut all = containers(it, told);
    assert_eq!(all.len(), 1, "{all:#?}");
    all.remove(0).id
}

/// Waits for a state of the simulated host.
async fn until(it: &Simulation, what: &str, is_so: impl Fn() -> bool) {
    for _ in 0..60_000 {
        if is_so() {
            return;
        }
        sleep(Duration::from_millis(1)).await;
    }
    panic!("never: {what}\n{}", it.story());
}

#[tokio::test(start_paused = true)]
async fn restart_of_the_agent_leaves_a_proxy_an_endpoint() {
    let mut it = deployed(2).await;
    let proxy = proxy(&it);
    let before = it.docker.traffic(&proxy).len();
    // More pods, of which the proxy has not heard when the agent dies.
    push(&it, "web:1", 5);
    it.ask(RequestKind::Sync).await;
    until(&it, "five pods", || addresses(&it, "web:1").len() == 5).await;
    it.crash();
    let known: BTreeSet<IpAddr> = it.docker.traffic(&proxy).last().cloned().unwrap();
    assert_eq!(known.len(), 2, "the former agent has reported them already");
    sleep(Duration::from_secs(6)).await;
    // One of the two that it knows: no probe of the next agent will have said for five seconds whether it is ready.
    let first =
        containers(&it, |it| it.instance.workload.as_str() == "web" && it.instance.slot == 1).remove(0);
    for action in [UserAction::Kill { name: first.name.clone() }, UserAction::Start { name: first.name }] {
        it.docker.user_action(&app(), &action).unwrap();
    }
    let commit = push(&it, "web:2", 2);
    it.docker.faults(|faults| faults.stop = Duration::from_secs(20));
    it.begin();
    it.synced(&commit).await;
    let traffic = it.docker.traffic(&proxy);
    assert!(traffic.len() > before + 2, "{traffic:?}");
    let since = &traffic[before..];
    assert!(since.iter().all(|admitted| !admitted.is_empty()), "{since:#?}\n{}", it.story());
    assert_eq!(traffic.last(), Some(&addresses(&it, "web:2")));
}

#[tokio::test(start_paused = true)]
async fn pods_of_a_superseded_commit_are_probed_by_the_next_agent() {
    let mut it = deployed(3).await;
    let proxy = proxy(&it);
    it.docker.faults(|faults| _ = faults.unhealthy.insert("web:2".to_owned()));
    push(&it, "web:2", 3);
    it.ask(RequestKind::Sync).await;
    until(&it, "a pod of the second commit", || !addresses(&it, "web:2").is_empty()).await;
    it.docker.faults(|faults| _ = faults.pulls.insert("web:3".to_owned(), Duration::from_mins(1)));
    let commit = push(&it, "web:3", 3);
    it.ask(RequestKind::Sync).await;
    sleep(Duration::from_secs(10)).await;
    it.crash();
    let (before, unready) = (it.docker.traffic(&proxy).len(), addresses(&it, "web:2"));
    assert!(!unready.is_empty(), "nothing is removed while an image is missing");
    it.begin();
    it.synced(&commit).await;
    let traffic = it.docker.traffic(&proxy);
    assert_eq!(traffic.last(), Some(&addresses(&it, "web:3")));
    let is_told = |admitted: &BTreeSet<IpAddr>| !admitted.is_disjoint(&unready);
    assert!(!traffic[before..].iter().any(is_told), "{unready:?}: {:#?}\n{}", &traffic[before..], it.story());
}

const SET: &str = "apiVersion: apps/v1
kind: StatefulSet
metadata: {name: db}
spec:
  replicas: 3
  serviceName: db
  minReadySeconds: 20
  selector: {matchLabels: {app: db}}
  template:
    metadata: {labels: {app: db}}
    spec:
      containers:
        - name: db
          image: 'db:1'
          readinessProbe: {exec: {command: [ready]}, periodSeconds: 10}
---
apiVersion: v1
kind: Service
metadata: {name: db}
spec: {clusterIP: None, selector: {app: db}, ports: [{port: 80}]}
";

#[tokio::test(start_paused = true)]
async fn restart_of_the_agent_leaves_the_pods_of_a_set_ready() {
    for is_known in [true, false] {
        let mut it = Simulation::idle_at(Clock::starting_at(NOON));
        let push = |it: &Simulation, text: &str| it.git.push_files("Ada <a@b.c>", &[("shop/db.yaml", text)]);
        let commit = push(&it, SET);
        it.begin();
        it.synced(&commit).await;
        it.crash();
        if !is_known {
            let mut record = it.store.record(&app()).unwrap();
            assert_eq!(std::mem::take(&mut record.ready).len(), 3);
            it.store.save_record(&app(), &record).unwrap();
        }
        let before = it.docker.transcript().len();
        // The version before is what it reads first; the probes have said nothing about its pods when the fetch ends.
        let commit = push(&it, &SET.replace("db:1", "db:2"));
        it.begin();
        it.synced(&commit).await;
        for entry in &it.docker.transcript()[before..] {
            let is_up = |it: &&Instance| it.is_running() && it.instance.workload.as_str().starts_with("db");
            let up = entry.before.instances.values().filter(is_up).count();
            assert!(up >= 2, "{is_known}: {up} of 3 run\n{}", it.story());
        }
        assert_eq!(addresses(&it, "db:2").len(), 3);
    }
}

#[tokio::test(start_paused = true)]
async fn endpoint_fails_during_a_long_stop_and_loses_its_traffic() {
    let it = deployed(3).await;
    let proxy = proxy(&it);
    it.docker.faults(|faults| faults.stop = Duration::from_secs(25));
    push(&it, "web:2", 3);
    it.ask(RequestKind::Sync).await;
    let new = || addresses(&it, "web:2");
    let told = || it.docker.traffic(&proxy).last().cloned().unwrap_or_default();
    until(&it, "a new pod with traffic, and an old one that is being stopped", || {
        !new().is_empty() && new().is_subset(&told()) && told().len() == 3
    })
    .await;
    it.docker.faults(|faults| _ = faults.unhealthy.insert("web:2".to_owned()));
    sleep(Duration::from_secs(4)).await;
    assert_eq!(addresses(&it, "web:1").len(), 3, "the old one is still being stopped");
    assert!(told().is_disjoint(&new()) && told().len() == 2, "{:?}", told());
}
