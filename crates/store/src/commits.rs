//! The newest accepted commit of each repository, and the newest one whose signature was verified.

use driftless_model::CommitId;

use crate::{
    applications::one,
    error::{Durability, Error},
    store::Store,
};

impl Store {
    /// The newest accepted commit of a repository, by the repository's name in the configuration.
    pub fn last_commit(&self, repository: &str) -> Result<Option<CommitId>, Error> {
        self.read("the last commit", |connection| {
            let id: Option<String> =
                one(connection, "SELECT commit_id FROM commits WHERE repository = ?1", repository)?;
            Ok(id.map(CommitId::from_stored))
        })
    }

    /// Stores the newest accepted commit of a repository.
    pub fn set_last_commit(&self, repository: &str, commit: &CommitId) -> Result<(), Error> {
        if self.last_commit(repository)?.as_ref() == Some(commit) {
            return Ok(());
        }
        self.put(
            "the last commit",
            Durability::Process,
            "INSERT OR REPLACE INTO commits (repository, commit_id) VALUES (?1, ?2)",
            repository,
            commit.as_str(),
        )
    }

    /// The newest verified commit, as given to [`Store::set_verified`].
    pub fn verified(&self, repository: &str) -> Result<Option<String>, Error> {
        self.read("the verified commit", |connection| {
            one(connection, "SELECT commit_id FROM commits WHERE repository = ?1", &verified_key(repository))
        })
    }

    /// Stores which commit was verified, and with which policy.
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

/// The key in the table of the last commits. The name of a repository contains no space.
fn verified_key(repository: &str) -> String {
    format!("{repository} verified")
}
