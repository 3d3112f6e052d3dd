//! Mounted files, stored under the hash of their content. A file at a path never changes, so no running container sees
//! another content, and a rollback finds the old one. Folders that containers write to are in [`super::app_files`].

use std::{
    collections::{BTreeMap, BTreeSet},
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

use crate::{
    app_file_change::AppFileChange,
    error::Error,
    safe_path::{self, OPEN_FOLDER},
    state_dir::StateDir,
};
use driftless_clock::Clock;
use driftless_model::{
    Access, Container, Content, ContentId, ContentTree, Contents, InPlace, MountSource, Stack, Workload,
    WorkloadName,
};

/// The bytes of the largest file that [`ContentDir::secret_lines`] reads.
const LARGEST_LINE: u64 = 1024;

/// The prefix of files that are being written or removed. The next start removes them.
const UNFINISHED: &str = ".new-";

/// The directories of mounted files and of the applications' own folders. It is cheap to clone. Its methods block on the
/// disk.
#[derive(Clone, Debug)]
pub struct ContentDir {
    contents: PathBuf,
    secrets: PathBuf,
    pub(super) applications: PathBuf,
    clock: Clock,
    shared: Arc<Shared>,
}

/// The state that clones share. Several applications are prepared at the same time.
#[derive(Debug, Default)]
struct Shared {
    /// Locked with the first secret, so that two agents do not remove each other's secrets.
    secrets_lock: Mutex<Option<File>>,
    /// Locked by [`ContentDir::remove_unused`], so that no content is removed while it is being asked for.
    cleanup: RwLock<()>,
    /// Makes the names of files that are written or removed at the same time unique.
    writes: AtomicU64,
}

/// Whether a content is a secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Visibility {
    /// On the disk, in the state directory.
    Public,
    /// In memory only, in the runtime directory.
    Secret,
}

impl Visibility {
    pub(super) fn of(file: &InPlace) -> Self {
        if file.secret { Self::Secret } else { Self::Public }
    }

    /// The error about a content that is missing.
    pub(super) fn missing(self, id: &ContentId) -> Error {
        match self {
            Self::Public => Error::NoSuchContent { id: id.clone() },
            Self::Secret => Error::NoSuchSecret { id: id.clone() },
        }
    }
}

/// The secrets of a stack that the host does not have: it keeps them in memory only.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LackingSecrets {
    /// The workloads that lack a mounted secret, each with the first one. They cannot start.
    pub mounted: BTreeMap<WorkloadName, ContentId>,
    /// The logins of registries. Only pulls need them.
    pub logins: BTreeSet<ContentId>,
}

/// The outcome of [`ContentDir::prepare`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Prepared {
    /// The secrets that could not be written.
    pub lacking: LackingSecrets,
    /// The files that users may look for.
    pub changes: Vec<AppFileChange>,
}

impl LackingSecrets {
    /// Whether the host has all secrets.
    pub fn is_empty(&self) -> bool {
        self.mounted.is_empty() && self.logins.is_empty()
    }
}

impl ContentDir {
    /// Opens the directories. `runtime_dir` is used with the first secret, and must then be on a memory file system.
    ///
    /// # Errors
    ///
    /// If a directory cannot be created.
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

    /// The path of a content, written or not: the source of a bind mount.
    pub fn path(&self, id: &ContentId, visibility: Visibility) -> PathBuf {
        self.folder(visibility).join(&id.0)
    }

    /// The folder of [`ContentDir::path`].
    pub fn folder(&self, visibility: Visibility) -> &Path {
        match visibility {
            Visibility::Public => &self.contents,
            Visibility::Secret => &self.secrets,
        }
    }

    /// Writes everything that a stack mounts: public and secret contents, the files of the application's own folder, and the
    /// folders that it mounts. A content that is on the disk need not be in `contents`, so that a rollback works without
    /// Git. `in_use` has the paths in the application's own folder that present containers mount. Workloads that do not mount a
    /// lacking secret can start.
    ///
    /// # Errors
    ///
    /// If another content is missing, or a file cannot be written.
    pub fn prepare(
        &self,
        stack: &Stack,
        contents: &Contents,
        in_use: &BTreeSet<String>,
    ) -> Result<Prepared, Error> {
        for id in stack.app_files.values() {
            self.provide(id, contents, Visibility::Public)?;
        }
        let changes =
            self.sync_app_files(&stack.app, &stack.app_files, &stack.app_folders(), in_use, contents)?;
        let mut lacking = LackingSecrets::default();
        for (name, workload) in &stack.workloads {
            match self.prepare_one(stack, workload, contents) {
                // A run that a CronJob began with an older commit may mount a content that is gone. Only this run cannot
                // start.
                Err(Error::NoSuchContent { .. } | Error::NoSuchSecret { .. }) if is_run(workload) => {}
                Err(Error::NoSuchSecret { id }) => drop(lacking.mounted.insert(name.clone(), id)),
                prepared => prepared?,
            }
            for id in &workload.pull_secrets {
                match self.provide(id, contents, Visibility::Secret) {
                    Err(Error::NoSuchSecret { .. }) if is_run(workload) => {}
                    Err(Error::NoSuchSecret { id }) => {
                        lacking.logins.insert(id);
                    }
                    provided => provided?,
                }
            }
        }
        Ok(Prepared { lacking, changes })
    }

    fn prepare_one(&self, stack: &Stack, workload: &Workload, contents: &Contents) -> Result<(), Error> {
        for path in workload.containers().flat_map(Container::app_folders) {
            self.ensure_app_folder(&stack.app, path)?;
        }
        self.provide_mounted(workload, contents)
    }

    /// Writes the contents that services of an older version mount, which have to stay while the newest version waits. Their paths in the
    /// application's own folder are as the containers left them. Returns the services that lack a secret, each with the first one.
    ///
    /// # Errors
    ///
    /// If a file cannot be written.
    pub fn prepare_older(
        &self,
        services: &BTreeMap<WorkloadName, Workload>,
        contents: &Contents,
    ) -> Result<BTreeMap<WorkloadName, ContentId>, Error> {
        let mut lacking = BTreeMap::new();
        for (name, workload) in services {
            match self.provide_mounted(workload, contents) {
                Err(Error::NoSuchSecret { id }) => drop(lacking.insert(name.clone(), id)),
                // The engine says so when the container is started.
                Err(Error::NoSuchContent { .. }) => {}
                provided => provided?,
            }
        }
        Ok(lacking)
    }

    fn provide_mounted(&self, workload: &Workload, contents: &Contents) -> Result<(), Error> {
        for mount in workload.containers().flat_map(|container| &container.mounts) {
            match &mount.source {
                MountSource::Content(id) => self.provide(id, contents, Visibility::Public)?,
                MountSource::Secret(id) => self.provide(id, contents, Visibility::Secret)?,
                // Each instance has a copy of its own, which a later step writes.
                MountSource::InPlace { .. }
                | MountSource::AppFolder(_)
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

    /// The mounted secrets of these stacks that are one line of text, such as passwords. Those that the host does not
    /// have are left out.
    pub fn secret_lines<'a>(&self, stacks: impl IntoIterator<Item = &'a Stack>) -> BTreeSet<String> {
        let ids: BTreeSet<&ContentId> =
            stacks.into_iter().flat_map(mounted_secrets).filter(|id| is_digest(id)).collect();
        let mut lines = BTreeSet::new();
        for id in ids {
            add_lines(&self.path(id, Visibility::Secret), &mut lines);
        }
        lines
    }

    /// Writes the contents that are not on the disk yet. A crash leaves no half-written one.
    ///
    /// # Errors
    ///
    /// If a content cannot be written.
    pub fn write(&self, contents: &Contents, visibility: Visibility) -> Result<(), Error> {
        contents.keys().try_for_each(|id| self.provide(id, contents, visibility))
    }

    /// Removes the contents that are not in `in_use` and were not asked for within `age`. Returns how many.
    ///
    /// # Errors
    ///
    /// If a content cannot be removed.
    pub fn remove_unused(&self, in_use: &BTreeSet<ContentId>, age: Duration) -> Result<usize, Error> {
        let _exclusive = self.shared.cleanup.write().unwrap_or_else(PoisonError::into_inner);
        let mut removed = self.remove_unused_in(&self.contents, in_use, age)?;
        if self.secrets.exists() {
            self.open_secrets()?;
            removed += self.remove_unused_in(&self.secrets, in_use, age)?;
        }
        Ok(removed)
    }

    /// Loads a public content, from memory or from the disk.
    pub(super) fn load(&self, id: &ContentId, contents: &Contents) -> Result<Content, Error> {
        if let Some(content) = contents.get(id) {
            return Ok(content.clone());
        }
        let path = self.path(id, Visibility::Public);
        read_content(&path).map_err(fail("read the mounted file", &path))
    }

    fn provide(&self, id: &ContentId, contents: &Contents, visibility: Visibility) -> Result<(), Error> {
        if !is_digest(id) {
            return Err(Error::NoSuchContent { id: id.clone() });
        }
        if visibility == Visibility::Secret {
            self.open_secrets()?;
        }
        let _shared = self.shared.cleanup.read().unwrap_or_else(PoisonError::into_inner);
        let path = self.path(id, visibility);
        if fs::symlink_metadata(&path).is_ok() {
            // The time says to `remove_unused` that the content was asked for. A failure is harmless if a revision is
            // stored within `age`.
            let _ = touch(&path, self.now());
            return open_again(&path).map_err(fail("open to all users", &path));
        }
        let content = contents.get(id).ok_or_else(|| visibility.missing(id))?;
        let folder = self.folder(visibility);
        let temporary = self.temporary(folder, id);
        let written = write_content(&temporary, content)
            .and_then(|()| touch(&temporary, self.now()))
            .and_then(|()| fs::rename(&temporary, &path))
            .and_then(|()| File::open(folder)?.sync_all());
        written.or_else(|source| {
            // The next start removes the rest.
            let _ = remove(&temporary);
            // A folder cannot replace a folder: another task has written the same content in the meantime.
            if path.exists() { Ok(()) } else { Err(fail("write the mounted file", &path)(source)) }
        })
    }

    /// Creates the folder of secrets. It is an error if it is not on a memory file system.
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

    fn remove_unused_in(
        &self,
        folder: &Path,
        in_use: &BTreeSet<ContentId>,
        age: Duration,
    ) -> Result<usize, Error> {
        let oldest = self.now().checked_sub(age).unwrap_or(UNIX_EPOCH);
        let mut removed = 0;
        for entry in fs::read_dir(folder).map_err(fail("list", folder))? {
            let entry = entry.map_err(fail("list", folder))?;
            let Ok(id) = entry.file_name().into_string().map(ContentId) else { continue };
            let path = entry.path();
            let modified = entry
                .metadata()
                .and_then(|metadata| metadata.modified())
                .map_err(fail("read the time of", &path))?;
            if id.0.starts_with('.') || in_use.contains(&id) || modified > oldest {
                continue;
            }
            let aside = self.set_aside(&path, folder, &id).map_err(fail("remove", &path))?;
            remove(&aside).map_err(fail("remove", &path))?;
            removed += 1;
        }
        Ok(removed)
    }

    /// Renames a content before its removal. A folder with some of its files would count as the whole content.
    fn set_aside(&self, path: &Path, folder: &Path, id: &ContentId) -> io::Result<PathBuf> {
        let aside = self.temporary(folder, id);
        fs::rename(path, &aside)?;
        Ok(aside)
    }

    /// A path in `folder` for a content that is not whole. Each call gives another one.
    fn temporary(&self, folder: &Path, id: &ContentId) -> PathBuf {
        let number = self.shared.writes.fetch_add(1, Ordering::Relaxed);
        folder.join(format!("{UNFINISHED}{number}-{}", id.0))
    }

    fn now(&self) -> SystemTime {
        UNIX_EPOCH.checked_add(Duration::from_millis(self.clock.now().0)).unwrap_or(UNIX_EPOCH)
    }
}

/// Whether an id can be used as the name of a file.
fn is_digest(id: &ContentId) -> bool {
    id.0.len() == 64 && id.0.bytes().all(|byte| byte.is_ascii_hexdigit())
}

fn mounted_secrets(stack: &Stack) -> impl Iterator<Item = &ContentId> {
    stack.workloads.values().flat_map(|workload| {
        let mounts = workload.containers().flat_map(|container| &container.mounts);
        let mounted = mounts.filter_map(|mount| {
            let MountSource::Secret(id) = &mount.source else { return None };
            Some(id)
        });
        mounted.chain(workload.in_place.values().filter(|file| file.secret).map(|file| &file.content))
    })
}

/// Adds the text of a file that is one line, or of each such file in a folder. A file that cannot be read is left out.
fn add_lines(path: &Path, lines: &mut BTreeSet<String>) {
    let Ok(found) = fs::symlink_metadata(path) else { return };
    if found.is_dir() {
        for entry in fs::read_dir(path).into_iter().flatten().flatten() {
            add_lines(&entry.path(), lines);
        }
    } else if found.is_file()
        && found.len() <= LARGEST_LINE
        && let Ok(text) = fs::read_to_string(path)
        && !text.trim().contains('\n')
    {
        lines.insert(text.trim().to_owned());
    }
}

fn is_run(workload: &Workload) -> bool {
    workload.job().is_some_and(driftless_model::Job::is_run)
}

/// Writes a content. Files are readable to all users unless the manifest says otherwise, since a container may run as any
/// user. The folder around them is closed to other users of the host.
fn write_content(path: &Path, content: &Content) -> io::Result<()> {
    match content {
        Content::File { bytes, executable } => write_file(path, bytes, Access::of(*executable)),
        Content::Owned { bytes, mode, uid, gid } => {
            write_file(path, bytes, Access::Read)?;
            // The mode comes last: a change of the owner clears its upper bits.
            chown(path, Some(*uid), Some(*gid))?;
            fs::set_permissions(path, Permissions::from_mode(*mode))
        }
        Content::Folder(tree) => {
            create_open(path)?;
            let mut folders = BTreeSet::from([path.to_owned()]);
            for (name, (bytes, access)) in tree {
                let mut file = path.to_owned();
                for part in safe_path::parts(name).map_err(io::Error::other)? {
                    if folders.insert(file.clone()) {
                        create_open(&file)?;
                    }
                    file.push(part);
                }
                write_file(&file, bytes, *access)?;
            }
            folders.iter().try_for_each(|folder| File::open(folder)?.sync_all())
        }
    }
}

/// Creates a folder that all users may read.
fn create_open(path: &Path) -> io::Result<()> {
    DirBuilder::new().mode(0o700).create(path)?;
    // Not at creation: the umask of the process would restrict it.
    fs::set_permissions(path, Permissions::from_mode(OPEN_FOLDER))
}

/// Opens a folder to all users again that an earlier agent has closed, with the folders in it.
fn open_again(path: &Path) -> io::Result<()> {
    let found = fs::symlink_metadata(path)?;
    if !found.is_dir() || found.permissions().mode() & 0o777 == OPEN_FOLDER {
        return Ok(());
    }
    for entry in fs::read_dir(path)? {
        open_again(&entry?.path())?;
    }
    // Last, so that an interrupted one is done again.
    fs::set_permissions(path, Permissions::from_mode(OPEN_FOLDER))
}

/// Reads a content that [`write_content`] has written.
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
            // `read_content` returns no owned files. A copy has the access rights of its place.
            Content::Owned { bytes, .. } => drop(tree.insert(name, (bytes, Access::Read))),
            Content::Folder(inner) => {
                tree.extend(inner.into_iter().map(|(path, file)| (format!("{name}/{path}"), file)));
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
    // Not at creation: the umask of the process would restrict it.
    file.set_permissions(Permissions::from_mode(access.mode()))?;
    file.sync_all()
}

fn touch(path: &Path, now: SystemTime) -> io::Result<()> {
    File::open(path)?.set_modified(now)
}

/// Removes a file or a whole folder. A missing one is no error.
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
            path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(UNFINISHED.as_bytes()));
        if unfinished {
            remove(&path).map_err(fail("remove", &path))?;
        }
    }
    Ok(())
}

/// Creates a folder that only the agent's user can enter. The engine mounts the files in it all the same.
pub(super) fn create_closed(path: &Path) -> Result<(), Error> {
    DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(fail("create", path))?;
    fs::set_permissions(path, Permissions::from_mode(0o700)).map_err(fail("close to others", path))
}

pub(super) fn fail(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Error + use<> {
    let path = path.to_owned();
    move |source| Error::Directory { doing, path, source }
}

/// The type of the file system of a path, which need not exist yet.
fn file_system_of(path: &Path) -> Result<String, Error> {
    let existing = path.ancestors().find(|ancestor| ancestor.exists()).unwrap_or(Path::new("/"));
    let existing = existing.canonicalize().map_err(fail("find", existing))?;
    let mounts = Path::new("/proc/self/mounts");
    let text = fs::read_to_string(mounts).map_err(fail("read", mounts))?;
    Ok(mounted_at(&text, &existing))
}

/// The type of the deepest mount above a path. Of two mounts at one place, the later one counts.
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
    fn folder_that_is_half_removed_is_written_again() {
        let directory = tempfile::tempdir().unwrap();
        let state = StateDir::lock(&directory.path().join("state")).unwrap();
        let dir = ContentDir::open(&state, directory.path(), Clock::System).unwrap();
        let file = |text: &str| (Arc::from(text.as_bytes()), Access::Read);
        let tree = ContentTree::from([("a".to_owned(), file("1")), ("b".to_owned(), file("2"))]);
        let content = Content::Folder(tree);
        let (id, contents) = (content.id(), Contents::from([(content.id(), content)]));
        dir.write(&contents, Visibility::Public).unwrap();
        let path = dir.path(&id, Visibility::Public);

        // The agent is killed while it removes the files.
        let aside = dir.set_aside(&path, dir.folder(Visibility::Public), &id).unwrap();
        fs::remove_file(aside.join("a")).unwrap();
        dir.write(&contents, Visibility::Public).unwrap();
        assert!(path.join("a").exists() && path.join("b").exists());
        clear_unfinished(dir.folder(Visibility::Public)).unwrap();
        assert!(!aside.exists() && path.exists());
    }

    #[test]
    fn file_system_is_that_of_the_deepest_and_latest_mount() {
        let mounts = "/dev/sda / ext4 rw 0 0\ntmpfs /run tmpfs rw 0 0\n\
                      /dev/sdb /run/my\\040disk xfs rw 0 0\ntmpfs /mnt tmpfs rw 0 0\next /mnt ext4 rw 0 0\n";
        assert_eq!(mounted_at(mounts, Path::new("/run/driftless/secrets")), "tmpfs");
        assert_eq!(mounted_at(mounts, Path::new("/run/my disk/x")), "xfs");
        assert_eq!(mounted_at(mounts, Path::new("/running")), "ext4");
        assert_eq!(mounted_at(mounts, Path::new("/mnt/x")), "ext4");
        assert_eq!(mounted_at("", Path::new("/")), "unknown");
    }
}
