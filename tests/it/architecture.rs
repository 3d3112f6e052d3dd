//! The shape of the workspace: which crate may know which, and that every file says what it holds.
//!
//! Imports between crates are checked by cargo. These tests keep the manifests of the crates as they were meant.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

/// Crates that must not reach these crates, not even through another one of ours.
const MUST_NOT_REACH: &[(&str, &[&str])] = &[
    ("driftless-model", &["tokio", "reqwest", "bollard", "gix", "rusqlite"]),
    ("driftless-plan", &["tokio", "reqwest", "bollard", "gix", "rusqlite", "driftless-docker"]),
    ("driftless-fleet", &["tokio", "reqwest", "bollard", "gix", "rusqlite"]),
    ("driftless-compose", &["tokio", "driftless-kubernetes", "driftless-plan", "driftless-agent"]),
    ("driftless-kubernetes", &["tokio", "driftless-compose", "driftless-plan", "driftless-agent"]),
    ("driftless-git", &["driftless-docker", "driftless-store"]),
    ("driftless-docker", &["driftless-git", "driftless-store"]),
];

/// Libraries that only one crate may name, so that another library can take their place.
const ONLY_IN: &[(&str, &str)] = &[
    ("gix", "driftless-git"),
    ("bollard", "driftless-docker"),
    ("rusqlite", "driftless-store"),
    ("axum", "driftless-web"),
    ("granit-parser", "driftless-yaml"),
    ("prometheus", "driftless-metrics"),
    ("lettre", "driftless-notify"),
    ("jsonwebtoken", "driftless-oidc"),
    ("opentelemetry_sdk", "driftless-otlp"),
    ("roxmltree", "driftless-objects"),
    ("minijinja", "driftless-notify"),
    ("rustls-platform-verifier", "driftless-trust"),
    ("clap", "driftless"),
];

/// In lines. A longer file holds more than one subject.
const LONGEST_FILE: usize = 900;

/// All Rust files below a folder, sorted.
pub(crate) fn sources(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files.extend(sources(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    files.sort();
    files
}

/// The names under `[dependencies]` of every package of the workspace, by package.
fn dependencies() -> BTreeMap<String, BTreeSet<String>> {
    let crates = fs::read_dir("crates").unwrap().map(|entry| entry.unwrap().path().join("Cargo.toml"));
    let mut found = BTreeMap::new();
    for manifest in crates.chain([PathBuf::from("Cargo.toml")]) {
        let text = fs::read_to_string(&manifest).unwrap();
        let name = text.split("\nname = \"").nth(1).and_then(|rest| rest.split('"').next());
        let name = if manifest == Path::new("Cargo.toml") { "driftless" } else { name.unwrap() };
        let section = text.split("\n[dependencies]\n").nth(1).unwrap_or_default();
        let lines = section.split("\n[").next().unwrap().lines();
        let names =
            lines.filter_map(|line| line.split(['.', ' ', '=']).next()).filter(|name| !name.is_empty());
        found.insert(name.to_owned(), names.map(str::to_owned).collect());
    }
    found
}

/// All that a package depends on, directly or through other packages of the workspace.
fn reached<'a>(name: &'a str, all: &'a BTreeMap<String, BTreeSet<String>>) -> BTreeSet<&'a str> {
    let mut found = BTreeSet::new();
    let mut open = vec![name];
    while let Some(name) = open.pop() {
        for dependency in all.get(name).into_iter().flatten() {
            if found.insert(dependency.as_str()) {
                open.push(dependency);
            }
        }
    }
    found
}

#[test]
fn pure_crates_do_not_reach_io_libraries() {
    let all = dependencies();
    assert!(all.len() > 10, "{all:?}");
    for (name, forbidden) in MUST_NOT_REACH {
        assert!(all.contains_key(*name), "there is no crate {name}");
        let reached = reached(name, &all);
        for dependency in *forbidden {
            assert!(!reached.contains(dependency), "{name} reaches {dependency}");
        }
    }
}

#[test]
fn each_library_with_io_is_named_by_one_crate() {
    let all = dependencies();
    for (library, home) in ONLY_IN {
        assert!(all[*home].contains(*library), "{home} does not use {library}");
        for (name, dependencies) in &all {
            assert!(name == home || !dependencies.contains(*library), "{name} may not use {library}");
        }
    }
}

#[test]
fn every_test_file_is_compiled() {
    let list = fs::read_to_string("tests/it/main.rs").unwrap();
    for path in sources(Path::new("tests/it")) {
        let module = path.file_stem().unwrap().to_str().unwrap();
        assert!(module == "main" || list.contains(&format!("mod {module};")), "{module} is not run");
    }
}

#[test]
fn every_file_has_a_module_doc_and_a_limit() {
    let crates = fs::read_dir("crates").unwrap().map(|entry| entry.unwrap().path().join("src"));
    for path in crates.chain([PathBuf::from("src")]).flat_map(|folder| sources(&folder)) {
        let source = fs::read_to_string(&path).unwrap();
        assert!(source.starts_with("//!"), "{} has no module doc", path.display());
        let lines = source.lines().count();
        assert!(lines <= LONGEST_FILE, "{} has {lines} lines; split it by subject", path.display());
    }
}

/// The name of the type that a line at the top of a file, or of an inner module, defines.
fn defined_type(line: &str) -> Option<&str> {
    let line = line.strip_prefix("    ").unwrap_or(line);
    let line = match line.strip_prefix("pub") {
        Some(rest) if rest.starts_with('(') => rest.split_once(") ")?.1,
        Some(rest) => rest.strip_prefix(' ')?,
        None => line,
    };
    let (keyword, rest) = line.split_once(' ')?;
    let is_type = matches!(keyword, "struct" | "enum" | "trait" | "union");
    rest.split(|letter: char| !letter.is_alphanumeric()).next().filter(|name| is_type && !name.is_empty())
}

/// A panic in a task that nobody waits for is noticed by nobody. The tasks of applications and repositories begin again by themselves.
#[test]
fn tasks_of_the_agent_are_started_where_defects_are_noticed() {
    let folder = Path::new("crates/agent/src");
    let mut starting = sources(folder);
    starting.retain(|path| fs::read_to_string(path).unwrap().contains("tasks.spawn("));
    let allowed = ["agent.rs", "lasting_tasks.rs", "supervisor.rs"].map(|name| folder.join(name));
    assert_eq!(starting, allowed, "start tasks with `lasting_tasks::start`");
    let agent = fs::read_to_string(&allowed[0]).unwrap();
    let mut unnoticed: Vec<&str> = agent.lines().map(str::trim).collect();
    unnoticed.retain(|line| line.contains("tasks.spawn(") && !line.contains("ends_agent("));
    assert_eq!(unnoticed, ["tasks.spawn(repository.run());"], "start tasks with `lasting_tasks::start`");
}

/// `Error` is each module's own, by custom.
#[test]
fn type_names_are_used_once_in_a_crate() {
    let crates = fs::read_dir("crates").unwrap().map(|entry| entry.unwrap().path().join("src"));
    let mut read = 0;
    let mut wrong = Vec::new();
    for folder in crates.chain([PathBuf::from("src")]) {
        let mut first = BTreeMap::new();
        for path in sources(&folder) {
            let source = fs::read_to_string(&path).unwrap();
            for name in source.lines().filter_map(defined_type).filter(|name| *name != "Error") {
                read += 1;
                if let Some(other) = first.insert(name.to_owned(), path.clone()) {
                    wrong.push(format!("{name}: {} and {}", other.display(), path.display()));
                }
            }
        }
    }
    assert!(read > 1000, "only {read} types were found");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_crate_opens_with_a_tested_example() {
    for entry in fs::read_dir("crates").unwrap() {
        let path = entry.unwrap().path().join("src/lib.rs");
        let front = fs::read_to_string(&path).unwrap();
        let front: String = front.lines().take_while(|line| line.starts_with("//!")).collect();
        assert!(front.contains("//! ```//! "), "{} has no example that is tested", path.display());
    }
}

/// One crate's source files, by module path: `["decide", "rollout"]`.
struct Modules {
    files: BTreeMap<Vec<String>, PathBuf>,
    /// Names that a module re-exports, each with the path that it stands for.
    exports: BTreeMap<Vec<String>, BTreeMap<String, Vec<String>>>,
}

impl Modules {
    fn of(folder: &Path) -> Self {
        let mut files = BTreeMap::new();
        for path in sources(folder) {
            let inner = path.strip_prefix(folder).unwrap().with_extension("");
            let mut module: Vec<String> =
                inner.iter().map(|name| name.to_str().unwrap().to_owned()).collect();
            if matches!(module.last().unwrap().as_str(), "mod" | "lib" | "main") {
                module.pop();
            }
            files.insert(module, path);
        }
        let mut modules = Self { files, exports: BTreeMap::new() };
        for (module, path) in modules.files.clone() {
            let source = fs::read_to_string(path).unwrap();
            let exports = imports(&source, true).into_iter().filter_map(|path| {
                let name = path.last()?.clone();
                Some((name, modules.absolute(&module, &path)?))
            });
            let exports = exports.collect();
            modules.exports.insert(module, exports);
        }
        modules
    }

    /// The path from the root of the crate, or `None` if it leads out of the crate.
    fn absolute(&self, module: &[String], path: &[String]) -> Option<Vec<String>> {
        let mut base = module.to_vec();
        let mut rest = path;
        match path.first()?.as_str() {
            "crate" => (base, rest) = (Vec::new(), &path[1..]),
            "self" => rest = &path[1..],
            "super" => {
                while rest.first().is_some_and(|name| name == "super") {
                    base.pop()?;
                    rest = &rest[1..];
                }
            }
            first => {
                let child = [module, &[first.to_owned()]].concat();
                if !self.files.contains_key(&child) {
                    return None;
                }
            }
        }
        base.extend_from_slice(rest);
        Some(base)
    }

    /// The module whose file defines what this path names.
    fn definer(&self, path: &[String]) -> Vec<String> {
        let depth = (0..=path.len()).rev().find(|depth| self.files.contains_key(&path[..*depth]));
        let (module, rest) = path.split_at(depth.unwrap_or(0));
        let export = rest.first().and_then(|name| self.exports.get(module)?.get(name));
        match export {
            Some(target) if target != path => self.definer(target),
            _ => module.to_vec(),
        }
    }

    /// For each module, the modules that it names, in `use` lines or elsewhere.
    fn graph(&self) -> BTreeMap<Vec<String>, BTreeSet<Vec<String>>> {
        let edges = |module: &Vec<String>, file: &PathBuf| {
            let source = fs::read_to_string(file).unwrap();
            let source = source.split("#[cfg(test)]").next().unwrap();
            let paths = imports(source, false).into_iter().chain(inline_paths(source));
            let mut targets: BTreeSet<Vec<String>> = paths
                .filter_map(|path| self.absolute(module, &path))
                .map(|path| self.definer(&path))
                .collect();
            targets.remove(module);
            targets
        };
        self.files.iter().map(|(module, file)| (module.clone(), edges(module, file))).collect()
    }

    /// The files of each import circle, sorted.
    fn circles(&self) -> BTreeSet<Vec<String>> {
        let graph = self.graph();
        let reach = |from: &Vec<String>| {
            let (mut found, mut open) = (BTreeSet::new(), vec![from.clone()]);
            while let Some(module) = open.pop() {
                for next in &graph[&module] {
                    if found.insert(next.clone()) {
                        open.push(next.clone());
                    }
                }
            }
            found
        };
        let reached: BTreeMap<&Vec<String>, BTreeSet<Vec<String>>> =
            graph.keys().map(|module| (module, reach(module))).collect();
        let circle = |module: &Vec<String>| {
            let members = reached[module].iter().filter(|other| reached[other].contains(module));
            members.map(|other| if other.is_empty() { "lib".to_owned() } else { other.join("/") }).collect()
        };
        graph.keys().filter(|module| reached[module].contains(*module)).map(circle).collect()
    }
}

/// Whether a line begins an import, or a re-export of any visibility.
fn is_import(line: &str) -> bool {
    line.split_once("use ").is_some_and(|(visibility, _)| {
        matches!(visibility, "" | "pub ") || (visibility.starts_with("pub(") && visibility.ends_with(") "))
    })
}

/// The paths that `use` lines import, or only those that they re-export.
fn imports(source: &str, only_exports: bool) -> Vec<Vec<String>> {
    let mut all = Vec::new();
    let mut lines = source.lines();
    while let Some(line) = lines.next() {
        let is_export = line.starts_with("pub") && is_import(line);
        if !(is_export || (line.starts_with("use ") && !only_exports)) {
            continue;
        }
        let mut text = line.split_once("use ").unwrap().1.to_owned();
        while !text.ends_with(';') {
            text.push_str(lines.next().unwrap().trim());
        }
        tree(text.trim_end_matches(';'), &mut Vec::new(), &mut all);
    }
    all
}

/// The paths of two or more names outside of imports, visibilities, comments and texts: `super::error::not_found`.
fn inline_paths(source: &str) -> Vec<Vec<String>> {
    let is_name = |letter: char| letter.is_alphanumeric() || letter == '_';
    let mut all = Vec::new();
    let mut lines = source.lines();
    while let Some(line) = lines.next() {
        let mut code = line.split("//").next().unwrap().trim_start();
        if is_import(code) {
            while !code.ends_with(';') {
                code = lines.next().unwrap();
            }
            continue;
        }
        // Every second piece is text.
        for piece in code.split('"').step_by(2) {
            let piece = piece.replace("pub(in crate::", "");
            let paths = piece.split(|letter: char| !(is_name(letter) || letter == ':'));
            let paths = paths.filter(|path| path.contains("::") && path.starts_with(is_name));
            let names = |path: &str| path.split("::").map(str::to_owned).collect::<Vec<_>>();
            all.extend(paths.map(|path| names(path.trim_end_matches(':'))));
        }
    }
    all
}

/// Splits `a::{b, c::d}` into its paths.
fn tree(text: &str, prefix: &mut Vec<String>, all: &mut Vec<Vec<String>>) {
    let text = text.trim();
    if let Some(inner) = text.strip_prefix('{') {
        let (mut depth, mut start) = (0, 0);
        let inner = format!("{},", inner.strip_suffix('}').unwrap());
        for (index, letter) in inner.char_indices() {
            match letter {
                '{' => depth += 1,
                '}' => depth -= 1,
                ',' if depth == 0 => {
                    tree(&inner[start..index], prefix, all);
                    start = index + 1;
                }
                _ => {}
            }
        }
        return;
    }
    match text.split_once("::") {
        Some((first, rest)) => {
            prefix.push(first.to_owned());
            tree(rest, prefix, all);
            prefix.pop();
        }
        None if text.is_empty() => {}
        None => {
            let name = text.split(" as ").next().unwrap();
            let mut path = prefix.clone();
            if name != "self" {
                path.push(name.to_owned());
            }
            all.push(path);
        }
    }
}

#[test]
fn modules_of_a_crate_name_each_other_in_no_circle() {
    let crates = fs::read_dir("crates").unwrap().map(|entry| entry.unwrap().path());
    let crates =
        crates.map(|path| (path.file_name().unwrap().to_str().unwrap().to_owned(), path.join("src")));
    let mut wrong = Vec::new();
    for (name, folder) in crates.chain([("driftless".to_owned(), PathBuf::from("src"))]) {
        let circles = Modules::of(&folder).circles();
        if !circles.is_empty() {
            wrong.push(format!("{name}: {circles:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
