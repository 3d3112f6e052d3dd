//! The routes about one workload or instance. Requests go to the agent; logs are streamed from the engine.

use std::pin::Pin;

use axum::{
    Extension,
    body::Body,
    extract::{FromRequestParts, Path, State},
    response::{IntoResponse, Response},
};
use futures_util::StreamExt;
use http::{HeaderValue, header, request::Parts};
use serde::{Deserialize, Serialize};

use super::{
    access::{Caller, audit::AuditNote},
    api::{ask, read_object},
    cut_off::cut_off_at,
    error::Error,
    limits::ANSWER_WITHIN,
    parameters::Parameters,
    serve::Stopping,
    shared::Shared,
    until::parse_time,
};
use driftless_agent::{InstanceName, RequestKind, Scale};
use driftless_docker::{LogOptions, LogSource, LogStream};
use driftless_model::parse_duration;
use driftless_model::{
    AppName, Application, EngineKind, InstanceStatus, PartStatus, Role, Timestamp, WorkloadName,
    WorkloadStatus,
};

/// The header with the start of the present run, as the agent knows it, in milliseconds since the Unix epoch.
const STARTED: &str = "driftless-started";

/// The application and the workload or instance in a route.
pub(super) struct Names(AppName, String);

impl<S: Send + Sync> FromRequestParts<S> for Names {
    type Rejection = Error;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Error> {
        let names = Path::<(String, String)>::from_request_parts(parts, state).await;
        names
            .map(|Path((app, name))| Self(AppName(app), name))
            .map_err(|error| Error::Malformed(error.body_text()))
    }
}

pub(super) async fn restart(
    Caller(caller): Caller,
    State(shared): State<Shared>,
    Names(app, name): Names,
) -> Result<Response, Error> {
    ask(&shared, &caller, app, RequestKind::Restart(WorkloadName(name))).await
}

pub(super) async fn create_job(
    Caller(caller): Caller,
    State(shared): State<Shared>,
    Path((app, workload, job)): Path<(String, String, String)>,
) -> Result<Response, Error> {
    ask(&shared, &caller, AppName(app), RequestKind::CreateJob(WorkloadName(workload), job)).await
}

pub(super) async fn delete_job(
    Caller(caller): Caller,
    State(shared): State<Shared>,
    Names(app, name): Names,
) -> Result<Response, Error> {
    ask(&shared, &caller, app, RequestKind::DeleteJob(WorkloadName(name))).await
}

pub(super) async fn pause(
    Caller(caller): Caller,
    State(shared): State<Shared>,
    Names(app, name): Names,
) -> Result<Response, Error> {
    ask(&shared, &caller, app, RequestKind::Pause(WorkloadName(name))).await
}

pub(super) async fn resume(
    Caller(caller): Caller,
    State(shared): State<Shared>,
    Names(app, name): Names,
) -> Result<Response, Error> {
    ask(&shared, &caller, app, RequestKind::Unpause(WorkloadName(name))).await
}

/// The body of `POST …/scale`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ScaleBody {
    /// The number of instances.
    pub replicas: u32,
    /// A span such as `2h`, or an RFC 3339 time.
    pub until: String,
}

impl ScaleBody {
    /// The request for a workload, and its words in the audit.
    pub(super) fn request(self, name: &str, now: Timestamp) -> Result<(RequestKind, String), Error> {
        let Self { replicas, until } = self;
        let until = parse_time(&until, now).map_err(|error| Error::Malformed(error.to_string()))?;
        // The end is shown to people.
        let until = Timestamp(until.0 / 1000 * 1000);
        let words = format!("{name} to {replicas} until {until}");
        Ok((RequestKind::Scale(Scale { workload: WorkloadName(name.to_owned()), replicas, until }), words))
    }
}

pub(super) async fn scale(
    Caller(caller): Caller,
    State(shared): State<Shared>,
    Extension(note): Extension<AuditNote>,
    Names(app, name): Names,
    body: Body,
) -> Result<Response, Error> {
    let body: Option<ScaleBody> = read_object(body).await?;
    let Some(body) = body else {
        return Err(Error::Malformed("the body: it needs `replicas` and `until`".to_owned()));
    };
    let (kind, words) = body.request(&name, shared.clock.now())?;
    note.set(&words);
    ask(&shared, &caller, app, kind).await
}

pub(super) async fn reset_scale(
    Caller(caller): Caller,
    State(shared): State<Shared>,
    Names(app, name): Names,
) -> Result<Response, Error> {
    ask(&shared, &caller, app, RequestKind::ResetScale(WorkloadName(name))).await
}

/// The query of `POST …/delete`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct DeleteQuery {
    /// The workload, if several have an instance of this name.
    namespace: Option<String>,
}

pub(super) async fn delete(
    Caller(caller): Caller,
    State(shared): State<Shared>,
    Names(app, name): Names,
    Parameters(DeleteQuery { namespace }): Parameters<DeleteQuery>,
) -> Result<Response, Error> {
    ask(&shared, &caller, app, RequestKind::DeleteInstance(InstanceName { name, namespace })).await
}

/// The query of `GET …/logs`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct LogQuery {
    pub(super) follow: bool,
    pub(super) tail: Option<u64>,
    /// A duration or a time.
    pub(super) since: Option<String>,
    pub(super) timestamps: bool,
    pub(super) previous: bool,
    /// The container of a pod with several; default: the first.
    pub(super) container: Option<String>,
    /// The workload, if several have an instance of this name.
    pub(super) namespace: Option<String>,
}

/// Logs of an instance of the application. Other containers of the host cannot be read.
pub(super) async fn logs(
    State(shared): State<Shared>,
    stopping: Option<Extension<Stopping>>,
    Names(app, name): Names,
    Parameters(query): Parameters<LogQuery>,
) -> Result<Response, Error> {
    let permit = query.follow.then(|| shared.stream_permit()).transpose()?;
    let application = shared.handle.application(&app)?;
    let started = logged_container(&application, &name, &query)?.0.started;
    let stream = open_logs(&shared, &app, &name, &query).await?;
    let stopping = stopping.map(|Extension(it)| it).unwrap_or_default();
    // When the client disconnects, the body is dropped, which ends reading from the engine.
    let stream = stream.map(move |part| {
        let _permit = &permit;
        part
    });
    let body = Body::from_stream(cut_off_at(stream, stopping.0.cancelled_owned()));
    let mut response = ([(header::CONTENT_TYPE, "text/plain; charset=utf-8")], body).into_response();
    if let Some(started) = started {
        response.headers_mut().insert(STARTED, HeaderValue::from(started.0));
    }
    Ok(response)
}

/// Opens the output of an instance.
pub(super) async fn open_logs(
    shared: &Shared,
    app: &AppName,
    name: &str,
    query: &LogQuery,
) -> Result<LogStream, Error> {
    let application = shared.handle.application(app)?;
    let (instance, container) = logged_container(&application, name, query)?;
    let nothing = || {
        Error::Refused(format!("previous terminated container \"{container}\" in pod \"{name}\" not found"))
    };
    let is_counted = instance.restarts > 0;
    if query.previous && !is_counted && instance.state != "Running" {
        return Err(nothing());
    }
    let since = query.since.as_deref().map(|it| since(it, shared.clock.now())).transpose()?;
    let source = match application.spec.policy.engine {
        EngineKind::Docker => LogSource::Container,
        EngineKind::Swarm => LogSource::Task,
    };
    let LogQuery { follow, tail, since: _, timestamps, previous, container: _, namespace: _ } = *query;
    let options = LogOptions { follow, tail, since, timestamps, previous, source };
    let opened = tokio::time::timeout(ANSWER_WITHIN, shared.handle.logs(&instance.container, &options)).await;
    let stream = opened.map_err(|_| Error::TooSlow)??;
    if !previous || is_counted {
        return Ok(stream);
    }
    // The start after an end that somebody brought about, as with `docker kill`, is not counted.
    let earlier = tokio::time::timeout(ANSWER_WITHIN, unless_empty(stream)).await;
    earlier.map_err(|_| Error::TooSlow)?.ok_or_else(nothing)
}

async fn unless_empty(stream: LogStream) -> Option<LogStream> {
    let mut stream = stream.peekable();
    Pin::new(&mut stream).peek().await?;
    Some(Box::pin(stream))
}

/// The container that a query of logs is about, and its name.
pub(super) fn logged_container<'a>(
    application: &'a Application,
    name: &str,
    query: &LogQuery,
) -> Result<(&'a InstanceStatus, &'a str), Error> {
    let mut workloads = application.status.workloads.values();
    let found = workloads.find_map(|workload| {
        if query.namespace.as_ref().is_some_and(|it| workload.spec.object.namespace != *it) {
            return None;
        }
        let is_it = |it: &&InstanceStatus| it.name == name || it.pod.as_deref() == Some(name);
        let instance = workload.instances.iter().find(is_it)?;
        Some((workload, instance))
    });
    let Some((workload, instance)) = found else {
        return Err(Error::NoSuchInstance(application.name.clone(), name.to_owned()));
    };
    container_of(workload, instance, query.container.as_deref())
}

/// The requested container of an instance, and its name.
fn container_of<'a>(
    workload: &'a WorkloadStatus,
    instance: &'a InstanceStatus,
    wanted: Option<&str>,
) -> Result<(&'a InstanceStatus, &'a str), Error> {
    let own = workload.spec.container.as_deref().unwrap_or(&workload.spec.object.name);
    let pod = &instance.name;
    let unknown = |it: &str| Error::Refused(format!("container {it} is not valid for pod {pod}"));
    if instance.containers.is_empty() {
        return wanted.filter(|it| *it != own).map_or(Ok((instance, own)), |it| Err(unknown(it)));
    }
    let is_it = |it: &&PartStatus| match wanted {
        Some(wanted) => it.spec.name == wanted,
        None => it.spec.role == Role::App,
    };
    let found = instance.containers.iter().find(is_it).ok_or_else(|| unknown(wanted.unwrap_or(own)))?;
    let name = found.spec.name.as_str();
    let there = found.instance.as_deref().ok_or_else(|| {
        Error::Refused(format!("container \"{name}\" in pod \"{pod}\" is waiting to start: PodInitializing"))
    })?;
    Ok((there, name))
}

/// A duration before now such as `10m`, or a time.
fn since(text: &str, now: Timestamp) -> Result<Timestamp, Error> {
    let ago = parse_duration(text).ok().map(|duration| {
        let millis = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
        Timestamp(now.0.saturating_sub(millis))
    });
    ago.or_else(|| Timestamp::parse(text)).ok_or_else(|| {
        Error::Malformed(format!(
            "`{text}` is neither a span such as 10m nor a time such as 2026-01-31T12:00:00Z"
        ))
    })
}
