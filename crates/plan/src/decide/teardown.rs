//! The order in which an application is taken down: what depends on another workload, or is of a higher wave, goes first.

use driftless_model::{Instance, Job, Workload, WorkloadName};

use crate::{draft::Draft, wait::Wait};

/// Why a container of an application that is removed as a whole stays for now.
pub(crate) fn reason_to_wait(draft: &Draft<'_>, instance: &Instance) -> Option<Wait> {
    let facts = draft.facts;
    let before = facts.target.reached?;
    let is_gone = facts.target.stack.workloads.values().all(|it| it.job().is_some_and(Job::is_run));
    if !is_gone {
        return None;
    }
    let name = &instance.instance.workload;
    let own = before.workloads.get(name)?;
    let goes_first = |other: &&Instance| {
        let of = &other.instance.workload;
        let workload = before.workloads.get(of).filter(|_| of != name);
        workload.is_some_and(|workload| depends_on(workload, name) || workload.wave > own.wave)
    };
    let first = facts.instances.orphans.iter().copied().find(goes_first)?;
    Some(Wait::teardown(name, &first.instance.workload))
}

fn depends_on(workload: &Workload, name: &WorkloadName) -> bool {
    workload.after.iter().any(|dependency| dependency.workload == *name)
}
