//! Faults of a simulated engine, and the transcript of its changes.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use driftless_model::{AppName, Observed, Timestamp};

/// Failures and durations. They hold until they are changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Faults {
    /// This many calls find the engine unreachable.
    pub failing_calls: u32,
    /// This many steps panic, as a defect of the agent would.
    pub panicking_steps: u32,
    /// This many steps are performed, but their answers get lost.
    pub lost_answers: u32,
    /// This many starts of containers fail, in these words.
    pub failing_starts: Option<(u32, String)>,
    /// The engine rejects containers of these images, in these words.
    pub rejected: BTreeMap<String, String>,
    /// The engine refuses containers of these images, in these words, because the host lacks something.
    pub lacking: BTreeMap<String, String>,
    /// The time that a trial of a definition takes.
    pub trial: Duration,
    pub events: EventDelivery,
    /// The id of the engine's data.
    pub data_id: String,
    /// The images that the registry has; `None`: all of them.
    pub registry: Option<BTreeSet<String>>,
    /// The digests that the registry has, by reference with tag. It does not answer about others.
    pub digests: BTreeMap<String, String>,
    /// The time that these images take to pull; others take [`Self::latency`].
    pub pulls: BTreeMap<String, Duration>,
    /// The time that these images take to build, by name without tag; others take [`Self::latency`].
    pub builds: BTreeMap<String, Duration>,
    /// The build of these images fails; names without tag.
    pub unbuildable: BTreeSet<String>,
    /// The health checks of these images never succeed.
    pub unhealthy: BTreeSet<String>,
    /// Containers of these images exit by themselves: after how long, and with which exit code.
    pub exits: BTreeMap<String, (Duration, i64)>,
    /// The last lines that containers of these images print before they exit by themselves, and those of their
    /// failing health checks.
    pub outputs: BTreeMap<String, String>,
    /// The engine keeps its images in the classic store: each digest is that of a registry.
    pub has_classic_store: bool,
    /// The digests that are signed, with any key.
    pub signed: BTreeSet<String>,
    /// The registry gives no signatures.
    pub is_registry_down: bool,
    /// The engine cannot create volumes, so no agent can claim an id.
    pub has_no_room: bool,
    /// This many claims of ids are removed by somebody, as by `docker volume prune -a`.
    pub removed_claims: u32,
    /// A living agent misses one claim of its id, after this many others.
    pub missed_claim: Option<u32>,
    /// The free space of the disk if there were no images, of 100 GB. Each image takes [`IMAGE_BYTES`].
    pub disk: u64,
    /// The size of the build cache, in bytes.
    pub build_cache: u64,
    /// The time after which health checks succeed.
    pub warm_up: Duration,
    /// When the engine runs the first health check of a container, if that is later than [`Self::warm_up`].
    pub first_health_check: Duration,
    /// The interval of all health checks. The engine keeps five results, and does not say for longer since when a container is
    /// healthy. `None`: it keeps all.
    pub check_interval: Option<Duration>,
    /// The time that a call takes.
    pub latency: Duration,
    /// The time that a container takes to stop after that.
    pub stop: Duration,
}

/// The size of the simulated disk, in bytes.
pub(super) const DISK_BYTES: u64 = 100_000_000_000;

/// The size of each simulated image, in bytes.
pub const IMAGE_BYTES: u64 = 1_000_000_000;

/// Whether the engine's events arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventDelivery {
    Delivered,
    Lost,
}

/// A change of one application, with the observed state before and after.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TranscriptEntry {
    pub at: Timestamp,
    pub app: AppName,
    pub by: ChangedBy,
    pub what: String,
    pub before: Observed,
    pub after: Observed,
}

/// The origin of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangedBy {
    Agent,
    User,
    /// The container, or the engine by the container's restart policy.
    Container,
}

impl Default for Faults {
    fn default() -> Self {
        Self {
            failing_calls: 0,
            panicking_steps: 0,
            lost_answers: 0,
            failing_starts: None,
            rejected: BTreeMap::new(),
            lacking: BTreeMap::new(),
            trial: Duration::ZERO,
            events: EventDelivery::Delivered,
            data_id: "data".to_owned(),
            registry: None,
            digests: BTreeMap::new(),
            pulls: BTreeMap::new(),
            builds: BTreeMap::new(),
            unbuildable: BTreeSet::new(),
            unhealthy: BTreeSet::new(),
            exits: BTreeMap::new(),
            outputs: BTreeMap::new(),
            has_classic_store: false,
            signed: BTreeSet::new(),
            is_registry_down: false,
            has_no_room: false,
            removed_claims: 0,
            missed_claim: None,
            disk: DISK_BYTES,
            build_cache: 0,
            warm_up: Duration::from_secs(1),
            first_health_check: Duration::ZERO,
            check_interval: None,
            latency: Duration::from_millis(5),
            stop: Duration::ZERO,
        }
    }
}
