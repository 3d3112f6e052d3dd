//! The real podman, to be held against: one of its own, in namespaces of its own, of which nothing is left.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use super::{Docker, wait_until};

/// Makes a root of the unpacked packages, in which the test's own folder lies where it always does, and waits.
const KEEPER: &str = r#"set -e
mount --make-rprivate /
mount --bind "$1" "$1"
mount -t tmpfs tmpfs "$1/run"
mount -t tmpfs tmpfs "$1/tmp"
mount -t proc proc "$1/proc"
mount --rbind /sys "$1/sys"
mount --rbind /dev "$1/dev"
mkdir -p "$1$2" "$2/storage"
mount --bind "$2" "$1$2"
mount --bind "$2/storage" "$1/var/lib/containers"
ip link set lo up
exec chroot "$1" /usr/bin/catatonit -P"#;

/// A running podman, with storage and a network of its own. All that it runs ends with it.
pub struct Podman {
    keeper: Child,
    /// The first process of its namespaces.
    init: String,
    directory: PathBuf,
}

impl Podman {
    /// `None` if it was not fetched.
    pub async fn start(directory: &Path) -> Option<Self> {
        let target = env::var_os("CARGO_TARGET_DIR")
            .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("target"), PathBuf::from);
        let root = target.join("test-tools/podman");
        if !root.is_dir() {
            return None;
        }
        let directory = directory.join("podman");
        fs::create_dir_all(&directory).unwrap();
        let keeper = Command::new("unshare")
            .args(["--mount", "--net", "--pid", "--fork", "--kill-child", "sh", "-c", KEEPER, "keeper"])
            .args([&root, &directory])
            .stdin(Stdio::null())
            .spawn()
            .expect("unshare is there");
        let children = format!("/proc/{0}/task/{0}/children", keeper.id());
        let init = wait_until("podman's namespaces are made", || {
            let init = fs::read_to_string(&children).ok()?.trim().to_owned();
            let name = fs::read_to_string(format!("/proc/{init}/comm")).ok()?;
            (name.trim() == "catatonit").then_some(init)
        })
        .await;
        Some(Self { keeper, init, directory })
    }

    /// A folder for its files. Its path is the same for Podman.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Gives it an image of the engine.
    pub fn load(&self, docker: &Docker, image: &str) {
        let archive = self.directory.join("image.tar").display().to_string();
        docker.run(&["save", "-o", &archive, image]);
        self.run(&["load", "-q", "-i", &archive]);
        fs::remove_file(archive).unwrap();
    }

    /// Runs `podman WORDS…` and returns what it printed; fails the test if it fails.
    #[track_caller]
    pub fn run(&self, words: &[&str]) -> String {
        self.attempt(words).unwrap_or_else(|error| panic!("podman {}: {error}", words.join(" ")))
    }

    /// Runs `podman WORDS…`: what it printed, or what it complained of.
    pub fn attempt(&self, words: &[&str]) -> Result<String, String> {
        let mut command = Command::new("timeout");
        command.env_clear().envs([("PATH", "/usr/sbin:/usr/bin:/sbin:/bin"), ("HOME", "/root")]);
        command.env("PODMAN_IGNORE_CGROUPSV1_WARNING", "yes");
        command.args(["60", "nsenter", "-t", &self.init, "-m", "-n", "-p", "-r", "-w"]);
        command.args(["podman", "--cgroup-manager=cgroupfs"]).args(words);
        said(&mut command)
    }

    /// Removes all that it has but images.
    #[track_caller]
    pub fn clear(&self) {
        // It stumbles over what it could not start, and has removed it all the same.
        let again = (0..3).find(|_| {
            let _ = self.attempt(&["pod", "rm", "-f", "-a", "-t", "0"]);
            self.run(&["ps", "-a", "-q"]).is_empty()
        });
        assert!(again.is_some(), "podman's pods cannot be removed");
        self.run(&["volume", "rm", "-f", "-a"]);
        self.run(&["secret", "rm", "-a"]);
    }

    /// Runs a program of this machine on its network.
    pub fn beside(&self, words: &[&str]) -> Result<String, String> {
        said(Command::new("nsenter").args(["-t", &self.init, "-n"]).args(words))
    }
}

fn said(command: &mut Command) -> Result<String, String> {
    let output = command.stdin(Stdio::null()).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
}

impl Drop for Podman {
    fn drop(&mut self) {
        // It knows which control groups are its own.
        let _ = self.attempt(&["pod", "rm", "-f", "-a", "-t", "0"]);
        let _ = self.keeper.kill();
        let _ = self.keeper.wait();
        // Removes the control groups of its pods; a group that still has members stays.
        let kinds = fs::read_dir("/sys/fs/cgroup").into_iter().flatten().flatten();
        for kind in kinds.map(|it| it.path()).chain(["/sys/fs/cgroup".into()]) {
            let _ = fs::remove_dir(kind.join("libpod_parent"));
        }
    }
}
