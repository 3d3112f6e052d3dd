//! Updates of the record: what the agent must remember from one round to the next.

pub(crate) mod adoption;
pub(crate) mod canary;
pub(crate) mod cron;
pub(crate) mod executed;
pub(crate) mod files;
pub(crate) mod fs_changes;
pub(crate) mod health;
pub(crate) mod hooks;
pub(crate) mod jobs;
pub(crate) mod jump;
pub(crate) mod observed;
pub(crate) mod outcome;
pub(crate) mod planned;
pub(crate) mod shared_places;
