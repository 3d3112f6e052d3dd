//! The runs of CronJobs: begun when they are due, and part of the target for as long as they are remembered.

use std::{borrow::Cow, sync::Arc};

use driftless_docker::Docker;
use driftless_git::Source;
use driftless_model::{CronRecord, EventKind, Record, Stack, WorkloadName};
use driftless_plan::{Told, run_name, run_of, schedule, with_runs};
use driftless_store as store;

use crate::{Answer, RequestError, app::App, revisions::Goal};

impl<D: Docker, S: Source> App<D, S> {
    /// What it is to be at this moment, with what was begun. `None`: nothing was ever good enough to be applied.
    pub(crate) fn goal(&mut self) -> Result<Option<Goal>, store::Error> {
        let mut goal = self.chosen()?;
        if let Some(goal) = &mut goal {
            add_runs(&mut goal.stack, &self.record);
        }
        Ok(goal)
    }

    /// Begins what is due. It is written down before anything is done about it.
    pub(crate) fn with_due(&mut self, mut goal: Goal) -> Goal {
        if goal.policy.suspended {
            return goal;
        }
        let now = self.shared.clock.now();
        for Told { kind, reason, object, message } in schedule(&mut self.record, &goal.stack, now) {
            self.tell(kind, reason, &object, &message);
        }
        add_runs(&mut goal.stack, &self.record);
        goal
    }

    /// Begins a run at once, because somebody asks for it.
    pub(crate) fn create_job(&mut self, from: &WorkloadName, name: &str) -> Result<Answer, RequestError> {
        let goal = self.active_goal()?;
        let template = goal.stack.workloads.get(from).filter(|it| it.cron.is_some());
        let Some(template) = template else {
            return Err(RequestError::Refused(format!("{} has no CronJob `{from}`", self.name)));
        };
        let is_label = |it: char| it.is_ascii_lowercase() || it.is_ascii_digit() || it == '-';
        let is_name = name.chars().all(is_label) && !name.starts_with('-') && !name.ends_with('-');
        if name.is_empty() || name.len() > 63 || !is_name {
            let rule = "use at most 63 lower-case letters, digits and `-`";
            return Err(RequestError::Refused(format!("`{name}` is not a valid name: {rule}")));
        }
        let run = run_name(from, goal.stack.inventory.workloads.get(from), name);
        if goal.stack.workloads.contains_key(&run) {
            return Err(RequestError::Refused(format!("jobs.batch \"{name}\" already exists")));
        }
        let Some(workload) = run_of(template, from, &run, name) else {
            return Err(RequestError::Refused(format!("{from} has no template")));
        };
        let mut record = self.record.clone();
        // Nothing that was due before anybody knew of it was missed.
        let fresh = || CronRecord { since: self.shared.clock.now(), ..CronRecord::default() };
        record.crons.entry(from.clone()).or_insert_with(fresh).runs.insert(run.clone(), workload);
        self.take_up(record)?;
        self.tell(EventKind::Normal, "SuccessfulCreate", run.as_str(), "begun by request");
        Ok(Answer::Accepted)
    }
}

pub(crate) fn add_runs(stack: &mut Arc<Stack>, record: &Record) {
    let whole = match with_runs(stack, record) {
        Cow::Owned(whole) => Some(whole),
        Cow::Borrowed(_) => None,
    };
    if let Some(whole) = whole {
        *stack = Arc::new(whole);
    }
}
