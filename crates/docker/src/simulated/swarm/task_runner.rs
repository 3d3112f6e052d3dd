//! The work of nodes on their tasks.

use std::collections::BTreeSet;

use super::{
    cluster::{Cluster, EndedTask},
    node::ClusterNode,
    task::{ClusterTask, TaskState},
};

impl Cluster {
    /// The nodes do what managers want of their tasks.
    pub(super) fn advance_tasks(&mut self) -> bool {
        let now = self.now;
        let is_over = |task: &ClusterTask| {
            let node = task.node.as_ref().and_then(|node| self.nodes.get(node));
            task.has_ended() || node.is_none_or(|node| node.is_down)
        };
        let lasting = self.tasks.values().filter(|task| !is_over(task));
        let lasting: BTreeSet<String> = lasting.map(|task| task.id.clone()).collect();
        let (mut changed, mut ended) = (false, Vec::new());
        for task in self.tasks.values_mut() {
            let is_free = !task.after.iter().any(|before| lasting.contains(before));
            if task.desired == TaskState::Ready && is_free && task.not_before.is_none_or(|from| from <= now) {
                (task.desired, task.not_before, changed) = (task.goal(), None, true);
            }
            let node = task.node.as_ref().and_then(|node| self.nodes.get(node));
            if node.is_some_and(ClusterNode::runs_tasks) {
                let has_changed = task.advance(&self.faults, now);
                changed |= has_changed;
                if has_changed && matches!(task.state, TaskState::Complete | TaskState::Failed) {
                    let exit_code = task.exit_code.unwrap_or_default();
                    let (service, image) = (task.service.clone(), task.image().to_owned());
                    ended.push(EndedTask { service, image, exit_code });
                }
            }
        }
        for task in &mut ended {
            if let Some(service) = self.services.get(&task.service) {
                service.name().clone_into(&mut task.service);
            }
        }
        self.ended.append(&mut ended);
        changed
    }
}
