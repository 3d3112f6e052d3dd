//! The life of a task: prepared, started, running, ended. Each state but the last has a duration.

use std::time::Duration;

use driftless_model::Timestamp;
use serde_json::{Value, json};

use super::swarm_faults::SwarmFaults;

/// The time that a node takes to prepare, start or stop a task.
const STEP: Duration = Duration::from_millis(300);
/// The exit code of a process that was killed.
const KILLED: i64 = 137;

/// The states in the order of a life, as managers compare them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum TaskState {
    Pending,
    Assigned,
    Ready,
    Starting,
    Running,
    Complete,
    Shutdown,
    Failed,
    Rejected,
    Remove,
}

impl TaskState {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Assigned => "assigned",
            Self::Ready => "ready",
            Self::Starting => "starting",
            Self::Running => "running",
            Self::Complete => "complete",
            Self::Shutdown => "shutdown",
            Self::Failed => "failed",
            Self::Rejected => "rejected",
            Self::Remove => "remove",
        }
    }
}

#[derive(Clone, Debug)]
pub(super) struct ClusterTask {
    pub(super) id: String,
    pub(super) service: String,
    /// The labels of the service when it was made, by which managers find it.
    pub(super) labels: Value,
    /// `None` in a global service.
    pub(super) slot: Option<u64>,
    /// The id of its node.
    pub(super) node: Option<String>,
    pub(super) created: Timestamp,
    /// The `TaskTemplate` and the `EndpointSpec` of the service when it was made.
    pub(super) template: Value,
    pub(super) endpoint: Value,
    pub(super) state: TaskState,
    pub(super) desired: TaskState,
    pub(super) since: Timestamp,
    pub(super) message: String,
    pub(super) error: String,
    pub(super) exit_code: Option<i64>,
    /// When its state ends by itself.
    pub(super) due: Option<Timestamp>,
    /// The tasks that have to end before it is wanted to run.
    pub(super) after: Vec<String>,
    /// A delayed restart: it is wanted to run from then on.
    pub(super) not_before: Option<Timestamp>,
    /// The run of a Job that it is for.
    pub(super) run: Option<u64>,
    /// Managers have counted its end.
    pub(super) is_counted: bool,
    /// It has ended, and its restart policy allows no other in its place.
    pub(super) is_last: bool,
}

/// The place of a task: a number among the replicas, or a node.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Place {
    Slot(u64),
    Node(String),
}

impl Place {
    pub(super) fn of(task: &ClusterTask) -> Self {
        match (task.slot, &task.node) {
            (Some(slot), _) => Self::Slot(slot),
            (None, node) => Self::Node(node.clone().unwrap_or_default()),
        }
    }
}

impl ClusterTask {
    pub(super) fn has_ended(&self) -> bool {
        self.state > TaskState::Running
    }

    /// Whether managers want it to run, or to complete.
    pub(super) fn is_wanted(&self) -> bool {
        self.desired <= TaskState::Complete
    }

    pub(super) fn is_running(&self) -> bool {
        self.state == TaskState::Running && self.is_wanted()
    }

    /// The state that managers want of it once it may start.
    pub(super) fn goal(&self) -> TaskState {
        if self.run.is_some() { TaskState::Complete } else { TaskState::Running }
    }

    /// The image as the service names it, without the digest.
    pub(super) fn image(&self) -> &str {
        let image = self.template.pointer("/ContainerSpec/Image").and_then(Value::as_str).unwrap_or_default();
        image.split_once('@').map_or(image, |(name, _)| name)
    }

    fn has_health_check(&self) -> bool {
        let test = self.template.pointer("/ContainerSpec/Healthcheck/Test/0").and_then(Value::as_str);
        test.is_some_and(|test| test != "NONE")
    }

    pub(super) fn enter(&mut self, state: TaskState, message: &str, now: Timestamp) {
        (self.state, self.since, self.due) = (state, now, None);
        message.clone_into(&mut self.message);
        self.error.clear();
    }

    fn fail(&mut self, state: TaskState, error: String, code: i64, now: Timestamp) {
        self.enter(state, if self.state == TaskState::Running { "started" } else { self.state.name() }, now);
        (self.error, self.exit_code) = (error, Some(code));
    }

    /// As the API has it.
    pub(super) fn to_json(&self) -> Value {
        let mut status =
            json!({"Timestamp": self.since, "State": self.state.name(), "Message": self.message});
        if !self.error.is_empty() {
            status["Err"] = self.error.as_str().into();
        }
        if self.state >= TaskState::Starting {
            let container = if self.state == TaskState::Rejected { "" } else { &self.id };
            status["ContainerStatus"] =
                json!({"ContainerID": container, "ExitCode": self.exit_code.unwrap_or(0)});
        }
        let mut task = json!({
            "ID": self.id, "CreatedAt": self.created, "Spec": self.template, "ServiceID": self.service,
            "Status": status, "DesiredState": self.desired.name(),
        });
        // The slots of Jobs begin with 0, which says nothing.
        if let Some(slot) = self.slot.filter(|slot| *slot > 0) {
            task["Slot"] = slot.into();
        }
        if let Some(run) = self.run {
            task["JobIteration"] = json!({"Index": run});
        }
        if let Some(node) = &self.node {
            task["NodeID"] = node.as_str().into();
        }
        task
    }

    /// Does what its node does with it now. True if something has changed.
    pub(super) fn advance(&mut self, faults: &SwarmFaults, now: Timestamp) -> bool {
        if self.has_ended() {
            return false;
        }
        let is_due = self.due.is_some_and(|due| due <= now);
        if !self.is_wanted() {
            if self.message != "stopping" {
                // Its state is the same until it has ended.
                "stopping".clone_into(&mut self.message);
                self.due = Some(now.after(STEP));
                return true;
            }
            if is_due {
                self.enter(TaskState::Shutdown, "shutdown", now);
                self.exit_code = Some(KILLED);
            }
            return is_due;
        }
        match self.state {
            TaskState::Assigned if is_due && faults.missing.contains(self.image()) => {
                let error = format!("No such image: {}", self.image());
                self.enter(TaskState::Rejected, "preparing", now);
                (self.error, self.exit_code) = (error, Some(0));
                true
            }
            TaskState::Assigned if is_due => {
                self.enter(TaskState::Ready, "prepared", now);
                true
            }
            TaskState::Ready if self.desired == self.goal() => {
                self.enter(TaskState::Starting, "starting", now);
                let check = if self.has_health_check() { faults.warm_up } else { Duration::ZERO };
                self.due = Some(now.after(STEP.saturating_add(check)));
                true
            }
            TaskState::Starting if is_due && faults.broken.contains(self.image()) => {
                self.fail(
                    TaskState::Failed,
                    "starting container failed: no such file or directory".to_owned(),
                    127,
                    now,
                );
                true
            }
            TaskState::Starting
                if is_due && self.has_health_check() && faults.unhealthy.contains(self.image()) =>
            {
                let error = "task: non-zero exit (137): dockerexec: unhealthy container".to_owned();
                self.fail(TaskState::Failed, error, KILLED, now);
                true
            }
            TaskState::Starting if is_due => {
                self.enter(TaskState::Running, "started", now);
                self.due = faults.exits.get(self.image()).map(|(after, _)| now.after(*after));
                true
            }
            TaskState::Running if is_due => {
                match faults.exits.get(self.image()).map_or(0, |(_, code)| *code) {
                    0 => {
                        self.enter(TaskState::Complete, "finished", now);
                        self.exit_code = Some(0);
                    }
                    code => self.fail(TaskState::Failed, format!("task: non-zero exit ({code})"), code, now),
                }
                true
            }
            _ => false,
        }
    }

    /// Its machine has started again without it.
    pub(super) fn lose(&mut self, now: Timestamp) {
        if self.has_ended() || self.state == TaskState::Pending {
            return;
        }
        if self.is_wanted() {
            self.fail(TaskState::Failed, "task: non-zero exit (255)".to_owned(), 255, now);
        } else {
            self.enter(TaskState::Shutdown, "shutdown", now);
        }
    }

    /// It has a node now, which prepares it.
    pub(super) fn assign(&mut self, node: &str, now: Timestamp) {
        self.node = Some(node.to_owned());
        self.enter(TaskState::Assigned, "scheduler assigned task to node", now);
        self.due = Some(now.after(STEP));
    }
}
