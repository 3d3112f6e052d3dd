//! One round in the making: the inputs, the plan so far, and how steps are put into it.
//!
//! It knows how to write steps down, not which ones are due: that is for the modules beside it.

use std::{
    cell::OnceCell,
    collections::{BTreeMap, BTreeSet},
};

use driftless_model::{
    ContainerId, Drift, DriftAction, Instance, InstanceId, Observed, Peer, Record, SpecHash, Stack,
    StackHash, State, Timestamp, Workload, WorkloadName,
};

use super::{
    Action, Cause, ContainerRef, Creation, Plan, Step, Target, Wait, backoff, in_place, inside, named, pod,
    share,
};

/// How often the same difference is set right although it stays as it is.
pub(super) const TRIES: u32 = 2;

pub(super) struct Round<'a> {
    pub(super) target: &'a Target<'a>,
    pub(super) observed: &'a Observed,
    pub(super) record: &'a Record,
    pub(super) now: Timestamp,
    /// The hash of the wanted stack, once it is asked for.
    revision: OnceCell<StackHash>,
    /// Of the containers of the wanted workloads.
    specs: BTreeMap<&'a WorkloadName, SpecHash>,
    pub(super) plan: Plan,
    /// Steps that pull or build, by image.
    pub(super) pulls: BTreeMap<String, usize>,
    /// Steps that create a network or volume, by name.
    pub(super) provided: BTreeMap<String, usize>,
    /// Workloads whose image cannot be had for now. While there is one, nothing is stopped for the commit.
    pub(super) unpulled: BTreeSet<WorkloadName>,
    /// Workloads that Docker Compose runs and that nobody let us take over.
    pub(super) untaken: BTreeSet<WorkloadName>,
    /// So many more of the workload at hand may be started.
    pub(super) may_start: usize,
    /// The steps that remove an instance.
    pub(super) removed: BTreeMap<ContainerId, usize>,
    /// The steps after which an instance has given up its name.
    pub(super) renamed: BTreeMap<ContainerId, usize>,
    /// The steps that bring an instance back to a network that is made anew.
    pub(super) reconnected: BTreeMap<ContainerId, Vec<usize>>,
    /// The steps that stop an instance.
    pub(super) stopped: BTreeMap<ContainerId, usize>,
    /// The steps that start an instance again after that.
    pub(super) started: BTreeMap<ContainerId, usize>,
    /// What new instances of a workload share with.
    pub(super) peers: BTreeMap<WorkloadName, BTreeMap<Peer, ContainerId>>,
    /// What was left behind and has found a successor in this round.
    pub(super) bequeathed: BTreeSet<String>,
    reported: usize,
}

/// One difference that somebody made, before it is decided whether to undo it now.
pub(super) struct Difference<'a> {
    pub(super) kind: &'a str,
    /// The name in Docker.
    pub(super) object: &'a str,
    pub(super) workload: Option<&'a WorkloadName>,
    pub(super) field: String,
    pub(super) want: String,
    pub(super) found: String,
    pub(super) at: Option<Timestamp>,
}

impl Difference<'_> {
    fn told(self, action: DriftAction) -> Drift {
        let Self { kind, object, workload, field, want, found, at } = self;
        let (kind, object, workload) = (kind.to_owned(), object.to_owned(), workload.cloned());
        Drift { kind, object, workload, field, want, found, at, action }
    }
}

impl<'a> Round<'a> {
    pub(super) fn new(
        target: &'a Target<'a>,
        observed: &'a Observed,
        record: &'a Record,
        now: Timestamp,
    ) -> Self {
        Self {
            target,
            specs: target.stack.workloads.iter().map(|(name, it)| (name, it.spec())).collect(),
            observed,
            record,
            now,
            revision: OnceCell::new(),
            plan: Plan::default(),
            pulls: BTreeMap::new(),
            provided: BTreeMap::new(),
            unpulled: BTreeSet::new(),
            untaken: BTreeSet::new(),
            may_start: 0,
            removed: BTreeMap::new(),
            renamed: BTreeMap::new(),
            reconnected: BTreeMap::new(),
            stopped: BTreeMap::new(),
            started: BTreeMap::new(),
            peers: BTreeMap::new(),
            bequeathed: BTreeSet::new(),
            reported: 0,
        }
    }

    /// Whether the wanted stack was reached before, so that whatever is missing now is drift.
    pub(super) fn is_settled(&self) -> bool {
        self.record.settled.as_ref().is_some_and(|it| it == self.revision())
    }

    /// To make the hash of a whole stack takes longer than to plan one of which nothing is left to do, and then nobody
    /// asks for it.
    pub(super) fn revision(&self) -> &StackHash {
        self.revision.get_or_init(|| StackHash::of(self.target.stack))
    }

    /// Whether nothing of a workload is rolled out, by the manifest's word or somebody's.
    pub(super) fn is_paused(&self, name: &WorkloadName, workload: &Workload) -> bool {
        workload.paused || self.record.paused.contains(name)
    }

    pub(super) fn push(&mut self, action: Action, cause: Cause, mut after: Vec<usize>) -> usize {
        after.sort_unstable();
        after.dedup();
        self.plan.steps.push(Step { action, cause, after });
        self.plan.steps.len() - 1
    }

    pub(super) fn wait(&mut self, wait: Wait) {
        if !self.plan.waits.contains(&wait) {
            self.plan.waits.push(wait);
        }
    }

    pub(super) fn look_again(&mut self, at: Timestamp) {
        self.plan.look_again = Some(self.plan.look_again.map_or(at, |before| before.min(at)));
    }

    /// Decides what becomes of a difference. `Some(cause)`: undo it now, for this cause.
    pub(super) fn heal(&mut self, difference: Difference<'_>) -> Option<Cause> {
        let Difference { object, workload, field, want, found, .. } = &difference;
        let action = self.judge(&heal_key(object, *workload, field), (object, field), (found, want));
        let drift = difference.told(action);
        let Drift { field, found, want, .. } = drift.clone();
        self.plan.drifts.push(drift);
        match action {
            DriftAction::Heal => Some(Cause::Drift { field, found, want }),
            DriftAction::BackOff | DriftAction::Ineffective => None,
            DriftAction::Report => {
                self.reported += 1;
                None
            }
        }
    }

    /// A difference that is told and left as it is, whatever self-heal says.
    pub(super) fn report(&mut self, difference: Difference<'_>) {
        let drift = difference.told(DriftAction::Report);
        self.plan.drifts.push(drift);
    }

    /// The loop guard: pauses that grow while the same field is set right again and again.
    fn judge(
        &mut self,
        key: &str,
        (object, field): (&str, &str),
        (found, want): (&str, &str),
    ) -> DriftAction {
        if !self.target.policy.self_heal || self.target.policy.suspended {
            return DriftAction::Report;
        }
        let Some(heal) = self.record.heals.get(key) else { return DriftAction::Heal };
        if heal.revision != *self.revision() {
            return DriftAction::Heal;
        }
        let is_tried_enough = !heal.had_effect && heal.ineffective + 1 >= TRIES;
        if is_tried_enough && heal.difference == format!("{found} -> {want}") {
            self.wait(Wait::HealIneffective {
                object: object.to_owned(),
                field: field.to_owned(),
                difference: heal.difference.clone(),
            });
            return DriftAction::Ineffective;
        }
        let until = heal.ended.after(backoff::heal_delay(heal.count));
        if self.now >= until {
            return DriftAction::Heal;
        }
        self.wait(Wait::HealBackOff {
            object: object.to_owned(),
            field: field.to_owned(),
            attempt: heal.count,
            until,
        });
        self.look_again(until);
        DriftAction::BackOff
    }

    /// Stops an instance if it has to be, then removes it. Returns the step that removes.
    pub(super) fn remove(&mut self, instance: &Instance, cause: &Cause, after: &[usize]) -> usize {
        let mut after = after.to_vec();
        after.extend(pod::remove(self, instance, cause, &after));
        after.extend(self.reconnected.get(&instance.id).into_iter().flatten());
        match instance.state {
            State::Paused => {
                // A paused process cannot answer the stop signal; the engine would wait the grace period out.
                let container = reference(instance);
                let unpaused = self.push(Action::UnpauseInstance { container }, cause.clone(), after.clone());
                after.push(unpaused);
                after = vec![self.stop(instance, cause, after)];
            }
            State::Running { .. } | State::Restarting { .. } => {
                after = vec![self.stop(instance, cause, after)];
            }
            State::Created | State::Exited { .. } | State::Removing | State::Dead => {}
        }
        let removal = Action::RemoveInstance { container: reference(instance) };
        let step = self.push(removal, cause.clone(), after);
        self.removed.insert(instance.id.clone(), step);
        step
    }

    /// Stops an instance, once, after all that share its namespaces: those would be cut off or killed with it.
    pub(super) fn stop(&mut self, instance: &Instance, cause: &Cause, mut after: Vec<usize>) -> usize {
        if let Some(step) = self.stopped.get(&instance.id) {
            return *step;
        }
        let guests: Vec<&Instance> = share::guests(self, instance).filter(|it| it.is_running()).collect();
        for guest in guests.into_iter().filter(|it| it.id != instance.id) {
            let on = instance.instance.workload.to_string();
            let stopped = self.stop(guest, &Cause::DependencyRestarted { on }, after.clone());
            after.push(stopped);
        }
        after.extend(pod::stop(self, instance, cause, &after));
        let container = reference(instance);
        // The wanted grace period, not the one that it was created with: a commit may be the cure for a slow stop.
        let wanted = self.target.stack.workloads.get(&instance.instance.workload.whole());
        let wanted = match &instance.part {
            Some(of) => wanted.and_then(|it| it.part(&of.name)).map(|it| &it.container),
            None => wanted.map(|it| &it.container),
        };
        let grace = wanted.map_or(instance.config.stop_grace_period, |it| it.stop_grace_period);
        let step = self.push(Action::StopInstance { container, grace }, cause.clone(), after);
        self.stopped.insert(instance.id.clone(), step);
        step
    }

    /// Creates and starts an instance. Returns the step that starts it.
    pub(super) fn create(
        &mut self,
        (name, workload): (&WorkloadName, &Workload),
        slot: u32,
        cause: &Cause,
        after: Vec<usize>,
        mut inherit: BTreeMap<String, String>,
    ) -> usize {
        let stack = self.stack_of(name, workload);
        let container_name = self.container_name(stack, name, slot);
        let peers = self.peers.get(name).cloned().unwrap_or_default();
        for peer in peers.values().filter_map(|it| self.observed.instances.get(it)) {
            // What it is given by another, it does not hold by itself.
            inherit.retain(|_, volume| !peer.anonymous_volumes.values().any(|it| it == volume));
        }
        let creation = Creation {
            app: stack.app.clone(),
            agent: self.target.agent.clone(),
            format: stack.format,
            project: stack.project.clone(),
            instance: InstanceId { workload: name.clone(), slot },
            name: container_name.clone(),
            container: workload.container.clone(),
            image: self.pinned(workload).cloned(),
            spec: self.spec(name, workload),
            inherit,
            peers,
            part: None,
            manifests: stack.manifests.clone(),
            depends_on: depends_on(workload),
        };
        let container = ContainerRef::Name(container_name);
        // The engine refuses to mount what is not there.
        let instance = &creation.instance;
        let after = match in_place::write(self, workload, instance, container.clone(), cause, after.clone()) {
            Some(written) => vec![written],
            None => after,
        };
        let instance = creation.instance.clone();
        let created = self.push(Action::CreateInstance(Box::new(creation)), cause.clone(), after);
        let started =
            self.push(Action::StartInstance { container: container.clone() }, cause.clone(), vec![created]);
        if !workload.container.host.post_start.is_empty() {
            self.push(Action::RunHooks { container, instance }, cause.clone(), vec![started]);
        }
        started
    }

    /// Starts an instance that is there. Returns the step.
    pub(super) fn start(&mut self, instance: &Instance, cause: Cause, mut after: Vec<usize>) -> usize {
        let container = reference(instance);
        let definition = self.target.definition(instance).filter(|it| it.spec() == instance.spec);
        if let Some(workload) = definition {
            let id = &instance.instance;
            after.extend(in_place::write(self, workload, id, container.clone(), &cause, after.clone()));
        }
        let started = self.push(Action::StartInstance { container }, cause.clone(), after);
        self.run_hooks(instance, cause, vec![started]);
        started
    }

    /// What is to be done after a start, of an instance that is there.
    pub(super) fn run_hooks(&mut self, instance: &Instance, cause: Cause, after: Vec<usize>) {
        if !instance.config.host.post_start.is_empty() {
            let (container, instance) = (reference(instance), instance.instance.clone());
            self.push(Action::RunHooks { container, instance }, cause, after);
        }
    }

    /// The stack that this definition of a workload comes from: the wanted one, or the one fallen back to.
    pub(super) fn stack_of(&self, name: &WorkloadName, workload: &Workload) -> &'a Stack {
        let wanted = self.target.stack;
        match self.target.fallback {
            Some(fallback) if !self.is_wanted(name, workload) => fallback,
            Some(_) | None => wanted,
        }
    }

    /// The hash of a workload's container. To make one takes longer than everything else about a workload that is as
    /// it should be, so those of the wanted ones are made once.
    pub(super) fn spec(&self, name: &WorkloadName, workload: &Workload) -> SpecHash {
        let known = self.specs.get(name).filter(|_| self.is_wanted(name, workload));
        known.cloned().unwrap_or_else(|| workload.spec())
    }

    /// The name of an instance's container, as [`super::container_name`] has it.
    pub(super) fn container_name(&self, stack: &Stack, name: &WorkloadName, slot: u32) -> String {
        named(stack, name, slot, |it| self.spec(name, it))
    }

    /// Whether this definition of a workload is the wanted one, and not the one fallen back to.
    pub(super) fn is_wanted(&self, name: &WorkloadName, workload: &Workload) -> bool {
        let wanted = self.target.stack.workloads.get(name);
        wanted.is_some_and(|it| std::ptr::eq(it, workload) || it.is_like(workload))
    }

    /// The steps after which a name is free, or who holds it.
    pub(super) fn free_name(&self, name: &str) -> Result<Vec<usize>, String> {
        if let Some(id) = self.observed.claims.names.get(name) {
            return Err(format!("{name} ({})", id.short()));
        }
        let mut steps = Vec::new();
        for holder in self.observed.containers().filter(|it| it.name == name) {
            match self.removed.get(&holder.id).or_else(|| self.renamed.get(&holder.id)) {
                Some(step) => steps.push(*step),
                None => return Err(format!("{name} ({})", holder.id.short())),
            }
        }
        Ok(steps)
    }

    /// The steps after which a new container may bear a name. `None`: not yet, for somebody else does, which is told.
    pub(super) fn claim_name(&mut self, object: &str) -> Option<Vec<usize>> {
        match self.free_name(object) {
            Ok(steps) => Some(steps),
            Err(by) => {
                let what = format!("the name `{object}`");
                self.wait(Wait::Blocked { object: object.to_owned(), by, what });
                None
            }
        }
    }

    /// Whether whoever bears this name is being removed at this moment.
    pub(super) fn is_leaving(&self, name: &str) -> bool {
        self.observed.containers().any(|it| it.name == name && it.state == State::Removing)
    }

    /// Whether the one of ours that bears this name is to bear another.
    pub(super) fn is_misnamed(&self, name: &str) -> bool {
        let mut bearers = self.observed.instances.values().filter(|it| it.name == name);
        bearers.any(|it| {
            let InstanceId { workload, slot } = &it.instance;
            it.agent == *self.target.agent && self.container_name(self.target.stack, workload, *slot) != name
        })
    }

    /// The steps that remove what was in a slot.
    pub(super) fn slot_freed(&self, name: &WorkloadName, slot: u32) -> Vec<usize> {
        let was_there = |it: &&Instance| it.instance.slot == slot && it.instance.is_of(name);
        let before = self.observed.containers().filter(was_there);
        before.filter_map(|it| self.removed.get(&it.id).copied()).collect()
    }

    /// The image to create a workload's instances from.
    pub(super) fn image(&self, workload: &Workload) -> String {
        let image = &workload.container.image;
        self.pinned(workload).unwrap_or(image).clone()
    }

    /// The digest that a rollback goes back to. What is built here is named by its content already, and no registry
    /// has it.
    fn pinned(&self, workload: &Workload) -> Option<&String> {
        self.target.images.get(&workload.container.image).filter(|_| workload.build.is_none())
    }

    pub(super) fn finish(mut self) -> Plan {
        if self.reported > 0 && !self.target.policy.suspended {
            self.wait(Wait::SelfHealOff { differences: self.reported });
        }
        if self.target.policy.suspended {
            self.plan.steps.clear();
            self.wait(Wait::Suspended);
        }
        self.plan
    }
}

impl<'a> Target<'a> {
    /// What an instance was made from: the wanted definition or the one before; failing both, the wanted one is the
    /// best guess.
    pub(super) fn definition(&self, instance: &Instance) -> Option<&'a Workload> {
        let name = &instance.instance.workload;
        let wanted = self.stack.workloads.get(name);
        let before = self.fallback.and_then(|it| it.workloads.get(name));
        // Whichever it was made from, they say the same.
        if before.is_none_or(|before| wanted.is_some_and(|it| it.is_like(before))) {
            return wanted;
        }
        let is_of = |it: &&Workload| it.spec() == instance.spec;
        wanted.filter(is_of).or_else(|| before.filter(is_of)).or(wanted)
    }
}

/// The key under which heals of a field are counted. Files are set right by a container of another name, so those are
/// counted for the workload.
pub(super) fn heal_key(object: &str, workload: Option<&WorkloadName>, field: &str) -> String {
    match workload {
        Some(workload) if field == inside::FIELD => format!("{workload} {field}"),
        Some(_) | None => format!("{object} {field}"),
    }
}

pub(super) fn reference(instance: &Instance) -> ContainerRef {
    ContainerRef::Id(instance.id.clone(), instance.name.clone())
}

/// As Compose writes its label: `db:service_healthy:false`.
fn depends_on(workload: &Workload) -> Vec<String> {
    use driftless_model::Condition;
    let one = |it: &driftless_model::Dependency| {
        let condition = match it.condition {
            Condition::Started => "service_started",
            Condition::Healthy => "service_healthy",
            Condition::CompletedSuccessfully => "service_completed_successfully",
        };
        format!("{}:{condition}:{}", it.workload, it.restart)
    };
    workload.after.iter().map(one).collect()
}
