//! One application: what Git says, what runs, and why they differ.

use std::{collections::BTreeMap, sync::Arc};

use axum::{
    extract::State,
    response::{IntoResponse, Response},
};
use driftless_model::{
    AppName, Application, ApplicationStatus, CommitInfo, Drift, DriftAction, Event, EventKind, Finding,
    HealthStatus, ImageUpdateStatus, Operation, OperationPhase, Outcome, PinStatus, Revision, Severity,
    Timestamp, Until, UpdateMode, WaitStatus, WorkloadStatus,
};
use driftless_store as store;
use driftless_store::Store;
use maud::{Markup, html};
use serde::Deserialize;

use super::{
    actions::{action_bar, done_text},
    badge::{health_badge, health_word, outcome_badge, sync_badge},
    compare::wanted_heading,
    crashes::{CrashCache, CrashOutput, crash_outputs, crash_section},
    failure::PageError,
    forge_link::ForgeLinks,
    layout::{Page, respond},
    live::{self, Parts, Streaming},
    parameters::PageParameters,
    text::{Deadline, Folded, LIVE, RelativeTime, Text, took},
    workloads::{Tree, workloads},
};
use crate::{
    access::{Caller, Identity},
    api::Name,
    error::Error,
    shared::{Shared, read},
};

/// Number of newest events that are read; equal ones become one row.
const EVENTS: usize = 200;

/// The most rows of events.
const EVENT_ROWS: usize = 25;

/// The findings that are shown; the others are folded.
const OPEN_FINDINGS: usize = 5;

/// The query of an application's page.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct ApplicationQuery {
    /// The action that was just requested.
    did: String,
    /// The version that the page has: only for the stream.
    v: String,
}

/// The data of one rendering.
struct ApplicationData {
    application: Arc<Application>,
    /// The newest commit of its repository. The application may be kept at an older one.
    newest: Option<CommitInfo>,
    /// Newest first; `None` when the database cannot be read.
    events: Option<Vec<Event>>,
    revisions: Vec<Revision>,
    may_act: bool,
    may_read_logs: bool,
    crashes: Vec<CrashOutput>,
    /// The host name that the browser uses, for links to ports.
    host: String,
}

pub(crate) async fn show(
    Caller(caller): Caller,
    State(shared): State<Shared>,
    streaming: Option<Streaming>,
    Name(name): Name,
    PageParameters(query): PageParameters<ApplicationQuery>,
    headers: http::HeaderMap,
) -> Result<Response, PageError> {
    let host = host_of(&headers);
    let path = format!("/applications/{name}");
    let cache = CrashCache::default();
    if let Some(streaming) = streaming {
        let source = shared.clone();
        let build = move || {
            let (shared, caller, name, host) = (source.clone(), caller.clone(), name.clone(), host.clone());
            let cache = cache.clone();
            async move { Ok(parts(&shown(&shared, &caller, &name, host, &cache).await?)) }
        };
        return Ok(live::stream(&shared, streaming, query.v, build).await?);
    }
    let shown = match shown(&shared, &caller, &name, host, &cache).await {
        Ok(shown) => shown,
        Err(error) => {
            let is_gone = matches!(error, Error::NoSuchApplication(_));
            let note = if is_gone { gone(&shared, &name).await } else { Markup::default() };
            return Err(PageError::new(&caller, &shared, &path, error).note(note));
        }
    };
    let version = parts(&shown).version();
    let now = shared.clock.now();
    let page = Page::new(&caller, &shared, &path).title(&title(&shown.application)).live(&version);
    let body = html! {
        (head(&shown, now))
        @if let Some(text) = done_text(&query.did) { p #done .note.good role="status" { (text) } }
        (why(&shown, now))
        (crash_section(&name, &shown.crashes))
        (workloads(&tree(&shown, now)))
        (drift(&shown.application.status, now))
        (images(&shown.application.status, now))
        (resources(&shown.application))
        (findings(&shown))
        (last_plan(&shown.application, now))
        (history(&shown, now))
        (events(&shown, now))
    };
    Ok(respond(&page, &body).into_response())
}

/// The note that an application was there before: its last event says when, and whether it was forgotten. Empty if nothing is known
/// of it.
async fn gone(shared: &Shared, name: &AppName) -> Markup {
    let app = name.clone();
    let events = read(&shared.store, move |store| store.newest_events(1, Some(&app))).await;
    let Some(event) = events.unwrap_or_default().pop() else { return Markup::default() };
    let now = shared.clock.now();
    html! {
        p {
            "The application " b { (Text(name)) } " is gone: it was removed or forgotten. Its last event, "
            (RelativeTime { at: event.at, now }) ": " span.badge.idle { (Text(&event.reason)) } " " (Text(&event.message))
        }
    }
}

async fn shown(
    shared: &Shared,
    caller: &Identity,
    name: &AppName,
    host: String,
    cache: &CrashCache,
) -> Result<ApplicationData, Error> {
    let application = shared.handle.application(name)?;
    let repositories = shared.handle.repositories();
    let repository = repositories.iter().find(|repository| repository.name == application.spec.repository);
    let newest =
        repository.and_then(|repository| repository.commit.clone()).or(application.spec.commit.clone());
    let app = name.clone();
    let stored = read(&shared.store, move |store: &Store| {
        Ok::<_, store::Error>((store.newest_events(EVENTS, Some(&app))?, store.revisions(&app)?))
    })
    .await
    .ok();
    let (events, revisions) = match stored {
        Some((events, revisions)) => (Some(events.into_iter().rev().collect()), revisions),
        None => (None, Vec::new()),
    };
    let may_read_logs = caller.may_read_logs();
    let crashes = if may_read_logs { crash_outputs(shared, &application, cache).await } else { Vec::new() };
    let may_act = caller.may_act(name, Some(&application.spec.repository));
    Ok(ApplicationData { application, newest, events, revisions, may_act, may_read_logs, crashes, host })
}

fn tree(shown: &ApplicationData, now: Timestamp) -> Tree<'_> {
    Tree {
        application: &shown.application,
        revision: shown.revisions.first(),
        host: &shown.host,
        may_act: shown.may_act,
        may_read_logs: shown.may_read_logs,
        now,
    }
}

fn parts(shown: &ApplicationData) -> Parts {
    let application = &shown.application;
    let mut parts = Parts::new(title(application));
    parts.add("head", head(shown, LIVE));
    parts.add("why", why(shown, LIVE));
    parts.add("crashes", crash_section(&application.name, &shown.crashes));
    parts.add("workloads", workloads(&tree(shown, LIVE)));
    parts.add("drift", drift(&application.status, LIVE));
    parts.add("images", images(&application.status, LIVE));
    parts.add("resources", resources(application));
    parts.add("findings", findings(shown));
    parts.add("last-plan", last_plan(application, LIVE));
    parts.add("history", history(shown, LIVE));
    parts.add("events", events(shown, LIVE));
    parts
}

fn title(application: &Application) -> String {
    match application.status.health {
        HealthStatus::Healthy => application.name.to_string(),
        health => format!("{}: {}", health_word(health), application.name),
    }
}

/// The host name without the port.
fn host_of(headers: &http::HeaderMap) -> String {
    let host = headers.get(http::header::HOST).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let end = match host.rfind(']') {
        Some(bracket) => bracket + 1,
        None => host.find(':').unwrap_or(host.len()),
    };
    host.get(..end).unwrap_or_default().to_owned()
}

fn head(shown: &ApplicationData, now: Timestamp) -> Markup {
    let Application { name, spec, status, .. } = shown.application.as_ref();
    html! {
        section #head {
            p.crumbs { a href="../" { "Applications" } " / " a href={ "../repositories/" (Text(&spec.repository)) } { (Text(&spec.repository)) } }
            h1 { (Text(name)) " " (sync_badge(status.sync)) " " (health_badge(status.health)) }
            @if !status.message.is_empty() { p.lead { (Text(&status.message)) } }
            @if let Some(pin) = &status.pin { (pin_note(pin, now)) }
            @if spec.policy.suspended { p.note.warn { b { "Suspended." } " The agent observes and reports, and changes nothing until it is resumed." } }
            @if let Some(operation) = &status.operation { (operation_note(operation, now)) }
            (action_bar(&shown.application, &shown.revisions, shown.may_act))
        }
    }
}

fn pin_note(pin: &PinStatus, now: Timestamp) -> Markup {
    let PinStatus { revision, commit, reason, at, until, behind, actor } = pin;
    html! {
        p.note.warn {
            b { "Pinned" } " to revision " (Text(revision)) " (" code { (Text(commit.short())) } ") "
            (RelativeTime { at: *at, now })
            @if let Some(actor) = actor { " by " (Text(actor)) }
            @if let Some(behind) = behind { ", " (Text(behind)) " behind" }
            @match until {
                Until::Manual => ", until it is resumed",
                Until::NextCommit => ", until the next commit",
                Until::Time(end) => { ", ends " (RelativeTime { at: *end, now }) }
            }
            @if !reason.is_empty() { ": " (Text(reason)) }
        }
    }
}

fn operation_note(operation: &Operation, now: Timestamp) -> Markup {
    let (class, word) = match operation.phase {
        // The rest of the page shows what a finished operation reached.
        OperationPhase::Succeeded => return Markup::default(),
        OperationPhase::Running => ("busy", "Working"),
        OperationPhase::Waiting => ("warn", "Waiting"),
        OperationPhase::Failed => ("bad", "Failed"),
    };
    html! {
        p.note aria-live="polite" {
            span.badge.(class) { (word) } " " (Text(&operation.message)) " "
            span.soft {
                "since " (RelativeTime { at: operation.started, now })
                @if operation.attempt > 0 { " · attempt " (Text(operation.attempt)) }
                @if let Some(at) = operation.next_retry_at { " · next try " (Deadline { at, now }) }
            }
        }
    }
}

/// Git on one side, the host on the other, and the sentences that explain the difference.
fn why(shown: &ApplicationData, now: Timestamp) -> Markup {
    let Application { spec, status, .. } = shown.application.as_ref();
    let links = ForgeLinks::of(&spec.url);
    // The newest commit may have changed only other applications.
    let running = status.revision_commit.as_ref().or(status.commit.as_ref());
    let wanted = shown.newest.as_ref().or(status.commit.as_ref());
    html! {
        section #why aria-label="Git and the host" {
            div.sides {
                div {
                    h2 { "Git says" }
                    p {
                        @match wanted {
                            Some(commit) => (commit_line(commit, links.as_ref(), now)),
                            None => "nothing was read yet",
                        }
                    }
                    p.soft {
                        (Text(&spec.reference)) " of " span.mono { (Text(&spec.url)) }
                        @if !spec.path.is_empty() { ", folder " span.mono { (Text(&spec.path)) } }
                        @if let Some(at) = status.fetched_at { " · read " (RelativeTime { at, now }) }
                    }
                }
                div {
                    h2 { "Runs" }
                    p {
                        @if let Some(revision) = status.revision { "revision " (Text(revision)) " · " }
                        @match running {
                            Some(commit) => (commit_line(commit, links.as_ref(), now)),
                            None => "nothing was applied yet",
                        }
                    }
                    p.soft {
                        @if let Some(at) = status.observed_at { "Docker read " (RelativeTime { at, now }) }
                    }
                }
            }
            (reasons(status, now))
        }
    }
}

fn commit_line(commit: &CommitInfo, links: Option<&ForgeLinks>, now: Timestamp) -> Markup {
    html! {
        (commit_id(commit, links)) " " (Text(&commit.subject))
        " · " (Text(commit.author_name())) " · " (RelativeTime { at: commit.time, now })
    }
}

/// The id of a commit, as a link to its page at the forge if there is one.
pub(super) fn commit_id(commit: &CommitInfo, links: Option<&ForgeLinks>) -> Markup {
    html! {
        @match links {
            Some(links) => a href=(links.commit(commit.id.as_str())) rel="noreferrer" { code { (Text(commit.short())) } },
            None => code title=(Text(&commit.id)) { (Text(commit.short())) },
        }
    }
}

/// Waits and conditions as sentences.
fn reasons(status: &ApplicationStatus, now: Timestamp) -> Markup {
    let failing: Vec<_> = status
        .conditions
        .iter()
        .filter(|condition| condition.is_problem() && !condition.message.is_empty())
        .filter(|condition| !status.waits.iter().any(|wait| wait.message == condition.message))
        .collect();
    if status.waits.is_empty() && failing.is_empty() {
        return Markup::default();
    }
    html! {
        h2 { "Why" }
        ul.reasons {
            @for WaitStatus { reason, object, message, attempt, until } in &status.waits {
                // The attempt and its time follow.
                @let sentence = message.rsplit_once(", attempt ").filter(|_| attempt.is_some()).map_or(message.as_str(), |(sentence, _)| sentence);
                li {
                    span.badge.warn { (Text(reason)) } " "
                    @match sentence.strip_prefix(object.as_str()).filter(|rest| rest.starts_with(' ')) {
                        Some(rest) => { b { (Text(object)) } (Text(rest)) }
                        None => { @if !object.is_empty() { b { (Text(object)) } ": " } (Text(sentence)) }
                    }
                    span.soft {
                        @if let Some(attempt) = attempt { " · attempt " (Text(attempt)) }
                        @if let Some(at) = until {
                            @if attempt.is_some() { " · next try " } @else { " · goes on " }
                            (Deadline { at: *at, now })
                        }
                    }
                }
            }
            @for condition in failing {
                li {
                    span.badge.warn { (Text(&condition.reason)) } " " (Text(&condition.message))
                    span.soft { " · since " (RelativeTime { at: condition.last_transition_time, now }) }
                }
            }
        }
    }
}

/// The images whose registries are asked for newer ones.
fn images(status: &ApplicationStatus, now: Timestamp) -> Markup {
    let images = &status.images;
    html! {
        section #images aria-label="Images" {
            @if !images.is_empty() {
                h2 { "Images" }
                div.scroll tabindex="0" {
                    table.stack {
                        thead {
                            tr {
                                th scope="col" { "In Git" }
                                th scope="col" { "Deployed as" }
                                th scope="col" { "Newer image" }
                                th scope="col" { "Registry" }
                            }
                        }
                        tbody { @for image in images.iter() { (image_row(image, is_deployed(status, image), now)) } }
                    }
                }
            }
        }
    }
}

/// Whether an image is in force: an instance of the desired specification uses it, or no workload that uses it has or needs an
/// instance now, such as a CronJob between its runs.
fn is_deployed(status: &ApplicationStatus, image: &ImageUpdateStatus) -> bool {
    let is_image = |named: &str| named == image.image || image.resolved.as_deref() == Some(named);
    let uses = |workload: &WorkloadStatus| {
        let mut parts = workload.spec.containers.iter();
        is_image(&workload.image) || parts.any(|part| is_image(&part.image))
    };
    let using: Vec<&WorkloadStatus> = status.workloads.values().filter(|workload| uses(workload)).collect();
    let has_updated = using.iter().any(|workload| workload.instances.iter().any(|instance| instance.updated));
    let needs_none = |workload: &WorkloadStatus| {
        workload.replicas == 0 || workload.cron.is_some() || workload.job.is_some()
    };
    let are_idle = using.iter().all(|workload| workload.instances.is_empty() && needs_none(workload));
    has_updated || (are_idle && !using.is_empty())
}

fn image_row(image: &ImageUpdateStatus, is_deployed: bool, now: Timestamp) -> Markup {
    let deployed = if is_deployed { image.resolved.as_deref().unwrap_or("as in Git") } else { "—" };
    html! {
        tr {
            td.mono { (Text(&image.image)) }
            td.mono data-label="deployed as" { (Text(deployed)) }
            td.text data-label="newer image" {
                @match &image.available {
                    Some(available) => {
                        span.mono { (Text(&available.image)) }
                        @match (image.mode, image.due) {
                            (UpdateMode::Apply, Some(due)) => span.soft { " · deployed " (Deadline { at: due, now }) },
                            (UpdateMode::Apply, None) => span.soft { " · being deployed" },
                            (UpdateMode::Report | UpdateMode::Off, _) => span.soft { " · reported only" },
                        }
                    },
                    None => span.soft { "none" },
                }
            }
            td.text data-label="registry" {
                @match (&image.failure, image.checked) {
                    (Some(failure), _) => { span.badge.warn { (Text(&failure.reason)) } " " (Text(&failure.message)) },
                    (None, Some(checked)) => span.soft { "asked " (RelativeTime { at: checked, now }) },
                    (None, None) => span.soft { "not asked yet" },
                }
                @if !image.note.is_empty() { span.soft { " · " (Text(&image.note)) } }
            }
        }
    }
}

fn drift(status: &ApplicationStatus, now: Timestamp) -> Markup {
    let (drift, wanted) = (&status.drift, wanted_heading(status));
    html! {
        section #drift aria-label="Drift" {
            @if !drift.is_empty() {
                h2 { "Drift" }
                div.scroll tabindex="0" {
                    table.stack {
                        thead {
                            tr {
                                th scope="col" { "Object" }
                                th scope="col" { "Field" }
                                th scope="col" { (wanted) }
                                th scope="col" { "Found" }
                                th scope="col" { "When" }
                                th scope="col" { "Action" }
                            }
                        }
                        tbody { @for difference in drift { (drift_row(difference, &wanted, now)) } }
                    }
                }
            }
        }
    }
}

fn drift_row(drift: &Drift, wanted: &str, now: Timestamp) -> Markup {
    let Drift { kind, object, workload: _, field, want, found, at, action } = drift;
    let (class, word) = match action {
        DriftAction::Heal => ("busy", "being healed"),
        DriftAction::BackOff => ("warn", "healed after a pause"),
        DriftAction::Report => ("idle", "reported only"),
        DriftAction::Ineffective => ("bad", "not healed: healing has no effect"),
    };
    html! {
        tr {
            td { (Text(kind)) " " span.mono { (Text(object)) } }
            td.mono { (Text(field)) }
            td.mono data-label=(wanted) { (Folded(want)) }
            td.mono data-label="found" { (Folded(found)) }
            td { @if let Some(at) = at { (RelativeTime { at: *at, now }) } }
            td { span.badge.(class) { (word) } }
        }
    }
}

/// Services, ConfigMaps and other objects that run nothing.
fn resources(application: &Application) -> Markup {
    let resources = &application.status.resources;
    html! {
        section #resources aria-label="Resources" {
            @if !resources.is_empty() {
                details #resource-list {
                    summary { "Resources: " (resources.len()) }
                    ul {
                        @for status in resources.iter() {
                            li { (Text(status.resource.object.kind.as_str())) " " span.mono { (Text(&status.resource.object.name)) } }
                        }
                    }
                }
            }
        }
    }
}

fn findings(shown: &ApplicationData) -> Markup {
    let Application { spec, status, .. } = shown.application.as_ref();
    let links = ForgeLinks::of(&spec.url);
    let commit = shown.newest.as_ref().or(status.commit.as_ref()).map(|commit| commit.id.as_str());
    let (errors, warnings): (Vec<_>, Vec<_>) =
        status.findings.iter().partition(|finding| finding.severity == Severity::Error);
    let found: Vec<&Finding> = errors.into_iter().chain(warnings).collect();
    let (open, folded) = found.split_at(found.len().min(OPEN_FINDINGS));
    let line = |finding: &Finding| finding_line(finding, links.as_ref(), commit);
    html! {
        section #findings aria-label="Findings" {
            @if !found.is_empty() {
                h2 { "Findings in the manifests" }
                ul.reasons { @for finding in open { (line(finding)) } }
            }
            @if !folded.is_empty() {
                details #more-findings {
                    summary { (folded.len()) " more" @if folded.len() == 1 { " finding" } @else { " findings" } }
                    ul.reasons { @for finding in folded { (line(finding)) } }
                }
            }
        }
    }
}

fn finding_line(finding: &Finding, links: Option<&ForgeLinks>, commit: Option<&str>) -> Markup {
    let Finding { severity, location, path, message, help, excerpt: _ } = finding;
    let link = links.zip(commit).and_then(|(links, id)| links.line(id, &location.file, location.line));
    html! {
        li {
            @match severity {
                Severity::Warning => span.badge.warn { "warning" },
                Severity::Error => span.badge.bad { "error" },
            }
            " "
            @match link {
                Some(link) => a.mono href=(link) rel="noreferrer" { (Text(location)) },
                None => span.mono { (Text(location)) },
            }
            @if !path.is_empty() { " " span.mono.soft { (Text(path)) } }
            " " (Text(message))
            @if let Some(help) = help { " " span.soft { (Text(help)) } }
        }
    }
}

fn last_plan(application: &Application, now: Timestamp) -> Markup {
    let steps = &application.status.last_plan;
    html! {
        section #last-plan aria-label="Last plan" {
            @if !steps.is_empty() {
                details #plan-steps {
                    summary {
                        "Last plan: " (steps.len()) @if steps.len() == 1 { " step" } @else { " steps" }
                        @if let Some(at) = application.status.last_plan_at { ", " (RelativeTime { at, now }) }
                    }
                    ol { @for step in steps.iter() { li { (Text(step)) } } }
                }
            }
        }
    }
}

fn history(shown: &ApplicationData, now: Timestamp) -> Markup {
    let name = &shown.application.name;
    let links = ForgeLinks::of(&shown.application.spec.url);
    html! {
        section #history aria-label="History" {
            h2 { "History" }
            @if shown.revisions.is_empty() { p.soft { "No revision yet." } }
            @else {
                div.scroll tabindex="0" {
                    table.stack {
                        thead {
                            tr {
                                th scope="col" { "Revision" }
                                th scope="col" { "Commit" }
                                th scope="col" { "Why, by whom" }
                                th scope="col" { "Outcome" }
                                th scope="col" { "Began" }
                                th scope="col" { "Took" }
                                @if shown.may_act { th scope="col" { span.hidden { "Actions" } } }
                            }
                        }
                        tbody {
                            @for (index, revision) in shown.revisions.iter().enumerate() {
                                @let cell = RollbackCell::of(shown, index, revision);
                                (history_row(name, revision, links.as_ref(), cell, now))
                            }
                        }
                    }
                }
            }
        }
    }
}

/// The last cell of a revision's row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RollbackCell {
    /// The user may not act, so the table has no such column.
    Absent,
    Empty,
    Button,
}

impl RollbackCell {
    /// `index` counts from the newest revision.
    fn of(shown: &ApplicationData, index: usize, revision: &Revision) -> Self {
        if !shown.may_act {
            Self::Absent
        } else if index == 0 || revision.is_removal() {
            Self::Empty
        } else {
            Self::Button
        }
    }
}

fn history_row(
    name: &AppName,
    revision: &Revision,
    links: Option<&ForgeLinks>,
    cell: RollbackCell,
    now: Timestamp,
) -> Markup {
    let number = revision.number;
    html! {
        tr {
            th scope="row" { a href={ (Text(name)) "/revisions/" (number) } { "#" (number) } }
            td.text { (commit_id(&revision.commit, links)) " " (Text(&revision.commit.subject)) " " span.soft { (Text(revision.commit.author_name())) } }
            td { (cause(revision)) }
            td { (outcome_badge(&revision.outcome)) @if let Outcome::Failed { reason } = &revision.outcome { " " (Text(reason)) } }
            td { (RelativeTime { at: revision.started, now }) }
            td data-label=[revision.finished.map(|_| "took")] { @if let Some(end) = revision.finished { (took(end.since(revision.started))) } }
            @if cell != RollbackCell::Absent {
                td {
                    @if cell == RollbackCell::Button {
                        a.button href={ (Text(name)) "/rollback?to=" (number) } { "Roll back" span.hidden { " to revision " (number) } }
                    }
                }
            }
        }
    }
}

/// Why a revision exists, and who asked for it.
pub(super) fn cause(revision: &Revision) -> Markup {
    use driftless_model::Cause;
    let word = match (&revision.cause, revision.rollback_of) {
        (Cause::Rollback, Some(number)) => format!("rollback to #{number}"),
        (Cause::AutomaticRollback, Some(number)) => format!("failed commit: back to #{number}"),
        (Cause::AutomaticRollback, None) => "failed commit".to_owned(),
        (Cause::Rollback, None) => "rollback".to_owned(),
        (Cause::Commit, _) => "commit".to_owned(),
        (Cause::User, _) => "sync".to_owned(),
        (Cause::Resume, _) => "resume".to_owned(),
        (Cause::Start, _) => "first look of the agent".to_owned(),
        (Cause::Image, _) => "newer image".to_owned(),
        (Cause::Configuration, _) => "configuration".to_owned(),
        (Cause::Removal, _) => "removal of the application".to_owned(),
    };
    html! { (word) @if let Some(actor) = &revision.actor { " by " (Text(actor)) } }
}

/// Equal events in one row.
struct EventRow<'a> {
    event: &'a Event,
    count: usize,
    first: Timestamp,
}

/// The newest events, newest first. Events that say the same about the same object become one row, also if other events lie
/// between them, as in a crash loop.
fn merged(events: &[Event]) -> Vec<EventRow<'_>> {
    let mut rows: Vec<EventRow<'_>> = Vec::new();
    let mut places: BTreeMap<_, usize> = BTreeMap::new();
    for event in events {
        let key =
            (event.reason.as_str(), event.object.as_str(), event.actor.as_ref(), wording(&event.message));
        if let Some(row) = places.get(&key).and_then(|index| rows.get_mut(*index)) {
            row.count += 1;
            row.first = row.first.min(event.at);
        } else {
            places.insert(key, rows.len());
            rows.push(EventRow { event, count: 1, first: event.at });
        }
    }
    rows
}

/// The words of a message without those that have numbers, such as times, counts and ids.
fn wording(message: &str) -> Vec<&str> {
    let has_digit = |word: &&str| word.bytes().any(|letter| letter.is_ascii_digit());
    message.split_whitespace().filter(|word| !has_digit(word)).collect()
}

fn events(shown: &ApplicationData, now: Timestamp) -> Markup {
    html! {
        section #events aria-label="Events" {
            h2 { "Events" }
            @match shown.events.as_deref() {
                None => p.note.bad { "The database could not be read; the agent's log has the cause." },
                Some([]) => p.soft { "No events yet." },
                Some(events) => {
                    div.scroll tabindex="0" {
                        table.stack {
                            thead {
                                tr {
                                    th scope="col" { "When" }
                                    th scope="col" { "Reason" }
                                    th scope="col" { "Object" }
                                    th scope="col" { "Message" }
                                }
                            }
                            tbody { @for row in merged(events).iter().take(EVENT_ROWS) { (event_row(row, now)) } }
                        }
                    }
                }
            }
        }
    }
}

fn event_row(row: &EventRow<'_>, now: Timestamp) -> Markup {
    let EventRow { event, count, first } = row;
    let class = match event.kind {
        EventKind::Normal => "idle",
        EventKind::Warning => "warn",
    };
    html! {
        tr {
            td {
                (RelativeTime { at: event.at, now })
                @if *count > 1 { " " span.soft { (count) " times since " (RelativeTime { at: *first, now }) } }
            }
            td { span.badge.(class) { (Text(&event.reason)) } }
            td.mono { (Text(&event.object)) }
            td.text { (Text(&event.message)) @if let Some(actor) = &event.actor { " " span.soft { "by " (Text(actor)) } } }
        }
    }
}

#[cfg(test)]
mod tests {
    use driftless_model::{ConditionStatus, CronStatus, InstanceStatus, StatusCondition};

    use super::*;

    fn event(at: u64, reason: &str, object: &str) -> Event {
        Event {
            sequence: at,
            at: Timestamp(at),
            app: "shop".into(),
            kind: EventKind::Warning,
            reason: reason.to_owned(),
            object: object.to_owned(),
            message: String::new(),
            actor: None,
        }
    }

    #[test]
    fn crash_loop_is_one_row_with_a_count() {
        let events = [
            event(6, "BackOff", "web.1"),
            event(5, "Started", "web.1"),
            event(4, "BackOff", "web.1"),
            event(3, "Started", "web.1"),
            event(2, "BackOff", "web.2"),
        ];
        let rows = merged(&events);
        let shown: Vec<_> = rows.iter().map(|row| (row.event.at.0, row.count, row.first.0)).collect();
        assert_eq!(shown, [(6, 2, 4), (5, 2, 3), (2, 1, 2)]);
    }

    #[test]
    fn differences_of_one_object_have_rows_of_their_own() {
        let drift =
            |at, message: &str| Event { message: message.to_owned(), ..event(at, "DriftDetected", "web.1") };
        let events = [
            drift(4, "state: found exited, wants running since 2026-01-01T00:00:09Z"),
            drift(3, "resources.memory: found 128 MiB, wants 64 MiB"),
            drift(2, "state: found exited, wants running since 2026-01-01T00:00:01Z"),
        ];
        let shown: Vec<_> = merged(&events).iter().map(|row| (row.event.at.0, row.count)).collect();
        assert_eq!(shown, [(4, 2), (3, 1)], "times differ, fields do too");
    }

    #[test]
    fn conditions_are_reasons_only_while_they_are_problems() {
        let condition = |kind: &str, status| StatusCondition {
            kind: kind.to_owned(),
            status,
            reason: kind.to_owned(),
            message: format!("{kind} explained"),
            last_transition_time: Timestamp(1),
        };
        let conditions = vec![
            condition("RepeatedDrift", ConditionStatus::True),
            condition("InGit", ConditionStatus::False),
            condition("Trusted", ConditionStatus::True),
            condition("CommitFailed", ConditionStatus::False),
        ];
        let status = ApplicationStatus { conditions, ..ApplicationStatus::default() };
        let shown = reasons(&status, Timestamp(9)).into_string();
        for (kind, is_shown) in
            [("RepeatedDrift", true), ("InGit", true), ("Trusted", false), ("CommitFailed", false)]
        {
            assert_eq!(shown.contains(&format!("{kind} explained")), is_shown, "{kind}: {shown}");
        }
        assert!(!shown.contains("badge idle"), "each of them is a problem: {shown}");
    }

    #[test]
    fn image_that_no_instance_uses_is_not_called_deployed() {
        let image = ImageUpdateStatus {
            image: "web:2".to_owned(),
            mode: UpdateMode::Report,
            resolved: None,
            available: None,
            due: None,
            checked: None,
            failure: None,
            note: String::new(),
        };
        let shown = |updated: Option<bool>, workload: WorkloadStatus| {
            let instance = updated.map(|updated| InstanceStatus { updated, ..InstanceStatus::default() });
            let instances = instance.into_iter().collect();
            let web = WorkloadStatus { image: image.image.clone(), instances, ..workload };
            let status = ApplicationStatus {
                images: Arc::new(vec![image.clone()]),
                workloads: Arc::new(BTreeMap::from([("web".into(), web)])),
                ..ApplicationStatus::default()
            };
            images(&status, Timestamp(9)).into_string()
        };
        let wanted = || WorkloadStatus { replicas: 1, ..WorkloadStatus::default() };
        for (updated, is_deployed) in [(None, false), (Some(false), false), (Some(true), true)] {
            assert_eq!(shown(updated, wanted()).contains(">as in Git<"), is_deployed, "{updated:?}");
        }
        // Without an instance that is needed, it is the image of the next one.
        let cron = || WorkloadStatus { cron: Some(CronStatus::default()), ..wanted() };
        for (updated, is_deployed) in [(None, true), (Some(false), false), (Some(true), true)] {
            assert_eq!(shown(updated, cron()).contains(">as in Git<"), is_deployed, "{updated:?}");
        }
        assert!(shown(None, WorkloadStatus::default()).contains(">as in Git<"), "it has 0 instances");
    }

    #[test]
    fn host_of_a_link_has_no_port() {
        let host = |text: &str| {
            let mut headers = http::HeaderMap::new();
            headers.insert(http::header::HOST, text.parse().unwrap());
            host_of(&headers)
        };
        assert_eq!(host("nas.local:8484"), "nas.local");
        assert_eq!(host("[::1]:8484"), "[::1]");
        assert_eq!(host("localhost"), "localhost");
    }
}
