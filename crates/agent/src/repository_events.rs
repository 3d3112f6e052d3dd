//! Events about repositories as a whole: their commits, and fetches that begin to fail or succeed again.

use std::time::Duration;

use driftless_model::{AppName, Event, EventKind, Timestamp};

use crate::{
    context::{RECENT_EVENTS, Services},
    desired::RepositoryState,
};

/// The reason of the event about fetches that begin to fail.
const FAILED: &str = "FetchFailed";

/// The reason of the event about the first successful fetch after that.
const FETCHED: &str = "Fetched";

/// Shorter failures have no events: those of a server that often fails once would displace others.
const GRACE: Duration = Duration::from_mins(1);

/// The fetches of one repository, as the newest event about them says.
#[derive(Clone, Copy, Default)]
pub(crate) enum FetchEvents {
    /// The events of an earlier run of the agent were not read yet.
    #[default]
    Unread,
    Succeeding,
    FailingSince(Timestamp),
}

impl FetchEvents {
    fn read(services: &Services, repository: &str) -> Self {
        let reasons = [FAILED, FETCHED];
        let mut events = recent(services, repository).into_iter();
        let last = events.rfind(|event| reasons.contains(&event.reason.as_str()));
        match last.filter(|event| event.reason == FAILED) {
            Some(event) => Self::FailingSince(event.at),
            None => Self::Succeeding,
        }
    }

    /// Writes an event if the fetches of a repository fail for a while, or succeed again after that.
    pub(crate) fn report(&mut self, services: &Services, repository: &str, state: &RepositoryState) {
        if matches!(self, Self::Unread) {
            *self = Self::read(services, repository);
        }
        let now = services.clock.now();
        let failure = state.error.as_ref().filter(|_| state.failures > 0);
        // Before a long pause: nothing looks again when the minute is over.
        let is_pause_long =
            |since: Timestamp| state.next_fetch.is_some_and(|next| next > since.after(2 * GRACE));
        let error = failure.filter(|error| !error.since.is_recent(GRACE, now) || is_pause_long(error.since));
        let is_fetched = state.error.is_none() && state.fetched_at.is_some();
        let (kind, reason, message) = match (error, *self) {
            (Some(error), Self::Unread | Self::Succeeding) => {
                *self = Self::FailingSince(error.since);
                (
                    EventKind::Warning,
                    FAILED,
                    format!("{}: {} (since {})", error.reason, error.message, error.since),
                )
            }
            (None, Self::FailingSince(since)) if is_fetched => {
                *self = Self::Succeeding;
                (EventKind::Normal, FETCHED, format!("fetched again; it failed since {since}"))
            }
            (Some(_) | None, _) => return,
        };
        let object = format!("repository {repository}");
        append(services, event(services, repository, kind, reason, object, message));
    }
}

/// Writes a warning about a commit of a repository, once for each commit.
pub(crate) fn report_commit(
    services: &Services,
    repository: &str,
    reason: &str,
    commit: &str,
    message: String,
) {
    let object = format!("repository {repository} at {commit}");
    let event = event(services, repository, EventKind::Warning, reason, object, message);
    let is_same = |known: &Event| known.object == event.object && known.message == event.message;
    if !recent(services, repository).iter().any(is_same) {
        append(services, event);
    }
}

fn recent(services: &Services, repository: &str) -> Vec<Event> {
    services.store.newest_events(RECENT_EVENTS, Some(&name_in_events(repository))).unwrap_or_default()
}

fn event(
    services: &Services,
    repository: &str,
    kind: EventKind,
    reason: &str,
    object: String,
    message: String,
) -> Event {
    Event {
        sequence: 0,
        at: services.clock.now(),
        app: name_in_events(repository),
        kind,
        reason: reason.to_owned(),
        object,
        message,
        actor: None,
    }
}

fn append(services: &Services, event: Event) {
    if let Ok(event) = services.store.append_event(event) {
        // There may be no reader.
        let _ = services.events.send(event);
    }
}

/// The name that events about a repository as a whole are filed under. With the `/` it is no application's name.
fn name_in_events(repository: &str) -> AppName {
    AppName(format!("repository/{repository}"))
}
