//! YAML and JSON: encrypted values are replaced where they are, so that lines keep their numbers.

use std::{ops::Range, sync::LazyLock};

use driftless_yaml::{Kind, Limits, Node, edit};
use regex::Regex;
use serde_json::Value;

use super::{
    Error, Keys,
    cipher::{self, ENCRYPTED, Plain, Type},
    leaf::Leaf,
    metadata::{KEY, Metadata},
    values::open_values,
};

/// Bytes of an encrypted file: base64 of 64 MiB, and the metadata.
const LARGEST: usize = 96 << 20;

/// The MAC in SOPS' metadata.
#[expect(clippy::unwrap_used, reason = "a constant expression")]
static MAC: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r#"\bmac"?\s*:\s*["']?ENC\[AES256_GCM,data:"#).unwrap());

/// Whether a text that cannot be parsed is an encrypted file all the same: it must not be taken for a plain one.
pub(super) fn has_mac(text: &str) -> bool {
    MAC.is_match(text)
}

/// The beginning of a line whose value is encrypted.
#[expect(clippy::unwrap_used, reason = "a constant expression")]
static VALUE_LINE: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r#"(?m)^[\s{-]*["']?[\w.-]+["']?\s*:\s*["']?ENC\[AES256_GCM,data:"#).unwrap()
});

/// Whether a line of a text that cannot be parsed has an encrypted value.
pub(super) fn has_value_line(text: &str) -> bool {
    VALUE_LINE.is_match(text)
}

/// The documents of a text. The limit is that of a file that is mounted, with its encoding: who has read the text has bounded it.
pub(super) fn parse(text: &str) -> Result<Vec<Node>, Error> {
    let limits = Limits { bytes: LARGEST, ..Limits::default() };
    driftless_yaml::parse("", text.as_bytes(), &limits).map_err(|finding| Error::Malformed(finding.message))
}

/// Whether a document has SOPS' metadata, or a part of it: a file without a MAC is refused when it is read, and not taken
/// for a plain one.
pub(super) fn is_encrypted(documents: &[Node]) -> bool {
    let has = |key: &str| {
        let mut metadata = documents.iter().filter_map(|document| child(document, KEY));
        metadata.any(|sops| child(sops, key).is_some())
    };
    has("mac") || has("lastmodified") || (has("version") && has_encrypted_value(documents))
}

/// Whether a value of the documents, without SOPS' metadata, is encrypted.
pub(super) fn has_encrypted_value(documents: &[Node]) -> bool {
    documents.iter().flat_map(Leaf::of_document).any(|leaf| cipher::is_encrypted(leaf.text.trim()))
}

/// Whether the only document has `data` and the metadata, as the form for binary files has.
pub(super) fn has_only_data(documents: &[Node]) -> bool {
    let [document] = documents else { return false };
    let Kind::Mapping(entries) = &document.kind else { return false };
    entries.len() == 2 && child(document, "data").is_some_and(|data| data.as_scalar().is_some())
}

/// The decrypted text, without the metadata.
pub(super) fn decrypt(text: &str, keys: &Keys) -> Result<String, Error> {
    let documents = parse(text)?;
    let metadata = metadata_of(&documents)?;
    let leaves: Vec<Leaf<'_>> = documents.iter().flat_map(Leaf::of_document).collect();
    let values = open_values(&leaves, &metadata, keys)?;
    let mut values = leaves.iter().zip(values).filter_map(|(leaf, plain)| Some((leaf.text, plain?)));

    let cuts: Vec<Range<usize>> =
        documents.iter().filter_map(|document| metadata_range(text, document)).collect();
    let mut edits = Vec::new();
    for found in ENCRYPTED.captures_iter(text) {
        let Some(whole) = found.get(0) else { continue };
        if cuts.iter().any(|cut| cut.contains(&whole.start())) {
            continue;
        }
        if &found[4] == "comment" {
            edits.push((whole.range(), String::new()));
            continue;
        }
        let Some((_, plain)) = values.next().filter(|(leaf, _)| *leaf == whole.as_str()) else {
            return Err(Error::Malformed("a value is not on one line".to_owned()));
        };
        let quotes = usize::from(is_quoted(text, whole.start(), whole.end()));
        edits.push((whole.start() - quotes..whole.end() + quotes, written(&plain)?));
    }
    if values.next().is_some() {
        return Err(Error::Malformed("a value is not on one line".to_owned()));
    }
    edits.extend(cuts.into_iter().map(|cut| {
        let is_last = text[cut.end..].trim().is_empty();
        let lines = if is_last { 0 } else { text[cut.clone()].matches('\n').count() };
        (cut, "\n".repeat(lines))
    }));
    edits.sort_by_key(|(range, _)| range.start);
    Ok(apply(text, &edits))
}

/// Replaces ranges of a text, which are in order and do not overlap.
fn apply(text: &str, edits: &[(Range<usize>, String)]) -> String {
    let mut out = String::with_capacity(text.len());
    let mut at = 0;
    for (range, new) in edits {
        out.push_str(&text[at..range.start]);
        out.push_str(new);
        at = range.end;
    }
    out.push_str(&text[at..]);
    out
}

/// The content of a binary file.
pub(super) fn decrypt_binary(text: &str, keys: &Keys) -> Result<Vec<u8>, Error> {
    let documents = parse(text)?;
    let metadata = metadata_of(&documents)?;
    let leaves: Vec<Leaf<'_>> = documents.iter().flat_map(Leaf::of_document).collect();
    let data = open_values(&leaves, &metadata, keys)?.into_iter().next().flatten();
    Ok(data.map(|plain| plain.bytes).unwrap_or_default())
}

fn metadata_of(documents: &[Node]) -> Result<Metadata, Error> {
    let found = documents.iter().find_map(|document| child(document, KEY));
    let found = found.ok_or_else(|| Error::Malformed("it has no metadata".to_owned()))?;
    let value: Value = edit::json(found);
    Metadata::read(&value)
}

fn child<'n>(node: &'n Node, key: &str) -> Option<&'n Node> {
    let Kind::Mapping(entries) = &node.kind else { return None };
    entries.iter().find(|entry| entry.key == key).map(|entry| &entry.value)
}

fn is_quoted(text: &str, start: usize, end: usize) -> bool {
    let before = text[..start].chars().next_back();
    let after = text[end..].chars().next();
    matches!(before, Some('"' | '\'')) && before == after
}

/// A value in the syntax that YAML and JSON share.
fn written(plain: &Plain) -> Result<String, Error> {
    match plain.kind {
        Type::Text => {
            serde_json::to_string(plain.text()?).map_err(|error| Error::Malformed(error.to_string()))
        }
        Type::Boolean => Ok(plain.text()?.to_ascii_lowercase()),
        Type::Bare => Ok(plain.text()?.to_owned()),
        Type::Comment => Err(Error::Malformed("a value is a comment".to_owned())),
    }
}

/// The bytes of the metadata in a document.
fn metadata_range(text: &str, document: &Node) -> Option<Range<usize>> {
    let Kind::Mapping(entries) = &document.kind else { return None };
    let index = entries.iter().position(|entry| entry.key == KEY)?;
    let start = offset(text, entries[index].key_place.line, entries[index].key_place.column)?;
    let is_block = text[..start].chars().next_back().is_none_or(|before| before == '\n');
    if is_block {
        let rest = text[start..].split_inclusive('\n');
        let is_of_block = |line: &&str| line.starts_with([' ', '\t', '\n', '\r']);
        let lines = 1 + rest.clone().skip(1).take_while(is_of_block).count();
        return Some(start..start + rest.take(lines).map(str::len).sum::<usize>());
    }
    // JSON: with the comma that belongs to it.
    let end = end_of_value(text, start)?;
    let before = text[..start].trim_end_matches('"').trim_end();
    if before.ends_with(',') {
        return Some(before.len() - 1..end);
    }
    let after = text[end..].trim_start();
    let comma = text.len() - after.len();
    let end = if after.starts_with(',') { comma + 1 } else { end };
    Some(start - usize::from(text[..start].ends_with('"'))..end)
}

/// The byte of a line and column, both from 1.
fn offset(text: &str, line: u32, column: u32) -> Option<usize> {
    let lines = text.split_inclusive('\n');
    let start: usize = lines.clone().take(line as usize - 1).map(str::len).sum();
    let inside: usize = text[start..].chars().take(column as usize - 1).map(char::len_utf8).sum();
    (start + inside <= text.len()).then_some(start + inside)
}

/// The end of the JSON map whose key starts at `start`.
fn end_of_value(text: &str, start: usize) -> Option<usize> {
    let (mut depth, mut is_text, mut is_escaped) = (0_usize, false, false);
    let open = start + text[start..].find('{')?;
    for (at, letter) in text[open..].char_indices() {
        match letter {
            _ if is_escaped => is_escaped = false,
            '\\' if is_text => is_escaped = true,
            '"' => is_text = !is_text,
            '{' if !is_text => depth += 1,
            '}' if !is_text => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return Some(open + at + 1);
        }
    }
    None
}
