//! The page of the fleet: counters that filter, a search, and the hosts, worst first, a part of them at a time. A host shows
//! only the applications that are not well; its own page shows all.

use axum::{
    extract::State,
    response::{IntoResponse, Response},
};
use driftless_fleet::{
    ApplicationReport, FleetStatus, HostReport, HostState, HostView, SourceStatus, TargetStatus,
};
use driftless_model::{CommitId, Timestamp};
use maud::{Markup, html};
use serde::Deserialize;

use super::{
    badge::{health_badge, sync_badge},
    failure::PageError,
    layout::{Page, respond},
    parameters::PageParameters,
    text::{RelativeTime, Text},
};
use crate::{access::Caller, fleet::fleet_status, shared::Shared};

/// The hosts of one page.
const PAGE_SIZE: usize = 50;

/// The applications that are not well in the row of a host.
const MOST_UNWELL: usize = 5;

/// The filters and the page, as the URL has them. An empty filter matches everything.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct FleetFilters {
    /// Part of the name of a host or application, of a label, commit, version or reason.
    q: String,
    /// A state of a host.
    state: String,
    /// From 1 on.
    page: String,
}

impl FleetFilters {
    fn matches(&self, host: &HostView, text: &str) -> bool {
        (self.state.is_empty() || self.state.eq_ignore_ascii_case(&host.state.to_string()))
            && (text.is_empty() || has_text(host, text))
    }

    fn is_empty(&self) -> bool {
        self.q.is_empty() && self.state.is_empty()
    }

    /// The address of another page with these filters.
    fn address(&self, page: usize) -> String {
        let mut query = form_urlencoded::Serializer::new(String::new());
        for (name, value) in [("q", &self.q), ("state", &self.state)] {
            if !value.is_empty() {
                query.append_pair(name, value);
            }
        }
        query.append_pair("page", &page.to_string());
        format!("fleet?{}", query.finish())
    }
}

/// Whether a part of the host has this text, which is in lower case.
fn has_text(host: &HostView, text: &str) -> bool {
    let has = |part: &str| part.to_lowercase().contains(text);
    let in_report = |report: &HostReport| {
        has(&report.agent_version)
            || has(&report.engine_version)
            || report.labels.iter().any(|(label, value)| has(&format!("{label}={value}")))
            || report.repositories.iter().any(|it| it.commit.as_ref().is_some_and(|id| has(id.as_str())))
            || report.applications.iter().any(|it| has(it.name.as_str()))
    };
    has(&host.name) || has(&host.reason) || host.report.as_ref().is_some_and(|report| in_report(report))
}

pub(crate) async fn show(
    Caller(caller): Caller,
    State(shared): State<Shared>,
    query: PageParameters<FleetFilters>,
) -> Result<Response, PageError> {
    let (path, PageParameters(filters)) = ("/fleet", query);
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
            @if hosts.is_empty() { p { "No host has reported yet." } } @else { (host_list(&hosts, &filters, now)) }
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
pub(super) fn state_class(state: HostState) -> &'static str {
    match state {
        HostState::Lost | HostState::NeverReported | HostState::Degraded => "bad",
        HostState::OutOfSync => "warn",
        HostState::Progressing => "busy",
        HostState::Stale | HostState::Suspended => "idle",
        HostState::Healthy => "good",
    }
}

fn host_list(hosts: &[HostView], filters: &FleetFilters, now: Timestamp) -> Markup {
    let text = filters.q.trim().to_lowercase();
    let found: Vec<&HostView> = hosts.iter().filter(|host| filters.matches(host, &text)).collect();
    let last = found.len().div_ceil(PAGE_SIZE).max(1);
    // A page that does not exist any more is the last one.
    let page = filters.page.parse::<usize>().unwrap_or(1).clamp(1, last);
    let first = (page - 1) * PAGE_SIZE;
    let shown: Vec<&HostView> = found.iter().skip(first).take(PAGE_SIZE).copied().collect();
    html! {
        (counters(hosts, filters))
        (search(filters))
        @if found.is_empty() { p { "No host matches." } } @else {
            (host_table(&shown, now))
            (paging(filters, page, last, first + 1, shown.len(), found.len()))
        }
    }
}

fn counters(hosts: &[HostView], filters: &FleetFilters) -> Markup {
    let counter = |label: &str, count: usize, address: &str, class: &str, is_current: bool| {
        html! {
            a.counter.(class).zero[count == 0] href=(address) aria-current=[is_current.then_some("true")] {
                b { (count) } " " (label)
            }
        }
    };
    let of_state = |state: HostState| {
        let (word, count) = (state.to_string(), hosts.iter().filter(|host| host.state == state).count());
        let is_current = filters.state.eq_ignore_ascii_case(&word);
        counter(&word, count, &format!("fleet?state={word}"), state_class(state), is_current)
    };
    html! {
        nav #counters aria-label="Filters" {
            (counter("hosts", hosts.len(), "fleet", "idle", filters.is_empty()))
            @for state in HostState::ALL { (of_state(state)) }
        }
    }
}

fn search(filters: &FleetFilters) -> Markup {
    html! {
        form.search role="search" method="get" action="fleet" {
            label.hidden for="q" { "Search" }
            input #q type="search" name="q" value=(Text(&filters.q))
                placeholder="Search: host, application, label, commit, version, reason" data-key="/" data-name="search";
            @if !filters.state.is_empty() { input type="hidden" name="state" value=(Text(&filters.state)); }
            button type="submit" { "Filter" }
            @if !filters.is_empty() { a href="fleet" { "Clear" } }
        }
    }
}

fn paging(filters: &FleetFilters, page: usize, last: usize, from: usize, count: usize, all: usize) -> Markup {
    html! {
        nav aria-label="Parts of the list" {
            p.soft {
                "Hosts " (from) " to " (from + count - 1) " of " (all)
                @if page > 1 { " · " a rel="prev" href=(filters.address(page - 1)) { "Previous" } }
                @if page < last { " · " a rel="next" href=(filters.address(page + 1)) { "Next" } }
            }
        }
    }
}

fn host_table(hosts: &[&HostView], now: Timestamp) -> Markup {
    html! {
        div.scroll tabindex="0" {
            table.stack {
                thead {
                    tr {
                        th scope="col" { "Host" }
                        th scope="col" { "State" }
                        th scope="col" { "Last heard" }
                        th scope="col" { "Commits" }
                        th scope="col" { "Healthy" }
                        th scope="col" { "Drift" }
                        th scope="col" { "Agent" }
                        th scope="col" { "Engine" }
                        th scope="col" { "Reason" }
                    }
                }
                tbody { @for host in hosts { (host_row(host, now)) } }
            }
        }
    }
}

fn host_row(host: &HostView, now: Timestamp) -> Markup {
    let report = host.report.as_deref();
    html! {
        tr {
            td { a href={ "fleet/" (Text(&host.name)) } { (Text(&host.name)) } }
            td { span.badge.(state_class(host.state)) { (host.state) } }
            td data-label="heard" { @match host.last_heard { Some(at) => (RelativeTime { at, now }), None => "never" } }
            td { (commits(host)) }
            @if let Some(report) = report {
                @let all = report.applications.len();
                td data-label="healthy" {
                    a href={ "./?host=" (Text(&host.name)) } { (all - report.unwell().count()) " of " (all) }
                }
                td data-label="drift" { (report.drift()) }
                td data-label="agent" { (Text(&report.agent_version)) }
                td data-label="engine" { (Text(&report.engine_version)) }
            } @else { td {} td {} td {} td {} }
            td.text {
                // The list of applications says it.
                @if host.reason_application().is_none() { (Text(&host.reason)) }
                (conflict_note(host, now))
                @if let Some(report) = report { (unwell_list(host, report)) }
            }
        }
    }
}

/// The commit of each repository, with the newest one of the fleet if this host is behind.
pub(super) fn commits(host: &HostView) -> Markup {
    html! {
        @for repository in host.report.iter().flat_map(|report| &report.repositories) {
            div title=(Text(&repository.name)) {
                code { (Text(repository.commit.as_ref().map_or("none", CommitId::short))) }
                @if let Some(behind) = host.behind.iter().find(|it| it.repository == repository.name) {
                    " "
                    span.badge.warn {
                        @match behind.commits {
                            Some(1) => "1 commit ",
                            Some(commits) => { (commits) " commits " }
                            None => "",
                        }
                        "behind " (Text(behind.newest.short()))
                    }
                }
            }
        }
    }
}

/// A second machine with the name of the host.
pub(super) fn conflict_note(host: &HostView, now: Timestamp) -> Markup {
    html! {
        @if let Some(conflict) = &host.conflict {
            p.note.warn {
                "Another machine (" (Text(&conflict.instance)) ") reports with this name from "
                (Text(&conflict.from)) ", last " (RelativeTime { at: conflict.at, now }) ", and is refused."
            }
        }
    }
}

/// The first applications that are not well, and the number of the others. First comes the one of the host's reason.
fn unwell_list(host: &HostView, report: &HostReport) -> Markup {
    let worst = host.reason_application();
    let is_other = |it: &&ApplicationReport| worst.is_none_or(|worst| worst.name != it.name);
    let unwell = || worst.into_iter().chain(report.unwell().filter(is_other));
    let others = unwell().skip(MOST_UNWELL).count();
    html! {
        @if unwell().next().is_some() {
            ul {
                @for application in unwell().take(MOST_UNWELL) {
                    li {
                        (Text(&application.name)) " " (state_badges(host, application))
                        @if application.drift > 0 { " drift " (application.drift) }
                        @if !application.message.is_empty() { " " (Text(&application.message)) }
                    }
                }
                @if others > 0 {
                    li { a href={ "fleet/" (Text(&host.name)) } { "and " (others) " more" } }
                }
            }
        }
    }
}

/// Sync and health; in grey and as the past if the host is not heard.
pub(super) fn state_badges(host: &HostView, application: &ApplicationReport) -> Markup {
    html! {
        @if host.is_known() {
            (sync_badge(application.sync)) " " (health_badge(application.health))
        } @else {
            span.badge.idle { "was " (format!("{:?}", application.sync)) } " "
            span.badge.idle { "was " (format!("{:?}", application.health)) }
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
                        span.mono { (Text(&target.to)) } @if target.signed { " with its key" } ", "
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
