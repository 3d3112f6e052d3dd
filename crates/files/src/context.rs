//! What a build is given: the files of a folder of the commit after `.dockerignore`, and the Dockerfile. Read when the
//! manifest is rendered, to name it by its content, and once more when it is sent to the engine. Nothing is kept
//! in memory, and there is never a work tree.

use std::{collections::BTreeMap, sync::Arc};

use super::{
    files::{Entry, Files},
    ignore::{Ignore, Inherited},
};
use driftless_model::{Build, Dockerfile, digest_hex};

/// What one context may hold in all, in bytes, and one file of it.
const LARGEST: u64 = 1 << 30;
const LARGEST_FILE: u64 = 256 << 20;
/// And how many files and folders.
const MOST: usize = 100_000;
/// Folders inside folders.
const DEEPEST: usize = 64;
/// A Dockerfile or `.dockerignore`.
const LARGEST_TEXT: u64 = 1 << 20;

/// The name that is looked for without `dockerfile`.
pub const DOCKERFILE: &str = "Dockerfile";
const IGNORE: &str = ".dockerignore";

/// The files of one build, by their paths inside the context, so that a folder comes before what is in it.
#[derive(Debug)]
pub struct Context {
    pub entries: BTreeMap<String, ContextEntry>,
    /// The instructions.
    pub dockerfile: Arc<[u8]>,
    /// Where the instructions are inside the context, if they are there and not left out.
    pub dockerfile_inside: Option<String>,
    folder: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ContextEntry {
    Folder,
    File {
        size: u64,
        executable: bool,
    },
    /// Not followed: what it says.
    Link(String),
}

impl Context {
    /// Looks at what a build may use. An error is in words for whoever wrote the manifest.
    pub fn of(files: &dyn Files, build: &Build) -> Result<Self, String> {
        let folder = build.context.as_str();
        match files.entry(folder).map_err(|it| it.to_string())? {
            Some(Entry::Folder) => {}
            Some(Entry::File { .. }) => {
                return Err(format!("`{folder}` is a file, and not a folder to build in"));
            }
            Some(Entry::Submodule) => {
                return Err(format!("`{folder}` is a submodule, and those are not fetched"));
            }
            None => return Err(format!("the folder `{folder}` does not exist in the repository")),
        }
        let (path, dockerfile) = match &build.dockerfile {
            Dockerfile::Inline(text) => (None, Arc::from(text.as_bytes())),
            Dockerfile::Path(path) => {
                (Some(path.as_str()), files.read(path, LARGEST_TEXT).map_err(|it| it.to_string())?)
            }
        };
        let ignore = ignore_of(files, folder, path)?;
        let mut walk = Walk { files, ignore: &ignore, folder, entries: BTreeMap::new(), size: 0 };
        walk.folder("", &ignore.top(), DEEPEST)?;
        let inside = path.and_then(|it| {
            if folder.is_empty() { Some(it) } else { it.strip_prefix(folder)?.strip_prefix('/') }
        });
        let is_file = |it: &&str| matches!(walk.entries.get(*it), Some(ContextEntry::File { .. }));
        let dockerfile_inside = inside.filter(is_file).map(str::to_owned);
        Ok(Self { entries: walk.entries, dockerfile, dockerfile_inside, folder: folder.to_owned() })
    }

    /// The bytes of one of its files.
    pub fn read(&self, files: &dyn Files, path: &str) -> Result<Arc<[u8]>, String> {
        files.read(&join(&self.folder, path), LARGEST_FILE).map_err(|it| it.to_string())
    }

    /// The digest of names, modes and bytes of all, and of the instructions.
    pub fn digest(&self, files: &dyn Files) -> Result<String, String> {
        let mut text = format!("dockerfile {}\n", digest_hex(&self.dockerfile));
        for (path, entry) in &self.entries {
            let line = match entry {
                ContextEntry::Folder => format!("d {path}\n"),
                ContextEntry::Link(target) => format!("l {} {path}\n", digest_hex(target.as_bytes())),
                ContextEntry::File { size: _, executable } => {
                    let mode = if *executable { 'x' } else { '-' };
                    format!("{mode} {} {path}\n", digest_hex(&self.read(files, path)?))
                }
            };
            text.push_str(&line);
        }
        Ok(digest_hex(text.as_bytes()))
    }
}

/// `web.Dockerfile.dockerignore` beside its Dockerfile counts before the context's own.
fn ignore_of(files: &dyn Files, folder: &str, dockerfile: Option<&str>) -> Result<Ignore, String> {
    let beside = dockerfile.map(|it| format!("{it}{IGNORE}"));
    for path in beside.into_iter().chain([join(folder, IGNORE)]) {
        if !matches!(files.entry(&path).map_err(|it| it.to_string())?, Some(Entry::File { .. })) {
            continue;
        }
        let bytes = files.read(&path, LARGEST_TEXT).map_err(|it| it.to_string())?;
        return Ignore::parse(&String::from_utf8_lossy(&bytes)).map_err(|why| format!("`{path}`, {why}"));
    }
    Ok(Ignore::default())
}

struct Walk<'a> {
    files: &'a dyn Files,
    ignore: &'a Ignore,
    /// From the repository's root.
    folder: &'a str,
    entries: BTreeMap<String, ContextEntry>,
    size: u64,
}

impl Walk<'_> {
    /// `inside` is the path inside the context.
    fn folder(&mut self, inside: &str, above: &Inherited, depth: usize) -> Result<(), String> {
        let here = join(self.folder, inside);
        if depth == 0 {
            return Err(format!("`{here}` lies too deep"));
        }
        let mut links = self.files.links(&here).map_err(|it| it.to_string())?;
        for (name, entry) in self.files.list(&here).map_err(|it| it.to_string())? {
            if links.contains_key(&name) {
                continue;
            }
            let path = join(inside, &name);
            let (is_out, judged) = self.ignore.judge(above, &path);
            match entry {
                Entry::Folder => {
                    if !is_out {
                        self.put(path.clone(), ContextEntry::Folder)?;
                    }
                    if !is_out || self.ignore.may_take_back() {
                        self.folder(&path, &judged, depth - 1)?;
                    }
                }
                Entry::File { .. } | Entry::Submodule if is_out => {}
                Entry::Submodule => {
                    return Err(format!(
                        "`{}` is a submodule, and those are not fetched",
                        join(&here, &name)
                    ));
                }
                Entry::File { size, executable } => {
                    self.size = self.size.saturating_add(size);
                    self.put(path, ContextEntry::File { size, executable })?;
                }
            }
        }
        for (name, target) in std::mem::take(&mut links) {
            let path = join(inside, &name);
            if !self.ignore.judge(above, &path).0 {
                self.put(path, ContextEntry::Link(target))?;
            }
        }
        Ok(())
    }

    /// With the folders that it lies in, which may be left out themselves.
    fn put(&mut self, path: String, entry: ContextEntry) -> Result<(), String> {
        for (end, _) in path.match_indices('/') {
            let above = &path[..end];
            if !self.entries.contains_key(above) {
                self.entries.insert(above.to_owned(), ContextEntry::Folder);
            }
        }
        self.entries.insert(path, entry);
        if self.entries.len() > MOST || self.size > LARGEST {
            let mib = LARGEST >> 20;
            let place = if self.folder.is_empty() { "." } else { self.folder };
            return Err(format!(
                "`{place}` has more than {MOST} files or {mib} MiB; leave out with `.dockerignore` what the build does not need"
            ));
        }
        Ok(())
    }
}

fn join(folder: &str, path: &str) -> String {
    match (folder.is_empty(), path.is_empty()) {
        (true, _) => path.to_owned(),
        (_, true) => folder.to_owned(),
        (false, false) => format!("{folder}/{path}"),
    }
}

#[cfg(test)]
mod tests {
    use super::{super::MemoryFiles, *};

    fn build() -> Build {
        let dockerfile = Dockerfile::Path("app/Dockerfile".into());
        Build { context: "app".into(), dockerfile, ..Build::default() }
    }

    #[test]
    fn what_is_ignored_changes_no_digest() {
        let digest = |files: &[(&str, &str)]| {
            let base = [
                ("app/Dockerfile", "FROM scratch"),
                ("app/src/a", "1"),
                ("app/.dockerignore", "*.md\nDockerfile"),
            ];
            let files = MemoryFiles::new(base.into_iter().chain(files.iter().copied()));
            let context = Context::of(&files, &build()).unwrap();
            assert_eq!(context.dockerfile_inside, None);
            (context.digest(&files).unwrap(), context.entries.keys().cloned().collect::<Vec<_>>())
        };
        let (before, names) = digest(&[]);
        assert_eq!(names, [".dockerignore", "src", "src/a"]);
        assert_eq!(digest(&[("app/README.md", "x"), ("other/b", "x")]).0, before);
        assert_ne!(digest(&[("app/src/b", "x")]).0, before);
        assert_ne!(digest(&[("app/Dockerfile", "FROM other")]).0, before);
    }

    #[test]
    fn what_is_taken_back_comes_with_its_folders() {
        let files = MemoryFiles::new([
            ("app/Dockerfile", ""),
            ("app/a/b/c", ""),
            ("app/a/d", ""),
            ("app/.dockerignore", "*\n!a/b/c"),
        ]);
        let context = Context::of(&files, &build()).unwrap();
        assert_eq!(context.entries.keys().collect::<Vec<_>>(), ["a", "a/b", "a/b/c"]);
    }

    #[test]
    fn a_file_beside_the_dockerfile_counts_before_the_contexts_own() {
        let files = MemoryFiles::new([
            ("app/Dockerfile", ""),
            ("app/.dockerignore", "*"),
            ("app/Dockerfile.dockerignore", "a"),
        ]);
        let context = Context::of(&files, &build()).unwrap();
        assert_eq!(context.dockerfile_inside.as_deref(), Some("Dockerfile"));
        assert_eq!(context.entries.len(), 3);
    }

    #[test]
    fn what_is_not_there_is_told() {
        let files = MemoryFiles::new([("app/a", "")]);
        let error = |build: &Build| Context::of(&files, build).unwrap_err();
        assert_eq!(error(&build()), "`app/Dockerfile` does not exist in the repository");
        let elsewhere = Build { context: "web".into(), ..build() };
        assert_eq!(error(&elsewhere), "the folder `web` does not exist in the repository");
    }
}
