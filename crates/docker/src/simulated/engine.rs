//! The simulated engine as its clients see it: one connection to a simulated host.

use std::{
    collections::BTreeSet,
    future::{pending, ready},
    net::IpAddr,
    path::Path,
    sync::Arc,
    time::Duration,
};

use futures_util::{StreamExt, stream};
use tokio::{sync::broadcast, time::sleep};

use super::{
    client::Client,
    faults::{Faults, TranscriptEntry},
    host::{AppWorld, Host, forget_results, unreachable},
    manager::Manager,
    membership::Membership,
    swarm::SimulatedSwarm,
    user_action::UserAction,
};
use crate::{
    docker::{Claim, CommandResult, Docker, Effect, EngineEvent, FileChanges, ImageParents, ObserveScope},
    error::Error,
    image_build::BuildInputs,
    logs::{LogOptions, LogStream},
    registry::{ImageQuestion, NewestImage, RegistryError, SignatureError, SignatureQuestion, SignedImage},
};
use driftless_clock::Clock;
use driftless_model::{
    AgentId, AppName, Build, Candidate, ContainerId, DiskSpace, Healthcheck, Image, ImageRef, LeftInSwarm,
    ListedImage, Observed, SpecHash, State, Timestamp, WorkloadName, is_proxy_image,
};
use driftless_plan::{Action, Creation, Refusal};

/// One client's connection to a simulated host. The host lives as long as any connection to it.
#[derive(Clone, Debug)]
pub struct SimulatedEngine {
    host: Arc<Host>,
    client: Client,
}

impl SimulatedEngine {
    /// An empty host and a connection to it, for the agent with this id.
    pub fn new(agent: AgentId, clock: Clock) -> Self {
        Self::of(&Arc::new(Host::new(agent, clock)))
    }

    fn of(host: &Arc<Host>) -> Self {
        Self { host: Arc::clone(host), client: Client::new(host) }
    }

    /// Another connection to the same host, for an agent that starts again.
    #[must_use]
    pub fn connect(&self) -> Self {
        Self::of(&self.host)
    }

    /// Makes the host a node of a Swarm: a manager, or what the Swarm knows it as. `content` and `secret` are the agent's folders
    /// with the contents of configs and secrets.
    pub fn join(&self, swarm: &SimulatedSwarm, node: &str, content: &Path, secret: &Path) {
        swarm.report_to(self.host.events());
        self.host.state().membership = Some(Membership::new(swarm, node, content, secret));
    }

    /// The connection to the Swarm that the host manages.
    fn manager(&self) -> Option<Manager> {
        let membership = self.host.state().membership.clone();
        membership.map(|membership| Manager::new(&self.client, membership))
    }

    /// Everything on the host was created by an agent with this id, which runs at the same time as the simulated one or not.
    pub fn give_to(&self, agent: &AgentId, is_living: bool) {
        self.set_living(agent, is_living);
        self.host.state().relabel(|_, _| true, agent);
    }

    /// Everything of an application was created by an agent with this id, which runs at the same time as the simulated one or
    /// not.
    pub fn give_app_to(&self, app: &AppName, agent: &AgentId, is_living: bool) {
        self.set_living(agent, is_living);
        self.host.state().relabel(|of, _| of == app, agent);
    }

    /// The containers of one workload were created by an agent with this id, which runs at the same time as the simulated one or
    /// not.
    pub fn give_workload_to(&self, app: &AppName, name: &WorkloadName, agent: &AgentId, is_living: bool) {
        self.set_living(agent, is_living);
        let mut state = self.host.state();
        let Some(app) = state.apps.get_mut(app) else { return };
        let instances = app.world.observed.instances.values_mut();
        for instance in instances.filter(|instance| instance.instance.workload == *name) {
            instance.agent = agent.clone();
        }
    }

    /// The containers and volumes of an application were created by Docker Compose.
    pub fn give_to_compose(&self, app: &AppName) {
        let mut state = self.host.state();
        let Some(app) = state.apps.get_mut(app) else { return };
        let Observed { instances, candidates, volumes, .. } = &mut app.world.observed;
        for volume in volumes.values_mut() {
            (volume.agent, volume.spec) = (None, None);
        }
        for (id, mut instance) in std::mem::take(instances) {
            (instance.agent, instance.spec) = (AgentId(String::new()), SpecHash(String::new()));
            candidates.insert(id, Candidate { instance, by_name: false, defaults: Arc::default() });
        }
    }

    /// Another agent with this id lives on the host, or does not.
    pub fn set_living(&self, agent: &AgentId, is_living: bool) {
        let living = &mut self.host.state().living;
        if is_living {
            living.insert(agent.clone());
        } else {
            living.remove(agent);
        }
    }

    /// The client of this connection crashes after this many more steps: none of its later calls is performed or
    /// returns.
    pub fn crash_after(&self, steps: u32) {
        self.client.crash_after(steps);
    }

    /// Whether the client of this connection has crashed.
    pub fn has_crashed(&self) -> bool {
        self.client.has_crashed()
    }

    /// Changes the faults of the host.
    pub fn faults(&self, change: impl FnOnce(&mut Faults)) {
        change(&mut self.host.state().faults);
    }

    /// The engine starts again with another disk for its data, which is empty at first; the second time, with the first disk. The
    /// id of the data is the given one.
    pub fn swap_disks(&self, data_id: &str) {
        self.disconnect();
        {
            let state = &mut *self.host.state();
            state.swap_disks();
            data_id.clone_into(&mut state.faults.data_id);
        }
        self.reconnect();
    }

    /// The engine stops answering, and its event stream ends.
    pub fn disconnect(&self) {
        self.host.state().is_unreachable = true;
        self.host.send(EngineEvent::Disconnected { error: "connection refused".to_owned() });
    }

    /// The agent's own task that follows the engine's events ends, as after a defect of it.
    pub fn end_events(&self) {
        self.host.end_events();
    }

    /// The engine stops answering without ending a connection, as a process does that gets a SIGSTOP.
    pub fn hang(&self) {
        self.host.state().is_hanging = true;
        self.host.send(EngineEvent::Disconnected { error: "no answer within 5 s".to_owned() });
    }

    /// The engine takes no new connection and answers open ones, as Docker 20.10 while it shuts down.
    pub fn refuse_connections(&self) {
        self.host.send(EngineEvent::Disconnected { error: "connection refused".to_owned() });
    }

    /// The engine answers again. Calls that it got while it hung stay without an answer.
    pub fn reconnect(&self) {
        self.host.state().is_hanging = false;
        self.host.state().is_unreachable = false;
        self.host.send(EngineEvent::ClaimLost);
        self.host.send(EngineEvent::Connected);
    }

    /// The engine restarts, without a break that the agent notices, and starts the containers that ran.
    pub fn restart(&self) {
        self.host.restart_engine();
    }

    /// A user changes something without the agent.
    pub fn user_action(&self, app: &AppName, action: &UserAction) -> Result<(), Refusal> {
        self.host.user_action(app, action)
    }

    /// A user removes an image. Returns it, so that it can be brought back.
    pub fn remove_image_by_hand(&self, name: &str) -> Option<Image> {
        let image = self.host.state().images.remove(name)?;
        self.host.send(EngineEvent::ObjectChanged {
            app: None,
            kind: "image".to_owned(),
            name: image.id.clone(),
            action: "delete".to_owned(),
            at: None,
        });
        Some(image)
    }

    /// A user loads an image from a file.
    pub fn load_image_by_hand(&self, name: &str, image: Image) {
        self.host.state().images.insert(name.to_owned(), image);
    }

    /// The observed state of an application, without a call.
    pub fn observed(&self, app: &AppName) -> Observed {
        self.host.state().apps.get(app).map(|app| app.world.observed.clone()).unwrap_or_default()
    }

    /// All changes, in order.
    pub fn transcript(&self) -> Vec<TranscriptEntry> {
        self.host.state().transcript.clone()
    }

    /// The addresses that a proxy may forward to after each message of the agent.
    pub fn traffic(&self, proxy: &ContainerId) -> Vec<BTreeSet<IpAddr>> {
        self.host.state().proxies.get(proxy).map(|proxy| proxy.history().to_vec()).unwrap_or_default()
    }

    /// The number of observations and changes.
    pub fn calls(&self) -> u64 {
        self.host.state().count
    }

    /// The number of times that the files of a container were listed.
    pub fn file_scans(&self) -> u64 {
        self.host.state().file_scans
    }

    /// The number of definitions that the engine was asked about.
    pub fn trials(&self) -> u64 {
        self.host.state().trials
    }

    /// Steps that were refused although nothing had changed since the last observation.
    pub fn mistakes(&self) -> Vec<String> {
        self.host.state().mistakes.clone()
    }

    async fn pull(
        &self,
        app: &AppName,
        image: &str,
        progress: &(dyn Fn(String) + Send + Sync),
    ) -> Result<(), Error> {
        let pause = {
            let state = self.host.state();
            state.faults.pulls.get(image).copied().unwrap_or(state.faults.latency)
        };
        progress(format!("pulling {image} (0 %)"));
        sleep(pause / 2).await;
        progress(format!("pulling {image} (50 %)"));
        sleep(pause / 2).await;
        self.client.hang_if_crashed().await;
        self.host.check_reachable(&format!("pull {image}"))?;
        let action = Action::PullImage {
            image: image.to_owned(),
            platform: None,
            secrets: Vec::new(),
            keys: BTreeSet::new(),
        };
        self.host.perform(app, &action).map(drop).map_err(|refusal| Error::Pull {
            image: image.to_owned(),
            message: refusal.to_string(),
            retry_after: None,
        })?;
        self.host.state().note_digest(app, image);
        Ok(())
    }
}

impl Docker for SimulatedEngine {
    async fn observe(&self, app: &AppName, scope: &ObserveScope) -> Result<Observed, Error> {
        let manager = self.manager();
        let left_in_swarm = match &manager {
            Some(manager) if scope.is_swarm => {
                let mut observed = manager.observe(app, scope).await?;
                self.host.state().add_own_objects(app, &mut observed);
                return Ok(observed);
            }
            Some(manager) => manager.objects_of(app, scope).await?,
            None => LeftInSwarm::default(),
        };
        self.client.call(&format!("observe {app}")).await?;
        let mut state = self.host.state();
        state.count += 1;
        let (count, claims, images) = (state.count, state.claims(app), state.images.clone());
        let keeps_one_platform = state.faults.has_classic_store;
        let (check_interval, engine_started) = (state.faults.check_interval, state.engine_started);
        let engine_data = state.engine_data(self.host.agent());
        state.add_shared_objects(app, scope);
        let app = state.apps.entry(app.clone()).or_default();
        app.last_observed = count;
        let mut observed = app.world.observed.clone();
        observed.claims = claims;
        observed.left_in_swarm = left_in_swarm;
        observed.engine_data = Some(engine_data);
        observed.engine_started = engine_started;
        observed.images = images;
        observed.images.retain(|name, _| scope.images.contains(name));
        observed.engine_traits.keeps_one_platform |= keeps_one_platform;
        // Changed files are only known after a scan.
        observed.inside.values_mut().for_each(|inside| inside.files = None);
        let agent = self.host.agent();
        let is_owned = |owner: &Option<AgentId>| owner.as_ref() == Some(agent);
        observed.networks.retain(|name, network| is_owned(&network.agent) || scope.networks.contains(name));
        observed.volumes.retain(|name, volume| is_owned(&volume.agent) || scope.volumes.contains(name));
        if let Some(interval) = check_interval {
            forget_results(&mut observed, interval, self.host.now());
        }
        Ok(observed)
    }

    async fn applications(&self) -> Result<BTreeSet<AppName>, Error> {
        self.client.call("list the applications on this host").await?;
        let state = self.host.state();
        let has_any = |app: &AppWorld| {
            !app.world.observed.instances.is_empty() || !app.world.observed.networks.is_empty()
        };
        Ok(state.apps.iter().filter(|(_, app)| has_any(app)).map(|(name, _)| name.clone()).collect())
    }

    async fn perform(
        &self,
        app: &AppName,
        action: &Action,
        progress: &(dyn Fn(String) + Send + Sync),
    ) -> Result<Effect, Error> {
        if let Some(manager) = self.manager()
            && let Some(result) = manager.perform(app, action).await
        {
            return result;
        }
        let doing = action.to_string();
        self.client.call(&doing).await?;
        if let Action::PullImage { image, .. } = action {
            return self.pull(app, image, progress).await.map(|()| Effect::Done);
        }
        let left = self.host.state().faults.panicking_steps;
        self.host.state().faults.panicking_steps = left.saturating_sub(1);
        assert!(left == 0, "{doing}: a defect of the agent, by request");
        if let Some(message) = self.host.take_failing_start(action) {
            return Err(Error::Refused { doing, message });
        }
        if let Action::CreateInstance(creation) = action {
            self.host.check_definition(creation, &doing)?;
        }
        if matches!(action, Action::StopInstance { .. }) {
            let pause = self.host.state().faults.stop;
            sleep(pause).await;
            self.client.hang_if_crashed().await;
        }
        let performed = self.host.perform(app, action);
        if self.client.count_step() {
            pending::<()>().await;
        }
        let created = match performed {
            Ok(created) => created,
            Err(refusal) => return Err(Error::Refused { doing, message: refusal.to_string() }),
        };
        if self.client.take_lost_answer() {
            return Err(unreachable(&doing, "connection reset by peer"));
        }
        Ok(created.map_or(Effect::Done, Effect::Created))
    }

    async fn try_definition(&self, creation: &Creation) -> Result<(), Error> {
        self.client.hang_if_crashed().await;
        let doing = format!("create {}", creation.name);
        if self.host.state().is_unreachable {
            return Err(unreachable(&doing, "connection refused"));
        }
        self.host.state().trials += 1;
        let time = self.host.state().faults.trial;
        if !time.is_zero() {
            sleep(time).await;
        }
        self.host.check_definition(creation, &doing)
    }

    async fn build(
        &self,
        app: &AppName,
        image: &str,
        build: &Build,
        _materials: &BuildInputs,
        progress: &(dyn Fn(String) + Send + Sync),
    ) -> Result<(), Error> {
        self.client.call(&format!("build {image}")).await?;
        let name = image.rsplit_once(':').map_or(image, |(name, _)| name);
        let pause = {
            let state = self.host.state();
            state.faults.builds.get(name).copied().unwrap_or(state.faults.latency)
        };
        progress(format!("building {image} (step 1/1)"));
        sleep(pause).await;
        self.client.hang_if_crashed().await;
        self.host.check_reachable(&format!("build {image}"))?;
        if self.host.state().faults.unbuildable.contains(name) {
            let message = "step 1/1: returned a non-zero code: 2".to_owned();
            return Err(Error::Build { image: image.to_owned(), message });
        }
        let action = Action::BuildImage { image: image.to_owned(), build: Box::new(build.clone()) };
        let refused =
            |refusal: Refusal| Error::Build { image: image.to_owned(), message: refusal.to_string() };
        self.host.perform(app, &action).map(drop).map_err(refused)
    }

    async fn images(&self) -> Result<Vec<ListedImage>, Error> {
        self.client.call("list the images").await?;
        Ok(self.host.state().listed_images())
    }

    async fn newest_image(&self, question: &ImageQuestion) -> Result<NewestImage, RegistryError> {
        self.client.hang_if_crashed().await;
        let image = &question.image;
        let (digests, latency) = {
            let state = self.host.state();
            (state.faults.digests.clone(), state.faults.latency)
        };
        sleep(latency).await;
        let registry = ImageRef::parse(image).registry().to_owned();
        let name = ImageRef::split(image).name;
        let tag = match &question.tags {
            Some(rule) => {
                let tags = digests.keys().map(|known| ImageRef::split(known));
                let tags = tags.filter(|known| known.name == name).filter_map(|known| known.tag);
                let current = ImageRef::parse(image);
                rule.newest(current.tag(), tags).unwrap_or_default().to_owned()
            }
            None => ImageRef::parse(image).effective_tag().unwrap_or_default().to_owned(),
        };
        let digest = digests.get(&format!("{name}:{tag}")).cloned();
        let digest = digest.ok_or(RegistryError::NotFound(registry))?;
        let is_running = question.running.iter().all(|running| *running == digest);
        let is_available = question.available.as_ref() == Some(&digest);
        // It has had every digest that it named.
        let proven = question.unproven.clone();
        Ok(NewestImage { tag, digest, is_running, proven, is_available })
    }

    async fn remove_image(&self, image: &ListedImage, _parents: ImageParents) -> Result<(), Error> {
        let doing = format!("remove the image {}", image.id);
        self.client.call(&doing).await?;
        let mut state = self.host.state();
        let found = state.listed_images().into_iter().find(|found| found.id == image.id);
        if found.is_some_and(|found| !found.containers.is_empty()) {
            return Err(Error::Refused { doing, message: "a container uses the image".to_owned() });
        }
        state.images.retain(|_, found| found.id != image.id);
        Ok(())
    }

    async fn verify_image(&self, question: &SignatureQuestion) -> Result<SignedImage, SignatureError> {
        let path = question.keys.first().cloned().unwrap_or_default();
        self.client
            .call("verify a signature")
            .await
            .map_err(|error| SignatureError::Engine(error.to_string()))?;
        let state = self.host.state();
        let found = state.images.get(&question.image).ok_or(SignatureError::NoDigest)?;
        let digest = found.digest_of(&question.image).and_then(|named| named.split_once('@'));
        let digest = digest.map(|(_, digest)| digest.to_owned()).ok_or(SignatureError::NoDigest)?;
        if state.faults.is_registry_down {
            let host = ImageRef::parse(&question.image).registry().to_owned();
            let problem = "the connection was refused".to_owned();
            return Err(RegistryError::Unreachable { host, problem }.into());
        }
        if !state.faults.signed.contains(&digest) {
            return Err(SignatureError::NotSigned { digest, path });
        }
        let keys = question.keys.iter().map(|key| (key.clone(), "sha256:key".to_owned())).collect();
        Ok(SignedImage { id: found.id.clone(), digest, keys })
    }

    async fn disk_space(&self) -> Result<DiskSpace, Error> {
        self.client.call("find out the free space of the engine's disk").await?;
        Ok(self.host.state().disk_space())
    }

    async fn prune_build_cache(&self, keep: u64) -> Result<u64, Error> {
        self.client.call("cut the build cache").await?;
        let faults = &mut self.host.state().faults;
        let freed = faults.build_cache.saturating_sub(keep);
        faults.build_cache -= freed;
        Ok(freed)
    }

    async fn ping(&self) -> Result<(), Error> {
        self.client.call("ping the engine").await
    }

    /// Succeeds in every running container whose image is not in [`Faults::unhealthy`]. A proxy takes the messages of the agent.
    async fn exec(
        &self,
        container: &ContainerId,
        command: &[String],
        _timeout: Duration,
    ) -> Result<CommandResult, Error> {
        let doing = format!("run a command in {container}");
        let succeeded = CommandResult { code: 0, output: String::new() };
        self.client.call(&doing).await?;
        let mut state = self.host.state();
        let state = &mut *state;
        let mut all = state.apps.values().flat_map(|it| it.world.observed.containers());
        match all.find(|found| found.id == *container && found.is_running()) {
            Some(found) if is_proxy_image(&found.config.image) => {
                state.proxies.entry(container.clone()).or_default().take(command);
                Ok(succeeded)
            }
            Some(found) if state.faults.unhealthy.contains(&found.config.image) => {
                Ok(CommandResult { code: 1, output: "unhealthy".to_owned() })
            }
            Some(_) => Ok(succeeded),
            None => Err(Error::Refused { doing, message: "the container is not running".to_owned() }),
        }
    }

    async fn probe(
        &self,
        container: &ContainerId,
        command: &[String],
        timeout: Duration,
    ) -> Result<CommandResult, Error> {
        self.exec(container, command, timeout).await
    }

    /// Succeeds after [`Faults::warm_up`] where the image is not in [`Faults::unhealthy`].
    async fn check_health(&self, container: &ContainerId, _: &Healthcheck) -> Result<bool, Error> {
        let doing = format!("run the health check of {container}");
        self.client.call(&doing).await?;
        let now = self.host.now();
        let state = self.host.state();
        let mut all = state.apps.values().flat_map(|it| it.world.observed.containers());
        let found = all.find(|found| found.id == *container);
        let Some((found, since)) = found.and_then(|found| match found.state {
            State::Running { since, .. } => Some((found, since)),
            _ => None,
        }) else {
            return Err(Error::Refused { doing, message: "the container is not running".to_owned() });
        };
        let is_warm = now.since(since) >= state.faults.warm_up;
        Ok(is_warm && !state.faults.unhealthy.contains(&found.config.image))
    }

    /// One line, since no process runs. A stream that follows never ends.
    async fn logs(&self, container: &str, options: &LogOptions) -> Result<LogStream, Error> {
        let doing = format!("read the log of {container}");
        self.client.call(&doing).await?;
        let state = self.host.state();
        let mut all = state.apps.values().flat_map(|it| it.world.observed.containers());
        let Some(found) = all.find(|found| found.id.as_str().starts_with(container)) else {
            return Err(Error::Refused { doing, message: "no such container".to_owned() });
        };
        let line = stream::once(ready(Ok(format!("{} is simulated\n", found.name).into())));
        Ok(if options.follow { Box::pin(line.chain(stream::pending())) } else { Box::pin(line) })
    }

    async fn changed_files(&self, container: &ContainerId) -> Result<FileChanges, Error> {
        self.client.call(&format!("list the changed files of {container}")).await?;
        let mut state = self.host.state();
        state.file_scans += 1;
        let found = state.files_of(container);
        let files = found.into_iter().map(|(path, change)| (path, change.kind)).collect();
        Ok(FileChanges { files, is_truncated: false })
    }

    async fn modified_at(&self, container: &ContainerId, path: &str) -> Result<Option<Timestamp>, Error> {
        self.client.call(&format!("read the time of {path} in {container}")).await?;
        Ok(self.host.state().files_of(container).get(path).and_then(|change| change.written))
    }

    async fn claim(&self, agent: &AgentId, patience: Duration) -> Result<Claim, Error> {
        self.client.call(&format!("claim {agent}")).await?;
        let is_refused = {
            let mut state = self.host.state();
            if state.faults.has_no_room {
                return Ok(Claim::Impossible("no space left on device".to_owned()));
            }
            let left = state.faults.removed_claims;
            state.faults.removed_claims = left.saturating_sub(1);
            let is_missed = state.faults.missed_claim == Some(0);
            state.faults.missed_claim = state.faults.missed_claim.and_then(|others| others.checked_sub(1));
            left > 0 || (state.living.contains(agent) && !is_missed)
        };
        if is_refused {
            return Ok(Claim::Refused);
        }
        // Another agent would have this time to refuse.
        sleep(patience).await;
        Ok(Claim::Granted)
    }

    fn take_over(&self, former: &BTreeSet<AgentId>) {
        let own = self.host.agent().clone();
        self.host.state().relabel(|_, agent| former.contains(agent), &own);
    }

    fn events(&self) -> broadcast::Receiver<EngineEvent> {
        let receiver = self.host.subscribe();
        let is_silent = {
            let state = self.host.state();
            state.is_unreachable || state.is_hanging
        };
        if !is_silent {
            self.host.send(EngineEvent::Connected);
        }
        receiver
    }
}
