//! The text of files that findings may quote.

use std::sync::Arc;

use driftless_files::Files;

/// The text of a file for quoting lines: none of a file that is encrypted in the repository.
pub(crate) fn quotable(files: &dyn Files, path: &str, bytes: &Arc<[u8]>) -> Arc<[u8]> {
    if files.is_encrypted(path) { Arc::default() } else { Arc::clone(bytes) }
}
