//! Networks and volumes: created before a workload needs them, and networks removed when none does.
//!
//! A volume is created when it is missing, and never changed. It is removed only with its application, if a user asked
//! for that.

use std::{collections::BTreeMap, time::Duration};

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

/// From this version of its API on, Docker refuses a subnet with bits of a host, such as `172.20.0.1/16`, and a range outside of its subnet.
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
    let mut changed = BTreeMap::new();
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
                None => {
                    changed.insert(name, (network, found));
                }
            },
        }
    }
    replace_networks(draft, changed);
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

/// Why a network waits for a newer engine, if it does.
fn reason_too_new(facts: &Facts<'_>, name: &str, network: &Network) -> Option<Wait> {
    let (speaks, need) = (facts.observed.engine_api?, network.needs()?);
    let object = WaitObject::Other { kind: "network", name: name.to_owned() };
    (speaks < need.api).then(|| Wait::engine_too_old(object, &need.field, need.api, speaks))
}

/// Creates a network of this host, whose addresses the engine chooses.
fn network_creation(draft: &Draft<'_>, name: &str, network: &Network) -> Action {
    let project = draft.facts.target.stack.project.clone();
    Action::CreateNetwork { name: name.to_owned(), network: network.clone(), project, addresses: None }
}

fn create_network(draft: &mut Draft<'_>, name: &str, network: &Network) {
    if let Some(wait) = reason_too_new(draft.facts, name, network) {
        draft.wait(wait);
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

/// Networks that Git has changed, as it wants them and as they are.
type ChangedNetworks<'a> = BTreeMap<&'a String, (&'a Network, &'a ObservedNetwork)>;

/// A network cannot be changed: everybody leaves, it is created again, and those who stay come back. Containers are
/// kept; their addresses change.
fn replace_networks<'a>(draft: &mut Draft<'a>, mut changed: ChangedNetworks<'a>) {
    let facts = draft.facts;
    draft.kept_networks.extend(changed.keys().map(|name| (*name).clone()));
    if !draft.missing_images.is_empty() || facts.is_held_by_hooks {
        // Until all images are here and all hooks have succeeded, nothing that runs is cut off. That is said elsewhere.
        return;
    }
    changed.retain(|name, (network, found)| {
        let Some(wait) = reason_to_keep(facts, name, network, found) else { return true };
        draft.wait(wait);
        false
    });
    // One that stays keeps its subnets, which another one may want.
    loop {
        let refused = changed.iter().find_map(|(name, (network, _))| {
            refused_subnet(facts, name, network, &changed).map(|why| (*name, why))
        });
        let Some((name, why)) = refused else { break };
        draft.wait(Wait::subnet_refused(name, &why));
        changed.remove(name);
    }
    let pulls: Vec<usize> = draft.pulls.values().copied().collect();
    let mut removals = BTreeMap::new();
    for (name, (_, found)) in &changed {
        draft.kept_networks.remove(*name);
        let mut left = Vec::new();
        for instance in attached_to(facts, name) {
            let action = Action::Disconnect { container: instance.into(), network: (*name).clone() };
            left.push(draft.push(action, Cause::SpecChanged, pulls.clone()));
        }
        left.extend(pulls.iter().copied());
        let removal = Action::RemoveNetwork { name: (*name).clone(), id: found.id.clone() };
        removals.insert(*name, draft.push(removal, Cause::SpecChanged, left));
    }
    for (name, (network, _)) in changed {
        let is_in_the_way = |other: &String| other == name || wanted_subnet(facts, other, network).is_some();
        let after = removals.iter().filter(|(other, _)| is_in_the_way(other)).map(|(_, step)| *step);
        let creation = network_creation(draft, name, network);
        let created = draft.push(creation, Cause::SpecChanged, after.collect());
        draft.provided.insert(name.clone(), created);
        for instance in attached_to(facts, name) {
            let Some(attachment) = attachment(draft, instance, name) else { continue };
            let container = instance.into();
            let action = Action::Connect { container, network: name.clone(), attachment };
            let connected = draft.push(action, Cause::SpecChanged, vec![created]);
            draft.reconnected.entry(instance.id.clone()).or_default().push(connected);
        }
    }
}

/// The containers on a network.
fn attached_to<'a>(facts: &Facts<'a>, network: &str) -> impl Iterator<Item = &'a Instance> {
    facts.observed.instances.values().filter(move |instance| instance.networks.contains_key(network))
}

/// Why a changed network cannot be replaced for now, if it cannot, apart from its subnets.
fn reason_to_keep(facts: &Facts<'_>, name: &str, network: &Network, found: &ObservedNetwork) -> Option<Wait> {
    if let Some(wait) = reason_too_new(facts, name, network) {
        return Some(wait);
    }
    if let Some(own) = attached_to(facts, name).find(|it| facts.observed.own.as_ref() == Some(&it.id)) {
        let why = format!("network {name} has changed in Git and must be replaced");
        return Some(Wait::own(&own.name, None, &why));
    }
    let stranger = attached_to(facts, name).find(|it| it.agent != *facts.target.agent).map(|it| &it.name);
    let foreign = found.foreign.first().or(stranger)?;
    Some(Wait::network_in_use(name, foreign))
}

/// Why the engine would not create a network with its subnets once the present one is removed, as far as that is known. Those in
/// `replaced` go with it. One that Git does not have any more is removed before, in a round of its own.
fn refused_subnet(
    facts: &Facts<'_>,
    name: &str,
    network: &Network,
    replaced: &ChangedNetworks<'_>,
) -> Option<String> {
    if facts.observed.engine_api.is_some_and(|api| api >= STRICT_SUBNETS) {
        if let Some(subnet) = network.bridge_subnets().find(|subnet| *subnet != subnet.without_host()) {
            let right = subnet.without_host();
            return Some(format!("the engine refuses the subnet {subnet}: write {right}"));
        }
        if let Some((range, subnet)) = network.ranges_outside().next() {
            return Some(format!(
                "the engine refuses the range {range}, which is not in the subnet {subnet}"
            ));
        }
    }
    let others = facts.observed.held_subnets.keys();
    let mut staying = others.filter(|other| *other != name && !replaced.contains_key(*other));
    let (other, subnet) =
        staying.find_map(|other| wanted_subnet(facts, other, network).map(|subnet| (other, subnet)))?;
    // The bridge of the engine itself cannot be removed.
    let advice = if other == "bridge" { "" } else { ", or remove that network" };
    Some(format!(
        "its subnet {subnet} overlaps with that of the network {other}: give it another one{advice}"
    ))
}

/// The subnet that a network asks for and of which another one has addresses.
fn wanted_subnet(facts: &Facts<'_>, other: &str, network: &Network) -> Option<IpNetwork> {
    let held = facts.observed.held_subnets.get(other)?;
    network.bridge_subnets().find(|subnet| held.iter().any(|held| held.overlaps(*subnet)))
}

/// The desired attachment of an instance to a network: that of its workload, else the one it was created with.
fn attachment(draft: &Draft<'_>, instance: &Instance, network: &str) -> Option<Attachment> {
    let wanted = draft.facts.target.stack.workloads.get(&instance.instance.workload);
    wanted
        .and_then(|it| it.container.networks().get(network))
        .or_else(|| instance.config.networks().get(network))
        .map(|attachment| Attachment::clone(attachment))
}
