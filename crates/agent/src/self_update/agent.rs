//! The agent's side of an update of its own container: it reports to the helper container that it is ready, and tells people
//! and the record of its application how the update ended.

use std::{path::Path, time::Duration};

use tokio::time::{Instant, sleep};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use driftless_clock::Clock;
use driftless_docker::OwnContainer;
use driftless_model::{AppName, ContainerId, Event, EventKind, FailedOwnUpdate, RepositoryStatus, SpecHash};
use driftless_store::{AgentUpdateNotes, EndedAgentUpdate, Store};

use crate::{
    error::chain,
    handle::{Handle, Readiness},
    lasting_tasks,
};

/// The interval at which the agent looks whether it is ready, and whether the helper is done.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// The time after which an update that failed has ended although its helper does not say so, as that of an older release does not.
const LATE: Duration = Duration::from_mins(10);

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
    lasting_tasks::start("update of the agent", (stop.clone(), tasks), async move {
        tokio::select! {
            () = stop.cancelled() => {}
            ended = accompany(&notes, &own, (&handle, &store)) => {
                report(&ended, &handle, &store, clock);
                notes.remove();
            }
        }
    });
}

async fn accompany(
    notes: &AgentUpdateNotes,
    own: &OwnContainer,
    (handle, store): (&Handle, &Store),
) -> EndedAgentUpdate {
    let began = Instant::now();
    let mut has_reported = false;
    let mut reason = String::new();
    loop {
        if let Some(ended) = end_of(notes, own.id().as_ref(), began.elapsed()) {
            return ended;
        }
        let readiness = handle.readiness();
        let was_read = |repository: &str| !matches!(store.last_commit(repository), Ok(None));
        let is_ready = !has_reported && is_as_ready(&readiness, &handle.repositories(), was_read);
        let is_new = notes.pending().is_some_and(|new| own.id() == Some(new));
        if is_new && readiness.message != reason {
            reason.clone_from(&readiness.message);
            if let Err(error) = notes.note_unready(&reason) {
                tracing::warn!(error = chain(&error), "could not note why the new agent is not ready");
            }
        }
        if let Some(own) = own.id().filter(|_| is_ready) {
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

/// The end of an update, once this agent may report it and remove the notes. An agent that is not the new one and has run for a while can
/// read its database, so the copy is not needed any more.
fn end_of(
    notes: &AgentUpdateNotes,
    own: Option<&ContainerId>,
    running: Duration,
) -> Option<EndedAgentUpdate> {
    notes.carried_out().or_else(|| {
        let is_old = |ended: &EndedAgentUpdate| own.is_some_and(|own| *own != ended.new);
        notes.ended().filter(|ended| running >= LATE && is_old(ended))
    })
}

/// Whether an agent is as ready as the one before it can have been: a repository that no agent has read keeps none from its place.
fn is_as_ready(
    readiness: &Readiness,
    repositories: &[RepositoryStatus],
    was_read: impl Fn(&str) -> bool,
) -> bool {
    let is_missing = |status: &RepositoryStatus| status.commit.is_none() && was_read(&status.name);
    // An agent that has just begun has published no repositories.
    let are_read = !repositories.is_empty() && !repositories.iter().any(is_missing);
    readiness.docker && readiness.state && (readiness.repositories || are_read)
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

#[cfg(test)]
mod tests {
    use driftless_model::{CommitInfo, Timestamp};

    use super::*;

    #[test]
    fn failure_that_an_older_helper_noted_is_reported_later() {
        let folder = tempfile::tempdir().unwrap();
        let notes = AgentUpdateNotes::of(folder.path());
        let (old, new) = (ContainerId::from("old"), ContainerId::from("new"));
        notes.begin(&new).unwrap();
        assert_eq!(end_of(&notes, Some(&old), LATE), None, "the update has not ended");
        let ended = EndedAgentUpdate {
            new: new.clone(),
            app: "driftless".to_owned(),
            container: "driftless-agent-1".to_owned(),
            spec: String::new(),
            image: "driftless:1".to_owned(),
            at: Timestamp(7),
            failure: Some("it exited with code 1".to_owned()),
        };
        notes.end(&ended).unwrap();
        assert_eq!(end_of(&notes, Some(&old), Duration::ZERO), None);
        assert_eq!(end_of(&notes, Some(&new), LATE), None, "the helper stops this one");
        assert_eq!(end_of(&notes, None, LATE), None, "it may be the new one");
        assert_eq!(end_of(&notes, Some(&old), LATE), Some(ended.clone()));
        notes.note_carried_out().unwrap();
        assert_eq!(end_of(&notes, None, Duration::ZERO), Some(ended));
    }

    #[test]
    fn repository_that_was_never_read_holds_up_no_update() {
        let status = |name: &str, commit: Option<CommitInfo>| RepositoryStatus {
            name: name.to_owned(),
            url: String::new(),
            reference: String::new(),
            commit,
            history_length: None,
            applications: 0,
            message: String::new(),
            reason: String::new(),
            fetched_at: None,
            next_fetch: None,
            keys: Vec::new(),
            hosts: Vec::new(),
        };
        let readiness =
            |repositories| Readiness { docker: true, repositories, state: true, message: String::new() };
        let read = status("infra", Some(CommitInfo::default()));
        let repositories = [read, status("second", None)];
        let is_ready = |was_read: bool| is_as_ready(&readiness(false), &repositories, |_| was_read);
        assert!(is_ready(false), "the agent before could not read it either");
        assert!(!is_ready(true), "the agent before could read it");
        assert!(!is_as_ready(&readiness(false), &[], |_| false), "nothing is published yet");
        assert!(is_as_ready(&readiness(true), &[], |_| false));
        let no_engine = Readiness { docker: false, ..readiness(true) };
        assert!(!is_as_ready(&no_engine, &repositories, |_| false));
    }
}
