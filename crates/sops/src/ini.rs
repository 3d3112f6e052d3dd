//! INI files: sections with `key = value`; metadata in the section `[sops]`.

use super::{
    Error, Keys,
    cipher::{self, ENCRYPTED},
    leaf::Leaf,
    metadata::Metadata,
    values::open_values,
};

/// The section of keys before the first section.
const DEFAULT: &str = "DEFAULT";

/// One entry of an INI file.
enum Entry<'a> {
    Section(&'a str),
    /// The key, the text between key and value, and the value without its quotes.
    Pair(&'a str, &'a str, &'a str),
    /// A comment or an empty line.
    Other,
}

/// The quotes of a value that may have several lines.
const QUOTES: &str = "\"\"\"";

/// Whether a text has SOPS' metadata in the form of INI, or a part of it: a file without a MAC is refused when it is read,
/// and not taken for a plain one.
pub(super) fn is_encrypted(text: &str) -> bool {
    let after = text.lines().skip_while(|line| line.trim() != "[sops]").skip(1);
    let section = after.take_while(|line| !line.trim_start().starts_with('['));
    let keys: Vec<&str> =
        section.filter_map(|line| line.split_once('=')).map(|(key, _)| key.trim()).collect();
    let has_version = keys.contains(&"version") && ENCRYPTED.is_match(text);
    keys.contains(&"mac") || keys.contains(&"lastmodified") || has_version
}

/// Whether a text is of the form of INI, or of dotenv, which is INI without sections, and has an encrypted value.
pub(super) fn has_encrypted_value(text: &str) -> bool {
    let is_encrypted = |entry: &Entry<'_>| match entry {
        Entry::Pair(_, _, value) => cipher::is_encrypted(value.trim_matches(['"', '\''])),
        Entry::Section(_) | Entry::Other => false,
    };
    read(text).is_ok_and(|entries| entries.iter().any(|(_, entry)| is_encrypted(entry)))
}

/// The decrypted text. Encrypted comments become empty ones.
pub(super) fn decrypt(text: &str, keys: &Keys) -> Result<String, Error> {
    let entries = read(text)?;
    let mut section = DEFAULT;
    let mut metadata = Vec::new();
    let mut leaves = Vec::new();
    for (_, entry) in &entries {
        match *entry {
            Entry::Section(name) => section = name,
            Entry::Pair(key, _, value) if section == super::metadata::KEY => {
                metadata.push((key, value.replace("\\n", "\n")));
            }
            Entry::Pair(key, _, value) => leaves.push(Leaf::text(vec![section, key], value)),
            Entry::Other => {}
        }
    }
    let metadata = Metadata::read_flat(metadata)?;
    let mut plain = open_values(&leaves, &metadata, keys)?.into_iter();
    let mut out = String::new();
    let mut section = DEFAULT;
    for (raw, entry) in &entries {
        if let Entry::Section(name) = entry {
            section = name;
        }
        match *entry {
            _ if section == super::metadata::KEY => continue,
            Entry::Pair(key, between, _) => match plain.next().flatten() {
                Some(plain) => out.extend([key, between, &quoted(plain.text()?)]),
                None => out += raw,
            },
            Entry::Section(_) | Entry::Other if ENCRYPTED.is_match(raw) => out.push(';'),
            Entry::Section(_) | Entry::Other => out += raw,
        }
        out.push('\n');
    }
    Ok(out)
}

/// The entries of a text, each with its lines.
fn read(text: &str) -> Result<Vec<(&str, Entry<'_>)>, Error> {
    let mut entries = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        let end = end_of_entry(rest)?;
        let (raw, after) = rest.split_at(end);
        rest = after;
        let raw = raw.strip_suffix('\n').unwrap_or(raw);
        let raw = raw.strip_suffix('\r').unwrap_or(raw);
        entries.push((raw, entry(raw)?));
    }
    Ok(entries)
}

/// The length of the first entry: one line, or more where its value is in three quotes.
fn end_of_entry(text: &str) -> Result<usize, Error> {
    let line = text.find('\n').map_or(text.len(), |at| at + 1);
    let value = text[..line].split_once('=').map(|(_, value)| value.trim_start());
    let Some(value) = value.and_then(|value| value.strip_prefix(QUOTES)) else { return Ok(line) };
    if value.contains(QUOTES) || text.trim_start().starts_with([';', '#', '[']) {
        return Ok(line);
    }
    let close = text[line..].find(QUOTES).map(|at| line + at + QUOTES.len());
    let close = close.ok_or_else(|| Error::Malformed("a quoted value has no end".to_owned()))?;
    Ok(text[close..].find('\n').map_or(text.len(), |at| close + at + 1))
}

fn entry(raw: &str) -> Result<Entry<'_>, Error> {
    let trimmed = raw.trim();
    if trimmed.is_empty() || trimmed.starts_with([';', '#']) {
        return Ok(Entry::Other);
    }
    if let Some(name) = trimmed.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        return Ok(Entry::Section(name));
    }
    let Some((key, rest)) = trimmed.split_once('=') else {
        return Err(Error::Malformed("a line has no `=`".to_owned()));
    };
    let value = rest.trim_start();
    let name = key.trim_end();
    let between = &trimmed[name.len()..trimmed.len() - value.len()];
    let within = |quotes: &str| value.strip_prefix(quotes).and_then(|value| value.strip_suffix(quotes));
    Ok(Entry::Pair(name, between, within(QUOTES).or_else(|| within("`")).unwrap_or(value)))
}

/// A value as SOPS' INI library quotes it: in backquotes where it has a comment sign or outer blanks, in three double
/// quotes where it has several lines.
fn quoted(value: &str) -> String {
    if value.contains(['\n', '`']) {
        format!("{QUOTES}{value}{QUOTES}")
    } else if value.contains(['#', ';']) || value.trim() != value {
        format!("`{value}`")
    } else {
        value.to_owned()
    }
}
