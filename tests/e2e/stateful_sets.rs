//! A StatefulSet on the real engine: order, names, data, and nothing done without need.

use crate::harness::{Counting, Site, images};

fn manifests(image: &str, version: u32, replicas: u32) -> String {
    let program =
        r#"echo "$POD $VERSION" >> /data/log; trap 'exit 0' TERM; while :; do sleep 1000 & wait; done"#;
    format!(
        "apiVersion: v1
kind: Service
metadata: {{name: store}}
spec: {{clusterIP: None, selector: {{app: db}}, ports: [{{port: 5432}}]}}
---
apiVersion: apps/v1
kind: StatefulSet
metadata: {{name: db}}
spec:
  serviceName: store
  replicas: {replicas}
  minReadySeconds: 1
  selector: {{matchLabels: {{app: db}}}}
  volumeClaimTemplates: [{{metadata: {{name: data}}, spec: {{accessModes: [ReadWriteOnce]}}}}]
  template:
    metadata: {{labels: {{app: db}}}}
    spec:
      terminationGracePeriodSeconds: 1
      containers:
        - name: db
          image: \"{image}\"
          command: [/bin/busybox, sh, -c, '{}']
          env:
            - {{name: POD, valueFrom: {{fieldRef: {{fieldPath: metadata.name}}}}}}
            - {{name: VERSION, value: \"{version}\"}}
          volumeMounts: [{{name: data, mountPath: /data}}]
",
        program.replace('\'', "''")
    )
}

// The proxy has to go on while a command is waited for.
#[tokio::test(flavor = "multi_thread")]
async fn pods_of_a_set_keep_their_names_their_data_and_their_order() {
    let mut site = Site::new("sts");
    let proxy = Counting::start(&site.directory());
    site.settings.docker_host = Some(proxy.host());
    let image = images::placeholder();
    let put = |version, replicas| {
        site.repository.commit(&[(&site.path("db.yaml"), &manifests(&image, version, replicas))])
    };
    let first = put(1, 3);
    let mut agent = site.agent().await;
    agent.settled(&first).await;

    let created = |name: &str| site.container(name).text("/Created");
    let started = |name: &str| site.container(name).started();
    for (one, next) in [("db-0", "db-1"), ("db-1", "db-2")] {
        assert!(started(one) < created(next), "{next} is made once {one} is ready");
    }
    assert_eq!(site.container("db-2").name(), format!("{}-db-2", site.app));
    let two = site.container("db-2").name();
    for name in ["db-0", "db-0.store", "db-0.store.default", "db-0.store.default.svc.cluster.local"] {
        let answer = site.docker.run(&["exec", &two, "/bin/busybox", "nslookup", name, "127.0.0.11"]);
        assert!(answer.contains(&site.container("db-0").address().unwrap()), "{name}: {answer}");
    }
    let rows = agent.said("get sts");
    let row: Vec<&str> = rows.lines().nth(1).unwrap().split_whitespace().collect();
    assert_eq!((rows.lines().count(), &row[..2]), (2, &["db", "3/3"][..]), "{rows}");
    let pods = agent.said("get pods");
    for pod in ["db-0 ", "db-1 ", "db-2 "] {
        assert!(pods.lines().any(|it| it.starts_with(pod)), "{pods}");
    }

    // An agent that comes back does nothing at all. That a host name is an alias as well is no drift.
    let writes = proxy.writes().len();
    agent.restart().await;
    agent.sync().await;
    agent.settled(&first).await;
    assert_eq!(proxy.writes()[writes..], [""; 0]);

    // Down, an update of the rest, and up again: what was written is still there.
    let second = put(1, 1);
    agent.deployed(&second).await;
    assert_eq!(site.docker.containers(&site.app).len(), 1);
    let third = put(2, 3);
    agent.deployed(&third).await;
    agent.said("rollout status sts/db");
    for (pod, log) in [("db-0", "db-0 1\ndb-0 2"), ("db-1", "db-1 1\ndb-1 2"), ("db-2", "db-2 1\ndb-2 2")] {
        let name = site.container(pod).name();
        assert_eq!(site.docker.run(&["exec", &name, "/bin/busybox", "cat", "/data/log"]), log);
    }

    // From the highest ordinal down.
    let fourth = put(3, 3);
    agent.deployed(&fourth).await;
    for (next, one) in [("db-0", "db-1"), ("db-1", "db-2")] {
        assert!(started(one) < created(next), "{next} is replaced once {one} is ready");
    }
    let before = site.container("db-1").id();
    agent.said("delete pod db-1");
    agent.settled(&fourth).await;
    assert_ne!(site.container("db-1").id(), before);
    agent.said("rollout restart sts/db");
    let is_newer = |one: &str, other: &str| {
        let made = |it| site.of(it).first().map(|it| it.text("/Created"));
        made(other).is_some_and(|other| made(one).is_some_and(|one| one > other))
    };
    agent.until("all pods are new", |_| is_newer("db-0", "db-1")).await;
}
