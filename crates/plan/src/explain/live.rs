//! One application compared with its target, object by object: `driftless drift`.
//!
//! Unlike [`crate::fields::diff`], which compares one container, this comparison knows replicas, states, networks and
//! volumes.

use std::collections::BTreeSet;

use driftless_model::{
    AgentId, Container, ContentId, Instance, Location, Mask, Observed, Part, Record, Role, SpecHash, Stack,
    State, Subject, Workload, WorkloadName,
};
use serde::Serialize;

use crate::{
    explain::objects::{
        Change, ObjectDifference, flatten, json, labels, manifest, object, or_else, put, sorted,
    },
    facts::{fs_changes, ignored, jobs, standing},
    fields::{
        container::fields,
        diff::{self, FieldDifference, image_defaults},
        value::{Fields, Value},
    },
    names::container_name,
    target::Target,
};

/// The objects of an application that differ from the target. Sorted by kind and name.
pub fn compare_live(target: &Target<'_>, observed: &Observed, record: &Record) -> Vec<ObjectDifference> {
    let mut all = Vec::new();
    let stack = target.stack;
    for (name, workload) in &stack.workloads {
        let live = Live { target, observed, record, name, workload };
        live.compare(&mut all);
    }
    let ours = |it: &&Instance| it.agent == *target.agent;
    let is_orphan = |it: &&Instance| !stack.workloads.contains_key(&it.instance.workload);
    for instance in observed.instances.values().filter(ours).filter(is_orphan) {
        all.push(extra_container(instance, &Location::default(), target));
    }
    live_networks(target, observed, &mut all);
    live_volumes(target, observed, &mut all);
    sorted(all)
}

/// One workload and what runs of it.
struct Live<'a> {
    target: &'a Target<'a>,
    observed: &'a Observed,
    record: &'a Record,
    name: &'a WorkloadName,
    workload: &'a Workload,
}

impl Live<'_> {
    fn compare(&self, all: &mut Vec<ObjectDifference>) {
        let Self { target, observed, record, name, workload } = self;
        let spec = workload.spec();
        let is_of_it = |it: &&Instance| it.agent == *target.agent && it.instance.workload == **name;
        let mut found: Vec<&Instance> = observed.instances.values().filter(is_of_it).collect();
        // Instances of the desired spec fill the desired replicas first. The rest is surplus.
        found.sort_by_key(|it| (it.spec != spec, it.instance.slot, it.name.clone()));
        let wanted = match workload.job() {
            // Existing parts of a Job are kept. Parts that are done or not due yet are not missing.
            Some(_) => {
                usize::from(!found.is_empty() || jobs::is_awaited(record, target.stack, observed, workload))
            }
            None => usize::try_from(workload.replicas).unwrap_or(usize::MAX),
        };
        let mut slots = BTreeSet::new();
        for (index, instance) in found.iter().enumerate() {
            if index < wanted {
                slots.insert(instance.instance.slot);
                all.extend(self.one(instance));
                self.parts(instance, all);
            } else {
                all.push(extra_container(instance, &workload.origin, target));
            }
        }
        let free = (1..=u32::MAX).filter(|it| !slots.contains(it));
        for slot in free.take(wanted.saturating_sub(found.len())) {
            all.push(self.missing(container_name(target.stack, name, slot)));
        }
    }

    fn missing(&self, name: String) -> ObjectDifference {
        let Self { target, workload, .. } = self;
        let mut missing = object("container", name, workload.origin.clone(), Change::Missing);
        missing.labels = labels(&workload.container.labels, target.mask);
        missing.want = diff::canonical_yaml(&self.effective(), target.mask);
        missing
    }

    /// The further containers of a pod that stands for a wanted one.
    fn parts(&self, pod: &Instance, all: &mut Vec<ObjectDifference>) {
        if self.workload.parts.is_empty() || pod.spec != self.workload.spec() {
            return;
        }
        let found = self.observed.parts_of(&pod.id);
        let named = |name: &str| found.iter().find(|it| it.part.as_ref().is_some_and(|it| it.name == name));
        let is_app = |it: &&Part| it.role == Role::App;
        let has_begun = self.workload.parts.iter().filter(is_app).any(|it| named(&it.name).is_some());
        let pod_name = container_name(self.target.stack, self.name, pod.instance.slot);
        for part in &self.workload.parts {
            let one = self.workload.of_part(part);
            let live = Live { workload: &one, ..*self };
            let name = format!("{pod_name}-{}", part.name);
            match named(&part.name) {
                Some(there) => all.extend(live.difference(there, &name, true)),
                None if part.role == Role::Init && has_begun => {}
                None => all.push(live.missing(name)),
            }
        }
    }

    /// As it would be made on the image that is here.
    fn effective(&self) -> Container {
        let image = self.observed.images.get(&self.workload.container.image);
        self.workload.container.effective(image.map_or(&Container::default(), |it| &it.defaults))
    }

    /// A container that stands for a wanted one, if anything about it is not as wanted.
    fn one(&self, instance: &Instance) -> Option<ObjectDifference> {
        let name = container_name(self.target.stack, self.name, instance.instance.slot);
        self.difference(instance, &name, instance.spec == self.workload.spec())
    }

    fn difference(&self, instance: &Instance, name: &str, is_of_spec: bool) -> Option<ObjectDifference> {
        let Self { target, observed, workload, .. } = self;
        let effective = workload.container.effective(image_defaults(workload, instance, observed));
        let mut found = fields(&diff::instance_config(instance, &effective));
        let mut want = fields(&effective);
        self.pin_image(&mut want, &found);
        let is_named = instance.name == name;
        if let Some(state) = self.state(instance) {
            put(&mut want, "state", "running");
            put(&mut found, "state", &state);
        }
        // If the specification is part of the name, one difference is enough.
        if !is_named && (is_of_spec || target.stack.format == driftless_model::Format::Compose) {
            put(&mut want, "name", name);
            put(&mut found, "name", &instance.name);
        }
        self.in_place(instance, &mut want, &mut found);
        if want == found && !is_of_spec {
            put(&mut want, "spec", workload.spec().short());
            put(&mut found, "spec", instance.spec.short());
        }
        if let Some((as_made, changed)) = fs_changes::shown_by_visitors(observed, self.record, instance) {
            put(&mut want, fs_changes::FIELD, &as_made);
            put(&mut found, fs_changes::FIELD, &changed);
        }
        if want == found {
            return None;
        }
        let mut one = object("container", instance.name.clone(), workload.origin.clone(), Change::Modified);
        one.labels = labels(&workload.container.labels, target.mask);
        one.fields = diff::between(&want, &found, target.mask);
        if is_of_spec {
            let subject = Subject { name: self.name, workload };
            let rule = |path: &str| ignored::rule(target.policy, subject, path).cloned();
            let ignored = one.fields.iter().filter_map(|it| Some((it.field.clone(), rule(&it.field)?)));
            one.ignored = ignored.collect();
        }
        (one.want, one.found) = diff::both_as_yaml(&want, &found, target.mask);
        Some(one)
    }

    /// The files rewritten in place that it has read last, if that is known.
    fn in_place(&self, instance: &Instance, want: &mut Fields, found: &mut Fields) {
        let told = self.record.delivered.get(&instance.id).into_iter().flatten();
        for (target, content) in told {
            let Some(file) = self.workload.in_place.get(target).filter(|it| it.content != *content) else {
                continue;
            };
            let short = |id: &ContentId| Value::Text(id.short().to_owned());
            let path = vec!["inPlace".to_owned(), target.clone()];
            want.insert(path.clone(), short(&file.content));
            found.insert(path, short(content));
        }
    }

    /// A rollback makes containers from the digest in place of the manifest's reference.
    fn pin_image(&self, want: &mut Fields, found: &Fields) {
        let pinned = self.target.images.get(&self.workload.container.image);
        let key = vec!["image".to_owned()];
        if let (Some(pinned), Some(Value::Text(image))) = (pinned, found.get(&key))
            && image == pinned
        {
            want.insert(key, Value::Text(pinned.clone()));
        }
    }

    /// Its state, if it should run and does not.
    fn state(&self, instance: &Instance) -> Option<String> {
        match &instance.state {
            State::Running { .. } => None,
            State::Exited { .. }
                if standing::is_completed(self.record, self.observed, self.workload, instance) =>
            {
                None
            }
            State::Exited { code, .. } => Some(format!("exited ({code})")),
            State::Created => Some("created".to_owned()),
            State::Paused => Some("paused".to_owned()),
            State::Restarting { code, .. } => Some(format!("restarting ({code})")),
            State::Removing => Some("removing".to_owned()),
            State::Dead => Some("dead".to_owned()),
        }
    }
}

fn extra_container(instance: &Instance, origin: &Location, target: &Target<'_>) -> ObjectDifference {
    let mut extra = object("container", instance.name.clone(), origin.clone(), Change::Extra);
    extra.labels = labels(&instance.config.labels, target.mask);
    extra.found = diff::extra_yaml(&instance.config, target.stack.format, target.mask);
    extra
}

fn live_networks(target: &Target<'_>, observed: &Observed, all: &mut Vec<ObjectDifference>) {
    let (stack, mask) = (target.stack, target.mask);
    let ours = |agent: Option<&AgentId>| agent == Some(target.agent);
    for (name, network) in &stack.networks {
        let there = observed.networks.get(name).map(|it| There {
            spec: it.spec.as_ref().filter(|_| ours(it.agent.as_ref()) && !network.external),
        });
        let yaml = || yaml_of(network, "bridge", mask);
        let change = named(("network", name), stack, &SpecHash::of(network), there.as_ref(), yaml);
        all.extend(change.map(|it| ObjectDifference { labels: labels(&network.labels, mask), ..it }));
    }
    for (name, _) in observed.networks.iter().filter(|(_, it)| ours(it.agent.as_ref())) {
        if !stack.networks.contains_key(name) {
            all.push(object("network", name.clone(), manifest(stack), Change::Extra));
        }
    }
}

/// Volumes that Git does not name any more are kept for ever, and are no difference.
fn live_volumes(target: &Target<'_>, observed: &Observed, all: &mut Vec<ObjectDifference>) {
    let (stack, mask) = (target.stack, target.mask);
    for (name, volume) in &stack.volumes {
        let is_ours = |agent: Option<&AgentId>| agent == Some(target.agent) && !volume.external;
        let there = observed
            .volumes
            .get(name)
            .map(|it| There { spec: it.spec.as_ref().filter(|_| is_ours(it.agent.as_ref())) });
        let yaml = || yaml_of(volume, "local", mask);
        let change = named(("volume", name), stack, &SpecHash::of(volume), there.as_ref(), yaml);
        all.extend(change.map(|it| ObjectDifference { labels: labels(&volume.labels, mask), ..it }));
    }
}

/// A network or volume on the host. What is not ours has no hash, and is taken as it is.
struct There<'a> {
    spec: Option<&'a SpecHash>,
}

/// A network or volume, by the hash it was made with: the engine does not tell all that went into it.
fn named(
    (kind, name): (&'static str, &str),
    stack: &Stack,
    want: &SpecHash,
    there: Option<&There<'_>>,
    yaml: impl Fn() -> String,
) -> Option<ObjectDifference> {
    let make = |change| object(kind, name.to_owned(), manifest(stack), change);
    let Some(There { spec }) = there else {
        return Some(ObjectDifference { want: yaml(), ..make(Change::Missing) });
    };
    let found = spec.filter(|it| *it != want)?;
    let (want, found) = (want.short().to_owned(), found.short().to_owned());
    let (want_text, found_text) = (format!("spec: {want}\n"), format!("spec: {found}\n"));
    let fields = vec![FieldDifference { field: "spec".to_owned(), want, found }];
    Some(ObjectDifference { fields, want: want_text, found: found_text, ..make(Change::Modified) })
}

fn yaml_of<T: Serialize>(value: &T, driver: &str, mask: &Mask) -> String {
    let mut fields = Fields::new();
    flatten(&mut fields, &mut Vec::new(), json(value), &["key"]);
    or_else(&mut fields, "driver", driver);
    diff::both_as_yaml(&fields, &Fields::new(), mask).0
}
