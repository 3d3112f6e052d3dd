//! Kubernetes manifests: what becomes of every field, and where each refusal points.

use std::{collections::BTreeMap, time::Duration};

use driftless_files::MemoryFiles;
use driftless_kubernetes as kubernetes;
use driftless_model::{
    Attachment, Completion, Format, HELPER_IMAGE, MountSource, Namespace, Network, NetworkMode, Peer, Port,
    PortRange, Probe, ProbeAction, Protocol, PullPolicy, RestartPolicy, Role, Strategy, Workload,
};
use driftless_yaml as yaml;

use crate::{
    kubernetes_manifests::{assert_one_finding_each, findings, lines, render, render_files, stack},
    sample::manifests,
};

const ORDER_API: &str = include_str!("kubernetes/order-api.yaml");
const EVERYTHING: &str = include_str!("kubernetes/everything.yaml");

fn only_workload(text: &str) -> Workload {
    let mut workloads = stack(text).workloads;
    assert_eq!(workloads.len(), 1);
    workloads.pop_first().unwrap().1
}

/// The smallest Deployment, with lines put into its parts. The indentation of each line is added here.
#[derive(Default, Clone, Copy)]
struct With<'a> {
    metadata: &'a str,
    spec: &'a str,
    pod: &'a str,
    container: &'a str,
}

impl With<'_> {
    fn text(self) -> String {
        let indent = |text: &str, by: usize| -> String {
            text.lines().map(|line| format!("{}{line}\n", " ".repeat(by))).collect()
        };
        let Self { metadata, spec, pod, container } = self;
        format!(
            "apiVersion: apps/v1\nkind: Deployment\nmetadata:\n  name: web\n{}spec:\n  selector: {{matchLabels: \
             {{app: web}}}}\n{}  template:\n    metadata: {{labels: {{app: web}}}}\n    spec:\n{}      containers:\n\
             \x20     - name: web\n        image: nginx:1.27\n{}",
            indent(metadata, 2),
            indent(spec, 2),
            indent(pod, 6),
            indent(container, 8),
        )
    }
}

fn spec(text: &str) -> String {
    With { spec: text, ..With::default() }.text()
}

fn pod(text: &str) -> String {
    With { pod: text, ..With::default() }.text()
}

fn container(text: &str) -> String {
    With { container: text, ..With::default() }.text()
}

/// Each text has one finding, and it begins so.
#[track_caller]
fn each_is_reported(cases: &[(String, &str)]) {
    assert_one_finding_each(cases, findings);
}

#[test]
fn the_order_api_of_the_documentation_renders_without_a_word() {
    let rendered = render(ORDER_API);
    assert_eq!(lines(&rendered.findings), Vec::<String>::new());
    let stack = rendered.stack.unwrap();
    assert_eq!((stack.project.as_str(), stack.format), ("shop", Format::Kubernetes));
    assert_eq!(stack.networks["shop_default"], Network { key: "default".to_owned(), ..Network::default() });
    assert_eq!(stack.manifests, ["a.yaml"]);
    let workload = &stack.workloads[&"order-api".into()];
    assert_eq!(workload.origin.to_string(), "a.yaml:4:9");
    assert_eq!(workload.replicas, 3);
    assert_eq!(workload.strategy, Strategy::RollingUpdate { max_surge: 1, max_unavailable: 0 });
    assert_eq!(workload.progress_deadline, Duration::from_secs(600));
    assert_eq!(workload.min_ready, Duration::ZERO);
    assert_eq!(workload.revision_history_limit, 10);
    assert_eq!((workload.completion, workload.pull), (Completion::Never, PullPolicy::IfNotPresent));
    assert!(!workload.paused);
    let container = &workload.container;
    assert_eq!(container.image, "registry.example.com/order-api:v2.1.0");
    assert_eq!(container.labels, BTreeMap::from([("app".to_owned(), "order-processing".to_owned())]));
    assert_eq!(container.expose, [(8080, Protocol::Tcp)]);
    assert!(container.ports.is_empty());
    assert_eq!(container.restart, RestartPolicy::UnlessStopped);
    assert_eq!(container.stop_grace_period, Some(Duration::from_secs(30)));
    let attachment = Attachment { aliases: vec!["order-api".to_owned()], ..Attachment::default() };
    let networks = BTreeMap::from([("shop_default".to_owned(), Box::new(attachment))]);
    assert_eq!(container.network_mode, NetworkMode::Networks(networks));
    let readiness = Probe {
        action: ProbeAction::HttpGet {
            path: "/healthz".to_owned(),
            port: 8080,
            https: false,
            host: None,
            headers: Vec::new(),
        },
        initial_delay: Duration::from_secs(5),
        period: Duration::from_secs(10),
        timeout: Duration::from_secs(1),
        success_threshold: 1,
        failure_threshold: 3,
    };
    assert_eq!(workload.probes.readiness, Some(readiness));
    assert_eq!((&workload.probes.liveness, &workload.probes.startup), (&None, &None));
}

#[test]
fn every_field_that_is_honoured_arrives() {
    let workload = only_workload(EVERYTHING);
    assert_eq!(findings(EVERYTHING), Vec::<String>::new());
    assert_eq!(workload.replicas, 1);
    assert_eq!(workload.strategy, Strategy::RollingUpdate { max_surge: 2, max_unavailable: 0 });
    assert_eq!(workload.min_ready, Duration::from_secs(5));
    assert_eq!(workload.progress_deadline, Duration::from_secs(120));
    assert_eq!(workload.revision_history_limit, 10);
    assert!(workload.paused);
    assert_eq!(workload.pull, PullPolicy::Always);
    let it = &workload.container;
    let words = |list: &[&str]| Some(list.iter().map(|it| (*it).to_owned()).collect::<Vec<_>>());
    assert_eq!(it.entrypoint, words(&["/bin/app", "--name=web", "$(NOBODY)"]));
    assert_eq!(it.command, words(&["--url=http://web:80", "$(NAME)"]));
    let env: Vec<_> = it.env.iter().map(|(k, v)| format!("{k}={}", v.as_deref().unwrap())).collect();
    assert_eq!(env, ["EMPTY=", "NAME=web", "URL=http://web:80"]);
    assert_eq!(it.working_dir.as_deref(), Some("/srv"));
    assert_eq!(it.hostname.as_deref(), Some("front"));
    assert_eq!((it.tty, it.stdin_open, it.privileged, it.read_only), (true, true, false, true));
    assert_eq!(it.stop_signal.as_deref(), Some("SIGQUIT"));
    assert_eq!(it.stop_grace_period, Some(Duration::from_secs(45)));
    assert_eq!(it.user.as_deref(), Some("1000:2000"));
    assert_eq!(it.group_add, ["3000", "4000"]);
    assert_eq!(it.cap_add, ["NET_ADMIN", "SYS_TIME"]);
    assert_eq!(it.cap_drop, ["ALL"]);
    assert_eq!(it.security_opt, ["apparmor=unconfined", "no-new-privileges", "seccomp=unconfined"]);
    assert_eq!(it.sysctls, BTreeMap::from([("net.core.somaxconn".to_owned(), "1024".to_owned())]));
    assert_eq!(it.extra_hosts, ["db.local:10.0.0.5", "db:10.0.0.5"]);
    let port = |container, protocol, host_ip: Option<&str>, host| Port {
        container,
        protocol,
        host_ip: host_ip.map(|it| it.parse().unwrap()),
        host: Some(PortRange::one(host)),
    };
    assert_eq!(
        it.ports,
        [port(53, Protocol::Udp, Some("127.0.0.1"), 5353), port(80, Protocol::Tcp, None, 8080)]
    );
    assert_eq!(it.expose, [(9000, Protocol::Tcp), (9001, Protocol::Sctp)]);
    assert_eq!(it.resources.nano_cpus, Some(1_500_000_000));
    assert_eq!(it.resources.memory, Some(128 * 1024 * 1024));
    assert_eq!(it.resources.memory_reservation, Some(64_000_000));
    assert_eq!(it.resources.cpu_shares, Some(256));
    let labels: Vec<_> = it.labels.iter().map(|(k, v)| format!("{k}={v}")).collect();
    assert_eq!(labels, ["annotation.example.com/reload=1", "app=web", "example.com/tier="]);
    let startup = workload.probes.startup.unwrap();
    assert_eq!(
        startup.action,
        ProbeAction::Exec { command: vec!["test".into(), "-f".into(), "/ready".into()] }
    );
    assert_eq!((startup.failure_threshold, startup.period), (30, Duration::from_secs(2)));
    let readiness = workload.probes.readiness.unwrap();
    let action = ProbeAction::HttpGet {
        path: "/ready".to_owned(),
        port: 80,
        https: true,
        host: Some("web.example.com".to_owned()),
        headers: vec![("X-Probe".to_owned(), "1".to_owned())],
    };
    assert_eq!(readiness.action, action);
    assert_eq!((readiness.success_threshold, readiness.timeout), (2, Duration::from_secs(3)));
    assert_eq!(workload.probes.liveness.unwrap().action, ProbeAction::TcpSocket { port: 9000, host: None });
}

#[test]
fn fields_of_a_probe_that_are_zero_have_their_defaults() {
    let zeros = "initialDelaySeconds: 0, periodSeconds: 0, timeoutSeconds: 0, successThreshold: 0, failureThreshold: 0";
    let text = container(&format!(
        "livenessProbe: {{tcpSocket: {{port: 80}}, {zeros}}}\nreadinessProbe: {{tcpSocket: {{port: 80}}}}"
    ));
    assert_eq!(findings(&text), Vec::<String>::new());
    let probes = only_workload(&text).probes;
    assert_eq!(probes.liveness, probes.readiness);
}

#[test]
fn a_container_is_asked_by_grpc_and_has_commands_at_its_ends() {
    let text = container(
        "livenessProbe:
  grpc: {port: 9000, service: orders}
readinessProbe:
  grpc: {port: 9001}
lifecycle:
  postStart: {exec: {command: [warm, up]}}
  preStop: {sleep: {seconds: 5}}",
    );
    let workload = only_workload(&text);
    assert_eq!(findings(&text), Vec::<String>::new());
    let action = |port, service: &str| ProbeAction::Grpc { port, service: service.to_owned() };
    assert_eq!(workload.probes.liveness.unwrap().action, action(9000, "orders"));
    assert_eq!(workload.probes.readiness.unwrap().action, action(9001, ""));
    let host = workload.container.host;
    assert_eq!(host.post_start.len(), 1);
    assert_eq!(host.post_start[0].command, ["warm", "up"]);
    assert_eq!(host.pre_stop.len(), 1);
    assert_eq!(host.pre_stop[0].sleep, Some(Duration::from_secs(5)));
}

#[test]
fn exec_probes_expand_variables_as_the_kubelet_does() {
    let text = container(
        "env:
- {name: HOST, value: db}
- {name: PORT, value: '6380'}
- {name: URL, value: '$(HOST):$(PORT)'}
- {name: ME, valueFrom: {fieldRef: {fieldPath: metadata.name}}}
livenessProbe: {exec: {command: [ping, '-p=$(PORT)', '$(URL)', '$(GONE)', '$$(ME)']}}
readinessProbe: {exec: {command: [sh, -c, 'kill -0 $$(cat /run/x.pid)', 'a$(ME)']}}",
    );
    let workload = only_workload(&text);
    let command = |probe: Option<Probe>| match probe.unwrap().action {
        ProbeAction::Exec { command } => command,
        other => panic!("{other:?}"),
    };
    // The kubelet takes each value as it is written.
    assert_eq!(command(workload.probes.liveness), ["ping", "-p=6380", "$(HOST):$(PORT)", "$(GONE)", "$(ME)"]);
    assert_eq!(command(workload.probes.readiness), ["sh", "-c", "kill -0 $(cat /run/x.pid)", "a"]);
    let all = findings(&text);
    assert!(all.len() == 1 && all[0].contains("readinessProbe.exec.command[3]: `$(ME)` is empty"), "{all:?}");
}

#[test]
fn surge_is_rounded_up_and_unavailable_down() {
    let strategy = |replicas: u32, surge: &str, unavailable: &str| {
        let text = spec(&format!(
            "replicas: {replicas}\nstrategy:\n  rollingUpdate: {{maxSurge: {surge}, maxUnavailable: {unavailable}}}"
        ));
        match only_workload(&text).strategy {
            Strategy::RollingUpdate { max_surge, max_unavailable } => (max_surge, max_unavailable),
            Strategy::Recreate => panic!("recreate"),
        }
    };
    assert_eq!(strategy(10, "25%", "25%"), (3, 2));
    assert_eq!(strategy(2, "1%", "0"), (1, 0));
    assert_eq!(strategy(1, "0", "25%"), (0, 1));
    assert_eq!(strategy(3, "\"150%\"", "100%"), (5, 3));
    assert_eq!(strategy(0, "25%", "25%"), (0, 1));
    assert_eq!(strategy(4, "null", "2"), (1, 2));
    assert_eq!(only_workload(&spec("strategy: {type: Recreate}")).strategy, Strategy::Recreate);
    assert_eq!(
        only_workload(&spec("strategy: {type: RollingUpdate}")).strategy,
        Strategy::RollingUpdate { max_surge: 1, max_unavailable: 0 }
    );
}

#[test]
fn an_image_without_a_fixed_tag_is_pulled_always() {
    let pull = |image: &str| {
        let text = With::default().text().replace("nginx:1.27", image);
        only_workload(&text).pull
    };
    let digest = format!("@sha256:{}", "0".repeat(64));
    for image in ["nginx", "nginx:latest", "localhost:5000/nginx", "Registry.example.com:5000/a/b:latest"] {
        assert_eq!(pull(image), PullPolicy::Always, "{image}");
    }
    for image in
        ["nginx:1", "localhost:5000/nginx:1", &format!("nginx{digest}"), &format!("nginx:latest{digest}")]
    {
        assert_eq!(pull(image), PullPolicy::IfNotPresent, "{image}");
    }
    let text = container("imagePullPolicy: Never");
    assert_eq!(only_workload(&text).pull, PullPolicy::Never);
}

#[test]
fn wrong_types_are_refused_as_kubectl_refuses_them() {
    each_is_reported(&[
        (
            container("ports:\n- containerPort: \"80\""),
            "a.yaml:14:26: error: spec.template.spec.containers[0].ports[0].containerPort: must be a number, but \
             `\"80\"` is a string (remove the quotes)",
        ),
        (
            container("env:\n- {name: A, value: 3}"),
            "a.yaml:14:28: error: spec.template.spec.containers[0].env[0].value: must be a string, but it is a \
             number (put it in quotes)",
        ),
        (
            container("env:\n- {name: A, value: yes}"),
            "a.yaml:14:28: error: spec.template.spec.containers[0].env[0].value: must be a string, but it is a \
             boolean",
        ),
        (
            container("tty: \"true\""),
            "a.yaml:13:14: error: spec.template.spec.containers[0].tty: must be true or false",
        ),
        (
            container("args: --all"),
            "a.yaml:13:15: error: spec.template.spec.containers[0].args: must be a list, but it is a string",
        ),
        (
            container("args: [a, null]"),
            "a.yaml:13:19: error: spec.template.spec.containers[0].args[1]: a list item must not be empty",
        ),
        (spec("replicas: 1.5"), "a.yaml:7:13: error: spec.replicas: must be a whole number"),
        (spec("replicas: -1"), "a.yaml:7:13: error: spec.replicas: must be 0 or more, but is -1"),
        (spec("replicas: {}"), "a.yaml:7:13: error: spec.replicas: must be a whole number, but it is a map"),
        (spec("strategy: Recreate"), "a.yaml:7:13: error: spec.strategy: must be a map, but it is a string"),
        (
            container("ports:\n- containerPort: 70000"),
            "a.yaml:14:26: error: spec.template.spec.containers[0].ports[0].containerPort: must be from 1 to 65535, but is 70000",
        ),
        (
            container("tty: !vault true"),
            "a.yaml:13:14: error: spec.template.spec.containers[0].tty: the tag `!vault` has no meaning in Kubernetes",
        ),
    ]);
}

#[test]
fn numbers_are_read_as_kubectl_reads_them() {
    assert_eq!(only_workload(&spec("replicas: 010")).replicas, 8);
    assert!(only_workload(&spec("paused: on")).paused);
}

#[test]
fn missing_objects_are_named() {
    let remove = |line: &str| {
        let text = With::default().text();
        assert!(text.contains(line), "{line}");
        text.replace(line, "")
    };
    each_is_reported(&[
        (remove("apiVersion: apps/v1\n"), "a.yaml:1:1: error: apiVersion: `apiVersion` is missing"),
        (remove("kind: Deployment\n"), "a.yaml:1:1: error: kind: `kind` is missing"),
        (
            remove("  name: web\n").replace("metadata:\nspec", "metadata: {}\nspec"),
            "a.yaml:3:11: error: metadata.name: `name` is missing, but required",
        ),
        (
            remove("  selector: {matchLabels: {app: web}}\n"),
            "a.yaml:6:3: error: spec.selector: `selector` is missing, but required",
        ),
        (
            remove("        image: nginx:1.27\n"),
            "a.yaml:11:9: error: spec.template.spec.containers[0].image: `image` is missing, but required",
        ),
        (
            remove("name: web\n        "),
            "a.yaml:11:9: error: spec.template.spec.containers[0].name: `name` is missing, but required",
        ),
        (
            container("ports:\n- {name: http}"),
            "a.yaml:14:11: error: spec.template.spec.containers[0].ports[0].containerPort: `containerPort` is missing, but required",
        ),
        (
            container("readinessProbe: {}"),
            "a.yaml:13:25: error: spec.template.spec.containers[0].readinessProbe: the probe has no action",
        ),
        (
            container("readinessProbe: {httpGet: {path: /}}"),
            "a.yaml:13:35: error: spec.template.spec.containers[0].readinessProbe.httpGet.port: `port` is missing",
        ),
    ]);
    let no_template = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\nspec: {}\n";
    assert_eq!(
        findings(no_template),
        [
            "a.yaml:4:7: error: spec.template: `template` is missing, but required",
            "a.yaml:4:7: error: spec.selector: `selector` is missing, but required",
        ]
    );
}

#[test]
fn an_unknown_field_is_an_error_with_a_guess() {
    each_is_reported(&[
        (
            container("imagePulPolicy: Always"),
            "a.yaml:13:9: error: spec.template.spec.containers[0].imagePulPolicy: unknown field `imagePulPolicy` (did \
             you mean `imagePullPolicy`?)",
        ),
        (
            spec("replica: 2"),
            "a.yaml:7:3: error: spec.replica: unknown field `replica` (did you mean `replicas`?)",
        ),
        (spec("colour: red"), "a.yaml:7:3: error: spec.colour: unknown field `colour`"),
        (
            pod("Volumes: []"),
            "a.yaml:10:7: error: spec.template.spec.Volumes: unknown field `Volumes` (did you mean `volumes`?)",
        ),
        (
            With { metadata: "label: {}", ..With::default() }.text(),
            "a.yaml:5:3: error: metadata.label: unknown field `label` (did you mean `labels`?)",
        ),
    ]);
}

#[test]
fn unsupported_fields_that_change_behaviour_are_refused() {
    let in_pod = |text: &str, field: &str| {
        let at = format!("a.yaml:10:7: error: spec.template.spec.{field}: is not ");
        (pod(text), at)
    };
    let in_container = |text: &str, field: &str| {
        let at = format!("a.yaml:13:9: error: spec.template.spec.containers[0].{field}: is not ");
        (container(text), at)
    };
    let cases = [
        in_pod("ephemeralContainers: [{name: a}]", "ephemeralContainers"),
        in_pod("runtimeClassName: gvisor", "runtimeClassName"),
        in_pod("readinessGates: [{conditionType: a}]", "readinessGates"),
        in_pod("schedulingGates: [{name: a}]", "schedulingGates"),
        in_pod("resourceClaims: [{name: a}]", "resourceClaims"),
        in_pod("setHostnameAsFQDN: true", "setHostnameAsFQDN"),
        in_pod("hostnameOverride: a", "hostnameOverride"),
        in_pod("activeDeadlineSeconds: 5", "activeDeadlineSeconds"),
        in_container("volumeDevices: [{name: a, devicePath: /a}]", "volumeDevices"),
        in_container("stdinOnce: true", "stdinOnce"),
        in_container("restartPolicyRules: [{action: Restart}]", "restartPolicyRules"),
    ];
    each_is_reported(&cases.iter().map(|(text, at)| (text.clone(), at.as_str())).collect::<Vec<_>>());
    let inner = "spec.template.spec.containers[0]";
    let cases = [
        (container("env:\n- name: A\n  valueFrom: {fileKeyRef: {key: a}}"), format!("a.yaml:15:23: error: {inner}.env[0].valueFrom.fileKeyRef: is not supported yet")),
        (container("lifecycle:\n  postStart: {}"), format!("a.yaml:14:22: error: {inner}.lifecycle.postStart: the hook has no action")),
        (container("lifecycle:\n  postStart: {exec: {command: [a]}, sleep: {seconds: 1}}"), format!("a.yaml:14:22: error: {inner}.lifecycle.postStart: must have one of `exec`, `httpGet` and `sleep`")),
        (container("livenessProbe:\n  grpc: {port: a}"), format!("a.yaml:14:24: error: {inner}.livenessProbe.grpc.port: must be a whole number")),
        (container("livenessProbe:\n  tcpSocket: {port: 1}\n  terminationGracePeriodSeconds: 5"), format!("a.yaml:15:11: error: {inner}.livenessProbe.terminationGracePeriodSeconds: is not supported yet")),
        (container("resources:\n  limits: {amd.com/gpu: 1}"), format!("a.yaml:14:33: error: {inner}.resources.limits.amd.com/gpu: the resource `amd.com/gpu` is not supported yet")),
        (container("resources:\n  claims: [{name: a}]"), format!("a.yaml:14:11: error: {inner}.resources.claims: is not supported yet")),
        (container("securityContext: {procMount: Unmasked}"), format!("a.yaml:13:38: error: {inner}.securityContext.procMount: `Unmasked` is not supported yet")),
        (container("securityContext: {appArmorProfile: {type: Localhost}}"), format!("a.yaml:13:51: error: {inner}.securityContext.appArmorProfile.type: profiles of the host")),
        (container("securityContext: {windowsOptions: {hostProcess: true}}"), format!("a.yaml:13:27: error: {inner}.securityContext.windowsOptions: is for Windows")),
        (container("securityContext: {seccompProfile: {type: Localhost}}"), format!("a.yaml:13:50: error: {inner}.securityContext.seccompProfile.type: profiles of the host")),
        (pod("securityContext: {supplementalGroupsPolicy: Strict}"), "a.yaml:10:51: error: spec.template.spec.securityContext.supplementalGroupsPolicy: `Strict` is not supported".to_owned()),
        (pod("hostUsers: false"), "a.yaml:10:18: error: spec.template.spec.hostUsers: a user namespace".to_owned()),
        (pod("dnsPolicy: None"), "a.yaml:10:18: error: spec.template.spec.dnsPolicy: `None` needs a `dnsConfig`".to_owned()),
        (pod("resources: {limits: {cpu: 1}}"), "a.yaml:10:7: error: spec.template.spec.resources: of the whole pod is not supported yet".to_owned()),
    ];
    each_is_reported(&cases.iter().map(|(text, at)| (text.clone(), at.as_str())).collect::<Vec<_>>());
}

#[test]
fn fields_without_meaning_on_one_host_are_warnings() {
    let pods = [
        "affinity: {nodeAffinity: {}}",
        "automountServiceAccountToken: true",
        "nodeName: a",
        "overhead: {cpu: 1}",
        "preemptionPolicy: Never",
        "priority: 5",
        "priorityClassName: high",
        "schedulerName: mine",
        "tolerations: [{operator: Exists}]",
        "topologySpreadConstraints: [{maxSkew: 1}]",
    ];
    let containers = [
        "resizePolicy: [{resourceName: cpu}]",
        "terminationMessagePath: /a",
        "terminationMessagePolicy: File",
    ];
    let name = |text: &str| text.split(':').next().unwrap().to_owned();
    let mut cases: Vec<(String, String)> = Vec::new();
    for text in pods {
        cases.push((
            pod(text),
            format!("a.yaml:10:7: warning: spec.template.spec.{}: has no effect", name(text)),
        ));
    }
    for text in containers {
        let path = format!("spec.template.spec.containers[0].{}", name(text));
        cases.push((container(text), format!("a.yaml:13:9: warning: {path}: has no effect")));
    }
    for text in [
        "annotations: {a: b}",
        "finalizers: [a]",
        "uid: a",
        "managedFields: [{a: b}]",
        "resourceVersion: \"1\"",
    ] {
        let text_in = With { metadata: text, ..With::default() }.text();
        cases.push((text_in, format!("a.yaml:5:3: warning: metadata.{}: has no effect", name(text))));
    }
    let other_labels = With { metadata: "labels: {team: blue}", ..With::default() }.text();
    cases.push((
        other_labels,
        "a.yaml:5:11: warning: metadata.labels: labels of the Deployment have no effect".to_owned(),
    ));
    cases.push((
        With { spec: "revisionHistoryLimit: 3", ..With::default() }.text(),
        "a.yaml:7:25: warning: spec.revisionHistoryLimit: has no effect".to_owned(),
    ));
    cases.push((
        pod("dnsPolicy: Default"),
        "a.yaml:10:18: warning: spec.template.spec.dnsPolicy: has no effect".to_owned(),
    ));
    cases.push((
        container("resources: {limits: {ephemeral-storage: 1Gi}}"),
        "a.yaml:13:49: warning: spec.template.spec.containers[0].resources.limits.ephemeral-storage: has no effect".to_owned(),
    ));
    cases.push((
        container("env: [{name: A, value: a}, {name: A, value: b}]"),
        "a.yaml:13:43: warning: spec.template.spec.containers[0].env[1].name: `A` is already defined at line 13".to_owned(),
    ));
    cases.push((
        pod("shareProcessNamespace: true"),
        "a.yaml:10:30: warning: spec.template.spec.shareProcessNamespace: has no effect: the pod has one container"
            .to_owned(),
    ));
    let rendered = |text: &str| render(text).stack.is_some();
    each_is_reported(&cases.iter().map(|(text, at)| (text.clone(), at.as_str())).collect::<Vec<_>>());
    assert!(cases.iter().all(|(text, _)| rendered(text)));
}

#[test]
fn empty_field_equals_absent_field() {
    let text = pod(
        "volumes: []\ninitContainers: null\nhostNetwork: false\nnodeSelector: {}\nserviceAccountName: \"\"",
    );
    assert_eq!(findings(&text), Vec::<String>::new());
    let text = With { metadata: "creationTimestamp: null", ..With::default() }.text() + "status: {}\n";
    assert_eq!(findings(&text), Vec::<String>::new());
}

#[test]
fn rules_of_a_deployment_are_checked() {
    let swap = |from: &str, to: &str| {
        let text = With::default().text();
        assert!(text.contains(from), "{from}");
        text.replacen(from, to, 1)
    };
    let both_zero = "strategy: {rollingUpdate: {maxSurge: 0, maxUnavailable: 0%}}";
    each_is_reported(&[
        (
            swap("apps/v1", "apps/v1beta1"),
            "a.yaml:1:13: error: apiVersion: Deployment of apps/v1beta1 was removed in Kubernetes 1.16 (use `apiVersion: apps/v1`)",
        ),
        (swap("apps/v1", "v1"), "a.yaml:1:13: error: apiVersion: there is no Deployment in v1"),
        (
            swap("name: web", "name: Web_1"),
            "a.yaml:4:9: error: metadata.name: `Web_1` is not a valid name (use at most 253 lower-case letters",
        ),
        (
            With { metadata: "namespace: a.b", ..With::default() }.text(),
            "a.yaml:5:14: error: metadata.namespace: `a.b` is not a valid name",
        ),
        (
            With { metadata: "generateName: web-", ..With::default() }.text(),
            "a.yaml:5:3: error: metadata.generateName: is not supported",
        ),
        (
            With::default().text().replacen("  name: web\n", "  generateName: web-\n", 1),
            "a.yaml:4:3: error: metadata.generateName: is not supported",
        ),
        (
            swap("- name: web", "- name: web.1"),
            "a.yaml:11:15: error: spec.template.spec.containers[0].name: `web.1` is not a valid name",
        ),
        (
            swap("{app: web}", "{app: api}"),
            "a.yaml:6:33: error: spec.selector.matchLabels.app: the selector does not match the labels of the pod template (add `app: api`",
        ),
        (swap("{matchLabels: {app: web}}", "{}"), "a.yaml:6:13: error: spec.selector: the selector is empty"),
        (
            swap("matchLabels: {app: web}", "matchExpressions: [{key: app, operator: In, values: [a, b]}]"),
            "a.yaml:6:33: error: spec.selector.matchExpressions[0]: the selector does not match",
        ),
        (
            swap("labels: {app: web}", "labels: {app: web, \"a b\": c}"),
            "a.yaml:8:42: error: spec.template.metadata.labels.a b: `a b` is not a valid label key",
        ),
        (
            swap("labels: {app: web}", "labels: {app: web, a: \"b c\"}"),
            "a.yaml:8:38: error: spec.template.metadata.labels.a: `b c` is not a valid label value",
        ),
        (
            swap("nginx:1.27", "Nginx:1.27"),
            "a.yaml:12:16: error: spec.template.spec.containers[0].image: `Nginx:1.27` is not an image reference",
        ),
        (
            swap("nginx:1.27", "\"nginx 1\""),
            "a.yaml:12:16: error: spec.template.spec.containers[0].image: `nginx 1` is not an image reference",
        ),
        (
            spec("progressDeadlineSeconds: 5\nminReadySeconds: 5"),
            "a.yaml:7:28: error: spec.progressDeadlineSeconds: progressDeadlineSeconds (5) must be greater than minReadySeconds (5)",
        ),
        (
            spec("minReadySeconds: 600"),
            "a.yaml:7:20: error: spec.minReadySeconds: progressDeadlineSeconds (600) must be greater",
        ),
        (
            spec(both_zero),
            "a.yaml:7:29: error: spec.strategy.rollingUpdate: maxSurge and maxUnavailable are both 0",
        ),
        (
            spec("strategy: {type: Recreate, rollingUpdate: {maxSurge: 1}}"),
            "a.yaml:7:45: error: spec.strategy.rollingUpdate: is not allowed when the type is `Recreate`",
        ),
        (
            spec("strategy: {type: Fast}"),
            "a.yaml:7:20: error: spec.strategy.type: `Fast` is not a value of this field (use `RollingUpdate` or `Recreate`)",
        ),
        (
            spec("strategy: {rollingUpdate: {maxUnavailable: 101%}}"),
            "a.yaml:7:46: error: spec.strategy.rollingUpdate.maxUnavailable: must not be more than 100%",
        ),
        (
            spec("strategy: {rollingUpdate: {maxSurge: \"1\"}}"),
            "a.yaml:7:40: error: spec.strategy.rollingUpdate.maxSurge: `1` is neither a number nor a percentage",
        ),
        (
            pod("restartPolicy: Never"),
            "a.yaml:10:22: error: spec.template.spec.restartPolicy: must be `Always` in a Deployment",
        ),
        (
            swap("      containers:\n", "      containers: []\n      x:\n")
                .replace("      x:\n      - name: web\n        image: nginx:1.27\n", ""),
            "a.yaml:10:19: error: spec.template.spec.containers: a pod needs a container",
        ),
    ]);
}

#[test]
fn rules_of_a_container_are_checked() {
    let inner = "spec.template.spec.containers[0]";
    let at = |column: u32, rest: &str| format!("a.yaml:13:{column}: error: {inner}.{rest}");
    let cases = [
        (
            container("ports: [{containerPort: 1, name: a}, {containerPort: 2, name: a}]"),
            at(71, "ports[1].name: another port is already named `a`"),
        ),
        (
            container("ports: [{containerPort: 1, name: UPPER}]"),
            at(42, "ports[0].name: `UPPER` is not a valid name"),
        ),
        (
            container("ports: [{containerPort: 1, hostPort: 1}, {containerPort: 2, hostPort: 1}]"),
            at(79, "ports[1].hostPort: port 1 of the host is already taken by `web`"),
        ),
        (
            container("ports: [{containerPort: 1, hostIP: here}]"),
            at(44, "ports[0].hostIP: `here` is not an IP address"),
        ),
        (
            container("ports: [{containerPort: 1, protocol: tcp}]"),
            at(46, "ports[0].protocol: `tcp` is not a value of this field (use `TCP` or `UDP` or `SCTP`)"),
        ),
        (container("env: [{name: A=B, value: c}]"), at(22, "env[0].name: `A=B` is not a valid name")),
        (
            container("livenessProbe: {tcpSocket: {port: web}}"),
            at(43, "livenessProbe.tcpSocket.port: no port of the container is named `web`"),
        ),
        (
            container("livenessProbe: {tcpSocket: {port: \"80\"}}"),
            at(43, "livenessProbe.tcpSocket.port: must be a number"),
        ),
        (
            container("livenessProbe: {tcpSocket: {port: 80}, successThreshold: 2}"),
            at(66, "livenessProbe.successThreshold: must be 1 in a liveness or startup probe"),
        ),
        (
            container("livenessProbe: {tcpSocket: {port: 80}, periodSeconds: -1}"),
            at(63, "livenessProbe.periodSeconds: must be 1 or more, but is -1"),
        ),
        (
            container("livenessProbe: {tcpSocket: {port: 80}, exec: {command: [a]}}"),
            at(24, "livenessProbe: a probe must have one of"),
        ),
        (
            container("livenessProbe: {exec: {command: []}}"),
            at(41, "livenessProbe.exec.command: must name a program to run"),
        ),
        (
            container("readinessProbe: {httpGet: {port: 80, httpHeaders: [{name: \"a b\", value: c}]}}"),
            at(67, "readinessProbe.httpGet.httpHeaders[0].name: `a b` is not the name of a header"),
        ),
        (
            container("resources: {limits: {cpu: much}}"),
            at(35, "resources.limits.cpu: `much` is not a quantity (write it as"),
        ),
        (container("resources: {limits: {cpu: -1}}"), at(35, "resources.limits.cpu: `-1` is negative")),
        (
            container("resources: {limits: {memory: 64m}}"),
            at(
                38,
                "resources.limits.memory: is less than the 6 MiB that the engine asks for (did you mean `64Mi`?)",
            ),
        ),
        (
            container("resources: {limits: {cpu: 1}, requests: {cpu: 1100m}}"),
            at(55, "resources.requests.cpu: the request of cpu is higher than its limit"),
        ),
        (
            container("securityContext: {privileged: true, allowPrivilegeEscalation: false}"),
            at(71, "securityContext.allowPrivilegeEscalation: a privileged container may always escalate"),
        ),
        (
            container("securityContext: {runAsGroup: 5}"),
            at(39, "securityContext.runAsGroup: a group needs a user"),
        ),
        (
            container("securityContext: {runAsNonRoot: true, runAsUser: 0}"),
            at(41, "securityContext.runAsNonRoot: the container runs as root"),
        ),
        (
            container("securityContext: {capabilities: {add: [\"a b\"]}}"),
            at(48, "securityContext.capabilities.add[0]: `a b` is not a capability"),
        ),
        (container("lifecycle: {stopSignal: TERM}"), at(33, "lifecycle.stopSignal: `TERM` is not a signal")),
        (container("restartPolicy: OnFailure"), at(24, "restartPolicy: of one container is not supported")),
    ];
    each_is_reported(&cases.iter().map(|(text, at)| (text.clone(), at.as_str())).collect::<Vec<_>>());
}

#[test]
fn one_host_port_has_room_for_one_instance() {
    let text = With {
        spec: "replicas: 2",
        container: "ports: [{containerPort: 1, hostPort: 80}]",
        ..With::default()
    };
    let path = "spec.template.spec.containers[0].ports[0].hostPort";
    let expected = format!(
        "a.yaml:14:46: error: {path}: one instance can hold port 80 of the host, but `web` wants 2 replicas (remove \
         `hostPort`, or set `replicas` to 1)"
    );
    each_is_reported(&[(text.text(), &expected)]);
    let publish = |name: &str, port: &str| {
        container(&format!("ports: [{{containerPort: 1, {port}}}]")).replacen(
            "name: web",
            &format!("name: {name}"),
            1,
        )
    };
    let on = |first: &str, second: &str| {
        lines(
            &render_files("shop", &[("a.yaml", &publish("web", first)), ("b.yaml", &publish("zoo", second))])
                .findings,
        )
    };
    let expected = format!(
        "b.yaml:13:46: error: {path}: port 80 of the host is already taken by `web` at a.yaml:13:46 (choose another \
         `hostPort`)"
    );
    assert_eq!(on("hostPort: 80", "hostPort: 80"), [expected.as_str()]);
    assert_eq!(on("hostPort: 80, hostIP: 10.0.0.1", "hostPort: 80").len(), 1);
    assert_eq!(on("hostPort: 80, hostIP: 10.0.0.1", "hostPort: 80, hostIP: 10.0.0.2"), Vec::<String>::new());
    assert_eq!(on("hostPort: 80", "hostPort: 80, protocol: UDP"), Vec::<String>::new());
    assert_eq!(on("hostPort: 80", "hostPort: 81"), Vec::<String>::new());
}

#[test]
fn other_kinds_are_refused_or_left_out_with_a_word() {
    let of = |version: &str, kind: &str| {
        let deployment = With::default().text();
        format!("{deployment}---\napiVersion: {version}\nkind: {kind}\nmetadata: {{name: a}}\n")
    };
    let mut cases = Vec::new();
    for (version, kind) in [("v1", "PodTemplate"), ("networking.k8s.io/v1", "Ingress")] {
        cases.push((of(version, kind), format!("a.yaml:15:7: error: kind: the kind {kind} is not supported yet, and ignoring it would change how the application works")));
    }
    for (version, kind) in [
        ("v1", "ServiceAccount"),
        ("v1", "Namespace"),
        ("rbac.authorization.k8s.io/v1", "ClusterRole"),
        ("rbac.authorization.k8s.io/v1", "RoleBinding"),
        ("autoscaling/v2", "HorizontalPodAutoscaler"),
        ("networking.k8s.io/v1", "NetworkPolicy"),
        ("policy/v1", "PodDisruptionBudget"),
    ] {
        cases.push((of(version, kind), format!("a.yaml:15:7: warning: kind: the kind {kind} has no effect")));
    }
    cases.push((
        of("apps/v1", "Deploymnet"),
        "a.yaml:15:7: error: kind: the kind Deploymnet of apps/v1 is not known (did you mean `Deployment`?)"
            .to_owned(),
    ));
    cases.push((
        of("example.com/v1", "Widget"),
        "a.yaml:15:7: error: kind: the kind Widget of example.com/v1 is not known".to_owned(),
    ));
    cases.push((
        of("kustomize.config.k8s.io/v1beta1", "Kustomization"),
        "a.yaml:15:7: error: kind: a kustomization counts only under its own name".to_owned(),
    ));
    each_is_reported(&cases.iter().map(|(text, at)| (text.clone(), at.as_str())).collect::<Vec<_>>());
}

#[test]
fn files_documents_and_lists_are_one_application() {
    let named = |name: &str| With::default().text().replacen("name: web", &format!("name: {name}"), 1);
    let items: String = named("three")
        .lines()
        .enumerate()
        .map(|(at, line)| format!("{}{line}\n", if at == 0 { "- " } else { "  " }))
        .collect();
    let list = format!("apiVersion: v1\nkind: List\nitems:\n{items}");
    let first = format!("{}---\n{}", named("one"), named("two"));
    let other = "replicaCount: 3\n";
    let rendered = render_files("shop", &[("a.yaml", &first), ("b.yaml", &list), ("values.yaml", other)]);
    assert_eq!(
        lines(&rendered.findings),
        ["values.yaml: warning: left out: the file holds no Kubernetes object"]
    );
    let stack = rendered.stack.unwrap();
    let places: Vec<_> = stack.workloads.iter().map(|(name, it)| format!("{name} {}", it.origin)).collect();
    assert_eq!(places, ["one a.yaml:4:9", "three b.yaml:7:11", "two a.yaml:17:9"]);
    assert_eq!(stack.manifests, ["a.yaml", "b.yaml", "values.yaml"]);
}

#[test]
fn namespace_is_part_of_the_name() {
    let of = |namespace: &str| {
        let metadata = format!("namespace: {namespace}");
        With { metadata: &metadata, ..With::default() }.text()
    };
    let stack = stack(&format!("{}---\n{}", of("default"), of("shop")));
    let names: Vec<_> = stack.workloads.keys().map(ToString::to_string).collect();
    assert_eq!(names, ["web", "web.shop"]);
    let aliases = &stack.workloads[&"web.shop".into()].container.networks()["shop_default"].aliases;
    assert_eq!(aliases, &["web.shop"]);
    let twice = format!("{}---\n{}", of("default"), With::default().text());
    assert_eq!(
        findings(&twice),
        [
            "a.yaml:18:9: error: metadata.name: the Deployment `web` is already defined at a.yaml:4:9 (rename one of \
          the two, or remove it)"
        ]
    );
}

#[test]
fn all_errors_are_reported_and_nothing_is_rendered() {
    let bad = With { spec: "replicas: many", container: "foo: 1", ..With::default() }.text();
    let rendered = render_files("shop", &[("a.yaml", &bad), ("b.yaml", "a: b: c\n"), ("c.yaml", ORDER_API)]);
    assert!(rendered.stack.is_none());
    let places: Vec<_> = rendered.findings.iter().map(|it| it.location.to_string()).collect();
    assert_eq!(places, ["a.yaml:7:13", "a.yaml:14:9", "b.yaml:1:5"]);
    assert_eq!(rendered.findings[0].excerpt.as_deref(), Some("  replicas: many"));
}

#[test]
fn objects_of_an_unreadable_file_are_not_missing() {
    let container = "envFrom: [{configMapRef: {name: settings}}, {secretRef: {name: login}}]";
    let pod = "volumes: [{name: data, persistentVolumeClaim: {claimName: files}}]";
    let web = With { container, pod, ..With::default() }.text();
    let notice =
        "warning: objects that only this file may define are not reported as missing until it can be read";
    let broken = render_files("shop", &[("a.yaml", "a: b: c\n"), ("b.yaml", &web)]);
    let found = lines(&broken.findings);
    assert_eq!(found.len(), 2, "{found:#?}");
    assert_eq!(found[0], format!("a.yaml: {notice}"));
    assert!(found[1].starts_with("a.yaml:1:5: error: "), "{found:#?}");

    let large = format!("a: {}\n", "x".repeat(1 << 20));
    let large = render_files("shop", &[("a.yaml", &large), ("b.yaml", &web)]);
    let found = lines(&large.findings);
    assert_eq!(found.len(), 2, "{found:#?}");
    assert!(found[0].ends_with("the limit is 1048576 (split it into several files)"), "{found:#?}");
    assert_eq!(found[1], format!("a.yaml: {notice}"));
    assert_eq!(findings(&web).len(), 3);
}

#[test]
fn a_render_without_a_workload_is_an_error() {
    let cases = [
        "",
        "apiVersion: v1\nkind: Namespace\nmetadata: {name: a}\n",
        "apiVersion: v1\nkind: List\nitems: []\n",
    ];
    for text in cases {
        let rendered = render(text);
        let last = rendered.findings.last().unwrap().to_string();
        assert!(last.starts_with("shop: error: the manifests hold no workload"), "{last}");
        assert!(rendered.stack.is_none());
    }
    let spec = manifests("shop", &["shop/gone.yaml"]);
    let found = kubernetes::render(&MemoryFiles::default(), &spec).findings;
    assert_eq!(lines(&found), ["shop/gone.yaml: error: `shop/gone.yaml` does not exist in the repository"]);
}

#[test]
fn no_value_of_a_variable_is_in_a_finding() {
    let text = container("env:\n- name: DB\n  value: [hunter2]\n- name: X\n  value: !enc hunter2");
    for finding in render(&text).findings {
        assert!(!format!("{finding:?}").contains("hunter2"), "{finding:?}");
    }
}

#[test]
fn kubernetes_and_compose_files_are_distinguished() {
    let read = |text: &str| yaml::parse("a.yaml", text.as_bytes(), &yaml::Limits::default()).unwrap();
    assert!(kubernetes::is_kubernetes(&read(ORDER_API)));
    assert!(!kubernetes::is_kubernetes(&read("services: {web: {image: nginx}}\n")));
    assert!(!kubernetes::is_kubernetes(&[]));
}

#[test]
fn any_changed_line_gives_a_stack_or_a_located_error() {
    let lines: Vec<_> = EVERYTHING.lines().collect();
    let odd = [
        "",
        " null",
        " []",
        " {}",
        " [[]]",
        " {a: b}",
        " -1",
        " 99999999999999999999",
        " .nan",
        " \"\"",
        " é",
        " *a",
        " 1e400",
        " 100%",
    ];
    let mut mutants = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        let with = |new: &str| -> String {
            let changed = lines.iter().enumerate().map(|(i, it)| if i == at { new } else { it });
            changed.flat_map(|it| [it, "\n"]).collect()
        };
        mutants.push(with(""));
        let Some((key, _)) = line.split_once(':') else { continue };
        mutants.extend(odd.iter().map(|value| with(&format!("{key}:{value}"))));
        mutants.push(with(&format!("{key}x: 1")));
    }
    for text in mutants {
        let rendered = render(&text);
        let errors: Vec<_> = rendered.findings.iter().filter(|it| it.is_error()).collect();
        assert_eq!(rendered.stack.is_some(), errors.is_empty(), "{text}");
        assert!(
            errors.iter().all(|it| it.location.line > 0 || it.location.file == "shop"),
            "{text}\n{errors:#?}"
        );
    }
}

const PAIR: &str = r#"
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      hostname: twins
      shareProcessNamespace: true
      terminationGracePeriodSeconds: 7
      securityContext: {sysctls: [{name: net.core.somaxconn, value: "99"}], supplementalGroups: [5]}
      initContainers:
        - {name: prepare, image: "a:1", volumeMounts: [{name: shared, mountPath: /out}]}
        - name: beside
          image: a:1
          restartPolicy: Always
          startupProbe: {tcpSocket: {port: 9000}}
      containers:
        - name: serve
          image: b:1
          imagePullPolicy: Never
          env: [{name: WORD, value: x}]
          ports: [{name: http, containerPort: 8080, hostPort: 80}, {containerPort: 9090}]
          readinessProbe: {httpGet: {port: http}}
          volumeMounts:
            - {name: shared, mountPath: /in, readOnly: true}
            - {name: fast, mountPath: /fast}
            - {name: own, mountPath: /own}
        - {name: log, image: "c:1", volumeMounts: [{name: fast, mountPath: /memory}]}
      volumes:
        - {name: shared, emptyDir: {}}
        - {name: own, emptyDir: {}}
        - {name: fast, emptyDir: {medium: Memory, sizeLimit: 1Mi}}
"#;

#[test]
fn shared_settings_of_a_pod_are_in_its_first_container() {
    let web = only_workload(PAIR);
    let own = &web.container;
    assert_eq!((own.image.as_str(), own.hostname.as_deref()), (HELPER_IMAGE, Some("twins")));
    assert_eq!(own.ports.len(), 1);
    assert_eq!(own.expose, [(9090, Protocol::Tcp)]);
    assert_eq!(own.sysctls.len(), 1);
    assert_eq!(own.ipc_mode, Some("shareable".into()));
    assert_eq!((own.networks().len(), own.restart), (1, RestartPolicy::UnlessStopped));
    let held: Vec<_> = own.mounts.iter().map(|it| (it.target.as_str(), it.source.clone())).collect();
    assert_eq!(held, [("/volumes/fast", MountSource::Empty), ("/volumes/shared", MountSource::Empty)]);
    assert_eq!(own.host.mount_options["/volumes/fast"].tmpfs, ["mode=1777", "size=1048576"]);

    let parts: Vec<_> = web.parts.iter().map(|it| (it.name.as_str(), it.role, it.completion)).collect();
    let expected = [
        ("prepare", Role::Init, Completion::OnSuccess),
        ("beside", Role::Sidecar, Completion::Never),
        ("serve", Role::App, Completion::Never),
        ("log", Role::App, Completion::Never),
    ];
    assert_eq!(parts, expected);
    let pod = Peer::Workload("web".into());
    for part in &web.parts {
        let it = &part.container;
        assert_eq!(it.network_mode, NetworkMode::Of(pod.clone()));
        assert_eq!(it.pid_mode, Some(Namespace::Of(pod.clone())));
        assert_eq!(it.ipc_mode, Some(Namespace::Of(pod.clone())));
        assert_eq!(it.stop_grace_period, Some(Duration::from_secs(7)));
        assert!(it.ports.is_empty() && it.expose.is_empty() && it.sysctls.is_empty());
        assert_eq!(it.group_add, ["5"]);
    }
    let (prepare, serve) = (&web.parts[0], &web.parts[2]);
    assert_eq!(prepare.container.restart, RestartPolicy::OnFailure { max_retries: None });
    assert_eq!(prepare.volumes, BTreeMap::from([("/out".to_owned(), "/volumes/shared".to_owned())]));
    assert_eq!(serve.pull, PullPolicy::Never);
    assert!(serve.probes.readiness.is_some() && web.parts[1].probes.startup.is_some());
    let mounts: Vec<_> = serve
        .container
        .mounts
        .iter()
        .map(|it| (it.target.as_str(), it.source.clone(), it.read_only))
        .collect();
    let expected = [
        ("/fast", MountSource::Anonymous, false),
        ("/in", MountSource::Anonymous, true),
        ("/own", MountSource::Empty, false),
    ];
    assert_eq!(mounts, expected);

    // All of it is what an instance is; how it is asked whether it is well is not.
    let changed = |from: &str, to: &str| only_workload(&PAIR.replace(from, to)).spec() != web.spec();
    assert!(changed("value: x", "value: y"));
    assert!(changed("a:1\", volumeMounts", "a:2\", volumeMounts"));
    assert!(!changed("port: 9000", "port: 9001"));
}

#[test]
fn paths_of_an_empty_dir_are_shared_one_by_one() {
    let mounts = |log: &str| {
        PAIR.replace("- {name: fast, mountPath: /fast}", "- {name: fast, mountPath: /fast, subPath: a/b}")
            .replace("{name: fast, mountPath: /memory}", log)
    };
    let both = "{name: fast, mountPath: /memory, subPath: a//b/}, {name: fast, mountPath: /log, subPath: c}";
    let web = only_workload(&mounts(both));
    let held: Vec<_> = web.container.mounts.iter().map(|mount| mount.target.as_str()).collect();
    assert_eq!(held, ["/volumes/fast/a/b", "/volumes/shared"]);
    assert_eq!(web.container.host.mount_options["/volumes/fast/a/b"].tmpfs, ["mode=1777", "size=1048576"]);
    let log = &web.parts[3];
    assert_eq!(log.volumes, BTreeMap::from([("/memory".to_owned(), "/volumes/fast/a/b".to_owned())]));
    let own: Vec<_> = log.container.mounts.iter().map(|it| (it.target.as_str(), it.source.clone())).collect();
    assert_eq!(own, [("/log", MountSource::Empty), ("/memory", MountSource::Anonymous)]);

    for around in ["{name: fast, mountPath: /memory}", "{name: fast, mountPath: /memory, subPath: a}"] {
        let found = findings(&mounts(around));
        assert!(found.iter().any(|line| line.contains("cannot be mounted alone")), "{around}: {found:?}");
    }
}

#[test]
fn wrong_container_of_several_is_reported_at_its_place() {
    let cases = [
        (
            "{name: log,",
            "{name: serve,",
            "containers[1].name: another container of the pod is already named `serve`",
        ),
        (
            "          restartPolicy: Always\n",
            "",
            "initContainers[1].startupProbe: is not allowed in an init container",
        ),
        (
            "restartPolicy: Always",
            "restartPolicy: Never",
            "initContainers[1].restartPolicy: must be `Always`",
        ),
        ("{name: log, image", "{image", "containers[1].name: `name` is missing"),
    ];
    for (from, to, expected) in cases {
        let found = findings(&PAIR.replace(from, to));
        assert!(found.iter().any(|it| it.contains(expected)), "{expected}: {found:#?}");
    }
}
