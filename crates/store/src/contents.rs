//! Files that containers mount, materialised by content: what is at a path never changes, so it cannot change
//! under a running container, and it is still there for a rollback. What an application may write to is in
//! `app_files`. It never looks into what it is given, and never prints it.

use std::{
    collections::BTreeSet,
    fs::{self, DirBuilder, File, OpenOptions, Permissions, TryLockError},
    io::{self, Write},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt, chown, fchown},
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, PoisonError, RwLock,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use super::{Error, StateDir, safe_path};
use driftless_clock::Clock;
use driftless_model::{
    Access, Content, ContentId, ContentTree, Contents, InPlace, MountSource, Stack, Workload,
};

/// Names of what is being written begin with this; the next start clears it away.
const UNFINISHED: &str = ".new-";

/// Where materialised files and the applications' own folders are. Cheap to clone; its methods wait for the
/// disk, so call them where that is allowed.
#[derive(Clone, Debug)]
pub struct ContentDir {
    contents: PathBuf,
    secrets: PathBuf,
    pub(super) applications: PathBuf,
    clock: Clock,
    shared: Arc<Shared>,
}

/// What clones have in common, for applications are prepared side by side.
#[derive(Debug, Default)]
struct Shared {
    /// Taken with the first secret: two agents must not clear away each other's secrets.
    secrets_lock: Mutex<Option<File>>,
    /// Written to by [`ContentDir::collect`], so that nothing is collected that is being asked for.
    collecting: RwLock<()>,
    /// Tells apart what is being written at the same time.
    writes: AtomicU64,
}

/// Who may know a content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Visibility {
    /// On the disk, in the state directory.
    Public,
    /// In memory alone, in the runtime directory.
    Secret,
}

impl Visibility {
    pub(super) fn of(file: &InPlace) -> Self {
        if file.secret { Self::Secret } else { Self::Public }
    }
}

impl ContentDir {
    /// `runtime_dir` is touched only once there is a secret; then it must be on a memory file system.
    pub fn open(state: &StateDir, runtime_dir: &Path, clock: Clock) -> Result<Self, Error> {
        let dir = Self {
            contents: state.contents(),
            secrets: runtime_dir.join("secrets"),
            applications: state.applications(),
            clock,
            shared: Arc::default(),
        };
        create_closed(&dir.contents)?;
        create_closed(&dir.applications)?;
        clear_unfinished(&dir.contents)?;
        Ok(dir)
    }

    /// Where a content is, or will be once it is materialised: the source of a bind mount.
    pub fn path(&self, id: &ContentId, visibility: Visibility) -> PathBuf {
        self.folder(visibility).join(&id.0)
    }

    /// The folder in which [`ContentDir::path`] lies.
    pub fn folder(&self, visibility: Visibility) -> &Path {
        match visibility {
            Visibility::Public => &self.contents,
            Visibility::Secret => &self.secrets,
        }
    }

    /// All that the mounts of a stack need, before anything of it is started: public and secret contents,
    /// tracked files in the application's folder, and the folders it mounts. What is on the disk already need
    /// not be in `contents`, so that a rollback works without Git.
    pub fn prepare(&self, stack: &Stack, contents: &Contents) -> Result<(), Error> {
        for id in stack.app_files.values() {
            self.provide(id, contents, Visibility::Public)?;
        }
        self.sync_app_files(&stack.app, &stack.app_files, contents)?;
        for workload in stack.workloads.values() {
            match self.prepare_one(stack, workload, contents) {
                // What a CronJob began with an older commit may want what is nowhere any more: then it alone cannot run.
                Err(Error::NoSuchContent { .. }) if is_run(workload) => {}
                prepared => prepared?,
            }
        }
        Ok(())
    }

    fn prepare_one(&self, stack: &Stack, workload: &Workload, contents: &Contents) -> Result<(), Error> {
        for id in &workload.pull_secrets {
            self.provide(id, contents, Visibility::Secret)?;
        }
        for mount in workload.containers().flat_map(|it| &it.mounts) {
            match &mount.source {
                MountSource::Content(id) => self.provide(id, contents, Visibility::Public)?,
                MountSource::Secret(id) => self.provide(id, contents, Visibility::Secret)?,
                MountSource::AppFolder(path) => self.ensure_app_folder(&stack.app, path)?,
                // Each instance has its own, which is written when it is its turn.
                MountSource::InPlace { .. }
                | MountSource::Volume { .. }
                | MountSource::Anonymous
                | MountSource::Image(_)
                | MountSource::Empty
                | MountSource::Bind { .. }
                | MountSource::Tmpfs { .. } => {}
            }
        }
        for file in workload.in_place.values() {
            self.provide(&file.content, contents, Visibility::of(file))?;
        }
        Ok(())
    }

    /// Writes what is not there yet. A crash leaves no half one.
    pub fn materialise(&self, contents: &Contents, visibility: Visibility) -> Result<(), Error> {
        contents.keys().try_for_each(|id| self.provide(id, contents, visibility))
    }

    /// Removes what is in none of `in_use` and was not asked for within `age`. Returns how many.
    pub fn collect(&self, in_use: &BTreeSet<ContentId>, age: Duration) -> Result<usize, Error> {
        let _alone = self.shared.collecting.write().unwrap_or_else(PoisonError::into_inner);
        let mut removed = self.collect_in(&self.contents, in_use, age)?;
        if self.secrets.exists() {
            self.open_secrets()?;
            removed += self.collect_in(&self.secrets, in_use, age)?;
        }
        Ok(removed)
    }

    /// What a public content is, from memory or else from the disk.
    pub(super) fn load(&self, id: &ContentId, contents: &Contents) -> Result<Content, Error> {
        if let Some(content) = contents.get(id) {
            return Ok(content.clone());
        }
        let path = self.path(id, Visibility::Public);
        read_content(&path).map_err(fail("read the materialised file", &path))
    }

    fn provide(&self, id: &ContentId, contents: &Contents, visibility: Visibility) -> Result<(), Error> {
        // It becomes a file's name, so it must be a digest and nothing else.
        if id.0.len() != 64 || !id.0.bytes().all(|it| it.is_ascii_hexdigit()) {
            return Err(Error::NoSuchContent { id: id.clone() });
        }
        if visibility == Visibility::Secret {
            self.open_secrets()?;
        }
        let _together = self.shared.collecting.read().unwrap_or_else(PoisonError::into_inner);
        let path = self.path(id, visibility);
        if fs::symlink_metadata(&path).is_ok() {
            // So that `collect` knows that it was asked for. Failing that, it is only collected too early if
            // nobody writes down within `age` that it is in use.
            return touch(&path, self.now()).or(Ok(()));
        }
        let content = contents.get(id).ok_or_else(|| Error::NoSuchContent { id: id.clone() })?;
        let folder = self.folder(visibility);
        let number = self.shared.writes.fetch_add(1, Ordering::Relaxed);
        let temporary = folder.join(format!("{UNFINISHED}{number}-{}", id.0));
        let written = write_content(&temporary, content)
            .and_then(|()| touch(&temporary, self.now()))
            .and_then(|()| fs::rename(&temporary, &path))
            .and_then(|()| File::open(folder)?.sync_all());
        written.or_else(|source| {
            // What is left of it is in the way of nobody, and the next start clears it away.
            let _ = remove(&temporary);
            // A folder does not take another one's place: somebody else has written the same meanwhile.
            if path.exists() { Ok(()) } else { Err(fail("write the mounted file", &path)(source)) }
        })
    }

    /// Makes the folder of secrets when it is on a memory file system, and an error when it is not.
    pub(super) fn open_secrets(&self) -> Result<(), Error> {
        let mut lock = self.shared.secrets_lock.lock().unwrap_or_else(PoisonError::into_inner);
        if lock.is_some() && self.secrets.is_dir() {
            return Ok(());
        }
        let kind = file_system_of(&self.secrets)?;
        if kind != "tmpfs" && kind != "ramfs" {
            return Err(Error::NotInMemory { path: self.secrets.clone(), kind });
        }
        create_closed(&self.secrets)?;
        let path = self.secrets.join(".lock");
        let file = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(&path);
        let file = file.map_err(fail("open the lock", &path))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(Error::RuntimeInUse { directory: self.secrets.clone() });
            }
            Err(TryLockError::Error(source)) => return Err(fail("lock", &path)(source)),
        }
        clear_unfinished(&self.secrets)?;
        *lock = Some(file);
        Ok(())
    }

    fn collect_in(&self, folder: &Path, in_use: &BTreeSet<ContentId>, age: Duration) -> Result<usize, Error> {
        let oldest = self.now().checked_sub(age).unwrap_or(UNIX_EPOCH);
        let mut removed = 0;
        for entry in fs::read_dir(folder).map_err(fail("list", folder))? {
            let entry = entry.map_err(fail("list", folder))?;
            let Ok(name) = entry.file_name().into_string() else { continue };
            let path = entry.path();
            let modified = entry.metadata().and_then(|it| it.modified()).map_err(fail("look at", &path))?;
            if name.starts_with('.') || in_use.contains(&ContentId(name)) || modified > oldest {
                continue;
            }
            remove(&path).map_err(fail("remove", &path))?;
            removed += 1;
        }
        Ok(removed)
    }

    fn now(&self) -> SystemTime {
        UNIX_EPOCH.checked_add(Duration::from_millis(self.clock.now().0)).unwrap_or(UNIX_EPOCH)
    }
}

fn is_run(workload: &Workload) -> bool {
    workload.job.as_ref().is_some_and(|it| it.cron.is_some())
}

/// Files are readable to all unless something else was asked for, since a container may run as any user; the folder
/// around them is closed.
fn write_content(path: &Path, content: &Content) -> io::Result<()> {
    match content {
        Content::File { bytes, executable } => write_file(path, bytes, Access::of(*executable)),
        Content::Owned { bytes, mode, uid, gid } => {
            write_file(path, bytes, Access::Read)?;
            // The mode comes last: a change of the owner takes its upper bits away.
            chown(path, Some(*uid), Some(*gid))?;
            fs::set_permissions(path, Permissions::from_mode(*mode))
        }
        Content::Folder(tree) => {
            DirBuilder::new().mode(0o755).create(path)?;
            let mut folders = BTreeSet::from([path.to_owned()]);
            for (name, (bytes, access)) in tree {
                let mut file = path.to_owned();
                for part in safe_path::parts(name).map_err(io::Error::other)? {
                    folders.insert(file.clone());
                    file.push(part);
                }
                if let Some(parent) = file.parent() {
                    DirBuilder::new().recursive(true).mode(0o755).create(parent)?;
                }
                write_file(&file, bytes, *access)?;
            }
            folders.iter().try_for_each(|it| File::open(it)?.sync_all())
        }
    }
}

/// The inverse of [`write_content`].
fn read_content(path: &Path) -> io::Result<Content> {
    let found = fs::symlink_metadata(path)?;
    if !found.is_dir() {
        let executable = found.permissions().mode() & 0o111 != 0;
        return Ok(Content::File { bytes: fs::read(path)?.into(), executable });
    }
    let mut tree = ContentTree::new();
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        let name = entry.file_name().into_string().map_err(|_| io::ErrorKind::InvalidData)?;
        match read_content(&entry.path())? {
            Content::File { bytes, executable } => {
                drop(tree.insert(name, (bytes, Access::of(executable))));
            }
            // It is never read as one: who may read a file is of no concern to who copies it.
            Content::Owned { bytes, .. } => drop(tree.insert(name, (bytes, Access::Read))),
            Content::Folder(inner) => {
                tree.extend(inner.into_iter().map(|it| (format!("{name}/{}", it.0), it.1)));
            }
        }
    }
    Ok(Content::Folder(tree))
}

fn write_file(path: &Path, bytes: &[u8], access: Access) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(bytes)?;
    if let Access::Asked { group: Some(group), .. } = access {
        fchown(&file, None, Some(group))?;
    }
    // Not at creation, where the process's umask would narrow it.
    file.set_permissions(Permissions::from_mode(access.mode()))?;
    file.sync_all()
}

fn touch(path: &Path, now: SystemTime) -> io::Result<()> {
    File::open(path)?.set_modified(now)
}

/// A file or a whole folder; nothing there is a success.
pub(super) fn remove(path: &Path) -> io::Result<()> {
    let result = match fs::symlink_metadata(path) {
        Ok(found) if found.is_dir() => fs::remove_dir_all(path),
        Ok(_) => fs::remove_file(path),
        Err(error) => Err(error),
    };
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

fn clear_unfinished(folder: &Path) -> Result<(), Error> {
    for entry in fs::read_dir(folder).map_err(fail("list", folder))? {
        let path = entry.map_err(fail("list", folder))?.path();
        let unfinished =
            path.file_name().is_some_and(|it| it.as_encoded_bytes().starts_with(UNFINISHED.as_bytes()));
        if unfinished {
            remove(&path).map_err(fail("remove", &path))?;
        }
    }
    Ok(())
}

/// A folder that only we may enter. The mounts in containers do not pass through it.
pub(super) fn create_closed(path: &Path) -> Result<(), Error> {
    DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(fail("create", path))?;
    fs::set_permissions(path, Permissions::from_mode(0o700)).map_err(fail("close to others", path))
}

pub(super) fn fail(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Error + use<> {
    let path = path.to_owned();
    move |source| Error::Directory { doing, path, source }
}

/// The type of the file system that a path is on, or will be once it is made.
fn file_system_of(path: &Path) -> Result<String, Error> {
    let existing = path.ancestors().find(|it| it.exists()).unwrap_or(Path::new("/"));
    let existing = existing.canonicalize().map_err(fail("find", existing))?;
    let mounts = Path::new("/proc/self/mounts");
    let text = fs::read_to_string(mounts).map_err(fail("read", mounts))?;
    Ok(mounted_at(&text, &existing))
}

/// Of the mounts above a path the deepest holds it; of two at the same place the later one.
fn mounted_at(mounts: &str, path: &Path) -> String {
    let mut best = (0, "unknown");
    for line in mounts.lines() {
        let mut fields = line.split(' ').skip(1);
        let (Some(place), Some(kind)) = (fields.next(), fields.next()) else { continue };
        let place = place.replace("\\040", " ").replace("\\011", "\t").replace("\\134", "\\");
        let depth = Path::new(&place).components().count();
        if path.starts_with(&place) && depth >= best.0 {
            best = (depth, kind);
        }
    }
    best.1.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_deepest_and_latest_mount_tells_the_file_system() {
        let mounts = "/dev/sda / ext4 rw 0 0\ntmpfs /run tmpfs rw 0 0\n\
                      /dev/sdb /run/my\\040disk xfs rw 0 0\ntmpfs /mnt tmpfs rw 0 0\next /mnt ext4 rw 0 0\n";
        assert_eq!(mounted_at(mounts, Path::new("/run/driftless/secrets")), "tmpfs");
        assert_eq!(mounted_at(mounts, Path::new("/run/my disk/x")), "xfs");
        assert_eq!(mounted_at(mounts, Path::new("/running")), "ext4");
        assert_eq!(mounted_at(mounts, Path::new("/mnt/x")), "ext4");
        assert_eq!(mounted_at("", Path::new("/")), "unknown");
    }
}
