//! Client of a running agent's API. It neither retries nor follows redirects; the caller decides about errors.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use nix::unistd::{AccessFlags, access};
use reqwest::{Method, Response, StatusCode, Url, header};
use serde::{Serialize, de::DeserializeOwned};
use tokio::time::timeout;

use super::{context::Environment, options::ServerArgs};
use driftless_config::{SOCKET_FOLDER, SOCKET_NAME};
use driftless_model::{AppName, Application, root_cause};
use driftless_trust::{CaFileError, ClientConfig, Trust, read_certificates};
use driftless_web::ErrorBody;

/// The agent's address if `--server` and `DRIFTLESS_SERVER` are not given, and there is no socket.
const DEFAULT_SERVER: &str = "http://127.0.0.1:8484";

/// The folder in which systemd makes the folder of the socket.
const SYSTEMD_FOLDER: &str = "/run";

/// The address of requests over a socket. Nothing connects to it.
const SOCKET_SERVER: &str = "http://localhost";

/// All applications without their workloads. An agent of an earlier release answers with these.
pub(in crate::cli) const SUMMARIES: &str = "/api/v1/applications?view=summary";

const CONNECT_WITHIN: Duration = Duration::from_secs(5);

/// Longer than the agent's own limit for an answer, so that the agent's error arrives.
const ANSWER_WITHIN: Duration = Duration::from_secs(40);

/// For requests whose work has no limit in the agent, such as the removal of many images. An agent that is gone ends them earlier.
const WORK_WITHIN: Duration = Duration::from_mins(30);

/// A stream sends a comment every 15 s.
const STREAM_SILENCE: Duration = Duration::from_secs(45);

/// The reason of an error about an answer that is late.
const LATE: &str = "it did not answer in time";

/// The code of the answer to a request for a route that the agent does not have.
const NO_SUCH_ROUTE: &str = "noSuchRoute";

/// The code of the answer to a token that was right once.
const TOKEN_EXPIRED: &str = "tokenExpired";

#[derive(Debug)]
pub(super) struct Client {
    requests: reqwest::Client,
    streams: reqwest::Client,
    endless: reqwest::Client,
    server: Url,
    /// Instead of the address of `server`.
    socket: Option<PathBuf>,
    authorization: Option<header::HeaderValue>,
    authorities: Authorities,
}

/// The address of an agent.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Address {
    Url(Url),
    Socket(PathBuf),
}

/// Whether a request changes something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Effect {
    None,
    Change,
}

/// The certificate authorities that an agent's certificate must come from.
#[derive(Clone, Debug)]
pub(super) enum Authorities {
    System,
    /// Those of a file, and no others.
    File(Box<ClientConfig>),
    /// Any certificate is accepted, for questions without secrets to the agent of this machine.
    Unchecked,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("`{0}` is not an agent's address: write it as http://HOST:PORT or unix:///PATH")]
    Address(String),
    #[error("could not read the token from {path}")]
    TokenFile {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("the token in {0} is empty or has characters that an HTTP header cannot contain")]
    Token(PathBuf),
    #[error("could not use the certificate authorities: {0}")]
    CaFile(#[from] CaFileError),
    #[error("could not use the certificate authorities: {0}")]
    Trust(String),
    #[error("could not create a client for {}", bare(.server))]
    Setup {
        server: Url,
        #[source]
        source: reqwest::Error,
    },
    #[error("no agent answers at {server}: {reason}")]
    NoAgent { server: String, reason: String },
    /// The answer to a request that changes something is late, or does not come.
    #[error("the agent at {server} may still do what was asked: {reason}")]
    Unanswered { server: String, reason: String },
    /// An answer that began and has no end.
    #[error("the output of the agent at {server} broke off: {reason}")]
    BrokenStream { server: String, reason: String },
    #[error("the agent at {server} requires a token{}", if *.sent { "; the one that was sent is wrong" } else { "" })]
    Unauthorized { server: String, sent: bool },
    /// An error that the agent returned.
    #[error("{message}")]
    Answer { status: StatusCode, code: String, message: String, help: Option<String> },
    #[error("the server at {server} is not a Driftless agent, or an agent of another version: {reason}")]
    Foreign { server: String, reason: String },
}

impl Error {
    /// Help line: what to do next.
    pub(super) fn help(&self) -> Option<String> {
        match self {
            Self::NoAgent { reason, .. } if reason.contains("certificate") => Some(
                "name a file with the certificate authorities of the agent in --server-ca-file or DRIFTLESS_SERVER_CA_FILE"
                    .to_owned(),
            ),
            Self::NoAgent { .. } => Some(
                "is `driftless run` running? Give another address with --server or DRIFTLESS_SERVER"
                    .to_owned(),
            ),
            Self::Unanswered { .. } => {
                Some("look at the result, as with `driftless status`, before you repeat the command".to_owned())
            }
            Self::BrokenStream { .. } => {
                Some("`driftless status` says whether the agent answers and accepts the token".to_owned())
            }
            Self::Unauthorized { .. } => {
                Some("name a file with the token in --token-file or DRIFTLESS_TOKEN_FILE".to_owned())
            }
            // The API's help names routes; the command line names commands.
            Self::Answer { status: StatusCode::NOT_FOUND, help: Some(help), .. }
                if help.contains("/tokens") =>
            {
                Some("`driftless token list` lists the tokens".to_owned())
            }
            Self::Answer { status: StatusCode::NOT_FOUND, help: Some(help), .. }
                if help.starts_with("did you mean") =>
            {
                Some(help.clone())
            }
            // An agent that is no collector says what to set.
            Self::Answer { status: StatusCode::NOT_FOUND, help: Some(help), .. }
                if help.contains("accept: true") =>
            {
                Some(help.clone())
            }
            Self::Answer { status: StatusCode::NOT_FOUND, help: Some(help), .. }
                if help.contains("/fleet/keys") =>
            {
                Some("`driftless fleet keys` lists the enrolled hosts and the open invites".to_owned())
            }
            Self::Answer { status: StatusCode::NOT_FOUND, help: Some(help), .. }
                if help.contains("/fleet/requests") =>
            {
                Some("`driftless fleet requests` lists the requests".to_owned())
            }
            Self::Answer { status: StatusCode::NOT_FOUND, help: Some(help), .. }
                if help.contains("/fleet/") =>
            {
                Some("`driftless fleet status` lists the hosts".to_owned())
            }
            Self::Answer { status: StatusCode::NOT_FOUND, code, .. } if code == NO_SUCH_ROUTE => Some(format!(
                "the agent is of another release than this program, which is {}: upgrade the older one",
                env!("CARGO_PKG_VERSION")
            )),
            Self::Answer { status: StatusCode::NOT_FOUND, .. } => {
                Some("`driftless status` lists the applications".to_owned())
            }
            Self::Answer { help, .. } => help.clone(),
            Self::Foreign { .. } => {
                Some("check the address, and whether a reverse proxy answers instead".to_owned())
            }
            Self::Address(_)
            | Self::TokenFile { .. }
            | Self::Token(_)
            | Self::CaFile(_)
            | Self::Trust(_)
            | Self::Setup { .. } => None,
        }
    }

    pub(super) fn is_not_found(&self) -> bool {
        matches!(self, Self::Answer { status: StatusCode::NOT_FOUND, .. })
    }

    /// Whether the agent knows no route of this name, because it is of an older release.
    pub(super) fn is_unknown_route(&self) -> bool {
        matches!(self, Self::Answer { code, .. } if code == NO_SUCH_ROUTE)
    }

    pub(super) fn is_forbidden(&self) -> bool {
        matches!(self, Self::Answer { status: StatusCode::FORBIDDEN, .. })
    }

    /// Whether the agent knows the application, and has not looked at it yet.
    pub(super) fn is_starting(&self) -> bool {
        matches!(self, Self::Answer { code, .. } if code == "starting")
    }

    /// Whether the agent may be available again later.
    pub(super) fn is_absence(&self) -> bool {
        match self {
            Self::NoAgent { .. } | Self::Unanswered { .. } | Self::BrokenStream { .. } => true,
            Self::Answer { status, .. } => *status == StatusCode::SERVICE_UNAVAILABLE,
            Self::Address(_)
            | Self::TokenFile { .. }
            | Self::Token(_)
            | Self::CaFile(_)
            | Self::Trust(_)
            | Self::Setup { .. }
            | Self::Unauthorized { .. }
            | Self::Foreign { .. } => false,
        }
    }
}

impl Client {
    /// Arguments override the environment, which overrides the default. An empty one means none.
    pub(super) fn new(args: &ServerArgs, environment: &Environment) -> Result<Self, Error> {
        let given =
            args.server.clone().or_else(|| environment("DRIFTLESS_SERVER")).filter(|it| !it.is_empty());
        let address = given.map_or_else(default_address, |given| parse_address(&given))?;
        let file = |given: &Option<PathBuf>, variable: &str| {
            let file = given.clone().or_else(|| environment(variable).map(PathBuf::from));
            file.filter(|file| !file.as_os_str().is_empty())
        };
        let token_file = file(&args.token_file, "DRIFTLESS_TOKEN_FILE");
        let authorization = token_file.map(read_token).transpose()?;
        let ca_file = file(&args.server_ca_file, "DRIFTLESS_SERVER_CA_FILE");
        let authorities = ca_file.as_deref().map_or(Ok(Authorities::System), read_authorities)?;
        Self::with(address, authorization, authorities)
    }

    /// Asks only questions without secrets, at the address of the agent on this machine. Its certificate has the name by
    /// which other machines know it, so it is not checked.
    pub(super) fn of_this_machine(url: &str) -> Result<Self, Error> {
        Self::with(parse_address(url)?, None, Authorities::Unchecked)
    }

    fn with(
        address: Address,
        authorization: Option<header::HeaderValue>,
        authorities: Authorities,
    ) -> Result<Self, Error> {
        let (server, socket) = match address {
            Address::Url(server) => (server, None),
            Address::Socket(path) => (parse_url(SOCKET_SERVER)?, Some(path)),
        };
        let build = |builder: reqwest::ClientBuilder| {
            let builder = builder
                .connect_timeout(CONNECT_WITHIN)
                .redirect(reqwest::redirect::Policy::none())
                .user_agent(concat!("driftless/", env!("CARGO_PKG_VERSION")))
                .no_proxy();
            let builder = match &socket {
                Some(path) => builder.unix_socket(path.as_path()),
                None => builder,
            };
            authorities
                .apply(builder, &server)
                .build()
                .map_err(|source| Error::Setup { server: server.clone(), source })
        };
        let requests = build(reqwest::Client::builder().timeout(ANSWER_WITHIN))?;
        let streams = build(reqwest::Client::builder().read_timeout(STREAM_SILENCE))?;
        let endless = build(reqwest::Client::builder().tcp_keepalive(STREAM_SILENCE))?;
        Ok(Self { requests, streams, endless, server, socket, authorization, authorities })
    }

    /// The certificate authorities of the agent.
    pub(super) fn authorities(&self) -> &Authorities {
        &self.authorities
    }

    /// Address for messages, without credentials.
    pub(super) fn address(&self) -> String {
        match &self.socket {
            Some(path) => format!("unix://{}", path.display()),
            None => bare(&self.server).to_owned(),
        }
    }

    /// The address over TCP, without credentials. `None`: the agent is reached over a socket.
    pub(super) fn url(&self) -> Option<&str> {
        self.socket.is_none().then(|| bare(&self.server))
    }

    pub(super) async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, Error> {
        let response = self.send(&self.requests, Method::GET, path, &[], None::<&()>).await?;
        self.decode(response, Effect::None).await
    }

    /// The answer of `/healthz` or `/readyz`: whether it is yes, and its text.
    pub(super) async fn probe(&self, path: &str) -> Result<(bool, String), Error> {
        let url = format!("{}{path}", bare(&self.server));
        let request = self.requests.get(url).timeout(CONNECT_WITHIN);
        let response = request.send().await.map_err(|error| self.no_agent(&error))?;
        let status = response.status();
        if !status.is_success() && status != StatusCode::SERVICE_UNAVAILABLE {
            return Err(self.foreign(format!("it answered {status}")));
        }
        let body = response.bytes().await.map_err(|error| self.no_agent(&error))?;
        Ok((status.is_success(), String::from_utf8_lossy(&body).trim().to_owned()))
    }

    pub(super) async fn post<T: DeserializeOwned>(
        &self,
        path: &str,
        body: Option<&impl Serialize>,
    ) -> Result<T, Error> {
        let response = self.send(&self.requests, Method::POST, path, &[], body).await?;
        self.decode(response, Effect::Change).await
    }

    /// A request whose work may take minutes.
    pub(super) async fn post_work<T: DeserializeOwned>(&self, path: &str) -> Result<T, Error> {
        let work = async {
            let response = self.send(&self.endless, Method::POST, path, &[], None::<&()>).await?;
            self.decode(response, Effect::Change).await
        };
        timeout(WORK_WITHIN, work).await.unwrap_or_else(|_| Err(self.unanswered(LATE)))
    }

    /// A request without an answer.
    pub(super) async fn delete(&self, path: &str) -> Result<(), Error> {
        self.send(&self.requests, Method::DELETE, path, &[], None::<&()>).await.map(drop)
    }

    /// A request that removes something and has an answer.
    pub(super) async fn delete_for<T: DeserializeOwned>(&self, path: &str) -> Result<T, Error> {
        let response = self.send(&self.requests, Method::DELETE, path, &[], None::<&()>).await?;
        self.decode(response, Effect::Change).await
    }

    /// A stream of server-sent events.
    pub(super) async fn stream(&self, path: &str) -> Result<Response, Error> {
        let accept = [(header::ACCEPT, "text/event-stream")];
        self.send(&self.streams, Method::GET, path, &accept, None::<&()>).await
    }

    /// An endless answer that may be silent for a long time.
    pub(super) async fn open(&self, path: &str) -> Result<Response, Error> {
        self.send(&self.endless, Method::GET, path, &[], None::<&()>).await
    }

    pub(super) fn broken_stream(&self, error: &reqwest::Error) -> Error {
        Error::BrokenStream { server: self.address(), reason: innermost(error) }
    }

    async fn send(
        &self,
        client: &reqwest::Client,
        method: Method,
        path: &str,
        headers: &[(header::HeaderName, &str)],
        body: Option<&impl Serialize>,
    ) -> Result<Response, Error> {
        let url = format!("{}{path}", bare(&self.server));
        let effect = if method == Method::GET { Effect::None } else { Effect::Change };
        let mut request = client.request(method, url);
        for (name, value) in headers {
            request = request.header(name, *value);
        }
        if let Some(authorization) = &self.authorization {
            request = request.header(header::AUTHORIZATION, authorization.clone());
        }
        if let Some(body) = body {
            let json = serde_json::to_vec(body).expect("requests can be serialised");
            request = request.header(header::CONTENT_TYPE, "application/json").body(json);
        }
        let response = request.send().await.map_err(|error| self.no_answer(&error, effect))?;
        let status = response.status();
        if status.is_success() {
            return Ok(response);
        }
        let body = response.bytes().await.map_err(|error| self.no_answer(&error, effect))?;
        let answer = serde_json::from_slice::<ErrorBody>(&body);
        let is_expired = answer.as_ref().is_ok_and(|answer| answer.error.code == TOKEN_EXPIRED);
        match answer {
            // Also from a proxy that asks for a password of its own.
            _ if status == StatusCode::UNAUTHORIZED && !is_expired => {
                Err(Error::Unauthorized { server: self.address(), sent: self.authorization.is_some() })
            }
            Ok(ErrorBody { error }) => {
                let help = match status {
                    StatusCode::NOT_FOUND => self.similar_application(path).await.or(error.help),
                    _ => error.help,
                };
                Err(Error::Answer { status, code: error.code, message: error.message, help })
            }
            Err(_) => Err(self.foreign_answer(status, effect)),
        }
    }

    /// An error that another server answers. While the agent starts again, a reverse proxy answers for it. With 504, a proxy has
    /// passed the request on, and with 502 it may have.
    fn foreign_answer(&self, status: StatusCode, effect: Effect) -> Error {
        match (status, effect) {
            (StatusCode::GATEWAY_TIMEOUT, Effect::Change) => {
                self.unanswered(&format!("a proxy in front of it did not wait for its answer ({status})"))
            }
            (StatusCode::BAD_GATEWAY, Effect::Change) => {
                self.unanswered(&format!("a proxy in front of it answers {status}"))
            }
            (
                StatusCode::BAD_GATEWAY | StatusCode::SERVICE_UNAVAILABLE | StatusCode::GATEWAY_TIMEOUT,
                Effect::None | Effect::Change,
            ) => {
                let reason = format!("a proxy in front of it answers {status}");
                Error::NoAgent { server: self.address(), reason }
            }
            (status, Effect::None | Effect::Change) => self.foreign(format!("it answered {status}")),
        }
    }

    /// The application that was probably meant by a path, as help.
    async fn similar_application(&self, path: &str) -> Option<String> {
        let given = path.strip_prefix("/api/v1/applications/")?.split(['/', '?']).next()?;
        let mut request = self.requests.get(format!("{}{SUMMARIES}", bare(&self.server)));
        if let Some(authorization) = &self.authorization {
            request = request.header(header::AUTHORIZATION, authorization.clone());
        }
        let body = request.send().await.ok()?.bytes().await.ok()?;
        let applications: Vec<Application> = serde_json::from_slice(&body).ok()?;
        let names = || applications.iter().map(|application| application.name.as_str());
        if names().any(|name| name == given) {
            return None;
        }
        driftless_yaml::closest(given, names()).map(|name| format!("did you mean `{name}`?"))
    }

    async fn decode<T: DeserializeOwned>(&self, response: Response, effect: Effect) -> Result<T, Error> {
        let body = response.bytes().await.map_err(|error| self.no_answer(&error, effect))?;
        serde_json::from_slice(&body).map_err(|error| self.foreign(error.to_string()))
    }

    /// Whether the agent runs on this machine, so that it may name files of this machine.
    pub(super) fn is_local(&self) -> bool {
        match self.server.host_str() {
            _ if self.socket.is_some() => true,
            Some("localhost" | "[::1]") => true,
            Some(host) => host.parse::<std::net::Ipv4Addr>().is_ok_and(|it| it.is_loopback()),
            None => false,
        }
    }

    /// The agent has got the request, and its answer is late.
    fn unanswered(&self, reason: &str) -> Error {
        Error::Unanswered { server: self.address(), reason: reason.to_owned() }
    }

    /// A request whose answer does not come. Once the connection is made, the agent may have got the request.
    fn no_answer(&self, error: &reqwest::Error, effect: Effect) -> Error {
        let may_be_done = effect == Effect::Change && !error.is_connect() && !error.is_builder();
        match may_be_done {
            true if error.is_timeout() => self.unanswered(LATE),
            true => self.unanswered(&innermost(error)),
            false => self.no_agent(error),
        }
    }

    fn no_agent(&self, error: &reqwest::Error) -> Error {
        Error::NoAgent { server: self.address(), reason: innermost(error) }
    }

    pub(super) fn foreign(&self, reason: String) -> Error {
        Error::Foreign { server: self.address(), reason }
    }
}

impl Authorities {
    /// A client for this address that trusts these authorities.
    pub(super) fn apply(&self, builder: reqwest::ClientBuilder, server: &Url) -> reqwest::ClientBuilder {
        match self {
            // Without https no certificates are needed, which a small machine may not have.
            _ if server.scheme() != "https" => builder.tls_certs_only([]),
            Self::System => builder,
            Self::File(trusted) => builder.tls_backend_preconfigured(trusted.as_ref().clone()),
            Self::Unchecked => builder.tls_danger_accept_invalid_certs(true),
        }
    }
}

/// The innermost cause of an error, such as `Connection refused`. Only that is useful.
fn innermost(error: &reqwest::Error) -> String {
    if error.is_timeout() {
        return LATE.to_owned();
    }
    root_cause(error).unwrap_or_else(|| error.to_string())
}

fn read_authorities(path: &Path) -> Result<Authorities, Error> {
    let trusted = Trust::GivenOnly.client_config(read_certificates(path)?);
    trusted.map(|trusted| Authorities::File(Box::new(trusted))).map_err(Error::Trust)
}

/// `/api/v1/applications/NAME` and routes below it. The name is checked first, so that it cannot change the
/// route.
pub(super) fn application_path(app: &str, below: &str) -> Result<String, driftless_model::InvalidName> {
    let app = AppName::parse(app)?;
    Ok(format!("/api/v1/applications/{app}{below}"))
}

/// A query from names and values, with its question mark.
pub(super) fn query(pairs: &[(&str, &str)]) -> String {
    let url = Url::parse_with_params(SOCKET_SERVER, pairs).ok();
    url.as_ref().and_then(Url::query).map_or_else(String::new, |query| format!("?{query}"))
}

/// The socket of this machine, if this user may connect to it, else the port on loopback.
fn default_address() -> Result<Address, Error> {
    let socket = Path::new(SYSTEMD_FOLDER).join(SOCKET_FOLDER).join(SOCKET_NAME);
    if access(&socket, AccessFlags::W_OK).is_ok() {
        return Ok(Address::Socket(socket));
    }
    parse_address(DEFAULT_SERVER)
}

fn parse_address(text: &str) -> Result<Address, Error> {
    match text.strip_prefix("unix://") {
        Some(path) if path.starts_with('/') => Ok(Address::Socket(PathBuf::from(path))),
        Some(_) => Err(Error::Address(text.to_owned())),
        None => parse_url(text).map(Address::Url),
    }
}

fn parse_url(text: &str) -> Result<Url, Error> {
    // `localhost:8484` would be taken for a URL with the scheme `localhost`.
    let text = if text.contains("://") { text.to_owned() } else { format!("http://{text}") };
    let url = Url::parse(&text).map_err(|_| Error::Address(text.clone()))?;
    // Credentials belong in the token file: an address is printed and visible in the process list.
    let plain = matches!(url.scheme(), "http" | "https") && url.has_host() && url.username().is_empty();
    if plain && url.password().is_none() { Ok(url) } else { Err(Error::Address(redacted(url))) }
}

/// The address as users write it, without a trailing slash.
fn bare(url: &Url) -> &str {
    url.as_str().trim_end_matches('/')
}

fn redacted(mut url: Url) -> String {
    if !url.username().is_empty() || url.password().is_some() {
        let _ = url.set_password(None);
        let _ = url.set_username("");
    }
    url.to_string()
}

fn read_token(path: PathBuf) -> Result<header::HeaderValue, Error> {
    let text = fs::read_to_string(&path).map_err(|source| Error::TokenFile { path: path.clone(), source })?;
    let token = text.trim();
    if token.is_empty() {
        return Err(Error::Token(path));
    }
    let mut value =
        header::HeaderValue::try_from(format!("Bearer {token}")).map_err(|_| Error::Token(path))?;
    value.set_sensitive(true);
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn address_is_http_or_a_socket_without_credentials() {
        assert_eq!(parse_url("localhost:8484").unwrap().as_str(), "http://localhost:8484/");
        assert_eq!(parse_url("https://agent.example/").unwrap().as_str(), "https://agent.example/");
        assert_eq!(parse_address("unix:///run/a.sock").unwrap(), Address::Socket("/run/a.sock".into()));
        for wrong in
            ["ftp://agent.example", "http://", "unix://run/a.sock", "http://me:hunter2@agent.example"]
        {
            let error = parse_address(wrong).unwrap_err().to_string();
            assert!(!error.contains("hunter2"), "{error}");
        }
    }

    #[test]
    fn a_name_cannot_change_the_route() {
        assert_eq!(application_path("shop", "/sync").unwrap(), "/api/v1/applications/shop/sync");
        assert!(application_path("../events", "").is_err());
    }
}
