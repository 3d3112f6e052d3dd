//! Requests to run another number of instances of a workload than Git says, for a time.

use std::{collections::BTreeSet, time::Duration};

use driftless_model::{
    Kind, MOST_REPLICAS, ScaleOverride, Stack, SwarmMode, Workload, WorkloadName, check, is_helper_image,
};

use super::{handler::RequestHandler, workload::no_workload};
use crate::{
    request::{Answer, RequestError, Scale},
    revisions::target::TargetRevision,
};

/// The longest time of an override.
const LONGEST: Duration = Duration::from_hours(366 * 24);

impl<D, S> RequestHandler<'_, D, S> {
    /// Sets the number of instances of a workload until a time. Another request for the same number moves the end.
    pub(super) fn scale(&mut self, wanted: &Scale) -> Result<Answer, RequestError> {
        let Scale { workload: name, replicas, until } = wanted;
        let now = self.context.now();
        if *until <= now || *until > now.after(LONGEST) {
            let message = format!("{until} is no end of an override: it must be within the next 366 days");
            return Err(RequestError::Refused(message));
        }
        let target = self.active_target()?;
        self.check_scale(&target, name, *replicas)?;
        let mut record = self.record.get().clone();
        let before = record.scales.get(name);
        let is_same = before.is_some_and(|before| before.replicas == *replicas);
        let at = before.filter(|_| is_same).map_or(now, |before| before.at);
        let actor = self.actor.clone();
        record.scales.insert(name.clone(), ScaleOverride { replicas: *replicas, until: *until, at, actor });
        if is_same {
            self.store(record)?;
            return Ok(Answer::Accepted);
        }
        self.accept_for([name.clone()], record)?;
        let message = format!("{replicas} instances until {until}, instead of the number in Git");
        self.event("Scaled", name.as_str(), &message);
        Ok(Answer::Accepted)
    }

    /// Ends an override before its time.
    pub(super) fn reset_scale(&mut self, name: &WorkloadName) -> Result<Answer, RequestError> {
        let mut record = self.record.get().clone();
        if record.scales.remove(name).is_none() {
            let app = self.context.name();
            return Err(RequestError::Refused(format!("{app}/{name} is not scaled; Git says its number")));
        }
        self.accept_for([name.clone()], record)?;
        self.event("ScaleReset", name.as_str(), "the number of instances in Git counts again");
        Ok(Answer::Accepted)
    }

    /// Refuses what the planner or the engine could not do, with the place in the manifest.
    fn check_scale(
        &self,
        target: &TargetRevision,
        name: &WorkloadName,
        replicas: u32,
    ) -> Result<(), RequestError> {
        let app = self.context.name();
        let object = target.stack.inventory.workloads.get(name).map(|object| object.kind);
        let Some(workload) = target.stack.workloads.get(name) else {
            return Err(match part_of_another(&target.stack, name) {
                Some(what) => RequestError::Refused(format!("{app}/{name} cannot be scaled: {what}")),
                None => no_workload(&target.stack, name),
            });
        };
        let is_global = target.stack.swarm.get(name).is_some_and(|service| service.mode == SwarmMode::Global);
        let reason = if let Some(reason) = obstacle(workload, object) {
            Some(reason.to_owned())
        } else if is_global {
            Some("a global service runs once on each node".to_owned())
        } else if replicas > MOST_REPLICAS {
            Some(format!("more than {MOST_REPLICAS} instances are not supported on one host"))
        } else {
            conflict(&target.stack, name, replicas)
        };
        match reason {
            Some(reason) => {
                let place = &workload.origin;
                Err(RequestError::Refused(format!("{app}/{name} cannot be scaled ({place}): {reason}")))
            }
            None => Ok(()),
        }
    }
}

const OF_STATEFUL_SET: &str =
    "each pod of a StatefulSet has a name and volumes of its own; change `replicas` in Git";
const OF_JOB: &str = "a Job runs as often as its manifest says";

/// Why workloads of this kind have no number that could be set.
fn obstacle(workload: &Workload, object: Option<Kind>) -> Option<&'static str> {
    if workload.job_or_template().is_some() {
        return Some(OF_JOB);
    }
    if workload.member().is_some() {
        return Some(OF_STATEFUL_SET);
    }
    // The container of a pod with several is a helper too.
    if workload.parts.is_empty() && is_helper_image(&workload.container.image) {
        return Some("it is a proxy; scale the workload that it forwards to");
    }
    match object {
        Some(Kind::DaemonSet) => Some("a DaemonSet runs once on each host"),
        Some(Kind::Pod) => Some("a Pod is one instance; make it a Deployment"),
        _ => None,
    }
}

/// The same for the name of an object with several workloads.
fn part_of_another(stack: &Stack, name: &WorkloadName) -> Option<&'static str> {
    stack.workloads.values().find_map(|workload| {
        if workload.member().is_some_and(|member| member.of == *name) {
            return Some(OF_STATEFUL_SET);
        }
        workload.job_or_template().filter(|job| job.of == *name).map(|_| OF_JOB)
    })
}

/// The first mistake of a stack with this number of instances that it does not have without.
fn conflict(stack: &Stack, name: &WorkloadName, replicas: u32) -> Option<String> {
    let known: BTreeSet<String> = check(stack).iter().map(ToString::to_string).collect();
    let mut scaled = stack.clone();
    scaled.workloads.get_mut(name)?.replicas = replicas;
    let found = check(&scaled).into_iter().find(|finding| !known.contains(&finding.to_string()))?;
    Some(found.message)
}
