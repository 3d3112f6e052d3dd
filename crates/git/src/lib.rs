//! Git: fetches repositories and reads commits. The only crate that knows gix.
//!
//! [`Repository`] keeps one bare mirror per repository and reads manifests from the trees of commits: there is no work
//! tree. [`LocalRepository`] reads commits of a clone, [`Directory`] the files of a plain folder. Nothing is ever written to
//! a server, and files of Git LFS are not fetched.
//!
//! | module | content |
//! |---|---|
//! | `repository` | a fetch from the request to the checkout |
//! | `credentials`, `followed_ref` | the secrets, the reference to follow |
//! | `limits` | deadline, silence, bytes, cancellation |
//! | `remote_client`, `server_messages` | listing references and receiving commits; errors of servers |
//! | `http`, `process` | the transports |
//! | `github_app`, `proxy`, `host_key` | tokens of a GitHub App; proxies; keys of SSH servers |
//! | `mirror`, `history`, `repack` | the mirror on disk, its commits, its packs |
//! | `signature` | signatures of commits and tags |
//! | `commit_files`, `directory`, `ignored`, `lfs` | the files of a commit or of a folder |
//! | `local_repository` | commits of a clone on this machine |
//! | `submodules` | submodules, each with its own mirror |
//!
//! # Example
//!
//! A folder is read like a commit, and nothing outside of it is readable:
//!
//! ```
//! use driftless_files::{Files, ReadError};
//! use driftless_git::Directory;
//!
//! let folder = tempfile::tempdir()?;
//! std::fs::write(folder.path().join("compose.yaml"), "services: {}")?;
//! let files = Directory::open(folder.path())?;
//! assert_eq!(&*files.read("compose.yaml", 1024)?, b"services: {}");
//! assert!(matches!(files.read("../secret", 1024), Err(ReadError::Missing(_))));
//! # Ok::<_, Box<dyn std::error::Error>>(())
//! ```

use std::{future::Future, sync::Arc, time::Duration};

use driftless_config::Verify;
use driftless_files::Files;
use driftless_model::{CommitId, CommitInfo};

mod commit_files;
mod credentials;
mod directory;
mod followed_ref;
mod github_app;
mod history;
mod host_key;
mod http;
mod ignored;
mod lfs;
mod limits;
mod local_repository;
mod mirror;
mod process;
mod proxy;
mod remote_client;
mod repack;
mod repository;
mod server_messages;
mod signature;
mod submodules;

pub use credentials::{Credentials, Lookup, read_secret};
pub use directory::Directory;
pub use local_repository::LocalRepository;
pub use repository::{FetchPermits, Repository, RepositoryOptions};

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
