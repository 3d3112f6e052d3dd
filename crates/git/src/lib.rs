//! Git: fetches repositories and reads commits. The only crate that knows gix.
//!
//! [`Repository`] keeps one bare mirror per repository and reads manifests from the trees of commits: there is no work
//! tree. [`LocalRepository`] reads commits of a clone, [`Directory`] the files of a plain folder. Nothing is ever written to
//! a server, and files of Git LFS are not fetched.
//!
//! | module | content |
//! |---|---|
//! | `commit_source`, `error` | the interface of a followed repository; its errors and their causes |
//! | `options`, `repository` | a fetch from the request to the checkout |
//! | `credentials`, `followed_ref` | the secrets, the reference to follow |
//! | `limits`, `download_pause` | deadline, silence, bytes, cancellation; the pause after a failed download |
//! | `remote_client`, `conversation`, `server_messages` | listing references and receiving commits; errors of servers |
//! | `http`, `http_client`, `process` | the transports |
//! | `github_app`, `proxy`, `host_key` | tokens of a GitHub App; proxies; keys of SSH servers |
//! | `mirror`, `history`, `repack` | the mirror on disk, its commits, its packs |
//! | `signature` | signatures of commits and tags |
//! | `commit_files`, `directory`, `ignored`, `filtered` | the files of a commit or of a folder |
//! | `local_repository`, `index_tree` | commits and the index of a clone on this machine |
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

mod commit_files;
mod commit_source;
mod conversation;
mod credentials;
mod directory;
mod download_pause;
mod error;
mod filtered;
mod followed_ref;
mod github_app;
mod history;
mod host_key;
mod http;
mod http_client;
mod ignored;
mod index_tree;
mod limits;
mod local_repository;
mod mirror;
mod options;
mod process;
mod proxy;
mod remote_client;
mod repack;
mod repository;
mod server_messages;
mod signature;
mod submodules;
mod unused_mirrors;

pub use commit_source::{Checkout, CommitSource};
pub use credentials::{Credentials, Lookup, read_secret, read_secret_list};
pub use directory::Directory;
pub use error::{Cause, Error, Retry};
pub use local_repository::LocalRepository;
pub use options::{FetchPermits, RepositoryOptions};
pub use repository::Repository;
pub use signature::{KeyEnd, signing_key_ends};
pub use unused_mirrors::{remove_submodule_mirrors, remove_unused_mirrors};
