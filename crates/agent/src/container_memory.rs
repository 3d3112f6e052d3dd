//! Stores what the agent has inspected, so that it need not inspect everything after a restart.

use std::time::Duration;

use driftless_docker::{KnownContainers, Remembered, RememberedChange};
use driftless_store::{InspectedContainers, Store};
use tokio::time::{Instant, sleep};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{error::chain, lasting_tasks};

/// The interval at which changes are stored. An agent that is killed inspects what has changed after the last time.
const STORE_EVERY: Duration = Duration::from_secs(5);
/// The interval at which the time of the last event is stored if no container has changed: the engine forgets old events,
/// and each run of a health check causes three.
const STORE_TIME_EVERY: Duration = Duration::from_mins(1);

/// The containers that an earlier process has stored.
pub(crate) fn remembered(store: &Store) -> Option<Remembered> {
    match store.inspected_containers() {
        Ok(known) => known.map(|InspectedContainers { context, last_event, containers }| Remembered {
            context,
            last_event,
            containers,
        }),
        Err(error) => {
            tracing::warn!(
                error = chain(&error),
                "could not read what was inspected before; inspecting everything"
            );
            None
        }
    }
}

/// Stores what is inspected until `stop`, and once more then.
pub(crate) fn start_container_memory(
    mut known: KnownContainers,
    store: Store,
    stop: CancellationToken,
    tasks: &TaskTracker,
) {
    lasting_tasks::start("memory of containers", (stop.clone(), tasks), async move {
        let mut last_event = 0;
        let mut stored = Instant::now();
        while !stop.is_cancelled() {
            tokio::select! {
                () = stop.cancelled() => {}
                () = sleep(STORE_EVERY) => {}
            }
            let Some(change) = known.changes() else { continue };
            let is_late = stop.is_cancelled() || stored.elapsed() >= STORE_TIME_EVERY;
            let has_changed = change.is_first || !change.changed.is_empty() || !change.gone.is_empty();
            if has_changed || (is_late && change.last_event > last_event) {
                (last_event, stored) = (change.last_event, Instant::now());
                if !write(&store, change).await {
                    // Everything is stored again.
                    known = known.from_the_beginning();
                }
            }
        }
    });
}

/// False: it could not be stored.
async fn write(store: &Store, change: RememberedChange) -> bool {
    let RememberedChange { context, last_event, is_first, changed, gone } = change;
    let changed = InspectedContainers { context, last_event, containers: changed };
    let store = store.clone();
    let written = tokio::task::spawn_blocking(move || {
        store.store_inspected_containers(&changed, (!is_first).then_some(&gone))
    });
    match written.await {
        Ok(Ok(())) => true,
        Ok(Err(error)) => {
            tracing::debug!(error = chain(&error), "could not store what was inspected");
            false
        }
        Err(_) => false,
    }
}
