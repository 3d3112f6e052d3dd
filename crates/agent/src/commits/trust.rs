//! Whether a commit is accepted: signed by a trusted signer, and based on the last accepted commit, where the
//! configuration requires that. A rejected commit changes nothing; the last accepted one stays the desired state.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

use driftless_config as config;
use driftless_config::Verify;
use driftless_git as git;
use driftless_git::{Checkout, CommitSource};
use driftless_model::{AppName, CommitId, CommitInfo, Finding, Location};
use driftless_store as store;
use driftless_store::Store;

use crate::error::chain;

/// A commit that was not accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RejectedCommit {
    pub(crate) commit: CommitInfo,
    /// One word in camel case, the reason of a condition.
    pub(crate) reason: &'static str,
    /// Why, in words.
    pub(crate) why: String,
    /// The way out, in words.
    pub(crate) help: &'static str,
}

/// The rewritten commit that a user has accepted.
#[derive(Clone, Debug, Default)]
pub(crate) struct AcceptedRewrite(Arc<Mutex<Option<CommitId>>>);

const HELP_SIGN: &str = "sign the commit with a trusted key, or add the signer's key to the trusted ones";
const HELP_REWRITTEN: &str = "accept it with `driftless sync APP --accept-rewrite`";

impl AcceptedRewrite {
    pub(crate) fn set(&self, commit: &CommitId) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(commit.to_owned());
    }

    /// The commit has been taken up. A branch that goes on from it and is set back to it is rewritten once more.
    pub(crate) fn end(&self, commit: &CommitId) {
        let mut accepted = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if accepted.as_ref() == Some(commit) {
            *accepted = None;
        }
    }

    fn is(&self, commit: &CommitId) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).as_ref() == Some(commit)
    }
}

impl RejectedCommit {
    pub(crate) fn unsigned(commit: &CommitInfo, why: String) -> Self {
        Self { commit: commit.clone(), reason: "SignatureRefused", why, help: HELP_SIGN }
    }

    /// One line with commit, reason and help.
    pub(crate) fn sentence(&self) -> String {
        format!("the commit {} is refused: {} ({})", self.commit.short(), self.why, self.help)
    }

    /// A finding about an application that the commit would have created.
    pub(crate) fn finding(&self) -> Finding {
        let place = Location::file(format!("commit {}", self.commit.short()));
        Finding::error(place, "", self.why.clone()).help(self.help)
    }
}

/// Whether a commit is accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Trust {
    /// With the signer, if a signature is required.
    Accepted {
        signer: Option<String>,
    },
    Rejected(RejectedCommit),
}

/// Checks the commit of a fetch against the settings of its repository.
pub(crate) async fn check_commit<S: CommitSource>(
    settings: &config::Repository,
    source: &S,
    checkout: &Checkout,
    last_accepted: Option<&CommitId>,
    accepted_rewrite: &AcceptedRewrite,
) -> Result<Trust, git::Error> {
    let commit = &checkout.commit;
    if settings.require_fast_forward && checkout.rewritten && !accepted_rewrite.is(&commit.id) {
        let before = last_accepted.map(CommitId::short).unwrap_or_default();
        let why =
            format!("the history was rewritten: it does not build on {before}, which was taken up before");
        return Ok(Trust::Rejected(RejectedCommit {
            commit: commit.clone(),
            reason: "HistoryRewritten",
            why,
            help: HELP_REWRITTEN,
        }));
    }
    let Some(policy) = &settings.verify else { return Ok(Trust::Accepted { signer: None }) };
    Ok(match source.verify(&commit.id, policy).await? {
        Ok(signer) => Trust::Accepted { signer: Some(signer) },
        Err(why) => Trust::Rejected(RejectedCommit::unsigned(commit, why)),
    })
}

/// Checks a commit for the applications that have signature settings of their own. Returns those that reject it.
pub(crate) async fn check_applications<S: CommitSource>(
    settings: &config::Repository,
    source: &S,
    store: &Store,
    commit: &CommitInfo,
) -> Result<BTreeMap<AppName, RejectedCommit>, git::Error> {
    let mut rejected = BTreeMap::new();
    for application in &settings.applications {
        let (Some(policy), Some(name)) = (&application.verify, application.app_name()) else {
            continue;
        };
        let key = key_of(settings, &name);
        if was_verified(store, &key, &commit.id, policy) {
            continue;
        }
        match source.verify(&commit.id, policy).await? {
            Ok(_) => remember_verified(store, &key, &commit.id, policy),
            Err(why) => drop(rejected.insert(name, RejectedCommit::unsigned(commit, why))),
        }
    }
    Ok(rejected)
}

/// The last commit that an application with signature settings of its own accepted: `in_this_life` of the agent, else the stored
/// one, which is verified again if these settings have changed. `None`: it accepted none, or that one cannot be read any more
/// or does not keep to these settings.
pub(crate) async fn last_accepted<S: CommitSource>(
    settings: &config::Repository,
    source: &S,
    store: &Store,
    app: &AppName,
    in_this_life: Option<&CommitId>,
) -> Result<Option<Checkout>, git::Error> {
    let own = settings.applications.iter().find(|own| own.app_name().as_ref() == Some(app));
    let Some(policy) = own.and_then(|own| own.verify.as_ref()) else { return Ok(None) };
    let key = key_of(settings, app);
    let stored = store.verified(&key).unwrap_or_else(|error| {
        tracing::warn!(%app, error = chain(&error), "could not read which commit the application accepted last");
        None
    });
    let last = in_this_life.cloned().or_else(|| stored.as_deref().map(commit_of));
    let Some(commit) = last else { return Ok(None) };
    let checkout = match source.local(&commit).await {
        Err(error) if error.cause == git::Cause::CommitNotFound => {
            let error = chain(&error);
            tracing::warn!(%app, error, "could not read the last commit that the application accepted");
            return Ok(None);
        }
        read => read?,
    };
    if in_this_life.is_none() && stored.as_deref() != Some(&*fingerprint(&commit, policy)) {
        match source.verify(&commit, policy).await? {
            Ok(_) => remember_verified(store, &key, &commit, policy),
            Err(reason) => {
                let commit = commit.short();
                tracing::warn!(%app, commit, reason, "the last accepted commit does not keep to the signature settings of now");
                return Ok(None);
            }
        }
    }
    // The tag that is followed now may name a newer commit.
    Ok(Some(Checkout { tag: None, ..checkout }))
}

/// The commits that a rollback or a rejected newer commit may need: those of all revisions, and the last ones that the repository
/// and its applications accepted. The last accepted one need not be that of a revision: it may change no application.
pub(crate) fn commits_to_keep(
    settings: &config::Repository,
    store: &Store,
) -> Result<Vec<CommitId>, store::Error> {
    let mut commits = accepted_by_applications(settings, store)?;
    commits.extend(store.last_commit(&settings.name)?);
    for known in store.known_applications()? {
        if known.repository == settings.name {
            let revisions = store.revisions(&known.app)?;
            commits.extend(revisions.into_iter().map(|revision| revision.commit.id));
        }
    }
    commits.sort_unstable();
    commits.dedup();
    Ok(commits)
}

/// The last commits that the applications with signature settings of their own accepted.
fn accepted_by_applications(
    settings: &config::Repository,
    store: &Store,
) -> Result<Vec<CommitId>, store::Error> {
    let mut commits = Vec::new();
    for application in settings.applications.iter().filter(|application| application.verify.is_some()) {
        let Some(name) = application.app_name() else { continue };
        commits.extend(store.verified(&key_of(settings, &name))?.as_deref().map(commit_of));
    }
    Ok(commits)
}

/// The key of an application's verified commit in the database.
fn key_of(settings: &config::Repository, app: &AppName) -> String {
    format!("{}/{app}", settings.name)
}

/// Whether this commit was verified before, with the same policy. A key that expires later and a restart of the agent
/// do not change that.
pub(crate) fn was_verified(store: &Store, key: &str, commit: &CommitId, policy: &Verify) -> bool {
    store.verified(key).ok().flatten().is_some_and(|verified| verified == fingerprint(commit, policy))
}

/// Stores that a commit was verified.
pub(crate) fn remember_verified(store: &Store, key: &str, commit: &CommitId, policy: &Verify) {
    if let Err(error) = store.set_verified(key, &fingerprint(commit, policy)) {
        tracing::warn!(
            repository = key,
            commit = commit.as_str(),
            error = chain(&error),
            "could not store that the commit is verified"
        );
    }
}

/// The commit and the policy in one text. Keys in files are named, not included, so that they can be rotated.
fn fingerprint(commit: &CommitId, policy: &Verify) -> String {
    format!("{commit} {policy:?}")
}

/// The commit of a [`fingerprint`].
fn commit_of(fingerprint: &str) -> CommitId {
    CommitId::from_stored(fingerprint.split(' ').next().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use driftless_clock::Clock;
    use driftless_config::Settings;
    use driftless_model::Timestamp;

    use super::*;

    #[test]
    fn last_accepted_commit_is_kept_without_a_revision() {
        let text = "repositories: [{name: infra, url: 'https://git.example/infra.git'}]\n";
        let settings = Settings::parse("driftless.yaml", text).unwrap().repositories.remove(0);
        let store = Store::in_memory(Clock::starting_at(Timestamp(1_800_000_000_000))).unwrap();
        assert!(commits_to_keep(&settings, &store).unwrap().is_empty());
        let [accepted, other] = ["a", "b"].map(|digit| CommitId::from_stored(digit.repeat(40)));
        store.set_last_commit("infra", &accepted).unwrap();
        store.set_last_commit("other", &other).unwrap();
        assert_eq!(commits_to_keep(&settings, &store).unwrap(), [accepted]);
    }
}
