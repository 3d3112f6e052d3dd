//! The certificates of the listeners: read at the start, and again when their files change.

use driftless_agent::Running;
use driftless_config::{ListenTls, Settings};
use driftless_model::{EventKind, error_chain};
use driftless_web::{Listener, ListenerTls, is_key_exposed};
use tokio::net::TcpListener;

use super::{error::Error, watched_files::WatchedFiles};
use crate::cli::error::Error as CliError;

/// The certificates of all listeners.
pub(super) struct Certificates {
    pub(super) api: Certificate,
    pub(super) webhooks: Certificate,
    pub(super) metrics: Certificate,
}

/// The certificate of one listener, if it has one.
pub(super) struct Certificate {
    /// The key in the configuration. It is also the subject of the problem in the status of the agent.
    key: &'static str,
    tls: Option<ListenerTls>,
    files: WatchedFiles,
}

impl Certificates {
    /// Reads the certificates, and notices changes of their files from now on.
    ///
    /// # Errors
    ///
    /// If one of them cannot be used.
    pub(super) fn load(settings: &Settings) -> Result<Self, Error> {
        Ok(Self {
            api: Certificate::load("tls", settings.tls.as_ref())?,
            webhooks: Certificate::load("webhooks.tls", settings.webhooks.tls.as_ref())?,
            metrics: Certificate::load("metrics.tls", settings.metrics.tls.as_ref())?,
        })
    }

    /// Waits until the files of a certificate have changed.
    pub(super) async fn changed(&mut self) -> &Certificate {
        let Self { api, webhooks, metrics } = self;
        tokio::select! {
            () = api.files.changed() => api,
            () = webhooks.files.changed() => webhooks,
            () = metrics.files.changed() => metrics,
        }
    }
}

/// Reads the certificates of all listeners once.
///
/// # Errors
///
/// If one of them cannot be used.
pub(in crate::cli) fn check_certificates(settings: &Settings) -> Result<(), CliError> {
    Ok(Certificates::load(settings).map(drop)?)
}

impl Certificate {
    fn load(key: &'static str, settings: Option<&ListenTls>) -> Result<Self, Error> {
        let paths = settings.map(|tls| [tls.cert_file.clone(), tls.key_file.clone()]);
        let files = WatchedFiles::new(paths.into_iter().flatten());
        let tls = settings.map(ListenerTls::load).transpose();
        let tls = tls.map_err(|source| Error::Tls { key, source: Box::new(source) })?;
        settings.inspect(|files| warn_of_exposed_key(files));
        Ok(Self { key, tls, files })
    }

    /// The listener, with TLS if there is a certificate.
    pub(super) fn listener(&self, listener: TcpListener) -> Listener {
        match &self.tls {
            Some(tls) => Listener::Tls(listener, tls.clone()),
            None => Listener::Tcp(listener),
        }
    }

    /// Reads the certificate again. With an error the old one stays, and log, events and status say so.
    pub(super) fn reload(&self, running: &Running) {
        let Some(tls) = &self.tls else { return };
        let certificate = tls.files().cert_file.display();
        let key = self.key;
        match tls.reload() {
            Ok(()) => {
                tracing::info!(key, %certificate, "the certificate has changed; new connections get it");
                warn_of_exposed_key(tls.files());
                running.handle.problems().set(key, None);
                let message = format!("new connections get the certificate of {certificate}");
                running.record_event(EventKind::Normal, "CertificateReloaded", message);
            }
            Err(error) => {
                let reason = error_chain(&error);
                tracing::error!(key, reason, "the new certificate is refused, the old one stays");
                let message = format!("the new certificate is refused, the old one stays: {reason}");
                running.handle.problems().set(key, Some(message.clone()));
                running.record_event(EventKind::Warning, "CertificateRefused", message);
            }
        }
    }
}

fn warn_of_exposed_key(files: &ListenTls) {
    if is_key_exposed(files) {
        let path = files.key_file.display();
        tracing::warn!(%path, "every user of this machine can read the private key of the certificate");
    }
}
