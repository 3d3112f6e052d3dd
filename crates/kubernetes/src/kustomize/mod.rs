//! Kustomize: builds the objects of a `kustomization.yaml`.
//!
//! The build edits YAML trees in which every value has its place, so that a finding about the result points to the file
//! and line of the value: in the base, the patch or the kustomization. The steps and their order are those of kustomize
//! 5:
//! resources, generators, components; then patches, namespace, prefix, suffix, labels, annotations, JSON patches,
//! replicas, images, replacements; and, once for the whole application, hashes and references.
//!
//! A build downloads nothing (no remote bases, no charts) and runs no program (no plugins). It does not interpret the
//! objects. A kustomization may read any file of its repository; kustomize restricts it to its own folder.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use self::gaps::Gaps;
use super::reader::Report;
use driftless_files::Files;
use driftless_yaml::{Node, edit::entries_mut, edit::get_mut, edit::text};

mod file_names;
mod gaps;
mod generate;
mod json_patch;
mod keys;
mod load;
mod merge;
mod patches;
mod references;
mod replace;
mod resource;
mod selector;
mod settings;
mod source_files;
mod transform;
mod walk;

pub use file_names::{FILES, is_kustomization};
use load::Loader;

/// The annotation of objects that only tools read.
const LOCAL: &str = "config.kubernetes.io/local-config";

/// The result of a build.
pub struct Built {
    /// The objects. Incomplete if a finding is an error.
    pub documents: Vec<Node>,
    /// The content of all files that were read, by path.
    pub sources: BTreeMap<String, Arc<[u8]>>,
}

/// Builds the kustomization at a path.
pub(crate) fn build(files: &dyn Files, path: &str, report: &Report) -> Built {
    let mut loader = Loader::new(files, report);
    let mut resources = loader.application(path);
    if !report.has_errors() {
        generate::add_hashes(&mut resources);
        let mut findings = Vec::new();
        references::fix(&mut resources, &mut findings);
        report.say_all(findings);
    }
    for resource in &mut resources {
        quote_annotations(&mut resource.node);
    }
    resources.retain(|it| it.texts("annotations").get(LOCAL).is_none_or(|it| *it == "false"));
    Built { documents: resources.into_iter().map(|it| it.node).collect(), sources: loader.sources.read }
}

/// Makes numbers and booleans in the annotations of an object strings, as kustomize does.
fn quote_annotations(node: &mut Node) {
    let annotations = get_mut(node, "metadata").and_then(|metadata| get_mut(metadata, "annotations"));
    for entry in annotations.map(entries_mut).unwrap_or_default() {
        if let Some(written) = entry.value.as_scalar() {
            entry.value = text(&entry.value.place, written);
        }
    }
}

/// The files that a kustomization uses.
pub struct UsedFiles {
    /// All files that it reads, by path from the repository's root.
    pub files: BTreeSet<String>,
    gaps: Gaps,
}

impl UsedFiles {
    /// Whether something that it lists cannot be read.
    pub fn has_gaps(&self) -> bool {
        !self.gaps.is_empty()
    }

    /// Whether something that it lists and that cannot be read was probably meant to be this folder.
    pub fn may_use(&self, folder: &str) -> bool {
        self.gaps.may_mean(folder)
    }

    /// Whether all files are below a folder.
    pub fn is_below(&self, folder: &str) -> bool {
        let prefix = if folder.is_empty() { String::new() } else { format!("{folder}/") };
        self.files.iter().all(|it| it.starts_with(&prefix))
    }
}

/// The files that the kustomization at a path uses. Findings are dropped; the build reports them.
pub fn used_files(files: &dyn Files, path: &str) -> UsedFiles {
    let report = Report::default();
    let mut loader = Loader::new(files, &report);
    drop(loader.application(path));
    UsedFiles { files: loader.sources.read.into_keys().collect(), gaps: loader.sources.gaps }
}

/// All keys of a kustomization as a Markdown table for `docs/kustomize.md`.
pub fn page() -> String {
    keys::page()
}
