//! What is not the same, object by object and field by field: a stack and what runs, or two stacks. For reports;
//! it decides nothing, and values come masked.
//!
//! [`super::diff`] compares one container; here is the whole of an application, also what a container does not
//! show: how many there are, whether they run, networks, volumes, probes and the order of starting.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use serde_json::Value as Json;

use super::{
    Target, container_name,
    diff::{self, FieldDifference},
    fields::{Fields, Value, fields},
    inside, jobs, repair, text,
};
use driftless_model::{
    AgentId, Condition, Container, ContentId, Dependency, Instance, Location, Mask, Observed, Part, Record,
    Role, SpecHash, Stack, State, Workload, WorkloadName,
};

/// One object that is not the same on both sides.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectDifference {
    /// `container`, `workload`, `network`, `volume`, `file` or `application`.
    pub kind: &'static str,
    pub name: String,
    /// Where the manifest defines it, or did.
    pub origin: Location,
    /// Of the manifest, masked.
    pub labels: BTreeMap<String, String>,
    pub change: Change,
    /// Sorted by path. Empty where the whole object is missing or extra.
    pub fields: Vec<FieldDifference>,
    /// Canonical YAML, masked; empty where there is nothing.
    pub want: String,
    pub found: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Wanted, and not found.
    Missing,
    /// Found, and not wanted.
    Extra,
    Modified,
}

/// What of an application is not on the host as the target wants it. Sorted by kind and name.
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

/// What changes from one rendering of an application to another; `None` is nothing at all. Sorted by kind and
/// name. Where the renderings differ in anything that matters, this is not empty.
pub fn compare_stacks(from: Option<&Stack>, to: Option<&Stack>, mask: &Mask) -> Vec<ObjectDifference> {
    let mut all = Vec::new();
    let (before, after) = (outline(from), outline(to));
    let keys: BTreeSet<&Key> = before.keys().chain(after.keys()).collect();
    for key in keys {
        all.extend(between(key, before.get(key), after.get(key), mask));
    }
    if all.is_empty() && from.map(essence) != to.map(essence) {
        let (name, origin) = to.or(from).map(|it| (it.app.to_string(), manifest(it))).unwrap_or_default();
        let difference = FieldDifference {
            field: "stack".to_owned(),
            want: to.map_or_else(|| "unset".to_owned(), short_hash),
            found: from.map_or_else(|| "unset".to_owned(), short_hash),
        };
        let mut object = object("application", name, origin, Change::Modified);
        object.fields.push(difference);
        all.push(object);
    }
    sorted(all)
}

fn sorted(mut all: Vec<ObjectDifference>) -> Vec<ObjectDifference> {
    all.sort_by(|a, b| (a.kind, &a.name).cmp(&(b.kind, &b.name)));
    all
}

fn object(kind: &'static str, name: String, origin: Location, change: Change) -> ObjectDifference {
    let (want, found) = (String::new(), String::new());
    ObjectDifference { kind, name, origin, labels: BTreeMap::new(), change, fields: Vec::new(), want, found }
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
        // Those that are as wanted stand in for the wanted ones; the others are too many.
        found.sort_by_key(|it| (it.spec != spec, it.instance.slot, it.name.clone()));
        let wanted = match &workload.job {
            // What is there of work is kept, and what was done or has no turn yet is not missing.
            Some(_) if workload.cron.is_none() => {
                usize::from(!found.is_empty() || jobs::is_awaited(record, target.stack, observed, workload))
            }
            Some(_) | None => usize::try_from(workload.replicas).unwrap_or(usize::MAX),
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
        self.workload.container.over(image.map_or(&Container::default(), |it| &it.defaults))
    }

    /// A container that stands for a wanted one, if anything about it is not as wanted.
    fn one(&self, instance: &Instance) -> Option<ObjectDifference> {
        let name = container_name(self.target.stack, self.name, instance.instance.slot);
        self.difference(instance, &name, instance.spec == self.workload.spec())
    }

    fn difference(&self, instance: &Instance, name: &str, is_of_spec: bool) -> Option<ObjectDifference> {
        let Self { target, observed, workload, .. } = self;
        let effective = workload.container.over(diff::defaults(workload, instance, observed));
        let mut found = fields(&diff::without_engine_defaults(&instance.config, &effective));
        let mut want = fields(&effective);
        self.pin_image(&mut want, &found);
        let is_named = instance.name == name;
        if let Some(state) = self.state(instance) {
            put(&mut want, "state", "running");
            put(&mut found, "state", &state);
        }
        // Where the specification is part of the name, the one says it of both.
        if !is_named && (is_of_spec || target.stack.format == driftless_model::Format::Compose) {
            put(&mut want, "name", name);
            put(&mut found, "name", &instance.name);
        }
        self.in_place(instance, &mut want, &mut found);
        if want == found && !is_of_spec {
            put(&mut want, "spec", workload.spec().short());
            put(&mut found, "spec", instance.spec.short());
        }
        if let Some((as_made, changed)) = inside::found(observed, self.record, instance) {
            put(&mut want, inside::FIELD, &as_made);
            put(&mut found, inside::FIELD, &changed);
        }
        if want == found {
            return None;
        }
        let mut one = object("container", instance.name.clone(), workload.origin.clone(), Change::Modified);
        one.labels = labels(&workload.container.labels, target.mask);
        one.fields = diff::between(&want, &found, target.mask);
        (one.want, one.found) = diff::both_as_yaml(&want, &found, target.mask);
        Some(one)
    }

    /// What it was last told of the files that are rewritten in place, where that is known.
    fn in_place(&self, instance: &Instance, want: &mut Fields, found: &mut Fields) {
        let told = self.record.delivered.get(&instance.id).into_iter().flatten();
        for (target, content) in told {
            let Some(file) = self.workload.in_place.get(target).filter(|it| it.content != *content) else {
                continue;
            };
            let short = |id: &ContentId| Value::Text(id.0.get(..12).unwrap_or(&id.0).to_owned());
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

    /// What it is in place of `running`.
    fn state(&self, instance: &Instance) -> Option<String> {
        let started = self.observed.engine_started;
        match &instance.state {
            State::Running { .. } => None,
            State::Exited { .. } if repair::is_completed(self.record, started, self.workload, instance) => {
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

/// Of one side: kind and name.
type Key = (&'static str, String);

/// One object of a rendering.
struct Side {
    origin: Location,
    labels: BTreeMap<String, String>,
    fields: Fields,
    /// Of all that makes it, so that no difference is overlooked.
    digest: String,
}

/// All objects of a rendering.
fn outline(stack: Option<&Stack>) -> BTreeMap<Key, Side> {
    let mut all = BTreeMap::new();
    let Some(stack) = stack else { return all };
    for (name, workload) in &stack.workloads {
        let mut fields = fields(&workload.container.over(&Container::default()));
        let outer =
            Workload { container: Container::default(), origin: Location::default(), ..workload.clone() };
        flatten(&mut fields, &mut Vec::new(), json(&outer), &["container", "parts", "origin", "after"]);
        depends_on(&mut fields, &workload.after);
        fields.retain(|path, value| !is_default(path, value));
        let outer = Workload { origin: Location::default(), parts: Vec::new(), ..workload.clone() };
        for part in &workload.parts {
            let side = part_side(workload, part);
            all.insert(("workload", name.part(&part.name).to_string()), side);
        }
        let side = Side {
            origin: workload.origin.clone(),
            labels: workload.container.labels.clone(),
            fields,
            digest: digest(&outer),
        };
        all.insert(("workload", name.to_string()), side);
    }
    for (name, network) in &stack.networks {
        let mut side = plain_side(stack, network, &network.labels);
        or_else(&mut side.fields, "driver", "bridge");
        all.insert(("network", name.clone()), side);
    }
    for (name, volume) in &stack.volumes {
        let mut side = plain_side(stack, volume, &volume.labels);
        or_else(&mut side.fields, "driver", "local");
        all.insert(("volume", name.clone()), side);
    }
    for (path, content) in &stack.app_files {
        let mut side = plain_side(stack, content, &BTreeMap::new());
        put(&mut side.fields, "content", content.0.get(..12).unwrap_or(&content.0));
        all.insert(("file", path.clone()), side);
    }
    let whole = (stack.format, &stack.project);
    let mut side = plain_side(stack, &whole, &BTreeMap::new());
    side.fields.clear();
    put(&mut side.fields, "format", &format!("{:?}", stack.format));
    put(&mut side.fields, "project", &stack.project);
    all.insert(("application", stack.app.to_string()), side);
    all
}

/// One container of a pod of several.
fn part_side(workload: &Workload, part: &Part) -> Side {
    let mut fields = fields(&part.container.over(&Container::default()));
    let outer = Part { container: Container::default(), ..part.clone() };
    flatten(&mut fields, &mut Vec::new(), json(&outer), &["container", "name"]);
    fields.retain(|path, value| !is_default(path, value));
    Side {
        origin: workload.origin.clone(),
        labels: part.container.labels.clone(),
        fields,
        digest: digest(part),
    }
}

fn plain_side<T: Serialize>(stack: &Stack, value: &T, labels: &BTreeMap<String, String>) -> Side {
    let mut fields = Fields::new();
    flatten(&mut fields, &mut Vec::new(), json(value), &["key"]);
    Side { origin: manifest(stack), labels: labels.clone(), fields, digest: digest(value) }
}

fn between(
    (kind, name): &Key,
    from: Option<&Side>,
    to: Option<&Side>,
    mask: &Mask,
) -> Option<ObjectDifference> {
    static NOTHING: Fields = Fields::new();
    let shown = to.or(from)?;
    let change = match (from, to) {
        (Some(from), Some(to)) if from.digest == to.digest => return None,
        (Some(_), Some(_)) => Change::Modified,
        (None, _) => Change::Missing,
        (_, None) => Change::Extra,
    };
    // That an application comes or goes is said by its parts.
    if *kind == "application" && change != Change::Modified {
        return None;
    }
    let mut one = object(kind, name.clone(), shown.origin.clone(), change);
    one.labels = labels(&shown.labels, mask);
    let (want, found) = (to.map_or(&NOTHING, |it| &it.fields), from.map_or(&NOTHING, |it| &it.fields));
    let (want_text, found_text) = diff::both_as_yaml(want, found, mask);
    one.want = to.map(|_| want_text).unwrap_or_default();
    one.found = from.map(|_| found_text).unwrap_or_default();
    if change == Change::Modified {
        one.fields = diff::between(want, found, mask);
        if one.fields.is_empty() {
            let short =
                |it: Option<&Side>| it.and_then(|it| it.digest.get(..8)).unwrap_or_default().to_owned();
            let (want, found) = (short(to), short(from));
            one.want.extend(["spec: ", &want, "\n"]);
            one.found.extend(["spec: ", &found, "\n"]);
            one.fields.push(FieldDifference { field: "spec".to_owned(), want, found });
        }
    }
    Some(one)
}

/// The stack without what does not matter: where in a file something stands.
fn essence(stack: &Stack) -> String {
    let mut stack = stack.clone();
    stack.manifests.clear();
    for workload in stack.workloads.values_mut() {
        workload.origin = Location::default();
    }
    digest(&stack)
}

fn short_hash(stack: &Stack) -> String {
    essence(stack).chars().take(8).collect()
}

fn manifest(stack: &Stack) -> Location {
    stack.manifests.first().map(Location::file).unwrap_or_default()
}

fn labels(all: &BTreeMap<String, String>, mask: &Mask) -> BTreeMap<String, String> {
    all.iter().map(|(name, value)| (name.clone(), mask.value(name, value))).collect()
}

fn depends_on(fields: &mut Fields, after: &[Dependency]) {
    for Dependency { workload, condition, required, restart } in after {
        let mut text = match condition {
            Condition::Started => "started",
            Condition::Healthy => "healthy",
            Condition::CompletedSuccessfully => "completed successfully",
        }
        .to_owned();
        if !required {
            text.push_str(", not required");
        }
        if *restart {
            text.push_str(", restart");
        }
        fields.insert(vec!["dependsOn".to_owned(), workload.to_string()], Value::Text(text));
    }
}

/// What stands there where a manifest says nothing: no news to anybody.
fn is_default(path: &[String], value: &Value) -> bool {
    let [name] = path else { return false };
    let default = match name.as_str() {
        "pull" => "ifNotPresent",
        "progressDeadline" => "10m",
        "revisionHistoryLimit" => "10",
        // Follows from `restart`.
        "completion" => return true,
        _ => return false,
    };
    *value == Value::Text(default.to_owned())
}

fn or_else(fields: &mut Fields, name: &str, value: &str) {
    if !fields.contains_key([name.to_owned()].as_slice()) {
        put(fields, name, value);
    }
}

fn put(fields: &mut Fields, name: &str, value: &str) {
    fields.insert(vec![name.to_owned()], Value::Text(value.to_owned()));
}

fn json<T: Serialize>(value: &T) -> Json {
    serde_json::to_value(value).expect("the model's types serialise without fail")
}

fn digest<T: Serialize>(value: &T) -> String {
    SpecHash::of(value).0
}

fn yaml_of<T: Serialize>(value: &T, driver: &str, mask: &Mask) -> String {
    let mut fields = Fields::new();
    flatten(&mut fields, &mut Vec::new(), json(value), &["key"]);
    or_else(&mut fields, "driver", driver);
    diff::both_as_yaml(&fields, &Fields::new(), mask).0
}

/// Any value of the model as fields with paths. What is left out on top is not looked at.
fn flatten(out: &mut Fields, path: &mut Vec<String>, value: Json, left_out: &[&str]) {
    let text = match value {
        Json::Null => return,
        Json::Bool(it) => it.to_string(),
        Json::Number(it) => it.to_string(),
        Json::String(it) => it,
        Json::Array(all) if all.iter().all(Json::is_string) => {
            let all = all.iter().filter_map(Json::as_str).map(str::to_owned).collect();
            out.insert(path.clone(), Value::Words(all));
            return;
        }
        Json::Array(all) => {
            for (index, one) in all.into_iter().enumerate() {
                path.push(index.to_string());
                flatten(out, path, one, &[]);
                path.pop();
            }
            return;
        }
        Json::Object(map) => {
            if let Some(span) = duration(&map) {
                out.insert(path.clone(), Value::Text(span));
                return;
            }
            for (name, value) in map {
                if !left_out.contains(&name.as_str()) {
                    path.push(name);
                    flatten(out, path, value, &[]);
                    path.pop();
                }
            }
            return;
        }
    };
    if !path.is_empty() {
        out.insert(path.clone(), Value::Text(text));
    }
}

/// As serde writes a `Duration`.
fn duration(map: &serde_json::Map<String, Json>) -> Option<String> {
    let (seconds, nanos) = (map.get("secs")?.as_u64()?, map.get("nanos")?.as_u64()?);
    let nanos = u32::try_from(nanos).ok()?;
    (map.len() == 2).then(|| text::duration(std::time::Duration::new(seconds, nanos)))
}
