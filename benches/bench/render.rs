//! Rendering alone: every file of a collection, on one core.

use std::{
    collections::BTreeMap,
    env,
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use driftless_files::{AppSpec, MemoryFiles};
use driftless_manifest as manifest;
use serde_json::Value;
use tokio::time::Instant;

use crate::{
    process,
    report::{Report, Row, Samples, megabytes, time},
    samples,
};

/// So many files at least: fewer say nothing about the many.
const FILES: usize = 1000;

/// The files to render.
struct Collection {
    what: String,
    files: MemoryFiles,
    specs: Vec<AppSpec>,
}

pub fn render(report: &mut Report) {
    let Collection { what, files, specs } = Collection::find();
    let mut fastest = vec![Duration::MAX; specs.len()];
    let (mut passes, mut rendered) = (Vec::new(), 0);
    // The first pass warms up.
    for pass in 0..=samples() {
        let began = process::own_cpu();
        rendered = 0;
        for (spec, fastest) in specs.iter().zip(&mut fastest) {
            let began = Instant::now();
            rendered += usize::from(manifest::render(&files, spec).stack.is_some());
            *fastest = began.elapsed().min(*fastest);
        }
        if pass > 0 {
            passes.push(process::own_cpu() - began);
        }
    }
    let passes = Samples::new(passes);
    let (slowest, took) = specs.iter().zip(&fastest).max_by_key(|(_, it)| **it).expect("there are files");
    let bytes: usize = specs.iter().filter_map(|it| files.0.get(&it.files[0])).map(|it| it.len()).sum();
    let per_second = specs.len() as f64 / passes.median().as_secs_f64();
    let memory = process::peak(std::process::id()).unwrap_or_default();

    report.section("Rendering");
    report.text(&format!(
        "{what}, {} bytes in total, {rendered} of which can be run, are read from memory into the model on one core, \
         after one warm-up pass. The times are the thread's processor time. The slowest file is `{}` with {} in its \
         fastest pass. The process held at most {} since its start, including the files.",
        bytes,
        slowest.files[0],
        time(*took),
        megabytes(memory),
    ));
    report.times(&[Row { what: &format!("all {} files", specs.len()), samples: &passes, ratio: None }]);
    let grown = growth();
    let rows: Vec<(String, f64)> = grown
        .iter()
        .map(|(services, it)| {
            let what = format!("a file of {services} services, {} times", SERVICES / services);
            (what, it.against(&grown[0].1))
        })
        .collect();
    report.text("The same thousand services, in many small files and in one large file.");
    let rows: Vec<Row<'_>> = grown
        .iter()
        .zip(&rows)
        .map(|((_, samples), (what, ratio))| Row { what, samples, ratio: Some(*ratio) })
        .collect();
    report.times(&rows);
    let found = format!("{per_second:.0} files a second");
    report.goal("≥ 5,000 files a second on one core, warm", &found, per_second >= 5000.0);
    let last = rows.last().and_then(|it| it.ratio).expect("there are sizes");
    report.goal(
        "linear: time per service does not grow",
        &format!("{last:.2} × at 1,000 services"),
        last <= 1.5,
    );
}

/// So many services are rendered for one time, in few files or in many.
const SERVICES: usize = 1000;

/// Files of ever more services.
fn growth() -> Vec<(usize, Samples)> {
    [10, 100, SERVICES]
        .into_iter()
        .map(|services| {
            let files = MemoryFiles::new([("app/compose.yaml", services_of(services).as_str())]);
            let spec = spec("app/compose.yaml");
            let mut times = Vec::new();
            for _ in 0..=samples() {
                let began = process::own_cpu();
                for _ in 0..SERVICES / services {
                    assert!(manifest::render(&files, &spec).stack.is_some(), "it renders");
                }
                times.push(process::own_cpu() - began);
            }
            times.remove(0);
            (services, Samples::new(times))
        })
        .collect()
}

fn services_of(services: usize) -> String {
    let mut text = "services:\n".to_owned();
    for number in 0..services {
        let _ = write!(
            text,
            "  service{number}:\n    image: registry.example.com/team/service:1.{number}\n    restart: unless-stopped\n    \
             environment:\n      PORT: \"8080\"\n      NAME: service{number}\n    ports: [\"{}:8080\"]\n    volumes: \
             [data:/data/{number}]\n",
            10_000 + number
        );
    }
    text + "volumes:\n  data:\n"
}

impl Collection {
    /// The large one, where it is, or else the projects of the tests, repeated.
    fn find() -> Self {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let corpus = env::var_os("DRIFTLESS_COMPOSE_CORPUS")
            .map_or_else(|| root.join("../shared/corpus/compose"), PathBuf::from);
        if let Ok(expected) = fs::read_to_string(corpus.join("expected.jsonl")) {
            return Self::large(&corpus.join("files"), &expected);
        }
        let mut files = MemoryFiles::default();
        read(&root.join("tests/e2e/projects"), "", &mut files);
        files.0.retain(|path, _| path.ends_with(".yaml"));
        let projects = files.0.len();
        let times = FILES.div_ceil(projects);
        let specs = (0..times).flat_map(|_| files.0.keys().map(|it| spec(it))).collect();
        let what = format!("The {projects} Compose projects of the tests, {times} times each");
        Self { what, files, specs }
    }

    fn large(folder: &Path, expected: &str) -> Self {
        let mut files = MemoryFiles::default();
        read(folder, "", &mut files);
        let specs: Vec<AppSpec> = expected
            .lines()
            .map(|line| {
                let case: Value = serde_json::from_str(line).unwrap();
                let mut spec = spec(case["file"].as_str().unwrap());
                let variables = case["env"].as_object().into_iter().flatten();
                spec.variables
                    .extend(variables.filter_map(|(name, it)| Some((name.clone(), it.as_str()?.to_owned()))));
                let profiles = case["profiles"].as_array().into_iter().flatten();
                spec.profiles = profiles.filter_map(Value::as_str).map(str::to_owned).collect();
                spec
            })
            .collect();
        let what = format!("A collection of {} Compose files from public repositories", specs.len());
        Self { what, files, specs }
    }
}

fn spec(file: &str) -> AppSpec {
    AppSpec {
        variables: BTreeMap::from([("COMPOSE_PROJECT_NAME".to_owned(), "proj".to_owned())]),
        ..AppSpec::compose("proj", &[file])
    }
}

/// Everything in a folder.
fn read(folder: &Path, prefix: &str, files: &mut MemoryFiles) {
    for entry in fs::read_dir(folder).unwrap().flatten() {
        let path = format!("{prefix}{}", entry.file_name().to_string_lossy());
        if entry.path().is_dir() {
            read(&entry.path(), &format!("{path}/"), files);
        } else if let Ok(bytes) = fs::read(entry.path()) {
            files.0.insert(path, bytes.into());
        }
    }
}
