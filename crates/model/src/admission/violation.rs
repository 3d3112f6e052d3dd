//! Violations of an admission policy.

use std::fmt;

use crate::WorkloadName;

/// One thing that a policy does not allow, with what is needed to find its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The key of the policy.
    pub rule: &'static str,
    /// The object that it is about.
    pub object: ViolatingObject,
    /// The keys of manifests that may have caused it, of both formats.
    pub keys: &'static [&'static str],
    /// A text that the value at the place contains.
    pub value: Option<String>,
    /// The sentence about it, without its subject.
    pub message: String,
}

/// The object of a violation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ViolatingObject {
    /// A workload, and the name of the part if it is not the first container.
    Workload(WorkloadName, Option<String>),
    /// A network by its key in the manifest.
    Network(String),
    /// A volume by its key in the manifest.
    Volume(String),
}

impl fmt::Display for ViolatingObject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Workload(name, None) => write!(f, "{name}"),
            Self::Workload(name, Some(part)) => write!(f, "{name} ({part})"),
            Self::Network(key) => write!(f, "the network {key}"),
            Self::Volume(key) => write!(f, "the volume {key}"),
        }
    }
}

impl Violation {
    /// The advice how to correct it.
    pub fn help(&self) -> String {
        let rule = self.rule;
        match rule {
            "requireDigests" => {
                format!(
                    "append the digest (`NAME@sha256:…`), or change `policy.{rule}` in the agent's configuration"
                )
            }
            "requireLimits" => {
                format!("set the limit, or change `policy.{rule}` in the agent's configuration")
            }
            "bindMounts" => format!(
                "use a named volume, or allow the path with `policy.{rule}` in the agent's configuration; a folder above \
                 a protected path, and a mount inside of a writable one, cannot be allowed"
            ),
            _ => format!(
                "remove it from the manifest, or allow it with `policy.{rule}` in the agent's configuration"
            ),
        }
    }
}
