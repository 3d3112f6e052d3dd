//! `--policy FILE`: the admission policy that commands check manifests with.

use std::{
    fs,
    io::{self, Read as _},
    path::{Path, PathBuf},
};

use clap::Args;
use driftless_config::parse_policy;
use driftless_model::AdmissionPolicy;

use super::error::{CommandError, Error as CliError};

/// The largest file, in bytes.
const LIMIT: u64 = 1024 * 1024;

/// The file with the policy.
#[derive(Clone, Debug, Args)]
pub(super) struct PolicyArgs {
    /// File with the keys of `policy` of the agent's configuration; what it does not allow is an error.
    #[arg(long, value_name = "FILE")]
    policy: Option<PathBuf>,
}

/// Why a policy cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("could not read the policy {path}")]
pub(super) struct Error {
    path: PathBuf,
    source: io::Error,
}

impl CommandError for Error {
    fn help(&self) -> Option<String> {
        Some("write the keys of `policy` into it, such as `trust: limited`".to_owned())
    }
}

impl PolicyArgs {
    /// Reads the file, if one is named.
    pub(super) fn read(&self) -> Result<Option<AdmissionPolicy>, CliError> {
        let Some(path) = &self.policy else { return Ok(None) };
        let text = read(path).map_err(|source| Error { path: path.clone(), source })?;
        parse_policy(&path.display().to_string(), &text).map(Some).map_err(CliError::Findings)
    }
}

fn read(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    fs::File::open(path)?.take(LIMIT + 1).read_to_string(&mut text)?;
    if text.len() as u64 > LIMIT {
        return Err(io::Error::other("the file is larger than 1 MiB"));
    }
    Ok(text)
}
