//! The source of each mount: Docker, the host, or files of the repository.
//!
//! A tracked path mounted read-only is mounted by its content, so it never changes under a running container. A path
//! mounted read-write, or not tracked, is in the application's own folder, and so is a read-only one that some service writes to:
//! both are one folder on the host, as with Docker Compose. Nothing is written here; the files are only collected.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use driftless_files::{AppSpec, Budget, Files, ReadError, broken_link, files::Entry, paths::at_and_above};
use driftless_model::{
    Access, Content, ContentId, ContentTree, Contents, EngineKind, Finding, Mount, MountSource,
};

use super::environment::missing_help;
use crate::{
    load::Loaded,
    read::types::{FileMount, FileSource, Source, VolumeMount, VolumeSource},
    spec::{paths, value::Placed},
};

/// The bytes that the mounted files of one application may have together.
const LARGEST_SUM: usize = 64 << 20;

const EXTERNAL_HELP: &str = "use `file`, `environment` or, for a config, `content`; or run the application in a Swarm (`engine: swarm`)";

/// Begins a warning about options of a relative path.
const WITHOUT_EFFECT: &str =
    "a relative path is mounted from the state directory of the agent, without the effect of";
const SELINUX_HELP: &str =
    "with SELinux, label the state directory once: docs/migrate.md#what-needs-attention-in-every-move";

const IGNORED_HELP: &str =
    "mount the folder by its absolute path on the host, or store the file encrypted in Git (docs/secrets.md)";

/// Ends the statement that a path is like another one.
const DIFFERENCE: &str = "which differs in letter case or Unicode form only";

/// Folders inside folders. A deeper one is a link that leads back into its own folder.
const DEEPEST: usize = 64;

/// Characters of a link's target that a warning shows.
const LONGEST_SHOWN_TARGET: usize = 100;

/// A symbolic link in the repository, with its target as Git has it.
struct AstrayLink {
    path: String,
    target: String,
}

/// The parts of a service that decide about each of its mounts.
pub(crate) struct ServiceMounts {
    /// All targets.
    pub(crate) targets: BTreeSet<String>,
    /// It has an `on-change`, the default of its mounts.
    pub(crate) has_on_change: bool,
}

/// The use of a tracked path by a service that mounts it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TrackedUse {
    /// The service reads the content of Git.
    OfGit,
    /// The service reads a path that another one writes to.
    Read,
    Write,
}

/// A mount of a path in the repository.
struct RelativePath<'a> {
    path: &'a str,
    /// Nothing need be there.
    create: bool,
    mount: &'a Placed<VolumeMount>,
    service: &'a ServiceMounts,
}

impl RelativePath<'_> {
    /// Whether the service has another mount where this one would have a path below its own.
    fn is_covered(&self, resolved: &str, below: &str) -> bool {
        let own = paths::clean(&self.mount.value.target);
        let rest = below.strip_prefix(resolved).unwrap_or(below).trim_start_matches('/');
        let place = format!("{own}/{rest}");
        let is_between = |target: &String| {
            *target != own && paths::is_within(target, &own) && paths::is_within(&place, target)
        };
        self.service.targets.iter().any(is_between)
    }
}

/// A service that writes to what another mount reads.
struct Writer {
    service: String,
    /// Both mounts can be of one folder: neither leads out of the application's folder to the other one.
    is_in_one_folder: bool,
}

/// The mounted files of one application.
pub(crate) struct MountedFiles<'a> {
    files: &'a dyn Files,
    spec: &'a AppSpec,
    loaded: &'a Loaded,
    pub(crate) contents: Contents,
    /// By path in the application's own folder.
    pub(crate) app_files: BTreeMap<String, ContentId>,
    /// Contents by path in the repository, because nothing is read twice.
    known: BTreeMap<String, ContentId>,
    listed: BTreeSet<String>,
    /// The paths in the repository that services mount read-write, with the first such service.
    pub(crate) written: BTreeMap<String, String>,
    /// Contents with a secret: with a file that is encrypted in the repository, or with a secret variable. They are kept in
    /// memory, as secrets are.
    encrypted: BTreeSet<ContentId>,
    /// Whether the content that is being read has a secret.
    met_encrypted: bool,
    /// Symbolic links in mounted folders that lead to nothing in the repository, until they are warned about.
    astray: Vec<AstrayLink>,
    /// The folders that were read, until it is warned about files in them that Git ignores.
    folders_read: Vec<String>,
    /// The tracked files that services mount read-write, by path in the repository, each at its first mount.
    overwritten: Vec<Placed<String>>,
    /// The mounts of relative paths with a label for `SELinux`.
    labelled: Vec<Placed<()>>,
    bytes: Budget,
    /// Warnings about mounts that may not be intended.
    pub(crate) warnings: Vec<Finding>,
}

impl<'a> MountedFiles<'a> {
    pub(crate) fn new(files: &'a dyn Files, spec: &'a AppSpec, loaded: &'a Loaded) -> Self {
        Self {
            files,
            spec,
            loaded,
            contents: Contents::new(),
            app_files: BTreeMap::new(),
            known: BTreeMap::new(),
            listed: BTreeSet::new(),
            written: BTreeMap::new(),
            encrypted: BTreeSet::new(),
            met_encrypted: false,
            astray: Vec::new(),
            folders_read: Vec::new(),
            overwritten: Vec::new(),
            labelled: Vec::new(),
            bytes: Budget::new(LARGEST_SUM),
            warnings: Vec::new(),
        }
    }

    /// A mount of `volumes` or `tmpfs`. `volume` is the name in Docker of a named one, if it is defined.
    #[expect(clippy::result_large_err, reason = "findings are rare")]
    pub(crate) fn volume(
        &mut self,
        mount: &Placed<VolumeMount>,
        volume: Option<String>,
        service: &ServiceMounts,
    ) -> Result<Mount, Finding> {
        let VolumeMount { target, read_only, source, options, on_change: _ } = &mount.value;
        let source = match source {
            VolumeSource::Anonymous => MountSource::Anonymous,
            VolumeSource::Tmpfs { size, mode } => MountSource::Tmpfs { size: *size, mode: *mode },
            VolumeSource::Image(image) => MountSource::Image(image.clone()),
            VolumeSource::Named { key, no_copy } => {
                let Some(name) = volume else {
                    let help = format!("add it under `volumes:`, or write `./{key}` if a folder is meant");
                    return Err(mount.error(format!("refers to undefined volume `{key}`")).help(help));
                };
                MountSource::Volume { name, no_copy: *no_copy }
            }
            VolumeSource::Path { path, create, propagation, selinux } if path.starts_with('/') => {
                if let Some(letter) = selinux.as_ref().filter(|_| !create || options.recursive.is_some()) {
                    return Err(refused_label(mount, path, letter));
                }
                MountSource::Bind {
                    path: paths::clean(path),
                    create: *create,
                    propagation: propagation.clone(),
                    selinux: selinux.clone(),
                }
            }
            VolumeSource::Path { path, create, propagation, selinux } => {
                // They are of a mount before that has an error.
                self.folders_read.clear();
                self.astray.clear();
                let mut warnings = Vec::new();
                let found = RelativePath { path, create: *create, mount, service };
                let source = self.relative(&found, &mut warnings).map_err(|message| mount.error(message))?;
                if selinux.is_some() {
                    self.labelled.push(mount.with(()));
                }
                if propagation.is_some() || options.recursive.is_some() {
                    let message = format!("{WITHOUT_EFFECT} `propagation` and `recursive`");
                    self.warnings.push(mount.warning(message).help("write an absolute path of the host"));
                }
                warnings.extend(self.links_left_out());
                self.warnings.extend(warnings.into_iter().map(|it| mount.warning(it)));
                // Those of a folder that containers write to are expected to be on the host alone.
                if matches!(source, MountSource::AppFolder(_)) {
                    self.folders_read.clear();
                }
                let ignored = self.ignored_left_out();
                self.warnings.extend(ignored.map(|message| mount.warning(message).help(IGNORED_HELP)));
                source
            }
        };
        Ok(Mount { target: paths::clean(target), source, read_only: *read_only })
    }

    /// A config or secret in a service. `user` is the `user` of the service.
    #[expect(clippy::result_large_err, reason = "findings are rare")]
    pub(crate) fn file(
        &mut self,
        mount: &Placed<FileMount>,
        source: &FileSource,
        kind: FileKind,
        user: Option<&str>,
    ) -> Result<Mount, Finding> {
        let FileMount { source: key, target: _, mode, uid, gid, on_change: _ } = &mount.value;
        let target = target_of(&mount.value, kind);
        let executable = mode.is_some_and(|it| it & 0o111 != 0);
        let content = match &source.source {
            Source::File(path) if path.starts_with('/') => {
                if mode.is_some() || uid.is_some() || gid.is_some() {
                    let message =
                        "a file of the host is mounted as it is: `uid`, `gid` and `mode` have no effect";
                    self.warnings.push(mount.warning(message));
                }
                let source = MountSource::Bind {
                    path: paths::clean(path),
                    create: false,
                    propagation: None,
                    selinux: None,
                };
                return Ok(Mount { target, source, read_only: true });
            }
            Source::File(path) => {
                let tracked = self.tracked(path);
                tracked.map_err(|message| {
                    let finding = source.origin.error(message);
                    match self.missing_path(path) {
                        Some(path) => finding.help(missing_help(self.files, &path)),
                        None => finding,
                    }
                })?
            }
            Source::Content(text) => {
                self.met_encrypted |= self.loaded.is_secret(text, self.files);
                self.text_file(key, &text.value, executable).map_err(|it| mount.error(it))?
            }
            Source::Environment(name) => {
                let Some(value) = self.loaded.variables.get(name) else {
                    return Err(source.origin.error(format!("the variable `{name}` is not set")));
                };
                let incomplete = self.loaded.variables.incomplete(name);
                if let Some(incomplete) = incomplete.filter(|incomplete| incomplete.is_password) {
                    return Err(incomplete.finding());
                }
                self.met_encrypted |= self.loaded.variables.has_secret(name);
                self.text_file(key, value, executable).map_err(|it| mount.error(it))?
            }
            Source::External(_) => {
                let message = "an external config or secret is one of a Docker Swarm";
                return Err(source.origin.error(message).help(EXTERNAL_HELP));
            }
            Source::Missing => return Err(mount.error(format!("`{key}` has no source"))),
        };
        let (uid, gid) = self.owner(mount, user);
        let is_plain = uid == 0 && gid == 0 && matches!(mode, None | Some(0o444 | 0o555));
        let content = match content {
            Content::File { bytes, executable: was } if is_plain => {
                Content::File { bytes, executable: if mode.is_some() { executable } else { was } }
            }
            Content::File { bytes, executable: was } => {
                let mode = mode.unwrap_or(if was { 0o555 } else { 0o444 });
                Content::Owned { bytes, mode, uid, gid }
            }
            folder @ (Content::Folder(_) | Content::Owned { .. }) => {
                if !is_plain {
                    let message = "a folder is mounted as it is: `uid`, `gid` and `mode` are for files";
                    self.warnings.push(mount.warning(message));
                }
                folder
            }
        };
        if let Some(message) = self.links_left_out() {
            self.warnings.push(source.origin.warning(message));
        }
        if let Some(message) = self.ignored_left_out() {
            self.warnings.push(source.origin.warning(message).help(IGNORED_HELP));
        }
        let id = self.keep(content);
        let source = match kind {
            FileKind::Config => self.source_of(id),
            FileKind::Secret => MountSource::Secret(id),
        };
        Ok(Mount { target, source, read_only: true })
    }

    /// The user and group of a config or secret: as given, else root. As the Compose specification says, a file without `uid` belongs to
    /// the `user` of the service, but only if that user could not read one of root: all others keep their content id. A Swarm has root.
    fn owner(&mut self, mount: &Placed<FileMount>, user: Option<&str>) -> (u32, u32) {
        let FileMount { mode, uid, gid, .. } = &mount.value;
        let given = (uid.unwrap_or_default(), gid.unwrap_or_default());
        let Some(mode) = mode.filter(|mode| mode & 0o004 == 0 && uid.is_none()) else { return given };
        let Some(user) = user.filter(|_| self.spec.engine == EngineKind::Docker) else { return given };
        let (user, group) = user.split_once(':').map_or((user, None), |(user, group)| (user, Some(group)));
        let group: Option<u32> = group.and_then(|group| group.parse().ok());
        let is_for_group = mode & 0o040 != 0 && (gid.is_some() || group == Some(0));
        if is_for_group || matches!(user, "" | "0" | "root") {
            return given;
        }
        if let Ok(user) = user.parse() {
            return (user, gid.or(group).unwrap_or_default());
        }
        let message = format!("only root can read it, and the service runs as `{user}`");
        self.warnings.push(mount.warning(message).help("add the number of that user as `uid`"));
        given
    }

    /// The place of a mounted config: the disk, or memory if it has a secret.
    fn source_of(&self, id: ContentId) -> MountSource {
        if self.encrypted.contains(&id) { MountSource::Secret(id) } else { MountSource::Content(id) }
    }

    /// A file of the repository as text, such as a seccomp profile.
    pub(crate) fn text(&mut self, path: &str) -> Result<String, String> {
        match self.tracked(path)? {
            Content::File { bytes, .. } | Content::Owned { bytes, .. } => {
                let text = String::from_utf8(bytes.to_vec());
                text.map_err(|_| format!("`{path}` is not text"))
            }
            Content::Folder(_) => Err(format!("`{path}` is a folder")),
        }
    }

    /// A bind mount of a relative path: tracked in the repository or not.
    fn relative(
        &mut self,
        found: &RelativePath<'_>,
        warnings: &mut Vec<String>,
    ) -> Result<MountSource, String> {
        let RelativePath { path, create, mount: placed, service } = found;
        let mount = &placed.value;
        let resolved = self.resolve(path)?;
        let inside = paths::inside(&self.spec.path, &resolved);
        let entry = self.files.entry(&resolved).map_err(|error| error.to_string())?;
        let is_tracked = entry.is_some();
        let is_file = matches!(entry, Some(Entry::File { .. }));
        let writer = self.writer(found, &resolved, &inside);
        let is_shared = writer.as_ref().is_some_and(|writer| writer.is_in_one_folder);
        if is_tracked {
            // `on-change` is for the files of Git, of which each container has a copy.
            let has_on_change = mount.on_change.is_some() || service.has_on_change;
            let is_of_git = mount.read_only && (!is_shared || has_on_change);
            let tracked_use = match (is_of_git, mount.read_only) {
                (true, _) => TrackedUse::OfGit,
                (false, true) => TrackedUse::Read,
                (false, false) => TrackedUse::Write,
            };
            if let Some(source) = self.by_content(&resolved, &inside, tracked_use)? {
                // A folder may lack files that the other service creates. A file is there.
                let lacking = writer.filter(|_| !(is_file && has_on_change));
                warnings.extend(lacking.map(|writer| only_files_of_git(&resolved, &writer)));
                return Ok(source);
            }
            // A folder may be tracked for its place alone, by a `.gitkeep`. A file is mounted for its content.
            warnings
                .extend(writer.filter(|_| is_file).map(|writer| changes_no_container(&resolved, &writer)));
            if is_file && !mount.read_only && !self.overwritten.iter().any(|it| it.value == resolved) {
                self.overwritten.push(placed.with(resolved.clone()));
            }
        }
        if !is_tracked {
            self.refuse_dead_end(&resolved)?;
        }
        if !is_tracked && !create {
            return Err(self.missing(&resolved));
        }
        if inside.starts_with(paths::PARENT) {
            warnings.push(format!(
                "`{path}` is outside of the application's folder: this application has its own copy, `{inside}`"
            ));
        }
        let similar = if is_tracked { None } else { self.similar(&resolved) };
        if let Some(similar) = similar {
            warnings.push(format!(
                "`{resolved}` is not in the repository, but `{similar}` is, {DIFFERENCE}: its files are not mounted"
            ));
        } else if !is_tracked && mount.read_only && !is_shared {
            warnings.push(format!("`{resolved}` is not in the repository, so an empty folder is mounted"));
        }
        Ok(MountSource::AppFolder(inside))
    }

    /// Refuses a path that is or passes a link out of the repository, to nothing or into a submodule. Docker Compose mounts what the
    /// link leads to, and an empty folder in its place would look like lost data.
    fn refuse_dead_end(&self, path: &str) -> Result<(), String> {
        for place in at_and_above(path) {
            if let Some(link) = broken_link(self.files, place).map_err(|error| error.to_string())? {
                return Err(format!(
                    "`{place}` {}: write the path on the host that it stands for",
                    link.message
                ));
            }
            if matches!(self.files.entry(place), Ok(Some(Entry::Submodule))) {
                return Err(format!(
                    "`{place}` is a submodule, and submodules are not read: set `submodules: true`"
                ));
            }
        }
        Ok(())
    }

    /// The service that writes to a path that is mounted read-only, to something in it or to a folder that it is in. If there are
    /// several, one whose mount is in the same folder of the application.
    fn writer(&self, found: &RelativePath<'_>, resolved: &str, inside: &str) -> Option<Writer> {
        if !found.mount.value.read_only {
            return None;
        }
        let writers = self.written.iter().filter_map(|(written, service)| {
            let place = paths::inside(&self.spec.path, written);
            let is_in_one_folder = if paths::is_within(resolved, written) {
                paths::is_within(inside, &place)
            } else if paths::is_within(written, resolved) && !found.is_covered(resolved, written) {
                paths::is_within(&place, inside)
            } else {
                return None;
            };
            Some(Writer { service: service.clone(), is_in_one_folder })
        });
        writers.max_by_key(|writer| writer.is_in_one_folder)
    }

    /// The mount of a tracked path by its content, if it is of Git alone, or if a secret in it may not be on the disk in clear.
    /// `None`: it is in the application's own folder, and what is tracked at or below it is listed.
    fn by_content(
        &mut self,
        resolved: &str,
        inside: &str,
        tracked_use: TrackedUse,
    ) -> Result<Option<MountSource>, String> {
        let is_of_git = tracked_use == TrackedUse::OfGit;
        let reads_shared = tracked_use == TrackedUse::Read;
        if let Some(id) = self.known.get(resolved)
            && (is_of_git || (reads_shared && self.encrypted.contains(id)))
        {
            return Ok(Some(self.source_of(id.clone())));
        }
        if !is_of_git && self.listed.contains(resolved) {
            return Ok(None);
        }
        let content = self.content(resolved)?;
        if is_of_git || (reads_shared && self.met_encrypted) {
            let id = self.keep(content);
            self.known.insert(resolved.to_owned(), id.clone());
            return Ok(Some(self.source_of(id)));
        }
        if std::mem::take(&mut self.met_encrypted) {
            return Err(format!(
                "`{resolved}` is encrypted, and a writable copy would be on the disk in clear; add `:ro` or use `secrets`"
            ));
        }
        self.listed.insert(resolved.to_owned());
        self.list(content, inside);
        Ok(None)
    }

    /// Lists the files of a path in the application's own folder.
    fn list(&mut self, content: Content, inside: &str) {
        match content {
            file @ (Content::File { .. } | Content::Owned { .. }) => {
                let id = self.keep(file);
                self.app_files.insert(inside.to_owned(), id);
            }
            Content::Folder(tree) => {
                for (name, (bytes, access)) in tree {
                    let path = if inside == "." { name } else { format!("{inside}/{name}") };
                    let id = self.keep(Content::File { bytes, executable: access.is_executable() });
                    self.app_files.insert(path, id);
                }
            }
        }
    }

    /// The file or folder of the repository that a config or secret names.
    fn tracked(&mut self, path: &str) -> Result<Content, String> {
        let resolved = self.resolve(path)?;
        self.content(&resolved)
    }

    /// A path of a Compose file that the repository does not have, from its root.
    fn missing_path(&self, path: &str) -> Option<String> {
        self.resolve(path).ok().filter(|path| matches!(self.files.entry(path), Ok(None)))
    }

    /// A path of a Compose file, from the repository's root.
    pub(crate) fn resolve(&self, path: &str) -> Result<String, String> {
        if path.starts_with('~') {
            return Err("`~` is not supported: the agent has no home folder; write the whole path".to_owned());
        }
        if path.contains(['\\', ':']) {
            return Err(format!("`{path}` is not a path on Linux"));
        }
        paths::join(&self.loaded.folder, path).ok_or_else(|| format!("`{path}` is outside of the repository"))
    }

    /// A file with a text from the Compose file or from a variable.
    fn text_file(&mut self, key: &str, text: &str, executable: bool) -> Result<Content, String> {
        self.bytes.take(text.len()).map_err(|_| too_large(key))?;
        Ok(Content::File { bytes: text.as_bytes().into(), executable })
    }

    fn keep(&mut self, content: Content) -> ContentId {
        let id = content.id();
        if std::mem::take(&mut self.met_encrypted) {
            self.encrypted.insert(id.clone());
        }
        self.contents.insert(id.clone(), content);
        id
    }

    /// Reads a file, or a folder with all that is in it.
    fn content(&mut self, path: &str) -> Result<Content, String> {
        match self.files.entry(path).map_err(|error| error.to_string())? {
            Some(Entry::File { executable, .. }) => Ok(Content::File { bytes: self.read(path)?, executable }),
            Some(Entry::Folder) => {
                let mut tree = ContentTree::new();
                self.folder(path, "", DEEPEST, &mut tree)?;
                Ok(Content::Folder(tree))
            }
            Some(Entry::Submodule) => Err(format!("`{path}` is a submodule, which is not fetched")),
            None => Err(self.missing(path)),
        }
    }

    /// The message about a path of the repository that has nothing.
    fn missing(&self, path: &str) -> String {
        match self.similar(path) {
            Some(similar) => {
                format!("`{path}` does not exist in the repository, but `{similar}` does, {DIFFERENCE}")
            }
            None => format!("`{path}` does not exist in the repository"),
        }
    }

    /// The path in the repository that the author of a missing one may mean. A mount does not depend on it.
    fn similar(&self, path: &str) -> Option<String> {
        self.files.similar(path).ok().flatten()
    }

    fn folder(
        &mut self,
        path: &str,
        prefix: &str,
        depth: usize,
        tree: &mut ContentTree,
    ) -> Result<(), String> {
        if depth == 0 {
            return Err(format!(
                "`{path}` is nested too deep; check for a link that leads back into its own folder"
            ));
        }
        let mut links = self.files.links(path).map_err(|error| error.to_string())?;
        let whole = |name: String| if path.is_empty() { name } else { format!("{path}/{name}") };
        self.folders_read.push(path.to_owned());
        for (name, entry) in self.files.list(path).map_err(|error| error.to_string())? {
            links.remove(&name);
            let below = if path.is_empty() { name.clone() } else { format!("{path}/{name}") };
            match entry {
                Entry::File { executable, .. } => {
                    let bytes = self.read(&below)?;
                    tree.insert(format!("{prefix}{name}"), (bytes, Access::of(executable)));
                }
                Entry::Folder => self.folder(&below, &format!("{prefix}{name}/"), depth - 1, tree)?,
                Entry::Submodule => {
                    return Err(format!("`{below}` is a submodule, which is not fetched"));
                }
            }
        }
        self.astray.extend(links.into_iter().map(|(name, target)| AstrayLink { path: whole(name), target }));
        Ok(())
    }

    /// The warning about tracked files that services mount read-write, if there are some. One for all: many Compose files leave out `:ro`.
    pub(crate) fn overwritten_files(&self) -> Option<Finding> {
        let first = self.overwritten.first()?;
        let (path, others) = (&first.value, others(self.overwritten.len() - 1));
        let message = format!(
            "the file `{path}` is mounted read-write{others}: a commit that changes such a file restarts no container, which may go on \
             with what it has read"
        );
        Some(
            first
                .warning(message)
                .help("add `:ro` to each one that no container writes to: its change is an update then"),
        )
    }

    /// The warning about labels for `SELinux` without effect, if there are some. One for all: the state directory is labelled once.
    pub(crate) fn labels_without_effect(&self) -> Option<Finding> {
        let first = self.labelled.first()?;
        let others = others(self.labelled.len() - 1);
        Some(first.warning(format!("{WITHOUT_EFFECT} `z` and `Z`{others}")).help(SELINUX_HELP))
    }

    /// The warning about the symbolic links that were met since the last one.
    fn links_left_out(&mut self) -> Option<String> {
        let links = std::mem::take(&mut self.astray);
        let AstrayLink { path, target } = links.first()?;
        let target: String = target.chars().take(LONGEST_SHOWN_TARGET).collect();
        let others = others(links.len() - 1);
        Some(format!(
            "`{path}` is a symbolic link to `{target}`, which is not in the repository: it is left out of the mounted folder{others}"
        ))
    }

    /// The warning about the files that Git ignores in the folders that were read since the last one.
    fn ignored_left_out(&mut self) -> Option<String> {
        let mut ignored = Vec::new();
        for folder in std::mem::take(&mut self.folders_read) {
            // The mount does not depend on them.
            let names = self.files.ignored(&folder).unwrap_or_default();
            let whole = |name: String| if folder.is_empty() { name } else { format!("{folder}/{name}") };
            ignored.extend(names.into_iter().map(whole));
        }
        let path = ignored.first()?;
        let others = others(ignored.len() - 1);
        Some(format!("`{path}` is ignored by Git, so the mounted folder does not have it{others}"))
    }

    fn read(&mut self, path: &str) -> Result<Arc<[u8]>, String> {
        let left = self.bytes.left() as u64;
        let bytes = self.files.read(path, left).map_err(|error| match error {
            ReadError::TooLarge { .. } => too_large(path),
            other => other.to_string(),
        })?;
        self.bytes.take(bytes.len()).map_err(|_| too_large(path))?;
        self.met_encrypted |= self.files.is_encrypted(path);
        Ok(bytes)
    }
}

/// The error about a label for `SELinux` together with an option of the engine's other form of a mount. In the form that
/// labels, the engine creates a missing folder and mounts recursively.
fn refused_label(mount: &Placed<VolumeMount>, path: &str, letter: &str) -> Finding {
    let message = format!(
        "the engine labels no mount with `create_host_path: false` or `recursive`: `selinux: {letter}` is not possible here"
    );
    let help = format!("remove `selinux` and label the folder once: `chcon -Rt container_file_t {path}`");
    mount.error(message).help(help)
}

/// The warning about a read-only mount that is another folder than that of the service which writes there.
fn only_files_of_git(path: &str, writer: &Writer) -> String {
    let Writer { service, is_in_one_folder: _ } = writer;
    format!(
        "`{path}` has only the files of Git here, without what `{service}` writes there; if it needs them, write an absolute \
         path of the host in both"
    )
}

/// The warning about a tracked file that is mounted read-only where another mount writes.
fn changes_no_container(path: &str, writer: &Writer) -> String {
    let Writer { service, is_in_one_folder: _ } = writer;
    format!(
        "a commit that changes `{path}` replaces no container, because `{service}` writes to this place; for an update, add \
         `x-driftless: {{on-change: recreate}}` to the mount or to the service"
    )
}

/// The end of a warning about the first one of several files.
fn others(number: usize) -> String {
    match number {
        0 => String::new(),
        1 => ", and so is another one".to_owned(),
        others => format!(", and so are {others} others"),
    }
}

/// The message about a file with which the limit is exceeded.
fn too_large(name: &str) -> String {
    format!("with `{name}` the application mounts more than {} MiB of files", LARGEST_SUM >> 20)
}

/// The path of a config or secret in the containers of a service.
pub(crate) fn target_of(mount: &FileMount, kind: FileKind) -> String {
    let target = mount.target.as_deref().unwrap_or(&mount.source);
    match kind {
        _ if target.starts_with('/') => paths::clean(target),
        FileKind::Config => paths::clean(&format!("/{target}")),
        FileKind::Secret => paths::clean(&format!("/run/secrets/{target}")),
    }
}

/// Whether a mounted file is a config or a secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FileKind {
    Config,
    Secret,
}
