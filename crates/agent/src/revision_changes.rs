//! What a revision changes against the one before, one sentence each, for the history.

use driftless_model::{Container, Mask, Stack};
use driftless_plan::differences;

/// More are counted, not listed.
const MOST: usize = 20;

pub(crate) fn describe(before: Option<&Stack>, after: &Stack, mask: &Mask) -> Vec<String> {
    let Some(before) = before else {
        return after.workloads.keys().map(|name| format!("{name}: new")).collect();
    };
    let mut all = Vec::new();
    for (name, workload) in &after.workloads {
        let Some(old) = before.workloads.get(name) else {
            all.push(format!("{name}: new"));
            continue;
        };
        if old.replicas != workload.replicas {
            all.push(format!("{name}: replicas: {} -> {}", old.replicas, workload.replicas));
        }
        let nothing = Container::default();
        let found = old.container.over(&nothing);
        for difference in differences(&workload.container, &nothing, &found, mask) {
            all.push(format!("{name}: {}: {} -> {}", difference.field, difference.found, difference.want));
        }
    }
    for name in before.workloads.keys().filter(|it| !after.workloads.contains_key(it)) {
        all.push(format!("{name}: removed"));
    }
    if all.len() > MOST {
        let more = all.len() - MOST;
        all.truncate(MOST);
        all.push(format!("and {more} more"));
    }
    all
}
