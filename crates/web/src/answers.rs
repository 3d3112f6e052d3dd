//! The end of all answers: an `ETag` for JSON, and compression with gzip.

use std::io::Write as _;

use axum::{
    body::{Body, to_bytes},
    extract::Request,
    middleware::Next,
    response::{IntoResponse, Response},
};
use driftless_model::digest_hex;
use flate2::{Compression, write::GzEncoder};
use http::{HeaderMap, HeaderValue, Method, StatusCode, header, response::Parts};
use hyper::body::{Body as _, Bytes};

/// The smallest body that is compressed, in bytes. A smaller one fits in one packet.
const SMALLEST: u64 = 1024;

/// The largest body that is compressed while other requests of the thread wait, in bytes.
const LARGEST_AT_ONCE: usize = 64 * 1024;

/// Gives JSON that was read an `ETag`, answers 304 to a client that has it, and compresses text for a client that accepts
/// gzip. Streams pass as they are.
pub(super) async fn finish(request: Request, next: Next) -> Response {
    let is_read = *request.method() == Method::GET;
    let headers = request.headers().clone();
    let response = next.run(request).await;
    let is_text = is_text(response.headers());
    let is_whole = response.body().size_hint().exact().is_some_and(|size| size > 0);
    if !is_read || !is_text || !is_whole || response.headers().contains_key(header::CONTENT_ENCODING) {
        return response;
    }
    let (mut parts, body) = response.into_parts();
    let Ok(body) = to_bytes(body, usize::MAX).await else {
        // It is in memory already, so this does not happen.
        return StatusCode::INTERNAL_SERVER_ERROR.into_response();
    };
    if parts.status == StatusCode::OK && is_json(&parts.headers) {
        let tag = tag_of(&body);
        let is_known = headers.get(header::IF_NONE_MATCH).is_some_and(|known| names(known, &tag));
        if let Ok(tag) = HeaderValue::from_str(&tag) {
            parts.headers.insert(header::ETAG, tag);
        }
        if is_known {
            parts.status = StatusCode::NOT_MODIFIED;
            parts.headers.remove(header::CONTENT_TYPE);
            parts.headers.remove(header::CONTENT_LENGTH);
            return Response::from_parts(parts, Body::empty());
        }
    }
    compress(parts, body, &headers).await
}

/// Compresses a body if the client accepts that and it is worth it.
async fn compress(mut parts: Parts, body: Bytes, request: &HeaderMap) -> Response {
    parts.headers.append(header::VARY, HeaderValue::from_static("accept-encoding"));
    if !accepts_gzip(request) || body.len() as u64 <= SMALLEST {
        return Response::from_parts(parts, Body::from(body));
    }
    let compressed = if body.len() <= LARGEST_AT_ONCE {
        gzip(&body)
    } else {
        let whole = body.clone();
        tokio::task::spawn_blocking(move || gzip(&whole)).await.unwrap_or_else(|error| Err(error.into()))
    };
    let Ok(compressed) = compressed else { return Response::from_parts(parts, Body::from(body)) };
    parts.headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    parts.headers.remove(header::CONTENT_LENGTH);
    Response::from_parts(parts, Body::from(compressed))
}

fn gzip(body: &[u8]) -> std::io::Result<Vec<u8>> {
    // A higher level takes several times as long for JSON that is hardly smaller.
    let mut encoder = GzEncoder::new(Vec::with_capacity(body.len() / 8), Compression::fast());
    encoder.write_all(body)?;
    encoder.finish()
}

/// A weak tag: the bytes that are sent depend on the compression.
fn tag_of(body: &[u8]) -> String {
    format!("W/\"{}\"", digest_hex(body))
}

/// Whether the value of `If-None-Match` names a tag.
fn names(value: &HeaderValue, tag: &str) -> bool {
    let strong = |tag: &str| tag.trim().trim_start_matches("W/").to_owned();
    let text = value.to_str().unwrap_or_default();
    text.split(',').any(|known| known.trim() == "*" || strong(known) == strong(tag))
}

/// Whether the client accepts gzip: it names gzip or `*`, and not with the weight 0.
fn accepts_gzip(headers: &HeaderMap) -> bool {
    let weight = |coding: &str| {
        let values = headers.get_all(header::ACCEPT_ENCODING).iter().filter_map(|value| value.to_str().ok());
        values.flat_map(|value| value.split(',')).find_map(|part| {
            let (name, parameters) = part.split_once(';').unwrap_or((part, ""));
            let weight =
                parameters.trim().strip_prefix("q=").map_or(Some(1.0), |weight| weight.parse::<f32>().ok());
            name.trim().eq_ignore_ascii_case(coding).then_some(weight.unwrap_or_default())
        })
    };
    weight("gzip").or_else(|| weight("*")).is_some_and(|weight| weight > 0.0)
}

fn is_json(headers: &HeaderMap) -> bool {
    media_type(headers) == "application/json"
}

fn is_text(headers: &HeaderMap) -> bool {
    let kind = media_type(headers);
    is_json(headers) || (kind.starts_with("text/") && kind != "text/event-stream") || kind == "image/svg+xml"
}

fn media_type(headers: &HeaderMap) -> &str {
    let value = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    value.split(';').next().unwrap_or_default().trim()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn accepting(value: &str) -> bool {
        accepts_gzip(&HeaderMap::from_iter([(header::ACCEPT_ENCODING, value.parse().unwrap())]))
    }

    #[test]
    fn gzip_is_used_only_for_clients_that_accept_it() {
        for accepted in ["gzip", "br, GZIP", "deflate, gzip;q=0.5", "*", "*;q=0.1"] {
            assert!(accepting(accepted), "{accepted}");
        }
        for refused in ["", "br", "gzip;q=0", "gzip; q=0.0, *", "gzipped", "*;q=0", "gzip;q=x"] {
            assert!(!accepting(refused), "{refused}");
        }
        assert!(!accepts_gzip(&HeaderMap::new()));
    }

    #[test]
    fn tags_are_compared_without_their_weakness() {
        let tag = tag_of(b"[]");
        for known in [tag.clone(), tag.replace("W/", ""), format!("\"a\", {tag}"), "*".to_owned()] {
            assert!(names(&known.parse().unwrap(), &tag), "{known}");
        }
        assert!(!names(&tag_of(b"[1]").parse().unwrap(), &tag));
    }
}
