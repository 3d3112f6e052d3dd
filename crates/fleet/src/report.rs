//! The report of a host: its whole state, without values and logs.

use std::{collections::BTreeMap, time::Duration};

use driftless_model::{
    AppName, CommitId, HealthStatus, HostIdentity, HostRequestKind, HostRequestResult, SyncStatus, Timestamp,
    is_unprintable, printable,
};
use serde::{Deserialize, Serialize};

/// The number of the form of a report. A collector refuses others.
pub const SCHEMA: u32 = 1;

/// The largest report, in bytes. A collector and the reader of a bucket or folder refuse a larger one.
pub const LARGEST_REPORT: u64 = 4 << 20;

/// The largest report, compressed as it is sent or stored, in bytes.
pub const LARGEST_COMPRESSED: usize = 512 * 1024;

/// The most repositories or labels of one host.
const MOST_PARTS: usize = 100;

/// The most applications of one host.
const MOST_APPLICATIONS: usize = 2000;

/// The longest text, in characters.
const LONGEST_TEXT: usize = 500;

/// The longest name in a message, in characters.
const LONGEST_NAME: usize = 253;

/// The longest time between two heartbeats, in seconds, so that a host is stale before it is lost.
const SLOWEST: u64 = 180;

/// The state of one host: the body of `PUT /api/v1/fleet/hosts/{name}`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HostReport {
    /// [`SCHEMA`].
    pub schema: u32,
    /// The name of the host, unique in the fleet.
    pub host: String,
    /// Labels of the host, such as `role: web`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Made once in the state directory of the agent, so that two machines with one name are known apart.
    pub instance: String,
    /// The version of the agent.
    pub agent_version: String,
    /// The version of the engine. Empty if it is not known, as in reports of older agents.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub engine_version: String,
    /// The address of the host's own page, if its configuration has one.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub page: String,
    /// The time between two heartbeats, in seconds.
    pub every: u64,
    /// In the order of the configuration.
    #[serde(default)]
    pub repositories: Vec<RepositoryReport>,
    /// By name.
    #[serde(default)]
    pub applications: Vec<ApplicationReport>,
    /// Whether a user has released everything on the host, so that it follows no repository and manages nothing.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub released: bool,
    /// The results of the last requests of the collector.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub requests: Vec<HostRequestResult>,
    /// The words of the requests that the host allows a collector. Later releases may have others.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub allows: Vec<String>,
    /// The problems of the agent itself, one sentence each. None in reports of older agents.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub problems: Vec<String>,
}

/// One followed repository.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RepositoryReport {
    /// The name in the configuration.
    pub name: String,
    /// The newest commit that was read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit: Option<CommitId>,
    /// The committer's time of this commit. `None` in reports of older agents.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit_time: Option<Timestamp>,
    /// The number of commits in the history of this commit, with itself. `None`: it is not known, as in reports of older agents.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub history_length: Option<u64>,
    /// The branch, tag or commit that the host follows. Empty in reports of older agents.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reference: String,
    /// The number of applications that this commit has for the host.
    #[serde(default)]
    pub applications: usize,
    /// When it was last fetched with success, by the clock of the host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fetched_at: Option<Timestamp>,
    /// The error, such as that of a failed fetch. Empty if there is none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
}

/// One application.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ApplicationReport {
    /// The name of the application.
    pub name: AppName,
    /// The name of its repository.
    pub repository: String,
    /// Whether it is equal to Git.
    pub sync: SyncStatus,
    /// Whether it works.
    pub health: HealthStatus,
    /// Whether Git or a user has suspended it, and not only a Job or a rollout of it. `None` in reports of older agents.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suspended: Option<bool>,
    /// Whether a user keeps it at an older revision. `None` in reports of older agents.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pinned: Option<bool>,
    /// Whether it runs as Git and its users ask for, also if Jobs of it are suspended or rollouts paused. `false` in reports of older
    /// agents, also for one that is healthy: see [`ApplicationReport::is_healthy`].
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub well: bool,
    /// The number of the current revision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<u64>,
    /// The commit of that revision: the newest one of the repository when it began, or after a rollback that of the older revision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision_commit: Option<CommitId>,
    /// The newest commit that the host is equal to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit: Option<CommitId>,
    /// The newest commit, if it failed on the host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed: Option<CommitId>,
    /// The images that it runs, by the first digits of their digests. `None` in reports of older agents.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub images: Option<Vec<String>>,
    /// The images that a registry had for the failed commit. `None`: it is not known, as in reports of older agents.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed_images: Option<Vec<String>>,
    /// The reason of the state, masked. Empty if all is well.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// The number of differences from Git.
    #[serde(default)]
    pub drift: usize,
}

impl ApplicationReport {
    /// Whether it counts as healthy for those that wait for it: Jobs that are suspended and rollouts that are paused on purpose
    /// do not keep it from that.
    pub fn is_healthy(&self) -> bool {
        match self.health {
            HealthStatus::Healthy => true,
            HealthStatus::Suspended => self.well,
            HealthStatus::Progressing
            | HealthStatus::Missing
            | HealthStatus::Degraded
            | HealthStatus::Unknown => false,
        }
    }

    /// The commit of its current revision. Older agents report only the newest one that the host is equal to.
    pub fn deployed_commit(&self) -> Option<&CommitId> {
        self.revision_commit.as_ref().or(self.commit.as_ref())
    }

    /// Whether it works and is as Git says, without any difference.
    pub fn is_well(&self) -> bool {
        self.sync == SyncStatus::Synced && self.is_healthy() && self.drift == 0
    }
}

/// A report that a collector refuses.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidReport {
    /// It has another form.
    #[error(
        "the report has schema {0}, and this collector reads schema {SCHEMA}: update the older one of the two agents"
    )]
    Schema(u32),
    /// The body and the path name different hosts.
    #[error("the report is that of host `{0}`, and the path names another host")]
    OtherHost(String),
    /// The name of the host is none.
    #[error(
        "`{0}` is no name of a host: use letters, digits, `.`, `-` and `_`, beginning with a letter or digit"
    )]
    Name(String),
    /// Something is missing, too long or too much.
    #[error("`{field}` {problem}")]
    Field {
        /// The field of the report.
        field: &'static str,
        /// The rule that it breaks.
        problem: String,
    },
}

impl Default for HostReport {
    fn default() -> Self {
        Self {
            schema: SCHEMA,
            host: String::new(),
            labels: BTreeMap::new(),
            instance: String::new(),
            agent_version: String::new(),
            engine_version: String::new(),
            page: String::new(),
            every: 30,
            repositories: Vec::new(),
            applications: Vec::new(),
            released: false,
            requests: Vec::new(),
            allows: Vec::new(),
            problems: Vec::new(),
        }
    }
}

impl HostReport {
    /// Whether the host allows a collector this kind of request.
    pub fn allows(&self, kind: HostRequestKind) -> bool {
        self.allows.iter().any(|word| word == kind.word())
    }

    /// The time between two heartbeats.
    pub fn heartbeat(&self) -> Duration {
        Duration::from_secs(self.every)
    }

    /// A sentence if the report has no repository yet, as just after a start of the agent. One that manages nothing has none for
    /// good.
    pub(crate) fn unread(&self) -> Option<String> {
        let is_early = self.repositories.is_empty() && !self.released;
        is_early.then(|| "the agent has just started".to_owned())
    }

    /// The number of differences from Git of all applications.
    pub fn drift(&self) -> usize {
        self.applications.iter().map(|application| application.drift).fold(0, usize::saturating_add)
    }

    /// The applications that are not well: see [`ApplicationReport::is_well`].
    pub fn unwell(&self) -> impl Iterator<Item = &ApplicationReport> {
        self.applications.iter().filter(|application| !application.is_well())
    }

    /// The same without the times of fetches, which change all the time and are no news.
    #[must_use]
    pub fn without_times(&self) -> Self {
        let mut report = self.clone();
        report.repositories.iter_mut().for_each(|repository| repository.fetched_at = None);
        report
    }

    /// The same without the times of fetches and the results of requests.
    #[must_use]
    pub fn without_results(&self) -> Self {
        Self { requests: Vec::new(), ..self.without_times() }
    }

    /// A sentence if not all applications of the repository are in the report, as just after a start of the agent. A
    /// repository that was not read yet may have any.
    pub fn unobserved(&self, repository: &RepositoryReport) -> Option<String> {
        if repository.commit.is_none() {
            return Some(format!("{} has not been read yet", repository.name));
        }
        let is_of_it = |application: &&ApplicationReport| application.repository == repository.name;
        let observed = self.applications.iter().filter(is_of_it).count();
        let (all, name) = (repository.applications, &repository.name);
        (observed < all).then(|| format!("{observed} of {all} applications of {name} are observed"))
    }

    /// The part that other hosts may know: no messages, and only these applications. `None`: all.
    #[must_use]
    pub fn for_peers(mut self, wanted: Option<&[&str]>) -> Self {
        let repositories = std::mem::take(&mut self.repositories);
        let missing: Vec<usize> = repositories
            .iter()
            .map(|repository| {
                let observed = self.applications.iter().filter(|it| it.repository == repository.name);
                repository.applications.saturating_sub(observed.count())
            })
            .collect();
        if let Some(wanted) = wanted {
            self.applications.retain(|application| wanted.contains(&application.name.as_str()));
        }
        // Applications that are left out are not missing.
        for (mut repository, missing) in repositories.into_iter().zip(missing) {
            let kept = self.applications.iter().filter(|it| it.repository == repository.name).count();
            repository.applications = kept + missing;
            self.repositories.push(repository);
        }
        self.requests.clear();
        self.allows.clear();
        self.problems.clear();
        self.page.clear();
        for message in self.messages().filter(|message| !message.is_empty()) {
            "it has a problem".clone_into(message);
        }
        self
    }

    /// Cuts long messages and replaces what is no text in them, so that every collector takes the report.
    #[must_use]
    pub fn within_limits(mut self) -> Self {
        for text in self.messages() {
            *text = printable(text);
            if text.chars().count() > LONGEST_TEXT {
                *text = text.chars().take(LONGEST_TEXT - 1).chain(['…']).collect();
            }
        }
        let references = self.repositories.iter_mut().map(|repository| &mut repository.reference);
        for text in references.chain([&mut self.engine_version]) {
            *text = printable(text).chars().take(LONGEST_TEXT).collect();
        }
        if !is_page(&self.page) {
            self.page.clear();
        }
        self.applications.truncate(MOST_APPLICATIONS);
        self.repositories.truncate(MOST_PARTS);
        self.problems.truncate(MOST_PARTS);
        self
    }

    /// Checks a report from elsewhere for the host `name`.
    ///
    /// # Errors
    ///
    /// If it has another schema or name, or is too large.
    pub fn check(&self, name: &str) -> Result<(), InvalidReport> {
        if self.schema != SCHEMA {
            return Err(InvalidReport::Schema(self.schema));
        }
        if !HostIdentity::is_name(name) {
            return Err(InvalidReport::Name(name.chars().take(LONGEST_NAME).collect()));
        }
        if self.host != name {
            return Err(InvalidReport::OtherHost(self.host.chars().take(LONGEST_NAME).collect()));
        }
        let wrong = |field, problem: &str| Err(InvalidReport::Field { field, problem: problem.to_owned() });
        if !HostIdentity::is_name(&self.instance) {
            return wrong("instance", "must be letters and digits");
        }
        if !(1..=SLOWEST).contains(&self.every) {
            return wrong("every", &format!("must be from 1 to {SLOWEST} seconds"));
        }
        if self.applications.len() > MOST_APPLICATIONS {
            return wrong("applications", &format!("has more than {MOST_APPLICATIONS} entries"));
        }
        if self.requests.len() > MOST_PARTS || self.allows.len() > MOST_PARTS {
            return wrong("requests", &format!("or `allows` has more than {MOST_PARTS} entries"));
        }
        if self.problems.len() > MOST_PARTS {
            return wrong("problems", &format!("has more than {MOST_PARTS} entries"));
        }
        if self.repositories.len() > MOST_PARTS || self.labels.len() > MOST_PARTS {
            return wrong("repositories", &format!("or `labels` has more than {MOST_PARTS} entries"));
        }
        if !is_page(&self.page) {
            return wrong("page", "must be an http or https address");
        }
        let is_long = |text: &str| text.chars().count() > LONGEST_TEXT;
        let repositories = self.repositories.iter().flat_map(|repository| {
            let commit = repository.commit.as_ref().map_or("", CommitId::as_str);
            let reference = repository.reference.as_str();
            [repository.name.as_str(), repository.message.as_str(), commit, reference]
        });
        let applications = self.applications.iter().flat_map(|application| {
            let commit = application.commit.as_ref().map_or("", CommitId::as_str);
            let failed = application.failed.as_ref().map_or("", CommitId::as_str);
            let changed = application.revision_commit.as_ref().map_or("", CommitId::as_str);
            let names = [application.name.as_str(), application.repository.as_str()];
            let images = application.images.iter().chain(&application.failed_images).flatten();
            let images = images.map(String::as_str);
            names.into_iter().chain([application.message.as_str(), commit, failed, changed]).chain(images)
        });
        let labels = self.labels.iter().flat_map(|(label, value)| [label.as_str(), value.as_str()]);
        let texts = repositories.chain(applications).chain(labels).chain([self.agent_version.as_str()]);
        let texts = texts.chain([self.engine_version.as_str(), self.page.as_str()]);
        let requests = self.requests.iter().flat_map(|it| [it.id.as_str(), it.message.as_str()]);
        let words = self.allows.iter().chain(&self.problems).map(String::as_str);
        let texts = texts.chain(requests).chain(words);
        if texts.clone().any(is_long) {
            return wrong("message", &format!("or another text has more than {LONGEST_TEXT} characters"));
        }
        if texts.clone().any(|text| text.chars().any(is_unprintable)) {
            return wrong("labels", "or another text has characters that are no text");
        }
        Ok(())
    }

    fn messages(&mut self) -> impl Iterator<Item = &mut String> {
        let repositories = self.repositories.iter_mut().map(|repository| &mut repository.message);
        let applications = self.applications.iter_mut().map(|application| &mut application.message);
        let requests = self.requests.iter_mut().map(|result| &mut result.message);
        repositories.chain(applications).chain(requests).chain(&mut self.problems)
    }
}

/// Whether a text may be the address of a page: a link to it runs no script. It may be empty.
fn is_page(text: &str) -> bool {
    let is_web = text.starts_with("https://") || text.starts_with("http://");
    text.is_empty() || is_web && text.len() <= LONGEST_TEXT && !text.contains(char::is_whitespace)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> HostReport {
        HostReport { host: "nas".to_owned(), instance: "a1".to_owned(), ..HostReport::default() }
    }

    #[test]
    fn foreign_report_is_checked() {
        assert_eq!(report().check("nas"), Ok(()));
        assert_eq!(report().check("web"), Err(InvalidReport::OtherHost("nas".to_owned())));
        assert_eq!(HostReport { schema: 2, ..report() }.check("nas"), Err(InvalidReport::Schema(2)));
        let odd = HostReport { host: "../nas".to_owned(), ..report() };
        assert!(matches!(odd.check("../nas"), Err(InvalidReport::Name(_))));
        for wrong in [
            HostReport { every: 0, ..report() },
            HostReport { every: 181, ..report() },
            HostReport { instance: String::new(), ..report() },
            HostReport { labels: BTreeMap::from([("role".to_owned(), "\u{1b}[31m".to_owned())]), ..report() },
            HostReport { repositories: vec![RepositoryReport::default(); 101], ..report() },
            HostReport { agent_version: "1".repeat(501), ..report() },
            HostReport { allows: vec!["sync".to_owned(); 101], ..report() },
            HostReport { allows: vec!["\u{1b}[2J".to_owned()], ..report() },
            HostReport { problems: vec!["\u{1b}[2J".to_owned()], ..report() },
            HostReport { problems: vec![String::new(); 101], ..report() },
            HostReport { agent_version: "1\u{1b}[2J".to_owned(), ..report() },
            HostReport { page: "javascript:alert(1)".to_owned(), ..report() },
            HostReport { engine_version: "1\u{1b}[2J".to_owned(), ..report() },
        ] {
            assert!(matches!(wrong.check("nas"), Err(InvalidReport::Field { .. })), "{wrong:?}");
        }
    }

    #[test]
    fn long_messages_are_cut_before_they_are_sent() {
        let repository = RepositoryReport { message: "é\n".repeat(900), ..RepositoryReport::default() };
        let report = HostReport { repositories: vec![repository; 200], ..report() }.within_limits();
        assert_eq!(report.check("nas"), Ok(()));
        assert!(report.repositories[0].message.ends_with('…'));
    }

    #[test]
    fn time_of_a_fetch_is_no_news() {
        let repository =
            |at| RepositoryReport { fetched_at: Some(Timestamp(at)), ..RepositoryReport::default() };
        let at = |at| HostReport { repositories: vec![repository(at)], ..report() };
        assert_ne!(at(1), at(2));
        assert_eq!(at(1).without_times(), at(2).without_times());
    }

    #[test]
    fn later_fields_are_ignored() {
        let mut value = serde_json::to_value(report()).unwrap();
        value["weather"] = serde_json::json!("fine");
        assert_eq!(serde_json::from_value::<HostReport>(value).unwrap(), report());
    }
}
