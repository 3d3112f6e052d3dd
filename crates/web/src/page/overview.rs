//! The overview: counters that filter, what happens now, what needs attention, and all applications by repository.

use std::{collections::BTreeMap, sync::Arc};

use axum::extract::{Query, State};
use axum::response::{IntoResponse, Response};
use driftless_agent::{Readiness, Repositories};
use driftless_model::{
    AgentProblem, Application, HealthStatus, OperationPhase, RepositoryStatus, SyncStatus, Timestamp,
};
use maud::{Markup, html};
use serde::Deserialize;

use super::{
    badge::{health_class, health_word, sync_class, sync_word},
    layout::{Page, respond},
    live::{self, Parts, Streaming},
    text::{RelativeTime, Text},
};
use crate::{access::Caller, error::Error, shared::Shared};

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
    /// The version that the page has: only for the stream.
    v: String,
}

impl Filters {
    fn matches(&self, application: &Application) -> bool {
        let status = &application.status;
        let is = |wanted: &str, word: &str| wanted.is_empty() || wanted.eq_ignore_ascii_case(word);
        let text = self.q.trim().to_lowercase();
        let has_text = |part: &str| part.to_lowercase().contains(&text);
        is(&self.sync, sync_word(status.sync))
            && is(&self.health, health_word(status.health))
            && is(&self.repository, &application.spec.repository)
            && match self.only.as_str() {
                "attention" => needs_attention(application),
                "pinned" => status.pin.is_some(),
                "suspended" => application.spec.policy.suspended || status.health == HealthStatus::Suspended,
                _ => true,
            }
            && (text.is_empty()
                || has_text(application.name.as_str())
                || has_text(&application.spec.repository)
                || has_text(&status.message))
    }

    fn is_empty(&self) -> bool {
        [&self.q, &self.sync, &self.health, &self.repository, &self.only].iter().all(|it| it.is_empty())
    }
}

/// Whether somebody should look at an application.
pub(super) fn needs_attention(application: &Application) -> bool {
    let status = &application.status;
    status.sync != SyncStatus::Synced
        || !matches!(status.health, HealthStatus::Healthy | HealthStatus::Suspended)
        || !status.drift.is_empty()
}

/// The data of one rendering.
struct OverviewData {
    all: Vec<Arc<Application>>,
    repositories: Repositories,
    readiness: Readiness,
    problems: Vec<AgentProblem>,
    filters: Filters,
}

pub(crate) async fn show(
    Caller(caller): Caller,
    State(shared): State<Shared>,
    streaming: Option<Streaming>,
    query: Query<Filters>,
) -> Result<Response, Error> {
    let Query(filters) = query;
    if let Some(streaming) = streaming {
        let known = filters.v.clone();
        let source = shared.clone();
        let parts = move || {
            let shown = shown(&source, filters.clone());
            async move { Some(parts(&shown)) }
        };
        return live::stream(&shared, streaming, known, parts);
    }
    let shown = shown(&shared, filters);
    let version = parts(&shown).version();
    let page = Page::new(&caller, &shared, "/").title(&title(&shown)).live(&version);
    Ok(respond(&page, &body(&shown, shared.clock.now())).into_response())
}

fn shown(shared: &Shared, filters: Filters) -> OverviewData {
    OverviewData {
        all: shared.handle.applications().values().cloned().collect(),
        repositories: shared.handle.repositories(),
        readiness: shared.handle.readiness(),
        problems: shared.handle.problems().list(),
        filters,
    }
}

/// The number of failures comes first, so that a tab shows it.
fn title(shown: &OverviewData) -> String {
    match shown.all.iter().filter(|it| needs_attention(it)).count() {
        0 => "Applications".to_owned(),
        count => format!("({count}) Applications"),
    }
}

/// A group of rows: what needs attention, or a repository.
struct Group<'a> {
    id: String,
    head: Markup,
    head_id: String,
    applications: Vec<&'a Application>,
}

fn groups(shown: &OverviewData, now: Timestamp) -> Vec<Group<'_>> {
    let mut urgent: Vec<&Application> = Vec::new();
    let mut calm: BTreeMap<&str, Vec<&Application>> = BTreeMap::new();
    for repository in shown.repositories.iter() {
        if shown.filters.is_empty() || repository.name == shown.filters.repository {
            calm.entry(repository.name.as_str()).or_default();
        }
    }
    for application in shown.all.iter().filter(|it| shown.filters.matches(it)) {
        if needs_attention(application) {
            urgent.push(application);
        } else {
            calm.entry(application.spec.repository.as_str()).or_default().push(application);
        }
    }
    // The worst first.
    urgent.sort_by(|a, b| {
        let rank = |it: &Application| (it.status.health != HealthStatus::Progressing, it.status.health);
        rank(b).cmp(&rank(a)).then_with(|| a.name.cmp(&b.name))
    });
    let mut groups = vec![Group {
        id: "attention".to_owned(),
        head_id: "attention-head".to_owned(),
        head: attention_head(urgent.len()),
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

fn attention_head(count: usize) -> Markup {
    html! {
        tr #attention-head.group {
            th colspan="6" scope="rowgroup" {
                @if count == 0 { span.good-text { "Nothing needs attention" } }
                @else { span.bad-text { "Needs attention" } " " span.count { (count) } }
            }
        }
    }
}

fn repository_head(name: &str, status: Option<&RepositoryStatus>, count: usize, now: Timestamp) -> Markup {
    html! {
        tr.group id={ "h-" (Text(name)) } {
            th colspan="6" scope="rowgroup" {
                a href={ "repositories/" (Text(name)) } { (Text(name)) } " " span.count { (count) }
                @if let Some(status) = status {
                    span.meta {
                        (Text(&status.reference))
                        @if let Some(commit) = &status.commit {
                            " · " code { (Text(commit.short())) } " " (Text(&commit.subject))
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
fn row(application: &Application) -> Markup {
    let Application { name, spec, status, .. } = application;
    let replicas = |count: fn(&driftless_model::WorkloadStatus) -> u32| -> u32 {
        status.workloads.values().map(count).fold(0, u32::saturating_add)
    };
    let ready = replicas(|workload| workload.ready_replicas);
    let wanted = replicas(|workload| workload.replicas);
    let commit = status.revision_commit.as_ref().or(status.commit.as_ref());
    let is_urgent = needs_attention(application);
    html! {
        tr id=(row_id(application)) {
            th { a href={ "applications/" (Text(name)) } { (Text(name)) } }
            td class=[urgent_class(sync_class(status.sync))] { (sync_word(status.sync)) }
            td class=[urgent_class(health_class(status.health))] { (health_word(status.health)) }
            td { (ready) "/" (wanted) }
            td { @if let Some(commit) = commit { (Text(commit.short().get(..7).unwrap_or_default())) } }
            @if is_urgent || status.pin.is_some() || spec.policy.suspended {
                td {
                    @if status.pin.is_some() { b { "pinned " } }
                    @if spec.policy.suspended { b { "suspended " } }
                    @if is_urgent { (Text(why(application))) " " small { (Text(&spec.repository)) } }
                }
            }
        }
    }
}

/// No class for what is well, so that its row is short.
fn urgent_class(class: &'static str) -> Option<&'static str> {
    (class != "good").then_some(class)
}

fn row_id(application: &Application) -> String {
    format!("a-{}", application.name)
}

/// The sentence that says most about an application that needs attention.
fn why(application: &Application) -> String {
    let status = &application.status;
    let running = status.operation.as_ref().filter(|it| it.phase == OperationPhase::Running);
    if let Some(operation) = running.filter(|it| !it.message.is_empty()) {
        return operation.message.clone();
    }
    if !status.message.is_empty() {
        return status.message.clone();
    }
    if let Some(wait) = status.waits.first() {
        return format!("{}: {}", wait.object, wait.message);
    }
    match status.drift.as_slice() {
        [] => String::new(),
        [one] => format!("drift: {} {}", one.object, one.field),
        [one, rest @ ..] => format!("drift: {} {} and {} more", one.object, one.field, rest.len()),
    }
}

/// A counter, which is a link that filters.
fn counter(label: &str, count: usize, query: &str, class: &str, is_current: bool) -> Markup {
    html! {
        a.counter.(class).zero[count == 0] href={ "./" (query) } aria-current=[is_current.then_some("true")] {
            b { (count) } " " (label)
        }
    }
}

fn counters(shown: &OverviewData) -> Markup {
    let count = |is: &dyn Fn(&Application) -> bool| shown.all.iter().filter(|it| is(it)).count();
    let filters = &shown.filters;
    let health = |health: HealthStatus| count(&move |it: &Application| it.status.health == health);
    let of_health = |health_status: HealthStatus| {
        let word = health_word(health_status);
        counter(
            word,
            health(health_status),
            &format!("?health={word}"),
            health_class(health_status),
            filters.health.eq_ignore_ascii_case(word),
        )
    };
    let out = count(&|it: &Application| it.status.sync == SyncStatus::OutOfSync);
    let is_only = |word: &str| filters.only == word;
    html! {
        nav #counters aria-label="Filters" {
            (counter("applications", shown.all.len(), "", "idle", filters.is_empty()))
            (counter("need attention", count(&needs_attention), "?only=attention", "bad", is_only("attention")))
            (counter("OutOfSync", out, "?sync=OutOfSync", "warn", filters.sync.eq_ignore_ascii_case("OutOfSync")))
            (of_health(HealthStatus::Degraded))
            (of_health(HealthStatus::Missing))
            (of_health(HealthStatus::Progressing))
            (of_health(HealthStatus::Suspended))
            (counter("pinned", count(&|it: &Application| it.status.pin.is_some()), "?only=pinned", "warn", is_only("pinned")))
        }
    }
}

/// The operations that run at this moment.
fn happening(shown: &OverviewData, now: Timestamp) -> Markup {
    let running: Vec<_> = shown
        .all
        .iter()
        .filter_map(|application| {
            let operation = application.status.operation.as_ref()?;
            (operation.phase == OperationPhase::Running).then_some((application, operation))
        })
        .collect();
    html! {
        section #now aria-label="Now" aria-live="polite" {
            @if !running.is_empty() {
                h2 { "Now" }
                ul {
                    @for (application, operation) in running.iter().take(MOST_NOW) {
                        li {
                            a href={ "applications/" (Text(&application.name)) } { (Text(&application.name)) }
                            ": " (Text(&operation.message)) " "
                            span.soft { "since " (RelativeTime { at: operation.started, now }) }
                        }
                    }
                    @if running.len() > MOST_NOW { li.soft { "and " (running.len() - MOST_NOW) " more" } }
                }
            }
        }
    }
}

fn notice(shown: &OverviewData) -> Markup {
    let OverviewData { readiness, problems, .. } = shown;
    let message = match readiness.message.as_str() {
        "" => "The agent is still starting.",
        message => message,
    };
    html! {
        div #notice {
            @if !readiness.is_ready() { p.note.bad role="status" { b { "Not ready." } " " (Text(message)) } }
            @for problem in problems {
                p.note.bad role="status" { b { (Text(&problem.subject)) "." } " " (Text(&problem.message)) }
            }
            @for repository in shown.repositories.iter().filter(|it| !it.message.is_empty()) {
                p.note.bad role="status" {
                    b { "Repository " (Text(&repository.name)) "." } " " (Text(&repository.message))
                }
            }
        }
    }
}

fn search(filters: &Filters, shown: &OverviewData) -> Markup {
    let option = |value: &str, label: &str| {
        html! {
            option value=(Text(value)) selected[filters.repository == value] { (Text(label)) }
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
            label.hidden for="repository" { "Repository" }
            select #repository name="repository" {
                (option("", "All repositories"))
                @for repository in shown.repositories.iter() { (option(&repository.name, &repository.name)) }
            }
            button type="submit" { "Filter" }
            @if !filters.is_empty() { a href="./" { "Clear" } }
        }
    }
}

fn body(shown: &OverviewData, now: Timestamp) -> Markup {
    html! {
        h1.hidden { "Applications" }
        (notice(shown))
        (counters(shown))
        (search(&shown.filters, shown))
        (happening(shown, now))
        @if shown.all.is_empty() {
            div.empty {
                p { "No application yet." }
                p {
                    "Applications appear here once the repository has been read. If none appears, the agent's log \
                     says why."
                }
            }
        }
        div.scroll tabindex="0" {
            table.rows {
                thead {
                    tr {
                        th scope="col" { "Application" }
                        th scope="col" { "Sync" }
                        th scope="col" { "Health" }
                        th scope="col" { "Ready" }
                        th scope="col" { "Commit" }
                        th scope="col" { "Why" }
                    }
                }
                @for group in groups(shown, now) {
                    tbody id=(Text(&group.id)) {
                        (group.head)
                        @for application in &group.applications { (row(application)) }
                    }
                }
            }
        }
    }
}

fn parts(shown: &OverviewData) -> Parts {
    let now = super::text::LIVE;
    let mut parts = Parts::new(title(shown));
    parts.add("notice", notice(shown));
    parts.add("counters", counters(shown));
    parts.add("now", happening(shown, now));
    for group in groups(shown, now) {
        let mut ids = vec![group.head_id.clone()];
        parts.add(&group.head_id, group.head);
        for application in group.applications {
            let id = row_id(application);
            parts.add(&id, row(application));
            ids.push(id);
        }
        parts.list(&group.id, ids);
    }
    parts
}
