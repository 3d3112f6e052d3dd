//! Networks and volumes: created before a workload needs them, and networks removed when none does.
//!
//! A volume is created when it is missing, and never changed. It is removed only with its application, if a user asked
//! for that.

use std::time::Duration;

use driftless_model::{
    Attachment, HookRecord, Instance, IpNetwork, Network, ObservedNetwork, ObservedVolume, Removal, SpecHash,
    Stack, Volume,
};

use crate::{
    action::Action,
    cause::Cause,
    draft::{Draft, heal::Difference},
    facts::{
        Facts,
        ownership::{
            forbidden_owner, former_owner, is_as_wanted, is_left_behind, is_own, is_prune_protected,
            is_usable_network, other_owner,
        },
    },
    fields::{diff::FieldDifference, resources::volume_differences},
    wait::{Wait, WaitObject},
};

/// From this version of its API on, Docker refuses a subnet with bits of a host, such as `172.20.0.1/16`.
const STRICT_SUBNETS: (u16, u16) = (1, 44);
/// The interval at which it is looked who uses the volumes of an application that is removed with them.
const LOOK_AT_USERS: Duration = Duration::from_secs(5);

/// Plans the networks and volumes that the stack needs.
pub(crate) fn provide(draft: &mut Draft<'_>) {
    let facts = draft.facts;
    // Until its hooks have succeeded, nothing is created for a commit but what the hooks themselves use.
    let hooks = facts.record.hooks.as_deref().filter(|_| facts.is_held_by_hooks);
    let runs = || hooks.into_iter().flat_map(HookRecord::begun_runs).map(|(_, run)| run);
    let is_due = |name: &String| {
        let is_used = || runs().any(|run| run.volumes.contains_key(name) || run.networks.contains_key(name));
        !facts.is_held_by_hooks || is_used()
    };
    for (name, volume) in facts.target.stack.volumes.iter().filter(|(name, _)| is_due(name)) {
        match facts.observed.volumes.get(name) {
            None if volume.external => draft.wait(Wait::external_missing("volume", name)),
            None => {
                let project = facts.target.stack.project.clone();
                let action = Action::CreateVolume { name: name.clone(), volume: volume.clone(), project };
                let step = draft.push(action, Cause::Missing, vec![]);
                draft.provided.insert(name.clone(), step);
            }
            Some(found) => match other_owner(facts, found) {
                // The policy does not help if the names are the same by chance.
                Some(owner)
                    if (volume.external || is_left_behind(facts, found))
                        && forbidden_owner(facts, found).is_some() =>
                {
                    draft.wait(Wait::forbidden("volume", name, owner));
                }
                // Nobody shares it any more.
                Some(_) if volume.external && is_left_behind(facts, found) => {}
                Some(owner) if volume.external => draft.wait(Wait::shared_volume(name, owner)),
                Some(owner) if is_left_behind(facts, found) => {
                    draft.wait(Wait::of_former_application("volume", name, owner));
                }
                Some(owner) => draft.wait(Wait::of_another_application("volume", name, owner)),
                None if volume.external => {}
                None if !is_own(facts, found) && former_owner(facts, found).is_none() => {}
                None if found.spec.as_ref() == Some(&SpecHash::of(volume)) => {}
                None => volume_changed(draft, name, volume, found),
            },
        }
    }
    for (name, network) in facts.target.stack.networks.iter().filter(|(name, _)| is_due(name)) {
        match facts.observed.networks.get(name) {
            None if network.external && facts.observed.engine_traits.is_swarm_worker => {
                draft.wait(Wait::network_missing_on_worker(name));
            }
            None if network.external => draft.wait(Wait::external_missing("network", name)),
            None => create_network(draft, name, network),
            Some(found) => match other_owner(facts, found) {
                Some(owner)
                    if (network.external || is_left_behind(facts, found))
                        && forbidden_owner(facts, found).is_some() =>
                {
                    draft.wait(Wait::forbidden("network", name, owner));
                }
                // Applications share external networks all the time.
                _ if network.external => {}
                Some(owner) if is_left_behind(facts, found) => {
                    draft.wait(Wait::of_former_application("network", name, owner));
                }
                Some(owner) => draft.wait(Wait::of_another_application("network", name, owner)),
                None if !is_own(facts, found) => {
                    // It carries the labels of the other one, so it is used or left, and never replaced.
                    let former = former_owner(facts, found).filter(|_| !is_usable_network(facts, name));
                    if let Some(owner) = former {
                        draft.wait(Wait::of_former_application("network", name, owner));
                    }
                }
                None if is_as_wanted(network, found) => {}
                None => replace_network(draft, name, network, found),
            },
        }
    }
}

/// Plans the removal of our networks that the stack does not name and nothing is attached to.
pub(crate) fn remove_unused_networks(draft: &mut Draft<'_>) {
    if draft.facts.is_held_by_hooks {
        return;
    }
    for (name, network) in &draft.facts.observed.networks {
        let is_ours = is_own(draft.facts, network);
        // The reached stack may still need it.
        let is_needed = |it: &Stack| it.networks.contains_key(name);
        let is_held = !draft.missing_images.is_empty() && draft.facts.target.reached.is_some_and(is_needed);
        if !is_ours || is_needed(draft.facts.target.stack) || is_held || !network.foreign.is_empty() {
            continue;
        }
        let attached = draft.facts.observed.instances.values().filter(|it| it.networks.contains_key(name));
        let leaving: Option<Vec<usize>> = attached.map(|it| draft.removed.get(&it.id).copied()).collect();
        let Some(after) = leaving else { continue };
        if network.compose.as_ref().is_some_and(|network| is_prune_protected(&network.labels)) {
            draft.wait(Wait::prune_protected("network", name));
        } else {
            let action = Action::RemoveNetwork { name: name.clone(), id: network.id.clone() };
            draft.push(action, Cause::NotInGit, after);
        }
    }
}

/// Plans the removal of the volumes of an application that a user removes with its volumes, except those that Git has protected,
/// at their creation or later. Adopted volumes do not carry
/// the application's labels, and stay. So does a volume that others use, for good: they may stop for a moment, as in an update.
pub(crate) fn remove_volumes(draft: &mut Draft<'_>) {
    let facts = draft.facts;
    if facts.record.removal != Some(Removal::WithVolumes) || !facts.target.stack.is_empty() {
        return;
    }
    let after: Vec<usize> = draft.removed.values().copied().collect();
    if facts.observed.containers().any(|container| !draft.removed.contains_key(&container.id)) {
        return;
    }
    let is_labelled =
        |name: &String, volume| is_own(facts, volume) && !facts.record.adopted.volumes.contains_key(name);
    let mut labelled =
        facts.observed.volumes.iter().filter(|(name, volume)| is_labelled(name, *volume)).peekable();
    if labelled.peek().is_some() && !are_users_known(facts) {
        draft.wait(Wait::volumes_unclear());
        draft.look_again(facts.now.after(LOOK_AT_USERS));
        return;
    }
    for (name, found) in labelled {
        let has_label = found.compose.as_ref().is_some_and(|volume| is_prune_protected(&volume.labels));
        if has_label || facts.record.protected_volumes.contains(name) {
            draft.wait(Wait::prune_protected("volume", name));
            continue;
        }
        if let Some(user) = user_of(facts, name) {
            draft.plan.spared_volumes.insert(name.clone());
            draft.wait(Wait::volume_in_use(name, &user));
            continue;
        }
        draft.push(Action::RemoveVolume { name: name.clone() }, Cause::NotInGit, after.clone());
    }
}

/// Whether it is known which volumes the other applications of this agent name.
fn are_users_known(facts: &Facts<'_>) -> bool {
    let claims = &facts.observed.claims;
    claims.applications.as_ref().is_none_or(|all| all.is_complete && claims.deployed_volumes.is_some())
}

/// The other application or container that uses a volume, or did so when its removal was planned before.
fn user_of(facts: &Facts<'_>, name: &str) -> Option<String> {
    let claims = &facts.observed.claims;
    let in_git =
        claims.applications.as_ref().and_then(|all| all.user_of_volume(name, &facts.target.stack.app));
    let deployed = || claims.deployed_volumes.as_ref().and_then(|volumes| volumes.get(name));
    if let Some(app) = in_git.or_else(deployed) {
        return Some(format!("application `{app}`"));
    }
    let mut mounting = claims.mounting().filter(|(container, _)| container.mounts_volume(name));
    if let Some((container, owner)) = mounting.next() {
        let of = owner.map(|owner| format!(" of application `{owner}`")).unwrap_or_default();
        return Some(format!("{}{of}", container.name));
    }
    facts.record.spared_volumes.contains(name).then(|| "others".to_owned())
}

/// Reports the differences of a volume. A volume is never changed; the user has to move the data.
fn volume_changed(draft: &mut Draft<'_>, name: &str, wanted: &Volume, found: &ObservedVolume) {
    let mask = draft.facts.target.mask;
    let differences = found.compose.as_ref().map(|it| volume_differences(wanted, it, mask));
    if differences.as_ref().is_some_and(Vec::is_empty) {
        // Its key in the manifest is another, and nothing else.
        return;
    }
    let differences: Vec<String> = differences.iter().flatten().map(FieldDifference::sentence).collect();
    draft.wait(Wait::volume_changed(name, &differences));
}

/// Says so where the engine is too old for a network.
fn is_too_new(draft: &mut Draft<'_>, name: &str, network: &Network) -> bool {
    let (Some(speaks), Some(need)) = (draft.facts.observed.engine_api, network.needs()) else { return false };
    if speaks >= need.api {
        return false;
    }
    let object = WaitObject::Other { kind: "network", name: name.to_owned() };
    draft.wait(Wait::engine_too_old(object, &need.field, need.api, speaks));
    true
}

/// Creates a network of this host, whose addresses the engine chooses.
fn network_creation(draft: &Draft<'_>, name: &str, network: &Network) -> Action {
    let project = draft.facts.target.stack.project.clone();
    Action::CreateNetwork { name: name.to_owned(), network: network.clone(), project, addresses: None }
}

fn create_network(draft: &mut Draft<'_>, name: &str, network: &Network) {
    if is_too_new(draft, name, network) {
        return;
    }
    let cause = if draft.facts.is_network_at_rest(name) {
        draft.heal(Difference::missing_network(name))
    } else {
        Some(Cause::Missing)
    };
    if let Some(cause) = cause {
        let creation = network_creation(draft, name, network);
        let step = draft.push(creation, cause, vec![]);
        draft.provided.insert(name.to_owned(), step);
    }
}

/// A network cannot be changed: everybody leaves, it is created again, and those who stay come back. Containers are
/// kept; their addresses change.
fn replace_network(draft: &mut Draft<'_>, name: &str, network: &Network, found: &ObservedNetwork) {
    if is_too_new(draft, name, network) {
        return;
    }
    if !draft.missing_images.is_empty() || draft.facts.is_held_by_hooks {
        // Until all images are here and all hooks have succeeded, nothing that runs is cut off. That is said elsewhere.
        return;
    }
    let attached: Vec<_> =
        draft.facts.observed.instances.values().filter(|it| it.networks.contains_key(name)).collect();
    let stranger = attached.iter().find(|it| it.agent != *draft.facts.target.agent).map(|it| &it.name);
    if let Some(own) = attached.iter().find(|it| draft.facts.observed.own.as_ref() == Some(&it.id)) {
        let what = format!("network {name} has changed in Git and must be replaced");
        draft.wait(Wait::own(&own.name, None, &what));
        return;
    }
    if let Some(foreign) = found.foreign.first().or(stranger) {
        draft.wait(Wait::network_in_use(name, foreign));
        return;
    }
    if let Some(why) = refused_subnet(draft.facts, name, network) {
        draft.wait(Wait::subnet_refused(name, &why));
        return;
    }
    let pulls: Vec<usize> = draft.pulls.values().copied().collect();
    let mut left = Vec::new();
    for instance in attached.iter().copied() {
        let action = Action::Disconnect { container: instance.into(), network: name.to_owned() };
        left.push(draft.push(action, Cause::SpecChanged, pulls.clone()));
    }
    let removal = Action::RemoveNetwork { name: name.to_owned(), id: found.id.clone() };
    left.extend(pulls);
    let removed = draft.push(removal, Cause::SpecChanged, left);
    let creation = network_creation(draft, name, network);
    let created = draft.push(creation, Cause::SpecChanged, vec![removed]);
    draft.provided.insert(name.to_owned(), created);
    for instance in attached {
        let Some(attachment) = attachment(draft, instance, name) else { continue };
        let container = instance.into();
        let action = Action::Connect { container, network: name.to_owned(), attachment };
        let connected = draft.push(action, Cause::SpecChanged, vec![created]);
        draft.reconnected.entry(instance.id.clone()).or_default().push(connected);
    }
}

/// Why the engine would not create a network with its subnets once the present one is removed, as far as that is known.
fn refused_subnet(facts: &Facts<'_>, name: &str, network: &Network) -> Option<String> {
    let is_strict = facts.observed.engine_api.is_some_and(|api| api >= STRICT_SUBNETS);
    // The same plan replaces or removes it.
    let is_leaving = |other: &String| {
        let found = facts.observed.networks.get(other).filter(|found| is_own(facts, *found));
        let wanted = facts.target.stack.networks.get(other).map(SpecHash::of);
        found.is_some_and(|found| found.spec != wanted)
    };
    let held = facts.observed.held_subnets.iter();
    let held: Vec<_> = held.filter(|(other, _)| *other != name && !is_leaving(other)).collect();
    network.bridge_subnets().find_map(|subnet| {
        if is_strict && subnet != subnet.without_host() {
            let right = subnet.without_host();
            return Some(format!("the engine refuses the subnet {subnet}: write {right}"));
        }
        let overlaps = |held: &[IpNetwork]| held.iter().any(|held| held.overlaps(subnet));
        let (other, _) = held.iter().find(|(_, held)| overlaps(held))?;
        Some(format!(
            "its subnet {subnet} overlaps with that of the network {other}: give it another one, or remove that network"
        ))
    })
}

/// The desired attachment of an instance to a network: that of its workload, else the one it was created with.
fn attachment(draft: &Draft<'_>, instance: &Instance, network: &str) -> Option<Attachment> {
    let wanted = draft.facts.target.stack.workloads.get(&instance.instance.workload);
    wanted
        .and_then(|it| it.container.networks().get(network))
        .or_else(|| instance.config.networks().get(network))
        .map(|attachment| Attachment::clone(attachment))
}
