//! The collectors that this agent has joined. Requests to them are signed with the key of the agent and carry a counter.
//!
//! A collector accepts a counter only once and only if it is higher than the last one, so requests to one collector are sent
//! one after the other.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, Mutex, PoisonError},
};

use driftless_clock::Clock;
use driftless_config::{FleetPlace, FleetReports};
use driftless_fleet::{AgentKey, HostSignature, InvalidKey, PublicKey, SignedParts};
use driftless_git::Lookup;
use driftless_store as store;
use driftless_store::{Store, StoredEnrolment};
use tokio::sync::{OwnedMutexGuard, watch};

use crate::{error::chain, fleet::report_error::ReportError};

/// The counters that are reserved with one write.
const RESERVED: u64 = 1000;

/// The collectors that this agent has joined. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct Enrolments(Option<Arc<EnrolledAgent>>);

struct EnrolledAgent {
    store: Store,
    clock: Clock,
    environment: Lookup,
    /// The name of this host.
    host: String,
    /// The id of this machine.
    instance: String,
    /// The places of the configuration.
    places: Vec<FleetPlace>,
    signers: Mutex<Signers>,
    /// Sent when a collector is joined or left.
    changes: watch::Sender<()>,
}

impl fmt::Debug for EnrolledAgent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Enrolments").field("host", &self.host).finish_non_exhaustive()
    }
}

/// Waits for collectors that are joined or left.
pub(crate) struct EnrolmentChanges(Option<watch::Receiver<()>>);

/// The joined collectors by URL, each with the reason if requests to it cannot be signed.
type Signers = BTreeMap<String, Result<Signer, String>>;

/// Signs the requests to one collector.
#[derive(Clone)]
struct Signer {
    key: Arc<AgentKey>,
    collector: PublicKey,
    counters: Arc<tokio::sync::Mutex<Counters>>,
}

/// The reserved counters that are left.
#[derive(Debug, Default)]
struct Counters {
    next: u64,
    left: u64,
}

/// The parts of a request that a signature covers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Unsigned<'a> {
    pub(crate) method: &'a http::Method,
    pub(crate) path: &'a str,
    pub(crate) report: &'a str,
    pub(crate) instance: &'a str,
    pub(crate) body: &'a [u8],
}

/// The signature of one request. No other request is sent to this collector until it is dropped.
pub(crate) struct SigningTurn {
    pub(crate) signature: HostSignature,
    /// The key of the collector.
    pub(crate) collector: PublicKey,
    _counters: OwnedMutexGuard<Counters>,
}

/// The key or the database of this agent cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// The file or the database.
    #[error(transparent)]
    State(#[from] store::Error),
    /// The library refuses the key.
    #[error(transparent)]
    Key(#[from] InvalidKey),
    /// There is no state directory, or the agent is stopping.
    #[error("the agent is stopping")]
    NoState,
}

/// This host and the places that it reports to.
pub(crate) struct ReportingHost<'a> {
    pub(crate) host: &'a str,
    pub(crate) instance: &'a str,
    pub(crate) places: &'a [FleetPlace],
    pub(crate) environment: &'a Lookup,
}

impl Enrolments {
    /// The enrolments in the database. Reads it, so it blocks.
    pub fn load(
        store: &Store,
        settings: &FleetReports,
        (host, instance): (&str, &str),
        environment: &Lookup,
        clock: Clock,
    ) -> Self {
        let signers = load_signers(store).unwrap_or_else(|error| {
            tracing::error!(error, "could not read the enrolments; nothing is reported to collectors");
            settings.to.iter().map(|place| (place.url.clone(), Err(error.clone()))).collect()
        });
        Self(Some(Arc::new(EnrolledAgent {
            store: store.clone(),
            clock,
            environment: environment.clone(),
            host: host.to_owned(),
            instance: instance.to_owned(),
            places: settings.to.clone(),
            signers: Mutex::new(signers),
            changes: watch::Sender::new(()),
        })))
    }

    /// Whether requests to this collector are signed.
    pub fn has(&self, url: &str) -> bool {
        self.signer(url).is_some()
    }

    /// The other URLs at which this agent has joined the same collector, as after a collector got a name or TLS.
    pub(crate) fn other_urls(&self, url: &str) -> Vec<String> {
        let Some(shared) = &self.0 else { return Vec::new() };
        let signers = shared.signers.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(own) = signers.get(url).and_then(collector_of) else { return Vec::new() };
        let others =
            signers.iter().filter(|(other, signer)| *other != url && collector_of(signer) == Some(own));
        others.map(|(other, _)| other.clone()).collect()
    }

    /// The database of this agent, if it has joined a collector or may join one.
    pub(crate) fn store(&self) -> Option<&Store> {
        self.0.as_deref().map(|agent| &agent.store)
    }

    /// The collectors that are joined or left from now on.
    pub(crate) fn changes(&self) -> EnrolmentChanges {
        EnrolmentChanges(self.0.as_ref().map(|shared| shared.changes.subscribe()))
    }

    fn signer(&self, url: &str) -> Option<Result<Signer, String>> {
        let signers = self.0.as_ref()?.signers.lock().unwrap_or_else(PoisonError::into_inner);
        signers.get(url).cloned()
    }

    /// Signs a request to a collector. `None`: this agent has not joined it.
    pub(crate) async fn sign(
        &self,
        url: &str,
        request: &Unsigned<'_>,
    ) -> Result<Option<SigningTurn>, ReportError> {
        let (Some(shared), Some(signer)) = (&self.0, self.signer(url)) else { return Ok(None) };
        let signer = signer.map_err(ReportError::Key)?;
        let mut counters = signer.counters.lock_owned().await;
        if counters.left == 0 {
            let (store, url, now) = (shared.store.clone(), url.to_owned(), shared.clock.now());
            let reserve = move || store.reserve_fleet_counters(&url, RESERVED, now);
            let reserved = tokio::task::spawn_blocking(reserve).await;
            let first = match reserved {
                Ok(Ok(first)) => first,
                Ok(Err(error)) => return Err(ReportError::Counter(chain(&error))),
                Err(error) => return Err(ReportError::Counter(error.to_string())),
            };
            *counters = Counters { next: first, left: RESERVED };
        }
        let counter = counters.next;
        counters.next += 1;
        counters.left -= 1;
        let Unsigned { method, path, report, instance, body } = *request;
        let parts =
            SignedParts { collector: &signer.collector, method: method.as_str(), path, report, instance };
        let signature = HostSignature::new(&signer.key, &shared.host, counter, body, &parts);
        let signature = signature.map_err(|error| ReportError::Counter(error.to_string()))?;
        Ok(Some(SigningTurn { signature, collector: signer.collector, _counters: counters }))
    }

    /// This host and the places that it reports to. `None`: it reports to none.
    pub(crate) fn reporter(&self) -> Option<ReportingHost<'_>> {
        let EnrolledAgent { environment, host, instance, places, .. } = &**self.0.as_ref()?;
        Some(ReportingHost { host, instance, places, environment })
    }

    /// The key of this agent, which is made at the first use.
    pub(crate) async fn own_key(&self) -> Result<AgentKey, KeyError> {
        let shared = self.0.clone().ok_or(KeyError::NoState)?;
        tokio::task::spawn_blocking(move || own_key(&shared.store)).await.map_err(|_| KeyError::NoState)?
    }

    /// Stores the key of a collector that has accepted the key of this agent. From now on requests to it are signed.
    pub(crate) async fn remember(
        &self,
        url: &str,
        key: AgentKey,
        collector: PublicKey,
    ) -> Result<(), KeyError> {
        let shared = self.0.clone().ok_or(KeyError::NoState)?;
        let enrolment = StoredEnrolment {
            url: url.to_owned(),
            collector: collector.to_string(),
            host: shared.host.clone(),
            joined: shared.clock.now(),
        };
        let store = shared.store.clone();
        let stored = tokio::task::spawn_blocking(move || store.set_enrolment(&enrolment)).await;
        stored.map_err(|_| KeyError::NoState)??;
        let mut signers = shared.signers.lock().unwrap_or_else(PoisonError::into_inner);
        // Counters that are reserved already stay in use.
        let known = signers.get(url).and_then(|signer| signer.as_ref().ok());
        let counters = known.map(|signer| Arc::clone(&signer.counters)).unwrap_or_default();
        signers.insert(url.to_owned(), Ok(Signer { key: Arc::new(key), collector, counters }));
        drop(signers);
        shared.changes.send_replace(());
        Ok(())
    }

    /// Forgets the key of a collector. From now on requests to it are not signed.
    pub(crate) async fn forget(&self, url: &str) -> Result<(), KeyError> {
        let shared = self.0.clone().ok_or(KeyError::NoState)?;
        let (store, left) = (shared.store.clone(), url.to_owned());
        let stored = tokio::task::spawn_blocking(move || store.forget_enrolment(&left)).await;
        stored.map_err(|_| KeyError::NoState)??;
        shared.signers.lock().unwrap_or_else(PoisonError::into_inner).remove(url);
        shared.changes.send_replace(());
        Ok(())
    }
}

impl EnrolmentChanges {
    /// Waits for the next change, also one during the last report.
    pub(crate) async fn next(&mut self) {
        let is_open = match &mut self.0 {
            Some(changes) => changes.changed().await.is_ok(),
            None => false,
        };
        if !is_open {
            std::future::pending::<()>().await;
        }
    }

    /// The next report is made after all changes until now.
    pub(crate) fn mark_seen(&mut self) {
        if let Some(changes) = &mut self.0 {
            changes.mark_unchanged();
        }
    }
}

/// The key of a collector.
fn collector_of(signer: &Result<Signer, String>) -> Option<PublicKey> {
    signer.as_ref().ok().map(|signer| signer.collector)
}

/// Reads or writes the key file, so it blocks.
fn own_key(store: &Store) -> Result<AgentKey, KeyError> {
    Ok(AgentKey::from_seed(&store.fleet_key_seed()?)?)
}

/// One key or enrolment that cannot be used is an error of its collectors alone: a bucket needs no key.
fn load_signers(store: &Store) -> Result<Signers, String> {
    let stored = store.enrolments().map_err(|error| chain(&error))?;
    if stored.is_empty() {
        return Ok(Signers::new());
    }
    let key = own_key(store).map(Arc::new).map_err(|error| chain(&error));
    let signers = stored.into_iter().map(|StoredEnrolment { url, collector, host: _, joined: _ }| {
        let signer = match (&key, collector.parse()) {
            (Ok(key), Ok(collector)) => {
                Ok(Signer { key: Arc::clone(key), collector, counters: Arc::default() })
            }
            (Err(error), _) => Err(error.clone()),
            (Ok(_), Err(error)) => {
                Err(format!("the stored key of the collector cannot be used ({error}): join it again"))
            }
        };
        if let Err(error) = &signer {
            tracing::error!(url, error, "could not sign reports to a collector");
        }
        (url, signer)
    });
    Ok(signers.collect())
}
