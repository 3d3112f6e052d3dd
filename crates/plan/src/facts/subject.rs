//! A workload and its name.

use driftless_model::{Workload, WorkloadName};

/// A workload together with its name in the stack.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Subject<'a> {
    pub(crate) name: &'a WorkloadName,
    pub(crate) workload: &'a Workload,
}
