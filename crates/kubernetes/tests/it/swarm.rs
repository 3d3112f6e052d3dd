//! Kubernetes manifests for a Docker Swarm: the services that they become, and what is refused at its place.

use std::time::Duration;

use driftless_files::{AppSpec, MemoryFiles, Rendered};
use driftless_kubernetes::render;
use driftless_model::{EngineKind, Finding, MountSource, Stack, SwarmMode};

fn rendered(text: &str) -> Rendered {
    let files = MemoryFiles::new([("a.yaml", text)]);
    render(&files, &AppSpec { engine: EngineKind::Swarm, ..AppSpec::kubernetes("shop", &["a.yaml"]) })
}

#[track_caller]
fn stack(text: &str) -> Stack {
    let rendered = rendered(text);
    rendered.stack.unwrap_or_else(|| panic!("{:#?}", rendered.findings))
}

fn texts(text: &str, is_error: bool) -> Vec<String> {
    let found = rendered(text).findings;
    found.iter().filter(|it| it.is_error() == is_error).map(Finding::to_string).collect()
}

/// The start of a Deployment whose pod ends with these lines, from line 14 on.
fn pod(lines: &str) -> String {
    let lines: String = lines.lines().map(|it| format!("      {it}\n")).collect();
    format!(
        "apiVersion: apps/v1
kind: Deployment
metadata:
  name: web
spec:
  selector: {{matchLabels: {{app: web}}}}
  template:
    metadata:
      labels: {{app: web}}
    spec:
      containers:
      - name: web
        image: web:1
{lines}"
    )
}

/// One whose container has these lines, from line 14 on.
fn container(lines: &str) -> String {
    pod(&lines.lines().map(|it| format!("  {it}\n")).collect::<String>())
}

/// A Deployment and a further object, which begins in line 15.
fn with(object: &str) -> String {
    format!("{}---\n{object}", pod(""))
}

/// A Deployment with another text at this place.
fn changed(from: &str, to: &str) -> String {
    pod("").replacen(from, to, 1)
}

/// Each text has exactly these errors or warnings.
#[track_caller]
fn each_is_reported(cases: &[(String, &str)], is_error: bool) {
    let mut wrong = Vec::new();
    for (text, expected) in cases {
        let found = texts(text, is_error);
        if found.len() != 1 || !found[0].starts_with(expected) {
            wrong.push(format!("{text}\nexpected: {expected}\n   found: {found:#?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

const SERVICE: &str = "apiVersion: v1\nkind: Service\nmetadata: {name: web}\nspec:\n  selector: {app: web}\n";

fn service(lines: &str) -> String {
    with(&format!("{SERVICE}{}", lines.lines().map(|it| format!("  {it}\n")).collect::<String>()))
}

#[test]
fn fields_that_a_swarm_does_not_have_are_refused() {
    const POD: &str = "spec.template.spec";
    let one = "spec.template.spec.containers[0]";
    let exec = "livenessProbe: {exec: {command: [a]}}\n";
    let claim = "---\napiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: data}\nspec: {accessModes: [ReadWriteOnce]}\n";
    let volume = |volume: &str| {
        format!(
            "{}      volumes:\n      - name: a\n        {volume}\n",
            container("volumeMounts:\n- {name: a, mountPath: /a}")
        )
    };
    let cases: Vec<(String, String)> = vec![
        (
            changed("kind: Deployment", "kind: StatefulSet"),
            "a.yaml:2:1: error: kind: the kind StatefulSet is not supported".into(),
        ),
        (
            pod("affinity: {nodeAffinity: {}}"),
            format!("a.yaml:14:7: error: {POD}.affinity: Docker Swarm has no `affinity`"),
        ),
        (pod("hostNetwork: true"), format!("a.yaml:14:7: error: {POD}.hostNetwork: Docker Swarm has no")),
        (pod("hostPID: true"), format!("a.yaml:14:7: error: {POD}.hostPID")),
        (pod("hostIPC: true"), format!("a.yaml:14:7: error: {POD}.hostIPC")),
        (pod("initContainers: [{name: a, image: a:1}]"), format!("a.yaml:14:7: error: {POD}.initContainers")),
        (
            pod("topologySpreadConstraints: [{maxSkew: 1}]"),
            format!("a.yaml:14:7: error: {POD}.topologySpreadConstraints"),
        ),
        (
            pod("- name: log\n  image: log:1"),
            format!(
                "a.yaml:14:9: error: {POD}.containers[1]: a task of Docker Swarm has one container, and this pod has 2"
            ),
        ),
        (
            pod("nodeSelector:\n  example.com/disk: ssd"),
            format!(
                "a.yaml:15:27: error: {POD}.nodeSelector.example.com/disk: Docker Swarm selects no nodes by"
            ),
        ),
        (
            pod("securityContext: {runAsNonRoot: true}"),
            format!("a.yaml:14:25: error: {POD}.securityContext.runAsNonRoot: nobody checks"),
        ),
        (
            container("securityContext: {privileged: true}"),
            format!("a.yaml:14:27: error: {one}.securityContext.privileged"),
        ),
        (
            container("securityContext: {allowPrivilegeEscalation: false}"),
            format!("a.yaml:14:27: error: {one}.securityContext.allowPrivilegeEscalation"),
        ),
        (
            container("securityContext:\n  seccompProfile: {type: Unconfined}"),
            format!("a.yaml:15:11: error: {one}.securityContext.seccompProfile"),
        ),
        (
            pod("securityContext:\n  seLinuxOptions: {level: s0}"),
            format!("a.yaml:15:9: error: {POD}.securityContext.seLinuxOptions"),
        ),
        (
            container("lifecycle:\n  preStop: {exec: {command: [a]}}"),
            format!("a.yaml:15:11: error: {one}.lifecycle.preStop"),
        ),
        (
            container("lifecycle:\n  postStart: {exec: {command: [a]}}"),
            format!("a.yaml:15:11: error: {one}.lifecycle.postStart"),
        ),
        (
            container("imagePullPolicy: Never"),
            format!("a.yaml:14:26: error: {one}.imagePullPolicy: each node of a Swarm pulls"),
        ),
        (
            container("ports: [{containerPort: 80, hostPort: 80, hostIP: 10.0.0.1}]"),
            format!("a.yaml:14:51: error: {one}.ports[0].hostIP"),
        ),
        (
            container("resources: {limits: {nvidia.com/gpu: 1}}"),
            format!("a.yaml:14:30: error: {one}.resources.limits.nvidia.com/gpu"),
        ),
        (
            container("env:\n- name: IP\n  valueFrom: {fieldRef: {fieldPath: status.podIP}}"),
            format!(
                "a.yaml:16:34: error: {one}.env[0].valueFrom.fieldRef.fieldPath: Docker Swarm tells a task no address"
            ),
        ),
        (
            container("env: [{name: N, valueFrom: {fieldRef: {fieldPath: metadata.name}}}]\nargs: [$(N)]"),
            format!("a.yaml:15:9: error: {one}.args: Docker Swarm puts the name of a task"),
        ),
        (
            container("livenessProbe:\n  httpGet: {port: 80}"),
            format!("a.yaml:15:11: error: {one}.livenessProbe.httpGet: Docker Swarm has no `httpGet`"),
        ),
        (
            container("livenessProbe:\n  tcpSocket: {port: 80}"),
            format!("a.yaml:15:11: error: {one}.livenessProbe.tcpSocket"),
        ),
        (
            container("livenessProbe:\n  grpc: {port: 80}"),
            format!("a.yaml:15:11: error: {one}.livenessProbe.grpc"),
        ),
        (
            container("readinessProbe:\n  exec: {command: [a]}"),
            format!("a.yaml:15:11: error: {one}.readinessProbe: a task of Docker Swarm has one health check"),
        ),
        (
            container(&format!("{exec}startupProbe:\n  exec: {{command: [b]}}")),
            format!("a.yaml:16:11: error: {one}.startupProbe: a task"),
        ),
        (
            container(&format!("{exec}readinessProbe:\n  exec: {{command: [a]}}\n  successThreshold: 2")),
            format!("a.yaml:17:11: error: {one}.readinessProbe.successThreshold"),
        ),
        (
            volume("hostPath: {path: /srv}"),
            format!("a.yaml:15:11: error: {one}.volumeMounts[0]: Docker Swarm creates no folder /srv"),
        ),
        (
            volume("hostPath: {path: /dev/kvm, type: CharDevice}"),
            format!("a.yaml:15:11: error: {one}.volumeMounts[0]: Docker Swarm has no devices"),
        ),
        (
            volume("image: {reference: 'a:1'}"),
            format!("a.yaml:15:11: error: {one}.volumeMounts[0]: Docker Swarm mounts no image"),
        ),
        (
            volume("persistentVolumeClaim: {claimName: data}") + claim,
            format!("a.yaml:15:11: error: {one}.volumeMounts[0]: the volume of a claim is on one node"),
        ),
        (
            volume("emptyDir: {}") + "      securityContext: {fsGroup: 70}\n",
            format!(
                "a.yaml:19:25: error: {POD}.securityContext.fsGroup: Docker Swarm gives volumes no group"
            ),
        ),
        (
            changed("spec:\n", "spec:\n  paused: true\n"),
            "a.yaml:6:3: error: spec.paused: Docker Swarm has no `paused`".into(),
        ),
        (
            changed("spec:\n", "spec:\n  replicas: 2\n  strategy: {type: Recreate}\n"),
            "a.yaml:7:14: error: spec.strategy.type".into(),
        ),
        (
            changed("kind: Deployment", "kind: DaemonSet").replacen(
                "spec:\n",
                "spec:\n  updateStrategy: {type: OnDelete}\n",
                1,
            ),
            "a.yaml:6:20: error: spec.updateStrategy.type".into(),
        ),
        (
            changed("kind: Deployment", "kind: DaemonSet").replacen(
                "spec:\n",
                "spec:\n  updateStrategy: {rollingUpdate: {maxSurge: 10%}}\n",
                1,
            ),
            "a.yaml:6:46: error: spec.updateStrategy.rollingUpdate.maxSurge: a percentage".into(),
        ),
        (
            changed("  name: web\n", "  name: web\n  annotations: {driftless.canary: '50%'}\n"),
            "a.yaml:5:17: error: metadata.annotations.driftless.canary: `engine: swarm` does not have".into(),
        ),
        (
            changed("  name: web\n", &format!("  name: {}\n", "w".repeat(60))),
            "a.yaml:4:9: error: metadata.name: the service `shop_www".into(),
        ),
        (
            service("ports: [{port: 80, targetPort: 8080}]"),
            "a.yaml:20:22: error: spec.ports[0].targetPort: a name in a Swarm leads to port 8080".into(),
        ),
        (
            service("ports: [{port: 80}]\nsessionAffinity: ClientIP"),
            "a.yaml:21:3: error: spec.sessionAffinity".into(),
        ),
        (
            service("ports: [{port: 80}]\nexternalIPs: [10.0.0.1]"),
            "a.yaml:21:3: error: spec.externalIPs".into(),
        ),
        (
            service("ports: [{port: 80}]\npublishNotReadyAddresses: true"),
            "a.yaml:21:3: error: spec.publishNotReadyAddresses".into(),
        ),
        (
            with(
                "apiVersion: v1\nkind: Service\nmetadata: {name: out}\nspec:\n  type: ExternalName\n  externalName: a.example\n  ports: [{port: 80}]\n",
            ),
            "a.yaml:19:3: error: spec.type: Docker Swarm has no `ExternalName`".into(),
        ),
        (
            service("type: NodePort\nports: [{port: 80, nodePort: 30080}]")
                + &format!("---\n{}", pod("")).replace("  name: web\n", "  name: web2\n"),
            "a.yaml:19:13: error: spec.selector: a published port of a Swarm leads to one service".into(),
        ),
        (
            service("clusterIP: None")
                + &format!("---\n{}", SERVICE.replace("{name: web}", "{name: out}"))
                + "  type: LoadBalancer\n  ports: [{port: 80}]\n",
            "a.yaml:28:11: error: spec.ports[0]: `web` has a headless Service".into(),
        ),
    ];
    let cases: Vec<(String, &str)> =
        cases.iter().map(|(text, expected)| (text.clone(), &**expected)).collect();
    each_is_reported(&cases, true);
}

#[test]
fn fields_without_effect_in_a_swarm_are_warned_about() {
    let one = "spec.template.spec.containers[0]";
    let host = "volumeMounts:\n- {name: a, mountPath: /a}";
    let path = format!(
        "{}      volumes:\n      - name: a\n        hostPath: {{path: /srv, type: Directory}}\n",
        container(host)
    );
    let memory =
        format!("{}      volumes:\n      - name: a\n        emptyDir: {{medium: Memory}}\n", container(host));
    let annotated = "{name: web, annotations: {driftless.proxy: 'true'}}";
    let asked = service("ports: [{port: 80}]").replace("{name: web}", annotated);
    let cases = [
        (pod("tolerations: [{operator: Exists}]"), "a.yaml:14:20: warning: spec.template.spec.tolerations: has no effect: the nodes of a Swarm".to_owned()),
        (pod("priorityClassName: high"), "a.yaml:14:26: warning: spec.template.spec.priorityClassName: has no effect: a Swarm has no priorities".into()),
        (pod("schedulerName: mine"), "a.yaml:14:22: warning: spec.template.spec.schedulerName".into()),
        (container("imagePullPolicy: Always"), format!("a.yaml:14:26: warning: {one}.imagePullPolicy: has no effect")),
        (container("resizePolicy: [{resourceName: cpu, restartPolicy: NotRequired}]"), format!("a.yaml:14:23: warning: {one}.resizePolicy: has no effect: a Swarm starts new tasks")),
        (path, format!("a.yaml:15:11: warning: {one}.volumeMounts[0]: /srv must exist on each node")),
        (memory, format!("a.yaml:15:11: warning: {one}.volumeMounts[0]: has another effect")),
        (service("type: LoadBalancer\nports: [{port: 80, targetPort: 8080}]"), "a.yaml:21:34: warning: spec.ports[0].targetPort: port 80 of the nodes leads to it, but inside".into()),
        (asked, "a.yaml:17:54: warning: metadata.annotations.driftless.proxy: has no effect: a Service of a Swarm".into()),
    ];
    let cases: Vec<(String, &str)> =
        cases.iter().map(|(text, expected)| (text.clone(), &**expected)).collect();
    each_is_reported(&cases, false);
    for (text, _) in cases {
        assert_eq!(texts(&text, true), Vec::<String>::new(), "{text}");
    }
}

#[test]
fn workloads_become_services_of_a_swarm() {
    let text = "
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, labels: {traefik.enable: 'true'}}
spec:
  replicas: 4
  minReadySeconds: 20
  strategy: {rollingUpdate: {maxSurge: 50%, maxUnavailable: 0}}
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      nodeSelector: {kubernetes.io/arch: amd64, kubernetes.io/os: linux, zone: a}
      containers:
        - name: web
          image: web:1
          env:
            - {name: NODE, valueFrom: {fieldRef: {fieldPath: spec.nodeName}}}
            - {name: TEMPLATE, value: 'a {{ b }}'}
            - {name: TOKEN, valueFrom: {secretKeyRef: {name: key, key: token}}}
          ports: [{name: http, containerPort: 8080}, {containerPort: 9100, hostPort: 9100}]
          resources: {requests: {cpu: 250m, memory: 64Mi}, limits: {cpu: '1', memory: 128Mi}}
          livenessProbe: {exec: {command: [check, me]}, initialDelaySeconds: 3, periodSeconds: 7, timeoutSeconds: 2, failureThreshold: 4}
          readinessProbe: {exec: {command: [check, me]}}
          startupProbe: {exec: {command: [check, me]}, periodSeconds: 5, failureThreshold: 6}
          volumeMounts: [{name: conf, mountPath: /etc/web}, {name: key, mountPath: /key}, {name: tmp, mountPath: /tmp}]
      volumes:
        - {name: conf, configMap: {name: conf}}
        - {name: key, secret: {secretName: key, defaultMode: 0400}}
        - {name: tmp, emptyDir: {}}
---
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: logs, namespace: ops}
spec:
  selector: {matchLabels: {app: logs}}
  updateStrategy: {rollingUpdate: {maxUnavailable: 2}}
  template:
    metadata: {labels: {app: logs}}
    spec: {containers: [{name: logs, image: 'logs:1'}]}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: conf}, data: {a.conf: a}}
---
{apiVersion: v1, kind: Secret, metadata: {name: key}, stringData: {token: s3cret}}
---
apiVersion: v1
kind: Service
metadata: {name: front}
spec: {type: NodePort, selector: {app: web}, ports: [{port: 8080, targetPort: http, nodePort: 30080}]}
";
    assert_eq!(texts(text, true), Vec::<String>::new());
    let stack = stack(text);
    let names: Vec<&str> = stack.workloads.keys().map(|it| it.as_str()).collect();
    // No proxy.
    assert_eq!(names, ["logs.ops", "web"]);
    let (web, service) = (&stack.workloads[&"web".into()], &stack.swarm[&"web".into()]);
    assert_eq!((web.replicas, service.mode), (4, SwarmMode::Replicated));
    assert_eq!(service.labels["traefik.enable"], "true");
    assert_eq!(
        service.constraints,
        ["node.labels.zone == a", "node.platform.arch == x86_64", "node.platform.os == linux"]
    );
    let update = service.update.as_ref().unwrap();
    // Its `hostPort` is in use until the old pod has stopped.
    assert_eq!((update.parallelism, update.order.as_deref()), (Some(1), Some("stop-first")));
    assert_eq!(update.delay, Some(Duration::from_secs(20)));
    assert_eq!(service.reserved_nano_cpus, Some(250_000_000));
    let container = &web.container;
    assert_eq!(container.env["NODE"].as_deref(), Some("{{.Node.Hostname}}"));
    assert_eq!(container.env["TEMPLATE"].as_deref(), Some("a {{\"{{\"}} b }}"));
    assert_eq!(container.env["TOKEN"].as_deref(), Some("s3cret"));
    assert!(web.secret_env.contains("TOKEN"));
    let check = container.healthcheck.as_ref().unwrap();
    assert_eq!(check.test, ["CMD", "check", "me"]);
    assert_eq!((check.retries, check.start_period), (Some(4), Some(Duration::from_secs(30))));
    let ports: Vec<_> = container.ports.iter().map(|it| (it.container, it.host.map(|it| it.first))).collect();
    assert_eq!(ports, [(8080, Some(30080)), (9100, Some(9100))]);
    assert_eq!(service.host_ports.iter().map(|it| it.container).collect::<Vec<_>>(), [9100]);
    let aliases = &container.networks()["shop_default"].aliases;
    assert!(aliases.contains(&"front.default.svc.cluster.local".to_owned()), "{aliases:?}");
    let files: Vec<_> = service.files.iter().map(|it| (it.target.as_str(), it.secret, it.mode)).collect();
    assert_eq!(files, [("/etc/web/a.conf", false, 0o444), ("/key/token", true, 0o400)]);
    assert!(container.mounts.iter().any(|it| it.source == MountSource::Anonymous), "{:?}", container.mounts);
    let (logs, service) = (&stack.workloads[&"logs.ops".into()], &stack.swarm[&"logs.ops".into()]);
    assert_eq!(service.mode, SwarmMode::Global);
    assert_eq!(service.update.as_ref().unwrap().parallelism, Some(2));
    // As in Kubernetes, the check of an image does not count.
    assert_eq!(logs.container.healthcheck.as_ref().unwrap().test, ["NONE"]);
    for network in stack.networks.values() {
        assert_eq!(network.driver.as_deref(), Some("overlay"));
    }
    assert_eq!(stack.networks.len(), 3);
}

#[test]
fn pod_with_data_or_a_host_port_stops_first() {
    let update = |text: &str| {
        let update = stack(text).swarm[&"web".into()].update.clone().unwrap();
        (update.order.unwrap(), update.parallelism.unwrap())
    };
    let mounted = |mount: &str, volume: &str| {
        format!(
            "{}      volumes: [{{name: a, {volume}}}]\n",
            container(&format!("volumeMounts: [{{name: a, mountPath: /a{mount}}}]"))
        )
    };
    let path = "hostPath: {path: /srv, type: Directory}";
    let nfs = "nfs: {server: s, path: /a}";
    let port = container("ports: [{containerPort: 80, hostPort: 80}]");
    let stop_first = |number: u64| ("stop-first".to_owned(), number);
    let start_first = ("start-first".to_owned(), 1);
    let many = "spec:\n  replicas: 8\n  strategy: {rollingUpdate: {maxSurge: 2, maxUnavailable: 3}}\n";
    assert_eq!(update(&pod("").replacen("spec:\n", many, 1)), ("start-first".to_owned(), 2));
    let single = many.replace("replicas: 8", "replicas: 1");
    for text in [mounted("", path), mounted("", nfs), port] {
        assert_eq!(update(&text), stop_first(1), "{text}");
        let many = text.replacen("spec:\n", many, 1);
        // Several pods share their data at all times.
        let expected = if text.contains("hostPort") { stop_first(3) } else { ("start-first".to_owned(), 2) };
        assert_eq!(update(&many), expected, "{many}");
        let asked = text.replacen("spec:\n", &single, 1);
        assert_eq!(update(&asked), stop_first(3), "{text}");
        let found = texts(&asked, false);
        let expected = "a.yaml:7:40: warning: spec.strategy.rollingUpdate.maxSurge: has no effect: the old pod stops first, because two pods";
        assert!(found.iter().any(|it| it.starts_with(expected)), "{found:?}");
        let set = text.replace("kind: Deployment", "kind: DaemonSet");
        let surge = "spec:\n  updateStrategy: {rollingUpdate: {maxSurge: 1, maxUnavailable: 0}}\n";
        if !text.contains("hostPort") {
            assert_eq!(update(&set.replacen("spec:\n", surge, 1)), stop_first(1), "{text}");
        }
    }
    let socket = "hostPath: {path: /run/docker.sock, type: Socket}";
    for text in [pod(""), mounted("", "emptyDir: {}"), mounted(", readOnly: true", path), mounted("", socket)]
    {
        assert_eq!(update(&text), start_first, "{text}");
    }
}

#[test]
fn folder_of_a_config_map_is_warned_about() {
    let text = |mount: &str| {
        container(&format!("volumeMounts: [{{name: a, mountPath: /a{mount}}}]"))
            + "      volumes: [{name: a, configMap: {name: conf}}]\n"
            + "---\n{apiVersion: v1, kind: ConfigMap, metadata: {name: conf}, data: {b: b}}\n"
    };
    let expected = "a.yaml:14:24: warning: spec.template.spec.containers[0].volumeMounts[0]: files that the image has in /a stay there";
    each_is_reported(&[(text(""), expected)], false);
    assert_eq!(texts(&text("/b, subPath: b"), false), [""; 0]);
}

#[test]
fn brace_before_a_name_is_no_part_of_its_template() {
    let value = |value: &str| {
        let text = container(&format!(
            "env:\n- {{name: POD, valueFrom: {{fieldRef: {{fieldPath: metadata.name}}}}}}\n- {{name: A, value: '{value}'}}"
        ));
        stack(&text).workloads[&"web".into()].container.env["A"].clone().unwrap()
    };
    assert_eq!(value("{$(POD)}"), r#"{{"{"}}{{.Task.Name}}}"#);
    assert_eq!(value("{{{$(POD)}}}"), r#"{{"{{"}}{{"{"}}{{.Task.Name}}}}}"#);
    assert_eq!(value("{{$(POD)$(POD)"), r#"{{"{{"}}{{.Task.Name}}{{.Task.Name}}"#);
    assert_eq!(value("{ $(POD)"), "{ {{.Task.Name}}");
}

#[test]
fn headless_service_answers_with_the_tasks() {
    let stack = stack(&service("clusterIP: None"));
    assert_eq!(stack.swarm[&"web".into()].endpoint_mode.as_deref(), Some("dnsrr"));
}

#[test]
fn claim_of_one_node_needs_that_node() {
    let claim = "---\napiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: data}\nspec: {accessModes: [ReadWriteOnce]}\n";
    let volumes = "      volumes: [{name: a, persistentVolumeClaim: {claimName: data}}]\n";
    let node = "      nodeSelector: {kubernetes.io/hostname: one}\n";
    let text = container("volumeMounts: [{name: a, mountPath: /a}]") + volumes + node + claim;
    let stack = stack(&text);
    assert_eq!(stack.swarm[&"web".into()].constraints, ["node.hostname == one"]);
    let nfs = "      volumes: [{name: a, nfs: {server: s, path: /a}}]\n";
    assert_eq!(
        texts(&(container("volumeMounts: [{name: a, mountPath: /a}]") + nfs), true),
        Vec::<String>::new()
    );
}

#[test]
fn group_of_files_needs_no_volume() {
    let text = container("volumeMounts: [{name: a, mountPath: /a}]")
        + "      volumes: [{name: a, configMap: {name: conf, defaultMode: 0440}}]\n      securityContext: {fsGroup: 70}\n"
        + "---\n{apiVersion: v1, kind: ConfigMap, metadata: {name: conf}, data: {a: b}}\n";
    let files = &stack(&text).swarm[&"web".into()].files;
    assert_eq!((files[0].mode, files[0].gid), (0o440, 70));
    let empty = text.replace("data: {a: b}", "data: {a: ''}");
    let found = texts(&empty, true);
    let expected = "a.yaml:14:24: error: spec.template.spec.containers[0].volumeMounts[0]: /a/a is empty";
    assert!(found.len() == 1 && found[0].starts_with(expected), "{found:?}");
}

/// A Job with these lines in its specification, from line 5 on.
fn job(lines: &str) -> String {
    let lines: String = lines.lines().map(|it| format!("  {it}\n")).collect();
    format!(
        "apiVersion: batch/v1
kind: Job
metadata: {{name: migrate}}
spec:
{lines}  template:
    spec: {{restartPolicy: Never, containers: [{{name: a, image: 'a:1'}}]}}
"
    )
}

#[test]
fn jobs_become_one_service_each() {
    let found = stack(&job("completions: 5\nparallelism: 2\nbackoffLimit: 3"));
    let name = "migrate".into();
    let (workload, service) = (&found.workloads[&name], &found.swarm[&name]);
    assert_eq!((found.workloads.len(), service.mode), (1, SwarmMode::ReplicatedJob));
    let job = workload.job().unwrap();
    assert_eq!((job.of.as_str(), job.completions, job.parallelism), ("migrate", Some(5), 2));
    let restart = service.restart.as_ref().unwrap();
    assert_eq!((restart.condition.as_str(), restart.max_attempts), ("on-failure", Some(3)));
    assert_eq!((restart.delay, &service.update), (Some(Duration::from_secs(10)), &None));
}

#[test]
fn hooks_and_cron_jobs_are_templates_of_services() {
    let annotated = |annotation: &str| {
        job("backoffLimit: 0")
            .replace("{name: migrate}", &format!("{{name: migrate, annotations: {{{annotation}}}}}"))
    };
    let found = stack(&annotated("argocd.argoproj.io/hook: PreSync, argocd.argoproj.io/sync-wave: '-1'"));
    let workload = &found.workloads[&"migrate".into()];
    assert_eq!((workload.hook().map(|it| it.to_string()), workload.wave), (Some("PreSync".to_owned()), -1));
    assert_eq!(found.swarm[&"migrate".into()].restart.as_ref().unwrap().condition, "none");
    let cron = "apiVersion: batch/v1
kind: CronJob
metadata: {name: report}
spec:
  schedule: '@daily'
  jobTemplate: {spec: {template: {spec: {restartPolicy: OnFailure, containers: [{name: a, image: 'a:1'}]}}}}
";
    let found = stack(cron);
    assert!(found.workloads[&"report".into()].schedule().is_some());
    assert_eq!(found.swarm[&"report".into()].mode, SwarmMode::ReplicatedJob);
}

#[test]
fn fields_of_jobs_that_a_swarm_does_not_have_are_refused() {
    let long = "n".repeat(52);
    let cases: Vec<(String, &str)> = vec![
        (
            job("completions: 2\ncompletionMode: Indexed"),
            "a.yaml:6:3: error: spec.completionMode: Docker Swarm does not number the tasks of a Job",
        ),
        (
            job("parallelism: 3"),
            "a.yaml:5:3: error: spec.parallelism: a Job of Docker Swarm does not end with the first pod",
        ),
        (
            job("parallelism: 0"),
            "a.yaml:5:3: error: spec.parallelism: a Job of Docker Swarm runs at least one",
        ),
        (
            job("backoffLimit: 1")
                .replace("restartPolicy: Never,", "restartPolicy: Never, hostNetwork: true,"),
            "a.yaml:7:34: error: spec.template.spec.hostNetwork: Docker Swarm has no",
        ),
        (
            job("backoffLimit: 1").replace(
                "{name: migrate}",
                "{name: a, annotations: {driftless.ignore-differences: restart}}",
            ),
            "a.yaml:3:35: error: metadata.annotations.driftless.ignore-differences: `engine: swarm` does not have",
        ),
        (
            format!(
                "apiVersion: batch/v1\nkind: CronJob\nmetadata: {{name: {long}}}\nspec: {{schedule: '@daily', jobTemplate: {{spec: {{template: {{spec: {{restartPolicy: Never, containers: [{{name: a, image: 'a:1'}}]}}}}}}}}}}\n"
            ),
            "a.yaml:3:18: error: metadata.name: the service `shop_",
        ),
    ];
    each_is_reported(&cases, true);
}
