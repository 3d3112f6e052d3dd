//! Data that passes from one service to another: never do two services write to it that Git does not have together.

use std::collections::BTreeSet;

use driftless_model::{AppName, ManagedApplications, Mount, MountSource, STACK_NAMESPACE, SwarmUpdate};

use super::{explain::rounds, *};

/// A workload that writes to these volumes.
fn with_data<const N: usize>(image: &str, volumes: [&str; N]) -> Workload {
    let mut workload = workload(image, 1);
    workload.container.mounts = volumes.map(volume).into();
    workload
}

fn volume(name: &str) -> Mount {
    Mount {
        target: format!("/{name}"),
        source: MountSource::Volume { name: name.to_owned(), no_copy: false },
        read_only: false,
    }
}

fn on(workload: &str) -> Dependency {
    Dependency { workload: workload.into(), condition: Condition::Healthy, restart: false, required: true }
}

impl Cluster {
    pub(super) fn want(&mut self, name: &str, workload: Workload) {
        self.stack.workloads.insert(name.into(), workload);
        self.stack.swarm.insert(name.into(), SwarmService::default());
    }

    pub(super) fn drop(&mut self, name: &str) {
        self.stack.workloads.remove(&name.into());
        self.stack.swarm.remove(&name.into());
    }

    /// The present tasks of a service take long to stop.
    fn linger(&mut self, service: &str) {
        let id = self.swarm.services[service].id.clone();
        let old = |task: &SwarmTask| SwarmTask {
            id: format!("{}.old", task.id),
            desired_state: "shutdown".to_owned(),
            is_current: false,
            ..task.clone()
        };
        self.lingering = self.swarm.tasks_of(&id).map(old).collect();
    }

    /// A service cannot start, for one reason after the other: of a file, of a network, and of the name of its service. Each time
    /// nothing is done. In the end it can start.
    fn lacks_parts(&mut self, workload: &str) {
        let file = SwarmFile { name: "key".to_owned(), external: true, secret: true, ..SwarmFile::default() };
        self.stack.swarm.get_mut(&workload.into()).unwrap().files.push(file);
        assert_eq!(self.steps(), [""; 0]);
        assert!(self.waits().contains("needs the external secret `key`"), "{}", self.waits());
        self.swarm.external_secrets.insert("key".to_owned(), None);
        let networks = [("net".to_owned(), Box::default())];
        let container = &mut self.stack.workloads.get_mut(&workload.into()).unwrap().container;
        container.network_mode = NetworkMode::Networks(networks.into());
        self.stack.networks.insert("net".to_owned(), Network { external: true, ..Network::default() });
        assert_eq!(self.steps(), [""; 0]);
        assert!(self.waits().contains("network net is external and does not exist"), "{}", self.waits());
        self.observed.networks.insert("net".to_owned(), ObservedNetwork::default());
        let name = format!("shop_{workload}");
        let spec = json!({"Name": name, "Labels": {}, "Mode": {"Replicated": {"Replicas": 0}}});
        self.swarm.services.insert(name.clone(), ObservedService { spec, ..ObservedService::default() });
        assert_eq!(self.steps(), [""; 0]);
        assert!(self.waits().contains("has a service that somebody else created"), "{}", self.waits());
        self.swarm.services.remove(&name);
        self.run();
    }

    /// The lingering tasks have stopped.
    fn stopped(&mut self) {
        self.lingering.clear();
        self.swarm.tasks.retain(|id, _| !id.ends_with(".old"));
    }
}

fn renamed() -> Cluster {
    let mut cluster = Cluster::new([("db", with_data("db:1", ["data"]))]);
    cluster.settle();
    cluster.drop("db");
    cluster.want("postgres", with_data("db:1", ["data"]));
    cluster
}

#[test]
fn renamed_service_starts_when_the_former_has_stopped() {
    let mut cluster = renamed();
    cluster.linger("shop_db");
    assert_eq!(cluster.steps(), ["stop the tasks of service shop_db"]);
    let waits = cluster.waits();
    assert!(waits.contains("postgres waits for db: it still writes to the volume `data`"), "{waits}");
    assert_eq!(cluster.swarm.services.keys().collect::<Vec<_>>(), ["shop_db"]);
    cluster.stopped();
    let mut steps = cluster.settle();
    steps.sort();
    assert_eq!(steps, ["create service shop_postgres from db:1", "remove service shop_db"]);
}

#[test]
fn renamed_service_stays_until_the_new_one_can_start() {
    let mut cluster = renamed();
    change(&mut cluster, "postgres", "db:2");
    let made = cluster.round();
    let steps: Vec<String> = made.steps.iter().map(|step| step.action.to_string()).collect();
    assert_eq!(steps, ["find the digest of db:2"]);
    cluster.lacks_parts("postgres");
    let steps = cluster.settle();
    assert_eq!(steps[0], "stop the tasks of service shop_db");
    assert_eq!(steps.len(), 3, "{steps:?}");
    // All services go with their application.
    let mut cluster = renamed();
    cluster.stack = cluster.stack.emptied();
    assert_eq!(cluster.settle(), ["stop the tasks of service shop_db", "remove service shop_db"]);
}

#[test]
fn service_with_data_is_removed_once_its_tasks_have_stopped() {
    let mut cluster = Cluster::new([("db", with_data("db:1", ["data"])), ("web", workload("web:1", 1))]);
    cluster.settle();
    let db = cluster.stack.workloads[&"db".into()].clone();
    cluster.drop("db");
    cluster.linger("shop_db");
    assert_eq!(cluster.steps(), ["stop the tasks of service shop_db"]);
    assert!(cluster.waits().contains("waits until its tasks have stopped"), "{}", cluster.waits());
    // The next commit has it again.
    cluster.want("db", db);
    assert_eq!(cluster.steps(), ["update service shop_db"]);
    cluster.drop("db");
    assert_eq!(cluster.steps(), ["stop the tasks of service shop_db"]);
    cluster.stopped();
    assert_eq!(cluster.settle(), ["remove service shop_db"]);
    // Nothing can be lost with others.
    cluster.drop("web");
    assert_eq!(cluster.settle(), ["remove service shop_web"]);
}

#[test]
fn tasks_of_a_removed_service_are_waited_for() {
    for taker in ["db", "postgres"] {
        let mut cluster = Cluster::new([("db", with_data("db:1", ["data"])), ("web", workload("web:1", 1))]);
        cluster.settle();
        cluster.linger("shop_db");
        let removed = cluster.swarm.services.remove("shop_db").unwrap();
        cluster.swarm.tasks.retain(|_, task| task.service != removed.id);
        cluster.drop("db");
        cluster.want(taker, with_data("db:1", ["data"]));
        cluster.run();
        assert_eq!(cluster.steps(), [""; 0], "{taker}");
        let expected =
            "waits until the tasks of a removed service have stopped: they still write to the volume `data`";
        assert!(cluster.waits().contains(&format!("{taker} {expected}")), "{}", cluster.waits());
        // One that exists does not get the data either.
        cluster.want("web", with_data("web:1", ["data"]));
        assert_eq!(cluster.steps(), [""; 0], "{taker}");
        assert!(cluster.waits().contains(&format!("web {expected}")), "{}", cluster.waits());
        cluster.want("web", workload("web:1", 1));
        // Those of a node that is down do not count.
        let down = SwarmNode { name: "two".to_owned(), state: "down".to_owned(), ..SwarmNode::default() };
        cluster.swarm.nodes.insert("n2".to_owned(), down);
        cluster.lingering.iter_mut().for_each(|task| task.node = Some("n2".to_owned()));
        cluster.run();
        assert_eq!(cluster.settle(), [format!("create service shop_{taker} from db:1")]);
    }
}

#[test]
fn task_that_was_never_placed_writes_to_nothing() {
    let mut cluster = renamed();
    cluster.linger("shop_db");
    for task in &mut cluster.lingering {
        (task.state, task.node) = ("pending".to_owned(), None);
    }
    assert_eq!(cluster.settle().len(), 3);
    assert_eq!(cluster.swarm.services.keys().collect::<Vec<_>>(), ["shop_postgres"]);
}

#[test]
fn dry_run_shows_the_steps_of_a_rename() {
    let shown = rounds(&renamed());
    let expected = [
        vec!["stop the tasks of service shop_db (not in Git)"],
        vec!["create service shop_postgres from db:1 (missing)", "remove service shop_db (not in Git)"],
    ];
    assert_eq!(shown, expected);
}

#[test]
fn renamed_service_waits_for_the_former_that_stays() {
    let mut cluster = renamed();
    cluster.spec("shop_db")["Labels"]["driftless.prune"] = json!("false");
    assert_eq!(cluster.steps(), [""; 0]);
    let expected =
        "postgres needs the volume `data`, and shop_db, which is not in Git any more, still writes to it";
    let waits = cluster.waits();
    assert!(waits.contains(expected), "{waits}");
    // A person stops it.
    *cluster.spec("shop_db").pointer_mut("/Mode/Replicated/Replicas").unwrap() = json!(0);
    cluster.run();
    assert_eq!(cluster.steps(), ["create service shop_postgres from db:1"]);
    // The removal of many waits for a confirmation.
    let names = ["a", "b", "c", "d"];
    let mut cluster = Cluster::new(names.map(|name| (name, with_data("db:1", ["data"]))));
    cluster.settle();
    names.iter().for_each(|name| cluster.drop(name));
    cluster.want("all", with_data("db:1", ["data"]));
    assert_eq!(cluster.steps(), [""; 0]);
    assert!(cluster.waits().contains("all needs the volume `data`, and shop_a"), "{}", cluster.waits());
    cluster.record.prune = Some(StackHashes::of(&cluster.stack).stack);
    let steps = cluster.settle();
    let created = steps.iter().position(|step| step.starts_with("create")).unwrap();
    let stopped = steps.iter().rposition(|step| step.starts_with("stop")).unwrap();
    assert!(stopped < created, "{steps:?}");
}

#[test]
fn service_makes_no_way_while_another_one_keeps_the_data() {
    // One that leaves Git, and one that gives the data up and waits for the one that takes them.
    for is_kept in [false, true] {
        let services = [("web", with_data("a:1", ["uploads"])), ("worker", with_data("a:1", ["uploads"]))];
        let mut cluster = Cluster::new(services);
        cluster.settle();
        cluster.spec("shop_worker")["Labels"]["driftless.prune"] = json!("false");
        cluster.drop("worker");
        cluster.drop("web");
        cluster.want("frontend", with_data("a:1", ["uploads"]));
        if is_kept {
            let mut web = workload("a:1", 1);
            web.after.push(on("frontend"));
            cluster.want("web", web);
        }
        assert_eq!(cluster.steps(), [""; 0], "{is_kept}");
        let expected = "frontend needs the volume `uploads`, and shop_worker, which is not in Git any more";
        assert!(cluster.waits().contains(expected), "{}", cluster.waits());
        // A person stops it.
        *cluster.spec("shop_worker").pointer_mut("/Mode/Replicated/Replicas").unwrap() = json!(0);
        cluster.run();
        let steps = cluster.steps();
        assert_eq!(steps[0], "stop the tasks of service shop_web", "{is_kept}");
        assert!(steps.contains(&"create service shop_frontend from a:1".to_owned()), "{steps:?}");
    }
}

#[test]
fn rename_that_is_taken_back_waits_in_turn() {
    // Before the new service was there.
    let mut cluster = renamed();
    cluster.linger("shop_db");
    cluster.round();
    cluster.drop("postgres");
    cluster.want("db", with_data("db:1", ["data"]));
    assert_eq!(cluster.settle(), ["update service shop_db"]);
    assert_eq!(cluster.swarm.services["shop_db"].spec["Mode"]["Replicated"]["Replicas"], 1);
    // And after that.
    let mut cluster = renamed();
    cluster.steps();
    cluster.drop("postgres");
    cluster.want("db", with_data("db:1", ["data"]));
    cluster.linger("shop_postgres");
    assert_eq!(cluster.steps(), ["stop the tasks of service shop_postgres"]);
    cluster.stopped();
    let mut steps = cluster.settle();
    steps.sort();
    assert_eq!(steps, ["create service shop_db from db:1", "remove service shop_postgres"]);
}

#[test]
fn service_in_another_mode_starts_when_its_tasks_have_stopped() {
    let mut cluster = Cluster::new([("db", with_data("db:1", ["data"]))]);
    cluster.settle();
    for mode in [SwarmMode::Global, SwarmMode::Replicated] {
        cluster.stack.swarm.get_mut(&"db".into()).unwrap().mode = mode;
        cluster.linger("shop_db");
        assert_eq!(cluster.steps(), ["stop the tasks of service shop_db"], "{mode:?}");
        cluster.stopped();
        assert_eq!(cluster.settle(), ["remove service shop_db", "create service shop_db from db:1"]);
    }
}

#[test]
fn service_makes_no_way_for_one_that_restarts() {
    let failed = |cluster: &Cluster, id: &str| SwarmTask {
        id: format!("{id}.failed"),
        service: id.to_owned(),
        state: "failed".to_owned(),
        desired_state: "shutdown".to_owned(),
        since: cluster.now,
        ..SwarmTask::default()
    };
    // A new task, one that does not come to run, and one that fails as the one before it did.
    for (age, failures, steps) in [(5, 1, 0), (40, 1, 1), (5, 2, 1)] {
        let services = [("app", with_data("app:1", ["data"])), ("db", workload("app:1", 1))];
        let mut cluster = Cluster::new(services);
        cluster.settle();
        let mut app = workload("app:1", 1);
        app.after.push(on("db"));
        cluster.want("app", app);
        cluster.want("db", with_data("app:1", ["data"]));
        let id = cluster.swarm.services["shop_db"].id.clone();
        let started = cluster.now;
        cluster.now = started.after(Duration::from_secs(age));
        let task = cluster.swarm.tasks.get_mut(&format!("{id}.1")).unwrap();
        (task.state, task.created) = ("starting".to_owned(), started);
        for number in 0..failures {
            let task = failed(&cluster, &id);
            cluster.swarm.tasks.insert(format!("{number}"), task);
        }
        let made = cluster.round();
        assert_eq!(made.steps.len(), steps, "{age} {failures}: {made}");
    }
}

#[test]
fn service_in_another_mode_makes_way() {
    let mut cluster = Cluster::new([("app", with_data("app:1", ["data"]))]);
    cluster.settle();
    let mut app = workload("app:1", 1);
    app.after.push(on("db"));
    cluster.want("app", app);
    cluster.stack.swarm.get_mut(&"app".into()).unwrap().mode = SwarmMode::Global;
    cluster.want("db", with_data("app:1", ["data"]));
    assert_eq!(
        cluster.settle(),
        [
            "stop the tasks of service shop_app",
            "create service shop_db from app:1",
            "remove service shop_app",
            "create service shop_app from app:1"
        ]
    );
}

#[test]
fn service_keeps_its_mode_while_its_data_are_in_use() {
    // The data are new to it, or it has them already: then it would have to wait once it has stopped.
    for before in ["cache", "data"] {
        let services = [("db", with_data("db:1", [before])), ("old", with_data("db:1", ["data"]))];
        let mut cluster = Cluster::new(services);
        cluster.settle();
        cluster.drop("old");
        cluster.spec("shop_old")["Labels"]["driftless.prune"] = json!("false");
        cluster.want("db", with_data("db:1", ["data"]));
        cluster.stack.swarm.get_mut(&"db".into()).unwrap().mode = SwarmMode::Global;
        assert_eq!(cluster.steps(), [""; 0], "{before}");
        assert!(cluster.waits().contains("db needs the volume `data`, and shop_old"), "{}", cluster.waits());
        cluster.spec("shop_old")["Labels"]["driftless.prune"] = json!("true");
        assert_eq!(cluster.settle().last().unwrap(), "create service shop_db from db:1", "{before}");
    }
}

#[test]
fn taker_does_not_wait_for_an_update_of_lost_nodes() {
    let update = SwarmUpdate { failure_action: Some("rollback".to_owned()), ..SwarmUpdate::default() };
    let mut cluster = Cluster::new([("db", with_data("db:1", ["data"]))]);
    cluster.stack.swarm.get_mut(&"db".into()).unwrap().update = Some(update.clone());
    cluster.settle();
    cluster.want("db", with_data("db:1", ["cache"]));
    cluster.stack.swarm.get_mut(&"db".into()).unwrap().update = Some(update);
    cluster.want("new", with_data("db:1", ["data"]));
    cluster.linger("shop_db");
    assert_eq!(cluster.steps(), ["update service shop_db"]);
    cluster.lingering[0].state = "shutdown".to_owned();
    cluster.swarm.services.get_mut("shop_db").unwrap().update_state = "updating".to_owned();
    cluster.run();
    assert_eq!(cluster.steps(), [""; 0]);
    assert!(cluster.waits().contains("new waits for db: it still writes to the volume `data`"));
    let down = SwarmNode { name: "two".to_owned(), state: "down".to_owned(), ..SwarmNode::default() };
    cluster.swarm.nodes.insert("n2".to_owned(), down);
    let lost = SwarmTask {
        id: "lost".to_owned(),
        node: Some("n2".to_owned()),
        state: "pending".to_owned(),
        is_current: true,
        ..cluster.lingering[0].clone()
    };
    cluster.lingering.push(lost);
    cluster.run();
    assert_eq!(cluster.steps(), ["create service shop_new from db:1"]);
}

#[test]
fn data_of_a_service_are_handed_over() {
    let mut cluster = Cluster::new([("db", with_data("db:1", ["data"]))]);
    cluster.settle();
    cluster.want("db", with_data("db:1", ["cache"]));
    cluster.want("new", with_data("db:1", ["data"]));
    cluster.linger("shop_db");
    assert_eq!(cluster.steps(), ["update service shop_db"]);
    assert!(cluster.waits().contains("new waits for db: it still writes to the volume `data`"));
    cluster.stopped();
    assert_eq!(cluster.settle(), ["create service shop_new from db:1"]);
    // A service that exists gets them in the same way.
    cluster.want("db", with_data("db:1", ["cache", "data"]));
    cluster.want("new", workload("db:1", 1));
    cluster.linger("shop_new");
    assert_eq!(cluster.steps(), ["update service shop_new"]);
    cluster.stopped();
    assert_eq!(cluster.settle(), ["update service shop_db"]);
}

#[test]
fn service_makes_way_for_the_one_that_it_waits_for() {
    let mut cluster = Cluster::new([("app", with_data("app:1", ["data"]))]);
    cluster.settle();
    let mut app = workload("app:1", 1);
    app.after.push(on("db"));
    cluster.want("app", app);
    cluster.want("db", with_data("db:1", ["data"]));
    // Nothing makes way while the image is not known.
    assert_eq!(cluster.round().steps.len(), 1);
    assert_eq!(
        cluster.settle(),
        ["stop the tasks of service shop_app", "create service shop_db from db:1", "update service shop_app"]
    );
    let replicas = cluster.swarm.services["shop_app"].spec["Mode"]["Replicated"]["Replicas"].clone();
    assert_eq!(replicas, 1);
}

#[test]
fn service_makes_no_way_for_one_that_cannot_start() {
    // A service of `docker stack deploy` does the same once it may be adopted.
    for is_adopted in [false, true] {
        let mut cluster = Cluster::new([("app", with_data("app:1", ["data"]))]);
        cluster.settle();
        if is_adopted {
            cluster.policy.adopt = Adopt::Auto;
            let project = cluster.stack.project.clone();
            cluster.spec("shop_app")["Labels"] = json!({STACK_NAMESPACE: project});
        }
        let mut app = workload("app:1", 1);
        app.after.push(on("db"));
        cluster.want("app", app);
        cluster.want("db", with_data("app:1", ["data"]));
        cluster.lacks_parts("db");
        assert_eq!(
            cluster.settle(),
            [
                "stop the tasks of service shop_app",
                "create service shop_db from app:1",
                "update service shop_app"
            ]
        );
    }
}

#[test]
fn service_that_is_stopped_first_is_adopted_with_it() {
    let mut cluster = Cluster::new([("app", with_data("app:1", ["data"]))]);
    cluster.settle();
    cluster.policy.adopt = Adopt::Auto;
    let project = cluster.stack.project.clone();
    cluster.spec("shop_app")["Labels"] = json!({STACK_NAMESPACE: project});
    let mut app = workload("app:1", 1);
    app.after.push(on("db"));
    cluster.want("app", app);
    cluster.want("db", with_data("app:1", ["data"]));
    cluster.round();
    // The agent may be asked not to adopt others by then, and has to start it again.
    cluster.policy.adopt = Adopt::Never;
    let labels = cluster.swarm.services["shop_app"].spec["Labels"].clone();
    assert_eq!((&labels[label::AGENT], &labels[label::APPLICATION]), (&json!(SWARM_OWNER), &json!("shop")));
    assert_eq!(cluster.settle(), ["create service shop_db from app:1", "update service shop_app"]);
}

#[test]
fn service_without_labels_hands_its_data_over() {
    let mut cluster = Cluster::new([("db", with_data("db:1", ["data"]))]);
    cluster.policy.self_heal = false;
    cluster.settle();
    let project = cluster.stack.project.clone();
    for labels in [json!({STACK_NAMESPACE: project}), json!({})] {
        cluster.spec("shop_db")["Labels"] = labels;
        assert_eq!(cluster.steps(), [""; 0]);
        cluster.drop("db");
        cluster.want("database", with_data("db:1", ["data"]));
        assert_eq!(
            cluster.settle(),
            [
                "stop the tasks of service shop_db",
                "create service shop_database from db:1",
                "remove service shop_db"
            ]
        );
        cluster.drop("database");
        cluster.want("db", with_data("db:1", ["data"]));
        cluster.settle();
    }
    // It goes with its application, too.
    cluster.spec("shop_db")["Labels"] = Value::Null;
    cluster.stack = cluster.stack.emptied();
    assert_eq!(cluster.settle(), ["stop the tasks of service shop_db", "remove service shop_db"]);
}

#[test]
fn service_without_labels_and_data_leaves_with_git() {
    let mut cluster = Cluster::new([("db", workload("db:1", 1)), ("web", workload("web:1", 1))]);
    cluster.policy.self_heal = false;
    cluster.settle();
    let project = cluster.stack.project.clone();
    for labels in [json!({STACK_NAMESPACE: project}), json!({}), Value::Null] {
        cluster.spec("shop_web")["Labels"] = labels;
        cluster.drop("web");
        // The engine removes no service without the labels.
        assert_eq!(cluster.settle(), ["stop the tasks of service shop_web", "remove service shop_web"]);
        cluster.want("web", workload("web:1", 1));
        cluster.settle();
    }
}

#[test]
fn services_that_exchange_data_stop_together() {
    let mut cluster = Cluster::new([("a", with_data("a:1", ["one"])), ("b", with_data("a:1", ["two"]))]);
    cluster.settle();
    cluster.want("a", with_data("a:1", ["two"]));
    cluster.want("b", with_data("a:1", ["one"]));
    assert_eq!(
        cluster.settle(),
        [
            "stop the tasks of service shop_a",
            "stop the tasks of service shop_b",
            "update service shop_a",
            "update service shop_b"
        ]
    );
}

#[test]
fn services_that_share_data_in_git_do_not_wait() {
    let mut cluster = Cluster::new([("a", with_data("a:1", ["data"])), ("b", with_data("a:1", ["data"]))]);
    cluster.settle();
    cluster.linger("shop_a");
    change(&mut cluster, "a", "a:2");
    cluster.want("c", with_data("a:1", ["data"]));
    let mut steps = cluster.steps();
    steps.sort();
    assert_eq!(steps, ["create service shop_c from a:1", "find the digest of a:2", "update service shop_a"]);
    // The one that stays writes to it already.
    cluster.stopped();
    cluster.drop("b");
    cluster.spec("shop_b")["Labels"]["driftless.prune"] = json!("false");
    change(&mut cluster, "a", "a:1");
    assert_eq!(cluster.steps(), ["update service shop_a"]);
}

#[test]
fn folders_of_the_system_and_read_only_data_pass_at_once() {
    let bind = |path: &str, read_only: bool| Mount {
        target: "/a".to_owned(),
        source: MountSource::Bind { path: path.to_owned(), create: false, propagation: None, selinux: None },
        read_only,
    };
    for (mount, steps) in [(bind("/run/x", false), 2), (bind("/srv", true), 2), (bind("/srv", false), 3)] {
        let mut agent = workload("a:1", 1);
        agent.container.mounts.push(mount);
        let mut cluster = Cluster::new([("a", agent.clone())]);
        cluster.settle();
        cluster.drop("a");
        cluster.want("b", agent);
        assert_eq!(cluster.settle().len(), steps);
    }
}

/// The application `shop`, which has no service yet, and a service of `blog` that writes to its volume. Git has these services of `blog`.
fn shop_and_blog<const N: usize>(blog: [(&'static str, Workload); N]) -> Cluster {
    let mut cluster = Cluster::new([("db", with_data("db:1", ["data"]))]);
    let spec = json!({
        "Name": "blog_db",
        "Labels": {label::AGENT: SWARM_OWNER, label::APPLICATION: "blog", label::WORKLOAD: "db"},
        "TaskTemplate": {"ContainerSpec": {"Mounts": [{"Type": "volume", "Source": "data", "Target": "/data"}]}},
        "Mode": {"Replicated": {"Replicas": 1}},
    });
    let service = ObservedService { id: "blog".to_owned(), spec, ..ObservedService::default() };
    cluster.swarm.other_services.insert("blog_db".to_owned(), service);
    let blog = Stack { app: "blog".into(), ..stack(blog) };
    let applications = ManagedApplications {
        is_complete: true,
        names: BTreeSet::from([AppName::from("blog"), AppName::from("shop")]),
        stacks: BTreeMap::from([
            (AppName::from("blog"), Arc::new(blog)),
            (AppName::from("shop"), Arc::new(cluster.stack.clone())),
        ]),
        ..ManagedApplications::default()
    };
    cluster.observed.claims.applications = Some(Arc::new(applications));
    cluster
}

#[test]
fn service_waits_for_one_of_another_application() {
    let mut cluster = shop_and_blog([]);
    assert_eq!(cluster.steps(), ["find the digest of db:1"]);
    let waits = cluster.waits();
    let expected = "db waits for application `blog`: blog_db still writes to the volume `data`";
    assert!(waits.contains(expected), "{waits}");
    // The other application stops it.
    let service = cluster.swarm.other_services.get_mut("blog_db").unwrap();
    service.spec["Mode"]["Replicated"]["Replicas"] = json!(0);
    let task = SwarmTask {
        id: "blog.1".to_owned(),
        service: "blog".to_owned(),
        state: "running".to_owned(),
        desired_state: "remove".to_owned(),
        writes: ["data".to_owned()].into(),
        ..SwarmTask::default()
    };
    cluster.swarm.tasks.insert(task.id.clone(), task.clone());
    assert_eq!(cluster.steps(), [""; 0]);
    assert!(cluster.waits().contains(expected), "{}", cluster.waits());
    // Somebody removes the service before its task has stopped.
    let service = cluster.swarm.other_services.remove("blog_db").unwrap();
    assert_eq!(cluster.steps(), [""; 0]);
    assert!(cluster.waits().contains("tasks of a removed service"), "{}", cluster.waits());
    cluster.swarm.tasks.remove("blog.1");
    assert_eq!(cluster.settle(), ["create service shop_db from db:1"]);
    // It goes on with the data that it has.
    cluster.swarm.other_services.insert("blog_db".to_owned(), service);
    cluster.swarm.tasks.insert(task.id.clone(), task);
    change(&mut cluster, "db", "db:2");
    assert_eq!(cluster.settle(), ["find the digest of db:2", "update service shop_db"]);
}

#[test]
fn applications_share_the_data_that_git_gives_to_both() {
    let shared = || [("db", with_data("db:1", ["data"]))];
    assert_eq!(shop_and_blog(shared()).settle().len(), 2);
    let waits = |change: fn(&mut ManagedApplications)| {
        let mut cluster = shop_and_blog(shared());
        change(Arc::make_mut(cluster.observed.claims.applications.as_mut().unwrap()));
        assert_eq!(cluster.steps(), ["find the digest of db:1"]);
        cluster.waits()
    };
    let unread = waits(|all| {
        all.unread.insert(AppName::from("blog"));
    });
    assert!(unread.contains("whose newest manifests cannot be read"), "{unread}");
    let left = waits(|all| {
        all.stacks.remove(&AppName::from("blog"));
    });
    assert!(left.contains("which is not in Git any more"), "{left}");
    let forgotten = waits(|all| {
        all.stacks.remove(&AppName::from("blog"));
        all.names.remove(&AppName::from("blog"));
    });
    assert!(forgotten.contains("`docker service rm blog_db`"), "{forgotten}");
    // An older version of this application.
    let given = waits(|all| {
        let shop = all.stacks.get_mut(&AppName::from("shop")).unwrap();
        Arc::make_mut(shop).workloads.clear();
    });
    assert!(given.contains("which Git has given to application `blog`"), "{given}");
    // Another service of that application has the data in Git.
    let mut cluster = shop_and_blog([("other", with_data("db:1", ["data"]))]);
    assert_eq!(cluster.steps(), ["find the digest of db:1"]);
}

#[test]
fn shared_data_stay_shared_while_manifests_cannot_be_read() {
    let shared = || {
        let mut cluster = shop_and_blog([("db", with_data("db:1", ["data"]))]);
        cluster.settle();
        let applications = cluster.observed.claims.applications.as_mut().unwrap();
        Arc::make_mut(applications).unread.insert(AppName::from("blog"));
        cluster
    };
    let created = "create service shop_db from db:1";
    let mut removed = shared();
    removed.swarm.services.clear();
    removed.swarm.tasks.clear();
    assert_eq!(removed.settle(), [created]);
    // Another mode needs another service.
    let mut changed = shared();
    changed.reached = Some(changed.stack.clone());
    changed.stack.swarm.get_mut(&"db".into()).unwrap().mode = SwarmMode::Global;
    let steps = changed.steps();
    assert_eq!(steps.last().map(String::as_str), Some(created), "{steps:?}");
    // A commit that gives the data to another service may take them from the other application.
    let mut given = shared();
    given.reached = Some(given.stack.clone());
    given.want("new", with_data("db:1", ["data"]));
    assert_eq!(given.steps(), [""; 0]);
    assert!(given.waits().contains("whose newest manifests cannot be read"), "{}", given.waits());
}
