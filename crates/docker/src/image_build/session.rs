//! The connection on which `BuildKit` asks for what a build needs: files, secrets, logins, health. The engine is the gRPC
//! client, so the agent runs a small HTTP/2 server. It only answers questions about this build, and ends when it is
//! dropped.

use std::{convert::Infallible, sync::Arc};

use futures_util::stream::poll_fn;
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, StatusCode};
use http_body_util::{BodyExt, StreamBody, combinators::UnsyncBoxBody};
use hyper::body::{Bytes, Frame};
use hyper_util::rt::TokioExecutor;
use tokio::{sync::mpsc, time::timeout};
use tokio_util::task::AbortOnDropHandle;

use super::{
    file_sync::{self, Folder},
    grpc::{Incoming, framed},
    job::BuildJob,
    protobuf::{Value, Writer, fields},
};
use crate::{call_error::CallError, deadline::DEADLINE, registry_login::Login, transport::Transport};
use driftless_model::digest_hex;

const HEALTH: &str = "/grpc.health.v1.Health/Check";
const FILES: &str = "/moby.filesync.v1.FileSync/DiffCopy";
const SECRET: &str = "/moby.buildkit.secrets.v1.Secrets/GetSecret";
const CREDENTIALS: &str = "/moby.filesync.v1.Auth/Credentials";

/// Status codes of gRPC.
const OK: u8 = 0;
const NOT_FOUND: u8 = 5;
const UNIMPLEMENTED: u8 = 12;
const INTERNAL: u8 = 13;

/// The number of packets that may wait to be sent.
const QUEUE: usize = 16;

type SessionBody = UnsyncBoxBody<Bytes, Infallible>;

/// An open session. Dropping it ends it.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) id: String,
    _serving: AbortOnDropHandle<()>,
}

impl Session {
    /// `None`: the engine has no sessions, and so no `BuildKit`.
    pub(super) async fn open(transport: &Transport, job: &Arc<BuildJob>) -> Result<Option<Self>, CallError> {
        let id = id_of(job);
        let key = &job.build.digest;
        let headers: Vec<(&'static str, &str)> = vec![
            ("x-docker-expose-session-uuid", &id),
            ("x-docker-expose-session-name", "driftless"),
            // Files that were sent under this key before are only sent again if they differ.
            ("x-docker-expose-session-sharedkey", key),
            ("x-docker-expose-session-grpc-method", HEALTH),
            ("x-docker-expose-session-grpc-method", FILES),
            ("x-docker-expose-session-grpc-method", SECRET),
            ("x-docker-expose-session-grpc-method", CREDENTIALS),
        ];
        let opened = timeout(DEADLINE, transport.upgrade("/session", "h2c", &headers)).await;
        let connection = match opened.unwrap_or(Err(CallError::TimedOut(DEADLINE))) {
            Ok(connection) => connection,
            Err(CallError::Status { code: 404 | 405 | 501, .. }) => return Ok(None),
            Err(failure) => return Err(failure),
        };
        let job = Arc::clone(job);
        let answer = move |request| {
            let job = Arc::clone(&job);
            async move { Ok::<_, Infallible>(answer(job, request).await) }
        };
        let serving = tokio::spawn(async move {
            let http = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
            let ended = http.serve_connection(connection, hyper::service::service_fn(answer)).await;
            if let Err(error) = ended {
                tracing::debug!(%error, "the session of a build ended with an error");
            }
        });
        Ok(Some(Self { id, _serving: AbortOnDropHandle::new(serving) }))
    }
}

/// Unique among all builds.
fn id_of(job: &BuildJob) -> String {
    use std::hash::{BuildHasher, RandomState};
    // Each is seeded from the operating system's random numbers.
    let (one, other) = (RandomState::new().hash_one(&job.image), RandomState::new().hash_one(job.time));
    let digest = digest_hex(format!("{} {one} {other}", job.image).as_bytes());
    digest.get(..25).unwrap_or(&digest).to_owned()
}

async fn answer(job: Arc<BuildJob>, request: Request<hyper::body::Incoming>) -> Response<SessionBody> {
    let (head, body) = request.into_parts();
    let mut messages = Incoming::new(body);
    match head.uri.path() {
        // 1 is the status `SERVING`.
        HEALTH => one(&Writer::default().number(1, 1).finish()),
        CREDENTIALS => match messages.next().await {
            Ok(message) => credentials(&job, &message.unwrap_or_default()).await,
            Err(error) => ended(INTERNAL, &error),
        },
        SECRET => match messages.next().await {
            Ok(Some(message)) => secret(&job, &message),
            Ok(None) => ended(INTERNAL, "the request is empty"),
            Err(error) => ended(INTERNAL, &error),
        },
        FILES => match folder(&head.headers) {
            Some(folder) => files(job, folder, messages),
            None => ended(NOT_FOUND, "there is no such folder"),
        },
        other => ended(UNIMPLEMENTED, &format!("{other} is not implemented")),
    }
}

/// The login for a registry. With an empty answer `BuildKit` asks the registry anonymously.
async fn credentials(job: &BuildJob, message: &[u8]) -> Response<SessionBody> {
    match job.logins.for_host(&first_text(message), &job.base_images()).await {
        Ok(None) => one(&[]),
        Ok(Some(Login { token: Some(token), .. })) => {
            one(&Writer::default().bytes(2, token.as_bytes()).finish())
        }
        Ok(Some(Login { username, password, token: None })) => {
            one(&Writer::default().bytes(1, username.as_bytes()).bytes(2, password.as_bytes()).finish())
        }
        Err(error) => ended(INTERNAL, &error),
    }
}

/// The text in the first field: what is asked for.
fn first_text(message: &[u8]) -> String {
    let text = fields(message).find_map(|it| match it {
        (1, Value::Bytes(text)) => Some(String::from_utf8_lossy(text).into_owned()),
        _ => None,
    });
    text.unwrap_or_default()
}

fn secret(job: &BuildJob, message: &[u8]) -> Response<SessionBody> {
    let id = first_text(message);
    match job.secrets.get(&id) {
        Some(value) => one(&Writer::default().bytes(1, value).finish()),
        None => ended(NOT_FOUND, &format!("the build has no secret `{id}`")),
    }
}

fn folder(headers: &HeaderMap) -> Option<Folder> {
    let all = |name: &str| headers.get_all(name).iter().filter_map(|it| it.to_str().ok()).collect::<Vec<_>>();
    Folder::of(all("dir-name").first()?, &all("include-patterns"))
}

fn files(job: Arc<BuildJob>, folder: Folder, messages: Incoming) -> Response<SessionBody> {
    let (sender, mut receiver) = mpsc::channel(QUEUE);
    let serving = tokio::spawn(async move {
        let trailers = match file_sync::serve(job, folder, messages, &sender).await {
            Ok(()) => status(OK, ""),
            Err(error) => status(INTERNAL, &error),
        };
        // It fails if the builder has disconnected, which is no fault.
        let _ = sender.send(Frame::trailers(trailers)).await;
    });
    let serving = AbortOnDropHandle::new(serving);
    let frames = poll_fn(move |cx| {
        // The task is aborted when the answer is dropped.
        let _owned = &serving;
        receiver.poll_recv(cx).map(|it| it.map(Ok))
    });
    respond(StreamBody::new(frames).boxed_unsync())
}

/// An answer of one message.
fn one(message: &[u8]) -> Response<SessionBody> {
    let frames = [framed(message), Frame::trailers(status(OK, ""))];
    respond(StreamBody::new(futures_util::stream::iter(frames.map(Ok))).boxed_unsync())
}

fn ended(code: u8, message: &str) -> Response<SessionBody> {
    respond(
        StreamBody::new(futures_util::stream::iter([Ok(Frame::trailers(status(code, message)))]))
            .boxed_unsync(),
    )
}

fn respond(body: SessionBody) -> Response<SessionBody> {
    let mut response = Response::new(body);
    *response.status_mut() = StatusCode::OK;
    response.headers_mut().insert(http::header::CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    response
}

fn status(code: u8, message: &str) -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert(HeaderName::from_static("grpc-status"), HeaderValue::from(u16::from(code)));
    let plain: String =
        message.chars().map(|it| if it.is_ascii_graphic() && it != '%' { it } else { ' ' }).collect();
    if let Ok(value) = HeaderValue::from_str(&plain)
        && !plain.is_empty()
    {
        headers.insert(HeaderName::from_static("grpc-message"), value);
    }
    headers
}
