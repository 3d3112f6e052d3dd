//! The specifications of a target's workloads as they are published, with secrets hidden. They follow from the stack alone,
//! so they are made once for each stack.

use std::{
    collections::{BTreeMap, BTreeSet, btree_map::Entry},
    sync::Arc,
};

use driftless_model::{
    ContentId, FormerTemplate, Instance, Mask, Observed, SpecHash, Stack, Workload, WorkloadName,
    WorkloadSpec, label,
};
use driftless_plan::{canonical_yaml, pod_spec};

use crate::{context::AppContext, revisions::target::TargetRevision};

/// The mask of a target, and the masked parts of its workloads' specifications.
pub(crate) struct MaskedTarget {
    stack: Arc<Stack>,
    /// Whether the mask also hides the secrets of all kept revisions.
    knows_kept: bool,
    /// The workloads with a mounted secret that the host did not have, so that the mask does not know it.
    lacking: BTreeMap<WorkloadName, ContentId>,
    mask: Mask,
    workloads: BTreeMap<WorkloadName, MaskedWorkload>,
    /// The pod templates of older specifications that run, by workload and by the beginning of the hash.
    former: BTreeMap<WorkloadName, BTreeMap<String, FormerTemplate>>,
}

/// The masked part of a workload's specification.
struct MaskedWorkload {
    template: Arc<str>,
    pod: Arc<str>,
    labels: BTreeMap<String, String>,
    selector: BTreeMap<String, String>,
}

impl MaskedTarget {
    /// The mask of a target. It hides the secrets of all kept revisions once something else than the target runs, or will
    /// while an image is missing. What is known of it is kept as long as its stack is the same one in memory: a stack is
    /// never changed.
    pub(crate) fn of(
        before: Option<Self>,
        context: &AppContext,
        target: &TargetRevision,
        observed: &Observed,
        has_reached_stack: bool,
    ) -> Self {
        let stack = &target.stack;
        let needs_kept = has_reached_stack || runs_something_else(target, observed);
        let is_same = |known: &Self| {
            let lacks_the_same = known.lacking == observed.lacking_secrets;
            Arc::ptr_eq(&known.stack, stack) && lacks_the_same && (known.knows_kept || !needs_kept)
        };
        before.filter(is_same).unwrap_or_else(|| {
            let kept = if needs_kept { context.kept_stacks() } else { Vec::new() };
            let mask = context.mask_of(kept.iter().chain([stack.as_ref()]));
            Self {
                former: former_templates(target, &kept, observed, &mask),
                stack: Arc::clone(stack),
                knows_kept: needs_kept,
                lacking: observed.lacking_secrets.clone(),
                mask,
                workloads: BTreeMap::new(),
            }
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
        spec.former = self.former.get(name).cloned().unwrap_or_default();
    }
}

/// The pod templates of the kept revisions that instances of the target's workloads still run with.
fn former_templates(
    target: &TargetRevision,
    kept: &[Stack],
    observed: &Observed,
    mask: &Mask,
) -> BTreeMap<WorkloadName, BTreeMap<String, FormerTemplate>> {
    let mut old: BTreeMap<&WorkloadName, BTreeSet<&SpecHash>> = BTreeMap::new();
    for Instance { instance, spec, .. } in observed.instances.values() {
        if target.hashes.specs.get(&instance.workload).is_some_and(|wanted| wanted != spec) {
            old.entry(&instance.workload).or_default().insert(spec);
        }
    }
    let mut all = BTreeMap::new();
    for (name, specs) in old {
        let Some(current) = target.stack.workloads.get(name) else { continue };
        let template = |former: &Stack| {
            let workload = former.workloads.get(name)?;
            let spec = Some(workload.spec()).filter(|spec| specs.contains(spec))?;
            // The names in the manifest are not stored.
            let workload = Workload { manifest: current.manifest.clone(), ..workload.clone() };
            let template = FormerTemplate {
                labels: mask.labels(&workload.container.labels, former.format),
                pod: pod_spec(former, &name.to_string(), &workload, mask).to_string().into(),
            };
            Some((spec.short().to_owned(), template))
        };
        all.insert(name.clone(), kept.iter().filter_map(template).collect());
    }
    all
}

/// Whether a container or service has another specification than the target gives it.
fn runs_something_else(target: &TargetRevision, observed: &Observed) -> bool {
    let wanted: BTreeSet<&str> = target.hashes.specs.values().map(|spec| spec.0.as_str()).collect();
    let services = observed.swarm.iter().flat_map(|swarm| swarm.services.values());
    let running = observed.containers().map(|it| Some(it.spec.0.as_str()));
    let all = running.chain(services.map(|it| it.label(label::SPEC)));
    all.into_iter().any(|spec| spec.is_none_or(|spec| !wanted.contains(spec)))
}

impl MaskedWorkload {
    fn new(stack: &Stack, mask: &Mask, name: &WorkloadName, spec: &WorkloadSpec) -> Self {
        let workload = stack.workloads.get(name);
        Self {
            template: workload
                .map(|workload| canonical_yaml(&workload.container, mask).into())
                .unwrap_or_default(),
            pod: workload
                .map(|workload| pod_spec(stack, &spec.object.name, workload, mask).to_string().into())
                .unwrap_or_default(),
            labels: mask.labels(&spec.labels, stack.format),
            selector: mask.labels(&spec.selector, stack.format),
        }
    }
}
