//! The work of nodes on their tasks.

use std::collections::BTreeSet;

use super::{
    cluster::Cluster,
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
        let mut changed = false;
        for task in self.tasks.values_mut() {
            let is_free = !task.after.iter().any(|before| lasting.contains(before));
            if task.desired == TaskState::Ready && is_free && task.not_before.is_none_or(|from| from <= now) {
                (task.desired, task.not_before, changed) = (TaskState::Running, None, true);
            }
            let node = task.node.as_ref().and_then(|node| self.nodes.get(node));
            if node.is_some_and(ClusterNode::runs_tasks) {
                changed |= task.advance(&self.faults, now);
            }
        }
        changed
    }
}
