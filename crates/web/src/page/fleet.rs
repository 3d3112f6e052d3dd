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
    fleet_invite::invite_list,
    layout::{Page, respond},
    live::{self, Parts, Streaming},
    parameters::PageParameters,
    text::{LIVE, RelativeTime, Text},
};
use crate::{
    access::Caller,
    error::Error,
    fleet::fleet_status,
    fleet_keys::{OpenInvite, open_invites},
    shared::Shared,
};

const TITLE: &str = "Fleet";

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
    /// The version that the page has: only for the stream.
    v: String,
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
    streaming: Option<Streaming>,
    query: PageParameters<FleetFilters>,
) -> Result<Response, PageError> {
    let (path, PageParameters(filters), is_admin) = ("/fleet", query, caller.is_admin());
    if let Some(streaming) = streaming {
        let (source, known) = (shared.clone(), filters.v.clone());
        let build = move || {
            let (shared, filters) = (source.clone(), filters.clone());
            async move { Ok(parts(&shown(&shared, is_admin).await?, &filters)) }
        };
        return Ok(live::stream(&shared, streaming, known, build).await?);
    }
    let shown = shown(&shared, is_admin).await;
    let shown = shown.map_err(|error| PageError::new(&caller, &shared, path, error))?;
    let version = parts(&shown, &filters).version();
    let page = Page::new(&caller, &shared, path).title(TITLE).live(&version);
    Ok(respond(&page, &body(&shown, &filters, shared.clock.now())).into_response())
}

/// The data of one rendering.
struct FleetData {
    status: FleetStatus,
    /// The invites that the caller may withdraw.
    invites: Vec<OpenInvite>,
}

async fn shown(shared: &Shared, is_admin: bool) -> Result<FleetData, Error> {
    let status = fleet_status(shared).await?;
    let invites = if is_admin && status.accepts { open_invites(shared).await? } else { Vec::new() };
    Ok(FleetData { status, invites })
}

fn body(FleetData { status, invites }: &FleetData, filters: &FleetFilters, now: Timestamp) -> Markup {
    let FleetStatus { accepts: _, hosts, targets, source } = status;
    html! {
        p.crumbs { a href="./" data-key="Escape" data-name="back" { "Applications" } }
        h1 { (TITLE) }
        (source_line(source.as_ref(), now))
        @if has_hosts(status) {
            @let shown = ShownHosts::new(hosts, filters);
            (counters(hosts, filters))
            (search(filters))
            (host_table(&shown, now))
            (paging(filters, &shown))
        } @else {
            p { "This agent accepts no reports of other hosts." }
        }
        (invite_list(invites))
        (target_list(targets, now))
    }
}

fn parts(FleetData { status, invites }: &FleetData, filters: &FleetFilters) -> Parts {
    let FleetStatus { accepts: _, hosts, targets, source } = status;
    let mut parts = Parts::new(TITLE.to_owned());
    parts.add("source", source_line(source.as_ref(), LIVE));
    parts.add("invites", invite_list(invites));
    parts.add("targets", target_list(targets, LIVE));
    if has_hosts(status) {
        let shown = ShownHosts::new(hosts, filters);
        parts.add("counters", counters(hosts, filters));
        parts.add("paging", paging(filters, &shown));
        let rows = host_rows(&shown, LIVE);
        parts.list("hosts", rows.iter().map(|(id, _)| id.clone()).collect());
        for (id, row) in rows {
            parts.add(&id, row);
        }
    }
    parts
}

/// Whether the agent shows other hosts.
fn has_hosts(status: &FleetStatus) -> bool {
    status.accepts || status.source.is_some()
}

/// The place where the agent reads the reports, and its error.
fn source_line(source: Option<&SourceStatus>, now: Timestamp) -> Markup {
    html! {
        div #source {
            @if let Some(source) = source {
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

/// One part of the list of hosts that match the filters.
struct ShownHosts<'a> {
    hosts: Vec<&'a HostView>,
    /// The part, and the last one. From 1 on.
    page: usize,
    last: usize,
    /// The hosts that match, and the hosts before this part.
    matches: usize,
    before: usize,
    /// Whether there is any host, also one that does not match.
    is_any: bool,
}

impl<'a> ShownHosts<'a> {
    fn new(all: &'a [HostView], filters: &FleetFilters) -> Self {
        let text = filters.q.trim().to_lowercase();
        let found: Vec<&HostView> = all.iter().filter(|host| filters.matches(host, &text)).collect();
        let last = found.len().div_ceil(PAGE_SIZE).max(1);
        // A page that does not exist any more is the last one.
        let page = filters.page.parse::<usize>().unwrap_or(1).clamp(1, last);
        let (matches, before) = (found.len(), (page - 1) * PAGE_SIZE);
        let hosts = found.into_iter().skip(before).take(PAGE_SIZE).collect();
        Self { hosts, page, last, matches, before, is_any: !all.is_empty() }
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

fn paging(filters: &FleetFilters, shown: &ShownHosts<'_>) -> Markup {
    let ShownHosts { hosts, page, last, matches, before, is_any: _ } = shown;
    html! {
        div #paging {
            @if !hosts.is_empty() {
                nav aria-label="Parts of the list" {
                    p.soft {
                        "Hosts " (before + 1) " to " (before + hosts.len()) " of " (matches)
                        @if *page > 1 { " · " a rel="prev" href=(filters.address(page - 1)) { "Previous" } }
                        @if page < last { " · " a rel="next" href=(filters.address(page + 1)) { "Next" } }
                    }
                }
            }
        }
    }
}

fn host_table(shown: &ShownHosts<'_>, now: Timestamp) -> Markup {
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
                tbody #hosts { @for (_, row) in host_rows(shown, now) { (row) } }
            }
        }
    }
}

/// The rows with their ids, or one that says why there is none.
fn host_rows(shown: &ShownHosts<'_>, now: Timestamp) -> Vec<(String, Markup)> {
    if shown.hosts.is_empty() {
        let text = if shown.is_any { "No host matches." } else { "No host has reported yet." };
        return vec![("no-host".to_owned(), html! { tr #no-host { td colspan="9" { (text) } } })];
    }
    shown.hosts.iter().map(|host| (row_id(host), host_row(host, now))).collect()
}

fn row_id(host: &HostView) -> String {
    format!("h-{}", host.name)
}

fn host_row(host: &HostView, now: Timestamp) -> Markup {
    let report = host.report.as_deref();
    html! {
        tr id=(row_id(host)) {
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

/// A second machine with the name or the key of the host, or the host without its key.
pub(super) fn conflict_note(host: &HostView, now: Timestamp) -> Markup {
    html! {
        @if let Some(conflict) = &host.conflict {
            @if !conflict.reason.is_empty() {
                p.note.warn {
                    (Text(&conflict.reason)) ". From " (Text(&conflict.from)) ", last " (RelativeTime { at: conflict.at, now }) "."
                }
            } @else {
                p.note.warn {
                    @if host.is_refused_itself() { "This machine reports without its key from " }
                    @else { "Another machine (" (Text(&conflict.instance)) ") reports with this name from " }
                    (Text(&conflict.from)) ", last " (RelativeTime { at: conflict.at, now }) ", and is refused."
                    @if host.is_refused_itself() {
                        " If its state was restored, run " code { "driftless fleet revoke " (Text(&host.name)) }
                        ", invite it and join again; else its disk was copied."
                    }
                }
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

fn target_list(targets: &[TargetStatus], now: Timestamp) -> Markup {
    html! {
        div #targets {
            @if !targets.is_empty() {
                section aria-label="Collectors" {
                    h2 { "This host reports to" }
                    ul.reasons { @for target in targets { li { (target_line(target, now)) } } }
                }
            }
        }
    }
}

fn target_line(target: &TargetStatus, now: Timestamp) -> Markup {
    html! {
        span.mono { (Text(&target.to)) } @if target.signed { " with its key" } ", "
        @match target.last_sent {
            Some(at) => { "last " (RelativeTime { at, now }) }
            None => "not yet",
        }
        @if !target.error.is_empty() { p.note.bad { (Text(&target.error)) } }
        @if !target.warning.is_empty() { p.note.warn { (Text(&target.warning)) } }
    }
}
