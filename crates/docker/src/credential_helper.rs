//! Credential helpers of the Docker client (`docker-credential-*`): programs that give a login for a registry, such as
//! those of ECR and GCR. The protocol: the command `get`, the address of the registry on the standard input, JSON on the
//! standard output. <https://github.com/docker/docker-credential-helpers>
//!
//! Only the file of the agent's own user can name a helper, never a Secret of a manifest: it is a program of the host.

use std::{ffi::OsString, process::Stdio, time::Duration};

use nix::{
    sys::signal::{Signal, killpg},
    unistd::Pid,
};
use serde::Deserialize;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    process::Command,
    time::timeout,
};

use crate::registry_login::Login;

/// The time limit of a helper. It may ask a server for a token.
const DEADLINE: Duration = Duration::from_secs(30);

/// Bytes of the answer that are read.
const LARGEST: u64 = 1 << 20;

/// The text of a helper that has no login, on its standard output.
const NOT_FOUND: &str = "credentials not found in native keychain";

/// The user name that marks a token in place of a password.
const TOKEN: &str = "<token>";

/// The answer of a helper. Has no `Debug`, so that it cannot be printed.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct HelperOutput {
    username: String,
    secret: String,
}

/// Why a helper gave no answer. No message repeats what the helper printed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum HelperError {
    #[error("the credential helper {0} is not installed where the agent runs")]
    NotInstalled(String),
    #[error("{0}")]
    Failed(String),
}

/// Asks the helper `docker-credential-NAME` for the login of a registry. `None`: it has none. No message repeats what the
/// helper printed.
pub(crate) async fn ask(name: &str, address: &str) -> Result<Option<Login>, HelperError> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    if name.is_empty() || !name.bytes().all(is_plain) {
        let message = format!("`{}` is not the name of a credential helper", name.escape_debug());
        return Err(HelperError::Failed(message));
    }
    run(format!("docker-credential-{name}").into(), address, DEADLINE).await
}

async fn run(program: OsString, address: &str, deadline: Duration) -> Result<Option<Login>, HelperError> {
    let shown = program.to_string_lossy().into_owned();
    let failed = |why: String| {
        HelperError::Failed(format!(
            "{shown} {why}; run `echo {address} | {shown} get` as the agent's user to see the reason"
        ))
    };
    let late = |_| failed(format!("did not answer within {} s", deadline.as_secs()));
    let (is_success, output) =
        timeout(deadline, output(program, address)).await.map_err(late)?.map_err(|error| {
            match error.kind() {
                std::io::ErrorKind::NotFound => HelperError::NotInstalled(shown.clone()),
                _ => failed(format!("could not be run: {error}")),
            }
        })?;
    if !is_success {
        let is_unknown = String::from_utf8_lossy(&output).trim() == NOT_FOUND;
        return if is_unknown { Ok(None) } else { Err(failed("failed".to_owned())) };
    }
    let answer: HelperOutput = serde_json::from_slice(&output)
        .map_err(|_| failed("answered something else than a login".to_owned()))?;
    let HelperOutput { username, secret } = answer;
    Ok(match (username.as_str(), secret.is_empty()) {
        (_, true) => None,
        (TOKEN, false) => {
            Some(Login { username: String::new(), password: String::new(), token: Some(secret) })
        }
        (_, false) => Some(Login { username, password: secret, token: None }),
    })
}

/// Whether the program succeeded, and its standard output. It is killed, with all that it has started, when this is dropped.
async fn output(program: OsString, address: &str) -> std::io::Result<(bool, Vec<u8>)> {
    let mut child = Command::new(program)
        .arg("get")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .process_group(0)
        .spawn()?;
    let mut group = ProcessGroup(child.id());
    if let Some(mut input) = child.stdin.take() {
        // A helper that does not read its input has ended, or answers all the same.
        let _ = input.write_all(address.as_bytes()).await;
    }
    let mut bytes = Vec::new();
    if let Some(output) = child.stdout.take() {
        output.take(LARGEST).read_to_end(&mut bytes).await?;
    }
    let status = child.wait().await?;
    // It has ended, and its number may soon be that of another process.
    group.0 = None;
    Ok((status.success(), bytes))
}

/// The process group of a helper that has not ended. It is killed when this is dropped: a helper may be a script that waits for another
/// program.
struct ProcessGroup(Option<u32>);

impl Drop for ProcessGroup {
    fn drop(&mut self) {
        let id = self.0.and_then(|id| i32::try_from(id).ok());
        if let Some(id) = id
            && let Err(error) = killpg(Pid::from_raw(id), Signal::SIGKILL)
        {
            tracing::warn!(%error, "could not kill a credential helper");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt as _, path::Path};

    use super::*;

    fn helper(folder: &Path, script: &str) -> OsString {
        let (text, path) = (folder.join("script"), folder.join("docker-credential-test"));
        fs::write(&text, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&text, fs::Permissions::from_mode(0o755)).unwrap();
        // Written by another process: this one may start a program meanwhile, which inherits the open file, and a file that is
        // open for writing cannot be run.
        assert!(std::process::Command::new("cp").args([&text, &path]).status().unwrap().success());
        path.into()
    }

    async fn answer(script: &str) -> Result<Option<Login>, HelperError> {
        let folder = tempfile::tempdir().unwrap();
        run(helper(folder.path(), script), "registry.example.com", Duration::from_secs(20)).await
    }

    #[tokio::test]
    async fn helper_is_asked_for_the_registry() {
        let script = r#"test "$1" = get || exit 1; read -r host; echo "{\"ServerURL\": \"x\", \"Username\": \"ada\", \"Secret\": \"of $host\"}""#;
        // Without a line end `read` fails, and has the text all the same.
        let login = answer(script).await.unwrap().unwrap();
        assert_eq!((login.username.as_str(), login.password.as_str()), ("ada", "of registry.example.com"));
        let login = answer(r#"echo '{"Username": "<token>", "Secret": "t"}'"#).await.unwrap().unwrap();
        assert_eq!(login.token.as_deref(), Some("t"));
    }

    #[tokio::test]
    async fn failures_of_helpers_name_the_helper_and_no_secret() {
        assert!(answer("echo credentials not found in native keychain; exit 1").await.unwrap().is_none());
        assert!(answer(r#"echo '{"Username": "a", "Secret": ""}'"#).await.unwrap().is_none());
        for (script, expected) in [
            ("echo hunter2; exit 1", "failed"),
            ("echo hunter2", "answered something else"),
            ("cat /dev/zero", "failed"),
        ] {
            let error = answer(script).await.err().unwrap().to_string();
            assert!(error.contains(expected) && error.contains("docker-credential-test"), "{error}");
            assert!(!error.contains("hunter2"), "{error}");
        }
        let error = ask("surely-not-installed", "a.example.com").await.err().unwrap().to_string();
        assert!(error.contains("docker-credential-surely-not-installed is not installed"), "{error}");
        for name in ["", "../../bin/sh", "a b"] {
            assert!(ask(name, "a.example.com").await.is_err(), "{name}");
        }
    }

    #[tokio::test]
    async fn helper_that_hangs_is_killed() {
        // The second one is a script around another program.
        for script in ["echo $$ > PID; exec sleep 600", "sleep 600 & echo $! > PID; wait"] {
            let folder = tempfile::tempdir().unwrap();
            let pid = folder.path().join("pid");
            let helper = helper(folder.path(), &script.replace("PID", pid.to_str().unwrap()));
            let error = run(helper, "a", Duration::from_secs(2)).await.err().unwrap().to_string();
            assert!(error.contains("did not answer within 2 s"), "{error}");
            let pid = fs::read_to_string(&pid).unwrap();
            let status = format!("/proc/{}/stat", pid.trim());
            let is_gone = || fs::read_to_string(&status).map_or(true, |text| text.contains(") Z "));
            let end = tokio::time::Instant::now() + Duration::from_secs(20);
            while !is_gone() {
                assert!(tokio::time::Instant::now() < end, "`{script}` is still running");
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
    }
}
