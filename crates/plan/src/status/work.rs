//! Health of Jobs and CronJobs.
//!
//! A failed run does not make an application unhealthy. Its CronJob is `Degraded` while the last run was no success.

use driftless_model::{HealthStatus, Workload};

use crate::{
    facts::{cron, jobs},
    status::{counts::Counts, inputs::Inputs, kube},
};

/// The health of a workload, its reason in one word, and a sentence.
pub(crate) struct WorkloadHealth {
    pub(crate) health: HealthStatus,
    pub(crate) reason: String,
    pub(crate) message: String,
}

impl WorkloadHealth {
    pub(crate) fn new(health: HealthStatus, reason: &str, message: impl Into<String>) -> Self {
        Self { health, reason: reason.to_owned(), message: message.into() }
    }
}

/// The health of a Job or CronJob. `None` if the workload is another kind, or a Job that has not begun: its waits say why.
pub(crate) fn health(inputs: Inputs<'_>, workload: &Workload, counts: &Counts<'_>) -> Option<WorkloadHealth> {
    let Inputs { stack, observed, record, .. } = inputs;
    let wanted = workload.job_or_template()?;
    if let Some(phase) = workload.hook() {
        return Some(WorkloadHealth::new(HealthStatus::Healthy, "Hook", format!("{phase} hook")));
    }
    if workload.schedule().is_some() {
        let (run, outcome) = cron::failure(record, &wanted.of)?;
        return Some(WorkloadHealth::new(
            HealthStatus::Degraded,
            "LastRunFailed",
            format!("{run}: {outcome}"),
        ));
    }
    let job = kube::job(stack, workload, observed, record)?;
    let health = |it| if wanted.is_run() { HealthStatus::Healthy } else { it };
    let is_done = jobs::is_over(record, stack, workload);
    Some(match job.reason {
        Some(reason) if job.is_over => {
            let message = match (reason.as_str(), job.failed) {
                ("DeadlineExceeded", _) => format!("{} did not end within its active deadline", wanted.of),
                (_, 1) => format!("{} failed after 1 failure", wanted.of),
                (_, failures) => format!("{} failed after {failures} failures", wanted.of),
            };
            WorkloadHealth::new(health(HealthStatus::Degraded), &reason, message)
        }
        Some(_) => WorkloadHealth::new(HealthStatus::Healthy, "Completed", ""),
        None if job.suspended => {
            WorkloadHealth::new(health(HealthStatus::Suspended), "JobSuspended", "it is suspended")
        }
        None if is_done => WorkloadHealth::new(HealthStatus::Healthy, "Completed", ""),
        None if job.parallelism == 0 => {
            WorkloadHealth::new(health(HealthStatus::Suspended), "JobSuspended", "its parallelism is 0")
        }
        None if counts.updated.is_empty() && job.active == 0 && job.failed == 0 => return None,
        None => {
            let counted = format!("{} of {} done", job.succeeded, job.completions.unwrap_or(1));
            WorkloadHealth::new(health(HealthStatus::Progressing), "Running", counted)
        }
    })
}
