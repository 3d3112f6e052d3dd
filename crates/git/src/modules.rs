//! Submodules: files of other repositories, at the commits that a commit pins.
//!
//! Each of them has a mirror of its own. Only repositories of the same server, reached in the same way, are
//! followed: nobody agreed to send credentials elsewhere. What is read is pinned by its id, so a signature over
//! the commit above covers it; no branch is ever followed. Links do not lead from one repository to another.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    str::FromStr,
    sync::{Arc, Mutex, PoisonError},
};

use gix::ObjectId;

use super::{
    Error, Options, Remote,
    bound::Bound,
    collect, history,
    mirror::{Damage, Lock, Mirror},
    parse_url,
    tree::CommitFiles,
    wire::{Reach, Wire},
};
use driftless_files::{Entry, Files, ReadError};
use driftless_model::digest_hex;

/// All submodules of one repository, whatever commit names them.
pub(super) struct Modules {
    remote: Remote,
    options: Options,
    folder: PathBuf,
    open: Mutex<BTreeMap<String, Arc<Module>>>,
}

/// One repository that is somewhere a submodule.
struct Module {
    wire: Wire,
    mirror: Arc<Mirror>,
    /// Commits that were read in full since the start.
    verified: Mutex<BTreeSet<ObjectId>>,
    _lock: Lock,
}

/// What a commit names: where, which repository, which commit.
struct Pinned {
    path: String,
    remote: Remote,
    commit: ObjectId,
}

/// The files of a commit with those of its submodules in their places.
#[derive(Debug)]
struct WithModules {
    files: CommitFiles,
    modules: BTreeMap<String, Arc<dyn Files>>,
}

const LIST: &str = ".gitmodules";
const LONGEST_LIST: u64 = 1 << 20;

/// How deep submodules may be nested, and how many there may be in all.
const DEEPEST: usize = 8;
const MOST: usize = 100;

/// On the way down from the repository itself.
struct Descent<'a> {
    /// The addresses above.
    above: Vec<String>,
    count: usize,
    /// Without one, nothing is fetched.
    bound: Option<&'a Bound>,
    /// What was met, by address.
    met: BTreeMap<String, BTreeSet<ObjectId>>,
}

impl Modules {
    pub(super) fn new(remote: Remote, options: Options) -> Self {
        let mut folder = options.mirror.as_os_str().to_owned();
        folder.push(".modules");
        Self { remote, options, folder: folder.into(), open: Mutex::default() }
    }

    /// Puts all submodules in their places. With `bound` what is missing is fetched.
    pub(super) fn attach(&self, files: CommitFiles, bound: Option<&Bound>) -> Result<Arc<dyn Files>, Error> {
        let mut descent =
            Descent { above: vec![self.remote.to_string()], count: 0, bound, met: BTreeMap::new() };
        self.below(files, &self.remote, "", &mut descent)
    }

    /// Keeps what these commits need and forgets the rest. If that cannot be told, all is kept.
    pub(super) fn keep(&self, mirror: &Arc<Mirror>, commits: &BTreeSet<ObjectId>) {
        let mut descent =
            Descent { above: vec![self.remote.to_string()], count: 0, bound: None, met: BTreeMap::new() };
        for commit in commits {
            descent.count = 0;
            let files = CommitFiles::open(Arc::clone(mirror), *commit);
            let Ok(Ok(_)) = files.map(|it| self.below(it, &self.remote, "", &mut descent)) else { return };
        }
        for (address, module) in self.opened().iter() {
            let wanted = descent.met.get(address).cloned().unwrap_or_default();
            let kept = module.mirror.repository().and_then(|repo| match repo {
                Some(repo) => history::keep(&repo, &wanted),
                None => Ok(()),
            });
            if let Err(damage) = kept {
                tracing::warn!(address, %damage, "could not forget old commits of a submodule");
            }
        }
    }

    fn below(
        &self,
        files: CommitFiles,
        remote: &Remote,
        at: &str,
        descent: &mut Descent<'_>,
    ) -> Result<Arc<dyn Files>, Error> {
        let mut modules: BTreeMap<String, Arc<dyn Files>> = BTreeMap::new();
        for Pinned { path, remote, commit } in pinned(&files, remote, at)? {
            let place = join(at, &path);
            let address = remote.to_string();
            if descent.above.contains(&address) {
                return Err(refused(&place, format!("it leads back to {address}, which it is part of")));
            }
            descent.count += 1;
            if descent.above.len() > DEEPEST || descent.count > MOST {
                let message =
                    format!("there are more than {MOST} submodules, or more than {DEEPEST} in one another");
                return Err(refused(&place, message));
            }
            descent.met.entry(address.clone()).or_default().insert(commit);
            let inner = self.files_of(&place, &remote, commit, descent.bound)?;
            descent.above.push(address);
            let inner = self.below(inner, &remote, &place, descent);
            descent.above.pop();
            modules.insert(path, inner?);
        }
        if modules.is_empty() { Ok(Arc::new(files)) } else { Ok(Arc::new(WithModules { files, modules })) }
    }

    fn files_of(
        &self,
        place: &str,
        remote: &Remote,
        commit: ObjectId,
        bound: Option<&Bound>,
    ) -> Result<CommitFiles, Error> {
        let module = self.module(remote).map_err(|message| refused(place, message))?;
        module.ensure(place, commit, bound)?;
        CommitFiles::open(Arc::clone(&module.mirror), commit).map_err(|damage| damaged(place, &damage))
    }

    fn module(&self, remote: &Remote) -> Result<Arc<Module>, String> {
        let address = remote.to_string();
        let mut open = self.opened();
        if let Some(module) = open.get(&address) {
            return Ok(Arc::clone(module));
        }
        let path = self.folder.join(&digest_hex(address.as_bytes())[..16]);
        let Options { credentials, ca_file, proxy, clock, .. } = &self.options;
        let reach = Reach { ca_file: ca_file.as_deref(), proxy, mirror: &path };
        let wire = Wire::new(remote.clone(), credentials.clone(), reach, *clock)?;
        let (mirror, lock) = Mirror::open(path.clone())?;
        let module =
            Arc::new(Module { wire, mirror: Arc::new(mirror), verified: Mutex::default(), _lock: lock });
        open.insert(address, Arc::clone(&module));
        Ok(module)
    }

    fn opened(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, Arc<Module>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Module {
    /// Sees to it that a commit is here and can be read.
    fn ensure(&self, place: &str, commit: ObjectId, bound: Option<&Bound>) -> Result<(), Error> {
        let present = match self.mirror.repository() {
            Ok(Some(repo)) if repo.object_hash() == commit.kind() => Some(repo),
            Ok(_) | Err(_) => None,
        };
        if let Some(repo) = &present
            && history::has_commit(repo, commit)
            && (self.verified().contains(&commit) || history::verify(repo, commit).is_ok())
        {
            self.verified().insert(commit);
            return Ok(());
        }
        let Some(bound) = bound else {
            return Err(refused(place, format!("its commit {commit} has not been fetched yet")));
        };
        let spec = spec(commit);
        if let Some(repo) = &present {
            match self.wire.receive(bound, repo, &spec) {
                Ok(()) => {}
                Err(error) if bound.failure().is_some() || history::verify_all(repo).is_ok() => {
                    return Err(about(place, &error));
                }
                // The mirror is what is wrong.
                Err(_) => return self.clone_anew(place, commit, bound),
            }
            let read = self.mirror.repository().and_then(|repo| match repo {
                Some(repo) => history::verify(&repo, commit).map(|()| repo),
                None => Err(Damage("the mirror has vanished".into())),
            });
            if let Ok(repo) = read {
                self.verified().insert(commit);
                if collect::is_due(&repo)
                    && let Err(damage) =
                        collect::collect(&repo, &self.mirror.commits_in_use(), bound.interrupt())
                {
                    tracing::warn!(submodule = place, %damage, "could not pack the mirror");
                }
                return Ok(());
            }
        }
        self.clone_anew(place, commit, bound)
    }

    fn clone_anew(&self, place: &str, commit: ObjectId, bound: &Bound) -> Result<(), Error> {
        let kept = match self.mirror.repository() {
            Ok(Some(repo)) => history::kept(&repo).unwrap_or_default(),
            Ok(None) | Err(_) => BTreeSet::new(),
        };
        let new = self.mirror.create_beside(commit.kind()).map_err(|it| damaged(place, &it))?;
        self.wire.receive(bound, &new, &spec(commit)).map_err(|error| about(place, &error))?;
        let read = self.mirror.beside().and_then(|repo| history::verify(&repo, commit));
        read.map_err(|it| damaged(place, &it))?;
        for old in kept.into_iter().filter(|it| *it != commit && it.kind() == commit.kind()) {
            if self.wire.receive(bound, &new, &spec(old)).is_err() {
                tracing::warn!(submodule = place, commit = %old, "an old commit of a submodule was lost");
            }
        }
        self.mirror
            .swap()
            .map_err(|it| damaged(place, &Damage(format!("could not put it in place: {it}"))))?;
        self.verified().insert(commit);
        Ok(())
    }

    fn verified(&self) -> std::sync::MutexGuard<'_, BTreeSet<ObjectId>> {
        self.verified.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl WithModules {
    /// The submodule that a path lies in, and the path from there.
    fn module<'a>(&self, path: &'a str) -> Option<(&Arc<dyn Files>, &'a str)> {
        self.modules.iter().find_map(|(place, files)| {
            let rest = path.strip_prefix(place.as_str())?;
            if rest.is_empty() { Some((files, "")) } else { Some((files, rest.strip_prefix('/')?)) }
        })
    }
}

impl Files for WithModules {
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
}

/// What a commit's `.gitmodules` names, as far as the commit really pins it.
fn pinned(files: &CommitFiles, remote: &Remote, at: &str) -> Result<Vec<Pinned>, Error> {
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
        pinned.push(Pinned { path, remote, commit });
    }
    Ok(pinned)
}

/// The address that `.gitmodules` means, seen from the repository that it is in. The error is a sentence.
fn resolve(parent: &Remote, url: &str) -> Result<Remote, String> {
    let remote = if url.starts_with("./") || url.starts_with("../") {
        relative(parent, url).ok_or_else(|| "its relative URL leads above the server's root".to_owned())?
    } else {
        parse_url(url).map_err(|error| error.to_string())?
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

fn relative(parent: &Remote, url: &str) -> Option<Remote> {
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
        Remote::Http(base) => {
            let mut url = base.clone();
            url.set_path(&path_of(base.path())?);
            Remote::Http(url)
        }
        Remote::Ssh { user, host, port, path } => {
            Remote::Ssh { user: user.clone(), host: host.clone(), port: *port, path: path_of(path)? }
        }
        Remote::Local(path) => Remote::Local(Path::new(&path_of(path.to_str()?)?).to_owned()),
    })
}

fn is_same_server(one: &Remote, other: &Remote) -> bool {
    match (one, other) {
        (Remote::Http(one), Remote::Http(other)) => one.origin() == other.origin(),
        (
            Remote::Ssh { user, host, port, path: _ },
            Remote::Ssh { user: other_user, host: other_host, port: other_port, path: _ },
        ) => {
            let is_same_port = port.unwrap_or(22) == other_port.unwrap_or(22);
            user == other_user && host.eq_ignore_ascii_case(other_host) && is_same_port
        }
        (Remote::Local(_), Remote::Local(_)) => true,
        _ => false,
    }
}

/// The server, without the path.
fn place_of(remote: &Remote) -> String {
    match remote {
        Remote::Http(url) => url.origin().ascii_serialization(),
        Remote::Ssh { host, .. } => format!("ssh://{host}"),
        Remote::Local(_) => "a local path".to_owned(),
    }
}

fn spec(commit: ObjectId) -> String {
    format!("+{commit}:{}", history::keep_name(commit))
}

fn doing(place: &str) -> String {
    format!("read the submodule `{place}`")
}

fn refused(place: &str, message: String) -> Error {
    Error::Rejected { doing: doing(place), message }
}

fn damaged(place: &str, damage: &Damage) -> Error {
    Error::Damaged { doing: doing(place), message: damage.to_string() }
}

/// The same error, told of the submodule.
fn about(place: &str, error: &Error) -> Error {
    let message = error.to_string();
    match error {
        Error::Transient { retry_after, .. } => {
            Error::Transient { doing: doing(place), message, retry_after: *retry_after }
        }
        Error::Rejected { .. } => Error::Rejected { doing: doing(place), message },
        Error::Damaged { .. } => Error::Damaged { doing: doing(place), message },
    }
}

fn join(folder: &str, name: &str) -> String {
    if folder.is_empty() { name.to_owned() } else { format!("{folder}/{name}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resolved(parent: &str, url: &str) -> Result<String, String> {
        resolve(&parse_url(parent).unwrap(), url).map(|it| it.to_string())
    }

    #[test]
    fn relative_addresses_are_those_of_git() {
        for (parent, url, wanted) in [
            ("https://h/me/infra.git", "../lib.git", "https://h/me/lib.git"),
            ("https://h/me/infra.git/", "../../you/lib", "https://h/you/lib"),
            ("https://h/me/infra", "./lib", "https://h/me/infra/lib"),
            ("git@h:me/infra.git", "../lib.git", "ssh://git@h/me/lib.git"),
            ("ssh://git@h:2222/srv/infra.git", "../lib.git", "ssh://git@h:2222/srv/lib.git"),
            ("/srv/git/infra.git", "../lib.git", "/srv/git/lib.git"),
            ("https://h/me/infra", "https://H:443/other", "https://h/other"),
            ("ssh://git@h/me/infra", "git@h:other", "ssh://git@h/other"),
        ] {
            assert_eq!(resolved(parent, url).as_deref(), Ok(wanted), "{parent} {url}");
        }
        assert!(resolved("https://h/infra", "../../x").is_err());
    }

    #[test]
    fn no_other_server_is_asked() {
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
