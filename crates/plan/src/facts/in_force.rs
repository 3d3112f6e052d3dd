//! Whether a stack is what runs.

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
