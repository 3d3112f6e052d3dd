//! Reads kustomizations, what they list and what that lists in turn, and has everything done to it in its order.
//!
//! Files are strangers' input: how deep they go, how many folders are visited and how much is read are bounded, since a
//! base that is listed twice at each of twenty levels is a million bases.

use std::{collections::BTreeMap, sync::Arc};

use super::{
    FILES, generate,
    patches::{self, Patching},
    replace,
    resource::Resource,
    settings::{Kustomization, Said},
    transform,
};
use crate::reader::Report;
use driftless_files::{Entry, Files, paths};
use driftless_model::{Finding, Location};
use driftless_yaml as yaml;
use driftless_yaml::edit;
use driftless_yaml::{Limits, Node, Place, edit::is_mapping, edit::move_to};

/// Kustomizations within kustomizations.
const DEEPEST: usize = 32;

/// Folders that are read in one build, each as often as it is listed.
const MOST_FOLDERS: usize = 1000;

/// Keys and values that are read in one build.
const MOST_NODES: usize = 1_000_000;

/// What a kustomization is read as.
#[derive(Clone, Copy, Debug)]
enum Role<'a> {
    Application,
    /// Listed there under `resources` or `bases`.
    Base(&'a Said),
    /// Listed there under `components`.
    Component(&'a Said),
}

pub(super) struct Loader<'a> {
    files: &'a dyn Files,
    pub(super) report: &'a Report,
    /// Every file that was read.
    pub(super) sources: BTreeMap<String, Arc<[u8]>>,
    /// Something that belongs to it could not be read.
    pub(super) has_gaps: bool,
    folders: usize,
    nodes: usize,
}

impl<'a> Loader<'a> {
    pub(super) fn new(files: &'a dyn Files, report: &'a Report) -> Self {
        Self { files, report, sources: BTreeMap::new(), has_gaps: false, folders: 0, nodes: 0 }
    }

    /// What a whole application makes, but for the names' ends.
    pub(super) fn application(&mut self, path: &str) -> Vec<Resource> {
        if let [first, second, ..] = find(self.files, paths::parent(path)).as_slice() {
            let finding = Finding::error(Location::file(first), "", format!("`{second}` is there as well"));
            self.report.say(finding.help("remove one of them"));
        }
        self.kustomization(path, Vec::new(), Role::Application, &mut Vec::new())
    }

    /// What the kustomization at a path makes: of the objects that it is given if it is a component. `trail` are the
    /// folders that led here.
    fn kustomization(
        &mut self,
        path: &str,
        given: Vec<Resource>,
        role: Role<'_>,
        trail: &mut Vec<String>,
    ) -> Vec<Resource> {
        let folder = paths::parent(path).to_owned();
        let Some(kustomization) = self.settings(path, role) else {
            self.has_gaps = true;
            return given;
        };
        trail.push(folder.clone());
        let mut resources = given;
        for said in &kustomization.resources {
            self.resource(said, &folder, trail, &mut resources);
        }
        for generator in &kustomization.config_maps {
            generate::generate(self, &folder, generate::Made::ConfigMap, generator, &mut resources);
        }
        for generator in &kustomization.secrets {
            generate::generate(self, &folder, generate::Made::Secret, generator, &mut resources);
        }
        for said in &kustomization.components {
            let Some(path) = self.locate(said, &folder) else { continue };
            if let Some(file) = self.kustomization_of(said, &path, trail) {
                resources = self.kustomization(&file, resources, Role::Component(said), trail);
            }
        }
        trail.pop();
        // What is missing would only be missed again.
        if !self.report.has_errors() {
            self.transform(&kustomization, &folder, &mut resources);
        }
        resources
    }

    fn transform(&mut self, kustomization: &Kustomization, folder: &str, resources: &mut Vec<Resource>) {
        let Kustomization { merges, patches, json_patches, labels, annotations, .. } = kustomization;
        for said in merges {
            patches::merge(self, folder, said, resources);
        }
        for patch in patches {
            patches::apply(self, folder, patch, Patching::Any, resources);
        }
        let mut findings = Vec::new();
        if let Some(said) = &kustomization.namespace {
            transform::namespace(resources, said, &mut findings);
        }
        if let Some(said) = &kustomization.prefix {
            transform::prefix(resources, said);
        }
        if let Some(said) = &kustomization.suffix {
            transform::suffix(resources, said);
        }
        for labels in labels {
            transform::labels(resources, labels);
        }
        transform::annotations(resources, annotations);
        for patch in json_patches {
            patches::apply(self, folder, patch, Patching::Json, resources);
        }
        for replica in &kustomization.replicas {
            transform::replicas(resources, replica, &mut findings);
        }
        for image in &kustomization.images {
            transform::image(resources, image, &mut findings);
        }
        for (index, node) in kustomization.replacements.iter().enumerate() {
            replace::replace(self, folder, node, &format!("replacements[{index}]"), resources);
        }
        self.report.say_all(findings);
    }

    /// Reads a kustomization itself.
    fn settings(&mut self, path: &str, role: Role<'_>) -> Option<Kustomization> {
        let whole = |message: &str| Finding::error(Location::file(path), "", message);
        self.folders += 1;
        if self.folders > MOST_FOLDERS {
            self.report
                .say(whole(&format!("more than {MOST_FOLDERS} kustomizations are read for one application")));
            return None;
        }
        let bytes = match self.files.read(path, Limits::default().bytes as u64) {
            Ok(bytes) => bytes,
            Err(error) => {
                self.report.say(whole(&error.to_string()));
                return None;
            }
        };
        let documents = self.parse(path, &bytes)?;
        let document = match documents.as_slice() {
            [document] => document,
            [] => {
                let finding = whole("the kustomization is empty");
                self.report.say(finding.help("list manifests under `resources`"));
                return None;
            }
            [_, second, ..] => {
                let message = "a kustomization is one document, and here begins a second one";
                self.report.say(second.finding("", message).help("remove the `---`"));
                return None;
            }
        };
        let errors = self.report.errors();
        let kustomization = Kustomization::read(document, self.report)?;
        // A key that is misspelt may be the one that lists a base.
        self.has_gaps |= self.report.errors() > errors;
        match (role, kustomization.is_component) {
            (Role::Component(_), true) | (Role::Application | Role::Base(_), false) => Some(kustomization),
            (Role::Component(said), false) => {
                let finding = said.error(format!("`{path}` is no component"));
                let help = "list it under `resources`, or give it `kind: Component`";
                self.report.say(finding.help(help));
                None
            }
            (Role::Base(said), true) => {
                let finding = said.error(format!("`{path}` is a component"));
                self.report.say(finding.help("list it under `components`"));
                None
            }
            (Role::Application, true) => {
                let finding = whole("a component is a part of other kustomizations, and no application");
                self.report.say(finding.help("choose the folder of a kustomization that lists it"));
                None
            }
        }
    }

    /// Takes in a file of manifests, or a folder with another kustomization.
    fn resource(
        &mut self,
        said: &Said,
        folder: &str,
        trail: &mut Vec<String>,
        resources: &mut Vec<Resource>,
    ) {
        let Some(path) = self.locate(said, folder) else { return };
        let is_file = matches!(self.files.entry(&path), Ok(Some(Entry::File { .. })));
        let found = if is_file {
            if super::is_kustomization(&path) {
                let finding = said.error("names a kustomization");
                self.report.say(finding.help("name its folder"));
                return;
            }
            let Some((path, bytes)) = self.file(said, folder) else { return };
            let Some(documents) = self.parse(&path, &bytes) else { return };
            let Some(objects) = self.objects(documents) else { return };
            objects.into_iter().map(Resource::new).collect()
        } else {
            let Some(file) = self.kustomization_of(said, &path, trail) else { return };
            self.kustomization(&file, Vec::new(), Role::Base(said), trail)
        };
        for resource in found {
            let id = resource.id();
            if let Some(first) = resources.iter().find(|it| it.id() == id) {
                let (there, here) = (first.place().location(), resource.place().location());
                let message =
                    format!("brings in {} of {here}, which is already registered from {there}", id.words());
                let help =
                    "list each file and base once, or give one of the two a `namePrefix` or a `namespace`";
                self.report.say(said.error(message).help(help));
                return;
            }
            resources.push(resource);
        }
    }

    /// The kustomization of a folder.
    fn kustomization_of(&mut self, said: &Said, folder: &str, trail: &[String]) -> Option<String> {
        if let Some(at) = trail.iter().position(|it| it == folder) {
            let shown = |it: &String| if it.is_empty() { ".".to_owned() } else { it.clone() };
            let way: Vec<String> =
                trail.iter().skip(at).map(shown).chain([shown(&folder.to_owned())]).collect();
            self.report.say(said.error(format!("kustomizations go round in a circle: {}", way.join(" → "))));
            return None;
        }
        if trail.len() >= DEEPEST {
            self.report.say(said.error(format!("kustomizations are nested deeper than {DEEPEST} levels")));
            return None;
        }
        let finding = match self.files.entry(folder) {
            Ok(Some(Entry::Folder)) => match find(self.files, folder).as_slice() {
                [one] => return Some(one.clone()),
                [] => said
                    .error(format!("`{folder}` holds no kustomization"))
                    .help(format!("add a `{}` there, or name the manifests themselves", FILES[0])),
                [first, second, ..] => {
                    said.error(format!("`{first}` and `{second}` are both there")).help("remove one of them")
                }
            },
            Ok(Some(Entry::File { .. })) => said
                .error(format!("`{folder}` is a file"))
                .help("name the folder of a component; a file of manifests belongs under `resources`"),
            Ok(Some(Entry::Submodule)) => said
                .error(format!("`{folder}` is a submodule, which is not read"))
                .help("set `submodules: true` for the repository"),
            Ok(None) => said.error(format!("`{folder}` does not exist in the repository")),
            Err(error) => said.error(error.to_string()),
        };
        self.has_gaps = true;
        self.report.say(finding);
        None
    }

    /// A path as it is named in a folder, from the repository's root.
    fn locate(&mut self, said: &Said, folder: &str) -> Option<String> {
        let text = said.text.as_str();
        if is_remote(text) {
            // Its text is not repeated: a URL may hold a password.
            let finding = said.error("is elsewhere, and nothing is fetched for a build");
            self.report.say(
                finding.help("copy it into this repository, or add it as a submodule, and name its path"),
            );
            return None;
        }
        let found = paths::join(folder, text).filter(|_| !text.starts_with('/'));
        if found.is_none() {
            self.has_gaps = true;
            let finding = said.error(format!("`{text}` is outside of the repository"));
            self.report
                .say(finding.help("name a path inside of it, seen from the folder of the kustomization"));
        }
        found
    }

    /// A file that is named in a folder, and its path from the repository's root.
    pub(super) fn file(&mut self, said: &Said, folder: &str) -> Option<(String, Arc<[u8]>)> {
        let path = self.locate(said, folder)?;
        match self.files.read(&path, Limits::default().bytes as u64) {
            Ok(bytes) => {
                self.sources.insert(path.clone(), bytes.clone());
                Some((path, bytes))
            }
            Err(error) => {
                self.has_gaps = true;
                self.report.say(said.error(error.to_string()));
                None
            }
        }
    }

    pub(super) fn parse(&mut self, path: &str, bytes: &Arc<[u8]>) -> Option<Vec<Node>> {
        self.sources.insert(path.to_owned(), bytes.clone());
        match yaml::parse(path, bytes, &Limits::default()) {
            Ok(documents) => {
                self.nodes += documents.iter().map(edit::size).sum::<usize>();
                if self.nodes <= MOST_NODES {
                    return Some(documents);
                }
                let message = format!("more than {MOST_NODES} keys and values are read for one application");
                self.report.say(Finding::error(Location::file(path), "", message));
            }
            Err(finding) => self.report.say(finding),
        }
        None
    }

    /// Documents that are written inside of a kustomization. In a literal block everything has its own place.
    pub(super) fn inline(&mut self, said: &Said) -> Option<Vec<Node>> {
        let shift = self.sources.get(&*said.place.file).and_then(|it| Shift::of(said, it));
        let place = |inner: &Place| shift.map_or_else(|| said.place.clone(), |it| it.place(said, inner));
        match yaml::parse(&said.place.file, said.text.as_bytes(), &Limits::default()) {
            Ok(mut documents) => {
                for document in &mut documents {
                    move_to(document, &place);
                }
                self.nodes += documents.iter().map(edit::size).sum::<usize>();
                Some(documents)
            }
            Err(mut finding) => {
                let Location { line, column, .. } = finding.location;
                finding.location = place(&Place { file: said.place.file.clone(), line, column }).location();
                self.report.say(finding);
                None
            }
        }
    }

    /// The objects of documents, those in lists too. Each must say what it is.
    pub(super) fn objects(&self, documents: Vec<Node>) -> Option<Vec<Node>> {
        let mut found = Vec::new();
        let mut is_whole = true;
        for document in documents {
            is_whole &= self.collect(document, "", &mut found);
        }
        is_whole.then_some(found)
    }

    fn collect(&self, node: Node, path: &str, found: &mut Vec<Node>) -> bool {
        if !is_mapping(&node) {
            self.report.say(
                node.finding(path, format!("must be a Kubernetes object, but it is a {}", node.kind_name())),
            );
            return false;
        }
        let word = |node: Option<&Node>| {
            node.and_then(Node::as_scalar).filter(|it| !it.is_empty()).map(str::to_owned)
        };
        let Some(kind) = word(node.get("kind")) else {
            self.report.say(
                node.finding(yaml::join(path, "kind"), "`kind` is missing")
                    .help("such as `kind: Deployment`"),
            );
            return false;
        };
        if kind.ends_with("List")
            && let Some(items) = node.get("items")
        {
            let items = items.items().to_vec();
            let within = |index| yaml::join(path, &format!("items[{index}]"));
            return items
                .into_iter()
                .enumerate()
                .fold(true, |is_whole, (index, it)| self.collect(it, &within(index), found) && is_whole);
        }
        if word(node.get("metadata").and_then(|it| it.get("name"))).is_none() {
            let path = yaml::join(path, "metadata.name");
            let finding = node.finding(path, format!("the {kind} has no name"));
            self.report.say(finding.help("give it `metadata.name`"));
            return false;
        }
        found.push(node);
        true
    }
}

/// The kustomizations of a folder: one, if all is well.
pub(crate) fn find(files: &dyn Files, folder: &str) -> Vec<String> {
    let path = |name: &&str| paths::join(folder, name);
    let is_file = |it: &String| matches!(files.entry(it), Ok(Some(Entry::File { .. })));
    FILES.iter().filter_map(path).filter(is_file).collect()
}

/// URLs, and what Git takes for a place elsewhere.
fn is_remote(text: &str) -> bool {
    let first = text.split('/').next().unwrap_or_default();
    first.contains([':', '@'])
        || ["://", "?ref=", "?version=", ".git/", ".git?"].iter().any(|it| text.contains(it))
        || text.rsplit_once('.').is_some_and(|(_, end)| end == "git")
        || matches!(first, "github.com" | "gitlab.com" | "bitbucket.org")
}

/// How places inside of a literal block are those of its file.
#[derive(Clone, Copy)]
struct Shift {
    line: u32,
    column: u32,
}

impl Shift {
    /// `None` where lines of the text are not lines of the file.
    fn of(said: &Said, source: &[u8]) -> Option<Self> {
        let lines: Vec<&str> = std::str::from_utf8(source).ok()?.lines().collect();
        // The text begins below its `|`.
        let above = lines.get(..(said.place.line as usize).checked_sub(1)?)?;
        let header = above.iter().rposition(|it| !it.trim().is_empty())?;
        let words = lines.get(header)?;
        let words = words.split_once(" #").map_or(*words, |(before, _)| before);
        let mark = words.split_whitespace().next_back()?.strip_prefix('|')?;
        if !mark.chars().all(|it| it.is_ascii_digit() || matches!(it, '+' | '-')) {
            return None;
        }
        let (index, line) = said.text.lines().enumerate().find(|(_, it)| !it.trim().is_empty())?;
        let blanks = |it: &str| it.len() - it.trim_start_matches(' ').len();
        let column = blanks(lines.get(header + 1 + index)?).checked_sub(blanks(line))?;
        Some(Self { line: u32::try_from(header + 1).ok()?, column: u32::try_from(column).ok()? })
    }

    fn place(self, said: &Said, inner: &Place) -> Place {
        Place {
            file: said.place.file.clone(),
            line: self.line.saturating_add(inner.line),
            column: self.column.saturating_add(inner.column),
        }
    }
}
