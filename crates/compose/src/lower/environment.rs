//! The environment and the labels of a service, from `env_file`, `environment` and `label_file`.

use std::collections::{BTreeMap, BTreeSet};

use driftless_files::{Files, broken_link, files::Entry};
use driftless_model::Finding;

use crate::{
    load::{
        dotenv::Assignment,
        incomplete::Incomplete,
        texts::Texts,
        variables::{Variables, read_assignments},
    },
    read::types::{EnvFile, Service},
    spec::{env_format::EnvFormat, paths, value::Placed},
};

/// The words in the names of encrypted files, at the end or before it: `.env.sops`, `db.enc.env`.
const ENCRYPTED: &[&str] = &["sops", "enc", "encrypted", "age"];

/// The way for a file that Git does not have.
const MISSING_HELP: &str = "encrypt the file in Git, or give it to the agent by `valuesFrom` with this `path`: \
                            docs/secrets.md#values-that-lie-on-the-host-valuesfrom; `validate` and `preview` take `--host-file`";

/// The way for a file of the host.
const OUTSIDE_HELP: &str = "name a file next to this one, such as `./app.env`, and encrypt it in Git, or give it to the agent by \
                            `valuesFrom` with its `path`: docs/secrets.md#values-that-lie-on-the-host-valuesfrom";

/// The help for a file that Git does not have. An encrypted file next to it may be meant.
pub(super) fn missing_help(files: &dyn Files, path: &str) -> String {
    let (stem, end) = path.rsplit_once('.').unwrap_or((path, ""));
    let names = ENCRYPTED.iter().flat_map(|word| [format!("{path}.{word}"), format!("{stem}.{word}.{end}")]);
    let mut found = names.filter(|name| matches!(files.entry(name), Ok(Some(Entry::File { .. }))));
    found.next().map_or_else(
        || MISSING_HELP.to_owned(),
        |name| {
            format!(
                "`{name}` is next to it: if SOPS or age encrypted it, name that file here, or rename it; the agent decrypts such files as \
                 it reads them"
            )
        },
    )
}

/// The environment of a service's containers.
#[derive(Default)]
pub(crate) struct Environment {
    /// `None`: the variable is not set.
    pub(crate) values: BTreeMap<String, Option<String>>,
    /// Names of the variables whose value comes from a file that is encrypted in the repository.
    pub(crate) encrypted: BTreeSet<String>,
}

/// The environment of a service's containers: `env_file`, then `environment`. A bare name takes the value of its
/// variable; `None`: the variable is not set.
pub(crate) fn environment(
    variables: &Variables,
    files: &dyn Files,
    folder: &str,
    service: &Service,
    texts: &Texts,
    findings: &mut Vec<Finding>,
) -> Environment {
    let mut environment = Environment::default();
    let mut incomplete = BTreeMap::new();
    for env_file in &service.env_files {
        let EnvFile { path, required, format: _ } = &env_file.value;
        if !required && is_outside(folder, path) {
            let message = format!("`{path}` is outside of the repository, so it is never read");
            findings.push(env_file.warning(message).help(OUTSIDE_HELP));
            continue;
        }
        match read_env_file(variables, files, folder, env_file, service, texts, &environment.values) {
            Ok(assignments) => {
                let path = paths::join(folder, &env_file.value.path).unwrap_or_default();
                note_incomplete(&assignments, &path, variables, &mut incomplete);
                let set = |Assignment { name, value, line: _ }| {
                    let value = value.map(|value| value.text);
                    let value = value.or_else(|| variables.get(&name).map(str::to_owned));
                    value.map(|value| (name, Some(value)))
                };
                let found: BTreeMap<_, _> = assignments.into_iter().filter_map(set).collect();
                if files.is_encrypted(&path) {
                    environment.encrypted.extend(found.keys().cloned());
                }
                environment.values.extend(found);
            }
            Err(finding) => findings.push(finding),
        }
    }
    for pair in &service.environment {
        let place = || service.origin.clone();
        let value = pair.value.clone().or_else(|| variables.take(&pair.name, place, texts, findings));
        environment.encrypted.remove(&pair.name);
        incomplete.remove(&pair.name);
        environment.values.insert(pair.name.clone(), value);
    }
    findings.extend(incomplete.values().map(Incomplete::finding));
    environment
}

/// Notes the incomplete values of an `env_file`. `found` has those of the files before.
fn note_incomplete(
    assignments: &[Assignment],
    path: &str,
    variables: &Variables,
    found: &mut BTreeMap<String, Incomplete>,
) {
    for assignment in assignments {
        let known = |name: &str| match variables.get(name) {
            Some(_) => variables.incomplete(name).cloned(),
            None => found.get(name).cloned(),
        };
        let incomplete = match &assignment.value {
            Some(_) => Incomplete::find(assignment, path, &known),
            None => variables.incomplete(&assignment.name).cloned(),
        };
        match incomplete {
            Some(incomplete) => found.insert(assignment.name.clone(), incomplete),
            // A bare name without a variable leaves the value of an earlier file.
            None if assignment.value.is_none() && variables.get(&assignment.name).is_none() => None,
            None => found.remove(&assignment.name),
        };
    }
}

/// The labels of a `label_file`, which has the syntax of an `env_file`.
#[expect(clippy::result_large_err, reason = "findings are rare")]
pub(crate) fn label_file(
    variables: &Variables,
    files: &dyn Files,
    folder: &str,
    file: &Placed<EnvFile>,
    texts: &Texts,
    findings: &mut Vec<Finding>,
) -> Result<BTreeMap<String, String>, Finding> {
    let path = &file.value.path;
    let inside = paths::join(folder, path).filter(|_| !path.starts_with(['/', '~']));
    let Some(resolved) = inside else {
        return Err(file.error(format!("`{path}` is outside of the repository")));
    };
    let lookup = |name: &str| variables.get(name).map(str::to_owned);
    let found = read_assignments(files, &resolved, EnvFormat::Compose, &lookup, texts)?
        .ok_or_else(|| file.error(format!("`{resolved}` does not exist in the repository")))?;
    let known = |name: &str| variables.incomplete(name).cloned();
    let incomplete = found.iter().filter_map(|assignment| Incomplete::find(assignment, &resolved, &known));
    findings.extend(incomplete.map(|incomplete| incomplete.origin.warning()));
    Ok(found.into_iter().map(|it| (it.name, it.value.unwrap_or_default().text)).collect())
}

/// Whether a path of the host is meant.
fn is_outside(folder: &str, path: &str) -> bool {
    path.starts_with(['/', '~']) || paths::join(folder, path).is_none()
}

#[expect(clippy::result_large_err, reason = "findings are rare")]
fn read_env_file(
    variables: &Variables,
    files: &dyn Files,
    folder: &str,
    env_file: &Placed<EnvFile>,
    service: &Service,
    texts: &Texts,
    before: &BTreeMap<String, Option<String>>,
) -> Result<Vec<Assignment>, Finding> {
    let EnvFile { path, required, format } = &env_file.value;
    let resolved = match paths::join(folder, path) {
        Some(resolved) if !is_outside(folder, path) => resolved,
        Some(_) | None => {
            let message = format!("`{path}` is outside of the repository");
            return Err(env_file.error(message).help(OUTSIDE_HELP));
        }
    };
    // As Docker Compose does: it looks for the file that the link leads to.
    if !*required && matches!(broken_link(files, &resolved), Ok(Some(_))) {
        return Ok(Vec::new());
    }
    let own = |name: &str| service.environment.iter().rev().find(|it| it.name == name);
    let lookup = |name: &str| {
        let own = || own(name).and_then(|it| it.value.clone());
        let before = || before.get(name).cloned().flatten();
        variables.get(name).map(str::to_owned).or_else(own).or_else(before)
    };
    match read_assignments(files, &resolved, *format, &lookup, texts)? {
        Some(found) => Ok(found),
        None if *required => {
            let message = format!("`{resolved}` does not exist in the repository");
            Err(env_file.error(message).help(missing_help(files, &resolved)))
        }
        None => Ok(Vec::new()),
    }
}
