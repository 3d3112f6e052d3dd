//! Pods of several containers. The first, which is the [`Workload`](crate::Workload)'s own container, holds what all of
//! them share: the network, shared memory, empty volumes. The others are its parts: each shares with the very container
//! it was made for, and comes and goes with it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{
    Completion, Container, ContainerId, DownwardValues, InstanceId, Probes, PullPolicy, WorkloadName,
};
use crate::defaults::is_default;

/// One more container of each instance of a workload.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Part {
    /// Unique in its pod.
    pub name: String,
    pub role: Role,
    pub container: Container,
    /// The volumes without a name that it shares with others of its pod: where the pod's first container has them, by
    /// where this one does.
    #[serde(default, skip_serializing_if = "is_default")]
    pub volumes: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "is_default")]
    pub probes: Probes,
    pub pull: PullPolicy,
    pub completion: Completion,
}

/// When a part runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Role {
    /// Once, to its end, before what comes after it.
    Init,
    /// From its turn among the initial ones until all others are gone.
    Sidecar,
    App,
}

/// The pod that a container is a part of, by its labels.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PartOf {
    /// The pod's first container.
    pub pod: ContainerId,
    pub name: String,
    pub role: Role,
    /// The facts about its pod that it was created with.
    #[serde(default, alias = "told", skip_serializing_if = "is_default")]
    pub downward: DownwardValues,
}

impl Role {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Init => "init",
            Self::Sidecar => "sidecar",
            Self::App => "app",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        [Self::Init, Self::Sidecar, Self::App].into_iter().find(|it| it.as_str() == text)
    }
}

impl Part {
    /// Whether an instance made with the other would be the same: how it is probed or pulled is no part of that.
    pub(crate) fn is_like(&self, other: &Self) -> bool {
        (&self.name, self.role, &self.container, &self.volumes)
            == (&other.name, other.role, &other.container, &other.volumes)
    }
}

/// Between the name of a workload and that of a part. No manifest can name a workload so.
const OF: char = '/';

impl WorkloadName {
    /// The name under which a part is counted: `web/log`.
    #[must_use]
    pub fn part(&self, name: &str) -> Self {
        Self(format!("{self}{OF}{name}"))
    }

    /// The workload that a part belongs to, or itself.
    #[must_use]
    pub fn whole(&self) -> Self {
        self.0.split_once(OF).map_or_else(|| self.clone(), |(whole, _)| Self(whole.to_owned()))
    }
}

impl InstanceId {
    /// Whether this is an instance of the workload, or a part of one.
    pub fn is_of(&self, workload: &WorkloadName) -> bool {
        let rest = self.workload.as_str().strip_prefix(workload.as_str());
        rest.is_some_and(|it| it.is_empty() || it.starts_with(OF))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_known_by_its_workload() {
        let web = WorkloadName("web".into());
        let log = InstanceId { workload: web.part("log"), slot: 2 };
        assert_eq!(log.to_string(), "web/log.2");
        assert_eq!(log.workload.whole(), web);
        assert_eq!(web.whole(), web);
        assert!(log.is_of(&web));
        assert!(!log.is_of(&WorkloadName("we".into())));
        for role in [Role::Init, Role::Sidecar, Role::App] {
            assert_eq!(Role::parse(role.as_str()), Some(role));
        }
        assert_eq!(Role::parse("other"), None);
    }
}
