//! The parser: bytes in, one [`Node`] per document out.
//!
//! Files may come from strangers. Size, number of values, depth and the copies that aliases make are all bounded before
//! anything is built, and nothing here recurses deeper than [`Limits::depth`].

#![allow(clippy::result_large_err, reason = "a finding ends the reading of a file, so its size is paid once")]

use std::{collections::BTreeMap, sync::Arc};

use granit_parser::{ErrorKind, Event, Parser, ScalarStyle, ScanError, Span, Tag};

use crate::{Entry, Kind, Limits, Node, Place};
use driftless_model::{Finding, Location};

/// Parses all documents of a file; empty ones are left out. `file` is the path for findings.
///
/// # Errors
/// The first error of syntax, or the first limit that is exceeded. The rest of the file is not read after an error,
/// because its meaning is unknown. It quotes no line, since the bytes may be those of an encrypted file; see
/// [`with_excerpt`](crate::with_excerpt).
pub fn parse(file: &str, bytes: &[u8], limits: &Limits) -> Result<Vec<Node>, Finding> {
    parse_with(file, bytes, limits, None)
}

/// As [`parse`], but of two equal keys of a map the last one counts, as in go-yaml when it is not strict. `replaced`
/// receives a warning for each key that has no effect.
///
/// # Errors
/// As [`parse`], without those for equal keys.
pub fn parse_last_wins(
    file: &str,
    bytes: &[u8],
    limits: &Limits,
    replaced: &mut Vec<Finding>,
) -> Result<Vec<Node>, Finding> {
    parse_with(file, bytes, limits, Some(replaced))
}

fn parse_with(
    file: &str,
    bytes: &[u8],
    limits: &Limits,
    replaced: Option<&mut Vec<Finding>>,
) -> Result<Vec<Node>, Finding> {
    if bytes.len() > limits.bytes {
        let message = format!("the file has {} bytes; the limit is {}", bytes.len(), limits.bytes);
        return Err(Finding::error(Location::file(file), "", message).help("split it into smaller files"));
    }
    let text = decode(file, bytes)?;
    Builder::new(file, text, limits, replaced).read()
}

/// The text of a file: UTF-8, with or without a byte order mark, without control characters.
fn decode<'a>(file: &str, bytes: &'a [u8]) -> Result<&'a str, Finding> {
    let bytes = bytes.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(bytes);
    let fail = |at: usize, message: String| {
        let before = bytes.get(..at).unwrap_or(bytes);
        let line = before.split(|it| *it == b'\n').count();
        let start = before.iter().rposition(|it| *it == b'\n').map_or(0, |it| it + 1);
        let column = String::from_utf8_lossy(before.get(start..).unwrap_or_default()).chars().count() + 1;
        Finding::error(Location::new(file, number(line), number(column)), "", message)
    };
    let text = std::str::from_utf8(bytes).map_err(|error| {
        fail(error.valid_up_to(), "the file is not UTF-8 text".to_owned()).help("save it as UTF-8")
    })?;
    let control = bytes.iter().position(|it| *it < 0x20 && !matches!(it, b'\t' | b'\n' | b'\r'));
    match control {
        Some(at) => Err(fail(at, "the file contains a control character".to_owned())
            .help("remove it, or write it as an escape such as \"\\x07\" in double quotes")),
        None => Ok(text),
    }
}

/// Builds the trees of one file from the parser's events.
struct Builder<'a> {
    file: Arc<str>,
    /// The content of the file.
    source: &'a str,
    limits: &'a Limits,
    /// Warnings about keys that a later one replaces. `None`: equal keys are an error.
    replaced: Option<&'a mut Vec<Finding>>,
    /// The open maps and lists, outermost first.
    open: Vec<Frame>,
    /// Finished values that have an anchor, by its number.
    anchors: BTreeMap<usize, Node>,
    documents: Vec<Node>,
    /// Values so far, copies included.
    nodes: usize,
    /// Bytes of their text so far.
    bytes: usize,
}

/// A map or list that is not complete yet.
struct Frame {
    place: Place,
    tag: Option<String>,
    anchor: usize,
    content: Content,
}

enum Content {
    Sequence(Vec<Node>),
    Mapping(Mapping),
}

#[derive(Default)]
struct Mapping {
    entries: Vec<Entry>,
    /// The index of each key of a large map. Filled when a key is searched.
    keys: BTreeMap<String, usize>,
    /// The key whose value comes next.
    key: Option<(String, Place, IsMerge)>,
    /// The value of `<<`, with the place of the key.
    merged: Option<(Place, Node)>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum IsMerge {
    Yes,
    No,
}

impl<'a> Builder<'a> {
    fn new(file: &str, source: &'a str, limits: &'a Limits, replaced: Option<&'a mut Vec<Finding>>) -> Self {
        let (open, anchors, documents) = (Vec::new(), BTreeMap::new(), Vec::new());
        Self { file: Arc::from(file), source, limits, replaced, open, anchors, documents, nodes: 0, bytes: 0 }
    }

    fn read(mut self) -> Result<Vec<Node>, Finding> {
        for event in Parser::new_from_str(self.source) {
            let (event, span) = event.map_err(|it| self.syntax_error(&it))?;
            self.take(event, &span)?;
        }
        Ok(self.documents)
    }

    fn take(&mut self, event: Event<'_>, span: &Span) -> Result<(), Finding> {
        let place = self.place(span);
        match event {
            Event::Scalar(text, style, anchor, tag) => {
                let plain = style == ScalarStyle::Plain;
                // The parser writes `~` for a missing value.
                let mut text = if plain && span.is_empty() { String::new() } else { text.into_owned() };
                if matches!(style, ScalarStyle::Literal | ScalarStyle::Folded) {
                    self.end_with_file(&mut text, span);
                }
                self.charge(&place, 1, text.len())?;
                let kind = Kind::Scalar { text, plain };
                self.finish(Node { kind, place, tag: tag.as_deref().map(spelling) }, anchor)
            }
            Event::SequenceStart(_, anchor, tag) => {
                self.start(place, tag.as_deref(), anchor, Content::Sequence(Vec::new()))
            }
            Event::MappingStart(_, anchor, tag) => {
                self.start(place, tag.as_deref(), anchor, Content::Mapping(Mapping::default()))
            }
            Event::SequenceEnd | Event::MappingEnd => self.end(),
            Event::Alias(id) => {
                let Some(node) = self.anchors.get(&id).cloned() else {
                    return Err(error(&place, "the alias refers to the value that contains it")
                        .help("write the value out"));
                };
                let size = Size::of(&node);
                if self.open.len() + size.depth > self.limits.depth {
                    return Err(self.too_deep(&place));
                }
                self.charge(&place, size.nodes, size.bytes)?;
                self.finish(node, 0)
            }
            Event::DocumentStart(..) => {
                self.anchors.clear();
                Ok(())
            }
            // The ends of the stream and of documents, comments, names of anchors.
            _ => Ok(()),
        }
    }

    fn start(
        &mut self,
        place: Place,
        tag: Option<&Tag>,
        anchor: usize,
        content: Content,
    ) -> Result<(), Finding> {
        if self.open.len() >= self.limits.depth {
            return Err(self.too_deep(&place));
        }
        if self.awaits_key() {
            return Err(complex_key(&place));
        }
        self.charge(&place, 1, 0)?;
        self.open.push(Frame { place, tag: tag.map(spelling), anchor, content });
        Ok(())
    }

    fn end(&mut self) -> Result<(), Finding> {
        let Some(Frame { place, tag, anchor, content }) = self.open.pop() else { return Ok(()) };
        let kind = match content {
            Content::Sequence(items) => Kind::Sequence(items),
            Content::Mapping(mapping) => Kind::Mapping(mapping.finish()?),
        };
        self.finish(Node { kind, place, tag }, anchor)
    }

    /// Adds a complete value to the map, list or file that contains it.
    fn finish(&mut self, node: Node, anchor: usize) -> Result<(), Finding> {
        if anchor != 0 {
            // The copy counts too, or anchors nested in anchors would multiply without bound.
            let size = Size::of(&node);
            self.charge(&node.place, size.nodes, size.bytes)?;
            self.anchors.insert(anchor, node.clone());
        }
        match self.open.last_mut().map(|it| &mut it.content) {
            Some(Content::Sequence(items)) => items.push(node),
            Some(Content::Mapping(mapping)) => return mapping.take(node, self.replaced.as_deref_mut()),
            None if node.is_null() => {}
            None => self.documents.push(node),
        }
        Ok(())
    }

    /// Removes the line break that the parser adds to a block scalar at the end of a file without a final line break. Only
    /// line breaks of the file belong to the value, as in go-yaml.
    fn end_with_file(&self, text: &mut String, span: &Span) {
        let Some(written) = span.byte_range().filter(|range| range.end == self.source.len()) else { return };
        let written = self.source.get(written).unwrap_or_default();
        let (before, last) = written.rsplit_once(['\n', '\r']).unwrap_or(("", written));
        let Some(without) = text.strip_suffix('\n').filter(|_| !last.is_empty()) else { return };
        let shown = without.rsplit('\n').next().unwrap_or_default();
        // A last line of spaces belongs to the value if it is indented deeper than the text.
        let is_content = !last.trim().is_empty() || (!shown.is_empty() && shown.trim().is_empty());
        let is_header_only = without.is_empty() && !before.contains(['\n', '\r']);
        if is_content || is_header_only {
            text.pop();
        }
    }

    fn awaits_key(&self) -> bool {
        match self.open.last().map(|it| &it.content) {
            Some(Content::Mapping(mapping)) => mapping.key.is_none(),
            Some(Content::Sequence(_)) | None => false,
        }
    }

    /// Counts values before they are kept.
    fn charge(&mut self, place: &Place, nodes: usize, bytes: usize) -> Result<(), Finding> {
        self.nodes = self.nodes.saturating_add(nodes);
        self.bytes = self.bytes.saturating_add(bytes);
        if self.nodes > self.limits.nodes || self.bytes > self.limits.bytes.saturating_mul(8) {
            let message =
                format!("the file holds more than {} keys and values, aliases expanded", self.limits.nodes);
            return Err(error(place, &message).help("use fewer aliases, or split the file"));
        }
        Ok(())
    }

    fn too_deep(&self, place: &Place) -> Finding {
        error(place, &format!("maps and lists are nested more than {} deep", self.limits.depth))
    }

    fn place(&self, span: &Span) -> Place {
        let start = span.tag_start().filter(|it| it.line() == span.start.line()).unwrap_or(span.start);
        Place { file: self.file.clone(), line: number(start.line()), column: number(start.col() + 1) }
    }

    fn syntax_error(&self, cause: &ScanError) -> Finding {
        let at = cause.marker();
        let location = Location::new(&*self.file, number(at.line()), number(at.col() + 1));
        let (message, help) = explain(cause);
        let finding = Finding::error(location, "", message);
        match help {
            Some(help) => finding.help(help),
            None => finding,
        }
    }
}

impl Mapping {
    fn take(&mut self, node: Node, replaced: Option<&mut Vec<Finding>>) -> Result<(), Finding> {
        match self.key.take() {
            None => self.take_key(node, replaced),
            Some((_, place, IsMerge::Yes)) => {
                if let Some((first, _)) = &self.merged {
                    return Err(defined_twice("<<", &place, first)
                        .help("merge several maps with a list: `<<: [*first, *second]`"));
                }
                check_mergeable(&node)?;
                self.merged = Some((place, node));
                Ok(())
            }
            Some((key, key_place, IsMerge::No)) => {
                let entry = Entry { key, key_place, value: node };
                match self.find(&entry.key) {
                    Some(first) => *first = entry,
                    None => self.entries.push(entry),
                }
                Ok(())
            }
        }
    }

    fn take_key(&mut self, node: Node, replaced: Option<&mut Vec<Finding>>) -> Result<(), Finding> {
        let Kind::Scalar { text, plain } = node.kind else { return Err(complex_key(&node.place)) };
        if text.is_empty() && plain {
            return Err(error(&node.place, "a key is missing before the `:`"));
        }
        let is_merge = if text == "<<" && plain { IsMerge::Yes } else { IsMerge::No };
        if is_merge == IsMerge::No
            && let Some(first) = self.find(&text)
        {
            let Some(replaced) = replaced else {
                return Err(defined_twice(&text, &node.place, &first.key_place).help("remove one of the two"));
            };
            let message = format!("has no effect: `{text}` is defined again at line {}", node.place.line);
            let warning = Finding::warning(first.key_place.location(), text.clone(), message);
            replaced.push(warning.help("join the two"));
        }
        self.key = Some((text, node.place, is_merge));
        Ok(())
    }

    fn find(&mut self, key: &str) -> Option<&mut Entry> {
        /// Below this many keys a linear search is faster than an index.
        const MANY: usize = 16;
        if self.entries.len() < MANY {
            return self.entries.iter_mut().find(|it| it.key == key);
        }
        for (index, entry) in self.entries.iter().enumerate().skip(self.keys.len()) {
            self.keys.insert(entry.key.clone(), index);
        }
        self.keys.get(key).and_then(|it| self.entries.get_mut(*it))
    }

    /// The entries of the complete map. Own keys win over merged ones; of several merged maps, the first wins.
    fn finish(mut self) -> Result<Vec<Entry>, Finding> {
        debug_assert!(self.key.is_none(), "the parser gives every key a value");
        let Some((_, node)) = self.merged.take() else { return Ok(self.entries) };
        let maps = match node.kind {
            Kind::Mapping(map) => vec![map],
            Kind::Sequence(items) => items.into_iter().map(into_entries).collect(),
            Kind::Scalar { .. } => return Err(not_mergeable(&node.place)),
        };
        for entry in maps.into_iter().flatten() {
            if self.find(&entry.key).is_none() {
                self.entries.push(entry);
            }
        }
        Ok(self.entries)
    }
}

/// The cost of a copy of a value.
struct Size {
    nodes: usize,
    bytes: usize,
    /// The depth of nested maps and lists; 0 for a scalar.
    depth: usize,
}

impl Size {
    /// Measures a value. Recurses no deeper than the tree, whose depth is bounded.
    fn of(node: &Node) -> Self {
        let mut size = Self { nodes: 1, bytes: 0, depth: 0 };
        match &node.kind {
            Kind::Scalar { text, .. } => size.bytes = text.len(),
            Kind::Sequence(items) => {
                size.depth = 1;
                for item in items {
                    size.add(&Self::of(item));
                }
            }
            Kind::Mapping(entries) => {
                size.depth = 1;
                for Entry { key, key_place: _, value } in entries {
                    size.bytes = size.bytes.saturating_add(key.len());
                    size.add(&Self::of(value));
                }
            }
        }
        size
    }

    fn add(&mut self, inner: &Self) {
        self.nodes = self.nodes.saturating_add(inner.nodes);
        self.bytes = self.bytes.saturating_add(inner.bytes);
        self.depth = self.depth.max(inner.depth + 1);
    }
}

fn into_entries(node: Node) -> Vec<Entry> {
    match node.kind {
        Kind::Mapping(entries) => entries,
        Kind::Scalar { .. } | Kind::Sequence(_) => Vec::new(),
    }
}

fn check_mergeable(node: &Node) -> Result<(), Finding> {
    let wrong = match &node.kind {
        Kind::Mapping(_) => None,
        Kind::Sequence(items) => items.iter().find(|it| !matches!(it.kind, Kind::Mapping(_))),
        Kind::Scalar { .. } => Some(node),
    };
    wrong.map_or(Ok(()), |it| Err(not_mergeable(&it.place)))
}

fn not_mergeable(place: &Place) -> Finding {
    error(place, "`<<` merges maps only").help("give it an alias of a map, or a list of such aliases")
}

fn complex_key(place: &Place) -> Finding {
    error(place, "a map or list cannot be a key")
        .help("put text that begins with `{` or `[` in quotes; templates such as `{{ … }}` are not rendered")
}

fn defined_twice(key: &str, place: &Place, first: &Place) -> Finding {
    error(place, &format!("`{key}` is already defined at line {}, column {}", first.line, first.column))
}

fn error(place: &Place, message: &str) -> Finding {
    Finding::error(place.location(), "", message)
}

/// A tag of YAML itself as `!!str`, any other as written.
fn spelling(tag: &Tag) -> String {
    tag.core_suffix().map_or_else(|| tag.original(), |it| format!("!!{it}"))
}

/// Message and help for the mistakes that people make; the parser's own words for the rest.
fn explain(cause: &ScanError) -> (String, Option<&'static str>) {
    match cause.kind() {
        ErrorKind::TabNotAllowed
        | ErrorKind::TabInBlockIndentation
        | ErrorKind::TabInIndentation
        | ErrorKind::TabAtBlockScalarStart
        | ErrorKind::TabInPlainScalar => {
            ("a tab is used as indentation".to_owned(), Some("indent with spaces"))
        }
        ErrorKind::UnknownAnchor => (
            "the alias has no anchor".to_owned(),
            Some("define it with `&name` above its use, in the same document"),
        ),
        ErrorKind::RecursionLimitExceeded => ("maps and lists are nested too deep".to_owned(), None),
        ErrorKind::MappingValueNotAllowed => (
            "a `:` is not allowed here".to_owned(),
            Some("check the indentation, or put text that contains `: ` in quotes"),
        ),
        ErrorKind::UnclosedQuotedScalar | ErrorKind::InvalidQuotedScalarIndent => (
            "the quoted text that starts above has no end".to_owned(),
            Some("close the quotes, or indent the lines that belong to it"),
        ),
        ErrorKind::UnexpectedCharacter { character } => {
            (format!("no value can begin with `{character}`"), Some("put the text in quotes"))
        }
        _ => (format!("the file is not valid YAML: {}", cause.info()), None),
    }
}

/// A line or column number. Files are far smaller than the limit of the type.
fn number(value: usize) -> u32 {
    u32::try_from(value).unwrap_or(u32::MAX)
}
