//! The applications of the overview: those of this host as they are, and those of another host as its last report says.

use driftless_fleet::{ApplicationReport, HostReport, HostView};
use driftless_model::{
    AppName, Application, ApplicationStatus, HealthStatus, OperationPhase, RepositoryStatus, SyncStatus,
    Timestamp, WorkloadStatus,
};

/// One application in the list.
pub(super) struct Listed {
    pub(super) name: AppName,
    pub(super) repository: String,
    /// The address of its page. `None`: it is on another host, whose page is unknown.
    pub(super) page: Option<String>,
    pub(super) sync: SyncStatus,
    pub(super) health: HealthStatus,
    /// The number of differences from Git.
    pub(super) drift: usize,
    /// Ready instances, and how many are wanted, of the workloads that serve. `None`: reports do not count them.
    pub(super) ready: Option<(u32, u32)>,
    /// The first digits of the commit of its revision. Empty if there is none.
    pub(super) commit: String,
    pub(super) has_pin: bool,
    pub(super) is_suspended: bool,
    /// The message of its status.
    pub(super) message: String,
    /// The sentence that says most about it, if it needs attention.
    pub(super) why: String,
    /// The operation that runs: its message, and when it began.
    pub(super) operation: Option<(String, Timestamp)>,
}

/// The head of a repository's group.
pub(super) struct ListedRepository {
    pub(super) name: String,
    /// The address of its page, as in [`Listed`].
    pub(super) page: Option<String>,
    pub(super) reference: String,
    /// The first digits of the newest commit, and its subject if it is known.
    pub(super) commit: Option<(String, String)>,
    pub(super) fetched_at: Option<Timestamp>,
    /// The error. Empty if there is none.
    pub(super) message: String,
}

impl Listed {
    /// Whether somebody should look at it.
    pub(super) fn needs_attention(&self) -> bool {
        self.sync != SyncStatus::Synced
            || !matches!(self.health, HealthStatus::Healthy | HealthStatus::Suspended)
            || self.drift > 0
    }

    /// An application of this host.
    pub(super) fn of(application: &Application) -> Self {
        let Application { name, spec, status, .. } = application;
        let replicas = |count: fn(&WorkloadStatus) -> u32| -> u32 {
            let serving = status.workloads.values().filter(|workload| !ends(workload));
            serving.map(count).fold(0, u32::saturating_add)
        };
        let commit = status.revision_commit.as_ref().or(status.commit.as_ref());
        let running = status.operation.as_ref().filter(|it| it.phase == OperationPhase::Running);
        let mut listed = Self {
            name: name.clone(),
            repository: spec.repository.clone(),
            page: Some(format!("applications/{name}")),
            sync: status.sync,
            health: status.health,
            drift: status.drift.len(),
            ready: Some((replicas(|it| it.ready_replicas), replicas(|it| it.replicas))),
            commit: commit.map(|commit| start_of(commit.short())).unwrap_or_default(),
            has_pin: status.pin.is_some(),
            is_suspended: spec.policy.suspended,
            message: status.message.clone(),
            why: String::new(),
            operation: running.map(|it| (it.message.clone(), it.started)),
        };
        if listed.needs_attention() {
            listed.why = why(status);
        }
        listed
    }

    /// All applications of another host.
    pub(super) fn of_host(host: &HostView) -> Vec<Self> {
        let report = host.report.as_deref();
        let listed = |report: &HostReport, application: &ApplicationReport| {
            let ApplicationReport { name, repository, sync, health, .. } = application;
            let (message, drift) = (&application.message, application.drift);
            let why = match (message.as_str(), drift) {
                ("", 0) => String::new(),
                ("", 1) => "1 difference from Git".to_owned(),
                ("", drift) => format!("{drift} differences from Git"),
                (message, _) => message.to_owned(),
            };
            let commit = application.deployed_commit();
            Self {
                name: name.clone(),
                repository: repository.clone(),
                page: page_of(report, &format!("applications/{name}")),
                sync: *sync,
                health: *health,
                drift,
                ready: None,
                commit: commit.map(|commit| start_of(commit.short())).unwrap_or_default(),
                has_pin: false,
                is_suspended: application.suspended.unwrap_or(*health == HealthStatus::Suspended),
                message: message.clone(),
                why,
                operation: None,
            }
        };
        report
            .into_iter()
            .flat_map(|report| report.applications.iter().map(move |application| listed(report, application)))
            .collect()
    }
}

impl ListedRepository {
    /// A repository that this host follows.
    pub(super) fn of(repository: &RepositoryStatus) -> Self {
        let RepositoryStatus { name, reference, commit, fetched_at, message, .. } = repository;
        Self {
            name: name.clone(),
            page: Some(format!("repositories/{name}")),
            reference: reference.clone(),
            commit: commit.as_ref().map(|commit| (commit.short().to_owned(), commit.subject.clone())),
            fetched_at: *fetched_at,
            message: message.clone(),
        }
    }

    /// The repositories that another host follows.
    pub(super) fn of_host(host: &HostView) -> Vec<Self> {
        let report = host.report.as_deref();
        let listed = |report: &HostReport| -> Vec<Self> {
            let repositories = report.repositories.iter().map(|repository| Self {
                name: repository.name.clone(),
                page: page_of(report, &format!("repositories/{}", repository.name)),
                reference: repository.reference.clone(),
                commit: repository.commit.as_ref().map(|commit| (commit.short().to_owned(), String::new())),
                fetched_at: repository.fetched_at,
                message: repository.message.clone(),
            });
            repositories.collect()
        };
        report.map(listed).unwrap_or_default()
    }
}

/// Whether a workload is not ready when its work is done: a Job, hook or CronJob, and a service that has completed.
fn ends(workload: &WorkloadStatus) -> bool {
    let WorkloadStatus { cron, job, hook, reason, .. } = workload;
    cron.is_some() || job.is_some() || hook.is_some() || reason == "Completed"
}

/// A page of the host that has sent the report.
fn page_of(report: &HostReport, path: &str) -> Option<String> {
    (!report.page.is_empty()).then(|| format!("{}/{path}", report.page.trim_end_matches('/')))
}

fn start_of(commit: &str) -> String {
    commit.get(..7).unwrap_or_default().to_owned()
}

/// The sentence that says most about an application that needs attention.
fn why(status: &ApplicationStatus) -> String {
    let running = status.operation.as_ref().filter(|it| it.phase == OperationPhase::Running);
    if let Some(operation) = running.filter(|it| !it.message.is_empty()) {
        return operation.message.clone();
    }
    if !status.message.is_empty() {
        return status.message.clone();
    }
    if let Some(wait) = status.waits.first() {
        return format!("{}: {}", wait.object, wait.message);
    }
    match status.drift.as_slice() {
        [] => String::new(),
        [one] => format!("drift: {} {}", one.object, one.field),
        [one, rest @ ..] => format!("drift: {} {} and {} more", one.object, one.field, rest.len()),
    }
}
