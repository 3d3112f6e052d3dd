//! The page of an instance's output: its last lines, and with JavaScript what follows.

use std::time::Duration;

use axum::{
    extract::{Path, State},
    response::{IntoResponse, Response},
};
use driftless_docker::LogStream;
use driftless_model::{AppName, Timestamp, error_chain, without_escapes};
use futures_util::StreamExt;
use maud::{Markup, html};
use serde::Deserialize;

use super::{
    failure::PageError,
    layout::{Page, respond},
    live::{self, Parts, Streaming},
    parameters::PageParameters,
    text::{LIVE, RelativeTime, Text},
};
use crate::{
    access::Caller,
    error::Error,
    shared::Shared,
    workloads::{LogQuery, logged_container, open_logs},
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
    /// The output before the present or last run.
    previous: bool,
    /// The version that the page has: only for the stream.
    v: String,
}

pub(crate) async fn show(
    Caller(caller): Caller,
    State(shared): State<Shared>,
    streaming: Option<Streaming>,
    Path((app, instance)): Path<(String, String)>,
    PageParameters(query): PageParameters<LogsQuery>,
) -> Result<Response, PageError> {
    let name = AppName(app);
    if let Some(streaming) = streaming {
        let (source, known) = (shared.clone(), query.v.clone());
        let build = move || {
            let parts = parts(&source, &name, &instance, &query);
            async move { Ok::<_, Error>(parts) }
        };
        return Ok(live::stream(&shared, streaming, known, build).await?);
    }
    let path = format!("/applications/{name}/logs/{instance}");
    let frame = |error: Error| PageError::new(&caller, &shared, &path, error);
    let wanted = query.wanted();
    let stream = open_logs(&shared, &name, &instance, &wanted).await.map_err(frame)?;
    let mut output = read_output(stream, LONGEST, WITHIN).await;
    output.keep_lines(LINES);
    let version = parts(&shared, &name, &instance, &query).version();
    let page = Page::new(&caller, &shared, &path).title(&title(&instance)).live(&version);
    // The same lines again and what follows, so that none is missing between the page and the stream.
    let mut follow = form_urlencoded::Serializer::new(String::new());
    follow.append_pair("follow", "true").append_pair("tail", &LINES.to_string());
    follow.extend_pairs(wanted.since.map(|since| ("since", since)));
    follow.extend_pairs(wanted.container.map(|container| ("container", container)));
    let follow = format!("../../../api/v1/applications/{name}/instances/{instance}/logs?{}", follow.finish());
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
            @if query.previous { input type="hidden" name="previous" value="true"; }
            button type="submit" { "Show" }
            @if !query.previous { label.follow { input #follow type="checkbox" data-key="f" data-name="follow"; " Follow" } }
            span #log-state .soft role="status" {}
        }
        (run(&shared, &name, &instance, &query, shared.clock.now()))
        pre #log .log tabindex="0" aria-label="Output" data-follow=(Text(&follow)) {
            @for line in output.lines.lines() { span { (Text(line)) "\n" } }
        }
        @if output == Output::default() { p.soft { "No output in this time." } }
        (missing_lines(&output))
    };
    Ok(respond(&page, &body).into_response())
}

fn title(instance: &str) -> String {
    format!("Logs of {instance}")
}

/// The part that changes while the page is open. It stays there without the container, so that the lines can still be read.
fn parts(shared: &Shared, app: &AppName, instance: &str, query: &LogsQuery) -> Parts {
    let mut parts = Parts::new(title(instance));
    parts.add("run", run(shared, app, instance, query, LIVE));
    parts
}

/// The run that the page is about, with a link to the output of the others. The script follows a run that starts later.
fn run(shared: &Shared, app: &AppName, instance: &str, query: &LogsQuery, now: Timestamp) -> Markup {
    let application = match shared.handle.application(app).map_err(Error::from) {
        Ok(application) => application,
        Err(error) => return no_run(&error),
    };
    let container = match logged_container(&application, instance, &query.wanted()) {
        Ok((container, _)) => container,
        Err(error) => return no_run(&error),
    };
    let other = LogsQuery { previous: !query.previous, ..query.clone() };
    html! {
        div #run data-started=[container.started.map(|at| at.0)] {
            @if query.previous {
                p.soft { "The output before the last start. " a href=(Text(other.link())) { "Output since then" } }
            } @else if container.restarts > 0 {
                p.soft {
                    "The output since the last start"
                    @if let Some(at) = container.started { ", " (RelativeTime { at, now }) }
                    ". " a href=(Text(other.link())) { "Output before it" }
                    ", of " (container.restarts)
                    @if container.restarts == 1 { " earlier run" } @else { " earlier runs" }
                }
            }
        }
    }
}

/// Says why there is no container.
fn no_run(error: &Error) -> Markup {
    html! { div #run { p.soft { (Text(error)) "." } } }
}

impl LogsQuery {
    /// The query of the API.
    fn wanted(&self) -> LogQuery {
        let text = |text: &str| Some(text.trim().to_owned()).filter(|text| !text.is_empty());
        LogQuery {
            // One more says whether there are older ones.
            tail: Some(LINES + 1),
            since: text(&self.since),
            container: text(&self.container),
            previous: self.previous,
            ..LogQuery::default()
        }
    }

    /// The link to this page of logs.
    fn link(&self) -> String {
        let mut query = form_urlencoded::Serializer::new(String::new());
        query.append_pair("since", &self.since);
        if !self.container.is_empty() {
            query.append_pair("container", &self.container);
        }
        if self.previous {
            query.append_pair("previous", "true");
        }
        format!("?{}", query.finish())
    }
}

/// The end of the output of a container, without the escape sequences of terminals.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Output {
    pub(super) lines: String,
    /// Older lines are left out.
    pub(super) is_cut: bool,
    /// Why newer lines may be missing, if they may.
    pub(super) problem: Option<String>,
}

impl Output {
    /// Keeps the last lines.
    fn keep_lines(&mut self, most: u64) {
        let most = usize::try_from(most).unwrap_or(usize::MAX);
        let surplus = self.lines.lines().count().saturating_sub(most);
        let end = surplus.checked_sub(1).and_then(|last| self.lines.match_indices('\n').nth(last));
        if let Some((end, _)) = end {
            self.lines.replace_range(..=end, "");
            self.is_cut = true;
        }
    }
}

/// Reads the output that arrives in time, and keeps the end of it, up to a number of bytes.
pub(super) async fn read_output(mut stream: LogStream, longest: usize, within: Duration) -> Output {
    let (mut bytes, mut is_cut): (Vec<u8>, bool) = (Vec::new(), false);
    let reading = async {
        while let Some(part) = stream.next().await {
            bytes.extend_from_slice(&part?);
            // Moved seldom, so that each byte is moved about once.
            if bytes.len() > 2 * longest {
                is_cut |= keep_end(&mut bytes, longest);
            }
        }
        Ok::<(), std::io::Error>(())
    };
    let problem = match tokio::time::timeout(within, reading).await {
        Ok(Ok(())) => None,
        Ok(Err(error)) => Some(error_chain(&error)),
        Err(_) => Some("the engine did not send all of it in time".to_owned()),
    };
    is_cut |= keep_end(&mut bytes, longest);
    Output { lines: without_escapes(&String::from_utf8_lossy(&bytes)), is_cut, problem }
}

/// Keeps the last bytes, from the beginning of a line on if there is one. True: there were more.
fn keep_end(bytes: &mut Vec<u8>, longest: usize) -> bool {
    let Some(surplus) = bytes.len().checked_sub(longest).filter(|surplus| *surplus > 0) else { return false };
    let rest = bytes.get(surplus - 1..bytes.len().saturating_sub(1)).unwrap_or_default();
    let line = rest.iter().position(|byte| *byte == b'\n').unwrap_or(0);
    bytes.drain(..surplus + line);
    true
}

/// Says that lines are missing.
pub(super) fn missing_lines(output: &Output) -> Markup {
    html! {
        @if output.is_cut { p.soft { "Older lines are left out; `driftless logs` prints all." } }
        @if let Some(problem) = &output.problem { p.note.warn { "The newest lines may be missing: " (Text(problem)) } }
    }
}

#[cfg(test)]
mod tests {
    use hyper::body::Bytes;

    use super::*;

    async fn read(parts: Vec<std::io::Result<Bytes>>, longest: usize) -> Output {
        read_output(Box::pin(futures_util::stream::iter(parts)), longest, WITHIN).await
    }

    #[tokio::test]
    async fn end_of_a_long_output_is_kept() {
        let lines = (1..=500).map(|number| Ok(Bytes::from(format!("line {number}\n"))));
        let output = read(lines.collect(), 40).await;
        assert_eq!(output.lines, "line 497\nline 498\nline 499\nline 500\n");
        assert!(output.is_cut && output.problem.is_none());
        let exact = read(vec![Ok("a\nbc\n".into())], 3).await;
        assert_eq!((exact.lines.as_str(), exact.is_cut), ("bc\n", true));
        let long = read(vec![Ok("a long line".into())], 4).await;
        assert_eq!((long.lines.as_str(), long.is_cut), ("line", true));
        let whole = read(vec![Ok("a\n".into()), Ok("b".into())], 3).await;
        assert_eq!(whole, Output { lines: "a\nb".to_owned(), ..Output::default() });
    }

    #[tokio::test]
    async fn surplus_lines_are_cut_from_the_start() {
        for (lines, kept, is_cut) in [
            ("a\nb\nc\n", "b\nc\n", true),
            ("a\nb\nc", "b\nc", true),
            ("b\nc\n", "b\nc\n", false),
            ("", "", false),
        ] {
            let mut output = read(vec![Ok(lines.into())], 40).await;
            output.keep_lines(2);
            assert_eq!((output.lines.as_str(), output.is_cut), (kept, is_cut), "{lines:?}");
        }
    }

    #[tokio::test]
    async fn output_has_no_colours_of_terminals() {
        let output = read(vec![Ok("\u{1b}[31mFA".into()), Ok("TAL\u{1b}[0m\n".into())], 40).await;
        assert_eq!(output.lines, "FATAL\n");
    }

    #[tokio::test]
    async fn output_that_breaks_off_has_a_reason() {
        let output =
            read(vec![Ok("a\n".into()), Err(std::io::Error::other("the engine has gone"))], 40).await;
        assert_eq!(output.lines, "a\n");
        assert_eq!(output.problem.as_deref(), Some("the engine has gone"));
    }
}
