//! A loss of state: the database was lost or damaged, and a pin or a suspension may be lost with it. Until a user confirms
//! the loss with `driftless recover`, no new commit is applied.

use driftless_model::{Adopted, AppName, EventKind, Instance, Observed};
use driftless_store as store;

use crate::context::AppContext;

/// Whether state was lost, as one application knows it.
#[derive(Default)]
pub(crate) struct StateLoss {
    /// A sentence about the loss, until a user has confirmed it.
    lost: Option<String>,
    /// The engine was observed since the start.
    was_observed: bool,
}

impl StateLoss {
    /// A sentence about the loss, if state was lost.
    pub(crate) fn lost(&self) -> Option<&str> {
        self.lost.as_deref()
    }

    /// Reads whether state was lost, and reports it once.
    pub(crate) fn read(&mut self, context: &AppContext) -> Result<(), store::Error> {
        let lost = context.store().loss()?;
        let name = context.name();
        match (&self.lost, &lost) {
            (None, Some(what)) => {
                tracing::warn!(app = %name, what, "state was lost; no new commit is applied until `driftless recover`");
                let has_revisions = context.store().current(name)?.is_some();
                let message = format!("{}: {what}", loss_advice(name, has_revisions));
                context.event(EventKind::Warning, "StateLost", name.as_str(), &message);
            }
            (Some(_), None) => {
                let message = "new commits are applied again";
                context.event(EventKind::Normal, "Recovered", name.as_str(), message);
            }
            (None, None) | (Some(_), Some(_)) => {}
        }
        self.lost = lost;
        Ok(())
    }

    /// Detects a loss in the first observation: the agent has containers of an application of which the state directory
    /// knows neither a revision (a suspended one may have none) nor that a user has confirmed the loss. An adopted container is
    /// the agent's because the state directory says so. True: the target must be chosen again.
    pub(crate) fn detect(
        &mut self,
        context: &AppContext,
        is_known: bool,
        adopted: &Adopted,
        observed: &Observed,
    ) -> Result<bool, store::Error> {
        let was_observed = std::mem::replace(&mut self.was_observed, true);
        // The services of a Swarm may be the work of the agent on another manager.
        let is_shared = observed.swarm.is_some();
        if is_known || is_shared || was_observed || context.ownership().is_confirmed() || self.lost.is_some()
        {
            return Ok(false);
        }
        let is_own = |instance: &&Instance| {
            instance.agent == *context.agent() && !adopted.containers.contains_key(&instance.id)
        };
        let Some(found) = observed.instances.values().find(is_own) else {
            return Ok(false);
        };
        if context.store().is_loss_confirmed()? {
            return Ok(false);
        }
        let what = format!("the state directory knows nothing of the container {}", found.name);
        context.store().note_loss(&what)?;
        // The other applications and `/readyz` report it, too.
        context.wake_all();
        Ok(true)
    }
}

/// The behaviour of an application after a loss of state, and how a user ends it. Without a revision there is nothing to roll
/// back to.
pub(crate) fn loss_advice(app: &AppName, has_revisions: bool) -> String {
    let rollback = if has_revisions { format!("`driftless rollback {app}` or ") } else { String::new() };
    format!(
        "pins and suspensions may be lost, so no new commit is applied: set them again with {rollback}`driftless suspend {app}`, then run `driftless recover`"
    )
}
