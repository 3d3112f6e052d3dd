//! Kubernetes' names: kinds with their short names, and the objects that an application's manifests define besides
//! workloads. No values: those of a ConfigMap are in Git, and those of a Secret are secret.

use std::{collections::BTreeMap, fmt};

use serde::{Deserialize, Serialize};

use super::{Location, WorkloadName};
use crate::defaults::is_default;

/// A kind of object, in the order in which `all` lists them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Kind {
    Pod,
    Service,
    Endpoints,
    DaemonSet,
    #[default]
    Deployment,
    ReplicaSet,
    StatefulSet,
    CronJob,
    Job,
    ConfigMap,
    Secret,
    PersistentVolumeClaim,
    Namespace,
}

/// The names of a kind: in the plural, short forms, and the group and version of its API.
struct Names {
    plural: &'static str,
    short: &'static [&'static str],
    group: &'static str,
    version: &'static str,
}

impl Kind {
    pub const ALL: [Self; 13] = [
        Self::Pod,
        Self::Service,
        Self::Endpoints,
        Self::DaemonSet,
        Self::Deployment,
        Self::ReplicaSet,
        Self::StatefulSet,
        Self::CronJob,
        Self::Job,
        Self::ConfigMap,
        Self::Secret,
        Self::PersistentVolumeClaim,
        Self::Namespace,
    ];

    fn names(self) -> Names {
        let (plural, short, group): (_, &'static [&'static str], _) = match self {
            Self::Pod => ("pods", &["po"], ""),
            Self::Service => ("services", &["svc"], ""),
            Self::Endpoints => ("endpoints", &["ep"], ""),
            Self::DaemonSet => ("daemonsets", &["ds"], "apps"),
            Self::Deployment => ("deployments", &["deploy"], "apps"),
            Self::ReplicaSet => ("replicasets", &["rs"], "apps"),
            Self::StatefulSet => ("statefulsets", &["sts"], "apps"),
            Self::CronJob => ("cronjobs", &["cj"], "batch"),
            Self::Job => ("jobs", &[], "batch"),
            Self::ConfigMap => ("configmaps", &["cm"], ""),
            Self::Secret => ("secrets", &[], ""),
            Self::PersistentVolumeClaim => ("persistentvolumeclaims", &["pvc"], ""),
            Self::Namespace => ("namespaces", &["ns"], ""),
        };
        Names { plural, short, group, version: "v1" }
    }

    /// `Deployment`
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pod => "Pod",
            Self::Service => "Service",
            Self::Endpoints => "Endpoints",
            Self::DaemonSet => "DaemonSet",
            Self::Deployment => "Deployment",
            Self::ReplicaSet => "ReplicaSet",
            Self::StatefulSet => "StatefulSet",
            Self::CronJob => "CronJob",
            Self::Job => "Job",
            Self::ConfigMap => "ConfigMap",
            Self::Secret => "Secret",
            Self::PersistentVolumeClaim => "PersistentVolumeClaim",
            Self::Namespace => "Namespace",
        }
    }

    /// `deployments`
    pub fn plural(self) -> &'static str {
        self.names().plural
    }

    /// `apps/v1`
    pub fn api_version(self) -> String {
        let Names { group, version, .. } = self.names();
        if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") }
    }

    /// `deployment.apps`, as kubectl names a thing of this kind.
    pub fn qualified(self) -> String {
        self.with_group(self.as_str().to_lowercase())
    }

    /// `deployments.apps`, as the API server names the kind.
    pub fn qualified_plural(self) -> String {
        self.with_group(self.plural().to_owned())
    }

    fn with_group(self, name: String) -> String {
        let group = self.names().group;
        if group.is_empty() { name } else { format!("{name}.{group}") }
    }

    /// Reads any name of a kind: `deployments`, `deployment`, `deploy`, `Deployment`, each also with its group:
    /// `deployments.apps`.
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.to_ascii_lowercase();
        let (name, asked) = match text.split_once('.') {
            Some((name, group)) => (name, Some(group)),
            None => (text.as_str(), None),
        };
        Self::ALL.into_iter().find(|kind| {
            let Names { plural, short, group, .. } = kind.names();
            let is_named =
                name == plural || name == kind.as_str().to_ascii_lowercase() || short.contains(&name);
            is_named && asked.is_none_or(|asked| !group.is_empty() && asked == group)
        })
    }

    /// The kinds of `all`: what runs, and the names by which it is reached.
    pub fn is_of_all(self) -> bool {
        match self {
            Self::Pod
            | Self::Service
            | Self::DaemonSet
            | Self::Deployment
            | Self::ReplicaSet
            | Self::StatefulSet
            | Self::CronJob
            | Self::Job => true,
            Self::Endpoints
            | Self::ConfigMap
            | Self::Secret
            | Self::PersistentVolumeClaim
            | Self::Namespace => false,
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Kind, namespace and name of an object.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ObjectRef {
    pub kind: Kind,
    pub namespace: String,
    pub name: String,
}

impl fmt::Display for ObjectRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}/{}", self.kind, self.namespace, self.name)
    }
}

/// The names of an application's objects in its manifests.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Inventory {
    #[serde(skip_serializing_if = "is_default")]
    pub workloads: BTreeMap<WorkloadName, ObjectRef>,
    /// Sorted by kind, namespace and name.
    #[serde(skip_serializing_if = "is_default")]
    pub resources: Vec<Resource>,
}

/// Something that runs nothing, and that workloads refer to or are found by.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Resource {
    #[serde(flatten)]
    pub object: ObjectRef,
    /// The place of its definition in the manifest.
    pub origin: Location,
    pub facts: Facts,
}

/// The reported facts of an object, by its kind.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Facts {
    #[serde(rename_all = "camelCase")]
    Service {
        /// `ClusterIP`, `NodePort` or `LoadBalancer`.
        r#type: String,
        headless: bool,
        selector: BTreeMap<String, String>,
        ports: Vec<ServicePort>,
        /// Addresses of the host on which its ports are published (`externalIPs`). Not stored, and no part of the hash of a stack: else an
        /// upgrade begins a revision of each application that has some.
        #[serde(skip)]
        external_addresses: Vec<String>,
    },
    /// The sizes of its entries in bytes.
    ConfigMap {
        keys: BTreeMap<String, u64>,
    },
    Secret {
        r#type: String,
        keys: Vec<String>,
    },
    /// The volume of Docker that it is, or the path of the host.
    #[serde(rename_all = "camelCase")]
    Claim {
        volume: String,
        access_modes: Vec<String>,
    },
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ServicePort {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    pub port: u16,
    /// A number or a name.
    pub target_port: String,
    /// `TCP`, `UDP` or `SCTP`.
    pub protocol: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_port: Option<u16>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_is_known_by_all_its_names_and_no_name_is_of_two() {
        for kind in Kind::ALL {
            let names = [kind.as_str(), kind.plural(), &kind.qualified(), &kind.qualified_plural()];
            for name in names.into_iter().chain(kind.names().short.iter().copied()) {
                assert_eq!(Kind::parse(name), Some(kind), "{name}");
                assert_eq!(Kind::parse(&name.to_uppercase()), Some(kind), "{name}");
            }
        }
        for unknown in ["", "deployments.batch", "ingress", "all", "pods "] {
            assert_eq!(Kind::parse(unknown), None, "{unknown}");
        }
        assert_eq!(Kind::Deployment.qualified(), "deployment.apps");
        assert_eq!(Kind::Job.api_version(), "batch/v1");
        assert_eq!(Kind::Pod.api_version(), "v1");
    }
}
