//! A node of a Swarm in memory.

use std::collections::BTreeMap;

use driftless_model::Timestamp;
use serde_json::{Value, json};

/// The part of a machine that fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outage {
    /// Its containers end with it.
    Power,
    /// Nobody else reaches it. Its containers go on.
    Link,
    /// It was restarted with autolock: its engine waits for `docker swarm unlock`, and its tasks have ended.
    Lock,
}

#[derive(Clone, Debug)]
pub(super) struct ClusterNode {
    pub(super) id: String,
    /// Its host name.
    pub(super) name: String,
    pub(super) is_manager: bool,
    /// `active`, `pause` or `drain`.
    pub(super) availability: String,
    pub(super) labels: BTreeMap<String, String>,
    pub(super) version: u64,
    /// The part that fails, and since when.
    pub(super) outage: Option<(Outage, Timestamp)>,
    pub(super) is_down: bool,
}

impl ClusterNode {
    pub(super) fn new_manager(name: &str, version: u64) -> Self {
        Self {
            id: format!("node-{name}"),
            name: name.to_owned(),
            is_manager: true,
            availability: "active".to_owned(),
            labels: BTreeMap::new(),
            version,
            outage: None,
            is_down: false,
        }
    }

    pub(super) fn is_locked(&self) -> bool {
        matches!(self.outage, Some((Outage::Lock, _)))
    }

    /// Whether the others reach it.
    pub(super) fn is_reachable(&self) -> bool {
        self.outage.is_none()
    }

    /// Whether it hears what managers want of its tasks.
    pub(super) fn runs_tasks(&self) -> bool {
        self.is_reachable()
    }

    pub(super) fn takes_tasks(&self) -> bool {
        !self.is_down && self.availability == "active"
    }

    /// Whether tasks of it are to be replaced.
    pub(super) fn is_invalid(&self) -> bool {
        self.is_down || self.availability == "drain"
    }

    /// As the API has it.
    pub(super) fn to_json(&self, leader: Option<&str>) -> Value {
        let mut node = json!({
            "ID": self.id, "Version": {"Index": self.version},
            "Spec": {
                "Labels": self.labels, "Availability": self.availability,
                "Role": if self.is_manager { "manager" } else { "worker" },
            },
            "Description": {"Hostname": self.name, "Platform": {"OS": "linux", "Architecture": "x86_64"}},
            "Status": {"State": if self.is_down { "down" } else { "ready" }},
        });
        if self.is_manager {
            node["ManagerStatus"] = json!({"Reachability": "reachable"});
            if leader == Some(self.id.as_str()) {
                node["ManagerStatus"]["Leader"] = true.into();
            }
        }
        node
    }
}
