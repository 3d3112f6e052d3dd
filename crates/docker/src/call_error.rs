//! What went wrong with one call, and into which drawer of [`Error`] it belongs. Nothing is retried here.

use std::{collections::BTreeMap, time::Duration};

use crate::Error;

/// One call that did not succeed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum CallError {
    /// The engine answered, and said no.
    #[error("{message}")]
    Status { code: u16, message: String },
    /// There was no answer, or none that could be read.
    #[error("{0}")]
    Unreachable(String),
    /// There was no answer in time.
    #[error("no answer within {} s", .0.as_secs())]
    Late(Duration),
}

impl CallError {
    /// Of an error and its causes, each said once.
    pub(crate) fn unreachable(error: &dyn std::error::Error) -> Self {
        let mut text = error.to_string();
        let mut cause = error.source();
        while let Some(inner) = cause {
            let inner_text = inner.to_string();
            if !text.contains(&inner_text) {
                text = format!("{text}: {inner_text}");
            }
            cause = inner.source();
        }
        Self::Unreachable(text)
    }

    /// Of an answer that is no success. Its body is `{"message": "…"}`.
    pub(crate) fn status(code: u16, body: &[u8]) -> Self {
        #[derive(serde::Deserialize)]
        struct Answer {
            message: String,
        }
        let message = match serde_json::from_slice::<Answer>(body) {
            Ok(Answer { message }) => message,
            Err(_) => format!("the engine answered with status {code}"),
        };
        Self::Status { code, message: clean(&message) }
    }

    pub(crate) fn code(&self) -> Option<u16> {
        match self {
            Self::Status { code, .. } => Some(*code),
            Self::Unreachable(_) | Self::Late(_) => None,
        }
    }

    /// Whether the engine said no in words that contain any of these, whatever their case.
    pub(crate) fn says(&self, words: &[&str]) -> bool {
        match self {
            Self::Status { message, .. } => {
                let message = message.to_lowercase();
                words.iter().any(|it| message.contains(it))
            }
            Self::Unreachable(_) | Self::Late(_) => false,
        }
    }

    /// Sorts by the status alone.
    pub(crate) fn sort(self, doing: &str) -> Error {
        match self {
            Self::Status { code: 400 | 405 | 406 | 501, message } => {
                Error::Rejected { doing: doing.to_owned(), message }
            }
            Self::Status { code: 401..=499, message } => Error::Refused { doing: doing.to_owned(), message },
            Self::Status { .. } | Self::Unreachable(_) | Self::Late(_) => {
                Error::Transient { doing: doing.to_owned(), source: Box::new(self) }
            }
        }
    }

    pub(crate) fn refused(self, doing: &str) -> Error {
        Error::Refused { doing: doing.to_owned(), message: self.to_string() }
    }

    pub(crate) fn rejected(self, doing: &str) -> Error {
        Error::Rejected { doing: doing.to_owned(), message: self.to_string() }
    }

    /// Takes the values of a container's environment out of the engine's words.
    pub(crate) fn without(self, env: &BTreeMap<String, Option<String>>) -> Self {
        match self {
            Self::Status { code, message } => {
                // A value of three letters is no secret worth the name, and hiding each `1` would hide the message.
                let message = env
                    .values()
                    .flatten()
                    .filter(|it| it.len() > 3)
                    .fold(message, |message, value| message.replace(value.as_str(), "••••"));
                Self::Status { code, message }
            }
            Self::Unreachable(_) | Self::Late(_) => self,
        }
    }
}

impl From<bollard::errors::Error> for CallError {
    fn from(error: bollard::errors::Error) -> Self {
        match error {
            bollard::errors::Error::DockerResponseServerError { status_code, message } => {
                Self::Status { code: status_code, message: clean(&message) }
            }
            other => Self::unreachable(&other),
        }
    }
}

/// The engine's words without its preamble, and without the same part twice in a row: it says
/// `manifest unknown: manifest unknown`.
pub(crate) fn clean(message: &str) -> String {
    let message = message.trim().trim_start_matches("Error response from daemon: ");
    let mut parts: Vec<&str> = message.split(": ").collect();
    parts.dedup();
    parts.join(": ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_sorted_by_what_to_do_next() {
        let sorted = |code| CallError::Status { code, message: "no".into() }.sort("try");
        assert!(matches!(sorted(400), Error::Rejected { .. }));
        assert!(matches!(sorted(404), Error::Refused { .. }));
        assert!(matches!(sorted(409), Error::Refused { .. }));
        assert!(matches!(sorted(500), Error::Transient { .. }));
        assert!(matches!(CallError::Late(Duration::from_secs(1)).sort("try"), Error::Transient { .. }));
    }

    #[test]
    fn messages_say_things_once_and_without_the_environment() {
        assert_eq!(
            clean("Error response from daemon: manifest unknown: manifest unknown"),
            "manifest unknown"
        );
        let env = BTreeMap::from([("PASSWORD".to_owned(), Some("hunter2".to_owned()))]);
        let failure = CallError::Status { code: 400, message: "bad variable PASSWORD=hunter2".into() };
        assert_eq!(failure.without(&env).to_string(), "bad variable PASSWORD=••••");
    }
}
