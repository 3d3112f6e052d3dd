//! Probes made by the agent, as Kubernetes defines them: HTTP and TCP to the container's address, commands
//! through the engine. An image needs no tool of its own.
//!
//! [`Prober`] has one task per probed container. It tells what it found when it is asked
//! ([`Prober::readiness`]), and that something changed when it does; it restarts and routes nothing.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    future::Future,
    net::IpAddr,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio_util::task::AbortOnDropHandle;

use driftless_clock::Clock;
use driftless_model::{AppName, ContainerId, Probes, Readiness, Timestamp};

mod attempt;
mod grpc;
mod watch;

/// Runs commands inside containers: what the prober needs of the engine.
pub trait Exec: Send + Sync + 'static {
    /// Runs a command to its end, not through a shell, and returns its exit code; or why it could not be run,
    /// for people. It gives up after `timeout`.
    fn exec<'a>(
        &'a self,
        container: &'a ContainerId,
        command: &'a [String],
        timeout: Duration,
    ) -> Pin<Box<dyn Future<Output = Result<i64, String>> + Send + 'a>>;
}

/// Called with the application whenever one of its containers became ready, unready or dead. It must not
/// block, and it must not call the prober back.
pub type Changed = Arc<dyn Fn(&AppName) + Send + Sync>;

/// A running container and the probes it is to have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    pub container: ContainerId,
    /// Where it is reached: its address on one of its networks, or 127.0.0.1 on the host's. Without one, HTTP
    /// and TCP probes fail.
    pub address: Option<IpAddr>,
    /// When it was last started: initial delays count from here, so a restart of the agent waits for none anew.
    pub started: Timestamp,
    pub probes: Probes,
}

/// Probes all containers of all applications. Dropping it ends its tasks.
pub struct Prober {
    prober: Arc<Shared>,
    watched: Mutex<BTreeMap<ContainerId, Watched>>,
}

/// What the tasks have in common.
struct Shared {
    clock: Clock,
    exec: Arc<dyn Exec>,
    http: attempt::Http,
    changed: Changed,
}

/// One container under probe.
struct Watched {
    app: AppName,
    target: Target,
    state: Arc<Mutex<Readiness>>,
    /// Held for its end: dropping it ends the task.
    _task: AbortOnDropHandle<()>,
}

impl Prober {
    pub fn new(clock: Clock, exec: Arc<dyn Exec>, changed: Changed) -> Self {
        let prober = Arc::new(Shared { clock, exec, http: attempt::Http::default(), changed });
        Self { prober, watched: Mutex::default() }
    }

    /// Says which containers of an application are to be probed from now on; call it in every round, and
    /// before [`Prober::readiness`]. Begins with new ones, ends those that are not named, and begins anew with
    /// those whose start, address or probes changed. Must be called inside a Tokio runtime.
    pub fn want(&self, app: &AppName, targets: Vec<Target>) {
        let mut watched = self.watched();
        let named: BTreeSet<ContainerId> = targets.iter().map(|it| it.container.clone()).collect();
        watched.retain(|container, it| it.app != *app || named.contains(container));
        for target in targets {
            if target.probes == Probes::default() {
                watched.remove(&target.container);
                continue;
            }
            let known = watched.get(&target.container).filter(|it| it.app == *app);
            if known.is_some_and(|it| it.target == target) {
                continue;
            }
            let before =
                known.filter(|it| it.target.started == target.started).map(|it| lock(&it.state).clone());
            watched.insert(target.container.clone(), self.watch(app, target, before));
        }
    }

    /// What the probes say about a container that was started at `started`. `None`: it has no probes, as far
    /// as [`Prober::want`] was told.
    pub fn readiness(&self, container: &ContainerId, started: Timestamp) -> Option<Readiness> {
        let watched = self.watched();
        let found = watched.get(container)?;
        if found.target.started == started {
            return Some(lock(&found.state).clone());
        }
        // It was restarted since: what was found before is of another process.
        Some(Readiness::Starting { reason: "not probed since it was started".to_owned() })
    }

    fn watch(&self, app: &AppName, target: Target, before: Option<Readiness>) -> Watched {
        let watch = watch::Watch::new(self.prober.clone(), app.clone(), target.clone(), before);
        let state = watch.state();
        let task = AbortOnDropHandle::new(tokio::spawn(watch.run()));
        Watched { app: app.clone(), target, state, _task: task }
    }

    fn watched(&self) -> MutexGuard<'_, BTreeMap<ContainerId, Watched>> {
        lock(&self.watched)
    }
}

impl fmt::Debug for Prober {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let watched = self.watched();
        f.debug_struct("Prober").field("watched", &watched.keys().collect::<Vec<_>>()).finish_non_exhaustive()
    }
}

/// Nothing is left half done under these locks, so a panic of another task does no harm.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
