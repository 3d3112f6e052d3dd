//! The page of one host of the fleet, with all of its applications.

use axum::{
    extract::{Path, State},
    response::{IntoResponse, Response},
};
use driftless_fleet::{HostReport, HostView};
use driftless_model::{CommitId, HostRequestKind, Timestamp};
use maud::{Markup, html};

use super::{
    failure::PageError,
    fleet::{commits, conflict_note, state_badges, state_class},
    fleet_request::request_links,
    layout::{Page, respond},
    text::{RelativeTime, Text},
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

pub(crate) async fn show(
    Caller(caller): Caller,
    State(shared): State<Shared>,
    Path(name): Path<String>,
) -> Result<Response, PageError> {
    let path = format!("/fleet/{name}");
    let status = fleet_status(&shared).await;
    let status = status.map_err(|error| PageError::new(&caller, &shared, &path, error))?;
    let Some(host) = status.hosts.iter().find(|host| host.name == name) else {
        return Err(PageError::new(&caller, &shared, &path, Error::NoSuchHost(name)));
    };
    let wanted = name.clone();
    let key = read(&shared.store, move |store| store.fleet_key(&wanted)).await;
    let key = key.map_err(|error| PageError::new(&caller, &shared, &path, error))?.map(EnrolledHost::of);
    let wanted = name.clone();
    let requests = read(&shared.store, move |store| store.fleet_requests(Some(&wanted), MOST_REQUESTS)).await;
    let requests = requests.map_err(|error| PageError::new(&caller, &shared, &path, error))?;
    let requests: Vec<FleetRequest> = requests.into_iter().map(FleetRequest::of).collect();
    let now = shared.clock.now();
    let may_ask = caller.is_admin() && key.is_some();
    let page = Page::new(&caller, &shared, &path).title(&format!("Host {name}"));
    let body = html! {
        p.crumbs { a href="../fleet" data-key="Escape" data-name="back" { "Fleet" } }
        h1 { "Host " (Text(&host.name)) " " span.badge.(state_class(host.state)) { (host.state) } }
        @if !host.reason.is_empty() { p { (Text(&host.reason)) } }
        (conflict_note(host, now))
        @if let Some(report) = host.report.as_deref() {
            @if !host.is_known() {
                p.note.warn {
                    "As it was last heard"
                    @if let Some(at) = host.last_heard { ", " (RelativeTime { at, now }) }
                    "."
                }
            }
            (facts(host, report, key.as_ref(), now))
            h2 { "Applications" }
            p.soft {
                a href={ "../?host=" (Text(&host.name)) } { "Filter them" }
                @if !report.page.is_empty() { " · " a href=(Text(&report.page)) rel="noreferrer" { "Page of this host" } }
            }
            (application_table(host, report, may_ask))
        }
        @if !requests.is_empty() {
            h2 { "Requests" }
            (request_table(&requests, now))
        }
    };
    Ok(respond(&page, &body).into_response())
}

fn facts(host: &HostView, report: &HostReport, key: Option<&EnrolledHost>, now: Timestamp) -> Markup {
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
fn request_table(requests: &[FleetRequest], now: Timestamp) -> Markup {
    html! {
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
                tbody {
                    @for it in requests {
                        tr {
                            td { (it.request.kind.word()) @if let Some(to) = &it.request.to { " to " (Text(to)) } }
                            td { (Text(&it.request.application)) }
                            td data-label="by" { (Text(&it.request.actor)) }
                            td { (RelativeTime { at: it.created, now }) }
                            td.text { (Text(it.state(now))) }
                        }
                    }
                }
            }
        }
    }
}

fn application_table(host: &HostView, report: &HostReport, may_ask: bool) -> Markup {
    let has_requests = may_ask && HostRequestKind::ALL.into_iter().any(|(_, kind)| report.allows(kind));
    html! {
        div.scroll tabindex="0" {
            table.stack {
                thead {
                    tr {
                        th scope="col" { "Application" }
                        th scope="col" { "State" }
                        th scope="col" { "Revision" }
                        th scope="col" { "Commit" }
                        th scope="col" { "Drift" }
                        th scope="col" { "Message" }
                        @if has_requests { th scope="col" { "Ask the host" } }
                    }
                }
                tbody {
                    @for application in &report.applications {
                        tr {
                            td { (Text(&application.name)) }
                            td { (state_badges(host, application)) }
                            td data-label=[application.revision.map(|_| "revision")] { @if let Some(number) = application.revision { (number) } }
                            td { code { (Text(application.commit.as_ref().map_or("", CommitId::short))) } }
                            td data-label="drift" { (application.drift) }
                            td.text { (Text(&application.message)) }
                            @if has_requests { td { (request_links(report, &application.name)) } }
                        }
                    }
                }
            }
        }
    }
}
