//! Reads a kustomization and all that it lists, recursively, and applies its changes in order.
//!
//! The files are foreign input. Depth, number of folders and amount of data are bounded, because a base that is listed
//! twice at each of twenty levels is a million bases.

use std::collections::BTreeMap;

use super::{
    file_names::{FILES, find, is_kustomization},
    generate,
    patches::{self, Patching},
    replace,
    resource::{Id, Resource},
    settings::{Kustomization, LocatedText},
    source_files::SourceFiles,
    transform,
};
use crate::reader::Report;
use driftless_files::{Entry, Files, paths};
use driftless_model::{Finding, Location};
use driftless_yaml::Limits;

/// The deepest nesting of kustomizations.
const DEEPEST: usize = 32;

/// The most folders that one build reads, each counted as often as it is listed.
const MOST_FOLDERS: usize = 1000;

/// Maximum number of objects of one kustomization.
const MOST_OBJECTS: usize = 5000;

/// The role of a kustomization in the build.
#[derive(Clone, Copy, Debug)]
enum Role<'a> {
    Application,
    /// Listed under `resources` or `bases` of another one.
    Base(&'a LocatedText),
    /// Listed under `components` of another one.
    Component(&'a LocatedText),
}

pub(super) struct Loader<'a> {
    pub(super) sources: SourceFiles<'a>,
    folders: usize,
}

impl<'a> Loader<'a> {
    pub(super) fn new(files: &'a dyn Files, report: &'a Report) -> Self {
        Self { sources: SourceFiles::new(files, report), folders: 0 }
    }

    /// The objects of the application, without hashes in names.
    pub(super) fn application(&mut self, path: &str) -> Vec<Resource> {
        if let [first, second, ..] = find(self.sources.files, paths::parent(path)).as_slice() {
            let finding =
                Finding::error(Location::file(first), "", format!("`{second}` is in the same folder"));
            self.sources.report.say(finding.help("remove one of them"));
        }
        self.kustomization(path, Vec::new(), Role::Application, &mut Vec::new())
    }

    /// The objects of the kustomization at a path. A component changes the `given` objects. `trail` holds the folders
    /// that led
    /// here.
    fn kustomization(
        &mut self,
        path: &str,
        given: Vec<Resource>,
        role: Role<'_>,
        trail: &mut Vec<String>,
    ) -> Vec<Resource> {
        let folder = paths::parent(path).to_owned();
        let Some(kustomization) = self.settings(path, role) else {
            self.sources.add_gap(path);
            return given;
        };
        trail.push(folder.clone());
        let mut resources = given;
        for located in &kustomization.resources {
            self.resource(located, &folder, trail, &mut resources);
        }
        for generator in &kustomization.config_maps {
            generate::generate(
                &mut self.sources,
                &folder,
                generate::GeneratedKind::ConfigMap,
                generator,
                &mut resources,
            );
        }
        for generator in &kustomization.secrets {
            generate::generate(
                &mut self.sources,
                &folder,
                generate::GeneratedKind::Secret,
                generator,
                &mut resources,
            );
        }
        for located in &kustomization.components {
            let Some(path) = self.sources.locate(located, &folder) else { continue };
            if let Some(file) = self.kustomization_of(located, &path, trail) {
                resources = self.kustomization(&file, resources, Role::Component(located), trail);
            }
        }
        trail.pop();
        // After an error, missing objects would cause follow-up findings.
        if !self.sources.report.has_errors() {
            self.transform(&kustomization, &folder, &mut resources);
        }
        resources
    }

    fn transform(&mut self, kustomization: &Kustomization, folder: &str, resources: &mut Vec<Resource>) {
        let Kustomization { merges, patches, json_patches, labels, annotations, .. } = kustomization;
        for located in merges {
            patches::merge(&mut self.sources, folder, located, resources);
        }
        for patch in patches {
            patches::apply(&mut self.sources, folder, patch, Patching::Any, resources);
        }
        let mut findings = Vec::new();
        if let Some(located) = &kustomization.namespace {
            transform::namespace(resources, located, &mut findings);
        }
        if let Some(located) = &kustomization.prefix {
            transform::prefix(resources, located);
        }
        if let Some(located) = &kustomization.suffix {
            transform::suffix(resources, located);
        }
        for labels in labels {
            transform::labels(resources, labels);
        }
        transform::annotations(resources, annotations);
        for patch in json_patches {
            patches::apply(&mut self.sources, folder, patch, Patching::Json, resources);
        }
        for replica in &kustomization.replicas {
            transform::replicas(resources, replica, &mut findings);
        }
        for image in &kustomization.images {
            transform::image(resources, image, &mut findings);
        }
        for (index, node) in kustomization.replacements.iter().enumerate() {
            replace::replace(&mut self.sources, folder, node, &format!("replacements[{index}]"), resources);
        }
        self.sources.report.say_all(findings);
    }

    /// Reads one kustomization file.
    fn settings(&mut self, path: &str, role: Role<'_>) -> Option<Kustomization> {
        let whole = |message: &str| Finding::error(Location::file(path), "", message);
        self.folders += 1;
        if self.folders > MOST_FOLDERS {
            self.sources
                .report
                .say(whole(&format!("more than {MOST_FOLDERS} kustomizations are read for one application")));
            return None;
        }
        let bytes = match self.sources.files.read(path, Limits::default().bytes as u64) {
            Ok(bytes) => bytes,
            Err(error) => {
                self.sources.report.say(whole(&error.to_string()));
                return None;
            }
        };
        let documents = self.sources.parse_kustomization(path, &bytes)?;
        let document = match documents.as_slice() {
            [document] => document,
            [] => {
                let finding = whole("the kustomization is empty");
                self.sources.report.say(finding.help("list manifests under `resources`"));
                return None;
            }
            [_, second, ..] => {
                let message = "a kustomization is one document, but a second one begins here";
                self.sources.report.say(second.finding("", message).help("remove the `---`"));
                return None;
            }
        };
        let errors = self.sources.report.errors();
        let kustomization = Kustomization::read(document, self.sources.report)?;
        // A misspelt key may be the one that lists a base.
        if self.sources.report.errors() > errors {
            self.sources.add_gap(path);
        }
        match (role, kustomization.is_component) {
            (Role::Component(_), true) | (Role::Application | Role::Base(_), false) => Some(kustomization),
            (Role::Component(located), false) => {
                let finding = located.error(format!("`{path}` is not a component"));
                let help = "list it under `resources`, or give it `kind: Component`";
                self.sources.report.say(finding.help(help));
                None
            }
            (Role::Base(located), true) => {
                let finding = located.error(format!("`{path}` is a component"));
                self.sources.report.say(finding.help("list it under `components`"));
                None
            }
            (Role::Application, true) => {
                let finding = whole("a component is a part of other kustomizations, not an application");
                self.sources.report.say(finding.help("choose the folder of a kustomization that lists it"));
                None
            }
        }
    }

    /// Adds the objects of a file of manifests, or of a folder with another kustomization.
    fn resource(
        &mut self,
        located: &LocatedText,
        folder: &str,
        trail: &mut Vec<String>,
        resources: &mut Vec<Resource>,
    ) {
        let Some(path) = self.sources.locate(located, folder) else { return };
        let is_file = matches!(self.sources.files.entry(&path), Ok(Some(Entry::File { .. })));
        let found = if is_file {
            if is_kustomization(&path) {
                let finding = located.error("names a kustomization file");
                self.sources.report.say(finding.help("name its folder"));
                return;
            }
            let Some((path, bytes)) = self.sources.file(located, folder) else { return };
            let Some(documents) = self.sources.parse(&path, &bytes) else { return };
            let Some(objects) = self.sources.objects(documents) else { return };
            objects.into_iter().map(Resource::new).collect()
        } else {
            let Some(file) = self.kustomization_of(located, &path, trail) else { return };
            self.kustomization(&file, Vec::new(), Role::Base(located), trail)
        };
        if resources.len() + found.len() > MOST_OBJECTS {
            let message = format!("more than {MOST_OBJECTS} objects are read for one application");
            self.sources.report.say(located.error(message));
            return;
        }
        let mut known: BTreeMap<Id, usize> =
            resources.iter().enumerate().map(|(index, it)| (it.id(), index)).collect();
        for resource in found {
            let id = resource.id();
            if let Some(first) = known.get(&id).and_then(|index| resources.get(*index)) {
                let (there, here) = (first.place().location(), resource.place().location());
                let message =
                    format!("adds {} of {here}, which is already registered from {there}", id.words());
                let help =
                    "list each file and base once, or give one of the two a `namePrefix` or a `namespace`";
                self.sources.report.say(located.error(message).help(help));
                return;
            }
            known.insert(id, resources.len());
            resources.push(resource);
        }
    }

    /// The kustomization of a folder.
    fn kustomization_of(&mut self, located: &LocatedText, folder: &str, trail: &[String]) -> Option<String> {
        if let Some(at) = trail.iter().position(|it| it == folder) {
            let shown = |it: &String| if it.is_empty() { ".".to_owned() } else { it.clone() };
            let way: Vec<String> =
                trail.iter().skip(at).map(shown).chain([shown(&folder.to_owned())]).collect();
            self.sources.report.say(
                located.error(format!("kustomizations list each other in a circle: {}", way.join(" → "))),
            );
            return None;
        }
        if trail.len() >= DEEPEST {
            self.sources
                .report
                .say(located.error(format!("kustomizations are nested deeper than {DEEPEST} levels")));
            return None;
        }
        let finding = match self.sources.files.entry(folder) {
            Ok(Some(Entry::Folder)) => match find(self.sources.files, folder).as_slice() {
                [one] => return Some(one.clone()),
                [] => located
                    .error(format!("`{folder}` holds no kustomization"))
                    .help(format!("add a `{}` there, or name the manifests themselves", FILES[0])),
                [first, second, ..] => located
                    .error(format!("`{first}` and `{second}` are both there"))
                    .help("remove one of them"),
            },
            Ok(Some(Entry::File { .. })) => located
                .error(format!("`{folder}` is a file"))
                .help("name the folder of a component; a file of manifests belongs under `resources`"),
            Ok(Some(Entry::Submodule)) => located
                .error(format!("`{folder}` is a submodule, which is not read"))
                .help("set `submodules: true` for the repository"),
            Ok(None) => located.error(format!("`{folder}` does not exist in the repository")),
            Err(error) => located.error(error.to_string()),
        };
        self.sources.gaps.add_path(&located.text);
        self.sources.report.say(finding);
        None
    }
}
