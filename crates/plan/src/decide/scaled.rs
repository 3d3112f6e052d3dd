//! Reports the workloads that a user scaled for a time, on one host as on a Swarm.

use crate::{draft::Draft, wait::Wait};

pub(crate) fn remark(draft: &mut Draft<'_>) {
    let target = draft.facts.target.stack;
    for (name, scale) in &draft.facts.record.scales {
        let Some(workload) = target.workloads.get(name) else { continue };
        let Some(in_git) = workload.scaled_from else { continue };
        draft.wait(Wait::scaled(&target.app, name, in_git, scale));
        draft.look_again(scale.until);
    }
}
