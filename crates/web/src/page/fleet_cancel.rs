//! The page that asks before a request to a host is cancelled, and the form that cancels it.

use axum::{
    Extension,
    extract::{Path, State},
    response::{IntoResponse, Response},
};
use http::{StatusCode, header};
use maud::html;

use super::{
    failure::PageError,
    layout::{Page, respond},
    text::Text,
};
use crate::{
    access::{Caller, audit::AuditNote},
    error::Error,
    fleet_requests::{FleetRequest, LIST_MOST, cancel_request},
    shared::{Shared, read},
};

/// Not below `/fleet/`, where the names of hosts are.
pub(super) const ROUTE: &str = "/fleet-requests/{id}";

/// The page that says what will happen, and asks.
pub(crate) async fn ask(
    Caller(caller): Caller,
    State(shared): State<Shared>,
    Path(id): Path<String>,
) -> Result<Response, PageError> {
    let path = format!("/fleet-requests/{id}");
    let frame = |error: Error| PageError::new(&caller, &shared, &path, error);
    let stored = read(&shared.store, |store| store.fleet_requests(None, LIST_MOST)).await.map_err(frame)?;
    let now = shared.clock.now();
    let is_it = |it: &FleetRequest| it.request.id == id && it.is_open(now);
    let Some(it) = stored.into_iter().map(FleetRequest::of).find(is_it) else {
        return Err(frame(Error::NoSuchRequest(id)));
    };
    let title = format!("Cancel {} {} on {}?", it.request.kind.word(), it.request.application, it.host);
    let page = Page::new(&caller, &shared, &path).title(&title);
    let body = html! {
        p.crumbs { a href="../fleet" { "Fleet" } " / " a href={ "../fleet/" (Text(&it.host)) } { (Text(&it.host)) } }
        h1 { (Text(&title)) }
        p.lead {
            @if it.sent.is_some() { "The host has the request and may do it all the same; it is not sent again." }
            @else { "The host does not get the request." }
        }
        form.confirm method="post" action=(it.request.id) {
            p {
                button.primary type="submit" { "Cancel the request" }
                " " a.button href={ "../fleet/" (Text(&it.host)) } data-key="Escape" data-name="back" { "Back" }
            }
        }
    };
    Ok(respond(&page, &body).into_response())
}

/// Cancels the request, and leads back to the host.
pub(crate) async fn act(
    Caller(caller): Caller,
    State(shared): State<Shared>,
    Extension(note): Extension<AuditNote>,
    Path(id): Path<String>,
) -> Result<Response, PageError> {
    let path = format!("/fleet-requests/{id}");
    let host = cancel_request(&shared, &note, id).await;
    let host = host.map_err(|error| PageError::new(&caller, &shared, &path, error))?;
    Ok((StatusCode::SEE_OTHER, [(header::LOCATION, format!("../fleet/{host}"))]).into_response())
}
