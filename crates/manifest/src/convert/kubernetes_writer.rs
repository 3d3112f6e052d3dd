//! The Kubernetes objects of a conversion while they are written, and their names.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::output::{Lost, NOT_WRITTEN, PLACEHOLDER_OF_SECRET, SecretValues, object};
use driftless_model::{Contents, Subject, WorkloadName};

/// The objects of one stack that are already written.
pub(super) struct KubernetesWriter<'a> {
    pub(super) contents: &'a Contents,
    pub(super) secrets: SecretValues,
    pub(super) lost: Lost,
    /// ConfigMaps, Secrets and claims, by kind and name.
    pub(super) objects: BTreeMap<(&'static str, String), Value>,
    /// The names of the workloads in Kubernetes, which allows fewer characters than Compose.
    pub(super) names: BTreeMap<&'a WorkloadName, String>,
    /// The names of the claims, by the name of the Docker volume.
    pub(super) claims: BTreeMap<&'a str, String>,
}

impl<'a> KubernetesWriter<'a> {
    pub(super) fn new(contents: &'a Contents, secrets: SecretValues) -> Self {
        Self {
            contents,
            secrets,
            lost: Lost::default(),
            objects: BTreeMap::new(),
            names: BTreeMap::new(),
            claims: BTreeMap::new(),
        }
    }

    /// The value of a secret, or the placeholder for it.
    pub(super) fn hidden(&mut self, at: Subject<'_>, field: &str, value: &str) -> String {
        if self.secrets == SecretValues::Shown {
            return value.to_owned();
        }
        self.lost.field(at, field, NOT_WRITTEN);
        PLACEHOLDER_OF_SECRET.to_owned()
    }

    /// Adds an object that a pod refers to.
    pub(super) fn keep(&mut self, kind: &'static str, name: &str, more: Vec<(&'static str, Value)>) {
        let value = object(head(kind, name).into_iter().chain(more));
        self.objects.insert((kind, name.to_owned()), value);
    }

    /// The name of a workload in Kubernetes.
    pub(super) fn name_of(&self, name: &WorkloadName) -> String {
        self.names.get(name).cloned().unwrap_or_default()
    }

    /// Writes the claim of a Docker volume and returns its name. `None`: the stack does not define the volume.
    pub(super) fn claim(&mut self, docker: &str) -> Option<String> {
        let name = self.claims.get(docker).cloned()?;
        let spec =
            json!({ "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1Gi" } } });
        self.keep("PersistentVolumeClaim", &name, vec![("spec", spec)]);
        Some(name)
    }
}

/// A valid name that is not taken yet.
pub(super) fn unique_name(taken: &mut BTreeSet<String>, name: &str) -> String {
    let plain = label_of(name);
    let mut found = plain.clone();
    let mut number = 2;
    while !taken.insert(found.clone()) {
        found = format!("{plain}-{number}");
        number += 1;
    }
    found
}

/// The name as an RFC 1035 label, which is valid for every kind.
pub(super) fn label_of(name: &str) -> String {
    let mut plain: String = name
        .chars()
        .map(|it| if it.is_ascii_alphanumeric() { it.to_ascii_lowercase() } else { '-' })
        .take(50)
        .collect();
    if !plain.starts_with(|it: char| it.is_ascii_lowercase()) {
        plain.insert_str(0, "x-");
    }
    plain.trim_end_matches('-').to_owned()
}

/// `apiVersion`, `kind` and `metadata` of an object.
pub(super) fn head(kind: &'static str, name: &str) -> [(&'static str, Value); 3] {
    let version = match kind {
        "Deployment" => "apps/v1",
        "Job" | "CronJob" => "batch/v1",
        _ => "v1",
    };
    [("apiVersion", json!(version)), ("kind", json!(kind)), ("metadata", json!({ "name": name }))]
}
