//! Shares the state of an application with the agents on the other managers of a Swarm, through an action on the engine.

use driftless_docker as docker;
use driftless_docker::Docker;
use driftless_model::Observed;
use driftless_plan::Action;
use driftless_store as store;

use super::state::{self, Agreement};
use crate::{context::AppContext, error::chain, record::StoredRecord, revisions::target::TargetRevision};

/// Whether the agents on all managers of a Swarm have the same state of an application.
pub(crate) enum Agreed {
    /// They have, or there is no Swarm.
    Reached,
    /// This agent has taken the state of the Swarm, or another one has changed it since it was observed: the target must be
    /// chosen again, and nothing done that follows from the state before.
    Taken,
    /// The Swarm has not taken the state of this agent.
    Unshared,
}

/// The agreement of one agent with those on the other managers about an application.
#[derive(Default)]
pub(crate) struct ManagerAgreement {
    /// Whether the last attempt to share the state came too late.
    is_overtaken: bool,
}

impl ManagerAgreement {
    /// Agrees about pins, suspensions, failed updates and the revision that was applied.
    pub(crate) async fn reach<D: Docker>(
        &mut self,
        context: &AppContext,
        docker: &D,
        target: &TargetRevision,
        observed: &Observed,
        record: &mut StoredRecord,
    ) -> Result<Agreed, store::Error> {
        let (action, state) = match state::agree(context, target, observed, record)? {
            Agreement::Reached => {
                self.is_overtaken = false;
                return Ok(Agreed::Reached);
            }
            Agreement::Taken => return Ok(Agreed::Taken),
            Agreement::Share(action, state) => (Action::Swarm(action), state),
        };
        let shared = docker.perform(context.name(), &action, &|_| {}).await;
        match shared {
            Ok(_) => {
                state::note_agreed(context, record, *state);
                self.is_overtaken = false;
                Ok(Agreed::Reached)
            }
            // Once in a row: a config of somebody else may have its name.
            Err(docker::Error::Refused { .. }) if !std::mem::replace(&mut self.is_overtaken, true) => {
                Ok(Agreed::Taken)
            }
            // The state stays this agent's own until the Swarm has it.
            Err(error) => {
                tracing::warn!(app = %context.name(), error = chain(&error), "could not share pins, suspensions, numbers of tasks and the applied commit with the agents on other managers; trying again");
                Ok(Agreed::Unshared)
            }
        }
    }
}
