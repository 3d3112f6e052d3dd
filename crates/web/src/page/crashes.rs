//! The last lines that crashing containers have printed, on the page of their application.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use driftless_model::{AppName, Application, InstanceStatus};
use futures_util::future::join_all;
use maud::{Markup, html};
use tokio::time::Instant;

use super::{
    logs::{Output, missing_lines, read_output},
    text::Text,
};
use crate::{
    shared::Shared,
    workloads::{LogQuery, open_logs},
};

/// The most containers whose output is shown.
const MOST: usize = 3;

/// Lines of each of them.
const LINES: u64 = 12;

/// The most that is shown of them, in bytes.
const LONGEST: usize = 4000;

/// Time for the engine to send them all.
const WITHIN: Duration = Duration::from_secs(2);

/// An output that could not be read is asked for again after this time: an engine that hangs would hold up each change of the
/// page.
const AGAIN: Duration = Duration::from_secs(10);

/// The last output of one container that crashes.
#[derive(Clone)]
pub(super) struct CrashOutput {
    instance: String,
    /// One of several containers of a pod.
    container: Option<String>,
    message: String,
    /// The container runs again, and this is of the run before.
    is_previous: bool,
    output: Output,
}

/// Output that was read for an open page, so that a crash is read once.
#[derive(Clone, Default)]
pub(super) struct CrashCache(Arc<Mutex<BTreeMap<String, (Output, Instant)>>>);

/// A container that crashes.
struct Crash<'a> {
    instance: &'a InstanceStatus,
    /// The pod and the name of the container in it.
    pod: Option<(&'a str, &'a str)>,
}

/// The last output of the containers of an application that crash.
pub(super) async fn crash_outputs(
    shared: &Shared,
    application: &Application,
    cache: &CrashCache,
) -> Vec<CrashOutput> {
    let until = Instant::now() + WITHIN;
    // At the same time, so that one that hangs takes no time of the others.
    let reading = crashes(application).into_iter().take(MOST).map(|Crash { instance, pod }| async move {
        let (name, container) = match pod {
            Some((pod, container)) => (pod, Some(container.to_owned())),
            None => (instance.name.as_str(), None),
        };
        let end = instance.exit.as_ref().map(|exit| exit.finished.0).unwrap_or_default();
        let key = format!("{} {} {end} {}", instance.container, instance.restarts, instance.state);
        let known = cache.0.lock().unwrap_or_else(PoisonError::into_inner).get(&key).cloned();
        let is_good = |(output, at): &(Output, Instant)| output.problem.is_none() || at.elapsed() < AGAIN;
        let (output, at) = if let Some(known) = known.filter(is_good) {
            known
        } else {
            let place = (&application.name, name, container.as_deref());
            (last_lines(shared, place, instance, until).await, Instant::now())
        };
        let (message, is_previous) = (instance.message.clone(), runs_again(instance));
        let known = (key, (output.clone(), at));
        (known, CrashOutput { instance: name.to_owned(), container, message, is_previous, output })
    });
    let (read, outputs): (BTreeMap<_, _>, Vec<_>) = join_all(reading).await.into_iter().unzip();
    // Only what is shown now is kept.
    *cache.0.lock().unwrap_or_else(PoisonError::into_inner) = read;
    outputs
}

fn crashes(application: &Application) -> Vec<Crash<'_>> {
    let instances = application.status.workloads.values().flat_map(|workload| &workload.instances);
    let mut found = Vec::new();
    for instance in instances {
        let parts = instance.containers.iter().filter_map(|part| {
            let inner = part.instance.as_deref().filter(|inner| crashes_again(inner))?;
            Some(Crash { instance: inner, pod: Some((&instance.name, &part.spec.name)) })
        });
        let before = found.len();
        found.extend(parts);
        if found.len() == before && crashes_again(instance) {
            found.push(Crash { instance, pod: None });
        }
    }
    found
}

/// Whether a container has ended with a failure, or was started again and is not ready or has not run for long since.
fn crashes_again(instance: &InstanceStatus) -> bool {
    let has_failed = instance.exit.as_ref().is_some_and(|exit| exit.code != 0 || exit.out_of_memory);
    !instance.ready && has_failed || instance.restarts > 0 && (!instance.ready || instance.crashes > 0)
}

/// Whether it runs again, so that its last words are those of the run before. A run that has just begun has not said anything yet.
fn runs_again(instance: &InstanceStatus) -> bool {
    instance.state == "Running" && instance.restarts > 0
}

/// The last lines of the run that failed, as far as the engine has sent them at this time.
async fn last_lines(
    shared: &Shared,
    (app, name, container): (&AppName, &str, Option<&str>),
    instance: &InstanceStatus,
    until: Instant,
) -> Output {
    let mut query =
        LogQuery { tail: Some(LINES), container: container.map(str::to_owned), ..LogQuery::default() };
    query.previous = runs_again(instance);
    let opening = async {
        let mut opened = open_logs(shared, app, name, &query).await;
        if opened.is_err() && query.previous {
            query.previous = false;
            opened = open_logs(shared, app, name, &query).await;
        }
        opened
    };
    match tokio::time::timeout_at(until, opening).await {
        Ok(Ok(stream)) => read_output(stream, LONGEST, until.saturating_duration_since(Instant::now())).await,
        Ok(Err(error)) => unread(error.to_string()),
        Err(_) => unread("the engine did not answer in time".to_owned()),
    }
}

fn unread(why: String) -> Output {
    Output { problem: Some(why), ..Output::default() }
}

/// The section of the page.
pub(super) fn crash_section(app: &AppName, outputs: &[CrashOutput]) -> Markup {
    html! {
        section #crashes aria-label="Last output" {
            @if !outputs.is_empty() { h2 { "Last output" } }
            @for CrashOutput { instance, container, message, is_previous, output } in outputs {
                @let name = container.as_ref().map_or_else(|| instance.clone(), |part| format!("{instance} {part}"));
                p {
                    b.mono { (Text(&name)) } " " (Text(message)) " "
                    a href={
                        (Text(app)) "/logs/" (Text(instance))
                        @if *is_previous { "?previous=true" }
                        @if let Some(container) = container {
                            @if *is_previous { "&" } @else { "?" }
                            "container=" (Text(container))
                        }
                    } { "All logs" span.hidden { " of " (Text(&name)) } }
                }
                @if *output == Output::default() { p.soft { "It printed nothing." } }
                @else if output.lines.is_empty() {
                    p.note.warn { "Its output could not be read: " (Text(output.problem.as_deref().unwrap_or_default())) }
                }
                @else {
                    pre tabindex="0" aria-label={ "Last output of " (Text(&name)) } { (Text(&output.lines)) }
                    (missing_lines(output))
                }
            }
        }
    }
}
