//! Names and identities, each its own type so that none is taken for another.

use std::fmt;

use serde::{Deserialize, Serialize};

macro_rules! name {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub String);

        impl $name {
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl From<&str> for $name {
            fn from(text: &str) -> Self {
                Self(text.to_owned())
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

name!(
    /// An application's name: `[a-z0-9]` first, then `[a-z0-9_-]`, at most 63 characters,
    /// which is what a Compose project may be called.
    AppName
);
name!(
    /// A workload's name inside its application: a Compose service, or a Deployment.
    WorkloadName
);
name!(
    /// Docker's 64-digit id of a container. It names one container for ever.
    ContainerId
);
name!(
    /// The id of the agent that owns an object: random, made once per state directory, written into labels.
    AgentId
);

/// A name that breaks the rules of [`AppName`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is not a valid application name: use lower-case letters, digits, `-` and `_`, beginning with a letter or digit, at most 63 characters"
)]
pub struct InvalidName(pub String);

impl AppName {
    /// Checks the rules of an application's name.
    pub fn parse(text: &str) -> Result<Self, InvalidName> {
        let first = text.chars().next().is_some_and(|it| it.is_ascii_lowercase() || it.is_ascii_digit());
        let rest =
            text.chars().all(|it| it.is_ascii_lowercase() || it.is_ascii_digit() || it == '-' || it == '_');
        if first && rest && text.len() <= 63 {
            Ok(Self(text.to_owned()))
        } else {
            Err(InvalidName(text.to_owned()))
        }
    }

    /// Makes a name out of any text as Compose makes a project's name out of a directory's:
    /// lower case, `[a-z0-9_-]` kept, leading `_` and `-` dropped. `None` when nothing is left.
    pub fn normalise(text: &str) -> Option<Self> {
        let kept: String = text
            .to_lowercase()
            .chars()
            .filter(|it| it.is_ascii_lowercase() || it.is_ascii_digit() || *it == '-' || *it == '_')
            .collect();
        Self::parse(
            kept.trim_start_matches(['-', '_']).get(..63.min(kept.trim_start_matches(['-', '_']).len()))?,
        )
        .ok()
    }
}

impl AgentId {
    /// The first twelve digits, for people.
    pub fn short(&self) -> &str {
        self.0.get(..12).unwrap_or(&self.0)
    }
}

impl ContainerId {
    /// The first twelve digits, as Docker's own tools print it.
    pub fn short(&self) -> &str {
        self.0.get(..12).unwrap_or(&self.0)
    }
}

/// A replica of a workload, by its slot. Slots count from 1 and are reused, lowest first.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct InstanceId {
    pub workload: WorkloadName,
    pub slot: u32,
}

impl fmt::Display for InstanceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.workload, self.slot)
    }
}
