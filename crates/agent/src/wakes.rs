//! Who is woken when. A wake carries no data: whatever rang, the round looks at everything afresh.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tokio::{
    sync::{Notify, broadcast::error::RecvError, watch},
    time::{MissedTickBehavior, interval},
};
use tokio_util::sync::CancellationToken;

use driftless_docker::{Docker, EngineEvent};
use driftless_model::AppName;

/// A look at everything, whether or not anything was heard of.
const FULL_PASS: Duration = Duration::from_mins(5);

/// The bells of all applications, or of all repositories by their names.
#[derive(Clone, Debug)]
pub(crate) struct Wakes<K = AppName>(Arc<Mutex<BTreeMap<K, Arc<Notify>>>>);

impl<K> Default for Wakes<K> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

impl<K: Ord + Clone> Wakes<K> {
    /// A bell, made on first use.
    pub(crate) fn bell(&self, app: &K) -> Arc<Notify> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).entry(app.clone()).or_default().clone()
    }

    /// Rings one. Any number of rings while a round runs make one more.
    pub(crate) fn wake(&self, app: &K) {
        if let Some(bell) = self.0.lock().unwrap_or_else(PoisonError::into_inner).get(app) {
            bell.notify_one();
        }
    }

    pub(crate) fn wake_all(&self) {
        for bell in self.0.lock().unwrap_or_else(PoisonError::into_inner).values() {
            bell.notify_one();
        }
    }
}

/// Turns the engine's hints into wakes, until stopped. `engine` says whether it answers: `Err` with why not.
pub(crate) async fn listen<D: Docker>(
    docker: Arc<D>,
    wakes: Wakes,
    engine: watch::Sender<Result<(), String>>,
    stop: CancellationToken,
) {
    let mut changes = docker.events();
    let mut pass = interval(FULL_PASS);
    pass.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            _ = pass.tick() => wakes.wake_all(),
            change = changes.recv() => match change {
                Ok(EngineEvent::ObjectChanged { app: Some(app), .. }) => wakes.wake(&app),
                Ok(EngineEvent::ObjectChanged { app: None, .. }) | Err(RecvError::Lagged(_)) => wakes.wake_all(),
                Ok(EngineEvent::Connected) => {
                    drop(engine.send_replace(Ok(())));
                    wakes.wake_all();
                }
                Ok(EngineEvent::Disconnected { error }) => {
                    tracing::warn!(error, "the engine does not answer");
                    drop(engine.send_replace(Err(error)));
                    wakes.wake_all();
                }
                Err(RecvError::Closed) => return,
            },
        }
    }
}
