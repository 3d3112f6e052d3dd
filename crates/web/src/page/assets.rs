//! Style and script of all pages. They are part of the program; their paths have a digest, so browsers keep them.

use std::sync::LazyLock;

use axum::response::{IntoResponse, Response};
use driftless_model::digest_hex;
use http::header;

/// Follows the reader's choice of light or dark. The text next to a colour always says the same.
const STYLE: &str = include_str!("style.css");

/// Applies changes that the server sends, writes relative times, and handles keys. Without it the page can be read all
/// the same.
const SCRIPT: &str = include_str!("script.js");

/// Browsers keep a file for a year, since its path changes with its content.
const FOR_A_YEAR: &str = "private, max-age=31536000, immutable";

fn path(text: &str, ending: &str) -> String {
    let mut digest = digest_hex(text.as_bytes());
    digest.truncate(12);
    format!("assets/{digest}.{ending}")
}

/// The path of the style below the root.
pub(super) fn style_path() -> &'static str {
    static PATH: LazyLock<String> = LazyLock::new(|| path(STYLE, "css"));
    &PATH
}

/// The path of the script below the root.
pub(super) fn script_path() -> &'static str {
    static PATH: LazyLock<String> = LazyLock::new(|| path(SCRIPT, "js"));
    &PATH
}

/// Answers with a file, or with an older or newer one of the same kind: a page may be open while the agent is replaced.
pub(crate) async fn show(axum::extract::Path(name): axum::extract::Path<String>) -> Response {
    let (kind, text) = match name.rsplit_once('.') {
        Some((_, "css")) => ("text/css; charset=utf-8", STYLE),
        Some((_, "js")) => ("text/javascript; charset=utf-8", SCRIPT),
        Some(_) | None => return crate::error::Error::NoSuchRoute(name).into_response(),
    };
    let is_current = [style_path(), script_path()].iter().any(|path| path.ends_with(&name));
    let keep = if is_current { FOR_A_YEAR } else { "no-store" };
    ([(header::CONTENT_TYPE, kind), (header::CACHE_CONTROL, keep)], text).into_response()
}
