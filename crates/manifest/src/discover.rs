//! Finds the applications in a repository: which folder is one, of which format, and what it is called.
//!
//! It reads manifests only as far as needed to tell what they are; rendering reads them again. Only of kustomizations
//! it must know what they take in, since a base is no application beside its overlays.

use std::collections::BTreeMap;

use driftless_files::{AppSpec, Bounded, Entry, Files, paths};
use driftless_kubernetes::{self as kubernetes, kustomize};
use driftless_model::{AppName, Finding, Format, Location};
use driftless_yaml::{self as yaml, Limits, Node};

/// In the order of preference.
const COMPOSE_FILES: &[&str] = &["compose.yaml", "compose.yml", "docker-compose.yaml", "docker-compose.yml"];

const NOTHING_HERE: &str = "holds no application: there is no Compose file and no Kubernetes manifest";

/// How many folders deep applications are looked for below the given path.
const DEEPEST: usize = 2;

/// How many files and folders the search may list.
const MOST_ENTRIES: usize = 200_000;

/// The largest manifest that is looked into, in bytes.
const LARGEST_MANIFEST: u64 = 1 << 20;

/// An application that the operator named. Without a name it is called after its folder.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Configured {
    pub name: Option<AppName>,
    /// From the repository's root.
    pub path: String,
    pub variables: BTreeMap<String, String>,
    pub profiles: Vec<String>,
    /// Compose files, from the application's folder; each later one is laid upon those before. Without: found.
    pub files: Vec<String>,
    /// Files of variables, from the application's folder, instead of its `.env`.
    pub env_files: Vec<String>,
}

/// What was found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Discovery {
    /// Sorted by name; names are unique.
    pub apps: Vec<AppSpec>,
    pub findings: Vec<Finding>,
}

/// Looks for applications at `path` and below, or, where `configured` is not empty, only for those. The folder
/// at the root is called after the repository.
///
/// An application whose manifests cannot be read is among them all the same: rendering it tells what is wrong. An
/// error among the findings means that some application could not be told, so one that is missing here must not
/// be taken for removed.
pub fn discover(
    files: &dyn Files,
    path: &str,
    repository_name: &str,
    configured: &[Configured],
) -> Discovery {
    let files = &Bounded::new(files, MOST_ENTRIES);
    let mut search = Search { files, repository_name, found: Vec::new(), findings: Vec::new() };
    if configured.is_empty() {
        let top = tidy(path);
        search.below(&top, DEEPEST);
        search.leave_out_bases();
        if search.found.is_empty() && search.findings.is_empty() {
            search.tell(&top, NOTHING_HERE);
        }
    }
    for one in configured {
        search.configured(one);
    }
    let Search { found, mut findings, .. } = search;
    let apps = unique(found, &mut findings);
    Discovery { apps, findings }
}

struct Search<'a> {
    files: &'a dyn Files,
    repository_name: &'a str,
    found: Vec<AppSpec>,
    findings: Vec<Finding>,
}

/// What a folder holds.
enum Holding {
    Application(Format, Vec<String>),
    /// A kustomization that is a part of others only.
    Component(Vec<String>),
    Nothing,
}

impl Search<'_> {
    /// Looks at a folder, and below it if it is no application itself.
    fn below(&mut self, folder: &str, depth: usize) {
        match self.folder(folder) {
            Ok(Some(entries)) => self.application_or_below(folder, &entries, depth),
            Ok(None) => self.tell(folder, "does not exist in the repository, or is no folder"),
            Err(message) => self.tell(folder, &message),
        }
    }

    fn application_or_below(&mut self, folder: &str, entries: &[(String, Entry)], depth: usize) {
        match self.holding(folder, entries) {
            Holding::Application(format, files) => {
                self.add(folder, None, format, files, &Configured::default());
            }
            // Where it was chosen itself, rendering tells that it is none.
            Holding::Component(files) if depth == DEEPEST => {
                self.add(folder, None, Format::Kubernetes, files, &Configured::default());
            }
            Holding::Nothing if depth > 0 => {
                for (name, entry) in entries {
                    if *entry == Entry::Folder && !name.starts_with('.') {
                        self.below(&join(folder, name), depth - 1);
                    }
                }
            }
            Holding::Component(_) | Holding::Nothing => {}
        }
    }

    fn configured(&mut self, one: &Configured) {
        let path = tidy(&one.path);
        if !one.files.is_empty() {
            let files = self.inside(&path, &one.files);
            return self.add(&path, one.name.clone(), Format::Compose, files, one);
        }
        match self.folder(&path) {
            Ok(Some(entries)) => match self.holding(&path, &entries) {
                Holding::Application(format, files) => self.add(&path, one.name.clone(), format, files, one),
                Holding::Component(files) => {
                    self.add(&path, one.name.clone(), Format::Kubernetes, files, one);
                }
                Holding::Nothing => self.tell(&path, NOTHING_HERE),
            },
            Ok(None) => self.tell(&path, "does not exist in the repository, or is no folder"),
            Err(message) => self.tell(&path, &message),
        }
    }

    /// What is in a folder; `None` where there is none.
    fn folder(&self, folder: &str) -> Result<Option<Vec<(String, Entry)>>, String> {
        match self.files.entry(folder).map_err(|it| it.to_string())? {
            Some(Entry::Folder) => self.files.list(folder).map(Some).map_err(|it| it.to_string()),
            Some(Entry::File { .. } | Entry::Submodule) | None => Ok(None),
        }
    }

    /// Decides by the names of the files, and for Kubernetes by what is in them.
    fn holding(&mut self, folder: &str, entries: &[(String, Entry)]) -> Holding {
        let is_file =
            |name: &str| entries.iter().any(|(it, entry)| it == name && matches!(entry, Entry::File { .. }));
        let compose = COMPOSE_FILES.iter().find(|it| is_file(it));
        let kustomization = kustomize::FILES.iter().find(|it| is_file(it)).map(|it| join(folder, it));
        if let (None, Some(path)) = (compose, &kustomization) {
            let is_component = |it: &Node| it.get("kind").and_then(Node::as_scalar) == Some("Component");
            let documents = self.documents(path).unwrap_or_default();
            return if documents.iter().any(is_component) {
                Holding::Component(vec![path.clone()])
            } else {
                Holding::Application(Format::Kubernetes, vec![path.clone()])
            };
        }
        let mut kubernetes: Vec<String> = kustomization.into_iter().collect();
        for (name, entry) in entries {
            let is_yaml = matches!(name.rsplit_once('.'), Some((_, "yaml" | "yml")));
            let is_ours = compose.is_some_and(|it| name == it || is_override(name))
                || COMPOSE_FILES.contains(&name.as_str());
            if !is_yaml
                || is_ours
                || kustomize::is_kustomization(name)
                || name.starts_with('.')
                || !matches!(entry, Entry::File { .. })
            {
                continue;
            }
            let path = join(folder, name);
            match self.documents(&path) {
                Some(documents) if kubernetes::is_kubernetes(&documents) => kubernetes.push(path),
                // Beside a Compose file it may be anything's configuration, even a template. Otherwise it is taken
                // for a manifest, so that its application stays and tells what is wrong when it is rendered.
                None if compose.is_none() => kubernetes.push(path),
                Some(_) | None => {}
            }
        }
        let Some(compose) = compose else {
            if kubernetes.is_empty() {
                return Holding::Nothing;
            }
            return Holding::Application(Format::Kubernetes, kubernetes);
        };
        let compose_path = join(folder, compose);
        for other in kubernetes {
            let message =
                format!("is a Kubernetes manifest beside `{compose_path}`; a folder is one application");
            let finding = Finding::error(Location::file(other), "", message);
            self.findings.push(finding.help("move one of them to a folder of its own"));
        }
        let mut files = vec![compose_path];
        files.extend(override_of(compose).into_iter().filter(|it| is_file(it)).map(|it| join(folder, &it)));
        Holding::Application(Format::Compose, files)
    }

    /// What a kustomization takes in is a part of that application, and none of its own.
    ///
    /// While one of them has a gap, nobody knows what belongs there: a typing error in an overlay must not make its
    /// base run. So what may be a base is not told then.
    fn leave_out_bases(&mut self) {
        let is_kustomized = |it: &AppSpec| it.files.iter().any(|it| kustomize::is_kustomization(it));
        if self.found.len() < 2 || !self.found.iter().any(is_kustomized) {
            return;
        }
        let taken: Vec<Option<kustomize::Taken>> = self
            .found
            .iter()
            .map(|it| {
                it.files.first().filter(|_| is_kustomized(it)).map(|it| kustomize::taken_in(self.files, it))
            })
            .collect();
        let covers = |one: Option<&kustomize::Taken>, files: &[String]| {
            one.is_some_and(|it| files.iter().all(|file| it.files.contains(file)))
        };
        let broken = self.found.iter().zip(&taken).find(|(_, it)| it.as_ref().is_some_and(|it| it.has_gaps));
        let broken = broken.map(|(it, _)| (it.path.clone(), it.files.concat()));
        let mut kept = Vec::new();
        for (index, (app, own)) in self.found.iter().zip(&taken).enumerate() {
            let others = self.found.iter().zip(&taken).enumerate().filter(|(other, _)| *other != index);
            // Of two that take in each other, both stay and tell so.
            let is_base = others.into_iter().any(|(_, (other, taken))| {
                covers(taken.as_ref(), &app.files) && !covers(own.as_ref(), &other.files)
            });
            if is_base {
                continue;
            }
            let may_be_base = own.as_ref().is_some_and(|it| !it.has_gaps && it.is_below(&app.path));
            match broken.as_ref().filter(|_| may_be_base) {
                None => kept.push(app.clone()),
                Some((path, file)) => {
                    let message = format!(
                        "something that `{path}` lists cannot be read, so that `{}` may be a part of it",
                        app.path
                    );
                    let finding = Finding::error(Location::file(file), "", message);
                    let help = "correct it, or name the applications in the configuration";
                    self.findings.push(finding.help(help));
                }
            }
        }
        self.found = kept;
    }

    /// `None`: it cannot be read.
    fn documents(&self, path: &str) -> Option<Vec<Node>> {
        let bytes = self.files.read(path, LARGEST_MANIFEST).ok()?;
        yaml::parse(path, &bytes, &Limits::default()).ok()
    }

    fn add(
        &mut self,
        folder: &str,
        name: Option<AppName>,
        format: Format,
        files: Vec<String>,
        settings: &Configured,
    ) {
        let called = folder.rsplit('/').next().filter(|it| !it.is_empty()).unwrap_or(self.repository_name);
        let env_files = self.inside(folder, &settings.env_files);
        match name.or_else(|| AppName::normalise(called)) {
            Some(name) => self.found.push(AppSpec {
                name,
                path: folder.to_owned(),
                format,
                files,
                variables: settings.variables.clone(),
                profiles: settings.profiles.clone(),
                env_files,
                has_listed_files: !settings.files.is_empty(),
            }),
            None => self.tell(folder, "has no letter or digit in its name to call an application by"),
        }
    }

    /// Paths of the settings, from the repository's root.
    fn inside(&mut self, folder: &str, paths: &[String]) -> Vec<String> {
        let mut found = Vec::new();
        for path in paths {
            match paths::join(folder, path).filter(|_| !path.starts_with('/')) {
                Some(path) => found.push(path),
                None => self.tell(folder, &format!("asks for `{path}`, which is outside of the repository")),
            }
        }
        found
    }

    fn tell(&mut self, folder: &str, message: &str) {
        let shown = if folder.is_empty() { "the repository's root" } else { folder };
        let finding = Finding::error(Location::file(folder), "", format!("`{shown}` {message}"));
        self.findings.push(finding);
    }
}

/// Applications of one name would fight over their containers, so none of them is taken.
fn unique(found: Vec<AppSpec>, findings: &mut Vec<Finding>) -> Vec<AppSpec> {
    let mut by_name: BTreeMap<AppName, Vec<AppSpec>> = BTreeMap::new();
    for app in found {
        by_name.entry(app.name.clone()).or_default().push(app);
    }
    let mut apps = Vec::new();
    for (name, mut same) in by_name {
        if same.len() > 1 {
            let folders: Vec<String> = same.iter().map(|it| format!("`{}`", it.path)).collect();
            let message =
                format!("several folders make an application called `{name}`: {}", folders.join(", "));
            for app in &same {
                let finding = Finding::error(Location::file(app.path.clone()), "", message.clone());
                findings.push(finding.help("rename a folder, or name the applications in the configuration"));
            }
        } else {
            apps.append(&mut same);
        }
    }
    apps
}

fn is_override(name: &str) -> bool {
    COMPOSE_FILES.iter().any(|it| override_of(it).iter().any(|it| it == name))
}

/// `compose.override.yaml` and `compose.override.yml` for `compose.yaml`; the first that exists counts.
fn override_of(compose: &str) -> Vec<String> {
    let stem = compose.split('.').next().unwrap_or(compose);
    vec![format!("{stem}.override.yaml"), format!("{stem}.override.yml")]
}

fn join(folder: &str, name: &str) -> String {
    if folder.is_empty() { name.to_owned() } else { format!("{folder}/{name}") }
}

/// Without leading, trailing and doubled slashes and without `.`.
fn tidy(path: &str) -> String {
    path.split('/').filter(|it| !matches!(*it, "" | ".")).collect::<Vec<_>>().join("/")
}
