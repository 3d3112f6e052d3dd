//! The interface through which the agent fetches and reads commits, and the errors of this crate.

use std::{future::Future, sync::Arc, time::Duration};

use driftless_config::Verify;
use driftless_files::Files;
use driftless_model::{CommitId, CommitInfo};

/// A repository that the agent follows.
pub trait CommitSource: Send + Sync + 'static {
    /// Fetches the tip of the followed reference. If nothing changed since `known`, this costs one listing of references
    /// and returns the same commit.
    fn fetch(&self, known: Option<&CommitId>) -> impl Future<Output = Result<Checkout, Error>> + Send;

    /// A commit from the mirror, without the network: the pinned one, or the last good one after a restart.
    fn local(&self, commit: &CommitId) -> impl Future<Output = Result<Checkout, Error>> + Send;

    /// The signer of a commit, or of the tag that was followed to it, if the policy trusts it. The inner error says why
    /// the signature is not accepted.
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

/// Why an operation failed, sorted by what the agent does next. No message contains a credential.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The server is unreachable, stalls or has an internal error. The agent tries again later.
    #[error("could not {doing}: {message}")]
    Transient { doing: String, message: String, retry_after: Option<Duration> },
    /// The server denies access or the reference does not exist: a user must change something. The agent tries again at
    /// the next poll.
    #[error("could not {doing}: {message}")]
    Rejected { doing: String, message: String },
    /// The mirror is damaged and could not be cloned again.
    #[error("could not {doing}: {message}")]
    Damaged { doing: String, message: String },
}
