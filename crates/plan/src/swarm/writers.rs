//! Data that passes from one service to another, as in a rename: no task starts on what a service that Git does not have any more, or
//! has otherwise, still writes to.
//!
//! A volume or folder of one name counts as the same on all nodes: it may be a share of all, or the tasks may meet on one node.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use driftless_model::{
    ObservedService, ObservedSwarm, Stack, Subject, SwarmMode, SwarmTask, WorkloadName, is_system_path,
    swarm_service_name, wanted_data,
};

use super::{
    dependencies::unmet_dependencies,
    files::missing_files,
    images::usable_image,
    job_tasks::is_active,
    networks::NetworkSteps,
    other_services::{OtherService, other_services},
    ownership::{is_of_application, objection, workload_of},
    tasks::{may_go_back, place, wants_none},
    volumes,
};
use crate::{
    decide::waves,
    draft::Draft,
    facts::{Facts, waiting},
    wait::{Wait, WaitObject, WaitReason},
};

/// The time in which a new task usually runs.
const RESTART: Duration = Duration::from_secs(30);

/// The services of an application that may write to data. Jobs are not among them: they may work on the data of what runs.
pub(super) struct Writers<'a> {
    facts: &'a Facts<'a>,
    pub(super) swarm: &'a ObservedSwarm,
    /// By the name of a volume or the path of a folder: the names of the services that may write to it.
    by_data: BTreeMap<String, BTreeSet<&'a str>>,
    /// By the name of a service: what its tasks write to.
    active: BTreeMap<&'a str, BTreeSet<&'a str>>,
    /// The data that tasks of removed services still write to.
    left: BTreeSet<&'a str>,
    /// The services of other applications that write to data.
    others: Vec<OtherService<'a>>,
    /// The workloads of Git by the names of their services.
    pub(super) workloads: BTreeMap<String, Subject<'a>>,
    /// Those of them that lack their image, a file or a network.
    incomplete: BTreeSet<&'a WorkloadName>,
    /// The services that Git does not have any more and that the agent removes.
    removed: BTreeSet<&'a str>,
}

/// A service that may write to what Git gives to another one.
struct Writer<'a> {
    /// Its name. `None`: it is removed, and a task of it still runs.
    service: Option<&'a str>,
    /// Its workload, if Git still has that, without this data.
    workload: Option<&'a WorkloadName>,
    data: String,
}

impl<'a> Writers<'a> {
    pub(super) fn of(
        facts: &'a Facts<'a>,
        swarm: &'a ObservedSwarm,
        networks: &NetworkSteps,
        removed: BTreeSet<&'a str>,
    ) -> Self {
        let stack = facts.target.stack;
        let of_git = stack.subjects().filter(|subject| !subject.workload.is_template());
        let workloads = of_git.map(|it| (swarm_service_name(&stack.project, it.name), it)).collect();
        let incomplete = stack.subjects().filter(|it| !has_parts(facts, swarm, networks, *it));
        let incomplete = incomplete.map(|it| it.name).collect();
        let (by_data, active, left) = (BTreeMap::new(), BTreeMap::new(), data_of_removed(swarm));
        let others = other_services(facts, swarm);
        let mut all = Self { facts, swarm, by_data, active, left, others, workloads, incomplete, removed };
        let is_meant = |service: &ObservedService| {
            !service.is_job() && (is_of_application(stack, service) || service.is_of_stack(&stack.project))
        };
        let services = swarm.services.iter().filter(|(_, service)| is_meant(service));
        let by_id: BTreeMap<&str, (&'a str, &'a ObservedService)> =
            services.map(|(name, service)| (service.id.as_str(), (name.as_str(), service))).collect();
        for (name, service) in by_id.values() {
            for data in service.writes() {
                all.by_data.entry(data).or_default().insert(*name);
            }
        }
        let going_back: BTreeSet<&str> =
            by_id.iter().filter(|(_, (_, found))| may_go_back(swarm, found)).map(|(id, _)| *id).collect();
        for task in swarm.tasks.values() {
            let Some((name, _)) = by_id.get(task.service.as_str()) else { continue };
            if is_active(swarm, task) {
                all.active.entry(*name).or_default().extend(task.writes.iter().map(String::as_str));
            } else if !going_back.contains(task.service.as_str()) {
                continue;
            }
            for data in &task.writes {
                all.by_data.entry(data.clone()).or_default().insert(*name);
            }
        }
        all
    }

    /// Whether nobody writes to the data of a service who is not to do so together with it. Says who does.
    pub(super) fn is_free(&self, draft: &mut Draft<'_>, subject: Subject<'_>) -> bool {
        if let Some((other, data)) = self.kept_by_other(subject) {
            draft.wait(other.wait(&self.facts.target.stack.app, subject.name, data));
            return false;
        }
        let mut writers = self.writers_before(subject);
        // The others make way only once those that stay are gone.
        writers.sort_by_key(|writer| !self.stays(writer));
        let Some(Writer { service, workload: giver, data }) = writers.into_iter().next() else { return true };
        let place = place(&data);
        let Some(service) = service else {
            let sentence = format!(
                "waits until the tasks of a removed service have stopped: they still write to {place}"
            );
            draft.wait(Wait::new(
                WaitObject::Workload(subject.name.clone()),
                WaitReason::Dependency,
                sentence,
            ));
            return false;
        };
        let giver = giver.cloned().or_else(|| Some(workload_of(service, self.removed(service)?)));
        draft.wait(match giver {
            Some(giver) => Wait::dependency(subject.name, &giver, &format!("it still writes to {place}")),
            None => Wait::data_in_use(subject.name, &place, service),
        });
        false
    }

    /// Whether the tasks of a service of Git stop before it can be updated: it gives data up that another one waits for, and itself
    /// waits for that one.
    pub(super) fn must_stop_first(&self, draft: &Draft<'_>, subject: Subject<'_>) -> bool {
        let has_data_of = |taker: Subject<'_>| {
            self.writers_before(taker).iter().any(|writer| writer.workload == Some(subject.name))
        };
        let takers = self.workloads.values().filter(|taker| taker.name != subject.name);
        !self.facts.is_held_by_hooks
            && takers.copied().any(|taker| {
                has_data_of(taker)
                    && self.is_ready(draft, taker)
                    && !self.is_restarting(taker)
                    && self.waits_for(draft, subject.name, taker.name)
            })
    }

    /// A service that Git does not have any more, if the agent removes it.
    pub(super) fn removed(&self, service: &str) -> Option<&'a ObservedService> {
        self.swarm.services.get(service).filter(|_| self.removed.contains(service))
    }

    /// Whether a service waits for nothing but data. Nothing makes way for one that cannot start.
    fn is_ready(&self, draft: &Draft<'_>, subject: Subject<'_>) -> bool {
        !self.incomplete.contains(subject.name)
            && !self.is_blocked(subject)
            && waves::reason_to_wait(draft, subject).is_none()
            && unmet_dependencies(draft, self.swarm, subject).is_empty()
    }

    /// Whether a writer goes on until a person acts, or until its last tasks have stopped.
    fn stays(&self, writer: &Writer<'_>) -> bool {
        writer.workload.is_none() && writer.service.is_none_or(|service| !self.removed.contains(service))
    }

    /// Whether the agent may not touch a service, its volumes are not those of the nodes, or others keep its data.
    fn is_blocked(&self, subject: Subject<'_>) -> bool {
        let stack = self.facts.target.stack;
        let found = self.swarm.services.get(&swarm_service_name(&stack.project, subject.name));
        found.is_some_and(|found| objection(self.facts, subject.name, found).is_some())
            || volumes::changed(stack, self.swarm, subject).is_some()
            || self.kept_by_other(subject).is_some()
            || self.writers_before(subject).iter().any(|writer| self.stays(writer))
    }

    /// Whether a service of Git lacks its image, a file or a network. A Job that is complete needs none.
    pub(super) fn lacks_parts(&self) -> bool {
        let mut services = self.workloads.values().filter(|it| it.workload.job().is_none());
        services.any(|subject| self.incomplete.contains(subject.name))
    }

    /// Whether all services of Git that take the data of this one are blocked.
    pub(super) fn has_only_blocked_takers(&self, service: &str) -> bool {
        let is_taker = |subject: &&Subject<'_>| {
            self.writers_before(**subject).iter().any(|writer| writer.service == Some(service))
        };
        let mut takers = self.workloads.values().filter(is_taker).peekable();
        takers.peek().is_some() && takers.all(|taker| self.is_blocked(*taker))
    }

    /// Whether a service that the agent wrote has another mode in Git, so that another one takes its place.
    pub(super) fn changes_mode(&self, subject: Subject<'_>, found: &ObservedService) -> bool {
        let stack = self.facts.target.stack;
        let mode = stack.swarm.get(subject.name).map(|service| service.mode).unwrap_or_default();
        found.mode().is_some_and(|found| found != mode) && !found.is_of_stack(&stack.project)
    }

    /// Whether the Swarm has just replaced a task of a service, which may soon run again. Tasks that fail again and again are not
    /// waited for.
    fn is_restarting(&self, Subject { name, workload }: Subject<'_>) -> bool {
        let (swarm, now) = (self.swarm, self.facts.now);
        let service = swarm.services.get(&swarm_service_name(&self.facts.target.stack.project, name));
        let Some(service) = service.filter(|service| !wants_none(swarm, service, Some(workload), now)) else {
            return false;
        };
        let has_failed = |task: &&SwarmTask| {
            matches!(task.state.as_str(), "failed" | "rejected") && now.since(task.since) < RESTART * 2
        };
        let newest = swarm.tasks_of(&service.id).map(|task| task.created).max();
        newest.is_some_and(|created| now.since(created) < RESTART)
            && swarm.tasks_of(&service.id).filter(has_failed).count() < 2
    }

    /// Whether a service waits for another one, itself or through others.
    fn waits_for(&self, draft: &Draft<'_>, name: &WorkloadName, to: &WorkloadName) -> bool {
        waiting::waits_for(self.facts.target.stack, name, to, |subject| self.awaited(draft, subject))
    }

    /// The workloads that a service waits for, for their tasks or for data.
    pub(super) fn awaited<'s>(&self, draft: &Draft<'_>, subject: Subject<'s>) -> Vec<&'s WorkloadName>
    where
        'a: 's,
    {
        let unmet = unmet_dependencies(draft, self.swarm, subject).into_iter().map(|(on, _)| on);
        let givers = self.writers_before(subject).into_iter().filter_map(|writer| writer.workload);
        unmet.chain(givers).collect()
    }

    /// Whether a service may write to data with others: it has tasks, which are no work that ends.
    fn may_write(&self, Subject { name, workload }: Subject<'_>) -> bool {
        let has_none = workload.replicas == 0 && !is_on_each_node(self.facts.target.stack, name);
        !has_none && workload.job_or_template().is_none()
    }

    /// A service of another application that keeps this one from its data, which the Swarm does not give it yet.
    fn kept_by_other<'s>(&self, subject: Subject<'s>) -> Option<(&OtherService<'a>, &'s str)> {
        if self.others.is_empty() || !self.may_write(subject) {
            return None;
        }
        let stack = self.facts.target.stack;
        let present = self.swarm.services.get(&swarm_service_name(&stack.project, subject.name));
        let present = present.map(ObservedService::writes).unwrap_or_default();
        wanted_data(subject.workload).filter(|data| !present.contains(*data)).find_map(|data| {
            let other = self.others.iter().find(|other| other.keeps(self.facts, subject.name, data))?;
            Some((other, data))
        })
    }

    /// The services that may write to what this one is to write to, unless they do so in Git, too. A service goes on with data that it
    /// writes to already, unless it has to stop for another mode.
    fn writers_before(&self, subject: Subject<'_>) -> Vec<Writer<'a>> {
        let Subject { name, workload } = subject;
        let stack = self.facts.target.stack;
        if (self.by_data.is_empty() && self.left.is_empty()) || !self.may_write(subject) {
            return Vec::new();
        }
        let own = swarm_service_name(&stack.project, name);
        let found = self.swarm.services.get(&own);
        let stays = !found.is_some_and(|found| self.changes_mode(subject, found));
        let known = self.active.get(own.as_str()).filter(|_| stays);
        let mut found = Vec::new();
        for data in wanted_data(workload).filter(|data| known.is_none_or(|known| !known.contains(*data))) {
            if self.left.contains(data) {
                found.push(Writer { service: None, workload: None, data: data.to_owned() });
            }
            let services = self.by_data.get(data).into_iter().flatten().copied();
            for service in services.filter(|service| *service != own) {
                let subject = self.workloads.get(service);
                if subject.is_none_or(|it| wanted_data(it.workload).all(|kept| kept != data)) {
                    let workload = subject.map(|it| it.name);
                    found.push(Writer { service: Some(service), workload, data: data.to_owned() });
                }
            }
        }
        found
    }
}

/// Whether a service can have its image, its files and its networks.
fn has_parts(
    facts: &Facts<'_>,
    swarm: &ObservedSwarm,
    networks: &NetworkSteps,
    subject: Subject<'_>,
) -> bool {
    let stack = facts.target.stack;
    usable_image(facts, swarm, subject).is_some()
        && missing_files(stack, swarm, subject.name).next().is_none()
        && networks.are_usable(stack, subject.name)
}

/// Whether a service may write to data that another one may write to as well, now or once Git has it again.
pub(super) fn has_data(swarm: &ObservedSwarm, found: &ObservedService) -> bool {
    let tasks = swarm.tasks_of(&found.id).filter(|task| is_active(swarm, task));
    let mut written = found.writes();
    written.extend(tasks.flat_map(|task| task.writes.iter().cloned()));
    written.iter().any(|data| !is_system_path(data))
}

/// The data that tasks of removed services still write to.
fn data_of_removed(swarm: &ObservedSwarm) -> BTreeSet<&str> {
    let present = swarm.services.values().chain(swarm.other_services.values());
    let present: BTreeSet<&str> = present.map(|service| service.id.as_str()).collect();
    let left = swarm.tasks.values().filter(|task| !present.contains(task.service.as_str()));
    left.filter(|task| is_active(swarm, task))
        .flat_map(|task| task.writes.iter().map(String::as_str))
        .collect()
}

fn is_on_each_node(stack: &Stack, name: &WorkloadName) -> bool {
    stack.swarm.get(name).is_some_and(|service| service.mode == SwarmMode::Global)
}
