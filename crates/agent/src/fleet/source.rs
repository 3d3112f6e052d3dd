//! The reports that this agent reads where hosts keep them, instead of accepting them itself.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use driftless_clock::Clock;
use driftless_config::FleetPlace;
use driftless_fleet::SourceStatus;
use driftless_git::Lookup;
use tokio::time::sleep;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    error::chain,
    fleet::reader::{FleetPicture, FleetReader},
    lasting_tasks,
};

/// The time between two looks.
const LOOK_EVERY: Duration = Duration::from_secs(15);

/// The reports that were read last. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct FleetSource(Option<Arc<Mutex<ReadState>>>);

#[derive(Debug, Default)]
struct ReadState {
    status: SourceStatus,
    picture: Arc<FleetPicture>,
}

impl FleetSource {
    /// A source that has read nothing yet.
    pub(crate) fn new(from: &str) -> Self {
        let status = SourceStatus { from: from.to_owned(), ..SourceStatus::default() };
        Self(Some(Arc::new(Mutex::new(ReadState { status, picture: Arc::default() }))))
    }

    /// The state of the source and its reports. `None`: this agent reads none.
    pub fn read(&self) -> Option<(SourceStatus, Arc<FleetPicture>)> {
        let state = self.0.as_ref()?.lock().unwrap_or_else(PoisonError::into_inner);
        Some((state.status.clone(), Arc::clone(&state.picture)))
    }

    /// The state of the source.
    pub fn status(&self) -> Option<SourceStatus> {
        self.read().map(|(status, _)| status)
    }

    fn update(&self, change: impl FnOnce(&mut ReadState)) {
        if let Some(state) = &self.0 {
            change(&mut state.lock().unwrap_or_else(PoisonError::into_inner));
        }
    }
}

/// Starts the task that reads the reports of a place again and again.
pub fn start_fleet_source(
    place: &FleetPlace,
    environment: &Lookup,
    clock: Clock,
    stop: &CancellationToken,
    tasks: &TaskTracker,
) -> FleetSource {
    let source = FleetSource::new(&place.url);
    if place.is_exposed() {
        tracing::warn!(from = place.url, "the token or password crosses the network in clear; use https");
    }
    let (place, environment, stop, own) = (place.clone(), environment.clone(), stop.clone(), source.clone());
    lasting_tasks::start("reports of the fleet", (stop.clone(), tasks), async move {
        let mut reader = None;
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                () = look(&mut reader, &place, &environment, clock, &own) => {}
            }
            tokio::select! {
                () = stop.cancelled() => return,
                () = sleep(LOOK_EVERY) => {}
            }
        }
    });
    source
}

/// Reads once. After a failure there is a new reader, so that another CA file takes effect.
async fn look(
    reader: &mut Option<FleetReader>,
    place: &FleetPlace,
    environment: &Lookup,
    clock: Clock,
    source: &FleetSource,
) {
    let ready = match reader.take() {
        Some(reader) => Ok(reader),
        None => FleetReader::new(place, environment, clock),
    };
    let read = match ready {
        Ok(mut ready) => match ready.read().await {
            Ok(picture) => {
                *reader = Some(ready);
                Ok(picture)
            }
            Err(error) => Err(error),
        },
        Err(error) => Err(error),
    };
    let before = source.status().unwrap_or_default();
    match read {
        Ok(mut picture) => {
            let error = picture.error();
            if error != before.error && !error.is_empty() {
                tracing::warn!(from = place.url, error, "reports of the fleet cannot be read");
            } else if before.last_read.is_none() || !before.error.is_empty() && error.is_empty() {
                tracing::info!(from = place.url, hosts = picture.hosts.len(), "reading the fleet");
            }
            let now = clock.now();
            source.update(|state| {
                state.status.error = error;
                state.status.last_read = Some(now);
                state.status.missing = picture.missing.clone().unwrap_or_default();
                picture.keep_missing(&state.picture);
                state.picture = Arc::new(picture);
            });
        }
        Err(error) => {
            let error = chain(&error);
            if error != before.error {
                tracing::warn!(from = place.url, error, "could not read the fleet; trying again");
            }
            source.update(|state| state.status.error = error);
        }
    }
}
