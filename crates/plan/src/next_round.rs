//! The plan of the next round, on one host or on a Swarm.

use driftless_model::{Observed, Record, Timestamp};

use crate::{
    decide::plan_on_host,
    draft::Draft,
    facts::{Facts, jobs::as_desired, pods},
    steps::Plan,
    swarm,
    target::Target,
};

/// Plans the next round: the steps that are safe now, given the target, the observed state, the record and the time.
/// The same inputs give the same plan.
pub fn plan(target: &Target<'_>, observed: &Observed, record: &Record, now: Timestamp) -> Plan {
    let observed = &*as_desired(target.stack, target.hashes, record, observed);
    let observed = &*pods::whole_of(target, observed);
    let facts = Facts::new(target, observed, record, now);
    if swarm::is_for(&facts) {
        return swarm::plan(&facts);
    }
    let mut draft = Draft::new(&facts);
    if swarm::hold_for_swarm(&mut draft) {
        return draft.finish();
    }
    plan_on_host(draft)
}
