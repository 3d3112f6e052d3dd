//! The routes about requests of a collector to enrolled hosts. A request waits until the next report of its host, whose answer
//! has it. The host decides whether it acts, and reports the result.

use std::{fmt::Write as _, time::Duration};

use axum::{
    Extension, Json,
    body::Body,
    extract::{Path, State},
    response::{IntoResponse, Response},
};
use driftless_fleet::{AgentKey, HostReport, HostSignature, ReportAnswer, SIGNATURE_HEADER};
use driftless_model::{AppName, HostRequest, HostRequestKind, HostRequestResult, Timestamp};
use driftless_store::{RequestCreation, Store, StoredRequest};
use http::{StatusCode, header};
use serde::{Deserialize, Serialize};

use super::{
    access::{Caller, Identity, audit::AuditNote},
    api::read_object,
    error::Error,
    parameters::Parameters,
    shared::{Shared, read},
    until::parse_lifetime,
};

/// The time in which a request is sent.
const DEFAULT_LIFETIME: Duration = Duration::from_hours(1);
const LONGEST_LIFETIME: Duration = Duration::from_hours(7 * 24);

/// The most requests that wait for one host.
const MOST_WAITING: u64 = 100;

/// The most requests in one answer, so that it is small.
const MOST_SENT: u64 = 10;

/// The most requests in a list, and their number by default.
pub(super) const LIST_MOST: u64 = 1000;
const LIST_DEFAULT: u64 = 100;

/// The digits that an id needs at least, so that a slip cancels nothing.
const SHORTEST_ID: usize = 8;

/// The longest text of a revision or commit, in characters.
const LONGEST_REVISION: usize = 100;

/// The body of `POST /api/v1/fleet/hosts/{name}/requests`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct FleetRequestBody {
    /// The kind of the request.
    pub kind: HostRequestKind,
    /// The application.
    pub application: String,
    /// The revision or commit of a rollback. Default: the one before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
    /// A span such as `1h`, at most 7 days; the request is not sent afterwards. Default: one hour.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_in: Option<String>,
}

/// A request to a host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FleetRequest {
    /// The name of the host.
    pub host: String,
    /// The request.
    pub request: HostRequest,
    /// When it was made.
    pub created: Timestamp,
    /// When it was last sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sent: Option<Timestamp>,
    /// When the host reported the result, or when the request expired before it was sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<Timestamp>,
    /// The result. `None`: the host has not reported it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<HostRequestResult>,
}

impl FleetRequest {
    /// A stored request.
    pub(super) fn of(stored: StoredRequest) -> Self {
        let StoredRequest { host, request, created, sent, ended, result } = stored;
        Self { host, request, created, sent, ended, result }
    }

    /// Whether it may still be sent or has no result yet, so that it can be cancelled.
    pub(super) fn is_open(&self, now: Timestamp) -> bool {
        self.ended.is_none() && (self.sent.is_some() || self.request.expires > now)
    }

    /// The state in one sentence.
    pub fn state(&self, now: Timestamp) -> String {
        if let Some(result) = &self.result {
            let word = match result.outcome {
                driftless_model::HostRequestOutcome::Accepted => "accepted",
                driftless_model::HostRequestOutcome::Refused => "refused",
                driftless_model::HostRequestOutcome::Unknown => "unknown",
            };
            let separator = if result.message.is_empty() { "" } else { ": " };
            return format!("{word}{separator}{}", result.message);
        }
        let has_expired = self.request.expires <= now || self.ended.is_some();
        match (has_expired, self.sent.is_some()) {
            (false, false) => "waits for the next report of the host".to_owned(),
            (false, true) => "sent, no result yet".to_owned(),
            (true, false) => "expired, never sent".to_owned(),
            (true, true) => "sent, and expired without a result".to_owned(),
        }
    }
}

/// Stores a request to an enrolled host.
pub(super) async fn create(
    Caller(caller): Caller,
    State(shared): State<Shared>,
    Extension(note): Extension<AuditNote>,
    Path(host): Path<String>,
    body: Body,
) -> Result<Response, Error> {
    if !shared.handle.fleet().settings().accept {
        return Err(Error::NoCollector);
    }
    let body: Option<FleetRequestBody> = read_object(body).await?;
    let body = body.ok_or_else(|| Error::Malformed("the body needs `kind` and `application`".to_owned()))?;
    let created = create_request(&shared, caller, &note, host, body).await?;
    Ok((StatusCode::CREATED, Json(created)).into_response())
}

/// Checks and stores a request of an actor to an enrolled host.
pub(super) async fn create_request(
    shared: &Shared,
    caller: Identity,
    note: &AuditNote,
    host: String,
    body: FleetRequestBody,
) -> Result<FleetRequest, Error> {
    let FleetRequestBody { kind, application, to, expires_in } = body;
    let application = AppName::parse(&application).map_err(|error| Error::Malformed(error.to_string()))?;
    let is_odd = |to: &&String| to.is_empty() || to.len() > LONGEST_REVISION || !to.is_ascii();
    if to.is_some() && kind != HostRequestKind::Rollback || to.as_ref().is_some_and(|to| is_odd(&to)) {
        return Err(Error::Malformed("`to` is the revision or commit of a rollback".to_owned()));
    }
    let lifetime = parse_lifetime(expires_in.as_deref(), DEFAULT_LIFETIME, LONGEST_LIFETIME)?;
    let now = shared.clock.now();
    let id = driftless_agent::random_key()[..16].iter().fold(String::new(), |mut id, byte| {
        // Writing to a string cannot fail.
        let _ = write!(id, "{byte:02x}");
        id
    });
    let request =
        HostRequest { id, kind, application, to, actor: caller.actor, expires: now.after(lifetime) };
    note.set(&format!("{host}: {}", described(&request)));
    let (name, stored) = (host.clone(), request.clone());
    let created =
        read(&shared.store, move |store| store.create_fleet_request(&name, &stored, MOST_WAITING, now));
    match created.await? {
        RequestCreation::NotEnrolled => Err(Error::Refused(format!(
            "`{host}` is not enrolled, and only enrolled hosts get requests: run `driftless fleet invite --name {host}`"
        ))),
        RequestCreation::TooMany => {
            Err(Error::Refused(format!("{MOST_WAITING} requests wait for `{host}` already")))
        }
        RequestCreation::TooManyInAll { most } => {
            Err(Error::Refused(format!("{most} requests wait for the hosts of this collector already")))
        }
        RequestCreation::Created => {
            Ok(FleetRequest { host, request, created: now, sent: None, ended: None, result: None })
        }
    }
}

/// `rollback shop to 3 (request ID)`.
fn described(request: &HostRequest) -> String {
    let HostRequest { id, kind, application, to, .. } = request;
    let to = to.as_ref().map(|to| format!(" to {to}")).unwrap_or_default();
    format!("{} {application}{to} (request {id})", kind.word())
}

/// The parameters of [`list`].
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RequestsQuery {
    host: Option<String>,
    limit: Option<u64>,
}

/// The requests, newest first.
pub(super) async fn list(
    State(shared): State<Shared>,
    Parameters(RequestsQuery { host, limit }): Parameters<RequestsQuery>,
) -> Result<Json<Vec<FleetRequest>>, Error> {
    if !shared.handle.fleet().settings().accept {
        return Err(Error::NoCollector);
    }
    let limit = limit.unwrap_or(LIST_DEFAULT).min(LIST_MOST);
    let stored = read(&shared.store, move |store| store.fleet_requests(host.as_deref(), limit)).await?;
    Ok(Json(stored.into_iter().map(FleetRequest::of).collect()))
}

/// Cancels a request that has no result yet. Its id may be shortened.
pub(super) async fn cancel(
    State(shared): State<Shared>,
    Extension(note): Extension<AuditNote>,
    Path(id): Path<String>,
) -> Result<StatusCode, Error> {
    cancel_request(&shared, &note, id).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Cancels the request with this id, and returns the name of its host.
pub(super) async fn cancel_request(shared: &Shared, note: &AuditNote, id: String) -> Result<String, Error> {
    let (wanted, now) = (id.clone(), shared.clock.now());
    let cancelled = if id.len() < SHORTEST_ID {
        None
    } else {
        read(&shared.store, move |store| store.cancel_fleet_request(&wanted, now)).await?
    };
    let Some(StoredRequest { host, request, .. }) = cancelled else { return Err(Error::NoSuchRequest(id)) };
    note.set(&format!("{host}: {}", described(&request)));
    Ok(host)
}

/// Stores the results in a signed report. Returns a sentence about those that are new.
pub(super) async fn take_results(
    store: &Store,
    report: &HostReport,
    now: Timestamp,
) -> Result<Option<String>, Error> {
    if report.requests.is_empty() {
        return Ok(None);
    }
    let (host, results) = (report.host.clone(), report.requests.clone());
    let ended = read(store, move |store| store.end_fleet_requests(&host, &results, now)).await?;
    let sentences: Vec<String> = ended
        .into_iter()
        .map(FleetRequest::of)
        .map(|ended| format!("{}: {}: {}", ended.host, described(&ended.request), ended.state(now)))
        .collect();
    Ok((!sentences.is_empty()).then(|| sentences.join("; ")))
}

/// The answer to a signed report: the requests that wait for the host, signed by this collector. `None`: there are none.
pub(super) async fn answer(
    store: &Store,
    report: HostSignature,
    now: Timestamp,
) -> Result<Option<Response>, Error> {
    let due = read(store, move |store| {
        let requests = store.due_fleet_requests(&report.host, MOST_SENT, now)?;
        if requests.is_empty() {
            return Ok(None);
        }
        Ok(Some((ReportAnswer { requests }, store.fleet_key_seed()?, report)))
    });
    let Some((answer, seed, report)) = due.await? else { return Ok(None) };
    let key = AgentKey::from_seed(&seed).map_err(|error| Error::State(error.to_string()))?;
    let body = serde_json::to_vec(&answer).map_err(|error| Error::State(error.to_string()))?;
    let signature = ReportAnswer::sign(&key, &report, &body);
    let headers =
        [(header::CONTENT_TYPE.as_str(), "application/json"), (SIGNATURE_HEADER, signature.as_str())];
    Ok(Some((StatusCode::OK, headers, body).into_response()))
}
