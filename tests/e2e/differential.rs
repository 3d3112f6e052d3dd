//! Compose projects started once by the real Docker Compose and once by the agent: what the engine then has is the
//! same in every field, once what must differ is taken away (each with its reason below). The agent takes over what Docker
//! Compose has started without a single call that writes, and nothing that changes nothing costs one.
//!
//! A dozen projects are part of every run, all of them of `make differential`. What Docker Compose has no word for, or
//! does by files of its own folder, is started by the agent alone and has to be as calm.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use serde_json::Value;
use tokio::time::{Duration, Instant, sleep};

use crate::{
    adoption::reordered,
    harness::{Agent, Compose, Counting, Docker, Leftovers, PATIENCE, Settings, Site, images, is_settled},
};

/// Number of projects that run at the same time: each takes a network of the few that an engine has.
const AT_ONCE: usize = 6;
/// Projects of the short run: one of each kind.
const SLICE: &[&str] = &[
    "binds",
    "build",
    "capabilities",
    "depends",
    "environment",
    "limits",
    "files-in-place",
    "hooks",
    "networks",
    "network-ipam",
    "ports",
    "replicas",
    "secrets",
    "sysctls",
    "tmpfs",
    "volumes-long",
];

#[tokio::test]
async fn projects_of_each_kind_equal_those_of_compose() {
    differential(|name| SLICE.contains(&name)).await;
}

#[tokio::test]
#[ignore = "takes minutes: make differential"]
async fn every_project_equals_that_of_compose() {
    let only = std::env::var("ONLY").unwrap_or_default();
    differential(|name| only.is_empty() || only.split(',').any(|it| it == name)).await;
}

/// A file of that name, or a folder with its Compose file and all else that this needs.
struct Project {
    name: String,
    /// Application and Compose project.
    app: String,
    /// By their paths in the application's folder.
    files: BTreeMap<String, String>,
    /// Why it is not held against Docker Compose, as its first line says.
    ours_alone: Option<String>,
}

impl Project {
    fn read(path: &Path, name: &str, app: String) -> Self {
        let mut files = BTreeMap::new();
        if path.is_dir() {
            collect(path, path, &mut files);
        } else {
            files.insert("compose.yaml".to_owned(), fs::read_to_string(path).unwrap());
        }
        for text in files.values_mut() {
            *text = text.replace("e2e-diff", &app);
        }
        let first = files["compose.yaml"].lines().next().unwrap_or_default();
        let ours_alone = first.strip_prefix("# Ours alone: ").map(str::to_owned);
        Self { name: name.to_owned(), app, files, ours_alone }
    }
}

fn collect(root: &Path, folder: &Path, files: &mut BTreeMap<String, String>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            collect(root, &path, files);
        } else {
            let name = path.strip_prefix(root).unwrap().to_str().unwrap().to_owned();
            files.insert(name, fs::read_to_string(&path).unwrap());
        }
    }
}

async fn differential(is_wanted: impl Fn(&str) -> bool) {
    let compose = Compose::v2();
    images::placeholder();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/e2e/projects");
    let all: BTreeMap<String, PathBuf> = fs::read_dir(&folder)
        .unwrap()
        .map(|it| it.unwrap().path())
        .filter(|it| it.is_dir() || it.extension().is_some_and(|it| it == "yaml"))
        .map(|it| (it.file_stem().unwrap().to_str().unwrap().to_owned(), it))
        .filter(|(name, _)| is_wanted(name))
        .collect();
    let names: Vec<String> = all.keys().cloned().collect();
    assert!(!names.is_empty());
    let (mut compared, mut alone) = (0, 0);
    let mut said = Vec::new();
    for batch in names.chunks(AT_ONCE) {
        let mut site = Site::new("differential");
        let projects: Vec<Project> = batch
            .iter()
            .enumerate()
            .map(|(index, name)| Project::read(&all[name], name, site.also(&format!("df{index}"))))
            .collect();
        let of_batch = one_batch(&site, &compose, projects, &mut compared, &mut alone).await;
        println!(
            "{}: {}",
            batch.join(", "),
            if of_batch.is_empty() { "the same".to_owned() } else { of_batch.join("\n") }
        );
        said.extend(of_batch);
    }
    println!("{} projects: {compared} compared, {alone} by the agent alone", names.len());
    assert!(said.is_empty(), "{}", said.join("\n"));
}

async fn one_batch(
    site: &Site,
    compose: &Compose,
    projects: Vec<Project>,
    compared: &mut usize,
    alone: &mut usize,
) -> Vec<String> {
    let mut said = Vec::new();
    let docker = &site.docker;
    let _leftovers: Vec<Leftovers> =
        projects.iter().map(|it| Leftovers { docker: docker.clone(), project: it.app.clone() }).collect();
    let mut by_compose = BTreeMap::new();
    let (ours, mut theirs): (Vec<Project>, Vec<Project>) =
        projects.into_iter().partition(|it| it.ours_alone.is_some());
    theirs.retain(|project| {
        let folder = site.directory().join(&project.app);
        for (path, text) in &project.files {
            let path = folder.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let started = compose.attempt(&folder, &project.app, &["up", "-d", "--quiet-pull"]);
        match &started {
            // A host that is a container itself may not do everything.
            Err(error) if error.contains("operation not permitted") => {
                println!("{} is not compared: this host cannot run it", project.name);
            }
            Err(error) => said.push(format!("{}: Compose fails: {error}", project.name)),
            Ok(_) => {}
        }
        by_compose.insert(project.app.clone(), snapshot(docker, &project.app));
        started.is_ok()
    });
    (*compared, *alone) = (*compared + theirs.len(), *alone + ours.len());
    let proxy = Counting::start(&site.directory());
    // Polls come of themselves while it is watched.
    let settings =
        Settings { docker_host: Some(proxy.host()), adopt: "auto", poll: "1s", ..Settings::default() };

    // Containers that Compose started are taken over unchanged.
    if !theirs.is_empty() {
        let commit = commit(site, &theirs, str::to_owned);
        let before: BTreeSet<String> = theirs.iter().flat_map(|it| ids(docker, &it.app)).collect();
        let mut agent = Agent::start(&site.directory(), &theirs[0].app, &site.server.url(), &settings).await;
        said.extend(settled(&agent, &theirs, &commit).await);
        let after: BTreeSet<String> = theirs.iter().flat_map(|it| ids(docker, &it.app)).collect();
        if before != after || !proxy.writes().is_empty() {
            said.push(format!("taking over cost {:#?}", proxy.writes()));
            said.extend(
                agent
                    .log()
                    .lines()
                    .filter(|it| it.contains("adopted from") || it.contains("step done"))
                    .map(str::to_owned),
            );
        }
        said.extend(calm(site, &mut agent, &theirs, &proxy, "an adopted").await);
        agent.kill9();
    }

    // The same from nothing, by the agent.
    for it in &theirs {
        compose.run(&site.directory().join(&it.app), &it.app, &["down", "-t", "0", "--volumes"]);
    }
    let again = site.directory().join("again");
    fs::create_dir_all(&again).unwrap();
    let projects: Vec<Project> = theirs.into_iter().chain(ours).collect();
    let commit = commit(site, &projects, |it| format!("{it}\n"));
    let mut agent = Agent::start(&again, &projects[0].app, &site.server.url(), &settings).await;
    said.extend(settled(&agent, &projects, &commit).await);
    for it in &projects {
        let ours = snapshot(docker, &it.app);
        if let Some(theirs) = by_compose.get(&it.app) {
            said.extend(compare(theirs, &ours).into_iter().map(|line| format!("{}: {line}", it.name)));
        } else if ours.is_empty() {
            said.push(format!("{}: nothing was made", it.name));
        }
    }
    said.extend(calm(site, &mut agent, &projects, &proxy, "an own").await);
    said
}

/// Commits all projects, their Compose files changed by `change`.
fn commit(site: &Site, projects: &[Project], change: impl Fn(&str) -> String) -> String {
    let mut files = Vec::new();
    for it in projects {
        for (path, text) in &it.files {
            let text = if path == "compose.yaml" { change(text) } else { text.clone() };
            files.push((format!("sites/{}/{path}", it.app), text));
        }
    }
    let files: Vec<(&str, &str)> = files.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
    site.repository.commit(&files)
}

/// Waits until all projects are at a commit, and says which are not.
async fn settled(agent: &Agent, projects: &[Project], commit: &str) -> Vec<String> {
    agent.sync().await;
    let began = Instant::now();
    let mut said = Vec::new();
    for it in projects {
        loop {
            let now = agent.application_named(&it.app).await;
            if now.as_ref().is_some_and(|now| is_settled(now, commit)) {
                break;
            }
            if began.elapsed() > PATIENCE {
                let status =
                    now.map(|it| (it.status.sync, it.status.health, it.status.message, it.status.findings));
                said.push(format!("{} is not settled: {status:?}", it.name));
                break;
            }
            sleep(Duration::from_millis(50)).await;
        }
    }
    said
}

/// Without a change there is no call that writes: a further sync, a commit elsewhere, a restart of the agent, the
/// same files in another order, polls.
async fn calm(
    site: &Site,
    agent: &mut Agent,
    projects: &[Project],
    proxy: &Counting,
    whose: &str,
) -> Vec<String> {
    let before = proxy.writes().len();
    let mut said = Vec::new();
    said.extend(settled(agent, projects, &site.repository.head()).await);
    let unrelated = site.repository.commit(&[("README.md", whose)]);
    said.extend(settled(agent, projects, &unrelated).await);
    agent.restart().await;
    said.extend(settled(agent, projects, &unrelated).await);
    let turned = commit(site, projects, reordered);
    said.extend(settled(agent, projects, &turned).await);
    // A poll that has begun is over when the next one begins.
    site.server.take_requests();
    let mut polls = 0;
    let began = Instant::now();
    while polls < 2 {
        polls += site.server.take_requests().iter().filter(|it| it.starts_with("GET ")).count();
        assert!(began.elapsed() < PATIENCE, "no poll comes");
        sleep(Duration::from_millis(50)).await;
    }
    let writes = proxy.writes();
    let new = writes.get(before..).unwrap_or_default();
    if !new.is_empty() {
        said.push(format!("{whose} project was written to although nothing changed: {new:#?}"));
        said.extend(agent.log().lines().filter(|it| it.contains("done")).map(str::to_owned));
    }
    said
}

fn ids(docker: &Docker, app: &str) -> Vec<String> {
    let filter = format!("label=com.docker.compose.project={app}");
    docker.run(&["ps", "-aq", "--no-trunc", "--filter", &filter]).lines().map(str::to_owned).collect()
}

/// Everything that the engine has of a project: by kind and name, each as paths and values.
fn snapshot(docker: &Docker, app: &str) -> BTreeMap<String, BTreeMap<String, String>> {
    let filter = format!("label=com.docker.compose.project={app}");
    let mut all = BTreeMap::new();
    for (kind, list) in [
        ("container", ["ps", "-aq"].as_slice()),
        ("network", &["network", "ls", "-q"]),
        ("volume", &["volume", "ls", "-q"]),
    ] {
        for id in docker.run(&[list, &["--filter", &filter]].concat()).lines() {
            let text = docker.run(&[kind, "inspect", id]);
            let found: Vec<Value> = serde_json::from_str(&text).unwrap();
            for it in found {
                let name = it["Name"].as_str().unwrap().trim_start_matches('/').to_owned();
                let mut fields = BTreeMap::new();
                flatten(&without_the_accidental(kind, it), "", &mut fields);
                all.insert(format!("{kind} {name}"), fields);
            }
        }
    }
    all
}

/// Takes away what is of the moment, of the starter, or of the way in which something was asked for.
fn without_the_accidental(kind: &str, mut it: Value) -> Value {
    let labels = if kind == "container" { &mut it["Config"]["Labels"] } else { &mut it["Labels"] };
    if let Some(labels) = labels.as_object_mut() {
        let of_the_starter = ["config-hash", "version", "project.config_files", "project.working_dir"];
        labels.retain(|name, _| {
            let compose = name.strip_prefix("com.docker.compose.");
            !name.starts_with("driftless.") && compose.is_none_or(|it| !of_the_starter.contains(&it))
        });
    }
    match kind {
        "container" => container(&it),
        "network" => {
            for gone in ["Id", "Created", "Containers"] {
                it.as_object_mut().unwrap().remove(gone);
            }
            // The engine chooses the addresses of a network that asks for none.
            if it["IPAM"]["Config"][0]["Subnet"].as_str().is_some_and(|it| !it.starts_with("10.147.")) {
                it["IPAM"]["Config"] = Value::Null;
            }
            it
        }
        _ => {
            it.as_object_mut().unwrap().remove("CreatedAt");
            it
        }
    }
}

fn container(it: &Value) -> Value {
    let id = it["Id"].as_str().unwrap();
    let name = it["Name"].as_str().unwrap().trim_start_matches('/');
    let mut config = it["Config"].clone();
    // Compose writes them down in any order.
    let dependencies = &mut config["Labels"]["com.docker.compose.depends_on"];
    if let Some(list) = dependencies.as_str() {
        let mut all: Vec<&str> = list.split(',').collect();
        all.sort_unstable();
        *dependencies = all.join(",").into();
    }
    if config["Hostname"].as_str().is_some_and(|it| id.starts_with(it)) {
        config["Hostname"] = Value::Null;
    }
    // Compose says that it listens to the output, which only concerns the client that starts a container.
    for stream in ["AttachStdout", "AttachStderr"] {
        config[stream] = Value::Null;
    }
    // The mounts show the result of the image's volumes and the service's.
    config["Volumes"] = Value::Null;
    sort(&mut config["Env"]);
    let mut host = it["HostConfig"].clone();
    // Two words for the same policy.
    if host["RestartPolicy"]["Name"] == "no" {
        host["RestartPolicy"]["Name"] = Value::Null;
    }
    let memory = tmpfs(&host);
    host["Tmpfs"] = Value::Null;
    for way in ["Binds", "Mounts", "ContainerIDFile"] {
        host[way] = Value::Null;
    }
    for list in ["CapAdd", "CapDrop", "ExtraHosts", "GroupAdd", "SecurityOpt", "Ulimits", "Devices"] {
        sort(&mut host[list]);
    }
    let mut mounts = serde_json::Map::new();
    for mount in it["Mounts"].as_array().into_iter().flatten() {
        let mut mount = mount.clone();
        let is_anonymous = mount["Name"].as_str().is_some_and(|it| it.len() == 64);
        if is_anonymous {
            mount["Name"] = "anonymous".into();
            mount["Source"] = Value::Null;
        }
        // `rw`, `z` and nothing are written down for the same mount.
        mount["Mode"] = Value::Null;
        mounts.insert(mount["Destination"].as_str().unwrap().to_owned(), mount);
    }
    // Compose sends the short form, the agent the long one.
    mounts.retain(|_, it| it["Type"] != "tmpfs");
    let mut networks = serde_json::Map::new();
    for (network, end) in it["NetworkSettings"]["Networks"].as_object().into_iter().flatten() {
        let mut aliases = end["Aliases"].clone();
        if let Some(aliases) = aliases.as_array_mut() {
            aliases.retain(|alias| {
                alias.as_str().is_some_and(|it| it != name && (it.len() < 12 || !id.starts_with(it)))
            });
        }
        sort(&mut aliases);
        let address = &end["IPAMConfig"];
        networks.insert(network.clone(), serde_json::json!({ "Aliases": aliases, "IPAMConfig": address }));
    }
    serde_json::json!({
        "Config": config, "HostConfig": host, "Mounts": mounts, "Memory": memory, "Networks": networks,
        "Path": it["Path"], "Args": it["Args"], "Image": it["Image"], "State": it["State"]["Status"],
    })
}

/// Memory file systems in either form: target, and size and mode where they are given.
fn tmpfs(host: &Value) -> Value {
    let mut all = serde_json::Map::new();
    for (target, options) in host["Tmpfs"].as_object().into_iter().flatten() {
        let option = |name: &str| {
            let of = |it: &&str| it.strip_prefix(name).is_some_and(|it| it.starts_with('='));
            let found = options.as_str().unwrap_or_default().split(',').find(of)?;
            Some(found.split_once('=')?.1.to_owned())
        };
        let size = option("size").map(|it| match it.strip_suffix('m') {
            Some(mebibytes) => mebibytes.parse::<u64>().unwrap() << 20,
            None => it.parse().unwrap(),
        });
        let mode = option("mode").map(|it| u32::from_str_radix(&it, 8).unwrap());
        all.insert(target.clone(), serde_json::json!({ "at": true, "size": size, "mode": mode }));
    }
    for mount in host["Mounts"].as_array().into_iter().flatten().filter(|it| it["Type"] == "tmpfs") {
        let options = &mount["TmpfsOptions"];
        let (size, mode) = (&options["SizeBytes"], &options["Mode"]);
        let target = mount["Target"].as_str().unwrap().to_owned();
        all.insert(target, serde_json::json!({ "at": true, "size": size, "mode": mode }));
    }
    all.into()
}

fn sort(list: &mut Value) {
    if let Some(list) = list.as_array_mut() {
        list.sort_by_key(ToString::to_string);
        list.dedup();
    }
}

/// As paths and values; what is empty, false or nought is as if it were not there.
fn flatten(value: &Value, path: &str, out: &mut BTreeMap<String, String>) {
    match value {
        Value::Object(map) => {
            for (key, value) in map {
                let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
                flatten(value, &path, out);
            }
        }
        Value::Array(list) => {
            for (index, value) in list.iter().enumerate() {
                flatten(value, &format!("{path}.{index}"), out);
            }
        }
        Value::Null => {}
        other => {
            let text = other.to_string();
            if !matches!(text.as_str(), "\"\"" | "false" | "0") {
                out.insert(path.to_owned(), text);
            }
        }
    }
}

fn compare(
    compose: &BTreeMap<String, BTreeMap<String, String>>,
    ours: &BTreeMap<String, BTreeMap<String, String>>,
) -> Vec<String> {
    let mut said = Vec::new();
    for object in compose.keys().chain(ours.keys()).collect::<BTreeSet<_>>() {
        let (Some(theirs), Some(ours)) = (compose.get(object), ours.get(object)) else {
            let who = if compose.contains_key(object) { "Compose" } else { "the agent" };
            said.push(format!("{object} is made by {who} alone"));
            continue;
        };
        for path in theirs.keys().chain(ours.keys()).collect::<BTreeSet<_>>() {
            let (theirs, ours) = (theirs.get(path), ours.get(path));
            if theirs != ours {
                let text = |it: Option<&String>| it.cloned().unwrap_or_else(|| "nothing".to_owned());
                said.push(format!(
                    "{object}: {path} is {} with Compose, {} with us",
                    text(theirs),
                    text(ours)
                ));
            }
        }
    }
    said
}
