//! The Docker that we plan against is the Docker there is: the same actions on a real engine and on `World`, and
//! after each the same to be seen.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use driftless_clock::Clock;
use driftless_config::DockerHost;
use driftless_docker::{Docker as _, Effect, Engine, EngineOptions, Error, ObserveScope, RegistryLogins};
use driftless_model::{
    AgentId, AppName, Attachment, Container, ContainerId, Format, Instance, InstanceId, LiveSettings, Mount,
    MountSource, Network, NetworkMode, Observed, PartOf, Peer, Resources, RestartPolicy, Role, State,
    Timestamp, Volume,
};
use driftless_plan::{Action, ContainerRef, Creation, RequiredSignature, World};

use crate::harness::{Site, images};

/// Both worlds, side by side.
struct Pair {
    app: AppName,
    agent: AgentId,
    engine: Engine,
    world: World,
    interest: ObserveScope,
    network: String,
    volume: String,
    image: String,
    /// Of each container, by the name it was created with: its id in either world.
    ids: BTreeMap<String, (ContainerId, ContainerId)>,
    site: Site,
    _dir: tempfile::TempDir,
}

/// The compared parts: all input of a plan, without ids and times.
#[derive(Debug, PartialEq, Eq)]
struct Seen {
    /// By name: state, networks, limits.
    instances: BTreeMap<String, (&'static str, BTreeSet<String>, LiveSettings)>,
    /// By name: state, name and role in the pod, and the targets of what is empty at first.
    parts: BTreeMap<String, (&'static str, String, Role)>,
    empty: BTreeMap<String, BTreeSet<String>>,
    networks: BTreeSet<String>,
    volumes: BTreeSet<String>,
}

fn seen(observed: &Observed) -> Seen {
    let state = |it: &State| match it {
        State::Created => "created",
        State::Running { .. } => "running",
        State::Paused => "paused",
        State::Restarting { .. } => "restarting",
        State::Exited { .. } => "exited",
        State::Removing => "removing",
        State::Dead => "dead",
    };
    let instances = observed.instances.values().map(|instance| {
        let networks = instance.networks.keys().cloned().collect();
        (instance.name.clone(), (state(&instance.state), networks, instance.live.clone()))
    });
    let parts = observed.parts.values().map(|container| {
        let of = container.part.clone().unwrap();
        assert!(observed.instances.contains_key(&of.pod), "{} has its pod", container.name);
        (container.name.clone(), (state(&container.state), of.name, of.role))
    });
    let empty = |it: &Instance| (it.name.clone(), it.empty_volumes.keys().cloned().collect());
    Seen {
        parts: parts.collect(),
        empty: observed.containers().map(empty).collect(),
        instances: instances.collect(),
        networks: observed.networks.keys().cloned().collect(),
        volumes: observed.volumes.keys().cloned().collect(),
    }
}

/// The answers of the real engine and of the simulated one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answer {
    BothDo,
    /// Neither does it.
    BothRefuse,
    /// It is so already: a success for the tolerant one, and for the strict one a mistake of the planner.
    Already,
}

impl Pair {
    fn new() -> Self {
        let site = Site::new("conformance");
        let app = AppName(site.app.clone());
        let dir = tempfile::tempdir().unwrap();
        let agent = AgentId(format!("agent-of-{app}"));
        let options = EngineOptions {
            remembered: None,
            host: DockerHost::default(),
            agent: agent.clone(),
            content_dir: dir.path().join("content"),
            secret_dir: dir.path().join("secret"),
            app_dir: dir.path().join("app"),
            registries: RegistryLogins::default(),
            clock: Clock::System,
        };
        let (network, volume) = (format!("{app}_net"), format!("{app}_data"));
        let (engine, image) = (Engine::connect(options).unwrap(), images::server("1.0"));
        let interest = ObserveScope { images: BTreeSet::from([image.clone()]), ..ObserveScope::default() };
        let world = World::new(Observed::default());
        Self {
            app,
            agent,
            engine,
            world,
            interest,
            network,
            volume,
            image,
            ids: BTreeMap::new(),
            site,
            _dir: dir,
        }
    }

    fn name(&self, slot: u32) -> String {
        format!("{}-web-{slot}", self.app)
    }

    fn container(&self) -> Container {
        let networks = BTreeMap::from([(self.network.clone(), Box::default())]);
        let source = MountSource::Volume { name: self.volume.clone(), no_copy: false };
        Container {
            image: self.image.clone(),
            network_mode: NetworkMode::Networks(networks),
            mounts: vec![Mount { target: "/data".into(), source, read_only: false }],
            stop_grace_period: Some(Duration::from_secs(1)),
            ..Container::default()
        }
    }

    fn network_creation(&self, network: Network) -> Action {
        let (name, project) = (self.network.clone(), self.app.to_string());
        Action::CreateNetwork { name, network, project, addresses: None }
    }

    fn create(&self, slot: u32, container: Container) -> Action {
        Action::CreateInstance(Box::new(Creation {
            app: self.app.clone(),
            agent: self.agent.clone(),
            format: Format::Compose,
            project: self.app.to_string(),
            instance: InstanceId { workload: "web".into(), slot },
            name: self.name(slot),
            spec: container.spec(),
            container,
            image: None,
            made_image: None,
            signature: RequiredSignature::None,
            inherit: BTreeMap::new(),
            peers: BTreeMap::new(),
            part: None,
            manifests: Vec::new(),
            depends_on: Vec::new(),
        }))
    }

    fn web(&self, slot: u32) -> ContainerRef {
        ContainerRef::Name(self.name(slot))
    }

    /// Does it in both worlds, and compares the answers and what is to be seen then.
    async fn both(&mut self, action: Action, expected: Answer) {
        let (for_engine, for_world) = self.by_id(&action);
        let real = self.engine.perform(&self.app, &for_engine, &|_| {}).await;
        let strict = self.world.apply(&self.agent, &for_world, Timestamp(1));
        if let (Ok(Effect::Created(real)), Ok(Some(strict))) = (&real, &strict) {
            self.ids.insert(action.object().to_owned(), (real.clone(), strict.clone()));
        }
        let found = match (&real, &strict) {
            (Ok(Effect::Created(_)), Ok(Some(_))) | (Ok(Effect::Done), Ok(None)) => Answer::BothDo,
            (Err(Error::Refused { .. } | Error::Pull { .. }), Err(_)) => Answer::BothRefuse,
            (Ok(_), Err(_)) => Answer::Already,
            (Ok(_) | Err(_), Ok(_) | Err(_)) => panic!("{action}: {real:?}, and in memory {strict:?}"),
        };
        assert_eq!(found, expected, "{action}: {real:?}, and in memory {strict:?}");
        self.compare(&action).await;
    }

    /// The same action with the ids that its container has here and there, as a plan has them.
    fn by_id(&self, action: &Action) -> (Action, Action) {
        let (mut real, mut strict) = (action.clone(), action.clone());
        if let (Some(real), Some(strict)) = (container(&mut real), container(&mut strict)) {
            let name = real.name().to_owned();
            let (id, other) = self.ids[&name].clone();
            (*real, *strict) = (ContainerRef::Id(id, name.clone()), ContainerRef::Id(other, name));
        }
        if let (Action::CreateInstance(real), Action::CreateInstance(strict)) = (&mut real, &mut strict)
            && let Some(of) = real.part.clone()
        {
            let (id, other) = self.ids[of.pod.as_str()].clone();
            for (creation, id) in [(real, id), (strict, other)] {
                creation.peers.values_mut().for_each(|it| it.clone_from(&id));
                creation.part.as_mut().unwrap().pod = id;
            }
        }
        (real, strict)
    }

    async fn compare(&self, after: &dyn std::fmt::Debug) {
        let real = self.engine.observe(&self.app, &self.interest).await.unwrap();
        assert_eq!(seen(&real), seen(&self.world.observed), "after {after:?}");
    }
}

fn container(action: &mut Action) -> Option<&mut ContainerRef> {
    match action {
        Action::WriteFiles { container, .. }
        | Action::RunHooks { container, .. }
        | Action::SignalInstance { container, .. }
        | Action::StartInstance { container }
        | Action::StopInstance { container, .. }
        | Action::RemoveInstance { container, .. }
        | Action::UnpauseInstance { container }
        | Action::RenameInstance { container, .. }
        | Action::UpdateInstance { container, .. }
        | Action::Connect { container, .. }
        | Action::Disconnect { container, .. } => Some(container),
        Action::PullImage { .. }
        | Action::VerifyImage { .. }
        | Action::BuildImage { .. }
        | Action::ImportImage { .. }
        | Action::CreateNetwork { .. }
        | Action::RemoveNetwork { .. }
        | Action::CreateVolume { .. }
        | Action::RemoveVolume { .. }
        | Action::CreateInstance(_)
        | Action::ReplaceAgent(_)
        | Action::Swarm(_) => None,
    }
}

#[tokio::test]
async fn the_planners_docker_behaves_as_the_real_one() {
    use Answer::{Already, BothDo, BothRefuse};
    let mut it = Pair::new();
    it.world.registry = Some(BTreeSet::from([it.image.clone()]));
    // Both hosts have the image to begin with.
    let pull = Action::PullImage {
        image: it.image.clone(),
        platform: None,
        secrets: Vec::new(),
        keys: BTreeSet::new(),
    };
    it.world.apply(&it.agent.clone(), &pull, Timestamp(1)).unwrap();

    let missing = "localhost:1/driftless/nothing:1".to_owned();
    it.both(it.create(1, Container { image: missing, ..Container::default() }), BothRefuse).await;
    // A creation whose network is missing is not compared: the strict one refuses it, and the real one waits with
    // its refusal for the start.
    let network = Network { key: "net".into(), ..Network::default() };
    let create_network = it.network_creation(network);
    it.both(create_network.clone(), BothDo).await;
    it.both(create_network, Already).await;
    let create_volume = Action::CreateVolume {
        name: it.volume.clone(),
        volume: Volume { key: "data".into(), ..Volume::default() },
        project: it.app.to_string(),
    };
    it.both(create_volume, BothDo).await;

    it.both(it.create(1, it.container()), BothDo).await;
    it.both(it.create(2, it.container()), BothDo).await;
    let (one, two) = (it.web(1), it.web(2));
    let start = |container: &ContainerRef| Action::StartInstance { container: container.clone() };
    let stop = |container: &ContainerRef| Action::StopInstance { container: container.clone(), grace: None };
    let remove = |container: &ContainerRef| Action::RemoveInstance {
        container: container.clone(),
        with_volumes: false,
    };
    it.both(start(&one), BothDo).await;
    it.both(start(&one), Already).await;
    it.both(remove(&one), BothRefuse).await;
    let rename = |container: &ContainerRef, to: &str| Action::RenameInstance {
        container: container.clone(),
        to: to.to_owned(),
    };
    it.both(rename(&two, one.name()), BothRefuse).await;
    let third = it.name(3);
    it.both(rename(&two, &third), BothDo).await;
    it.both(start(&two), BothDo).await;
    it.both(it.create(1, it.container()), BothRefuse).await;

    let of_network = it.network.clone();
    let leave = Action::Disconnect { container: one.clone(), network: of_network.clone() };
    it.both(leave.clone(), BothDo).await;
    it.both(leave, Already).await;
    let join = Action::Connect {
        container: one.clone(),
        network: of_network.clone(),
        attachment: Attachment::default(),
    };
    it.both(join.clone(), BothDo).await;
    it.both(join, Already).await;
    let resources = Resources { memory: Some(64 << 20), memory_swap: Some(96 << 20), ..Resources::default() };
    let settings = LiveSettings { resources, restart: RestartPolicy::Always };
    it.both(Action::UpdateInstance { container: one.clone(), settings }, BothDo).await;

    let unpause = Action::UnpauseInstance { container: one.clone() };
    it.both(unpause.clone(), Already).await;
    it.site.docker.run(&["pause", one.name()]);
    let paused = it.world.observed.instances.values_mut().find(|it| it.name == *one.name()).unwrap();
    paused.state = State::Paused;
    it.compare(&"a pause by hand").await;
    it.both(remove(&one), BothRefuse).await;
    it.both(unpause, BothDo).await;

    let real = it.engine.observe(&it.app, &it.interest).await.unwrap();
    let id = real.networks[&of_network].id.clone();
    let remove_network = Action::RemoveNetwork { name: of_network, id };
    it.both(remove_network.clone(), BothRefuse).await;
    for container in [&one, &two] {
        it.both(stop(container), BothDo).await;
        it.both(stop(container), Already).await;
        it.both(remove(container), BothDo).await;
        it.both(remove(container), Already).await;
    }
    it.both(remove_network.clone(), BothDo).await;
    it.both(remove_network, Already).await;
}

#[tokio::test]
async fn part_of_a_pod_and_instance_are_distinguished() {
    use Answer::{BothDo, BothRefuse};
    let mut it = Pair::new();
    let pull = Action::PullImage {
        image: it.image.clone(),
        platform: None,
        secrets: Vec::new(),
        keys: BTreeSet::new(),
    };
    it.world.apply(&it.agent.clone(), &pull, Timestamp(1)).unwrap();
    let own = Container {
        image: it.image.clone(),
        mounts: vec![Mount { target: "/volumes/work".into(), source: MountSource::Empty, read_only: false }],
        stop_grace_period: Some(Duration::ZERO),
        ..it.container()
    };
    let network = Network { key: "net".into(), ..Network::default() };
    it.both(it.network_creation(network), BothDo).await;
    let (pod, peer) = (it.name(1), Peer::Workload("web".into()));
    it.both(it.create(1, own), BothDo).await;
    let Action::CreateInstance(mut part) = it.create(2, Container::default()) else { unreachable!() };
    let id = ContainerId(pod);
    part.name = format!("{}-log", it.name(1));
    part.instance = InstanceId { workload: "web/log".into(), slot: 1 };
    part.container = Container {
        image: it.image.clone(),
        // The pod's own has the other.
        env: BTreeMap::from([("PORT".to_owned(), Some("8081".to_owned()))]),
        network_mode: NetworkMode::Of(peer.clone()),
        stop_grace_period: Some(Duration::ZERO),
        ..Container::default()
    };
    part.peers = BTreeMap::from([(peer, id.clone())]);
    part.part =
        Some(PartOf { pod: id, name: "log".to_owned(), role: Role::Sidecar, downward: BTreeMap::new() });
    let log = ContainerRef::Name(part.name.clone());
    it.both(Action::CreateInstance(part), BothDo).await;
    let web = it.web(1);
    let start = |container: &ContainerRef| Action::StartInstance { container: container.clone() };
    let stop = |container: &ContainerRef| Action::StopInstance { container: container.clone(), grace: None };
    let remove = |container: &ContainerRef| Action::RemoveInstance {
        container: container.clone(),
        with_volumes: false,
    };
    // Started without it, the engine keeps its refusal as an end of the part, and the strict one nothing.
    it.both(start(&web), BothDo).await;
    it.both(start(&log), BothDo).await;
    it.both(remove(&log), BothRefuse).await;
    for container in [&log, &web] {
        it.both(stop(container), BothDo).await;
        it.both(remove(container), BothDo).await;
    }
}
