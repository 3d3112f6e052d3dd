//! Progress of services: when to look again, and how long one may take.

use std::time::Duration;

use driftless_model::Subject;

use super::images::PREPARED;
use crate::{draft::Draft, facts::update_failures::progress_deadline, wait::Wait};

/// When a Swarm is observed again: other nodes send no events about their tasks.
pub(super) const LOOK_AGAIN: Duration = Duration::from_secs(15);
/// The same while something is waited for.
pub(super) const PROGRESS: Duration = Duration::from_secs(2);

/// Reports a service that has made no progress until its deadline.
pub(super) fn watch(draft: &mut Draft<'_>, Subject { name, workload }: Subject<'_>) {
    let facts = draft.facts;
    let Some(progress) = facts.record.progress.get(name) else { return };
    // Before that, it is not known that a node pulls the image.
    let limit = progress_deadline(facts.target.policy, workload).max(PREPARED + PROGRESS * 2);
    let start = facts.record.deadline_start(progress.at);
    let end = start.after(limit);
    if facts.now > end {
        draft.wait(Wait::progress_deadline_exceeded(name, start));
    } else {
        draft.look_again(end.after(Duration::from_millis(1)));
    }
}
