//! Networks and volumes: provided before anybody needs them, collected when nobody does.
//!
//! Volumes are created when missing and otherwise left alone, for ever.

use driftless_model::{
    AppName, Attachment, Instance, Mask, Network, ObservedNetwork, ObservedVolume, SpecHash, Stack, Volume,
};

use super::{
    Action, Cause, Wait,
    adopt::volume_differences,
    diff::FieldDifference,
    round::{Difference, Round, reference},
};

/// Plans the networks and volumes that the stack needs.
pub(super) fn provide(round: &mut Round<'_>) {
    for (name, volume) in &round.target.stack.volumes {
        let found = round.observed.volumes.get(name);
        match found {
            None if volume.external => absent(round, "volume", name),
            None => {
                let action = Action::CreateVolume { name: name.clone(), volume: volume.clone() };
                let step = round.push(action, Cause::Missing, vec![]);
                round.provided.insert(name.clone(), step);
            }
            Some(it) => {
                if let Some(owner) = other_owner(round, it.app.as_ref()) {
                    round.wait(of_another("volume", name, owner, volume.external));
                    continue;
                }
                let is_ours = it.agent.as_ref() == Some(round.target.agent);
                if is_ours && !volume.external && it.spec.as_ref() != Some(&SpecHash::of(volume)) {
                    volume_changed(round, name, volume, it);
                }
            }
        }
    }
    for (name, network) in &round.target.stack.networks {
        let found = round.observed.networks.get(name);
        match found {
            None if network.external => absent(round, "network", name),
            None => create_network(round, name, network),
            Some(it) => {
                if let Some(owner) = other_owner(round, it.app.as_ref()) {
                    // Applications share external networks all the time: that is no news.
                    if !network.external {
                        round.wait(of_another("network", name, owner, false));
                    }
                    continue;
                }
                let is_ours = it.agent.as_ref() == Some(round.target.agent);
                if is_ours && !network.external && it.spec.as_ref() != Some(&SpecHash::of(network)) {
                    replace_network(round, name, network, it);
                }
            }
        }
    }
}

/// Whether a network of this name is there and a workload may join it.
pub(super) fn is_usable_network(round: &Round<'_>, name: &str) -> bool {
    let is_external = round.target.stack.networks.get(name).is_some_and(|network| network.external);
    let found = round.observed.networks.get(name);
    found.is_some_and(|found| is_external || other_owner(round, found.app.as_ref()).is_none())
}

/// Whether a volume of this name is there and a workload may mount it.
pub(super) fn is_usable_volume(round: &Round<'_>, name: &str) -> bool {
    let is_external = round.target.stack.volumes.get(name).is_some_and(|volume| volume.external);
    let found = round.observed.volumes.get(name);
    found.is_some_and(|found| is_external || other_owner(round, found.app.as_ref()).is_none())
}

/// The application that an object was created for, if it is another one.
fn other_owner(round: &Round<'_>, labelled: Option<&AppName>) -> Option<AppName> {
    labelled.filter(|app| **app != round.target.stack.app).cloned()
}

fn of_another(kind: &str, name: &str, owner: AppName, is_external: bool) -> Wait {
    Wait::OfAnotherApplication { kind: kind.to_owned(), name: name.to_owned(), owner, is_external }
}

/// Plans the removal of our networks that the stack does not name and nothing is attached to.
pub(super) fn collect(round: &mut Round<'_>) {
    for (name, network) in &round.observed.networks {
        let is_ours = network.agent.as_ref() == Some(round.target.agent)
            && other_owner(round, network.app.as_ref()).is_none();
        // What is fallen back to may still need it.
        let is_needed = |it: &Stack| it.networks.contains_key(name);
        let is_held = !round.unpulled.is_empty() && round.target.fallback.is_some_and(is_needed);
        if !is_ours || is_needed(round.target.stack) || is_held || !network.foreign.is_empty() {
            continue;
        }
        let attached = round.observed.instances.values().filter(|it| it.networks.contains_key(name));
        let leaving: Option<Vec<usize>> = attached.map(|it| round.removed.get(&it.id).copied()).collect();
        if let Some(after) = leaving {
            let action = Action::RemoveNetwork { name: name.clone(), id: network.id.clone() };
            round.push(action, Cause::NotInGit, after);
        }
    }
}

/// A volume is never changed, so what differs is named: whoever reads it has to move the data.
fn volume_changed(round: &mut Round<'_>, name: &str, wanted: &Volume, found: &ObservedVolume) {
    let mask = round.target.mask;
    let differences = found.compose.as_ref().map(|it| volume_differences(wanted, it));
    if differences.as_ref().is_some_and(Vec::is_empty) {
        // Its key in the manifest is another, and nothing else.
        return;
    }
    let one = |FieldDifference { field, want, found }: FieldDifference| {
        // `o: username=me,password=…` is how a share of another host is mounted.
        let is_telling = |it: &str| it.split([',', '=']).any(Mask::is_telling);
        if Mask::is_telling(&field) || is_telling(&want) || is_telling(&found) {
            format!("{field} differs")
        } else {
            format!("{field} is {}, not {}", mask.text(&found), mask.text(&want))
        }
    };
    let differences = differences.into_iter().flatten().map(one).collect();
    round.wait(Wait::VolumeChanged { name: name.to_owned(), differences });
}

fn absent(round: &mut Round<'_>, kind: &str, name: &str) {
    round.wait(Wait::ExternalMissing { kind: kind.to_owned(), name: name.to_owned() });
}

/// Says so where the engine is too old for a network.
fn is_too_new(round: &mut Round<'_>, name: &str, network: &Network) -> bool {
    let (Some(speaks), Some(need)) = (round.observed.engine_api, network.needs()) else { return false };
    if speaks >= need.api {
        return false;
    }
    let object = format!("network {name}");
    round.wait(Wait::EngineTooOld { object, field: need.field, needs: need.api, speaks });
    true
}

fn create_network(round: &mut Round<'_>, name: &str, network: &Network) {
    if is_too_new(round, name, network) {
        return;
    }
    let cause = if round.is_settled() {
        let difference = Difference {
            kind: "network",
            object: name,
            workload: None,
            field: "exists".into(),
            want: "present".into(),
            found: "missing".into(),
            at: None,
        };
        round.heal(difference)
    } else {
        Some(Cause::Missing)
    };
    if let Some(cause) = cause {
        let action = Action::CreateNetwork { name: name.to_owned(), network: network.clone() };
        let step = round.push(action, cause, vec![]);
        round.provided.insert(name.to_owned(), step);
    }
}

/// A network cannot be changed: everybody leaves, it is made anew, and those who stay come back. Containers are
/// kept; their addresses change.
fn replace_network(round: &mut Round<'_>, name: &str, network: &Network, found: &ObservedNetwork) {
    if is_too_new(round, name, network) {
        return;
    }
    if !round.unpulled.is_empty() {
        // Until all images are at hand, nothing that runs is cut off. That is said where pulls are planned.
        return;
    }
    let attached: Vec<_> =
        round.observed.instances.values().filter(|it| it.networks.contains_key(name)).collect();
    let stranger = attached.iter().find(|it| it.agent != *round.target.agent).map(|it| &it.name);
    if let Some(own) = attached.iter().find(|it| round.observed.own.as_ref() == Some(&it.id)) {
        let what = format!("network {name} has changed in Git and is to be made anew");
        round.wait(Wait::Own { workload: None, container: own.name.clone(), what });
        return;
    }
    if let Some(foreign) = found.foreign.first().or(stranger) {
        let what = "the last attachment (it has changed in Git, and is to be made anew)".to_owned();
        round.wait(Wait::Blocked { object: format!("network {name}"), by: foreign.clone(), what });
        return;
    }
    let pulls: Vec<usize> = round.pulls.values().copied().collect();
    let mut left = Vec::new();
    for instance in &attached {
        let action = Action::Disconnect { container: reference(instance), network: name.to_owned() };
        left.push(round.push(action, Cause::SpecChanged, pulls.clone()));
    }
    let removal = Action::RemoveNetwork { name: name.to_owned(), id: found.id.clone() };
    left.extend(pulls);
    let removed = round.push(removal, Cause::SpecChanged, left);
    let creation = Action::CreateNetwork { name: name.to_owned(), network: network.clone() };
    let created = round.push(creation, Cause::SpecChanged, vec![removed]);
    round.provided.insert(name.to_owned(), created);
    for instance in attached {
        let Some(attachment) = attachment(round, instance, name) else { continue };
        let container = reference(instance);
        let action = Action::Connect { container, network: name.to_owned(), attachment };
        let connected = round.push(action, Cause::SpecChanged, vec![created]);
        round.reconnected.entry(instance.id.clone()).or_default().push(connected);
    }
}

/// How an instance is to be on a network: as its workload is wanted, or else as it was made.
fn attachment(round: &Round<'_>, instance: &Instance, network: &str) -> Option<Attachment> {
    let wanted = round.target.stack.workloads.get(&instance.instance.workload);
    wanted
        .and_then(|it| it.container.networks().get(network))
        .or_else(|| instance.config.networks().get(network))
        .cloned()
}
