//! The loop: one task per application observes, plans, acts and looks again, for ever; one task per repository
//! fetches and renders. Wakes carry no data, the executor takes no decision, and status is set in one place.

mod adopt;
mod agent;
mod announced;
mod app;
mod by_request;
mod changes;
mod drift;
mod execute;
mod goal;
mod handle;
mod inside;
mod logins;
mod logs;
mod materials;
mod orders;
mod preview;
pub mod probe;
mod probes;
mod pulls;
mod repository;
mod scheduled;
mod status;
mod told;
mod trust;
mod wakers;

pub use agent::{Agent, Error, Parts, Running, launch};
pub use drift::Inspector;
pub use handle::{
    Against, Answer, Applications, Handle, Inbox, Inspection, InstanceName, Preview, Readiness, Repositories,
    Request, RequestError, RequestKind, Rollback,
};
pub use logs::Logs;
pub use preview::preview;

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
