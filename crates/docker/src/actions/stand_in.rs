//! A stand-in for a container with a read-only root: a container that is never started, mounts one of its volumes and has a
//! root that can be written. Newer engines set the mode and owner of a volume's folder only through such a one.

use bollard::{models as api, query_parameters as query};
use driftless_model::{ContainerId, label};

use crate::{
    call_error::CallError, connection::Connection, deadline::DEADLINE, from_engine::unprepared_volumes,
};

/// The folder of the volume in the stand-in.
pub(super) const FOLDER: &str = "/volume";

/// Creates the stand-in of a container for the volume that it mounts at `target`. One that a killed agent left is removed first.
pub(super) async fn create(
    connection: &Connection,
    found: &api::ContainerInspectResponse,
    target: &str,
) -> Result<ContainerId, CallError> {
    let name = name(found);
    remove(connection, &name).await?;
    let is_at = |point: &&api::MountPoint| point.destination.as_deref() == Some(target);
    let volume = found.mounts.iter().flatten().find(is_at).and_then(|point| point.name.clone());
    let volume = volume.ok_or_else(|| CallError::Status {
        code: 500,
        message: format!("the engine names no volume at `{target}`"),
    })?;
    let mount = api::Mount {
        typ: Some(api::MountType::VOLUME),
        source: Some(volume),
        target: Some(FOLDER.to_owned()),
        ..api::Mount::default()
    };
    let labels = [(label::STAND_IN.to_owned(), found.id.clone().unwrap_or_default())];
    let body = api::ContainerCreateBody {
        image: found.image.clone(),
        // It is never started, but the engine wants a command.
        cmd: Some(vec!["true".to_owned()]),
        labels: Some(labels.into_iter().collect()),
        host_config: Some(api::HostConfig {
            mounts: Some(vec![mount]),
            network_mode: Some("none".to_owned()),
            ..api::HostConfig::default()
        }),
        ..api::ContainerCreateBody::default()
    };
    let options = query::CreateContainerOptionsBuilder::new().name(&name).build();
    // The future is large.
    let creation = Box::pin(connection.docker().create_container(Some(options), body));
    let created = connection.call(DEADLINE, creation).await?;
    Ok(ContainerId(created.id))
}

/// Removes a stand-in by its id or name, with the volumes that its image made for it. A container without the label of one
/// stays, and its name is an error.
pub(super) async fn remove(connection: &Connection, reference: &str) -> Result<(), CallError> {
    remove_marked(connection, reference, label::STAND_IN).await
}

/// The same for a container that is never started and has another label.
pub(super) async fn remove_marked(
    connection: &Connection,
    reference: &str,
    mark: &str,
) -> Result<(), CallError> {
    let Some(found) = connection.find_container(reference).await? else { return Ok(()) };
    let labels = found.config.and_then(|config| config.labels).unwrap_or_default();
    if !labels.contains_key(mark) {
        let message = format!("the name {reference} is needed for a moment, and another container has it");
        return Err(CallError::Status { code: 409, message });
    }
    let options = query::RemoveContainerOptionsBuilder::new().force(true).v(true).build();
    let id = found.id.unwrap_or_default();
    let removal = connection.docker().remove_container(&id, Some(options));
    match connection.call(DEADLINE, removal).await {
        Ok(()) => Ok(()),
        Err(error) if error.is_not_found() => Ok(()),
        Err(error) => Err(error),
    }
}

/// Removes what a killed agent left of the stand-in of a container that is removed now. It would keep the volume.
pub(super) async fn remove_of(
    connection: &Connection,
    found: &api::ContainerInspectResponse,
) -> Result<(), CallError> {
    let has_read_only_root = found.host_config.as_ref().and_then(|host| host.readonly_rootfs) == Some(true);
    if !has_read_only_root || unprepared_volumes(found).is_empty() {
        return Ok(());
    }
    let name = name(found);
    let left = connection.find_container(&name).await?;
    let labels = left.and_then(|left| left.config).and_then(|config| config.labels).unwrap_or_default();
    // Another container may have the name by now.
    if labels.get(label::STAND_IN) == found.id.as_ref() && found.id.is_some() {
        remove(connection, &name).await?;
    }
    Ok(())
}

/// The name of the stand-in of a container.
fn name(found: &api::ContainerInspectResponse) -> String {
    format!("{}-volume-setup", found.name.as_deref().unwrap_or_default().trim_start_matches('/'))
}
