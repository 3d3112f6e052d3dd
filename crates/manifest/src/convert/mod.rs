//! Converts a stack to the other format: to Kubernetes manifests, or to a Compose file.
//!
//! Every field that the other format does not have is a finding at the place of its workload, with the field of the
//! model
//! in its path. Equal stacks give equal documents.

use driftless_model::{Contents, Stack};

mod compose;
mod compose_mounts;
mod compose_values;
mod extension;
mod kubernetes;
mod kubernetes_mounts;
mod kubernetes_pod;
mod kubernetes_writer;
mod output;
mod pods;
mod published;

pub use output::{Converted, SecretValues};
use published::without_proxies;

/// Converts a stack to Kubernetes manifests.
pub fn to_kubernetes(stack: &Stack, contents: &Contents, secrets: SecretValues) -> Converted {
    kubernetes::convert(&without_proxies(stack), contents, secrets)
}

/// Converts a stack to one Compose file.
pub fn to_compose(stack: &Stack, contents: &Contents, secrets: SecretValues) -> Converted {
    compose::convert(stack, contents, secrets)
}
