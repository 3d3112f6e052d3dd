//! Why one call failed, and which [`Error`] of the crate that is. Nothing is retried here.

use std::{collections::BTreeMap, error::Error as StdError, io, path::Path, time::Duration};

use driftless_model::{Mask, causes, error_chain};

use crate::{error::Error, removed_socket::is_removed, tls::TlsError};

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
    #[error("there is no socket at {path}: start the Docker Engine, or give the address of another one")]
    NoSocket { path: String },
    #[error(
        "no permission to open the socket {path}: run as root or as a member of the socket's group (`docker`)"
    )]
    NotPermitted { path: String },
    #[error("nothing listens on the socket {path}: start the Docker Engine (`systemctl start docker`)")]
    NotListening { path: String },
    #[error(
        "the engine has removed the socket that is mounted at {path}: start the engine if it is stopped (`systemctl start docker`), then restart the agent's container (`docker restart`), which mounts the new one"
    )]
    Removed { path: String },
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
            io::ErrorKind::ConnectionRefused if is_removed(Path::new(&path)) => Self::Removed { path },
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

    /// A refusal for which the host may be the cause, such as a folder that is missing: it may end without a commit.
    pub(crate) fn refused_by_host(self, doing: &str) -> Error {
        let source = Self::Status { code: 400, message: self.to_string() };
        Error::Transient { doing: doing.to_owned(), source: Box::new(source) }
    }

    pub(crate) fn rejected(self, doing: &str) -> Error {
        Error::Rejected { doing: doing.to_owned(), message: self.to_string() }
    }

    /// Hides the values of a container's environment where the engine quotes a variable. Elsewhere a value may be a word
    /// of the message or a path, and the mask of the application hides those that are secret.
    pub(crate) fn without_values(self, env: &BTreeMap<String, Option<String>>) -> Self {
        match self {
            Self::Status { code, message } => {
                let message = without_template(message);
                let variables = env.iter().filter_map(|(name, value)| Some((name, value.as_ref()?)));
                let variables = variables.filter(|(_, value)| !value.is_empty());
                let mut quotes: Vec<(String, &String)> = variables
                    .flat_map(|(name, value)| {
                        [value.clone(), quoted(value)].map(|value| (format!("{name}={value}"), name))
                    })
                    .collect();
                // One may be a part of another.
                quotes.sort_by_key(|(quote, _)| std::cmp::Reverse(quote.len()));
                let message = quotes.iter().fold(message, |message, (quote, name)| {
                    message.replace(quote, &format!("{name}={}", Mask::HIDDEN))
                });
                Self::Status { code, message }
            }
            Self::Unreachable(_) | Self::TimedOut(_) => self,
        }
    }
}

/// The words of a Swarm about a variable whose template it cannot fill in, without the value: they quote all of it, and parts.
pub(crate) fn without_template(message: String) -> String {
    const START: &str = "expanding env";
    if !message.contains(START) {
        return message;
    }
    let quoted = message.split_once("expanding env \"").map(|(_, rest)| rest);
    let name = quoted.and_then(|rest| rest.split_once('=')).map(|(name, _)| name).unwrap_or_default();
    // The value may contain the same words.
    let is_name = |name: &str| !name.is_empty() && !name.contains(|it: char| it.is_whitespace() || it == '"');
    let variable = if is_name(name) { format!("the variable {name}") } else { "a variable".to_owned() };
    format!("the template in {variable} cannot be filled in: write `{{{{` that is text as `{{{{\"{{{{\"}}}}`")
}

/// A text as Go quotes it in messages (`%q`), without the quotes around it.
fn quoted(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            '\n' => quoted.push_str("\\n"),
            '\r' => quoted.push_str("\\r"),
            '\t' => quoted.push_str("\\t"),
            '\x07' => quoted.push_str("\\a"),
            '\x08' => quoted.push_str("\\b"),
            '\x0b' => quoted.push_str("\\v"),
            '\x0c' => quoted.push_str("\\f"),
            // It cannot be printed.
            _ if letter.is_control() || (!letter.is_ascii() && letter.escape_debug().nth(1).is_some()) => {
                quoted.push_str(&go_code(letter));
            }
            _ => quoted.push(letter),
        }
    }
    quoted
}

/// The number of a letter as Go writes it.
fn go_code(letter: char) -> String {
    match u32::from(letter) {
        code @ ..0x80 => format!("\\x{code:02x}"),
        code @ ..0x10000 => format!("\\u{code:04x}"),
        code => format!("\\U{code:08x}"),
    }
}

impl Error {
    /// Whether the engine did not answer the call, so that the error says nothing about the object of the call. An engine
    /// that took too long may have answered. A proxy in front of the engine says with these statuses that it got no answer.
    pub fn is_unanswered(&self) -> bool {
        let Self::Transient { source, .. } = self else { return false };
        matches!(
            source.downcast_ref::<CallError>(),
            Some(CallError::Unreachable(_) | CallError::Status { code: 502..=504, .. })
        )
    }

    /// Whether a definition was refused for a reason that the host may end, such as a folder that is not mounted yet.
    pub fn is_refused_by_host(&self) -> bool {
        let Self::Transient { source, .. } = self else { return false };
        matches!(source.downcast_ref::<CallError>(), Some(CallError::Status { code: 400, .. }))
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
        assert!(CallError::Unreachable("connection refused".to_owned()).classify("try").is_unanswered());
        assert!(!classified(500).is_unanswered());
        assert!([502, 503, 504].into_iter().all(|code| classified(code).is_unanswered()));
        let missing =
            CallError::Status { code: 500, message: "no such runtime".into() }.refused_by_host("try");
        assert!(missing.is_refused_by_host() && !missing.is_unanswered());
        assert!([400, 403, 500].into_iter().all(|code| !classified(code).is_refused_by_host()));
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
    fn values_of_variables_stay_where_the_engine_quotes_no_variable() {
        let env = [("MEDIA", "/mnt/media"), ("TYPE", "path"), ("EMPTY", "")];
        let env = env.map(|(name, value)| (name.to_owned(), Some(value.to_owned()))).into();
        let message = "bind source path does not exist: /mnt/media/tv";
        let error = CallError::Status { code: 400, message: message.to_owned() };
        assert_eq!(error.without_values(&env).to_string(), message);
    }

    #[test]
    fn values_that_go_quotes_are_hidden() {
        for (value, shown) in [
            ("'hunter2'", "'hunter2'"),
            ("hun\"ter2", r#"hun\"ter2"#),
            ("hun\\ter2", r"hun\\ter2"),
            ("hunter\n2\t", r"hunter\n2\t"),
            ("hunter\u{1}\u{7}", r"hunter\x01\a"),
            ("hünter2\u{a0}\u{e000}", r"hünter2\u00a0\ue000"),
        ] {
            let env = BTreeMap::from([("PASSWORD".to_owned(), Some(value.to_owned()))]);
            let message = format!("bad variable \"PASSWORD={shown}\"");
            let error = CallError::Status { code: 400, message }.without_values(&env);
            assert_eq!(error.to_string(), "bad variable \"PASSWORD=••••\"", "{value:?}");
        }
    }

    #[test]
    fn broken_template_of_a_variable_shows_its_name_only() {
        let message = r#"rpc error: code = InvalidArgument desc = expanding env failed: expanding env "PASSWORD={{hunter2}}\"x: x": template: expansion:1: function "hunter2" not defined"#;
        let error = CallError::status(400, format!("{{\"message\": {message:?}}}").as_bytes());
        let shown = error.without_values(&BTreeMap::new()).to_string();
        assert!(shown.starts_with("the template in the variable PASSWORD cannot"), "{shown}");
        assert!(!shown.contains("hunter2"), "{shown}");
        assert_eq!(without_template("no such image".to_owned()), "no such image");
    }

    #[test]
    fn removed_socket_is_named_with_advice() {
        use std::os::{fd::AsRawFd, unix::fs::OpenOptionsExt, unix::net::UnixListener};
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("docker.sock");
        drop(UnixListener::bind(&socket).unwrap());
        // An open file keeps the socket reachable without a name, as a mount does.
        let path_only = nix::fcntl::OFlag::O_PATH.bits();
        let open = std::fs::OpenOptions::new().read(true).custom_flags(path_only).open(&socket).unwrap();
        let mounted = format!("/proc/self/fd/{}", open.as_raw_fd());
        let refused = || ConnectError::of_socket(&mounted, &io::ErrorKind::ConnectionRefused.into());
        let shown = refused().to_string();
        assert!(shown.contains("systemctl start docker"), "{shown}");
        std::fs::remove_file(&socket).unwrap();
        let shown = refused().to_string();
        assert!(shown.contains("docker restart"), "{shown}");
    }

    #[test]
    fn missing_socket_is_named_with_advice() {
        let missing = ConnectError::of_socket("/run/d.sock", &io::ErrorKind::NotFound.into());
        let error = CallError::unreachable(&missing).to_string();
        assert!(error.contains("/run/d.sock") && error.contains("give the address"), "{error}");
        // The options of the commands differ.
        assert!(!error.contains("--"), "{error}");
    }
}
