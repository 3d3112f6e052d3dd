//! Workloads for another architecture or platform than the engine can run, or for more CPUs than it has. They are not
//! started, no image is pulled for them, and their old containers stay.

use driftless_model::{Format, Observed, Subject};

use crate::{facts::Facts, wait::Wait};

/// Why the engine cannot run a workload, if it cannot. An engine that does not tell its platforms is tried.
pub(crate) fn objection(facts: &Facts<'_>, subject: Subject<'_>) -> Option<Wait> {
    let observed = facts.observed;
    too_few_cpus(facts, subject).or_else(|| other_platform(observed, subject))
}

/// As with `docker compose`, a service with a limit above the CPUs of the engine is an error. A pod of Kubernetes gets all CPUs.
fn too_few_cpus(facts: &Facts<'_>, Subject { name, workload }: Subject<'_>) -> Option<Wait> {
    if facts.target.stack.format != Format::Compose {
        return None;
    }
    workload.containers().find_map(|container| {
        let all = facts.observed.engine_traits.cpus_exceeded_by(&container.resources)?;
        Some(Wait::too_few_cpus(name, container.resources.nano_cpus?, all))
    })
}

fn other_platform(observed: &Observed, Subject { name, workload }: Subject<'_>) -> Option<Wait> {
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
