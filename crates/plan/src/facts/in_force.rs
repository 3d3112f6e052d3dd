//! Whether a stack is what runs.

use driftless_model::{AgentId, Instance, Observed, Stack, WorkloadName};

/// Whether every workload of a stack runs with the specification of the stack, and no other container of this agent
/// belongs to the application.
pub fn is_in_force(stack: &Stack, observed: &Observed, agent: &AgentId) -> bool {
    let own = || observed.instances.values().filter(|instance| instance.agent == *agent);
    let is_desired = |instance: &Instance| {
        let workload = stack.workloads.get(&instance.instance.workload);
        workload.is_some_and(|workload| workload.spec() == instance.spec)
    };
    let runs = |name: &WorkloadName| own().any(|instance| instance.instance.workload == *name);
    own().all(is_desired)
        && stack.workloads.iter().all(|(name, workload)| workload.replicas == 0 || runs(name))
}
