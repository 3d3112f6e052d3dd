//! The view of a fleet: hosts with their state, worst first.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    fmt,
    sync::Arc,
    time::Duration,
};

use driftless_model::{HealthStatus, SyncStatus, Timestamp};
use serde::{Deserialize, Serialize};

use crate::{
    behind::{BehindCommit, behind},
    freshness::{Freshness, freshness},
    report::{ApplicationReport, HostReport},
};

/// Why a host is lost.
const SILENT: &str = "nothing was heard for 10 minutes or more";

/// Why a host manages nothing.
const RELEASED: &str =
    "everything was released there; `driftless release --undo` on the host manages again what Git says";

/// The last report of a host, as the collector keeps it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LastReport {
    /// The report, which is parsed once and shared by all views.
    pub report: Arc<HostReport>,
    /// When the host was last heard, by the clock of the collector.
    pub received: Timestamp,
    /// Another machine that uses the same name.
    pub conflict: Option<NameConflict>,
}

/// A second machine with the name of a host. Its reports are refused while the first is fresh. Or a machine with the key of the host
/// that is refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NameConflict {
    /// The id of the refused machine.
    pub instance: String,
    /// The address that it reported from. Empty if it is unknown.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub from: String,
    /// A sentence about a machine with the key of the host. Empty: it has another key or none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// When it was last refused.
    pub at: Timestamp,
}

/// The state of a host in one word, worst first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum HostState {
    /// Nothing was heard for ten minutes.
    Lost,
    /// It is expected and has never reported.
    NeverReported,
    /// An application is degraded or missing.
    Degraded,
    /// Three heartbeats are missing: the state of its applications is unknown.
    Stale,
    /// A repository or an application is not as Git says, or the agent has a problem.
    OutOfSync,
    /// An application is on its way, or not observed yet.
    Progressing,
    /// An application, or a Job or rollout of it, is suspended, and all others are well. Or everything was released on the host.
    Suspended,
    /// Everything is as Git says and works.
    Healthy,
}

impl fmt::Display for HostState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Lost => "Lost",
            Self::NeverReported => "NeverReported",
            Self::Degraded => "Degraded",
            Self::Stale => "Stale",
            Self::OutOfSync => "OutOfSync",
            Self::Progressing => "Progressing",
            Self::Suspended => "Suspended",
            Self::Healthy => "Healthy",
        })
    }
}

/// One host of the fleet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HostView {
    /// The name of the host.
    pub name: String,
    /// The state in one word.
    pub state: HostState,
    /// The reason of the state. Empty if the host is healthy.
    pub reason: String,
    /// `None`: it has never reported.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub freshness: Option<Freshness>,
    /// When it was last heard, by the clock of the collector.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_heard: Option<Timestamp>,
    /// Whether the configuration of the collector names it, or `driftless.yaml` in a repository that it follows.
    pub expected: bool,
    /// Another machine that uses the same name, or this one without its key, for as long as it tries.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conflict: Option<NameConflict>,
    /// The last report, also of a stale or lost host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub report: Option<Arc<HostReport>>,
    /// The repositories of which another host has reported a newer commit.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub behind: Vec<BehindCommit>,
}

impl HostView {
    /// A host of which nothing is known now, for this reason, with the last report that could be read and its time.
    pub fn unknown(
        name: &str,
        reason: String,
        report: Option<Arc<HostReport>>,
        last_heard: Option<Timestamp>,
    ) -> Self {
        Self {
            name: name.to_owned(),
            state: HostState::Stale,
            reason,
            freshness: Some(Freshness::Stale),
            last_heard,
            expected: false,
            conflict: None,
            report,
            behind: Vec::new(),
        }
    }

    /// The same host, lost if it was last heard too long ago.
    #[must_use]
    pub fn or_lost(self, now: Timestamp) -> Self {
        let freshness = |heard| freshness(heard, Duration::ZERO, now);
        if self.last_heard.map(freshness) != Some(Freshness::Lost) {
            return self;
        }
        Self { state: HostState::Lost, reason: SILENT.to_owned(), freshness: Some(Freshness::Lost), ..self }
    }

    /// Whether the last report is recent enough to be believed.
    pub fn is_known(&self) -> bool {
        !matches!(self.state, HostState::Lost | HostState::Stale | HostState::NeverReported)
    }

    /// Whether the refused machine has the id of this host: it has lost its key, or one disk is a copy of the other.
    pub fn is_refused_itself(&self) -> bool {
        let reported = self.report.as_ref().map(|report| report.instance.as_str());
        let refused = self.conflict.as_ref().map(|conflict| conflict.instance.as_str());
        refused.is_some_and(|instance| !instance.is_empty()) && refused == reported
    }

    /// The application that the reason is about, if it is about one.
    pub fn reason_application(&self) -> Option<&ApplicationReport> {
        let unwell = self.report.iter().flat_map(|report| report.unwell());
        unwell.into_iter().find(|it| sentence(it.name.as_str(), &it.message) == self.reason)
    }
}

impl HostState {
    /// All states, worst first.
    pub const ALL: [Self; 8] = [
        Self::Lost,
        Self::NeverReported,
        Self::Degraded,
        Self::Stale,
        Self::OutOfSync,
        Self::Progressing,
        Self::Suspended,
        Self::Healthy,
    ];
}

/// All hosts that have reported or are expected, worst first and then by name.
pub fn view(reports: Vec<LastReport>, expected: &[String], now: Timestamp) -> Vec<HostView> {
    merge(reports.into_iter().map(|last| host_view(last, now)), expected)
}

/// The hosts of several places, worst first and then by name. A host of several places is as the place says that heard it
/// last. Each place has judged the age of its reports when it was read: the time since then is no silence of a host.
pub fn merge(seen: impl IntoIterator<Item = HostView>, expected: &[String]) -> Vec<HostView> {
    let mut hosts: BTreeMap<String, HostView> = BTreeMap::new();
    for host in seen {
        match hosts.entry(host.name.clone()) {
            Entry::Vacant(entry) => {
                entry.insert(host);
            }
            Entry::Occupied(mut entry) if precedence(&host) > precedence(entry.get()) => {
                entry.insert(host);
            }
            Entry::Occupied(_) => {}
        }
    }
    for host in hosts.values_mut() {
        host.expected |= expected.contains(&host.name);
    }
    for name in expected {
        hosts.entry(name.clone()).or_insert_with(|| HostView {
            name: name.clone(),
            state: HostState::NeverReported,
            reason: "it is expected and has never reported".to_owned(),
            freshness: None,
            last_heard: None,
            expected: true,
            conflict: None,
            report: None,
            behind: Vec::new(),
        });
    }
    let mut hosts: Vec<HostView> = hosts.into_values().collect();
    let reports: Vec<Option<&HostReport>> = hosts.iter().map(|host| host.report.as_deref()).collect();
    let behind = behind(&reports);
    for (host, behind) in hosts.iter_mut().zip(behind) {
        host.behind = behind;
    }
    sort(&mut hosts);
    hosts
}

/// The order of two views of one host, of which the greater one counts.
fn precedence(host: &HostView) -> impl Ord {
    (host.last_heard, host.is_known(), host.report.is_some(), host.state != HostState::NeverReported)
}

/// Makes the fresh hosts of a place stale that could not be read for a while, and keeps the others.
pub fn mark_unread(hosts: &mut [HostView], reason: &str) {
    for host in hosts.iter_mut().filter(|host| host.freshness == Some(Freshness::Fresh)) {
        (host.freshness, host.state) = (Some(Freshness::Stale), HostState::Stale);
        reason.clone_into(&mut host.reason);
    }
    sort(hosts);
}

/// Worst first, and then by name.
fn sort(hosts: &mut [HostView]) {
    hosts.sort_by(|a, b| (a.state, &a.name).cmp(&(b.state, &b.name)));
}

fn host_view(last: LastReport, now: Timestamp) -> HostView {
    let LastReport { report, received, conflict } = last;
    let freshness = freshness(received, report.heartbeat(), now);
    let (state, reason) = match freshness {
        Freshness::Lost => (HostState::Lost, SILENT.to_owned()),
        Freshness::Stale => {
            (HostState::Stale, "heartbeats are missing; the last report may be old".to_owned())
        }
        Freshness::Fresh => reported_state(&report),
    };
    // A machine that has given up is no conflict any more.
    let conflict = conflict.filter(|conflict| {
        crate::freshness::freshness(conflict.at, report.heartbeat(), now) == Freshness::Fresh
    });
    HostView {
        name: report.host.clone(),
        state,
        reason,
        freshness: Some(freshness),
        last_heard: Some(received),
        expected: false,
        conflict,
        report: Some(report),
        behind: Vec::new(),
    }
}

/// The worst that a fresh report says, and the first thing that it says it about.
fn reported_state(report: &HostReport) -> (HostState, String) {
    if report.released {
        return (HostState::Suspended, RELEASED.to_owned());
    }
    // A sentence is made for the worst one only: there may be thousands.
    let applications = report.applications.iter().map(|application| {
        let state = match (application.health, application.sync) {
            (HealthStatus::Degraded | HealthStatus::Missing, _) => HostState::Degraded,
            (HealthStatus::Progressing | HealthStatus::Unknown, SyncStatus::Synced) => HostState::Progressing,
            (HealthStatus::Suspended, _) => HostState::Suspended,
            (_, SyncStatus::OutOfSync | SyncStatus::Unknown) => HostState::OutOfSync,
            (HealthStatus::Healthy, SyncStatus::Synced) => HostState::Healthy,
        };
        (state, (application.name.as_str(), application.message.as_str()))
    });
    let repositories = report.repositories.iter().filter(|repository| !repository.message.is_empty());
    let repositories = repositories
        .map(|repository| (HostState::OutOfSync, (repository.name.as_str(), repository.message.as_str())));
    let unobserved = report.repositories.iter().filter_map(|repository| report.unobserved(repository));
    let incomplete = unobserved.chain(report.unread()).map(|reason| (HostState::Progressing, reason));
    let worst = applications.chain(repositories).min_by_key(|(state, _)| *state);
    let worst = worst.map(|(state, (name, message))| (state, sentence(name, message)));
    let problems = report.problems.iter().map(|problem| (HostState::OutOfSync, problem.clone()));
    match worst.into_iter().chain(incomplete).chain(problems).min_by_key(|(state, _)| *state) {
        Some((state, reason)) if state != HostState::Healthy => (state, reason),
        Some(_) | None => (HostState::Healthy, String::new()),
    }
}

fn sentence(name: &str, message: &str) -> String {
    if message.is_empty() { name.to_owned() } else { format!("{name}: {message}") }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::report::RepositoryReport;
    use driftless_model::{AppName, CommitId};

    const NOW: Timestamp = Timestamp(100_000_000);

    fn host(name: &str, sync: SyncStatus, health: HealthStatus, age: u64) -> LastReport {
        let application = ApplicationReport {
            name: AppName::from("shop"),
            repository: "infra".to_owned(),
            sync,
            health,
            suspended: None,
            pinned: None,
            well: false,
            revision: None,
            commit: None,
            failed: None,
            images: None,
            failed_images: None,
            revision_commit: None,
            message: String::new(),
            drift: 0,
        };
        let report = HostReport {
            host: name.to_owned(),
            instance: "a1".to_owned(),
            applications: vec![application],
            repositories: vec![RepositoryReport {
                name: "infra".to_owned(),
                commit: Some(CommitId::from_stored("a".repeat(40))),
                applications: 1,
                ..RepositoryReport::default()
            }],
            ..HostReport::default()
        };
        LastReport { report: Arc::new(report), received: Timestamp(NOW.0 - age * 1000), conflict: None }
    }

    fn states(reports: Vec<LastReport>, expected: &[String]) -> Vec<(String, HostState)> {
        view(reports, expected, NOW).into_iter().map(|host| (host.name, host.state)).collect()
    }

    #[test]
    fn problem_of_the_agent_is_the_reason_of_its_host() {
        let mut last = host("nas", SyncStatus::Synced, HealthStatus::Healthy, 10);
        let problem = "configuration: line 3: unknown key".to_owned();
        Arc::make_mut(&mut last.report).problems = vec![problem.clone()];
        let seen = view(vec![last.clone()], &[], NOW).remove(0);
        assert_eq!((seen.state, seen.reason), (HostState::OutOfSync, problem));
        Arc::make_mut(&mut last.report).applications[0].health = HealthStatus::Degraded;
        assert_eq!(view(vec![last], &[], NOW)[0].state, HostState::Degraded, "that is worse");
    }

    #[test]
    fn worst_host_comes_first() {
        let reports = vec![
            host("good", SyncStatus::Synced, HealthStatus::Healthy, 10),
            host("calm", SyncStatus::Synced, HealthStatus::Suspended, 10),
            host("busy", SyncStatus::Synced, HealthStatus::Progressing, 10),
            host("late", SyncStatus::OutOfSync, HealthStatus::Healthy, 10),
            host("sick", SyncStatus::Synced, HealthStatus::Degraded, 10),
            host("quiet", SyncStatus::Synced, HealthStatus::Healthy, 100),
            host("gone", SyncStatus::Synced, HealthStatus::Healthy, 601),
        ];
        let expected = ["good".to_owned(), "new".to_owned()];
        let names: Vec<String> = states(reports, &expected).into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["gone", "new", "sick", "quiet", "late", "busy", "calm", "good"]);
    }

    #[test]
    fn stale_host_is_never_healthy_and_keeps_its_report() {
        for age in [91, 300, 599, 600, 100_000] {
            let seen = view(vec![host("nas", SyncStatus::Synced, HealthStatus::Healthy, age)], &[], NOW);
            assert!(matches!(seen[0].state, HostState::Stale | HostState::Lost), "{age}");
            assert!(seen[0].report.is_some());
        }
        // Nor is it red because of what it said last.
        let seen = view(vec![host("nas", SyncStatus::Synced, HealthStatus::Degraded, 100)], &[], NOW);
        assert_eq!(seen[0].state, HostState::Stale);
    }

    #[test]
    fn hosts_of_a_place_that_cannot_be_read_are_stale() {
        let reports = vec![
            host("good", SyncStatus::Synced, HealthStatus::Healthy, 10),
            host("gone", SyncStatus::Synced, HealthStatus::Healthy, 601),
        ];
        let mut hosts = view(reports, &["new".to_owned()], NOW);
        mark_unread(&mut hosts, "the bucket is gone");
        let states: Vec<_> = hosts.iter().map(|host| (host.name.as_str(), host.state)).collect();
        let expected =
            [("gone", HostState::Lost), ("new", HostState::NeverReported), ("good", HostState::Stale)];
        assert_eq!(states, expected);
        assert_eq!(hosts[2].reason, "the bucket is gone");
    }

    #[test]
    fn place_that_heard_a_host_last_counts() {
        let seen = |age, health| view(vec![host("nas", SyncStatus::Synced, health, age)], &[], NOW);
        let (old, new) = (seen(20, HealthStatus::Healthy), seen(10, HealthStatus::Degraded));
        let unreadable = HostView::unknown("nas", "it is no gzip".to_owned(), None, None);
        let mut unread = new.clone();
        mark_unread(&mut unread, "the bucket is gone");
        for (places, state) in [
            (vec![old.clone(), new.clone()], HostState::Degraded),
            (vec![new, old.clone()], HostState::Degraded),
            (vec![old.clone(), unread], HostState::Stale),
            (vec![old, vec![unreadable.clone()]], HostState::Healthy),
            (vec![vec![unreadable], view(Vec::new(), &["nas".to_owned()], NOW)], HostState::Stale),
        ] {
            let merged = merge(places.concat(), &["nas".to_owned()]);
            assert_eq!((merged.len(), merged[0].state, merged[0].expected), (1, state, true));
        }
    }

    #[test]
    fn host_that_has_not_observed_all_is_not_healthy() {
        let mut last = host("nas", SyncStatus::Synced, HealthStatus::Healthy, 1);
        Arc::make_mut(&mut last.report).repositories[0].applications = 3;
        let seen = view(vec![last.clone()], &[], NOW);
        let state = |seen: &[HostView]| (seen[0].state, seen[0].reason.clone());
        let reason = "1 of 3 applications of infra are observed".to_owned();
        assert_eq!(state(&seen), (HostState::Progressing, reason));
        let repository = &mut Arc::make_mut(&mut last.report).repositories[0];
        (repository.commit, repository.applications) = (None, 0);
        let reason = "infra has not been read yet".to_owned();
        assert_eq!(state(&view(vec![last.clone()], &[], NOW)), (HostState::Progressing, reason));
        Arc::make_mut(&mut last.report).repositories.clear();
        Arc::make_mut(&mut last.report).applications.clear();
        let reason = "the agent has just started".to_owned();
        assert_eq!(state(&view(vec![last.clone()], &[], NOW)), (HostState::Progressing, reason));
        // It manages nothing, so there is nothing that it could observe.
        Arc::make_mut(&mut last.report).released = true;
        assert_eq!(state(&view(vec![last], &[], NOW)), (HostState::Suspended, RELEASED.to_owned()));
    }

    #[test]
    fn reason_is_about_the_worst_application() {
        let mut last = host("nas", SyncStatus::OutOfSync, HealthStatus::Healthy, 1);
        let report = Arc::make_mut(&mut last.report);
        let mut sick = report.applications[0].clone();
        (sick.name, sick.health) = (AppName::from("blog"), HealthStatus::Degraded);
        sick.message = "web.1 restarts again and again".to_owned();
        report.applications.push(sick);
        let about = |seen: &[HostView]| seen[0].reason_application().map(|it| it.name.to_string());
        assert_eq!(about(&view(vec![last.clone()], &[], NOW)), Some("blog".to_owned()));
        // The reason of a host that is not heard is no application.
        last.received = Timestamp(NOW.0 - 100_000);
        assert_eq!(about(&view(vec![last], &[], NOW)), None);
    }

    #[test]
    fn failed_fetch_is_out_of_sync() {
        let mut last = host("nas", SyncStatus::Synced, HealthStatus::Healthy, 1);
        let message = "could not fetch".to_owned();
        Arc::make_mut(&mut last.report).repositories =
            vec![RepositoryReport { name: "infra".to_owned(), message, ..Default::default() }];
        let seen = view(vec![last], &[], NOW);
        assert_eq!(
            (seen[0].state, seen[0].reason.as_str()),
            (HostState::OutOfSync, "infra: could not fetch")
        );
    }

    #[test]
    fn conflict_ends_when_the_other_machine_gives_up() {
        let mut last = host("nas", SyncStatus::Synced, HealthStatus::Healthy, 1);
        let conflict =
            |at| NameConflict { instance: "b2".to_owned(), from: String::new(), reason: String::new(), at };
        last.conflict = Some(conflict(Timestamp(NOW.0 - 10_000)));
        let seen = view(vec![last.clone()], &[], NOW);
        assert!(seen[0].conflict.is_some() && !seen[0].is_refused_itself());
        last.conflict = Some(NameConflict { instance: "a1".to_owned(), ..conflict(NOW) });
        assert!(view(vec![last.clone()], &[], NOW)[0].is_refused_itself());
        last.conflict = Some(conflict(Timestamp(NOW.0 - 10_000)));
        let later = NOW.after(Duration::from_mins(2));
        last.received = later;
        assert_eq!(view(vec![last], &[], later)[0].conflict, None);
    }
}
