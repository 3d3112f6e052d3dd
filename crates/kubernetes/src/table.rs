//! Markdown tables of all kinds and fields, compared with `podman kube play` as podman documents it
//! (`docs/kubernetes_support.md` of podman).

use std::fmt::Write as _;

use super::{
    fields::{self, Fields, Support},
    kinds,
};

/// The fields of an object, and those that podman reads; `None`: podman does not document the object.
type Place = (&'static str, Fields, Option<&'static str>);

/// The kinds that podman reads. It skips all others without an error.
const PODMAN_KINDS: &[&str] =
    &["ConfigMap", "DaemonSet", "Deployment", "Job", "PersistentVolumeClaim", "Pod", "Secret"];

/// `pod` is the `spec` of a template, and `container` one of its containers.
const PLACES: &[Place] = &[
    ("metadata", fields::METADATA, None),
    ("Deployment", fields::DEPLOYMENT, Some("replicas selector template")),
    ("Deployment.strategy", fields::STRATEGY, Some("")),
    ("Deployment.strategy.rollingUpdate", fields::ROLLING_UPDATE, Some("")),
    ("ReplicaSet", fields::REPLICA_SET, Some("")),
    ("StatefulSet", fields::STATEFUL_SET, Some("")),
    ("StatefulSet.updateStrategy.rollingUpdate", fields::SET_ROLLING_UPDATE, Some("")),
    ("StatefulSet.persistentVolumeClaimRetentionPolicy", fields::RETENTION, Some("")),
    ("DaemonSet", fields::DAEMON_SET, Some("selector template")),
    ("DaemonSet.updateStrategy.rollingUpdate", fields::DAEMON_ROLLING_UPDATE, Some("")),
    ("Job", fields::JOB, Some("template")),
    ("CronJob", fields::CRON_JOB, Some("")),
    ("pod", fields::POD, Some(POD)),
    ("pod.dnsConfig", fields::DNS_CONFIG, Some("nameservers options searches")),
    ("pod.hostAliases", fields::HOST_ALIAS, Some("hostnames ip")),
    (
        "pod.securityContext",
        fields::POD_SECURITY,
        Some("runAsUser runAsGroup supplementalGroups seLinuxOptions sysctls"),
    ),
    (
        "pod.volumes",
        fields::VOLUME,
        Some("name configMap emptyDir hostPath image persistentVolumeClaim secret"),
    ),
    ("container", fields::CONTAINER, Some(CONTAINER)),
    (
        "container.env.valueFrom",
        fields::VALUE_FROM,
        Some("configMapKeyRef fieldRef resourceFieldRef secretKeyRef"),
    ),
    ("container.envFrom", fields::ENV_FROM, Some("configMapRef secretRef")),
    ("container.ports", fields::PORT, Some("containerPort hostIP hostPort name protocol")),
    ("container.volumeMounts", fields::VOLUME_MOUNT, Some("mountPath name readOnly subPath")),
    ("container.lifecycle", fields::LIFECYCLE, Some("stopSignal")),
    ("container.lifecycle.postStart", fields::LIFECYCLE_HANDLER, Some("")),
    ("container.livenessProbe", fields::PROBE, None),
    ("container.resources", fields::RESOURCES, Some("limits requests")),
    ("container.securityContext", fields::SECURITY, Some(SECURITY)),
    ("ConfigMap", fields::CONFIG_MAP, Some("binaryData data")),
    ("Secret", fields::SECRET, None),
    ("PersistentVolumeClaim", fields::CLAIM, Some("storageClassName accessModes resources")),
    ("PersistentVolume", fields::PERSISTENT, Some("")),
    ("Service", fields::SERVICE, Some("")),
    ("Service.ports", fields::SERVICE_PORT, Some("")),
];

/// The fields of each object.
const ALWAYS: [&str; 3] = ["apiVersion", "kind", "metadata"];
const POD: &str = "containers initContainers volumes restartPolicy terminationGracePeriodSeconds hostname hostAliases \
                   dnsConfig hostNetwork hostPID hostIPC shareProcessNamespace securityContext";
const CONTAINER: &str = "name image imagePullPolicy command args workingDir ports env envFrom volumeMounts resources \
                         lifecycle livenessProbe securityContext";
const SECURITY: &str = "runAsUser runAsGroup readOnlyRootFilesystem procMount privileged allowPrivilegeEscalation \
                        capabilities seLinuxOptions";

/// Two tables: kinds, and fields.
pub(super) fn page() -> String {
    let mut page = String::from("| kind | here | podman | |\n|---|---|---|---|\n");
    for (kind, word, note) in kinds::all() {
        let podman = if PODMAN_KINDS.contains(&kind) { "used" } else { "skipped" };
        row(&mut page, kind, word, podman, note);
    }
    page.push_str("\n| field | here | podman | |\n|---|---|---|---|\n");
    for (place, fields, podman) in PLACES {
        for (field, class) in *fields {
            let (word, note) = match class {
                Support::Used => ("used", ""),
                Support::NoEffect(why) => ("no effect", why.strip_prefix("has no effect: ").unwrap_or(why)),
                Support::Refused(why) => {
                    let why = why.strip_prefix("is not supported: ").unwrap_or(why);
                    ("refused", why.strip_prefix("is not supported yet, and ").unwrap_or(why))
                }
            };
            let podman = match podman {
                None => "",
                Some(known) if known.split_whitespace().chain(ALWAYS).any(|it| it == *field) => "used",
                Some(_) => "no",
            };
            row(&mut page, &format!("{place}.{field}"), word, podman, note);
        }
    }
    page
}

fn row(page: &mut String, name: &str, here: &str, podman: &str, note: &str) {
    // Writing to a string cannot fail.
    let _ = writeln!(page, "| `{name}` | {here} | {podman} | {note} |");
}
