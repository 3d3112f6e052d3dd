//! The node that a pod asks for: operating system and architecture. There is one host, and it runs Linux.

use super::{
    fields,
    reader::{Object, Value},
};
use driftless_yaml::{Entry, join};

/// Labels of nodes that hold their operating system, and their architecture in the words of Go. The older names are
/// deprecated in Kubernetes.
const OS: [&str; 2] = ["kubernetes.io/os", "beta.kubernetes.io/os"];
const ARCHITECTURE: [&str; 2] = ["kubernetes.io/arch", "beta.kubernetes.io/arch"];

/// Reads `os` and `nodeSelector` of a pod. Returns the architecture that the pod needs.
pub(super) fn architecture(spec: &Object<'_>) -> Option<String> {
    if let Some(name) = spec.object("os", fields::POD_OS).and_then(|os| os.require("name")) {
        check_os(&name);
    }
    let selector = spec.get("nodeSelector")?;
    let mut architecture = None;
    for Entry { key, value, .. } in selector.node.entries() {
        let value = Value::new(value, join(&selector.path, key), selector.report());
        let Some(text) = value.text() else { continue };
        if OS.contains(&key.as_str()) {
            check_os(&value);
        } else if ARCHITECTURE.contains(&key.as_str()) {
            architecture = Some(text.to_owned());
        } else {
            value.warning("has no effect: there is only one host, so nothing is scheduled");
        }
    }
    architecture
}

fn check_os(value: &Value<'_>) {
    let Some(text) = value.text().filter(|text| *text != "linux") else { return };
    value.error_help(
        format!("`{text}` is not supported: containers run on Linux here"),
        "remove the workload, or use an image for Linux",
    );
}
