//! The interface through which the agent fetches and reads commits.

use std::{future::Future, sync::Arc};

use driftless_config::Verify;
use driftless_files::Files;
use driftless_model::{CommitId, CommitInfo};

use super::error::Error;

/// A repository that the agent follows.
pub trait CommitSource: Send + Sync + 'static {
    /// Fetches the tip of the followed reference. If nothing changed since `known`, this costs one listing of references
    /// and returns the same commit.
    fn fetch(&self, known: Option<&CommitId>) -> impl Future<Output = Result<Checkout, Error>> + Send;

    /// A user asks for a fetch: the next one downloads a commit again even if that has just failed.
    fn end_download_pause(&self);

    /// A commit from the mirror, without the network: the pinned one, or the last good one after a restart.
    fn local(&self, commit: &CommitId) -> impl Future<Output = Result<Checkout, Error>> + Send;

    /// The signer of a commit, or of the tag that was followed to it, if the policy trusts it. The inner error says why
    /// the signature is not accepted. The outer one is [`Cause::Interrupted`](super::Cause) if a fetch must first tell
    /// which tag of a version range is followed.
    fn verify(
        &self,
        commit: &CommitId,
        policy: &Verify,
    ) -> impl Future<Output = Result<Result<String, String>, Error>> + Send;

    /// The number of commits in `tip` that are not in `base`; `None` if it is unknown.
    fn ahead(&self, base: &CommitId, tip: &CommitId) -> impl Future<Output = Option<u64>> + Send;

    /// The number of commits in the history of a commit, with itself; `None` if it is unknown or there are very many. Of two
    /// commits of one branch, the difference is the number of commits between them.
    fn history_length(&self, commit: &CommitId) -> impl Future<Output = Option<u64>> + Send;

    /// Keeps these commits even if their branches change, and no others.
    fn keep(&self, commits: Vec<CommitId>) -> impl Future<Output = Result<(), Error>> + Send;
}

/// One commit and its files.
#[derive(Clone, Debug)]
pub struct Checkout {
    pub commit: CommitInfo,
    pub files: Arc<dyn Files>,
    /// The branch was rewritten: the commit known before is not an ancestor.
    pub rewritten: bool,
    /// The followed tag.
    pub tag: Option<String>,
}
