//! The page of one revision, and the page of the audit.

use axum::{
    extract::{Path, State},
    response::{IntoResponse, Response},
};
use driftless_model::{AppName, AuditEntry, AuditResult, Outcome, Revision, Timestamp};
use driftless_store::Store;
use maud::{Markup, html};
use serde::Deserialize;

use super::{
    application::{cause, commit_id},
    badge::outcome_badge,
    failure::PageError,
    forge_link::ForgeLinks,
    layout::{Page, respond},
    parameters::PageParameters,
    text::{RelativeTime, Text, took},
};
use crate::{
    access::Caller,
    error::Error,
    shared::{Shared, read},
};

/// The entries on one page of the audit.
const AUDIT_ROWS: usize = 200;

/// The page of one revision: what changed against the one before.
pub(crate) async fn revision(
    Caller(caller): Caller,
    State(shared): State<Shared>,
    Path((app, number)): Path<(String, u64)>,
) -> Result<Response, PageError> {
    let name = AppName(app);
    let path = format!("/applications/{name}/revisions/{number}");
    let frame = |error: Error| PageError::new(&caller, &shared, &path, error);
    let wanted = name.clone();
    let revisions =
        read(&shared.store, move |store: &Store| store.revisions(&wanted)).await.map_err(frame)?;
    let Some(index) = revisions.iter().position(|revision| revision.number == number) else {
        return Err(frame(Error::NoSuchRoute(path.clone())));
    };
    let Some(revision) = revisions.get(index) else { return Err(frame(Error::NoSuchRoute(path.clone()))) };
    let before = revisions.get(index + 1);
    let application = shared.handle.applications().get(&name).cloned();
    let links = application.as_ref().and_then(|application| ForgeLinks::of(&application.spec.url));
    let repository = application.as_ref().map(|application| application.spec.repository.as_str());
    let is_offered = index > 0 && application.is_some() && !revision.is_removal();
    let has_rollback = is_offered && caller.may_act(&name, repository);
    let page = Page::new(&caller, &shared, &path).title(&format!("Revision {number} of {name}"));
    let now = shared.clock.now();
    let body = html! {
        p.crumbs { a href="../../../" { "Applications" } " / " a href={ "../../" (Text(&name)) } data-key="Escape" data-name="back" { (Text(&name)) } }
        h1 { "Revision " (number) " of " (Text(&name)) " " (outcome_badge(&revision.outcome)) }
        (facts(revision, links.as_ref(), now))
        h2 {
            "What changed"
            @if let Some(before) = before {
                " since " a href=(before.number) { "revision " (before.number) }
            }
        }
        @if revision.changes.is_empty() { p.soft { "Nothing that the containers would notice, or it is the first revision." } }
        @else { ul.changes { @for change in &revision.changes { li.mono { (Text(change)) } } } }
        @if !revision.images.is_empty() {
            h2 { "Images" }
            ul { @for (image, digest) in &revision.images { li.mono { (Text(image)) " " span.soft { (Text(digest)) } } } }
        }
        @if has_rollback {
            p { a.button href={ "../rollback?to=" (number) } data-key="b" data-name="Roll back" { "Roll back to this revision" } }
        }
    };
    Ok(respond(&page, &body).into_response())
}

fn facts(revision: &Revision, links: Option<&ForgeLinks>, now: Timestamp) -> Markup {
    html! {
        dl.facts {
            dt { "Commit" }
            dd { (commit_id(&revision.commit, links)) " " (Text(&revision.commit.subject)) }
            dt { "Author" }
            dd { (Text(revision.commit.author_name())) ", " (RelativeTime { at: revision.commit.time, now }) }
            dt { "Why" }
            dd { (cause(revision)) ", following " (Text(&revision.reference)) }
            dt { "Began" }
            dd { (RelativeTime { at: revision.started, now }) }
            dt { "Took" }
            dd { @match revision.finished { Some(end) => (took(end.since(revision.started))), None => "not finished" } }
            @if let Outcome::Failed { reason } = &revision.outcome {
                dt { "Failed" }
                dd { (Text(reason)) }
            }
        }
    }
}

/// The query of the audit's page.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct AuditPageQuery {
    app: String,
    before: Option<u64>,
}

/// The page of the audit, for actors with the scope `admin`.
pub(crate) async fn audit(
    Caller(caller): Caller,
    State(shared): State<Shared>,
    PageParameters(AuditPageQuery { app, before }): PageParameters<AuditPageQuery>,
) -> Result<Response, PageError> {
    let wanted = Some(AppName(app.trim().to_owned())).filter(|app| !app.as_str().is_empty());
    let entries =
        read(&shared.store, move |store: &Store| store.audit(before, AUDIT_ROWS, wanted.as_ref())).await;
    let entries = entries.map_err(|error| PageError::new(&caller, &shared, "/audit", error))?;
    let page = Page::new(&caller, &shared, "/audit").title("Audit");
    let now = shared.clock.now();
    let body = html! {
        h1 { "Audit" }
        p.lead { "Every request that changes something, newest first." }
        form.search method="get" action="audit" {
            label.hidden for="app" { "Application" }
            input #app type="search" name="app" value=(Text(&app)) placeholder="Application" data-key="/" data-name="search";
            button type="submit" { "Filter" }
        }
        @if entries.is_empty() { p.empty { "No entry." } }
        @else {
            div.scroll tabindex="0" {
                table.stack {
                    thead {
                        tr {
                            th scope="col" { "When" }
                            th scope="col" { "Actor" }
                            th scope="col" { "From" }
                            th scope="col" { "Action" }
                            th scope="col" { "Application" }
                            th scope="col" { "Result" }
                        }
                    }
                    tbody { @for entry in &entries { (audit_row(entry, now)) } }
                }
            }
        }
        @if let Some(last) = entries.last().filter(|_| entries.len() == AUDIT_ROWS) {
            p { a href={ "?app=" (Text(&app)) "&before=" (last.sequence) } { "Older entries" } }
        }
    };
    Ok(respond(&page, &body).into_response())
}

fn audit_row(entry: &AuditEntry, now: Timestamp) -> Markup {
    let AuditEntry { sequence: _, at, actor, channel, from, action, app, detail, result, message } = entry;
    let class = match result {
        AuditResult::Accepted => "good",
        AuditResult::Refused => "warn",
        AuditResult::Failed => "bad",
    };
    html! {
        tr {
            td { (RelativeTime { at: *at, now }) }
            td { (Text(actor)) }
            td { (Text(channel)) " " span.mono.soft { (Text(from)) } }
            td.text { (Text(action)) " " span.soft { (Text(detail)) } }
            td { @if let Some(app) = app { a href={ "applications/" (Text(app)) } { (Text(app)) } } }
            td { span.badge.(class) { (Text(result)) } " " (Text(message)) }
        }
    }
}
