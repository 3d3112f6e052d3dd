//! Workloads: named sets of equal replicas, and how their instances are replaced.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use serde::{Deserialize, Serialize};

use super::{
    Build, CanaryStep, Completion, Container, ContentId, Cron, FailureRule, Healthcheck, HookPhase,
    IgnoredField, ImageRef, ImageUpdate, InPlace, Job, Location, Member, NAMESPACE_FILE, NetworkMode, Part,
    Peer, Probe, Probes, PullPolicy, Role, SpecHash, Update, WorkloadName, is_helper_image,
};
use crate::defaults::is_default;

impl Workload {
    /// One instance, replaced start first, whose container runs on and is checked by no probe of the agent.
    pub fn new(origin: Location, container: Container) -> Self {
        Self {
            origin,
            replicas: 1,
            container,
            parts: Vec::new(),
            container_name: None,
            strategy: Strategy::RollingUpdate { max_surge: 1, max_unavailable: 0 },
            min_ready: Duration::ZERO,
            progress_deadline: DEFAULT_PROGRESS_DEADLINE,
            revision_history_limit: DEFAULT_REVISION_HISTORY,
            paused: false,
            after: Vec::new(),
            probes: Probes::default(),
            pull: PullPolicy::IfNotPresent,
            mounted_pulls: BTreeMap::new(),
            pull_secrets: BTreeSet::new(),
            in_place: BTreeMap::new(),
            build: None,
            secret_env: BTreeSet::new(),
            completion: Completion::Never,
            kind: WorkloadKind::Replicas,
            update: Update::Rolling,
            manifest: ManifestNames::default(),
            architecture: None,
            wave: 0,
            failure: FailureRule::default(),
            rollback: None,
            image_update: None,
            ignore_differences: BTreeSet::new(),
            canary: Vec::new(),
            scaled_from: None,
        }
    }

    /// The place of a pod in its StatefulSet.
    pub fn member(&self) -> Option<&Member> {
        match &self.kind {
            WorkloadKind::StatefulSetPod(member) => Some(member),
            WorkloadKind::Replicas
            | WorkloadKind::Job(_)
            | WorkloadKind::CronJob { .. }
            | WorkloadKind::Hook { .. } => None,
        }
    }

    /// The settings of a Job. A CronJob or hook is none.
    pub fn job(&self) -> Option<&Job> {
        match &self.kind {
            WorkloadKind::Job(job) => Some(job),
            WorkloadKind::Replicas
            | WorkloadKind::StatefulSetPod(_)
            | WorkloadKind::CronJob { .. }
            | WorkloadKind::Hook { .. } => None,
        }
    }

    /// The settings of a Job, or those that a CronJob or hook gives its Jobs.
    pub fn job_or_template(&self) -> Option<&Job> {
        match &self.kind {
            WorkloadKind::Job(job)
            | WorkloadKind::CronJob { template: job, .. }
            | WorkloadKind::Hook { template: job, .. } => Some(job),
            WorkloadKind::Replicas | WorkloadKind::StatefulSetPod(_) => None,
        }
    }

    /// The schedule of a CronJob.
    pub fn schedule(&self) -> Option<&Cron> {
        match &self.kind {
            WorkloadKind::CronJob { schedule, .. } => Some(schedule),
            WorkloadKind::Replicas
            | WorkloadKind::StatefulSetPod(_)
            | WorkloadKind::Job(_)
            | WorkloadKind::Hook { .. } => None,
        }
    }

    /// The phase of a hook, if the workload is the template of one.
    pub fn hook(&self) -> Option<HookPhase> {
        match &self.kind {
            WorkloadKind::Hook { phase, .. } => Some(*phase),
            WorkloadKind::Replicas
            | WorkloadKind::StatefulSetPod(_)
            | WorkloadKind::Job(_)
            | WorkloadKind::CronJob { .. } => None,
        }
    }

    /// Whether it is a CronJob or hook: nothing runs of it but its runs, which are workloads of their own.
    pub fn is_template(&self) -> bool {
        matches!(self.kind, WorkloadKind::CronJob { .. } | WorkloadKind::Hook { .. })
    }

    /// Whether it is a run that the agent made from the template of a CronJob or hook.
    pub fn is_run(&self) -> bool {
        self.job().is_some_and(Job::is_run)
    }

    /// Whether it is a run that the agent made from the template of a CronJob.
    pub fn is_run_of_cron(&self) -> bool {
        self.job().is_some_and(|job| job.cron.is_some())
    }

    /// When an image is pulled that it mounts.
    pub fn mounted_pull(&self, image: &str) -> PullPolicy {
        self.mounted_pulls.get(image).copied().unwrap_or(PullPolicy::IfNotPresent)
    }

    /// The progress deadline that the manifest names. `None`: the default. A cluster writes the default into each Deployment,
    /// so one in the manifest is no deadline of its own either.
    pub fn own_progress_deadline(&self) -> Option<Duration> {
        // The default of a Compose service grows with its `monitor`.
        let default = DEFAULT_PROGRESS_DEADLINE.max(self.min_ready.saturating_mul(2));
        let own = self.progress_deadline;
        (own != DEFAULT_PROGRESS_DEADLINE && own != default).then_some(own)
    }

    /// The time that its startup probes, or health checks with a `start_period`, give an instance to start.
    pub fn startup_time(&self) -> Duration {
        let of = |probes: &Probes, container: &Container| {
            let probe = probes.startup.as_ref().map(Probe::longest_time).unwrap_or_default();
            probe.max(container.healthcheck.as_ref().map(Healthcheck::startup_time).unwrap_or_default())
        };
        let (mut first, mut apps) = (Duration::ZERO, of(&self.probes, &self.container));
        for part in &self.parts {
            let time = of(&part.probes, &part.container);
            match part.role {
                // Each one waits for the one before it.
                Role::Init | Role::Sidecar => first = first.saturating_add(time),
                Role::App => apps = apps.max(time),
            }
        }
        first.saturating_add(apps)
    }

    /// The images whose files its containers mount.
    pub fn mounted_images(&self) -> impl Iterator<Item = &String> {
        self.containers().flat_map(Container::mounted_images)
    }
}

/// The most replicas of one workload. A bridge of the kernel has room for 1023 containers, and every round visits each one.
pub const MOST_REPLICAS: u32 = 1000;

/// The progress deadline of a workload whose manifest names none: that of a Deployment.
pub const DEFAULT_PROGRESS_DEADLINE: Duration = Duration::from_mins(10);

/// Number of old revisions of a workload whose manifest names none: that of a Deployment.
pub const DEFAULT_REVISION_HISTORY: u32 = 10;

/// A named set of equal replicas.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Workload {
    /// The place of its definition in the manifest.
    pub origin: Location,
    pub replicas: u32,
    /// The only container of an instance, or the first one, with which the parts share namespaces and volumes.
    pub container: Container,
    /// The further containers of an instance: init containers and sidecars in the order of their start, then the others.
    #[serde(default, skip_serializing_if = "is_default")]
    pub parts: Vec<Part>,
    /// A fixed name of its single container (`container_name`). It allows one instance at a time.
    #[serde(default, skip_serializing_if = "is_default")]
    pub container_name: Option<String>,
    pub strategy: Strategy,
    /// An instance counts as available after it has been ready for this long.
    #[serde(default, skip_serializing_if = "is_default")]
    pub min_ready: Duration,
    /// Without progress for this long, the rollout is `ProgressDeadlineExceeded`.
    pub progress_deadline: Duration,
    /// Number of old revisions of the workload that are kept.
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
    /// When images are pulled that it mounts. An image that is not listed is pulled if it is not there.
    #[serde(default, skip_serializing_if = "is_default")]
    pub mounted_pulls: BTreeMap<String, PullPolicy>,
    /// Logins for registries, in files as `docker login` writes them, by content. Kept like mounted secrets.
    #[serde(default, skip_serializing_if = "is_default")]
    pub pull_secrets: BTreeSet<ContentId>,
    /// Files that are rewritten in place, by mount target. A change of them replaces no instance.
    #[serde(default, skip_serializing_if = "is_default")]
    pub in_place: BTreeMap<String, InPlace>,
    /// The build of its image, if it is not pulled. The name of the image then contains the digest of the build.
    #[serde(default, skip_serializing_if = "is_default")]
    pub build: Option<Build>,
    /// Names of variables with a value from a Secret. The values are always masked.
    #[serde(default, skip_serializing_if = "is_default")]
    pub secret_env: BTreeSet<String>,
    /// Whether a container that exits with code 0 has completed (`restart: no` or `on-failure`) or is started again.
    pub completion: Completion,
    #[serde(flatten)]
    pub kind: WorkloadKind,
    #[serde(default, skip_serializing_if = "is_default")]
    pub update: Update,
    /// Facts of the manifest that change no container.
    #[serde(skip)]
    pub manifest: ManifestNames,
    /// The architecture that the engine must have, in the words of Go (`amd64`). It does not change a container.
    #[serde(default, skip_serializing_if = "is_default")]
    pub architecture: Option<String>,
    /// The sync wave: a commit changes it once everything of lower waves is applied and available. Default: 0.
    #[serde(default, skip_serializing_if = "is_default")]
    pub wave: i32,
    /// The failures that an update tolerates, and what follows if there are more.
    #[serde(default, skip_serializing_if = "is_default")]
    pub failure: FailureRule,
    /// The settings with which the application goes back to this definition. `None`: those of an update.
    #[serde(default, skip_serializing_if = "is_default")]
    pub rollback: Option<Box<RollbackSettings>>,
    /// The setting for newer images of a registry. Default: that of the policy of the application.
    #[serde(default, skip_serializing_if = "is_default")]
    pub image_update: Option<ImageUpdate>,
    /// Fields of its live containers whose differences are reported and left.
    #[serde(default, skip_serializing_if = "is_default")]
    pub ignore_differences: BTreeSet<IgnoredField>,
    /// The steps in which an update of it is tried. Empty: it is updated at once.
    #[serde(default, skip_serializing_if = "is_default")]
    pub canary: Vec<CanaryStep>,
    /// The number of replicas in Git, while a user has set another one for a time.
    #[serde(skip)]
    pub scaled_from: Option<u32>,
}

/// A workload together with its name in the stack.
#[derive(Clone, Copy, Debug)]
pub struct Subject<'a> {
    pub name: &'a WorkloadName,
    pub workload: &'a Workload,
}

/// Facts of a Kubernetes manifest that change no container. They are not stored and change no hash, so any two are equal.
#[derive(Clone, Debug, Default)]
pub struct ManifestNames {
    /// The name of a pod's only container.
    pub container: Option<String>,
    /// The labels by which the controller selects its pods (`matchLabels`).
    pub selector: BTreeMap<String, String>,
    /// The hash of a Job's template, with references in place of the contents that they refer to.
    pub job_template: Option<SpecHash>,
}

impl PartialEq for ManifestNames {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for ManifestNames {}

/// The kind of a workload, with the settings that only this kind has.
///
/// In JSON these are the optional fields `member`, `job`, `cron` and `hook` of the workload, as in stored stacks and in the hash of a
/// stack since the first release.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "KindFields", try_from = "KindFields")]
pub enum WorkloadKind {
    /// Replicas without an order: a Compose service, a Deployment, a DaemonSet, a Pod.
    #[default]
    Replicas,
    /// One pod of a StatefulSet.
    StatefulSetPod(Member),
    /// One part of a Job.
    Job(Job),
    /// A CronJob. It has no instances. Its Jobs are made from the workload and `template`.
    CronJob { schedule: Cron, template: Job },
    /// A hook. It has no instances. Its Jobs are made from the workload and `template`.
    Hook { phase: HookPhase, template: Job },
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct KindFields {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    member: Option<Member>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    job: Option<Job>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    cron: Option<Cron>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    hook: Option<HookPhase>,
}

impl From<WorkloadKind> for KindFields {
    fn from(kind: WorkloadKind) -> Self {
        let none = Self { member: None, job: None, cron: None, hook: None };
        match kind {
            WorkloadKind::Replicas => none,
            WorkloadKind::StatefulSetPod(member) => Self { member: Some(member), ..none },
            WorkloadKind::Job(job) => Self { job: Some(job), ..none },
            WorkloadKind::CronJob { schedule, template } => {
                Self { job: Some(template), cron: Some(schedule), ..none }
            }
            WorkloadKind::Hook { phase, template } => Self { job: Some(template), hook: Some(phase), ..none },
        }
    }
}

impl TryFrom<KindFields> for WorkloadKind {
    type Error = &'static str;

    fn try_from(fields: KindFields) -> Result<Self, Self::Error> {
        let KindFields { member, job, cron, hook } = fields;
        match (member, job, cron, hook) {
            (None, None, None, None) => Ok(Self::Replicas),
            (Some(member), None, None, None) => Ok(Self::StatefulSetPod(member)),
            (None, Some(job), None, None) => Ok(Self::Job(job)),
            (None, Some(template), Some(schedule), None) => Ok(Self::CronJob { schedule, template }),
            (None, Some(template), None, Some(phase)) => Ok(Self::Hook { phase, template }),
            (None, Some(_), Some(_), Some(_)) => Err("a workload has either `cron` or `hook`"),
            (None, None, Some(_), _) => Err("a workload with `cron` needs the template `job`"),
            (None, None, None, Some(_)) => Err("a workload with `hook` needs the template `job`"),
            (Some(_), ..) => Err("a workload with `member` has neither `job` nor `cron` nor `hook`"),
        }
    }
}

/// The strategy for replacing outdated instances.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Strategy {
    /// At most `max_surge` instances more than wanted, at most `max_unavailable` fewer available. Both are
    /// resolved numbers; one of them is at least 1.
    #[serde(rename_all = "camelCase")]
    RollingUpdate { max_surge: u32, max_unavailable: u32 },
    /// All outdated instances are removed before a new one starts.
    Recreate,
}

/// The settings with which instances are replaced while the application goes back to an older revision.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RollbackSettings {
    pub strategy: Strategy,
    #[serde(default, skip_serializing_if = "is_default")]
    pub min_ready: Duration,
    #[serde(default, skip_serializing_if = "is_default")]
    pub failure: FailureRule,
}

/// One edge of `depends_on`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Dependency {
    pub workload: WorkloadName,
    pub condition: Condition,
    /// False: the dependent workload starts even if this one fails or is missing.
    pub required: bool,
    /// Replace this workload's instances too when an instance of the dependency is replaced.
    #[serde(default, skip_serializing_if = "is_default")]
    pub restart: bool,
}

impl Dependency {
    /// The dependency of a proxy's worker on the container that holds its network.
    pub fn of_worker(proxy: &str) -> Self {
        let workload = WorkloadName(proxy.to_owned());
        Self { workload, condition: Condition::Started, required: true, restart: true }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Condition {
    Started,
    Healthy,
    CompletedSuccessfully,
}

impl Workload {
    /// The hash of all that would require replacing an instance, if changed.
    pub fn spec(&self) -> SpecHash {
        if self.parts.is_empty() {
            return self.container.spec();
        }
        let parts: Vec<_> =
            self.parts.iter().map(|it| (&it.name, it.role, &it.container, &it.volumes)).collect();
        SpecHash::of(&(&self.container, parts))
    }

    /// The hash of what its containers do: without their networks, their names there, and their ports.
    pub fn work(&self) -> SpecHash {
        self.work_without(|container| {
            container.ports.clear();
            container.expose.clear();
        })
    }

    /// As [`Workload::work`], with the ports that are not published. Older agents recorded it.
    pub fn work_with_exposed_ports(&self) -> SpecHash {
        self.work_without(|container| container.ports.clear())
    }

    /// As [`Workload::work`], without the file of its namespace. Older agents mounted none.
    pub fn work_without_namespace_file(&self) -> SpecHash {
        self.work_without(|container| {
            container.ports.clear();
            container.expose.clear();
            container.mounts.retain(|mount| mount.target != NAMESPACE_FILE);
        })
    }

    fn work_without(&self, clear: impl Fn(&mut Container)) -> SpecHash {
        let mut apart = self.clone();
        for container in apart.containers_mut() {
            clear(container);
            if let NetworkMode::Networks(networks) = &mut container.network_mode {
                networks.clear();
            }
        }
        apart.spec()
    }

    /// Whether instances of both are the same. Cheaper than comparing [`Workload::spec`].
    pub fn is_like(&self, other: &Self) -> bool {
        self.container == other.container
            && self.parts.len() == other.parts.len()
            && self.parts.iter().zip(&other.parts).all(|(a, b)| a.is_like(b))
    }

    /// Whether the files that are rewritten in place have the same contents. [`Workload::is_like`] and [`Workload::spec`] leave them out,
    /// as a change of them replaces no instance.
    pub fn has_same_files(&self, other: &Self) -> bool {
        let mut both = self.in_place.iter().zip(&other.in_place);
        self.in_place.len() == other.in_place.len()
            && both.all(|(own, its)| own.0 == its.0 && own.1.content == its.1.content)
    }

    /// Follows `rollback_config` instead of `update_config`, if there is one, and has no canary: it goes back at once.
    pub(crate) fn use_rollback_settings(&mut self) {
        self.canary.clear();
        let Some(RollbackSettings { strategy, min_ready, failure }) = self.rollback.as_deref().cloned()
        else {
            return;
        };
        self.progress_deadline = self.progress_deadline.max(min_ready.saturating_mul(2));
        (self.strategy, self.min_ready, self.failure) = (strategy, min_ready, failure);
    }

    /// All containers of an instance.
    pub fn containers(&self) -> impl Iterator<Item = &Container> {
        std::iter::once(&self.container).chain(self.parts.iter().map(|it| &it.container))
    }

    /// The images of its containers that a tag of a registry names, so that they may get newer. Images that are built or made here have
    /// none, and one with a digest never changes.
    pub fn registry_images(&self) -> impl Iterator<Item = &String> {
        let is_own = self.build.is_none() && self.pull != PullPolicy::Never;
        let parts = self.parts.iter().filter(|part| part.pull != PullPolicy::Never);
        let all = is_own.then_some(&self.container.image).into_iter();
        let all = all.chain(parts.map(|part| &part.container.image));
        all.filter(|image| !is_helper_image(image) && ImageRef::split(image).digest.is_none())
    }

    /// All containers of an instance, to change them.
    pub fn containers_mut(&mut self) -> impl Iterator<Item = &mut Container> {
        std::iter::once(&mut self.container).chain(self.parts.iter_mut().map(|it| &mut it.container))
    }

    /// The same under another name: the parts of its pods share the namespaces of a workload of that name.
    #[must_use]
    pub fn renamed(&self, from: &WorkloadName, to: &WorkloadName) -> Self {
        let mut renamed = self.clone();
        for peer in renamed.containers_mut().flat_map(Container::peers_mut) {
            if matches!(peer, Peer::Workload(name) if name == from) {
                *peer = Peer::Workload(to.clone());
            }
        }
        renamed
    }

    /// Whether a container that failed in a pod of several is started again in this pod: the pod is one of a Job with
    /// `restartPolicy: OnFailure`. The others of the pod go on, and completed ones stay completed.
    pub fn retries_parts(&self) -> bool {
        !self.parts.is_empty() && self.job().is_some_and(|job| !job.fresh)
    }

    pub fn part(&self, name: &str) -> Option<&Part> {
        self.parts.iter().find(|it| it.name == name)
    }

    /// One part as a workload of its own, for code that handles single containers.
    #[must_use]
    pub fn of_part(&self, part: &Part) -> Self {
        Self {
            container: part.container.clone(),
            parts: Vec::new(),
            probes: part.probes.clone(),
            pull: part.pull,
            completion: part.completion,
            build: None,
            in_place: BTreeMap::new(),
            container_name: None,
            after: Vec::new(),
            ..self.clone()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Workloads as releases before the kind was an enum stored them.
    fn stored(own: &str) -> String {
        let text = r#"{"origin":{"file":"a.yaml","line":1,"column":1},"replicas":1,"container":{"image":"a"},
            "strategy":"recreate","progressDeadline":{"secs":600,"nanos":0},"pull":"never","completion":"onSuccess"OWN}"#;
        text.replace("OWN", own).split_whitespace().collect()
    }

    const MEMBER: &str = r#","member":{"of":"db","ordinal":2,"maxUnavailable":1}"#;
    const JOB: &str = r#","job":{"of":"import","completions":1,"parallelism":1,"backoffLimit":6}"#;
    const CRON: &str =
        r#","cron":{"schedule":"@daily","concurrency":"Allow","keepSuccessful":3,"keepFailed":1}"#;

    #[test]
    fn stored_workloads_are_read_and_written_unchanged() {
        let kind = |own: &str| {
            let workload: Workload = serde_json::from_str(&stored(own)).unwrap();
            assert_eq!(serde_json::to_string(&workload).unwrap(), stored(own));
            workload.kind
        };
        assert_eq!(kind(""), WorkloadKind::Replicas);
        assert!(matches!(
            kind(&format!(r#"{MEMBER},"update":"onDelete""#)),
            WorkloadKind::StatefulSetPod(Member { ordinal: 2, .. })
        ));
        assert!(matches!(kind(JOB), WorkloadKind::Job(Job { backoff_limit: 6, .. })));
        let cron = kind(&format!("{JOB}{CRON}"));
        assert!(matches!(cron, WorkloadKind::CronJob { template: Job { backoff_limit: 6, .. }, .. }));
    }

    #[test]
    fn workload_of_two_kinds_is_refused() {
        for own in [CRON.to_owned(), format!("{MEMBER}{JOB}"), format!("{MEMBER}{JOB}{CRON}")] {
            assert!(serde_json::from_str::<Workload>(&stored(&own)).is_err(), "{own}");
        }
    }
}
