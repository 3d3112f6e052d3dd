//! Workloads: named sets of equal replicas, and how their instances are replaced.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use serde::{Deserialize, Serialize};

use super::{
    Build, Completion, Container, ContentId, Cron, InPlace, Job, Location, Member, MountSource, Part, Probes,
    PullPolicy, SpecHash, Update, WorkloadName,
};
use crate::defaults::is_default;

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

    /// Whether their instances are the same, which is what [`Workload::spec`] tells, for less.
    pub fn is_like(&self, other: &Self) -> bool {
        self.container == other.container
            && self.parts.len() == other.parts.len()
            && self.parts.iter().zip(&other.parts).all(|(a, b)| a.is_like(b))
    }

    /// All containers of an instance.
    pub fn containers(&self) -> impl Iterator<Item = &Container> {
        std::iter::once(&self.container).chain(self.parts.iter().map(|it| &it.container))
    }

    pub fn part(&self, name: &str) -> Option<&Part> {
        self.parts.iter().find(|it| it.name == name)
    }

    /// One part as if it were a workload of its own, for whoever looks after single containers.
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
