//! The dry run: the planner's rounds over a copy of the live state, by a running agent or without one.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use driftless_clock::Clock;
use driftless_config::DockerHost;
use driftless_docker::{Docker, ObserveScope};
use driftless_files::AppSpec;
use driftless_git::CommitSource;
use driftless_model::{
    AppName, Attempt, Cause, EngineKind, Mask, Observed, Record, Stack, StackHashes, Timestamp,
};
use driftless_plan as plan;
use driftless_plan::{Target, WaitReason};
use driftless_store::ContentDir;

use super::{
    adopt::adopt_in_dry_run,
    drift::directories_note,
    given_values::with_public_mounts,
    handler::{RequestHandler, not_in_git, suspended_by_settings},
    swarm::adopt_services_in_dry_run,
    sync::end_pauses,
    without_agent::{connect_without_agent, nobody},
};
use crate::{
    Error,
    random::random_key,
    request::{DryRun, RequestError, Supposed},
    revisions::{
        last_version::reached_stack,
        stored::{policy_now, read_revision},
        target::TargetRevision,
    },
    status::{why_not_newest, why_not_newest_after_resume},
    swarm,
};

impl<D: Docker, S: CommitSource> RequestHandler<'_, D, S> {
    /// Plans the rounds from now until nothing is left to do, supposing that every step succeeds.
    pub(super) async fn plan(&mut self) -> Result<DryRun, RequestError> {
        let target = self.target()?;
        if let Some(why) = self.why_kept(&target) {
            return Ok(DryRun { waits: vec![why], ..DryRun::default() });
        }
        let is_suspended = self.context.store().suspended(self.context.name())?;
        let record = self.record.get().clone();
        // The resume that ends the suspension ends the pin too, and tries the failed commit again. A suspension by settings alone ends in
        // Git, and neither changes.
        if is_suspended && (target.pin.is_some() || record.failed.is_some()) {
            return Ok(DryRun { suspended: true, ..self.plan_after_resume().await? });
        }
        let mut planned = self.plan_of(target, &record).await?;
        let mut waits = why_not_newest(self.publisher.status());
        waits.append(&mut planned.waits);
        Ok(DryRun { waits, ..planned })
    }

    /// The same, as if a request had been accepted. It changes nothing.
    pub(super) async fn plan_after(&mut self, supposed: &Supposed) -> Result<DryRun, RequestError> {
        let mut record = self.record.get().clone();
        let target = match supposed {
            Supposed::Resume => return self.plan_after_resume().await,
            Supposed::Heal => {
                let (target, healing) = self.healing()?;
                record = healing;
                end_pauses(&mut record);
                target
            }
            Supposed::Prune => {
                let (target, _) = self.held_prune()?;
                record.prune = Some(target.hash.clone());
                end_pauses(&mut record);
                target
            }
            Supposed::Rollback(to) => {
                let revision = self.rollback_target(to.as_deref())?;
                let policy = policy_now(self.context, self.desired)?;
                let target = read_revision(self.context, revision.number, policy, Cause::Rollback)?;
                let name = self.context.name();
                let mut target = target.ok_or_else(|| {
                    RequestError::Refused(format!("revision {} of {name} cannot be read", revision.number))
                })?;
                // It drops the CronJobs that its stack does not have.
                record.crons.retain(|name, _| plan::has_cron_job(&target.stack, name));
                target.add_runs(&record);
                // Those of another stack are forgotten.
                record.forget_failures();
                let way_out = self.suspension_note()?;
                return Ok(DryRun { way_out, ..self.plan_of(target, &record).await? });
            }
        };
        self.plan_of(target, &record).await
    }

    /// The plan after `driftless resume`, with what keeps a resume from it.
    async fn plan_after_resume(&mut self) -> Result<DryRun, RequestError> {
        self.refuse_to_resume()?;
        let mut record = self.record.get().clone();
        let failed = record.failed.take();
        let (target, held) = self.revisions.target_after_resume(self.context, self.desired, &record)?;
        let target = target.ok_or_else(|| self.nothing_to_apply())?;
        if let Some(failed) = failed {
            record = self.released_record(failed.back_to.is_none().then_some(&target)).await?;
        }
        end_pauses(&mut record);
        let mut planned = self.plan_of(target, &record).await?;
        let mut waits = why_not_newest_after_resume(self.publisher.status());
        waits.extend(held.map(|held| held.sentence(self.context.name())));
        waits.append(&mut planned.waits);
        Ok(DryRun { waits, ..planned })
    }

    async fn plan_of(&mut self, mut target: TargetRevision, record: &Record) -> Result<DryRun, RequestError> {
        // Planned as if it were resumed, to show the steps that wait for that.
        let suspended = std::mem::take(&mut target.policy.suspended);
        // After a loss of state, nothing is changed until `driftless recover`: the waits say so.
        let suspended = target.unconfirmed.as_ref().map_or(suspended, |policy| policy.suspended);
        let mut observed = self.observer.observe(self.context, &target, record).await?;
        let (now, mut record) = (self.context.now(), record.clone());
        if suspended {
            // `driftless resume` ends the pauses.
            record.forget_failures();
        }
        swarm::complete(&mut target, &mut observed, &mut record, self.context.agent(), now);
        let record = &record;
        let reached = reached_stack(self.context, &target, record)?;
        let mask = self.context.mask_with_kept(&target.stack);
        let planned = target.for_planner(reached.as_ref(), self.context.agent(), &mask);
        let (clock, contents) = (self.context.clock(), Some(self.context.contents()));
        let name = self.context.name();
        let is_by_settings = suspended && self.desired.rendered().policy.suspended;
        let way_out = is_by_settings.then(|| suspended_by_settings(name));
        Ok(DryRun { suspended, way_out, ..dry_run(&planned, &observed, record, clock, contents) })
    }

    /// Why nothing follows for an application that has left Git and is kept: it is suspended, and cannot be resumed.
    fn why_kept(&self, target: &TargetRevision) -> Option<String> {
        let is_kept = target.policy.suspended && target.pin.is_none() && target.unconfirmed.is_none();
        if !is_kept || !self.desired.is_gone() {
            return None;
        }
        let name = self.context.name();
        Some(match self.desired.doubt() {
            Some(doubt) => format!("{name} is left alone until its repository can be read again: {doubt}"),
            None => not_in_git(name),
        })
    }
}

/// The dry run of a rendered stack, without an agent.
#[derive(Clone, Debug)]
pub struct StackPlan {
    pub dry_run: DryRun,
    /// Why it may have steps that the agent of the host would not do.
    pub note: Option<String>,
}

/// Plans a rendered stack against an engine, as an agent without a record would. It changes nothing. `state_dir` and
/// `runtime_dir` are the directories of the host's agent, whose files containers mount.
///
/// # Errors
///
/// If the engine does not answer.
pub async fn plan_stack(
    spec: &AppSpec,
    stack: &Stack,
    host: &DockerHost,
    state_dir: &Path,
    runtime_dir: &Path,
) -> Result<StackPlan, Error> {
    let clock = Clock::System;
    let engine = connect_without_agent(host, state_dir, runtime_dir, clock)?;
    let mut observed = engine.observe(&stack.app, &ObserveScope::of(stack)).await.map_err(Error::Docker)?;
    let public = with_public_mounts(spec, stack, &observed);
    let stack = public.as_ref().unwrap_or(stack);
    let (policy, mut record) = (swarm::default_policy(stack), Record::default());
    let completed = swarm::completed_stack(stack, &observed, &mut record, clock.now());
    let stack = completed.as_deref().unwrap_or(stack);
    // If an agent runs this application, its next steps are planned.
    let agent =
        observed.instances.values().map(|instance| instance.agent.clone()).next().unwrap_or_else(nobody);
    let images = BTreeMap::new();
    let mask = Mask::new(random_key()).with_stacks([stack]);
    let hashes = &StackHashes::of(stack);
    let (agent, policy, images, mask) = (&agent, &policy, &images, &mask);
    let target = Target { stack, hashes, reached: None, agent, policy, images, mask };
    let note = directories_note(&observed);
    plan::leave_out_ended_runs(&mut observed, stack);
    plan::suppose_delivered(&mut record, &target, &observed.instances);
    plan::with_tasks(&target, &mut observed, &mut record);
    let dry_run = dry_run(&target, &observed, &record, clock, None);
    Ok(StackPlan { dry_run, note })
}

/// `contents` has the mounted files, if an agent asks.
fn dry_run(
    target: &Target<'_>,
    observed: &Observed,
    record: &Record,
    clock: Clock,
    contents: Option<&ContentDir>,
) -> DryRun {
    let (mut observed, mut record) = (observed.clone(), record.clone());
    plan::merge_adopted(&mut observed, &record, target.agent);
    plan::recall_health(&record, &mut observed);
    // The waits of this moment, before anything is adopted.
    let mut first = plan::plan(target, &observed, &record, clock.now());
    let (adoption, adoption_obstacles) = match target.policy.engine {
        EngineKind::Docker => adopt_in_dry_run(target, &mut observed, &mut record, contents),
        EngineKind::Swarm => adopt_services_in_dry_run(target, &observed, &mut record),
    };
    if !adoption.is_empty() && adoption_obstacles.is_empty() {
        // The dry run shows what the adoption changes, for which they wait.
        first.waits.retain(|wait| !wait.is(WaitReason::NotAdopted));
    }
    let mut waits = pauses(&first, &target.stack.app, &record, clock.now());
    let plans = plan::dry_run(target, &observed, &record, clock.now());
    waits.extend(shown_waits(&first, &plans));
    let steps = |plan: &plan::Plan| plan::describe_steps(&plan.steps, target, &observed, &record);
    DryRun {
        suspended: false,
        way_out: None,
        rounds: plans.iter().map(steps).filter(|round| !round.is_empty()).collect(),
        adoption,
        adoption_obstacles,
        waits,
    }
}

/// The pauses after failures, during which steps of this moment are not tried again.
fn pauses(first: &plan::Plan, app: &AppName, record: &Record, now: Timestamp) -> Vec<String> {
    let objects: BTreeSet<&str> = first.steps.iter().map(|step| step.action.object()).collect();
    let is_paused =
        |(object, failure): &(&String, &Attempt)| failure.next > now && objects.contains(object.as_str());
    let sentence = |(object, failure): (&String, &Attempt)| {
        let Attempt { count, next, error } = failure;
        let next = next.time_of_day();
        format!(
            "BackOff {object}: {error}, attempt {count}, next try {next} (`driftless sync {app}` ends the pause)"
        )
    };
    record.failures.iter().filter(is_paused).map(sentence).collect()
}

/// The waits of this moment, then those that are left at the end. The times of the rounds after the first are supposed.
fn shown_waits(first: &plan::Plan, rounds: &[plan::Plan]) -> Vec<String> {
    let is_supposed = rounds.len() > 1;
    let left = rounds.last().into_iter().flat_map(|plan| &plan.waits);
    let left = left.filter(|wait| !is_supposed || !wait.depends_on_time());
    let mut waits: Vec<String> = Vec::new();
    for wait in first.waits.iter().chain(left).map(ToString::to_string) {
        if !waits.contains(&wait) {
            waits.push(wait);
        }
    }
    waits
}

#[cfg(test)]
mod tests {
    use driftless_plan::{Plan, Wait};

    use super::*;

    #[test]
    fn times_of_supposed_rounds_are_not_shown() {
        let overdue = |at: u64| Wait::progress_deadline_exceeded(&"web".into(), Timestamp(at * 3_600_000));
        let with = |waits: Vec<Wait>| Plan { waits, ..Plan::default() };
        let now = with(vec![overdue(1)]);
        let later = with(vec![overdue(2), Wait::readiness(&"web".into(), 0, 1, "")]);
        let shown = shown_waits(&now, &[now.clone(), later.clone()]);
        assert_eq!(shown, ["web has made no progress since 01:00:00 UTC", "web has 0 of 1 available"]);
        // The first round is now.
        assert_eq!(shown_waits(&Plan::default(), &[later]).len(), 2);
    }
}
