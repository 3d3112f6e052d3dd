//! Updates that a Swarm pauses or rolls back, and the end of those that it does not finish.

use driftless_plan::WaitReason;

use super::*;

#[test]
fn update_that_was_rolled_back_is_not_tried_again() {
    let mut cluster = shop();
    cluster.settle();
    let before = cluster.swarm.services["shop_web"].spec.clone();
    cluster.broken.push("web:2");
    change(&mut cluster, "web", "web:2");
    cluster.round();
    cluster.round();
    // The Swarm has brought back the former specification.
    cluster.swarm.services.get_mut("shop_web").unwrap().spec = before.clone();
    for _ in 0..20 {
        assert!(cluster.round().steps.is_empty());
    }
    let waits = cluster.waits();
    assert!(waits.contains("rollback_completed: update rolled back due to failure"), "{waits}");
    assert_eq!(cluster.swarm.services["shop_web"].spec, before);
    // Another specification is another try.
    change(&mut cluster, "web", "web:3");
    cluster.broken.clear();
    cluster.swarm.services.get_mut("shop_web").unwrap().update_state.clear();
    assert_eq!(cluster.settle(), ["find the digest of web:3", "update service shop_web"]);
}

#[test]
fn paused_update_is_written_again_on_request_only() {
    let mut cluster = shop();
    cluster.settle();
    change(&mut cluster, "web", "web@sha256:2");
    cluster.round();
    let paused = |cluster: &mut Cluster| {
        let service = cluster.swarm.services.get_mut("shop_web").unwrap();
        service.update_state = "paused".to_owned();
        service.update_message = "update paused due to failure".to_owned();
    };
    paused(&mut cluster);
    cluster.run();
    for _ in 0..5 {
        assert!(cluster.round().steps.is_empty());
    }
    assert!(cluster.waits().contains("paused: update paused due to failure"));
    cluster.record.swarm.as_mut().unwrap().try_again();
    let made = cluster.round();
    assert_eq!(made.steps.len(), 1, "{made}");
    // The same specification would be no update for the Swarm.
    assert_eq!(cluster.swarm.services["shop_web"].spec["TaskTemplate"]["ForceUpdate"], 1);
    assert_eq!(cluster.settle(), Vec::<String>::new());
    paused(&mut cluster);
    assert!(cluster.round().steps.is_empty());
}

#[test]
fn failed_update_says_why_its_task_failed() {
    let mut cluster = shop();
    cluster.settle();
    change(&mut cluster, "web", "web@sha256:2");
    cluster.round();
    let service = cluster.swarm.services.get_mut("shop_web").unwrap();
    let id = format!("{}.1", service.id);
    service.update_state = "paused".to_owned();
    service.update_message = format!("update paused due to failure or early termination of task {id}");
    let message = service.update_message.clone();
    let node = cluster.swarm.node_name("n1").to_owned();
    let mut says = |state: &str, code: Option<i64>, error: &str| {
        let task = cluster.swarm.tasks.get_mut(&id).unwrap();
        (task.state, task.exit_code, task.error) = (state.to_owned(), code, error.to_owned());
        cluster.record.swarm.as_mut().unwrap().services.get_mut("shop_web").unwrap().failed = None;
        cluster.waits()
    };
    let exit = "a task exited with code 3: task: non-zero exit (3)";
    for (waits, why) in [
        (says("failed", Some(3), "task: non-zero exit (3)"), format!(" on {node}: {exit}")),
        (says("rejected", None, "No such image"), format!(" on {node}: No such image")),
        (says("complete", Some(0), ""), ": it ended by itself with code 0".to_owned()),
    ] {
        assert!(waits.contains(&format!("paused: {message}{why}")), "{waits}");
    }
}

#[test]
fn node_that_cannot_pull_is_shown_with_advice_about_logins() {
    let mut cluster = shop();
    cluster.settle();
    let id = format!("{}.1", cluster.swarm.services["shop_web"].id);
    let mut says = |state: &str, error: &str| {
        let task = cluster.swarm.tasks.get_mut(&id).unwrap();
        (task.state, task.error) = (state.to_owned(), error.to_owned());
        cluster.waits()
    };
    let waits = says("rejected", "No such image: web:1");
    assert!(waits.contains("No such image: web:1; its node could not pull it"), "{waits}");
    assert!(waits.contains("`driftless rollout restart` writes the new one"), "{waits}");
    // As engines pass on the error of a pull.
    for error in [
        "unauthorized: authentication required",
        "pull access denied for web, repository does not exist or may require 'docker login'",
        "error from registry: denied",
        "toomanyrequests: You have reached your unauthenticated pull rate limit",
        "manifest for web:1 not found: manifest unknown",
        "Get \"https://registry.example.com/v2/\": net/http: TLS handshake timeout",
        "failed to resolve reference \"registry.example.com/web:1\": unexpected status from HEAD request",
        "download failed after attempts=6: unexpected EOF",
        "read tcp 10.0.0.2:51034->10.0.0.9:443: read: connection reset by peer",
        "write /var/lib/docker/tmp/GetImageBlob1: no space left on device",
    ] {
        let waits = says("rejected", error);
        assert!(waits.contains("its node could not pull it"), "{waits}");
    }
    let waits = says("rejected", "invalid mount config");
    assert!(waits.contains("invalid mount config") && !waits.contains("login"), "{waits}");
}

#[test]
fn update_does_not_wait_for_nodes_that_are_down() {
    let mut cluster = shop();
    cluster.settle();
    let service = cluster.swarm.services.get_mut("shop_web").unwrap();
    service.update_state = "updating".to_owned();
    // As a Swarm has it: it also wants the task to end, and still waits for it.
    let pending = SwarmTask {
        id: "lost".to_owned(),
        service: service.id.clone(),
        node: Some("n2".to_owned()),
        state: "pending".to_owned(),
        desired_state: "shutdown".to_owned(),
        error: "1 node not available for new tasks".to_owned(),
        is_current: true,
        ..SwarmTask::default()
    };
    let ended = SwarmTask { id: "ended".to_owned(), state: "shutdown".to_owned(), ..pending.clone() };
    for (state, wait) in
        [("ready", "web has 2 of 2 available: 1 node not available for new tasks"), ("down", "")]
    {
        for task in [&pending, &ended] {
            cluster.swarm.tasks.insert(task.id.clone(), task.clone());
        }
        let node = SwarmNode { name: "two".to_owned(), state: state.to_owned(), ..SwarmNode::default() };
        cluster.swarm.nodes.insert("n2".to_owned(), node);
        assert_eq!(cluster.waits(), wait);
    }
}

#[test]
fn paused_update_is_left_alone_if_all_its_tasks_run() {
    let mut cluster = shop();
    cluster.settle();
    // The agent of another manager, after a node was lost during the update and is back.
    cluster.record = Record::default();
    cluster.swarm.services.get_mut("shop_web").unwrap().update_state = "paused".to_owned();
    assert_eq!(cluster.round().steps, []);
    assert_eq!(cluster.waits(), "");
}

#[test]
fn empty_word_of_a_command_is_written() {
    let mut cluster = shop();
    for words in [&["server", "--save"][..], &["server", "--save", ""], &["server", "--save"]] {
        let container = &mut cluster.stack.workloads.get_mut(&"web".into()).unwrap().container;
        container.command = Some(words.iter().map(|word| (*word).to_owned()).collect());
        cluster.settle();
        assert_eq!(cluster.spec("shop_web")["TaskTemplate"]["ContainerSpec"]["Args"], json!(words));
    }
    cluster.spec("shop_web")["TaskTemplate"]["ContainerSpec"]["Args"] = json!(["server", "--save", ""]);
    assert_eq!(cluster.settle(), ["update service shop_web"]);
}

#[test]
fn deadline_of_an_update_begins_when_it_is_written() {
    let mut cluster = shop();
    cluster.settle();
    change(&mut cluster, "web", "web:2");
    assert_eq!(cluster.round().steps.len(), 1);
    // The registry takes longer than the deadline.
    cluster.now = cluster.now.after(Duration::from_mins(20));
    let made = cluster.round();
    assert_eq!(made.steps[0].action.to_string(), "update service shop_web");
    // The Swarm has not created the new tasks yet.
    cluster.swarm.tasks.values_mut().for_each(|task| task.is_current = false);
    let is_late = |made: &Plan| made.waits.iter().any(|wait| wait.is(WaitReason::ProgressDeadlineExceeded));
    let made = cluster.round();
    assert!(made.steps.is_empty() && !is_late(&made), "{made}");
    cluster.now = cluster.now.after(Duration::from_mins(20));
    cluster.swarm.tasks.values_mut().for_each(|task| task.is_current = false);
    let made = cluster.round();
    assert!(is_late(&made), "{made}");
}

/// Two services without a dependency that were reached, and on which differences are left.
fn reached_without_self_heal() -> Cluster {
    let mut cluster = Cluster::new([("db", workload("db:1", 1)), ("web", workload("web:1", 2))]);
    cluster.policy.self_heal = false;
    cluster.settle();
    cluster
}

/// A request to restart a service, and the rounds until everything of it is done. Returns the steps and the last plan.
fn restart(cluster: &mut Cluster, name: &str) -> (Vec<String>, Plan) {
    let count = cluster.swarm.services[&format!("shop_{name}")].forced_updates();
    cluster.record.swarm.get_or_insert_default().restarts.insert(name.into(), count);
    cluster.record.reopen([name.into()]);
    (cluster.steps(), cluster.round())
}

#[test]
fn service_removed_by_hand_is_not_created_by_requests() {
    let mut cluster = reached_without_self_heal();
    cluster.swarm.services.remove("shop_db");
    let (steps, last) = restart(&mut cluster, "web");
    assert_eq!(steps, ["update service shop_web"]);
    assert!(last.is_reached(), "{last}");
    assert_eq!(last.drifts[0].object, "shop_db", "{last}");
}

#[test]
fn service_rolled_back_by_hand_stays_so_after_requests() {
    let mut cluster = reached_without_self_heal();
    let before = cluster.swarm.services["shop_db"].spec.clone();
    change(&mut cluster, "db", "db:2");
    cluster.settle();
    *cluster.spec("shop_db") = before.clone();
    cluster.swarm.services.get_mut("shop_db").unwrap().update_state = "rollback_completed".to_owned();
    let (steps, last) = restart(&mut cluster, "web");
    assert_eq!(steps, ["update service shop_web"]);
    assert!(last.is_reached(), "{last}");
    assert_eq!(cluster.swarm.services["shop_db"].spec, before);
}

/// Whether a workload is late after a time in which its task is in a state. `before` is the state of an earlier try on the same node, with
/// its error: each try of it fails at once, and the next one follows.
fn is_late(state: &str, before: Option<(&str, &str)>, pause: Duration) -> bool {
    let mut cluster = Cluster::new([("web", workload("web:1", 1))]);
    cluster.settle();
    change(&mut cluster, "web", "web:2");
    cluster.steps();
    let id = format!("{}.1", cluster.swarm.services["shop_web"].id);
    let begun = cluster.now;
    let task = cluster.swarm.tasks.get_mut(&id).unwrap();
    (task.state, task.since, task.created) = (state.to_owned(), begun, begun);
    if let Some((state, error)) = before {
        let ended = SwarmTask {
            id: format!("{id}.before"),
            state: state.to_owned(),
            desired_state: "shutdown".to_owned(),
            error: error.to_owned(),
            created: NOON,
            ..task.clone()
        };
        cluster.swarm.tasks.insert(ended.id.clone(), ended);
    }
    let end = begun.after(pause);
    let mut waits = String::new();
    while cluster.now <= end {
        if before.is_some() {
            cluster.swarm.tasks.get_mut(&id).unwrap().since = cluster.now;
        }
        let mut record = cluster.record.clone();
        cluster.with_target(|target| {
            let mut observed = cluster.seen();
            with_tasks(target, &mut observed, &mut record);
            note_observed(&mut record, target, &observed, cluster.now);
            let made = plan(target, &observed, &record, cluster.now);
            waits = made.waits.iter().map(ToString::to_string).collect();
        });
        cluster.record = record;
        cluster.now = cluster.now.after(Duration::from_mins(1));
    }
    assert!(waits.contains("web has 0 of 1 available"), "{waits}");
    waits.contains("made no progress")
}

#[test]
fn deadline_stands_while_nodes_get_the_image() {
    let limit = Duration::from_mins(10);
    assert!(!is_late("preparing", None, limit * 6));
    assert!(is_late("preparing", None, Duration::from_hours(25)));
    assert!(is_late("starting", None, limit * 2));
    for error in ["No such image: web:2@sha256:1", "unauthorized: authentication required"] {
        assert!(!is_late("assigned", Some(("rejected", error)), limit * 6), "{error}");
        assert!(!is_late("preparing", Some(("rejected", error)), limit * 6), "{error}");
    }
}

#[test]
fn short_deadline_does_not_end_before_a_pull_is_known() {
    let mut cluster = Cluster::new([("web", workload("web:1", 1))]);
    cluster.policy.progress_deadline = Some(Duration::from_secs(6));
    cluster.settle();
    change(&mut cluster, "web", "web:2");
    cluster.steps();
    let id = format!("{}.1", cluster.swarm.services["shop_web"].id);
    for (state, is_late) in [("preparing", false), ("starting", true)] {
        let begun = cluster.now;
        let task = cluster.swarm.tasks.get_mut(&id).unwrap();
        (task.state, task.since, task.created) = (state.to_owned(), begun, begun);
        let mut was_late = false;
        for _ in 0..30 {
            cluster.now = cluster.now.after(Duration::from_secs(2));
            let mut record = cluster.record.clone();
            cluster.with_target(|target| {
                let mut observed = cluster.seen();
                with_tasks(target, &mut observed, &mut record);
                note_observed(&mut record, target, &observed, cluster.now);
                let made = plan(target, &observed, &record, cluster.now);
                was_late |= made.waits.iter().any(|wait| wait.is(WaitReason::ProgressDeadlineExceeded));
            });
            cluster.record = record;
        }
        assert_eq!(was_late, is_late, "{state}");
    }
}

#[test]
fn deadline_runs_while_tasks_fail_for_another_reason() {
    let no_folder = "invalid mount config for type \"bind\": bind source path does not exist: /srv";
    let no_driver = "create shop_data: error looking up volume plugin nfs: plugin \"nfs\" not found";
    let ends = [("failed", "task: non-zero exit (1)"), ("rejected", no_folder), ("rejected", no_driver)];
    for before in ends {
        for state in ["preparing", "assigned"] {
            assert!(is_late(state, Some(before), Duration::from_mins(20)), "{before:?}");
        }
    }
}

#[test]
fn deadline_runs_while_tasks_fail_on_ever_new_nodes() {
    let mut cluster = Cluster::new([("web", workload("web:1", 1))]);
    cluster.settle();
    change(&mut cluster, "web", "web:2");
    cluster.steps();
    let id = format!("{}.1", cluster.swarm.services["shop_web"].id);
    let mut waits = String::new();
    for number in 0..20 {
        let begun = cluster.now;
        let task = cluster.swarm.tasks.get_mut(&id).unwrap();
        (task.state, task.since, task.created) = ("preparing".to_owned(), begun, begun);
        task.node = Some(format!("node-{number}"));
        cluster.now = begun.after(Duration::from_secs(1));
        let mut record = cluster.record.clone();
        cluster.with_target(|target| {
            let mut observed = cluster.seen();
            with_tasks(target, &mut observed, &mut record);
            note_observed(&mut record, target, &observed, cluster.now);
            let made = plan(target, &observed, &record, cluster.now);
            waits = made.waits.iter().map(ToString::to_string).collect();
        });
        cluster.record = record;
        cluster.now = cluster.now.after(Duration::from_mins(1));
    }
    assert!(waits.contains("made no progress"), "{waits}");
}

#[test]
fn labels_that_docker_stack_deploy_drops_are_drift() {
    for (is_leader, adopt) in [(true, Adopt::Ask), (true, Adopt::Never), (false, Adopt::Ask)] {
        let mut cluster = shop();
        cluster.settle();
        if !is_leader {
            // The agent on another manager has seen the services, and leads now.
            cluster.record = Record::default();
            cluster.round();
        }
        cluster.policy.adopt = adopt;
        let before = cluster.swarm.services["shop_web"].spec.clone();
        let labels = cluster.spec("shop_web")["Labels"].as_object_mut().unwrap();
        labels.retain(|name, _| !name.starts_with("driftless."));
        let made = cluster.round();
        assert!(made.waits.iter().all(|wait| !wait.is(WaitReason::NotAdopted)), "{made}");
        assert!(made.drifts.iter().any(|drift| drift.field == "Labels.driftless.agent"), "{made}");
        assert_eq!(made.steps[0].action.to_string(), "update service shop_web");
        assert_eq!(cluster.settle(), [""; 0]);
        assert_eq!(cluster.swarm.services["shop_web"].spec, before);
        // A service that somebody makes under its name is another one.
        let service = cluster.swarm.services.get_mut("shop_web").unwrap();
        service.id = "theirs".to_owned();
        service.spec["Labels"].as_object_mut().unwrap().retain(|name, _| !name.starts_with("driftless."));
        let made = cluster.round();
        assert!(made.steps.is_empty() && made.waits.iter().any(|wait| wait.is(WaitReason::NotAdopted)));
    }
}

#[test]
fn files_that_services_outside_use_stay() {
    let mut cluster = Cluster::new([("web", workload("web:1", 1))]);
    let file = |name: &str, secret: bool| SwarmFile {
        name: name.to_owned(),
        target: format!("/{name}"),
        secret,
        ..SwarmFile::default()
    };
    cluster.stack.swarm.get_mut(&"web".into()).unwrap().files =
        vec![file("shop_a", false), file("shop_b", false), file("shop_key", true)];
    cluster.stack.networks.insert("shop_net".to_owned(), Network::default());
    cluster.settle();
    for id in ["id-shop_a", "id-shop_key"] {
        cluster.swarm.file_users.insert(id.to_owned(), "shop_old".to_owned());
    }
    cluster.stack = cluster.stack.emptied();
    let made = cluster.round();
    let steps: Vec<String> = made.steps.iter().map(|step| step.action.to_string()).collect();
    assert_eq!(steps, ["remove service shop_web", "remove config shop_b", "remove network shop_net"]);
    // No network waits for the removal of a config, which may fail.
    assert_eq!(made.steps[2].after, [0]);
    assert_eq!(cluster.settle(), [""; 0]);
    assert_eq!((cluster.swarm.configs.len(), cluster.swarm.secrets.len()), (1, 1));
}
