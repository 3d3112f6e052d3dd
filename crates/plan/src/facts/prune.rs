//! The number of workloads that leave an application together. A commit that removes most of them may be a mistake.

use crate::facts::Facts;

/// Number of workloads that are removed without confirmation, even if they are most of the application.
const FEW: usize = 3;

/// Whether so many workloads leave that somebody has to confirm it, and nobody has.
pub(crate) fn needs_confirmation(facts: &Facts<'_>, leaving: usize) -> bool {
    let stack = facts.target.stack;
    // A new name for everything is as much that comes as goes.
    let all = leaving + stack.workloads.len();
    let limit = usize::from(facts.target.policy.max_prune_percent);
    if leaving <= FEW || leaving * 100 <= all * limit || is_removed(facts) {
        return false;
    }
    // Containers that appeared after the sync are drift and no part of the application.
    !facts.is_settled() && facts.record.prune.as_ref() != Some(facts.revision())
}

/// Whether the whole application is removed, because it has left Git or a user asked for it. A commit in which it only has no workload
/// left, such as one that drops its profiles, removes it by accident.
fn is_removed(facts: &Facts<'_>) -> bool {
    let record = facts.record;
    facts.target.stack.workloads.is_empty() && (record.has_left || record.removal.is_some())
}
