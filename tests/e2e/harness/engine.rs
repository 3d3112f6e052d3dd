//! A second Docker Engine with everything of its own, for what must not happen to the machine's.

use std::{
    collections::BTreeSet,
    fs,
    net::{IpAddr, Ipv4Addr},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

use tokio::{
    io::{AsyncBufReadExt, BufReader, Lines},
    process::ChildStdout,
    time::timeout,
};

use super::{Docker, PATIENCE, random, wait_until};

/// A second engine with everything of its own, so that it can be killed without touching the machine's.
pub struct Engine {
    directory: PathBuf,
    namespace: String,
    child: Option<Child>,
    /// A containerd of its own, which outlives the engine.
    containerd: Option<Child>,
    /// Whether containers go on while the engine is stopped.
    pub live_restore: bool,
    /// The name of its machine. `None`: that of this one.
    pub host_name: Option<String>,
    /// Its `daemon.json`. The machine's own says nothing to it.
    pub configuration: serde_json::Value,
}

impl Engine {
    /// `None` where there is no way to run one: it takes root and the `ip` and `nsenter` commands.
    pub fn new(directory: &Path) -> Option<Self> {
        let namespace = format!("driftless-e2e-{:04x}", random() & 0xffff);
        let made = Command::new("ip").args(["netns", "add", &namespace]).output().ok()?;
        if !made.status.success() {
            return None;
        }
        let _ = Command::new("ip").args(["-n", &namespace, "link", "set", "lo", "up"]).output();
        Some(Self {
            directory: directory.join("engine"),
            namespace,
            child: None,
            containerd: None,
            live_restore: false,
            host_name: None,
            configuration: serde_json::json!({}),
        })
    }

    /// Connects its network with the host's. Returns the address under which the host reaches published ports, as another
    /// machine would.
    pub fn link_to_host(&self) -> IpAddr {
        let [first, second] = [random() as u8, random() as u8 & 0xfc];
        let [host, own] = [1, 2].map(|last| Ipv4Addr::new(10, 223, first, second + last));
        let (outside, inside) =
            (format!("dl{first:02x}{second:02x}h"), format!("dl{first:02x}{second:02x}e"));
        let ip = |words: &str| {
            let done = Command::new("ip").args(words.split(' ')).output().unwrap();
            assert!(done.status.success(), "ip {words}: {}", String::from_utf8_lossy(&done.stderr));
        };
        ip(&format!("link add {outside} type veth peer name {inside} netns {}", self.namespace));
        ip(&format!("addr add {host}/30 dev {outside}"));
        ip(&format!("link set {outside} up"));
        ip(&format!("-n {} addr add {own}/30 dev {inside}", self.namespace));
        ip(&format!("-n {} link set {inside} up", self.namespace));
        own.into()
    }

    /// The name of its network namespace.
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    pub fn host(&self) -> String {
        format!("unix://{}/docker.sock", self.directory.display())
    }

    /// Connects its network with the machine's. Returns the address at which its published ports are reached.
    #[allow(dead_code, reason = "only the benchmark loads its ports")]
    pub fn connect(&self) -> Ipv4Addr {
        let number = u8::try_from(random() & 0xff).unwrap();
        let device = format!("dle2e{number}");
        let (outside, inside) = (Ipv4Addr::new(10, 218, number, 1), Ipv4Addr::new(10, 218, number, 2));
        let namespace = self.namespace.as_str();
        let run = |words: &[&str]| {
            let output = Command::new("ip").args(words).output().expect("ip can be started");
            assert!(output.status.success(), "ip {words:?}: {}", String::from_utf8_lossy(&output.stderr));
        };
        // The device goes with the namespace.
        run(&["link", "add", &device, "type", "veth", "peer", "name", "eth0", "netns", namespace]);
        run(&["addr", "add", &format!("{outside}/30"), "dev", &device]);
        run(&["link", "set", &device, "up"]);
        run(&["-n", namespace, "addr", "add", &format!("{inside}/30"), "dev", "eth0"]);
        run(&["-n", namespace, "link", "set", "eth0", "up"]);
        inside
    }

    pub async fn start(&mut self) {
        fs::create_dir_all(&self.directory).unwrap();
        fs::write(self.directory.join("daemon.json"), self.configuration.to_string()).unwrap();
        let log = fs::File::create(self.directory.join("log")).unwrap();
        let at = |name: &str| format!("{}/{name}", self.directory.display());
        // Not `ip netns exec`: it mounts another /sys, and the engine then misses its cgroups.
        let child = Command::new("nsenter")
            .arg(format!("--net=/run/netns/{}", self.namespace))
            .args(
                self.host_name
                    .iter()
                    .flat_map(|name| ["unshare", "--uts", "sh", "-c", r#"hostname "$0" && exec "$@""#, name]),
            )
            .args(["dockerd", "--config-file", &at("daemon.json"), "-H", &self.host()])
            .args(["--data-root", &at("data"), "--exec-root", &at("exec"), "--pidfile", &at("pid")])
            .args(["--cgroup-parent", &format!("/{}", self.namespace), "--bip", "172.31.98.1/24"])
            .args(self.live_restore.then_some("--live-restore"))
            .args(self.containerd.iter().flat_map(|_| ["--containerd".to_owned(), at("containerd.sock")]))
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        self.child = Some(child);
        let docker = Docker { host: Some(self.host()) };
        wait_until("the second engine answers", || docker.attempt(&["version"]).ok()).await;
    }

    /// Starts it with a containerd that outlives it, as under systemd.
    pub async fn start_with_containerd(&mut self) {
        fs::create_dir_all(&self.directory).unwrap();
        let at = |name: &str| format!("{}/{name}", self.directory.display());
        let log = fs::File::create(at("containerd.log")).unwrap();
        let child = Command::new("nsenter")
            .arg(format!("--net=/run/netns/{}", self.namespace))
            .args(["containerd", "--config", "/dev/null", "--address", &at("containerd.sock")])
            .args(["--root", &at("containerd-root"), "--state", &at("containerd-state")])
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        self.containerd = Some(child);
        let socket = self.directory.join("containerd.sock");
        wait_until("containerd listens", || socket.exists().then_some(())).await;
        self.start().await;
    }

    /// Kills the engine alone: containerd and the containers go on.
    pub fn kill9_alone(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().unwrap();
            child.wait().unwrap();
        }
        let _ = fs::remove_file(self.directory.join("pid"));
    }

    /// Kills the engine and its containerd: the containers go on, and their shims.
    pub fn kill9_with_containerd(&mut self) {
        self.kill9_alone();
        if let Some(mut containerd) = self.containerd.take() {
            containerd.kill().unwrap();
            containerd.wait().unwrap();
        }
        let _ = fs::remove_file(self.directory.join("containerd.sock"));
    }

    /// Starts it after [`Self::kill9_alone`] or [`Self::kill9_with_containerd`].
    pub async fn start_again(&mut self) {
        match self.containerd {
            Some(_) => self.start().await,
            None => self.start_with_containerd().await,
        }
    }

    /// At its next start the engine has its data on its other disk, which is empty at first.
    pub fn swap_disks(&self) {
        let [data, other, moved] = ["data", "other", "moved"].map(|name| self.directory.join(name));
        fs::rename(&data, &moved).unwrap();
        if other.exists() {
            fs::rename(&other, &data).unwrap();
        }
        fs::rename(&moved, &other).unwrap();
    }

    /// The events of its containerd, from now on.
    pub async fn task_events(&self) -> TaskEvents {
        let socket = self.directory.join("containerd.sock");
        let mut child = tokio::process::Command::new("ctr")
            .args(["--address", &socket.to_string_lossy(), "--namespace", "moby", "events"])
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut events = TaskEvents { lines, _child: child };
        events.subscribed(&socket).await;
        events
    }

    /// Leaves what an engine that dies in the middle of a start may leave of a stopped container: its folder in containerd, and a
    /// process in its control group that the engine does not know.
    pub fn leave_behind(&self, id: &str) -> Child {
        let tasks = self.directory.join("containerd-state/io.containerd.runtime.v2.task/moby");
        fs::create_dir_all(tasks.join(id)).unwrap();
        let root = Path::new("/sys/fs/cgroup");
        let has_one_tree = root.join("cgroup.controllers").exists();
        let group = if has_one_tree { root.to_owned() } else { root.join("pids") };
        let group = group.join(&self.namespace).join(id);
        fs::create_dir_all(&group).unwrap();
        let child = Command::new("sleep").arg("600").spawn().unwrap();
        fs::write(group.join("cgroup.procs"), child.id().to_string()).unwrap();
        child
    }

    /// SIGSTOP: it keeps its connections and answers nothing.
    pub fn pause(&self) {
        self.signal("-STOP");
    }

    pub fn resume(&self) {
        self.signal("-CONT");
    }

    fn signal(&self, signal: &str) {
        let id = self.child.as_ref().unwrap().id().to_string();
        assert!(Command::new("kill").args([signal, &id]).status().unwrap().success());
    }

    /// Bytes that its files may have. `None`: any number.
    pub fn limit_file_size(&self, bytes: Option<u64>) {
        let id = self.child.as_ref().unwrap().id().to_string();
        let limit = bytes.map_or("unlimited".to_owned(), |it| it.to_string());
        let arguments = ["--pid", &id, &format!("--fsize={limit}:")];
        assert!(Command::new("prlimit").args(arguments).status().unwrap().success());
    }

    /// The processes that hold its containers. One stays until the engine has taken note of its container's end.
    pub fn shims(&self) -> BTreeSet<String> {
        // Of a containerd of its own, or of that which the engine starts.
        let ours = ["containerd.sock", "exec/containerd/containerd.sock"]
            .map(|it| self.directory.join(it).to_string_lossy().into_owned());
        let is_shim = |id: &String| {
            let command = fs::read(format!("/proc/{id}/cmdline")).unwrap_or_default();
            let command = String::from_utf8_lossy(&command).into_owned();
            command.contains("containerd-shim") && ours.iter().any(|it| command.contains(it))
        };
        processes().filter(is_shim).collect()
    }

    /// Number of programs in its containers.
    pub fn programs(&self) -> usize {
        Self::programs_of(&self.shims()).count()
    }

    /// Ends the programs of its containers and the processes that hold them, without the engine.
    fn kill_containers(&self) {
        let shims = self.shims();
        let programs: Vec<String> = Self::programs_of(&shims).collect();
        for id in programs.iter().chain(&shims) {
            let _ = Command::new("kill").args(["-9", id]).output();
        }
    }

    fn programs_of(shims: &BTreeSet<String>) -> impl Iterator<Item = String> {
        let is_program = move |id: &String| {
            let stat = fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
            // After the name, which is in parentheses: state and parent.
            let mut fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
            let (state, parent) = (fields.next(), fields.next());
            state != Some("Z") && parent.is_some_and(|parent| shims.contains(parent))
        };
        processes().filter(is_program)
    }

    pub fn kill9(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().unwrap();
            child.wait().unwrap();
        }
        let _ = fs::remove_file(self.directory.join("pid"));
        // Its containerd dies with it, but while nobody has collected the dead process, the next engine takes
        // it for alive by its number and waits for it in vain.
        let containerd = self.directory.join("exec/containerd/containerd.pid");
        if let Ok(id) = fs::read_to_string(&containerd) {
            let _ = Command::new("kill").args(["-9", id.trim()]).output();
            let _ = fs::remove_file(containerd);
        }
    }

    /// Kills the engine, its containerd and all containers, as a power cut does.
    pub fn cut_power(&mut self) {
        self.kill9();
        self.kill_containers();
    }

    /// SIGTERM: the engine stops its containers on the way out.
    pub fn stop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = Command::new("kill").arg(child.id().to_string()).output();
            let _ = child.wait();
        }
    }
}

/// The events of a containerd.
pub struct TaskEvents {
    lines: Lines<BufReader<ChildStdout>>,
    _child: tokio::process::Child,
}

impl TaskEvents {
    /// Waits for the next event with this topic, such as `/tasks/create`.
    pub async fn next(&mut self, topic: &str) {
        let next = async {
            while let Some(line) = self.lines.next_line().await.unwrap() {
                if line.split_whitespace().any(|word| word == topic) {
                    return;
                }
            }
            panic!("containerd ended before an event {topic}");
        };
        timeout(PATIENCE, next).await.unwrap_or_else(|_| panic!("no event {topic} within {PATIENCE:?}"));
    }

    /// Labels a namespace again and again until the event of it arrives.
    async fn subscribed(&mut self, socket: &Path) {
        let label = || {
            let arguments = ["--address", &socket.to_string_lossy(), "namespaces", "label", "moby", "seen=1"];
            Command::new("ctr").args(arguments).output().unwrap();
        };
        let began = tokio::time::Instant::now();
        loop {
            label();
            match timeout(Duration::from_millis(200), self.lines.next_line()).await {
                Ok(line) => return assert!(line.unwrap().is_some(), "containerd has ended"),
                Err(_) => assert!(began.elapsed() < PATIENCE, "containerd reports no events"),
            }
        }
    }
}

fn processes() -> impl Iterator<Item = String> {
    let all = fs::read_dir("/proc").unwrap().filter_map(Result::ok);
    all.map(|it| it.file_name().to_string_lossy().into_owned())
        .filter(|it| it.bytes().all(|it| it.is_ascii_digit()))
}

impl Drop for Engine {
    fn drop(&mut self) {
        let docker = Docker { host: Some(self.host()) };
        if self.child.is_some() {
            // A test may have failed while it was paused.
            self.resume();
            let all = docker.attempt(&["ps", "-aq"]).unwrap_or_default();
            let ids: Vec<&str> = all.lines().collect();
            if !ids.is_empty() {
                let _ = docker.attempt(&[&["rm", "-f"], ids.as_slice()].concat());
            }
        }
        self.stop();
        // With live-restore, or if the test failed while the engine was down, its containers outlive it.
        self.kill_containers();
        if let Some(mut containerd) = self.containerd.take() {
            let _ = Command::new("kill").arg(containerd.id().to_string()).output();
            let _ = containerd.wait();
        }
        let mounts = fs::read_to_string("/proc/mounts").unwrap_or_default();
        let below = self.directory.to_string_lossy().into_owned();
        for mount in mounts.lines().filter_map(|it| it.split(' ').nth(1)).filter(|it| it.starts_with(&below))
        {
            let _ = Command::new("umount").args(["-l", mount]).output();
        }
        let _ = Command::new("ip").args(["netns", "del", &self.namespace]).output();
    }
}
