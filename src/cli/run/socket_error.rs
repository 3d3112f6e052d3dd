//! The errors of the Unix socket of the API.

use std::{io, path::PathBuf};

use driftless_config::SOCKET_FOLDER;

/// Why there is no socket.
#[derive(Debug, thiserror::Error)]
pub(super) enum SocketError {
    #[error("another agent uses {0}")]
    InUse(PathBuf),
    #[error("{0} is no socket")]
    NoSocket(PathBuf),
    #[error("this machine has no group `{0}`")]
    NoGroup(String),
    #[error("systemd has made no folder `{SOCKET_FOLDER}` for it")]
    NoFolder,
    #[error("could not {doing} {path}")]
    Io {
        doing: &'static str,
        path: PathBuf,
        #[source]
        source: io::Error,
    },
}
