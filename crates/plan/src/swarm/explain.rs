//! The services, networks, configs and secrets of an application compared with its target, object by object.

use std::collections::{BTreeMap, BTreeSet};

use driftless_model::{
    AgentId, Location, Mask, Observed, ObservedSwarm, Record, ResolvedImage, Subject, swarm_service_name,
};
use serde_json::Value;

use super::{
    action::SwarmAction,
    compare::{hidden_alike, meaning, network_names, variable, with_masked_commands},
    files::name_as_present,
    images::known_image,
    job_tasks::is_of_job,
    leaving::is_run,
    ownership::is_of_application,
    spec::{OWNER, wanted},
};
use crate::{
    explain::{
        named::{self, Owner},
        objects::{Change, ObjectDifference, manifest, object, sorted},
    },
    facts::jobs::{JobPart, is_awaited},
    fields::diff::FieldDifference,
    target::Target,
};

/// The hash of what Git says. It differs with every other field.
const HASH: &str = "Labels.driftless.spec";

/// Parts of the paths of fields with text that people write freely. In others, a word is no secret only because it is also
/// a password.
const FREE_TEXT: &[&str] = &["Env.", "Labels.", "Args[", "Command[", "Test[", "Options.", "DriverOpts."];

/// The objects of an application of a Swarm that differ from the target. Sorted by kind and name.
pub(crate) fn compare_swarm(
    target: &Target<'_>,
    observed: &Observed,
    record: &Record,
) -> Vec<ObjectDifference> {
    let Some(swarm) = observed.swarm.as_deref() else { return Vec::new() };
    let comparison = Comparison { target, observed, record, swarm };
    let mut all = comparison.services();
    comparison.files(&mut all);
    let owner = AgentId(OWNER.to_owned());
    named::networks(target, observed, &Owner { agent: &owner, driver: "overlay" }, &mut all);
    sorted(all)
}

/// The fields that an update changes in a service. `None`: the step updates none.
pub(crate) fn changed_fields(
    target: &Target<'_>,
    observed: &Observed,
    record: &Record,
    action: &SwarmAction,
) -> Option<Vec<FieldDifference>> {
    let SwarmAction::UpdateService { name, spec, .. } = action else { return None };
    let swarm = observed.swarm.as_deref()?;
    let found = swarm.services.get(name)?;
    Some(Comparison { target, observed, record, swarm }.fields(spec, &found.spec))
}

struct Comparison<'a> {
    target: &'a Target<'a>,
    observed: &'a Observed,
    record: &'a Record,
    swarm: &'a ObservedSwarm,
}

impl Comparison<'_> {
    fn services(&self) -> Vec<ObjectDifference> {
        let stack = self.target.stack;
        let subjects: Vec<Subject<'_>> = stack.subjects().filter(|it| !it.workload.is_template()).collect();
        let mut all: Vec<ObjectDifference> =
            subjects.iter().filter_map(|subject| self.service(*subject)).collect();
        let is_wanted = |name: &str| {
            subjects.iter().any(|subject| swarm_service_name(&stack.project, subject.name) == name)
        };
        // Runs go when their time has come; Git never had them.
        let left = self
            .swarm
            .services
            .iter()
            .filter(|(_, service)| is_of_application(stack, service) && !is_run(service));
        for (name, service) in left.filter(|(name, _)| !is_wanted(name)) {
            let mut extra = object("service", name.clone(), manifest(stack), Change::Extra);
            extra.found = self.text(&service.spec);
            all.push(extra);
        }
        all
    }

    fn service(&self, subject: Subject<'_>) -> Option<ObjectDifference> {
        let Self { target, observed, record, swarm } = self;
        let workload = subject.workload;
        // Before the registry was asked, the image is compared as Git names it.
        let by_name = || ResolvedImage { image: target.image(workload), ..ResolvedImage::default() };
        let image = known_image(target, record, swarm, subject).unwrap_or_else(by_name);
        let mut wanted = wanted(target, subject, &image);
        name_as_present(&mut wanted.spec, swarm);
        let make = |change| {
            let made = object("service", wanted.name.clone(), workload.origin.clone(), change);
            let labels = target.mask.labels(&workload.container.labels, target.stack.format);
            ObjectDifference { labels, ..made }
        };
        let job = workload.job().map(|job| JobPart { subject, job });
        let Some(found) = swarm.services.get(&wanted.name) else {
            // A Job that is complete, or whose turn has not come, lacks nothing.
            if job.is_some() && !is_awaited(record, target.stack, observed, workload) {
                return None;
            }
            return Some(ObjectDifference { want: self.text(&wanted.spec), ..make(Change::Missing) });
        };
        // An update would run the Job once more, so its fields are left as they are.
        if job.is_some_and(|job| is_of_job(found, job)) {
            return None;
        }
        let fields = self.fields(&wanted.spec, &found.spec);
        if fields.is_empty() {
            return None;
        }
        let (want, found) = self.both(&wanted.spec, &found.spec);
        let (want, found) = (text(want), text(found));
        Some(ObjectDifference { fields, want, found, ..make(Change::Modified) })
    }

    /// The fields that differ, masked.
    fn fields(&self, want: &Value, found: &Value) -> Vec<FieldDifference> {
        let ids = network_names(self.observed);
        let (wanted, seen) = (meaning(want, &ids), meaning(found, &ids));
        let (shown_wanted, shown_seen) = self.both(want, found);
        let names: BTreeSet<&String> = wanted.keys().chain(seen.keys()).collect();
        let value = |all: &BTreeMap<String, String>, field: &String| {
            all.get(field).cloned().unwrap_or_else(|| "unset".to_owned())
        };
        let differing = names.into_iter().filter(|field| wanted.get(*field) != seen.get(*field));
        let mut fields: Vec<FieldDifference> = differing
            .map(|field| FieldDifference {
                field: field.clone(),
                want: value(&shown_wanted, field),
                found: value(&shown_seen, field),
            })
            .collect();
        if fields.len() > 1 {
            fields.retain(|it| it.field != HASH);
        }
        fields
    }

    /// All fields of a specification, one a line.
    fn text(&self, spec: &Value) -> String {
        text(self.shown(spec))
    }

    /// The fields of both specifications, masked. What is hidden on one side is hidden on the other: the other value of a
    /// secret is a secret as well, and nothing else tells so.
    fn both(&self, want: &Value, found: &Value) -> (BTreeMap<String, String>, BTreeMap<String, String>) {
        let ids = network_names(self.observed);
        let (wanted, seen) = (meaning(want, &ids), meaning(found, &ids));
        let (mut shown_wanted, mut shown_seen) = (self.shown(want), self.shown(found));
        for (field, value) in &wanted {
            let Some(other) = seen.get(field).filter(|other| *other != value) else { continue };
            if let (Some(want), Some(found)) = (shown_wanted.get_mut(field), shown_seen.get_mut(field)) {
                let shown = [std::mem::take(want), std::mem::take(found)];
                [*want, *found] = hidden_alike(self.target.mask, [Some(value), Some(other)], shown);
            }
        }
        (shown_wanted, shown_seen)
    }

    /// The fields of a specification, masked.
    fn shown(&self, spec: &Value) -> BTreeMap<String, String> {
        let spec = with_masked_commands(spec, self.target.mask);
        let fields = meaning(&spec, &network_names(self.observed));
        let variables = fields.iter().filter(|(field, _)| field.contains("ContainerSpec.Env."));
        let mask = self
            .target
            .mask
            .with_variables(variables.map(|(field, value)| (variable(field), value.as_str())));
        fields.iter().map(|(field, value)| (field.clone(), masked(&mask, field, value))).collect()
    }

    /// Configs and secrets: another content has another name.
    fn files(&self, all: &mut Vec<ObjectDifference>) {
        let Self { target, swarm, .. } = self;
        let stack = target.stack;
        for (name, service) in &stack.swarm {
            let origin = stack.workloads.get(name).map_or_else(Location::default, |it| it.origin.clone());
            for file in &service.files {
                let kind = file.kind().word();
                let is_listed = all.iter().any(|it| it.kind == kind && it.name == file.name);
                let is_present = if file.external {
                    swarm.external_files_of(file.kind()).contains_key(&file.name)
                } else {
                    swarm.files_of(file.kind()).contains_key(&file.name)
                };
                if !is_listed && !is_present {
                    all.push(object(kind, file.name.clone(), origin.clone(), Change::Missing));
                }
            }
        }
    }
}

/// The fields of a specification without the hash that follows from them, one a line.
fn text(mut shown: BTreeMap<String, String>) -> String {
    shown.remove(HASH);
    serde_yaml::to_string(&shown).expect("a map of text is YAML")
}

fn masked(mask: &Mask, field: &str, value: &str) -> String {
    let is_free = FREE_TEXT.iter().any(|part| field.contains(part));
    if is_free { mask.value(variable(field), value) } else { mask.name(value) }
}
