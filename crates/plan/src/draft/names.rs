//! Names of containers in Docker: which are free, and after which steps.

use driftless_model::{Instance, InstanceId, State, WorkloadName};

use crate::{
    draft::Draft,
    wait::{Wait, WaitObject},
};

impl Draft<'_> {
    /// The steps after which a name is free, or the container that has it.
    pub(crate) fn free_name(&self, name: &str) -> Result<Vec<usize>, String> {
        if let Some(holder) = self.facts.observed.claims.name_holder(name) {
            return Err(format!("{name} ({})", holder.id.short()));
        }
        let mut steps = Vec::new();
        for holder in self.facts.observed.containers().filter(|it| it.name == name) {
            match self.removed.get(&holder.id).or_else(|| self.renamed.get(&holder.id)) {
                Some(step) => steps.push(*step),
                None => return Err(format!("{name} ({})", holder.id.short())),
            }
        }
        Ok(steps)
    }

    /// The steps after which a new container of a workload can have a name. `None` if another container keeps it, which
    /// is then a wait.
    pub(crate) fn claim_name(&mut self, workload: &WorkloadName, name: &str) -> Option<Vec<usize>> {
        match self.free_name(name) {
            Ok(steps) => Some(steps),
            Err(by) => {
                let object =
                    WaitObject::Container { name: name.to_owned(), workload: Some(workload.clone()) };
                let holder = self.facts.observed.claims.name_holder(name);
                let owner = holder.and_then(|holder| holder.app.clone());
                let (what, project) = (format!("the name `{name}`"), self.facts.adoptable_project(name));
                self.wait(Wait::blocked(object, &what, &by, owner.as_ref(), project));
                None
            }
        }
    }

    /// Whether the engine is removing the container of this name.
    pub(crate) fn is_being_removed(&self, name: &str) -> bool {
        self.facts.observed.containers().any(|it| it.name == name && it.state == State::Removing)
    }

    /// Whether this is the name of one of the agent's containers that should have another name.
    pub(crate) fn is_misnamed(&self, name: &str) -> bool {
        let facts = self.facts;
        let mut holders = facts.observed.instances.values().filter(|it| it.name == name);
        holders.any(|holder| {
            let InstanceId { workload, slot } = &holder.instance;
            holder.agent == *facts.target.agent
                && facts.container_name(facts.target.stack, workload, *slot) != name
        })
    }

    /// The steps that remove the containers of a slot.
    pub(crate) fn slot_freed(&self, name: &WorkloadName, slot: u32) -> Vec<usize> {
        let was_there = |it: &&Instance| it.instance.slot == slot && it.instance.is_of(name);
        let before = self.facts.observed.containers().filter(was_there);
        before.filter_map(|it| self.removed.get(&it.id).copied()).collect()
    }
}
