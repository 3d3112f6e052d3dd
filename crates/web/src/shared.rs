//! The state that all handlers share, and reading from the store.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::{
    access::Authenticator,
    error::Error,
    limits::{MOST_STREAMS, MOST_WAITS},
    webhooks::WebhookReceiver,
};
use driftless_agent::{Auditor, Handle};
use driftless_clock::Clock;
use driftless_store as store;
use driftless_store::Store;

/// State shared by all handlers.
#[derive(Clone)]
pub(super) struct Shared {
    pub(super) handle: Handle,
    pub(super) store: Store,
    pub(super) authenticator: Arc<Authenticator>,
    pub(super) auditor: Arc<Auditor>,
    pub(super) clock: Clock,
    pub(super) hooks: WebhookReceiver,
    /// Streams of events and logs that are open at the same time.
    streams: Arc<Semaphore>,
    /// Requests that wait for a state at the same time.
    waits: Arc<Semaphore>,
}

impl Shared {
    pub(super) fn new(
        handle: Handle,
        store: Store,
        authenticator: Arc<Authenticator>,
        auditor: Arc<Auditor>,
        hooks: WebhookReceiver,
        clock: Clock,
    ) -> Self {
        let streams = Arc::new(Semaphore::new(MOST_STREAMS));
        let waits = Arc::new(Semaphore::new(MOST_WAITS));
        Self { handle, store, authenticator, auditor, clock, hooks, streams, waits }
    }

    /// A permit for one request that waits for a state.
    pub(super) fn wait_permit(&self) -> Result<OwnedSemaphorePermit, Error> {
        Arc::clone(&self.waits).try_acquire_owned().map_err(|_| {
            Error::Busy(format!("{MOST_WAITS} requests wait for a state already: read the status instead"))
        })
    }

    /// A permit for one stream of events or logs.
    pub(super) fn stream_permit(&self) -> Result<OwnedSemaphorePermit, Error> {
        Arc::clone(&self.streams).try_acquire_owned().map_err(|_| {
            Error::Busy(format!("there are {MOST_STREAMS} streams of events and logs: close one"))
        })
    }
}

/// Reads from the store on a thread that may block.
pub(super) async fn read<T: Send + 'static>(
    store: &Store,
    query: impl FnOnce(&Store) -> Result<T, store::Error> + Send + 'static,
) -> Result<T, Error> {
    let store = store.clone();
    let result = tokio::task::spawn_blocking(move || query(&store)).await;
    match result {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(error)) => {
            tracing::error!(error = &error as &dyn std::error::Error, "the API could not read the store");
            Err(Error::Database)
        }
        // The runtime is shutting down, or the query panicked and the panic is in the log.
        Err(_) => Err(Error::Stopping),
    }
}
