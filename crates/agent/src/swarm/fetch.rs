//! The fetches of an agent of a Swarm, in comparison with the agents on the other managers.
//!
//! Another agent may have applied a newer commit than this one has fetched. If this agent's node then becomes the leader, it would
//! go back to the older commit. So it writes nothing before it has fetched once more. A pinned revision needs no fetch: a user
//! has named its commit.

use driftless_model::{AppliedRevision, CommitId, Observed};

use crate::{
    context::AppContext,
    desired::Desired,
    record::StoredRecord,
    revisions::target::TargetRevision,
    ticket::{Need, Tickets},
};

/// The fetches of one agent, in comparison with what others have applied.
pub(crate) struct SwarmFetch {
    tickets: Tickets,
    /// The revision of another agent, with the number that a fetch has to cover that began after it was seen.
    seen: Option<(AppliedRevision, u64)>,
}

impl SwarmFetch {
    pub(crate) fn new(tickets: Tickets) -> Self {
        Self { tickets, seen: None }
    }

    /// Notes in the record which commit of another agent this one has yet to fetch, if there is one. True: a fetch must be
    /// asked for.
    pub(crate) fn compare(
        &mut self,
        context: &AppContext,
        desired: &Desired,
        target: &TargetRevision,
        observed: &Observed,
        record: &mut StoredRecord,
    ) -> bool {
        let Some(swarm) = observed.swarm.as_deref() else { return false };
        let state = swarm.shared.as_ref().and_then(|shared| shared.state.as_ref());
        let applied = state.and_then(|state| state.applied.as_ref());
        let is_other = |applied: &&AppliedRevision| applied.by != *context.agent();
        let (unfetched, asks) = match applied.filter(is_other) {
            None => (None, false),
            Some(applied) => self.unfetched(applied, desired, target),
        };
        if record.get().swarm.as_ref().and_then(|kept| kept.unfetched.as_ref()) != unfetched.as_ref() {
            record.get_mut().swarm.get_or_insert_default().unfetched = unfetched;
        }
        asks
    }

    /// The commit of another agent, unless this agent knows it or has fetched after it saw it; and whether it sees it for the
    /// first time.
    fn unfetched(
        &mut self,
        applied: &AppliedRevision,
        desired: &Desired,
        target: &TargetRevision,
    ) -> (Option<CommitId>, bool) {
        let known = self.seen.as_ref().filter(|(seen, _)| seen == applied).map(|(_, number)| *number);
        let number = known.unwrap_or_else(|| self.tickets.next(Need::FetchAndRound).number);
        self.seen = Some((applied.clone(), number));
        let is_same = applied.stack == target.hash || applied.commit == target.commit.id;
        if is_same || !target.is_newest() || desired.repository().covers >= number {
            return (None, false);
        }
        (Some(applied.commit.clone()), known.is_none())
    }
}
