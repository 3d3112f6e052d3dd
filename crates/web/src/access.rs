//! Access control. Without a token only programs of this machine are answered, and no web page of another origin; only root
//! and the agent's own user may act and read logs.
//! With a token, every client that sends it, as `Bearer` or as the password of HTTP Basic.
//!
//! There are no users and no scopes: a client that may read may also act.

use std::{fmt, net::IpAddr, sync::Arc};

use axum::{
    extract::{Request, State},
    middleware::Next,
    response::{IntoResponse, Response},
};
use base64::{Engine, prelude::BASE64_STANDARD};
use http::{HeaderMap, HeaderName, HeaderValue, Method, header};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;
use tokio::sync::Semaphore;

use super::{
    error::Error, limits::MOST_REQUESTS, page::style::content_security_policy, peer::Peer, serve::Seat,
};

/// The requests that are answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Access {
    /// The listener is on loopback: no token, and only host names of loopback.
    Loopback,
    Token(Token),
}

/// The digest of a token. The token itself is not kept.
#[derive(Clone, PartialEq, Eq)]
pub struct Token([u8; 32]);

/// Why a text is not a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    #[error("the token is empty")]
    Empty,
    #[error("the token is shorter than {} characters", Token::SHORTEST)]
    Short,
    #[error("the token has characters that a header cannot carry; use letters, digits, `-` and `_`")]
    Unprintable,
}

impl Token {
    /// In characters. A shorter token can be guessed over the network.
    pub const SHORTEST: usize = 16;

    /// Reads a token and trims white space, because a file usually ends with a line break.
    pub fn new(text: &str) -> Result<Self, TokenError> {
        let text = text.trim();
        if text.is_empty() {
            return Err(TokenError::Empty);
        }
        if !text.bytes().all(|it| it.is_ascii_graphic()) {
            return Err(TokenError::Unprintable);
        }
        if text.len() < Self::SHORTEST {
            return Err(TokenError::Short);
        }
        Ok(Self(Sha256::digest(text).into()))
    }

    /// Compares digests in constant time.
    fn admits(&self, given: &str) -> bool {
        let given: [u8; 32] = Sha256::digest(given).into();
        self.0.ct_eq(&given).into()
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token")
    }
}

impl Access {
    /// Whether a request with these headers may see details.
    pub(super) fn admits(&self, headers: &HeaderMap) -> bool {
        match self {
            Self::Loopback => names_loopback(headers),
            Self::Token(token) => given_token(headers).is_some_and(|it| token.admits(&it)),
        }
    }
}

/// The state of [`guard`].
#[derive(Clone)]
pub(super) struct Guard {
    access: Arc<Access>,
    /// Requests that are answered at the same time. Connections beyond them stay free for webhooks and probes.
    requests: Arc<Semaphore>,
}

impl Guard {
    pub(super) fn new(access: Arc<Access>) -> Self {
        Self { access, requests: Arc::new(Semaphore::new(MOST_REQUESTS)) }
    }
}

/// Passes a request on, or answers it with an error.
pub(super) async fn guard(State(guard): State<Guard>, request: Request, next: Next) -> Response {
    let Guard { access, requests } = guard;
    let headers = request.headers();
    match access.as_ref() {
        Access::Loopback if !names_loopback(headers) => {
            return Error::Forbidden("without a token, only requests to localhost are answered")
                .into_response();
        }
        Access::Token(_) if !access.admits(headers) => return unauthorized(),
        Access::Loopback | Access::Token(_) => {}
    }
    // A browser adds Basic credentials by itself, so a token alone does not prove which page sent the request.
    let acts = !matches!(*request.method(), Method::GET | Method::HEAD | Method::OPTIONS);
    if is_cross_origin(headers) && (acts || !is_navigation(&request)) {
        return Error::Forbidden("a page of another origin may neither act nor read here").into_response();
    }
    let is_open = matches!(*access, Access::Loopback);
    let peer = request.extensions().get::<Peer>().copied();
    if is_open && (acts || is_logs(request.uri().path())) && !is_trusted(peer).await {
        return Error::Forbidden(
            "without a token, only programs of root and of the agent's user may act and read logs",
        )
        .into_response();
    }
    let Ok(permit) = requests.try_acquire_owned() else {
        return Error::Busy("the agent answers too many requests: try again".to_owned()).into_response();
    };
    let mut response = next.run(request).await;
    response.extensions_mut().insert(Seat::new(permit));
    response
}

/// Whether this is the route of logs, which may contain anything that a program prints.
fn is_logs(path: &str) -> bool {
    path.trim_end_matches('/').ends_with("/logs")
}

/// Whether the client is a program of root or of the agent's user. A request without a connection is the process's own.
async fn is_trusted(peer: Option<Peer>) -> bool {
    let Some(peer) = peer else { return true };
    tokio::task::spawn_blocking(move || peer.is_trusted_user()).await.unwrap_or_default()
}

/// Whether a browser opens the page because somebody followed a link. The page itself does nothing.
fn is_navigation(request: &Request) -> bool {
    let is = |name: &str, wanted: &[u8]| {
        request.headers().get(name).is_some_and(|value| value.as_bytes() == wanted)
    };
    request.uri().path() == "/" && is("sec-fetch-mode", b"navigate") && is("sec-fetch-dest", b"document")
}

/// Adds the security headers of every answer: no caching, no framing, no sniffing, nothing from other origins.
pub(super) async fn harden(mut response: Response) -> Response {
    let headers = response.headers_mut();
    let add = |headers: &mut HeaderMap, name, value: HeaderValue| {
        headers.entry(name).or_insert(value);
    };
    add(headers, header::CONTENT_SECURITY_POLICY, content_security_policy());
    add(headers, header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    add(headers, header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    add(headers, header::X_FRAME_OPTIONS, HeaderValue::from_static("DENY"));
    let own_pages_only = HeaderValue::from_static("same-origin");
    add(headers, HeaderName::from_static("cross-origin-resource-policy"), own_pages_only);
    add(headers, header::REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    response
}

fn unauthorized() -> Response {
    let mut response = Error::Unauthorized.into_response();
    let challenge = HeaderValue::from_static(r#"Basic realm="Driftless: the token is the password""#);
    response.headers_mut().insert(header::WWW_AUTHENTICATE, challenge);
    response
}

/// The token of `Bearer`, or the password of `Basic`.
fn given_token(headers: &HeaderMap) -> Option<String> {
    let (scheme, rest) = headers.get(header::AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    let rest = rest.trim();
    if scheme.eq_ignore_ascii_case("bearer") {
        return Some(rest.to_owned());
    }
    if !scheme.eq_ignore_ascii_case("basic") {
        return None;
    }
    let decoded = String::from_utf8(BASE64_STANDARD.decode(rest).ok()?).ok()?;
    decoded.split_once(':').map(|(_, password)| password.to_owned())
}

/// Whether `Host` names loopback. Another site can resolve its own name to 127.0.0.1 (DNS rebinding), but the browser
/// still sends that name.
pub(super) fn names_loopback(headers: &HeaderMap) -> bool {
    let mut hosts = headers.get_all(header::HOST).iter();
    let (Some(host), None) = (hosts.next(), hosts.next()) else { return false };
    let Some(name) = host.to_str().ok().and_then(host_name) else { return false };
    name.eq_ignore_ascii_case("localhost") || name.parse::<IpAddr>().is_ok_and(|it| it.is_loopback())
}

/// `[::1]:80` → `::1`, `localhost:80` → `localhost`. `None` if it is no host with an optional port.
fn host_name(host: &str) -> Option<&str> {
    let (name, rest) = match host.strip_prefix('[') {
        Some(rest) => rest.split_once(']')?,
        None => host.split_at(host.find(':').unwrap_or(host.len())),
    };
    let is_port = rest.strip_prefix(':').map_or(rest.is_empty(), |port| port.parse::<u16>().is_ok());
    is_port.then_some(name)
}

/// Whether the browser's headers say that a page of another origin sent the request.
fn is_cross_origin(headers: &HeaderMap) -> bool {
    let host = headers.get(header::HOST).map(HeaderValue::as_bytes);
    let foreign_origin = headers.get_all(header::ORIGIN).iter().any(|origin| {
        let origin = origin.as_bytes();
        let authority = origin.strip_prefix(b"http://").or_else(|| origin.strip_prefix(b"https://"));
        authority.is_none() || authority != host
    });
    let foreign_site =
        headers.get("sec-fetch-site").is_some_and(|it| !matches!(it.as_bytes(), b"same-origin" | b"none"));
    foreign_origin || foreign_site
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect()
    }

    #[test]
    fn only_loopback_host_names_are_accepted() {
        for good in ["localhost", "LOCALHOST:8484", "127.0.0.1:1", "127.8.8.8", "[::1]", "[::1]:8484"] {
            assert!(names_loopback(&headers(&[("host", good)])), "{good}");
        }
        for bad in [
            "evil.example",
            "localhost.evil.example",
            "localhost:evil.example",
            "[::1]evil",
            "10.0.0.1",
            "[::2]:8484",
            "",
            "[::1",
            "0.0.0.0",
        ] {
            assert!(!names_loopback(&headers(&[("host", bad)])), "{bad}");
        }
        assert!(!names_loopback(&HeaderMap::new()));
        let mut two = headers(&[("host", "localhost")]);
        two.append(header::HOST, HeaderValue::from_static("evil.example"));
        assert!(!names_loopback(&two));
    }

    #[test]
    fn token_is_accepted_as_bearer_or_basic_password() {
        let access = Access::Token(Token::new("0123456789abcdef\n").unwrap());
        let basic = |text: &str| format!("Basic {}", BASE64_STANDARD.encode(text));
        for good in
            ["Bearer 0123456789abcdef".to_owned(), basic(":0123456789abcdef"), basic("me:0123456789abcdef")]
        {
            assert!(access.admits(&headers(&[("authorization", &good)])), "{good}");
        }
        for bad in
            ["Bearer 0123456789abcdee", "Bearer", "0123456789abcdef", "Basic !", "Digest 0123456789abcdef"]
        {
            assert!(!access.admits(&headers(&[("authorization", bad)])), "{bad}");
        }
        assert!(!access.admits(&HeaderMap::new()));
    }

    #[test]
    fn token_must_be_long_and_printable() {
        assert_eq!(Token::new(" \n"), Err(TokenError::Empty));
        assert_eq!(Token::new("short"), Err(TokenError::Short));
        assert_eq!(Token::new("with a space in between"), Err(TokenError::Unprintable));
        assert_eq!(format!("{:?}", Token::new("0123456789abcdef")), "Ok(Token)");
    }

    #[test]
    fn cross_origin_requests_are_recognised() {
        let host = ("host", "127.0.0.1:8484");
        assert!(!is_cross_origin(&headers(&[host])));
        assert!(!is_cross_origin(&headers(&[host, ("origin", "http://127.0.0.1:8484")])));
        for origin in
            ["http://evil.example", "null", "http://127.0.0.1:8485", "http://127.0.0.1:8484.evil.example"]
        {
            assert!(is_cross_origin(&headers(&[host, ("origin", origin)])), "{origin}");
        }
        assert!(is_cross_origin(&headers(&[host, ("sec-fetch-site", "cross-site")])));
    }
}
