//! Configs and secrets of a Swarm: the words and keys of each.

/// Whether a file of a Swarm is a config or a secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SwarmFileKind {
    Config,
    Secret,
}

impl SwarmFileKind {
    pub const ALL: [Self; 2] = [Self::Config, Self::Secret];

    /// The kind by the field `secret` of stored types.
    pub fn of(secret: bool) -> Self {
        if secret { Self::Secret } else { Self::Config }
    }

    /// The field `secret` of stored types.
    pub fn is_secret(self) -> bool {
        self == Self::Secret
    }

    /// Its word in commands of Docker and in sentences.
    pub fn word(self) -> &'static str {
        match self {
            Self::Config => "config",
            Self::Secret => "secret",
        }
    }

    /// Its part of a path of the engine's API, and its section of a Compose file.
    pub fn path(self) -> &'static str {
        match self {
            Self::Config => "configs",
            Self::Secret => "secrets",
        }
    }

    /// Its list in the container of a service's specification.
    pub fn list(self) -> &'static str {
        match self {
            Self::Config => "Configs",
            Self::Secret => "Secrets",
        }
    }

    /// The key of a name in this list.
    pub fn name_key(self) -> &'static str {
        match self {
            Self::Config => "ConfigName",
            Self::Secret => "SecretName",
        }
    }

    /// The key of an id in this list.
    pub fn id_key(self) -> &'static str {
        match self {
            Self::Config => "ConfigID",
            Self::Secret => "SecretID",
        }
    }

    /// The folder in a container below which engines take a relative path.
    pub fn folder(self) -> &'static str {
        match self {
            Self::Config => "/",
            Self::Secret => "/run/secrets/",
        }
    }
}
