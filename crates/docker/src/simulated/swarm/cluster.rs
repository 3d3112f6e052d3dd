//! The objects of a Swarm, their versions, and the passing of time.

use std::collections::BTreeMap;

use driftless_model::Timestamp;
use serde_json::{Value, json};

use super::{
    node::ClusterNode,
    rollout::Rollout,
    service::{ClusterService, JobMode, JobRuns},
    swarm_faults::SwarmFaults,
    task::{ClusterTask, TaskState},
};

/// Everything that the managers of a Swarm agree on. All objects are kept by id.
#[derive(Debug, Default)]
pub(super) struct Cluster {
    pub(super) now: Timestamp,
    /// Counts the writes. Each written object has the number of its last one.
    index: u64,
    /// Counts objects, for their ids.
    count: u64,
    pub(super) nodes: BTreeMap<String, ClusterNode>,
    pub(super) leader: Option<String>,
    pub(super) services: BTreeMap<String, ClusterService>,
    pub(super) tasks: BTreeMap<String, ClusterTask>,
    pub(super) configs: BTreeMap<String, File>,
    pub(super) secrets: BTreeMap<String, File>,
    pub(super) networks: BTreeMap<String, ClusterNetwork>,
    pub(super) faults: SwarmFaults,
    /// The tasks that have ended by themselves, in order.
    pub(super) ended: Vec<EndedTask>,
    /// Whether nothing is left to do until time passes or somebody changes something.
    is_settled: bool,
}

/// A task that has ended by itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndedTask {
    /// The name of its service.
    pub service: String,
    /// Its image, without the digest.
    pub image: String,
    pub exit_code: i64,
}

/// A config or secret.
#[derive(Clone, Debug)]
pub(super) struct File {
    pub(super) id: String,
    pub(super) version: u64,
    pub(super) name: String,
    pub(super) labels: Value,
    /// In Base64.
    pub(super) data: String,
    pub(super) templating: Value,
}

#[derive(Clone, Debug)]
pub(super) struct ClusterNetwork {
    pub(super) id: String,
    pub(super) name: String,
    pub(super) labels: BTreeMap<String, String>,
    /// Its range. `None`: the wanted one overlaps with that of another network.
    pub(super) subnet: Option<String>,
}

impl Cluster {
    /// The number of the next write.
    pub(super) fn next_index(&mut self) -> u64 {
        self.index += 1;
        self.index
    }

    /// The id of a new object.
    pub(super) fn new_id(&mut self, kind: &str) -> String {
        self.count += 1;
        format!("{kind}{:04}", self.count)
    }

    /// Lets time pass until now: all that was due happens in order.
    pub(super) fn advance(&mut self, now: Timestamp) {
        if !self.is_settled {
            self.settle();
        }
        while let Some(due) = self.next_due().filter(|due| *due <= now) {
            self.now = due;
            self.settle();
        }
        self.now = self.now.max(now);
    }

    /// Somebody changes something, which may give the managers something to do.
    pub(super) fn disturb(&mut self) {
        self.is_settled = false;
    }

    /// Does all that is due at this time.
    fn settle(&mut self) {
        loop {
            let mut changed = self.watch_nodes();
            changed |= self.advance_tasks();
            // Nobody decides anything without a leader.
            if self.leader().is_some() {
                changed |= self.orchestrate();
                changed |= self.roll_out();
                changed |= self.schedule();
            }
            if !changed {
                self.is_settled = true;
                return;
            }
        }
    }

    /// When something happens by itself next.
    fn next_due(&self) -> Option<Timestamp> {
        let runs = |task: &&ClusterTask| {
            let node = task.node.as_ref().and_then(|node| self.nodes.get(node));
            node.is_some_and(ClusterNode::runs_tasks)
        };
        let tasks = self.tasks.values().filter(|task| !task.has_ended());
        let tasks =
            tasks.flat_map(|task| task.not_before.into_iter().chain(task.due.filter(|_| runs(&task))));
        let rollouts = self.services.values().filter_map(|service| service.rollout.as_ref());
        let all = tasks.chain(rollouts.flat_map(Rollout::due)).chain(self.nodes_due());
        all.filter(|due| *due > self.now).min()
    }

    /// A service as the API has it.
    pub(super) fn service_json(&self, service: &ClusterService, with_status: bool) -> Value {
        let mut json = json!({
            "ID": service.id, "Version": {"Index": service.version}, "CreatedAt": service.created, "Spec": service.spec,
        });
        if let Some(previous) = &service.previous {
            json["PreviousSpec"] = previous.clone();
        }
        if let Some(update) = &service.update {
            let mut status =
                json!({"State": update.state.name(), "StartedAt": update.started, "Message": update.message});
            if let Some(completed) = update.completed {
                status["CompletedAt"] = json!(completed);
            }
            json["UpdateStatus"] = status;
        }
        if service.job().is_some() {
            let JobRuns { iteration, began, .. } = &service.runs;
            json["JobStatus"] = json!({"JobIteration": {"Index": iteration}, "LastExecution": began});
        }
        if with_status {
            let own =
                self.tasks.values().filter(|task| task.service == service.id && service.is_of_run(task));
            // Those that are to run now, without the ones that wait for a restart.
            let counted = own.clone().filter(|task| {
                task.desired == task.goal() && (task.run.is_none() || task.state != TaskState::Complete)
            });
            let desired = match (service.replicas(), service.job()) {
                (Some(number), _) | (None, Some(JobMode::Replicated { concurrent: number, .. })) => number,
                (None, Some(JobMode::Global) | None) => counted.count() as u64,
            };
            json["ServiceStatus"] = json!({"RunningTasks": own.filter(|task| task.is_running()).count(), "DesiredTasks": desired});
        }
        json
    }
}
