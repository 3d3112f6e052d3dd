//! Requests about an application of a Docker Swarm: those about its services, and the refusal of those that need containers of
//! this host.

use driftless_docker::{Docker, ObserveScope};
use driftless_git::CommitSource;
use driftless_model::{Adopt, EngineKind, Observed, ObservedSwarm, Record, WorkloadName, swarm_service_name};
use driftless_plan as plan;
use driftless_plan::Target;

use super::handler::RequestHandler;
use crate::{
    request::{Answer, RequestError, RequestKind},
    revisions::target::TargetRevision,
};

impl<D: Docker, S: CommitSource> RequestHandler<'_, D, S> {
    /// Replaces the tasks of a service, as its `update_config` says.
    pub(super) async fn restart_service(
        &mut self,
        target: &TargetRevision,
        name: &WorkloadName,
    ) -> Result<Answer, RequestError> {
        let swarm = self.led_swarm(target, "services are restarted").await?;
        let full = swarm_service_name(&target.stack.project, name);
        let Some(service) = swarm.services.get(&full) else {
            let error = format!("{name} has no service yet: `driftless status` says what it waits for");
            return Err(RequestError::Refused(error));
        };
        let mut record = self.record.get().clone();
        let kept = record.swarm.get_or_insert_default();
        kept.restarts.insert(name.clone(), service.forced_updates());
        self.accept_for([name.clone()], record)?;
        let message = "the tasks of its service are to be replaced, as `update_config` allows";
        self.event("RestartRequested", name.as_str(), message);
        Ok(Answer::Accepted)
    }

    /// Adopts the services that `docker stack deploy` created for this project.
    pub(super) async fn adopt_services(&mut self, target: &TargetRevision) -> Result<Answer, RequestError> {
        let swarm = self.led_swarm(target, "services are adopted").await?;
        let found = plan::adoptable_services(&target.stack, &swarm);
        if !found.is_empty() {
            let mut record = self.record.get().clone();
            record.swarm.get_or_insert_default().adopts.extend(found.keys().cloned());
            self.accept(record)?;
        }
        for name in found.values() {
            self.event("Adopted", name, "adopted from `docker stack deploy`, by its next update");
        }
        Ok(Answer::Adopted(found.values().map(|name| format!("service {name}")).collect()))
    }

    /// The Swarm, if this node leads it: refuses what only the agent on the leader does. `what` says it.
    pub(super) async fn led_swarm(
        &self,
        target: &TargetRevision,
        what: &str,
    ) -> Result<Box<ObservedSwarm>, RequestError> {
        let scope = ObserveScope::of_swarm(&target.stack);
        let observed = self.observer.docker().observe(self.context.name(), &scope).await?;
        let Some(swarm) = observed.swarm else {
            let error = format!("{what} by a manager of the Swarm, and this engine is none");
            return Err(RequestError::Refused(error));
        };
        if swarm.is_leader() {
            return Ok(swarm);
        }
        let whom = match swarm.leader() {
            Some(name) => format!("ask the agent on {name}"),
            None => "no node leads now, so try again soon".to_owned(),
        };
        let error = format!("{what} by the agent on the leader of the Swarm: {whom}");
        Err(RequestError::Refused(error))
    }
}

impl<D, S> RequestHandler<'_, D, S> {
    /// Refuses a request that has no meaning in a Swarm yet, and names the command that does it.
    pub(super) fn refuse_in_swarm(&mut self, kind: &RequestKind) -> Result<(), RequestError> {
        let Some(advice) = advice(kind) else { return Ok(()) };
        // Without a target the request itself says so.
        let is_swarm = self.target().is_ok_and(|target| target.policy.engine == EngineKind::Swarm);
        if is_swarm { Err(RequestError::Refused(advice.to_owned())) } else { Ok(()) }
    }
}

/// Adopts services in a copy of the record. Returns them, and the obstacles because of which none of them would be adopted.
pub(super) fn adopt_services_in_dry_run(
    target: &Target<'_>,
    observed: &Observed,
    record: &mut Record,
) -> (Vec<String>, Vec<String>) {
    let Some(swarm) = observed.swarm.as_deref() else { return (Vec::new(), Vec::new()) };
    let found = plan::adoptable_services(target.stack, swarm);
    let sentences: Vec<String> = found.values().map(|name| format!("service {name}")).collect();
    if target.policy.adopt == Adopt::Never && !sentences.is_empty() {
        return (sentences, vec!["the policy `adopt` is `never`".to_owned()]);
    }
    record.swarm.get_or_insert_default().adopts.extend(found.into_keys());
    (sentences, Vec::new())
}

/// The answer to a request that a Swarm does not have. `None`: it has it.
fn advice(kind: &RequestKind) -> Option<&'static str> {
    match kind {
        RequestKind::DeleteInstance(_) => Some(
            "single tasks of a Swarm are not deleted by request: `driftless rollout restart` replaces all of a service",
        ),
        RequestKind::Pause(_) | RequestKind::Unpause(_) => Some(
            "rollouts of a Swarm are not paused by request: set `deploy.update_config` in Git, or run `driftless suspend`",
        ),
        RequestKind::Promote(_) | RequestKind::Abort => {
            Some("canaries are not supported with `engine: swarm` yet")
        }
        RequestKind::CreateJob(..)
        | RequestKind::DeleteJob(_)
        | RequestKind::Adopt
        | RequestKind::Restart(_)
        | RequestKind::UpdateImages
        | RequestKind::Scale(_)
        | RequestKind::ResetScale(_)
        | RequestKind::Sync
        | RequestKind::AcceptRewrite(_)
        | RequestKind::Prune
        | RequestKind::Retry
        | RequestKind::Heal
        | RequestKind::Remove(_)
        | RequestKind::ForceRemove(_)
        | RequestKind::Forget
        | RequestKind::Rollback(_)
        | RequestKind::Resume
        | RequestKind::Suspend
        | RequestKind::Plan
        | RequestKind::PlanAfter(_)
        | RequestKind::Drift(_)
        | RequestKind::Settings => None,
    }
}
