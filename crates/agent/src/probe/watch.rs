//! One container under probe: when to try, how often it must succeed or fail, and what that means. The rules
//! are those of the kubelet (`pkg/kubelet/prober/worker.go`). How a try is made is in `attempt`.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use tokio::time::{Instant, sleep_until};

use super::{Shared, Target, attempt, lock};
use driftless_model::{AppName, Probe, Readiness, Timestamp};

/// After a start of the agent, containers that run since long are probed within this time, each at its own
/// moment, so that a thousand of them are not probed at once.
const SPREAD: Duration = Duration::from_secs(2);

/// The probing of one container between one start of it and its end.
pub(super) struct Watch {
    shared: Arc<Shared>,
    app: AppName,
    target: Target,
    state: Arc<Mutex<Readiness>>,
    begun: Timestamp,
    /// It has passed its startup probe, in an earlier watch over the same start.
    has_started: bool,
}

/// The results in a row, up to now.
struct Streak {
    result: Result<(), String>,
    length: u32,
    /// When its first one came in.
    since: Timestamp,
}

/// What a streak that has reached its threshold says.
enum Verdict {
    Succeeded { since: Timestamp },
    Failed { reason: String },
}

impl Watch {
    /// `before` is what an earlier watch over the same start of the container had found: it stands until these
    /// probes find otherwise.
    pub(super) fn new(shared: Arc<Shared>, app: AppName, target: Target, before: Option<Readiness>) -> Self {
        let (state, has_started) = match before {
            Some(it @ (Readiness::Ready { .. } | Readiness::NotReady { .. })) => (it, true),
            Some(Readiness::Starting { .. } | Readiness::Dead { .. }) | None => {
                (Readiness::Starting { reason: "not probed yet".to_owned() }, false)
            }
        };
        let begun = shared.clock.now();
        Self { shared, app, target, state: Arc::new(Mutex::new(state)), begun, has_started }
    }

    pub(super) fn state(&self) -> Arc<Mutex<Readiness>> {
        self.state.clone()
    }

    /// Ends when the container is found dead: it has to be restarted, which begins another watch.
    pub(super) async fn run(self) {
        let mut ready_since = self.target.started;
        if let Some(probe) = self.target.probes.startup.as_ref().filter(|_| !self.has_started) {
            match self.starting(probe).await {
                Verdict::Succeeded { since } => ready_since = since,
                Verdict::Failed { reason } => return self.set(Readiness::Dead { reason }),
            }
        }
        if self.target.probes.readiness.is_none() && !self.is_ready() {
            self.set(Readiness::Ready { since: ready_since });
        }
        tokio::select! {
            // Both hold their streaks on their stacks; the one that ends first ends the other.
            reason = self.living() => self.set(Readiness::Dead { reason }),
            () = self.serving() => {}
        }
    }

    /// Until the startup probe succeeded, or failed for good. One success is enough.
    async fn starting(&self, probe: &Probe) -> Verdict {
        let mut next = self.first(probe);
        let mut streak = None;
        loop {
            next = self.wait(next, probe.period).await;
            let tried = self.attempt("startup", probe).await;
            if let Err(reason) = &tried {
                self.set(Readiness::Starting { reason: reason.clone() });
            }
            if let Some(verdict) = self.count(&mut streak, tried, 1, probe.failure_threshold) {
                return verdict;
            }
        }
    }

    /// Until the liveness probe failed for good; for ever without one.
    async fn living(&self) -> String {
        let Some(probe) = &self.target.probes.liveness else { return std::future::pending().await };
        let mut next = self.first(probe);
        let mut streak = None;
        loop {
            next = self.wait(next, probe.period).await;
            let tried = self.attempt("liveness", probe).await;
            match self.count(&mut streak, tried, 1, probe.failure_threshold) {
                Some(Verdict::Failed { reason }) => return reason,
                Some(Verdict::Succeeded { .. }) | None => {}
            }
        }
    }

    /// For ever: ready, not ready, ready again.
    async fn serving(&self) {
        let Some(probe) = &self.target.probes.readiness else { return std::future::pending().await };
        let mut next = self.first(probe);
        let mut streak = None;
        loop {
            next = self.wait(next, probe.period).await;
            let tried = self.attempt("readiness", probe).await;
            let failure = tried.as_ref().err().cloned();
            match self.count(&mut streak, tried, probe.success_threshold, probe.failure_threshold) {
                Some(Verdict::Succeeded { .. }) if self.is_ready() => {}
                Some(Verdict::Succeeded { since }) => self.set(Readiness::Ready { since }),
                Some(Verdict::Failed { reason }) => self.set(Readiness::NotReady { reason }),
                // Too few failures to be unready, but worth telling while it has never been ready.
                None => {
                    if let Some(reason) = failure.filter(|_| self.is_starting()) {
                        self.set(Readiness::Starting { reason });
                    }
                }
            }
        }
    }

    /// When a probe is first made: its initial delay after the container's start, whenever the agent started.
    fn first(&self, probe: &Probe) -> Instant {
        let mut due = self.target.started.after(probe.initial_delay);
        if self.begun.since(due) >= probe.period {
            due = self.begun.after(self.phase(SPREAD.min(probe.period)));
        }
        // A container from "the future" (its host's clock is not ours) waits no longer than its delay.
        let longest = probe.initial_delay.max(SPREAD);
        Instant::now() + due.since(self.shared.clock.now()).min(longest)
    }

    /// A moment within `spread`, always the same for a container.
    fn phase(&self, spread: Duration) -> Duration {
        let digits = self.target.container.0.get(..8).unwrap_or_default();
        let fraction = f64::from(u32::from_str_radix(digits, 16).unwrap_or(0)) / f64::from(u32::MAX);
        spread.mul_f64(fraction)
    }

    /// Waits for a moment and returns the next one. After a try that took longer than the period the next one
    /// follows at once, and none is made up for.
    async fn wait(&self, moment: Instant, period: Duration) -> Instant {
        let moment = moment.max(Instant::now());
        sleep_until(moment).await;
        // A period of nothing would keep a processor busy; the manifest's smallest is a second.
        moment + period.max(Duration::from_millis(10))
    }

    async fn attempt(&self, kind: &str, probe: &Probe) -> Result<(), String> {
        let tried = attempt::attempt(&self.shared, &self.target, probe).await;
        tried.map_err(|reason| format!("{kind} probe: {reason}"))
    }

    /// Adds a result to the streak it continues, and says what the streak means once it is long enough.
    fn count(
        &self,
        streak: &mut Option<Streak>,
        result: Result<(), String>,
        successes: u32,
        failures: u32,
    ) -> Option<Verdict> {
        let (length, since) = match streak.take() {
            Some(it) if it.result.is_ok() == result.is_ok() => (it.length.saturating_add(1), it.since),
            Some(_) | None => (1, self.shared.clock.now()),
        };
        let verdict = match &result {
            Ok(()) => (length >= successes).then_some(Verdict::Succeeded { since }),
            Err(reason) => (length >= failures).then(|| Verdict::Failed { reason: reason.clone() }),
        };
        *streak = Some(Streak { result, length, since });
        verdict
    }

    /// Publishes a state, and wakes the application when it is another kind of state.
    fn set(&self, state: Readiness) {
        let is_news = {
            let mut current = lock(&self.state);
            let is_news = std::mem::discriminant(&*current) != std::mem::discriminant(&state);
            *current = state;
            is_news
        };
        if is_news {
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
