//! Whether a commit may be taken up at all: whether it is signed by somebody who is trusted, and builds on the one
//! before where that is asked for. What is refused changes nothing; the last good commit stays the wanted one.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

use driftless_config as config;
use driftless_config::Verify;
use driftless_git as source;
use driftless_git::{Checkout, Source};
use driftless_model::{AppName, CommitInfo, Finding, Location};
use driftless_store::Store;

/// A commit that was not taken up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) commit: CommitInfo,
    /// One word in camel case.
    pub(crate) reason: &'static str,
    pub(crate) why: String,
    /// What to do about it.
    pub(crate) help: &'static str,
}

/// The rewritten commit that somebody said yes to.
#[derive(Clone, Debug, Default)]
pub(crate) struct Consent(Arc<Mutex<Option<String>>>);

const SIGN: &str = "sign the commit with a trusted key, or add the signer's key to the trusted ones";
const REWRITTEN: &str = "`driftless sync APP --accept-rewrite` takes it up";

impl Consent {
    pub(crate) fn give(&self, commit: &str) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(commit.to_owned());
    }

    fn covers(&self, commit: &str) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).as_deref() == Some(commit)
    }
}

impl Refusal {
    pub(crate) fn unsigned(commit: &CommitInfo, why: String) -> Self {
        Self { commit: commit.clone(), reason: "SignatureRefused", why, help: SIGN }
    }

    /// One line without the commit.
    pub(crate) fn sentence(&self) -> String {
        format!("the commit {} is refused: {} ({})", self.commit.short(), self.why, self.help)
    }

    /// As a remark about an application that would have been changed by it.
    pub(crate) fn finding(&self) -> Finding {
        let place = Location::file(format!("commit {}", self.commit.short()));
        Finding::error(place, "", self.why.clone()).help(self.help)
    }
}

/// What came of judging a commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// And who signed it, where that is asked for.
    Good(Option<String>),
    Refused(Refusal),
}

/// Judges what a fetch brought.
pub(crate) async fn judge<S: Source>(
    settings: &config::Repository,
    source: &S,
    checkout: &Checkout,
    known: Option<&str>,
    consent: &Consent,
) -> Result<Verdict, source::Error> {
    let commit = &checkout.commit;
    if settings.require_fast_forward && checkout.rewritten && !consent.covers(&commit.id) {
        let before = known.and_then(|it| it.get(..12)).unwrap_or_default();
        let why =
            format!("the history was rewritten: it does not build on {before}, which was taken up before");
        let refusal = Refusal { commit: commit.clone(), reason: "HistoryRewritten", why, help: REWRITTEN };
        return Ok(Verdict::Refused(refusal));
    }
    let Some(policy) = &settings.verify else { return Ok(Verdict::Good(None)) };
    Ok(match source.verify(&commit.id, policy).await? {
        Ok(signer) => Verdict::Good(Some(signer)),
        Err(why) => Verdict::Refused(Refusal::unsigned(commit, why)),
    })
}

/// What is refused for single applications, which ask for more than their repository does.
pub(crate) async fn judge_applications<S: Source>(
    settings: &config::Repository,
    source: &S,
    store: &Store,
    commit: &CommitInfo,
) -> Result<BTreeMap<AppName, Refusal>, source::Error> {
    let mut refused = BTreeMap::new();
    for application in &settings.applications {
        let (Some(policy), Some(name)) = (&application.verify, application.app_name()) else {
            continue;
        };
        let key = format!("{}/{name}", settings.name);
        if was_verified(store, &key, &commit.id, policy) {
            continue;
        }
        match source.verify(&commit.id, policy).await? {
            Ok(_) => remember(store, &key, &commit.id, policy),
            Err(why) => drop(refused.insert(name, Refusal::unsigned(commit, why))),
        }
    }
    Ok(refused)
}

/// Whether this commit was found good before, by the very same policy. A key that expires later, and a restart,
/// do not undo that.
pub(crate) fn was_verified(store: &Store, key: &str, commit: &str, policy: &Verify) -> bool {
    store.verified(key).ok().flatten().is_some_and(|it| it == mark(commit, policy))
}

pub(crate) fn remember(store: &Store, key: &str, commit: &str, policy: &Verify) {
    if let Err(error) = store.set_verified(key, &mark(commit, policy)) {
        tracing::warn!(%error, "that the commit was verified is not remembered");
    }
}

/// Keys in files are not part of it, so that they can be rotated.
fn mark(commit: &str, policy: &Verify) -> String {
    format!("{commit} {policy:?}")
}
