//! Changes to a tree: make values, find, set and remove keys, measure, convert to JSON.

use crate::{Entry, Kind, Limits, Node, Place, Scalar};

/// A scalar in quotes, which is always text.
pub fn text(place: &Place, text: impl Into<String>) -> Node {
    Node { kind: Kind::Scalar { text: text.into(), plain: false }, place: place.clone(), tag: None }
}

/// A scalar without quotes: a number, a boolean, or null if the text is empty.
pub fn plain(place: &Place, text: impl Into<String>) -> Node {
    Node { kind: Kind::Scalar { text: text.into(), plain: true }, place: place.clone(), tag: None }
}

/// A null.
pub fn null(place: &Place) -> Node {
    plain(place, "")
}

/// A map. All keys get the place of the map.
pub fn mapping<'a>(place: &Place, entries: impl IntoIterator<Item = (&'a str, Node)>) -> Node {
    let entries = entries.into_iter().map(|(key, value)| entry(place, key, value)).collect();
    Node { kind: Kind::Mapping(entries), place: place.clone(), tag: None }
}

/// A list.
pub fn sequence(place: &Place, items: Vec<Node>) -> Node {
    Node { kind: Kind::Sequence(items), place: place.clone(), tag: None }
}

/// One entry of a map, with its key at `place`.
pub fn entry(place: &Place, key: &str, value: Node) -> Entry {
    Entry { key: key.to_owned(), key_place: place.clone(), value }
}

/// Whether a value is a map.
pub fn is_mapping(node: &Node) -> bool {
    matches!(node.kind, Kind::Mapping(_))
}

/// The entries of a map; empty for anything else.
pub fn entries_mut(node: &mut Node) -> &mut [Entry] {
    match &mut node.kind {
        Kind::Mapping(entries) => entries,
        Kind::Scalar { .. } | Kind::Sequence(_) => &mut [],
    }
}

/// The items of a list; empty for anything else.
pub fn items_mut(node: &mut Node) -> &mut [Node] {
    match &mut node.kind {
        Kind::Sequence(items) => items,
        Kind::Scalar { .. } | Kind::Mapping(_) => &mut [],
    }
}

/// The value of a key of a map.
pub fn get_mut<'n>(node: &'n mut Node, key: &str) -> Option<&'n mut Node> {
    entries_mut(node).iter_mut().find(|it| it.key == key).map(|it| &mut it.value)
}

/// Sets a key of a map. A new key gets the place of the map. A value that is no map stays as it is.
pub fn set(node: &mut Node, key: &str, value: Node) {
    let place = node.place.clone();
    let Kind::Mapping(entries) = &mut node.kind else { return };
    match entries.iter_mut().find(|it| it.key == key) {
        Some(entry) => entry.value = value,
        None => entries.push(entry(&place, key, value)),
    }
}

/// As [`set`], but only if the key is missing.
pub fn set_missing(node: &mut Node, key: &str, value: impl FnOnce(&Place) -> Node) {
    if is_mapping(node) && node.get(key).is_none() {
        let value = value(&node.place);
        set(node, key, value);
    }
}

/// Removes a key from a map and returns its entry.
pub fn remove(node: &mut Node, key: &str) -> Option<Entry> {
    let Kind::Mapping(entries) = &mut node.kind else { return None };
    let at = entries.iter().position(|it| it.key == key)?;
    Some(entries.remove(at))
}

/// The entries of the map under a key, such as all services.
pub fn children_mut<'n>(root: &'n mut Node, key: &str) -> impl Iterator<Item = (&'n str, &'n mut Node)> {
    let entries = get_mut(root, key).map(entries_mut).unwrap_or_default();
    entries.iter_mut().map(|Entry { key, key_place: _, value }| (key.as_str(), value))
}

/// As [`children_mut`], to read only.
pub fn children<'n>(root: &'n Node, key: &str) -> impl Iterator<Item = &'n Entry> {
    root.get(key).map(Node::entries).unwrap_or_default().iter()
}

/// The number of keys and values. Recurses no deeper than the tree, whose depth is bounded.
pub fn size(node: &Node) -> usize {
    match &node.kind {
        Kind::Scalar { .. } => 1,
        Kind::Sequence(items) => 1 + items.iter().map(size).sum::<usize>(),
        Kind::Mapping(entries) => 1 + entries.iter().map(|it| 1 + size(&it.value)).sum::<usize>(),
    }
}

/// The number of keys and values, of which a long one counts as several: one more for each 128 bytes.
pub fn weight(node: &Node) -> usize {
    let text = |text: &str| 1 + text.len() / 128;
    match &node.kind {
        Kind::Scalar { text: value, .. } => text(value),
        Kind::Sequence(items) => 1 + items.iter().map(weight).sum::<usize>(),
        Kind::Mapping(entries) => {
            1 + entries.iter().map(|it| text(&it.key) + weight(&it.value)).sum::<usize>()
        }
    }
}

/// The bytes of text in all values.
pub fn length(node: &Node) -> usize {
    match &node.kind {
        Kind::Scalar { text, .. } => text.len(),
        Kind::Sequence(items) => items.iter().map(length).sum(),
        Kind::Mapping(entries) => entries.iter().map(|it| length(&it.value)).sum(),
    }
}

/// Whether a tree composed of others exceeds the [`Limits`] of a tree read from a file.
pub fn is_too_large(node: &Node) -> bool {
    let limits = Limits::default();
    size(node) > limits.nodes || depth(node) > limits.depth || length(node) > limits.text()
}

/// The depth of nested maps and lists; 0 for a scalar.
pub fn depth(node: &Node) -> usize {
    match &node.kind {
        Kind::Scalar { .. } => 0,
        Kind::Sequence(items) => 1 + items.iter().map(depth).max().unwrap_or_default(),
        Kind::Mapping(entries) => 1 + entries.iter().map(|it| depth(&it.value)).max().unwrap_or_default(),
    }
}

/// Changes the place of every key and value.
pub fn move_to(node: &mut Node, place: &impl Fn(&Place) -> Place) {
    node.place = place(&node.place);
    for item in items_mut(node) {
        move_to(item, place);
    }
    for entry in entries_mut(node) {
        entry.key_place = place(&entry.key_place);
        move_to(&mut entry.value, place);
    }
}

/// The tree as JSON. A number that JSON cannot hold, such as infinity, becomes a string.
pub fn json(node: &Node) -> serde_json::Value {
    use serde_json::{Number, Value};
    match &node.kind {
        Kind::Sequence(items) => items.iter().map(json).collect(),
        Kind::Mapping(entries) => {
            Value::Object(entries.iter().map(|it| (it.key.clone(), json(&it.value))).collect())
        }
        Kind::Scalar { text, .. } => match node.resolved() {
            None | Some(Scalar::Null) => Value::Null,
            Some(Scalar::Bool(value)) => Value::Bool(value),
            Some(Scalar::Int(value)) => Value::Number(value.into()),
            Some(Scalar::Unsigned(value)) => Value::Number(value.into()),
            Some(Scalar::Float(value)) => {
                Number::from_f64(value).map_or_else(|| Value::String(text.clone()), Value::Number)
            }
            Some(Scalar::Text(text)) => Value::String(text.to_owned()),
        },
    }
}
