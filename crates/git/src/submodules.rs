//! Submodules: files of other repositories, at the commits that a commit pins.
//!
//! Each submodule has its own mirror. Only repositories on the same server with the same transport are followed, because
//! credentials must not be sent anywhere else. On this machine the server is the file system, of which the agent may read
//! more than somebody who pushes: there only the folders of `submodulePaths` are followed. Commits are pinned by their
//! id, so a signature of the outer commit covers them. Symbolic links do not lead from one repository to another.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    str::FromStr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use gix::ObjectId;
use tokio::time::Instant;

use super::{
    commit_files::CommitFiles,
    error::{Cause, Error, Problem},
    history,
    limits::Limits,
    mirror::{Damage, Lock, Mirror, modules_folder},
    options::RepositoryOptions,
    remote_client::{ConnectOptions, History, RemoteClient, Wanted},
    repack, unused_mirrors,
};
use driftless_files::{Entry, Files, ReadError};
use driftless_model::{RepoUrl, digest_hex};

/// All submodules of one repository, over all its commits.
pub(super) struct Submodules {
    remote: RepoUrl,
    options: RepositoryOptions,
    history: History,
    folder: PathBuf,
    open: Mutex<BTreeMap<String, Arc<Submodule>>>,
}

/// A repository that is used as a submodule.
struct Submodule {
    client: RemoteClient,
    history: History,
    mirror: Arc<Mirror>,
    /// Commits that were verified since the start.
    verified: Mutex<BTreeSet<ObjectId>>,
    /// See [`RepositoryOptions::clone_pause`].
    clone_pause: Duration,
    /// The time at which a damaged mirror was cloned again last.
    recloned_at: Mutex<Option<Instant>>,
    _lock: Lock,
}

/// A submodule in one commit: its path, repository and commit.
struct PinnedSubmodule {
    path: String,
    remote: RepoUrl,
    commit: ObjectId,
}

/// The files of a commit, with the files of its submodules at their paths.
#[derive(Debug)]
struct FilesWithSubmodules {
    files: CommitFiles,
    modules: BTreeMap<String, Arc<dyn Files>>,
}

const LIST: &str = ".gitmodules";
const LONGEST_LIST: u64 = 1 << 20;

/// The maximum nesting of submodules, and their maximum number.
const MAX_DEPTH: usize = 8;
const MAX_SUBMODULES: usize = 100;

/// The state of a walk through nested submodules.
struct Traversal<'a> {
    /// The addresses of the outer repositories.
    above: Vec<String>,
    count: usize,
    /// `None`: nothing is fetched.
    limits: Option<&'a Limits>,
    /// The commits found, by address.
    met: BTreeMap<String, BTreeSet<ObjectId>>,
}

impl Submodules {
    pub(super) fn new(remote: RepoUrl, options: RepositoryOptions, history: History) -> Self {
        let folder = modules_folder(&options.mirror);
        Self { remote, options, history, folder, open: Mutex::default() }
    }

    /// Adds the files of all submodules. With `bound` what is missing is fetched.
    pub(super) fn attach(
        &self,
        files: CommitFiles,
        limits: Option<&Limits>,
    ) -> Result<Arc<dyn Files>, Error> {
        let mut descent =
            Traversal { above: vec![self.remote.to_string()], count: 0, limits, met: BTreeMap::new() };
        self.below(files, &self.remote, "", &mut descent)
    }

    /// Keeps the submodules that these commits need and forgets the rest. If that is unknown, all are kept. The mirror of one that none of
    /// them has is removed in the next life of the agent.
    pub(super) fn keep(&self, mirror: &Arc<Mirror>, commits: &BTreeSet<ObjectId>) {
        let mut descent =
            Traversal { above: vec![self.remote.to_string()], count: 0, limits: None, met: BTreeMap::new() };
        for commit in commits {
            descent.count = 0;
            let files = CommitFiles::open(Arc::clone(mirror), *commit);
            let Ok(Ok(_)) = files.map(|it| self.below(it, &self.remote, "", &mut descent)) else { return };
        }
        let open = self.opened();
        for (address, module) in open.iter() {
            let wanted = descent.met.get(address).cloned().unwrap_or_default();
            let kept = module.mirror.repository().and_then(|repo| match repo {
                Some(repo) => history::keep(&repo, &wanted),
                None => Ok(()),
            });
            if let Err(damage) = kept {
                tracing::warn!(address, %damage, "could not forget old commits of a submodule");
            }
        }
        if commits.is_empty() {
            return;
        }
        // Those of earlier lives of the agent.
        let needed: BTreeSet<PathBuf> =
            open.keys().chain(descent.met.keys()).map(|address| self.mirror_of(address)).collect();
        for mirror in unused_mirrors::mirrors_in(&self.folder) {
            if !needed.contains(&mirror) {
                unused_mirrors::remove(&mirror);
            }
        }
    }

    /// The mirror of the submodule with this address.
    fn mirror_of(&self, address: &str) -> PathBuf {
        self.folder.join(&digest_hex(address.as_bytes())[..16])
    }

    fn below(
        &self,
        files: CommitFiles,
        remote: &RepoUrl,
        at: &str,
        descent: &mut Traversal<'_>,
    ) -> Result<Arc<dyn Files>, Error> {
        let mut modules: BTreeMap<String, Arc<dyn Files>> = BTreeMap::new();
        for PinnedSubmodule { path, remote, commit } in pinned(&files, remote, at)? {
            let place = join(at, &path);
            if let RepoUrl::Local(path) = &remote {
                self.check_path(path).map_err(|message| refused(&place, message))?;
            }
            let address = remote.to_string();
            if descent.above.contains(&address) {
                return Err(refused(&place, format!("it leads back to {address}, which contains it")));
            }
            descent.count += 1;
            if descent.above.len() > MAX_DEPTH || descent.count > MAX_SUBMODULES {
                let message = format!(
                    "there are more than {MAX_SUBMODULES} submodules, or they are nested more than {MAX_DEPTH} deep"
                );
                return Err(refused(&place, message));
            }
            descent.met.entry(address.clone()).or_default().insert(commit);
            let inner = self.files_of(&place, &remote, commit, descent.limits)?;
            descent.above.push(address);
            let inner = self.below(inner, &remote, &place, descent);
            descent.above.pop();
            modules.insert(path, inner?);
        }
        if modules.is_empty() {
            Ok(Arc::new(files))
        } else {
            Ok(Arc::new(FilesWithSubmodules { files, modules }))
        }
    }

    /// Whether a submodule may be at this path of the machine. The error is a sentence.
    fn check_path(&self, path: &Path) -> Result<(), String> {
        let shown = path.display();
        let found = path
            .canonicalize()
            .map_err(|error| format!("there is no such repository as `{shown}` on this machine: {error}"))?;
        let mirrors = self.options.mirror.parent().and_then(|folder| folder.canonicalize().ok());
        let is_below = |folder: &PathBuf| folder.canonicalize().is_ok_and(|folder| found.starts_with(folder));
        let is_mirror = mirrors.is_some_and(|folder| found.starts_with(folder));
        if !is_mirror && self.options.submodule_paths.iter().any(is_below) {
            return Ok(());
        }
        Err(format!(
            "it is the repository `{shown}` of this machine, which the configuration does not allow; add its folder to \
             `submodulePaths` of the repository"
        ))
    }

    fn files_of(
        &self,
        place: &str,
        remote: &RepoUrl,
        commit: ObjectId,
        limits: Option<&Limits>,
    ) -> Result<CommitFiles, Error> {
        let module = self.module(remote).map_err(|problem| problem.during(doing(place)))?;
        module.ensure(place, commit, limits)?;
        CommitFiles::open(Arc::clone(&module.mirror), commit).map_err(|damage| damaged(place, &damage))
    }

    fn module(&self, remote: &RepoUrl) -> Result<Arc<Submodule>, Problem> {
        let address = remote.to_string();
        let mut open = self.opened();
        if let Some(module) = open.get(&address) {
            return Ok(Arc::clone(module));
        }
        let path = self.mirror_of(&address);
        let RepositoryOptions { credentials, ca_file, proxy, clone_pause, clock, .. } = &self.options;
        let reach = ConnectOptions { ca_file: ca_file.as_deref(), proxy, mirror: &path };
        let client = RemoteClient::new(remote.clone(), credentials.clone(), reach, *clock)?;
        let (mirror, lock) = Mirror::open(path.clone())?;
        let module = Arc::new(Submodule {
            client,
            history: self.history,
            mirror: Arc::new(mirror),
            verified: Mutex::default(),
            clone_pause: *clone_pause,
            recloned_at: Mutex::default(),
            _lock: lock,
        });
        open.insert(address, Arc::clone(&module));
        Ok(module)
    }

    fn opened(&self) -> MutexGuard<'_, BTreeMap<String, Arc<Submodule>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Submodule {
    /// Makes sure that a commit is in the mirror and readable.
    fn ensure(&self, place: &str, commit: ObjectId, limits: Option<&Limits>) -> Result<(), Error> {
        // A reader has met damage since: all is examined again.
        if self.mirror.take_suspicion().is_some() {
            self.verified().clear();
        }
        let present = match self.mirror.repository() {
            Ok(Some(repo)) if repo.object_hash() == commit.kind() => Some(repo),
            Ok(_) | Err(_) => None,
        };
        if let Some(repo) = &present
            && history::has_commit(repo, commit)
            && (self.verified().contains(&commit) || history::verify(repo, commit, None).is_ok())
        {
            self.verified().insert(commit);
            return Ok(());
        }
        let Some(limits) = limits else {
            let message = format!("its commit {commit} has not been fetched yet");
            return Err(Cause::CommitNotFound.error(doing(place), message));
        };
        let spec = spec(commit);
        if let Some(repo) = &present {
            match self.client.receive(limits, repo, self.wanted(&spec), None) {
                Ok(()) => {}
                Err(error) if limits.failure().is_some() || history::verify_all(repo).is_ok() => {
                    return Err(about(place, &error));
                }
                // The mirror is damaged.
                Err(_) => return self.reclone(place, commit, limits),
            }
            let read = self.mirror.repository().and_then(|repo| match repo {
                Some(repo) => history::verify(&repo, commit, None).map(|()| repo),
                None => Err(Damage::new("the mirror has vanished")),
            });
            if let Ok(repo) = read {
                self.verified().insert(commit);
                if repack::is_due(&repo, repack::MANY_PACKS)
                    && let Err(damage) =
                        repack::repack(&repo, &self.mirror.commits_in_use(), limits.interrupt())
                {
                    tracing::warn!(submodule = place, %damage, "could not pack the mirror");
                }
                return Ok(());
            }
        }
        self.reclone(place, commit, limits)
    }

    /// Clones next to the mirror, and puts the clone in its place. A mirror that is damaged again soon is not cloned at each fetch.
    fn reclone(&self, place: &str, commit: ObjectId, limits: &Limits) -> Result<(), Error> {
        let since = self.recloned_at().map(|cloned| cloned.elapsed());
        if let Some(since) = since.filter(|since| *since < self.clone_pause) {
            let message = format!(
                "its mirror is unusable although it was cloned {} s ago; check the disk",
                since.as_secs()
            );
            return Err(Cause::RepositoryDamaged.error(doing(place), message));
        }
        let is_first = matches!(self.mirror.repository(), Ok(None));
        let made = self.replace_mirror(place, commit, limits);
        // An unreadable new clone is as costly to repeat as a mirror that is damaged again.
        let is_damaged = |error: &Error| error.cause == Cause::RepositoryDamaged;
        if !is_first && made.is_ok() || made.as_ref().is_err_and(is_damaged) {
            *self.recloned_at() = Some(Instant::now());
        }
        made
    }

    fn replace_mirror(&self, place: &str, commit: ObjectId, limits: &Limits) -> Result<(), Error> {
        let kept = match self.mirror.repository() {
            Ok(Some(repo)) => history::kept(&repo).unwrap_or_default(),
            Ok(None) | Err(_) => BTreeSet::new(),
        };
        let new = self.mirror.create_replacement(commit.kind()).map_err(|it| damaged(place, &it))?;
        self.client
            .receive(limits, &new, self.wanted(&spec(commit)), None)
            .map_err(|error| about(place, &error))?;
        let read = self.mirror.replacement().and_then(|repo| history::verify(&repo, commit, None));
        read.map_err(|it| damaged(place, &it))?;
        for old in kept.into_iter().filter(|it| *it != commit && it.kind() == commit.kind()) {
            if self.client.receive(limits, &new, self.wanted(&spec(old)), None).is_err() {
                tracing::warn!(submodule = place, commit = %old, "an old commit of a submodule was lost");
            }
        }
        self.mirror.swap().map_err(|it| damaged(place, &Damage::of_disk("put it in place", &it)))?;
        self.verified().insert(commit);
        Ok(())
    }

    fn wanted<'a>(&self, spec: &'a str) -> Wanted<'a> {
        Wanted { spec, history: self.history }
    }

    fn verified(&self) -> MutexGuard<'_, BTreeSet<ObjectId>> {
        self.verified.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn recloned_at(&self) -> MutexGuard<'_, Option<Instant>> {
        self.recloned_at.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl FilesWithSubmodules {
    /// The submodule that contains a path, and the path inside it.
    fn module<'a>(&self, path: &'a str) -> Option<(&Arc<dyn Files>, &'a str)> {
        self.modules.iter().find_map(|(place, files)| {
            let rest = path.strip_prefix(place.as_str())?;
            if rest.is_empty() { Some((files, "")) } else { Some((files, rest.strip_prefix('/')?)) }
        })
    }
}

impl Files for FilesWithSubmodules {
    fn entry(&self, path: &str) -> Result<Option<Entry>, ReadError> {
        match self.module(path) {
            Some((files, rest)) => files.entry(rest),
            None => self.files.entry(path),
        }
    }

    fn list(&self, folder: &str) -> Result<Vec<(String, Entry)>, ReadError> {
        if let Some((files, rest)) = self.module(folder) {
            return files.list(rest);
        }
        let mut entries = self.files.list(folder)?;
        for (name, entry) in &mut entries {
            if *entry == Entry::Submodule && self.modules.contains_key(&join(folder, name)) {
                *entry = Entry::Folder;
            }
        }
        Ok(entries)
    }

    fn links(&self, folder: &str) -> Result<BTreeMap<String, String>, ReadError> {
        match self.module(folder) {
            Some((files, rest)) => files.links(rest),
            None => self.files.links(folder),
        }
    }

    fn read(&self, path: &str, limit: u64) -> Result<Arc<[u8]>, ReadError> {
        match self.module(path) {
            Some((files, rest)) => files.read(rest, limit),
            None => self.files.read(path, limit),
        }
    }

    fn id(&self, path: &str) -> Result<Option<String>, ReadError> {
        match self.module(path) {
            Some((files, rest)) => files.id(rest),
            None => self.files.id(path),
        }
    }

    fn ignored(&self, folder: &str) -> Result<Vec<String>, ReadError> {
        match self.module(folder) {
            Some((files, rest)) => files.ignored(rest),
            None => self.files.ignored(folder),
        }
    }

    fn similar(&self, path: &str) -> Result<Option<String>, ReadError> {
        let Some((files, rest)) = self.module(path) else { return self.files.similar(path) };
        let place = path.strip_suffix(rest).unwrap_or_default().trim_end_matches('/');
        Ok(files.similar(rest)?.map(|found| join(place, &found)))
    }

    fn is_encrypted(&self, _: &str) -> bool {
        false
    }
}

/// The submodules in a commit's `.gitmodules` that the commit pins.
fn pinned(files: &CommitFiles, remote: &RepoUrl, at: &str) -> Result<Vec<PinnedSubmodule>, Error> {
    let wrong = |message: String| refused(&join(at, LIST), message);
    let bytes = match files.read(LIST, LONGEST_LIST) {
        Ok(bytes) => bytes,
        Err(ReadError::Missing(_)) => return Ok(Vec::new()),
        Err(error) => return Err(wrong(error.to_string())),
    };
    let text = std::str::from_utf8(&bytes).map_err(|_| wrong("it is not text in UTF-8".into()))?;
    let list = gix::config::File::from_str(text).map_err(|_| wrong("it is not in Git's format".into()))?;
    let mut pinned = Vec::new();
    for section in list.sections_by_name("submodule").into_iter().flatten() {
        let (Some(path), Some(url)) = (section.value("path"), section.value("url")) else { continue };
        let (path, url) = (path.to_string(), url.to_string());
        let path = path.trim_end_matches('/').to_owned();
        if path.is_empty() || path.split('/').any(|it| matches!(it, "" | "." | "..")) {
            return Err(wrong("a submodule's path leaves the repository".into()));
        }
        let commit = files.gitlink(&path).map_err(|error| wrong(error.to_string()))?;
        let Some(commit) = commit else { continue };
        let remote = resolve(remote, &url).map_err(|message| refused(&join(at, &path), message))?;
        pinned.push(PinnedSubmodule { path, remote, commit });
    }
    Ok(pinned)
}

/// Resolves a URL of `.gitmodules` against the outer repository. The error is a sentence.
fn resolve(parent: &RepoUrl, url: &str) -> Result<RepoUrl, String> {
    let remote = if url.starts_with("./") || url.starts_with("../") {
        relative(parent, url).ok_or_else(|| "its relative URL leads above the server's root".to_owned())?
    } else {
        RepoUrl::parse(url).map_err(|error| error.to_string())?
    };
    if is_same_server(parent, &remote) {
        return Ok(remote);
    }
    Err(format!(
        "it is on another server or reached in another way ({}), and the credentials are those of {parent} only; use a \
         relative URL in `{LIST}`, or leave submodules off",
        place_of(&remote)
    ))
}

fn relative(parent: &RepoUrl, url: &str) -> Option<RepoUrl> {
    let path_of = |path: &str| -> Option<String> {
        let mut parts: Vec<&str> = path.trim_end_matches('/').split('/').collect();
        for part in url.split('/') {
            match part {
                "" | "." => {}
                ".." => {
                    parts.pop().filter(|it| !it.is_empty())?;
                }
                other => parts.push(other),
            }
        }
        Some(parts.join("/"))
    };
    Some(match parent {
        RepoUrl::Http(base) => {
            let mut url = base.clone();
            url.set_path(&path_of(base.path())?);
            RepoUrl::Http(url)
        }
        RepoUrl::Ssh { user, host, port, path } => {
            RepoUrl::Ssh { user: user.clone(), host: host.clone(), port: *port, path: path_of(path)? }
        }
        RepoUrl::Local(path) => RepoUrl::Local(Path::new(&path_of(path.to_str()?)?).to_owned()),
    })
}

fn is_same_server(one: &RepoUrl, other: &RepoUrl) -> bool {
    match (one, other) {
        (RepoUrl::Http(one), RepoUrl::Http(other)) => one.origin() == other.origin(),
        (
            RepoUrl::Ssh { user, host, port, path: _ },
            RepoUrl::Ssh { user: other_user, host: other_host, port: other_port, path: _ },
        ) => {
            let is_same_port = port.unwrap_or(22) == other_port.unwrap_or(22);
            user == other_user && host.eq_ignore_ascii_case(other_host) && is_same_port
        }
        (RepoUrl::Local(_), RepoUrl::Local(_)) => true,
        _ => false,
    }
}

/// The server, without the path.
fn place_of(remote: &RepoUrl) -> String {
    match remote {
        RepoUrl::Http(url) => url.origin().ascii_serialization(),
        RepoUrl::Ssh { host, .. } => format!("ssh://{host}"),
        RepoUrl::Local(_) => "a local path".to_owned(),
    }
}

fn spec(commit: ObjectId) -> String {
    format!("+{commit}:{}", history::keep_name(commit))
}

fn doing(place: &str) -> String {
    format!("read the submodule `{place}`")
}

fn refused(place: &str, message: String) -> Error {
    Cause::SubmoduleRefused.error(doing(place), message)
}

fn damaged(place: &str, damage: &Damage) -> Error {
    damage.cause.error(doing(place), damage.to_string())
}

/// The same error, for the submodule.
fn about(place: &str, error: &Error) -> Error {
    let Error { cause, retry_after, .. } = *error;
    Error { cause, retry_after, doing: doing(place), message: error.to_string() }
}

fn join(folder: &str, name: &str) -> String {
    if folder.is_empty() { name.to_owned() } else { format!("{folder}/{name}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resolved(parent: &str, url: &str) -> Result<String, String> {
        resolve(&RepoUrl::parse(parent).unwrap(), url).map(|it| it.to_string())
    }

    #[test]
    fn relative_urls_are_resolved_as_git_does() {
        for (parent, url, wanted) in [
            ("https://h/me/infra.git", "../lib.git", "https://h/me/lib.git"),
            ("https://h/me/infra.git/", "../../you/lib", "https://h/you/lib"),
            ("https://h/me/infra", "./lib", "https://h/me/infra/lib"),
            ("git@h:me/infra.git", "../lib.git", "git@h:me/lib.git"),
            ("ssh://git@h:2222/srv/infra.git", "../lib.git", "ssh://git@h:2222/srv/lib.git"),
            ("/srv/git/infra.git", "../lib.git", "/srv/git/lib.git"),
            ("https://h/me/infra", "https://H:443/other", "https://h/other"),
            ("ssh://git@h/me/infra", "git@h:other", "git@h:other"),
        ] {
            assert_eq!(resolved(parent, url).as_deref(), Ok(wanted), "{parent} {url}");
        }
        assert!(resolved("https://h/infra", "../../x").is_err());
    }

    #[test]
    fn submodules_on_other_servers_are_refused() {
        for (parent, url) in [
            ("https://h/me/infra", "https://evil.example/x"),
            ("https://h/me/infra", "https://h:8443/x"),
            ("https://h/me/infra", "http://h/x"),
            ("https://h/me/infra", "git@h:x"),
            ("https://h/me/infra", "/etc/x"),
            ("https://h/me/infra", "file:///etc/x"),
            ("ssh://git@h/me/infra", "ssh://root@h/x"),
            ("ssh://git@h/me/infra", "-oProxyCommand=id:x"),
            ("https://h/me/infra", "https://me:hunter2@h/x"),
        ] {
            assert!(resolved(parent, url).is_err_and(|it| !it.contains("hunter2")), "{url}");
        }
    }
}
