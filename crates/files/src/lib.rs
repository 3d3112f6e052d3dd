//! The files of a repository as manifests read them, and the application that is rendered from them.
//!
//! [`Files`] separates the formats from Git: it is a commit, a folder on disk, or a map in memory ([`MemoryFiles`]).
//! Nothing else is readable, so a manifest cannot reach the file system of the host.
//!
//! ```
//! use driftless_files::{Entry, Files, MemoryFiles, ReadError};
//!
//! let files = MemoryFiles::new([("shop/compose.yaml", "services: {}\n")]);
//! assert_eq!(files.entry("shop"), Ok(Some(Entry::Folder)));
//! assert_eq!(files.read("shop/compose.yaml", 1024).as_deref(), Ok(b"services: {}\n".as_slice()));
//! assert_eq!(files.read("/etc/passwd", 1024), Err(ReadError::Missing("/etc/passwd".to_owned())));
//! ```
//!
//! [`Recorder`] notes what a rendering reads, so that a commit that changes none of it need not be rendered again.

use std::collections::{BTreeMap, BTreeSet};

use driftless_model::{AppName, Contents, EngineKind, Finding, Format, Stack};

mod bounded;
mod broken_link;
mod budget;
pub mod context;
pub mod dockerfile;
pub mod files;
mod host_files;
mod host_values;
mod ignore;
mod interruptible;
pub mod paths;
mod reads;
mod similar;
mod swarm_files;

pub use bounded::Bounded;
pub use broken_link::{broken_link, broken_link_error};
pub use budget::{Budget, Exceeded};
pub use context::{Context, ContextEntry};
pub use files::{Entry, Files, MemoryFiles, ReadError};
pub use host_files::{HostFile, WithHostFiles};
pub use host_values::HostValues;
pub use interruptible::{InterruptOnDrop, Interruptible};
pub use reads::{Reads, Recorder};
pub use similar::similar_path;
pub use swarm_files::{UnfitFile, folder_hides_nothing, swarm_files};

/// The largest file that is read as a manifest, in bytes.
pub const LARGEST_MANIFEST: u64 = 1 << 20;

/// One application to render, as configured or discovered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AppSpec {
    /// Unique on the host.
    pub name: AppName,
    /// The folder of the application in the repository.
    pub path: String,
    /// Compose or Kubernetes.
    pub format: Format,
    /// The manifests: for Compose the files that are merged, in order; for Kubernetes all, sorted.
    pub files: Vec<String>,
    /// Variables for interpolation. They win over those of `.env`. Never the environment of the agent.
    pub variables: BTreeMap<String, String>,
    /// Variables that lie on the host; a later source wins. `variables` win over them, and they win over `.env`.
    pub host_values: Vec<HostValues>,
    /// Files that lie on the host, where the repository has none.
    pub host_files: Vec<HostFile>,
    /// Active Compose profiles.
    pub profiles: Vec<String>,
    /// Files of variables in the repository, instead of `.env` in the folder of the application.
    pub env_files: Vec<String>,
    /// The engine that runs the application.
    pub engine: EngineKind,
    /// Whether the configuration lists `files`. Otherwise they were found, and `COMPOSE_FILE` may replace them.
    pub has_listed_files: bool,
    /// Findings about the settings and the folder of the application. With an error among them it is not rendered.
    pub findings: Vec<Finding>,
}

impl AppSpec {
    /// A Compose application without settings: its project is read from `files`, in the folder of the first one.
    pub fn compose(name: &str, files: &[&str]) -> Self {
        Self::listed(Format::Compose, name, files)
    }

    /// A Kubernetes application without settings: its objects are read from `files`, which are manifests, or one
    /// kustomization.
    pub fn kubernetes(name: &str, files: &[&str]) -> Self {
        Self::listed(Format::Kubernetes, name, files)
    }

    /// Whether a path is in the folder of the application.
    pub fn has_below(&self, path: &str) -> bool {
        self.path.is_empty() || path.strip_prefix(&self.path).is_some_and(|rest| rest.starts_with('/'))
    }

    fn listed(format: Format, name: &str, files: &[&str]) -> Self {
        Self {
            name: AppName::from(name),
            path: paths::parent(files.first().copied().unwrap_or_default()).to_owned(),
            format,
            files: files.iter().map(|path| (*path).to_owned()).collect(),
            variables: BTreeMap::new(),
            host_values: Vec::new(),
            host_files: Vec::new(),
            profiles: Vec::new(),
            env_files: Vec::new(),
            engine: EngineKind::Docker,
            has_listed_files: true,
            findings: Vec::new(),
        }
    }
}

/// The result of rendering.
#[derive(Clone, Debug, Default)]
pub struct Rendered {
    /// `None` if any finding is an error.
    pub stack: Option<Stack>,
    /// Errors and warnings about the manifests.
    pub findings: Vec<Finding>,
    /// The files and folders that the stack mounts.
    pub contents: Contents,
    /// The files of the host that the manifests refer to, by their paths in the repository.
    pub host_files: BTreeSet<String>,
}
