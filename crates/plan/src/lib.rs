//! Decides what to do next, as data. Pure: no IO, no clock, no memory but the [`Record`] it is given.
//!
//! A plan is the safe next round, not the whole rollout. It holds the steps that are safe *now*, the reasons
//! why the rest is not ([`Wait`]), and when to look again. A rolling update advances because every round
//! observes the last one's effect, so a crash or a newer commit halfway needs no handling of its own.

use std::{collections::BTreeMap, time::Duration};

use serde::{Deserialize, Serialize};

use driftless_model::{
    Adopt, AgentId, AppName, Attachment, Build, Container, ContainerId, ContentId, Drift, Format, InPlace,
    Instance, InstanceId, LiveSettings, Mask, Network, Observed, PartOf, Peer, Policy, Record, SpecHash,
    Stack, Timestamp, Volume, Workload, WorkloadName,
};

mod account;
mod adopt;
mod backoff;
mod census;
mod compare;
mod conditions;
mod cron;
mod diff;
mod fields;
mod forecast;
mod gate;
mod in_place;
mod inside;
mod instances;
mod jobs;
mod limits;
mod note;
mod ordinals;
mod pod;
mod prune;
mod repair;
mod replace;
mod resources;
mod rollout;
mod round;
mod settings;
mod share;
mod slots;
mod tally;
mod text;
mod verdict;
mod work;
mod world;

pub use account::resources;
pub use adopt::{Claim, Claimed, adopt, embrace, survey};
pub use backoff::{
    CRASH_RESET, crash_delay, docker_delay, fetch_delay, heal_delay, poll_with_jitter, pull_delay, sync_delay,
};
pub use compare::{Change, ObjectDifference, compare_live, compare_stacks};
pub use cron::{Told, run_name, run_of, schedule, with_runs, without_runs};
pub use diff::{FieldDifference, canonical_yaml, differences, stack_diff, unified_diff};
pub use forecast::forecast;
pub use in_place::suppose_delivered;
pub use inside::{FOLLOWED, watched};
pub use note::{StepOutcome, note_executed, note_observed, note_planned, note_settled};
pub use pod::whole;
pub use text::{PRUNE_HELD, attempt, reason, until, wait_status};
pub use verdict::{Assessment, assess};
pub use world::{Refusal, World};

/// Plans the next round: what is safe now, given what is wanted, what there is, what is remembered, and the
/// time. The same inputs give the same plan.
pub fn plan(target: &Target<'_>, observed: &Observed, record: &Record, now: Timestamp) -> Plan {
    let observed = &*pod::whole_of(target, observed);
    let mut round = round::Round::new(target, observed, record, now);
    let census = census::take(target, observed, record);
    if adopt::hold(&mut round, &census) {
        return round.finish();
    }
    gate::pull_missing(&mut round, &census);
    resources::provide(&mut round);
    rollout::roll_all(&mut round, &census);
    resources::collect(&mut round);
    cron::look_ahead(&mut round);
    round.finish()
}

/// Whether every workload of a stack runs with the very specification of the stack, and no other container of this
/// agent belongs to the application.
pub fn is_in_force(stack: &Stack, observed: &Observed, agent: &AgentId) -> bool {
    let own = || observed.instances.values().filter(|instance| instance.agent == *agent);
    let is_wanted = |instance: &Instance| {
        let workload = stack.workloads.get(&instance.instance.workload);
        workload.is_some_and(|workload| workload.spec() == instance.spec)
    };
    let runs = |name: &WorkloadName| own().any(|instance| instance.instance.workload == *name);
    own().all(is_wanted)
        && stack.workloads.iter().all(|(name, workload)| workload.replicas == 0 || runs(name))
}

/// What an application is to be, and what we may do about it.
#[derive(Clone, Copy, Debug)]
pub struct Target<'a> {
    pub stack: &'a Stack,
    /// The stack that was last reached. While an image of the wanted one cannot be had, its workloads are kept
    /// as they were.
    pub fallback: Option<&'a Stack>,
    pub agent: &'a AgentId,
    pub policy: &'a Policy,
    /// Digests to create from instead of the manifest's reference: those of the revision that a rollback goes
    /// back to.
    pub images: &'a BTreeMap<String, String>,
    pub mask: &'a Mask,
}

/// The steps that are safe now, and what has to happen before the rest are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// In topological order: a step comes after all those it depends on.
    pub steps: Vec<Step>,
    pub waits: Vec<Wait>,
    /// What somebody changed. What a sync still has to bring about is not among it.
    pub drifts: Vec<Drift>,
    /// The earliest instant at which a wait could end by itself.
    pub look_again: Option<Timestamp>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Step {
    pub action: Action,
    pub cause: Cause,
    /// Indices of earlier steps that must succeed first.
    pub after: Vec<usize>,
}

/// One call to the Docker API.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Action {
    PullImage {
        image: String,
        /// Another than the engine's own.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        platform: Option<String>,
        /// Logins of the application, by content.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        secrets: Vec<ContentId>,
    },
    /// From the files of the commit, which whoever performs it has at hand.
    BuildImage {
        image: String,
        build: Box<Build>,
    },
    /// From this agent's own executable: see [`driftless_model::HELPER_IMAGE`].
    ImportImage {
        image: String,
    },
    CreateNetwork {
        name: String,
        network: Network,
    },
    RemoveNetwork {
        name: String,
        id: String,
    },
    CreateVolume {
        name: String,
        volume: Volume,
    },
    CreateInstance(Box<Creation>),
    /// Brings the files that are rewritten in place for one container to what they are to hold, by target. The
    /// engine has no part in it.
    WriteFiles {
        container: ContainerRef,
        instance: InstanceId,
        files: BTreeMap<String, InPlace>,
    },
    StartInstance {
        container: ContainerRef,
    },
    /// Its `post_start` commands, after a start.
    RunHooks {
        container: ContainerRef,
        instance: InstanceId,
    },
    /// To the container's first process.
    SignalInstance {
        container: ContainerRef,
        signal: String,
    },
    /// With the container's own signal; SIGKILL after `grace`, or after what it was created with.
    StopInstance {
        container: ContainerRef,
        grace: Option<Duration>,
    },
    /// Of a container that does not run. Its volumes stay.
    RemoveInstance {
        container: ContainerRef,
    },
    UnpauseInstance {
        container: ContainerRef,
    },
    RenameInstance {
        container: ContainerRef,
        to: String,
    },
    UpdateInstance {
        container: ContainerRef,
        settings: LiveSettings,
    },
    Connect {
        container: ContainerRef,
        network: String,
        attachment: Attachment,
    },
    Disconnect {
        container: ContainerRef,
        network: String,
    },
}

/// A container, by its id where one is known, or by the name it was just created with.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ContainerRef {
    /// The id, and the name for people.
    Id(ContainerId, String),
    Name(String),
}

/// All that is needed to create one instance.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Creation {
    pub app: AppName,
    pub agent: AgentId,
    pub format: Format,
    pub project: String,
    pub instance: InstanceId,
    pub name: String,
    pub container: Container,
    /// The image to create from, where it differs from the manifest's reference: the digest that a rollback
    /// goes back to.
    pub image: Option<String>,
    pub spec: SpecHash,
    /// Volumes without a name to take over from the predecessor, by target.
    pub inherit: BTreeMap<String, String>,
    /// The very containers that it shares something with.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub peers: BTreeMap<Peer, ContainerId>,
    /// Of which pod it is a part.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub part: Option<PartOf>,
    /// For Compose's labels: paths of the manifests, and `service:condition:restart` per dependency.
    pub manifests: Vec<String>,
    pub depends_on: Vec<String>,
}

/// Why a step is in the plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Cause {
    /// Git asks for it and it is not there.
    Missing,
    /// Its specification in Git is another.
    SpecChanged,
    /// Git asks for fewer.
    ScaledDown,
    /// Git does not ask for it any more.
    NotInGit,
    /// It was created and not yet started.
    NotStarted,
    /// We ended before we were done with its start.
    Interrupted,
    /// It ended by itself.
    Exited,
    /// It ended with code 0 before the engine started: it was done, or the engine's shutdown stopped it.
    EndedWithEngine,
    /// Its pod has done its work, or has failed for good.
    Over,
    /// A probe or health check failed for good.
    Unhealthy { reason: String },
    /// It keeps ending: held until its pause is over, or tried again after it.
    CrashLoop { attempt: u32 },
    /// Somebody changed it: the field, what was found and what is wanted.
    Drift { field: String, found: String, want: String },
    /// Somebody asked for a new rollout of the same.
    Restarted,
    /// Somebody asked for another in its place, at once.
    Deleted,
    /// The work that it is part of has come to its end.
    Finished { reason: String },
    /// Files that are rewritten in place, by where they are mounted, are others in Git.
    FilesChanged { files: Vec<String> },
    /// A dependency was replaced, and the manifest asks to follow it, or it shares something with it.
    DependencyReplaced { on: String },
    /// What it shares a namespace with was or is to be started anew, and has taken the namespace with it.
    DependencyRestarted { on: String },
}

/// Why a workload is not finished although nothing can be done for it now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Wait {
    Dependency {
        workload: WorkloadName,
        on: WorkloadName,
        reason: String,
    },
    /// Started, and not yet ready.
    Readiness {
        workload: WorkloadName,
        available: u32,
        wanted: u32,
        reason: String,
    },
    /// Ready, and not yet for long enough.
    MinReady {
        workload: WorkloadName,
        until: Timestamp,
    },
    ImagePullBackOff {
        workload: WorkloadName,
        image: String,
        attempt: u32,
        until: Timestamp,
        error: String,
    },
    /// The image could not be built, and what runs stays.
    BuildFailed {
        workload: WorkloadName,
        image: String,
        attempt: u32,
        until: Timestamp,
        error: String,
    },
    /// Other workloads' images are not here yet, so nothing that runs is stopped.
    Images {
        workload: WorkloadName,
        missing: Vec<String>,
    },
    CrashLoopBackOff {
        instance: InstanceId,
        attempt: u32,
        until: Timestamp,
        code: i64,
        error: String,
    },
    /// Failed, and by its manifest not to be started again.
    Failed {
        instance: InstanceId,
        code: i64,
    },
    HealBackOff {
        object: String,
        field: String,
        attempt: u32,
        until: Timestamp,
    },
    HealIneffective {
        object: String,
        field: String,
        difference: String,
    },
    /// Somebody else holds what we need, and we do not touch what is not ours.
    Blocked {
        object: String,
        by: String,
        what: String,
    },
    /// An external network or volume does not exist.
    ExternalMissing {
        kind: String,
        name: String,
    },
    /// A network or volume was created for another application. Unless the manifest declares it external, nothing
    /// is created that uses it.
    OfAnotherApplication {
        kind: String,
        name: String,
        owner: AppName,
        is_external: bool,
    },
    /// What the manifest asks for is newer than the engine, which would leave it out in silence.
    EngineTooOld {
        object: String,
        field: String,
        /// Versions of the engine's API, major and minor.
        needs: (u16, u16),
        speaks: (u16, u16),
    },
    /// A volume's specification changed. Volumes are never replaced.
    VolumeChanged {
        name: String,
        /// Field by field, masked.
        differences: Vec<String>,
    },
    ProgressDeadlineExceeded {
        workload: WorkloadName,
        since: Timestamp,
    },
    Paused {
        workload: WorkloadName,
    },
    /// Work that has ended without success, and is not tried again.
    JobFailed {
        workload: WorkloadName,
        reason: String,
    },
    /// By its manifest's word, what runs of it stays as it was.
    Held {
        workload: WorkloadName,
        reason: String,
    },
    /// Docker Compose started it, and nobody said that we may take it over.
    NotAdopted {
        app: AppName,
        project: String,
        workload: WorkloadName,
        containers: Vec<String>,
        /// What stands in the way even if somebody did.
        obstacle: Option<String>,
        policy: Adopt,
    },
    /// Docker Compose made it and it is not as in Git: it is used as it is.
    NotAsInGit {
        kind: String,
        name: String,
        fields: Vec<String>,
    },
    /// It writes files into itself that no volume keeps.
    WritesInside {
        container: String,
        /// The first of them.
        files: Vec<String>,
        more: usize,
        /// There are more than can be followed.
        is_cut: bool,
    },
    /// Git does not have most of what runs any more, and nobody confirmed that it goes.
    PruneHeld {
        app: AppName,
        workloads: Vec<WorkloadName>,
        /// Those and what Git has.
        all: usize,
        /// In percent of them.
        limit: u8,
    },
    /// It is the container that this agent runs in.
    Own {
        workload: Option<WorkloadName>,
        container: String,
        what: String,
    },
    Suspended,
    /// Differences stand, and self-heal is off.
    SelfHealOff {
        differences: usize,
    },
}

impl Plan {
    /// Nothing to do and nothing to wait for: reality is what Git says.
    pub fn is_settled(&self) -> bool {
        self.steps.is_empty() && self.waits.iter().all(Wait::is_remark)
    }
}

impl Wait {
    /// Something to know, but nothing that stands between us and what is wanted.
    pub fn is_remark(&self) -> bool {
        match self {
            Self::OfAnotherApplication { is_external, .. } => *is_external,
            Self::VolumeChanged { .. }
            | Self::NotAsInGit { .. }
            | Self::WritesInside { .. }
            | Self::Held { .. }
            | Self::Paused { .. } => true,
            Self::Dependency { .. }
            | Self::Readiness { .. }
            | Self::MinReady { .. }
            | Self::ImagePullBackOff { .. }
            | Self::BuildFailed { .. }
            | Self::Images { .. }
            | Self::CrashLoopBackOff { .. }
            | Self::Failed { .. }
            | Self::JobFailed { .. }
            | Self::HealBackOff { .. }
            | Self::HealIneffective { .. }
            | Self::Blocked { .. }
            | Self::ExternalMissing { .. }
            | Self::EngineTooOld { .. }
            | Self::ProgressDeadlineExceeded { .. }
            | Self::NotAdopted { .. }
            | Self::PruneHeld { .. }
            | Self::Own { .. }
            | Self::Suspended
            | Self::SelfHealOff { .. } => false,
        }
    }
}

impl ContainerRef {
    /// The container's name, for people and for keys.
    pub fn name(&self) -> &str {
        match self {
            Self::Id(_, name) | Self::Name(name) => name,
        }
    }

    /// What Docker's API takes.
    pub fn reference(&self) -> &str {
        match self {
            Self::Id(id, _) => id.as_str(),
            Self::Name(name) => name,
        }
    }
}

impl Action {
    /// The name of the object it acts on.
    pub fn object(&self) -> &str {
        match self {
            Self::PullImage { image, .. } | Self::BuildImage { image, .. } | Self::ImportImage { image } => {
                image
            }
            Self::CreateNetwork { name, .. }
            | Self::RemoveNetwork { name, .. }
            | Self::CreateVolume { name, .. } => name,
            Self::CreateInstance(creation) => &creation.name,
            Self::WriteFiles { container, .. }
            | Self::RunHooks { container, .. }
            | Self::SignalInstance { container, .. }
            | Self::StartInstance { container }
            | Self::StopInstance { container, .. }
            | Self::RemoveInstance { container }
            | Self::UnpauseInstance { container }
            | Self::RenameInstance { container, .. }
            | Self::UpdateInstance { container, .. }
            | Self::Connect { container, .. }
            | Self::Disconnect { container, .. } => container.name(),
        }
    }
}

/// The name of an instance's container in Docker.
///
/// Compose's own scheme for Compose; for Kubernetes the template's hash is part of it, as it is part of a pod's.
pub fn container_name(stack: &Stack, workload: &WorkloadName, slot: u32) -> String {
    named(stack, workload, slot, Workload::spec)
}

/// As [`container_name`], for whoever may know the hash already.
fn named(
    stack: &Stack,
    workload: &WorkloadName,
    slot: u32,
    spec: impl FnOnce(&Workload) -> SpecHash,
) -> String {
    let wanted = stack.workloads.get(workload);
    if let Some(fixed) = wanted.and_then(|it| it.container_name.as_ref()) {
        return fixed.clone();
    }
    let project = &stack.project;
    match (stack.format, wanted) {
        (Format::Kubernetes, Some(wanted)) => {
            format!("{project}-{workload}-{}-{slot}", spec(wanted).short())
        }
        (Format::Kubernetes | Format::Compose, _) => format!("{project}-{workload}-{slot}"),
    }
}
