//! Changes to the YAML tree, and which scalars are strings in Compose.

pub(crate) use driftless_yaml::{
    edit::children, edit::children_mut, edit::entries_mut, edit::entry, edit::get_mut, edit::is_mapping,
    edit::items_mut, edit::mapping, edit::null, edit::plain, edit::remove, edit::sequence, edit::set,
    edit::set_missing, edit::text, edit::weight,
};

use driftless_yaml::Node;

use crate::spec::scalar::Plain;

/// The text of a scalar that is a string.
pub(crate) fn as_text(node: &Node) -> Option<&str> {
    match Plain::of(node)? {
        (text, Plain::Text) => Some(text),
        _ => None,
    }
}
