//! Files of a commit in, one [`Stack`](driftless_model::Stack) per application out. Pure: the same files give the same
//! stack.
//!
//! The two front-ends, `compose` and `kubernetes`, meet only in [`driftless_model::Stack`]; neither knows the
//! other, nor Docker. Every field of a manifest ends as used, as a warning or as an error, never in silence.

use driftless_files::{AppSpec, Bounded, Files, Rendered};
use driftless_model::{Finding, Format, check};

pub mod convert;
mod cores;
mod discover;

pub use cores::on_all_cores;
pub use discover::{Configured, Discovery, discover};

/// How many files and folders the mounts, build contexts and manifests of one application may list together.
const MOST_ENTRIES: usize = 100_000;

/// Renders one application: its manifests, and whatever they refer to in the repository.
pub fn render(files: &dyn Files, spec: &AppSpec) -> Rendered {
    let files = Bounded::new(files, MOST_ENTRIES);
    match spec.format {
        Format::Compose => driftless_compose::render(&files, spec),
        Format::Kubernetes => checked(driftless_kubernetes::render(&files, spec)),
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
    driftless_compose::keys()
}

/// Every kind and field of Kubernetes' manifests and what becomes of it, as tables for `docs/kubernetes.md`.
pub fn kubernetes_fields() -> String {
    driftless_kubernetes::fields_page()
}

/// Every key of a kustomization and what becomes of it, as a table for `docs/kustomize.md`.
pub fn kustomization_keys() -> String {
    driftless_kubernetes::kustomize::page()
}
