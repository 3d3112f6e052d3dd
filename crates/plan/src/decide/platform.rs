//! Workloads for another architecture or platform than the engine can run. They are not started, and no image is pulled
//! for them.

use driftless_model::{Observed, Subject};

use crate::wait::Wait;

/// Why the engine cannot run a workload, if it cannot. An engine that does not tell its platforms is tried.
pub(crate) fn objection(observed: &Observed, subject: Subject<'_>) -> Option<Wait> {
    let Subject { name, workload } = subject;
    let has = observed.engine_architecture.as_ref()?;
    if let Some(needs) = workload.architecture.as_ref().filter(|needs| *needs != has) {
        return Some(Wait::other_architecture(name, needs, has));
    }
    let runs = observed.engine_platforms.as_ref()?;
    let mut asked = workload.containers().filter_map(driftless_model::Container::platform);
    let refused = asked.find(|platform| {
        let is_own = platform.is_linux() && platform.is_of(has);
        !is_own && !runs.iter().any(|one| one.runs(platform))
    })?;
    Some(Wait::other_platform(name, &refused, runs))
}
