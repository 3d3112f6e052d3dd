//! Files changed inside running containers outside their mounts, and the visits of users.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use serde::{Deserialize, Serialize};

use super::Timestamp;

/// The inside of one container, as far as it is known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Inside {
    /// `None`: nobody has looked yet.
    pub files: Option<Arc<ChangedFiles>>,
    /// Visits that the engine reported, without those of the agent and of the container's own health check.
    pub visits: BTreeSet<Visit>,
}

/// The files of a container that differ from its image.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChangedFiles {
    /// Just before it was looked at.
    pub at: Timestamp,
    /// By path. Nothing that is mounted, and nothing that is not watched.
    pub changed: BTreeMap<String, FileChange>,
    /// There is more than can be followed.
    pub is_cut: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileChange {
    pub kind: FileChangeKind,
    /// When it was last written, where that was asked for and it still is there.
    pub written: Option<Timestamp>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileChangeKind {
    Changed,
    Added,
    Deleted,
}

/// Somebody ran a command in a container, or copied files into it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Visit {
    pub from: Timestamp,
    /// `None`: it goes on.
    pub to: Option<Timestamp>,
    /// Files came with it, as old as they were where they came from.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub copies: bool,
    /// `docker exec sh -c id`. In a [`super::Record`] without secrets.
    pub what: String,
}

/// The record of the files changed inside one container.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct KnownInside {
    /// The last look that brought something new.
    pub looked: Timestamp,
    /// The author of each change, by the digest of the path. Digests bound the memory, because paths may be long.
    pub files: BTreeMap<String, Author>,
    /// The visits that left something behind.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub visits: BTreeSet<Visit>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Author {
    /// The container itself, as it started.
    Start,
    /// The container itself, later on.
    Itself,
    /// A user was inside.
    Visitor,
}
