//! Reports the state of this host: the whole state on each change, and a heartbeat. One task for each place, so that one that
//! is down delays no other. Nothing queues: the next report repairs every interruption. No round waits for a report.

use std::{io::Write as _, sync::Arc, time::Duration};

use flate2::{Compression, write::GzEncoder};
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use driftless_clock::Clock;
use driftless_config::{FleetPlace, FleetReports, PlaceKind};
use driftless_fleet::{ApplicationReport, HostReport, RepositoryReport, SCHEMA, TargetStatus};
use driftless_git::{Lookup, read_secret};
use driftless_model::{AgentId, HostIdentity, HostRequest};
use driftless_objects::{Objects, SecretSource};

use crate::{
    Handle, OwnReport,
    error::chain,
    fleet::{
        collector_client::{CollectorClient, CollectorSender},
        enrolments::Enrolments,
        host_requests::{HostRequests, RequestSettings},
        report_error::ReportError,
        report_object::ObjectSender,
        targets::FleetTargets,
    },
    lasting_tasks,
};

/// Changes within this time are one report.
const TOGETHER: Duration = Duration::from_secs(1);

/// The subject of the problem that a place takes no reports.
const SUBJECT: &str = "report";

/// The parts of the reports that do not change while the agent runs.
#[derive(Clone)]
pub struct ReportSource {
    /// The published state.
    pub handle: Handle,
    /// The name and labels of the host.
    pub host: HostIdentity,
    /// The id of the machine.
    pub instance: AgentId,
    /// The version of the engine, if it has answered.
    pub engine_version: Arc<dyn Fn() -> Option<String> + Send + Sync>,
    /// The address of the page, if the configuration has one that other machines can open.
    pub page: String,
    /// For the token.
    pub environment: Lookup,
    /// The requests that collectors may make.
    pub requests: RequestSettings,
    /// Whether a user has released everything. The agent starts again when that changes.
    pub is_released: bool,
    /// The collectors that get signed reports.
    pub enrolments: Enrolments,
    /// For the times in the status.
    pub clock: Clock,
}

impl ReportSource {
    /// Makes the report of this host for the agent itself, at any moment.
    pub fn for_itself(&self, every: Duration) -> OwnReport {
        let source = self.clone();
        Arc::new(move || source.report(every))
    }

    /// The state at this moment.
    fn report(&self, every: Duration) -> HostReport {
        let applications = self.handle.applications();
        let repositories = self.handle.repositories();
        let repositories = repositories.iter().map(|repository| RepositoryReport {
            name: repository.name.clone(),
            commit: repository.commit.as_ref().map(|commit| commit.id.clone()),
            commit_time: repository.commit.as_ref().map(|commit| commit.time),
            history_length: repository.history_length,
            reference: repository.reference.clone(),
            applications: repository.applications,
            fetched_at: repository.fetched_at,
            message: repository.message.clone(),
        });
        let applications = applications.values().map(|application| ApplicationReport {
            name: application.name.clone(),
            repository: application.spec.repository.clone(),
            sync: application.status.sync,
            health: application.status.health,
            suspended: Some(application.spec.policy.suspended),
            pinned: Some(application.status.pin.is_some()),
            well: application.is_well(),
            revision: application.status.revision,
            revision_commit: application.status.revision_commit.as_ref().map(|commit| commit.id.clone()),
            commit: application.status.commit.as_ref().map(|commit| commit.id.clone()),
            failed: application.status.failed_commit.clone(),
            images: Some(application.status.digests.running.clone()),
            failed_images: application.status.digests.failed.clone(),
            message: application.status.message.clone(),
            drift: application.status.drift.len(),
        });
        let report = HostReport {
            schema: SCHEMA,
            host: self.host.name.clone(),
            labels: self.host.labels.clone(),
            instance: self.instance.to_string(),
            agent_version: env!("CARGO_PKG_VERSION").to_owned(),
            engine_version: (self.engine_version)().unwrap_or_default(),
            page: self.page.clone(),
            every: every.as_secs().max(1),
            repositories: repositories.collect(),
            applications: applications.collect(),
            released: self.is_released,
            requests: Vec::new(),
            allows: self.requests.allowed.iter().map(|kind| kind.word().to_owned()).collect(),
            problems: self.problems(),
        };
        report.within_limits()
    }

    /// The problems of the agent itself. That a place takes no report is left out: the place that takes this one knows better.
    fn problems(&self) -> Vec<String> {
        let readiness = self.handle.readiness();
        let is_lost = !readiness.state && !readiness.message.is_empty();
        let lost = is_lost.then_some(readiness.message);
        let problems = self.handle.problems().list().into_iter().filter(|problem| problem.subject != SUBJECT);
        let problems = problems.map(|problem| format!("{}: {}", problem.subject, problem.message));
        lost.into_iter().chain(problems).collect()
    }
}

/// Starts one task for each place of the settings.
pub fn start_fleet_reports(
    settings: &FleetReports,
    source: &ReportSource,
    stop: &CancellationToken,
    tasks: &TaskTracker,
) -> FleetTargets {
    let targets = FleetTargets::new(settings);
    for (index, to) in settings.to.iter().enumerate() {
        if source.host.name.is_empty() {
            let error = "the host has no name: set `host.name` in the configuration".to_owned();
            tracing::warn!(to = to.url, error, "could not report to the fleet");
            targets.update(index, |target| target.error = error);
            continue;
        }
        let reporter = FleetReporter {
            to: to.clone(),
            index,
            every: settings.every,
            source: source.clone(),
            targets: targets.clone(),
            sender: None,
        };
        lasting_tasks::start("reports to the fleet", (stop.clone(), tasks), reporter.run(stop.clone()));
    }
    targets
}

/// Reports to one place.
struct FleetReporter {
    to: FleetPlace,
    index: usize,
    every: Duration,
    source: ReportSource,
    targets: FleetTargets,
    /// Kept while the server answers, so that a connection and the certificates of the system are read once.
    sender: Option<Sender>,
}

/// A report that was taken.
struct SentReport {
    /// A warning of the place, or an empty text.
    warning: String,
    /// The requests of the collector.
    requests: Vec<HostRequest>,
}

/// The way to a place.
enum Sender {
    Collector(CollectorSender),
    Objects(ObjectSender),
}

impl FleetReporter {
    async fn run(mut self, stop: CancellationToken) {
        let mut handle = self.source.handle.clone();
        let mut enrolments = self.source.enrolments.changes();
        let mut was_exposed = false;
        loop {
            enrolments.mark_seen();
            // A collector that is joined gets no token, until this host leaves it.
            let is_exposed = self.to.is_exposed() && !self.is_signed();
            if is_exposed && !was_exposed {
                let to = self.to.url.as_str();
                tracing::warn!(to, "the token or password crosses the network in clear; use https");
            }
            was_exposed = is_exposed;
            let report = self.report().await;
            let sent = tokio::select! {
                () = stop.cancelled() => return,
                sent = self.send(&report) => sent,
            };
            let is_delivered = sent.is_ok();
            let (sent, requests) = match sent {
                Ok(sent) => (Ok(sent.warning), sent.requests),
                Err(error) => (Err(error), Vec::new()),
            };
            self.note(&report, sent);
            if self.act(requests).await {
                // The results are news. The pause holds up a collector that always has another request.
                tokio::select! {
                    () = stop.cancelled() => return,
                    () = sleep(TOGETHER) => continue,
                }
            }
            let heartbeat = Instant::now() + self.every;
            loop {
                tokio::select! {
                    () = stop.cancelled() => return,
                    () = sleep_until(heartbeat) => break,
                    () = enrolments.next() => break,
                    is_published = handle.published() => if !is_published { return },
                }
                // After a failure only the time counts, so that a server that is down costs little.
                let has_news = is_delivered
                    && self.source.report(self.every).without_times() != report.without_results();
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

    /// The report with the results of the requests of this collector.
    async fn report(&self) -> HostReport {
        let mut report = self.source.report(self.every);
        let Some(store) = self.source.enrolments.store().filter(|_| self.is_signed()) else { return report };
        let (store, url) = (store.clone(), self.to.url.clone());
        match tokio::task::spawn_blocking(move || store.host_request_results(&url)).await {
            Ok(Ok(results)) => report.requests = results,
            Ok(Err(error)) => {
                tracing::warn!(error = chain(&error), "could not read the results of requests");
            }
            // The agent is stopping.
            Err(_) => {}
        }
        report.within_limits()
    }

    fn is_signed(&self) -> bool {
        self.source.enrolments.has(&self.to.url)
    }

    /// Acts on the requests of the collector. Returns whether there are results to report.
    async fn act(&self, requests: Vec<HostRequest>) -> bool {
        let Some(store) = self.source.enrolments.store().filter(|_| !requests.is_empty()) else {
            return false;
        };
        let ReportSource { requests: settings, handle, clock, .. } = &self.source;
        HostRequests::new(&self.to.url, settings, handle, store, *clock).act(requests).await
    }

    /// Publishes the result, and logs it if it is another one than before.
    fn note(&mut self, report: &HostReport, sent: Result<String, ReportError>) {
        let before = self.targets.list().get(self.index).cloned().unwrap_or_default();
        let to = self.to.url.as_str();
        let after = match sent {
            Ok(warning) => {
                if before.last_sent.is_none() || !before.error.is_empty() {
                    tracing::info!(to, host = report.host, "reporting to the fleet");
                }
                if warning != before.warning && !warning.is_empty() {
                    tracing::warn!(to, warning, "two machines report as one host");
                }
                let last_sent = Some(self.source.clock.now());
                let signed = self.is_signed();
                TargetStatus { last_sent, error: String::new(), warning, blocked: false, signed, ..before }
            }
            Err(error) => {
                let (blocked, error) = (error.is_lasting(), chain(&error));
                if before.error != error {
                    tracing::warn!(to, error, "could not report to the fleet; trying again");
                }
                self.sender = None;
                TargetStatus { error, blocked, signed: self.is_signed(), ..before }
            }
        };
        self.targets.update(self.index, |target| *target = after);
        self.source.handle.problems().set(SUBJECT, self.targets.blocked());
    }

    /// Sends the report.
    async fn send(&mut self, report: &HostReport) -> Result<SentReport, ReportError> {
        let json = serde_json::to_vec(report).map_err(|error| ReportError::Write(error.to_string()))?;
        let compressed = compress(&json)?;
        let sender = match &mut self.sender {
            Some(sender) => sender,
            None => self.sender.insert(sender_to(&self.to, &self.source)?),
        };
        match sender {
            Sender::Collector(collector) => {
                let requests = collector.send(report, &json, compressed).await?;
                Ok(SentReport { warning: String::new(), requests })
            }
            Sender::Objects(objects) => {
                let warning = objects.send(report, &compressed).await?;
                Ok(SentReport { warning, requests: Vec::new() })
            }
        }
    }
}

fn sender_to(place: &FleetPlace, source: &ReportSource) -> Result<Sender, ReportError> {
    let secrets = SecretSource { environment: source.environment.clone(), read: read_secret };
    match (Objects::open(place, secrets, source.clock)?, &place.kind) {
        (Some(objects), _) => Ok(Sender::Objects(ObjectSender::new(objects))),
        (None, PlaceKind::Collector { token }) => {
            let client = CollectorClient::new(place, token.clone(), source.environment.clone())?;
            let client = client.signing(source.enrolments.clone());
            Ok(Sender::Collector(CollectorSender::new(client)))
        }
        (None, PlaceKind::Bucket(_) | PlaceKind::Folder(_)) => {
            Err(ReportError::Client("the place keeps no objects".to_owned()))
        }
    }
}

fn compress(json: &[u8]) -> Result<Vec<u8>, ReportError> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(json).map_err(|error| ReportError::Write(error.to_string()))?;
    encoder.finish().map_err(|error| ReportError::Write(error.to_string()))
}
