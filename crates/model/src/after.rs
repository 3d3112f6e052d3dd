//! Progressive roll-out over hosts: a new commit waits until the first hosts run it and are healthy.

use std::{collections::BTreeMap, time::Duration};

use serde::{Deserialize, Serialize};

use super::{CommitId, StackHash, Timestamp};

/// `after`: the hosts that get a new commit before this one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct After {
    /// Labels of the first hosts, all of them; `*` is any text. A host that has them itself waits for nobody.
    pub labels: BTreeMap<String, String>,
    /// The time for which the first hosts must run the commit and be healthy. Default: 10 min.
    #[serde(rename = "healthyForSeconds", with = "crate::seconds::whole")]
    pub healthy_for: Duration,
    /// The consequence if the state of the first hosts is still unknown or unfinished after `max_wait`. Default: hold.
    #[serde(rename = "else", default)]
    pub otherwise: Otherwise,
    /// The longest wait for first hosts that did not fail. Default: 2 h.
    #[serde(rename = "maxWaitSeconds", with = "crate::seconds::whole")]
    pub max_wait: Duration,
}

/// The consequence of a wait for the first hosts that is over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Otherwise {
    /// The commit is held until the first hosts are healthy.
    #[default]
    Hold,
    /// The commit is applied, unless a first host failed with it.
    Proceed,
}

/// The wait for the first hosts, in the record of an application.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AfterRecord {
    /// The stack that waits.
    pub stack: StackHash,
    /// The commits that have this stack, the newest last. A commit that changes another application starts no new wait.
    pub commits: Vec<CommitId>,
    /// When the stack began to wait.
    pub since: Timestamp,
    /// Since when all first hosts are seen healthy with one of the commits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub healthy_since: Option<Timestamp>,
    /// The first host that failed with one of the commits. The stack is then held for good.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed: Option<String>,
}
