//! The real [`Source`]: one remote, one mirror, and the order in which they are asked.
//!
//! A fetch first lists one reference; only when that moved is anything received; whatever arrives is read in
//! full before it is handed out; and a mirror that cannot be read is cloned anew beside itself. All of gix
//! runs on blocking threads, and a panic of it is an error of ours.

use std::{
    collections::BTreeSet,
    fmt,
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use gix::ObjectId;
use tokio::{
    sync::{OwnedMutexGuard, Semaphore},
    time::Instant,
};

use super::{
    Checkout, Credentials, Error, Lookup, Source,
    commit_files::CommitFiles,
    followed_ref::{self, FollowedRef},
    history::{self, Tip},
    limits::{self, Limits},
    mirror::{Damage, Lock, Mirror},
    remote::parse_url,
    remote_client::{ConnectOptions, RemoteClient},
    repack, signature,
    submodules::Submodules,
};
use driftless_clock::Clock;
use driftless_config as config;
use driftless_config::{Proxy, Reference, Verify};
use driftless_files::Files;

/// What a [`Repository`] is opened with.
#[derive(Clone, Debug)]
pub struct RepositoryOptions {
    pub url: String,
    pub reference: Reference,
    pub credentials: Credentials,
    /// PEM file of further certificate authorities, for `https://`.
    pub ca_file: Option<PathBuf>,
    pub proxy: Proxy,
    /// Read submodules, too.
    pub submodules: bool,
    /// Policies that [`Source::verify`] will be asked about; what is wrong with them is told when opening.
    pub policies: Vec<Verify>,
    /// For one whole fetch.
    pub timeout: Duration,
    /// Without a byte from the server.
    pub idle_timeout: Duration,
    /// Where the mirror is to be. Beside it there will be names with `.lock`, `.new` and `.old` appended.
    pub mirror: PathBuf,
    /// The most that one fetch may receive. Default: 4 GiB.
    pub most_bytes: u64,
    /// How long after it was cloned anew a damaged mirror is not cloned anew again. Default: 5 min.
    pub clone_pause: Duration,
    /// Shared by all repositories of an agent.
    pub permits: FetchPermits,
    /// For servers that name a date at which to come back.
    pub clock: Clock,
}

/// How many fetches receive something at the same time, since each needs memory. One that waits for longer
/// than its idle timeout goes ahead all the same: stalled servers must not hold up others.
#[derive(Clone, Debug)]
pub struct FetchPermits(Arc<Semaphore>);

/// A Git repository, through its mirror. One per mirror and process.
#[derive(Clone)]
pub struct Repository {
    work: Arc<MirrorWorker>,
    /// Held by whoever changes the mirror, by an abandoned fetch until its thread has ended.
    state: Arc<tokio::sync::Mutex<State>>,
}

/// What the blocking parts share.
struct MirrorWorker {
    options: RepositoryOptions,
    client: RemoteClient,
    mirror: Arc<Mirror>,
    /// Where they are to be read.
    modules: Option<Submodules>,
    /// The tag that was followed last.
    tag: Mutex<Option<String>>,
    /// Checkouts may outlive us, and must not keep others from the mirror.
    _lock: Lock,
}

#[derive(Default)]
struct State {
    /// The commit whose files were all read since the start.
    verified: Option<ObjectId>,
    recloned_at: Option<Instant>,
}

/// What a look at server and mirror gives.
enum MirrorState {
    Current(ObjectId),
    Outdated(FollowedRef),
    /// There is no mirror, or none that could be used; and what is wrong with it.
    Unusable(FollowedRef, Option<Damage>),
}

type FetchGuard = OwnedMutexGuard<State>;

const MOST_BYTES: u64 = 4 << 30;
const CLONE_PAUSE: Duration = Duration::from_mins(5);
const PARALLEL_FETCHES: usize = 4;

impl RepositoryOptions {
    /// As configured. The mirror's path, the environment and what is shared come from the program's edge.
    pub fn new(
        repository: &config::Repository,
        mirror: PathBuf,
        environment: Lookup,
        permits: FetchPermits,
    ) -> Self {
        Self {
            url: repository.url.clone(),
            reference: repository.reference.clone(),
            credentials: Credentials::new(repository.auth.clone(), environment),
            ca_file: repository.ca_file.clone(),
            proxy: repository.proxy.clone(),
            submodules: repository.submodules,
            policies: repository
                .applications
                .iter()
                .filter_map(|it| it.verify.clone())
                .chain(repository.verify.clone())
                .collect(),
            timeout: repository.timeout,
            idle_timeout: repository.idle_timeout,
            mirror,
            most_bytes: MOST_BYTES,
            clone_pause: CLONE_PAUSE,
            permits,
            clock: Clock::System,
        }
    }
}

impl Default for FetchPermits {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(PARALLEL_FETCHES)))
    }
}

impl Repository {
    /// Takes the mirror, without any network. Blocks for some milliseconds. Refuses contradictory options and
    /// a mirror that another process uses.
    pub fn open(options: RepositoryOptions) -> Result<Self, Error> {
        let rejected = |message| Error::Rejected { doing: "set up the repository".into(), message };
        let remote = parse_url(&options.url).map_err(|error| rejected(error.to_string()))?;
        followed_ref::check(&options.reference).map_err(rejected)?;
        let RepositoryOptions { credentials, ca_file, proxy, clock, mirror, .. } = &options;
        options.policies.iter().try_for_each(signature::check_policy).map_err(rejected)?;
        let reach = ConnectOptions { ca_file: ca_file.as_deref(), proxy, mirror };
        let modules = options.submodules.then(|| Submodules::new(remote.clone(), options.clone()));
        let client = RemoteClient::new(remote, credentials.clone(), reach, *clock).map_err(rejected)?;
        let (mirror, lock) = Mirror::open(mirror.clone()).map_err(rejected)?;
        let work = MirrorWorker {
            options,
            client,
            mirror: Arc::new(mirror),
            modules,
            tag: Mutex::default(),
            _lock: lock,
        };
        Ok(Self { work: Arc::new(work), state: Arc::new(tokio::sync::Mutex::new(State::default())) })
    }

    /// The address, without any credential, for people.
    pub fn address(&self) -> String {
        self.work.client.remote().to_string()
    }

    /// Waits for whoever changes the mirror now.
    async fn hold(&self, until: Instant) -> Result<FetchGuard, Error> {
        let lock = Arc::clone(&self.state).lock_owned();
        tokio::time::timeout_at(until, lock).await.map_err(|_| Error::Transient {
            doing: format!("fetch from {}", self.address()),
            message: "an earlier fetch has not ended yet".into(),
            retry_after: None,
        })
    }

    /// Runs gix on a thread that may block.
    async fn blocking<T: Send + 'static>(
        &self,
        run: impl FnOnce(&MirrorWorker) -> T + Send + 'static,
    ) -> Result<T, Error> {
        let work = Arc::clone(&self.work);
        tokio::task::spawn_blocking(move || run(&work)).await.map_err(|error| {
            let why = if error.is_panic() { "Git code panicked" } else { "we are shutting down" };
            // Whatever it was, the mirror should be looked at before it is trusted again.
            self.work.mirror.suspect(why.to_owned());
            Error::Transient {
                doing: format!("work on {}", self.address()),
                message: why.into(),
                retry_after: None,
            }
        })
    }
}

impl Source for Repository {
    async fn fetch(&self, known: Option<&str>) -> Result<Checkout, Error> {
        let known = known.and_then(|it| ObjectId::from_hex(it.as_bytes()).ok());
        let RepositoryOptions { timeout, idle_timeout, most_bytes, permits, .. } = &self.work.options;
        let limits = Limits::start(*timeout, *idle_timeout, *most_bytes);
        let _stop = limits.stop_on_drop();
        let mut held = self.hold(limits.deadline()).await?;

        let looking = limits.clone();
        let (mut held, look) = self
            .blocking(move |work| {
                let look = work.look(&mut held, &looking);
                (held, look)
            })
            .await?;
        let look = look?;
        let permit = match &look {
            MirrorState::Current(_) => None,
            MirrorState::Outdated(_) | MirrorState::Unusable(..) => {
                tokio::time::timeout(*idle_timeout, permits.0.acquire()).await.ok()
            }
        };
        let checkout = self
            .blocking(move |work| {
                let commit = match look {
                    MirrorState::Current(commit) => commit,
                    MirrorState::Outdated(target) => work.receive(&mut held, &limits, &target)?,
                    MirrorState::Unusable(target, damage) => {
                        work.reclone(&mut held, &limits, &target, damage)?
                    }
                };
                work.checkout(commit, known, Some(&limits))
            })
            .await?;
        drop(permit);
        checkout
    }

    async fn local(&self, commit: &str) -> Result<Checkout, Error> {
        let commit = commit.to_owned();
        self.blocking(move |work| work.local(&commit)).await?
    }

    async fn verify(&self, commit: &str, policy: &Verify) -> Result<Result<String, String>, Error> {
        let (commit, policy) = (commit.to_owned(), policy.clone());
        self.blocking(move |work| work.verify(&commit, &policy)).await?
    }

    async fn ahead(&self, base: &str, tip: &str) -> Option<u64> {
        let (base, tip) =
            (ObjectId::from_hex(base.as_bytes()).ok()?, ObjectId::from_hex(tip.as_bytes()).ok()?);
        self.blocking(move |work| work.ahead(base, tip)).await.ok().flatten()
    }

    /// Those that are not here are named in the error, and the others kept all the same.
    async fn keep(&self, commits: Vec<String>) -> Result<(), Error> {
        let held = self.hold(limits::after(self.work.options.timeout)).await?;
        self.blocking(move |work| {
            let _held = held;
            work.keep(&commits)
        })
        .await?
    }
}

impl fmt::Debug for Repository {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Repository").field("address", &self.address()).finish_non_exhaustive()
    }
}

impl MirrorWorker {
    /// One listing, and a comparison with what is here.
    fn look(&self, state: &mut State, limits: &Limits) -> Result<MirrorState, Error> {
        let suspicion = self.mirror.take_suspicion();
        if let (None, Reference::Commit(id)) = (&suspicion, &self.options.reference)
            && let Some(commit) = self.verified_commit(state, id)
        {
            return Ok(MirrorState::Current(commit));
        }
        let target = self.ask(limits).inspect_err(|_| {
            // Not looked into yet.
            if let Some(suspicion) = &suspicion {
                self.mirror.suspect(suspicion.clone());
            }
        })?;
        let repo = match self.mirror.repository() {
            Ok(Some(repo)) if repo.object_hash() == target.hash => repo,
            Ok(Some(_) | None) => return Ok(MirrorState::Unusable(target, None)),
            Err(damage) => return Ok(MirrorState::Unusable(target, Some(damage))),
        };
        let checked = suspicion.map_or(Ok(()), |_| history::verify_all(&repo));
        let tip = checked.and_then(|()| history::tip(&repo)).and_then(|tip| match tip {
            Some(Tip::Commit(tip))
                if tip == target.commit && history::tip_object(&repo)? == Some(target.object) =>
            {
                if state.verified != Some(tip) {
                    history::verify(&repo, tip)?;
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
            Ok(None) => Ok(MirrorState::Outdated(target)),
            Err(damage) => Ok(MirrorState::Unusable(target, Some(damage))),
        }
    }

    /// A commit that was asked for by its id needs no server once it is here.
    fn verified_commit(&self, state: &mut State, id: &str) -> Option<ObjectId> {
        let id = ObjectId::from_hex(id.as_bytes()).ok()?;
        let repo = self.mirror.repository().ok().flatten()?;
        if state.verified == Some(id) {
            return Some(id);
        }
        let is_tip = matches!(history::tip(&repo), Ok(Some(Tip::Commit(tip))) if tip == id);
        if !is_tip || history::verify(&repo, id).is_err() {
            return None;
        }
        state.verified = Some(id);
        Some(id)
    }

    fn ask(&self, limits: &Limits) -> Result<FollowedRef, Error> {
        let listing = self.client.list(limits, &followed_ref::prefixes(&self.options.reference))?;
        let target = followed_ref::choose(&self.options.reference, &listing).map_err(|message| {
            Error::Rejected { doing: format!("find what to deploy in {}", self.client.remote()), message }
        })?;
        self.followed().clone_from(&target.tag);
        Ok(target)
    }

    fn followed(&self) -> std::sync::MutexGuard<'_, Option<String>> {
        self.tag.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn verify(&self, commit: &str, policy: &Verify) -> Result<Result<String, String>, Error> {
        let doing = || format!("verify the commit {commit}");
        let id = ObjectId::from_hex(commit.as_bytes()).map_err(|_| Error::Rejected {
            doing: doing(),
            message: "it is not the full id of a commit".to_owned(),
        })?;
        let read = self.fresh().and_then(|repo| history::raw(&repo, id));
        let (raw, tag) = read.map_err(|damage| self.suspicious(doing(), &damage))?;
        let name = self.followed().clone().unwrap_or_default();
        let tag = tag.as_deref().map(|it| (name.as_str(), it));
        Ok(signature::check(policy, &raw, tag, self.options.clock.now()))
    }

    /// Brings the mirror up to date.
    fn receive(&self, state: &mut State, limits: &Limits, target: &FollowedRef) -> Result<ObjectId, Error> {
        let repo = match self.mirror.repository() {
            Ok(Some(repo)) => repo,
            Ok(None) => return self.reclone(state, limits, target, None),
            Err(damage) => return self.reclone(state, limits, target, Some(damage)),
        };
        if let Err(error) = self.client.receive(limits, &repo, &target.spec()) {
            // gix says the same of a damaged mirror and of a server that breaks off.
            if limits.failure().is_some() {
                return Err(error);
            }
            return match self.fresh().and_then(|it| history::verify_all(&it)) {
                Ok(()) => Err(error),
                Err(damage) => self.reclone(state, limits, target, Some(damage)),
            };
        }
        match self.fresh().and_then(|it| self.check_tip(&it)) {
            Ok(commit) => {
                let commit = commit?;
                state.verified = Some(commit);
                self.repack_if_due(limits);
                Ok(commit)
            }
            Err(damage) => self.reclone(state, limits, target, Some(damage)),
        }
    }

    /// Makes a mirror beside the old one, or the first one, and swaps them once it was read in full.
    fn reclone(
        &self,
        state: &mut State,
        limits: &Limits,
        target: &FollowedRef,
        damage: Option<Damage>,
    ) -> Result<ObjectId, Error> {
        let doing = format!("clone {} anew", self.client.remote());
        let wrong = damage.as_ref().map_or_else(|| "it is not there".to_owned(), ToString::to_string);
        let since = state.recloned_at.map(|it| it.elapsed());
        if let Some(since) = since.filter(|it| *it < self.options.clone_pause) {
            self.mirror.suspect(wrong.clone());
            let message = format!(
                "the mirror is of no use ({wrong}) although it was cloned anew {} s ago; is the disk broken?",
                since.as_secs()
            );
            return Err(Error::Damaged { doing, message });
        }
        if let Some(damage) = &damage {
            let mirror = self.mirror.path().display();
            tracing::warn!(%mirror, %damage, "the mirror is damaged and is cloned anew");
        }
        let made = self.clone_beside(limits, target);
        // What we cloned and could not read is as bad as what broke again, and as costly to repeat.
        if matches!((&made, &damage), (Ok(_), Some(_)) | (Err(Error::Damaged { .. }), _)) {
            state.recloned_at = Some(Instant::now());
        }
        let error = match made {
            Ok(commit) => {
                state.verified = Some(commit);
                return Ok(commit);
            }
            Err(error) => error,
        };
        self.mirror.discard_beside();
        let Some(damage) = damage else { return Err(error) };
        self.mirror.suspect(damage.to_string());
        Err(Error::Damaged { doing, message: format!("the mirror is damaged ({damage}), and: {error}") })
    }

    fn clone_beside(&self, limits: &Limits, target: &FollowedRef) -> Result<ObjectId, Error> {
        let damaged =
            |Damage(message)| Error::Damaged { doing: format!("clone {}", self.client.remote()), message };
        let repo = self.mirror.create_beside(target.hash).map_err(damaged)?;
        self.client.receive(limits, &repo, &target.spec())?;
        let repo = self.mirror.beside().map_err(damaged)?;
        let commit = self.check_tip(&repo).map_err(damaged)??;
        self.save_kept(&repo, limits);
        self.mirror.swap().map_err(|error| damaged(Damage(format!("could not put it in place: {error}"))))?;
        let _ = self.mirror.take_suspicion();
        Ok(commit)
    }

    /// Carries the kept commits over from the old mirror, as far as it can still be read.
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
        if let Err(damage) = self.mirror.beside().and_then(|it| history::keep(&it, &saved)) {
            tracing::warn!(%damage, "could not keep commits for rollbacks in the new mirror");
        }
    }

    /// From the old mirror, or else from the server, which may still know a commit that no branch holds.
    fn save_commit(
        &self,
        old: &gix::Repository,
        new: &gix::Repository,
        commit: ObjectId,
        limits: &Limits,
    ) -> bool {
        let packed = history::verify(old, commit)
            .and_then(|()| repack::pack_into(old, [commit].into(), new, limits.interrupt()));
        packed.is_ok()
            || self.client.receive(limits, new, &format!("+{commit}:{}", history::keep_name(commit))).is_ok()
    }

    /// The commit that a fetch brought, read in full. The inner error is of what is in the repository.
    fn check_tip(&self, repo: &gix::Repository) -> Result<Result<ObjectId, Error>, Damage> {
        match history::tip(repo)? {
            Some(Tip::Commit(commit)) => history::verify(repo, commit).map(|()| Ok(commit)),
            Some(Tip::Other(kind)) => Ok(Err(Error::Rejected {
                doing: format!("find what to deploy in {}", self.client.remote()),
                message: format!("the tag points to a {kind}, not to a commit"),
            })),
            None => Err(Damage("the fetched reference is not there".into())),
        }
    }

    fn repack_if_due(&self, limits: &Limits) {
        let collected = self.fresh().and_then(|repo| {
            if !repack::is_due(&repo) {
                return Ok(());
            }
            repack::repack(&repo, &self.mirror.commits_in_use(), limits.interrupt())
        });
        if let Err(damage) = collected {
            let mirror = self.mirror.path().display();
            tracing::warn!(%mirror, %damage, "could not pack the mirror");
            self.mirror.suspect(damage.to_string());
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

    fn local(&self, commit: &str) -> Result<Checkout, Error> {
        let doing = format!("read the commit {commit} from the mirror");
        let repo = match self.mirror.repository() {
            Ok(Some(repo)) => repo,
            Ok(None) => {
                let message = "the repository has not been fetched yet".to_owned();
                return Err(Error::Rejected { doing, message });
            }
            Err(damage) => return Err(self.suspicious(doing, &damage)),
        };
        let Ok(id) = ObjectId::from_hex(commit.as_bytes()) else {
            let message = "it is not the full id of a commit".to_owned();
            return Err(Error::Rejected { doing, message });
        };
        if history::has_commit(&repo, id) {
            return self.checkout(id, None, None);
        }
        match history::referred(&repo) {
            Ok(referred) if !referred.contains(&id) => {
                Err(Error::Rejected { doing, message: "it is not there".into() })
            }
            Ok(_) => Err(self.suspicious(doing, &Damage("the commit should be there and is not".into()))),
            Err(damage) => Err(self.suspicious(doing, &damage)),
        }
    }

    fn ahead(&self, base: ObjectId, tip: ObjectId) -> Option<u64> {
        let repo = self.mirror.repository().ok().flatten()?;
        history::ahead(&repo, base, tip).inspect_err(|damage| self.mirror.suspect(damage.to_string())).ok()?
    }

    fn keep(&self, commits: &[String]) -> Result<(), Error> {
        let doing = || "keep commits for rollbacks".to_owned();
        let repo = self.mirror.repository().map_err(|damage| self.suspicious(doing(), &damage))?;
        let Some(repo) = repo else {
            let message = "the repository has not been fetched yet".to_owned();
            return Err(Error::Rejected { doing: doing(), message });
        };
        let here =
            |it: &&String| ObjectId::from_hex(it.as_bytes()).is_ok_and(|id| history::has_commit(&repo, id));
        let (here, missing): (Vec<&String>, Vec<&String>) = commits.iter().partition(here);
        let mut wanted: BTreeSet<ObjectId> =
            here.into_iter().filter_map(|it| ObjectId::from_hex(it.as_bytes()).ok()).collect();
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
        Err(Error::Rejected { doing: doing(), message: format!("not in the mirror: {}", names.join(", ")) })
    }

    /// A fresh handle of a mirror that must be there.
    fn fresh(&self) -> Result<gix::Repository, Damage> {
        self.mirror.repository()?.ok_or_else(|| Damage("the mirror has vanished".into()))
    }

    fn suspicious(&self, doing: String, damage: &Damage) -> Error {
        self.mirror.suspect(damage.to_string());
        let message =
            format!("{damage}; the mirror is checked, and if need be cloned anew, at the next fetch");
        Error::Damaged { doing, message }
    }
}
