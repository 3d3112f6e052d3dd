//! The rules for names and labels, as Kubernetes checks them.
//!
//! Each check states its rule in words.

use std::collections::BTreeMap;

use super::reader::Value;

const LABEL_RULE: &str =
    "use at most 63 lower-case letters, digits and `-`, beginning and ending with a letter or digit";
const SUBDOMAIN_RULE: &str =
    "use at most 253 lower-case letters, digits, `-` and `.`, beginning and ending with a letter or digit";
const SERVICE_RULE: &str = "use at most 63 lower-case letters, digits and `-`, beginning with a letter, ending with a letter or digit";
const PORT_RULE: &str =
    "use at most 15 lower-case letters, digits and `-`, at least one letter, no `-` at the ends or doubled";
const KEY_RULE: &str = "use at most 63 letters, digits, `-`, `_` and `.`, beginning and ending with a letter \
                        or digit; a domain and `/` may stand before";
const VALUE_RULE: &str =
    "use at most 63 letters, digits, `-`, `_` and `.`, beginning and ending with a letter or digit";

/// An RFC 1123 label: the name of a container or namespace.
pub(super) fn label<'a>(value: &Value<'a>) -> Option<&'a str> {
    check(value, is_label, LABEL_RULE)
}

/// An RFC 1123 subdomain: the name of a Deployment.
pub(super) fn subdomain<'a>(value: &Value<'a>) -> Option<&'a str> {
    check(value, is_subdomain, SUBDOMAIN_RULE)
}

/// An RFC 1035 label: the name of a Service, which is a DNS name.
pub(super) fn service<'a>(value: &Value<'a>) -> Option<&'a str> {
    check(value, |it| is_label(it) && it.starts_with(|first: char| first.is_ascii_lowercase()), SERVICE_RULE)
}

/// An IANA service name: the name of a port.
pub(super) fn port<'a>(value: &Value<'a>) -> Option<&'a str> {
    check(value, is_port, PORT_RULE)
}

/// A variable's name: anything printable without `=`.
pub(super) fn variable<'a>(value: &Value<'a>) -> Option<&'a str> {
    check(value, is_variable, "use printable ASCII characters without `=`")
}

pub(super) fn is_variable(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| (0x20..0x7f).contains(&byte) && byte != b'=')
}

pub(super) const DATA_KEY_RULE: &str =
    "use at most 253 letters, digits, `-`, `_` and `.`, and no `..` at the beginning";

/// Whether a text can be the key of an entry of a ConfigMap or Secret, which may become the name of a file.
pub(super) fn is_data_key(key: &str) -> bool {
    let is_inner = |it: u8| it.is_ascii_alphanumeric() || matches!(it, b'-' | b'_' | b'.');
    let is_valid = !key.is_empty() && key.len() <= 253 && key.bytes().all(is_inner);
    is_valid && key != "." && !key.starts_with("..")
}

/// Labels, each key and value checked.
pub(super) fn labels(value: &Value<'_>) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    for (key, value) in value.pairs() {
        if !is_key(key) {
            value.error_help(format!("`{key}` is not a valid label key"), KEY_RULE);
        }
        let Some(text) = value.string() else { continue };
        if !text.is_empty() && !is_word(text) {
            value.error_help(format!("`{text}` is not a valid label value"), VALUE_RULE);
        }
        found.insert(key.to_owned(), text.to_owned());
    }
    found
}

/// Annotations: keys follow the rules of labels, values are any text.
pub(super) fn annotations(value: &Value<'_>) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    for (key, value) in value.pairs() {
        if !is_key(key) {
            value.error_help(format!("`{key}` is not a valid annotation key"), KEY_RULE);
        }
        if let Some(text) = value.string() {
            found.insert(key.to_owned(), text.to_owned());
        }
    }
    found
}

fn check<'a>(value: &Value<'a>, is_valid: fn(&str) -> bool, rule: &str) -> Option<&'a str> {
    let text = value.text()?;
    if is_valid(text) {
        return Some(text);
    }
    value.error_help(format!("`{text}` is not a valid name"), rule);
    None
}

fn is_label(text: &str) -> bool {
    let inner = |it: u8| it.is_ascii_lowercase() || it.is_ascii_digit() || it == b'-';
    text.len() <= 63 && text.bytes().all(inner) && has_firm_ends(text)
}

fn is_subdomain(text: &str) -> bool {
    let inner = |it: u8| it.is_ascii_lowercase() || it.is_ascii_digit() || it == b'-';
    text.len() <= 253 && text.split('.').all(|part| part.bytes().all(inner) && has_firm_ends(part))
}

fn is_port(text: &str) -> bool {
    text.len() <= 15
        && is_label(text)
        && !text.contains("--")
        && text.bytes().any(|it| it.is_ascii_lowercase())
}

fn is_key(text: &str) -> bool {
    match text.split_once('/') {
        Some((prefix, name)) => is_subdomain(prefix) && is_word(name),
        None => is_word(text),
    }
}

fn is_word(text: &str) -> bool {
    let inner = |it: u8| it.is_ascii_alphanumeric() || matches!(it, b'-' | b'_' | b'.');
    text.len() <= 63 && text.bytes().all(inner) && has_firm_ends(text)
}

fn has_firm_ends(text: &str) -> bool {
    text.starts_with(|it: char| it.is_ascii_alphanumeric())
        && text.ends_with(|it: char| it.is_ascii_alphanumeric())
}
