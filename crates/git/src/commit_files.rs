//! The files of one commit, read lazily from the mirror's objects. There is never a work tree.
//!
//! Follows symbolic links inside the repository. Names that are not UTF-8 do not exist here: no manifest can
//! refer to them.

use std::{
    cell::RefCell,
    collections::BTreeMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use gix::{
    ObjectId,
    bstr::ByteSlice,
    objs::tree::{EntryKind, EntryMode},
};

use super::{
    filtered,
    mirror::{Damage, Mirror, damage},
};
use driftless_files::{Entry, Files, ReadError, similar_path};

/// The files of a commit, or of another tree. Readable as long as this value lives, even during fetches and repacking.
pub(super) struct CommitFiles {
    /// `None`: the tree is in the memory of the handle, which cannot be opened again.
    origin: Option<Origin>,
    /// gix's handle cannot be shared between threads. It is opened again when it fails.
    handle: Mutex<Handle>,
}

/// A commit of a mirror.
struct Origin {
    mirror: Arc<Mirror>,
    commit: ObjectId,
    _in_use: Arc<()>,
}

struct Handle {
    repo: gix::Repository,
    root: ObjectId,
    /// Cached folders: a thousand files of one folder are read one by one.
    folders: RefCell<BTreeMap<ObjectId, Arc<Folder>>>,
}

type Folder = BTreeMap<String, (EntryMode, ObjectId)>;

/// The object at a path, with all links followed.
struct Found {
    mode: EntryMode,
    id: ObjectId,
}

/// Why a path leads to nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Absence {
    Missing,
    /// A link leads out of the repository, or in circles.
    Astray,
    /// It lies inside a submodule, whose files are not here.
    Submodule(String),
}

/// As many as the kernel follows.
const MOST_LINKS: usize = 40;

/// No link's target is longer; see `PATH_MAX`.
const LONGEST_TARGET: u64 = 4096;

/// With the longest targets they are 20 MB.
const MOST_LINKS_OF_FOLDER: usize = 5000;

const MOST_FOLDERS: usize = 64;

impl CommitFiles {
    pub(super) fn open(mirror: Arc<Mirror>, commit: ObjectId) -> Result<Self, Damage> {
        let in_use = mirror.use_commit(commit);
        let handle = Mutex::new(Handle::open(&mirror, commit)?);
        Ok(Self { origin: Some(Origin { mirror, commit, _in_use: in_use }), handle })
    }

    /// The files of a tree that may be in the memory of the repository's handle only.
    pub(super) fn of_tree(repo: gix::Repository, root: ObjectId) -> Self {
        Self { origin: None, handle: Mutex::new(Handle { repo, root, folders: RefCell::default() }) }
    }

    /// The commit that is pinned at a path.
    pub(super) fn gitlink(&self, path: &str) -> Result<Option<ObjectId>, ReadError> {
        self.with(path, |handle| Ok(Ok(handle.find(path)?.filter(|it| it.mode.is_commit()).map(|it| it.id))))
    }

    /// Reads with the current handle, and once more with a new one if that fails: packs are added and removed.
    fn with<T>(
        &self,
        path: &str,
        read: impl Fn(&Handle) -> Result<Result<T, ReadError>, Damage>,
    ) -> Result<T, ReadError> {
        let mut handle: MutexGuard<'_, Handle> = self.handle.lock().unwrap_or_else(PoisonError::into_inner);
        let damaged = |message| Err(ReadError::Damaged { path: path.to_owned(), message });
        let Damage { message, .. } = match read(&handle) {
            Ok(done) => return done,
            Err(damage) => damage,
        };
        let Some(Origin { mirror, commit, .. }) = &self.origin else { return damaged(message) };
        let again = Handle::open(mirror, *commit).and_then(|fresh| {
            *handle = fresh;
            read(&handle)
        });
        again.unwrap_or_else(|Damage { message, .. }| {
            mirror.suspect(message.clone());
            damaged(message)
        })
    }
}

impl Files for CommitFiles {
    fn entry(&self, path: &str) -> Result<Option<Entry>, ReadError> {
        self.with(path, |handle| match handle.find(path)? {
            Some(found) => handle.entry(&found).map(|it| Ok(Some(it))),
            None => Ok(Ok(None)),
        })
    }

    fn list(&self, folder: &str) -> Result<Vec<(String, Entry)>, ReadError> {
        self.with(folder, |handle| handle.list(folder).map(Ok))
    }

    fn links(&self, folder: &str) -> Result<BTreeMap<String, String>, ReadError> {
        self.with(folder, |handle| handle.links(folder))
    }

    fn read(&self, path: &str, limit: u64) -> Result<Arc<[u8]>, ReadError> {
        self.with(path, |handle| handle.read(path, limit))
    }

    fn id(&self, path: &str) -> Result<Option<String>, ReadError> {
        self.with(path, |handle| {
            Ok(Ok(handle
                .find(path)?
                .filter(|it| !it.mode.is_tree())
                .map(|it| format!("{:o} {}", it.mode.value(), it.id))))
        })
    }

    fn ignored(&self, _: &str) -> Result<Vec<String>, ReadError> {
        Ok(Vec::new())
    }

    fn similar(&self, path: &str) -> Result<Option<String>, ReadError> {
        self.with(path, |handle| {
            similar_path(path, |path| Ok(handle.find(path)?.is_some()), |folder| handle.names(folder)).map(Ok)
        })
    }

    fn is_encrypted(&self, _: &str) -> bool {
        false
    }
}

impl fmt::Debug for CommitFiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let commit = self.origin.as_ref().map(|origin| origin.commit);
        f.debug_struct("CommitFiles").field("commit", &commit).finish_non_exhaustive()
    }
}

impl Handle {
    fn open(mirror: &Mirror, commit: ObjectId) -> Result<Self, Damage> {
        let repo = mirror.repository()?;
        let repo = repo.ok_or_else(|| Damage::new("the mirror is not there"))?;
        let root = repo.find_commit(commit).and_then(|it| it.tree_id().map(gix::Id::detach));
        let root = root.map_err(|error| damage(&format!("read the commit {commit}"), &error))?;
        Ok(Self { repo, root, folders: RefCell::default() })
    }

    fn list(&self, folder: &str) -> Result<Vec<(String, Entry)>, Damage> {
        let Some(found) = self.find(folder)? else { return Ok(Vec::new()) };
        if !found.mode.is_tree() {
            return Ok(Vec::new());
        }
        let mut entries = Vec::new();
        for (name, (mode, id)) in self.folder(found.id)?.iter() {
            let found = if mode.is_link() {
                self.find(&join(folder, name))?
            } else {
                Some(Found { mode: *mode, id: *id })
            };
            if let Some(found) = found {
                entries.push((name.clone(), self.entry(&found)?));
            }
        }
        Ok(entries)
    }

    /// The names in a folder, also those of links that lead nowhere.
    fn names(&self, folder: &str) -> Result<Vec<String>, Damage> {
        let Some(found) = self.find(folder)?.filter(|found| found.mode.is_tree()) else {
            return Ok(Vec::new());
        };
        Ok(self.folder(found.id)?.keys().cloned().collect())
    }

    fn links(&self, folder: &str) -> Result<Result<BTreeMap<String, String>, ReadError>, Damage> {
        let mut links = BTreeMap::new();
        let Some(found) = self.find(folder)?.filter(|it| it.mode.is_tree()) else { return Ok(Ok(links)) };
        for (name, (_, id)) in self.folder(found.id)?.iter().filter(|(_, (mode, _))| mode.is_link()) {
            // A target that is no text, or too long to be one, leads nowhere; `list` does not show it either.
            if self.size(*id)? > LONGEST_TARGET {
                continue;
            }
            if let Ok(target) = String::from_utf8(self.object(*id)?) {
                links.insert(name.clone(), target);
            }
            // One object can be the target of every link of a folder.
            if links.len() > MOST_LINKS_OF_FOLDER {
                return Ok(Err(ReadError::TooMany { path: folder.to_owned(), limit: MOST_LINKS_OF_FOLDER }));
            }
        }
        Ok(Ok(links))
    }

    fn read(&self, path: &str, limit: u64) -> Result<Result<Arc<[u8]>, ReadError>, Damage> {
        let path = path.to_owned();
        let found = match self.walk(&path)? {
            Ok(found) => found,
            Err(Absence::Missing) => return Ok(Err(ReadError::Missing(path))),
            Err(Absence::Astray) => return Ok(Err(ReadError::Astray(path))),
            Err(Absence::Submodule(module)) => return Ok(Err(ReadError::Submodule { path, module })),
        };
        match self.entry(&found)? {
            Entry::Submodule => Ok(Err(ReadError::Submodule { module: path.clone(), path })),
            Entry::Folder => Ok(Err(ReadError::Folder(path))),
            Entry::File { size, executable: _ } if size > limit => {
                Ok(Err(ReadError::TooLarge { path, size, limit }))
            }
            Entry::File { .. } => {
                let bytes = self.object(found.id)?;
                Ok(filtered::check(&path, &bytes).map(|()| Arc::from(bytes)))
            }
        }
    }

    fn entry(&self, found: &Found) -> Result<Entry, Damage> {
        Ok(match found.mode.kind() {
            EntryKind::Tree => Entry::Folder,
            EntryKind::Commit => Entry::Submodule,
            EntryKind::Blob | EntryKind::Link => {
                Entry::File { size: self.size(found.id)?, executable: false }
            }
            EntryKind::BlobExecutable => Entry::File { size: self.size(found.id)?, executable: true },
        })
    }

    /// The object at a path; `None` if there is none.
    fn find(&self, path: &str) -> Result<Option<Found>, Damage> {
        Ok(self.walk(path)?.ok())
    }

    /// Walks a path from the root, following links. What leaves the repository, or goes in circles, does not
    /// exist.
    fn walk(&self, path: &str) -> Result<Result<Found, Absence>, Damage> {
        let root = || Found { mode: EntryKind::Tree.into(), id: self.root };
        let mut to_do: Vec<String> = path.rsplit('/').map(str::to_owned).collect();
        // The current path below the root: the name and tree of each folder.
        let mut inside: Vec<(String, Found)> = Vec::new();
        let mut links = 0;
        while let Some(name) = to_do.pop() {
            match name.as_str() {
                "" | "." => continue,
                ".." => {
                    if inside.pop().is_none() {
                        return Ok(Err(Absence::Astray));
                    }
                    continue;
                }
                _ => {}
            }
            let folder = inside.last().map_or_else(root, |(_, it)| Found { mode: it.mode, id: it.id });
            if folder.mode.is_commit() {
                let names: Vec<&str> = inside.iter().map(|(name, _)| name.as_str()).collect();
                return Ok(Err(Absence::Submodule(names.join("/"))));
            }
            if !folder.mode.is_tree() {
                return Ok(Err(Absence::Missing));
            }
            let Some((mode, id)) = self.folder(folder.id)?.get(&name).copied() else {
                return Ok(Err(Absence::Missing));
            };
            if !mode.is_link() {
                inside.push((name, Found { mode, id }));
                continue;
            }
            links += 1;
            if links > MOST_LINKS || self.size(id)? > LONGEST_TARGET {
                return Ok(Err(Absence::Astray));
            }
            let target = self.object(id)?;
            let Ok(target) = target.to_str() else { return Ok(Err(Absence::Missing)) };
            if target.starts_with('/') {
                return Ok(Err(Absence::Astray));
            }
            to_do.extend(target.rsplit('/').map(str::to_owned));
        }
        Ok(Ok(inside.pop().map_or_else(root, |(_, it)| it)))
    }

    fn folder(&self, id: ObjectId) -> Result<Arc<Folder>, Damage> {
        if let Some(folder) = self.folders.borrow().get(&id) {
            return Ok(Arc::clone(folder));
        }
        let failed = |error: gix::Error| damage(&format!("read the folder {id}"), &error);
        let tree = self.repo.find_tree(id).map_err(failed)?;
        let mut folder = Folder::new();
        for entry in tree.iter() {
            let entry = entry.map_err(failed)?;
            if let Ok(name) = entry.filename().to_str() {
                folder.insert(name.to_owned(), (entry.mode(), entry.object_id()));
            }
        }
        let folder = Arc::new(folder);
        let mut folders = self.folders.borrow_mut();
        if folders.len() >= MOST_FOLDERS {
            folders.clear();
        }
        folders.insert(id, Arc::clone(&folder));
        Ok(folder)
    }

    fn size(&self, id: ObjectId) -> Result<u64, Damage> {
        let header = self.repo.find_header(id);
        header.map(|it| it.size()).map_err(|error| damage(&format!("read the file {id}"), &error))
    }

    fn object(&self, id: ObjectId) -> Result<Vec<u8>, Damage> {
        let object = self.repo.find_object(id);
        object.map(|it| it.detach().data).map_err(|error| damage(&format!("read the file {id}"), &error))
    }
}

fn join(folder: &str, name: &str) -> String {
    if folder.is_empty() { name.to_owned() } else { format!("{folder}/{name}") }
}
