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
    ("clap", "driftless"),
];

/// In lines. A longer file holds more than one subject.
const LONGEST_FILE: usize = 900;

/// All Rust files below a folder, sorted.
fn sources(folder: &Path) -> Vec<PathBuf> {
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
