//! The images that a Dockerfile names: those that its stages begin from, copy from and mount.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Range,
};

/// The name of an image in a Dockerfile.
#[derive(Clone, Debug, PartialEq, Eq)]
struct ImageName {
    /// With the values of its variables.
    name: String,
    /// Its bytes in the text, as it is written there.
    place: Range<usize>,
}

/// A stage of a Dockerfile.
#[derive(Debug, Default)]
struct Stage {
    /// The name from `AS`, in lower case.
    name: Option<String>,
    /// The images that it begins from, copies from and mounts.
    images: Vec<ImageName>,
    /// The stages that it begins from, copies from and mounts: names in lower case, or numbers.
    sources: Vec<String>,
    /// It names one by a variable without a known value, such as `TARGETARCH`: each earlier stage may be meant.
    has_unknown_source: bool,
}

/// The images of `FROM`, `COPY --from` and `RUN --mount=from`, without stages. A name with a variable counts if the variable is an `ARG`
/// before the first `FROM` with a value, from `args` or by default.
pub fn named_images(dockerfile: &[u8], args: &BTreeMap<String, String>) -> BTreeSet<String> {
    let text = String::from_utf8_lossy(dockerfile);
    image_names(&text, args).into_iter().map(|image| image.name).collect()
}

/// As [`named_images`], but without those of stages that are not needed for the target, which `BuildKit` does not build. No target stands for
/// the last stage.
pub fn images_of_target(
    dockerfile: &[u8],
    args: &BTreeMap<String, String>,
    target: Option<&str>,
) -> BTreeSet<String> {
    let text = String::from_utf8_lossy(dockerfile);
    let stages = stages(&text, args);
    let needed = needed_stages(&stages, target);
    let needed = stages.into_iter().enumerate().filter(|(number, _)| needed.contains(number));
    needed.flat_map(|(_, stage)| stage.images).map(|image| image.name).collect()
}

/// As [`named_images`], but without those of stages after the target: the classic builder builds all before it.
pub fn images_up_to_target(
    dockerfile: &[u8],
    args: &BTreeMap<String, String>,
    target: Option<&str>,
) -> BTreeSet<String> {
    let text = String::from_utf8_lossy(dockerfile);
    let stages = stages(&text, args);
    let count = target_stages(&stages, target).last().map_or(0, |last| last + 1);
    stages.into_iter().take(count).flat_map(|stage| stage.images).map(|image| image.name).collect()
}

/// The Dockerfile with other images in place of these.
pub fn with_images(
    dockerfile: &[u8],
    args: &BTreeMap<String, String>,
    images: &BTreeMap<String, String>,
) -> Vec<u8> {
    let text = String::from_utf8_lossy(dockerfile);
    let mut replaced = String::with_capacity(text.len());
    let mut end = 0;
    for ImageName { name, place } in image_names(&text, args) {
        if let Some(image) = images.get(&name) {
            replaced.push_str(&text[end..place.start]);
            replaced.push_str(image);
            end = place.end;
        }
    }
    replaced.push_str(&text[end..]);
    replaced.into_bytes()
}

fn image_names(text: &str, args: &BTreeMap<String, String>) -> Vec<ImageName> {
    stages(text, args).into_iter().flat_map(|stage| stage.images).collect()
}

impl Stage {
    /// Notes what the stage begins from: the word in the text, and its name with the values of its variables.
    fn begin_from(&mut self, word: Word<'_>, name: Option<String>, earlier: &[Self]) {
        let Some(name) = name else {
            self.has_unknown_source = true;
            return;
        };
        let lower = name.to_lowercase();
        if earlier.iter().any(|stage| stage.name.as_ref() == Some(&lower)) {
            self.sources.push(lower);
        } else {
            self.images.push(ImageName { name, place: word.place() });
        }
    }
}

fn stages(text: &str, args: &BTreeMap<String, String>) -> Vec<Stage> {
    let instructions = instructions(text);
    let all_names: BTreeSet<String> = instructions.iter().filter_map(|words| stage_of(words)).collect();
    let (mut stages, mut variables): (Vec<Stage>, _) = (Vec::new(), BTreeMap::new());
    for words in &instructions {
        let Some((keyword, operands)) = words.split_first() else { continue };
        match keyword.text.to_ascii_uppercase().as_str() {
            "ARG" if stages.is_empty() => {
                for word in operands {
                    declare(word.text, args, &mut variables);
                }
            }
            "FROM" => {
                let mut stage = Stage { name: stage_of(words), ..Stage::default() };
                let base = operands.iter().find(|word| !word.is_flag());
                if let Some(word) = base {
                    stage.begin_from(*word, resolve(word.text, &variables), &stages);
                }
                stages.push(stage);
            }
            "COPY" | "RUN" => {
                let Some(stage) = stages.last_mut() else { continue };
                let flags = operands.iter().take_while(|word| word.is_flag());
                let sources = flags.flat_map(|flag| flag.sources());
                for word in sources {
                    let lower = word.text.to_lowercase();
                    // A number is that of a stage.
                    if lower.contains('$') {
                        stage.has_unknown_source = true;
                    } else if lower.bytes().all(|byte| byte.is_ascii_digit()) || all_names.contains(&lower) {
                        stage.sources.push(lower);
                    } else {
                        stage.images.push(ImageName { name: word.text.to_owned(), place: word.place() });
                    }
                }
            }
            _ => {}
        }
    }
    stages
}

/// The numbers of the stages that a target needs; without one, those that the last stage needs.
fn needed_stages(stages: &[Stage], target: Option<&str>) -> BTreeSet<usize> {
    let mut open = target_stages(stages, target);
    let mut needed = BTreeSet::new();
    while let Some(number) = open.pop() {
        if needed.insert(number) {
            let Some(stage) = stages.get(number) else { continue };
            open.extend(stage.sources.iter().flat_map(|source| stages_named(stages, source)));
            if stage.has_unknown_source {
                open.extend(0..number);
            }
        }
    }
    needed
}

/// The numbers of the stages that a target may mean; without one, that of the last stage.
fn target_stages(stages: &[Stage], target: Option<&str>) -> Vec<usize> {
    match target {
        Some(target) => stages_named(stages, &target.to_lowercase()),
        None => stages.len().checked_sub(1).into_iter().collect(),
    }
}

/// The numbers of the stages that a name in lower case or a number may mean.
fn stages_named(stages: &[Stage], name: &str) -> Vec<usize> {
    let is_named =
        |(number, stage): &(usize, &Stage)| stage.name.as_deref() == Some(name) || number.to_string() == name;
    stages.iter().enumerate().filter(is_named).map(|(number, _)| number).collect()
}

/// The name that `FROM … AS` gives to a stage, in lower case.
fn stage_of(words: &[Word<'_>]) -> Option<String> {
    let (keyword, operands) = words.split_first()?;
    let mut operands = operands.iter().filter(|word| !word.is_flag()).skip(1);
    let is_as = keyword.text.eq_ignore_ascii_case("from") && operands.next()?.text.eq_ignore_ascii_case("as");
    operands.next().filter(|_| is_as).map(|name| name.text.to_lowercase())
}

/// Notes the value of one `ARG`.
fn declare(word: &str, args: &BTreeMap<String, String>, variables: &mut BTreeMap<String, String>) {
    let (name, default) = match word.split_once('=') {
        Some((name, default)) => (name, resolve(default.trim_matches(['"', '\'']), variables)),
        None => (word, None),
    };
    match args.get(name).cloned().or(default) {
        Some(value) => variables.insert(name.to_owned(), value),
        None => variables.remove(name),
    };
}

/// A word with `$NAME`, `${NAME}` and `${NAME:-default}` replaced. `None`: a variable has no value, or another form.
fn resolve(word: &str, variables: &BTreeMap<String, String>) -> Option<String> {
    let is_of_name = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    let mut parts = word.split('$');
    let mut resolved = parts.next()?.to_owned();
    for part in parts {
        let (name, default, rest) = if let Some(inner) = part.strip_prefix('{') {
            let (inner, rest) = inner.split_once('}')?;
            let (name, default) =
                inner.split_once(":-").map_or((inner, None), |(name, default)| (name, Some(default)));
            (name, default, rest)
        } else {
            let end = part.find(|letter: char| !is_of_name(letter)).unwrap_or(part.len());
            let (name, rest) = part.split_at(end);
            (name, None, rest)
        };
        if !name.chars().all(is_of_name) {
            return None;
        }
        let value = variables.get(name).map(String::as_str);
        resolved.push_str(match default {
            Some(default) => value.filter(|value| !value.is_empty()).unwrap_or(default),
            None => value?,
        });
        resolved.push_str(rest);
    }
    Some(resolved)
}

/// A word of an instruction with its first byte in the text.
#[derive(Clone, Copy, Debug)]
struct Word<'a> {
    text: &'a str,
    start: usize,
}

impl Word<'_> {
    fn is_flag(self) -> bool {
        self.text.starts_with("--")
    }

    fn place(self) -> Range<usize> {
        self.start..self.start + self.text.len()
    }

    /// The end of the word after a prefix.
    fn after(self, prefix: &str) -> Option<Self> {
        let text = self.text.strip_prefix(prefix)?;
        Some(Self { text, start: self.start + prefix.len() })
    }

    /// The images or stages of a flag: `--from=NAME`, and `from=NAME` among the fields of a `--mount`.
    fn sources(self) -> Vec<Self> {
        if let Some(fields) = self.after("--mount=") {
            let fields = pieces(fields.text, fields.start, |letter| letter == ',');
            return fields.filter_map(|field| field.after("from=")).collect();
        }
        self.after("--from=").into_iter().collect()
    }
}

/// The parts of a text between separators, without empty ones.
fn pieces(text: &str, mut start: usize, is_separator: fn(char) -> bool) -> impl Iterator<Item = Word<'_>> {
    text.split_inclusive(is_separator).filter_map(move |piece| {
        let word = Word { text: piece.trim_end_matches(is_separator), start };
        start += piece.len();
        (!word.text.is_empty()).then_some(word)
    })
}

/// The words of each instruction, over continued lines, without comments and here-documents.
fn instructions(text: &str) -> Vec<Vec<Word<'_>>> {
    let escape = escape_of(text);
    let (mut all, mut words): (Vec<Vec<Word<'_>>>, Vec<Word<'_>>) = (Vec::new(), Vec::new());
    let mut documents: Vec<HereDocument<'_>> = Vec::new();
    let mut start = 0;
    for line in text.split_inclusive('\n') {
        let at = start;
        start += line.len();
        if let Some(document) = documents.first() {
            if document.is_ended_by(line) {
                documents.remove(0);
            }
            continue;
        }
        let content = line.trim_end();
        let is_comment = content.trim_start_matches(is_space).starts_with('#');
        if is_comment || content.is_empty() {
            continue;
        }
        let continued = content.strip_suffix(escape).filter(|before| !before.ends_with(escape));
        words.extend(pieces(continued.unwrap_or(content), at, is_space));
        if continued.is_none() {
            documents = here_documents(&words);
            all.push(std::mem::take(&mut words));
        }
    }
    all.push(words);
    all
}

/// White space between words. A byte order mark counts as such.
fn is_space(letter: char) -> bool {
    letter.is_whitespace() || letter == '\u{feff}'
}

/// The letter that continues a line: that of the directive `escape`, or a backslash.
fn escape_of(text: &str) -> char {
    let mut directives = text.trim_start_matches('\u{feff}').lines().map_while(directive);
    let value = directives.find(|(key, _)| key.eq_ignore_ascii_case("escape")).map(|(_, value)| value);
    if value == Some("`") { '`' } else { '\\' }
}

/// A comment of the form `# key=value`.
fn directive(line: &str) -> Option<(&str, &str)> {
    let (key, value) = line.trim().strip_prefix('#')?.split_once('=')?;
    let key = key.trim();
    let is_key = !key.is_empty() && key.bytes().all(|byte| byte.is_ascii_alphanumeric());
    is_key.then_some((key, value.trim()))
}

/// A here-document that an instruction begins.
struct HereDocument<'a> {
    /// The line that ends it.
    end: &'a str,
    /// Whether that line may be indented with tabs.
    is_indented: bool,
}

impl HereDocument<'_> {
    fn is_ended_by(&self, line: &str) -> bool {
        let line = line.trim_end_matches(['\r', '\n']);
        let line = if self.is_indented { line.trim_start_matches('\t') } else { line };
        line == self.end
    }
}

fn here_documents<'a>(words: &[Word<'a>]) -> Vec<HereDocument<'a>> {
    let Some((keyword, operands)) = words.split_first() else { return Vec::new() };
    if !["RUN", "COPY", "ADD"].iter().any(|known| keyword.text.eq_ignore_ascii_case(known)) {
        return Vec::new();
    }
    let document = |word: &Word<'a>| {
        let text: &'a str = word.text;
        let name = text.trim_start_matches(|letter: char| letter.is_ascii_digit()).strip_prefix("<<")?;
        let (end, is_indented) = name.strip_prefix('-').map_or((name, false), |name| (name, true));
        let end = end.trim_matches(['"', '\'']);
        (!end.is_empty() && !end.contains('<')).then_some(HereDocument { end, is_indented })
    };
    operands.iter().filter_map(document).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    fn names(text: &str, args: &[(&str, &str)]) -> Vec<String> {
        image_names(text, &map(args)).into_iter().map(|image| image.name).collect()
    }

    #[test]
    fn base_images_are_read_from_the_dockerfile() {
        let dockerfile = "# FROM x\nARG V=1\nFROM --platform=linux/amd64 ghcr.io/a/b:1 AS one\nfrom b:$V\nFROM one\nRUN from c\nFROM";
        assert_eq!(names(dockerfile, &[]), ["ghcr.io/a/b:1", "b:1"]);
    }

    #[test]
    fn variables_of_base_images_have_defaults_and_arguments() {
        let from =
            |line: &str, args: &[(&str, &str)]| names(&format!("ARG A=a B C=${{A}}-c\n{line}\n"), args);
        assert_eq!(from("FROM $A", &[]), ["a"]);
        assert_eq!(from("FROM x/${A}:1", &[("A", "own")]), ["x/own:1"]);
        assert_eq!(from("FROM $C", &[]), ["a-c"]);
        assert_eq!(from("FROM ${B:-base}", &[]), ["base"]);
        for unknown in
            ["FROM $B", "FROM $UNKNOWN", "FROM ${A:+x}", "FROM ${B:-$A}", "FROM a\nARG D=d\nFROM $D"]
        {
            let found = from(unknown, &[("UNKNOWN", "x")]);
            assert!(found.is_empty() || found == ["a"], "{unknown}: {found:?}");
        }
    }

    #[test]
    fn sources_of_copies_and_mounts_are_images_unless_stages() {
        let text = "FROM a AS One\nFROM one\nCOPY --chmod=755 --from=b /x /x\nCOPY --from=ONE /x /x\nCOPY --from=0 /x /x\n\
                    RUN --mount=type=bind,from=c,target=/c --mount=type=cache,target=/d make --from=e\n";
        assert_eq!(names(text, &[]), ["a", "b", "c"]);
    }

    #[test]
    fn stages_that_a_target_does_not_need_name_no_image() {
        let text = "FROM a AS One\nFROM b AS two\nFROM one AS three\nCOPY --from=c /x /x\nFROM d AS four\nCOPY --from=1 /x /x\n\
                    RUN --mount=from=Three,target=/x make\nFROM e\n";
        let of = |target: Option<&str>| -> Vec<String> {
            images_of_target(text.as_bytes(), &BTreeMap::new(), target).into_iter().collect()
        };
        assert_eq!(of(None), ["e"]);
        assert_eq!(of(Some("ONE")), ["a"]);
        assert_eq!(of(Some("three")), ["a", "c"]);
        assert_eq!(of(Some("2")), ["a", "c"]);
        assert_eq!(of(Some("four")), ["a", "b", "c", "d"]);
        assert_eq!(of(Some("five")), [""; 0]);
        let up_to = |target: &str| images_up_to_target(text.as_bytes(), &BTreeMap::new(), Some(target));
        assert!(up_to("three").into_iter().eq(["a", "b", "c"]));
        assert!(up_to("five").is_empty());
    }

    #[test]
    fn unknown_base_of_a_needed_stage_may_be_each_earlier_one() {
        let bases = "FROM shop-base AS base-amd64\nFROM shop-base-arm AS base-arm64\n";
        for needed in
            ["FROM base-${TARGETARCH}\nCOPY . .\n", "FROM scratch\nCOPY --from=base-$TARGETARCH /x /x\n"]
        {
            let text = format!("{bases}{needed}FROM other AS last\n");
            let found = images_of_target(text.as_bytes(), &BTreeMap::new(), Some("2"));
            let found: Vec<&str> =
                found.iter().map(String::as_str).filter(|name| *name != "scratch").collect();
            assert_eq!(found, ["shop-base", "shop-base-arm"], "{needed}");
            assert!(images_of_target(text.as_bytes(), &BTreeMap::new(), None).contains("other"));
        }
    }

    #[test]
    fn other_text_of_a_dockerfile_names_no_image() {
        let text = "FROM a\nRUN echo \\\n# comment\n  FROM b\nRUN <<EOF\nFROM c\nEOF\nCOPY <<-'END' /x\nFROM d\n\tEND\nFROM \\\n  e";
        assert_eq!(names(text, &[]), ["a", "e"]);
        let windows = "\u{feff}# escape=`\r\nFROM a\r\nRUN dir c:\\\r\nRUN x `\r\n FROM b\r\nFROM c\r\n";
        assert_eq!(names(windows, &[]), ["a", "c"]);
    }

    #[test]
    fn images_are_replaced_where_they_are_named() {
        let text = "ARG BASE=base\nFROM --platform=linux/amd64 ${BASE} AS base\nFROM base\nCOPY --from=other:1 /base /x\n";
        let images = map(&[("base", "base:00"), ("other:1", "other:1-11")]);
        let replaced = String::from_utf8(with_images(text.as_bytes(), &BTreeMap::new(), &images)).unwrap();
        let expected = text.replace("${BASE}", "base:00").replace("--from=other:1", "--from=other:1-11");
        assert_eq!(replaced, expected);
    }
}
