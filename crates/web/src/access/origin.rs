//! The origin of a request: the host name that a client used, and the page that a browser sent it from.

use std::net::IpAddr;

use http::{HeaderMap, HeaderValue, header};

use crate::error::Error;

/// The longest part of a header that a message repeats, in characters.
const LONGEST_NAME: usize = 200;

/// Whether `Host` names loopback. Another site can resolve its own name to 127.0.0.1 (DNS rebinding), but the browser
/// still sends that name.
pub(crate) fn names_loopback(headers: &HeaderMap) -> bool {
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

/// The refusal of a request that a page of another origin has sent, as the headers of the browser say. `None`: they do not say so.
pub(crate) fn foreign_refusal(headers: &HeaderMap) -> Option<Error> {
    if !is_cross_origin(headers) {
        return None;
    }
    let text = |name: header::HeaderName| {
        let text = headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
        text.chars().take(LONGEST_NAME).collect::<String>()
    };
    let (origin, host) = (text(header::ORIGIN), text(header::HOST));
    let is_other_site = headers.get("sec-fetch-site").is_some_and(|value| value != "same-origin");
    // Not every browser names the site. So this may be a page of somebody else, or a proxy that has changed `Host`.
    if origin.starts_with("http") && !is_other_site {
        return Some(Error::OtherHost { origin, host });
    }
    Some(Error::Forbidden("a page of another origin may neither log in nor act nor read here".to_owned()))
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

/// Whether the browser says that a page of another site began the request, or led to it.
pub(crate) fn is_cross_site(headers: &HeaderMap) -> bool {
    headers.get("sec-fetch-site").is_some_and(|value| value == "cross-site")
}

/// Whether the browser says that a page of this agent sent the request. Every browser sends `Origin` with a form.
pub(crate) fn is_same_origin(headers: &HeaderMap) -> bool {
    let says = headers.contains_key(header::ORIGIN)
        || headers.get("sec-fetch-site").is_some_and(|value| value == "same-origin");
    says && !is_cross_origin(headers)
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

    #[test]
    fn changed_host_is_no_other_site() {
        let (host, origin) = (("host", "127.0.0.1:8484"), ("origin", "https://driftless.example.com"));
        assert_eq!(foreign_refusal(&headers(&[host])), None);
        let changed = Some(Error::OtherHost {
            origin: "https://driftless.example.com".to_owned(),
            host: "127.0.0.1:8484".to_owned(),
        });
        assert_eq!(foreign_refusal(&headers(&[host, origin])), changed);
        assert_eq!(foreign_refusal(&headers(&[host, origin, ("sec-fetch-site", "same-origin")])), changed);
        for foreign in [vec![host, origin, ("sec-fetch-site", "cross-site")], vec![host, ("origin", "null")]]
        {
            let refusal = foreign_refusal(&headers(&foreign));
            assert!(matches!(refusal, Some(Error::Forbidden(_))), "{refusal:?}");
        }
    }

    #[test]
    fn same_origin_must_be_said() {
        let host = ("host", "127.0.0.1:8484");
        assert!(!is_same_origin(&headers(&[host])));
        assert!(is_same_origin(&headers(&[host, ("origin", "https://127.0.0.1:8484")])));
        assert!(is_same_origin(&headers(&[host, ("sec-fetch-site", "same-origin")])));
        assert!(!is_same_origin(&headers(&[host, ("sec-fetch-site", "none")])));
        assert!(!is_same_origin(&headers(&[host, ("origin", "null")])));
    }
}
