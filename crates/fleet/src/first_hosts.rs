//! The rule of `after`: whether a new commit of an application may be applied, or waits for the first hosts.
//!
//! The first hosts are judged by what they reported. Each agent measures with its own clock how long it has seen them
//! healthy, so a wrong clock elsewhere changes nothing. Only a state that is unknown or unfinished has a longest wait: a
//! commit that failed on a first host is held until there is another one.

use std::{collections::BTreeSet, fmt};

use driftless_model::{
    After, AfterRecord, AppName, CommitId, HealthStatus, HostIdentity, HostSelector, Otherwise, StackHash,
    SyncStatus, Timestamp,
};

use crate::{
    report::{ApplicationReport, HostReport},
    view::{HostState, HostView},
};

/// The most commits with the same stack that are remembered.
const MOST_COMMITS: usize = 50;

/// The most hosts that a sentence names.
const MOST_NAMED: usize = 3;

/// A new commit that may have to wait for the first hosts.
#[derive(Clone, Copy, Debug)]
pub struct WaitingCommit<'a> {
    /// The application.
    pub app: &'a AppName,
    /// The rule.
    pub after: &'a After,
    /// This host.
    pub host: &'a HostIdentity,
    /// The hosts that the repository lists. Their labels count in addition to those that they report.
    pub listed: &'a [HostIdentity],
    /// The newest commit.
    pub commit: &'a CommitId,
    /// Its stack.
    pub stack: &'a StackHash,
    /// Its images.
    pub images: &'a WaitingImages,
}

/// The images of a commit that waits, by the first digits of their digests.
#[derive(Clone, Debug, Default)]
pub struct WaitingImages {
    /// All whose digest is known.
    pub all: BTreeSet<String>,
    /// The updates among them: a registry has them, and they do not run on this host yet.
    pub new: BTreeSet<String>,
}

impl WaitingImages {
    /// Whether an application runs the updates. `None`: its host does not report images.
    fn run_by(&self, application: &ApplicationReport) -> Option<bool> {
        if self.new.is_empty() {
            return Some(true);
        }
        let images = application.images.as_ref()?;
        Some(self.new.iter().all(|image| images.contains(image)))
    }

    /// Whether the commit that failed elsewhere had the same images, as far as they are known.
    fn failed_in(&self, application: &ApplicationReport) -> bool {
        let Some(failed) = &application.failed_images else { return self.new.is_empty() };
        self.new.iter().all(|image| failed.contains(image))
            && failed.iter().all(|image| self.all.contains(image))
    }
}

/// The knowledge about the hosts of the fleet.
#[derive(Clone, Copy, Debug)]
pub enum KnownHosts<'a> {
    /// Their reports.
    Read {
        /// All hosts that are known.
        hosts: &'a [HostView],
        /// One sentence for each place that may have other hosts and could not be read.
        missing: &'a [String],
    },
    /// They could not be read, with the reason.
    Unknown(&'a str),
    /// They are being read for the first time, as after a start of the agent.
    Pending,
}

/// The decision about a new commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AfterDecision {
    /// It may be applied. The sentence is empty if there was nothing to wait for.
    Apply(String),
    /// It is held.
    Hold(AfterHold),
}

/// Why a commit is held for the first hosts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AfterHold {
    /// In one word.
    pub reason: AfterReason,
    /// The state of the first hosts, in one line.
    pub message: String,
    /// When the wait ends if nothing changes. `None`: it does not end by itself.
    pub until: Option<Timestamp>,
}

/// Why a commit is held for the first hosts, in one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AfterReason {
    /// They run the commit and are healthy, but not for long enough.
    FirstHostsNew,
    /// Their state is known, and they are not healthy with the commit yet.
    FirstHostsNotReady,
    /// The state of one of them is not known.
    FirstHostsUnknown,
    /// The commit failed on one of them.
    FirstHostFailed,
}

impl fmt::Display for AfterReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl AfterReason {
    /// The word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::FirstHostsNew => "FirstHostsNew",
            Self::FirstHostsNotReady => "FirstHostsNotReady",
            Self::FirstHostsUnknown => "FirstHostsUnknown",
            Self::FirstHostFailed => "FirstHostFailed",
        }
    }
}

/// The state of one first host, with a sentence.
enum FirstHost {
    /// It runs one of the commits with the images of the update and is healthy.
    Healthy,
    NotReady(String),
    /// Not healthy with the commit. It may recover, but the commit is not applied here by the end of a wait.
    Unhealthy(String),
    Unknown(String),
    /// The commit failed there.
    Failed(String),
}

/// Decides about a new commit from what is known of all hosts. Returns what to
/// remember of the wait.
pub fn decide_after(
    waiting: &WaitingCommit<'_>,
    before: Option<&AfterRecord>,
    hosts: KnownHosts<'_>,
    now: Timestamp,
) -> (Option<AfterRecord>, AfterDecision) {
    let WaitingCommit { app, after, host, listed: _, commit, stack, images } = *waiting;
    let selector = HostSelector { names: Vec::new(), labels: after.labels.clone() };
    if selector.selects(host) {
        return (None, AfterDecision::Apply(String::new()));
    }
    let mut record = match before.filter(|before| before.stack == *stack) {
        Some(before) => before.clone(),
        None => AfterRecord {
            stack: stack.clone(),
            commits: Vec::new(),
            since: now,
            healthy_since: None,
            failed: None,
        },
    };
    if !record.commits.contains(commit) {
        record.commits.push(commit.clone());
        let surplus = record.commits.len().saturating_sub(MOST_COMMITS);
        record.commits.drain(..surplus);
    }
    // A clock that was set back must not make the wait longer than it is.
    record.since = record.since.min(now);
    record.healthy_since = record.healthy_since.map(|since| since.min(now));
    let first = match hosts {
        KnownHosts::Read { hosts, missing } => first_hosts(&selector, waiting, hosts)
            .filter_map(|host| judge(host, app, &record.commits, images))
            .chain(missing.iter().cloned().map(FirstHost::Unknown))
            .collect(),
        KnownHosts::Unknown(why) => vec![FirstHost::Unknown(why.to_owned())],
        // Nothing is decided by what is known a moment later.
        KnownHosts::Pending if record.failed.is_none() => {
            let message = "their reports are being read".to_owned();
            let hold = AfterHold { reason: AfterReason::FirstHostsUnknown, message, until: None };
            return (Some(record), AfterDecision::Hold(hold));
        }
        KnownHosts::Pending => Vec::new(),
    };
    let decision = weigh(after, &mut record, &first, now);
    (Some(record), decision)
}

/// The other hosts with the labels, and those whose labels are not known.
fn first_hosts<'a>(
    selector: &'a HostSelector,
    waiting: &WaitingCommit<'a>,
    hosts: &'a [HostView],
) -> impl Iterator<Item = HostOrName<'a>> {
    let WaitingCommit { host: own, listed, .. } = *waiting;
    let listed_labels = |name: &str| listed.iter().find(|host| host.name == name).map(|host| &host.labels);
    let seen = hosts.iter().filter(move |host| {
        let reported = host.report.as_ref().map(|report| &report.labels);
        let is_unknown = reported.is_none() && host.state != HostState::NeverReported;
        // As on the host itself, labels in Git are added, and its own win.
        let mut labels = listed_labels(&host.name).cloned().unwrap_or_default();
        labels.extend(reported.into_iter().flatten().map(|(label, value)| (label.clone(), value.clone())));
        is_unknown || selector.selects(&HostIdentity { name: host.name.clone(), labels })
    });
    let unseen = listed
        .iter()
        .filter(move |listed| selector.selects(listed) && !hosts.iter().any(|host| host.name == listed.name));
    let all = seen.map(HostOrName::Seen).chain(unseen.map(|host| HostOrName::Unseen(&host.name)));
    all.filter(|host| host.name() != own.name)
}

/// A first host that was seen, or that only Git names.
#[derive(Clone, Copy)]
enum HostOrName<'a> {
    Seen(&'a HostView),
    Unseen(&'a str),
}

impl HostOrName<'_> {
    fn name(&self) -> &str {
        match self {
            Self::Seen(host) => &host.name,
            Self::Unseen(name) => name,
        }
    }
}

/// `None`: the host does not have the application, as one on which everything was released.
fn judge(
    host: HostOrName<'_>,
    app: &AppName,
    commits: &[CommitId],
    images: &WaitingImages,
) -> Option<FirstHost> {
    let host = match host {
        HostOrName::Seen(host) => host,
        HostOrName::Unseen(name) => return Some(FirstHost::Unknown(format!("{name} has never reported"))),
    };
    let name = &host.name;
    let known = match host.state {
        HostState::Lost | HostState::NeverReported | HostState::Stale => None,
        HostState::Degraded
        | HostState::OutOfSync
        | HostState::Progressing
        | HostState::Suspended
        | HostState::Healthy => host.report.as_ref(),
    };
    let Some(report) = known else {
        let gone = if matches!(host.state, HostState::Lost | HostState::Stale) {
            format!(" (`driftless fleet remove {name}` on the collector if it is gone)")
        } else {
            String::new()
        };
        return Some(FirstHost::Unknown(match host.reason.as_str() {
            "" => format!("{name} is {}{gone}", host.state),
            reason => format!("{name} is {}: {reason}{gone}", host.state),
        }));
    };
    if report.released {
        return None;
    }
    match report.applications.iter().find(|application| application.name == *app) {
        Some(application) => Some(judge_application(name, application, commits, images)),
        None => unobserved(report).map(|why| FirstHost::Unknown(format!("{name}: {why}"))),
    }
}

/// Why the report may lack an application that the host has.
fn unobserved(report: &HostReport) -> Option<String> {
    report.unread().or_else(|| {
        report.repositories.iter().find_map(|repository| {
            let message = (!repository.message.is_empty()).then(|| repository.message.clone());
            message.or_else(|| report.unobserved(repository))
        })
    })
}

fn judge_application(
    name: &str,
    application: &ApplicationReport,
    commits: &[CommitId],
    images: &WaitingImages,
) -> FirstHost {
    let ApplicationReport { sync, health, commit, revision_commit, failed, .. } = application;
    if let Some(failed) = failed.as_ref().filter(|failed| commits.contains(failed)) {
        let failed = failed.short();
        return if images.failed_in(application) {
            FirstHost::Failed(format!("{failed} failed on {name}"))
        } else {
            // That host has not tried these images yet.
            FirstHost::Unhealthy(format!("{failed} failed on {name} with other images"))
        };
    }
    let Some(commit) = commit else {
        return FirstHost::NotReady(format!("{name} runs no commit yet"));
    };
    // A later commit that has not changed the application there is the same one.
    let is_waiting = |commit: &CommitId| commits.contains(commit);
    let waiting = [Some(commit), revision_commit.as_ref()].into_iter().flatten().find(|it| is_waiting(it));
    let is_known = waiting.is_some();
    let has_images = images.run_by(application);
    match (sync, health) {
        (_, HealthStatus::Degraded | HealthStatus::Missing) if is_known && has_images != Some(false) => {
            // The commit in sync may be an earlier one.
            FirstHost::Unhealthy(format!("{name} is {health:?} with {}", waiting.unwrap_or(commit).short()))
        }
        (SyncStatus::Synced, _) if application.is_healthy() && is_known => match has_images {
            Some(true) => FirstHost::Healthy,
            Some(false) => FirstHost::NotReady(format!("{name} runs {} with other images", commit.short())),
            None => FirstHost::Unknown(format!("{name} does not report its images: update its agent")),
        },
        (SyncStatus::Synced, _) if application.is_healthy() => {
            FirstHost::NotReady(format!("{name} runs {}", commit.short()))
        }
        (SyncStatus::Synced | SyncStatus::OutOfSync | SyncStatus::Unknown, _) => {
            FirstHost::NotReady(format!("{name} runs {} and is {sync:?} and {health:?}", commit.short()))
        }
    }
}

/// The decision, and the times in the record.
fn weigh(after: &After, record: &mut AfterRecord, first: &[FirstHost], now: Timestamp) -> AfterDecision {
    let hold = |reason, message, until| AfterDecision::Hold(AfterHold { reason, message, until });
    let (mut healthy, mut open, mut unknown, mut unhealthy) = (0, Vec::new(), Vec::new(), Vec::new());
    for host in first {
        match host {
            FirstHost::Healthy => healthy += 1,
            FirstHost::NotReady(what) => open.push(what.clone()),
            FirstHost::Unhealthy(what) => unhealthy.push(what.clone()),
            FirstHost::Unknown(what) => unknown.push(what.clone()),
            FirstHost::Failed(what) if record.failed.is_none() => record.failed = Some(what.clone()),
            FirstHost::Failed(_) => {}
        }
    }
    if let Some(failed) = record.failed.clone() {
        record.healthy_since = None;
        return hold(AfterReason::FirstHostFailed, failed, None);
    }
    if !unhealthy.is_empty() {
        record.healthy_since = None;
        return hold(AfterReason::FirstHostsNotReady, list(&unhealthy), None);
    }
    if healthy + open.len() + unknown.len() == 0 {
        unknown.push("no host with these labels has reported this application".to_owned());
    }
    let end = record.since.after(after.max_wait);
    if open.is_empty() && unknown.is_empty() {
        let since = *record.healthy_since.get_or_insert(now);
        let ready = since.after(after.healthy_for);
        let hosts = if healthy == 1 { "1 host is".to_owned() } else { format!("{healthy} hosts are") };
        if now >= ready {
            return AfterDecision::Apply(format!("{hosts} healthy with it"));
        }
        return hold(AfterReason::FirstHostsNew, format!("{hosts} healthy with it"), Some(ready));
    }
    record.healthy_since = None;
    let (reason, sentences) = if unknown.is_empty() {
        (AfterReason::FirstHostsNotReady, &open)
    } else {
        (AfterReason::FirstHostsUnknown, &unknown)
    };
    let message = list(sentences);
    match after.otherwise {
        Otherwise::Proceed if now >= end => {
            AfterDecision::Apply(format!("maxWait is over, and `else` is proceed: {message}"))
        }
        Otherwise::Hold if now >= end => {
            hold(reason, format!("{message}; maxWait is over, and `else` is hold"), None)
        }
        Otherwise::Proceed => hold(reason, message, Some(end)),
        Otherwise::Hold => hold(reason, message, None),
    }
}

fn list(sentences: &[String]) -> String {
    let named = sentences.iter().take(MOST_NAMED).cloned().collect::<Vec<_>>().join(", ");
    match sentences.len().saturating_sub(MOST_NAMED) {
        0 => named,
        more => format!("{named} and {more} more"),
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeMap, time::Duration};

    use super::*;
    use crate::{
        report::RepositoryReport,
        view::{LastReport, view},
    };

    const NOW: Timestamp = Timestamp(100_000_000);

    /// One report of the shop on `name`, heard at `at`.
    fn shop(name: &str, commit: &str, state: (SyncStatus, HealthStatus), at: Timestamp) -> LastReport {
        let id = |text: &str| CommitId::from_stored(text.repeat(40));
        let application = ApplicationReport {
            name: AppName::from("shop"),
            repository: "infra".to_owned(),
            sync: state.0,
            health: state.1,
            suspended: None,
            pinned: None,
            well: false,
            revision: Some(1),
            revision_commit: None,
            commit: Some(id(commit)),
            failed: None,
            images: None,
            failed_images: None,
            message: String::new(),
            drift: 0,
        };
        let repository = RepositoryReport {
            name: "infra".to_owned(),
            commit: Some(id(commit)),
            applications: 1,
            ..RepositoryReport::default()
        };
        let report = HostReport {
            host: name.to_owned(),
            instance: name.to_owned(),
            labels: BTreeMap::from([("ring".to_owned(), "canary".to_owned())]),
            repositories: vec![repository],
            applications: vec![application],
            ..HostReport::default()
        };
        LastReport { report: std::sync::Arc::new(report), received: at, conflict: None }
    }

    const GOOD: (SyncStatus, HealthStatus) = (SyncStatus::Synced, HealthStatus::Healthy);
    const SICK: (SyncStatus, HealthStatus) = (SyncStatus::Synced, HealthStatus::Degraded);
    const BUSY: (SyncStatus, HealthStatus) = (SyncStatus::Synced, HealthStatus::Progressing);
    const BACK: (SyncStatus, HealthStatus) = (SyncStatus::OutOfSync, HealthStatus::Healthy);

    /// An agent that waits for the first hosts.
    struct Waiting {
        after: After,
        labels: BTreeMap<String, String>,
        listed: Vec<HostIdentity>,
        missing: Vec<String>,
        commit: &'static str,
        stack: &'static str,
        images: WaitingImages,
        record: Option<AfterRecord>,
        is_pending: bool,
    }

    impl Waiting {
        fn new(otherwise: Otherwise) -> Self {
            let labels = BTreeMap::from([("ring".to_owned(), "canary".to_owned())]);
            let (healthy_for, max_wait) = (Duration::from_mins(10), Duration::from_hours(2));
            let after = After { labels, healthy_for, otherwise, max_wait };
            Self {
                after,
                labels: BTreeMap::new(),
                listed: Vec::new(),
                missing: Vec::new(),
                commit: "b",
                stack: "2",
                images: WaitingImages::default(),
                record: None,
                is_pending: false,
            }
        }

        /// The word and the end of the decision after so many minutes. `Apply` and nothing: it goes on.
        fn at(&mut self, minute: u64, reports: Option<Vec<LastReport>>) -> (String, Option<u64>) {
            let now = NOW.after(Duration::from_mins(minute));
            let hosts = reports.map(|reports| view(reports, &[], now));
            self.judge(now, hosts.as_deref())
        }

        fn judge(&mut self, now: Timestamp, hosts: Option<&[HostView]>) -> (String, Option<u64>) {
            let host = HostIdentity { name: "web-1".to_owned(), labels: self.labels.clone() };
            let commit = CommitId::from_stored(self.commit.repeat(40));
            let waiting = WaitingCommit {
                app: &AppName::from("shop"),
                after: &self.after,
                host: &host,
                listed: &self.listed,
                commit: &commit,
                stack: &StackHash(self.stack.to_owned()),
                images: &self.images,
            };
            let hosts = match (hosts, self.is_pending) {
                (_, true) => KnownHosts::Pending,
                (Some(hosts), false) => KnownHosts::Read { hosts, missing: &self.missing },
                (None, false) => KnownHosts::Unknown("the collector does not answer"),
            };
            let (record, decision) = decide_after(&waiting, self.record.as_ref(), hosts, now);
            self.record = record;
            match decision {
                AfterDecision::Apply(_) => ("Apply".to_owned(), None),
                AfterDecision::Hold(hold) => {
                    let minutes = |at: Timestamp| at.since(NOW).as_secs() / 60;
                    (hold.reason.to_string(), hold.until.map(minutes))
                }
            }
        }

        fn seen(
            &mut self,
            minute: u64,
            hosts: &[(&str, &str, (SyncStatus, HealthStatus))],
        ) -> (String, Option<u64>) {
            let now = NOW.after(Duration::from_mins(minute));
            let reports = hosts.iter().map(|(name, commit, state)| shop(name, commit, *state, now));
            self.at(minute, Some(reports.collect()))
        }
    }

    fn said(word: &str, until: Option<u64>) -> (String, Option<u64>) {
        (word.to_owned(), until)
    }

    #[test]
    fn degraded_first_host_is_named_with_the_waiting_commit() {
        let id = |text: &str| CommitId::from_stored(text.repeat(40));
        let mut last = shop("edge-1", "a", SICK, NOW);
        std::sync::Arc::make_mut(&mut last.report).applications[0].revision_commit = Some(id("b"));
        let hosts = view(vec![last], &[], NOW);
        let app = AppName::from("shop");
        let judged = judge(HostOrName::Seen(&hosts[0]), &app, &[id("b")], &WaitingImages::default());
        let Some(FirstHost::Unhealthy(text)) = judged else { panic!() };
        assert_eq!(text, format!("edge-1 is Degraded with {}", id("b").short()));
    }

    #[test]
    fn silent_first_host_is_named_with_the_command_that_forgets_it() {
        let hosts = view(vec![shop("edge-1", "b", GOOD, NOW)], &[], NOW.after(Duration::from_mins(30)));
        let commits = [CommitId::from_stored("b".repeat(40))];
        let app = AppName::from("shop");
        let judged = judge(HostOrName::Seen(&hosts[0]), &app, &commits, &WaitingImages::default());
        let Some(FirstHost::Unknown(text)) = judged else { panic!() };
        assert!(
            text.starts_with("edge-1 is Lost") && text.contains("driftless fleet remove edge-1"),
            "{text}"
        );
    }

    #[test]
    fn commit_is_applied_once_all_first_hosts_are_healthy() {
        let mut it = Waiting::new(Otherwise::Hold);
        assert_eq!(it.seen(0, &[("a", "a", GOOD), ("c", "a", GOOD)]), said("FirstHostsNotReady", None));
        assert_eq!(it.seen(5, &[("a", "b", BUSY), ("c", "b", GOOD)]), said("FirstHostsNotReady", None));
        assert_eq!(it.seen(6, &[("a", "b", GOOD), ("c", "b", GOOD)]), said("FirstHostsNew", Some(16)));
        assert_eq!(it.seen(15, &[("a", "b", GOOD), ("c", "b", GOOD)]), said("FirstHostsNew", Some(16)));
        assert_eq!(it.seen(16, &[("a", "b", GOOD), ("c", "b", GOOD)]), said("Apply", None));
    }

    #[test]
    fn time_starts_again_when_a_host_is_not_seen_healthy() {
        for interruption in [Some(BUSY), Some(SICK), Some(BACK), None] {
            let mut it = Waiting::new(Otherwise::Hold);
            it.seen(0, &[("a", "b", GOOD)]);
            let (word, _) = match interruption {
                Some(state) => it.seen(9, &[("a", "b", state)]),
                None => it.at(9, None),
            };
            assert_ne!(word, "Apply");
            assert_eq!(it.seen(11, &[("a", "b", GOOD)]), said("FirstHostsNew", Some(21)), "{interruption:?}");
        }
        // Somebody rolled the first host back.
        let mut it = Waiting::new(Otherwise::Hold);
        it.seen(0, &[("a", "b", GOOD)]);
        assert_eq!(it.seen(9, &[("a", "a", GOOD)]), said("FirstHostsNotReady", None));
        assert_eq!(it.seen(11, &[("a", "b", GOOD)]), said("FirstHostsNew", Some(21)));
    }

    #[test]
    fn commit_that_failed_on_a_first_host_is_held_for_good() {
        for otherwise in [Otherwise::Hold, Otherwise::Proceed] {
            let mut it = Waiting::new(otherwise);
            let mut failed = shop("a", "a", BACK, NOW);
            std::sync::Arc::make_mut(&mut failed.report).applications[0].failed =
                Some(CommitId::from_stored("b".repeat(40)));
            assert_eq!(it.at(0, Some(vec![failed])), said("FirstHostFailed", None));
            assert_eq!(it.seen(200, &[("a", "b", GOOD)]), said("FirstHostFailed", None));
            assert_eq!(it.at(300, None), said("FirstHostFailed", None));
            assert_eq!(it.at(9000, Some(Vec::new())), said("FirstHostFailed", None));
            (it.commit, it.stack) = ("c", "3");
            assert_eq!(it.seen(9001, &[("a", "c", GOOD)]), said("FirstHostsNew", Some(9011)));
        }
    }

    fn images(digests: &[&str]) -> Vec<String> {
        digests.iter().map(|digest| (*digest).to_owned()).collect()
    }

    /// An agent that has found the image `new` for the commit that it and the first host run, and the report of the first host.
    fn waiting_for_image(new: &str, change: impl FnOnce(&mut ApplicationReport)) -> (Waiting, LastReport) {
        let mut it = Waiting::new(Otherwise::Proceed);
        it.images =
            WaitingImages { all: BTreeSet::from([new.to_owned()]), new: BTreeSet::from([new.to_owned()]) };
        let mut report = shop("a", "b", GOOD, NOW);
        change(&mut std::sync::Arc::make_mut(&mut report.report).applications[0]);
        (it, report)
    }

    #[test]
    fn image_update_waits_until_a_first_host_runs_it() {
        let cases = [
            (Some(images(&["new", "other"])), GOOD, said("FirstHostsNew", Some(10))),
            (Some(images(&["old"])), GOOD, said("FirstHostsNotReady", Some(120))),
            (None, GOOD, said("FirstHostsUnknown", Some(120))),
            // It is degraded with the image of before, and the update may mend that.
            (Some(images(&["old"])), SICK, said("FirstHostsNotReady", Some(120))),
            (Some(images(&["new"])), SICK, said("FirstHostsNotReady", None)),
            (None, SICK, said("FirstHostsNotReady", None)),
        ];
        for (running, (sync, health), expected) in cases {
            let (mut it, report) = waiting_for_image("new", |application| {
                (application.sync, application.health) = (sync, health);
                application.images.clone_from(&running);
            });
            assert_eq!(it.at(0, Some(vec![report])), expected, "{running:?} {health:?}");
        }
    }

    #[test]
    fn failure_counts_for_the_images_that_it_had() {
        let failure = |failed: Option<Vec<String>>| {
            let (mut it, report) = waiting_for_image("new", |application| {
                application.sync = SyncStatus::OutOfSync;
                application.failed.clone_from(&application.commit);
                application.images = Some(images(&["old"]));
                application.failed_images = failed;
            });
            let word = it.at(0, Some(vec![report])).0;
            // The first host takes the next image, or looks well again after the same one.
            let (_, well) =
                waiting_for_image("new", |application| application.images = Some(images(&["new"])));
            (word, it.at(0, Some(vec![well])).0)
        };
        let words = |one: &str, other: &str| (one.to_owned(), other.to_owned());
        assert_eq!(failure(Some(images(&["new"]))), words("FirstHostFailed", "FirstHostFailed"));
        assert_eq!(failure(Some(images(&["bad"]))), words("FirstHostsNotReady", "FirstHostsNew"));
        assert_eq!(failure(None), words("FirstHostsNotReady", "FirstHostsNew"));
        // The commit alone waits here, and the first host failed with an image that this host does not have.
        let mut it = Waiting::new(Otherwise::Proceed);
        let mut failed = shop("a", "b", BACK, NOW);
        let application = &mut std::sync::Arc::make_mut(&mut failed.report).applications[0];
        application.failed.clone_from(&application.commit);
        application.failed_images = Some(images(&["bad"]));
        assert_eq!(it.at(0, Some(vec![failed])), said("FirstHostsNotReady", None));
    }

    #[test]
    fn unknown_and_unfinished_hosts_are_awaited_until_max_wait() {
        type Case = fn(&mut Waiting, u64) -> (String, Option<u64>);
        let cases: [(&str, Case); 7] = [
            ("FirstHostsUnknown", |it, minute| it.at(minute, None)),
            ("FirstHostsUnknown", |it, minute| it.at(minute, Some(Vec::new()))),
            ("FirstHostsUnknown", |it, minute| {
                it.at(minute, Some(vec![shop("a", "b", GOOD, Timestamp(NOW.0 - 100_000))]))
            }),
            ("FirstHostsUnknown", |it, minute| {
                it.listed = vec![HostIdentity { name: "a".to_owned(), labels: it.after.labels.clone() }];
                it.at(minute, Some(Vec::new()))
            }),
            ("FirstHostsUnknown", |it, minute| {
                let mut started = shop("a", "b", GOOD, NOW.after(Duration::from_mins(minute)));
                std::sync::Arc::make_mut(&mut started.report).applications.clear();
                it.at(minute, Some(vec![started]))
            }),
            ("FirstHostsNotReady", |it, minute| it.seen(minute, &[("a", "a", GOOD), ("c", "b", GOOD)])),
            ("FirstHostsNotReady", |it, minute| it.seen(minute, &[("a", "b", BUSY)])),
        ];
        for (index, (word, case)) in cases.into_iter().enumerate() {
            let mut it = Waiting::new(Otherwise::Proceed);
            assert_eq!(case(&mut it, 0), said(word, Some(120)), "{index}");
            assert_eq!(case(&mut it, 119), said(word, Some(120)), "{index}");
            assert_eq!(case(&mut it, 120), said("Apply", None), "{index}");
            let mut it = Waiting::new(Otherwise::Hold);
            assert_eq!(case(&mut it, 0), said(word, None), "{index}");
            assert_eq!(case(&mut it, 9000), said(word, None), "{index}");
        }
    }

    #[test]
    fn degraded_first_host_ends_no_wait() {
        let mut it = Waiting::new(Otherwise::Proceed);
        assert_eq!(it.seen(0, &[("a", "b", SICK)]), said("FirstHostsNotReady", None));
        assert_eq!(it.seen(500, &[("a", "b", SICK)]), said("FirstHostsNotReady", None));
        assert_eq!(it.seen(501, &[("a", "b", GOOD)]), said("FirstHostsNew", Some(511)));
    }

    #[test]
    fn first_host_with_a_suspended_job_counts_as_healthy() {
        const SUSPENDED: (SyncStatus, HealthStatus) = (SyncStatus::Synced, HealthStatus::Suspended);
        for (well, word) in [(false, "FirstHostsNotReady"), (true, "FirstHostsNew")] {
            let mut it = Waiting::new(Otherwise::Hold);
            let mut canary = shop("a", "b", SUSPENDED, NOW);
            std::sync::Arc::make_mut(&mut canary.report).applications[0].well = well;
            assert_eq!(it.at(0, Some(vec![canary])).0, word);
        }
    }

    #[test]
    fn commit_of_another_application_starts_no_new_wait() {
        let mut it = Waiting::new(Otherwise::Hold);
        it.seen(0, &[("a", "b", GOOD)]);
        // The first host has fetched a commit that this agent does not know yet, and that does not change the shop.
        let mut ahead = shop("a", "c", GOOD, NOW.after(Duration::from_mins(5)));
        std::sync::Arc::make_mut(&mut ahead.report).applications[0].revision_commit =
            Some(CommitId::from_stored("b".repeat(40)));
        assert_eq!(it.at(5, Some(vec![ahead])), said("FirstHostsNew", Some(10)));
        // And now this agent has it, and the first host has not.
        it.commit = "c";
        assert_eq!(it.seen(6, &[("a", "b", GOOD)]), said("FirstHostsNew", Some(10)));
        assert_eq!(it.seen(10, &[("a", "c", GOOD)]), said("Apply", None));
    }

    #[test]
    fn hosts_without_the_application_are_no_first_hosts() {
        let mut it = Waiting::new(Otherwise::Hold);
        let at = NOW.after(Duration::from_mins(1));
        let mut other = shop("c", "b", GOOD, at);
        std::sync::Arc::make_mut(&mut other.report).applications[0].name = AppName::from("mail");
        assert_eq!(it.at(1, Some(vec![shop("a", "b", GOOD, at), other])), said("FirstHostsNew", Some(11)));
        // Nor are hosts on which everything was released.
        let mut released = shop("c", "a", GOOD, at);
        let report = std::sync::Arc::make_mut(&mut released.report);
        (report.repositories, report.applications) = (Vec::new(), Vec::new());
        let both = |released: &LastReport| Some(vec![shop("a", "b", GOOD, at), released.clone()]);
        assert_eq!(it.at(1, both(&released)), said("FirstHostsUnknown", None));
        std::sync::Arc::make_mut(&mut released.report).released = true;
        assert_eq!(it.at(1, both(&released)), said("FirstHostsNew", Some(11)));
        // Nor are hosts with other labels.
        let mut elsewhere = shop("d", "a", SICK, at);
        std::sync::Arc::make_mut(&mut elsewhere.report).labels.clear();
        assert_eq!(
            it.at(1, Some(vec![shop("a", "b", GOOD, at), elsewhere.clone()])),
            said("FirstHostsNew", Some(11))
        );
        // Labels in Git count as well.
        it.listed = vec![HostIdentity { name: "d".to_owned(), labels: it.after.labels.clone() }];
        assert_eq!(
            it.at(1, Some(vec![shop("a", "b", GOOD, at), elsewhere])),
            said("FirstHostsNotReady", None)
        );
    }

    #[test]
    fn own_labels_of_a_host_win_over_those_in_git() {
        let ring = |name: &str, ring: &str| HostIdentity {
            name: name.to_owned(),
            labels: BTreeMap::from([("ring".to_owned(), ring.to_owned())]),
        };
        // Git says that the canary is none, and that another host is one.
        let mut it = Waiting::new(Otherwise::Hold);
        it.listed = vec![ring("a", "prod"), ring("d", "canary")];
        let mut other = shop("d", "a", SICK, NOW);
        std::sync::Arc::make_mut(&mut other.report).labels = ring("d", "prod").labels;
        let reports = vec![shop("a", "b", GOOD, NOW), other];
        assert_eq!(it.at(0, Some(reports.clone())), said("FirstHostsNew", Some(10)));
        // Nor does a host wait for itself, whether it reports or not.
        (it.labels, it.listed) = (ring("web-1", "prod").labels, vec![ring("web-1", "canary")]);
        assert_eq!(it.at(0, Some(reports.clone())), said("FirstHostsNew", Some(10)));
        let own = shop("web-1", "a", SICK, NOW);
        assert_eq!(it.at(0, Some([reports, vec![own]].concat())), said("FirstHostsNew", Some(10)));
    }

    #[test]
    fn hosts_that_cannot_be_read_are_unknown_first_hosts() {
        let good = || view(vec![shop("a", "b", GOOD, NOW)], &[], NOW);
        let unreadable = |report| HostView::unknown("c", "it is no gzip".to_owned(), report, None);
        let mut plain = shop("c", "b", GOOD, NOW);
        std::sync::Arc::make_mut(&mut plain.report).labels.clear();
        let canary = shop("c", "b", GOOD, NOW).report;
        for (report, word) in [
            (None, "FirstHostsUnknown"),
            (Some(canary), "FirstHostsUnknown"),
            (Some(plain.report), "FirstHostsNew"),
        ] {
            let mut it = Waiting::new(Otherwise::Hold);
            let hosts = [good(), vec![unreadable(report)]].concat();
            assert_eq!(it.judge(NOW, Some(&hosts)).0, word);
        }
        // A place that was never read may have other ones; a first host that is degraded counts more.
        let mut it = Waiting::new(Otherwise::Proceed);
        it.missing = vec!["the reports at s3://fleet cannot be read".to_owned()];
        assert_eq!(it.seen(0, &[("a", "b", GOOD)]), said("FirstHostsUnknown", Some(120)));
        assert_eq!(it.seen(121, &[("a", "b", SICK)]), said("FirstHostsNotReady", None));
    }

    #[test]
    fn first_host_waits_for_nobody() {
        let mut it = Waiting::new(Otherwise::Hold);
        it.labels = it.after.labels.clone();
        assert_eq!(it.at(0, None), said("Apply", None));
        assert_eq!(it.record, None);
    }

    #[test]
    fn nothing_is_decided_before_the_first_read() {
        let mut it = Waiting::new(Otherwise::Proceed);
        it.seen(0, &[("a", "b", SICK)]);
        it.is_pending = true;
        assert_eq!(it.at(121, None), said("FirstHostsUnknown", None));
        it.is_pending = false;
        assert_eq!(it.seen(121, &[("a", "b", SICK)]), said("FirstHostsNotReady", None));
        // A restart of the agent does not start the time again.
        it.seen(122, &[("a", "b", GOOD)]);
        it.is_pending = true;
        it.at(131, None);
        it.is_pending = false;
        assert_eq!(it.seen(132, &[("a", "b", GOOD)]), said("Apply", None));
    }

    #[test]
    fn clock_that_is_set_back_makes_the_wait_no_longer() {
        let mut it = Waiting::new(Otherwise::Proceed);
        it.seen(1000, &[("a", "b", GOOD)]);
        assert_eq!(it.seen(0, &[("a", "b", GOOD)]), said("FirstHostsNew", Some(10)));
        assert_eq!(it.at(1, None), said("FirstHostsUnknown", Some(120)));
    }
}
