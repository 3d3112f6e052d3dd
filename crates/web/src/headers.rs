//! The security headers of every answer.

use axum::response::Response;
use http::{HeaderMap, HeaderName, HeaderValue, header};

/// The page's own style, script and requests, and nothing else; no other page may frame it.
const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; \
                                       img-src data:; base-uri 'none'; form-action 'self'; frame-ancestors 'none'";

/// Adds the security headers of every answer: no caching, no framing, no sniffing, nothing from other origins.
pub(super) async fn harden(mut response: Response) -> Response {
    let headers = response.headers_mut();
    let add = |headers: &mut HeaderMap, name, value: HeaderValue| {
        headers.entry(name).or_insert(value);
    };
    add(headers, header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(CONTENT_SECURITY_POLICY));
    add(headers, header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    add(headers, header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    add(headers, header::X_FRAME_OPTIONS, HeaderValue::from_static("DENY"));
    let own_pages_only = HeaderValue::from_static("same-origin");
    add(headers, HeaderName::from_static("cross-origin-resource-policy"), own_pages_only);
    // Without any referrer a browser would send a form of this page with `Origin: null`.
    add(headers, header::REFERRER_POLICY, HeaderValue::from_static("same-origin"));
    response
}
