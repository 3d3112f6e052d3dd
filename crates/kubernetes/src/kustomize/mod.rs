//! Kustomize: a `kustomization.yaml` in, the objects that it makes of manifests out.
//!
//! It works on the tree in which every value knows its place, so that whatever is wrong in the result points to the
//! file and line that it came from: the base, the patch, or the kustomization itself. The steps and their order are
//! those of kustomize 5: what is listed, what is generated, components; then patches, namespace, prefix, suffix, labels,
//! annotations, JSON patches, replicas, images, replacements; and, once for all of it, hashes and references.
//!
//! Deliberately not here: anything that fetches (remote bases, charts) or runs programs (plugins), and what the objects
//! mean. A kustomization may read any file of its repository, where kustomize keeps it to its own folder.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use super::reader::Report;
use driftless_files::Files;
use driftless_yaml::Node;

mod file_names;
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

/// An annotation of what is for tools only.
const LOCAL: &str = "config.kubernetes.io/local-config";

/// What came of a build.
pub struct Built {
    /// Of no use if there was an error.
    pub documents: Vec<Node>,
    /// Every file that was read.
    pub sources: BTreeMap<String, Arc<[u8]>>,
}

/// Builds what the kustomization at a path asks for.
pub(crate) fn build(files: &dyn Files, path: &str, report: &Report) -> Built {
    let mut loader = Loader::new(files, report);
    let mut resources = loader.application(path);
    if !report.has_errors() {
        generate::add_hashes(&mut resources);
        let mut findings = Vec::new();
        references::fix(&mut resources, &mut findings);
        report.say_all(findings);
    }
    resources.retain(|it| it.texts("annotations").get(LOCAL).is_none_or(|it| *it == "false"));
    Built { documents: resources.into_iter().map(|it| it.node).collect(), sources: loader.sources.read }
}

/// What a kustomization takes in.
pub struct Taken {
    /// Every file that it reads, wherever in the repository.
    pub files: BTreeSet<String>,
    /// Something that it lists cannot be read.
    pub has_gaps: bool,
}

impl Taken {
    /// Whether all of it lies in a folder.
    pub fn is_below(&self, folder: &str) -> bool {
        let prefix = if folder.is_empty() { String::new() } else { format!("{folder}/") };
        self.files.iter().all(|it| it.starts_with(&prefix))
    }
}

/// What the kustomization at a path takes in, whatever else is to be located about it.
pub fn taken_in(files: &dyn Files, path: &str) -> Taken {
    let report = Report::default();
    let mut loader = Loader::new(files, &report);
    drop(loader.application(path));
    Taken { files: loader.sources.read.into_keys().collect(), has_gaps: loader.sources.has_gaps }
}

/// Every key and what becomes of it, as a table for people.
pub fn page() -> String {
    keys::page()
}
