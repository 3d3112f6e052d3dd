//! Requests to sync an application, to accept a rewritten history, to confirm a removal, to suspend and to resume.

use std::collections::BTreeSet;

use driftless_docker::Docker;
use driftless_git::CommitSource;
use driftless_model::{
    EngineKind, FailedCommit, JobRecord, Pin, Record, Replacement, Stack, Timestamp, Workload, WorkloadName,
};
use driftless_plan::{WaitReason, resolve_available_images};
use driftless_store::Suspension;

use super::handler::{RequestHandler, awaits_git, not_in_git, suspended_by_settings};
use crate::{
    hooks,
    request::{Answer, RequestError},
    revisions::target::TargetRevision,
};

impl<D: Docker, S: CommitSource> RequestHandler<'_, D, S> {
    /// Forgets all backoffs and fetches.
    pub(super) fn sync(&mut self) -> Answer {
        end_pauses(self.record.get_mut());
        self.record.save(self.context);
        self.mounts.forget();
        self.revisions.request_sync(self.context, self.desired, self.actor);
        if let Some(repository) = self.repository {
            repository.fetch_now.notify_one();
        }
        Answer::Accepted
    }

    /// Accepts the commit that is rejected now, not one that replaces it later. `seen`: the sentence about it that the user has read.
    pub(super) fn accept_rewrite(&mut self, seen: Option<&str>) -> Result<Answer, RequestError> {
        let name = self.context.name();
        let rejected = self.desired.rejected().filter(|rejected| rejected.reason == "HistoryRewritten");
        let (Some(rejected), Some(repository)) = (rejected, self.repository) else {
            return Err(RequestError::Refused(format!("{name} has no rewritten history to accept")));
        };
        if seen.is_some_and(|seen| seen != rejected.sentence()) {
            return Err(RequestError::Refused(format!(
                "the history of {name} was rewritten again since you looked, and is now at {}: look at that commit and try again",
                rejected.commit.short()
            )));
        }
        repository.accepted_rewrite.set(&rejected.commit.id);
        let message = format!("to the rewritten history at {}", rejected.commit.short());
        self.event("RewriteAccepted", name.as_str(), &message);
        Ok(self.sync())
    }

    /// Confirms the removal that waits for a confirmation, for this very target only.
    pub(super) async fn confirm_prune(&mut self) -> Result<Answer, RequestError> {
        let (target, message) = self.held_prune()?;
        if target.policy.engine == EngineKind::Swarm {
            self.led_swarm(&target, "services that left Git are removed").await?;
        }
        let mut record = self.record.get().clone();
        record.prune = Some(target.hash);
        self.accept(record)?;
        self.event("PruneConfirmed", self.context.name().as_str(), &message);
        Ok(self.sync())
    }

    /// The target with a removal that waits for a confirmation, and the sentence about it.
    pub(super) fn held_prune(&mut self) -> Result<(TargetRevision, String), RequestError> {
        let target = self.active_target()?;
        let name = self.context.name();
        let held = self.publisher.status().waits.iter().find(|wait| wait.is(WaitReason::PruneHeld));
        let Some(message) = held.map(|wait| wait.message.clone()) else {
            return Err(RequestError::Refused(format!(
                "{name} has no removal that waits for a confirmation; `driftless plan {name}` shows what a sync does"
            )));
        };
        // The user has not seen what a newer target would remove.
        if !self.revisions.was_target(&target.hash) || !self.publisher.is_current() {
            return Err(RequestError::Refused(format!(
                "the desired state of {name} has changed since you looked: check `driftless status {name}` and try again"
            )));
        }
        Ok((target, message))
    }

    /// Syncs, and tries the commit again that failed. Its Jobs and containers that failed for good start again. Without a failed
    /// commit, what failed of the target does.
    pub(super) async fn retry(&mut self) -> Result<Answer, RequestError> {
        let name = self.context.name();
        let mut record = self.record.get().clone();
        if let Some(failed) = record.failed_own_update.take() {
            self.record.replace(self.context, record)?;
            let message = format!("the agent's own container is replaced again: {}", failed.reason);
            self.event("RetryRequested", name.as_str(), &message);
            if self.record.get().failed.is_none() {
                return Ok(self.sync());
            }
        }
        let Some(failed) = self.record.get().failed.clone() else {
            return self.retry_jobs().await;
        };
        let pin = self.context.store().pin(name)?;
        self.release_failed(&failed, pin.as_ref()).await?;
        let (commit, message) = match &pin {
            // The target is not the commit that failed.
            Some(Pin { revision, commit, .. }) => {
                let tried = format!("what failed of the pinned revision {revision} is tried again");
                (commit, format!("{tried}; `driftless resume {name}` tries the newest commit"))
            }
            None => {
                (&failed.commit, format!("revision {} is tried again: {}", failed.revision, failed.reason))
            }
        };
        self.event("RetryRequested", commit.short(), &message);
        Ok(self.sync())
    }

    /// Syncs, and starts the Jobs, hooks and containers of the target again that failed for good, although no failed commit is
    /// known: it failed with `onFailure: none`, a newer one left the Job as it was, or the target is an older revision.
    async fn retry_jobs(&mut self) -> Result<Answer, RequestError> {
        let (name, target) = (self.context.name(), self.active_target()?);
        let mut failed = FailedJobs::of(&target.stack, self.record.get());
        let containers = self.ended_containers(&target, &failed.names).await?;
        let mut record = self.record.get().clone();
        record.jobs.retain(|name, _| !failed.names.contains(name));
        for (id, workload) in containers {
            record.replaced.insert(id, Replacement::Delete);
            let job = target.stack.workloads.get(&workload).and_then(Workload::job);
            failed.names.insert(job.map_or(workload, |job| job.of.clone()));
        }
        if failed.names.is_empty() {
            return Err(RequestError::Refused(format!(
                "{name} has no failed commit, Job or hook to try again; `driftless sync {name}` ends all pauses"
            )));
        }
        if failed.has_hook {
            hooks::try_again(&mut record);
        }
        if let Some(swarm) = &mut record.swarm {
            swarm.try_again();
        }
        record.progress.clear();
        self.accept(record)?;
        self.revisions.reopen(self.context, &target.hash);
        let names: Vec<&str> = failed.names.iter().map(WorkloadName::as_str).collect();
        // As a Job of any commit, it may take this one back.
        let message = format!(
            "{} failed and is tried again; another failure is one of the commit that is deployed now",
            names.join(", ")
        );
        self.event("RetryRequested", name.as_str(), &message);
        Ok(self.sync())
    }

    /// Forgets a failed commit, so that the next round moves towards it again, or towards the pinned revision.
    async fn release_failed(&mut self, failed: &FailedCommit, pin: Option<&Pin>) -> Result<(), RequestError> {
        // An automatic rollback ends now: nothing that failed of it has to start again.
        let is_target_tried = pin.is_some() || failed.back_to.is_none();
        let target = if is_target_tried { Some(self.active_target()?) } else { None };
        let record = self.released_record(target.as_ref()).await?;
        self.accept(record)?;
        // With a pin, the target is another one than the failed commit, and its hooks run again, too.
        let reopened = target.map_or_else(|| failed.stack.clone(), |target| target.hash);
        self.revisions.reopen(self.context, &reopened);
        Ok(())
    }

    /// The target without the pin and the suspension, if the failed commit has paused its rollouts.
    fn paused_target_after_resume(
        &mut self,
        failed: &FailedCommit,
    ) -> Result<Option<TargetRevision>, RequestError> {
        if failed.back_to.is_some() {
            return Ok(None);
        }
        let record = Record { failed: None, ..self.record.get().clone() };
        let (target, _) = self.revisions.target_after_resume(self.context, self.desired, &record)?;
        let target = target.ok_or_else(|| self.nothing_to_apply())?;
        // Without its pin, an application that has left Git is not acted on either.
        self.refuse_inactive(&target)?;
        Ok(Some(target))
    }

    /// The record without the failed commit. With a target, whose rollouts the failure has paused or that is pinned, what failed of it
    /// for good starts again.
    pub(super) async fn released_record(
        &mut self,
        tried: Option<&TargetRevision>,
    ) -> Result<Record, RequestError> {
        let mut record = self.record.get().clone();
        if let Some(target) = tried {
            for id in self.failed_containers(target).await? {
                record.replaced.insert(id, Replacement::Delete);
            }
            record.jobs.retain(|_, job| !job.has_failed());
        }
        record.failed = None;
        if let Some(swarm) = &mut record.swarm {
            swarm.try_again();
        }
        hooks::try_again(&mut record);
        record.progress.clear();
        Ok(record)
    }

    /// Syncs, and repairs the live state once, although self-heal is off. A later change by a user is reported again.
    pub(super) async fn heal(&mut self) -> Result<Answer, RequestError> {
        let (target, record) = self.healing()?;
        if target.policy.engine == EngineKind::Swarm {
            self.led_swarm(&target, "services are repaired").await?;
        }
        self.record.replace(self.context, record)?;
        self.publisher.publish_request(self.context);
        let message = "the live state is repaired once";
        self.event("RepairRequested", self.context.name().as_str(), message);
        Ok(self.sync())
    }

    /// The target, and the record with the permission to repair its live state once.
    pub(super) fn healing(&mut self) -> Result<(TargetRevision, Record), RequestError> {
        let target = self.active_target()?;
        let heal_once = Some(target.hash.clone());
        Ok((target, Record { heal_once, ..self.record.get().clone() }))
    }

    /// Deploys the newer images that the agent knows of and only reports, or whose age it awaits.
    ///
    /// # Errors
    ///
    /// If it knows of none.
    pub(super) async fn update_images(&mut self) -> Result<Answer, RequestError> {
        let target = self.active_target()?;
        if target.policy.engine == EngineKind::Swarm {
            self.led_swarm(&target, "newer images are deployed").await?;
        }
        let name = self.context.name();
        let mut record = self.record.get().clone();
        let deployed: Vec<String> = resolve_available_images(&mut record);
        if deployed.is_empty() {
            return Err(RequestError::Refused(format!(
                "no newer image of {name} is known; `driftless sync {name}` asks the registries"
            )));
        }
        self.record.replace(self.context, record)?;
        self.event("ImageUpdateRequested", name.as_str(), &deployed.join(", "));
        Ok(self.sync())
    }

    /// Ends a pin and a suspension, and tries the commit again that failed. The answer has a note of what it does beyond ending one of
    /// them, and if the application stays suspended.
    ///
    /// # Errors
    ///
    /// If there is none of these.
    pub(super) async fn resume(&mut self) -> Result<Answer, RequestError> {
        let name = self.context.name();
        self.refuse_to_resume()?;
        let ended = self.ended_by_resume()?;
        // One alone is all that was asked for.
        let has_more = self.context.store().suspended(name)? || ended.len() > 1;
        let ended =
            (has_more && !ended.is_empty()).then(|| format!("this also ends {}", ended.join(" and ")));
        let is_suspended = self.desired.rendered().policy.suspended.then(|| suspended_by_settings(name));
        let notes: Vec<String> = ended.into_iter().chain(is_suspended).collect();
        let mut reopened = None;
        // The engine is asked before anything is stored, so that a request which fails or is cut off changes nothing. The pin and the
        // suspension end last: until then, nothing is deployed.
        if let Some(failed) = self.record.get().failed.clone() {
            let target = self.paused_target_after_resume(&failed)?;
            let record = self.released_record(target.as_ref()).await?;
            self.accept(record)?;
            reopened = Some(target.map_or(failed.stack, |target| target.hash));
        }
        // The ends of containers of an earlier try say nothing about this one.
        end_pauses(self.record.get_mut());
        self.record.save(self.context);
        self.context.store().clear_pin(name)?;
        self.context.store().set_suspended(name, Suspension::Active)?;
        if let Some(stack) = reopened {
            self.revisions.reopen(self.context, &stack);
        }
        self.publisher.publish_request(self.context);
        self.revisions.note_resume(self.actor);
        self.event("Resumed", self.context.name().as_str(), "following Git again");
        Ok(if notes.is_empty() { Answer::Accepted } else { Answer::Noted(notes.join("\n")) })
    }

    /// The pin and the failure that a resume ends with a suspension.
    fn ended_by_resume(&self) -> Result<Vec<String>, RequestError> {
        let pin = self.context.store().pin(self.context.name())?;
        let pin = pin.map(|pin| format!("the pin to revision {}", pin.revision));
        let failed = self.record.get().failed.as_ref();
        let failure = failed.map(|failed| {
            format!("the failure of commit {}, which is tried again then", failed.commit.short())
        });
        Ok(pin.into_iter().chain(failure).collect())
    }

    /// Refuses to resume an application that nothing holds.
    pub(super) fn refuse_to_resume(&self) -> Result<(), RequestError> {
        let name = self.context.name();
        let is_pinned = self.context.store().pin(name)?.is_some();
        let is_held =
            is_pinned || self.record.get().failed.is_some() || self.context.store().suspended(name)?;
        if !is_held {
            self.refuse_after_loss()?;
        }
        if self.desired.is_gone() && !is_pinned {
            return Err(RequestError::Refused(not_in_git(name)));
        }
        if !is_held {
            let is_suspended_in_settings = self.desired.rendered().policy.suspended;
            return Err(RequestError::Refused(if is_suspended_in_settings {
                format!("{name} is suspended by its settings: set `suspend: false` there")
            } else if self.revisions.awaits_fetch(self.desired) {
                awaits_git(name)
            } else {
                format!("{name} is neither pinned nor suspended, and no commit of it failed; it follows Git")
            }));
        }
        Ok(())
    }

    /// Stops all changes until `resume`. The answer has a note if that ends more than the suspension.
    pub(super) fn suspend(&mut self) -> Result<Answer, RequestError> {
        let name = self.context.name();
        let ended = self.ended_by_resume()?;
        self.context.store().set_suspended(name, Suspension::Suspended)?;
        self.publisher.publish_request(self.context);
        self.event("Suspended", name.as_str(), "observed and not changed");
        if ended.is_empty() {
            return Ok(Answer::Accepted);
        }
        Ok(Answer::Noted(format!("`driftless resume {name}` also ends {}", ended.join(" and "))))
    }
}

/// Ends the pauses after failures. Counts begin at zero, and it stays known how containers ended: after a restart of the engine, nothing
/// else tells that a one-shot service has failed and must not run again.
pub(super) fn end_pauses(record: &mut Record) {
    record.pulls.clear();
    record.forget_failures();
    record.crashes.values_mut().for_each(|crash| crash.count = 0);
    record.heals.clear();
    record.sync = None;
    record.followed_images.values_mut().for_each(|image| image.next = Timestamp(0));
}

/// The Jobs of manifests and the hooks of a sync that failed for good. A run of a CronJob is followed by the next one.
#[derive(Debug, Default, PartialEq, Eq)]
struct FailedJobs {
    names: BTreeSet<WorkloadName>,
    has_hook: bool,
}

impl FailedJobs {
    fn of(stack: &Stack, record: &Record) -> Self {
        let mut found = Self::default();
        for job in stack.workloads.values().filter_map(Workload::job) {
            let decides = job.hook.as_ref().is_none_or(|hook| hook.phase.decides());
            let has_failed = record.jobs.get(&job.of).is_some_and(JobRecord::has_failed);
            if job.cron.is_none() && decides && has_failed {
                found.names.insert(job.of.clone());
                found.has_hook |= job.hook.is_some();
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeMap, time::Duration};

    use driftless_model::{
        Completion, Container, ContainerId, Crash, HookOrigin, HookPhase, InstanceId, Job, JobEnd,
        JobOutcome, Location, PullPolicy, SpecHash, Strategy,
    };
    use serde_json::json;

    use super::*;
    use crate::desired::tests::stack;

    fn workload(job: &Job) -> Workload {
        let workload = json!({
            "origin": Location::default(), "replicas": 1, "container": Container::default(), "job": job,
            "strategy": Strategy::Recreate, "progressDeadline": Duration::from_mins(10),
            "pull": PullPolicy::IfNotPresent, "completion": Completion::OnSuccess,
        });
        serde_json::from_value(workload).unwrap()
    }

    fn ended(outcome: JobOutcome) -> JobRecord {
        JobRecord { ended: Some(JobEnd { at: Timestamp(1), outcome }), ..JobRecord::default() }
    }

    #[test]
    fn failed_jobs_and_hooks_are_found_without_a_failed_commit() {
        let hook = |phase| Some(HookOrigin { of: "hook".into(), phase });
        let once = |name: &str| Job::once(name.into());
        let jobs = [
            once("migrate"),
            once("seed"),
            Job { hook: hook(HookPhase::PreSync), ..once("dump-2-1") },
            Job { hook: hook(HookPhase::SyncFail), ..once("tell-2-1") },
            Job { cron: Some("backup".into()), ..once("backup-1") },
        ];
        let mut record = Record::default();
        let mut stack = stack("a");
        for job in &jobs {
            let outcome =
                if job.of.as_str() == "seed" { JobOutcome::Complete } else { JobOutcome::DeadlineExceeded };
            record.jobs.insert(job.of.clone(), ended(outcome));
            stack.workloads.insert(job.of.clone(), workload(job));
        }
        let found = FailedJobs::of(&stack, &record);
        assert_eq!(found, FailedJobs { names: ["dump-2-1".into(), "migrate".into()].into(), has_hook: true });
        record.jobs = BTreeMap::default();
        assert_eq!(FailedJobs::of(&stack, &record), FailedJobs::default());
    }

    #[test]
    fn end_of_a_container_is_known_after_its_pauses() {
        let mut record = Record::default();
        let crash = Crash {
            spec: SpecHash::of(&"migrate:1"),
            count: 3,
            finished: Timestamp(1),
            dead_run: None,
            container: ContainerId("c".to_owned()),
            code: 1,
            out_of_memory: false,
            error: String::new(),
        };
        let instance = InstanceId { workload: "migrate".into(), slot: 1 };
        record.crashes.insert(instance.clone(), crash.clone());
        end_pauses(&mut record);
        assert_eq!(record.crashes, BTreeMap::from([(instance, Crash { count: 0, ..crash })]));
    }
}
