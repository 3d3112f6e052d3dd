//! The changes of a revision against the one before, one sentence each, for the history, and the messages of its events.

use driftless_model::{CommitInfo, Container, Mask, Stack};
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
