//! A mounted socket of the engine that the engine has removed.
//!
//! A container mounts the socket as one file. An engine that ends without systemd's socket removes it, and makes another one when it
//! starts. If the container runs on meanwhile, as with `live-restore`, it still has the old one, on which nobody will ever listen again.

use std::{
    fs, io,
    os::unix::fs::{FileTypeExt, MetadataExt},
    path::{Path, PathBuf},
    time::Duration,
};

use driftless_config::DockerHost;
use tokio::{
    net::UnixStream,
    time::{sleep, timeout},
};

/// The time between two looks.
const INTERVAL: Duration = Duration::from_secs(5);
/// The number of looks in a row that find the socket removed: three minutes. The engine may only be stopped, and until it runs
/// again, nothing starts the agent. So the message about the lost engine, which is due after two minutes, is sent first.
const LOOKS: usize = 36;
/// The deadline for opening a connection.
const CONNECT: Duration = Duration::from_secs(5);

/// Whether the socket at this path has no name in any folder. It can only be reached because it is mounted.
pub(crate) fn is_removed(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|socket| socket.file_type().is_socket() && socket.nlink() == 0)
}

/// Returns the path of the engine's socket when this process can never reach the engine through it again: the engine has removed the
/// socket that is mounted there. Only a restart of the container mounts the new one.
pub async fn removed_socket(host: &DockerHost) -> PathBuf {
    let Some(path) = host.address.strip_prefix("unix://").map(PathBuf::from) else {
        return std::future::pending().await;
    };
    let mut found = 0;
    while found < LOOKS {
        sleep(INTERVAL).await;
        found = if is_removed(&path) && refuses(&path).await { found + 1 } else { 0 };
    }
    path
}

/// Whether nothing listens on this socket. Some file systems count no names, so the number of names is not enough.
async fn refuses(path: &Path) -> bool {
    let attempt = timeout(CONNECT, UnixStream::connect(path)).await;
    matches!(attempt, Ok(Err(error)) if error.kind() == io::ErrorKind::ConnectionRefused)
}

#[cfg(test)]
mod tests {
    use std::{
        fs::OpenOptions,
        os::{
            fd::AsRawFd,
            unix::{fs::OpenOptionsExt, net::UnixListener},
        },
    };

    use nix::fcntl::OFlag;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn removed_socket_that_is_still_mounted_is_found() {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("docker.sock");
        let listener = UnixListener::bind(&socket).unwrap();
        // An open file keeps the socket reachable without a name, as a mount does.
        let open = OpenOptions::new().read(true).custom_flags(OFlag::O_PATH.bits()).open(&socket).unwrap();
        let mounted = PathBuf::from(format!("/proc/self/fd/{}", open.as_raw_fd()));
        let host = DockerHost::from(format!("unix://{}", mounted.display()).as_str());

        assert!(!is_removed(&mounted));
        drop(listener);
        let wait = timeout(Duration::from_mins(5), removed_socket(&host));
        assert!(wait.await.is_err(), "a socket that has its name may be systemd's, which listens again");

        fs::remove_file(&socket).unwrap();
        assert_eq!(timeout(Duration::from_mins(5), removed_socket(&host)).await, Ok(mounted.clone()));
    }
}
