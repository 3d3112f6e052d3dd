//! `$(NAME)` in commands, arguments and variables, exactly as the kubelet expands it.
//!
//! Undefined names stay as they are, and `$$` is a dollar sign, so that `$$(NAME)` is not expanded.

use std::{cell::Cell, collections::BTreeMap};

use super::reader::Value;

/// The bytes by which all texts of an application may grow by expansion. Without a limit, forty lines of which each uses
/// the previous one twice become terabytes.
const MOST: usize = 32 << 20;

/// The growth that is left.
pub(super) struct Room(Cell<usize>);

impl Default for Room {
    fn default() -> Self {
        Self(Cell::new(MOST))
    }
}

impl Room {
    fn take(&self, length: usize) -> Option<()> {
        self.0.set(self.0.get().checked_sub(length)?);
        Some(())
    }

    /// Expands the text of a value. A text that exceeds the limit is reported and stays as it is.
    pub(super) fn expand(&self, value: &Value<'_>, text: &str, known: &BTreeMap<String, String>) -> String {
        expand(text, known, self).unwrap_or_else(|| {
            value.error_help(
                format!(
                    "the texts of this application grow by more than {} MiB when their variables are put in",
                    MOST >> 20
                ),
                "let the program read a file instead",
            );
            text.to_owned()
        })
    }
}

/// Expands a text with the variables known so far; `None` if it exceeds the limit.
fn expand(text: &str, known: &BTreeMap<String, String>, room: &Room) -> Option<String> {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    let mut is_closed = true;
    while let Some(at) = rest.find('$') {
        let (before, after) = rest.split_at(at);
        out.push_str(before);
        let after = after.strip_prefix('$').unwrap_or(after);
        if let Some(escaped) = after.strip_prefix('$') {
            out.push('$');
            rest = escaped;
            continue;
        }
        let reference = after.strip_prefix('(').filter(|_| is_closed).map(|it| it.split_once(')'));
        // Searched once, not again for each of a million unclosed references.
        is_closed = is_closed && reference != Some(None);
        if let Some((name, behind)) = reference.flatten() {
            match known.get(name) {
                Some(value) => {
                    room.take(value.len())?;
                    out.push_str(value);
                }
                None => {
                    out.extend(["$(", name, ")"]);
                }
            }
            rest = behind;
        } else {
            out.push('$');
            rest = after;
        }
    }
    out.push_str(rest);
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_are_expanded_as_the_kubelet_does() {
        let known = BTreeMap::from([("A".to_owned(), "1".to_owned()), ("E".to_owned(), String::new())]);
        let cases = [
            ("$(A)", "1"),
            ("x$(A)y$(A)", "x1y1"),
            ("$$(A)", "$(A)"),
            ("$$$(A)", "$1"),
            ("$$$$(A)", "$$(A)"),
            ("$(B)", "$(B)"),
            ("$(E)", ""),
            ("$A", "$A"),
            ("${A}", "${A}"),
            ("$(A", "$(A"),
            ("$", "$"),
            ("a$", "a$"),
            ("$(A)$(", "1$("),
            ("$()", "$()"),
            ("", ""),
            ("é$(A)", "é1"),
        ];
        for (text, expected) in cases {
            assert_eq!(expand(text, &known, &Room::default()).as_deref(), Some(expected), "{text}");
        }
        let room = Room(Cell::new(2));
        assert_eq!(expand("a longer text$(A)$(A)", &known, &room).as_deref(), Some("a longer text11"));
        assert_eq!(expand("$(A)", &known, &room), None);
    }
}
