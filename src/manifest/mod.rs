//! Files of a commit in, one [`Stack`] per application out. Pure: the same files give the same stack.
//!
//! The two front-ends, `compose` and `kubernetes`, meet only in [`crate::model::Stack`]; neither knows the
//! other, nor Docker. Every field of a manifest ends as used, as a warning or as an error, never in silence.

use std::collections::BTreeMap;

use crate::model::{AppName, Contents, Finding, Format, Stack};

mod check;
pub mod compose;
mod context;
mod cores;
mod discover;
mod files;
mod ignore;
pub mod kubernetes;
mod paths;
mod reads;
pub mod yaml;

pub use check::{check, conflicts};
pub use context::{Context, ContextEntry};
pub use cores::on_all_cores;
pub use discover::{Configured, Discovery, discover};
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

/// Renders one application: its manifests, and whatever they refer to in the repository.
pub fn render(files: &dyn Files, spec: &AppSpec) -> Rendered {
    match spec.format {
        Format::Compose => compose::render(files, spec),
        Format::Kubernetes => checked(kubernetes::render(files, spec)),
    }
}

/// Adds what the model itself demands, where it is whole. (Compose asks for that even where it is not.)
fn checked(mut rendered: Rendered) -> Rendered {
    let more = rendered.stack.as_ref().map(check).unwrap_or_default();
    rendered.findings.extend(more);
    if rendered.findings.iter().any(Finding::is_error) {
        return Rendered { findings: rendered.findings, ..Rendered::default() };
    }
    rendered
}

/// Every key of a Compose file and what becomes of it, as a table for `docs/compose.md`.
pub fn compose_keys() -> String {
    compose::keys()
}

/// Every kind and field of Kubernetes' manifests and what becomes of it, as tables for `docs/kubernetes.md`.
pub fn kubernetes_fields() -> String {
    kubernetes::fields_page()
}

/// Every key of a kustomization and what becomes of it, as a table for `docs/kustomize.md`.
pub fn kustomization_keys() -> String {
    kubernetes::kustomize::page()
}
