//! The page of one host of the fleet, with all of its applications.

use axum::{
    extract::{Path, State},
    response::{IntoResponse, Response},
};
use driftless_fleet::{ApplicationReport, HostReport, HostView};
use driftless_model::{CommitId, HostRequestKind, Timestamp};
use maud::{Markup, html};
use serde::Deserialize;

use super::{
    failure::PageError,
    fleet::{commits, conflict_note, state_badges, state_class},
    fleet_request::request_links,
    layout::{Page, respond},
    live::{self, Parts, Streaming},
    parameters::PageParameters,
    text::{LIVE, RelativeTime, Text},
};
use crate::{
    access::Caller,
    error::Error,
    fleet::fleet_status,
    fleet_keys::EnrolledHost,
    fleet_requests::FleetRequest,
    shared::{Shared, read},
};

/// The requests that the page shows.
const MOST_REQUESTS: u64 = 20;

/// The version that the page has: only for the stream.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct HostQuery {
    v: String,
}

/// The data of one rendering.
struct HostData {
    host: HostView,
    key: Option<EnrolledHost>,
    requests: Vec<FleetRequest>,
    /// Whether the caller may ask this host for something.
    may_ask: bool,
    /// The time for the states of the requests.
    at: Timestamp,
}

pub(crate) async fn show(
    Caller(caller): Caller,
    State(shared): State<Shared>,
    streaming: Option<Streaming>,
    Path(name): Path<String>,
    PageParameters(query): PageParameters<HostQuery>,
) -> Result<Response, PageError> {
    let (path, is_admin) = (format!("/fleet/{name}"), caller.is_admin());
    if let Some(streaming) = streaming {
        let source = shared.clone();
        let build = move || {
            let (shared, name) = (source.clone(), name.clone());
            async move { Ok(parts(&shown(&shared, &name, is_admin).await?)) }
        };
        return Ok(live::stream(&shared, streaming, query.v, build).await?);
    }
    let shown = shown(&shared, &name, is_admin).await;
    let shown = shown.map_err(|error| PageError::new(&caller, &shared, &path, error))?;
    let version = parts(&shown).version();
    let page = Page::new(&caller, &shared, &path).title(&title(&shown)).live(&version);
    Ok(respond(&page, &body(&shown, shared.clock.now())).into_response())
}

async fn shown(shared: &Shared, name: &str, is_admin: bool) -> Result<HostData, Error> {
    let status = fleet_status(shared).await?;
    let host = status.hosts.into_iter().find(|host| host.name == name);
    let host = host.ok_or_else(|| Error::NoSuchHost(name.to_owned()))?;
    let wanted = name.to_owned();
    let key = read(&shared.store, move |store| store.fleet_key(&wanted)).await?.map(EnrolledHost::of);
    let wanted = name.to_owned();
    let requests = read(&shared.store, move |store| store.fleet_requests(Some(&wanted), MOST_REQUESTS));
    let requests = requests.await?.into_iter().map(FleetRequest::of).collect();
    let may_ask = is_admin && key.is_some();
    Ok(HostData { host, key, requests, may_ask, at: shared.clock.now() })
}

fn title(shown: &HostData) -> String {
    format!("Host {}", shown.host.name)
}

fn body(shown: &HostData, now: Timestamp) -> Markup {
    html! {
        p.crumbs { a href="../fleet" data-key="Escape" data-name="back" { "Fleet" } }
        (head(&shown.host, now))
        (facts(shown, now))
        h2 { "Applications" }
        (links(&shown.host))
        div.scroll tabindex="0" {
            table.stack {
                thead { (columns(shown)) }
                tbody #applications { @for (_, row) in application_rows(shown) { (row) } }
            }
        }
        (requests(shown, now))
    }
}

fn parts(shown: &HostData) -> Parts {
    let mut parts = Parts::new(title(shown));
    parts.add("head", head(&shown.host, LIVE));
    parts.add("facts", facts(shown, LIVE));
    parts.add("links", links(&shown.host));
    parts.add("columns", columns(shown));
    let rows = application_rows(shown);
    parts.list("applications", rows.iter().map(|(id, _)| id.clone()).collect());
    for (id, row) in rows {
        parts.add(&id, row);
    }
    parts.add("requests", requests(shown, LIVE));
    parts
}

fn head(host: &HostView, now: Timestamp) -> Markup {
    html! {
        div #head {
            h1 { "Host " (Text(&host.name)) " " span.badge.(state_class(host.state)) { (host.state) } }
            @if !host.reason.is_empty() { p { (Text(&host.reason)) } }
            (conflict_note(host, now))
            @if host.report.is_some() && !host.is_known() {
                p.note.warn {
                    "As it was last heard"
                    @if let Some(at) = host.last_heard { ", " (RelativeTime { at, now }) }
                    "."
                }
            }
        }
    }
}

fn links(host: &HostView) -> Markup {
    html! {
        p #links .soft {
            @if let Some(report) = host.report.as_deref() {
                a href={ "../?host=" (Text(&host.name)) } { "Filter them" }
                @if !report.page.is_empty() { " · " a href=(Text(&report.page)) rel="noreferrer" { "Page of this host" } }
            }
        }
    }
}

fn facts(shown: &HostData, now: Timestamp) -> Markup {
    let HostData { host, key, .. } = shown;
    html! {
        div #facts {
            @if let Some(report) = host.report.as_deref() { (fact_list(host, report, key.as_ref(), now)) }
        }
    }
}

fn fact_list(host: &HostView, report: &HostReport, key: Option<&EnrolledHost>, now: Timestamp) -> Markup {
    html! {
        dl.facts {
            dt { "Last heard" }
            dd { @match host.last_heard { Some(at) => (RelativeTime { at, now }), None => "never" } }
            dt { "Commits" }
            dd { (commits(host)) }
            dt { "Agent" }
            dd { (Text(&report.agent_version)) }
            @if !report.engine_version.is_empty() {
                dt { "Engine" }
                dd { (Text(&report.engine_version)) }
            }
            @if let Some(EnrolledHost { host: _, fingerprint, enrolled, invited_by, heard: _ }) = key {
                dt { "Key" }
                dd {
                    span.mono { (Text(fingerprint)) }
                    ", enrolled " (RelativeTime { at: *enrolled, now }) ", invited by " (Text(invited_by))
                }
            }
            @if !report.labels.is_empty() {
                dt { "Labels" }
                dd {
                    @for (label, value) in &report.labels {
                        span.mono { (Text(label)) "=" (Text(value)) } " "
                    }
                }
            }
        }
    }
}

/// The last requests of this collector to the host.
fn requests(shown: &HostData, now: Timestamp) -> Markup {
    html! {
        div #requests {
            @if !shown.requests.is_empty() {
                h2 { "Requests" }
                div.scroll tabindex="0" {
                    table.stack {
                        thead {
                            tr {
                                th scope="col" { "Request" }
                                th scope="col" { "Application" }
                                th scope="col" { "By" }
                                th scope="col" { "Made" }
                                th scope="col" { "State" }
                            }
                        }
                        tbody { @for it in &shown.requests { (request_row(it, shown, now)) } }
                    }
                }
            }
        }
    }
}

/// A request with its state, and a link to cancel it if it has no result.
fn request_row(it: &FleetRequest, shown: &HostData, now: Timestamp) -> Markup {
    html! {
        tr {
            td { (it.request.kind.word()) @if let Some(to) = &it.request.to { " to " (Text(to)) } }
            td { (Text(&it.request.application)) }
            td data-label="by" { (Text(&it.request.actor)) }
            td { (RelativeTime { at: it.created, now }) }
            td.text {
                (Text(it.state(shown.at)))
                @if shown.may_ask && it.is_open(shown.at) {
                    " "
                    a href={ "../fleet-requests/" (it.request.id) }
                        aria-label={ "Cancel the request " (it.request.id) } { "Cancel" }
                }
            }
        }
    }
}

/// Whether the caller may ask the host for something that the host allows.
fn has_requests(shown: &HostData) -> bool {
    let allows = |report: &HostReport| HostRequestKind::ALL.into_iter().any(|(_, kind)| report.allows(kind));
    shown.may_ask && shown.host.report.as_deref().is_some_and(allows)
}

/// The row with the names of the columns.
fn columns(shown: &HostData) -> Markup {
    html! {
        tr #columns {
            th scope="col" { "Application" }
            th scope="col" { "State" }
            th scope="col" { "Revision" }
            th scope="col" { "Commit" }
            th scope="col" { "Drift" }
            th scope="col" { "Message" }
            @if has_requests(shown) { th scope="col" { "Ask the host" } }
        }
    }
}

/// The rows with their ids, or one that says why there is none.
fn application_rows(shown: &HostData) -> Vec<(String, Markup)> {
    let report = shown.host.report.as_deref();
    if let Some(report) = report.filter(|report| !report.applications.is_empty()) {
        let has_requests = has_requests(shown);
        let row = |it| (row_id(it), application_row(&shown.host, report, it, has_requests));
        return report.applications.iter().map(row).collect();
    }
    let text = if report.is_some() { "It has no application." } else { "It has sent no report." };
    vec![("no-application".to_owned(), html! { tr #no-application { td colspan="7" { (text) } } })]
}

fn row_id(application: &ApplicationReport) -> String {
    format!("a-{}", application.name)
}

fn application_row(
    host: &HostView,
    report: &HostReport,
    application: &ApplicationReport,
    has_requests: bool,
) -> Markup {
    html! {
        tr id=(row_id(application)) {
            td { (Text(&application.name)) }
            td { (state_badges(host, application)) }
            td data-label=[application.revision.map(|_| "revision")] { @if let Some(number) = application.revision { (number) } }
            td { code { (Text(application.deployed_commit().map_or("", CommitId::short))) } }
            td data-label="drift" { (application.drift) }
            td.text { (Text(&application.message)) }
            @if has_requests { td { (request_links(report, application)) } }
        }
    }
}
