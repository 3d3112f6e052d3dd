//! Contents of mounted files, identified by their hash. A changed file is another content.

use std::{collections::BTreeMap, fmt, sync::Arc};

use serde::{Deserialize, Serialize};

use super::digest_hex;

/// SHA-256 of a file or folder that is mounted into containers.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ContentId(pub String);

impl ContentId {
    /// The first twelve digits, for people.
    pub fn short(&self) -> &str {
        self.0.get(..12).unwrap_or(&self.0)
    }
}

/// The content of a mounted file or folder. Never printed: it may be a secret.
#[derive(Clone, PartialEq, Eq)]
pub enum Content {
    File {
        bytes: Arc<[u8]>,
        executable: bool,
    },
    Folder(ContentTree),
    /// A file with the owner and mode that the manifest asks for.
    Owned {
        bytes: Arc<[u8]>,
        mode: u32,
        uid: u32,
        gid: u32,
    },
}

/// Paths inside the folder, with `/`, never absolute and never with `..`.
pub type ContentTree = BTreeMap<String, (Arc<[u8]>, Access)>;

/// Permissions of a file in a mounted folder. The folder is mounted read-only.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Access {
    /// Everybody may read it.
    #[default]
    Read,
    /// Everybody may read and run it.
    Run,
    /// The mode that the manifest asks for, and the group of a file of root.
    Asked { mode: u32, group: Option<u32> },
}

impl Access {
    /// The permissions of a file that is a program or not.
    pub fn of(executable: bool) -> Self {
        if executable { Self::Run } else { Self::Read }
    }

    /// These bits without write permission. A group, if there is one, may read in any case.
    pub fn asked(mode: u32, group: Option<u32>) -> Self {
        match (mode | group.map_or(0, |_| 0o440)) & 0o555 {
            0o444 => Self::Read,
            0o555 => Self::Run,
            mode => Self::Asked { mode, group },
        }
    }

    pub fn mode(self) -> u32 {
        match self {
            Self::Read => 0o444,
            Self::Run => 0o555,
            Self::Asked { mode, .. } => mode,
        }
    }

    /// The group that is asked for.
    pub fn group(self) -> Option<u32> {
        match self {
            Self::Asked { group, .. } => group,
            Self::Read | Self::Run => None,
        }
    }

    pub fn is_executable(self) -> bool {
        self.mode() & 0o111 != 0
    }

    /// For the digest: the first two are as they have always been.
    fn word(self) -> String {
        match self {
            Self::Read => "-".to_owned(),
            Self::Run => "x".to_owned(),
            Self::Asked { mode, group: None } => format!("{mode:04o}"),
            Self::Asked { mode, group: Some(group) } => format!("{mode:04o}:{group}"),
        }
    }
}

/// Everything a stack mounts, by id.
pub type Contents = BTreeMap<ContentId, Content>;

impl Content {
    pub fn file(bytes: impl Into<Arc<[u8]>>) -> Self {
        Self::File { bytes: bytes.into(), executable: false }
    }

    /// The digest of names, modes and bytes, and nothing else.
    pub fn id(&self) -> ContentId {
        let mut text = Vec::new();
        let mut add = |path: &str, bytes: &[u8], access: Access| {
            let line = format!("{} {} {path}\n", access.word(), digest_hex(bytes));
            text.extend_from_slice(line.as_bytes());
        };
        match self {
            Self::File { bytes, executable } => add("", bytes, Access::of(*executable)),
            Self::Owned { bytes, mode, uid, gid } => {
                let line = format!("{mode:04o} {uid}:{gid} {}\n", digest_hex(bytes));
                text.extend_from_slice(line.as_bytes());
            }
            Self::Folder(tree) => {
                for (path, (bytes, access)) in tree {
                    add(path, bytes, *access);
                }
                text.extend_from_slice(b"folder\n");
            }
        }
        ContentId(digest_hex(&text))
    }

    /// Size of the content in bytes.
    pub fn size(&self) -> usize {
        match self {
            Self::File { bytes, .. } | Self::Owned { bytes, .. } => bytes.len(),
            Self::Folder(tree) => tree.values().map(|(bytes, _)| bytes.len()).sum(),
        }
    }
}

impl fmt::Debug for Content {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Content({} bytes)", self.size())
    }
}
