//! Assigns the containers of an application to its workloads, and finds impostors.
//!
//! Labels can be copied, ids cannot. A container whose id is not in the record is compared with everything that its
//! labels claim.

use std::collections::BTreeMap;

use driftless_model::{Instance, Observed, Record, Subject, Workload, WorkloadName};

use crate::{
    fields::diff::{self, FieldDifference},
    names::container_name_at,
    target::Target,
};

/// The containers of one application, each in exactly one place. Those of another agent are in none.
pub(crate) struct Classified<'a> {
    /// One for each slot, sorted by slot.
    pub(crate) members: BTreeMap<WorkloadName, Vec<&'a Instance>>,
    /// Instances of workloads that the stack does not have.
    pub(crate) orphans: Vec<&'a Instance>,
    /// Further containers in the slot of the agent's own one, which an update needs or has left.
    pub(crate) stand_ins: Vec<&'a Instance>,
    /// Impostors, each with the difference that shows it.
    pub(crate) impostors: Vec<(&'a Instance, FieldDifference)>,
}

impl<'a> Classified<'a> {
    pub(crate) fn new(target: &Target<'_>, observed: &'a Observed, record: &Record) -> Self {
        let mut all = Self {
            members: BTreeMap::new(),
            orphans: Vec::new(),
            stand_ins: Vec::new(),
            impostors: Vec::new(),
        };
        for instance in observed.instances.values().filter(|it| it.agent == *target.agent) {
            let workload = &instance.instance.workload;
            if !target.stack.workloads.contains_key(workload) {
                all.orphans.push(instance);
            } else if record.own_containers.contains(&instance.id) {
                all.members.entry(workload.clone()).or_default().push(instance);
            } else {
                match impostor(target, observed, instance) {
                    None => all.members.entry(workload.clone()).or_default().push(instance),
                    Some(difference) => all.impostors.push((instance, difference)),
                }
            }
        }
        if let Some(own) = observed.own.as_ref().and_then(|id| observed.instances.get(id)) {
            let members = all.members.entry(own.instance.workload.clone()).or_default();
            let is_in_its_slot = |it: &&Instance| it.id != own.id && it.instance == own.instance;
            if members.iter().any(|it| it.id == own.id) {
                all.stand_ins = members.extract_if(.., |it| is_in_its_slot(it)).collect();
            }
        }
        for (name, members) in &mut all.members {
            members.sort_by_cached_key(|it| rank(target, record, name, it));
            let mut first: Vec<&Instance> = Vec::new();
            for member in members.drain(..) {
                if first.last().is_some_and(|it| it.instance == member.instance) {
                    let difference = FieldDifference {
                        field: "container".to_owned(),
                        want: format!("the only one for {}", member.instance),
                        found: "a second one".to_owned(),
                    };
                    all.impostors.push((member, difference));
                } else {
                    first.push(member);
                }
            }
            *members = first;
        }
        all
    }

    pub(crate) fn members_of(&self, name: &WorkloadName) -> &[&'a Instance] {
        self.members.get(name).map_or(&[], Vec::as_slice)
    }
}

/// The difference that shows that a container is not what its labels say. `None` if it is, or if its spec hash is not
/// the desired one: nobody can check that any more, and it is replaced as outdated in either case.
pub(crate) fn impostor(
    target: &Target<'_>,
    observed: &Observed,
    instance: &Instance,
) -> Option<FieldDifference> {
    let name = &instance.instance.workload;
    let workload = target.stack.workloads.get(name)?;
    if instance.spec == target.spec(Subject { name, workload }) {
        difference(target, observed, workload, instance)
    } else {
        None
    }
}

/// The first difference between a container and its workload in a field that cannot change after the creation.
pub(crate) fn difference(
    target: &Target<'_>,
    observed: &Observed,
    workload: &Workload,
    instance: &Instance,
) -> Option<FieldDifference> {
    let image = observed.images.get(&workload.container.image);
    if let Some(image) = image.filter(|it| it.id != instance.image_id && target.images.is_empty()) {
        // The tag may have moved since. Only a container that names another image is an impostor.
        let is_other = instance.config.image != workload.container.image;
        return is_other.then(|| FieldDifference {
            field: "image".to_owned(),
            want: format!("{} ({})", workload.container.image, short(&image.id)),
            found: format!("{} ({})", instance.config.image, short(&instance.image_id)),
        });
    }
    let defaults = image.map(|it| it.defaults.clone()).unwrap_or_default();
    let pinned = target.images.get(&workload.container.image);
    // Fields that can change on a live container say nothing about its origin.
    let is_live = |field: &str| ["networks", "resources", "restart"].iter().any(|it| field.starts_with(it));
    let traits = &observed.engine_traits;
    let desired = (&workload.container, target.stack.format);
    diff::instance_differences(desired, &defaults, instance, traits, target.mask)
        .into_iter()
        .filter(|it| !is_live(&it.field))
        // A rollback creates containers from the digest in place of the manifest's reference.
        .find(|it| it.field != "image" || pinned != Some(&instance.config.image))
}

/// The order among several containers of one slot: those in the record first, then those with the right name, then
/// the oldest.
fn rank<'a>(
    target: &Target<'_>,
    record: &Record,
    name: &WorkloadName,
    instance: &'a Instance,
) -> impl Ord + use<'a> {
    let slot = instance.instance.slot;
    let spec = |workload: &Workload| target.spec(Subject { name, workload });
    let is_named = instance.name == container_name_at(target.stack, name, slot, spec);
    (slot, !record.own_containers.contains(&instance.id), !is_named, instance.created, &instance.id)
}

fn short(image_id: &str) -> &str {
    let digits = image_id.strip_prefix("sha256:").unwrap_or(image_id);
    digits.get(..12).unwrap_or(digits)
}
