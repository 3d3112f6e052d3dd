//! The entries of the audit: one for each request that changes something, before it is answered.

use std::sync::{Arc, Mutex, PoisonError};

use super::{identify::Identity, permission::Needed};
use crate::{
    error::ErrorDetail,
    route::{matched_route, path_names},
};
use axum::{extract::Request, response::Response};
use driftless_model::{Actor, AuditEntry, AuditResult, Channel};
use http::{StatusCode, header};

/// The action of a host that reports its state.
pub(crate) const REPORT: &str = "report host";

/// The word of a form of the page, whose path names the action.
pub(crate) const ACTION_IN_PATH: &str = "{action}";

/// The text that a handler adds to the entry of its request, such as the revision of a rollback.
#[derive(Clone, Default)]
pub(crate) struct AuditNote(Arc<Mutex<Option<String>>>);

impl AuditNote {
    pub(crate) fn set(&self, detail: &str) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(detail.to_owned());
    }

    fn is_set(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    fn take(&self) -> Option<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// Completes an entry with the result. `None`: nothing is there that the request is about, or it changes nothing.
pub(crate) fn completed(
    entry: Option<AuditEntry>,
    note: &AuditNote,
    response: &Response,
) -> Option<AuditEntry> {
    let mut entry = entry?;
    // Hosts report all the time. Only news about a host is worth an entry.
    if entry.action == REPORT && !note.is_set() {
        return None;
    }
    let status = response.status();
    if matches!(status, StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED) {
        return None;
    }
    if let Some(detail) = note.take() {
        entry.detail = detail;
    }
    entry.result = match status {
        status if status.is_success() || status.is_redirection() => AuditResult::Accepted,
        status if status.is_client_error() => AuditResult::Refused,
        _ => AuditResult::Failed,
    };
    let error = response.extensions().get::<ErrorDetail>();
    entry.message = error.map(|error| error.message.clone()).unwrap_or_default();
    Some(entry)
}

/// The entry of a request, before its result is known. `word` is that of its route.
pub(crate) fn entry(request: &Request, identity: &Identity, needed: &Needed, word: &str) -> AuditEntry {
    let route = matched_route(request);
    let names = path_names(request.uri().path(), route);
    let app = match needed {
        Needed::Act(app) => Some(app.clone()),
        Needed::Read
        | Needed::Logs
        | Needed::Fetch(_)
        | Needed::Report(_)
        | Needed::Key(_)
        | Needed::Peers
        | Needed::Admin => None,
    };
    let action = action(word, &names);
    let rest = names.into_iter().filter(|(name, _)| (app.is_none() || name != "name") && name != "action");
    let mut detail: Vec<String> = rest.map(|(_, value)| value).collect();
    detail.extend(request.uri().query().map(str::to_owned));
    let channel = if route.starts_with("/api/") {
        let agent = request.headers().get(header::USER_AGENT).and_then(|value| value.to_str().ok());
        if agent.is_some_and(|agent| agent.starts_with("driftless/")) { Channel::Cli } else { Channel::Api }
    } else {
        Channel::Page
    };
    AuditEntry {
        sequence: 0,
        at: driftless_model::Timestamp(0),
        actor: identity.actor.clone(),
        channel,
        from: identity.from.clone(),
        action,
        app,
        detail: detail.join(" "),
        result: AuditResult::Failed,
        message: String::new(),
    }
}

/// The action of a request: `sync`, `restart`, `create job`.
pub(crate) fn action(word: &str, names: &[(String, String)]) -> String {
    let in_path = names.iter().find(|(name, _)| word == ACTION_IN_PATH && name == "action");
    in_path.map_or_else(|| word.to_owned(), |(_, action)| action.replace('-', " "))
}

/// The entry of a request that is not in the routes behind the guard.
pub(crate) fn entry_of(actor: Actor, channel: Channel, from: &str, action: &str) -> AuditEntry {
    AuditEntry {
        sequence: 0,
        at: driftless_model::Timestamp(0),
        actor,
        channel,
        from: from.to_owned(),
        action: action.to_owned(),
        app: None,
        detail: String::new(),
        result: AuditResult::Accepted,
        message: String::new(),
    }
}
