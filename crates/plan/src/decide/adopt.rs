//! Holding back workloads with containers that Docker Compose started and nobody adopted.

use std::{collections::BTreeSet, time::Duration};

use driftless_model::{Unadopted, WorkloadName};

use crate::{
    draft::Draft,
    facts::adoption::{Claim, Claimed, survey},
    wait::{Adoption, Starter, Wait},
};

/// The longest wait for `docker compose down` to remove its networks after its containers.
const TAKEN_DOWN_WITHIN: Duration = Duration::from_secs(10);

/// Holds back what nobody let the agent adopt. True: nothing of the application belongs to the agent yet, and nothing is
/// done before that is decided.
pub(crate) fn hold_unadopted(draft: &mut Draft<'_>) -> bool {
    let facts = draft.facts;
    let claims = survey(facts.target, facts.observed);
    let stack = facts.target.stack;
    let mut waiting: BTreeSet<&WorkloadName> = BTreeSet::new();
    for name in stack.workloads.keys() {
        let is_its = |claim: &&Claim| matches!(&claim.what, Claimed::Container { instance, .. } if instance.workload == *name);
        let of_it: Vec<&Claim> = claims.iter().filter(is_its).collect();
        if of_it.is_empty() {
            continue;
        }
        waiting.insert(name);
        let containers: Vec<String> = of_it.iter().map(|it| it.name.clone()).collect();
        let is_by_name = |claim: &&Claim| matches!(claim.what, Claimed::Container { by_name: true, .. });
        let starter = if of_it.iter().all(is_by_name) { Starter::Other } else { Starter::Compose };
        let obstacle = of_it.iter().find_map(|it| it.obstacle.as_deref());
        let adoption =
            Adoption { app: &stack.app, project: &stack.project, policy: facts.target.policy.adopt, starter };
        draft.wait(Wait::not_adopted(name, &containers, obstacle, adoption));
    }
    for claim in claims.iter().filter(|it| !it.differences.is_empty()) {
        let kind = match claim.what {
            Claimed::Container { .. } => continue,
            Claimed::Network { .. } => "network",
            Claimed::Volume => "volume",
        };
        let fields: Vec<&str> = claim.differences.iter().map(|it| it.field.as_str()).collect();
        draft.wait(Wait::not_as_in_git(kind, &claim.name, &fields));
    }
    let is_new = facts.instances.members.is_empty() && facts.instances.orphans.is_empty();
    let holds_all = is_new && !waiting.is_empty();
    draft.not_adopted = waiting.into_iter().cloned().collect();
    if holds_all {
        let is_of_compose = |claim: &Claim| matches!(claim.what, Claimed::Container { by_name: false, .. });
        draft.plan.unadopted = claims.iter().any(is_of_compose).then_some(Unadopted::Present);
        return true;
    }
    is_new && wait_until_taken_down(draft, &claims)
}

/// `docker compose down` removes its networks last, and fails if a container has joined one. So nothing starts between its last container
/// and its last network, unless only the containers are taken down.
fn wait_until_taken_down(draft: &mut Draft<'_>, claims: &[Claim]) -> bool {
    let facts = draft.facts;
    let gone = match facts.record.unadopted {
        None => return false,
        Some(Unadopted::Present) => facts.now,
        Some(Unadopted::Gone(at)) => at.min(facts.now),
    };
    let until = gone.after(TAKEN_DOWN_WITHIN);
    let network = claims.iter().find(|it| matches!(it.what, Claimed::Network { .. }));
    let Some(network) = network.filter(|_| facts.now < until) else { return false };
    for name in facts.target.stack.workloads.keys() {
        draft.wait(Wait::taken_down(name, &network.name, TAKEN_DOWN_WITHIN));
    }
    draft.look_again(until);
    draft.plan.unadopted = Some(Unadopted::Gone(gone));
    true
}
