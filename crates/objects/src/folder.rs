//! Requests to a folder of a WebDAV server.

use driftless_config::FleetFolder;
use reqwest::{Client, Method, RequestBuilder, header};

use crate::{credentials::SecretSource, error::Error};

/// Asks for the version and the time of each object.
const LIST: &str = r#"<?xml version="1.0" encoding="utf-8"?><propfind xmlns="DAV:"><prop><getlastmodified/><getetag/></prop></propfind>"#;

/// The folder.
pub(crate) struct FolderRequests(pub(crate) FleetFolder);

impl FolderRequests {
    /// Whether the server is asked without TLS.
    pub(crate) fn is_plain(&self) -> bool {
        self.0.url.starts_with("http://")
    }

    /// A request about an object; an empty name is the folder itself.
    pub(crate) fn request(
        &self,
        client: &Client,
        method: Method,
        name: &str,
        secrets: &SecretSource,
    ) -> Result<RequestBuilder, Error> {
        let request = client.request(method, format!("{}/{name}", self.0.url));
        Ok(match secrets.login(&self.0)? {
            Some((user, password)) => request.basic_auth(user, Some(password)),
            None => request,
        })
    }

    /// A request for the objects in the folder.
    pub(crate) fn list(&self, client: &Client, secrets: &SecretSource) -> Result<RequestBuilder, Error> {
        let request = self.request(client, method(b"PROPFIND")?, "", secrets)?;
        Ok(request.header("depth", "1").header(header::CONTENT_TYPE, "application/xml").body(LIST))
    }

    /// A request for the folder itself.
    pub(crate) fn create(&self, client: &Client, secrets: &SecretSource) -> Result<RequestBuilder, Error> {
        self.request(client, method(b"MKCOL")?, "", secrets)
    }
}

fn method(name: &[u8]) -> Result<Method, Error> {
    Method::from_bytes(name).map_err(|error| Error::Client(error.to_string()))
}
