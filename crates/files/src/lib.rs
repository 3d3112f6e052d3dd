//! Files of a repository as manifests read them, and the application that is rendered from them.
//!
//! [`Files`] is the seam between Git and the formats: a commit, a folder or a map in memory. Everything is pure but
//! for what an implementation of [`Files`] does.

use std::collections::BTreeMap;

use driftless_model::{AppName, Contents, Finding, Format, Stack};

pub mod context;
pub mod files;
mod ignore;
pub mod paths;
mod reads;

pub use context::{Context, ContextEntry};
pub use files::{Entry, Files, MemoryFiles, ReadError};
pub use reads::{Reads, Recorder};

/// One application to render, as configured or discovered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AppSpec {
    pub name: AppName,
    /// The folder of the application in the repository.
    pub path: String,
    pub format: Format,
    /// The manifest files: for Compose the one (and its override), for Kubernetes all, sorted.
    pub files: Vec<String>,
    /// Variables for interpolation, over those of `.env`. Never the agent's own environment.
    pub variables: BTreeMap<String, String>,
    /// Active Compose profiles.
    pub profiles: Vec<String>,
    /// Files of variables in the repository, instead of `.env` beside the manifests.
    pub env_files: Vec<String>,
    /// Whether `files` were named by the operator, rather than found.
    pub has_listed_files: bool,
}

/// What came of rendering.
#[derive(Clone, Debug, Default)]
pub struct Rendered {
    /// `None` if any finding is an error.
    pub stack: Option<Stack>,
    pub findings: Vec<Finding>,
    /// What the stack mounts.
    pub contents: Contents,
}
