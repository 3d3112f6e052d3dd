//! The files of running containers: which of them differ from the image, and when one was written.

use driftless_model::{ContainerId, FileChangeKind, Timestamp};
use http::Method;
use http_body_util::BodyExt;
use serde::Deserialize;

use crate::{
    call_error::CallError,
    connection::Connection,
    deadline::{DEADLINE, within},
    docker::FileChanges,
    error::Error,
    percent_encoding::encode_path,
};

/// Bytes. The longest list of changed files that is read: tens of thousands of files.
const LONGEST_LIST: usize = 4 << 20;

/// The files of a container that differ from its image.
///
/// The engine locks the container meanwhile, and its list may be as long as the disk allows. A longer list than this
/// client reads is truncated, and the connection is closed.
pub(crate) async fn changed_files(
    connection: &Connection,
    container: &ContainerId,
) -> Result<FileChanges, Error> {
    let found = async {
        connection.api_version().await?;
        let path = format!("/containers/{container}/changes");
        let mut body = connection.transport().send(Method::GET, &path, Vec::new()).await?.into_body();
        let mut bytes = Vec::new();
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|error| CallError::unreachable(&error))?;
            bytes.extend_from_slice(frame.data_ref().map_or(&[], |data| data));
            if bytes.len() > LONGEST_LIST {
                return Ok(FileChanges { files: Vec::new(), is_truncated: true });
            }
        }
        // The engine writes `null` if nothing differs.
        let changed: Option<Vec<ChangedFile>> =
            serde_json::from_slice(&bytes).map_err(|error| CallError::unreachable(&error))?;
        let files = changed.unwrap_or_default().into_iter().map(|file| (file.path, kind(file.kind)));
        Ok(FileChanges { files: files.collect(), is_truncated: false })
    };
    within(DEADLINE, found)
        .await
        .map_err(|error| error.classify(&format!("list the changed files of {}", container.short())))
}

/// When a file was last written; `None` if there is no such file.
pub(crate) async fn modified_at(
    connection: &Connection,
    container: &ContainerId,
    path: &str,
) -> Result<Option<Timestamp>, Error> {
    let found = async {
        connection.api_version().await?;
        let path = format!("/containers/{container}/archive?path={}", encode_path(path));
        let found = match connection.transport().send(Method::HEAD, &path, Vec::new()).await {
            Ok(found) => found,
            Err(error) if error.is_not_found() => return Ok(None),
            Err(error) => return Err(error),
        };
        let stat = found.headers().get("x-docker-container-path-stat");
        Ok(stat.and_then(|stat| modification_time(stat.as_bytes())))
    };
    within(DEADLINE, found)
        .await
        .map_err(|error| error.classify(&format!("read the time of a file in {}", container.short())))
}

/// An entry of the engine's list.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct ChangedFile {
    path: String,
    kind: u8,
}

fn kind(number: u8) -> FileChangeKind {
    match number {
        1 => FileChangeKind::Added,
        2 => FileChangeKind::Deleted,
        _ => FileChangeKind::Changed,
    }
}

/// The modification time in the header that describes a file: JSON in base64.
fn modification_time(header: &[u8]) -> Option<Timestamp> {
    use base64::{Engine, engine::general_purpose::STANDARD};
    #[derive(Deserialize)]
    struct PathStat {
        mtime: String,
    }
    let json = STANDARD.decode(header).ok()?;
    Timestamp::parse(&serde_json::from_slice::<PathStat>(&json).ok()?.mtime)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modification_time_is_read_from_the_header() {
        let header = "eyJuYW1lIjoiZXZpbCIsInNpemUiOjAsIm1vZGUiOjQyMCwibXRpbWUiOiIyMDI2LTExLTIxVDEwOjAyOjU2Ljk3MDY4OTYxM1oiLCJsaW5rVGFyZ2V0IjoiIn0=";
        assert_eq!(modification_time(header.as_bytes()), Timestamp::parse("2026-11-21T10:02:56.970Z"));
        assert_eq!(modification_time(b"%"), None);
    }
}
