//! One request and its answer, read up to a bound.

use driftless_model::{Timestamp, is_unprintable, root_cause};
use reqwest::{RequestBuilder, Response, StatusCode, header};

use crate::{error::Error, xml};

/// The most of an error's body that is read, in bytes.
const LARGEST_ERROR: usize = 16 * 1024;

/// The longest message of a server, in characters.
const LONGEST_MESSAGE: usize = 200;

/// An answer of any status.
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    /// The version of the object, with its quotes.
    pub(crate) tag: Option<String>,
    /// When the object was written.
    pub(crate) modified: Option<Timestamp>,
    /// The server's time.
    pub(crate) now: Option<Timestamp>,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    /// Sends a request and reads at most `most` bytes of its answer.
    pub(crate) async fn of(request: RequestBuilder, most: usize) -> Result<Self, Error> {
        let mut response = request.send().await.map_err(|error| unreachable(&error))?;
        let status = response.status();
        let time = |response: &Response, name| text(response, name).and_then(Timestamp::parse_http);
        let tag = text(&response, header::ETAG).map(strong);
        let (modified, now) = (time(&response, header::LAST_MODIFIED), time(&response, header::DATE));
        let bound = if status.is_success() { most } else { LARGEST_ERROR };
        let mut body = Vec::new();
        while let Some(part) = response.chunk().await.map_err(|error| unreachable(&error))? {
            if body.len() + part.len() > bound {
                if status.is_success() {
                    return Err(Error::TooLarge(bound / 1024));
                }
                break;
            }
            body.extend_from_slice(&part);
        }
        Ok(Self { status, tag, modified, now, body })
    }

    /// As an error, with the words of the server.
    pub(crate) fn refusal(&self) -> Error {
        let text = String::from_utf8_lossy(&self.body);
        let words = xml::error_message(&text).unwrap_or_default();
        let line = words.split_whitespace().collect::<Vec<_>>().join(" ");
        let line: String =
            line.chars().filter(|letter| !is_unprintable(*letter)).take(LONGEST_MESSAGE).collect();
        let message = if line.is_empty() { "without a reason".to_owned() } else { line };
        Error::Refused { status: self.status, message }
    }
}

/// A weak tag as a strong one, since conditions compare strong ones only. Servers write a weak one while a file is younger than
/// the resolution of its time.
fn strong(tag: &str) -> String {
    tag.strip_prefix("W/").unwrap_or(tag).to_owned()
}

fn text(response: &Response, name: header::HeaderName) -> Option<&str> {
    response.headers().get(name)?.to_str().ok()
}

fn unreachable(error: &reqwest::Error) -> Error {
    Error::Unreachable(if error.is_timeout() {
        "it did not answer in time".to_owned()
    } else {
        root_cause(error).unwrap_or_else(|| "the connection broke".to_owned())
    })
}
