//! The instances of one workload, grouped by what happens to them next.

use driftless_model::{Instance, SpecHash};

use crate::cause::Cause;

/// The instances of one workload, by what happens to them next.
#[derive(Default)]
pub(crate) struct Instances<'a> {
    /// As desired. They need not be ready.
    pub(crate) current: Vec<&'a Instance>,
    /// To be replaced, as the limits allow. Until then they serve.
    pub(crate) outdated: Vec<(&'a Instance, Cause)>,
    /// To be replaced, and of no use any more.
    pub(crate) lost: Vec<(&'a Instance, Cause)>,
    /// Not as desired, and left alone for now.
    pub(crate) untouched: Vec<&'a Instance>,
    /// Number of current instances that have failed, and that the rollout counts as available.
    pub(crate) passed: usize,
    /// The number of outdated instances that a canary keeps, and the spec of those that it prefers.
    pub(crate) kept: usize,
    pub(crate) kept_spec: Option<SpecHash>,
    /// The number of instances of the version before that are missing.
    pub(crate) missing_before: usize,
    /// Steps that remove what the engine could not remove.
    pub(crate) cleared: Vec<usize>,
}
