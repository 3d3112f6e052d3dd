//! The texts of manifests that are encrypted in the repository.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::defaults::is_default;

/// The variables and free texts of manifests that are encrypted in the repository. They only say what is masked, so they are no
/// part of the hash of a stack: a manifest that becomes encrypted asks for the same containers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EncryptedTexts {
    /// Names of variables. Their values are masked like those of a Secret, and a long one in other texts too.
    #[serde(default, skip_serializing_if = "is_default")]
    pub variables: BTreeSet<String>,
    /// Labels, arguments, options and other free text. A short one is a word like `web`, so it is masked only where it is a whole
    /// value or argument.
    #[serde(default, skip_serializing_if = "is_default")]
    pub texts: BTreeSet<String>,
}
