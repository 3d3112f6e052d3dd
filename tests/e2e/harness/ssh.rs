//! A real SSH server on a loopback port that lets one key read the repositories, and nothing else.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use super::{free_port, wait_until};

pub struct SshServer {
    port: u16,
    directory: PathBuf,
    repositories: PathBuf,
    child: Child,
}

impl SshServer {
    /// Serves the folder of a repository from `directory/repositories`.
    pub async fn start(directory: &Path) -> Self {
        let (port, repositories) = (free_port(), directory.join("repositories"));
        let directory = directory.join("ssh");
        fs::create_dir_all(&directory).unwrap();
        for key in ["host", "client"] {
            let file = directory.join(key);
            let made = Command::new("ssh-keygen")
                .args(["-q", "-t", "ed25519", "-N", "", "-f"])
                .arg(&file)
                .status()
                .expect("ssh-keygen is installed; see scripts/test-tools.sh");
            assert!(made.success());
        }
        let public = |key: &str| fs::read_to_string(directory.join(key).with_extension("pub")).unwrap();
        let at = |name: &str| directory.join(name).display().to_string();
        // The client may ask for a git verb; there is no shell behind it.
        let gate = "#!/bin/sh\ncase \"$SSH_ORIGINAL_COMMAND\" in\n\"git-upload-pack \"*) exec git-shell -c \"$SSH_ORIGINAL_COMMAND\" ;;\nesac\necho 'only for reading' >&2\nexit 1\n";
        fs::write(at("gate"), gate).unwrap();
        fs::set_permissions(at("gate"), fs::Permissions::from_mode(0o755)).unwrap();
        let allowed = format!("restrict,command=\"{}\" {}", at("gate"), public("client"));
        fs::write(at("authorized_keys"), allowed).unwrap();
        fs::write(at("known_hosts"), format!("[127.0.0.1]:{port} {}", public("host"))).unwrap();
        let configuration = format!(
            "ListenAddress 127.0.0.1\nPort {port}\nHostKey {}\nPidFile none\nAuthorizedKeysFile {}\nStrictModes no\nUsePAM no\nPasswordAuthentication no\nPermitRootLogin prohibit-password\nAcceptEnv GIT_PROTOCOL\n",
            at("host"),
            at("authorized_keys"),
        );
        fs::write(at("sshd_config"), configuration).unwrap();
        // The folder of its unprivileged process. Packages create it when they start their own server.
        let _ = fs::create_dir_all("/run/sshd");
        let child = Command::new("/usr/sbin/sshd")
            .args(["-D", "-e", "-f", &at("sshd_config")])
            .stdin(Stdio::null())
            .stderr(fs::File::create(at("log")).unwrap())
            .spawn()
            .expect("sshd is installed; see scripts/test-tools.sh");
        wait_until("sshd listens", || std::net::TcpStream::connect(("127.0.0.1", port)).ok()).await;
        Self { port, directory, repositories, child }
    }

    pub fn url(&self) -> String {
        let user = Command::new("id").arg("-un").output().unwrap();
        let user = String::from_utf8(user.stdout).unwrap();
        format!("ssh://{}@127.0.0.1:{}{}/infra.git", user.trim(), self.port, self.repositories.display())
    }

    /// The private key that may read.
    pub fn key(&self) -> PathBuf {
        self.directory.join("client")
    }

    pub fn known_hosts(&self) -> PathBuf {
        self.directory.join("known_hosts")
    }
}

impl Drop for SshServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
