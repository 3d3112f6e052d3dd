//! The hosts that are behind: another host has reported a newer commit of the same repository and branch.
//!
//! The committer's times decide which commit is newer, since they do not depend on the clocks of hosts. Each host counts the
//! commits in the history of its own: as long as a branch only grows, the history of the older commit is a part of that of the
//! newer one, and the difference is the number of commits between the two.

use std::collections::BTreeMap;

use driftless_model::{CommitId, Timestamp};
use serde::{Deserialize, Serialize};

use crate::report::{HostReport, RepositoryReport};

/// A repository whose commit on a host is older than that of another host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BehindCommit {
    /// The name of the repository.
    pub repository: String,
    /// The newest commit that a host has reported.
    pub newest: CommitId,
    /// The number of commits up to the newest one. `None`: it is not known, as after the branch was rewritten.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commits: Option<u64>,
}

/// A repository by name, with the branch that is followed: hosts of one branch are compared.
type Followed<'a> = (&'a str, &'a str);

/// The newest commit of a branch.
#[derive(Clone, Copy)]
struct Newest<'a> {
    time: Timestamp,
    commit: &'a CommitId,
    history_length: Option<u64>,
}

/// The repositories in which each host is behind, in the order of the reports. A host without a report is not behind.
pub(crate) fn behind(reports: &[Option<&HostReport>]) -> Vec<Vec<BehindCommit>> {
    let mut newest: BTreeMap<Followed<'_>, Newest<'_>> = BTreeMap::new();
    for repository in reports.iter().flatten().flat_map(|report| &report.repositories) {
        let Some(dated) = dated(repository) else { continue };
        let known = newest.entry(followed(repository)).or_insert(dated);
        if dated.time > known.time {
            *known = dated;
        }
    }
    let behind_of = |report: Option<&HostReport>| {
        let repositories = report.into_iter().flat_map(|report| &report.repositories);
        let behind = repositories.filter_map(|repository| {
            let (own, newest) = (dated(repository)?, newest.get(&followed(repository))?);
            (own.time < newest.time && own.commit != newest.commit).then(|| BehindCommit {
                repository: repository.name.clone(),
                newest: newest.commit.clone(),
                commits: between(own.history_length, newest.history_length),
            })
        });
        behind.collect()
    };
    reports.iter().copied().map(behind_of).collect()
}

/// The number of commits between two, of which the second is newer.
fn between(older: Option<u64>, newer: Option<u64>) -> Option<u64> {
    newer?.checked_sub(older?).filter(|commits| *commits > 0)
}

fn followed(repository: &RepositoryReport) -> Followed<'_> {
    (&repository.name, &repository.reference)
}

/// The commit with its time, if both are known.
fn dated(repository: &RepositoryReport) -> Option<Newest<'_>> {
    let (time, commit) = (repository.commit_time?, repository.commit.as_ref()?);
    Some(Newest { time, commit, history_length: repository.history_length })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(name: &str, reference: &str, (commit, length): (&str, u64), time: Option<u64>) -> HostReport {
        let repository = RepositoryReport {
            name: "infra".to_owned(),
            reference: reference.to_owned(),
            commit: Some(CommitId::from_stored(commit)),
            commit_time: time.map(Timestamp),
            history_length: (length > 0).then_some(length),
            ..RepositoryReport::default()
        };
        HostReport { host: name.to_owned(), repositories: vec![repository], ..HostReport::default() }
    }

    #[test]
    fn host_with_an_older_commit_of_a_branch_is_behind() {
        let hosts = [
            host("new", "main", ("b", 12), Some(2)),
            host("old", "main", ("a", 9), Some(1)),
            host("same-time", "main", ("c", 12), Some(2)),
            host("staging", "next", ("a", 9), Some(1)),
            host("old-agent", "main", ("a", 0), None),
            host("uncounted", "main", ("a", 0), Some(1)),
            host("rewritten", "main", ("d", 30), Some(1)),
        ];
        let mut reports: Vec<Option<&HostReport>> = hosts.iter().map(Some).collect();
        reports.push(None);
        let by = |commits| {
            let (repository, newest) = ("infra".to_owned(), CommitId::from_stored("b"));
            vec![BehindCommit { repository, newest, commits }]
        };
        let none = Vec::new;
        let expected = [none(), by(Some(3)), none(), none(), none(), by(None), by(None), none()];
        assert_eq!(behind(&reports), expected);
    }
}
