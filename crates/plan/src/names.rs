//! Names of containers in Docker.

use driftless_model::{Format, SpecHash, Stack, Workload, WorkloadName};

/// The name of an instance's container in Docker.
///
/// Compose's own scheme for Compose; for Kubernetes the template's hash is part of it, as it is part of a pod's.
pub fn container_name(stack: &Stack, workload: &WorkloadName, slot: u32) -> String {
    container_name_at(stack, workload, slot, Workload::spec)
}

/// As [`container_name`], for callers that may know the hash already.
pub(crate) fn container_name_at(
    stack: &Stack,
    workload: &WorkloadName,
    slot: u32,
    spec: impl FnOnce(&Workload) -> SpecHash,
) -> String {
    let wanted = stack.workloads.get(workload);
    if let Some(fixed) = wanted.and_then(|it| it.container_name.as_ref()) {
        return fixed.clone();
    }
    let project = &stack.project;
    match (stack.format, wanted) {
        (Format::Kubernetes, Some(wanted)) => {
            format!("{project}-{workload}-{}-{slot}", spec(wanted).short())
        }
        (Format::Kubernetes | Format::Compose, _) => format!("{project}-{workload}-{slot}"),
    }
}
