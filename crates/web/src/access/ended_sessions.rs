//! The sessions that a log-out has ended, in memory for every request and in the database.

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
};

use driftless_model::{Timestamp, digest_hex};
use driftless_store as store;
use driftless_store::Store;

/// The most sessions in memory. Beyond them, those that would end first are forgotten.
const MOST: usize = 10_000;

/// Sessions by the digest of their code, with the time at which they would have ended by themselves.
pub(super) struct EndedSessions {
    store: Store,
    ended: Mutex<BTreeMap<String, Timestamp>>,
}

impl EndedSessions {
    pub(super) fn load(store: Store) -> Self {
        let ended = store.ended_sessions().unwrap_or_else(|error| {
            let error = &error as &dyn std::error::Error;
            tracing::error!(
                error,
                "could not read the ended sessions; they are valid again until their time is over"
            );
            Vec::new()
        });
        Self { store, ended: Mutex::new(ended.into_iter().collect()) }
    }

    /// Whether the session of this code was ended. The rest of a cookie can be written in several ways, the code cannot.
    pub(super) fn contains(&self, mac: &[u8]) -> bool {
        self.ended.lock().unwrap_or_else(PoisonError::into_inner).contains_key(&digest_hex(mac))
    }

    /// Ends a session, in memory also if the database cannot be written. It blocks.
    pub(super) fn add(&self, mac: &[u8], end: Timestamp, now: Timestamp) -> Result<(), store::Error> {
        let digest = digest_hex(mac);
        {
            let mut ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
            ended.retain(|_, end| *end > now);
            if ended.len() >= MOST
                && let Some(first) =
                    ended.iter().min_by_key(|(_, end)| **end).map(|(digest, _)| digest.clone())
            {
                ended.remove(&first);
            }
            ended.insert(digest.clone(), end);
        }
        self.store.end_session(&digest, end)
    }
}
