//! The specifications of a target's workloads as they are published, with secrets hidden. They follow from the stack alone,
//! so they are made once for each stack.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    sync::Arc,
};

use driftless_model::{Mask, Stack, WorkloadName, WorkloadSpec};
use driftless_plan::{canonical_yaml, pod_spec};

use crate::context::AppContext;

/// The mask of a target, and the masked parts of its workloads' specifications.
pub(crate) struct MaskedTarget {
    stack: Arc<Stack>,
    /// Whether the mask also hides the secrets of a fallback.
    has_fallback: bool,
    mask: Mask,
    workloads: BTreeMap<WorkloadName, MaskedWorkload>,
}

/// The masked part of a workload's specification.
struct MaskedWorkload {
    template: Arc<str>,
    pod: Arc<str>,
    labels: BTreeMap<String, String>,
    selector: BTreeMap<String, String>,
}

impl MaskedTarget {
    /// The mask of a target. What is known of it is kept as long as its stack is the same one in memory and there is no
    /// fallback: a stack is never changed, and each round reads its fallback again.
    pub(crate) fn of(
        before: Option<Self>,
        context: &AppContext,
        stack: &Arc<Stack>,
        fallback: Option<&Stack>,
    ) -> Self {
        let is_same =
            |known: &Self| Arc::ptr_eq(&known.stack, stack) && !known.has_fallback && fallback.is_none();
        before.filter(is_same).unwrap_or_else(|| Self {
            stack: Arc::clone(stack),
            has_fallback: fallback.is_some(),
            mask: context.mask_of([stack.as_ref()].into_iter().chain(fallback)),
            workloads: BTreeMap::new(),
        })
    }

    /// Hides the secrets of the target.
    pub(crate) fn mask(&self) -> &Mask {
        &self.mask
    }

    /// Completes the specification of a workload of the target, and hides its secrets.
    pub(crate) fn complete(&mut self, name: &WorkloadName, spec: &mut WorkloadSpec) {
        let known = match self.workloads.entry(name.clone()) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(unknown) => {
                unknown.insert(MaskedWorkload::new(&self.stack, &self.mask, name, spec))
            }
        };
        spec.template = Arc::clone(&known.template);
        spec.pod = Arc::clone(&known.pod);
        spec.labels.clone_from(&known.labels);
        spec.selector.clone_from(&known.selector);
    }
}

impl MaskedWorkload {
    fn new(stack: &Stack, mask: &Mask, name: &WorkloadName, spec: &WorkloadSpec) -> Self {
        let workload = stack.workloads.get(name);
        let masked = |values: &BTreeMap<String, String>| {
            values.iter().map(|(name, value)| (name.clone(), mask.value(name, value))).collect()
        };
        Self {
            template: workload
                .map(|workload| canonical_yaml(&workload.container, mask).into())
                .unwrap_or_default(),
            pod: workload
                .map(|workload| pod_spec(stack, &spec.object.name, workload, mask).to_string().into())
                .unwrap_or_default(),
            labels: masked(&spec.labels),
            selector: masked(&spec.selector),
        }
    }
}
