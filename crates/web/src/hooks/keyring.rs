//! The secrets of all webhooks, read anew every few seconds so that they can be changed while the agent runs,
//! and the paths that belong to them. A webhook without a usable secret is off.

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
use driftless_model::{HookProvider, digest_hex};

/// How long a secret that was read is good for.
const FRESH: Duration = Duration::from_secs(5);

/// One webhook, as it is configured.
pub(super) struct Hook {
    pub(super) repository: Repository,
    pub(super) provider: HookProvider,
    pub(super) secret: Secret,
    previous: Option<Secret>,
    id: Option<String>,
}

pub(super) struct Keyring {
    hooks: Vec<Arc<Hook>>,
    environment: Lookup,
    held: RwLock<Arc<Held>>,
    refreshing: Mutex<()>,
}

/// The secrets, as of some moment.
pub(super) struct Held {
    at: Instant,
    /// By the repository's name: what is armed, or why it is not.
    hooks: BTreeMap<String, Result<Arc<Armed>, String>>,
}

/// A webhook with its secrets.
pub(super) struct Armed {
    pub(super) hook: Arc<Hook>,
    /// The end of its path.
    pub(super) id: String,
    /// Digests of all paths' ends that lead to it: while the secret is being changed there are two.
    ids: Vec<[u8; 32]>,
    pub(super) keys: Vec<Key>,
}

impl Held {
    pub(super) fn of(&self, repository: &str) -> Result<&Armed, &str> {
        match self.hooks.get(repository) {
            Some(Ok(armed)) => Ok(armed),
            Some(Err(why)) => Err(why),
            None => Err("it is not configured"),
        }
    }

    /// Compares with every webhook there is, so that the time tells nothing.
    pub(super) fn find(&self, id: &str) -> Option<Arc<Armed>> {
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

    pub(super) fn held(&self) -> Arc<Held> {
        self.held.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn is_stale(&self) -> bool {
        !self.hooks.is_empty() && self.held().at.elapsed() >= FRESH
    }

    /// Reads all secrets again. Blocks on the disk. One at a time; whoever comes meanwhile takes what there is.
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

    fn arm(self: &Arc<Self>, environment: &Lookup) -> Result<Armed, String> {
        let read = |secret: &Secret| -> Result<(String, Key), String> {
            let text = read_secret(secret, environment)?;
            let key = Key::new(self.provider, &text).map_err(|error| error.to_string())?;
            Ok((text, key))
        };
        let (secret, key) = read(&self.secret)?;
        let id = self.id.clone().unwrap_or_else(|| self.derive(&secret));
        let (mut ids, mut keys) = (vec![digest(&id)], vec![key]);
        if let Some(previous) = &self.previous {
            // It is there for a while only; without it the other is good all the same.
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
        Ok(Armed { hook: Arc::clone(self), id, ids, keys })
    }

    /// Not to be guessed without the secret, and the same after every restart.
    fn derive(&self, secret: &str) -> String {
        digest_hex(format!("{secret}|{}", self.repository.name).as_bytes())
    }
}

fn read_all(hooks: &[Arc<Hook>], environment: &Lookup, before: Option<&Held>) -> Held {
    let mut all = BTreeMap::new();
    for hook in hooks {
        let armed = hook.arm(environment).map(Arc::new);
        let name = &hook.repository.name;
        let was_off = before.is_some_and(|it| it.of(name).is_err());
        match &armed {
            Err(why) if !was_off => tracing::warn!(repository = name, why, "the webhook is off"),
            Ok(_) if was_off => tracing::info!(repository = name, "the webhook is on again"),
            Ok(_) | Err(_) => {}
        }
        all.insert(name.clone(), armed);
    }
    Held { at: Instant::now(), hooks: all }
}

fn digest(id: &str) -> [u8; 32] {
    Sha256::digest(id).into()
}
