//! The errors of `driftless run`.

use std::{error::Error as StdError, io, net::SocketAddr, path::PathBuf};

use super::{args::DEFAULT_CONFIG, socket_error::SocketError};
use crate::cli::{error::CommandError, topic::Topic};
use driftless_agent as controller;
use driftless_web::{TlsError, TokenError};

/// Why the agent did not start, or ended.
#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    #[error("could not listen on {address}")]
    Listen {
        address: SocketAddr,
        #[source]
        source: io::Error,
    },
    #[error("could not listen for webhooks on {address}")]
    ListenHooks {
        address: SocketAddr,
        #[source]
        source: io::Error,
    },
    #[error("could not listen for metrics on {address}")]
    ListenMetrics {
        address: SocketAddr,
        #[source]
        source: io::Error,
    },
    #[error("{0} is reachable from other machines, and there is no token")]
    Open(SocketAddr),
    #[error("could not read the token from {path}")]
    ReadToken {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("the token in {path} is not valid")]
    Token {
        path: PathBuf,
        #[source]
        source: TokenError,
    },
    #[error("the OpenID provider cannot be used")]
    Provider(#[source] driftless_oidc::Error),
    #[error("the certificate of `{key}` cannot be used")]
    Tls {
        key: &'static str,
        #[source]
        source: Box<TlsError>,
    },
    #[error("could not open the socket of the API")]
    Socket(#[source] SocketError),
    #[error("could not watch for signals")]
    Signals(#[source] io::Error),
    #[error("could not start the agent")]
    Start(#[source] controller::Error),
    #[error("could not read the configuration {path}")]
    Read {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("`{path}` is not a path")]
    Path {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("there are settings of one repository, such as --path or DRIFTLESS_PATH, but no URL")]
    SettingsWithoutUrl,
    #[error("`{0}` is not the name of a host: use letters, digits, `.`, `-` and `_`")]
    HostName(String),
    #[error("there is no repository to follow")]
    NoRepository,
    #[error("`{key}` cannot change while the agent runs (it is {})", .old.display())]
    NeedsRestart { key: &'static str, old: PathBuf },
    #[error("could not start again with the new configuration")]
    Again(#[source] io::Error),
    #[error("the agent ended unexpectedly")]
    Ended,
}

/// Whether an error comes from a file system that is read-only, which it is for this process or for all.
fn is_read_only(error: &(dyn StdError + 'static)) -> bool {
    let mut cause = Some(error);
    while let Some(error) = cause {
        if error
            .downcast_ref::<io::Error>()
            .is_some_and(|error| error.kind() == io::ErrorKind::ReadOnlyFilesystem)
        {
            return true;
        }
        cause = error.source();
    }
    false
}

impl CommandError for Error {
    fn help(&self) -> Option<String> {
        match self {
            Self::Listen { source, .. } if source.kind() == io::ErrorKind::AddrInUse => {
                Some("another program uses the address, perhaps another agent; choose another address with --listen".to_owned())
            }
            Self::ListenHooks { .. } => Some("change `webhooks.listen` in the configuration".to_owned()),
            Self::ListenMetrics { .. } => Some("change `metrics.listen` in the configuration".to_owned()),
            Self::Open(_) => Some(
                "create one with `openssl rand -hex 32 > token` and name it with --token-file, or listen on 127.0.0.1"
                    .to_owned(),
            ),
            Self::Token { .. } => Some("create one with `openssl rand -hex 32`".to_owned()),
            Self::Provider(_) => Some("correct `oidc` in the configuration".to_owned()),
            Self::Socket(_) => {
                Some("choose another `socket` in the configuration, or `socket: none`".to_owned())
            }
            Self::Tls { key: "tls", .. } => Some(
                "correct `tls` in the configuration, or --tls-cert-file and --tls-key-file".to_owned(),
            ),
            Self::Tls { key, .. } => Some(format!("correct `{key}` in the configuration")),
            Self::NeedsRestart { .. } => Some("restart the agent to change it".to_owned()),
            Self::Ended => Some("the log has the cause".to_owned()),
            Self::Start(error) if is_read_only(error) => Some(
                "the packaged unit lets the agent write to its own folders only: create the folder if it is missing \
                 (`install -d -m 700 FOLDER`), run `systemctl edit driftless`, add `[Service]` and `ReadWritePaths=FOLDER`, and \
                 start the agent again"
                    .to_owned(),
            ),
            Self::SettingsWithoutUrl => Some(format!(
                "give the URL too (or DRIFTLESS_URL), or remove them to use {DEFAULT_CONFIG}"
            )),
            Self::NoRepository => Some(format!(
                "give a URL (or DRIFTLESS_URL), or a configuration file with --config (or DRIFTLESS_CONFIG, or at \
                 {DEFAULT_CONFIG}); `driftless init` writes one"
            )),
            Self::Listen { .. } | Self::HostName(_) | Self::Read { .. } | Self::Path { .. } | Self::ReadToken { .. } | Self::Signals(_) | Self::Start(_) | Self::Again(_) => None,
        }
    }

    fn topic(&self) -> Option<Topic> {
        match self {
            Self::Listen { .. } | Self::ListenHooks { .. } | Self::ListenMetrics { .. } | Self::Socket(_) => {
                Some(Topic::Listen)
            }
            Self::Open(_) | Self::ReadToken { .. } | Self::Token { .. } => Some(Topic::Access),
            Self::Provider(_) => Some(Topic::OpenId),
            Self::Tls { .. } => Some(Topic::Certificates),
            Self::Read { .. }
            | Self::Path { .. }
            | Self::SettingsWithoutUrl
            | Self::HostName(_)
            | Self::NoRepository
            | Self::NeedsRestart { .. }
            | Self::Again(_) => Some(Topic::Configuration),
            // The causes of a start have one.
            Self::Start(_) | Self::Signals(_) | Self::Ended => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn read_only_folder_names_the_unit() {
        let failed = |source: io::Error| {
            let (doing, path) = ("create the state directory", PathBuf::from("/srv/driftless"));
            Error::Start(controller::Error::State(driftless_store::Error::Directory { doing, path, source }))
        };
        let help = failed(io::ErrorKind::ReadOnlyFilesystem.into()).help();
        assert!(help.as_ref().is_some_and(|help| help.contains("ReadWritePaths=")), "{help:?}");
        assert_eq!(failed(io::ErrorKind::NotFound.into()).help(), None);
    }
}
