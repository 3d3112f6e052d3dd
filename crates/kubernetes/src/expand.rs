//! `$(NAME)` in commands, arguments and variables, exactly as the kubelet expands it.
//!
//! Undefined names stay as they are, and `$$` is a dollar sign, so that `$$(NAME)` is not expanded.

use std::collections::BTreeMap;

use driftless_files::{Budget, Exceeded};

use super::reader::Value;

/// The bytes that the texts of all pods of an application may have together: templates, variables and expanded references.
/// Without a limit, forty lines of which each uses the previous one twice become terabytes, and so does a ConfigMap that
/// many pods take their variables from.
const MOST: usize = 32 << 20;

/// The bytes that are left for the texts of pods.
pub(super) struct Room(Budget);

impl Default for Room {
    fn default() -> Self {
        Self(Budget::new(MOST))
    }
}

impl Room {
    /// Takes bytes for copies of texts. False: too few are left, which is reported once.
    pub(super) fn take(&self, bytes: usize, report: impl FnOnce(String, &'static str)) -> bool {
        let taken = self.0.take(bytes);
        if taken == Err(Exceeded { is_first: true }) {
            let (size, most) = (bytes.div_ceil(1024), self.0.mebibytes());
            report(
                format!("with these {size} KiB, the texts of the pods of this application exceed {most} MiB"),
                "mount large values as files, or give each container only the variables that it needs",
            );
        }
        taken.is_ok()
    }

    /// Expands the text of a value. A text that exceeds the limit becomes empty.
    pub(super) fn expand(&self, value: &Value<'_>, text: &str, known: &BTreeMap<String, String>) -> String {
        let size = expanded(text, known).map(str::len).sum();
        let has_room = self.take(size, |message, help| value.error_help(message, help));
        expanded(text, known).filter(|_| has_room).collect()
    }
}

/// The parts of a text, with the variables known so far in the place of their references.
fn expanded<'t>(text: &'t str, known: &'t BTreeMap<String, String>) -> impl Iterator<Item = &'t str> {
    let mut rest = text;
    let mut is_closed = true;
    std::iter::from_fn(move || {
        let at = rest.find('$').unwrap_or(rest.len());
        if at > 0 {
            let (before, after) = rest.split_at(at);
            rest = after;
            return Some(before);
        }
        let after = rest.strip_prefix('$')?;
        if let Some(escaped) = after.strip_prefix('$') {
            rest = escaped;
            return Some("$");
        }
        let reference = after.strip_prefix('(').filter(|_| is_closed).map(|it| it.split_once(')'));
        // Searched once, not again for each of a million unclosed references.
        is_closed = is_closed && reference != Some(None);
        let Some((name, behind)) = reference.flatten() else {
            rest = after;
            return Some("$");
        };
        let whole = rest.get(..rest.len() - behind.len()).unwrap_or_default();
        rest = behind;
        Some(known.get(name).map_or(whole, String::as_str))
    })
}

/// Whether a text has a reference to a variable that is expanded.
pub(super) fn refers_to(text: &str, name: &str) -> bool {
    let known = BTreeMap::from([(name.to_owned(), String::new())]);
    let unknown = BTreeMap::new();
    expanded(text, &known).ne(expanded(text, &unknown))
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
            assert_eq!(expanded(text, &known).collect::<String>(), expected, "{text}");
        }
        assert!(refers_to("x $(A)", "A") && refers_to("$$$(A)", "A"));
        assert!(!refers_to("$$(A)", "A") && !refers_to("$(AB)", "A") && !refers_to("$A", "A"));
    }
}
