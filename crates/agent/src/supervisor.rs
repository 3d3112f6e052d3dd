//! The supervisor: gives each application a task and its desired state, passes requests on, and publishes what concerns
//! the agent as a whole.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use tokio::{
    sync::{
        mpsc::{self, error::TrySendError},
        watch,
    },
    time::{Instant, sleep, sleep_until},
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tracing::Instrument;

use driftless_config as config;
use driftless_docker::{Docker, ObserveScope};
use driftless_git::CommitSource;
use driftless_model::{AppName, CommitInfo, Finding, Location, Policy, RepositoryStatus, Stack};
use driftless_store::{self as store, KnownApplication, Store};

use crate::{
    Readiness, Recovery, Repositories, Request, RequestError,
    absence::Absence,
    app::App,
    claims::{Claimant, Claims, Inventory, found_elsewhere},
    commits::{
        departures::Departures,
        status::{StatusError, StatusErrors},
    },
    context::Services,
    defect::{self, Publication},
    desired::{Desired, Rendered, RepositoryState},
    engine_state::EngineState,
    error::chain,
    failed_reads::FailedReads,
    log_span,
    managed::{Adopters, Managed, may_free_others, read_adopters, read_last_in_git},
    mounts::CONTENT_AGE,
    observe::{contents_in_use, with_adopted},
    other_agents::finder::AgentFinder,
    reconcile::{EngineServices, Reconciler, TaskSignals},
    render::reference_text,
    repository::RepositoryLinks,
    repository_events::{FetchEvents, report_commit},
    repository_view::RepositoryView,
    request::Queued,
    state_loss::Loss,
};

/// Interval of the search for unused mounted files.
const CLEANUP_INTERVAL: Duration = Duration::from_hours(6);

/// Interval at which applications that claim the same name or port are compared again, and at which failed reads of the database are
/// tried again.
const CONFLICT_INTERVAL: Duration = Duration::from_secs(10);

/// Interval at which the state directory is looked for.
const STATE_INTERVAL: Duration = Duration::from_secs(10);

/// Maximum number of requests that wait for one application.
const MAX_QUEUED_REQUESTS: usize = 16;

/// A repository of the configuration.
pub(crate) struct FollowedRepository {
    pub(crate) settings: config::Repository,
    pub(crate) view: watch::Receiver<RepositoryView>,
    pub(crate) fetches: FetchEvents,
}

impl FollowedRepository {
    fn status(&self) -> RepositoryStatus {
        let view = self.view.borrow();
        let error = view.state.error.clone();
        let rejected = || view.state.rejected.as_ref().map(|rejected| rejected.sentence());
        let finding = || view.errors().next().map(ToString::to_string);
        let unread = || view.commit.is_none().then(|| "not read yet".to_owned());
        RepositoryStatus {
            name: self.settings.name.clone(),
            url: self.settings.url.to_string(),
            reference: reference_text(&self.settings.reference, None),
            commit: view.commit.clone(),
            history_length: view.history_length,
            applications: view.applications.len(),
            reason: error.as_ref().map_or("", |error| error.reason).to_owned(),
            message: error
                .map(|error| error.message)
                .or_else(rejected)
                .or_else(finding)
                .or_else(unread)
                .unwrap_or_default(),
            fetched_at: view.state.fetched_at,
            next_fetch: view.state.next_fetch,
            keys: self.settings.keys(),
            hosts: view
                .settings
                .as_ref()
                .map(|settings| settings.hosts_in_git.iter().map(|host| host.name.clone()).collect())
                .unwrap_or_default(),
        }
    }
}

/// Supervises the tasks of all applications.
pub(crate) struct Supervisor<D, S> {
    pub(crate) services: Arc<Services>,
    pub(crate) shared: Arc<EngineServices<D>>,
    pub(crate) followed: Vec<FollowedRepository>,
    pub(crate) links: RepositoryLinks<S>,
    /// Whether the engine answers, or why not.
    pub(crate) engine: EngineState,
    pub(crate) status_errors: watch::Receiver<StatusErrors>,
    pub(crate) repositories: watch::Sender<Repositories>,
    pub(crate) readiness: watch::Sender<Readiness>,
    pub(crate) applications: BTreeMap<AppName, AppTask>,
    pub(crate) claims: Claims,
    /// The stacks that Git last asked for, of applications whose manifests have errors or are not read.
    pub(crate) last_in_git: BTreeMap<AppName, Option<Arc<Stack>>>,
    pub(crate) failed_reads: FailedReads,
    /// The containers that applications had adopted when the agent started. `None`: they were not read yet.
    pub(crate) adopters: Option<Arc<Adopters>>,
    pub(crate) finder: AgentFinder<D>,
    pub(crate) tasks: TaskTracker,
    pub(crate) stop: CancellationToken,
}

/// The task of one application.
pub(crate) struct AppTask {
    desired: watch::Sender<Arc<Desired>>,
    requests: mpsc::Sender<Queued>,
    /// A defect of the agent has ended it, and the pause after it is over.
    ended: CancellationToken,
}

impl<D: Docker, S: CommitSource> Supervisor<D, S> {
    pub(crate) async fn run(
        mut self,
        mut requests: mpsc::Receiver<Request>,
        mut recoveries: mpsc::Receiver<Recovery>,
    ) {
        // Not the time of day: the clock may be set back by years.
        let mut next_cleanup = Instant::now();
        let mut is_replaced = false;
        // Until the first pass, none counts as read: its applications are not known yet.
        let unread = self.repository_statuses().into_iter();
        self.publish_repositories(unread.map(|it| RepositoryStatus { commit: None, ..it }).collect());
        loop {
            // As they are before the pass: it may not know the applications of a view that arrives meanwhile.
            let statuses = self.repository_statuses();
            let updated = self.update_applications();
            let has_unread = updated.unwrap_or(true);
            let replaced = self.services.store.replaced();
            if let Some(why) = &replaced
                && !is_replaced
            {
                tracing::error!(why, "the state directory is not the agent's any more");
            }
            is_replaced = replaced.is_some();
            self.publish_readiness(replaced);
            // A pass that gave up knows no applications of newer views.
            if updated.is_some() {
                self.publish_repositories(statuses);
            }
            if Instant::now() >= next_cleanup {
                self.remove_unused_contents();
                next_cleanup = Instant::now() + CLEANUP_INTERVAL;
            }
            tokio::select! {
                () = self.stop.cancelled() => return,
                () = self.services.changed.notified() => {}
                () = self.engine.changed() => {}
                Ok(()) = self.status_errors.changed() => {}
                Some(reply) = recoveries.recv() => {
                    let (finder, stop) = (self.finder.clone(), self.stop.clone());
                    self.tasks.spawn(async move {
                        let recovered = tokio::select! {
                            () = stop.cancelled() => Err(RequestError::Stopping),
                            recovered = finder.recover() => recovered,
                        };
                        // The client may have gone.
                        drop(reply.send(recovered));
                    });
                }
                request = requests.recv() => match request {
                    Some(request) => self.pass_on(request),
                    None => return,
                },
                () = change_of_state_directory(&self.services.store, is_replaced) => {}
                // No wake says that the holder of a name or port is gone, or that the database can be read again.
                () = sleep(CONFLICT_INTERVAL), if has_unread || self.claims.are_disputed() => {}
                () = sleep_until(next_cleanup) => {}
            }
        }
    }

    /// Gives every application of every repository its newest desired state. Returns whether the database could not be read for some of
    /// them, so that another pass is due. `None`: it could not be read for any of them.
    fn update_applications(&mut self) -> Option<bool> {
        let views: Vec<RepositoryView> =
            self.followed.iter().map(|followed| followed.view.borrow().clone()).collect();
        let known = match self.services.store.known_applications() {
            Ok(known) => known,
            Err(error) => {
                tracing::warn!(
                    error = chain(&error),
                    "could not read the applications that were deployed before"
                );
                return None;
            }
        };
        let (claimants, conflicts) = self.compare(&views, &known);
        let has_unread = self.publish_managed(&views, &claimants, &known);
        let renamed = self.renamed(&claimants, &known);
        let mut seen = BTreeSet::new();
        for Claimant { repository, rendered } in claimants {
            let name = rendered.spec.name.clone();
            if !seen.insert(name.clone()) {
                // The first repository that has the name keeps it; the finding says so.
                continue;
            }
            let Some(view) = views.get(repository) else { continue };
            let desired = Desired::present(rendered, Arc::clone(&view.state))
                .with_objections(conflicts.get(&name).cloned().unwrap_or_default())
                .with_lasting_objection(self.claims.lasting_conflict(&name).cloned())
                .with_status_error(self.status_error(repository));
            self.set_desired(name, desired);
        }
        Some(self.update_absent_applications(&views, &seen, &renamed, &known) || has_unread)
    }

    fn compare(
        &mut self,
        views: &[RepositoryView],
        known: &[KnownApplication],
    ) -> (Vec<Claimant>, BTreeMap<AppName, Vec<Finding>>) {
        let repositories: Vec<&str> =
            self.followed.iter().map(|followed| followed.settings.name.as_str()).collect();
        let inventory = Inventory {
            store: &self.services.store,
            applications: &self.shared.applications.borrow().clone(),
            repositories: &repositories,
            views,
            known,
        };
        let claimants = inventory.claimants();
        let conflicts = self.claims.conflicts(&inventory, &claimants);
        (claimants, conflicts)
    }

    /// Publishes the applications and what Git gives to them. Returns whether a stack could not be read.
    fn publish_managed(
        &mut self,
        views: &[RepositoryView],
        claimants: &[Claimant],
        known: &[KnownApplication],
    ) -> bool {
        let repositories: Vec<&str> =
            self.followed.iter().map(|followed| followed.settings.name.as_str()).collect();
        let tasks = self.applications.iter();
        let tasks = tasks.map(|(name, task)| (name.clone(), Arc::clone(&task.desired.borrow()))).collect();
        let adopters = self.adopters.clone().unwrap_or_else(|| {
            let read = read_adopters(&self.services.store, known);
            let warn = |error: &store::Error| {
                tracing::warn!(error = chain(error), "could not read which containers were adopted");
            };
            self.adopters = read.inspect_err(warn).ok().map(Arc::new);
            self.adopters.clone().unwrap_or_default()
        });
        let facts = Managed { repositories: &repositories, views, claimants, known, adopters: &adopters };
        let (store, before) = (&self.services.store, std::mem::take(&mut self.last_in_git));
        let mut has_unread = false;
        let last_in_git = |app: &AppName| {
            let read = before.get(app).cloned().map_or_else(|| read_last_in_git(store, app), Ok);
            // Another pass reads it again.
            let Some(stack) = self.failed_reads.note(app, "the last stack of an application", read) else {
                has_unread = true;
                return None;
            };
            self.last_in_git.insert(app.clone(), stack.clone());
            stack
        };
        let managed = Arc::new(facts.applications(&tasks, last_in_git));
        let before = self.services.managed.send_replace(Arc::clone(&managed));
        if may_free_others(&before, &managed) {
            self.services.wakes.wake_all();
        }
        has_unread
    }

    /// Applications that were deployed before, or that have a task, and are in no repository now: gone if their repository was
    /// read completely, else kept as they are, also those that had left it before.
    ///
    /// If the newest commit has no application any more, the last one is gone. Of several, and of most of the deployed ones, each
    /// waits for the user, if it would be removed, and so does one that may be missing by mistake. One that was renamed does not wait:
    /// its successor waits for its removal.
    ///
    /// Returns whether a record could not be read.
    fn update_absent_applications(
        &mut self,
        views: &[RepositoryView],
        seen: &BTreeSet<AppName>,
        renamed: &BTreeSet<AppName>,
        all: &[KnownApplication],
    ) -> bool {
        let mut has_unread = false;
        let undeployed = self.undeployed(all);
        let is_staying = |app: &AppName| seen.contains(app) || renamed.contains(app);
        let departures = self.departures(views, is_staying, all);
        for known in all.iter().chain(&undeployed).filter(|known| !seen.contains(&known.app)) {
            let index = self.repository_of(known);
            let view = index.and_then(|index| views.get(index));
            let policy = self.policy_of(known, views);
            let state =
                view.map_or_else(|| Arc::new(RepositoryState::unfollowed()), |view| Arc::clone(&view.state));
            let newest = view.and_then(|view| view.commit.clone());
            let nothing = || {
                let commit = newest.clone().unwrap_or_default();
                Arc::new(Rendered::nothing(&known.app, &known.repository, commit, policy.clone()))
            };
            let kept = |state| match self.applications.get(&known.app).map(|task| task.desired.borrow()) {
                Some(desired) if !desired.is_gone() => desired.kept(state, newest.clone()),
                Some(_) | None => Desired::present(nothing(), state),
            };
            let absence = match view.map_or(Absence::Gone, |view| view.absence(known, all)) {
                Absence::Emptied { count } => self.absence_of_all(&known.app, count),
                Absence::Gone if view.is_some() && policy.prune && !renamed.contains(&known.app) => {
                    let departures = departures.get(known.repository.as_str()).copied();
                    self.absence_of_several(&known.app, departures.unwrap_or_default())
                }
                absence => absence,
            };
            let errors = || view.map(|view| view.errors_about(known).collect()).unwrap_or_default();
            let may_wait = policy.prune && all.contains(known);
            let doubt = view.and_then(|view| view.doubt(known));
            let desired = match absence {
                // The last one is not removed unasked either, after a user has removed the others.
                Absence::Emptied { count } if may_wait && count > 1 => {
                    let why =
                        format!("the commit removes all {count} applications of the repository at once");
                    kept(state).emptied(count).with_objections(vec![unconfirmed(&known.app, why)])
                }
                Absence::Reduced { count } if may_wait => {
                    let why = match count {
                        1 => "the application left Git while its removal waited for you".to_owned(),
                        _ => format!("{count} applications of the repository left Git at once"),
                    };
                    kept(state).emptied(count).with_objections(vec![unconfirmed(&known.app, why)])
                }
                Absence::Doubtful
                    if may_wait && !renamed.contains(&known.app) && !self.has_left(&known.app) =>
                {
                    let why = doubt.unwrap_or_default();
                    let count = self.emptied_count(&known.app).max(1);
                    kept(state).emptied(count).with_objections(vec![unconfirmed(&known.app, why)])
                }
                Absence::Gone | Absence::Emptied { .. } | Absence::Reduced { .. } | Absence::Doubtful => {
                    let mut notes = found_elsewhere(&known.app, views);
                    notes.extend(doubt.map(|why| Finding::warning(Location::default(), "", why)));
                    Desired::gone(nothing(), state).with_objections(notes)
                }
                Absence::Unclear => {
                    let read = self.absent_before(known, &policy);
                    let what = "whether an application had left Git";
                    // It begins in a later pass: one that had left must not be managed meanwhile.
                    let Some(absent) = self.failed_reads.note(&known.app, what, read) else {
                        has_unread = true;
                        continue;
                    };
                    let unread = absent.map(|absent| absent.kept(Arc::clone(&state), newest.clone()));
                    unread.unwrap_or_else(|| kept(state)).with_objections(errors())
                }
            };
            let status_error = index.and_then(|index| self.status_error(index));
            self.set_desired(known.app.clone(), desired.with_status_error(status_error));
        }
        // These are in no database, so no end of a removal wakes this task: another pass publishes that they are gone.
        let is_gone = |known: &KnownApplication| {
            self.applications.get(&known.app).is_some_and(|task| task.desired.borrow().is_gone())
        };
        if undeployed.iter().any(is_gone) {
            self.services.changed.notify_one();
        }
        has_unread
    }

    /// The deployed applications of each repository that would be removed now, and those that stay. In one life of the agent, one
    /// whose removal has begun does not count any more.
    fn departures<'k>(
        &self,
        views: &[RepositoryView],
        is_staying: impl Fn(&AppName) -> bool,
        all: &'k [KnownApplication],
    ) -> BTreeMap<&'k str, Departures> {
        let mut departures = BTreeMap::<&str, Departures>::new();
        for known in all {
            let of_repository = departures.entry(known.repository.as_str()).or_default();
            let view = self.repository_of(known).and_then(|index| views.get(index));
            if is_staying(&known.app) || view.is_some_and(|view| view.cannot_decide(known)) {
                of_repository.add_staying();
            } else if !self.has_left(&known.app) && self.policy_of(known, views).prune {
                of_repository.add_leaving();
            }
        }
        departures
    }

    /// The applications that go on under another name: Git gives their project to another application of the same repository.
    fn renamed(&self, claimants: &[Claimant], all: &[KnownApplication]) -> BTreeSet<AppName> {
        let claimed = claimants.iter().filter_map(|claimant| {
            let stack = claimant.rendered.stack.as_ref()?;
            Some((claimant.repository, stack.project.as_str()))
        });
        let claimed: BTreeSet<(usize, &str)> = claimed.collect();
        let is_renamed = |known: &&KnownApplication| {
            let project = self.claims.project_of_absent(&known.app);
            self.repository_of(known).zip(project).is_some_and(|claim| claimed.contains(&claim))
        };
        all.iter().filter(is_renamed).map(|known| known.app.clone()).collect()
    }

    /// The absence of an application whose repository has none any more. One that waits alone goes on to wait: a further commit does
    /// not confirm its removal. `count` applications of the repository are still known.
    fn absence_of_all(&self, app: &AppName, count: usize) -> Absence {
        let before = self.emptied_count(app);
        if before == 1 && count <= 1 && !self.has_left(app) {
            return Absence::Reduced { count: 1 };
        }
        Absence::Emptied { count: before.max(count) }
    }

    /// Whether an application that a completely read repository does not have is gone, or waits for the user because so many leave
    /// with it. One that waits goes on to wait: a further commit does not confirm what another one has removed.
    fn absence_of_several(&self, app: &AppName, departures: Departures) -> Absence {
        let before = Some(self.emptied_count(app)).filter(|count| *count > 0);
        let now = departures.mistaken().filter(|_| !self.has_left(app));
        before.max(now).map_or(Absence::Gone, |count| Absence::Reduced { count })
    }

    /// Whether its removal was decided before. While `prune` is off, nothing is decided about an application that leaves.
    fn has_left(&self, app: &AppName) -> bool {
        self.applications.get(app).is_some_and(|task| {
            let desired = task.desired.borrow();
            desired.is_gone() && desired.rendered().policy.prune
        })
    }

    /// The desired state of an application that Git did not have when its repository was last read: gone in this life of the agent or
    /// in an earlier one, or kept by an earlier one until a user confirms its removal, which may be under way.
    fn absent_before(
        &self,
        known: &KnownApplication,
        policy: &Policy,
    ) -> Result<Option<Desired>, store::Error> {
        if let Some(task) = self.applications.get(&known.app) {
            let desired = task.desired.borrow();
            return Ok(desired.is_gone().then(|| Desired::clone(&desired)));
        }
        let record = self.services.store.record(&known.app)?;
        let nothing = |policy| {
            Arc::new(Rendered::nothing(&known.app, &known.repository, CommitInfo::default(), policy))
        };
        if record.has_left {
            // Nothing was decided in this life: see `has_left`.
            let policy = Policy { prune: false, ..policy.clone() };
            return Ok(Some(Desired::gone(nothing(policy), Arc::default())));
        }
        let waiting = |count| Desired::present(nothing(policy.clone()), Arc::default()).emptied(count);
        Ok(record.emptied.map(waiting))
    }

    /// The repository that an application was deployed from, if it is still followed.
    fn repository_of(&self, known: &KnownApplication) -> Option<usize> {
        self.followed.iter().position(|followed| followed.settings.name == known.repository)
    }

    /// The policy of an application that may have left Git.
    fn policy_of(&self, known: &KnownApplication, views: &[RepositoryView]) -> Policy {
        let index = self.repository_of(known);
        let view = index.and_then(|index| views.get(index));
        let at_commit = view.and_then(|view| view.settings_of_absent(&known.app));
        let followed = index.and_then(|index| self.followed.get(index));
        match (at_commit, followed) {
            (Some(at_commit), _) => at_commit.policy_of(&known.app).clone(),
            (None, Some(followed)) => followed.settings.policy_of(&known.app).clone(),
            (None, None) => Policy::default(),
        }
    }

    /// The applications with a task that the database does not have, and that have not left Git: they could never be applied.
    fn undeployed(&self, known: &[KnownApplication]) -> Vec<KnownApplication> {
        let is_known = |app: &AppName| known.iter().any(|known| known.app == *app);
        let is_gone = |task: &AppTask| task.desired.borrow().is_gone();
        let tasks = self.applications.iter().filter(|(app, task)| !is_known(app) && !is_gone(task));
        let undeployed = tasks.map(|(app, task)| {
            let desired = task.desired.borrow();
            let rendered = desired.rendered();
            let spec = serde_json::json!({ "path": rendered.spec.path });
            KnownApplication { app: app.clone(), repository: rendered.repository.clone(), spec }
        });
        undeployed.collect()
    }

    /// The number of applications that a commit removed together with this one. 0: it has not been kept for that reason.
    fn emptied_count(&self, app: &AppName) -> usize {
        let desired = self.applications.get(app).and_then(|task| task.desired.borrow().emptied_count());
        desired.or_else(|| self.services.store.record(app).ok()?.emptied).unwrap_or_default()
    }

    /// Why the forge of a repository refuses commit statuses.
    fn status_error(&self, repository: usize) -> Option<StatusError> {
        self.status_errors.borrow().get(&self.followed.get(repository)?.settings.name).cloned()
    }

    /// Gives an application its desired state, and a task if it has none yet.
    fn set_desired(&mut self, name: AppName, desired: Desired) {
        if let Some(task) = self.applications.get(&name).filter(|task| !task.ended.is_cancelled()) {
            let following = desired.following(&task.desired.borrow());
            task.desired.send_replace(Arc::new(following));
            return;
        }
        let desired = Arc::new(desired);
        // Before the repository is published as read. One that was removed is not published any more.
        if !desired.may_be_removed() && !self.shared.applications.borrow().contains_key(&name) {
            self.shared.unpublished.add(name.clone(), desired.rendered().repository.clone());
        }
        let wake = self.services.wakes.of(&name);
        let span = log_span::application(&name);
        let signals = TaskSignals { wake: Arc::clone(&wake), stop: self.stop.child_token() };
        let reconciler = span.in_scope(|| {
            Reconciler::new(
                name.clone(),
                Arc::clone(&self.services),
                &self.shared,
                Arc::clone(&self.links),
                Arc::clone(&desired),
                signals,
            )
        });
        let (desired, desired_rx) = watch::channel(desired);
        let (requests, requests_rx) = mpsc::channel(MAX_QUEUED_REQUESTS);
        let task = App::new(reconciler, wake).run(desired_rx, requests_rx, self.stop.child_token());
        let ended = CancellationToken::new();
        let publication = Publication {
            applications: self.shared.applications.clone(),
            unpublished: self.shared.unpublished.clone(),
            desired: desired.subscribe(),
        };
        let (services, stop) = (Arc::clone(&self.services), self.stop.clone());
        let task = task.instrument(span);
        let survived = defect::survive(task, name.clone(), services, publication, stop, ended.clone());
        self.tasks.spawn(survived);
        self.applications.insert(name, AppTask { desired, requests, ended });
    }

    /// Passes a request on to its application.
    fn pass_on(&self, request: Request) {
        let Request { app, kind, actor, ticket, reply } = request;
        let refused = match self.applications.get(&app) {
            None => Some((reply, RequestError::NoSuchApplication(app))),
            Some(task) => {
                let sent = task.requests.try_send(Queued { kind, actor, ticket, reply });
                sent.err().map(|error| match error {
                    TrySendError::Full(request) => (request.reply, RequestError::Busy(app)),
                    TrySendError::Closed(request) if self.stop.is_cancelled() => {
                        (request.reply, RequestError::Stopping)
                    }
                    TrySendError::Closed(request) => (request.reply, RequestError::Interrupted(app)),
                })
            }
        };
        if let Some((reply, error)) = refused {
            // The client may have gone.
            let _ = reply.send(Err(error));
        }
    }

    fn publish_readiness(&self, replaced: Option<String>) {
        let engine = self.engine.error();
        let is_unread = |followed: &&FollowedRepository| followed.view.borrow().commit.is_none();
        let unread = self.followed.iter().filter(is_unread);
        let unread: Vec<String> = unread
            .map(|followed| format!("{}: {}", followed.settings.name, followed.status().message))
            .collect();
        let lost = Loss::current(&self.services.store, self.services.ownership.engine());
        let lost = lost.unwrap_or_else(|error| Some(Loss::Records(chain(&error))));
        let state = lost.is_none() && replaced.is_none();
        let (docker, repositories) = (engine.is_none(), unread.is_empty());
        let lost = lost.as_ref().map(Loss::sentence);
        let message =
            engine.into_iter().chain(replaced).chain(lost).chain(unread).collect::<Vec<_>>().join("; ");
        let readiness = Readiness { docker, repositories, state, message };
        self.readiness.send_if_modified(|published| {
            let is_new = *published != readiness;
            *published = readiness;
            is_new
        });
    }

    fn repository_statuses(&self) -> Vec<RepositoryStatus> {
        self.followed.iter().map(FollowedRepository::status).collect()
    }

    fn publish_repositories(&mut self, statuses: Vec<RepositoryStatus>) {
        self.repositories.send_if_modified(|published| {
            let is_new = **published != statuses;
            *published = Arc::new(statuses);
            is_new
        });
        for followed in &self.followed {
            self.report_findings(followed);
            self.report_missed(followed);
        }
        for FollowedRepository { settings, view, fetches } in &mut self.followed {
            fetches.report(&self.services, &settings.name, &view.borrow().state);
        }
    }

    /// Writes an event about an error that concerns the repository as a whole, such as a path that does not exist.
    fn report_findings(&self, followed: &FollowedRepository) {
        let view = followed.view.borrow();
        let (Some(error), Some(commit)) = (view.errors().next(), &view.commit) else { return };
        let (services, name) = (&self.services, &followed.settings.name);
        report_commit(services, name, "InvalidRepository", commit.short(), error.to_string());
    }

    /// Writes an event about a commit that the webhook did not announce.
    fn report_missed(&self, followed: &FollowedRepository) {
        let view = followed.view.borrow();
        let Some(missed) = &view.state.missed else { return };
        let (services, name) = (&self.services, &followed.settings.name);
        report_commit(services, name, "WebhookMissed", missed.commit.short(), missed.to_string());
    }

    /// Starts to remove mounted files that no revision and no container needs.
    fn remove_unused_contents(&self) {
        let (services, docker) = (Arc::clone(&self.services), Arc::clone(&self.shared.docker));
        let stop = self.stop.clone();
        self.tasks.spawn(async move {
            let removed = tokio::select! {
                () = stop.cancelled() => return,
                removed = remove_unused_contents(&services, docker.as_ref()) => removed,
            };
            match removed {
                Ok(0) => {}
                Ok(files) => tracing::info!(files, "unused mounted files removed"),
                Err(error) => tracing::warn!(error, "could not remove unused mounted files"),
            }
        });
    }
}

/// Waits until the state directory is removed or replaced, or put back.
async fn change_of_state_directory(store: &Store, was_replaced: bool) {
    loop {
        sleep(STATE_INTERVAL).await;
        if store.replaced().is_some() != was_replaced {
            return;
        }
    }
}

/// The error about the removal of an application that waits for the user.
fn unconfirmed(app: &AppName, why: String) -> Finding {
    let help = format!("confirm with `driftless remove {app}`, or restore it in Git");
    Finding::error(Location::default(), "", why).help(help)
}

/// Removes mounted files that no revision and no container needs. Returns how many.
async fn remove_unused_contents<D: Docker>(services: &Arc<Services>, docker: &D) -> Result<usize, String> {
    // Containers of the former engine may run on and mount some.
    if services.ownership.engine().lost().is_some() {
        return Ok(0);
    }
    let mut in_use = services.store.contents_in_use().map_err(|error| chain(&error))?;
    for app in docker.applications().await.map_err(|error| chain(&error))? {
        // Without its adopted containers, those of other applications would not know whose they are.
        let record = services.store.record(&app).map_err(|error| chain(&error))?;
        let scope = with_adopted(ObserveScope::default(), &record);
        let observed = docker.observe(&app, &scope).await.map_err(|error| chain(&error))?;
        in_use.extend(contents_in_use(&observed, &record));
    }
    let contents = services.contents.clone();
    let removed = tokio::task::spawn_blocking(move || contents.remove_unused(&in_use, CONTENT_AGE)).await;
    removed.map_err(|error| error.to_string())?.map_err(|error| chain(&error))
}
