//! Errors of reports.

use std::{io, path::PathBuf};

use crate::cli::{error::CommandError, topic::Topic};
use driftless_agent as controller;
use driftless_forge as forge;
use driftless_git as source;
use driftless_report::InvalidRule;

/// Why there is no report.
#[derive(Debug, thiserror::Error)]
pub(in crate::cli) enum Error {
    #[error("there is no application `{0}`")]
    NoSuchApplication(String),
    #[error("only one output can go to standard output: write the others to a file, such as `-o json=FILE`")]
    TwoToStdout,
    #[error("could not read {path}")]
    Read {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("could not write {path}")]
    Write {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error(transparent)]
    Ignore(#[from] InvalidRule),
    #[error(transparent)]
    Source(#[from] source::Error),
    /// Objects of a repository are missing or damaged.
    #[error("{message}")]
    Damaged { message: String, is_partial: bool },
    #[error("could not observe the engine")]
    Observe(#[source] controller::Error),
    #[error("the report took longer than {0:?}")]
    Timeout(std::time::Duration),
    #[error("{0}")]
    Usage(String),
    #[error("the report could not be posted")]
    Forge(#[from] forge::Error),
    #[error("the report could not be posted: {0}")]
    Post(String),
    #[error("could not create a temporary folder")]
    Temporary(#[source] io::Error),
    #[error("the report failed: {0}")]
    Broken(String),
}

impl CommandError for Error {
    fn help(&self) -> Option<String> {
        match self {
            Self::NoSuchApplication(_) => {
                Some("run the command without --app to see all applications".to_owned())
            }
            Self::Timeout(_) => Some("allow more time with --timeout".to_owned()),
            Self::Damaged { is_partial: true, .. } => Some(
                "this is a partial clone, which lacks files of older commits: run `git fetch --refetch --no-filter` \
                 in it; with actions/checkout, leave `sparse-checkout` out, or set `filter: blob:limit=1g`"
                    .to_owned(),
            ),
            _ => None,
        }
    }

    fn topic(&self) -> Option<Topic> {
        match self {
            Self::Source(error) => Some(Topic::Git(error.cause)),
            Self::Damaged { .. } => Some(Topic::Git(source::Cause::RepositoryDamaged)),
            Self::Observe(_) => Some(Topic::Engine),
            Self::Forge(_) | Self::Post(_) => Some(Topic::Forge),
            Self::NoSuchApplication(_)
            | Self::TwoToStdout
            | Self::Read { .. }
            | Self::Write { .. }
            | Self::Ignore(_)
            | Self::Timeout(_)
            | Self::Usage(_)
            | Self::Temporary(_)
            | Self::Broken(_) => None,
        }
    }
}
