//! Reports the runs of Jobs and of services that are to end whose end the engine does not know: they were run again.

use crate::{draft::Draft, wait::Wait};

pub(crate) fn remark(draft: &mut Draft<'_>) {
    let facts = draft.facts;
    for (instance, end) in &facts.record.unknown_ends {
        if facts.target.stack.workloads.contains_key(&instance.workload.whole()) {
            draft.wait(Wait::may_have_run_twice(instance, end));
        }
    }
}
