//! The hashes of a stack and of its workloads, made once.

use std::collections::BTreeMap;

use crate::{SpecHash, Stack, StackHash, WorkloadName};

/// The hashes of a stack and of its workloads. They take longer to make than the plan of a round without changes, so they
/// are made once where the stack is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StackHashes {
    /// The hash of the stack, as Git has it.
    pub stack: StackHash,
    /// The spec hash of each workload.
    pub specs: BTreeMap<WorkloadName, SpecHash>,
}

impl StackHashes {
    /// Makes the hashes of a stack.
    pub fn of(stack: &Stack) -> Self {
        let specs = stack.workloads.iter().map(|(name, workload)| (name.clone(), workload.spec())).collect();
        Self { stack: StackHash::of(stack), specs }
    }
}
