//! Canaries: the step that an update has reached, by the record.

use driftless_model::{CanaryRecord, CanaryStep, Record, SpecHash, Timestamp, Workload, WorkloadName};

/// The step of a canary that an update is at.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CurrentStep<'a> {
    pub(crate) step: &'a CanaryStep,
    /// Counting from 1.
    pub(crate) number: u32,
    /// The number of steps.
    pub(crate) of: u32,
    /// The number of new instances at this step.
    pub(crate) instances: u32,
    /// When they were available first.
    pub(crate) reached: Option<Timestamp>,
}

impl CurrentStep<'_> {
    /// When the pause ends by itself.
    pub(crate) fn until(&self) -> Option<Timestamp> {
        Some(self.reached?.after(self.step.pause?))
    }
}

/// The current step of a workload whose desired hash is `spec`. `None`: it has no canary, or all steps are over.
pub(crate) fn current_step<'a>(
    record: &Record,
    name: &WorkloadName,
    workload: &'a Workload,
    spec: &SpecHash,
) -> Option<CurrentStep<'a>> {
    let CanaryRecord { passed, reached, .. } = record.canaries.get(name).filter(|it| it.spec == *spec)?;
    let step = workload.canary.get(*passed as usize)?;
    let of = u32::try_from(workload.canary.len()).unwrap_or(u32::MAX);
    let instances = step.instances(workload.replicas);
    Some(CurrentStep { step, number: passed.saturating_add(1), of, instances, reached: *reached })
}
