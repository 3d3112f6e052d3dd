//! Files that lie on the host and not in Git, at the paths where manifests look for them.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::{Arc, Mutex, PoisonError},
};

use super::{Entry, Files, ReadError};

/// A file of the host that stands for one of the repository.
#[derive(Clone, PartialEq, Eq)]
pub struct HostFile {
    /// From the repository's root.
    pub path: String,
    /// The source as findings name it, such as the path of a file.
    pub source: String,
    /// The content, or why it could not be read.
    pub content: Result<Arc<[u8]>, String>,
    /// Whether the content may reach neither a disk in clear nor a message.
    pub is_secret: bool,
}

/// Without the content, which may be secret.
impl fmt::Debug for HostFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HostFile").field("path", &self.path).finish_non_exhaustive()
    }
}

/// Files of a repository together with those of the host. A file that Git has is Git's.
///
/// No folder lists the files of the host: neither a mounted folder nor the context of a build has them.
#[derive(Debug)]
pub struct WithHostFiles<'a> {
    files: &'a dyn Files,
    host: &'a [HostFile],
    /// The paths of files of the host that were asked for.
    asked: Mutex<BTreeSet<String>>,
}

impl<'a> WithHostFiles<'a> {
    /// Of two files of the host with one path the later one counts.
    pub fn new(files: &'a dyn Files, host: &'a [HostFile]) -> Self {
        Self { files, host, asked: Mutex::default() }
    }

    /// The paths of files of the host that were asked for so far, also of those that Git has.
    pub fn asked(&self) -> BTreeSet<String> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The file of the host at a path where Git has none.
    fn of_host(&self, path: &str) -> Result<Option<&HostFile>, ReadError> {
        let Some(found) = self.host.iter().rfind(|file| file.path == path) else { return Ok(None) };
        self.asked.lock().unwrap_or_else(PoisonError::into_inner).insert(path.to_owned());
        Ok(self.files.entry(path)?.is_none().then_some(found))
    }
}

impl Files for WithHostFiles<'_> {
    fn entry(&self, path: &str) -> Result<Option<Entry>, ReadError> {
        match self.of_host(path)? {
            Some(HostFile { content, .. }) => {
                let size = content.as_ref().map_or(0, |content| content.len()) as u64;
                Ok(Some(Entry::File { size, executable: false }))
            }
            None => self.files.entry(path),
        }
    }

    fn list(&self, folder: &str) -> Result<Vec<(String, Entry)>, ReadError> {
        self.files.list(folder)
    }

    fn links(&self, folder: &str) -> Result<BTreeMap<String, String>, ReadError> {
        self.files.links(folder)
    }

    fn ignored(&self, folder: &str) -> Result<Vec<String>, ReadError> {
        self.files.ignored(folder)
    }

    fn read(&self, path: &str, limit: u64) -> Result<Arc<[u8]>, ReadError> {
        let Some(HostFile { content, .. }) = self.of_host(path)? else {
            return self.files.read(path, limit);
        };
        let path = path.to_owned();
        match content {
            Ok(content) if content.len() as u64 > limit => {
                Err(ReadError::TooLarge { path, size: content.len() as u64, limit })
            }
            Ok(content) => Ok(Arc::clone(content)),
            Err(message) => Err(ReadError::Host { path, message: message.clone() }),
        }
    }

    fn id(&self, path: &str) -> Result<Option<String>, ReadError> {
        self.files.id(path)
    }

    fn similar(&self, path: &str) -> Result<Option<String>, ReadError> {
        self.files.similar(path)
    }

    fn is_encrypted(&self, path: &str) -> bool {
        match self.of_host(path) {
            Ok(Some(file)) => file.is_secret,
            Ok(None) | Err(_) => self.files.is_encrypted(path),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemoryFiles;

    #[test]
    fn files_of_the_host_stand_where_git_has_none() {
        let git = MemoryFiles::new([("shop/compose.yaml", "services: {}\n"), ("shop/.env", "A=git\n")]);
        let file = |path: &str, content: Result<&str, &str>| HostFile {
            path: path.to_owned(),
            source: format!("/etc/{path}"),
            content: content.map(|text| text.as_bytes().into()).map_err(str::to_owned),
            is_secret: true,
        };
        let host = [
            file("shop/.env", Ok("A=host\n")),
            file("shop/db.env", Ok("B=old\n")),
            file("shop/db.env", Ok("B=1\n")),
            file("shop/lost.env", Err("could not read /etc/lost.env: gone")),
        ];
        let files = WithHostFiles::new(&git, &host);
        assert_eq!(files.read("shop/.env", 99).as_deref(), Ok(b"A=git\n".as_slice()));
        assert_eq!(files.read("shop/db.env", 99).as_deref(), Ok(b"B=1\n".as_slice()));
        assert_eq!(files.entry("shop/db.env"), Ok(Some(Entry::File { size: 4, executable: false })));
        assert!(matches!(files.read("shop/db.env", 3), Err(ReadError::TooLarge { size: 4, limit: 3, .. })));
        assert!(files.is_encrypted("shop/db.env") && !files.is_encrypted("shop/.env"));
        let lost = files.read("shop/lost.env", 99).unwrap_err().to_string();
        assert_eq!(lost, "`shop/lost.env`: could not read /etc/lost.env: gone");
        let listed: Vec<String> = files.list("shop").unwrap().into_iter().map(|(name, _)| name).collect();
        assert_eq!(listed, [".env", "compose.yaml"], "no folder has them");
        assert_eq!(files.entry("shop/other.env"), Ok(None));
        let asked: Vec<String> = files.asked().into_iter().collect();
        assert_eq!(asked, ["shop/.env", "shop/db.env", "shop/lost.env"]);
    }
}
