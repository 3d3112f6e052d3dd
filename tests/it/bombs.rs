//! Small repositories that describe something very large: each ends in a finding, in bounded time and memory.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use driftless_files::{AppSpec, Entry, Files, MemoryFiles, ReadError};
use driftless_manifest::{Configured, discover, render};
use driftless_model::{Finding, Format};

use tokio::{
    sync::oneshot,
    time::{sleep, timeout},
};

use crate::{sample::manifests, simulation::Simulation};

/// Files, and folders that hold the same ten folders at every depth, with a file in the deepest ones: 26 Git trees.
#[derive(Debug)]
struct Bomb {
    files: MemoryFiles,
    depth: usize,
    listed: AtomicUsize,
}

impl Bomb {
    fn new(files: &[(&str, &str)], depth: usize) -> Self {
        Self { files: MemoryFiles::new(files.iter().copied()), depth, listed: AtomicUsize::new(0) }
    }

    /// The depth of a path inside the bomb: `d`, `d/3`, `d/3/7`.
    fn level(path: &str) -> Option<usize> {
        path.strip_prefix('d').filter(|rest| rest.is_empty() || rest.starts_with('/'))?;
        Some(path.matches('/').count())
    }

    fn below(&self, level: usize) -> Entry {
        if level < self.depth { Entry::Folder } else { Entry::File { size: 1, executable: false } }
    }
}

impl Files for Bomb {
    fn entry(&self, path: &str) -> Result<Option<Entry>, ReadError> {
        match Self::level(path) {
            Some(level) if level <= self.depth => Ok(Some(self.below(level))),
            Some(_) => Ok(None),
            None => self.files.entry(path),
        }
    }

    fn list(&self, folder: &str) -> Result<Vec<(String, Entry)>, ReadError> {
        let count = self.listed.fetch_add(10, Ordering::Relaxed);
        assert!(count < 1_000_000, "the walk does not end");
        match Self::level(folder) {
            Some(level) => Ok((0..10).map(|name| (name.to_string(), self.below(level + 1))).collect()),
            None => {
                let mut all = self.files.list(folder)?;
                all.push(("d".to_owned(), Entry::Folder));
                all.sort_by(|one, other| one.0.cmp(&other.0));
                Ok(all)
            }
        }
    }

    fn links(&self, _: &str) -> Result<BTreeMap<String, String>, ReadError> {
        Ok(BTreeMap::new())
    }

    fn read(&self, path: &str, limit: u64) -> Result<Arc<[u8]>, ReadError> {
        if Self::level(path).is_some() { Ok(Arc::from(&b"a"[..])) } else { self.files.read(path, limit) }
    }

    fn id(&self, path: &str) -> Result<Option<String>, ReadError> {
        if Self::level(path).is_some() { Ok(Some("a".to_owned())) } else { self.files.id(path) }
    }

    fn ignored(&self, folder: &str) -> Result<Vec<String>, ReadError> {
        self.files.ignored(folder)
    }

    fn is_encrypted(&self, _: &str) -> bool {
        false
    }
}

fn compose() -> AppSpec {
    AppSpec { format: Format::Compose, ..manifests("", &["compose.yaml"]) }
}

fn errors(files: &dyn Files, spec: &AppSpec) -> Vec<String> {
    let rendered = render(files, spec);
    assert_eq!(rendered.stack.is_none(), rendered.findings.iter().any(Finding::is_error));
    rendered.findings.iter().filter(|it| it.is_error()).map(ToString::to_string).collect()
}

#[test]
fn git_tree_bomb_is_refused_wherever_it_is_read() {
    for text in [
        "services: {a: {image: a, volumes: ['./d:/d']}}",
        "services: {a: {image: a, volumes: ['./d:/d:ro', './d/1:/e:ro']}}",
        "services: {a: {image: a, configs: [c]}}\nconfigs: {c: {file: ./d}}",
        "services: {a: {build: ./d}}",
        "services: {a: {build: {context: ./d, dockerfile_inline: 'FROM a'}}}",
    ] {
        for depth in [6, 25] {
            let told = errors(&Bomb::new(&[("compose.yaml", text)], depth), &compose());
            assert!(told.iter().any(|it| it.contains("more than 100000")), "{text}: {told:#?}");
        }
    }
    let small = Bomb::new(&[("compose.yaml", "services: {a: {image: a, volumes: ['./d:/d:ro']}}")], 3);
    assert_eq!(errors(&small, &compose()), [""; 0]);
}

/// Folders without end at the depth that is searched.
#[derive(Debug)]
struct Wide(AtomicUsize);

impl Files for Wide {
    fn entry(&self, _: &str) -> Result<Option<Entry>, ReadError> {
        Ok(Some(Entry::Folder))
    }

    fn list(&self, _: &str) -> Result<Vec<(String, Entry)>, ReadError> {
        assert!(self.0.fetch_add(1, Ordering::Relaxed) < 10_000, "the search does not end");
        Ok((0..1000).map(|name| (format!("{name:04}"), Entry::Folder)).collect())
    }

    fn links(&self, _: &str) -> Result<BTreeMap<String, String>, ReadError> {
        Ok(BTreeMap::new())
    }

    fn read(&self, path: &str, _: u64) -> Result<Arc<[u8]>, ReadError> {
        Err(ReadError::Missing(path.to_owned()))
    }

    fn id(&self, _: &str) -> Result<Option<String>, ReadError> {
        Ok(None)
    }

    fn ignored(&self, _: &str) -> Result<Vec<String>, ReadError> {
        Ok(Vec::new())
    }

    fn is_encrypted(&self, _: &str) -> bool {
        false
    }
}

#[test]
fn search_for_applications_is_bounded() {
    let found = discover(&Wide(AtomicUsize::new(0)), "", "repository", &[] as &[Configured]);
    assert!(found.findings.iter().any(|it| it.is_error() && it.to_string().contains("more than 200000")));
}

#[test]
fn routes_of_services_are_bounded_together() {
    let told = |count: usize| {
        let one = |number: usize| {
            format!(
                "apiVersion: apps/v1\nkind: Deployment\nmetadata: {{name: w{number}}}\nspec:\n  selector: {{matchLabels: {{w: w{number}}}}}\n  \
                 template:\n    metadata: {{labels: {{w: w{number}, all: together}}}}\n    spec: {{containers: [{{name: c, image: 'a:1'}}]}}\n\
                 ---\napiVersion: v1\nkind: Service\nmetadata: {{name: s{number}}}\nspec: {{selector: {{all: together}}, ports: [{{port: 80}}]}}\n---\n"
            )
        };
        let text: String = (0..count).map(one).collect();
        errors(&MemoryFiles::new([("all.yaml", text.as_str())]), &manifests("", &["all.yaml"]))
    };
    assert_eq!(told(40), [""; 0]);
    let many = told(101);
    assert!(many[0].contains("the Services select more than 10000 workloads together"), "{}", many[0]);
    assert!(many[0].starts_with("all.yaml:"), "it has a place: {}", many[0]);
}

#[test]
fn exposed_ports_are_bounded_together() {
    let all = |count: usize| {
        let one = |number: usize| format!("  s{number}: {{image: a, expose: [1-65535]}}\n");
        format!("services:\n{}", (0..count).map(one).collect::<String>())
    };
    let told = |text: &str| errors(&MemoryFiles::new([("compose.yaml", text)]), &compose());
    assert_eq!(told(&all(1)), [""; 0]);
    let many = told(&all(1000));
    assert!(
        many[0].contains("services.s1.expose[0]: the services expose more than 65536 ports"),
        "{}",
        many[0]
    );
    let ranges: Vec<String> = (1..=1000).map(|first| format!("{first}-65535")).collect();
    let repeated = told(&format!("services: {{a: {{image: a, expose: [{}]}}}}", ranges.join(", ")));
    assert!(repeated[0].contains("expose more than 65536"), "{}", repeated[0]);
}

/// `count` Kubernetes objects after a ConfigMap `c` with one large value.
fn of_config_map(kilobytes: usize, count: usize, object: impl Fn(usize) -> String) -> String {
    let value = "x".repeat(kilobytes * 1000);
    let all: String = (0..count).map(|number| format!("---\n{}\n", object(number))).collect();
    format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: c}}\ndata: {{a: {value}}}\n{all}")
}

fn errors_of_objects(text: &str) -> Vec<String> {
    errors(&MemoryFiles::new([("all.yaml", text)]), &manifests("", &["all.yaml"]))
}

fn pod(number: usize, container: &str, more: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: p{number}}}\nspec:\n  {more}\n  containers: [{{name: a, image: 'a:1', {container}}}]"
    )
}

#[test]
fn texts_of_pods_are_bounded_together() {
    let of_map = "{configMapRef: {name: c}}";
    let of_key = "env: [{name: A, valueFrom: {configMapKeyRef: {name: c, key: a}}}]";
    let one = |container: String| move |number: usize| pod(number, &container, "");
    let prefixes: Vec<String> =
        (0..60).map(|number| format!("{{prefix: P{number}_, configMapRef: {{name: c}}}}")).collect();
    let long = "y".repeat(70_000);
    let set = |spec: &str, annotation: &str| {
        format!(
            "apiVersion: apps/v1\nkind: StatefulSet\nmetadata: {{name: s}}\nspec: {{replicas: 500, selector: {{matchLabels: {{a: a}}}}, \
             template: {{metadata: {{labels: {{a: a}}, annotations: {{n: {annotation}}}}}, spec: {{containers: [{{name: a, image: 'a:1', {spec}}}]}}}}}}"
        )
    };
    let all = [
        of_config_map(900, 40, one(format!("envFrom: [{of_map}]"))),
        of_config_map(900, 40, one(of_key.to_owned())),
        of_config_map(900, 1, one(format!("envFrom: [{}]", prefixes.join(", ")))),
        set(&format!("args: [{long}]"), "b"),
        set("tty: true", &long),
    ];
    for text in all {
        let told = errors_of_objects(&text);
        assert_eq!(told.len(), 1, "{told:#?}");
        assert!(told[0].contains("the texts of the pods of this application exceed 32 MiB"), "{}", told[0]);
        assert!(told[0].starts_with("all.yaml:") && told[0].contains("KiB"), "{}", told[0]);
    }
    let usual = of_config_map(20, 400, one(format!("envFrom: [{of_map}]")));
    assert_eq!(errors_of_objects(&usual), [""; 0]);
}

#[test]
fn mounted_files_are_bounded_together() {
    let mounts = "volumeMounts: [{name: v, mountPath: /v}]";
    for source in ["configMap: {name: c}", "projected: {sources: [{configMap: {name: c}}]}"] {
        let one = |number: usize| pod(number, mounts, &format!("volumes: [{{name: v, {source}}}]"));
        let told = errors_of_objects(&of_config_map(900, 100, one));
        assert_eq!(told.len(), 1, "{told:#?}");
        assert!(
            told[0].contains("with these 879 KiB, the application mounts more than 64 MiB"),
            "{}",
            told[0]
        );
        assert!(told[0].starts_with("all.yaml:"), "{}", told[0]);
        assert_eq!(errors_of_objects(&of_config_map(900, 60, one)), [""; 0]);
    }
    let services: String =
        (0..100).map(|number| format!("  s{number}: {{image: a, configs: [c]}}\n")).collect();
    let text = format!("services:\n{services}configs: {{c: {{content: {}}}}}", "x".repeat(900_000));
    let told = errors(&MemoryFiles::new([("compose.yaml", text.as_str())]), &compose());
    assert!(told[0].contains("with `c` the application mounts more than 64 MiB"), "{}", told[0]);
}

#[test]
fn variables_of_services_are_bounded_together() {
    let services = |count: usize, keys: &str| {
        let all: String = (0..count).map(|number| format!("  s{number}: {{image: a, {keys}}}\n")).collect();
        format!("services:\n{all}")
    };
    let told = |compose_file: &str, variables: &str| {
        let files = [("compose.yaml", compose_file), ("e.env", variables), (".env", variables)];
        errors(&MemoryFiles::new(files), &compose())
    };
    let long = format!("A={}\n", "x".repeat(900_000));
    let repeated = format!("{long}{}", "B=$A\n".repeat(100));
    let hook = "post_start: [{command: [a], environment: [A]}]";
    for (keys, count, variables) in [
        ("env_file: e.env", 60, &long),
        ("label_file: e.env", 60, &long),
        ("environment: [A]", 60, &long),
        ("environment: {A: }", 60, &long),
        (hook, 60, &long),
        ("command: $A", 60, &long),
        ("env_file: e.env", 1, &repeated),
    ] {
        let told = told(&services(count, keys), variables);
        assert_eq!(told.len(), 1, "{keys}: {told:#?}");
        let message = "the variables and interpolated values of this application exceed 32 MiB";
        assert!(told[0].contains(message) && told[0].contains("KiB"), "{keys}: {}", told[0]);
    }
    let usual = format!("A={}\n", "x".repeat(5000)).repeat(4);
    assert_eq!(told(&services(400, "env_file: e.env, environment: [A]"), &usual), [""; 0]);
    let base = format!("services:\n  base: {{image: a, environment: {{A: {}}}}}\n", "x".repeat(900_000));
    let extending: String = (0..2000).map(|number| format!("  s{number}: {{extends: base}}\n")).collect();
    let told = told(&format!("{base}{extending}"), "");
    assert!(told[0].contains("too many keys and values together"), "{}", told[0]);
}

/// A folder of a thousand folders. The first reader of one of them waits until it may go on.
#[derive(Debug)]
struct Slow {
    files: MemoryFiles,
    listed: Arc<AtomicUsize>,
    /// Sent to when the first reader is there; it goes on when the other end answers or is dropped.
    gate: Mutex<Option<(oneshot::Sender<()>, oneshot::Receiver<()>)>>,
}

impl Slow {
    const FOLDERS: usize = 1000;

    fn is_inside(path: &str) -> bool {
        path.strip_prefix("shop/d").is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    }
}

impl Files for Slow {
    fn entry(&self, path: &str) -> Result<Option<Entry>, ReadError> {
        if Self::is_inside(path) { Ok(Some(Entry::Folder)) } else { self.files.entry(path) }
    }

    fn list(&self, folder: &str) -> Result<Vec<(String, Entry)>, ReadError> {
        match (Self::is_inside(folder), folder) {
            (true, "shop/d") => {
                Ok((0..Self::FOLDERS).map(|it| (format!("{it:03}"), Entry::Folder)).collect())
            }
            (true, _) => {
                self.listed.fetch_add(1, Ordering::Relaxed);
                let first = self.gate.lock().unwrap().take();
                if let Some((reached, go_on)) = first {
                    reached.send(()).unwrap();
                    let _ = go_on.blocking_recv();
                }
                Ok(Vec::new())
            }
            (false, _) => self.files.list(folder),
        }
    }

    fn links(&self, _: &str) -> Result<BTreeMap<String, String>, ReadError> {
        Ok(BTreeMap::new())
    }

    fn read(&self, path: &str, limit: u64) -> Result<Arc<[u8]>, ReadError> {
        self.files.read(path, limit)
    }

    fn id(&self, path: &str) -> Result<Option<String>, ReadError> {
        self.files.id(path)
    }

    fn ignored(&self, folder: &str) -> Result<Vec<String>, ReadError> {
        self.files.ignored(folder)
    }

    fn is_encrypted(&self, _: &str) -> bool {
        false
    }
}

#[tokio::test]
async fn rendering_is_interrupted_when_the_agent_ends() {
    let compose = "services: {a: {image: a, volumes: ['./d:/d:ro']}}";
    let (reached, is_reached) = oneshot::channel();
    let (go_on, may_go_on) = oneshot::channel();
    let listed = Arc::new(AtomicUsize::new(0));
    let files = Arc::new(Slow {
        files: MemoryFiles::new([("shop/compose.yaml", compose)]),
        listed: Arc::clone(&listed),
        gate: Mutex::new(Some((reached, may_go_on))),
    });
    let reader = Arc::downgrade(&files);
    let mut it = Simulation::idle();
    it.git.push_tree("Ada <a@b.c>", compose, files);
    it.begin();
    is_reached.await.unwrap();
    // The agent does not wait for the thread that reads,
    timeout(Duration::from_secs(10), it.end()).await.unwrap();
    // which ends at its next call.
    go_on.send(()).unwrap();
    drop(it);
    let ended = async {
        while reader.strong_count() > 0 {
            sleep(Duration::from_millis(1)).await;
        }
    };
    timeout(Duration::from_secs(10), ended).await.unwrap();
    assert_eq!(listed.load(Ordering::Relaxed), 1);
}
