//! Volumes and folders of the host that services of several applications write to at the same time.

use std::collections::BTreeSet;

use driftless_model::{Instance, Observed, Record, SharedPlace};

use crate::{
    facts::places::{is_job_of, places, written_place},
    target::Target,
};

/// Once the desired stack is reached: remembers which places other applications write to as well. Git may not say so any more when
/// the application goes back to an older revision.
pub(crate) fn note(record: &mut Record, target: &Target<'_>, observed: &Observed) {
    let claims = &observed.claims;
    let Some(applications) = claims.applications.as_deref() else { return };
    record.shared_places.retain(|shared| !applications.is_gone(&shared.with));
    let is_service = |container: &&Instance| {
        let workload = target.stack.workloads.get(&container.instance.workload.whole());
        container.is_running() && workload.is_some_and(|workload| workload.job_or_template().is_none())
    };
    let own: BTreeSet<String> =
        observed.containers().filter(is_service).flat_map(|container| places(&container.config)).collect();
    if own.is_empty() {
        return;
    }
    for (container, owner) in claims.mounting().filter(|(container, _)| container.is_up) {
        let Some(owner) = owner.filter(|_| claims.is_of_agent(container, target.agent)) else { continue };
        if applications.stacks.get(owner).is_some_and(|stack| is_job_of(stack, &container.workload)) {
            continue;
        }
        let is_shared = |place: &String| own.contains(place);
        for mount in
            container.mounts.iter().filter(|mount| written_place(mount).as_ref().is_some_and(is_shared))
        {
            let shared = SharedPlace { source: mount.source.clone(), with: owner.clone() };
            record.shared_places.insert(shared);
        }
    }
}
