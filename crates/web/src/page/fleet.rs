//! The page of the fleet: hosts with their state, worst first, and their applications.

use axum::{
    extract::State,
    response::{IntoResponse, Response},
};
use driftless_fleet::{FleetStatus, HostReport, HostState, HostView, SourceStatus, TargetStatus};
use driftless_model::{CommitId, Timestamp};
use maud::{Markup, html};

use super::{
    badge::{health_badge, sync_badge},
    failure::PageError,
    layout::{Page, respond},
    text::{RelativeTime, Text},
};
use crate::{access::Caller, fleet::fleet_status, shared::Shared};

pub(crate) async fn show(
    Caller(caller): Caller,
    State(shared): State<Shared>,
) -> Result<Response, PageError> {
    let path = "/fleet";
    let status = fleet_status(&shared).await;
    let FleetStatus { accepts, hosts, targets, source } =
        status.map_err(|error| PageError::new(&caller, &shared, path, error))?;
    let now = shared.clock.now();
    let page = Page::new(&caller, &shared, path).title("Fleet");
    let body = html! {
        p.crumbs { a href="./" data-key="Escape" data-name="back" { "Applications" } }
        h1 { "Fleet" }
        @if let Some(source) = &source { (source_line(source, now)) }
        @if accepts || source.is_some() {
            @if hosts.is_empty() { p { "No host has reported yet." } } @else { (host_table(&hosts, now)) }
            @for host in &hosts { (host_section(host, now)) }
        } @else {
            p { "This agent accepts no reports of other hosts." }
        }
        @if !targets.is_empty() { (target_table(&targets, now)) }
    };
    Ok(respond(&page, &body).into_response())
}

/// The place where the agent reads the reports, and its error.
fn source_line(source: &SourceStatus, now: Timestamp) -> Markup {
    html! {
        p.soft {
            "Read from " span.mono { (Text(&source.from)) } ", "
            @match source.last_read {
                Some(at) => { "last " (RelativeTime { at, now }) }
                None => "not yet",
            }
        }
        @if !source.error.is_empty() { p.note.bad { (Text(&source.error)) } }
    }
}

/// A host that is not heard is grey: neither its good nor its bad news are known to be true.
fn class(state: HostState) -> &'static str {
    match state {
        HostState::Lost | HostState::NeverReported | HostState::Degraded => "bad",
        HostState::OutOfSync => "warn",
        HostState::Progressing => "busy",
        HostState::Stale | HostState::Suspended => "idle",
        HostState::Healthy => "good",
    }
}

fn host_table(hosts: &[HostView], now: Timestamp) -> Markup {
    html! {
        div.scroll tabindex="0" {
            table {
                thead {
                    tr {
                        th scope="col" { "Host" }
                        th scope="col" { "State" }
                        th scope="col" { "Last heard" }
                        th scope="col" { "Commits" }
                        th scope="col" { "Applications" }
                        th scope="col" { "Drift" }
                        th scope="col" { "Agent" }
                        th scope="col" { "Reason" }
                    }
                }
                tbody { @for host in hosts { (host_row(host, now)) } }
            }
        }
    }
}

fn host_row(host: &HostView, now: Timestamp) -> Markup {
    let report = host.report.as_ref();
    let drift: usize = report.map_or(0, |report| report.applications.iter().map(|it| it.drift).sum());
    html! {
        tr {
            td {
                @if report.is_some() { a href={ "#host-" (Text(&host.name)) } { (Text(&host.name)) } }
                @else { (Text(&host.name)) }
            }
            td { span.badge.(class(host.state)) { (host.state) } }
            td { @match host.last_heard { Some(at) => (RelativeTime { at, now }), None => "never" } }
            td.mono {
                @for repository in report.map_or(&[][..], |report| &report.repositories) {
                    span title=(Text(&repository.name)) {
                        (Text(repository.commit.as_ref().map_or("none", CommitId::short)))
                    } " "
                }
            }
            td { @if let Some(report) = report { (report.applications.len()) } }
            td { @if report.is_some() { (drift) } }
            td { (Text(report.map_or("", |report| report.agent_version.as_str()))) }
            td {
                (Text(&host.reason))
                @if let Some(conflict) = &host.conflict {
                    p.note.warn {
                        "Another machine (" (Text(&conflict.instance)) ") reports with this name from "
                        (Text(&conflict.from)) ", last " (RelativeTime { at: conflict.at, now }) ", and is refused."
                    }
                }
            }
        }
    }
}

fn host_section(host: &HostView, now: Timestamp) -> Markup {
    let Some(report) = &host.report else { return html! {} };
    html! {
        section id={ "host-" (Text(&host.name)) } aria-label={ "Host " (Text(&host.name)) } {
            h2 { (Text(&host.name)) " " span.badge.(class(host.state)) { (host.state) } }
            @if matches!(host.state, HostState::Stale | HostState::Lost) {
                p.note.warn {
                    "As it was last heard"
                    @if let Some(at) = host.last_heard { ", " (RelativeTime { at, now }) }
                    "."
                }
            }
            @if !report.labels.is_empty() { (labels(report)) }
            (application_table(host, report))
        }
    }
}

fn labels(report: &HostReport) -> Markup {
    html! {
        p.soft {
            @for (label, value) in &report.labels { span.mono { (Text(label)) "=" (Text(value)) } " " }
        }
    }
}

fn application_table(host: &HostView, report: &HostReport) -> Markup {
    let is_known = !matches!(host.state, HostState::Stale | HostState::Lost);
    html! {
        div.scroll tabindex="0" {
            table {
                thead {
                    tr {
                        th scope="col" { "Application" }
                        th scope="col" { "Sync" }
                        th scope="col" { "Health" }
                        th scope="col" { "Revision" }
                        th scope="col" { "Commit" }
                        th scope="col" { "Drift" }
                        th scope="col" { "Message" }
                    }
                }
                tbody {
                    @for application in &report.applications {
                        tr {
                            td { (Text(&application.name)) }
                            @if is_known {
                                td { (sync_badge(application.sync)) }
                                td { (health_badge(application.health)) }
                            } @else {
                                td { span.badge.idle { "was " (format!("{:?}", application.sync)) } }
                                td { span.badge.idle { "was " (format!("{:?}", application.health)) } }
                            }
                            td { @if let Some(number) = application.revision { (number) } }
                            td.mono { (Text(application.commit.as_ref().map_or("", CommitId::short))) }
                            td { (application.drift) }
                            td { (Text(&application.message)) }
                        }
                    }
                }
            }
        }
    }
}

fn target_table(targets: &[TargetStatus], now: Timestamp) -> Markup {
    html! {
        section aria-label="Collectors" {
            h2 { "This host reports to" }
            ul.reasons {
                @for target in targets {
                    li {
                        span.mono { (Text(&target.to)) } ", "
                        @match target.last_sent {
                            Some(at) => { "last " (RelativeTime { at, now }) }
                            None => "not yet",
                        }
                        @if !target.error.is_empty() { p.note.bad { (Text(&target.error)) } }
                        @if !target.warning.is_empty() { p.note.warn { (Text(&target.warning)) } }
                    }
                }
            }
        }
    }
}
