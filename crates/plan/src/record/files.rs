//! The versions of files rewritten in place that a container has read.

use std::collections::BTreeMap;

use driftless_model::{ContainerId, ContentId, Instance, Record, State};

use crate::{
    action::{Action, ContainerRef},
    record::outcome::StepOutcome,
    steps::{Plan, Step},
    target::Target,
};

/// After acting: a container that was started with its files, or got all its signals, has read them.
pub(crate) fn note(record: &mut Record, plan: &Plan, outcomes: &[StepOutcome]) {
    let all = || plan.steps.iter().zip(outcomes);
    let made: BTreeMap<&str, &ContainerId> = all()
        .filter_map(|(step, outcome)| match (&step.action, outcome) {
            (Action::CreateInstance(creation), StepOutcome::Created(id)) => {
                Some((creation.name.as_str(), id))
            }
            _ => None,
        })
        .collect();
    for (step, outcome) in all() {
        let Action::WriteFiles { container, instance, files } = &step.action else { continue };
        let tells = |it: &Step| match &it.action {
            Action::StartInstance { container: told } | Action::SignalInstance { container: told, .. } => {
                told == container
            }
            _ => false,
        };
        let told = all().filter(|(it, _)| tells(it)).all(|(_, it)| it.is_done());
        let id = match container {
            ContainerRef::Id(id, _) => Some(id),
            ContainerRef::Name(name) => made.get(name.as_str()).copied(),
        };
        let Some(id) = id.filter(|_| told && outcome.is_done()) else { continue };
        let now: BTreeMap<String, ContentId> =
            files.iter().map(|(target, file)| (target.clone(), file.content.clone())).collect();
        let before = record.delivered.insert(id.clone(), now.clone());
        // Earlier crashes happened with other files, and the deadline begins again.
        if before.is_some_and(|it| it != now) {
            record.crashes.remove(instance);
            record.progress.remove(&instance.workload);
        }
    }
}

/// Takes it that every container that is as wanted knows the files that it is to hold: for who looks on from outside,
/// and cannot know.
pub fn suppose_delivered(
    record: &mut Record,
    target: &Target<'_>,
    instances: &BTreeMap<ContainerId, Instance>,
) {
    for instance in instances.values().filter(|it| it.state != State::Created) {
        let Some(workload) = target.stack.workloads.get(&instance.instance.workload) else { continue };
        if !workload.in_place.is_empty() {
            let files = workload.in_place.iter().map(|(target, file)| (target.clone(), file.content.clone()));
            record.delivered.insert(instance.id.clone(), files.collect());
        }
    }
}
