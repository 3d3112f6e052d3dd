//! gRPC probes: the unary call `Check` of `grpc.health.v1.Health` in plain HTTP/2, as the kubelet makes it.

use std::net::IpAddr;

use http::{HeaderValue, Method, Request, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper::{body::Bytes, client::conn::http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpStream;
use tokio_util::task::AbortOnDropHandle;

/// The longest answer that is read, in bytes. A health answer has a few.
const MAX_ANSWER: usize = 4096;
/// The length of a message's head: one byte that says whether it is compressed, and the length in four.
const HEAD: usize = 5;
/// The names of `HealthCheckResponse.ServingStatus`.
const STATUSES: [&str; 4] = ["UNKNOWN", "SERVING", "NOT_SERVING", "SERVICE_UNKNOWN"];
/// Status codes of gRPC.
const OK: &str = "0";
const UNIMPLEMENTED: &str = "12";

/// Succeeds if the service is `SERVING`. An empty name asks for the server as a whole.
pub(super) async fn check(address: IpAddr, port: u16, service: &str) -> Result<(), String> {
    let failed = |error: hyper::Error| format!("the gRPC call failed: {error}");
    let stream = TcpStream::connect((address, port))
        .await
        .map_err(|error| format!("could not connect to port {port}: {error}"))?;
    let (mut sender, connection) =
        http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.map_err(failed)?;
    // If the connection ends, the call fails.
    let _connection = AbortOnDropHandle::new(tokio::spawn(connection));
    let response = sender.send_request(request(address, port, service)?).await.map_err(failed)?;
    let (head, body) = response.into_parts();
    if head.status != http::StatusCode::OK {
        return Err(format!("the answer had status {}", head.status.as_u16()));
    }
    let body = Limited::new(body, MAX_ANSWER).collect().await;
    let body = body.map_err(|error| format!("the gRPC call failed: {error}"))?;
    let trailers = body.trailers().cloned().unwrap_or_default();
    // A call that fails at once has its trailers in its head.
    let trailer =
        |name| trailers.get(name).or_else(|| head.headers.get(name)).and_then(|value| value.to_str().ok());
    match trailer("grpc-status") {
        Some(OK) => {}
        Some(UNIMPLEMENTED) => {
            return Err("the server does not have the gRPC health service (grpc.health.v1.Health)".to_owned());
        }
        Some(code) => {
            let message = trailer("grpc-message").unwrap_or_default();
            return Err(format!("the gRPC call ended with status {code}: {message}"));
        }
        None => return Err("the answer was not a gRPC answer".to_owned()),
    }
    match serving_status(&body.to_bytes()) {
        Some(1) => Ok(()),
        Some(status) => {
            let name = usize::try_from(status).ok().and_then(|index| STATUSES.get(index));
            Err(format!("the service said {}", name.map_or_else(|| status.to_string(), ToString::to_string)))
        }
        None => Err("the answer could not be read".to_owned()),
    }
}

fn request(address: IpAddr, port: u16, service: &str) -> Result<Request<Full<Bytes>>, String> {
    let authority = std::net::SocketAddr::new(address, port);
    Request::builder()
        .method(Method::POST)
        .uri(format!("http://{authority}/grpc.health.v1.Health/Check"))
        .header(header::CONTENT_TYPE, HeaderValue::from_static("application/grpc"))
        .header(header::TE, HeaderValue::from_static("trailers"))
        .header(header::USER_AGENT, HeaderValue::from_static("driftless-probe"))
        .body(Full::new(health_request(service)))
        .map_err(|error| format!("the gRPC call could not be made: {error}"))
}

/// `HealthCheckRequest { service }` in the encoding of gRPC.
fn health_request(service: &str) -> Bytes {
    let mut message = Vec::new();
    if !service.is_empty() {
        message.push(0x0a);
        varint(&mut message, service.len());
        message.extend_from_slice(service.as_bytes());
    }
    let mut bytes = vec![0];
    bytes.extend_from_slice(&u32::try_from(message.len()).unwrap_or(u32::MAX).to_be_bytes());
    bytes.extend_from_slice(&message);
    bytes.into()
}

fn varint(out: &mut Vec<u8>, mut number: usize) {
    loop {
        let seven = number.to_le_bytes()[0] & 0x7f;
        number >>= 7;
        if number == 0 {
            return out.push(seven);
        }
        out.push(seven | 0x80);
    }
}

/// Field 1 of a `HealthCheckResponse`. Protocol Buffers leave a field out that is 0.
fn serving_status(body: &[u8]) -> Option<u64> {
    let (head, message) = body.split_at_checked(HEAD)?;
    let length = usize::try_from(u32::from_be_bytes(head.get(1..)?.try_into().ok()?)).ok()?;
    if head.first() != Some(&0) || message.len() != length {
        return None;
    }
    let mut rest = message;
    let mut status = 0;
    while !rest.is_empty() {
        let (key, more) = take_varint(rest)?;
        rest = match (key >> 3, key & 7) {
            (1, 0) => {
                let (value, more) = take_varint(more)?;
                status = value;
                more
            }
            // Fields of later versions.
            (_, 0) => take_varint(more)?.1,
            (_, 1) => more.get(8..)?,
            (_, 2) => {
                let (length, more) = take_varint(more)?;
                more.get(usize::try_from(length).ok()?..)?
            }
            (_, 5) => more.get(4..)?,
            _ => return None,
        };
    }
    Some(status)
}

fn take_varint(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let mut number = 0_u64;
    for (index, byte) in bytes.iter().enumerate().take(10) {
        number |= u64::from(byte & 0x7f).checked_shl(u32::try_from(index).ok()? * 7)?;
        if byte & 0x80 == 0 {
            return Some((number, bytes.get(index + 1..)?));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn health_request_names_the_service() {
        assert_eq!(&health_request("")[..], [0, 0, 0, 0, 0]);
        assert_eq!(&health_request("db")[..], [0, 0, 0, 0, 4, 0x0a, 2, b'd', b'b']);
        let long = "x".repeat(200);
        assert_eq!(health_request(&long)[..8], [0, 0, 0, 0, 203, 0x0a, 0xc8, 0x01]);
    }

    #[test]
    fn serving_status_is_read_among_unknown_fields() {
        let framed = |message: &[u8]| [&[0, 0, 0, 0, u8::try_from(message.len()).unwrap()], message].concat();
        assert_eq!(serving_status(&framed(&[])), Some(0));
        assert_eq!(serving_status(&framed(&[8, 1])), Some(1));
        assert_eq!(serving_status(&framed(&[8, 2])), Some(2));
        assert_eq!(serving_status(&framed(&[0x12, 2, 9, 9, 0x1d, 1, 2, 3, 4, 8, 1])), Some(1));
        for broken in [&[8][..], &[8, 0x80], &[0x12, 9, 1], &[0xff; 12], &[0x0b]] {
            assert_eq!(serving_status(&framed(broken)), None, "{broken:?}");
        }
        assert_eq!(serving_status(&[0, 0, 0, 0, 2, 8]), None);
        assert_eq!(serving_status(&[1, 0, 0, 0, 2, 8, 1]), None);
        assert_eq!(serving_status(&[]), None);
    }
}
