//! The differences between a service as it is wanted and as a Swarm has it, field by field.
//!
//! Managers fill in defaults, name networks, configs and secrets by id, and sort lists. Both sides are brought to one form
//! first.

use std::collections::{BTreeMap, BTreeSet};

use driftless_model::{Mask, Observed, SwarmFileKind};
use serde_json::{Map, Value};

use super::files::absolute;

/// A field of a service with another value than Git asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FieldOfService {
    /// Such as `TaskTemplate.ContainerSpec.Image`.
    pub(crate) field: String,
    /// Masked. `unset`: there is none.
    pub(crate) want: String,
    pub(crate) found: String,
}

/// Values that the engine fills in, by the end of their paths.
const DEFAULTS: &[(&str, &str)] = &[
    ("TaskTemplate.Runtime", "container"),
    ("ContainerSpec.Isolation", "default"),
    ("RestartPolicy.Condition", "any"),
    ("RestartPolicy.MaxAttempts", "0"),
    ("RestartPolicy.Delay", "5000000000"),
    ("EndpointSpec.Mode", "vip"),
    ("UpdateConfig.Order", "stop-first"),
    ("UpdateConfig.FailureAction", "pause"),
    ("UpdateConfig.MaxFailureRatio", "0"),
    ("RollbackConfig.Order", "stop-first"),
    ("RollbackConfig.FailureAction", "pause"),
    ("RollbackConfig.MaxFailureRatio", "0"),
    ("StopGracePeriod", "10000000000"),
    ("PublishMode", "ingress"),
    ("Protocol", "tcp"),
];

/// Lists of texts whose order says nothing.
const UNORDERED: &[&str] = &["Aliases", "CapabilityAdd", "CapabilityDrop", "Constraints", "Groups", "Hosts"];

/// Zero and false that say something else than no value does, by the end of their paths.
const SAYS_SOMETHING: &[&str] = &["ContainerSpec.Init", "RestartPolicy.Delay", "StopGracePeriod"];

/// Maps whose names and values are those of users, by the last part of their paths.
const USER_MAPS: &[&str] = &["Labels", "Options", "Sysctls", "DriverOpts"];

/// Lists with the words of a command. Their order says which word is a secret.
const COMMANDS: &[&str] = &[
    "/TaskTemplate/ContainerSpec/Command",
    "/TaskTemplate/ContainerSpec/Args",
    "/TaskTemplate/ContainerSpec/Healthcheck/Test",
];

/// Lists of words, by the last part of their paths. An empty word is one as well.
const WORDS: &[&str] = &["Args", "Command", "Test"];

/// The differences, sorted by field. `ids` gives the names of networks by their ids.
pub(crate) fn differences(
    want: &Value,
    found: &Value,
    ids: &BTreeMap<String, String>,
    mask: &Mask,
) -> Vec<FieldOfService> {
    let (wanted, seen) = (meaning(want, ids), meaning(found, ids));
    let fields: BTreeSet<&String> = wanted.keys().chain(seen.keys()).collect();
    let masked = |spec: &Value| meaning(&with_masked_commands(spec, mask), ids);
    let (masked_want, masked_found) = (masked(want), masked(found));
    let one = |field: &&String| {
        if wanted.get(*field) == seen.get(*field) {
            return None;
        }
        let shown = |all: &BTreeMap<String, String>| {
            let value = all.get(*field);
            value.map_or_else(|| "unset".to_owned(), |value| mask.value(variable(field), value))
        };
        let shown = [shown(&masked_want), shown(&masked_found)];
        let [want, found] = hidden_alike(mask, [wanted.get(*field), seen.get(*field)], shown);
        Some(FieldOfService { field: (*field).clone(), want, found })
    };
    fields.iter().filter_map(one).collect()
}

/// Hides on both sides what is hidden on one: the other value of a secret is a secret as well, and nothing else tells so.
/// `shown` are the two values as the mask alone shows them.
pub(super) fn hidden_alike(mask: &Mask, values: [Option<&String>; 2], shown: [String; 2]) -> [String; 2] {
    let hides_any = values.into_iter().zip(&shown).any(|(value, shown)| value.is_some_and(|it| it != shown));
    let mut sides = values.into_iter().zip(shown).map(|(value, shown)| match value {
        Some(value) if hides_any && *value == shown => mask.hide(value),
        Some(_) | None => shown,
    });
    std::array::from_fn(|_| sides.next().unwrap_or_default())
}

/// The specification without the secrets in commands, such as the word after `--password`.
pub(super) fn with_masked_commands(spec: &Value, mask: &Mask) -> Value {
    let mut spec = spec.clone();
    for path in COMMANDS {
        if let Some(words) = spec.pointer_mut(path).and_then(Value::as_array_mut) {
            let all: Vec<String> = words.iter().filter_map(|it| it.as_str().map(str::to_owned)).collect();
            *words = mask.arguments(&all).into_iter().map(Value::from).collect();
        }
    }
    spec
}

/// All that a specification says, by field. What is left out, and what an engine fills in, is the same.
pub(super) fn meaning(spec: &Value, ids: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    let mut all = BTreeMap::new();
    flatten("", spec, ids, &mut all);
    all
}

/// The wanted specification as the Swarm has it, wherever both say the same: defaults that are left out, ids of networks, and
/// the order of lists. A Swarm takes another form for another specification, and would replace all tasks.
pub(super) fn in_form_of(found: &Value, want: &Value, ids: &BTreeMap<String, String>) -> Value {
    let mut spec = Form { ids }.of("", Some(found), Some(want)).unwrap_or_default();
    // The comparison leaves platforms out: they are those of the image.
    let image = "/TaskTemplate/ContainerSpec/Image";
    if want.pointer(image) != found.pointer(image)
        && let Some(placement) = spec.pointer_mut("/TaskTemplate/Placement").and_then(Value::as_object_mut)
    {
        placement.remove("Platforms");
    }
    if want.pointer(image) != found.pointer(image)
        && let Some(platforms) = want.pointer("/TaskTemplate/Placement/Platforms")
        && let Some(task) = spec.get_mut("TaskTemplate").and_then(Value::as_object_mut)
        && let Some(placement) = task.entry("Placement").or_insert_with(|| Map::new().into()).as_object_mut()
    {
        placement.insert("Platforms".to_owned(), platforms.clone());
    }
    spec
}

/// Writes values in the form that others have.
struct Form<'a> {
    /// The names of networks by their ids.
    ids: &'a BTreeMap<String, String>,
}

impl Form<'_> {
    fn of(&self, path: &str, found: Option<&Value>, want: Option<&Value>) -> Option<Value> {
        if self.meaning(path, found) == self.meaning(path, want) {
            return found.cloned();
        }
        let (Some(Value::Object(found)), Some(Value::Object(wanted))) = (found, want) else {
            return want.cloned();
        };
        // A mode is named by a key that may have no value.
        if path == "Mode" || USER_MAPS.contains(&variable(path)) {
            return want.cloned();
        }
        let names: BTreeSet<&String> = found.keys().chain(wanted.keys()).collect();
        let values = names.into_iter().filter_map(|name| {
            let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
            Some((name.clone(), self.of(&path, found.get(name), wanted.get(name))?))
        });
        Some(Value::Object(values.collect()))
    }

    fn meaning(&self, path: &str, value: Option<&Value>) -> BTreeMap<String, String> {
        let mut all = BTreeMap::new();
        if let Some(value) = value {
            flatten(path, value, self.ids, &mut all);
        }
        all
    }
}

/// The name of the variable or label that a field holds, else the last part of the path.
pub(super) fn variable(field: &str) -> &str {
    field.rsplit('.').next().unwrap_or(field)
}

fn flatten(path: &str, value: &Value, ids: &BTreeMap<String, String>, all: &mut BTreeMap<String, String>) {
    let join = |name: &str| if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
    match value {
        Value::Null => {}
        Value::Bool(false) if !says_something(path) => {}
        // Words of users: an empty one is one, and none of them is a default.
        Value::Object(map) if USER_MAPS.contains(&variable(path)) => {
            all.extend(map.iter().map(|(name, value)| (join(name), text_of(value, &BTreeMap::new()))));
        }
        Value::Object(map) => {
            for (name, value) in map {
                // Ids follow from names, platforms from the digest, and a forced update is a restart.
                if matches!(name.as_str(), "ConfigID" | "SecretID" | "Platforms" | "ForceUpdate") {
                    continue;
                }
                flatten(&join(name), value, ids, all);
            }
        }
        Value::Array(items) => {
            let mut items: Vec<&Value> = items.iter().collect();
            if UNORDERED.contains(&variable(path)) {
                items.sort_by_key(|item| text_of(item, ids));
            }
            for (index, item) in items.into_iter().enumerate() {
                let key = match item {
                    Value::String(text) if path.ends_with(".Env") => {
                        let (name, value) = text.split_once('=').unwrap_or((text, ""));
                        all.insert(format!("{path}.{name}"), value.to_owned());
                        continue;
                    }
                    Value::String(text) if WORDS.contains(&variable(path)) => {
                        all.insert(format!("{path}[{index}]"), text.clone());
                        continue;
                    }
                    Value::Object(map) if path.ends_with("EndpointSpec.Ports") => Some(port_of(map)),
                    Value::Object(map) => ["ConfigName", "SecretName", "Name", "Target", "TargetPort"]
                        .iter()
                        .find_map(|key| map.get(*key))
                        .map(|key| text_of(key, ids))
                        .map(|key| match map.get("File").and_then(|file| file.get("Name")) {
                            Some(file) => {
                                let kind = SwarmFileKind::of(path.ends_with("Secrets"));
                                let target = absolute(&text_of(file, ids), kind);
                                format!("{key}:{target}")
                            }
                            None => key,
                        }),
                    _ => None,
                };
                let key = key.unwrap_or_else(|| index.to_string());
                flatten(&format!("{path}[{key}]"), item, ids, all);
            }
        }
        Value::Number(number)
            if number.as_f64() == Some(0.0)
                && !path.ends_with("Replicas")
                && !path.ends_with("Parallelism")
                && !says_something(path) => {}
        Value::String(text) if text.is_empty() => {}
        Value::Bool(_) | Value::Number(_) | Value::String(_) => {
            let text = text_of(value, ids);
            let text = if path.ends_with("].File.Name") {
                absolute(&text, SwarmFileKind::of(path.contains(".Secrets[")))
            } else {
                text
            };
            let is_default = DEFAULTS.iter().any(|(end, default)| path.ends_with(end) && text == *default);
            if !is_default {
                all.insert(path.to_owned(), text);
            }
        }
    }
}

fn says_something(path: &str) -> bool {
    SAYS_SOMETHING.iter().any(|end| path.ends_with(end))
}

/// Names a port by all that tells it from others: one port may be published twice, and by two protocols.
fn port_of(port: &Map<String, Value>) -> String {
    let text = |key: &str| port.get(key).map(|it| text_of(it, &BTreeMap::new())).unwrap_or_default();
    let protocol = port.get("Protocol").and_then(Value::as_str).unwrap_or("tcp");
    format!("{}:{}/{protocol}", text("PublishedPort"), text("TargetPort"))
}

fn text_of(value: &Value, ids: &BTreeMap<String, String>) -> String {
    match value {
        Value::String(text) => ids.get(text).unwrap_or(text).clone(),
        other => other.to_string(),
    }
}

/// The names of networks by their ids.
pub(super) fn network_names(observed: &Observed) -> BTreeMap<String, String> {
    observed.networks.iter().map(|(name, network)| (network.id.clone(), name.clone())).collect()
}
