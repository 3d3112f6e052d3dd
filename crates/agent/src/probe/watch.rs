//! The probes of one container: when each attempt is made, and how many must succeed or fail. The rules are those of the
//! kubelet (`pkg/kubelet/prober/worker.go`). [`super::attempt`] makes the attempts.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{
    sync::Semaphore,
    time::{Instant, sleep, sleep_until, timeout},
};

use super::{
    attempt::{AttemptError, HttpClient, attempt},
    container::{Changed, Exec, ProbedContainer},
};
use driftless_clock::Clock;
use driftless_model::{AppName, Healthcheck, Probe, Readiness, Timestamp};

/// The parts that all probe tasks share.
pub(super) struct ProbeShared {
    pub(super) clock: Clock,
    pub(super) exec: Arc<dyn Exec>,
    pub(super) http: HttpClient,
    /// Permits to run a health check.
    pub(super) health_checks: Semaphore,
    pub(super) changed: Changed,
}

/// After a start of the agent, the first probes of containers that run already are spread over this time, so that a
/// thousand of them are not probed at once.
const SPREAD: Duration = Duration::from_secs(2);

/// The pause after the first health check. It doubles after each further one.
const HEALTH_PAUSE: Duration = Duration::from_millis(100);
/// A health check that takes longer is left to the engine.
const SLOW_HEALTH_CHECK: Duration = Duration::from_secs(5);
/// The longest pause between two health checks: the engine's own `start_interval`.
const MAX_HEALTH_PAUSE: Duration = Duration::from_secs(5);

/// Probes one container between its start and its end.
pub(super) struct Watch {
    shared: Arc<ProbeShared>,
    app: AppName,
    target: ProbedContainer,
    state: Arc<Mutex<Readiness>>,
    unanswered: Arc<Mutex<Unanswered>>,
    begun: Timestamp,
    /// The startup probe has succeeded in an earlier watch over the same start.
    has_started: bool,
}

/// The changed probes without a result, while that of the former ones counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Unanswered {
    pub(super) liveness: bool,
    pub(super) readiness: bool,
}

/// Equal results in a row.
struct Streak {
    result: Result<(), String>,
    length: u32,
    /// The time of the first one.
    since: Timestamp,
}

/// The result of a streak that has reached its threshold.
enum ProbeResult {
    Succeeded { since: Timestamp },
    Failed { reason: String },
}

impl Watch {
    /// `before` is the result of an earlier watch over the same start. It is kept until these probes find another one.
    pub(super) fn new(
        shared: Arc<ProbeShared>,
        app: AppName,
        target: ProbedContainer,
        before: Option<Readiness>,
        unanswered: Unanswered,
    ) -> Self {
        let (state, has_started) = match before {
            Some(state @ (Readiness::Ready { .. } | Readiness::NotReady { .. })) => (state, true),
            Some(Readiness::Starting { .. } | Readiness::Dead { .. }) | None => {
                (Readiness::Starting { reason: "not probed yet".to_owned() }, false)
            }
        };
        // One that is not ready does not count before its probes have succeeded.
        let is_ready = matches!(state, Readiness::Ready { .. });
        let unanswered = if is_ready { unanswered } else { Unanswered::default() };
        let begun = shared.clock.now();
        let (state, unanswered) = (Arc::new(Mutex::new(state)), Arc::new(Mutex::new(unanswered)));
        Self { shared, app, target, state, unanswered, begun, has_started }
    }

    pub(super) fn state(&self) -> Arc<Mutex<Readiness>> {
        self.state.clone()
    }

    pub(super) fn unanswered(&self) -> Arc<Mutex<Unanswered>> {
        self.unanswered.clone()
    }

    /// Probes until the container is dead. Its restart begins another watch.
    pub(super) async fn run(self) {
        if let Some(check) = &self.target.health_check {
            return self.checking(check).await;
        }
        let mut ready_since = self.target.started;
        if let Some(probe) = self.target.probes.startup.as_ref().filter(|_| !self.has_started) {
            match self.starting(probe).await {
                ProbeResult::Succeeded { since } => ready_since = since,
                ProbeResult::Failed { reason } => return self.set(Readiness::Dead { reason }),
            }
        }
        if self.target.probes.readiness.is_none() && !self.is_ready() {
            self.set(Readiness::Ready { since: ready_since });
        }
        tokio::select! {
            reason = self.living() => self.set(Readiness::Dead { reason }),
            () = self.serving() => {}
        }
    }

    /// Runs the health check until it has succeeded once. The caller ends it when the engine has a result of its own.
    async fn checking(&self, check: &Healthcheck) {
        let mut pause = HEALTH_PAUSE;
        while !self.is_ready() {
            let checked = {
                // The semaphore is never closed.
                let Ok(_permit) = self.shared.health_checks.acquire().await else { return };
                let checked = self.shared.exec.check_health(&self.target.container, check);
                timeout(SLOW_HEALTH_CHECK, checked).await
            };
            match checked {
                Ok(true) => return self.set(Readiness::Ready { since: self.shared.clock.now() }),
                Ok(false) => {}
                // Nothing ends a check that hangs in the container, so there is no second one.
                Err(_) => return,
            }
            sleep(pause).await;
            pause = pause.saturating_mul(2).min(MAX_HEALTH_PAUSE);
        }
    }

    /// Probes until the startup probe has succeeded once, or has failed for good.
    async fn starting(&self, probe: &Probe) -> ProbeResult {
        let mut next = self.first(probe);
        let mut streak = None;
        loop {
            next = self.wait(next, probe.period).await;
            let Some(tried) = self.attempt("startup", probe).await else { continue };
            if let Err(reason) = &tried {
                self.set(Readiness::Starting { reason: reason.clone() });
            }
            if let Some(verdict) = self.count(&mut streak, tried, 1, probe.failure_threshold) {
                return verdict;
            }
        }
    }

    /// Probes until the liveness probe has failed for good. Without one, it never ends.
    async fn living(&self) -> String {
        let Some(probe) = &self.target.probes.liveness else { return std::future::pending().await };
        let mut next = self.first(probe);
        let mut streak = None;
        loop {
            next = self.wait(next, probe.period).await;
            let Some(tried) = self.attempt("liveness", probe).await else { continue };
            match self.count(&mut streak, tried, 1, probe.failure_threshold) {
                Some(ProbeResult::Failed { reason }) => return reason,
                Some(ProbeResult::Succeeded { .. }) => self.note_result(|open| &mut open.liveness),
                None => {}
            }
        }
    }

    /// Follows the readiness probe. It never ends.
    async fn serving(&self) {
        let Some(probe) = &self.target.probes.readiness else { return std::future::pending().await };
        let mut next = self.first(probe);
        let mut streak = None;
        loop {
            next = self.wait(next, probe.period).await;
            let Some(tried) = self.attempt("readiness", probe).await else { continue };
            let failure = tried.as_ref().err().cloned();
            let found = self.count(&mut streak, tried, probe.success_threshold, probe.failure_threshold);
            let is_result = found.is_some();
            match found {
                Some(ProbeResult::Succeeded { .. }) if self.is_ready() => {}
                Some(ProbeResult::Succeeded { since }) => self.set(Readiness::Ready { since }),
                Some(ProbeResult::Failed { reason }) => self.set(Readiness::NotReady { reason }),
                // Too few failures for "not ready", but the reason why it is still starting.
                None => {
                    if let Some(reason) = failure.filter(|_| self.is_starting()) {
                        self.set(Readiness::Starting { reason });
                    }
                }
            }
            if is_result {
                self.note_result(|open| &mut open.readiness);
            }
        }
    }

    /// Notes the first result of a changed probe, once the state is that of the probe.
    fn note_result(&self, of: fn(&mut Unanswered) -> &mut bool) {
        let was_open = std::mem::take(of(&mut lock(&self.unanswered)));
        if was_open {
            (self.shared.changed)(&self.app);
        }
    }

    /// The time of the first attempt: the initial delay after the container's start, also after a restart of the agent.
    fn first(&self, probe: &Probe) -> Instant {
        let mut due = self.target.started.after(probe.initial_delay);
        if self.begun.since(due) >= probe.period {
            due = self.begun.after(self.phase(SPREAD.min(probe.period)));
        }
        // A start in the future (another clock than the agent's) lengthens no delay.
        let longest = probe.initial_delay.max(SPREAD);
        Instant::now() + due.since(self.shared.clock.now()).min(longest)
    }

    /// A duration within `spread`, always the same for a container.
    fn phase(&self, spread: Duration) -> Duration {
        let digits = self.target.container.0.get(..8).unwrap_or_default();
        let fraction = f64::from(u32::from_str_radix(digits, 16).unwrap_or(0)) / f64::from(u32::MAX);
        spread.mul_f64(fraction)
    }

    /// Waits until `moment` and returns the time of the next attempt. After an attempt that took longer than the period,
    /// the next one follows at once, and none is made up for.
    async fn wait(&self, moment: Instant, period: Duration) -> Instant {
        let moment = moment.max(Instant::now());
        sleep_until(moment).await;
        // A period of zero would keep a processor busy. The smallest one of a manifest is a second.
        moment + period.max(Duration::from_millis(10))
    }

    /// Makes one attempt. `None` without an answer of the engine: the kubelet does not count errors of its own either.
    async fn attempt(&self, kind: &str, probe: &Probe) -> Option<Result<(), String>> {
        match attempt(&self.shared.http, self.shared.exec.as_ref(), &self.target, probe).await {
            Ok(()) => Some(Ok(())),
            Err(AttemptError::Failed(reason)) => Some(Err(format!("{kind} probe: {reason}"))),
            Err(AttemptError::Unanswered) => None,
        }
    }

    /// Adds a result to the streak. Returns the result of the streak when it is long enough.
    fn count(
        &self,
        streak: &mut Option<Streak>,
        result: Result<(), String>,
        successes: u32,
        failures: u32,
    ) -> Option<ProbeResult> {
        let (length, since) = match streak.take() {
            Some(streak) if streak.result.is_ok() == result.is_ok() => {
                (streak.length.saturating_add(1), streak.since)
            }
            Some(_) | None => (1, self.shared.clock.now()),
        };
        let verdict = match &result {
            Ok(()) => (length >= successes).then_some(ProbeResult::Succeeded { since }),
            Err(reason) => (length >= failures).then(|| ProbeResult::Failed { reason: reason.clone() }),
        };
        *streak = Some(Streak { result, length, since });
        verdict
    }

    /// Sets the state, and wakes the application if it is of another kind.
    fn set(&self, state: Readiness) {
        let is_new = {
            let mut current = lock(&self.state);
            let is_new = std::mem::discriminant(&*current) != std::mem::discriminant(&state);
            *current = state;
            is_new
        };
        if is_new {
            (self.shared.changed)(&self.app);
        }
    }

    fn is_ready(&self) -> bool {
        matches!(*lock(&self.state), Readiness::Ready { .. })
    }

    fn is_starting(&self) -> bool {
        matches!(*lock(&self.state), Readiness::Starting { .. })
    }
}

/// A panic of another task leaves a valid value under these locks.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
