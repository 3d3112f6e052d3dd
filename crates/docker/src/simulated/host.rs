//! The simulated host: its applications, what their containers do by themselves, and the events. The effect of each
//! step is defined by `World`, not here.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{sync::broadcast, task::JoinSet, time::sleep};

use super::{
    faults::{ChangedBy, DISK_BYTES, EventDelivery, Faults, IMAGE_BYTES, TranscriptEntry},
    membership::Membership,
    proxy::SimulatedProxy,
    user_action::{self, UserAction},
};
use crate::{
    call_error::CallError,
    docker::{EngineEvent, ObserveScope},
    error::Error,
};
use driftless_clock::Clock;
use driftless_model::{
    AgentId, AppName, Claims, ContainerId, DiskSpace, EngineData, FileChange, Health, HeldPort, HostMount,
    HostSource, Image, ImageRef, Instance, ListedImage, Mount, MountSource, MountingContainer, NameHolder,
    Observed, ObservedNetwork, ObservedVolume, Readiness, RestartPolicy, State, Timestamp,
};
use driftless_plan::{Action, ContainerRef, Creation, Refusal, World};

/// The pause before the engine restarts a container by its policy, doubled each time up to the longest.
const FIRST_RESTART: Duration = Duration::from_millis(100);
const LONGEST_RESTART: Duration = Duration::from_mins(1);

/// The number of results of a health check that the engine keeps.
const KEPT_RESULTS: u32 = 5;

/// A simulated host. Its clients share it.
#[derive(Debug)]
pub(super) struct Host {
    agent: AgentId,
    clock: Clock,
    events: Mutex<broadcast::Sender<EngineEvent>>,
    state: Mutex<HostState>,
    /// The later actions of containers by themselves.
    scheduled: Mutex<JoinSet<()>>,
}

#[derive(Debug, Default)]
pub(super) struct HostState {
    pub(super) faults: Faults,
    pub(super) is_unreachable: bool,
    /// Calls are not answered at all.
    pub(super) is_hanging: bool,
    pub(super) apps: BTreeMap<AppName, AppWorld>,
    pub(super) images: BTreeMap<String, Image>,
    /// When the engine was restarted, if it was.
    pub(super) engine_started: Option<Timestamp>,
    /// The applications and images on the disk that the engine does not use now.
    spare_disk: (BTreeMap<AppName, AppWorld>, BTreeMap<String, Image>),
    pub(super) transcript: Vec<TranscriptEntry>,
    pub(super) mistakes: Vec<String>,
    /// Counts observations and changes, to know their order.
    pub(super) count: u64,
    /// Agents that run at the same time as the simulated one.
    pub(super) living: BTreeSet<AgentId>,
    /// The number of times that the files of a container were listed.
    pub(super) file_scans: u64,
    /// The number of definitions that it was asked about.
    pub(super) trials: u64,
    /// The reports that the proxies have.
    pub(super) proxies: BTreeMap<ContainerId, SimulatedProxy>,
    /// The node of a Swarm that it is.
    pub(super) membership: Option<Membership>,
}

/// One application's part of the host.
#[derive(Debug, Default)]
pub(super) struct AppWorld {
    pub(super) world: World,
    /// The count of its last observation.
    pub(super) last_observed: u64,
    /// The count of the last change that no plan could know of.
    last_disturbed: u64,
}

impl HostState {
    /// All images with the containers that use them.
    pub(super) fn listed_images(&self) -> Vec<ListedImage> {
        let mut listed: BTreeMap<&str, ListedImage> = BTreeMap::new();
        for (name, image) in &self.images {
            let entry = listed.entry(&image.id).or_default();
            entry.id.clone_from(&image.id);
            entry.names.insert(name.clone());
        }
        for container in self.apps.values().flat_map(|app| app.world.observed.containers()) {
            if let Some(image) = listed.get_mut(container.image_id.as_str()) {
                image.containers.insert(container.name.clone());
            }
        }
        listed.into_values().map(|image| ListedImage { bytes: IMAGE_BYTES, ..image }).collect()
    }

    /// The engine's data, as an agent observes them.
    pub(super) fn engine_data(&self, agent: &AgentId) -> EngineData {
        let mut containers = self.apps.values().flat_map(|app| app.world.observed.containers());
        let has_own = containers.any(|container| container.agent == *agent);
        EngineData { id: self.faults.data_id.clone(), has_own }
    }

    /// The engine has its data on its other disk from now on, which is empty at first.
    pub(super) fn swap_disks(&mut self) {
        std::mem::swap(&mut self.apps, &mut self.spare_disk.0);
        std::mem::swap(&mut self.images, &mut self.spare_disk.1);
    }

    /// The space of the disk with its images.
    pub(super) fn disk_space(&self) -> DiskSpace {
        let images = IMAGE_BYTES.saturating_mul(self.listed_images().len() as u64);
        DiskSpace { free: self.faults.disk.saturating_sub(images), total: DISK_BYTES }
    }
}

impl HostState {
    /// Gives a pulled image the digest that its reference names or that the registry has for it.
    pub(super) fn note_digest(&mut self, app: &AppName, image: &str) {
        let parts = ImageRef::split(image);
        let digest = parts.digest.map(str::to_owned).or_else(|| self.faults.digests.get(image).cloned());
        let Some(digest) = digest else { return };
        let named = format!("{}@{digest}", parts.name);
        // The content decides the id, and not the tag.
        let id = format!("sha256:{}", driftless_model::digest_hex(named.as_bytes()));
        let of_world = self.apps.get_mut(app).and_then(|app| app.world.observed.images.get_mut(image));
        for found in self.images.get_mut(image).into_iter().chain(of_world) {
            found.id.clone_from(&id);
            found.digests = vec![named.clone()];
        }
    }
}

impl Host {
    pub(super) fn new(agent: AgentId, clock: Clock) -> Self {
        let events = Mutex::new(broadcast::channel(256).0);
        Self { agent, clock, events, state: Mutex::default(), scheduled: Mutex::default() }
    }

    pub(super) fn agent(&self) -> &AgentId {
        &self.agent
    }

    pub(super) fn events(&self) -> broadcast::Sender<EngineEvent> {
        self.events.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Closes the receivers that there are.
    pub(super) fn end_events(&self) {
        *self.events.lock().unwrap_or_else(PoisonError::into_inner) = broadcast::channel(256).0;
    }

    pub(super) fn subscribe(&self) -> broadcast::Receiver<EngineEvent> {
        self.events().subscribe()
    }

    pub(super) fn state(&self) -> MutexGuard<'_, HostState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn send(&self, event: EngineEvent) {
        // It fails if there is no receiver, which is no fault.
        let _ = self.events().send(event);
    }

    fn object_changed(&self, app: &AppName, kind: &str, name: &str, action: &str) {
        if self.state().faults.events == EventDelivery::Lost {
            return;
        }
        self.send(EngineEvent::ObjectChanged {
            app: Some(app.clone()),
            kind: kind.to_owned(),
            name: name.to_owned(),
            action: action.to_owned(),
            at: Some(self.clock.now()),
        });
    }

    /// Fails if a fault makes the engine unreachable for this call.
    pub(super) fn check_reachable(&self, doing: &str) -> Result<(), Error> {
        let state = &mut *self.state();
        if state.is_unreachable {
            return Err(unreachable(doing, "connection refused"));
        }
        let faults = &mut state.faults;
        if faults.failing_calls > 0 {
            faults.failing_calls -= 1;
            return Err(unreachable(doing, "connection reset by peer"));
        }
        Ok(())
    }

    /// The words in which a fault refuses this step.
    pub(super) fn take_failing_start(&self, action: &Action) -> Option<String> {
        let starts = &mut self.state().faults.failing_starts;
        let (left, message) = starts.as_mut().filter(|_| matches!(action, Action::StartInstance { .. }))?;
        let message = message.clone();
        *left -= 1;
        if *left == 0 {
            *starts = None;
        }
        Some(message)
    }

    /// Fails if a fault refuses a definition.
    pub(super) fn check_definition(&self, creation: &Creation, doing: &str) -> Result<(), Error> {
        let Faults { rejected, lacking, .. } = &self.state().faults;
        let image = &creation.container.image;
        if let Some(message) = rejected.get(image).cloned() {
            return Err(Error::Rejected { doing: doing.to_owned(), message });
        }
        match lacking.get(image).cloned() {
            Some(message) => Err(CallError::Status { code: 400, message }.refused_by_host(doing)),
            None => Ok(()),
        }
    }

    /// Performs a step of the agent.
    pub(super) fn perform(
        self: &Arc<Self>,
        app: &AppName,
        action: &Action,
    ) -> Result<Option<ContainerId>, Refusal> {
        let now = self.clock.now();
        let performed = self.state().change(app, ChangedBy::Agent, &action.to_string(), now, |world| {
            world.apply(&self.agent, action, now)
        });
        if let Err(refusal) = &performed {
            let mut state = self.state();
            let could_know = state.apps.get(app).is_some_and(|app| app.last_disturbed < app.last_observed);
            if could_know && !matches!(action, Action::PullImage { .. }) {
                state.mistakes.push(format!("{now} {app}: {action}: {refusal}"));
            }
        }
        let created = performed?;
        if let Action::StartInstance { container } = action {
            self.run_container(app, container);
        }
        let (kind, event) = event_of(action);
        self.object_changed(app, kind, action.object(), event);
        Ok(created)
    }

    pub(super) fn user_action(self: &Arc<Self>, app: &AppName, action: &UserAction) -> Result<(), Refusal> {
        let now = self.clock.now();
        let what = format!("{action:?}");
        self.state()
            .change(app, ChangedBy::User, &what, now, |world| user_action::apply(world, action, now))?;
        let (name, event) = match action {
            UserAction::Start { name } => {
                self.run_container(app, &ContainerRef::Name(name.clone()));
                (name, "start")
            }
            UserAction::Stop { name } | UserAction::Kill { name } => (name, "die"),
            UserAction::Pause { name } => (name, "pause"),
            UserAction::Remove { name } | UserAction::RemoveNetwork { name } => (name, "destroy"),
            UserAction::Rename { to, .. } => (to, "rename"),
            UserAction::Disconnect { name, .. } => (name, "disconnect"),
            UserAction::Update { name, .. } => (name, "update"),
            UserAction::Exec { name, .. } => (name, "exec_die"),
            // The engine reports no event for this.
            UserAction::Write { .. } => return Ok(()),
        };
        let kind = if matches!(action, UserAction::RemoveNetwork { .. }) { "network" } else { "container" };
        self.object_changed(app, kind, name, event);
        Ok(())
    }

    /// The time of day.
    pub(super) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Schedules what a container that just started will do by itself.
    fn run_container(self: &Arc<Self>, app: &AppName, container: &ContainerRef) {
        let mut state = self.state();
        let faults = state.faults.clone();
        let Some(instance) = state.instance(app, |it| matches(it, container)) else { return };
        // The time of this run, not a later one: a result of another run is ignored.
        let State::Running { since: now, .. } = instance.state else { return };
        let is_checked = instance
            .config
            .healthcheck
            .as_ref()
            .is_some_and(|it| it.test.first().is_none_or(|it| it != "NONE"));
        if !is_checked {
            instance.state = State::Running { since: now, health: Health::Healthy };
            instance.readiness = Readiness::Ready { since: now };
        }
        let (id, image) = (instance.id.clone(), instance.config.image.clone());
        drop(state);
        if is_checked {
            let first = faults.warm_up.max(faults.first_health_check);
            self.schedule(first, app, &id, now, move |host, app, instance| {
                host.finish_health_check(app, instance, now);
            });
        }
        if let Some((after, code)) = faults.exits.get(&image).copied() {
            self.schedule(after, app, &id, now, move |host, app, instance| {
                host.exit_container(app, instance, code);
            });
        }
    }

    /// Calls `then` after the delay, if the container is still in the same run.
    fn schedule(
        self: &Arc<Self>,
        delay: Duration,
        app: &AppName,
        id: &ContainerId,
        run: Timestamp,
        then: impl FnOnce(&Arc<Self>, &AppName, &Instance) + Send + 'static,
    ) {
        let (host, app, id) = (Arc::downgrade(self), app.clone(), id.clone());
        let delayed = async move {
            sleep(delay).await;
            let Some(host) = host.upgrade() else { return };
            let found = host.state().instance(&app, |instance| instance.id == id).cloned();
            let Some(instance) = found else { return };
            let is_same_run = match instance.state {
                State::Running { since, .. } => since == run,
                State::Restarting { finished, .. } => finished == run,
                State::Created | State::Paused | State::Exited { .. } | State::Removing | State::Dead => {
                    false
                }
            };
            if is_same_run {
                then(&host, &app, &instance);
            }
        };
        let mut scheduled = self.scheduled.lock().unwrap_or_else(PoisonError::into_inner);
        while scheduled.try_join_next().is_some() {}
        scheduled.spawn(delayed);
    }

    /// The health check succeeds or fails. A failing one runs again.
    fn finish_health_check(self: &Arc<Self>, app: &AppName, instance: &Instance, run: Timestamp) {
        let now = self.clock.now();
        let mut state = self.state();
        let is_unhealthy = state.faults.unhealthy.contains(&instance.config.image);
        let pause = state.faults.warm_up;
        let output = state.faults.outputs.get(&instance.config.image).cloned().unwrap_or_default();
        let (health, readiness) = if is_unhealthy {
            (Health::Unhealthy, Readiness::NotReady { reason: "its health check fails".to_owned() })
        } else {
            (Health::Healthy, Readiness::Ready { since: now })
        };
        let is_new = matches!(instance.state, State::Running { health: before, .. } if before != health);
        if let Some(found) = state.instance(app, |found| found.id == instance.id) {
            found.state = State::Running { since: run, health };
            found.readiness = readiness;
            found.check_output = if is_unhealthy { output } else { String::new() };
        }
        drop(state);
        if is_unhealthy {
            self.schedule(pause, app, &instance.id, run, move |host, app, instance| {
                host.finish_health_check(app, instance, run);
            });
        }
        if is_new {
            self.object_changed(app, "container", &instance.name, "health_status");
        }
    }

    /// The container exits by itself, and the engine follows its restart policy.
    fn exit_container(self: &Arc<Self>, app: &AppName, instance: &Instance, code: i64) {
        let now = self.clock.now();
        let is_restarted = match instance.live.restart {
            RestartPolicy::No => false,
            RestartPolicy::Always | RestartPolicy::UnlessStopped => true,
            RestartPolicy::OnFailure { max_retries } => {
                code != 0 && max_retries.is_none_or(|it| instance.restarts < it)
            }
        };
        let what = format!("{} exits with code {code}", instance.name);
        let output = self.state().faults.outputs.get(&instance.config.image).cloned().unwrap_or_default();
        let ended = self.state().change(app, ChangedBy::Container, &what, now, |world| {
            let found = user_action::find(world, &instance.name)?;
            if code != 0 {
                found.last_output = output;
            }
            found.state = if is_restarted {
                State::Restarting { code, finished: now }
            } else {
                State::Exited { code, finished: now, out_of_memory: false, error: String::new() }
            };
            Ok(())
        });
        if ended.is_err() {
            return;
        }
        if is_restarted {
            let doubled = FIRST_RESTART.saturating_mul(2_u32.saturating_pow(instance.restarts));
            let pause = doubled.min(LONGEST_RESTART);
            self.schedule(pause, app, &instance.id, now, Self::restart);
        }
        self.object_changed(app, "container", &instance.name, "die");
    }

    /// The engine restarts, with all containers that run.
    pub(super) fn restart_engine(self: &Arc<Self>) {
        let running: Vec<(AppName, Instance)> = {
            let mut state = self.state();
            state.engine_started = Some(self.clock.now());
            let running = |(app, part): (&AppName, &AppWorld)| {
                let containers = part.world.observed.containers().filter(|it| it.is_running());
                containers.map(|it| (app.clone(), it.clone())).collect::<Vec<_>>()
            };
            state.apps.iter().flat_map(running).collect()
        };
        for (app, instance) in running {
            self.restart(&app, &instance);
        }
    }

    fn restart(self: &Arc<Self>, app: &AppName, instance: &Instance) {
        let now = self.clock.now();
        let what = format!("{} is restarted by its policy", instance.name);
        let restarted = self.state().change(app, ChangedBy::Container, &what, now, |world| {
            let found = user_action::find(world, &instance.name)?;
            found.state = State::Running { since: now, health: Health::Starting };
            found.readiness =
                Readiness::Starting { reason: "its health check has not succeeded yet".to_owned() };
            found.started = Some(now);
            found.restarts += 1;
            Ok(())
        });
        if restarted.is_ok() {
            self.run_container(app, &ContainerRef::Name(instance.name.clone()));
            self.object_changed(app, "container", &instance.name, "start");
        }
    }
}

impl HostState {
    /// Gives the objects of some agents to another one.
    pub(super) fn relabel(&mut self, is_meant: impl Fn(&AppName, &AgentId) -> bool, to: &AgentId) {
        for (name, app) in &mut self.apps {
            let Observed { instances, parts, networks, volumes, .. } = &mut app.world.observed;
            let of_containers = instances.values_mut().chain(parts.values_mut()).map(|it| &mut it.agent);
            let of_networks = networks.values_mut().filter_map(|it| it.agent.as_mut());
            let of_volumes = volumes.values_mut().filter_map(|it| it.agent.as_mut());
            let all = of_containers.chain(of_networks).chain(of_volumes);
            all.filter(|agent| is_meant(name, agent)).for_each(|agent| agent.clone_from(to));
        }
    }

    /// Adds the containers and networks that an application of a Swarm has on the host itself.
    pub(super) fn add_own_objects(&self, app: &AppName, observed: &mut Observed) {
        let Some(own) = self.apps.get(app).map(|app| &app.world.observed) else { return };
        observed.instances.clone_from(&own.instances);
        observed.candidates.clone_from(&own.candidates);
        observed.networks.extend(own.networks.iter().map(|(name, network)| (name.clone(), network.clone())));
    }

    /// Adds the networks and volumes of other applications that the scope names to what an application observes.
    pub(super) fn add_shared_objects(&mut self, app: &AppName, scope: &ObserveScope) {
        let mut shared = Observed::default();
        for (owner, other) in self.apps.iter().filter(|(owner, _)| *owner != app) {
            let Observed { networks, volumes, .. } = &other.world.observed;
            for (name, network) in networks.iter().filter(|(name, _)| scope.networks.contains(*name)) {
                let of_owner = ObservedNetwork { app: Some(owner.clone()), ..network.clone() };
                shared.networks.insert(name.clone(), of_owner);
            }
            for (name, volume) in volumes.iter().filter(|(name, _)| scope.volumes.contains(*name)) {
                let of_owner = ObservedVolume { app: Some(owner.clone()), ..volume.clone() };
                shared.volumes.insert(name.clone(), of_owner);
            }
        }
        let own = &mut self.apps.entry(app.clone()).or_default().world.observed;
        for (name, network) in shared.networks {
            own.networks.entry(name).or_insert(network);
        }
        for (name, volume) in shared.volumes {
            own.volumes.entry(name).or_insert(volume);
        }
    }

    /// Changes one application's part and records it in the transcript.
    fn change<T>(
        &mut self,
        app: &AppName,
        by: ChangedBy,
        what: &str,
        at: Timestamp,
        change: impl FnOnce(&mut World) -> Result<T, Refusal>,
    ) -> Result<T, Refusal> {
        let claims = self.claims(app);
        self.count += 1;
        let part = self.apps.entry(app.clone()).or_default();
        let before = part.world.observed.clone();
        part.world.observed.claims = claims;
        // All applications of a host share its images.
        part.world.observed.images.clone_from(&self.images);
        part.world.registry.clone_from(&self.faults.registry);
        let changed = change(&mut part.world);
        self.images.clone_from(&part.world.observed.images);
        if changed.is_ok() {
            if by != ChangedBy::Agent {
                part.last_disturbed = self.count;
            }
            let (app, what, after) = (app.clone(), what.to_owned(), part.world.observed.clone());
            self.transcript.push(TranscriptEntry { at, app, by, what, before, after });
        }
        changed
    }

    /// The files that were written in a container.
    pub(super) fn files_of(&self, container: &ContainerId) -> BTreeMap<String, FileChange> {
        let mut all = self.apps.values().filter_map(|app| app.world.observed.inside.get(container));
        all.find_map(|it| it.files.as_ref()).map(|it| it.changed.clone()).unwrap_or_default()
    }

    fn instance(&mut self, app: &AppName, which: impl Fn(&Instance) -> bool) -> Option<&mut Instance> {
        let Observed { instances, parts, .. } = &mut self.apps.get_mut(app)?.world.observed;
        instances.values_mut().chain(parts.values_mut()).find(|it| which(it))
    }

    /// The names, ports and data that the other applications use.
    pub(super) fn claims(&self, app: &AppName) -> Claims {
        let mut claims = Claims::default();
        let others = self.apps.iter().filter(|(name, _)| *name != app);
        let mut mounting = Vec::new();
        let containers =
            others.flat_map(|(name, other)| other.world.observed.containers().map(move |it| (name, it)));
        for (app, instance) in containers {
            let holder = NameHolder { id: instance.id.clone(), app: Some(app.clone()), project: None };
            claims.hold_name(&instance.name, holder);
            mounting.push(mounting_container(app, instance));
            if !instance.is_running() {
                continue;
            }
            for port in &instance.config.ports {
                if let Some(host) = port.host.filter(|it| it.first == it.last) {
                    let (by, ip) = (instance.name.clone(), port.host_ip);
                    claims.ports.insert(HeldPort { port: host.first, protocol: port.protocol, ip, by });
                }
            }
        }
        claims.mounting = Arc::new(mounting);
        claims
    }
}

/// Shows containers as healthy since the oldest result of their health checks that the engine keeps.
pub(super) fn forget_results(observed: &mut Observed, interval: Duration, now: Timestamp) {
    let oldest = now.before(interval.saturating_mul(KEPT_RESULTS - 1));
    for instance in observed.instances.values_mut().filter(|it| it.config.healthcheck.is_some()) {
        if let Readiness::Ready { since } = &mut instance.readiness
            && *since < oldest
        {
            *since = oldest;
            instance.healthy_before = true;
        }
    }
}

/// A container with what it mounts of the host.
fn mounting_container(app: &AppName, instance: &Instance) -> MountingContainer {
    let on_host = |mount: &Mount| {
        let source = match &mount.source {
            MountSource::Volume { name, no_copy: _ } => HostSource::Volume(name.clone()),
            MountSource::Bind { path, .. } => HostSource::Path(path.clone()),
            _ => return None,
        };
        Some(HostMount { source, read_only: mount.read_only })
    };
    MountingContainer {
        id: instance.id.clone(),
        name: instance.name.clone(),
        app: Some(app.clone()),
        agent: Some(instance.agent.clone()),
        workload: instance.instance.workload.whole(),
        is_up: matches!(instance.state, State::Running { .. } | State::Paused | State::Restarting { .. }),
        mounts: instance.config.mounts.iter().filter_map(on_host).collect(),
    }
}

fn matches(instance: &Instance, container: &ContainerRef) -> bool {
    match container {
        ContainerRef::Id(id, _) => instance.id == *id,
        ContainerRef::Name(name) => instance.name == *name,
    }
}

/// The object kind and name of the engine's event for an action.
fn event_of(action: &Action) -> (&'static str, &'static str) {
    match action {
        Action::PullImage { .. } => ("image", "pull"),
        Action::VerifyImage { .. } => ("image", "verify"),
        Action::BuildImage { .. } => ("image", "tag"),
        Action::ImportImage { .. } => ("image", "import"),
        Action::CreateNetwork { .. } => ("network", "create"),
        Action::RemoveNetwork { .. } => ("network", "destroy"),
        Action::CreateVolume { .. } => ("volume", "create"),
        Action::RemoveVolume { .. } => ("volume", "destroy"),
        Action::CreateInstance(_) | Action::ReplaceAgent(_) => ("container", "create"),
        Action::Swarm(_) => ("service", "update"),
        // Not done by the engine.
        Action::WriteFiles { .. } => ("file", "write"),
        Action::RunHooks { .. } => ("container", "exec_start"),
        Action::SignalInstance { .. } => ("container", "kill"),
        Action::StartInstance { .. } => ("container", "start"),
        Action::StopInstance { .. } => ("container", "die"),
        Action::RemoveInstance { .. } => ("container", "destroy"),
        Action::UnpauseInstance { .. } => ("container", "unpause"),
        Action::RenameInstance { .. } => ("container", "rename"),
        Action::UpdateInstance { .. } => ("container", "update"),
        Action::Connect { .. } => ("network", "connect"),
        Action::Disconnect { .. } => ("network", "disconnect"),
    }
}

/// The error of a call that does not reach the engine.
pub(super) fn unreachable(doing: &str, message: &str) -> Error {
    Error::Transient { doing: doing.to_owned(), source: Box::new(CallError::Unreachable(message.to_owned())) }
}
