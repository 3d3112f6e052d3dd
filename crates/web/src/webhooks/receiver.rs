//! The webhooks of all repositories: their keys, their limits, and the last deliveries.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tokio::{sync::Semaphore, time::Instant};

use super::{
    keyring,
    keyring::{Hook, Keyring},
};
use crate::rates::Rates;
use driftless_agent::{Auditor, Handle};
use driftless_clock::Clock;
use driftless_config::{Settings, local_url};
use driftless_forge::webhook;
use driftless_git::Lookup;
use driftless_model::{Delivery, WebhookSecret, WebhookStatus};
use driftless_store as store;
use driftless_store::Store;

/// The largest payload that is read, in bytes.
pub(super) const BODY_LIMIT: usize = 3 * 1024 * 1024;

/// Time for a client to send its payload.
pub(super) const BODY_WITHIN: Duration = Duration::from_secs(10);

/// The memory for all payloads that are read at the same time, in KiB.
const BODIES_LIMIT: usize = 32 * 1024;

/// Maximum number of deliveries that wait to be stored.
const QUEUE: usize = 64;

/// Shortest time between two log lines about refused deliveries of a webhook.
const LOG_EVERY: Duration = Duration::from_mins(1);

/// Receives deliveries for all repositories that have a webhook. Cheap to clone.
#[derive(Clone)]
pub struct WebhookReceiver(pub(super) Arc<Inner>);

pub(super) struct Inner {
    pub(super) handle: Handle,
    pub(super) store: Store,
    pub(super) clock: Clock,
    pub(super) auditor: Auditor,
    pub(super) keyring: Keyring,
    /// The external URL before `/hook/…`.
    base: String,
    local: String,
    pub(super) rates: Rates,
    pub(super) bodies: Arc<Semaphore>,
    pub(super) queue: Arc<Semaphore>,
    seen: Mutex<BTreeMap<String, Seen>>,
}

/// Deliveries of one webhook since the agent started that are not in the store.
#[derive(Default)]
struct Seen {
    last: Option<Delivery>,
    refused: Option<Delivery>,
    told: Option<Instant>,
}

impl WebhookReceiver {
    pub fn new(handle: Handle, store: Store, settings: &Settings, environment: Lookup, clock: Clock) -> Self {
        let (address, has_tls) = match settings.webhooks.listen {
            Some(address) => (address, settings.webhooks.tls.is_some()),
            None => (settings.listen, settings.tls.is_some()),
        };
        let scheme = if has_tls { "https" } else { "http" };
        let base = settings.webhooks.url.clone().unwrap_or_else(|| format!("{scheme}://{address}"));
        let auditor = Auditor::new(store.clone(), settings.audit.clone(), clock);
        Self(Arc::new(Inner {
            handle,
            store,
            clock,
            auditor,
            keyring: Keyring::new(&settings.repositories, environment),
            base,
            local: local_url(address, has_tls),
            rates: Rates::new(),
            bodies: Arc::new(Semaphore::new(BODIES_LIMIT)),
            queue: Arc::new(Semaphore::new(QUEUE)),
            seen: Mutex::default(),
        }))
    }

    /// Whether any webhook is configured.
    pub fn is_needed(&self) -> bool {
        self.0.keyring.hooks().next().is_some()
    }

    /// The status of each webhook. Reads files and the store, so it blocks.
    pub(crate) fn statuses(&self) -> Result<Vec<WebhookStatus>, store::Error> {
        self.0.keyring.refresh();
        let held = self.0.keyring.held();
        self.0.keyring.hooks().map(|hook| self.status(hook, &held)).collect()
    }

    fn status(&self, hook: &Hook, held: &keyring::Snapshot) -> Result<WebhookStatus, store::Error> {
        let Inner { store, seen, base, local, .. } = self.0.as_ref();
        let name = hook.repository.name.as_str();
        let kept = store.last_delivery(name)?;
        let (last, last_refused) = {
            let seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
            let heard = seen.get(name);
            (heard.and_then(|it| it.last.clone()), heard.and_then(|it| it.refused.clone()))
        };
        // The store has the outcome.
        let last = match (last, kept) {
            (Some(heard), Some(kept)) if heard.at > kept.at => Some(heard),
            (heard, kept) => kept.or(heard),
        };
        let armed = held.of(name);
        let path = armed.ok().map(|it| format!("/hook/{}", it.id));
        let under = |base: &str| path.as_ref().map(|path| format!("{base}{path}")).unwrap_or_default();
        Ok(WebhookStatus {
            repository: name.to_owned(),
            provider: hook.provider,
            url: under(base),
            local_url: under(local),
            secret: match &hook.secret {
                driftless_config::Secret::File(path) => WebhookSecret::File(path.clone()),
                driftless_config::Secret::Environment(name) | driftless_config::Secret::Plain(name) => {
                    WebhookSecret::Variable(name.clone())
                }
            },
            reference: webhook::full_name(&hook.repository.reference).unwrap_or_default(),
            repository_url: hook.repository.url.to_string(),
            trouble: armed.err().map(str::to_owned),
            last,
            last_refused,
            pending: store.count_open_deliveries(name)?,
            missed: store.missed(name)?,
        })
    }

    pub(super) fn note(&self, repository: &str, delivery: Delivery) {
        self.0.handle.metrics().delivered(repository, delivery.result);
        let mut seen = self.0.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.entry(repository.to_owned()).or_default().last = Some(delivery);
    }

    /// Returns whether the refusal should be logged as well.
    pub(super) fn note_refused(&self, repository: &str, delivery: Delivery) -> bool {
        self.0.handle.metrics().delivered(repository, delivery.result);
        let mut seen = self.0.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let seen = seen.entry(repository.to_owned()).or_default();
        seen.refused = Some(delivery);
        let is_due = seen.told.is_none_or(|it| it.elapsed() >= LOG_EVERY);
        if is_due {
            seen.told = Some(Instant::now());
        }
        is_due
    }
}
