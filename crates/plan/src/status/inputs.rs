//! The inputs of a status.

use driftless_model::{Observed, Record, Stack, Timestamp};

use crate::steps::Plan;

/// The inputs of a status: what is desired, what was observed and remembered, and the plan that was made from it.
#[derive(Clone, Copy)]
pub(crate) struct Inputs<'a> {
    pub(crate) stack: &'a Stack,
    pub(crate) observed: &'a Observed,
    pub(crate) record: &'a Record,
    pub(crate) plan: &'a Plan,
    pub(crate) now: Timestamp,
}
