//! The variables and free texts of Compose files that are encrypted in the repository.

use std::collections::BTreeSet;

use driftless_model::{EncryptedTexts, Mask};
use driftless_yaml::Node;

use crate::spec::{
    command_line,
    masked::{ARGUMENTS, TEXT_BY_NAME},
    tree,
};

/// The maps of variables of services, hooks and builds.
const VARIABLES: &[&str] = &["environment", "args"];

/// Words of a health check that say how its command is run.
const CHECK_KINDS: &[&str] = &["CMD", "CMD-SHELL", "NONE"];

/// The parts of a project that are masked because their files are encrypted.
#[derive(Default)]
pub(crate) struct Encrypted {
    pub(crate) texts: EncryptedTexts,
    /// The contents of configs and secrets. Only the printed project has them, so nothing else looks for their lines.
    pub(crate) contents: BTreeSet<String>,
}

/// The texts of a project from these files, in the fields that are shown as free text. Names, such as those of images, networks
/// and paths, stay readable.
pub(crate) fn texts_of(root: &Node, encrypted: &BTreeSet<&str>) -> Encrypted {
    let mut collector = Collector { encrypted, found: Encrypted::default() };
    if encrypted.is_empty() {
        return collector.found;
    }
    for group in ["services", "networks", "volumes", "configs", "secrets"] {
        tree::children(root, group).for_each(|entry| collector.fields(&entry.value));
    }
    let extensions = root.entries().iter().filter(|entry| entry.key.starts_with("x-"));
    extensions.for_each(|entry| collector.texts(&entry.value));
    collector.found
}

struct Collector<'a> {
    /// The paths of the encrypted files.
    encrypted: &'a BTreeSet<&'a str>,
    found: Encrypted,
}

impl Collector<'_> {
    fn is_encrypted(&self, node: &Node) -> bool {
        self.encrypted.contains(&*node.place.file)
    }

    fn fields(&mut self, node: &Node) {
        node.items().iter().for_each(|item| self.fields(item));
        for entry in node.entries() {
            let (key, value) = (entry.key.as_str(), &entry.value);
            let is_map = tree::is_mapping(value);
            if ARGUMENTS.contains(&key) && !is_map {
                self.arguments(value);
            } else if VARIABLES.contains(&key) {
                self.variables(value);
            } else if TEXT_BY_NAME.contains(&key) || key.starts_with("x-") {
                self.texts(value);
            } else if key == "content" && !is_map {
                self.content(value);
            } else {
                self.fields(value);
            }
        }
    }

    fn content(&mut self, node: &Node) {
        if let Some(text) = node.as_scalar().filter(|_| self.is_encrypted(node)) {
            self.found.contents.insert(text.to_owned());
        }
    }

    /// Variables in a map, or in a list of `NAME=value`.
    fn variables(&mut self, node: &Node) {
        let entries = node.entries().iter().map(|entry| (entry.key.as_str(), &entry.value));
        let items = node.items().iter().filter_map(|item| Some((item.as_scalar()?, item)));
        for (text, value) in entries.chain(items) {
            if self.is_encrypted(value) {
                let name = text.split_once('=').map_or(text, |(name, _)| name);
                self.found.texts.variables.insert(name.to_owned());
            }
        }
    }

    /// A program and its arguments, as a list or as one text.
    fn arguments(&mut self, node: &Node) {
        let split = node.as_scalar().and_then(command_line::split);
        if let Some(split) = split.filter(|_| self.is_encrypted(node)) {
            split.words.iter().for_each(|word| Mask::add_findable(&mut self.found.texts.texts, word));
        }
        self.text(node);
        let items = node.items().iter();
        let is_kind = |item: &&Node| item.as_scalar().is_some_and(|text| CHECK_KINDS.contains(&text));
        items.filter(|item| !is_kind(item)).for_each(|item| self.text(item));
    }

    /// All texts below a value. Of an item `NAME=value`, the value too.
    fn texts(&mut self, node: &Node) {
        self.text(node);
        node.entries().iter().for_each(|entry| self.texts(&entry.value));
        for item in node.items() {
            self.texts(item);
            let value = item.as_scalar().and_then(|text| text.split_once('=')).map(|(_, value)| value);
            if let Some(value) = value.filter(|_| self.is_encrypted(item)) {
                Mask::add_findable(&mut self.found.texts.texts, value);
            }
        }
    }

    fn text(&mut self, node: &Node) {
        if let Some(text) = node.as_scalar().filter(|_| self.is_encrypted(node)) {
            Mask::add_findable(&mut self.found.texts.texts, text);
        }
    }
}
