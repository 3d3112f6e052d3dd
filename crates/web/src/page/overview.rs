//! The overview: counters that filter, what happens now, what needs attention, and all applications by repository. On a
//! collector it also shows the applications of another host, as its last report has them.

use std::collections::BTreeMap;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use driftless_agent::Readiness;
use driftless_fleet::HostView;
use driftless_model::{AgentProblem, HealthStatus, SyncStatus, Timestamp};
use maud::{Markup, html};
use serde::Deserialize;

use super::{
    badge::{health_class, health_word, sync_class, sync_word},
    failure::PageError,
    fleet::{conflict_note, state_class},
    layout::{Page, respond},
    listed::{Listed, ListedRepository},
    live::{self, Parts, Streaming},
    parameters::PageParameters,
    text::{RelativeTime, Text},
};
use crate::{access::Caller, error::Error, fleet::fleet_status, shared::Shared};

/// The most operations that "now" lists.
const MOST_NOW: usize = 6;

/// The filters, as the URL has them. All that are given must match; an empty one matches everything.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Filters {
    /// Part of the name of an application or repository, or of a message.
    q: String,
    sync: String,
    health: String,
    repository: String,
    /// `attention`, `pinned`, `suspended`.
    only: String,
    /// A host of the fleet. Empty: this host.
    host: String,
    /// The version that the page has: only for the stream.
    v: String,
}

impl Filters {
    fn matches(&self, listed: &Listed) -> bool {
        let is = |wanted: &str, word: &str| wanted.is_empty() || wanted.eq_ignore_ascii_case(word);
        let text = self.q.trim().to_lowercase();
        let has_text = |part: &str| part.to_lowercase().contains(&text);
        is(&self.sync, sync_word(listed.sync))
            && is(&self.health, health_word(listed.health))
            && is(&self.repository, &listed.repository)
            && match self.only.as_str() {
                "attention" => listed.needs_attention(),
                "pinned" => listed.has_pin,
                "suspended" => listed.is_suspended,
                _ => true,
            }
            && (text.is_empty()
                || has_text(listed.name.as_str())
                || has_text(&listed.repository)
                || has_text(&listed.message))
    }

    /// Whether all applications of the host are shown.
    fn is_empty(&self) -> bool {
        [&self.q, &self.sync, &self.health, &self.repository, &self.only].iter().all(|it| it.is_empty())
    }

    /// The address of the overview of the same host with one other filter.
    fn address(&self, filter: Option<(&str, &str)>) -> String {
        let mut query = form_urlencoded::Serializer::new(String::new());
        if !self.host.is_empty() {
            query.append_pair("host", &self.host);
        }
        query.extend_pairs(filter);
        match query.finish() {
            query if query.is_empty() => "./".to_owned(),
            query => format!("./?{query}"),
        }
    }
}

/// The data of one rendering.
struct OverviewData {
    all: Vec<Listed>,
    repositories: Vec<ListedRepository>,
    filters: Filters,
    origin: Origin,
    /// The names of the other hosts of the fleet.
    hosts: Vec<String>,
}

/// The host of the applications.
enum Origin {
    /// The agent's own host.
    Own { readiness: Readiness, problems: Vec<AgentProblem> },
    /// Another host, by its last report.
    Other(Box<HostView>),
}

impl OverviewData {
    fn other_host(&self) -> Option<&HostView> {
        match &self.origin {
            Origin::Own { .. } => None,
            Origin::Other(host) => Some(host),
        }
    }

    fn attention_count(&self) -> usize {
        self.all.iter().filter(|it| it.needs_attention()).count()
    }
}

pub(crate) async fn show(
    Caller(caller): Caller,
    State(shared): State<Shared>,
    streaming: Option<Streaming>,
    query: PageParameters<Filters>,
) -> Result<Response, PageError> {
    let PageParameters(mut filters) = query;
    if filters.host == shared.handle.host() {
        filters.host.clear();
    }
    if let Some(streaming) = streaming {
        let known = filters.v.clone();
        let source = shared.clone();
        let parts = move || {
            let (source, filters) = (source.clone(), filters.clone());
            async move {
                let shown = if filters.host.is_empty() {
                    own_applications(&source, filters, Vec::new())
                } else {
                    shown(&source, filters).await?
                };
                Ok(parts(&shown))
            }
        };
        return Ok(live::stream(&shared, streaming, known, parts).await?);
    }
    let shown = shown(&shared, filters).await;
    let shown = shown.map_err(|error| PageError::new(&caller, &shared, "/", error))?;
    let version = parts(&shown).version();
    let page = Page::new(&caller, &shared, "/").title(&title(&shown)).live(&version);
    Ok(respond(&page, &body(&shown, shared.clock.now())).into_response())
}

/// The overview with the hosts that can be chosen.
async fn shown(shared: &Shared, filters: Filters) -> Result<OverviewData, Error> {
    let fleet = match fleet_status(shared).await {
        Ok(fleet) => fleet.hosts,
        // The applications of this host are not in the database.
        Err(_) if filters.host.is_empty() => Vec::new(),
        Err(error) => return Err(error),
    };
    let names = fleet.iter().map(|host| host.name.clone());
    let mut hosts: Vec<String> = names.filter(|name| name != shared.handle.host()).collect();
    hosts.sort();
    if filters.host.is_empty() {
        return Ok(own_applications(shared, filters, hosts));
    }
    let host = fleet.into_iter().find(|host| host.name == filters.host);
    let host = host.ok_or_else(|| Error::NoSuchHost(filters.host.clone()))?;
    Ok(OverviewData {
        all: Listed::of_host(&host),
        repositories: ListedRepository::of_host(&host),
        filters,
        origin: Origin::Other(Box::new(host)),
        hosts,
    })
}

fn own_applications(shared: &Shared, filters: Filters, hosts: Vec<String>) -> OverviewData {
    let handle = &shared.handle;
    OverviewData {
        all: handle.applications().values().map(|application| Listed::of(application)).collect(),
        repositories: handle.repositories().iter().map(ListedRepository::of).collect(),
        filters,
        origin: Origin::Own { readiness: handle.readiness(), problems: handle.problems().list() },
        hosts,
    }
}

/// The number of failures comes first, so that a tab shows it.
fn title(shown: &OverviewData) -> String {
    let name = match shown.other_host() {
        Some(host) => format!("Applications of {}", host.name),
        None => "Applications".to_owned(),
    };
    match shown.attention_count() {
        0 => name,
        count => format!("({count}) {name}"),
    }
}

/// A group of rows: what needs attention, or a repository.
struct Group<'a> {
    id: String,
    head: Markup,
    head_id: String,
    applications: Vec<&'a Listed>,
}

fn groups(shown: &OverviewData, now: Timestamp) -> Vec<Group<'_>> {
    let mut urgent: Vec<&Listed> = Vec::new();
    let mut calm: BTreeMap<&str, Vec<&Listed>> = BTreeMap::new();
    for repository in &shown.repositories {
        if shown.filters.is_empty() || repository.name == shown.filters.repository {
            calm.entry(repository.name.as_str()).or_default();
        }
    }
    for application in shown.all.iter().filter(|it| shown.filters.matches(it)) {
        if application.needs_attention() {
            urgent.push(application);
        } else {
            calm.entry(application.repository.as_str()).or_default().push(application);
        }
    }
    // The worst first.
    urgent.sort_by(|a, b| {
        let rank = |it: &Listed| (it.health != HealthStatus::Progressing, it.health);
        rank(b).cmp(&rank(a)).then_with(|| a.name.cmp(&b.name))
    });
    let matches = urgent.len() + calm.values().map(Vec::len).sum::<usize>();
    let mut groups = vec![Group {
        id: "attention".to_owned(),
        head_id: "attention-head".to_owned(),
        head: attention_head(urgent.len(), matches, shown),
        applications: urgent,
    }];
    groups.extend(calm.into_iter().map(|(name, applications)| Group {
        id: format!("r-{name}"),
        head_id: format!("h-{name}"),
        head: repository_head(
            name,
            shown.repositories.iter().find(|it| it.name == name),
            applications.len(),
            now,
        ),
        applications,
    }));
    groups
}

/// The head of the applications that match the filters and need attention: `count` of all `matches`. Applications that do not
/// match may need it too.
fn attention_head(count: usize, matches: usize, shown: &OverviewData) -> Markup {
    let others = match shown.attention_count().saturating_sub(count) {
        0 => String::new(),
        1 => "1 other application needs attention".to_owned(),
        others => format!("{others} other applications need attention"),
    };
    // The last report of a host that is not heard may be old.
    let is_known = shown.other_host().is_none_or(HostView::is_known);
    html! {
        tr #attention-head.group {
            th colspan="6" scope="rowgroup" {
                @if count > 0 { span.bad-text { "Needs attention" } " " span.count { (count) } }
                @else if matches == 0 && !shown.all.is_empty() {
                    span.count { "No application matches the filter" @if !others.is_empty() { "; " (others) } }
                }
                @else if !others.is_empty() { span.count { "None of these needs attention; " (others) } }
                @else if is_known { span.good-text { "Nothing needs attention" } }
                @else { span.count { "Nothing needed attention" } }
            }
        }
    }
}

fn repository_head(name: &str, status: Option<&ListedRepository>, count: usize, now: Timestamp) -> Markup {
    html! {
        tr.group id={ "h-" (Text(name)) } {
            th colspan="6" scope="rowgroup" {
                @match status.and_then(|status| status.page.as_ref()) {
                    Some(page) => a href=(Text(page)) { (Text(name)) " " span.count { (count) } },
                    None => { (Text(name)) " " span.count { (count) } }
                }
                @if let Some(status) = status {
                    span.meta {
                        (Text(&status.reference))
                        @if let Some((commit, subject)) = &status.commit {
                            " · " code { (Text(commit)) } @if !subject.is_empty() { " " (Text(subject)) }
                        }
                        @if let Some(at) = status.fetched_at { " · read " (RelativeTime { at, now }) }
                    }
                    @if !status.message.is_empty() { div.bad-text { (Text(&status.message)) } }
                }
            }
        }
    }
}

/// One application in a row. A row without trouble is as short as it can be, because there may be hundreds.
fn row(listed: &Listed, is_known: bool) -> Markup {
    html! {
        tr id=(row_id(listed)) {
            th {
                @match &listed.page {
                    Some(page) => a href=(Text(page)) { (Text(&listed.name)) },
                    None => (Text(&listed.name)),
                }
            }
            @if is_known {
                td class=[urgent_class(sync_class(listed.sync))] { (sync_word(listed.sync)) }
                td class=[urgent_class(health_class(listed.health))] { (health_word(listed.health)) }
            } @else {
                td.idle { "was " (sync_word(listed.sync)) }
                td.idle { "was " (health_word(listed.health)) }
            }
            @match listed.ready {
                Some((ready, wanted)) => td { (ready) "/" (wanted) },
                None => td data-label="drift" { (listed.drift) },
            }
            td { (Text(&listed.commit)) }
            @if listed.needs_attention() || listed.has_pin || listed.is_suspended {
                td {
                    @if listed.has_pin { b { "pinned " } }
                    @if listed.is_suspended && !listed.why.starts_with("suspended") { b { "suspended " } }
                    @if listed.needs_attention() { (Text(&listed.why)) " " small { (Text(&listed.repository)) } }
                }
            }
        }
    }
}

/// No class for what is well, so that its row is short.
fn urgent_class(class: &'static str) -> Option<&'static str> {
    (class != "good").then_some(class)
}

fn row_id(listed: &Listed) -> String {
    format!("a-{}", listed.name)
}

fn counters(shown: &OverviewData) -> Markup {
    let filters = &shown.filters;
    let count = |is: &dyn Fn(&Listed) -> bool| shown.all.iter().filter(|it| is(it)).count();
    // A counter is a link that filters.
    let counter = |label: &str, count: usize, filter: Option<(&str, &str)>, class: &str, is_current: bool| {
        html! {
            a.counter.(class).zero[count == 0] href=(filters.address(filter)) aria-current=[is_current.then_some("true")] {
                b { (count) } " " (label)
            }
        }
    };
    let of_health = |health: HealthStatus| {
        let word = health_word(health);
        let count = count(&move |it: &Listed| it.health == health);
        let is_current = filters.health.eq_ignore_ascii_case(word);
        counter(word, count, Some(("health", word)), health_class(health), is_current)
    };
    let out = count(&|it: &Listed| it.sync == SyncStatus::OutOfSync);
    let of_only = |label: &str, word: &str, count: usize, class: &str| {
        counter(label, count, Some(("only", word)), class, filters.only == word)
    };
    let applications = if shown.all.len() == 1 { "application" } else { "applications" };
    html! {
        nav #counters aria-label="Filters" {
            (counter(applications, shown.all.len(), None, "idle", filters.is_empty()))
            (of_only("need attention", "attention", shown.attention_count(), "bad"))
            (counter("OutOfSync", out, Some(("sync", "OutOfSync")), "warn", filters.sync.eq_ignore_ascii_case("OutOfSync")))
            (of_health(HealthStatus::Degraded))
            (of_health(HealthStatus::Missing))
            (of_health(HealthStatus::Progressing))
            (of_health(HealthStatus::Suspended))
            // Reports do not name pins.
            @if shown.other_host().is_none() {
                (of_only("pinned", "pinned", count(&|it: &Listed| it.has_pin), "warn"))
            }
        }
    }
}

/// The operations that run at this moment.
fn happening(shown: &OverviewData, now: Timestamp) -> Markup {
    let running: Vec<_> = shown.all.iter().filter_map(|it| Some((it, it.operation.as_ref()?))).collect();
    html! {
        section #now aria-label="Now" aria-live="polite" {
            @if !running.is_empty() {
                h2 { "Now" }
                ul {
                    @for (listed, (message, started)) in running.iter().take(MOST_NOW) {
                        li {
                            a href={ "applications/" (Text(&listed.name)) } { (Text(&listed.name)) }
                            ": " (Text(message)) " "
                            span.soft { "since " (RelativeTime { at: *started, now }) }
                        }
                    }
                    @if running.len() > MOST_NOW { li.soft { "and " (running.len() - MOST_NOW) " more" } }
                }
            }
        }
    }
}

fn notice(shown: &OverviewData, now: Timestamp) -> Markup {
    html! {
        div #notice {
            @match &shown.origin {
                Origin::Own { readiness, problems } => {
                    @let message = match readiness.message.as_str() {
                        "" => "The agent is still starting.",
                        message => message,
                    };
                    @if !readiness.is_ready() { p.note.bad role="status" { b { "Not ready." } " " (Text(message)) } }
                    @for problem in problems {
                        p.note.bad role="status" { b { (Text(&problem.subject)) "." } " " (Text(&problem.message)) }
                    }
                }
                Origin::Other(host) => (host_notice(host, now)),
            }
            @for repository in shown.repositories.iter().filter(|it| !it.message.is_empty()) {
                p.note.bad role="status" {
                    b { "Repository " (Text(&repository.name)) "." } " " (Text(&repository.message))
                }
            }
        }
    }
}

/// The host of the list: its state, and how old the list is.
fn host_notice(host: &HostView, now: Timestamp) -> Markup {
    html! {
        p.crumbs { a href="./" { "This host" } " / " a href="fleet" { "Fleet" } }
        h1 {
            "Applications of " a href={ "fleet/" (Text(&host.name)) } { (Text(&host.name)) } " "
            span.badge.(state_class(host.state)) { (host.state) }
        }
        @if !host.is_known() { p.note.warn role="status" { (Text(&host.reason)) } }
        p.soft {
            @match host.last_heard {
                Some(at) => { "From its report, heard " (RelativeTime { at, now }) "." }
                None => "It has sent no report.",
            }
            @if host.report.as_ref().is_some_and(|report| report.page.is_empty()) {
                " Its own page is linked here once " code { "notifications.url" } " is set on that host."
            }
        }
        (conflict_note(host, now))
    }
}

fn search(filters: &Filters, shown: &OverviewData) -> Markup {
    let option = |chosen: &str, value: &str, label: &str| {
        html! {
            option value=(Text(value)) selected[chosen == value] { (Text(label)) }
        }
    };
    html! {
        form.search role="search" method="get" action="./" {
            label.hidden for="q" { "Search" }
            input #q type="search" name="q" value=(Text(&filters.q)) placeholder="Search: name, repository, message"
                data-key="/" data-name="search";
            @for (name, value) in [("sync", &filters.sync), ("health", &filters.health), ("only", &filters.only)] {
                @if !value.is_empty() { input type="hidden" name=(name) value=(Text(value)); }
            }
            @if !shown.hosts.is_empty() {
                label.hidden for="host" { "Host" }
                select #host name="host" {
                    (option(&filters.host, "", "This host"))
                    @for host in &shown.hosts { (option(&filters.host, host, host)) }
                }
            }
            label.hidden for="repository" { "Repository" }
            select #repository name="repository" {
                (option(&filters.repository, "", "All repositories"))
                @for repository in &shown.repositories { (option(&filters.repository, &repository.name, &repository.name)) }
            }
            button type="submit" { "Filter" }
            @if !filters.is_empty() { a href=(filters.address(None)) { "Clear" } }
        }
    }
}

/// Says that there is no application, if there is none.
fn no_application(shown: &OverviewData) -> Markup {
    html! {
        div #empty class=[shown.all.is_empty().then_some("empty")] {
            @if shown.all.is_empty() {
                p { "No application yet." }
                @if shown.other_host().is_none() {
                    p {
                        "Applications appear here once the repository has been read. If none appears, the agent's log \
                         says why."
                    }
                }
            }
        }
    }
}

fn body(shown: &OverviewData, now: Timestamp) -> Markup {
    let host = shown.other_host();
    let is_known = host.is_none_or(HostView::is_known);
    html! {
        @if host.is_none() { h1.hidden { "Applications" } }
        (notice(shown, now))
        (counters(shown))
        (search(&shown.filters, shown))
        (happening(shown, now))
        (no_application(shown))
        div.scroll tabindex="0" {
            table.rows {
                thead {
                    tr {
                        th scope="col" { "Application" }
                        th scope="col" { "Sync" }
                        th scope="col" { "Health" }
                        th scope="col" { @if host.is_none() { "Ready" } @else { "Drift" } }
                        th scope="col" { "Commit" }
                        th scope="col" { "Why" }
                    }
                }
                @for group in groups(shown, now) {
                    tbody id=(Text(&group.id)) {
                        (group.head)
                        @for application in &group.applications { (row(application, is_known)) }
                    }
                }
            }
        }
    }
}

fn parts(shown: &OverviewData) -> Parts {
    let now = super::text::LIVE;
    let is_known = shown.other_host().is_none_or(HostView::is_known);
    let mut parts = Parts::new(title(shown));
    parts.add("notice", notice(shown, now));
    parts.add("counters", counters(shown));
    parts.add("now", happening(shown, now));
    parts.add("empty", no_application(shown));
    for group in groups(shown, now) {
        let mut ids = vec![group.head_id.clone()];
        parts.add(&group.head_id, group.head);
        for application in group.applications {
            let id = row_id(application);
            parts.add(&id, row(application, is_known));
            ids.push(id);
        }
        parts.list(&group.id, ids);
    }
    parts
}
