//! One request to the provider: bounded in size and time, and without redirects.

use std::{path::Path, time::Duration};

use driftless_model::{is_unprintable, root_cause};
use driftless_trust::{Trust, read_certificates};
use reqwest::{RequestBuilder, Url};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::error::Error;

const CONNECT_WITHIN: Duration = Duration::from_secs(5);
const ANSWER_WITHIN: Duration = Duration::from_secs(15);

/// The largest answer that is read, in bytes.
const LARGEST_ANSWER: usize = 512 * 1024;

/// The longest message of the provider, in characters.
const LONGEST_MESSAGE: usize = 200;

/// A client for the provider. It trusts the authorities of the system, and those of the file.
pub(crate) fn client(issuer: &str, ca_file: Option<&Path>) -> Result<reqwest::Client, Error> {
    let mut builder = reqwest::Client::builder()
        .connect_timeout(CONNECT_WITHIN)
        .timeout(ANSWER_WITHIN)
        .redirect(reqwest::redirect::Policy::none())
        .user_agent(concat!("driftless/", env!("CARGO_PKG_VERSION")));
    // Plain http needs no certificates, and a small machine may have none.
    if issuer.starts_with("http://") {
        builder = builder.tls_certs_only([]);
    } else if let Some(path) = ca_file {
        let trusted = Trust::WithSystem.client_config(read_certificates(path)?);
        let fail = |reason: String| Error::Certificates { path: path.display().to_string(), reason };
        builder = builder.tls_backend_preconfigured(trusted.map_err(fail)?);
    }
    builder.build().map_err(Error::Setup)
}

/// Sends a request and reads its answer in JSON.
pub(crate) async fn ask<T: DeserializeOwned>(
    doing: &'static str,
    url: &str,
    request: RequestBuilder,
) -> Result<T, Error> {
    let unreachable = |error: &reqwest::Error| Error::Unreachable {
        doing,
        host: Url::parse(url).ok().and_then(|url| url.host_str().map(str::to_owned)).unwrap_or_default(),
        reason: if error.is_timeout() {
            "it did not answer in time".to_owned()
        } else {
            root_cause(error).unwrap_or_else(|| "the connection broke".to_owned())
        },
    };
    let mut response = request.send().await.map_err(|error| unreachable(&error))?;
    let status = response.status();
    let mut body = Vec::new();
    while let Some(part) = response.chunk().await.map_err(|error| unreachable(&error))? {
        if body.len() + part.len() > LARGEST_ANSWER {
            return Err(Error::Malformed { doing, reason: "it is too long".to_owned() });
        }
        body.extend_from_slice(&part);
    }
    if !status.is_success() {
        return Err(Error::Refused { doing, status: status.as_u16(), message: explanation(&body) });
    }
    serde_json::from_slice(&body).map_err(|error| Error::Malformed { doing, reason: error.to_string() })
}

/// The error of an answer as OAuth writes it (RFC 6749, section 5.2). The text of another answer may be anything.
fn explanation(body: &[u8]) -> String {
    let answer: Value = serde_json::from_slice(body).unwrap_or_default();
    let texts = ["error", "error_description"].map(|key| answer.get(key).and_then(Value::as_str));
    let text = texts.into_iter().flatten().collect::<Vec<_>>().join(": ");
    if text.is_empty() { "without a reason".to_owned() } else { shown(&text) }
}

/// A text of the provider or of a browser, on one line and cut.
pub(crate) fn shown(text: &str) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    line.chars().filter(|letter| !is_unprintable(*letter)).take(LONGEST_MESSAGE).collect()
}
