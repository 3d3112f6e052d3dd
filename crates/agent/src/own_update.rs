//! The agent's side of an update of its own container: it reports to the helper container that it is ready, and tells people
//! and the record of its application how the update ended.

use std::{path::Path, time::Duration};

use tokio::time::sleep;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use driftless_clock::Clock;
use driftless_docker::OwnContainer;
use driftless_model::{AppName, Event, EventKind, FailedOwnUpdate, SpecHash};
use driftless_store::{AgentUpdateNotes, EndedAgentUpdate, Store};

use crate::{error::chain, handle::Handle};

/// The interval at which the agent looks whether it is ready, and whether the helper is done.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// Remembers an update that failed, so that it is not tried again. Called before the first round.
pub(crate) fn remember_failure(state: &Path, store: &Store) {
    let Some(ended) = AgentUpdateNotes::of(state).ended() else { return };
    // Without the label of an application the new container was gone before the helper looked at it.
    let Some(reason) = ended.failure.filter(|_| !ended.app.is_empty()) else { return };
    let app = AppName(ended.app);
    let remembered = store.record(&app).and_then(|mut record| {
        let spec = SpecHash(ended.spec);
        record.failed_own_update = Some(FailedOwnUpdate { spec, reason, at: ended.at });
        store.save_record(&app, &record)
    });
    if let Err(error) = remembered {
        tracing::warn!(%app, error = chain(&error), "could not store that an update of the agent failed");
    }
}

/// Accompanies an update until it has ended, if there is one.
pub(crate) fn start_own_update(
    state: &Path,
    own: OwnContainer,
    parts: (&Handle, &Store, Clock),
    stop: &CancellationToken,
    tasks: &TaskTracker,
) {
    let notes = AgentUpdateNotes::of(state);
    if notes.pending().is_none() && notes.ended().is_none() {
        return;
    }
    let (handle, store, clock) = (parts.0.clone(), parts.1.clone(), parts.2);
    let stop = stop.clone();
    tasks.spawn(async move {
        tokio::select! {
            () = stop.cancelled() => {}
            ended = accompany(&notes, &own, &handle) => {
                report(&ended, &handle, &store, clock);
                notes.remove();
            }
        }
    });
}

async fn accompany(notes: &AgentUpdateNotes, own: &OwnContainer, handle: &Handle) -> EndedAgentUpdate {
    let mut has_reported = false;
    loop {
        if let Some(ended) = notes.carried_out() {
            return ended;
        }
        let own = own.id().filter(|_| !has_reported && handle.readiness().is_ready());
        if let Some(own) = own {
            match notes.report_ready(&own) {
                Ok(()) => has_reported = true,
                Err(error) => {
                    tracing::warn!(error = chain(&error), "could not report that the new agent is ready");
                }
            }
        }
        sleep(LOOK_EVERY).await;
    }
}

fn report(ended: &EndedAgentUpdate, handle: &Handle, store: &Store, clock: Clock) {
    let EndedAgentUpdate { app, container, image, failure, .. } = ended;
    let (kind, reason, message) = match failure {
        None => (EventKind::Normal, "AgentUpdated", format!("the agent runs {image} now")),
        Some(failure) => {
            (EventKind::Warning, "AgentUpdateFailed", format!("went back from {image}: {failure}"))
        }
    };
    match kind {
        EventKind::Normal => tracing::info!(container, image, "the agent was updated"),
        EventKind::Warning => tracing::error!(container, image, failure, "the update of the agent failed"),
    }
    let event = Event {
        sequence: 0,
        at: clock.now(),
        app: AppName(app.clone()),
        kind,
        reason: reason.to_owned(),
        object: container.clone(),
        message,
        actor: None,
    };
    match store.append_event(event) {
        Ok(event) => handle.publish_event(event),
        Err(error) => tracing::warn!(error = chain(&error), "could not store an event"),
    }
}
