//! The variables of a Compose file: the application's settings, then `.env` in its folder. Never the agent's own
//! environment, because Git alone defines the desired state.

use std::{
    cell::Cell,
    collections::{BTreeMap, BTreeSet},
};

use driftless_files::{AppSpec, Files, HostValues, broken_link, files::Entry};
use driftless_model::{Finding, Location, Mask};
use driftless_yaml::{Kind, Node, Place};

use crate::{
    load::{
        dotenv::{self, Assignment},
        incomplete::Incomplete,
        interpolate::{self, TemplateVariable, interpolate},
        missing_values::{Meaning, Missing, MissingValues, becomes_empty, is_password},
        password_place, path_place,
        texts::Texts,
    },
    spec::{cast::Cast, env_format::EnvFormat, path::Path, paths, tree},
};

/// The way for a file of variables that is a link which cannot be followed, as to a file that Git ignores.
const LINK_HELP: &str = "add the file that it leads to, give it to the agent by `valuesFrom` with this `path`, or remove the link: \
                         docs/secrets.md#values-that-lie-on-the-host-valuesfrom; `validate` and `preview` take `--host-file`";

/// The largest `.env` or `env_file`, in bytes.
const LARGEST_FILE: u64 = 1 << 20;

/// The variable that names a project.
pub(crate) const PROJECT_NAME: &str = "COMPOSE_PROJECT_NAME";

/// The origin of the variable that names the project.
#[derive(Clone)]
pub(crate) struct NameOrigin {
    pub(crate) location: Location,
    /// Whether other applications have the same source.
    pub(crate) is_shared: bool,
}

impl NameOrigin {
    /// The origin in a file of variables. `None`: the file does not name the project.
    fn find(assignments: &[Assignment], file: &str, is_shared: bool) -> Option<Self> {
        let names = |assignment: &&Assignment| assignment.name == PROJECT_NAME && assignment.value.is_some();
        let found = assignments.iter().rfind(names)?;
        Some(Self { location: Location::new(file, found.line, 0), is_shared })
    }
}

/// The variables of one application, or of a project that it includes.
#[derive(Clone, Default)]
pub(crate) struct Variables {
    values: BTreeMap<String, String>,
    /// The names of those from encrypted files and from secret sources on the host.
    secret: BTreeSet<String>,
    /// Those with an incomplete value.
    incomplete: BTreeMap<String, Incomplete>,
    /// `None`: the project has no variable that names it, or that of the settings.
    name_origin: Option<NameOrigin>,
}

/// The state of the interpolation of one application.
#[derive(Default)]
pub(crate) struct Progress {
    /// Unset variables that were reported: each one once.
    warned: BTreeSet<String>,
    /// The unset variables that must not become empty.
    pub(crate) missing_values: MissingValues,
    /// The places of the values into which a secret variable was interpolated.
    pub(crate) secret_places: BTreeSet<Location>,
    /// The places of list items and services that lack a part because of an error that was reported. Other findings about
    /// them follow from it.
    pub(crate) incomplete_places: BTreeSet<Location>,
    pub(crate) texts: Texts,
}

impl Variables {
    /// The variables of the settings, then those of the host, then those of `envFiles`, or else of `.env`.
    pub(crate) fn load(
        files: &dyn Files,
        spec: &AppSpec,
        texts: &Texts,
        findings: &mut Vec<Finding>,
    ) -> Self {
        let mut settings = Self { values: spec.variables.clone(), ..Self::default() };
        settings.add_host_values(&spec.host_values, texts, findings);
        if !spec.env_files.is_empty() {
            return settings.below(files, &spec.env_files, texts, findings);
        }
        settings.with_dotenv(files, &spec.path, texts, findings)
    }

    /// Sets the variables that lie on the host and are not set yet. Of several sources the later one counts.
    fn add_host_values(&mut self, all: &[HostValues], texts: &Texts, findings: &mut Vec<Finding>) {
        let mut found: BTreeMap<String, (String, bool)> = BTreeMap::new();
        let mut incomplete: BTreeMap<String, Incomplete> = BTreeMap::new();
        let mut name_origin = None;
        for HostValues { source, name, text, is_shared, is_secret } in all {
            if let Some(name) = name {
                incomplete.remove(name);
                if name == PROJECT_NAME {
                    name_origin =
                        Some(NameOrigin { location: Location::file(source), is_shared: *is_shared });
                }
                found.insert(name.clone(), (text.to_string(), *is_secret));
                continue;
            }
            let known = |name: &str| {
                let before = || found.get(name).map(|(value, _)| value.clone());
                self.values.get(name).cloned().or_else(before)
            };
            match dotenv::parse(text.as_bytes(), &known, texts) {
                Ok(assignments) => {
                    self.note_incomplete(&assignments, source, &mut incomplete, findings);
                    name_origin = NameOrigin::find(&assignments, source, *is_shared).or(name_origin);
                    let set = assignments.into_iter().filter_map(Assignment::into_pair);
                    let set = set.map(|(name, value)| (name, (value, *is_secret)));
                    found.extend(set.collect::<Vec<_>>());
                }
                Err(error) => {
                    findings.push(error.at(source));
                }
            }
        }
        self.name_origin = name_origin.filter(|_| !self.values.contains_key(PROJECT_NAME));
        for (name, (value, is_secret)) in found {
            if self.values.contains_key(&name) {
                continue;
            }
            if is_secret {
                self.secret.insert(name.clone());
            }
            self.values.insert(name, value);
        }
        self.incomplete.extend(incomplete);
    }

    /// Notes and reports the incomplete values of a file of variables that are not set yet. `found` has those of the files
    /// before.
    fn note_incomplete(
        &self,
        assignments: &[Assignment],
        file: &str,
        found: &mut BTreeMap<String, Incomplete>,
        findings: &mut Vec<Finding>,
    ) {
        for assignment in assignments {
            let Assignment { name, line: _, value: Some(value) } = assignment else { continue };
            if self.values.contains_key(name) {
                continue;
            }
            let known = |name: &str| {
                let known = if self.values.contains_key(name) { &self.incomplete } else { &*found };
                known.get(name).cloned()
            };
            let Some(incomplete) = Incomplete::find(assignment, file, &known) else {
                found.remove(name);
                continue;
            };
            if !value.unset.is_empty() {
                findings.push(incomplete.origin.warning());
            }
            found.insert(name.clone(), incomplete);
        }
    }

    /// These variables, and those of the `.env` in a folder that are not set yet.
    pub(crate) fn with_dotenv(
        &self,
        files: &dyn Files,
        folder: &str,
        texts: &Texts,
        findings: &mut Vec<Finding>,
    ) -> Self {
        let path = paths::join(folder, ".env").unwrap_or_else(|| ".env".to_owned());
        let broken = match files.entry(&path) {
            Ok(Some(Entry::File { .. })) => return self.below(files, &[path], texts, findings),
            Ok(Some(Entry::Folder | Entry::Submodule)) => Ok(None),
            Ok(None) => broken_link(files, &path),
            Err(error) => Err(error),
        };
        match broken {
            Ok(broken) => findings.extend(broken.map(|broken| broken.help(LINK_HELP))),
            Err(error) => findings.push(Finding::error(Location::file(&*path), "", error.to_string())),
        }
        self.clone()
    }

    /// These variables, and those of some files that are not set yet. Of several files the later one counts.
    pub(crate) fn below(
        &self,
        files: &dyn Files,
        paths: &[String],
        texts: &Texts,
        findings: &mut Vec<Finding>,
    ) -> Self {
        let mut found = BTreeMap::new();
        let mut incomplete = BTreeMap::new();
        let mut secret = self.secret.clone();
        let mut name_origin = None;
        for path in paths {
            let lookup = |name: &str| self.values.get(name).or_else(|| found.get(name)).cloned();
            match read_assignments(files, path, EnvFormat::Compose, &lookup, texts) {
                Ok(Some(assignments)) => {
                    self.note_incomplete(&assignments, path, &mut incomplete, findings);
                    name_origin = NameOrigin::find(&assignments, path, false).or(name_origin);
                    let set = assignments.into_iter().filter_map(Assignment::into_pair);
                    let set: Vec<(String, String)> = set.collect();
                    if files.is_encrypted(path) {
                        let names = set.iter().map(|(name, _)| name);
                        secret.extend(names.filter(|name| !self.values.contains_key(*name)).cloned());
                    }
                    found.extend(set);
                }
                Ok(None) => {
                    let message = format!("`{path}` does not exist in the repository");
                    findings.push(Finding::error(Location::file(path), "", message));
                }
                Err(finding) => findings.push(finding),
            }
        }
        if self.values.contains_key(PROJECT_NAME) {
            name_origin.clone_from(&self.name_origin);
        }
        found.extend(self.values.clone());
        incomplete.extend(self.incomplete.clone());
        Self { values: found, secret, incomplete, name_origin }
    }

    /// The secret values, without those that are too short or too common to be looked for.
    pub(crate) fn secret_values(&self) -> impl Iterator<Item = &String> {
        self.secret.iter().filter_map(|name| self.values.get(name)).filter(|value| Mask::is_findable(value))
    }

    /// Whether a variable is from an encrypted file or from a secret source on the host.
    pub(crate) fn is_secret(&self, name: &str) -> bool {
        self.secret.contains(name)
    }

    /// Whether a variable is a secret, or has one in its value.
    pub(crate) fn has_secret(&self, name: &str) -> bool {
        let has_one = |text: &String| self.secret_values().any(|secret| text.contains(secret.trim()));
        self.is_secret(name) || self.values.get(name).is_some_and(has_one)
    }

    /// Sets the variables of others that are not set yet.
    pub(crate) fn add_missing(&mut self, others: Self) {
        let Self { values, secret, mut incomplete, name_origin: _ } = others;
        for (name, value) in values {
            if self.values.contains_key(&name) {
                continue;
            }
            if let Some(incomplete) = incomplete.remove(&name) {
                self.incomplete.insert(name.clone(), incomplete);
            }
            self.values.insert(name, value);
        }
        self.secret.extend(secret);
    }

    /// One of these variables, alone.
    pub(crate) fn only(&self, name: &str) -> Self {
        let value = self.values.get(name).map(|value| (name.to_owned(), value.clone()));
        let secret = self.secret.get(name).cloned();
        let incomplete = self.incomplete(name).map(|incomplete| (name.to_owned(), incomplete.clone()));
        Self {
            values: value.into_iter().collect(),
            secret: secret.into_iter().collect(),
            incomplete: incomplete.into_iter().collect(),
            name_origin: None,
        }
    }

    /// The origin of the variable that names the project. `None`: there is none, or it is one of the settings.
    pub(crate) fn name_origin(&self) -> Option<&NameOrigin> {
        self.name_origin.as_ref()
    }

    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.values.get(name).map(String::as_str)
    }

    /// The value that a service takes by the bare name of a variable.
    pub(crate) fn take(
        &self,
        name: &str,
        place: impl FnOnce() -> Location,
        texts: &Texts,
        findings: &mut Vec<Finding>,
    ) -> Option<String> {
        let value = self.get(name)?;
        match texts.take_variable(name.len() + value.len()) {
            Ok(()) => Some(value.to_owned()),
            Err(error) => {
                findings.extend(error.map(|error| error.at(place(), "")));
                None
            }
        }
    }

    /// As [`Self::take`], at a place of the project's files.
    pub(crate) fn take_at(
        &self,
        name: &str,
        place: &Place,
        progress: &mut Progress,
        findings: &mut Vec<Finding>,
    ) -> Option<String> {
        if let Some(incomplete) = self.incomplete(name).filter(|incomplete| incomplete.is_password) {
            let missing = Missing::Part(incomplete.origin.clone());
            progress.missing_values.record(&place.location(), missing, Meaning::Password);
        }
        self.take(name, || place.location(), &progress.texts, findings)
    }

    /// The remark about a variable whose value is incomplete.
    pub(crate) fn incomplete(&self, name: &str) -> Option<&Incomplete> {
        self.incomplete.get(name)
    }

    pub(crate) fn set(&mut self, name: &str, value: &str) {
        self.incomplete.remove(name);
        self.values.insert(name.to_owned(), value.to_owned());
    }

    /// Interpolates every value of a document. Keys stay as they are.
    pub(crate) fn interpolate(&self, root: &mut Node, progress: &mut Progress, findings: &mut Vec<Finding>) {
        Pass { variables: self, findings, progress }.node(root, &Path::Root, None);
    }

    /// Interpolates one string. An invalid template stays as it is; interpolating the document reports it.
    pub(crate) fn interpolate_text(&self, text: &str) -> String {
        interpolate(text, &|name| self.values.get(name).cloned())
            .map_or_else(|_| text.to_owned(), |it| it.text)
    }
}

/// Reads a file of variables. `None`: the file does not exist.
#[expect(clippy::result_large_err, reason = "findings are rare")]
pub(crate) fn read_assignments(
    files: &dyn Files,
    path: &str,
    format: EnvFormat,
    lookup: interpolate::Lookup<'_>,
    texts: &Texts,
) -> Result<Option<Vec<Assignment>>, Finding> {
    let in_file = |message: String| Finding::error(Location::file(path), "", message);
    match files.entry(path).map_err(|error| in_file(error.to_string()))? {
        Some(Entry::File { .. }) => {}
        Some(Entry::Folder | Entry::Submodule) => return Err(in_file(format!("`{path}` is not a file"))),
        None => {
            let broken = broken_link(files, path).map_err(|error| in_file(error.to_string()))?;
            return broken.map_or(Ok(None), |broken| Err(broken.help(LINK_HELP)));
        }
    }
    let bytes = files.read(path, LARGEST_FILE).map_err(|error| in_file(error.to_string()))?;
    let read = match format {
        EnvFormat::Compose => dotenv::parse(&bytes, lookup, texts),
        EnvFormat::Raw => dotenv::parse_raw(&bytes, texts),
    };
    read.map(Some).map_err(|error| error.at(path))
}

/// One pass over a document.
struct Pass<'a> {
    variables: &'a Variables,
    findings: &'a mut Vec<Finding>,
    progress: &'a mut Progress,
}

impl Pass<'_> {
    /// Interpolates a value and all that is in it. False: a part has an error, which was reported. `before` is the value before
    /// this one in its list.
    fn node(&mut self, node: &mut Node, path: &Path<'_>, before: Option<&Node>) -> bool {
        let mut is_complete = true;
        match &mut node.kind {
            Kind::Mapping(entries) => {
                for entry in entries {
                    is_complete &= self.node(&mut entry.value, &path.key(&entry.key), None);
                }
            }
            Kind::Sequence(items) => {
                for index in 0..items.len() {
                    let (done, rest) = items.split_at_mut(index);
                    if let Some(item) = rest.first_mut()
                        && !self.node(item, &path.index(index), done.last())
                    {
                        self.progress.incomplete_places.insert(item.place.location());
                        is_complete = false;
                    }
                }
            }
            Kind::Scalar { .. } => {
                if tree::as_text(node).is_some() {
                    is_complete = self.substitute(node, path, before);
                    if is_complete {
                        self.cast(node, path);
                    }
                }
            }
        }
        is_complete
    }

    /// Interpolates a value. False: it has an error, which was reported.
    fn substitute(&mut self, node: &mut Node, path: &Path<'_>, before: Option<&Node>) -> bool {
        let Kind::Scalar { text, plain } = &mut node.kind else { return true };
        if !text.contains('$') {
            return true;
        }
        let location = node.place.location();
        let mut error = |message: String| {
            self.findings.push(Finding::error(location.clone(), path.to_string(), message));
            false
        };
        let uses_secret = Cell::new(false);
        let lookup = |name: &str| {
            uses_secret.set(uses_secret.get() || self.variables.has_secret(name));
            self.variables.values.get(name).cloned()
        };
        let done = match interpolate(text, &lookup) {
            Ok(done) => done,
            Err(cause) => return error(cause.to_string()),
        };
        if uses_secret.get() {
            self.progress.secret_places.insert(location.clone());
        }
        if let Err(error) = self.progress.texts.take(done.text.len()) {
            self.findings.extend(error.map(|error| error.at(location, path.to_string())));
            return false;
        }
        // The result is a string, even if it looks like a number.
        *plain = false;
        *text = done.text;
        let before = before.and_then(Node::as_scalar);
        for TemplateVariable { name, at, is_filled } in done.unset {
            let meaning = if is_password(&name) || password_place::is_password(path, before, text, at) {
                Some(Meaning::Password)
            } else if !is_filled && path_place::is_start(path, text, at) {
                Some(Meaning::PathStart)
            } else if path_place::is_source(path, text, at) {
                Some(Meaning::NoSource)
            } else {
                path_place::is_compose_file(path).then_some(Meaning::ComposeFile)
            };
            if let Some(meaning) = meaning {
                self.progress.missing_values.record(&location, Missing::Unset(name.clone()), meaning);
            }
            if self.progress.warned.insert(name.clone()) {
                let warning = Finding::warning(location.clone(), path.to_string(), becomes_empty(&name));
                self.findings.push(warning);
            }
        }
        for TemplateVariable { name, at, is_filled } in done.set {
            let Some(Incomplete { origin, is_password, is_start }) = self.variables.incomplete(&name) else {
                continue;
            };
            let meaning =
                if *is_password || (*is_start && password_place::is_password(path, before, text, at)) {
                    Meaning::Password
                } else if *is_start && !is_filled && path_place::is_start(path, text, at) {
                    Meaning::PathStart
                } else if *is_start && path_place::is_source(path, text, at) {
                    Meaning::NoSource
                } else if path_place::is_compose_file(path) {
                    Meaning::ComposeFile
                } else {
                    continue;
                };
            self.progress.missing_values.record(&location, Missing::Part(origin.clone()), meaning);
        }
        true
    }

    /// Turns the string into a number or boolean where the specification does.
    fn cast(&mut self, node: &mut Node, path: &Path<'_>) {
        let Some(cast) = Cast::at(path) else { return };
        let Kind::Scalar { text, plain } = &mut node.kind else { return };
        let Some(value) = cast.apply(text) else {
            // The value may come from a variable that is secret, so it is not shown.
            let message = format!("must be {}", cast.expected());
            self.findings.push(Finding::error(node.place.location(), path.to_string(), message));
            return;
        };
        if cast == Cast::Boolean && !text.eq_ignore_ascii_case(&value) {
            let message = format!("`{text}` is not a boolean in YAML 1.2; write `{value}`");
            self.findings.push(Finding::warning(node.place.location(), path.to_string(), message));
        }
        *text = value;
        *plain = true;
        node.tag = None;
    }
}
