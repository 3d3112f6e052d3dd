//! Leaving out a jump of the clock from what is timed.

use std::time::Duration;

use driftless_model::{Record, Timestamp};

/// Leaves out the time by which the clock has just gone on alone, because the machine has slept or its clock was set forward: nothing
/// could work in it, so it counts into no deadline of a Job or rollout and into no pause of a canary. The tasks of a Swarm have times of
/// other machines.
pub fn leave_out_jump(record: &mut Record, jump: Duration, now: Timestamp) {
    let later = |at: &mut Timestamp| *at = at.after(jump).min(now);
    record.progress.values_mut().for_each(|progress| later(&mut progress.at));
    record.resumed.iter_mut().for_each(later);
    record.canaries.values_mut().filter_map(|canary| canary.reached.as_mut()).for_each(later);
    if record.swarm.is_none() {
        let open = record.jobs.values_mut().filter(|job| job.ended.is_none());
        open.filter_map(|job| job.started.as_mut()).for_each(later);
    }
}
