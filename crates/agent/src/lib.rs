//! The loop: one task per application observes, plans, acts and looks again, for ever; one task per repository
//! fetches and renders. Wakes carry no data, the executor takes no decision, and status is set in one place.

mod agent;
mod app;
mod build_context;
mod claims;
mod commit_status;
mod cron_runs;
mod deliveries;
mod desired;
mod error;
mod execute;
mod fs_scan;
mod handle;
mod image_tasks;
mod logs;
pub mod probe;
mod probe_targets;
mod publish;
mod registry_logins;
mod repository;
mod requests;
mod revision_changes;
mod revisions;
mod trust;
mod wakes;

pub use agent::{Agent, Parts, Running, launch};
pub use error::Error;
pub use handle::{Applications, Handle, Inbox, Readiness, Recovery, Repositories};
pub use logs::Logs;
pub use requests::{
    Against, Answer, Inspection, Inspector, InstanceName, Preview, Request, RequestError, RequestKind,
    Rollback, preview,
};

use driftless_model::Timestamp;

/// A number that differs between names and moments, for jitter.
fn seed(name: &str, now: Timestamp) -> u64 {
    name.bytes().fold(now.0, |all, byte| all.wrapping_mul(0x0100_0000_01b3) ^ u64::from(byte))
}

/// A key for [`driftless_model::Mask`], new in every run.
pub fn random_key() -> [u8; 32] {
    use std::hash::{BuildHasher, Hasher};
    let mut key = [0; 32];
    for chunk in key.chunks_mut(8) {
        // The standard library seeds this from the operating system's source of randomness.
        let random = std::collections::hash_map::RandomState::new().build_hasher().finish();
        chunk.copy_from_slice(&random.to_ne_bytes());
    }
    key
}
