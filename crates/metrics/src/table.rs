//! The table of all metrics: name, kind, labels and help. Names follow Argo CD where the meaning is the same.

/// The kind of a metric, as in the `# TYPE` line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A value that goes up and down.
    Gauge,
    /// A value that only grows, until the agent starts again.
    Counter,
    /// Durations in seconds, counted in buckets.
    Histogram,
}

/// One metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Metric {
    /// With unit and suffix, as Prometheus' conventions have it.
    pub name: &'static str,
    /// The kind of its values.
    pub kind: Kind,
    /// The names of its labels.
    pub labels: &'static [&'static str],
    /// One sentence.
    pub help: &'static str,
}

const fn gauge(name: &'static str, labels: &'static [&'static str], help: &'static str) -> Metric {
    Metric { name, kind: Kind::Gauge, labels, help }
}

const fn counter(name: &'static str, labels: &'static [&'static str], help: &'static str) -> Metric {
    Metric { name, kind: Kind::Counter, labels, help }
}

const fn histogram(name: &'static str, labels: &'static [&'static str], help: &'static str) -> Metric {
    Metric { name, kind: Kind::Histogram, labels, help }
}

macro_rules! metrics {
    ($($constant:ident = $make:ident($name:literal, $labels:expr, $help:literal);)*) => {
        $(pub(crate) const $constant: Metric = $make($name, &$labels, $help);)*

        /// All metrics, in the order of the documentation.
        pub const METRICS: &[Metric] = &[$($constant),*];
    };
}

metrics! {
    BUILD_INFO = gauge("driftless_build_info", ["version"], "The version of the agent; always 1.");
    READY = gauge("driftless_ready", [], "Whether the agent can do its work, as /readyz says: 1 or 0.");
    ENGINE_UP = gauge("driftless_engine_up", [], "Whether the Docker Engine answers: 1 or 0.");
    STATE_WRITABLE = gauge(
        "driftless_state_writable",
        [],
        "Whether the database can be written, and no fetch fails because of the disk: 1 or 0."
    );
    STATE_FREE = gauge(
        "driftless_state_free_bytes",
        [],
        "The free space of the disk of the state directory in bytes."
    );
    APP_INFO = gauge(
        "driftless_app_info",
        ["name", "repository", "repo", "sync_status", "health_status", "operation", "autosync_enabled"],
        "An application with its sync status and health; always 1."
    );
    APP_REVISION = gauge("driftless_app_revision", ["name"], "The number of the current revision.");
    APP_PINNED = gauge("driftless_app_pinned", ["name"], "Whether the application is pinned: 1 or 0.");
    APP_OBSERVED = gauge(
        "driftless_app_observed_timestamp_seconds",
        ["name"],
        "When the application was last observed on the engine, in seconds since 1970."
    );
    APP_WORKLOADS = gauge(
        "driftless_app_workloads",
        ["name", "health_status"],
        "The number of workloads by health."
    );
    APP_INSTANCES = gauge(
        "driftless_app_instances",
        ["name", "state"],
        "The number of instances: desired, updated, ready, available."
    );
    APP_RESTARTS = gauge(
        "driftless_app_container_restarts",
        ["name"],
        "The restarts of the containers that exist now, added up."
    );
    APP_DRIFT = gauge(
        "driftless_app_drift",
        ["name", "kind", "action"],
        "The differences from Git at this moment, by kind of object and by what the agent does about them."
    );
    APP_IMAGES_AVAILABLE = gauge(
        "driftless_app_images_available",
        ["name"],
        "The number of images for which the registry has a newer one that is not deployed."
    );
    APP_IMAGE_CHECKS_FAILED = gauge(
        "driftless_app_image_checks_failed",
        ["name", "reason"],
        "The number of images whose registry gave no answer the last time, by reason."
    );
    APP_WAITS = gauge("driftless_app_waits", ["name", "reason"], "The waits at this moment, by reason.");
    APP_CONDITION = gauge(
        "driftless_app_condition",
        ["name", "condition", "status"],
        "A condition with its status; always 1."
    );
    CREDENTIAL_EXPIRY = gauge(
        "driftless_credential_expiry_timestamp_seconds",
        ["subject", "credential"],
        "When a certificate, a signing key or a token ends, in seconds since 1970."
    );
    CREDENTIAL_SOON = gauge(
        "driftless_credential_expiry_soon_timestamp_seconds",
        ["subject", "credential"],
        "From when on that end is soon, in seconds since 1970: 14 days before, or in the last quarter of a shorter lifetime."
    );
    FLEET_HOST_UP = gauge(
        "driftless_fleet_host_up",
        ["host"],
        "Whether a host of the fleet has reported and no more than three heartbeats are missing: 1 or 0."
    );
    FLEET_LAST_REPORT = gauge(
        "driftless_fleet_last_report_seconds",
        ["host"],
        "When a host of the fleet was last heard, in seconds since 1970."
    );
    FLEET_COMMITS_BEHIND = gauge(
        "driftless_fleet_commits_behind",
        ["host", "repository"],
        "How many commits a host that is heard is behind the newest one of the fleet; 0 if it has that one, missing while it is not known."
    );
    REPOSITORY_UP = gauge(
        "driftless_repository_up",
        ["repository"],
        "Whether nothing is wrong with the repository, such as a failed fetch or a refused commit: 1 or 0."
    );
    REPOSITORY_FETCHED = gauge(
        "driftless_repository_fetched_timestamp_seconds",
        ["repository"],
        "When the repository was last fetched with success, in seconds since 1970."
    );
    REPOSITORY_APPLICATIONS = gauge(
        "driftless_repository_applications",
        ["repository"],
        "The number of applications in the newest commit."
    );
    QUEUE_LENGTH = gauge(
        "driftless_queue_length",
        ["queue"],
        "The entries that wait in the database: webhook_deliveries, commit_statuses, notifications."
    );
    QUEUE_OLDEST = gauge(
        "driftless_queue_oldest_timestamp_seconds",
        ["queue"],
        "When the oldest entry of webhook_deliveries or due one of notifications was made, in seconds since 1970; missing if there is none."
    );
    APP_SYNC = counter("driftless_app_sync_total", ["name", "phase"], "The revisions that ended, by outcome.");
    APP_DRIFT_FOUND = counter(
        "driftless_app_drift_total",
        ["name", "kind"],
        "The differences that were found after a sync, by kind of object."
    );
    APP_HEAL = histogram(
        "driftless_app_heal_duration_seconds",
        ["kind"],
        "The time from a change on the engine until it was undone."
    );
    APP_RECONCILE = histogram("driftless_app_reconcile", [], "The time of one round in seconds.");
    APP_RECONCILE_FAIL = counter(
        "driftless_app_reconcile_fail_total",
        ["reason"],
        "The rounds that failed: the engine did not answer, or the agent's own host failed."
    );
    GIT_REQUEST = counter(
        "driftless_git_request_total",
        ["repository", "request_type"],
        "The fetches from Git."
    );
    GIT_FETCH_FAIL = counter("driftless_git_fetch_fail_total", ["repository"], "The fetches that failed.");
    GIT_DURATION = histogram(
        "driftless_git_request_duration_seconds",
        ["repository", "request_type"],
        "The time of one fetch from Git."
    );
    WEBHOOK_DELIVERIES = counter(
        "driftless_webhook_deliveries_total",
        ["repository", "result"],
        "The deliveries of webhooks by result: accepted, duplicate, ignored, pong, refused."
    );
    ENGINE_REQUESTS = counter(
        "driftless_engine_request_total",
        ["operation", "result"],
        "The calls to the Docker Engine by operation: ok or error."
    );
    ENGINE_DURATION = histogram(
        "driftless_engine_request_duration_seconds",
        ["operation"],
        "The time of one call to the Docker Engine, pulls and builds excepted."
    );
    IMAGE_DURATION = histogram(
        "driftless_image_duration_seconds",
        ["operation", "result"],
        "The time of one pull or build of an image."
    );
    PROXY_OPEN = gauge(
        "driftless_proxy_open_connections",
        ["name", "proxy", "port", "target"],
        "The connections of a proxy at this moment, and its UDP clients."
    );
    PROXY_CONNECTIONS = counter(
        "driftless_proxy_connections_total",
        ["name", "proxy", "port", "target"],
        "The connections that a proxy has forwarded, and its UDP clients."
    );
    PROXY_FAILED = counter(
        "driftless_proxy_connect_failures_total",
        ["name", "proxy", "port", "target"],
        "The attempts of a proxy to connect that an instance did not accept."
    );
    PROXY_RETRIES = counter(
        "driftless_proxy_retries_total",
        ["name", "proxy", "port"],
        "The further attempts of a proxy to connect a client after one that failed."
    );
    PROXY_REFUSED = counter(
        "driftless_proxy_refused_total",
        ["name", "proxy", "port"],
        "The clients and datagrams that a proxy refused: no instance was ready or answered, or there were too many."
    );
    PROXY_BYTES = counter(
        "driftless_proxy_bytes_total",
        ["name", "proxy", "port", "target", "direction"],
        "The bytes that a proxy has read from clients (in) and from instances (out)."
    );
    CPU = counter("process_cpu_seconds_total", [], "User and system CPU time of the agent in seconds.");
    RESIDENT = gauge("process_resident_memory_bytes", [], "Resident memory of the agent in bytes.");
    OPEN_FDS = gauge("process_open_fds", [], "Open file descriptors of the agent.");
    MAX_FDS = gauge("process_max_fds", [], "The limit of open file descriptors.");
    START_TIME = gauge(
        "process_start_time_seconds",
        [],
        "When the agent started, in seconds since 1970."
    );
}
