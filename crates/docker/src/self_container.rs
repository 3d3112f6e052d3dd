//! The agent's own container: whether this process runs in a container of the engine that it talks to, in which one, and
//! where on the host the folders lie that it mounts into other containers. The engine takes the source of a bind mount
//! for a path of its host, so a path of this process is only useful if one of its own mounts leads there.
//!
//! Nothing is guessed: a folder that is on no mount is refused when it is needed, and never created as an empty one.

use std::{
    collections::{BTreeMap, BTreeSet},
    env,
    ffi::OsStr,
    fs,
    path::{Path, PathBuf},
    sync::Once,
};

use bollard::{models as api, query_parameters as query};
use driftless_model::ContainerId;
use nix::unistd::gethostname;

use crate::{
    call_error::CallError,
    deadline::{DEADLINE, within},
    mount_paths::MountPaths,
};

/// The container that this process runs in, as the engine describes it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SelfContainer {
    pub id: Option<ContainerId>,
    /// The agent's folders as the host sees them.
    pub paths: Option<MountPaths>,
    /// Folders that the host cannot see.
    unreachable: Vec<UnreachableFolder>,
    /// This process runs in one of them, and nothing says in which one.
    doubtful: BTreeSet<ContainerId>,
}

/// A folder of the agent that lies on no mount.
#[derive(Clone, Debug, PartialEq, Eq)]
struct UnreachableFolder {
    path: PathBuf,
    advice: String,
}

impl SelfContainer {
    /// Translates the agent's folders by the mounts of its container.
    fn of(found: &api::ContainerInspectResponse, paths: &MountPaths) -> Self {
        let mut unreachable = Vec::new();
        let mut host = |path: &Path| {
            on_host(found, path).unwrap_or_else(|| {
                unreachable.push(UnreachableFolder { path: path.to_owned(), advice: advice(path) });
                path.to_owned()
            })
        };
        let MountPaths { content, secret, app } = paths;
        let translated = MountPaths { content: host(content), secret: host(secret), app: host(app) };
        let id = found.id.clone().map(ContainerId);
        Self { id, paths: Some(translated), unreachable, doubtful: BTreeSet::new() }
    }

    /// Why this agent does not stop a container, if it runs in it or may do so.
    pub(crate) fn stop_objection(&self, id: &ContainerId) -> Option<&'static str> {
        if self.id.as_ref() == Some(id) {
            return Some("the agent runs in it and could not start it again");
        }
        self.doubtful.contains(id).then_some(
            "the agent may run in it and could not start it again: stop it with `docker stop`, or give the agent a mount that no other container in its network has",
        )
    }

    /// Why the engine cannot mount a folder of the agent into a container, if it cannot.
    pub(crate) fn objection(&self, folder: &Path) -> Option<String> {
        let found = self.unreachable.iter().find(|unreachable| unreachable.path == folder)?;
        Some(format!(
            "{} is inside the agent's own container and on none of its mounts, so the engine cannot reach it: {}",
            found.path.display(),
            found.advice
        ))
    }
}

/// Reports once that the engine does not have the container of this process: every connection asks, and each time that the
/// engine is back.
static REPORT_FOREIGN: Once = Once::new();

/// Reports once that several containers may be the one of this process.
static REPORT_DOUBT: Once = Once::new();

/// A container that shares the network of another one.
struct NetworkUser {
    id: String,
    /// The id or name of the other one.
    host: String,
}

impl NetworkUser {
    fn uses(&self, other: &api::ContainerInspectResponse) -> bool {
        let name = other.name.as_deref().map(|name| name.trim_start_matches('/'));
        let has_id = other.id.as_deref().is_some_and(|id| id.starts_with(&self.host));
        has_id || name == Some(self.host.as_str())
    }
}

/// Asks the engine which of its containers this process runs in.
pub(crate) async fn find(
    docker: &bollard::Docker,
    candidates: &[String],
    paths: &MountPaths,
) -> Result<SelfContainer, CallError> {
    if candidates.is_empty() {
        return Ok(SelfContainer::default());
    }
    let layer = own_layer();
    let has_own_layer =
        |found: &api::ContainerInspectResponse| layer.as_deref().and_then(|layer| has_layer(found, layer));
    let mut shares_network = false;
    let mut possible = Vec::new();
    for id in candidates {
        let Some(found) = inspect(docker, id).await? else { continue };
        match has_own_layer(&found) {
            Some(true) => return Ok(described(&found, paths)),
            // This process shares that container's network, and with it the host name and the files about it.
            Some(false) => shares_network = true,
            None => add(&mut possible, found),
        }
    }
    if shares_network || !possible.is_empty() {
        for user in network_users(docker).await? {
            let is_possible = possible.iter().any(|found| user.uses(found));
            if !shares_network && !is_possible {
                continue;
            }
            let Some(found) = inspect(docker, &user.id).await? else { continue };
            match has_own_layer(&found) {
                Some(true) => return Ok(described(&found, paths)),
                None if is_possible => add(&mut possible, found),
                Some(false) | None => {}
            }
        }
    }
    let mounts = mounts_in(&fs::read_to_string("/proc/self/mountinfo").unwrap_or_default());
    // An engine follows links to the place of a mount: `/var/run` often is one.
    let resolve = |path: &Path| fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let command: Vec<_> = env::args_os().map(|word| word.to_string_lossy().into_owned()).collect();
    if let Some(found) = closest(&possible, &mounts, &resolve, &command) {
        return Ok(described(found, paths));
    }
    if !possible.is_empty() {
        let names: Vec<_> = possible.iter().filter_map(|found| found.name.as_deref()).collect();
        REPORT_DOUBT.call_once(|| {
            tracing::warn!(
                containers = names.join(" "),
                "the agent runs in one of these containers, and their mounts and commands do not tell in which one: its paths are not translated"
            );
        });
        let doubtful = possible.into_iter().filter_map(|found| found.id).map(ContainerId).collect();
        return Ok(SelfContainer { doubtful, ..SelfContainer::default() });
    }
    REPORT_FOREIGN.call_once(|| {
        tracing::info!("running in a container that the engine does not know: its paths are not translated");
    });
    Ok(SelfContainer::default())
}

/// Adds a container once: a candidate may be known by its id and its name.
fn add(all: &mut Vec<api::ContainerInspectResponse>, found: api::ContainerInspectResponse) {
    if all.iter().all(|known| known.id != found.id) {
        all.push(found);
    }
}

async fn inspect(
    docker: &bollard::Docker,
    id: &str,
) -> Result<Option<api::ContainerInspectResponse>, CallError> {
    let options = None::<query::InspectContainerOptions>;
    let call = async { docker.inspect_container(id, options).await.map_err(CallError::from) };
    match within(DEADLINE, call).await {
        Ok(found) => Ok(Some(found)),
        Err(error) if error.is_not_found() => Ok(None),
        Err(error) => Err(error),
    }
}

/// The running containers that share the network of another container.
async fn network_users(docker: &bollard::Docker) -> Result<Vec<NetworkUser>, CallError> {
    let options = None::<query::ListContainersOptions>;
    let call = async { docker.list_containers(options).await.map_err(CallError::from) };
    let network_user = |found: api::ContainerSummary| {
        let mode = found.host_config?.network_mode?;
        let host = mode.strip_prefix("container:").filter(|host| !host.is_empty())?;
        Some(NetworkUser { id: found.id?, host: host.to_owned() })
    };
    let found = within(DEADLINE, call).await?;
    Ok(found.into_iter().filter_map(network_user).collect())
}

fn described(found: &api::ContainerInspectResponse, paths: &MountPaths) -> SelfContainer {
    let own = SelfContainer::of(found, paths);
    let name = found.name.as_deref().unwrap_or_default().trim_start_matches('/');
    tracing::info!(container = name, "running in a container");
    for UnreachableFolder { path, advice } in &own.unreachable {
        tracing::warn!(
            path = %path.display(), advice,
            "the engine cannot reach this folder of the agent's container"
        );
    }
    own
}

/// The ids that the container of this process may have, the surest first; none outside of a container.
pub(crate) fn candidates() -> Vec<String> {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let is_contained = Path::new("/.dockerenv").exists() || Path::new("/run/.containerenv").exists();
    let mut all =
        ids_in(&own_files(&read("/proc/self/mountinfo")), &["/containers/", "/overlay-containers/"]);
    all.extend(ids_in(&read("/proc/self/cgroup"), &["/docker/", "/docker-", "/libpod-"]));
    if is_contained {
        let name = gethostname().map(|name| name.to_string_lossy().trim().to_owned()).unwrap_or_default();
        all.extend((!name.is_empty()).then_some(name));
    } else {
        // Every process of the host sees the mounts of other containers.
        all.clear();
    }
    all.dedup();
    all
}

/// The sources of the files that an engine mounts into each of its containers. If another engine runs inside the same
/// container, its mounts are in the list too, but never at these targets.
fn own_files(mountinfo: &str) -> String {
    let sources = mountinfo.lines().filter_map(|line| {
        // proc(5): an id, the parent's, a device, the root within the file system, the mount point.
        let mut fields = line.split(' ').skip(3);
        let (root, target) = (fields.next()?, fields.next()?);
        ["/etc/hostname", "/etc/hosts", "/etc/resolv.conf"].contains(&target).then_some(root)
    });
    sources.collect::<Vec<_>>().join("\n")
}

/// The end of the path of the host's folder with the changes to this process's file system. Every container has its own,
/// whereas a container that shares the network of another has that one's host name files.
fn own_layer() -> Option<String> {
    layer_in(&fs::read_to_string("/proc/self/mountinfo").unwrap_or_default())
}

fn layer_in(mountinfo: &str) -> Option<String> {
    let root = mountinfo.lines().find(|line| line.split(' ').nth(4) == Some("/"))?;
    let (_, options) = root.split_once(" - overlay ")?;
    options.split([' ', ',']).find_map(|it| it.strip_prefix("upperdir=")).and_then(end_of)
}

/// Whether a container has this layer; `None`: the engine does not say.
fn has_layer(found: &api::ContainerInspectResponse, layer: &str) -> Option<bool> {
    let its_own = found.graph_driver.as_ref()?.data.get("UpperDir")?;
    Some(end_of(its_own)? == layer)
}

/// The mounts of a process: the root within the file system of each, by its place.
fn mounts_in(mountinfo: &str) -> BTreeMap<PathBuf, PathBuf> {
    let mounts = mountinfo.lines().filter_map(|line| {
        let mut fields = line.split(' ').skip(3);
        let (root, target) = (fields.next()?, fields.next()?);
        // proc(5): a space is written as `\040`.
        let path = |text: &str| PathBuf::from(text.replace("\\040", " "));
        Some((path(target), path(root)))
    });
    mounts.collect()
}

/// The one of these containers that a process with these mounts runs in. Engines whose storage driver has no layer of changes, such as
/// those of btrfs and containerd, say no more about it. The process has all mounts of its container, so that of another one counts only
/// if it has no mount that is missing here, and the one with the most mounts is its own. Others may have the same ones, as by
/// `--volumes-from`: of these, it is the one that runs this process's command. `None`: several or none may be it.
fn closest<'a>(
    possible: &'a [api::ContainerInspectResponse],
    mounts: &BTreeMap<PathBuf, PathBuf>,
    resolve: &dyn Fn(&Path) -> PathBuf,
    command: &[String],
) -> Option<&'a api::ContainerInspectResponse> {
    if let [only] = possible {
        return Some(only);
    }
    let fits = possible.iter().filter_map(|found| Some((common_mounts(found, mounts, resolve)?, found)));
    let fits: Vec<_> = fits.collect();
    let most = fits.iter().map(|(common, _)| *common).max()?;
    let best = fits.iter().filter(|(common, _)| *common == most).map(|(_, found)| *found);
    only(best.clone()).or_else(|| only(best.filter(|found| runs(found, command))))
}

/// The only item; `None` if there are several.
fn only<T>(mut all: impl Iterator<Item = T>) -> Option<T> {
    let first = all.next()?;
    all.next().is_none().then_some(first)
}

/// Whether a container runs a command, perhaps by a program such as `tini` that comes first. The engine does not name its own one.
fn runs(found: &api::ContainerInspectResponse, command: &[String]) -> bool {
    let words: Vec<String> = found.path.iter().chain(found.args.iter().flatten()).cloned().collect();
    !command.is_empty() && words.ends_with(command)
}

/// The number of mounts of a container, and of those from the source that is mounted here. `None`: one of them is missing here.
fn common_mounts(
    found: &api::ContainerInspectResponse,
    mounts: &BTreeMap<PathBuf, PathBuf>,
    resolve: &dyn Fn(&Path) -> PathBuf,
) -> Option<(usize, usize)> {
    let (mut common, mut from_source) = (0, 0);
    for mount in found.mounts.iter().flatten() {
        let Some(target) = mount.destination.as_deref() else { continue };
        let root = mounts.get(&resolve(Path::new(target)))?;
        common += 1;
        if mount.source.as_deref().is_some_and(|source| is_source(Path::new(source), root)) {
            from_source += 1;
        }
    }
    Some((common, from_source))
}

/// Whether a path of the host may be this root within its file system: their last two names are the same, as far as there are two.
fn is_source(source: &Path, root: &Path) -> bool {
    let mut pairs = source.iter().rev().zip(root.iter().rev()).take(2);
    pairs.all(|(source, root)| root == OsStr::new("/") || source == root)
}

/// The last two parts of a path: engines may mount it by a relative one.
fn end_of(path: &str) -> Option<String> {
    let mut parts = path.rsplit('/').filter(|it| !it.is_empty());
    let (last, before) = (parts.next()?, parts.next()?);
    Some(format!("{before}/{last}"))
}

/// The container ids (64 hexadecimal digits) that follow one of these texts, in order, each once.
fn ids_in(text: &str, after: &[&str]) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    for word in after {
        for (at, _) in text.match_indices(word) {
            let id = text.get(at + word.len()..).and_then(|it| it.get(..64)).unwrap_or_default();
            if id.len() == 64 && id.bytes().all(|it| it.is_ascii_hexdigit()) && all.iter().all(|it| it != id)
            {
                all.push(id.to_owned());
            }
        }
    }
    all
}

/// A path of the container as the host sees it.
fn on_host(found: &api::ContainerInspectResponse, path: &Path) -> Option<PathBuf> {
    let mounts = found.mounts.iter().flatten().filter_map(|mount| {
        let target = PathBuf::from(mount.destination.as_ref()?);
        let is_memory = mount.typ.as_deref() == Some("tmpfs");
        let source = mount.source.as_ref().filter(|it| !is_memory && !it.is_empty()).map(PathBuf::from);
        Some((target, source))
    });
    let memory = found.host_config.iter().flat_map(|it| it.tmpfs.iter().flatten());
    let all = mounts.chain(memory.map(|(target, _)| (PathBuf::from(target), None)));
    // The innermost mount counts: it hides the others.
    let (target, source) = all
        .filter(|(target, _)| path.starts_with(target))
        .max_by_key(|(target, _)| target.components().count())?;
    let rest = path.strip_prefix(&target).ok()?;
    let source = source?;
    Some(if rest.as_os_str().is_empty() { source } else { source.join(rest) })
}

fn advice(path: &Path) -> String {
    // `secrets`, `contents` and `applications` lie below the configured folder.
    let configured = path.parent().unwrap_or(path).display();
    format!("run the agent with `-v {configured}:{configured}`")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mount(typ: &str, source: &str, target: &str) -> api::MountPoint {
        api::MountPoint {
            typ: Some(typ.to_owned()),
            source: Some(source.to_owned()),
            destination: Some(target.to_owned()),
            ..api::MountPoint::default()
        }
    }

    fn container(mounts: Vec<api::MountPoint>) -> api::ContainerInspectResponse {
        api::ContainerInspectResponse {
            id: Some("a".repeat(64)),
            mounts: Some(mounts),
            ..api::ContainerInspectResponse::default()
        }
    }

    fn paths() -> MountPaths {
        let at = |path: &str| PathBuf::from(path);
        MountPaths {
            content: at("/var/lib/driftless/contents"),
            secret: at("/run/driftless/secrets"),
            app: at("/var/lib/driftless/applications"),
        }
    }

    #[test]
    fn folders_are_translated_to_paths_of_the_host() {
        let found = container(vec![
            mount("bind", "/srv/agent", "/var/lib/driftless"),
            mount("volume", "/var/lib/docker/volumes/run/_data", "/run/driftless"),
        ]);
        let own = SelfContainer::of(&found, &paths());
        let host = own.paths.clone().unwrap();
        assert_eq!(host.content, Path::new("/srv/agent/contents"));
        assert_eq!(host.app, Path::new("/srv/agent/applications"));
        assert_eq!(host.secret, Path::new("/var/lib/docker/volumes/run/_data/secrets"));
        assert_eq!(own.objection(&paths().content), None);
    }

    #[test]
    fn unmounted_folder_is_refused_with_the_mount_to_add() {
        let found = container(vec![
            mount("bind", "/srv", "/var/lib"),
            mount("tmpfs", "", "/var/lib/driftless/applications"),
        ]);
        let own = SelfContainer::of(&found, &paths());
        assert_eq!(own.paths.as_ref().unwrap().content, Path::new("/srv/driftless/contents"));
        let said = own.objection(&paths().secret).unwrap();
        assert!(said.contains("`-v /run/driftless:/run/driftless`"), "{said}");
        assert!(own.objection(&paths().app).is_some(), "a mount inside the mount hides it");
    }

    #[test]
    fn own_layer_identifies_the_container() {
        let root = |upper: &str| {
            format!(
                "400 1 0:5 / /proc rw - proc proc rw\n452 340 0:120 / / rw,relatime master:11 - overlay overlay \
                 rw,lowerdir=/d/overlay2/l/A:/d/overlay2/l/B,upperdir={upper},workdir=/d/overlay2/7b/work,xino=off\n"
            )
        };
        let has = |layer: Option<String>, upper: &str| {
            let data = [("UpperDir".to_owned(), upper.to_owned())].into();
            let graph_driver = Some(api::DriverData { name: "overlay2".to_owned(), data });
            has_layer(
                &api::ContainerInspectResponse { graph_driver, ..container(Vec::new()) },
                &layer.unwrap(),
            )
        };
        let upper = "/var/lib/docker/overlay2/7b/diff";
        assert_eq!(has(layer_in(&root(upper)), upper), Some(true));
        assert_eq!(has(layer_in(&root("7b/diff")), upper), Some(true), "by a relative path");
        assert_eq!(has(layer_in(&root(upper)), "/var/lib/docker/overlay2/8c/diff"), Some(false));
        assert_eq!(has_layer(&container(Vec::new()), "7b/diff"), None);
        assert_eq!(layer_in("452 340 8:1 / / rw - ext4 /dev/vda rw\n"), None);
    }

    #[test]
    fn mounts_identify_the_container_without_a_layer() {
        let mounts = mounts_in(
            "452 340 0:120 / / rw - btrfs /dev/vda rw\n\
             453 452 8:1 /@/srv/my\\040agent /var/lib/driftless rw - btrfs /dev/vda rw\n\
             454 452 0:25 /docker.sock /run/docker.sock rw - tmpfs tmpfs rw\n",
        );
        let resolve = |path: &Path| match path.strip_prefix("/var/run") {
            Ok(rest) => Path::new("/run").join(rest),
            Err(_) => path.to_owned(),
        };
        let named = |id: &str, mounts| {
            let name = Some(format!("/{id}"));
            api::ContainerInspectResponse { id: Some(id.repeat(64)), name, ..container(mounts) }
        };
        let socket = || mount("bind", "/var/run/docker.sock", "/var/run/docker.sock");
        let data = |source: &str| mount("bind", source, "/var/lib/driftless");
        let agent = named("a", vec![data("/srv/my agent"), socket()]);
        let vpn = named("b", vec![mount("volume", "/volumes/vpn/_data", "/var/lib/vpn")]);
        let found = |all: &[api::ContainerInspectResponse]| {
            closest(all, &mounts, &resolve, &[]).and_then(|found| found.name.clone())
        };
        let own = Some("/a".to_owned());
        assert_eq!(found(&[vpn.clone(), agent.clone()]), own, "a mount of the other one is missing here");
        assert_eq!(found(&[named("c", Vec::new()), agent.clone(), named("d", vec![socket()])]), own);
        let other = named("e", vec![data("/srv/other"), socket()]);
        assert_eq!(found(&[other, agent.clone()]), own, "the source is another one");
        assert_eq!(found(&[named("f", vec![data("/srv/my agent"), socket()]), agent.clone()]), None);
        assert_eq!(found(&[vpn.clone(), named("g", vec![mount("bind", "/x", "/x")])]), None);
        // Nothing else comes into question.
        assert_eq!(found(std::slice::from_ref(&vpn)), Some("/b".to_owned()));
        let uses = |host: &str| NetworkUser { id: "a".repeat(64), host: host.to_owned() }.uses(&vpn);
        assert!(uses("b") && uses(&"b".repeat(64)) && uses(&"b".repeat(12)) && !uses("a"));
    }

    #[test]
    fn command_distinguishes_containers_with_the_same_mounts() {
        let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let running = |id: &str, command: &str| {
            let mut args = words(command);
            let path = Some(args.remove(0));
            let id = Some(id.to_owned());
            api::ContainerInspectResponse { id, path, args: Some(args), ..container(Vec::new()) }
        };
        let found = |all: &[api::ContainerInspectResponse], command: &str| {
            let own = closest(all, &BTreeMap::new(), &Path::to_path_buf, &words(command));
            own.and_then(|found| found.id.clone())
        };
        let (agent, backup) = (running("agent", "driftless run"), running("backup", "restic backup /var"));
        let both = [backup.clone(), agent.clone()];
        assert_eq!(found(&both, "driftless run"), agent.id);
        assert_eq!(found(&both, "restic backup /var"), backup.id);
        assert_eq!(found(&both, "driftless status"), None, "by `docker exec` in one of them");
        let wrapped = running("wrapped", "/sbin/tini -- driftless run");
        assert_eq!(found(&[backup, wrapped.clone()], "driftless run"), wrapped.id);
        assert_eq!(found(&[agent, wrapped], "driftless run"), None);
    }

    #[test]
    fn container_that_may_be_the_own_one_is_not_stopped() {
        let id = ContainerId::from("a");
        let own = SelfContainer { doubtful: [id.clone()].into(), ..SelfContainer::default() };
        assert!(own.stop_objection(&id).unwrap().starts_with("the agent may run in it"));
        assert_eq!(own.stop_objection(&ContainerId::from("b")), None);
        let own = SelfContainer { id: Some(id.clone()), ..SelfContainer::default() };
        assert!(own.stop_objection(&id).unwrap().starts_with("the agent runs in it"));
    }

    #[test]
    fn container_ids_are_found_in_proc_files() {
        let id = "0123456789abcdef".repeat(4);
        let other = "f".repeat(64);
        let mountinfo = format!(
            "611 598 0:52 / /var/lib/docker/containers/{other}/mounts/shm rw - tmpfs shm rw\n\
             612 598 254:1 /var/lib/docker/containers/{id}/hostname /etc/hostname rw\n"
        );
        assert_eq!(ids_in(&own_files(&mountinfo), &["/containers/"]), std::slice::from_ref(&id));
        let cgroup = format!("0::/system.slice/docker-{id}.scope\n1:cpu:/docker/{id}\n");
        assert_eq!(ids_in(&cgroup, &["/docker/", "/docker-"]), [id]);
        assert_eq!(ids_in("/containers/short/x", &["/containers/"]), [""; 0]);
    }
}
