//! Everything that runs on an engine and belongs to no agent, for `driftless import`. Nothing here changes the engine.

use std::{collections::BTreeMap, path::PathBuf, sync::Arc};

use bollard::{models as api, query_parameters as query};
use driftless_config::DockerHost;
use driftless_model::{Container, ContainerId, Instance, Network, Volume, label};

use crate::{
    Error, call_error::CallError, catalogue::Reading, connection::Connection, container_list::ContainerList,
    deadline::DEADLINE, from_engine, mount_paths::MountPaths, transport::Address,
};

/// The state of an engine at one moment.
#[derive(Clone, Debug, Default)]
pub struct HostSnapshot {
    /// The containers without labels of an agent, also those that do not run.
    pub containers: Vec<SnapshotContainer>,
    /// The number of containers that belong to agents.
    pub managed: usize,
    /// All networks, by name, with the Compose project that created them.
    pub networks: BTreeMap<String, (Option<String>, Network)>,
    /// All volumes, by name, with the Compose project that created them.
    pub volumes: BTreeMap<String, (Option<String>, Volume)>,
}

/// A container that belongs to no agent.
#[derive(Clone, Debug)]
pub struct SnapshotContainer {
    /// Its workload and slot are those of Compose's labels.
    pub instance: Instance,
    /// The defaults of its image.
    pub defaults: Arc<Container>,
    /// All labels that the container has.
    pub labels: BTreeMap<String, String>,
    /// `docker run --rm`
    pub is_removed_at_exit: bool,
    /// A registry gave its image a digest.
    pub is_published: bool,
}

/// Reads the state of the engine at this address.
///
/// # Errors
///
/// If the address is invalid, nothing answers, or the engine refuses a request.
pub async fn host_snapshot(host: &DockerHost) -> Result<HostSnapshot, Error> {
    let doing = format!("read the containers of the engine at {}", host.address);
    let address =
        Address::parse(host).map_err(|message| Error::Rejected { doing: doing.clone(), message })?;
    let nowhere = PathBuf::from("/nonexistent");
    let paths = MountPaths { content: nowhere.clone(), secret: nowhere.clone(), app: nowhere };
    let connection = Connection::new(address, paths).map_err(|error| error.classify(&doing))?;
    Box::pin(read(&connection)).await.map_err(|error| error.classify(&doing))
}

async fn read(connection: &Connection) -> Result<HostSnapshot, CallError> {
    let list = ContainerList::read(connection, Reading::All { before: Arc::default() }).await?;
    let info = connection.call(DEADLINE, connection.docker().info()).await?;
    // The engine states for each container what it used where nothing was asked for.
    let runtime = info.default_runtime.clone();
    let is_first_version = matches!(info.cgroup_version, Some(api::SystemInfoCgroupVersionEnum::_1));
    let cgroup = if is_first_version { "host" } else { "private" };
    let mut snapshot = HostSnapshot::default();
    let mut images = BTreeMap::new();
    for (id, listed) in &list.containers {
        if listed.app.is_some() || listed.agent.is_some() {
            snapshot.managed += 1;
            continue;
        }
        let Some(found) = connection.find_container(id.as_str()).await? else { continue };
        let image = found.image.clone().unwrap_or_default();
        if !images.contains_key(&image) {
            images.insert(image.clone(), image_of(connection, &image).await?);
        }
        let (defaults, is_published) = images.get(&image).cloned().unwrap_or_default();
        let mut container = container(connection, id, &found, defaults, is_published);
        let config = Arc::make_mut(&mut container.instance.config);
        if config.host.runtime == runtime {
            config.host.runtime = None;
        }
        if config.host.cgroup.as_deref() == Some(cgroup) {
            config.host.cgroup = None;
        }
        snapshot.containers.push(container);
    }
    let options = None::<query::ListNetworksOptions>;
    for network in connection.call(DEADLINE, connection.docker().list_networks(options)).await? {
        let labels: BTreeMap<_, _> = network.labels.clone().into_iter().flatten().collect();
        let object = (project(&labels), from_engine::network(&network, &labels));
        snapshot.networks.insert(network.name.unwrap_or_default(), object);
    }
    let options = None::<query::ListVolumesOptions>;
    let volumes = connection.call(DEADLINE, connection.docker().list_volumes(options)).await?;
    for volume in volumes.volumes.into_iter().flatten() {
        let labels: BTreeMap<_, _> = volume.labels.clone().into_iter().collect();
        let object = (project(&labels), from_engine::volume(&volume, &labels));
        snapshot.volumes.insert(volume.name, object);
    }
    Ok(snapshot)
}

fn container(
    connection: &Connection,
    id: &ContainerId,
    found: &api::ContainerInspectResponse,
    defaults: Arc<Container>,
    is_published: bool,
) -> SnapshotContainer {
    let labels = found.config.as_ref().and_then(|config| config.labels.clone());
    SnapshotContainer {
        instance: from_engine::instance(id, found, &connection.host_paths(), &connection.defaults()),
        defaults,
        labels: labels.into_iter().flatten().collect(),
        is_removed_at_exit: found.host_config.as_ref().and_then(|host| host.auto_remove).unwrap_or_default(),
        is_published,
    }
}

/// The defaults of an image, and whether a registry has it. An image that is gone has no defaults.
async fn image_of(connection: &Connection, id: &str) -> Result<(Arc<Container>, bool), CallError> {
    match connection.call(DEADLINE, connection.docker().inspect_image(id)).await {
        Ok(image) => {
            let is_published = image.repo_digests.as_ref().is_some_and(|digests| !digests.is_empty());
            Ok((Arc::new(from_engine::image_defaults(&image)), is_published))
        }
        Err(error) if matches!(error.code(), Some(400 | 404)) => Ok(Default::default()),
        Err(error) => Err(error),
    }
}

fn project(labels: &BTreeMap<String, String>) -> Option<String> {
    labels.get(label::compose::PROJECT).cloned()
}
