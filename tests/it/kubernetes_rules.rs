//! Manifests that the API server refuses, one for each rule: reported with file, line, column and path, and with what
//! to do. And the rules of storage: which claim gets what.

use driftless_docker::ObserveScope;
use driftless_files::MemoryFiles;
use driftless_manifest as manifest;
use driftless_model::{DeviceRequest, Finding, MountSource, Port, PullPolicy, Stack};

use crate::kubernetes_manifests::{assert_one_finding_each, render, stack};

fn errors(text: &str) -> Vec<String> {
    let found = render(text).findings;
    found.iter().filter(|it| it.is_error()).map(Finding::to_string).collect()
}

fn warnings(text: &str) -> Vec<String> {
    let found = render(text).findings;
    found.iter().filter(|it| !it.is_error()).map(Finding::to_string).collect()
}

/// A Pod whose `spec` ends with these lines, from line 9 on.
fn pod(lines: &str) -> String {
    let lines: String = lines.lines().map(|it| format!("  {it}\n")).collect();
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata:\n  name: web\nspec:\n  containers:\n  - name: web\n    image: web:1\n{lines}"
    )
}

/// One whose container has these lines, from line 9 on.
fn container(lines: &str) -> String {
    pod(&lines.lines().map(|it| format!("  {it}\n")).collect::<String>())
}

/// A Pod and a further object, which begins in line 11.
fn beside(object: &str) -> String {
    format!("{}---\n{object}", pod("restartPolicy: Always"))
}

/// Each text has this error, and no other.
#[track_caller]
fn each_is_reported(cases: &[(String, &str)]) {
    assert_one_finding_each(cases, errors);
}

#[test]
fn too_many_replicas_are_rejected_early() {
    let owner = |kind: &str, name: &str| {
        format!(
            "---\napiVersion: apps/v1\nkind: {kind}\nmetadata: {{name: {name}}}\nspec:\n  replicas: 2147483647\n  \
             selector: {{matchLabels: {{app: web}}}}\n  template:\n    metadata: {{labels: {{app: web}}}}\n    spec: \
             {{containers: [{{name: a, image: a:1}}]}}\n"
        )
    };
    let front = "---\napiVersion: v1\nkind: Service\nmetadata: {name: front}\nspec: {selector: {app: web}, ports: [{port: \
                 80}]}\n";
    let kinds = [("Deployment", "a"), ("ReplicaSet", "b"), ("Deployment", "c"), ("StatefulSet", "d")];
    let text: String = kinds.iter().map(|(kind, name)| owner(kind, name)).collect();
    let found = errors(&format!("{text}{front}"));
    assert_eq!(found.len(), 4, "{found:#?}");
    for (finding, (kind, _)) in found.iter().zip(kinds) {
        assert!(finding.contains("spec.replicas: more than "), "{finding}");
        assert!(finding.contains(&format!("of a {kind} are not supported on one host")), "{finding}");
    }
}

#[test]
fn exponential_expansion_is_rejected_early() {
    let doubled = |number: u32| format!("  - {{name: A{number}, value: $(A{0})$(A{0})}}\n", number - 1);
    let lines: String = (1..60).map(doubled).collect();
    let text = container(&format!("env:\n  - {{name: A0, value: xxxxxxxxxxxxxxxx}}\n{lines}"));
    let found = errors(&text);
    assert!(found[0].starts_with("a.yaml:30:28: error: spec.containers[0].env[20].value: "), "{}", found[0]);
    assert!(found[0].contains("the texts of the pods of this application exceed 32 MiB"), "{}", found[0]);
    assert_eq!(found.len(), 1);
    // Many that name one long text are not few that double.
    let long = "x".repeat(60_000);
    let many = "    - $(A)\n".repeat(1000);
    let text = container(&format!("env:\n  - {{name: A, value: {long}}}\nargs:\n{many}"));
    let found = errors(&text);
    assert!(found[0].contains("spec.containers[0].args: with these 59 KiB, the texts"), "{}", found[0]);
    let open = container(&format!("args: [\"{}\"]", "$(".repeat(200_000)));
    assert_eq!(errors(&open), [""; 0]);
}

#[test]
fn expanded_path_is_not_printed_where_it_may_be_secret() {
    let secret = "---\napiVersion: v1\nkind: Secret\nmetadata: {name: login}\nstringData: {password: hunter2}\n---\n\
                  apiVersion: v1\nkind: ConfigMap\nmetadata: {name: page}\ndata: {a: b}\n";
    let mounted = |volume: &str, path: &str| {
        let lines = format!(
            "  envFrom: [{{secretRef: {{name: login}}}}]\n  volumeMounts: [{{name: data, mountPath: /data, subPathExpr: \
             {path}}}]\nvolumes: [{{name: data, {volume}}}]"
        );
        errors(&format!("{}{secret}", pod(&lines)))
    };
    for (found, said) in [
        (
            mounted("hostPath: {path: /srv}", "$(password)/$(missing)"),
            "`$(password)/$(missing)` names a variable",
        ),
        (mounted("configMap: {name: page}", "$(password)"), "the volume holds no `$(password)`"),
    ] {
        assert_eq!(found.len(), 1, "{found:#?}");
        assert!(found[0].contains(said) && !found[0].contains("hunter2"), "{}", found[0]);
    }
}

#[test]
fn of_fields_that_exclude_each_other_there_is_one() {
    each_is_reported(&[
        (
            pod("volumes:\n- {name: v, emptyDir: {}, hostPath: {path: /a}}"),
            "a.yaml:10:29: error: spec.volumes[0].hostPath: cannot be set together with `emptyDir` (remove one of the two)",
        ),
        (
            container(
                "env:\n- name: A\n  valueFrom: {fieldRef: {fieldPath: metadata.name}, resourceFieldRef: {resource: limits.cpu}}",
            ),
            "a.yaml:11:57: error: spec.containers[0].env[0].valueFrom.resourceFieldRef: cannot be set together with `fieldRef`",
        ),
        (
            container(
                "envFrom:\n- {configMapRef: {name: a, optional: true}, secretRef: {name: a, optional: true}}",
            ),
            "a.yaml:10:49: error: spec.containers[0].envFrom[0].secretRef: cannot be set together with `configMapRef`",
        ),
        (
            container("envFrom:\n- {prefix: A_}"),
            "a.yaml:10:7: error: spec.containers[0].envFrom[0]: names neither a ConfigMap nor a Secret",
        ),
        (
            pod(
                "volumes:\n- name: v\n  projected: {sources: [{configMap: {name: a, optional: true}, secret: {name: a, optional: true}}]}",
            ),
            "a.yaml:11:66: error: spec.volumes[0].projected.sources[0].secret: cannot be set together with `configMap`",
        ),
        (
            pod("volumes:\n- {name: v, projected: {sources: [{}]}}"),
            "a.yaml:10:37: error: spec.volumes[0].projected.sources[0]: the source is empty",
        ),
        (
            pod("volumes:\n- {name: v, downwardAPI: {items: [{path: a}]}}"),
            "a.yaml:10:37: error: spec.volumes[0].downwardAPI.items[0]: the file has no content",
        ),
        (
            container("readinessProbe: {httpGet: {port: 1}, exec: {command: [a]}}"),
            "a.yaml:9:21: error: spec.containers[0].readinessProbe: a probe must have one of",
        ),
        (
            container("env:\n- {name: A, value: a, valueFrom: {fieldRef: {fieldPath: metadata.name}}}"),
            "a.yaml:10:38: error: spec.containers[0].env[0].valueFrom: is set together with `value`",
        ),
    ]);
}

#[test]
fn names_are_those_that_a_cluster_would_take() {
    let service = |name: &str| {
        beside(&format!(
            "apiVersion: v1\nkind: Service\nmetadata: {{name: {name}}}\nspec: {{selector: {{a: b}}, ports: [{{port: 1}}]}}\n"
        ))
    };
    let long = "a".repeat(64);
    let too_long = service(&long);
    let expected =
        format!("a.yaml:13:18: error: metadata.name: `{long}` is not a valid name (use at most 63");
    each_is_reported(&[
        (
            service("1st"),
            "a.yaml:13:18: error: metadata.name: `1st` is not a valid name (use at most 63 lower-case letters, digits and `-`, beginning with a letter",
        ),
        (service("a.b"), "a.yaml:13:18: error: metadata.name: `a.b` is not a valid name"),
        (too_long, &expected),
        (
            beside("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, labels: {-: b}}\n"),
            "a.yaml:13:33: error: metadata.labels.-: `-` is not a valid label key",
        ),
        (
            beside("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {a/b: c}\n"),
            "a.yaml:14:13: error: data.a/b: `a/b` is not a valid key",
        ),
        (
            pod("volumes:\n- {name: a.b}"),
            "a.yaml:10:12: error: spec.volumes[0].name: `a.b` is not a valid name",
        ),
        (
            pod("volumes:\n- {name: a}\n- {name: a}"),
            "a.yaml:11:12: error: spec.volumes[1].name: another volume is already named `a`",
        ),
        (pod("hostname: a_b"), "a.yaml:9:13: error: spec.hostname: `a_b` is not a valid name"),
    ]);
}

#[test]
fn empty_text_stands_for_the_default() {
    let text = "\
apiVersion: v1
kind: Service
metadata: {name: db, namespace: ''}
spec:
  type: ''
  clusterIP: ''
  sessionAffinity: ''
  selector: {app: db}
  ports: [{name: '', port: 80, protocol: '', targetPort: ''}]
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data}
spec: {volumeName: '', accessModes: [ReadWriteOnce]}
---
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: db}
spec:
  serviceName: ''
  podManagementPolicy: ''
  updateStrategy: {type: ''}
  persistentVolumeClaimRetentionPolicy: {whenDeleted: ''}
  selector: {matchLabels: {app: db}}
  template:
    metadata: {labels: {app: db}}
    spec:
      restartPolicy: ''
      dnsPolicy: ''
      hostname: ''
      subdomain: ''
      containers:
      - name: db
        image: 'db:1'
        imagePullPolicy: ''
        workingDir: ''
        ports: [{name: '', containerPort: 80, protocol: ''}]
        readinessProbe: {httpGet: {path: /, port: 80, host: '', scheme: ''}}
";
    assert_eq!(errors(text), Vec::<String>::new());
    let stack = stack(text);
    assert_eq!(stack.workloads[&"db-0".into()].container.working_dir, None);
    let inventory = serde_json::to_string(&stack.inventory).unwrap();
    assert!(inventory.contains("shop_data") && inventory.contains("ClusterIP"), "{inventory}");
}

#[test]
fn ports_of_a_service_need_distinct_names() {
    let service = |spec: &str| {
        beside(&format!(
            "apiVersion: v1\nkind: Service\nmetadata: {{name: a}}\nspec: {{selector: {{a: b}}, {spec}}}\n"
        ))
    };
    each_is_reported(&[
        (service("ports: []"), "a.yaml:14:7: error: spec: a Service needs a port, unless it is headless"),
        (
            service("ports: [{port: 1, name: a}, {port: 2}]"),
            "a.yaml:14:54: error: spec.ports[1].name: `name` is missing: of several ports each needs one",
        ),
        (
            service("ports: [{port: 1, name: a}, {port: 2, name: a}]"),
            "a.yaml:14:70: error: spec.ports[1].name: `a` is already the name of another port, in line 14",
        ),
        (
            service("ports: [{port: 1, name: a}, {port: 1, name: b, protocol: TCP}]"),
            "a.yaml:14:61: error: spec.ports[1].port: `1` is already the port of another port, in line 14",
        ),
        (
            service("ports: [{port: 1, targetPort: 70000}]"),
            "a.yaml:14:56: error: spec.ports[0].targetPort: must be from 0 to 65535, but is 70000",
        ),
    ]);
    let both = "ports: [{port: 53, name: a}, {port: 53, name: b, protocol: UDP}]";
    assert_eq!(errors(&service(both)), [""; 0]);
    assert_eq!(errors(&service("clusterIP: None")), [""; 0]);
}

#[test]
fn invalid_quantities_are_rejected() {
    each_is_reported(&[
        (
            container("resources: {limits: {cpus: 1}}"),
            "a.yaml:9:32: error: spec.containers[0].resources.limits.cpus: `cpus` is not a resource that Kubernetes knows (did you mean `cpu`?)",
        ),
        (
            container("resources: {limits: {memory: 64MB}}"),
            "a.yaml:9:34: error: spec.containers[0].resources.limits.memory: `64MB` is not a quantity (write it as",
        ),
        (
            container("resources: {limits: {memory: 64Mi}, requests: {memory: 1Gi}}"),
            "a.yaml:9:60: error: spec.containers[0].resources.requests.memory: the request of memory is higher than its limit",
        ),
        (
            container("resources: {limits: {nvidia.com/gpu: 500m}}"),
            "a.yaml:9:42: error: spec.containers[0].resources.limits.nvidia.com/gpu: a container is given whole GPUs",
        ),
        (
            container("resources: {requests: {nvidia.com/gpu: 1}}"),
            "a.yaml:9:44: error: spec.containers[0].resources.requests.nvidia.com/gpu: the request of nvidia.com/gpu must be equal to its limit",
        ),
        (
            container("resources: {limits: {amd.com/gpu: 1}}"),
            "a.yaml:9:39: error: spec.containers[0].resources.limits.amd.com/gpu: the resource `amd.com/gpu` is not supported yet",
        ),
        (
            pod("volumes:\n- {name: v, emptyDir: {sizeLimit: lots}}"),
            "a.yaml:10:37: error: spec.volumes[0].emptyDir.sizeLimit: `lots` is not a quantity",
        ),
        (
            beside(
                "apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: a}\nspec: {resources: {requests: {storage: 1GB}}}\n",
            ),
            "a.yaml:14:40: error: spec.resources.requests.storage: `1GB` is not a quantity",
        ),
        (
            beside(
                "apiVersion: v1\nkind: PersistentVolume\nmetadata: {name: a}\nspec: {capacity: {storage: x}, local: {path: /a}}\n",
            ),
            "a.yaml:14:28: error: spec.capacity.storage: `x` is not a quantity",
        ),
        (
            container("readinessProbe: {tcpSocket: {port: 1}, periodSeconds: 10s}"),
            "a.yaml:9:59: error: spec.containers[0].readinessProbe.periodSeconds: must be a whole number, but it is a string",
        ),
    ]);
    let gpu = DeviceRequest {
        driver: "nvidia".to_owned(),
        count: 2,
        capabilities: vec!["gpu".to_owned()],
        ..DeviceRequest::default()
    };
    let stack = stack(&container("resources: {limits: {nvidia.com/gpu: 2}, requests: {nvidia.com/gpu: 2}}"));
    assert_eq!(stack.workloads[&"web".into()].container.host.device_requests, [gpu]);
}

#[test]
fn a_secret_has_the_keys_of_its_type() {
    let secret = |kind: &str, data: &str| {
        beside(&format!(
            "apiVersion: v1\nkind: Secret\nmetadata: {{name: a}}\ntype: {kind}\nstringData: {data}\n"
        ))
    };
    each_is_reported(&[
        (
            secret("kubernetes.io/tls", "{tls.crt: a}"),
            "a.yaml:14:7: error: type: a Secret of this type needs the key `tls.key`",
        ),
        (
            secret("kubernetes.io/dockerconfigjson", "{}"),
            "a.yaml:14:7: error: type: a Secret of this type needs the key `.dockerconfigjson`",
        ),
        (
            secret("kubernetes.io/ssh-auth", "{}"),
            "a.yaml:14:7: error: type: a Secret of this type needs the key `ssh-privatekey`",
        ),
        (
            secret("kubernetes.io/basic-auth", "{}"),
            "a.yaml:14:7: error: type: a Secret of this type needs the key `password`",
        ),
    ]);
    assert_eq!(errors(&secret("kubernetes.io/basic-auth", "{username: a}")), [""; 0]);
    assert_eq!(errors(&secret("example.com/own", "{}")), [""; 0]);
}

#[test]
fn mounts_are_of_volumes_that_are_there_at_places_of_their_own() {
    let mounted = |mount: &str| {
        format!(
            "{}  volumes: [{{name: v, hostPath: {{path: /srv}}}}]\n",
            container(&format!("volumeMounts:\n{mount}"))
        )
    };
    each_is_reported(&[
        (
            mounted("- {name: w, mountPath: /a}"),
            "a.yaml:10:14: error: spec.containers[0].volumeMounts[0].name: the pod has no volume `w` (did you mean `v`?)",
        ),
        (
            mounted("- {name: v, mountPath: /a}\n- {name: v, mountPath: /a/}"),
            "a.yaml:11:28: error: spec.containers[0].volumeMounts[1].mountPath: something is already mounted at `/a` (line 10)",
        ),
        (
            mounted("- {name: v, mountPath: /a, subPath: ../b}"),
            "a.yaml:10:41: error: spec.containers[0].volumeMounts[0].subPath: must be a relative path without `..`",
        ),
        (
            mounted("- {name: v, mountPath: /a, subPathExpr: $(GONE)}"),
            "a.yaml:10:45: error: spec.containers[0].volumeMounts[0].subPathExpr: `$(GONE)` names a variable that the container does not have",
        ),
        (
            mounted("- {name: v, mountPath: /a, subPath: a, subPathExpr: b}"),
            "a.yaml:10:57: error: spec.containers[0].volumeMounts[0].subPathExpr: is set together with `subPath`",
        ),
        (
            mounted("- {name: v, mountPath: /a, mountPropagation: Bidirectional}"),
            "a.yaml:10:50: error: spec.containers[0].volumeMounts[0].mountPropagation: only a privileged container may mount for others",
        ),
    ]);
    let privileged = mounted("- {name: v, mountPath: /a, mountPropagation: Bidirectional}")
        .replace("    volumeMounts", "    securityContext: {privileged: true}\n    volumeMounts");
    assert_eq!(errors(&privileged), [""; 0]);
}

#[test]
fn the_files_of_an_image_are_mounted() {
    let text = format!(
        "{}  volumes: [{{name: v, image: {{reference: \"site:1\"}}}}]\n",
        container("volumeMounts: [{name: v, mountPath: /a}, {name: v, mountPath: /b, subPath: docs}]")
    );
    let stack = stack(&text);
    let container = &stack.workloads[&"web".into()].container;
    let sources: Vec<_> = container.mounts.iter().map(|it| (&*it.target, &it.source, it.read_only)).collect();
    let image = MountSource::Image("site:1".to_owned());
    assert_eq!(sources, [("/a", &image, true), ("/b", &image, true)]);
    assert_eq!(container.host.mount_options["/b"].subpath.as_deref(), Some("docs"));
    assert_eq!(container.needs().map(|it| it.api), Some((1, 48)));
    // An image that is not asked for would count as missing, and be pulled again and again.
    assert_eq!(
        ObserveScope::of(&stack).images.into_iter().collect::<Vec<_>>(),
        ["site:1", container.image.as_str()]
    );
}

#[test]
fn image_volume_has_its_own_pull_policy() {
    let pulls = |volumes: &str| {
        let text = container("volumeMounts: [{name: v, mountPath: /a}]");
        let stack = stack(&format!("{text}  volumes: [{volumes}]\n"));
        stack.workloads[&"web".into()].mounted_pull("site:1")
    };
    assert_eq!(pulls("{name: v, image: {reference: \"site:1\"}}"), PullPolicy::IfNotPresent);
    assert_eq!(pulls("{name: v, image: {reference: \"site:1\", pullPolicy: Never}}"), PullPolicy::Never);
    let two = "{name: v, image: {reference: \"site:1\"}}, {name: w, image: {reference: \"site:1\", pullPolicy: Always}}";
    assert_eq!(pulls(two), PullPolicy::Always);
    let latest = "{name: v, image: {reference: \"site\"}}";
    let text = format!("{}  volumes: [{latest}]\n", container("volumeMounts: [{name: v, mountPath: /a}]"));
    assert_eq!(stack(&text).workloads[&"web".into()].mounted_pull("site"), PullPolicy::Always);
}

#[test]
fn on_the_network_of_the_host_a_port_is_its_own() {
    let text = |port: &str| {
        format!(
            "{}  hostNetwork: true\n",
            container(&format!("ports: [{{containerPort: 80, hostPort: {port}}}]"))
        )
    };
    each_is_reported(&[(
        text("8080"),
        "a.yaml:9:43: error: spec.containers[0].ports[0].hostPort: must be the same as `containerPort` with `hostNetwork`",
    )]);
    let published = |it: &Stack| -> Vec<Port> { it.workloads[&"web".into()].container.ports.clone() };
    assert_eq!(published(&stack(&text("80"))), []);
}

#[test]
fn a_replication_controller_is_a_set_of_replicas() {
    let text = |selector: &str| {
        format!(
            "apiVersion: v1\nkind: ReplicationController\nmetadata: {{name: web}}\nspec:\n  replicas: 2\n{selector}  template:\n    \
             metadata: {{labels: {{app: web}}}}\n    spec: {{containers: [{{name: a, image: \"a:1\"}}]}}\n"
        )
    };
    for selector in ["", "  selector: {app: web}\n"] {
        assert_eq!(stack(&text(selector)).workloads[&"web".into()].replicas, 2);
    }
    each_is_reported(&[(
        text("  selector: {app: api}\n"),
        "a.yaml:6:19: error: spec.selector.app: the selector does not match the labels of the pod template",
    )]);
}

/// A Pod that mounts a claim, after the claim and these volumes.
fn claiming(claim: &str, volumes: &[(&str, &str)]) -> String {
    let volume = |(name, spec): &(&str, &str)| {
        format!("---\napiVersion: v1\nkind: PersistentVolume\nmetadata: {{name: {name}}}\nspec: {{{spec}}}\n")
    };
    let volumes: String = volumes.iter().map(volume).collect();
    format!(
        "{}  volumes: [{{name: v, persistentVolumeClaim: {{claimName: files}}}}]\n---\napiVersion: v1\nkind: \
         PersistentVolumeClaim\nmetadata: {{name: files}}\nspec: {{{claim}}}\n{volumes}",
        container("volumeMounts: [{name: v, mountPath: /v}]")
    )
}

#[test]
fn a_claim_gets_the_storage_that_a_cluster_would_bind_to_it() {
    let got = |claim: &str, volumes: &[(&str, &str)]| {
        let stack = stack(&claiming(claim, volumes));
        match &stack.workloads[&"web".into()].container.mounts[0].source {
            MountSource::Bind { path, .. } => path.clone(),
            MountSource::Volume { name, .. } => name.clone(),
            other => panic!("{other:?}"),
        }
    };
    let local = |path: &str, more: &str| format!("local: {{path: {path}}}, {more}");
    let large =
        local("/large", "storageClassName: manual, capacity: {storage: 10Gi}, accessModes: [ReadWriteOnce]");
    let small =
        local("/small", "storageClassName: manual, capacity: {storage: 2Gi}, accessModes: [ReadWriteOnce]");
    let tiny =
        local("/tiny", "storageClassName: manual, capacity: {storage: 1Mi}, accessModes: [ReadWriteOnce]");
    let all = [("a", large.as_str()), ("b", small.as_str()), ("c", tiny.as_str())];
    let wanted =
        "storageClassName: manual, accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}";
    assert_eq!(got(wanted, &[("b", &small), ("c", &tiny)]), "/small", "the only one that is large enough");
    assert_eq!(
        errors(&claiming(wanted, &all)),
        [
            "a.yaml:14:18: error: spec: `files` may get `a` or `b`, and a later commit could change which one (write \
          `volumeName` in the claim)"
        ]
    );
    assert_eq!(got("volumeName: a", &all), "/large", "a name comes before all");
    assert_eq!(got("storageClassName: other", &all), "shop_files", "of another class");
    assert_eq!(got("storageClassName: manual, accessModes: [ReadWriteMany]", &all), "shop_files");
    let kept = local("/kept", "claimRef: {name: files}, storageClassName: manual, capacity: {storage: 50Gi}");
    assert_eq!(got("storageClassName: manual", &[("a", &large), ("z", &kept)]), "/kept");
    let others = local("/others", "claimRef: {name: others}");
    assert_eq!(got("", &[("a", &others)]), "shop_files");
    let unused = warnings(&claiming("storageClassName: other", &[("a", &tiny)]));
    assert!(
        unused.iter().any(|it| it.contains("a.yaml:15:26: warning: spec.storageClassName: has no effect")),
        "{unused:#?}"
    );
    assert!(
        unused
            .iter()
            .any(|it| it.contains("metadata.name: has no effect: no claim of this application gets `a`")),
        "{unused:#?}"
    );
}

#[test]
fn claim_gets_only_storage_that_its_selector_matches() {
    let volumes = |labels: &[(&str, &str)]| {
        let volume = |(name, labels): &(&str, &str)| {
            format!(
                "---\napiVersion: v1\nkind: PersistentVolume\nmetadata: {{name: {name}, labels: {{{labels}}}}}\nspec: \
                 {{hostPath: {{path: /srv/{name}}}, capacity: {{storage: 1Gi}}}}\n"
            )
        };
        labels.iter().map(volume).collect::<String>()
    };
    let two = volumes(&[("a", "disk: a, tier: fast"), ("b", "disk: b, tier: slow")]);
    let claim = |selector: &str, volumes: &str| {
        format!("{}{volumes}", claiming(&format!("selector: {selector}"), &[]))
    };
    for (selector, path) in [
        ("{matchLabels: {disk: b}}", "/srv/b"),
        ("{matchLabels: {disk: a}}", "/srv/a"),
        ("{matchExpressions: [{key: disk, operator: In, values: [b, c]}]}", "/srv/b"),
        ("{matchExpressions: [{key: tier, operator: NotIn, values: [fast]}]}", "/srv/b"),
        ("{matchLabels: {tier: slow}, matchExpressions: [{key: disk, operator: Exists}]}", "/srv/b"),
    ] {
        let stack = stack(&claim(selector, &two));
        let mount = &stack.workloads[&"web".into()].container.mounts[0].source;
        assert!(matches!(mount, MountSource::Bind { path: it, .. } if it == path), "{selector}: {mount:?}");
    }
    for selector in [
        "{matchLabels: {disk: c}}",
        "{matchLabels: {disk: a, tier: slow}}",
        "{matchExpressions: [{key: disk, operator: DoesNotExist}]}",
    ] {
        let told = errors(&claim(selector, &two));
        assert!(
            told.iter().any(|it| it.contains("spec.selector: no PersistentVolume")),
            "{selector}: {told:#?}"
        );
    }
    let told = warnings(&claim("{matchLabels: {disk: c}}", ""));
    assert!(told.iter().any(|it| it.contains("spec.selector: has no effect")), "{told:#?}");
}

/// In Kubernetes a binding lasts. Here another claim or volume could change it.
#[test]
fn storage_that_several_claims_could_get_is_an_error() {
    let claim = |name: &str, spec: &str| {
        format!(
            "---\napiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {{name: {name}}}\nspec: {{{spec}}}\n"
        )
    };
    let with = |files: &str, others: &[String], volumes: &[(&str, &str)]| {
        claiming(files, volumes) + &others.concat()
    };
    let (a, b) = ("local: {path: /a}", "local: {path: /b}");
    let kept = "local: {path: /a}, claimRef: {name: files}";
    each_is_reported(&[
        (
            with("", &[claim("docs", "")], &[("nas", a)]),
            "a.yaml:19:18: error: spec: it suits `docs` or `files`, and a later commit could change which one (write \
             `claimRef` in the PersistentVolume, or `volumeName` in the claims)",
        ),
        (
            with("", &[], &[("disk-a", a), ("disk-b", b)]),
            "a.yaml:14:18: error: spec: `files` may get `disk-a` or `disk-b`, and a later commit could change which one \
             (write `volumeName` in the claim)",
        ),
        (
            with("", &[], &[("disk-a", kept), ("disk-b", kept)]),
            "a.yaml:14:18: error: spec: `files` may get `disk-a` or `disk-b`, and a later commit could change which one \
             (write `volumeName` in the claim)",
        ),
        (
            with("volumeName: nas", &[claim("more", "volumeName: nas")], &[("nas", a)]),
            "a.yaml:24:18: error: spec.volumeName: `files` has the PersistentVolume `nas` already (name another \
             PersistentVolume: each one has one claim)",
        ),
        (
            with("", &[claim("more", "volumeName: nas")], &[("nas", kept)]),
            "a.yaml:24:18: error: spec.volumeName: the `claimRef` of the PersistentVolume `nas` names `files`, so `more` \
             cannot have it (name another PersistentVolume, or change its `claimRef`)",
        ),
    ]);
    // A word in either object leaves no choice.
    for text in [
        with("volumeName: disk-a", &[], &[("disk-a", a), ("disk-b", b)]),
        with("", &[claim("docs", "volumeName: disk-b")], &[("disk-a", a), ("disk-b", b)]),
        with("", &[claim("docs", "")], &[("disk-a", kept)]),
        with("", &[claim("docs", "")], &[("disk-a", kept), ("disk-b", b)]),
    ] {
        let source = &stack(&text).workloads[&"web".into()].container.mounts[0].source;
        assert!(matches!(source, MountSource::Bind { path, .. } if path == "/a"), "{text}: {source:?}");
    }
}

#[test]
fn a_persistent_volume_has_one_source_of_a_known_kind() {
    let with = |spec: &str| claiming("", &[("a", spec)]);
    let device = "hostPath: {path: /dev/sda, type: BlockDevice}";
    each_is_reported(&[
        (
            with("capacity: {storage: 1Gi}"),
            "a.yaml:20:7: error: spec: the PersistentVolume names no storage (give it `hostPath`, `local` or `nfs`)",
        ),
        (
            with("local: {path: /a}, hostPath: {path: /b}"),
            "a.yaml:20:27: error: spec.hostPath: cannot be set together with `local`",
        ),
        (
            with("local: {path: a}"),
            "a.yaml:20:22: error: spec.local.path: must be an absolute path of the host",
        ),
        (with(device), "a.yaml:20:18: error: spec.hostPath: a device cannot be claimed as a folder"),
    ]);
    let stack = stack(&with("hostPath: {path: /srv, type: Directory}"));
    let MountSource::Bind { create, .. } = &stack.workloads[&"web".into()].container.mounts[0].source else {
        panic!("a path of the host is mounted")
    };
    assert!(!create, "it must be there");
}

#[test]
fn sub_path_of_a_claim_is_a_volume_of_its_own() {
    let mounting = |mounts: &str| claiming("", &[]).replace("[{name: v, mountPath: /v}]", mounts);
    let both = "[{name: v, mountPath: /a, subPath: one}, {name: v, mountPath: /b, subPath: two/three}]";
    let stack = stack(&mounting(both));
    let volumes: Vec<&str> = stack.volumes.keys().map(String::as_str).collect();
    assert_eq!(volumes.len(), 2, "nothing else is made: {volumes:?}");
    assert!(volumes.contains(&"shop_files_one"), "{volumes:?}");
    let clash = "[{name: v, mountPath: /a, subPath: one}, {name: v, mountPath: /b}]";
    let nested = "[{name: v, mountPath: /a, subPath: one/two}, {name: v, mountPath: /b, subPath: one}]";
    each_is_reported(&[
        (
            mounting(clash),
            "a.yaml:9:54: error: spec.containers[0].volumeMounts[0].subPath: `files` is also mounted at a.yaml:9:67",
        ),
        (
            mounting(nested),
            "a.yaml:9:54: error: spec.containers[0].volumeMounts[0].subPath: `files` is also mounted at a.yaml:9:98",
        ),
    ]);
}

#[test]
fn logins_for_registries_are_kept_as_secrets_are() {
    let with = |secret: &str| {
        format!(
            "{}---\napiVersion: v1\nkind: Secret\nmetadata: {{name: registry}}\n{secret}\n",
            pod("imagePullSecrets:\n- name: registry")
        )
    };
    let file = r#"{"auths": {"registry.example.com": {"username": "a", "password": "hunter2"}}}"#;
    let rendered = render(&with(&format!(
        "type: kubernetes.io/dockerconfigjson\nstringData: {{.dockerconfigjson: '{file}'}}"
    )));
    let stack = rendered.stack.unwrap();
    let logins = &stack.workloads[&"web".into()].pull_secrets;
    assert_eq!(logins.len(), 1);
    assert!(logins.iter().all(|it| rendered.contents.contains_key(it)));
    assert!(!format!("{stack:?}{:?}", rendered.findings).contains("hunter2"));
    each_is_reported(&[
        (
            with("stringData: {a: b}"),
            "a.yaml:10:5: error: spec.imagePullSecrets[0]: the Secret `registry` holds no login for a registry",
        ),
        (
            with("stringData: {.dockerconfigjson: hunter2}"),
            "a.yaml:10:5: error: spec.imagePullSecrets[0]: the Secret `registry` is not a file as `docker login` writes it",
        ),
    ]);
    let missing = pod("imagePullSecrets:\n- name: registry");
    assert_eq!(
        warnings(&missing),
        [
            "a.yaml:10:5: warning: spec.imagePullSecrets[0]: has no effect: there is no Secret `registry` in this application, so the \
          agent's own logins count"
        ]
    );
}

#[test]
fn annotation_of_ignored_differences_is_read() {
    let text = |fields: &str| {
        pod("restartPolicy: Always").replace(
            "  name: web\nspec",
            &format!("  name: web\n  annotations:\n    driftless.ignore-differences: {fields}\nspec"),
        )
    };
    let found = stack(&text("'restart, resources.memory'"));
    let fields = &found.workloads.values().next().unwrap().ignore_differences;
    assert_eq!(fields.iter().map(ToString::to_string).collect::<Vec<_>>(), ["resources.memory", "restart"]);
    assert_eq!(warnings(&text("restart")), [""; 0]);
    let wrong = errors(&text("'restart, image'"));
    let expected =
        "a.yaml:6:35: error: metadata.annotations.driftless.ignore-differences: `image` is not a field";
    assert!(wrong.len() == 1 && wrong[0].starts_with(expected), "{wrong:?}");
}

#[test]
fn annotation_of_a_canary_is_read_for_deployments_only() {
    let text = |steps: &str, replicas: u32| {
        format!(
            "apiVersion: apps/v1\nkind: Deployment\nmetadata:\n  name: web\n  annotations:\n    driftless.canary: {steps}\nspec:\n  \
             replicas: {replicas}\n  selector: {{matchLabels: {{app: web}}}}\n  template:\n    metadata: {{labels: {{app: web}}}}\n    \
             spec:\n      containers: [{{name: web, image: a}}]\n"
        )
    };
    let found = stack(&text("'20% for 10m, 3'", 5));
    let steps: Vec<String> =
        found.workloads.values().next().unwrap().canary.iter().map(ToString::to_string).collect();
    assert_eq!(steps, ["20% for 600s", "3"]);
    let wrong = errors(&text("'20%, some'", 5));
    let expected = "a.yaml:6:23: error: metadata.annotations.driftless.canary: `some` is no step of a canary";
    assert!(wrong.len() == 1 && wrong[0].starts_with(expected), "{wrong:?}");
    let recreate =
        text("20%", 3).replace("spec:\n  replicas", "spec:\n  strategy: {type: Recreate}\n  replicas");
    for (manifest, message) in [
        (text("20%", 1), "a canary needs at least 2 instances"),
        (recreate, "the strategy `Recreate` removes all old ones"),
    ] {
        let files = MemoryFiles::new([("a.yaml", manifest.as_str())]);
        let rendered = manifest::render(&files, &manifest::discover(&files, "", "repository", &[]).apps[0]);
        let found: Vec<String> = rendered.findings.iter().map(ToString::to_string).collect();
        assert!(found.iter().any(|it| it.starts_with("a.yaml:") && it.contains(message)), "{found:?}");
        assert!(rendered.stack.is_none());
    }
    let of_pod = pod("restartPolicy: Always")
        .replace("  name: web\nspec", "  name: web\n  annotations:\n    driftless.canary: 20%\nspec");
    let wrong = errors(&of_pod);
    assert!(wrong.len() == 1 && wrong[0].contains("a Pod has no canary"), "{wrong:?}");
}
