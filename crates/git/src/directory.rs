//! The files of a plain folder, for `driftless validate DIR`: as if its content were a commit.
//!
//! Nothing outside the folder is readable, even through links, nor is `.git`. Devices, sockets and pipes do not exist,
//! since opening one could block for ever. In a work tree, files that Git ignores do not exist either.

use std::{
    collections::BTreeMap,
    fs,
    io::{self, Read},
    os::unix::fs::PermissionsExt,
    path::{Component, Path, PathBuf},
    sync::Arc,
};

use super::{
    filtered,
    ignored::{GIT, Ignored},
};
use driftless_files::{Entry, Files, ReadError};
use driftless_model::Finding;

/// A folder on disk.
#[derive(Clone, Debug)]
pub struct Directory {
    /// Without links.
    root: PathBuf,
    /// The files that Git ignores. `None`: all files are read.
    ignored: Option<Arc<Ignored>>,
}

impl Directory {
    /// The folder must exist. Files that Git ignores are not read: the agent has only what is in Git.
    pub fn open(path: &Path) -> io::Result<Self> {
        let mut directory = Self::with_ignored(path)?;
        directory.ignored = Ignored::open(&directory.root)?.map(Arc::new);
        Ok(directory)
    }

    /// The same with all files, also those that Git ignores.
    pub fn with_ignored(path: &Path) -> io::Result<Self> {
        let root = fs::canonicalize(path)?;
        if !root.is_dir() {
            return Err(io::ErrorKind::NotADirectory.into());
        }
        Ok(Self { root, ignored: None })
    }

    /// Whether the folder is in a work tree of Git, which does not ignore it as a whole.
    pub fn is_in_work_tree(&self) -> bool {
        self.ignored.is_some()
    }

    /// A warning for each file or folder that exists, was asked for, and was not read because Git ignores it.
    pub fn ignored_findings(&self) -> Vec<Finding> {
        self.ignored.iter().flat_map(|ignored| ignored.findings()).collect()
    }

    /// The place on disk, with all links followed; `None` if there is nothing, if it is out of bounds, or if Git ignores
    /// it, which is recorded.
    fn find(&self, path: &str) -> Result<Option<(PathBuf, fs::Metadata)>, ReadError> {
        let Some((place, metadata)) = self.find_on_disk(path)? else { return Ok(None) };
        if self.is_ignored(path, &place, &metadata)? {
            if let Some(ignored) = &self.ignored {
                ignored.record(path);
            }
            return Ok(None);
        }
        Ok(Some((place, metadata)))
    }

    /// Whether Git ignores a path, or the file that its links lead to.
    fn is_ignored(&self, path: &str, place: &Path, metadata: &fs::Metadata) -> Result<bool, ReadError> {
        let Some(ignored) = &self.ignored else { return Ok(false) };
        let is_ignored = |it: &Path| ignored.contains(it, metadata.is_dir()).map_err(|it| damaged(path, &it));
        let written: PathBuf = Path::new(path).components().filter(|it| *it != Component::CurDir).collect();
        let inside = place.strip_prefix(&self.root).unwrap_or(place);
        Ok(is_ignored(&written)? || written != inside && is_ignored(inside)?)
    }

    /// The entries directly inside a folder that are wanted, by whether Git ignores them.
    fn entries(
        &self,
        folder: &str,
        is_wanted: impl Fn(bool) -> bool,
    ) -> Result<Vec<(String, Entry)>, ReadError> {
        let Some((place, _)) = self.find(folder)?.filter(|(_, metadata)| metadata.is_dir()) else {
            return Ok(Vec::new());
        };
        let mut entries = Vec::new();
        for file in fs::read_dir(place).map_err(|error| damaged(folder, &error))? {
            let file = file.map_err(|error| damaged(folder, &error))?;
            let Ok(name) = file.file_name().into_string() else { continue };
            let path = if folder.is_empty() { name.clone() } else { format!("{folder}/{name}") };
            let Some((place, metadata)) = self.find_on_disk(&path)? else { continue };
            if is_wanted(self.is_ignored(&path, &place, &metadata)?) {
                entries.push((name, entry(&metadata)));
            }
        }
        entries.sort_by(|(one, _), (other, _)| one.cmp(other));
        Ok(entries)
    }

    /// The place on disk, with all links followed; `None` if there is nothing, or if it is out of bounds.
    fn find_on_disk(&self, path: &str) -> Result<Option<(PathBuf, fs::Metadata)>, ReadError> {
        let is_plain = |it: Component<'_>| matches!(it, Component::Normal(_) | Component::CurDir);
        if path.contains('\0') || !Path::new(path).components().all(is_plain) {
            return Ok(None);
        }
        let found = match fs::canonicalize(self.root.join(path)) {
            Ok(found) => found,
            Err(error) if is_absence(&error) => return Ok(None),
            Err(error) => return Err(damaged(path, &error)),
        };
        let Ok(inside) = found.strip_prefix(&self.root) else { return Ok(None) };
        if inside.components().any(|it| it.as_os_str() == GIT) {
            return Ok(None);
        }
        match fs::metadata(&found) {
            Ok(metadata) if metadata.is_dir() || metadata.is_file() => Ok(Some((found, metadata))),
            Ok(_) => Ok(None),
            Err(error) if is_absence(&error) => Ok(None),
            Err(error) => Err(damaged(path, &error)),
        }
    }
}

impl Files for Directory {
    fn entry(&self, path: &str) -> Result<Option<Entry>, ReadError> {
        Ok(self.find(path)?.map(|(_, metadata)| entry(&metadata)))
    }

    fn list(&self, folder: &str) -> Result<Vec<(String, Entry)>, ReadError> {
        self.entries(folder, |is_ignored| !is_ignored)
    }

    fn links(&self, folder: &str) -> Result<BTreeMap<String, String>, ReadError> {
        let mut links = BTreeMap::new();
        let Some((place, _)) = self.find(folder)?.filter(|(_, metadata)| metadata.is_dir()) else {
            return Ok(links);
        };
        for file in fs::read_dir(place).map_err(|error| damaged(folder, &error))? {
            let file = file.map_err(|error| damaged(folder, &error))?;
            let Ok(target) = fs::read_link(file.path()) else { continue };
            let name = file.file_name().into_string().ok().filter(|it| it != GIT);
            let (Some(name), Some(target)) = (name, target.to_str()) else { continue };
            let written = Path::new(folder).join(&name);
            let written: PathBuf = written.components().filter(|it| *it != Component::CurDir).collect();
            let ignored = self.ignored.as_ref().map(|ignored| ignored.contains(&written, false));
            if !ignored.transpose().map_err(|error| damaged(folder, &error))?.unwrap_or_default() {
                links.insert(name, target.to_owned());
            }
        }
        Ok(links)
    }

    fn ignored(&self, folder: &str) -> Result<Vec<String>, ReadError> {
        let found = self.entries(folder, |is_ignored| is_ignored)?;
        let names = found.into_iter().map(|(name, entry)| match entry {
            Entry::Folder => format!("{name}/"),
            Entry::File { .. } | Entry::Submodule => name,
        });
        Ok(names.collect())
    }

    fn read(&self, path: &str, limit: u64) -> Result<Arc<[u8]>, ReadError> {
        let Some((place, metadata)) = self.find(path)? else {
            return Err(ReadError::Missing(path.to_owned()));
        };
        if metadata.is_dir() {
            return Err(ReadError::Folder(path.to_owned()));
        }
        let mut bytes = Vec::new();
        let file = fs::File::open(place).map_err(|error| damaged(path, &error))?;
        // It may have grown since it was measured.
        file.take(limit.saturating_add(1)).read_to_end(&mut bytes).map_err(|error| damaged(path, &error))?;
        let size = metadata.len().max(bytes.len() as u64);
        if size > limit {
            return Err(ReadError::TooLarge { path: path.to_owned(), size, limit });
        }
        filtered::check(path, &bytes)?;
        Ok(Arc::from(bytes))
    }

    /// A folder is read once; nothing follows that it could be compared with.
    fn id(&self, _path: &str) -> Result<Option<String>, ReadError> {
        Ok(None)
    }

    fn is_encrypted(&self, _: &str) -> bool {
        false
    }
}

fn entry(metadata: &fs::Metadata) -> Entry {
    if metadata.is_dir() {
        return Entry::Folder;
    }
    Entry::File { size: metadata.len(), executable: metadata.permissions().mode() & 0o111 != 0 }
}

/// Also a link that leads nowhere or in circles, and a path below a file.
fn is_absence(error: &io::Error) -> bool {
    // `FilesystemLoop` is not stable yet; the kernel's number for it (ELOOP) is.
    const TOO_MANY_LINKS: i32 = 40;
    matches!(
        error.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory | io::ErrorKind::InvalidFilename
    ) || error.raw_os_error() == Some(TOO_MANY_LINKS)
}

fn damaged(path: &str, error: &io::Error) -> ReadError {
    ReadError::Damaged { path: path.to_owned(), message: error.to_string() }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_folder_reads_like_a_commit() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("repo");
        fs::create_dir_all(root.join("app")).unwrap();
        fs::create_dir_all(root.join(".git")).unwrap();
        fs::write(root.join(".git/config"), "secret").unwrap();
        fs::write(dir.path().join("outside"), "secret").unwrap();
        fs::write(root.join("app/compose.yaml"), "services: {}").unwrap();
        fs::write(root.join("app/b"), "0123456789").unwrap();
        symlink("app", root.join("link")).unwrap();
        symlink("../../outside", root.join("app/out")).unwrap();
        symlink("../.git", root.join("app/git")).unwrap();
        symlink("loop", root.join("app/loop")).unwrap();
        let files = Directory::open(&root).unwrap();

        let names = |folder| -> Vec<String> {
            files.list(folder).unwrap().into_iter().map(|(name, _)| name).collect()
        };
        assert_eq!(names(""), ["app", "link"]);
        assert_eq!(names("app"), ["b", "compose.yaml"]);
        assert_eq!(names("nothing"), Vec::<String>::new());
        assert_eq!(&*files.read("link/compose.yaml", 100).unwrap(), b"services: {}");
        for path in
            ["app/out", "../outside", "app/git/config", ".git/config", "app/loop", "/etc/passwd", "app/b/c"]
        {
            assert_eq!(files.read(path, 100), Err(ReadError::Missing(path.into())), "{path}");
        }
        assert!(matches!(files.read("app/b", 9), Err(ReadError::TooLarge { size: 10, limit: 9, .. })));
        assert_eq!(files.read("app", 9), Err(ReadError::Folder("app".into())));
        assert_eq!(files.entry("app/b").unwrap(), Some(Entry::File { size: 10, executable: false }));
    }

    fn git(folder: &Path, words: &[&str]) {
        let mut command = std::process::Command::new("git");
        command.args(words).current_dir(folder);
        let output = command.env("GIT_CONFIG_GLOBAL", "/dev/null").output().unwrap();
        assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
    }

    #[test]
    fn files_that_git_ignores_do_not_exist() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("repo");
        for (path, text) in [
            ("app/compose.yaml", "services: {}"),
            ("app/.env", "A=1"),
            ("app/.gitignore", ".env\ndata/\n!kept.env\nforced\n"),
            ("app/data/kept.env", "A=1"),
            ("app/forced", "A=1"),
            ("app/new.yaml", "not added yet"),
            ("app/below/.env", "A=1"),
            ("local", "A=1"),
        ] {
            let path = root.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        symlink("app/.env", root.join("link")).unwrap();
        symlink("nothing", root.join("local-link")).unwrap();
        git(&root, &["init", "-q"]);
        fs::write(root.join(".git/info/exclude"), "/local\n/local-link\n").unwrap();
        git(&root, &["add", "--force", "app/forced"]);
        for (folder, prefix) in [("", "app/"), ("app", "")] {
            let files = Directory::open(&root.join(folder)).unwrap();
            let exists = |path: &str| files.entry(&format!("{prefix}{path}")).unwrap().is_some();
            for path in ["compose.yaml", "new.yaml", "forced", "below", ".gitignore"] {
                assert!(exists(path), "{path}");
            }
            for path in [".env", "data", "data/kept.env", "./below/.env"] {
                assert!(!exists(path), "{path}");
                let missing = files.read(&format!("{prefix}{path}"), 99);
                assert_eq!(missing, Err(ReadError::Missing(format!("{prefix}{path}"))));
            }
            let list = files.list(prefix.trim_end_matches('/')).unwrap();
            let names: Vec<&str> = list.iter().map(|(name, _)| name.as_str()).collect();
            assert_eq!(names, [".gitignore", "below", "compose.yaml", "forced", "new.yaml"]);
            assert_eq!(files.ignored(prefix.trim_end_matches('/')).unwrap(), [".env", "data/"]);
            let reported: Vec<String> =
                files.ignored_findings().into_iter().map(|it| it.location.file).collect();
            let all = [".env", "./below/.env", "data", "data/kept.env"].map(|path| format!("{prefix}{path}"));
            assert_eq!(
                reported.into_iter().collect::<std::collections::BTreeSet<_>>(),
                all.into_iter().collect()
            );
        }
        let files = Directory::open(&root).unwrap();
        assert_eq!((files.entry("local"), files.entry("link")), (Ok(None), Ok(None)));
        let links: Vec<String> = files.links("").unwrap().into_keys().collect();
        assert_eq!(links, ["link"], "the one to an ignored file is in a commit and leads to nothing there");
        assert!(Directory::with_ignored(&root).unwrap().entry("app/.env").unwrap().is_some());
        // A folder that Git ignores as a whole is read as a folder of its own.
        let inside = Directory::open(&root.join("app/data")).unwrap();
        assert!(inside.entry("kept.env").unwrap().is_some());
    }

    #[test]
    fn damaged_repository_is_an_error_with_its_cause() {
        let dir = tempfile::tempdir().unwrap();
        git(dir.path(), &["init", "-q"]);
        fs::write(dir.path().join(".git/index"), "damaged").unwrap();
        let error = Directory::open(dir.path()).unwrap_err().to_string();
        assert!(error.starts_with("could not read which files Git ignores: "), "{error}");
    }
}
