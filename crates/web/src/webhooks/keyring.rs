//! The secrets and paths of all webhooks. Secrets are read again every few seconds, so they can be changed while the
//! agent runs. A webhook without a usable secret is off.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError, RwLock},
    time::Duration,
};

use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;
use tokio::time::Instant;

use driftless_config::{Repository, Secret, Webhook};
use driftless_forge::webhook::Key;
use driftless_git::{Lookup, read_secret};
use driftless_model::{WebhookProvider, digest_hex};

/// Time after which a secret is read again.
const FRESH: Duration = Duration::from_secs(5);

/// The configuration of one webhook.
pub(super) struct Hook {
    pub(super) repository: Repository,
    pub(super) provider: WebhookProvider,
    pub(super) secret: Secret,
    previous: Option<Secret>,
    id: Option<String>,
}

pub(super) struct Keyring {
    hooks: Vec<Arc<Hook>>,
    environment: Lookup,
    held: RwLock<Arc<Snapshot>>,
    refreshing: Mutex<()>,
}

/// The secrets as they were read last.
pub(super) struct Snapshot {
    at: Instant,
    /// By repository name: the active webhook, or why it is off.
    hooks: BTreeMap<String, Result<Arc<ActiveWebhook>, String>>,
}

/// A webhook with its secrets.
pub(super) struct ActiveWebhook {
    pub(super) hook: Arc<Hook>,
    /// The last segment of its path.
    pub(super) id: String,
    /// Digests of the last segments that lead to it; two while the secret is rotated.
    ids: Vec<[u8; 32]>,
    pub(super) keys: Vec<Key>,
}

impl Snapshot {
    pub(super) fn of(&self, repository: &str) -> Result<&ActiveWebhook, &str> {
        match self.hooks.get(repository) {
            Some(Ok(armed)) => Ok(armed),
            Some(Err(why)) => Err(why),
            None => Err("it is not configured"),
        }
    }

    /// Compares with every webhook, so that the time reveals nothing.
    pub(super) fn find(&self, id: &str) -> Option<Arc<ActiveWebhook>> {
        let given = digest(id);
        let mut found = None;
        for armed in self.hooks.values().flatten() {
            for id in &armed.ids {
                if bool::from(id.ct_eq(&given)) {
                    found = Some(Arc::clone(armed));
                }
            }
        }
        found
    }
}

impl Keyring {
    pub(super) fn new(repositories: &[Repository], environment: Lookup) -> Self {
        let hooks: Vec<Arc<Hook>> =
            repositories.iter().filter_map(|it| Hook::new(it).map(Arc::new)).collect();
        let held = RwLock::new(Arc::new(read_all(&hooks, &environment, None)));
        Self { hooks, environment, held, refreshing: Mutex::default() }
    }

    pub(super) fn hooks(&self) -> impl Iterator<Item = &Hook> {
        self.hooks.iter().map(AsRef::as_ref)
    }

    pub(super) fn held(&self) -> Arc<Snapshot> {
        self.held.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn is_stale(&self) -> bool {
        !self.hooks.is_empty() && self.held().at.elapsed() >= FRESH
    }

    /// Reads all secrets again; blocks on the disk. Concurrent callers use the previous secrets.
    pub(super) fn refresh(&self) {
        let Ok(_guard) = self.refreshing.try_lock() else { return };
        let new = read_all(&self.hooks, &self.environment, Some(&self.held()));
        *self.held.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(new);
    }
}

impl Hook {
    fn new(repository: &Repository) -> Option<Self> {
        let Webhook { provider, secret, previous, id } = repository.webhook.clone()?;
        Some(Self { repository: repository.clone(), provider, secret, previous, id })
    }

    fn activate(self: &Arc<Self>, environment: &Lookup) -> Result<ActiveWebhook, String> {
        let read = |secret: &Secret| -> Result<(String, Key), String> {
            let text = read_secret(secret, environment)?;
            let key = Key::new(self.provider, &text).map_err(|error| error.to_string())?;
            Ok((text, key))
        };
        let (secret, key) = read(&self.secret)?;
        let id = self.id.clone().unwrap_or_else(|| self.derive(&secret));
        let (mut ids, mut keys) = (vec![digest(&id)], vec![key]);
        if let Some(previous) = &self.previous {
            // The previous secret exists only during rotation; without it the current one is still used.
            match read(previous) {
                Ok((secret, key)) => {
                    keys.push(key);
                    if self.id.is_none() {
                        ids.push(digest(&self.derive(&secret)));
                    }
                }
                Err(error) => {
                    let repository = &self.repository.name;
                    tracing::debug!(repository, error, "the webhook's previous secret is not used");
                }
            }
        }
        Ok(ActiveWebhook { hook: Arc::clone(self), id, ids, keys })
    }

    /// The path's last segment: derived from the secret, so it cannot be guessed and survives restarts.
    fn derive(&self, secret: &str) -> String {
        digest_hex(format!("{secret}|{}", self.repository.name).as_bytes())
    }
}

fn read_all(hooks: &[Arc<Hook>], environment: &Lookup, before: Option<&Snapshot>) -> Snapshot {
    let mut all = BTreeMap::new();
    for hook in hooks {
        let armed = hook.activate(environment).map(Arc::new);
        let name = &hook.repository.name;
        let was_off = before.is_some_and(|it| it.of(name).is_err());
        match &armed {
            Err(why) if !was_off => tracing::warn!(repository = name, why, "the webhook is off"),
            Ok(_) if was_off => tracing::info!(repository = name, "the webhook is on again"),
            Ok(_) | Err(_) => {}
        }
        all.insert(name.clone(), armed);
    }
    Snapshot { at: Instant::now(), hooks: all }
}

fn digest(id: &str) -> [u8; 32] {
    Sha256::digest(id).into()
}
