//! The applications' own folders, which their containers write to: tracked files are brought there when they
//! change in Git, and nothing that Git does not track is ever touched.
//!
//! What was written is noted in a list beside the folder, out of the containers' reach. By it a file that has
//! left Git is removed only while it still is what we wrote. What is in the folder is not trusted: see
//! [`safe_path`].

use std::{
    collections::BTreeMap,
    fs::{self, File, OpenOptions, Permissions},
    io::{self, Read, Write},
    os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, fchown},
    path::{Path, PathBuf},
    sync::Arc,
};

use super::{
    ContentDir, Error,
    contents::fail,
    safe_path::{self, Folder, Refusal},
};
use driftless_model::{AppName, Content, ContentId, Contents};

/// So that opening a named pipe does not wait for its other end. The same number on all processors that
/// Docker runs on.
const O_NONBLOCK: i32 = 0o4000;

/// What we wrote, by path: the digest of bytes and mode.
type Written = BTreeMap<String, ContentId>;

/// One tracked file.
struct Tracked {
    bytes: Arc<[u8]>,
    executable: bool,
}

impl ContentDir {
    /// The application's own folder: where `AppFolder` mounts lie.
    pub fn app_folder(&self, app: &AppName) -> PathBuf {
        self.applications.join(app.as_str())
    }

    /// Writes the tracked files that changed in Git since they were last written, and those that are missing.
    /// A file that a container changed stays as it is until Git changes it. A file that has left Git is removed
    /// if it is still what we wrote. Untracked files are never touched.
    pub fn sync_app_files(
        &self,
        app: &AppName,
        files: &BTreeMap<String, ContentId>,
        contents: &Contents,
    ) -> Result<(), Error> {
        let list = self.applications.join(format!("{app}.files.json"));
        let before = read_list(&list);
        if files.is_empty() && before.is_empty() {
            return Ok(());
        }
        let folder = self.create_app_folder(app)?;
        let mut written = Written::new();
        for (path, tracked) in self.tracked(files, contents)? {
            let id = tracked.id();
            let is_known = before.get(&path) == Some(&id);
            sync_file(&folder, &path, &tracked, is_known).map_err(refuse(&folder.join(&path)))?;
            written.insert(path, id);
        }
        for (path, id) in before.iter().filter(|(path, _)| !written.contains_key(*path)) {
            remove_unchanged(&folder, path, id).map_err(refuse(&folder.join(path)))?;
        }
        if written == before { Ok(()) } else { write_list(&list, &written) }
    }

    /// Makes a folder inside the application's own, for a mount. What is there already, folder or file, stays.
    pub fn ensure_app_folder(&self, app: &AppName, path: &str) -> Result<(), Error> {
        let folder = self.create_app_folder(app)?;
        let make = || -> Result<(), Refusal> {
            let parts = safe_path::parts(path)?;
            let Some((name, parents)) = parts.split_last() else { return Ok(()) };
            let parent = Folder::open(&folder)?.descend(parents)?;
            match fs::symlink_metadata(parent.entry(name)) {
                // A link would be followed by whoever mounts it, out of the folder.
                Ok(found) if found.is_symlink() => Err(Refusal::Astray(folder.join(path))),
                Ok(_) => Ok(()),
                Err(_) => parent.descend(&[*name]).map(drop),
            }
        };
        make().map_err(refuse(&folder.join(path)))
    }

    fn create_app_folder(&self, app: &AppName) -> Result<PathBuf, Error> {
        let folder = self.app_folder(app);
        fs::create_dir_all(&folder).map_err(fail("create the application's folder", &folder))?;
        Ok(folder)
    }

    /// Folders are taken apart into their files.
    fn tracked(
        &self,
        files: &BTreeMap<String, ContentId>,
        contents: &Contents,
    ) -> Result<BTreeMap<String, Tracked>, Error> {
        let mut tracked = BTreeMap::new();
        for (path, id) in files {
            match self.load(id, contents)? {
                Content::Owned { bytes, mode, .. } => {
                    let executable = mode & 0o111 != 0;
                    tracked.insert(path.clone(), Tracked { bytes, executable });
                }
                Content::File { bytes, executable } => {
                    tracked.insert(path.clone(), Tracked { bytes, executable });
                }
                Content::Folder(tree) => {
                    for (name, (bytes, access)) in tree {
                        let path = if path == "." { name } else { format!("{path}/{name}") };
                        let executable = access.is_executable();
                        tracked.insert(path, Tracked { bytes, executable });
                    }
                }
            }
        }
        Ok(tracked)
    }
}

impl Tracked {
    fn id(&self) -> ContentId {
        Content::File { bytes: self.bytes.clone(), executable: self.executable }.id()
    }
}

fn sync_file(folder: &Path, path: &str, tracked: &Tracked, is_known: bool) -> Result<(), Refusal> {
    let parts = safe_path::parts(path)?;
    let (name, parents) = parts.split_last().ok_or(Refusal::Outside)?;
    let parent = Folder::open(folder)?.descend(parents)?;
    let found = fs::symlink_metadata(parent.entry(name)).ok();
    if is_known && found.as_ref().is_some_and(fs::Metadata::is_file) {
        return Ok(());
    }
    let temporary = parent.entry(&format!(".driftless-new-{}", tracked.id().0.get(..16).unwrap_or_default()));
    let write = || -> io::Result<()> {
        let _ = fs::remove_file(&temporary);
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&temporary)?;
        file.write_all(&tracked.bytes)?;
        // A file that its container took over with `chown` stays its own.
        if let Some(found) = found.as_ref().filter(|it| it.is_file()) {
            fchown(&file, Some(found.uid()), Some(found.gid()))?;
        }
        file.set_permissions(Permissions::from_mode(if tracked.executable { 0o755 } else { 0o644 }))?;
        file.sync_all()?;
        // Takes the place of a link, too, without following it.
        fs::rename(&temporary, parent.entry(name))?;
        parent.sync()
    };
    write().map_err(|source| {
        let _ = fs::remove_file(&temporary);
        Refusal::Io { doing: "write the tracked file", source }
    })
}

fn remove_unchanged(folder: &Path, path: &str, id: &ContentId) -> Result<(), Refusal> {
    let parts = safe_path::parts(path)?;
    let Some((name, parents)) = parts.split_last() else { return Ok(()) };
    // Where somebody made something else of its folder, it is not what we wrote.
    let Ok(Some(parent)) = Folder::open(folder)?.find(parents) else { return Ok(()) };
    let entry = parent.entry(name);
    if !fs::symlink_metadata(&entry).is_ok_and(|it| it.is_file()) || read_id(&entry).as_ref() != Some(id) {
        return Ok(());
    }
    fs::remove_file(&entry).map_err(|source| Refusal::Io { doing: "remove the file that left Git,", source })
}

/// The digest of what is there; `None` when it is no file or cannot be read.
fn read_id(path: &Path) -> Option<ContentId> {
    let mut file = OpenOptions::new().read(true).custom_flags(O_NONBLOCK).open(path).ok()?;
    let found = file.metadata().ok().filter(fs::Metadata::is_file)?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes).ok()?;
    Some(Content::File { bytes: bytes.into(), executable: found.permissions().mode() & 0o111 != 0 }.id())
}

/// A list that is missing or damaged counts as empty: then tracked files are written anew, and nothing is
/// removed.
fn read_list(path: &Path) -> Written {
    fs::read(path).ok().and_then(|bytes| serde_json::from_slice(&bytes).ok()).unwrap_or_default()
}

fn write_list(path: &Path, written: &Written) -> Result<(), Error> {
    let temporary = path.with_extension("new");
    let write = || -> io::Result<()> {
        let mut file =
            OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&temporary)?;
        file.write_all(&serde_json::to_vec(written)?)?;
        file.sync_all()?;
        fs::rename(&temporary, path)?;
        match path.parent() {
            Some(parent) => File::open(parent)?.sync_all(),
            None => Ok(()),
        }
    };
    write().map_err(fail("write the list of tracked files", path))
}

fn refuse(path: &Path) -> impl FnOnce(Refusal) -> Error + use<> {
    let path = path.to_owned();
    move |refusal| match refusal {
        Refusal::Io { doing, source } => Error::Directory { doing, path, source },
        Refusal::Outside | Refusal::Astray(_) => Error::Unsafe { path, why: refusal.to_string() },
    }
}
