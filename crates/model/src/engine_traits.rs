//! Facts about an engine and the kernel of its host that change what a container looks like.

use std::{collections::BTreeSet, fmt};

use super::Resources;

/// The values that an engine fills in by itself, and those that it leaves out because it cannot apply them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EngineTraits {
    /// The log driver of containers that name none, if it is known.
    pub log_driver: Option<String>,
    /// The limits that the kernel of the host cannot apply. The engine warns once, when it creates the container, and stores
    /// no such limit.
    pub unsupported_limits: BTreeSet<LimitKind>,
    /// The number of its CPUs, if it creates no container with a higher limit (`NanoCPUs`).
    pub cpus: Option<u64>,
    /// The engine keeps an image for one platform only under each name, as the classic image store does.
    pub keeps_one_platform: bool,
    /// The engine is a worker of a Swarm. It lists an overlay network of the Swarm only while a container of the node uses it.
    pub is_swarm_worker: bool,
}

/// A group of limits that a kernel has or lacks as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LimitKind {
    Memory,
    MemorySwap,
    Cpus,
    CpuShares,
    Cpuset,
    Pids,
}

impl LimitKind {
    /// Copies the limits of this kind.
    fn copy(self, from: &Resources, to: &mut Resources) {
        match self {
            Self::Memory => {
                to.memory = from.memory;
                to.memory_reservation = from.memory_reservation;
                to.memory_swap = from.memory_swap;
            }
            Self::MemorySwap => to.memory_swap = from.memory_swap,
            Self::Cpus => {
                to.nano_cpus = from.nano_cpus;
                to.cpu_quota = from.cpu_quota;
                to.cpu_period = from.cpu_period;
            }
            Self::CpuShares => to.cpu_shares = from.cpu_shares,
            Self::Cpuset => to.cpuset.clone_from(&from.cpuset),
            Self::Pids => to.pids = from.pids,
        }
    }
}

/// The words of the messages.
impl fmt::Display for LimitKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Memory => "memory",
            Self::MemorySwap => "swap",
            Self::Cpus => "CPUs",
            Self::CpuShares => "CPU shares",
            Self::Cpuset => "CPU sets",
            Self::Pids => "processes",
        })
    }
}

impl EngineTraits {
    /// Copies the limits that the kernel cannot apply, so that they are no difference.
    pub fn copy_unsupported_limits(&self, from: &Resources, to: &mut Resources) {
        for kind in &self.unsupported_limits {
            kind.copy(from, to);
        }
    }

    /// The CPUs of the engine in billionths, if these limits ask for more. All CPUs are no less than such a limit allows.
    pub fn cpus_exceeded_by(&self, wanted: &Resources) -> Option<u64> {
        let all = self.cpus.filter(|cpus| *cpus > 0)?.saturating_mul(1_000_000_000);
        wanted.nano_cpus.filter(|asked| *asked > all).map(|_| all)
    }

    /// Copies a limit above the CPUs of the engine where the container has all of them, so that it is no difference.
    pub fn copy_exceeding_cpus(&self, wanted: &Resources, found: &mut Resources) {
        if found.nano_cpus.is_some() && found.nano_cpus == self.cpus_exceeded_by(wanted) {
            found.nano_cpus = wanted.nano_cpus;
        }
    }

    /// The kinds of limits that are set here and that the kernel cannot apply.
    pub fn unsupported_limits_of(&self, wanted: &Resources) -> Vec<LimitKind> {
        let is_set = |kind: &LimitKind| {
            let mut without = wanted.clone();
            kind.copy(&Resources::default(), &mut without);
            without != *wanted
        };
        self.unsupported_limits.iter().copied().filter(is_set).collect()
    }
}
