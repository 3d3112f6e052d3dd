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
            let is_older = status.is_older;
            let stored = StoredStatus {
                commit: status.commit,
                context: format!("{}/{app}", self.settings.context),
                state: state_name(status.state).to_owned(),
                description: status.description,
            };
            if let Err(error) = self.store_status(&stored, is_older) {
                tracing::warn!(
                    repository = self.repository,
                    error = chain(&error),
                    "could not store a commit status"
                );
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
        let is_temporary = match error {
            PostError::Forge(forge::Error::Unreachable { .. }) | PostError::Store(_) => true,
            PostError::Forge(forge::Error::Refused { status, .. }) => {
                status.is_server_error() || status.as_u16() == 429
            }
            PostError::Forge(_) | PostError::Token(_) => false,
        };
        let is_of_forge = matches!(error, PostError::Forge(_));
        let message = chain(error);
        let pause = if is_temporary {
            if is_of_forge && failures >= UNAVAILABLE_AFTER {
                self.set_error(Some(StatusError { reason: "ForgeUnavailable", message: message.clone() }));
            }
            remote_delay(failures, crate::random::seed(&self.repository, now))
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
pub(crate) mod tests {
    use std::{
        io::{BufRead, BufReader, Read, Write},
        net::TcpListener,
        sync::Mutex,
    };

    use super::*;
    use driftless_config::Secret;
    use driftless_model::{Cause, Location, StackHash, Timestamp, Until};
    use tokio::time::{sleep, timeout};

    fn commit(id: &str) -> CommitInfo {
        CommitInfo { id: CommitId::from_stored(id.repeat(40)), ..CommitInfo::default() }
    }

    pub(crate) fn revision(id: &str, outcome: Outcome) -> Revision {
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
            was_reached: false,
        }
    }

    fn failed_commit(commit: &CommitId) -> FailedCommit {
        FailedCommit {
            commit: commit.clone(),
            stack: StackHash("s".to_owned()),
            revision: 4,
            reason: "web: no progress".to_owned(),
            at: Timestamp(1),
            back_to: Some(3),
            was_reached: false,
            action: None,
            images: None,
        }
    }

    #[test]
    fn pending_status_ends_with_an_application_that_left_git() {
        let status = |state| AppCommitStatus {
            repository: "infra".to_owned(),
            commit: commit("a").id,
            is_older: false,
            state,
            description: "runs".to_owned(),
        };
        let mut statuses = CommitStatuses::from([
            ("shop".into(), status(State::Pending)),
            ("wiki".into(), status(State::Success)),
        ]);
        assert!(end_status(&mut statuses, &"shop".into()));
        assert_eq!(statuses[&"shop".into()].state, State::Error);
        assert_eq!(statuses[&"shop".into()].description, "the application is not in Git any more");
        for app in ["shop", "wiki", "blog"] {
            assert!(!end_status(&mut statuses, &app.into()), "{app}");
        }
        assert_eq!(statuses[&"wiki".into()], status(State::Success));
    }

    #[test]
    fn numbers_in_a_pending_status_are_no_news() {
        let status = |state, description: &str| AppCommitStatus {
            repository: "infra".to_owned(),
            commit: commit("a").id,
            is_older: false,
            state,
            description: description.to_owned(),
        };
        let pending = |description: &str| status(State::Pending, description);
        let third = pending("web: cannot pull its image: denied, attempt 3, next try 03:12:44 UTC");
        let fourth = pending("web: cannot pull its image: denied, attempt 4, next try 03:18:02 UTC");
        assert!(!third.is_news_after(&third) && !fourth.is_news_after(&third));
        assert!(pending("web: cannot pull its image: no such host, attempt 4").is_news_after(&third));
        let of_newer = AppCommitStatus { commit: commit("b").id, ..fourth.clone() };
        assert!(of_newer.is_news_after(&third));
        let failed = |number: u32| status(State::Failure, &format!("revision {number} failed"));
        assert!(failed(4).is_news_after(&third) && failed(5).is_news_after(&failed(4)));
        // The forge gets 140 characters.
        let long = |end: &str| pending(&format!("{}{end}", "web waits; ".repeat(20)));
        assert!(!long("db waits").is_news_after(&long("")));
    }

    #[test]
    fn commit_is_pending_until_it_runs_or_fails() {
        let status = |facts: &StatusFacts<'_>| {
            let CommitResult { of, state, description } = commit_status(facts).unwrap();
            assert_eq!(of, facts.changed);
            (state, description)
        };
        let (a, b) = (commit("a"), commit("b"));
        let in_progress = revision("b", Outcome::InProgress);
        let succeeded = revision("b", Outcome::Succeeded);
        let failed = revision("b", Outcome::Failed { reason: "deadline".to_owned() });
        let applying = StatusFacts {
            invalid: &b.id,
            rendered: &b.id,
            changed: &b.id,
            findings: &[],
            pin: None,
            is_suspended: false,
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
        let bad = failed_commit(&b.id);
        let rolled_back = StatusFacts { failed: Some(&bad), reached: Some(&a), ..failed.clone() };
        let expected = "revision 4 failed, back at revision 3: web: no progress".to_owned();
        assert_eq!(status(&rolled_back), (State::Failure, expected));
        let waits = "b waits for a sync window".to_owned();
        let held = StatusFacts { held: Some(waits.clone()), ..applying.clone() };
        assert_eq!(status(&held), (State::Pending, waits));
        let unchanged = StatusFacts { revision: None, ..reached.clone() };
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
        let words = "the application is suspended".to_owned();
        let suspended = StatusFacts { is_suspended: true, ..applying.clone() };
        assert_eq!(status(&suspended), (State::Pending, words.clone()));
        let suspended_and_held = StatusFacts { is_suspended: true, ..held };
        assert_eq!(status(&suspended_and_held), (State::Pending, words));
        let unadopted =
            StatusFacts { health: HealthStatus::Suspended, message: "not adopted", ..applying.clone() };
        assert_eq!(status(&unadopted), (State::Pending, "not adopted".to_owned()));
    }

    /// A workload that is paused in Git, and a suspension that comes later, change no result.
    #[test]
    fn result_of_a_commit_outlives_a_pause_and_a_suspension() {
        let (a, b) = (commit("a"), commit("b"));
        let (succeeded, bad) = (revision("b", Outcome::Succeeded), failed_commit(&b.id));
        for is_suspended in [false, true] {
            let good = StatusFacts {
                invalid: &b.id,
                rendered: &b.id,
                changed: &b.id,
                findings: &[],
                pin: None,
                is_suspended,
                health: HealthStatus::Suspended,
                reached: Some(&b),
                revision: Some(&succeeded),
                failed: None,
                held: None,
                message: "web is paused",
            };
            assert_eq!(commit_status(&good).unwrap().state, State::Success);
            let failed = StatusFacts { failed: Some(&bad), reached: Some(&a), ..good };
            assert_eq!(commit_status(&failed).unwrap().state, State::Failure);
        }
    }

    #[test]
    fn commit_that_cannot_be_rendered_has_the_failure_itself() {
        let (a, b) = (commit("a"), commit("b"));
        let succeeded = revision("a", Outcome::Succeeded);
        let findings = [Finding::error(Location::file("driftless.yaml"), "applications", "unknown key")];
        let facts = StatusFacts {
            invalid: &b.id,
            rendered: &a.id,
            changed: &a.id,
            findings: &findings,
            pin: None,
            is_suspended: false,
            health: HealthStatus::Healthy,
            reached: Some(&a),
            revision: Some(&succeeded),
            failed: None,
            held: None,
            message: "",
        };
        let found = commit_status(&facts).unwrap();
        assert_eq!((found.of, found.state), (&b.id, State::Failure));
        // The commit before it runs as it did.
        let found = commit_status(&StatusFacts { findings: &[], ..facts }).unwrap();
        assert_eq!((found.of, found.state), (&a.id, State::Success));
    }

    #[test]
    fn commit_of_other_applications_gets_no_status() {
        let (a, b) = (commit("a"), commit("b"));
        let in_progress = revision("a", Outcome::InProgress);
        // The commit `b` came during the rollout of `a`, and changes nothing for this application.
        let applying = StatusFacts {
            invalid: &b.id,
            rendered: &b.id,
            changed: &a.id,
            findings: &[],
            pin: None,
            is_suspended: false,
            health: HealthStatus::Progressing,
            reached: None,
            revision: Some(&in_progress),
            failed: None,
            held: None,
            message: "",
        };
        let is_of_a = |facts: &StatusFacts<'_>, state: State| {
            let found = commit_status(facts).unwrap();
            assert_eq!((found.of, found.state), (&a.id, state));
        };
        is_of_a(&applying, State::Pending);
        let succeeded = revision("a", Outcome::Succeeded);
        let reached = StatusFacts { reached: Some(&b), revision: Some(&succeeded), ..applying.clone() };
        is_of_a(&reached, State::Success);
        // Drift that is being undone is no rollout.
        is_of_a(&StatusFacts { reached: Some(&a), ..reached.clone() }, State::Success);
        let failed = revision("a", Outcome::Failed { reason: "deadline".to_owned() });
        is_of_a(&StatusFacts { revision: Some(&failed), ..applying.clone() }, State::Failure);
        let bad = failed_commit(&a.id);
        let rolled_back = StatusFacts { failed: Some(&bad), ..applying.clone() };
        is_of_a(&rolled_back, State::Failure);
        let description = commit_status(&rolled_back).unwrap().description;
        assert_eq!(description, "revision 4 failed, back at revision 3: web: no progress");
        is_of_a(&StatusFacts { held: Some("a window".to_owned()), ..applying.clone() }, State::Pending);
        is_of_a(&StatusFacts { is_suspended: true, ..applying.clone() }, State::Pending);
        let pin = PinStatus {
            revision: 1,
            commit: commit("0").id,
            reason: String::new(),
            at: Timestamp(1),
            until: Until::Manual,
            behind: None,
            actor: None,
        };
        is_of_a(&StatusFacts { pin: Some(&pin), revision: None, ..applying.clone() }, State::Pending);
    }

    #[test]
    fn older_commit_gets_a_status_only_if_it_has_one() {
        let (mut reporter, statuses, _errors) = reporter("http://127.0.0.1:1");
        let mut publish = |state: State, is_older: bool| {
            let status = AppCommitStatus {
                repository: "infra".to_owned(),
                commit: commit("a").id,
                is_older,
                state,
                description: String::new(),
            };
            statuses.send_replace([("shop".into(), status)].into());
            reporter.store_statuses();
            let unposted = reporter.store.unposted_statuses("infra").unwrap();
            unposted.into_iter().map(|stored| stored.state).collect::<Vec<_>>()
        };
        assert_eq!(publish(State::Success, true), Vec::<String>::new());
        assert_eq!(publish(State::Pending, false), ["pending"]);
        assert_eq!(publish(State::Success, true), ["success"]);
    }

    /// A forge that answers a status of each commit, by the first letter of its id, with this code; others with 201.
    #[derive(Clone, Default)]
    struct AnsweringForge {
        codes: Arc<Mutex<BTreeMap<char, u16>>>,
        /// The first letter of each commit that a status was posted for.
        posted: Arc<Mutex<String>>,
    }

    impl AnsweringForge {
        fn start() -> (Self, String) {
            let forge = Self::default();
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let api = format!("http://{}", listener.local_addr().unwrap());
            let answering = forge.clone();
            std::thread::spawn(move || {
                for stream in listener.incoming() {
                    answering.answer(stream.unwrap());
                }
            });
            (forge, api)
        }

        fn answer(&self, mut stream: std::net::TcpStream) {
            let mut reader = BufReader::new(stream.try_clone().unwrap());
            let (mut length, mut commit) = (0, ' ');
            loop {
                let mut line = String::new();
                reader.read_line(&mut line).unwrap();
                if let Some((_, id)) = line.split_once("/statuses/") {
                    commit = id.chars().next().unwrap();
                }
                if let Some(value) = line.to_lowercase().strip_prefix("content-length:") {
                    length = value.trim().parse().unwrap();
                }
                if line.trim().is_empty() {
                    break;
                }
            }
            reader.read_exact(&mut vec![0; length]).unwrap();
            self.posted.lock().unwrap().push(commit);
            let code = self.codes.lock().unwrap().get(&commit).copied().unwrap_or(201);
            let answer =
                format!("HTTP/1.1 {code} Answer\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{{}}");
            stream.write_all(answer.as_bytes()).unwrap();
        }

        fn refuse(&self, commit: char, code: u16) {
            self.codes.lock().unwrap().insert(commit, code);
        }

        fn take(&self) -> String {
            std::mem::take(&mut self.posted.lock().unwrap())
        }
    }

    fn reporter(api: &str) -> (StatusReporter, watch::Sender<CommitStatuses>, watch::Receiver<StatusErrors>) {
        let (statuses, of_applications) = watch::channel(CommitStatuses::default());
        let (errors, published) = watch::channel(StatusErrors::default());
        let reporter = StatusReporter {
            repository: "infra".to_owned(),
            settings: CommitStatus {
                provider: StatusProvider::GitHub,
                token: Secret::Environment("TOKEN".to_owned()),
                api: api.to_owned(),
                project: "me/infra".to_owned(),
                context: "driftless".to_owned(),
            },
            connection: Connection::default(),
            statuses: of_applications,
            errors: Arc::new(errors),
            store: Store::in_memory(Clock::System).unwrap(),
            environment: Arc::new(|_| Some("t0ken".to_owned())),
            clock: Clock::System,
        };
        (reporter, statuses, published)
    }

    impl StatusReporter {
        fn set(&self, commit: &str, app: &str, state: State) {
            let status = StoredStatus {
                commit: CommitId::from_stored(commit.repeat(40)),
                context: format!("driftless/{app}"),
                state: state_name(state).to_owned(),
                description: String::new(),
            };
            self.store.set_status("infra", &status).unwrap();
        }
    }

    #[tokio::test]
    async fn status_of_a_commit_that_the_forge_lacks_is_given_up() {
        let (forge, api) = AnsweringForge::start();
        let (reporter, _statuses, _errors) = reporter(&api);
        for code in [400, 404, 422] {
            let app = format!("app-{code}");
            forge.refuse('a', code);
            reporter.set("a", &app, State::Success);
            // Alone, it may be the fault of the token.
            reporter.post().await.unwrap_err();
            reporter.post().await.unwrap_err();
            reporter.set("b", &app, State::Success);
            reporter.post().await.unwrap();
            reporter.set("b", &app, State::Failure);
            reporter.post().await.unwrap();
            assert_eq!(forge.take(), "aaabb", "{code}");
        }
        // A forge that is busy or forbids to write accepts the status later.
        for code in [403, 429, 503] {
            forge.refuse('c', code);
            reporter.set("c", &format!("app-{code}"), State::Success);
            reporter.set("d", &format!("app-{code}"), State::Success);
            reporter.post().await.unwrap_err();
            forge.refuse('c', 201);
            reporter.post().await.unwrap();
            assert_eq!(forge.take(), "cdc", "{code}");
        }
    }

    #[tokio::test]
    async fn refused_end_of_an_older_status_is_given_up() {
        let (forge, api) = AnsweringForge::start();
        let (reporter, _statuses, _errors) = reporter(&api);
        reporter.set("a", "shop", State::Pending);
        reporter.post().await.unwrap();
        // The token has lost its right: nothing is given up.
        reporter.set("b", "shop", State::Pending);
        forge.refuse('a', 404);
        forge.refuse('b', 404);
        reporter.post().await.unwrap_err();
        assert_eq!(reporter.store.unposted_statuses("infra").unwrap().len(), 2);
        // The forge failed before it got the first one, and has the second one.
        forge.refuse('a', 503);
        forge.refuse('b', 201);
        reporter.post().await.unwrap_err();
        forge.refuse('a', 404);
        reporter.post().await.unwrap();
        assert_eq!(reporter.store.unposted_statuses("infra").unwrap(), []);
        assert_eq!(forge.take(), "aababa");
    }

    #[tokio::test(start_paused = true)]
    async fn forge_that_stays_unreachable_is_reported_until_it_answers() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let api = format!("http://{}", listener.local_addr().unwrap());
        drop(listener);
        let (mut reporter, statuses, mut errors) = reporter(&api);
        reporter.connection.proxy = config::Proxy::Direct;
        reporter.set("a", "shop", State::Success);
        let store = reporter.store.clone();
        let stop = CancellationToken::new();
        let running = tokio::spawn(reporter.run(stop.clone()));
        sleep(Duration::from_mins(2)).await;
        assert!(errors.borrow().is_empty(), "a short interruption is not reported: {errors:?}");
        let shown = errors.wait_for(|errors| !errors.is_empty());
        let shown = timeout(Duration::from_mins(30), shown).await.unwrap().unwrap().clone();
        let error = &shown["infra"];
        assert_eq!(error.reason, "ForgeUnavailable");
        assert!(error.message.contains("127.0.0.1 is unreachable"), "{}", error.message);
        // There is nothing to post any more, which ends the failures as an accepted status does.
        store.give_up_status("infra", &store.unposted_statuses("infra").unwrap()[0]).unwrap();
        let ended = errors.wait_for(BTreeMap::is_empty);
        timeout(Duration::from_mins(30), ended).await.unwrap().unwrap();
        stop.cancel();
        running.await.unwrap();
        drop(statuses);
    }
}
