//! Sorts what carries our labels: members of a workload, and what only pretends to be one.
//!
//! Labels can be copied, an id cannot: a container that is not in the ledger is compared with the whole of
//! what its labels claim.

use std::collections::BTreeMap;

use driftless_model::{Instance, Observed, Record, Stack, Workload, WorkloadName};

use super::{Target, container_name, diff};

/// The containers of one application, each in exactly one place. Those of another agent are in none.
pub(super) struct Census<'a> {
    /// One per slot, sorted by slot.
    pub(super) members: BTreeMap<WorkloadName, Vec<&'a Instance>>,
    /// Members of workloads that the stack does not have.
    pub(super) orphans: Vec<&'a Instance>,
    /// With what gives them away: (field, wanted, found).
    pub(super) impostors: Vec<(&'a Instance, String, String, String)>,
}

impl<'a> Census<'a> {
    pub(super) fn members_of(&self, name: &WorkloadName) -> &[&'a Instance] {
        self.members.get(name).map_or(&[], Vec::as_slice)
    }
}

/// What a container that is not in the ledger turns out to be.
pub(super) enum Verdict {
    /// Exactly what its labels say, or of an older spec that nobody can check any more.
    Genuine,
    Impostor {
        field: String,
        want: String,
        found: String,
    },
}

pub(super) fn take<'a>(target: &Target<'_>, observed: &'a Observed, record: &Record) -> Census<'a> {
    let mut census = Census { members: BTreeMap::new(), orphans: Vec::new(), impostors: Vec::new() };
    for instance in observed.instances.values().filter(|it| it.agent == *target.agent) {
        let workload = &instance.instance.workload;
        if !target.stack.workloads.contains_key(workload) {
            census.orphans.push(instance);
        } else if record.ledger.contains(&instance.id) {
            census.members.entry(workload.clone()).or_default().push(instance);
        } else {
            match examine(target, observed, instance) {
                Verdict::Genuine => census.members.entry(workload.clone()).or_default().push(instance),
                Verdict::Impostor { field, want, found } => {
                    census.impostors.push((instance, field, want, found));
                }
            }
        }
    }
    for (name, members) in &mut census.members {
        members.sort_by_cached_key(|it| rank(target.stack, record, name, it));
        let mut singles: Vec<&Instance> = Vec::new();
        for member in members.drain(..) {
            if singles.last().is_some_and(|it| it.instance == member.instance) {
                let slot = member.instance.slot;
                let want = format!("one container in slot {slot}");
                census.impostors.push((member, "slot".into(), want, "a second one".into()));
            } else {
                singles.push(member);
            }
        }
        *members = singles;
    }
    census
}

/// Compares a container that we do not remember making with what its labels say it is.
pub(super) fn examine(target: &Target<'_>, observed: &Observed, instance: &Instance) -> Verdict {
    let Some(workload) = target.stack.workloads.get(&instance.instance.workload) else {
        return Verdict::Genuine;
    };
    if instance.spec != workload.spec() {
        // The label names a spec that is not wanted any more. It is replaced as outdated in either case.
        return Verdict::Genuine;
    }
    match compare(target, observed, workload, instance) {
        None => Verdict::Genuine,
        Some((field, want, found)) => Verdict::Impostor { field, want, found },
    }
}

/// What of a container is not as its workload has it, and could not have been changed since it was made: the field, what
/// is wanted and what was found.
pub(super) fn compare(
    target: &Target<'_>,
    observed: &Observed,
    workload: &Workload,
    instance: &Instance,
) -> Option<(String, String, String)> {
    let image = observed.images.get(&workload.container.image);
    if let Some(image) = image.filter(|it| it.id != instance.image_id && target.images.is_empty()) {
        // The tag may have moved since: only a container that names another image is a fraud.
        let is_other = instance.config.image != workload.container.image;
        return is_other.then(|| {
            let want = format!("{} ({})", workload.container.image, short(&image.id));
            let found = format!("{} ({})", instance.config.image, short(&instance.image_id));
            ("image".to_owned(), want, found)
        });
    }
    let defaults = image.map(|it| it.defaults.clone()).unwrap_or_default();
    let pinned = target.images.get(&workload.container.image);
    // What can be changed on a live container is set right there; it tells nothing about its origin.
    let telling = diff::differences(&workload.container, &defaults, &instance.config, target.mask)
        .into_iter()
        .filter(|it| !["networks", "resources", "restart"].iter().any(|live| it.field.starts_with(live)))
        // A rollback makes containers from the digest in place of the manifest's reference.
        .find(|it| it.field != "image" || pinned != Some(&instance.config.image));
    telling.map(|it| (it.field, it.want, it.found))
}

/// Which of several containers in one slot is the one: remembered before not, rightly named before not, older
/// before newer.
fn rank<'a>(stack: &Stack, record: &Record, name: &WorkloadName, it: &'a Instance) -> impl Ord + use<'a> {
    let slot = it.instance.slot;
    let named = it.name == container_name(stack, name, slot);
    (slot, !record.ledger.contains(&it.id), !named, it.created, &it.id)
}

fn short(image_id: &str) -> &str {
    let digits = image_id.strip_prefix("sha256:").unwrap_or(image_id);
    digits.get(..12).unwrap_or(digits)
}
