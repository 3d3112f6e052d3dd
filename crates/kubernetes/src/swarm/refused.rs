//! The kinds and fields that a Swarm does not have, each with what to do.

use driftless_model::Job;
use driftless_yaml::{Dialect as _, Entry, Node, join};

use super::place::{ONE_HOST, at, refuse};
use crate::{
    env,
    kinds::Owned,
    reader::{Kubernetes, Value},
    sync_annotations,
};

/// Fields of a pod.
const POD: &[(&str, &str)] = &[
    ("affinity", "use `nodeSelector`; a Swarm spreads tasks over its nodes by itself"),
    ("hostIPC", ONE_HOST),
    ("hostNetwork", "remove it; `hostPort` publishes a port on the node of the pod"),
    ("hostPID", ONE_HOST),
    ("initContainers", "do this in the program, or in a Compose service that this one depends on"),
    ("topologySpreadConstraints", "remove it: a Swarm spreads tasks over its nodes by itself"),
];

/// Fields of a pod that change nothing in a Swarm.
const WITHOUT_EFFECT: &[(&str, &str)] = &[
    ("overhead", "has no effect: a Swarm counts only what its tasks reserve"),
    ("preemptionPolicy", NO_PRIORITY),
    ("priority", NO_PRIORITY),
    ("priorityClassName", NO_PRIORITY),
    ("schedulerName", "has no effect: a Swarm has one scheduler"),
    ("tolerations", "has no effect: the nodes of a Swarm have no taints"),
    ("workloadRef", NO_PRIORITY),
];

const NO_PRIORITY: &str = "has no effect: a Swarm has no priorities";

/// Fields of the container, by the map that has them.
const CONTAINER: &[(&str, &str, &str)] = &[
    ("lifecycle", "postStart", "do this in the program"),
    ("lifecycle", "preStop", "do this in the program, or set `terminationGracePeriodSeconds`"),
    (
        "securityContext",
        "privileged",
        "use `capabilities`, or run the application on a single host (`engine: docker`)",
    ),
];

/// Options of the engine's security, by their beginning, and the fields that they come from.
const SECURITY: &[(&str, &str)] = &[
    ("no-new-privileges", "allowPrivilegeEscalation"),
    ("seccomp=", "seccompProfile"),
    ("apparmor=", "appArmorProfile"),
    ("label=", "seLinuxOptions"),
];

/// Reports a kind of workload.
pub(super) fn kind(kind: Owned, object: &Value<'_>) {
    let (name, help) = match kind {
        Owned::StatefulSet => (
            "StatefulSet",
            "use a Deployment with `replicas: 1` and `nodeSelector: {kubernetes.io/hostname: NODE}` for each pod, or k3s, which runs it as it is",
        ),
        Owned::Pod => ("Pod", "make it a Deployment or a Job"),
        _ => return,
    };
    refuse(object, "kind", format!("the kind {name} is not supported with `engine: swarm`"), help);
}

/// Reports annotations of an object that only a single host follows.
pub(super) fn annotations(object: &Value<'_>) {
    let Some(annotations) = at(object, "metadata.annotations") else { return };
    let is_followed = |it: &str| sync_annotations::is_order(it) || sync_annotations::is_update(it);
    let unknown = |it: &&Entry| sync_annotations::is_known(&it.key) && !is_followed(&it.key);
    for Entry { key, .. } in annotations.node.entries().iter().filter(unknown) {
        refuse(&annotations, key, format!("`engine: swarm` does not have `{key}` yet"), ONE_HOST);
    }
}

/// Reports the fields of a Job that a Swarm does not have. `spec` is its specification.
pub(super) fn job(spec: &Value<'_>, job: &Job) {
    if job.indexed {
        let help = "make a Job for each index, or let the pods take their work from a queue";
        refuse(spec, "completionMode", "Docker Swarm does not number the tasks of a Job", help);
    }
    if job.parallelism == 0 {
        refuse(spec, "parallelism", "a Job of Docker Swarm runs at least one task", "use `suspend: true`");
    } else if job.completions.is_none() {
        let help = "set `completions` to the number of pods that have to succeed";
        refuse(
            spec,
            "parallelism",
            "a Job of Docker Swarm does not end with the first pod that succeeds",
            help,
        );
    }
}

/// Reports the fields of a pod and its containers.
pub(super) fn pod(pod: &Value<'_>) {
    for (key, help) in POD.iter().filter(|(key, _)| is_given(pod.node, key)) {
        refuse(pod, key, format!("Docker Swarm has no `{key}`"), help);
    }
    for (key, message) in WITHOUT_EFFECT.iter().filter(|(key, _)| is_given(pod.node, key)) {
        if let Some(value) = at(pod, key) {
            value.warning(*message);
        }
    }
    let containers = at(pod, "containers").map(|it| it.items()).unwrap_or_default();
    if let [_, second, ..] = &*containers {
        second.error_help(
            format!("a task of Docker Swarm has one container, and this pod has {}", containers.len()),
            "make a Deployment of each container; they reach each other by the names of their Services",
        );
    }
    containers.iter().for_each(container);
}

fn container(container: &Value<'_>) {
    for (map, key, help) in CONTAINER {
        if let Some(map) = at(container, map).filter(|map| is_given(map.node, key)) {
            refuse(&map, key, format!("Docker Swarm has no `{key}`"), help);
        }
    }
    if at(container, "resizePolicy").is_some_and(|it| !Kubernetes::is_absent(it.node)) {
        container.report().say(container.node.get("resizePolicy").unwrap_or(container.node).warning(
            join(&container.path, "resizePolicy"),
            "has no effect: a Swarm starts new tasks to change limits",
        ));
    }
    for port in at(container, "ports").map(|it| it.items()).unwrap_or_default() {
        if is_given(port.node, "hostIP") && is_given(port.node, "hostPort") {
            refuse(&port, "hostIP", "Docker Swarm publishes a port on all addresses of a node", "remove it");
        }
    }
    for variable in at(container, "env").map(|it| it.items()).unwrap_or_default() {
        if env::is_address(variable.node)
            && let Some(reference) = at(&variable, "valueFrom.fieldRef")
        {
            let help = "let the program find its own address, or use the name of its Service";
            refuse(&reference, "fieldPath", "Docker Swarm tells a task no address before it starts", help);
        }
    }
}

/// Reports the field that an option of the engine's security comes from.
pub(super) fn security_option(option: &str, pod: &Value<'_>, container: &Value<'_>) {
    let field = SECURITY.iter().find(|(start, _)| option.starts_with(start)).map(|(_, field)| *field);
    let contexts = [container, pod].into_iter().filter_map(|it| at(it, "securityContext"));
    let has_it = |context: &Value<'_>| field.is_some_and(|field| context.node.get(field).is_some());
    match (contexts.into_iter().find(has_it), field) {
        (Some(context), Some(field)) => {
            refuse(&context, field, format!("Docker Swarm has no `{field}`"), ONE_HOST);
        }
        _ => container.error_help(format!("Docker Swarm has no security option `{option}`"), ONE_HOST),
    }
}

/// Whether a map has a key with another value than its default.
fn is_given(map: &Node, key: &str) -> bool {
    map.get(key).is_some_and(|value| !Kubernetes::is_absent(value))
}
