//! Standard output, and values as JSON and YAML.

use std::io::{self, Write as _};

use serde::Serialize;

/// Prints to standard output. The caller handles errors: a closed output ends the program.
pub(super) fn print(text: &str) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(text.as_bytes())?;
    stdout.flush()
}

/// A value as indented JSON.
pub(super) fn json<T: Serialize>(value: &T) -> String {
    let text = serde_json::to_string_pretty(value).expect("what was read as JSON can be written as JSON");
    format!("{text}\n")
}

/// A value as YAML.
pub(super) fn yaml<T: Serialize>(value: &T) -> String {
    serde_yaml::to_string(value).expect("what was read as JSON can be written as YAML")
}
