//! A repository with its mirror: the order of the steps of a fetch.
//!
//! A fetch first lists the references. Commits are only received if the followed reference moved, and are read in full before
//! they are used. An unreadable mirror is replaced by a new clone. A mirror with many packs is packed after a fetch, which does
//! not wait for it. All of gix runs on blocking threads, and a panic in it becomes an error.

use std::{
    collections::BTreeSet,
    fmt,
    pin::pin,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use gix::ObjectId;
use tokio::{
    sync::{OwnedMutexGuard, OwnedSemaphorePermit},
    time::Instant,
};

use super::{
    commit_files::CommitFiles,
    commit_source::{Checkout, CommitSource},
    conversation::Conversation,
    download_pause::DownloadPause,
    error::{Cause, Error, Problem, invalid},
    followed_ref::{self, FollowedRef},
    history::{self, Tip},
    limits::{self, Limits},
    mirror::{Damage, Lock, Mirror},
    options::RepositoryOptions,
    remote_client::{ConnectOptions, History, RemoteClient, Wanted},
    repack, signature,
    submodules::Submodules,
};
use driftless_config::{Reference, Verify, VerifyMode};
use driftless_files::Files;
use driftless_model::CommitId;

/// A Git repository, through its mirror. One per mirror and process.
#[derive(Clone)]
pub struct Repository {
    work: Arc<MirrorWorker>,
    /// Locked while the mirror is changed; by a cancelled fetch until its thread has ended.
    state: Arc<tokio::sync::Mutex<State>>,
    packing: Arc<Packing>,
}

/// The packing of the mirror. It goes on after the fetch that began it, until it is done, takes too long, or the repository is
/// dropped.
#[derive(Default)]
struct Packing {
    /// Locked while the mirror is packed.
    running: Arc<tokio::sync::Mutex<()>>,
    /// Ends the last one that began. gix checks it between chunks of work.
    interrupt: Mutex<Arc<AtomicBool>>,
}

/// The result of a fetch.
struct Fetched {
    checkout: Checkout,
    /// The mirror has so many packs that it should be packed now.
    is_packing_due: bool,
}

/// The state that the blocking parts share.
struct MirrorWorker {
    options: RepositoryOptions,
    client: RemoteClient,
    mirror: Arc<Mirror>,
    /// `None` if submodules are not read.
    modules: Option<Submodules>,
    /// The last followed tag.
    tag: Mutex<Option<String>>,
    /// The last commit whose history was counted, with the length of that.
    counted: Mutex<Option<(ObjectId, u64)>>,
    pause: DownloadPause,
    /// Dropped with the repository: checkouts may live longer and must not lock the mirror.
    _lock: Lock,
}

#[derive(Default)]
struct State {
    /// The commit that was verified since the start.
    verified: Option<ObjectId>,
    recloned_at: Option<Instant>,
    /// `None` after a packing that succeeded.
    packing_failed_at: Option<Instant>,
}

/// The pause after a failed packing. Each one reads the whole mirror and may fill the disk.
const PACKING_PAUSE: Duration = Duration::from_hours(1);

/// The time after which packing is ended: no newer commit can be fetched meanwhile.
const LONGEST_PACKING: Duration = Duration::from_hours(1);

/// The time after which a fetch that waits for packing fails, so that the status says why no newer commit arrives.
const LONGEST_WAIT: Duration = Duration::from_mins(15);

/// The mirror compared with the server.
enum MirrorState {
    Current(ObjectId),
    Outdated(Asked),
    /// There is no usable mirror, and why.
    Unusable(Asked, Option<Damage>),
}

impl MirrorState {
    /// The followed commit.
    fn commit(&self) -> ObjectId {
        match self {
            Self::Current(commit) => *commit,
            Self::Outdated(asked) | Self::Unusable(asked, _) => asked.target.commit,
        }
    }
}

/// The answer of the server.
struct Asked {
    target: FollowedRef,
    /// The conversation to receive the target in.
    conversation: Option<Conversation>,
}

type FetchGuard = OwnedMutexGuard<State>;

impl Repository {
    /// Locks the mirror, without the network. Blocks for some milliseconds. Fails for contradictory options and for a mirror
    /// that another process uses.
    pub fn open(options: RepositoryOptions) -> Result<Self, Error> {
        Self::open_for(options, History::Whole)
    }

    /// The same for one kind of fetch: `history` is that of the submodules.
    fn open_for(options: RepositoryOptions, history: History) -> Result<Self, Error> {
        let client = Self::prepare(&options)?;
        let remote = client.remote().clone();
        let modules = options.submodules.then(|| Submodules::new(remote, options.clone(), history));
        let (mirror, lock) = Mirror::open(options.mirror.clone()).map_err(set_up)?;
        let pause = DownloadPause::new(options.download_pause);
        let work = MirrorWorker {
            options,
            client,
            mirror: Arc::new(mirror),
            modules,
            tag: Mutex::default(),
            counted: Mutex::default(),
            pause,
            _lock: lock,
        };
        let state = Arc::new(tokio::sync::Mutex::new(State::default()));
        Ok(Self { work: Arc::new(work), state, packing: Arc::default() })
    }

    /// Checks the options as [`Repository::open`] does, without touching the mirror.
    ///
    /// # Errors
    ///
    /// If the repository could not be opened with them.
    pub fn check(options: &RepositoryOptions) -> Result<(), Error> {
        Self::prepare(options).map(drop)
    }

    /// Asks the server for the commit that the reference points to. Fetches and stores nothing.
    ///
    /// # Errors
    ///
    /// If the options cannot be used, the server does not answer or denies access, or the reference does not exist.
    pub async fn probe(options: RepositoryOptions) -> Result<CommitId, Error> {
        let limits = Limits::start(options.timeout, options.idle_timeout, options.most_bytes);
        let _stop = limits.stop_on_drop();
        let asking = limits.clone();
        let asked = tokio::task::spawn_blocking(move || {
            let client = Self::prepare(&options)?;
            ask(&client, &options.reference, &asking).map(|found| found.target.commit)
        });
        let found =
            asked.await.map_err(|error| Cause::Interrupted.error("ask the Git server", error.to_string()))?;
        CommitId::parse(&found?.to_string()).map_err(|error| {
            Cause::ServerFailed.error("read the answer of the Git server", error.to_string())
        })
    }

    /// Fetches the newest commit and its submodules, without their history. `options.mirror` is a new path, such as one in a
    /// temporary folder.
    ///
    /// # Errors
    ///
    /// As for [`CommitSource::fetch`].
    pub async fn peek(options: RepositoryOptions) -> Result<Checkout, Error> {
        let limits = Limits::start(options.timeout, options.idle_timeout, options.most_bytes);
        let _stop = limits.stop_on_drop();
        let limits = limits.clone();
        let fetch = move || {
            let work = Self::open_for(options, History::Newest)?.work;
            let asked = work.ask(&limits)?;
            let commit = work.clone_replacement(&limits, asked, History::Newest)?;
            work.checkout(commit, None, Some(&limits))
        };
        let done = tokio::task::spawn_blocking(fetch).await;
        done.map_err(|error| Cause::Interrupted.error("read the newest commit", error.to_string()))?
    }

    fn prepare(options: &RepositoryOptions) -> Result<RemoteClient, Error> {
        let remote = options.url.clone();
        followed_ref::check(&options.reference).map_err(set_up)?;
        let RepositoryOptions { credentials, ca_file, proxy, clock, mirror, .. } = options;
        options.policies.iter().try_for_each(signature::check_policy).map_err(invalid).map_err(set_up)?;
        let reach = ConnectOptions { ca_file: ca_file.as_deref(), proxy, mirror };
        RemoteClient::new(remote, credentials.clone(), reach, *clock).map_err(set_up)
    }

    /// The address, without any credential, for people.
    pub fn address(&self) -> String {
        self.work.client.remote().to_string()
    }

    /// Waits until nothing else changes the mirror.
    async fn hold(&self, until: Instant) -> Result<FetchGuard, Error> {
        let lock = Arc::clone(&self.state).lock_owned();
        tokio::time::timeout_at(until, lock).await.map_err(|_| {
            let doing = format!("fetch from {}", self.address());
            Cause::Interrupted.error(doing, "an earlier fetch has not ended yet")
        })
    }

    async fn wait_until_packed(&self) -> Result<(), Error> {
        let packed = self.packing.wait().await;
        packed.map_err(|problem| problem.during(format!("fetch from {}", self.address())))
    }

    /// Runs gix on a thread that may block.
    async fn blocking<T: Send + 'static>(
        &self,
        run: impl FnOnce(&MirrorWorker) -> T + Send + 'static,
    ) -> Result<T, Error> {
        run_blocking(&self.work, run).await
    }
}

impl Packing {
    /// Waits until the mirror is packed. The deadline of a fetch does not apply: no server has to answer.
    async fn wait(&self) -> Result<(), Problem> {
        let packed = tokio::time::timeout(LONGEST_WAIT, self.running.lock()).await;
        packed.map(drop).map_err(|_| {
            let minutes = LONGEST_WAIT.as_secs() / 60;
            let message = format!("its mirror is still being packed after {minutes} minutes; check the disk");
            Problem::new(Cause::Interrupted, message)
        })
    }

    /// Begins to pack the mirror. Nothing else changes it meanwhile.
    async fn start(&self, work: &Arc<MirrorWorker>, mut held: FetchGuard, permit: OwnedSemaphorePermit) {
        let running = Arc::clone(&self.running).lock_owned().await;
        let interrupt = Arc::new(AtomicBool::new(false));
        *self.interrupt() = Arc::clone(&interrupt);
        let (work, checked) = (Arc::clone(work), Arc::clone(&interrupt));
        tokio::spawn(async move {
            let pack = move |work: &MirrorWorker| {
                work.pack(&mut held, &checked);
                drop((held, running, permit));
            };
            // After a panic, the next fetch verifies the mirror.
            let mut packed = pin!(run_blocking(&work, pack));
            if tokio::time::timeout(LONGEST_PACKING, packed.as_mut()).await.is_err() {
                let mirror = work.mirror.path().display();
                tracing::warn!(%mirror, "packing the mirror takes too long, so it is ended; check the disk");
                interrupt.store(true, Ordering::Relaxed);
                drop(packed.await);
            }
        });
    }

    fn interrupt(&self) -> MutexGuard<'_, Arc<AtomicBool>> {
        self.interrupt.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Packing {
    fn drop(&mut self) {
        self.interrupt().store(true, Ordering::Relaxed);
    }
}

/// Runs gix on a thread that may block.
async fn run_blocking<T: Send + 'static>(
    work: &Arc<MirrorWorker>,
    run: impl FnOnce(&MirrorWorker) -> T + Send + 'static,
) -> Result<T, Error> {
    let worker = Arc::clone(work);
    tokio::task::spawn_blocking(move || run(&worker)).await.map_err(|error| {
        let why = if error.is_panic() { "Git code panicked" } else { "the agent is shutting down" };
        // The mirror is verified before it is used again.
        work.mirror.suspect(why.to_owned());
        Cause::Interrupted.error(format!("work on {}", work.client.remote()), why)
    })
}

impl CommitSource for Repository {
    async fn fetch(&self, known: Option<&CommitId>) -> Result<Checkout, Error> {
        let known = known.and_then(object_id);
        self.wait_until_packed().await?;
        let RepositoryOptions { timeout, idle_timeout, most_bytes, .. } = &self.work.options;
        let limits = Limits::start(*timeout, *idle_timeout, *most_bytes);
        let _stop = limits.stop_on_drop();
        let mut held = self.hold(limits.deadline()).await?;
        let limits = limits.clone();
        let fetch = move |work: &MirrorWorker| {
            let fetched = work.fetch(&mut held, &limits, known);
            (fetched, held)
        };
        let (fetched, held) = self.blocking(fetch).await?;
        let Fetched { checkout, is_packing_due } = fetched?;
        // Without a permit, it is still due at the next fetch.
        if is_packing_due && let Some(permit) = self.work.options.permits.try_pack() {
            self.packing.start(&self.work, held, permit).await;
        }
        Ok(checkout)
    }

    fn end_download_pause(&self) {
        self.work.pause.end();
    }

    async fn local(&self, commit: &CommitId) -> Result<Checkout, Error> {
        let commit = commit.to_owned();
        self.blocking(move |work| work.local(&commit)).await?
    }

    async fn verify(&self, commit: &CommitId, policy: &Verify) -> Result<Result<String, String>, Error> {
        let (commit, policy) = (commit.to_owned(), policy.clone());
        self.blocking(move |work| work.verify(&commit, &policy)).await?
    }

    async fn ahead(&self, base: &CommitId, tip: &CommitId) -> Option<u64> {
        let (base, tip) = (object_id(base)?, object_id(tip)?);
        self.blocking(move |work| work.ahead(base, tip)).await.ok().flatten()
    }

    async fn history_length(&self, commit: &CommitId) -> Option<u64> {
        let commit = object_id(commit)?;
        self.blocking(move |work| work.history_length(commit)).await.ok().flatten()
    }

    /// The error names the commits that are not in the mirror; the others are kept.
    async fn keep(&self, commits: Vec<CommitId>) -> Result<(), Error> {
        self.wait_until_packed().await?;
        let held = self.hold(limits::after(self.work.options.timeout)).await?;
        self.blocking(move |work| {
            let _held = held;
            work.keep(&commits)
        })
        .await?
    }
}

/// Lists the references of the server and chooses the one to follow.
fn ask(client: &RemoteClient, reference: &Reference, limits: &Limits) -> Result<Asked, Error> {
    let (listing, conversation) = client.list(limits, &followed_ref::prefixes(reference))?;
    let target = followed_ref::choose(reference, &listing)
        .map_err(|problem| problem.during(format!("find what to deploy in {}", client.remote())))?;
    Ok(Asked { target, conversation })
}

/// The error of a repository that cannot be set up.
fn set_up(problem: Problem) -> Error {
    problem.during("set up the repository")
}

/// The id as gix has it.
fn object_id(commit: &CommitId) -> Option<ObjectId> {
    ObjectId::from_hex(commit.as_str().as_bytes()).ok()
}

impl fmt::Debug for Repository {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Repository").field("address", &self.address()).finish_non_exhaustive()
    }
}

impl MirrorWorker {
    /// Brings the mirror up to date and reads the newest commit. An open conversation with the server never leaves this thread:
    /// to end one blocks.
    fn fetch(&self, state: &mut State, limits: &Limits, known: Option<ObjectId>) -> Result<Fetched, Error> {
        let look = self.compare(state, limits)?;
        let commit = look.commit();
        if let Err(error) = self.pause.check(commit, self.options.clock.now()) {
            // The damage is not mended yet.
            if let MirrorState::Unusable(_, Some(damage)) = &look {
                self.mirror.suspect(damage.to_string());
            }
            return Err(error);
        }
        // Packing can take minutes, during which no newer commit is fetched. So it rather begins when there is none.
        let most_packs = match look {
            MirrorState::Current(_) => repack::MANY_PACKS,
            MirrorState::Outdated(_) | MirrorState::Unusable(..) => repack::MOST_PACKS,
        };
        let result = self.download(state, limits, look, known);
        let checkout = self.pause.note(commit, result, limits, self.options.clock.now())?;
        let may_pack = state.packing_failed_at.is_none_or(|failed| failed.elapsed() >= PACKING_PAUSE);
        let is_packing_due = may_pack && self.fresh().is_ok_and(|repo| repack::is_due(&repo, most_packs));
        Ok(Fetched { checkout, is_packing_due })
    }

    fn download(
        &self,
        state: &mut State,
        limits: &Limits,
        look: MirrorState,
        known: Option<ObjectId>,
    ) -> Result<Checkout, Error> {
        let permit = match &look {
            MirrorState::Current(_) => None,
            MirrorState::Outdated(_) | MirrorState::Unusable(..) => {
                limits.wait_for(self.options.permits.acquire())
            }
        };
        let commit = match look {
            MirrorState::Current(commit) => commit,
            MirrorState::Outdated(asked) => self.receive(state, limits, asked)?,
            MirrorState::Unusable(asked, damage) => self.reclone(state, limits, asked, damage)?,
        };
        let checkout = self.checkout(commit, known, Some(limits));
        drop(permit);
        checkout
    }

    /// Lists the references and compares them with the mirror.
    fn compare(&self, state: &mut State, limits: &Limits) -> Result<MirrorState, Error> {
        let suspicion = self.mirror.take_suspicion();
        if let (None, Reference::Commit(id)) = (&suspicion, &self.options.reference)
            && let Some(commit) = self.verified_commit(state, id)
        {
            return Ok(MirrorState::Current(commit));
        }
        let asked = self.ask(limits).inspect_err(|_| {
            // It has not been checked yet.
            if let Some(suspicion) = &suspicion {
                self.mirror.suspect(suspicion.clone());
            }
        })?;
        let target = &asked.target;
        let repo = match self.mirror.repository() {
            Ok(Some(repo)) if repo.object_hash() == target.hash => repo,
            Ok(Some(_) | None) => return Ok(MirrorState::Unusable(asked, None)),
            Err(damage) => return Ok(MirrorState::Unusable(asked, Some(damage))),
        };
        let checked = suspicion.map_or(Ok(()), |_| history::verify_all(&repo));
        let tip = checked.and_then(|()| history::tip(&repo)).and_then(|tip| match tip {
            Some(Tip::Commit(tip))
                if tip == target.commit && history::tip_object(&repo)? == Some(target.object) =>
            {
                if state.verified != Some(tip) {
                    history::verify(&repo, tip, None)?;
                }
                Ok(Some(tip))
            }
            Some(Tip::Commit(_) | Tip::Other(_)) | None => Ok(None),
        });
        match tip {
            Ok(Some(tip)) => {
                state.verified = Some(tip);
                Ok(MirrorState::Current(tip))
            }
            Ok(None) => Ok(MirrorState::Outdated(asked)),
            Err(damage) => Ok(MirrorState::Unusable(asked, Some(damage))),
        }
    }

    /// A commit that is followed by its id needs no server once it is in the mirror.
    fn verified_commit(&self, state: &mut State, id: &CommitId) -> Option<ObjectId> {
        let id = object_id(id)?;
        let repo = self.mirror.repository().ok().flatten()?;
        if state.verified == Some(id) {
            return Some(id);
        }
        let is_tip = matches!(history::tip(&repo), Ok(Some(Tip::Commit(tip))) if tip == id);
        if !is_tip || history::verify(&repo, id, None).is_err() {
            return None;
        }
        state.verified = Some(id);
        Some(id)
    }

    fn ask(&self, limits: &Limits) -> Result<Asked, Error> {
        let asked = ask(&self.client, &self.options.reference, limits)?;
        self.followed().clone_from(&asked.target.tag);
        Ok(asked)
    }

    fn followed(&self) -> MutexGuard<'_, Option<String>> {
        self.tag.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn verify(&self, commit: &CommitId, policy: &Verify) -> Result<Result<String, String>, Error> {
        let doing = || format!("verify the commit {commit}");
        let no_id = || Cause::CommitNotFound.error(doing(), "it is not the full id of a commit");
        let id = object_id(commit).ok_or_else(no_id)?;
        let read = self.fresh().and_then(|repo| history::raw(&repo, id));
        let (raw, tag) = read.map_err(|damage| self.suspicious(doing(), &damage))?;
        let name = match (&self.options.reference, policy.mode) {
            (_, VerifyMode::Commit) | (Reference::Head | Reference::Branch(_) | Reference::Commit(_), _) => {
                None
            }
            (Reference::Tag(name), _) => Some(followed_ref::tag_name(name).to_owned()),
            (Reference::Semver(_), _) => Some(self.followed().clone().ok_or_else(|| {
                let message = "the name of its tag is known after a fetch, which checks its signature";
                Cause::Interrupted.error(doing(), message)
            })?),
        };
        let tag = name.as_deref().zip(tag.as_deref());
        Ok(signature::check(policy, &raw, tag, self.options.clock.now()))
    }

    /// Brings the mirror up to date.
    fn receive(&self, state: &mut State, limits: &Limits, asked: Asked) -> Result<ObjectId, Error> {
        self.mirror.remove_old_locks(self.options.clock.now());
        let repo = match self.mirror.repository() {
            Ok(Some(repo)) => repo,
            Ok(None) => return self.reclone(state, limits, asked, None),
            Err(damage) => return self.reclone(state, limits, asked, Some(damage)),
        };
        let Asked { target, conversation } = asked;
        let again = |target| Asked { target, conversation: None };
        if let Err(error) = self.client.receive(limits, &repo, Wanted::whole(&target.spec()), conversation) {
            // gix says the same of a damaged mirror and of a server that breaks off.
            if limits.failure().is_some() {
                return Err(error);
            }
            return match self.fresh().and_then(|it| history::verify_all(&it)) {
                Ok(()) => Err(error),
                Err(damage) => self.reclone(state, limits, again(target), Some(damage)),
            };
        }
        match self.fresh().and_then(|it| self.check_tip(&it, state.verified)) {
            Ok(commit) => {
                let commit = commit?;
                state.verified = Some(commit);
                Ok(commit)
            }
            Err(damage) => self.reclone(state, limits, again(target), Some(damage)),
        }
    }

    /// Clones next to the mirror, verifies the clone and puts it in the place of the mirror.
    fn reclone(
        &self,
        state: &mut State,
        limits: &Limits,
        asked: Asked,
        damage: Option<Damage>,
    ) -> Result<ObjectId, Error> {
        let doing = format!("clone {} again", self.client.remote());
        let wrong = damage.as_ref().map_or_else(|| "it is missing".to_owned(), ToString::to_string);
        let since = state.recloned_at.map(|it| it.elapsed());
        if let Some(since) = since.filter(|it| *it < self.options.clone_pause) {
            self.mirror.suspect(wrong.clone());
            let message = format!(
                "the mirror is unusable ({wrong}) although it was cloned {} s ago; check the disk",
                since.as_secs()
            );
            return Err(Cause::RepositoryDamaged.error(doing, message));
        }
        if let Some(damage) = &damage {
            let mirror = self.mirror.path().display();
            tracing::warn!(%mirror, %damage, "the mirror is damaged; cloning it again");
        }
        let made = self.clone_replacement(limits, asked, History::Whole);
        // An unreadable new clone is as costly to repeat as a mirror that is damaged again.
        let is_damaged = |error: &Error| error.cause == Cause::RepositoryDamaged;
        if damage.is_some() && made.is_ok() || made.as_ref().is_err_and(is_damaged) {
            state.recloned_at = Some(Instant::now());
        }
        let error = match made {
            Ok(commit) => {
                state.verified = Some(commit);
                return Ok(commit);
            }
            Err(error) => error,
        };
        self.mirror.discard_replacement();
        let Some(damage) = damage else { return Err(error) };
        self.mirror.suspect(damage.to_string());
        let cause = match error.cause {
            Cause::DiskFull | Cause::DiskFailed => error.cause,
            _ => Cause::RepositoryDamaged,
        };
        Err(cause.error(doing, format!("the mirror is damaged ({damage}), and: {error}")))
    }

    fn clone_replacement(
        &self,
        limits: &Limits,
        Asked { target, conversation }: Asked,
        history: History,
    ) -> Result<ObjectId, Error> {
        let damaged =
            |damage: Damage| damage.cause.error(format!("clone {}", self.client.remote()), damage.message);
        let repo = self.mirror.create_replacement(target.hash).map_err(damaged)?;
        let wanted = Wanted { spec: &target.spec(), history };
        self.client.receive(limits, &repo, wanted, conversation)?;
        let repo = self.mirror.replacement().map_err(damaged)?;
        let commit = self.check_tip(&repo, None).map_err(damaged)??;
        self.save_kept(&repo, limits);
        self.mirror.swap().map_err(|error| damaged(Damage::of_disk("put it in place", &error)))?;
        let _ = self.mirror.take_suspicion();
        Ok(commit)
    }

    /// Copies the kept commits from the old mirror, as far as it is readable.
    fn save_kept(&self, new: &gix::Repository, limits: &Limits) {
        let Ok(Some(old)) = self.mirror.repository() else { return };
        if old.object_hash() != new.object_hash() {
            return;
        }
        let mut saved = BTreeSet::new();
        for commit in history::kept(&old).unwrap_or_default() {
            if history::has_commit(new, commit) || self.save_commit(&old, new, commit, limits) {
                saved.insert(commit);
            } else {
                tracing::warn!(%commit, "a commit kept for rollbacks was lost with a damaged mirror");
            }
        }
        if let Err(damage) = self.mirror.replacement().and_then(|it| history::keep(&it, &saved)) {
            tracing::warn!(%damage, "could not keep commits for rollbacks in the new mirror");
        }
    }

    /// From the old mirror, or from the server, which may still have a commit without a branch.
    fn save_commit(
        &self,
        old: &gix::Repository,
        new: &gix::Repository,
        commit: ObjectId,
        limits: &Limits,
    ) -> bool {
        let packed = history::verify(old, commit, None)
            .and_then(|()| repack::pack_into(old, [commit].into(), new, limits.interrupt()));
        packed.is_ok() || {
            let spec = format!("+{commit}:{}", history::keep_name(commit));
            self.client.receive(limits, new, Wanted::whole(&spec), None).is_ok()
        }
    }

    /// Verifies the fetched commit, apart from what `verified` has, too. The inner error is about the content of the
    /// repository.
    fn check_tip(
        &self,
        repo: &gix::Repository,
        verified: Option<ObjectId>,
    ) -> Result<Result<ObjectId, Error>, Damage> {
        match history::tip(repo)? {
            Some(Tip::Commit(commit)) => history::verify(repo, commit, verified).map(|()| Ok(commit)),
            Some(Tip::Other(kind)) => {
                let doing = format!("find what to deploy in {}", self.client.remote());
                let message = format!("the tag points to a {kind}, not to a commit");
                Ok(Err(Cause::TagNotFound.error(doing, message)))
            }
            None => Err(Damage::new("the fetched reference is missing")),
        }
    }

    fn pack(&self, state: &mut State, interrupt: &AtomicBool) {
        // A panic is a failure, too.
        state.packing_failed_at = Some(Instant::now());
        let packed =
            self.fresh().and_then(|repo| repack::repack(&repo, &self.mirror.commits_in_use(), interrupt));
        state.packing_failed_at = packed.is_err().then(Instant::now);
        if let Err(damage) = packed
            && !interrupt.load(Ordering::Relaxed)
        {
            let mirror = self.mirror.path().display();
            tracing::warn!(%mirror, %damage, "could not pack the mirror");
            // A full disk says nothing about the mirror.
            if damage.cause == Cause::RepositoryDamaged {
                self.mirror.suspect(damage.to_string());
            }
        }
    }

    /// With `bound`, submodules that are not here are fetched.
    fn checkout(
        &self,
        commit: ObjectId,
        known: Option<ObjectId>,
        limits: Option<&Limits>,
    ) -> Result<Checkout, Error> {
        let made = self.fresh().and_then(|repo| {
            let can_be_rewritten = !matches!(self.options.reference, Reference::Commit(_));
            let rewritten = match known {
                Some(known) if can_be_rewritten => !history::is_ancestor(&repo, known, commit)?,
                Some(_) | None => false,
            };
            let files = CommitFiles::open(Arc::clone(&self.mirror), commit)?;
            Ok((history::commit_info(&repo, commit)?, rewritten, files))
        });
        let (commit, rewritten, files) =
            made.map_err(|damage| self.suspicious(format!("read the commit {commit}"), &damage))?;
        let files: Arc<dyn Files> = match &self.modules {
            Some(modules) => modules.attach(files, limits)?,
            None => Arc::new(files),
        };
        Ok(Checkout { commit, files, rewritten, tag: self.followed().clone() })
    }

    fn local(&self, commit: &CommitId) -> Result<Checkout, Error> {
        let doing = format!("read the commit {commit} from the mirror");
        let repo = match self.mirror.repository() {
            Ok(Some(repo)) => repo,
            Ok(None) => {
                return Err(Cause::CommitNotFound.error(doing, "the repository has not been fetched yet"));
            }
            Err(damage) => return Err(self.suspicious(doing, &damage)),
        };
        let Some(id) = object_id(commit) else {
            return Err(Cause::CommitNotFound.error(doing, "it is not the full id of a commit"));
        };
        if history::has_commit(&repo, id) {
            return self.checkout(id, None, None);
        }
        match history::referred(&repo) {
            Ok(referred) if !referred.contains(&id) => {
                Err(Cause::CommitNotFound.error(doing, "there is no such commit in the mirror"))
            }
            Ok(_) => {
                Err(self
                    .suspicious(doing, &Damage::new("the commit is missing although a reference names it")))
            }
            Err(damage) => Err(self.suspicious(doing, &damage)),
        }
    }

    fn ahead(&self, base: ObjectId, tip: ObjectId) -> Option<u64> {
        let repo = self.mirror.repository().ok().flatten()?;
        history::ahead(&repo, base, tip).inspect_err(|damage| self.mirror.suspect(damage.to_string())).ok()?
    }

    fn history_length(&self, commit: ObjectId) -> Option<u64> {
        let repo = self.mirror.repository().ok().flatten()?;
        let known = *self.counted();
        if !history::has_commit(&repo, commit) {
            return None;
        }
        let length = history::length(&repo, commit, known);
        let length = length.inspect_err(|damage| self.mirror.suspect(damage.to_string())).ok()??;
        *self.counted() = Some((commit, length));
        Some(length)
    }

    fn counted(&self) -> MutexGuard<'_, Option<(ObjectId, u64)>> {
        self.counted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn keep(&self, commits: &[CommitId]) -> Result<(), Error> {
        let doing = || "keep commits for rollbacks".to_owned();
        let repo = self.mirror.repository().map_err(|damage| self.suspicious(doing(), &damage))?;
        let Some(repo) = repo else {
            return Err(Cause::CommitNotFound.error(doing(), "the repository has not been fetched yet"));
        };
        self.mirror.remove_old_locks(self.options.clock.now());
        let here = |commit: &&CommitId| object_id(commit).is_some_and(|id| history::has_commit(&repo, id));
        let (here, missing): (Vec<&CommitId>, Vec<&CommitId>) = commits.iter().partition(here);
        let mut wanted: BTreeSet<ObjectId> = here.into_iter().filter_map(object_id).collect();
        history::keep(&repo, &wanted).map_err(|damage| self.suspicious(doing(), &damage))?;
        if let Some(modules) = &self.modules {
            if let Ok(Some(Tip::Commit(tip))) = history::tip(&repo) {
                wanted.insert(tip);
            }
            modules.keep(&self.mirror, &wanted);
        }
        if missing.is_empty() {
            return Ok(());
        }
        let names: Vec<&str> = missing.iter().map(|it| it.as_str()).collect();
        Err(Cause::CommitNotFound.error(doing(), format!("not in the mirror: {}", names.join(", "))))
    }

    /// A new handle of a mirror that must exist.
    fn fresh(&self) -> Result<gix::Repository, Damage> {
        self.mirror.repository()?.ok_or_else(|| Damage::new("the mirror is gone"))
    }

    fn suspicious(&self, doing: String, damage: &Damage) -> Error {
        self.mirror.suspect(damage.to_string());
        let message = format!("{damage}; the next fetch checks the mirror and clones it again if necessary");
        damage.cause.error(doing, message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn fetch_says_when_it_waits_long_for_packing() {
        let packing = Packing::default();
        assert_eq!(packing.wait().await, Ok(()));
        let running = packing.running.lock().await;
        let began = Instant::now();
        let problem = packing.wait().await.unwrap_err();
        assert_eq!(problem.cause, Cause::Interrupted);
        assert!(began.elapsed() >= LONGEST_WAIT, "{:?}", began.elapsed());
        assert!(problem.message.contains("packed after 15 minutes"), "{problem}");
        drop(running);
        assert_eq!(packing.wait().await, Ok(()));
    }
}
