//! Probes made by the agent, as Kubernetes defines them: HTTP, TCP and gRPC to the container's address, commands
//! through the engine. The image needs no tools of its own.
//!
//! [`Prober`] has one task for each probed container. It says on request what the probes have found
//! ([`Prober::readiness`]), and reports changes. It restarts no container and routes no traffic.
//!
//! A container may also have a health check of the engine, which makes the first one only `interval` after the start. The
//! prober then runs the same check until it succeeds once.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::{Arc, Mutex, MutexGuard},
};

use tokio::sync::Semaphore;
use tokio_util::task::AbortOnDropHandle;

use driftless_clock::Clock;
use driftless_model::{AppName, ContainerId, KnownReady, Probes, Readiness, Timestamp};

mod attempt;
mod container;
mod grpc;
mod watch;

pub use container::{Changed, Exec, ExecError, ProbedContainer};

use watch::{ProbeShared, Unanswered, Watch, lock};

/// Maximum number of health checks that run at the same time.
const HEALTH_CHECKS: usize = 4;

/// Probes the containers of all applications. Dropping it ends its tasks.
pub struct Prober {
    shared: Arc<ProbeShared>,
    watched: Mutex<BTreeMap<ContainerId, Watched>>,
}

/// A container and the task that probes it.
struct Watched {
    app: AppName,
    container: ProbedContainer,
    state: Arc<Mutex<Readiness>>,
    unanswered: Arc<Mutex<Unanswered>>,
    /// Dropping it aborts the task.
    _task: AbortOnDropHandle<()>,
}

impl Prober {
    /// A prober without containers.
    pub fn new(clock: Clock, exec: Arc<dyn Exec>, changed: Changed) -> Self {
        let health_checks = Semaphore::new(HEALTH_CHECKS);
        let http = attempt::HttpClient::default();
        let shared = Arc::new(ProbeShared { clock, exec, http, health_checks, changed });
        Self { shared, watched: Mutex::default() }
    }

    /// Sets the containers of an application that are probed from now on. Call it in every round, before
    /// [`Prober::readiness`]. A container that is not named is not probed any more; one whose start, address or probes
    /// have changed is probed from the beginning. Must be called inside a Tokio runtime.
    ///
    /// The result of changed probes is that of the former ones until they find another: see [`Prober::is_unanswered`].
    ///
    /// A container that is not probed yet counts as ready if it is among the `known` with the same start, until its probes find
    /// otherwise.
    pub fn set_containers(
        &self,
        app: &AppName,
        containers: Vec<ProbedContainer>,
        known: &BTreeMap<ContainerId, KnownReady>,
    ) {
        let mut watched = self.watched();
        let named: BTreeSet<ContainerId> =
            containers.iter().map(|container| container.container.clone()).collect();
        watched.retain(|id, known| known.app != *app || named.contains(id));
        for container in containers {
            if !container.has_checks() {
                watched.remove(&container.container);
                continue;
            }
            let watch = watched.get(&container.container).filter(|watch| watch.app == *app);
            if watch.is_some_and(|watch| watch.container == container) {
                continue;
            }
            let of_same_start = watch.filter(|watch| watch.container.started == container.started);
            let before = of_same_start.map(|watch| lock(&watch.state).clone());
            let unanswered =
                of_same_start.map(|watch| watch.unanswered_by(&container.probes)).unwrap_or_default();
            let was_ready = known.get(&container.container);
            let was_ready = was_ready.filter(|known| watch.is_none() && known.started == container.started);
            // The clock may have been set back since.
            let now = self.shared.clock.now();
            let was_ready = was_ready.map(|known| Readiness::Ready { since: known.since.min(now) });
            let before = before.or(was_ready);
            watched.insert(container.container.clone(), self.watch(app, container, before, unanswered));
        }
    }

    /// The containers of an application that are probed, without those of a list.
    pub fn others(&self, app: &AppName, listed: &[ProbedContainer]) -> Vec<ProbedContainer> {
        let listed: BTreeSet<&ContainerId> = listed.iter().map(|container| &container.container).collect();
        let watched = self.watched();
        let others = watched.iter().filter(|(id, known)| known.app == *app && !listed.contains(id));
        others.map(|(_, known)| known.container.clone()).collect()
    }

    /// The containers of an application that their probes have found ready. Health checks of the engine are left out: the record
    /// has their results in [`Record::health`](driftless_model::Record::health).
    pub fn ready(&self, app: &AppName) -> BTreeMap<ContainerId, KnownReady> {
        let watched = self.watched();
        let of_app = watched.iter().filter(|(_, watch)| watch.app == *app);
        let ready = of_app.filter_map(|(id, watch)| match *lock(&watch.state) {
            Readiness::Ready { since } if watch.container.health_check.is_none() => {
                Some((id.clone(), KnownReady { started: watch.container.started, since }))
            }
            _ => None,
        });
        ready.collect()
    }

    /// The result of the probes of a container that was started at `started`. `None`: the container has no probes.
    pub fn readiness(&self, container: &ContainerId, started: Timestamp) -> Option<Readiness> {
        let watched = self.watched();
        let found = watched.get(container)?;
        if found.container.started == started {
            return Some(lock(&found.state).clone());
        }
        // The container was restarted since: the last result is that of another process.
        Some(Readiness::Starting { reason: "not probed since it was started".to_owned() })
    }

    /// Whether a container that was started at `started` counts as ready only by its former probes, because one that has changed
    /// has no result yet.
    pub fn is_unanswered(&self, container: &ContainerId, started: Timestamp) -> bool {
        let watched = self.watched();
        let found = watched.get(container).filter(|found| found.container.started == started);
        found.is_some_and(|found| *lock(&found.unanswered) != Unanswered::default())
    }

    fn watch(
        &self,
        app: &AppName,
        container: ProbedContainer,
        before: Option<Readiness>,
        unanswered: Unanswered,
    ) -> Watched {
        let watch = Watch::new(self.shared.clone(), app.clone(), container.clone(), before, unanswered);
        let (state, unanswered) = (watch.state(), watch.unanswered());
        let task = AbortOnDropHandle::new(tokio::spawn(watch.run()));
        Watched { app: app.clone(), container, state, unanswered, _task: task }
    }

    fn watched(&self) -> MutexGuard<'_, BTreeMap<ContainerId, Watched>> {
        lock(&self.watched)
    }
}

impl Watched {
    /// The probes of a later watch over the same start that have no result yet. A startup probe that has succeeded is not repeated.
    fn unanswered_by(&self, probes: &Probes) -> Unanswered {
        let (known, former) = (*lock(&self.unanswered), &self.container.probes);
        Unanswered {
            liveness: probes.liveness.is_some() && (known.liveness || probes.liveness != former.liveness),
            readiness: probes.readiness.is_some()
                && (known.readiness || probes.readiness != former.readiness),
        }
    }
}

impl fmt::Debug for Prober {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let watched = self.watched();
        f.debug_struct("Prober").field("watched", &watched.keys().collect::<Vec<_>>()).finish_non_exhaustive()
    }
}
