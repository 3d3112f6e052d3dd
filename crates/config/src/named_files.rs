//! The files that a configuration names: keys, passwords, certificates.

use std::path::PathBuf;

use driftless_model::Location;
use driftless_yaml::{Limits, Report, parse};

use crate::{
    keys::{ROOT, Shape, Table},
    value::Value,
};

/// A file that the agent reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedFile {
    /// The key that names it, such as `repositories[0].auth.sshKeyFile`.
    pub key: String,
    pub path: PathBuf,
    pub location: Location,
}

/// The files that a valid configuration file names, in the order of its keys. Empty if it is not valid.
///
/// The files of `valuesFrom` are not among them: `driftless doctor` reads them as the agent does.
pub fn named_files(file: &str, text: &str) -> Vec<NamedFile> {
    let documents = parse(file, text.as_bytes(), &Limits::default()).unwrap_or_default();
    let [root] = documents.as_slice() else { return Vec::new() };
    let report = Report::default();
    let mut found = Vec::new();
    collect(&Value::new(root, "", &report), &ROOT, &mut found);
    found
}

/// The state directory that a configuration file names, also if the file has mistakes in other places.
pub fn named_state_dir(file: &str, text: &str) -> Option<PathBuf> {
    let documents = parse(file, text.as_bytes(), &Limits::default()).ok()?;
    let [root] = documents.as_slice() else { return None };
    root.get("stateDir")?.as_scalar().map(PathBuf::from).filter(|path| path.is_absolute())
}

/// Whether a configuration file names its engine.
pub fn names_engine(file: &str, text: &str) -> bool {
    let documents = parse(file, text.as_bytes(), &Limits::default()).unwrap_or_default();
    matches!(documents.as_slice(), [root] if root.get("docker").is_some())
}

fn collect(map: &Value<'_>, table: &Table, found: &mut Vec<NamedFile>) {
    for (name, value) in map.pairs() {
        let Some(known) = table.all().find(|known| known.name == name) else { continue };
        match &known.shape {
            Shape::File => {
                let path = value.string().map(PathBuf::from).filter(|path| path.is_absolute());
                let location = value.place().location();
                found.extend(path.map(|path| NamedFile { key: value.path.clone(), path, location }));
            }
            Shape::Object(table) | Shape::TextOr(table) => collect(&value, table, found),
            Shape::ListOf(table) => value.items().iter().for_each(|item| collect(item, table, found)),
            Shape::OneOrMore(table) => {
                collect(&value, table, found);
                value.items().iter().for_each(|item| collect(item, table, found));
            }
            Shape::Text
            | Shape::Path
            | Shape::Address
            | Shape::Duration
            | Shape::Boolean
            | Shape::Integer(_)
            | Shape::Word(_)
            | Shape::Strings
            | Shape::Paths
            | Shape::Mapping
            | Shape::List(_) => {}
        }
    }
}
