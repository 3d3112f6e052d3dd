//! The text that Prometheus reads: the counters, and gauges made from the published status.

use std::{collections::BTreeMap, sync::Arc};

use prometheus::{GaugeVec, Opts, TextEncoder, core::Collector, proto::MetricFamily};

use driftless_model::{
    AppName, Application, ConditionStatus, DriftAction, Expiry, HealthStatus, OperationPhase, PortCounters,
    RepositoryStatus, SyncStatus, TargetCounters, Timestamp,
};

use crate::{
    counters::Metrics,
    process::{Process, number},
    table::{
        APP_CONDITION, APP_DRIFT, APP_IMAGE_CHECKS_FAILED, APP_IMAGES_AVAILABLE, APP_INFO, APP_INSTANCES,
        APP_OBSERVED, APP_PINNED, APP_RESTARTS, APP_REVISION, APP_WAITS, APP_WORKLOADS, BUILD_INFO, CPU,
        CREDENTIAL_EXPIRY, CREDENTIAL_SOON, ENGINE_UP, FLEET_COMMITS_BEHIND, FLEET_HOST_UP,
        FLEET_LAST_REPORT, MAX_FDS, Metric, OPEN_FDS, PROXY_BYTES, PROXY_CONNECTIONS, PROXY_FAILED,
        PROXY_OPEN, PROXY_REFUSED, PROXY_RETRIES, QUEUE_LENGTH, QUEUE_OLDEST, READY, REPOSITORY_APPLICATIONS,
        REPOSITORY_FETCHED, REPOSITORY_UP, RESIDENT, START_TIME, STATE_FREE, STATE_WRITABLE,
    },
};

/// The state of the agent at one moment, as it is published.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// All applications.
    pub applications: Arc<BTreeMap<AppName, Arc<Application>>>,
    /// All repositories.
    pub repositories: Arc<Vec<RepositoryStatus>>,
    /// The agent can do its work.
    pub is_ready: bool,
    /// The engine answers.
    pub has_engine: bool,
    /// The last write to the database succeeded, and no fetch has failed because of the disk.
    pub is_writable: bool,
    /// The free space of the disk of the state directory in bytes, if it is known.
    pub free_bytes: Option<u64>,
    /// When the agent started.
    pub started: Timestamp,
    /// The queues in the database, or none if it cannot be read.
    pub queues: Vec<Queue>,
    /// The ends of certificates, keys and tokens.
    pub expiries: Vec<Expiry>,
    /// The hosts of the fleet, on a collector.
    pub hosts: Vec<FleetHost>,
    /// The proxies that answered.
    pub proxies: Arc<Vec<ProxyCounts>>,
}

/// The counters of a proxy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProxyCounts {
    /// The application that the proxy belongs to.
    pub application: AppName,
    /// The workload with the ports.
    pub proxy: String,
    /// The counters of each port.
    pub ports: Vec<PortCounters>,
}

/// A host of the fleet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FleetHost {
    /// The name of the host.
    pub name: String,
    /// It was heard and is fresh.
    pub is_up: bool,
    /// When it was last heard, if ever.
    pub last_heard: Option<Timestamp>,
    /// The repositories that it follows, with the number of commits up to the newest one of the fleet. Empty if it is not up.
    pub behind: Vec<(String, u64)>,
}

/// A queue in the database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Queue {
    /// The value of the label `queue`.
    pub name: &'static str,
    /// The number of entries that wait.
    pub length: u64,
    /// When the oldest of them was made, if that is known.
    pub oldest: Option<Timestamp>,
}

impl Metrics {
    /// All metrics at this moment, in the text format of Prometheus.
    pub fn render(&self, snapshot: &Snapshot) -> String {
        // Since a start, most applications have had no sync yet, and the first one may fail.
        snapshot.applications.keys().for_each(|app| self.count_app(app));
        let mut families = Gauges::of(snapshot).collect();
        families.extend(self.collect(|app| snapshot.applications.contains_key(app)));
        families.retain(|family| !family.get_metric().is_empty());
        // An error says that a family has no name or no metric.
        TextEncoder::new().encode_to_string(&families).unwrap_or_default()
    }
}

/// Gauges for one answer.
#[derive(Default)]
struct Gauges(Vec<(Metric, GaugeVec)>);

impl Gauges {
    fn of(snapshot: &Snapshot) -> Self {
        let mut gauges = Self::default();
        gauges.set(BUILD_INFO, &[env!("CARGO_PKG_VERSION")], 1.0);
        gauges.set(READY, &[], flag(snapshot.is_ready));
        gauges.set(ENGINE_UP, &[], flag(snapshot.has_engine));
        gauges.set(STATE_WRITABLE, &[], flag(snapshot.is_writable));
        gauges.set_some(STATE_FREE, &[], snapshot.free_bytes.map(number));
        for application in snapshot.applications.values() {
            gauges.application(application);
        }
        for repository in snapshot.repositories.iter() {
            gauges.repository(repository);
        }
        for expiry in &snapshot.expiries {
            let labels: [&str; 2] = [&expiry.subject, &expiry.what];
            gauges.set(CREDENTIAL_EXPIRY, &labels, seconds(expiry.ends));
            gauges.set(CREDENTIAL_SOON, &labels, seconds(expiry.soon_from()));
        }
        for queue in &snapshot.queues {
            gauges.set(QUEUE_LENGTH, &[queue.name], number(queue.length));
            gauges.set_some(QUEUE_OLDEST, &[queue.name], queue.oldest.map(seconds));
        }
        for host in &snapshot.hosts {
            gauges.set(FLEET_HOST_UP, &[&host.name], flag(host.is_up));
            gauges.set_some(FLEET_LAST_REPORT, &[&host.name], host.last_heard.map(seconds));
            for (repository, commits) in &host.behind {
                gauges.set(FLEET_COMMITS_BEHIND, &[&host.name, repository], number(*commits));
            }
        }
        for proxy in snapshot.proxies.iter() {
            gauges.proxy(proxy);
        }
        let Process { cpu_seconds, resident_bytes, open_fds, max_fds } = Process::now();
        gauges.set_some(CPU, &[], cpu_seconds);
        gauges.set_some(RESIDENT, &[], resident_bytes);
        gauges.set_some(OPEN_FDS, &[], open_fds);
        gauges.set_some(MAX_FDS, &[], max_fds);
        gauges.set(START_TIME, &[], seconds(snapshot.started));
        gauges
    }

    fn application(&mut self, application: &Application) {
        let Application { name, spec, status, generation: _ } = application;
        let name = name.as_str();
        let operation = match status.operation.as_ref().map(|operation| operation.phase) {
            None => "",
            Some(OperationPhase::Running) => "Running",
            Some(OperationPhase::Waiting) => "Waiting",
            Some(OperationPhase::Succeeded) => "Succeeded",
            Some(OperationPhase::Failed) => "Failed",
        };
        let autosync = if spec.policy.suspended || status.pin.is_some() { "false" } else { "true" };
        let (sync, health) = (sync(status.sync), health(status.health));
        let labels = [name, &spec.repository, &spec.url, sync, health, operation, autosync];
        self.set(APP_INFO, &labels, 1.0);
        self.set_some(APP_REVISION, &[name], status.revision.map(number));
        self.set(APP_PINNED, &[name], flag(status.pin.is_some()));
        self.set_some(APP_OBSERVED, &[name], status.observed_at.map(seconds));
        let mut restarts = 0.0;
        for workload in status.workloads.values() {
            self.add(APP_WORKLOADS, &[name, self::health(workload.health)], 1.0);
            for (state, count) in [
                ("desired", workload.replicas),
                ("updated", workload.updated_replicas),
                ("ready", workload.ready_replicas),
                ("available", workload.available_replicas),
            ] {
                self.add(APP_INSTANCES, &[name, state], f64::from(count));
            }
            restarts += workload.instances.iter().map(|instance| f64::from(instance.restarts)).sum::<f64>();
        }
        self.set(APP_RESTARTS, &[name], restarts);
        for drift in &status.drift {
            let action = match drift.action {
                DriftAction::Heal => "heal",
                DriftAction::BackOff => "backOff",
                DriftAction::Report => "report",
                DriftAction::Ineffective => "ineffective",
            };
            self.add(APP_DRIFT, &[name, &drift.kind, action], 1.0);
        }
        if !status.images.is_empty() {
            let available = status.images.iter().filter(|image| image.available.is_some()).count();
            self.set(APP_IMAGES_AVAILABLE, &[name], number(available as u64));
        }
        for failure in status.images.iter().filter_map(|image| image.failure.as_ref()) {
            self.add(APP_IMAGE_CHECKS_FAILED, &[name, &failure.reason], 1.0);
        }
        for wait in &status.waits {
            self.add(APP_WAITS, &[name, &wait.reason], 1.0);
        }
        for condition in &status.conditions {
            let status = match condition.status {
                ConditionStatus::True => "True",
                ConditionStatus::False => "False",
                ConditionStatus::Unknown => "Unknown",
            };
            self.set(APP_CONDITION, &[name, &condition.kind, status], 1.0);
        }
    }

    fn proxy(&mut self, ProxyCounts { application, proxy, ports }: &ProxyCounts) {
        for PortCounters { port, refused, retried, targets } in ports {
            let of_port = [application.as_str(), proxy, port];
            self.set(PROXY_REFUSED, &of_port, number(*refused));
            self.set(PROXY_RETRIES, &of_port, number(*retried));
            for TargetCounters { target, open, opened, failed, bytes_in, bytes_out } in targets {
                let [name, proxy, port] = of_port;
                let of_target = [name, proxy, port, target];
                self.set(PROXY_OPEN, &of_target, number(*open));
                self.set(PROXY_CONNECTIONS, &of_target, number(*opened));
                self.set(PROXY_FAILED, &of_target, number(*failed));
                for (direction, bytes) in [("in", bytes_in), ("out", bytes_out)] {
                    self.set(PROXY_BYTES, &[name, proxy, port, target, direction], number(*bytes));
                }
            }
        }
    }

    fn repository(&mut self, repository: &RepositoryStatus) {
        let name = [repository.name.as_str()];
        self.set(REPOSITORY_UP, &name, flag(repository.message.is_empty()));
        self.set_some(REPOSITORY_FETCHED, &name, repository.fetched_at.map(seconds));
        self.set(REPOSITORY_APPLICATIONS, &name, number(repository.applications as u64));
    }

    fn set(&mut self, metric: Metric, labels: &[&str], value: f64) {
        self.gauge(metric).with_label_values(labels).set(value);
    }

    fn set_some(&mut self, metric: Metric, labels: &[&str], value: Option<f64>) {
        if let Some(value) = value {
            self.set(metric, labels, value);
        }
    }

    fn add(&mut self, metric: Metric, labels: &[&str], value: f64) {
        self.gauge(metric).with_label_values(labels).add(value);
    }

    fn gauge(&mut self, metric: Metric) -> &GaugeVec {
        let index = self.0.iter().position(|(known, _)| known.name == metric.name).unwrap_or_else(|| {
            let options = Opts::new(metric.name, metric.help);
            let gauge = GaugeVec::new(options, metric.labels).expect("the table has valid names");
            self.0.push((metric, gauge));
            self.0.len() - 1
        });
        &self.0[index].1
    }

    fn collect(self) -> Vec<MetricFamily> {
        let family = |(metric, gauge): (Metric, GaugeVec)| {
            let mut families = gauge.collect();
            if metric.kind == crate::table::Kind::Counter {
                families.iter_mut().for_each(as_counter);
            }
            families
        };
        self.0.into_iter().flat_map(family).collect()
    }
}

/// The kernel counts the CPU time, so the agent sets the value of this counter.
fn as_counter(family: &mut MetricFamily) {
    family.set_field_type(prometheus::proto::MetricType::COUNTER);
    for metric in family.mut_metric() {
        let value = metric.get_gauge().get_value();
        let mut counter = prometheus::proto::Counter::default();
        counter.set_value(value);
        metric.set_counter(counter);
    }
}

fn flag(is_set: bool) -> f64 {
    f64::from(u8::from(is_set))
}

fn seconds(at: Timestamp) -> f64 {
    number(at.0) / 1000.0
}

fn sync(status: SyncStatus) -> &'static str {
    match status {
        SyncStatus::Synced => "Synced",
        SyncStatus::OutOfSync => "OutOfSync",
        SyncStatus::Unknown => "Unknown",
    }
}

fn health(status: HealthStatus) -> &'static str {
    match status {
        HealthStatus::Healthy => "Healthy",
        HealthStatus::Suspended => "Suspended",
        HealthStatus::Progressing => "Progressing",
        HealthStatus::Missing => "Missing",
        HealthStatus::Degraded => "Degraded",
        HealthStatus::Unknown => "Unknown",
    }
}
