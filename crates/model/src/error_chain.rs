//! Errors with their causes, in one line.

use std::error::Error;

/// An error with its causes: `could not read a pin from the database: disk I/O error`. A cause that an earlier text
/// already contains is left out.
pub fn error_chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        let more = inner.to_string();
        if !text.contains(&more) {
            text.push_str(": ");
            text.push_str(&more);
        }
        cause = inner.source();
    }
    text
}

/// The innermost cause, such as `connection refused`. `None` if the error has no cause.
pub fn root_cause(error: &dyn Error) -> Option<String> {
    let mut cause = error.source()?;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    Some(cause.to_string())
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
        }
    }
}
