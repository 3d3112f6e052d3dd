//! Commit statuses: pending while a commit is being applied, success when it runs, failure with the reason. Each
//! application says the status of its newest commit; one task per repository stores it and posts it to the forge, as
//! slowly as the forge allows. No round waits for it.

use std::{collections::BTreeMap, pin::pin, sync::Arc, time::Duration};

use tokio::{
    sync::watch,
    time::{Instant, sleep_until},
};
use tokio_util::sync::CancellationToken;

use driftless_clock::Clock;
use driftless_config as config;
use driftless_config::{CommitStatus, StatusProvider};
use driftless_forge as forge;
use driftless_forge::{Connection, Forge, ForgeKind, State, Status};
use driftless_git::{Lookup, read_secret};
use driftless_model::{
    AppName, CommitId, CommitInfo, FailedCommit, Finding, HealthStatus, Outcome, PinStatus, Revision,
};
use driftless_plan::{differs_in_numbers_only, remote_delay};
use driftless_store as store;
use driftless_store::{Store, StoredStatus};

use crate::error::chain;

/// The pause after a refusal that only a user can end, such as that of a token without write access.
const REFUSED_PAUSE: Duration = Duration::from_mins(10);

/// The number of failed tries in a row after which an unavailable forge is shown. They take about 6 minutes.
const UNAVAILABLE_AFTER: u32 = 10;

/// A forge that asks for pauses of so long in all is shown, too.
const LONG_PAUSE: Duration = Duration::from_mins(6);

/// The status of a commit, by application.
pub(crate) type CommitStatuses = BTreeMap<AppName, AppCommitStatus>;

/// Why commit statuses do not reach a forge, by repository.
pub(crate) type StatusErrors = BTreeMap<String, StatusError>;

/// Why commit statuses do not reach a forge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StatusError {
    /// One word in camel case, the reason of a condition.
    pub(crate) reason: &'static str,
    pub(crate) message: String,
}

/// The status of a commit for one application.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AppCommitStatus {
    /// The repository's name in the configuration.
    pub(crate) repository: String,
    pub(crate) commit: CommitId,
    /// There is a newer commit, which changes nothing for the application. An older one that has no status gets none now.
    pub(crate) is_older: bool,
    pub(crate) state: State,
    pub(crate) description: String,
}

impl AppCommitStatus {
    /// Whether the forge gets this status after another one. While a commit is pending, the counters and times of tries are no
    /// news: each post is another entry at the forge, which takes a limited number for a commit.
    pub(crate) fn is_news_after(&self, before: &Self) -> bool {
        let is_still_pending = self.state == State::Pending
            && *before == Self { description: before.description.clone(), ..self.clone() };
        let sent = |status: &Self| forge::sent_description(&status.description);
        self != before && !(is_still_pending && differs_in_numbers_only(&sent(self), &sent(before)))
    }
}

/// State and description for a commit.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct CommitResult<'a> {
    pub(crate) of: &'a CommitId,
    pub(crate) state: State,
    pub(crate) description: String,
}

/// The facts that the status of the newest commit follows from.
#[derive(Clone)]
pub(crate) struct StatusFacts<'a> {
    /// The commit that the first error of the findings is about. It may be one that could not be rendered at all, such as one with
    /// a mistake in `driftless.yaml`.
    pub(crate) invalid: &'a CommitId,
    /// The newest commit that was rendered.
    pub(crate) rendered: &'a CommitId,
    /// The commit that the newest stack came with: the newest one that was rendered, or one before it if later ones change
    /// nothing for the application.
    pub(crate) changed: &'a CommitId,
    pub(crate) findings: &'a [Finding],
    pub(crate) pin: Option<&'a PinStatus>,
    /// Nothing is applied, because the application is suspended.
    pub(crate) is_suspended: bool,
    pub(crate) health: HealthStatus,
    /// The commit that runs.
    pub(crate) reached: Option<&'a CommitInfo>,
    /// The current revision, if it has the newest stack.
    pub(crate) revision: Option<&'a Revision>,
    /// The commit that failed, and its consequence.
    pub(crate) failed: Option<&'a FailedCommit>,
    /// Why the newest commit waits for a sync window or another application, if it does.
    pub(crate) held: Option<String>,
    pub(crate) message: &'a str,
}

/// The status of the commit that the newest stack came with, or of a newest commit that cannot be applied. `None`: that commit
/// changed nothing. Many applications may share a repository, so a commit that changes nothing for this one gets no status.
pub(crate) fn commit_status<'a>(facts: &StatusFacts<'a>) -> Option<CommitResult<'a>> {
    let StatusFacts { invalid, rendered, changed, findings, pin, is_suspended, health, .. } = facts;
    let StatusFacts { reached, revision, failed, held, message, .. } = facts;
    let of_invalid = |description| CommitResult { of: invalid, state: State::Failure, description };
    if let Some(error) = findings.iter().find(|finding| finding.is_error()) {
        return Some(of_invalid(format!("not applied: {error}")));
    }
    let of_changed = |state, description| Some(CommitResult { of: changed, state, description });
    if let Some(pin) = pin.filter(|pin| pin.commit != **changed) {
        let reason = if pin.reason.is_empty() { String::new() } else { format!(": {}", pin.reason) };
        return of_changed(State::Pending, format!("pinned to revision {}{reason}", pin.revision));
    }
    let suspended = || of_changed(State::Pending, "the application is suspended".to_owned());
    if let Some(held) = held {
        return if *is_suspended { suspended() } else { of_changed(State::Pending, held.clone()) };
    }
    if let Some(failed) = failed {
        return of_changed(State::Failure, failure(failed, changed));
    }
    let is_reached = reached.is_some_and(|commit| commit.id == **rendered || commit.id == **changed);
    match revision.map(|revision| (revision.number, &revision.outcome)) {
        Some((number, Outcome::Failed { reason })) => {
            of_changed(State::Failure, format!("revision {number} failed: {reason}"))
        }
        Some((number, Outcome::Succeeded)) if is_reached => {
            of_changed(State::Success, format!("runs as revision {number}"))
        }
        None if is_reached => None,
        // A suspension takes back no result.
        Some(_) | None if *is_suspended => suspended(),
        // The message of a healthy rollout changes often, and a forge need not get each change.
        Some((_, Outcome::InProgress | Outcome::Succeeded | Outcome::Superseded)) | None => {
            let is_stuck = matches!(health, HealthStatus::Degraded | HealthStatus::Suspended);
            let is_shown = is_stuck && !message.is_empty();
            of_changed(State::Pending, if is_shown { *message } else { "being applied" }.to_owned())
        }
    }
}

/// Ends the pending status of an application that left Git: no later commit has one that would. Returns whether it was
/// pending.
pub(crate) fn end_status(statuses: &mut CommitStatuses, app: &AppName) -> bool {
    let Some(status) = statuses.get_mut(app).filter(|status| status.state == State::Pending) else {
        return false;
    };
    status.state = State::Error;
    "the application is not in Git any more".clone_into(&mut status.description);
    true
}

/// The failure of a commit, or of an older one with the same stack.
fn failure(failed: &FailedCommit, changed: &CommitId) -> String {
    let consequence = match failed.back_to {
        Some(number) => format!("back at revision {number}"),
        None => "its rollouts are paused".to_owned(),
    };
    let FailedCommit { revision, reason, commit, .. } = failed;
    let same = if commit == changed { String::new() } else { format!("the same as {}: ", commit.short()) };
    format!("{same}revision {revision} failed, {consequence}: {reason}")
}

/// Posts the commit statuses of one repository to its forge, until stopped.
pub(crate) struct StatusReporter {
    repository: String,
    settings: CommitStatus,
    /// The way to the server of the repository, which is its forge or a neighbour of that.
    connection: Connection,
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
            connection: Connection { ca_file: repository.ca_file.clone(), proxy: repository.proxy.clone() },
            statuses,
            errors,
            store: store.clone(),
            environment: Arc::clone(environment),
            clock,
        })
    }

    pub(crate) async fn run(self, stop: CancellationToken) {
        let mut failures = 0;
        let mut statuses = self.statuses.clone();
        loop {
            let mut stored = CommitStatuses::new();
            self.store_statuses(&mut stored);
            let mut is_newer = false;
            let mut post = pin!(self.post());
            let posted = loop {
                tokio::select! {
                    () = stop.cancelled() => return,
                    posted = &mut post => break posted,
                    // The next commit takes the place of this status, and a forge may be slow.
                    Ok(()) = statuses.changed() => {
                        self.store_statuses(&mut stored);
                        is_newer = true;
                    }
                }
            };
            let pause = match posted {
                Ok(()) => {
                    self.set_error(None);
                    failures = 0;
                    None
                }
                Err(error) => {
                    failures += 1;
                    Some(self.fail(&error, failures))
                }
            };
            if is_newer && pause.is_none() {
                continue;
            }
            let again = Instant::now() + pause.unwrap_or(REFUSED_PAUSE);
            loop {
                tokio::select! {
                    () = stop.cancelled() => return,
                    changed = statuses.changed() => {
                        if changed.is_err() {
                            return;
                        }
                        self.store_statuses(&mut stored);
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

    /// Stores the statuses of this moment, to be posted, without those that are among the `known` ones. They are known then.
    fn store_statuses(&self, known: &mut CommitStatuses) {
        let mut statuses = self.statuses.borrow().clone();
        statuses.retain(|app, it| it.repository == self.repository && known.get(app) != Some(&*it));
        for (app, status) in statuses {
            let to_store = StoredStatus {
                commit: status.commit.clone(),
                context: format!("{}/{app}", self.settings.context),
                state: state_name(status.state).to_owned(),
                description: status.description.clone(),
            };
            if let Err(error) = self.store_status(&to_store, status.is_older) {
                tracing::warn!(
                    repository = self.repository,
                    error = chain(&error),
                    "could not store a commit status"
                );
                // The next change of any status tries it again.
                known.remove(&app);
            } else {
                known.insert(app, status);
            }
        }
    }

    /// Stores a status, unless it is that of an older commit that has none: the forge may not have that commit any more.
    fn store_status(&self, status: &StoredStatus, is_older: bool) -> Result<(), store::Error> {
        if is_older && !self.store.has_status(&self.repository, &status.context, &status.commit)? {
            return Ok(());
        }
        self.store.set_status(&self.repository, status)?;
        Ok(())
    }

    /// Posts the stored statuses.
    async fn post(&self) -> Result<(), PostError> {
        let unposted = self.store.unposted_statuses(&self.repository)?;
        if unposted.is_empty() {
            return Ok(());
        }
        let forge = self.forge()?;
        let (mut is_any_accepted, mut refused) = (false, Vec::new());
        for stored in unposted {
            let status = Status {
                state: state_of(&stored.state),
                context: stored.context.clone(),
                description: stored.description.clone(),
                url: None,
            };
            match forge.set_status(&stored.commit, &status).await {
                Ok(()) => {}
                // The next request would only add to those that are refused.
                Err(error) if is_about_all(&error) => return Err(error.into()),
                // A commit that the forge does not have must not hold back the others.
                Err(error @ forge::Error::Refused { .. }) => {
                    refused.push((stored, error));
                    continue;
                }
                Err(error) => return Err(error.into()),
            }
            is_any_accepted = true;
            self.store.mark_posted(&self.repository, &stored)?;
            tracing::debug!(
                repository = self.repository,
                context = stored.context,
                state = stored.state,
                "commit status posted"
            );
        }
        self.give_up(refused, is_any_accepted)
    }

    fn forge(&self) -> Result<Forge, PostError> {
        let CommitStatus { provider, token, api, project, context: _ } = &self.settings;
        let token = read_secret(token, &self.environment).map_err(PostError::Token)?;
        let kind = match provider {
            StatusProvider::GitHub => ForgeKind::GitHub,
            StatusProvider::GitLab => ForgeKind::GitLab,
            StatusProvider::Gitea => ForgeKind::Gitea,
        };
        Ok(Forge::new(kind, api, project, &token, &self.connection)?)
    }

    /// Gives up the statuses that are refused for themselves, such as that of a commit that was rebased away. They are known by
    /// another status that the forge accepts: it shows that token and project are right. An ended status of an older commit,
    /// which nobody waits for, is given up also if there is no other.
    ///
    /// # Errors
    ///
    /// The first refusal of a status that is kept.
    fn give_up(
        &self,
        refused: Vec<(StoredStatus, forge::Error)>,
        is_any_accepted: bool,
    ) -> Result<(), PostError> {
        let is_about_one = is_any_accepted || refused.iter().all(|(stored, _)| stored.is_superseded());
        let mut kept = None;
        for (stored, error) in refused {
            if !(is_about_one && is_final(&error)) {
                kept.get_or_insert(error);
                continue;
            }
            self.store.give_up_status(&self.repository, &stored)?;
            tracing::warn!(
                repository = self.repository,
                context = stored.context,
                state = stored.state,
                error = chain(&error),
                "gave up a commit status"
            );
        }
        kept.map_or(Ok(()), |error| Err(error.into()))
    }

    /// Logs a failure and returns the pause before the next try.
    fn fail(&self, error: &PostError, failures: u32) -> Duration {
        let now = self.clock.now();
        let mut asked = Duration::ZERO;
        let is_temporary = match error {
            PostError::Forge(forge::Error::Unreachable { .. }) | PostError::Store(_) => true,
            PostError::Forge(forge::Error::Refused { retry_after: Some(pause), .. }) => {
                asked = *pause;
                true
            }
            PostError::Forge(forge::Error::Refused { status, .. }) => {
                status.is_server_error() || status.as_u16() == 429
            }
            PostError::Forge(_) | PostError::Token(_) => false,
        };
        let is_of_forge = matches!(error, PostError::Forge(_));
        let message = chain(error);
        let pause = if is_temporary {
            let is_long = failures >= UNAVAILABLE_AFTER || asked.saturating_mul(failures) >= LONG_PAUSE;
            if is_of_forge && is_long {
                self.set_error(Some(StatusError { reason: "ForgeUnavailable", message: message.clone() }));
            }
            remote_delay(failures, crate::random::seed(&self.repository, now)).max(asked)
        } else {
            self.set_error(Some(StatusError { reason: "Refused", message: message.clone() }));
            REFUSED_PAUSE
        };
        let next_try = now.after(pause);
        tracing::warn!(
            repository = self.repository,
            error = message,
            %next_try,
            "could not post commit statuses"
        );
        pause
    }

    /// Publishes why commit statuses do not reach the forge, or that they do again.
    fn set_error(&self, error: Option<StatusError>) {
        self.errors.send_if_modified(|all| match error {
            Some(error) => all.insert(self.repository.clone(), error.clone()) != Some(error),
            None => all.remove(&self.repository).is_some(),
        });
    }
}

/// Whether the forge refuses all statuses alike: it limits requests, or does not accept the token.
fn is_about_all(error: &forge::Error) -> bool {
    let forge::Error::Refused { status, retry_after, .. } = error else { return false };
    retry_after.is_some() || matches!(status.as_u16(), 401 | 429)
}

/// Whether the forge refuses a status for its commit or its content, which no later try changes.
fn is_final(error: &forge::Error) -> bool {
    matches!(error, forge::Error::Refused { status, .. } if matches!(status.as_u16(), 400 | 404 | 422))
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
pub(crate) mod tests;
