//! Services that leave Git, some of them protected by a label.

use super::*;

const NAMES: [&str; 7] = ["a", "b", "c", "d", "e", "f", "g"];

/// A settled application with these services protected, of which Git keeps only some.
fn left_with(protected: &[&str], kept: &[&str]) -> Cluster {
    let mut cluster = Cluster::new(NAMES.map(|name| (name, workload("web:1", 1))));
    cluster.settle();
    for name in protected {
        cluster.spec(&format!("shop_{name}"))["Labels"]["driftless.prune"] = json!("false");
    }
    cluster.stack.workloads.retain(|name, _| kept.contains(&name.as_str()));
    cluster
}

#[test]
fn protected_services_do_not_count_as_removed() {
    let mut cluster = left_with(&["b", "c", "d", "e"], &["a", "f", "g"]);
    let waits = cluster.waits();
    assert!(!waits.contains("maxPrunePercent"), "{waits}");
    assert_eq!(waits.matches("remove it with `docker service rm").count(), 4, "{waits}");
    assert_eq!(cluster.swarm.services.len(), NAMES.len());
}

#[test]
fn removal_to_confirm_names_no_protected_service() {
    let mut cluster = left_with(&["b"], &["a"]);
    let waits = cluster.waits();
    assert!(waits.contains("this commit removes 5 of 6 workloads (c, d, e, f, g)"), "{waits}");
    assert_eq!(cluster.swarm.services.len(), NAMES.len());
}

#[test]
fn commit_without_any_service_waits_for_confirmation() {
    let mut cluster = left_with(&[], &[]);
    let waits = cluster.waits();
    assert!(waits.contains("this commit removes 7 of 7 workloads"), "{waits}");
    assert_eq!(cluster.swarm.services.len(), NAMES.len());
    // As the agent removes an application that has left Git.
    cluster.record.has_left = true;
    cluster.settle();
    assert!(cluster.swarm.services.is_empty());
}
