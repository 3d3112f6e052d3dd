//! The context of an image build: the files of a folder of the commit after `.dockerignore`, and the Dockerfile. It is
//! read when the manifest is rendered, to name the image by its content, and again when it is sent to the engine. Nothing
//! is kept in memory, and there is no work tree.

use std::{collections::BTreeMap, sync::Arc};

use super::{
    dockerfile::with_images,
    files::{Entry, Files},
    ignore::{Ignore, Inherited},
};
use driftless_model::{Build, Dockerfile, digest_hex};

/// The most bytes of a context.
const LARGEST: u64 = 1 << 30;
/// The most bytes of one of its files.
const LARGEST_FILE: u64 = 256 << 20;
/// The most files and folders of a context.
const MOST: usize = 100_000;
/// The most folders inside folders.
const DEEPEST: usize = 64;
/// The most bytes of a Dockerfile or `.dockerignore`.
const LARGEST_TEXT: u64 = 1 << 20;

/// The default of `dockerfile`.
pub const DOCKERFILE: &str = "Dockerfile";
const IGNORE: &str = ".dockerignore";

/// The files of one build.
#[derive(Debug)]
pub struct Context {
    /// By path inside the context, so a folder comes before its content.
    pub entries: BTreeMap<String, ContextEntry>,
    /// The Dockerfile.
    pub dockerfile: Arc<[u8]>,
    /// The path of the Dockerfile inside the context. `None`: it is outside or ignored.
    pub dockerfile_inside: Option<String>,
    folder: String,
}

/// One path of a context.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ContextEntry {
    /// A folder.
    Folder,
    /// A file.
    File {
        /// In bytes.
        size: u64,
        /// Whether its mode has an executable bit.
        executable: bool,
    },
    /// A symbolic link with its target. It is not followed.
    Link(String),
}

impl Context {
    /// Lists the files of a build.
    ///
    /// # Errors
    /// A message for the author of the manifest.
    pub fn of(files: &dyn Files, build: &Build) -> Result<Self, String> {
        let folder = build.context.as_str();
        match files.entry(folder).map_err(|it| it.to_string())? {
            Some(Entry::Folder) => {}
            Some(Entry::File { .. }) => {
                return Err(format!("`{folder}` is a file; a build context must be a folder"));
            }
            Some(Entry::Submodule) => {
                return Err(format!("`{folder}` is a submodule, which is not fetched"));
            }
            None => return Err(format!("the folder `{folder}` does not exist in the repository")),
        }
        let (named, path, dockerfile) = match &build.dockerfile {
            Dockerfile::Inline(text) => (None, None, Arc::from(text.as_bytes())),
            Dockerfile::Path(named) => {
                let path = in_lower_case(files, named)?.unwrap_or_else(|| named.clone());
                let text = files.read(&path, LARGEST_TEXT).map_err(|it| it.to_string())?;
                (Some(named.as_str()), Some(path), text)
            }
        };
        let ignore = ignore_of(files, folder, named)?;
        let mut walk = Walk { files, ignore: &ignore, folder, entries: BTreeMap::new(), size: 0 };
        walk.folder("", &ignore.top(), DEEPEST)?;
        let inside = path.as_deref().and_then(|path| {
            if folder.is_empty() { Some(path) } else { path.strip_prefix(folder)?.strip_prefix('/') }
        });
        let is_file = |it: &&str| matches!(walk.entries.get(*it), Some(ContextEntry::File { .. }));
        let dockerfile_inside = inside.filter(is_file).map(str::to_owned);
        Ok(Self { entries: walk.entries, dockerfile, dockerfile_inside, folder: folder.to_owned() })
    }

    /// The context for the engine: its Dockerfile names the bases that the application builds by their content, because their other
    /// names may move at any time.
    #[must_use]
    pub fn with_bases(mut self, build: &Build) -> Self {
        if !build.bases.is_empty() {
            self.dockerfile = Arc::from(with_images(&self.dockerfile, &build.args, &build.bases));
            self.dockerfile_inside = None;
        }
        self
    }

    /// The bytes of a file of the context.
    ///
    /// # Errors
    /// A message if the file cannot be read.
    pub fn read(&self, files: &dyn Files, path: &str) -> Result<Arc<[u8]>, String> {
        files.read(&join(&self.folder, path), LARGEST_FILE).map_err(|it| it.to_string())
    }

    /// The digest of all names, modes and bytes, and of the Dockerfile.
    ///
    /// # Errors
    /// A message if a file cannot be read.
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

/// The path of a file `dockerfile`, which `BuildKit` takes if there is no `Dockerfile`.
fn in_lower_case(files: &dyn Files, named: &str) -> Result<Option<String>, String> {
    let Some(folder) = named.strip_suffix(DOCKERFILE).filter(|it| it.is_empty() || it.ends_with('/')) else {
        return Ok(None);
    };
    let lower = format!("{folder}{}", DOCKERFILE.to_lowercase());
    let is_missing = files.entry(named).map_err(|it| it.to_string())?.is_none();
    let is_there = is_missing && matches!(files.entry(&lower), Ok(Some(Entry::File { .. })));
    Ok(is_there.then_some(lower))
}

/// The rules of `web.Dockerfile.dockerignore` next to its Dockerfile, or else of `.dockerignore` in the context.
fn ignore_of(files: &dyn Files, folder: &str, dockerfile: Option<&str>) -> Result<Ignore, String> {
    let own = dockerfile.map(|it| format!("{it}{IGNORE}"));
    for path in own.into_iter().chain([join(folder, IGNORE)]) {
        if !matches!(files.entry(&path).map_err(|it| it.to_string())?, Some(Entry::File { .. })) {
            continue;
        }
        let bytes = files.read(&path, LARGEST_TEXT).map_err(|it| it.to_string())?;
        return Ignore::parse(&String::from_utf8_lossy(&bytes)).map_err(|why| format!("`{path}`, {why}"));
    }
    Ok(Ignore::default())
}

/// One walk over the folder of a context.
struct Walk<'a> {
    files: &'a dyn Files,
    ignore: &'a Ignore,
    /// From the repository's root.
    folder: &'a str,
    entries: BTreeMap<String, ContextEntry>,
    size: u64,
}

impl Walk<'_> {
    /// Adds a folder. `inside` is its path inside the context.
    fn folder(&mut self, inside: &str, above: &Inherited, depth: usize) -> Result<(), String> {
        let here = join(self.folder, inside);
        if depth == 0 {
            return Err(format!("`{here}` is nested too deep"));
        }
        let mut links = self.files.links(&here).map_err(|it| it.to_string())?;
        for (name, entry) in self.files.list(&here).map_err(|it| it.to_string())? {
            if links.contains_key(&name) {
                continue;
            }
            let path = join(inside, &name);
            let (is_out, below) = self.ignore.check(above, &path);
            match entry {
                Entry::Folder => {
                    if !is_out {
                        self.put(path.clone(), ContextEntry::Folder)?;
                    }
                    if !is_out || self.ignore.may_include_again() {
                        self.folder(&path, &below, depth - 1)?;
                    }
                }
                Entry::File { .. } | Entry::Submodule if is_out => {}
                Entry::Submodule => {
                    return Err(format!("`{}` is a submodule, which is not fetched", join(&here, &name)));
                }
                Entry::File { size, executable } => {
                    self.size = self.size.saturating_add(size);
                    self.put(path, ContextEntry::File { size, executable })?;
                }
            }
        }
        for (name, target) in std::mem::take(&mut links) {
            let path = join(inside, &name);
            if !self.ignore.check(above, &path).0 {
                self.put(path, ContextEntry::Link(target))?;
            }
        }
        Ok(())
    }

    /// Adds an entry with the folders that contain it, which may be ignored themselves.
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
                "`{place}` has more than {MOST} files or {mib} MiB; exclude files that the build does not need in `.dockerignore`"
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
    fn ignored_files_do_not_change_the_digest() {
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
    fn re_included_files_come_with_their_folders() {
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
    fn dockerignore_next_to_the_dockerfile_wins() {
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
    fn dockerfile_in_lower_case_stands_for_a_missing_one() {
        let lower = ("app/dockerfile", "FROM lower");
        let context = Context::of(&MemoryFiles::new([lower]), &build()).unwrap();
        assert_eq!(
            (context.dockerfile_inside.as_deref(), &*context.dockerfile),
            (Some("dockerfile"), &b"FROM lower"[..])
        );
        let both = MemoryFiles::new([lower, ("app/Dockerfile", "FROM upper")]);
        assert_eq!(&*Context::of(&both, &build()).unwrap().dockerfile, b"FROM upper");
        let other = Build { dockerfile: Dockerfile::Path("app/web.Dockerfile".into()), ..build() };
        assert!(Context::of(&MemoryFiles::new([lower, ("app/web.dockerfile", "")]), &other).is_err());
    }

    #[test]
    fn bases_of_the_application_are_named_by_their_content() {
        let files = MemoryFiles::new([("app/Dockerfile", "FROM base\n")]);
        let context = |build: &Build| Context::of(&files, build).unwrap().with_bases(build);
        let plain = context(&build());
        assert_eq!((&*plain.dockerfile, plain.dockerfile_inside.is_some()), (&b"FROM base\n"[..], true));
        let bases = BTreeMap::from([("base".to_owned(), "base:00".to_owned())]);
        let pinned = context(&Build { bases, ..build() });
        assert_eq!((&*pinned.dockerfile, pinned.dockerfile_inside), (&b"FROM base:00\n"[..], None));
    }

    #[test]
    fn missing_files_are_errors() {
        let files = MemoryFiles::new([("app/a", "")]);
        let error = |build: &Build| Context::of(&files, build).unwrap_err();
        assert_eq!(error(&build()), "`app/Dockerfile` does not exist in the repository");
        let elsewhere = Build { context: "web".into(), ..build() };
        assert_eq!(error(&elsewhere), "the folder `web` does not exist in the repository");
    }
}
