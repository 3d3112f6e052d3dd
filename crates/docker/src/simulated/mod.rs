//! A Docker in memory, for simulations of the whole agent: it keeps time by Tokio's clock, fails on demand and
//! writes down everything that happens to it.
//!
//! It is strict: what each action does is [`World`](driftless_plan::World)'s business, and a refusal that the planner
//! had all it needed to foresee is written down as a mistake of the planner. It knows no images but their names,
//! opens no port and runs no process.

mod hand;
mod host;

use std::{
    collections::{BTreeMap, BTreeSet},
    future::{pending, ready},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use futures_util::{StreamExt, stream};
use tokio::{sync::broadcast, time::sleep};

pub use hand::Hand;

use self::host::{Corner, Host, away};
use super::{Change, Changes, Docker, Effect, Error, Interest, LogOptions, LogStream, Materials};
use driftless_clock::Clock;
use driftless_model::{AgentId, AppName, Build, ContainerId, Observed, Timestamp};
use driftless_plan::{Action, Refusal};

/// One client's connection to a simulated host. The host lives as long as any connection to it.
#[derive(Clone, Debug)]
pub struct Simulated {
    host: Arc<Host>,
    /// How many more actions are answered. What comes after the last is never answered.
    actions_left: Arc<AtomicU32>,
}

/// What goes wrong and how long things take, until it is said otherwise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Faults {
    /// So many calls find no engine.
    pub failing_calls: u32,
    /// So many actions are performed, and their answer is lost on the way.
    pub lost_answers: u32,
    pub events: Events,
    /// What the registry has. `None`: everything.
    pub registry: Option<BTreeSet<String>>,
    /// How long these images take to pull; others take as long as any call.
    pub pulls: BTreeMap<String, Duration>,
    /// How long these images take to build, by name without tag; others take as long as any call.
    pub builds: BTreeMap<String, Duration>,
    /// These images cannot be built.
    pub broken: BTreeSet<String>,
    /// The health checks of these images never succeed.
    pub sick: BTreeSet<String>,
    /// Containers of these images end by themselves: after how long, and with which code.
    pub ending: BTreeMap<String, (Duration, i64)>,
    /// How long a health check takes to come to its conclusion.
    pub warm_up: Duration,
    /// How long a call takes.
    pub latency: Duration,
}

/// Whether the engine's events arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Events {
    Delivered,
    Lost,
}

/// Something that changed an application, with how things stood before and after.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Happening {
    pub at: Timestamp,
    pub app: AppName,
    pub by: Doer,
    pub what: String,
    pub before: Observed,
    pub after: Observed,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Doer {
    Agent,
    Hand,
    /// The container, or the engine by the container's restart policy.
    Itself,
}

impl Default for Faults {
    fn default() -> Self {
        Self {
            failing_calls: 0,
            lost_answers: 0,
            events: Events::Delivered,
            registry: None,
            pulls: BTreeMap::new(),
            builds: BTreeMap::new(),
            broken: BTreeSet::new(),
            sick: BTreeSet::new(),
            ending: BTreeMap::new(),
            warm_up: Duration::from_secs(1),
            latency: Duration::from_millis(5),
        }
    }
}

impl Simulated {
    /// An empty host and a connection to it, for an agent of this name.
    pub fn new(agent: AgentId, clock: Clock) -> Self {
        let (changes, _) = broadcast::channel(256);
        let host = Host { agent, clock, changes, inside: Mutex::default(), lives: Mutex::default() };
        Self { host: Arc::new(host), actions_left: Arc::new(AtomicU32::new(u32::MAX)) }
    }

    /// Another connection to the same host, for the next life of an agent.
    #[must_use]
    pub fn connect(&self) -> Self {
        Self { host: Arc::clone(&self.host), actions_left: Arc::new(AtomicU32::new(u32::MAX)) }
    }

    /// Whoever is at the other end of this connection dies once so many more actions are done: of nothing that
    /// it asks after that does it ever hear again, and nothing of it is done.
    pub fn sever_after(&self, actions: u32) {
        self.actions_left.store(actions, Ordering::SeqCst);
    }

    pub fn is_severed(&self) -> bool {
        self.actions_left.load(Ordering::SeqCst) == 0
    }

    /// Changes what goes wrong.
    pub fn faults(&self, change: impl FnOnce(&mut Faults)) {
        change(&mut self.host.inside().faults);
    }

    /// The engine does not answer any more, and its stream of events ends.
    pub fn go_away(&self) {
        self.host.inside().is_away = true;
        self.host.tell(Change::Lost { error: "connection refused".to_owned() });
    }

    pub fn come_back(&self) {
        self.host.inside().is_away = false;
        self.host.tell(Change::Reconnected);
    }

    /// Somebody does something past the agent.
    pub fn by_hand(&self, app: &AppName, hand: &Hand) -> Result<(), Refusal> {
        self.host.by_hand(app, hand)
    }

    /// An application as it stands, without a call.
    pub fn observed(&self, app: &AppName) -> Observed {
        self.host.inside().corners.get(app).map(|it| it.world.observed.clone()).unwrap_or_default()
    }

    /// All that has changed anything, in order.
    pub fn transcript(&self) -> Vec<Happening> {
        self.host.inside().transcript.clone()
    }

    /// How often the host was looked at or acted upon.
    pub fn calls(&self) -> u64 {
        self.host.inside().count
    }

    /// How often a container was looked into.
    pub fn looks(&self) -> u64 {
        self.host.inside().looks
    }

    /// Actions that were refused although nothing had happened since the planner looked.
    pub fn mistakes(&self) -> Vec<String> {
        self.host.inside().mistakes.clone()
    }

    async fn pull(
        &self,
        app: &AppName,
        image: &str,
        progress: &(dyn Fn(String) + Send + Sync),
    ) -> Result<(), Error> {
        let pause = {
            let inside = self.host.inside();
            inside.faults.pulls.get(image).copied().unwrap_or(inside.faults.latency)
        };
        progress(format!("pulling {image} (0 %)"));
        sleep(pause / 2).await;
        progress(format!("pulling {image} (50 %)"));
        sleep(pause / 2).await;
        self.alive().await;
        self.host.reach(&format!("pull {image}"))?;
        let action = Action::PullImage { image: image.to_owned(), platform: None, secrets: Vec::new() };
        self.host.perform(app, &action).map(drop).map_err(|refusal| Error::Pull {
            image: image.to_owned(),
            message: refusal.to_string(),
            retry_after: None,
        })
    }

    /// Who is dead hears no answer.
    async fn alive(&self) {
        if self.is_severed() {
            pending::<()>().await;
        }
    }

    async fn call(&self, doing: &str) -> Result<(), Error> {
        self.alive().await;
        let latency = self.host.inside().faults.latency;
        // No answer is instant, not even none: otherwise who asks again at once would stop the paused clock.
        sleep(latency).await;
        self.alive().await;
        self.host.reach(doing)
    }

    /// Counts an action that was just done. True if its answer is lost with the connection.
    fn spend(&self) -> bool {
        let less = |left: u32| if left == u32::MAX { None } else { Some(left.saturating_sub(1)) };
        let before = self.actions_left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, less);
        before.is_ok_and(|before| before <= 1)
    }
}

impl Docker for Simulated {
    async fn observe(&self, app: &AppName, interest: &Interest) -> Result<Observed, Error> {
        self.call(&format!("look at {app}")).await?;
        let mut inside = self.host.inside();
        inside.count += 1;
        let (count, claims, images) = (inside.count, inside.claims(app), inside.images.clone());
        inside.lend(app, interest);
        let corner = inside.corners.entry(app.clone()).or_default();
        corner.looked = count;
        let mut observed = corner.world.observed.clone();
        observed.claims = claims;
        observed.images = images;
        observed.images.retain(|name, _| interest.images.contains(name));
        // What files there are is seen by looking into a container.
        observed.inside.values_mut().for_each(|it| it.files = None);
        let agent = &self.host.agent;
        let is_mine = |it: &Option<AgentId>| it.as_ref() == Some(agent);
        observed.networks.retain(|name, it| is_mine(&it.agent) || interest.networks.contains(name));
        observed.volumes.retain(|name, it| is_mine(&it.agent) || interest.volumes.contains(name));
        Ok(observed)
    }

    async fn applications(&self) -> Result<BTreeSet<AppName>, Error> {
        self.call("list the applications on this host").await?;
        let inside = self.host.inside();
        let has_any =
            |it: &Corner| !it.world.observed.instances.is_empty() || !it.world.observed.networks.is_empty();
        Ok(inside.corners.iter().filter(|(_, it)| has_any(it)).map(|(name, _)| name.clone()).collect())
    }

    async fn act(
        &self,
        app: &AppName,
        action: &Action,
        progress: &(dyn Fn(String) + Send + Sync),
    ) -> Result<Effect, Error> {
        let doing = action.to_string();
        self.call(&doing).await?;
        if let Action::PullImage { image, platform: _, secrets: _ } = action {
            return self.pull(app, image, progress).await.map(|()| Effect::Done);
        }
        let performed = self.host.perform(app, action);
        if self.spend() {
            pending::<()>().await;
        }
        let created = match performed {
            Ok(created) => created,
            Err(refusal) => return Err(Error::Refused { doing, message: refusal.to_string() }),
        };
        let is_lost = {
            let faults = &mut self.host.inside().faults;
            let is_lost = faults.lost_answers > 0;
            faults.lost_answers = faults.lost_answers.saturating_sub(1);
            is_lost
        };
        if is_lost {
            return Err(away(&doing, "connection reset by peer"));
        }
        Ok(created.map_or(Effect::Done, Effect::Created))
    }

    async fn build(
        &self,
        app: &AppName,
        image: &str,
        build: &Build,
        _materials: &Materials,
        progress: &(dyn Fn(String) + Send + Sync),
    ) -> Result<(), Error> {
        self.call(&format!("build {image}")).await?;
        let name = image.rsplit_once(':').map_or(image, |(name, _)| name);
        let pause = {
            let inside = self.host.inside();
            inside.faults.builds.get(name).copied().unwrap_or(inside.faults.latency)
        };
        progress(format!("building {image} (step 1/1)"));
        sleep(pause).await;
        self.alive().await;
        self.host.reach(&format!("build {image}"))?;
        if self.host.inside().faults.broken.contains(name) {
            let message = "step 1/1: returned a non-zero code: 2".to_owned();
            return Err(Error::Build { image: image.to_owned(), message });
        }
        let action = Action::BuildImage { image: image.to_owned(), build: Box::new(build.clone()) };
        let refused =
            |refusal: Refusal| Error::Build { image: image.to_owned(), message: refusal.to_string() };
        self.host.perform(app, &action).map(drop).map_err(refused)
    }

    /// Succeeds in every container that runs and whose image is not sick.
    async fn exec(
        &self,
        container: &ContainerId,
        _command: &[String],
        _timeout: Duration,
    ) -> Result<(i64, String), Error> {
        let doing = format!("run a command in {container}");
        self.call(&doing).await?;
        let inside = self.host.inside();
        let mut all = inside.corners.values().flat_map(|it| it.world.observed.containers());
        match all.find(|it| it.id == *container && it.is_running()) {
            Some(it) if inside.faults.sick.contains(&it.config.image) => Ok((1, "sick".to_owned())),
            Some(_) => Ok((0, String::new())),
            None => Err(Error::Refused { doing, message: "the container does not run".to_owned() }),
        }
    }

    /// One line, since no process runs; who follows waits for more without end.
    async fn logs(&self, container: &str, options: &LogOptions) -> Result<LogStream, Error> {
        let doing = format!("read the output of {container}");
        self.call(&doing).await?;
        let inside = self.host.inside();
        let mut all = inside.corners.values().flat_map(|it| it.world.observed.containers());
        let Some(found) = all.find(|it| it.id.as_str().starts_with(container)) else {
            return Err(Error::Refused { doing, message: "no such container".to_owned() });
        };
        let line = stream::once(ready(Ok(format!("{} is simulated\n", found.name).into())));
        Ok(if options.follow { Box::pin(line.chain(stream::pending())) } else { Box::pin(line) })
    }

    async fn changes(&self, container: &ContainerId) -> Result<Changes, Error> {
        self.call(&format!("look into {container}")).await?;
        let mut inside = self.host.inside();
        inside.looks += 1;
        let found = inside.files_of(container);
        let files = found.into_iter().map(|(path, change)| (path, change.kind)).collect();
        Ok(Changes { files, is_cut: false })
    }

    async fn written(&self, container: &ContainerId, path: &str) -> Result<Option<Timestamp>, Error> {
        self.call(&format!("look at {path} in {container}")).await?;
        Ok(self.host.inside().files_of(container).get(path).and_then(|it| it.written))
    }

    fn watch(&self) -> broadcast::Receiver<Change> {
        let receiver = self.host.changes.subscribe();
        if !self.host.inside().is_away {
            // There is one receiver at least.
            let _ = self.host.changes.send(Change::Reconnected);
        }
        receiver
    }
}
