//! Networks of a Swarm: created, reported where services cannot use them, and removed.

use std::collections::{BTreeMap, BTreeSet};

use driftless_model::{
    Mask, Network, Observed, ObservedNetwork, ObservedService, ObservedSwarm, Stack, WorkloadName,
    addresses_at_least, addresses_at_most,
};
use serde_json::Value;

use super::ownership::staying;
use crate::{
    action::Action,
    cause::Cause,
    draft::{Draft, heal::Difference},
    facts::ownership::{forbidden_owner, is_as_wanted},
    fields::resources::network_differences,
    wait::{Wait, WaitObject, WaitReason},
};

/// Networks of a host for which a Swarm has some of the same name.
const PREDEFINED: [&str; 4] = ["bridge", "default", "host", "none"];

/// The networks of services in this round.
#[derive(Default)]
pub(super) struct NetworkSteps {
    /// The steps that create them, by name.
    steps: BTreeMap<String, usize>,
    /// Those that no service can use.
    lacking: BTreeSet<String>,
}

impl NetworkSteps {
    /// The steps that a service waits for. `None`: it needs a network that it cannot use.
    pub(super) fn of(&self, draft: &Draft<'_>, workload: &WorkloadName) -> Option<Vec<usize>> {
        let stack = draft.facts.target.stack;
        let names = stack.workloads.get(workload)?.container.networks();
        let steps = || names.keys().filter_map(|name| self.steps.get(name)).copied().collect();
        self.are_usable(stack, workload).then(steps)
    }

    /// Whether a service can use all of its networks.
    pub(super) fn are_usable(&self, stack: &Stack, workload: &WorkloadName) -> bool {
        let is_usable = |name: &String| !self.lacking.contains(name);
        let workload = stack.workloads.get(workload);
        workload.is_none_or(|workload| workload.container.networks().keys().all(is_usable))
    }
}

/// Creates missing networks.
pub(super) fn provide(draft: &mut Draft<'_>, swarm: &ObservedSwarm) -> NetworkSteps {
    let facts = draft.facts;
    let stack = facts.target.stack;
    let nodes = u64::try_from(swarm.nodes.len()).unwrap_or(u64::MAX);
    let (at_least, at_most) = (addresses_at_least(stack), addresses_at_most(stack, nodes));
    let mut provided = NetworkSteps::default();
    for (name, network) in &stack.networks {
        let create = || {
            let addresses = at_most.get(name.as_str()).copied();
            let project = stack.project.clone();
            Action::CreateNetwork { name: name.clone(), network: network.clone(), project, addresses }
        };
        let Some(found) = facts.observed.networks.get(name) else {
            match creation_cause(draft, name, network) {
                Some(cause) => {
                    provided.steps.insert(name.clone(), draft.push(create(), cause, Vec::new()));
                }
                None => {
                    provided.lacking.insert(name.clone());
                }
            }
            continue;
        };
        // An agent has ended before it saw that the Swarm gives this network no addresses.
        if !network.external
            && found.is_unallocated
            && is_own(draft, found)
            && !is_used(facts.observed, name, found)
            && found.foreign.is_empty()
        {
            let action = Action::RemoveNetwork { name: name.clone(), id: found.id.clone() };
            let removed = draft.push(action, Cause::Missing, Vec::new());
            provided.steps.insert(name.clone(), draft.push(create(), Cause::Missing, vec![removed]));
            continue;
        }
        if let Some(wait) = unusable(draft, name, network, found) {
            draft.wait(wait);
            provided.lacking.insert(name.clone());
        } else if !network.external {
            let needed = at_least.get(name.as_str()).copied().unwrap_or_default();
            report_differences(draft, name, (network, needed), found);
        }
    }
    provided
}

/// Why a missing network is created. `None`: it is not, and the reason is reported.
fn creation_cause(draft: &mut Draft<'_>, name: &str, network: &Network) -> Option<Cause> {
    if network.external {
        draft.wait(Wait::external_missing("network", name));
        None
    } else if draft.facts.is_network_at_rest(name) {
        draft.heal(Difference::missing_network(name))
    } else {
        Some(Cause::Missing)
    }
}

fn is_own(draft: &Draft<'_>, found: &ObservedNetwork) -> bool {
    found.app.as_ref().is_none_or(|app| *app == draft.facts.target.stack.app)
}

/// Why no service can use a network.
fn unusable(draft: &Draft<'_>, name: &str, network: &Network, found: &ObservedNetwork) -> Option<Wait> {
    if let Some(app) = found.app.as_ref().filter(|_| !network.external && !is_own(draft, found)) {
        return Some(Wait::of_another_application("network", name, app));
    }
    if let Some(app) = forbidden_owner(draft.facts, found) {
        return Some(Wait::forbidden("network", name, app));
    }
    let is_predefined = network.external && PREDEFINED.contains(&name);
    (found.is_local && !is_predefined).then(|| {
        let sentence = format!(
            "is a network of this host alone, and services need one of the Swarm: give it another `name` in Git, or remove it with `docker network rm {name}`"
        );
        blocked(name, sentence)
    })
}

/// Reports what services have to live with: a network of a Swarm never changes.
fn report_differences(
    draft: &mut Draft<'_>,
    name: &str,
    (network, needed): (&Network, u64),
    found: &ObservedNetwork,
) {
    let sentence = if found.is_unallocated {
        "has no addresses, so its services wait for ever: its `ipam` overlaps with the range of another network; give it another `name` and another range in Git".to_owned()
    } else if let Some(change) = change_in_git(network, found, draft.facts.target.mask) {
        format!(
            "{change}, and a network of a Swarm cannot be replaced while services use it: give it another name"
        )
    } else if let Some(room) = found.addresses.filter(|room| *room < needed) {
        format!(
            "has {room} addresses, and the services need {needed}: give it another `name` in Git, then a larger one takes its place"
        )
    } else {
        return;
    };
    draft.wait(blocked(name, sentence));
}

/// The difference of a network from Git. The labels of one that somebody else created say nothing.
fn change_in_git(network: &Network, found: &ObservedNetwork, mask: &Mask) -> Option<String> {
    if found.spec.is_some() {
        return (!is_as_wanted(network, found)).then(|| "has changed in Git".to_owned());
    }
    let present = found.unlabelled.as_ref()?;
    let present = Network { labels: network.labels.clone(), ..present.clone() };
    let differences = network_differences(network, &present, mask);
    let mut fields: Vec<&str> = differences.iter().map(|difference| difference.field.as_str()).collect();
    if network.attachable != present.attachable {
        fields.push("attachable");
    }
    (!fields.is_empty()).then(|| format!("differs from Git ({})", fields.join(", ")))
}

fn blocked(name: &str, sentence: impl Into<String>) -> Wait {
    let object = WaitObject::Other { kind: "network", name: name.to_owned() };
    Wait::new(object, WaitReason::Blocked, sentence)
}

/// Whether a service uses a network.
fn is_used(observed: &Observed, name: &str, network: &ObservedNetwork) -> bool {
    observed.swarm.as_ref().is_some_and(|swarm| swarm.services.values().any(|it| uses(it, name, network)))
}

fn uses(service: &ObservedService, name: &str, network: &ObservedNetwork) -> bool {
    let all = service.spec.pointer("/TaskTemplate/Networks").and_then(Value::as_array);
    let mut targets = all.into_iter().flatten().filter_map(|it| it.get("Target")?.as_str());
    targets.any(|target| target == network.id || target == name)
}

/// Removes networks of the application that Git does not have any more, and that no service uses which stays. `services` are the steps that
/// remove services.
pub(super) fn remove_unused(draft: &mut Draft<'_>, swarm: &ObservedSwarm, services: &[usize]) {
    let facts = draft.facts;
    let stack = facts.target.stack;
    let staying: Vec<&ObservedService> = staying(draft, swarm).collect();
    for (name, found) in &facts.observed.networks {
        let is_own = found.app.as_ref() == Some(&stack.app);
        let is_used = !found.foreign.is_empty() || staying.iter().any(|service| uses(service, name, found));
        if is_own && !stack.networks.contains_key(name) && !is_used {
            let action = Action::RemoveNetwork { name: name.clone(), id: found.id.clone() };
            draft.push(action, Cause::NotInGit, services.to_vec());
        }
    }
}
