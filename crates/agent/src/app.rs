//! One application: look, plan, act, look again, until settled; then sleep until something rings.
//!
//! A wake-up carries no data. There is one path for a new commit, for drift, for a restart of the agent and for
//! a retry. What a round remembers is in the [`Record`]; everything else is looked up anew.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use tokio::{
    sync::{Notify, Semaphore, broadcast, mpsc, watch},
    time::{Instant, sleep, sleep_until, timeout},
};
use tokio_util::sync::CancellationToken;

use crate::probe::Prober;
use driftless_clock::Clock;
use driftless_docker::{Docker, ObserveScope};
use driftless_git::Source;
use driftless_model::{
    AgentId, AppName, ApplicationStatus, Attempt, ContentId, Contents, Event, EventKind, HELPER_IMAGE, Mask,
    Observed, Policy, Record, Revision, StackHash, Timestamp,
};
use driftless_plan as plan;
use driftless_plan::{Plan, StepOutcome, Target, sync_delay};
use driftless_store::{ContentDir, Store};

use crate::{
    commit_status::Verdicts,
    desired::Orders,
    error::chain,
    execute::{Executed, Hands, done, execute},
    fs_scan::Looks,
    handle::Applications,
    image_tasks::Pulls,
    probe_targets,
    requests::{Asked, acknowledged},
    revisions::Goal,
    trust::{Consent, Refusal},
    wakes::Wakes,
};

/// What all applications of an agent share.
pub(crate) struct Shared<D> {
    pub(crate) docker: Arc<D>,
    pub(crate) store: Store,
    pub(crate) contents: ContentDir,
    pub(crate) prober: Prober,
    pub(crate) clock: Clock,
    pub(crate) agent: AgentId,
    pub(crate) mask: Mask,
    /// How many images may be built at the same time.
    pub(crate) builders: Arc<Semaphore>,
    pub(crate) build_timeout: Duration,
    /// How many containers may be looked into at the same time.
    pub(crate) lookers: Arc<Semaphore>,
    /// How many applications may act at the same time.
    pub(crate) permits: Semaphore,
    pub(crate) events: broadcast::Sender<Event>,
    pub(crate) applications: watch::Sender<Applications>,
    pub(crate) verdicts: watch::Sender<Verdicts>,
    pub(crate) wakes: Wakes,
    /// Rung when the agent as a whole has something to publish.
    pub(crate) news: Arc<Notify>,
}

pub(crate) struct App<D, S> {
    pub(crate) name: AppName,
    pub(crate) shared: Arc<Shared<D>>,
    pub(crate) source: Option<Arc<S>>,
    /// Rung to fetch now.
    pub(crate) fetch: Option<Arc<Notify>>,
    pub(crate) consent: Option<Consent>,
    pub(crate) orders: Orders,
    pub(crate) bell: Arc<Notify>,
    pub(crate) pulls: Pulls,
    pub(crate) looks: Looks,
    pub(crate) record: Record,
    pub(crate) revision: Option<Revision>,
    pub(crate) generation: u64,
    pub(crate) goal_key: Option<(StackHash, Option<u64>, Policy)>,
    pub(crate) status: ApplicationStatus,
    /// How far the followed reference is ahead of the pin, and for which two commits that was counted.
    pub(crate) behind: Option<((String, String), Option<u64>)>,
    pub(crate) prepared: Option<StackHash>,
    /// The refused commit that was told last.
    pub(crate) told: Option<Arc<Refusal>>,
    /// Somebody asked for a sync: at which commit we were then, and when it was.
    pub(crate) asked: Option<(String, Timestamp)>,
    pub(crate) engine_failures: u32,
    /// Hides the secrets of what was last looked at.
    pub(crate) mask: Mask,
    /// The record on the disk is the one in memory.
    pub(crate) is_saved: bool,
    /// What state was lost, until somebody has confirmed it.
    pub(crate) loss: Option<String>,
    /// Docker was looked at since the start.
    pub(crate) is_known: bool,
}

/// When to look again by ourselves.
type Due = Option<Timestamp>;

/// The shortest pause between two looks that nothing but the clock asks for.
const BREATH: Duration = Duration::from_millis(100);

/// How often the progress of a pull is told.
const PROGRESS: Duration = Duration::from_secs(1);

/// How often in a row an object may be found not to be as supposed before it is held back.
const SURPRISES: u32 = 3;

/// When to try again to save what the disk had no room for.
const SAVE_AGAIN: Duration = Duration::from_secs(30);

/// How long it waits until fewer applications act.
const TURN: Duration = Duration::from_secs(10);

/// A bound on rounds without a rest, so that a fault of ours cannot keep the host busy.
const ROUNDS_AT_ONCE: usize = 40;

impl<D: Docker, S: Source> App<D, S> {
    /// Rounds for ever.
    pub(crate) async fn run(
        mut self,
        mut orders: watch::Receiver<Orders>,
        mut requests: mpsc::Receiver<Asked>,
        stop: CancellationToken,
    ) {
        let mut waiting: Vec<Asked> = Vec::new();
        loop {
            for (kind, reply) in waiting.drain(..) {
                let answer = self.answer(&kind).await;
                // Whoever asked may have gone.
                let _ = reply.send(answer);
            }
            let new = orders.borrow_and_update().clone();
            self.tell_refusal(&new);
            self.orders = new;
            let interrupt = stop.child_token();
            let under_way = self.orders.clone();
            let mut is_quiet_news = false;
            let due = {
                let rounds = self.rounds(&interrupt);
                tokio::pin!(rounds);
                loop {
                    // The rounds are never dropped half way: an interrupt ends them after the steps under way.
                    tokio::select! {
                        due = &mut rounds => break due,
                        Some(asked) = requests.recv() => {
                            if !asked.0.is_question() {
                                interrupt.cancel();
                            }
                            waiting.push(acknowledged(asked));
                        }
                        // A listing that found nothing new must not cost another look.
                        Ok(()) = orders.changed() => {
                            if under_way.ask_the_same(&orders.borrow()) {
                                is_quiet_news = true;
                            } else {
                                interrupt.cancel();
                            }
                        }
                    }
                }
            };
            if stop.is_cancelled() {
                return;
            }
            // New orders that ended the rounds are not told again.
            if !waiting.is_empty() || interrupt.is_cancelled() {
                continue;
            }
            if is_quiet_news && !self.follow_quietly(&orders) {
                continue;
            }
            // Whatever is due already and could not be done is not asked for again without a breath.
            let pause =
                due.map_or(Duration::from_hours(1), |it| it.since(self.shared.clock.now()).max(BREATH));
            let until = Instant::now() + pause;
            loop {
                tokio::select! {
                    () = stop.cancelled() => return,
                    Some(asked) = requests.recv() => waiting.push(asked),
                    () = self.bell.notified() => {}
                    changed = orders.changed() => {
                        if changed.is_err() {
                            return;
                        }
                        if self.follow_quietly(&orders) {
                            continue;
                        }
                    }
                    () = sleep_until(until) => {}
                    () = sleep(PROGRESS), if self.pulls.progress().is_some() => {
                        self.publish_progress();
                        continue;
                    }
                }
                break;
            }
        }
    }

    /// Round after round until nothing more can be done now. Returns when to look again.
    async fn rounds(&mut self, interrupt: &CancellationToken) -> Due {
        for _ in 0..ROUNDS_AT_ONCE {
            match self.round(interrupt).await {
                Next::Again if !interrupt.is_cancelled() => {}
                Next::Again => return None,
                Next::At(due) => return due,
            }
        }
        tracing::warn!(app = %self.name, "many rounds without an end; resting");
        Some(self.shared.clock.now().after(Duration::from_secs(5)))
    }

    async fn round(&mut self, interrupt: &CancellationToken) -> Next {
        if let Err(error) = self.read_loss() {
            return self.stumble(&chain(&error));
        }
        let mut goal = match self.goal() {
            Ok(Some(goal)) => self.with_due(goal),
            Ok(None) => {
                self.publish_without_goal();
                return Next::At(None);
            }
            Err(error) => return self.stumble(&chain(&error)),
        };
        self.note_target(&goal);
        if let Err(error) = self.prepare(&goal).await {
            return self.stumble(&error);
        }
        let wanted = interest(&goal, &self.record);
        let mut observed = match self.shared.docker.observe(&self.name, &wanted).await {
            Ok(observed) => observed,
            Err(error) => return self.engine_is_away(&chain(&error)),
        };
        self.engine_failures = 0;
        match self.note_loss(&observed) {
            Ok(false) => {}
            Ok(true) => return Next::Again,
            Err(error) => return self.stumble(&chain(&error)),
        }
        if self.confirm(&mut goal, &observed) {
            return Next::Again;
        }
        probe_targets::overlay(&self.shared.prober, &goal.stack, &self.name, &mut observed);
        self.looks.overlay(&mut observed);
        let now = self.shared.clock.now();
        let remembered = self.record.clone();
        let shared = Arc::clone(&self.shared);
        let fallback = self.fallback(&goal);
        let mask = self.mask_of(&goal.stack, fallback.as_ref());
        self.mask = mask.clone();
        let target = Target {
            stack: &goal.stack,
            fallback: fallback.as_ref(),
            agent: &shared.agent,
            policy: &goal.policy,
            images: &goal.images,
            mask: &mask,
        };
        self.adopt_unasked(&target, &observed);
        plan::embrace(&mut observed, &self.record, &shared.agent);
        plan::note_observed(&mut self.record, &target, &observed, now);
        let plan = plan::plan(&target, &observed, &self.record, now);
        plan::note_planned(&mut self.record, &plan);
        // What only we know once we have acted must be on the disk before.
        if self.record.irretrievable() != remembered.irretrievable() {
            self.keep_record();
        }
        let asks_for =
            |image: &str| plan.steps.iter().any(|it| brings(&it.action) && it.action.object() == image);
        let ended = self.pulls.keep_only(asks_for).into_iter();
        for (image, is_built) in ended.filter(|(image, _)| observed.images.contains_key(image)) {
            // The engine has it before it says so: what is left to say is of no interest.
            let (reason, action) = match image.as_str() {
                _ if is_built => ("Built", "build"),
                HELPER_IMAGE => ("Imported", "import"),
                _ => ("Pulled", "pull"),
            };
            tracing::info!(app = %self.name, image, "{action} done");
            self.tell(EventKind::Normal, reason, &image, &format!("{action} {image}"));
        }
        self.tell_drift(&plan);
        self.count_behind(&goal).await;
        if plan.is_settled() {
            self.arrive(&goal, &target, &observed);
        } else {
            self.begin_revision(&goal);
        }
        self.publish(&goal, &observed, &plan, now);
        let next = if plan.steps.is_empty() {
            self.check_deadline(&plan);
            let traces = self.looks.begin(&shared.docker, &goal.policy, &observed, &self.record);
            Next::At([plan.look_again, traces].into_iter().flatten().min())
        } else {
            self.act(&goal, &target, &plan, interrupt).await
        };
        if self.record != remembered || !self.is_saved {
            self.keep_record();
        }
        if self.is_saved { next } else { next.by(now.after(SAVE_AGAIN)) }
    }

    /// Performs the steps of a plan.
    async fn act(
        &mut self,
        goal: &Goal,
        target: &Target<'_>,
        plan: &Plan,
        interrupt: &CancellationToken,
    ) -> Next {
        let materials = self.materials(goal, target);
        let shared = Arc::clone(&self.shared);
        // Who has waited so long goes on without: others may be stopping what takes its time.
        let _permit = timeout(TURN, shared.permits.acquire()).await;
        let now = shared.clock.now();
        let held: BTreeSet<String> = self
            .record
            .failures
            .iter()
            .filter(|(_, it)| it.next > now)
            .map(|(object, _)| object.clone())
            .collect();
        let mut told = Vec::new();
        let mut report = |index: usize, outcome: &StepOutcome| {
            let Some(step) = plan.steps.get(index) else { return };
            tell_step(&self.name, step, outcome);
            told.push((index, outcome.clone(), shared.clock.now()));
        };
        let hands = Hands {
            docker: &shared.docker,
            contents: &shared.contents,
            app: &self.name,
            mask: target.mask,
            pulls: &mut self.pulls,
            materials: &materials,
            held: &held,
            interrupt,
            report: &mut report,
        };
        let Executed { outcomes, refused, acted } = execute(plan, hands).await;
        let now = shared.clock.now();
        plan::note_executed(&mut self.record, target, plan, &outcomes, now);
        for (index, outcome, at) in told {
            self.tell_outcome(plan, index, &outcome, at);
        }
        let is_held = self.note_failures(plan, &outcomes, &refused, now);
        self.status.last_plan = Arc::new(plan.steps.iter().map(ToString::to_string).collect());
        self.status.last_plan_at = Some(now);
        // The plan knew nothing yet of an image that could not be had, nor when to try again.
        let is_bereft = |(step, outcome): (&plan::Step, &StepOutcome)| {
            brings(&step.action) && matches!(outcome, StepOutcome::Failed { .. })
        };
        let plans_anew = plan.steps.iter().zip(&outcomes).any(is_bereft);
        if acted || plans_anew || (!refused.is_empty() && !is_held) {
            return Next::Again;
        }
        let due = self.record.failures.values().map(|it| it.next).filter(|it| *it > now).min();
        self.publish_progress();
        Next::At([due, plan.look_again].into_iter().flatten().min())
    }

    /// Counts what the engine would not do, by object. True if something is now held back.
    fn note_failures(
        &mut self,
        plan: &Plan,
        outcomes: &[StepOutcome],
        refused: &BTreeSet<usize>,
        now: Timestamp,
    ) -> bool {
        let mut is_held = false;
        for (index, (step, outcome)) in plan.steps.iter().zip(outcomes).enumerate() {
            let object = step.action.object().to_owned();
            match outcome {
                StepOutcome::Done | StepOutcome::Created(_) => {
                    self.record.failures.remove(&object);
                }
                StepOutcome::Failed { error, .. } if !brings(&step.action) => {
                    let count = self.record.failures.get(&object).map_or(0, |it| it.count).saturating_add(1);
                    // What is not as the plan supposed is looked at again at once, and held back only if that
                    // does not help.
                    let is_surprise = count <= SURPRISES && refused.contains(&index);
                    let pause = if is_surprise { Duration::ZERO } else { sync_delay(count) };
                    let attempt = Attempt { count, next: now.after(pause), error: error.clone() };
                    if !is_surprise {
                        self.record.sync = Some(attempt.clone());
                        is_held = true;
                    }
                    self.record.failures.insert(object, attempt);
                }
                StepOutcome::Failed { .. } | StepOutcome::Skipped => {}
            }
        }
        if self.record.failures.is_empty() {
            self.record.sync = None;
        }
        is_held
    }

    /// Everything that the goal mounts is on the disk before anything is started.
    async fn prepare(&mut self, goal: &Goal) -> Result<(), String> {
        let hash = goal.hash.clone();
        // What is suspended is looked at and left alone, its own folder too.
        if goal.policy.suspended || self.prepared.as_ref() == Some(&hash) {
            return Ok(());
        }
        let put = |contents: Arc<Contents>| {
            let (shared, stack) = (Arc::clone(&self.shared), Arc::clone(&goal.stack));
            async move {
                let put =
                    tokio::task::spawn_blocking(move || shared.contents.prepare(&stack, &contents)).await;
                put.map_err(|it| it.to_string())?.map_err(|it| chain(&it))
            }
        };
        if let Err(error) = put(Arc::clone(&goal.contents)).await {
            // Secrets are kept in memory only, and an older commit's are not with the newest: read them from the
            // mirror once more.
            let Some(source) = &self.source else { return Err(error) };
            let spec = goal.wanted.spec.clone();
            let again = crate::repository::contents_of(source.as_ref(), &goal.commit.id, spec).await;
            let again = again.map_err(|it| format!("{error}; {}", chain(&it)))?;
            put(Arc::new(again)).await?;
        }
        self.prepared = Some(hash);
        Ok(())
    }

    /// How far Git has gone on while we are pinned.
    async fn count_behind(&mut self, goal: &Goal) {
        let (Some(pin), Some(source)) = (&goal.pin, &self.source) else { return };
        let key = (pin.commit.clone(), self.orders.wanted.commit.id.clone());
        if key.1.is_empty() || self.behind.as_ref().is_some_and(|it| it.0 == key) {
            return;
        }
        let behind = source.ahead(&key.0, &key.1).await;
        self.behind = Some((key, behind));
    }

    /// Something of our own failed: say so, and try again after a pause.
    fn stumble(&mut self, error: &str) -> Next {
        let now = self.shared.clock.now();
        let count = self.record.sync.as_ref().map_or(0, |it| it.count).saturating_add(1);
        let next = now.after(sync_delay(count));
        tracing::error!(app = %self.name, error, attempt = count, "the round failed");
        self.record.sync = Some(Attempt { count, next, error: error.to_owned() });
        self.publish_trouble(error);
        Next::At(Some(next))
    }

    fn engine_is_away(&mut self, error: &str) -> Next {
        self.engine_failures = self.engine_failures.saturating_add(1);
        let seed = crate::seed(self.name.as_str(), self.shared.clock.now());
        let delay = plan::docker_delay(self.engine_failures, seed);
        if self.engine_failures == 1 {
            tracing::warn!(app = %self.name, error, "could not look at Docker");
        }
        self.publish_trouble(error);
        Next::At(Some(self.shared.clock.now().after(delay)))
    }

    pub(crate) fn keep_record(&mut self) {
        let saved = self.shared.store.save_record(&self.name, &self.record);
        self.is_saved = saved.is_ok();
        if let Err(error) = saved {
            tracing::warn!(app = %self.name, error = chain(&error), "the record is not saved");
        }
    }

    pub(crate) fn tell(&self, kind: EventKind, reason: &str, object: &str, message: &str) {
        self.tell_at(self.shared.clock.now(), kind, reason, object, message);
    }

    /// Of something that happened a moment ago.
    fn tell_at(&self, at: Timestamp, kind: EventKind, reason: &str, object: &str, message: &str) {
        let event = Event {
            sequence: 0,
            at,
            app: self.name.clone(),
            kind,
            reason: reason.to_owned(),
            object: object.to_owned(),
            message: self.mask.message(message),
        };
        match self.shared.store.append_event(event) {
            // Nobody may be listening.
            Ok(event) => drop(self.shared.events.send(event)),
            Err(error) => {
                tracing::warn!(app = %self.name, error = chain(&error), "an event is not written down");
            }
        }
    }

    /// Names each difference once, when it is first seen.
    fn tell_drift(&self, plan: &Plan) {
        for drift in &plan.drifts {
            let same = |it: &&driftless_model::Drift| {
                (&it.object, &it.field, &it.found) == (&drift.object, &drift.field, &drift.found)
            };
            if self.status.drift.iter().any(|it| same(&it)) {
                continue;
            }
            let since = drift.at.map(|it| format!(" since {it}")).unwrap_or_default();
            let message = format!("{}: found {}, wants {}{since}", drift.field, drift.found, drift.want);
            tracing::warn!(app = %self.name, object = drift.object, field = drift.field, found = drift.found, want = drift.want, "drift");
            self.tell(EventKind::Warning, "DriftDetected", &drift.object, &message);
        }
    }

    fn tell_outcome(&self, plan: &Plan, index: usize, outcome: &StepOutcome, at: Timestamp) {
        let Some(step) = plan.steps.get(index) else { return };
        let (kind, reason, message) = match outcome {
            StepOutcome::Done | StepOutcome::Created(_) => {
                (EventKind::Normal, done(&step.action), step.to_string())
            }
            StepOutcome::Failed { error, .. } => (EventKind::Warning, "Failed", format!("{step}: {error}")),
            StepOutcome::Skipped => return,
        };
        self.tell_at(at, kind, reason, step.action.object(), &message);
    }
}

/// What comes after a round.
pub(crate) enum Next {
    /// Something changed: look at once.
    Again,
    /// Nothing more can be done before something rings, or before then.
    At(Due),
}

impl Next {
    /// Not later than then.
    fn by(self, then: Timestamp) -> Self {
        match self {
            Self::Again => Self::Again,
            Self::At(due) => Self::At(Some(due.map_or(then, |it| it.min(then)))),
        }
    }
}

/// What must be looked up although it may not be ours.
pub(crate) fn interest(goal: &Goal, record: &Record) -> ObserveScope {
    interest_in(&goal.stack, &goal.images, record)
}

/// The same of any stack, with the digests to create from.
pub(crate) fn interest_in(
    stack: &driftless_model::Stack,
    digests: &BTreeMap<String, String>,
    record: &Record,
) -> ObserveScope {
    let adopted = &record.adopted;
    let mut interest = ObserveScope::of(stack);
    interest.images.extend(digests.values().cloned());
    interest.networks.extend(adopted.networks.keys().cloned());
    interest.volumes.extend(adopted.volumes.keys().cloned());
    interest.adopted = adopted.containers.keys().cloned().collect();
    interest.adopted_networks = adopted.networks.values().map(|it| it.id.clone()).collect();
    interest
}

/// Whether it brings an image, beside the rounds and with pauses of its own.
fn brings(action: &plan::Action) -> bool {
    use plan::Action::{BuildImage, ImportImage, PullImage};
    matches!(action, PullImage { .. } | BuildImage { .. } | ImportImage { .. })
}

/// One log line per action that changed something.
fn tell_step(app: &AppName, step: &plan::Step, outcome: &StepOutcome) {
    match outcome {
        StepOutcome::Done | StepOutcome::Created(_) => {
            tracing::info!(%app, action = %step.action, cause = %step.cause, "done");
        }
        StepOutcome::Failed { error, .. } => {
            tracing::error!(%app, action = %step.action, cause = %step.cause, error, "failed");
        }
        StepOutcome::Skipped => {}
    }
}

/// The contents that the running containers of an application mount.
pub(crate) fn contents_in_use(observed: &Observed) -> BTreeSet<ContentId> {
    observed.containers().flat_map(|it| it.contents().cloned().collect::<Vec<_>>()).collect()
}
