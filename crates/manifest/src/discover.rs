//! Finds the applications in a repository: folder, format, name and manifests of each.
//!
//! Manifests are read only to recognise their format; rendering reads them again. Kustomizations are read completely,
//! because a base that an overlay uses is not an application.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    folder_findings::{self, ASIDE, DEEPEST, MOST_NAMED, Missed, NEARER, error, is_aside, too_deep},
    kustomize_bases, same_names, shared_manifests,
    unreadable::{
        UnreadContent, read_error, submodule_at_or_above, unread_at_or_above, unread_content,
        unread_submodule,
    },
};
use driftless_files::{
    AppSpec, Bounded, Entry, Files, LARGEST_MANIFEST, broken_link, broken_link_error, paths,
};
use driftless_kubernetes::{self as kubernetes, kustomize};
use driftless_model::{AppName, EngineKind, Finding, Format, HostIdentity, Location, Severity};
use driftless_yaml::{self as yaml, Limits, Node};

/// Names of Compose files. The first that exists counts, in the order of Docker Compose.
const COMPOSE_FILES: &[&str] = &["compose.yaml", "compose.yml", "docker-compose.yml", "docker-compose.yaml"];

/// Names of the files that are merged onto any of these. The first that exists counts, in the order of Docker Compose.
const OVERRIDE_FILES: &[&str] = &[
    "compose.override.yml",
    "compose.override.yaml",
    "docker-compose.override.yml",
    "docker-compose.override.yaml",
];

const NO_APPLICATION: &str = "contains no application: there is no Compose file and no Kubernetes manifest";

/// The file that makes a folder a Helm chart.
const CHART_FILE: &str = "Chart.yaml";

const NO_FOLDER: &str = "does not exist in the repository, or is no folder";

/// The settings of a repository (`driftless.yaml`), which are no manifest even if they cannot be read.
const SETTINGS_FILE: &str = "driftless.yaml";

/// Kustomizations are looked for so many folders deeper: they are no applications, but their bases are none either.
const DEEPER: usize = 2;

/// The most files and folders that the search may list.
const MOST_ENTRIES: usize = 200_000;

/// An application that the configuration names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Configured {
    pub name: Option<AppName>,
    /// The folder, from the repository's root.
    pub path: String,
    pub variables: BTreeMap<String, String>,
    pub profiles: Vec<String>,
    /// Compose files, from the application's folder; a later one overrides earlier ones. Empty: the files are found by
    /// name.
    pub files: Vec<String>,
    /// Files of variables, from the application's folder. They replace its `.env`.
    pub env_files: Vec<String>,
    /// The place of its entry in `applications`. `None`: no file lists it.
    pub place: Option<Location>,
}

/// The result of a search.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Discovery {
    /// Sorted by name; names are unique. Findings about one of them are in [`AppSpec::findings`].
    pub apps: Vec<AppSpec>,
    /// Findings about the repository as a whole.
    pub findings: Vec<Finding>,
    /// The searched folder, if the only finding is that it has no application or does not exist.
    pub empty_folder: Option<String>,
    /// The errors about files and folders that cannot be read, each at its path: symbolic links that cannot be followed, submodules,
    /// and the templates of Helm charts. An application that was found there, or through such a link, does not count as removed.
    pub unread_files: Vec<Finding>,
    /// Manifests and submodules that lie below an application, and files of other tools in folders that are no applications. One
    /// that was found there before ([`may_hide`](crate::may_hide)) may be missing by mistake.
    pub unsearched: Vec<String>,
    /// Folders below the search depth with a Compose file or a kustomization, so that an application which was moved there is not
    /// treated as removed. Also those that applications may use, which no finding names.
    pub too_deep: Vec<String>,
}

/// Finds the applications at `path` and below, or, if `configured` is not empty, only those. The folder at the root is
/// named after the repository.
///
/// An application whose manifests or settings cannot be used is also returned; rendering it reports the errors. An
/// error among the findings means that the list may be incomplete: an application that is missing from it must not be
/// treated as removed.
pub fn discover(
    files: &dyn Files,
    path: &str,
    repository_name: &str,
    configured: &[Configured],
) -> Discovery {
    discover_for(&HostIdentity::default(), files, path, repository_name, configured)
}

/// Like [`discover`], for a host with a name: `compose.HOST.yaml` is merged onto the Compose files that are found, and
/// `.env.HOST` onto the variables of `.env` or of `envFiles`. Compose files may use the variables of the host.
pub fn discover_for(
    host: &HostIdentity,
    files: &dyn Files,
    path: &str,
    repository_name: &str,
    configured: &[Configured],
) -> Discovery {
    let (files, files_below) = (&Bounded::new(files, MOST_ENTRIES), &Bounded::new(files, MOST_ENTRIES));
    let mut empty_folder = None;
    let mut search = Search::new(host, (files, files_below), repository_name);
    if configured.is_empty() {
        let top = tidy(path);
        if let Some(unread) = unread_at_or_above(files, &top) {
            search.findings.push(unread);
        } else if matches!(files.entry(&top), Ok(None)) {
            search.report(&top, NO_FOLDER);
            empty_folder = Some(top);
        } else {
            search.below(&top, DEEPEST);
            let applications: BTreeSet<String> = search.found.iter().map(|it| it.path.clone()).collect();
            search.leave_out_bases_below(&top);
            let deeper = search.compose_below(&top, &applications);
            if search.found.is_empty() && search.findings.is_empty() {
                let nothing = error(&top, NO_APPLICATION);
                let near_miss = match (deeper.first(), search.missed.first()) {
                    (Some(folder), _) => Some(format!("`{folder}` {}; {NEARER}", too_deep("a Compose file"))),
                    (None, Some((why, path))) => Some(near_miss(*why, path)),
                    (None, None) => None,
                };
                search.findings.push(match near_miss {
                    Some(near_miss) => nothing.help(near_miss),
                    None => nothing,
                });
                empty_folder = Some(top);
            } else {
                search.warn_of_deeper(&deeper, "a Compose file");
                search.warn_of_missed(&top);
            }
            shared_manifests::report(files, &mut search.found);
        }
    }
    for one in configured {
        search.configured(one);
    }
    let Search { found, mut findings, unread_files, unsearched, too_deep, .. } = search;
    let apps = same_names::leave_out(found, &mut findings);
    Discovery { apps, findings, empty_folder, unread_files, unsearched, too_deep }
}

/// The folders at `path` and below in which [`discover`] would find applications, and that are neither `listed` nor used by the
/// `applications`. Folders such as `examples` are left out.
pub fn unlisted(
    files: &dyn Files,
    path: &str,
    listed: &BTreeSet<String>,
    applications: &[&AppSpec],
) -> Vec<String> {
    let (files, files_below) = (&Bounded::new(files, MOST_ENTRIES), &Bounded::new(files, MOST_ENTRIES));
    let host = &HostIdentity::default();
    let mut search = Search::new(host, (files, files_below), "repository");
    let top = tidy(path);
    search.below(&top, DEEPEST);
    search.leave_out_bases_below(&top);
    let listed: BTreeSet<String> = listed.iter().map(|path| tidy(path)).collect();
    let used: BTreeSet<&String> = applications.iter().flat_map(|app| &app.files).collect();
    let texts = search.texts_with_others(used.iter().copied());
    let is_unlisted = |app: &AppSpec| {
        !listed.contains(&app.path)
            && !is_aside(&app.path, &top)
            && !app.files.iter().any(|file| used.contains(file))
            && !is_named(&texts, &app.path)
    };
    let found = std::mem::take(&mut search.found).into_iter();
    found.filter(is_unlisted).map(|app| app.path).collect()
}

/// A search for the applications of a repository, and its results so far.
pub(crate) struct Search<'a> {
    host: &'a HostIdentity,
    pub(crate) files: &'a dyn Files,
    /// The same files with a limit of their own, for folders below applications.
    files_below: &'a dyn Files,
    repository_name: &'a str,
    found: Vec<AppSpec>,
    findings: Vec<Finding>,
    /// See [`Discovery::unread_files`].
    unread_files: Vec<Finding>,
    /// See [`Discovery::unsearched`].
    unsearched: Vec<String>,
    /// Folders and files that somebody may expect to be applications, by path.
    missed: Vec<(Missed, String)>,
    /// See [`Discovery::too_deep`].
    too_deep: Vec<String>,
}

/// The content of a folder.
pub(crate) enum FolderContent {
    Application(Format, Vec<String>, Vec<Finding>),
    /// A kustomization that is only a part of others.
    Component(Vec<String>),
    /// Files in the form of Kubernetes manifests with kinds of other tools, and no manifest.
    OtherTools(Vec<String>),
    /// Files that cannot be read as YAML, and no manifest.
    Unreadable(Vec<String>),
    /// Links that cannot be followed and have the names of manifests, and no manifest.
    BrokenLinks(Vec<String>),
    Nothing,
}

impl<'a> Search<'a> {
    fn new(
        host: &'a HostIdentity,
        (files, files_below): (&'a dyn Files, &'a dyn Files),
        repository_name: &'a str,
    ) -> Self {
        Self {
            host,
            files,
            files_below,
            repository_name,
            found: Vec::new(),
            findings: Vec::new(),
            unread_files: Vec::new(),
            unsearched: Vec::new(),
            missed: Vec::new(),
            too_deep: Vec::new(),
        }
    }

    fn note_unsearched(&mut self, folder: &str, depth: usize) {
        let below = Search::new(self.host, (self.files_below, self.files_below), self.repository_name);
        self.unsearched.extend(below.unsearched_below(folder, depth));
    }

    /// Searches a folder, and the folders below if it is not an application.
    fn below(&mut self, folder: &str, depth: usize) {
        match self.folder_with_links(folder) {
            Ok(Some(entries)) => self.application_or_below(folder, &entries, depth),
            Ok(None) => self.report(folder, NO_FOLDER),
            Err(message) => self.report(folder, &message),
        }
    }

    fn application_or_below(&mut self, folder: &str, entries: &[(String, Entry)], depth: usize) {
        match self.content(folder, entries) {
            FolderContent::Application(format, files, findings) => {
                self.note_unsearched(folder, depth);
                self.add(folder, format, files, findings, &Configured::default());
            }
            FolderContent::OtherTools(files) => self.other_tools_or_below(folder, entries, depth, files),
            // The user chose this folder, and rendering reports that a component is not an application.
            FolderContent::Component(files) if depth == DEEPEST => {
                self.add(folder, Format::Kubernetes, files, Vec::new(), &Configured::default());
            }
            FolderContent::Unreadable(files) => self.unreadable_or_below(folder, entries, depth, files),
            // Most such links are none of an application, such as one to secrets that are not in Git.
            FolderContent::BrokenLinks(_) | FolderContent::Nothing => {
                let before = self.found.len();
                self.folders_below(folder, entries, depth);
                if self.found.len() == before {
                    let other_names = self.compose_by_other_names(folder, entries);
                    self.missed.extend(other_names.into_iter().map(|path| (Missed::OtherName, path)));
                }
            }
            FolderContent::Component(_) => {}
        }
    }

    fn folders_below(&mut self, folder: &str, entries: &[(String, Entry)], depth: usize) {
        let before = self.found.len();
        let is_chart = entries.iter().any(|(name, _)| name == CHART_FILE);
        if is_chart {
            self.missed.push((Missed::HelmChart, folder.to_owned()));
        }
        for (name, entry) in entries.iter().filter(|(name, _)| depth > 0 && !name.starts_with('.')) {
            let path = join(folder, name);
            match entry {
                Entry::Folder if is_chart && self.is_part_of_chart(name, &path) => {
                    let finding = error(&path, "belongs to a Helm chart, which is not read");
                    self.unread_files.push(finding.help(Missed::HelmChart.advice()));
                }
                Entry::Folder => self.below(&path, depth - 1),
                Entry::Submodule => {
                    self.unread_files.push(unread_submodule(&path));
                    self.missed.push((Missed::Submodule, path));
                }
                Entry::File { .. } => {}
            }
        }
        // The applications below are what the file of variables names, or they come first.
        if self.found.len() == before && entries.iter().any(|(name, _)| name.starts_with(".env")) {
            self.found.extend(self.named_by_variables(folder, &Configured::default()));
        }
    }

    /// Whether a folder of a Helm chart is only a part of it. Manifests without templates may be an application.
    fn is_part_of_chart(&self, name: &str, path: &str) -> bool {
        name == "crds" || (name == "templates" && self.has_template(path, DEEPEST))
    }

    /// Whether a file of a folder has a template. Without a file, those of the folders below count.
    fn has_template(&self, folder: &str, depth: usize) -> bool {
        let entries = self.folder(folder).ok().flatten().unwrap_or_default();
        let has_files = entries.iter().any(|(_, entry)| matches!(entry, Entry::File { .. }));
        entries.iter().any(|(name, entry)| match entry {
            Entry::File { .. } => self.text(&join(folder, name)).contains("{{"),
            Entry::Folder if depth > 0 && !has_files => self.has_template(&join(folder, name), depth - 1),
            Entry::Folder | Entry::Submodule => false,
        })
    }

    /// The Compose files of a folder that the search does not know by their names.
    fn compose_by_other_names(&self, folder: &str, entries: &[(String, Entry)]) -> Vec<String> {
        let is_file = |entry: &Entry| matches!(entry, Entry::File { .. });
        let names = entries.iter().filter(|(name, entry)| is_file(entry) && is_like_compose(name));
        let has_services = |documents: Vec<Node>| documents.iter().any(|it| it.get("services").is_some());
        let found = names.map(|(name, _)| join(folder, name));
        found.filter(|path| self.documents(path).is_some_and(has_services)).collect()
    }

    /// Searches a folder that has only files of other tools in the form of manifests, such as the `catalog-info.yaml` of Backstage.
    ///
    /// They hide no application below, except in folders such as `test`, where it is seldom meant for the agent. Without one, the
    /// folder counts as an application, so that rendering names the kinds.
    fn other_tools_or_below(
        &mut self,
        folder: &str,
        entries: &[(String, Entry)],
        depth: usize,
        files: Vec<String>,
    ) {
        let before = self.found.len();
        let mut names = folder.rsplit('/').take(DEEPEST - depth);
        if names.any(|name| ASIDE.contains(&name)) {
            self.note_unsearched(folder, depth);
        } else {
            self.folders_below(folder, entries, depth);
        }
        if self.found.len() == before {
            return self.add(folder, Format::Kubernetes, files, Vec::new(), &Configured::default());
        }
        // They may have replaced the manifests of an application that was deployed.
        self.unsearched.extend(files.iter().cloned());
        self.missed.extend(files.into_iter().map(|path| (Missed::OtherTool, path)));
    }

    /// Searches a folder that has files that cannot be read as YAML, and no manifest.
    ///
    /// Such a file can be the broken manifest of an application. It then stays that application, and no folder below becomes one,
    /// because nobody has asked for that. The file can also be something else, such as a template, and may then not hide the
    /// applications below. Each time there is an error about the repository, so that no application is removed.
    fn unreadable_or_below(
        &mut self,
        folder: &str,
        entries: &[(String, Entry)],
        depth: usize,
        files: Vec<String>,
    ) {
        let (found, findings, missed) = (self.found.len(), self.findings.len(), self.missed.len());
        self.folders_below(folder, entries, depth);
        let first =
            |content: UnreadContent| files.iter().find(|path| unread_content(self.files, path) == content);
        let error_of = |path: &String| read_error(self.files, path);
        let is_alone = self.found.len() == found;
        let manifest = first(UnreadContent::Manifest).map(error_of);
        let unknown = first(UnreadContent::Unknown).map(error_of);
        let below = self.found.iter().skip(found).filter(|app| app.path != folder);
        let below: Vec<String> = below.map(|app| format!("`{}`", app.path)).collect();
        if is_alone || manifest.is_some() {
            self.found.truncate(found);
            if !is_alone {
                self.findings.truncate(findings);
                self.missed.truncate(missed);
            }
            self.add(folder, Format::Kubernetes, files, Vec::new(), &Configured::default());
        }
        if below.is_empty() {
            return;
        }
        let finding = if let Some(error) = manifest {
            let some = below.get(..MOST_NAMED).unwrap_or(&below).join(", ");
            let message = format!(
                "{}, so the folder of this manifest is one application, and those below are not read: {some}",
                error.message
            );
            let help =
                "correct it, move it to a folder of its own, or name the applications in `applications`";
            Finding { message, ..error }.help(help)
        } else if let Some(error) = unknown {
            let message = format!(
                "{}, so it is not known whether its folder is an application; those below are read, and none is \
                 removed",
                error.message
            );
            let help = "correct it, set `path` to a folder below, or name the applications in `applications`";
            Finding { message, ..error }.help(help)
        } else {
            return;
        };
        self.findings.push(finding);
    }

    fn configured(&mut self, one: &Configured) {
        let path = tidy(&one.path);
        if !one.files.is_empty() {
            let (files, findings) = inside(&path, "files", &one.files);
            return self.add(&path, Format::Compose, files, findings, one);
        }
        match self.folder_with_links(&path) {
            Ok(Some(entries)) => match self.content(&path, &entries) {
                FolderContent::Application(format, files, findings) => {
                    self.add(&path, format, files, findings, one);
                }
                FolderContent::Component(files)
                | FolderContent::OtherTools(files)
                | FolderContent::Unreadable(files) => {
                    self.add(&path, Format::Kubernetes, files, Vec::new(), one);
                }
                FolderContent::BrokenLinks(files) => match self.named_by_variables(&path, one) {
                    Some(spec) => self.found.push(spec),
                    None => self.add(&path, Format::Kubernetes, files, Vec::new(), one),
                },
                FolderContent::Nothing => match self.named_by_variables(&path, one) {
                    Some(spec) => self.found.push(spec),
                    None => match self.compose_by_other_names(&path, &entries).first() {
                        Some(other) => {
                            let help = near_miss(Missed::OtherName, other);
                            self.findings.push(error(&path, NO_APPLICATION).help(help));
                        }
                        None => self.report_entry(&path, NO_APPLICATION, one),
                    },
                },
            },
            Ok(None) => match submodule_at_or_above(self.files, &path) {
                Some(unread) => self.findings.push(unread),
                None => self.report_entry(&path, NO_FOLDER, one),
            },
            Err(message) => self.report(&path, &message),
        }
    }

    /// Reports that the application of an entry is not in the repository, and where its entry is.
    fn report_entry(&mut self, folder: &str, message: &str, entry: &Configured) {
        let finding = error(folder, message);
        self.findings.push(match &entry.place {
            Some(place) => {
                let advice = "restore it, or remove its entry from `applications`";
                finding.help(format!("{advice} at {place}"))
            }
            None => finding,
        });
    }

    /// The entries of a folder. `None`: it does not exist.
    pub(crate) fn folder(&self, folder: &str) -> Result<Option<Vec<(String, Entry)>>, String> {
        match self.files.entry(folder).map_err(|it| it.to_string())? {
            Some(Entry::Folder) => self.files.list(folder).map(Some).map_err(|it| it.to_string()),
            Some(Entry::File { .. } | Entry::Submodule) | None => Ok(None),
        }
    }

    /// The entries of a folder that is searched. `None`: it does not exist.
    ///
    /// A manifest that is a link which cannot be followed counts as a file: as no file, it would end its application, or leave out a
    /// part of it.
    fn folder_with_links(&mut self, folder: &str) -> Result<Option<Vec<(String, Entry)>>, String> {
        let Some(mut entries) = self.folder(folder)? else { return Ok(None) };
        let mut links = self.files.links(folder).map_err(|it| it.to_string())?;
        for (name, _) in entries.iter().filter(|(_, entry)| *entry != Entry::Submodule) {
            links.remove(name);
        }
        for (name, target) in links {
            let path = join(folder, &name);
            let is_manifest = [".yaml", ".yml"].iter().any(|end| name.ends_with(end));
            self.unread_files.push(broken_link_error(&path, &target));
            if is_manifest || kustomize::is_kustomization(&path) {
                entries.push((name, Entry::File { size: 0, executable: false }));
            }
        }
        Ok(Some(entries))
    }

    /// Recognises Compose files by name, and Kubernetes manifests by content.
    pub(crate) fn content(&self, folder: &str, entries: &[(String, Entry)]) -> FolderContent {
        let is_file =
            |name: &str| entries.iter().any(|(it, entry)| it == name && matches!(entry, Entry::File { .. }));
        let compose = COMPOSE_FILES.iter().find(|it| is_file(it));
        let kustomization = kustomize::FILES.iter().find(|it| is_file(it)).map(|it| join(folder, it));
        if let (None, Some(path)) = (compose, &kustomization) {
            let is_component = |it: &Node| it.get("kind").and_then(Node::as_scalar) == Some("Component");
            let documents = self.documents(path).unwrap_or_default();
            return if documents.iter().any(is_component) {
                FolderContent::Component(vec![path.clone()])
            } else {
                FolderContent::Application(Format::Kubernetes, vec![path.clone()], Vec::new())
            };
        }
        let mut kubernetes: Vec<String> = kustomization.into_iter().collect();
        let (mut unreadable, mut links, mut json) = (Vec::new(), Vec::new(), Vec::new());
        let mut of_other_tools = Vec::new();
        for (name, entry) in entries {
            let extension = name.rsplit_once('.').map_or("", |(_, extension)| extension);
            let is_yaml = matches!(extension, "yaml" | "yml");
            if extension == "json" && matches!(entry, Entry::File { .. }) {
                json.push(join(folder, name));
            }
            let is_ours = (compose.is_some() && OVERRIDE_FILES.contains(&name.as_str()))
                || COMPOSE_FILES.contains(&name.as_str());
            if !is_yaml
                || is_ours
                || kustomize::is_kustomization(name)
                || name == SETTINGS_FILE
                || name.starts_with('.')
                || !matches!(entry, Entry::File { .. })
            {
                continue;
            }
            let path = join(folder, name);
            match self.documents(&path) {
                Some(documents) if kubernetes::is_of_other_tool(&documents) => of_other_tools.push(path),
                Some(documents) if kubernetes::is_kubernetes(&documents) => kubernetes.push(path),
                // An unreadable file or link next to a Compose file may be a configuration or a template. Next to a manifest it
                // counts as one, so that rendering reports the error.
                None if compose.is_none() && matches!(self.files.entry(&path), Ok(None)) => links.push(path),
                None if compose.is_none() => unreadable.push(path),
                Some(_) | None => {}
            }
        }
        let Some(compose) = compose else {
            // As `kubectl apply -f FOLDER` reads them.
            for path in json {
                match self.documents_in_json(&path) {
                    Some(documents) if kubernetes::is_of_other_tool(&documents) => of_other_tools.push(path),
                    Some(documents) if kubernetes::is_kubernetes(&documents) => kubernetes.push(path),
                    Some(_) | None => {}
                }
            }
            if kubernetes.is_empty() {
                return if !unreadable.is_empty() {
                    FolderContent::Unreadable(unreadable)
                } else if !of_other_tools.is_empty() {
                    FolderContent::OtherTools(of_other_tools)
                } else if !links.is_empty() {
                    FolderContent::BrokenLinks(links)
                } else {
                    FolderContent::Nothing
                };
            }
            // Next to manifests these may be objects that the application needs, so that rendering reports their kinds.
            kubernetes.extend(of_other_tools);
            kubernetes.extend(unreadable);
            kubernetes.extend(links);
            kubernetes.sort();
            return FolderContent::Application(Format::Kubernetes, kubernetes, Vec::new());
        };
        let compose_path = join(folder, compose);
        let mut findings = Vec::new();
        for other in kubernetes {
            let message = format!(
                "is a Kubernetes manifest in the folder of `{compose_path}`, but a folder is one application"
            );
            let finding = Finding::error(Location::file(other), "", message);
            findings.push(finding.help("move one of them to a folder of its own"));
        }
        for names in [COMPOSE_FILES, OVERRIDE_FILES] {
            let mut existing = names.iter().filter(|name| is_file(name));
            let Some(first) = existing.next() else { continue };
            findings.extend(existing.map(|other| {
                let message = format!("is not read: `{}` comes before it", join(folder, first));
                let finding = Finding::warning(Location::file(join(folder, other)), "", message);
                finding.help("remove one of the two files, or list the files in `files`")
            }));
        }
        let mut files = vec![compose_path];
        let override_file = OVERRIDE_FILES.iter().find(|name| is_file(name)).map(|name| (*name).to_owned());
        let more = override_file.into_iter().chain(overlay_of(compose, &self.host.name));
        let more = more.filter(|name| is_file(name)).map(|name| join(folder, &name));
        files.extend(more.filter(|path| !files.contains(path)).collect::<Vec<_>>());
        FolderContent::Application(Format::Compose, files, findings)
    }

    /// Removes the bases, also those of kustomizations that lie too deep to be applications. These are reported then, and if there
    /// is no application otherwise, because somebody expects to see them.
    fn leave_out_bases_below(&mut self, top: &str) {
        let (all, findings) = (self.found.clone(), self.findings.clone());
        self.leave_out_bases();
        let is_kustomized = |it: &AppSpec| it.files.iter().any(|it| kustomize::is_kustomization(it));
        if !self.found.is_empty() && !self.found.iter().any(is_kustomized) {
            self.warn_of_kustomizations_below(top);
            return;
        }
        let mut deeper = Vec::new();
        self.find_deeper(top, 0, &mut deeper);
        if deeper.is_empty() {
            return;
        }
        let paths: BTreeSet<String> = deeper.iter().map(|it| it.path.clone()).collect();
        let alone = std::mem::replace(&mut self.found, [all, deeper].concat());
        let findings_alone = std::mem::replace(&mut self.findings, findings);
        self.leave_out_bases();
        let (deeper, kept): (Vec<AppSpec>, Vec<AppSpec>) =
            std::mem::take(&mut self.found).into_iter().partition(|it| paths.contains(&it.path));
        if kept.len() == alone.len() && !alone.is_empty() {
            (self.found, self.findings) = (alone, findings_alone);
            return;
        }
        self.found = kept;
        let deeper: Vec<String> = deeper.into_iter().map(|app| app.path).collect();
        let message = too_deep("a kustomization");
        self.findings.extend(folder_findings::of_each(Severity::Error, &deeper, &message, NEARER));
    }

    /// Warns of kustomizations below the search depth that are no bases. No application uses one.
    fn warn_of_kustomizations_below(&mut self, top: &str) {
        let mut deeper = Vec::new();
        self.find_deeper(top, 0, &mut deeper);
        let found = std::mem::replace(&mut self.found, deeper);
        let findings = self.findings.clone();
        self.leave_out_bases();
        let deeper = std::mem::replace(&mut self.found, found);
        self.findings = findings;
        let folders: Vec<String> =
            deeper.into_iter().map(|it| it.path).filter(|folder| !is_aside(folder, top)).collect();
        self.warn_of_deeper(&folders, "a kustomization");
        self.too_deep.extend(folders);
    }

    /// Warns of folders below the search depth, which somebody may expect to be applications.
    fn warn_of_deeper(&mut self, folders: &[String], content: &str) {
        let message = too_deep(content);
        self.findings.extend(folder_findings::of_each(Severity::Warning, folders, &message, NEARER));
    }

    /// Warns of folders and files that somebody may expect to be applications, except those that applications may use.
    fn warn_of_missed(&mut self, top: &str) {
        let mut missed = std::mem::take(&mut self.missed);
        missed.retain(|(_, path)| !is_aside(path, top));
        if missed.iter().any(|(why, _)| *why == Missed::OtherName) {
            let compose = || self.found.iter().filter(|app| app.format == Format::Compose);
            let texts = self.texts_with_others(compose().flat_map(|app| &app.files));
            let may_name_any = compose().any(|app| app.files.is_empty());
            let is_used = |path: &str| {
                let name = path.rsplit('/').next().unwrap_or(path);
                may_name_any || texts.iter().any(|text| text.contains(name))
            };
            missed.retain(|(why, path)| *why != Missed::OtherName || !is_used(path));
        }
        self.findings.extend(folder_findings::of_missed(&missed));
    }

    /// Folders below the search depth that have a Compose file which no application seems to use.
    fn compose_below(&mut self, top: &str, applications: &BTreeSet<String>) -> Vec<String> {
        let mut found = Vec::new();
        self.find_compose(top, 0, applications, &mut found);
        self.too_deep.extend(found.iter().cloned());
        let compose: Vec<&AppSpec> = self.found.iter().filter(|it| it.format == Format::Compose).collect();
        // Variables name its files, which may be any of these.
        if compose.iter().any(|it| it.files.is_empty()) {
            return Vec::new();
        }
        let texts = self.texts_with_others(compose.iter().flat_map(|it| &it.files));
        found.retain(|folder| !is_named(&texts, folder));
        found
    }

    /// The texts, without comments, of those of the Compose files that use files of other folders.
    fn texts_with_others<'f>(&self, files: impl IntoIterator<Item = &'f String>) -> Vec<String> {
        let text = |path: &String| {
            let text = self.text(path);
            let lines = text.lines().filter(|line| !line.trim_start().starts_with('#'));
            lines.collect::<Vec<_>>().join("\n")
        };
        let texts = files.into_iter().map(text);
        texts.filter(|text| text.contains("include:") || text.contains("extends:")).collect()
    }

    fn find_compose(
        &self,
        folder: &str,
        depth: usize,
        applications: &BTreeSet<String>,
        found: &mut Vec<String>,
    ) {
        let Ok(Some(entries)) = self.folder(folder) else { return };
        let is_compose = |(name, entry): &(String, Entry)| {
            COMPOSE_FILES.contains(&name.as_str()) && matches!(entry, Entry::File { .. })
        };
        if depth > DEEPEST && entries.iter().any(is_compose) {
            found.push(folder.to_owned());
        } else if depth < DEEPEST + DEEPER && !applications.contains(folder) {
            for (name, _) in entries.iter().filter(|(_, entry)| *entry == Entry::Folder) {
                if !name.starts_with('.') && !ASIDE.contains(&name.as_str()) {
                    self.find_compose(&join(folder, name), depth + 1, applications, found);
                }
            }
        }
    }

    /// Kustomizations of folders below the search depth.
    fn find_deeper(&self, folder: &str, depth: usize, deeper: &mut Vec<AppSpec>) {
        let is_application = |folder: &str| self.found.iter().any(|it| it.path == folder);
        let Ok(Some(entries)) = self.folder(folder) else { return };
        let is_file =
            |name: &str| entries.iter().any(|(it, entry)| it == name && matches!(entry, Entry::File { .. }));
        let kustomization = kustomize::FILES.iter().find(|it| is_file(it)).map(|it| join(folder, it));
        if let Some(path) = kustomization.filter(|_| depth > DEEPEST) {
            deeper.extend(self.spec(
                folder,
                Format::Kubernetes,
                vec![path],
                Vec::new(),
                &Configured::default(),
            ));
        } else if depth < DEEPEST + DEEPER && !is_application(folder) {
            for (name, _) in entries.iter().filter(|(_, entry)| *entry == Entry::Folder) {
                if !name.starts_with('.') {
                    self.find_deeper(&join(folder, name), depth + 1, deeper);
                }
            }
        }
    }

    /// Removes applications that a kustomization of another application uses.
    fn leave_out_bases(&mut self) {
        let found = std::mem::take(&mut self.found);
        self.found = kustomize_bases::leave_out(self.files, found, &mut self.findings);
    }

    /// The text of a manifest. Empty: it cannot be read.
    fn text(&self, path: &str) -> String {
        let bytes = self.files.read(path, LARGEST_MANIFEST).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// The documents of a file in JSON that may be a manifest. Other JSON, as the large files of a dashboard, is not parsed.
    fn documents_in_json(&self, path: &str) -> Option<Vec<Node>> {
        const KEY: &[u8] = b"\"apiVersion\"";
        let bytes = self.files.read(path, LARGEST_MANIFEST).ok()?;
        let has_key = bytes.windows(KEY.len()).any(|part| part == KEY);
        has_key.then(|| yaml::parse(path, &bytes, &Limits::default()).ok()).flatten()
    }

    /// The documents of a file. `None`: it cannot be read.
    fn documents(&self, path: &str) -> Option<Vec<Node>> {
        let bytes = self.files.read(path, LARGEST_MANIFEST).ok()?;
        yaml::parse(path, &bytes, &Limits::default()).ok()
    }

    fn add(
        &mut self,
        folder: &str,
        format: Format,
        files: Vec<String>,
        findings: Vec<Finding>,
        settings: &Configured,
    ) {
        match self.spec(folder, format, files, findings, settings) {
            Some(spec) => self.found.push(spec),
            None => self.report(folder, "has no letter or digit in its name, so the application has no name"),
        }
    }

    /// The application of a folder whose variables name its Compose files elsewhere (`COMPOSE_FILE`).
    pub(crate) fn named_by_variables(&self, folder: &str, settings: &Configured) -> Option<AppSpec> {
        let spec = self.spec(folder, Format::Compose, Vec::new(), Vec::new(), settings)?;
        driftless_compose::names_files(self.files, &spec).then_some(spec)
    }

    /// The application of a folder. `None`: neither the settings nor the folder give it a name.
    fn spec(
        &self,
        folder: &str,
        format: Format,
        files: Vec<String>,
        mut findings: Vec<Finding>,
        settings: &Configured,
    ) -> Option<AppSpec> {
        let called = folder.rsplit('/').next().filter(|it| !it.is_empty()).unwrap_or(self.repository_name);
        let name = settings.name.clone().or_else(|| AppName::normalise(called))?;
        let (mut env_files, outside) = inside(folder, "envFiles", &settings.env_files);
        findings.extend(outside);
        let mut variables = settings.variables.clone();
        if format == Format::Compose {
            self.add_env_file_of_host(folder, &mut env_files);
            for (name, value) in self.host.variables() {
                variables.entry(name).or_insert_with(|| value.clone());
            }
        }
        let mut spec = AppSpec {
            name,
            path: folder.to_owned(),
            format,
            files,
            variables,
            host_values: Vec::new(),
            host_files: Vec::new(),
            profiles: settings.profiles.clone(),
            env_files,
            engine: EngineKind::Docker,
            has_listed_files: !settings.files.is_empty(),
            findings,
        };
        self.report_broken_links(&mut spec);
        Some(spec)
    }

    /// Reports manifests that are links which cannot be followed, unless variables name other files (`COMPOSE_FILE`).
    fn report_broken_links(&self, spec: &mut AppSpec) {
        let broken: Vec<Finding> = spec.files.iter().filter_map(|path| self.broken_link(path)).collect();
        let is_replaced = !broken.is_empty()
            && spec.format == Format::Compose
            && !spec.has_listed_files
            && driftless_compose::names_files(self.files, spec);
        if !is_replaced {
            spec.findings.extend(broken);
        }
    }

    /// The error about a link that cannot be followed. A reader of the path reports another error.
    fn broken_link(&self, path: &str) -> Option<Finding> {
        broken_link(self.files, path).ok().flatten()
    }

    /// Adds `.env.HOST`, if there is one, after the other files of variables.
    fn add_env_file_of_host(&self, folder: &str, env_files: &mut Vec<String>) {
        // Rendering reports a link that cannot be followed.
        let is_file = |path: &str| {
            matches!(self.files.entry(path), Ok(Some(Entry::File { .. }))) || self.broken_link(path).is_some()
        };
        let own = join(folder, &format!(".env.{}", self.host.name));
        if self.host.name.is_empty() || !is_file(&own) || env_files.contains(&own) {
            return;
        }
        let usual = join(folder, ".env");
        if env_files.is_empty() && is_file(&usual) {
            env_files.push(usual);
        }
        env_files.push(own);
    }

    fn report(&mut self, folder: &str, message: &str) {
        self.findings.push(error(folder, message));
    }
}

/// Resolves the paths of a setting to paths from the repository's root. A path outside of the repository is an error.
fn inside(folder: &str, setting: &str, paths: &[String]) -> (Vec<String>, Vec<Finding>) {
    let (mut found, mut findings) = (Vec::new(), Vec::new());
    for path in paths {
        if let Some(path) = paths::join(folder, path).filter(|_| !path.starts_with('/')) {
            found.push(path);
        } else {
            let message = format!("has `{path}` in `{setting}`, which is outside of the repository");
            let help = "add the file to the repository, and give its path from the application's folder";
            findings.push(error(folder, &message).help(help));
        }
    }
    (found, findings)
}

/// The advice about a folder without an application that has something like one.
fn near_miss(why: Missed, path: &str) -> String {
    let path = if path.is_empty() { "." } else { path };
    format!("`{path}` {}: {}", why.message(), why.advice())
}

/// Whether a file is called like a Compose file, but not as one that is found by its name.
fn is_like_compose(name: &str) -> bool {
    let (stem, extension) = name.rsplit_once('.').unwrap_or((name, ""));
    matches!(extension, "yaml" | "yml")
        && (stem.contains("compose") || stem.contains("stack"))
        && !OVERRIDE_FILES.contains(&name)
}

/// Whether one of these texts may name a file in a folder.
fn is_named(texts: &[String], folder: &str) -> bool {
    let name = format!("{}/", folder.rsplit('/').next().unwrap_or(folder));
    texts.iter().any(|text| text.contains(&name))
}

/// `compose.nas.yaml` and `compose.nas.yml` for `compose.yaml` on the host `nas`.
fn overlay_of(compose: &str, host: &str) -> Vec<String> {
    if host.is_empty() {
        return Vec::new();
    }
    let stem = compose.split('.').next().unwrap_or(compose);
    vec![format!("{stem}.{host}.yaml"), format!("{stem}.{host}.yml")]
}

fn join(folder: &str, name: &str) -> String {
    if folder.is_empty() { name.to_owned() } else { format!("{folder}/{name}") }
}

/// Without leading, trailing and doubled slashes and without `.`.
fn tidy(path: &str) -> String {
    path.split('/').filter(|it| !matches!(*it, "" | ".")).collect::<Vec<_>>().join("/")
}
