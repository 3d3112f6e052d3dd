//! Updating the container that the agent runs in. The agent cannot start its own successor, so a helper container does it:
//! see [`Action::ReplaceAgent`].

use driftless_model::{Instance, Subject};

use crate::{
    action::{Action, AgentReplacement},
    cause::Cause,
    decide::preconditions::{self, Preconditions},
    draft::Draft,
    facts::update_failures::progress_deadline,
    wait::Wait,
};

/// Replaces the agent's own container if it is outdated, and removes the remains of an interrupted update.
pub(crate) fn replace_agent(draft: &mut Draft<'_>, subject: Subject<'_>, own: &Instance) {
    let Subject { name, workload } = subject;
    let facts = draft.facts;
    let spec = facts.spec(subject);
    let is_outdated = own.spec != spec;
    match facts.observed.own_update {
        Some(helper) if helper.is_running => {
            draft.wait(Wait::own_update(&own.name, name));
            return;
        }
        // A helper that somebody stopped goes on where it was.
        Some(_) => {}
        None if is_outdated => {}
        None => {
            for left in &facts.instances.stand_ins {
                let cause = Cause::Finished { reason: "the agent was updated".to_owned() };
                draft.remove(left, &cause, &[]);
            }
            return;
        }
    }
    let failed = facts.record.failed_own_update.as_ref().filter(|failed| is_outdated && failed.spec == spec);
    if let Some(failed) = failed {
        draft.wait(Wait::own_update_failed(&own.name, name, &facts.target.stack.app, failed));
        return;
    }
    let Preconditions::Met(after) = preconditions::check(draft, subject) else { return };
    let creation = draft.creation(subject, own.instance.slot, own.anonymous_volumes.clone());
    let (cause, container) = (Cause::SpecChanged, own.into());
    let files = &workload.in_place;
    let after = match draft.write_files(files, &own.instance, container, &cause, after.clone()) {
        Some(written) => vec![written],
        None => after,
    };
    let deadline = progress_deadline(facts.target.policy, workload);
    let replacement = AgentReplacement { old: own.into(), creation, deadline };
    draft.push(Action::ReplaceAgent(Box::new(replacement)), cause, after);
}
