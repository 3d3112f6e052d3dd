//! JSON patches (RFC 6902): single operations at exact paths.
//!
//! As in kustomize, `replace` also creates a missing key, a negative index counts from the end, and the map of
//! annotations always exists.

#![allow(
    clippy::result_large_err,
    reason = "a finding ends the step that it is about, so its size is paid once"
)]

use super::{
    super::reader::{Report, Value},
    keys,
    settings::LocatedText,
};
use driftless_model::Finding;
use driftless_yaml::edit;
use driftless_yaml::{Entry, Kind, Node, edit::get_mut, edit::json, edit::mapping, edit::set};

#[derive(Debug)]
pub(super) struct Operation {
    action: Action,
    path: Pointer,
}

#[derive(Debug)]
enum Action {
    Add(Node),
    Replace(Node),
    Test(Node),
    Remove,
    Move(Pointer),
    Copy(Pointer),
}

/// A JSON pointer (RFC 6901).
#[derive(Debug)]
struct Pointer {
    located: LocatedText,
    steps: Vec<String>,
}

/// Reads a list of operations.
pub(super) fn read(document: &Node, report: &Report) -> Option<Vec<Operation>> {
    let items = Value::new(document, "", report).items();
    let count = items.len();
    let found: Vec<Operation> = items.into_iter().filter_map(operation).collect();
    (found.len() == count).then_some(found)
}

fn operation(value: Value<'_>) -> Option<Operation> {
    let object = value.object(keys::OPERATION)?;
    let path = pointer(&object.require("path")?)?;
    // Null is a value too.
    let value = || {
        let node = object.value.node;
        let value = node.get("value").cloned();
        if value.is_none() {
            object.value.error_help("`value` is missing", "write what to put there");
        }
        value
    };
    let op = object.require("op")?;
    let action = match op.string()? {
        "add" => Action::Add(value()?),
        "replace" => Action::Replace(value()?),
        "test" => Action::Test(value()?),
        "remove" => Action::Remove,
        "move" => Action::Move(pointer(&object.require("from")?)?),
        "copy" => Action::Copy(pointer(&object.require("from")?)?),
        _ => {
            op.error_help("is not an operation", "use `add`, `remove`, `replace`, `move`, `copy` or `test`");
            return None;
        }
    };
    Some(Operation { action, path })
}

fn pointer(value: &Value<'_>) -> Option<Pointer> {
    let located = LocatedText::of(value)?;
    let Some(rest) = located.text.strip_prefix('/') else {
        value.error_help("must begin with `/`", "such as `/spec/template/spec/containers/0/image`");
        return None;
    };
    let steps = rest.split('/').map(|it| it.replace("~1", "/").replace("~0", "~")).collect();
    Some(Pointer { located, steps })
}

/// Applies the operations in order and stops at the first that fails. `words` names the patched object in messages.
pub(super) fn apply(root: &mut Node, operations: &[Operation], words: &str) -> Result<(), Finding> {
    for Operation { action, path } in operations {
        if path.steps.first().is_some_and(|it| it == "metadata")
            && path.steps.get(1).is_some_and(|it| it == "annotations")
            && path.steps.len() == 3
            && !matches!(action, Action::Remove | Action::Test(_))
            && let Some(metadata) = get_mut(root, "metadata")
            && metadata.get("annotations").is_none_or(Node::is_null)
        {
            set(metadata, "annotations", mapping(&path.located.place, []));
        }
        match action {
            Action::Add(value) => path.add(root, value.clone(), words)?,
            Action::Replace(value) => path.replace(root, value.clone(), words)?,
            Action::Remove => drop(path.take(root, words)?),
            Action::Move(from) => {
                let value = from.take(root, words)?;
                path.add(root, value, words)?;
            }
            Action::Copy(from) => {
                let value = from.find(root, words)?.clone();
                path.add(root, value, words)?;
            }
            Action::Test(value) => {
                if json(path.find(root, words)?) != json(value) {
                    let message = format!("`{}` of {words} has another value", path.located.text);
                    return Err(path.located.error(message).help("update the patch, or remove the `test`"));
                }
            }
        }
        if edit::is_too_large(root) {
            return Err(path.located.error(format!("makes {words} too large")));
        }
    }
    Ok(())
}

impl Pointer {
    fn missing(&self, words: &str) -> Finding {
        let message = format!("`{}` does not exist in {words}", self.located.text);
        self.located.error(message)
    }

    fn find<'n>(&self, root: &'n Node, words: &str) -> Result<&'n Node, Finding> {
        let found = self.steps.iter().try_fold(root, |node, step| match &node.kind {
            Kind::Mapping(_) => node.get(step),
            Kind::Sequence(items) => items.get(index(step, items.len())?),
            Kind::Scalar { .. } => None,
        });
        found.ok_or_else(|| self.missing(words))
    }

    /// The parent of the last step, and that step.
    fn parent<'n, 's>(&'s self, root: &'n mut Node, words: &str) -> Result<(&'n mut Node, &'s str), Finding> {
        let Some((last, before)) = self.steps.split_last() else { return Err(self.missing(words)) };
        let found = before.iter().try_fold(root, |node, step| match &mut node.kind {
            Kind::Mapping(entries) => entries.iter_mut().find(|it| it.key == *step).map(|it| &mut it.value),
            Kind::Sequence(items) => index(step, items.len()).and_then(|at| items.get_mut(at)),
            Kind::Scalar { .. } => None,
        });
        Ok((found.ok_or_else(|| self.missing(words))?, last))
    }

    fn add(&self, root: &mut Node, value: Node, words: &str) -> Result<(), Finding> {
        self.write(root, value, words, |items, step, value| {
            let at = if step == "-" { items.len() } else { index(step, items.len() + 1)? };
            items.insert(at, value);
            Some(())
        })
    }

    fn replace(&self, root: &mut Node, value: Node, words: &str) -> Result<(), Finding> {
        self.write(root, value, words, |items, step, value| {
            let at = index(step, items.len())?;
            *items.get_mut(at)? = value;
            Some(())
        })
    }

    /// Sets a key of a map, or calls `into_list` for a list.
    fn write(
        &self,
        root: &mut Node,
        value: Node,
        words: &str,
        into_list: impl FnOnce(&mut Vec<Node>, &str, Node) -> Option<()>,
    ) -> Result<(), Finding> {
        let (parent, step) = self.parent(root, words)?;
        match &mut parent.kind {
            Kind::Mapping(_) => {
                put(parent, step, value, self);
                Ok(())
            }
            Kind::Sequence(items) => into_list(items, step, value).ok_or_else(|| self.missing(words)),
            Kind::Scalar { .. } => Err(self.missing(words)),
        }
    }

    /// Removes the value and returns it.
    fn take(&self, root: &mut Node, words: &str) -> Result<Node, Finding> {
        let (parent, step) = self.parent(root, words)?;
        match &mut parent.kind {
            Kind::Mapping(_) => {
                edit::remove(parent, step).map(|it| it.value).ok_or_else(|| self.missing(words))
            }
            Kind::Sequence(items) => match index(step, items.len()) {
                Some(at) if at < items.len() => Ok(items.remove(at)),
                Some(_) | None => Err(self.missing(words)),
            },
            Kind::Scalar { .. } => Err(self.missing(words)),
        }
    }
}

fn put(map: &mut Node, key: &str, value: Node, pointer: &Pointer) {
    let Kind::Mapping(entries) = &mut map.kind else { return };
    match entries.iter_mut().find(|it| it.key == key) {
        Some(entry) => entry.value = value,
        None => entries.push(Entry { key: key.to_owned(), key_place: pointer.located.place.clone(), value }),
    }
}

/// The index in a list with `count` items. A negative one counts from the end.
fn index(step: &str, count: usize) -> Option<usize> {
    let is_plain = step == "0" || !step.trim_start_matches('-').starts_with('0');
    let at: i64 = step.parse().ok().filter(|_| is_plain && !step.starts_with('+'))?;
    let count = i64::try_from(count).ok()?;
    let at = if at < 0 { at + count } else { at };
    usize::try_from(at).ok().filter(|_| at < count)
}
