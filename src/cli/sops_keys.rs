//! Keys that commands use for encrypted files, from the environment variables of `sops`.

use std::{path::PathBuf, sync::Arc};

use super::{context::Context, error::CommandError};
use driftless_files::Files;
use driftless_sops::{DecryptedFiles, KeyError, Keys};

/// Variables that name a file with a secret key.
const VARIABLES: [&str; 2] = ["SOPS_AGE_KEY_FILE", "SOPS_AGE_SSH_PRIVATE_KEY_FILE"];

impl CommandError for KeyError {
    fn help(&self) -> Option<String> {
        Some(format!("check {}", VARIABLES.join(" and ")))
    }
}

/// Decrypts the encrypted files among `files` as they are read.
pub(super) fn decrypted(files: Arc<dyn Files>, context: &Context<'_>) -> Result<DecryptedFiles, KeyError> {
    let named = VARIABLES.into_iter().filter_map(|name| (context.environment)(name));
    let paths: Vec<PathBuf> = named.filter(|path| !path.is_empty()).map(PathBuf::from).collect();
    Ok(DecryptedFiles::new(files, Arc::new(Keys::load(&paths)?)))
}
