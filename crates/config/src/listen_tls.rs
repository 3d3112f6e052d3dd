//! TLS of the API and the page, and of the listeners for webhooks and metrics alone.

use std::path::PathBuf;

use crate::{
    keys,
    value::{Fields as _, Object, Value},
};

/// The PEM files of the agent's own certificate. They are read again when they change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListenTls {
    /// The certificate, followed by the intermediate ones.
    pub cert_file: PathBuf,
    /// The private key of the certificate.
    pub key_file: PathBuf,
}

/// Reads the value of `tls`.
pub(super) fn listen_tls(value: Value<'_>) -> Option<ListenTls> {
    let object = value.object(&keys::LISTEN_TLS)?;
    object.require("certFile");
    object.require("keyFile");
    Some(ListenTls { cert_file: object.absolute("certFile")?, key_file: object.absolute("keyFile")? })
}

/// Reads `tls` of a section with a listener of its own: `webhooks` or `metrics`.
pub(super) fn own_listener_tls(object: &Object<'_>) -> Option<ListenTls> {
    let value = object.get("tls")?;
    if object.get("listen").is_none() {
        value.error(
            "this is the certificate of `listen`, which is missing: add it, or use the top-level `tls`",
        );
    }
    listen_tls(value)
}
