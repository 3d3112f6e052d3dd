//! Adopting containers, networks and volumes of Docker Compose.

use driftless_model::{AdoptedContainer, AdoptedNetwork, AgentId, Candidate, Observed, Record};

use crate::{
    facts::adoption::{Claim, Claimed, survey},
    target::Target,
};

/// Adopts everything, or nothing and returns the obstacles.
pub fn adopt(
    record: &mut Record,
    target: &Target<'_>,
    observed: &Observed,
) -> Result<Vec<Claim>, Vec<String>> {
    adopt_without(record, target, observed, |_| false)
}

/// Adopts everything except the containers that are left to a user. If any container has an obstacle, also one of these, nothing is
/// adopted: the others would be replaced in the middle of a project that stays with Docker Compose.
pub fn adopt_without(
    record: &mut Record,
    target: &Target<'_>,
    observed: &Observed,
    is_left: impl Fn(&Candidate) -> bool,
) -> Result<Vec<Claim>, Vec<String>> {
    let mut claims = survey(target, observed);
    let obstacles: Vec<String> = claims
        .iter()
        .filter_map(|it| it.obstacle.as_ref().map(|obstacle| format!("{}: {obstacle}", it.name)))
        .collect();
    if !obstacles.is_empty() {
        return Err(obstacles);
    }
    claims.retain(|claim| match &claim.what {
        Claimed::Container { id, .. } => !observed.candidates.get(id).is_some_and(&is_left),
        Claimed::Network { .. } | Claimed::Volume => true,
    });
    note_claims(record, &claims);
    Ok(claims)
}

/// Adopts everything in a copy of the record, also what has an obstacle or may not be adopted, so that what runs can be compared with Git.
pub fn suppose_adopted(record: &mut Record, target: &Target<'_>, observed: &Observed) -> Vec<Claim> {
    let claims = survey(target, observed);
    note_claims(record, &claims);
    claims
}

fn note_claims(record: &mut Record, claims: &[Claim]) {
    for Claim { name, what, spec, .. } in claims {
        match what {
            Claimed::Container { id, instance, by_name: _, activity: _ } => {
                record.adopted.workloads.insert(instance.workload.clone());
                let taken = AdoptedContainer { instance: instance.clone(), spec: spec.clone() };
                record.adopted.containers.insert(id.clone(), taken);
                record.own_containers.insert(id.clone());
            }
            Claimed::Network { id } => {
                let taken = AdoptedNetwork { id: id.clone(), spec: spec.clone() };
                record.adopted.networks.insert(name.clone(), taken);
            }
            Claimed::Volume => drop(record.adopted.volumes.insert(name.clone(), spec.clone())),
        }
    }
}

/// Moves adopted objects among the agent's own, as if they carried the agent's labels.
pub fn merge_adopted(observed: &mut Observed, record: &Record, agent: &AgentId) {
    for (id, taken) in &record.adopted.containers {
        let Some(Candidate { mut instance, .. }) = observed.candidates.remove(id) else { continue };
        instance.agent = agent.clone();
        instance.instance = taken.instance.clone();
        instance.spec = taken.spec.clone();
        observed.claims.adopt(id, &instance.name);
        for network in observed.networks.values_mut() {
            network.foreign.retain(|it| *it != instance.name);
        }
        observed.instances.insert(id.clone(), instance);
    }
    for (name, taken) in &record.adopted.networks {
        let found = observed.networks.get_mut(name).filter(|it| it.agent.is_none() && it.id == taken.id);
        if let Some(network) = found {
            network.agent = Some(agent.clone());
            network.spec = Some(taken.spec.clone());
        }
    }
    for (name, spec) in &record.adopted.volumes {
        if let Some(volume) = observed.volumes.get_mut(name).filter(|it| it.agent.is_none()) {
            volume.agent = Some(agent.clone());
            volume.spec = Some(spec.clone());
        }
    }
}
