//! Containers, networks and volumes of Docker Compose that the stack has a place for, and other containers with the fixed
//! name of a service: how they differ from Git, and whether they may be adopted.
//!
//! Labels of a live container cannot be changed, so ownership by adoption is in the [`driftless_model::Record`] alone.
//! An object that equals Git is entered with the spec hash of Git and left as it is. Any other is entered with the hash
//! of its own configuration and is then outdated. A container that no service in Git stands for is never adopted.

use std::fmt;

use driftless_model::{
    Adopt, Candidate, Container, ContainerId, Format, Instance, InstanceId, Mount, MountSource, Observed,
    Record, SpecHash, State, Workload,
};

use crate::{
    facts::standing,
    fields::{
        diff::{self, FieldDifference},
        resources::{network_differences, volume_differences},
    },
    names::container_name,
    target::Target,
    text::is_variable,
};

/// One thing that Docker Compose made and the stack has a place for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// Its name in Docker.
    pub name: String,
    pub what: Claimed,
    /// The fields in which it differs from Git, masked.
    pub differences: Vec<FieldDifference>,
    /// Why it must not be taken over as it is.
    pub obstacle: Option<String>,
    /// The paths of the host of which its successor may lack files.
    pub losses: Vec<Loss>,
    /// The spec hash that the record gets.
    pub(crate) spec: SpecHash,
    /// It need not be created again.
    stays: bool,
}

/// A path of the host in whose place a container will have what Git has. If it is a folder, Git may not have all of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loss {
    pub source: MountSource,
    /// The path in the container.
    pub target: String,
    /// The path on the host.
    pub path: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Claimed {
    Container {
        id: ContainerId,
        instance: InstanceId,
        /// Docker Compose did not create it: it has the fixed name of a service.
        by_name: bool,
        activity: Activity,
    },
    Network {
        id: String,
    },
    Volume,
}

/// The state of a container, and the consequence of its adoption.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activity {
    Running,
    /// It ends again and again, and the engine starts it.
    Restarting,
    /// The agent starts it, or continues it.
    Stopped,
    /// It stays stopped, and its difference from Git is reported.
    LeftStopped,
    /// It ended well, and that is its purpose.
    Completed,
    /// It failed, and its restart policy forbids another start.
    Failed,
}

impl Activity {
    fn of(target: &Target<'_>, observed: &Observed, workload: &Workload, instance: &Instance) -> Self {
        let nothing = Record::default();
        let has_succeeded = || {
            standing::is_completed(&nothing, observed, workload, instance)
                || standing::counts_as_success(&nothing, target.stack, workload, instance)
        };
        match &instance.state {
            State::Running { .. } => Self::Running,
            State::Restarting { .. } => Self::Restarting,
            State::Exited { .. } if has_succeeded() => Self::Completed,
            State::Exited { .. } if standing::failure(&nothing, observed, workload, instance).is_some() => {
                Self::Failed
            }
            _ if !target.policy.self_heal => Self::LeftStopped,
            State::Created | State::Paused | State::Exited { .. } | State::Removing | State::Dead => {
                Self::Stopped
            }
        }
    }

    /// The fate of a container that stays.
    const fn stays(self) -> &'static str {
        match self {
            Self::Running => "keeps running",
            Self::Restarting => "restarts again and again",
            Self::Stopped => "is stopped and will be started",
            Self::LeftStopped => "is stopped",
            Self::Completed => "has completed",
            Self::Failed => "has failed and is not run again",
        }
    }
}

/// All that could be taken over, in the order of kinds and names. What was taken over already is not among it.
pub fn survey(target: &Target<'_>, observed: &Observed) -> Vec<Claim> {
    if target.stack.format != Format::Compose {
        return Vec::new();
    }
    // Without permission to adopt, a container of somebody else only holds the name.
    let is_meant = |it: &&Candidate| !it.by_name || target.policy.adopt != Adopt::Never;
    let candidates = observed.candidates.values().filter(is_meant);
    let mut claims: Vec<Claim> = candidates.filter_map(|it| container_claim(target, observed, it)).collect();
    for (name, wanted) in target.stack.networks.iter().filter(|(_, it)| !it.external) {
        let Some(found) = observed.networks.get(name).filter(|it| it.agent.is_none()) else { continue };
        if let Some(made) = &found.compose {
            let differences = network_differences(wanted, made, target.mask);
            let stays = differences.is_empty();
            let spec = SpecHash::of(if stays { wanted } else { made });
            let what = Claimed::Network { id: found.id.clone() };
            let name = name.clone();
            claims.push(Claim { name, what, differences, obstacle: None, losses: Vec::new(), spec, stays });
        }
    }
    for (name, wanted) in target.stack.volumes.iter().filter(|(_, it)| !it.external) {
        let Some(found) = observed.volumes.get(name).filter(|it| it.agent.is_none()) else { continue };
        if let Some(made) = &found.compose {
            let differences = volume_differences(wanted, made, target.mask);
            let spec = SpecHash::of(if differences.is_empty() { wanted } else { made });
            let (what, name) = (Claimed::Volume, name.clone());
            claims.push(Claim {
                name,
                what,
                differences,
                obstacle: None,
                losses: Vec::new(),
                spec,
                stays: true,
            });
        }
    }
    claims
}

fn container_claim(target: &Target<'_>, observed: &Observed, candidate: &Candidate) -> Option<Claim> {
    let Candidate { instance, by_name, defaults } = candidate;
    let InstanceId { workload: name, slot } = &instance.instance;
    let workload = target.stack.workloads.get(name)?;
    let mut differences = diff::instance_differences(
        (&workload.container, target.stack.format),
        defaults,
        instance,
        &observed.engine_traits,
        target.mask,
    );
    // A rollback makes containers from the digest in place of the manifest's reference.
    let pinned = target.images.get(&workload.container.image);
    differences.retain(|it| it.field != "image" || pinned != Some(&instance.config.image));
    let stays = differences.iter().all(is_live);
    let want = container_name(target.stack, name, *slot);
    if instance.name != want {
        let found = instance.name.clone();
        differences.push(FieldDifference { field: "name".into(), want, found });
    }
    Some(Claim {
        name: instance.name.clone(),
        what: Claimed::Container {
            id: instance.id.clone(),
            instance: instance.instance.clone(),
            by_name: *by_name,
            activity: Activity::of(target, observed, workload, instance),
        },
        differences,
        obstacle: data_elsewhere(workload, &instance.config),
        losses: losses(workload, &instance.config),
        spec: if stays { workload.spec() } else { instance.config.spec() },
        stays,
    })
}

/// Whether a field can be changed on a live container.
fn is_live(difference: &FieldDifference) -> bool {
    let field = &difference.field;
    let is_network =
        field.starts_with("networks.") && [".attached", ".aliases"].iter().any(|it| field.ends_with(it));
    is_network || field.starts_with("resources.") || field == "restart"
}

/// The container keeps its data in another folder of the host than the one that Git names. A relative path that it writes to
/// is a folder of the application's own here, and is empty. To replace such a container would look like the loss of all its
/// data.
fn data_elsewhere(workload: &Workload, found: &Container) -> Option<String> {
    // `/var/run` is a link on every host.
    let on_host = |path: &str| match path.strip_prefix("/var/run/") {
        Some(rest) => slashless(&format!("/run/{rest}")).to_owned(),
        None => slashless(path).to_owned(),
    };
    workload.container.mounts.iter().find_map(|wanted| {
        let (there, path) = bind_at(found, &wanted.target)?;
        let named = match &wanted.source {
            MountSource::AppFolder(folder) => {
                format!("`./{folder}` in Git is a folder of the agent's own")
            }
            MountSource::Bind { path: named, .. }
                if on_host(named) != on_host(path) && !wanted.read_only && !there.read_only =>
            {
                format!("Git names {named}")
            }
            _ => return None,
        };
        let target = &wanted.target;
        Some(format!(
            "what it keeps at {target} lies in {path} on the host, while {named}; name {path} in Git instead"
        ))
    })
}

/// The mount of a path of the host at a target.
fn bind_at<'a>(container: &'a Container, target: &str) -> Option<(&'a Mount, &'a String)> {
    let found = container.mounts.iter().find(|mount| slashless(&mount.target) == slashless(target))?;
    match &found.source {
        MountSource::Bind { path, .. } => Some((found, path)),
        MountSource::Volume { .. }
        | MountSource::Anonymous
        | MountSource::Empty
        | MountSource::Tmpfs { .. }
        | MountSource::Image(_)
        | MountSource::Content(_)
        | MountSource::Secret(_)
        | MountSource::InPlace { .. }
        | MountSource::AppFolder(_) => None,
    }
}

/// The mounts with files of Git where a container has a path of the host, each with that path. A file that is on the host alone, because
/// Git ignores it, is not in a new container.
pub fn mounts_in_place_of_binds<'a>(
    workload: &'a Workload,
    found: &'a Container,
) -> impl Iterator<Item = (&'a Mount, &'a String)> {
    let is_of_git = |mount: &&Mount| {
        matches!(mount.source, MountSource::Content(_) | MountSource::Secret(_) | MountSource::InPlace { .. })
    };
    let mounts = workload.container.mounts.iter().filter(is_of_git);
    mounts.filter_map(move |mount| bind_at(found, &mount.target).map(|(_, path)| (mount, path)))
}

fn losses(workload: &Workload, found: &Container) -> Vec<Loss> {
    let loss = |(mount, path): (&Mount, &String)| {
        let Mount { target, source, read_only: _ } = mount.clone();
        Loss { source, target, path: path.clone() }
    };
    mounts_in_place_of_binds(workload, found).map(loss).collect()
}

fn slashless(path: &str) -> &str {
    path.trim_end_matches('/')
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { source: _, target, path } = self;
        write!(f, "{target} will have the files of Git only, and nothing else that is in {path} on the host")
    }
}

/// One line of what becomes of it, one for each field that differs, and one for each loss.
impl fmt::Display for Claim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (kind, fate) = match (&self.what, self.differences.is_empty(), self.stays) {
            (Claimed::Container { activity, .. }, true, _) => {
                ("container", format!("as in Git, {}", activity.stays()))
            }
            (Claimed::Container { activity, .. }, false, true) => {
                ("container", format!("{}, set right in place", activity.stays()))
            }
            (Claimed::Container { activity: Activity::Stopped, .. }, false, false) => {
                ("container", "is stopped, replaced by one that is started".to_owned())
            }
            (Claimed::Container { .. }, false, false) => ("container", "replaced".to_owned()),
            (Claimed::Network { .. }, true, _) => ("network", "as in Git, kept".to_owned()),
            (Claimed::Network { .. }, false, _) => ("network", "recreated".to_owned()),
            (Claimed::Volume, true, _) => ("volume", "as in Git, kept".to_owned()),
            (Claimed::Volume, false, _) => {
                ("volume", "kept as it is, although it is not as in Git".to_owned())
            }
        };
        write!(f, "{kind} {}: {fate}", self.name)?;
        for difference in &self.differences {
            let field = &difference.field;
            if is_variable(field) || field.starts_with("labels.") {
                write!(f, "\n  {field} differs")?;
            } else {
                write!(f, "\n  {}", difference.sentence())?;
            }
        }
        for loss in &self.losses {
            write!(f, "\n  {loss}")?;
        }
        match &self.obstacle {
            Some(obstacle) => write!(f, "\n  cannot be taken over: {obstacle}"),
            None => Ok(()),
        }
    }
}
