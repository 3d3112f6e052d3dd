//! The changes of a revision against the one before, one sentence each, for the history, and the messages of its events.

use std::collections::BTreeSet;

use driftless_model::{CommitInfo, Container, Mask, MountSource, Stack, Workload, WorkloadName};
use driftless_plan::differences;

use crate::context::AppContext;

/// Maximum number of listed changes. Further ones are counted.
const MAX_LISTED: usize = 20;

/// The message about a revision that begins. `applied`: the commit of the one before, which had the application.
pub(crate) fn begun(stack: &Stack, commit: &CommitInfo, applied: Option<&CommitInfo>) -> String {
    if stack.is_empty() {
        if applied.is_some_and(|applied| applied.id == commit.id) {
            return "removing the application".to_owned();
        }
        return format!(
            "removing the application, which has left Git as of {} ({}, {})",
            commit.short(),
            commit.subject,
            commit.author_name()
        );
    }
    format!("applying {} ({})", commit.short(), commit.subject)
}

/// The message about a revision that has succeeded.
pub(crate) fn done(context: &AppContext, number: u64) -> &'static str {
    match context.store().stack(context.name(), number) {
        Ok(Some(stack)) if stack.is_empty() => "the application is removed",
        Ok(_) | Err(_) => "everything is as Git says",
    }
}

/// The changes from one stack to the next, with secrets masked.
pub(crate) fn describe(before: Option<&Stack>, after: &Stack, mask: &Mask) -> Vec<String> {
    let Some(before) = before else {
        return after.workloads.keys().map(|name| format!("{name}: new")).collect();
    };
    let mut changes = Vec::new();
    for (name, workload) in &after.workloads {
        let Some(old) = before.workloads.get(name) else {
            changes.push(format!("{name}: new"));
            continue;
        };
        if old.replicas != workload.replicas {
            changes.push(format!("{name}: replicas: {} -> {}", old.replicas, workload.replicas));
        }
        let no_defaults = Container::default();
        let found = old.container.effective(&no_defaults);
        for difference in differences(&workload.container, &no_defaults, &found, mask) {
            changes
                .push(format!("{name}: {}: {} -> {}", difference.field, difference.found, difference.want));
        }
    }
    let removed = before.workloads.keys().filter(|name| !after.workloads.contains_key(*name));
    changes.extend(removed.map(|name| format!("{name}: removed")));
    if changes.len() > MAX_LISTED {
        let more = changes.len() - MAX_LISTED;
        changes.truncate(MAX_LISTED);
        changes.push(format!("and {more} more"));
    }
    changes
}

/// The volumes that workloads mounted before and that nothing mounts any more, as after another key in `volumes` of a Compose file, each
/// with its workload. They stay with their data, and the workloads begin with others. One of a pod of a StatefulSet counts although others
/// mount it, because it was the pod's own. A cluster refuses a change of `volumeClaimTemplates`.
pub(crate) fn left_volumes<'s>(before: &'s Stack, after: &Stack) -> Vec<(&'s WorkloadName, &'s str)> {
    let mounted: BTreeSet<&str> = after.workloads.values().flat_map(volumes).collect();
    let mut left = Vec::new();
    for (name, old) in &before.workloads {
        let Some(new) = after.workloads.get(name) else { continue };
        let own = old.member().map(|_| volumes(new));
        let kept = own.as_ref().unwrap_or(&mounted);
        let gone = volumes(old).into_iter().filter(|volume| !kept.contains(volume));
        left.extend(gone.map(|volume| (name, volume)));
    }
    left
}

/// The named volumes of a workload.
fn volumes(workload: &Workload) -> BTreeSet<&str> {
    let mounts = workload.containers().flat_map(|container| &container.mounts);
    let named = mounts.filter_map(|mount| match &mount.source {
        MountSource::Volume { name, .. } => Some(name.as_str()),
        _ => None,
    });
    named.collect()
}

#[cfg(test)]
mod tests {
    use driftless_model::{Format, Location, Member, Mount, WorkloadKind};

    use super::*;

    fn mounting(volume: &str) -> Workload {
        let source = MountSource::Volume { name: volume.to_owned(), no_copy: true };
        let mount = Mount { target: "/data".to_owned(), source, read_only: false };
        let container = Container { mounts: vec![mount], ..Container::default() };
        Workload::new(Location::new("a.yaml", 1, 1), container)
    }

    fn named<'s>(before: &'s Stack, after: &Stack) -> Vec<(&'s str, &'s str)> {
        left_volumes(before, after).into_iter().map(|(name, volume)| (name.as_str(), volume)).collect()
    }

    #[test]
    fn volumes_that_pods_of_a_set_leave_are_named() {
        let stack = |volume: &str| {
            let plain = mounting(volume);
            let member = Member { of: "db".into(), ordinal: 0, ordered: true, max_unavailable: 1 };
            let pod = Workload { kind: WorkloadKind::StatefulSetPod(member), ..plain.clone() };
            let mut stack = Stack::new("shop".into(), Format::Kubernetes, "shop");
            stack.workloads = [("db-0".into(), pod), ("web".into(), mounting("shop_data-db-0"))].into();
            stack
        };
        let (before, after) = (stack("shop_data-db-0"), stack("shop_data2-db-0"));
        assert_eq!(named(&before, &after), [("db-0", "shop_data-db-0")]);
        assert!(left_volumes(&before, &before).is_empty());
        let mut removed = after;
        removed.workloads.clear();
        assert!(left_volumes(&before, &removed).is_empty(), "its pods are removed");
    }

    /// A commit can give another key to a volume, which makes another volume.
    #[test]
    fn volumes_that_nothing_mounts_any_more_are_named() {
        let stack = |volumes: [&str; 2]| {
            let [db, backup] = volumes.map(mounting);
            let mut stack = Stack::new("shop".into(), Format::Compose, "shop");
            stack.workloads = [("db".into(), db), ("backup".into(), backup)].into();
            stack
        };
        let before = stack(["shop_data", "shop_backups"]);
        assert_eq!(named(&before, &stack(["shop_rows", "shop_backups"])), [("db", "shop_data")]);
        assert!(named(&before, &stack(["shop_backups", "shop_data"])).is_empty(), "both are mounted");
    }
}
