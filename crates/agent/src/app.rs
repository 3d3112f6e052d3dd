//! The loop of one application: rounds until nothing is left to do, then sleep until something wakes it.
//!
//! A wake carries no data. A new commit, drift, a restart of the agent and a retry all take the same way through
//! [`Reconciler::round`]. A round remembers things only in the record; it observes everything else again.

use std::{sync::Arc, time::Duration};

use tokio::{
    sync::{Notify, mpsc, watch},
    time::{Instant, sleep, sleep_until},
};
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use driftless_docker::Docker;
use driftless_git::CommitSource;

use crate::{
    desired::Desired,
    interrupt::Interrupt,
    log_span,
    reconcile::{Next, Reconciler},
    request::{Queued, RequestKind, answer_at_once},
};

/// The shortest pause between two rounds that only the clock asks for.
const MIN_PAUSE: Duration = Duration::from_millis(100);

/// The longest pause between two rounds. The full pass wakes the application earlier.
const MAX_PAUSE: Duration = Duration::from_hours(1);

/// Interval at which the progress of pulls and builds is published.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(1);

/// Maximum number of rounds without a pause, so that a fault of the planner cannot keep the host busy.
const MAX_CONSECUTIVE_ROUNDS: usize = 40;

/// The pause after too many rounds in a row.
const PAUSE_AFTER_TOO_MANY: Duration = Duration::from_secs(5);

/// One application.
pub(crate) struct App<D, S> {
    reconciler: Reconciler<D, S>,
    /// Notified when the application should make a round.
    wake: Arc<Notify>,
    /// Requests that arrived during a round.
    queue: Vec<Queued>,
}

/// The result of the rounds that followed each other.
struct Rounds {
    /// The time of the next round.
    next: Next,
    /// A new desired state arrived that asks for the same.
    has_same_target: bool,
}

impl<D: Docker, S: CommitSource> App<D, S> {
    pub(crate) fn new(reconciler: Reconciler<D, S>, wake: Arc<Notify>) -> Self {
        Self { reconciler, wake, queue: Vec::new() }
    }

    /// Makes rounds and answers requests until stopped.
    pub(crate) async fn run(
        mut self,
        mut desired: watch::Receiver<Arc<Desired>>,
        mut requests: mpsc::Receiver<Queued>,
        stop: CancellationToken,
    ) {
        loop {
            for Queued { kind, actor, ticket, reply } in std::mem::take(&mut self.queue) {
                // Nobody waits for the answer any more, and a question changes nothing.
                if kind.is_question() && reply.is_closed() {
                    continue;
                }
                let answer = tokio::select! {
                    answer = async { self.reconciler.requests(&actor).answer(&kind).await }
                        .instrument(log_span::request(&actor)) => answer,
                    () = stop.cancelled() => return,
                };
                self.reconciler.note_request(ticket);
                // The client may have gone.
                let _ = reply.send(answer);
            }
            let newest = Arc::clone(&desired.borrow_and_update());
            self.reconciler.set_desired(newest);
            let interrupt = Interrupt::new(&stop);
            let Rounds { next, has_same_target } = self.rounds(&mut desired, &mut requests, &interrupt).await;
            if stop.is_cancelled() {
                return;
            }
            if !self.queue.is_empty() || interrupt.token().is_cancelled() {
                continue;
            }
            let has_failed = matches!(next, Next::BackOff(_));
            if has_same_target && !has_failed && !self.follow_without_round(&desired) {
                continue;
            }
            tokio::select! {
                () = stop.cancelled() => return,
                is_connected = self.sleep(next, &mut desired, &mut requests) => if !is_connected { return },
            }
        }
    }

    /// Makes rounds until nothing more can be done now, or until a request or a new desired state interrupts them. The
    /// rounds are never dropped half way: they end after the running steps, and before a suspension after the replacements that
    /// have begun. For a question, the running round is finished.
    async fn rounds(
        &mut self,
        desired: &mut watch::Receiver<Arc<Desired>>,
        requests: &mut mpsc::Receiver<Queued>,
        interrupt: &Interrupt,
    ) -> Rounds {
        let Self { reconciler, queue, .. } = self;
        let began_with = Arc::clone(reconciler.desired());
        let mut has_same_target = false;
        let last = interrupt.token().child_token();
        let rounds = consecutive_rounds(reconciler, interrupt, &last);
        tokio::pin!(rounds);
        loop {
            tokio::select! {
                next = &mut rounds => return Rounds { next, has_same_target },
                Some(request) = requests.recv() => {
                    if request.kind.is_question() {
                        last.cancel();
                    } else if request.kind == RequestKind::Suspend {
                        interrupt.end_work();
                    } else {
                        interrupt.supersede();
                    }
                    queue.push(answer_at_once(request));
                }
                // A fetch that found nothing new must not cost another round.
                Ok(()) = desired.changed() => {
                    let newest = desired.borrow();
                    if began_with.asks_for_the_same(&newest) {
                        has_same_target = true;
                    } else if newest.leaves_all_running() {
                        interrupt.end_work();
                    } else {
                        interrupt.supersede();
                    }
                }
            }
        }
    }

    /// Sleeps until the next round. False: the supervisor has gone.
    ///
    /// A wake does not end the pause after a failed round: on a full disk, each engine event would fail another one.
    async fn sleep(
        &mut self,
        next: Next,
        desired: &mut watch::Receiver<Arc<Desired>>,
        requests: &mut mpsc::Receiver<Queued>,
    ) -> bool {
        let now = self.reconciler.now();
        let (due, has_failed) = match next {
            Next::Round => return true,
            Next::Sleep(due) => (due, false),
            Next::BackOff(due) => (Some(due), true),
        };
        let until = Instant::now() + due.map_or(MAX_PAUSE, |due| due.since(now).max(MIN_PAUSE));
        loop {
            tokio::select! {
                Some(request) = requests.recv() => self.queue.push(request),
                () = self.wake.notified(), if !has_failed => {}
                changed = desired.changed() => {
                    if changed.is_err() {
                        return false;
                    }
                    if has_failed && self.reconciler.desired().asks_for_the_same(&desired.borrow()) {
                        continue;
                    }
                    if self.follow_without_round(desired) {
                        continue;
                    }
                }
                () = sleep_until(until) => {}
                () = sleep(PROGRESS_INTERVAL), if self.reconciler.has_progress() => {
                    self.reconciler.publish_progress();
                    continue;
                }
            }
            return true;
        }
    }

    fn follow_without_round(&mut self, desired: &watch::Receiver<Arc<Desired>>) -> bool {
        let newest = Arc::clone(&desired.borrow());
        self.reconciler.follow_without_round(&newest)
    }
}

/// Makes rounds until nothing more can be done now, or until `last` makes the running one the last. Returns when to make the next
/// one. `interrupt` ends the running one early.
async fn consecutive_rounds<D: Docker, S: CommitSource>(
    reconciler: &mut Reconciler<D, S>,
    interrupt: &Interrupt,
    last: &CancellationToken,
) -> Next {
    for _ in 0..MAX_CONSECUTIVE_ROUNDS {
        match reconciler.round(interrupt).await {
            Next::Round if !last.is_cancelled() => {}
            Next::Round => return Next::Sleep(None),
            next @ (Next::Sleep(_) | Next::BackOff(_)) => return next,
        }
    }
    tracing::warn!(
        rounds = MAX_CONSECUTIVE_ROUNDS,
        "too many rounds without a pause; the application pauses"
    );
    Next::Sleep(Some(reconciler.now().after(PAUSE_AFTER_TOO_MANY)))
}
