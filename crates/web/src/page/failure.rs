//! Errors of pages: the same status as in the API, and a page that says what happened and what to do.

use axum::response::{Html, IntoResponse, Response};
use http::{HeaderValue, StatusCode, header};
use maud::{DOCTYPE, Markup, html};

use super::{
    layout::{Page, head, respond, root_of},
    text::Text,
};
use crate::{
    access::Identity,
    error::{Error, ErrorDetail},
    shared::Shared,
};

/// The seconds after which a browser loads the page of an agent again that has just started.
const LOAD_AGAIN: &str = "2";

/// An error with the frame of its page.
pub(crate) struct PageError {
    page: Option<Box<Page>>,
    /// The application that has a page above this one.
    application: Option<String>,
    error: Error,
    /// More that the page says.
    note: Markup,
}

impl PageError {
    pub(crate) fn new(identity: &Identity, shared: &Shared, path: &str, error: Error) -> Self {
        let page = Some(Box::new(Page::new(identity, shared, path)));
        let application = application_of(path).filter(|_| !matches!(error, Error::NoSuchApplication(_)));
        Self { page, application: application.map(str::to_owned), error, note: Markup::default() }
    }

    pub(super) fn note(self, note: Markup) -> Self {
        Self { note, ..self }
    }
}

/// Errors of streams have no page.
impl From<Error> for PageError {
    fn from(error: Error) -> Self {
        Self { page: None, application: None, error, note: Markup::default() }
    }
}

/// The application in the path of a page about a part of it, such as its plan.
fn application_of(path: &str) -> Option<&str> {
    path.strip_prefix("/applications/")?.split_once('/').map(|(name, _)| name)
}

fn title_of(status: StatusCode) -> &'static str {
    match status {
        StatusCode::NOT_FOUND => "Not found",
        StatusCode::FORBIDDEN => "Not allowed",
        StatusCode::CONFLICT | StatusCode::METHOD_NOT_ALLOWED | StatusCode::TOO_MANY_REQUESTS => "Refused",
        StatusCode::SERVICE_UNAVAILABLE => "Not available",
        _ => "Failed",
    }
}

/// The page of a request that a browser sent and that is refused before there is a page for it.
pub(crate) fn refusal(path: &str, error: Error) -> Response {
    let text = error.to_string();
    let is_other_method = matches!(error, Error::NoSuchMethod(_));
    let response = error.into_response();
    let (status, detail) = (response.status(), response.extensions().get::<ErrorDetail>().cloned());
    let retry_after = response.headers().get(header::RETRY_AFTER).cloned();
    let (root, title) = (root_of(path), title_of(status));
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            (head(&root, title))
            body.login {
                main {
                    h1 { (title) }
                    p.note.bad role="alert" { (Text(&text)) }
                    // The help of the API names methods.
                    @if let Some(help) = detail.as_ref().and_then(|detail| detail.help.as_ref()).filter(|_| !is_other_method) {
                        p { (Text(help)) }
                    }
                    p { a href={ "./" (root) } { "All applications" } }
                }
            }
        }
    };
    let mut answer = (status, Html(page.into_string())).into_response();
    if let Some(seconds) = retry_after {
        answer.headers_mut().insert(header::RETRY_AFTER, seconds);
    }
    if let Some(detail) = detail {
        answer.extensions_mut().insert(detail);
    }
    answer
}

impl IntoResponse for PageError {
    fn into_response(self) -> Response {
        let text = self.error.to_string();
        let is_missing =
            matches!(self.error, Error::NoSuchApplication(_) | Error::NoSuchRoute(_) | Error::NoSuchHost(_));
        let is_starting = matches!(self.error, Error::Starting(_));
        let response = self.error.into_response();
        let Some(page) = self.page else { return response };
        let (status, detail) = (response.status(), response.extensions().get::<ErrorDetail>().cloned());
        let title = title_of(status);
        let root = page.root.clone();
        let body = html! {
            @if let Some(name) = &self.application {
                p.crumbs {
                    a href={ "./" (root) } { "Applications" } " / "
                    a href={ "./" (root) "applications/" (Text(name)) } data-key="Escape" data-name="back" { (Text(name)) }
                }
            }
            h1 { (title) }
            p.note.bad role="alert" { (Text(&text)) }
            // The help of the API names routes.
            @if let Some(help) = detail.as_ref().and_then(|detail| detail.help.as_ref()).filter(|_| !is_missing) {
                p { (Text(help)) }
            }
            (self.note)
            p { a href={ "./" (root) } { "All applications" } }
        };
        let mut answer = (status, respond(&page.title(title), &body)).into_response();
        if is_starting {
            answer.headers_mut().insert(header::REFRESH, HeaderValue::from_static(LOAD_AGAIN));
        }
        if let Some(detail) = detail {
            answer.extensions_mut().insert(detail);
        }
        answer
    }
}
