//! Ownership: the agent only changes and removes containers that carry its label or that it adopted.

use std::sync::Arc;

use driftless_model::{ContainerId, label};
use driftless_plan::ContainerRef;

use crate::{
    agent_claims::OwnAgents, attribution::Attribution, cache::Cache, connection::Connection, error::Error,
};

/// Checks whether a container is the agent's.
pub(super) struct Ownership {
    connection: Arc<Connection>,
    cache: Arc<Cache>,
    attribution: Arc<Attribution>,
    agents: Arc<OwnAgents>,
}

impl Ownership {
    pub(super) fn new(
        connection: &Arc<Connection>,
        cache: &Arc<Cache>,
        attribution: &Arc<Attribution>,
        agents: &Arc<OwnAgents>,
    ) -> Self {
        let (connection, cache) = (Arc::clone(connection), Arc::clone(cache));
        Self { connection, cache, attribution: Arc::clone(attribution), agents: Arc::clone(agents) }
    }

    /// The container's id; `None` if there is no such container. Fails for a container that is not the agent's.
    pub(super) async fn find(
        &self,
        container: &ContainerRef,
        doing: &str,
    ) -> Result<Option<ContainerId>, Error> {
        let key = match container {
            ContainerRef::Id(id, _)
                if self.attribution.is_created(id) || self.attribution.adopter(id).is_some() =>
            {
                return Ok(Some(id.clone()));
            }
            ContainerRef::Id(id, _) => {
                // Labels of a container never change, so an earlier inspection is enough.
                match self
                    .cache
                    .container(id)
                    .map(|inspected| self.agents.contain(inspected.instance.agent.as_str()))
                {
                    Some(true) => return Ok(Some(id.clone())),
                    Some(false) => return Err(not_owned(doing)),
                    None => id.as_str(),
                }
            }
            ContainerRef::Name(name) => match self.attribution.created_as(name) {
                Some(id) => return Ok(Some(id)),
                None => name,
            },
        };
        let found = self.connection.find_container(key).await.map_err(|error| error.classify(doing))?;
        let Some(found) = found else { return Ok(None) };
        let labels = found.config.and_then(|config| config.labels).unwrap_or_default();
        if labels.get(label::AGENT).is_some_and(|agent| self.agents.contain(agent)) {
            Ok(found.id.map(ContainerId))
        } else {
            Err(not_owned(doing))
        }
    }

    /// Like [`Self::find`], for a container that must exist.
    pub(super) async fn require(&self, container: &ContainerRef, doing: &str) -> Result<ContainerId, Error> {
        self.find(container, doing).await?.ok_or_else(|| Error::Refused {
            doing: doing.to_owned(),
            message: "there is no such container any more".to_owned(),
        })
    }
}

/// The error for an object that is not the agent's.
pub(super) fn not_owned(doing: &str) -> Error {
    Error::Refused { doing: doing.to_owned(), message: "it does not belong to this agent".to_owned() }
}
