//! The places that containers write to and that outlive them: volumes, and folders of the host; and the applications that Git
//! gives them to.

use std::{
    collections::BTreeMap,
    fmt,
    path::{Path, PathBuf},
    sync::Arc,
};

use driftless_model::{
    AppName, Container, HostMount, HostSource, MountSource, Stack, Workload, WorkloadName, is_system_path,
};

/// A volume or folder that outlives the containers that mount it.
///
/// Of several places that a sentence could name, it names the first one in this order: folders come before volumes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Place {
    /// A path of the host.
    HostPath(String),
    /// A path in the application's own folder. One of another application with the same name is another place.
    OwnFolder(String),
    /// A path of a node of a Swarm, for sentences only. Stacks have it as [`Place::HostPath`].
    NodePath(String),
    /// By the volume's name in Docker.
    Volume(String),
}

impl Place {
    pub(crate) fn is_volume(&self) -> bool {
        matches!(self, Self::Volume(_))
    }

    pub(crate) fn is_in_own_folder(&self) -> bool {
        matches!(self, Self::OwnFolder(_))
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::HostPath(path) => write!(f, "`{path}` of the host"),
            Self::OwnFolder(path) => write!(f, "`{path}` of the application's folder"),
            Self::NodePath(path) => write!(f, "`{path}` of a node"),
            Self::Volume(name) => write!(f, "the volume `{name}`"),
        }
    }
}

/// The place that a mount of a container of the host writes to.
pub(crate) fn written_place(mount: &HostMount) -> Option<Place> {
    if mount.read_only { None } else { place_of(&mount.source) }
}

/// The place that a container of the host writes to with a writable mount of this.
pub(crate) fn place_of(source: &HostSource) -> Option<Place> {
    match source {
        HostSource::Volume(name) => Some(Place::Volume(name.clone())),
        HostSource::Path(path) => path_place(path),
    }
}

/// A path as the engine lists it, which a manifest may write with another `/`.
fn path_place(path: &str) -> Option<Place> {
    let clean: PathBuf = Path::new(path).components().collect();
    let path = clean.to_string_lossy();
    (!is_system_path(&path)).then(|| Place::HostPath(path.into_owned()))
}

/// The places that keep what a container writes to them.
pub(crate) fn places(container: &Container) -> Vec<Place> {
    let place = |source: &MountSource| match source {
        MountSource::Volume { name, no_copy: _ } => Some(Place::Volume(name.clone())),
        MountSource::Bind { path, .. } => path_place(path),
        MountSource::AppFolder(path) => Some(Place::OwnFolder(path.clone())),
        MountSource::Anonymous
        | MountSource::Image(_)
        | MountSource::Empty
        | MountSource::Tmpfs { .. }
        | MountSource::Content(_)
        | MountSource::Secret(_)
        | MountSource::InPlace { .. } => None,
    };
    container
        .mounts
        .iter()
        .filter(|mount| !mount.read_only)
        .filter_map(|mount| place(&mount.source))
        .collect()
}

pub(crate) fn writes_nothing(workload: &Workload) -> bool {
    workload.containers().all(|container| places(container).is_empty())
}

pub(crate) fn writes_to(workload: &Workload, place: &Place) -> bool {
    workload.containers().any(|container| places(container).contains(place))
}

/// The stacks of several applications.
pub(crate) type Stacks = BTreeMap<AppName, Arc<Stack>>;

/// Whether Git gives a place to services of an application.
pub(crate) fn is_given_to_services(stacks: &Stacks, app: &AppName, place: &Place) -> bool {
    let is_writer = |workload: &Workload| workload.job_or_template().is_none() && writes_to(workload, place);
    stacks.get(app).is_some_and(|stack| stack.workloads.values().any(is_writer))
}

/// Whether Git gives a place to the application of a container. The run of a Job that writes there ends by itself, and may share data
/// with a service; a service that Git does not have any more may not, only because a Job of its application works on them.
pub(crate) fn is_given_to(stacks: &Stacks, app: &AppName, workload: &WorkloadName, place: &Place) -> bool {
    let is_of_job = |stack: &Arc<Stack>| jobs_of(stack, workload).any(|job| writes_to(job, place));
    is_given_to_services(stacks, app, place) || stacks.get(app).is_some_and(is_of_job)
}

/// Whether a folder of the host is for several applications, such as one of films: Git gives it to two besides the one that needs it and the
/// owner of a container that nobody ends, as its application has left Git or was forgotten. One may make backups of a database, which has
/// got another application.
pub(crate) fn is_common(stacks: &Stacks, [own, owner]: [&AppName; 2], place: &Place) -> bool {
    let has_it = |app: &&AppName| *app != own && is_given_to_services(stacks, app, place);
    !place.is_volume() && !stacks.contains_key(owner) && stacks.keys().filter(has_it).count() >= 2
}

/// Whether a workload is a Job of a stack, or a run of one.
pub(crate) fn is_job_of(stack: &Stack, workload: &WorkloadName) -> bool {
    jobs_of(stack, workload).next().is_some()
}

fn jobs_of<'a>(stack: &'a Stack, run: &'a WorkloadName) -> impl Iterator<Item = &'a Workload> {
    let jobs = stack.workloads.iter().filter(|(_, workload)| workload.job_or_template().is_some());
    jobs.filter(move |(name, _)| is_run_of(stack, name, run)).map(|(_, job)| job)
}

/// Whether a workload is a Job, or has the name of a run of it, which ends with a number.
fn is_run_of(stack: &Stack, job: &WorkloadName, workload: &WorkloadName) -> bool {
    let plain = stack.inventory.workloads.get(job).map_or(job.as_str(), |object| &object.name);
    let number = workload.as_str().strip_prefix(plain).and_then(|rest| rest.strip_prefix('-'));
    let is_number = |number: &str| number.starts_with(|first: char| first.is_ascii_digit());
    workload == job || number.is_some_and(is_number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn place_is_shown_in_the_words_of_a_sentence() {
        let shown = |source: HostSource| place_of(&source).unwrap().to_string();
        assert_eq!(shown(HostSource::Path("/srv//films/".into())), "`/srv/films` of the host");
        assert_eq!(shown(HostSource::Volume("shop_db".into())), "the volume `shop_db`");
        assert_eq!(Place::OwnFolder("data".into()).to_string(), "`data` of the application's folder");
        assert_eq!(Place::NodePath("/srv".into()).to_string(), "`/srv` of a node");
    }

    #[test]
    fn only_a_volume_is_one_and_comes_after_folders() {
        let paths =
            [Place::HostPath("/z".into()), Place::OwnFolder("z".into()), Place::NodePath("/z".into())];
        let volume = Place::Volume("a".into());
        assert!(volume.is_volume() && !volume.is_in_own_folder());
        assert!(paths.iter().all(|path| !path.is_volume() && *path < volume));
        // A name that reads like another place changes nothing.
        assert!(!Place::HostPath("the volume `a`".into()).is_volume());
    }
}
