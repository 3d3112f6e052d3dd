//! The newest accepted commit of each repository, and the newest one whose signature was verified.

use super::{Durability, Error, Store, applications::one};

impl Store {
    /// The last good commit of a repository, by its name in the configuration.
    pub fn last_commit(&self, repository: &str) -> Result<Option<String>, Error> {
        self.read("the last commit", |connection| {
            one(connection, "SELECT commit_id FROM commits WHERE repository = ?1", repository)
        })
    }

    pub fn set_last_commit(&self, repository: &str, commit: &str) -> Result<(), Error> {
        if self.last_commit(repository)?.as_deref() == Some(commit) {
            return Ok(());
        }
        self.put(
            "the last commit",
            Durability::Process,
            "INSERT OR REPLACE INTO commits (repository, commit_id) VALUES (?1, ?2)",
            repository,
            commit,
        )
    }

    /// What was written down when a commit's signature was found good: the commit, and by which policy.
    pub fn verified(&self, repository: &str) -> Result<Option<String>, Error> {
        self.read("the verified commit", |connection| {
            one(connection, "SELECT commit_id FROM commits WHERE repository = ?1", &verified_key(repository))
        })
    }

    pub fn set_verified(&self, repository: &str, what: &str) -> Result<(), Error> {
        if self.verified(repository)?.as_deref() == Some(what) {
            return Ok(());
        }
        self.put(
            "the verified commit",
            Durability::Process,
            "INSERT OR REPLACE INTO commits (repository, commit_id) VALUES (?1, ?2)",
            &verified_key(repository),
            what,
        )
    }
}

/// Beside the last commit of the same table. No repository's name has a blank.
fn verified_key(repository: &str) -> String {
    format!("{repository} verified")
}
