//! Broken input of every kind for the readers of strangers' files: the YAML tree, interpolation, `.env` files, the
//! whole Compose loader, kustomizations with their patches, of Kubernetes amounts, `$(VAR)`, selectors and the whole
//! loader, and schedules of CronJobs. No input may cause a panic, a hang or growth without end.
//!
//! A short run is part of the tests; `make fuzz` runs it for as long as `FUZZ_SECONDS` says, with a new seed.

use std::{
    env, fs,
    path::Path,
    time::{Duration, Instant, SystemTime},
};

use driftless_compose as compose;
use driftless_files::{AppSpec, MemoryFiles};
use driftless_manifest::{
    convert::SecretValues, convert::to_compose, convert::to_kubernetes, discover, render,
};
use driftless_model::{Format, Schedule, Selector, Timestamp};
use driftless_yaml as yaml;

/// Words that mean something in these files.
const WORDS: &[&str] = &[
    "services:",
    "include:",
    "extends:",
    "image: a",
    "${A:-",
    "${A:?",
    "${A}",
    "$A",
    "$$",
    "}",
    "{",
    "[",
    "]",
    "&a ",
    "*a",
    "<<: ",
    "!reset ",
    "!override ",
    "---\n",
    "\n",
    "  ",
    "- ",
    ": ",
    "\"",
    "'",
    "# ",
    "|\n",
    ">-\n",
    "null",
    "~",
    "0123",
    "1e999",
    "-",
    "1-65535",
    "::1",
    "../",
    "compose.yaml",
    "b.yaml",
    ".env",
    "export ",
    "=",
    "\\",
    "\u{feff}",
    "\u{0}",
    "é",
    "yes",
    "2020-01-02",
    "9223372036854775808",
    "x-a: ",
    "ports:",
    "volumes:",
    "depends_on:",
    "service:a",
    "resources: [all.yaml]",
    "patches:\n- path: ",
    "target: {kind: .*}",
    "$patch: delete",
    "$patch: replace",
    "- op: copy\n  from: /spec\n  path: /spec/",
    "namePrefix: a-",
    "behavior: merge",
    "metadata: {name: web}",
    "kind: Deployment",
];

/// Likewise, in manifests.
const KUBERNETES_WORDS: &[&str] = &[
    "$(A)",
    "$$(A)",
    "$(",
    ")",
    "1e3",
    "500m",
    "64Mi",
    "9999999999999999999999E",
    "0.0000000001n",
    "-1",
    "25%",
    "999999999999%",
    "0644",
    "matchLabels:",
    "matchExpressions:",
    "operator: NotIn",
    "kind: List",
    "kind: Service",
    "apiVersion: v1",
    "items:",
    "subPath: ../..",
    "subPathExpr: $(A)/$(B)",
    "fieldPath: metadata.labels['a']",
    "containers:",
    "null",
    "{}",
    "[]",
    "*a",
    "&a ",
    "---\n",
    "!tag ",
    "\"",
    "\u{0}",
    "é",
    ": ",
    "- ",
    "  ",
];

/// Likewise, in schedules and selectors.
const SCHEDULE_WORDS: &[&str] = &[
    "*",
    "*/",
    "-",
    ",",
    "/",
    " ",
    "\t",
    "0",
    "7",
    "59",
    "60",
    "31",
    "FEB",
    "mon",
    "sun-sat",
    "L",
    "W",
    "#",
    "?",
    "@",
    "@every ",
    "TZ=",
    "CRON_TZ=Asia/Kolkata ",
    "4294967296",
    "18446744073709551616",
    "é",
    "\u{0}",
    "=",
    "!=",
    "==",
    "!",
    " in (",
    " notin ",
    "(",
    ")",
    ",,",
    "a",
    "app",
];

/// Schedules and selectors that are in order, or nearly so.
const SCHEDULES: &[&str] = &[
    "* * * * *",
    "0 0 1 1 *",
    "*/15 8-18 * * mon-fri",
    "0 2 29 2 *",
    "0 0 31 2 *",
    "30 2 * * 7",
    "59 23 31 12 0",
    "0-59/7 */3 1,15,31 JAN,FEB-dec/2 sun,tue-thu",
    "@daily",
    "@hourly",
    "@weekly",
    "@monthly",
    "@yearly",
    "@midnight",
    "0 1-2 * 3 sun",
    "5/10 0 * * *",
    "app=web",
    "tier!=cache, app==web",
    "env in (a, b),!canary",
    "env notin (a),driftless.application=shop",
    "example.com/name, !example.com/other",
];

/// Small and repeatable.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, limit: usize) -> usize {
        usize::try_from(self.next() % limit.max(1) as u64).unwrap()
    }
}

/// A reader and the inputs that it starts with.
#[derive(Clone, Copy, Debug)]
enum Feed {
    Compose,
    Kubernetes,
    Kustomize,
    Schedules,
}

impl Feed {
    fn words(self) -> &'static [&'static str] {
        match self {
            Self::Compose | Self::Kustomize => WORDS,
            Self::Kubernetes => KUBERNETES_WORDS,
            Self::Schedules => SCHEDULE_WORDS,
        }
    }
}

/// Real files, as a start.
fn seeds(feed: Feed) -> Vec<Vec<u8>> {
    let mut found = Vec::new();
    let mut folders = match feed {
        Feed::Compose => vec![
            Path::new("crates/compose/tests/it/canonical/files").to_owned(),
            "crates/compose/tests/it/compose".into(),
        ],
        Feed::Kubernetes => vec!["tests/it/kubernetes".into()],
        Feed::Kustomize => vec!["tests/it/kustomize".into()],
        Feed::Schedules => return SCHEDULES.iter().map(|it| it.as_bytes().to_vec()).collect(),
    };
    if matches!(feed, Feed::Kubernetes) {
        let page = include_str!("../../docs/kubernetes.md");
        let blocks = page.split("```yaml\n").skip(1).filter_map(|it| it.split("```").next());
        found.extend(blocks.flat_map(|it| it.split("---\n")).map(|it| it.as_bytes().to_vec()));
    }
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() { folders.push(path) } else { found.push(fs::read(path).unwrap()) }
        }
    }
    found.sort();
    found
}

fn mutated(random: &mut Random, seeds: &[Vec<u8>], words: &[&str]) -> Vec<u8> {
    let mut bytes = seeds[random.below(seeds.len())].clone();
    for _ in 0..=random.below(6) {
        let at = random.below(bytes.len() + 1);
        match random.below(7) {
            0 if at < bytes.len() => bytes[at] = u8::try_from(random.below(256)).unwrap(),
            1 => drop(bytes.drain(at..(at + random.below(20)).min(bytes.len()))),
            2 | 3 => drop(bytes.splice(at..at, words[random.below(words.len())].bytes())),
            4 => {
                let end = (at + random.below(200)).min(bytes.len());
                let copy = bytes[at..end].to_vec();
                let to = random.below(bytes.len() + 1);
                bytes.splice(to..to, copy);
            }
            5 => {
                let other = &seeds[random.below(seeds.len())];
                let from = random.below(other.len() + 1);
                let end = (from + random.below(400)).min(other.len());
                bytes.splice(at..at, other[from..end].iter().copied());
            }
            _ => {
                let word = words[random.below(words.len())].repeat(1 + random.below(200));
                bytes.splice(at..at, word.into_bytes());
            }
        }
    }
    bytes
}

fn spec(files: &[&str]) -> AppSpec {
    AppSpec {
        path: String::new(),
        variables: [("A".to_owned(), "value".to_owned())].into(),
        profiles: vec!["*".to_owned()],
        ..AppSpec::compose("fuzz", files)
    }
}

fn tree(bytes: &[u8]) {
    let _ = yaml::parse("a.yaml", bytes, &yaml::Limits::default());
}

/// As the text of one value.
fn interpolation(bytes: &[u8]) {
    let text = serde_json::Value::from(String::from_utf8_lossy(bytes)).to_string();
    let file = format!("services: {{web: {{image: a, labels: {{a: {text}}}}}}}");
    let files = MemoryFiles::new([("compose.yaml", file.as_str())]);
    let _ = compose::load(&files, &spec(&["compose.yaml"]), "/a", None);
}

fn dotenv(bytes: &[u8]) {
    let mut files = MemoryFiles::new([("compose.yaml", "services: {web: {image: '$B', env_file: .env}}")]);
    files.0.insert(".env".to_owned(), bytes.into());
    let _ = render(&files, &spec(&["compose.yaml"]));
}

/// Each file as the base, as an override, and as what is included and extended.
fn loader(one: &[u8], other: &[u8]) {
    let mut files = MemoryFiles::default();
    files.0.insert("compose.yaml".to_owned(), one.into());
    files.0.insert("b.yaml".to_owned(), other.into());
    for listed in [&["compose.yaml"] as &[&str], &["compose.yaml", "b.yaml"]] {
        let project = compose::load(&files, &spec(listed), "/a", None);
        assert_eq!(project.model.is_none(), project.findings.iter().any(driftless_model::Finding::is_error));
        let rendered = render(&files, &spec(listed));
        assert!(rendered.stack.is_some() || !rendered.findings.is_empty());
    }
    let including = "include: [compose.yaml, b.yaml]\nservices: {x: {extends: {file: b.yaml, service: web}}}";
    files.0.insert("main.yaml".to_owned(), including.as_bytes().into());
    let _ = compose::load(&files, &spec(&["main.yaml"]), "/a", None);
}

/// As the files of one application: the result is a stack or a located error, and is then converted to the other format.
fn manifests(one: &[u8], other: &[u8]) {
    let mut files = MemoryFiles::default();
    files.0.insert("a.yaml".to_owned(), one.into());
    files.0.insert("b.yaml".to_owned(), other.into());
    for listed in [&["a.yaml"] as &[&str], &["a.yaml", "b.yaml"]] {
        let spec = AppSpec { format: Format::Kubernetes, ..spec(listed) };
        let rendered = render(&files, &spec);
        assert_eq!(
            rendered.stack.is_none(),
            rendered.findings.iter().any(driftless_model::Finding::is_error)
        );
        if let Some(stack) = &rendered.stack {
            let compose = to_compose(stack, &rendered.contents, SecretValues::Shown);
            assert_eq!(compose, to_compose(stack, &rendered.contents, SecretValues::Shown));
            let again = to_kubernetes(stack, &rendered.contents, SecretValues::Shown);
            assert!(again.documents.len() >= stack.workloads.len());
        }
    }
}

/// Cut into the values of a manifest: amounts, commands, variables, labels, selectors, ports and times.
fn values(bytes: &[u8]) {
    let whole = String::from_utf8_lossy(bytes);
    let words: Vec<&str> = whole.split([' ', '\n', ',']).filter(|it| !it.is_empty()).take(40).collect();
    for pair in words.chunks(2) {
        let quoted = |it: &str| serde_json::Value::from(it).to_string();
        let (one, other) = (quoted(pair[0]), quoted(pair.last().unwrap()));
        let plain = pair[0];
        let text = format!(
            "apiVersion: apps/v1\nkind: Deployment\nmetadata: {{name: web, labels: {{a: {one}}}}}\nspec:\n  replicas: {plain}\n  \
             strategy: {{rollingUpdate: {{maxSurge: {one}, maxUnavailable: {other}}}}}\n  selector: {{matchLabels: {{{one}: {other}}}, \
             matchExpressions: [{{key: {one}, operator: In, values: [{one}, {other}]}}]}}\n  template:\n    metadata: {{labels: {{{one}: \
             {other}}}}}\n    spec:\n      containers:\n      - name: web\n        image: {one}\n        command: [{one}, {other}]\n        \
             env: [{{name: A, value: {one}}}, {{name: B, value: {other}}}]\n        resources: {{limits: {{cpu: {one}, memory: {other}}}, \
             requests: {{cpu: {other}}}}}\n        ports: [{{name: {one}, containerPort: {plain}}}]\n        livenessProbe: {{tcpSocket: \
             {{port: {one}}}, periodSeconds: {plain}}}\n"
        );
        manifests(text.as_bytes(), b"");
    }
}

/// As a kustomization, and as the manifests that it lists under any name.
fn kustomization(one: &[u8], other: &[u8]) {
    let mut files = MemoryFiles::default();
    files.0.insert("over/kustomization.yaml".to_owned(), one.into());
    files.0.insert("base/kustomization.yaml".to_owned(), b"resources: [all.yaml]".as_slice().into());
    let names =
        ["all.yaml", "web.yaml", "patch.yaml", "web.env", "deployment.yaml", "service.yaml", "more.yaml"];
    for folder in ["over", "base"] {
        for name in names {
            files.0.insert(format!("{folder}/{name}"), other.into());
        }
    }
    build(&files, "over/kustomization.yaml");
}

/// As every kind of patch on a manifest that is in order.
fn patches(one: &[u8]) {
    let all = fs::read("tests/it/kustomize/merges/web.yaml").unwrap();
    for text in [
        "patches: [{path: one.yaml}]",
        "patches: [{path: one.yaml, target: {kind: .*}, options: {allowNameChange: true}}]",
        "patchesStrategicMerge: [one.yaml]",
        "patchesJson6902: [{path: one.yaml, target: {name: w.*}}]",
        "replacements: [{path: one.yaml}]",
        "namePrefix: a-\nconfigMapGenerator: [{name: a, envs: [one.yaml], files: [one.yaml]}]",
    ] {
        let text = format!("resources: [all.yaml]\n{text}\n");
        let mut files = MemoryFiles::new([("kustomization.yaml", text.as_str())]);
        files.0.insert("all.yaml".to_owned(), all.clone().into());
        files.0.insert("one.yaml".to_owned(), one.into());
        build(&files, "kustomization.yaml");
    }
}

fn build(files: &MemoryFiles, path: &str) {
    let spec = AppSpec { format: Format::Kubernetes, ..spec(&[path]) };
    let rendered = render(files, &spec);
    assert!(rendered.stack.is_some() || !rendered.findings.is_empty());
    let _ = discover(files, "", "fuzz", &[]);
}

/// As a schedule, as its zone, and as a selector: a readable schedule is due once, at the time that it names.
fn schedules(one: &[u8], other: &[u8]) {
    let (text, zone) = (String::from_utf8_lossy(one), String::from_utf8_lossy(other));
    // Clocks are put forward and back there by whole hours, by half an hour, and by a day.
    let zones = ["Europe/Berlin", "Australia/Lord_Howe", "Pacific/Apia", &*zone];
    let zones = zones.into_iter().map(Some).chain([None]);
    for schedule in zones.filter_map(|zone| Schedule::parse(&text, zone).ok()) {
        // Before each of these, in 2011, 2024 and 2026; and where there is no year to come.
        for now in [1_325_152_500_000, 1_711_846_740_001, 1_774_745_999_999, u64::MAX].map(Timestamp) {
            let Some(next) = schedule.next(now) else { continue };
            assert!(next > now && next.0 % 60_000 == 0, "{text:?} {now}: {next}");
            assert_eq!(schedule.missed(now, next, 2), Some((next, 1)), "{text:?} {now}");
        }
    }
    if let Ok(selector) = Selector::parse(&text) {
        let labels = [("app".to_owned(), "web".to_owned())].into();
        assert_eq!(selector.admits(&labels), Selector::parse(&text).unwrap().admits(&labels));
    }
}

/// Real time: the search has a duration as its option, and paused time would never pass.
#[expect(clippy::disallowed_methods, reason = "nothing here waits, and no verdict depends on it")]
fn now() -> Instant {
    Instant::now()
}

/// Until it is enough; what breaks is written to a file first, so that it can be looked at.
fn drive(seed: u64, feed: Feed, is_enough: impl Fn(u64) -> bool) -> (u64, Duration) {
    let seeds = seeds(feed);
    assert!(seeds.len() > 20, "{feed:?}: {}", seeds.len());
    let mut random = Random(seed | 1);
    let (mut count, mut slowest) = (0, Duration::ZERO);
    while !is_enough(count) {
        let mut broken = || mutated(&mut random, &seeds, feed.words());
        let (one, other) = (broken(), broken());
        let began = now();
        let outcome = std::panic::catch_unwind(|| match feed {
            Feed::Compose => {
                tree(&one);
                interpolation(&one);
                dotenv(&one);
                loader(&one, &other);
            }
            Feed::Kubernetes => {
                manifests(&one, &other);
                values(&one);
            }
            Feed::Kustomize => {
                kustomization(&one, &other);
                patches(&one);
            }
            Feed::Schedules => schedules(&one, &other),
        });
        slowest = slowest.max(began.elapsed());
        if outcome.is_err() {
            let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
            fs::write(folder.join("fuzz-one"), &one).unwrap();
            fs::write(folder.join("fuzz-other"), &other).unwrap();
            panic!("input {count} of seed {seed} breaks; it is in {}", folder.display());
        }
        count += 1;
    }
    (count, slowest)
}

#[test]
fn some_broken_files_break_nothing() {
    drive(0x5EED, Feed::Compose, |count| count >= 150);
}

#[test]
fn some_broken_manifests_break_nothing() {
    drive(0x5EED, Feed::Kubernetes, |count| count >= 40);
}

#[test]
fn some_broken_kustomizations_break_nothing() {
    drive(0x5EED, Feed::Kustomize, |count| count >= 40);
}

#[test]
fn some_broken_schedules_break_nothing() {
    drive(0x5EED, Feed::Schedules, |count| count >= 400);
}

#[test]
#[ignore = "as long as FUZZ_SECONDS says: make fuzz"]
fn fuzz() {
    let seconds = env::var("FUZZ_SECONDS").ok().and_then(|it| it.parse().ok()).unwrap_or(60);
    let seed = env::var("FUZZ_SEED").ok().and_then(|it| it.parse().ok());
    let since = SystemTime::UNIX_EPOCH.elapsed().unwrap().as_nanos();
    let seed = seed.unwrap_or_else(|| u64::try_from(since % u128::from(u64::MAX)).unwrap());
    let (began, limit) = (now(), Duration::from_secs(seconds));
    println!("seed {seed}");
    let feeds = [Feed::Compose, Feed::Kubernetes, Feed::Kustomize, Feed::Schedules];
    for (feed, part) in feeds.into_iter().zip(1..) {
        let until = limit * part / 4;
        let (count, slowest) = drive(seed, feed, |_| began.elapsed() >= until);
        println!("{feed:?}: {count} inputs without a fault, the slowest in {slowest:?}");
    }
}
