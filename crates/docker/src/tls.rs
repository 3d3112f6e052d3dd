//! TLS to an engine at `tcp://`: the PEM files are read for each connection, so they can be rotated.

use std::{
    fs::File,
    io,
    io::Read as _,
    path::{Path, PathBuf},
    sync::Arc,
};

use driftless_config::DockerTls;
use tokio::{net::TcpStream, task::spawn_blocking};
use tokio_rustls::{
    TlsConnector,
    client::TlsStream,
    rustls::{
        self, ClientConfig, RootCertStore,
        crypto::aws_lc_rs,
        pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject},
    },
};

/// The largest PEM file that is read, in bytes.
const LARGEST_FILE: u64 = 1 << 20;

/// Why there is no TLS connection.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TlsError {
    #[error("could not read {}: {source}", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("{} has no valid PEM {what}", path.display())]
    Invalid { path: PathBuf, what: &'static str },
    #[error("{} and {} cannot be used: {source}", cert.display(), key.display())]
    Client { cert: PathBuf, key: PathBuf, source: rustls::Error },
    #[error("TLS failed: {0}")]
    Rustls(#[from] rustls::Error),
    #[error("`{0}` is no name or address that a certificate can have")]
    Name(String),
    #[error("TLS failed: {0}")]
    Handshake(io::Error),
    #[error("the agent is shutting down")]
    Stopping,
}

/// Reads and checks the files.
pub(crate) fn configuration(files: &DockerTls) -> Result<ClientConfig, TlsError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(&files.ca)? {
        let no_authority = |_| TlsError::Invalid { path: files.ca.clone(), what: "certificate authority" };
        roots.add(certificate).map_err(no_authority)?;
    }
    let provider = Arc::new(aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    let builder = builder.with_root_certificates(roots);
    let Some((cert, key)) = &files.client else { return Ok(builder.with_no_client_auth()) };
    let private = PrivateKeyDer::from_pem_slice(&read(key)?)
        .map_err(|_| TlsError::Invalid { path: key.clone(), what: "private key" })?;
    builder.with_client_auth_cert(certificates(cert)?, private).map_err(|source| TlsError::Client {
        cert: cert.clone(),
        key: key.clone(),
        source,
    })
}

/// Encrypts a connection to `authority`, which is `host:port`.
pub(crate) async fn encrypt(
    stream: TcpStream,
    authority: &str,
    files: &DockerTls,
) -> Result<TlsStream<TcpStream>, TlsError> {
    let host = authority.rsplit_once(':').map_or(authority, |(host, _)| host);
    let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
    let name = ServerName::try_from(host.clone()).map_err(|_| TlsError::Name(host))?;
    let files = files.clone();
    let read = spawn_blocking(move || configuration(&files)).await;
    let configuration = read.map_err(|_| TlsError::Stopping)??;
    let connector = TlsConnector::from(Arc::new(configuration));
    connector.connect(name, stream).await.map_err(TlsError::Handshake)
}

/// The certificates of a file, at least one.
fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let text = read(path)?;
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
    match found {
        Ok(certificates) if !certificates.is_empty() => Ok(certificates),
        Ok(_) | Err(_) => Err(TlsError::Invalid { path: path.to_owned(), what: "certificate" }),
    }
}

fn read(path: &Path) -> Result<Vec<u8>, TlsError> {
    let mut text = Vec::new();
    File::open(path)
        .and_then(|file| file.take(LARGEST_FILE).read_to_end(&mut text))
        .map_err(|source| TlsError::Read { path: path.to_owned(), source })?;
    Ok(text)
}
