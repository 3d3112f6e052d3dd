//! Backups of a state directory in one file, and their restoration.
//!
//! The file is a tar archive with a consistent copy of the database, the agent's id, and the writable folders of
//! applications. Mirrors and mounted files are left out: Git has them. The key `database.key` is left out as well,
//! because both together give the stored values away: it is kept in another place.

use std::{
    collections::BTreeSet,
    ffi::OsString,
    fs::{self, File, OpenOptions},
    io::{self, BufReader, Read},
    os::{
        fd::AsRawFd,
        unix::fs::{MetadataExt, OpenOptionsExt},
    },
    path::{Path, PathBuf},
    time::Duration,
};

use rusqlite::{Connection, OpenFlags};

use crate::{
    app_files::{O_NONBLOCK, is_list_of_files},
    database::schema_version,
    error::Error,
    file_entry::{BLOCK, FileEntry},
    folder_mounts::{mount_points_in, mounted_anywhere, mounted_in},
    partial_file::PartialFile,
    restored::mark_restored,
    state_dir::{BACKUP, BACKUP_JOURNAL, StateDir},
};

/// The time that a backup waits for a write of the running agent.
const BUSY: Duration = Duration::from_secs(30);

const DATABASE: &str = "driftless.db";
/// The files that belong to the database. One that was repaired would take the place of a missing one. An agent that starts without
/// the database knows that something is lost, and one that starts without its log would not.
const DATABASE_FILES: [&str; 6] =
    ["driftless.db.repaired", DATABASE, "driftless.db-wal", "driftless.db-shm", BACKUP, BACKUP_JOURNAL];
const AGENT_ID: &str = "agent-id";
const APPLICATIONS: &str = "applications";

/// The bits of a mode that let a program run as its owner or group; a folder gives its group to new files.
const SETUID: u32 = 0o4000;
const SETGID: u32 = 0o2000;

/// The levels of folders that an administrator may have replaced by links to other disks: `applications`, and the folder of each
/// application. Containers cannot write there.
const LINKED_LEVELS: usize = 2;

/// Writes a backup of a state directory into a new file that only its owner can read. The agent may run, and containers may
/// write to the folders of applications. Returns what was left out: sockets, pipes, devices, links to folders that are missing, and what
/// vanished meanwhile.
///
/// # Errors
///
/// If there is no database, the file exists, or reading or writing fails. Then there is no new file.
pub fn back_up(state_dir: &Path, file: &Path) -> Result<Vec<PathBuf>, Error> {
    let fail = failed("write the backup", file);
    if file.exists() {
        return Err(fail(io::ErrorKind::AlreadyExists.into()));
    }
    let partial = PartialFile::create(file).map_err(&fail)?;
    let copy = partial.companion().map_err(&fail)?;
    copy_into(&state_dir.join(DATABASE), copy.path())?;
    let mut left_out = Vec::new();
    let written = (|| {
        let mut archive = tar::Builder::new(partial.file().try_clone()?);
        FileEntry::of(copy.file())?.append(&mut archive, Path::new(DATABASE))?;
        drop(copy);
        let id = File::open(state_dir.join(AGENT_ID))?;
        FileEntry::of(&id)?.append(&mut archive, Path::new(AGENT_ID))?;
        if state_dir.join(APPLICATIONS).symlink_metadata().is_ok() {
            append_folder(&mut archive, state_dir, APPLICATIONS.into(), &mut left_out)?;
        }
        archive.finish()?;
        partial.publish(file)
    })();
    written.map_err(fail)?;
    Ok(left_out)
}

/// A folder that is being appended: its name in the archive, and what is still to be read of it.
struct OpenFolder {
    name: PathBuf,
    handle: File,
    entries: Box<dyn Iterator<Item = io::Result<OsString>>>,
}

impl OpenFolder {
    /// `None`: it has vanished, or something else has taken its place.
    fn open(path: &Path, name: PathBuf) -> io::Result<Option<Self>> {
        let Some(found) = if_there(fs::symlink_metadata(path))? else { return Ok(None) };
        let Some(handle) = open_same(path, &found)?.filter(|_| found.is_dir()) else { return Ok(None) };
        let entries = entries(&handle, &name)?;
        Ok(Some(Self { name, handle, entries }))
    }
}

/// The names in a folder that is called `name` in the archive.
///
/// The lists of copied files come before the folders with the files. If the agent copies a newer file meanwhile, the restored list
/// has the digest of the older one, and the agent copies it again; the other way round it would leave the older one there.
fn entries(folder: &File, name: &Path) -> io::Result<Box<dyn Iterator<Item = io::Result<OsString>>>> {
    let names = || Ok::<_, io::Error>(fs::read_dir(path_of(folder))?.map(|entry| Ok(entry?.file_name())));
    if name != Path::new(APPLICATIONS) {
        return Ok(Box::new(names()?));
    }
    let is_list = |name: &io::Result<OsString>| name.as_ref().is_ok_and(|name| is_list_of_files(name));
    Ok(Box::new(names()?.filter(is_list).chain(names()?.filter(move |name| !is_list(name)))))
}

/// The path of an open folder. It stays the same folder when others move it away and put a link in its place.
fn path_of(folder: &File) -> PathBuf {
    Path::new("/proc/self/fd").join(folder.as_raw_fd().to_string())
}

/// Appends a folder below `root` with all that is in it, while others may write there. Links are followed at the first levels
/// alone: see [`LINKED_LEVELS`].
fn append_folder(
    archive: &mut tar::Builder<File>,
    root: &Path,
    folder: PathBuf,
    left_out: &mut Vec<PathBuf>,
) -> io::Result<()> {
    let mut open = Vec::new();
    let mut next = Some((linked_folder(root.join(&folder)), folder));
    loop {
        if let Some((path, name)) = next.take() {
            match OpenFolder::open(&path, name.clone())? {
                Some(folder) => {
                    archive.append_dir(&name, path_of(&folder.handle))?;
                    open.push(folder);
                }
                None => left_out.push(name),
            }
        }
        let may_be_linked = open.len() < LINKED_LEVELS;
        let Some(folder) = open.last_mut() else { return Ok(()) };
        let Some(entry) = folder.entries.next() else {
            open.pop();
            continue;
        };
        let entry = entry?;
        let (path, name) = (path_of(&folder.handle).join(&entry), folder.name.join(&entry));
        let path = if may_be_linked { linked_folder(path) } else { path };
        match if_there(fs::symlink_metadata(&path))? {
            Some(found) if found.is_dir() => next = Some((path, name)),
            Some(found) if found.is_symlink() && may_be_linked => left_out.push(name),
            Some(_) if append_entry(archive, &path, &name)? => {}
            Some(_) | None => left_out.push(name),
        }
    }
}

/// The folder that a link leads to. Any other path stays as it is.
fn linked_folder(path: PathBuf) -> PathBuf {
    if !path.is_symlink() {
        return path;
    }
    path.canonicalize().ok().filter(|folder| folder.is_dir()).unwrap_or(path)
}

/// Appends a file or link. False: it is of another kind, or has vanished.
fn append_entry(archive: &mut tar::Builder<File>, path: &Path, name: &Path) -> io::Result<bool> {
    let Some(found) = if_there(fs::symlink_metadata(path))? else { return Ok(false) };
    if found.is_symlink() {
        let Some(target) = if_there(fs::read_link(path))? else { return Ok(false) };
        let mut header = tar::Header::new_gnu();
        header.set_metadata(&found);
        header.set_size(0);
        archive.append_link(&mut header, name, target)?;
        return Ok(true);
    }
    if !found.is_file() {
        return Ok(false);
    }
    let Some(file) = open_same(path, &found)? else { return Ok(false) };
    FileEntry::of(&file)?.append(archive, name)?;
    Ok(true)
}

/// Opens what was found at a path. `None`: it has vanished, or something else has taken its place. A pipe that has is not waited for,
/// and a link to something else is not followed.
fn open_same(path: &Path, found: &fs::Metadata) -> io::Result<Option<File>> {
    let opened = OpenOptions::new().read(true).custom_flags(O_NONBLOCK).open(path);
    let Some(file) = if_there(opened)? else { return Ok(None) };
    let identity = |found: &fs::Metadata| (found.dev(), found.ino());
    let is_same = identity(&file.metadata()?) == identity(found);
    Ok(is_same.then_some(file))
}

/// `None`: it has vanished.
fn if_there<T>(found: io::Result<T>) -> io::Result<Option<T>> {
    match found {
        Ok(found) => Ok(Some(found)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Consequences of a restoration that must be wished for.
#[derive(Clone, Copy, Debug, Default)]
pub struct RestoreOptions {
    /// The database of the directory is replaced.
    pub replace: bool,
    /// Running containers that use the folders of applications go on with those that are set aside.
    pub force: bool,
}

/// The consequences of a restoration that somebody should know of.
#[derive(Debug, Default)]
pub struct Restored {
    /// The applications whose folders running containers have mounted: the containers go on with those that were set aside.
    pub in_use: Vec<String>,
    /// The applications whose folders in another state directory running containers have mounted: the agent leaves these containers.
    pub in_use_elsewhere: Vec<String>,
    /// The files and folders without their setuid or setgid bit, by their paths in the state directory. Without the capability `FSETID`
    /// the kernel leaves it out, and reports success.
    pub without_bits: Vec<PathBuf>,
}

/// Restores a backup into a state directory that no agent uses. Files that the backup does not have are kept.
///
/// # Errors
///
/// If an agent uses the directory, a consequence is not wished for, the file is no backup, or reading or writing fails. An
/// incomplete backup changes nothing.
pub fn restore(file: &Path, state_dir: &Path, options: RestoreOptions) -> Result<Restored, Error> {
    let state = StateDir::lock(state_dir)?;
    let path = state.path();
    if state.database().exists() && !options.replace {
        let source = io::Error::new(io::ErrorKind::AlreadyExists, "the directory has one already");
        return Err(failed("replace the database", &state.database())(source));
    }
    let new = LeftoverFolder(path.join("restore.new"));
    let _ = fs::remove_dir_all(&new.0);
    fs::create_dir(&new.0).map_err(failed("create", &new.0))?;
    let without_bits = unpack(file, &new.0)?;
    check_database(&new.0.join(DATABASE), file)?;
    mark_restored(&new.0.join(DATABASE))?;
    let has_folders = new.0.join(APPLICATIONS).is_dir();
    let in_use = if has_folders { check_folders(path, options)? } else { Vec::new() };
    let mut elsewhere = mounted_anywhere(APPLICATIONS, &folder_names(&new.0.join(APPLICATIONS)));
    elsewhere.retain(|name| !in_use.contains(name));
    let aside = free_name(path, "before-restore");
    fs::create_dir(&aside).map_err(failed("create", &aside))?;
    if path.join(AGENT_ID).exists() {
        // A copy, so that there is an id at each moment.
        fs::copy(path.join(AGENT_ID), aside.join(AGENT_ID)).map_err(failed("copy", &path.join(AGENT_ID)))?;
    }
    // The files that take the place of others are on the disk before, and their names after.
    let sync_files = || File::open(&new.0).and_then(|folder| Ok(rustix::fs::syncfs(folder)?));
    sync_files().map_err(failed("write", &new.0))?;
    let mut moved = Vec::new();
    let exchanged = exchange(path, &new.0, &aside, &mut moved)
        .and_then(|()| File::open(path).and_then(|it| it.sync_all()).map_err(failed("write", path)));
    if exchanged.is_err() {
        // As before, as far as that is possible.
        for (from, to) in moved.into_iter().rev() {
            let _ = fs::rename(to, from);
        }
        let _ = fs::rename(aside.join(AGENT_ID), path.join(AGENT_ID));
    }
    // Nothing was there before.
    let _ = fs::remove_dir(&aside);
    let in_use_elsewhere = elsewhere.into_iter().collect();
    exchanged.map(|()| Restored { in_use, in_use_elsewhere, without_bits })
}

/// The names of the folders in a folder.
fn folder_names(folder: &Path) -> BTreeSet<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let folders = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    folders.filter_map(|folder| folder.file_name().into_string().ok()).collect()
}

/// Whether the folders of applications may be set aside. Returns the applications whose folders running containers use.
fn check_folders(state_dir: &Path, options: RestoreOptions) -> Result<Vec<String>, Error> {
    let directory = state_dir.join(APPLICATIONS);
    let in_use = applications_in_use(state_dir);
    if !in_use.is_empty() && !options.force {
        return Err(Error::FoldersInUse { directory, applications: in_use.join(", ") });
    }
    // A mount goes along with a folder that is renamed, and comes back to its place with the next boot.
    let mounted = mount_points_in(&directory);
    if mounted.is_empty() {
        return Ok(in_use);
    }
    let folders: Vec<String> = mounted.iter().map(|folder| folder.display().to_string()).collect();
    Err(Error::FoldersMounted { folders: folders.join(", ") })
}

/// The applications with folders that running containers have mounted.
fn applications_in_use(state_dir: &Path) -> Vec<String> {
    let folder = state_dir.join(APPLICATIONS);
    let mut names: BTreeSet<PathBuf> = mounted_in(&folder)
        .iter()
        .map(|folder| folder.components().next().map_or(Path::new("."), |name| Path::new(name.as_os_str())))
        .map(Path::to_owned)
        .collect();
    // Folders of applications may be on other disks, by a link or a mount.
    let entries = fs::read_dir(&folder).into_iter().flatten().flatten();
    let links = entries.map(|entry| entry.path()).filter(|path| path.is_symlink());
    let used = links.chain(mount_points_in(&folder)).filter(|path| !mounted_in(path).is_empty());
    names.extend(used.filter_map(|path| {
        let inner = path.strip_prefix(&folder).ok()?;
        inner.components().next().map(|name| PathBuf::from(name.as_os_str()))
    }));
    names.iter().map(|name| name.display().to_string()).collect()
}

/// Moves what a state directory has aside, and what a backup has into its place. `moved` gets the names before and after.
fn exchange(path: &Path, new: &Path, aside: &Path, moved: &mut Vec<(PathBuf, PathBuf)>) -> Result<(), Error> {
    let mut rename = |doing, from: PathBuf, to: PathBuf| match fs::rename(&from, &to) {
        Ok(()) => {
            moved.push((from, to));
            Ok(())
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(failed(doing, &from)(error)),
    };
    let mut set_aside = |name: &str| rename("move aside", path.join(name), aside.join(name));
    for name in DATABASE_FILES {
        set_aside(name)?;
    }
    if new.join(APPLICATIONS).is_dir() {
        set_aside(APPLICATIONS)?;
    }
    for name in [APPLICATIONS, AGENT_ID, DATABASE] {
        rename("restore", new.join(name), path.join(name))?;
    }
    Ok(())
}

/// A name in a folder that nothing has yet: `name`, `name-2`, …
fn free_name(folder: &Path, name: &str) -> PathBuf {
    let mut free = folder.join(name);
    let mut number = 2_u32;
    while free.symlink_metadata().is_ok() {
        free = folder.join(format!("{name}-{number}"));
        number = number.saturating_add(1);
    }
    free
}

/// A consistent copy that only its owner can read, also while an agent writes.
pub(crate) fn copy_database(from: &Path, to: &Path) -> Result<(), Error> {
    let _ = fs::remove_file(to);
    let new = OpenOptions::new().write(true).create_new(true).mode(0o600).open(to);
    drop(new.map_err(failed("write the backup", to))?);
    copy_into(from, to)
}

/// Copies a database into an empty file.
fn copy_into(from: &Path, to: &Path) -> Result<(), Error> {
    let read = |error: rusqlite::Error| Error::Read { what: "the state", source: error.into() };
    if !from.is_file() {
        return Err(failed("read the database", from)(io::Error::other("there is no such file")));
    }
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(from, flags).map_err(read)?;
    connection.busy_timeout(BUSY).map_err(read)?;
    let to = to.to_str().ok_or_else(|| failed("write the backup", to)(io::ErrorKind::InvalidInput.into()))?;
    connection.execute("VACUUM INTO ?1", [to]).map_err(read)?;
    Ok(())
}

/// Unpacks a backup. Returns the files and folders that lack their setuid or setgid bit.
fn unpack(file: &Path, into: &Path) -> Result<Vec<PathBuf>, Error> {
    let fail = failed("read the backup", file);
    let invalid = |why: &str| fail(io::Error::new(io::ErrorKind::InvalidData, why));
    let mut archive = tar::Archive::new(File::open(file).map_err(&fail)?);
    archive.set_preserve_permissions(true);
    archive.set_preserve_ownerships(true);
    let mut without_bits = Vec::new();
    for entry in archive.entries().map_err(&fail)? {
        let mut entry = entry.map_err(&fail)?;
        let path = entry.path().map_err(&fail)?.into_owned();
        let is_known =
            path == Path::new(DATABASE) || path == Path::new(AGENT_ID) || path.starts_with(APPLICATIONS);
        // A path or link that leads out of the folder is left out by `unpack_in`.
        if !is_known || !entry.unpack_in(into).map_err(&fail)? {
            let path = path.display();
            return Err(invalid(&format!("it is no backup of a state directory: it contains {path}")));
        }
        if lacks_bits(&into.join(&path), entry.header()).map_err(&fail)? {
            without_bits.push(path);
        }
    }
    if !has_end(archive.into_inner()).map_err(&fail)? {
        return Err(invalid("it is incomplete or damaged: the end of the archive is missing"));
    }
    if into.join(AGENT_ID).is_file() && into.join(DATABASE).is_file() {
        return Ok(without_bits);
    }
    Err(invalid("it is no backup of a state directory, or incomplete"))
}

/// Whether an unpacked file or folder has lost its setuid or setgid bit.
fn lacks_bits(unpacked: &Path, header: &tar::Header) -> io::Result<bool> {
    let kind = header.entry_type();
    if !kind.is_file() && !kind.is_dir() {
        return Ok(false);
    }
    let wanted = header.mode()? & (SETUID | SETGID);
    Ok(wanted != 0 && unpacked.symlink_metadata()?.mode() & wanted != wanted)
}

/// Whether an archive ends here. Its end is two blocks of zeros, the first of which is read already, and other programs write
/// more of them. A file that was cut off between two entries has none.
fn has_end(rest: impl Read) -> io::Result<bool> {
    let mut length = 0_u64;
    for byte in BufReader::new(rest).bytes() {
        if byte? != 0 {
            return Ok(false);
        }
        length += 1;
    }
    Ok(length >= BLOCK)
}

/// Checks the unpacked database of a backup: the agent would refuse one that is damaged, or of a newer release.
fn check_database(path: &Path, file: &Path) -> Result<(), Error> {
    let damaged = |why: String| {
        let why = format!("its database is damaged: {why}");
        failed("read the backup", file)(io::Error::new(io::ErrorKind::InvalidData, why))
    };
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let check = Connection::open_with_flags(path, flags).and_then(|connection| {
        let answer: String = connection.pragma_query_value(None, "quick_check", |row| row.get(0))?;
        let found: i64 = connection.pragma_query_value(None, "user_version", |row| row.get(0))?;
        Ok((answer, found))
    });
    let (answer, found) = check.map_err(|error| damaged(error.to_string()))?;
    if answer != "ok" {
        return Err(damaged(answer));
    }
    let known = schema_version();
    if found > known {
        return Err(Error::Newer { path: file.to_owned(), found, known });
    }
    Ok(())
}

pub(crate) fn failed(doing: &'static str, path: &Path) -> impl Fn(io::Error) -> Error {
    let path = path.to_owned();
    move |source| Error::Directory { doing, path: path.clone(), source }
}

/// A folder that is removed at the end.
struct LeftoverFolder(PathBuf);

impl Drop for LeftoverFolder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn missing_setgid_bits_are_noticed() {
        let folder = tempfile::tempdir().unwrap();
        let lacks = |mode: u32, kind: tar::EntryType| {
            let mut header = tar::Header::new_gnu();
            header.set_mode(mode);
            header.set_entry_type(kind);
            lacks_bits(folder.path(), &header).unwrap()
        };
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o775)).unwrap();
        assert!(lacks(0o2775, tar::EntryType::Directory));
        assert!(!lacks(0o1775, tar::EntryType::Directory));
        assert!(!lacks(0o2775, tar::EntryType::Symlink), "a link has no mode");
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o2775)).unwrap();
        assert!(!lacks(0o2775, tar::EntryType::Directory));
    }
}
