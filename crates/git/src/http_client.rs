//! The HTTP client of one remote, which follows changes of the trusted certificates.

use std::{
    path::{Path, PathBuf},
    sync::{Mutex, MutexGuard, PoisonError},
};

use driftless_config::Proxy;
use driftless_model::RepoUrl;
use driftless_trust::{CertificateDer, read_certificates};
use reqwest::Client;

use super::{
    credentials::Lookup,
    error::{Problem, unreadable},
    http,
};

/// The client of one remote, with its idle connections. `caFile` is read at each use, as all files of credentials are, and
/// the client is made again when its certificates have changed.
pub(super) struct HttpClient {
    is_secure: bool,
    ca_file: Option<PathBuf>,
    proxy: Proxy,
    environment: Lookup,
    made: Mutex<Option<MadeClient>>,
}

struct MadeClient {
    client: Client,
    certificates: Vec<CertificateDer<'static>>,
}

impl HttpClient {
    /// Fails if a client cannot be made now, for example because `caFile` is missing.
    pub(super) fn new(
        remote: &RepoUrl,
        ca_file: Option<&Path>,
        proxy: &Proxy,
        environment: &Lookup,
    ) -> Result<Self, Problem> {
        let client = Self {
            is_secure: remote.is_https(),
            ca_file: ca_file.map(Path::to_owned),
            proxy: proxy.clone(),
            environment: environment.clone(),
            made: Mutex::default(),
        };
        client.current()?;
        Ok(client)
    }

    /// A client that trusts the certificates that `caFile` has now.
    pub(super) fn current(&self) -> Result<Client, Problem> {
        let certificates = match &self.ca_file {
            Some(path) => {
                read_certificates(path).map_err(|error| unreadable(format!("`caFile`: {error}")))?
            }
            None => Vec::new(),
        };
        let mut made = self.made();
        if let Some(kept) = made.as_ref().filter(|kept| kept.certificates == certificates) {
            return Ok(kept.client.clone());
        }
        let client = if self.is_secure {
            http::secure_client(certificates.clone(), &self.proxy, &self.environment)?
        } else {
            http::plain_client(&self.proxy, &self.environment)?
        };
        *made = Some(MadeClient { client: client.clone(), certificates });
        Ok(client)
    }

    /// The certificate of the server was refused: the next use makes a new client, which reads the authorities of the system
    /// again.
    pub(super) fn forget(&self) {
        *self.made() = None;
    }

    fn made(&self) -> MutexGuard<'_, Option<MadeClient>> {
        self.made.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
