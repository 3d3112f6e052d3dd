//! Commit statuses: pending while a commit is being applied, success when it runs, failure with the reason. Each
//! application says the status of its newest commit; one task per repository stores it and posts it to the forge, as
//! slowly as the forge allows. No round waits for it.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use tokio::{
    sync::watch,
    time::{Instant, sleep_until},
};
use tokio_util::sync::CancellationToken;

use driftless_clock::Clock;
use driftless_config as config;
use driftless_config::{CommitStatus, StatusProvider};
use driftless_forge as forge;
use driftless_forge::{Forge, ForgeKind, State, Status};
use driftless_git::{Lookup, read_secret};
use driftless_model::{
    AppName, CommitId, CommitInfo, FailedCommit, Finding, HealthStatus, Outcome, PinStatus, Revision,
};
use driftless_plan::fetch_delay;
use driftless_store as store;
use driftless_store::{Store, StoredStatus};

use crate::error::chain;

/// The pause after a refusal that only a user can end, such as that of a token without write access.
const REFUSED_PAUSE: Duration = Duration::from_mins(10);

/// The status of the newest commit, by application.
pub(crate) type CommitStatuses = BTreeMap<AppName, AppCommitStatus>;

/// Why a forge refuses commit statuses, by repository.
pub(crate) type StatusErrors = BTreeMap<String, String>;

/// The status of the newest commit of one application.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AppCommitStatus {
    /// The repository's name in the configuration.
    pub(crate) repository: String,
    pub(crate) commit: CommitId,
    pub(crate) state: State,
    pub(crate) description: String,
}

/// The facts that the status of the newest commit follows from.
#[derive(Clone)]
pub(crate) struct StatusFacts<'a> {
    /// The newest commit.
    pub(crate) newest: &'a CommitInfo,
    pub(crate) findings: &'a [Finding],
    pub(crate) pin: Option<&'a PinStatus>,
    pub(crate) health: HealthStatus,
    /// The commit that runs.
    pub(crate) reached: Option<&'a CommitInfo>,
    pub(crate) revision: Option<&'a Revision>,
    /// The commit that failed, and its consequence.
    pub(crate) failed: Option<&'a FailedCommit>,
    /// Why the newest commit waits for a sync window or another application, if it does.
    pub(crate) held: Option<String>,
    pub(crate) message: &'a str,
}

/// State and description for the newest commit. `None` for a commit that changes nothing for this application: many
/// applications may share a repository.
pub(crate) fn commit_status(facts: &StatusFacts<'_>) -> Option<(State, String)> {
    let StatusFacts { newest, findings, pin, health, reached, revision, failed, held, message } = facts;
    if let Some(error) = findings.iter().find(|finding| finding.is_error()) {
        return Some((State::Failure, format!("not applied: {error}")));
    }
    if let Some(pin) = pin.filter(|pin| pin.commit != newest.id) {
        let reason = if pin.reason.is_empty() { String::new() } else { format!(": {}", pin.reason) };
        return Some((State::Pending, format!("pinned to revision {}{reason}", pin.revision)));
    }
    if *health == HealthStatus::Suspended {
        return Some((State::Pending, "the application is suspended".to_owned()));
    }
    if let Some(held) = held {
        return Some((State::Pending, held.clone()));
    }
    if let Some(failed) = failed {
        return Some((State::Failure, failure(failed, newest)));
    }
    let is_reached = reached.is_some_and(|commit| commit.id == newest.id);
    let own = revision.filter(|revision| revision.commit.id == newest.id);
    match own.map(|revision| (revision.number, &revision.outcome)) {
        Some((number, Outcome::Failed { reason })) => {
            Some((State::Failure, format!("revision {number} failed: {reason}")))
        }
        Some((number, Outcome::Succeeded)) if is_reached => {
            Some((State::Success, format!("runs as revision {number}")))
        }
        None if is_reached => None,
        // The message of a healthy rollout changes often, and a forge need not get each change.
        Some((_, Outcome::InProgress | Outcome::Succeeded | Outcome::Superseded)) | None => {
            let is_degraded = *health == HealthStatus::Degraded && !message.is_empty();
            Some((State::Pending, if is_degraded { *message } else { "being applied" }.to_owned()))
        }
    }
}

/// The failure of a commit, or of an older one with the same stack.
fn failure(failed: &FailedCommit, newest: &CommitInfo) -> String {
    let consequence = match failed.back_to {
        Some(number) => format!("back at revision {number}"),
        None => "its rollouts are paused".to_owned(),
    };
    let FailedCommit { revision, reason, commit, .. } = failed;
    let same = if *commit == newest.id { String::new() } else { format!("the same as {}: ", commit.short()) };
    format!("{same}revision {revision} failed, {consequence}: {reason}")
}

/// Posts the commit statuses of one repository to its forge, until stopped.
pub(crate) struct StatusReporter {
    repository: String,
    settings: CommitStatus,
    statuses: watch::Receiver<CommitStatuses>,
    errors: Arc<watch::Sender<StatusErrors>>,
    store: Store,
    environment: Lookup,
    clock: Clock,
}

impl StatusReporter {
    /// `None` if the configuration asks for no commit statuses.
    pub(crate) fn new(
        repository: &config::Repository,
        (statuses, errors): (watch::Receiver<CommitStatuses>, Arc<watch::Sender<StatusErrors>>),
        store: &Store,
        environment: &Lookup,
        clock: Clock,
    ) -> Option<Self> {
        Some(Self {
            repository: repository.name.clone(),
            settings: repository.status.clone()?,
            statuses,
            errors,
            store: store.clone(),
            environment: Arc::clone(environment),
            clock,
        })
    }

    pub(crate) async fn run(mut self, stop: CancellationToken) {
        let mut failures = 0;
        loop {
            self.store_statuses();
            let pause = tokio::select! {
                () = stop.cancelled() => return,
                posted = self.post() => match posted {
                    Ok(()) => {
                        self.set_error(None);
                        failures = 0;
                        None
                    }
                    Err(error) => {
                        failures += 1;
                        Some(self.fail(&error, failures))
                    }
                },
            };
            let again = Instant::now() + pause.unwrap_or(REFUSED_PAUSE);
            loop {
                tokio::select! {
                    () = stop.cancelled() => return,
                    changed = self.statuses.changed() => {
                        if changed.is_err() {
                            return;
                        }
                        self.store_statuses();
                        // A new status does not shorten the pause after a failure.
                        if pause.is_none() {
                            break;
                        }
                    }
                    () = sleep_until(again), if pause.is_some() => break,
                }
            }
        }
    }

    /// Stores the statuses of this moment, to be posted.
    fn store_statuses(&mut self) {
        let statuses = self.statuses.borrow_and_update().clone();
        for (app, status) in statuses.into_iter().filter(|(_, it)| it.repository == self.repository) {
            let stored = StoredStatus {
                commit: status.commit,
                context: format!("{}/{app}", self.settings.context),
                state: state_name(status.state).to_owned(),
                description: status.description,
            };
            if let Err(error) = self.store.set_status(&self.repository, &stored) {
                tracing::warn!(
                    repository = self.repository,
                    error = chain(&error),
                    "could not store a commit status"
                );
            }
        }
    }

    /// Posts the stored statuses.
    async fn post(&self) -> Result<(), PostError> {
        let unposted = self.store.unposted_statuses(&self.repository)?;
        if unposted.is_empty() {
            return Ok(());
        }
        let CommitStatus { provider, token, api, project, context: _ } = &self.settings;
        let token = read_secret(token, &self.environment).map_err(PostError::Token)?;
        let kind = match provider {
            StatusProvider::GitHub => ForgeKind::GitHub,
            StatusProvider::GitLab => ForgeKind::GitLab,
            StatusProvider::Gitea => ForgeKind::Gitea,
        };
        let forge = Forge::new(kind, api, project, &token)?;
        let mut refused = None;
        for stored in unposted {
            let status = Status {
                state: state_of(&stored.state),
                context: stored.context.clone(),
                description: stored.description.clone(),
                url: None,
            };
            match forge.set_status(&stored.commit, &status).await {
                Ok(()) => {}
                // A commit that the forge does not have must not hold back the others.
                Err(error @ forge::Error::Refused { .. }) => {
                    refused.get_or_insert(error);
                    continue;
                }
                Err(error) => return Err(error.into()),
            }
            self.store.mark_posted(&self.repository, &stored)?;
            tracing::debug!(
                repository = self.repository,
                context = stored.context,
                state = stored.state,
                "commit status posted"
            );
        }
        refused.map_or(Ok(()), |error| Err(error.into()))
    }

    /// Logs a failure and returns the pause before the next try.
    fn fail(&self, error: &PostError, failures: u32) -> Duration {
        let now = self.clock.now();
        let is_temporary = match error {
            PostError::Forge(forge::Error::Unreachable { .. }) | PostError::Store(_) => true,
            PostError::Forge(forge::Error::Refused { status, .. }) => {
                status.is_server_error() || status.as_u16() == 429
            }
            PostError::Forge(_) | PostError::Token(_) => false,
        };
        let error = chain(error);
        let pause = if is_temporary {
            fetch_delay(failures, crate::random::seed(&self.repository, now))
        } else {
            self.set_error(Some(error.clone()));
            REFUSED_PAUSE
        };
        let next_try = now.after(pause);
        tracing::warn!(repository = self.repository, error, %next_try, "could not post commit statuses");
        pause
    }

    /// Publishes why the forge refuses commit statuses, or that it accepts them again.
    fn set_error(&self, error: Option<String>) {
        self.errors.send_if_modified(|all| match error {
            Some(error) => all.insert(self.repository.clone(), error.clone()) != Some(error),
            None => all.remove(&self.repository).is_some(),
        });
    }
}

/// Why commit statuses could not be posted.
#[derive(Debug, thiserror::Error)]
enum PostError {
    #[error("could not read the token: {0}")]
    Token(String),
    #[error(transparent)]
    Forge(#[from] forge::Error),
    #[error(transparent)]
    Store(#[from] store::Error),
}

/// The names of states in the database.
const STATES: [(&str, State); 4] = [
    ("pending", State::Pending),
    ("success", State::Success),
    ("failure", State::Failure),
    ("error", State::Error),
];

fn state_name(state: State) -> &'static str {
    STATES.iter().find(|known| known.1 == state).map_or("error", |known| known.0)
}

fn state_of(name: &str) -> State {
    STATES.iter().find(|known| known.0 == name).map_or(State::Error, |known| known.1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use driftless_model::{Cause, Location, StackHash, Timestamp, Until};

    fn commit(id: &str) -> CommitInfo {
        CommitInfo { id: CommitId::from_stored(id.repeat(40)), ..CommitInfo::default() }
    }

    fn revision(id: &str, outcome: Outcome) -> Revision {
        Revision {
            app: "shop".into(),
            number: 4,
            commit: commit(id),
            reference: "main".to_owned(),
            started: Timestamp(1),
            finished: None,
            cause: Cause::Commit,
            outcome,
            stack: StackHash(String::new()),
            changes: Vec::new(),
            images: BTreeMap::new(),
            rollback_of: None,
            actor: None,
        }
    }

    #[test]
    fn commit_is_pending_until_it_runs_or_fails() {
        let status = |facts: &StatusFacts<'_>| commit_status(facts).unwrap();
        let (a, b) = (commit("a"), commit("b"));
        let in_progress = revision("b", Outcome::InProgress);
        let succeeded = revision("b", Outcome::Succeeded);
        let failed = revision("b", Outcome::Failed { reason: "deadline".to_owned() });
        let applying = StatusFacts {
            newest: &b,
            findings: &[],
            pin: None,
            health: HealthStatus::Progressing,
            reached: Some(&a),
            revision: Some(&in_progress),
            failed: None,
            held: None,
            message: "manifest unknown",
        };
        assert_eq!(status(&applying), (State::Pending, "being applied".to_owned()));
        let stuck = StatusFacts { health: HealthStatus::Degraded, ..applying.clone() };
        assert_eq!(status(&stuck), (State::Pending, "manifest unknown".to_owned()));
        let reached = StatusFacts {
            reached: Some(&b),
            revision: Some(&succeeded),
            health: HealthStatus::Healthy,
            ..applying.clone()
        };
        assert_eq!(status(&reached), (State::Success, "runs as revision 4".to_owned()));
        // A failure after the rollout is not the commit's fault.
        let degraded = StatusFacts { health: HealthStatus::Degraded, ..reached.clone() };
        assert_eq!(status(&degraded).0, State::Success);
        let failed = StatusFacts { revision: Some(&failed), ..reached.clone() };
        assert_eq!(status(&failed), (State::Failure, "revision 4 failed: deadline".to_owned()));
        let bad = FailedCommit {
            commit: b.id.clone(),
            stack: StackHash("s".to_owned()),
            revision: 4,
            reason: "web: no progress".to_owned(),
            at: Timestamp(1),
            back_to: Some(3),
            was_reached: false,
            action: None,
            images: None,
        };
        let rolled_back = StatusFacts { failed: Some(&bad), reached: Some(&a), ..failed.clone() };
        let expected = "revision 4 failed, back at revision 3: web: no progress".to_owned();
        assert_eq!(status(&rolled_back), (State::Failure, expected));
        let waits = "b waits for a sync window".to_owned();
        let held = StatusFacts { held: Some(waits.clone()), ..applying.clone() };
        assert_eq!(status(&held), (State::Pending, waits));
        let older = revision("a", Outcome::Succeeded);
        let unchanged = StatusFacts { revision: Some(&older), ..reached.clone() };
        assert_eq!(commit_status(&unchanged), None, "the commit changes nothing for this application");
        let findings = [Finding::error(Location::file("compose.yaml"), "services", "no")];
        let invalid = StatusFacts { findings: &findings, ..reached.clone() };
        assert!(status(&invalid).1.contains("compose.yaml"));
        assert_eq!(status(&invalid).0, State::Failure);
        let pin = PinStatus {
            revision: 3,
            commit: a.id.clone(),
            reason: "orders fail".to_owned(),
            at: Timestamp(1),
            until: Until::Manual,
            behind: None,
            actor: None,
        };
        let pinned = StatusFacts { pin: Some(&pin), ..applying.clone() };
        assert_eq!(status(&pinned), (State::Pending, "pinned to revision 3: orders fail".to_owned()));
        let suspended = StatusFacts { health: HealthStatus::Suspended, ..applying.clone() };
        assert_eq!(status(&suspended).0, State::Pending);
    }
}
