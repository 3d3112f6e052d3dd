//! TLS of the listener: the certificate and its key, which are replaced while connections are open.

use std::{
    fs::File,
    io,
    io::Read as _,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    sync::{Arc, PoisonError, RwLock},
};

use driftless_config::ListenTls;
use tokio_rustls::{
    TlsAcceptor,
    rustls::{
        self, ServerConfig,
        crypto::{CryptoProvider, aws_lc_rs},
        pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
        server::{ClientHello, ResolvesServerCert},
        sign::CertifiedKey,
    },
};

/// The largest PEM file that is read, in bytes.
const LARGEST_FILE: u64 = 1 << 20;

/// The protocol that clients may ask for (ALPN).
const PROTOCOL: &[u8] = b"http/1.1";

/// Why a certificate cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read.
    #[error("could not read {}", path.display())]
    Read {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// A file has other content.
    #[error("{} has no valid PEM {what}", path.display())]
    Invalid { path: PathBuf, what: &'static str },
    /// The two files do not fit together, or rustls does not know the algorithm.
    #[error("the certificate {} and the key {} cannot be used together", certificate.display(), key.display())]
    Pair {
        certificate: PathBuf,
        key: PathBuf,
        #[source]
        source: rustls::Error,
    },
    /// rustls accepts no version of TLS.
    #[error("TLS cannot be used")]
    Rustls(#[from] rustls::Error),
}

/// The certificate of a listener. Clones share it.
#[derive(Clone, Debug)]
pub struct ListenerTls {
    files: ListenTls,
    current: Arc<CurrentCertificate>,
    config: Arc<ServerConfig>,
}

/// The certificate that new connections get.
#[derive(Debug)]
struct CurrentCertificate(RwLock<Arc<CertifiedKey>>);

impl ResolvesServerCert for CurrentCertificate {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner)))
    }
}

impl ListenerTls {
    /// Reads the files.
    ///
    /// # Errors
    ///
    /// If a file cannot be read, or the key is not that of the certificate.
    pub fn load(files: &ListenTls) -> Result<Self, TlsError> {
        let provider = Arc::new(aws_lc_rs::default_provider());
        let current = Arc::new(CurrentCertificate(RwLock::new(Arc::new(certified_key(files, &provider)?))));
        let builder = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
        let resolver: Arc<CurrentCertificate> = Arc::clone(&current);
        let mut config = builder.with_no_client_auth().with_cert_resolver(resolver);
        config.alpn_protocols = vec![PROTOCOL.to_vec()];
        Ok(Self { files: files.clone(), current, config: Arc::new(config) })
    }

    /// Reads the files again, for new connections. After an error the certificate stays.
    ///
    /// # Errors
    ///
    /// Those of [`ListenerTls::load`].
    pub fn reload(&self) -> Result<(), TlsError> {
        let new = certified_key(&self.files, self.config.crypto_provider())?;
        *self.current.0.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(new);
        Ok(())
    }

    /// The files that it is read from.
    pub fn files(&self) -> &ListenTls {
        &self.files
    }

    pub(super) fn acceptor(&self) -> TlsAcceptor {
        TlsAcceptor::from(Arc::clone(&self.config))
    }
}

/// Whether every user of this machine can read the private key.
pub fn is_key_exposed(files: &ListenTls) -> bool {
    std::fs::metadata(&files.key_file).is_ok_and(|found| found.permissions().mode() & 0o004 != 0)
}

fn certified_key(files: &ListenTls, provider: &CryptoProvider) -> Result<CertifiedKey, TlsError> {
    let ListenTls { cert_file, key_file } = files;
    let text = read(cert_file)?;
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
    let invalid = |path: &Path, what| TlsError::Invalid { path: path.to_owned(), what };
    let chain = found.ok().filter(|chain| !chain.is_empty());
    let chain = chain.ok_or_else(|| invalid(cert_file, "certificate"))?;
    let key = PrivateKeyDer::from_pem_slice(&read(key_file)?);
    let key = key.map_err(|_| invalid(key_file, "private key"))?;
    CertifiedKey::from_der(chain, key, provider).map_err(|source| TlsError::Pair {
        certificate: cert_file.clone(),
        key: key_file.clone(),
        source,
    })
}

fn read(path: &Path) -> Result<Vec<u8>, TlsError> {
    let mut text = Vec::new();
    File::open(path)
        .and_then(|file| file.take(LARGEST_FILE).read_to_end(&mut text))
        .map_err(|source| TlsError::Read { path: path.to_owned(), source })?;
    Ok(text)
}
