//! Creating one instance, with the volumes that its predecessor left.

use std::collections::BTreeMap;

use driftless_model::{InstanceId, Subject, WorkloadName};

use crate::{
    cause::Cause,
    draft::{Draft, heal::Difference, instances::NewInstance},
};

/// Anonymous volumes of a removed instance whose successor was not created, because the agent ended in between.
fn left_volumes(draft: &mut Draft<'_>, name: &WorkloadName, slot: u32) -> BTreeMap<String, String> {
    let of = |slot: u32| InstanceId { workload: name.clone(), slot }.to_string();
    let is_left = |key: &String| {
        draft.facts.record.volumes_to_inherit.contains_key(key) && !draft.inherited.contains(key)
    };
    // Its own slot's first, or else any that nobody took: the successor may have got another number.
    let is_of_workload = |key: &&String| key.rsplit_once('.').is_some_and(|(it, _)| it == name.as_str());
    let own = Some(of(slot)).filter(is_left);
    let any = || {
        draft.facts.record.volumes_to_inherit.keys().filter(is_of_workload).find(|it| is_left(it)).cloned()
    };
    let Some(key) = own.or_else(any) else { return BTreeMap::new() };
    let volumes = draft.facts.record.volumes_to_inherit.get(&key).cloned().unwrap_or_default();
    let is_held = |volume: &String| {
        draft
            .facts
            .observed
            .instances
            .values()
            .any(|it| it.anonymous_volumes.values().any(|held| held == volume))
    };
    if volumes.values().any(is_held) {
        return BTreeMap::new();
    }
    draft.inherited.insert(key);
    volumes
}

/// Why an instance is created for which nothing makes way. If the stack was reached before, its absence is drift. `None`: it is not
/// created now, and that is said.
pub(crate) fn cause_of_missing(draft: &mut Draft<'_>, subject: Subject<'_>, slot: u32) -> Option<Cause> {
    let name = subject.name;
    let object = draft.facts.container_name(draft.facts.stack_of(subject), name, slot);
    if draft.is_being_removed(&object) {
        return None;
    }
    if !draft.facts.is_at_rest(name) {
        return Some(Cause::Missing);
    }
    if draft.facts.heals() {
        // An instance that is not created needs no name.
        draft.claim_name(name, &object)?;
    }
    let cause = draft.heal(Difference::container(&object, "state", "running", "missing").of(name));
    if cause.is_none() && draft.plan.leaves_container_down(name, &object) {
        *draft.absent.entry(name.clone()).or_default() += 1;
    }
    cause
}

/// Creates one instance.
pub(crate) fn create(draft: &mut Draft<'_>, mut new: NewInstance<'_>) {
    let (subject, slot) = (new.subject, new.slot);
    let name = subject.name;
    let object = draft.facts.container_name(draft.facts.stack_of(subject), name, slot);
    if draft.is_being_removed(&object) {
        return;
    }
    let Some(steps) = draft.claim_name(name, &object) else { return };
    new.after.extend(steps);
    new.after.extend(draft.slot_freed(name, slot));
    if new.inherit.is_empty() {
        new.inherit = left_volumes(draft, name, slot);
    }
    draft.create(new);
}
