//! Sends the report of this host to another agent: the whole report, or a heartbeat that names the last one.

use std::time::Duration;

use http::{Method, StatusCode, header};

use driftless_config::{FleetPlace, Secret};
use driftless_fleet::{
    HostReport, HostSignature, JoinAnswer, JoinRequest, PublicKey, ReportAnswer, SIGNATURE_HEADER,
};
use driftless_git::{Lookup, read_secret};
use driftless_model::{HostRequest, digest_hex, root_cause};
use driftless_trust::{Trust, read_certificates};

use crate::fleet::{
    enrolments::{Enrolments, Unsigned},
    report_error::ReportError,
};

/// The time to connect.
const CONNECT_WITHIN: Duration = Duration::from_secs(5);

/// The time for the whole answer.
const ANSWER_WITHIN: Duration = Duration::from_secs(20);

/// The largest answer to a report that is read, in bytes.
const LARGEST_ANSWER: usize = 16 * 1024;

/// The beginning of the words of TLS about a certificate that is not trusted. The error itself is within one of input and output.
const UNTRUSTED: &str = "invalid peer certificate";

/// The longest message of a collector, in characters.
const LONGEST_MESSAGE: usize = 300;

/// The header with the id of the machine, in heartbeats and reports.
pub const INSTANCE_HEADER: &str = "driftless-instance";

/// Another agent.
pub(crate) struct CollectorClient {
    url: String,
    token: Option<Secret>,
    environment: Lookup,
    client: reqwest::Client,
    enrolments: Enrolments,
}

/// A request to another agent.
struct CollectorMessage<'a> {
    method: Method,
    /// With its query.
    path: &'a str,
    /// The report that a heartbeat names, in quotes. Empty: it is none.
    report: &'a str,
    /// The id of this machine. Empty: it is not sent.
    instance: &'a str,
    /// JSON, compressed. Empty: there is none.
    body: Vec<u8>,
}

/// A request that has an answer.
struct SentMessage {
    response: reqwest::Response,
    /// The signature of the request and the key of the collector, if it was signed.
    signed: Option<(HostSignature, PublicKey)>,
}

/// Sends reports to another agent.
pub(crate) struct CollectorSender {
    client: CollectorClient,
    /// The digest of the report that the collector has. `None` also after requests, whose results it may have missed.
    digest: Option<String>,
}

/// The answer of a collector to a heartbeat or a report.
enum CollectorAnswer {
    /// With the requests in it.
    Taken(Vec<HostRequest>),
    /// The collector does not have the report that the heartbeat names.
    Needed,
}

impl CollectorClient {
    pub(crate) fn new(
        place: &FleetPlace,
        token: Option<Secret>,
        environment: Lookup,
    ) -> Result<Self, ReportError> {
        let mut builder = reqwest::Client::builder()
            .connect_timeout(CONNECT_WITHIN)
            .timeout(ANSWER_WITHIN)
            // Servers and proxies close idle connections after a time that is not known here, also while a heartbeat
            // is on its way.
            .pool_max_idle_per_host(0)
            .redirect(reqwest::redirect::Policy::none())
            .user_agent(concat!("driftless/", env!("CARGO_PKG_VERSION")));
        // Plain http needs no certificates, and a small machine may have none.
        if place.url.starts_with("http://") {
            builder = builder.tls_certs_only([]);
        } else if let Some(path) = place.ca_file.as_deref() {
            let trusted = Trust::GivenOnly.client_config(read_certificates(path)?);
            builder = builder.tls_backend_preconfigured(trusted.map_err(ReportError::Client)?);
        }
        let client = builder.build().map_err(|error| ReportError::Client(error.to_string()))?;
        let enrolments = Enrolments::default();
        Ok(Self { url: place.url.clone(), token, environment, client, enrolments })
    }

    /// Signs the requests to collectors that this agent has joined.
    pub(crate) fn signing(self, enrolments: Enrolments) -> Self {
        Self { enrolments, ..self }
    }

    /// Sends a request: signed to a collector that this agent has joined, and else with the token. The token is read each time, so
    /// that it can be rotated.
    async fn send(&self, message: CollectorMessage<'_>) -> Result<SentMessage, ReportError> {
        let CollectorMessage { method, path, report, instance, body } = message;
        let unsigned = Unsigned { method: &method, path, report, instance, body: &body };
        // Held until there is an answer: the collector takes requests in the order of their counters.
        let turn = self.enrolments.sign(&self.url, &unsigned).await?;
        let mut request = self.client.request(method, format!("{}{path}", self.url));
        match (&turn, &self.token) {
            (Some(turn), _) => request = request.header(SIGNATURE_HEADER, turn.signature.to_string()),
            (None, Some(token)) => {
                let token = read_secret(token, &self.environment).map_err(ReportError::Token)?;
                request = request.bearer_auth(token.trim());
            }
            (None, None) => {}
        }
        if !report.is_empty() {
            request = request.header(header::IF_NONE_MATCH, report);
        }
        if !instance.is_empty() {
            request = request.header(INSTANCE_HEADER, instance);
        }
        if !body.is_empty() {
            request = request
                .header(header::CONTENT_TYPE, "application/json")
                .header(header::CONTENT_ENCODING, "gzip")
                .body(body);
        }
        let response = request.send().await.map_err(|error| unreachable(&error))?;
        if response.status() == StatusCode::UNAUTHORIZED && self.token.is_none() && turn.is_none() {
            return Err(ReportError::NotJoined { url: self.url.clone() });
        }
        let signed = turn.map(|turn| (turn.signature, turn.collector));
        Ok(SentMessage { response, signed })
    }

    /// Asks the collector to accept the key of this host.
    pub(crate) async fn join(&self, request: &JoinRequest) -> Result<JoinAnswer, ReportError> {
        let json = serde_json::to_vec(request).map_err(|error| ReportError::Write(error.to_string()))?;
        let request = self.client.post(format!("{}/api/v1/fleet/join", self.url));
        let request = request.header(header::CONTENT_TYPE, "application/json").body(json);
        let response = request.send().await.map_err(|error| unreachable(&error))?;
        let (status, body) = read_answer(response).await?;
        if !status.is_success() {
            return Err(ReportError::Refused { status, message: explanation(&body) });
        }
        serde_json::from_slice(&body).map_err(|error| ReportError::Foreign(error.to_string()))
    }

    /// Asks the collector to remove the key of this host.
    pub(crate) async fn leave(&self, host: &str, instance: &str) -> Result<(), ReportError> {
        let path = format!("/api/v1/fleet/keys/{host}");
        let (method, body) = (Method::DELETE, Vec::new());
        let message = CollectorMessage { method, path: &path, report: "", instance, body };
        let (status, body) = read_answer(self.send(message).await?.response).await?;
        if status.is_success() {
            return Ok(());
        }
        Err(ReportError::Refused { status, message: explanation(&body) })
    }

    /// The body of an answer of at most `most` bytes.
    pub(crate) async fn get(&self, path: &str, most: usize) -> Result<CollectorBody, ReportError> {
        let message =
            CollectorMessage { method: Method::GET, path, report: "", instance: "", body: Vec::new() };
        let mut response = self.send(message).await?.response;
        let (status, date) = (response.status(), response.headers().get(header::DATE).cloned());
        let mut body = Vec::new();
        while let Some(part) = response.chunk().await.map_err(|error| unreachable(&error))? {
            if body.len() + part.len() > most {
                return Err(ReportError::Foreign(format!("the answer has more than {} MiB", most >> 20)));
            }
            body.extend_from_slice(&part);
        }
        if !status.is_success() {
            return Err(ReportError::Refused { status, message: explanation(&body) });
        }
        let date = date.and_then(|date| date.to_str().map(str::to_owned).ok());
        Ok(CollectorBody { body, date })
    }
}

/// The answer of a collector.
pub(crate) struct CollectorBody {
    pub(crate) body: Vec<u8>,
    /// The time of the collector, as in the header of HTTP.
    pub(crate) date: Option<String>,
}

impl CollectorSender {
    pub(crate) fn new(client: CollectorClient) -> Self {
        Self { client, digest: None }
    }

    /// Sends a heartbeat if the collector has this report, and else the report. Returns the requests in the answer.
    pub(crate) async fn send(
        &mut self,
        report: &HostReport,
        json: &[u8],
        compressed: Vec<u8>,
    ) -> Result<Vec<HostRequest>, ReportError> {
        let digest = digest_hex(json);
        let path = format!("/api/v1/fleet/hosts/{}", report.host);
        let named = format!("\"{digest}\"");
        let put = |named, body| CollectorMessage {
            method: Method::PUT,
            path: &path,
            report: named,
            instance: &report.instance,
            body,
        };
        if self.digest.take().is_some_and(|delivered| delivered == digest) {
            match answer(self.client.send(put(&named, Vec::new())).await?).await? {
                CollectorAnswer::Taken(requests) => {
                    self.digest = requests.is_empty().then_some(digest);
                    return Ok(requests);
                }
                CollectorAnswer::Needed => {}
            }
        }
        match answer(self.client.send(put("", compressed)).await?).await? {
            CollectorAnswer::Taken(requests) => {
                self.digest = requests.is_empty().then_some(digest);
                Ok(requests)
            }
            CollectorAnswer::Needed => {
                Err(ReportError::Foreign("it asks for a report that it has".to_owned()))
            }
        }
    }
}

fn unreachable(error: &reqwest::Error) -> ReportError {
    if error.is_timeout() {
        return ReportError::Unreachable("it did not answer in time".to_owned());
    }
    match root_cause(error) {
        Some(cause) if cause.starts_with(UNTRUSTED) => refused_certificate(cause),
        Some(cause) => ReportError::Unreachable(cause),
        None => ReportError::Unreachable("the connection broke".to_owned()),
    }
}

/// The error about a certificate. The words about its time have seconds that change, and are left out.
fn refused_certificate(cause: String) -> ReportError {
    let detail = cause.strip_prefix(UNTRUSTED).unwrap_or_default();
    if detail.starts_with(": certificate expired") || detail == ": Expired" {
        ReportError::ExpiredCertificate
    } else if detail.starts_with(": certificate not valid yet") || detail == ": NotValidYet" {
        ReportError::EarlyCertificate
    } else {
        ReportError::Certificate(cause)
    }
}

/// The status and the beginning of the body of an answer.
async fn read_answer(mut response: reqwest::Response) -> Result<(StatusCode, Vec<u8>), ReportError> {
    let mut body = Vec::new();
    while let Some(part) = response.chunk().await.map_err(|error| unreachable(&error))? {
        body.extend_from_slice(&part[..part.len().min(LARGEST_ANSWER - body.len())]);
        if body.len() == LARGEST_ANSWER {
            break;
        }
    }
    Ok((response.status(), body))
}

async fn answer(sent: SentMessage) -> Result<CollectorAnswer, ReportError> {
    let SentMessage { response, signed } = sent;
    let signature = response.headers().get(SIGNATURE_HEADER).cloned();
    let (status, body) = read_answer(response).await?;
    match (status, signed) {
        (StatusCode::OK, Some((report, collector))) => {
            let signature = signature.as_ref().and_then(|text| text.to_str().ok()).unwrap_or_default();
            if !ReportAnswer::is_genuine(&collector, &report, &body, signature) {
                let text = "it has requests that the collector has not signed, which are ignored";
                return Err(ReportError::Foreign(text.to_owned()));
            }
            let answer: ReportAnswer =
                serde_json::from_slice(&body).map_err(|error| ReportError::Foreign(error.to_string()))?;
            Ok(CollectorAnswer::Taken(answer.requests))
        }
        (StatusCode::NOT_MODIFIED, _) => Ok(CollectorAnswer::Taken(Vec::new())),
        (status, _) if status.is_success() => Ok(CollectorAnswer::Taken(Vec::new())),
        (StatusCode::PRECONDITION_REQUIRED, _) => Ok(CollectorAnswer::Needed),
        (status, _) => Err(ReportError::Refused { status, message: explanation(&body) }),
    }
}

/// The message of an error of the API, or the beginning of another answer.
fn explanation(body: &[u8]) -> String {
    let value: serde_json::Value = serde_json::from_slice(body).unwrap_or_default();
    let text = match value["error"]["message"].as_str() {
        Some(message) => message.to_owned(),
        None => String::from_utf8_lossy(body).into_owned(),
    };
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let letters = line.chars().filter(|letter| !driftless_model::is_unprintable(*letter));
    let line: String = letters.take(LONGEST_MESSAGE).collect();
    if line.is_empty() { "without a word".to_owned() } else { line }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn advice_about_a_certificate_names_its_cause() {
        let advice = |detail: &str| {
            let error = refused_certificate(format!("{UNTRUSTED}: {detail}"));
            (error.to_string(), error.is_lasting())
        };
        // The words of rustls.
        let expired = |seconds: u64| {
            advice(&format!(
                "certificate expired: verification time {} (UNIX), … ({seconds} seconds ago)",
                5 + seconds
            ))
        };
        let (error, is_lasting) = expired(9);
        assert!(is_lasting && error.contains("has expired: renew it"), "{error}");
        assert_eq!(expired(10).0, error, "it is logged once");
        let (error, is_lasting) = advice("certificate not valid yet: verification time 1 (UNIX)");
        assert!(!is_lasting && error.contains("set the clock"), "{error}");
        let (error, is_lasting) = advice("UnknownIssuer");
        assert!(is_lasting && error.contains("`caFile`"), "{error}");
    }
}
