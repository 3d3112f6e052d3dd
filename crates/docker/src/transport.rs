//! HTTP to the engine: one connection pool for bollard and for our own requests, the API version in every path, and a
//! count of the calls.
//!
//! It corrects two faults of bollard 0.21.1: paths without a version, which a newer engine answers in its newest
//! version, and `X-Registry-Auth` in the wrong base64 alphabet.

use std::{
    fmt,
    future::Future,
    io,
    path::{Path, PathBuf},
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU32, AtomicU64, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use bollard::BollardRequest;
use driftless_config::{DockerHost, DockerTls};
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

use crate::{
    api_calls,
    call_error::{CallError, ConnectError},
    tls,
};

/// The deadline for opening a connection.
const CONNECT: Duration = Duration::from_secs(5);
/// The time that an idle connection stays open.
const IDLE: Duration = Duration::from_secs(30);
/// Bytes of the read buffer. Without a limit it grows with the longest list and is kept with the connection.
const READ_BUFFER: usize = 64 << 10;
/// The maximum number of idle connections.
const MAX_IDLE: usize = 16;

/// The ports of an address without one, as the Docker CLI has them.
const PORT: u16 = 2375;
const PORT_WITH_TLS: u16 = 2376;

/// The address that the engine listens on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Address {
    Unix(PathBuf),
    /// `host:port`, without TLS.
    Tcp(String),
    /// `host:port`, with TLS.
    Tls(String, DockerTls),
}

/// A version of the engine's API, such as 1.41.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ApiVersion {
    pub major: u16,
    pub minor: u16,
}

/// The HTTP client of the engine. Clones share its connections and counts.
#[derive(Clone)]
pub(crate) struct Transport {
    client: Client<Connector, RequestBody>,
    /// It keeps no connection, so each request opens one.
    unpooled: Client<Connector, RequestBody>,
    state: Arc<TransportState>,
    authority: String,
    /// The socket of an engine on this machine.
    socket: Option<PathBuf>,
}

/// The body of a request, as bollard sends it.
type RequestBody =
    Either<Full<Bytes>, StreamBody<Pin<Box<dyn Stream<Item = Result<Frame<Bytes>, io::Error>> + Send>>>>;

#[derive(Default)]
struct TransportState {
    /// The agreed version, its major number in the upper half; 0 while there is none.
    version: AtomicU32,
    calls: AtomicU64,
    writes: AtomicU64,
}

impl Transport {
    pub(crate) fn new(address: Address) -> Self {
        let authority = match &address {
            Address::Unix(_) => "localhost".to_owned(),
            Address::Tcp(authority) | Address::Tls(authority, _) => authority.clone(),
        };
        let socket = match &address {
            Address::Unix(path) => Some(path.clone()),
            Address::Tcp(_) | Address::Tls(..) => None,
        };
        let client = Client::builder(TokioExecutor::new())
            .pool_max_idle_per_host(MAX_IDLE)
            .pool_idle_timeout(IDLE)
            .pool_timer(TokioTimer::new())
            .http1_max_buf_size(READ_BUFFER)
            .build(Connector { address: address.clone() });
        let unpooled = Client::builder(TokioExecutor::new())
            .pool_max_idle_per_host(0)
            .http1_max_buf_size(READ_BUFFER)
            .build(Connector { address });
        Self { client, unpooled, state: Arc::default(), authority, socket }
    }

    /// The socket of an engine on this machine.
    pub(crate) fn socket(&self) -> Option<&Path> {
        self.socket.as_deref()
    }

    /// A bollard client that uses this transport. Its own deadline is a day; ours are shorter and fit the call.
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

    /// Sends a request. `path` begins with `/` and has no version. An answer that is no success is an error.
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

    /// Sends a request without a body over a new connection, and reads its answer.
    pub(crate) async fn get_over_new_connection(&self, path: &str) -> Result<(), CallError> {
        let request = Request::builder()
            .uri(format!("http://{}{path}", self.authority))
            .header(http::header::CONNECTION, "close")
            .body(Either::Left(Full::default()))
            .map_err(|error| CallError::unreachable(&error))?;
        let request = self.prepared(request);
        let response =
            self.unpooled.request(request).await.map_err(|error| CallError::unreachable(&error))?;
        let body = successful(response).await?.into_body();
        body.collect().await.map(drop).map_err(|error| CallError::unreachable(&error))
    }

    /// Sends a request and reads its JSON answer.
    pub(crate) async fn send_json<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: Vec<u8>,
    ) -> Result<T, CallError> {
        let response = self.send(method, path, body).await?;
        let bytes = response.into_body().collect().await.map_err(|error| CallError::unreachable(&error))?;
        serde_json::from_slice(&bytes.to_bytes()).map_err(|error| CallError::unreachable(&error))
    }

    /// Sends a request with a body that is produced while it is sent.
    pub(crate) async fn upload(
        &self,
        method: Method,
        path: &str,
        content_type: &'static str,
        headers: &[(&'static str, String)],
        body: impl Stream<Item = io::Result<Bytes>> + Send + 'static,
    ) -> Result<Response<Incoming>, CallError> {
        let body: Pin<Box<dyn Stream<Item = _> + Send>> = Box::pin(body.map_ok(Frame::data));
        let mut request = Request::builder()
            .method(method)
            .uri(format!("http://{}{path}", self.authority))
            .header(http::header::CONTENT_TYPE, content_type);
        for (name, value) in headers {
            request = request.header(*name, value);
        }
        let request = request
            .body(Either::Right(StreamBody::new(body)))
            .map_err(|error| CallError::unreachable(&error))?;
        let response = self.deliver(request).await.map_err(|error| CallError::unreachable(&error))?;
        successful(response).await
    }

    /// Switches a connection to another protocol. It belongs to the caller from then on.
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

    /// The agreed API version; `None` until one is set.
    pub(crate) fn version(&self) -> Option<ApiVersion> {
        match self.state.version.load(Ordering::Acquire) {
            0 => None,
            packed => ApiVersion::unpack(packed),
        }
    }

    /// Sets the API version for all paths, or forgets it.
    pub(crate) fn set_version(&self, version: Option<ApiVersion>) {
        self.state.version.store(version.map_or(0, ApiVersion::pack), Ordering::Release);
    }

    /// The number of calls so far.
    pub(crate) fn calls(&self) -> u64 {
        self.state.calls.load(Ordering::Relaxed)
    }

    /// The number of calls so far that could change something: all but `GET` and `HEAD`.
    pub(crate) fn writes(&self) -> u64 {
        self.state.writes.load(Ordering::Relaxed)
    }

    async fn deliver(
        &self,
        request: Request<RequestBody>,
    ) -> Result<Response<Incoming>, hyper_util::client::legacy::Error> {
        self.client.request(self.prepared(request)).await
    }

    /// Counts a request and writes the version in its path.
    fn prepared(&self, mut request: Request<RequestBody>) -> Request<RequestBody> {
        self.state.calls.fetch_add(1, Ordering::Relaxed);
        debug_assert!(
            api_calls::is_listed(request.method().as_str(), request.uri().path()),
            "{} {} is not in the list of calls (api_calls.rs)",
            request.method(),
            request.uri().path()
        );
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            self.state.writes.fetch_add(1, Ordering::Relaxed);
        }
        fix_auth_encoding(&mut request);
        if let Some(uri) = self.version().and_then(|it| versioned(request.uri(), it)) {
            *request.uri_mut() = uri;
        }
        request
    }
}

impl fmt::Debug for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Transport").field("authority", &self.authority).finish_non_exhaustive()
    }
}

impl Address {
    /// Reads `unix:///path`, `tcp://host` or `tcp://host:port`, and checks the files of TLS.
    pub(crate) fn parse(host: &DockerHost) -> Result<Self, String> {
        let DockerHost { address: host, tls } = host;
        if let Some(path) = host.strip_prefix("unix://") {
            if path.starts_with('/') {
                return Ok(Self::Unix(PathBuf::from(path)));
            }
            return Err(format!("the path in `{host}` is not absolute"));
        }
        let Some(place) = host.strip_prefix("tcp://").map(|it| it.trim_end_matches('/')) else {
            return Err(format!("`{host}` is neither `unix:///…` nor `tcp://…`"));
        };
        let port = if tls.is_some() { PORT_WITH_TLS } else { PORT };
        let authority =
            with_port(place, port).ok_or_else(|| format!("`{host}` has no valid host and port"))?;
        let Some(tls) = tls else { return Ok(Self::Tcp(authority)) };
        tls::configuration(tls).map_err(|error| error.to_string())?;
        Ok(Self::Tls(authority, tls.clone()))
    }

    async fn open(&self) -> Result<Socket, ConnectError> {
        let stream: Box<dyn Duplex> = match self {
            Self::Unix(path) => match UnixStream::connect(path).await {
                Ok(stream) => Box::new(stream),
                Err(error) => return Err(ConnectError::of_socket(&path.to_string_lossy(), &error)),
            },
            Self::Tcp(authority) => Box::new(connect(authority).await?),
            Self::Tls(authority, files) => {
                let encrypted = tls::encrypt(connect(authority).await?, authority, files).await;
                let failed = |error| ConnectError::Tls { address: authority.clone(), error };
                Box::new(encrypted.map_err(failed)?)
            }
        };
        Ok(Socket(TokioIo::new(stream)))
    }

    fn timed_out(&self) -> ConnectError {
        let address = match self {
            Self::Unix(path) => path.to_string_lossy().into_owned(),
            Self::Tcp(authority) | Self::Tls(authority, _) => authority.clone(),
        };
        ConnectError::Other { address, error: format!("no answer within {} s", CONNECT.as_secs()) }
    }
}

/// `host:port`, with this port if the text has none.
fn with_port(text: &str, port: u16) -> Option<String> {
    let authority: http::uri::Authority = text.parse().ok()?;
    if authority.port_u16().is_some() {
        return Some(text.to_owned());
    }
    // Anything else after the host is a mistake.
    (authority.host() == text).then(|| format!("{text}:{port}"))
}

async fn connect(authority: &str) -> Result<TcpStream, ConnectError> {
    let failed =
        |error: io::Error| ConnectError::Other { address: authority.to_owned(), error: error.to_string() };
    TcpStream::connect(authority).await.map_err(failed)
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

/// Turns an answer that is no success into an error with the message of its body.
async fn successful(response: Response<Incoming>) -> Result<Response<Incoming>, CallError> {
    let status = response.status();
    if status.is_success() {
        return Ok(response);
    }
    let bytes = response.into_body().collect().await.map_err(|error| CallError::unreachable(&error))?;
    Err(CallError::status(status.as_u16(), &bytes.to_bytes()))
}

/// The same URI with the version in front of its path; `None` if it has one already.
fn versioned(uri: &Uri, version: ApiVersion) -> Option<Uri> {
    let path = uri.path_and_query()?.as_str();
    if path.starts_with("/v1.") {
        return None;
    }
    let mut parts = uri.clone().into_parts();
    parts.path_and_query = Some(format!("/v{version}{path}").parse().ok()?);
    Uri::from_parts(parts).ok()
}

/// The engine only decodes the URL-safe alphabet.
fn fix_auth_encoding(request: &mut Request<RequestBody>) {
    for name in ["x-registry-auth", "x-registry-config"] {
        let Some(value) = request.headers().get(name).and_then(|it| it.to_str().ok()) else { continue };
        let fixed = value.replace('+', "-").replace('/', "_");
        if let Ok(fixed) = HeaderValue::from_str(&fixed) {
            request.headers_mut().insert(name, fixed);
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
    type Error = ConnectError;
    type Future = Pin<Box<dyn Future<Output = Result<Socket, ConnectError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), ConnectError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        let address = self.address.clone();
        Box::pin(async move { timeout(CONNECT, address.open()).await.unwrap_or(Err(address.timed_out())) })
    }
}

/// A Unix, TCP or TLS stream.
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
        let parse = |address: &str| Address::parse(&DockerHost::from(address));
        assert_eq!(parse("unix:///run/d.sock"), Ok(Address::Unix("/run/d.sock".into())));
        assert_eq!(parse("tcp://10.0.0.1:2375/"), Ok(Address::Tcp("10.0.0.1:2375".into())));
        assert_eq!(parse("tcp://nas"), Ok(Address::Tcp("nas:2375".into())));
        assert_eq!(parse("tcp://[fe80::7]"), Ok(Address::Tcp("[fe80::7]:2375".into())));
        assert_eq!(with_port("nas", PORT_WITH_TLS).as_deref(), Some("nas:2376"));
        for wrong in ["tcp://nas:", "tcp://nas:docker", "tcp://nas:70000", "tcp://me@nas"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
        for wrong in ["unix://", "unix://d.sock", "/run/d.sock", "tcp://", "ssh://host", "tcp://a b"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn missing_certificate_is_named() {
        let tls = DockerTls { ca: "/nonexistent/ca.pem".into(), client: None };
        let host = DockerHost { address: "tcp://10.0.0.1:2376".into(), tls: Some(tls) };
        let error = Address::parse(&host).unwrap_err();
        assert!(error.contains("/nonexistent/ca.pem"), "{error}");
    }

    #[test]
    fn paths_carry_the_agreed_version_once() {
        let version = ApiVersion::new(1, 41);
        let uri: Uri = "http://localhost/containers/json?all=1".parse().unwrap();
        let with = versioned(&uri, version).unwrap();
        assert_eq!(with.to_string(), "http://localhost/v1.41/containers/json?all=1");
        assert_eq!(versioned(&with, version), None);
    }

    #[test]
    fn credentials_use_the_url_safe_alphabet() {
        let mut request = Request::new(Either::Left(Full::default()));
        request.headers_mut().insert("x-registry-auth", HeaderValue::from_static("a+b/c="));
        fix_auth_encoding(&mut request);
        assert_eq!(request.headers()["x-registry-auth"], "a-b_c=");
    }
}
