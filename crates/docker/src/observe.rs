//! The observed state of one application. While events arrive, observing an application whose containers did not change
//! costs the one shared list of containers.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use driftless_model::{
    AgentId, AppName, Candidate, Claims, ContainerId, EngineData, HeldPort, Image, Inside, Instance,
    IpNetwork, LeftInSwarm, Observed, ObservedNetwork, ObservedVolume, Other, OwnUpdate, Platform, Timestamp,
};
use futures_util::{StreamExt, TryStreamExt, stream};

use crate::{
    agent_claims::OwnAgents,
    attribution::{Attribution, is_healthcheck},
    cache::{NamedObject, NamedObjects, ObjectKind},
    call_error::CallError,
    connection::Connection,
    container_list::{ContainerList, ListedContainer},
    docker::ObserveScope,
    error::Error,
    host_ports::HostPorts,
    inventory::{Inventory, is_reference},
    peer_names, platforms,
    swarm::{self, ranges},
};

/// A network that Docker makes when it starts without data. It is stored with them and keeps its id, unlike `bridge`.
const NETWORK_OF_DATA: &str = "none";

/// The number of containers or images that are inspected at the same time.
const PARALLEL: usize = 8;

/// Observes applications.
#[derive(Debug)]
pub(crate) struct Observer {
    connection: Arc<Connection>,
    inventory: Arc<Inventory>,
    attribution: Arc<Attribution>,
    agents: Arc<OwnAgents>,
    host_ports: HostPorts,
}

impl Observer {
    pub(crate) fn new(
        connection: &Arc<Connection>,
        inventory: &Arc<Inventory>,
        attribution: &Arc<Attribution>,
        agents: &Arc<OwnAgents>,
    ) -> Self {
        Self {
            connection: Arc::clone(connection),
            inventory: Arc::clone(inventory),
            attribution: Arc::clone(attribution),
            agents: Arc::clone(agents),
            host_ports: HostPorts::default(),
        }
    }

    /// Everything that belongs to one application, and the objects that the scope names.
    pub(crate) async fn observe(&self, app: &AppName, scope: &ObserveScope) -> Result<Observed, Error> {
        let observed = async {
            self.attribution.set_adopted(app, &scope.adopted, &scope.adopted_networks);
            let list = self.inventory.containers().await?;
            let (mut parts, mut instances): (BTreeMap<_, _>, BTreeMap<_, _>) =
                self.instances(app, &list).await?.into_iter().partition(|(_, found)| found.part.is_some());
            let mut candidates = self.candidates(scope, &list).await?;
            peer_names::resolve(&mut instances, &mut parts, &mut candidates, &list);
            for instance in instances.values_mut().chain(parts.values_mut()) {
                instance.agent = self.agents.owner(instance.agent.clone());
            }
            let candidate_instances = candidates.values().map(|candidate| &candidate.instance);
            let containers = instances.values().chain(parts.values()).chain(candidate_instances);
            let all_networks = self.inventory.objects(ObjectKind::Networks).await?;
            let mut networks = self.networks(app, scope, &list, &all_networks).await?;
            let swarm = if scope.is_swarm {
                Some(Box::new(swarm::observe(&*self.connection, app, scope, &mut networks).await?))
            } else {
                None
            };
            let mut observed = Observed {
                inside: self.visits(containers),
                instances,
                parts,
                candidates,
                others: self.others(scope).await?,
                own: self.connection.own_container(),
                own_update: self.own_update(&list),
                networks,
                held_subnets: held_subnets(scope, &all_networks),
                volumes: self.volumes(app, scope).await?,
                images: self.images(scope).await?,
                claims: self.claims(app, &list),
                engine_data: self.engine_data(&list, &all_networks),
                engine_started: self.inventory.engine_started().await?,
                node: Some(self.connection.defaults().host_name).filter(|name| !name.is_empty()),
                engine_traits: self.connection.defaults().engine_traits(),
                engine_platforms: None,
                swarm,
                left_in_swarm: self.left_in_swarm(app, scope).await?,
                // The files of the agent say so.
                lacking_secrets: BTreeMap::new(),
                // The prober of the agent says so.
                unanswered_probes: BTreeSet::new(),
                engine_architecture: self.connection.info().and_then(|info| info.architecture),
                engine_api: self.connection.known_api_version().map(|api| (api.major, api.minor)),
            };
            observed.engine_platforms = self.platforms(scope).await;
            let held =
                self.host_ports.held(&self.connection, &self.inventory, &scope.host_ports, &observed, &list);
            observed.claims.ports.extend(Box::pin(held).await);
            Ok(observed)
        };
        observed.await.map_err(|error: CallError| error.classify(&format!("observe {app}")))
    }

    /// The objects that the application has in a Swarm, although it runs on this host.
    async fn left_in_swarm(&self, app: &AppName, scope: &ObserveScope) -> Result<LeftInSwarm, CallError> {
        let may_have_some = scope.had_services || self.connection.defaults().is_swarm_manager;
        if !may_have_some || scope.is_swarm {
            return Ok(LeftInSwarm::default());
        }
        swarm::objects_of(&*self.connection, app, scope).await
    }

    /// The helper container that replaces the agent's own one, if there is one.
    fn own_update(&self, list: &ContainerList) -> Option<OwnUpdate> {
        let is_helper = |listed: &&Arc<ListedContainer>| {
            let agent = listed.agent.as_ref();
            listed.replaces_agent && agent.is_some_and(|agent| self.agents.contain(agent.as_str()))
        };
        let helper = list.containers.values().find(is_helper)?;
        Some(OwnUpdate { is_running: helper.is_running() })
    }

    /// The engine's data, if they have an id. The one that Docker states of itself cannot be used: up to 20.10, and after an upgrade
    /// from there, it is that of a file in `/etc/docker`, which an empty disk does not change. Podman states another one with each
    /// answer, and has no such network, so only the folder is known of its data.
    fn engine_data(&self, list: &ContainerList, networks: &NamedObjects) -> Option<EngineData> {
        let id = if self.connection.is_podman() {
            format!("podman {}", self.connection.data_folder()?)
        } else {
            networks.get(NETWORK_OF_DATA).filter(|network| network.is_local)?.id.clone()
        };
        if id.is_empty() {
            return None;
        }
        let is_own = |agent: &AgentId| self.agents.contain(agent.as_str());
        let mut containers = list.containers.values();
        let has_own =
            containers.any(|listed| listed.app.is_some() && listed.agent.as_ref().is_some_and(is_own));
        Some(EngineData { id, has_own })
    }

    /// The platforms that the engine can run, if the scope has one that is not its own.
    async fn platforms(&self, scope: &ObserveScope) -> Option<BTreeSet<Platform>> {
        let own = self.connection.info()?.architecture?;
        let is_own = |platform: &Platform| platform.is_linux() && platform.is_of(&own);
        if scope.platforms.iter().all(is_own) {
            return None;
        }
        platforms::runnable(self.connection.transport()).await
    }

    /// The applications that own a container or network.
    pub(crate) async fn applications(&self) -> Result<BTreeSet<AppName>, Error> {
        let found = async {
            let list = self.inventory.containers().await?;
            let networks = self.inventory.objects(ObjectKind::Networks).await?;
            let of_networks = networks.values().filter_map(|network| network.app.clone());
            Ok(list.by_app.keys().cloned().chain(of_networks).collect())
        };
        found.await.map_err(|error: CallError| error.classify("list the applications on this host"))
    }

    async fn instances(
        &self,
        app: &AppName,
        list: &ContainerList,
    ) -> Result<BTreeMap<ContainerId, Instance>, CallError> {
        let ids = list.by_app.get(app).into_iter().flatten();
        let listed: Vec<_> =
            ids.filter_map(|id| Some((id.clone(), Arc::clone(list.containers.get(id)?)))).collect();
        let found: Vec<_> = stream::iter(listed)
            .map(|(id, listed)| async move {
                let instance = self.inventory.instance(&id, &listed).await?;
                Ok::<_, CallError>((id, instance))
            })
            .buffer_unordered(PARALLEL)
            .try_collect()
            .await?;
        let existing = found.into_iter().filter_map(|(id, instance)| Some((id, instance?.as_ref().clone())));
        Ok(existing.collect())
    }

    /// Commands that users ran in the containers and copies into them; without health checks.
    fn visits<'a>(&self, containers: impl Iterator<Item = &'a Instance>) -> BTreeMap<ContainerId, Inside> {
        let inside = containers.map(|instance| {
            let visits = self.attribution.visits(&instance.id).into_iter();
            let visits = visits.filter(|visit| !is_healthcheck(visit, &instance.config)).collect();
            (instance.id.clone(), Inside { files: None, visits })
        });
        inside.filter(|(_, inside)| !inside.visits.is_empty()).collect()
    }

    /// The containers that Docker Compose created for the project, those with the fixed name of a service, and those that
    /// were adopted before.
    async fn candidates(
        &self,
        scope: &ObserveScope,
        list: &ContainerList,
    ) -> Result<BTreeMap<ContainerId, Candidate>, CallError> {
        let is_candidate = |id: &ContainerId, listed: &ListedContainer| {
            let is_of_project = listed.project.is_some() && listed.project == scope.project;
            let is_named = listed.project.is_none() && scope.container_names.contains_key(&listed.name);
            let is_meant = is_of_project || is_named || scope.adopted.contains(id);
            listed.app.is_none() && listed.agent.is_none() && is_meant
        };
        let mut candidates = BTreeMap::new();
        for (id, listed) in list.containers.iter().filter(|(id, listed)| is_candidate(id, listed)) {
            let Some(instance) = self.inventory.instance(id, listed).await? else { continue };
            let mut instance = instance.as_ref().clone();
            // The container of `docker compose run` has a service and is not one of its instances.
            let by_name = instance.instance.workload.as_str().is_empty();
            match scope.container_names.get(&listed.name) {
                Some(named) if by_name => instance.instance = named.clone(),
                Some(_) | None if listed.project.is_none() && !scope.adopted.contains(id) => continue,
                Some(_) | None => {}
            }
            // By id: the image's name may stand for another image by now.
            let image = self.inventory.image(&instance.image_id).await?;
            let defaults = image.map(|image| Arc::clone(&image.defaults)).unwrap_or_default();
            candidates.insert(id.clone(), Candidate { instance, by_name, defaults });
        }
        Ok(candidates)
    }

    /// The names, ports and mounts of all containers outside the application.
    fn claims(&self, app: &AppName, list: &ContainerList) -> Claims {
        let mut claims = Claims::new(app, Arc::clone(&list.names));
        claims.mounting = Arc::clone(&list.mounting);
        claims.adopters = self.attribution.adopters();
        claims.former_agents = self.agents.taken_over();
        let others = list.containers.values().filter(|listed| listed.app.as_ref() != Some(app));
        for listed in others.filter(|listed| listed.is_running()) {
            for (port, protocol, ip) in listed.ports.iter().copied() {
                claims.ports.insert(HeldPort { port, protocol, ip, by: listed.name.clone() });
            }
        }
        claims
    }

    async fn networks(
        &self,
        app: &AppName,
        scope: &ObserveScope,
        list: &ContainerList,
        all: &NamedObjects,
    ) -> Result<BTreeMap<String, ObservedNetwork>, CallError> {
        let mut networks: BTreeMap<String, ObservedNetwork> = all
            .iter()
            .filter(|(name, network)| network.app.as_ref() == Some(app) || scope.networks.contains(*name))
            .map(|(name, network)| {
                let is_of_app = is_created_for(app, scope, network);
                let NamedObject {
                    id,
                    app,
                    agent,
                    spec,
                    project,
                    network,
                    addresses,
                    subnets: _,
                    is_local,
                    publishes_no_ports,
                    volume: _,
                    created: _,
                } = network.clone();
                let unlabelled = network.clone().filter(|_| agent.is_none() && !is_local);
                let compose = network.filter(|_| is_of_app && project.is_some());
                let agent = agent.map(|agent| self.agents.owner(agent));
                let foreign = Vec::new();
                let is_unallocated = false;
                let network = ObservedNetwork {
                    id,
                    agent,
                    app,
                    spec,
                    foreign,
                    compose,
                    unlabelled,
                    addresses,
                    is_unallocated,
                    is_local,
                    publishes_no_ports,
                };
                (name.clone(), network)
            })
            .collect();
        // A Swarm keeps the containers of Jobs that have ended, and they hold no network.
        let others = list.containers.values().filter(|listed| listed.app.as_ref() != Some(app));
        for listed in others.filter(|listed| !scope.is_swarm || listed.is_running()) {
            for (name, _) in &listed.networks {
                if let Some(network) = networks.get_mut(name) {
                    network.foreign.push(listed.name.clone());
                }
            }
        }
        for network in networks.values_mut() {
            network.foreign.sort_unstable();
        }
        if scope.is_swarm {
            ranges::note_unallocated(&*self.connection, &mut networks).await?;
        }
        Ok(networks)
    }

    async fn volumes(
        &self,
        app: &AppName,
        scope: &ObserveScope,
    ) -> Result<BTreeMap<String, ObservedVolume>, CallError> {
        let all = self.inventory.objects(ObjectKind::Volumes).await?;
        let volumes = all
            .iter()
            .filter(|(name, volume)| volume.app.as_ref() == Some(app) || scope.volumes.contains(*name))
            .map(|(name, volume)| {
                let is_of_app = is_created_for(app, scope, volume);
                let NamedObject {
                    id: _,
                    app,
                    agent,
                    spec,
                    project: _,
                    network: _,
                    volume,
                    addresses: _,
                    subnets: _,
                    is_local: _,
                    publishes_no_ports: _,
                    created: _,
                } = volume.clone();
                let compose = volume.filter(|_| is_of_app);
                let agent = agent.map(|agent| self.agents.owner(agent));
                (name.clone(), ObservedVolume { agent, app, spec, compose })
            });
        Ok(volumes.collect())
    }

    /// The containers outside the application that its stack shares something with. They are inspected every time,
    /// because no list says when they were started.
    async fn others(&self, scope: &ObserveScope) -> Result<BTreeMap<String, Other>, CallError> {
        let mut others = BTreeMap::new();
        for name in scope.containers.iter().filter(|name| is_reference(name)) {
            let Some(found) = self.connection.find_container(name).await? else { continue };
            let Some(id) = found.id.map(ContainerId) else { continue };
            let running =
                found.state.filter(|state| state.running == Some(true) && state.restarting != Some(true));
            let started = running.and_then(|state| Timestamp::parse(state.started_at.as_deref()?));
            others.insert(name.clone(), Other { id, started });
        }
        Ok(others)
    }

    async fn images(&self, scope: &ObserveScope) -> Result<BTreeMap<String, Image>, CallError> {
        let found: Vec<_> = stream::iter(scope.images.clone())
            .map(|reference| async move {
                let image = self.inventory.image(&reference).await?;
                Ok::<_, CallError>((reference, image))
            })
            .buffer_unordered(PARALLEL)
            .try_collect()
            .await?;
        let existing =
            found.into_iter().filter_map(|(reference, image)| Some((reference, image?.as_ref().clone())));
        Ok(existing.collect())
    }
}

/// The subnets of the host's bridges that overlap one of the scope, by the names of their networks.
fn held_subnets(scope: &ObserveScope, networks: &NamedObjects) -> BTreeMap<String, Vec<IpNetwork>> {
    let is_wanted = |subnet: &&IpNetwork| scope.subnets.iter().any(|wanted| wanted.overlaps(**subnet));
    let held = |(name, network): (&String, &NamedObject)| {
        let subnets: Vec<IpNetwork> = network.subnets.iter().filter(is_wanted).copied().collect();
        (!subnets.is_empty()).then(|| (name.clone(), subnets))
    };
    networks.iter().filter_map(held).collect()
}

/// Whether a network or volume was created for the application: by an agent, or for its Compose project by anybody. The project in
/// the labels alone does not tell: Kubernetes has none.
fn is_created_for(app: &AppName, scope: &ObserveScope, object: &NamedObject) -> bool {
    let is_by_agent = object.agent.is_some() && object.app.as_ref() == Some(app);
    is_by_agent || object.project == scope.project
}
