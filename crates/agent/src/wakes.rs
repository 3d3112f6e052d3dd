//! Wakes: signals to the applications to make a round, and to the repositories to fetch. A wake carries no data.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{
    sync::{Notify, broadcast::error::RecvError, watch},
    time::{MissedTickBehavior, interval},
};
use tokio_util::sync::CancellationToken;

use driftless_docker::{Docker, EngineEvent};
use driftless_model::AppName;

use crate::probe::Changed;

/// The interval of full passes: every application makes a round, whether or not something happened.
const FULL_PASS: Duration = Duration::from_mins(5);

/// The wakes of all applications, or of all repositories by name.
#[derive(Clone, Debug)]
pub(crate) struct Wakes<K = AppName>(Arc<Mutex<BTreeMap<K, Arc<Notify>>>>);

impl<K> Default for Wakes<K> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

impl<K: Ord + Clone> Wakes<K> {
    /// The notification of this name, made on first use.
    pub(crate) fn of(&self, name: &K) -> Arc<Notify> {
        self.by_name().entry(name.clone()).or_default().clone()
    }

    /// Wakes one. Any number of wakes during a round lead to one more round.
    pub(crate) fn wake(&self, name: &K) {
        if let Some(notify) = self.by_name().get(name) {
            notify.notify_one();
        }
    }

    /// Wakes all.
    pub(crate) fn wake_all(&self) {
        self.by_name().values().for_each(|notify| notify.notify_one());
    }

    fn by_name(&self) -> MutexGuard<'_, BTreeMap<K, Arc<Notify>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Wakes {
    /// Wakes an application of which there is news.
    pub(crate) fn waker(&self) -> Changed {
        let wakes = self.clone();
        Arc::new(move |app| wakes.wake(app))
    }
}

/// Turns engine events into wakes, until stopped. `engine` gets whether the engine answers, or why not.
pub(crate) async fn wake_on_engine_events<D: Docker>(
    docker: Arc<D>,
    wakes: Wakes,
    engine: watch::Sender<Result<(), String>>,
    stop: CancellationToken,
) {
    let mut events = docker.events();
    let mut full_pass = interval(FULL_PASS);
    full_pass.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            _ = full_pass.tick() => wakes.wake_all(),
            event = events.recv() => match event {
                Ok(EngineEvent::ObjectChanged { app: Some(app), .. }) => wakes.wake(&app),
                Ok(EngineEvent::ObjectChanged { app: None, .. }) => wakes.wake_all(),
                // They may have said that the engine answers no more, or again, as the first one of a new receiver does.
                Err(RecvError::Lagged(_)) => {
                    drop(engine.send_replace(Err("the event stream of the Docker Engine has ended".to_owned())));
                    events = docker.events();
                    wakes.wake_all();
                }
                Ok(EngineEvent::ClaimLost) => {}
                Ok(EngineEvent::Connected) => {
                    drop(engine.send_replace(Ok(())));
                    wakes.wake_all();
                }
                Ok(EngineEvent::Disconnected { error }) => {
                    tracing::warn!(error, "the engine does not answer");
                    drop(engine.send_replace(Err(format!("the Docker Engine does not answer: {error}"))));
                    wakes.wake_all();
                }
                Err(RecvError::Closed) => return,
            },
        }
    }
}
