//! The status page: repositories, applications, webhooks and events, and why an application is not healthy.
//!
//! The server renders it whole, so it can be read without JavaScript. It has no buttons: the API and the CLI act.

use axum::{
    extract::State,
    response::{Html, IntoResponse, Response},
};
use driftless_agent::{Applications, Readiness, Repositories};
use driftless_model::{Event, EventKind, HealthStatus, HookStatus, SyncStatus, Timestamp};
use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::shared::{Shared, read};
use application::application_card;
use style::{SCRIPT, STYLE};
use text::{RelativeTime, Text};
use webhooks::webhook_table;

mod application;
pub(super) mod login;
pub(super) mod style;
mod text;
mod webhooks;

/// Number of newest events on the page.
const EVENTS: usize = 30;

/// The logo: two open circles, the observed state and Git.
const ICON: &str = "<svg width='22' height='22' viewBox='0 0 24 24' fill='none' stroke-width='2.6' \
stroke-linecap='round' aria-hidden='true'><path d='M20 12a8 8 0 1 1-3.2-6.4' stroke='#2f7bea'/>\
<path d='M12 8.2a3.8 3.8 0 1 0 3.8 3.8' stroke='#22a35a'/></svg>";

/// The data of one rendering.
struct Shown {
    applications: Applications,
    repositories: Repositories,
    readiness: Readiness,
    /// Newest first; `None` when the database cannot be read.
    events: Option<Vec<Event>>,
    hooks: Vec<HookStatus>,
    now: Timestamp,
}

pub(super) async fn show(State(shared): State<Shared>) -> Response {
    // The page is shown without the parts that cannot be read.
    let events = read(&shared.store, |store| store.newest_events(EVENTS, None)).await.ok();
    let hooks = shared.hooks.clone();
    let hooks = read(&shared.store, move |_| hooks.statuses()).await.unwrap_or_default();
    let shown = Shown {
        hooks,
        applications: shared.handle.applications(),
        repositories: shared.handle.repositories(),
        readiness: shared.handle.readiness(),
        events: events.map(|events| events.into_iter().rev().collect()),
        now: shared.clock.now(),
    };
    Html(page(&shown).into_string()).into_response()
}

fn page(shown: &Shown) -> Markup {
    let worst = shown.applications.values().map(|application| application.status.health).max();
    let icon = ICON
        .replace('<', "%3C")
        .replace('>', "%3E")
        .replace('#', "%23")
        .replace("%3Csvg ", "%3Csvg xmlns='http://www.w3.org/2000/svg' ");
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                title {
                    @match worst {
                        None | Some(HealthStatus::Healthy) => "Driftless",
                        Some(health) => { (format!("{health:?}")) " · Driftless" }
                    }
                }
                link rel="icon" href={ "data:image/svg+xml," (icon) };
                noscript { meta http-equiv="refresh" content="10"; }
                style { (PreEscaped(STYLE)) }
            }
            body {
                header {
                    div.wide {
                        h1 { (PreEscaped(ICON)) "Driftless" }
                        span #fresh .badge.idle { "as of " (clock_time(shown.now)) }
                        (counts(shown))
                    }
                }
                main #main .wide {
                    (readiness(&shown.readiness))
                    (repository_errors(&shown.repositories))
                    @for application in shown.applications.values() { (application_card(application, shown.now)) }
                    @if shown.applications.is_empty() {
                        div.block.empty {
                            p { "No application yet." }
                            p {
                                "Applications appear here once the repository has been read. If none appears, the \
                                 agent's log says why."
                            }
                        }
                    }
                    (webhook_table(&shown.hooks, shown.now))
                    (events(shown))
                }
                footer.wide {
                    "Driftless " (env!("CARGO_PKG_VERSION")) " · the same as JSON: "
                    a href="/api/v1/applications" { "/api/v1/applications" } ", "
                    a href="/api/v1/events" { "/api/v1/events" }
                }
                script { (PreEscaped(SCRIPT)) }
            }
        }
    }
}

fn counts(shown: &Shown) -> Markup {
    let all = shown.applications.len();
    let statuses = || shown.applications.values().map(|application| &application.status);
    let synced = statuses().filter(|status| status.sync == SyncStatus::Synced).count();
    let healthy = statuses().filter(|status| status.health == HealthStatus::Healthy).count();
    let class = |count: usize| if count == all { "good" } else { "warn" };
    html! {
        div #counts .counts {
            span.badge.(class(synced)) { (synced) " of " (all) " synced" }
            span.badge.(class(healthy)) { (healthy) " of " (all) " healthy" }
        }
    }
}

fn readiness(readiness: &Readiness) -> Markup {
    let message = match readiness.message.as_str() {
        "" => "The agent is still starting.",
        message => message,
    };
    html! {
        @if !readiness.is_ready() { p.block.note.bad role="status" { b { "Not ready." } " " (Text(message)) } }
    }
}

/// Errors of a repository as a whole, which belong to no application.
fn repository_errors(repositories: &Repositories) -> Markup {
    html! {
        @for repository in repositories.iter().filter(|repository| !repository.message.is_empty()) {
            p.block.note.bad role="status" {
                b { "Repository " (Text(&repository.name)) "." } " " (Text(&repository.message))
            }
        }
    }
}

fn events(shown: &Shown) -> Markup {
    html! {
        section.block aria-label="Events" {
            h3 { "Last events" }
            @match shown.events.as_deref() {
                None => p.note.bad { "The database could not be read; the agent's log has the cause." },
                Some([]) => p.note.soft { "No events yet." },
                Some(events) => {
                    div.scroll {
                        table {
                            thead {
                                tr {
                                    th scope="col" { "When" }
                                    th scope="col" { "Application" }
                                    th scope="col" { "Reason" }
                                    th scope="col" { "Object" }
                                    th scope="col" { "Message" }
                                }
                            }
                            tbody { @for event in events { (event_row(event, shown.now)) } }
                        }
                    }
                }
            }
        }
    }
}

fn event_row(event: &Event, now: Timestamp) -> Markup {
    let class = match event.kind {
        EventKind::Normal => "idle",
        EventKind::Warning => "warn",
    };
    html! {
        tr {
            td { (RelativeTime { at: event.at, now }) }
            td { (Text(&event.app)) }
            td { span.badge.(class) { (Text(&event.reason)) } }
            td.mono { (Text(&event.object)) }
            td { (Text(&event.message)) }
        }
    }
}

/// `12:30:05 UTC`
fn clock_time(at: Timestamp) -> String {
    let whole = at.to_string();
    whole.get(11..19).map_or_else(|| whole.clone(), |time| format!("{time} UTC"))
}
