//! Merges workloads that are one Kubernetes object, such as the pods of a StatefulSet.

use std::{borrow::Cow, collections::BTreeMap, sync::Arc};

use driftless_model::{FormerTemplate, WorkloadName, WorkloadStatus};

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
    // Each pod has the template of its own part, such as that of its index.
    for part in parts.iter().map(|it| &it.spec) {
        spec.former.extend(part.former.clone());
        if part.hash != first.spec.hash {
            let template = FormerTemplate { labels: part.labels.clone(), pod: Arc::clone(&part.pod) };
            spec.former.insert(part.hash.clone(), template);
        }
    }
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

#[cfg(test)]
mod tests {
    use driftless_model::WorkloadSpec;

    use super::*;
    use crate::objects::object::{pod_labels, pod_spec};

    #[test]
    fn each_pod_of_a_job_has_the_template_of_its_index() {
        let part = |index: &str| WorkloadStatus {
            spec: WorkloadSpec {
                whole: Some("work".into()),
                hash: format!("hash-{index}"),
                labels: BTreeMap::from([("index".to_owned(), index.to_owned())]),
                pod: format!(r#"{{"containers":[{{"name":"c","command":["run-{index}"]}}]}}"#).into(),
                ..WorkloadSpec::default()
            },
            ..WorkloadStatus::default()
        };
        let parts = BTreeMap::from([("work-0".into(), part("0")), ("work-1".into(), part("1"))]);
        let wholes = of(&parts);
        let whole = wholes.values().next().unwrap();
        for index in ["0", "1"] {
            let spec = pod_spec(whole, &format!("hash-{index}"), "app:1");
            assert_eq!(spec.pointer("/containers/0/command/0").unwrap(), &format!("run-{index}"));
        }
        assert_eq!(pod_labels(whole, "hash-1").get("index").map(String::as_str), Some("1"));
    }
}
