//! Replacements: copies a value of one object into fields of others.

use regex::Regex;

use super::{
    super::reader::{Object, Value},
    keys,
    resource::{Id, Resource},
    selector::Selector,
    settings::{LocatedText, texts},
    source_files::SourceFiles,
    walk::split,
};
use driftless_yaml as yaml;
use driftless_yaml::edit;
use driftless_yaml::{
    Kind, Limits, Node, Place, Scalar, edit::entry, edit::mapping, edit::sequence, edit::text,
};

/// The default field.
const NAME: &str = "metadata.name";

/// Options for reading a value from a field, or writing it into one.
#[derive(Clone, Debug, Default)]
struct ReplacementOptions {
    delimiter: String,
    index: i64,
    create: bool,
}

struct ReplacementTarget {
    place: Place,
    path: String,
    select: Selector,
    reject: Vec<Selector>,
    fields: Vec<LocatedText>,
    options: ReplacementOptions,
}

/// An entry of `replacements`: one replacement, or the path of a file of them.
pub(super) fn replace(
    sources: &mut SourceFiles<'_>,
    folder: &str,
    node: &Node,
    path: &str,
    resources: &mut [Resource],
) {
    let report = sources.report;
    let Some(object) = Value::new(node, path, report).object(keys::REPLACEMENT) else { return };
    let Some(located) = object.get("path").and_then(|it| LocatedText::of(&it)) else {
        one(&object, resources);
        return;
    };
    let Some((path, bytes)) = sources.file(&located, folder) else { return };
    let Some(documents) = sources.parse(&path, &bytes) else { return };
    for document in &documents {
        let listed = match &document.kind {
            Kind::Sequence(items) => items.as_slice(),
            Kind::Mapping(_) | Kind::Scalar { .. } => std::slice::from_ref(document),
        };
        for node in listed {
            if let Some(object) = Value::new(node, "", report).object(keys::REPLACEMENT) {
                one(&object, resources);
            }
        }
    }
}

/// `None`: the entry is invalid, which is reported.
fn one(object: &Object<'_>, resources: &mut [Resource]) -> Option<()> {
    let given =
        object.get("sourceValue").and_then(|it| LocatedText::of(&it)).map(|it| text(&it.place, it.text));
    let value = match (given, object.get("source")) {
        (Some(_), Some(source)) => {
            source.error("is set together with `sourceValue`; remove one of the two");
            return None;
        }
        (Some(value), None) => value,
        (None, _) => source(&object.require("source")?, resources)?,
    };
    let targets: Vec<Option<ReplacementTarget>> =
        object.require("targets")?.items().iter().map(target).collect();
    for target in targets {
        target?.put(&value, object, resources);
    }
    Some(())
}

/// The value to copy. `None`: it does not exist, which is reported.
fn source(value: &Value<'_>, resources: &[Resource]) -> Option<Node> {
    let object = value.clone().object(keys::SOURCE)?;
    let word = |key: &str| object.string(key).unwrap_or_default();
    let (group, version, kind) = (word("group"), word("version"), word("kind"));
    let (name, namespace) = (word("name"), word("namespace"));
    let is_meant = |it: &Id| {
        it.gvk.is(group, version, kind)
            && (name.is_empty() || it.name == name)
            && (namespace.is_empty() || it.namespace_text() == namespace)
    };
    let mut found = resources.iter().filter(|it| is_meant(&it.id()) || it.earlier_ids().iter().any(is_meant));
    let Some(first) = found.next() else {
        value.error("selects nothing");
        return None;
    };
    if let Some(other) = found.next() {
        let (first, other) = (first.place().location(), other.place().location());
        value.error_help(
            format!("selects both what is at {first} and at {other}"),
            "add fields that select only one of them",
        );
        return None;
    }
    let options = options(&object)?;
    let path = object.get("fieldPath").and_then(|it| LocatedText::of(&it));
    let path_text = path.as_ref().map_or(NAME, |it| it.text.as_str());
    let Some(found) = lookup(&first.node, &steps(path_text)).filter(|it| !it.is_null()) else {
        let message =
            format!("`{path_text}` does not exist in {} of {}", first.id().words(), first.place().location());
        value
            .report()
            .say(path.map_or_else(|| value.node.finding(&*value.path, &*message), |it| it.error(&*message)));
        return None;
    };
    if options.delimiter.is_empty() {
        return Some(found.clone());
    }
    let part = usize::try_from(options.index)
        .ok()
        .and_then(|it| found.as_scalar()?.split(&options.delimiter).nth(it));
    if part.is_none() {
        let message = format!("the value has no part {} between `{}`", options.index, options.delimiter);
        value.error(message);
    }
    part.map(|it| text(&found.place, it))
}

fn options(object: &Object<'_>) -> Option<ReplacementOptions> {
    let Some(value) = object.get("options") else { return Some(ReplacementOptions::default()) };
    let object = value.object(keys::REPLACEMENT_OPTIONS)?;
    Some(ReplacementOptions {
        delimiter: object.string("delimiter").unwrap_or_default().to_owned(),
        index: object.integer("index", i64::from(i32::MIN)..=i64::from(i32::MAX)).unwrap_or_default(),
        create: object.boolean("create").unwrap_or(false),
    })
}

fn target(value: &Value<'_>) -> Option<ReplacementTarget> {
    let object = value.clone().object(keys::REPLACEMENT_TARGET)?;
    let select = Selector::read(object.require("select")?)?;
    let reject: Option<Vec<Selector>> = object.items("reject").into_iter().map(Selector::read).collect();
    let mut fields = texts(&object, "fieldPaths");
    if fields.is_empty() {
        fields.push(LocatedText {
            text: NAME.to_owned(),
            place: value.place().clone(),
            path: value.path.clone(),
        });
    }
    let (place, path) = (value.place().clone(), value.path.clone());
    Some(ReplacementTarget { place, path, select, reject: reject?, fields, options: options(&object)? })
}

impl ReplacementTarget {
    fn put(&self, value: &Node, object: &Object<'_>, resources: &mut [Resource]) {
        let report = object.value.report();
        let mut count = 0;
        for resource in resources.iter_mut().filter(|it| self.is_meant(it)) {
            count += 1;
            let words = format!("{} of {}", resource.id().words(), resource.place().location());
            for located in &self.fields {
                let mut write = Write {
                    options: &self.options,
                    value,
                    made: &located.place,
                    count: 0,
                    room: Limits::default().text(),
                    trouble: None,
                };
                write.down(&mut resource.node, &steps(&located.text));
                if let Some(trouble) = write.trouble {
                    report.say(located.error(trouble));
                } else if write.count == 0 {
                    let finding = located.error(format!("`{}` does not exist in {words}", located.text));
                    report.say(finding.help("set `options: {create: true}` to create it"));
                } else if edit::is_too_large(&resource.node) {
                    report.say(located.error(format!("makes {words} too large")));
                    return;
                }
            }
        }
        if count == 0 {
            let finding = driftless_model::Finding::warning(
                self.place.location(),
                yaml::join(&self.path, "select"),
                "selects nothing, so nothing is replaced",
            );
            report.say(finding);
        }
    }

    fn is_meant(&self, resource: &Resource) -> bool {
        let mut ids = resource.earlier_ids();
        ids.push(resource.id());
        let is_rejected = |it: &Selector| {
            (it.has_id() && ids.iter().any(|id| it.selects_id(id)))
                || (it.has_metadata() && it.selects_metadata(resource))
        };
        self.select.selects_metadata(resource)
            && !self.reject.iter().any(is_rejected)
            && ids.iter().any(|id| self.select.selects_id(id))
    }
}

/// The steps of `spec.containers.[name=a.b].image`. A step in brackets may contain dots; the brackets stay if it
/// contains `=`.
fn steps(path: &str) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    let mut open: Option<String> = None;
    for part in split(path, '.') {
        let whole = match open.take() {
            Some(before) => format!("{before}.{part}"),
            None => part,
        };
        if whole.starts_with('[') && !whole.ends_with(']') {
            open = Some(whole);
        } else if whole.starts_with('[') && !whole.contains('=') {
            found.push(whole.trim_matches(['[', ']']).to_owned());
        } else {
            found.push(whole);
        }
    }
    found.extend(open);
    found
}

/// `name` and `web` of `[name=web]`.
fn pair(step: &str) -> Option<(&str, &str)> {
    step.strip_prefix('[')?.strip_suffix(']')?.split_once('=')
}

fn lookup<'n>(node: &'n Node, steps: &[String]) -> Option<&'n Node> {
    steps.iter().try_fold(node, |node, step| match &node.kind {
        Kind::Mapping(_) => node.get(step),
        Kind::Sequence(items) => match (step.as_str(), pair(step)) {
            ("-", _) => items.last(),
            (_, Some((key, value))) => {
                items.iter().find(|it| it.get(key).and_then(Node::as_scalar) == Some(value))
            }
            (index, None) => items.get(index.parse::<usize>().ok()?),
        },
        Kind::Scalar { .. } => None,
    })
}

/// Writes one value to all fields of one path.
struct Write<'a> {
    options: &'a ReplacementOptions,
    value: &'a Node,
    /// The place of created fields.
    made: &'a Place,
    count: usize,
    /// The bytes of text that may still be written.
    room: usize,
    trouble: Option<String>,
}

impl Write<'_> {
    fn down(&mut self, node: &mut Node, steps: &[String]) {
        let Some((step, rest)) = steps.split_first() else { return self.set(node) };
        if self.options.create && node.is_null() {
            *node = self.empty(Some(step));
        }
        let made = self.options.create.then(|| self.empty(rest.first()));
        let place = self.made.clone();
        match &mut node.kind {
            Kind::Mapping(entries) => match (entries.iter_mut().find(|it| it.key == *step), made) {
                (Some(found), _) => self.down(&mut found.value, rest),
                (None, Some(mut made)) => {
                    self.down(&mut made, rest);
                    entries.push(entry(&place, step, made));
                }
                (None, None) => {}
            },
            Kind::Sequence(items) => {
                if step == "*" {
                    for item in items {
                        self.down(item, rest);
                    }
                } else if let Some((key, wanted)) = pair(step) {
                    let Ok(pattern) = Regex::new(wanted) else {
                        self.trouble = Some(format!("`{wanted}` is not a regular expression"));
                        return;
                    };
                    let is_it = |it: &Node| {
                        let own = if key.is_empty() {
                            it.as_scalar()
                        } else {
                            it.get(key).and_then(Node::as_scalar)
                        };
                        own.is_some_and(|it| pattern.is_match(it))
                    };
                    let mut found = false;
                    for item in items.iter_mut().filter(|it| is_it(it)) {
                        found = true;
                        self.down(item, rest);
                    }
                    if !found && self.options.create && !key.is_empty() {
                        let mut made = mapping(&place, [(key, text(&place, wanted))]);
                        self.down(&mut made, rest);
                        items.push(made);
                    }
                } else if let Ok(index) = step.parse::<usize>() {
                    let count = items.len();
                    match (items.get_mut(index), made) {
                        (Some(item), _) => self.down(item, rest),
                        (None, Some(mut made)) if index == count => {
                            self.down(&mut made, rest);
                            items.push(made);
                        }
                        (None, _) => {}
                    }
                }
            }
            Kind::Scalar { .. } => {}
        }
    }

    /// An empty value for a field whose next step is this.
    fn empty(&self, step: Option<&String>) -> Node {
        match step {
            None => text(self.made, ""),
            Some(step) if pair(step).is_some() || step == "*" || step.parse::<usize>().is_ok() => {
                sequence(self.made, Vec::new())
            }
            Some(_) => mapping(self.made, []),
        }
    }

    fn set(&mut self, node: &mut Node) {
        self.count += 1;
        let Some(room) = self.room.checked_sub(edit::length(self.value)) else {
            self.trouble = Some("is written to too many places".to_owned());
            return;
        };
        self.room = room;
        let Kind::Scalar { text: before, plain } = &node.kind else {
            if self.options.delimiter.is_empty() {
                *node = self.value.clone();
            } else {
                self.trouble = Some("a part between delimiters can only be put into text".to_owned());
            }
            return;
        };
        let Some(value) = self.value.as_scalar() else {
            if self.options.delimiter.is_empty() {
                *node = self.value.clone();
            } else {
                self.trouble = Some("only text can be put between delimiters".to_owned());
            }
            return;
        };
        let mut parts: Vec<&str> = Vec::new();
        if self.options.delimiter.is_empty() {
            parts.push(value);
        } else {
            parts.extend(before.split(&self.options.delimiter));
            match usize::try_from(self.options.index) {
                Err(_) => parts.insert(0, value),
                Ok(index) => match parts.get_mut(index) {
                    Some(part) => *part = value,
                    None => parts.push(value),
                },
            }
        }
        // A number stays a number, and text stays text.
        let is_text = matches!(node.resolved(), Some(Scalar::Text(_)));
        let kind = Kind::Scalar { text: parts.join(&self.options.delimiter), plain: *plain && !is_text };
        *node = Node { kind, place: self.value.place.clone(), tag: None };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn brackets_keep_a_step_together() {
        assert_eq!(steps("spec.containers.[name=a.b].image"), ["spec", "containers", "[name=a.b]", "image"]);
        assert_eq!(steps("metadata.annotations.[a.b/c]"), ["metadata", "annotations", "a.b/c"]);
        assert_eq!(steps("a\\.b.0"), ["a.b", "0"]);
    }
}
