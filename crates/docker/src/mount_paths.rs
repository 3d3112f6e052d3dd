//! The folders below which the files lie that containers mount from the state directory.

use std::path::PathBuf;

/// The folders of mounted files: as this process sees them, or as the engine's host sees them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct MountPaths {
    /// `<content>/<id>` is a file or folder, stored under the hash of its bytes.
    pub content: PathBuf,
    /// `<secret>/<id>` likewise, on a memory file system.
    pub secret: PathBuf,
    /// `<app>/<name>` is an application's own writable folder.
    pub app: PathBuf,
}
