//! Defects of the agent that end the task of an application or a repository: a panic, which no other task notices.
//!
//! The containers run on, and all that a task remembers is in the database. So the task begins again after a pause, as after a restart of
//! the agent. A defect in another task ends the agent: [`crate::lasting_tasks`].

use std::{future::Future, sync::Arc};

use tokio::{sync::watch, time::sleep};
use tokio_util::sync::CancellationToken;

use driftless_model::{AppName, Application, ApplicationStatus, EventKind, HealthStatus};

use crate::{
    context::{AppContext, Services},
    desired::Desired,
    handle::Applications,
    lasting_tasks::{PAUSE, interrupts},
    unpublished::Unpublished,
};

/// The sentence about a defect in status, event and log. `what` is `application` or `repository`.
pub(crate) fn message(what: &str) -> String {
    format!(
        "a defect of the agent has interrupted the work on the {what}, which begins again within a minute; what runs, runs on: please report the lines of the agent's log that begin with `thread`"
    )
}

/// The published status of an application, as a defect of its task changes it.
pub(crate) struct Publication {
    pub(crate) applications: watch::Sender<Applications>,
    /// The applications that are not published yet.
    pub(crate) unpublished: Unpublished,
    pub(crate) desired: watch::Receiver<Arc<Desired>>,
}

impl Publication {
    /// Publishes the sentence about a defect, also of an application that had no round before it. One that was removed does not come
    /// back with it.
    fn publish_defect(&self, name: &AppName, message: &str) {
        let desired = Arc::clone(&self.desired.borrow());
        let was_removed = desired.may_be_removed() && self.unpublished.repository_of(name).is_none();
        let stand_in = || Application {
            name: name.clone(),
            spec: desired.rendered().shown(desired.rendered().policy.clone()),
            generation: 0,
            status: ApplicationStatus::default(),
        };
        self.applications.send_modify(|all| {
            let before = all.get(name).cloned().map(Arc::unwrap_or_clone);
            let Some(mut application) = before.or_else(|| (!was_removed).then(stand_in)) else { return };
            application.status.health = HealthStatus::Unknown;
            message.clone_into(&mut application.status.message);
            application.status.operation = None;
            Arc::make_mut(all).insert(name.clone(), Arc::new(application));
        });
        self.unpublished.remove(name);
    }
}

/// Runs the task of an application. If a defect ends it, status and event say so, and `ended` is cancelled after a pause.
pub(crate) async fn survive(
    task: impl Future<Output = ()>,
    name: AppName,
    services: Arc<Services>,
    publication: Publication,
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
    publication.publish_defect(&name, &message);
    tokio::select! {
        () = stop.cancelled() => {}
        () = sleep(PAUSE) => {
            ended.cancel();
            services.changed.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use driftless_model::Policy;

    use super::*;
    use crate::desired::tests::{present, stack};

    #[test]
    fn defect_in_the_first_round_is_published() {
        let name = AppName::from("shop");
        let in_git = present("a", &stack("shop"), Policy::default());
        let left = Desired::gone(Arc::new(in_git.rendered().clone()), Arc::default());
        let published = |desired: &Desired, was_known: bool| {
            let unpublished = Unpublished::default();
            if was_known {
                unpublished.add(name.clone(), "infra".to_owned());
            }
            let (applications, receiver) = watch::channel(Applications::default());
            let (_sender, desired) = watch::channel(Arc::new(desired.clone()));
            let publication = Publication { applications, unpublished, desired };
            publication.publish_defect(&name, "a defect");
            assert!(publication.unpublished.repository_of(&name).is_none());
            receiver.borrow().get(&name).map(|found| found.status.message.clone())
        };
        let message = Some("a defect".to_owned());
        assert_eq!(published(&in_git, true), message);
        assert_eq!(published(&in_git, false), message);
        assert_eq!(published(&left, true), message);
        assert_eq!(published(&left, false), None, "it was removed");
    }
}
