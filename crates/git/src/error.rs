//! Why an operation on Git failed.

use std::{error::Error as StdError, fmt, io, time::Duration};

/// Why an operation on Git failed. No message contains a credential.
#[derive(Clone, Debug, thiserror::Error)]
#[error("could not {doing}: {message}")]
pub struct Error {
    /// The class of the error, which decides what the agent does next.
    pub cause: Cause,
    /// The operation, such as `fetch from https://git.example.com/infra.git`.
    pub doing: String,
    /// The error as a sentence.
    pub message: String,
    /// The pause that the server asks for.
    pub retry_after: Option<Duration>,
}

macro_rules! causes {
    ($($(#[$about:meta])* $name:ident: $retry:ident,)*) => {
        /// The class of an error. Its name is the reason of the condition `SourceReady`, and `docs/troubleshooting.md` has an
        /// entry for each.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Cause {
            $($(#[$about])* $name,)*
        }

        impl Cause {
            /// All causes.
            pub const ALL: &[Self] = &[$(Self::$name),*];

            /// The name, which scripts can rely on.
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$name => stringify!($name),)*
                }
            }

            /// When the agent tries again.
            pub fn retry(self) -> Retry {
                match self {
                    $(Self::$name => Retry::$retry,)*
                }
            }
        }
    };
}

causes! {
    /// The name of the server has no address.
    UnknownHost: Soon,
    /// Nothing listens at the address of the server.
    ConnectionRefused: Soon,
    /// The server or the proxy cannot be reached, or the connection broke.
    Unreachable: Soon,
    /// The server does not answer, sends nothing, or takes too long.
    TimedOut: Soon,
    /// The server has an internal error, is overloaded, or breaks the protocol.
    ServerFailed: Soon,
    /// The operation was cancelled, or waits for an earlier one.
    Interrupted: Soon,
    /// The file system of the mirrors is full or over its quota.
    DiskFull: Soon,
    /// The file system of the mirrors cannot be written or read.
    DiskFailed: Soon,
    /// The server's certificate is expired, issued by an unknown authority, or for another name.
    CertificateRefused: AtPoll,
    /// No key of the SSH server is known.
    HostKeyUnknown: AtPoll,
    /// The SSH server shows another key than the known one, or a revoked one.
    HostKeyChanged: AtPoll,
    /// The server refuses the token, the password or the SSH key, or asks for one.
    AuthenticationFailed: AtPoll,
    /// The server knows the user, who may not read the repository.
    AccessDenied: AtPoll,
    /// A file or a variable with credentials or certificates is missing or cannot be used.
    CredentialsUnreadable: AtPoll,
    /// The server has no such repository, or hides it.
    RepositoryNotFound: AtPoll,
    /// The repository has no commit.
    RepositoryEmpty: AtPoll,
    /// The repository has no such branch.
    BranchNotFound: AtPoll,
    /// The repository has no such tag, or no tag in the range of versions.
    TagNotFound: AtPoll,
    /// The repository has no such commit, or does not give it.
    CommitNotFound: AtPoll,
    /// The server redirects to another address.
    Redirected: AtPoll,
    /// Another server than one of Git answers at the address.
    NotAGitServer: AtPoll,
    /// The server refuses the request for another reason.
    ServerRefused: AtPoll,
    /// The repository, or one object in it, is larger than the limit.
    TooLarge: AtPoll,
    /// A submodule is missing, or is on a server that must not be used.
    SubmoduleRefused: AtPoll,
    /// The settings of the repository contradict each other, or cannot be used.
    InvalidSettings: AtPoll,
    /// A program that the connection needs is not installed.
    ProgramMissing: AtPoll,
    /// Another process uses the mirror.
    MirrorInUse: AtPoll,
    /// The mirror of the agent, or the clone that a command reads, is damaged.
    RepositoryDamaged: AtPoll,
    /// The index of a clone has a merge conflict.
    MergeConflict: AtPoll,
}

/// When the agent tries again after an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    /// After a short pause that grows: the error may pass by itself.
    Soon,
    /// At the next poll: a user must change something.
    AtPoll,
}

impl Cause {
    /// An error with this cause.
    pub(super) fn error(self, doing: impl Into<String>, message: impl Into<String>) -> Error {
        Error { cause: self, doing: doing.into(), message: message.into(), retry_after: None }
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// An error before it is known what was attempted: its class and a sentence.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub(super) struct Problem {
    pub(super) cause: Cause,
    pub(super) message: String,
}

impl Problem {
    pub(super) fn new(cause: Cause, message: impl Into<String>) -> Self {
        Self { cause, message: message.into() }
    }

    /// The error about an operation.
    pub(super) fn during(self, doing: impl Into<String>) -> Error {
        self.cause.error(doing, self.message)
    }
}

/// A problem with files of credentials.
pub(super) fn unreadable(message: String) -> Problem {
    Problem::new(Cause::CredentialsUnreadable, message)
}

/// A problem with the settings of a repository.
pub(super) fn invalid(message: impl Into<String>) -> Problem {
    Problem::new(Cause::InvalidSettings, message)
}

/// The cause of an error of the file system that stops every write or read of the mirrors. `None` for any other error.
pub(super) fn disk_cause(error: &io::Error) -> Option<Cause> {
    /// The disk does not give what is on it. It has no kind in the standard library.
    const EIO: i32 = 5;
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Some(Cause::DiskFull),
        io::ErrorKind::ReadOnlyFilesystem => Some(Cause::DiskFailed),
        _ if error.raw_os_error() == Some(EIO) => Some(Cause::DiskFailed),
        _ => None,
    }
}

/// An error and its causes. Unlike [`std::error::Error::source`], it looks into errors of input and output that carry another error.
pub(super) fn all_causes<'a>(
    error: &'a (dyn StdError + 'static),
) -> impl Iterator<Item = &'a (dyn StdError + 'static)> {
    std::iter::successors(Some(error), |error| inner_cause(*error))
}

fn inner_cause<'a>(error: &'a (dyn StdError + 'static)) -> Option<&'a (dyn StdError + 'static)> {
    match error.downcast_ref::<io::Error>().and_then(io::Error::get_ref) {
        Some(carried) => Some(carried),
        None => error.source(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_a_full_or_failing_disk_are_known() {
        for (number, cause) in [
            (28, Some(Cause::DiskFull)),
            (122, Some(Cause::DiskFull)),
            (30, Some(Cause::DiskFailed)),
            (5, Some(Cause::DiskFailed)),
            (2, None),
        ] {
            assert_eq!(disk_cause(&io::Error::from_raw_os_error(number)), cause, "{number}");
        }
        let carried = io::Error::other(io::Error::from_raw_os_error(28));
        assert!(all_causes(&carried).count() >= 2);
    }

    #[test]
    fn causes_have_different_names() {
        let names: std::collections::BTreeSet<&str> = Cause::ALL.iter().map(|cause| cause.as_str()).collect();
        assert_eq!(names.len(), Cause::ALL.len());
        assert_eq!(Cause::DiskFull.to_string(), "DiskFull");
    }
}
