//! Networks: creating and removing them, and connecting containers to them.

use std::sync::Arc;

use bollard::{models as api, query_parameters as query};
use driftless_model::{AgentId, AppName, ContainerId, Network, SWARM_OWNER, SpecHash, label};
use http::Method;
use tokio::sync::Semaphore;

use super::ownership::not_owned;
use crate::{
    agent_claims::OwnAgents,
    attribution::Attribution,
    cache::{Cache, NamedObject, ObjectKind},
    call_error::{CallError, tolerate},
    catalogue::Settled,
    connection::Connection,
    deadline::{DEADLINE, within},
    error::Error,
    inventory::Inventory,
    swarm::ranges,
    to_engine,
};

/// Messages of engines about a container that is connected to the network already.
const ALREADY_CONNECTED: &[&str] =
    &["already exists in network", "already attached to network", "network is already connected"];

/// Messages of engines, in small letters, when no range of addresses is left for another network.
const NO_RANGE: &[&str] = &["non-overlapping ipv4 address pool", "address pools have been fully subnetted"];

const ANOTHER_RANGE: &str = "about 30 networks fit into the default ranges: remove unused ones with `docker network prune`, or set \
                             `default-address-pools` in /etc/docker/daemon.json and restart the engine";

/// The number of networks that the engine creates at the same time. It writes its firewall rules for one after another: of 100
/// at once it answered some only after a minute, which is too late.
const CONCURRENT_CREATIONS: usize = 4;

/// Creates and removes networks, and connects containers to them.
pub(super) struct Networks {
    connection: Arc<Connection>,
    cache: Arc<Cache>,
    attribution: Arc<Attribution>,
    inventory: Arc<Inventory>,
    agents: Arc<OwnAgents>,
    /// Permits to create a network.
    creations: Semaphore,
}

impl Networks {
    pub(super) fn new(
        connection: &Arc<Connection>,
        cache: &Arc<Cache>,
        attribution: &Arc<Attribution>,
        inventory: &Arc<Inventory>,
        agents: &Arc<OwnAgents>,
    ) -> Self {
        Self {
            connection: Arc::clone(connection),
            cache: Arc::clone(cache),
            attribution: Arc::clone(attribution),
            inventory: Arc::clone(inventory),
            agents: Arc::clone(agents),
            creations: Semaphore::new(CONCURRENT_CREATIONS),
        }
    }

    fn is_own(&self, agent: Option<&AgentId>) -> bool {
        agent.is_some_and(|agent| self.agents.contain(agent.as_str()))
    }

    /// Whether a network belongs to this agent, or to an application of a Swarm, whose agents are one owner.
    fn is_of(&self, app: &AppName, agent: Option<&AgentId>, labelled: Option<&str>) -> bool {
        let is_shared = agent.is_some_and(|agent| agent.as_str() == SWARM_OWNER);
        self.is_own(agent) || (is_shared && labelled == Some(app.as_str()))
    }

    /// `addresses`: what services and tasks of a Swarm may need.
    pub(super) async fn create(
        &self,
        (app, project): (&AppName, &str),
        name: &str,
        network: &Network,
        addresses: Option<u64>,
    ) -> Result<(), Error> {
        let doing = format!("create network {name}");
        // It is never closed.
        let _permit = self.creations.acquire().await;
        // An existing network must not be missed: old engines create another one with the same name.
        let existing = self.inventory.network_now(name).await.map_err(|error| error.classify(&doing))?;
        if let Some(existing) = existing {
            return self.take_existing(app, &existing, network, doing);
        }
        let mut body = to_engine::network_body(name, network, (app, project), self.agents.own());
        if let Some(addresses) = addresses {
            let range = ranges::choose(&*self.connection, addresses).await;
            body.ipam = range.map_err(|error| error.classify(&doing))?.or(body.ipam);
        }
        match self.send_create(&body).await {
            Ok(id) => self.finish_creation(app, &id, network, doing).await,
            // Another network may go at any time, so it is tried again.
            Err(error) if error.contains(NO_RANGE) => {
                Err(Error::Refused { doing, message: format!("{error}; {ANOTHER_RANGE}") })
            }
            // The address range overlaps with one in use: the host must change first.
            Err(error) if error.code() == Some(403) => Err(error.rejected(&doing)),
            Err(error) if error.code().is_some() => Err(error.classify(&doing)),
            // A call without an answer may have succeeded. If the engine is still at work, an event announces the end.
            Err(error) => match self.inventory.network_now(name).await {
                Ok(Some(existing)) => self.take_existing(app, &existing, network, doing),
                Ok(None) | Err(_) => Err(error.classify(&doing)),
            },
        }
    }

    /// A Swarm creates a network whose range overlaps with another one, too, and leaves it without addresses.
    async fn finish_creation(
        &self,
        app: &AppName,
        id: &str,
        network: &Network,
        doing: String,
    ) -> Result<(), Error> {
        if network.driver.as_deref() == Some("overlay") {
            let allocated = ranges::is_allocated(&*self.connection, id).await;
            if !allocated.map_err(|error| error.classify(&doing))? {
                let removed =
                    self.connection.call(DEADLINE, self.connection.docker().remove_network(id)).await;
                tolerate(removed, CallError::is_not_found).map_err(|error| error.classify(&doing))?;
                return Err(Error::Refused { doing, message: ranges::NO_RANGE.to_owned() });
            }
        }
        self.note_created(id, app);
        Ok(())
    }

    fn note_created(&self, id: &str, app: &AppName) {
        self.attribution.record_new(id, app);
        self.cache.objects(ObjectKind::Networks).note_change(id, Settled::Yes);
    }

    /// Accepts a network that exists already if it is the one to create.
    fn take_existing(
        &self,
        app: &AppName,
        existing: &NamedObject,
        network: &Network,
        doing: String,
    ) -> Result<(), Error> {
        let labelled = existing.app.as_ref().map(AppName::as_str);
        let is_same = self.is_of(app, existing.agent.as_ref(), labelled)
            && existing.app.as_ref() == Some(app)
            && existing.spec.as_ref() == Some(&SpecHash::of(network));
        if !is_same {
            let message = "another network with this name exists already".to_owned();
            return Err(Error::Refused { doing, message });
        }
        self.note_created(&existing.id, app);
        Ok(())
    }

    pub(super) async fn remove(&self, app: &AppName, name: &str, id: &str) -> Result<(), Error> {
        let doing = format!("remove network {name}");
        let networks = self.inventory.objects(ObjectKind::Networks).await;
        let networks = networks.map_err(|error| error.classify(&doing))?;
        let known = networks.values().find(|network| network.id == id);
        let is_adopted = self.attribution.is_adopted_network(id);
        let is_own = |network: &NamedObject| {
            self.is_of(app, network.agent.as_ref(), network.app.as_ref().map(AppName::as_str))
        };
        if !is_adopted && known.is_some_and(|network| !is_own(network)) {
            return Err(not_owned(&doing));
        }
        // Of two networks with one name only one is known, and an unknown one may still exist.
        if known.is_none() && !is_adopted {
            let options = None::<query::InspectNetworkOptions>;
            let inspect = self.connection.docker().inspect_network(id, options);
            match self.connection.call(DEADLINE, inspect).await {
                Ok(found) => {
                    let label = |name: &str| found.labels.as_ref().and_then(|labels| labels.get(name));
                    let agent = label(label::AGENT).map(|agent| AgentId(agent.clone()));
                    let labelled = label(label::APPLICATION).map(String::as_str);
                    if !self.is_of(app, agent.as_ref(), labelled) {
                        return Err(not_owned(&doing));
                    }
                }
                Err(error) if error.is_not_found() => return Ok(()),
                Err(error) => return Err(error.classify(&doing)),
            }
        }
        let removed = self.connection.call(DEADLINE, self.connection.docker().remove_network(id)).await;
        self.cache.objects(ObjectKind::Networks).note_change(id, Settled::Yes);
        tolerate(removed, CallError::is_not_found).map_err(|error| error.classify(&doing))
    }

    /// Connects a container to a network.
    pub(super) async fn connect(
        &self,
        container: &ContainerId,
        network: &str,
        endpoint: api::EndpointSettings,
    ) -> Result<(), CallError> {
        let network = self.inventory.network_id(network).await?;
        let request =
            api::NetworkConnectRequest { container: container.to_string(), endpoint_config: Some(endpoint) };
        let connect = self.connection.docker().connect_network(&network, request);
        tolerate(self.connection.call(DEADLINE, connect).await, |error| error.contains(ALREADY_CONNECTED))
    }

    /// Disconnects a container from a network.
    pub(super) async fn disconnect(&self, container: &ContainerId, network: &str) -> Result<(), CallError> {
        let network = match self.inventory.network_id(network).await {
            Ok(network) => network,
            Err(error) if error.is_not_found() => return Ok(()),
            Err(error) => return Err(error),
        };
        let request = api::NetworkDisconnectRequest { container: container.to_string(), force: Some(false) };
        let disconnect = self.connection.docker().disconnect_network(&network, request);
        tolerate(self.connection.call(DEADLINE, disconnect).await, |error| {
            error.is_not_found() || error.contains(&["is not connected to"])
        })
    }

    /// Returns the id of the network. Without bollard, which does not know the field that keeps old engines from creating
    /// a second network.
    async fn send_create(&self, body: &api::NetworkCreateRequest) -> Result<String, CallError> {
        self.connection.api_version().await?;
        let mut json = serde_json::to_value(body).map_err(|error| CallError::unreachable(&error))?;
        if let Some(fields) = json.as_object_mut() {
            fields.insert("CheckDuplicate".to_owned(), true.into());
        }
        let body = json.to_string().into_bytes();
        let sent = self.connection.transport().send_json(Method::POST, "/networks/create", body);
        let created: api::NetworkCreateResponse = within(DEADLINE, sent).await?;
        Ok(created.id)
    }
}
