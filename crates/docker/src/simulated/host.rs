//! The simulated host itself: its applications, what they do by themselves, and what is told of it. What each
//! action does is not written here.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{sync::broadcast, task::JoinSet, time::sleep};

use super::{Doer, Events, Faults, Hand, Happening, hand};
use crate::{Change, Error, Interest};
use driftless_clock::Clock;
use driftless_model::{
    AgentId, AppName, Claims, ContainerId, FileChange, Health, HeldPort, Image, Instance, Observed,
    ObservedNetwork, ObservedVolume, Readiness, RestartPolicy, State, Timestamp,
};
use driftless_plan::{Action, ContainerRef, Refusal, World};

/// What the engine waits before it restarts a container by its policy, doubled each time up to the longest.
const FIRST_RESTART: Duration = Duration::from_millis(100);
const LONGEST_RESTART: Duration = Duration::from_mins(1);

#[derive(Debug)]
pub(super) struct Host {
    pub(super) agent: AgentId,
    pub(super) clock: Clock,
    pub(super) changes: broadcast::Sender<Change>,
    pub(super) inside: Mutex<Inside>,
    /// What containers are about to do by themselves.
    pub(super) lives: Mutex<JoinSet<()>>,
}

#[derive(Debug, Default)]
pub(super) struct Inside {
    pub(super) faults: Faults,
    pub(super) is_away: bool,
    pub(super) corners: BTreeMap<AppName, Corner>,
    pub(super) images: BTreeMap<String, Image>,
    pub(super) transcript: Vec<Happening>,
    pub(super) mistakes: Vec<String>,
    /// Counts what happens, so that it can be told what came first.
    pub(super) count: u64,
    /// How often somebody looked into a container.
    pub(super) looks: u64,
}

/// One application's part of the host.
#[derive(Debug, Default)]
pub(super) struct Corner {
    pub(super) world: World,
    /// When it was last looked at, and when something last happened that no plan could know of, by count.
    pub(super) looked: u64,
    pub(super) disturbed: u64,
}

impl Inside {
    /// Shows an application the networks and volumes of others that it asks for by name.
    pub(super) fn lend(&mut self, app: &AppName, interest: &Interest) {
        let mut lent = Observed::default();
        for (owner, corner) in self.corners.iter().filter(|(owner, _)| *owner != app) {
            let Observed { networks, volumes, .. } = &corner.world.observed;
            for (name, network) in networks.iter().filter(|(name, _)| interest.networks.contains(*name)) {
                let of_owner = ObservedNetwork { app: Some(owner.clone()), ..network.clone() };
                lent.networks.insert(name.clone(), of_owner);
            }
            for (name, volume) in volumes.iter().filter(|(name, _)| interest.volumes.contains(*name)) {
                let of_owner = ObservedVolume { app: Some(owner.clone()), ..volume.clone() };
                lent.volumes.insert(name.clone(), of_owner);
            }
        }
        let own = &mut self.corners.entry(app.clone()).or_default().world.observed;
        for (name, network) in lent.networks {
            own.networks.entry(name).or_insert(network);
        }
        for (name, volume) in lent.volumes {
            own.volumes.entry(name).or_insert(volume);
        }
    }
}

impl Host {
    pub(super) fn inside(&self) -> MutexGuard<'_, Inside> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn tell(&self, change: Change) {
        // Nobody may be listening.
        let _ = self.changes.send(change);
    }

    fn touched(&self, app: &AppName, kind: &str, name: &str, action: &str) {
        if self.inside().faults.events == Events::Lost {
            return;
        }
        self.tell(Change::Touched {
            app: Some(app.clone()),
            kind: kind.to_owned(),
            name: name.to_owned(),
            action: action.to_owned(),
            at: Some(self.clock.now()),
        });
    }

    pub(super) fn reach(&self, doing: &str) -> Result<(), Error> {
        let inside = &mut *self.inside();
        if inside.is_away {
            return Err(away(doing, "connection refused"));
        }
        let faults = &mut inside.faults;
        if faults.failing_calls > 0 {
            faults.failing_calls -= 1;
            return Err(away(doing, "connection reset by peer"));
        }
        Ok(())
    }

    /// What the agent asked for.
    pub(super) fn perform(
        self: &Arc<Self>,
        app: &AppName,
        action: &Action,
    ) -> Result<Option<ContainerId>, Refusal> {
        let now = self.clock.now();
        let performed = self.inside().change(app, Doer::Agent, &action.to_string(), now, |world| {
            world.apply(&self.agent, action, now)
        });
        if let Err(refusal) = &performed {
            let mut inside = self.inside();
            let could_know = inside.corners.get(app).is_some_and(|it| it.disturbed < it.looked);
            if could_know && !matches!(action, Action::PullImage { .. }) {
                inside.mistakes.push(format!("{now} {app}: {action}: {refusal}"));
            }
        }
        let created = performed?;
        if let Action::StartInstance { container } = action {
            self.live(app, container);
        }
        let (kind, word) = word(action);
        self.touched(app, kind, action.object(), word);
        Ok(created)
    }

    pub(super) fn by_hand(self: &Arc<Self>, app: &AppName, hand: &Hand) -> Result<(), Refusal> {
        let now = self.clock.now();
        let what = format!("{hand:?}");
        self.inside().change(app, Doer::Hand, &what, now, |world| hand::apply(world, hand, now))?;
        let (name, word) = match hand {
            Hand::Start { name } => {
                self.live(app, &ContainerRef::Name(name.clone()));
                (name, "start")
            }
            Hand::Stop { name } | Hand::Kill { name } => (name, "die"),
            Hand::Pause { name } => (name, "pause"),
            Hand::Remove { name } | Hand::RemoveNetwork { name } => (name, "destroy"),
            Hand::Rename { to, .. } => (to, "rename"),
            Hand::Disconnect { name, .. } => (name, "disconnect"),
            Hand::Update { name, .. } => (name, "update"),
            Hand::Exec { name, .. } => (name, "exec_die"),
            // Of that the engine tells nobody.
            Hand::Write { .. } => return Ok(()),
        };
        let kind = if matches!(hand, Hand::RemoveNetwork { .. }) { "network" } else { "container" };
        self.touched(app, kind, name, word);
        Ok(())
    }

    /// A container has just begun to run: what will it do by itself?
    fn live(self: &Arc<Self>, app: &AppName, container: &ContainerRef) {
        let now = self.clock.now();
        let mut inside = self.inside();
        let faults = inside.faults.clone();
        let Some(instance) = inside.instance(app, |it| matches(it, container)) else { return };
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
        drop(inside);
        if is_checked {
            let conclude = move |host: &Arc<Self>, app: &AppName, it: &Instance| host.conclude(app, it, now);
            self.later(faults.warm_up, app, &id, now, conclude);
        }
        if let Some((after, code)) = faults.ending.get(&image).copied() {
            self.later(after, app, &id, now, move |host, app, it| host.end(app, it, code));
        }
    }

    /// Does something to a container after a while, if it is still in the same run.
    fn later(
        self: &Arc<Self>,
        delay: Duration,
        app: &AppName,
        id: &ContainerId,
        run: Timestamp,
        what: impl FnOnce(&Arc<Self>, &AppName, &Instance) + Send + 'static,
    ) {
        let (host, app, id) = (Arc::downgrade(self), app.clone(), id.clone());
        let life = async move {
            sleep(delay).await;
            let Some(host) = host.upgrade() else { return };
            let found = host.inside().instance(&app, |it| it.id == id).cloned();
            let Some(instance) = found else { return };
            let is_same_run = match instance.state {
                State::Running { since, .. } => since == run,
                State::Restarting { finished, .. } => finished == run,
                State::Created | State::Paused | State::Exited { .. } | State::Removing | State::Dead => {
                    false
                }
            };
            if is_same_run {
                what(&host, &app, &instance);
            }
        };
        let mut lives = self.lives.lock().unwrap_or_else(PoisonError::into_inner);
        while lives.try_join_next().is_some() {}
        lives.spawn(life);
    }

    /// The health check comes to a conclusion. A failing one is asked again.
    fn conclude(self: &Arc<Self>, app: &AppName, instance: &Instance, run: Timestamp) {
        let now = self.clock.now();
        let mut inside = self.inside();
        let is_sick = inside.faults.sick.contains(&instance.config.image);
        let again = inside.faults.warm_up;
        let (health, readiness) = if is_sick {
            (Health::Unhealthy, Readiness::NotReady { reason: "its health check fails".to_owned() })
        } else {
            (Health::Healthy, Readiness::Ready { since: now })
        };
        let is_new = matches!(instance.state, State::Running { health: before, .. } if before != health);
        if let Some(it) = inside.instance(app, |it| it.id == instance.id) {
            it.state = State::Running { since: run, health };
            it.readiness = readiness;
        }
        drop(inside);
        if is_sick {
            self.later(again, app, &instance.id, run, move |host, app, it| host.conclude(app, it, run));
        }
        if is_new {
            self.touched(app, "container", &instance.name, "health_status");
        }
    }

    /// The container ends by itself, and the engine does as its restart policy says.
    fn end(self: &Arc<Self>, app: &AppName, instance: &Instance, code: i64) {
        let now = self.clock.now();
        let comes_back = match instance.live.restart {
            RestartPolicy::No => false,
            RestartPolicy::Always | RestartPolicy::UnlessStopped => true,
            RestartPolicy::OnFailure { max_retries } => {
                code != 0 && max_retries.is_none_or(|it| instance.restarts < it)
            }
        };
        let what = format!("{} ends with code {code}", instance.name);
        let ended = self.inside().change(app, Doer::Itself, &what, now, |world| {
            let it = hand::find(world, &instance.name)?;
            it.state = if comes_back {
                State::Restarting { code, finished: now }
            } else {
                State::Exited { code, finished: now, out_of_memory: false, error: String::new() }
            };
            Ok(())
        });
        if ended.is_err() {
            return;
        }
        if comes_back {
            let doubled = FIRST_RESTART.saturating_mul(2_u32.saturating_pow(instance.restarts));
            let pause = doubled.min(LONGEST_RESTART);
            self.later(pause, app, &instance.id, now, Self::restart);
        }
        self.touched(app, "container", &instance.name, "die");
    }

    fn restart(self: &Arc<Self>, app: &AppName, instance: &Instance) {
        let now = self.clock.now();
        let what = format!("{} is restarted by its policy", instance.name);
        let restarted = self.inside().change(app, Doer::Itself, &what, now, |world| {
            let it = hand::find(world, &instance.name)?;
            it.state = State::Running { since: now, health: Health::Starting };
            it.readiness =
                Readiness::Starting { reason: "its health check has not succeeded yet".to_owned() };
            it.started = Some(now);
            it.restarts += 1;
            Ok(())
        });
        if restarted.is_ok() {
            self.live(app, &ContainerRef::Name(instance.name.clone()));
            self.touched(app, "container", &instance.name, "start");
        }
    }
}

impl Inside {
    /// Changes one application's part and writes down how.
    fn change<T>(
        &mut self,
        app: &AppName,
        by: Doer,
        what: &str,
        at: Timestamp,
        change: impl FnOnce(&mut World) -> Result<T, Refusal>,
    ) -> Result<T, Refusal> {
        let claims = self.claims(app);
        self.count += 1;
        let corner = self.corners.entry(app.clone()).or_default();
        let before = corner.world.observed.clone();
        corner.world.observed.claims = claims;
        // All applications of a host share its images.
        corner.world.observed.images.clone_from(&self.images);
        corner.world.registry.clone_from(&self.faults.registry);
        let changed = change(&mut corner.world);
        self.images.clone_from(&corner.world.observed.images);
        if changed.is_ok() {
            if by != Doer::Agent {
                corner.disturbed = self.count;
            }
            let (app, what, after) = (app.clone(), what.to_owned(), corner.world.observed.clone());
            self.transcript.push(Happening { at, app, by, what, before, after });
        }
        changed
    }

    /// What was written in a container.
    pub(super) fn files_of(&self, container: &ContainerId) -> BTreeMap<String, FileChange> {
        let mut all = self.corners.values().filter_map(|it| it.world.observed.inside.get(container));
        all.find_map(|it| it.files.as_ref()).map(|it| it.changed.clone()).unwrap_or_default()
    }

    fn instance(&mut self, app: &AppName, which: impl Fn(&Instance) -> bool) -> Option<&mut Instance> {
        let Observed { instances, parts, .. } = &mut self.corners.get_mut(app)?.world.observed;
        instances.values_mut().chain(parts.values_mut()).find(|it| which(it))
    }

    /// What the other applications hold.
    pub(super) fn claims(&self, app: &AppName) -> Claims {
        let mut claims = Claims::default();
        let others = self.corners.iter().filter(|(name, _)| *name != app);
        for instance in others.flat_map(|(_, it)| it.world.observed.containers()) {
            claims.names.insert(instance.name.clone(), instance.id.clone());
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
        claims
    }
}

fn matches(instance: &Instance, container: &ContainerRef) -> bool {
    match container {
        ContainerRef::Id(id, _) => instance.id == *id,
        ContainerRef::Name(name) => instance.name == *name,
    }
}

/// The engine's words for what an action brings about.
fn word(action: &Action) -> (&'static str, &'static str) {
    match action {
        Action::PullImage { .. } => ("image", "pull"),
        Action::BuildImage { .. } => ("image", "tag"),
        Action::ImportImage { .. } => ("image", "import"),
        Action::CreateNetwork { .. } => ("network", "create"),
        Action::RemoveNetwork { .. } => ("network", "destroy"),
        Action::CreateVolume { .. } => ("volume", "create"),
        Action::CreateInstance(_) => ("container", "create"),
        // The engine has no part in it.
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

pub(super) fn away(doing: &str, message: &str) -> Error {
    Error::Transient { doing: doing.to_owned(), source: message.to_owned().into() }
}
