//! Files that containers mount, by what is in them: a change is a new thing.

use std::{collections::BTreeMap, fmt, sync::Arc};

use serde::{Deserialize, Serialize};

use super::digest_hex;

/// SHA-256 of a file or folder that is mounted into containers.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ContentId(pub String);

/// What a [`ContentId`] stands for. Never printed: it may be a secret.
#[derive(Clone, PartialEq, Eq)]
pub enum Content {
    File {
        bytes: Arc<[u8]>,
        executable: bool,
    },
    Folder(ContentTree),
    /// A file whose owner and mode were asked for.
    Owned {
        bytes: Arc<[u8]>,
        mode: u32,
        uid: u32,
        gid: u32,
    },
}

/// Paths inside the folder, with `/`, never absolute and never with `..`.
pub type ContentTree = BTreeMap<String, (Arc<[u8]>, bool)>;

/// Everything a stack mounts, by id.
pub type Contents = BTreeMap<ContentId, Content>;

impl Content {
    pub fn file(bytes: impl Into<Arc<[u8]>>) -> Self {
        Self::File { bytes: bytes.into(), executable: false }
    }

    /// The digest of names, modes and bytes, and nothing else.
    pub fn id(&self) -> ContentId {
        let mut text = Vec::new();
        let mut add = |path: &str, bytes: &[u8], executable: bool| {
            let mode = if executable { 'x' } else { '-' };
            text.extend_from_slice(format!("{mode} {} {path}\n", digest_hex(bytes)).as_bytes());
        };
        match self {
            Self::File { bytes, executable } => add("", bytes, *executable),
            Self::Owned { bytes, mode, uid, gid } => {
                let line = format!("{mode:04o} {uid}:{gid} {}\n", digest_hex(bytes));
                text.extend_from_slice(line.as_bytes());
            }
            Self::Folder(tree) => {
                for (path, (bytes, executable)) in tree {
                    add(path, bytes, *executable);
                }
                text.extend_from_slice(b"folder\n");
            }
        }
        ContentId(digest_hex(&text))
    }

    /// How many bytes it holds.
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
