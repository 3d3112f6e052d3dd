//! Compose files of other people, and the reference parser's reading of each: who accepts them, and what comes out.
//!
//! The large collection is no part of the repository: `DRIFTLESS_COMPOSE_CORPUS` names its folder, which holds `files`
//! and `expected.jsonl`. A small one, with a file for each rule, is in `tests/it/canonical`.

use std::{collections::BTreeMap, env, fs, path::PathBuf};

use driftless_compose as compose;
use driftless_files::AppSpec;
use driftless_git::Directory;
use driftless_manifest::render;
use driftless_model::{Finding, Format};
use serde::Deserialize;
use serde_json::Value;

/// One file, and what the reference parser makes of it.
#[derive(Deserialize)]
struct Case {
    file: String,
    #[serde(default)]
    env: BTreeMap<String, String>,
    #[serde(default)]
    model: Option<Value>,
    #[serde(default)]
    error: Option<String>,
    #[serde(default)]
    profiles: Vec<String>,
}

/// What stands in the expected models for the folder `files`.
const FOLDER: &str = "$CORPUS";

/// The large collection, where there is one.
fn collection() -> Option<PathBuf> {
    if let Some(named) = env::var_os("DRIFTLESS_COMPOSE_CORPUS") {
        return Some(named.into());
    }
    let beside = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../shared/corpus/compose");
    beside.join("expected.jsonl").exists().then_some(beside)
}

/// The small collection that is part of the repository: a file for each rule.
fn committed() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/it/canonical")
}

fn cases(folder: &std::path::Path) -> Vec<Case> {
    let text = fs::read_to_string(folder.join("expected.jsonl")).unwrap();
    text.lines().map(|it| serde_json::from_str(it).unwrap()).collect()
}

fn spec(case: &Case) -> AppSpec {
    let mut variables = case.env.clone();
    variables.insert("COMPOSE_PROJECT_NAME".to_owned(), "proj".to_owned());
    AppSpec {
        name: "proj".into(),
        path: case.file.rsplit_once('/').map_or("", |(folder, _)| folder).to_owned(),
        format: Format::Compose,
        files: vec![case.file.clone()],
        variables,
        profiles: case.profiles.clone(),
        env_files: Vec::new(),
        has_listed_files: true,
    }
}

/// What came of one collection.
#[derive(Default)]
struct Tally {
    all: usize,
    verdicts_agree: usize,
    both_accept: usize,
    models_agree: usize,
    lowered: usize,
    /// Why files that both accept cannot be run here, without the names in it.
    refusals: BTreeMap<String, usize>,
    differences: Vec<String>,
}

fn run(folder: &std::path::Path) -> Tally {
    let files = Directory::open(&folder.join("files")).unwrap();
    let mut tally = Tally::default();
    // A file whose model could not be written down says nothing.
    for case in cases(folder).into_iter().filter(|it| it.model.is_some() || it.error.is_some()) {
        let spec = spec(&case);
        let folder = format!("{FOLDER}/{}", spec.path);
        let project = compose::project(&files, &spec, folder.trim_end_matches('/'), None);
        tally.all += 1;
        let told = || project.findings.iter().filter(|it| it.is_error()).map(Finding::to_string);
        match (&project.model, &case.model) {
            (Some(found), Some(wanted)) => {
                tally.verdicts_agree += 1;
                tally.both_accept += 1;
                let mut differences = Vec::new();
                compare("", found, wanted, &mut differences);
                if differences.is_empty() {
                    tally.models_agree += 1;
                } else {
                    tally.differences.push(format!("{}: {}", case.file, differences.join("; ")));
                }
                let rendered = render(&files, &spec);
                tally.lowered += usize::from(rendered.stack.is_some());
                // A file is counted once for each reason.
                let reasons =
                    rendered.findings.iter().filter(|it| it.is_error()).map(|it| nameless(&it.message));
                for reason in reasons.collect::<std::collections::BTreeSet<_>>() {
                    *tally.refusals.entry(reason).or_default() += 1;
                }
            }
            (None, None) => tally.verdicts_agree += 1,
            (None, Some(_)) => {
                let told: Vec<String> = told().collect();
                tally.differences.push(format!("{}: refused: {}", case.file, told.join("; ")));
            }
            (Some(_), None) => {
                let error = case.error.unwrap_or_default();
                tally.differences.push(format!("{}: accepted, though: {error}", case.file));
            }
        }
    }
    tally
}

/// A message without what stands in it between quotes.
fn nameless(message: &str) -> String {
    let parts = message.split('`').enumerate();
    parts.map(|(index, part)| if index % 2 == 0 { part } else { "`…`" }).collect()
}

/// What differs between two values, by path.
fn compare(path: &str, found: &Value, wanted: &Value, differences: &mut Vec<String>) {
    match (found, wanted) {
        (Value::Object(found), Value::Object(wanted)) => {
            let keys: std::collections::BTreeSet<&String> = found.keys().chain(wanted.keys()).collect();
            for key in keys {
                let path = format!("{path}.{key}");
                match (found.get(key), wanted.get(key)) {
                    (Some(found), Some(wanted)) => compare(&path, found, wanted, differences),
                    (Some(found), None) => differences.push(format!("{path} is {found}, not missing")),
                    (None, Some(wanted)) => differences.push(format!("{path} is missing, not {wanted}")),
                    (None, None) => {}
                }
            }
        }
        (Value::Array(found), Value::Array(wanted)) if found.len() == wanted.len() => {
            for (index, (found, wanted)) in found.iter().zip(wanted).enumerate() {
                compare(&format!("{path}[{index}]"), found, wanted, differences);
            }
        }
        (found, wanted) if found == wanted => {}
        (found, wanted) => differences.push(format!("{path} is {found}, not {wanted}")),
    }
}

impl Tally {
    fn report(&self) -> String {
        let Self { all, verdicts_agree, both_accept, models_agree, lowered, refusals, differences } = self;
        let mut refusals: Vec<_> = refusals.iter().map(|(why, count)| format!("{count:5} {why}\n")).collect();
        refusals.sort_by(|one, other| other.cmp(one));
        format!(
            "{verdicts_agree} of {all} verdicts agree, {models_agree} of {both_accept} models are equal, \
             {lowered} can be run\n{}{}",
            refusals.concat(),
            differences.join("\n")
        )
    }
}

#[test]
fn each_rule_of_loading_gives_the_canonical_form() {
    let tally = run(&committed());
    assert!(tally.both_accept >= 15 && tally.all >= tally.both_accept + 10, "{}", tally.report());
    assert_eq!(tally.verdicts_agree, tally.all, "{}", tally.report());
    assert_eq!(tally.models_agree, tally.both_accept, "{}", tally.report());
}

#[test]
fn real_files_are_read_as_the_reference_parser_reads_them() {
    let Some(folder) = collection() else { return };
    let tally = run(&folder);
    println!("{}", tally.report());
    assert!(tally.both_accept > 0 && tally.all > tally.both_accept, "{}", tally.report());
    assert!(tally.verdicts_agree * 100 >= tally.all * 99, "{}", tally.report());
    assert!(tally.models_agree * 100 >= tally.both_accept * 98, "{}", tally.report());
}
