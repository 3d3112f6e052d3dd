//! The variables and free texts of manifests that are encrypted in the repository.

use driftless_files::Files;
use driftless_model::{EncryptedTexts, Mask};
use driftless_yaml::Node;

/// The texts of documents that come from encrypted files, in the fields that are shown as free text. Names, such as those of
/// objects, images and volumes, stay readable.
pub(super) fn texts_of(parsed: &[(String, Vec<Node>)], files: &dyn Files) -> EncryptedTexts {
    let mut collector = Collector { files, found: EncryptedTexts::default() };
    parsed.iter().flat_map(|(_, documents)| documents).for_each(|document| collector.fields(document));
    collector.found
}

struct Collector<'a> {
    files: &'a dyn Files,
    found: EncryptedTexts,
}

impl Collector<'_> {
    fn fields(&mut self, node: &Node) {
        // Variables refer to Secrets, and a ConfigMap of an encrypted file is refused.
        let kind = node.get("kind").and_then(Node::as_scalar);
        if matches!(kind, Some("Secret" | "ConfigMap")) {
            return;
        }
        node.items().iter().for_each(|item| self.fields(item));
        for entry in node.entries() {
            let value = &entry.value;
            match entry.key.as_str() {
                "env" => value.items().iter().for_each(|variable| self.variable(variable)),
                "command" | "args" => value.items().iter().for_each(|argument| self.text(argument)),
                // Selectors match labels, so those are names.
                "annotations" => value.entries().iter().for_each(|entry| self.text(&entry.value)),
                "httpHeaders" => {
                    value.items().iter().filter_map(|it| it.get("value")).for_each(|it| self.text(it));
                }
                "httpGet" => {
                    if let Some(path) = value.get("path") {
                        self.text(path);
                    }
                    self.fields(value);
                }
                _ => self.fields(value),
            }
        }
    }

    fn variable(&mut self, variable: &Node) {
        let name = variable.get("name").and_then(Node::as_scalar);
        let value = variable.get("value").filter(|value| self.is_encrypted(value));
        if let (Some(name), Some(_)) = (name, value) {
            self.found.variables.insert(name.to_owned());
        }
    }

    /// Adds a text, and the parts between its variables, which have other values in a container.
    fn text(&mut self, node: &Node) {
        let Some(text) = node.as_scalar().filter(|_| self.is_encrypted(node)) else { return };
        Mask::add_findable(&mut self.found.texts, text);
        if text.contains("$(") {
            text.split("$(").for_each(|part| {
                Mask::add_findable(&mut self.found.texts, part.split_once(')').map_or(part, |(_, it)| it));
            });
        }
    }

    fn is_encrypted(&self, node: &Node) -> bool {
        self.files.is_encrypted(&node.place.file)
    }
}
