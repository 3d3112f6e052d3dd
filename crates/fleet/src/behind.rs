//! The hosts that are behind: another host has reported a newer commit of the same repository and branch.
//!
//! Reports have no Git history, so the number of commits between the two is not known. Which commit is newer is decided by
//! the committer's times, which do not depend on the clocks of hosts.

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
}

/// A repository by name, with the branch that is followed: hosts of one branch are compared.
type Followed<'a> = (&'a str, &'a str);

/// The repositories in which each host is behind, in the order of the reports. A host without a report is not behind.
pub(crate) fn behind(reports: &[Option<&HostReport>]) -> Vec<Vec<BehindCommit>> {
    let mut newest: BTreeMap<Followed<'_>, (Timestamp, &CommitId)> = BTreeMap::new();
    for repository in reports.iter().flatten().flat_map(|report| &report.repositories) {
        let Some((time, commit)) = dated(repository) else { continue };
        let known = newest.entry(followed(repository)).or_insert((time, commit));
        if time > known.0 {
            *known = (time, commit);
        }
    }
    let behind_of = |report: Option<&HostReport>| {
        let repositories = report.into_iter().flat_map(|report| &report.repositories);
        let behind = repositories.filter_map(|repository| {
            let (time, commit) = dated(repository)?;
            let (newest_time, newest) = newest.get(&followed(repository))?;
            (time < *newest_time && commit != *newest)
                .then(|| BehindCommit { repository: repository.name.clone(), newest: (*newest).clone() })
        });
        behind.collect()
    };
    reports.iter().copied().map(behind_of).collect()
}

fn followed(repository: &RepositoryReport) -> Followed<'_> {
    (&repository.name, &repository.reference)
}

/// The commit with its time, if both are known.
fn dated(repository: &RepositoryReport) -> Option<(Timestamp, &CommitId)> {
    Some((repository.commit_time?, repository.commit.as_ref()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(name: &str, reference: &str, commit: &str, time: Option<u64>) -> HostReport {
        let repository = RepositoryReport {
            name: "infra".to_owned(),
            reference: reference.to_owned(),
            commit: Some(CommitId::from_stored(commit)),
            commit_time: time.map(Timestamp),
            ..RepositoryReport::default()
        };
        HostReport { host: name.to_owned(), repositories: vec![repository], ..HostReport::default() }
    }

    #[test]
    fn host_with_an_older_commit_of_a_branch_is_behind() {
        let hosts = [
            host("new", "main", "b", Some(2)),
            host("old", "main", "a", Some(1)),
            host("same-time", "main", "c", Some(2)),
            host("staging", "next", "a", Some(1)),
            host("old-agent", "main", "a", None),
        ];
        let mut reports: Vec<Option<&HostReport>> = hosts.iter().map(Some).collect();
        reports.push(None);
        let newest = BehindCommit { repository: "infra".to_owned(), newest: CommitId::from_stored("b") };
        let none = Vec::new;
        assert_eq!(behind(&reports), [none(), vec![newest], none(), none(), none(), none()]);
    }
}
