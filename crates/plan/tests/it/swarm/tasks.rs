//! Tasks: which dependencies they meet, and how the status shows them.

use driftless_model::{Completion, HealthStatus, Healthcheck, RestartPolicy, SwarmRestart};
use driftless_plan::with_global_tasks;

use super::*;

#[test]
fn dependency_that_should_have_no_tasks_is_met() {
    for condition in [Condition::Started, Condition::Healthy] {
        let mut cluster = shop();
        let web = cluster.stack.workloads.get_mut(&"web".into()).unwrap();
        web.after[0].condition = condition;
        cluster.stack.workloads.get_mut(&"db".into()).unwrap().replicas = 0;
        let steps = cluster.settle();
        assert_eq!(steps.last().map(String::as_str), Some("create service shop_web from web:1"));
    }
}

#[test]
fn new_global_service_is_awaited_until_its_nodes_are_counted() {
    for condition in [Condition::Started, Condition::Healthy] {
        let mut cluster = shop();
        let web = cluster.stack.workloads.get_mut(&"web".into()).unwrap();
        web.after[0].condition = condition;
        let global = SwarmService { mode: SwarmMode::Global, ..SwarmService::default() };
        cluster.stack.swarm.insert("db".into(), global);
        cluster.round();
        cluster.round();
        let db = cluster.swarm.services.get_mut("shop_db").unwrap();
        (db.desired_tasks, db.created) = (Some(0), cluster.now);
        cluster.swarm.tasks.clear();
        assert!(cluster.waits().contains("web waits for db"));
        // No node fits.
        cluster.now = cluster.now.after(Duration::from_secs(10));
        let made = cluster.round();
        assert_eq!(made.steps[0].action.to_string(), "create service shop_web from web:1", "{made}");
    }
}

/// The status of the only task of a service, in a state.
fn status_of_task(check: Option<&str>, state: &str, error: &str) -> (String, String, String) {
    let mut cluster = Cluster::new([("web", workload("web:1", 1))]);
    let container = &mut cluster.stack.workloads.get_mut(&"web".into()).unwrap().container;
    container.healthcheck = check.map(|test| Healthcheck {
        test: vec![test.to_owned()],
        interval: None,
        timeout: None,
        retries: None,
        start_period: None,
        start_interval: None,
    });
    cluster.settle();
    let task = cluster.swarm.tasks.values_mut().next().unwrap();
    (task.state, task.error, task.since) = (state.to_owned(), error.to_owned(), cluster.now);
    let web = &cluster.assess().workloads[&"web".into()];
    (web.instances[0].state.clone(), web.instances[0].message.clone(), web.message.clone())
}

#[test]
fn task_that_starts_waits_for_a_health_check_only_if_it_has_one() {
    let unsuccessful = "its health check has not succeeded yet";
    assert_eq!(status_of_task(Some("CMD"), "starting", "").1, unsuccessful);
    let (state, message, _) = status_of_task(Some("NONE"), "starting", "");
    assert_eq!((state.as_str(), message.as_str()), ("Created", ""));
    let (state, message, _) = status_of_task(None, "starting", "");
    assert_eq!(state, "Running");
    assert_eq!(message, "it is starting, or waits for the health check of its image");
}

#[test]
fn task_without_an_exit_code_shows_none() {
    let error = "invalid mount config for type \"bind\"";
    for state in ["rejected", "orphaned"] {
        let (state, message, why) = status_of_task(None, state, error);
        assert_eq!(state, "Failed");
        assert_eq!(message, error);
        assert!(!why.contains("code"), "{why}");
    }
}

/// A service that depends on another one, whose task ends by itself.
fn once(condition: Condition, restart: &str) -> Cluster {
    let mut migrate = workload("migrate:1", 1);
    (migrate.container.restart, migrate.completion) = (RestartPolicy::No, Completion::OnSuccess);
    let mut web = workload("web:1", 1);
    web.after.push(Dependency { workload: "migrate".into(), condition, restart: false, required: true });
    let mut cluster = Cluster::new([("migrate", migrate), ("web", web)]);
    let restart = SwarmRestart { condition: restart.to_owned(), ..SwarmRestart::default() };
    cluster.stack.swarm.get_mut(&"migrate".into()).unwrap().restart = Some(restart);
    cluster.ends.insert("shop_migrate", ("complete", 0));
    cluster
}

#[test]
fn task_that_ends_as_it_is_meant_to_counts_as_available() {
    for (condition, restart) in [(Condition::Started, "none"), (Condition::Healthy, "on-failure")] {
        let mut cluster = once(condition, restart);
        let steps = cluster.settle();
        assert_eq!(steps.last().map(String::as_str), Some("create service shop_web from web:1"));
        // The engine of this host starts later, which says nothing about the task.
        cluster.observed.engine_started = Some(cluster.now);
        let status = cluster.assess();
        assert_eq!(status.workloads[&"migrate".into()].instances[0].state, "Completed");
        assert_eq!((status.sync, status.health), (SyncStatus::Synced, HealthStatus::Healthy));
    }
    // One that failed has not done its work, and another policy starts it again.
    for (restart, end) in [("none", ("failed", 1)), ("any", ("complete", 0))] {
        let mut cluster = once(Condition::Started, restart);
        cluster.ends.insert("shop_migrate", end);
        assert!(cluster.steps().iter().all(|step| step != "create service shop_web from web:1"));
        assert!(cluster.waits().contains("migrate has 0 of 1 available"), "{}", cluster.waits());
    }
}

#[test]
fn update_that_pauses_for_a_task_that_ended_well_is_done() {
    let mut cluster = once(Condition::Started, "none");
    cluster.settle();
    change(&mut cluster, "migrate", "migrate@sha256:2");
    cluster.round();
    let service = cluster.swarm.services.get_mut("shop_migrate").unwrap();
    let id = format!("{}.1", service.id);
    service.update_state = "paused".to_owned();
    service.update_message = format!("update paused due to failure or early termination of task {id}");
    // The task that the update began has ended.
    cluster.swarm.tasks.get_mut(&id).unwrap().is_current = true;
    let made = cluster.round();
    assert!(made.is_settled(), "{made}");
    // It ended before all others were updated.
    let migrate = cluster.stack.workloads.get_mut(&"migrate".into()).unwrap();
    migrate.replicas = 2;
    cluster.round();
    let service = cluster.swarm.services.get_mut("shop_migrate").unwrap();
    service.update_state = "paused".to_owned();
    cluster.swarm.tasks.get_mut(&id).unwrap().is_current = true;
    cluster.swarm.tasks.remove(&id.replace(".1", ".2"));
    assert!(cluster.waits().contains("was not updated by the Swarm: paused"), "{}", cluster.waits());
}

/// A global service with one task on a node that takes tasks. As an engine counts it, none is to run.
fn global(change: impl FnOnce(&mut SwarmTask)) -> Cluster {
    let mut cluster = Cluster::new([("logs", workload("logs:1", 1))]);
    let restart = SwarmRestart { condition: "on-failure".to_owned(), ..SwarmRestart::default() };
    let service = SwarmService { mode: SwarmMode::Global, restart: Some(restart), ..SwarmService::default() };
    cluster.stack.swarm.insert("logs".into(), service);
    let node = cluster.swarm.nodes.get_mut("n1").unwrap();
    (node.state, node.availability) = ("ready".to_owned(), "active".to_owned());
    cluster.round();
    cluster.round();
    cluster.swarm.services.get_mut("shop_logs").unwrap().desired_tasks = Some(0);
    let task = cluster.swarm.tasks.values_mut().next().unwrap();
    (task.slot, task.desired_state) = (None, "shutdown".to_owned());
    change(task);
    cluster
}

#[test]
fn failing_task_of_a_global_service_is_wanted() {
    for (state, desired) in [("failed", "shutdown"), ("rejected", "shutdown"), ("pending", "ready")] {
        let mut cluster = global(|task| {
            (task.state, task.desired_state) = (state.to_owned(), desired.to_owned());
        });
        assert_eq!(with_global_tasks(&cluster.stack, &cluster.seen()), None, "{state}");
        assert_eq!(cluster.assess().health, HealthStatus::Progressing, "{state}");
        assert!(cluster.waits().contains("logs has 0 of 1 available"), "{state}");
    }
}

#[test]
fn node_that_a_global_service_does_not_need_is_not_awaited() {
    let fail = |task: &mut SwarmTask| task.state = "failed".to_owned();
    let mut done = global(|task| task.state = "complete".to_owned());
    // It was of another specification, which may have had other constraints.
    let mut older = global(|task| {
        fail(task);
        task.is_current = false;
    });
    let mut drained = global(fail);
    drained.swarm.nodes.get_mut("n1").unwrap().availability = "drain".to_owned();
    for cluster in [&mut done, &mut older, &mut drained] {
        let made = cluster.round();
        assert!(made.is_settled(), "{made}");
    }
}

#[test]
fn global_service_is_not_done_before_the_swarm_makes_its_tasks() {
    let mut cluster = global(|_| {});
    cluster.swarm.tasks.clear();
    cluster.swarm.services.get_mut("shop_logs").unwrap().created = cluster.now;
    assert!(cluster.waits().contains("logs has 0 of 1 available"));
    // No node fits.
    cluster.now = cluster.now.after(Duration::from_secs(10));
    let made = cluster.round();
    assert!(made.is_settled(), "{made}");
}

#[test]
fn update_of_a_global_service_does_not_wait_for_a_paused_node() {
    let mut cluster = global(|task| (task.state, task.desired_state) = ("running".into(), "running".into()));
    let node = cluster.swarm.nodes["n1"].clone();
    let paused =
        SwarmNode { name: "two".to_owned(), availability: "pause".to_owned(), is_leader: false, ..node };
    cluster.swarm.nodes.insert("n2".to_owned(), paused);
    let task = cluster.swarm.tasks.values().next().unwrap().clone();
    let older =
        SwarmTask { id: "older".to_owned(), node: Some("n2".to_owned()), is_current: false, ..task.clone() };
    cluster.swarm.tasks.insert(older.id.clone(), older);
    cluster.swarm.services.get_mut("shop_logs").unwrap().desired_tasks = Some(2);
    cluster.stack = with_global_tasks(&cluster.stack, &cluster.seen()).unwrap();
    assert_eq!(cluster.settle(), [""; 0]);
    let status = cluster.assess();
    assert_eq!((status.sync, status.health), (SyncStatus::Synced, HealthStatus::Healthy));
    assert!(status.waits[0].message.contains("older version on two, which is paused"), "{:?}", status.waits);
    // No node has the update.
    cluster.swarm.tasks.get_mut(&task.id).unwrap().is_current = false;
    assert!(cluster.waits().contains("logs has 0 of 2 available"));
}
