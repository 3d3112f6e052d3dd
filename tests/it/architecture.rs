//! Keeps the shape of the code: floors, front pages and file sizes.

use std::{
    fs,
    path::{Path, PathBuf},
};

/// Lowest first. A module may import from the floors below its own, and itself.
const FLOORS: &[&[&str]] = &[
    &["model"],
    &["clock"],
    &["config", "manifest", "convert", "plan"],
    &["source", "docker", "store", "probe", "proxy", "forge", "report", "webhook"],
    &["controller"],
    &["web"],
    &["cli"],
];

/// Foreign crates that only one module may know.
const ONLY_IN: &[(&str, &str)] = &[
    ("gix", "source"),
    ("bollard", "docker"),
    ("rusqlite", "store"),
    ("axum", "web"),
    ("clap", "cli"),
    ("granit_parser", "manifest"),
];

const LONGEST_FILE: usize = 600;

fn sources(dir: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files.extend(sources(&path));
        } else {
            files.push(path);
        }
    }
    files.sort();
    files
}

/// `src/docker/engine.rs` and `src/docker.rs` both belong to `docker`.
fn module_of(path: &Path) -> String {
    let inside = path.strip_prefix("src").unwrap();
    let first = inside.components().next().unwrap().as_os_str().to_str().unwrap();
    first.trim_end_matches(".rs").to_owned()
}

fn floor_of(module: &str) -> usize {
    let found = FLOORS.iter().position(|floor| floor.contains(&module));
    found.unwrap_or_else(|| panic!("`{module}` has no floor; give it one in {}", file!()))
}

/// The top-level modules named in `crate::…` paths, whether braced or not.
fn imports(source: &str) -> Vec<String> {
    let mut found = Vec::new();
    for rest in source.split("crate::").skip(1) {
        if let Some(group) = rest.strip_prefix('{') {
            let mut depth = 0;
            let mut word = String::new();
            for letter in group.chars() {
                match letter {
                    '{' => depth += 1,
                    '}' if depth == 0 => break,
                    '}' => depth -= 1,
                    ',' => word.clear(),
                    ':' if depth == 0 && !word.is_empty() => found.push(std::mem::take(&mut word)),
                    c if depth == 0 && (c.is_alphanumeric() || c == '_') => word.push(c),
                    _ => {}
                }
            }
        } else {
            found.push(rest.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect());
        }
    }
    found
}

#[test]
fn imports_only_go_down() {
    let mut wrong = Vec::new();
    for path in sources(Path::new("src")) {
        let module = module_of(&path);
        if ["lib", "main"].contains(&module.as_str()) {
            continue;
        }
        for imported in imports(&fs::read_to_string(&path).unwrap()) {
            if imported != module && floor_of(&imported) >= floor_of(&module) {
                wrong.push(format!("{} imports crate::{imported}", path.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "imports against the floors:\n{}", wrong.join("\n"));
}

#[test]
fn each_foreign_crate_stays_behind_its_door() {
    for path in sources(Path::new("src")) {
        let module = module_of(&path);
        let source = fs::read_to_string(&path).unwrap();
        for (foreign, home) in ONLY_IN {
            let knows_it = source.contains(&format!("{foreign}::"));
            assert!(!knows_it || module == *home, "{} may not use {foreign}", path.display());
        }
    }
}

#[test]
fn no_test_file_is_forgotten() {
    let list = fs::read_to_string("tests/it/main.rs").unwrap();
    for path in sources(Path::new("tests/it")).iter().filter(|it| it.extension().is_some_and(|it| it == "rs"))
    {
        let module = path.file_stem().unwrap().to_str().unwrap();
        assert!(module == "main" || list.contains(&format!("mod {module};")), "{module} is not run");
    }
}

#[test]
fn every_file_has_a_front_page_and_an_end() {
    for path in sources(Path::new("src")) {
        let source = fs::read_to_string(&path).unwrap();
        assert!(source.starts_with("//!"), "{} says not what it is for", path.display());
        let lines = source.lines().count();
        assert!(lines <= LONGEST_FILE, "{} has {lines} lines; split it", path.display());
    }
}
