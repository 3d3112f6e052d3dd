//! Plans in the operator's words, one line each: for the CLI, the history, the events and the tests.
//!
//! Nothing is decided here, and no environment value, file content or label value is ever printed.

use std::{fmt, time::Duration};

use super::{Action, Cause, ContainerRef, Creation, Plan, Step, Wait};
use driftless_model::{Adopt, LiveSettings, Resources, RestartPolicy, Timestamp, WaitStatus, WorkloadName};

/// The reason of [`Wait::PruneHeld`], which is told apart from others by whoever confirms.
pub const PRUNE_HELD: &str = "PruneHeld";

/// One word in camel case that scripts can rely on: `ImagePullBackOff`, `Dependency`, `MinReady`, …
pub fn reason(wait: &Wait) -> &'static str {
    match wait {
        Wait::Dependency { .. } => "Dependency",
        Wait::Readiness { .. } => "Readiness",
        Wait::MinReady { .. } => "MinReady",
        Wait::ImagePullBackOff { .. } => "ImagePullBackOff",
        Wait::BuildFailed { .. } => "BuildFailed",
        Wait::Images { .. } => "Images",
        Wait::CrashLoopBackOff { .. } => "CrashLoopBackOff",
        Wait::Failed { .. } => "Failed",
        Wait::HealBackOff { .. } => "HealBackOff",
        Wait::HealIneffective { .. } => "HealIneffective",
        Wait::Blocked { .. } => "Blocked",
        Wait::ExternalMissing { .. } => "ExternalMissing",
        Wait::OfAnotherApplication { .. } => "OfAnotherApplication",
        Wait::EngineTooOld { .. } => "EngineTooOld",
        Wait::VolumeChanged { .. } => "VolumeChanged",
        Wait::ProgressDeadlineExceeded { .. } => "ProgressDeadlineExceeded",
        Wait::Paused { .. } => "Paused",
        Wait::Held { .. } => "Held",
        Wait::JobFailed { .. } => "JobFailed",
        Wait::NotAdopted { .. } => "NotAdopted",
        Wait::NotAsInGit { .. } => "NotAsInGit",
        Wait::WritesInside { .. } => "WritesInside",
        Wait::PruneHeld { .. } => PRUNE_HELD,
        Wait::Own { .. } => "Own",
        Wait::Suspended => "Suspended",
        Wait::SelfHealOff { .. } => "SelfHealOff",
    }
}

/// When it may end by itself; `None` when something else has to happen first.
pub fn until(wait: &Wait) -> Option<Timestamp> {
    match wait {
        Wait::MinReady { until, .. }
        | Wait::ImagePullBackOff { until, .. }
        | Wait::BuildFailed { until, .. }
        | Wait::CrashLoopBackOff { until, .. }
        | Wait::HealBackOff { until, .. } => Some(*until),
        Wait::Dependency { .. }
        | Wait::Readiness { .. }
        | Wait::Images { .. }
        | Wait::Failed { .. }
        | Wait::HealIneffective { .. }
        | Wait::Blocked { .. }
        | Wait::ExternalMissing { .. }
        | Wait::OfAnotherApplication { .. }
        | Wait::EngineTooOld { .. }
        | Wait::VolumeChanged { .. }
        | Wait::ProgressDeadlineExceeded { .. }
        | Wait::Paused { .. }
        | Wait::Held { .. }
        | Wait::JobFailed { .. }
        | Wait::NotAdopted { .. }
        | Wait::NotAsInGit { .. }
        | Wait::WritesInside { .. }
        | Wait::PruneHeld { .. }
        | Wait::Own { .. }
        | Wait::Suspended
        | Wait::SelfHealOff { .. } => None,
    }
}

/// How often it has failed so far, where that is what is waited out.
pub fn attempt(wait: &Wait) -> Option<u32> {
    match wait {
        Wait::ImagePullBackOff { attempt, .. }
        | Wait::BuildFailed { attempt, .. }
        | Wait::CrashLoopBackOff { attempt, .. }
        | Wait::HealBackOff { attempt, .. } => Some(*attempt),
        Wait::Dependency { .. }
        | Wait::Readiness { .. }
        | Wait::MinReady { .. }
        | Wait::Images { .. }
        | Wait::Failed { .. }
        | Wait::HealIneffective { .. }
        | Wait::Blocked { .. }
        | Wait::ExternalMissing { .. }
        | Wait::OfAnotherApplication { .. }
        | Wait::EngineTooOld { .. }
        | Wait::VolumeChanged { .. }
        | Wait::ProgressDeadlineExceeded { .. }
        | Wait::Paused { .. }
        | Wait::Held { .. }
        | Wait::JobFailed { .. }
        | Wait::NotAdopted { .. }
        | Wait::NotAsInGit { .. }
        | Wait::WritesInside { .. }
        | Wait::PruneHeld { .. }
        | Wait::Own { .. }
        | Wait::Suspended
        | Wait::SelfHealOff { .. } => None,
    }
}

/// The form in which the status shows a wait.
pub fn wait_status(wait: &Wait) -> WaitStatus {
    WaitStatus {
        reason: reason(wait).to_owned(),
        object: object(wait),
        message: wait.to_string(),
        attempt: attempt(wait),
        until: until(wait),
    }
}

/// `04:12:30 UTC`: the time of day, for sentences about the next few minutes.
pub(super) fn time_of_day(at: Timestamp) -> String {
    let whole = at.to_string();
    whole.get(11..19).map_or_else(|| whole.clone(), |it| format!("{it} UTC"))
}

/// `1m 30s`, `90 ms`: a duration for people.
pub(super) fn duration(it: Duration) -> String {
    let (seconds, millis) = (it.as_secs(), it.subsec_millis());
    match (seconds / 3600, seconds / 60 % 60, seconds % 60) {
        (0, 0, 0) if millis > 0 => format!("{millis}ms"),
        (0, 0, s) if millis > 0 => format!("{s}.{millis:03}s"),
        (0, 0, s) => format!("{s}s"),
        (0, m, 0) => format!("{m}m"),
        (0, m, s) => format!("{m}m{s}s"),
        (h, 0, 0) => format!("{h}h"),
        (h, m, 0) => format!("{h}h{m}m"),
        (h, m, s) => format!("{h}h{m}m{s}s"),
    }
}

/// `128 MiB` where it is a whole number of them, or else bytes.
pub(super) fn bytes(count: u64) -> String {
    for (unit, size) in [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)] {
        if count >= size && count.is_multiple_of(size) {
            return format!("{} {unit}", count / size);
        }
    }
    format!("{count} bytes")
}

/// `always`, `on-failure:3`, as Docker's command line takes it.
pub(super) fn restart(policy: RestartPolicy) -> String {
    match policy {
        RestartPolicy::No => "no".to_owned(),
        RestartPolicy::Always => "always".to_owned(),
        RestartPolicy::UnlessStopped => "unless-stopped".to_owned(),
        RestartPolicy::OnFailure { max_retries: None } => "on-failure".to_owned(),
        RestartPolicy::OnFailure { max_retries: Some(limit) } => format!("on-failure:{limit}"),
    }
}

fn object(wait: &Wait) -> String {
    match wait {
        Wait::Dependency { workload, .. }
        | Wait::Readiness { workload, .. }
        | Wait::MinReady { workload, .. }
        | Wait::ImagePullBackOff { workload, .. }
        | Wait::BuildFailed { workload, .. }
        | Wait::Images { workload, .. }
        | Wait::ProgressDeadlineExceeded { workload, .. }
        | Wait::NotAdopted { workload, .. }
        | Wait::Held { workload, .. }
        | Wait::JobFailed { workload, .. }
        | Wait::Paused { workload } => workload.to_string(),
        Wait::Own { container, .. } | Wait::WritesInside { container, .. } => container.clone(),
        Wait::CrashLoopBackOff { instance, .. } | Wait::Failed { instance, .. } => instance.to_string(),
        Wait::HealBackOff { object, .. }
        | Wait::HealIneffective { object, .. }
        | Wait::EngineTooOld { object, .. }
        | Wait::Blocked { object, .. } => object.clone(),
        Wait::ExternalMissing { kind, name }
        | Wait::OfAnotherApplication { kind, name, .. }
        | Wait::NotAsInGit { kind, name, .. } => format!("{kind} {name}"),
        Wait::VolumeChanged { name, .. } => format!("volume {name}"),
        Wait::PruneHeld { .. } | Wait::Suspended | Wait::SelfHealOff { .. } => "application".to_owned(),
    }
}

/// Steps with their numbers, then waits; each on a line of its own.
impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, step) in self.steps.iter().enumerate() {
            write!(f, "{index}: {step}")?;
            if !step.after.is_empty() {
                write!(f, " after {:?}", step.after)?;
            }
            writeln!(f)?;
        }
        for wait in &self.waits {
            writeln!(f, "wait: {wait}")?;
        }
        Ok(())
    }
}

/// `create shop-web-2 from web:1.2 at 3f9a1b2c (spec changed)`
impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.action, self.cause)
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::PullImage { image, platform: None, secrets: _ } => write!(f, "pull {image}"),
            Self::PullImage { image, platform: Some(platform), secrets: _ } => {
                write!(f, "pull {image} for {platform}")
            }
            Self::BuildImage { image, build } => write!(f, "build {image} from {}", build.place()),
            Self::ImportImage { image } => write!(f, "import {image} from this agent's executable"),
            Self::CreateNetwork { name, network: _ } => write!(f, "create network {name}"),
            Self::RemoveNetwork { name, id: _ } => write!(f, "remove network {name}"),
            Self::CreateVolume { name, volume: _ } => write!(f, "create volume {name}"),
            Self::CreateInstance(creation) => creation.fmt(f),
            Self::WriteFiles { container, instance: _, files } => {
                let targets: Vec<&str> = files.keys().map(String::as_str).collect();
                write!(f, "write {} of {container}", targets.join(", "))
            }
            Self::StartInstance { container } => write!(f, "start {container}"),
            Self::RunHooks { container, instance: _ } => {
                write!(f, "run the post_start commands of {container}")
            }
            Self::SignalInstance { container, signal } => write!(f, "send {signal} to {container}"),
            Self::StopInstance { container, grace: None } => write!(f, "stop {container}"),
            Self::StopInstance { container, grace: Some(grace) } => {
                write!(f, "stop {container} within {}", duration(*grace))
            }
            Self::RemoveInstance { container } => write!(f, "remove {container}"),
            Self::UnpauseInstance { container } => write!(f, "unpause {container}"),
            Self::RenameInstance { container, to } => write!(f, "rename {container} to {to}"),
            Self::UpdateInstance { container, settings } => {
                write!(f, "update {container} to {}", live_settings(settings))
            }
            Self::Connect { container, network, attachment: _ } => {
                write!(f, "connect {container} to {network}")
            }
            Self::Disconnect { container, network } => write!(f, "disconnect {container} from {network}"),
        }
    }
}

impl fmt::Display for Creation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let image = self.image.as_ref().unwrap_or(&self.container.image);
        write!(f, "create {} from {image} at {}", self.name, self.spec)
    }
}

impl fmt::Display for ContainerRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Id(_, name) | Self::Name(name) => f.write_str(name),
        }
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing => f.write_str("missing"),
            Self::SpecChanged => f.write_str("spec changed"),
            Self::ScaledDown => f.write_str("scaled down"),
            Self::NotInGit => f.write_str("not in Git"),
            Self::NotStarted => f.write_str("not started"),
            Self::Interrupted => f.write_str("interrupted"),
            Self::Exited => f.write_str("exited"),
            Self::EndedWithEngine => {
                f.write_str("ended with code 0 before the engine started: done, or stopped with the engine")
            }
            Self::Over => f.write_str("its pod is over"),
            Self::Unhealthy { reason } => write!(f, "unhealthy: {reason}"),
            Self::CrashLoop { attempt } => write!(f, "crash loop, attempt {attempt}"),
            // A value of the environment may be a secret whatever its variable is called.
            Self::Drift { field, .. } if field.starts_with("env.") => write!(f, "drift: {field} was changed"),
            Self::Drift { field, found, want } => write!(f, "drift: {field} is {found}, not {want}"),
            Self::Restarted => f.write_str("restart requested"),
            Self::Deleted => f.write_str("deletion requested"),
            Self::Finished { reason } => f.write_str(reason),
            Self::FilesChanged { files } => write!(f, "{} changed", files.join(", ")),
            Self::DependencyReplaced { on } => write!(f, "{on} was replaced"),
            Self::DependencyRestarted { on } => write!(f, "follows {on}"),
        }
    }
}

impl fmt::Display for Wait {
    #[expect(clippy::too_many_lines, reason = "a sentence for each")]
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Dependency { workload, on, reason } => write!(f, "{workload} on {on}{}", colon(reason)),
            Self::Readiness { workload, available, wanted, reason } => {
                write!(f, "{workload} has {available} of {wanted} available{}", colon(reason))
            }
            Self::MinReady { workload, until } => {
                write!(f, "{workload} is ready and counts from {}", time_of_day(*until))
            }
            Self::ImagePullBackOff { workload, image, attempt, until, error } => write!(
                f,
                "{workload} on the image {image}: {}attempt {attempt}, next try {}",
                comma(error),
                time_of_day(*until)
            ),
            Self::BuildFailed { workload, image, attempt, until, error } => write!(
                f,
                "{workload} on the build of {image}: {}attempt {attempt}, next try {}",
                comma(error),
                time_of_day(*until)
            ),
            Self::Images { workload, missing } => {
                write!(f, "{workload} on images that are not here yet: {}", missing.join(", "))
            }
            Self::CrashLoopBackOff { instance, attempt, until, code, error } => write!(
                f,
                "{instance} exited with code {code}: {}attempt {attempt}, next try {}",
                comma(error),
                time_of_day(*until)
            ),
            Self::Failed { instance, code } => {
                write!(f, "{instance} failed with code {code} and is not to be started again")
            }
            Self::HealBackOff { object, field, attempt, until } => write!(
                f,
                "{object}: {field} keeps being changed: attempt {attempt}, next try {}",
                time_of_day(*until)
            ),
            Self::HealIneffective { object, field, .. } if field.starts_with("env.") => {
                write!(f, "{object}: setting {field} right has no effect")
            }
            Self::HealIneffective { object, field, difference } => {
                write!(f, "{object}: setting {field} right has no effect{}", colon(difference))
            }
            Self::Blocked { object, by, what } => {
                write!(f, "{object} needs {what}, which {by} holds and is not ours")
            }
            Self::ExternalMissing { kind, name } => write!(f, "external {kind} {name} does not exist"),
            Self::OfAnotherApplication { kind, name, owner, is_external: true } => {
                write!(f, "external {kind} {name} belongs to application `{owner}` and is shared with it")
            }
            Self::OfAnotherApplication { kind, name, owner, is_external: false } => write!(
                f,
                "{kind} {name} belongs to application `{owner}`: give the {kind} or the project another `name`, or declare the {kind} `external: true` to share it"
            ),
            Self::EngineTooOld { object, field, needs, speaks } => write!(
                f,
                "{object}: `{field}` needs version {}.{} of the engine's API, and this engine speaks {}.{}",
                needs.0, needs.1, speaks.0, speaks.1
            ),
            Self::VolumeChanged { name, differences } => {
                let what = differences.join(", ");
                write!(f, "volume {name} is not as in Git, and a volume is never replaced{}", colon(&what))
            }
            Self::ProgressDeadlineExceeded { workload, since } => {
                write!(f, "{workload} has made no progress since {}", time_of_day(*since))
            }
            Self::Paused { workload } => write!(f, "{workload} is paused"),
            Self::JobFailed { workload, reason } => write!(f, "{workload} failed{}", colon(reason)),
            Self::Held { workload, reason } => write!(f, "{workload} stays as it was{}", colon(reason)),
            Self::NotAdopted { app, project, workload, containers, obstacle, policy } => {
                write!(f, "{workload} was started by docker compose ({}), ", containers.join(", "))?;
                match (policy, obstacle) {
                    (Adopt::Never, _) => write!(
                        f,
                        "and `adopt` is `never`: stop it with `docker compose -p {project} down`, or allow it to be taken over"
                    ),
                    (Adopt::Auto | Adopt::Ask, Some(obstacle)) => {
                        write!(f, "and cannot be taken over: {obstacle}")
                    }
                    (Adopt::Auto | Adopt::Ask, None) => write!(
                        f,
                        "run `driftless adopt {app}` to take it over; `driftless plan {app}` shows what would change"
                    ),
                }
            }
            Self::NotAsInGit { kind, name, fields } => write!(
                f,
                "{kind} {name} was made by docker compose and is not as in Git ({}); it is used as it is",
                fields.join(", ")
            ),
            Self::WritesInside { container, files, more, is_cut } => {
                let files = match (files.as_slice(), more) {
                    ([], _) => String::new(),
                    (files, 0) => format!(" ({})", files.join(", ")),
                    (files, more) => format!(" ({} and {more} more)", files.join(", ")),
                };
                let cut = if *is_cut { "; there are too many to follow them all" } else { "" };
                write!(
                    f,
                    "{container} writes files into itself{files}, which are lost when it is replaced: mount a volume there, or name them in the label `driftless.ignore-files`{cut}"
                )
            }
            Self::PruneHeld { app, workloads, all, limit } => {
                let names: Vec<&str> = workloads.iter().map(WorkloadName::as_str).collect();
                write!(
                    f,
                    "Git drops {} of {all} workloads at once ({}), more than the {limit} % that go unasked: run `driftless sync {app} --prune` to remove them, or bring them back in Git",
                    names.len(),
                    names.join(", ")
                )
            }
            Self::Own { workload: _, container, what } => {
                write!(f, "{container} is what this agent runs in: {what}, and it does not do that to itself")
            }
            Self::Suspended => f.write_str("suspended: differences are reported and left"),
            Self::SelfHealOff { differences: 1 } => f.write_str("self-heal is off: 1 difference is left"),
            Self::SelfHealOff { differences } => {
                write!(f, "self-heal is off: {differences} differences are left")
            }
        }
    }
}

fn colon(text: &str) -> String {
    if text.is_empty() { String::new() } else { format!(": {}", one_line(text)) }
}

fn comma(text: &str) -> String {
    if text.is_empty() { String::new() } else { format!("{}, ", one_line(text)) }
}

/// Errors of engines and programs may have many lines; a sentence has one.
pub(super) fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn live_settings(LiveSettings { resources, restart: policy }: &LiveSettings) -> String {
    let Resources { nano_cpus, memory, memory_reservation, memory_swap, cpu_shares, pids, cpuset, .. } =
        &resources.normal();
    let limit = |name: &str, value: Option<String>| value.map(|it| format!("{name} {it}"));
    let all = [
        limit("cpus", nano_cpus.map(cpus)),
        limit("memory", memory.map(bytes)),
        limit("memory reservation", memory_reservation.map(bytes)),
        limit(
            "memory and swap",
            memory_swap.map(|it| u64::try_from(it).map_or("unlimited".to_owned(), bytes)),
        ),
        limit("cpu shares", cpu_shares.map(|it| it.to_string())),
        limit("pids", pids.map(|it| it.to_string())),
        limit("cpuset", cpuset.clone()),
        limit("restart", Some(restart(*policy))),
    ];
    all.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

/// `1.5`: whole and fractional CPUs.
pub(super) fn cpus(nano: u64) -> String {
    let (whole, rest) = (nano / 1_000_000_000, nano % 1_000_000_000);
    if rest == 0 { whole.to_string() } else { format!("{whole}.{rest:09}").trim_end_matches('0').to_owned() }
}
