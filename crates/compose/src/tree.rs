//! Small steps on the YAML tree, with what only Compose takes for text.

pub(super) use driftless_yaml::{
    edit::children, edit::children_mut, edit::entries_mut, edit::entry, edit::get_mut, edit::is_mapping,
    edit::items_mut, edit::mapping, edit::null, edit::plain, edit::remove, edit::sequence, edit::set,
    edit::set_missing, edit::size, edit::text,
};

use driftless_yaml::Node;

/// The text of a scalar that is text.
pub(super) fn as_text(node: &Node) -> Option<&str> {
    match super::scalar::Plain::of(node)? {
        (text, super::scalar::Plain::Text) => Some(text),
        _ => None,
    }
}
