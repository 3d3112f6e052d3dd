//! Dotenv files: one `KEY=value` a line; metadata as `sops_…` keys.

use super::{Error, Keys, cipher::ENCRYPTED, leaf::Leaf, metadata::Metadata, values::open_values};

const PREFIX: &str = "sops_";

/// Whether a text has SOPS' metadata in the form of dotenv, or a part of it: a file without a MAC is refused when it is
/// read, and not taken for a plain one. A script may have a variable `sops_version`, but no encrypted value.
pub(super) fn is_encrypted(text: &str) -> bool {
    let has =
        |key: &str| text.lines().any(|line| line.strip_prefix(key).is_some_and(|rest| rest.starts_with('=')));
    has("sops_mac") || has("sops_lastmodified") || (has("sops_version") && ENCRYPTED.is_match(text))
}

/// The decrypted text. Lines keep their numbers; encrypted comments become empty ones.
pub(super) fn decrypt(text: &str, keys: &Keys) -> Result<String, Error> {
    let mut metadata = Vec::new();
    let mut leaves = Vec::new();
    let values: Vec<String> =
        text.lines().map(|line| unescape(pair(line).map_or("", |(_, value)| value))).collect();
    for (line, value) in text.lines().zip(&values) {
        let Some((key, _)) = pair(line) else {
            if !line.is_empty() && !line.starts_with('#') {
                return Err(Error::Malformed("a line has no `=`".to_owned()));
            }
            continue;
        };
        match key.strip_prefix(PREFIX) {
            Some(name) => metadata.push((name, value.clone())),
            None => leaves.push(Leaf::text(vec![key], value)),
        }
    }
    let metadata = Metadata::read_flat(metadata)?;
    let mut plain = open_values(&leaves, &metadata, keys)?.into_iter();
    let mut out = String::new();
    for line in text.lines() {
        match pair(line) {
            Some((key, _)) if key.starts_with(PREFIX) => continue,
            Some((key, value)) => {
                let plain = plain.next().flatten();
                let value = match &plain {
                    Some(plain) => plain.text()?.replace('\n', "\\n"),
                    None => value.to_owned(),
                };
                out.extend([key, "=", &value]);
            }
            None if ENCRYPTED.is_match(line) => out.push('#'),
            None => out += line,
        }
        out.push('\n');
    }
    Ok(out)
}

fn pair(line: &str) -> Option<(&str, &str)> {
    if line.starts_with('#') { None } else { line.split_once('=') }
}

/// SOPS writes a line break as `\n`.
fn unescape(value: &str) -> String {
    value.replace("\\n", "\n")
}
