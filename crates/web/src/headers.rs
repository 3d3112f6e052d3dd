//! The security headers of every answer.

use axum::response::Response;
use http::{HeaderMap, HeaderName, HeaderValue, header};

use super::page::style::content_security_policy;

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
