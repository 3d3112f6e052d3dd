//! Settings of the host for a container, beyond files, networks and limits: devices, the kernel's namespaces and
//! settings, and hooks. The engine's own defaults are applied in `effective`.

use std::{collections::BTreeMap, sync::LazyLock, time::Duration};

use serde::{Deserialize, Serialize};

use super::SharedDefault;
use crate::defaults::is_default;

/// Settings that few containers have, and none can change while it lives.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct HostSettings {
    /// Such as `linux/arm64`. The engine tells nobody what was asked for, so a label does.
    #[serde(skip_serializing_if = "is_default")]
    pub platform: Option<String>,
    /// The OCI runtime by its name in the engine's configuration.
    #[serde(skip_serializing_if = "is_default")]
    pub runtime: Option<String>,
    /// `host`, or absent.
    #[serde(skip_serializing_if = "is_default")]
    pub uts_mode: Option<String>,
    #[serde(skip_serializing_if = "is_default")]
    pub userns_mode: Option<String>,
    /// `host` or `private`; absent is the engine's own choice.
    #[serde(skip_serializing_if = "is_default")]
    pub cgroup: Option<String>,
    #[serde(skip_serializing_if = "is_default")]
    pub cgroup_parent: Option<String>,
    /// Options of the resolver, such as `ndots:2`.
    #[serde(skip_serializing_if = "is_default")]
    pub dns_opt: Vec<String>,
    /// Such as `c 1:3 mr`.
    #[serde(skip_serializing_if = "is_default")]
    pub device_cgroup_rules: Vec<String>,
    /// Devices that a driver hands out: GPUs, and those of the Container Device Interface.
    #[serde(skip_serializing_if = "is_default")]
    pub device_requests: Vec<DeviceRequest>,
    #[serde(skip_serializing_if = "is_default")]
    pub block_io: BlockIo,
    /// From 0 to 100; `None` is the kernel's choice.
    #[serde(skip_serializing_if = "is_default")]
    pub memory_swappiness: Option<u64>,
    #[serde(skip_serializing_if = "is_default")]
    pub oom_kill_disable: bool,
    #[serde(skip_serializing_if = "is_default")]
    pub oom_score_adj: i64,
    /// Microseconds.
    #[serde(skip_serializing_if = "is_default")]
    pub cpu_realtime_period: Option<u64>,
    #[serde(skip_serializing_if = "is_default")]
    pub cpu_realtime_runtime: Option<u64>,
    #[serde(skip_serializing_if = "is_default")]
    pub storage_opt: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "is_default")]
    pub annotations: BTreeMap<String, String>,
    /// Do not create it of an image that runs as root, or as a user of whom only the image knows who it is.
    #[serde(skip_serializing_if = "is_default")]
    pub non_root: bool,
    /// Further options of mounts, by the path inside the container.
    #[serde(skip_serializing_if = "is_default")]
    pub mount_options: BTreeMap<String, MountOptions>,
    /// Run inside of it after each start that we make; a failure ends it. In this order.
    #[serde(skip_serializing_if = "is_default")]
    pub post_start: Vec<Hook>,
    /// Run inside of it before each stop that we make.
    #[serde(skip_serializing_if = "is_default")]
    pub pre_stop: Vec<Hook>,
}

/// One request to a device driver.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DeviceRequest {
    #[serde(skip_serializing_if = "is_default")]
    pub driver: String,
    /// -1 is all there are; 0 leaves it to `ids`.
    #[serde(skip_serializing_if = "is_default")]
    pub count: i64,
    #[serde(skip_serializing_if = "is_default")]
    pub ids: Vec<String>,
    /// All of them, such as `gpu` and `utility`.
    #[serde(skip_serializing_if = "is_default")]
    pub capabilities: Vec<String>,
    #[serde(skip_serializing_if = "is_default")]
    pub options: BTreeMap<String, String>,
}

/// Shares of and limits on disks, by the path of the device.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct BlockIo {
    /// From 10 to 1000.
    #[serde(skip_serializing_if = "is_default")]
    pub weight: Option<u16>,
    #[serde(skip_serializing_if = "is_default")]
    pub weight_device: BTreeMap<String, u16>,
    /// Bytes a second.
    #[serde(skip_serializing_if = "is_default")]
    pub read_bps: BTreeMap<String, u64>,
    #[serde(skip_serializing_if = "is_default")]
    pub write_bps: BTreeMap<String, u64>,
    /// Operations a second.
    #[serde(skip_serializing_if = "is_default")]
    pub read_iops: BTreeMap<String, u64>,
    #[serde(skip_serializing_if = "is_default")]
    pub write_iops: BTreeMap<String, u64>,
}

/// Options of single kinds of mounts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct MountOptions {
    /// Volumes and images: mount only this folder.
    #[serde(skip_serializing_if = "is_default")]
    pub subpath: Option<String>,
    /// Volumes that are created with the container.
    #[serde(skip_serializing_if = "is_default")]
    pub labels: BTreeMap<String, String>,
    /// Of a bind mount: the treatment of mounts inside of it, `disabled`, `writable` or `readonly`.
    #[serde(skip_serializing_if = "is_default")]
    pub recursive: Option<String>,
    /// Of a memory file system, whose size and mode are its own: `noexec`, `uid=1000`. Sorted. Of an empty volume that
    /// is kept in memory: all options, size and mode among them.
    #[serde(skip_serializing_if = "is_default")]
    pub tmpfs: Vec<String>,
    /// Of a volume: the group of its folder, set before the container starts for the first time. The group gets all rights,
    /// and the set-group-id bit passes the group on to new files.
    #[serde(skip_serializing_if = "is_default")]
    pub group: Option<u32>,
}

impl MountOptions {
    /// The value of an option of the memory, as `64m` of `size=64m`.
    pub fn tmpfs_option(&self, name: &str) -> Option<&str> {
        self.tmpfs.iter().find_map(|it| it.strip_prefix(name)?.strip_prefix('='))
    }
}

/// A hook: a command in the container, a pause, or a request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Hook {
    /// Empty with `sleep` and `http`.
    pub command: Vec<String>,
    /// Nothing is run, and so long is waited.
    #[serde(skip_serializing_if = "is_default")]
    pub sleep: Option<Duration>,
    /// Nothing is run, and this is asked for by the agent.
    #[serde(skip_serializing_if = "is_default")]
    pub http: Option<HttpHook>,
    #[serde(skip_serializing_if = "is_default")]
    pub user: Option<String>,
    #[serde(skip_serializing_if = "is_default")]
    pub privileged: bool,
    #[serde(skip_serializing_if = "is_default")]
    pub working_dir: Option<String>,
    #[serde(skip_serializing_if = "is_default")]
    pub env: BTreeMap<String, String>,
}

/// A request to the container. Every answer is a success, as for the kubelet.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct HttpHook {
    /// With its query.
    pub path: String,
    pub port: u16,
    /// HTTPS without checking the certificate.
    #[serde(skip_serializing_if = "is_default")]
    pub https: bool,
    /// Instead of the container's own address.
    #[serde(skip_serializing_if = "is_default")]
    pub host: Option<String>,
    #[serde(skip_serializing_if = "is_default")]
    pub headers: Vec<(String, String)>,
}

impl HttpHook {
    /// The URL of the request at this address.
    pub fn url(&self, host: &str) -> String {
        let scheme = if self.https { "https" } else { "http" };
        let host = if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
        format!("{scheme}://{host}:{}{}", self.port, self.path)
    }
}

impl SharedDefault for HostSettings {
    fn shared_default() -> &'static Self {
        static LONE: LazyLock<HostSettings> = LazyLock::new(HostSettings::default);
        &LONE
    }
}
