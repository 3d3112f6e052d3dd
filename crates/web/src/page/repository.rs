//! The page of one repository: its last and next poll, its keys, its webhook with the last deliveries, its errors and its
//! applications.

use std::sync::Arc;

use axum::{
    extract::{Path, State},
    response::{IntoResponse, Response},
};
use driftless_model::{Application, Delivery, RepositoryStatus, Timestamp, WebhookStatus};
use maud::{Markup, html};
use serde::Deserialize;

use super::{
    application::commit_id,
    badge::{health_badge, sync_badge},
    failure::PageError,
    forge_link::ForgeLinks,
    layout::{Page, respond},
    live::{self, Parts, Streaming},
    parameters::PageParameters,
    text::{Deadline, LIVE, RelativeTime, Text},
    webhooks::{earlier_deliveries, webhook_table},
};
use crate::{
    access::Caller,
    error::Error,
    shared::{Shared, read},
};

/// The version that the page has: only for the stream.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct RepositoryQuery {
    v: String,
}

/// The number of deliveries that the page shows.
const MOST_DELIVERIES: u64 = 20;

/// The data of one rendering.
struct RepositoryData {
    name: String,
    /// `None`: the agent follows it no more, and still has applications or a webhook of it.
    repository: Option<RepositoryStatus>,
    hooks: Vec<WebhookStatus>,
    /// Those that the table of the webhook does not show, newest first.
    earlier: Vec<Delivery>,
    applications: Vec<Arc<Application>>,
}

pub(crate) async fn show(
    Caller(caller): Caller,
    State(shared): State<Shared>,
    streaming: Option<Streaming>,
    Path(name): Path<String>,
    PageParameters(query): PageParameters<RepositoryQuery>,
) -> Result<Response, PageError> {
    let path = format!("/repositories/{name}");
    if let Some(streaming) = streaming {
        let source = shared.clone();
        let build = move || {
            let (shared, name, path) = (source.clone(), name.clone(), path.clone());
            async move {
                let shown = shown(&shared, &name).await.ok_or(Error::NoSuchRoute(path))?;
                Ok(parts(&shown))
            }
        };
        return Ok(live::stream(&shared, streaming, query.v, build).await?);
    }
    let shown = shown(&shared, &name).await;
    let shown =
        shown.ok_or_else(|| PageError::new(&caller, &shared, &path, Error::NoSuchRoute(path.clone())))?;
    let version = parts(&shown).version();
    let now = shared.clock.now();
    let page = Page::new(&caller, &shared, &path).title(&title(&shown)).live(&version);
    let body = html! {
        p.crumbs { a href="../" data-key="Escape" data-name="back" { "Applications" } }
        h1 { "Repository " (Text(&name)) }
        (facts(&shown, now))
        (webhook(&shown, now))
        (applications(&shown))
    };
    Ok(respond(&page, &body).into_response())
}

/// `None`: there is no such repository.
async fn shown(shared: &Shared, name: &str) -> Option<RepositoryData> {
    let hooks = shared.hooks.clone();
    // The page is shown without what cannot be read.
    let mut hooks = read(&shared.store, move |_| hooks.statuses()).await.unwrap_or_default();
    hooks.retain(|hook| hook.repository == name);
    let of = name.to_owned();
    let recent = read(&shared.store, move |store| store.recent_deliveries(&of, MOST_DELIVERIES)).await;
    let is_last_shown = hooks.iter().any(|hook| hook.last.is_some());
    let earlier = recent.unwrap_or_default().into_iter().skip(usize::from(is_last_shown)).collect();
    let repository = shared.handle.repositories().iter().find(|repository| repository.name == name).cloned();
    let applications = shared.handle.applications();
    let applications: Vec<_> =
        applications.values().filter(|application| application.spec.repository == name).cloned().collect();
    let is_known = repository.is_some() || !hooks.is_empty() || !applications.is_empty();
    is_known.then(|| RepositoryData { name: name.to_owned(), repository, hooks, earlier, applications })
}

fn title(shown: &RepositoryData) -> String {
    match shown.repository.as_ref().filter(|repository| !repository.message.is_empty()) {
        Some(_) => format!("Error: repository {}", shown.name),
        None => format!("Repository {}", shown.name),
    }
}

fn parts(shown: &RepositoryData) -> Parts {
    let mut parts = Parts::new(title(shown));
    parts.add("facts", facts(shown, LIVE));
    parts.add("webhook", webhook(shown, LIVE));
    parts.add("applications", applications(shown));
    parts
}

fn webhook(shown: &RepositoryData, now: Timestamp) -> Markup {
    html! {
        div #webhook {
            @if shown.hooks.is_empty() {
                p.soft { "No webhook is configured, so a push is noticed at the next poll." }
            }
            (webhook_table(&shown.hooks, now))
            (earlier_deliveries(&shown.earlier, now))
            @for hook in &shown.hooks {
                p.soft { "Its key is in " span.mono { (Text(&hook.secret)) } ". `driftless webhook url` prints its URL." }
            }
        }
    }
}

fn applications(shown: &RepositoryData) -> Markup {
    html! {
        section #applications aria-label="Applications" {
            h2 { "Applications" }
            @if shown.applications.is_empty() { p.soft { "None was found yet." } } @else {
                ul.reasons {
                    @for application in &shown.applications {
                        li {
                            a href={ "../applications/" (Text(&application.name)) } { (Text(&application.name)) } " "
                            (sync_badge(application.status.sync)) " " (health_badge(application.status.health)) " "
                            span.mono.soft { (Text(&application.spec.path)) }
                        }
                    }
                }
            }
        }
    }
}

/// The error of the repository, and what was read of it.
fn facts(shown: &RepositoryData, now: Timestamp) -> Markup {
    html! {
        div #facts {
            @if let Some(repository) = &shown.repository {
                @if !repository.message.is_empty() { p.note.bad role="status" { (Text(&repository.message)) } }
                (fact_list(repository, now))
            }
        }
    }
}

fn fact_list(repository: &RepositoryStatus, now: Timestamp) -> Markup {
    let RepositoryStatus {
        name: _,
        url,
        reference,
        commit,
        history_length,
        applications,
        message: _,
        reason: _,
        fetched_at,
        next_fetch,
        keys,
        hosts: _,
    } = repository;
    let links = ForgeLinks::of(url);
    html! {
        dl.facts {
            dt { "URL" }
            dd.mono { (Text(url)) }
            dt { "Follows" }
            dd { (Text(reference)) }
            dt { "Newest commit" }
            dd {
                @match commit {
                    Some(commit) => {
                        (commit_id(commit, links.as_ref())) " " (Text(&commit.subject)) " · " (Text(commit.author_name()))
                        " · " (RelativeTime { at: commit.time, now })
                    }
                    None => "none was read yet",
                }
            }
            @if let Some(count) = history_length {
                dt { "Commits" }
                dd { (count) }
            }
            dt { "Applications" }
            dd { (applications) }
            dt { "Last poll with success" }
            dd { @match fetched_at { Some(at) => (RelativeTime { at: *at, now }), None => "never" } }
            dt { "Next poll" }
            dd { @match next_fetch { Some(at) => (Deadline { at: *at, now }), None => "now" } }
            @if !keys.is_empty() {
                dt { "Keys" }
                dd { ul.bare { @for key in keys { li { (Text(key)) } } } }
            }
        }
    }
}
