//! The record of an application: facts that the engine cannot report, and that the store keeps.
//!
//! Everything else is read from Git and Docker in every round. Without a record the agent compares its containers field by
//! field, and its counters start at zero.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::{
    AfterRecord, AppName, CanaryRecord, CommitId, CommitInfo, CompletedJobs, ContainerId, ContentId,
    FailedCommit, FollowedImage, HookRecord, Instance, InstanceId, JobEnd, JobRecord, KnownInside, Network,
    PlatformImage, RolloutSizes, ScaleOverride, SharedPlace, SpecHash, StackHash, SwarmRecord, SwarmService,
    Timestamp, UnknownEnd, VerifiedImages, Workload, WorkloadName,
};

/// Facts about one application that the engine cannot report.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Record {
    /// Containers that the agent created, or has checked and adopted. Labels can be copied; an id cannot.
    #[serde(alias = "ledger")]
    pub own_containers: BTreeSet<ContainerId>,
    /// Objects adopted from Docker Compose. Labels of a live container cannot be changed, so this alone says
    /// that it is ours.
    #[serde(skip_serializing_if = "Adopted::is_empty")]
    pub adopted: Adopted,
    /// The stack that was last reached in full. While it is the desired one, every difference is drift.
    pub settled: Option<StackHash>,
    /// The same while a request changes some of its workloads.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reopened: Option<ReopenedStack>,
    /// Failed pulls and builds, by image reference and platform.
    pub pulls: BTreeMap<PlatformImage, Attempt>,
    #[serde(with = "by_instance")]
    pub crashes: BTreeMap<InstanceId, Crash>,
    /// Numbers of ends of containers, by themselves or by a failed probe. Unlike [`Crash::count`], which the backoff uses,
    /// it does not start again.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub ends: BTreeMap<ContainerId, u32>,
    /// The container that was to take the place of the agent's own one, and failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failed_own_update: Option<FailedOwnUpdate>,
    /// The last runs of Jobs and of services that are to end whose end is not known.
    #[serde(with = "by_instance", skip_serializing_if = "BTreeMap::is_empty")]
    pub unknown_ends: BTreeMap<InstanceId, UnknownEnd>,
    /// Containers that were seen to end well by themselves, and so have done their work.
    pub completed: BTreeSet<ContainerId>,
    /// The last end of each init container that has succeeded, and the namespaces that it was for.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub prepared: BTreeMap<ContainerId, Preparation>,
    /// Containers that we stopped to start them again: their end is none of their own.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub stopped: BTreeSet<ContainerId>,
    /// Containers that the agent stopped to remove them, until they are gone. If it ends in between, nobody else stopped
    /// them, and the old ones among them are not started again.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub leaving: BTreeSet<ContainerId>,
    /// The anonymous volumes, by target, of instances that are being replaced (`web.1`), until the successor mounts them.
    /// Nothing else names them once the old container is removed.
    #[serde(alias = "bequests", skip_serializing_if = "BTreeMap::is_empty")]
    pub volumes_to_inherit: BTreeMap<String, BTreeMap<String, String>>,
    /// The contents of files that are rewritten in place, by target, that each container has read: it was started with them,
    /// or was signalled since, or needs no signal. A container that is not listed may have read older contents.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub delivered: BTreeMap<ContainerId, BTreeMap<String, ContentId>>,
    /// Instances (`web.1`) that have been started, but not all of their `post_start` hooks have ended.
    #[serde(alias = "unhooked", skip_serializing_if = "BTreeSet::is_empty")]
    pub pending_post_start: BTreeSet<String>,
    /// The slots in use when the stack was last reached, so that what is deleted comes back under its name.
    pub slots: BTreeMap<WorkloadName, BTreeSet<u32>>,
    /// By resource and field, such as `web.1 state`.
    pub heals: BTreeMap<String, Heal>,
    pub progress: BTreeMap<WorkloadName, Progress>,
    /// When the agent observed again, in the middle of a rollout, after it was down or its machine slept. The time before does
    /// not count into deadlines.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resumed: Option<Timestamp>,
    /// Containers that somebody asked to be replaced, although Git may ask for no other.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub replaced: BTreeMap<ContainerId, Replacement>,
    /// Workloads with a rollout that a user paused.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub paused: BTreeSet<WorkloadName>,
    /// Workloads with another number of instances than in Git, for a time.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub scales: BTreeMap<WorkloadName, ScaleOverride>,
    /// The canaries of the commit that is applied.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub canaries: BTreeMap<WorkloadName, CanaryRecord>,
    /// The sizes of the rollouts that are under way.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub rollouts: BTreeMap<WorkloadName, RolloutSizes>,
    /// The definitions by which changed workloads were last rolled out since the stack was reached: a newer commit that has to wait keeps
    /// their containers.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub begun: BTreeMap<WorkloadName, Workload>,
    /// Older definitions of workloads that the manifest holds at their older version.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub held: BTreeMap<WorkloadName, Workload>,
    /// The runs of CronJobs.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub crons: BTreeMap<WorkloadName, CronRecord>,
    /// Progress of Jobs.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub jobs: BTreeMap<WorkloadName, JobRecord>,
    /// The contents with which Jobs completed, the newest last: a rollback to one of them does not run it again.
    #[serde(skip_serializing_if = "CompletedJobs::is_empty")]
    pub completed_jobs: CompletedJobs,
    /// The hooks of the newest sync.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hooks: Option<Box<HookRecord>>,
    /// The running containers that the probes of the agent have found ready. The next agent takes them for ready until its own
    /// probes find otherwise.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub ready: BTreeMap<ContainerId, KnownReady>,
    /// The containers with a health check that the engine runs.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub health: BTreeMap<ContainerId, KnownHealth>,
    /// Since when Git asks for each object, by its kind, namespace and name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub since: BTreeMap<String, Timestamp>,
    /// The stack for which somebody confirmed that what it does not have is removed, however much that is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prune: Option<StackHash>,
    /// A user asked to remove the application, which has left Git.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub removal: Option<Removal>,
    /// The volumes that this removal leaves, because others used them.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub spared_volumes: BTreeSet<String>,
    /// The volumes that Git keeps when the application is removed. The engine may not know it: the labels of a volume never change.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub protected_volumes: BTreeSet<String>,
    /// Applications that this agent does not have any more and whose volumes and networks this one goes on with.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub former_owners: BTreeSet<AppName>,
    /// The volumes and folders that other applications write to as well: a rollback may go on to share them.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub shared_places: BTreeSet<SharedPlace>,
    /// A commit has removed so many applications of the repository at once, and the removal of this one waits for a user.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub emptied: Option<usize>,
    /// Git or the configuration did not have the application when it was last read.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub has_left: bool,
    /// The stack to which a user asked to repair the live state once, although self-heal is off.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub heal_once: Option<StackHash>,
    /// The stack that Git asks for, and the commit that it came with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub newest: Option<NewestStack>,
    /// The commit that the application was last in sync with, while its target is another one. It may be a later commit than that of the
    /// revision, which has changed only other applications.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub in_sync: Option<CommitInfo>,
    /// The newest commit, if it failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failed: Option<FailedCommit>,
    /// The wait of a new commit for the first hosts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<AfterRecord>,
    /// The images whose registries are asked for newer ones, by the reference of the manifest.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub followed_images: BTreeMap<String, FollowedImage>,
    /// The images whose signatures were verified.
    #[serde(skip_serializing_if = "VerifiedImages::is_empty")]
    pub verified_images: VerifiedImages,
    /// Actions that the engine would not do, by the object they act on. Others go on meanwhile.
    pub failures: BTreeMap<String, Attempt>,
    /// Those of these objects whose definition the engine rejected, and not for lack of something on the host: another try without a
    /// change fails in the same way.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub rejected: BTreeSet<String>,
    /// Files changed inside containers, and by whom.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub inside: BTreeMap<ContainerId, KnownInside>,
    /// The services of a Docker Swarm.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub swarm: Option<Box<SwarmRecord>>,
    /// The last sync that failed, while it has not succeeded since.
    pub sync: Option<Attempt>,
    /// The containers that nobody adopted and that keep the whole application back.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unadopted: Option<Unadopted>,
}

/// The containers of Docker Compose because of which an application has none of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Unadopted {
    /// They are there.
    Present,
    /// They were found gone at this time, and networks of theirs are left.
    Gone(Timestamp),
}

/// A stack that was reached, and of which a request, or its end, changes some workloads since.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ReopenedStack {
    pub stack: StackHash,
    /// Those of the requests, and those that the agent has removed an instance of since.
    pub workloads: BTreeSet<WorkloadName>,
    /// The networks that the agent has made again since, by name in Docker. It connects all of their members.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub networks: BTreeSet<String>,
}

/// The stack that Git asks for. Later commits that change nothing for the application have the same one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NewestStack {
    pub stack: StackHash,
    /// The commit that it came with: the first one that has it.
    pub commit: CommitId,
}

/// A success of an init container.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Preparation {
    pub ended: Timestamp,
    /// The start of the first container of its pod at that time. With each start its namespaces are new.
    pub pod_started: Timestamp,
}

/// A container that its probes have found ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct KnownReady {
    /// The start of the process that was probed.
    pub started: Timestamp,
    pub since: Timestamp,
}

/// The health of a container in the last round. The engine does not say for long since when a container is healthy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct KnownHealth {
    /// When its present or last run began.
    pub started: Option<Timestamp>,
    /// Since when it is healthy in this run, if it is.
    pub since: Option<Timestamp>,
}

/// The way in which a container is replaced on request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Replacement {
    /// As by a rollout, within the limits of its workload's strategy.
    Restart,
    /// At once.
    Delete,
}

/// The extent of a removal of an application.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Removal {
    /// Containers and networks.
    KeepVolumes,
    /// Containers, networks and the volumes that carry the application's labels.
    WithVolumes,
}

impl Record {
    /// The parts that are stored before the steps of a round, because they cannot be found out again after them. The rest is stored
    /// at the end of the round, so the agent may end before that.
    pub fn stored_before_acting(&self) -> impl PartialEq + '_ {
        let Self {
            reopened,
            stopped,
            leaving,
            volumes_to_inherit,
            pending_post_start,
            jobs,
            crons,
            hooks,
            canaries,
            rollouts,
            begun,
            unknown_ends,
            spared_volumes,
            // Found out again from labels, live fields and probes, and from Git.
            own_containers: _,
            completed: _,
            prepared: _,
            ready: _,
            inside: _,
            protected_volumes: _,
            former_owners: _,
            newest: _,
            // Stored by what changes them: a request, or a look at Git, other hosts or registries.
            replaced: _,
            paused: _,
            scales: _,
            prune: _,
            removal: _,
            heal_once: _,
            emptied: _,
            has_left: _,
            failed: _,
            after: _,
            followed_images: _,
            // Stored by the request that adopts them; the policy adopts them again.
            adopted: _,
            // Counters and times: they start again, so a pause is shorter or a deadline later.
            pulls: _,
            crashes: _,
            ends: _,
            heals: _,
            failures: _,
            rejected: _,
            sync: _,
            progress: _,
            health: _,
            resumed: _,
            since: _,
            unadopted: _,
            // Changed by an outcome, or where no step is left. Until then an older value is true.
            settled: _,
            in_sync: _,
            slots: _,
            held: _,
            shared_places: _,
            failed_own_update: _,
            verified_images: _,
            swarm: _,
            // A container that is not listed is signalled again.
            delivered: _,
            // Changes together with `jobs`, or is read again from the managers of a Swarm.
            completed_jobs: _,
        } = self;
        let instances = (stopped, leaving, volumes_to_inherit, pending_post_start, unknown_ends);
        (reopened, instances, jobs, crons, hooks, canaries, rollouts, begun, spared_volumes)
    }

    /// Forgets the actions that the engine would not do, so that they are tried again at once.
    pub fn forget_failures(&mut self) {
        self.failures.clear();
        self.rejected.clear();
    }

    /// Notes that workloads of the reached stack are changed on request, or back after it: this is no drift. What somebody else
    /// changed of the others still is.
    pub fn reopen(&mut self, workloads: impl IntoIterator<Item = WorkloadName>) {
        if let Some(stack) = self.settled.take() {
            let (workloads, networks) = (BTreeSet::new(), BTreeSet::new());
            self.reopened = Some(ReopenedStack { stack, workloads, networks });
        }
        if let Some(reopened) = &mut self.reopened {
            reopened.workloads.extend(workloads);
        }
    }

    /// When the time of something begins that was noted at this moment and has a deadline.
    pub fn deadline_start(&self, noted: Timestamp) -> Timestamp {
        self.resumed.map_or(noted, |resumed| resumed.max(noted))
    }

    /// Whether the agent stopped a container, and it was not seen running since.
    pub fn is_stopped_by_agent(&self, id: &ContainerId) -> bool {
        self.stopped.contains(id) || self.leaving.contains(id)
    }

    /// Whether an instance has the desired spec, and nobody asked to replace it.
    pub fn is_current(&self, instance: &Instance, spec: &SpecHash) -> bool {
        instance.spec == *spec && !self.replaced.contains_key(&instance.id)
    }
}

/// Containers, networks and volumes that somebody else made and we have taken over.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Adopted {
    pub containers: BTreeMap<ContainerId, AdoptedContainer>,
    /// By name.
    pub networks: BTreeMap<String, AdoptedNetwork>,
    /// By name: what it was found to be.
    pub volumes: BTreeMap<String, SpecHash>,
    /// Those that containers were adopted for, also when these are gone.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub workloads: BTreeSet<WorkloadName>,
}

/// The identity of an adopted container, which the agent's own containers have in labels.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AdoptedContainer {
    pub instance: InstanceId,
    /// The spec hash of the workload that it equals, else of its own configuration.
    pub spec: SpecHash,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AdoptedNetwork {
    pub id: String,
    pub spec: SpecHash,
}

impl Adopted {
    pub fn is_empty(&self) -> bool {
        self.containers.is_empty() && self.networks.is_empty() && self.volumes.is_empty()
    }
}

/// A version of the agent's own container that failed. It is not tried again until Git asks for another one, or a user for
/// another try.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FailedOwnUpdate {
    pub spec: SpecHash,
    /// In one line, for people.
    pub reason: String,
    pub at: Timestamp,
}

/// Something that failed and will be tried again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Attempt {
    /// Number of failures in a row.
    pub count: u32,
    pub next: Timestamp,
    /// The last error, for people. Never holds a secret.
    pub error: String,
}

/// A container that keeps ending.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Crash {
    /// The count restarts with another spec.
    pub spec: SpecHash,
    /// Number of exits, each counted once. 0: a user has ended the pauses since.
    pub count: u32,
    /// When it last ended: the key by which an end is recognised.
    pub finished: Timestamp,
    /// The start of the run that ended by a failed liveness or startup probe: it counts once, while it is being stopped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dead_run: Option<Timestamp>,
    pub container: ContainerId,
    pub code: i64,
    pub out_of_memory: bool,
    /// The engine's or the probe's own words, if any.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub error: String,
}

/// One field that was corrected, and how often.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Heal {
    /// Position in the sequence of delays.
    pub count: u32,
    /// When the last heal ended.
    pub ended: Timestamp,
    /// The newest heals, by which the planner finds a `RepeatedDrift`.
    pub recent: Vec<Timestamp>,
    /// Number of heals in a row after which the difference stayed. The second one is the last, and the reason is
    /// `HealIneffective`.
    pub ineffective: u32,
    /// Found and wanted: `exited -> running`.
    pub difference: String,
    /// When the difference that was healed last was first seen.
    #[serde(default)]
    pub seen: Timestamp,
    /// Since when it is there again, if it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub again: Option<Timestamp>,
    /// Since the last heal the difference was gone: seen to be, or because the heal created an object, or because the
    /// difference was made again after the heal.
    pub had_effect: bool,
    /// The stack that was desired then. The count starts again with another one.
    pub revision: StackHash,
}

/// The record of a CronJob.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CronRecord {
    /// Nothing before this moment was missed.
    pub since: Timestamp,
    /// The schedule and its time zone. `None`: an older agent did not record them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub schedule: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub zone: Option<String>,
    /// When they were changed: the new schedule has missed nothing before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub changed: Option<Timestamp>,
    /// The last time for which a run was begun.
    pub last: Option<Timestamp>,
    /// The latest of these times while the clock is behind it, and they are those of the clock.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub floor: Option<Timestamp>,
    pub last_success: Option<Timestamp>,
    /// The last failed run that is not kept any more.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_failure: Option<FailedRun>,
    /// The last due time for which an event reported that no run was started.
    #[serde(alias = "told")]
    pub last_reported: Option<Timestamp>,
    /// Begun and not forgotten, by the name of their workload, each as the template was then.
    pub runs: BTreeMap<WorkloadName, Workload>,
    /// The settings of the services of these runs in a Swarm.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub services: BTreeMap<WorkloadName, SwarmService>,
    /// The networks of the runs that have not ended, by name: a later commit may have none of them.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub networks: BTreeMap<WorkloadName, BTreeMap<String, Network>>,
}

/// A run of a CronJob that has failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FailedRun {
    pub run: WorkloadName,
    pub end: JobEnd,
}

/// Counts of a rollout when it last made progress.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Progress {
    pub spec: SpecHash,
    pub updated: u32,
    pub old: u32,
    pub available: u32,
    /// The best of these counts since the time began, in an incomplete rollout. `None`: the present ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub best: Option<RolloutCounts>,
    pub at: Timestamp,
    /// In the last round the workload waited for what is no fault of its rollout: its time begins once it does not any more.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub excused: bool,
}

impl Progress {
    /// The counts of the last round.
    pub fn counts(&self) -> RolloutCounts {
        let Self { updated, old, available, .. } = *self;
        RolloutCounts { updated, old, available }
    }
}

/// Counts of the instances of a workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RolloutCounts {
    pub updated: u32,
    pub old: u32,
    pub available: u32,
}

impl RolloutCounts {
    /// Whether a rollout has got further than it was with other counts.
    pub fn is_further_than(self, other: Self) -> bool {
        self.updated > other.updated || self.old < other.old || self.available > other.available
    }

    /// The better one of each count.
    #[must_use]
    pub fn best(self, other: Self) -> Self {
        Self {
            updated: self.updated.max(other.updated),
            old: self.old.min(other.old),
            available: self.available.max(other.available),
        }
    }
}

/// A map by instance as JSON with keys such as `web.1`.
mod by_instance {
    use std::collections::BTreeMap;

    use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};

    use super::{InstanceId, WorkloadName};

    pub(super) fn serialize<T: Serialize, S: Serializer>(
        map: &BTreeMap<InstanceId, T>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.collect_map(map.iter().map(|(key, value)| (key.to_string(), value)))
    }

    pub(super) fn deserialize<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<BTreeMap<InstanceId, T>, D::Error> {
        let map = BTreeMap::<String, T>::deserialize(deserializer)?;
        map.into_iter().map(|(key, value)| Ok((instance(&key).map_err(D::Error::custom)?, value))).collect()
    }

    fn instance(text: &str) -> Result<InstanceId, String> {
        let parts = text.rsplit_once('.').and_then(|(name, slot)| Some((name, slot.parse().ok()?)));
        let (name, slot) = parts.ok_or_else(|| format!("`{text}` is not a workload and a slot"))?;
        Ok(InstanceId { workload: WorkloadName(name.to_owned()), slot })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_with_everything_in_it_comes_back_from_json() {
        let instance = InstanceId { workload: WorkloadName("a.b".into()), slot: 2 };
        let spec = SpecHash("s".into());
        let crash = Crash {
            spec: spec.clone(),
            count: 1,
            finished: Timestamp(1),
            dead_run: Some(Timestamp(0)),
            container: ContainerId("c".into()),
            code: 1,
            out_of_memory: false,
            error: String::new(),
        };
        let adopted = AdoptedContainer { instance: instance.clone(), spec: spec.clone() };
        let network = AdoptedNetwork { id: "n".into(), spec: spec.clone() };
        let record = Record {
            crashes: BTreeMap::from([(instance, crash)]),
            adopted: Adopted {
                containers: BTreeMap::from([(ContainerId("c".into()), adopted)]),
                networks: BTreeMap::from([("net".into(), network)]),
                volumes: BTreeMap::from([("data".into(), spec)]),
                workloads: BTreeSet::new(),
            },
            replaced: BTreeMap::from([(ContainerId("c".into()), Replacement::Restart)]),
            paused: BTreeSet::from([WorkloadName("a.b".into())]),
            spared_volumes: BTreeSet::from(["data".into()]),
            protected_volumes: BTreeSet::from(["data".into()]),
            former_owners: BTreeSet::from(["shop".into()]),
            shared_places: BTreeSet::from([SharedPlace {
                source: crate::HostSource::Volume("data".into()),
                with: "shop".into(),
                services: Some(crate::SharingServices { own: "db".into(), other: "backup".into() }),
            }]),
            since: BTreeMap::from([("Deployment shop/a.b".into(), Timestamp(1))]),
            ..Record::default()
        };
        let text = serde_json::to_string(&record).unwrap();
        assert_eq!(serde_json::from_str::<Record>(&text).unwrap(), record, "{text}");
        assert_eq!(serde_json::from_str::<Record>("{}").unwrap(), Record::default());
    }

    #[test]
    fn shared_place_of_an_older_agent_names_no_services() {
        let stored = r#"{"sharedPlaces":[{"source":{"volume":"data"},"with":"shop"}]}"#;
        let record: Record = serde_json::from_str(stored).unwrap();
        let source = crate::HostSource::Volume("data".into());
        let expected = SharedPlace { source, with: "shop".into(), services: None };
        assert_eq!(record.shared_places, BTreeSet::from([expected]));
    }

    #[test]
    fn requests_reopen_their_workloads_of_the_reached_stack() {
        let names = |names: &[&str]| -> BTreeSet<WorkloadName> {
            names.iter().map(|name| WorkloadName((*name).to_owned())).collect()
        };
        let mut record = Record::default();
        record.reopen(names(&["web"]));
        assert_eq!(record.reopened, None, "a commit is being applied");
        record.settled = Some(StackHash("stack".to_owned()));
        record.reopen(names(&["web"]));
        record.reopen(names(&["api"]));
        let expected = ReopenedStack {
            stack: StackHash("stack".to_owned()),
            workloads: names(&["api", "web"]),
            networks: BTreeSet::new(),
        };
        assert_eq!((record.settled, record.reopened), (None, Some(expected)));
    }

    #[test]
    fn fields_under_their_former_names_are_read() {
        let stored = r#"{"ledger":["c"],"bequests":{"web.1":{"/data":"volume"}},"unhooked":["web.1"],
            "crons":{"report":{"since":"1970-01-01T00:00:00.001Z","last":"1970-01-01T00:00:00.002Z",
                "lastSuccess":null,"told":"1970-01-01T00:00:00.003Z","runs":{}}}}"#;
        let cron = CronRecord {
            since: Timestamp(1),
            last: Some(Timestamp(2)),
            last_reported: Some(Timestamp(3)),
            ..CronRecord::default()
        };
        let expected = Record {
            own_containers: BTreeSet::from([ContainerId("c".into())]),
            volumes_to_inherit: [("web.1".into(), [("/data".into(), "volume".into())].into())].into(),
            pending_post_start: BTreeSet::from(["web.1".into()]),
            crons: BTreeMap::from([(WorkloadName("report".into()), cron)]),
            ..Record::default()
        };
        let record: Record = serde_json::from_str(stored).unwrap();
        assert_eq!(record, expected);
        let text = serde_json::to_string(&record).unwrap();
        assert_eq!(serde_json::from_str::<Record>(&text).unwrap(), expected, "{text}");
        assert!(!text.contains("ledger") && !text.contains("told"), "{text}");
    }
}
