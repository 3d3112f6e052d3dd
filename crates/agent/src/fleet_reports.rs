//! Reports the state of this host to collectors: the whole state on each change, and a heartbeat. One task per collector,
//! so that one that is down delays no other. Nothing queues: the next report repairs every interruption. No round waits
//! for a collector.

use std::{
    fs::File,
    io::{Read as _, Write as _},
    path::Path,
    time::Duration,
};

use flate2::{Compression, write::GzEncoder};
use http::{StatusCode, header};
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use driftless_clock::Clock;
use driftless_config::FleetReports;
use driftless_fleet::{ApplicationReport, HostReport, RepositoryReport, SCHEMA, TargetStatus};
use driftless_git::{Lookup, read_secret};
use driftless_model::{AgentId, HostIdentity, digest_hex, root_cause};

use crate::{Handle, error::chain, fleet_targets::FleetTargets};

/// Changes within this time are one report.
const TOGETHER: Duration = Duration::from_secs(1);

/// The time to connect.
const CONNECT_WITHIN: Duration = Duration::from_secs(5);

/// The time for the whole answer.
const ANSWER_WITHIN: Duration = Duration::from_secs(20);

/// The largest answer that is read, in bytes.
const LARGEST_ANSWER: usize = 16 * 1024;

/// The longest message of a collector, in characters.
const LONGEST_MESSAGE: usize = 300;

/// The largest file of certificate authorities that is read, in bytes.
const LARGEST_CA_FILE: u64 = 1 << 20;

/// The subject of the problem that a collector takes no reports.
const SUBJECT: &str = "report";

/// The header with the id of the machine, in a heartbeat.
pub const INSTANCE_HEADER: &str = "driftless-instance";

/// The parts of the reports that do not change while the agent runs.
#[derive(Clone)]
pub struct ReportSource {
    /// The published state.
    pub handle: Handle,
    /// The name and labels of the host.
    pub host: HostIdentity,
    /// The id of the machine.
    pub instance: AgentId,
    /// For the token.
    pub environment: Lookup,
    /// For the times in the status.
    pub clock: Clock,
}

impl ReportSource {
    /// The state at this moment.
    fn report(&self, every: Duration) -> HostReport {
        let applications = self.handle.applications();
        let repositories = self.handle.repositories();
        let repositories = repositories.iter().map(|repository| RepositoryReport {
            name: repository.name.clone(),
            commit: repository.commit.as_ref().map(|commit| commit.id.clone()),
            applications: repository.applications,
            fetched_at: repository.fetched_at,
            message: repository.message.clone(),
        });
        let applications = applications.values().map(|application| ApplicationReport {
            name: application.name.clone(),
            repository: application.spec.repository.clone(),
            sync: application.status.sync,
            health: application.status.health,
            revision: application.status.revision,
            commit: application.status.commit.as_ref().map(|commit| commit.id.clone()),
            message: application.status.message.clone(),
            drift: application.status.drift.len(),
        });
        let report = HostReport {
            schema: SCHEMA,
            host: self.host.name.clone(),
            labels: self.host.labels.clone(),
            instance: self.instance.to_string(),
            agent_version: env!("CARGO_PKG_VERSION").to_owned(),
            every: every.as_secs().max(1),
            repositories: repositories.collect(),
            applications: applications.collect(),
        };
        report.within_limits()
    }
}

/// Starts one task for each collector of the settings.
pub fn start_fleet_reports(
    settings: &FleetReports,
    source: &ReportSource,
    stop: &CancellationToken,
    tasks: &TaskTracker,
) -> FleetTargets {
    let targets = FleetTargets::new(settings);
    for collector in settings.exposed() {
        tracing::warn!(collector, "the token crosses the network in clear; use https");
    }
    for (index, to) in settings.to.iter().enumerate() {
        if source.host.name.is_empty() {
            let error = "the host has no name: set `host.name` in the configuration".to_owned();
            tracing::warn!(collector = to, error, "could not report to the fleet");
            targets.update(index, |target| target.error = error);
            continue;
        }
        let reporter = FleetReporter {
            to: to.clone(),
            index,
            settings: settings.clone(),
            source: source.clone(),
            targets: targets.clone(),
            client: None,
        };
        tasks.spawn(reporter.run(stop.clone()));
    }
    targets
}

/// Reports to one collector.
struct FleetReporter {
    to: String,
    index: usize,
    settings: FleetReports,
    source: ReportSource,
    targets: FleetTargets,
    /// Kept while the collector answers, so that a connection and the certificates of the system are read once.
    client: Option<reqwest::Client>,
}

/// A report that the collector has.
struct Delivered {
    report: HostReport,
    digest: String,
}

/// Why a collector has no new report.
#[derive(Debug, thiserror::Error)]
enum ReportError {
    #[error("{0}")]
    Token(String),
    #[error("{0}")]
    CaFile(String),
    #[error("could not create a client: {0}")]
    Client(String),
    #[error("could not write the report: {0}")]
    Write(String),
    #[error("no collector answers: {0}")]
    Unreachable(String),
    #[error("it answered {status}: {message}")]
    Refused { status: StatusCode, message: String },
}

impl ReportError {
    /// Whether it stays until somebody does something.
    fn is_lasting(&self) -> bool {
        match self {
            Self::Token(_) | Self::CaFile(_) => true,
            Self::Refused { status, .. } => {
                status.is_client_error() || *status == StatusCode::INSUFFICIENT_STORAGE
            }
            Self::Client(_) | Self::Write(_) | Self::Unreachable(_) => false,
        }
    }
}

/// The answer of a collector to a heartbeat or a report.
enum CollectorAnswer {
    Taken,
    /// The collector does not have the report that the heartbeat names.
    Needed,
}

impl FleetReporter {
    async fn run(mut self, stop: CancellationToken) {
        let mut delivered = None;
        let mut handle = self.source.handle.clone();
        loop {
            let report = self.source.report(self.settings.every);
            let sent = tokio::select! {
                () = stop.cancelled() => return,
                sent = self.send(&report, delivered.as_ref()) => sent,
            };
            delivered = self.note(sent.map(|digest| Delivered { report, digest }));
            let heartbeat = Instant::now() + self.settings.every;
            loop {
                tokio::select! {
                    () = stop.cancelled() => return,
                    () = sleep_until(heartbeat) => break,
                    is_published = handle.published() => if !is_published { return },
                }
                // After a failure only the time counts, so that a collector that is down costs little.
                let has_news = delivered.as_ref().is_some_and(|delivered| {
                    let report = self.source.report(self.settings.every);
                    report.without_times() != delivered.report.without_times()
                });
                if has_news {
                    tokio::select! {
                        () = stop.cancelled() => return,
                        () = sleep(TOGETHER) => {}
                    }
                    break;
                }
            }
        }
    }

    /// Publishes the result, and logs it if it is another one than before.
    fn note(&mut self, sent: Result<Delivered, ReportError>) -> Option<Delivered> {
        let before = self.targets.list().get(self.index).cloned().unwrap_or_default();
        let blocked = sent.as_ref().err().is_some_and(ReportError::is_lasting);
        let noted = self.note_result(sent, &before);
        self.targets.update(self.index, |target| target.blocked = blocked);
        self.source.handle.problems().set(SUBJECT, self.targets.blocked());
        noted
    }

    fn note_result(
        &mut self,
        sent: Result<Delivered, ReportError>,
        before: &TargetStatus,
    ) -> Option<Delivered> {
        match sent {
            Ok(delivered) => {
                if before.last_sent.is_none() || !before.error.is_empty() {
                    tracing::info!(
                        collector = self.to,
                        host = delivered.report.host,
                        "reporting to the fleet"
                    );
                }
                let now = self.source.clock.now();
                self.targets.update(self.index, |target| {
                    (target.last_sent, target.error) = (Some(now), String::new());
                });
                Some(delivered)
            }
            Err(error) => {
                let error = chain(&error);
                if before.error != error {
                    tracing::warn!(collector = self.to, error, "could not report to the fleet; trying again");
                }
                self.targets.update(self.index, |target| target.error = error);
                self.client = None;
                None
            }
        }
    }

    /// Sends a heartbeat if the collector has this report, and else the report. Returns the digest of the report.
    async fn send(
        &mut self,
        report: &HostReport,
        delivered: Option<&Delivered>,
    ) -> Result<String, ReportError> {
        let json = serde_json::to_vec(report).map_err(|error| ReportError::Write(error.to_string()))?;
        let digest = digest_hex(&json);
        let request = self.request(&report.host)?;
        if delivered.is_some_and(|delivered| delivered.digest == digest) {
            let heartbeat = request
                .header(header::IF_NONE_MATCH, format!("\"{digest}\""))
                .header(INSTANCE_HEADER, &report.instance);
            match answer(heartbeat).await? {
                CollectorAnswer::Taken => return Ok(digest),
                CollectorAnswer::Needed => {}
            }
        }
        let whole = self
            .request(&report.host)?
            .header(header::CONTENT_TYPE, "application/json")
            .header(header::CONTENT_ENCODING, "gzip")
            .body(compress(&json)?);
        answer(whole).await?;
        Ok(digest)
    }

    /// A request to the route of this host. The token is read each time, so that it can be rotated.
    fn request(&mut self, host: &str) -> Result<reqwest::RequestBuilder, ReportError> {
        let client = match &self.client {
            Some(client) => client,
            None => self.client.insert(client_for(&self.to, self.settings.ca_file.as_deref())?),
        };
        let mut request = client.put(format!("{}/api/v1/fleet/hosts/{host}", self.to));
        if let Some(token) = &self.settings.token {
            let token = read_secret(token, &self.source.environment).map_err(ReportError::Token)?;
            request = request.bearer_auth(token.trim());
        }
        Ok(request)
    }
}

/// The certificate authorities of a file.
fn authorities(path: &Path) -> Result<Vec<reqwest::Certificate>, ReportError> {
    let mut text = Vec::new();
    File::open(path)
        .and_then(|file| file.take(LARGEST_CA_FILE).read_to_end(&mut text))
        .map_err(|error| ReportError::CaFile(format!("could not read {}: {error}", path.display())))?;
    match reqwest::Certificate::from_pem_bundle(&text) {
        Ok(certificates) if !certificates.is_empty() => Ok(certificates),
        Ok(_) | Err(_) => {
            Err(ReportError::CaFile(format!("{} has no valid PEM certificate", path.display())))
        }
    }
}

/// A client for a collector that answers. After each failure there is a new one, so a new CA file takes effect.
fn client_for(collector: &str, ca_file: Option<&Path>) -> Result<reqwest::Client, ReportError> {
    let mut builder = reqwest::Client::builder()
        .connect_timeout(CONNECT_WITHIN)
        .timeout(ANSWER_WITHIN)
        .redirect(reqwest::redirect::Policy::none())
        .user_agent(concat!("driftless/", env!("CARGO_PKG_VERSION")));
    // Plain http needs no certificates, and a small machine may have none.
    if collector.starts_with("http://") {
        builder = builder.tls_certs_only([]);
    } else if let Some(path) = ca_file {
        builder = builder.tls_certs_only(authorities(path)?);
    }
    builder.build().map_err(|error| ReportError::Client(error.to_string()))
}

async fn answer(request: reqwest::RequestBuilder) -> Result<CollectorAnswer, ReportError> {
    let unreachable = |error: &reqwest::Error| {
        ReportError::Unreachable(if error.is_timeout() {
            "it did not answer in time".to_owned()
        } else {
            root_cause(error).unwrap_or_else(|| "the connection broke".to_owned())
        })
    };
    let mut response = request.send().await.map_err(|error| unreachable(&error))?;
    let status = response.status();
    let mut body = Vec::new();
    while let Some(part) = response.chunk().await.map_err(|error| unreachable(&error))? {
        body.extend_from_slice(&part[..part.len().min(LARGEST_ANSWER - body.len())]);
        if body.len() == LARGEST_ANSWER {
            break;
        }
    }
    match status {
        StatusCode::NOT_MODIFIED => Ok(CollectorAnswer::Taken),
        status if status.is_success() => Ok(CollectorAnswer::Taken),
        StatusCode::PRECONDITION_REQUIRED => Ok(CollectorAnswer::Needed),
        status => Err(ReportError::Refused { status, message: explanation(&body) }),
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

fn compress(json: &[u8]) -> Result<Vec<u8>, ReportError> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(json).map_err(|error| ReportError::Write(error.to_string()))?;
    encoder.finish().map_err(|error| ReportError::Write(error.to_string()))
}
