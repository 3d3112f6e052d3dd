//! Watches the ends of the agent's own certificates, of the keys that may sign commits, and of API tokens.
//!
//! The files are read once a minute, so that a renewed certificate ends the warning without a restart.

use std::{path::PathBuf, time::Duration};

use driftless_clock::Clock;
use driftless_config::{Settings, Verify};
use driftless_git::signing_key_ends;
use driftless_model::{Expiry, Timestamp};
use driftless_store::Store;
use driftless_trust::validity;
use tokio::time::sleep;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{Handle, error::chain, lasting_tasks};

/// The time between two looks.
const INTERVAL: Duration = Duration::from_mins(1);

/// The subject of the problem in the status of the agent.
const SUBJECT: &str = "expiry";

/// Keys and tokens that have ended are named for this long. A certificate of the agent is named until it is replaced.
const NAMED_AFTER_END: Duration = Duration::from_hours(7 * 24);

/// A token with a shorter lifetime is meant to end.
const SHORTEST_TOKEN: Duration = Duration::from_hours(30 * 24);

/// The most sentences in one problem.
const MOST_SENTENCES: usize = 5;

/// The files whose ends are watched.
#[derive(Clone)]
struct WatchedEnds {
    /// Keys of the configuration, with the file of the certificate.
    certificates: Vec<(&'static str, PathBuf)>,
    /// Keys of the configuration, with the rules on signatures.
    signatures: Vec<(String, Verify)>,
    store: Store,
}

/// Starts the task that looks at the ends, and keeps the problem `expiry` of the agent.
pub(crate) fn start_expiry_watch(
    settings: &Settings,
    handle: &Handle,
    (store, clock): (&Store, Clock),
    stop: &CancellationToken,
    tasks: &TaskTracker,
) {
    let certificate = |tls: &driftless_config::ListenTls| tls.cert_file.clone();
    let certificates = [
        ("tls", settings.tls.as_ref().map(certificate)),
        ("webhooks.tls", settings.webhooks.tls.as_ref().map(certificate)),
        ("metrics.tls", settings.metrics.tls.as_ref().map(certificate)),
        (
            "docker.tls",
            settings
                .docker
                .tls
                .as_ref()
                .and_then(|tls| tls.client.as_ref())
                .map(|(certificate, _)| certificate.clone()),
        ),
    ];
    let certificates = certificates.into_iter().filter_map(|(key, path)| Some((key, path?))).collect();
    let signatures = settings.repositories.iter().filter_map(|repository| {
        Some((format!("verify of {}", repository.name), repository.verify.clone()?))
    });
    let watched = WatchedEnds { certificates, signatures: signatures.collect(), store: store.clone() };
    let (handle, stop) = (handle.clone(), stop.clone());
    lasting_tasks::start("certificates", (stop.clone(), tasks), async move {
        loop {
            let (watched, now) = (watched.clone(), clock.now());
            // Reads files and the database.
            if let Ok(found) = tokio::task::spawn_blocking(move || watched.read(now)).await {
                handle.problems().set(SUBJECT, problem(&found, now));
                handle.expiries().set(found);
            }
            tokio::select! {
                () = stop.cancelled() => return,
                () = sleep(INTERVAL) => {}
            }
        }
    });
}

impl WatchedEnds {
    /// A file that cannot be read has no end here: what needs it says so.
    fn read(&self, now: Timestamp) -> Vec<Expiry> {
        let certificates = self.certificates.iter().filter_map(|(key, path)| {
            let validity = validity(path).inspect_err(|error| {
                tracing::debug!(key, error = chain(error), "the end of a certificate cannot be read");
            });
            let validity = validity.ok()?;
            Some(Expiry {
                subject: (*key).to_owned(),
                what: format!("the certificate {}", path.display()),
                begins: seconds(validity.from),
                ends: seconds(validity.until),
            })
        });
        let keys = self.signatures.iter().flat_map(|(key, verify)| {
            let ends = signing_key_ends(verify).unwrap_or_default().into_iter();
            ends.map(move |end| Expiry {
                subject: key.clone(),
                what: format!("the OpenPGP key {}", end.fingerprint),
                begins: end.created,
                ends: end.ends,
            })
        });
        let tokens = self.store.tokens().unwrap_or_default().into_iter().filter_map(|(_, token)| {
            let (begins, ends) = (token.created, token.expires?);
            let what = "the token".to_owned();
            (ends.since(begins) >= SHORTEST_TOKEN).then(|| Expiry {
                subject: format!("token {}", token.name),
                what,
                begins,
                ends,
            })
        });
        let recent = |expiry: &Expiry| now.since(expiry.ends) < NAMED_AFTER_END;
        certificates.chain(keys.chain(tokens).filter(recent)).collect()
    }
}

fn seconds(seconds: u64) -> Timestamp {
    Timestamp(seconds.saturating_mul(1000))
}

/// The ends that are soon, in words.
fn problem(expiries: &[Expiry], now: Timestamp) -> Option<String> {
    let soon: Vec<String> =
        expiries.iter().filter(|expiry| expiry.is_soon(now)).map(|expiry| expiry.sentence(now)).collect();
    let more = soon.len().saturating_sub(MOST_SENTENCES);
    let text = soon.into_iter().take(MOST_SENTENCES).collect::<Vec<_>>().join("; ");
    match (text.is_empty(), more) {
        (true, _) => None,
        (false, 0) => Some(text),
        (false, more) => Some(format!("{text}; and {more} more")),
    }
}
