//! kubectl-compatible commands: objects in the API, and the commands that print them and act on them, over real
//! sockets. What comes of the actions is in `scenarios` and `simulation`.

use std::{
    collections::BTreeMap,
    future::{Future, pending, ready},
    net::SocketAddr,
    pin::Pin,
    process::{Output, Stdio},
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

use driftless_agent::{InstanceName, Logs, RequestKind};
use driftless_docker::{LogOptions, LogStream};
use driftless_files::{AppSpec, MemoryFiles};
use driftless_kubernetes as kubernetes;
use driftless_model::{
    AppName, Application, ApplicationSpec, ApplicationStatus, AwaitedInstance, ConditionStatus, ExitStatus,
    Facts, Format, HealthStatus, InstanceStatus, JobStatus, Kind, Location, ObjectRef, Policy, Protocol,
    Resource, ResourceStatus, ServicePort, StatusCondition, Strategy, SyncStatus, Timestamp, TrafficStatus,
    Update, WorkloadSpec, WorkloadStatus,
};
use driftless_web::{Access, router, serve};
use futures_util::{StreamExt, stream};
use insta::assert_snapshot;
use serde_json::Value;
use tokio::{
    io::{AsyncBufReadExt, BufReader},
    net::TcpListener,
    process::Command,
    sync::Notify,
};

use crate::sample::{self, shop};

fn condition(kind: &str, status: ConditionStatus, reason: &str) -> StatusCondition {
    StatusCondition {
        kind: kind.to_owned(),
        status,
        reason: reason.to_owned(),
        message: String::new(),
        last_transition_time: Timestamp(1_767_225_600_000),
    }
}

fn spec(kind: Kind, namespace: &str, name: &str) -> WorkloadSpec {
    WorkloadSpec {
        object: ObjectRef { kind, namespace: namespace.to_owned(), name: name.to_owned() },
        hash: "0a1b2c3d".to_owned(),
        labels: BTreeMap::from([("app".to_owned(), name.to_owned())]),
        strategy: Some(Strategy::RollingUpdate { max_surge: 1, max_unavailable: 0 }),
        progress_deadline_seconds: 600,
        ports: vec![(8080, Protocol::Tcp)],
        template: format!("env:\n  PASSWORD: ••••3f9a\nimage: {name}:2\n").into(),
        ..WorkloadSpec::default()
    }
}

fn instance(name: &str, state: &str) -> InstanceStatus {
    let is_well = state == "Running";
    InstanceStatus {
        name: name.to_owned(),
        container: "c".repeat(12),
        slot: 1,
        state: state.to_owned(),
        ready: is_well,
        available: is_well,
        updated: true,
        spec: "0a1b2c3d".to_owned(),
        image: "web:2".to_owned(),
        ip: is_well.then(|| "172.18.0.2".to_owned()),
        ..InstanceStatus::default()
    }
}

/// A rollout in progress, and objects of all other kinds.
fn orders() -> Application {
    let web = WorkloadStatus {
        spec: spec(Kind::Deployment, "prod", "web"),
        health: HealthStatus::Progressing,
        image: "web:2".to_owned(),
        replicas: 3,
        updated_replicas: 1,
        old_replicas: 3,
        ready_replicas: 3,
        available_replicas: 3,
        conditions: vec![
            condition("Available", ConditionStatus::True, "MinimumReplicasAvailable"),
            condition("Progressing", ConditionStatus::True, "ReplicaSetUpdated"),
        ],
        instances: vec![
            InstanceStatus { restarts: 4, ..instance("orders-web.prod-0a1b2c3d-4", "CrashLoopBackOff") },
            InstanceStatus {
                updated: false,
                spec: "99999999".to_owned(),
                image: "web:1".to_owned(),
                ..instance("orders-web.prod-99999999-1", "Running")
            },
        ],
        awaited: vec![AwaitedInstance {
            name: "orders-web.prod-0a1b2c3d-5".to_owned(),
            slot: 5,
            reason: "ImagePullBackOff".to_owned(),
            message: "web on an image".to_owned(),
        }],
        origin: "sites/orders/web.yaml:3".to_owned(),
        ..WorkloadStatus::default()
    };
    let over = ExitStatus { code: 0, finished: Timestamp(1_767_225_612_000), out_of_memory: false };
    let migrate = WorkloadStatus {
        spec: spec(Kind::Job, "prod", "migrate"),
        image: "web:2".to_owned(),
        replicas: 1,
        updated_replicas: 1,
        instances: vec![InstanceStatus {
            exit: Some(over),
            ..instance("orders-migrate.prod-0a1b2c3d-1", "Completed")
        }],
        job: Some(JobStatus {
            succeeded: 1,
            completions: Some(1),
            parallelism: 1,
            start_time: Some(Timestamp(1_767_225_600_000)),
            completion_time: Some(Timestamp(1_767_225_612_000)),
            ..JobStatus::default()
        }),
        ..WorkloadStatus::default()
    };
    let set = |kind, name: &str| WorkloadStatus {
        spec: spec(kind, "prod", name),
        image: format!("{name}:2"),
        replicas: 1,
        updated_replicas: 1,
        ready_replicas: 1,
        available_replicas: 1,
        instances: vec![InstanceStatus {
            image: format!("{name}:2"),
            ..instance(&format!("orders-{name}.prod-0a1b2c3d-1"), "Running")
        }],
        ..WorkloadStatus::default()
    };
    let mut database = set(Kind::StatefulSet, "db");
    database.spec.whole = Some("db.prod".into());
    let resource = |kind, name: &str, facts| ResourceStatus {
        created: None,
        resource: Resource {
            object: ObjectRef { kind, namespace: "prod".to_owned(), name: name.to_owned() },
            origin: Location::new("sites/orders/web.yaml", 40, 3),
            facts,
        },
    };
    let service = Facts::Service {
        r#type: "NodePort".to_owned(),
        headless: false,
        selector: BTreeMap::from([("app".to_owned(), "web".to_owned())]),
        ports: vec![ServicePort {
            name: None,
            port: 8080,
            target_port: "http".to_owned(),
            protocol: "TCP".to_owned(),
            node_port: Some(30080),
        }],
        external_addresses: Vec::new(),
    };
    let keys = BTreeMap::from([("app.conf".to_owned(), 12), ("mode".to_owned(), 4)]);
    let status = ApplicationStatus {
        observed_generation: 2,
        sync: SyncStatus::OutOfSync,
        health: HealthStatus::Progressing,
        revision: Some(7),
        workloads: Arc::new(BTreeMap::from([
            ("web.prod".into(), web),
            ("migrate.prod".into(), migrate),
            ("db-0.prod".into(), database),
            ("watcher.prod".into(), set(Kind::DaemonSet, "watcher")),
        ])),
        resources: Arc::new(vec![
            resource(Kind::Service, "web", service),
            resource(Kind::ConfigMap, "settings", Facts::ConfigMap { keys }),
            resource(
                Kind::Secret,
                "login",
                Facts::Secret { r#type: "Opaque".to_owned(), keys: vec!["password".to_owned()] },
            ),
            resource(
                Kind::PersistentVolumeClaim,
                "files",
                Facts::Claim {
                    volume: "orders_files.prod".to_owned(),
                    access_modes: vec!["ReadWriteOnce".to_owned()],
                },
            ),
        ]),
        ..ApplicationStatus::default()
    };
    let spec = ApplicationSpec {
        repository: "infra".to_owned(),
        url: "https://git.example.com/me/infra.git".to_owned(),
        reference: "main".to_owned(),
        path: "sites/orders".to_owned(),
        format: Some(Format::Kubernetes),
        policy: Policy::default(),
        commit: None,
    };
    Application { name: "orders".into(), spec, generation: 2, status }
}

/// A Compose application, as the planner publishes it.
fn compose() -> Application {
    let mut shop = shop();
    for it in Arc::make_mut(&mut shop.status.workloads).values_mut() {
        it.spec = spec(Kind::Deployment, "shop", "web");
        it.image = "web:2".to_owned();
        for instance in &mut it.instances {
            (instance.restarts, instance.image) = (0, "web:2".to_owned());
        }
    }
    shop
}

type Seen = Arc<Mutex<Vec<(AppName, RequestKind)>>>;

/// The lines that containers print, and the number of open log streams.
#[derive(Clone, Default)]
struct Printed {
    open: Arc<AtomicUsize>,
    closed: Arc<Notify>,
    asked: Arc<Mutex<Vec<(String, LogOptions)>>>,
}

/// Says when a stream is dropped.
struct Open(Printed);

impl Drop for Open {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::SeqCst);
        self.0.closed.notify_one();
    }
}

impl Logs for Printed {
    fn open<'a>(
        &'a self,
        container: &'a str,
        options: &'a LogOptions,
    ) -> Pin<Box<dyn Future<Output = Result<LogStream, String>> + Send + 'a>> {
        self.asked.lock().unwrap().push((container.to_owned(), options.clone()));
        self.open.fetch_add(1, Ordering::SeqCst);
        let guard = Open(self.clone());
        // It is the first run.
        let lines = if options.previous { vec![] } else { vec!["one\n", "two\n"] };
        let lines = stream::iter(lines).map(|it| Ok(it.into()));
        let rest =
            if options.follow { stream::pending().left_stream() } else { stream::empty().right_stream() };
        let all = lines.chain(rest).map(move |line| {
            let _open = &guard;
            line
        });
        Box::pin(ready(Ok(Box::pin(all) as LogStream)))
    }
}

struct Served {
    address: SocketAddr,
    seen: Seen,
    printed: Printed,
}

async fn served() -> Served {
    serving(orders()).await
}

async fn serving(orders: Application) -> Served {
    serving_all([compose(), orders]).await
}

async fn serving_all(applications: impl IntoIterator<Item = Application>) -> Served {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let agent = sample::agent(applications);
    agent.happens(sample::event("shop", "Started", "start shop-web-1 (missing)"));
    let (seen, printed) = (Seen::default(), Printed::default());
    let handle = agent.handle.with_logs(Arc::new(printed.clone()));
    tokio::spawn(serve(listener, router(handle, agent.store, Access::loopback()), pending()));
    tokio::spawn(sample::answer(agent.inbox, seen.clone()));
    Served { address, seen, printed }
}

impl Served {
    fn command(&self, line: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_driftless"));
        let words = shell_words::split(line).unwrap();
        command.args(words).env_clear().env("DRIFTLESS_SERVER", format!("http://{}", self.address));
        command.stdin(Stdio::null()).kill_on_drop(true);
        command
    }

    /// The output of a command, its errors after it, and its exit code if it is not 0.
    async fn said(&self, line: &str) -> String {
        let Output { status, stdout, stderr } = self.command(line).output().await.unwrap();
        let mut text = String::from_utf8(stdout).unwrap() + &String::from_utf8(stderr).unwrap();
        match status.code() {
            Some(0) => {}
            code => text.push_str(&format!("exit code {code:?}\n")),
        }
        text
    }
}

#[tokio::test]
async fn every_kind_is_listed_in_kubectls_columns() {
    let it = served().await;
    let mut all = String::new();
    for line in [
        "get deployments",
        "get po",
        "get pods -n prod -o wide",
        "get deploy,sts,ds -n prod -o wide",
        "get rs -n prod",
        "get jobs",
        "get svc -o wide",
        "get cm,secrets,pvc",
        "get ns",
        "get all -n shop",
        "get po -A -l app=db --show-labels",
        "get po -l 'app in (db, watcher)' --no-headers",
        "get deploy -n nowhere",
        "get deploy/web -n shop",
        "get pod nothing",
    ] {
        all.push_str(&format!("$ driftless {line}\n{}\n", it.said(line).await));
    }
    assert_snapshot!(all);
}

#[tokio::test]
async fn task_that_never_started_is_an_error() {
    let mut orders = orders();
    let workloads = Arc::make_mut(&mut orders.status.workloads);
    let migrate = workloads.get_mut(&"migrate.prod".into()).unwrap();
    for instance in &mut migrate.instances {
        (instance.state, instance.exit) = ("Failed".to_owned(), None);
    }
    let it = serving(orders).await;
    let pod = "get pod orders-migrate.prod-0a1b2c3d-1 -n prod";
    let line = it.said(&format!("{pod} --no-headers")).await;
    assert!(line.contains("Error") && !line.contains("Completed"), "{line}");
    let code = "jsonpath={.status.containerStatuses[0].state.terminated.exitCode}";
    assert_eq!(it.said(&format!("{pod} -o {code}")).await.trim(), "128");
}

#[tokio::test]
async fn objects_are_printed_in_every_form() {
    let it = served().await;
    let mut all = String::new();
    for line in [
        "get deploy web -n prod -o yaml",
        "get po -n prod -o name",
        "get po -n prod -o 'jsonpath={range .items[*]}{.metadata.name}{\"\\t\"}{.status.phase}{\"\\n\"}{end}'",
        "get po -n prod -o 'jsonpath={.items[?(@.status.phase==\"Pending\")].metadata.name}'",
        "get deploy web -n prod -o jsonpath={.status.readyReplicas}",
        "get po -n prod -o custom-columns=NAME:.metadata.name,IMAGE:.spec.containers[*].image,GONE:.spec.x --sort-by .spec.containers[0].image",
        "get secret login -o yaml",
        "get cm settings -o json",
    ] {
        all.push_str(&format!("$ driftless {line}\n{}\n", it.said(line).await));
    }
    assert_snapshot!(all);
}

#[tokio::test]
async fn invalid_arguments_are_reported_with_their_position() {
    let it = served().await;
    let mut all = String::new();
    for line in [
        "get ingress",
        "get po -o 'jsonpath={.items[*}'",
        "get po -o custom-columns=NAME",
        "get po -o tree",
        "get po -l 'app like web'",
        "get po web -l app=web",
        "rollout status deploy/web",
        "rollout restart job/migrate",
        "rollout status deploy",
        "logs deployment/nothing",
        "logs orders-web.prod-0a1b2c3d-5",
        "logs shop-web-1 -c side",
        "logs --previous shop-web-1",
        "logs -l 'app like web'",
        "get events web",
        "get events -n shop",
        "get events -o yaml",
        "delete deployment web",
        "delete pod",
    ] {
        all.push_str(&format!("$ driftless {line}\n{}\n", it.said(line).await));
    }
    assert_snapshot!(all);
}

#[tokio::test]
async fn endpoints_list_ready_pods_and_why_others_get_no_traffic() {
    let mut orders = orders();
    let workloads = Arc::make_mut(&mut orders.status.workloads);
    let web = workloads.get_mut(&"web.prod".into()).unwrap();
    let ready = |slot: u32| InstanceStatus {
        ip: Some(format!("10.1.0.{slot}")),
        ..instance(&format!("orders-web.prod-0a1b2c3d-{slot}"), "Running")
    };
    let failing = InstanceStatus {
        ready: false,
        message: "readiness probe: GET /healthz answered 503".to_owned(),
        ..ready(9)
    };
    web.instances = (1..=4).map(ready).chain([failing]).collect();
    let it = serving(orders).await;
    let mut all = String::new();
    for line in [
        "get endpoints -n prod",
        "get ep -n prod -o wide",
        "describe svc web -n prod",
        "describe ep web -n prod",
    ] {
        all.push_str(&format!("$ driftless {line}\n{}\n", it.said(line).await));
    }
    assert_snapshot!(all);
    let list = it.said("get endpoints web -n prod -o json").await;
    let object: Value = serde_json::from_str(&list).unwrap();
    let ready = object["subsets"][0]["addresses"].as_array().unwrap();
    assert_eq!((ready.len(), &ready[0]["targetRef"]["kind"]), (4, &"Pod".into()));
    assert_eq!(object["subsets"][0]["ports"][0]["port"], 8080);
}

#[tokio::test]
async fn service_is_described_with_endpoints_of_its_application() {
    // `blog` has a Service of the same name and namespace, and is the first in the alphabet.
    let mut blog = orders();
    blog.name = "blog".into();
    let web = Arc::make_mut(&mut blog.status.workloads).get_mut(&"web.prod".into()).unwrap();
    for instance in &mut web.instances {
        instance.ip = Some("10.9.0.9".to_owned());
    }
    let it = serving_all([blog, orders()]).await;
    let described = it.said("describe svc web -n prod --app orders").await;
    assert!(described.contains("172.18.0.2:8080") && !described.contains("10.9.0.9"), "{described}");
    let described = it.said("describe svc web -n prod --app blog").await;
    assert!(described.contains("10.9.0.9") && !described.contains("172.18.0.2"), "{described}");
}

#[tokio::test]
async fn endpoints_of_a_compose_service_are_those_of_its_proxy() {
    let mut shop = orders();
    shop.name = "shop".into();
    shop.spec.format = Some(Format::Compose);
    let served = |slot: u32, reason: &str| InstanceStatus {
        ip: Some(format!("10.1.0.{slot}")),
        traffic: Some(TrafficStatus {
            proxies: vec!["web_proxy".into()],
            ports: vec!["8080/tcp".to_owned()],
            receives: reason.is_empty(),
            reason: reason.to_owned(),
        }),
        ..instance(&format!("shop-web-{slot}"), "Running")
    };
    let web = WorkloadStatus {
        spec: spec(Kind::Deployment, "shop", "web"),
        instances: vec![served(1, ""), served(2, "its health check fails")],
        ..WorkloadStatus::default()
    };
    shop.status.workloads = Arc::new([("web".into(), web)].into());
    shop.status.resources = Arc::default();
    let it = serving(shop).await;
    let rows = it.said("get endpoints -n shop -o wide").await;
    assert!(rows.contains("10.1.0.1:8080") && rows.contains("10.1.0.2:8080"), "{rows}");
    let described = it.said("describe ep web -n shop").await;
    assert!(described.contains("shop-web-2") && described.contains("its health check fails"), "{described}");
}

#[tokio::test]
async fn objects_are_described_in_full() {
    let it = served().await;
    let mut all = String::new();
    for line in [
        "describe deploy web -n prod",
        "describe pod orders-web.prod-0a1b2c3d-4",
        "describe job/migrate sts/db ds/watcher",
        "describe svc,cm,secret,pvc -n prod",
        "describe ns shop",
    ] {
        all.push_str(&format!("$ driftless {line}\n{}\n", it.said(line).await));
    }
    assert!(!all.contains("hunter2"));
    assert_snapshot!(all);
    // Ages are of today.
    let events = it.said("get events --app shop").await;
    let words: Vec<Vec<&str>> = events.lines().map(|it| it.split_whitespace().collect()).collect();
    assert_eq!(words[0], ["LAST", "SEEN", "TYPE", "REASON", "APPLICATION", "OBJECT", "MESSAGE"], "{events}");
    assert!(words.iter().any(|it| it[1..4] == ["Normal", "Started", "shop"]), "{events}");
    assert!(events.contains("start shop-web-1 (missing)"), "{events}");
    assert_eq!(it.said("get ev --app orders").await, "No resources found\n");
    let pod = it.said("describe pod shop-web-1").await;
    assert!(pod.contains("start shop-web-1 (missing)"), "{pod}");
    let deployment = it.said("describe deploy web -n shop").await;
    assert!(
        deployment.contains("Started") && deployment.contains("start shop-web-1 (missing)"),
        "{deployment}"
    );
}

#[tokio::test]
async fn rollouts_are_followed_and_asked_for() {
    let it = served().await;
    let mut all = String::new();
    for line in [
        "rollout status deployment/web -n shop",
        "rollout status deployment/web -n prod --watch=false",
        "rollout status deployment/web -n prod --timeout 100ms",
        "rollout status sts/db",
        "rollout status ds watcher",
        "rollout restart deployment/web -n prod",
        "rollout pause deploy web -n prod",
        "rollout resume deploy web -n prod",
        "delete pod shop-web-1 --wait=false",
    ] {
        all.push_str(&format!("$ driftless {line}\n{}\n", it.said(line).await));
    }
    assert_snapshot!(all);
    let web = || "web.prod".into();
    assert_eq!(
        *it.seen.lock().unwrap(),
        [
            ("orders".into(), RequestKind::Restart(web())),
            ("orders".into(), RequestKind::Pause(web())),
            ("orders".into(), RequestKind::Unpause(web())),
            (
                "shop".into(),
                RequestKind::DeleteInstance(InstanceName {
                    name: "shop-web-1".to_owned(),
                    namespace: Some("shop".to_owned()),
                })
            ),
        ]
    );
}

/// The agent here replaces nothing.
#[tokio::test]
async fn delete_asks_for_all_pods_before_it_waits() {
    let it = served().await;
    let said = it.said("delete pod shop-web-1 shop-web-2 --timeout 100ms").await;
    let late = |pod: &str| format!("error: timed out waiting for the condition on pods/{pod}");
    assert!(said.contains(&late("shop-web-1")) && said.contains(&late("shop-web-2")), "{said}");
    assert!(said.ends_with("exit code Some(1)\n") && !said.contains("deleted"), "{said}");
    let asked: Vec<_> = it.seen.lock().unwrap().iter().map(|(_, kind)| kind.clone()).collect();
    let deletion = |name: &str| {
        let (name, namespace) = (name.to_owned(), Some("shop".to_owned()));
        RequestKind::DeleteInstance(InstanceName { name, namespace })
    };
    assert_eq!(asked, ["shop-web-1", "shop-web-2"].map(deletion));
}

#[tokio::test]
async fn delete_job_asks_for_its_workload() {
    let it = served().await;
    let said = it.said("delete job migrate").await;
    assert_eq!(said, "job.batch \"migrate\" deleted\n");
    assert_eq!(*it.seen.lock().unwrap(), [("orders".into(), RequestKind::DeleteJob("migrate.prod".into()))]);
    let said = it.said("delete job").await;
    assert!(said.contains("name the jobs: driftless delete job NAME"), "{said}");
}

#[tokio::test]
async fn rollout_takes_a_workload_by_its_application() {
    let it = served().await;
    let said = it.said("rollout restart orders/web").await;
    assert!(said.starts_with("deployment.apps/web restarted\n"), "{said}");
    assert_eq!(*it.seen.lock().unwrap(), [("orders".into(), RequestKind::Restart("web.prod".into()))]);
    let said = it.said("rollout restart orders/nothing").await;
    assert!(said.contains("no workload `nothing` in an application `orders`"), "{said}");
    assert!(said.contains("orders/web"), "{said}");
}

#[tokio::test]
async fn workload_of_several_namespaces_is_selected_by_one() {
    let mut orders = orders();
    let workloads = Arc::make_mut(&mut orders.status.workloads);
    let staging =
        WorkloadStatus { spec: spec(Kind::Deployment, "staging", "web"), ..WorkloadStatus::default() };
    workloads.insert("web.staging".into(), staging);
    let other = WorkloadStatus { spec: spec(Kind::DaemonSet, "prod", "web"), ..WorkloadStatus::default() };
    workloads.insert("daemonset-web.prod".into(), other);
    let it = serving(orders).await;
    let said = it.said("rollout restart orders/web -n staging").await;
    assert!(said.starts_with("deployment.apps/web restarted\n"), "{said}");
    assert_eq!(*it.seen.lock().unwrap(), [("orders".into(), RequestKind::Restart("web.staging".into()))]);
    for (line, expected) in [
        ("rollout pause orders/web", "; select one with -n"),
        ("rollout pause orders/web -n prod", "; select one by its kind, as in `"),
        ("rollout pause orders/web --app shop", "--app names `shop`: leave out --app"),
        (
            "rollout pause orders/web -n test",
            "no workload `web` in an application `orders`, namespace `test`",
        ),
        ("rollout status deploymnt/web", "no kind has the name `deploymnt` either"),
    ] {
        let said = it.said(line).await;
        assert!(said.contains(expected), "{line}: {said}");
    }
    assert_eq!(it.seen.lock().unwrap().len(), 1, "nothing else was asked for");
}

#[tokio::test]
async fn objects_without_rolling_updates_have_no_rollout_status() {
    let mut orders = orders();
    let workloads = Arc::make_mut(&mut orders.status.workloads);
    for name in ["db-0.prod", "watcher.prod"] {
        workloads.get_mut(&name.into()).unwrap().spec.update = Update::OnDelete;
    }
    let it = serving(orders).await;
    let error =
        "error: rollout status is only available for RollingUpdate strategy type\nexit code Some(1)\n";
    for object in ["sts/db", "ds/watcher"] {
        assert_eq!(it.said(&format!("rollout status {object}")).await, error, "{object}");
    }
    let said = it.said("rollout status rs/web-0a1b2c3d -n prod").await;
    assert!(said.contains("replicasets.apps have no rollouts") && said.ends_with("Some(2)\n"), "{said}");
}

#[tokio::test]
async fn failed_commit_ends_the_wait_for_a_rollout() {
    let failed = |reason: &str| {
        let mut orders = orders();
        orders.status.conditions.push(condition("CommitFailed", ConditionStatus::True, reason));
        orders.status.obstacle = Some("3f2a9c1 failed: web made no progress".to_owned());
        for workload in Arc::make_mut(&mut orders.status.workloads).values_mut() {
            workload.health = HealthStatus::Healthy;
        }
        orders
    };
    let error = "error: 3f2a9c1 failed: web made no progress\nexit code Some(1)\n";
    let it = serving(failed("RolloutsPaused")).await;
    assert_eq!(it.said("rollout status deployment/web -n prod").await, error);
    let database = it.said("rollout status sts/db").await;
    assert_eq!(database, "statefulset rolling update complete 1 pods at revision db-0a1b2c3d...\n");
    // A container that crashes again and again runs for moments.
    let mut crashing = failed("RolloutsPaused");
    let workloads = Arc::make_mut(&mut crashing.status.workloads);
    workloads.get_mut(&"db-0.prod".into()).unwrap().health = HealthStatus::Degraded;
    assert_eq!(serving(crashing).await.said("rollout status sts/db").await, error);
    // All that is counted is of the older commit.
    let it = serving(failed("RolledBack")).await;
    for object in ["deployment/web -n prod", "sts/db", "ds/watcher"] {
        assert_eq!(it.said(&format!("rollout status {object}")).await, error, "{object}");
    }
    // A pin leaves nothing to reach.
    let mut pinned = failed("RolledBack");
    pinned.status.obstacle = None;
    assert_eq!(serving(pinned).await.said("rollout status sts/db").await, database);
}

#[tokio::test]
async fn an_engine_that_is_not_observed_is_named() {
    let mut lost = orders();
    lost.status.health = HealthStatus::Unknown;
    lost.status.sync = SyncStatus::Unknown;
    lost.status.message = "could not observe the engine: no answer".to_owned();
    let mut unseen = lost.clone();
    lost.status.observed_at = Some(Timestamp(1_767_225_600_000));
    let it = serving(lost).await;
    let waiting = "Waiting for the agent to observe orders: could not observe the engine: no answer\n";
    let timed_out = "error: timed out waiting for the condition\nexit code Some(1)\n";
    assert_eq!(it.said("rollout status sts/db --timeout 100ms").await, format!("{waiting}{timed_out}"));
    assert_eq!(it.said("rollout status sts/db --watch=false").await, waiting);
    let seen = "warning: the agent cannot observe orders, last seen ";
    for line in ["get pods -n prod", "get pod nothing", "describe sts/db", "logs nothing", "logs -l a=b"] {
        let said = it.said(line).await;
        assert!(said.contains(seen) && said.contains(" ago: could not observe the engine"), "{line}: {said}");
    }
    let other = it.said("get pods -n shop").await;
    assert!(!other.contains("warning"), "that application is observed: {other}");

    unseen.status.workloads = Arc::default();
    let it = serving(unseen).await;
    assert_eq!(
        it.said("delete pod orders-web").await,
        "Error from server (NotFound): pods \"orders-web\" not found\n\
         warning: the agent has not observed orders yet: could not observe the engine: no answer\n\
         exit code Some(1)\n"
    );
}

#[tokio::test]
async fn the_output_of_containers_is_passed_on_and_let_go() {
    let it = served().await;
    assert_eq!(it.said("logs shop-web-1").await, "one\ntwo\n");
    let several = it.said("logs deploy/web -n shop --tail 5 --timestamps --since 2020-01-01T00:00:00Z").await;
    assert_eq!(several, "one\ntwo\nFound 2 pods, using pod/shop-web-1\n");
    let since = Timestamp::parse("2020-01-01T00:00:00Z");
    let options = LogOptions { tail: Some(5), timestamps: true, since, ..LogOptions::default() };
    assert_eq!(it.printed.asked.lock().unwrap()[1], ("1".repeat(64), options));

    let marked = it.said("logs -l driftless.workload=web --app shop --prefix").await;
    let lines = ["shop-web-1", "shop-web-2"].map(|it| format!("[pod/{it}/web] one\n[pod/{it}/web] two\n"));
    assert_eq!(marked, lines.concat(), "one pod after the other");
    let of_each = LogOptions { tail: Some(10), ..LogOptions::default() };
    assert_eq!(it.printed.asked.lock().unwrap()[2], ("1".repeat(64), of_each));
    assert_eq!(it.said("logs -l driftless.workload=nothing").await, "No resources found\n");
    let waiting = it.said("logs -l driftless.workload=web.prod --app orders --prefix").await;
    let is_there = |part: &str| assert!(waiting.contains(part), "{part}: {waiting}");
    is_there("[pod/orders-web.prod-0a1b2c3d-4/web] one\n");
    is_there("[pod/orders-web.prod-99999999-1/web] two\n");
    is_there(
        "in pod \"orders-web.prod-0a1b2c3d-5\" is waiting to start: ImagePullBackOff\nexit code Some(1)\n",
    );

    let mut child = it.command("logs -f shop-web-1").stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert_eq!(lines.next_line().await.unwrap().unwrap(), "one");
    assert_eq!(lines.next_line().await.unwrap().unwrap(), "two");
    assert_eq!(it.printed.open.load(Ordering::SeqCst), 1, "it goes on");
    child.kill().await.unwrap();
    while it.printed.open.load(Ordering::SeqCst) > 0 {
        it.printed.closed.notified().await;
    }
}

#[tokio::test]
async fn a_selection_that_makes_no_sense_is_refused() {
    let it = served().await;
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let get = async |query: &str| {
        let answer = client.get(format!("http://{}/api/v1/objects{query}", it.address)).send().await.unwrap();
        let status = answer.status().as_u16();
        (status, serde_json::from_slice::<Value>(&answer.bytes().await.unwrap()).unwrap())
    };
    for wrong in ["?kind=ingress", "?labelSelector=a%20b", "?colour=red"] {
        let (status, body) = get(wrong).await;
        assert_eq!((status, &body["error"]["code"]), (400, &"malformed".into()), "{wrong}");
    }
    let (status, body) = get("?kind=Deployment&namespace=shop&app=shop&labelSelector=app%3Dweb").await;
    assert_eq!(status, 200);
    assert_eq!(body["items"].as_array().unwrap().len(), 1);
    assert_eq!(body["items"][0]["status"]["availableReplicas"], 2);
}

#[test]
fn manifests_give_names_and_no_values() {
    let manifests = "\
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: prod}
spec:
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: web, image: 'web:1', ports: [{name: http, containerPort: 80}]}]}
---
apiVersion: v1
kind: Service
metadata: {name: web, namespace: prod}
spec: {selector: {app: web}, ports: [{port: 80, targetPort: http}]}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: settings, namespace: prod}
data: {mode: fast}
---
apiVersion: v1
kind: Secret
metadata: {name: login, namespace: prod}
stringData: {password: hunter2}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: files, namespace: prod}
spec: {accessModes: [ReadWriteOnce]}
";
    let spec = AppSpec::kubernetes("orders", &["all.yaml"]);
    let stack = kubernetes::render(&MemoryFiles::new([("all.yaml", manifests)]), &spec).stack.unwrap();
    let inventory = serde_json::to_string_pretty(&stack.inventory).unwrap();
    assert!(!inventory.contains("hunter2") && !inventory.contains("fast"), "{inventory}");
    assert_snapshot!(inventory);
}
