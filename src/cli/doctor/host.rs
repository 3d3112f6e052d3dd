//! Checks of this machine: folders, disk, memory file system, ports.

use std::{
    fs::{self, File},
    io::{self, Read},
    net::SocketAddr,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use nix::{
    errno::Errno,
    sys::{
        statfs::{FsType, TMPFS_MAGIC, statfs},
        statvfs::statvfs,
    },
    unistd::{AccessFlags, access},
};
use reqwest::StatusCode;
use tokio::net::TcpListener;

use super::{
    check::Check,
    unit,
    webhooks::{AcceptedCertificate, DOCTORS_HOOK, ask},
};
use crate::cli::topic::Topic;
use driftless_config::{Settings, local_url};

/// Ramfs, the other memory file system. libc has no name for its number (linux/magic.h).
const RAMFS_MAGIC: FsType = FsType(0x8584_58f6);

/// Below this much free space, in bytes, mirrors and images may soon not fit.
const LITTLE_SPACE: u64 = 2 << 30;

/// Below this much free space, in bytes, the agent cannot work.
const NO_SPACE: u64 = 100 << 20;

pub(super) async fn checks(settings: &Settings) -> Vec<Check> {
    let missing = missing_state_directory(settings).await;
    // Without its directory, the agent that runs is known by its answers only.
    let is_running = holder(&settings.state_dir).is_some();
    let may_run = is_running || missing.is_some();
    let directory = missing.unwrap_or_else(|| state_directory(&settings.state_dir));
    let mut checks = vec![
        directory.explained(Topic::StateDirectory),
        disk(&settings.state_dir).explained(Topic::StateDirectory),
        runtime_directory(&settings.runtime_dir).explained(Topic::RuntimeDirectory),
    ];
    checks.extend(settings.audit.file.as_deref().map(audit_file));
    if !is_running {
        checks.extend(read_only_folder(settings).map(|check| check.explained(Topic::StateDirectory)));
    }
    let api = (settings.listen, settings.tls.is_some(), "/healthz", StatusCode::OK);
    checks.push(port("listen", may_run, api).await.explained(Topic::Listen));
    if let Some(address) = settings.webhooks.listen {
        let hooks = (address, settings.webhooks.tls.is_some(), DOCTORS_HOOK, StatusCode::METHOD_NOT_ALLOWED);
        checks.push(port("webhooks.listen", may_run, hooks).await.explained(Topic::Listen));
    }
    if let Some(address) = settings.metrics.listen {
        let metrics = (address, settings.metrics.tls.is_some(), "/metrics", StatusCode::OK);
        checks.push(port("metrics.listen", may_run, metrics).await.explained(Topic::Listen));
    }
    checks
}

/// A failure if the state directory is missing although somebody, who may be the agent, listens on the agent's address.
async fn missing_state_directory(settings: &Settings) -> Option<Check> {
    let (path, address) = (&settings.state_dir, settings.listen);
    if !matches!(path.try_exists(), Ok(false)) {
        return None;
    }
    let error = TcpListener::bind(address).await.err()?;
    (error.kind() == io::ErrorKind::AddrInUse).then(|| {
        let message = format!("{} is missing, and {address} is in use", path.display());
        let help = "if an agent listens there, it has another --state-dir, or its directory was removed while it runs: put it back, or \
                    restart the agent and run `driftless recover`; docs/state.md";
        Check::fail("state directory", message, help)
    })
}

fn state_directory(path: &Path) -> Check {
    let name = "state directory";
    let shown = path.display();
    let Ok(metadata) = fs::metadata(path) else {
        let parent = existing_parent(path);
        let Err(error) = access(&parent, AccessFlags::W_OK | AccessFlags::X_OK) else {
            return Check::ok(name, format!("{shown} will be created"));
        };
        let help = match error {
            Errno::EROFS => {
                "mount the file system writable, or choose another folder with --state-dir".to_owned()
            }
            _ => format!("run as root, or create {shown} for the agent's user with mode 0700"),
        };
        let parent = parent.display();
        return Check::fail(
            name,
            format!("{shown} is missing and cannot be created in {parent}: {}", error.desc()),
            help,
        );
    };
    if !metadata.is_dir() {
        return Check::fail(name, format!("{shown} is no folder"), "choose another one with --state-dir");
    }
    if let Err(error) = access(path, AccessFlags::W_OK | AccessFlags::X_OK) {
        let help = match error {
            Errno::EROFS => "mount the file system writable, or choose another folder with --state-dir",
            _ => "run as the agent's user, or give this user the folder",
        };
        return Check::fail(name, format!("{shown} cannot be written: {}", error.desc()), help);
    }
    if metadata.permissions().mode() & 0o077 != 0 {
        let help = format!("chmod 0700 {shown}; the agent does so itself if the folder is empty or its own");
        return Check::warn(name, format!("other users can read {shown}"), help);
    }
    match holder(path) {
        Some(process) => Check::ok(name, format!("{shown}, in use by the agent with process id {process}")),
        None => Check::ok(name, format!("{shown}, no agent uses it now")),
    }
}

/// The file of the audit, which the agent makes and not its folder.
fn audit_file(path: &Path) -> Check {
    let (name, shown) = ("audit file", path.display());
    let folder = path.parent().unwrap_or(Path::new("/"));
    if !folder.is_dir() {
        let help = format!("create {} for the agent's user with mode 0700", folder.display());
        return Check::fail(name, format!("{shown} cannot be written: its folder is missing"), help);
    }
    if path.is_dir() {
        return Check::fail(name, format!("{shown} is a folder"), "name a file in `audit.file`");
    }
    let may_be_written =
        if path.exists() { access(path, AccessFlags::W_OK).is_ok() } else { may_write(folder) };
    if may_be_written {
        return Check::ok(name, shown.to_string());
    }
    let help = format!("run as the agent's user, or give this user {}", folder.display());
    Check::fail(name, format!("{shown} cannot be written"), help)
}

/// A warning about a folder that the unit of the agent does not let it write to. This command itself may.
fn read_only_folder(settings: &Settings) -> Option<Check> {
    let applications = settings.state_dir.join("applications");
    let moved = applications.is_symlink().then(|| fs::canonicalize(&applications).ok()).flatten();
    let audit = settings.audit.file.as_deref().and_then(Path::parent).map(Path::to_owned);
    let folders = [Some(settings.state_dir.clone()), moved, audit];
    let folder = folders.into_iter().flatten().find(|folder| unit::is_read_only(Path::new("/"), folder))?;
    let create = if folder.exists() {
        String::new()
    } else {
        format!("create it with `install -d -m 700 {}`, then ", folder.display())
    };
    let folder = folder.display();
    let message = format!("driftless.service does not let the agent write to {folder}");
    let help = format!(
        "{create}run `systemctl edit driftless`, add `[Service]` and `ReadWritePaths={folder}`, and start the agent again"
    );
    Some(Check::warn("systemd unit", message, help))
}

/// The process id of the agent that has locked the state directory.
pub(super) fn holder(state_dir: &Path) -> Option<String> {
    let mut lock = File::open(state_dir.join("lock")).ok()?;
    // A shared lock is refused only while an agent holds its exclusive one.
    if lock.try_lock_shared().is_ok() {
        return None;
    }
    let mut text = String::new();
    let read = (&mut lock).take(32).read_to_string(&mut text);
    Some(if read.is_ok() { text.trim().to_owned() } else { "unknown".to_owned() })
}

fn disk(state_dir: &Path) -> Check {
    let name = "disk";
    let path = existing_parent(state_dir);
    let Ok(found) = statvfs(&path) else {
        let help = "look at it with `df`";
        return Check::warn(name, format!("the free space of {} is unknown", path.display()), help);
    };
    // The types differ between platforms.
    #[allow(clippy::useless_conversion)]
    let free = u64::from(found.blocks_available()).saturating_mul(u64::from(found.fragment_size()));
    let message = format!("{} MiB free at {}", free >> 20, path.display());
    let help = "make room: `docker image prune` and `docker system df`";
    match free {
        free if free < NO_SPACE => Check::fail(name, message, help),
        free if free < LITTLE_SPACE => Check::warn(name, message, help),
        _ => Check::ok(name, message),
    }
}

fn runtime_directory(path: &Path) -> Check {
    let name = "runtime directory";
    let found = existing_parent(path);
    let shown = path.display();
    match statfs(&found).map(|found| found.filesystem_type()) {
        Ok(TMPFS_MAGIC | RAMFS_MAGIC) if may_write(&found) => {
            Check::ok(name, format!("{shown} is on a memory file system"))
        }
        Ok(TMPFS_MAGIC | RAMFS_MAGIC) => {
            let help = "run as root, or choose another one with --runtime-dir";
            Check::fail(name, format!("{shown} cannot be written"), help)
        }
        Ok(_) | Err(_) => {
            // On this machine `/run` is on a disk.
            let places = if path.starts_with("/run") { "/dev/shm" } else { "/run or /dev/shm" };
            let help = format!(
                "choose a folder below {places} with --runtime-dir; elsewhere mounted secrets are refused"
            );
            Check::warn(name, format!("{shown} is not on a memory file system"), help)
        }
    }
}

/// An address to listen on, free or held by the agent that runs. `own` is the address, whether it has TLS, and a path with the
/// status that the agent answers there.
async fn port(key: &str, may_run: bool, own: (SocketAddr, bool, &str, StatusCode)) -> Check {
    let (address, has_tls, path, expected) = own;
    let name = format!("address {address}");
    let Err(error) = TcpListener::bind(address).await else { return Check::ok(name, "is free") };
    if may_run && error.kind() == io::ErrorKind::AddrInUse {
        let url = format!("{}{path}", local_url(address, has_tls));
        if ask(&url, AcceptedCertificate::Any).await.is_ok_and(|status| status == expected) {
            return Check::ok(name, "is in use by the agent that runs");
        }
    }
    let help = format!("end the other program (`ss -ltnp`), or change `{key}`");
    Check::fail(name, format!("cannot be used: {error}"), help)
}

/// The folder itself, or the nearest one above it that exists.
fn existing_parent(path: &Path) -> PathBuf {
    path.ancestors().find(|folder| folder.exists()).unwrap_or(Path::new("/")).to_owned()
}

fn may_write(path: &Path) -> bool {
    access(path, AccessFlags::W_OK | AccessFlags::X_OK).is_ok()
}
