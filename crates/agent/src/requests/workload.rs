//! Requests about one workload or one instance: restart, delete, pause and unpause; and the deletion of a Job. They are
//! stored in the record, so that they outlive the agent.

use std::collections::{BTreeMap, BTreeSet};

use driftless_docker::Docker;
use driftless_git::CommitSource;
use driftless_model::{
    ContainerId, EngineKind, Instance, InstanceId, JobRecord, Kind, Record, Replacement, Stack, State,
    Timestamp, Workload, WorkloadName,
};
use driftless_plan as plan;

use super::handler::RequestHandler;
use crate::request::{Answer, InstanceName, RequestError};
use crate::{observe::observe_scope, revisions::target::TargetRevision};

/// The most workloads that the refusal of an unknown one names.
const MOST_MEANT: usize = 3;

/// An instance of the agent that can be replaced.
struct Replaceable {
    id: ContainerId,
    name: String,
    instance: InstanceId,
    /// It failed, and is not started again, or it has the desired specification and is not well.
    has_failed: bool,
    /// It failed, and is not started again.
    has_ended: bool,
    /// When it ended, if it is down.
    finished: Option<Timestamp>,
}

/// A workload with the kind of its Kubernetes object.
struct Found<'a> {
    kind: Kind,
    workload: &'a Workload,
}

impl<D: Docker, S: CommitSource> RequestHandler<'_, D, S> {
    /// Replaces all instances of a workload, as its update strategy allows.
    pub(super) async fn restart(&mut self, name: &WorkloadName) -> Result<Answer, RequestError> {
        let target = self.active_target()?;
        let found = find(&target, name)?;
        if matches!(found.kind, Kind::Job | Kind::CronJob | Kind::Pod) {
            let plural = found.kind.qualified_plural();
            return Err(RequestError::Refused(format!("{plural} \"{name}\" restarting is not supported")));
        }
        if target.policy.engine == EngineKind::Swarm {
            return self.restart_service(&target, name).await;
        }
        self.refuse_if_paused(&found, name, "restart")?;
        // A pin to another revision pauses nothing.
        let failed = self.record.get().failed.as_ref();
        if let Some(failed) = failed.filter(|failed| failed.pauses(&target.hash)) {
            let app = self.context.name();
            return Err(RequestError::Refused(format!(
                "the rollouts of {app} are paused, because {} failed: {}; fix it in Git, or `driftless sync {app} --retry` tries it again",
                failed.commit.short(),
                failed.reason
            )));
        }
        let workloads = workloads_of(&target.stack, name);
        let mut instances = self.replaceable(&target).await?;
        instances.retain(|replaceable| workloads.contains(&replaceable.instance.workload));
        if instances.is_empty() {
            return Err(RequestError::Refused(format!("{name} has no instance that can be restarted")));
        }
        let count = instances.len();
        let mut record = self.record.get().clone();
        let ids = instances.into_iter().map(|replaceable| replaceable.id);
        record.replaced.extend(ids.map(|id| (id, Replacement::Restart)));
        // The rollout starts without the failures of the one before.
        record.progress.retain(|workload, _| !workloads.contains(workload));
        record.crashes.retain(|instance, _| !workloads.contains(&instance.workload));
        self.accept_for(workloads, record)?;
        let instances = if count == 1 { "1 instance".to_owned() } else { format!("{count} instances") };
        let message = format!("{instances} to be replaced, as the update strategy allows");
        self.event("RestartRequested", name.as_str(), &message);
        Ok(Answer::Accepted)
    }

    /// Replaces one instance at once.
    pub(super) async fn delete_instance(&mut self, wanted: &InstanceName) -> Result<Answer, RequestError> {
        let InstanceName { name, namespace } = wanted;
        let target = self.active_target()?;
        let mut instances = self.replaceable(&target).await?;
        instances.retain(|replaceable| {
            let workload = &replaceable.instance.workload;
            let object = target.stack.inventory.workloads.get(workload);
            let is_in_namespace = namespace
                .as_ref()
                .is_none_or(|namespace| object.is_none_or(|object| object.namespace == *namespace));
            // The pods of StatefulSets and Jobs have names of their own.
            let pod = pod_name(&target.stack, &replaceable.instance);
            is_in_namespace && (replaceable.name == *name || pod.as_ref() == Some(name))
        });
        let Some(found) = instances.first() else {
            let app = self.context.name();
            return Err(RequestError::Refused(format!("{app} has no instance `{name}` of its own")));
        };
        let workload = &found.instance.workload;
        if let Some(other) = instances.iter().find(|other| other.instance.workload != *workload) {
            let other = &other.instance.workload;
            return Err(RequestError::Refused(format!(
                "there are several pods `{name}`, of {workload} and of {other}: name the namespace"
            )));
        }
        if let Ok(found) = find(&target, workload) {
            self.refuse_if_paused(&found, workload, "delete a pod of")?;
        }
        let mut record = self.record.get().clone();
        record.replaced.insert(found.id.clone(), Replacement::Delete);
        self.accept_for([workload.clone()], record)?;
        let message = "deletion requested; another instance takes its place, because Git asks for it";
        self.event("Killing", name, message);
        Ok(Answer::Accepted)
    }

    /// Deletes a Job with its containers. A run of a CronJob is over then. A Job of the manifests is run again, because Git asks for it.
    pub(super) async fn delete_job(&mut self, name: &WorkloadName) -> Result<Answer, RequestError> {
        let target = self.active_target()?;
        let workloads = workloads_of(&target.stack, name);
        let first = workloads.first().and_then(|first| target.stack.workloads.get(first));
        let Some(job) = first.and_then(Workload::job) else {
            let app = self.context.name();
            return Err(RequestError::Refused(format!("{app} has no Job `{name}`")));
        };
        if job.hook.is_some() {
            return Err(RequestError::Refused(format!(
                "{name} is the run of a hook, which a sync waits for: the next commit ends it, and its deadline"
            )));
        }
        let is_swarm = target.policy.engine == EngineKind::Swarm;
        let (record, message) = if let Some(cron) = &job.cron {
            if is_swarm {
                self.led_swarm(&target, "runs of CronJobs are deleted").await?;
            }
            let mut record = self.record.get().clone();
            if let Some(known) = record.crons.get_mut(cron) {
                known.runs.remove(name);
            }
            (record, "deletion of the run requested")
        } else if is_swarm {
            return Err(RequestError::Refused(format!(
                "{name} is a Job of a Swarm, which is not deleted by request: change its template in Git"
            )));
        } else {
            let instances = self.replaceable(&target).await?;
            let own = |replaceable: &&Replaceable| workloads.contains(&replaceable.instance.workload);
            let mut record = self.record.get().clone();
            restart_job(&mut record, &job.of, instances.iter().filter(own));
            (record, "deletion requested; it is run again, because Git asks for it")
        };
        self.accept_for(workloads, record)?;
        self.event("Killing", name.as_str(), message);
        Ok(Answer::Accepted)
    }

    /// Pauses the rollouts of a Deployment. Its instances are still healed.
    pub(super) fn pause(&mut self, name: &WorkloadName) -> Result<Answer, RequestError> {
        let target = self.active_target()?;
        let Found { kind, workload } = find(&target, name)?;
        if kind != Kind::Deployment {
            let plural = kind.qualified_plural();
            return Err(RequestError::Refused(format!("{plural} \"{name}\" pausing is not supported")));
        }
        let mut record = self.record.get().clone();
        if workload.paused || !record.paused.insert(name.clone()) {
            let qualified = kind.qualified();
            return Err(RequestError::Refused(format!("{qualified} \"{name}\" is already paused")));
        }
        self.accept_for([name.clone()], record)?;
        let message = "running instances are kept and healed, and not replaced by new ones";
        self.event("RolloutPaused", name.as_str(), message);
        Ok(Answer::Accepted)
    }

    /// Continues the rollouts of a Deployment.
    pub(super) fn unpause(&mut self, name: &WorkloadName) -> Result<Answer, RequestError> {
        let target = self.active_target()?;
        let Found { kind, workload } = find(&target, name)?;
        let qualified = kind.qualified();
        if workload.paused {
            return Err(RequestError::Refused(format!(
                "{qualified} \"{name}\" is paused in Git: remove `paused` from its manifest"
            )));
        }
        let mut record = self.record.get().clone();
        if !record.paused.remove(name) {
            return Err(RequestError::Refused(format!("{qualified} \"{name}\" is not paused")));
        }
        self.accept_for([name.clone()], record)?;
        let message = "rollouts continue";
        self.event("RolloutResumed", name.as_str(), message);
        Ok(Answer::Accepted)
    }

    fn refuse_if_paused(
        &self,
        found: &Found<'_>,
        name: &WorkloadName,
        verb: &str,
    ) -> Result<(), RequestError> {
        if !found.workload.paused && !self.record.get().paused.contains(name) {
            return Ok(());
        }
        let kind = found.kind.as_str().to_lowercase();
        Err(RequestError::Refused(format!(
            "can't {verb} paused {kind} \"{name}\" (run rollout resume first)"
        )))
    }

    /// The containers of Jobs that failed, and the containers that failed and are not started again.
    pub(super) async fn failed_containers(
        &self,
        target: &TargetRevision,
    ) -> Result<Vec<ContainerId>, RequestError> {
        let record = self.record.get();
        let workload_of = |instance: &InstanceId| target.stack.workloads.get(&instance.workload);
        let is_of_failed_job = |workload: &Workload| {
            let job = workload.job().and_then(|job| record.jobs.get(&job.of));
            job.is_some_and(JobRecord::has_failed)
        };
        let replaceable = self.replaceable(target).await?;
        let has_failed = |replaceable: &Replaceable| {
            replaceable.has_failed || workload_of(&replaceable.instance).is_some_and(is_of_failed_job)
        };
        Ok(replaceable.into_iter().filter(has_failed).map(|replaceable| replaceable.id).collect())
    }

    /// The containers that failed and are not started again, and those of these Jobs, with their workloads.
    pub(super) async fn ended_containers(
        &self,
        target: &TargetRevision,
        jobs: &BTreeSet<WorkloadName>,
    ) -> Result<BTreeMap<ContainerId, WorkloadName>, RequestError> {
        let is_of_job = |replaceable: &Replaceable| {
            let workload = target.stack.workloads.get(&replaceable.instance.workload);
            workload.and_then(Workload::job).is_some_and(|job| jobs.contains(&job.of))
        };
        let mut ended = self.replaceable(target).await?;
        ended.retain(|replaceable| replaceable.has_ended || is_of_job(replaceable));
        Ok(ended.into_iter().map(|ended| (ended.id, ended.instance.workload)).collect())
    }

    /// The running instances of the agent, without the agent's own container.
    async fn replaceable(&self, target: &TargetRevision) -> Result<Vec<Replaceable>, RequestError> {
        let record = self.record.get();
        let scope = observe_scope(&target.stack, &target.images, record);
        let mut observed = self.observer.docker().observe(self.context.name(), &scope).await?;
        plan::merge_adopted(&mut observed, record, self.context.agent());
        let is_replaceable = |instance: &&Instance| {
            instance.agent == *self.context.agent()
                && record.own_containers.contains(&instance.id)
                && observed.own.as_ref() != Some(&instance.id)
        };
        let instances = observed.instances.values().filter(is_replaceable);
        let now = self.context.now();
        let replaceable = instances.map(|instance| Replaceable {
            id: instance.id.clone(),
            name: instance.name.clone(),
            instance: instance.instance.clone(),
            has_failed: plan::has_failed(record, &observed, &target.stack, &target.policy, instance, now),
            has_ended: plan::has_ended_for_good(record, &observed, &target.stack, instance),
            finished: match instance.state {
                State::Exited { finished, .. } => Some(finished),
                _ => None,
            },
        });
        Ok(replaceable.collect())
    }
}

/// Forgets the progress of a Job, and has its containers replaced.
fn restart_job<'r>(
    record: &mut Record,
    name: &WorkloadName,
    instances: impl Iterator<Item = &'r Replaceable>,
) {
    let mut counted = BTreeMap::new();
    for instance in instances {
        record.replaced.insert(instance.id.clone(), Replacement::Delete);
        counted.extend(instance.finished.map(|finished| (instance.id.clone(), finished)));
    }
    record.completed_jobs.remove(name);
    if let Some(job) = record.jobs.get_mut(name) {
        let JobRecord { spec, manifest, specs, .. } = std::mem::take(job);
        *job = JobRecord { spec, manifest, specs, counted, ..JobRecord::default() };
    }
}

fn find<'t>(target: &'t TargetRevision, name: &WorkloadName) -> Result<Found<'t>, RequestError> {
    let missing = || no_workload(&target.stack, name);
    let first = workloads_of(&target.stack, name).into_iter().next().ok_or_else(missing)?;
    let workload = target.stack.workloads.get(&first).ok_or_else(missing)?;
    let object = target.stack.inventory.workloads.get(&first);
    Ok(Found { kind: object.map_or(Kind::Deployment, |object| object.kind), workload })
}

/// The refusal of a request about a workload that a stack does not have. Objects of this name in a namespace may be meant.
pub(super) fn no_workload(stack: &Stack, name: &WorkloadName) -> RequestError {
    let objects = stack.inventory.workloads.iter();
    let meant = objects.filter(|(_, object)| object.name == name.as_str()).take(MOST_MEANT);
    let meant: Vec<String> = meant.map(|(workload, _)| format!("`{workload}`")).collect();
    let advice = match meant.as_slice() {
        [] => String::new(),
        meant => format!("; did you mean {}?", meant.join(" or ")),
    };
    RequestError::Refused(format!("{} has no workload `{name}`{advice}", stack.app))
}

/// The workload of this name, or the workloads of the StatefulSet or Job of this name.
fn workloads_of(stack: &Stack, name: &WorkloadName) -> Vec<WorkloadName> {
    let belongs = |workload: &Workload| {
        let member = workload.member().map(|member| &member.of);
        member.or(workload.job_or_template().map(|job| &job.of)) == Some(name)
    };
    let workloads = stack.workloads.iter().filter(|(own, workload)| *own == name || belongs(workload));
    workloads.map(|(own, _)| own.clone()).collect()
}

/// The name of a pod that stays: a Pod without a controller, or the pod of a StatefulSet or Job.
fn pod_name(stack: &Stack, instance: &InstanceId) -> Option<String> {
    let workload = stack.workloads.get(&instance.workload)?;
    let object = stack.inventory.workloads.get(&instance.workload)?;
    if object.kind == Kind::Pod {
        return Some(object.name.clone());
    }
    let job = workload.job_or_template().filter(|job| job.of != instance.workload);
    let member = workload.member().map(|member| member.ordinal);
    let ordinal = member.or(job.map(|job| job.ordinal))?;
    Some(format!("{}-{ordinal}", object.name))
}
