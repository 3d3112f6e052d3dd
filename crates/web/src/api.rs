//! The JSON routes about applications. They show the agent's published status unchanged, and hand requests to the
//! agent, which accepts or refuses them.

use std::time::Duration;

use axum::{
    Extension, Json,
    body::{Body, to_bytes},
    extract::{FromRequestParts, Path, State},
    response::{IntoResponse, Response},
};
use http::{HeaderMap, StatusCode, request::Parts};
use http_body_util::LengthLimitError;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::{Map, Value};

use super::{
    access::{Caller, Identity, audit::AuditNote},
    error::Error,
    limits::{ANSWER_WITHIN, BODY_LIMIT, START_WITHIN},
    parameters::Parameters,
    peer::Peer,
    shared::{Shared, read},
    until::parse_until,
};
use driftless_agent::{Against, Answer, Promotion, RequestKind, Rollback, Supposed, Ticket, release_notes};
use driftless_model::{
    AgentStatus, AppName, Application, Pin, Removal, Revision, Timestamp, Until, WorkloadName, WorkloadStatus,
};

/// Time for a client to send a body of at most [`BODY_LIMIT`] bytes.
const BODY_WITHIN: Duration = Duration::from_secs(10);

/// The body of `POST …/rollback`. Every field is optional, and so is the body.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RollbackBody {
    /// A revision's number, or a commit's id of at least 7 digits. Default: the newest revision that succeeded
    /// and is not the current one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
    /// The reason, shown to people. Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// `manual` (the default), `next-commit`, a span such as `2h`, or an RFC 3339 time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<String>,
}

/// The answer to an accepted request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Accepted {
    pub accepted: bool,
    /// Identifies this request for `GET …/wait`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ticket: Option<String>,
    /// After a rollback: the pin.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pin: Option<Pin>,
    /// For people. After a rollback: why it changes nothing yet. After a removal: the volumes that stay. After a
    /// release or `forget`: the folders of the state directory that containers write to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// After an adoption: one line per adopted object, for people.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub adopted: Vec<String>,
    /// After a recovery: what has changed, for people.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub recovered: Vec<String>,
}

impl Accepted {
    /// The answer without anything that only some requests have.
    fn of(ticket: Option<Ticket>) -> Self {
        Self {
            accepted: true,
            ticket: ticket.map(|ticket| ticket.to_string()),
            pin: None,
            note: None,
            adopted: Vec::new(),
            recovered: Vec::new(),
        }
    }
}

/// The application name in a route. The handler checks whether it exists.
pub(super) struct Name(pub(super) AppName);

impl<S: Send + Sync> FromRequestParts<S> for Name {
    type Rejection = Error;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Error> {
        let name = Path::<String>::from_request_parts(parts, state).await;
        name.map(|Path(name)| Self(AppName(name))).map_err(|error| Error::Malformed(error.body_text()))
    }
}

/// The query of `GET …/applications`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ListQuery {
    #[serde(default)]
    view: View,
}

/// The extent of a list of applications.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
enum View {
    #[default]
    Full,
    Summary,
}

/// An application without what grows with it, and the number of its instances.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Summary {
    #[serde(flatten)]
    application: Application,
    replicas: u32,
    ready_replicas: u32,
}

impl Summary {
    fn of(application: &Application) -> Self {
        let workloads = &application.status.workloads;
        let count = |of: fn(&WorkloadStatus) -> u32| workloads.values().map(of).fold(0, u32::saturating_add);
        Self {
            replicas: count(|workload| workload.replicas),
            ready_replicas: count(|workload| workload.ready_replicas),
            application: application.summary(),
        }
    }
}

pub(super) async fn list(
    State(shared): State<Shared>,
    Parameters(ListQuery { view }): Parameters<ListQuery>,
) -> Result<Response, Error> {
    let applications = shared.handle.applications();
    let all = applications.values().map(AsRef::as_ref);
    Ok(match view {
        View::Full => Json(all.collect::<Vec<&Application>>()).into_response(),
        View::Summary => Json(all.map(Summary::of).collect::<Vec<_>>()).into_response(),
    })
}

pub(super) async fn one(State(shared): State<Shared>, Name(name): Name) -> Result<Response, Error> {
    let application = shared.handle.application(&name)?;
    Ok(Json(application.as_ref()).into_response())
}

/// The agent itself.
pub(super) async fn agent(State(shared): State<Shared>) -> Json<AgentStatus> {
    Json(shared.handle.agent_status())
}

/// The history, newest first, also of an application that is no longer in Git.
pub(super) async fn revisions(
    State(shared): State<Shared>,
    Name(name): Name,
) -> Result<Json<Vec<Revision>>, Error> {
    let app = name.clone();
    let revisions = read(&shared.store, move |it| it.revisions(&app)).await?;
    if revisions.is_empty() {
        shared.handle.application(&name)?;
    }
    Ok(Json(revisions))
}

/// The query of `GET …/plan`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PlanQuery {
    /// A request that is supposed to be accepted: `prune` or `rollback`.
    #[serde(default)]
    after: Option<String>,
    /// The revision or commit of the rollback.
    #[serde(default)]
    to: Option<String>,
}

pub(super) async fn plan(
    Caller(caller): Caller,
    State(shared): State<Shared>,
    Name(name): Name,
    Parameters(query): Parameters<PlanQuery>,
) -> Result<Response, Error> {
    let kind = match (query.after.as_deref(), query.to) {
        (None, None) => RequestKind::Plan,
        (Some("prune"), None) => RequestKind::PlanAfter(Supposed::Prune),
        (Some("rollback"), to) => RequestKind::PlanAfter(Supposed::Rollback(to)),
        (Some("prune") | None, Some(_)) => {
            return Err(Error::Malformed("`to` has a meaning with `after=rollback` only".to_owned()));
        }
        (Some(_), _) => return Err(Error::Malformed("`after` is `prune` or `rollback`".to_owned())),
    };
    ask(&shared, &caller, name, kind).await
}

/// The query of `GET …/drift`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct DriftQuery {
    #[serde(default)]
    against: Option<String>,
}

pub(super) async fn drift(
    Caller(caller): Caller,
    State(shared): State<Shared>,
    Name(name): Name,
    Parameters(DriftQuery { against }): Parameters<DriftQuery>,
) -> Result<Response, Error> {
    let against = against.as_deref().map_or(Against::Pin, Against::parse);
    ask(&shared, &caller, name, RequestKind::Drift(against)).await
}

pub(super) async fn settings(
    Caller(caller): Caller,
    State(shared): State<Shared>,
    Name(name): Name,
) -> Result<Response, Error> {
    ask(&shared, &caller, name, RequestKind::Settings).await
}

pub(super) async fn sync(
    Caller(caller): Caller,
    State(shared): State<Shared>,
    Name(name): Name,
) -> Result<Response, Error> {
    ask(&shared, &caller, name, RequestKind::Sync).await
}

pub(super) async fn accept_rewrite(
    Caller(caller): Caller,
    State(shared): State<Shared>,
    Name(name): Name,
) -> Result<Response, Error> {
    ask(&shared, &caller, name, RequestKind::AcceptRewrite(None)).await
}

pub(super) async fn retry(
    Caller(caller): Caller,
    State(shared): State<Shared>,
    Name(name): Name,
) -> Result<Response, Error> {
    ask(&shared, &caller, name, RequestKind::Retry).await
}

pub(super) async fn prune(
    Caller(caller): Caller,
    State(shared): State<Shared>,
    Name(name): Name,
) -> Result<Response, Error> {
    ask(&shared, &caller, name, RequestKind::Prune).await
}

pub(super) async fn heal(
    Caller(caller): Caller,
    State(shared): State<Shared>,
    Name(name): Name,
) -> Result<Response, Error> {
    ask(&shared, &caller, name, RequestKind::Heal).await
}

pub(super) async fn update_images(
    Caller(caller): Caller,
    State(shared): State<Shared>,
    Name(name): Name,
) -> Result<Response, Error> {
    ask(&shared, &caller, name, RequestKind::UpdateImages).await
}

/// The query of `POST …/promote`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct PromoteQuery {
    workload: Option<String>,
    full: bool,
}

pub(super) async fn promote(
    Caller(caller): Caller,
    State(shared): State<Shared>,
    Extension(note): Extension<AuditNote>,
    Name(name): Name,
    Parameters(PromoteQuery { workload, full }): Parameters<PromoteQuery>,
) -> Result<Response, Error> {
    let words = [workload.clone(), full.then(|| "all steps".to_owned())];
    note.set(&words.into_iter().flatten().collect::<Vec<_>>().join(", "));
    let promotion = Promotion { workload: workload.map(WorkloadName), is_full: full };
    ask(&shared, &caller, name, RequestKind::Promote(promotion)).await
}

pub(super) async fn abort(
    Caller(caller): Caller,
    State(shared): State<Shared>,
    Name(name): Name,
) -> Result<Response, Error> {
    ask(&shared, &caller, name, RequestKind::Abort).await
}

/// The query of `POST …/remove`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RemoveQuery {
    #[serde(default)]
    volumes: bool,
    #[serde(default)]
    force: bool,
}

pub(super) async fn remove(
    Caller(caller): Caller,
    State(shared): State<Shared>,
    Name(name): Name,
    Parameters(RemoveQuery { volumes, force }): Parameters<RemoveQuery>,
) -> Result<Response, Error> {
    let removal = if volumes { Removal::WithVolumes } else { Removal::KeepVolumes };
    let kind = if force { RequestKind::ForceRemove(removal) } else { RequestKind::Remove(removal) };
    ask(&shared, &caller, name, kind).await
}

pub(super) async fn forget(
    Caller(caller): Caller,
    State(shared): State<Shared>,
    Name(name): Name,
) -> Result<Response, Error> {
    ask(&shared, &caller, name, RequestKind::Forget).await
}

pub(super) async fn resume(
    Caller(caller): Caller,
    State(shared): State<Shared>,
    Name(name): Name,
) -> Result<Response, Error> {
    ask(&shared, &caller, name, RequestKind::Resume).await
}

pub(super) async fn suspend(
    Caller(caller): Caller,
    State(shared): State<Shared>,
    Name(name): Name,
) -> Result<Response, Error> {
    ask(&shared, &caller, name, RequestKind::Suspend).await
}

pub(super) async fn adopt(
    Caller(caller): Caller,
    State(shared): State<Shared>,
    Name(name): Name,
) -> Result<Response, Error> {
    ask(&shared, &caller, name, RequestKind::Adopt).await
}

/// Confirms that state was lost.
pub(super) async fn recover(State(shared): State<Shared>) -> Result<Response, Error> {
    let answer = tokio::time::timeout(ANSWER_WITHIN, shared.handle.recover()).await;
    let recovered = answer.map_err(|_| Error::TooSlow)??;
    Ok(accepted(Accepted { recovered, ..Accepted::of(None) }))
}

/// The options of a release.
#[derive(Debug, Default, Deserialize)]
pub(super) struct ReleaseQuery {
    #[serde(default)]
    undo: bool,
}

/// Notes that the agent shall manage nothing, or ends that, and starts the agent again.
pub(super) async fn release(
    State(shared): State<Shared>,
    Parameters(ReleaseQuery { undo }): Parameters<ReleaseQuery>,
) -> Result<Response, Error> {
    let notes = read(&shared.store, move |store| {
        if undo {
            return store.end_release().map(|()| Vec::new());
        }
        // The next start of the agent forgets the applications.
        let notes = release_notes(store);
        store.note_release().map(|()| notes)
    });
    let notes = notes.await?;
    shared.handle.restart();
    let note = (!notes.is_empty()).then(|| notes.join("\n"));
    Ok(accepted(Accepted { note, ..Accepted::of(None) }))
}

pub(super) async fn rollback(
    Caller(caller): Caller,
    State(shared): State<Shared>,
    Extension(note): Extension<AuditNote>,
    Name(name): Name,
    body: Body,
) -> Result<Response, Error> {
    let rollback = read_rollback(body, shared.clock.now()).await?;
    note.set(&detail(&rollback));
    ask(&shared, &caller, name, RequestKind::Rollback(rollback)).await
}

/// The followed repositories in the order of the configuration.
pub(super) async fn repositories(State(shared): State<Shared>) -> Response {
    Json(shared.handle.repositories().as_ref()).into_response()
}

/// Has a repository fetched, also one without applications.
pub(super) async fn fetch(
    State(shared): State<Shared>,
    Path(repository): Path<String>,
) -> Result<Response, Error> {
    if !shared.handle.repositories().iter().any(|known| known.name == repository) {
        return Err(Error::NoSuchRepository(repository));
    }
    shared.handle.request_fetch(&repository);
    Ok(accepted(Accepted::of(None)))
}

/// The configured webhooks in the order of the configuration.
pub(super) async fn webhooks(State(shared): State<Shared>) -> Result<Response, Error> {
    let hooks = shared.hooks.clone();
    let statuses = read(&shared.store, move |_| hooks.statuses()).await?;
    Ok(Json(statuses).into_response())
}

/// 503 with the reason while the agent is not ready. The reason names repositories, so it is shown only to clients
/// that may read.
pub(super) async fn readyz(
    State(shared): State<Shared>,
    peer: Option<Extension<Peer>>,
    headers: HeaderMap,
) -> Response {
    let readiness = shared.handle.readiness();
    if readiness.is_ready() {
        return "ready\n".into_response();
    }
    let peer = peer.map(|Extension(peer)| peer);
    let identity = shared.authenticator.identify(&headers, peer).await;
    let may_read = identity.is_ok_and(|identity| identity.may_read());
    let reason = match readiness.message.as_str() {
        message if !message.is_empty() && may_read => format!("not ready: {message}\n"),
        _ => "not ready\n".to_owned(),
    };
    (StatusCode::SERVICE_UNAVAILABLE, reason).into_response()
}

/// Hands a request to the agent and answers with its answer.
pub(super) async fn ask(
    shared: &Shared,
    caller: &Identity,
    name: AppName,
    kind: RequestKind,
) -> Result<Response, Error> {
    let (answer, ticket) = request(shared, caller, name, kind).await?;
    Ok(match answer {
        Answer::Accepted => accepted(Accepted::of(Some(ticket))),
        Answer::Noted(note) => accepted(Accepted { note: Some(note), ..Accepted::of(Some(ticket)) }),
        Answer::Pinned { pin, note } => {
            accepted(Accepted { pin: Some(pin), note, ..Accepted::of(Some(ticket)) })
        }
        Answer::Adopted(adopted) => accepted(Accepted { adopted, ..Accepted::of(Some(ticket)) }),
        Answer::Plan(dry_run) => Json(dry_run).into_response(),
        Answer::Drift(inspection) => Json(*inspection).into_response(),
        Answer::Settings(settings) => Json(settings).into_response(),
    })
}

/// Hands a request to the agent.
pub(super) async fn request(
    shared: &Shared,
    caller: &Identity,
    name: AppName,
    kind: RequestKind,
) -> Result<(Answer, Ticket), Error> {
    // An unknown name is refused before it takes a slot in the agent's queue.
    let application = shared.handle.started_application(&name, START_WITHIN).await?;
    // The rewritten history is that of all applications of the repository.
    let repository = &application.spec.repository;
    if matches!(kind, RequestKind::AcceptRewrite(_)) && !caller.may_fetch(repository) {
        let message = format!(
            "{} may not accept a history for all applications of the repository `{repository}`",
            caller.actor
        );
        return Err(Error::Forbidden(message));
    }
    let handle = shared.handle.acting_for(&caller.actor);
    let request = handle.request_with_ticket(name, kind);
    Ok(tokio::time::timeout(ANSWER_WITHIN, request).await.map_err(|_| Error::TooSlow)??)
}

fn accepted(answer: Accepted) -> Response {
    (StatusCode::ACCEPTED, Json(answer)).into_response()
}

/// The detail of a rollback in the audit.
pub(super) fn detail(rollback: &Rollback) -> String {
    let to = rollback.to.as_deref().map_or_else(|| "the last success".to_owned(), |to| format!("to {to}"));
    if rollback.reason.is_empty() { to } else { format!("{to}: {}", rollback.reason) }
}

async fn read_rollback(body: Body, now: Timestamp) -> Result<Rollback, Error> {
    let body: RollbackBody = read_object(body).await?.unwrap_or_default();
    let until = match body.until {
        Some(text) => parse_until(&text, now).map_err(|error| Error::Malformed(error.to_string()))?,
        None => Until::Manual,
    };
    Ok(Rollback { to: body.to, reason: body.reason.unwrap_or_default(), until })
}

/// Reads a body of at most [`BODY_LIMIT`] bytes.
pub(super) async fn read_body(body: Body) -> Result<Vec<u8>, Error> {
    let bytes = tokio::time::timeout(BODY_WITHIN, to_bytes(body, BODY_LIMIT))
        .await
        .map_err(|_| Error::BodyTooSlow)?
        .map_err(|error| body_error(&error))?;
    Ok(bytes.to_vec())
}

/// The audit has it also if the client has gone.
fn body_error(error: &axum::Error) -> Error {
    let is_length = |source: &(dyn std::error::Error + 'static)| source.is::<LengthLimitError>();
    if std::error::Error::source(error).is_some_and(is_length) {
        Error::BodyTooLarge
    } else {
        Error::Malformed("the connection closed before the end of the body".to_owned())
    }
}

/// Reads a body that is a JSON object. `None`: it is empty.
pub(super) async fn read_object<T: DeserializeOwned>(body: Body) -> Result<Option<T>, Error> {
    let bytes = read_body(body).await?;
    if bytes.is_empty() {
        return Ok(None);
    }
    let malformed = |error: serde_json::Error| Error::Malformed(format!("the body: {error}"));
    // Parsed as an object first: serde would read a list as the fields in order.
    let object: Map<String, Value> = serde_json::from_slice(&bytes).map_err(malformed)?;
    serde_json::from_value(Value::Object(object)).map(Some).map_err(malformed)
}
