//! Kubernetes manifests on a Docker Swarm: deployed, changed by hand, updated and removed. `make e2e-swarm`, as root.

use serde_json::{Value, json};

use crate::swarm::Deployed;

/// Passes in which nothing may be written.
const IDLE: usize = 10;

/// A Deployment with files and variables of a ConfigMap and a Secret, a DaemonSet, and two Services.
fn manifests(image: &str, greeting: &str) -> String {
    format!(
        "apiVersion: apps/v1
kind: Deployment
metadata: {{name: web, labels: {{team: shop}}}}
spec:
  replicas: 2
  strategy: {{rollingUpdate: {{maxSurge: 1, maxUnavailable: 0}}}}
  selector: {{matchLabels: {{app: web}}}}
  template:
    metadata: {{labels: {{app: web}}}}
    spec:
      terminationGracePeriodSeconds: 2
      nodeSelector: {{kubernetes.io/os: linux}}
      containers:
        - name: server
          image: '{image}'
          env:
            - {{name: NODE, valueFrom: {{fieldRef: {{fieldPath: spec.nodeName}}}}}}
            - {{name: PLAIN, value: '{{{{ as it is }}}}'}}
            - {{name: TOKEN, valueFrom: {{secretKeyRef: {{name: key, key: token}}}}}}
            - {{name: MESSAGE_FILE, value: /etc/web/motd}}
          ports: [{{containerPort: 8080}}]
          resources: {{requests: {{cpu: 10m, memory: 8Mi}}, limits: {{memory: 64Mi}}}}
          securityContext: {{capabilities: {{drop: [ALL]}}}}
          livenessProbe: {{exec: {{command: [/server, --healthcheck, 'http://127.0.0.1:8080/']}}, periodSeconds: 1}}
          readinessProbe: {{exec: {{command: [/server, --healthcheck, 'http://127.0.0.1:8080/']}}}}
          volumeMounts:
            - {{name: conf, mountPath: /etc/web}}
            - {{name: key, mountPath: /key}}
            - {{name: cache, mountPath: /cache}}
            - {{name: memory, mountPath: /memory}}
      volumes:
        - {{name: conf, configMap: {{name: conf}}}}
        - {{name: key, secret: {{secretName: key, defaultMode: 0400}}}}
        - {{name: cache, emptyDir: {{}}}}
        - {{name: memory, emptyDir: {{medium: Memory, sizeLimit: 1Mi}}}}
---
apiVersion: apps/v1
kind: DaemonSet
metadata: {{name: logs, namespace: ops}}
spec:
  selector: {{matchLabels: {{app: logs}}}}
  template:
    metadata: {{labels: {{app: logs}}}}
    spec: {{containers: [{{name: logs, image: '{image}', ports: [{{containerPort: 8080, hostPort: 8099}}]}}]}}
---
{{apiVersion: v1, kind: ConfigMap, metadata: {{name: conf}}, data: {{motd: '{greeting}'}}}}
---
{{apiVersion: v1, kind: Secret, metadata: {{name: key}}, stringData: {{token: s3cret}}}}
---
apiVersion: v1
kind: Service
metadata: {{name: front}}
spec: {{type: NodePort, selector: {{app: web}}, ports: [{{port: 8080, nodePort: 30180}}]}}
---
apiVersion: v1
kind: Service
metadata: {{name: logs, namespace: ops}}
spec: {{clusterIP: None, selector: {{app: logs}}}}
"
    )
}

fn container(all: &Deployed, name: &str) -> Value {
    all.inspect(name)["Spec"]["TaskTemplate"]["ContainerSpec"].clone()
}

/// The containers of the tasks of a service that run.
fn containers(all: &Deployed, name: &str) -> Vec<String> {
    let filter = format!("label=com.docker.swarm.service.name={}", all.service(name));
    all.docker(&["ps", "-q", "--filter", &filter]).lines().map(str::to_owned).collect()
}

#[tokio::test]
#[ignore = "needs root for an engine of its own; `make e2e-swarm`"]
async fn manifests_become_services_of_a_swarm() {
    let files = |image: &str| vec![("shop.yaml", manifests(image, "one"))];
    let mut all = Deployed::with_files("manifests", true, files).await;
    let mut commit = all.site.repository.head();
    are_deployed(&all);

    let before = all.versions();
    all.passes(IDLE).await;
    all.agent.kill9();
    all.agent.restart().await;
    all.agent.settled(&commit).await;
    all.passes(2).await;
    assert_eq!(all.versions(), before);

    changes_by_hand_are_undone(&all, &commit).await;

    // A changed ConfigMap rolls the Deployment, and nothing else.
    let tasks = containers(&all, "web");
    let logs = all.swarm.version(&all.service("logs_ops"));
    commit = all.site.repository.commit(&[(&all.site.path("shop.yaml"), &manifests(&all.image, "two"))]);
    all.agent.settled(&commit).await;
    // The former one is kept for a rollback.
    assert_eq!(all.files().len(), 2);
    all.until("its tasks are new", |all| {
        let now = containers(all, "web");
        now.len() == 2 && now.iter().all(|task| !tasks.contains(task))
    })
    .await;
    assert_eq!(all.swarm.version(&all.service("logs_ops")), logs);

    all.site.repository.remove(&[&all.site.path("shop.yaml")]);
    for kind in ["service", "config", "secret"] {
        all.until(&format!("no {kind} is left"), |all| all.names(kind).is_empty()).await;
    }
    let is_own = |name: &String| name.starts_with(&all.site.app);
    all.until("no network is left", |all| !all.names("network").iter().any(is_own)).await;
}

fn are_deployed(all: &Deployed) {
    assert_eq!(all.names("service"), [all.service("logs_ops"), all.service("web")]);
    assert_eq!((all.files().len(), all.names("secret").len()), (1, 1));
    let web = all.inspect("web")["Spec"].clone();
    assert_eq!(web["Mode"]["Replicated"]["Replicas"], 2);
    assert_eq!(web["Labels"]["team"], "shop");
    assert_eq!(web["UpdateConfig"]["Order"], "start-first");
    assert_eq!(web["TaskTemplate"]["Placement"]["Constraints"], json!(["node.platform.os == linux"]));
    let port = |spec: &Value| {
        let port = &spec["EndpointSpec"]["Ports"][0];
        (port["PublishMode"].as_str().unwrap().to_owned(), port["PublishedPort"].as_u64().unwrap())
    };
    assert_eq!(port(&web), ("ingress".to_owned(), 30180));
    let logs = all.inspect("logs_ops")["Spec"].clone();
    assert_eq!(port(&logs), ("host".to_owned(), 8099));
    assert_eq!((&logs["Mode"], &logs["EndpointSpec"]["Mode"]), (&json!({"Global": {}}), &json!("dnsrr")));
    // A task sees its node, the text as it is in the manifest, and the files with their modes.
    let tasks = containers(all, "web");
    assert_eq!(tasks.len(), 2);
    let environment = all.docker(&["inspect", "-f", "{{json .Config.Env}}", &tasks[0]]);
    let node = all.docker(&["node", "ls", "--format", "{{.Hostname}}"]);
    for variable in
        [format!("NODE={}", node.trim()), "PLAIN={{ as it is }}".to_owned(), "TOKEN=s3cret".to_owned()]
    {
        assert!(environment.contains(&format!("\"{variable}\"")), "{environment}");
    }
    let modes = all.docker(&[
        "service",
        "inspect",
        "-f",
        "{{json .Spec.TaskTemplate.ContainerSpec.Secrets}}",
        &all.service("web"),
    ]);
    assert!(modes.contains("\"Mode\":256"), "{modes}");
    let alive = ["exec", &tasks[0], "/server", "--healthcheck", "http://127.0.0.1:8080/"];
    all.docker(&alive);
}

async fn changes_by_hand_are_undone(all: &Deployed, commit: &str) {
    let service = all.service("web");
    let spec = |all: &Deployed| all.inspect("web")["Spec"].clone();
    let before = spec(all);
    for words in [
        vec!["--replicas", "3"],
        vec!["--env-add", "TOKEN=other"],
        vec!["--health-cmd", "/server --once"],
        vec!["--constraint-add", "node.role==manager"],
        vec!["--publish-rm", "8080"],
    ] {
        let version = all.swarm.version(&service);
        all.docker(&[&["service", "update", "-d"], &*words, &[&*service]].concat());
        assert!(all.swarm.version(&service) > version, "{words:?} writes nothing");
        all.until(&format!("{words:?} is undone"), |all| spec(all) == before).await;
        all.agent.settled(commit).await;
    }
    assert_eq!(container(all, "web"), before["TaskTemplate"]["ContainerSpec"]);
    // A value of a Secret is in no event.
    let path = format!("/api/v1/events?app={}", all.site.app);
    let (_, events) = all.agent.get(&path).await.expect("the agent has events");
    let events = events.to_string();
    assert!(events.contains("TOKEN") && !events.contains("s3cret"), "{events}");
    all.docker(&["service", "rm", &service]);
    all.until("the service is there again", |all| all.names("service").contains(&service)).await;
    all.agent.settled(commit).await;
    assert_eq!(spec(all), before);
}
