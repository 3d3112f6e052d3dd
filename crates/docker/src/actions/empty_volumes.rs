//! The volumes of the agent that begin empty (`emptyDir` of Kubernetes), which are removed after their container.

use bollard::query_parameters as query;
use driftless_model::{AgentId, label};

use crate::{
    call_error::{CallError, tolerate},
    connection::Connection,
    deadline::DEADLINE,
    from_engine::is_anonymous_volume,
};

/// Removes one. It stays if another container mounts it by now.
pub(super) async fn remove(connection: &Connection, name: &str) -> Result<(), CallError> {
    let options = None::<query::RemoveVolumeOptions>;
    let removed = connection.call(DEADLINE, connection.docker().remove_volume(name, options)).await;
    tolerate(removed, |error| matches!(error.code(), Some(404 | 409)))
}

/// Removes those that no container has: the agent was killed after it had removed their container. One that cannot be removed does not
/// keep the others.
pub(super) async fn remove_left(connection: &Connection, agent: &AgentId) -> Result<(), CallError> {
    let labels = vec![format!("{}={agent}", label::EMPTY)];
    let filters = [("dangling", vec!["true".to_owned()]), ("label", labels)];
    let filters = filters.map(|(name, values)| (name.to_owned(), values)).into_iter().collect();
    let options = query::ListVolumesOptionsBuilder::new().filters(&filters).build();
    let found = connection.call(DEADLINE, connection.docker().list_volumes(Some(options))).await?;
    let mut removed = Ok(());
    for volume in found.volumes.into_iter().flatten() {
        let is_own = volume.labels.get(label::EMPTY).is_some_and(|owner| owner == agent.as_str());
        if is_own && is_anonymous_volume(&volume.name) {
            removed = removed.and(remove(connection, &volume.name).await);
        }
    }
    removed
}
