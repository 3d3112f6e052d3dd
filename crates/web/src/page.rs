//! The page for people: what is followed, how it is, and why it is not as it should be. It is made on the
//! server, whole, and needs no script to be read. It offers no buttons: acting is the API's and the CLI's.

use std::{
    fmt::{self, Write},
    sync::LazyLock,
};

use axum::{
    extract::State,
    response::{Html, IntoResponse, Response},
};
use base64::{Engine, prelude::BASE64_STANDARD};
use http::HeaderValue;
use sha2::{Digest, Sha256};

use super::{
    Shared,
    api::read,
    card::card,
    hook_table::hook_table,
    html::{Moment, Text},
    style::{SCRIPT, STYLE},
};
use driftless_agent::{Applications, Readiness, Repositories};
use driftless_model::{Event, EventKind, HealthStatus, HookStatus, SyncStatus, Timestamp};

/// How many of the newest events the page shows.
const EVENTS: usize = 30;

/// Two circles that almost close: what is, and what Git says.
const ICON: &str = "<svg width='22' height='22' viewBox='0 0 24 24' fill='none' stroke-width='2.6' \
stroke-linecap='round' aria-hidden='true'><path d='M20 12a8 8 0 1 1-3.2-6.4' stroke='#2f7bea'/>\
<path d='M12 8.2a3.8 3.8 0 1 0 3.8 3.8' stroke='#22a35a'/></svg>";

/// What the page shows, at one moment.
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
    // A page that says what it cannot show is better than none.
    let events = read(&shared.store, |store| store.newest_events(EVENTS, None)).await.ok();
    let hooks = shared.hooks.clone();
    let hooks = read(&shared.store, move |_| hooks.statuses()).await.unwrap_or_default();
    let shown = Shown {
        hooks,
        applications: shared.handle.applications(),
        repositories: shared.handle.repositories(),
        readiness: shared.handle.readiness(),
        events: events.map(|it| it.into_iter().rev().collect()),
        now: shared.clock.now(),
    };
    let mut page = String::with_capacity(16 * 1024);
    write_page(&mut page, &shown).expect("writing to a string cannot fail");
    Html(page).into_response()
}

/// Only the page's own style and script, by their digests; nothing from elsewhere, and nothing around it.
pub(super) fn content_security_policy() -> HeaderValue {
    static POLICY: LazyLock<HeaderValue> = LazyLock::new(|| {
        let digest = |text: &str| BASE64_STANDARD.encode(Sha256::digest(text));
        let policy = format!(
            "default-src 'none'; style-src 'sha256-{}'; script-src 'sha256-{}'; connect-src 'self'; \
             img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
            digest(STYLE),
            digest(SCRIPT),
        );
        HeaderValue::try_from(policy).expect("a policy of printable ASCII fits into a header")
    });
    POLICY.clone()
}

fn write_page(out: &mut String, shown: &Shown) -> fmt::Result {
    let worst = shown.applications.values().map(|it| it.status.health).max();
    let title = match worst {
        None | Some(HealthStatus::Healthy) => "Driftless".to_owned(),
        Some(health) => format!("{health:?} · Driftless"),
    };
    let icon = ICON
        .replace('<', "%3C")
        .replace('>', "%3E")
        .replace('#', "%23")
        .replace("%3Csvg ", "%3Csvg xmlns='http://www.w3.org/2000/svg' ");
    write!(
        out,
        r#"<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<link rel="icon" href="data:image/svg+xml,{icon}">
<noscript><meta http-equiv="refresh" content="10"></noscript>
<style>{STYLE}</style>
</head>
<body>
<header><div class="wide"><h1>{ICON}Driftless</h1><span id="fresh" class="badge idle">as of {now}</span>
"#,
        now = clock_time(shown.now),
    )?;
    write_counts(out, shown)?;
    out.push_str("</div></header>\n<main id=\"main\" class=\"wide\">\n");
    write_readiness(out, &shown.readiness)?;
    write_repositories(out, &shown.repositories)?;
    for application in shown.applications.values() {
        card(out, application, shown.now)?;
    }
    if shown.applications.is_empty() {
        out.push_str(
            "<div class=\"block empty\"><p>No application yet.</p><p>They appear here when the repository has \
             been read, or the agent's log says why it could not be.</p></div>\n",
        );
    }
    hook_table(out, &shown.hooks, shown.now)?;
    write_events(out, shown)?;
    write!(
        out,
        "</main>\n<footer class=\"wide\">Driftless {} · the same as JSON: \
         <a href=\"/api/v1/applications\">/api/v1/applications</a>, <a href=\"/api/v1/events\">/api/v1/events</a>\
         </footer>\n<script>{SCRIPT}</script>\n</body>\n</html>\n",
        env!("CARGO_PKG_VERSION"),
    )
}

fn write_counts(out: &mut String, shown: &Shown) -> fmt::Result {
    let all = shown.applications.len();
    let synced = shown.applications.values().filter(|it| it.status.sync == SyncStatus::Synced).count();
    let healthy = shown.applications.values().filter(|it| it.status.health == HealthStatus::Healthy).count();
    let class = |count: usize| if count == all { "good" } else { "warn" };
    write!(
        out,
        r#"<div id="counts" class="counts"><span class="badge {}">{synced} of {all} synced</span><span class="badge {}">{healthy} of {all} healthy</span></div>"#,
        class(synced),
        class(healthy),
    )
}

fn write_readiness(out: &mut String, readiness: &Readiness) -> fmt::Result {
    if readiness.is_ready() {
        return Ok(());
    }
    let message = match readiness.message.as_str() {
        "" => "The agent is still starting.",
        message => message,
    };
    writeln!(out, r#"<p class="block note bad" role="status"><b>Not ready.</b> {}</p>"#, Text(message))
}

/// What is wrong with a repository as a whole stands at no application.
fn write_repositories(out: &mut String, repositories: &Repositories) -> fmt::Result {
    for it in repositories.iter().filter(|it| !it.message.is_empty()) {
        writeln!(
            out,
            r#"<p class="block note bad" role="status"><b>Repository {}.</b> {}</p>"#,
            Text(&it.name),
            Text(&it.message),
        )?;
    }
    Ok(())
}

fn write_events(out: &mut String, shown: &Shown) -> fmt::Result {
    out.push_str("<section class=\"block\" aria-label=\"Events\"><h3>Last events</h3>\n");
    match &shown.events {
        None => {
            out.push_str("<p class=\"note bad\">The database could not be read; the log has the cause.</p>");
        }
        Some(events) if events.is_empty() => {
            out.push_str("<p class=\"note soft\">Nothing has happened yet.</p>");
        }
        Some(events) => {
            out.push_str(
                "<div class=\"scroll\"><table><thead><tr><th scope=\"col\">When</th><th scope=\"col\">Application\
                 </th><th scope=\"col\">Reason</th><th scope=\"col\">Object</th><th scope=\"col\">Message</th></tr>\
                 </thead><tbody>\n",
            );
            for event in events {
                write_event(out, event, shown.now)?;
            }
            out.push_str("</tbody></table></div>");
        }
    }
    out.push_str("</section>\n");
    Ok(())
}

fn write_event(out: &mut String, event: &Event, now: Timestamp) -> fmt::Result {
    let class = match event.kind {
        EventKind::Normal => "idle",
        EventKind::Warning => "warn",
    };
    writeln!(
        out,
        r#"<tr><td>{}</td><td>{}</td><td><span class="badge {class}">{}</span></td><td class="mono">{}</td><td>{}</td></tr>"#,
        Moment { at: event.at, now },
        Text(&event.app),
        Text(&event.reason),
        Text(&event.object),
        Text(&event.message),
    )
}

/// `12:30:05 UTC`
fn clock_time(at: Timestamp) -> String {
    let whole = at.to_string();
    whole.get(11..19).map_or_else(|| whole.clone(), |it| format!("{it} UTC"))
}
