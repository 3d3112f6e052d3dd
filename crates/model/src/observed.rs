//! The observed state of one application at one moment. Collected without loss; choosing among what was
//! found is the planner's work.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::Arc,
};

use serde::{Deserialize, Serialize};

use super::{
    AgentId, AppName, Container, ContainerId, ContentId, EngineTraits, ImageRef, Inside, InstanceId,
    IpNetwork, ManagedApplications, MountingContainer, Network, NetworkMode, ObservedSwarm, PartOf, Platform,
    Port, Protocol, Resources, RestartPolicy, SpecHash, Timestamp, Volume, WorkloadName,
};

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Observed {
    /// Every container that carries our label for this application, also if the agent did not create it.
    pub instances: BTreeMap<ContainerId, Instance>,
    /// The containers that are parts of a pod. Not among the instances.
    pub parts: BTreeMap<ContainerId, Instance>,
    /// Networks that carry our label for this application, and any other that the stack names. By name.
    pub networks: BTreeMap<String, ObservedNetwork>,
    /// The subnets of bridges of this host, of any application, that overlap one which the stack asks for. By the name of the network.
    pub held_subnets: BTreeMap<String, Vec<IpNetwork>>,
    /// Volumes that carry our label for this application, and any other that the stack names. By name.
    pub volumes: BTreeMap<String, ObservedVolume>,
    /// The images that the stack names and the host has, by the reference in the manifest.
    pub images: BTreeMap<String, Image>,
    /// Containers of others that the stack shares something with, by the name or id it gives.
    pub others: BTreeMap<String, Other>,
    /// Containers without our labels that Docker Compose started under this project's name, those without any labels that
    /// have the fixed name of a service, and those that were taken over. What they are to us is in the [`super::Record`] alone.
    pub candidates: BTreeMap<ContainerId, Candidate>,
    /// Files changed inside running containers.
    pub inside: BTreeMap<ContainerId, Inside>,
    /// Names, ports and data that others hold.
    pub claims: Claims,
    /// The container that this agent itself runs in, if it is one of this engine's.
    pub own: Option<ContainerId>,
    /// The helper container that replaces the agent's own one, if there is one.
    pub own_update: Option<OwnUpdate>,
    /// The engine's data, if they have an id.
    pub engine_data: Option<EngineData>,
    /// When the engine was started, if it tells: what ended before did not end by itself.
    pub engine_started: Option<Timestamp>,
    /// The version (major, minor) of the engine's API, if it is known.
    pub engine_api: Option<(u16, u16)>,
    /// The name of the engine's host, if it is known.
    pub node: Option<String>,
    /// The values that the engine fills in, and those that it cannot apply.
    pub engine_traits: EngineTraits,
    /// The architecture of the engine in the words of Go (`amd64`), if it is known.
    pub engine_architecture: Option<String>,
    /// The platforms that the engine can run, with those that it emulates. Asked only for a stack that names another platform
    /// than the engine's own, and `None` if the engine does not tell.
    pub engine_platforms: Option<BTreeSet<Platform>>,
    /// The Swarm, for an application with `engine: swarm`.
    pub swarm: Option<Box<ObservedSwarm>>,
    /// The objects that an application with `engine: docker` still has in a Swarm.
    pub left_in_swarm: LeftInSwarm,
    /// The workloads of the target that need a secret which the host does not have any more, each with that secret. They are kept in
    /// memory only, and no source has the value of an older revision.
    pub lacking_secrets: BTreeMap<WorkloadName, ContentId>,
    /// The running containers that count as ready by their former probes, because a changed one has no result yet.
    pub unanswered_probes: BTreeSet<ContainerId>,
}

/// The data of an engine: its containers, networks, volumes and images.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EngineData {
    /// It stays as long as the data. Another engine has another one, and so has the same engine on an empty disk.
    pub id: String,
    /// Among them are containers of this agent, of any application.
    pub has_own: bool,
}

/// The objects of one application in a Swarm, by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeftInSwarm {
    pub services: Vec<String>,
    pub configs: Vec<String>,
    pub secrets: Vec<String>,
    pub networks: Vec<String>,
    /// Why the Swarm could not be asked, and what to do: there may be objects of an application that had services.
    pub unknown: Option<String>,
}

impl LeftInSwarm {
    pub fn is_empty(&self) -> bool {
        let Self { services, configs, secrets, networks, unknown } = self;
        unknown.is_none() && [services, configs, secrets, networks].into_iter().all(Vec::is_empty)
    }
}

/// The helper container that replaces the agent's own one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OwnUpdate {
    pub is_running: bool,
}

/// A container of somebody else.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Other {
    pub id: ContainerId,
    /// When its present run began, if it runs.
    pub started: Option<Timestamp>,
}

/// A container that may be adopted: Docker Compose made it, or it has the fixed name of a service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// Its workload and slot are those of Compose's labels: service and number. It has no agent and no spec.
    pub instance: Instance,
    /// It has no labels of Docker Compose, and the name that Git gives a service (`container_name`).
    pub by_name: bool,
    /// The defaults of its image.
    pub defaults: Arc<Container>,
}

/// Names, host ports and data that others hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Claims {
    /// All containers of the host by name, shared by all applications: with 100 applications of ten containers, copies without
    /// an application's own took a third of the agent's memory.
    host: Arc<HeldNames>,
    /// The application whose containers are no others.
    app: Option<AppName>,
    /// Its containers that carry no label.
    adopted: BTreeSet<ContainerId>,
    pub ports: BTreeSet<HeldPort>,
    /// All containers of the host that mount something, shared by all applications.
    pub mounting: Arc<Vec<MountingContainer>>,
    /// The applications that have adopted containers, which carry no label of them.
    pub adopters: BTreeMap<ContainerId, AppName>,
    /// Former agents whose objects belong to this agent.
    pub former_agents: BTreeSet<AgentId>,
    /// The applications of this agent. `None`: nothing is known of them.
    pub applications: Option<Arc<ManagedApplications>>,
    /// The application whose folder this one goes on with, and which is not gone yet.
    pub awaited_folder: Option<AppName>,
    /// The volumes in the last revisions of other applications, each with one of these. Only asked for an application that is removed
    /// with its volumes. `None`: they are not known.
    pub deployed_volumes: Option<BTreeMap<String, AppName>>,
}

/// The containers of a host, by name.
pub type HeldNames = BTreeMap<String, NameHolder>;

/// A container that holds a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NameHolder {
    pub id: ContainerId,
    /// The application in its labels.
    pub app: Option<AppName>,
    /// The Compose project in its labels, unless it was made for a single command (`docker compose run`).
    pub project: Option<ComposeService>,
}

/// The service that a container belongs to for Docker Compose.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ComposeService {
    pub project: String,
    pub service: WorkloadName,
}

/// A port of the host that a container of somebody else or a process of the host holds.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct HeldPort {
    pub port: u16,
    pub protocol: Protocol,
    /// `None`: on every address.
    pub ip: Option<IpAddr>,
    /// The name of the container, or [`Claims::HOST_PROCESS`].
    pub by: String,
}

impl Claims {
    /// The holder of a port that no container holds. No container can have this name.
    pub const HOST_PROCESS: &'static str = "a process of the host";

    /// The names that containers outside the application hold. `host`: those of all containers.
    pub fn new(app: &AppName, host: Arc<HeldNames>) -> Self {
        Self { host, app: Some(app.clone()), ..Self::default() }
    }

    /// The container of others that holds a name.
    pub fn name_holder(&self, name: &str) -> Option<&NameHolder> {
        self.host.get(name).filter(|holder| self.is_other(holder))
    }

    /// The containers of others, by name.
    pub fn name_holders(&self) -> impl Iterator<Item = (&str, &NameHolder)> {
        let all = self.host.iter().filter(|(_, holder)| self.is_other(holder));
        all.map(|(name, holder)| (name.as_str(), holder))
    }

    /// The names of the containers that belong to no application: neither their labels nor the adoptions that the agent knows of name
    /// one.
    pub fn unmanaged(&self) -> impl Iterator<Item = &str> {
        let is_gone = move |app: &AppName| self.applications.as_ref().is_some_and(|all| all.is_gone(app));
        let is_adopted = move |id: &ContainerId| self.adopter(id).is_some_and(|app| !is_gone(app));
        let others = self.name_holders();
        let nobodys = others.filter(move |(_, holder)| holder.app.is_none() && !is_adopted(&holder.id));
        nobodys.map(|(name, _)| name)
    }

    fn is_other(&self, holder: &NameHolder) -> bool {
        let is_own = self.app.is_some() && holder.app == self.app;
        !is_own && !self.adopted.contains(&holder.id)
    }

    /// The containers of others that mount something, each with the application it belongs to.
    pub fn mounting(&self) -> impl Iterator<Item = (&MountingContainer, Option<&AppName>)> {
        let all =
            self.mounting.iter().map(|found| (found, found.app.as_ref().or_else(|| self.adopter(&found.id))));
        all.filter(|(found, owner)| {
            let is_own = self.app.is_some() && *owner == self.app.as_ref();
            !is_own && !self.adopted.contains(&found.id)
        })
    }

    /// Whether a container of others belongs to an application of this agent, or did so until it was forgotten.
    pub fn is_of_agent(&self, found: &MountingContainer, agent: &AgentId) -> bool {
        let labelled = found.agent.as_ref();
        labelled.is_some_and(|labelled| labelled == agent || self.former_agents.contains(labelled))
            || self.adopter(&found.id).is_some()
    }

    /// The application that a container of others belongs to, by its labels or because it was adopted.
    pub fn application_of(&self, container: &str) -> Option<&AppName> {
        let holder = self.name_holder(container)?;
        holder.app.as_ref().or_else(|| self.adopter(&holder.id))
    }

    /// The service of Docker Compose of a container of others that belongs to no application of an agent.
    pub fn service_of_unmanaged(&self, container: &str) -> Option<&ComposeService> {
        let holder = self.name_holder(container)?;
        let is_managed = holder.app.is_some() || self.adopter(&holder.id).is_some();
        holder.project.as_ref().filter(|_| !is_managed)
    }

    /// The application that has adopted a container, by what was observed last, or before the agent started.
    fn adopter(&self, id: &ContainerId) -> Option<&AppName> {
        let at_start = || self.applications.as_ref().and_then(|all| all.adopters.get(id));
        self.adopters.get(id).or_else(at_start)
    }

    /// Whether this agent certainly does not have an application any more, and the host has no container of it.
    pub fn is_gone(&self, app: &AppName) -> bool {
        let is_unmanaged = self.applications.as_ref().is_some_and(|all| all.is_gone(app));
        is_unmanaged && !self.host.values().any(|holder| holder.app.as_ref() == Some(app))
    }

    /// Adds a container of others.
    pub fn hold_name(&mut self, name: &str, holder: NameHolder) {
        Arc::make_mut(&mut self.host).insert(name.to_owned(), holder);
    }

    /// A container without labels belongs to the application from now on.
    pub fn adopt(&mut self, id: &ContainerId, name: &str) {
        self.adopted.insert(id.clone());
        self.ports.retain(|port| port.by != name);
    }

    /// The holder of the address and port that this port needs.
    pub fn holder(&self, port: &Port) -> Option<&str> {
        let host = port.host.filter(|it| it.first == it.last)?;
        let is_in_the_way = |it: &&HeldPort| {
            let is_same = (it.port, it.protocol) == (host.first, port.protocol);
            is_same && port.overlaps(it.ip)
        };
        self.ports.iter().find(is_in_the_way).map(|it| it.by.as_str())
    }
}

/// One real container that carries our labels.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Instance {
    pub id: ContainerId,
    /// Its name in Docker, without the leading `/`.
    pub name: String,
    /// From its labels, which anybody can copy: see [`super::Record::own_containers`].
    pub instance: InstanceId,
    pub agent: AgentId,
    pub spec: SpecHash,
    pub created: Timestamp,
    /// When its present or last run began.
    pub started: Option<Timestamp>,
    pub state: State,
    /// The result of the agent's probes; without probes, `Ready` as soon as it runs and is healthy.
    pub readiness: Readiness,
    /// It may have been healthy before [`Self::readiness`] says: the engine keeps only the last results of its health check.
    #[serde(default)]
    pub healthy_before: bool,
    /// Number of restarts by the engine since the agent or a user last started it.
    pub restarts: u32,
    /// By the network's name.
    pub networks: BTreeMap<String, Endpoint>,
    pub live: LiveSettings,
    /// Its full configuration, read back from the engine: what `Container` would have made it.
    /// The image's defaults are contained in it.
    pub config: Arc<Container>,
    /// The id of the image it runs.
    pub image_id: String,
    /// The volumes that the engine made for it without a name, by target.
    pub anonymous_volumes: BTreeMap<String, String>,
    /// Volumes that start empty and are removed with it, by target.
    pub empty_volumes: BTreeMap<String, String>,
    /// The pod that it is a part of. It then counts under the part's own name, such as `web/log`.
    pub part: Option<PartOf>,
    /// The containers that it shares the network, processes or memory of.
    pub hosts: BTreeSet<ContainerId>,
    /// The containers that it has the volumes of.
    pub volumes_of: BTreeSet<ContainerId>,
    /// The ports that it holds on the host while it runs, also those that the engine chose.
    pub bound_ports: Vec<Port>,
    /// Somebody ran `docker stop`, `kill` or `pause` on it, as far as the engine still tells: when.
    pub touched_by_hand: Option<Timestamp>,
    /// The last lines of the run that ended by itself with another code than 0, as the container printed them; empty
    /// if no run did, or if it printed nothing. They may contain secrets.
    pub last_output: String,
    /// The last lines that its health check printed when it failed last, while it is unhealthy. They may contain secrets.
    pub check_output: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum State {
    Created,
    Running {
        since: Timestamp,
        health: Health,
    },
    Paused,
    /// The engine waits before it restarts it.
    Restarting {
        code: i64,
        finished: Timestamp,
    },
    Exited {
        code: i64,
        finished: Timestamp,
        out_of_memory: bool,
        /// The engine's own words when it could not be started.
        error: String,
    },
    /// On its way out: the engine is removing it, and will say when it is gone.
    Removing,
    /// Half removed: its removal failed and has to be asked for again.
    Dead,
}

/// The result of the container's own health check, from best to worst.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Health {
    /// There is no health check, or it succeeds.
    Healthy,
    Starting,
    Unhealthy,
}

/// The result of the agent's own probes of a running container.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Readiness {
    /// Ready since then. Without a readiness probe: since it runs and is healthy.
    Ready {
        since: Timestamp,
    },
    /// Not yet probed often enough, or the startup probe has not succeeded.
    Starting {
        reason: String,
    },
    NotReady {
        reason: String,
    },
    /// The liveness or startup probe failed for good: it must be restarted.
    Dead {
        reason: String,
    },
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Endpoint {
    pub network_id: String,
    /// Aliases that were asked for: without the container's id and name.
    pub aliases: Vec<String>,
    /// The address it has now, if it runs.
    pub ip: Option<String>,
    /// The address on the host, if it runs.
    pub gateway: Option<String>,
}

/// Settings that Docker can change on a live container.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LiveSettings {
    pub resources: Resources,
    pub restart: RestartPolicy,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObservedNetwork {
    pub id: String,
    /// From our label; `None` when it is not ours.
    pub agent: Option<AgentId>,
    /// From our label: the application that it was created for.
    pub app: Option<AppName>,
    pub spec: Option<SpecHash>,
    /// Containers attached to it, and services of a Swarm that use it, that are not of this application, by name.
    pub foreign: Vec<String>,
    /// Its configuration, if Docker Compose or an agent created it for this project, or an agent for this application.
    pub compose: Option<Network>,
    /// Its configuration, if it is one of a Swarm and no agent created it.
    pub unlabelled: Option<Network>,
    /// The addresses of its subnets of IPv4 for services and tasks: see [`crate::addresses_of_subnet`]. `None`: it has none yet.
    pub addresses: Option<u64>,
    /// A Swarm gives it no range of addresses, ever: its services would wait.
    pub is_unallocated: bool,
    /// It is one of this host alone, so no service of a Swarm can use it.
    pub is_local: bool,
    /// It is internal, or has a driver by which containers have no ports on the host.
    pub publishes_no_ports: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObservedVolume {
    pub agent: Option<AgentId>,
    /// From our label: the application that it was created for.
    pub app: Option<AppName>,
    pub spec: Option<SpecHash>,
    /// Its configuration, if Docker Compose or an agent created it for this project, or an agent for this application.
    pub compose: Option<Volume>,
}

/// An image on the host and what it gives a container that says nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Image {
    pub id: String,
    /// When it was last given a name on this host, by a pull or by hand.
    pub tagged: Option<Timestamp>,
    /// `repository@sha256:…`, where the registry gave one.
    pub digests: Vec<String>,
    /// The platforms that the engine has it for under this name. Empty: they are not known.
    pub platforms: BTreeSet<Platform>,
    /// Entry point, command, environment, user, working directory, labels, exposed ports, volumes
    /// (as anonymous mounts), health check and stop signal of the image.
    pub defaults: Arc<Container>,
}

impl Image {
    /// Whether an engine creates a container from it that asks for this platform, as far as that is known. A store that keeps
    /// several platforms under one name finds only the very one; the classic store also accepts one that serves it.
    pub fn is_for(&self, wanted: &Platform, engine: &EngineTraits) -> bool {
        let fits = |own: &Platform| {
            if engine.keeps_one_platform { own.serves(wanted) } else { own.is_same(wanted) }
        };
        self.platforms.is_empty() || self.platforms.iter().any(fits)
    }

    /// Whether a host of this platform runs it as its own, as far as that is known.
    pub fn is_native_to(&self, host: &Platform) -> bool {
        self.platforms.is_empty() || self.platforms.iter().any(|own| own.serves(host))
    }

    /// The digest under which a reference names this image. The same image may be here under the names of other
    /// repositories as well, and what these call it is not asked for.
    pub fn digest_of(&self, reference: &str) -> Option<&String> {
        self.digests_of(reference).next()
    }

    /// All digests under which a reference names this image. It has several if indexes that differ for other platforms were
    /// pulled.
    pub fn digests_of(&self, reference: &str) -> impl Iterator<Item = &String> {
        let image = ImageRef::parse(reference);
        self.digests.iter().filter(move |digest| ImageRef::parse(digest).is_same_repository(&image))
    }
}

impl Observed {
    /// All containers that carry our label: instances and their parts.
    pub fn containers(&self) -> impl Iterator<Item = &Instance> {
        self.instances.values().chain(self.parts.values())
    }

    /// One of them by its id.
    pub fn container(&self, id: &ContainerId) -> Option<&Instance> {
        self.instances.get(id).or_else(|| self.parts.get(id))
    }

    /// The instances of each workload, in the order of their ids.
    pub fn by_workload(&self) -> BTreeMap<&WorkloadName, Vec<&Instance>> {
        let mut all: BTreeMap<&WorkloadName, Vec<&Instance>> = BTreeMap::new();
        for instance in self.instances.values() {
            all.entry(&instance.instance.workload).or_default().push(instance);
        }
        all
    }

    /// The parts of a pod, those that came first before the others.
    pub fn parts_of<'a>(&'a self, pod: &'a ContainerId) -> Vec<&'a Instance> {
        let is_of = |it: &&Instance| it.part.as_ref().is_some_and(|it| it.pod == *pod);
        let mut parts: Vec<&Instance> = self.parts.values().filter(is_of).collect();
        parts.sort_by_key(|it| (it.created, &it.id));
        parts
    }
}

impl Instance {
    /// Ready for so long that it can be counted on.
    pub fn is_available(&self, min_ready: std::time::Duration, now: Timestamp) -> bool {
        match (&self.state, &self.readiness) {
            (State::Running { health: Health::Healthy, .. }, Readiness::Ready { since }) => {
                since.is_of_a_clock_ahead(now) || now.since(*since) >= min_ready
            }
            _ => false,
        }
    }

    pub fn is_running(&self) -> bool {
        matches!(self.state, State::Running { .. })
    }

    /// The content it mounts, so that nobody removes it under its feet.
    pub fn contents(&self) -> impl Iterator<Item = &ContentId> {
        self.config.mounts.iter().filter_map(|it| match &it.source {
            super::MountSource::Content(id) | super::MountSource::Secret(id) => Some(id),
            _ => None,
        })
    }

    /// Whether it shares the host's network.
    pub fn on_host_network(&self) -> bool {
        self.config.network_mode == NetworkMode::Host
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_of_another_repository_is_not_ones_own() {
        let digests =
            ["registry.example:5000/other@sha256:aa", "registry.example:5000/web@sha256:bb", "web@sha256:cc"];
        let image = Image { digests: digests.map(str::to_owned).to_vec(), ..Image::default() };
        let digest = |reference| image.digest_of(reference).map(String::as_str);
        assert_eq!(digest("registry.example:5000/web:1.0"), Some("registry.example:5000/web@sha256:bb"));
        assert_eq!(digest("docker.io/library/web"), Some("web@sha256:cc"));
        assert_eq!(digest("web@sha256:cc"), Some("web@sha256:cc"));
        assert_eq!(digest("registry.example:5000/third:1.0"), None);
    }

    #[test]
    fn container_that_another_application_has_adopted_is_managed() {
        let mut claims = Claims::default();
        let names = ["labelled", "adopted-now", "adopted-before", "forgotten", "pihole"];
        for name in names {
            let app = (name == "labelled").then(|| AppName::from("shop"));
            claims.hold_name(name, NameHolder { id: ContainerId(name.to_owned()), app, project: None });
        }
        let of = |name: &str, app: &str| (ContainerId(name.to_owned()), AppName::from(app));
        claims.adopters = [of("adopted-now", "media")].into();
        let at_start = [of("adopted-before", "media"), of("forgotten", "home")];
        let applications = ManagedApplications {
            is_complete: true,
            names: ["media", "shop"].map(AppName::from).into(),
            adopters: Arc::new(at_start.into()),
            ..ManagedApplications::default()
        };
        claims.applications = Some(Arc::new(applications));
        assert_eq!(claims.unmanaged().collect::<Vec<_>>(), ["forgotten", "pihole"]);
    }
}
