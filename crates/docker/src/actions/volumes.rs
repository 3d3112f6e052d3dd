//! Named volumes. They are created, and removed only if a user asks for it.

use std::sync::Arc;

use bollard::query_parameters as query;

use driftless_model::{AppName, Volume, label};

use crate::{
    agent_claims::OwnAgents,
    cache::{Cache, ObjectKind},
    call_error::{CallError, tolerate},
    catalogue::Settled,
    connection::Connection,
    deadline::DEADLINE,
    error::Error,
    to_engine,
};

/// Creates and removes volumes.
pub(super) struct Volumes {
    connection: Arc<Connection>,
    cache: Arc<Cache>,
    agents: Arc<OwnAgents>,
}

impl Volumes {
    pub(super) fn new(connection: &Arc<Connection>, cache: &Arc<Cache>, agents: &Arc<OwnAgents>) -> Self {
        Self { connection: Arc::clone(connection), cache: Arc::clone(cache), agents: Arc::clone(agents) }
    }

    pub(super) async fn create(
        &self,
        (app, project): (&AppName, &str),
        name: &str,
        volume: &Volume,
    ) -> Result<(), Error> {
        let doing = format!("create volume {name}");
        let body = to_engine::volume_body(name, volume, (app, project), self.agents.own());
        let created = self.connection.call(DEADLINE, self.connection.docker().create_volume(body)).await;
        self.cache.objects(ObjectKind::Volumes).note_change(name, Settled::Yes);
        // The engine answers with an existing volume of this name, even if its specification differs.
        let found = created.map_err(|error| error.classify(&doing))?;
        let label = |name: &str| found.labels.get(name).map(String::as_str);
        let is_own = label(label::AGENT).is_some_and(|agent| self.agents.contain(agent));
        if is_own && label(label::APPLICATION) == Some(app.as_str()) {
            return Ok(());
        }
        let message = "another volume with this name exists already and is not the application's".to_owned();
        Err(Error::Refused { doing, message })
    }

    /// Removes a volume that carries the labels of this agent and application. The engine is asked again: no list that
    /// was read before decides about data.
    pub(super) async fn remove(&self, app: &AppName, name: &str) -> Result<(), Error> {
        let doing = format!("remove volume {name}");
        let inspect = self.connection.docker().inspect_volume(name);
        let found = match self.connection.call(DEADLINE, inspect).await {
            Ok(found) => found,
            Err(error) if error.is_not_found() => return Ok(()),
            Err(error) => return Err(error.classify(&doing)),
        };
        let label = |name: &str| found.labels.get(name).map(String::as_str);
        let is_own = label(label::AGENT).is_some_and(|agent| self.agents.contain(agent));
        if !is_own || label(label::APPLICATION) != Some(app.as_str()) {
            let message = "it does not carry the labels of this agent and application".to_owned();
            return Err(Error::Refused { doing, message });
        }
        if label::is_prune_protected(label) {
            let message = format!("its label `{}` is `false`", label::PRUNE);
            return Err(Error::Refused { doing, message });
        }
        let options = None::<query::RemoveVolumeOptions>;
        let removed =
            self.connection.call(DEADLINE, self.connection.docker().remove_volume(name, options)).await;
        self.cache.objects(ObjectKind::Volumes).note_change(name, Settled::Yes);
        tolerate(removed, CallError::is_not_found).map_err(|error| error.classify(&doing))
    }
}
