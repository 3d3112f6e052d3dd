//! Finds the applications in the files of a commit, renders each to a [`Stack`](driftless_model::Stack), and converts
//! stacks between Compose and Kubernetes.
//!
//! The same files give the same stack. The crates `driftless_compose` and `driftless_kubernetes` meet only in the stack;
//! neither knows the other, nor Docker. Every field of a manifest is used, or reported as a warning or an error.
//!
//! ```
//! use driftless_files::MemoryFiles;
//! use driftless_manifest::{convert, discover, render};
//!
//! let files = MemoryFiles::new([
//!     ("shop/compose.yaml", "services: {web: {image: 'nginx:1.29', ports: ['8080:80'], restart: always}}"),
//! ]);
//! let found = discover(&files, "", "apps", &[]);
//! assert_eq!(found.apps[0].name.as_str(), "shop");
//!
//! let rendered = render(&files, &found.apps[0]);
//! let stack = rendered.stack.unwrap();
//! let secrets = convert::SecretValues::Hidden;
//! let manifests = convert::to_kubernetes(&stack, &rendered.contents, secrets).documents;
//! let kinds: Vec<&str> = manifests.iter().filter_map(|object| object["kind"].as_str()).collect();
//! assert_eq!(kinds, ["Deployment", "Service"]);
//! ```

use driftless_files::{AppSpec, Bounded, Files, HostFile, Rendered, WithHostFiles};
use driftless_model::{Finding, Format, Location, check};

pub mod admission;
pub mod convert;
mod discover;
mod folder_findings;
pub mod import;
mod kustomize_bases;
mod parallel;
mod same_names;
mod shared_manifests;
mod unreadable;
mod unsearched;

pub use discover::{Configured, Discovery, discover, discover_for, unlisted};
pub use parallel::on_all_cores;
pub use unreadable::may_hide;

/// The most files and folders that the mounts, build contexts and manifests of one application may list together.
const MOST_ENTRIES: usize = 100_000;

/// Renders one application: its manifests, and the files that they refer to. An application with an error in its
/// settings has no stack: without a file that they name, its values would be empty.
pub fn render(files: &dyn Files, spec: &AppSpec) -> Rendered {
    if spec.findings.iter().any(Finding::is_error) {
        return Rendered { findings: spec.findings.clone(), ..Rendered::default() };
    }
    let hidden = hidden_host_files(files, spec);
    let with_host = WithHostFiles::new(files, &spec.host_files);
    let files = Bounded::new(&with_host, MOST_ENTRIES);
    let mut rendered = match spec.format {
        Format::Compose => driftless_compose::render(&files, spec),
        Format::Kubernetes => checked(driftless_kubernetes::render(&files, spec)),
    };
    rendered.host_files = with_host.asked();
    rendered.findings.splice(..0, spec.findings.iter().cloned().chain(hidden));
    rendered
}

/// Warnings about files of the host in the application's folder that Git has too.
fn hidden_host_files(files: &dyn Files, spec: &AppSpec) -> Vec<Finding> {
    let is_hidden = |file: &&HostFile| {
        spec.has_below(&file.path) && files.entry(&file.path).is_ok_and(|entry| entry.is_some())
    };
    let warning = |HostFile { path, source, .. }: &HostFile| {
        let message = format!("Git has this file, so {source} is not read for it");
        Finding::warning(Location::file(path), "valuesFrom", message)
            .help("remove the file from Git, or the source from `valuesFrom`")
    };
    spec.host_files.iter().filter(is_hidden).map(warning).collect()
}

/// Checks the rules of the model for a complete stack. (Compose checks them itself, also for incomplete ones.)
fn checked(mut rendered: Rendered) -> Rendered {
    let more = rendered.stack.as_ref().map(check).unwrap_or_default();
    rendered.findings.extend(more);
    if rendered.findings.iter().any(Finding::is_error) {
        return Rendered { findings: rendered.findings, ..Rendered::default() };
    }
    rendered
}

/// All keys of a Compose file as a Markdown table for `docs/compose.md`.
pub fn compose_keys() -> String {
    driftless_compose::keys()
}

/// All kinds and fields of Kubernetes manifests as Markdown tables for `docs/kubernetes.md`.
pub fn kubernetes_fields() -> String {
    driftless_kubernetes::fields_page()
}

/// All keys of a kustomization as a Markdown table for `docs/kustomize.md`.
pub fn kustomization_keys() -> String {
    driftless_kubernetes::kustomize::page()
}
