//! Small steps on the YAML tree, with what only Compose takes for text.

pub(super) use crate::manifest::yaml::edit::{
    children, children_mut, entries_mut, entry, get_mut, is_mapping, items_mut, mapping, null, plain, remove,
    sequence, set, set_missing, size, text,
};

use crate::manifest::yaml::Node;

/// The text of a scalar that is text.
pub(super) fn as_text(node: &Node) -> Option<&str> {
    match super::scalar::Plain::of(node)? {
        (text, super::scalar::Plain::Text) => Some(text),
        _ => None,
    }
}
