//! A Compose file after reading and before lowering. Values that need no other part of the file have the types of the
//! model already. Values that need another part, a file of the repository or a variable are kept as written.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    time::Duration,
};

use driftless_model::{
    Attachment, Build, CanaryStep, Condition, Container, Cron, DeviceRequest, FailureRule, Finding,
    ForwardLimits, HookPhase, IgnoredField, ImageUpdate, Location, MountOptions, Network, OnChange, Port,
    PullPolicy, RestartPolicy, Volume,
};

use crate::spec::{
    env_format::EnvFormat,
    value::{Pair, Placed},
};

/// The sections of a whole project.
#[derive(Debug, Default)]
pub(crate) struct Sections {
    pub(crate) services: BTreeMap<String, Service>,
    pub(crate) networks: BTreeMap<String, Named<Network>>,
    pub(crate) volumes: BTreeMap<String, Named<Volume>>,
    pub(crate) configs: BTreeMap<String, FileSource>,
    pub(crate) secrets: BTreeMap<String, FileSource>,
}

/// One service.
#[derive(Debug, Default)]
pub(crate) struct Service {
    pub(crate) origin: Location,
    /// All values that are final after reading, the image among them.
    pub(crate) container: Container,
    /// A missing image is no error: there is a `build`, or the reason was reported already.
    pub(crate) may_lack_image: bool,
    pub(crate) profiles: Vec<String>,
    pub(crate) container_name: Option<Placed<String>>,
    pub(crate) scale: Option<Placed<u32>>,
    pub(crate) pull: Option<PullPolicy>,
    pub(crate) depends_on: Vec<Placed<DependsOn>>,
    pub(crate) env_files: Vec<Placed<EnvFile>>,
    pub(crate) environment: Vec<Pair>,
    pub(crate) network_mode: Option<Placed<String>>,
    pub(crate) pid: Option<Placed<String>>,
    pub(crate) ipc: Option<Placed<String>>,
    pub(crate) volumes_from: Vec<Placed<String>>,
    /// `None`: the default network, unless a network mode is set.
    pub(crate) networks: Option<Vec<Placed<Joined>>>,
    pub(crate) volumes: Vec<Placed<VolumeMount>>,
    pub(crate) tmpfs: Vec<Placed<VolumeMount>>,
    pub(crate) configs: Vec<Placed<FileMount>>,
    pub(crate) secrets: Vec<Placed<FileMount>>,
    pub(crate) deploy: Deploy,
    pub(crate) build: Option<BuildSection>,
    /// `pull_policy: build`.
    pub(crate) must_build: Option<Placed<()>>,
    pub(crate) label_files: Vec<Placed<EnvFile>>,
    pub(crate) links: Vec<Placed<Link>>,
    pub(crate) external_links: Vec<Placed<Link>>,
    pub(crate) mac_address: Option<Placed<String>>,
    pub(crate) security: Vec<Placed<String>>,
    /// Variables of hooks that are given by name only.
    pub(crate) hook_variables: Vec<HookVariable>,
    pub(crate) refresh_after: Option<Duration>,
    /// The default of its mounts.
    pub(crate) on_change: Option<Change>,
    /// `x-driftless.proxy`.
    pub(crate) proxy: Option<Placed<ProxySetting>>,
    /// `x-driftless.hook` or `x-driftless.schedule`.
    pub(crate) job: Option<Placed<JobSetting>>,
    /// `x-driftless.wave`.
    pub(crate) wave: i32,
    /// `x-driftless.update`.
    pub(crate) image_update: Option<ImageUpdate>,
    pub(crate) ignore_differences: BTreeSet<IgnoredField>,
    /// `x-driftless.canary`.
    pub(crate) canary: Option<Placed<Vec<CanaryStep>>>,
    /// The published ports in `mode: host`, which no proxy serves.
    pub(crate) direct_ports: BTreeSet<Port>,
    /// Errors that count only if the service is used.
    pub(crate) unsupported: Vec<Finding>,
}

/// A service that runs as a Job.
#[derive(Debug)]
pub(crate) struct JobSetting {
    pub(crate) cause: JobCause,
    /// The time after which a run is ended.
    pub(crate) deadline: Option<Duration>,
}

/// Why a service runs as a Job.
#[derive(Debug)]
pub(crate) enum JobCause {
    Hook(HookPhase),
    Schedule(Box<Cron>),
}

/// `NAME:ALIAS` of `links`.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) name: String,
    pub(crate) alias: String,
}

/// A variable of a hook whose value comes from the variables of the application.
#[derive(Debug)]
pub(crate) struct HookVariable {
    pub(crate) hook: HookKind,
    /// The index among the hooks of its kind.
    pub(crate) index: usize,
    pub(crate) name: String,
}

/// When a hook runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HookKind {
    PostStart,
    PreStop,
}

/// `build` of a service, as written. Values that are final are in `spec`.
#[derive(Debug)]
pub(crate) struct BuildSection {
    pub(crate) place: Placed<()>,
    pub(crate) context: Option<Placed<String>>,
    pub(crate) dockerfile: Option<Placed<String>>,
    pub(crate) inline: Option<Placed<String>>,
    pub(crate) args: Vec<Pair>,
    pub(crate) secrets: Vec<Placed<FileMount>>,
    pub(crate) spec: Build,
}

/// One entry of `depends_on`.
#[derive(Debug)]
pub(crate) struct DependsOn {
    pub(crate) service: String,
    pub(crate) condition: Condition,
    pub(crate) required: bool,
    pub(crate) restart: bool,
}

/// One entry of `env_file` or `label_file`.
#[derive(Debug)]
pub(crate) struct EnvFile {
    pub(crate) path: String,
    pub(crate) required: bool,
    pub(crate) format: EnvFormat,
}

/// A network that a service joins, by its key in the file.
#[derive(Debug, Default)]
pub(crate) struct Joined {
    pub(crate) network: String,
    pub(crate) attachment: Attachment,
    /// The fixed addresses of the attachment, for findings about them.
    pub(crate) addresses: Vec<Placed<IpAddr>>,
}

/// One entry of `volumes` or `tmpfs`.
#[derive(Debug)]
pub(crate) struct VolumeMount {
    pub(crate) target: String,
    pub(crate) read_only: bool,
    pub(crate) source: VolumeSource,
    pub(crate) options: MountOptions,
    pub(crate) on_change: Option<Placed<Change>>,
}

/// Whether a proxy serves the published ports of a service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ProxySetting {
    Off,
    On { limits: ForwardLimits, proxy_protocol: bool },
}

/// The consequence of a changed file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// The agent recreates the container.
    Recreate,
    /// The agent rewrites the file in place.
    InPlace(OnChange),
}

/// The source of a mount.
#[derive(Debug)]
pub(crate) enum VolumeSource {
    Anonymous,
    Named { key: String, no_copy: bool },
    Path { path: String, create: bool, propagation: Option<String>, selinux: Option<String> },
    Tmpfs { size: Option<u64>, mode: Option<u32> },
    Image(String),
}

/// One entry of `configs` or `secrets` of a service.
#[derive(Debug, Default)]
pub(crate) struct FileMount {
    pub(crate) source: String,
    pub(crate) target: Option<String>,
    pub(crate) mode: Option<u32>,
    pub(crate) uid: Option<u32>,
    pub(crate) gid: Option<u32>,
    pub(crate) on_change: Option<Placed<Change>>,
}

/// `deploy.restart_policy` of a service.
#[derive(Clone, Copy, Debug)]
pub(crate) enum DeployRestart {
    Policy(RestartPolicy),
    /// `condition` is missing.
    NoCondition {
        has_limit: bool,
    },
}

/// `deploy` of a service.
#[derive(Debug, Default)]
pub(crate) struct Deploy {
    pub(crate) replicas: Option<Placed<u32>>,
    pub(crate) restart: Option<Placed<DeployRestart>>,
    pub(crate) update: Option<UpdateConfig>,
    pub(crate) rollback: Option<UpdateConfig>,
    pub(crate) cpus: Option<Placed<u64>>,
    pub(crate) memory: Option<Placed<u64>>,
    pub(crate) pids: Option<Placed<i64>>,
    pub(crate) memory_reservation: Option<Placed<u64>>,
    pub(crate) devices: Vec<DeviceRequest>,
}

/// `deploy.update_config` or `deploy.rollback_config`.
#[derive(Debug, Default)]
pub(crate) struct UpdateConfig {
    pub(crate) order: Option<Order>,
    /// 0 means all at once.
    pub(crate) parallelism: Option<u32>,
    pub(crate) monitor: Option<Duration>,
    /// The pause between two batches.
    pub(crate) delay: Option<Duration>,
    pub(crate) failure: FailureRule,
}

/// Whether an update starts the new container first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    StartFirst,
    StopFirst,
}

/// A top-level network or volume, and its `name`.
#[derive(Debug, Default)]
pub(crate) struct Named<T> {
    pub(crate) name: Option<String>,
    pub(crate) spec: T,
}

/// A top-level config or secret.
#[derive(Debug)]
pub(crate) struct FileSource {
    pub(crate) origin: Placed<()>,
    pub(crate) source: Source,
}

/// The source of a config or secret.
pub(crate) enum Source {
    File(String),
    /// Never printed: it may be a secret.
    Content(Placed<String>),
    /// The name of a variable.
    Environment(String),
    /// Somebody else creates it, with this name.
    External(String),
    /// Missing or wrong, which was reported.
    Missing,
}

impl std::fmt::Debug for Source {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::File(_) => "File",
            Self::Content(_) => "Content",
            Self::Environment(_) => "Environment",
            Self::External(_) => "External",
            Self::Missing => "Missing",
        })
    }
}
