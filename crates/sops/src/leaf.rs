//! Values of a file before they are decrypted, with their paths.

use driftless_yaml::{Kind, Node, Scalar};

/// One value of a file.
pub(super) struct Leaf<'a> {
    /// The keys from the root. Items of lists have the path of the list.
    pub(super) path: Vec<&'a str>,
    /// The text in the file.
    pub(super) text: &'a str,
    /// The value in YAML and JSON. `None`: a text.
    node: Option<&'a Node>,
}

impl<'a> Leaf<'a> {
    /// A value of a file that has texts only.
    pub(super) fn text(path: Vec<&'a str>, text: &'a str) -> Self {
        Self { path, text, node: None }
    }

    /// All values of a YAML document in order, but for SOPS' metadata. Nulls are never encrypted.
    pub(super) fn of_document(root: &'a Node) -> Vec<Self> {
        let mut leaves = Vec::new();
        collect(root, &mut Vec::new(), &mut leaves);
        leaves
    }

    /// The data that AES-GCM authenticates with the value.
    pub(super) fn authenticated(&self) -> String {
        format!("{}:", self.path.join(":"))
    }

    /// The path for messages.
    pub(super) fn name(&self) -> String {
        self.path.join(".")
    }

    /// The text of an unencrypted value as the MAC has it: decimal numbers, `True` and `False`.
    pub(super) fn canonical(&self) -> String {
        match self.node.and_then(Node::resolved) {
            Some(Scalar::Bool(true)) => "True".to_owned(),
            Some(Scalar::Bool(false)) => "False".to_owned(),
            Some(Scalar::Int(number)) => number.to_string(),
            Some(Scalar::Unsigned(number)) => number.to_string(),
            Some(Scalar::Float(number)) => number.to_string(),
            Some(Scalar::Null | Scalar::Text(_)) | None if self.is_date() => {
                format!("{}T00:00:00Z", self.text)
            }
            Some(Scalar::Null | Scalar::Text(_)) | None => self.text.to_owned(),
        }
    }

    /// Whether YAML takes the value for a day, such as 2024-01-31.
    fn is_date(&self) -> bool {
        let is_plain = self.node.is_some_and(|node| matches!(node.kind, Kind::Scalar { plain: true, .. }));
        let digits = |part: &str, length: usize| {
            part.len() == length && part.bytes().all(|byte| byte.is_ascii_digit())
        };
        let parts: Vec<&str> = self.text.split('-').collect();
        is_plain
            && matches!(parts[..], [year, month, day] if digits(year, 4) && digits(month, 2) && digits(day, 2))
    }
}

fn collect<'a>(node: &'a Node, path: &mut Vec<&'a str>, leaves: &mut Vec<Leaf<'a>>) {
    match &node.kind {
        Kind::Scalar { text, .. } if !node.is_null() => {
            leaves.push(Leaf { path: path.clone(), text, node: Some(node) });
        }
        Kind::Scalar { .. } => {}
        Kind::Sequence(items) => items.iter().for_each(|item| collect(item, path, leaves)),
        Kind::Mapping(entries) => {
            for entry in entries {
                if path.is_empty() && entry.key == super::metadata::KEY {
                    continue;
                }
                path.push(&entry.key);
                collect(&entry.value, path, leaves);
                path.pop();
            }
        }
    }
}
