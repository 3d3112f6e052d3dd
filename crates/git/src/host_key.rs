//! Verification of SSH servers: the keys that ssh compares with, and the explanation of a refusal.
//!
//! A key is never accepted because it is the first one seen. ssh compares; this only says what it compares with.

use std::{
    fs, io,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use super::{
    credentials::Credentials,
    error::{Cause, Problem, disk_cause},
};

/// Begin of the helper's line about the key of the server.
const SHOWN: &str = "driftless-host-key: ";

/// Run by ssh: answers which host keys are pinned, and gives the passphrase of a key. It holds no secret itself.
const HELPER: &str = r#"#!/bin/sh
# Run by ssh: answers which host keys are pinned, and asks for the passphrase of a key. Holds no secret itself.
case "$1" in
host-key)
    # host-key REASON TYPE FINGERPRINT HOST KEY; before the server has shown its key there is nothing to answer.
    [ "$2" = ORDER ] && exit 0
    echo "driftless-host-key: $3 $4" >&2
    for pin in $DRIFTLESS_PINS; do
        [ "$pin" = "$4" ] && echo "$5 $3 $6"
    done
    exit 0
    ;;
*)
    [ -n "$DRIFTLESS_PASSPHRASE_FILE" ] && exec cat -- "$DRIFTLESS_PASSPHRASE_FILE"
    printf '%s\n' "$DRIFTLESS_PASSPHRASE"
    ;;
esac
"#;

/// Messages of ssh about a key that it does not accept.
const REFUSALS: &[&str] =
    &["Host key verification failed", "HOST IDENTIFICATION HAS CHANGED", "requested strict checking"];

/// Message of ssh about a key that a line with `@revoked` names.
const REVOKED: &str = "is marked as revoked";

/// Writes the helper script next to the mirror.
pub(super) fn helper(mirror: &Path) -> Result<PathBuf, Problem> {
    let path = next_to(mirror, ".ssh-helper");
    let failed = |error: io::Error| {
        let message = format!("could not write the helper of ssh {}: {error}", path.display());
        Problem::new(disk_cause(&error).unwrap_or(Cause::DiskFailed), message)
    };
    if fs::read(&path).is_ok_and(|it| it == HELPER.as_bytes()) {
        return Ok(path);
    }
    let new = next_to(mirror, ".ssh-helper.new");
    fs::write(&new, HELPER).map_err(failed)?;
    fs::set_permissions(&new, fs::Permissions::from_mode(0o700)).map_err(failed)?;
    fs::rename(&new, &path).map_err(failed)?;
    Ok(path)
}

/// The problem of a refused host key, with the shown and the known keys. `None` for any other error.
pub(super) fn explain(
    said: &str,
    host: &str,
    port: Option<u16>,
    credentials: &Credentials,
) -> Option<Problem> {
    if !REFUSALS.iter().any(|it| said.contains(it)) {
        return None;
    }
    let shown = said.split("; ").filter_map(|it| it.strip_prefix(SHOWN)).last();
    let shown = shown.map_or_else(|| "a host key".to_owned(), |it| format!("the host key {it}"));
    if said.contains(REVOKED) {
        let message = format!(
            "{host} shows {shown}, and `knownHosts` says that this key, or the authority that vouches for it, is \
             revoked; somebody may stand in between. Nothing was sent; put the key that the server's operator \
             publishes now into `knownHosts`"
        );
        return Some(Problem::new(Cause::HostKeyChanged, message));
    }
    let mut known: Vec<String> = credentials.host_keys().iter().map(|it| format!("{it} (pinned)")).collect();
    if let Some(file) = credentials.known_hosts() {
        known.extend(known_fingerprints(file, host, port));
    }
    let (cause, known, advice) = if known.is_empty() {
        let known = "no key of it is known".to_owned();
        (Cause::HostKeyUnknown, known, "if that is what the server's operator publishes")
    } else {
        (
            Cause::HostKeyChanged,
            format!("known is {}", known.join(", ")),
            "if the key was really changed, as the server's operator publishes it",
        )
    };
    let message = format!(
        "{host} shows {shown}, but {known}; somebody may stand in between. Nothing was sent; {advice}, put it into \
         `knownHosts` or `hostKeys`"
    );
    Some(Problem::new(cause, message))
}

/// Whether a file of known hosts trusts an authority that signs the keys of servers.
pub(super) fn names_authority(file: &Path) -> bool {
    fs::read_to_string(file).is_ok_and(|it| it.lines().any(|it| it.starts_with("@cert-authority")))
}

/// The messages of ssh without those of the helper script.
pub(super) fn without_notes(said: &str) -> String {
    said.split("; ").filter(|it| !it.starts_with(SHOWN)).collect::<Vec<_>>().join("; ")
}

/// ssh-keygen also knows hashed names. That it fails leaves only the error poorer.
fn known_fingerprints(file: &Path, host: &str, port: Option<u16>) -> Vec<String> {
    let name = match port {
        Some(port) if port != 22 => format!("[{host}]:{port}"),
        Some(_) | None => host.to_owned(),
    };
    let output = Command::new("ssh-keygen")
        .args(["-l", "-F", &name, "-f"])
        .arg(file)
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output();
    let Ok(output) = output else { return Vec::new() };
    let text = String::from_utf8_lossy(&output.stdout);
    let (mut known, mut role) = (Vec::new(), "");
    for line in text.lines() {
        if line.starts_with('#') {
            // `# Host NAME found: line 1 CA`, and then the key.
            role = line.rsplit(' ').next().unwrap_or_default();
        } else if let Some(print) = line.split_whitespace().find(|it| it.starts_with("SHA256:")) {
            let place = file.display();
            match role {
                "REVOKED" => {}
                "CA" => known.push(format!("the authority {print} ({place})")),
                _ => known.push(format!("{print} ({place})")),
            }
        }
    }
    known
}

fn next_to(mirror: &Path, suffix: &str) -> PathBuf {
    let mut name = mirror.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}
