//! How work that ends is: well when it has ended well, and on its way until then.
//!
//! A run of a CronJob makes nobody unwell; the CronJob is, while its last run was no success.

use super::{account, cron, jobs, tally::Tally, verdict::Finding};
use driftless_model::{HealthStatus, Observed, Record, Stack, Workload};

/// `None`: it is no such work, or it has not been begun, and what keeps it from that is told as of anything else.
pub(super) fn judge(
    stack: &Stack,
    observed: &Observed,
    record: &Record,
    workload: &Workload,
    tally: &Tally<'_>,
) -> Option<Finding> {
    let wanted = workload.job.as_ref()?;
    if workload.cron.is_some() {
        let (run, outcome) = cron::failure(record, &wanted.of)?;
        return Some(Finding::new(HealthStatus::Degraded, "LastRunFailed", format!("{run}: {outcome}")));
    }
    let job = account::job(stack, workload, observed, record)?;
    let health = |it| if wanted.cron.is_some() { HealthStatus::Healthy } else { it };
    let is_done = jobs::is_over(record, stack, workload);
    Some(match job.reason {
        Some(reason) if job.is_over => {
            let message = format!("{} failed after {} failures", wanted.of, job.failed);
            Finding::new(health(HealthStatus::Degraded), &reason, message)
        }
        Some(_) => Finding::new(HealthStatus::Healthy, "Completed", ""),
        None if job.suspended => {
            Finding::new(health(HealthStatus::Suspended), "JobSuspended", "it is suspended")
        }
        None if is_done => Finding::new(HealthStatus::Healthy, "Completed", ""),
        None if tally.updated.is_empty() && job.active == 0 && job.failed == 0 => return None,
        None => {
            let counted = format!("{} of {} done", job.succeeded, job.completions.unwrap_or(1));
            Finding::new(health(HealthStatus::Progressing), "Running", counted)
        }
    })
}
