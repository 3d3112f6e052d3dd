//! Networks and volumes that belong to this application, and those that it may use.

use std::collections::BTreeMap;

use driftless_model::{
    AgentId, AppName, Format, Network, Observed, ObservedNetwork, ObservedVolume, Record, SpecHash, label,
};

use crate::{facts::Facts, target::Target};

/// The labels of a network or volume that tell its owner.
#[derive(Clone, Copy)]
pub(crate) struct OwnerLabels<'a> {
    agent: Option<&'a AgentId>,
    app: Option<&'a AppName>,
    /// The project in its labels is the application's.
    is_of_project: bool,
}

impl<'a> From<&'a ObservedNetwork> for OwnerLabels<'a> {
    fn from(network: &'a ObservedNetwork) -> Self {
        let is_of_project = network.compose.is_some();
        Self { agent: network.agent.as_ref(), app: network.app.as_ref(), is_of_project }
    }
}

impl<'a> From<&'a ObservedVolume> for OwnerLabels<'a> {
    fn from(volume: &'a ObservedVolume) -> Self {
        let is_of_project = volume.compose.is_some();
        Self { agent: volume.agent.as_ref(), app: volume.app.as_ref(), is_of_project }
    }
}

/// The application that an object was created for, if it is another one, and did not leave it to this one.
pub(crate) fn other_owner<'a>(facts: &Facts<'_>, labels: impl Into<OwnerLabels<'a>>) -> Option<&'a AppName> {
    let labels = labels.into();
    let is_other = |app: &AppName| *app != facts.target.stack.app;
    labels.app.filter(|app| is_other(app) && former_owner(facts, labels).is_none())
}

/// The application that has left an object to this one: see [`find_former_owner`].
pub(crate) fn former_owner<'a>(facts: &Facts<'_>, labels: impl Into<OwnerLabels<'a>>) -> Option<&'a AppName> {
    find_former_owner(facts.target, facts.observed, facts.record, labels)
}

/// The application that has left an object to this one: the agent created it for an application with the same project, which it does not
/// have any more and of which no container is left, as after the rename of a folder. Where the policy forbids objects of others, it must be of
/// the same repository.
///
/// The record keeps the name, so that a later application of this name takes nothing back.
pub(crate) fn find_former_owner<'a>(
    target: &Target<'_>,
    observed: &Observed,
    record: &Record,
    labels: impl Into<OwnerLabels<'a>>,
) -> Option<&'a AppName> {
    let labels = labels.into();
    let app = labels.app.filter(|app| **app != target.stack.app)?;
    let is_of_project = labels.is_of_project && target.stack.format == Format::Compose;
    let is_of_agent = labels.agent == Some(target.agent);
    // A Swarm may have services of it on other hosts.
    let may_succeed = || observed.claims.is_gone(app) && may_go_on_with(target, observed, app);
    let is_left = || record.former_owners.contains(app) || may_succeed();
    (is_of_project && is_of_agent && observed.swarm.is_none() && is_left()).then_some(app)
}

/// Whether the policy lets the application use what an application has left that this agent does not have any more: where objects of
/// others are forbidden, only one of the same repository.
fn may_go_on_with(target: &Target<'_>, observed: &Observed, former: &AppName) -> bool {
    let managed = observed.claims.applications.as_deref();
    let is_of_repository = || managed.is_some_and(|all| all.are_of_one_repository(&target.stack.app, former));
    !target.policy.forbids_objects_of_others() || is_of_repository()
}

/// The application that an object was created for, where the policy does not allow to use it.
pub(crate) fn forbidden_owner<'a>(
    facts: &Facts<'_>,
    labels: impl Into<OwnerLabels<'a>>,
) -> Option<&'a AppName> {
    let Facts { target, observed, .. } = facts;
    let is_left = |app: &AppName| observed.claims.is_gone(app) && may_go_on_with(target, observed, app);
    other_owner(facts, labels).filter(|owner| target.policy.forbids_objects_of_others() && !is_left(owner))
}

/// Whether this agent created an object for an application that it does not have any more.
pub(crate) fn is_left_behind<'a>(facts: &Facts<'_>, labels: impl Into<OwnerLabels<'a>>) -> bool {
    let labels = labels.into();
    let is_gone = |app: &AppName| facts.observed.claims.is_gone(app);
    labels.agent == Some(facts.target.agent) && labels.app.is_some_and(is_gone)
}

/// Whether this agent created an object, or adopted it, for this application.
pub(crate) fn is_own<'a>(facts: &Facts<'_>, labels: impl Into<OwnerLabels<'a>>) -> bool {
    let labels = labels.into();
    let is_of_app = labels.app.is_none_or(|app| *app == facts.target.stack.app);
    labels.agent == Some(facts.target.agent) && is_of_app
}

/// Whether the labels of a manifest keep an object that Git does not contain any more.
pub(crate) fn is_prune_protected(labels: &BTreeMap<String, String>) -> bool {
    label::is_prune_protected(|name| labels.get(name).map(String::as_str))
}

/// Whether a network is one that the agent made with the settings that Git has. Its key in the manifest is no setting of it, and `bridge` is
/// the driver of one that names none.
pub(crate) fn is_as_wanted(wanted: &Network, found: &ObservedNetwork) -> bool {
    let Some(spec) = &found.spec else { return false };
    let keys = [Some(&wanted.key), found.compose.as_ref().map(|made| &made.key)];
    keys.into_iter().flatten().any(|key| {
        let is_made_with = |driver: Option<&str>| {
            let driver = driver.map(str::to_owned);
            *spec == SpecHash::of(&Network { key: key.clone(), driver, ..wanted.clone() })
        };
        match wanted.driver.as_deref() {
            None | Some("bridge") => is_made_with(None) || is_made_with(Some("bridge")),
            other => is_made_with(other),
        }
    })
}

/// Whether a network exists and a workload may join it.
pub(crate) fn is_usable_network(facts: &Facts<'_>, name: &str) -> bool {
    let wanted = facts.target.stack.networks.get(name);
    let is_external = wanted.is_some_and(|it| it.external);
    // One that a former application left cannot be replaced.
    let can_serve = |found: &ObservedNetwork| {
        former_owner(facts, found).is_none() || wanted.is_some_and(|wanted| is_as_wanted(wanted, found))
    };
    let found = facts.observed.networks.get(name);
    found.is_some_and(|found| {
        if is_external {
            forbidden_owner(facts, found).is_none()
        } else {
            other_owner(facts, found).is_none() && can_serve(found)
        }
    })
}

/// Whether a volume exists and a workload may mount it.
pub(crate) fn is_usable_volume(facts: &Facts<'_>, name: &str) -> bool {
    let is_external = facts.target.stack.volumes.get(name).is_some_and(|it| it.external);
    let found = facts.observed.volumes.get(name);
    found.is_some_and(|found| {
        let owner = if is_external { forbidden_owner(facts, found) } else { other_owner(facts, found) };
        owner.is_none()
    })
}
