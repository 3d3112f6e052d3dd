//! One attempt of one probe, within its timeout: success, the reason of the failure, or no result.

use std::{net::IpAddr, sync::OnceLock, time::Duration};

use reqwest::{Client, Url, header, redirect};
use tokio::{net::TcpStream, time::timeout};

use super::{
    container::{Exec, ExecError, ProbedContainer},
    grpc,
};
use driftless_model::{Probe, ProbeAction, root_cause};

/// The largest part of an answer that is read, in bytes, as by the kubelet.
const MAX_BODY: usize = 10 * 1024;

/// Maximum number of redirects, as for the kubelet.
const MAX_REDIRECTS: usize = 10;

/// The time that the engine has to show that it answers, after a command that took too long.
const ENGINE_ANSWER: Duration = Duration::from_secs(5);

/// Why an attempt was no success.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum AttemptError {
    /// The container failed it: why.
    Failed(String),
    /// The engine did not answer, which says nothing about the container.
    Unanswered,
}

/// One client for all HTTP probes, made by the first one.
#[derive(Default)]
pub(super) struct HttpClient(OnceLock<Result<Client, String>>);

/// The request of an HTTP probe.
struct HttpRequest<'a> {
    path: &'a str,
    port: u16,
    https: bool,
    host: Option<&'a str>,
    headers: &'a [(String, String)],
}

/// Makes one attempt within the timeout of the probe.
pub(super) async fn attempt(
    http: &HttpClient,
    exec: &dyn Exec,
    target: &ProbedContainer,
    probe: &Probe,
) -> Result<(), AttemptError> {
    let Ok(tried) = timeout(probe.timeout, perform(http, exec, target, probe)).await else {
        // A command in a container goes through the engine, which may hang instead.
        let is_command = matches!(probe.action, ProbeAction::Exec { .. });
        if is_command && !timeout(ENGINE_ANSWER, exec.is_answering()).await.unwrap_or_default() {
            return Err(AttemptError::Unanswered);
        }
        return Err(AttemptError::Failed(format!("no answer within {:?}", probe.timeout)));
    };
    tried
}

async fn perform(
    http: &HttpClient,
    exec: &dyn Exec,
    target: &ProbedContainer,
    probe: &Probe,
) -> Result<(), AttemptError> {
    let address = target.address.ok_or("the container has no IP address");
    match &probe.action {
        ProbeAction::HttpGet { path, port, https, host, headers } => {
            let request = HttpRequest { path, port: *port, https: *https, host: host.as_deref(), headers };
            // With a host in the manifest, the container's address is not needed.
            let url = request.url(if host.is_some() { None } else { Some(address?) })?;
            http.get(url, request.headers).await.map_err(AttemptError::Failed)
        }
        ProbeAction::TcpSocket { port, host } => {
            let connected = match host {
                Some(host) => TcpStream::connect((host.as_str(), *port)).await,
                None => TcpStream::connect((address?, *port)).await,
            };
            connected.map_err(|error| format!("could not connect to port {port}: {error}"))?;
            Ok(())
        }
        ProbeAction::Grpc { port, service } => {
            grpc::check(address?, *port, service).await.map_err(AttemptError::Failed)
        }
        ProbeAction::Exec { command } => match exec.exec(&target.container, command, probe.timeout).await {
            Ok(0) => Ok(()),
            Ok(code) => Err(format!("the command ended with code {code}").into()),
            Err(ExecError::Failed(error)) => Err(format!("the command could not be run: {error}").into()),
            Err(ExecError::Unanswered) => Err(AttemptError::Unanswered),
        },
    }
}

impl From<String> for AttemptError {
    fn from(reason: String) -> Self {
        Self::Failed(reason)
    }
}

impl From<&str> for AttemptError {
    fn from(reason: &str) -> Self {
        Self::Failed(reason.to_owned())
    }
}

impl HttpRequest<'_> {
    fn url(&self, address: Option<IpAddr>) -> Result<Url, String> {
        let scheme = if self.https { "https" } else { "http" };
        let host = match (self.host, address) {
            (Some(host), _) if host.parse::<std::net::Ipv6Addr>().is_ok() => format!("[{host}]"),
            (Some(host), _) => host.to_owned(),
            (None, Some(IpAddr::V6(address))) => format!("[{address}]"),
            (None, Some(IpAddr::V4(address))) => address.to_string(),
            (None, None) => return Err("there is no host to connect to".to_owned()),
        };
        let mut url = Url::parse(&format!("{scheme}://{host}:{}/", self.port))
            .map_err(|_| format!("`{host}` is not a host"))?;
        let path = self.path.split('#').next().unwrap_or_default();
        let (path, query) = path.split_once('?').map_or((path, None), |(path, query)| (path, Some(query)));
        url.set_path(path);
        url.set_query(query);
        Ok(url)
    }
}

impl HttpClient {
    async fn get(&self, url: Url, headers: &[(String, String)]) -> Result<(), String> {
        let client = self.0.get_or_init(client).as_ref().map_err(Clone::clone)?;
        let mut request = client.get(url).header(header::CONNECTION, "close");
        for name in [header::USER_AGENT, header::ACCEPT] {
            if !headers.iter().any(|(given, _)| given.eq_ignore_ascii_case(name.as_str())) {
                let value = if name == header::ACCEPT { "*/*" } else { "driftless-probe" };
                request = request.header(name, value);
            }
        }
        for (name, value) in headers {
            request = request.header(name, value);
        }
        let mut response = request.send().await.map_err(|error| innermost(&error))?;
        let status = response.status().as_u16();
        let mut read = 0;
        while read < MAX_BODY {
            match response.chunk().await {
                Ok(Some(chunk)) => read += chunk.len(),
                Ok(None) => break,
                Err(error) => return Err(innermost(&error)),
            }
        }
        if (200..400).contains(&status) { Ok(()) } else { Err(format!("the answer had status {status}")) }
    }
}

fn client() -> Result<Client, String> {
    // A redirect to another host is not followed, and its status below 400 is a success, as for the kubelet.
    let same_host = redirect::Policy::custom(|attempt| {
        let first = attempt.previous().first().and_then(Url::host_str);
        if first != attempt.url().host_str() {
            attempt.stop()
        } else if attempt.previous().len() > MAX_REDIRECTS {
            attempt.error("too many redirects")
        } else {
            attempt.follow()
        }
    });
    Client::builder()
        .redirect(same_host)
        .no_proxy()
        .referer(false)
        .http1_only()
        .pool_max_idle_per_host(0)
        .tls_danger_accept_invalid_certs(true)
        .build()
        .map_err(|error| innermost(&error))
}

/// The innermost cause, such as `connection refused`. The outermost error only repeats the URL.
fn innermost(error: &reqwest::Error) -> String {
    root_cause(error).unwrap_or_else(|| "the request failed".to_owned())
}
