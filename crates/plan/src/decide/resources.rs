//! Networks and volumes: created before a workload needs them, and networks removed when none does.
//!
//! A volume is created when it is missing, and never changed. It is removed only with its application, if a user asked
//! for that.

use std::{collections::BTreeMap, time::Duration};

use driftless_model::{
    Attachment, HookRecord, Instance, IpNetwork, Network, ObservedNetwork, ObservedVolume, Removal, SpecHash,
    Stack, Subject, Volume,
};

use crate::{
    action::Action,
    cause::Cause,
    decide::waves,
    draft::{Draft, heal::Difference},
    facts::{
        Facts,
        ownership::{
            forbidden_owner, former_owner, is_as_wanted, is_left_behind, is_own, is_prune_protected,
            is_usable_network, other_owner,
        },
        standing::is_up,
    },
    fields::{diff::FieldDifference, resources::volume_differences},
    wait::{Wait, WaitObject},
};

/// From this version of its API on, Docker refuses a subnet with bits of a host, such as `172.20.0.1/16`, and a range outside of its subnet.
const STRICT_SUBNETS: (u16, u16) = (1, 44);
/// The options of a network with the name of an interface that only one network can have.
const INTERFACE_OPTIONS: [&str; 2] = ["com.docker.network.bridge.name", "parent"];
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
    let (mut missing, mut changed) = (BTreeMap::new(), BTreeMap::new());
    for (name, network) in facts.target.stack.networks.iter().filter(|(name, _)| is_due(name)) {
        match facts.observed.networks.get(name) {
            None if network.external && facts.observed.engine_traits.is_swarm_worker => {
                draft.wait(Wait::network_missing_on_worker(name));
            }
            None if network.external => draft.wait(Wait::external_missing("network", name)),
            None => {
                missing.insert(name, network);
            }
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
                    changed.insert(name, (network, Some(found)));
                }
            },
        }
    }
    let dropped = dropped_networks(draft.facts, &missing);
    create_networks(draft, missing, &mut changed, &dropped);
    replace_networks(draft, changed, dropped);
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
        let is_planned = draft.removed_networks.contains(name);
        let is_kept = is_needed(draft.facts.target.stack) || is_held || !network.foreign.is_empty();
        if !is_ours || is_planned || is_kept {
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

/// Creates the networks that are missing. One that needs a range or an interface of a network which leaves in this round is created with
/// those that change.
fn create_networks<'a>(
    draft: &mut Draft<'a>,
    missing: BTreeMap<&'a String, &'a Network>,
    changed: &mut ChangedNetworks<'a>,
    dropped: &LeavingNetworks<'a>,
) {
    let facts = draft.facts;
    for (name, network) in missing {
        if let Some(wait) = reason_too_new(facts, name, network) {
            draft.wait(wait);
            continue;
        }
        let cause = if facts.is_network_at_rest(name) {
            draft.heal(Difference::missing_network(name))
        } else {
            Some(Cause::Missing)
        };
        let Some(cause) = cause else { continue };
        if changed.keys().chain(dropped.keys()).any(|other| is_in_the_way(facts, other, network)) {
            changed.insert(name, (network, None));
        } else if let Some(why) = refused_subnet(facts, name, network, |_| false) {
            draft.wait(Wait::network_refused(name, &why));
        } else {
            let creation = network_creation(draft, name, network);
            let step = draft.push(creation, cause, vec![]);
            draft.provided.insert(name.clone(), step);
        }
    }
}

/// Networks that Git has changed, as it wants them and as they are; and networks that are missing and need a range of those, which are
/// `None` as they are.
type ChangedNetworks<'a> = BTreeMap<&'a String, (&'a Network, Option<&'a ObservedNetwork>)>;

/// Networks that are removed.
type LeavingNetworks<'a> = BTreeMap<&'a String, &'a ObservedNetwork>;

/// The networks of ours that Git does not name any more, as after a rename, and whose range or interface a missing one needs. Their
/// containers wait for that one, so these networks cannot wait for the removal of their containers.
fn dropped_networks<'a>(
    facts: &'a Facts<'a>,
    missing: &BTreeMap<&'a String, &'a Network>,
) -> LeavingNetworks<'a> {
    let stack = facts.target.stack;
    let can_leave = |instance: &Instance| {
        instance.agent == *facts.target.agent
            && facts.observed.own.as_ref() != Some(&instance.id)
            && stack.workloads.contains_key(&instance.instance.workload)
    };
    let is_protected = |found: &ObservedNetwork| {
        found.compose.as_ref().is_some_and(|network| is_prune_protected(&network.labels))
    };
    let is_dropped = |name: &String, found: &ObservedNetwork| {
        is_own(facts, found)
            && !stack.networks.contains_key(name)
            && found.foreign.is_empty()
            && !is_protected(found)
            && attached_to(facts, name).all(can_leave)
            && missing.values().any(|network| is_in_the_way(facts, name, network))
    };
    facts.observed.networks.iter().filter(|(name, found)| is_dropped(name, found)).collect()
}

/// A network cannot be changed: everybody leaves, it is created again, and those who stay come back. Containers are
/// kept; their addresses change.
fn replace_networks<'a>(
    draft: &mut Draft<'a>,
    mut changed: ChangedNetworks<'a>,
    mut dropped: LeavingNetworks<'a>,
) {
    let facts = draft.facts;
    draft.kept_networks.extend(changed.keys().map(|name| (*name).clone()));
    if !draft.missing_images.is_empty() || facts.is_held_by_hooks {
        // Until all images are here and all hooks have succeeded, nothing that runs is cut off. That is said elsewhere.
        return;
    }
    changed.retain(|name, (network, found)| {
        let Some(wait) = reason_to_keep(facts, name, network, *found) else { return true };
        draft.wait(wait);
        false
    });
    // One that stays keeps its subnets, which another one may want.
    loop {
        dropped.retain(|name, _| {
            let mut missing = changed.values().filter(|(_, found)| found.is_none());
            missing.any(|(network, _)| is_in_the_way(facts, name, network))
        });
        let is_leaving = |other: &String| changed.contains_key(other) || dropped.contains_key(other);
        let refused = changed.iter().find_map(|(name, (network, found))| {
            refused_subnet(facts, name, network, is_leaving).map(|why| (*name, found.is_some(), why))
        });
        let Some((name, is_present, why)) = refused else { break };
        let refused = if is_present { Wait::subnet_refused } else { Wait::network_refused };
        draft.wait(refused(name, &why));
        changed.remove(name);
    }
    let removals = remove_networks(draft, &changed, &dropped);
    for (name, (network, _)) in changed {
        draft.kept_networks.remove(name);
        let comes_first = |other: &String| other == name || is_in_the_way(facts, other, network);
        let after = removals.iter().filter(|(other, _)| comes_first(other)).map(|(_, step)| *step);
        let creation = network_creation(draft, name, network);
        let created = draft.push(creation, Cause::SpecChanged, after.collect());
        draft.provided.insert(name.clone(), created);
        for instance in attached_to(facts, name).chain(moved_to(draft, name, &dropped)) {
            let Some(attachment) = attachment(draft, instance, name) else { continue };
            let container = instance.into();
            let action = Action::Connect { container, network: name.clone(), attachment };
            let connected = draft.push(action, Cause::SpecChanged, vec![created]);
            draft.reconnected.entry(instance.id.clone()).or_default().push(connected);
        }
    }
}

/// Disconnects all containers of networks that change or go, and removes these. Returns the removals.
fn remove_networks<'a>(
    draft: &mut Draft<'a>,
    changed: &ChangedNetworks<'a>,
    dropped: &LeavingNetworks<'a>,
) -> BTreeMap<&'a String, usize> {
    let facts = draft.facts;
    let pulls = draft.pull_steps();
    let present = changed.iter().filter_map(|(name, (_, found))| Some((*name, (*found)?)));
    let leaving = present.chain(dropped.iter().map(|(name, found)| (*name, *found)));
    let mut removals = BTreeMap::new();
    for (name, found) in leaving {
        let mut left = Vec::new();
        for instance in attached_to(facts, name) {
            let action = Action::Disconnect { container: instance.into(), network: name.clone() };
            let step = draft.push(action, Cause::SpecChanged, pulls.clone());
            left.push(step);
            if dropped.contains_key(name) {
                draft.reconnected.entry(instance.id.clone()).or_default().push(step);
            }
        }
        left.extend(pulls.iter().copied());
        let removal = Action::RemoveNetwork { name: name.clone(), id: found.id.clone() };
        removals.insert(name, draft.push(removal, Cause::SpecChanged, left));
    }
    draft.removed_networks.extend(dropped.keys().map(|name| (*name).clone()));
    removals
}

/// The running containers of networks that go which Git has on this network instead. They serve there until they are replaced.
fn moved_to<'a>(draft: &Draft<'a>, network: &str, dropped: &LeavingNetworks<'a>) -> Vec<&'a Instance> {
    let facts = draft.facts;
    let leaves = |instance: &Instance| instance.networks.keys().any(|name| dropped.contains_key(name));
    let is_wanted = |instance: &Instance| {
        let wanted = facts.target.stack.workloads.get_key_value(&instance.instance.workload);
        wanted.is_some_and(|(name, workload)| {
            workload.container.networks().contains_key(network)
                // Until then it is kept as it was.
                && waves::reason_to_wait(draft, Subject { name, workload }).is_none()
        })
    };
    let all = facts.observed.instances.values();
    let moved = all.filter(|it| is_up(it) && leaves(it) && !it.networks.contains_key(network));
    moved.filter(|it| is_wanted(it)).collect()
}

/// The containers on a network.
fn attached_to<'a>(facts: &Facts<'a>, network: &str) -> impl Iterator<Item = &'a Instance> {
    facts.observed.instances.values().filter(move |instance| instance.networks.contains_key(network))
}

/// Why a changed network cannot be replaced for now, if it cannot, apart from its subnets.
fn reason_to_keep(
    facts: &Facts<'_>,
    name: &str,
    network: &Network,
    found: Option<&ObservedNetwork>,
) -> Option<Wait> {
    if let Some(wait) = reason_too_new(facts, name, network) {
        return Some(wait);
    }
    if let Some(own) = attached_to(facts, name).find(|it| facts.observed.own.as_ref() == Some(&it.id)) {
        let why = format!("network {name} has changed in Git and must be replaced");
        return Some(Wait::own(&own.name, None, &why));
    }
    let stranger = attached_to(facts, name).find(|it| it.agent != *facts.target.agent).map(|it| &it.name);
    let foreign = found.and_then(|found| found.foreign.first()).or(stranger)?;
    Some(Wait::network_in_use(name, foreign))
}

/// Why the engine would not create a network with its subnets once the present one and those that leave with it are removed, as far as
/// that is known. Any other one that Git does not have any more is removed before, in a round of its own.
fn refused_subnet(
    facts: &Facts<'_>,
    name: &str,
    network: &Network,
    is_leaving: impl Fn(&String) -> bool,
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
    let mut staying = others.filter(|other| *other != name && !is_leaving(other));
    let (other, subnet) =
        staying.find_map(|other| wanted_subnet(facts, other, network).map(|subnet| (other, subnet)))?;
    // The bridge of the engine itself cannot be removed.
    let advice = if other == "bridge" { "" } else { ", or remove that network" };
    Some(format!(
        "its subnet {subnet} overlaps with that of the network {other}: give it another one{advice}"
    ))
}

/// Whether a network must be removed before another one can be created.
fn is_in_the_way(facts: &Facts<'_>, other: &str, network: &Network) -> bool {
    let present = facts.observed.networks.get(other).and_then(|found| found.compose.as_ref());
    let has_same = |option: &&str| {
        let wanted = network.options.get(*option);
        wanted.is_some() && present.is_some_and(|present| present.options.get(*option) == wanted)
    };
    wanted_subnet(facts, other, network).is_some() || INTERFACE_OPTIONS.iter().any(has_same)
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
