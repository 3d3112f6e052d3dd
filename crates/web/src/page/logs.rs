//! The page of an instance's output: its last lines, and with JavaScript what follows.

use std::time::Duration;

use axum::{
    extract::{Path, State},
    response::{IntoResponse, Response},
};
use driftless_model::AppName;
use futures_util::StreamExt;
use maud::html;
use serde::Deserialize;

use super::{
    failure::PageError,
    layout::{Page, respond},
    parameters::PageParameters,
    text::Text,
};
use crate::{
    access::Caller,
    error::Error,
    shared::Shared,
    workloads::{LogQuery, open_logs},
};

/// Lines on the page before it follows.
const LINES: u64 = 300;

/// The most that is shown of them, in bytes.
const LONGEST: usize = 300_000;

/// Time for the engine to send them.
const WITHIN: Duration = Duration::from_secs(5);

/// The spans that the page offers.
const SPANS: [(&str, &str); 5] =
    [("", "any time"), ("5m", "5 minutes"), ("1h", "1 hour"), ("6h", "6 hours"), ("1d", "1 day")];

/// The query of a page of logs.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct LogsQuery {
    container: String,
    since: String,
}

pub(crate) async fn show(
    Caller(caller): Caller,
    State(shared): State<Shared>,
    Path((app, instance)): Path<(String, String)>,
    PageParameters(query): PageParameters<LogsQuery>,
) -> Result<Response, PageError> {
    let name = AppName(app);
    let path = format!("/applications/{name}/logs/{instance}");
    let frame = |error: Error| PageError::new(&caller, &shared, &path, error);
    let text = |text: &str| Some(text.trim().to_owned()).filter(|text| !text.is_empty());
    let wanted = LogQuery {
        tail: Some(LINES),
        since: text(&query.since),
        container: text(&query.container),
        ..LogQuery::default()
    };
    let stream = open_logs(&shared, &name, &instance, &wanted).await.map_err(frame)?;
    let (lines, is_cut) = read_output(stream, LONGEST, WITHIN).await;
    let page = Page::new(&caller, &shared, &path).title(&format!("Logs of {instance}"));
    let mut follow =
        format!("../../../api/v1/applications/{name}/instances/{instance}/logs?follow=true&tail=0");
    if let Some(container) = text(&query.container) {
        follow.push_str("&container=");
        follow.extend(form_urlencoded::byte_serialize(container.as_bytes()));
    }
    let body = html! {
        p.crumbs { a href="../../../" { "Applications" } " / " a href={ "../../" (Text(&name)) } data-key="Escape" data-name="back" { (Text(&name)) } }
        h1 { "Logs of " span.mono { (Text(&instance)) } @if !query.container.is_empty() { " · " (Text(&query.container)) } }
        form.search method="get" {
            label.hidden for="find" { "Search" }
            input #find type="search" placeholder="Search in the lines" data-key="/" data-name="search";
            label.hidden for="since" { "Since" }
            select #since name="since" {
                @for (value, words) in SPANS { option value=(value) selected[query.since == value] { (words) } }
            }
            @if !query.container.is_empty() { input type="hidden" name="container" value=(Text(&query.container)); }
            button type="submit" { "Show" }
            label.follow { input #follow type="checkbox" data-key="f" data-name="follow"; " Follow" }
            span #log-state .soft role="status" {}
        }
        pre #log .log tabindex="0" aria-label="Output" data-follow=(Text(&follow)) {
            @for line in lines.lines() { span { (Text(line)) "\n" } }
        }
        @if lines.is_empty() { p.soft { "No output in this time." } }
        @if is_cut { p.soft { "There is more; `driftless logs` prints all." } }
    };
    Ok(respond(&page, &body).into_response())
}

/// The output that arrives in time, up to a number of bytes, and whether it was cut.
pub(super) async fn read_output(
    mut stream: driftless_docker::LogStream,
    longest: usize,
    within: Duration,
) -> (String, bool) {
    let mut bytes: Vec<u8> = Vec::new();
    let reading = async {
        while let Some(part) = stream.next().await {
            let Ok(part) = part else { return false };
            bytes.extend_from_slice(&part);
            if bytes.len() > longest {
                return true;
            }
        }
        false
    };
    let is_cut = tokio::time::timeout(within, reading).await.unwrap_or(true);
    bytes.truncate(longest);
    (String::from_utf8_lossy(&bytes).into_owned(), is_cut)
}
