//! HTTP to the engine: one pool of kept connections for bollard and for our own requests, the API's version in
//! every path, and a count of the calls. It knows no endpoint and takes no decision.
//!
//! It mends two faults of bollard 0.21.1: paths without a version, which a newer engine answers in its newest
//! dialect, and `X-Registry-Auth` in the wrong base64 alphabet.

use std::{
    fmt,
    future::Future,
    io,
    path::PathBuf,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU32, AtomicU64, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use bollard::BollardRequest;
use futures_util::{Stream, TryStreamExt};
use http::{HeaderValue, Method, Request, Response, Uri};
use http_body_util::{BodyExt, Either, Full, StreamBody};
use hyper::{
    body::{Bytes, Frame, Incoming},
    rt::{Read, ReadBufCursor, Write},
};
use hyper_util::{
    client::legacy::{
        Client,
        connect::{Connected, Connection},
    },
    rt::{TokioExecutor, TokioIo, TokioTimer},
};
use serde::de::DeserializeOwned;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpStream, UnixStream},
    time::timeout,
};

use crate::call_error::CallError;

/// How long a connection to the engine may take.
const CONNECT: Duration = Duration::from_secs(5);
/// How long an idle connection is kept.
const IDLE: Duration = Duration::from_secs(30);
/// What is read at once. Unbounded it grows with the longest list, and stays with the connection.
const AT_ONCE: usize = 64 << 10;
/// The most idle connections that are kept.
const KEPT: usize = 16;

/// Where the engine listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Address {
    Unix(PathBuf),
    /// `host:port`, without TLS.
    Tcp(String),
}

/// A version of the engine's API, such as 1.41.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ApiVersion {
    pub major: u16,
    pub minor: u16,
}

/// The shared client.
#[derive(Clone)]
pub(crate) struct Transport {
    client: Client<Connector, Body>,
    state: Arc<TransportState>,
    authority: String,
}

/// The body that bollard sends.
type Body =
    Either<Full<Bytes>, StreamBody<Pin<Box<dyn Stream<Item = Result<Frame<Bytes>, io::Error>> + Send>>>>;

#[derive(Default)]
struct TransportState {
    /// The agreed version, major in the upper half; 0 while none is agreed.
    version: AtomicU32,
    calls: AtomicU64,
    writes: AtomicU64,
}

impl Transport {
    pub(crate) fn new(address: Address) -> Self {
        let authority = match &address {
            Address::Unix(_) => "localhost".to_owned(),
            Address::Tcp(authority) => authority.clone(),
        };
        let client = Client::builder(TokioExecutor::new())
            .pool_max_idle_per_host(KEPT)
            .pool_idle_timeout(IDLE)
            .pool_timer(TokioTimer::new())
            .http1_max_buf_size(AT_ONCE)
            .build(Connector { address });
        Self { client, state: Arc::default(), authority }
    }

    /// A bollard client that speaks through this transport. Its own deadline is a day: ours are shorter and fit
    /// the call.
    pub(crate) fn bollard(&self) -> Result<bollard::Docker, bollard::errors::Error> {
        let transport = self.clone();
        bollard::Docker::connect_with_custom_transport(
            move |request: BollardRequest| {
                let transport = transport.clone();
                Box::pin(
                    async move { transport.deliver(request).await.map_err(bollard::errors::Error::from) },
                )
            },
            Some(format!("http://{}", self.authority)),
            24 * 60 * 60,
            bollard::API_DEFAULT_VERSION,
        )
    }

    /// Sends a request of our own. `path` begins with `/` and carries no version.
    pub(crate) async fn send(
        &self,
        method: Method,
        path: &str,
        body: Vec<u8>,
    ) -> Result<Response<Incoming>, CallError> {
        let request = Request::builder()
            .method(method)
            .uri(format!("http://{}{path}", self.authority))
            .header(http::header::CONTENT_TYPE, "application/json")
            .body(Either::Left(Full::new(Bytes::from(body))))
            .map_err(|error| CallError::unreachable(&error))?;
        let response = self.deliver(request).await.map_err(|error| CallError::unreachable(&error))?;
        successful(response).await
    }

    /// Sends a request of our own and reads its JSON answer.
    pub(crate) async fn ask<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: Vec<u8>,
    ) -> Result<T, CallError> {
        let response = self.send(method, path, body).await?;
        let bytes = response.into_body().collect().await.map_err(|error| CallError::unreachable(&error))?;
        serde_json::from_slice(&bytes.to_bytes()).map_err(|error| CallError::unreachable(&error))
    }

    /// Sends a request of our own with a body that is made while it is sent.
    pub(crate) async fn upload(
        &self,
        method: Method,
        path: &str,
        kind: &'static str,
        headers: &[(&'static str, String)],
        body: impl Stream<Item = io::Result<Bytes>> + Send + 'static,
    ) -> Result<Response<Incoming>, CallError> {
        let body: Pin<Box<dyn Stream<Item = _> + Send>> = Box::pin(body.map_ok(Frame::data));
        let mut request = Request::builder()
            .method(method)
            .uri(format!("http://{}{path}", self.authority))
            .header(http::header::CONTENT_TYPE, kind);
        for (name, value) in headers {
            request = request.header(*name, value);
        }
        let request = request
            .body(Either::Right(StreamBody::new(body)))
            .map_err(|error| CallError::unreachable(&error))?;
        let response = self.deliver(request).await.map_err(|error| CallError::unreachable(&error))?;
        successful(response).await
    }

    /// Turns a connection over to another protocol. It belongs to the caller from then on.
    pub(crate) async fn upgrade(
        &self,
        path: &str,
        protocol: &'static str,
        headers: &[(&'static str, &str)],
    ) -> Result<hyper::upgrade::Upgraded, CallError> {
        let mut request = Request::builder()
            .method(Method::POST)
            .uri(format!("http://{}{path}", self.authority))
            .header(http::header::CONNECTION, "Upgrade")
            .header(http::header::UPGRADE, protocol);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Either::Left(Full::default()));
        let request = request.map_err(|error| CallError::unreachable(&error))?;
        let response = self.deliver(request).await.map_err(|error| CallError::unreachable(&error))?;
        if response.status() == http::StatusCode::SWITCHING_PROTOCOLS {
            return hyper::upgrade::on(response).await.map_err(|error| CallError::unreachable(&error));
        }
        let code = response.status().as_u16();
        successful(response).await?;
        Err(CallError::Status { code, message: format!("the engine does not speak {protocol}") })
    }

    /// The agreed version, if one is agreed.
    pub(crate) fn version(&self) -> Option<ApiVersion> {
        match self.state.version.load(Ordering::Acquire) {
            0 => None,
            packed => ApiVersion::unpack(packed),
        }
    }

    /// Agrees on a version, or forgets the one agreed on.
    pub(crate) fn agree(&self, version: Option<ApiVersion>) {
        self.state.version.store(version.map_or(0, ApiVersion::pack), Ordering::Release);
    }

    /// How many calls were made, and how many of them could change something.
    pub(crate) fn counts(&self) -> (u64, u64) {
        (self.state.calls.load(Ordering::Relaxed), self.state.writes.load(Ordering::Relaxed))
    }

    async fn deliver(
        &self,
        mut request: Request<Body>,
    ) -> Result<Response<Incoming>, hyper_util::client::legacy::Error> {
        self.state.calls.fetch_add(1, Ordering::Relaxed);
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            self.state.writes.fetch_add(1, Ordering::Relaxed);
        }
        mend_auth(&mut request);
        if let Some(uri) = self.version().and_then(|it| versioned(request.uri(), it)) {
            *request.uri_mut() = uri;
        }
        self.client.request(request).await
    }
}

impl fmt::Debug for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Transport").field("authority", &self.authority).finish_non_exhaustive()
    }
}

impl Address {
    /// Reads `unix:///path` or `tcp://host:port`.
    pub(crate) fn parse(host: &str) -> Result<Self, String> {
        if let Some(path) = host.strip_prefix("unix://") {
            if path.starts_with('/') {
                return Ok(Self::Unix(PathBuf::from(path)));
            }
            return Err(format!("`{host}` names no absolute path"));
        }
        match host.strip_prefix("tcp://").map(|it| it.trim_end_matches('/')) {
            Some(authority) if authority.parse::<http::uri::Authority>().is_ok() => {
                Ok(Self::Tcp(authority.to_owned()))
            }
            Some(_) => Err(format!("`{host}` names no host and port")),
            None => Err(format!("`{host}` is neither `unix:///…` nor `tcp://…`")),
        }
    }
}

impl ApiVersion {
    pub const fn new(major: u16, minor: u16) -> Self {
        Self { major, minor }
    }

    /// Reads `1.41`.
    pub fn parse(text: &str) -> Option<Self> {
        let (major, minor) = text.split_once('.')?;
        Some(Self { major: major.parse().ok()?, minor: minor.parse().ok()? })
    }

    fn pack(self) -> u32 {
        (u32::from(self.major) << 16) | u32::from(self.minor)
    }

    fn unpack(packed: u32) -> Option<Self> {
        Some(Self { major: u16::try_from(packed >> 16).ok()?, minor: u16::try_from(packed & 0xffff).ok()? })
    }
}

impl fmt::Display for ApiVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

/// An answer that is no success is an error, in the words of its body.
async fn successful(response: Response<Incoming>) -> Result<Response<Incoming>, CallError> {
    let status = response.status();
    if status.is_success() {
        return Ok(response);
    }
    let bytes = response.into_body().collect().await.map_err(|error| CallError::unreachable(&error))?;
    Err(CallError::status(status.as_u16(), &bytes.to_bytes()))
}

/// The same address with the version in front of its path, unless there is one already.
fn versioned(uri: &Uri, version: ApiVersion) -> Option<Uri> {
    let path = uri.path_and_query()?.as_str();
    if path.starts_with("/v1.") {
        return None;
    }
    let mut parts = uri.clone().into_parts();
    parts.path_and_query = Some(format!("/v{version}{path}").parse().ok()?);
    Uri::from_parts(parts).ok()
}

/// The engine decodes the URL-safe alphabet alone.
fn mend_auth(request: &mut Request<Body>) {
    for name in ["x-registry-auth", "x-registry-config"] {
        let Some(value) = request.headers().get(name).and_then(|it| it.to_str().ok()) else { continue };
        let mended = value.replace('+', "-").replace('/', "_");
        if let Ok(mended) = HeaderValue::from_str(&mended) {
            request.headers_mut().insert(name, mended);
        }
    }
}

/// Opens connections for the pool.
#[derive(Clone, Debug)]
struct Connector {
    address: Address,
}

impl tower_service::Service<Uri> for Connector {
    type Response = Socket;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Socket>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        let address = self.address.clone();
        Box::pin(async move {
            let opening = async {
                let stream: Box<dyn Duplex> = match &address {
                    Address::Unix(path) => Box::new(UnixStream::connect(path).await?),
                    Address::Tcp(authority) => Box::new(TcpStream::connect(authority.as_str()).await?),
                };
                Ok(Socket(TokioIo::new(stream)))
            };
            timeout(CONNECT, opening).await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
        })
    }
}

/// A byte stream of either kind.
trait Duplex: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Duplex for T {}

/// One open connection.
struct Socket(TokioIo<Box<dyn Duplex>>);

impl Connection for Socket {
    fn connected(&self) -> Connected {
        Connected::new()
    }
}

impl Read for Socket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buf)
    }
}

impl Write for Socket {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_unix_paths_or_hosts_with_ports() {
        assert_eq!(Address::parse("unix:///run/d.sock"), Ok(Address::Unix("/run/d.sock".into())));
        assert_eq!(Address::parse("tcp://10.0.0.1:2375/"), Ok(Address::Tcp("10.0.0.1:2375".into())));
        for wrong in ["unix://", "unix://d.sock", "/run/d.sock", "tcp://", "ssh://host", "tcp://a b"] {
            assert!(Address::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn every_path_carries_the_agreed_version_once() {
        let version = ApiVersion::new(1, 41);
        let uri: Uri = "http://localhost/containers/json?all=1".parse().unwrap();
        let with = versioned(&uri, version).unwrap();
        assert_eq!(with.to_string(), "http://localhost/v1.41/containers/json?all=1");
        assert_eq!(versioned(&with, version), None);
    }

    #[test]
    fn credentials_travel_in_the_url_safe_alphabet() {
        let mut request = Request::new(Either::Left(Full::default()));
        request.headers_mut().insert("x-registry-auth", HeaderValue::from_static("a+b/c="));
        mend_auth(&mut request);
        assert_eq!(request.headers()["x-registry-auth"], "a-b_c=");
    }
}
