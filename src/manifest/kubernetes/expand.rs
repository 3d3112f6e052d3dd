//! `$(NAME)` in commands, arguments and variables, exactly as the kubelet expands it.
//!
//! Names that nobody defines stay as they are, and `$$` is a dollar sign, so that `$$(NAME)` is not expanded.

use std::collections::BTreeMap;

/// Expands a text with the variables known so far.
pub(super) fn expand(text: &str, known: &BTreeMap<String, String>) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        let (before, after) = rest.split_at(at);
        out.push_str(before);
        let after = after.strip_prefix('$').unwrap_or(after);
        if let Some(escaped) = after.strip_prefix('$') {
            out.push('$');
            rest = escaped;
            continue;
        }
        let reference = after.strip_prefix('(').and_then(|it| it.split_once(')'));
        if let Some((name, behind)) = reference {
            let value = known.get(name).cloned();
            out.push_str(&value.unwrap_or_else(|| format!("$({name})")));
            rest = behind;
        } else {
            out.push('$');
            rest = after;
        }
    }
    out.push_str(rest);
    out
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
            assert_eq!(expand(text, &known), expected, "{text}");
        }
    }
}
