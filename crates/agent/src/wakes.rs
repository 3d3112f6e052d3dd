//! Wakes: signals to the applications to make a round, and to the repositories to fetch. A wake carries no data.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{
    sync::{Notify, broadcast::error::RecvError, watch},
    time::{MissedTickBehavior, interval},
};
use tokio_util::sync::CancellationToken;

use driftless_clock::{Clock, LastReading};
use driftless_docker::{Docker, EngineEvent};
use driftless_model::{AppName, Container, ManagedApplications, Peer, Stack, Workload};

use crate::probe::Changed;

/// The interval of full passes: every application makes a round, whether or not something happened.
const FULL_PASS: Duration = Duration::from_mins(5);

/// The interval at which the clock is compared with the time since the start.
const CLOCK_CHECK: Duration = Duration::from_secs(5);

/// The wakes of all applications, or of all repositories by name.
#[derive(Clone, Debug)]
pub(crate) struct Wakes<K = AppName>(Arc<Mutex<BTreeMap<K, Arc<Notify>>>>);

impl<K> Default for Wakes<K> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

impl<K: Ord + Clone> Wakes<K> {
    /// The notification of this name, made on first use.
    pub(crate) fn of(&self, name: &K) -> Arc<Notify> {
        self.by_name().entry(name.clone()).or_default().clone()
    }

    /// Wakes one. Any number of wakes during a round lead to one more round.
    pub(crate) fn wake(&self, name: &K) {
        if let Some(notify) = self.by_name().get(name) {
            notify.notify_one();
        }
    }

    /// Wakes all.
    pub(crate) fn wake_all(&self) {
        self.by_name().values().for_each(|notify| notify.notify_one());
    }

    fn by_name(&self) -> MutexGuard<'_, BTreeMap<K, Arc<Notify>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Wakes {
    /// Wakes an application of which there is news.
    pub(crate) fn waker(&self) -> Changed {
        let wakes = self.clone();
        Arc::new(move |app| wakes.wake(app))
    }
}

/// The applications with containers that share namespaces or volumes of a container of another application, by its name
/// (`container:NAME`). When it is restarted or replaced, they follow.
fn sharing<'a>(managed: &'a ManagedApplications, container: &'a str) -> impl Iterator<Item = &'a AppName> {
    managed.stacks.iter().filter(move |(_, stack)| shares(stack, container)).map(|(app, _)| app)
}

fn shares(stack: &Stack, container: &str) -> bool {
    let mut peers = stack.workloads.values().flat_map(Workload::containers).flat_map(Container::peers);
    peers.any(|peer| matches!(peer, Peer::Container(name) if name == container))
}

/// Turns engine events into wakes, until stopped. `managed` are the applications of the agent. `engine` gets whether the engine
/// answers, or why not.
pub(crate) async fn wake_on_engine_events<D: Docker>(
    docker: Arc<D>,
    wakes: Wakes,
    managed: watch::Receiver<Arc<ManagedApplications>>,
    engine: watch::Sender<Result<(), String>>,
    stop: CancellationToken,
) {
    let mut events = docker.events();
    let mut full_pass = interval(FULL_PASS);
    full_pass.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            _ = full_pass.tick() => wakes.wake_all(),
            event = events.recv() => match event {
                Ok(EngineEvent::ObjectChanged { app: Some(app), kind, name, .. }) => {
                    wakes.wake(&app);
                    if kind == "container" {
                        let managed = Arc::clone(&managed.borrow());
                        sharing(&managed, &name).for_each(|guest| wakes.wake(guest));
                    }
                }
                Ok(EngineEvent::ObjectChanged { app: None, .. }) => wakes.wake_all(),
                // They may have said that the engine answers no more, or again, as the first one of a new receiver does.
                Err(RecvError::Lagged(_)) => {
                    drop(engine.send_replace(Err("the event stream of the Docker Engine has ended".to_owned())));
                    events = docker.events();
                    wakes.wake_all();
                }
                Ok(EngineEvent::ClaimLost) => {}
                Ok(EngineEvent::Connected) => {
                    drop(engine.send_replace(Ok(())));
                    wakes.wake_all();
                }
                Ok(EngineEvent::Disconnected { error }) => {
                    tracing::warn!(error, "the engine does not answer");
                    drop(engine.send_replace(Err(format!("the Docker Engine does not answer: {error}"))));
                    wakes.wake_all();
                }
                Err(RecvError::Closed) => return,
            },
        }
    }
}

/// Wakes all applications, all repositories and the supervisor after the time of day has gone on alone, until stopped. Their pauses
/// stand still while the machine sleeps, and know nothing of a clock that is set: what is due would come too late.
pub(crate) async fn wake_on_clock_jumps(
    clock: Clock,
    wakes: Wakes,
    repositories: Wakes<String>,
    supervisor: Arc<Notify>,
    stop: CancellationToken,
) {
    let mut last = LastReading::new(clock.now());
    let mut check = interval(CLOCK_CHECK);
    check.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            _ = check.tick() => {}
        }
        if let Some(jump) = last.jump(clock.now()) {
            let seconds = jump.as_secs();
            tracing::info!(
                seconds,
                "the machine has slept, or its clock was set forward; looking at everything again"
            );
            wakes.wake_all();
            repositories.wake_all();
            supervisor.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use driftless_model::{Location, NetworkMode, Timestamp};
    use tokio::time::{Instant, timeout};

    use super::*;
    use crate::desired::tests::stack;

    #[tokio::test(start_paused = true)]
    async fn jump_of_the_clock_wakes_all_within_seconds() {
        let clock = Clock::jumping(Timestamp(1_800_000_000_000));
        let Clock::Jumping { epoch, .. } = clock else { panic!() };
        let (wakes, repositories, supervisor) = (Wakes::default(), Wakes::default(), Arc::new(Notify::new()));
        let (app, repository) = (wakes.of(&AppName::from("shop")), repositories.of(&"infra".to_owned()));
        let stop = CancellationToken::new();
        let task = wake_on_clock_jumps(clock, wakes, repositories, Arc::clone(&supervisor), stop.clone());
        let task = tokio::spawn(task);
        assert!(timeout(FULL_PASS, app.notified()).await.is_err(), "the clock goes on as the time does");
        epoch.fetch_add(3_600_000, Ordering::SeqCst);
        let jumped = Instant::now();
        for notify in [app, repository, supervisor] {
            notify.notified().await;
        }
        assert!(jumped.elapsed() <= CLOCK_CHECK * 2);
        stop.cancel();
        task.await.unwrap();
    }

    #[test]
    fn container_wakes_applications_that_share_its_network() {
        let sharing_with = |peer: Peer| {
            let network_mode = NetworkMode::Of(peer);
            let container = Container { image: "guest:1".to_owned(), network_mode, ..Container::default() };
            let mut stack = stack("guests");
            let guest = Workload::new(Location::new("compose.yaml", 1, 1), container);
            stack.workloads.insert("guest".into(), guest);
            Arc::new(stack)
        };
        let stacks = BTreeMap::from([
            (AppName::from("arr"), sharing_with(Peer::Container("gluetun".to_owned()))),
            (AppName::from("other"), sharing_with(Peer::Container("tailscale".to_owned()))),
            (AppName::from("own"), sharing_with(Peer::Workload("gluetun".into()))),
            (AppName::from("vpn"), Arc::new(stack("vpn"))),
        ]);
        let managed = ManagedApplications { stacks, ..ManagedApplications::default() };
        let woken: Vec<&str> = sharing(&managed, "gluetun").map(AppName::as_str).collect();
        assert_eq!(woken, ["arr"]);
        assert_eq!(sharing(&managed, "vpn-web-1").count(), 0);
    }
}
