//! Merges workloads that are one Kubernetes object, such as the pods of a StatefulSet.

use std::{borrow::Cow, collections::BTreeMap};

use driftless_model::{WorkloadName, WorkloadStatus};

/// All workloads by name; workloads of one object are merged under its name.
pub(super) fn of(
    workloads: &BTreeMap<WorkloadName, WorkloadStatus>,
) -> BTreeMap<&WorkloadName, Cow<'_, WorkloadStatus>> {
    let mut all: BTreeMap<&WorkloadName, Vec<&WorkloadStatus>> = BTreeMap::new();
    for (name, it) in workloads {
        all.entry(it.spec.whole.as_ref().unwrap_or(name)).or_default().push(it);
    }
    all.into_iter().filter_map(|(name, parts)| Some((name, whole(parts)?))).collect()
}

fn whole(mut parts: Vec<&WorkloadStatus>) -> Option<Cow<'_, WorkloadStatus>> {
    if let [one] = parts[..] {
        return Some(Cow::Borrowed(one));
    }
    parts.sort_by_key(|it| it.spec.member.as_ref().map(|it| it.ordinal));
    let worst = parts.iter().rev().max_by_key(|it| it.health)?;
    let first = parts.first()?;
    let sum =
        |count: fn(&WorkloadStatus) -> u32| parts.iter().map(|it| count(it)).fold(0, u32::saturating_add);
    let mut spec = first.spec.clone();
    // The merged object has no labels of a single pod, such as the pod's name.
    spec.labels.retain(|key, value| parts.iter().all(|it| it.spec.labels.get(key) == Some(value)));
    Some(Cow::Owned(WorkloadStatus {
        spec,
        health: worst.health,
        reason: worst.reason.clone(),
        message: worst.message.clone(),
        image: first.image.clone(),
        replicas: sum(|it| it.replicas),
        updated_replicas: sum(|it| it.updated_replicas),
        old_replicas: sum(|it| it.old_replicas),
        ready_replicas: sum(|it| it.ready_replicas),
        available_replicas: sum(|it| it.available_replicas),
        conditions: worst.conditions.clone(),
        instances: parts.iter().flat_map(|it| it.instances.clone()).collect(),
        awaited: parts.iter().flat_map(|it| it.awaited.clone()).collect(),
        job: first.job.clone(),
        cron: first.cron.clone(),
        hook: first.hook,
        wave: first.wave,
        canary: first.canary.clone(),
        origin: first.origin.clone(),
    }))
}
