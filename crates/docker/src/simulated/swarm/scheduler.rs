//! The choice of a node for each task, and the reason if it waits.

use driftless_model::Timestamp;
use serde_json::Value;

use super::{
    cluster::Cluster,
    node::ClusterNode,
    task::{ClusterTask, TaskState},
};

/// A rule that a node has to meet, in the words for nodes that do not.
type Rule = fn(&Cluster, &ClusterTask, &ClusterNode) -> bool;

/// In the order in which a Swarm asks them.
const RULES: &[(Rule, &str, &str)] = &[
    (
        |_, _, node| node.takes_tasks(),
        "1 node not available for new tasks",
        "nodes not available for new tasks",
    ),
    (
        |_, task, node| meets_constraints(&task.template, node),
        "scheduling constraints not satisfied on 1 node",
        "scheduling constraints not satisfied on",
    ),
    (
        |cluster, task, node| !has_host_port(cluster, task, node),
        "host-mode port already in use on 1 node",
        "host-mode port already in use on",
    ),
    (
        |cluster, task, node| !is_full(cluster, task, node),
        "max replicas per node limit exceed",
        "max replicas per node limit exceed",
    ),
];

impl Cluster {
    /// Gives nodes to the tasks that wait for one.
    pub(super) fn schedule(&mut self) -> bool {
        let waiting = self.tasks.values().filter(|task| task.state == TaskState::Pending);
        let waiting: Vec<String> = waiting.map(|task| task.id.clone()).collect();
        let mut changed = false;
        for id in waiting {
            changed |= self.schedule_one(&id);
        }
        changed
    }

    fn schedule_one(&mut self, id: &str) -> bool {
        let now = self.now;
        let Some(task) = self.tasks.get(id) else { return false };
        if !task.is_wanted() {
            self.tasks.remove(id);
            return true;
        }
        let found = self.node_for(task).map(str::to_owned);
        let Some(task) = self.tasks.get_mut(id) else { return false };
        match found {
            Ok(node) => task.assign(&node, now),
            Err(error) if task.error == error => return false,
            Err(error) => note_waiting(task, error, now),
        }
        true
    }

    fn node_for(&self, task: &ClusterTask) -> Result<&str, String> {
        let mut failures = vec![0; RULES.len()];
        let is_own = |node: &&ClusterNode| task.slot.is_some() || task.node.as_ref() == Some(&node.id);
        let fitting: Vec<&ClusterNode> = self
            .nodes
            .values()
            .filter(is_own)
            .filter(|node| {
                let failed = RULES.iter().position(|(rule, ..)| !rule(self, task, node));
                if let Some(count) = failed.and_then(|rule| failures.get_mut(rule)) {
                    *count += 1;
                }
                failed.is_none()
            })
            .collect();
        let load = |node: &ClusterNode| {
            let on_node = |other: &&ClusterTask| other.node.as_ref() == Some(&node.id) && other.is_wanted();
            let all = self.tasks.values().filter(on_node);
            (all.clone().filter(|other| other.service == task.service).count(), all.count())
        };
        let best = fitting.into_iter().min_by_key(|node| (load(node), node.id.clone()));
        best.map(|node| node.id.as_str()).ok_or_else(|| explain(&failures))
    }
}

fn note_waiting(task: &mut ClusterTask, error: String, now: Timestamp) {
    task.enter(TaskState::Pending, "pending task scheduling", now);
    task.error = error;
}

/// The most frequent reason first.
fn explain(failures: &[usize]) -> String {
    let mut reasons: Vec<(usize, String)> = RULES
        .iter()
        .zip(failures)
        .filter(|(_, count)| **count > 0)
        .map(|((_, one, many), count)| {
            let text = match (*count, many.ends_with("on")) {
                (1, _) => (*one).to_owned(),
                (count, true) => format!("{many} {count} nodes"),
                (count, false) if many.starts_with("nodes") => format!("{count} {many}"),
                (_, false) => (*many).to_owned(),
            };
            (*count, text)
        })
        .collect();
    reasons.sort_by_key(|(count, _)| std::cmp::Reverse(*count));
    let reasons: Vec<String> = reasons.into_iter().map(|(_, text)| text).collect();
    if reasons.is_empty() {
        "no suitable node".to_owned()
    } else {
        format!("no suitable node ({})", reasons.join("; "))
    }
}

/// Whether a node has all labels and properties that a task asks for, such as `node.role == worker`.
pub(super) fn meets_constraints(template: &Value, node: &ClusterNode) -> bool {
    let all = template.pointer("/Placement/Constraints").and_then(Value::as_array);
    all.into_iter().flatten().filter_map(Value::as_str).all(|constraint| {
        let (key, value, is_wanted) = match (constraint.split_once("=="), constraint.split_once("!=")) {
            (Some((key, value)), _) => (key.trim(), value.trim(), true),
            (None, Some((key, value))) => (key.trim(), value.trim(), false),
            (None, None) => return false,
        };
        let found = match key {
            "node.id" => node.id.as_str(),
            "node.hostname" => node.name.as_str(),
            "node.role" if node.is_manager => "manager",
            "node.role" => "worker",
            "node.platform.os" => "linux",
            "node.platform.arch" => "x86_64",
            key => {
                let label = key.strip_prefix("node.labels.").unwrap_or(key);
                node.labels.get(label).map(String::as_str).unwrap_or_default()
            }
        };
        found.eq_ignore_ascii_case(value) == is_wanted
    })
}

/// Whether another task has a port of the node that this one asks for.
fn has_host_port(cluster: &Cluster, task: &ClusterTask, node: &ClusterNode) -> bool {
    let wanted = host_ports(&task.endpoint);
    let others = cluster
        .tasks
        .values()
        .filter(|other| other.id != task.id && other.node.as_ref() == Some(&node.id) && !other.has_ended());
    !wanted.is_empty()
        && others.flat_map(|other| host_ports(&other.endpoint)).any(|port| wanted.contains(&port))
}

fn host_ports(endpoint: &Value) -> Vec<(u64, String)> {
    let all = endpoint.get("Ports").and_then(Value::as_array).into_iter().flatten();
    let of_node = all.filter(|port| port.get("PublishMode").and_then(Value::as_str) == Some("host"));
    of_node
        .filter_map(|port| {
            let number = port.get("PublishedPort")?.as_u64()?;
            Some((number, port.get("Protocol")?.as_str()?.to_owned()))
        })
        .collect()
}

fn is_full(cluster: &Cluster, task: &ClusterTask, node: &ClusterNode) -> bool {
    let Some(limit) = task.template.pointer("/Placement/MaxReplicas").and_then(Value::as_u64) else {
        return false;
    };
    let on_node = |other: &&ClusterTask| {
        other.service == task.service && other.is_wanted() && other.node.as_ref() == Some(&node.id)
    };
    limit > 0 && cluster.tasks.values().filter(on_node).count() as u64 >= limit
}
