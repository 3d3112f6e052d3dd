//! Networks and volumes that belong to this application, and those that it may use.

use std::collections::BTreeMap;

use driftless_model::{AgentId, AppName, ObservedNetwork, ObservedVolume, label};

use crate::facts::Facts;

/// The labels of a network or volume that tell its owner.
#[derive(Clone, Copy)]
pub(crate) struct OwnerLabels<'a> {
    agent: Option<&'a AgentId>,
    app: Option<&'a AppName>,
}

impl<'a> From<&'a ObservedNetwork> for OwnerLabels<'a> {
    fn from(network: &'a ObservedNetwork) -> Self {
        Self { agent: network.agent.as_ref(), app: network.app.as_ref() }
    }
}

impl<'a> From<&'a ObservedVolume> for OwnerLabels<'a> {
    fn from(volume: &'a ObservedVolume) -> Self {
        Self { agent: volume.agent.as_ref(), app: volume.app.as_ref() }
    }
}

/// The application that an object was created for, if it is another one.
pub(crate) fn other_owner<'a>(facts: &Facts<'_>, labels: impl Into<OwnerLabels<'a>>) -> Option<&'a AppName> {
    labels.into().app.filter(|app| **app != facts.target.stack.app)
}

/// Whether this agent created an object, or adopted it, for this application.
pub(crate) fn is_own<'a>(facts: &Facts<'_>, labels: impl Into<OwnerLabels<'a>>) -> bool {
    let labels = labels.into();
    labels.agent == Some(facts.target.agent) && other_owner(facts, labels).is_none()
}

/// Whether the labels of a manifest keep an object that Git does not contain any more.
pub(crate) fn is_prune_protected(labels: &BTreeMap<String, String>) -> bool {
    let annotation = format!("annotation.{}", label::PRUNE);
    [label::PRUNE, &annotation].into_iter().any(|name| labels.get(name).is_some_and(|value| value == "false"))
}

/// Whether a network exists and a workload may join it.
pub(crate) fn is_usable_network(facts: &Facts<'_>, name: &str) -> bool {
    let is_external = facts.target.stack.networks.get(name).is_some_and(|it| it.external);
    let found = facts.observed.networks.get(name);
    found.is_some_and(|found| is_external || other_owner(facts, found).is_none())
}

/// Whether a volume exists and a workload may mount it.
pub(crate) fn is_usable_volume(facts: &Facts<'_>, name: &str) -> bool {
    let is_external = facts.target.stack.volumes.get(name).is_some_and(|it| it.external);
    let found = facts.observed.volumes.get(name);
    found.is_some_and(|found| is_external || other_owner(facts, found).is_none())
}
