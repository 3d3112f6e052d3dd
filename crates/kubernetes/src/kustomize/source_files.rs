//! Reads files, documents and objects for one build, and counts how much was read.

use std::{collections::BTreeMap, sync::Arc};

use super::{gaps::Gaps, settings::LocatedText};
use crate::reader::Report;
use driftless_files::{Files, paths};
use driftless_model::{Finding, Location};
use driftless_yaml as yaml;
use driftless_yaml::edit;
use driftless_yaml::{Limits, Node, Place, edit::is_mapping, edit::move_to};

/// The most keys and values that one build reads.
const MOST_NODES: usize = 1_000_000;

/// The files of the repository, as far as a build reads them.
pub(super) struct SourceFiles<'a> {
    pub(super) files: &'a dyn Files,
    pub(super) report: &'a Report,
    /// All files that were read, by path.
    pub(super) read: BTreeMap<String, Arc<[u8]>>,
    pub(super) gaps: Gaps,
    nodes: usize,
}

impl<'a> SourceFiles<'a> {
    pub(super) fn new(files: &'a dyn Files, report: &'a Report) -> Self {
        Self { files, report, read: BTreeMap::new(), gaps: Gaps::default(), nodes: 0 }
    }

    /// Resolves a path that a kustomization in `folder` names. The result is relative to the repository's root.
    pub(super) fn locate(&mut self, located: &LocatedText, folder: &str) -> Option<String> {
        let text = located.text.as_str();
        if is_remote(text) {
            // The text is not quoted, because a URL may contain a password.
            let finding = located.error("is remote, and a build downloads nothing");
            self.report.say(
                finding.help("copy it into this repository, or add it as a submodule, and name its path"),
            );
            return None;
        }
        let found = paths::join(folder, text).filter(|_| !text.starts_with('/'));
        if found.is_none() {
            self.gaps.add_path(text);
            let finding = located.error(format!("`{text}` is outside of the repository"));
            self.report.say(
                finding
                    .help("name a path inside the repository, relative to the folder of the kustomization"),
            );
        }
        found
    }

    /// Remembers that a kustomization file was not understood.
    pub(super) fn add_gap(&mut self, kustomization: &str) {
        self.gaps.add_file(self.read.get(kustomization).map(AsRef::as_ref));
    }

    /// Reads a file that a kustomization in `folder` names. Returns its path from the repository's root too.
    pub(super) fn file(&mut self, located: &LocatedText, folder: &str) -> Option<(String, Arc<[u8]>)> {
        let path = self.locate(located, folder)?;
        match self.files.read(&path, Limits::default().bytes as u64) {
            Ok(bytes) => {
                // Its lines may be values, and are quoted only once it is parsed.
                self.read.entry(path.clone()).or_default();
                Some((path, bytes))
            }
            Err(error) => {
                self.gaps.add_path(&located.text);
                self.report.say(located.error(error.to_string()));
                None
            }
        }
    }

    pub(super) fn parse(&mut self, path: &str, bytes: &Arc<[u8]>) -> Option<Vec<Node>> {
        self.take_parsed(path, bytes, yaml::parse(path, bytes, &Limits::default()))
    }

    /// Parses a kustomization. kustomize lets the last of two equal keys count, and only there.
    pub(super) fn parse_kustomization(&mut self, path: &str, bytes: &Arc<[u8]>) -> Option<Vec<Node>> {
        let mut replaced = Vec::new();
        let parsed = yaml::parse_last_wins(path, bytes, &Limits::default(), &mut replaced);
        for finding in replaced {
            self.report.say(finding);
        }
        self.take_parsed(path, bytes, parsed)
    }

    fn take_parsed(
        &mut self,
        path: &str,
        bytes: &Arc<[u8]>,
        parsed: Result<Vec<Node>, Finding>,
    ) -> Option<Vec<Node>> {
        self.read.insert(path.to_owned(), crate::quoting::quotable(self.files, path, bytes));
        match parsed {
            Ok(documents) => {
                self.nodes += documents.iter().map(edit::size).sum::<usize>();
                if self.nodes <= MOST_NODES {
                    return Some(documents);
                }
                let message = format!("more than {MOST_NODES} keys and values are read for one application");
                self.report.say(Finding::error(Location::file(path), "", message));
            }
            Err(finding) => self.report.say(finding),
        }
        None
    }

    /// Parses documents inside a kustomization. In a literal block every value has its own place.
    pub(super) fn inline(&mut self, located: &LocatedText) -> Option<Vec<Node>> {
        let shift = self.read.get(&*located.place.file).and_then(|it| Shift::of(located, it));
        let place =
            |inner: &Place| shift.map_or_else(|| located.place.clone(), |it| it.place(located, inner));
        match yaml::parse(&located.place.file, located.text.as_bytes(), &Limits::default()) {
            Ok(mut documents) => {
                for document in &mut documents {
                    move_to(document, &place);
                }
                self.nodes += documents.iter().map(edit::size).sum::<usize>();
                Some(documents)
            }
            Err(mut finding) => {
                let Location { line, column, .. } = finding.location;
                finding.location =
                    place(&Place { file: located.place.file.clone(), line, column }).location();
                self.report.say(finding);
                None
            }
        }
    }

    /// The objects of documents, including those in Lists. Each needs a kind and a name.
    pub(super) fn objects(&self, documents: Vec<Node>) -> Option<Vec<Node>> {
        let mut found = Vec::new();
        let mut is_whole = true;
        for document in documents {
            is_whole &= self.collect(document, "", &mut found);
        }
        is_whole.then_some(found)
    }

    fn collect(&self, node: Node, path: &str, found: &mut Vec<Node>) -> bool {
        if !is_mapping(&node) {
            self.report.say(
                node.finding(path, format!("must be a Kubernetes object, but it is a {}", node.kind_name())),
            );
            return false;
        }
        let word = |node: Option<&Node>| {
            node.and_then(Node::as_scalar).filter(|it| !it.is_empty()).map(str::to_owned)
        };
        let Some(kind) = word(node.get("kind")) else {
            self.report.say(
                node.finding(yaml::join(path, "kind"), "`kind` is missing")
                    .help("such as `kind: Deployment`"),
            );
            return false;
        };
        if kind.ends_with("List")
            && let Some(items) = node.get("items")
        {
            let items = items.items().to_vec();
            let within = |index| yaml::join(path, &format!("items[{index}]"));
            return items
                .into_iter()
                .enumerate()
                .fold(true, |is_whole, (index, it)| self.collect(it, &within(index), found) && is_whole);
        }
        if word(node.get("metadata").and_then(|it| it.get("name"))).is_none() {
            let path = yaml::join(path, "metadata.name");
            let finding = node.finding(path, format!("the {kind} has no name"));
            self.report.say(finding.help("give it `metadata.name`"));
            return false;
        }
        found.push(node);
        true
    }
}

/// Whether the text is a URL or another remote address of Git.
fn is_remote(text: &str) -> bool {
    let first = text.split('/').next().unwrap_or_default();
    first.contains([':', '@'])
        || ["://", "?ref=", "?version=", ".git/", ".git?"].iter().any(|it| text.contains(it))
        || text.rsplit_once('.').is_some_and(|(_, end)| end == "git")
        || matches!(first, "github.com" | "gitlab.com" | "bitbucket.org")
}

/// Converts places inside a literal block to places of its file.
#[derive(Clone, Copy)]
struct Shift {
    line: u32,
    column: u32,
}

impl Shift {
    /// `None`: the lines of the text are not the lines of the file.
    fn of(located: &LocatedText, source: &[u8]) -> Option<Self> {
        let lines: Vec<&str> = std::str::from_utf8(source).ok()?.lines().collect();
        // The text begins below its `|`.
        let above = lines.get(..(located.place.line as usize).checked_sub(1)?)?;
        let header = above.iter().rposition(|it| !it.trim().is_empty())?;
        let words = lines.get(header)?;
        let words = words.split_once(" #").map_or(*words, |(before, _)| before);
        let mark = words.split_whitespace().next_back()?.strip_prefix('|')?;
        if !mark.chars().all(|it| it.is_ascii_digit() || matches!(it, '+' | '-')) {
            return None;
        }
        let (index, line) = located.text.lines().enumerate().find(|(_, it)| !it.trim().is_empty())?;
        let blanks = |it: &str| it.len() - it.trim_start_matches(' ').len();
        let column = blanks(lines.get(header + 1 + index)?).checked_sub(blanks(line))?;
        Some(Self { line: u32::try_from(header + 1).ok()?, column: u32::try_from(column).ok()? })
    }

    fn place(self, located: &LocatedText, inner: &Place) -> Place {
        Place {
            file: located.place.file.clone(),
            line: self.line.saturating_add(inner.line),
            column: self.column.saturating_add(inner.column),
        }
    }
}
