//! The order in which Compose files become one project: each file is read, its variables are put in, what it includes
//! and extends is fetched, it is laid upon the files before it, checked and made canonical. Then names, networks and
//! dependencies are filled in, and the parts are held against each other.
//!
//! What comes out is one tree in which everything is written the long way and knows its place. What it means for
//! Docker is the business of the lowering.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use super::{
    canonical, consistency, lower, merge, normalise, paths,
    print::Printer,
    reader::{Path, Reader},
    resets::Resets,
    strict, tree, unique,
    variables::{Progress, Variables},
};
use driftless_files::{AppSpec, Files};
use driftless_model::{AppName, Finding, Location, Mask};
use driftless_yaml as yaml;
use driftless_yaml::{Limits, Node, Place};

/// The largest manifest that is read, in bytes.
const LARGEST_MANIFEST: u64 = 1 << 20;

/// How many keys and values the files of one application may hold together, each as often as it is used.
const MOST_NODES: usize = 1_000_000;

/// How many ports an application may have; who asks for more than all that there are means something else.
const MOST_PORTS: usize = 65_536;

/// The files of one application that it may name itself.
const FILES_VARIABLE: &str = "COMPOSE_FILE";

/// A project as its files describe it.
pub(super) struct Loaded {
    /// The whole project. `None` if there is nothing in the files, or nothing that could be read.
    pub(super) root: Option<Node>,
    pub(super) name: String,
    pub(super) variables: Variables,
    /// The files that it was asked to read, from the repository's root.
    pub(super) manifests: Vec<String>,
    pub(super) findings: Vec<Finding>,
    /// All files that were read, for excerpts.
    sources: BTreeMap<String, Arc<[u8]>>,
    profiles: Vec<String>,
}

impl Loaded {
    /// The canonical form, where `folder` is the project's folder on some machine.
    pub(super) fn canonical(&self, folder: &str, mask: Option<&Mask>) -> Option<serde_json::Value> {
        let mut root = self.root.clone()?;
        if let Some(services) = tree::get_mut(&mut root, "services")
            && let yaml::Kind::Mapping(entries) = &mut services.kind
        {
            entries.retain(|it| is_active(&it.value, &self.profiles));
        }
        for (_, volume) in tree::children_mut(&mut root, "volumes") {
            if let Some(device) = canonical::bound_device(volume) {
                absolute(device, folder);
            }
        }
        for (_, service) in tree::children_mut(&mut root, "services") {
            for mount in tree::get_mut(service, "volumes").map(tree::items_mut).unwrap_or_default() {
                let is_bind = mount.get("type").and_then(tree::as_text) == Some("bind");
                if let Some(source) = tree::get_mut(mount, "source").filter(|_| is_bind) {
                    absolute(source, folder);
                }
            }
        }
        tree::set(&mut root, "name", tree::text(&nowhere(), self.name.clone()));
        Some(Printer { folder, mask }.project(&root))
    }

    /// Sorts what was found, and shows the lines that it speaks of.
    pub(super) fn present(&self, findings: &mut Vec<Finding>) {
        findings.sort_by(|one, other| (&one.location, one).cmp(&(&other.location, other)));
        findings.dedup();
        for finding in findings {
            // An unknown key may be a variable in the wrong place, with its value beside it.
            let is_harmless = !finding.message.starts_with("unknown key");
            let source = self.sources.get(&finding.location.file).filter(|_| is_harmless);
            if let Some(bytes) = source {
                *finding = yaml::with_excerpt(finding.clone(), bytes);
            }
        }
    }
}

fn absolute(node: &mut Node, folder: &str) {
    if let Some(path) = tree::as_text(node) {
        *node = tree::text(&node.place, super::print::absolute(folder, path));
    }
}

fn nowhere() -> Place {
    Place { file: Arc::from(""), line: 0, column: 0 }
}

/// Whether a service is used with these profiles.
fn is_active(service: &Node, profiles: &[String]) -> bool {
    let own = service.get("profiles").map(Node::items).unwrap_or_default();
    let is_on =
        |it: &Node| it.as_scalar().is_some_and(|own| profiles.iter().any(|it| it == "*" || it == own));
    own.is_empty() || own.iter().any(is_on)
}

/// Loads an application's files.
pub(super) fn load(files: &dyn Files, spec: &AppSpec) -> Loaded {
    let mut findings = Vec::new();
    let mut variables = Variables::load(files, spec, &mut findings);
    let manifests = manifests(spec, &variables, &mut findings);
    let mut loader = Loader::new(files, findings);
    let given = loader.given_name(&manifests);
    let name = project_name(spec, &variables, given.as_ref(), &mut loader.findings);
    variables.set("COMPOSE_PROJECT_NAME", &name);
    let scope = Scope { folder: &spec.path, variables: &variables };
    let mut root = loader.model(&manifests, &scope, &[]);
    let profiles = lower::active_profiles(spec, &variables);
    if root.entries().is_empty() {
        if !loader.findings.iter().any(Finding::is_error) {
            let location = Location::file(manifests.first().map_or(spec.path.as_str(), String::as_str));
            loader.findings.push(Finding::error(location, "", "the file is empty"));
        }
    } else {
        normalise::normalise(&mut root, &name, &variables);
        let active = |service: &Node| is_active(service, &profiles);
        consistency::check(&root, &active, &mut loader.findings);
    }
    for (name, value) in std::mem::take(&mut loader.outside) {
        variables.set_missing(&name, &value);
    }
    let Loader { findings, sources, .. } = loader;
    let root = (!root.entries().is_empty()).then_some(root);
    Loaded { root, name, variables, manifests, findings, sources, profiles }
}

/// The files that the settings name, or `COMPOSE_FILE`, or that were found.
fn manifests(spec: &AppSpec, variables: &Variables, findings: &mut Vec<Finding>) -> Vec<String> {
    let listed = variables.get(FILES_VARIABLE).filter(|it| !it.is_empty() && !spec.has_listed_files);
    let Some(listed) = listed else { return spec.files.clone() };
    let separator = variables.get("COMPOSE_PATH_SEPARATOR").filter(|it| !it.is_empty()).unwrap_or(":");
    let mut manifests = Vec::new();
    for path in listed.split(separator).filter(|it| !it.is_empty()) {
        if let Some(path) = paths::join(&spec.path, path).filter(|_| !path.starts_with('/')) {
            manifests.push(path);
        } else {
            let message = format!("`{FILES_VARIABLE}` names `{path}`, which is outside of the repository");
            findings.push(Finding::error(Location::file(&spec.path), FILES_VARIABLE, message));
        }
    }
    manifests
}

/// `COMPOSE_PROJECT_NAME`, or `name:` of the last file that has one, or the application's name.
fn project_name(
    spec: &AppSpec,
    variables: &Variables,
    given: Option<&Node>,
    findings: &mut Vec<Finding>,
) -> String {
    let given = given.and_then(|node| Some((node, node.as_scalar()?)));
    let from_file = given.map(|(node, text)| (variables.interpolate_text(text), Some(node)));
    let from_variable = variables.get("COMPOSE_PROJECT_NAME").map(|it| (it.to_owned(), None));
    let chosen = from_variable.or(from_file).filter(|(text, _)| !text.is_empty());
    let Some((text, node)) = chosen else { return spec.name.0.clone() };
    if let Some(name) = AppName::normalise(&text) {
        return name.0;
    }
    let message = format!("`{text}` is not a project's name: it needs a letter or digit");
    findings.push(match node {
        Some(node) => node.finding("name", message),
        None => Finding::error(Location::file(&spec.path), "COMPOSE_PROJECT_NAME", message),
    });
    spec.name.0.clone()
}

/// Where a file's paths begin, and what its variables are.
pub(super) struct Scope<'s> {
    /// From the repository's root.
    pub(super) folder: &'s str,
    pub(super) variables: &'s Variables,
}

/// How much is done with a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Depth {
    /// All of it.
    Whole,
    /// One of its services is wanted: it is checked when it has become part of another file.
    Part,
}

/// What is kept while the files of one application are read.
pub(super) struct Loader<'a> {
    pub(super) files: &'a dyn Files,
    pub(super) findings: Vec<Finding>,
    sources: BTreeMap<String, Arc<[u8]>>,
    /// By path. `None`: it cannot be read, which was told.
    parsed: BTreeMap<String, Option<Vec<Node>>>,
    /// The files that were taken in.
    taken: BTreeSet<String>,
    progress: Progress,
    /// How many keys and values may still be taken in.
    left: usize,
    /// How many ports may still be made of ranges.
    ports: usize,
    /// Variables that only an included file's own `.env` knows, and that configs and secrets are made of.
    pub(super) outside: BTreeMap<String, String>,
}

impl<'a> Loader<'a> {
    fn new(files: &'a dyn Files, findings: Vec<Finding>) -> Self {
        Self {
            files,
            findings,
            sources: BTreeMap::new(),
            parsed: BTreeMap::new(),
            taken: BTreeSet::new(),
            progress: Progress::default(),
            left: MOST_NODES,
            ports: MOST_PORTS,
            outside: BTreeMap::new(),
        }
    }

    /// `name:` of the last document that has one.
    fn given_name(&mut self, manifests: &[String]) -> Option<Node> {
        let mut given = None;
        for path in manifests {
            let documents = self.documents(path).map(Vec::as_slice).unwrap_or_default().iter();
            let last = documents.filter_map(|it| it.get("name")).rfind(|it| !it.is_null());
            given = last.cloned().or(given);
        }
        given
    }

    /// The documents of a file.
    fn documents(&mut self, path: &str) -> Option<&Vec<Node>> {
        if !self.parsed.contains_key(path) {
            let documents = self.parse(path);
            self.parsed.insert(path.to_owned(), documents);
        }
        self.parsed.get(path).and_then(Option::as_ref)
    }

    fn parse(&mut self, path: &str) -> Option<Vec<Node>> {
        let bytes = match self.files.read(path, LARGEST_MANIFEST) {
            Ok(bytes) => bytes,
            Err(error) => {
                self.findings.push(Finding::error(Location::file(path), "", error.to_string()));
                return None;
            }
        };
        let parsed = yaml::parse(path, &bytes, &Limits::default());
        self.sources.insert(path.to_owned(), bytes);
        match parsed {
            Ok(mut documents) => {
                documents.retain(|it| !it.is_null());
                Some(documents)
            }
            Err(finding) => {
                self.findings.push(finding);
                None
            }
        }
    }

    /// Takes the documents of a file in, as far as there is room.
    fn take(&mut self, path: &str) -> Vec<Node> {
        let is_first = self.taken.insert(path.to_owned());
        if self.documents(path).is_none() {
            return Vec::new();
        }
        // Most files are taken in once, so a copy is made only of one that is asked for again.
        let documents = if is_first { self.parsed.remove(path) } else { self.parsed.get(path).cloned() };
        let documents = documents.flatten().unwrap_or_default();
        let size = documents.iter().map(tree::size).sum();
        if self.charge(size, &Location::file(path)) { documents } else { Vec::new() }
    }

    /// Counts what is taken in. False, and told, when it is too much.
    pub(super) fn charge(&mut self, nodes: usize, location: &Location) -> bool {
        if let Some(left) = self.left.checked_sub(nodes) {
            self.left = left;
            return true;
        }
        if self.left > 0 {
            self.left = 0;
            let message = "the application's files hold too many keys and values together";
            let finding = Finding::error(location.clone(), "", message);
            self.findings.push(finding.help("include and extend less, or split the application"));
        }
        false
    }

    /// Some files, each on top of those before. `included` are the files that led here.
    pub(super) fn model(&mut self, manifests: &[String], scope: &Scope<'_>, included: &[String]) -> Node {
        let place =
            Place { file: Arc::from(manifests.first().map_or("", String::as_str)), line: 1, column: 1 };
        let mut root = tree::mapping(&place, []);
        for path in manifests {
            root = self.file(root, path, scope, included, Depth::Whole).0;
        }
        canonical::set_defaults(&mut root);
        consistency::validate(&root, &mut self.findings);
        normalise::resolve_environment(&mut root, scope.variables);
        root
    }

    /// One file on top of what there is, and what its last document takes away from others.
    pub(super) fn file(
        &mut self,
        mut root: Node,
        path: &str,
        scope: &Scope<'_>,
        included: &[String],
        depth: Depth,
    ) -> (Node, Resets) {
        let mut resets = Resets::default();
        for mut document in self.take(path) {
            if !tree::is_mapping(&document) {
                self.findings
                    .push(document.finding("", "expected a mapping with `services`, found something else"));
                continue;
            }
            scope.variables.interpolate(&mut document, &mut self.progress, &mut self.findings);
            resets = Resets::take(&mut document);
            if depth == Depth::Whole {
                let mut included = included.to_vec();
                included.push(path.to_owned());
                self.include(&mut document, scope, &included, &resets);
            }
            resets.apply(&mut root);
            if depth == Depth::Whole {
                self.extend(&mut document, path, scope, &resets);
            }
            root = merge::document(root, document, &mut self.findings);
            // The whole is looked at again for each document, so it counts each time.
            if !self.charge(tree::size(&root), &Location::file(path)) {
                break;
            }
            unique::enforce(&mut root);
            if depth == Depth::Whole {
                self.check(&mut root);
            }
            canonical::expand(&mut root, &mut self.ports, &mut self.findings);
            unique::enforce(&mut root);
        }
        (root, resets)
    }

    fn check(&mut self, root: &mut Node) {
        let mut reader = Reader::default();
        strict::check(root, &mut reader);
        if let Some(entry) = tree::remove(root, "version") {
            reader.ignored(&entry, &Path::Root, "it is obsolete");
        }
        // A value that is no number was told of when its variables were put in.
        let told = errors_at(&self.findings);
        reader.findings.retain(|it| !told.contains(&it.location));
        self.findings.append(&mut reader.findings);
    }
}

/// The places of which something is told already.
pub(super) fn errors_at(findings: &[Finding]) -> BTreeSet<Location> {
    findings.iter().filter(|it| it.is_error()).map(|it| it.location.clone()).collect()
}

/// The names from where a circle begins to where it closes.
pub(super) fn circle(trail: &[String], back_to: &str) -> String {
    let start = trail.iter().position(|it| it == back_to).unwrap_or_default();
    let names = trail.iter().skip(start).map(String::as_str).chain([back_to]);
    names.collect::<Vec<_>>().join(" → ")
}
