//! The task of one repository: fetches, renders each new commit, and publishes the desired state of its applications.
//! It never talks to the engine.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use tokio::{
    sync::{Notify, watch},
    time::{Instant, sleep, sleep_until},
};
use tokio_util::sync::CancellationToken;

use driftless_clock::Clock;
use driftless_config as config;
use driftless_files::Interruptible;
use driftless_git as git;
use driftless_git::{Checkout, CommitSource};
use driftless_metrics::{Fetched, Metrics};
use driftless_model::{AppName, CommitId, CommitInfo, Finding, Timestamp};
use driftless_plan::{fetch_delay, poll_with_jitter};
use driftless_store as store;
use driftless_store::{KnownApplication, Store};

use crate::{
    defect,
    deliveries::{DeliveryTracker, Newness},
    desired::{FetchFailure, Rendered, RepositoryState},
    error::chain,
    host_values::{ReadValues, ValueReader},
    render::{AcceptedCommit, RenderedCommit, render_all},
    ticket::Tickets,
    trust::{
        AcceptedRewrite, RejectedCommit, Trust, check_applications, check_commit, remember_verified,
        was_verified,
    },
};

/// The shortest time between two fetches that webhooks ask for.
const BETWEEN_DELIVERIES: Duration = Duration::from_secs(2);

/// The content of a repository, as of its newest accepted commit.
#[derive(Clone, Debug, Default)]
pub(crate) struct RepositoryView {
    pub(crate) commit: Option<CommitInfo>,
    /// The number of commits in its history, if they were counted.
    pub(crate) history_length: Option<u64>,
    pub(crate) applications: BTreeMap<AppName, Arc<Rendered>>,
    /// About the repository as a whole, such as a missing path. With an error among them, an application that is not
    /// in `applications` is not known to have left Git.
    pub(crate) findings: Vec<Finding>,
    /// The searched folder, if the commit has no application there, or not even the folder.
    pub(crate) empty_folder: Option<String>,
    pub(crate) state: Arc<RepositoryState>,
    /// The settings of the repository at the newest commit whose `driftless.yaml` has no mistake. `None`: there was none
    /// yet.
    pub(crate) settings: Option<Arc<config::Repository>>,
    /// The variables that lie on the host, as of the rendering.
    values: Arc<ReadValues>,
    /// The signer of the commit, if a signature is required and known.
    signer: Option<String>,
    /// The applications that rejected the commit, as of the rendering.
    rejected: BTreeMap<AppName, RejectedCommit>,
}

impl RepositoryView {
    /// Whether an application, or the repository as a whole, could not be read as it is written.
    fn has_errors(&self) -> bool {
        let of_applications = self.applications.values().flat_map(|rendered| &rendered.findings);
        self.findings.iter().chain(of_applications).any(Finding::is_error)
    }

    /// Whether the whole repository was read and has applications, so that one that is not in it has left Git.
    pub(crate) fn is_complete(&self) -> bool {
        let is_empty = self.empty_folder.is_some();
        self.commit.is_some() && !is_empty && !self.findings.iter().any(Finding::is_error)
    }

    /// Whether an application that is not in the view has left Git.
    pub(crate) fn absence(&self, known: &KnownApplication, all: &[KnownApplication]) -> Absence {
        if self.is_complete() {
            return Absence::Gone;
        }
        let is_below = |folder: &str| {
            let path = known.path();
            folder.is_empty() || path == folder || path.starts_with(&format!("{folder}/"))
        };
        // A folder of a path that the configuration did not have before is empty by mistake.
        if !self.empty_folder.as_deref().is_some_and(is_below) {
            return Absence::Unclear;
        }
        Absence::Emptied { count: all.iter().filter(|other| other.repository == known.repository).count() }
    }

    /// The errors about the repository as a whole.
    pub(crate) fn errors(&self) -> impl Iterator<Item = &Finding> {
        self.findings.iter().filter(|finding| finding.is_error())
    }
}

/// The reason why a repository does not have an application that was deployed from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Absence {
    /// Git does not have it any more.
    Gone,
    /// The commit removes all applications of the repository at once, which may be a mistake if there are several. `count` are
    /// those that are still known.
    Emptied { count: usize },
    /// The repository could not be read completely.
    Unclear,
}

/// The connections of the applications with the tasks of the followed repositories, by the names of these.
pub(crate) type RepositoryLinks<S> = Arc<BTreeMap<String, RepositoryLink<S>>>;

/// The connection of an application with its repository's task.
pub(crate) struct RepositoryLink<S> {
    pub(crate) source: Arc<S>,
    /// Notified to fetch now.
    pub(crate) fetch_now: Arc<Notify>,
    pub(crate) accepted_rewrite: AcceptedRewrite,
}

impl<S> RepositoryLink<S> {
    pub(crate) fn new(source: S, fetch_now: Arc<Notify>) -> Self {
        Self { source: Arc::new(source), fetch_now, accepted_rewrite: AcceptedRewrite::default() }
    }
}

impl<S> Clone for RepositoryLink<S> {
    fn clone(&self) -> Self {
        Self {
            source: Arc::clone(&self.source),
            fetch_now: Arc::clone(&self.fetch_now),
            accepted_rewrite: self.accepted_rewrite.clone(),
        }
    }
}

/// A fetch that succeeded.
#[derive(Clone, Copy)]
struct Fetch {
    at: Timestamp,
    /// The number of the newest request that was made before it began.
    covers: u64,
}

impl Fetch {
    fn note(self, state: &mut RepositoryState) {
        state.fetched_at = Some(self.at);
        state.covers = self.covers;
    }
}

/// A commit to publish.
struct Accepted {
    checkout: Checkout,
    /// The signer, if a signature is required.
    signer: Option<String>,
    values: Arc<ReadValues>,
    /// `None`: it is the commit of the last run.
    fetch: Option<Fetch>,
}

/// Follows one repository.
pub(crate) struct RepositoryTask<S> {
    pub(crate) settings: config::Repository,
    pub(crate) link: RepositoryLink<S>,
    pub(crate) store: Store,
    pub(crate) clock: Clock,
    pub(crate) tickets: Tickets,
    /// Notified by a webhook.
    pub(crate) delivered: Arc<Notify>,
    /// The environment, for `valuesFrom`.
    pub(crate) environment: git::Lookup,
    pub(crate) metrics: Metrics,
    pub(crate) view: watch::Sender<RepositoryView>,
    /// Ends the task.
    pub(crate) stop: CancellationToken,
}

impl<S: CommitSource> RepositoryTask<S> {
    /// Fetches until stopped. After a defect of the agent it begins again.
    pub(crate) async fn run(self) {
        while defect::interrupts(self.follow()).await {
            let message = defect::message("repository");
            tracing::error!(repository = self.settings.name, "{message}");
            let next_fetch = self.clock.now().after(defect::PAUSE);
            let reason = git::Cause::Interrupted.as_str();
            self.change_state(|state| {
                state.error = Some(FetchFailure { reason, message });
                state.next_fetch = Some(next_fetch);
            });
            tokio::select! {
                () = self.stop.cancelled() => return,
                () = sleep(defect::PAUSE) => {}
            }
        }
    }

    async fn follow(&self) {
        let stop = self.stop.clone();
        let mut last_accepted: Option<CommitId> = None;
        let mut values = ValueReader::new(&self.settings, self.environment.clone(), self.clock);
        tokio::select! {
            () = stop.cancelled() => return,
            () = values.read(false) => {}
        }
        if let Err(error) = self.resume(&mut last_accepted, values.values()).await {
            tracing::warn!(
                repository = self.settings.name,
                error,
                "could not use the commit of the last run"
            );
        }
        let has_webhook = self.settings.webhook.is_some();
        let mut deliveries = DeliveryTracker::new(self.store.clone(), &self.settings.name, has_webhook);
        let (mut is_first, mut is_requested) = (true, false);
        loop {
            let began = Instant::now();
            let covers = self.tickets.newest();
            deliveries.begin_fetch();
            let fetched = tokio::select! {
                () = stop.cancelled() => return,
                fetched = self.link.source.fetch(last_accepted.as_ref()) => fetched,
            };
            let result = if fetched.is_ok() { Fetched::Done } else { Fetched::Failed };
            self.metrics.fetched(&self.settings.name, result, began.elapsed());
            let mut fetch_again = None;
            let accepted = match fetched {
                Ok(checkout) => {
                    let commit = checkout.commit.clone();
                    let newness = self.newness(&commit, last_accepted.as_ref(), is_first);
                    tokio::select! {
                        () = stop.cancelled() => return,
                        () = values.read(is_requested) => is_requested = false,
                    }
                    let accepted = self.accept(checkout, covers, &mut last_accepted, values.values()).await;
                    fetch_again = deliveries.fetched(&commit, newness, self.clock.now());
                    is_first = false;
                    accepted
                }
                Err(error) => Err(error),
            };
            let pause = match accepted {
                Ok(()) => fetch_again.unwrap_or_else(|| poll_with_jitter(self.settings.poll, self.seed())),
                Err(error) => {
                    deliveries.fetch_failed(&chain(&error), self.clock.now());
                    self.fail(&error)
                }
            };
            self.publish_missed(&deliveries);
            tokio::select! {
                () = stop.cancelled() => return,
                is_sync = self.sleep(began, pause, &mut deliveries) => is_requested |= is_sync,
            }
        }
    }

    fn newness(&self, commit: &CommitInfo, last_accepted: Option<&CommitId>, is_first: bool) -> Newness {
        let view = self.view.borrow();
        let is_rejected = view.state.rejected.as_ref().is_some_and(|rejected| rejected.commit == *commit);
        if last_accepted == Some(&commit.id) || is_rejected {
            Newness::Known
        } else if is_first {
            Newness::PushedBeforeStart
        } else {
            Newness::New
        }
    }

    /// Sleeps until the next fetch. A delivery ends the pause, but not more often than every two seconds: a sender that
    /// knows a secret could otherwise keep the Git server busy. True: a user asked for a fetch.
    async fn sleep(&self, began: Instant, pause: Duration, deliveries: &mut DeliveryTracker) -> bool {
        let mut end = Instant::now() + pause;
        loop {
            let due = deliveries.due().map(|due| Instant::now() + due.since(self.clock.now()));
            tokio::select! {
                () = self.link.fetch_now.notified() => return true,
                () = self.delivered.notified() => end = end.min(began + BETWEEN_DELIVERIES),
                () = sleep_until(end) => return false,
                () = sleep_until(due.unwrap_or(end)), if due.is_some() => {
                    deliveries.end_grace(self.clock.now());
                    self.publish_missed(deliveries);
                }
            }
        }
    }

    fn publish_missed(&self, deliveries: &DeliveryTracker) {
        self.view.send_if_modified(|view| {
            let is_new = view.state.missed.as_ref() != deliveries.missed();
            if is_new {
                Arc::make_mut(&mut view.state).missed = deliveries.missed().cloned();
            }
            is_new
        });
    }

    /// Publishes the commit of the last run, so that a Git server that is down at the start delays nothing.
    async fn resume(
        &self,
        last_accepted: &mut Option<CommitId>,
        values: Arc<ReadValues>,
    ) -> Result<(), String> {
        let last = self.store.last_commit(&self.settings.name).map_err(|error| chain(&error))?;
        let Some(commit) = last else { return Ok(()) };
        // The next commit must build on this one, even if this one is rejected now.
        *last_accepted = Some(commit.clone());
        let checkout = self.link.source.local(&commit).await.map_err(|error| chain(&error))?;
        let mut signer = None;
        if let Some(policy) = &self.settings.verify {
            let name = &self.settings.name;
            match self.link.source.verify(&commit, policy).await {
                Ok(Ok(found)) => {
                    remember_verified(&self.store, name, &commit, policy);
                    signer = Some(found);
                }
                Ok(Err(_)) | Err(_) if was_verified(&self.store, name, &commit, policy) => {}
                Ok(Err(why)) => {
                    self.reject(RejectedCommit::unsigned(&checkout.commit, why), None);
                    return Ok(());
                }
                Err(error) => return Err(chain(&error)),
            }
        }
        let accepted = Accepted { checkout, signer, values, fetch: None };
        self.publish(accepted, last_accepted).await.map_err(|error| chain(&error))
    }

    /// Whether the applications reject the published commit otherwise than at its rendering: files of keys are read each time.
    async fn has_other_rejections(&self, commit: &CommitInfo) -> Result<bool, git::Error> {
        let before = self.view.borrow().rejected.clone();
        if before.is_empty() {
            return Ok(false);
        }
        let source = self.link.source.as_ref();
        Ok(check_applications(&self.settings, source, &self.store, commit).await? != before)
    }

    /// Whether the repository accepted this commit before, under the same policy. A key that has expired since does not undo
    /// that.
    fn was_accepted(&self, commit: &CommitId, last_accepted: Option<&CommitId>) -> bool {
        let is_verified = |policy| was_verified(&self.store, &self.settings.name, commit, policy);
        last_accepted == Some(commit) && self.settings.verify.as_ref().is_none_or(is_verified)
    }

    /// Publishes a fetched commit, unless it is rejected.
    async fn accept(
        &self,
        checkout: Checkout,
        covers: u64,
        last_accepted: &mut Option<CommitId>,
        values: Arc<ReadValues>,
    ) -> Result<(), git::Error> {
        let fetch = Fetch { at: self.clock.now(), covers };
        let commit = checkout.commit.clone();
        let (is_published, has_same_values) = {
            let view = self.view.borrow();
            let is_published = view.commit.as_ref().is_some_and(|published| published.id == commit.id);
            // Nothing has examined the mirror before the first fetch of this life: an error may be that of a damaged one.
            let is_doubtful = view.state.fetched_at.is_none() && view.has_errors();
            (is_published && !is_doubtful, view.values == values)
        };
        let has_changed = !is_published || !has_same_values || self.has_other_rejections(&commit).await?;
        if !has_changed {
            self.change_state(|state| {
                fetch.note(state);
                (state.error, state.failures, state.next_fetch, state.rejected) = (None, 0, None, None);
            });
            return Ok(());
        }
        let (source, accepted_rewrite) = (self.link.source.as_ref(), &self.link.accepted_rewrite);
        let trust = check_commit(&self.settings, source, &checkout, last_accepted.as_ref(), accepted_rewrite);
        let signer = match trust.await? {
            Trust::Accepted { signer } => signer,
            Trust::Rejected(_) if self.was_accepted(&commit.id, last_accepted.as_ref()) => {
                self.view.borrow().signer.clone()
            }
            Trust::Rejected(rejected) => {
                self.reject(rejected, Some(fetch));
                return Ok(());
            }
        };
        let (id, subject, name) = (commit.short(), &commit.subject, &self.settings.name);
        match (is_published, has_same_values) {
            (false, _) => tracing::info!(repository = name, commit = id, subject, "commit fetched"),
            (true, false) => tracing::info!(repository = name, commit = id, "host values changed"),
            (true, true) => {
                tracing::info!(
                    repository = name,
                    commit = id,
                    "the signature was checked again for applications"
                );
            }
        }
        if let Some(policy) = &self.settings.verify {
            remember_verified(&self.store, &self.settings.name, &commit.id, policy);
        }
        let accepted = Accepted { checkout, signer, values, fetch: Some(fetch) };
        self.publish(accepted, last_accepted).await?;
        accepted_rewrite.end(&commit.id);
        self.keep_revisions().await;
        Ok(())
    }

    /// Publishes that the newest commit is rejected. The last accepted commit stays the desired state.
    fn reject(&self, rejected: RejectedCommit, fetch: Option<Fetch>) {
        let is_new = self.view.borrow().state.rejected.as_deref() != Some(&rejected);
        if is_new {
            let (commit, reason) = (rejected.commit.short(), &rejected.why);
            tracing::warn!(repository = self.settings.name, commit, reason, "commit rejected");
        }
        self.change_state(|state| {
            if let Some(fetch) = fetch {
                fetch.note(state);
            }
            (state.error, state.failures, state.next_fetch) = (None, 0, None);
            state.rejected = Some(Arc::new(rejected));
        });
    }

    /// Keeps the commits of all revisions in the mirror, even if the branch is rewritten.
    async fn keep_revisions(&self) {
        let kept = match self.commits_of_revisions() {
            Ok(commits) => self.link.source.keep(commits).await.map_err(|error| chain(&error)),
            Err(error) => Err(chain(&error)),
        };
        if let Err(error) = kept {
            tracing::warn!(
                repository = self.settings.name,
                error,
                "could not keep the commits of all revisions"
            );
        }
    }

    fn commits_of_revisions(&self) -> Result<Vec<CommitId>, store::Error> {
        let mut commits = Vec::new();
        for known in self.store.known_applications()? {
            if known.repository == self.settings.name {
                let revisions = self.store.revisions(&known.app)?;
                commits.extend(revisions.into_iter().map(|revision| revision.commit.id));
            }
        }
        commits.sort_unstable();
        commits.dedup();
        Ok(commits)
    }

    /// Renders an accepted commit and publishes its applications.
    async fn publish(
        &self,
        accepted: Accepted,
        last_accepted: &mut Option<CommitId>,
    ) -> Result<(), git::Error> {
        let Accepted { mut checkout, signer, values, fetch } = accepted;
        let commit = checkout.commit.clone();
        let (files, _interrupt) = Interruptible::new(checkout.files);
        checkout.files = Arc::new(files);
        let rejected =
            check_applications(&self.settings, self.link.source.as_ref(), &self.store, &commit).await?;
        let rewritten = checkout.rewritten;
        let before = self.view.borrow().applications.clone();
        let (settings, accepted) = (
            self.settings.clone(),
            AcceptedCommit {
                checkout,
                signer: signer.clone(),
                rejected: rejected.clone(),
                values: Arc::clone(&values),
                before,
            },
        );
        // Reading the files of a commit blocks on the disk.
        let rendered = tokio::task::spawn_blocking(move || render_all(&settings, &accepted));
        let history_length = self.link.source.history_length(&commit.id);
        let (rendered, history_length) = tokio::select! {
            both = async { tokio::join!(rendered, history_length) } => both,
            () = self.stop.cancelled() => return Ok(()),
        };
        let RenderedCommit { applications, findings, empty_folder, settings } = match rendered {
            Ok(rendered) => rendered,
            Err(error) => {
                tracing::error!(repository = self.settings.name, %error, "the rendering of a commit panicked");
                let message = "rendering failed; see the agent's log".to_owned();
                self.change_state(|state| {
                    state.error = Some(FetchFailure { reason: "RenderingFailed", message });
                });
                return Ok(());
            }
        };
        for finding in findings.iter().chain(applications.values().flat_map(|rendered| &rendered.findings)) {
            tracing::warn!(repository = self.settings.name, %finding, "manifest finding");
        }
        if let Err(error) = self.store.set_last_commit(&self.settings.name, &commit.id) {
            tracing::warn!(
                repository = self.settings.name,
                error = chain(&error),
                "could not store the last commit"
            );
        }
        *last_accepted = Some(commit.id.clone());
        self.view.send_modify(|view| {
            let mut state = RepositoryState {
                fetched_at: view.state.fetched_at,
                covers: view.state.covers,
                rewritten,
                missed: view.state.missed.clone(),
                ..RepositoryState::default()
            };
            if let Some(fetch) = fetch {
                fetch.note(&mut state);
            }
            let state = Arc::new(state);
            let settings = settings.or_else(|| view.settings.take());
            let commit = Some(commit);
            *view = RepositoryView {
                commit,
                history_length,
                applications,
                findings,
                empty_folder,
                state,
                settings,
                values,
                signer,
                rejected,
            };
        });
        Ok(())
    }

    /// Publishes that a fetch failed. Returns the pause before the next one.
    fn fail(&self, error: &git::Error) -> Duration {
        let failures = self.view.borrow().state.failures.saturating_add(1);
        let pause = match error.cause.retry() {
            git::Retry::Soon => fetch_delay(failures, self.seed()).max(error.retry_after.unwrap_or_default()),
            git::Retry::AtPoll => poll_with_jitter(self.settings.poll, self.seed()),
        };
        let failure = FetchFailure { reason: error.cause.as_str(), message: chain(error) };
        let FetchFailure { reason, message } = &failure;
        tracing::warn!(
            repository = self.settings.name,
            reason,
            error = message,
            attempt = failures,
            "could not fetch"
        );
        let next_fetch = self.clock.now().after(pause);
        self.change_state(|state| {
            state.error = Some(failure);
            state.failures = failures;
            state.next_fetch = Some(next_fetch);
        });
        pause
    }

    fn change_state(&self, change: impl FnOnce(&mut RepositoryState)) {
        self.view.send_modify(|view| change(Arc::make_mut(&mut view.state)));
    }

    fn seed(&self) -> u64 {
        crate::random::seed(&self.settings.name, self.clock.now())
    }
}
