//! Other agents on the same engine: who owns the containers, and which agents do not run any more.

pub(crate) mod finder;
pub(crate) mod other_owner;
pub(crate) mod ownership;
