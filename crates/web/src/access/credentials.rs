//! The credentials in the headers of a request.

use std::net::IpAddr;

use base64::{Engine, prelude::BASE64_STANDARD};
use http::{HeaderMap, HeaderName, header};

/// The token of `Bearer`, or the password of `Basic`.
pub(super) fn given_token(headers: &HeaderMap) -> Option<String> {
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

/// The value of a cookie.
pub(super) fn cookie<'h>(headers: &'h HeaderMap, name: &str) -> Option<&'h str> {
    let pairs = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
    pairs.flat_map(|value| value.split(';')).find_map(|pair| {
        let (key, value) = pair.trim().split_once('=')?;
        (key == name).then_some(value)
    })
}

/// The only value of a header, without white space around it. A header that is sent twice has none: a proxy may have
/// added its own to that of the client.
pub(super) fn only_value<'h>(headers: &'h HeaderMap, name: &str) -> Option<&'h str> {
    let name = HeaderName::try_from(name).ok()?;
    let mut values = headers.get_all(name).iter();
    let (Some(value), None) = (values.next(), values.next()) else { return None };
    value.to_str().ok().map(str::trim).filter(|value| !value.is_empty())
}

/// The last address in `X-Forwarded-For`, which the nearest proxy has added.
pub(super) fn forwarded_for(headers: &HeaderMap) -> Option<IpAddr> {
    let last = headers.get_all("x-forwarded-for").iter().next_back()?;
    last.to_str().ok()?.rsplit(',').next()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(*name, value.parse().unwrap());
        }
        headers
    }

    #[test]
    fn token_is_read_from_bearer_and_basic() {
        let basic = |text: &str| format!("Basic {}", BASE64_STANDARD.encode(text));
        for good in ["Bearer 0123".to_owned(), basic(":0123"), basic("me:0123")] {
            assert_eq!(given_token(&headers(&[("authorization", &good)])).as_deref(), Some("0123"), "{good}");
        }
        for bad in ["Bearer", "0123", "Basic !", "Digest 0123"] {
            assert_eq!(given_token(&headers(&[("authorization", bad)])), None, "{bad}");
        }
    }

    #[test]
    fn headers_that_are_sent_twice_have_no_value() {
        let twice = headers(&[("remote-user", "ada"), ("remote-user", "admin")]);
        assert_eq!(only_value(&twice, "remote-user"), None);
        assert_eq!(only_value(&headers(&[("remote-user", " ada ")]), "remote-user"), Some("ada"));
    }

    #[test]
    fn nearest_proxy_names_the_client() {
        let headers = headers(&[("x-forwarded-for", "192.0.2.66, 203.0.113.7")]);
        assert_eq!(forwarded_for(&headers), Some("203.0.113.7".parse().unwrap()));
    }

    #[test]
    fn cookie_is_found_among_others() {
        let headers = headers(&[("cookie", "a=1; driftless_session=x.y; b=2")]);
        assert_eq!(cookie(&headers, "driftless_session"), Some("x.y"));
        assert_eq!(cookie(&headers, "session"), None);
    }
}
