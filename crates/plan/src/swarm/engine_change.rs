//! Another engine for an application: it waits until what it has on the former one is gone. Both at once would do the work
//! twice, and a network of one engine is in the way of that of the other.

use driftless_model::{Instance, LeftInSwarm, Observed, ObservedNetwork, Record, Stack, SwarmNode};

use super::{ownership::is_of_application, progress, spec::OWNER};
use crate::{
    draft::Draft,
    facts::{Facts, standing::is_up},
    wait::{Wait, WaitObject, WaitReason},
};

/// Holds an application of this host that still has objects in a Swarm, or may have some while the Swarm cannot be asked.
pub(crate) fn hold_for_swarm(draft: &mut Draft<'_>) -> bool {
    let LeftInSwarm { services, configs, secrets, networks, unknown } = &draft.facts.observed.left_in_swarm;
    let left = [
        ("docker service rm", services),
        ("docker config rm", configs),
        ("docker secret rm", secrets),
        ("docker network rm", networks),
    ];
    let command = removal(left.map(|(command, names)| (command, names.iter().map(String::as_str))));
    let sentence = match (command, unknown) {
        (Some(command), _) => format!(
            "has objects of `engine: swarm`: remove them with `{command}`, or set `engine: swarm` again"
        ),
        (None, Some(reason)) => {
            format!("may have objects of `engine: swarm`, which the Swarm does not list now: {reason}")
        }
        (None, None) => return false,
    };
    draft.wait(Wait::new(WaitObject::Application, WaitReason::Blocked, sentence));
    draft.look_again(draft.facts.now.after(progress::LOOK_AGAIN));
    true
}

/// The objects that an application of a Swarm still has on one host, by their names.
struct LeftOnHost<'a> {
    /// Containers with the labels of the application.
    own: Vec<&'a str>,
    /// Containers of Docker Compose that run. They would write to the same data as the services.
    of_compose: Vec<&'a str>,
    /// Networks of the host, adopted ones included.
    networks: Vec<&'a str>,
}

impl<'a> LeftOnHost<'a> {
    fn of(stack: &Stack, observed: &'a Observed, record: &'a Record) -> Self {
        // Tasks have no image on this host.
        let own = observed.containers().filter(|container| !container.image_id.is_empty());
        let is_new = is_new(stack, observed);
        let is_meant = |container: &&Instance| {
            let does_the_work = is_new || stack.workloads.contains_key(&container.instance.workload);
            does_the_work && is_up(container) && observed.own.as_ref() != Some(&container.id)
        };
        let of_compose = observed.candidates.values().map(|candidate| &candidate.instance).filter(is_meant);
        let adopted = &record.adopted.networks;
        let is_of_host = |name: &str, network: &ObservedNetwork| {
            let is_own = network.app.as_ref() == Some(&stack.app)
                && network.agent.as_ref().is_some_and(|agent| agent.as_str() != OWNER);
            is_own || adopted.get(name).is_some_and(|adopted| adopted.id == network.id)
        };
        let networks = observed.networks.iter().filter(|(name, network)| is_of_host(name, network));
        Self {
            own: own.map(|container| container.name.as_str()).collect(),
            of_compose: of_compose.map(|container| container.name.as_str()).collect(),
            networks: networks.map(|(name, _)| name.as_str()).collect(),
        }
    }

    /// The command that removes it. `None`: nothing is left.
    fn removal(&self) -> Option<String> {
        let containers = [self.own.as_slice(), self.of_compose.as_slice()].concat();
        let left = [("docker rm -f", containers), ("docker network rm", self.networks.clone())];
        removal(left.map(|(command, names)| (command, names.into_iter())))
    }
}

/// The command that removes what an application of a Swarm still has on this host, for the agents on the other managers: they do
/// not see it. `None`: nothing is left.
pub fn left_on_host(stack: &Stack, observed: &Observed, record: &Record) -> Option<String> {
    LeftOnHost::of(stack, observed, record).removal()
}

/// Why an application of a Swarm waits for its objects on the hosts.
pub(super) fn obstacle(facts: &Facts<'_>) -> Option<String> {
    let Facts { target, observed, record, .. } = facts;
    let is_new = is_new(target.stack, observed);
    let here = LeftOnHost::of(target.stack, observed, record);
    // Services that are there already go on: they could neither be healed nor removed otherwise.
    let blocks = is_new || here.networks.iter().any(|name| target.stack.networks.contains_key(*name));
    if let Some(command) = here.removal().filter(|_| blocks) {
        return Some(format!(
            "has objects of `engine: docker` on this host: remove them with `{command}`, or set `engine: docker`"
        ));
    }
    let (node, command) = on_other_managers(observed).next().filter(|_| is_new)?;
    let SwarmNode { name, state, .. } = node;
    let gone = if state == "ready" {
        String::new()
    } else {
        format!("; the node is {state}: if it does not come back, run `docker node demote {name}`")
    };
    Some(format!(
        "has objects of `engine: docker` on {name}, as the agent there says: remove them there with `{command}`, or set `engine: docker`{gone}"
    ))
}

/// Tells of containers that run although the application has services: both do the same work. The services go on, because they could
/// neither be healed nor removed otherwise.
pub(super) fn remark(draft: &mut Draft<'_>) {
    let Facts { target, observed, record, .. } = draft.facts;
    if is_new(target.stack, observed) {
        return;
    }
    let here = LeftOnHost::of(target.stack, observed, record).removal();
    let here = here.map(|command| ("this host", command));
    let elsewhere =
        on_other_managers(observed).map(|(node, command)| (node.name.as_str(), command.to_owned()));
    let all: Vec<_> = here.into_iter().chain(elsewhere).collect();
    for (place, command) in all {
        let sentence = format!(
            "also has containers on {place}, which do the work of its services once more: remove them there with `{command}`"
        );
        draft.wait(Wait::new(WaitObject::Application, WaitReason::RunsTwice, sentence));
    }
}

/// Whether an application has workloads, and no service of them exists.
fn is_new(stack: &Stack, observed: &Observed) -> bool {
    let mut services = observed.swarm.iter().flat_map(|swarm| swarm.services.values());
    !stack.workloads.is_empty() && !services.any(|service| is_of_application(stack, service))
}

/// The other managers that have containers of the application, as their agents say, and the command that removes them. Nobody speaks
/// for a node that left the managers, nor for one that has joined again under another id.
fn on_other_managers(observed: &Observed) -> impl Iterator<Item = (&SwarmNode, &str)> {
    let swarm = observed.swarm.as_deref();
    let state = swarm.and_then(|swarm| swarm.shared.as_ref()?.state.as_ref());
    let left = state.into_iter().flat_map(|state| &state.left);
    left.filter_map(move |(id, command)| {
        let swarm = swarm.filter(|swarm| swarm.node != *id)?;
        let node = swarm.nodes.get(id).filter(|node| node.is_manager)?;
        let mut others = swarm.nodes.iter().filter(|(other, _)| *other != id);
        let is_replaced = node.state != "ready" && others.any(|(_, other)| other.name == node.name);
        (!is_replaced).then_some((node, command.as_str()))
    })
}

/// The command that removes objects. `None`: there are none.
fn removal<'a, const N: usize>(left: [(&'static str, impl Iterator<Item = &'a str>); N]) -> Option<String> {
    let commands = left.into_iter().filter_map(|(command, names)| {
        let names: Vec<&str> = names.collect();
        (!names.is_empty()).then(|| format!("{command} {}", names.join(" ")))
    });
    let commands: Vec<String> = commands.collect();
    (!commands.is_empty()).then(|| commands.join(" && "))
}
