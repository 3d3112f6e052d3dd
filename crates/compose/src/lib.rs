//! Compose files to the model: load, decode key by key, lower.
//!
//! The rules are those of the Compose specification and of its reference parser. It knows neither Docker nor
//! Kubernetes. What a file may ask for and we cannot do yet is an error with its place, never silence.

use driftless_files::{AppSpec, Files, Rendered};
use driftless_model::{Finding, Mask};

mod build;
mod canonical;
mod cast;
mod consistency;
mod deploy;
mod dotenv;
mod extends;
mod fields;
mod host;
mod include;
mod interpolate;
mod load;
mod lower;
mod merge;
mod mounts;
mod normalise;
mod on_change;
mod paths;
mod ports;
mod print;
mod reader;
mod resets;
mod resources;
mod scalar;
mod schema;
mod service;
mod settings;
mod shape;
mod share;
mod short;
mod spec;
mod strict;
mod support;
mod tree;
mod unique;
mod variables;
mod words;

use load::{errors_at, load};
use reader::Reader;

/// What came of loading an application's files, without a look at what of it can be done.
#[derive(Clone, Debug, Default)]
pub struct Project {
    /// In the canonical form. `None` if any finding is an error.
    pub model: Option<serde_json::Value>,
    pub findings: Vec<Finding>,
}

/// Loads a Compose application. `folder` is where it lies on some machine, for the paths in it; `mask` hides values
/// that may be secret.
pub fn project(files: &dyn Files, spec: &AppSpec, folder: &str, mask: Option<&Mask>) -> Project {
    let mut loaded = load(files, spec);
    let mut findings = std::mem::take(&mut loaded.findings);
    loaded.present(&mut findings);
    let has_error = findings.iter().any(Finding::is_error);
    let model = if has_error { None } else { loaded.canonical(folder, mask) };
    Project { model, findings }
}

/// Every key and what becomes of it, as a table for people.
pub fn keys() -> String {
    support::page()
}

/// Renders a Compose application.
pub fn render(files: &dyn Files, spec: &AppSpec) -> Rendered {
    let mut loaded = load(files, spec);
    let mut findings = std::mem::take(&mut loaded.findings);
    let Some(root) = &loaded.root else {
        loaded.present(&mut findings);
        return Rendered { findings, ..Rendered::default() };
    };
    let mut more = Vec::new();
    let mut reader = Reader::default();
    let project = resources::project(&mut reader, root);
    more.append(&mut reader.findings);
    if project.services.is_empty() && !findings.iter().any(Finding::is_error) {
        more.push(root.finding("", "the file has no services"));
    }
    let (mut stack, contents) =
        lower::lower(files, spec, &loaded.name, &loaded.variables, &project, &mut more);
    stack.manifests.clone_from(&loaded.manifests);
    more.extend(driftless_model::check(&stack));
    // What was told of a place already is not told again in other words.
    let told = errors_at(&findings);
    more.retain(|it| !told.contains(&it.location));
    findings.extend(more);
    loaded.present(&mut findings);
    if findings.iter().any(Finding::is_error) {
        return Rendered { findings, ..Rendered::default() };
    }
    Rendered { stack: Some(stack), findings, contents }
}
