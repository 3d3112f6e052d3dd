//! Visits the fields of an object that a path leads to. A list on the path stands for each of its items.

use driftless_yaml::{Kind, Node, Place, edit::entry, edit::mapping, edit::text};

/// The value to create if the path does not exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Missing {
    Nothing,
    Text,
    Map,
}

/// The steps of a path such as `spec/template/metadata`. `\/` is a slash in a key.
pub(super) fn steps(path: &str) -> Vec<String> {
    split(path.strip_prefix('/').unwrap_or(path), '/')
}

/// Splits at a character that has no backslash before it.
pub(super) fn split(path: &str, delimiter: char) -> Vec<String> {
    let mut steps: Vec<String> = Vec::new();
    for part in path.split(delimiter) {
        match steps.last_mut() {
            Some(last) if last.ends_with('\\') => {
                last.pop();
                last.push(delimiter);
                last.push_str(part);
            }
            Some(_) | None => steps.push(part.to_owned()),
        }
    }
    steps
}

/// Calls `change` with every field that the path leads to. Created fields get `place`. A step that ends with `[]` must
/// be
/// a list, and is never created.
pub(super) fn visit(
    node: &mut Node,
    path: &[String],
    missing: Missing,
    place: &Place,
    change: &mut dyn FnMut(&mut Node),
) {
    let Some((step, rest)) = path.split_first() else { return change(node) };
    if let Kind::Sequence(items) = &mut node.kind {
        for item in items {
            visit(item, path, missing, place, change);
        }
        return;
    }
    let Kind::Mapping(entries) = &mut node.kind else { return };
    let (key, is_list) = step.strip_suffix("[]").map_or((step.as_str(), false), |it| (it, true));
    let made = match missing {
        Missing::Nothing => None,
        _ if is_list => None,
        Missing::Text if rest.is_empty() => Some(text(place, "")),
        Missing::Text | Missing::Map => Some(mapping(place, [])),
    };
    let at = entries.iter().position(|it| it.key == key);
    let field = match (at.and_then(|it| entries.get_mut(it)), made) {
        (Some(found), Some(made)) if found.value.is_null() => {
            found.value = made;
            &mut found.value
        }
        (Some(found), _) => &mut found.value,
        (None, Some(made)) => {
            entries.push(entry(place, key, made));
            let Some(last) = entries.last_mut() else { return };
            &mut last.value
        }
        (None, None) => return,
    };
    visit(field, rest, missing, place, change);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_backslash_keeps_a_slash_in_its_key() {
        assert_eq!(steps("metadata/annotations/a.io\\/b"), ["metadata", "annotations", "a.io/b"]);
        assert_eq!(steps("/spec"), ["spec"]);
        assert_eq!(split("a.b\\.c.d", '.'), ["a", "b.c", "d"]);
    }
}
