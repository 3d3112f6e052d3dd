//! The certificate of the listener: read at the start, and again when its files change.

use std::path::PathBuf;

use driftless_agent::Running;
use driftless_config::ListenTls;
use driftless_model::{EventKind, error_chain};
use driftless_web::{ListenerTls, is_key_exposed};

use super::error::Error;

/// The subject of the problem in the status of the agent.
const SUBJECT: &str = "tls";

/// The files to watch.
pub(super) fn files(settings: Option<&ListenTls>) -> Vec<PathBuf> {
    settings.map(|tls| vec![tls.cert_file.clone(), tls.key_file.clone()]).unwrap_or_default()
}

/// Reads the certificate, if there is one.
pub(super) fn load(settings: Option<&ListenTls>) -> Result<Option<ListenerTls>, Error> {
    let Some(files) = settings else { return Ok(None) };
    let tls = ListenerTls::load(files).map_err(Error::Tls)?;
    warn_of_exposed_key(files);
    Ok(Some(tls))
}

/// Reads the certificate again. With an error the old one stays, and log, events and status say so.
pub(super) fn reload(tls: Option<&ListenerTls>, running: &Running) {
    let Some(tls) = tls else { return };
    let certificate = tls.files().cert_file.display();
    match tls.reload() {
        Ok(()) => {
            tracing::info!(%certificate, "the certificate has changed; new connections get it");
            warn_of_exposed_key(tls.files());
            running.handle.problems().set(SUBJECT, None);
            let message = format!("new connections get the certificate of {certificate}");
            running.record_event(EventKind::Normal, "CertificateReloaded", message);
        }
        Err(error) => {
            let reason = error_chain(&error);
            tracing::error!(reason, "the new certificate is refused, the old one stays");
            let message = format!("the new certificate is refused, the old one stays: {reason}");
            running.handle.problems().set(SUBJECT, Some(message.clone()));
            running.record_event(EventKind::Warning, "CertificateRefused", message);
        }
    }
}

fn warn_of_exposed_key(files: &ListenTls) {
    if is_key_exposed(files) {
        let path = files.key_file.display();
        tracing::warn!(%path, "every user of this machine can read the private key of the certificate");
    }
}
