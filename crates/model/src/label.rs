//! The labels by which we know our own objects, and those by which Docker Compose knows them.
//!
//! Nothing is ever changed or removed that does not carry [`AGENT`] with our own id, unless it was taken over: then
//! the [`Record`](super::Record) says so.

/// The agent that owns the object. See [`crate::AgentId`].
pub const AGENT: &str = "driftless.agent";
/// The application it belongs to.
pub const APPLICATION: &str = "driftless.application";
/// The workload of the instance.
pub const WORKLOAD: &str = "driftless.workload";
/// The slot of the instance, a number counting from 1.
pub const SLOT: &str = "driftless.slot";
/// The hash of the fully lowered container, network or volume. This alone decides what is outdated.
pub const SPEC: &str = "driftless.spec";
/// On a part of a pod: the id of the pod's first container.
pub const POD: &str = "driftless.pod";
/// The name of the container in its pod.
pub const PART: &str = "driftless.container";
/// The role of the container in its pod: `init`, `sidecar` or `app`.
pub const ROLE: &str = "driftless.role";
/// Settings that the engine does not report, as JSON (see [`super::UnreportedSettings`]).
pub const ASKED: &str = "driftless.asked";

/// On a container, by its manifest: paths inside it that may change. An annotation in Kubernetes.
pub const IGNORE_FILES: &str = "driftless.ignore-files";

/// On a container, network or volume, by its manifest: `false` keeps it when Git does not contain it any more. An
/// annotation of the pod, claim or claim template in Kubernetes.
pub const PRUNE: &str = "driftless.prune";

/// Whether a label says what an object is to the agent, so that no manifest may give it. With one of them an object could pass for that of
/// another application.
pub fn is_reserved(name: &str) -> bool {
    name.starts_with("driftless.") && !matches!(name, PRUNE | IGNORE_FILES)
}

/// The beginning of the labels that have the annotations of a pod, so that a changed annotation replaces the instances, as in
/// Kubernetes.
pub const ANNOTATION: &str = "annotation.";

/// Whether the labels of an object keep it when Git does not contain it any more. `value` finds the value of a label.
pub fn is_prune_protected<'a>(value: impl Fn(&str) -> Option<&'a str>) -> bool {
    let annotation = format!("{ANNOTATION}{PRUNE}");
    [PRUNE, &annotation].into_iter().any(|name| value(name) == Some("false"))
}

/// On the container of a hook, and on its service in a Swarm: its phase, such as `PreSync`.
pub const HOOK: &str = "driftless.hook";

/// On the service of a Job in a Swarm: the hash that identifies the Job. Another one is run again.
pub const JOB: &str = "driftless.job";

/// On the containers of a run, and on its service in a Swarm: its CronJob.
pub const CRON: &str = "driftless.cron";

/// On an adopted config or secret of a Swarm: the names that the agent gives to its content, with commas. They are several if it
/// is mounted at several paths.
pub const FILES: &str = "driftless.files";

/// On the containers of a Job of Kubernetes: the name of the Job, under the label's present name and its former one.
pub const JOB_NAMES: [&str; 2] = ["batch.kubernetes.io/job-name", "job-name"];

/// On an image that we built: the digest of what it was made from. No sign of ownership, for every container made
/// from the image inherits it.
pub const BUILD: &str = "driftless.build";

/// On an image that we built: the application that it was built for.
pub const BUILT_BY: &str = "driftless.built-by";

/// On an image that we built for an application that shares nothing with others: no other one uses the image under a name that
/// could be that of an image of a registry. The value is the Compose project, with which its further names begin; images of earlier
/// agents have another value.
pub const NOT_SHARED: &str = "driftless.not-shared";

/// Whether an image was built for another application, which does not share it. `value` finds the value of a label.
pub fn is_built_for_another_alone<'a>(app: &str, value: impl Fn(&str) -> Option<&'a str>) -> bool {
    value(NOT_SHARED).is_some() && value(BUILT_BY) != Some(app)
}

/// On the helper image that the agent imported: its name.
pub const HELPER: &str = "driftless.helper";

/// On a volume without a name that is empty at first and removed with its container: the agent that has made it.
pub const EMPTY: &str = "driftless.empty";

/// On a container that is never started and prepares a volume of another one: the id of that one.
pub const STAND_IN: &str = "driftless.volume-setup";

/// On a container that is never started and shows whether the engine accepts a definition: the agent that tries it.
pub const TRIAL: &str = "driftless.trial";

/// On the helper container that ends processes of another container: the id of that one.
pub const STRAY_PROCESSES: &str = "driftless.stray-processes";

/// On the helper container that replaces the agent's own container: the id of the new one.
pub const UPDATE: &str = "driftless.update";

/// On the mount of a volume: the group that its folder is to belong to.
pub const GROUP: &str = "driftless.group";

/// The prefix of labels that Docker Desktop adds to each container.
pub const DOCKER_DESKTOP: &str = "desktop.docker.io/";

/// Labels of Docker Compose, so that `docker compose ls`, `ps`, `logs` and `down` work on what we run.
pub mod compose {
    pub const PROJECT: &str = "com.docker.compose.project";
    pub const SERVICE: &str = "com.docker.compose.service";
    pub const CONTAINER_NUMBER: &str = "com.docker.compose.container-number";
    pub const ONEOFF: &str = "com.docker.compose.oneoff";
    pub const CONFIG_HASH: &str = "com.docker.compose.config-hash";
    pub const CONFIG_FILES: &str = "com.docker.compose.project.config_files";
    pub const WORKING_DIR: &str = "com.docker.compose.project.working_dir";
    pub const DEPENDS_ON: &str = "com.docker.compose.depends_on";
    /// The id of the image a container was made from.
    pub const IMAGE: &str = "com.docker.compose.image";
    pub const VERSION: &str = "com.docker.compose.version";
    pub const NETWORK: &str = "com.docker.compose.network";
    pub const VOLUME: &str = "com.docker.compose.volume";
    /// The prefix of all of them.
    pub const PREFIX: &str = "com.docker.compose.";
}
