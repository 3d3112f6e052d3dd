//! Slots of new instances: the numbers in their names.

use std::collections::BTreeSet;

use driftless_model::{Instance, State, WorkloadName};

use crate::draft::Draft;

/// Free slots: first those that were in use when the target was last reached, then those that this plan frees, then the
/// lowest.
pub(crate) struct Slots {
    taken: BTreeSet<u32>,
    preferred: Vec<u32>,
}

impl Slots {
    pub(crate) fn new(draft: &Draft<'_>, name: &WorkloadName, current: &[&Instance]) -> Self {
        let facts = draft.facts;
        // An instance that the engine is removing leaves its slot to its successor, which waits for the name.
        let all = facts.observed.instances.values();
        let of_workload = all.filter(|it| it.instance.workload == *name && it.state != State::Removing);
        let staying = of_workload.filter(|it| !draft.removed.contains_key(&it.id));
        let taken = staying.chain(current.iter().copied()).map(|it| it.instance.slot).collect();
        let remembered = if facts.is_at_rest(name) { facts.record.slots.get(name) } else { None };
        Self { taken, preferred: remembered.into_iter().flatten().copied().collect() }
    }

    pub(crate) fn prefer(&mut self, slot: u32) {
        self.preferred.push(slot);
    }

    /// This slot if it is free, or else the next one.
    pub(crate) fn take(&mut self, slot: u32) -> u32 {
        if self.taken.insert(slot) { slot } else { self.next() }
    }

    pub(crate) fn next(&mut self) -> u32 {
        let free = |it: &u32| !self.taken.contains(it);
        let preferred = self.preferred.iter().copied().find(free);
        let slot = preferred.or_else(|| (1..u32::MAX).find(free)).unwrap_or(u32::MAX);
        self.taken.insert(slot);
        slot
    }
}
