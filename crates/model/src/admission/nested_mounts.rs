//! The rule about mounts in an application's own folder.

use crate::{NestedMount, Part, Stack, Subject, Workload};

use super::{
    policy::AdmissionPolicy,
    violation::{ViolatingObject, Violation},
};

/// No mount may lie in another one that is writable, if paths of the host are restricted.
pub(super) fn check(policy: &AdmissionPolicy, stack: &Stack, found: &mut Vec<Violation>) {
    if !policy.restricts_bind_mounts() {
        return;
    }
    let nested = NestedMount::all(stack.workloads.values().flat_map(Workload::containers));
    for Subject { name, workload } in stack.subjects() {
        let parts = workload.parts.iter().map(|Part { name, container, .. }| (Some(name), container));
        for (part, container) in std::iter::once((None, &workload.container)).chain(parts) {
            for path in container.app_folders() {
                let Some(mount) = nested.iter().find(|mount| mount.path == path) else { continue };
                let message = format!("mounts {mount}: a symbolic link there leads anywhere on the host");
                found.push(Violation {
                    rule: "bindMounts",
                    object: ViolatingObject::Workload(name.clone(), part.cloned()),
                    keys: &["volumes"],
                    value: Some(path.to_owned()),
                    message,
                });
            }
        }
    }
}
