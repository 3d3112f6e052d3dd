//! Names of containers in Docker.

use driftless_model::{Format, SpecHash, Stack, Subject, Workload, WorkloadName};

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
    match stack.workloads.get(workload) {
        Some(wanted) => container_name_of(stack, Subject { name: workload, workload: wanted }, slot, spec),
        None => format!("{}-{workload}-{slot}", stack.project),
    }
}

/// As [`container_name`], for a workload that need not be in the stack.
pub(crate) fn container_name_of(
    stack: &Stack,
    Subject { name, workload }: Subject<'_>,
    slot: u32,
    spec: impl FnOnce(&Workload) -> SpecHash,
) -> String {
    if let Some(fixed) = &workload.container_name {
        return fixed.clone();
    }
    let project = &stack.project;
    match stack.format {
        Format::Kubernetes => format!("{project}-{name}-{}-{slot}", spec(workload).short()),
        Format::Compose => format!("{project}-{name}-{slot}"),
    }
}
