//! The task of one repository: fetches, renders each new commit, and publishes the desired state of its applications.
//! It never talks to the engine.

use std::{collections::BTreeMap, pin::pin, sync::Arc, time::Duration};

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
use driftless_model::{AppName, CommitId, CommitInfo, Timestamp};
use driftless_plan::{poll_with_jitter, remote_delay};
use driftless_store::Store;

use crate::{
    absence::former_hosts,
    commits::{
        older_commits::OlderCommits,
        trust::{
            AcceptedRewrite, RejectedCommit, Trust, check_applications, check_commit, commits_to_keep,
            last_accepted, remember_verified, was_verified,
        },
    },
    defect,
    deliveries::{DeliveryTracker, Newness},
    desired::{Rendered, RepositoryState},
    error::chain,
    host_values::{ReadValues, ValueReader},
    lasting_tasks,
    render::{AcceptedCommit, RenderedCommit, render_all},
    repository_view::RepositoryView,
    ticket::Tickets,
};

/// The shortest time between two fetches that webhooks ask for.
const BETWEEN_DELIVERIES: Duration = Duration::from_secs(2);

/// The connections of the applications with the tasks of the followed repositories, by the names of these.
pub(crate) type RepositoryLinks<S> = Arc<BTreeMap<String, RepositoryLink<S>>>;

/// The connection of an application with its repository's task.
pub(crate) struct RepositoryLink<S> {
    pub(crate) source: Arc<S>,
    /// Notified to fetch now.
    pub(crate) fetch_now: Arc<Notify>,
    pub(crate) accepted_rewrite: AcceptedRewrite,
    pub(crate) older_commits: OlderCommits,
}

impl<S> RepositoryLink<S> {
    pub(crate) fn new(source: S, fetch_now: Arc<Notify>, settings: config::Repository) -> Self {
        let (source, older_commits) = (Arc::new(source), OlderCommits::new(settings));
        Self { source, fetch_now, accepted_rewrite: AcceptedRewrite::default(), older_commits }
    }
}

impl<S> Clone for RepositoryLink<S> {
    fn clone(&self) -> Self {
        Self {
            source: Arc::clone(&self.source),
            fetch_now: Arc::clone(&self.fetch_now),
            accepted_rewrite: self.accepted_rewrite.clone(),
            older_commits: self.older_commits.clone(),
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
    /// `None`: it is the commit of the last run, or the published one with other values.
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
        while lasting_tasks::interrupts(self.follow()).await {
            let message = defect::message("repository");
            tracing::error!(repository = self.settings.name, "{message}");
            let now = self.clock.now();
            let next_fetch = now.after(lasting_tasks::PAUSE);
            let reason = git::Cause::Interrupted.as_str();
            self.change_state(|state| {
                state.fail(reason, message, now);
                state.next_fetch = Some(next_fetch);
            });
            tokio::select! {
                () = self.stop.cancelled() => return,
                () = sleep(lasting_tasks::PAUSE) => {}
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
        self.link.older_commits.note_values(values.values());
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
            let (fetched, is_asked_again) = tokio::select! {
                () = stop.cancelled() => return,
                result = self.fetch(last_accepted.as_ref()) => result,
            };
            let result = if fetched.is_ok() { Fetched::Done } else { Fetched::Failed };
            self.metrics.fetched(&self.settings.name, result, began.elapsed());
            // Also if Git cannot be read: values of the host do not depend on it.
            tokio::select! {
                () = stop.cancelled() => return,
                () = values.read(is_requested) => is_requested = false,
            }
            self.link.older_commits.note_values(values.values());
            let mut fetch_again = None;
            let accepted = match fetched {
                Ok(checkout) => {
                    let commit = checkout.commit.clone();
                    let newness = self.newness(&commit, last_accepted.as_ref(), is_first);
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
                    self.update_values(&mut last_accepted, values.values()).await;
                    deliveries.fetch_failed(&chain(&error), self.clock.now());
                    self.fail(&error)
                }
            };
            self.publish_missed(&deliveries);
            if is_asked_again {
                is_requested = true;
                continue;
            }
            tokio::select! {
                () = stop.cancelled() => return,
                is_sync = self.sleep(began, pause, &mut deliveries) => if is_sync {
                    is_requested = true;
                    self.link.source.end_download_pause();
                },
            }
        }
    }

    /// Fetches. True: a user asked for a fetch meanwhile, and this one may have listed the references before. Such a request ends the
    /// pause after an earlier download, and not the one that a failure of this fetch begins: the user has not read of that yet.
    async fn fetch(&self, known: Option<&CommitId>) -> (Result<Checkout, git::Error>, bool) {
        let mut fetch = pin!(self.link.source.fetch(known));
        let mut is_asked_again = false;
        loop {
            tokio::select! {
                biased;
                fetched = &mut fetch => return (fetched, is_asked_again),
                () = self.link.fetch_now.notified() => {
                    is_asked_again = true;
                    self.link.source.end_download_pause();
                }
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
                self.update_values(last_accepted, values).await;
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
        // It waits while the mirror is packed.
        tokio::select! {
            () = self.stop.cancelled() => {}
            () = self.keep_revisions() => {}
        }
        Ok(())
    }

    /// Renders the published commit with these values, if they have changed and no newer commit can be published. The next
    /// fetch tries it again if it fails.
    async fn update_values(&self, last_accepted: &mut Option<CommitId>, values: Arc<ReadValues>) {
        let (commit, signer, tag) = match &*self.view.borrow() {
            RepositoryView { commit: Some(commit), signer, tag, values: before, .. } if *before != values => {
                (commit.id.clone(), signer.clone(), tag.clone())
            }
            _ => return,
        };
        let name = &self.settings.name;
        let updated = async {
            let checkout = Checkout { tag, ..self.link.source.local(&commit).await? };
            tracing::info!(repository = name, commit = checkout.commit.short(), "host values changed");
            self.publish(Accepted { checkout, signer, values, fetch: None }, last_accepted).await
        };
        if let Err(error) = updated.await {
            tracing::warn!(repository = name, error = chain(&error), "could not use changed host values");
        }
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

    /// Keeps the commits of all revisions and the last accepted one in the mirror, even if the branch is rewritten.
    async fn keep_revisions(&self) {
        let kept = match commits_to_keep(&self.settings, &self.store) {
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

    /// The last commits that the applications which reject the newest one accepted.
    async fn last_accepted(
        &self,
        rejected: &BTreeMap<AppName, RejectedCommit>,
        before: &BTreeMap<AppName, Arc<Rendered>>,
    ) -> Result<BTreeMap<AppName, Checkout>, git::Error> {
        let (settings, source, store) = (&self.settings, self.link.source.as_ref(), &self.store);
        let mut commits = BTreeMap::new();
        for app in rejected.keys() {
            let rendered = before.get(app).filter(|rendered| rendered.is_accepted());
            let in_this_life = rendered.map(|rendered| &rendered.commit.id);
            let last = last_accepted(settings, source, store, app, in_this_life).await?;
            commits.extend(last.map(|checkout| (app.clone(), checkout)));
        }
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
        let rejected =
            check_applications(&self.settings, self.link.source.as_ref(), &self.store, &commit).await?;
        let (rewritten, tag) = (checkout.rewritten, checkout.tag.clone());
        let before = self.view.borrow().applications.clone();
        let mut last_commits = self.last_accepted(&rejected, &before).await?;
        let mut interrupts = Vec::new();
        for checkout in last_commits.values_mut().chain([&mut checkout]) {
            let (files, interrupt) = Interruptible::new(Arc::clone(&checkout.files));
            checkout.files = Arc::new(files);
            interrupts.push(interrupt);
        }
        let (settings, accepted) = (
            self.settings.clone(),
            AcceptedCommit {
                checkout,
                signer: signer.clone(),
                rejected: rejected.clone(),
                last_accepted: last_commits,
                former_hosts: former_hosts(&self.settings, &self.store)?,
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
        let rendered = match rendered {
            Ok(rendered) => rendered,
            Err(error) => {
                tracing::error!(repository = self.settings.name, %error, "the rendering of a commit panicked");
                let message = "rendering failed; see the agent's log".to_owned();
                let now = self.clock.now();
                self.change_state(|state| state.fail("RenderingFailed", message, now));
                return Ok(());
            }
        };
        let RenderedCommit {
            applications,
            withdrawn,
            findings,
            empty_folder,
            unread_files,
            unsearched,
            doubts,
            settings,
        } = rendered;
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
            // Without a fetch, the result of the last one stays.
            let state = fetch.map_or_else(
                || Arc::clone(&view.state),
                |fetch| {
                    let missed = view.state.missed.clone();
                    let mut state = RepositoryState { rewritten, missed, ..RepositoryState::default() };
                    fetch.note(&mut state);
                    Arc::new(state)
                },
            );
            let settings = settings.or_else(|| view.settings.take());
            let commit = Some(commit);
            *view = RepositoryView {
                commit,
                history_length,
                applications,
                findings,
                empty_folder,
                unread_files,
                unsearched,
                doubts,
                state,
                settings,
                values,
                signer,
                tag,
                rejected,
                withdrawn,
            };
        });
        Ok(())
    }

    /// Publishes that a fetch failed. Returns the pause before the next one.
    fn fail(&self, error: &git::Error) -> Duration {
        let failures = self.view.borrow().state.failures.saturating_add(1);
        let pause = match error.cause.retry() {
            git::Retry::Soon => {
                remote_delay(failures, self.seed()).max(error.retry_after.unwrap_or_default())
            }
            git::Retry::AtPoll => poll_with_jitter(self.settings.poll, self.seed()),
        };
        let (reason, message) = (error.cause.as_str(), chain(error));
        tracing::warn!(
            repository = self.settings.name,
            reason,
            error = message,
            attempt = failures,
            "could not fetch"
        );
        let now = self.clock.now();
        let next_fetch = now.after(pause);
        self.change_state(|state| {
            state.fail(reason, message, now);
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

#[cfg(test)]
mod tests {
    use std::sync::{
        Mutex,
        atomic::{AtomicBool, AtomicU32, Ordering},
    };

    use driftless_config::{Settings, Verify};
    use driftless_files::MemoryFiles;

    use super::*;

    const COMPOSE: &str = "services: {web: {image: 'web:1', environment: {PASSWORD: '${PASSWORD}'}}}\n";

    /// A repository whose newest commit is `tip`. `None`: the server does not answer.
    #[derive(Default)]
    struct SourceOfOne {
        tip: Mutex<Option<&'static str>>,
        /// The time of a download. After a failed one that takes time there is a pause.
        takes: Duration,
        downloads: AtomicU32,
        is_paused: AtomicBool,
        /// Number of ended pauses.
        ended: AtomicU32,
    }

    fn commit(id: &str) -> CommitInfo {
        CommitInfo { id: CommitId::from_stored(id.repeat(40)), ..CommitInfo::default() }
    }

    fn checkout(commit: CommitInfo) -> Checkout {
        let files = Arc::new(MemoryFiles::new([("shop/compose.yaml", COMPOSE)]));
        Checkout { commit, files, rewritten: false, tag: None }
    }

    impl CommitSource for SourceOfOne {
        async fn fetch(&self, _known: Option<&CommitId>) -> Result<Checkout, git::Error> {
            let failure = || git::Error {
                cause: git::Cause::ServerFailed,
                doing: "fetch".to_owned(),
                message: "connection refused".to_owned(),
                retry_after: None,
            };
            if !self.takes.is_zero() && !self.is_paused.load(Ordering::Relaxed) {
                self.downloads.fetch_add(1, Ordering::Relaxed);
                sleep(self.takes).await;
                self.is_paused.store(self.tip.lock().unwrap().is_none(), Ordering::Relaxed);
            }
            self.tip.lock().unwrap().map(|id| checkout(commit(id))).ok_or_else(failure)
        }

        fn end_download_pause(&self) {
            self.is_paused.store(false, Ordering::Relaxed);
            self.ended.fetch_add(1, Ordering::Relaxed);
        }

        async fn local(&self, id: &CommitId) -> Result<Checkout, git::Error> {
            Ok(checkout(CommitInfo { id: id.clone(), ..CommitInfo::default() }))
        }

        /// Only the commit `a` is signed.
        async fn verify(
            &self,
            id: &CommitId,
            _policy: &Verify,
        ) -> Result<Result<String, String>, git::Error> {
            Ok(if *id == commit("a").id { Ok("eve".to_owned()) } else { Err("it is not signed".to_owned()) })
        }

        async fn ahead(&self, _base: &CommitId, _tip: &CommitId) -> Option<u64> {
            None
        }

        async fn history_length(&self, _commit: &CommitId) -> Option<u64> {
            None
        }

        async fn keep(&self, _commits: Vec<CommitId>) -> Result<(), git::Error> {
            Ok(())
        }
    }

    /// The password that the published application has.
    fn password(view: &RepositoryView) -> Option<String> {
        let stack = view.applications.get(&"shop".into())?.stack.as_ref()?;
        stack.workloads.get(&"web".into())?.container.env.get("PASSWORD")?.clone()
    }

    async fn until(view: &mut watch::Receiver<RepositoryView>, is_so: impl Fn(&RepositoryView) -> bool) {
        let awaited = tokio::time::timeout(Duration::from_hours(1), view.wait_for(|view| is_so(view)));
        let is_found = awaited.await.is_ok();
        assert!(is_found, "{:#?}", view.borrow());
    }

    fn settings(text: &str) -> config::Repository {
        Settings::parse("driftless.yaml", text).unwrap().repositories.remove(0)
    }

    /// The task that follows a repository with these settings.
    fn task(
        text: &str,
        link: &RepositoryLink<SourceOfOne>,
        view: watch::Sender<RepositoryView>,
        environment: git::Lookup,
    ) -> RepositoryTask<SourceOfOne> {
        let clock = Clock::starting_at(Timestamp(1_800_000_000_000));
        RepositoryTask {
            settings: settings(text),
            link: link.clone(),
            store: Store::in_memory(clock).unwrap(),
            clock,
            tickets: Tickets::starting_now(),
            delivered: Arc::default(),
            environment,
            metrics: Metrics::default(),
            view,
            stop: CancellationToken::new(),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn changed_value_is_used_while_no_newer_commit_can_be() {
        let text = "repositories: [{url: 'https://git.example/infra.git', poll: 1m, \
                    valuesFrom: [{env: PASSWORD, name: PASSWORD}], \
                    verify: {ssh: {allowedSigners: ['eve ssh-ed25519 AAAA']}}}]\n";
        let value = Arc::new(Mutex::new("first"));
        let read = Arc::clone(&value);
        let fetch_now = Arc::new(Notify::new());
        let source = SourceOfOne { tip: Mutex::new(Some("a")), ..SourceOfOne::default() };
        let link = RepositoryLink::new(source, Arc::clone(&fetch_now), settings(text));
        let (view_tx, mut view) = watch::channel(RepositoryView::default());
        let environment: git::Lookup = Arc::new(move |_| Some((*read.lock().unwrap()).to_owned()));
        let task = task(text, &link, view_tx, environment);
        let stop = task.stop.clone();
        let task = tokio::spawn(task.run());
        until(&mut view, |view| password(view).as_deref() == Some("first")).await;

        // The newest commit is rejected.
        *link.source.tip.lock().unwrap() = Some("b");
        *value.lock().unwrap() = "second";
        until(&mut view, |view| view.state.rejected.is_some()).await;
        let published = view.borrow().clone();
        assert_eq!(password(&published).as_deref(), Some("second"));
        assert_eq!(published.commit, Some(commit("a")));
        assert_eq!(published.signer.as_deref(), Some("eve"));
        *value.lock().unwrap() = "third";
        let ended = || link.source.ended.load(Ordering::Relaxed);
        assert_eq!(ended(), 0, "a poll ends no pause");
        fetch_now.notify_one();
        until(&mut view, |view| password(view).as_deref() == Some("third")).await;
        assert!(view.borrow().state.rejected.is_some());
        assert_eq!(ended(), 1);

        // The server does not answer.
        *link.source.tip.lock().unwrap() = None;
        until(&mut view, |view| view.state.error.is_some()).await;
        *value.lock().unwrap() = "fourth";
        until(&mut view, |view| password(view).as_deref() == Some("fourth")).await;
        assert!(view.borrow().state.error.is_some() && view.borrow().state.rejected.is_some());
        stop.cancel();
        task.await.unwrap();
    }

    /// `driftless sync` asks for a fetch, and so does each application that it syncs.
    #[tokio::test(start_paused = true)]
    async fn request_during_a_failing_download_does_not_repeat_it() {
        let fetch_now = Arc::new(Notify::new());
        let source = SourceOfOne { takes: Duration::from_mins(10), ..SourceOfOne::default() };
        let text = "repositories: [{url: 'https://git.example/infra.git', poll: 1m}]\n";
        let link = RepositoryLink::new(source, Arc::clone(&fetch_now), settings(text));
        let (view_tx, mut view) = watch::channel(RepositoryView::default());
        let task = task(text, &link, view_tx, Arc::new(|_| None));
        let stop = task.stop.clone();
        let task = tokio::spawn(task.run());
        let downloads = || link.source.downloads.load(Ordering::Relaxed);
        sleep(Duration::from_mins(1)).await;
        fetch_now.notify_one();
        until(&mut view, |view| view.state.error.is_some()).await;
        sleep(Duration::from_mins(5)).await;
        assert_eq!(downloads(), 1);
        fetch_now.notify_one();
        sleep(Duration::from_mins(1)).await;
        assert_eq!(downloads(), 2, "the pause was known to the user");
        stop.cancel();
        task.await.unwrap();
    }
}
