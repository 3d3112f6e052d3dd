//! One request to a forge's API, and its errors.

use std::{
    fmt,
    path::PathBuf,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use reqwest::{
    ClientBuilder, Method, NoProxy, StatusCode, Url,
    header::{self, HeaderMap, HeaderName, HeaderValue},
};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::Value;

use crate::kind::ForgeKind;
use driftless_config::Proxy;
use driftless_model::{is_unprintable, root_cause};
use driftless_trust::{CaFileError, Trust, read_certificates};

/// The time to connect.
const CONNECT_WITHIN: Duration = Duration::from_secs(10);
/// The time for the whole answer.
const ANSWER_WITHIN: Duration = Duration::from_secs(30);

/// The longest pause that a forge may ask for.
const LONGEST_PAUSE: Duration = Duration::from_hours(1);

/// Maximum length of a forge's error message, in characters.
const LONGEST_MESSAGE: usize = 300;
/// The largest answer that is read, in bytes: a hundred comments of the greatest length.
const LARGEST_ANSWER: usize = 16 << 20;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("`{0}` is not the address of a forge's API: write it as https://HOST/PATH")]
    Address(String),
    #[error("`{0}` is not a repository of a forge: write it as OWNER/NAME")]
    Project(String),
    #[error("the forge's token has characters that a header cannot carry, or is empty")]
    Token,
    #[error("`{0}` is not the full id of a commit")]
    Commit(String),
    #[error("the comment is longer than a forge accepts")]
    TooLong,
    #[error("could not set up the connection to the forge")]
    Setup(#[source] reqwest::Error),
    #[error("could not use the certificate authorities: {0}")]
    CaFile(#[from] CaFileError),
    #[error("could not use the certificate authorities in {path}: {reason}")]
    Certificates { path: String, reason: String },
    /// The proxy's address is not repeated.
    #[error("the configured proxy cannot be used: write it as http://HOST:PORT")]
    Proxy,
    #[error("could not {doing}: {host} is unreachable: {reason}")]
    Unreachable { doing: String, host: String, reason: String },
    /// The forge refused; the message is its own. `retry_after`: the pause that it asks for, because it limits requests.
    #[error("could not {doing}: the forge answers {status}: {message}")]
    Refused { doing: String, status: StatusCode, message: String, retry_after: Option<Duration> },
    #[error("could not {doing}: the forge's answer cannot be read: {reason}")]
    Malformed { doing: String, reason: String },
}

impl Error {
    /// Whether the token lacks the right to write, as tokens of pull requests from forks do.
    pub fn is_permission(&self) -> bool {
        matches!(
            self,
            Self::Refused {
                status: StatusCode::FORBIDDEN | StatusCode::UNAUTHORIZED | StatusCode::NOT_FOUND,
                ..
            }
        )
    }
}

/// The way to a forge. The default trusts the authorities of the system, and uses the proxy of the environment.
#[derive(Clone, Debug, Default)]
pub struct Connection {
    /// A PEM file of further certificate authorities. It is read when the client is made.
    pub ca_file: Option<PathBuf>,
    pub proxy: Proxy,
}

impl Connection {
    fn apply(&self, builder: ClientBuilder, api: &Url) -> Result<ClientBuilder, Error> {
        let builder = match &self.proxy {
            // The environment is what a client uses by itself.
            Proxy::Environment => builder,
            Proxy::Direct => builder.no_proxy(),
            Proxy::Url(url) => {
                let proxy = reqwest::Proxy::all(url).map_err(|_| Error::Proxy)?;
                builder.proxy(proxy.no_proxy(NoProxy::from_env()))
            }
        };
        // Plain http needs no certificates, and a small machine may have none.
        if api.scheme() == "http" {
            return Ok(builder.tls_certs_only([]));
        }
        let Some(path) = &self.ca_file else { return Ok(builder) };
        let trusted = Trust::WithSystem.client_config(read_certificates(path)?);
        let fail = |reason: String| Error::Certificates { path: path.display().to_string(), reason };
        Ok(builder.tls_backend_preconfigured(trusted.map_err(fail)?))
    }
}

#[derive(Clone)]
pub(super) struct Caller {
    client: reqwest::Client,
    api: Url,
    headers: HeaderMap,
}

impl Caller {
    pub(super) fn new(
        kind: ForgeKind,
        api: Url,
        token: &str,
        connection: &Connection,
    ) -> Result<Self, Error> {
        let builder = reqwest::Client::builder()
            .connect_timeout(CONNECT_WITHIN)
            .timeout(ANSWER_WITHIN)
            .redirect(reqwest::redirect::Policy::none())
            .user_agent(concat!("driftless/", env!("CARGO_PKG_VERSION")));
        let client = connection.apply(builder, &api)?.build().map_err(Error::Setup)?;
        Ok(Self { client, api, headers: headers(kind, token)? })
    }

    pub(super) async fn get<T: DeserializeOwned>(&self, doing: &str, path: &str) -> Result<T, Error> {
        let body = self.send(doing, Method::GET, path, None).await?;
        serde_json::from_slice(&body)
            .map_err(|error| Error::Malformed { doing: doing.to_owned(), reason: error.to_string() })
    }

    pub(super) async fn post(&self, doing: &str, path: &str, body: &Value) -> Result<(), Error> {
        self.send(doing, Method::POST, path, Some(body)).await.map(drop)
    }

    pub(super) async fn put(&self, doing: &str, path: &str, body: &Value) -> Result<(), Error> {
        self.send(doing, Method::PUT, path, Some(body)).await.map(drop)
    }

    pub(super) async fn patch(&self, doing: &str, path: &str, body: &Value) -> Result<(), Error> {
        self.send(doing, Method::PATCH, path, Some(body)).await.map(drop)
    }

    async fn send(
        &self,
        doing: &str,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Vec<u8>, Error> {
        let url = format!("{}/{path}", self.api.as_str().trim_end_matches('/'));
        let mut request = self.client.request(method, url).headers(self.headers.clone());
        if let Some(body) = body {
            request = request.header(header::CONTENT_TYPE, "application/json").body(body.to_string());
        }
        let mut response = request.send().await.map_err(|error| self.unreachable(doing, &error))?;
        let status = response.status();
        let mut answer = Vec::new();
        while let Some(part) = response.chunk().await.map_err(|error| self.unreachable(doing, &error))? {
            if answer.len() + part.len() > LARGEST_ANSWER {
                let reason = "it is too long".to_owned();
                return Err(Error::Malformed { doing: doing.to_owned(), reason });
            }
            answer.extend_from_slice(&part);
        }
        if status.is_success() {
            return Ok(answer);
        }
        let retry_after = retry_after(status, response.headers());
        let message = match response.headers().get(header::LOCATION).and_then(|it| it.to_str().ok()) {
            Some(target) if status.is_redirection() => redirection(response.url(), target),
            _ => explanation(&answer),
        };
        Err(Error::Refused { doing: doing.to_owned(), status, message, retry_after })
    }

    fn unreachable(&self, doing: &str, error: &reqwest::Error) -> Error {
        let reason = if error.is_timeout() {
            "it did not answer in time".to_owned()
        } else {
            // The innermost cause is the useful one.
            root_cause(error).unwrap_or_else(|| "the connection broke".to_owned())
        };
        let host = self.api.host_str().unwrap_or_default().to_owned();
        Error::Unreachable { doing: doing.to_owned(), host, reason }
    }
}

/// Prints no token.
impl fmt::Debug for Caller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Caller").field("api", &self.api.as_str()).finish_non_exhaustive()
    }
}

fn headers(kind: ForgeKind, token: &str) -> Result<HeaderMap, Error> {
    if token.is_empty() {
        return Err(Error::Token);
    }
    let (name, value) = match kind {
        ForgeKind::GitHub => (header::AUTHORIZATION, format!("Bearer {token}")),
        ForgeKind::GitLab => (HeaderName::from_static("private-token"), token.to_owned()),
        ForgeKind::Gitea => (header::AUTHORIZATION, format!("token {token}")),
    };
    let mut secret = HeaderValue::from_str(&value).map_err(|_| Error::Token)?;
    secret.set_sensitive(true);
    let accept = match kind {
        ForgeKind::GitHub => "application/vnd.github+json",
        ForgeKind::GitLab | ForgeKind::Gitea => "application/json",
    };
    let mut headers = HeaderMap::from_iter([(name, secret)]);
    headers.insert(header::ACCEPT, HeaderValue::from_static(accept));
    if kind == ForgeKind::GitHub {
        headers.insert("x-github-api-version", HeaderValue::from_static("2022-11-28"));
    }
    Ok(headers)
}

/// The pause that a forge asks for: `Retry-After`, or the rest of the time of a limit that is used up. Dates count by its own clock.
///
/// Sources: RFC 9110, section 10.2.3; "Rate limits for the REST API" of GitHub.
fn retry_after(status: StatusCode, headers: &HeaderMap) -> Option<Duration> {
    if !matches!(status.as_u16(), 403 | 429 | 503) {
        return None;
    }
    let text = |name| headers.get(name).and_then(|value: &HeaderValue| value.to_str().ok()).map(str::trim);
    let date = |text| httpdate::parse_http_date(text).ok();
    let until = |end: SystemTime| Some(end.duration_since(date(text("date")?)?).unwrap_or_default());
    let asked = match text("retry-after") {
        Some(asked) => match asked.parse() {
            Ok(seconds) => Duration::from_secs(seconds),
            Err(_) => until(date(asked)?)?,
        },
        None if text("x-ratelimit-remaining") == Some("0") => {
            let reset = Duration::from_secs(text("x-ratelimit-reset")?.parse().ok()?);
            until(UNIX_EPOCH.checked_add(reset)?)?
        }
        None => return None,
    };
    Some(asked.min(LONGEST_PAUSE))
}

/// The new address of a request, which is not followed: the token could go elsewhere.
fn redirection(url: &Url, target: &str) -> String {
    let Ok(mut target) = url.join(target) else {
        return "it redirects to an address that is none".to_owned();
    };
    target.set_query(None);
    let _ = (target.set_username(""), target.set_password(None));
    let target = explanation(target.as_str().as_bytes());
    format!("it redirects to {target}, which is not followed: was the repository renamed?")
}

/// The forge's error message: `message` or `error` of its JSON, on one line.
fn explanation(body: &[u8]) -> String {
    #[derive(Deserialize)]
    struct ErrorMessage {
        #[serde(default)]
        message: Option<Value>,
        #[serde(default)]
        error: Option<Value>,
    }
    let said = serde_json::from_slice::<ErrorMessage>(body).ok().and_then(|it| it.message.or(it.error));
    let text = match said {
        Some(Value::String(text)) => text,
        Some(other) => other.to_string(),
        None => String::from_utf8_lossy(body).into_owned(),
    };
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let line: String = line.chars().filter(|letter| !is_unprintable(*letter)).take(LONGEST_MESSAGE).collect();
    if line.is_empty() { "without a word".to_owned() } else { line }
}
