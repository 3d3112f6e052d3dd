//! What a repository's forge is told about a commit: pending while it is being applied, success once it runs,
//! failure with the reason. Each application says what is so now; a task per repository writes that into the
//! outbox and sends it, as slowly as the forge likes. The loop waits for none of it.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use tokio::{
    sync::watch,
    time::{Instant, sleep_until},
};
use tokio_util::sync::CancellationToken;

use crate::error::chain;
use driftless_clock::Clock;
use driftless_config as config;
use driftless_config::{CommitStatus, StatusProvider};
use driftless_forge::{Error, Forge, Kind, State, Status};
use driftless_git::{Lookup, read_secret};
use driftless_model::{AppName, CommitInfo, Finding, HealthStatus, Outcome, PinStatus, Revision, Timestamp};
use driftless_plan::fetch_delay;
use driftless_store as store;
use driftless_store::{StatusNote, Store};

/// After a refusal, such as by a token that may not write: somebody has to change something.
const REFUSED_PAUSE: Duration = Duration::from_mins(10);

/// What each application has to say of its newest commit.
pub(crate) type Verdicts = BTreeMap<AppName, Told>;

/// Why a forge refuses what it is told, until somebody changes something; by repository.
pub(crate) type Untold = BTreeMap<String, String>;

/// What is so for the newest commit of one application.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Told {
    pub(crate) repository: String,
    pub(crate) commit: String,
    pub(crate) state: State,
    pub(crate) description: String,
}

/// What is known of an application when it is asked for its newest commit.
#[derive(Clone, Copy)]
pub(crate) struct Known<'a> {
    /// The newest commit.
    pub(crate) wanted: &'a CommitInfo,
    pub(crate) findings: &'a [Finding],
    pub(crate) pin: Option<&'a PinStatus>,
    pub(crate) health: HealthStatus,
    /// The commit that is reached.
    pub(crate) reached: Option<&'a CommitInfo>,
    pub(crate) revision: Option<&'a Revision>,
    pub(crate) message: &'a str,
}

/// State and description for the newest commit; none for one that changes nothing here, of which there may be
/// many where many applications share a repository.
pub(crate) fn verdict(known: &Known<'_>) -> Option<(State, String)> {
    let Known { wanted, findings, pin, health, reached, revision, message } = known;
    if let Some(error) = findings.iter().find(|it| it.is_error()) {
        return Some((State::Failure, format!("not applied: {error}")));
    }
    if let Some(pin) = pin.filter(|it| it.commit != wanted.id) {
        return Some((State::Pending, format!("held at revision {}: {}", pin.revision, pin.reason)));
    }
    if *health == HealthStatus::Suspended {
        return Some((State::Pending, "the application is suspended".to_owned()));
    }
    let is_reached = reached.is_some_and(|it| it.id == wanted.id);
    let own = revision.filter(|it| it.commit.id == wanted.id);
    match own.map(|it| (it.number, &it.outcome)) {
        Some((number, Outcome::Failed { reason })) => {
            Some((State::Failure, format!("revision {number} failed: {reason}")))
        }
        Some((number, Outcome::Succeeded)) if is_reached => {
            Some((State::Success, format!("runs as revision {number}")))
        }
        None if is_reached => None,
        // What goes well changes its words often, which nobody reads at a forge.
        Some((_, Outcome::InProgress | Outcome::Succeeded | Outcome::Superseded)) | None => {
            let is_bad = *health == HealthStatus::Degraded && !message.is_empty();
            Some((State::Pending, if is_bad { *message } else { "being applied" }.to_owned()))
        }
    }
}

/// Tells one forge what becomes of the commits of one repository, until stopped.
pub(crate) struct Teller {
    pub(crate) repository: String,
    pub(crate) settings: CommitStatus,
    pub(crate) verdicts: watch::Receiver<Verdicts>,
    pub(crate) untold: Arc<watch::Sender<Untold>>,
    pub(crate) store: Store,
    pub(crate) environment: Lookup,
    pub(crate) clock: Clock,
}

impl Teller {
    /// `None` where the configuration asks for no statuses.
    pub(crate) fn of(
        repository: &config::Repository,
        (verdicts, untold): (watch::Receiver<Verdicts>, Arc<watch::Sender<Untold>>),
        store: &Store,
        environment: &Lookup,
        clock: Clock,
    ) -> Option<Self> {
        Some(Self {
            repository: repository.name.clone(),
            settings: repository.status.clone()?,
            verdicts,
            untold,
            store: store.clone(),
            environment: Arc::clone(environment),
            clock,
        })
    }

    pub(crate) async fn run(mut self, stop: CancellationToken) {
        let mut failures = 0;
        loop {
            self.note();
            let pause = tokio::select! {
                () = stop.cancelled() => return,
                sent = self.send() => match sent {
                    Ok(()) => {
                        self.publish(None);
                        failures = 0;
                        None
                    }
                    Err(error) => {
                        failures += 1;
                        Some(self.complain(&error, failures))
                    }
                },
            };
            let again = Instant::now() + pause.unwrap_or(REFUSED_PAUSE);
            loop {
                tokio::select! {
                    () = stop.cancelled() => return,
                    changed = self.verdicts.changed() => {
                        if changed.is_err() {
                            return;
                        }
                        self.note();
                        // A forge that is away is not asked more often because there is more to tell.
                        if pause.is_none() {
                            break;
                        }
                    }
                    () = sleep_until(again), if pause.is_some() => break,
                }
            }
        }
    }

    /// Writes down what is so now.
    fn note(&mut self) {
        let verdicts = self.verdicts.borrow_and_update().clone();
        for (app, told) in verdicts.into_iter().filter(|it| it.1.repository == self.repository) {
            let note = StatusNote {
                commit: told.commit,
                context: format!("{}/{app}", self.settings.context),
                state: word(told.state).to_owned(),
                description: told.description,
            };
            if let Err(error) = self.store.note_status(&self.repository, &note) {
                tracing::warn!(repository = self.repository, error = chain(&error), "a status is not noted");
            }
        }
    }

    async fn send(&self) -> Result<(), Trouble> {
        let notes = self.store.unsent_statuses(&self.repository)?;
        if notes.is_empty() {
            return Ok(());
        }
        let CommitStatus { provider, token, api, project, context: _ } = &self.settings;
        let token = read_secret(token, &self.environment).map_err(Trouble::Token)?;
        let kind = match provider {
            StatusProvider::GitHub => Kind::GitHub,
            StatusProvider::GitLab => Kind::GitLab,
            StatusProvider::Gitea => Kind::Gitea,
        };
        let forge = Forge::new(kind, api, project, &token)?;
        let mut refused = None;
        for note in notes {
            let status = Status {
                state: state(&note.state),
                context: note.context.clone(),
                description: note.description.clone(),
                url: None,
            };
            match forge.set_status(&note.commit, &status).await {
                Ok(()) => {}
                // A commit that the forge does not have must not stand before those that it has.
                Err(error @ Error::Refused { .. }) => {
                    refused.get_or_insert(error);
                    continue;
                }
                Err(error) => return Err(error.into()),
            }
            self.store.sent_status(&self.repository, &note)?;
            tracing::debug!(repository = self.repository, context = note.context, state = note.state, "told");
        }
        refused.map_or(Ok(()), |error| Err(error.into()))
    }

    /// Says what is wrong, and how long to wait.
    fn complain(&self, trouble: &Trouble, failures: u32) -> Duration {
        let now = self.clock.now();
        let pause = match trouble {
            Trouble::Forge(Error::Unreachable { .. }) | Trouble::Store(_) => {
                fetch_delay(failures, crate::seed(&self.repository, now))
            }
            Trouble::Forge(Error::Refused { status, .. })
                if status.is_server_error() || status.as_u16() == 429 =>
            {
                fetch_delay(failures, crate::seed(&self.repository, now))
            }
            Trouble::Forge(_) | Trouble::Token(_) => REFUSED_PAUSE,
        };
        let error = chain(trouble);
        if pause == REFUSED_PAUSE {
            self.publish(Some(error.clone()));
        }
        let next: Timestamp = now.after(pause);
        tracing::warn!(repository = self.repository, error, %next, "the forge is not told about commits");
        pause
    }
}

impl Teller {
    /// Puts into the status why the forge takes no word, or that it does again.
    fn publish(&self, refusal: Option<String>) {
        self.untold.send_if_modified(|all| match refusal {
            Some(refusal) => all.insert(self.repository.clone(), refusal.clone()) != Some(refusal),
            None => all.remove(&self.repository).is_some(),
        });
    }
}

#[derive(Debug, thiserror::Error)]
enum Trouble {
    #[error("could not read the token: {0}")]
    Token(String),
    #[error(transparent)]
    Forge(#[from] Error),
    #[error(transparent)]
    Store(#[from] store::Error),
}

const WORDS: [(&str, State); 4] = [
    ("pending", State::Pending),
    ("success", State::Success),
    ("failure", State::Failure),
    ("error", State::Error),
];

fn word(state: State) -> &'static str {
    WORDS.iter().find(|it| it.1 == state).map_or("error", |it| it.0)
}

fn state(word: &str) -> State {
    WORDS.iter().find(|it| it.0 == word).map_or(State::Error, |it| it.1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use driftless_model::{Cause, Location, StackHash, Until};

    fn commit(id: &str) -> CommitInfo {
        CommitInfo { id: id.repeat(40), ..CommitInfo::default() }
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
        }
    }

    #[test]
    fn a_commit_is_pending_until_it_runs_or_cannot() {
        let verdict = |known: &Known<'_>| verdict(known).unwrap();
        let (a, b) = (commit("a"), commit("b"));
        let going = revision("b", Outcome::InProgress);
        let done = revision("b", Outcome::Succeeded);
        let failed = revision("b", Outcome::Failed { reason: "deadline".to_owned() });
        let known = Known {
            wanted: &b,
            findings: &[],
            pin: None,
            health: HealthStatus::Progressing,
            reached: Some(&a),
            revision: Some(&going),
            message: "manifest unknown",
        };
        assert_eq!(verdict(&known), (State::Pending, "being applied".to_owned()));
        let stuck = Known { health: HealthStatus::Degraded, ..known };
        assert_eq!(verdict(&stuck), (State::Pending, "manifest unknown".to_owned()));
        let reached =
            Known { reached: Some(&b), revision: Some(&done), health: HealthStatus::Healthy, ..known };
        assert_eq!(verdict(&reached), (State::Success, "runs as revision 4".to_owned()));
        // What breaks later is not the commit's doing.
        assert_eq!(verdict(&Known { health: HealthStatus::Degraded, ..reached }).0, State::Success);
        let failed = Known { revision: Some(&failed), ..reached };
        assert_eq!(verdict(&failed), (State::Failure, "revision 4 failed: deadline".to_owned()));
        let older = revision("a", Outcome::Succeeded);
        let untouched = Known { revision: Some(&older), ..reached };
        assert_eq!(super::verdict(&untouched), None, "it changes nothing here");
        let findings = [Finding::error(Location::file("compose.yaml"), "services", "no")];
        let invalid = Known { findings: &findings, ..reached };
        assert!(verdict(&invalid).1.contains("compose.yaml"));
        assert_eq!(verdict(&invalid).0, State::Failure);
        let pin = PinStatus {
            revision: 3,
            commit: a.id.clone(),
            reason: "orders fail".to_owned(),
            at: Timestamp(1),
            until: Until::Manual,
            behind: None,
        };
        let pinned = Known { pin: Some(&pin), ..known };
        assert_eq!(verdict(&pinned), (State::Pending, "held at revision 3: orders fail".to_owned()));
        assert_eq!(verdict(&Known { health: HealthStatus::Suspended, ..known }).0, State::Pending);
    }
}
