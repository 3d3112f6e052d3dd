//! Compose files that are an application of their own, and by `include` or `extends` a part of another one, too.
//!
//! Their services then run twice, which neither file shows. To leave such a file out, as a base of kustomize, would remove the
//! containers of an application that runs.

use std::{collections::BTreeSet, slice};

use driftless_files::{AppSpec, Files, LARGEST_MANIFEST, paths};
use driftless_model::{Finding, Format, Location};
use driftless_yaml::{self as yaml, Limits, Node};

/// The most files that the Compose files of one application are followed to.
const MOST_FILES: usize = 1000;

const HELP: &str =
    "give the file another name, such as `base.yaml`, or name the applications in `applications`";

/// A file that a Compose file names.
struct Reference {
    /// From the repository's root.
    file: String,
    location: Location,
    path: String,
}

/// Adds a warning to each application that uses a manifest of another one.
pub(crate) fn report(files: &dyn Files, apps: &mut [AppSpec]) {
    let mut warnings = Vec::new();
    for (index, user) in apps.iter().enumerate().filter(|(_, app)| app.format == Format::Compose) {
        let references = references_of(files, user);
        for owner in apps.iter().filter(|owner| owner.path != user.path) {
            if let Some(reference) = references.iter().find(|it| owner.files.contains(&it.file)) {
                warnings.push((index, warning(owner, reference)));
            }
        }
    }
    for (index, warning) in warnings {
        apps[index].findings.push(warning);
    }
}

fn warning(owner: &AppSpec, reference: &Reference) -> Finding {
    let Reference { file, location, path } = reference;
    let message = format!(
        "`{file}` is the application `{}` as well, so what is taken from it here runs twice, on the same data where the paths are absolute",
        owner.name
    );
    Finding::warning(location.clone(), path, message).help(HELP)
}

/// The files that the Compose files of an application name, also through one another.
fn references_of(files: &dyn Files, app: &AppSpec) -> Vec<Reference> {
    let mut found: Vec<Reference> = Vec::new();
    let mut seen: BTreeSet<String> = app.files.iter().cloned().collect();
    let mut open: Vec<(String, String)> =
        app.files.iter().map(|file| (file.clone(), app.path.clone())).collect();
    while let Some((file, folder)) = open.pop() {
        for reference in references_in(files, &file, &folder) {
            if found.len() < MOST_FILES && seen.insert(reference.file.clone()) {
                open.push((reference.file.clone(), paths::parent(&reference.file).to_owned()));
                found.push(reference);
            }
        }
    }
    found
}

/// The files that a Compose file names in `include` and `extends`. Its relative paths begin in `folder`.
fn references_in(files: &dyn Files, file: &str, folder: &str) -> Vec<Reference> {
    let bytes = files.read(file, LARGEST_MANIFEST).unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes);
    if !text.contains("include") && !text.contains("extends") {
        return Vec::new();
    }
    // Rendering reports a file that cannot be read.
    let documents = yaml::parse(file, &bytes, &Limits::default()).unwrap_or_default();
    let named = documents.iter().flat_map(named_files);
    named
        .filter_map(|(node, path)| {
            let text = node.as_scalar()?;
            let file = paths::join(folder, text).filter(|_| !text.starts_with(['/', '~']))?;
            Some(Reference { file, location: node.place.location(), path })
        })
        .collect()
}

/// The values of a document that name other Compose files, with their paths in the document.
fn named_files(document: &Node) -> Vec<(&Node, String)> {
    let mut named = Vec::new();
    let includes = document.get("include").map(Node::items).unwrap_or_default();
    for (index, item) in includes.iter().enumerate() {
        let listed = item.get("path").unwrap_or(item);
        let listed = if listed.items().is_empty() { slice::from_ref(listed) } else { listed.items() };
        named.extend(listed.iter().map(|node| (node, format!("include[{index}]"))));
    }
    let services = document.get("services").map(Node::entries).unwrap_or_default();
    for service in services {
        let file = service.value.get("extends").and_then(|extends| extends.get("file"));
        named.extend(file.map(|node| (node, format!("services.{}.extends.file", service.key))));
    }
    named
}
