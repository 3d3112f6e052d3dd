//! The environment and the labels of a service, from `env_file`, `environment` and `label_file`.

use std::collections::{BTreeMap, BTreeSet};

use driftless_files::Files;
use driftless_model::Finding;

use crate::{
    load::{
        dotenv::Assignment,
        texts::Texts,
        variables::{Variables, read_assignments},
    },
    read::types::{EnvFile, Service},
    spec::{env_format::EnvFormat, paths, value::Placed},
};

/// The way for a file that Git does not have.
pub(super) const MISSING_HELP: &str = "encrypt the file in Git, or give it to the agent by `valuesFrom` with this `path`: \
                            docs/secrets.md#values-that-lie-on-the-host-valuesfrom; `validate` and `preview` take `--host-file`";

/// The way for a file of the host.
const OUTSIDE_HELP: &str = "name a file next to this one, such as `./app.env`, and encrypt it in Git, or give it to the agent by \
                            `valuesFrom` with its `path`: docs/secrets.md#values-that-lie-on-the-host-valuesfrom";

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
    for env_file in &service.env_files {
        let EnvFile { path, required, format: _ } = &env_file.value;
        if !required && is_outside(folder, path) {
            let message = format!("`{path}` is outside of the repository, so it is never read");
            findings.push(env_file.warning(message).help(OUTSIDE_HELP));
            continue;
        }
        match read_env_file(variables, files, folder, env_file, service, texts, &environment.values) {
            Ok(found) => {
                let path = paths::join(folder, &env_file.value.path);
                if path.is_some_and(|path| files.is_encrypted(&path)) {
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
        environment.values.insert(pair.name.clone(), value);
    }
    environment
}

/// The labels of a `label_file`, which has the syntax of an `env_file`.
#[expect(clippy::result_large_err, reason = "findings are rare")]
pub(crate) fn label_file(
    variables: &Variables,
    files: &dyn Files,
    folder: &str,
    file: &Placed<EnvFile>,
    texts: &Texts,
) -> Result<BTreeMap<String, String>, Finding> {
    let path = &file.value.path;
    let inside = paths::join(folder, path).filter(|_| !path.starts_with(['/', '~']));
    let Some(resolved) = inside else {
        return Err(file.error(format!("`{path}` is outside of the repository")));
    };
    let lookup = |name: &str| variables.get(name).map(str::to_owned);
    let found = read_assignments(files, &resolved, EnvFormat::Compose, &lookup, texts)?
        .ok_or_else(|| file.error(format!("`{resolved}` does not exist in the repository")))?;
    Ok(found.into_iter().map(|it| (it.name, it.value.unwrap_or_default())).collect())
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
) -> Result<BTreeMap<String, Option<String>>, Finding> {
    let EnvFile { path, required, format } = &env_file.value;
    let resolved = match paths::join(folder, path) {
        Some(resolved) if !is_outside(folder, path) => resolved,
        Some(_) | None => {
            let message = format!("`{path}` is outside of the repository");
            return Err(env_file.error(message).help(OUTSIDE_HELP));
        }
    };
    let own = |name: &str| service.environment.iter().rev().find(|it| it.name == name);
    let lookup = |name: &str| {
        let own = || own(name).and_then(|it| it.value.clone());
        let before = || before.get(name).cloned().flatten();
        variables.get(name).map(str::to_owned).or_else(own).or_else(before)
    };
    match read_assignments(files, &resolved, *format, &lookup, texts)? {
        Some(found) => {
            let set = |Assignment { name, value }| {
                let value = value.or_else(|| variables.get(&name).map(str::to_owned));
                value.map(|value| (name, Some(value)))
            };
            Ok(found.into_iter().filter_map(set).collect())
        }
        None if *required => {
            let message = format!("`{resolved}` does not exist in the repository");
            Err(env_file.error(message).help(MISSING_HELP))
        }
        None => Ok(BTreeMap::new()),
    }
}
