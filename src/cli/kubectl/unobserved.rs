//! Applications that the agent cannot observe, as while the engine does not answer. Their objects are shown as they were seen last,
//! and objects that the agent has not seen yet are missing, although they may run.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::{
    cli::Context, cli::client::Client, cli::client::SUMMARIES, cli::findings::first_names,
    cli::missing::unobserved, cli::missing::unobserved_sentence, cli::screen::plain, cli::span::span,
};
use driftless_model::{AppName, Application, HealthStatus, Timestamp, label};

/// Says on standard error which applications of these objects the agent cannot observe, and why; without objects, which of all
/// applications or of `app`.
pub(super) async fn warn_of_unobserved(
    app: Option<&str>,
    items: &[Value],
    client: &Client,
    context: &Context<'_>,
) {
    let of_items: BTreeSet<&str> =
        items.iter().filter_map(|item| item["metadata"]["labels"][label::APPLICATION].as_str()).collect();
    // The command has its own answer, which a failure to explain it does not change.
    let Ok(all) = client.get::<Vec<Application>>(SUMMARIES).await else { return };
    let is_meant = |it: &&Application| {
        let name = it.name.as_str();
        if items.is_empty() { app.is_none_or(|app| app == name) } else { of_items.contains(name) }
    };
    // Any object may belong to an application that the list does not have.
    let unlisted = unobserved(client).await.unwrap_or_default();
    let unlisted: Vec<AppName> =
        unlisted.into_iter().filter(|name| app.is_none_or(|app| app == name.as_str())).collect();
    let sentences = sentences(all.iter().filter(is_meant), context.clock.now());
    for sentence in sentences.into_iter().chain(unobserved_sentence(&unlisted, &all)) {
        context.screen.say(format!("warning: {sentence}"));
    }
}

/// Why the application cannot be observed. `None`: it can.
pub(super) fn reason(application: &Application) -> Option<String> {
    let status = &application.status;
    let message = || match status.message.as_str() {
        "" => "it has not looked at the engine yet".to_owned(),
        message => plain(message).replace('\n', " "),
    };
    (status.health == HealthStatus::Unknown).then(message)
}

/// A sentence for each reason. Empty: all applications can be observed.
fn sentences<'a>(applications: impl Iterator<Item = &'a Application>, now: Timestamp) -> Vec<String> {
    let mut by_reason: BTreeMap<(String, bool), Vec<&Application>> = BTreeMap::new();
    for application in applications {
        if let Some(reason) = reason(application) {
            let was_seen = application.status.observed_at.is_some();
            by_reason.entry((reason, was_seen)).or_default().push(application);
        }
    }
    let sentence = |((reason, _), applications): ((String, bool), Vec<&Application>)| {
        let names: Vec<&str> = applications.iter().map(|it| it.name.as_str()).collect();
        let names = first_names(&names);
        match applications.iter().filter_map(|it| it.status.observed_at).min() {
            Some(at) => {
                format!("the agent cannot observe {names}, last seen {} ago: {reason}", span(now.since(at)))
            }
            None => format!("the agent has not observed {names} yet: {reason}"),
        }
    };
    by_reason.into_iter().map(sentence).collect()
}
