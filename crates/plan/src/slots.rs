//! Which slot, and so which name, a new instance gets.
//!
//! It knows nothing of why one is made.

use std::collections::BTreeSet;

use driftless_model::{Instance, State, WorkloadName};

use super::round::Round;

/// Hands out free slots: those that were in use when all was well first, then those that became free in this
/// round, then the lowest.
pub(super) struct Slots {
    taken: BTreeSet<u32>,
    preferred: Vec<u32>,
}

impl Slots {
    pub(super) fn new(round: &Round<'_>, name: &WorkloadName, current: &[&Instance]) -> Self {
        // Who is being removed at this moment leaves its slot to its successor, which waits for the name.
        let of_workload = round
            .observed
            .instances
            .values()
            .filter(|it| it.instance.workload == *name && it.state != State::Removing);
        let staying = of_workload.filter(|it| !round.removed.contains_key(&it.id));
        let taken = staying.chain(current.iter().copied()).map(|it| it.instance.slot).collect();
        let remembered = if round.is_settled() { round.record.slots.get(name) } else { None };
        Self { taken, preferred: remembered.into_iter().flatten().copied().collect() }
    }

    pub(super) fn prefer(&mut self, slot: u32) {
        self.preferred.push(slot);
    }

    pub(super) fn take(&mut self, slot: u32) -> u32 {
        if self.taken.insert(slot) { slot } else { self.next() }
    }

    pub(super) fn next(&mut self) -> u32 {
        let free = |it: &u32| !self.taken.contains(it);
        let slot = self
            .preferred
            .iter()
            .copied()
            .find(free)
            .or_else(|| (1..u32::MAX).find(free))
            .unwrap_or(u32::MAX);
        self.taken.insert(slot);
        slot
    }
}
