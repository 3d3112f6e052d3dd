//! `git-upload-pack` at the end of a pipe: through OpenSSH for `ssh://`, and directly for a local path.
//!
//! No local shell is involved, no argument contains a secret, and no file of the user (`~/.ssh/config`, known hosts) is
//! read. The standard error of the program becomes part of the error message.

use std::{
    ffi::OsString,
    io,
    path::Path,
    process::Stdio,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use gix_transport::{
    Protocol,
    client::{
        blocking_io::Transport,
        git::{ConnectMode, blocking_io::Connection},
    },
};
use tokio::{
    io::AsyncReadExt,
    process::{Child, ChildStderr, Command},
    task::JoinHandle,
};

use super::{
    credentials::Credentials,
    error::{Cause, Problem, invalid, unreadable},
    host_key,
    limits::{BlockingStream, Limits},
};

/// The transport of one server. It moves between threads with its conversation.
pub(super) type OpenTransport = Box<dyn Transport + Send>;

/// The program of one connection. It is killed when this is dropped.
pub(super) struct Process {
    child: Child,
    said: Arc<Mutex<String>>,
    listener: JoinHandle<()>,
    limits: Limits,
}

/// The target of [`driftless_model::RepoUrl::Ssh`], resolved for one connection.
pub(super) struct SshTarget<'a> {
    pub(super) user: Option<String>,
    pub(super) host: &'a str,
    pub(super) port: Option<u16>,
    pub(super) path: &'a str,
}

/// Maximum length of the kept standard error, in bytes.
const MOST_SAID: usize = 4096;

/// Time for a program that closed its output to end and to print the cause.
const GRACE: Duration = Duration::from_secs(2);

const BUFFER: usize = 64 * 1024;

/// Starts `ssh`.
pub(super) fn ssh(
    target: &SshTarget<'_>,
    credentials: &Credentials,
    mirror: &Path,
    limits: &Limits,
) -> Result<(OpenTransport, Process), Problem> {
    let known_hosts = credentials.known_hosts();
    if known_hosts.is_none() && credentials.host_keys().is_empty() {
        return Err(Problem::new(
            Cause::HostKeyUnknown,
            "no key of the server is known, so it could be anybody; put the fingerprint that it publishes \
             into `auth.hostKeys`, or its key (`ssh-keyscan` shows it; compare!) into a file and set \
             `auth.knownHosts`",
        ));
    }
    let helper = host_key::helper(mirror)?;
    let mut command = Command::new("ssh");
    command.args(["-F", "none", "-T", "-a", "-x", "-oStrictHostKeyChecking=yes", "-oCheckHostIP=no"]);
    command.args(["-oGlobalKnownHostsFile=/dev/null", "-oUpdateHostKeys=no", "-oSendEnv=GIT_PROTOCOL"]);
    command.args(["-oPasswordAuthentication=no", "-oKbdInteractiveAuthentication=no"]);
    if let Some(file) = known_hosts {
        check_readable("known hosts file", file)?;
        command.arg(format!("-oUserKnownHostsFile={}", quoted(file)?));
    } else {
        command.arg("-oUserKnownHostsFile=/dev/null");
    }
    // A fingerprint is that of a key. A server that has a certificate too would show that, which no pin is equal to.
    if !credentials.host_keys().is_empty() && !known_hosts.is_some_and(host_key::names_authority) {
        command.arg("-oHostKeyAlgorithms=-*-cert-v01@openssh.com");
    }
    // OpenSSH before 8.5 does not know this; then pins do not hold, and refusals name no fingerprint.
    command.arg("-oIgnoreUnknown=KnownHostsCommand");
    command.arg(format!("-oKnownHostsCommand=/bin/sh {} host-key %I %t %f %H %K", quoted(&helper)?));
    command.env("DRIFTLESS_PINS", credentials.host_keys().join(" "));
    command.arg(format!("-oConnectTimeout={}", limits.idle().as_secs().max(1)));
    match credentials.passphrase().map_err(unreadable)? {
        Some((name, value)) => {
            command.env(name, value).env("SSH_ASKPASS", &helper).env("SSH_ASKPASS_REQUIRE", "force");
            // Older ones ask the helper only where they think that there is a display, and try three times.
            command.env("DISPLAY", ":0").arg("-oNumberOfPasswordPrompts=1");
        }
        None => {
            command.arg("-oBatchMode=yes");
        }
    }
    if let Some(key) = credentials.ssh_key() {
        check_key(key, credentials)?;
        command.arg(format!("-oIdentityFile={}", quoted(key)?));
        command.args(["-oIdentitiesOnly=yes", "-oIdentityAgent=none"]);
    }
    if let Some(port) = target.port {
        command.arg(format!("-p{port}"));
    }
    if let Some(user) = &target.user {
        command.arg(format!("-oUser={user}"));
    }
    // The server's shell reads this line.
    command.arg("--").arg(target.host);
    command.arg(format!("git-upload-pack '{}'", target.path.replace('\'', r"'\''")));
    start(command, "ssh", target.path, limits)
}

/// Starts `git upload-pack` on a repository of this machine.
pub(super) fn local(path: &Path, limits: &Limits) -> Result<(OpenTransport, Process), Problem> {
    if !path.is_dir() {
        let message = format!("{} is not a folder", path.display());
        return Err(Problem::new(Cause::RepositoryNotFound, message));
    }
    start(upload_pack(path), "git", &path.to_string_lossy(), limits)
}

/// `git upload-pack` on a folder.
///
/// Git refuses the repository of another user, unless it is named as safe. The configuration of the agent names this one, and it may
/// belong to the people who push to it. Git before 2.38 reads that name from files only.
fn upload_pack(path: &Path) -> Command {
    let mut command = Command::new("git");
    let real = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    for root in [path, real.as_path()] {
        for folder in [root.to_owned(), root.join(".git")] {
            let mut safe = OsString::from("safe.directory=");
            safe.push(folder);
            command.arg("-c").arg(safe);
        }
    }
    command.args(["upload-pack", "--"]).arg(path);
    // The files of the repository could name a program that fetches missing objects.
    command.env("GIT_NO_LAZY_FETCH", "1");
    // Were these set around the agent, Git would look elsewhere.
    for name in [
        "GIT_DIR",
        "GIT_WORK_TREE",
        "GIT_INDEX_FILE",
        "GIT_OBJECT_DIRECTORY",
        "GIT_COMMON_DIR",
        "GIT_NAMESPACE",
    ] {
        command.env_remove(name);
    }
    command
}

impl Process {
    /// Returns what the program said until now, and ends it.
    pub(super) fn cut_short(mut self) -> String {
        // It may have ended already.
        let _ = self.child.start_kill();
        self.last_words()
    }

    /// Waits for a moment for the program to end, and returns what it said.
    pub(super) fn last_words(mut self) -> String {
        let listener = &mut self.listener;
        let child = &mut self.child;
        self.limits.runtime().block_on(async {
            // Whether it ends in time makes no difference: dropping it kills it.
            let _ = tokio::time::timeout(GRACE, async {
                let _ = listener.await;
                let _ = child.wait().await;
            })
            .await;
        });
        let said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        let lines = said.lines().map(str::trim).filter(|it| !it.is_empty() && !it.starts_with("@@@"));
        lines.collect::<Vec<_>>().join("; ")
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.start_kill();
        self.listener.abort();
        let child = &mut self.child;
        self.limits.runtime().block_on(async {
            let _ = tokio::time::timeout(GRACE, child.wait()).await;
        });
    }
}

fn start(
    mut command: Command,
    program: &str,
    path: &str,
    limits: &Limits,
) -> Result<(OpenTransport, Process), Problem> {
    let _guard = limits.runtime().enter();
    command.env("GIT_PROTOCOL", "version=2").env("LC_ALL", "C");
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    let mut child = command.spawn().map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => {
            let message = format!("the program `{program}` is needed for this and is not installed");
            Problem::new(Cause::ProgramMissing, message)
        }
        _ => Problem::new(Cause::Interrupted, format!("could not start `{program}`: {error}")),
    })?;
    let (Some(input), Some(output), Some(errors)) =
        (child.stdin.take(), child.stdout.take(), child.stderr.take())
    else {
        return Err(Problem::new(Cause::Interrupted, format!("`{program}` has no pipes")));
    };
    let said = Arc::new(Mutex::new(String::new()));
    let listener = limits.runtime().spawn(listen(errors, Arc::clone(&said)));
    let reader = io::BufReader::with_capacity(BUFFER, BlockingStream::new(output, limits.clone()));
    let transport = Connection::new(
        reader,
        BlockingStream::new(input, limits.clone()),
        Protocol::V2,
        path,
        None::<(&str, Option<u16>)>,
        ConnectMode::Process,
        false,
    );
    Ok((Box::new(transport), Process { child, said, listener, limits: limits.clone() }))
}

async fn listen(mut errors: ChildStderr, said: Arc<Mutex<String>>) {
    let mut buffer = [0; 1024];
    while let Ok(read @ 1..) = errors.read(&mut buffer).await {
        let mut said = said.lock().unwrap_or_else(PoisonError::into_inner);
        if said.len() < MOST_SAID {
            said.push_str(&String::from_utf8_lossy(buffer.get(..read).unwrap_or_default()));
        }
    }
}

/// A key that needs a passphrase, without one, ends in "permission denied", which would lead people astray.
fn check_key(path: &Path, credentials: &Credentials) -> Result<(), Problem> {
    let name = path.display();
    let bytes = std::fs::read(path)
        .map_err(|error| unreadable(format!("could not read the SSH key {name}: {error}")))?;
    if is_encrypted(&String::from_utf8_lossy(&bytes))
        && credentials.passphrase().map_err(unreadable)?.is_none()
    {
        return Err(unreadable(format!(
            "the SSH key {name} is protected by a passphrase; set `auth.sshPassphraseFile` or `auth.sshPassphraseEnv`"
        )));
    }
    Ok(())
}

/// By OpenSSH's own format (PROTOCOL.key), which names its cipher, or by the headers of PEM.
fn is_encrypted(text: &str) -> bool {
    use base64::Engine;
    const MAGIC: &[u8] = b"openssh-key-v1\0";
    const NO_CIPHER: &[u8] = b"\0\0\0\x04none";
    if text.contains("ENCRYPTED") {
        return true;
    }
    let digits: String = text.lines().map(str::trim).filter(|it| !it.starts_with("-----")).collect();
    let bytes = base64::engine::general_purpose::STANDARD.decode(digits).unwrap_or_default();
    bytes.strip_prefix(MAGIC).is_some_and(|it| !it.starts_with(NO_CIPHER))
}

fn check_readable(what: &str, path: &Path) -> Result<(), Problem> {
    std::fs::File::open(path)
        .map(drop)
        .map_err(|error| unreadable(format!("could not read the {what} {}: {error}", path.display())))
}

/// A path as a value of `ssh_config(5)`: in quotes, for blanks, and with `%` doubled, which would otherwise begin a
/// token.
fn quoted(path: &Path) -> Result<String, Problem> {
    let text = path.to_str().filter(|it| !it.contains(['"', '$', '\n'])).ok_or_else(|| {
        let shown = path.display();
        invalid(format!("the path {shown} has a character that ssh cannot take (a quote or a dollar sign)"))
    })?;
    Ok(format!("\"{}\"", text.replace('%', "%%")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn repository_of_another_user_is_served() {
        let folder = tempfile::tempdir().unwrap();
        let work = folder.path().join("work");
        let bare = folder.path().join("bare.git");
        let git = async |arguments: &[&str]| {
            let mut command = Command::new("git");
            command.env("GIT_CONFIG_GLOBAL", "/dev/null").args(["-c", "user.name=a", "-c", "user.email=a@b"]);
            assert!(command.args(arguments).status().await.unwrap().success(), "{arguments:?}");
        };
        let (shown, shown_bare) = (work.to_str().unwrap(), bare.to_str().unwrap());
        git(&["init", "-q", "-b", "main", shown]).await;
        git(&["-C", shown, "commit", "-q", "--allow-empty", "-m", "first"]).await;
        git(&["clone", "-q", "--bare", shown, shown_bare]).await;
        std::os::unix::fs::symlink(&work, folder.path().join("link")).unwrap();
        for path in [work.clone(), bare, folder.path().join("link")] {
            let mut command = upload_pack(&path);
            // Git then believes that each repository belongs to another user.
            command.env("GIT_TEST_ASSUME_DIFFERENT_OWNER", "1").stdin(Stdio::null());
            let output = command.output().await.unwrap();
            let (said, errors) =
                (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
            assert!(said.contains("refs/heads/main"), "{}: {errors}", path.display());
        }
    }
}
