//! The applications' own folders, which their containers write to. Files of the repository are copied there when they
//! change in Git. Other files are never changed.
//!
//! A list outside of the folder, which containers cannot reach, says which files were copied. A file that has left Git
//! is removed only if it is still the copied one. One that only present containers mount, such as those of the version before,
//! stays in the folder and in the list until they are gone. The list is also written before the first copy, so that copies which
//! were interrupted are made again. The content of the folder is not trusted: see [`safe_path`].
//!
//! If a commit changes a file that a container has changed, the version of Git takes its place, and the former one is kept under another name.
//!
//! A file is replaced at once by a rename, but one that is itself mounted is overwritten: the engine mounts its inode, so a running
//! container would not see another file in its place.

use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::OsStr,
    fs::{self, File, OpenOptions, Permissions},
    io::{self, Read, Write},
    os::unix::{
        ffi::OsStrExt,
        fs::{MetadataExt, OpenOptionsExt, PermissionsExt, fchown},
    },
    path::{Path, PathBuf},
    sync::Arc,
};

use rustix::fs::OFlags;

use crate::{
    app_file_change::AppFileChange,
    contents::{ContentDir, Visibility, fail},
    error::Error,
    overwrite::overwrite_bytes,
    safe_path::{self, Folder, OPEN_FOLDER, PathError},
};
use driftless_model::{AppName, Content, ContentId, Contents};
use serde::{Deserialize, Serialize};

/// Opens a named pipe without waiting for its other end. The number is the same on all processors that Docker
/// supports.
pub(crate) const O_NONBLOCK: i32 = 0o4000;

/// The end of the name of an application's list.
const LIST: &str = ".files.json";

/// The largest tracked file: those of an application have at most so many bytes together. A container may have let its copy
/// grow to any size.
const LARGEST: u64 = 64 << 20;

/// The end of the name of a file that a container had changed and a commit has replaced.
const KEPT: &str = ".driftless-kept";

/// The versions of one file that are kept. Then the last one is replaced.
const MOST_KEPT: u32 = 9;

/// The copied files by path.
type Copied = BTreeMap<String, CopiedFile>;

/// The digest of bytes and mode of a copied file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
enum CopiedFile {
    Whole(ContentId),
    /// A copy was begun: the file may have any of these digests.
    Begun(BTreeSet<ContentId>),
}

/// A file of the repository.
struct TrackedFile {
    bytes: Arc<[u8]>,
    executable: bool,
    id: ContentId,
}

impl ContentDir {
    /// The application's own folder, which contains its `AppFolder` mounts.
    pub fn app_folder(&self, app: &AppName) -> PathBuf {
        self.applications.join(app.as_str())
    }

    /// Whether an application has a folder of its own.
    pub fn has_app_folder(&self, app: &AppName) -> bool {
        fs::symlink_metadata(self.app_folder(app)).is_ok()
    }

    /// The applications that have a folder of their own, also those that are gone.
    ///
    /// # Errors
    ///
    /// If the folders cannot be listed.
    pub fn owners_of_app_folders(&self) -> Result<Vec<AppName>, Error> {
        let list = || -> io::Result<Vec<AppName>> {
            let mut owners = Vec::new();
            for entry in fs::read_dir(&self.applications)? {
                let entry = entry?;
                // A link to a folder on another disk is one, too. It is not followed: that disk may not answer.
                let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir() || kind.is_symlink());
                let name = entry.file_name().into_string().ok().filter(|_| is_folder);
                owners.extend(name.map(AppName));
            }
            owners.sort_unstable();
            Ok(owners)
        };
        list().map_err(fail("list the folders of the applications in", &self.applications))
    }

    /// Renames the folder of an application that is gone, for one without a folder that goes on with it. The list of its copies comes
    /// along, so that files which containers have changed stay as they are.
    ///
    /// The folder is the last to be renamed: after a crash in between it is still there, and the call can be repeated.
    ///
    /// # Errors
    ///
    /// If the folder or the list cannot be renamed.
    pub fn rename_app_folder(&self, from: &AppName, to: &AppName) -> Result<(), Error> {
        let list = |app: &AppName| self.applications.join(format!("{app}{LIST}"));
        let rename = || -> io::Result<()> {
            match fs::rename(list(from), list(to)) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                renamed => renamed?,
            }
            File::open(&self.applications)?.sync_all()?;
            let new = self.app_folder(to);
            fs::rename(self.app_folder(from), &new).map_err(|error| match error.kind() {
                io::ErrorKind::ResourceBusy => {
                    let why = format!("a disk is mounted there: mount it at {} instead", new.display());
                    io::Error::new(error.kind(), why)
                }
                _ => error,
            })?;
            File::open(&self.applications)?.sync_all()
        };
        rename().map_err(fail("rename the application's folder", &self.app_folder(from)))
    }

    /// Copies the files that have changed in Git since the last copy, and those that are missing. A file that a container
    /// has changed stays as it is until it changes in Git; then it is kept under another name. A file that has left Git is removed if
    /// it is still the copied one, unless the stack mounts the file itself. Other files are never changed. `mounted` has the paths
    /// that the stack mounts, and `in_use` those that present containers mount: a file there stays as long as the stack has no other
    /// use for its place.
    ///
    /// Of an application that is removed, the list keeps the copies that containers have changed. If it comes back, or another one goes
    /// on with its folder, they are not replaced by what Git had then as well.
    ///
    /// # Errors
    ///
    /// If a file cannot be written, or a path leads out of the folder.
    pub fn sync_app_files(
        &self,
        app: &AppName,
        files: &BTreeMap<String, ContentId>,
        mounted: &BTreeSet<&str>,
        in_use: &BTreeSet<String>,
        contents: &Contents,
    ) -> Result<Vec<AppFileChange>, Error> {
        let list = self.applications.join(format!("{app}{LIST}"));
        let read = read_list(&list).map_err(fail("read the list of copied files", &list))?;
        if files.is_empty() && read.as_ref().is_none_or(Copied::is_empty) {
            return Ok(Vec::new());
        }
        let folder = self.create_app_folder(app)?;
        let tracked = self.tracked(files, contents)?;
        // The list has no path that leads out of the folder.
        for path in tracked.keys() {
            file_parts(path).map_err(path_error(&folder.join(path)))?;
        }
        let is_damaged = read.is_none();
        let before = read.unwrap_or_else(|| self.presumed_copies(&list, &folder, &tracked));
        let begun = begun(&before, &tracked);
        let state = |path: &str| EntryState {
            is_known: begun.get(path).is_some_and(CopiedFile::is_whole),
            is_mounted: mounted.contains(path) || in_use.contains(path),
        };
        let mut unexpected: Vec<AppFileChange> = Vec::new();
        // Before the list says that they are replaced: if one cannot be kept, its commit can be taken back.
        for (path, file) in tracked.iter().filter(|(path, _)| !state(path).is_known) {
            let kept = keep_change(&folder, path, before.get(path), (file, state(path).is_mounted));
            let kept = kept.map_err(path_error(&folder.join(path)))?;
            unexpected.extend(kept.map(|at| AppFileChange::Kept { path: path.clone(), at }));
        }
        if is_damaged || begun != before {
            write_list(&list, &begun)?;
        }
        let is_kept = |path: &str| {
            let is_used = mounted.contains(path) || (is_mounted(path, in_use) && !is_needed(path, mounted));
            is_used && !is_in_the_way(path, &tracked)
        };
        let left = begun.iter().filter(|(path, _)| !tracked.contains_key(*path));
        let (kept, left): (Vec<_>, Vec<_>) = left.partition(|(path, _)| is_kept(path));
        for (path, _) in kept.iter().filter(|(path, _)| mounted.contains(path.as_str())) {
            unexpected.push(AppFileChange::LeftGit { path: (*path).clone() });
        }
        let mounts_nothing = files.is_empty() && mounted.is_empty();
        let mut changed = Copied::new();
        // First of all: a file may be in the way of a folder with the same name, and the other way round.
        for (path, copied) in left {
            let removal = remove_unchanged(&folder, path, copied).map_err(path_error(&folder.join(path)))?;
            if mounts_nothing && removal == CopyRemoval::Changed {
                changed.insert(path.clone(), copied.clone());
            }
            remove_empty_parents(&folder, path, &tracked).map_err(path_error(&folder.join(path)))?;
        }
        for (path, file) in &tracked {
            sync_file(&folder, path, file, state(path)).map_err(path_error(&folder.join(path)))?;
        }
        let kept = kept.into_iter().map(|(path, copied)| (path.clone(), copied.clone()));
        let whole = tracked.into_iter().map(|(path, file)| (path, CopiedFile::Whole(file.id)));
        let copied: Copied = kept.chain(changed).chain(whole).collect();
        if copied != begun {
            write_list(&list, &copied)?;
        }
        Ok(unexpected)
    }

    /// The first of these paths in the application's own folder that is missing although containers mount it: the disk with its files
    /// may not be mounted. What Git has at a path is copied again, unless nothing else is left in the folder either: containers write to
    /// the copies, too.
    pub fn missing_app_folder<'p>(
        &self,
        app: &AppName,
        files: &BTreeMap<String, ContentId>,
        mounted: &BTreeSet<&'p str>,
    ) -> Option<&'p str> {
        let folder = self.app_folder(app);
        let is_missing = |path: &Path| {
            fs::symlink_metadata(path).is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
        };
        let is_empty = fs::read_dir(&folder).map_or_else(
            |error| error.kind() == io::ErrorKind::NotFound,
            |mut entries| entries.next().is_none(),
        );
        let is_copied = |path: &str| files.keys().any(|file| is_within(file, path) || is_within(path, file));
        let mut missing = mounted.iter().copied().filter(|path| is_missing(&folder.join(path)));
        missing.find(|path| is_empty || !is_copied(path))
    }

    /// Creates a folder inside the application's own, for a mount. An existing folder or file stays.
    ///
    /// # Errors
    ///
    /// If the folder cannot be created, or its path leads out of the application's folder.
    pub fn ensure_app_folder(&self, app: &AppName, path: &str) -> Result<(), Error> {
        let folder = self.create_app_folder(app)?;
        let make = || -> Result<(), PathError> {
            let parts = safe_path::parts(path)?;
            let Some((name, parents)) = parts.split_last() else { return Ok(()) };
            let parent = Folder::open(&folder)?.descend(parents)?;
            match fs::symlink_metadata(parent.entry(name)) {
                // The engine would follow a link out of the folder.
                Ok(found) if found.is_symlink() => Err(PathError::Astray(folder.join(path))),
                Ok(_) => Ok(()),
                Err(_) => parent.descend(&[*name]).map(drop),
            }
        };
        make().map_err(path_error(&folder.join(path)))
    }

    fn create_app_folder(&self, app: &AppName) -> Result<PathBuf, Error> {
        let folder = self.app_folder(app);
        let create = || {
            let found = match fs::metadata(&folder) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    fs::create_dir_all(&folder)?;
                    None
                }
                found => Some(found?),
            };
            let agent = fs::metadata(folder.parent().unwrap_or(&folder))?.uid();
            // The umask of the process restricts a new one, or that of an earlier agent. What a container has set stays.
            let is_closed = |found: &fs::Metadata| found.mode() & 0o777 == 0o700 && found.uid() == agent;
            if found.as_ref().is_none_or(is_closed) {
                fs::set_permissions(&folder, Permissions::from_mode(OPEN_FOLDER))?;
            }
            Ok(())
        };
        create().map_err(fail("create the application's folder", &folder))?;
        Ok(folder)
    }

    /// The copied files if their list is damaged. A present file counts as changed by a container, unless it is as Git has it or, as far as
    /// its content is still in the state directory, had it.
    fn presumed_copies(&self, list: &Path, folder: &Path, tracked: &BTreeMap<String, TrackedFile>) -> Copied {
        let (mut copied, mut changed) = (Copied::new(), Vec::new());
        for (path, file) in tracked {
            let other = present_id(folder, path).filter(|found| *found != file.id);
            let earlier = other.clone().filter(|id| self.path(id, Visibility::Public).exists());
            if other.is_some() && earlier.is_none() {
                changed.push(path);
            }
            copied.insert(path.clone(), CopiedFile::Whole(earlier.unwrap_or_else(|| file.id.clone())));
        }
        let list = list.display();
        tracing::warn!(%list, ?changed, "the list of copied files is damaged; files that differ from Git stay as they are until Git changes them the next time: remove a file to get that of Git");
        copied
    }

    /// The files of the repository, with folders resolved into their files.
    fn tracked(
        &self,
        files: &BTreeMap<String, ContentId>,
        contents: &Contents,
    ) -> Result<BTreeMap<String, TrackedFile>, Error> {
        let mut tracked = BTreeMap::new();
        for (path, id) in files {
            match self.load(id, contents)? {
                Content::Owned { bytes, mode, .. } => {
                    tracked.insert(path.clone(), TrackedFile::new(bytes, mode & 0o111 != 0));
                }
                Content::File { bytes, executable } => {
                    tracked.insert(path.clone(), TrackedFile::new(bytes, executable));
                }
                Content::Folder(tree) => {
                    for (name, (bytes, access)) in tree {
                        let path = if path == "." { name } else { format!("{path}/{name}") };
                        tracked.insert(path, TrackedFile::new(bytes, access.is_executable()));
                    }
                }
            }
        }
        Ok(tracked)
    }
}

impl TrackedFile {
    fn new(bytes: Arc<[u8]>, executable: bool) -> Self {
        let id = Content::File { bytes: Arc::clone(&bytes), executable }.id();
        Self { bytes, executable, id }
    }

    fn permissions(&self) -> Permissions {
        Permissions::from_mode(if self.executable { 0o755 } else { 0o644 })
    }
}

impl CopiedFile {
    fn is_whole(&self) -> bool {
        matches!(self, Self::Whole(_))
    }

    /// Whether a file with this digest is the copied one.
    fn may_be(&self, id: &ContentId) -> bool {
        match self {
            Self::Whole(whole) => whole == id,
            Self::Begun(any) => any.contains(id),
        }
    }

    /// The digests of the file once a copy of `next` was begun.
    fn begin(&self, next: &ContentId) -> Self {
        let mut any = match self {
            Self::Whole(whole) if whole == next => return self.clone(),
            Self::Whole(whole) => BTreeSet::from([whole.clone()]),
            Self::Begun(any) => any.clone(),
        };
        any.insert(next.clone());
        Self::Begun(any)
    }
}

/// The list while the tracked files are being copied. Those that have left Git are still in it.
fn begun(before: &Copied, tracked: &BTreeMap<String, TrackedFile>) -> Copied {
    let mut begun = before.clone();
    for (path, TrackedFile { id, .. }) in tracked {
        let next = before
            .get(path)
            .map_or_else(|| CopiedFile::Begun(BTreeSet::from([id.clone()])), |copied| copied.begin(id));
        begun.insert(path.clone(), next);
    }
    begun
}

/// Whether a file is at one of the mounted paths, or in a folder there.
fn is_mounted(file: &str, in_use: &BTreeSet<String>) -> bool {
    in_use.iter().any(|path| is_within(file, path))
}

/// Whether the stack mounts the place of a file that it does not have, or a folder that the file would be in the way of.
fn is_needed(file: &str, mounted: &BTreeSet<&str>) -> bool {
    mounted.iter().any(|path| is_within(file, path) || is_within(path, file))
}

/// Whether a tracked file cannot be written as long as this one is there: one is where the other needs a folder.
fn is_in_the_way(file: &str, tracked: &BTreeMap<String, TrackedFile>) -> bool {
    let mut parents = file.match_indices('/').filter_map(|(end, _)| file.get(..end));
    let mut below = tracked.range(format!("{file}/")..);
    parents.any(|parent| tracked.contains_key(parent))
        || below.next().is_some_and(|(path, _)| is_within(path, file))
}

/// Whether a path is another one, or below it.
fn is_within(path: &str, folder: &str) -> bool {
    let rest = path.strip_prefix(folder);
    folder == "." || rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// The name of a file and the folders that it is in.
fn file_parts(path: &str) -> Result<(&str, Vec<&str>), PathError> {
    let mut parents = safe_path::parts(path)?;
    let name = parents.pop().ok_or(PathError::Outside)?;
    Ok((name, parents))
}

/// The state of a tracked file in the folder.
#[derive(Clone, Copy)]
struct EntryState {
    /// This content was copied before.
    is_known: bool,
    /// The file is itself mounted, and not only a folder with it.
    is_mounted: bool,
}

fn sync_file(folder: &Path, path: &str, tracked: &TrackedFile, state: EntryState) -> Result<(), PathError> {
    let (name, parents) = file_parts(path)?;
    let parent = Folder::open(folder)?.descend(&parents)?;
    let found = fs::symlink_metadata(parent.entry(name)).ok();
    let is_file = found.as_ref().is_some_and(fs::Metadata::is_file);
    if state.is_known && is_file {
        return Ok(());
    }
    if found.as_ref().is_some_and(fs::Metadata::is_dir) {
        parent.remove_empty(name)?;
    }
    let overwritten = if state.is_mounted && is_file { open_inode(&parent.entry(name)) } else { None };
    if let Some(file) = overwritten {
        return overwrite(&file, tracked)
            .map_err(|source| PathError::Io { doing: "write the tracked file", source });
    }
    let temporary = parent.entry(&format!(".driftless-new-{}", tracked.id.0.get(..16).unwrap_or_default()));
    let write = || -> io::Result<()> {
        let _ = fs::remove_file(&temporary);
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&temporary)?;
        file.write_all(&tracked.bytes)?;
        // If a container has changed the owner, the owner stays.
        if let Some(found) = found.as_ref().filter(|found| found.is_file()) {
            fchown(&file, Some(found.uid()), Some(found.gid()))?;
        }
        file.set_permissions(tracked.permissions())?;
        file.sync_all()?;
        // A rename replaces a link without following it.
        fs::rename(&temporary, parent.entry(name))?;
        parent.sync()
    };
    write().map_err(|source| {
        let _ = fs::remove_file(&temporary);
        PathError::Io { doing: "write the tracked file", source }
    })
}

/// Keeps what is at the place of a tracked file under another name, if it is neither the former copy nor the next one. Returns its path.
fn keep_change(
    folder: &Path,
    path: &str,
    copied: Option<&CopiedFile>,
    (next, is_mounted): (&TrackedFile, bool),
) -> Result<Option<String>, PathError> {
    let (name, parents) = file_parts(path)?;
    // Something else may still be in the place of its folder.
    let Ok(Some(parent)) = Folder::open(folder)?.find(&parents) else { return Ok(None) };
    let entry = parent.entry(name);
    let Some(found) = fs::symlink_metadata(&entry).ok().filter(fs::Metadata::is_file) else {
        return Ok(None);
    };
    let bytes = read_bytes(&entry);
    // A start script may have changed its mode.
    let mut ids = bytes.iter().flat_map(|(bytes, _)| [true, false].map(|mode| file_id(bytes, mode)));
    if ids.any(|id| id == next.id || copied.is_some_and(|copied| copied.may_be(&id))) {
        return Ok(None);
    }
    let id = bytes.map(|(bytes, executable)| file_id(&bytes, executable));
    let names = (1..=MOST_KEPT).map(|number| match number {
        1 => format!("{name}{KEPT}"),
        _ => format!("{name}{KEPT}-{number}"),
    });
    let mut last = String::new();
    for kept in names {
        let place = parent.entry(&kept);
        let is_free = match fs::symlink_metadata(&place) {
            // An earlier try kept it.
            Ok(other) if other.ino() == found.ino() || (id.is_some() && read_id(&place) == id) => {
                return Ok(Some(sibling(path, &kept)));
            }
            Ok(_) => false,
            Err(_) => true,
        };
        last = kept;
        if is_free {
            break;
        }
    }
    let place = parent.entry(&last);
    let keep = || -> io::Result<()> {
        let _ = fs::remove_file(&place);
        // The inode of a mounted file is overwritten. Any other one is replaced, and stays under the other name.
        if !is_mounted && fs::hard_link(&entry, &place).is_ok() {
            return parent.sync();
        }
        if found.len() > LARGEST {
            let why = "a container has changed it and it is too large to be kept: move it away, or undo the change in Git";
            return Err(io::Error::other(why));
        }
        // A container may have put a link there since.
        let flags = O_NONBLOCK | OFlags::NOFOLLOW.bits().cast_signed();
        let from = OpenOptions::new().read(true).custom_flags(flags).open(&entry)?;
        let mut to = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&place)?;
        io::copy(&mut from.take(LARGEST), &mut to)?;
        fchown(&to, Some(found.uid()), Some(found.gid()))?;
        to.set_permissions(found.permissions())?;
        to.sync_all()?;
        parent.sync()
    };
    keep().map_err(|source| PathError::Io {
        doing: "keep the version that a container has changed of",
        source,
    })?;
    Ok(Some(sibling(path, &last)))
}

/// The path of another file in the same folder.
fn sibling(path: &str, name: &str) -> String {
    path.rsplit_once('/').map_or_else(|| name.to_owned(), |(folder, _)| format!("{folder}/{name}"))
}

/// Opens a file to overwrite it. `None`: the path has no file, it has another name too, or it cannot be overwritten, such as a
/// program that runs.
fn open_inode(path: &Path) -> Option<File> {
    let no_follow = i32::try_from(OFlags::NOFOLLOW.bits()).ok()?;
    let mut options = OpenOptions::new();
    let file = options.read(true).write(true).custom_flags(O_NONBLOCK | no_follow).open(path).ok()?;
    let found = file.metadata().ok()?;
    (found.is_file() && found.nlink() == 1).then_some(file)
}

/// Overwrites a file. Its owner stays.
fn overwrite(file: &File, tracked: &TrackedFile) -> io::Result<()> {
    overwrite_bytes(file, &tracked.bytes)?;
    file.set_permissions(tracked.permissions())?;
    file.sync_all()
}

/// The end of a copy whose file has left Git.
#[derive(Clone, Copy, PartialEq, Eq)]
enum CopyRemoval {
    /// It is gone, or something else is at its place.
    Gone,
    /// A container has changed it, and it stays.
    Changed,
}

fn remove_unchanged(folder: &Path, path: &str, copied: &CopiedFile) -> Result<CopyRemoval, PathError> {
    let parts = safe_path::parts(path)?;
    let Some((name, parents)) = parts.split_last() else { return Ok(CopyRemoval::Gone) };
    // If its folder was replaced by something else, the file is not the copied one.
    let Ok(Some(parent)) = Folder::open(folder)?.find(parents) else { return Ok(CopyRemoval::Gone) };
    let entry = parent.entry(name);
    if !fs::symlink_metadata(&entry).is_ok_and(|found| found.is_file()) {
        return Ok(CopyRemoval::Gone);
    }
    if !read_id(&entry).is_some_and(|id| copied.may_be(&id)) {
        return Ok(CopyRemoval::Changed);
    }
    fs::remove_file(&entry)
        .map_err(|source| PathError::Io { doing: "remove the file that left Git,", source })?;
    Ok(CopyRemoval::Gone)
}

/// Removes the folders of a file that has left Git which are in the way of a tracked file. One with other files in it stays,
/// and then the tracked file cannot be written.
fn remove_empty_parents(
    folder: &Path,
    path: &str,
    tracked: &BTreeMap<String, TrackedFile>,
) -> Result<(), PathError> {
    let parents: Vec<&str> = path.match_indices('/').filter_map(|(end, _)| path.get(..end)).collect();
    let Some(first) = parents.iter().position(|parent| tracked.contains_key(*parent)) else { return Ok(()) };
    for parent in parents.iter().skip(first).rev() {
        let parts = safe_path::parts(parent)?;
        let Some((name, above)) = parts.split_last() else { continue };
        if let Ok(Some(above)) = Folder::open(folder)?.find(above) {
            let _ = above.remove_empty(name);
        }
    }
    Ok(())
}

/// The digest of a file of the folder. `None` if there is none, or it cannot be read.
fn present_id(folder: &Path, path: &str) -> Option<ContentId> {
    let (name, parents) = file_parts(path).ok()?;
    let parent = Folder::open(folder).ok()?.find(&parents).ok()??;
    let entry = parent.entry(name);
    let is_file = fs::symlink_metadata(&entry).is_ok_and(|found| found.is_file());
    if is_file { read_id(&entry) } else { None }
}

/// The digest of a file. `None` if it is not a readable file, or larger than any tracked one.
fn read_id(path: &Path) -> Option<ContentId> {
    read_bytes(path).map(|(bytes, executable)| file_id(&bytes, executable))
}

fn file_id(bytes: &Arc<[u8]>, executable: bool) -> ContentId {
    Content::File { bytes: Arc::clone(bytes), executable }.id()
}

/// The bytes of a file, and whether it is executable. `None` as for [`read_id`].
fn read_bytes(path: &Path) -> Option<(Arc<[u8]>, bool)> {
    let file = OpenOptions::new().read(true).custom_flags(O_NONBLOCK).open(path).ok()?;
    let found = file.metadata().ok().filter(fs::Metadata::is_file)?;
    if found.len() > LARGEST {
        return None;
    }
    let mut bytes = Vec::new();
    file.take(LARGEST + 1).read_to_end(&mut bytes).ok()?;
    Some((bytes.into(), found.permissions().mode() & 0o111 != 0))
}

/// Whether an entry of `applications` is the list of copied files of an application. No name of an application has a dot.
pub(crate) fn is_list_of_files(name: &OsStr) -> bool {
    name.as_bytes().ends_with(LIST.as_bytes())
}

/// A missing list counts as empty: then all files are copied again, and none is removed. `None`: it is damaged, and does not say any more
/// which files containers may have changed.
fn read_list(path: &Path) -> io::Result<Option<Copied>> {
    match fs::read(path) {
        Ok(bytes) => Ok(serde_json::from_slice(&bytes).ok()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Some(Copied::new())),
        Err(error) => Err(error),
    }
}

fn write_list(path: &Path, copied: &Copied) -> Result<(), Error> {
    let temporary = path.with_extension("new");
    let write = || -> io::Result<()> {
        let mut file =
            OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&temporary)?;
        file.write_all(&serde_json::to_vec(copied)?)?;
        file.sync_all()?;
        fs::rename(&temporary, path)?;
        match path.parent() {
            Some(parent) => File::open(parent)?.sync_all(),
            None => Ok(()),
        }
    };
    write().map_err(fail("write the list of copied files", path))
}

fn path_error(path: &Path) -> impl FnOnce(PathError) -> Error + use<> {
    let path = path.to_owned();
    move |error| match error {
        PathError::Io { doing, source } => Error::Directory { doing, path, source },
        PathError::Outside | PathError::Astray(_) | PathError::InTheWay { .. } => {
            Error::Unsafe { path, why: error.to_string() }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digest_of_a_file_that_has_grown_is_not_computed() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("database");
        fs::write(&path, "seed").unwrap();
        assert_eq!(read_id(&path), Some(Content::file(*b"seed").id()));
        File::options().write(true).open(&path).unwrap().set_len(LARGEST + 1).unwrap();
        assert_eq!(read_id(&path), None);
    }
}
