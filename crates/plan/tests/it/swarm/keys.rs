//! A service with every key, as an engine read it back: it is what Git says, and a change of any of its fields is seen.

use driftless_files::{AppSpec, MemoryFiles};
use driftless_manifest::render;
use driftless_model::EngineKind;
use serde_json::Value;

use super::Cluster;

const EVERYTHING: &str = include_str!("everything.yaml");
/// Recorded by `RECORD_SWARM_SERVICE=FILE make e2e-swarm`.
const RECORDED: &str = include_str!("everything.json");
const SERVICE: &str = "shop_all";

/// Fields that follow from others, mean a restart, or that the engine alone writes.
const NO_DRIFT: &[&str] = &["ConfigID", "SecretID", "Platforms", "ForceUpdate", "Runtime", "Isolation"];
/// Values that may be missing: a default, and the labels that say whose the service is.
const MAY_BE_MISSING: &[&str] = &["/EndpointSpec/Ports/0/Protocol", "/Labels"];
/// Fields that say whose the service is, and which version of Git it has.
const NAMES: &[&str] = &["Name", "driftless.agent", "driftless.application", "driftless.spec"];

/// The application of the file, settled on a Swarm that reads the service back as an engine does.
fn recorded() -> (Cluster, Value) {
    let files = MemoryFiles::new([("shop/compose.yaml", EVERYTHING), ("shop/token.txt", "s3cret")]);
    let app = AppSpec { engine: EngineKind::Swarm, ..AppSpec::compose("shop", &["shop/compose.yaml"]) };
    let rendered = render(&files, &app);
    let mut cluster = Cluster::new([]);
    cluster.stack = rendered.stack.unwrap_or_else(|| panic!("{:?}", rendered.findings));
    cluster.settle();
    let recorded: Value = serde_json::from_str(RECORDED).unwrap();
    for (name, id) in recorded["networks"].as_object().unwrap() {
        cluster.observed.networks.get_mut(name).unwrap().id = id.as_str().unwrap().to_owned();
    }
    let mut spec = recorded["spec"].clone();
    // The digest is that of the image that the engine was given.
    let image = cluster.swarm.services[SERVICE].image().unwrap();
    spec["TaskTemplate"]["ContainerSpec"]["Image"] = image.into();
    (cluster, spec)
}

/// The steps of the next round if the Swarm has this specification.
fn steps(cluster: &mut Cluster, spec: &Value) -> Vec<String> {
    cluster.swarm.services.get_mut(SERVICE).unwrap().spec = spec.clone();
    let record = cluster.record.clone();
    let steps = cluster.round().steps.iter().map(|step| step.action.to_string()).collect();
    cluster.record = record;
    steps
}

/// The pointers of all values in a specification, also of maps and lists.
fn pointers(path: &str, value: &Value, all: &mut Vec<String>) {
    let children: Vec<(String, &Value)> = match value {
        Value::Object(map) => map.iter().map(|(name, value)| (name.replace('/', "~1"), value)).collect(),
        Value::Array(items) => {
            items.iter().enumerate().map(|(index, value)| (index.to_string(), value)).collect()
        }
        _ => Vec::new(),
    };
    for (name, value) in children {
        if !NO_DRIFT.contains(&&*name) && !NAMES.contains(&&*name) {
            let path = format!("{path}/{name}");
            pointers(&path, value, all);
            all.push(path);
        }
    }
}

fn other(value: &Value) -> Option<Value> {
    match value {
        Value::String(text) => Some(format!("{text}x").into()),
        Value::Bool(is) => Some((!is).into()),
        Value::Number(number) => Some((number.as_f64().unwrap() + 1.0).into()),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}

/// The specification without one value.
fn without(spec: &Value, pointer: &str) -> Value {
    let mut spec = spec.clone();
    let (parent, name) = pointer.rsplit_once('/').unwrap();
    match spec.pointer_mut(parent).unwrap() {
        Value::Object(map) => drop(map.remove(&name.replace("~1", "/"))),
        Value::Array(items) => drop(items.remove(name.parse().unwrap())),
        other => panic!("{other} has no values"),
    }
    spec
}

#[test]
fn service_of_an_engine_needs_no_step() {
    let (mut cluster, spec) = recorded();
    assert_eq!(steps(&mut cluster, &spec), Vec::<String>::new());
}

#[test]
fn change_of_any_field_of_a_service_is_seen() {
    let (mut cluster, spec) = recorded();
    let mut all = Vec::new();
    pointers("", &spec, &mut all);
    assert!(all.len() > 100, "{}", all.len());
    let mut unseen = Vec::new();
    for pointer in &all {
        let is_needed = !MAY_BE_MISSING.contains(&&**pointer);
        let missing = is_needed.then(|| ("missing", without(&spec, pointer)));
        let changed = other(spec.pointer(pointer).unwrap()).map(|value| {
            let mut changed = spec.clone();
            *changed.pointer_mut(pointer).unwrap() = value;
            ("changed", changed)
        });
        for (what, changed) in missing.into_iter().chain(changed) {
            if steps(&mut cluster, &changed) != ["update service shop_all"] {
                unseen.push((what, pointer));
            }
        }
    }
    assert_eq!(unseen, [], "{unseen:#?}");
}

#[test]
fn volumes_of_a_swarm_have_the_labels_of_their_mounts() {
    let text = "
services:
  web:
    image: nginx:1.29
    volumes:
      - {type: volume, source: data, target: /data, volume: {labels: {of: mount, both: mount}}}
      - {type: volume, target: /cache, volume: {labels: {of: mount}}}
volumes: {data: {labels: {both: volume}}}
";
    let files = MemoryFiles::new([("shop/compose.yaml", text)]);
    let app = AppSpec { engine: EngineKind::Swarm, ..AppSpec::compose("shop", &["shop/compose.yaml"]) };
    let mut cluster = Cluster::new([]);
    cluster.stack = render(&files, &app).stack.unwrap();
    cluster.settle();
    let mounts = &cluster.swarm.services["shop_web"].spec["TaskTemplate"]["ContainerSpec"]["Mounts"];
    let labels = |target: &str| {
        let mut all = mounts.as_array().unwrap().iter();
        all.find(|mount| mount["Target"] == target).unwrap()["VolumeOptions"]["Labels"].clone()
    };
    assert_eq!(labels("/cache"), serde_json::json!({"of": "mount"}));
    let expected = serde_json::json!({"both": "volume", "com.docker.stack.namespace": "shop", "of": "mount"});
    assert_eq!(labels("/data"), expected);
}
