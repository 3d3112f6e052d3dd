//! The desired state of one application, rendered from its manifests until no reference is left open.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    time::Duration,
};

use serde::{Deserialize, Serialize};

use super::{
    AppName, BoxedDefault, Build, ContentId, Cron, HostSettings, InPlace, Inventory, Job, Location, Member,
    Mount, MountSource, Namespace, Network, Part, Peer, SpecHash, StackHash, Update, Volume, VolumesFrom,
    WorkloadName,
};
use crate::defaults::is_default;

/// One application's desired state, free of its front-end format.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Stack {
    pub app: AppName,
    pub format: Format,
    /// The Compose project: prefix of all names in Docker. Equals the application's name unless the manifest
    /// says otherwise (`name:` in a Compose file).
    pub project: String,
    pub workloads: BTreeMap<WorkloadName, Workload>,
    /// By the network's name in Docker.
    #[serde(default, skip_serializing_if = "is_default")]
    pub networks: BTreeMap<String, Network>,
    /// By the volume's name in Docker.
    #[serde(default, skip_serializing_if = "is_default")]
    pub volumes: BTreeMap<String, Volume>,
    /// Files of the repository that are mounted read-write, or that lie in a folder which is. They live in the
    /// application's own folder, by path: written when they change in Git; nothing else there is ever removed.
    #[serde(default, skip_serializing_if = "is_default")]
    pub app_files: BTreeMap<String, ContentId>,
    /// The manifest files it came from, as paths in the repository, for `docker compose ls`.
    #[serde(default, skip_serializing_if = "is_default")]
    pub manifests: Vec<String>,
    #[serde(default, skip_serializing_if = "is_default")]
    pub inventory: Inventory,
    /// The hash of what Git says, where the runs of CronJobs have been added to it.
    #[serde(skip)]
    pub given: Option<StackHash>,
}

impl Stack {
    /// The names of all variables that hold secrets by the manifest's own word.
    pub fn secret_env(&self) -> impl Iterator<Item = &String> {
        self.workloads.values().flat_map(|it| &it.secret_env)
    }

    /// Every image that must be on the host: what is run, and what is mounted. Some may come twice.
    pub fn images(&self) -> impl Iterator<Item = &String> {
        self.workloads.values().flat_map(|it| it.containers().map(|it| &it.image).chain(it.mounted_images()))
    }
}

impl Workload {
    /// The images whose files it mounts.
    pub fn mounted_images(&self) -> impl Iterator<Item = &String> {
        self.containers().flat_map(|it| &it.mounts).filter_map(|it| match &it.source {
            MountSource::Image(image) => Some(image),
            MountSource::Volume { .. }
            | MountSource::Anonymous
            | MountSource::Empty
            | MountSource::Bind { .. }
            | MountSource::Tmpfs { .. }
            | MountSource::Content(_)
            | MountSource::Secret(_)
            | MountSource::InPlace { .. }
            | MountSource::AppFolder(_) => None,
        })
    }
}

/// The language of the manifest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Format {
    Compose,
    Kubernetes,
}

/// More of one workload are a mistake: a bridge of the kernel has room for 1023 containers, and each is counted anew in
/// every round.
pub const MOST_REPLICAS: u32 = 1000;

/// A named set of equal replicas.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Workload {
    /// Where the manifest defines it.
    pub origin: Location,
    pub replicas: u32,
    /// The only container of an instance, or that which the others share with.
    pub container: Container,
    /// The further containers of an instance: initial ones and sidecars in the order of their start, then the others.
    #[serde(default, skip_serializing_if = "is_default")]
    pub parts: Vec<Part>,
    /// A fixed name of its single container (`container_name`). It allows one instance at a time.
    #[serde(default, skip_serializing_if = "is_default")]
    pub container_name: Option<String>,
    pub strategy: Strategy,
    /// How long an instance must be ready before it counts as available.
    #[serde(default, skip_serializing_if = "is_default")]
    pub min_ready: Duration,
    /// Without progress for this long, the rollout is `ProgressDeadlineExceeded`.
    pub progress_deadline: Duration,
    /// How many old revisions of the workload are kept.
    #[serde(default, skip_serializing_if = "is_default")]
    pub revision_history_limit: u32,
    /// Scale, but roll nothing out.
    #[serde(default, skip_serializing_if = "is_default")]
    pub paused: bool,
    /// Dependencies that must be met before a new instance starts.
    #[serde(default, skip_serializing_if = "is_default")]
    pub after: Vec<Dependency>,
    /// Probes made by the agent. A container's own `HEALTHCHECK` is in [`Container::healthcheck`].
    #[serde(default, skip_serializing_if = "is_default")]
    pub probes: Probes,
    pub pull: PullPolicy,
    /// Logins for registries, in files as `docker login` writes them, by content. Kept like mounted secrets.
    #[serde(default, skip_serializing_if = "is_default")]
    pub pull_secrets: BTreeSet<ContentId>,
    /// Files that are rewritten in place, by mount target. A change of them replaces no instance.
    #[serde(default, skip_serializing_if = "is_default")]
    pub in_place: BTreeMap<String, InPlace>,
    /// How its image is made, where it is not pulled. The image's name then stands for this very content.
    #[serde(default, skip_serializing_if = "is_default")]
    pub build: Option<Build>,
    /// Variables whose values come from a Secret, and are shown to nobody whatever they are called.
    #[serde(default, skip_serializing_if = "is_default")]
    pub secret_env: BTreeSet<String>,
    /// Whether a container that ends well has done its work (`restart: no` or `on-failure`) or must come back.
    pub completion: Completion,
    /// Where several workloads make up one object.
    #[serde(default, skip_serializing_if = "is_default")]
    pub member: Option<Member>,
    #[serde(default, skip_serializing_if = "is_default")]
    pub update: Update,
    /// Where it is work that ends, as Kubernetes has it.
    #[serde(default, skip_serializing_if = "is_default")]
    pub job: Option<Job>,
    /// Where it is begun again and again; it is then the template of what is begun.
    #[serde(default, skip_serializing_if = "is_default")]
    pub cron: Option<Cron>,
}

/// How instances of a new spec take the place of the old.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Strategy {
    /// At most `max_surge` instances more than wanted, at most `max_unavailable` fewer available. Both are
    /// resolved numbers; one of them is at least 1.
    #[serde(rename_all = "camelCase")]
    RollingUpdate { max_surge: u32, max_unavailable: u32 },
    /// All old ones are gone before a new one starts.
    Recreate,
}

/// The meaning of an exit with code 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Completion {
    /// It must run: an exit, even a good one, is a failure (`restart: always`, `unless-stopped`, a Deployment).
    Never,
    /// An exit with code 0 is the end of its work (`restart: no`, `on-failure`).
    OnSuccess,
}

/// One edge of `depends_on`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Dependency {
    pub workload: WorkloadName,
    pub condition: Condition,
    /// False: a failure or absence of it holds nobody up.
    pub required: bool,
    /// Replace this workload's instances too when an instance of the dependency is replaced.
    #[serde(default, skip_serializing_if = "is_default")]
    pub restart: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Condition {
    Started,
    Healthy,
    CompletedSuccessfully,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum PullPolicy {
    /// Before every creation.
    Always,
    /// When the image is not on the host.
    IfNotPresent,
    Never,
    /// Before a creation, when the image was last tagged longer ago than this.
    Every(Duration),
}

/// Everything that would require replacing an instance, if changed. Its digest is the [`SpecHash`].
///
/// Every field is left out of the JSON when it has its default, so that a new field changes no old hash.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[expect(clippy::struct_excessive_bools, reason = "the manifests' own switches")]
pub struct Container {
    /// As the manifest pins it.
    pub image: String,
    /// Replaces the image's entry point, and drops its command.
    #[serde(skip_serializing_if = "is_default")]
    pub entrypoint: Option<Vec<String>>,
    #[serde(skip_serializing_if = "is_default")]
    pub command: Option<Vec<String>>,
    /// `None` takes the image's variable away.
    #[serde(skip_serializing_if = "is_default")]
    pub env: BTreeMap<String, Option<String>>,
    #[serde(skip_serializing_if = "is_default")]
    pub user: Option<String>,
    #[serde(skip_serializing_if = "is_default")]
    pub working_dir: Option<String>,
    #[serde(skip_serializing_if = "is_default")]
    pub hostname: Option<String>,
    #[serde(skip_serializing_if = "is_default")]
    pub domainname: Option<String>,
    #[serde(skip_serializing_if = "is_default")]
    pub init: Option<bool>,
    #[serde(skip_serializing_if = "is_default")]
    pub tty: bool,
    #[serde(skip_serializing_if = "is_default")]
    pub stdin_open: bool,
    #[serde(skip_serializing_if = "is_default")]
    pub stop_signal: Option<String>,
    /// Between the stop signal and SIGKILL; `None` is the engine's 10 s.
    #[serde(skip_serializing_if = "is_default")]
    pub stop_grace_period: Option<Duration>,
    /// The manifest's own labels, without ours and without Compose's.
    #[serde(skip_serializing_if = "is_default")]
    pub labels: BTreeMap<String, String>,
    /// Sorted.
    #[serde(skip_serializing_if = "is_default")]
    pub ports: Vec<Port>,
    /// Documented but not published. Sorted.
    #[serde(skip_serializing_if = "is_default")]
    pub expose: Vec<(u16, Protocol)>,
    /// Sorted by target.
    #[serde(skip_serializing_if = "is_default")]
    pub mounts: Vec<Mount>,
    #[serde(skip_serializing_if = "is_default")]
    pub network_mode: NetworkMode,
    #[serde(skip_serializing_if = "is_default")]
    pub healthcheck: Option<Healthcheck>,
    #[serde(skip_serializing_if = "is_default")]
    pub restart: RestartPolicy,
    #[serde(skip_serializing_if = "is_default")]
    pub resources: Resources,
    #[serde(skip_serializing_if = "is_default")]
    pub privileged: bool,
    #[serde(skip_serializing_if = "is_default")]
    pub read_only: bool,
    /// Sorted, without the prefix `CAP_`.
    #[serde(skip_serializing_if = "is_default")]
    pub cap_add: Vec<String>,
    #[serde(skip_serializing_if = "is_default")]
    pub cap_drop: Vec<String>,
    #[serde(skip_serializing_if = "is_default")]
    pub security_opt: Vec<String>,
    /// `name:address`, sorted.
    #[serde(skip_serializing_if = "is_default")]
    pub extra_hosts: Vec<String>,
    #[serde(skip_serializing_if = "is_default")]
    pub dns: Vec<String>,
    #[serde(skip_serializing_if = "is_default")]
    pub dns_search: Vec<String>,
    #[serde(skip_serializing_if = "is_default")]
    pub sysctls: BTreeMap<String, String>,
    /// Bytes of `/dev/shm`.
    #[serde(skip_serializing_if = "is_default")]
    pub shm_size: Option<u64>,
    /// Name to (soft, hard).
    #[serde(skip_serializing_if = "is_default")]
    pub ulimits: BTreeMap<String, (i64, i64)>,
    /// Log driver and its options.
    #[serde(skip_serializing_if = "is_default")]
    pub logging: Option<(String, BTreeMap<String, String>)>,
    /// `host:container:permissions`, sorted.
    #[serde(skip_serializing_if = "is_default")]
    pub devices: Vec<(String, String, String)>,
    #[serde(skip_serializing_if = "is_default")]
    pub group_add: Vec<String>,
    #[serde(skip_serializing_if = "is_default")]
    pub pid_mode: Option<Namespace>,
    #[serde(skip_serializing_if = "is_default")]
    pub ipc_mode: Option<Namespace>,
    #[serde(skip_serializing_if = "is_default")]
    pub host: BoxedDefault<HostSettings>,
    /// In this order: the first to have something at a place wins.
    #[serde(skip_serializing_if = "is_default")]
    pub volumes_from: Vec<VolumesFrom>,
}

impl Container {
    pub fn spec(&self) -> SpecHash {
        SpecHash::of_container(self)
    }

    /// The networks it joins, by name in Docker; empty in another network mode.
    pub fn networks(&self) -> &BTreeMap<String, Attachment> {
        static NONE: BTreeMap<String, Attachment> = BTreeMap::new();
        match &self.network_mode {
            NetworkMode::Networks(networks) => networks,
            NetworkMode::Host | NetworkMode::None | NetworkMode::Bridge | NetworkMode::Of(_) => &NONE,
        }
    }

    /// The containers whose network, processes or memory it shares. It cannot run without them.
    pub fn hosts(&self) -> impl Iterator<Item = &Peer> {
        let network = match &self.network_mode {
            NetworkMode::Of(peer) => Some(peer),
            NetworkMode::Networks(_) | NetworkMode::Host | NetworkMode::None | NetworkMode::Bridge => None,
        };
        let modes = [&self.pid_mode, &self.ipc_mode].into_iter().flatten();
        network.into_iter().chain(modes.filter_map(Namespace::peer))
    }

    /// All whose replacement replaces it as well.
    pub fn peers(&self) -> impl Iterator<Item = &Peer> {
        self.hosts().chain(self.volumes_from.iter().map(|it| &it.peer))
    }
}

/// How the container reaches the network.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum NetworkMode {
    /// By the network's name in Docker.
    Networks(BTreeMap<String, Attachment>),
    Host,
    None,
    /// The engine's default bridge, without name resolution.
    Bridge,
    /// That of another container.
    Of(Peer),
}

impl Default for NetworkMode {
    fn default() -> Self {
        Self::Networks(BTreeMap::new())
    }
}

/// One end of a network.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Attachment {
    /// Names by which others on the network find it. Sorted, without the container's own name.
    #[serde(skip_serializing_if = "is_default")]
    pub aliases: Vec<String>,
    /// A fixed address. It allows one instance at a time.
    #[serde(skip_serializing_if = "is_default")]
    pub ipv4: Option<String>,
    #[serde(skip_serializing_if = "is_default")]
    pub ipv6: Option<String>,
    #[serde(skip_serializing_if = "is_default")]
    pub link_local: Vec<String>,
    #[serde(skip_serializing_if = "is_default")]
    pub mac_address: Option<String>,
    /// The highest is joined first.
    #[serde(skip_serializing_if = "is_default")]
    pub priority: i64,
    /// The highest gives the default route.
    #[serde(skip_serializing_if = "is_default")]
    pub gw_priority: i64,
    #[serde(skip_serializing_if = "is_default")]
    pub driver_opts: BTreeMap<String, String>,
    /// Further names for others, for this container alone: `name:alias`, sorted.
    #[serde(skip_serializing_if = "is_default")]
    pub links: Vec<String>,
}

/// One port of the container, published on the host or not.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Port {
    pub container: u16,
    pub protocol: Protocol,
    #[serde(default, skip_serializing_if = "is_default")]
    pub host_ip: Option<IpAddr>,
    /// `None`: a free port that the engine chooses.
    #[serde(default, skip_serializing_if = "is_default")]
    pub host: Option<PortRange>,
}

impl Port {
    /// Whether it wants an address of the host that this one covers. `None` is every address.
    pub fn overlaps(&self, other: Option<IpAddr>) -> bool {
        let own = self.host_ip.filter(|it| !it.is_unspecified());
        let other = other.filter(|it| !it.is_unspecified());
        own.is_none() || other.is_none() || own == other
    }
}

/// From first to last, both included. The engine takes the first free one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct PortRange {
    pub first: u16,
    pub last: u16,
}

impl PortRange {
    pub fn one(port: u16) -> Self {
        Self { first: port, last: port }
    }

    pub fn len(self) -> u32 {
        u32::from(self.last.saturating_sub(self.first)) + 1
    }

    pub fn is_empty(self) -> bool {
        false
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Protocol {
    #[default]
    Tcp,
    Udp,
    Sctp,
}

impl Protocol {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Udp => "udp",
            Self::Sctp => "sctp",
        }
    }
}

/// The engine's own health check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Healthcheck {
    /// `CMD …`, `CMD-SHELL …` or `NONE`, as the engine takes it. Empty: the image's own test.
    pub test: Vec<String>,
    #[serde(default, skip_serializing_if = "is_default")]
    pub interval: Option<Duration>,
    #[serde(default, skip_serializing_if = "is_default")]
    pub timeout: Option<Duration>,
    #[serde(default, skip_serializing_if = "is_default")]
    pub retries: Option<u32>,
    #[serde(default, skip_serializing_if = "is_default")]
    pub start_period: Option<Duration>,
    #[serde(default, skip_serializing_if = "is_default")]
    pub start_interval: Option<Duration>,
}

/// The engine's restart policy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum RestartPolicy {
    #[default]
    No,
    Always,
    UnlessStopped,
    /// `None`: without limit.
    #[serde(rename_all = "camelCase")]
    OnFailure {
        max_retries: Option<u32>,
    },
}

/// Limits that the engine can change on a live container.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Resources {
    /// Billionths of a CPU.
    #[serde(skip_serializing_if = "is_default")]
    pub nano_cpus: Option<u64>,
    /// Bytes.
    #[serde(skip_serializing_if = "is_default")]
    pub memory: Option<u64>,
    /// Bytes.
    #[serde(skip_serializing_if = "is_default")]
    pub memory_reservation: Option<u64>,
    /// Bytes of memory and swap together; -1 is without limit.
    #[serde(skip_serializing_if = "is_default")]
    pub memory_swap: Option<i64>,
    #[serde(skip_serializing_if = "is_default")]
    pub cpu_shares: Option<u64>,
    #[serde(skip_serializing_if = "is_default")]
    pub pids: Option<i64>,
    /// Microseconds of CPU time per period; another way to say `nano_cpus`.
    #[serde(skip_serializing_if = "is_default")]
    pub cpu_quota: Option<u64>,
    /// Microseconds.
    #[serde(skip_serializing_if = "is_default")]
    pub cpu_period: Option<u64>,
    /// Such as `0-2,4`.
    #[serde(skip_serializing_if = "is_default")]
    pub cpuset: Option<String>,
}

impl Resources {
    /// With a quota of CPU time told as a number of CPUs, which is how it is read back.
    #[must_use]
    pub fn normal(&self) -> Self {
        /// The kernel's own, in microseconds.
        const PERIOD: u64 = 100_000;
        let Some(quota) = self.cpu_quota.filter(|it| *it > 0) else {
            return Self { cpu_quota: None, ..self.clone() };
        };
        let period = u128::from(self.cpu_period.filter(|it| *it > 0).unwrap_or(PERIOD));
        let share = u64::try_from(u128::from(quota).saturating_mul(1_000_000_000) / period).ok();
        Self { nano_cpus: self.nano_cpus.or(share), cpu_quota: None, cpu_period: None, ..self.clone() }
    }
}

/// Probes made by the agent, as Kubernetes defines them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Probes {
    /// Until it succeeds, the others wait; failing for good, it restarts.
    #[serde(skip_serializing_if = "is_default")]
    pub startup: Option<Probe>,
    /// Gates availability.
    #[serde(skip_serializing_if = "is_default")]
    pub readiness: Option<Probe>,
    /// Failing for good, it restarts.
    #[serde(skip_serializing_if = "is_default")]
    pub liveness: Option<Probe>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Probe {
    pub action: ProbeAction,
    pub initial_delay: Duration,
    pub period: Duration,
    pub timeout: Duration,
    pub success_threshold: u32,
    pub failure_threshold: u32,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ProbeAction {
    /// A status from 200 to 399 succeeds.
    #[serde(rename_all = "camelCase")]
    HttpGet {
        path: String,
        port: u16,
        /// HTTPS without checking the certificate, as the kubelet does.
        #[serde(default, skip_serializing_if = "is_default")]
        https: bool,
        #[serde(default, skip_serializing_if = "is_default")]
        host: Option<String>,
        #[serde(default, skip_serializing_if = "is_default")]
        headers: Vec<(String, String)>,
    },
    TcpSocket {
        port: u16,
        #[serde(default, skip_serializing_if = "is_default")]
        host: Option<String>,
    },
    /// `grpc.health.v1.Health/Check` without TLS: `SERVING` succeeds.
    Grpc {
        port: u16,
        /// Which of the server's services; empty: the server as a whole.
        #[serde(default, skip_serializing_if = "is_default")]
        service: String,
    },
    /// Exit code 0 succeeds. Not through a shell.
    Exec { command: Vec<String> },
}
