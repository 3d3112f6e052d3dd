//! The platforms that the engine can run, with those that an emulator on its host runs. The engine's `BuildKit` finds them
//! out by trying; nothing else of the API tells.

use std::collections::BTreeSet;

use http::{Request, header};
use http_body_util::Full;
use hyper_util::rt::TokioExecutor;
use tokio_util::task::AbortOnDropHandle;

use crate::{
    call_error::CallError,
    deadline::{ANSWER, within},
    image_build::{
        grpc::{Incoming, framed},
        protobuf::{Value, fields},
    },
    transport::Transport,
};
use driftless_model::Platform;

const LIST_WORKERS: &str = "/moby.buildkit.v1.Control/ListWorkers";

/// The platforms of all workers. `None`: the engine has no `BuildKit`, as Podman, or does not let the agent ask.
pub(crate) async fn runnable(transport: &Transport) -> Option<BTreeSet<Platform>> {
    within(ANSWER, ask(transport))
        .await
        .inspect_err(
            |error| tracing::debug!(%error, "could not ask the engine for the platforms that it runs"),
        )
        .ok()
}

async fn ask(transport: &Transport) -> Result<BTreeSet<Platform>, CallError> {
    let unreachable = |error: hyper::Error| CallError::unreachable(&error);
    let connection = transport.upgrade("/grpc", "h2c", &[]).await?;
    let client = hyper::client::conn::http2::handshake(TokioExecutor::new(), connection);
    let (mut sender, connection) = client.await.map_err(unreachable)?;
    let connection = tokio::spawn(async move {
        if let Err(error) = connection.await {
            tracing::debug!(%error, "the connection to BuildKit ended with an error");
        }
    });
    let _connection = AbortOnDropHandle::new(connection);
    let empty = framed(&[]).into_data().unwrap_or_default();
    let request = Request::post(format!("http://engine{LIST_WORKERS}"))
        .header(header::CONTENT_TYPE, "application/grpc")
        .header(header::TE, "trailers")
        .body(Full::new(empty))
        .map_err(|error| CallError::unreachable(&error))?;
    let response = sender.send_request(request).await.map_err(unreachable)?;
    let answer = Incoming::new(response.into_body()).next().await.map_err(CallError::Unreachable)?;
    let found = platforms(&answer.unwrap_or_default());
    if found.is_empty() {
        return Err(CallError::Unreachable("BuildKit names no platform".to_owned()));
    }
    Ok(found)
}

/// The platforms in an answer: field 3 of each worker, which is field 1, with architecture, system and variant.
fn platforms(message: &[u8]) -> BTreeSet<Platform> {
    let messages = |bytes: &[u8], wanted: u64| -> Vec<Vec<u8>> {
        let found = fields(bytes).filter_map(|(field, value)| match value {
            Value::Bytes(bytes) if field == wanted => Some(bytes.to_vec()),
            Value::Bytes(_) | Value::Number(_) => None,
        });
        found.collect()
    };
    let of_worker = |worker: Vec<u8>| messages(&worker, 3);
    let platform = |platform: Vec<u8>| {
        let part =
            |field| messages(&platform, field).pop().map(|it| String::from_utf8_lossy(&it).into_owned());
        let parts: Vec<String> = [part(2), part(1), part(3)].into_iter().flatten().collect();
        Platform::parse(&parts.join("/"))
    };
    messages(message, 1).into_iter().flat_map(of_worker).map(platform).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image_build::protobuf::Writer;

    #[test]
    fn platforms_of_all_workers_are_read() {
        let platform = |architecture: &[u8], variant: &[u8]| {
            Writer::default().bytes(1, architecture).bytes(2, b"linux").bytes(3, variant).finish()
        };
        let worker = |all: &[Vec<u8>]| {
            all.iter().fold(Writer::default().bytes(1, b"id"), |it, one| it.message(3, one)).finish()
        };
        let one = worker(&[platform(b"amd64", b""), platform(b"arm", b"v7")]);
        let message =
            Writer::default().message(1, &one).message(1, &worker(&[platform(b"arm64", b"")])).finish();
        let found: Vec<String> = platforms(&message).iter().map(ToString::to_string).collect();
        assert_eq!(found, ["linux/amd64", "linux/arm/v7", "linux/arm64"]);
        assert!(platforms(b"\x0a\xff").is_empty());
    }
}
