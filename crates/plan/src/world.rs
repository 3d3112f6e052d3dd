//! An in-memory Docker: what each action does to what is observed.
//!
//! The preview forecasts with it and the simulation tests live in it, so the Docker that we plan against is
//! written down once. It is strict: it refuses everything that a correct plan never asks for.

use std::{collections::BTreeSet, net::Ipv4Addr, sync::Arc};

use driftless_model::{
    AgentId, Build, Container, ContainerId, Endpoint, Format, Health, Image, Instance, LiveSettings,
    MountSource, Observed, ObservedNetwork, ObservedVolume, Platform, Port, Readiness, Resources, SpecHash,
    State, Timestamp, label,
};

use crate::action::{Action, AgentReplacement, ContainerRef, Creation, RequiredSignature};

/// A Docker host that holds one application.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct World {
    pub observed: Observed,
    /// The images in the registry. `None`: every image.
    pub registry: Option<BTreeSet<String>>,
    /// Images that cannot be built.
    pub broken: BTreeSet<String>,
    created: u64,
}

/// Why Docker would not do it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error("this engine in memory is no manager of a Swarm")]
    NoSwarm,
    #[error("no such image: {0}")]
    NoSuchImage(String),
    #[error("the signature of {0} was not verified")]
    NotVerified(String),
    #[error("the build of {0} ended with code 2")]
    CannotBuild(String),
    #[error("no such container: {0}")]
    NoSuchContainer(String),
    #[error("there are only {0} CPUs available")]
    TooFewCpus(u64),
    #[error("{0} does not match the specified platform")]
    OtherPlatform(String),
    #[error("no such network: {0}")]
    NoSuchNetwork(String),
    #[error("no such volume: {0}")]
    NoSuchVolume(String),
    #[error("the name {0} is in use")]
    NameInUse(String),
    #[error("the port {0} is already allocated")]
    PortInUse(u16),
    #[error("the address {0} is already in use")]
    AddressInUse(String),
    #[error("{0} is not ours")]
    NotOurs(String),
    #[error("cannot join the namespace of {0}, which does not run")]
    NotRunning(String),
    #[error("{container} is {state}")]
    WrongState { container: String, state: String },
    #[error("{0} has active endpoints")]
    HasEndpoints(String),
}

impl World {
    pub fn new(observed: Observed) -> Self {
        Self { observed, registry: None, broken: BTreeSet::new(), created: 0 }
    }

    /// Applies one action's effect; refuses what Docker would refuse.
    pub fn apply(
        &mut self,
        agent: &AgentId,
        action: &Action,
        now: Timestamp,
    ) -> Result<Option<ContainerId>, Refusal> {
        match action {
            Action::PullImage { image, platform, .. } => self.pull(image, platform.as_deref())?,
            Action::VerifyImage { image, .. } if !self.observed.images.contains_key(image) => {
                return Err(Refusal::NoSuchImage(image.clone()));
            }
            Action::BuildImage { image, build } => self.build(image, build)?,
            Action::ImportImage { image } => self.have_labelled(image, label::HELPER, image),
            Action::CreateNetwork { name, network, project: _, addresses: _ } => {
                if self.observed.networks.contains_key(name) {
                    return Err(Refusal::NameInUse(name.clone()));
                }
                let id = format!("net{}", self.next());
                let spec = Some(SpecHash::of(network));
                let (agent, compose) = (Some(agent.clone()), Some(network.clone()));
                let network = ObservedNetwork { id, agent, spec, compose, ..ObservedNetwork::default() };
                self.observed.networks.insert(name.clone(), network);
            }
            Action::RemoveNetwork { name, .. } => self.remove_network(agent, name)?,
            Action::CreateVolume { name, volume, project: _ } => {
                let spec = Some(SpecHash::of(volume));
                let (agent, compose) = (Some(agent.clone()), Some(volume.clone()));
                let volume = ObservedVolume { agent, app: None, spec, compose };
                if self.observed.volumes.insert(name.clone(), volume).is_some() {
                    return Err(Refusal::NameInUse(name.clone()));
                }
            }
            Action::RemoveVolume { name } => self.remove_volume(agent, name)?,
            Action::CreateInstance(creation) => return self.create(creation, now).map(Some),
            Action::VerifyImage { .. } | Action::WriteFiles { .. } => {}
            Action::RunHooks { container, instance: _ } | Action::SignalInstance { container, signal: _ } => {
                let instance = self.find(container)?;
                if !instance.is_running() {
                    return Err(wrong_state(instance));
                }
            }
            Action::StartInstance { container } => self.start(container, now)?,
            Action::StopInstance { container, .. } => {
                let instance = self.find(container)?;
                match instance.state {
                    State::Running { .. } => instance.state = exited(0, now),
                    State::Restarting { code, finished } => instance.state = exited(code, finished),
                    State::Created | State::Paused | State::Exited { .. } | State::Removing | State::Dead => {
                        return Err(wrong_state(instance));
                    }
                }
            }
            Action::RemoveInstance { container, .. } => self.remove(agent, container)?,
            Action::UnpauseInstance { container } => {
                let instance = self.find(container)?;
                if instance.state != State::Paused {
                    return Err(wrong_state(instance));
                }
                instance.state = State::Running { since: now, health: Health::Healthy };
                instance.readiness = Readiness::Ready { since: now };
            }
            Action::RenameInstance { container, to } => {
                if self.holds(to) {
                    return Err(Refusal::NameInUse(to.clone()));
                }
                self.find(container)?.name.clone_from(to);
            }
            Action::UpdateInstance { container, settings } => {
                let live = self.live(settings)?;
                self.find(container)?.live = live;
            }
            Action::Connect { container, network, attachment } => {
                let id = self.network(network)?;
                let instance = self.find(container)?;
                let (aliases, ip) = (attachment.aliases.clone(), attachment.ipv4.clone());
                let endpoint = Endpoint { network_id: id, aliases, ip, ..Endpoint::default() };
                if instance.networks.insert(network.clone(), endpoint).is_some() {
                    return Err(wrong_state(instance));
                }
            }
            Action::Swarm(_) => return Err(Refusal::NoSwarm),
            // The helper succeeds at once.
            Action::ReplaceAgent(replacement) => {
                let AgentReplacement { old, creation, deadline: _ } = replacement.as_ref();
                self.find(old)?.state = exited(0, now);
                self.remove(agent, old)?;
                let id = self.create(creation, now)?;
                self.start(&ContainerRef::Id(id.clone(), creation.name.clone()), now)?;
                self.observed.own = Some(id.clone());
                return Ok(Some(id));
            }
            Action::Disconnect { container, network } => {
                let instance = self.find(container)?;
                if instance.networks.remove(network).is_none() {
                    return Err(Refusal::NoSuchNetwork(network.clone()));
                }
            }
        }
        Ok(None)
    }

    /// Time passes without harm: what runs becomes healthy, and what has work to finish finishes it.
    pub fn finish_starting(&mut self, now: Timestamp, ends: impl Fn(&Instance) -> bool) {
        let Observed { instances, parts, unanswered_probes, .. } = &mut self.observed;
        unanswered_probes.clear();
        for instance in instances.values_mut().chain(parts.values_mut()) {
            let State::Running { since, .. } = instance.state else { continue };
            if ends(instance) {
                instance.state = exited(0, now);
            } else {
                instance.state = State::Running { since, health: Health::Healthy };
                instance.readiness = Readiness::Ready { since };
            }
        }
    }

    /// The settings that the engine stores: without the limits that its kernel cannot apply. It refuses more CPUs than it has.
    fn live(&self, settings: &LiveSettings) -> Result<LiveSettings, Refusal> {
        let LiveSettings { resources, restart } = settings;
        let engine = &self.observed.engine_traits;
        if let Some(cpus) = engine.cpus_exceeded_by(resources).and(engine.cpus) {
            return Err(Refusal::TooFewCpus(cpus));
        }
        let mut resources = resources.normal();
        self.observed.engine_traits.copy_unsupported_limits(&Resources::default(), &mut resources);
        Ok(LiveSettings { resources, restart: *restart })
    }

    fn pull(&mut self, image: &str, platform: Option<&str>) -> Result<(), Refusal> {
        if self.registry.as_ref().is_some_and(|it| !it.contains(image)) {
            return Err(Refusal::NoSuchImage(image.to_owned()));
        }
        let keeps_one = self.observed.engine_traits.keeps_one_platform;
        let before = self.observed.images.get(image).filter(|_| !keeps_one).cloned().unwrap_or_default();
        self.have(image);
        if let Some(found) = self.observed.images.get_mut(image) {
            found.platforms = before.platforms;
            let own = self.observed.engine_architecture.as_ref();
            let own = || own.map(|architecture| Platform::parse(&format!("linux/{architecture}")));
            found.platforms.extend(platform.map(Platform::parse).or_else(own));
        }
        Ok(())
    }

    fn have(&mut self, image: &str) {
        let id = format!("sha256:{}", driftless_model::digest_hex(image.as_bytes()));
        self.observed.images.insert(image.to_owned(), Image { id, ..Image::default() });
    }

    /// Builds an image. Its other names are not used here.
    fn build(&mut self, image: &str, build: &Build) -> Result<(), Refusal> {
        if self.broken.contains(image) {
            return Err(Refusal::CannotBuild(image.to_owned()));
        }
        if let Some(base) = build.bases.values().find(|base| !self.observed.images.contains_key(*base)) {
            return Err(Refusal::NoSuchImage(base.clone()));
        }
        self.have_labelled(image, label::BUILD, &build.digest);
        Ok(())
    }

    /// An image that the agent made, with the label that says so.
    fn have_labelled(&mut self, image: &str, label: &str, value: &str) {
        self.have(image);
        if let Some(found) = self.observed.images.get_mut(image) {
            let labels = [(label.to_owned(), value.to_owned())].into();
            found.defaults = Arc::new(Container { labels, ..Container::default() });
        }
    }

    fn create(&mut self, creation: &Creation, now: Timestamp) -> Result<ContainerId, Refusal> {
        let Creation { agent, instance, name, container, image, spec, inherit, peers, part, .. } = creation;
        let image = image.as_ref().unwrap_or(&container.image);
        let found =
            self.observed.images.get(image).ok_or_else(|| Refusal::NoSuchImage(image.clone()))?.clone();
        let engine = &self.observed.engine_traits;
        if container.platform().is_some_and(|platform| !found.is_for(&platform, engine)) {
            return Err(Refusal::OtherPlatform(image.clone()));
        }
        let mut resources = container.resources.clone();
        if creation.format == Format::Kubernetes {
            resources.nano_cpus = engine.cpus_exceeded_by(&resources).or(resources.nano_cpus);
        }
        let live = self.live(&LiveSettings { resources, restart: container.restart })?;
        let is_verified = match &creation.signature {
            RequiredSignature::None => true,
            RequiredSignature::Unverified => false,
            RequiredSignature::Verified { id } => *id == found.id,
        };
        if !is_verified {
            return Err(Refusal::NotVerified(image.clone()));
        }
        if self.holds(name) {
            return Err(Refusal::NameInUse(name.clone()));
        }
        let mut networks = std::collections::BTreeMap::new();
        for (network, attachment) in container.networks() {
            let endpoint = Endpoint {
                network_id: self.network(network)?,
                aliases: attachment.aliases.clone(),
                ..Endpoint::default()
            };
            networks.insert(network.clone(), endpoint);
        }
        for mount in &container.mounts {
            if let MountSource::Volume { name, .. } = &mount.source
                && !self.observed.volumes.contains_key(name)
            {
                return Err(Refusal::NoSuchVolume(name.clone()));
            }
        }
        for peer in container.peers() {
            let id = peers.get(peer).ok_or_else(|| Refusal::NoSuchContainer(peer.to_string()))?;
            self.shared_with(id)?;
        }
        let id = ContainerId(format!("{:064x}", self.next()));
        if let Some(of) = part
            && !self.observed.instances.contains_key(&of.pod)
        {
            return Err(Refusal::NoSuchContainer(of.pod.to_string()));
        }
        let empty = container.mounts.iter().filter(|it| it.source == MountSource::Empty);
        let empty_volumes =
            empty.map(|it| (it.target.clone(), format!("{}-{}", id.short(), it.target))).collect();
        let asked = Container { healthcheck: creation.healthcheck(), ..container.clone() };
        let made = Instance {
            id: id.clone(),
            name: name.clone(),
            instance: instance.clone(),
            agent: agent.clone(),
            spec: spec.clone(),
            created: now,
            state: State::Created,
            readiness: Readiness::Starting { reason: String::new() },
            restarts: 0,
            networks,
            live,
            config: Arc::new(asked.effective(&found.defaults)),
            image_id: found.id,
            anonymous_volumes: inherit.clone(),
            empty_volumes,
            part: part.clone(),
            hosts: container.hosts().filter_map(|it| peers.get(it)).cloned().collect(),
            volumes_of: container.volumes_from.iter().filter_map(|it| peers.get(&it.peer)).cloned().collect(),
            started: None,
            bound_ports: Vec::new(),
            touched_by_hand: None,
            last_output: String::new(),
            check_output: String::new(),
            healthy_before: false,
        };
        let all = if part.is_some() { &mut self.observed.parts } else { &mut self.observed.instances };
        all.insert(id.clone(), made);
        Ok(id)
    }

    fn start(&mut self, container: &ContainerRef, now: Timestamp) -> Result<(), Refusal> {
        let wanted = self.find(container)?.clone();
        if matches!(wanted.state, State::Running { .. } | State::Paused | State::Removing | State::Dead) {
            return Err(wrong_state(&wanted));
        }
        for (network, endpoint) in &wanted.networks {
            // A container that was never started is connected to no network yet.
            let found = self.network(network)?;
            if !endpoint.network_id.is_empty() && found != endpoint.network_id {
                return Err(Refusal::NoSuchNetwork(network.clone()));
            }
        }
        for host in &wanted.hosts {
            if !self.shared_with(host)? {
                return Err(Refusal::NotRunning(host.short().to_owned()));
            }
        }
        let fixed = |it: &Instance| {
            let ports =
                it.config.ports.iter().filter(|it| it.host.is_some_and(|host| host.first == host.last));
            ports.cloned().collect::<Vec<Port>>()
        };
        let is_up = |it: &&Instance| it.is_running() || it.state == State::Paused;
        let held: Vec<Port> = self.observed.containers().filter(is_up).flat_map(fixed).collect();
        let is_held = |it: &&Port| {
            let same = |held: &Port| held.host == it.host && held.protocol == it.protocol;
            held.iter().any(|held| same(held) && it.overlaps(held.host_ip))
        };
        if let Some(port) = fixed(&wanted).iter().find(is_held) {
            return Err(Refusal::PortInUse(port.host.map_or(0, |it| it.first)));
        }
        if let Some(address) = self.held_address(&wanted) {
            return Err(Refusal::AddressInUse(address));
        }
        let instance = self.find(container)?;
        instance.state = State::Running { since: now, health: Health::Starting };
        instance.readiness = Readiness::Starting { reason: "not probed yet".into() };
        instance.touched_by_hand = None;
        instance.started = Some(now);
        let address = address(&instance.id);
        for (network, endpoint) in &mut instance.networks {
            let fixed = wanted.config.networks().get(network).and_then(|it| it.ipv4.clone());
            endpoint.ip = Some(fixed.unwrap_or_else(|| address.clone()));
        }
        Ok(())
    }

    /// A fixed address of a container that another one has.
    fn held_address(&self, wanted: &Instance) -> Option<String> {
        let is_up = |it: &&Instance| it.is_running() || it.state == State::Paused;
        wanted.networks.keys().find_map(|network| {
            let fixed = wanted.config.networks().get(network)?.ipv4.as_ref()?;
            let has_it =
                |it: &Instance| it.networks.get(network).is_some_and(|it| it.ip.as_ref() == Some(fixed));
            self.observed.containers().filter(is_up).any(has_it).then(|| fixed.clone())
        })
    }

    fn remove(&mut self, agent: &AgentId, container: &ContainerRef) -> Result<(), Refusal> {
        let instance = self.find(container)?;
        if instance.agent != *agent {
            return Err(Refusal::NotOurs(instance.name.clone()));
        }
        if matches!(instance.state, State::Running { .. } | State::Paused | State::Restarting { .. }) {
            return Err(wrong_state(instance));
        }
        let id = instance.id.clone();
        self.observed.instances.remove(&id);
        self.observed.parts.remove(&id);
        self.observed.inside.remove(&id);
        Ok(())
    }

    fn remove_network(&mut self, agent: &AgentId, name: &str) -> Result<(), Refusal> {
        let network =
            self.observed.networks.get(name).ok_or_else(|| Refusal::NoSuchNetwork(name.to_owned()))?;
        if network.agent.as_ref() != Some(agent) {
            return Err(Refusal::NotOurs(name.to_owned()));
        }
        let is_used = self.observed.instances.values().any(|it| it.networks.contains_key(name));
        if is_used || !network.foreign.is_empty() {
            return Err(Refusal::HasEndpoints(name.to_owned()));
        }
        self.observed.networks.remove(name);
        Ok(())
    }

    fn remove_volume(&mut self, agent: &AgentId, name: &str) -> Result<(), Refusal> {
        let Some(volume) = self.observed.volumes.get(name) else { return Ok(()) };
        if volume.agent.as_ref() != Some(agent) {
            return Err(Refusal::NotOurs(name.to_owned()));
        }
        let mounts = |container: &Instance| {
            container.config.mounts.iter().any(
                |mount| matches!(&mount.source, MountSource::Volume { name: mounted, .. } if mounted == name),
            )
        };
        if self.observed.containers().any(mounts) {
            return Err(Refusal::NameInUse(name.to_owned()));
        }
        self.observed.volumes.remove(name);
        Ok(())
    }

    /// A number for an id that nothing has, also where another world made what was observed.
    fn next(&mut self) -> u64 {
        loop {
            self.created += 1;
            let (container, network) = (format!("{:064x}", self.created), format!("net{}", self.created));
            let is_taken = self.observed.container(&ContainerId(container)).is_some()
                || self.observed.networks.values().any(|it| it.id == network);
            if !is_taken {
                return self.created;
            }
        }
    }

    /// Whether a container that something is shared with runs. It must be there.
    fn shared_with(&self, id: &ContainerId) -> Result<bool, Refusal> {
        if let Some(own) = self.observed.instances.get(id) {
            return Ok(own.is_running() || own.state == State::Paused);
        }
        let other = self.observed.others.values().find(|it| it.id == *id);
        other.map(|it| it.started.is_some()).ok_or_else(|| Refusal::NoSuchContainer(id.to_string()))
    }

    fn network(&self, name: &str) -> Result<String, Refusal> {
        let found = self.observed.networks.get(name);
        found.map(|it| it.id.clone()).ok_or_else(|| Refusal::NoSuchNetwork(name.to_owned()))
    }

    fn holds(&self, name: &str) -> bool {
        self.observed.containers().any(|it| it.name == name)
            || self.observed.claims.name_holder(name).is_some()
    }

    fn find(&mut self, container: &ContainerRef) -> Result<&mut Instance, Refusal> {
        let Observed { instances, parts, .. } = &mut self.observed;
        let found = instances.values_mut().chain(parts.values_mut()).find(|it| match container {
            ContainerRef::Id(id, _) => it.id == *id,
            ContainerRef::Name(name) => it.name == *name,
        });
        found.ok_or_else(|| Refusal::NoSuchContainer(container.name().to_owned()))
    }
}

fn exited(code: i64, finished: Timestamp) -> State {
    State::Exited { code, finished, out_of_memory: false, error: String::new() }
}

/// The address of a container in each of its networks where it has no fixed one. It is of a range that no network has, so that a
/// forecast gives away no address which a manifest fixes.
fn address(id: &ContainerId) -> String {
    let number = u32::from_str_radix(id.0.get(58..).unwrap_or_default(), 16).unwrap_or_default();
    Ipv4Addr::from_bits(0xF000_0000 | number).to_string()
}

fn wrong_state(instance: &Instance) -> Refusal {
    Refusal::WrongState { container: instance.name.clone(), state: format!("{:?}", instance.state) }
}
