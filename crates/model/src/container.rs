//! The specification of a container: everything that would require replacing an instance, if changed.

use std::{collections::BTreeMap, net::IpAddr, time::Duration};

use serde::{Deserialize, Serialize};

use super::{
    BoxedDefault, HostSettings, Mount, MountSource, Namespace, Peer, Platform, SpecHash, VolumesFrom,
};
use crate::defaults::is_default;

/// The grace period of a stop that the engine takes for a container without one.
pub const DEFAULT_STOP_GRACE: Duration = Duration::from_secs(10);

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
    /// Between the stop signal and SIGKILL; `None` is [`DEFAULT_STOP_GRACE`].
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
    /// The hash of the specification, as it stands in the label [`super::label::SPEC`].
    pub fn spec(&self) -> SpecHash {
        SpecHash::of(self)
    }

    /// The images of which it mounts the files.
    pub fn mounted_images(&self) -> impl Iterator<Item = &String> {
        self.mounts.iter().filter_map(|mount| match &mount.source {
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

    /// The paths in the application's own folder that it mounts.
    pub fn app_folders(&self) -> impl Iterator<Item = &str> {
        self.mounts.iter().filter_map(Mount::app_folder)
    }

    /// The platform that it asks for.
    pub fn platform(&self) -> Option<Platform> {
        self.host.platform.as_deref().map(Platform::parse)
    }

    /// The networks it joins, by name in Docker; empty in another network mode.
    pub fn networks(&self) -> &BTreeMap<String, Box<Attachment>> {
        static NONE: BTreeMap<String, Box<Attachment>> = BTreeMap::new();
        match &self.network_mode {
            NetworkMode::Networks(networks) => networks,
            NetworkMode::Host | NetworkMode::None | NetworkMode::Bridge | NetworkMode::Of(_) => &NONE,
        }
    }

    /// The containers that it shares the network, processes or memory of. It cannot run without them.
    pub fn hosts(&self) -> impl Iterator<Item = &Peer> {
        let network = match &self.network_mode {
            NetworkMode::Of(peer) => Some(peer),
            NetworkMode::Networks(_) | NetworkMode::Host | NetworkMode::None | NetworkMode::Bridge => None,
        };
        let modes = [&self.pid_mode, &self.ipc_mode].into_iter().flatten();
        network.into_iter().chain(modes.filter_map(Namespace::peer))
    }

    /// All containers that it shares something with. It is replaced when one of them is.
    pub fn peers(&self) -> impl Iterator<Item = &Peer> {
        self.hosts().chain(self.volumes_from.iter().map(|it| &it.peer))
    }

    /// All containers that it shares something with, to name them otherwise.
    pub fn peers_mut(&mut self) -> impl Iterator<Item = &mut Peer> {
        let network = match &mut self.network_mode {
            NetworkMode::Of(peer) => Some(peer),
            NetworkMode::Networks(_) | NetworkMode::Host | NetworkMode::None | NetworkMode::Bridge => None,
        };
        let modes = [&mut self.pid_mode, &mut self.ipc_mode].into_iter().flatten();
        let hosts = network.into_iter().chain(modes.filter_map(Namespace::peer_mut));
        hosts.chain(self.volumes_from.iter_mut().map(|it| &mut it.peer))
    }
}

/// The network mode of a container.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum NetworkMode {
    /// By the network's name in Docker. Boxed: a map has room for eleven, and most containers join one.
    Networks(BTreeMap<String, Box<Attachment>>),
    Host,
    None,
    /// The engine's default bridge, without name resolution.
    Bridge,
    /// The network of another container.
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

impl Attachment {
    /// The fixed addresses, of which a network can have one only: of IP, and of the network card.
    pub fn fixed_addresses(&self) -> impl Iterator<Item = &String> {
        let of_ip = self.ipv4.iter().chain(&self.ipv6).chain(&self.link_local);
        of_ip.chain(&self.mac_address)
    }
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
    /// Whether two containers cannot both have these ports of the host.
    pub fn collides(&self, other: &Self) -> bool {
        self.host.is_some()
            && self.host == other.host
            && self.protocol == other.protocol
            && self.overlaps(other.host_ip)
    }

    /// Whether it wants an address of the host that this one covers.
    pub fn overlaps(&self, other: Option<IpAddr>) -> bool {
        addresses_overlap(self.host_ip, other)
    }
}

/// Whether two addresses of the host cover a common one. `None` is every address; `0.0.0.0` and `::` are all of IPv4 and of
/// IPv6, as the engine binds them.
pub fn addresses_overlap(one: Option<IpAddr>, other: Option<IpAddr>) -> bool {
    let (Some(one), Some(other)) = (one, other) else { return true };
    let is_every = one.is_unspecified() || other.is_unspecified();
    one == other || (is_every && one.is_ipv4() == other.is_ipv4())
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

impl Healthcheck {
    /// Whether there is no check, and not that of the image either.
    pub fn is_disabled(&self) -> bool {
        self.test.first().is_some_and(|word| word == "NONE")
    }

    /// The time from the start of a container until it is unhealthy, if no check ever succeeds. Zero without a `start_period`:
    /// then nothing says that the start takes long.
    pub fn startup_time(&self) -> Duration {
        let start = self.start_period.filter(|start| !start.is_zero() && !self.is_disabled());
        let Some(start) = start else { return Duration::ZERO };
        // The defaults of the engine.
        let interval =
            self.interval.filter(|interval| !interval.is_zero()).unwrap_or(Duration::from_secs(30));
        let retries = self.retries.filter(|retries| *retries > 0).unwrap_or(3);
        start.saturating_add(interval.saturating_mul(retries))
    }

    /// No check, and not that of the image either.
    pub fn disabled() -> Self {
        Self {
            test: vec!["NONE".to_owned()],
            interval: None,
            timeout: None,
            retries: None,
            start_period: None,
            start_interval: None,
        }
    }
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
    /// As it is read back: a quota of CPU time as a number of CPUs, and no limit of 0, which the engine takes for none.
    #[must_use]
    pub fn normal(&self) -> Self {
        /// The kernel's own, in microseconds.
        const PERIOD: u64 = 100_000;
        let positive = |it: Option<u64>| it.filter(|it| *it > 0);
        let all = Self {
            nano_cpus: positive(self.nano_cpus),
            memory: positive(self.memory),
            memory_reservation: positive(self.memory_reservation),
            memory_swap: self.memory_swap.filter(|it| *it != 0),
            cpu_shares: positive(self.cpu_shares),
            cpu_quota: None,
            cpu_period: positive(self.cpu_period),
            pids: self.pids,
            cpuset: self.cpuset.clone(),
        };
        let Some(quota) = positive(self.cpu_quota) else { return all };
        let period = u128::from(all.cpu_period.unwrap_or(PERIOD));
        let share = u64::try_from(u128::from(quota).saturating_mul(1_000_000_000) / period).ok();
        Self { nano_cpus: all.nano_cpus.or(share), cpu_period: None, ..all }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_two_families_do_not_overlap() {
        let overlap = |one: &str, other: &str| {
            let (one, other) = (one.parse().ok(), other.parse().ok());
            let found = addresses_overlap(one, other);
            assert_eq!(found, addresses_overlap(other, one));
            found
        };
        for (one, other) in
            [("", ""), ("", "::"), ("", "10.0.0.1"), ("0.0.0.0", "10.0.0.1"), ("::", "fd00::1")]
        {
            assert!(overlap(one, other), "{one} {other}");
        }
        for (one, other) in
            [("0.0.0.0", "::"), ("0.0.0.0", "fd00::1"), ("10.0.0.1", "::"), ("10.0.0.1", "10.0.0.2")]
        {
            assert!(!overlap(one, other), "{one} {other}");
        }
    }
}
