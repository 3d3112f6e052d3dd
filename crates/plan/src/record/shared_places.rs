//! Volumes and folders of the host that services of several applications write to at the same time.

use std::collections::{BTreeMap, BTreeSet};

use driftless_model::{
    Instance, Observed, Record, SharedPlace, SharingServices, Stack, Workload, WorkloadName,
};

use crate::{
    facts::places::{Place, places, written_place},
    target::Target,
};

/// Once the desired stack is reached: remembers which places services of other applications write to as well. Git may not say so any more
/// when the application goes back to an older revision.
pub(crate) fn note(record: &mut Record, target: &Target<'_>, observed: &Observed) {
    let claims = &observed.claims;
    let Some(applications) = claims.applications.as_deref() else { return };
    record.shared_places.retain(|shared| !applications.is_gone(&shared.with));
    let own_places = own_writers(target.stack, observed);
    if own_places.is_empty() {
        return;
    }
    for (container, owner) in claims.mounting().filter(|(container, _)| container.is_up) {
        let Some(owner) = owner.filter(|_| claims.is_of_agent(container, target.agent)) else { continue };
        // One that Git does not have is about to end.
        let Some(stack) = applications.stacks.get(owner) else { continue };
        let other = container.workload.whole();
        // A container that was adopted by its name has no service.
        if !other.as_str().is_empty() && !is_service(stack, &other) {
            continue;
        }
        for mount in &container.mounts {
            let writers = written_place(mount).and_then(|place| own_places.get(&place));
            for own in writers.into_iter().flatten() {
                let services = SharingServices { own: own.clone(), other: other.clone() };
                let of_older_agent =
                    SharedPlace { source: mount.source.clone(), with: owner.clone(), services: None };
                record.shared_places.remove(&of_older_agent);
                record.shared_places.insert(SharedPlace { services: Some(services), ..of_older_agent });
            }
        }
    }
}

/// The services of the application that run, by the places that they write to.
fn own_writers(stack: &Stack, observed: &Observed) -> BTreeMap<Place, BTreeSet<WorkloadName>> {
    let mut own: BTreeMap<Place, BTreeSet<WorkloadName>> = BTreeMap::new();
    for container in observed.containers().filter(|container| container.is_running()) {
        let Instance { instance, config, .. } = container;
        let name = instance.workload.whole();
        if is_service(stack, &name) {
            for place in places(config) {
                own.entry(place).or_default().insert(name.clone());
            }
        }
    }
    own
}

fn is_service(stack: &Stack, name: &WorkloadName) -> bool {
    let is_service = |workload: &Workload| workload.job_or_template().is_none();
    stack.workloads.get(name).is_some_and(is_service)
}
