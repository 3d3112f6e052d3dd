//! The mounts of a service: those that a Swarm cannot make, options that it does not have, and data that stay on one node.

use std::collections::BTreeMap;

use driftless_files::folder_hides_nothing;
use driftless_model::{
    Content, Contents, Mount, MountSource, NetworkMode, SwarmMode, SwarmService, Volume, Workload,
    is_system_path,
};
use driftless_yaml::Node;

use crate::spec::{
    paths,
    value::{Read as _, Value},
};

/// Paths that each node has.
const PATHS_OF_EACH_NODE: &[&str] = &[
    "/",
    "/etc",
    "/etc/group",
    "/etc/hostname",
    "/etc/localtime",
    "/etc/os-release",
    "/etc/passwd",
    "/run",
    "/run/docker.sock",
    "/tmp",
    "/var/lib",
    "/var/log",
    "/var/run",
    "/var/run/docker.sock",
];

/// Folders that each node has, with what is below.
const FOLDERS_OF_EACH_NODE: &[&str] = &["/dev", "/proc", "/sys", "/var/lib/docker"];

/// The volumes and files that mounts name.
#[derive(Clone, Copy)]
pub(super) struct MountedData<'a> {
    pub(super) volumes: &'a BTreeMap<String, Volume>,
    pub(super) contents: &'a Contents,
}

/// Reports mounts that a Swarm cannot make as they are written, and those that have to be on each node.
pub(super) fn check(
    service: &Value<'_>,
    workload: &Workload,
    settings: &SwarmService,
    data: MountedData<'_>,
) {
    let MountedData { volumes, contents } = data;
    for mount in &workload.container.mounts {
        let place = place_of(service, &mount.target);
        check_options(&place, workload, mount);
        let target = &mount.target;
        match &mount.source {
            MountSource::Volume { name, .. } if mount.read_only || !may_move(settings) || !is_local(volumes.get(name)) => {}
            MountSource::Volume { name, .. } => {
                let key = volumes.get(name).map_or(name, |volume| &volume.key);
                let warning = place.placed(()).warning(format!(
                    "the data of the volume `{key}` stay on the node of the task, and a task on another node starts without them"
                ));
                place.report().say(warning.help(
                    "limit the nodes with `deploy.placement.constraints`, or give the volume `driver_opts` of a storage that all nodes share",
                ));
            }
            MountSource::Content(id) if matches!(contents.get(id), Some(Content::Folder(_))) => {
                place.warning(folder_hides_nothing(target));
            }
            MountSource::Anonymous
            | MountSource::Tmpfs { .. }
            | MountSource::Content(_)
            | MountSource::Secret(_) => {}
            MountSource::Bind { path, .. } if is_on_each_node(path) || !settings.constraints.is_empty() => {}
            MountSource::Bind { path, .. } => place.warning(format!(
                "{path} must exist on each node that a task may run on: limit the nodes with `deploy.placement.constraints`"
            )),
            MountSource::AppFolder(_) => place.error_help(
                format!("the folder at {target} is writable, and the nodes of a Swarm share no folder of the repository"),
                "mount it read-only, or use a named volume",
            ),
            MountSource::InPlace { .. } => place
                .error(format!("configs of a Swarm never change, so the file at {target} cannot be rewritten in place")),
            MountSource::Empty | MountSource::Image(_) => {
                place.error(format!("a service of Docker Swarm cannot mount this at {target}"));
            }
        }
    }
    if !matches!(workload.container.network_mode, NetworkMode::Networks(_))
        && service.node.get("network_mode").is_none()
    {
        service.error("only networks are supported in a Swarm");
    }
}

/// Warns about updates that start a second task on what only one at a time can have or write to. Tasks of several replicas share it
/// at all times.
pub(super) fn check_order(service: &Value<'_>, workload: &Workload, settings: &SwarmService) {
    let data =
        workload.container.mounts.iter().filter(|mount| !mount.read_only).find_map(|mount| {
            match &mount.source {
                MountSource::Volume { name, .. } => Some(format!("both write to the volume `{name}`")),
                MountSource::Bind { path, .. } if !is_system_path(path) => {
                    Some(format!("both write to {path}"))
                }
                _ => None,
            }
        });
    let data = data.filter(|_| settings.mode == SwarmMode::Global || workload.replicas == 1);
    // Other services may find a node with a free port.
    let mut ports = settings.host_ports.iter().filter(|_| settings.mode == SwarmMode::Global);
    let port = ports.find_map(|port| port.host);
    let port = port.map(|port| format!("the new one gets no port {} on the node of the old one", port.first));
    let Some(conflict) = data.or(port) else { return };
    let Some(deploy) = service.node.get("deploy").map(|node| service.key("deploy", node)) else { return };
    for key in ["update_config", "rollback_config"] {
        let Some(config) = deploy.node.get(key).map(|node| deploy.key(key, node)) else { continue };
        let Some(order) = config.node.get("order").map(|node| config.key("order", node)) else { continue };
        if order.node.as_scalar() == Some("start-first") {
            order.warning(format!(
                "the old and the new task run at the same time, and {conflict}: use `stop-first`"
            ));
        }
    }
}

/// Reports options of a mount that the API of a Swarm does not have.
fn check_options(place: &Value<'_>, workload: &Workload, mount: &Mount) {
    let target = &mount.target;
    if let MountSource::Bind { selinux: Some(letter), path, .. } = &mount.source {
        place.error_help(
            format!("Docker Swarm does not label {path} for SELinux: it has no `{letter}`"),
            format!(
                "label it once on each node: `chcon -Rt container_file_t {path}`; then remove `{letter}`"
            ),
        );
    }
    let Some(options) = workload.container.host.mount_options.get(target) else { return };
    if let Some(recursive) = &options.recursive {
        let message = format!("Docker Swarm has no `recursive: {recursive}` for the mount at {target}");
        place.error_help(
            message,
            "remove `recursive`, or run the application on a single host (`engine: docker`)",
        );
    }
    if !options.tmpfs.is_empty() {
        let words = options.tmpfs.join("`, `");
        let message = format!("a tmpfs of Docker Swarm has no option `{words}`, as at {target}");
        place.error_help(message, "use `size` in bytes and `mode` only");
    }
}

/// Whether a task of the service may run on one node now and on another one later.
fn may_move(settings: &SwarmService) -> bool {
    settings.constraints.is_empty() && !matches!(settings.mode, SwarmMode::Global | SwarmMode::GlobalJob)
}

/// Whether each node has a volume of its own by that name. The storage of an external volume is not known.
fn is_local(volume: Option<&Volume>) -> bool {
    volume.is_some_and(|volume| {
        let is_of_engine = volume.driver.as_deref().is_none_or(|driver| driver == "local");
        !volume.external && is_of_engine && volume.options.is_empty()
    })
}

/// Whether each machine with Linux and an engine has a path.
fn is_on_each_node(path: &str) -> bool {
    let is_below = |folder: &str| path == folder || path.starts_with(&format!("{folder}/"));
    PATHS_OF_EACH_NODE.contains(&path) || FOLDERS_OF_EACH_NODE.iter().any(|folder| is_below(folder))
}

/// The place of a mount in the file: its entry of `volumes` or `tmpfs`.
pub(super) fn place_of<'a>(service: &Value<'a>, target: &str) -> Value<'a> {
    let volumes = service.node.get("volumes").unwrap_or(service.node);
    let is_volume = |item: &&Node| item.get("target").and_then(Node::as_scalar) == Some(target);
    if let Some(item) = volumes.items().iter().find(is_volume) {
        return service.key("volumes", item);
    }
    let is_tmpfs = |item: &&Node| {
        let text = item.as_scalar().map(|text| text.split_once(':').map_or(text, |(path, _)| path));
        text.is_some_and(|path| paths::clean(path) == target)
    };
    if let Some(tmpfs) = service.node.get("tmpfs")
        && let Some(item) = tmpfs.items().iter().chain([tmpfs]).find(is_tmpfs)
    {
        return service.key("tmpfs", item);
    }
    service.key("volumes", volumes)
}
