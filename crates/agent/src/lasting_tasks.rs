//! Tasks that last as long as the agent, and the panics that end them, which no other task notices.
//!
//! Nothing is lost with the agent: what runs, runs on, and all that it remembers is in the database. So a defect in one of these tasks ends
//! the agent, which systemd or Docker starts again as a whole. A deaf agent that seems to live is worse.

use std::{future::Future, panic::AssertUnwindSafe, time::Duration};

use futures_util::FutureExt;
use tokio::time::sleep;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

/// The pause after a defect. A defect that comes again and again must not keep the host busy.
pub(crate) const PAUSE: Duration = Duration::from_mins(1);

/// The time from a defect in a side task to the end of the agent. The same defect may come after each start, and a build or the pull of a
/// large layer, which begins from zero then, needs its time.
const TIME_TO_END: Duration = Duration::from_hours(1);

/// Runs a task. True: a defect has ended it, and the log has the panic. The task must own all that it changes.
pub(crate) async fn interrupts(task: impl Future<Output = ()>) -> bool {
    AssertUnwindSafe(task).catch_unwind().await.is_err()
}

/// Runs a task that the agent cannot work without. If it ends while the agent should run, `stop` is cancelled: the process ends with an
/// error, and systemd or Docker starts it again.
pub(crate) async fn ends_agent(name: &'static str, task: impl Future<Output = ()>, stop: CancellationToken) {
    interrupts(task).await;
    if stop.is_cancelled() {
        return;
    }
    tracing::error!(
        task = name,
        "a defect has ended a task that the agent cannot work without, so the agent ends; what runs, runs on: please report the lines of the agent's log that begin with `thread`"
    );
    stop.cancel();
}

/// Starts any other task that lasts as long as the agent, such as one that sends notifications. It may end by itself. If a defect ends it,
/// the agent ends after an hour, in which it goes on with the applications.
pub(crate) fn start(
    name: &'static str,
    (stop, tasks): (CancellationToken, &TaskTracker),
    task: impl Future<Output = ()> + Send + 'static,
) {
    tasks.spawn(async move {
        if !interrupts(task).await || stop.is_cancelled() {
            return;
        }
        tracing::error!(
            task = name,
            "a defect has ended a task of the agent, so the agent ends in an hour, to be started again; what runs, runs on: please report the lines of the agent's log that begin with `thread`"
        );
        tokio::select! {
            () = stop.cancelled() => {}
            () = sleep(TIME_TO_END) => stop.cancel(),
        }
    });
}

#[cfg(test)]
mod tests {
    use std::future::{poll_fn, ready};

    use tokio::time::Instant;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn defect_in_a_lasting_task_ends_the_agent_after_an_hour() {
        let (stop, tasks) = (CancellationToken::new(), TaskTracker::new());
        start("images", (stop.clone(), &tasks), ready(()));
        sleep(2 * TIME_TO_END).await;
        assert!(!stop.is_cancelled(), "it has ended by itself");
        let began = Instant::now();
        start("incidents", (stop.clone(), &tasks), poll_fn(|_| panic!("a defect")));
        stop.cancelled().await;
        assert!(began.elapsed() >= TIME_TO_END, "a build has its time: {:?}", began.elapsed());
    }
}
