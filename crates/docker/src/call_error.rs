//! Why one call failed, and which [`Error`] of the crate that is. Nothing is retried here.

use std::{collections::BTreeMap, error::Error as StdError, io, time::Duration};

use driftless_model::{causes, error_chain};

use crate::{error::Error, tls::TlsError};

/// Why a call failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum CallError {
    /// The engine answered with an error.
    #[error("{message}")]
    Status { code: u16, message: String },
    /// There was no answer, or it could not be read.
    #[error("{0}")]
    Unreachable(String),
    /// There was no answer in time.
    #[error("no answer within {} s", .0.as_secs())]
    TimedOut(Duration),
}

/// No connection to the engine could be opened: where, why, and what to do.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConnectError {
    #[error(
        "there is no socket at {path}: start the Docker Engine, or give its address with `--docker-host`"
    )]
    NoSocket { path: String },
    #[error(
        "no permission to open the socket {path}: run as root or as a member of the socket's group (`docker`)"
    )]
    NotPermitted { path: String },
    #[error("nothing listens on the socket {path}: start the Docker Engine (`systemctl start docker`)")]
    NotListening { path: String },
    #[error("no encrypted connection to {address}: {error}")]
    Tls { address: String, error: TlsError },
    #[error("could not connect to {address}: {error}")]
    Other { address: String, error: String },
}

impl ConnectError {
    /// Names the reason that an I/O error stands for on a Unix socket.
    pub(crate) fn of_socket(path: &str, error: &io::Error) -> Self {
        let path = path.to_owned();
        match error.kind() {
            io::ErrorKind::NotFound => Self::NoSocket { path },
            io::ErrorKind::PermissionDenied => Self::NotPermitted { path },
            io::ErrorKind::ConnectionRefused => Self::NotListening { path },
            _ => Self::Other { address: path, error: error.to_string() },
        }
    }
}

impl CallError {
    /// Of an error and its causes, each stated once. A [`ConnectError`] among them says it all.
    pub(crate) fn unreachable(error: &(dyn StdError + 'static)) -> Self {
        let connect = causes(error).find_map(|cause| cause.downcast_ref::<ConnectError>());
        Self::Unreachable(connect.map_or_else(|| error_chain(error), ToString::to_string))
    }

    /// Of an event stream that broke off.
    pub(crate) fn interrupted(error: &(dyn StdError + 'static)) -> Self {
        Self::Unreachable(format!("the event stream broke off: {}", error_chain(error)))
    }

    /// Of an answer that is no success. Its body is `{"message": "…"}`.
    pub(crate) fn status(code: u16, body: &[u8]) -> Self {
        #[derive(serde::Deserialize)]
        struct ErrorBody {
            message: String,
        }
        let message = match serde_json::from_slice::<ErrorBody>(body) {
            Ok(ErrorBody { message }) => message,
            Err(_) => format!("the engine answered with status {code}"),
        };
        Self::Status { code, message: clean(&message) }
    }

    /// The HTTP status of the engine's answer.
    pub(crate) fn code(&self) -> Option<u16> {
        match self {
            Self::Status { code, .. } => Some(*code),
            Self::Unreachable(_) | Self::TimedOut(_) => None,
        }
    }

    /// Whether the engine answered that there is no such object.
    pub(crate) fn is_not_found(&self) -> bool {
        self.code() == Some(404)
    }

    /// Whether the engine's error message contains one of these lower-case texts. Case is ignored.
    pub(crate) fn contains(&self, texts: &[&str]) -> bool {
        match self {
            Self::Status { message, .. } => {
                let message = message.to_lowercase();
                texts.iter().any(|text| message.contains(text))
            }
            Self::Unreachable(_) | Self::TimedOut(_) => false,
        }
    }

    /// The crate's error, chosen by the status alone.
    pub(crate) fn classify(self, doing: &str) -> Error {
        match self {
            Self::Status { code: 400 | 405 | 406 | 501, message } => {
                Error::Rejected { doing: doing.to_owned(), message }
            }
            Self::Status { code: 401..=499, message } => Error::Refused { doing: doing.to_owned(), message },
            Self::Status { .. } | Self::Unreachable(_) | Self::TimedOut(_) => {
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

    /// Hides the values of a container's environment in the engine's message.
    pub(crate) fn without_values(self, env: &BTreeMap<String, Option<String>>) -> Self {
        match self {
            Self::Status { code, message } => {
                // A value of three letters is hardly a secret, and hiding each `1` would hide the message.
                let message = env
                    .values()
                    .flatten()
                    .filter(|value| value.len() > 3)
                    .fold(message, |message, value| message.replace(value.as_str(), "••••"));
                Self::Status { code, message }
            }
            Self::Unreachable(_) | Self::TimedOut(_) => self,
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

/// Turns an error into success if it says that the result is already there.
pub(crate) fn tolerate<T: Default>(
    result: Result<T, CallError>,
    is_already_done: impl Fn(&CallError) -> bool,
) -> Result<T, CallError> {
    match result {
        Err(error) if is_already_done(&error) => Ok(T::default()),
        other => other,
    }
}

/// The engine's message without its preamble, and without the same part twice in a row, as in
/// `manifest unknown: manifest unknown`.
pub(crate) fn clean(message: &str) -> String {
    let message = message.trim().trim_start_matches("Error response from daemon: ");
    if message.contains("HTTP request to an HTTPS server") {
        return "the engine speaks TLS only: name its certificates in `docker.tls`, or set `DOCKER_TLS_VERIFY` and `DOCKER_CERT_PATH`".to_owned();
    }
    let mut parts: Vec<&str> = message.split(": ").collect();
    parts.dedup();
    parts.join(": ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_classified_by_status() {
        let classified = |code| CallError::Status { code, message: "no".into() }.classify("try");
        assert!(matches!(classified(400), Error::Rejected { .. }));
        assert!(matches!(classified(404), Error::Refused { .. }));
        assert!(matches!(classified(409), Error::Refused { .. }));
        assert!(matches!(classified(500), Error::Transient { .. }));
        assert!(matches!(
            CallError::TimedOut(Duration::from_secs(1)).classify("try"),
            Error::Transient { .. }
        ));
    }

    #[test]
    fn messages_repeat_nothing_and_hide_the_environment() {
        assert_eq!(
            clean("Error response from daemon: manifest unknown: manifest unknown"),
            "manifest unknown"
        );
        let env = BTreeMap::from([("PASSWORD".to_owned(), Some("hunter2".to_owned()))]);
        let error = CallError::Status { code: 400, message: "bad variable PASSWORD=hunter2".into() };
        assert_eq!(error.without_values(&env).to_string(), "bad variable PASSWORD=••••");
    }

    #[test]
    fn missing_socket_is_named_with_advice() {
        let missing = ConnectError::of_socket("/run/d.sock", &io::ErrorKind::NotFound.into());
        let error = CallError::unreachable(&missing).to_string();
        assert!(error.contains("/run/d.sock") && error.contains("--docker-host"), "{error}");
    }
}
