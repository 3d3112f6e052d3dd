//! Steps as people read them, with the fields because of which a container is outdated.

use std::collections::BTreeMap;

use driftless_model::{Observed, Record, Strategy};

use crate::{
    action::{Action, ContainerRef},
    cause::Cause,
    explain::live::compare_live,
    facts::limits::exclusive,
    fields::diff::FieldDifference,
    steps::Step,
    swarm::changed_fields,
    target::Target,
    text::is_variable,
};

/// The largest number of fields that a step names.
const FIELDS: usize = 3;

/// Describes each step. After `spec changed` come the fields that differ between the live state and the target:
/// `create shop-web-1 from web:2 at 3f9a1b2c (spec changed: image web:1 -> web:2)`.
pub fn describe_steps(
    steps: &[Step],
    target: &Target<'_>,
    observed: &Observed,
    record: &Record,
) -> Vec<String> {
    if steps.iter().all(|step| step.cause != Cause::SpecChanged) {
        return steps.iter().map(ToString::to_string).collect();
    }
    let differences: BTreeMap<String, Vec<FieldDifference>> = compare_live(target, observed, record)
        .into_iter()
        .map(|difference| (difference.name, difference.fields))
        .collect();
    let describe = |step: &Step| {
        let changed = match (&step.cause, &step.action) {
            (Cause::SpecChanged, Action::CreateInstance(creation)) => {
                // A new container may have another name than the one that it replaces.
                let instances = observed.instances.values();
                let of_workload = instances.filter(|it| it.instance.workload == creation.instance.workload);
                let mut names = std::iter::once(&creation.name).chain(of_workload.map(|it| &it.name));
                names.find_map(|name| summary(differences.get(name)?))
            }
            // The services as they are in this round, in which its configs and secrets may have been adopted.
            (Cause::SpecChanged, Action::Swarm(action)) => {
                changed_fields(target, observed, record, action).and_then(|fields| summary(&fields))
            }
            (Cause::SpecChanged, action) => differences.get(action.object()).and_then(|it| summary(it)),
            _ => None,
        };
        let first = stops_first(step, target, observed).unwrap_or_default();
        match changed {
            Some(fields) => format!("{} ({}: {fields}{first})", step.action, step.cause),
            None => format!("{} ({}{first})", step.action, step.cause),
        }
    };
    steps.iter().map(describe).collect()
}

/// `; stops first, as its successor takes over /data`: the end of a cause, where the strategy of the workload starts the successor
/// first. The volumes are anonymous, such as those that an image declares, so nothing in the manifest says it.
fn stops_first(step: &Step, target: &Target<'_>, observed: &Observed) -> Option<String> {
    let Action::StopInstance { container: ContainerRef::Id(id, _), .. } = &step.action else { return None };
    let instance = observed.instances.get(id).filter(|_| step.cause == Cause::SpecChanged)?;
    let workload = target.stack.workloads.get(&instance.instance.workload)?;
    let Strategy::RollingUpdate { max_surge, .. } = workload.strategy else { return None };
    let volumes: Vec<&str> = instance.anonymous_volumes.keys().map(String::as_str).collect();
    let is_for_volumes = max_surge > 0 && !volumes.is_empty() && exclusive(workload).is_none();
    is_for_volumes.then(|| format!("; stops first, as its successor takes over {}", volumes.join(", ")))
}

/// `image web:1 -> web:2, env.PORT, and 2 more`. `None` if only the hash differs.
fn summary(fields: &[FieldDifference]) -> Option<String> {
    let fields: Vec<&FieldDifference> = fields.iter().filter(|it| !is_hash_or_state(&it.field)).collect();
    let (first, rest) = fields.split_at(fields.len().min(FIELDS));
    let mut parts: Vec<String> = first.iter().map(|it| one(it)).collect();
    if !rest.is_empty() {
        parts.push(format!("and {} more", rest.len()));
    }
    Some(parts.join(", ")).filter(|text| !text.is_empty())
}

/// Fields that are no part of the specification in Git.
fn is_hash_or_state(field: &str) -> bool {
    matches!(field, "spec" | "state" | "name" | "Labels.driftless.spec" | crate::facts::fs_changes::FIELD)
}

/// A value of the environment may be a secret, and long values hide the rest, so only short ones are shown.
fn one(difference: &FieldDifference) -> String {
    const LONGEST: usize = 80;
    let FieldDifference { field, want, found } = difference;
    // The path of a field of a Swarm's service says twice that it is one of the container.
    let container = field.strip_prefix("TaskTemplate.ContainerSpec.");
    let field = container.or(field.strip_prefix("TaskTemplate.")).unwrap_or(field);
    let is_hidden =
        is_variable(field) || ["labels.", "Env.", "Labels."].iter().any(|it| field.starts_with(it));
    let (want, found) = (&short_digest(want), &short_digest(found));
    let is_long = want.len().max(found.len()) > LONGEST || want.contains('\n') || found.contains('\n');
    if is_hidden || is_long { field.to_owned() } else { format!("{field} {found} -> {want}") }
}

/// `web:2@sha256:3f9a1b2c4d5e` for a reference with a digest, else the value.
fn short_digest(value: &str) -> String {
    const DIGITS: usize = 12;
    match value.split_once("@sha256:") {
        Some((name, digest)) => format!("{name}@sha256:{}", digest.get(..DIGITS).unwrap_or(digest)),
        None => value.to_owned(),
    }
}
