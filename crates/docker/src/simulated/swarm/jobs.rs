//! The tasks of Jobs, which complete instead of running on.
//!
//! Managers count them when a service was written, when a task has ended and when another manager begins to lead, and at no other
//! time. So a task that may not be tried again is left as it is until then.

use std::collections::BTreeSet;

use super::{
    cluster::Cluster,
    orchestrator::restart_delay,
    scheduler::meets_constraints,
    service::{ClusterService, JobMode},
    task::{ClusterTask, Place, TaskState},
};

impl Cluster {
    /// Begins the tasks that a Job needs, and tries those again that have failed.
    pub(super) fn orchestrate_job(&mut self, service: &ClusterService, mode: JobMode) -> bool {
        let mut is_due = service.runs.is_uncounted;
        let ended = self.tasks.values_mut().filter(|task| {
            task.service == service.id && task.has_ended() && task.is_wanted() && !task.is_counted
        });
        for task in ended {
            (task.is_counted, is_due) = (true, true);
        }
        if !is_due {
            return false;
        }
        if let Some(service) = self.services.get_mut(&service.id) {
            service.runs.is_uncounted = false;
        }
        match mode {
            JobMode::Replicated { total, concurrent } => self.fill_slots(service, total, concurrent),
            JobMode::Global => self.fill_nodes(service),
        }
        self.try_again(service);
        self.end_former_runs(service);
        true
    }

    fn fill_slots(&mut self, service: &ClusterService, total: u64, concurrent: u64) {
        let own = self.tasks.values().filter(|task| task.service == service.id && service.is_of_run(task));
        let (complete, others): (Vec<&ClusterTask>, Vec<&ClusterTask>) =
            own.partition(|task| task.state == TaskState::Complete);
        let under_way: Vec<&ClusterTask> = others.into_iter().filter(|task| task.is_wanted()).collect();
        let taken: BTreeSet<u64> = complete.iter().chain(&under_way).filter_map(|task| task.slot).collect();
        let (complete, under_way) = (complete.len() as u64, under_way.len() as u64);
        let missing = total.saturating_sub(complete + under_way).min(concurrent.saturating_sub(under_way));
        let free: Vec<u64> = (0..total).filter(|slot| !taken.contains(slot)).collect();
        for (slot, _) in free.into_iter().zip(0..missing) {
            self.add_task(service, Place::Slot(slot), TaskState::Complete);
        }
    }

    fn fill_nodes(&mut self, service: &ClusterService) {
        let template = service.template();
        let fitting = self
            .nodes
            .values()
            .filter(|node| meets_constraints(&template, node) && !node.is_invalid() && node.takes_tasks());
        let fitting: Vec<String> = fitting.map(|node| node.id.clone()).collect();
        for node in fitting {
            let is_there = self.tasks.values().any(|task| {
                task.service == service.id
                    && service.is_of_run(task)
                    && task.is_wanted()
                    && task.node.as_ref() == Some(&node)
            });
            if !is_there {
                self.add_task(service, Place::Node(node), TaskState::Complete);
            }
        }
    }

    /// Another task for each one that has failed, as the restart policy says.
    fn try_again(&mut self, service: &ClusterService) {
        let has_failed = |task: &&ClusterTask| {
            task.service == service.id
                && service.is_of_run(task)
                && task.is_wanted()
                && task.state > TaskState::Complete
        };
        let failed: Vec<ClusterTask> = self.tasks.values().filter(has_failed).cloned().collect();
        for task in failed {
            if let Some(ended) = self.tasks.get_mut(&task.id) {
                ended.desired = TaskState::Shutdown;
            }
            if !self.may_restart(service, &task) {
                continue;
            }
            let new = self.add_task(service, Place::of(&task), TaskState::Ready);
            let from = self.now.after(restart_delay(service));
            if let Some(new) = self.tasks.get_mut(&new) {
                new.not_before = Some(from);
            }
        }
    }

    fn end_former_runs(&mut self, service: &ClusterService) {
        let former = self.tasks.values_mut().filter(|task| {
            task.service == service.id && !service.is_of_run(task) && task.state <= TaskState::Running
        });
        former.for_each(|task| task.desired = TaskState::Remove);
    }
}
