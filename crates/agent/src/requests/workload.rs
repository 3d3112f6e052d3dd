//! What somebody asks for of one workload or of one instance: another in its place, or that its rollout be held up.
//! It is written down in the record, so that it outlives the agent; doing it is for the rounds that follow.

use driftless_docker::Docker;
use driftless_git::Source;
use driftless_model::{
    ContainerId, EventKind, InstanceId, Kind, Observed, Record, Replacement, Workload, WorkloadName,
};
use driftless_plan as plan;

use crate::{
    Answer, InstanceName, RequestError,
    app::{App, interest},
    error::chain,
    revisions::Goal,
};

/// One of ours that can be replaced.
struct Replaceable {
    id: ContainerId,
    name: String,
    instance: InstanceId,
}

impl<D: Docker, S: Source> App<D, S> {
    /// A new rollout of what runs already.
    pub(crate) async fn restart(&mut self, name: &WorkloadName) -> Result<Answer, RequestError> {
        let goal = self.active_goal()?;
        let (kind, workload) = self.workload(&goal, name)?;
        if matches!(kind, Kind::Job | Kind::CronJob | Kind::Pod) {
            let plural = kind.qualified_plural();
            return Err(RequestError::Refused(format!("{plural} \"{name}\" restarting is not supported")));
        }
        self.refuse_paused(kind, name, workload, "restart")?;
        let all = self.replaceable(&goal).await?;
        let parts = parts(&goal, name);
        let mine: Vec<_> = all.into_iter().filter(|it| parts.contains(&it.instance.workload)).collect();
        if mine.is_empty() {
            return Err(RequestError::Refused(format!("{name} has nothing that could be restarted")));
        }
        let mut record = self.record.clone();
        record.replaced.extend(mine.iter().map(|it| (it.id.clone(), Replacement::Restart)));
        // It begins anew: what came of the rollout before is of no interest.
        record.progress.retain(|it, _| !parts.contains(it));
        record.crashes.retain(|it, _| !parts.contains(&it.workload));
        self.take_up(record)?;
        let message = format!("{} to be replaced, as its strategy allows", instances(mine.len()));
        self.tell(EventKind::Normal, "RestartRequested", name.as_str(), &message);
        Ok(Answer::Accepted)
    }

    /// Another instance in the place of one, at once.
    pub(crate) async fn delete_instance(&mut self, wanted: &InstanceName) -> Result<Answer, RequestError> {
        let InstanceName { name, namespace } = wanted;
        let goal = self.active_goal()?;
        let all = self.replaceable(&goal).await?;
        let is_there = |it: &Replaceable| {
            let object = goal.stack.inventory.workloads.get(&it.instance.workload);
            namespace.as_ref().is_none_or(|namespace| object.is_none_or(|it| it.namespace == *namespace))
        };
        // The pod of a StatefulSet has a name of its own.
        let is_it = |it: &Replaceable| it.name == *name || pod(&goal, &it.instance).as_ref() == Some(name);
        let all: Vec<Replaceable> = all.into_iter().filter(|it| is_it(it) && is_there(it)).collect();
        let Some(found) = all.first() else {
            let text = format!("{} has no instance `{name}` that is its own", self.name);
            return Err(RequestError::Refused(text));
        };
        if let Some(other) = all.iter().find(|it| it.instance.workload != found.instance.workload) {
            let (one, other) = (&found.instance.workload, &other.instance.workload);
            let text = format!("there are several pods `{name}`, {one} and {other}: say of which namespace");
            return Err(RequestError::Refused(text));
        }
        let on = &found.instance.workload;
        if let Ok((kind, workload)) = self.workload(&goal, on) {
            self.refuse_paused(kind, on, workload, "delete a pod of")?;
        }
        let mut record = self.record.clone();
        record.replaced.insert(found.id.clone(), Replacement::Delete);
        self.take_up(record)?;
        self.tell(
            EventKind::Normal,
            "Killing",
            name,
            "deletion requested; Git asks for one, so another follows",
        );
        Ok(Answer::Accepted)
    }

    /// Holds up the rollout of a Deployment.
    pub(crate) fn hold(&mut self, name: &WorkloadName) -> Result<Answer, RequestError> {
        let goal = self.active_goal()?;
        let (kind, workload) = self.workload(&goal, name)?;
        let qualified = kind.qualified();
        if kind != Kind::Deployment {
            let plural = kind.qualified_plural();
            return Err(RequestError::Refused(format!("{plural} \"{name}\" pausing is not supported")));
        }
        let mut record = self.record.clone();
        if workload.paused || !record.paused.insert(name.clone()) {
            return Err(RequestError::Refused(format!("{qualified} \"{name}\" is already paused")));
        }
        self.take_up(record)?;
        let message = "what runs is kept and healed, and not replaced by others";
        self.tell(EventKind::Normal, "RolloutPaused", name.as_str(), message);
        Ok(Answer::Accepted)
    }

    /// Lets it go on.
    pub(crate) fn release(&mut self, name: &WorkloadName) -> Result<Answer, RequestError> {
        let goal = self.active_goal()?;
        let (kind, workload) = self.workload(&goal, name)?;
        let qualified = kind.qualified();
        if workload.paused {
            let text = format!("{qualified} \"{name}\" is paused in Git: `paused` has to go there");
            return Err(RequestError::Refused(text));
        }
        let mut record = self.record.clone();
        if !record.paused.remove(name) {
            return Err(RequestError::Refused(format!("{qualified} \"{name}\" is not paused")));
        }
        self.take_up(record)?;
        let message = "what Git asks for is rolled out again";
        self.tell(EventKind::Normal, "RolloutResumed", name.as_str(), message);
        Ok(Answer::Accepted)
    }

    /// Confirms the removal that waits for it, of this very stack and of no other.
    pub(crate) fn prune(&mut self) -> Result<Answer, RequestError> {
        let goal = self.active_goal()?;
        let held = self.status.waits.iter().find(|it| it.reason == plan::PRUNE_HELD);
        let Some(message) = held.map(|it| it.message.clone()) else {
            return Err(RequestError::Refused(format!(
                "{} keeps nothing that Git does not have: `driftless plan {0}` shows what is about to be done",
                self.name
            )));
        };
        // What was asked for since then, nobody has seen the consequences of.
        let is_what_was_seen = self.goal_key.as_ref().is_some_and(|(hash, ..)| *hash == goal.hash);
        if !is_what_was_seen || self.status.observed_generation < self.generation {
            return Err(RequestError::Refused(format!(
                "{0} is to be something else by now: look at `driftless status {0}`, and ask again",
                self.name
            )));
        }
        let mut record = self.record.clone();
        record.prune = Some(goal.hash);
        self.take_up(record)?;
        self.tell(EventKind::Normal, "PruneConfirmed", self.name.as_str(), &message);
        Ok(self.sync_now())
    }

    /// The goal, if anything is being done about it.
    pub(crate) fn active_goal(&mut self) -> Result<Goal, RequestError> {
        let app = self.name.clone();
        let goal = self.goal().map_err(|it| RequestError::Refused(chain(&it)))?;
        let goal = goal
            .ok_or_else(|| RequestError::Refused(format!("{app} has nothing to apply: see its findings")))?;
        if goal.policy.suspended {
            let text =
                format!("{app} is suspended, so nothing is changed; `driftless resume {app}` ends that");
            return Err(RequestError::Refused(text));
        }
        Ok(goal)
    }

    fn workload<'a>(
        &self,
        goal: &'a Goal,
        name: &WorkloadName,
    ) -> Result<(Kind, &'a Workload), RequestError> {
        let missing = || RequestError::Refused(format!("{} has no workload `{name}`", self.name));
        let part = parts(goal, name).into_iter().next().ok_or_else(missing)?;
        let workload = goal.stack.workloads.get(&part).ok_or_else(missing)?;
        let kind = goal.stack.inventory.workloads.get(&part).map_or(Kind::Deployment, |it| it.kind);
        Ok((kind, workload))
    }

    fn refuse_paused(
        &self,
        kind: Kind,
        name: &WorkloadName,
        workload: &Workload,
        what: &str,
    ) -> Result<(), RequestError> {
        if !workload.paused && !self.record.paused.contains(name) {
            return Ok(());
        }
        let kind = kind.as_str().to_lowercase();
        Err(RequestError::Refused(format!(
            "can't {what} paused {kind} \"{name}\" (run rollout resume first)"
        )))
    }

    /// What runs here and is ours, but for the container that we run in ourselves.
    async fn replaceable(&self, goal: &Goal) -> Result<Vec<Replaceable>, RequestError> {
        let observed = self.shared.docker.observe(&self.name, &interest(goal, &self.record)).await;
        let mut observed: Observed = observed.map_err(|it| RequestError::Refused(chain(&it)))?;
        plan::embrace(&mut observed, &self.record, &self.shared.agent);
        let is_ours = |it: &&driftless_model::Instance| {
            it.agent == self.shared.agent
                && self.record.ledger.contains(&it.id)
                && observed.own.as_ref() != Some(&it.id)
        };
        let replaceable = |it: &driftless_model::Instance| Replaceable {
            id: it.id.clone(),
            name: it.name.clone(),
            instance: it.instance.clone(),
        };
        Ok(observed.instances.values().filter(is_ours).map(replaceable).collect())
    }

    /// Writes down what was asked for. What follows from it is no drift.
    pub(crate) fn take_up(&mut self, mut record: Record) -> Result<(), RequestError> {
        record.settled = None;
        let saved = self.shared.store.save_record(&self.name, &record);
        saved.map_err(|it| RequestError::Refused(format!("it cannot be remembered: {}", chain(&it))))?;
        self.record = record;
        self.announce();
        Ok(())
    }
}

/// The workload of this name, or those that make up the object of this name.
fn parts(goal: &Goal, name: &WorkloadName) -> Vec<WorkloadName> {
    let is_part = |it: &Workload| {
        let of = it.member.as_ref().map(|it| &it.of).or(it.job.as_ref().map(|it| &it.of));
        of == Some(name)
    };
    let all = goal.stack.workloads.iter().filter(|(own, it)| *own == name || is_part(it));
    all.map(|(name, _)| name.clone()).collect()
}

fn pod(goal: &Goal, instance: &InstanceId) -> Option<String> {
    let workload = goal.stack.workloads.get(&instance.workload)?;
    let job = workload.job.as_ref().filter(|it| it.of != instance.workload);
    let ordinal = workload.member.as_ref().map(|it| it.ordinal).or(job.map(|it| it.ordinal))?;
    let object = goal.stack.inventory.workloads.get(&instance.workload)?;
    Some(format!("{}-{ordinal}", object.name))
}

fn instances(count: usize) -> String {
    if count == 1 { "1 instance".to_owned() } else { format!("{count} instances") }
}
