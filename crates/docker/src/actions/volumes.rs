//! Named volumes. They are created and never removed.

use std::sync::Arc;

use driftless_model::{AgentId, AppName, Volume, label};

use crate::{
    cache::{Cache, ObjectKind},
    connection::Connection,
    deadline::DEADLINE,
    error::Error,
    to_engine,
};

/// Creates volumes.
pub(super) struct Volumes {
    connection: Arc<Connection>,
    cache: Arc<Cache>,
    agent: AgentId,
}

impl Volumes {
    pub(super) fn new(connection: &Arc<Connection>, cache: &Arc<Cache>, agent: AgentId) -> Self {
        Self { connection: Arc::clone(connection), cache: Arc::clone(cache), agent }
    }

    pub(super) async fn create(&self, app: &AppName, name: &str, volume: &Volume) -> Result<(), Error> {
        let doing = format!("create volume {name}");
        let body = to_engine::volume_body(name, volume, app, &self.agent);
        let created = self.connection.call(DEADLINE, self.connection.docker().create_volume(body)).await;
        self.cache.invalidate_objects(ObjectKind::Volumes);
        // The engine answers with an existing volume of this name, whatever its specification.
        let found = created.map_err(|error| error.classify(&doing))?;
        let has = |name: &str, value: &str| found.labels.get(name).map(String::as_str) == Some(value);
        if has(label::AGENT, self.agent.as_str()) && has(label::APPLICATION, app.as_str()) {
            return Ok(());
        }
        let message = "another volume with this name exists already and is not the application's".to_owned();
        Err(Error::Refused { doing, message })
    }
}
