//! Since when containers with a health check are healthy. The engine keeps only the last results of a check, so the record remembers it.

use driftless_model::{Health, Instance, KnownHealth, Observed, Readiness, Record, State};

/// Says since when containers are healthy where the engine does not know it any more. One that no round has seen before, because it is
/// adopted or the agent has no record of its health, counts from its start.
pub fn recall_health(record: &Record, observed: &mut Observed) {
    let Observed { instances, parts, .. } = observed;
    for instance in instances.values_mut().chain(parts.values_mut()).filter(|it| it.healthy_before) {
        instance.healthy_before = false;
        let Readiness::Ready { since } = &mut instance.readiness else { continue };
        let known = match record.health.get(&instance.id) {
            None => instance.started,
            Some(known) => known.since.filter(|_| known.started == instance.started),
        };
        *since = known.unwrap_or(*since);
    }
}

/// Notes the health of the containers with a health check.
pub(crate) fn note(record: &mut Record, observed: &Observed) {
    let checked = observed.containers().filter(|it| it.config.healthcheck.is_some());
    record.health = checked.map(|it| (it.id.clone(), health(it))).collect();
}

fn health(instance: &Instance) -> KnownHealth {
    let since = match (&instance.state, &instance.readiness) {
        (State::Running { health: Health::Healthy, .. }, Readiness::Ready { since }) => Some(*since),
        _ => None,
    };
    KnownHealth { started: instance.started, since }
}
