//! Kubernetes manifests run once by `podman kube play` and once by the agent: what their containers see is the same,
//! but for what the table in `manifests/README.md` names, each with its reason.
//!
//! A few manifests are part of every run where podman is there, all of them of `make differential-podman`.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write,
    fs,
    path::Path,
};

use serde_json::Value;
use tokio::time::{Duration, Instant, sleep};

use crate::harness::{
    Agent, Container, Docker, PATIENCE, Podman, Settings, Site, free_port, images, is_settled, skip,
};

/// Number of applications that run at the same time: each takes a network of the few that an engine has.
const AT_ONCE: usize = 9;
/// Manifests of the short run.
const SLICE: &[&str] = &["command-and-args", "config-map-files", "several", "variables-from"];

/// Errors of engines on a host that is a container itself and lacks rights.
const NOT_PERMITTED: &str = "operation not permitted";

/// An accepted difference and its reason: a row of the table in `manifests/README.md`. `*` stands for any text.
struct Difference {
    /// The manifest and the container, as `plain/main`.
    at: String,
    /// The compared key.
    key: String,
    ours: String,
    theirs: String,
    why: String,
}

fn differences(folder: &Path) -> Vec<Difference> {
    let page = fs::read_to_string(folder.join("README.md")).unwrap();
    let rows = page
        .lines()
        .filter_map(|it| it.strip_prefix('|')?.strip_suffix('|'))
        .filter(|it| !it.starts_with("--"));
    let mut all = Vec::new();
    for row in rows.skip(1) {
        let mut cells = row.split('|').map(|it| it.trim().trim_matches('`').to_owned());
        let [at, key, ours, theirs, why] = std::array::from_fn(|_| cells.next().expect("five cells"));
        assert!(!why.is_empty() && cells.next().is_none(), "{row}");
        all.push(Difference { at, key, ours, theirs, why });
    }
    all
}

#[tokio::test]
async fn chosen_pods_look_the_same_from_inside_as_in_podman() {
    beside(|name| SLICE.contains(&name)).await;
}

#[tokio::test]
#[ignore = "takes minutes: make differential-podman"]
async fn every_pod_looks_the_same_from_inside_as_in_podman() {
    let only = std::env::var("ONLY").unwrap_or_default();
    beside(|name| only.is_empty() || only.split(',').any(|it| it == name)).await;
}

/// The view from inside each container of a pod, by its name: keys and values.
type Seen = BTreeMap<String, BTreeMap<String, String>>;

/// One manifest, and what stands in it for what differs from run to run.
struct Manifest {
    name: String,
    app: String,
    text: String,
    ports: Vec<u16>,
}

impl Manifest {
    fn read(folder: &Path, name: &str, app: String) -> Self {
        let text = fs::read_to_string(folder.join(format!("{name}.yaml"))).unwrap();
        let ports = (0..).take_while(|it| text.contains(&format!("PORT{it}"))).map(|_| free_port()).collect();
        Self { name: name.to_owned(), app, text, ports }
    }

    /// For one of the two, whose folder of the host is `host`.
    fn filled_in(&self, host: &Path) -> String {
        let mut text = self.text.replace("HOST", &host.display().to_string());
        for (index, port) in self.ports.iter().enumerate() {
            text = text.replace(&format!("PORT{index}"), &port.to_string());
        }
        text
    }

    /// The reverse, in what was said.
    fn told(&self, said: &str, host: &Path) -> String {
        let mut said = said.replace(&host.display().to_string(), "HOST");
        for (index, port) in self.ports.iter().enumerate() {
            said = said.replace(&port.to_string(), &format!("PORT{index}"));
        }
        said
    }
}

async fn beside(is_wanted: impl Fn(&str) -> bool) {
    let home = tempfile::Builder::new().prefix("driftless-e2e-").tempdir().unwrap();
    let Some(podman) = Podman::start(home.path()).await else {
        return skip("podman", "podman is missing here: scripts/test-podman.sh");
    };
    podman.load(&Docker::default(), &images::look());
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/e2e/manifests");
    let mut names: Vec<String> = fs::read_dir(&folder)
        .unwrap()
        .filter_map(|it| it.unwrap().file_name().to_str()?.strip_suffix(".yaml").map(str::to_owned))
        .filter(|it| is_wanted(it))
        .collect();
    names.sort();
    assert!(!names.is_empty());
    let differences = differences(&folder);
    let (mut compared, mut used, mut said) = (0, BTreeSet::new(), String::new());
    for batch in names.chunks(AT_ONCE) {
        let mut site = Site::new("podman");
        let manifests: Vec<Manifest> = batch
            .iter()
            .enumerate()
            .map(|(index, name)| Manifest::read(&folder, name, site.also(&format!("pm{index}"))))
            .collect();
        let theirs: Vec<Seen> = by_podman(&podman, &manifests).await;
        let ours = by_the_agent(&site, &manifests).await;
        for (it, (theirs, ours)) in manifests.iter().zip(theirs.iter().zip(&ours)) {
            compared += compare(&it.name, theirs, ours, &differences, &mut used, &mut said);
        }
    }
    let is_whole = names.len() == fs::read_dir(&folder).unwrap().count() - 2;
    // An explanation that explains no difference is outdated, and fails.
    for (index, it) in differences.iter().enumerate() {
        let manifest = it.at.split('/').next().unwrap();
        let is_run = names.iter().any(|it| it == manifest) || manifest == "*" && is_whole;
        if is_run && !used.contains(&index) {
            writeln!(said, "nothing differs any more at {} in {:?}: {}", it.at, it.key, it.why).unwrap();
        }
    }
    println!("{} manifests: {compared} things compared, {} explained differences", names.len(), used.len());
    assert!(said.is_empty(), "{said}");
}

/// Runs all of them by podman, one at a time.
async fn by_podman(podman: &Podman, manifests: &[Manifest]) -> Vec<Seen> {
    let mut all = Vec::new();
    for it in manifests {
        let host = podman.directory().join("host");
        furnish(&host);
        let file = podman.directory().join("manifest.yaml");
        fs::write(&file, it.filled_in(&host)).unwrap();
        let file = file.display().to_string();
        let mut seen = Seen::new();
        match podman.attempt(&["kube", "play", &file]) {
            Err(error) => {
                seen.entry("pod".to_owned()).or_default().insert("played".to_owned(), it.told(&error, &host));
            }
            Ok(_) => {
                let found: Vec<Value> =
                    serde_json::from_str(&podman.run(&["ps", "-a", "--pod", "--format", "json"])).unwrap();
                for container in found {
                    let id = container["Id"].as_str().unwrap();
                    let name = container["Names"][0].as_str().unwrap();
                    if container["IsInfra"] == true {
                        let ports = podman.attempt(&["port", id]).unwrap_or_default();
                        let ask =
                            |url: &str| podman.beside(&["busybox", "wget", "-q", "-T", "2", "-O-", url]);
                        seen.insert("pod".to_owned(), published(it, &ports, ask));
                        continue;
                    }
                    let pod = format!("{}-", container["PodName"].as_str().unwrap());
                    let logs = logs(|| podman.attempt(&["logs", id])).await;
                    seen.insert(name.strip_prefix(&pod).unwrap().to_owned(), lines(&it.told(&logs, &host)));
                }
            }
        }
        all.push(seen);
        podman.clear();
    }
    all
}

/// Runs all of them by one agent.
async fn by_the_agent(site: &Site, manifests: &[Manifest]) -> Vec<Seen> {
    let host = site.directory().join("host");
    let hosts: Vec<_> = manifests.iter().map(|it| host.join(&it.name)).collect();
    let mut files = Vec::new();
    for (it, host) in manifests.iter().zip(&hosts) {
        furnish(host);
        files.push((format!("sites/{}/all.yaml", it.app), it.filled_in(host)));
    }
    let files: Vec<(&str, &str)> = files.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
    let commit = site.repository.commit(&files);
    let first = &manifests[0].app;
    let agent = Agent::start(&site.directory(), first, &site.server.url(), &Settings::default()).await;
    agent.sync().await;
    let began = Instant::now();
    let mut all = Vec::new();
    for (it, host) in manifests.iter().zip(&hosts) {
        let mut seen = Seen::new();
        loop {
            let now = agent.application_named(&it.app).await;
            if now.as_ref().is_some_and(|now| is_settled(now, &commit)) {
                break;
            }
            let message = now.as_ref().map(|it| it.status.message.as_str()).unwrap_or_default();
            if began.elapsed() > PATIENCE || message.contains(NOT_PERMITTED) {
                let status = now.map(|it| (it.status.message, it.status.findings));
                seen.entry("pod".to_owned()).or_default().insert("played".to_owned(), format!("{status:?}"));
                break;
            }
            sleep(Duration::from_millis(50)).await;
        }
        if seen.contains_key("pod") {
            // A container that does not run cannot be asked.
            all.push(seen);
            continue;
        }
        let containers = site.docker.containers(&it.app);
        let is_pod = containers.iter().any(|it| !part(it).is_empty());
        for container in containers {
            let part = part(&container);
            if part.is_empty() {
                let ports = site.docker.run(&["port", &container.id()]);
                seen.entry("pod".to_owned()).or_default().extend(published(it, &ports, asked));
                if is_pod {
                    continue;
                }
            }
            let logs = logs(|| site.docker.attempt(&["logs", &container.id()])).await;
            let name = if part.is_empty() { "main".to_owned() } else { part };
            seen.insert(name, lines(&it.told(&logs, host)));
        }
        all.push(seen);
    }
    all
}

/// The name of a container in a pod of several.
fn part(container: &Container) -> String {
    container.label(driftless_model::label::PART)
}

/// The entries of a folder of the host.
fn furnish(host: &Path) {
    let _ = fs::remove_dir_all(host);
    fs::create_dir_all(host.join("words")).unwrap();
    fs::write(host.join("words/word"), "a word\n").unwrap();
}

/// The published ports, and what answers there.
fn published(
    manifest: &Manifest,
    ports: &str,
    ask: impl Fn(&str) -> Result<String, String>,
) -> BTreeMap<String, String> {
    let ports = manifest.told(ports, Path::new("HOST"));
    let mut all: BTreeMap<String, String> = ports
        .lines()
        .filter(|it| !it.contains("[::]"))
        .map(|it| (format!("port {it}"), "published".to_owned()))
        .collect();
    if let [first, second, ..] = manifest.ports.as_slice() {
        for (name, port) in [("PORT0", first), ("PORT1", second)] {
            let answer = ask(&format!("http://127.0.0.1:{port}/")).unwrap_or_else(|error| error);
            all.insert(format!("answer of {name}"), answer);
        }
    }
    all
}

fn asked(url: &str) -> Result<String, String> {
    let words = ["wget", "-q", "-T", "2", "-O-", url];
    let output = std::process::Command::new("busybox").args(words).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
}

/// All that a container says, once it has said all.
async fn logs(read: impl Fn() -> Result<String, String>) -> String {
    let began = Instant::now();
    loop {
        let now = read().unwrap_or_default();
        if now.lines().any(|it| it.trim_end() == "end") || began.elapsed() > PATIENCE {
            return now;
        }
        sleep(Duration::from_millis(100)).await;
    }
}

fn lines(said: &str) -> BTreeMap<String, String> {
    let mut all = BTreeMap::new();
    for line in said.lines() {
        let (key, value) = line.split_once('\t').unwrap_or((line, ""));
        let value = value.trim_end_matches(['\r', '\n']).replace('\u{1}', "⏎");
        all.entry(key.trim_end().to_owned())
            .and_modify(|it: &mut String| {
                it.push_str(" and ");
                it.push_str(&value);
            })
            .or_insert(value);
    }
    all
}

/// Says what differs without a reason, and how much was compared.
fn compare(
    manifest: &str,
    theirs: &Seen,
    ours: &Seen,
    differences: &[Difference],
    used: &mut BTreeSet<usize>,
    said: &mut String,
) -> usize {
    let (none, nothing) = (Seen::new(), BTreeMap::new());
    let played = |it: &Seen| it.get("pod").and_then(|it| it.get("played")).cloned();
    if played(ours).is_some_and(|it| it.contains(NOT_PERMITTED)) {
        println!("{manifest} is not compared: this host cannot run it");
        return 0;
    }
    // If Podman runs nothing, that is the difference.
    let failed = played(theirs).filter(|_| played(ours).is_none());
    let failed = failed.map(|it| Seen::from([("pod".to_owned(), [("played".to_owned(), it)].into())]));
    let (theirs, ours) = failed.as_ref().map_or((theirs, ours), |it| (it, &none));
    let mut compared = 0;
    for container in theirs.keys().chain(ours.keys()).collect::<BTreeSet<_>>() {
        let at = format!("{manifest}/{container}");
        let theirs = theirs.get(container).unwrap_or(&nothing);
        let ours = ours.get(container).unwrap_or(&nothing);
        for key in theirs.keys().chain(ours.keys()).collect::<BTreeSet<_>>() {
            compared += 1;
            let text = |it: Option<&String>| it.map_or("nothing", |it| it.trim()).to_owned();
            let (theirs, ours) = (text(theirs.get(key)), text(ours.get(key)));
            if theirs == ours {
                continue;
            }
            let why = differences.iter().position(|difference| {
                is_like(&difference.at, &at)
                    && is_like(&difference.key, key)
                    && is_like(&difference.ours, &ours)
                    && is_like(&difference.theirs, &theirs)
            });
            match why {
                Some(index) => {
                    used.insert(index);
                }
                None => writeln!(said, "{at}: {key} is {theirs:?} with podman, {ours:?} with us").unwrap(),
            }
        }
    }
    compared
}

/// Whether a text is like a pattern, in which a `*` stands for any text.
fn is_like(pattern: &str, text: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == text,
        Some((start, rest)) => text.strip_prefix(start).is_some_and(|text| {
            (0..=text.len()).filter(|it| text.is_char_boundary(*it)).any(|it| is_like(rest, &text[it..]))
        }),
    }
}
