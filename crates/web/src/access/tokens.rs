//! Named tokens, kept in memory for every request and stored in the database.

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError, RwLock},
};

use driftless_model::{ApiToken, Timestamp, digest_hex};
use driftless_store as store;
use driftless_store::{Store, TOKEN_PREFIX};

/// The tokens of the database. The agent is the only one that writes them.
pub(crate) struct TokenRegistry {
    store: Store,
    /// By the digest of the secret.
    tokens: RwLock<BTreeMap<String, ApiToken>>,
    /// Held while the database and the memory change: a token that is being revoked must not be read into the memory again.
    changing: Mutex<()>,
}

/// A token that was found by its secret.
pub(super) enum Found {
    Valid(ApiToken),
    Expired(ApiToken),
}

impl TokenRegistry {
    /// Reads the tokens. If that fails, none is accepted until one is created or revoked.
    pub(super) fn load(store: Store) -> Self {
        let registry = Self { store, tokens: RwLock::default(), changing: Mutex::default() };
        if let Err(error) = registry.reload() {
            tracing::error!(
                error = &error as &dyn std::error::Error,
                "could not read the tokens; they are refused"
            );
        }
        registry
    }

    fn reload(&self) -> Result<(), store::Error> {
        let tokens = self.store.tokens()?.into_iter().collect();
        *self.tokens.write().unwrap_or_else(PoisonError::into_inner) = tokens;
        Ok(())
    }

    pub(super) fn find(&self, secret: &str, now: Timestamp) -> Option<Found> {
        if !secret.starts_with(TOKEN_PREFIX) {
            return None;
        }
        let tokens = self.tokens.read().unwrap_or_else(PoisonError::into_inner);
        let token = tokens.get(&digest_hex(secret.as_bytes()))?.clone();
        Some(if token.has_expired(now) { Found::Expired(token) } else { Found::Valid(token) })
    }

    /// The token of this name, unless it has expired.
    pub(super) fn named(&self, name: &str, now: Timestamp) -> Option<ApiToken> {
        let tokens = self.tokens.read().unwrap_or_else(PoisonError::into_inner);
        tokens.values().find(|token| token.name == name && !token.has_expired(now)).cloned()
    }

    /// The digest of a token's secret.
    pub(super) fn digest(&self, name: &str) -> Option<Vec<u8>> {
        let tokens = self.tokens.read().unwrap_or_else(PoisonError::into_inner);
        let found = tokens.iter().find(|(_, token)| token.name == name)?;
        Some(found.0.clone().into_bytes())
    }

    /// Writes the database, so it blocks.
    pub(crate) fn create(&self, token: &ApiToken) -> Result<Option<String>, store::Error> {
        let _changing = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let secret = self.store.create_token(token)?;
        self.reload()?;
        Ok(secret)
    }

    /// Writes the database, so it blocks.
    pub(crate) fn revoke(&self, name: &str) -> Result<Option<usize>, store::Error> {
        // From here on it is refused, also if the database cannot be written.
        self.refuse(name);
        let _changing = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let revoked = self.store.revoke_token(name);
        // A token that was created meanwhile may have brought it back into the memory.
        self.refuse(name);
        revoked
    }

    fn refuse(&self, name: &str) {
        self.tokens.write().unwrap_or_else(PoisonError::into_inner).retain(|_, token| token.name != name);
    }

    pub(crate) fn count(&self) -> usize {
        self.tokens.read().unwrap_or_else(PoisonError::into_inner).len()
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use driftless_clock::Clock;
    use driftless_model::{Actor, Scope};

    use super::*;

    #[test]
    fn creation_does_not_bring_a_revoked_token_back() {
        let now = Timestamp(1);
        let registry = TokenRegistry::load(Store::in_memory(Clock::starting_at(now)).unwrap());
        let (scopes, created_by) = (vec![Scope::Read], Actor::agent());
        let token = ApiToken { name: "ci".to_owned(), scopes, created: now, created_by, expires: None };
        let secret = registry.create(&token).unwrap().unwrap();
        thread::scope(|scope| {
            let creating = registry.changing.lock().unwrap();
            let revoking = scope.spawn(|| registry.revoke("ci"));
            let mut looks = (0..50_000_000).map(|_| {
                thread::yield_now();
                registry.find(&secret, now)
            });
            assert!(looks.any(|found| found.is_none()), "a revocation waits for no creation");
            // The creation of another token reads the database, which has this one still.
            registry.reload().unwrap();
            assert!(registry.find(&secret, now).is_some());
            drop(creating);
            assert_eq!(revoking.join().unwrap().unwrap(), Some(0));
        });
        assert!(registry.find(&secret, now).is_none() && registry.store.tokens().unwrap().is_empty());
    }
}
