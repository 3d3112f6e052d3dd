//! Defects of the agent that end one of its tasks: a panic, which no other task notices.
//!
//! The containers run on, and all that a task remembers is in the database. So the task of an application or a repository begins again
//! after a pause, as after a restart of the agent. A task that all others depend on ends the agent, which is then started again as a whole.

use std::{future::Future, panic::AssertUnwindSafe, sync::Arc, time::Duration};

use futures_util::FutureExt;
use tokio::{sync::watch, time::sleep};
use tokio_util::sync::CancellationToken;

use driftless_model::{AppName, EventKind, HealthStatus};

use crate::{
    context::{AppContext, Services},
    handle::Applications,
};

/// The pause after a defect. A defect that comes again and again must not keep the host busy.
pub(crate) const PAUSE: Duration = Duration::from_mins(1);

/// The sentence about a defect in status, event and log. `what` is `application` or `repository`.
pub(crate) fn message(what: &str) -> String {
    format!(
        "a defect of the agent has interrupted the work on the {what}, which begins again within a minute; what runs, runs on: please report the lines of the agent's log that begin with `thread`"
    )
}

/// Runs a task. True: a defect has ended it, and the log has the panic. The task must own all that it changes.
pub(crate) async fn interrupts(task: impl Future<Output = ()>) -> bool {
    AssertUnwindSafe(task).catch_unwind().await.is_err()
}

/// Runs a task that the agent cannot work without. If it ends while the agent should run, `stop` is cancelled: the process ends with an
/// error, and systemd or Docker starts it again. A deaf agent that seems to live is worse.
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

/// Runs the task of an application. If a defect ends it, status and event say so, and `ended` is cancelled after a pause.
pub(crate) async fn survive(
    task: impl Future<Output = ()>,
    name: AppName,
    services: Arc<Services>,
    applications: watch::Sender<Applications>,
    stop: CancellationToken,
    ended: CancellationToken,
) {
    if !interrupts(task).await {
        return;
    }
    // The words of a panic may contain a value. They are in the log already.
    let message = message("application");
    tracing::error!(app = %name, "{message}");
    AppContext::new(name.clone(), Arc::clone(&services)).event(
        EventKind::Warning,
        "Interrupted",
        name.as_str(),
        &message,
    );
    applications.send_modify(|all| {
        let Some(before) = all.get(&name) else { return };
        let mut application = driftless_model::Application::clone(before);
        application.status.health = HealthStatus::Unknown;
        message.clone_into(&mut application.status.message);
        application.status.operation = None;
        Arc::make_mut(all).insert(name.clone(), Arc::new(application));
    });
    tokio::select! {
        () = stop.cancelled() => {}
        () = sleep(PAUSE) => {
            ended.cancel();
            services.changed.notify_one();
        }
    }
}
