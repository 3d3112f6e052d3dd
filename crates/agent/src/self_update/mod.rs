//! The update of the container of the agent itself.

pub(crate) mod agent;
pub(crate) mod helper;
