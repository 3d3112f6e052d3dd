//! Docker Engines of the campaign: each has its own containerd, data, socket and network namespace, so that it can be
//! killed without touching the machine's.
//!
//! containerd is a process of its own, as systemd starts it: it outlives a dockerd that is killed.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

use tokio::time::{Instant, sleep};

use crate::docker::Docker;

/// The image that all containers of the campaign are made from.
pub(crate) const IMAGE: &str = "driftless-chaos/workload:1";

/// The longest time until an engine answers after its start.
const START: Duration = Duration::from_secs(90);

pub(crate) struct Engine {
    directory: PathBuf,
    namespace: String,
    /// The device of the machine that leads into the namespace.
    device: String,
    subnet: String,
    dockerd: Option<Child>,
    containerd: Option<Child>,
    has_small_disk: bool,
    pub(crate) docker: Docker,
}

impl Engine {
    /// Starts an engine and makes the campaign's image on it. `disk` in MiB puts its data on a memory file system of
    /// that size.
    pub(crate) async fn start(directory: &Path, name: &str, disk: Option<u32>) -> Result<Self, String> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let id = std::process::id();
        let directory = directory.join(name);
        fs::create_dir_all(directory.join("data")).map_err(|error| error.to_string())?;
        let docker = Docker::at(&directory.join("docker.sock"));
        let mut engine = Self {
            namespace: format!("dlchaos{id}-{number}"),
            device: format!("dlc{}{number}", id % 100_000),
            subnet: format!("10.21{}.{}", id % 5, number + 1),
            has_small_disk: disk.is_some(),
            directory,
            dockerd: None,
            containerd: None,
            docker,
        };
        engine.network()?;
        if let Some(size) = disk {
            let data = engine.at("data");
            run(&["mount", "-t", "tmpfs", "-o", &format!("size={size}m"), "tmpfs", &data])?;
        }
        let daemon = format!(
            "{{\"insecure-registries\": [\"{}.0/24\"], \"max-download-attempts\": 2}}",
            engine.subnet
        );
        write(&engine.at("daemon.json"), &daemon)?;
        let containerd = "version = 2\ndisabled_plugins = [\"io.containerd.grpc.v1.cri\"]\n";
        write(&engine.at("containerd.toml"), containerd)?;
        engine.start_containerd().await?;
        engine.start_dockerd().await?;
        engine.make_image().await?;
        Ok(engine)
    }

    fn at(&self, name: &str) -> String {
        format!("{}/{name}", self.directory.display())
    }

    /// The address of this machine as the engine sees it, for a registry.
    pub(crate) fn gateway(&self) -> String {
        format!("{}.1", self.subnet)
    }

    pub(crate) fn data(&self) -> PathBuf {
        self.directory.join("data")
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.directory.join("docker.sock")
    }

    fn network(&self) -> Result<(), String> {
        let (space, device, subnet) = (&self.namespace, &self.device, &self.subnet);
        run(&["ip", "netns", "add", space])?;
        run(&["ip", "link", "add", device, "type", "veth", "peer", "name", "eth0", "netns", space])?;
        run(&["ip", "addr", "add", &format!("{subnet}.1/24"), "dev", device])?;
        run(&["ip", "link", "set", device, "up"])?;
        run(&["ip", "-n", space, "addr", "add", &format!("{subnet}.2/24"), "dev", "eth0"])?;
        run(&["ip", "-n", space, "link", "set", "eth0", "up"])?;
        run(&["ip", "-n", space, "link", "set", "lo", "up"])
    }

    async fn start_containerd(&mut self) -> Result<(), String> {
        let log = log_file(&self.at("containerd.log"))?;
        let child = Command::new("containerd")
            .args(["--config", &self.at("containerd.toml"), "--address", &self.at("cd.sock")])
            .args(["--root", &self.at("data/containerd"), "--state", &self.at("cd"), "--log-level", "error"])
            .stdout(Stdio::null())
            .stderr(log)
            .stdin(Stdio::null())
            .spawn()
            .map_err(|error| format!("containerd cannot be started: {error}"))?;
        self.containerd = Some(child);
        let socket = self.directory.join("cd.sock");
        let began = Instant::now();
        while !socket.exists() {
            if began.elapsed() > START {
                return Err("containerd does not listen".into());
            }
            sleep(Duration::from_millis(20)).await;
        }
        Ok(())
    }

    /// Starts dockerd, and containerd where it was killed, and waits until it answers.
    pub(crate) async fn start_dockerd(&mut self) -> Result<(), String> {
        if self.containerd.is_none() {
            let _ = fs::remove_file(self.at("cd.sock"));
            self.start_containerd().await?;
        }
        // After a kill the number in it may belong to another process by now.
        let _ = fs::remove_file(self.at("pid"));
        let log = log_file(&self.at("log"))?;
        // Not `ip netns exec`: it mounts /sys again, and the engine then misses its control groups.
        let child = Command::new("nsenter")
            .arg(format!("--net=/run/netns/{}", self.namespace))
            .args(["dockerd", "--config-file", &self.at("daemon.json")])
            .args(["-H", &format!("unix://{}", self.at("docker.sock")), "--containerd", &self.at("cd.sock")])
            .args([
                "--data-root",
                &self.at("data"),
                "--exec-root",
                &self.at("exec"),
                "--pidfile",
                &self.at("pid"),
            ])
            .args(["--cgroup-parent", &format!("/{}", self.namespace), "--bip", "172.31.95.1/24"])
            .args(["--log-level", "warn"])
            .stdout(Stdio::null())
            .stderr(log)
            .stdin(Stdio::null())
            .spawn()
            .map_err(|error| format!("dockerd cannot be started: {error}"))?;
        self.dockerd = Some(child);
        let began = Instant::now();
        while !self.docker.answers().await {
            let ended = self.dockerd.as_mut().and_then(|child| child.try_wait().ok().flatten());
            if ended.is_some() || began.elapsed() > START {
                return Err(format!("dockerd does not answer; see {}", self.at("log")));
            }
            sleep(Duration::from_millis(50)).await;
        }
        Ok(())
    }

    /// SIGKILL for dockerd.
    pub(crate) fn kill(&mut self) {
        reap(&mut self.dockerd);
    }

    /// SIGKILL for containerd. Its shims, and with them the containers, live on.
    pub(crate) fn kill_containerd(&mut self) {
        reap(&mut self.containerd);
    }

    async fn make_image(&self) -> Result<(), String> {
        let context = self.directory.join("image");
        fs::create_dir_all(&context).map_err(|error| error.to_string())?;
        write(&context.join("workload.rs").display().to_string(), include_str!("workload.rs"))?;
        let (source, program) = (context.join("workload.rs"), context.join("workload"));
        run(&[
            "rustc",
            "--edition=2024",
            "-O",
            "-Ctarget-feature=+crt-static",
            "-Cstrip=symbols",
            "-o",
            &program.display().to_string(),
            &source.display().to_string(),
        ])?;
        // SIGKILL, because the program handles no signals and a stop would wait in vain.
        let text = "FROM scratch\nCOPY workload /workload\nSTOPSIGNAL SIGKILL\nENTRYPOINT [\"/workload\"]\n";
        write(&context.join("Dockerfile").display().to_string(), text)?;
        self.docker.cli(&["build", "-q", "-t", IMAGE, &context.display().to_string()]).map(drop)
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        if let Some(mut child) = self.dockerd.take() {
            // SIGTERM: the engine stops its containers on the way out.
            let _ = run(&["kill", &child.id().to_string()]);
            for _ in 0..300 {
                if child.try_wait().ok().flatten().is_some() {
                    break;
                }
                std::thread::sleep(Duration::from_millis(100));
            }
            let _ = child.kill();
            let _ = child.wait();
        }
        reap(&mut self.containerd);
        // Shims of containers that dockerd could not stop.
        let ours = self.directory.display().to_string();
        for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
            let command = fs::read_to_string(entry.path().join("cmdline")).unwrap_or_default();
            if command.contains("containerd-shim") && command.contains(&ours) {
                let _ = run(&["kill", "-9", &entry.file_name().to_string_lossy()]);
            }
        }
        let mounts = fs::read_to_string("/proc/mounts").unwrap_or_default();
        let below: Vec<&str> = mounts
            .lines()
            .filter_map(|line| line.split(' ').nth(1))
            .filter(|path| path.starts_with(&ours))
            .collect();
        for mount in below.into_iter().rev() {
            let _ = run(&["umount", "-l", mount]);
        }
        let _ = run(&["ip", "link", "del", &self.device]);
        let _ = run(&["ip", "netns", "del", &self.namespace]);
        for kind in fs::read_dir("/sys/fs/cgroup").into_iter().flatten().flatten() {
            remove_groups(&kind.path().join(&self.namespace));
        }
        if self.has_small_disk {
            let _ = fs::remove_dir(self.data());
        }
    }
}

/// Removes empty control groups; one that still has members stays.
fn remove_groups(group: &Path) {
    for child in fs::read_dir(group).into_iter().flatten().flatten() {
        if child.path().is_dir() {
            remove_groups(&child.path());
        }
    }
    let _ = fs::remove_dir(group);
}

fn reap(child: &mut Option<Child>) {
    if let Some(mut child) = child.take() {
        let _ = child.kill();
        let _ = child.wait();
    }
}

fn log_file(path: &str) -> Result<fs::File, String> {
    let opened = fs::OpenOptions::new().create(true).append(true).open(path);
    opened.map_err(|error| format!("{path}: {error}"))
}

fn write(path: &str, text: &str) -> Result<(), String> {
    fs::write(path, text).map_err(|error| format!("{path}: {error}"))
}

/// Runs a program of this machine, and returns what it complained of.
pub(crate) fn run(words: &[&str]) -> Result<(), String> {
    let output = Command::new(words[0]).args(&words[1..]).stdin(Stdio::null()).output();
    match output {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => Err(format!("{}: {}", words.join(" "), String::from_utf8_lossy(&output.stderr).trim())),
        Err(error) => Err(format!("{}: {error}", words[0])),
    }
}
