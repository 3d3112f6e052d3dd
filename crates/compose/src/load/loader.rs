//! The state of one loading: files that were read and parsed, findings, and the limits that are left.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use driftless_files::{Files, LARGEST_MANIFEST};
use driftless_model::{Finding, Location};
use driftless_yaml::{Limits, Node, parse};

use crate::{
    load::variables::{Progress, Variables},
    spec::tree,
};

/// The most keys and values that the files of one application may have together. A file counts as often as it is used.
const MOST_NODES: usize = 1_000_000;

/// The most ports of an application: all port numbers.
const MOST_PORTS: usize = 65_536;

/// The folder and the variables of a file.
pub(crate) struct Scope<'s> {
    /// The folder of relative paths, from the repository's root.
    pub(crate) folder: &'s str,
    pub(crate) variables: &'s Variables,
}

/// The extent to which a file is processed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Depth {
    /// All of it.
    Whole,
    /// One of its services, which is checked as part of the file that extends it.
    Part,
}

/// The state while the files of one application are loaded.
pub(crate) struct Loader<'a> {
    pub(crate) files: &'a dyn Files,
    pub(crate) findings: Vec<Finding>,
    /// The bytes of the files, for excerpts.
    pub(crate) sources: BTreeMap<String, Arc<[u8]>>,
    /// Documents by path. `None`: the file cannot be read, which was reported.
    parsed: BTreeMap<String, Option<Vec<Node>>>,
    /// The files that were used.
    used: BTreeSet<String>,
    pub(crate) progress: Progress,
    /// The number of keys and values that may still be used. `None`: there were too many, which was reported.
    nodes_left: Option<usize>,
    /// The number of findings at the moment when a limit was exceeded. Later ones are about values that were left out.
    true_findings: Option<usize>,
    /// The number of ports that ranges may still expand to.
    pub(crate) ports_left: usize,
    /// Variables from the `.env` of included files that configs and secrets need.
    pub(crate) included_variables: Variables,
    /// Values from the encrypted `.env` of included files.
    pub(crate) secret_values: BTreeSet<String>,
}

impl<'a> Loader<'a> {
    pub(crate) fn new(files: &'a dyn Files, progress: Progress, findings: Vec<Finding>) -> Self {
        Self {
            files,
            findings,
            sources: BTreeMap::new(),
            secret_values: BTreeSet::new(),
            parsed: BTreeMap::new(),
            used: BTreeSet::new(),
            progress,
            nodes_left: Some(MOST_NODES),
            true_findings: None,
            ports_left: MOST_PORTS,
            included_variables: Variables::default(),
        }
    }

    /// `name:` of the last document that has one.
    pub(crate) fn given_name(&mut self, manifests: &[String]) -> Option<Node> {
        let mut given = None;
        for path in manifests {
            let documents = self.documents(path).map(Vec::as_slice).unwrap_or_default().iter();
            let last = documents.filter_map(|it| it.get("name")).rfind(|it| !it.is_null());
            given = last.cloned().or(given);
        }
        given
    }

    /// Whether one of these files cannot be read, which was reported.
    pub(crate) fn has_unreadable(&mut self, manifests: &[String]) -> bool {
        manifests.iter().any(|path| self.documents(path).is_none())
    }

    /// The documents of a file.
    fn documents(&mut self, path: &str) -> Option<&Vec<Node>> {
        if !self.parsed.contains_key(path) {
            let documents = self.parse(path);
            self.parsed.insert(path.to_owned(), documents);
        }
        self.parsed.get(path).and_then(Option::as_ref)
    }

    fn parse(&mut self, path: &str) -> Option<Vec<Node>> {
        let bytes = match self.files.read(path, LARGEST_MANIFEST) {
            Ok(bytes) => bytes,
            Err(error) => {
                self.findings.push(Finding::error(Location::file(path), "", error.to_string()));
                return None;
            }
        };
        let parsed = parse(path, &bytes, &Limits::default());
        // Lines of an encrypted file are not quoted in findings.
        let quotable = if self.files.is_encrypted(path) { Arc::default() } else { bytes };
        self.sources.insert(path.to_owned(), quotable);
        match parsed {
            Ok(mut documents) => {
                documents.retain(|it| !it.is_null());
                Some(documents)
            }
            Err(finding) => {
                self.findings.push(finding);
                None
            }
        }
    }

    /// The documents of a file, if the limits allow them.
    pub(crate) fn take(&mut self, path: &str) -> Vec<Node> {
        let is_first = self.used.insert(path.to_owned());
        if self.documents(path).is_none() {
            return Vec::new();
        }
        // Most files are used once, so only further uses make a copy.
        let documents = if is_first { self.parsed.remove(path) } else { self.parsed.get(path).cloned() };
        let documents = documents.flatten().unwrap_or_default();
        let size = documents.iter().map(tree::weight).sum();
        if self.charge(size, &Location::file(path)) { documents } else { Vec::new() }
    }

    /// Whether a limit was exceeded, so that the project is incomplete. Drops the findings that follow from it.
    pub(crate) fn drop_untrue_findings(&mut self) -> bool {
        if let Some(count) = self.true_findings {
            self.findings.truncate(count);
        }
        self.true_findings.is_some()
    }

    /// Adds findings of a later step, but none about a value that has an error or lacks a part because of one.
    pub(crate) fn add(&mut self, findings: Vec<Finding>) {
        // A file can be used very often, so that there are many errors and many calls, most of them without a finding.
        let places: BTreeSet<&Location> = findings.iter().map(|finding| &finding.location).collect();
        if places.is_empty() {
            return;
        }
        let is_at_place = |error: &&Finding| error.is_error() && places.contains(&error.location);
        let errors = self.findings.iter().filter(is_at_place).map(|error| &error.location);
        let incomplete =
            places.iter().copied().filter(|place| self.progress.incomplete_places.contains(*place));
        let reported: BTreeSet<Location> = errors.chain(incomplete).cloned().collect();
        self.findings.extend(findings.into_iter().filter(|finding| !reported.contains(&finding.location)));
    }

    /// Counts keys and values; a long text counts as several. False: there are too many, which is reported.
    pub(crate) fn charge(&mut self, nodes: usize, location: &Location) -> bool {
        let Some(before) = self.nodes_left else { return false };
        self.nodes_left = before.checked_sub(nodes);
        if self.nodes_left.is_none() {
            let message = "the files of the application have too many keys and values together";
            let finding = Finding::error(location.clone(), "", message);
            self.findings.push(finding.help("include and extend less, or split the application"));
            self.true_findings = Some(self.findings.len());
        }
        self.nodes_left.is_some()
    }
}

/// The names along a cycle, from where it starts to where it closes.
pub(crate) fn cycle(trail: &[String], back_to: &str) -> String {
    let start = trail.iter().position(|it| it == back_to).unwrap_or_default();
    let names = trail.iter().skip(start).map(String::as_str).chain([back_to]);
    names.collect::<Vec<_>>().join(" → ")
}

#[cfg(test)]
mod tests {
    use driftless_files::MemoryFiles;

    use super::*;

    #[test]
    fn many_errors_do_not_delay_later_steps() {
        const COUNT: u32 = 20_000;
        let files = MemoryFiles::default();
        let error = |line: u32| Finding::error(Location::new("compose.yaml", line, 1), "", "is missing");
        let mut loader = Loader::new(&files, Progress::default(), (0..COUNT).map(error).collect());
        loader.progress.incomplete_places = (COUNT..2 * COUNT).map(|line| error(line).location).collect();
        // To copy all places in each call takes minutes.
        for _ in 0..COUNT {
            loader.add(Vec::new());
        }
        let places = [0, COUNT - 1, COUNT, 2 * COUNT - 1, 2 * COUNT];
        loader.add(places.map(error).to_vec());
        assert_eq!(loader.findings.len(), COUNT as usize + 1, "{:?}", loader.findings.last());
        assert_eq!(loader.findings.last(), Some(&error(2 * COUNT)));
    }

    #[test]
    fn exceeded_budget_is_reported_once_at_any_remainder() {
        for remainder in [0, 1, 5] {
            let files = MemoryFiles::default();
            let mut loader = Loader::new(&files, Progress::default(), Vec::new());
            let location = Location::file("a.yaml");
            assert!(loader.charge(MOST_NODES - remainder, &location) && loader.charge(0, &location));
            assert!(loader.findings.is_empty());
            assert!(!loader.charge(remainder + 1, &location) && !loader.charge(0, &location));
            assert!(loader.findings.len() == 1 && loader.findings[0].is_error(), "{remainder}");
        }
    }
}
