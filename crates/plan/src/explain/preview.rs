//! Two rendered stacks compared, without an engine: `driftless preview`.

use std::collections::{BTreeMap, BTreeSet};

use driftless_model::{Condition, Container, Dependency, Format, Location, Mask, Part, Stack, Workload};
use serde::Serialize;

use crate::{
    explain::objects::{
        Change, ObjectDifference, digest, flatten, json, manifest, object, or_else, put, sorted,
    },
    fields::{
        container::fields,
        diff::{self, FieldDifference},
        value::{Fields, Value},
    },
};

/// The changes from one rendering of an application to another; `None` is no application. Sorted by kind and
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

/// Kind and name of an object.
type Key = (&'static str, String);

/// One object of a rendering.
struct Side {
    origin: Location,
    format: Format,
    labels: BTreeMap<String, String>,
    fields: Fields,
    /// The digest of the whole object, so that no difference is missed.
    digest: String,
}

/// All objects of a rendering.
fn outline(stack: Option<&Stack>) -> BTreeMap<Key, Side> {
    let mut all = BTreeMap::new();
    let Some(stack) = stack else { return all };
    for (name, workload) in &stack.workloads {
        let mut fields = fields(&workload.container.effective(&Container::default()));
        let outer =
            Workload { container: Container::default(), origin: Location::default(), ..workload.clone() };
        flatten(&mut fields, &mut Vec::new(), json(&outer), &["container", "parts", "origin", "after"]);
        mark_secrets(&mut fields, workload);
        depends_on(&mut fields, &workload.after);
        fields.retain(|path, value| !is_default(path, value));
        let outer = Workload { origin: Location::default(), parts: Vec::new(), ..workload.clone() };
        for part in &workload.parts {
            let side = part_side(stack, workload, part);
            all.insert(("workload", name.part(&part.name).to_string()), side);
        }
        let side = Side {
            origin: workload.origin.clone(),
            format: stack.format,
            labels: workload.container.labels.clone(),
            fields,
            digest: digest(&outer),
        };
        all.insert(("workload", name.to_string()), side);
    }
    // The agent neither creates nor removes what is external.
    for (name, network) in stack.networks.iter().filter(|(_, it)| !it.external) {
        let mut side = plain_side(stack, network, &network.labels);
        or_else(&mut side.fields, "driver", "bridge");
        all.insert(("network", name.clone()), side);
    }
    for (name, volume) in stack.volumes.iter().filter(|(_, it)| !it.external) {
        let mut side = plain_side(stack, volume, &volume.labels);
        or_else(&mut side.fields, "driver", "local");
        all.insert(("volume", name.clone()), side);
    }
    for (path, content) in &stack.app_files {
        let mut side = plain_side(stack, content, &BTreeMap::new());
        put(&mut side.fields, "content", content.short());
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

/// Hides the digests of secrets among the fields of a workload.
fn mark_secrets(fields: &mut Fields, workload: &Workload) {
    let Workload { pull_secrets, in_place, build, .. } = workload;
    let mut mark = |path: &[&str], secret: Value| {
        fields.insert(path.iter().map(|part| (*part).to_owned()).collect(), secret);
    };
    if !pull_secrets.is_empty() {
        mark(&["pullSecrets"], Value::secrets(pull_secrets));
    }
    for (target, file) in in_place.iter().filter(|(_, file)| file.secret) {
        mark(&["inPlace", target.as_str(), "content"], Value::secrets([&file.content]));
    }
    for (name, secret) in build.iter().flat_map(|build| &build.secrets) {
        mark(&["build", "secrets", name.as_str()], Value::secrets([secret]));
    }
}

/// One container of a pod of several.
fn part_side(stack: &Stack, workload: &Workload, part: &Part) -> Side {
    let mut fields = fields(&part.container.effective(&Container::default()));
    let outer = Part { container: Container::default(), ..part.clone() };
    flatten(&mut fields, &mut Vec::new(), json(&outer), &["container", "name"]);
    fields.retain(|path, value| !is_default(path, value));
    Side {
        origin: workload.origin.clone(),
        format: stack.format,
        labels: part.container.labels.clone(),
        fields,
        digest: digest(part),
    }
}

fn plain_side<T: Serialize>(stack: &Stack, value: &T, labels: &BTreeMap<String, String>) -> Side {
    let mut fields = Fields::new();
    flatten(&mut fields, &mut Vec::new(), json(value), &["key"]);
    Side {
        origin: manifest(stack),
        format: stack.format,
        labels: labels.clone(),
        fields,
        digest: digest(value),
    }
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
    // The parts of an application say that it is added or removed.
    if *kind == "application" && change != Change::Modified {
        return None;
    }
    let mut one = object(kind, name.clone(), shown.origin.clone(), change);
    one.labels = mask.labels(&shown.labels, shown.format);
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

/// Whether a field has the value that it gets without a word in the manifest.
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
