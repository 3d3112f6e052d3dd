//! The mounted files of a target: on the disk before a container starts that mounts them.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use tokio::task::JoinError;

use driftless_files::AppSpec;
use driftless_git as git;
use driftless_git::CommitSource;
use driftless_model::{
    AppName, CommitId, Container, ContentId, Contents, EngineKind, EventKind, Instance, MountSource,
    NestedMount, Observed, Record, Stack, StackHash, Timestamp, Workload, WorkloadName,
};
use driftless_store as store;
use driftless_store::{AppFileChange, LackingSecrets, Prepared};

use crate::{
    context::AppContext,
    desired::Desired,
    disk_turn::DiskTurn,
    error::chain,
    former_folder,
    repository::RepositoryLink,
    revisions::{
        last_version::{reached_last, reached_stack},
        target::TargetRevision,
    },
};

/// Mounted files that no revision and no container uses are removed if they were not asked for within this time. The files of
/// a stack that waits, for its adoption for example, are used by neither.
pub(crate) const CONTENT_AGE: Duration = Duration::from_hours(24);

/// The time after which the files of a stack are asked for again, far below [`CONTENT_AGE`].
const CHECK_INTERVAL: Duration = Duration::from_hours(6);

/// The time after which a stack is prepared again that lacks a secret: its source may have the value again.
const LACKING_INTERVAL: Duration = Duration::from_mins(1);

/// The workloads that lack a mounted secret, each with the first one.
type Lacking = BTreeMap<WorkloadName, ContentId>;

/// Services of an older version.
type OlderServices = BTreeMap<WorkloadName, Workload>;

/// The mounted files of a target after [`Mounts::prepare`]: they are on the disk, except for these.
#[derive(Default)]
pub(crate) struct MountedFiles {
    /// The workloads that lack a secret.
    pub(crate) lacking: Lacking,
    /// Nothing was written for the workloads that mount paths of the application's folder: it goes on with the folder of this application,
    /// which is not gone yet.
    pub(crate) awaited: Option<AppName>,
}

/// The stack whose mounted files are on the disk.
#[derive(Default)]
pub(crate) struct Mounts {
    prepared: Option<PreparedMounts>,
    /// The application's folder may be on a disk of its own, such as a network share.
    disk: DiskTurn,
    /// The files that have left Git while they are mounted, which were reported.
    left_git: Vec<AppFileChange>,
}

/// A stack whose mounted files were on the disk at a time.
struct PreparedMounts {
    stack: StackHash,
    at: Timestamp,
    /// The paths whose files have stayed for containers of other versions.
    kept: BTreeSet<String>,
    /// The services of the version before whose secrets were written.
    older: BTreeSet<WorkloadName>,
    lacking: Lacking,
    /// The login of a registry is missing. The services go on: a pull says it.
    lacks_login: bool,
    /// The application's folder was left out.
    is_without_folder: bool,
}

impl PreparedMounts {
    /// Whether the files of a stack need no check. They do when a container is gone that older files have stayed for, and for services of
    /// the version before.
    fn covers(
        &self,
        stack: &StackHash,
        kept: &BTreeSet<String>,
        older: &OlderServices,
        now: Timestamp,
    ) -> bool {
        let is_complete = self.lacking.is_empty() && !self.lacks_login;
        let interval = if is_complete { CHECK_INTERVAL } else { LACKING_INTERVAL };
        self.stack == *stack
            && self.kept == *kept
            && self.older.iter().eq(older.keys())
            && self.at.is_recent(interval, now)
    }
}

impl Mounts {
    /// Checks all files again before the next round.
    pub(crate) fn forget(&mut self) {
        self.prepared = None;
    }

    /// Writes the mounted files of a target to the disk, once for each stack, and from time to time again. The copies that only
    /// containers of other versions mount stay until these are gone. An error is in words.
    pub(crate) async fn prepare<S: CommitSource>(
        &mut self,
        context: &AppContext,
        repository: Option<&RepositoryLink<S>>,
        desired: &Desired,
        target: &TargetRevision,
        observed: &Observed,
        record: &Record,
    ) -> Result<MountedFiles, String> {
        let now = context.now();
        // A suspended application is left alone, and so is its folder.
        if target.policy.suspended {
            return Ok(MountedFiles::default());
        }
        let rendered = desired.rendered();
        let present = || observed.containers().map(|found| found.config.as_ref());
        if rendered.admission.restricts_bind_mounts()
            && let Some(nested) = nested_across_versions(&target.stack, present())
        {
            return Err(format!(
                "cannot mount {nested}, while one of the two is only mounted by containers of another version \
                 (`policy.bindMounts`); first deploy a commit without either mount"
            ));
        }
        let kept = mounted_by_others(&target.stack, observed);
        let older = older_services(context, target, observed, record);
        let older = Arc::new(older.map_err(|error| chain(&error))?);
        let covers = |prepared: &&PreparedMounts| prepared.covers(&target.hash, &kept, &older, now);
        let prepared = self.prepared.as_ref().filter(covers);
        if let Some(prepared) = prepared.filter(|prepared| !prepared.is_without_folder) {
            return Ok(MountedFiles { lacking: prepared.lacking.clone(), awaited: None });
        }
        let disk = &self.disk;
        require_folders(context, disk, &target.stack, observed).await?;
        let awaited = former_folder::take_over(context, disk, &target.stack, &target.policy, observed);
        let awaited = awaited.await?;
        if let Some(prepared) = prepared.filter(|_| awaited.is_some()) {
            return Ok(MountedFiles { lacking: prepared.lacking.clone(), awaited });
        }
        let stack = match &awaited {
            Some(_) => Arc::new(without_folder(&target.stack)),
            None => Arc::clone(&target.stack),
        };
        // A failure may come after some of the files: then also those of the stack before have to be written again.
        self.prepared = None;
        let mut written = write((context, disk), &stack, Arc::clone(&rendered.contents), kept.clone()).await;
        let mut changes = Vec::new();
        // After a time-out the write goes on, and a second one would wait for it as long.
        if !written.as_ref().is_ok_and(|it| it.lacking.is_empty())
            && !disk.is_taken()
            && let Some(repository) = repository
        {
            // Secrets are kept in memory only, and those of an older commit are not among the newest commit's: render
            // the older commit once more.
            let again = contents_of(repository, &target.commit.id, rendered.spec.clone()).await;
            changes = written.as_mut().map(|it| std::mem::take(&mut it.changes)).unwrap_or_default();
            written = match (again, written) {
                (Ok(again), _) => write((context, disk), &stack, Arc::new(again), kept.clone()).await,
                (Err(again), Err(error)) => Err(format!("{error}; {}", chain(&again))),
                (Err(again), Ok(lacking)) => {
                    let (app, error) = (context.name(), chain(&again));
                    tracing::warn!(%app, error, "could not render an older commit again for its secrets");
                    Ok(lacking)
                }
            };
        }
        changes.extend(written.as_mut().map(|it| std::mem::take(&mut it.changes)).unwrap_or_default());
        report(context, &mut self.left_git, changes);
        let LackingSecrets { mounted: mut lacking, logins } = written?.lacking;
        // A Swarm creates its secrets from the files of all its services.
        if target.policy.engine == EngineKind::Swarm
            && let Some(id) = lacking.values().next()
        {
            return Err(chain(&store::Error::NoSuchSecret { id: id.clone() }));
        }
        if !older.is_empty() {
            let mut of_older = write_older((context, disk), &older, Arc::clone(&rendered.contents)).await?;
            if !of_older.is_empty()
                && let Some(repository) = repository
                && let Some(reached) = reached_last(context, target, record).map_err(|error| chain(&error))?
            {
                let again = contents_of(repository, &reached.commit.id, rendered.spec.clone()).await;
                let log = |error: &git::Error| {
                    let (app, error) = (context.name(), chain(error));
                    tracing::warn!(%app, error, "could not render the last version again for its secrets");
                };
                let again = again.inspect_err(log).unwrap_or_default();
                of_older = write_older((context, disk), &older, Arc::new(again)).await?;
            }
            // Those that the target has are held by their secrets in the target.
            of_older.retain(|name, _| !target.stack.workloads.contains_key(name));
            lacking.extend(of_older);
        }
        self.prepared = Some(PreparedMounts {
            stack: target.hash.clone(),
            at: now,
            kept,
            older: older.keys().cloned().collect(),
            lacking: lacking.clone(),
            lacks_login: !logins.is_empty(),
            is_without_folder: awaited.is_some(),
        });
        Ok(MountedFiles { lacking, awaited })
    }
}

/// Says once what users may look for.
fn report(context: &AppContext, known: &mut Vec<AppFileChange>, changes: Vec<AppFileChange>) {
    let has_left = |change: &AppFileChange| matches!(change, AppFileChange::LeftGit { .. });
    for change in &changes {
        if !(has_left(change) && known.contains(change)) {
            let (reason, message) = words(change);
            context.event(EventKind::Warning, reason, context.name().as_str(), &message);
        }
    }
    *known = changes.into_iter().filter(has_left).collect();
}

/// The reason and the message of the event about a file.
fn words(change: &AppFileChange) -> (&'static str, String) {
    match change {
        AppFileChange::Kept { path, at } => (
            "FileKept",
            format!(
                "`{path}` was changed or made by a container, and this commit changes it too: the version of Git has replaced it, and the \
                 former one is `{at}` in the folder of the application"
            ),
        ),
        AppFileChange::LeftGit { path } => (
            "FileLeftGit",
            format!(
                "`{path}` is mounted, and Git does not have it any more: the copy that containers have stays. Bring the file back, or \
                 remove its mount"
            ),
        ),
    }
}

/// Fails if a path in the application's own folder is missing although the target and a present container mount it. The engine does not
/// start the container without it. In a new folder a database would begin empty, and the disk would hide it later.
async fn require_folders(
    context: &AppContext,
    disk: &DiskTurn,
    target: &Arc<Stack>,
    observed: &Observed,
) -> Result<(), String> {
    let containers = target.workloads.values().flat_map(Workload::containers);
    let wanted: BTreeSet<String> = containers.flat_map(Container::app_folders).map(str::to_owned).collect();
    if wanted.is_empty() {
        return Ok(());
    }
    let mut mounted: BTreeMap<String, String> = BTreeMap::new();
    for instance in observed.containers() {
        for path in instance.config.app_folders().filter(|path| wanted.contains(*path)) {
            mounted.entry(path.to_owned()).or_insert_with(|| instance.name.clone());
        }
    }
    let (app, contents, target) = (context.name().clone(), context.contents().clone(), Arc::clone(target));
    let folder = contents.app_folder(&app);
    let look = move || {
        // A disk that hangs is found here, within a minute: the time of the copies has a far higher limit.
        for path in &wanted {
            contents.app_folder(&app).join(path).symlink_metadata().ok();
        }
        let paths: BTreeSet<&str> = mounted.keys().map(String::as_str).collect();
        let missing = contents.missing_app_folder(&app, &target.app_files, &paths);
        let missing = missing.and_then(|path| mounted.get_key_value(path));
        Ok(missing.map(|(path, container)| (path.clone(), container.clone())))
    };
    let Some((path, container)) = disk.call(&folder, look).await? else { return Ok(()) };
    Err(format!(
        "{} is missing, and container {container} mounts it: mount its disk, or if it may begin empty or as Git has it, \
         remove the container with `docker rm -f {container}`",
        folder.join(path).display()
    ))
}

/// A stack without the workloads that mount paths of the application's folder, and without the files in it.
fn without_folder(stack: &Stack) -> Stack {
    let mut without = stack.clone();
    without.app_files.clear();
    without.workloads.retain(|_, workload| {
        workload.containers().all(|container| container.app_folders().next().is_none())
    });
    without
}

/// The paths in the application's own folder that its containers mount and the target does not: those of the version before
/// during a rollout, those whose removal waits, and runs that began with an older commit.
fn mounted_by_others(target: &Stack, observed: &Observed) -> BTreeSet<String> {
    let wanted = target.app_folders();
    let mounted = observed.containers().flat_map(|instance| instance.config.app_folders());
    mounted.filter(|path| !wanted.contains(path)).map(str::to_owned).collect()
}

/// The services with secrets that have containers of the version before, and that the target does not have any more, or in another version:
/// they have to stay while the target waits, and after a restart of the host nothing else writes their secrets.
fn older_services(
    context: &AppContext,
    target: &TargetRevision,
    observed: &Observed,
    record: &Record,
) -> Result<OlderServices, store::Error> {
    let instances = observed.instances.values();
    let of_target = |instance: &Instance| target.hashes.specs.get(&instance.instance.workload);
    let older = instances.filter(|instance| of_target(instance) != Some(&instance.spec));
    let older: BTreeSet<&WorkloadName> = older.map(|instance| &instance.instance.workload).collect();
    if older.is_empty() {
        return Ok(OlderServices::new());
    }
    let before = reached_stack(context, target, record)?;
    let mut services = before.map(|before| before.workloads).unwrap_or_default();
    services.retain(|name, workload| {
        let is_desired = target.stack.workloads.get(name).is_some_and(|wanted| wanted.is_like(workload));
        older.contains(name)
            && !is_desired
            && workload.job_or_template().is_none()
            && mounts_secrets(workload)
    });
    Ok(services)
}

/// Whether a workload cannot start on a host that was restarted until its secrets are written again.
pub(crate) fn mounts_secrets(workload: &Workload) -> bool {
    let mut mounts = workload.containers().flat_map(|container| &container.mounts);
    mounts.any(|mount| matches!(mount.source, MountSource::Secret(_)))
        || workload.in_place.values().any(|file| file.secret)
}

/// A mount inside of a writable one, of which one is the target's and the other that of a container or run of another version. The
/// admission policy has checked those within the target, and the target ends those within the containers that are there already.
fn nested_across_versions<'c>(
    target: &'c Stack,
    present: impl Iterator<Item = &'c Container>,
) -> Option<NestedMount> {
    let containers = |are_runs: bool| -> Vec<&'c Container> {
        let workloads = target.workloads.values().filter(|workload| workload.is_run() == are_runs);
        workloads.flat_map(Workload::containers).collect()
    };
    let (of_manifests, runs) = (containers(false), containers(true));
    let present: Vec<&Container> = present.collect();
    let mut known = NestedMount::all(of_manifests.iter().copied());
    known.extend(NestedMount::all(present.iter().copied()));
    let all = of_manifests.into_iter().chain(runs).chain(present);
    NestedMount::all(all).into_iter().find(|nested| !known.contains(nested))
}

async fn write(
    (context, disk): (&AppContext, &DiskTurn),
    stack: &Arc<Stack>,
    contents: Arc<Contents>,
    in_use: BTreeSet<String>,
) -> Result<Prepared, String> {
    let (directory, stack) = (context.contents().clone(), Arc::clone(stack));
    let folder = directory.app_folder(context.name());
    disk.write(&folder, move || directory.prepare(&stack, &contents, &in_use)).await
}

async fn write_older(
    (context, disk): (&AppContext, &DiskTurn),
    services: &Arc<OlderServices>,
    contents: Arc<Contents>,
) -> Result<Lacking, String> {
    let (directory, services) = (context.contents().clone(), Arc::clone(services));
    let folder = directory.app_folder(context.name());
    disk.write(&folder, move || directory.prepare_older(&services, &contents)).await
}

/// Renders one application of one commit again, for the files that it mounts. A defect of the rendering leaves it without any.
async fn contents_of<S: CommitSource>(
    repository: &RepositoryLink<S>,
    commit: &CommitId,
    newest: AppSpec,
) -> Result<Contents, git::Error> {
    let checkout = repository.source.local(commit).await?;
    let (app, older_commits) = (newest.name.clone(), repository.older_commits.clone());
    let render = move || older_commits.contents_at(checkout.files.as_ref(), &newest);
    let rendered = tokio::task::spawn_blocking(render).await;
    let log = |error: &JoinError| tracing::error!(%app, %error, "the rendering of an older commit panicked");
    Ok(rendered.inspect_err(log).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use driftless_model::{Completion, Location, Mount, PullPolicy, Strategy};
    use serde_json::json;

    use super::*;
    use crate::{desired::tests::stack, former_folder::tests::mounting};

    #[test]
    fn awaited_folder_is_left_out_of_the_files_to_write() {
        let mut stack = mounting();
        let mut other = stack.workloads.values().next().unwrap().clone();
        other.container.mounts.clear();
        stack.workloads.insert("api".into(), other);
        stack.app_files.insert("data/a".to_owned(), ContentId("a".to_owned()));
        let without = without_folder(&stack);
        let names: Vec<&str> = without.workloads.keys().map(WorkloadName::as_str).collect();
        assert_eq!(names, ["api"]);
        assert!(without.app_files.is_empty());
    }

    #[test]
    fn nested_mounts_of_two_versions_are_found() {
        let container = |path: &str| {
            let source = MountSource::AppFolder(path.to_owned());
            let mount = Mount { target: "/a".to_owned(), source, read_only: false };
            Container { mounts: vec![mount], ..Container::default() }
        };
        let target = |path: &str| {
            let mut target = stack("one");
            let workload = json!({
                "origin": Location::default(), "replicas": 1, "container": container(path),
                "strategy": Strategy::Recreate, "progressDeadline": Duration::from_mins(10),
                "pull": PullPolicy::IfNotPresent, "completion": Completion::OnSuccess,
            });
            target.workloads.insert("web".into(), serde_json::from_value(workload).unwrap());
            target
        };
        let found = |path: &str, present: &[&str]| {
            let present: Vec<Container> = present.iter().map(|path| container(path)).collect();
            nested_across_versions(&target(path), present.iter())
        };
        let nested = NestedMount { path: "data/x".to_owned(), folder: "data".to_owned() };
        assert_eq!(found("data/x", &["data"]), Some(nested.clone()));
        assert_eq!(found("data", &["data/x"]), Some(nested));
        assert_eq!(found("data", &["data"]), None);
        assert_eq!(found("site", &["data"]), None);
        assert_eq!(found("data/x", &["data", "data/x"]), None, "the target ends it");
    }

    #[test]
    fn files_of_a_waiting_stack_are_asked_for_again() {
        let began = Timestamp(Duration::from_hours(1000).as_millis().try_into().unwrap());
        let kept = BTreeSet::new();
        let stack = StackHash("shop".to_owned());
        let (older, none) = (BTreeSet::new(), OlderServices::new());
        let mut prepared = PreparedMounts {
            stack,
            at: began,
            kept: kept.clone(),
            older,
            lacking: Lacking::new(),
            lacks_login: false,
            is_without_folder: false,
        };
        let covers = |stack: &str, age: Duration| {
            prepared.covers(&StackHash(stack.to_owned()), &kept, &none, began.after(age))
        };
        assert!(covers("shop", Duration::from_mins(5)));
        assert!(!covers("blog", Duration::from_mins(5)), "another stack has other files");
        // The clean-up must not find a file that no check has touched for so long.
        assert!(!covers("shop", CONTENT_AGE / 2));
        let before = Timestamp(began.0 - 1);
        assert!(!prepared.covers(&prepared.stack, &kept, &none, before), "the clock was set back");
        let mounted = BTreeSet::from(["site".to_owned()]);
        assert!(!prepared.covers(&prepared.stack, &mounted, &none, began), "a container mounts older files");
        prepared.lacks_login = true;
        assert!(!prepared.covers(&prepared.stack, &kept, &none, began.after(Duration::from_mins(1))));
        prepared.lacks_login = false;
        prepared.lacking.insert("web".into(), ContentId("db".to_owned()));
        assert!(!prepared.covers(&prepared.stack, &kept, &none, began.after(Duration::from_mins(1))));
    }
}
