//! Commit statuses that are posted or to be posted. They survive the process, so that none is posted twice and none is
//! lost. The store posts nothing.

use std::collections::BTreeSet;

use driftless_model::CommitId;
use rusqlite::params;

use crate::{
    error::{Durability, Error},
    store::Store,
};

/// The number of commits that are kept for each context.
const MAX_COMMITS: i64 = 10;

/// The beginning of the description that ends a pending status.
const SUPERSEDED: &str = "superseded by ";

/// The status of one commit in one context.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredStatus {
    /// The commit's id.
    pub commit: CommitId,
    /// Such as `driftless/shop`.
    pub context: String,
    /// `pending`, `success`, `failure` or `error`.
    pub state: String,
    /// Why, in words.
    pub description: String,
}

impl StoredStatus {
    /// Whether it only ends a pending status, because its context has one of a newer commit.
    pub fn is_superseded(&self) -> bool {
        self.state == "error" && self.description.starts_with(SUPERSEDED)
    }
}

impl Store {
    /// Stores the status of a commit. Pending statuses of other commits in its context are ended, since no later status will
    /// end them. False: the status was stored already.
    pub fn set_status(&self, repository: &str, status: &StoredStatus) -> Result<bool, Error> {
        let StoredStatus { commit, context, state, description } = status;
        self.write("a commit status", Durability::Process, |transaction| {
            let known: i64 = transaction
                .prepare_cached(
                    "SELECT COUNT(*) FROM statuses WHERE repository = ?1 AND context = ?2 AND commit_id = ?3 \
                     AND state = ?4 AND description = ?5",
                )?
                .query_row(params![repository, context, commit.as_str(), state, description], |row| row.get(0))?;
            if known > 0 {
                return Ok(false);
            }
            let superseded = format!("{SUPERSEDED}{}", commit.short());
            // A pending status that was never posted needs no end.
            transaction
                .prepare_cached(
                    "DELETE FROM statuses WHERE repository = ?1 AND context = ?2 AND commit_id <> ?3 AND \
                     state = 'pending' AND told = 0",
                )?
                .execute(params![repository, context, commit.as_str()])?;
            transaction
                .prepare_cached(
                    "UPDATE statuses SET state = 'error', description = ?4, sent = 0 WHERE repository = ?1 AND \
                     context = ?2 AND commit_id <> ?3 AND state = 'pending'",
                )?
                .execute(params![repository, context, commit.as_str(), superseded])?;
            transaction
                .prepare_cached(
                    "INSERT INTO statuses (repository, context, commit_id, state, description, sent, told) \
                     VALUES (?1, ?2, ?3, ?4, ?5, 0, 0) ON CONFLICT (repository, context, commit_id) DO UPDATE \
                     SET state = ?4, description = ?5, sent = 0",
                )?
                .execute(params![repository, context, commit.as_str(), state, description])?;
            transaction
                .prepare_cached(
                    "DELETE FROM statuses WHERE repository = ?1 AND context = ?2 AND sequence <= (SELECT sequence \
                     FROM statuses WHERE repository = ?1 AND context = ?2 ORDER BY sequence DESC LIMIT 1 OFFSET ?3)",
                )?
                .execute(params![repository, context, MAX_COMMITS])?;
            Ok(true)
        })
    }

    /// Whether a commit has a status in this context.
    pub fn has_status(&self, repository: &str, context: &str, commit: &CommitId) -> Result<bool, Error> {
        self.read("the commit statuses", |connection| {
            let known: i64 = connection
                .prepare_cached(
                    "SELECT COUNT(*) FROM statuses WHERE repository = ?1 AND context = ?2 AND commit_id = ?3",
                )?
                .query_row(params![repository, context, commit.as_str()], |row| row.get(0))?;
            Ok(known > 0)
        })
    }

    /// The statuses that are not posted yet, oldest first.
    pub fn unposted_statuses(&self, repository: &str) -> Result<Vec<StoredStatus>, Error> {
        self.read("the commit statuses", |connection| {
            let statuses = connection
                .prepare_cached(
                    "SELECT commit_id, context, state, description FROM statuses WHERE repository = ?1 AND \
                     sent = 0 ORDER BY sequence",
                )?
                .query_map(params![repository], |row| {
                    Ok(StoredStatus {
                        commit: CommitId::from_stored(row.get::<_, String>(0)?),
                        context: row.get(1)?,
                        state: row.get(2)?,
                        description: row.get(3)?,
                    })
                })?
                .collect::<Result<_, _>>()?;
            Ok(statuses)
        })
    }

    /// Removes the statuses that are not posted yet, of all repositories but these.
    pub fn remove_other_statuses(&self, repositories: &BTreeSet<&str>) -> Result<(), Error> {
        self.write("the commit statuses", Durability::Process, |transaction| {
            let unposted: Vec<String> = transaction
                .prepare_cached("SELECT DISTINCT repository FROM statuses WHERE sent = 0")?
                .query_map([], |row| row.get(0))?
                .collect::<Result<_, _>>()?;
            for repository in unposted.iter().filter(|name| !repositories.contains(name.as_str())) {
                transaction
                    .prepare_cached("DELETE FROM statuses WHERE repository = ?1 AND sent = 0")?
                    .execute(params![repository])?;
            }
            Ok(())
        })
    }

    /// Marks a status as posted, unless it has changed in the meantime.
    pub fn mark_posted(&self, repository: &str, status: &StoredStatus) -> Result<(), Error> {
        let StoredStatus { commit, context, state, description } = status;
        self.write("a commit status", Durability::Process, |transaction| {
            transaction
                .prepare_cached(
                    "UPDATE statuses SET told = 1, sent = (state = ?4 AND description = ?5) WHERE repository = ?1 \
                     AND context = ?2 AND commit_id = ?3",
                )?
                .execute(params![repository, context, commit.as_str(), state, description])?;
            Ok(())
        })
    }

    /// Gives up a status that the forge does not take, unless it has changed in the meantime. It is posted no more.
    pub fn give_up_status(&self, repository: &str, status: &StoredStatus) -> Result<(), Error> {
        let StoredStatus { commit, context, state, description } = status;
        self.write("a commit status", Durability::Process, |transaction| {
            transaction
                .prepare_cached(
                    "UPDATE statuses SET sent = 1 WHERE repository = ?1 AND context = ?2 AND commit_id = ?3 AND \
                     state = ?4 AND description = ?5",
                )?
                .execute(params![repository, context, commit.as_str(), state, description])?;
            Ok(())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use driftless_clock::Clock;

    fn status(commit: &str, state: &str) -> StoredStatus {
        StoredStatus {
            commit: CommitId::from_stored(commit.repeat(40)),
            context: "driftless/shop".to_owned(),
            state: state.to_owned(),
            description: String::new(),
        }
    }

    #[test]
    fn each_status_is_posted_once() {
        let store = Store::in_memory(Clock::System).unwrap();
        assert!(store.set_status("infra", &status("a", "pending")).unwrap());
        assert!(!store.set_status("infra", &status("a", "pending")).unwrap());
        let has_status = |commit: &str| {
            let StoredStatus { commit, context, .. } = status(commit, "");
            store.has_status("infra", &context, &commit).unwrap()
        };
        assert!(has_status("a") && !has_status("b"));
        assert_eq!(store.unposted_statuses("infra").unwrap(), [status("a", "pending")]);
        // The status changes while the old one is being posted.
        assert!(store.set_status("infra", &status("a", "success")).unwrap());
        store.mark_posted("infra", &status("a", "pending")).unwrap();
        assert_eq!(store.unposted_statuses("infra").unwrap(), [status("a", "success")]);
        store.mark_posted("infra", &status("a", "success")).unwrap();
        assert_eq!(store.unposted_statuses("infra").unwrap(), []);
        assert!(!store.set_status("infra", &status("a", "success")).unwrap(), "nor after a restart");
    }

    #[test]
    fn pending_status_ends_with_the_next_commit() {
        let store = Store::in_memory(Clock::System).unwrap();
        store.set_status("infra", &status("a", "pending")).unwrap();
        store.mark_posted("infra", &status("a", "pending")).unwrap();
        store.set_status("infra", &status("b", "pending")).unwrap();
        let unposted = store.unposted_statuses("infra").unwrap();
        assert_eq!(
            unposted.iter().map(|status| status.state.as_str()).collect::<Vec<_>>(),
            ["error", "pending"]
        );
        assert_eq!(unposted[0].description, "superseded by bbbbbbbbbbbb");
        assert!(unposted[0].is_superseded() && !unposted[1].is_superseded());
        // The status of b was never posted.
        store.set_status("infra", &status("c", "success")).unwrap();
        let unposted = store.unposted_statuses("infra").unwrap();
        assert_eq!(
            unposted.iter().map(|status| &status.commit.as_str()[..1]).collect::<Vec<_>>(),
            ["a", "c"]
        );
    }

    #[test]
    fn status_that_was_given_up_is_not_posted_again() {
        let store = Store::in_memory(Clock::System).unwrap();
        store.set_status("infra", &status("a", "pending")).unwrap();
        store.set_status("infra", &status("a", "success")).unwrap();
        store.give_up_status("infra", &status("a", "pending")).unwrap();
        assert_eq!(store.unposted_statuses("infra").unwrap(), [status("a", "success")], "it has changed");
        store.give_up_status("infra", &status("a", "success")).unwrap();
        assert!(!store.set_status("infra", &status("a", "success")).unwrap());
        assert_eq!(store.unposted_statuses("infra").unwrap(), []);
        // A pending status that the forge did not take needs no end.
        store.set_status("infra", &status("b", "pending")).unwrap();
        store.give_up_status("infra", &status("b", "pending")).unwrap();
        store.set_status("infra", &status("c", "success")).unwrap();
        assert_eq!(store.unposted_statuses("infra").unwrap(), [status("c", "success")]);
    }

    #[test]
    fn old_statuses_are_removed() {
        let store = Store::in_memory(Clock::System).unwrap();
        for number in 0..50 {
            let status =
                StoredStatus { commit: CommitId::from_stored(number.to_string()), ..status("a", "success") };
            store.set_status("infra", &status).unwrap();
        }
        assert_eq!(store.unposted_statuses("infra").unwrap().len(), 10);
    }
}
