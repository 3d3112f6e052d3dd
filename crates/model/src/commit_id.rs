//! Ids of commits.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Number of digits that people see.
const SHORT: usize = 12;

/// The full id of a Git commit in lower-case hexadecimal: 40 digits of SHA-1 or 64 of SHA-256, which are the two object
/// formats of Git (`gitformat-hash-function-transition`).
///
/// Ids from outside (configuration, requests, payloads of webhooks) are read with [`CommitId::parse`]. Ids that the agent
/// stored itself are not checked again. The default is empty and stands for no commit.
///
/// ```
/// use driftless_model::CommitId;
///
/// let id = CommitId::parse("3F2A9C1D0B7E3f2a9c1d0b7e3f2a9c1d0b7e3f2a")?;
/// assert_eq!(id.as_str(), "3f2a9c1d0b7e3f2a9c1d0b7e3f2a9c1d0b7e3f2a");
/// assert_eq!(id.short(), "3f2a9c1d0b7e");
/// assert!(CommitId::parse("3f2a9c1").is_err());
/// # Ok::<_, driftless_model::InvalidCommitId>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct CommitId(String);

/// A text that is not the full id of a commit.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("must be the full id of a commit: 40 (or 64) hexadecimal digits")]
pub struct InvalidCommitId;

impl CommitId {
    /// Reads a full id. Upper-case digits become lower-case.
    pub fn parse(text: &str) -> Result<Self, InvalidCommitId> {
        let is_id = matches!(text.len(), 40 | 64) && text.bytes().all(|digit| digit.is_ascii_hexdigit());
        if is_id { Ok(Self(text.to_ascii_lowercase())) } else { Err(InvalidCommitId) }
    }

    /// An id that was checked before, such as one from the database or from Git itself.
    pub fn from_stored(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The first twelve digits, for people.
    pub fn short(&self) -> &str {
        self.0.get(..SHORT).unwrap_or(&self.0)
    }

    /// Whether there is no commit.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Display for CommitId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl PartialEq<str> for CommitId {
    fn eq(&self, other: &str) -> bool {
        self.0 == other
    }
}

impl PartialEq<&str> for CommitId {
    fn eq(&self, other: &&str) -> bool {
        self.0 == **other
    }
}

impl PartialEq<String> for CommitId {
    fn eq(&self, other: &String) -> bool {
        self.0 == *other
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_full_ids_are_commit_ids() {
        for length in [40, 64] {
            let id = CommitId::parse(&"A1".repeat(length / 2)).unwrap();
            assert_eq!(id, "a1".repeat(length / 2));
            assert_eq!(id.short(), "a1a1a1a1a1a1");
        }
        for text in ["", "main", "3f2a9c1", &"g".repeat(40), &"a".repeat(41), &"é".repeat(20)] {
            assert_eq!(CommitId::parse(text), Err(InvalidCommitId), "{text}");
        }
        assert_eq!(CommitId::from_stored("a1").short(), "a1");
    }
}
