//! One application on an in-memory Docker, round by round, with everything that must never happen checked after
//! every step.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use driftless_files::AppSpec;
use driftless_model::{
    AgentId, Condition, Container, ContainerId, ContentId, Dependency, FailureAction, Format, Health,
    InPlace, Instance, InstanceId, Location, Mask, Mount, MountSource, NetworkMode, Observed, OnChange,
    Policy, Record, Removal, Replacement, Stack, StackHashes, State, Strategy, Timestamp, Workload,
    WorkloadName, is_proxy_image,
};
use driftless_plan::{
    Action, Assessment, CommitSpan, Plan, Round, StepOutcome, Target, World, assess, note_executed,
    note_observed, note_planned, note_settled, plan, whole,
};

/// 2026-01-01T12:00:00Z
pub(crate) const NOON: Timestamp = Timestamp(1_767_268_800_000);

pub(crate) struct Stage {
    pub(crate) stack: Stack,
    /// The stack that was last reached.
    pub(crate) reached: Option<Stack>,
    pub(crate) world: World,
    pub(crate) record: Record,
    pub(crate) policy: Policy,
    pub(crate) agent: AgentId,
    pub(crate) now: Timestamp,
    /// Duration of each step.
    pub(crate) step_time: Duration,
    /// Containers of these images never become healthy.
    pub(crate) sick: BTreeSet<String>,
    /// Containers of these images end with code 1 as soon as they run.
    pub(crate) crashing: BTreeSet<String>,
    /// Containers of these images end well.
    pub(crate) finishing: BTreeSet<String>,
    /// Files on the disk that are rewritten in place.
    pub(crate) files: BTreeMap<InstanceId, BTreeMap<String, InPlace>>,
    /// The contents that containers last read, because they were started or signalled, and the number of times.
    pub(crate) told: BTreeMap<ContainerId, (BTreeMap<String, InPlace>, u32)>,
}

/// The manifests of the application `shop`, which are in `path`.
pub(crate) fn manifests(path: &str, files: &[&str]) -> AppSpec {
    AppSpec { path: path.to_owned(), has_listed_files: false, ..AppSpec::kubernetes("shop", files) }
}

/// One that does nothing but run.
pub(crate) fn workload(image: &str, replicas: u32) -> Workload {
    let container = Container {
        image: image.to_owned(),
        restart: driftless_model::RestartPolicy::Always,
        ..Container::default()
    };
    Workload { replicas, ..Workload::new(Location::new("compose.yaml", 1, 1), container) }
}

/// The same with a file whose change restarts it.
pub(crate) fn with_file(content: &str, mut workload: Workload) -> Workload {
    let (target, content) = ("/etc/app.conf".to_owned(), ContentId(content.to_owned()));
    let source = MountSource::InPlace { secret: false, folder: false };
    workload.container.mounts.push(Mount { target: target.clone(), source, read_only: false });
    let file = InPlace { content, secret: false, on_change: OnChange::Restart };
    workload.in_place.insert(target, file);
    workload
}

pub(crate) fn stack(workloads: impl IntoIterator<Item = (&'static str, Workload)>) -> Stack {
    let workloads = workloads.into_iter().map(|(name, it)| (name.into(), it)).collect();
    Stack { workloads, ..Stack::new("shop".into(), Format::Compose, "shop") }
}

impl Stage {
    pub(crate) fn new(stack: Stack) -> Self {
        Self {
            stack,
            reached: None,
            world: World::new(Observed::default()),
            record: Record::default(),
            policy: Policy::default(),
            agent: AgentId("ours".to_owned()),
            now: NOON,
            step_time: Duration::ZERO,
            sick: BTreeSet::new(),
            crashing: BTreeSet::new(),
            finishing: BTreeSet::new(),
            files: BTreeMap::new(),
            told: BTreeMap::new(),
        }
    }

    /// One round in which everything that can be done is done, in the order of the plan.
    pub(crate) fn round(&mut self) -> Plan {
        self.round_cut_short(usize::MAX, |_| 0)
    }

    /// One round of which only so many steps are begun. `pick` chooses among so many that are ready.
    pub(crate) fn round_cut_short(&mut self, cut: usize, mut pick: impl FnMut(usize) -> usize) -> Plan {
        let mask = Mask::new([7; 32]);
        let images = BTreeMap::new();
        let target = Target {
            stack: &self.stack,
            hashes: &StackHashes::of(&self.stack),
            reached: self.reached.as_ref(),
            agent: &self.agent,
            policy: &self.policy,
            images: &images,
            mask: &mask,
        };
        note_observed(&mut self.record, &target, &self.world.observed, self.now);
        let made = plan(&target, &self.world.observed, &self.record, self.now);
        let again = plan(&target, &self.world.observed, &self.record, self.now);
        assert_eq!(made, again, "the same input gives the same plan");
        note_planned(&mut self.record, &made, self.now);
        if made.is_reached() {
            assert!(made.steps.is_empty());
            note_settled(&mut self.record, &target, &self.world.observed);
            self.reached = Some(self.stack.clone());
            return made;
        }
        let limits = self.limits();
        let at_first = self.scene();
        let mut outcomes = vec![StepOutcome::Skipped; made.steps.len()];
        let mut open: Vec<usize> = (0..made.steps.len()).collect();
        for _ in 0..cut {
            let is_done = |it: &usize| matches!(outcomes[*it], StepOutcome::Done | StepOutcome::Created(_));
            let ready: Vec<usize> =
                open.iter().copied().filter(|it| made.steps[*it].after.iter().all(is_done)).collect();
            if ready.is_empty() {
                break;
            }
            let next = ready[pick(ready.len()) % ready.len()];
            open.retain(|it| *it != next);
            let action = &made.steps[next].action;
            self.check_guests(action, &made);
            self.check_writers(action, &made);
            // An instance that is unpaused only to be stopped does not serve, and a restarted one existed before.
            let mut before = self.scene();
            for (name, (available, live)) in &mut before.workloads {
                *available = at_first.workloads[name].0.min(*available);
                *live = at_first.workloads[name].1.max(*live);
            }
            outcomes[next] = match self.world.apply(&self.agent, action, self.now) {
                Ok(Some(id)) => {
                    self.record.own_containers.insert(id.clone());
                    StepOutcome::Created(id)
                }
                Ok(None) => StepOutcome::Done,
                Err(refusal) => {
                    let brings = matches!(action, Action::PullImage { .. } | Action::BuildImage { .. });
                    assert!(brings, "{action}: {refusal}\n{made}");
                    StepOutcome::Failed { error: refusal.to_string(), retry_after: None, is_final: false }
                }
            };
            self.now = self.now.after(self.step_time);
            self.read(action);
            self.check(&limits, &before, &self.scene(), action, &made);
        }
        let mask = Mask::new([7; 32]);
        let target = Target {
            stack: &self.stack,
            hashes: &StackHashes::of(&self.stack),
            reached: self.reached.as_ref(),
            agent: &self.agent,
            policy: &self.policy,
            images: &images,
            mask: &mask,
        };
        note_executed(&mut self.record, &target, &made, &outcomes, self.now);
        made
    }

    /// The status after a round.
    pub(crate) fn assess(&self, plan: &Plan) -> Assessment {
        let Self { stack, policy, record, now, .. } = self;
        let (hashes, observed) = (&StackHashes::of(stack), &self.world.observed);
        let round = Round { stack, hashes, policy, observed, record, plan, now: *now };
        assess(&round, &[], &BTreeMap::new())
    }

    /// Why the commit has failed after a round, if it has.
    pub(crate) fn failure(&self, plan: &Plan) -> Option<String> {
        let Self { stack, policy, record, now, .. } = self;
        let (hashes, observed) = (&StackHashes::of(stack), &self.world.observed);
        let round = Round { stack, hashes, policy, observed, record, plan, now: *now };
        round.rollout_failure(CommitSpan::of(NOON)).map(|failure| failure.reason)
    }

    /// The effect of a step on files, and the containers that read them then.
    fn read(&mut self, action: &Action) {
        let container = match action {
            Action::WriteFiles { instance, files, container: _ } => {
                self.files.insert(instance.clone(), files.clone());
                return;
            }
            Action::CreateInstance(creation) => {
                let mut mounts = creation.container.mounts.iter();
                let has_any = mounts.any(|it| matches!(it.source, MountSource::InPlace { .. }));
                assert!(!has_any || self.files.contains_key(&creation.instance), "{action} mounts nothing");
                return;
            }
            Action::StartInstance { container } | Action::SignalInstance { container, .. } => container,
            _ => return,
        };
        let mut all = self.world.observed.containers();
        let found = all.find(|it| [it.id.as_str(), &it.name].contains(&container.reference()));
        let Some(files) = found.and_then(|it| self.files.get(&it.instance)) else { return };
        let told = self.told.entry(found.unwrap().id.clone()).or_default();
        *told = (files.clone(), told.1 + 1);
    }

    /// Time passes, and containers do what they do.
    pub(crate) fn tick(&mut self, pause: Duration) {
        self.now = self.now.after(pause);
        let now = self.now;
        let (sick, crashing, finishing) = (&self.sick, &self.crashing, &self.finishing);
        let mut unwell = BTreeMap::new();
        let Observed { instances, parts, .. } = &mut self.world.observed;
        for (id, it) in instances.iter_mut().chain(parts) {
            if let State::Restarting { .. } = it.state {
                it.state = State::Running { since: now, health: Health::Starting };
                it.started = Some(now);
            }
            if it.is_running() && crashing.contains(&it.config.image) {
                it.state =
                    State::Exited { code: 1, finished: now, out_of_memory: false, error: String::new() };
            }
            if it.is_running() && sick.contains(&it.config.image) {
                unwell.insert(id.clone(), it.clone());
            }
        }
        self.world.finish_starting(now, |it| finishing.contains(&it.config.image));
        for (id, it) in unwell {
            let Observed { instances, parts, .. } = &mut self.world.observed;
            if it.part.is_some() { parts } else { instances }.insert(id, it);
        }
    }

    pub(crate) fn named(&mut self, name: &str) -> &mut Instance {
        let Observed { instances, parts, .. } = &mut self.world.observed;
        let found = instances.values_mut().chain(parts.values_mut()).find(|it| it.name == name);
        found.unwrap_or_else(|| panic!("there is no container {name}"))
    }

    /// The contents that a container has read last, and the number of times.
    pub(crate) fn read_by(&mut self, name: &str) -> (String, u32) {
        let id = self.named(name).id.clone();
        let (files, times) = &self.told[&id];
        let contents: Vec<&str> = files.values().map(|file| file.content.0.as_str()).collect();
        (contents.join(" and "), *times)
    }

    pub(crate) fn available(&self, name: &WorkloadName) -> usize {
        self.scene().workloads[name].0
    }

    /// The input of the checks: instances available and up for each workload; foreign objects; volumes.
    fn scene(&self) -> Scene {
        let mut workloads = BTreeMap::new();
        let observed = whole(&self.stack, &self.world.observed);
        for (name, wanted) in &self.stack.workloads {
            let mine = || {
                let all = observed.instances.values();
                all.filter(|instance| {
                    let is_ours =
                        instance.agent == self.agent && self.record.own_containers.contains(&instance.id);
                    is_ours && instance.instance.workload == *name
                })
            };
            // A user who deletes an instance accepts that it does not serve from then on.
            let is_deleted = |it: &Instance| self.record.replaced.get(&it.id) == Some(&Replacement::Delete);
            let available: BTreeSet<u32> = mine()
                .filter(|it| !is_deleted(it))
                .filter(|it| it.is_available(wanted.min_ready, self.now))
                .map(|it| it.instance.slot)
                .collect();
            let is_down =
                |it: &&Instance| matches!(it.state, State::Created | State::Exited { .. } | State::Dead);
            let live = mine().filter(|it| !is_down(it)).count();
            workloads.insert(name.clone(), (available.len(), live));
        }
        let foreign = self.world.observed.containers().filter(|it| it.agent != self.agent);
        Scene {
            workloads,
            foreign: foreign.cloned().collect(),
            volumes: self.world.observed.volumes.keys().cloned().collect(),
        }
    }

    fn check(
        &self,
        limits: &BTreeMap<WorkloadName, (usize, usize)>,
        before: &Scene,
        after: &Scene,
        action: &Action,
        plan: &Plan,
    ) {
        assert_eq!(before.foreign, after.foreign, "{action} touches what is not ours");
        let may_remove_volumes = self.record.removal == Some(Removal::WithVolumes);
        let has_all = before.volumes.is_subset(&after.volumes);
        assert!(has_all || may_remove_volumes, "{action} removes a volume");
        for (name, (floor, ceiling)) in limits {
            let ((available, live), (available_after, live_after)) =
                (before.workloads[name], after.workloads[name]);
            assert!(
                available_after >= available.min(*floor),
                "{action}: {name} dips to {available_after} below {floor}\n{plan}"
            );
            assert!(
                live_after <= live.max(*ceiling),
                "{action}: {name} rises to {live_after} above {ceiling}\n{plan}"
            );
        }
    }

    /// A container that shares a namespace stops before the one it shares it with.
    fn check_guests(&self, action: &Action, plan: &Plan) {
        let Action::StopInstance { container, .. } = action else { return };
        let all = || self.world.observed.containers();
        let Some(host) = all().find(|it| it.id.as_str() == container.reference()) else { return };
        let is_cut_off = |it: &&Instance| it.is_running() && it.hosts.contains(&host.id);
        let guest = all().filter(|it| it.agent == self.agent).find(is_cut_off);
        assert_eq!(guest.map(|it| &it.name), None, "{action} pulls the rug from under it\n{plan}");
    }

    /// Nothing new starts on a volume to which a container that Git does not have any more writes.
    fn check_writers(&self, action: &Action, plan: &Plan) {
        let Action::StartInstance { container } = action else { return };
        let ours = || self.world.observed.instances.values().filter(|it| it.agent == self.agent);
        let Some(started) = ours().find(|it| it.name == container.reference()) else { return };
        let name = &started.instance.workload;
        let is_job = self.stack.workloads.get(name).is_none_or(|it| it.job_or_template().is_some());
        // They shared it when all was as Git said.
        let was_with = |other: &Instance| {
            let workloads = self.reached.as_ref().map(|it| &it.workloads);
            workloads.is_some_and(|it| it.contains_key(name) && it.contains_key(&other.instance.workload))
        };
        let volumes = |it: &Instance| -> BTreeSet<String> {
            let written = it.config.mounts.iter().filter(|mount| !mount.read_only);
            let volume = |source: &MountSource| match source {
                MountSource::Volume { name, .. } => Some(name.clone()),
                _ => None,
            };
            written.filter_map(|mount| volume(&mount.source)).collect()
        };
        let is_left = |it: &&Instance| {
            it.is_running()
                && !self.stack.workloads.contains_key(&it.instance.workload)
                && !volumes(it).is_disjoint(&volumes(started))
                && !was_with(it)
        };
        let writer = ours().find(is_left).filter(|_| !is_job);
        assert_eq!(writer.map(|it| &it.name), None, "{action} has not waited for it\n{plan}");
    }

    /// The least number of available instances and the largest number of running ones. A workload may be kept as it was before.
    fn limits(&self) -> BTreeMap<WorkloadName, (usize, usize)> {
        let of = |(name, wanted): (&WorkloadName, &Workload)| {
            let held = self.reached.as_ref().and_then(|it| it.workloads.get(name)).unwrap_or(wanted);
            let (one, other) = (self.limits_of(name, wanted), self.limits_of(name, held));
            (name.clone(), (one.0.min(other.0), one.1.max(other.1)))
        };
        self.stack.workloads.iter().map(of).collect()
    }

    fn limits_of(&self, name: &WorkloadName, it: &Workload) -> (usize, usize) {
        let spec = it.spec();
        let mine = || self.world.observed.instances.values().filter(|it| it.instance.workload == *name);
        let is_up = |it: &Instance| !matches!(it.state, State::Exited { .. } | State::Created | State::Dead);
        let is_it = |dependency: &Dependency| {
            dependency.workload == *name && dependency.condition == Condition::CompletedSuccessfully
        };
        let is_awaited = self.stack.workloads.values().any(|other| other.after.iter().any(is_it));
        let is_exclusive = it.container_name.is_some()
            || is_awaited
            || (matches!(it.container.network_mode, NetworkMode::Of(_))
                && !is_proxy_image(&it.container.image))
            || it.container.volumes_from.iter().any(|it| !it.read_only)
            || it.container.ports.iter().any(|it| it.host.is_some())
            || it.container.networks().values().any(|it| it.fixed_addresses().next().is_some())
            || (it.replicas < 2 && !it.container.host.device_requests.is_empty())
            || it.container.mounts.iter().any(|mount| {
                matches!(mount.source, MountSource::Volume { .. } | MountSource::Bind { .. })
                    && !mount.read_only
            });
        // An instance with an anonymous volume is removed before its successor is created, for every cause.
        let may_go_first = is_exclusive || mine().any(|it| !it.anonymous_volumes.is_empty());
        let goes_first =
            is_exclusive || mine().any(|it| is_up(it) && it.spec != spec && !it.anonymous_volumes.is_empty());
        let (surge, unavailable) = match it.strategy {
            Strategy::Recreate => (0, it.replicas),
            Strategy::RollingUpdate { max_surge, max_unavailable } => (
                if goes_first { 0 } else { max_surge },
                if may_go_first { max_unavailable.max(1) } else { max_unavailable },
            ),
        };
        // Requested restarts are done.
        let restarts = it.in_place.values().any(|it| it.on_change == OnChange::Restart);
        let unavailable = if restarts { unavailable.max(1) } else { unavailable };
        // Without the one it shares a namespace with it cannot be.
        let unavailable = if it.container.hosts().next().is_some() { it.replicas } else { unavailable };
        // Tolerated failures take the place of available instances.
        let passes_all = it.failure.action == Some(FailureAction::Continue);
        let passed = if passes_all { it.replicas as usize } else { it.failure.tolerated(it.replicas) };
        let floor = (it.replicas.saturating_sub(unavailable) as usize).saturating_sub(passed);
        (floor, (it.replicas + surge) as usize)
    }
}

struct Scene {
    workloads: BTreeMap<WorkloadName, (usize, usize)>,
    foreign: Vec<Instance>,
    volumes: BTreeSet<String>,
}

/// One line per container: its name, slot, image, state and networks.
pub(crate) fn listing(observed: &Observed) -> String {
    let mut lines: Vec<String> = observed
        .instances
        .values()
        .map(|instance| {
            let state = match &instance.state {
                State::Created => "created".to_owned(),
                State::Running { health, .. } => format!("running {health:?}"),
                State::Paused => "paused".to_owned(),
                State::Restarting { code, .. } => format!("restarting ({code})"),
                State::Exited { code, .. } => format!("exited ({code})"),
                State::Removing => "removing".to_owned(),
                State::Dead => "dead".to_owned(),
            };
            let networks: Vec<&str> = instance.networks.keys().map(String::as_str).collect();
            let networks =
                if networks.is_empty() { String::new() } else { format!(" on {}", networks.join(", ")) };
            format!("{} = {} {} {state}{networks}\n", instance.name, instance.instance, instance.config.image)
        })
        .collect();
    lines.sort();
    lines.concat()
}
