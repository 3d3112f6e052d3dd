//! The nodes of a pod: `nodeSelector` and `nodeName` as constraints.

use super::place::at;
use crate::reader::Value;

/// The label of a node with its host name.
const HOST_NAME: &str = "kubernetes.io/hostname";

/// The constraints of a service.
pub(super) fn constraints(pod: &Value<'_>) -> Vec<String> {
    let selector = at(pod, "nodeSelector").map(|selector| selector.pairs()).unwrap_or_default();
    let mut all: Vec<String> =
        selector.iter().filter_map(|(label, value)| constraint(label, value, value.text()?)).collect();
    if let Some(name) = node_name(pod).and_then(|name| name.text()) {
        all.push(format!("node.hostname == {name}"));
    }
    all.sort();
    all
}

/// Whether the pod names its node.
pub(super) fn is_on_one_node(pod: &Value<'_>) -> bool {
    let selector = at(pod, "nodeSelector");
    node_name(pod).is_some() || selector.is_some_and(|it| it.node.get(HOST_NAME).is_some())
}

/// The node that the pod names. An empty text names none, as in Kubernetes.
fn node_name<'a>(pod: &Value<'a>) -> Option<Value<'a>> {
    at(pod, "nodeName").filter(|name| name.node.as_scalar() != Some(""))
}

fn constraint(label: &str, place: &Value<'_>, value: &str) -> Option<String> {
    let key = match label {
        HOST_NAME => "node.hostname".to_owned(),
        "kubernetes.io/os" | "beta.kubernetes.io/os" => "node.platform.os".to_owned(),
        "kubernetes.io/arch" | "beta.kubernetes.io/arch" => {
            // In the words of the kernel.
            let arch = match value {
                "amd64" => "x86_64",
                "arm64" => "aarch64",
                other => other,
            };
            return Some(format!("node.platform.arch == {arch}"));
        }
        _ if label.contains('/') => {
            let plain = label.rsplit('/').next().unwrap_or_default();
            place.error_help(
                format!("Docker Swarm selects no nodes by `{label}`: their labels have no `/`"),
                format!("label the nodes with `docker node update --label-add {plain}=VALUE NODE`, and select `{plain}`"),
            );
            return None;
        }
        _ => format!("node.labels.{label}"),
    };
    Some(format!("{key} == {value}"))
}
