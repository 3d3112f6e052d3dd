//! One application compared with its target, object by object: `driftless drift`.
//!
//! Unlike [`crate::fields::diff`], which compares one container, this comparison knows replicas, states, networks and
//! volumes.

use std::collections::BTreeSet;

use driftless_model::{
    Container, ContentId, EngineKind, Instance, Location, Observed, Part, Record, Role, State, Subject,
    Workload, WorkloadName,
};

use crate::{
    explain::{
        named::{self, Owner},
        objects::{Change, ObjectDifference, object, put, sorted},
    },
    facts::{fs_changes, ignored, jobs, standing},
    fields::{
        container::fields,
        diff::{self, image_defaults},
        value::{Fields, Value},
    },
    names::container_name,
    swarm::compare_swarm,
    target::Target,
};

/// The objects of an application that differ from the target. Sorted by kind and name.
pub fn compare_live(target: &Target<'_>, observed: &Observed, record: &Record) -> Vec<ObjectDifference> {
    if target.policy.engine == EngineKind::Swarm {
        return compare_swarm(target, observed, record);
    }
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
    named::networks(target, observed, &Owner { agent: target.agent, driver: "bridge" }, &mut all);
    named::volumes(target, observed, &mut all);
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
                if jobs::is_kept(record, workload, instance) {
                    continue;
                }
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
        missing.labels = target.mask.labels(&workload.container.labels, target.stack.format);
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
        let nothing = Container::default();
        let defaults = image.map_or(&nothing, |it| &it.defaults);
        diff::effective(&self.workload.container, self.target.stack.format, defaults)
    }

    /// A container that stands for a wanted one, if anything about it is not as wanted.
    fn one(&self, instance: &Instance) -> Option<ObjectDifference> {
        let name = container_name(self.target.stack, self.name, instance.instance.slot);
        self.difference(instance, &name, instance.spec == self.workload.spec())
    }

    fn difference(&self, instance: &Instance, name: &str, is_of_spec: bool) -> Option<ObjectDifference> {
        let Self { target, observed, workload, .. } = self;
        let (defaults, nothing) = (image_defaults(workload, instance, observed), Container::default());
        let format = target.stack.format;
        let effective = diff::effective(&workload.container, format, defaults.unwrap_or(&nothing));
        let mut found =
            fields(&diff::instance_config(instance, (&effective, format), &observed.engine_traits));
        let mut want = fields(&effective);
        if defaults.is_none() {
            diff::without_inherited(&mut found, &want, &workload.container);
        }
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
        one.labels = target.mask.labels(&workload.container.labels, target.stack.format);
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
            let shown = |id: &ContentId| {
                if file.secret { Value::secrets([id]) } else { Value::Text(id.short().to_owned()) }
            };
            let path = vec!["inPlace".to_owned(), target.clone()];
            want.insert(path.clone(), shown(&file.content));
            found.insert(path, shown(content));
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
    extra.labels = target.mask.labels(&instance.config.labels, target.stack.format);
    extra.found = diff::extra_yaml(&instance.config, target.stack.format, target.mask);
    extra
}
