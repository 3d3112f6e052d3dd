//! Generates ConfigMaps and Secrets from literals, files and `.env` files, and the hash in their names.

#![allow(
    clippy::result_large_err,
    reason = "a finding ends the step that it is about, so its size is paid once"
)]

use std::collections::BTreeMap;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use super::{
    resource::{Id, Resource},
    settings::{Behavior, Generator, GeneratorOptions, LocatedText},
    source_files::SourceFiles,
};
use driftless_model::{Finding, Location};
use driftless_yaml::{
    Node, Place, edit::get_mut, edit::json, edit::mapping, edit::plain, edit::set, edit::set_missing,
    edit::text,
};

/// The kind of the generated object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum GeneratedKind {
    ConfigMap,
    Secret,
}

/// The default type of a Secret.
const OPAQUE: &str = "Opaque";

/// Characters in a line of base64. The line breaks are a part of the hashed text.
const LINE: usize = 70;

/// Generates one object, and adds or merges it.
pub(super) fn generate(
    sources: &mut SourceFiles<'_>,
    folder: &str,
    made: GeneratedKind,
    generator: &Generator,
    resources: &mut Vec<Resource>,
) {
    let Some(entries) = entries(sources, folder, generator) else { return };
    // The object that it changes may be one that could not be read.
    if sources.report.has_errors() {
        return;
    }
    let mut resource = Resource::new(object(made, generator, entries));
    resource.is_hashed = !generator.options.without_hash;
    if let Err(finding) = absorb(resource, generator, resources) {
        sources.report.say(finding);
    }
}

/// Adds the object, or changes the existing one, as `behavior` says.
fn absorb(
    mut resource: Resource,
    generator: &Generator,
    resources: &mut Vec<Resource>,
) -> Result<(), Finding> {
    let id = resource.id();
    let mut same = resources.iter_mut().filter(|it| it.was(&id));
    let (found, more) = (same.next(), same.next());
    match (generator.behavior, found, more) {
        (_, Some(one), Some(other)) => {
            let (one, other) = (one.place().location(), other.place().location());
            let message = format!("{} may be the one at {one} or the one at {other}", id.words());
            Err(generator.name.error(message).help("do this in a kustomization that has only one of them"))
        }
        (Behavior::Create, None, _) => {
            resources.push(resource);
            Ok(())
        }
        (Behavior::Create, Some(old), None) => {
            let message = format!("{} is already there, from {}", id.words(), old.place().location());
            Err(generator.name.error(message).help("set `behavior` to `merge` or `replace`, or rename it"))
        }
        (Behavior::Merge | Behavior::Replace, None, _) => {
            let message = format!("there is no {} to change", id.words().trim_start_matches("the "));
            Err(generator.name.error(message).help("remove `behavior`, or name one of a base"))
        }
        (behavior, Some(old), None) => {
            resource.take_over(old);
            // An object that was not generated keeps its name.
            resource.is_hashed &= old.is_hashed;
            if behavior == Behavior::Merge {
                for key in ["data", "binaryData"] {
                    keep_data(&mut resource.node, &old.node, key);
                }
            }
            *old = resource;
            Ok(())
        }
    }
}

/// Keeps old entries that the new object does not have.
fn keep_data(node: &mut Node, old: &Node, key: &str) {
    let Some(before) = old.get(key).filter(|it| !it.entries().is_empty()) else { return };
    set_missing(node, key, |_| mapping(&before.place, []));
    let Some(data) = get_mut(node, key) else { return };
    for entry in before.entries() {
        if data.get(&entry.key).is_none() {
            set(data, &entry.key, entry.value.clone());
        }
    }
}

/// One entry, with its place.
struct Datum {
    bytes: Vec<u8>,
    place: Place,
}

fn entries(
    sources: &mut SourceFiles<'_>,
    folder: &str,
    generator: &Generator,
) -> Option<BTreeMap<String, Datum>> {
    let mut found = BTreeMap::new();
    let mut is_whole = true;
    let mut add = |located: &LocatedText, key: &str, datum: Datum| {
        let before = found.insert(key.to_owned(), datum);
        before.map(|_| located.error(format!("the key `{key}` already exists")))
    };
    for located in &generator.envs {
        let Some((path, bytes)) = sources.file(located, folder) else {
            is_whole = false;
            continue;
        };
        let variables = match variables(&bytes) {
            Ok(variables) => variables,
            Err(BadLine { line, message, help }) => {
                let finding = Finding::error(Location::new(path, line, 1), &*located.path, message);
                sources.report.say(finding.help(help));
                is_whole = false;
                continue;
            }
        };
        for Variable { line, key, value } in variables {
            let place = Place { file: path.as_str().into(), line, column: 1 };
            if let Some(finding) = add(located, &key, Datum { bytes: value.into_bytes(), place }) {
                sources.report.say(finding);
                is_whole = false;
            }
        }
    }
    for located in &generator.literals {
        // The text may be a secret, so it is not quoted.
        let Some((key, value)) = located.text.split_once('=').filter(|(key, _)| !key.is_empty()) else {
            sources.report.say(located.error("must be `key=value`"));
            is_whole = false;
            continue;
        };
        let datum = Datum { bytes: without_quotes(value).as_bytes().to_vec(), place: located.place.clone() };
        if let Some(finding) = add(located, key, datum) {
            sources.report.say(finding);
            is_whole = false;
        }
    }
    for located in &generator.files {
        let source = match located.text.split_once('=') {
            None => Some((located.text.rsplit('/').next().unwrap_or_default(), located.text.as_str())),
            Some((key, path)) if !key.is_empty() && !path.is_empty() && !path.contains('=') => {
                Some((key, path))
            }
            Some(_) => None,
        };
        let Some((key, path)) = source else {
            sources.report.say(located.error("must be `path` or `key=path`"));
            is_whole = false;
            continue;
        };
        let file = LocatedText { text: path.to_owned(), ..located.clone() };
        let Some((path, bytes)) = sources.file(&file, folder) else {
            is_whole = false;
            continue;
        };
        let place = Place { file: path.as_str().into(), line: 1, column: 1 };
        if let Some(finding) = add(located, key, Datum { bytes: bytes.to_vec(), place }) {
            sources.report.say(finding);
            is_whole = false;
        }
    }
    is_whole.then_some(found)
}

/// A variable of a file.
#[derive(Debug, PartialEq, Eq)]
struct Variable {
    line: u32,
    key: String,
    value: String,
}

/// A line of a file that is no variable. Its text may be a part of a secret, so it is not quoted.
#[derive(Debug, PartialEq, Eq)]
struct BadLine {
    line: u32,
    message: &'static str,
    help: &'static str,
}

/// The variables of a file. A line without `=` has an empty value.
fn variables(bytes: &[u8]) -> Result<Vec<Variable>, BadLine> {
    const OF_SEVERAL_LINES: &str =
        "put a value of several lines into a file of its own, and name it in `files`";
    let bytes = bytes.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(bytes);
    let mut lines: Vec<(u32, &str)> = Vec::new();
    for (number, line) in (1..).zip(bytes.split(|it| *it == b'\n')) {
        let line = std::str::from_utf8(line.strip_suffix(b"\r").unwrap_or(line)).map_err(|_| BadLine {
            line: number,
            message: "the line is not UTF-8 text",
            help: "save the file as UTF-8",
        })?;
        lines.push((number, line.trim_start()));
    }
    let mut found = Vec::new();
    for (index, (line, text)) in lines.iter().enumerate() {
        if text.is_empty() || text.starts_with('#') {
            continue;
        }
        let bad_line = |message| BadLine { line: *line, message, help: OF_SEVERAL_LINES };
        let (key, value) = match text.split_once('=') {
            Some(pair) => pair,
            None if is_name(text) => (*text, ""),
            None => return Err(bad_line("the line is not `NAME=value`")),
        };
        let mut below = lines.iter().skip(index + 1);
        if opened_quote(value).is_some_and(|quote| below.any(|(_, text)| text.contains(quote))) {
            return Err(bad_line(
                "the quoted value goes on in the next line, and each line is a variable of its own",
            ));
        }
        found.push(Variable { line: *line, key: key.to_owned(), value: value.to_owned() });
    }
    Ok(found)
}

/// Whether kustomize takes a text for the name of a variable.
fn is_name(text: &str) -> bool {
    let is_inner = |it: char| it.is_ascii_alphanumeric() || "-._".contains(it);
    text.chars().all(is_inner) && !text.starts_with(|it: char| it.is_ascii_digit())
}

/// The quote with which a value begins, if it does not end on its line.
fn opened_quote(value: &str) -> Option<char> {
    let value = value.trim_start();
    ['"', '\'']
        .into_iter()
        .find(|quote| value.strip_prefix(*quote).is_some_and(|rest| !rest.contains(*quote)))
}

fn without_quotes(text: &str) -> &str {
    let inner = |quote: char| text.strip_prefix(quote)?.strip_suffix(quote);
    inner('"').or_else(|| inner('\'')).unwrap_or(text)
}

fn object(made: GeneratedKind, generator: &Generator, entries: BTreeMap<String, Datum>) -> Node {
    let Generator { name, namespace, kind, options, .. } = generator;
    let place = &name.place;
    let mut metadata = mapping(place, [("name", text(place, name.text.clone()))]);
    if let Some(namespace) = namespace {
        set(&mut metadata, "namespace", text(&namespace.place, namespace.text.clone()));
    }
    let GeneratorOptions { labels, annotations, immutable, .. } = options;
    for (key, pairs) in [("labels", labels), ("annotations", annotations)] {
        if let Some((_, first)) = pairs.first() {
            let mut map = mapping(&first.place, []);
            for (key, located) in pairs {
                set(&mut map, key, text(&located.place, located.text.clone()));
            }
            set(&mut metadata, key, map);
        }
    }
    let word = match made {
        GeneratedKind::ConfigMap => "ConfigMap",
        GeneratedKind::Secret => "Secret",
    };
    let mut node = mapping(
        place,
        [("apiVersion", text(place, "v1")), ("kind", text(place, word)), ("metadata", metadata)],
    );
    if made == GeneratedKind::Secret {
        let (place, word) = kind.as_ref().map_or((place, OPAQUE), |it| (&it.place, it.text.as_str()));
        set(&mut node, "type", text(place, word));
        set(&mut node, "data", mapping(&name.place, []));
    }
    for (key, Datum { bytes, place }) in entries {
        let (field, value) = match (made, String::from_utf8(bytes)) {
            (GeneratedKind::ConfigMap, Ok(value)) => ("data", value),
            (GeneratedKind::ConfigMap, Err(error)) => ("binaryData", encoded(error.as_bytes())),
            (GeneratedKind::Secret, Ok(value)) => ("data", encoded(value.as_bytes())),
            (GeneratedKind::Secret, Err(error)) => ("data", encoded(error.as_bytes())),
        };
        set_missing(&mut node, field, |_| mapping(&name.place, []));
        if let Some(data) = get_mut(&mut node, field) {
            set(data, &key, text(&place, value));
        }
    }
    if *immutable {
        set(&mut node, "immutable", plain(place, "true"));
    }
    node
}

/// Base64, broken into lines if it is longer than one.
fn encoded(bytes: &[u8]) -> String {
    let whole = STANDARD.encode(bytes);
    if whole.len() < LINE {
        return whole;
    }
    let letters: Vec<char> = whole.chars().collect();
    letters.chunks(LINE).flat_map(|it| it.iter().copied().chain(['\n'])).collect()
}

/// Appends the hash of its content to the name of each generated object.
pub(super) fn add_hashes(resources: &mut [Resource]) {
    for resource in resources.iter_mut().filter(|it| it.is_hashed) {
        let name = format!("{}-{}", resource.name(), hash(&resource.node));
        resource.remember_id();
        resource.set_name(name);
    }
}

/// The first ten digits of the SHA-256 of its canonical JSON, with digits replaced that could form words.
fn hash(node: &Node) -> String {
    let kind = Id::of(node).gvk.kind;
    let of = |key: &str| node.get(key).filter(|it| !it.is_null()).map_or_else(|| Value::from(""), json);
    let mut object = Map::new();
    object.insert("data".to_owned(), of("data"));
    object.insert("kind".to_owned(), Value::from(kind.as_str()));
    // The hash includes the key `name`, but not the name itself.
    object.insert("name".to_owned(), Value::from(""));
    let (more, is_secret) = if kind == "Secret" { ("stringData", true) } else { ("binaryData", false) };
    if is_secret {
        object.insert("type".to_owned(), of("type"));
    }
    if let more_data @ Value::Object(_) = of(more) {
        object.insert(more.to_owned(), more_data);
    }
    let sorted: BTreeMap<String, Value> = object.into_iter().collect();
    let mut text = serde_json::to_string(&sorted).unwrap_or_default();
    // Escapes of Go's JSON encoder.
    for (letter, escape) in [
        ('<', "\\u003c"),
        ('>', "\\u003e"),
        ('&', "\\u0026"),
        ('\u{2028}', "\\u2028"),
        ('\u{2029}', "\\u2029"),
    ] {
        text = text.replace(letter, escape);
    }
    let digest = Sha256::digest(text.as_bytes());
    let hex = digest.iter().take(5).flat_map(|it| [it >> 4, it & 15]);
    let hex = hex.filter_map(|it| char::from_digit(u32::from(it), 16));
    let letter = |it: char| match it {
        '0' => 'g',
        '1' => 'h',
        '3' => 'k',
        'a' => 'm',
        'e' => 't',
        other => other,
    };
    hex.map(letter).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use driftless_yaml::{Limits, parse};

    /// The expected hashes are output of `kubectl kustomize`.
    #[test]
    fn hashes_are_those_of_kustomize() {
        let cases = [
            ("{kind: ConfigMap, data: {A: '<b>&\"c\"', B: q}}", "8mgbf26b5b"),
            ("{kind: Secret, type: Opaque, data: {}}", "46f8b28mk5"),
        ];
        for (text, expected) in cases {
            let node = parse("a.yaml", text.as_bytes(), &Limits::default()).unwrap().remove(0);
            assert_eq!(hash(&node), expected, "{text}");
        }
    }

    #[test]
    fn long_base64_is_wrapped_into_lines() {
        assert_eq!(encoded(b"a"), "YQ==");
        assert_eq!(encoded(&[0; 51]).len(), 68);
        let long = encoded(&[0; 52]);
        assert_eq!((long.len(), long.matches('\n').count()), (74, 2));
    }

    #[test]
    fn variables_are_lines_with_an_equals_sign() {
        let found = variables(b"\xEF\xBB\xBFA=1\r\n# no\n\n  B = 2 \nC\nD='x'\n").unwrap();
        let found: Vec<_> = found.iter().map(|it| (it.line, it.key.as_str(), it.value.as_str())).collect();
        assert_eq!(found, [(1, "A", "1"), (4, "B ", " 2 "), (5, "C", ""), (6, "D", "'x'")]);
    }
    #[test]
    fn value_of_several_lines_is_refused_at_its_line() {
        let line_of = |text: &str| variables(text.as_bytes()).map_err(|bad| bad.line);
        assert_eq!(line_of("A=1\nKEY=\"BEGIN\nabc\nEND\"\n"), Err(2));
        assert_eq!(line_of("KEY='a\nB=2\nc'\n"), Err(1));
        assert_eq!(line_of("A=1\nQUJD+/==\nB=2\nKEY=abc\n4bc\n"), Err(5));
        // A quote that nothing closes belongs to the value.
        assert_eq!(line_of("INCHES=\"5\nA='x'\nBARE\n").map(|it| it.len()), Ok(3));
    }
}
