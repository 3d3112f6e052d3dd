//! The inputs of a status.

use std::collections::BTreeMap;

use driftless_model::{
    Instance, Observed, Policy, Record, Stack, StackHashes, Subject, Timestamp, WorkloadName,
};

use crate::{
    status::{counts::Counts, traffic::Proxies},
    steps::Plan,
};

/// The inputs of a status: what is desired, what was observed and remembered, and the plan that was made from it.
#[derive(Clone, Copy)]
pub(crate) struct Inputs<'a> {
    pub(crate) stack: &'a Stack,
    pub(crate) hashes: &'a StackHashes,
    pub(crate) policy: &'a Policy,
    pub(crate) observed: &'a Observed,
    pub(crate) record: &'a Record,
    pub(crate) plan: &'a Plan,
    pub(crate) now: Timestamp,
    /// The proxies that forward to instances. `None`: they do not matter.
    pub(crate) proxies: Option<&'a Proxies<'a>>,
}

impl<'a> Inputs<'a> {
    /// Counts the instances of a workload. `instances` are those of all workloads.
    pub(crate) fn counts(
        &self,
        subject: Subject<'_>,
        instances: &BTreeMap<&WorkloadName, Vec<&'a Instance>>,
    ) -> Counts<'a> {
        let known = self.hashes.specs.get(subject.name).cloned();
        let spec = known.unwrap_or_else(|| subject.workload.spec());
        let members = instances.get(subject.name).map_or(&[][..], Vec::as_slice);
        Counts::new(subject, spec, members, self.observed, self.record, self.now)
    }
}
