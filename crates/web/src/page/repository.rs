//! The page of one repository: its last and next poll, its webhook, its errors and its applications.

use axum::{
    extract::{Path, State},
    response::{IntoResponse, Response},
};
use driftless_model::{RepositoryStatus, Timestamp};
use maud::{Markup, html};

use super::{
    application::commit_id,
    badge::{health_badge, sync_badge},
    failure::PageError,
    forge_link::ForgeLinks,
    layout::{Page, respond},
    text::{Deadline, RelativeTime, Text},
    webhooks::webhook_table,
};
use crate::{
    access::Caller,
    error::Error,
    shared::{Shared, read},
};

pub(crate) async fn show(
    Caller(caller): Caller,
    State(shared): State<Shared>,
    Path(name): Path<String>,
) -> Result<Response, PageError> {
    let path = format!("/repositories/{name}");
    let hooks = shared.hooks.clone();
    // The page is shown without what cannot be read.
    let hooks = read(&shared.store, move |_| hooks.statuses()).await.unwrap_or_default();
    let own_hooks: Vec<_> = hooks.into_iter().filter(|hook| hook.repository == name).collect();
    let repositories = shared.handle.repositories();
    let repository = repositories.iter().find(|repository| repository.name == name);
    let applications = shared.handle.applications();
    let own: Vec<_> = applications.values().filter(|it| it.spec.repository == name).collect();
    if repository.is_none() && own_hooks.is_empty() && own.is_empty() {
        return Err(PageError::new(&caller, &shared, &path, Error::NoSuchRoute(path.clone())));
    }
    let now = shared.clock.now();
    let page = Page::new(&caller, &shared, &path).title(&format!("Repository {name}"));
    let body = html! {
        p.crumbs { a href="../" data-key="Escape" data-name="back" { "Applications" } }
        h1 { "Repository " (Text(&name)) }
        @if let Some(repository) = repository {
            @if !repository.message.is_empty() { p.note.bad role="status" { (Text(&repository.message)) } }
            (facts(repository, now))
        }
        @if own_hooks.is_empty() { p.soft { "No webhook is configured, so a push is noticed at the next poll." } }
        (webhook_table(&own_hooks, now))
        @for hook in &own_hooks {
            p.soft { "Its key is in " span.mono { (Text(&hook.secret)) } ". `driftless webhook url` prints its URL." }
        }
        h2 { "Applications" }
        ul.reasons {
            @for application in own {
                li {
                    a href={ "../applications/" (Text(&application.name)) } { (Text(&application.name)) } " "
                    (sync_badge(application.status.sync)) " " (health_badge(application.status.health)) " "
                    span.mono.soft { (Text(&application.spec.path)) }
                }
            }
        }
    };
    Ok(respond(&page, &body).into_response())
}

fn facts(repository: &RepositoryStatus, now: Timestamp) -> Markup {
    let RepositoryStatus {
        name: _,
        url,
        reference,
        commit,
        history_length,
        applications,
        message: _,
        fetched_at,
        next_fetch,
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
        }
    }
}
