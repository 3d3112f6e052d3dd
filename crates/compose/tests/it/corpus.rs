//! The canonical form of Compose files of other people, compared with the output of the reference parser.
//!
//! The large collection is no part of the repository: `DRIFTLESS_COMPOSE_CORPUS` names its folder, which contains `files`
//! and `expected.jsonl`. A small one with a file for each rule is in `tests/it/canonical`.

use std::{
    collections::{BTreeMap, BTreeSet},
    env, fs,
    path::{Path, PathBuf},
};

use driftless_compose::{load, render};
use driftless_files::AppSpec;
use driftless_model::Finding;
use serde::Deserialize;
use serde_json::Value;

use crate::files;

/// One file, and the output of the reference parser.
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

/// Stands for the folder `files` in the expected models.
const FOLDER: &str = "$CORPUS";

/// The small collection that is part of the repository: a file for each rule.
fn committed() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/it/canonical")
}

fn cases(folder: &Path) -> Vec<Case> {
    let text = fs::read_to_string(folder.join("expected.jsonl")).unwrap();
    text.lines().map(|it| serde_json::from_str(it).unwrap()).collect()
}

fn spec(case: &Case) -> AppSpec {
    let mut variables = case.env.clone();
    variables.insert("COMPOSE_PROJECT_NAME".to_owned(), "proj".to_owned());
    AppSpec { variables, profiles: case.profiles.clone(), ..AppSpec::compose("proj", &[&case.file]) }
}

/// The result of one collection.
#[derive(Default)]
struct Tally {
    all: usize,
    verdicts_agree: usize,
    both_accept: usize,
    models_agree: usize,
    lowered: usize,
    /// Errors of files that both accept, without names, with the number of files.
    refusals: BTreeMap<String, usize>,
    /// By file.
    differences: BTreeMap<String, String>,
}

fn run(folder: &Path) -> Tally {
    let files = files::folder(&folder.join("files"), "");
    let mut tally = Tally::default();
    // The reference parser could not print the model of some files.
    for case in cases(folder).into_iter().filter(|it| it.model.is_some() || it.error.is_some()) {
        let spec = spec(&case);
        let folder = format!("{FOLDER}/{}", spec.path);
        let project = load(&files, &spec, folder.trim_end_matches('/'), None);
        tally.all += 1;
        let errors = || project.findings.iter().filter(|it| it.is_error()).map(Finding::to_string);
        match (&project.model, &case.model) {
            (Some(found), Some(wanted)) => {
                tally.verdicts_agree += 1;
                tally.both_accept += 1;
                let mut differences = Vec::new();
                compare("", found, wanted, &mut differences);
                if differences.is_empty() {
                    tally.models_agree += 1;
                } else {
                    tally.differences.insert(case.file, differences.join("; "));
                }
                let rendered = render(&files, &spec);
                tally.lowered += usize::from(rendered.stack.is_some());
                // A file is counted once for each reason.
                let reasons =
                    rendered.findings.iter().filter(|it| it.is_error()).map(|it| nameless(&it.message));
                for reason in reasons.collect::<BTreeSet<_>>() {
                    *tally.refusals.entry(reason).or_default() += 1;
                }
            }
            (None, None) => tally.verdicts_agree += 1,
            (None, Some(_)) => {
                let errors: Vec<String> = errors().collect();
                tally.differences.insert(case.file, format!("refused: {}", errors.join("; ")));
            }
            (Some(_), None) => {
                let error = case.error.unwrap_or_default();
                tally
                    .differences
                    .insert(case.file, format!("accepted, but the reference refuses it: {error}"));
            }
        }
    }
    tally
}

/// A message without its quoted parts.
fn nameless(message: &str) -> String {
    let parts = message.split('`').enumerate();
    parts.map(|(index, part)| if index % 2 == 0 { part } else { "`…`" }).collect()
}

/// The differences between two values, by path.
fn compare(path: &str, found: &Value, wanted: &Value, differences: &mut Vec<String>) {
    match (found, wanted) {
        (Value::Object(found), Value::Object(wanted)) => {
            let keys: BTreeSet<&String> = found.keys().chain(wanted.keys()).collect();
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
            differences
                .iter()
                .map(|(file, difference)| format!("{file}: {difference}\n"))
                .collect::<String>()
        )
    }
}

#[test]
fn every_rule_of_loading_agrees_with_the_reference() {
    let tally = run(&committed());
    assert!(tally.both_accept >= 15 && tally.all >= tally.both_accept + 10, "{}", tally.report());
    assert_eq!(tally.verdicts_agree, tally.all, "{}", tally.report());
    assert_eq!(tally.models_agree, tally.both_accept, "{}", tally.report());
}

/// The exact set of files that differ, so that no file gets worse unseen. `corpus-differences.txt` has the reasons.
#[test]
#[ignore = "needs DRIFTLESS_COMPOSE_CORPUS, the folder of the collection"]
fn real_files_agree_with_the_reference_but_for_a_list() {
    let folder = env::var_os("DRIFTLESS_COMPOSE_CORPUS")
        .expect("DRIFTLESS_COMPOSE_CORPUS names the folder of the collection");
    let tally = run(Path::new(&folder));
    println!("{}", tally.report());
    let expected = include_str!("corpus-differences.txt").lines().filter(|line| !line.starts_with('#'));
    let found = tally.differences.keys().map(String::as_str);
    assert_eq!(found.collect::<Vec<_>>(), expected.collect::<Vec<_>>(), "{}", tally.report());
    assert!(tally.both_accept > 1000 && tally.all > tally.both_accept, "{}", tally.report());
}
