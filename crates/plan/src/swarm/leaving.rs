//! Services of the application that Git does not have any more, and their removal.

use std::collections::{BTreeMap, BTreeSet};

use driftless_model::{ObservedService, ObservedSwarm, WorkloadName, label, swarm_service_name};

use super::{
    jobs,
    ownership::{is_of_application, workload_of},
    writers::Writers,
};
use crate::{
    cause::Cause,
    draft::Draft,
    facts::{Facts, ownership::is_prune_protected, prune::needs_confirmation},
    wait::Wait,
};

/// The services of the application that Git does not have any more, by their names in the Swarm.
pub(super) struct Leaving<'a> {
    /// Runs go with their CronJob, or when their time has come; Git never had them.
    runs: Vec<(&'a str, &'a ObservedService)>,
    services: Vec<(&'a str, &'a ObservedService)>,
    /// They are a large part of the application, and nobody has confirmed their removal yet.
    is_held: bool,
}

impl<'a> Leaving<'a> {
    pub(super) fn of(facts: &Facts<'_>, swarm: &'a ObservedSwarm) -> Self {
        let stack = facts.target.stack;
        let names: BTreeSet<String> = stack
            .subjects()
            .filter(|it| !it.workload.is_template())
            .map(|subject| swarm_service_name(&stack.project, subject.name))
            .collect();
        let by_name = swarm.services.iter().map(|(name, service)| (name.as_str(), service));
        let leaving =
            by_name.filter(|(name, service)| is_of_application(stack, service) && !names.contains(*name));
        let (runs, services): (Vec<_>, Vec<_>) = leaving.partition(|(_, service)| is_run(service));
        let unprotected = services.iter().filter(|(_, service)| !is_protected(service)).count();
        Self { runs, services, is_held: needs_confirmation(facts, unprotected) }
    }

    /// The names of those that the agent removes. The others stay until a person acts.
    pub(super) fn removed(&self) -> BTreeSet<&'a str> {
        let services = self.services.iter().filter(|(_, service)| !self.is_held && !is_protected(service));
        services.map(|(name, _)| *name).collect()
    }

    /// Removes those that go. As on one host, a service stays until all that Git has instead can start.
    pub(super) fn remove(self, draft: &mut Draft<'_>, writers: &Writers<'_>) {
        let (target, swarm) = (draft.facts.target, writers.swarm);
        let stack = target.stack;
        let finished = Cause::Finished { reason: "its run is over".to_owned() };
        // The agent on the leader knows which runs there are.
        let knows_runs = swarm.is_leader() || stack.workloads.is_empty();
        for (name, service) in self.runs.into_iter().filter(|_| knows_runs) {
            jobs::end(draft, swarm, &workload_of(name, service), service, &finished);
        }
        if draft.facts.is_held_by_hooks || writers.lacks_parts() {
            return;
        }
        if self.is_held {
            let unprotected = self.services.iter().filter(|(_, service)| !is_protected(service));
            let workloads: Vec<WorkloadName> =
                unprotected.map(|(name, service)| workload_of(name, service)).collect();
            let workloads: Vec<&WorkloadName> = workloads.iter().collect();
            let all = workloads.len() + stack.workloads.len();
            draft.wait(Wait::prune_held(&stack.app, &workloads, all, target.policy.max_prune_percent));
            return;
        }
        for (name, service) in self.services {
            if is_protected(service) {
                draft.wait(Wait::prune_protected("service", name));
                continue;
            }
            // The one that takes its data says why it waits.
            if !writers.has_only_blocked_takers(name) {
                jobs::end(draft, swarm, &workload_of(name, service), service, &Cause::NotInGit);
            }
        }
    }
}

/// Whether a service is a run of a CronJob or of a hook.
pub(super) fn is_run(service: &ObservedService) -> bool {
    [label::CRON, label::HOOK].iter().any(|it| service.label(it).is_some())
}

/// Whether a label of the service or of its containers protects it from removal.
fn is_protected(service: &ObservedService) -> bool {
    let labels = ["/Labels", "/TaskTemplate/ContainerSpec/Labels"].iter().filter_map(|path| {
        let labels = service.spec.pointer(path)?.as_object()?;
        Some(
            labels
                .iter()
                .filter_map(|(name, value)| Some((name.clone(), value.as_str()?.to_owned())))
                .collect(),
        )
    });
    labels.into_iter().any(|labels: BTreeMap<String, String>| is_prune_protected(&labels))
}
