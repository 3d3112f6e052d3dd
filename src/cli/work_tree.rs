//! The files of a clone as the agent will have them, compared with those on disk while they are read.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt, io,
    path::Path,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use driftless_files::{Entry, Files, ReadError, paths};
use driftless_git::Directory;
use driftless_model::{AppName, Finding, Format, Location, Stack};

/// The largest file of variables that is read for its names, in bytes.
const LARGEST: u64 = 1 << 20;

/// The variable that names a project.
const PROJECT_NAME: &str = "COMPOSE_PROJECT_NAME";

/// Folders inside folders whose ignored files are searched. A deeper one may be a link that leads back.
const DEEPEST: usize = 8;

/// The files of the index or of the work tree.
pub(super) struct WorkTree {
    /// `None`: the files on disk.
    index: Option<Arc<dyn Files>>,
    /// The files on disk without those that Git ignores.
    disk: Directory,
    /// All files on disk.
    everything: Directory,
    seen: Mutex<Seen>,
}

/// The files that were asked for.
#[derive(Default)]
struct Seen {
    differences: BTreeMap<String, Difference>,
    /// The YAML files that were read.
    manifests: BTreeSet<String>,
}

/// Difference between a file in the index and on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Difference {
    Changed,
    Deleted,
    NotAdded,
}

impl WorkTree {
    /// Opens the work tree at `root`, to read `index` or, without it, the files on disk.
    pub(super) fn open(root: &Path, index: Option<Arc<dyn Files>>) -> io::Result<Self> {
        let (disk, everything) = (Directory::open(root)?, Directory::with_ignored(root)?);
        Ok(Self { index, disk, everything, seen: Mutex::default() })
    }

    /// Warnings about files that the agent will not have as they are on disk, and about the variables in them.
    /// `applications` are the folders of the applications.
    pub(super) fn findings(&self, applications: &[&str]) -> Vec<Finding> {
        let mut findings = self.disk.ignored_findings();
        let seen = self.seen();
        for finding in &mut findings {
            let names = self.used_variables(&finding.location.file, &seen.manifests);
            if !names.is_empty() {
                let names: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
                finding.message = format!(
                    "is ignored by Git, so it is not read: the agent does not have its variables {}, which the \
                     project uses",
                    names.join(", ")
                );
            }
        }
        for (path, difference) in &seen.differences {
            let (message, command) = match difference {
                Difference::Changed => ("differs on disk from what `git add` has seen, which is read", "add"),
                Difference::Deleted => ("is not on disk any more, and is still in Git", "rm"),
                Difference::NotAdded if !is_relevant(path, applications) => continue,
                Difference::NotAdded => {
                    ("is not in Git, so it is not read: the agent would not have it", "add")
                }
            };
            let help = format!("`git {command} {path}`, or check the files on disk with --worktree");
            findings.push(Finding::warning(Location::file(path), "", message).help(help));
        }
        findings
    }

    /// Warnings about projects that have another name for the agent than for Docker Compose, which reads it from a `.env` that is not
    /// in Git. Containers and volumes of another project are not found.
    pub(super) fn renamed_projects<'a>(
        &self,
        applications: impl IntoIterator<Item = (&'a str, &'a Stack)>,
    ) -> Vec<Finding> {
        let renamed = |(folder, stack): (&str, &Stack)| {
            let file = if folder.is_empty() { ".env".to_owned() } else { format!("{folder}/.env") };
            let is_read = !matches!(self.files().entry(&file), Ok(None));
            if is_read || stack.format != Format::Compose {
                return None;
            }
            let bytes = self.everything.read(&file, LARGEST).ok()?;
            let (line, name) = named_project(&String::from_utf8_lossy(&bytes))?;
            let agents = &stack.project;
            if name.as_str() == agents {
                return None;
            }
            let message = format!(
                "is not read, so the project is `{agents}` for the agent and `{name}` for Docker Compose"
            );
            let manifest = stack.manifests.first().map_or("the Compose file", String::as_str);
            let help = format!(
                "write `name: {name}` into {manifest}: the agent would not find the containers and volumes of `{name}`"
            );
            let place = Location::new(file, line, 0);
            Some(Finding::warning(place, PROJECT_NAME, message).help(help))
        };
        applications.into_iter().filter_map(renamed).collect()
    }

    /// The error about a folder to search that is on disk and not in Git. `None`: Git has it, or it does not exist.
    pub(super) fn not_added(&self, folder: &str) -> Option<Finding> {
        let index = self.index.as_ref()?;
        let is_new = matches!(index.entry(folder), Ok(None))
            && matches!(self.disk.entry(folder), Ok(Some(Entry::Folder)));
        let message = "is not in Git, so it is not read: the agent would not have it";
        let help = format!("`git add {folder}`, or check the files on disk with --worktree");
        is_new.then(|| Finding::error(Location::file(folder), "", message).help(help))
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn record(&self, path: &str, difference: Difference) {
        self.seen().differences.insert(path.to_owned(), difference);
    }

    /// The files that Git ignores in a folder, and in those below that have no file in Git. One that may not be read, as a folder of
    /// a container's user, has none: Git does not have it either way.
    fn ignored_in(&self, folder: &str, depth: usize) -> Vec<String> {
        let mut found = self.disk.ignored(folder).unwrap_or_default();
        let Some(index) = self.index.as_ref().filter(|_| depth > 0) else { return found };
        let (Ok(listed), Ok(on_disk)) = (index.list(folder), self.disk.list(folder)) else { return found };
        let is_new = |name: &String| listed.iter().all(|(listed, _)| listed != name);
        for (name, entry) in on_disk {
            if entry == Entry::Folder && is_new(&name) {
                let below = if folder.is_empty() { name.clone() } else { format!("{folder}/{name}") };
                let inside = self.ignored_in(&below, depth - 1);
                found.extend(inside.into_iter().map(|inside| format!("{name}/{inside}")));
            }
        }
        found
    }

    /// The files that are read.
    fn files(&self) -> &dyn Files {
        self.index.as_deref().unwrap_or(&self.disk)
    }

    /// The variables of a file that manifests in its folder and below refer to.
    fn used_variables(&self, file: &str, manifests: &BTreeSet<String>) -> BTreeSet<String> {
        if !is_env_file(file) {
            return BTreeSet::new();
        }
        let text = |files: &dyn Files, path: &str| {
            let bytes = files.read(path, LARGEST).ok()?;
            Some(String::from_utf8_lossy(&bytes).into_owned())
        };
        let mut names = text(&self.everything, file).map(|text| variable_names(&text)).unwrap_or_default();
        let folder = paths::parent(file);
        let below = format!("{folder}/");
        let manifests = manifests.iter().filter(|path| folder.is_empty() || path.starts_with(&below));
        let texts: Vec<String> = manifests.filter_map(|path| text(self.files(), path)).collect();
        let is_used =
            |name: &str| is_of_compose(file, name) || texts.iter().any(|text| uses_variable(text, name));
        names.retain(|name| is_used(name));
        names
    }
}

impl Files for WorkTree {
    fn entry(&self, path: &str) -> Result<Option<Entry>, ReadError> {
        let Some(index) = &self.index else { return self.disk.entry(path) };
        let entry = index.entry(path)?;
        let on_disk = self.disk.entry(path)?;
        match (&entry, &on_disk) {
            (Some(Entry::File { .. }), None) => self.record(path, Difference::Deleted),
            // A file of a submodule exists, but is not read.
            (None, Some(Entry::File { .. })) if matches!(index.read(path, 0), Err(ReadError::Missing(_))) => {
                self.record(path, Difference::NotAdded);
            }
            (None | Some(_), _) => {}
        }
        Ok(entry)
    }

    fn list(&self, folder: &str) -> Result<Vec<(String, Entry)>, ReadError> {
        let Some(index) = &self.index else { return self.disk.list(folder) };
        let listed = index.list(folder)?;
        let is_in_index = |name: &String| listed.iter().any(|(listed, _)| listed == name);
        // A folder that is only on disk is recorded as a whole by the one above.
        let on_disk = if matches!(index.entry(folder)?, Some(Entry::Folder)) {
            self.disk.list(folder)?
        } else {
            Vec::new()
        };
        for (name, entry) in on_disk.into_iter().filter(|(name, _)| !is_in_index(name)) {
            let path = if folder.is_empty() { name } else { format!("{folder}/{name}") };
            let is_new = match entry {
                Entry::File { .. } => true,
                // Git does not have it, so it is no error that it may not be read.
                Entry::Folder => {
                    self.disk.list(&path).is_ok_and(|inside| inside.iter().any(|(name, _)| is_yaml(name)))
                }
                Entry::Submodule => false,
            };
            if is_new {
                let path = if entry == Entry::Folder { format!("{path}/") } else { path };
                self.record(&path, Difference::NotAdded);
            }
        }
        Ok(listed)
    }

    fn links(&self, folder: &str) -> Result<BTreeMap<String, String>, ReadError> {
        self.files().links(folder)
    }

    fn ignored(&self, folder: &str) -> Result<Vec<String>, ReadError> {
        Ok(self.ignored_in(folder, DEEPEST))
    }

    fn read(&self, path: &str, limit: u64) -> Result<Arc<[u8]>, ReadError> {
        if is_yaml(path) {
            self.seen().manifests.insert(path.to_owned());
        }
        let Some(index) = &self.index else { return self.disk.read(path, limit) };
        let bytes = index.read(path, limit)?;
        match self.disk.read(path, limit) {
            Ok(on_disk) if !is_same_text(&bytes, &on_disk) => self.record(path, Difference::Changed),
            Ok(_) => {}
            Err(ReadError::Missing(_) | ReadError::Folder(_)) => self.record(path, Difference::Deleted),
            Err(_) => self.record(path, Difference::Changed),
        }
        Ok(bytes)
    }

    fn id(&self, path: &str) -> Result<Option<String>, ReadError> {
        self.files().id(path)
    }

    fn similar(&self, path: &str) -> Result<Option<String>, ReadError> {
        self.files().similar(path)
    }

    fn is_encrypted(&self, path: &str) -> bool {
        self.files().is_encrypted(path)
    }
}

impl fmt::Debug for WorkTree {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorkTree").field("disk", &self.disk).finish_non_exhaustive()
    }
}

/// Git may write line ends of another system to the disk.
fn is_same_text(one: &[u8], other: &[u8]) -> bool {
    let without_returns = |bytes: &[u8]| -> Vec<u8> {
        let mut bytes = bytes.to_vec();
        bytes.retain(|byte| *byte != b'\r');
        bytes
    };
    one == other || without_returns(one) == without_returns(other)
}

fn is_yaml(path: &str) -> bool {
    [".yaml", ".yml"].iter().any(|end| path.ends_with(end))
}

/// `.env`, `.env.local`, `db.env`
fn is_env_file(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path);
    name.starts_with(".env.") || name.rsplit_once('.').is_some_and(|(_, end)| end == "env")
}

/// Whether a file that is not in Git may belong to an application: a manifest, variables, or a file in a folder that one
/// mounts.
fn is_relevant(path: &str, applications: &[&str]) -> bool {
    let is_below = |folder: &&str| {
        let inside = if folder.is_empty() { Some(path) } else { path.strip_prefix(*folder) };
        inside.is_some_and(|inside| inside.trim_start_matches('/').contains('/'))
    };
    path.ends_with('/') || is_yaml(path) || is_env_file(path) || applications.iter().any(is_below)
}

/// The names that a file of variables sets.
fn variable_names(text: &str) -> BTreeSet<String> {
    let names = text.lines().filter_map(|line| {
        let line = line.trim_start().trim_start_matches('\u{feff}');
        let line = line.strip_prefix("export ").unwrap_or(line).trim_start();
        let end = line.find(|letter| !is_of_name(letter))?;
        let (name, rest) = line.split_at_checked(end)?;
        (!name.is_empty() && rest.trim_start().starts_with(['=', ':'])).then(|| name.to_owned())
    });
    names.collect()
}

/// Whether Docker Compose itself uses a variable of this file: files and profiles of the project.
fn is_of_compose(file: &str, name: &str) -> bool {
    file.rsplit('/').next() == Some(".env") && ["COMPOSE_FILE", "COMPOSE_PROFILES"].contains(&name)
}

/// The name that a file of variables gives to the project, with its line. A value with variables in it is not known here.
fn named_project(text: &str) -> Option<(u32, AppName)> {
    let value = |line: &str| {
        let line = line.trim_start().trim_start_matches('\u{feff}');
        let line = line.strip_prefix("export ").unwrap_or(line).trim_start();
        let value = line.strip_prefix(PROJECT_NAME)?.trim_start().strip_prefix(['=', ':'])?;
        let value = value.split_once(" #").map_or(value, |(value, _)| value);
        Some(value.trim().trim_matches(['"', '\'']).to_owned())
    };
    let named = (1..).zip(text.lines()).filter_map(|(number, line)| Some((number, value(line)?)));
    let (number, value) = named.last()?;
    let is_plain = !value.contains('$');
    Some((number, AppName::normalise(&value).filter(|_| is_plain)?))
}

/// Whether a manifest has `$NAME`, `${NAME…`, or the bare name in a list or map of variables.
fn uses_variable(text: &str, name: &str) -> bool {
    let is_whole = |rest: &str| !rest.starts_with(is_of_name);
    let is_interpolated = text.match_indices('$').any(|(at, _)| {
        let rest = text.get(at + 1..).unwrap_or_default();
        let rest = rest.strip_prefix('{').unwrap_or(rest);
        rest.strip_prefix(name).is_some_and(is_whole)
    });
    let is_bare = |line: &str| {
        let line = line.trim();
        line.strip_prefix("- ").map(|item| item.trim().trim_matches(['"', '\''])) == Some(name)
            || line.strip_suffix(':').map(str::trim_end) == Some(name)
    };
    is_interpolated || text.lines().any(is_bare)
}

fn is_of_name(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || letter == '_'
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_that_manifests_use_are_found() {
        let names = variable_names("# A=1\nexport A=1\n B: 2\nC = x\nD\n\nE=\n");
        assert_eq!(names.into_iter().collect::<Vec<_>>(), ["A", "B", "C", "E"]);
        let project = |text: &str| named_project(text).map(|(line, name)| (line, name.0));
        let shop = Some((2, "shop".to_owned()));
        assert_eq!(project("A=1\nexport COMPOSE_PROJECT_NAME = \"Shop\" # mine\n"), shop);
        assert_eq!(
            project("#COMPOSE_PROJECT_NAME=a\nCOMPOSE_PROJECT_NAMES=b\nCOMPOSE_PROJECT_NAME=$C\n"),
            None
        );
        let text = "image: web:${TAG:-1}\ncommand: $RUN now\nenvironment:\n  - BARE\n  MAP:\n";
        for name in ["TAG", "RUN", "BARE", "MAP"] {
            assert!(uses_variable(text, name), "{name}");
        }
        for name in ["TA", "RU", "web", "now", "BAR"] {
            assert!(!uses_variable(text, name), "{name}");
        }
    }
}
