//! Errors with their causes, in one line.

use std::error::Error;

/// An error with its causes: `could not read a pin from the database: disk I/O error`. A cause that an earlier text
/// already contains is left out.
pub fn error_chain(error: &dyn Error) -> String {
    let below = error.source().into_iter().flat_map(causes).map(ToString::to_string);
    join_causes(std::iter::once(error.to_string()).chain(below))
}

/// The causes of an error without its own text, in one line. `None` if the error has no cause.
pub fn chain_of_causes(error: &dyn Error) -> Option<String> {
    error.source().map(error_chain)
}

/// The innermost cause, such as `connection refused`. `None` if the error has no cause.
pub fn root_cause(error: &dyn Error) -> Option<String> {
    error.source().and_then(|cause| causes(cause).last()).map(ToString::to_string)
}

/// An error and its causes, from the outside to the inside.
pub fn causes<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    std::iter::successors(Some(error), |error| (*error).source())
}

/// Joins the texts of an error and its causes. A text that an earlier one already contains is left out.
pub fn join_causes(texts: impl IntoIterator<Item = String>) -> String {
    let mut joined = String::new();
    for text in texts {
        if joined.is_empty() {
            joined = text;
        } else if !joined.contains(&text) {
            joined.push_str(": ");
            joined.push_str(&text);
        }
    }
    joined
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("{text}")]
    struct Failure {
        text: &'static str,
        source: Option<Box<Failure>>,
    }

    fn failure(texts: &[&'static str]) -> Failure {
        let (text, rest) = texts.split_first().unwrap();
        let source = (!rest.is_empty()).then(|| Box::new(failure(rest)));
        Failure { text, source }
    }

    #[test]
    fn causes_are_named_once_and_in_order() {
        let cases = [
            (&["a"][..], "a", None),
            (&["could not read", "disk error"], "could not read: disk error", Some("disk error")),
            (&["could not read: disk error", "disk error"], "could not read: disk error", Some("disk error")),
            (&["a", "b", "c"], "a: b: c", Some("c")),
        ];
        for (texts, chain, root) in cases {
            let error = failure(texts);
            assert_eq!(error_chain(&error), chain);
            assert_eq!(root_cause(&error).as_deref(), root);
            assert_eq!(causes(&error).count(), texts.len());
            assert_eq!(chain_of_causes(&error).is_some(), root.is_some());
        }
    }
}
