//! The files of a plain folder, for `driftless validate DIR`: as if its content were a commit.
//!
//! Nothing outside the folder is readable, even through links, nor is `.git`. Devices, sockets and pipes do not exist,
//! since opening one could block for ever. `.gitignore` has no effect.

use std::{
    collections::BTreeMap,
    fs,
    io::{self, Read},
    os::unix::fs::PermissionsExt,
    path::{Component, Path, PathBuf},
    sync::Arc,
};

use super::lfs;
use driftless_files::{Entry, Files, ReadError};

/// A folder on disk.
#[derive(Clone, Debug)]
pub struct Directory {
    /// Without links.
    root: PathBuf,
}

/// The folder that is never read.
const GIT: &str = ".git";

impl Directory {
    /// The folder must exist.
    pub fn open(path: &Path) -> io::Result<Self> {
        let root = fs::canonicalize(path)?;
        if !root.is_dir() {
            return Err(io::ErrorKind::NotADirectory.into());
        }
        Ok(Self { root })
    }

    /// The place on disk, with all links followed; `None` if there is nothing, or if it is out of bounds.
    fn find(&self, path: &str) -> Result<Option<(PathBuf, fs::Metadata)>, ReadError> {
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
        let Some((place, _)) = self.find(folder)?.filter(|(_, metadata)| metadata.is_dir()) else {
            return Ok(Vec::new());
        };
        let mut entries = Vec::new();
        for file in fs::read_dir(place).map_err(|error| damaged(folder, &error))? {
            let file = file.map_err(|error| damaged(folder, &error))?;
            let Ok(name) = file.file_name().into_string() else { continue };
            let path = if folder.is_empty() { name.clone() } else { format!("{folder}/{name}") };
            if let Some(entry) = self.entry(&path)? {
                entries.push((name, entry));
            }
        }
        entries.sort_by(|(one, _), (other, _)| one.cmp(other));
        Ok(entries)
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
            if let (Some(name), Some(target)) = (name, target.to_str()) {
                links.insert(name, target.to_owned());
            }
        }
        Ok(links)
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
        if lfs::is_pointer(&bytes) {
            return Err(ReadError::LfsPointer { path: path.to_owned() });
        }
        Ok(Arc::from(bytes))
    }

    /// A folder is read once; nothing follows that it could be compared with.
    fn id(&self, _path: &str) -> Result<Option<String>, ReadError> {
        Ok(None)
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
}
