//! Requests about canaries: end the pause of a step, or go back from the commit.

use driftless_model::{FailedCommit, FailureAction, OnFailure, Subject, WorkloadName};
use driftless_plan::{promote, resolved_digests};

use super::{handler::RequestHandler, workload::no_workload};
use crate::{
    commits::failure::{hash_as_target, last_healthy, report_failed_commit},
    request::{Answer, Promotion, RequestError},
    revisions::target::TargetRevision,
};

impl<D, S> RequestHandler<'_, D, S> {
    /// Ends the pauses of canaries, or all their steps.
    pub(super) fn promote(&mut self, wanted: &Promotion) -> Result<Answer, RequestError> {
        let target = self.active_target()?;
        let app = self.context.name();
        let mut record = self.record.get().clone();
        if record.failed.as_ref().is_some_and(|failed| failed.pauses(&target.hash)) {
            return Err(RequestError::Refused(format!(
                "the commit of {app} has failed; `driftless promote {app} --abort` goes back, `driftless sync {app} --retry` tries it again"
            )));
        }
        let canaries = self.canaries(&target, wanted.workload.as_ref())?;
        let mut promoted = Vec::new();
        for name in &canaries {
            let is_due =
                wanted.is_full || record.canaries.get(name).is_some_and(|canary| canary.reached.is_some());
            let Some(workload) = target.stack.workloads.get(name).filter(|_| is_due) else { continue };
            if promote(&mut record, Subject { name, workload }, wanted.is_full) {
                promoted.push(name.clone());
            }
        }
        if promoted.is_empty() {
            let names: Vec<&str> = canaries.iter().map(WorkloadName::as_str).collect();
            return Err(RequestError::Refused(format!(
                "the new instances of {} are not available yet; `driftless status {app}` says why, and `--full` skips the steps",
                names.join(", ")
            )));
        }
        self.accept(record)?;
        let message = if wanted.is_full { "all instances are replaced" } else { "the next step begins" };
        for name in &promoted {
            self.event("Promoted", name.as_str(), message);
        }
        Ok(Answer::Accepted)
    }

    /// Goes back from the commit to the last revision that succeeded, as if it had failed.
    pub(super) fn abort(&mut self) -> Result<Answer, RequestError> {
        let target = self.active_target()?;
        self.canaries(&target, None)?;
        let (context, app) = (self.context, self.context.name());
        let current = self.revisions.current().filter(|current| current.stack == target.hash);
        let admission = &self.desired.rendered().admission;
        let back = current.and_then(|current| {
            let back = last_healthy(context, current, admission)?;
            Some((current.number, current.commit.id.clone(), back))
        });
        let Some((revision, commit, back)) = back.filter(|_| target.is_newest()) else {
            return Err(RequestError::Refused(format!("{app} has no older revision to go back to")));
        };
        let failed = FailedCommit {
            commit,
            stack: target.hash.clone(),
            revision,
            reason: format!("its canary was aborted by {}", self.actor),
            at: context.now(),
            back_to: Some(back.number),
            was_reached: false,
            action: Some(FailureAction::Rollback),
            images: Some(resolved_digests(self.record.get(), &target.stack).into_iter().collect()),
        };
        let mut record = self.record.get().clone();
        record.failed = Some(failed.clone());
        // Nothing but the aborted commit added what the older revision does not have.
        record.prune = Some(hash_as_target(context, &back));
        self.accept(record)?;
        self.event("CanaryAborted", target.commit.short(), &format!("back to revision {}", back.number));
        report_failed_commit(context, &target.stack, &failed, OnFailure::Rollback, Some(&back));
        Ok(Answer::Accepted)
    }

    /// The workloads whose canary is at a step: all of them, or this one.
    fn canaries(
        &self,
        target: &TargetRevision,
        wanted: Option<&WorkloadName>,
    ) -> Result<Vec<WorkloadName>, RequestError> {
        if let Some(name) = wanted.filter(|name| !target.stack.workloads.contains_key(*name)) {
            return Err(no_workload(&target.stack, name));
        }
        let is_at_step = |name: &&WorkloadName| {
            let steps = target.stack.workloads.get(*name).map_or(0, |workload| workload.canary.len());
            self.record.get().canaries.get(*name).is_some_and(|canary| (canary.passed as usize) < steps)
        };
        let found: Vec<WorkloadName> = match wanted {
            Some(name) => Some(name).into_iter().filter(is_at_step).cloned().collect(),
            None => self.record.get().canaries.keys().filter(is_at_step).cloned().collect(),
        };
        if found.is_empty() {
            let app = self.context.name();
            let what = wanted.map_or_else(|| app.to_string(), |name| format!("{app}/{name}"));
            return Err(RequestError::Refused(format!(
                "{what} has no canary at a step; `driftless status {app}` shows what it does, `driftless rollback {app}` goes back"
            )));
        }
        Ok(found)
    }
}
