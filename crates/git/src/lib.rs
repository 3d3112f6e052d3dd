//! Git: the only module that knows gix. A bare mirror per repository; manifests are read from a commit's tree.
//!
//! Deliberately has no work tree, speaks no LFS, and never writes to a server.
//!
//! | file | what |
//! |---|---|
//! | `remote`, `credentials`, `target` | where, with which secrets, and what to follow |
//! | `bound` | deadline, silence, bytes, cancellation |
//! | `http`, `process` | the two ways to a server |
//! | `github_app`, `proxy`, `host_key` | tokens of an App; which proxy; which SSH server |
//! | `wire`, `progress` | listing and receiving; what went wrong |
//! | `mirror`, `history`, `collect` | the mirror on disk, its commits, its packs |
//! | `signature` | who signed, and whether to trust them |
//! | `tree`, `directory`, `lfs` | files of a commit, or of a plain folder |
//! | `local` | commits of a repository that is here already |
//! | `modules` | submodules, each with a mirror of its own |
//! | `repository` | the order of all this |

use std::{future::Future, sync::Arc, time::Duration};

use driftless_config::Verify;
use driftless_files::Files;
use driftless_model::CommitInfo;

mod bound;
mod collect;
mod credentials;
mod directory;
mod github_app;
mod history;
mod host_key;
mod http;
mod lfs;
mod local;
mod mirror;
mod modules;
mod process;
mod progress;
mod proxy;
mod remote;
mod repository;
mod signature;
mod target;
mod tree;
mod wire;

pub use credentials::{Credentials, Lookup, read_secret};
pub use directory::Directory;
pub use local::Local;
pub use remote::{InvalidUrl, Remote, parse_url};
pub use repository::{Options, Repository, Slots};

/// Where desired state comes from.
pub trait Source: Send + Sync + 'static {
    /// Asks for the tip of the followed reference, fetches it if it is new, and returns it. When nothing
    /// changed since `known`, this costs one listing of references and returns the same commit.
    fn fetch(&self, known: Option<&str>) -> impl Future<Output = Result<Checkout, Error>> + Send;

    /// A commit that is already here, without any network: the one that is pinned, or the last good one after
    /// a restart.
    fn local(&self, commit: &str) -> impl Future<Output = Result<Checkout, Error>> + Send;

    /// Who signed a commit, or the tag by which it was fetched last, as the policy asks for. The inner error says
    /// why nobody did that is trusted.
    fn verify(
        &self,
        commit: &str,
        policy: &Verify,
    ) -> impl Future<Output = Result<Result<String, String>, Error>> + Send;

    /// How many commits `tip` has that `base` has not; `None` when that cannot be told.
    fn ahead(&self, base: &str, tip: &str) -> impl Future<Output = Option<u64>> + Send;

    /// Keeps these commits (and forgets others kept before), whatever happens to their branches.
    fn keep(&self, commits: Vec<String>) -> impl Future<Output = Result<(), Error>> + Send;
}

/// One commit and its files.
#[derive(Clone, Debug)]
pub struct Checkout {
    pub commit: CommitInfo,
    pub files: Arc<dyn Files>,
    /// The branch was rewritten since the commit known before.
    pub rewritten: bool,
    /// The tag that was followed to it.
    pub tag: Option<String>,
}

/// Sorted by what the loop does next. No text in here ever holds a credential.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The server is not there, stalls or has an inner error: try again later.
    #[error("could not {doing}: {message}")]
    Transient { doing: String, message: String, retry_after: Option<Duration> },
    /// The server refuses us or the reference does not exist: somebody must change something. Tried again all
    /// the same, at the pace of the poll.
    #[error("could not {doing}: {message}")]
    Rejected { doing: String, message: String },
    /// The mirror is damaged and could not be made anew.
    #[error("could not {doing}: {message}")]
    Damaged { doing: String, message: String },
}
