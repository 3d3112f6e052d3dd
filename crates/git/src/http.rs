//! Smart HTTP for gix over one shared asynchronous client.
//!
//! Redirects are only followed within the same origin, so that credentials never reach another. A proxy is only used as `proxy` says.

use std::{
    any::Any,
    io::{self, BufRead, Read, Write},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use gix_transport::client::blocking_io::http::{
    self as git_http, GetResponse, PostBodyDataKind, PostResponse,
};
use reqwest::{
    Client, ClientBuilder, Response, StatusCode, Url,
    dns::{Addrs, Name, Resolve, Resolving},
    header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, LOCATION, RETRY_AFTER},
};

use super::{
    credentials::Lookup,
    error::{Cause, Problem, all_causes, invalid, unreadable},
    limits::{Limits, NetworkFailure},
    proxy,
};
use driftless_clock::Clock;
use driftless_config::Proxy;
use driftless_model::{Timestamp, chain_of_causes};
use driftless_trust::{CertificateDer, CertificateFault, Trust};

/// One connection's view of the client.
pub(super) struct Http {
    client: Client,
    limits: Limits,
    clock: Clock,
    redirected: Option<String>,
}

/// Response headers, line by line. Of a POST they are only asked for when first read, after the body was
/// written.
pub(super) enum Headers {
    Ready(io::Cursor<Vec<u8>>),
    Failed(Option<io::Error>),
    Pending(Option<Box<dyn FnOnce() -> io::Result<Vec<u8>>>>),
}

/// A response's body, as it arrives.
pub(super) struct Body {
    response: Slot,
    chunk: io::Cursor<Vec<u8>>,
    limits: Limits,
}

/// The body of a request. It is small: only the lists of wanted and present commits are sent.
pub(super) struct PostBody(Arc<Mutex<Vec<u8>>>);

type Slot = Arc<Mutex<Option<Response>>>;

const MOST_REDIRECTS: usize = 5;
const CONNECT: Duration = Duration::from_secs(10);

/// Lifetime of an idle connection. The next poll then needs no handshake.
const KEEP_IDLE: Duration = Duration::from_mins(5);

/// The longest pause that a server can ask for. A maintenance page may name a day, and the agent would follow nothing for as long.
const LONGEST_RETRY_AFTER: Duration = Duration::from_mins(15);

/// A client for `http://`. It trusts nobody, and so needs no certificates on this machine.
pub(super) fn plain_client(proxy: &Proxy, environment: &Lookup) -> Result<Client, Problem> {
    build(proxy::apply(bounded().tls_certs_only([]), proxy, environment).map_err(invalid)?)
}

/// A client for `https://`, which trusts the authorities of the system and these certificates.
pub(super) fn secure_client(
    certificates: Vec<CertificateDer<'static>>,
    proxy: &Proxy,
    environment: &Lookup,
) -> Result<Client, Problem> {
    let mut builder = proxy::apply(bounded(), proxy, environment).map_err(invalid)?;
    if !certificates.is_empty() {
        let trust = Trust::WithSystem.client_config(certificates).map_err(unreadable)?;
        builder = builder.tls_backend_preconfigured(trust);
    }
    build(builder)
}

impl Http {
    pub(super) fn new(client: Client, limits: Limits, clock: Clock) -> Self {
        Self { client, limits, clock, redirected: None }
    }

    fn follow(&mut self, url: &str, base: &str, headers: &HeaderMap) -> io::Result<Response> {
        let tail = url.strip_prefix(base).unwrap_or_default().to_owned();
        let mut url = Url::parse(url).map_err(io::Error::other)?;
        for _ in 0..=MOST_REDIRECTS {
            let request = self.client.get(url.clone()).headers(headers.clone());
            let limits = &self.limits;
            let response =
                limits.run(async { request.send().await.map_err(|error| broken(limits, &error)) })?;
            if !response.status().is_redirection() {
                return Ok(response);
            }
            let next = response.headers().get(LOCATION).and_then(|it| it.to_str().ok());
            let Some(next) = next.and_then(|it| url.join(it).ok()) else {
                return Err(self
                    .limits
                    .fail(NetworkFailure::Redirect("the server redirects to nowhere".into())));
            };
            if next.origin() != url.origin() {
                // Only the origin is named: the rest may contain a token.
                let to = next.origin().ascii_serialization();
                return Err(self.limits.fail(NetworkFailure::Redirect(format!(
                    "the server redirects to {to}; if that is right, use it in the URL"
                ))));
            }
            let Some(base) = next.as_str().strip_suffix(&tail) else {
                return Err(self.limits.fail(NetworkFailure::Redirect(
                    "the server redirects to a page that is not a repository (a login page?)".into(),
                )));
            };
            self.redirected = Some(base.to_owned());
            url = next;
        }
        Err(self.limits.fail(NetworkFailure::Redirect("the server redirects in circles".into())))
    }
}

impl git_http::Http for Http {
    type Headers = Headers;
    type ResponseBody = Body;
    type PostBody = PostBody;

    fn get(
        &mut self,
        url: &str,
        base_url: &str,
        headers: impl IntoIterator<Item = impl AsRef<str>>,
    ) -> gix::error::Result<GetResponse<Headers, Body>> {
        let slot = Slot::default();
        let done = self
            .follow(url, base_url, &header_map(headers))
            .and_then(|it| accept(&self.limits, &self.clock, it, &slot));
        let headers = match done {
            Ok(lines) => Headers::Ready(io::Cursor::new(lines)),
            Err(error) => Headers::Failed(Some(error)),
        };
        Ok(GetResponse { headers, body: Body::new(slot, self.limits.clone()) })
    }

    fn post(
        &mut self,
        url: &str,
        _base_url: &str,
        headers: impl IntoIterator<Item = impl AsRef<str>>,
        _body: PostBodyDataKind,
    ) -> gix::error::Result<PostResponse<Headers, Body, PostBody>> {
        let slot = Slot::default();
        let written = Arc::new(Mutex::new(Vec::new()));
        let request = self.client.post(url).headers(header_map(headers));
        let send = {
            let (slot, written) = (Arc::clone(&slot), Arc::clone(&written));
            let (limits, clock) = (self.limits.clone(), self.clock);
            move || {
                let body = std::mem::take(&mut *written.lock().unwrap_or_else(PoisonError::into_inner));
                let request = request.body(body);
                let response =
                    limits.run(async { request.send().await.map_err(|error| broken(&limits, &error)) })?;
                accept(&limits, &clock, response, &slot)
            }
        };
        Ok(PostResponse {
            post_body: PostBody(written),
            headers: Headers::Pending(Some(Box::new(send))),
            body: Body::new(slot, self.limits.clone()),
        })
    }

    fn configure(&mut self, _config: &dyn Any) -> gix::error::Result<()> {
        Ok(())
    }

    fn redirected_base_url(&self) -> Option<String> {
        self.redirected.clone()
    }
}

impl Headers {
    fn force(&mut self) -> io::Result<&mut io::Cursor<Vec<u8>>> {
        if let Self::Pending(send) = self {
            *self = match send.take().map(|send| send()) {
                Some(Ok(lines)) => Self::Ready(io::Cursor::new(lines)),
                Some(Err(error)) => Self::Failed(Some(error)),
                None => Self::Failed(None),
            };
        }
        match self {
            Self::Ready(lines) => Ok(lines),
            Self::Failed(error) => {
                Err(error.take().unwrap_or_else(|| io::Error::other("the request failed before")))
            }
            Self::Pending(_) => Err(io::Error::other("the request was not sent")),
        }
    }
}

impl Read for Headers {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.force()?.read(buffer)
    }
}

impl BufRead for Headers {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        self.force()?.fill_buf()
    }

    fn consume(&mut self, amount: usize) {
        if let Self::Ready(lines) = self {
            lines.consume(amount);
        }
    }
}

impl Body {
    fn new(response: Slot, limits: Limits) -> Self {
        Self { response, chunk: io::Cursor::default(), limits }
    }
}

impl BufRead for Body {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        while self.chunk.position() >= self.chunk.get_ref().len() as u64 {
            let mut slot = self.response.lock().unwrap_or_else(PoisonError::into_inner);
            let Some(response) = slot.as_mut() else { break };
            let limits = &self.limits;
            let next =
                limits.run(async { response.chunk().await.map_err(|error| broken(limits, &error)) })?;
            match next {
                Some(bytes) => {
                    self.limits.count(bytes.len())?;
                    self.chunk = io::Cursor::new(bytes.into());
                }
                None => *slot = None,
            }
        }
        self.chunk.fill_buf()
    }

    fn consume(&mut self, amount: usize) {
        self.chunk.consume(amount);
    }
}

impl Read for Body {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.fill_buf()?;
        self.chunk.read(buffer)
    }
}

impl Write for PostBody {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn bounded() -> ClientBuilder {
    Client::builder()
        .redirect(reqwest::redirect::Policy::none())
        .no_proxy()
        .dns_resolver(Arc::new(SystemResolver))
        .connect_timeout(CONNECT)
        .pool_idle_timeout(KEEP_IDLE)
}

fn build(builder: ClientBuilder) -> Result<Client, Problem> {
    builder.build().map_err(|error| invalid(format!("could not set up the HTTP client: {}", chain(&error))))
}

/// Takes a response that is Git's, and turns any other into a failure.
fn accept(limits: &Limits, clock: &Clock, response: Response, slot: &Slot) -> io::Result<Vec<u8>> {
    let status = response.status();
    if !status.is_success() {
        let retry_after = response.headers().get(RETRY_AFTER).and_then(|it| retry_after(it, clock.now()));
        return Err(limits.fail(NetworkFailure::Status { code: status.as_u16(), retry_after }));
    }
    let is_git = response
        .headers()
        .get(CONTENT_TYPE)
        .is_some_and(|it| it.as_bytes().starts_with(b"application/x-git-upload-pack-"));
    if !is_git || status == StatusCode::NO_CONTENT {
        return Err(limits.fail(NetworkFailure::NotGit));
    }
    let mut lines = Vec::new();
    for (name, value) in response.headers() {
        lines.extend_from_slice(name.as_str().as_bytes());
        lines.push(b':');
        lines.extend_from_slice(value.as_bytes());
        lines.push(b'\n');
    }
    *slot.lock().unwrap_or_else(PoisonError::into_inner) = Some(response);
    Ok(lines)
}

/// `Retry-After` (RFC 9110, 10.2.3): seconds, or a date. At most [`LONGEST_RETRY_AFTER`].
fn retry_after(value: &HeaderValue, now: Timestamp) -> Option<Duration> {
    let text = value.to_str().ok()?.trim();
    let asked = if let Ok(seconds) = text.parse() {
        Duration::from_secs(seconds)
    } else {
        let date = jiff::fmt::rfc2822::parse(text).ok()?.timestamp();
        Timestamp(u64::try_from(date.as_millisecond()).ok()?).since(now)
    };
    Some(asked.min(LONGEST_RETRY_AFTER))
}

fn header_map(lines: impl IntoIterator<Item = impl AsRef<str>>) -> HeaderMap {
    let mut map = HeaderMap::new();
    for line in lines {
        let Some((name, value)) = line.as_ref().split_once(':') else { continue };
        let (Ok(name), Ok(mut value)) = (HeaderName::try_from(name), HeaderValue::try_from(value.trim()))
        else {
            continue;
        };
        value.set_sensitive(name == AUTHORIZATION);
        map.insert(name, value);
    }
    map
}

pub(super) fn broken(limits: &Limits, error: &reqwest::Error) -> io::Error {
    if let Some(unknown) = all_causes(error).find_map(|cause| cause.downcast_ref::<UnknownHost>()) {
        let message = unknown.to_string();
        return limits.fail(NetworkFailure::Connection { cause: Cause::UnknownHost, message });
    }
    let text = chain(error);
    limits.fail(match all_causes(error).find_map(CertificateFault::of) {
        Some(fault) => NetworkFailure::Certificate(certificate(fault, &text)),
        None => NetworkFailure::Connection { cause: connection_cause(error), message: text },
    })
}

/// The cause of a connection that could not be made, or broke.
fn connection_cause(error: &reqwest::Error) -> Cause {
    let known = all_causes(error).find_map(|cause| match cause.downcast_ref::<io::Error>()?.kind() {
        io::ErrorKind::ConnectionRefused => Some(Cause::ConnectionRefused),
        io::ErrorKind::TimedOut => Some(Cause::TimedOut),
        _ => None,
    });
    known.unwrap_or(if error.is_timeout() { Cause::TimedOut } else { Cause::Unreachable })
}

/// The fault of a certificate, and the remedy.
fn certificate(fault: CertificateFault, text: &str) -> String {
    let plain = match fault {
        CertificateFault::NotYetValid => {
            "the server's certificate is not valid yet; is this machine's clock right?"
        }
        CertificateFault::Expired => {
            "the server's certificate has expired; it must be renewed on the server, unless this machine's clock is \
             wrong"
        }
        CertificateFault::UnknownIssuer => {
            "the server's certificate is not trusted: it is issued by an authority that this machine does not know; \
             name that one's certificate as `caFile`"
        }
        CertificateFault::OtherName => {
            "the server's certificate is not trusted: it is made out to another name than the URL has"
        }
        CertificateFault::Other => "the server's certificate is not trusted",
    };
    format!("{plain} ({text})")
}

/// Resolves names by the system, with an error of a type of its own.
struct SystemResolver;

/// A name has no address, or the name server does not answer.
#[derive(Debug, thiserror::Error)]
#[error("the name of the server has no address ({0})")]
struct UnknownHost(#[source] io::Error);

impl Resolve for SystemResolver {
    fn resolve(&self, name: Name) -> Resolving {
        Box::pin(async move {
            let found = tokio::net::lookup_host((name.as_str(), 0)).await.map_err(UnknownHost)?;
            let addresses: Addrs = Box::new(found.collect::<Vec<_>>().into_iter());
            Ok(addresses)
        })
    }
}

/// An error with its causes. reqwest's own first line repeats the URL, which the reader already knows.
fn chain(error: &reqwest::Error) -> String {
    chain_of_causes(error).unwrap_or_else(|| "the connection failed".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retry_after_is_seconds_or_a_date() {
        let now = Timestamp::parse("2024-01-01T00:00:00Z").unwrap();
        let read = |text: &'static str| retry_after(&HeaderValue::from_static(text), now);
        assert_eq!(read("120"), Some(Duration::from_mins(2)));
        assert_eq!(read("Mon, 01 Jan 2024 00:01:00 GMT"), Some(Duration::from_mins(1)));
        assert_eq!(read("Sun, 31 Dec 2023 00:00:00 GMT"), Some(Duration::ZERO));
        assert_eq!(read("soon"), None);
        for too_long in ["86400", "18446744073709551615", "Tue, 02 Jan 2024 00:00:00 GMT"] {
            assert_eq!(read(too_long), Some(LONGEST_RETRY_AFTER), "{too_long}");
        }
    }

    #[test]
    fn the_header_with_the_token_does_not_print() {
        let map = header_map(["Authorization: Basic Z2l0Omh1bnRlcjI=", "Accept: x"]);
        assert_eq!(map.len(), 2);
        assert!(!format!("{map:?}").contains("Z2l0"));
    }
}
