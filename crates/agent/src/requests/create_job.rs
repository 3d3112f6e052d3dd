//! Requests to begin a run of a CronJob now.

use driftless_docker::Docker;
use driftless_git::CommitSource;
use driftless_model::{CronRecord, EngineKind, Stack, Subject, WorkloadName};
use driftless_plan::{has_cron_job, is_held_by_hooks, run_name, run_of};

use super::handler::RequestHandler;
use crate::{
    request::{Answer, RequestError},
    revisions::last_version::reached_stack,
};

/// As Kubernetes.
const LONGEST_NAME: usize = 63;

impl<D: Docker, S: CommitSource> RequestHandler<'_, D, S> {
    /// Begins a run of a CronJob, outside of its schedule.
    pub(super) async fn create_job(
        &mut self,
        from: &WorkloadName,
        name: &str,
    ) -> Result<Answer, RequestError> {
        let target = self.active_target()?;
        let is_held = is_held_by_hooks(&target.stack, self.record.get());
        let reached = reached_stack(self.context, &target, self.record.get())?.filter(|_| is_held);
        let before = reached.as_ref().filter(|before| has_cron_job(before, from));
        // Nothing of a commit is in force before its hooks have succeeded.
        let stack: &Stack = before.unwrap_or(&target.stack);
        let template = stack.workloads.get(from).filter(|workload| workload.schedule().is_some());
        let Some(template) = template else {
            let app = self.context.name();
            return Err(RequestError::Refused(format!("{app} has no CronJob `{from}`")));
        };
        if !is_label(name) {
            let rule = format!("use at most {LONGEST_NAME} lower-case letters, digits and `-`");
            return Err(RequestError::Refused(format!("`{name}` is not a valid name: {rule}")));
        }
        let run = run_name(from, stack.inventory.workloads.get(from), name);
        if target.stack.workloads.contains_key(&run) {
            return Err(RequestError::Refused(format!("jobs.batch \"{name}\" already exists")));
        }
        let Some(workload) = run_of(Subject { name: from, workload: template }, &run, name) else {
            return Err(RequestError::Refused(format!("{from} has no template")));
        };
        if target.policy.engine == EngineKind::Swarm {
            self.led_swarm(&target, "runs of CronJobs are begun").await?;
        }
        let mut record = self.record.get().clone();
        // A schedule of which nothing is known yet has missed no run.
        let new = || CronRecord { since: self.context.now(), ..CronRecord::default() };
        let known = record.crons.entry(from.clone()).or_insert_with(new);
        known.runs.insert(run.clone(), workload);
        if let Some(service) = stack.swarm.get(from) {
            known.services.insert(run.clone(), service.clone());
        }
        self.accept_for([run.clone()], record)?;
        self.event("SuccessfulCreate", run.as_str(), "begun by request");
        Ok(Answer::Accepted)
    }
}

/// Whether a name is a DNS label (RFC 1123).
fn is_label(name: &str) -> bool {
    let is_valid = |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == '-';
    !name.is_empty()
        && name.len() <= LONGEST_NAME
        && name.chars().all(is_valid)
        && !name.starts_with('-')
        && !name.ends_with('-')
}
