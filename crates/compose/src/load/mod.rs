//! The loading of a project: from its files to one tree in the canonical form, in which every value knows its place.
//!
//! The order, for each file: parse, interpolate variables, load `include`, resolve `extends`, merge onto the files before,
//! remove duplicates, check strictly, expand short syntaxes. Then, for the whole project: defaults, implied names,
//! networks and dependencies, and the rules between its parts.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use driftless_files::{AppSpec, Files};
use driftless_model::{AppName, Finding, Location, Mask};
use driftless_yaml::{Dialect as _, Kind, Node, Place, Report, with_excerpt};

pub(crate) mod dotenv;
mod encrypted;
pub(crate) mod errors;
mod extends;
mod include;
pub(crate) mod incomplete;
mod interpolate;
mod loader;
mod merge;
mod missing_values;
mod password_place;
mod path_place;
pub(crate) mod profiles;
mod resets;
pub(crate) mod texts;
mod unique;
pub(crate) mod variables;

use crate::{
    load::{
        encrypted::Encrypted,
        errors::errors_at,
        loader::{Depth, Loader, Scope},
        missing_values::MissingValues,
        profiles::{active_profiles, is_active},
        resets::Resets,
        texts::Texts,
        variables::{NameOrigin, PROJECT_NAME, Progress, Variables},
    },
    spec::{
        canonical, consistency, masked, normalise, paths, print,
        print::Printer,
        scalar::Compose,
        strict, tree,
        value::{Placed, Value},
    },
};

/// The variable that lists the files of a project.
const FILES_VARIABLE: &str = "COMPOSE_FILE";

/// A loaded project.
pub(crate) struct Loaded {
    /// The whole project in the canonical form. `None`: the files are empty or cannot be read.
    pub(crate) root: Option<Node>,
    pub(crate) name: String,
    /// The place of the name, if it is that of a Compose file or of a file of variables.
    pub(crate) name_place: Option<Location>,
    /// The folder of relative paths, from the repository's root: that of the application, or of the first file that
    /// `COMPOSE_FILE` names.
    pub(crate) folder: String,
    pub(crate) variables: Variables,
    /// Values from encrypted files of variables, also of included projects.
    pub(crate) secret_values: BTreeSet<String>,
    /// Texts of encrypted Compose files.
    pub(crate) encrypted: Encrypted,
    /// The places of the values into which a secret variable was interpolated.
    secret_places: BTreeSet<Location>,
    /// The places of list items and services that lack a part because of an error that was reported.
    pub(crate) incomplete_places: BTreeSet<Location>,
    /// The Compose files, from the repository's root.
    pub(crate) manifests: Vec<String>,
    pub(crate) findings: Vec<Finding>,
    /// The bytes of all files, for excerpts.
    sources: BTreeMap<String, Arc<[u8]>>,
    profiles: Vec<String>,
    missing_values: MissingValues,
    /// The bytes that texts of services may still have.
    pub(crate) texts: Texts,
}

impl Loaded {
    /// Whether a value of a Compose file has a secret: by a variable, or because the file is encrypted in the repository.
    pub(crate) fn is_secret(&self, value: &Placed<String>, files: &dyn Files) -> bool {
        self.secret_places.contains(&value.place.location()) || files.is_encrypted(&value.place.file)
    }

    /// Reports passwords and paths without a value. The reference accepts them, so this is no part of loading.
    pub(crate) fn report_missing_values(&self, findings: &mut Vec<Finding>) {
        let is_used = |service: &Node| is_active(service, &self.profiles);
        if let Some(root) = &self.root {
            self.missing_values.report(root, &is_used, findings);
        }
    }

    /// Names the variables that became empty in the errors that follow from it.
    pub(crate) fn name_missing_values(&self, findings: &mut Vec<Finding>) {
        self.missing_values.name_in_errors(self.root.as_ref(), findings);
    }

    /// The absolute path of the project's folder. `app` is that of the application's folder.
    pub(crate) fn absolute_folder(&self, app: &str, spec: &AppSpec) -> String {
        if self.folder == spec.path {
            return app.to_owned();
        }
        print::absolute(app, &paths::relative(&spec.path, &self.folder))
    }

    /// The canonical form as JSON. `folder` is the absolute path of the project's folder.
    pub(crate) fn canonical(&self, folder: &str, mask: Option<&Mask>) -> Option<serde_json::Value> {
        let mut root = self.root.clone()?;
        if let Some(services) = tree::get_mut(&mut root, "services")
            && let Kind::Mapping(entries) = &mut services.kind
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
        tree::set(&mut root, "name", tree::text(&no_place(), self.name.clone()));
        let mut printed = Printer { folder }.project(&root);
        if let Some(mask) = mask {
            let mask = mask.with_secret_values(self.secret_values.iter().map(String::as_str));
            let mask = mask.with_encrypted(&self.encrypted.texts).with_whole(&self.encrypted.contents);
            masked::hide(&mut printed, &mask);
        }
        Some(printed)
    }

    /// Sorts findings, removes duplicates, and adds the lines they point at.
    pub(crate) fn present(&self, findings: &mut Vec<Finding>) {
        findings.sort_by(|one, other| (&one.location, one).cmp(&(&other.location, other)));
        findings.dedup();
        // The longest first: a value may be a part of another one.
        let mut secret: Vec<&String> = self.secret_values.iter().collect();
        secret.sort_by_key(|value| std::cmp::Reverse(value.len()));
        for finding in findings {
            for value in &secret {
                finding.message = finding.message.replace(value.as_str(), Mask::HIDDEN);
                finding.help = finding.help.take().map(|help| help.replace(value.as_str(), Mask::HIDDEN));
            }
            // The line of an unknown key may hold a secret: the key may be a variable in the wrong place.
            let may_be_secret = finding.message.starts_with("unknown key");
            let source = self.sources.get(&finding.location.file).filter(|_| !may_be_secret);
            if let Some(bytes) = source {
                *finding = with_excerpt(finding.clone(), bytes);
            }
        }
    }
}

/// Makes the path in a value absolute.
fn absolute(node: &mut Node, folder: &str) {
    if let Some(path) = tree::as_text(node) {
        *node = tree::text(&node.place, print::absolute(folder, path));
    }
}

/// The place of a value that is in no file.
fn no_place() -> Place {
    Place { file: Arc::from(""), line: 0, column: 0 }
}

/// Loads an application's files.
pub(crate) fn load(files: &dyn Files, spec: &AppSpec) -> Loaded {
    let mut findings = Vec::new();
    let progress = Progress::default();
    let mut variables = Variables::load(files, spec, &progress.texts, &mut findings);
    let (manifests, folder) = manifests(spec, &variables, &mut findings);
    if folder != spec.path && spec.env_files.is_empty() {
        variables = variables.with_dotenv(files, &folder, &progress.texts, &mut findings);
    }
    let mut loader = Loader::new(files, progress, findings);
    let given = loader.given_name(&manifests);
    let (name, name_place) = project_name(spec, &variables, given.as_ref(), &mut loader.findings);
    variables.set(PROJECT_NAME, &name);
    let scope = Scope { folder: &folder, variables: &variables };
    // The other files seem to lack what is in the one that cannot be read.
    let mut root = if loader.has_unreadable(&manifests) {
        tree::mapping(&no_place(), [])
    } else {
        loader.model(&manifests, &scope, &[])
    };
    let profiles = active_profiles(spec, &variables);
    if loader.drop_untrue_findings() {
        root = tree::mapping(&no_place(), []);
    } else if root.entries().is_empty() {
        if !loader.findings.iter().any(Finding::is_error) {
            let location = Location::file(manifests.first().map_or(spec.path.as_str(), String::as_str));
            loader.findings.push(Finding::error(location, "", "the file is empty"));
        }
    } else {
        let Loader { progress, findings, .. } = &mut loader;
        normalise::normalise(&mut root, &name, &mut |name, place| {
            variables.take_at(name, place, progress, findings)
        });
        let active = |service: &Node| is_active(service, &profiles);
        let mut found = Vec::new();
        consistency::check(&root, &active, &mut found);
        loader.add(found);
    }
    variables.add_missing(std::mem::take(&mut loader.included_variables));
    let Loader { findings, sources, progress, mut secret_values, .. } = loader;
    secret_values.extend(variables.secret_values().cloned());
    let Progress { missing_values, secret_places, incomplete_places, texts, .. } = progress;
    let encrypted_files: BTreeSet<&str> =
        sources.keys().map(String::as_str).filter(|path| files.is_encrypted(path)).collect();
    let encrypted = encrypted::texts_of(&root, &encrypted_files);
    let root = (!root.entries().is_empty()).then_some(root);
    Loaded {
        root,
        name,
        name_place,
        folder,
        variables,
        secret_values,
        encrypted,
        secret_places,
        incomplete_places,
        manifests,
        findings,
        sources,
        profiles,
        missing_values,
        texts,
    }
}

/// Whether the variables of an application name its Compose files, so that none need be found by name.
pub(crate) fn names_files(files: &dyn Files, spec: &AppSpec) -> bool {
    // The rendering reports what is wrong with the files of variables.
    let variables = Variables::load(files, spec, &Texts::default(), &mut Vec::new());
    variables.get(FILES_VARIABLE).is_some_and(|listed| !listed.is_empty())
}

/// The files of the settings, or of `COMPOSE_FILE`, or those that were found, and the folder of their relative paths.
fn manifests(spec: &AppSpec, variables: &Variables, findings: &mut Vec<Finding>) -> (Vec<String>, String) {
    let listed = variables.get(FILES_VARIABLE).filter(|it| !it.is_empty() && !spec.has_listed_files);
    let Some(listed) = listed else { return (spec.files.clone(), spec.path.clone()) };
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
    let folder = manifests.first().map_or(spec.path.as_str(), |first| paths::parent(first)).to_owned();
    (manifests, folder)
}

/// `COMPOSE_PROJECT_NAME`, or `name` of the last file that has one, or the name of the application; with its place in a
/// file.
fn project_name(
    spec: &AppSpec,
    variables: &Variables,
    given: Option<&Node>,
    findings: &mut Vec<Finding>,
) -> (String, Option<Location>) {
    let given = given.and_then(|node| Some((node, node.as_scalar()?)));
    let from_file = given.map(|(node, text)| (variables.interpolate_text(text), Some(node)));
    let from_variable = variables.get(PROJECT_NAME).map(|it| (it.to_owned(), None));
    let chosen = from_variable.or(from_file).filter(|(text, _)| !text.is_empty());
    let Some((text, node)) = chosen else { return (spec.name.0.clone(), None) };
    let origin = variables.name_origin().filter(|_| node.is_none());
    if let Some(NameOrigin { location, is_shared: true }) = origin {
        findings.push(name_for_several(location.clone()));
        return (spec.name.0.clone(), None);
    }
    let place =
        node.map(|node| node.place.location()).or_else(|| origin.map(|origin| origin.location.clone()));
    if let Some(name) = AppName::normalise(&text) {
        return (name.0, place);
    }
    let message = format!("`{text}` is not a project name: it needs a letter or digit");
    findings.push(match node {
        Some(node) => node.finding("name", message),
        None => Finding::error(place.unwrap_or_else(|| Location::file(&spec.path)), PROJECT_NAME, message),
    });
    (spec.name.0.clone(), None)
}

/// The error about a source of the host that would name the projects of several applications. Another name instead would begin with
/// empty volumes.
fn name_for_several(place: Location) -> Finding {
    let message = "would be the project name of each application that has this source of `valuesFrom`";
    Finding::error(place, PROJECT_NAME, message).help(
        "give the source to one application, by `valuesFrom` of its entry in `applications`, or write the name as `name:` into the \
         Compose file of that application and remove the variable from the source",
    )
}

impl Loader<'_> {
    /// Loads some files, each on top of those before. `included` is the chain of files that include these.
    pub(crate) fn model(&mut self, manifests: &[String], scope: &Scope<'_>, included: &[String]) -> Node {
        let place =
            Place { file: Arc::from(manifests.first().map_or("", String::as_str)), line: 1, column: 1 };
        let mut root = tree::mapping(&place, []);
        for path in manifests {
            root = self.file(root, path, scope, included, Depth::Whole).0;
        }
        canonical::set_defaults(&mut root);
        let mut found = Vec::new();
        consistency::validate(&root, &mut found);
        self.add(found);
        normalise::resolve_environment(&mut root, &mut |name, place| {
            scope.variables.take_at(name, place, &mut self.progress, &mut self.findings)
        });
        root
    }

    /// Loads one file on top of `root`. Also returns the resets of its last document.
    pub(crate) fn file(
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
                self.findings.push(document.finding("", "must be a map with `services`"));
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
            // Each document processes the whole again, so the whole counts each time.
            if !self.charge(tree::weight(&root), &Location::file(path)) {
                break;
            }
            unique::remove_duplicates(&mut root);
            if depth == Depth::Whole {
                self.check(&mut root);
            }
            let mut found = Vec::new();
            canonical::expand(&mut root, &mut self.ports_left, &mut found);
            self.add(found);
            unique::remove_duplicates(&mut root);
        }
        (root, resets)
    }

    /// The strict check of the merged files.
    fn check(&mut self, root: &mut Node) {
        let report = Report::default();
        strict::check(&Value::new(root, "", &report));
        let mut findings = report.into_findings();
        // One error about a file of version 1 is enough.
        if strict::service_at_top_level(root).is_some() {
            *root = tree::mapping(&no_place(), []);
        }
        if let Some(entry) = tree::remove(root, "version") {
            let message = Compose::no_effect("version", "it is obsolete");
            findings.push(Finding::warning(entry.key_place.location(), "version", message));
        }
        // Interpolation may have reported the same value already.
        let reported = errors_at(&self.findings);
        findings.retain(|finding| !reported.contains(&finding.location));
        self.findings.append(&mut findings);
    }
}
