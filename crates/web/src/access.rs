//! Who may ask. Without a token: only programs of this machine, and no web page of a stranger that makes a
//! browser of this machine ask. With a token: whoever sends it, as `Bearer` or, from a browser, as the
//! password of HTTP Basic.
//!
//! It knows no users and no rights: who may read may also act.

use std::{fmt, net::IpAddr};

use axum::{
    extract::{Request, State},
    middleware::Next,
    response::{IntoResponse, Response},
};
use base64::{Engine, prelude::BASE64_STANDARD};
use http::{HeaderMap, HeaderValue, Method, header};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use super::{Shared, error::Error, page};

/// The condition under which a request is answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Access {
    /// The listener is on loopback: no token, but only under loopback's own names.
    Loopback,
    Token(Token),
}

/// The digest of a token. The token itself is not kept.
#[derive(Clone, PartialEq, Eq)]
pub struct Token([u8; 32]);

/// Why a text is no token.
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
    /// Shorter ones can be guessed through the network.
    pub const SHORTEST: usize = 16;

    /// Takes a token, without the white space around it, as a file usually ends in a line break.
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

    /// Compares digests, in a time that tells nothing about either text.
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
    /// Whether a request with these headers may know more than yes or no.
    pub(super) fn admits(&self, headers: &HeaderMap) -> bool {
        match self {
            Self::Loopback => names_loopback(headers),
            Self::Token(token) => given_token(headers).is_some_and(|it| token.admits(&it)),
        }
    }
}

/// Lets a request pass, or answers it.
pub(super) async fn guard(State(shared): State<Shared>, request: Request, next: Next) -> Response {
    let headers = request.headers();
    match shared.access.as_ref() {
        Access::Loopback if !names_loopback(headers) => {
            return Error::Forbidden("without a token, only requests to localhost are answered")
                .into_response();
        }
        Access::Token(_) if !shared.access.admits(headers) => return unauthorized(),
        Access::Loopback | Access::Token(_) => {}
    }
    // A browser adds credentials of Basic by itself, so a token alone does not prove who wrote the request.
    let acts = !matches!(*request.method(), Method::GET | Method::HEAD | Method::OPTIONS);
    if acts && comes_from_elsewhere(headers) {
        return Error::Forbidden("a page of another origin may not act here").into_response();
    }
    next.run(request).await
}

/// Headers that every answer has: nothing is cached, framed, guessed or fetched from elsewhere.
pub(super) async fn harden(mut response: Response) -> Response {
    let headers = response.headers_mut();
    let add = |headers: &mut HeaderMap, name, value: HeaderValue| {
        headers.entry(name).or_insert(value);
    };
    add(headers, header::CONTENT_SECURITY_POLICY, page::content_security_policy());
    add(headers, header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    add(headers, header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    add(headers, header::X_FRAME_OPTIONS, HeaderValue::from_static("DENY"));
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

/// Another site can make its own name point to 127.0.0.1 (DNS rebinding), but not change the name that the
/// browser then sends.
fn names_loopback(headers: &HeaderMap) -> bool {
    let Some(host) = headers.get(header::HOST).and_then(|it| it.to_str().ok()) else { return false };
    let name = host_name(host);
    name.eq_ignore_ascii_case("localhost") || name.parse::<IpAddr>().is_ok_and(|it| it.is_loopback())
}

/// `[::1]:80` → `::1`, `localhost:80` → `localhost`.
fn host_name(host: &str) -> &str {
    match host.strip_prefix('[') {
        Some(rest) => rest.split_once(']').map_or("", |(name, _)| name),
        None => host.split_once(':').map_or(host, |(name, _)| name),
    }
}

/// Whether a browser says that the request was written by a page of another origin.
fn comes_from_elsewhere(headers: &HeaderMap) -> bool {
    let host = headers.get(header::HOST).map(HeaderValue::as_bytes);
    let foreign_origin = headers.get(header::ORIGIN).is_some_and(|origin| {
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
    fn loopback_is_known_by_its_own_names_only() {
        for good in ["localhost", "LOCALHOST:8484", "127.0.0.1:1", "127.8.8.8", "[::1]", "[::1]:8484"] {
            assert!(names_loopback(&headers(&[("host", good)])), "{good}");
        }
        for bad in ["evil.example", "localhost.evil.example", "10.0.0.1", "[::2]:8484", "", "[::1", "0.0.0.0"]
        {
            assert!(!names_loopback(&headers(&[("host", bad)])), "{bad}");
        }
        assert!(!names_loopback(&HeaderMap::new()));
    }

    #[test]
    fn a_token_comes_as_bearer_or_as_any_users_password() {
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
    fn a_token_must_be_long_and_fit_into_a_header() {
        assert_eq!(Token::new(" \n"), Err(TokenError::Empty));
        assert_eq!(Token::new("short"), Err(TokenError::Short));
        assert_eq!(Token::new("with a space in between"), Err(TokenError::Unprintable));
        assert_eq!(format!("{:?}", Token::new("0123456789abcdef")), "Ok(Token)");
    }

    #[test]
    fn only_a_browser_on_our_own_page_or_no_browser_may_act() {
        let host = ("host", "127.0.0.1:8484");
        assert!(!comes_from_elsewhere(&headers(&[host])));
        assert!(!comes_from_elsewhere(&headers(&[host, ("origin", "http://127.0.0.1:8484")])));
        for origin in
            ["http://evil.example", "null", "http://127.0.0.1:8485", "http://127.0.0.1:8484.evil.example"]
        {
            assert!(comes_from_elsewhere(&headers(&[host, ("origin", origin)])), "{origin}");
        }
        assert!(comes_from_elsewhere(&headers(&[host, ("sec-fetch-site", "cross-site")])));
    }
}
