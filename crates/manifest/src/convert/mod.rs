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
mod hidden;
mod kubernetes;
mod kubernetes_mounts;
mod kubernetes_pod;
mod kubernetes_writer;
mod output;
mod pods;
mod published;

use hidden::without_secrets;
pub use output::{Converted, SecretValues};
use published::without_proxies;

/// Converts a stack to Kubernetes manifests.
pub fn to_kubernetes(stack: &Stack, contents: &Contents, secrets: SecretValues) -> Converted {
    let convert =
        |stack: &Stack, contents: &Contents| kubernetes::convert(&without_proxies(stack), contents, secrets);
    with_secrets_as(secrets, stack, contents, convert)
}

/// Converts a stack to one Compose file.
pub fn to_compose(stack: &Stack, contents: &Contents, secrets: SecretValues) -> Converted {
    with_secrets_as(secrets, stack, contents, |stack, contents| compose::convert(stack, contents, secrets))
}

/// Converts a stack, without the values of secrets if they are not to be shown.
fn with_secrets_as(
    secrets: SecretValues,
    stack: &Stack,
    contents: &Contents,
    convert: impl Fn(&Stack, &Contents) -> Converted,
) -> Converted {
    if secrets == SecretValues::Shown {
        return convert(stack, contents);
    }
    let (stack, contents, mut hidden) = without_secrets(stack, contents);
    let mut converted = convert(&stack, &contents);
    converted.lost.append(&mut hidden);
    converted.lost.sort();
    converted.lost.dedup();
    converted
}
