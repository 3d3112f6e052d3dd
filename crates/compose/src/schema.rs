//! A Compose file after reading and before lowering: what can be read field by field is already in the model's
//! types; what needs another part of the file, a file of the repository or a variable is kept as written.

use std::{collections::BTreeMap, net::IpAddr, time::Duration};

use super::{
    build::BuildSection,
    host::Passed,
    reader::{Pair, Placed},
};
use driftless_model::{
    Attachment, Condition, Container, DeviceRequest, Finding, Location, MountOptions, Network, OnChange,
    PortRange, Protocol, PullPolicy, RestartPolicy, Volume,
};

/// The whole file.
#[derive(Debug, Default)]
pub(super) struct Project {
    pub(super) services: BTreeMap<String, Service>,
    pub(super) networks: BTreeMap<String, Named<Network>>,
    pub(super) volumes: BTreeMap<String, Named<Volume>>,
    pub(super) configs: BTreeMap<String, FileSource>,
    pub(super) secrets: BTreeMap<String, FileSource>,
}

#[derive(Debug, Default)]
pub(super) struct Service {
    pub(super) origin: Location,
    /// All that is final as it was read. Image included.
    pub(super) container: Container,
    /// Why there is no image was told already, such as that `build` is not supported.
    pub(super) lacks_image_knowingly: bool,
    pub(super) profiles: Vec<String>,
    pub(super) container_name: Option<Placed<String>>,
    pub(super) scale: Option<Placed<u32>>,
    pub(super) pull: Option<PullPolicy>,
    pub(super) depends_on: Vec<Placed<DependsOn>>,
    pub(super) env_files: Vec<Placed<EnvFile>>,
    pub(super) environment: Vec<Pair>,
    pub(super) network_mode: Option<Placed<String>>,
    pub(super) pid: Option<Placed<String>>,
    pub(super) ipc: Option<Placed<String>>,
    pub(super) volumes_from: Vec<Placed<String>>,
    /// `None`: the default network, unless a network mode is set.
    pub(super) networks: Option<Vec<Placed<Joined>>>,
    pub(super) volumes: Vec<Placed<VolumeMount>>,
    pub(super) tmpfs: Vec<Placed<VolumeMount>>,
    pub(super) configs: Vec<Placed<FileMount>>,
    pub(super) secrets: Vec<Placed<FileMount>>,
    pub(super) deploy: Deploy,
    pub(super) build: Option<BuildSection>,
    /// `pull_policy: build`
    pub(super) must_build: Option<Placed<()>>,
    pub(super) label_files: Vec<Placed<EnvFile>>,
    /// Name and alias.
    pub(super) links: Vec<Placed<(String, String)>>,
    pub(super) external_links: Vec<Placed<(String, String)>>,
    pub(super) mac_address: Option<Placed<String>>,
    pub(super) security: Vec<Placed<String>>,
    /// Variables of hooks without a value.
    pub(super) passed: Vec<Passed>,
    pub(super) refresh_after: Option<Duration>,
    /// Of all mounts that do not say it themselves.
    pub(super) on_change: Option<Change>,
    /// Errors that only matter if the service is used.
    pub(super) unsupported: Vec<Finding>,
}

#[derive(Debug)]
pub(super) struct DependsOn {
    pub(super) service: String,
    pub(super) condition: Condition,
    pub(super) required: bool,
    pub(super) restart: bool,
}

#[derive(Debug)]
pub(super) struct EnvFile {
    pub(super) path: String,
    pub(super) required: bool,
    pub(super) format: EnvFormat,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EnvFormat {
    /// With quotes, comments and variables.
    Compose,
    /// As it stands.
    Raw,
}

/// A network that a service joins, by its key in the file.
#[derive(Debug)]
pub(super) struct Joined {
    pub(super) network: String,
    pub(super) attachment: Attachment,
}

#[derive(Debug)]
pub(super) struct VolumeMount {
    pub(super) target: String,
    pub(super) read_only: bool,
    pub(super) source: VolumeSource,
    pub(super) options: MountOptions,
    pub(super) on_change: Option<Placed<Change>>,
}

/// What a changed file brings about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// Another container takes the place of this one.
    Recreate,
    /// The file is rewritten in place.
    InPlace(OnChange),
}

#[derive(Debug)]
pub(super) enum VolumeSource {
    Anonymous,
    Named { key: String, no_copy: bool },
    Path { path: String, create: bool, propagation: Option<String>, selinux: Option<String> },
    Tmpfs { size: Option<u64>, mode: Option<u32> },
    Image(String),
}

/// A config or secret in a service.
#[derive(Debug, Default)]
pub(super) struct FileMount {
    pub(super) source: String,
    pub(super) target: Option<String>,
    pub(super) mode: Option<u32>,
    pub(super) uid: Option<u32>,
    pub(super) gid: Option<u32>,
    pub(super) on_change: Option<Placed<Change>>,
}

#[derive(Debug, Default)]
pub(super) struct Deploy {
    pub(super) replicas: Option<Placed<u32>>,
    pub(super) restart: Option<RestartPolicy>,
    pub(super) update: Option<Update>,
    pub(super) cpus: Option<Placed<u64>>,
    pub(super) memory: Option<Placed<u64>>,
    pub(super) pids: Option<Placed<i64>>,
    pub(super) memory_reservation: Option<Placed<u64>>,
    pub(super) devices: Vec<DeviceRequest>,
}

#[derive(Debug, Default)]
pub(super) struct Update {
    pub(super) order: Option<Order>,
    /// 0 is all at once.
    pub(super) parallelism: Option<u32>,
    pub(super) monitor: Option<Duration>,
    /// Between two batches.
    pub(super) delay: Option<Duration>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    StartFirst,
    StopFirst,
}

/// A top-level network or volume, and the name that it asks for.
#[derive(Debug, Default)]
pub(super) struct Named<T> {
    pub(super) name: Option<String>,
    pub(super) spec: T,
}

/// A top-level config or secret.
#[derive(Debug)]
pub(super) struct FileSource {
    pub(super) origin: Placed<()>,
    pub(super) source: Source,
}

pub(super) enum Source {
    File(String),
    /// Never printed: it may be a secret.
    Content(String),
    /// The name of a variable.
    Environment(String),
    External,
    /// Not given, or given wrongly; said so already or to be said where it is used.
    Missing,
}

impl std::fmt::Debug for Source {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::File(_) => "File",
            Self::Content(_) => "Content",
            Self::Environment(_) => "Environment",
            Self::External => "External",
            Self::Missing => "Missing",
        })
    }
}

/// A port in the long syntax.
#[derive(Debug, Default)]
pub(super) struct LongPort {
    pub(super) target: Option<PortRange>,
    pub(super) published: Option<PortRange>,
    pub(super) host_ip: Option<IpAddr>,
    pub(super) protocol: Protocol,
}
