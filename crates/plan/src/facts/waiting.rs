//! Waits of workloads for each other, through others.

use std::collections::BTreeSet;

use driftless_model::{Stack, Subject, WorkloadName};

/// Whether a workload waits for another one, itself or through others. `awaited` has those that one of them waits for, apart from
/// those of lower sync waves.
pub(crate) fn waits_for<'a>(
    stack: &'a Stack,
    name: &'a WorkloadName,
    to: &WorkloadName,
    awaited: impl Fn(Subject<'a>) -> Vec<&'a WorkloadName>,
) -> bool {
    let (mut seen, mut next) = (BTreeSet::new(), vec![name]);
    while let Some(name) = next.pop() {
        if name == to {
            return true;
        }
        let Some(workload) = stack.workloads.get(name).filter(|_| seen.insert(name)) else { continue };
        if stack.workloads.get(to).is_some_and(|to| to.wave < workload.wave) {
            return true;
        }
        next.extend(awaited(Subject { name, workload }));
    }
    false
}
