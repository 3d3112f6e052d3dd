//! One HTTP request to a service.

use std::{path::Path, time::Duration};

use driftless_model::{Mask, is_unprintable, root_cause};
use driftless_trust::{Trust, read_certificates};
use reqwest::{
    Method, StatusCode, Url,
    header::{self, HeaderMap},
};

use crate::error::Error;

/// The time to connect.
const CONNECT_WITHIN: Duration = Duration::from_secs(10);

/// The time for the whole answer.
const ANSWER_WITHIN: Duration = Duration::from_secs(30);

/// The largest answer that is read, in bytes.
const LARGEST_ANSWER: usize = 64 * 1024;

/// The longest part of an answer in an error, in characters.
const LONGEST_MESSAGE: usize = 200;

/// A request with a body.
pub(crate) struct Request {
    pub(crate) method: Method,
    pub(crate) url: Url,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Vec<u8>,
}

/// The answer of a service.
pub(crate) struct Answer {
    /// That of the request, which may be secret.
    pub(crate) url: Url,
    pub(crate) status: StatusCode,
    /// The target of a redirect, which may be secret.
    pub(crate) location: Option<String>,
    /// Its beginning.
    pub(crate) body: Vec<u8>,
}

impl Answer {
    /// A sentence about a redirect, with scheme and host of its target only.
    pub(crate) fn redirection(&self) -> Option<String> {
        let target = self.location.as_ref().filter(|_| self.status.is_redirection())?;
        let origin = self.url.join(target).ok()?.origin().ascii_serialization();
        Some(format!("it redirects to {origin}, and redirects are not followed: write the new address"))
    }

    /// The beginning of a text of the answer on one line. Servers repeat the URL of a request, so its parts are hidden.
    pub(crate) fn explanation(&self, text: &[u8]) -> String {
        let query = self.url.query().unwrap_or_default().split(['&', '=']);
        let written = self.url.path().split('/').chain(query).map(str::to_owned);
        let read = self.url.query_pairs().flat_map(|(name, value)| [name.into_owned(), value.into_owned()]);
        let parts: Vec<String> = written.chain(read).filter(|part| may_be_secret(part)).collect();
        let mask = Mask::without_codes().with_secret_values(parts.iter().map(String::as_str));
        explanation(mask.message(&String::from_utf8_lossy(text)).as_bytes())
    }
}

/// Whether a part of a URL is more than a short word, such as `api` or `v2`.
fn may_be_secret(part: &str) -> bool {
    part.len() >= 8 || (part.len() >= 4 && part.bytes().any(|byte| byte.is_ascii_digit()))
}

/// Sends a request. Redirects are not followed: they could lead the message and its secret elsewhere.
pub(crate) async fn send(request: Request, ca_file: Option<&Path>) -> Result<Answer, Error> {
    let Request { method, url, headers, body: sent } = request;
    let host = url.host_str().unwrap_or_default().to_owned();
    let mut builder = reqwest::Client::builder()
        .connect_timeout(CONNECT_WITHIN)
        .timeout(ANSWER_WITHIN)
        .redirect(reqwest::redirect::Policy::none())
        .user_agent(concat!("driftless/", env!("CARGO_PKG_VERSION")));
    // Plain http needs no certificates, and a small machine may have none.
    if url.scheme() == "http" {
        builder = builder.tls_certs_only([]);
    } else if let Some(path) = ca_file {
        let trusted = Trust::WithSystem.client_config(read_certificates(path)?);
        let fail = |reason: String| Error::Certificates { path: path.display().to_string(), reason };
        builder = builder.tls_backend_preconfigured(trusted.map_err(fail)?);
    }
    let client = builder.build().map_err(|error| unreachable(&host, &error))?;
    let sending = client.request(method, url.clone()).headers(headers).body(sent).send();
    let mut response = sending.await.map_err(|error| unreachable(&host, &error))?;
    let status = response.status();
    let location =
        response.headers().get(header::LOCATION).and_then(|it| it.to_str().ok()).map(str::to_owned);
    let mut body = Vec::new();
    while let Some(part) = response.chunk().await.map_err(|error| unreachable(&host, &error))? {
        let room = LARGEST_ANSWER - body.len();
        body.extend_from_slice(&part[..part.len().min(room)]);
        if body.len() == LARGEST_ANSWER {
            break;
        }
    }
    Ok(Answer { url, status, location, body })
}

/// The error's own text would contain the URL, which may be secret.
fn unreachable(host: &str, error: &reqwest::Error) -> Error {
    let reason = if error.is_timeout() {
        "it did not answer in time".to_owned()
    } else {
        root_cause(error).unwrap_or_else(|| "the connection broke".to_owned())
    };
    Error::Unreachable { host: host.to_owned(), reason }
}

/// The beginning of a text on one line.
pub(crate) fn explanation(body: &[u8]) -> String {
    let text = String::from_utf8_lossy(body);
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let line: String = line.chars().filter(|letter| !is_unprintable(*letter)).take(LONGEST_MESSAGE).collect();
    if line.is_empty() { "without a word".to_owned() } else { line }
}
