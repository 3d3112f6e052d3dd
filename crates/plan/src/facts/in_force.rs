//! Whether a stack is what runs.

use std::collections::BTreeMap;

use driftless_model::{AgentId, Instance, Observed, Stack, Workload, WorkloadName};

use crate::facts::{cron, hooks};

/// Whether every workload of a stack runs with the specification of the stack, and no other container of this agent
/// belongs to the application. Runs of CronJobs and hooks come and go, and so do the containers of Jobs with a time to live.
pub fn is_in_force(stack: &Stack, observed: &Observed, agent: &AgentId) -> bool {
    let own = || observed.instances.values().filter(|instance| instance.agent == *agent);
    let is_desired = |instance: &Instance| {
        let workload = stack.workloads.get(&instance.instance.workload);
        workload.is_some_and(|workload| workload.spec() == instance.spec)
    };
    let was_run = |instance: &Instance| cron::was_run(stack, instance) || hooks::was_hook(instance);
    let runs = |name: &WorkloadName| own().any(|instance| instance.instance.workload == *name);
    // With no container at all, nothing says that the stack was ever applied.
    let is_known = own().any(is_desired);
    let may_be_gone =
        |workload: &Workload| is_known && workload.job().is_some_and(|job| job.is_run() || job.ttl.is_some());
    own().all(|instance| is_desired(instance) || was_run(instance))
        && stack
            .workloads
            .iter()
            .all(|(name, workload)| workload.replicas == 0 || runs(name) || may_be_gone(workload))
}

/// Whether the containers of another agent could be this agent's own, so that taking them over changes nothing: each one runs the
/// specification of the stack, and with them no workload has more instances than the stack wants.
pub fn could_be_own(stack: &Stack, observed: &Observed, agent: &AgentId, other: &AgentId) -> bool {
    let is_as_in_git = |instance: &Instance| {
        let workload = stack.workloads.get(&instance.instance.workload);
        workload.is_some_and(|workload| workload.spec() == instance.spec)
    };
    let was_run = |instance: &Instance| cron::was_run(stack, instance) || hooks::was_hook(instance);
    let mut counts: BTreeMap<&WorkloadName, u32> = BTreeMap::new();
    for instance in observed.instances.values().filter(|it| it.agent == *agent || it.agent == *other) {
        if instance.agent == *other && !is_as_in_git(instance) && !was_run(instance) {
            return false;
        }
        *counts.entry(&instance.instance.workload).or_default() += 1;
    }
    let is_exceeded =
        |(name, count): (&WorkloadName, u32)| stack.workloads.get(name).is_some_and(|it| count > it.replicas);
    !counts.into_iter().any(is_exceeded)
}
