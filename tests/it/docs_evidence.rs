//! Checks that `docs/evidence.md` names a test or a measurement for every claim of the README.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

use driftless::cli::Invocation;
use driftless_config::Settings;

use crate::architecture::sources;

const README: &str = include_str!("../../README.md");
const EVIDENCE: &str = include_str!("../../docs/evidence.md");
const BENCHMARKS: &str = include_str!("../../docs/benchmarks.md");

/// The sections of the README whose claims are listed, each under this heading of `docs/evidence.md`.
const LISTED: [&str; 8] = [
    "Quick start",
    "How it works",
    "Commands",
    "Configuration",
    "Supported and not supported",
    "Limitations",
    "Reliability",
    "Performance",
];

/// The sections of the README that claim nothing about the program.
const WITHOUT_CLAIMS: [&str; 1] = ["Contributing"];

/// A shorter phrase has to be the whole item, so that `pin` is not found in `pinned host keys`.
const SHORTEST_PART: usize = 12;

#[test]
fn every_claim_of_the_readme_has_evidence() {
    let readme = plain(README);
    let evidence = evidence();
    for row in evidence.values().flatten() {
        assert!(readme.contains(row.phrase), "the README does not say `{}`", row.phrase);
    }
    let headings = README.lines().filter_map(|line| line.strip_prefix("## "));
    let unlisted = headings.filter(|heading| !LISTED.contains(heading) && !WITHOUT_CLAIMS.contains(heading));
    assert_eq!(
        unlisted.collect::<Vec<_>>(),
        Vec::<&str>::new(),
        "a section of the README that nothing checks"
    );
    let claims = claims();
    assert!(claims.len() > 110, "{claims:?}");
    let missing: Vec<_> = claims
        .iter()
        .filter(|(heading, claim)| {
            let rows = evidence.get(heading.as_str()).map_or(&[][..], Vec::as_slice);
            !rows.iter().any(|row| {
                claim == row.phrase || row.phrase.len() >= SHORTEST_PART && claim.contains(row.phrase)
            })
        })
        .collect();
    assert!(missing.is_empty(), "docs/evidence.md has nothing about {missing:#?}");
}

#[test]
fn tests_named_as_evidence_exist() {
    let known = tests_by_name();
    for row in evidence().values().flatten() {
        let mut count = row.held_by.matches("](").count();
        for part in row.held_by.split(';') {
            let (kind, names) = part.split_once(": `").unwrap_or(("", part));
            let kind = kind.trim();
            for name in format!("`{names}").split('`').filter(|name| !name.is_empty()) {
                if name.ends_with(".txt") {
                    let script = Path::new("crates/plan/tests/it/scenarios").join(name);
                    assert!(script.exists(), "{}", script.display());
                } else if name.contains('_')
                    && name.bytes().all(|it| it.is_ascii_alphanumeric() || it == b'_')
                {
                    let kinds = known.get(name);
                    assert!(kinds.is_some_and(|kinds| kinds.contains(kind)), "{kind} `{name}` is {kinds:?}");
                    count += 1;
                }
            }
        }
        assert!(count > 0, "`{}` is held by nothing: {}", row.phrase, row.held_by);
    }
}

/// A figure that is measured again is written to the README, too.
#[test]
fn figures_of_the_readme_are_those_of_the_benchmarks() {
    let evidence = evidence();
    let mut compared = 0;
    for row in &evidence["Performance"] {
        for anchor in row.held_by.split("](benchmarks.md#").skip(1).filter_map(|rest| rest.split(')').next())
        {
            let section = BENCHMARKS.split("\n## ").find(|section| {
                let heading = section.lines().next().unwrap_or_default().to_lowercase();
                heading.replace(' ', "-") == anchor
            });
            let measured: BTreeSet<&str> = numbers(section.expect(anchor)).collect();
            for number in numbers(row.phrase) {
                assert!(measured.contains(number), "docs/benchmarks.md#{anchor} does not have {number}");
                compared += 1;
            }
        }
    }
    assert!(compared > 15, "{compared} figures");
    for (_, claim) in claims().iter().filter(|(heading, _)| heading == "Performance") {
        let rest =
            evidence["Performance"].iter().fold(claim.clone(), |rest, row| rest.replace(row.phrase, ""));
        assert_eq!(numbers(&rest).next(), None, "a figure without evidence: {claim}");
    }
}

#[test]
fn unsupported_commands_and_engines_are_refused() {
    for words in [&["driftless", "exec", "web-1"][..], &["driftless", "get", "pods", "--context", "other"]] {
        assert!(Invocation::parse(words.iter().map(Into::into)).is_err(), "{words:?}");
    }
    let several = "docker: [unix:///a.sock, tcp://other:2376]\nrepositories: [{url: /srv/git}]\n";
    let refused = Settings::parse("driftless.yaml", several).unwrap_err();
    assert!(refused.iter().any(|finding| finding.location.line == 1), "{refused:?}");
}

/// A row of `docs/evidence.md`.
struct Row {
    phrase: &'static str,
    held_by: &'static str,
}

/// The rows by the heading above them.
fn evidence() -> BTreeMap<&'static str, Vec<Row>> {
    let mut rows: BTreeMap<_, Vec<Row>> = BTreeMap::new();
    let mut heading = "";
    for line in EVIDENCE.lines() {
        if line.starts_with('#') {
            heading = line.trim_start_matches(['#', ' ']);
        } else if let Some((phrase, held_by)) =
            line.strip_prefix("| ").and_then(|row| row.strip_suffix(" |")?.split_once(" | "))
            && phrase != "README says"
            && !held_by.starts_with("needs")
            && !held_by.contains("| `make ")
        {
            rows.entry(heading).or_default().push(Row { phrase, held_by });
        }
    }
    rows
}

/// The claims of the README, each with the heading of its evidence: sentences, list items and items of the table.
fn claims() -> Vec<(String, String)> {
    let opening = README.split("\n\n").find(|part| part.starts_with("Driftless is ")).unwrap();
    let mut claims = sentences("Introduction", opening);
    for heading in LISTED {
        let text = README.split(&format!("\n## {heading}\n")).nth(1).unwrap().split("\n## ").next().unwrap();
        let prose = text.split("```").step_by(2).flat_map(|text| text.split("\n\n"));
        match heading {
            "How it works" | "Reliability" | "Quick start" | "Configuration" => {
                claims.extend(prose.flat_map(|paragraph| sentences(heading, paragraph)));
            }
            "Commands" => {
                let commands = text.split("```").nth(1).unwrap().lines().filter(|line| line.contains(" # "));
                claims.extend(commands.map(|line| (heading.to_owned(), plain(line))));
                claims.extend(prose.flat_map(|paragraph| sentences(heading, paragraph)));
            }
            "Supported and not supported" => {
                for row in text.lines().filter(|line| line.starts_with("| **")) {
                    let cells = plain(row.trim_matches([' ', '|']));
                    let mut cells = cells.split(" | ").map(str::trim);
                    let name = cells.next().unwrap().split(" (").next().unwrap().to_owned();
                    let items = cells.flat_map(|cell| cell.split("; ")).filter(|item| !item.is_empty());
                    claims.extend(items.map(|item| (name.clone(), without_link_text(item))));
                }
                let below = prose.filter(|paragraph| !paragraph.trim_start().starts_with('|'));
                claims.extend(below.flat_map(|paragraph| sentences(heading, paragraph)));
            }
            _ => {
                let items = text.split("\n- ").skip(1).filter_map(|item| item.split("\n\n").next());
                claims.extend(items.map(|item| (heading.to_owned(), plain(item))));
            }
        }
    }
    claims
}

fn sentences(heading: &str, paragraph: &str) -> Vec<(String, String)> {
    let text = plain(paragraph);
    let is_claim = |sentence: &&str| !sentence.is_empty() && !sentence.starts_with("<!--");
    let sentences = text.split_inclusive(". ").map(str::trim).filter(is_claim);
    sentences.map(|sentence| (heading.to_owned(), sentence.to_owned())).collect()
}

/// An item without a link to a page behind it: `files (docs/secrets.md)` is `files`.
fn without_link_text(item: &str) -> String {
    item.split(" (docs/").next().unwrap_or(item).to_owned()
}

/// Text of a page without line breaks, emphasis and the targets of links.
fn plain(text: &str) -> String {
    let mut plain = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("](") {
        plain.push_str(before);
        rest = after.split_once(')').map_or("", |(_, rest)| rest);
    }
    plain.push_str(rest);
    let plain = plain.replace("**", "").replace("![", "").replace('[', "");
    plain.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The numbers of a text, as they are written: `1,000`, `0.95`.
fn numbers(text: &str) -> impl Iterator<Item = &str> {
    let words = text.split(|letter: char| letter.is_whitespace() || "*()|`/;:".contains(letter));
    let words = words.map(|word| word.trim_end_matches(['.', ',']));
    words.filter(|word| {
        word.starts_with(|letter: char| letter.is_ascii_digit())
            && word.chars().all(|letter| letter.is_ascii_digit() || letter == '.' || letter == ',')
    })
}

/// The kinds of the functions of each name.
fn tests_by_name() -> BTreeMap<String, BTreeSet<&'static str>> {
    let mut known: BTreeMap<String, BTreeSet<&str>> = BTreeMap::new();
    for path in ["tests", "src", "crates"].iter().flat_map(|folder| sources(Path::new(folder))) {
        let kind = match path.to_str().unwrap() {
            "tests/it/browser.rs" => "browser",
            "tests/e2e/engine_faults.rs" => "fault",
            path if path.starts_with("tests/e2e/") => "e2e",
            _ => "unit",
        };
        let text = fs::read_to_string(&path).unwrap();
        for name in text.split("fn ").skip(1).filter_map(|rest| rest.split('(').next()) {
            known.entry(name.to_owned()).or_default().insert(kind);
        }
    }
    known
}
