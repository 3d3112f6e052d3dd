//! One round of one application: choose the target, observe, plan, publish the status, perform the steps. The owners of
//! the application's state live here; each keeps its fields to itself.

use std::{collections::BTreeSet, pin::pin, sync::Arc, time::Duration};

use futures_util::future::join;
use tokio::{
    sync::{Notify, Semaphore, watch},
    time::Instant,
};
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use driftless_docker::Docker;
use driftless_git::CommitSource;
use driftless_metrics::RoundFailure;
use driftless_model::{
    Actor, AppName, Attempt, CompletedJobs, ContainerId, EngineKind, EventKind, Mask, Observed,
    ObservedSwarm, Outcome, PlatformImage, Record, Timestamp, VerifiedImage,
};
use driftless_plan as plan;
use driftless_plan::{Action, Plan, StepOutcome, Target, WaitReason, sync_delay};
use driftless_store as store;

use crate::{
    Applications, canary_events,
    commits::status::CommitStatuses,
    context::{AppContext, Services},
    cron_runs,
    desired::Desired,
    endpoints::{EndpointReports, Executing, Reported, Stopping},
    engine_state::EngineState,
    error::chain,
    execute::{Executor, execute},
    fs_scan::FsScans,
    hooks,
    images::{
        build_context::BuildContext,
        registry_calls::ImageCalls,
        tasks::{BuildLimits, ImageTasks},
        updates::{FollowedStack, ImageUpdates},
    },
    interrupt::Interrupt,
    last_observation::LastObservation,
    log_span,
    masked_target::MaskedTarget,
    mounts::{MountedFiles, Mounts},
    observe::{Observer, show_check_outputs},
    other_agents::{other_owner::OtherOwner, ownership::Own},
    outcomes::{
        count_failures, gets_image, held_objects, log_step, report_images, report_step, with_outcomes,
    },
    probe::Prober,
    publish::Publisher,
    record::StoredRecord,
    repository::{RepositoryLink, RepositoryLinks},
    requests::{RequestHandler, adopt},
    revisions::{Revisions, last_version::reached_stack, stored::forget, target::TargetRevision},
    state_loss::EngineCheck,
    status::StatusInputs,
    swarm::{
        self,
        agreement::{Agreed, ManagerAgreement},
        fetch::SwarmFetch,
    },
    ticket::{Ticket, Tickets},
    trials::{RejectedStops, Trials},
    turns::Turns,
    unpublished::Unpublished,
};

/// When to share the state of an application again that the Swarm has not taken.
const SHARE_AGAIN: Duration = Duration::from_secs(5);

/// The services that all applications of an agent share to observe, act and publish. Those that need no engine are
/// [`Services`].
pub(crate) struct EngineServices<D> {
    pub(crate) docker: Arc<D>,
    /// Whether the engine answers.
    pub(crate) engine: EngineState,
    pub(crate) prober: Arc<Prober>,
    pub(crate) builds: BuildLimits,
    /// Permits to scan a container.
    pub(crate) scans: Arc<Semaphore>,
    pub(crate) turns: Arc<Turns>,
    /// Calls to ask registries now.
    pub(crate) image_calls: ImageCalls,
    pub(crate) applications: watch::Sender<Applications>,
    /// The applications that are not published yet.
    pub(crate) unpublished: Unpublished,
    pub(crate) commit_statuses: watch::Sender<CommitStatuses>,
    /// The numbers of requests.
    pub(crate) tickets: Tickets,
}

/// Signals between the task of an application and others.
pub(crate) struct TaskSignals {
    /// Notified when an image or a scan is ready.
    pub(crate) wake: Arc<Notify>,
    /// Ends the application.
    pub(crate) stop: CancellationToken,
}

/// The owners of one application's state.
pub(crate) struct Reconciler<D, S> {
    context: AppContext,
    repositories: RepositoryLinks<S>,
    desired: Arc<Desired>,
    revisions: Revisions,
    record: StoredRecord,
    publisher: Publisher,
    observer: Observer<D>,
    last_observation: LastObservation,
    swarm_fetch: SwarmFetch,
    agreement: ManagerAgreement,
    mounts: Mounts,
    /// The mask and the masked texts of the last target.
    masked: Option<MaskedTarget>,
    images: ImageTasks,
    image_updates: ImageUpdates,
    other_owner: OtherOwner,
    endpoints: EndpointReports,
    trials: Trials,
    turns: Arc<Turns>,
    engine: EngineState,
    stop: CancellationToken,
}

/// The action after a round.
pub(crate) enum Next {
    /// Another round at once: something has changed.
    Round,
    /// Nothing more can be done before a wake or before this time.
    Sleep(Option<Timestamp>),
    /// The round failed on the agent's own host. The next one is made at this time, for a request, or for another desired
    /// state, and not for a wake.
    BackOff(Timestamp),
}

impl<D: Docker, S: CommitSource> Reconciler<D, S> {
    /// An application that continues from the database.
    pub(crate) fn new(
        name: AppName,
        services: Arc<Services>,
        shared: &EngineServices<D>,
        repositories: RepositoryLinks<S>,
        desired: Arc<Desired>,
        signals: TaskSignals,
    ) -> Self {
        let TaskSignals { wake, stop } = signals;
        let scans = FsScans::new(Arc::clone(&wake), Arc::clone(&shared.scans), services.clock);
        let context = AppContext::new(name, services);
        Self {
            repositories,
            desired,
            revisions: Revisions::load(&context),
            record: StoredRecord::load(&context),
            publisher: Publisher::new(
                shared.applications.clone(),
                shared.commit_statuses.clone(),
                &shared.tickets,
                shared.unpublished.clone(),
            ),
            swarm_fetch: SwarmFetch::new(shared.tickets.clone()),
            agreement: ManagerAgreement::default(),
            observer: Observer::new(Arc::clone(&shared.docker), Arc::clone(&shared.prober), scans),
            last_observation: LastObservation::default(),
            mounts: Mounts::default(),
            image_updates: ImageUpdates::new(Arc::clone(&wake), shared.image_calls.clone()),
            masked: None,
            images: ImageTasks::new(wake, shared.builds.clone(), context.store().clone(), context.clock()),
            other_owner: OtherOwner::default(),
            endpoints: EndpointReports::default(),
            trials: Trials::default(),
            turns: Arc::clone(&shared.turns),
            engine: shared.engine.clone(),
            stop,
            context,
        }
    }

    /// The time of day.
    pub(crate) fn now(&self) -> Timestamp {
        self.context.now()
    }

    /// The desired state of the last round.
    pub(crate) fn desired(&self) -> &Arc<Desired> {
        &self.desired
    }

    /// Follows a new desired state from the next round on.
    pub(crate) fn set_desired(&mut self, desired: Arc<Desired>) {
        self.publisher.report_rejected_commit(&self.context, &desired);
        self.publisher.report_invalid_commit(&self.context, &desired);
        self.desired = desired;
    }

    /// Notes that a request was accepted or refused. The rounds from now on answer its ticket.
    pub(crate) fn note_request(&mut self, ticket: Ticket) {
        self.publisher.note_request(ticket);
    }

    /// Follows a commit that changes nothing for this application. False: it needs a round.
    pub(crate) fn follow_without_round(&mut self, newest: &Arc<Desired>) -> bool {
        let is_pinned = !matches!(self.context.store().pin(self.context.name()), Ok(None));
        let was_observed = self.publisher.status().observed_at.is_some();
        let is_skipped = self.record.get().failed.is_some() || self.revisions.held().is_some();
        let awaits_fetch = self.record.get().swarm.as_ref().is_some_and(|kept| kept.unfetched.is_some());
        let awaits_fetch = awaits_fetch || self.revisions.awaits_fetch(&self.desired);
        if is_pinned || is_skipped || awaits_fetch || !was_observed || !self.desired.asks_for_the_same(newest)
        {
            return false;
        }
        let before = std::mem::replace(&mut self.desired, Arc::clone(newest));
        self.revisions.note_fetch(&self.desired);
        self.publisher.publish_same_target(&self.context, &before, &self.desired);
        true
    }

    /// Whether an image is being pulled, built or imported.
    pub(crate) fn has_progress(&self) -> bool {
        self.images.progress().is_some()
    }

    /// Publishes the progress of pulls and builds.
    pub(crate) fn publish_progress(&mut self) {
        self.publisher.publish_progress(&self.context, self.images.progress());
    }

    /// One round: target, observe, plan, publish, act.
    pub(crate) async fn round(&mut self, interrupt: &Interrupt) -> Next {
        let began = Instant::now();
        let span = log_span::round(self.context.round() + 1, self.revisions.current());
        // Boxed, so that an application that sleeps has no room for a round.
        let next = Box::pin(self.measured_round(interrupt)).instrument(span).await;
        self.context.metrics().round(began.elapsed());
        next
    }

    async fn measured_round(&mut self, interrupt: &Interrupt) -> Next {
        let remembered = self.record.get().clone();
        self.begin_round();
        let mut target = match self.choose_target() {
            Ok(target) => target,
            Err(next) => return next,
        };
        let mut observed = match self.observe(&target).await {
            Ok(observed) => observed,
            Err(next) => return next,
        };
        let now = self.now();
        swarm::drop_requests(&observed, self.record.get_mut());
        swarm::complete(&mut target, &mut observed, self.record.get_mut(), self.context.agent(), now);
        let share_again = match self.agree(&target, &observed).await {
            Ok(Agreed::Reached) => None,
            Ok(Agreed::Taken) => return Next::Round,
            Ok(Agreed::Unshared) => Some(self.now().after(SHARE_AGAIN)),
            Err(error) => return self.fail(Some(&target), &chain(&error)),
        };
        if let Some(next) = self.examine(&mut target, &observed) {
            return next;
        }
        // Not before: containers of another agent, or of a version that is not known any more, may use the files.
        let repository = self.repository().cloned();
        if let Some(next) = self.prepare_mounts(repository.as_ref(), &target, &mut observed).await {
            return next;
        }
        let reached = match reached_stack(&self.context, &target, self.record.get()) {
            Ok(reached) => reached,
            Err(error) => return self.fail(Some(&target), &chain(&error)),
        };
        let masked = self.hide_secrets(&target, &observed, reached.is_some());
        let mask = masked.mask().clone();
        let agent = self.context.agent().clone();
        let planned = target.for_planner(reached.as_ref(), &agent, &mask);
        show_check_outputs(&mut observed, &mask);
        let (plan, now) = self.plan(&planned, &mut observed, &remembered);
        if cron_runs::begin_due(&self.context, &mut self.record, &plan, now) {
            return Next::Round;
        }
        self.publisher.report_drift(&self.context, &plan);
        let source = repository.as_ref().map(|repository| repository.source.as_ref());
        self.revisions.count_behind(source, &self.desired, &target).await;
        if self.settle_or_begin(&target, &planned, &observed, &plan) {
            return Next::Round;
        }
        if self.detect_failure(&target, &observed, &plan, &mask, now) {
            return Next::Round;
        }
        let failure_may_come = self.failure_may_come(&target, &observed, &plan, now);
        // Before the steps, because a pod that they stop must not get new connections; and before the status, because who
        // reads that all is ready may connect at once.
        let rejected = self.rejected_stops(&observed, &plan, &mask, interrupt).await;
        let stopped = rejected.stopped_at_once(&plan);
        let reported = self.report_endpoints(&target, &observed, &plan, &stopped).await;
        self.publish_round(masked, &target, &observed, &plan, now);
        let next = if plan.steps.is_empty() {
            let scan = self.observer.start_scans(&target.policy, &observed, self.record.get());
            Next::Sleep(Timestamp::earliest(plan.look_again, scan))
        } else if self.context.ownership().own() == Own::Unclaimed {
            self.context.ownership().claimed(interrupt.token()).await;
            Next::Round
        } else {
            let kept = (&reported.too_early, &rejected);
            self.act(&target, &planned, (&observed, kept), &plan, interrupt).await
        };
        // The database has no record of an application that was removed.
        let is_stored = !self.revisions.is_forgotten();
        let store_again =
            is_stored.then(|| self.record.save_changes(&self.context, &remembered, now)).flatten();
        let latest = Timestamp::earliest_of([
            reported.again,
            failure_may_come,
            self.window_opens(),
            self.next_image_update(&target, &observed),
            store_again,
            share_again,
        ]);
        match latest {
            Some(latest) => next.by(latest),
            None => next,
        }
    }

    /// Chooses the revision that the round leads to. Without one, or where its hooks begin, the round ends with this.
    fn choose_target(&mut self) -> Result<TargetRevision, Next> {
        if let Err(error) = self.revisions.read_loss(&self.context, &self.desired, self.record.get()) {
            return Err(self.fail(None, &chain(&error)));
        }
        self.revisions.note_newest(&self.desired, self.record.get_mut());
        let chosen = self.revisions.target(&self.context, &self.desired, self.record.get());
        if self.revisions.note_after(self.record.get_mut()) {
            self.record.save(&self.context);
        }
        let target = match chosen {
            Ok(Some(target)) => target,
            Ok(None) if self.revisions.is_unknown(&self.desired) => {
                forget(&self.context);
                self.publisher.withdraw(&self.context);
                return Err(Next::Sleep(None));
            }
            Ok(None) => {
                self.publish(self.now(), Publisher::publish_without_target);
                return Err(Next::Sleep(self.window_opens()));
            }
            Err(error) => return Err(self.fail(None, &chain(&error))),
        };
        self.revisions.release_failed(&self.desired, &target, self.record.get_mut());
        let sync = hooks::Sync { current: self.revisions.current(), target: &target };
        if hooks::begin_pre_delete(&self.context, &mut self.record, &sync) {
            return Err(Next::Round);
        }
        if self.revisions.note_target(&self.context, &self.desired, &target, self.record.get_mut()) {
            self.publisher.next_generation();
        }
        Ok(target)
    }

    /// Observes the containers of a target. Without an answer of the engine, the round ends with this.
    async fn observe(&mut self, target: &TargetRevision) -> Result<Observed, Next> {
        let mut engine = self.engine.clone();
        let observing = async {
            // An engine that shuts down answers open connections, and what it stops would look like drift.
            engine.answers().await;
            self.observer.observe(&self.context, target, self.record.get()).await
        };
        let observed = tokio::select! {
            observed = observing => observed.map_err(|error| chain(&error)),
            error = self.engine.lost() => {
                self.observer.note_failure();
                Err(error)
            }
            () = self.stop.cancelled() => return Err(Next::Sleep(None)),
        };
        observed.map_err(|error| self.fail_to_observe(target, &error))
    }

    /// Writes the mounted files of a target. If that fails, the round ends with the result.
    async fn prepare_mounts(
        &mut self,
        repository: Option<&RepositoryLink<S>>,
        target: &TargetRevision,
        observed: &mut Observed,
    ) -> Option<Next> {
        let record = self.record.get();
        let prepared =
            self.mounts.prepare(&self.context, repository, &self.desired, target, observed, record);
        match prepared.await {
            Ok(MountedFiles { lacking, awaited }) => {
                (observed.lacking_secrets, observed.claims.awaited_folder) = (lacking, awaited);
                None
            }
            Err(error) => Some(self.fail(Some(target), &error)),
        }
    }

    /// Agrees with the agents on other managers of a Swarm, and asks for a fetch where another one has applied a newer commit.
    async fn agree(&mut self, target: &TargetRevision, observed: &Observed) -> Result<Agreed, store::Error> {
        let (context, desired) = (&self.context, &self.desired);
        let must_fetch = self.swarm_fetch.compare(context, desired, target, observed, &mut self.record);
        if let Some(repository) = self.repository().filter(|_| must_fetch) {
            repository.fetch_now.notify_one();
        }
        let docker: &D = self.observer.docker();
        self.agreement.reach(&self.context, docker, target, observed, &mut self.record).await
    }

    /// Detects another engine, another owner, a loss of state, a removal and newer images in what was observed. Returns how the round
    /// ends, if that makes another target, or if nothing may be changed.
    fn examine(&mut self, target: &mut TargetRevision, observed: &Observed) -> Option<Next> {
        match self.revisions.check_engine(&self.context, target, observed) {
            Ok(EngineCheck::Same) => {}
            Ok(EngineCheck::SameAgain) => return Some(Next::Round),
            // Without a plan, so that the record keeps what it knows of the containers. The return of the engine wakes the application.
            Ok(EngineCheck::Other) => {
                self.publish(self.now(), |publisher, inputs| publisher.publish_without_data(inputs, target));
                return Some(Next::Sleep(None));
            }
            Err(error) => return Some(self.fail(Some(&*target), &chain(&error))),
        }
        if self.other_owner.check(&self.context, &target.stack, observed) {
            target.policy.suspended = true;
        } else {
            if let Err(error) = self.record.complete_lost_jobs(&self.context, target, observed) {
                return Some(self.fail(Some(&*target), &chain(&error)));
            }
            match self.revisions.detect_loss(&self.context, &self.record.get().adopted, observed) {
                Ok(false) => {}
                Ok(true) => return Some(Next::Round),
                Err(error) => return Some(self.fail(Some(&*target), &chain(&error))),
            }
            let (context, record) = (&self.context, &mut self.record);
            if self.revisions.confirm(context, &self.desired, target, observed, record)
                || self.revisions.note_vanished(&self.desired, &target.stack, observed)
            {
                return Some(Next::Round);
            }
        }
        self.advance_image_updates(target, observed).then_some(Next::Round)
    }

    /// Hides the secrets of the target from now on.
    fn hide_secrets(
        &mut self,
        target: &TargetRevision,
        observed: &Observed,
        has_reached_stack: bool,
    ) -> MaskedTarget {
        let masked = MaskedTarget::of(self.masked.take(), &self.context, target, observed, has_reached_stack);
        self.context.set_mask(masked.mask().clone());
        masked
    }

    /// Publishes the result of a round, and keeps its masked target for the next one.
    fn publish_round(
        &mut self,
        mut masked: MaskedTarget,
        target: &TargetRevision,
        observed: &Observed,
        plan: &Plan,
        now: Timestamp,
    ) {
        self.publish(now, |publisher, inputs| {
            publisher.publish_round(inputs, target, &mut masked, observed, plan);
        });
        self.masked = Some(masked);
        self.note_in_sync(target);
    }

    /// Keeps in the record which commit the application was last in sync with, while the target is another one.
    fn note_in_sync(&mut self, target: &TargetRevision) {
        let last = self.publisher.status().commit.as_ref().filter(|commit| **commit != target.commit);
        if self.record.get().in_sync.as_ref() != last {
            let last = last.cloned();
            self.record.get_mut().in_sync = last;
        }
    }

    /// Forgets a removal if Git has the application again, and begins the hooks of a failed revision.
    fn begin_round(&mut self) {
        self.context.begin_round();
        self.record.end_scales(&self.context);
        self.record.forget_other_keys();
        if !self.desired.may_be_removed() {
            self.record.get_mut().removal = None;
            self.record.get_mut().spared_volumes.clear();
            hooks::cancel_removal(self.record.get_mut());
            if self.revisions.comes_back() {
                // Its Jobs, CronJobs and hooks have not run.
                let record = self.record.get_mut();
                (record.completed_jobs, record.hooks) = (CompletedJobs::default(), None);
                record.jobs.clear();
                record.crons.clear();
                record.newest = None;
            }
        }
        // The database has no record of an application that was removed.
        if !self.revisions.is_forgotten() {
            self.record.note_presence(&self.context, &self.desired);
        }
        hooks::begin_sync_fail(&self.context, &mut self.record, self.revisions.current());
    }

    /// Ends the revision if nothing is left to do, or begins the revision of a new target, and its hooks. True: the target
    /// must be chosen again.
    fn settle_or_begin(
        &mut self,
        target: &TargetRevision,
        planned: &Target<'_>,
        observed: &Observed,
        plan: &Plan,
    ) -> bool {
        let sync = hooks::Sync { current: self.revisions.current(), target };
        let awaits_hooks = hooks::awaits_post_sync(self.record.get(), &sync);
        if plan.is_reached() && !awaits_hooks {
            self.settle(target, planned, observed, plan);
            return false;
        }
        if plan.is_waiting_for_adoption() {
            return false;
        }
        self.revisions.begin(&self.context, &self.desired, target);
        let round = target.judged(observed, self.record.get(), plan, self.now());
        let current = self.revisions.current().filter(|current| current.stack == target.hash);
        let is_applied =
            current.map_or(plan.is_applied(), |current| round.is_applied(self.revisions.span(current)));
        if is_applied && !awaits_hooks {
            self.reach_with_failures(target, observed, plan);
            return false;
        }
        let sync = hooks::Sync { current: self.revisions.current(), target };
        if hooks::awaits_another_attempt(self.record.get(), &sync) {
            self.revisions.reopen(&self.context, &target.hash);
        }
        let sync = hooks::Sync { current: self.revisions.current(), target };
        hooks::advance(&self.context, &mut self.record, &sync, is_applied)
    }

    /// Everything is applied, except for failures that the manifest tolerates or that were there before: the revision has succeeded.
    fn reach_with_failures(&mut self, target: &TargetRevision, observed: &Observed, plan: &Plan) {
        let record = self.record.get_mut();
        if self.revisions.reach(&self.context, &self.desired, target, observed, record) {
            for wait in plan.waits.iter().filter(|wait| wait.is(WaitReason::FailuresTolerated)) {
                self.context.event(
                    EventKind::Warning,
                    "FailuresTolerated",
                    target.commit.short(),
                    &wait.to_string(),
                );
            }
        }
    }

    /// Asks registries for newer images. True: one is deployed, so the target must be chosen again.
    fn advance_image_updates(&mut self, target: &TargetRevision, observed: &Observed) -> bool {
        let may_ask = self.follows_images(target, observed);
        if !may_ask {
            self.image_updates.stop_asking();
        }
        let is_own = self.other_owner.reason().is_none();
        let Some(stack) = self.desired.applicable_stack().filter(|_| is_own) else { return false };
        let followed = FollowedStack { stack, policy: &target.policy, observed };
        let (context, docker) = (&self.context, self.observer.docker());
        let record = self.record.get_mut();
        let has_found = self.image_updates.note_running(record, followed);
        let must_choose =
            has_found || (may_ask && self.image_updates.advance(context, docker, record, followed));
        self.publisher.set_awaits_images(may_ask && self.image_updates.is_awaited());
        if must_choose {
            self.record.save(&self.context);
        }
        must_choose
    }

    fn next_image_update(&self, target: &TargetRevision, observed: &Observed) -> Option<Timestamp> {
        let stack = self.desired.applicable_stack().filter(|_| self.follows_images(target, observed))?;
        let followed = FollowedStack { stack, policy: &target.policy, observed };
        self.image_updates.look_again(self.record.get(), followed)
    }

    /// Whether the agent may ask for the images of an application: it keeps it, and Git has it. Of a Swarm the agent on the
    /// leader asks.
    fn follows_images(&self, target: &TargetRevision, observed: &Observed) -> bool {
        let is_its = match target.policy.engine {
            EngineKind::Docker => true,
            EngineKind::Swarm => observed.swarm.as_deref().is_some_and(ObservedSwarm::is_leader),
        };
        is_its && !target.policy.suspended && !target.is_leaving && self.other_owner.reason().is_none()
    }

    /// When to look again at a commit that is held back.
    fn window_opens(&self) -> Option<Timestamp> {
        self.revisions.held().and_then(|held| held.look_again(self.now()))
    }

    fn detect_failure(
        &mut self,
        target: &TargetRevision,
        observed: &Observed,
        plan: &Plan,
        mask: &Mask,
        now: Timestamp,
    ) -> bool {
        if self.other_owner.reason().is_some() {
            return false;
        }
        let record = self.record.get().clone();
        let round = target.judged(observed, &record, plan, now);
        let admission = &self.desired.rendered().admission;
        self.revisions.detect_failure(&self.context, target, &mut self.record, &round, mask, admission)
    }

    /// When to look again whether the current revision has failed.
    fn failure_may_come(
        &self,
        target: &TargetRevision,
        observed: &Observed,
        plan: &Plan,
        now: Timestamp,
    ) -> Option<Timestamp> {
        let current = self.revisions.current()?;
        target.judged(observed, self.record.get(), plan, now).failure_may_come(current)
    }

    /// Tells the proxies which instances are ready.
    async fn report_endpoints(
        &mut self,
        target: &TargetRevision,
        observed: &Observed,
        plan: &Plan,
        stopped: &BTreeSet<ContainerId>,
    ) -> Reported {
        if self.other_owner.reason().is_some() {
            return Reported::default();
        }
        let round = (&*target.stack, observed, plan);
        self.endpoints.send(&self.context, self.observer.docker(), round, stopped).await
    }

    /// The stops of a plan that must not begin. An agent that does not hold its id yet creates nothing, so it tries nothing.
    async fn rejected_stops(
        &mut self,
        observed: &Observed,
        plan: &Plan,
        mask: &Mask,
        interrupt: &Interrupt,
    ) -> RejectedStops {
        let is_unclaimed = self.context.ownership().own() == Own::Unclaimed;
        if is_unclaimed || plan.steps.is_empty() || self.engine.error().is_some() {
            return RejectedStops::default();
        }
        let held = held_objects(self.record.get(), self.context.now());
        let docker: &D = self.observer.docker();
        let turns: &Turns = &self.turns;
        Box::pin(self.trials.rejected_stops((docker, turns), (plan, observed), &held, mask, interrupt)).await
    }

    /// The repository that has the application now, if it is followed: another one may take over an application.
    fn repository(&self) -> Option<&RepositoryLink<S>> {
        self.repositories.get(&self.desired.rendered().repository)
    }

    /// Plans the round, and stores the parts of the record that could not be found out again after acting.
    fn plan(
        &mut self,
        target: &Target<'_>,
        observed: &mut Observed,
        remembered: &Record,
    ) -> (Plan, Timestamp) {
        let now = self.context.now();
        adopt::adopt_by_policy(&self.context, &mut self.record, target, observed);
        let current = self.revisions.current();
        let is_under_way = current.is_some_and(|revision| revision.outcome == Outcome::InProgress);
        let record = self.record.get_mut();
        let gap = self.last_observation.note(now);
        if let Some(jump) = gap.jump {
            plan::leave_out_jump(record, jump, now);
        }
        if gap.is_break && is_under_way {
            record.resumed = Some(now);
        }
        // Those that the policy has just adopted, too.
        plan::merge_adopted(observed, record, target.agent);
        plan::recall_health(record, observed);
        self.observer.update_scans(observed);
        record.ready = self.observer.ready(&self.context);
        plan::note_observed(record, target, observed, now);
        canary_events::report(&self.context, target.stack, &remembered.canaries, &record.canaries);
        let plan = plan::plan(target, observed, record, now);
        plan::note_planned(record, &plan, now);
        self.other_owner.remark(&self.context, &plan);
        if record.stored_before_acting() != remembered.stored_before_acting() {
            self.record.save(&self.context);
        }
        let needed: BTreeSet<PlatformImage> =
            plan.steps.iter().filter_map(|step| step.action.image()).collect();
        let is_needed = |image: &PlatformImage| needed.contains(image);
        report_images(&self.context, self.images.end_others(is_needed), observed);
        (plan, now)
    }

    /// Nothing is left to do: the revision is reached, and from now on each difference is drift.
    fn settle(&mut self, target: &TargetRevision, planned: &Target<'_>, observed: &Observed, plan: &Plan) {
        let record = self.record.get_mut();
        plan::note_settled(record, planned, observed);
        record.forget_failures();
        // An instance that somebody removed and that is left so has its files when it comes back.
        if plan.is_settled() {
            let instances = observed.instances.values().map(|instance| instance.instance.clone()).collect();
            if let Err(error) = self.context.contents().retain_in_place(self.context.name(), &instances) {
                tracing::warn!(error = chain(&error), "could not remove the files of former containers");
            }
        }
        self.revisions.reach(&self.context, &self.desired, target, observed, self.record.get_mut());
        self.revisions.forget_removed(&self.context, &self.desired, target, observed);
    }

    /// Performs the steps of a plan, without those that stop one of the containers `too_early` or are `rejected`, and what comes
    /// after them.
    async fn act(
        &mut self,
        target: &TargetRevision,
        planned: &Target<'_>,
        (observed, (too_early, rejected)): (&Observed, (&BTreeSet<ContainerId>, &RejectedStops)),
        plan: &Plan,
        interrupt: &Interrupt,
    ) -> Next {
        if self.engine.error().is_some() {
            return self.await_engine(plan, interrupt).await;
        }
        let (repository, record) = (self.repository().cloned(), self.record.get());
        let build_context =
            BuildContext::of(&self.context, repository, &self.desired, target, planned, record);
        let docker = Arc::clone(self.observer.docker());
        let turns = Arc::clone(&self.turns);
        let turn = turns.take().await;
        let mut held = held_objects(self.record.get(), self.context.now());
        held.extend(plan::stops_of(plan, too_early));
        let drains = plan::drains(&target.stack, observed, plan);
        let stopping = Stopping::new(rejected.stopped_at_once(plan));
        let context = &self.context;
        let mut report = |index: usize, outcome: &StepOutcome| {
            let Some(step) = plan.steps.get(index) else { return };
            log_step(step, outcome);
            // At once: the agent may be killed before the round ends.
            report_step(context, step, outcome);
        };
        let executor = Executor {
            docker: &docker,
            contents: context.contents(),
            app: context.name(),
            mask: planned.mask,
            images: &mut self.images,
            read_context: &|build| build_context.read(build),
            drains: &drains,
            stopping: &stopping,
            turn: &turn,
            held: &held,
            rejected,
            interrupt,
            report: &mut report,
        };
        let end = CancellationToken::new();
        let executing = async {
            let mut executing = pin!(execute(plan, executor));
            let executed = tokio::select! {
                executed = &mut executing => executed,
                error = self.engine.lost() => {
                    self.publisher.publish_unanswered(context, &error);
                    executing.await
                }
            };
            end.cancel();
            executed
        };
        let round = Executing { target, record: self.record.get(), plan, stopping: &stopping, end: &end };
        let reporting = self.endpoints.send_meanwhile(context, &mut self.observer, round);
        let (executed, ()) = join(executing, reporting).await;
        let now = self.context.now();
        let steps = plan::describe_steps(&plan.steps, planned, observed, self.record.get());
        let steps = with_outcomes(steps, &executed.outcomes, planned.mask);
        let record = self.record.get_mut();
        plan::note_executed(record, planned, plan, &executed.outcomes, now);
        for signed in executed.signed.values() {
            let image = VerifiedImage { keys: signed.keys.clone(), at: now };
            record.verified_images.insert(signed.digest.clone(), image);
        }
        let is_held = count_failures(record, plan, &executed, now);
        if executed.outcomes.iter().any(|outcome| matches!(outcome, StepOutcome::Failed { .. })) {
            // A mounted file may be missing that somebody removed.
            self.mounts.forget();
        }
        self.publisher.set_last_plan(steps, now);
        // After a failed pull, build or version of the agent, or a rejected definition, the next round plans with that knowledge.
        let is_shown_next = |(step, outcome): (&plan::Step, &StepOutcome)| {
            let StepOutcome::Failed { is_final, .. } = outcome else { return false };
            gets_image(&step.action) || (*is_final && matches!(step.action, Action::ReplaceAgent(_)))
        };
        let is_one_shown_next = plan.steps.iter().zip(&executed.outcomes).any(is_shown_next);
        let is_one_shown_next = is_one_shown_next || !executed.rejected.is_empty();
        if executed.has_acted || is_one_shown_next || (!executed.refused.is_empty() && !is_held) {
            return Next::Round;
        }
        let retry = record.failures.values().map(|attempt| attempt.next).filter(|next| *next > now).min();
        self.publish_progress();
        Next::Sleep(Timestamp::earliest(retry, plan.look_again))
    }

    /// Performs no step while the engine is lost, although it still answers open connections: it may be shutting down, and
    /// would start containers that outlive it. Its return wakes the application.
    async fn await_engine(&mut self, plan: &Plan, interrupt: &Interrupt) -> Next {
        let mut engine = self.engine.clone();
        tokio::select! {
            () = interrupt.token().cancelled() => Next::Round,
            () = engine.answers() => Next::Round,
            error = self.engine.lost() => {
                self.publisher.publish_unanswered(&self.context, &error);
                Next::Sleep(plan.look_again)
            }
        }
    }

    /// A fault of the agent's own host, such as a full disk: publishes it and tries again after a pause.
    fn fail(&mut self, target: Option<&TargetRevision>, error: &str) -> Next {
        let record = self.record.get_mut();
        let count = record.sync.as_ref().map_or(0, |attempt| attempt.count).saturating_add(1);
        let next = self.context.now().after(sync_delay(count));
        record.sync = Some(Attempt { count, next, error: error.to_owned() });
        tracing::error!(error, attempt = count, "the round failed");
        self.context.metrics().round_failed(RoundFailure::Host);
        self.publish_failure(target, error);
        Next::BackOff(next)
    }

    /// The engine does not answer: publishes it and tries again after a pause.
    fn fail_to_observe(&mut self, target: &TargetRevision, error: &str) -> Next {
        let now = self.context.now();
        let failures = self.observer.failures();
        self.last_observation.note_failure();
        self.context.metrics().round_failed(RoundFailure::Engine);
        if failures == 1 {
            tracing::warn!(error, "could not observe the engine");
        }
        self.publish_failure(Some(target), error);
        let delay = plan::docker_delay(failures, crate::random::seed(self.context.name().as_str(), now));
        Next::Sleep(Some(now.after(delay)))
    }

    fn publish_failure(&mut self, target: Option<&TargetRevision>, error: &str) {
        let failures = self.observer.failures();
        let now = self.now();
        self.publish(now, |publisher, inputs| {
            publisher.publish_failed_round(inputs, target, error, failures);
        });
    }

    /// Calls the publisher with the facts that a status is derived from.
    fn publish(&mut self, now: Timestamp, publish: impl FnOnce(&mut Publisher, &StatusInputs<'_>)) {
        let progress = self.images.progress();
        let inputs = StatusInputs {
            context: &self.context,
            desired: &self.desired,
            revisions: &self.revisions,
            other_owner: self.other_owner.reason(),
            record: self.record.get(),
            progress: progress.as_deref(),
            now,
        };
        publish(&mut self.publisher, &inputs);
    }

    /// The part of the application that requests can read and change.
    pub(crate) fn requests<'a>(&'a mut self, actor: &'a Actor) -> RequestHandler<'a, D, S> {
        RequestHandler {
            context: &self.context,
            actor,
            repository: self.repositories.get(&self.desired.rendered().repository),
            desired: &self.desired,
            revisions: &mut self.revisions,
            record: &mut self.record,
            publisher: &mut self.publisher,
            observer: &mut self.observer,
            mounts: &mut self.mounts,
        }
    }
}

impl Next {
    /// Not later than `latest`.
    fn by(self, latest: Timestamp) -> Self {
        match self {
            Self::Round => Self::Round,
            Self::BackOff(due) => Self::BackOff(due.min(latest)),
            Self::Sleep(due) => Self::Sleep(Timestamp::earliest(due, Some(latest))),
        }
    }
}
