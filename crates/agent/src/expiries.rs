//! The ends of certificates, keys and tokens, as status, metrics and incidents read them.

use std::sync::{Arc, Mutex, PoisonError};

use driftless_model::Expiry;

/// All ends that are known. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct Expiries(Arc<Mutex<Vec<Expiry>>>);

impl Expiries {
    /// All of them, in the order of the configuration.
    pub fn list(&self) -> Vec<Expiry> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Replaces all of them.
    pub fn set(&self, expiries: Vec<Expiry>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = expiries;
    }
}
