//! A clone on this machine: any of its commits, read without the network, a work tree or a lock. For previews of changes.
//!
//! It writes nothing, follows no submodule, and knows no credentials.

use std::{
    env,
    path::{Path, PathBuf},
    sync::Arc,
};

use driftless_files::Files;
use gix::{ObjectId, index};

use super::{
    commit_files::CommitFiles,
    commit_source::Checkout,
    credentials::Lookup,
    error::{Cause, Error},
    history,
    index_tree::{self, Conflict},
    mirror::{Damage, Mirror},
    remote_client,
};

/// A clone with or without a work tree, or a folder inside one.
#[derive(Debug)]
pub struct LocalRepository {
    repo: gix::Repository,
    path: PathBuf,
}

impl LocalRepository {
    /// Finds the repository that a folder belongs to.
    pub fn open(folder: &Path) -> Result<Self, Error> {
        let path = folder.to_owned();
        let missing =
            |message: String| Cause::RepositoryNotFound.error(format!("open {}", folder.display()), message);
        let isolated = gix::open::Options::isolated;
        let trust = gix::sec::trust::Mapping { full: isolated(), reduced: isolated() };
        let repo = gix::ThreadSafeRepository::discover_opts(
            folder,
            gix::discover::upwards::Options::default(),
            trust,
        );
        match repo {
            Ok(repo) => Ok(Self { repo: repo.to_thread_local(), path }),
            Err(_) if !folder.is_dir() => Err(missing("there is no such folder".to_owned())),
            Err(error) => Err(missing(format!("it is no Git repository: {error}"))),
        }
    }

    /// The path of the opened folder inside the repository: `sites` of `infra/sites`.
    pub fn prefix(&self) -> String {
        let inside = || {
            let root = self.repo.workdir()?.canonicalize().ok()?;
            let folder = self.path.canonicalize().ok()?;
            folder.strip_prefix(root).ok()?.to_str().map(str::to_owned)
        };
        inside().unwrap_or_default()
    }

    /// The name of the repository: that of its folder, as with a clone.
    pub fn name(&self) -> String {
        let root = self.repo.workdir().unwrap_or(self.repo.path());
        let root = root.canonicalize().unwrap_or_else(|_| root.to_owned());
        let name = root.file_name().map_or_else(|| "root".to_owned(), |it| it.to_string_lossy().into_owned());
        name.strip_suffix(".git").map_or(name.clone(), str::to_owned)
    }

    /// A commit by anything that Git takes for one: a branch, a tag, an id or the beginning of one, `HEAD~2`. A
    /// branch that only the remote `origin` has is found too.
    pub fn commit(&self, revision: &str) -> Result<Checkout, Error> {
        let commit = self.find(revision)?;
        let damaged = |damage: Damage| {
            damage.cause.error(format!("read {revision} in {}", self.path.display()), damage.message)
        };
        let info = history::commit_info(&self.repo, commit).map_err(damaged)?;
        let mirror = Arc::new(Mirror::reading(self.repo.common_dir().to_owned()));
        let files = CommitFiles::open(mirror, commit).map_err(damaged)?;
        Ok(Checkout { commit: info, files: Arc::new(files), rewritten: false, tag: None })
    }

    /// Whether the clone was made without the content of all files, as with `--filter=blob:none`. Git fetches the others when it
    /// needs them; a commit that is read here does not have them.
    pub fn is_partial_clone(&self) -> bool {
        let config = self.repo.config_snapshot();
        let mut remotes = config.plumbing().sections_by_name("remote").into_iter().flatten();
        remotes.any(|remote| remote.value("promisor").is_some())
    }

    /// The root of the work tree; `None` in a bare repository.
    pub fn work_tree(&self) -> Option<&Path> {
        self.repo.workdir()
    }

    /// The files of the next commit, as `git add` has put them together: the index. In a clone without an index they are
    /// those of the checked-out commit. In a hook of Git they are those of the commit that is being made.
    pub fn index(&self, environment: &Lookup) -> Result<Arc<dyn Files>, Error> {
        let unreadable = |error: gix::Error| self.index_damage(Damage::new(remote_client::causes(&error)));
        if let Some(path) = self.index_of_hook(environment) {
            let skip_hash = self.repo.config_snapshot().boolean("index.skipHash").unwrap_or_default();
            let options = index::decode::Options::default();
            let index =
                index::File::at(path, self.repo.object_hash(), skip_hash, options).map_err(unreadable)?;
            return self.files_of_index(&index);
        }
        let Some(index) = self.repo.try_index().map_err(unreadable)? else {
            let no_commit = self.repo.head().is_ok_and(|head| head.is_unborn());
            if !no_commit {
                return Ok(self.commit("HEAD")?.files);
            }
            let repo = self.repo.clone();
            let empty = ObjectId::empty_tree(repo.object_hash());
            return Ok(Arc::new(CommitFiles::of_tree(repo, empty)));
        };
        self.files_of_index(&index)
    }

    /// The index that Git gives to a hook: with `git commit --all` and `git commit FILE` it is another one than that of the
    /// clone, which still has the content of before. It is that of the repository of the current directory.
    fn index_of_hook(&self, environment: &Lookup) -> Option<PathBuf> {
        let named = environment("GIT_INDEX_FILE").filter(|path| !path.is_empty())?;
        let current = Self::open(&env::current_dir().ok()?).ok()?;
        let git_dir = |repository: &Self| repository.repo.git_dir().canonicalize().ok();
        let path = self.repo.workdir()?.join(named);
        (git_dir(&current)? == git_dir(self)? && path.is_file()).then_some(path)
    }

    fn files_of_index(&self, index: &index::State) -> Result<Arc<dyn Files>, Error> {
        let repo = self.repo.clone().with_object_memory();
        let root = index_tree::write_tree(&repo, index).map_err(|damage| self.index_damage(damage))?;
        let root = root.map_err(|Conflict(path)| {
            let message = format!("`{path}` has a merge conflict; resolve it and run `git add`");
            self.index_damage(Damage { cause: Cause::MergeConflict, message })
        })?;
        Ok(Arc::new(CommitFiles::of_tree(repo, root)))
    }

    fn index_damage(&self, damage: Damage) -> Error {
        damage.cause.error(format!("read the index of {}", self.path.display()), damage.message)
    }

    /// The commit at which two lines of history parted.
    pub fn merge_base(&self, one: &str, other: &str) -> Result<String, Error> {
        let (first, second) = (self.find(one)?, self.find(other)?);
        let missing = |message: String| {
            Cause::CommitNotFound.error(format!("find where {one} and {other} parted"), message)
        };
        match self.repo.merge_base(first, second) {
            Ok(Some(base)) => Ok(base.to_string()),
            Ok(None) => Err(missing(
                "they have no commit in common here; in a shallow clone, fetch the whole history".to_owned(),
            )),
            Err(error) => Err(missing(remote_client::causes(&error))),
        }
    }

    fn find(&self, revision: &str) -> Result<ObjectId, Error> {
        let missing = |message: String| {
            Cause::CommitNotFound.error(format!("find `{revision}` in {}", self.path.display()), message)
        };
        let named = |name: &str| {
            let id = self.repo.rev_parse_single(name).ok()?.detach();
            // The oldest commits of a shallow clone name parents that it does not have.
            self.repo.has_object(id).then_some(id)
        };
        let found = named(revision).or_else(|| named(&format!("refs/remotes/origin/{revision}")));
        let id = found.ok_or_else(|| {
            missing(
                "there is no such commit, branch or tag here; a clone for CI may have to fetch it first \
                 (`git fetch origin REF`, or a checkout with more history: `fetch-depth: 2` for `HEAD^1`)"
                    .to_owned(),
            )
        })?;
        let object = self.repo.find_object(id).and_then(|it| it.peel_to_kind(gix::objs::Kind::Commit));
        object.map(|it| it.id).map_err(|error| missing(format!("it is no commit: {error}")))
    }
}
