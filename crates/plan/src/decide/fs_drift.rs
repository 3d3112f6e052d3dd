//! Filesystem drift: reported or reverted, as the policy says.

use driftless_model::{Author, FilesystemDrift, Instance, WorkloadName};

use crate::{
    cause::Cause,
    draft::{Draft, heal::Difference},
    facts::fs_changes::{FIELD, NAMED, by, shown, shown_by_visitors},
    wait::Wait,
};

/// Reports what somebody changed in an instance. `Some(cause)`: it is replaced for that.
pub(crate) fn revert(draft: &mut Draft<'_>, name: &WorkloadName, instance: &Instance) -> Option<Cause> {
    let difference = difference(draft, name, instance)?;
    match draft.facts.target.policy.filesystem_drift {
        FilesystemDrift::Off => None,
        FilesystemDrift::Report => {
            draft.report(difference);
            None
        }
        FilesystemDrift::Revert => draft.heal(difference),
    }
}

/// Reports what somebody changed in an instance that is not replaced for that.
pub(crate) fn report(draft: &mut Draft<'_>, name: &WorkloadName, instance: &Instance) {
    let is_on = draft.facts.target.policy.filesystem_drift != FilesystemDrift::Off;
    if let Some(difference) = difference(draft, name, instance).filter(|_| is_on) {
        draft.report(difference);
    }
}

fn difference(draft: &Draft<'_>, name: &WorkloadName, instance: &Instance) -> Option<Difference> {
    let (want, found) = shown_by_visitors(draft.facts.observed, draft.facts.record, instance)?;
    let visits = draft.facts.record.inside.get(&instance.id).map(|it| &it.visits);
    let first = visits.and_then(|it| it.first()).map(|it| it.from);
    Some(Difference::container(&instance.name, FIELD, want, found).of(name).since(first))
}

/// Says what an instance writes into itself, which is lost when it is replaced.
pub(crate) fn remark(draft: &mut Draft<'_>, instance: &Instance) {
    let own = by(draft.facts.observed, draft.facts.record, instance, Author::Itself);
    let files = draft.facts.observed.inside.get(&instance.id).and_then(|it| it.files.as_ref());
    let is_cut = files.is_some_and(|it| it.is_cut);
    if draft.facts.target.policy.filesystem_drift == FilesystemDrift::Off || (own.is_empty() && !is_cut) {
        return;
    }
    let named: Vec<String> = own.iter().take(NAMED).map(|it| shown(it.0)).collect();
    draft.wait(Wait::writes_inside(&instance.name, &named, own.len().saturating_sub(NAMED), is_cut));
}
