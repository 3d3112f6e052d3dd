//! Waits: why something is not done in this round, and when it is tried again.
//!
//! A new reason takes one row in [`WaitReason`] (`crates/model/src/wait_reason.rs`), which says how serious it is, and one
//! constructor of [`Wait`], which holds its sentence. Those about data are in `data_waits.rs`. Sentences that only a Swarm
//! has stand in `swarm`, where they are decided.

use std::{collections::BTreeSet, fmt, time::Duration};

use driftless_model::{
    Adopt, AgentId, AppName, Claims, FailedCommit, FailedOwnUpdate, FailureRule, HookPhase, IgnoredField,
    InstanceId, LimitKind, Platform, ScaleOverride, Timestamp, UnknownEnd, WaitStatus, WorkloadName, label,
};
pub use driftless_model::{WaitReason, WaitSeverity};

use crate::facts::canary::CurrentStep;
use crate::text::{cpus, ended, is_variable, one_line};

/// Something that is not done in this round.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wait {
    pub object: WaitObject,
    pub reason: WaitReason,
    /// The workload of the same application that must come first. Only with [`WaitReason::Dependency`] and
    /// [`WaitReason::SyncWave`].
    pub on: Option<WorkloadName>,
    /// Number of failures so far, if the reason is a pause after failures.
    pub attempt: Option<u32>,
    /// When it may end by itself. `None` if something else has to happen first.
    pub until: Option<Timestamp>,
    /// The sentence that follows the name of the object.
    sentence: String,
}

/// The object that a wait is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WaitObject {
    Application,
    Workload(WorkloadName),
    Instance(InstanceId),
    /// A container by its name in Docker, and the workload that it belongs to.
    Container {
        name: String,
        workload: Option<WorkloadName>,
    },
    /// A network, a volume or a container that no workload owns.
    Other {
        kind: &'static str,
        name: String,
    },
}

impl Wait {
    pub(crate) fn new(object: WaitObject, reason: WaitReason, sentence: impl Into<String>) -> Self {
        Self { object, reason, on: None, attempt: None, until: None, sentence: sentence.into() }
    }

    pub(crate) fn workload(name: &WorkloadName, reason: WaitReason, sentence: impl Into<String>) -> Self {
        Self::new(WaitObject::Workload(name.clone()), reason, sentence)
    }

    pub(crate) fn application(reason: WaitReason, sentence: impl Into<String>) -> Self {
        Self::new(WaitObject::Application, reason, sentence)
    }

    fn retry(self, attempt: u32, until: Timestamp) -> Self {
        Self { attempt: Some(attempt), until: Some(until), ..self }
    }

    /// `why` says what the dependency lacks, and may be empty.
    pub fn dependency(workload: &WorkloadName, on: &WorkloadName, why: &str) -> Self {
        let wait = Self::workload(workload, WaitReason::Dependency, format!("waits for {on}{}", colon(why)));
        Self { on: Some(on.clone()), ..wait }
    }

    pub fn readiness(workload: &WorkloadName, available: u32, wanted: u32, why: &str) -> Self {
        let sentence = format!("has {available} of {wanted} available{}", colon(why));
        Self::workload(workload, WaitReason::Readiness, sentence)
    }

    /// The same while older instances are left, of which `kept` are available.
    pub(crate) fn update(
        workload: &WorkloadName,
        available: u32,
        wanted: u32,
        outdated: usize,
        kept: usize,
        why: &str,
    ) -> Self {
        let sentence = match (available >= wanted, outdated, kept) {
            (true, 1, _) => "waits for 1 old instance to stop".to_owned(),
            (true, _, _) => format!("waits for {outdated} old instances to stop"),
            (false, _, 0) => return Self::readiness(workload, available, wanted, why),
            (false, _, 1) => {
                format!("has {available} of {wanted} new instances available (1 old one is available)")
            }
            (false, _, _) => {
                format!("has {available} of {wanted} new instances available ({kept} old ones are available)")
            }
        };
        Self::workload(workload, WaitReason::Readiness, format!("{sentence}{}", colon(why)))
    }

    pub(crate) fn completion(workload: &WorkloadName) -> Self {
        let sentence = "has not completed yet, and another workload waits for that";
        Self::workload(workload, WaitReason::Readiness, sentence)
    }

    pub(crate) fn min_ready(workload: &WorkloadName, until: Timestamp) -> Self {
        let sentence = format!("is ready and counts as available from {}", until.time_of_day());
        Self { until: Some(until), ..Self::workload(workload, WaitReason::MinReady, sentence) }
    }

    pub fn image_pull_back_off(
        workload: &WorkloadName,
        image: &str,
        error: &str,
        attempt: u32,
        until: Timestamp,
    ) -> Self {
        let sentence = format!("cannot pull {}", image_error(image, error));
        Self::workload(workload, WaitReason::ImagePullBackOff, sentence).retry(attempt, until)
    }

    /// The same if the host has an image of this name that was built for the application `owner` alone.
    pub(crate) fn image_not_shared(self, owner: &str) -> Self {
        let sentence = format!(
            "{}; the image of this name on the host was built for the application `{owner}`, which shares nothing \
             (`otherApplications`)",
            self.sentence
        );
        Self { sentence, ..self }
    }

    pub(crate) fn image_not_verified(
        workload: &WorkloadName,
        image: &str,
        error: &str,
        attempt: u32,
        until: Timestamp,
    ) -> Self {
        let sentence = format!("does not start {}", image_error(image, error));
        Self::workload(workload, WaitReason::ImageNotVerified, sentence).retry(attempt, until)
    }

    pub(crate) fn build_failed(
        workload: &WorkloadName,
        image: &str,
        error: &str,
        attempt: u32,
        until: Timestamp,
    ) -> Self {
        let sentence = format!("cannot build {}", image_error(image, error));
        Self::workload(workload, WaitReason::BuildFailed, sentence).retry(attempt, until)
    }

    /// `missing` are the workloads with images that are not on the host.
    pub(crate) fn images(workload: &WorkloadName, missing: &[String]) -> Self {
        let sentence = format!("waits for the images of {}", missing.join(", "));
        Self::workload(workload, WaitReason::Images, sentence)
    }

    pub(crate) fn crash_loop_back_off(
        instance: &InstanceId,
        code: i64,
        why: &str,
        attempt: u32,
        until: Timestamp,
    ) -> Self {
        let object = WaitObject::Instance(instance.clone());
        let sentence = format!("{}{}", ended(code), colon(why));
        Self::new(object, WaitReason::CrashLoopBackOff, sentence).retry(attempt, until)
    }

    pub(crate) fn failed(instance: &InstanceId, code: i64, why: &str) -> Self {
        let sentence = format!("failed with code {code} and is not started again{}", colon(why));
        Self::new(WaitObject::Instance(instance.clone()), WaitReason::Failed, sentence)
    }

    pub(crate) fn heal_back_off(object: WaitObject, field: &str, attempt: u32, until: Timestamp) -> Self {
        let sentence = format!("keeps being changed ({field})");
        Self::new(object, WaitReason::HealBackOff, sentence).retry(attempt, until)
    }

    pub(crate) fn heal_ineffective(object: WaitObject, field: &str, difference: &str) -> Self {
        let shown = if is_variable(field) { "" } else { difference };
        let sentence = format!("stays different after {field} was corrected{}", colon(shown));
        Self::new(object, WaitReason::HealIneffective, sentence)
    }

    /// The container `by` holds `what`. `owner` is its application, if it has one, and `project` the Compose project that could be adopted
    /// instead of that of this application.
    pub fn blocked(
        object: WaitObject,
        what: &str,
        by: &str,
        owner: Option<&AppName>,
        project: Option<&str>,
    ) -> Self {
        let sentence = match (owner, project) {
            (Some(owner), _) => format!(
                "needs {what}, which {by} of the application `{owner}` holds: change one of the two in Git, or remove the \
                 container if `{owner}` was forgotten"
            ),
            (None, Some(project)) => format!(
                "needs {what}, which {by} of the Compose project `{project}` holds and this agent does not own: write \
                 `name: {project}` in the Compose file to adopt that project, or stop and remove the container"
            ),
            (None, None) if by == Claims::HOST_PROCESS => {
                format!(
                    "needs {what}, which {by} holds: end it (`ss -lntup` lists it), or change the port in Git"
                )
            }
            (None, None) => format!("needs {what}, which {by} holds and this agent does not own"),
        };
        Self::new(object, WaitReason::Blocked, sentence)
    }

    /// The container `by`, which Git does not have any more and which stays for now, has the port or name.
    pub(crate) fn held_by_orphan(workload: &WorkloadName, what: &str, by: &str) -> Self {
        let sentence = format!(
            "needs {what}, and {by}, which is not in Git any more, still has it: it starts when {by} is removed"
        );
        Self::workload(workload, WaitReason::Blocked, sentence)
    }

    /// These containers of another agent run the workload as well. Only a person knows whether that agent is still wanted.
    pub(crate) fn of_another_agent(workload: &WorkloadName, containers: &[&str], agent: &AgentId) -> Self {
        let sentence = format!(
            "is run by {} of agent {}, which this agent leaves alone: if that agent lives, give it different applications or stop it; \
             if not, `driftless recover` takes over what is in Git, and `docker rm -f` removes its other containers",
            containers.join(", "),
            agent.short()
        );
        Self::workload(workload, WaitReason::OfAnotherAgent, sentence)
    }

    /// The network must be replaced, and `container`, which the agent does not own, is connected to it.
    pub(crate) fn network_in_use(network: &str, container: &str) -> Self {
        let object = WaitObject::Other { kind: "network", name: network.to_owned() };
        let sentence = format!(
            "has changed in Git and must be replaced, but {container}, which this agent does not own, is connected to it: disconnect it"
        );
        Self::new(object, WaitReason::Blocked, sentence)
    }

    /// The network must be replaced, and the engine would not create the new one.
    pub(crate) fn subnet_refused(network: &str, why: &str) -> Self {
        let object = WaitObject::Other { kind: "network", name: network.to_owned() };
        let sentence = format!("has changed in Git and must be replaced, but {why}");
        Self::new(object, WaitReason::Blocked, sentence)
    }

    /// `platform` is the one that the workload asks for.
    pub(crate) fn never_pulled(workload: &WorkloadName, image: &str, platform: Option<&Platform>) -> Self {
        let platform = platform.map(|platform| format!(" for {platform}")).unwrap_or_default();
        let sentence = format!(
            "needs {image}{platform} on this host: its pull policy is `Never`; pull or load the image by hand"
        );
        Self::workload(workload, WaitReason::Blocked, sentence)
    }

    /// The engine would lose the image of `other` by pulling the one of this workload.
    pub(crate) fn one_platform_per_image(
        workload: &WorkloadName,
        image: &str,
        platform: &Platform,
        other: &WorkloadName,
    ) -> Self {
        let sentence = format!(
            "needs {image} for {platform}, but {other} needs it for another platform, and the image store of this engine \
             keeps one platform per name; name the image of each by its digest, or turn on Docker's containerd image store"
        );
        Self::workload(workload, WaitReason::OtherArchitecture, sentence)
    }

    pub(crate) fn external_missing(kind: &'static str, name: &str) -> Self {
        let object = WaitObject::Other { kind, name: name.to_owned() };
        Self::new(object, WaitReason::ExternalMissing, "is external and does not exist: create it")
    }

    /// `secret` says which one it is.
    pub(crate) fn secret_missing(workload: &WorkloadName, secret: &str, app: &AppName) -> Self {
        let sentence = format!(
            "cannot start: the host does not have {secret} any more with the value of this revision, because mounted secrets are kept in \
             memory only; put that value back at its source, or go on to the newest commit with `driftless resume {app}` or `driftless \
             sync {app} --retry`"
        );
        Self::workload(workload, WaitReason::SecretMissing, sentence)
    }

    /// A worker of a Swarm cannot ask whether the Swarm has the network, so it may be one of the host.
    pub(crate) fn network_missing_on_worker(name: &str) -> Self {
        let object = WaitObject::Other { kind: "network", name: name.to_owned() };
        let sentence = format!(
            "is external and not known on this host: create it here with `docker network create {name}`; or if it is a network of the \
             Swarm, which a worker lists only while a container uses it, create it on a manager with `--attachable`, and keep a container on \
             it here, such as `docker run -d --restart always --network {name} alpine sleep infinity`"
        );
        Self::new(object, WaitReason::ExternalMissing, sentence)
    }

    /// `needs` and `speaks` are versions of the engine's API, major and minor.
    pub(crate) fn engine_too_old(
        object: WaitObject,
        field: &str,
        needs: (u16, u16),
        speaks: (u16, u16),
    ) -> Self {
        let sentence = format!(
            "uses `{field}`, which needs version {}.{} of the engine's API; this engine has {}.{}",
            needs.0, needs.1, speaks.0, speaks.1
        );
        Self::new(object, WaitReason::EngineTooOld, sentence)
    }

    /// `needs` and `has` are architectures in the words of Go.
    pub(crate) fn other_architecture(workload: &WorkloadName, needs: &str, has: &str) -> Self {
        let sentence = format!(
            "asks for nodes of the architecture {needs} (`nodeSelector`), but this engine has {has}; remove the selector or \
             the workload"
        );
        Self::workload(workload, WaitReason::OtherArchitecture, sentence)
    }

    /// `runs` are the platforms of the engine.
    pub(crate) fn other_platform(
        workload: &WorkloadName,
        asks: &Platform,
        runs: &BTreeSet<Platform>,
    ) -> Self {
        let runs = runs.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        let sentence = format!(
            "asks for `platform: {asks}`, which this engine cannot run (it runs {runs}); remove `platform`, or install an \
             emulator (QEMU with binfmt_misc) on the host"
        );
        Self::workload(workload, WaitReason::OtherArchitecture, sentence)
    }

    /// Billionths of CPUs: the limit, and all that the engine has.
    pub(crate) fn too_few_cpus(workload: &WorkloadName, asks: u64, has: u64) -> Self {
        let (asks, has) = (cpus(asks), cpus(has));
        let sentence = format!(
            "asks for {asks} CPUs (`cpus`), but the engine has {has} and refuses more; lower the limit"
        );
        Self::workload(workload, WaitReason::TooFewCpus, sentence)
    }

    /// The containers run without these limits.
    pub(crate) fn limits_unsupported(workload: &WorkloadName, limits: &[LimitKind]) -> Self {
        let limits = limits.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        let sentence = format!(
            "runs without the limits of Git on {limits}, which the kernel of this host cannot apply; enable their cgroup \
             controllers (`docker info` warns about each), or remove the limits"
        );
        Self::workload(workload, WaitReason::LimitUnsupported, sentence)
    }

    /// The proxy runs, and its ports lead nowhere.
    pub(crate) fn ports_unpublished(proxy: &WorkloadName, network: &str) -> Self {
        let sentence = format!(
            "has ports that nobody can reach: the network {network} publishes no ports; add a network of the project to the service, or \
             set `x-driftless: {{ proxy: false }}`, or remove `ports`"
        );
        Self::workload(proxy, WaitReason::PortsUnpublished, sentence)
    }

    /// `differences` are masked, one text for each field.
    pub(crate) fn volume_changed(name: &str, differences: &[String]) -> Self {
        let object = WaitObject::Other { kind: "volume", name: name.to_owned() };
        let what = colon(&differences.join(", "));
        let sentence = format!("differs from Git, and volumes are never replaced{what}");
        Self::new(object, WaitReason::VolumeChanged, sentence)
    }

    pub fn progress_deadline_exceeded(workload: &WorkloadName, since: Timestamp) -> Self {
        let sentence = format!("has made no progress since {}", since.time_of_day());
        Self::workload(workload, WaitReason::ProgressDeadlineExceeded, sentence)
    }

    /// More instances have failed than `rule` tolerates. `example` is one of them, and why.
    pub(crate) fn update_failed(
        workload: &WorkloadName,
        failed: usize,
        replicas: u32,
        rule: &FailureRule,
        example: &str,
    ) -> Self {
        let sentence = format!(
            "has {} of {replicas} in this update, more than max_failure_ratio ({}) allows: {}",
            failed_instances(failed),
            rule.ratio(),
            one_line(example)
        );
        Self::workload(workload, WaitReason::UpdateFailed, sentence)
    }

    /// Instances have failed, and `rule` tolerates as many. `example` is one of them, and why.
    pub(crate) fn failures_tolerated(
        workload: &WorkloadName,
        failed: usize,
        replicas: u32,
        rule: &FailureRule,
        example: &str,
    ) -> Self {
        let sentence = format!(
            "has {} of {replicas} in this update, which max_failure_ratio ({}) allows: {}",
            failed_instances(failed),
            rule.ratio(),
            one_line(example)
        );
        Self::workload(workload, WaitReason::FailuresTolerated, sentence)
    }

    /// `rule` is the field that `ignoreDifferences` names.
    pub(crate) fn difference_ignored(
        object: WaitObject,
        field: &str,
        found: &str,
        want: &str,
        rule: &IgnoredField,
    ) -> Self {
        let sentence = format!(
            "differs from Git: {field} is {found}, not {want}; ignored by ignoreDifferences ({rule})"
        );
        Self::new(object, WaitReason::DifferenceIgnored, sentence)
    }

    /// `in_git` is the number of instances in Git.
    pub(crate) fn scaled(app: &AppName, workload: &WorkloadName, in_git: u32, scale: &ScaleOverride) -> Self {
        let ScaleOverride { replicas, until, at: _, actor } = scale;
        let sentence = format!(
            "is scaled to {replicas} by {actor} until {until}, and Git says {in_git}; `driftless scale {app}/{workload} --reset` ends it"
        );
        Self::workload(workload, WaitReason::Scaled, sentence)
    }

    /// `why` is the engine's statement about the run before.
    pub(crate) fn may_have_run_twice(instance: &InstanceId, end: &UnknownEnd) -> Self {
        let UnknownEnd { why, at, .. } = end;
        let object = WaitObject::Instance(instance.clone());
        let sentence = format!("may have done its work twice: it was run again at {at}, because {why}");
        Self::new(object, WaitReason::MayHaveRunTwice, sentence)
    }

    /// A CronJob that forbids two runs at once, and has left out the time `due` for one that goes on.
    pub(crate) fn run_skipped(
        cron: &WorkloadName,
        due: Timestamp,
        run: &WorkloadName,
        since: Option<Timestamp>,
    ) -> Self {
        let since = since.map(|since| format!(" and runs since {since}")).unwrap_or_default();
        let sentence = format!(
            "was not run for {due}: {run} has not ended{since}, and `Forbid` allows no second one; `driftless delete job` ends it, and a deadline \
             ends runs that hang"
        );
        Self::workload(cron, WaitReason::RunSkipped, sentence)
    }

    /// A run that the record has never known.
    pub(crate) fn forgotten_run(container: &str, of: &WorkloadName) -> Self {
        let object = WaitObject::Container { name: container.to_owned(), workload: Some(of.clone()) };
        let sentence = format!(
            "is a run of {of} from before the database of the agent was lost, and goes on to its end; with `concurrencyPolicy: Forbid` the next one waits for it; `docker rm -f {container}` ends it"
        );
        Self::new(object, WaitReason::ForgottenRun, sentence)
    }

    /// The new instances of a step are available. `command` is what `driftless promote` takes to go on.
    pub(crate) fn canary(
        workload: &WorkloadName,
        current: &CurrentStep<'_>,
        replicas: u32,
        command: &str,
    ) -> Self {
        let CurrentStep { number, of, instances, .. } = current;
        let until = current.until();
        let next = match until {
            Some(until) => format!("goes on at {}, or with", until.time_of_day()),
            None => "waits for".to_owned(),
        };
        let sentence = format!(
            "has a canary: {instances} of {replicas} instances (step {number} of {of}), {next} `driftless promote {command}`"
        );
        Self { until, ..Self::workload(workload, WaitReason::Canary, sentence) }
    }

    pub(crate) fn paused(workload: &WorkloadName) -> Self {
        Self::workload(workload, WaitReason::Paused, "is paused")
    }

    /// A partition keeps the pod `older` of the same set at its older version.
    pub(crate) fn below_partition(pod: &WorkloadName, older: &WorkloadName) -> Self {
        let sentence = format!(
            "waits for {older}: the partition keeps it at an older version, in which no new pod can be made; lower the partition or the number of replicas"
        );
        Self::workload(pod, WaitReason::BelowPartition, sentence)
    }

    pub(crate) fn job_failed(job: &WorkloadName, outcome: &str) -> Self {
        Self::workload(job, WaitReason::JobFailed, format!("failed{}", colon(outcome)))
    }

    /// A hook that decides nothing any more has failed.
    pub(crate) fn hook_failed(job: &WorkloadName, outcome: &str) -> Self {
        Self::workload(job, WaitReason::HookFailed, format!("failed{}", colon(outcome)))
    }

    /// A `PreDelete` hook failed, so the application is kept.
    pub(crate) fn pre_delete_failed(job: &WorkloadName, outcome: &str, app: &AppName) -> Self {
        let sentence = format!(
            "failed, so {app} is not removed{}; `driftless remove {app}` tries it again, `--force` removes {app} without it",
            colon(outcome)
        );
        Self::workload(job, WaitReason::JobFailed, sentence)
    }

    pub(crate) fn hook(workload: &WorkloadName, why: &str) -> Self {
        Self::workload(workload, WaitReason::Hook, format!("waits{}", colon(why)))
    }

    /// The hooks of a phase come first and have not begun yet.
    pub(crate) fn hooks_first(phase: HookPhase) -> Self {
        Self::application(WaitReason::Hook, format!("the {phase} hooks run first"))
    }

    pub(crate) fn wave(workload: &WorkloadName, on: &WorkloadName, wave: i32, own: i32) -> Self {
        let sentence = format!("is of wave {own} and waits for {on} of wave {wave}");
        let wait = Self::workload(workload, WaitReason::SyncWave, sentence);
        Self { on: Some(on.clone()), ..wait }
    }

    /// The application is taken down, and `on` goes first.
    pub(crate) fn teardown(workload: &WorkloadName, on: &WorkloadName) -> Self {
        let wait = Self::workload(workload, WaitReason::Dependency, format!("is removed after {on}"));
        Self { on: Some(on.clone()), ..wait }
    }

    pub(crate) fn held(workload: &WorkloadName, why: &str) -> Self {
        Self::workload(workload, WaitReason::Held, format!("stays as it was{}", colon(why)))
    }

    pub(crate) fn not_adopted(
        workload: &WorkloadName,
        containers: &[String],
        obstacle: Option<&str>,
        Adoption { app, project, policy, starter }: Adoption<'_>,
    ) -> Self {
        let containers = containers.join(", ");
        let advice = match (policy, obstacle) {
            (Adopt::Never, _) => format!(
                "`adopt` is `never`; stop it with `docker compose -p {project} down`, or change the setting"
            ),
            (Adopt::Auto | Adopt::Ask, Some(obstacle)) => format!("it cannot be adopted: {obstacle}"),
            (Adopt::Auto | Adopt::Ask, None) => format!(
                "run `driftless adopt {app}` to adopt it; `driftless plan {app}` shows what would change"
            ),
        };
        let starter = match starter {
            Starter::Compose => "docker compose",
            Starter::Other => "somebody else",
        };
        let sentence = format!("was started by {starter} ({containers}): {advice}");
        Self::workload(workload, WaitReason::NotAdopted, sentence)
    }

    pub(crate) fn taken_down(workload: &WorkloadName, network: &str, within: Duration) -> Self {
        let sentence = format!(
            "waits for `docker compose down` to remove the network {network}, for {} s at most",
            within.as_secs()
        );
        Self::workload(workload, WaitReason::NotAdopted, sentence)
    }

    pub(crate) fn not_as_in_git(kind: &'static str, name: &str, fields: &[&str]) -> Self {
        let object = WaitObject::Other { kind, name: name.to_owned() };
        let sentence = format!(
            "was created by docker compose and differs from Git ({}); it is used as it is",
            fields.join(", ")
        );
        Self::new(object, WaitReason::NotAsInGit, sentence)
    }

    /// `files` are the first files, `more` counts the others. `is_cut`: there are more than the agent follows.
    pub(crate) fn writes_inside(container: &str, files: &[String], more: usize, is_cut: bool) -> Self {
        let files = match (files, more) {
            ([], _) => String::new(),
            (files, 0) => format!(" ({})", files.join(", ")),
            (files, more) => format!(" ({} and {more} more)", files.join(", ")),
        };
        let cut = if is_cut { "; there are too many files to follow them all" } else { "" };
        let sentence = format!(
            "writes files into itself{files}, which are lost when it is replaced: mount a volume there, or list them in the label `driftless.ignore-files`{cut}"
        );
        // It says nothing about the health of a workload.
        let object = WaitObject::Container { name: container.to_owned(), workload: None };
        Self::new(object, WaitReason::WritesInside, sentence)
    }

    /// `all` counts the workloads before and after together, `limit` is `maxPrunePercent`.
    pub(crate) fn prune_held(app: &AppName, workloads: &[&WorkloadName], all: usize, limit: u8) -> Self {
        let names: Vec<&str> = workloads.iter().map(|name| name.as_str()).collect();
        let sentence = format!(
            "this commit removes {} of {all} workloads ({}), more than maxPrunePercent ({limit} %): confirm with `driftless sync {app} --prune`, or restore them in Git",
            names.len(),
            names.join(", ")
        );
        Self::application(WaitReason::PruneHeld, sentence)
    }

    /// Git does not contain the object any more, and its label keeps it.
    pub(crate) fn prune_protected(kind: &'static str, name: &str) -> Self {
        let sentence = format!(
            "is not in Git any more and is kept, because its label `{}` is `false`: remove it with `docker {} {name}`",
            label::PRUNE,
            match kind {
                "network" => "network rm",
                "service" => "service rm",
                "volume" => "volume rm",
                _ => "rm -f",
            }
        );
        let object = match kind {
            "container" => WaitObject::Container { name: name.to_owned(), workload: None },
            kind => WaitObject::Other { kind, name: name.to_owned() },
        };
        Self::new(object, WaitReason::PruneProtected, sentence)
    }

    /// The agent would have to change the container that it runs in.
    pub(crate) fn own(container: &str, workload: Option<&WorkloadName>, what: &str) -> Self {
        let object = WaitObject::Container { name: container.to_owned(), workload: workload.cloned() };
        let sentence = format!("is the agent's own container and is not changed by it: {what}");
        Self::new(object, WaitReason::Own, sentence)
    }

    /// A helper container replaces the agent's own container, or confirms that the new agent works.
    pub(crate) fn own_update(container: &str, workload: &WorkloadName) -> Self {
        let object = WaitObject::Container { name: container.to_owned(), workload: Some(workload.clone()) };
        Self::new(object, WaitReason::OwnUpdate, "is the agent's own container and is being replaced")
    }

    /// The container that was to take the place of the agent's own one failed.
    pub(crate) fn own_update_failed(
        container: &str,
        workload: &WorkloadName,
        app: &AppName,
        failed: &FailedOwnUpdate,
    ) -> Self {
        let object = WaitObject::Container { name: container.to_owned(), workload: Some(workload.clone()) };
        let sentence = format!(
            "is the agent's own container and was not replaced: {}; correct it in Git, or try again with `driftless sync {app} --retry`",
            failed.reason
        );
        Self::new(object, WaitReason::OwnUpdateFailed, sentence)
    }

    /// The commit failed, so no further instance of the workload is replaced.
    pub(crate) fn commit_failed(workload: &WorkloadName, failed: &FailedCommit) -> Self {
        let (commit, reason) = (failed.commit.short(), &failed.reason);
        let sentence = format!("is not updated any further, because {commit} failed: {reason}");
        Self::workload(workload, WaitReason::CommitFailed, sentence)
    }

    pub fn suspended() -> Self {
        Self::application(WaitReason::Suspended, "suspended: differences are reported and left")
    }

    pub fn self_heal_off(differences: usize) -> Self {
        let sentence = match differences {
            1 => "self-heal is off: 1 difference is left".to_owned(),
            _ => format!("self-heal is off: {differences} differences are left"),
        };
        Self::application(WaitReason::SelfHealOff, sentence)
    }

    pub fn is(&self, reason: WaitReason) -> bool {
        self.reason == reason
    }

    /// Whether its sentence depends on the time of the round, as that of a pause does.
    pub fn depends_on_time(&self) -> bool {
        self.until.is_some() || self.is(WaitReason::ProgressDeadlineExceeded)
    }

    pub(crate) fn severity(&self) -> WaitSeverity {
        self.reason.severity()
    }

    /// The workload that it is about, if it is about one or an instance of one; of the part of a pod, the part.
    pub(crate) fn workload_name(&self) -> Option<&WorkloadName> {
        match &self.object {
            WaitObject::Workload(workload) | WaitObject::Container { workload: Some(workload), .. } => {
                Some(workload)
            }
            WaitObject::Instance(instance) => Some(&instance.workload),
            WaitObject::Application
            | WaitObject::Container { workload: None, .. }
            | WaitObject::Other { .. } => None,
        }
    }

    /// Whether it is about this workload, one of its instances or one of their containers.
    pub(crate) fn concerns(&self, name: &WorkloadName) -> bool {
        match &self.object {
            WaitObject::Workload(workload) | WaitObject::Container { workload: Some(workload), .. } => {
                workload == name
            }
            WaitObject::Instance(instance) => instance.is_of(name),
            WaitObject::Application
            | WaitObject::Container { workload: None, .. }
            | WaitObject::Other { .. } => false,
        }
    }

    /// The sentence for a place where the name of the workload stands already.
    pub(crate) fn without_workload(&self) -> String {
        match &self.object {
            WaitObject::Workload(_) => format!("{}{}", self.sentence, self.next_try()),
            WaitObject::Application
            | WaitObject::Instance(_)
            | WaitObject::Container { .. }
            | WaitObject::Other { .. } => self.to_string(),
        }
    }

    /// The word that Kubernetes shows for an instance without a container, if this is the reason.
    pub(crate) fn pending(&self) -> Option<&'static str> {
        match self.reason {
            WaitReason::ImagePullBackOff if self.attempt.is_some_and(|it| it <= 1) => Some("ErrImagePull"),
            reason => reason.pending(),
        }
    }

    /// The form in which the status shows it.
    pub fn status(&self) -> WaitStatus {
        WaitStatus {
            reason: self.reason.as_str().to_owned(),
            object: self.object.to_string(),
            message: self.to_string(),
            attempt: self.attempt,
            until: self.until,
        }
    }

    fn next_try(&self) -> String {
        match (self.attempt, self.until) {
            (Some(attempt), Some(until)) => format!(", attempt {attempt}, next try {}", until.time_of_day()),
            (Some(_) | None, _) => String::new(),
        }
    }
}

/// The application that a container of Docker Compose would be adopted into.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Adoption<'a> {
    pub(crate) app: &'a AppName,
    /// The Compose project.
    pub(crate) project: &'a str,
    pub(crate) policy: Adopt,
    pub(crate) starter: Starter,
}

/// The program that started a container that is not adopted yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Starter {
    Compose,
    /// `docker run`, or another program. The container has the fixed name of a service.
    Other,
}

impl fmt::Display for Wait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.object != WaitObject::Application {
            write!(f, "{} ", self.object)?;
        }
        write!(f, "{}{}", self.sentence, self.next_try())
    }
}

impl fmt::Display for WaitObject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Application => f.write_str("application"),
            Self::Workload(name) => name.fmt(f),
            Self::Instance(instance) => instance.fmt(f),
            Self::Container { name, .. } => f.write_str(name),
            Self::Other { kind, name } => write!(f, "{kind} {name}"),
        }
    }
}

fn failed_instances(count: usize) -> String {
    if count == 1 { "1 failed instance".to_owned() } else { format!("{count} failed instances") }
}

fn colon(text: &str) -> String {
    if text.is_empty() { String::new() } else { format!(": {}", one_line(text)) }
}

/// The error, after the image if the error does not name it.
pub(crate) fn image_error(image: &str, error: &str) -> String {
    let error = one_line(error);
    match (error.is_empty(), error.contains(image)) {
        (true, _) => image.to_owned(),
        (false, true) => format!("its image: {error}"),
        (false, false) => format!("{image}: {error}"),
    }
}
