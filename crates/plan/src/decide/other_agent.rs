//! Reports the workloads that containers of another agent run as well.
//!
//! That agent may be gone, as after a loss of state, or live. Nobody knows here, so its containers are left alone, and this agent
//! goes on with its own. Where it has none, the whole application waits for its owner, and says so itself.

use std::collections::BTreeMap;

use driftless_model::{AgentId, WorkloadName};

use crate::{draft::Draft, facts::standing::is_up, wait::Wait};

pub(crate) fn remark(draft: &mut Draft<'_>) {
    let facts = draft.facts;
    let own = facts.target.agent;
    let instances = || facts.observed.instances.values();
    if !instances().any(|instance| instance.agent == *own) {
        return;
    }
    let mut found: BTreeMap<(&WorkloadName, &AgentId), Vec<&str>> = BTreeMap::new();
    for instance in instances().filter(|it| it.agent != *own && is_up(it)) {
        let name = &instance.instance.workload;
        // Runs of both agents have one name, as it is made of the schedule, and end soon.
        if facts.target.stack.workloads.get(name).is_some_and(|workload| !workload.is_run()) {
            found.entry((name, &instance.agent)).or_default().push(&instance.name);
        }
    }
    for ((name, agent), mut containers) in found {
        containers.sort_unstable();
        draft.wait(Wait::of_another_agent(name, &containers, agent));
    }
}
