//! Looks into running containers: which of their own files are not as in their image, and who was in there. Who it
//! was the engine does not tell, only what was run and when.

use http::Method;
use http_body_util::BodyExt;
use serde::Deserialize;

use crate::{
    Error, FileChanges,
    call_error::CallError,
    engine::{DEADLINE, Inner, within},
};
use driftless_model::{Container, ContainerId, FileChangeKind, Healthcheck, Timestamp};

/// The longest list of changed files that is read: tens of thousands of them.
const LONGEST_LIST: usize = 4 << 20;

impl Inner {
    /// The engine holds a lock on the container meanwhile, and its list may be as long as the disk allows: what is
    /// longer than we read is cut, and the connection with it.
    pub(crate) async fn changed_files(&self, container: &ContainerId) -> Result<FileChanges, Error> {
        let doing = || format!("look into {}", container.short());
        let found = async {
            self.agree().await?;
            let path = format!("/containers/{container}/changes");
            let mut body = self.transport.send(Method::GET, &path, Vec::new()).await?.into_body();
            let mut bytes = Vec::new();
            while let Some(frame) = body.frame().await {
                let frame = frame.map_err(|error| CallError::unreachable(&error))?;
                bytes.extend_from_slice(frame.data_ref().map_or(&[], |it| it));
                if bytes.len() > LONGEST_LIST {
                    return Ok(FileChanges { files: Vec::new(), is_truncated: true });
                }
            }
            // Without a change it is `null`.
            let all: Option<Vec<ChangedFile>> =
                serde_json::from_slice(&bytes).map_err(|error| CallError::unreachable(&error))?;
            let files = all.unwrap_or_default().into_iter().map(|it| (it.path, kind(it.kind))).collect();
            Ok(FileChanges { files, is_truncated: false })
        };
        within(DEADLINE, found).await.map_err(|failure: CallError| failure.sort(&doing()))
    }

    /// When a file was last written; `None` where it is not there.
    pub(crate) async fn modified_at(
        &self,
        container: &ContainerId,
        path: &str,
    ) -> Result<Option<Timestamp>, Error> {
        let doing = || format!("look at a file in {}", container.short());
        let asked = async {
            self.agree().await?;
            let path = format!("/containers/{container}/archive?path={}", escaped(path));
            let found = match self.transport.send(Method::HEAD, &path, Vec::new()).await {
                Ok(found) => found,
                Err(failure) if failure.code() == Some(404) => return Ok(None),
                Err(failure) => return Err(failure),
            };
            let stat = found.headers().get("x-docker-container-path-stat");
            Ok(stat.and_then(|it| time_of(it.as_bytes())))
        };
        within(DEADLINE, asked).await.map_err(|failure: CallError| failure.sort(&doing()))
    }
}

/// As the engine lists one.
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

/// The time in a header that holds what the engine knows of a file, as JSON in base64.
fn time_of(header: &[u8]) -> Option<Timestamp> {
    use base64::{Engine, engine::general_purpose::STANDARD};
    #[derive(Deserialize)]
    struct Stat {
        mtime: String,
    }
    let json = STANDARD.decode(header).ok()?;
    Timestamp::parse(&serde_json::from_slice::<Stat>(&json).ok()?.mtime)
}

fn escaped(path: &str) -> String {
    use std::fmt::Write;
    path.bytes().fold(String::new(), |mut out, byte| {
        match byte {
            b'/' | b'-' | b'_' | b'.' | b'~' => out.push(char::from(byte)),
            it if it.is_ascii_alphanumeric() => out.push(char::from(it)),
            it => write!(out, "%{it:02X}").expect("writing to a string cannot fail"),
        }
        out
    })
}

/// What a visitor did who ran a command, and what one did who copied files.
pub(crate) const EXEC: &str = "docker exec ";
pub(crate) const COPY: &str = "docker cp";

/// Whether what a visitor did is the container's own health check, as the engine runs it.
pub(crate) fn is_healthcheck(what: &str, container: &Container) -> bool {
    let Some(command) = what.strip_prefix(EXEC) else { return false };
    let Some(Healthcheck { test, .. }) = &container.healthcheck else { return false };
    match test.as_slice() {
        // The shell is the image's own.
        [kind, script] if kind == "CMD-SHELL" => command.ends_with(&format!(" {script}")),
        [kind, words @ ..] if kind == "CMD" => command == words.join(" "),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_health_check_is_told_from_what_somebody_runs() {
        let of = |test: &[&str]| {
            let test = test.iter().map(|it| (*it).to_owned()).collect();
            let healthcheck = Healthcheck {
                test,
                interval: None,
                timeout: None,
                retries: None,
                start_period: None,
                start_interval: None,
            };
            Container { healthcheck: Some(healthcheck), ..Container::default() }
        };
        let shell = of(&["CMD-SHELL", "curl -f localhost"]);
        assert!(is_healthcheck("docker exec /bin/sh -c curl -f localhost", &shell));
        assert!(!is_healthcheck("docker exec sh", &shell));
        assert!(is_healthcheck("docker exec /healthz -q", &of(&["CMD", "/healthz", "-q"])));
        assert!(!is_healthcheck("docker exec /healthz -q; id", &of(&["CMD", "/healthz", "-q"])));
        assert!(!is_healthcheck("docker exec sh", &of(&["NONE"])));
        assert!(!is_healthcheck("docker exec sh", &Container::default()));
    }

    #[test]
    fn paths_travel_escaped_and_times_are_read() {
        assert_eq!(escaped("/a b/ä&.x"), "/a%20b/%C3%A4%26.x");
        let header = "eyJuYW1lIjoiZXZpbCIsInNpemUiOjAsIm1vZGUiOjQyMCwibXRpbWUiOiIyMDI2LTExLTIxVDEwOjAyOjU2Ljk3MDY4OTYxM1oiLCJsaW5rVGFyZ2V0IjoiIn0=";
        assert_eq!(time_of(header.as_bytes()), Timestamp::parse("2026-11-21T10:02:56.970Z"));
        assert_eq!(time_of(b"%"), None);
    }
}
