//! The file of the agent's own private key for fleets.

use std::{
    io,
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
};

use crate::{
    error::{BoxError, Error},
    sealed::{KEY_LENGTH, create_key, read_key},
};

/// The agent's own key file, read or written at the first use.
#[derive(Debug)]
pub(crate) struct FleetKeyFile {
    /// `None` for a database in memory.
    path: Option<PathBuf>,
    seed: Mutex<Option<[u8; KEY_LENGTH]>>,
}

impl FleetKeyFile {
    pub(crate) fn at(path: Option<PathBuf>) -> Self {
        Self { path, seed: Mutex::default() }
    }

    pub(crate) fn seed(&self) -> Result<[u8; KEY_LENGTH], Error> {
        let mut known = self.seed.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(seed) = *known {
            return Ok(seed);
        }
        let seed = match &self.path {
            Some(path) => load_or_create(path).map_err(|source| Error::Directory {
                doing: "use the fleet key of the agent",
                path: path.clone(),
                source,
            })?,
            None => random_seed().map_err(|source| Error::Write { what: "the key of the fleet", source })?,
        };
        *known = Some(seed);
        Ok(seed)
    }
}

fn random_seed() -> Result<[u8; KEY_LENGTH], BoxError> {
    let mut seed = [0; KEY_LENGTH];
    aws_lc_rs::rand::fill(&mut seed)?;
    Ok(seed)
}

fn load_or_create(path: &Path) -> io::Result<[u8; KEY_LENGTH]> {
    let damaged = |problem: &str| {
        let message = format!("{problem}. Restore the file, or remove it and join again");
        io::Error::new(io::ErrorKind::InvalidData, message)
    };
    let bytes = match read_key(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => create_key(path)?,
        Err(error) if error.kind() == io::ErrorKind::InvalidData => return Err(damaged(&error.to_string())),
        read => read?,
    };
    bytes.try_into().map_err(|_| damaged(&format!("it does not have {KEY_LENGTH} bytes")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fleet_key_is_private_and_kept() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("fleet.key");
        let file = || FleetKeyFile::at(Some(path.clone()));
        let seed = file().seed().unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(file().seed().unwrap(), seed);
        std::fs::write(&path, "short").unwrap();
        let error = std::error::Error::source(&file().seed().unwrap_err()).unwrap().to_string();
        assert!(error.contains("or remove it and join again"), "a damaged key stays: {error}");
        let memory = FleetKeyFile::at(None);
        assert_eq!(memory.seed().unwrap(), memory.seed().unwrap());
        assert_ne!(memory.seed().unwrap(), FleetKeyFile::at(None).seed().unwrap());
    }
}
