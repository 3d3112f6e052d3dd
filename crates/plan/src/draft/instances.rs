//! Creating, starting, stopping and removing instances, with the parts of their pods and in the right order.

use std::collections::{BTreeMap, BTreeSet};

use driftless_model::{
    Completion, Condition, ContainerId, ContentId, Dependency, InPlace, Instance, InstanceId, Role, State,
    Subject, Workload,
};

use crate::{
    action::{Action, ContainerRef, Creation},
    cause::Cause,
    draft::Draft,
    facts::{
        Facts,
        jobs::has_volumes_of_one_try,
        namespaces::guests,
        standing::{crash_of, is_up},
    },
};

/// An instance that is created in this round.
pub(crate) struct NewInstance<'a> {
    pub(crate) subject: Subject<'a>,
    pub(crate) slot: u32,
    pub(crate) cause: Cause,
    /// The steps that come first.
    pub(crate) after: Vec<usize>,
    /// The anonymous volumes of its predecessor, by the path in the container.
    pub(crate) inherit: BTreeMap<String, String>,
}

impl Draft<'_> {
    /// Stops an instance if it runs, then removes it. Returns the step that removes it.
    pub(crate) fn remove(&mut self, instance: &Instance, cause: &Cause, after: &[usize]) -> usize {
        let mut after = after.to_vec();
        after.extend(self.remove_parts(instance, cause, &after));
        after.extend(self.reconnected.get(&instance.id).into_iter().flatten());
        if is_up(instance) {
            after = vec![self.unpause_and_stop(instance, cause, after)];
        }
        // The ones that its workload is to have again were noted before.
        let is_left = self.plan.left_volumes.contains_key(&instance.instance.to_string());
        let with_volumes =
            !is_left && has_volumes_of_one_try(self.facts.target, self.facts.observed, instance);
        let removal = Action::RemoveInstance { container: instance.into(), with_volumes };
        let step = self.push(removal, cause.clone(), after);
        self.removed.insert(instance.id.clone(), step);
        self.plan.removed_from.insert(instance.instance.workload.whole());
        step
    }

    /// A paused process cannot handle the stop signal: the engine would wait for the whole grace period.
    fn unpause_and_stop(&mut self, instance: &Instance, cause: &Cause, mut after: Vec<usize>) -> usize {
        if instance.state == State::Paused && !self.stopped.contains_key(&instance.id) {
            let container = instance.into();
            after.push(self.push(Action::UnpauseInstance { container }, cause.clone(), after.clone()));
        }
        self.stop(instance, cause, after)
    }

    /// Stops an instance, once, after all instances that share its namespaces: they would lose them or be killed.
    pub(crate) fn stop(&mut self, instance: &Instance, cause: &Cause, mut after: Vec<usize>) -> usize {
        if let Some(step) = self.stopped.get(&instance.id) {
            return *step;
        }
        let facts = self.facts;
        let running: Vec<&Instance> = guests(facts, instance).filter(|it| it.is_running()).collect();
        for guest in running.into_iter().filter(|it| it.id != instance.id) {
            let on = instance.instance.workload.to_string();
            let stopped = self.stop(guest, &Cause::DependencyRestarted { on }, after.clone());
            after.push(stopped);
        }
        after.extend(self.stop_parts(instance, cause, &after));
        // The desired grace period, not that of the container: a commit may shorten a stop that takes too long.
        let desired = facts.target.stack.workloads.get(&instance.instance.workload.whole());
        let desired = match &instance.part {
            Some(of) => desired.and_then(|it| it.part(&of.name)).map(|it| &it.container),
            None => desired.map(|it| &it.container),
        };
        let grace = desired.map_or(instance.config.stop_grace_period, |it| it.stop_grace_period);
        let step =
            self.push(Action::StopInstance { container: instance.into(), grace }, cause.clone(), after);
        self.stopped.insert(instance.id.clone(), step);
        step
    }

    /// Stops the parts of a pod that run: first all others, then the sidecars, the newest first. Returns the steps.
    fn stop_parts(&mut self, pod: &Instance, cause: &Cause, after: &[usize]) -> Vec<usize> {
        let mut parts = self.own_parts(pod);
        parts.retain(|it| is_up(it));
        parts.sort_by_key(|it| std::cmp::Reverse((it.created, it.id.clone())));
        let is_sidecar = |it: &&Instance| it.part.as_ref().is_some_and(|of| of.role == Role::Sidecar);
        let (sidecars, others): (Vec<_>, Vec<_>) = parts.into_iter().partition(is_sidecar);
        let mut steps = Vec::new();
        for part in others {
            steps.push(self.unpause_and_stop(part, cause, after.to_vec()));
        }
        for part in sidecars {
            let mut after = after.to_vec();
            after.extend(&steps);
            steps.push(self.unpause_and_stop(part, cause, after));
        }
        steps
    }

    /// Removes all parts of a pod, in the order in which they stop. Returns the steps.
    fn remove_parts(&mut self, pod: &Instance, cause: &Cause, after: &[usize]) -> Vec<usize> {
        let parts = self.own_parts(pod);
        if parts.is_empty() {
            return Vec::new();
        }
        self.stop_parts(pod, cause, after);
        let before: BTreeSet<ContainerId> = self.removed.keys().cloned().collect();
        let left = parts.into_iter().filter(|it| !before.contains(&it.id));
        left.map(|it| self.remove(it, cause, after)).collect()
    }
}

impl<'a> Draft<'a> {
    fn own_parts(&self, pod: &Instance) -> Vec<&'a Instance> {
        let facts = self.facts;
        let is_own = |it: &&Instance| {
            it.agent == *facts.target.agent && it.part.as_ref().is_some_and(|of| of.pod == pod.id)
        };
        facts.observed.parts.values().filter(is_own).collect()
    }

    /// Creates and starts an instance. Returns the step that starts it.
    pub(crate) fn create(&mut self, new: NewInstance<'_>) -> usize {
        let NewInstance { subject, slot, cause, after, inherit } = new;
        let workload = subject.workload;
        let creation = self.creation(subject, slot, inherit);
        let container = ContainerRef::Name(creation.name.clone());
        let instance = creation.instance.clone();
        // The engine refuses to mount a file that does not exist.
        let files = &workload.in_place;
        let after = match self.write_files(files, &instance, container.clone(), &cause, after.clone()) {
            Some(written) => vec![written],
            None => after,
        };
        let created = self.push(Action::CreateInstance(Box::new(creation)), cause.clone(), after);
        let start = Action::StartInstance { container: container.clone() };
        let started = self.push(start, cause.clone(), vec![created]);
        if !workload.container.host.post_start.is_empty() {
            self.push(Action::RunHooks { container, instance }, cause, vec![started]);
        }
        started
    }

    /// All that is needed to create an instance.
    pub(crate) fn creation(
        &self,
        subject: Subject<'_>,
        slot: u32,
        mut inherit: BTreeMap<String, String>,
    ) -> Creation {
        let facts = self.facts;
        let Subject { name, workload } = subject;
        let stack = facts.stack_of(subject);
        let container_name = facts.container_name(stack, name, slot);
        let peers = self.peers.get(name).cloned().unwrap_or_default();
        for peer in peers.values().filter_map(|it| facts.observed.instances.get(it)) {
            // A volume that it mounts from a peer is not its own.
            inherit.retain(|_, volume| !peer.anonymous_volumes.values().any(|it| it == volume));
        }
        Creation {
            app: stack.app.clone(),
            agent: facts.target.agent.clone(),
            format: stack.format,
            project: stack.project.clone(),
            instance: InstanceId { workload: name.clone(), slot },
            name: container_name,
            container: workload.container.clone(),
            image: facts.target.pinned_image(workload).cloned(),
            made_image: facts.made_image(workload),
            signature: facts.required_signature(workload),
            spec: facts.spec(subject),
            inherit,
            peers,
            part: None,
            manifests: stack.manifests.clone(),
            depends_on: depends_on(workload),
        }
    }

    /// The steps of this round that remove the copies of an instance: they have its labels and its data, and must not run together with it.
    pub(crate) fn copies_removed(&self, instance: &Instance) -> Vec<usize> {
        let copies = self.facts.instances.impostors.iter();
        let copies = copies.filter(|(copy, _)| copy.instance == instance.instance && copy.id != instance.id);
        copies.filter_map(|(copy, _)| self.removed.get(&copy.id).copied()).collect()
    }

    /// Starts an instance that exists. Returns the step.
    pub(crate) fn start(&mut self, instance: &Instance, cause: Cause, mut after: Vec<usize>) -> usize {
        let container = ContainerRef::from(instance);
        after.extend(self.copies_removed(instance));
        let definition = self.facts.target.definition(instance).filter(|it| it.spec() == instance.spec);
        if let Some(workload) = definition {
            let (id, files) = (&instance.instance, self.files_at_start(workload, instance));
            after.extend(self.write_files(&files, id, container.clone(), &cause, after.clone()));
        }
        let started = self.push(Action::StartInstance { container }, cause.clone(), after);
        self.run_hooks(instance, cause, vec![started]);
        started
    }

    /// The files to start an instance with. One that keeps its files is started with those that it has read, as far as a known version has
    /// them. A service that crashes again and again has nothing to lose, and the image that is missing may come through it: it gets the files
    /// of the commit in its turn. Secrets are kept in memory only: after a restart of the host, those of the target alone are sure to be there.
    fn files_at_start(&self, workload: &Workload, instance: &Instance) -> BTreeMap<String, InPlace> {
        let Facts { target, record, .. } = *self.facts;
        let name = &instance.instance.workload;
        let mut files = workload.in_place.clone();
        let is_crashing = workload.completion == Completion::Never
            && crash_of(record, instance).is_some_and(|crash| crash.count > 1);
        let keeps_files = if is_crashing { self.without_turn.contains(name) } else { self.keeps_files(name) };
        let Some(read) = record.delivered.get(&instance.id).filter(|_| keeps_files) else { return files };
        let stacks = [Some(target.stack), target.reached].into_iter().flatten();
        let versions: Vec<&Workload> =
            stacks.filter_map(|stack| stack.workloads.get(name)).chain(record.begun.get(name)).collect();
        for (place, file) in files.iter_mut().filter(|(_, file)| !file.secret) {
            let is_known = |content: &&ContentId| {
                versions.iter().filter_map(|it| it.in_place.get(place)).any(|it| it.content == **content)
            };
            if let Some(content) = read.get(place).filter(is_known) {
                file.content.clone_from(content);
            }
        }
        files
    }

    /// Runs the `post_start` commands of an instance that exists.
    pub(crate) fn run_hooks(&mut self, instance: &Instance, cause: Cause, after: Vec<usize>) {
        if !instance.config.host.post_start.is_empty() {
            let (container, instance) = (instance.into(), instance.instance.clone());
            self.push(Action::RunHooks { container, instance }, cause, after);
        }
    }

    /// Writes all files of an instance that are rewritten in place: before each start, because somebody may have removed
    /// them. Returns the step, if there are such files.
    pub(crate) fn write_files(
        &mut self,
        files: &BTreeMap<String, InPlace>,
        instance: &InstanceId,
        container: ContainerRef,
        cause: &Cause,
        after: Vec<usize>,
    ) -> Option<usize> {
        if files.is_empty() {
            return None;
        }
        let (instance, files) = (instance.clone(), files.clone());
        Some(self.push(Action::WriteFiles { container, instance, files }, cause.clone(), after))
    }
}

/// As Compose writes its label: `db:service_healthy:false`.
fn depends_on(workload: &Workload) -> Vec<String> {
    let one = |dependency: &Dependency| {
        let condition = match dependency.condition {
            Condition::Started => "service_started",
            Condition::Healthy => "service_healthy",
            Condition::CompletedSuccessfully => "service_completed_successfully",
        };
        format!("{}:{condition}:{}", dependency.workload, dependency.restart)
    };
    workload.after.iter().map(one).collect()
}
