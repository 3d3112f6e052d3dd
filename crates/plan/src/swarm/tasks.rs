//! Tasks of a Swarm as instances, so that statuses read as on a single host, and what the record keeps of services.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use driftless_model::{
    CompletedJobs, Container, ContainerId, EngineKind, Health, Healthcheck, Instance, InstanceId, JobRecord,
    LiveSettings, Observed, ObservedService, ObservedSwarm, Readiness, Record, ResolvedImage, SpecHash,
    Stack, State, Subject, SwarmMode, SwarmRecord, SwarmTask, Timestamp, Workload, WorkloadName,
    WrittenService, label, swarm_service_name,
};
use serde_json::Value;

use super::{
    action::{SwarmAction, SwarmResult},
    job_tasks::{failure, has_ended, is_of_job, is_over},
    ownership::workload_of,
    spec::{OWNER, wanted},
};
use crate::{
    action::Action,
    facts::{
        jobs::{self, JobPart},
        places::Place,
    },
    record::outcome::StepOutcome,
    steps::Plan,
    target::Target,
    text::NO_CODE,
};

/// The digest of a specification.
pub(super) fn digest(spec: &Value) -> String {
    driftless_model::digest_hex(spec.to_string().as_bytes())
}

/// The tasks of a service with its present specification.
pub(super) struct TaskCount {
    /// Those that run, and those that are [`completed`].
    pub(super) available: u64,
    pub(super) wanted: u64,
    /// Whether a task with an older specification runs as well.
    has_older: bool,
}

impl TaskCount {
    pub(super) fn of(swarm: &ObservedSwarm, workload: Option<&Workload>, found: &ObservedService) -> Self {
        let (current, older): (Vec<&SwarmTask>, Vec<&SwarmTask>) = swarm
            .tasks_of(&found.id)
            .filter(|task| is_running(task))
            .partition(|task| task.is_current || is_kept(swarm, found, task));
        let available = current.len() + completed(swarm, found).len();
        let wanted = desired(swarm, found, workload);
        Self { available: available as u64, wanted, has_older: !older.is_empty() }
    }

    pub(super) fn is_reached(&self) -> bool {
        self.available >= self.wanted && !self.has_older
    }
}

/// The tasks with the present specification that have ended with success and that the Swarm does not start again, as their restart
/// policy says: they have done their work. Those of Jobs are counted by [`super::job_tasks`].
pub(super) fn completed<'a>(swarm: &'a ObservedSwarm, service: &'a ObservedService) -> Vec<&'a SwarmTask> {
    let condition = service.spec.pointer("/TaskTemplate/RestartPolicy/Condition").and_then(Value::as_str);
    if service.is_job() || !matches!(condition, Some("none" | "on-failure")) {
        return Vec::new();
    }
    let has_done_its_work =
        |task: &&SwarmTask| task.state == "complete" && task.desired_state != "remove" && task.is_current;
    newest(swarm.tasks_of(&service.id)).filter(has_done_its_work).collect()
}

/// The number of the replica of a task. The tasks of a global service have a node of their own.
pub(super) fn place_of(task: &SwarmTask) -> (Option<u32>, Option<&String>) {
    (task.slot, task.node.as_ref().filter(|_| task.slot.is_none()))
}

/// The newest of these tasks for each replica, or for each node of a global service.
pub(super) fn newest<'a>(tasks: impl Iterator<Item = &'a SwarmTask>) -> impl Iterator<Item = &'a SwarmTask> {
    let mut newest: BTreeMap<_, &SwarmTask> = BTreeMap::new();
    for task in tasks {
        let last = newest.entry(place_of(task)).or_insert(task);
        if task.created >= last.created {
            *last = task;
        }
    }
    newest.into_values()
}

/// The state and words of an update that has failed, and why the task failed that they name by its id.
///
/// A Swarm also pauses an update if a task ends by itself that is to do so. That is no failure once all tasks run or have ended.
pub(super) fn failed_update(
    swarm: &ObservedSwarm,
    found: &ObservedService,
    workload: Option<&Workload>,
) -> Option<String> {
    let is_failed = matches!(
        found.update_state.as_str(),
        "paused" | "rollback_started" | "rollback_paused" | "rollback_completed"
    );
    if !is_failed {
        return None;
    }
    let words = format!("{}: {}", found.update_state, found.update_message);
    let is_named = |task: &&SwarmTask| words.split_whitespace().any(|word| word == task.id);
    let named = swarm.tasks_of(&found.id).find(is_named);
    let is_done = found.update_state == "paused" && completed(swarm, found).iter().any(is_named);
    if is_done && TaskCount::of(swarm, workload, found).is_reached() {
        return None;
    }
    Some(match named.map(|task| (task, failure(task))) {
        Some((task, why)) if !why.is_empty() => {
            let node = swarm.node_name(task.node.as_deref().unwrap_or_default());
            format!("{words} on {node}: {why}")
        }
        Some((task, _)) if task.state == "complete" => format!("{words}: it ended by itself with code 0"),
        _ => words,
    })
}

/// Whether a task runs. With a health check, Swarm says so once it succeeds.
pub(super) fn is_running(task: &SwarmTask) -> bool {
    task.state == "running" && matches!(task.desired_state.as_str(), "running" | "complete")
}

/// Whether the Swarm leaves an older task of a global service as it is: it updates none on a node that is paused. It counts as updated
/// once another node has the update.
fn is_kept(swarm: &ObservedSwarm, service: &ObservedService, task: &SwarmTask) -> bool {
    let node = task.node.as_ref().and_then(|node| swarm.nodes.get(node));
    let is_updated = |other: &SwarmTask| is_running(other) && other.is_current;
    service.mode() == Some(SwarmMode::Global)
        && node.is_some_and(|node| node.availability == "pause")
        && is_running(task)
        && !task.is_current
        && swarm.tasks_of(&service.id).any(is_updated)
}

/// The names of the paused nodes on which the Swarm keeps an older task of a global service.
pub(super) fn paused_nodes<'a>(swarm: &'a ObservedSwarm, service: &'a ObservedService) -> BTreeSet<&'a str> {
    let kept = swarm.tasks_of(&service.id).filter(|task| is_kept(swarm, service, task));
    kept.filter_map(|task| Some(swarm.node_name(task.node.as_deref()?))).collect()
}

/// Whether all that the update of a service still lacks are tasks of nodes that are down. A Swarm goes on with such an update when the
/// nodes are back, which may be never, and calls it `updating` until then. All other nodes have it.
pub(super) fn waits_for_lost_nodes(swarm: &ObservedSwarm, service: &ObservedService) -> bool {
    let is_lost = |task: &SwarmTask| {
        let node = task.node.as_ref().and_then(|node| swarm.nodes.get(node));
        node.is_some_and(|node| node.state == "down")
    };
    let is_lacking = |task: &&SwarmTask| task.is_current && !is_running(task) && !has_ended(task);
    let mut lacking = swarm.tasks_of(&service.id).filter(is_lacking).peekable();
    lacking.peek().is_some() && lacking.all(is_lost)
}

/// Whether the Swarm may start tasks of the former specification again.
pub(super) fn may_go_back(swarm: &ObservedSwarm, service: &ObservedService) -> bool {
    let action = service.spec.pointer("/UpdateConfig/FailureAction").and_then(|it| it.as_str());
    let is_updating = service.update_state == "updating" && action == Some("rollback");
    is_updating && !waits_for_lost_nodes(swarm, service)
}

/// A volume or folder of a task, as messages name it.
pub(super) fn place(data: &str) -> Place {
    let name = data.to_owned();
    if data.starts_with('/') { Place::NodePath(name) } else { Place::Volume(name) }
}

/// The number of tasks that a service should have.
pub(super) fn desired(swarm: &ObservedSwarm, service: &ObservedService, workload: Option<&Workload>) -> u64 {
    match service.spec.pointer("/Mode/Replicated/Replicas").and_then(Value::as_u64) {
        Some(replicas) => workload.map_or(replicas, |workload| u64::from(workload.replicas)),
        None => service.desired_tasks.map_or(1, |wanted| wanted + uncounted_nodes(swarm, service)),
    }
}

/// The number of nodes whose task of a global service has ended. A Swarm counts only those whose task it wants to run now, so a
/// service that fails on all nodes would have all that it wants.
///
/// A task that has failed for good counts only with the present specification, as another one may exclude its node.
fn uncounted_nodes(swarm: &ObservedSwarm, service: &ObservedService) -> u64 {
    if service.mode() != Some(SwarmMode::Global) {
        return 0;
    }
    let is_in_use = |task: &SwarmTask| {
        let node = task.node.as_ref().and_then(|node| swarm.nodes.get(node));
        node.is_some_and(|node| node.state == "ready" && node.availability == "active")
    };
    let is_uncounted = |task: &&SwarmTask| match (task.desired_state.as_str(), task.state.as_str()) {
        // Another try, after a pause.
        ("ready", _) => is_in_use(task),
        ("shutdown", "failed" | "rejected") => is_in_use(task) && task.is_current,
        _ => false,
    };
    let has_ended_well = completed(swarm, service).into_iter().filter(|it| it.desired_state == "shutdown");
    (newest(swarm.tasks_of(&service.id)).filter(is_uncounted).count() + has_ended_well.count()) as u64
}

/// The time in which a Swarm counts the nodes that fit a new service.
const COUNTED: Duration = Duration::from_secs(10);

/// Whether a Swarm has had the time to create the first tasks of a service that has one on each node.
pub(super) fn is_counted(service: &ObservedService, now: Timestamp) -> bool {
    let is_by_node = matches!(service.mode(), Some(SwarmMode::Global | SwarmMode::GlobalJob));
    !is_by_node || now.since(service.created) >= COUNTED
}

/// Whether a service should have no tasks: it has 0 replicas, or no node fits.
pub(super) fn wants_none(
    swarm: &ObservedSwarm,
    service: &ObservedService,
    workload: Option<&Workload>,
    now: Timestamp,
) -> bool {
    desired(swarm, service, workload) == 0 && is_counted(service, now)
}

/// Adds the tasks of a Swarm to the instances, and notes updates that the Swarm has paused or rolled back.
pub fn with_tasks(target: &Target<'_>, observed: &mut Observed, record: &mut Record) {
    if target.policy.engine != EngineKind::Swarm {
        return;
    }
    let Some(mut swarm) = observed.swarm.take() else { return };
    if let Some(state) = swarm.shared.as_ref().and_then(|shared| shared.state.as_ref()) {
        take_over_jobs(record, target.stack, &state.completed_jobs);
    }
    let names = target.stack.workloads.keys();
    let at_rest: BTreeSet<&WorkloadName> = names.filter(|name| target.is_at_rest(record, name)).collect();
    let kept = record.swarm.get_or_insert_default();
    if swarm.leader().is_some() && !swarm.is_leader() {
        // Another leader has not heard of these requests. Done when this node leads again, they would surprise.
        kept.restarts.clear();
        kept.adopts.clear();
        // It resolves the images.
        kept.images.extend(kept.shared.digests.clone());
    }
    let is_pinned = |image: &String| target.images.values().any(|it| it == image);
    kept.images.retain(|image, _| is_pinned(image) || target.stack.images().any(|it| it == image));
    note_own(kept, target.stack, &mut swarm);
    kept.adopts.retain(|name| {
        let service = swarm.services.get(&swarm_service_name(&target.stack.project, name));
        service.is_some_and(|service| service.is_of_stack(&target.stack.project))
    });
    kept.restarts.retain(|name, before| {
        let service = swarm.services.get(&swarm_service_name(&target.stack.project, name));
        service.is_some_and(|service| service.forced_updates() == *before)
    });
    for (full, service) in &swarm.services {
        let is_it = |subject: &Subject<'_>| swarm_service_name(&target.stack.project, subject.name) == *full;
        let subject = target.stack.subjects().find(is_it).filter(|it| !it.workload.is_template());
        let part = subject.and_then(|subject| Some(JobPart { subject, job: subject.workload.job()? }));
        let hash = subject.map(|subject| wanted(target, subject, &ResolvedImage::default()).hash);
        let is_of_git = match part {
            Some(part) => is_of_job(service, part),
            None => hash.is_some() && service.label(label::SPEC) == hash.as_deref(),
        };
        if let (Some(written), Some(hash), None) = (kept.services.get_mut(full), hash, part)
            && written.wanted == hash
            && written.failed.is_none()
            && subject.is_none_or(|subject| !at_rest.contains(subject.name))
        {
            let workload = subject.map(|subject| subject.workload);
            written.failed = failed_update(&swarm, service, workload).map(|words| (hash, words));
        }
        let name = match (subject, service.label(label::WORKLOAD)) {
            (Some(subject), _) => subject.name.clone(),
            (None, known) if known.is_some() || service.is_unlabelled => workload_of(full, service),
            (None, _) => continue,
        };
        for task in shown_tasks(&swarm, service) {
            let spec = match subject {
                Some(subject) if is_of_git && (task.is_current || is_kept(&swarm, service, task)) => {
                    target.spec(subject)
                }
                Some(_) | None => SpecHash(String::new()),
            };
            let node = swarm.node_name(task.node.as_deref().unwrap_or_default());
            let config = subject.map(|subject| subject.workload.container.clone()).unwrap_or_default();
            // The slots of a Job begin with 0.
            let slot = if service.is_job() { task.slot.unwrap_or(0) + 1 } else { task.slot.unwrap_or(1) };
            let instance = InstanceId { workload: name.clone(), slot };
            let place = TaskPlace { service: full, node, task };
            let made = instance_of(target, place, instance, spec, config);
            // A task does not run again when the engine of this host starts.
            if task.state == "complete" && !service.is_job() {
                record.completed.insert(made.id.clone());
            }
            observed.instances.insert(made.id.clone(), made);
        }
    }
    kept.services.retain(|name, _| swarm.services.contains_key(name));
    observed.swarm = Some(swarm);
}

/// Remembers the services with the labels of the application, by any agent: they stay its own without them. Marks those that have lost
/// them.
fn note_own(kept: &mut SwarmRecord, stack: &Stack, swarm: &mut ObservedSwarm) {
    kept.own.retain(|name, id| swarm.services.get(name).is_some_and(|service| service.id == *id));
    let is_own = |service: &ObservedService| {
        let app = service.label(label::APPLICATION);
        service.label(label::AGENT) == Some(OWNER) && app == Some(stack.app.as_str())
    };
    let own = swarm.services.iter().filter(|(_, service)| is_own(service));
    kept.own.extend(own.map(|(name, service)| (name.clone(), service.id.clone())));
    for (name, service) in &mut swarm.services {
        let is_of_other = service.label(label::APPLICATION).is_some_and(|app| app != stack.app.as_str());
        let is_known = kept.own.get(name) == Some(&service.id);
        service.is_unlabelled = is_known && !is_of_other && service.label(label::AGENT).is_none();
    }
}

/// Remembers the Jobs that other agents saw completed. Those that this one has not begun count as complete as well.
fn take_over_jobs(record: &mut Record, stack: &Stack, completed: &CompletedJobs) {
    record.completed_jobs.take_over(completed);
    let is_to_run = |name: &WorkloadName, job: &JobRecord| {
        let completed_at = || jobs::completed_at(completed, name, &jobs::parts_of(stack, name));
        !job.begun && job.ended.is_none() && completed_at().is_some()
    };
    record.jobs.retain(|name, job| !is_to_run(name, job));
}

/// The tasks that a status shows: those that the Swarm wants, those that have done their work, and of a Job the last try of each.
fn shown_tasks<'a>(swarm: &'a ObservedSwarm, service: &'a ObservedService) -> Vec<&'a SwarmTask> {
    let tasks = swarm.tasks_of(&service.id);
    if !service.is_job() {
        let leaves = |task: &&SwarmTask| !matches!(task.desired_state.as_str(), "shutdown" | "remove");
        return tasks.filter(leaves).chain(completed(swarm, service)).collect();
    }
    let mut newest: BTreeMap<_, &SwarmTask> = BTreeMap::new();
    for task in tasks.filter(|task| task.is_current || !is_over(task)) {
        let node = task.node.as_ref().filter(|_| service.mode() == Some(SwarmMode::GlobalJob));
        let shown = newest.entry((task.slot, node)).or_insert(task);
        if task.created >= shown.created {
            *shown = task;
        }
    }
    newest.into_values().collect()
}

/// A task, and where it runs.
struct TaskPlace<'a> {
    service: &'a str,
    node: &'a str,
    task: &'a SwarmTask,
}

fn instance_of(
    target: &Target<'_>,
    TaskPlace { service, node, task }: TaskPlace<'_>,
    instance: InstanceId,
    spec: SpecHash,
    config: Container,
) -> Instance {
    let (state, readiness) = match task.state.as_str() {
        "running" => (
            State::Running { since: task.since, health: Health::Healthy },
            Readiness::Ready { since: task.since },
        ),
        "starting" => starting(task, config.healthcheck.as_ref()),
        "failed" | "rejected" | "orphaned" => (
            State::Exited {
                code: task.exit_code.unwrap_or(NO_CODE),
                finished: task.since,
                out_of_memory: false,
                error: task.error.clone(),
            },
            Readiness::Starting { reason: task.error.clone() },
        ),
        "complete" => (
            State::Exited { code: 0, finished: task.since, out_of_memory: false, error: String::new() },
            Readiness::Starting { reason: String::new() },
        ),
        other => (State::Created, Readiness::Starting { reason: format!("{other}: {}", task.error) }),
    };
    let place = if node.is_empty() { "no node yet" } else { node };
    Instance {
        // Its container is known to one node, the task to all managers.
        id: ContainerId(task.id.clone()),
        name: format!(
            "{service}.{} on {place}",
            task.slot.map_or_else(|| task.id.clone(), |slot| slot.to_string())
        ),
        instance,
        agent: target.agent.clone(),
        spec,
        created: task.created,
        started: None,
        state,
        readiness,
        restarts: 0,
        networks: BTreeMap::new(),
        live: LiveSettings { resources: config.resources.normal(), restart: config.restart },
        config: Arc::new(config),
        image_id: String::new(),
        anonymous_volumes: BTreeMap::new(),
        empty_volumes: BTreeMap::new(),
        part: None,
        hosts: BTreeSet::new(),
        volumes_of: BTreeSet::new(),
        bound_ports: Vec::new(),
        touched_by_hand: None,
        last_output: String::new(),
        check_output: String::new(),
        healthy_before: false,
    }
}

/// A task whose container is being started. With a health check, it stays so until that succeeds.
fn starting(task: &SwarmTask, check: Option<&Healthcheck>) -> (State, Readiness) {
    let running = |health| State::Running { since: task.since, health };
    let (state, reason) = match check.map(|check| check.test.first().map(String::as_str)) {
        Some(Some("NONE")) => (State::Created, "it is starting"),
        Some(_) => (running(Health::Starting), "its health check has not succeeded yet"),
        None => (running(Health::Healthy), "it is starting, or waits for the health check of its image"),
    };
    (state, Readiness::Starting { reason: reason.to_owned() })
}

/// The stack with the number of tasks that the Swarm wants of each global service. `None`: it is as it was.
pub fn with_global_tasks(stack: &Stack, observed: &Observed) -> Option<Stack> {
    let swarm = observed.swarm.as_deref()?;
    let number = |name: &WorkloadName| {
        let service = swarm.services.get(&swarm_service_name(&stack.project, name))?;
        u32::try_from(desired(swarm, service, None)).ok()
    };
    let is_global =
        |name: &WorkloadName| stack.swarm.get(name).is_some_and(|service| service.mode == SwarmMode::Global);
    let global = stack.workloads.iter().filter(|(name, _)| is_global(name));
    let changed: Vec<(WorkloadName, u32)> = global
        .filter_map(|(name, workload)| {
            Some((name.clone(), number(name).filter(|count| *count != workload.replicas)?))
        })
        .collect();
    if changed.is_empty() {
        return None;
    }
    let mut fitted = Stack { given: Some(stack.as_given()), ..stack.clone() };
    for (name, count) in changed {
        if let Some(workload) = fitted.workloads.get_mut(&name) {
            workload.replicas = count;
        }
    }
    Some(fitted)
}

/// Notes the answers of managers in the record.
///
/// A service that was written has the time of its deadline from then on: it may have waited for others, and the Swarm creates its tasks
/// a moment later.
pub(crate) fn note_executed(record: &mut Record, plan: &Plan, outcomes: &[StepOutcome], now: Timestamp) {
    for (step, outcome) in plan.steps.iter().zip(outcomes) {
        let (Action::Swarm(action), StepOutcome::Swarm(result)) = (&step.action, outcome) else { continue };
        let kept = record.swarm.get_or_insert_default();
        match (action.as_ref(), result.as_ref()) {
            (SwarmAction::ResolveImage { image, .. }, SwarmResult::Resolved(resolved)) => {
                kept.images.insert(image.clone(), resolved.clone());
            }
            (
                SwarmAction::CreateService { name, spec, .. } | SwarmAction::UpdateService { name, spec, .. },
                SwarmResult::Written { id, spec: returned },
            ) => {
                let label = |name: &str| spec.get("Labels").and_then(|labels| labels.get(name)?.as_str());
                let workload = label(label::WORKLOAD).map(|name| WorkloadName(name.to_owned()));
                if let Some(progress) = workload.and_then(|name| record.progress.get_mut(&name)) {
                    progress.at = now;
                }
                let written = WrittenService {
                    id: id.clone(),
                    wanted: label(label::SPEC).unwrap_or_default().to_owned(),
                    returned: digest(returned),
                    failed: None,
                };
                kept.services.insert(name.clone(), written);
            }
            _ => {}
        }
    }
}
