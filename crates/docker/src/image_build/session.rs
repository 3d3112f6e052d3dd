//! The connection on which `BuildKit` asks for what a build needs: files, secrets, a sign of life. The engine is the
//! client there and speaks gRPC, so there is a small HTTP/2 server at our end. It answers what concerns this one
//! build, and ends when it is dropped.

use std::{convert::Infallible, sync::Arc};

use futures_util::stream::poll_fn;
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, StatusCode};
use http_body_util::{BodyExt, StreamBody, combinators::UnsyncBoxBody};
use hyper::body::{Bytes, Frame};
use hyper_util::rt::TokioExecutor;
use tokio::{sync::mpsc, time::timeout};
use tokio_util::task::AbortOnDropHandle;

use super::{
    BuildJob,
    file_sync::{self, Folder},
    protobuf::{Value, Writer, fields},
};
use crate::{call_error::CallError, engine::DEADLINE, registry_logins::Login, transport::Transport};
use driftless_model::digest_hex;

const HEALTH: &str = "/grpc.health.v1.Health/Check";
const FILES: &str = "/moby.filesync.v1.FileSync/DiffCopy";
const SECRET: &str = "/moby.buildkit.secrets.v1.Secrets/GetSecret";
const CREDENTIALS: &str = "/moby.filesync.v1.Auth/Credentials";

/// gRPC's own numbers for how a call ended.
const DONE: u8 = 0;
const NOT_FOUND: u8 = 5;
const UNIMPLEMENTED: u8 = 12;
const INTERNAL: u8 = 13;

/// No message that we are sent is larger.
const LARGEST: usize = 16 << 20;

/// What comes before each message: whether it is compressed, and its length.
const HEAD: usize = 5;

/// How many answers may wait to be sent.
const AHEAD: usize = 16;

type Body = UnsyncBoxBody<Bytes, Infallible>;

/// An open session. Dropping it ends it.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) id: String,
    _serving: AbortOnDropHandle<()>,
}

impl Session {
    /// `None`: the engine knows no sessions, and so has no `BuildKit`.
    pub(crate) async fn open(transport: &Transport, job: &Arc<BuildJob>) -> Result<Option<Self>, CallError> {
        let id = id_of(job);
        let key = &job.build.digest;
        let headers: Vec<(&'static str, &str)> = vec![
            ("x-docker-expose-session-uuid", &id),
            ("x-docker-expose-session-name", "driftless"),
            // What was sent under this name before is only sent again where it differs.
            ("x-docker-expose-session-sharedkey", key),
            ("x-docker-expose-session-grpc-method", HEALTH),
            ("x-docker-expose-session-grpc-method", FILES),
            ("x-docker-expose-session-grpc-method", SECRET),
            ("x-docker-expose-session-grpc-method", CREDENTIALS),
        ];
        let opened = timeout(DEADLINE, transport.upgrade("/session", "h2c", &headers)).await;
        let connection = match opened.unwrap_or(Err(CallError::Late(DEADLINE))) {
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
                tracing::debug!(%error, "the session of a build ended");
            }
        });
        Ok(Some(Self { id, _serving: AbortOnDropHandle::new(serving) }))
    }
}

/// Unlike that of any other build of this or another run.
fn id_of(job: &BuildJob) -> String {
    use std::hash::{BuildHasher, RandomState};
    // Each of them is seeded from the operating system's source of randomness.
    let (one, other) = (RandomState::new().hash_one(&job.image), RandomState::new().hash_one(job.time));
    let digest = digest_hex(format!("{} {one} {other}", job.image).as_bytes());
    digest.get(..25).unwrap_or(&digest).to_owned()
}

async fn answer(job: Arc<BuildJob>, request: Request<hyper::body::Incoming>) -> Response<Body> {
    let (head, body) = request.into_parts();
    let mut asked = Incoming { body, buffer: Vec::new() };
    match head.uri.path() {
        // It serves.
        HEALTH => one(&Writer::default().number(1, 1).finish()),
        CREDENTIALS => match asked.next().await {
            Ok(message) => credentials(&job, &message.unwrap_or_default()),
            Err(error) => ended(INTERNAL, &error),
        },
        SECRET => match asked.next().await {
            Ok(Some(message)) => secret(&job, &message),
            Ok(None) => ended(INTERNAL, "the request is empty"),
            Err(error) => ended(INTERNAL, &error),
        },
        FILES => match folder(&head.headers) {
            Some(folder) => files(job, folder, asked),
            None => ended(NOT_FOUND, "there is no such folder"),
        },
        other => ended(UNIMPLEMENTED, &format!("{other} is not answered here")),
    }
}

/// Who we are for a registry; nobody is an empty answer, and then it is asked anonymously.
fn credentials(job: &BuildJob, message: &[u8]) -> Response<Body> {
    match job.registries.for_host(&first_text(message)) {
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

/// What is asked for.
fn first_text(message: &[u8]) -> String {
    let text = fields(message).find_map(|it| match it {
        (1, Value::Bytes(text)) => Some(String::from_utf8_lossy(text).into_owned()),
        _ => None,
    });
    text.unwrap_or_default()
}

fn secret(job: &BuildJob, message: &[u8]) -> Response<Body> {
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

fn files(job: Arc<BuildJob>, folder: Folder, asked: Incoming) -> Response<Body> {
    let (sender, mut receiver) = mpsc::channel(AHEAD);
    let serving = tokio::spawn(async move {
        let trailers = match file_sync::serve(job, folder, asked, &sender).await {
            Ok(()) => status(DONE, ""),
            Err(error) => status(INTERNAL, &error),
        };
        // Whoever asked may have gone.
        let _ = sender.send(Frame::trailers(trailers)).await;
    });
    let serving = AbortOnDropHandle::new(serving);
    let frames = poll_fn(move |cx| {
        // It is aborted with the answer that it makes.
        let _owned = &serving;
        receiver.poll_recv(cx).map(|it| it.map(Ok))
    });
    respond(StreamBody::new(frames).boxed_unsync())
}

/// One message, and all is well.
fn one(message: &[u8]) -> Response<Body> {
    let frames = [framed(message), Frame::trailers(status(DONE, ""))];
    respond(StreamBody::new(futures_util::stream::iter(frames.map(Ok))).boxed_unsync())
}

fn ended(code: u8, message: &str) -> Response<Body> {
    respond(
        StreamBody::new(futures_util::stream::iter([Ok(Frame::trailers(status(code, message)))]))
            .boxed_unsync(),
    )
}

fn respond(body: Body) -> Response<Body> {
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

/// A message as gRPC sends it: not compressed, its length, itself.
pub(crate) fn framed(message: &[u8]) -> Frame<Bytes> {
    let length = u32::try_from(message.len()).unwrap_or(u32::MAX);
    let mut bytes = Vec::with_capacity(message.len() + HEAD);
    bytes.push(0);
    bytes.extend_from_slice(&length.to_be_bytes());
    bytes.extend_from_slice(message);
    Frame::data(Bytes::from(bytes))
}

/// The messages of one call as they come in.
pub(crate) struct Incoming {
    body: hyper::body::Incoming,
    buffer: Vec<u8>,
}

impl Incoming {
    /// `None` at the end.
    pub(crate) async fn next(&mut self) -> Result<Option<Vec<u8>>, String> {
        loop {
            if let Some(message) = cut(&mut self.buffer)? {
                return Ok(Some(message));
            }
            match self.body.frame().await {
                None => return Ok(None),
                Some(Err(error)) => return Err(error.to_string()),
                Some(Ok(frame)) => self.buffer.extend_from_slice(&frame.into_data().unwrap_or_default()),
            }
        }
    }
}

/// The first message, if it is there in full.
fn cut(buffer: &mut Vec<u8>) -> Result<Option<Vec<u8>>, String> {
    let Some((head, rest)) = buffer.split_first_chunk::<HEAD>() else { return Ok(None) };
    let [packed, length @ ..] = *head;
    let length = usize::try_from(u32::from_be_bytes(length)).unwrap_or(usize::MAX);
    if packed != 0 || length > LARGEST {
        return Err("a message is compressed or too long".to_owned());
    }
    if rest.len() < length {
        return Ok(None);
    }
    let rest = buffer.split_off(HEAD + length);
    let mut message = std::mem::replace(buffer, rest);
    message.drain(..HEAD);
    Ok(Some(message))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_cut_from_what_comes_in() {
        let mut buffer = Vec::new();
        let whole: Vec<u8> =
            [&b"abc"[..], b"", b"de"].iter().flat_map(|it| framed(it).into_data().unwrap()).collect();
        let mut found = Vec::new();
        for byte in whole {
            buffer.push(byte);
            found.extend(cut(&mut buffer).unwrap());
        }
        assert_eq!(found, [b"abc".to_vec(), b"".to_vec(), b"de".to_vec()]);
        assert!(cut(&mut vec![1, 0, 0, 0, 0]).is_err());
        assert!(cut(&mut vec![0, 255, 0, 0, 0]).is_err());
    }
}
