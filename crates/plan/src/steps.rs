//! Plans and their steps, and the form in which people read them.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use driftless_model::{
    Drift, DriftAction, InstanceId, RolloutSizes, Stack, Timestamp, Unadopted, Workload, WorkloadName,
};
use serde::{Deserialize, Serialize};

use crate::{
    action::Action,
    cause::Cause,
    wait::{Wait, WaitObject, WaitReason, WaitSeverity},
};

/// The steps that are safe now, and the waits that keep the rest.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// In topological order: a step comes after all steps that it depends on.
    pub steps: Vec<Step>,
    pub waits: Vec<Wait>,
    /// Differences that somebody made after the sync. What a sync still has to do is not among them.
    pub drifts: Vec<Drift>,
    /// The earliest instant at which a wait may end by itself.
    pub look_again: Option<Timestamp>,
    /// The last lines of instances that ended by themselves with another code than 0, masked, each in one line.
    pub outputs: BTreeMap<InstanceId, String>,
    /// Instances that failed while the commit was applied, within the share that `max_failure_ratio` tolerates.
    pub tolerated: BTreeSet<InstanceId>,
    /// Workloads that lack nothing but instances that somebody stopped or removed, and that are left so because self-heal is off.
    pub left_down: BTreeSet<WorkloadName>,
    /// Workloads of which the steps remove an instance, or remove or stop the service.
    pub removed_from: BTreeSet<WorkloadName>,
    /// The anonymous volumes of instances that make way for another workload, for their successors.
    pub left_volumes: BTreeMap<String, BTreeMap<String, String>>,
    /// The volumes of an application that is removed with its volumes that stay, because others use them.
    pub spared_volumes: BTreeSet<String>,
    /// The sizes of the rollouts under way once the steps are done.
    pub rollouts: BTreeMap<WorkloadName, RolloutSizes>,
    /// Desired definitions of which a container has run while the stack is not reached.
    pub begun: BTreeMap<WorkloadName, Workload>,
    /// The stack with the CronJobs in force, if runs of them are due, or may be forgotten. A plan that may change nothing begins none: they
    /// would pile up, and all start at once when it may.
    pub due_runs: Option<Box<Stack>>,
    /// The containers that nobody adopted and that keep the whole application back.
    pub unadopted: Option<Unadopted>,
}

/// One action and its cause.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Step {
    pub action: Action,
    pub cause: Cause,
    /// Indices of earlier steps that must succeed first.
    pub after: Vec<usize>,
}

impl Plan {
    /// Whether the application is suspended, so that nothing is done.
    pub fn is_suspended(&self) -> bool {
        self.waits.iter().any(|wait| wait.is(WaitReason::Suspended))
    }

    /// The steps that bring to its end what has begun to be replaced or restarted: all of each container that is started again
    /// after a step that takes it down and has begun, and those that these need. A removal is no replacement.
    pub fn begun_replacements(&self, has_begun: impl Fn(usize) -> bool) -> BTreeSet<usize> {
        let is_started = |name: &&str| {
            let mut of_name = self.steps.iter().filter(|step| step.action.object() == *name);
            of_name.any(|step| matches!(step.action, Action::StartInstance { .. }))
        };
        let taken_down = |index: &usize| match &self.steps[*index].action {
            action @ (Action::StopInstance { .. } | Action::RemoveInstance { .. }) => Some(action.object()),
            _ => None,
        };
        let begun = (0..self.steps.len()).filter(|index| has_begun(*index));
        let mut names: BTreeSet<&str> =
            begun.filter_map(|index| taken_down(&index)).filter(is_started).collect();
        loop {
            let of_names = |index: &usize| names.contains(self.steps[*index].action.object());
            let mut found: BTreeSet<usize> = (0..self.steps.len()).filter(of_names).collect();
            for (index, step) in self.steps.iter().enumerate().rev() {
                if found.contains(&index) {
                    found.extend(&step.after);
                }
            }
            // A container that has to be taken down for them comes back, too.
            let needed: BTreeSet<&str> = found.iter().filter_map(taken_down).filter(is_started).collect();
            if needed.is_subset(&names) {
                return found;
            }
            names.extend(needed);
        }
    }

    /// Whether nothing is done because the application's containers are Docker Compose's and not adopted.
    pub fn is_waiting_for_adoption(&self) -> bool {
        self.steps.is_empty() && self.waits.iter().any(|wait| wait.is(WaitReason::NotAdopted))
    }

    /// The workloads that wait, or wait for one that waits, for what is no fault of their rollouts: that a person decides, ends a
    /// pause or lowers a partition, that the images of others are here, or that somebody repairs an instance which the agent leaves.
    pub(crate) fn excused(&self) -> BTreeSet<&WorkloadName> {
        let is_excuse = |wait: &&Wait| {
            let is_no_fault =
                matches!(wait.reason, WaitReason::Images | WaitReason::Paused | WaitReason::BelowPartition);
            wait.severity() == WaitSeverity::Decision || is_no_fault
        };
        let waiting_ones = self.waits.iter().filter(is_excuse).filter_map(Wait::workload_name);
        self.with_waiting(waiting_ones.chain(&self.left_down).collect())
    }

    /// The workloads that have failed for good, or wait for one that has, so that they never get on.
    pub(crate) fn stuck(&self) -> BTreeSet<&WorkloadName> {
        let has_failed = |wait: &&Wait| matches!(wait.reason, WaitReason::Failed | WaitReason::JobFailed);
        self.with_waiting(self.waits.iter().filter(has_failed).filter_map(Wait::workload_name).collect())
    }

    /// These workloads, those that wait for them, and so on.
    fn with_waiting<'a>(&'a self, mut next: Vec<&'a WorkloadName>) -> BTreeSet<&'a WorkloadName> {
        let mut waiting: BTreeMap<&WorkloadName, Vec<&WorkloadName>> = BTreeMap::new();
        for wait in &self.waits {
            if let (Some(on), Some(workload)) = (&wait.on, wait.workload_name()) {
                waiting.entry(on).or_default().push(workload);
            }
        }
        let mut found = BTreeSet::new();
        while let Some(workload) = next.pop() {
            if found.insert(workload) {
                next.extend(waiting.get(workload).into_iter().flatten());
            }
        }
        found
    }

    /// Nothing to do and nothing to wait for: the live state equals the target.
    pub fn is_settled(&self) -> bool {
        self.steps.is_empty() && self.waits.iter().all(|it| it.severity() == WaitSeverity::Note)
    }

    /// Everything of the target is applied. The live state may differ from it in what somebody changed, and what is left because
    /// self-heal is off.
    pub fn is_reached(&self) -> bool {
        self.steps.is_empty()
            && self.waits.iter().all(|wait| wait.severity() == WaitSeverity::Note || self.is_about_left(wait))
    }

    /// Whether a wait says nothing but that differences are left because self-heal is off.
    fn is_about_left(&self, wait: &Wait) -> bool {
        let is_down = || wait.workload_name().is_some_and(|name| self.left_down.contains(name));
        wait.is(WaitReason::SelfHealOff) || (wait.is(WaitReason::Readiness) && is_down())
    }

    /// Whether somebody changed a workload, and that is left because self-heal is off.
    pub(crate) fn leaves_changed(&self, name: &WorkloadName) -> bool {
        let is_left = |drift: &&Drift| drift.action == DriftAction::Report;
        self.drifts.iter().filter(is_left).any(|drift| drift.workload.as_ref() == Some(name))
    }

    /// Whether an instance of a workload does not run, and nobody starts it because self-heal is off.
    pub(crate) fn leaves_down(&self, name: &WorkloadName) -> bool {
        self.left_outages(name).next().is_some()
    }

    /// Whether a container of a workload does not run, and nobody starts it because self-heal is off.
    pub(crate) fn leaves_container_down(&self, name: &WorkloadName, container: &str) -> bool {
        self.left_outages(name).any(|drift| drift.object == container)
    }

    /// Instances of a workload that do not run or are not there, and are left so because self-heal is off.
    fn left_outages<'a>(&'a self, name: &'a WorkloadName) -> impl Iterator<Item = &'a Drift> {
        let is_left = |drift: &&Drift| drift.action == DriftAction::Report && is_outage(drift);
        self.drifts.iter().filter(is_left).filter(move |drift| drift.workload.as_ref() == Some(name))
    }

    /// Everything of the target is applied, except for instances that failed and whose failure is tolerated, and for differences
    /// that are left because self-heal is off.
    pub fn is_applied(&self) -> bool {
        self.is_applied_without(|_| false)
    }

    /// The same, apart from waits that are no fault of the commit.
    pub(crate) fn is_applied_without(&self, is_no_fault: impl Fn(&Wait) -> bool) -> bool {
        let is_tolerated = |wait: &Wait| match &wait.object {
            WaitObject::Instance(instance) => self.tolerated.contains(instance),
            WaitObject::Application
            | WaitObject::Workload(_)
            | WaitObject::Container { .. }
            | WaitObject::Other { .. } => false,
        };
        self.steps.is_empty()
            && self.waits.iter().all(|wait| {
                wait.severity() == WaitSeverity::Note
                    || is_tolerated(wait)
                    || self.is_about_left(wait)
                    || is_no_fault(wait)
            })
    }
}

/// Whether a difference says that something does not run or is not there, which says more than a changed setting.
pub(crate) fn is_outage(drift: &Drift) -> bool {
    matches!((drift.field.as_str(), drift.want.as_str()), ("state", "running") | ("exists", _))
}

/// Steps with their numbers, then waits, each on a line of its own.
impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, step) in self.steps.iter().enumerate() {
            write!(f, "{index}: {step}")?;
            if !step.after.is_empty() {
                write!(f, " after {:?}", step.after)?;
            }
            writeln!(f)?;
        }
        for wait in &self.waits {
            writeln!(f, "wait: {wait}")?;
        }
        Ok(())
    }
}

/// `create shop-web-2 from web:1.2 at 3f9a1b2c (spec changed)`
impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.action, self.cause)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::action::ContainerRef;

    #[test]
    fn begun_removal_is_no_replacement() {
        let container = |name: &str| ContainerRef::Name(name.to_owned());
        let stop = |name| Action::StopInstance { container: container(name), grace: None };
        let planned = |action, after| Step { action, cause: Cause::NotInGit, after };
        let removal = vec![
            planned(stop("shop-db-1"), vec![]),
            planned(
                Action::RemoveInstance { container: container("shop-db-1"), with_volumes: false },
                vec![0],
            ),
            planned(Action::RemoveVolume { name: "data".to_owned() }, vec![1]),
        ];
        let mut plan = Plan { steps: removal, ..Plan::default() };
        let begun = |plan: &Plan| plan.begun_replacements(|index| index == 0);
        assert_eq!(begun(&plan), BTreeSet::new());
        plan.steps.push(planned(Action::StartInstance { container: container("shop-db-1") }, vec![1]));
        // A rollout that has not begun.
        plan.steps.push(planned(stop("shop-web-1"), vec![3]));
        plan.steps.push(planned(Action::StartInstance { container: container("shop-web-1") }, vec![4]));
        assert_eq!(begun(&plan), BTreeSet::from([0, 1, 3]));
        assert_eq!(plan.begun_replacements(|_| false), BTreeSet::new());
    }
}
