//! Where a Compose file's variables come from: the application's settings, over `.env` in its folder. Never the
//! agent's own environment, or one host's would leak into what Git says.
//!
//! Also the environment of a container, which is made of `env_file` and `environment`.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    cast::Cast,
    dotenv::{self, Assignment},
    interpolate::{self, interpolate},
    paths,
    reader::{Path, Placed},
    schema::{EnvFile, EnvFormat, Service},
    tree,
};
use driftless_files::{AppSpec, Files, files::Entry};
use driftless_model::{Finding, Location};
use driftless_yaml::{Kind, Node};

/// What one `.env` or `env_file` may hold, in bytes.
const LARGEST_FILE: u64 = 1 << 20;

/// What all of a file's values may grow to, in bytes, when their variables are put in.
const LARGEST_DOCUMENT: usize = 16 << 20;

/// The variables of one application, or of what it includes.
#[derive(Clone, Default)]
pub(super) struct Variables(BTreeMap<String, String>);

/// What is kept while the files of one application are interpolated.
pub(super) struct Progress {
    /// Each unset variable is told of once.
    warned: BTreeSet<String>,
    /// How many bytes may still come out.
    left: usize,
}

impl Default for Progress {
    fn default() -> Self {
        Self { warned: BTreeSet::new(), left: LARGEST_DOCUMENT }
    }
}

impl Variables {
    /// Those of the settings, and what they do not set from the files that the settings name, or else from `.env`.
    pub(super) fn load(files: &dyn Files, spec: &AppSpec, findings: &mut Vec<Finding>) -> Self {
        let settings = Self(spec.variables.clone());
        if !spec.env_files.is_empty() {
            return settings.below(files, &spec.env_files, findings);
        }
        let path = paths::join(&spec.path, ".env").unwrap_or_else(|| ".env".to_owned());
        match files.entry(&path) {
            Ok(Some(Entry::File { .. })) => settings.below(files, &[path], findings),
            Ok(Some(Entry::Folder | Entry::Submodule) | None) => settings,
            Err(error) => {
                findings.push(Finding::error(Location::file(path), "", error.to_string()));
                settings
            }
        }
    }

    /// These, and below them those of some files, of which the later one counts.
    pub(super) fn below(&self, files: &dyn Files, paths: &[String], findings: &mut Vec<Finding>) -> Self {
        let mut found = BTreeMap::new();
        for path in paths {
            let lookup = |name: &str| self.0.get(name).or_else(|| found.get(name)).cloned();
            match read_assignments(files, path, EnvFormat::Compose, &lookup) {
                Ok(Some(assignments)) => {
                    let set = assignments.into_iter().filter_map(|it| Some((it.name, it.value?)));
                    found.extend(set.collect::<Vec<_>>());
                }
                Ok(None) => {
                    let message = format!("`{path}` does not exist in the repository");
                    findings.push(Finding::error(Location::file(path), "", message));
                }
                Err(finding) => findings.push(finding),
            }
        }
        found.extend(self.0.clone());
        Self(found)
    }

    /// Takes over what others have and these have not.
    pub(super) fn set_missing(&mut self, name: &str, value: &str) {
        self.0.entry(name.to_owned()).or_insert_with(|| value.to_owned());
    }

    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    pub(super) fn set(&mut self, name: &str, value: &str) {
        self.0.insert(name.to_owned(), value.to_owned());
    }

    /// Puts the variables into every value of a document. Keys stay as they are.
    pub(super) fn interpolate(&self, root: &mut Node, progress: &mut Progress, findings: &mut Vec<Finding>) {
        Pass { variables: self, findings, progress }.node(root, &Path::Root);
    }

    /// The variables put into one text; a wrong template is left as it is, since it will be told of later.
    pub(super) fn interpolate_text(&self, text: &str) -> String {
        interpolate(text, &|name| self.0.get(name).cloned()).map_or_else(|_| text.to_owned(), |it| it.text)
    }

    /// The environment of a service's containers.
    pub(super) fn environment(
        &self,
        files: &dyn Files,
        folder: &str,
        service: &Service,
        findings: &mut Vec<Finding>,
    ) -> BTreeMap<String, Option<String>> {
        let mut environment = BTreeMap::new();
        for env_file in &service.env_files {
            match self.env_file(files, folder, env_file, service, &environment) {
                Ok(found) => environment.extend(found),
                Err(finding) => findings.push(finding),
            }
        }
        for pair in &service.environment {
            let value = pair.value.clone().or_else(|| self.0.get(&pair.name).cloned());
            environment.insert(pair.name.clone(), value);
        }
        environment
    }

    /// The labels of a file that is written like one of variables.
    #[expect(clippy::result_large_err, reason = "a finding is made rarely, and kept as it is")]
    pub(super) fn label_file(
        &self,
        files: &dyn Files,
        folder: &str,
        file: &Placed<EnvFile>,
    ) -> Result<BTreeMap<String, String>, Finding> {
        let path = &file.value.path;
        let inside = paths::join(folder, path).filter(|_| !path.starts_with(['/', '~']));
        let Some(resolved) = inside else {
            return Err(file.error(format!("`{path}` is outside of the repository")));
        };
        let lookup = |name: &str| self.0.get(name).cloned();
        let found = read_assignments(files, &resolved, EnvFormat::Compose, &lookup)?
            .ok_or_else(|| file.error(format!("`{resolved}` does not exist in the repository")))?;
        Ok(found.into_iter().map(|it| (it.name, it.value.unwrap_or_default())).collect())
    }

    #[expect(clippy::result_large_err, reason = "a finding is made rarely, and kept as it is")]
    fn env_file(
        &self,
        files: &dyn Files,
        folder: &str,
        env_file: &Placed<EnvFile>,
        service: &Service,
        before: &BTreeMap<String, Option<String>>,
    ) -> Result<BTreeMap<String, Option<String>>, Finding> {
        let EnvFile { path, required, format } = &env_file.value;
        let resolved = match paths::join(folder, path) {
            Some(resolved) if !path.starts_with(['/', '~']) => resolved,
            Some(_) | None if !required => return Ok(BTreeMap::new()),
            Some(_) | None => {
                return Err(env_file.error(format!("`{path}` is outside of the repository")));
            }
        };
        let own = |name: &str| service.environment.iter().rev().find(|it| it.name == name);
        let lookup = |name: &str| {
            let own = || own(name).and_then(|it| it.value.clone());
            let before = || before.get(name).cloned().flatten();
            self.0.get(name).cloned().or_else(own).or_else(before)
        };
        match read_assignments(files, &resolved, *format, &lookup)? {
            Some(found) => {
                let set = |it: Assignment| {
                    let value = it.value.or_else(|| self.0.get(&it.name).cloned());
                    value.map(|value| (it.name, Some(value)))
                };
                Ok(found.into_iter().filter_map(set).collect())
            }
            None if *required => {
                Err(env_file.error(format!("`{resolved}` does not exist in the repository")))
            }
            None => Ok(BTreeMap::new()),
        }
    }
}

/// `None` when there is no such file.
#[expect(clippy::result_large_err, reason = "a finding is made rarely, and kept as it is")]
fn read_assignments(
    files: &dyn Files,
    path: &str,
    format: EnvFormat,
    lookup: interpolate::Lookup<'_>,
) -> Result<Option<Vec<Assignment>>, Finding> {
    let as_a_whole = |message: String| Finding::error(Location::file(path), "", message);
    match files.entry(path).map_err(|error| as_a_whole(error.to_string()))? {
        Some(Entry::File { .. }) => {}
        Some(Entry::Folder | Entry::Submodule) => return Err(as_a_whole(format!("`{path}` is no file"))),
        None => return Ok(None),
    }
    let bytes = files.read(path, LARGEST_FILE).map_err(|error| as_a_whole(error.to_string()))?;
    let read = match format {
        EnvFormat::Compose => dotenv::parse(&bytes, lookup),
        EnvFormat::Raw => dotenv::parse_raw(&bytes),
    };
    let at_line = |error: dotenv::Error| {
        Finding::error(Location::new(path, error.line, 0), "", error.cause.to_string())
    };
    read.map(Some).map_err(at_line)
}

/// One walk over a document.
struct Pass<'a> {
    variables: &'a Variables,
    findings: &'a mut Vec<Finding>,
    progress: &'a mut Progress,
}

impl Pass<'_> {
    fn node(&mut self, node: &mut Node, path: &Path<'_>) {
        match &mut node.kind {
            Kind::Mapping(entries) => {
                for entry in entries {
                    self.node(&mut entry.value, &path.key(&entry.key));
                }
            }
            Kind::Sequence(items) => {
                for (index, item) in items.iter_mut().enumerate() {
                    self.node(item, &path.index(index));
                }
            }
            Kind::Scalar { .. } => {
                if tree::as_text(node).is_some() && self.substitute(node, path) {
                    self.cast(node, path);
                }
            }
        }
    }

    /// Puts the variables in; false if that cannot be done.
    fn substitute(&mut self, node: &mut Node, path: &Path<'_>) -> bool {
        let Kind::Scalar { text, plain } = &mut node.kind else { return true };
        if !text.contains('$') {
            return true;
        }
        let location = node.place.location();
        let mut tell = |message: String| {
            self.findings.push(Finding::error(location.clone(), path.to_string(), message));
            false
        };
        let done = match interpolate(text, &|name| self.variables.0.get(name).cloned()) {
            Ok(done) => done,
            Err(error) => return tell(error.to_string()),
        };
        if done.text.len() > self.progress.left {
            self.progress.left = 0;
            return tell("the file's values grow too large when their variables are put in".to_owned());
        }
        self.progress.left -= done.text.len();
        // What came out is text, whatever it looks like.
        *plain = false;
        *text = done.text;
        for name in done.unset {
            if self.progress.warned.insert(name.clone()) {
                let message = format!("the variable `{name}` is not set, so it is empty");
                self.findings.push(Finding::warning(location.clone(), path.to_string(), message));
            }
        }
        true
    }

    /// Takes the text for a number or truth value where the specification does.
    fn cast(&mut self, node: &mut Node, path: &Path<'_>) {
        let Some(cast) = Cast::at(path) else { return };
        let Kind::Scalar { text, plain } = &mut node.kind else { return };
        let Some(value) = cast.apply(text) else {
            // The text may come from a variable, so it is not shown.
            let message = format!("expected {}, found other text", cast.expected());
            self.findings.push(Finding::error(node.place.location(), path.to_string(), message));
            return;
        };
        if cast == Cast::Boolean && !text.eq_ignore_ascii_case(&value) {
            let message = format!("`{text}` is no truth value in YAML 1.2; write `{value}`");
            self.findings.push(Finding::warning(node.place.location(), path.to_string(), message));
        }
        *text = value;
        *plain = true;
        node.tag = None;
    }
}
