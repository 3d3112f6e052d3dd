//! The admission policy at the manifests: each violation becomes an error with file, line and column.
//!
//! The policy looks at the stack, which has no places. Therefore the place is searched afterwards: below the definition of
//! the workload, network or volume, the first key that may have caused the violation. A setting that comes from elsewhere,
//! as with `extends` or a kustomization, is reported at the definition.

use std::{cmp::Reverse, collections::BTreeMap};

use driftless_files::{Files, LARGEST_MANIFEST, Rendered};
use driftless_model::{AdmissionPolicy, AppName, Finding, Location, Mask, Stack, ViolatingObject, Violation};
use driftless_yaml::{self as yaml, Kind, Limits, Node, join};

/// Adds an error for each violation. With an error there is no stack.
pub fn enforce(files: &dyn Files, policy: &AdmissionPolicy, rendered: &mut Rendered) {
    let Some(stack) = &rendered.stack else { return };
    let violations = policy.violations(stack);
    if violations.is_empty() {
        return;
    }
    let mut places = Places::new(files, stack);
    rendered.findings.extend(violations.iter().map(|violation| places.finding(violation)));
    rendered.findings.dedup();
    *rendered = Rendered { findings: std::mem::take(&mut rendered.findings), ..Rendered::default() };
}

/// Violations as findings with their places.
pub fn locate(files: &dyn Files, stack: &Stack, violations: &[Violation]) -> Vec<Finding> {
    let mut places = Places::new(files, stack);
    violations.iter().map(|violation| places.finding(violation)).collect()
}

/// External networks and volumes of other applications, by the application that may not use them.
pub fn foreign_objects(
    files: &dyn Files,
    applications: &[(&Stack, &AdmissionPolicy)],
) -> BTreeMap<AppName, Vec<Finding>> {
    let mut found: BTreeMap<AppName, Vec<Finding>> = BTreeMap::new();
    for foreign in driftless_model::foreign_objects(applications, &[]) {
        let Some((stack, _)) = applications.iter().find(|(stack, _)| stack.app == foreign.app) else {
            continue;
        };
        found.entry(foreign.app).or_default().extend(locate(files, stack, &[foreign.violation]));
    }
    found
}

/// Searches the places of violations of one stack.
struct Places<'a> {
    files: &'a dyn Files,
    stack: &'a Stack,
    /// The documents of the files that were read.
    documents: BTreeMap<String, Vec<Node>>,
}

/// A node with its path in the document, and the place to report.
#[derive(Clone)]
struct Found<'n> {
    node: &'n Node,
    path: String,
    location: Location,
}

impl<'a> Places<'a> {
    fn new(files: &'a dyn Files, stack: &'a Stack) -> Self {
        Self { files, stack, documents: BTreeMap::new() }
    }

    fn finding(&mut self, violation: &Violation) -> Finding {
        let (location, path) = self.place(violation);
        Finding::error(location, path, self.without_secrets(&violation.message)).help(violation.help())
    }

    /// A message without the secret values of the stack: it names paths and images, which may contain one.
    fn without_secrets(&self, message: &str) -> String {
        // The longest first: a value may be a part of another one.
        let mut secret: Vec<&String> = self.stack.secret_values.iter().collect();
        secret.sort_by_key(|value| Reverse(value.len()));
        let hide = |text: String, value: &String| text.replace(value.as_str(), Mask::HIDDEN);
        secret.into_iter().fold(message.to_owned(), hide)
    }

    fn place(&mut self, violation: &Violation) -> (Location, String) {
        let stack = self.stack;
        let first_file = || stack.manifests.first().cloned().unwrap_or_default();
        match &violation.object {
            ViolatingObject::Workload(name, part) => {
                let Some(workload) = stack.workloads.get(name) else {
                    return (Location::file(first_file()), name.to_string());
                };
                let origin = workload.origin.clone();
                let fallback = || (origin.clone(), name.to_string());
                let documents = self.documents(&origin.file);
                let Some(definition) = documents.iter().find_map(|document| definition(document, &origin))
                else {
                    return fallback();
                };
                let container = part.as_ref().and_then(|part| named_item(&definition, part));
                let in_container = container.as_ref().and_then(|container| search(container, violation));
                let found = in_container.or_else(|| search(&definition, violation));
                found.map_or((definition.location, definition.path), |found| (found.location, found.path))
            }
            ViolatingObject::Network(key) => self.top_level("networks", key, violation),
            ViolatingObject::Volume(key) => self.top_level("volumes", key, violation),
        }
    }

    /// The place below `networks.KEY` or `volumes.KEY` of a Compose file.
    fn top_level(&mut self, section: &str, key: &str, violation: &Violation) -> (Location, String) {
        let stack = self.stack;
        for file in &stack.manifests {
            for document in self.documents(file) {
                let entries = document.get(section).map(Node::entries).unwrap_or_default();
                let Some(entry) = entries.iter().find(|entry| entry.key == key) else { continue };
                let definition = Found {
                    node: &entry.value,
                    path: join(section, key),
                    location: entry.key_place.location(),
                };
                let found = search(&definition, violation).unwrap_or(definition);
                return (found.location, found.path);
            }
        }
        let file = stack.manifests.first().cloned().unwrap_or_default();
        (Location::file(file), join(section, key))
    }

    fn documents(&mut self, file: &str) -> &[Node] {
        let files = self.files;
        self.documents.entry(file.to_owned()).or_insert_with(|| {
            let bytes = files.read(file, LARGEST_MANIFEST).unwrap_or_default();
            yaml::parse(file, &bytes, &Limits::default()).unwrap_or_default()
        })
    }
}

/// The value that is defined at this place: under a key there, or the document or list item around it.
fn definition<'n>(document: &'n Node, origin: &Location) -> Option<Found<'n>> {
    let mut found = None;
    walk(document, "", &mut |node, path, location| {
        if found.is_none() && location == *origin {
            found = Some(Found { node, path: path.to_owned(), location });
        }
    });
    // A Kubernetes object is reported at a place inside of it.
    let is_inside = || {
        let (first, last) = lines(document);
        (first..=last).contains(&origin.line) && document.get("kind").is_some()
    };
    match found {
        Some(found) if matches!(found.node.kind, Kind::Mapping(_)) => Some(found),
        Some(_) | None => {
            is_inside().then(|| Found { node: document, path: String::new(), location: origin.clone() })
        }
    }
}

/// The first and the last line of a node.
fn lines(node: &Node) -> (u32, u32) {
    let mut range = (node.place.line, node.place.line);
    walk(node, "", &mut |_, _, location| {
        range = (range.0.min(location.line), range.1.max(location.line));
    });
    range
}

/// The item of a list with this `name`: a container of a pod.
fn named_item<'n>(within: &Found<'n>, name: &str) -> Option<Found<'n>> {
    let mut found = None;
    walk(within.node, &within.path, &mut |node, path, location| {
        let is_named = node.get("name").and_then(Node::as_scalar) == Some(name);
        if found.is_none() && is_named && node.get("image").is_some() {
            found = Some(Found { node, path: path.to_owned(), location });
        }
    });
    found
}

/// The first key of the violation, and below it the first scalar with its value.
fn search<'n>(within: &Found<'n>, violation: &Violation) -> Option<Found<'n>> {
    let mut keyed: Vec<Found<'n>> = Vec::new();
    walk(within.node, &within.path, &mut |node, path, location| {
        let key = path.rsplit('.').next().unwrap_or_default();
        if violation.keys.contains(&key) {
            keyed.push(Found { node, path: path.to_owned(), location });
        }
    });
    let Some(value) = &violation.value else { return keyed.into_iter().next() };
    let with_value = |fits: &dyn Fn(&str) -> bool| {
        keyed.iter().find_map(|found| {
            let mut scalar = None;
            let mut look = |node: &'n Node, path: &str| {
                if scalar.is_none() && node.as_scalar().is_some_and(fits) {
                    scalar = Some(Found { node, path: path.to_owned(), location: node.place.location() });
                }
            };
            look(found.node, &found.path);
            walk(found.node, &found.path, &mut |node, path, _| look(node, path));
            scalar
        })
    };
    let equal = with_value(&|text| text == value);
    equal.or_else(|| with_value(&|text| text.contains(value.as_str()))).or_else(|| keyed.into_iter().next())
}

/// Visits every value below a node with its path and the place of its key or, in a list, of itself.
fn walk<'n>(node: &'n Node, path: &str, visit: &mut dyn FnMut(&'n Node, &str, Location)) {
    match &node.kind {
        Kind::Mapping(entries) => {
            for entry in entries {
                let path = join(path, &entry.key);
                visit(&entry.value, &path, entry.key_place.location());
                walk(&entry.value, &path, visit);
            }
        }
        Kind::Sequence(items) => {
            for (index, item) in items.iter().enumerate() {
                let path = join(path, &format!("[{index}]"));
                visit(item, &path, item.place.location());
                walk(item, &path, visit);
            }
        }
        Kind::Scalar { .. } => {}
    }
}
