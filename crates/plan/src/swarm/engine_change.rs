//! Another engine for an application: it waits until what it has on the former one is gone. Both at once would do the work
//! twice, and a network of one engine is in the way of that of the other.

use driftless_model::{LeftInSwarm, ObservedNetwork};

use super::{ownership::is_of_application, progress, spec::OWNER};
use crate::{
    draft::Draft,
    facts::{Facts, standing::is_up},
    wait::{Wait, WaitObject, WaitReason},
};

/// Holds an application of this host that still has objects in a Swarm.
pub(crate) fn hold_for_swarm(draft: &mut Draft<'_>) -> bool {
    let LeftInSwarm { services, configs, secrets, networks } = &draft.facts.observed.left_in_swarm;
    let left = [
        ("docker service rm", services),
        ("docker config rm", configs),
        ("docker secret rm", secrets),
        ("docker network rm", networks),
    ];
    let Some(command) = removal(left.map(|(command, names)| (command, names.iter().map(String::as_str))))
    else {
        return false;
    };
    let sentence =
        format!("has objects of `engine: swarm`: remove them with `{command}`, or set `engine: swarm` again");
    draft.wait(Wait::swarm(WaitObject::Application, WaitReason::Blocked, sentence));
    draft.look_again(draft.facts.now.after(progress::LOOK_AGAIN));
    true
}

/// Why an application of a Swarm waits for its objects on this host.
pub(super) fn left_on_host(facts: &Facts<'_>) -> Option<String> {
    let observed = facts.observed;
    // Tasks have no image on this host.
    let own = observed.containers().filter(|container| !container.image_id.is_empty());
    // The containers of Docker Compose would write to the same data. Services that are there already go on: they could
    // neither be healed nor removed.
    let stack = facts.target.stack;
    let mut services = observed.swarm.iter().flat_map(|swarm| swarm.services.values());
    let is_new = !stack.workloads.is_empty() && !services.any(|service| is_of_application(stack, service));
    let of_compose = observed.candidates.values().map(|candidate| &candidate.instance);
    let of_compose = of_compose
        .filter(|container| is_new && is_up(container) && observed.own.as_ref() != Some(&container.id));
    let containers: Vec<&str> = own.chain(of_compose).map(|container| container.name.as_str()).collect();
    let adopted = &facts.record.adopted.networks;
    let is_of_host = |name: &str, network: &ObservedNetwork| {
        let is_own = network.app.as_ref() == Some(&facts.target.stack.app)
            && network.agent.as_ref().is_some_and(|agent| agent.as_str() != OWNER);
        is_own || adopted.get(name).is_some_and(|adopted| adopted.id == network.id)
    };
    let networks = observed.networks.iter().filter(|(name, network)| is_of_host(name, network));
    let networks: Vec<&str> = networks.map(|(name, _)| name.as_str()).collect();
    let left = [("docker rm -f", containers), ("docker network rm", networks)];
    let command = removal(left.map(|(command, names)| (command, names.into_iter())))?;
    Some(format!(
        "has objects of `engine: docker` on this host: remove them with `{command}`, or set `engine: docker`"
    ))
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
