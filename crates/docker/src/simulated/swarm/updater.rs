//! Updates of services: tasks of an older specification are replaced, some at a time, and failures count.

use std::{collections::BTreeSet, time::Duration};

use serde_json::Value;

use super::{
    cluster::Cluster,
    rollout::{Rollout, Worker},
    scheduler::meets_constraints,
    service::{ClusterService, RolloutStatus, UpdateState},
    task::{ClusterTask, Place, TaskState},
};

/// The time for which a new task is watched, without a setting.
const MONITOR: Duration = Duration::from_secs(5);

/// `UpdateConfig` or `RollbackConfig`.
struct Settings {
    parallelism: usize,
    delay: Duration,
    monitor: Duration,
    failure_action: String,
    max_failure_ratio: f64,
    is_start_first: bool,
}

impl Settings {
    fn of(service: &ClusterService) -> Self {
        let is_rollback =
            service.update.as_ref().is_some_and(|update| update.state == UpdateState::RollbackStarted);
        let config = service.spec.get(if is_rollback { "RollbackConfig" } else { "UpdateConfig" });
        let number = |key: &str| config.and_then(|config| config.get(key)?.as_u64());
        let text = |key: &str| config.and_then(|config| config.get(key)?.as_str());
        let ratio = config.and_then(|config| config.get("MaxFailureRatio")?.as_f64());
        // Without settings it is one at a time.
        let parallelism = number("Parallelism").unwrap_or(1);
        Self {
            parallelism: usize::try_from(parallelism).unwrap_or(usize::MAX),
            delay: Duration::from_nanos(number("Delay").unwrap_or_default()),
            monitor: number("Monitor").map_or(MONITOR, Duration::from_nanos),
            failure_action: text("FailureAction").unwrap_or("pause").to_owned(),
            max_failure_ratio: ratio.unwrap_or_default(),
            is_start_first: text("Order") == Some("start-first"),
        }
    }
}

impl Cluster {
    /// Advances the updates of all services.
    pub(super) fn roll_out(&mut self) -> bool {
        let mut changed = false;
        for id in self.services.keys().cloned().collect::<Vec<_>>() {
            let Some(mut service) = self.services.get(&id).cloned() else { continue };
            if self.roll_out_one(&mut service) {
                self.services.insert(id, service);
                changed = true;
            }
        }
        changed
    }

    fn roll_out_one(&mut self, service: &mut ClusterService) -> bool {
        if service.job().is_some() {
            return false;
        }
        let state = service.update.as_ref().map(|update| update.state);
        if matches!(state, Some(UpdateState::Paused | UpdateState::RollbackPaused)) {
            return false;
        }
        let Some(mut rollout) = service.rollout.take() else { return self.begin(service, state) };
        let settings = Settings::of(service);
        if self.note_failures(service, &mut rollout, &settings) {
            return true;
        }
        let mut changed = self.work(service, &mut rollout, &settings);
        if rollout.waiting.is_empty() && rollout.workers.iter().all(|worker| matches!(worker, Worker::Free)) {
            match rollout.watched_until {
                None => {
                    rollout.watched_until = Some(self.now.after(settings.monitor));
                    changed = true;
                }
                Some(until) if until <= self.now => {
                    self.complete(service);
                    return true;
                }
                Some(_) => {}
            }
        }
        service.rollout = Some(rollout);
        changed
    }

    fn begin(&mut self, service: &mut ClusterService, state: Option<UpdateState>) -> bool {
        let dirty: BTreeSet<Place> = self
            .wanted_tasks(service)
            .filter(|task| self.is_outdated(service, task) && !self.is_on_paused_node(task))
            .map(Place::of)
            .collect();
        let is_open = matches!(state, Some(UpdateState::Updating | UpdateState::RollbackStarted));
        if dirty.is_empty() {
            if is_open {
                self.complete(service);
            }
            return is_open;
        }
        if state.is_none() {
            self.note(service, UpdateState::Updating, "update in progress".to_owned());
        }
        let settings = Settings::of(service);
        let number =
            if settings.parallelism == 0 { dirty.len() } else { settings.parallelism.min(dirty.len()) };
        service.rollout = Some(Rollout {
            size: dirty.len(),
            waiting: dirty.into_iter().collect(),
            workers: vec![Worker::Free; number],
            ..Rollout::default()
        });
        true
    }

    /// Whether an update replaces a task: it has another specification than it would get now. One that would only get another placement
    /// stays if its node fits.
    pub(super) fn is_outdated(&self, service: &ClusterService, task: &ClusterTask) -> bool {
        let wanted = service.template();
        let without_placement = |template: &Value| {
            let mut template = template.clone();
            if let Some(parts) = template.as_object_mut() {
                parts.remove("Placement");
            }
            template
        };
        let is_moved = task.template.get("Placement") != wanted.get("Placement");
        if is_moved && without_placement(&task.template) == without_placement(&wanted) {
            let node = task.node.as_ref().and_then(|node| self.nodes.get(node));
            if node.is_some_and(|node| meets_constraints(&wanted, node)) {
                return false;
            }
        }
        task.template != wanted || task.endpoint != service.endpoint()
    }

    /// Whether no update replaces a task, because it is one of a global service on a node that is paused.
    fn is_on_paused_node(&self, task: &ClusterTask) -> bool {
        let node = task.node.as_ref().and_then(|node| self.nodes.get(node));
        task.slot.is_none() && node.is_some_and(|node| node.availability == "pause")
    }

    fn wanted_tasks<'a>(&'a self, service: &'a ClusterService) -> impl Iterator<Item = &'a ClusterTask> {
        self.tasks.values().filter(|task| task.service == service.id && task.is_wanted())
    }

    /// Each worker does what it can. True if something has changed.
    fn work(&mut self, service: &ClusterService, rollout: &mut Rollout, settings: &Settings) -> bool {
        let mut changed = false;
        for index in 0..rollout.workers.len() {
            let Some(worker) = rollout.workers.get(index).cloned() else { continue };
            let next = match worker {
                Worker::Free => {
                    let Some(place) = rollout.waiting.pop_front() else { continue };
                    self.replace(service, rollout, place, settings)
                }
                Worker::Replacing { new, old } => {
                    let Some(next) = self.replaced(rollout, &new, &old, settings) else { continue };
                    next
                }
                Worker::Resting { until } if until <= self.now => Worker::Free,
                Worker::Resting { .. } => continue,
            };
            changed = true;
            if let Some(worker) = rollout.workers.get_mut(index) {
                *worker = next;
            }
        }
        changed
    }

    /// Begins to replace the task of a place.
    fn replace(
        &mut self,
        service: &ClusterService,
        rollout: &mut Rollout,
        place: Place,
        settings: &Settings,
    ) -> Worker {
        let (clean, old): (Vec<&ClusterTask>, Vec<&ClusterTask>) = self
            .wanted_tasks(service)
            .filter(|task| Place::of(task) == place)
            .partition(|task| !self.is_outdated(service, task));
        let old: Vec<String> = old.into_iter().map(|task| task.id.clone()).collect();
        let clean = clean.first().map(|task| task.id.clone());
        let new = match clean {
            Some(clean) => clean,
            None if settings.is_start_first => self.add_task(service, place, TaskState::Running),
            None => {
                let new = self.add_task(service, place, TaskState::Ready);
                if let Some(task) = self.tasks.get_mut(&new) {
                    task.after.clone_from(&old);
                }
                new
            }
        };
        rollout.made.insert(new.clone(), None);
        if !settings.is_start_first {
            self.shut_down(&old);
        }
        Worker::Replacing { new, old }
    }

    /// The next state of a worker that has looked at its new task. `None`: it waits.
    fn replaced(
        &mut self,
        rollout: &mut Rollout,
        new: &str,
        old: &[String],
        settings: &Settings,
    ) -> Option<Worker> {
        let now = self.now;
        // Somebody may have scaled the service down.
        let state = self.tasks.get(new).map_or(TaskState::Remove, |task| task.state);
        if state < TaskState::Running {
            return None;
        }
        rollout.made.insert(new.to_owned(), Some(now));
        if state == TaskState::Running {
            self.shut_down(old);
        }
        Some(if settings.delay.is_zero() {
            Worker::Free
        } else {
            Worker::Resting { until: now.after(settings.delay) }
        })
    }

    fn shut_down(&mut self, tasks: &[String]) {
        for id in tasks {
            if let Some(task) = self.tasks.get_mut(id).filter(|task| task.is_wanted()) {
                task.desired = TaskState::Shutdown;
            }
        }
    }

    /// Counts new tasks that have ended too early. True if that ends the update.
    fn note_failures(
        &mut self,
        service: &mut ClusterService,
        rollout: &mut Rollout,
        settings: &Settings,
    ) -> bool {
        if settings.failure_action == "continue" {
            return false;
        }
        let now = self.now;
        for (id, since) in &rollout.made {
            let is_early = since.is_none_or(|since| now.since(since) <= settings.monitor);
            let has_ended = self.tasks.get(id).is_some_and(ClusterTask::has_ended);
            // One that was asked to end is no failure.
            let was_asked = self.tasks.get(id).is_some_and(|task| task.state == TaskState::Shutdown);
            if !is_early || !has_ended || was_asked || !rollout.failed.insert(id.clone()) {
                continue;
            }
            #[expect(clippy::cast_precision_loss, reason = "there are few tasks")]
            let ratio = rollout.failed.len() as f64 / rollout.size.max(1) as f64;
            if ratio <= settings.max_failure_ratio {
                continue;
            }
            let is_rollback =
                service.update.as_ref().is_some_and(|update| update.state == UpdateState::RollbackStarted);
            let why = format!("due to failure or early termination of task {id}");
            match (settings.failure_action.as_str(), is_rollback, service.previous.take()) {
                ("rollback", false, Some(previous)) => {
                    service.spec = previous;
                    self.note(service, UpdateState::RollbackStarted, format!("update rolled back {why}"));
                }
                (_, true, previous) => {
                    service.previous = previous;
                    self.note(service, UpdateState::RollbackPaused, format!("rollback paused {why}"));
                }
                (_, false, previous) => {
                    service.previous = previous;
                    self.note(service, UpdateState::Paused, format!("update paused {why}"));
                }
            }
            return true;
        }
        false
    }

    fn complete(&mut self, service: &mut ClusterService) {
        let is_rollback =
            service.update.as_ref().is_some_and(|update| update.state == UpdateState::RollbackStarted);
        if is_rollback {
            self.note(service, UpdateState::RollbackCompleted, "rollback completed".to_owned());
        } else {
            self.note(service, UpdateState::Completed, "update completed".to_owned());
        }
    }

    /// Notes the state of the update, which is a write of the service.
    fn note(&mut self, service: &mut ClusterService, state: UpdateState, message: String) {
        let now = self.now;
        let before = service
            .update
            .as_ref()
            .filter(|_| !matches!(state, UpdateState::Updating | UpdateState::RollbackStarted));
        let started = before.map_or(now, |update| update.started);
        let is_over = matches!(state, UpdateState::Completed | UpdateState::RollbackCompleted);
        service.update = Some(RolloutStatus { state, started, completed: is_over.then_some(now), message });
        service.version = self.next_index();
    }
}
