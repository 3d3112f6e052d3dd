//! The counters and histograms: what happened since the agent started.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use prometheus::{
    Histogram, HistogramOpts, HistogramVec, IntCounterVec, Opts, core::Collector, proto::MetricFamily,
};

use driftless_model::{AppName, DeliveryResult, Outcome};

use crate::{
    engine_call::{Called, EngineCall},
    table::{
        APP_DRIFT_FOUND, APP_HEAL, APP_RECONCILE, APP_RECONCILE_FAIL, APP_SYNC, ENGINE_DURATION,
        ENGINE_REQUESTS, GIT_DURATION, GIT_FETCH_FAIL, GIT_REQUEST, IMAGE_DURATION, Metric,
        WEBHOOK_DELIVERIES,
    },
};

/// In seconds: calls to the engine and rounds.
const SHORT: &[f64] = &[0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0];

/// In seconds: fetches, pulls, builds and heals.
const LONG: &[f64] = &[0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0];

/// The phases of a revision that has ended.
const PHASES: [&str; 3] = ["Succeeded", "Failed", "Superseded"];

/// Counts what happens. Clones count together.
#[derive(Clone, Debug)]
pub struct Metrics(Arc<Counters>);

#[derive(Debug)]
struct Counters {
    /// The applications that have counters of their own.
    counted: Mutex<BTreeSet<AppName>>,
    drift_kinds: Mutex<BTreeSet<String>>,
    syncs: IntCounterVec,
    drifts: IntCounterVec,
    heals: HistogramVec,
    rounds: Histogram,
    failed_rounds: IntCounterVec,
    fetches: IntCounterVec,
    failed_fetches: IntCounterVec,
    fetch_durations: HistogramVec,
    deliveries: IntCounterVec,
    engine_calls: IntCounterVec,
    engine_durations: HistogramVec,
    image_durations: HistogramVec,
}

/// The end of a fetch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fetched {
    /// The newest commit is known.
    Done,
    /// It is not.
    Failed,
}

/// Why a round failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RoundFailure {
    /// The engine could not be observed.
    Engine,
    /// The agent's own host failed, such as a full disk.
    Host,
}

impl Default for Metrics {
    fn default() -> Self {
        let counters = Counters {
            counted: Mutex::default(),
            drift_kinds: Mutex::default(),
            syncs: counters(&APP_SYNC),
            drifts: counters(&APP_DRIFT_FOUND),
            heals: histograms(&APP_HEAL, LONG),
            rounds: histogram(&APP_RECONCILE, SHORT),
            failed_rounds: counters(&APP_RECONCILE_FAIL),
            fetches: counters(&GIT_REQUEST),
            failed_fetches: counters(&GIT_FETCH_FAIL),
            fetch_durations: histograms(&GIT_DURATION, LONG),
            deliveries: counters(&WEBHOOK_DELIVERIES),
            engine_calls: counters(&ENGINE_REQUESTS),
            engine_durations: histograms(&ENGINE_DURATION, SHORT),
            image_durations: histograms(&IMAGE_DURATION, LONG),
        };
        // A rate needs the zero before the first count.
        for reason in [RoundFailure::Engine, RoundFailure::Host] {
            counters.failed_rounds.with_label_values(&[reason.name()]);
        }
        Self(Arc::new(counters))
    }
}

impl RoundFailure {
    fn name(self) -> &'static str {
        match self {
            Self::Engine => "engine",
            Self::Host => "host",
        }
    }
}

impl Metrics {
    /// One round of one application took this long.
    pub fn round(&self, took: Duration) {
        self.0.rounds.observe(took.as_secs_f64());
    }

    /// One round failed.
    pub fn round_failed(&self, reason: RoundFailure) {
        self.0.failed_rounds.with_label_values(&[reason.name()]).inc();
    }

    /// A revision of an application has ended.
    pub fn synced(&self, app: &AppName, outcome: &Outcome) {
        let phase = match outcome {
            Outcome::Succeeded => PHASES[0],
            Outcome::Failed { .. } => PHASES[1],
            Outcome::Superseded => PHASES[2],
            Outcome::InProgress => return,
        };
        self.count_app(app);
        self.0.syncs.with_label_values(&[app.as_str(), phase]).inc();
    }

    /// An object of this kind was found to differ from Git.
    pub fn drifted(&self, app: &AppName, kind: &str) {
        self.count_app(app);
        lock(&self.0.drift_kinds).insert(kind.to_owned());
        self.0.drifts.with_label_values(&[app.as_str(), kind]).inc();
    }

    /// A difference was undone this long after it was made.
    pub fn healed(&self, kind: &str, took: Duration) {
        self.0.heals.with_label_values(&[kind]).observe(took.as_secs_f64());
    }

    /// A repository was fetched.
    pub fn fetched(&self, repository: &str, result: Fetched, took: Duration) {
        self.0.fetches.with_label_values(&[repository, "fetch"]).inc();
        self.0.fetch_durations.with_label_values(&[repository, "fetch"]).observe(took.as_secs_f64());
        let failed = self.0.failed_fetches.with_label_values(&[repository]);
        if result == Fetched::Failed {
            failed.inc();
        }
    }

    /// A webhook was delivered for a repository of the configuration.
    pub fn delivered(&self, repository: &str, result: DeliveryResult) {
        let result = match result {
            DeliveryResult::Accepted => "accepted",
            DeliveryResult::Duplicate => "duplicate",
            DeliveryResult::Ignored => "ignored",
            DeliveryResult::Pong => "pong",
            DeliveryResult::Refused => "refused",
        };
        self.0.deliveries.with_label_values(&[repository, result]).inc();
    }

    /// The engine was called.
    pub fn engine_called(&self, call: EngineCall, result: Called, took: Duration) {
        let (operation, result, took) = (call.name(), result.name(), took.as_secs_f64());
        self.0.engine_calls.with_label_values(&[operation, result]).inc();
        if call.is_image() {
            self.0.image_durations.with_label_values(&[operation, result]).observe(took);
        } else {
            self.0.engine_durations.with_label_values(&[operation]).observe(took);
        }
    }

    /// All counters. Those of applications that are not among `present` are forgotten.
    pub(crate) fn collect(&self, is_present: impl Fn(&AppName) -> bool) -> Vec<MetricFamily> {
        self.forget_others(is_present);
        let Counters {
            counted: _,
            drift_kinds: _,
            syncs,
            drifts,
            heals,
            rounds,
            failed_rounds,
            fetches,
            failed_fetches,
            fetch_durations,
            deliveries,
            engine_calls,
            engine_durations,
            image_durations,
        } = self.0.as_ref();
        let all: [&dyn Collector; 12] = [
            syncs,
            drifts,
            heals,
            rounds,
            failed_rounds,
            fetches,
            failed_fetches,
            fetch_durations,
            deliveries,
            engine_calls,
            engine_durations,
            image_durations,
        ];
        all.iter().flat_map(|collector| collector.collect()).collect()
    }

    /// Makes the counters of an application that need their zero before the first count.
    pub(crate) fn count_app(&self, app: &AppName) {
        let mut counted = lock(&self.0.counted);
        if counted.contains(app) {
            return;
        }
        counted.insert(app.clone());
        for phase in PHASES {
            self.0.syncs.with_label_values(&[app.as_str(), phase]);
        }
    }

    fn forget_others(&self, is_present: impl Fn(&AppName) -> bool) {
        let mut counted = lock(&self.0.counted);
        let kinds = lock(&self.0.drift_kinds);
        counted.retain(|app| {
            if is_present(app) {
                return true;
            }
            // An error says that there is no such counter.
            for phase in PHASES {
                let _ = self.0.syncs.remove_label_values(&[app.as_str(), phase]);
            }
            for kind in kinds.iter() {
                let _ = self.0.drifts.remove_label_values(&[app.as_str(), kind]);
            }
            false
        });
    }
}

fn counters(metric: &Metric) -> IntCounterVec {
    IntCounterVec::new(Opts::new(metric.name, metric.help), metric.labels).expect("the table has valid names")
}

fn options(metric: &Metric, buckets: &[f64]) -> HistogramOpts {
    HistogramOpts::new(metric.name, metric.help).buckets(buckets.to_vec())
}

fn histograms(metric: &Metric, buckets: &[f64]) -> HistogramVec {
    HistogramVec::new(options(metric, buckets), metric.labels).expect("the table has valid names")
}

fn histogram(metric: &Metric, buckets: &[f64]) -> Histogram {
    Histogram::with_opts(options(metric, buckets)).expect("the table has valid names")
}

/// The lock is held for the change of one set, so a panic of another task leaves a valid one.
fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
