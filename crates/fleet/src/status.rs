//! The fleet as the API shows it.

use driftless_model::Timestamp;
use serde::{Deserialize, Serialize};

use crate::view::HostView;

/// The answer of `GET /api/v1/fleet/hosts`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FleetStatus {
    /// Whether this agent accepts the reports of other hosts.
    pub accepts: bool,
    /// The hosts that have reported or are expected, worst first.
    pub hosts: Vec<HostView>,
    /// The places that this agent reports to.
    pub targets: Vec<TargetStatus>,
    /// The place where this agent reads the reports of hosts, if it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<SourceStatus>,
}

impl FleetStatus {
    /// A sentence if hosts may be missing, since the place of their reports was not read yet, or has others. With names: only if
    /// one of these hosts is missing.
    pub fn unread(&self, only: &[String]) -> Option<String> {
        let problem = self.source.as_ref().and_then(SourceStatus::incomplete)?;
        let is_seen = |name: &String| self.hosts.iter().any(|host| host.name == *name);
        (only.is_empty() || !only.iter().all(is_seen)).then_some(problem)
    }
}

/// The place where an agent reads the reports of hosts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SourceStatus {
    /// Its URL.
    pub from: String,
    /// When it was last read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_read: Option<Timestamp>,
    /// Why it, or a report in it, could not be read; empty after a success.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub error: String,
    /// Why the place may have hosts that are not shown; empty if it has none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub missing: String,
}

impl SourceStatus {
    /// A sentence if the place may have hosts that are not shown.
    pub fn incomplete(&self) -> Option<String> {
        match (self.last_read, self.missing.as_str()) {
            (None, _) => Some(self.problem()),
            (Some(_), "") => None,
            (Some(_), missing) => Some(format!("the hosts at {} are not all known: {missing}", self.from)),
        }
    }

    /// A sentence that the place cannot be read now.
    pub fn problem(&self) -> String {
        match self.error.as_str() {
            "" => format!("the reports at {} have not been read yet", self.from),
            error => format!("the reports at {} cannot be read: {error}", self.from),
        }
    }
}

/// One place that the agent reports to: another agent, a bucket or a folder.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TargetStatus {
    /// The URL in the configuration.
    pub to: String,
    /// When it last took a report or a heartbeat.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_sent: Option<Timestamp>,
    /// Why the last try failed; empty after a success.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub error: String,
    /// Something that somebody should know although reports are taken, such as a second machine with the name of the host.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub warning: String,
    /// Whether reports to it are signed with the key of the agent.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub signed: bool,
    /// Whether it fails until somebody does something, as when the collector is full or refuses the token.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub blocked: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_may_be_missing_until_the_source_is_read() {
        let nas = HostView::unknown("nas", String::new(), None, None);
        let source = SourceStatus { from: "s3://fleet".to_owned(), ..SourceStatus::default() };
        let mut status = FleetStatus { hosts: vec![nas], source: Some(source), ..FleetStatus::default() };
        let unread = Some("the reports at s3://fleet have not been read yet".to_owned());
        assert_eq!(status.unread(&[]), unread);
        assert_eq!(status.unread(&["nas".to_owned(), "web".to_owned()]), unread);
        assert_eq!(status.unread(&["nas".to_owned()]), None);
        status.source.as_mut().unwrap().last_read = Some(Timestamp(1));
        assert_eq!(status.unread(&[]), None);
        status.source.as_mut().unwrap().missing = "it has more than 1000 hosts".to_owned();
        let unread =
            Some("the hosts at s3://fleet are not all known: it has more than 1000 hosts".to_owned());
        assert_eq!((status.unread(&[]), status.unread(&["nas".to_owned()])), (unread, None));
    }
}
