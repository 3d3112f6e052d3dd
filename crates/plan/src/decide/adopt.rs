//! Holding back workloads with containers that Docker Compose started and nobody adopted.

use std::collections::BTreeSet;

use driftless_model::WorkloadName;

use crate::{
    draft::Draft,
    facts::adoption::{Claim, Claimed, survey},
    wait::{Adoption, Starter, Wait},
};

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
    holds_all
}
