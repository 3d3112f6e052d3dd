//! The part of an application that requests read and change.

use std::sync::Arc;

use driftless_model::{Actor, AppName, EventKind, Record, WorkloadName};

use crate::{
    context::AppContext,
    desired::Desired,
    mounts::Mounts,
    observe::Observer,
    publish::Publisher,
    record::StoredRecord,
    repository::RepositoryLink,
    request::RequestError,
    revisions::{Revisions, target::TargetRevision},
    state_loss::Loss,
};

/// The advice about an application that has left Git.
pub(super) fn not_in_git(app: &AppName) -> String {
    format!(
        "{app} is not in Git any more: remove it with `driftless remove {app}`, let it run without the agent with \
         `driftless forget {app}`, or restore it in Git"
    )
}

/// Why nothing of an application is changed that its settings suspend, and the way out.
pub(super) fn suspended_by_settings(app: &AppName) -> String {
    format!("{app} is suspended by its settings, so nothing is changed: set `suspend: false` there")
}

/// Why nothing is changed after a restore, and the way out if Git cannot be read without what is down.
pub(super) fn awaits_git(name: &AppName) -> String {
    format!(
        "a backup was restored, and nothing of {name} is changed until its repository is read; if that needs {name}, \
         `driftless history {name}` and `driftless rollback {name} REVISION` start what the backup has"
    )
}

/// The parts of an application that requests read and change.
pub(crate) struct RequestHandler<'a, D, S> {
    pub(crate) context: &'a AppContext,
    /// The actor that asks.
    pub(crate) actor: &'a Actor,
    pub(crate) repository: Option<&'a RepositoryLink<S>>,
    pub(crate) desired: &'a Arc<Desired>,
    pub(crate) revisions: &'a mut Revisions,
    pub(crate) record: &'a mut StoredRecord,
    pub(crate) publisher: &'a mut Publisher,
    pub(crate) observer: &'a mut Observer<D>,
    pub(crate) mounts: &'a mut Mounts,
}

impl<D, S> RequestHandler<'_, D, S> {
    /// Writes an event about the request, with its actor.
    pub(super) fn event(&self, reason: &str, object: &str, message: &str) {
        self.context.event_by(self.actor, EventKind::Normal, reason, object, message);
    }

    /// The target, if there is one.
    pub(super) fn target(&mut self) -> Result<TargetRevision, RequestError> {
        let target = self.revisions.target(self.context, self.desired, self.record.get())?;
        target.ok_or_else(|| self.nothing_to_apply())
    }

    pub(super) fn nothing_to_apply(&self) -> RequestError {
        let name = self.context.name();
        RequestError::Refused(format!("{name} has nothing to apply: {}", self.desired.why_nothing(name)))
    }

    /// The target, unless the application is suspended.
    pub(super) fn active_target(&mut self) -> Result<TargetRevision, RequestError> {
        let target = self.target()?;
        self.refuse_inactive(&target)?;
        Ok(target)
    }

    /// Refuses a request about a target that is not acted on.
    pub(super) fn refuse_inactive(&self, target: &TargetRevision) -> Result<(), RequestError> {
        let is_left = self.desired.is_gone() && target.pin.is_none();
        let is_on_other_engine = self.revisions.lost().is_some_and(Loss::is_of_engine);
        if is_left || is_on_other_engine || target.unconfirmed.is_some() {
            self.refuse_after_loss()?;
        }
        if is_left {
            return Err(RequestError::Refused(not_in_git(self.context.name())));
        }
        if target.policy.suspended {
            let name = self.context.name();
            return Err(RequestError::Refused(if self.desired.rendered().policy.suspended {
                suspended_by_settings(name)
            } else if self.revisions.awaits_fetch(self.desired) {
                awaits_git(name)
            } else {
                format!("{name} is suspended, so nothing is changed; `driftless resume {name}` ends that")
            }));
        }
        Ok(())
    }

    /// Refuses a request while state is lost, and names the way out.
    pub(super) fn refuse_after_loss(&self) -> Result<(), RequestError> {
        let Some(loss) = self.revisions.lost() else { return Ok(()) };
        let (name, has_revisions) = (self.context.name(), self.revisions.current().is_some());
        Err(RequestError::Refused(match loss {
            Loss::Records(_) => format!("state of {name} was lost; {}", loss.advice(name, has_revisions)),
            Loss::EngineData(_) => loss.message(name, has_revisions),
        }))
    }

    /// Refuses a request about an application that may still be in Git, with the consequence that it would have.
    pub(super) fn refuse_unless_gone(&self, consequence: &str) -> Result<(), RequestError> {
        let name = self.context.name();
        if self.revisions.lost().is_some_and(Loss::is_of_engine) {
            self.refuse_after_loss()?;
        } else if self.revisions.lost().is_some() {
            return Err(RequestError::Refused(format!(
                "the state directory was lost, so it is not known what belongs to {name}: run `driftless recover` first"
            )));
        }
        if let Some(error) = self.desired.doubt() {
            return Err(RequestError::Refused(format!(
                "it is not known whether {name} has left Git, so it is kept: {error}"
            )));
        }
        if !self.desired.may_be_removed() {
            let rendered = self.desired.rendered();
            return Err(RequestError::Refused(format!(
                "{name} is in Git (folder `{}` of the repository {}), so {consequence}",
                rendered.spec.path, rendered.repository
            )));
        }
        Ok(())
    }

    /// Stores a changed record. What the rounds then change is no drift.
    pub(super) fn accept(&mut self, mut record: Record) -> Result<(), RequestError> {
        (record.settled, record.reopened) = (None, None);
        self.store(record)
    }

    /// Stores a record that is changed for some workloads. What the rounds then change of these is no drift.
    pub(super) fn accept_for(
        &mut self,
        workloads: impl IntoIterator<Item = WorkloadName>,
        mut record: Record,
    ) -> Result<(), RequestError> {
        record.reopen(workloads);
        self.store(record)
    }

    /// Stores a changed record. All that differs stays drift.
    pub(super) fn store(&mut self, record: Record) -> Result<(), RequestError> {
        self.record.replace(self.context, record)?;
        self.publisher.publish_request(self.context);
        Ok(())
    }
}
