//! Numbers of instances that users set for a time: the stack with them, and back.

use std::borrow::Cow;

use driftless_model::{Record, Stack};

/// The stack with the numbers of instances that users set. Its hash is that of what Git says.
pub fn with_scales<'a>(stack: &'a Stack, record: &Record) -> Cow<'a, Stack> {
    if !record.scales.keys().any(|name| stack.workloads.contains_key(name)) {
        return Cow::Borrowed(stack);
    }
    let mut scaled = Stack { given: Some(stack.as_given()), ..stack.clone() };
    scale(&mut scaled, record);
    Cow::Owned(scaled)
}

/// Sets the numbers of instances that users set.
pub(crate) fn scale(stack: &mut Stack, record: &Record) {
    for (name, scale) in &record.scales {
        let Some(workload) = stack.workloads.get_mut(name) else { continue };
        if workload.job_or_template().is_none() && workload.member().is_none() {
            workload.scaled_from = workload.scaled_from.or(Some(workload.replicas));
            workload.replicas = scale.replicas;
        }
    }
}

/// Sets the numbers of instances of Git again.
pub(crate) fn unscale(stack: &mut Stack) {
    for workload in stack.workloads.values_mut() {
        if let Some(replicas) = workload.scaled_from.take() {
            workload.replicas = replicas;
        }
    }
}
