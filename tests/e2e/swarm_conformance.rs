//! Stacks of `docker stack deploy` that the agent adopts: each service keeps its specification, field by field, and its tasks.
//! `make swarm-conformance`, as root.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

use serde_json::{Value, json};

use crate::harness::{Settings, Site, Swarm, is_settled, wait_until};

/// Files that the stacks name.
const FILES: &[(&str, &str)] = &[
    ("motd.txt", "hello"),
    ("rules.txt", "all"),
    ("host.txt", "on {{.Node.Hostname}}"),
    ("token.txt", "s3cret"),
];

/// Whether a field is a label of the agent.
fn is_own(field: &str) -> bool {
    field.starts_with("Labels.driftless.")
}

/// Values that say the same as no value, by the end of their fields: the engine takes them then.
const DEFAULTS: &[(&str, &str)] =
    &[("TaskTemplate.Runtime", "container"), ("ContainerSpec.Isolation", "default")];

/// Lists whose order says nothing. The agent sorts them.
const UNORDERED: &[&str] = &["Aliases", "Configs", "Hosts", "Mounts", "Ports", "Secrets"];

/// The fields of a specification, without those that say nothing.
fn fields(path: &str, value: &Value, all: &mut BTreeMap<String, String>) {
    let join = |name: &str| if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
    match value {
        Value::Null | Value::Bool(false) => {}
        Value::Object(map) => map.iter().for_each(|(name, value)| fields(&join(name), value, all)),
        Value::Array(items) => {
            let mut items: Vec<_> = items
                .iter()
                .map(|item| {
                    let mut all = BTreeMap::new();
                    fields("", item, &mut all);
                    all
                })
                .collect();
            if UNORDERED.iter().any(|name| path.ends_with(name)) {
                items.sort();
            }
            for (index, item) in items.into_iter().enumerate() {
                all.extend(item.into_iter().map(|(name, text)| (format!("{path}.{index}.{name}"), text)));
            }
        }
        value => {
            let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            let is_default = DEFAULTS.iter().any(|(end, default)| path.ends_with(end) && text == *default);
            let is_zero = value.as_u64() == Some(0);
            // A relative path of a file is one in this folder.
            let folder = if path.ends_with("File.Name") { "/run/secrets/" } else { "" };
            let text = text.strip_prefix(folder).map_or(text.clone(), str::to_owned);
            if !is_default && !is_zero && !is_own(path) {
                all.insert(path.to_owned(), text);
            }
        }
    }
}

/// A service as the engine has it.
struct Service {
    fields: BTreeMap<String, String>,
    /// The ids of the tasks that run or are to run.
    tasks: Vec<String>,
}

/// All services of a Swarm, by name.
fn services(swarm: &Swarm) -> BTreeMap<String, Service> {
    let names = swarm.docker.run(&["service", "ls", "--format", "{{.Name}}"]);
    let one = |name: &str| {
        let found: Value = serde_json::from_str(&swarm.docker.run(&["service", "inspect", name])).unwrap();
        let spec = &found[0]["Spec"];
        let mut all = BTreeMap::new();
        fields("", spec, &mut all);
        let words = ["service", "ps", "-q", "--no-trunc", "--filter", "desired-state=running", name];
        let mut tasks: Vec<String> = swarm.docker.run(&words).lines().map(str::to_owned).collect();
        tasks.sort();
        (name.to_owned(), Service { fields: all, tasks })
    };
    names.lines().map(one).collect()
}

/// The names and texts of the stacks.
fn stacks(image: &str) -> Vec<(String, String)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/e2e/stacks");
    let mut stacks: Vec<(String, String)> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| {
            let path = entry.unwrap().path();
            let name = path.file_stem().unwrap().to_string_lossy().into_owned();
            let text = fs::read_to_string(&path).unwrap().replace("IMAGE", image);
            (name, format!("version: '3.9'\n{text}"))
        })
        .collect();
    stacks.sort();
    stacks
}

#[tokio::test]
#[ignore = "needs root for an engine of its own; `make swarm-conformance`"]
async fn stacks_are_adopted_field_by_field() {
    let directory = tempfile::tempdir().unwrap();
    let swarm = Swarm::start(directory.path()).await;
    // A slow machine is no lost node, whose tasks would start again.
    swarm.docker.run(&["swarm", "update", "--dispatcher-heartbeat", "60s"]);
    let image = swarm.publish("server", "1.0").await;
    let stacks = stacks(&image);
    for (name, text) in &stacks {
        let home = directory.path().join(name);
        fs::create_dir_all(&home).unwrap();
        fs::write(home.join("compose.yaml"), text).unwrap();
        for (file, text) in FILES {
            fs::write(home.join(file), text).unwrap();
        }
        let file = home.join("compose.yaml");
        swarm.docker.run(&["stack", "deploy", "-c", file.to_str().unwrap(), name]);
    }
    let words = ["service", "ls", "--format", "{{.Replicas}}"];
    wait_until("all tasks run", || {
        let text = swarm.docker.run(&words);
        let is_whole = |line: &str| {
            let counts = line.split(' ').next().and_then(|counts| counts.split_once('/'));
            counts.is_some_and(|(running, wanted)| running == wanted)
        };
        text.lines().all(is_whole).then_some(())
    })
    .await;
    let before = services(&swarm);
    assert!(before.len() >= 2 * stacks.len(), "{} services", before.len());

    let settings = Settings {
        docker_host: Some(swarm.engine.host()),
        adopt: "auto",
        more: Some(json!({ "engine": "swarm" })),
        ..Settings::default()
    };
    let site = Site::with("conformance", settings);
    let mut files = Vec::new();
    for (name, text) in &stacks {
        files.push((format!("sites/{name}/compose.yaml"), text.as_str()));
        files.extend(FILES.iter().map(|(file, text)| (format!("sites/{name}/{file}"), *text)));
    }
    let files: Vec<(&str, &str)> = files.iter().map(|(path, text)| (path.as_str(), *text)).collect();
    let commit = site.repository.commit(&files);
    let agent = site.agent().await;
    for (name, _) in &stacks {
        agent.until_named(name, "it is adopted", |app| is_settled(app, &commit)).await;
    }

    let after = services(&swarm);
    assert_eq!(before.keys().collect::<Vec<_>>(), after.keys().collect::<Vec<_>>());
    let mut differences = Vec::new();
    let (mut compared, mut kept) = (0, 0);
    for (name, stack) in &before {
        let ours = &after[name];
        let names: BTreeSet<&String> = stack.fields.keys().chain(ours.fields.keys()).collect();
        for field in names {
            compared += 1;
            let (theirs, ours) = (stack.fields.get(field), ours.fields.get(field));
            if theirs != ours {
                differences.push(format!("{name} {field}: docker stack {theirs:?}, agent {ours:?}"));
            }
        }
        if stack.tasks == ours.tasks {
            kept += stack.tasks.len();
        } else {
            differences.push(format!("{name}: its tasks were replaced"));
        }
    }
    assert!(differences.is_empty(), "{}", differences.join("\n"));
    println!(
        "{} stacks, {} services, {compared} fields equal, {kept} tasks kept",
        stacks.len(),
        before.len()
    );
}
