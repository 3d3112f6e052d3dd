//! The tasks of services: one for each replica or node, and another in the place of one that has ended.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use serde_json::Value;

use super::{
    cluster::Cluster,
    node::ClusterNode,
    scheduler::meets_constraints,
    service::ClusterService,
    task::{ClusterTask, Place, TaskState},
};

/// The pause before another task takes the place of one that has ended.
const RESTART_DELAY: Duration = Duration::from_secs(5);
/// The number of tasks of one place that are kept, with the present one.
const HISTORY: usize = 5;

impl Cluster {
    /// Brings each service to the number of tasks that it should have.
    pub(super) fn orchestrate(&mut self) -> bool {
        let mut changed = false;
        for id in self.services.keys().cloned().collect::<Vec<_>>() {
            let Some(service) = self.services.get(&id).cloned() else { continue };
            changed |= match (service.job(), service.replicas()) {
                (Some(mode), _) => self.orchestrate_job(&service, mode),
                (None, replicas) => {
                    let has_replaced = self.replace_ended(&service);
                    has_replaced
                        | match replicas {
                            Some(replicas) => self.orchestrate_replicas(&service, replicas),
                            None => self.orchestrate_global(&service),
                        }
                }
            };
            changed |= self.drop_old(&service);
        }
        // Tasks of removed services go once they have ended.
        let before = self.tasks.len();
        let services = &self.services;
        let is_over = |task: &ClusterTask| task.has_ended() || task.state == TaskState::Pending;
        self.tasks.retain(|_, task| {
            !(is_over(task) && (task.desired == TaskState::Remove || !services.contains_key(&task.service)))
        });
        // Engine 20.10 leaves the tasks of a Job to themselves.
        let is_left = |task: &&mut ClusterTask| task.run.is_none() && !services.contains_key(&task.service);
        for task in self.tasks.values_mut().filter(is_left) {
            changed |= task.is_wanted();
            task.desired = TaskState::Remove;
        }
        changed || self.tasks.len() != before
    }

    /// Another task for each one that has ended or whose node is lost, as the restart policy says.
    fn replace_ended(&mut self, service: &ClusterService) -> bool {
        let is_global = service.replicas().is_none();
        let is_lost = |task: &ClusterTask| {
            let Some(node) = &task.node else { return false };
            self.nodes.get(node).is_none_or(ClusterNode::is_invalid)
        };
        let wanted = self.tasks.values().filter(|task| task.service == service.id && task.is_wanted());
        let over: Vec<(ClusterTask, bool)> = wanted
            .filter(|task| task.has_ended() || is_lost(task))
            .map(|task| (task.clone(), is_lost(task)))
            .collect();
        let changed = !over.is_empty();
        for (task, is_lost) in over {
            let goes_on = !(is_global && is_lost) && (is_lost || self.may_restart(service, &task));
            if let Some(ended) = self.tasks.get_mut(&task.id) {
                ended.desired = TaskState::Shutdown;
                ended.is_last = !goes_on && !is_lost;
            }
            if goes_on {
                let delay = if is_lost { Duration::ZERO } else { restart_delay(service) };
                let new = self.add_task(service, Place::of(&task), TaskState::Ready);
                let from = self.now.after(delay);
                if let Some(new) = self.tasks.get_mut(&new) {
                    new.not_before = Some(from);
                }
            }
        }
        changed
    }

    pub(super) fn may_restart(&self, service: &ClusterService, task: &ClusterTask) -> bool {
        let policy = service.spec.pointer("/TaskTemplate/RestartPolicy");
        let text = |key: &str| policy.and_then(|policy| policy.get(key)?.as_str());
        let number = |key: &str| policy.and_then(|policy| policy.get(key)?.as_u64());
        let is_allowed = match text("Condition").unwrap_or("any") {
            "none" => false,
            "on-failure" => task.state != TaskState::Complete,
            _ => true,
        };
        let same = |other: &&ClusterTask| {
            other.service == service.id
                && Place::of(other) == Place::of(task)
                && other.run == task.run
                && !self.is_outdated(service, other)
        };
        let restarts = self.tasks.values().filter(same).count().saturating_sub(1) as u64;
        is_allowed && number("MaxAttempts").is_none_or(|most| most == 0 || restarts < most)
    }

    fn orchestrate_replicas(&mut self, service: &ClusterService, replicas: u64) -> bool {
        let mut slots: BTreeMap<u64, bool> = BTreeMap::new();
        for task in self.tasks.values().filter(|task| task.service == service.id) {
            let is_kept = task.is_last && !self.is_outdated(service, task);
            if let Some(slot) = task.slot.filter(|_| task.is_wanted() || is_kept) {
                *slots.entry(slot).or_default() |= task.is_running();
            }
        }
        let number = slots.len() as u64;
        let free: Vec<u64> =
            (1..).filter(|slot| !slots.contains_key(slot)).take(missing(replicas, number)).collect();
        let changed = !free.is_empty() || number > replicas;
        for slot in free {
            self.add_task(service, Place::Slot(slot), TaskState::Running);
        }
        // Tasks that do not run go first.
        let mut by_use: Vec<(bool, u64)> =
            slots.into_iter().map(|(slot, is_running)| (is_running, slot)).collect();
        by_use.sort_by_key(|(is_running, slot)| (*is_running, std::cmp::Reverse(*slot)));
        let leaving: BTreeSet<u64> =
            by_use.into_iter().map(|(_, slot)| slot).take(missing(number, replicas)).collect();
        for task in self.tasks.values_mut().filter(|task| task.service == service.id) {
            if task.slot.is_some_and(|slot| leaving.contains(&slot)) {
                (task.desired, task.is_last) = (TaskState::Remove, false);
            }
        }
        changed
    }

    fn orchestrate_global(&mut self, service: &ClusterService) -> bool {
        let mut changed = false;
        for node in self.nodes.values().cloned().collect::<Vec<_>>() {
            let fits = !node.is_invalid() && meets_constraints(&service.template(), &node);
            let own =
                |task: &&ClusterTask| task.service == service.id && task.node.as_ref() == Some(&node.id);
            let is_there =
                |task: &ClusterTask| task.is_wanted() || (task.is_last && !self.is_outdated(service, task));
            if fits && node.takes_tasks() && !self.tasks.values().filter(own).any(is_there) {
                self.add_task(service, Place::Node(node.id.clone()), TaskState::Running);
                changed = true;
            }
            if !fits {
                for task in self.tasks.values_mut().filter(|task| own(&&**task) && task.is_wanted()) {
                    (task.desired, changed) = (TaskState::Shutdown, true);
                }
            }
        }
        changed
    }

    /// Adds a task for a place. Returns its id.
    pub(super) fn add_task(&mut self, service: &ClusterService, place: Place, desired: TaskState) -> String {
        let id = self.new_id("task");
        let (slot, node) = match place {
            Place::Slot(slot) => (Some(slot), None),
            Place::Node(node) => (None, Some(node)),
        };
        let mut task = ClusterTask {
            id: id.clone(),
            service: service.id.clone(),
            labels: service.spec.get("Labels").cloned().unwrap_or_default(),
            slot,
            node,
            created: self.now,
            template: service.template(),
            endpoint: service.endpoint(),
            state: TaskState::Pending,
            desired,
            since: self.now,
            message: String::new(),
            error: String::new(),
            exit_code: None,
            due: None,
            after: Vec::new(),
            not_before: None,
            is_last: false,
            run: service.job().map(|_| service.runs.iteration),
            is_counted: false,
        };
        task.enter(TaskState::Pending, "created", self.now);
        self.tasks.insert(id.clone(), task);
        id
    }

    /// Forgets the oldest tasks of each place.
    fn drop_old(&mut self, service: &ClusterService) -> bool {
        let mut places: BTreeMap<Place, Vec<&ClusterTask>> = BTreeMap::new();
        for task in self.tasks.values().filter(|task| task.service == service.id) {
            places.entry(Place::of(task)).or_default().push(task);
        }
        let mut old = BTreeSet::new();
        for mut tasks in places.into_values().filter(|tasks| tasks.len() > HISTORY) {
            tasks.sort_by_key(|task| (task.created, task.id.clone()));
            let most = tasks.len() - HISTORY;
            let over = tasks.into_iter().filter(|task| task.has_ended() && !task.is_wanted());
            old.extend(over.take(most).map(|task| task.id.clone()));
        }
        self.tasks.retain(|id, _| !old.contains(id));
        !old.is_empty()
    }
}

pub(super) fn restart_delay(service: &ClusterService) -> Duration {
    let delay = service.spec.pointer("/TaskTemplate/RestartPolicy/Delay").and_then(Value::as_u64);
    delay.map_or(RESTART_DELAY, Duration::from_nanos)
}

fn missing(wanted: u64, present: u64) -> usize {
    usize::try_from(wanted.saturating_sub(present)).unwrap_or(usize::MAX)
}
