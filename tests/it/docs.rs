//! Checks the documents against the program: examples are rendered, commands parsed, links followed.
//! The tests of `cli` check `docs/cli.md`.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use driftless::cli::Invocation;
use driftless_config::Settings;
use driftless_files::{AppSpec, MemoryFiles, Rendered};
use driftless_manifest::{compose_keys, kubernetes_fields, kustomization_keys, render};
use driftless_model::{ConditionType, Finding, Format, Severity, StatusCondition};

const README: &str = include_str!("../../README.md");
const COMPOSE: &str = include_str!("../../docs/compose.md");
const KUBERNETES: &str = include_str!("../../docs/kubernetes.md");
const KUSTOMIZE: &str = include_str!("../../docs/kustomize.md");
const SECURITY: &str = include_str!("../../docs/security-model.md");
const MAKEFILE: &str = include_str!("../../Makefile");

#[test]
fn supported_compose_example_renders_without_findings() {
    // Without profiles, so that every service is active.
    let text = block(COMPOSE, "Supported").replace("    profiles: [debug]\n", "");
    let rendered = render_text(Format::Compose, &text);
    assert_eq!(lines(&rendered.findings), [""; 0]);
    // Four services, and the proxy of one with its worker.
    assert_eq!(rendered.stack.unwrap().workloads.len(), 6);
}

#[test]
fn build_example_renders_without_findings() {
    let text = block(COMPOSE, "Builds") + "secrets: {token: {file: ./token}}\n";
    let rendered = render_text(Format::Compose, &text);
    assert_eq!(lines(&rendered.findings), [""; 0]);
    let stack = rendered.stack.unwrap();
    let web = stack.workloads.values().next().unwrap();
    assert!(web.build.is_some() && web.container.image.starts_with("shop-web:"), "{}", web.container.image);
    let table = compose_keys();
    let rows = table.lines().filter_map(|line| line.strip_prefix("| `services.build."));
    let missing: Vec<_> = rows
        .filter_map(|row| row.split('`').next()?.rsplit('.').next())
        .filter(|key| !COMPOSE.contains(&format!("{key}:")))
        .collect();
    assert_eq!(missing, [""; 0]);
}

#[test]
fn supported_kubernetes_example_renders_without_findings() {
    let rendered = render_text(Format::Kubernetes, &block(KUBERNETES, "Supported"));
    assert_eq!(lines(&rendered.findings), [""; 0]);
    assert_eq!(rendered.stack.unwrap().workloads.len(), 13);
}

#[test]
fn ignored_keys_are_warnings_at_their_lines() {
    for (format, page) in [(Format::Compose, COMPOSE), (Format::Kubernetes, KUBERNETES)] {
        let text = block(page, "Accepted with a warning");
        let rendered = render_text(format, &text);
        assert_eq!(places(&rendered, Severity::Warning), marked(&text, "# ignored"), "{}", told(&rendered));
        assert!(rendered.stack.is_some(), "{}", told(&rendered));
    }
}

#[test]
fn unsupported_keys_are_errors_at_their_lines() {
    for (format, page) in [(Format::Compose, COMPOSE), (Format::Kubernetes, KUBERNETES)] {
        let text = block(page, "Not supported yet");
        let rendered = render_text(format, &text);
        assert_eq!(places(&rendered, Severity::Error), marked(&text, "# refused"), "{}", told(&rendered));
        assert!(rendered.stack.is_none());
    }
}

#[test]
fn tables_of_keys_are_up_to_date() {
    for (path, text, keys) in [
        ("docs/compose.md", COMPOSE, compose_keys()),
        ("docs/security-model.md", SECURITY, driftless_docker::api_calls()),
        ("docs/kustomize.md", KUSTOMIZE, kustomization_keys()),
        ("docs/kubernetes.md", KUBERNETES, kubernetes_fields()),
    ] {
        let head = format!("\n{}\n", keys.lines().next().unwrap());
        let (before, _) = text.split_once(&head).unwrap_or((text.trim_end_matches('\n'), ""));
        let page = format!("{before}\n{keys}");
        if std::env::var_os("UPDATE_DOCS").is_some() {
            fs::write(path, &page).unwrap();
            continue;
        }
        assert!(text == page, "{path} is out of date: UPDATE_DOCS=1 cargo test --test it docs::");
    }
}

/// The other tests render the examples, so a key that is in the right example also behaves as the table says.
#[test]
fn examples_contain_every_key_of_the_table() {
    let examples = [
        ("used", block(COMPOSE, "Supported") + &block(COMPOSE, "Builds")),
        ("no effect", block(COMPOSE, "Accepted with a warning")),
        ("refused", block(COMPOSE, "Not supported yet")),
    ];
    let table = compose_keys();
    let rows = table.lines().skip(2).map(|it| it.split('|').map(str::trim).collect::<Vec<_>>());
    let mut missing = Vec::new();
    for row in rows {
        let (path, kind) = (row[1].trim_matches('`'), row[2]);
        let key = format!("{}:", path.rsplit('.').next().unwrap());
        let example = &examples.iter().find(|(word, _)| *word == kind).unwrap().1;
        let is_there = example.match_indices(&key).any(|(at, _)| {
            example[..at].chars().next_back().is_none_or(|it| !it.is_alphanumeric() && it != '_')
        });
        if !is_there && !LATER.contains(&path) {
            missing.push(path.to_owned());
        }
    }
    assert_eq!(missing, [""; 0]);
}

/// Keys whose example needs another file.
const LATER: &[&str] = &["include", "include.project_directory", "services.build", "services.volumes_from"];

#[test]
fn kubernetes_page_contains_every_known_field() {
    let source = include_str!("../../crates/kubernetes/src/fields.rs");
    let fields = source.split("(\"").skip(1).filter_map(|it| it.split_once("\", "));
    let names = fields.map(|(name, _)| name).filter(|it| it.bytes().all(|it| it.is_ascii_alphanumeric()));
    let names: BTreeSet<_> = names.collect();
    assert!(names.len() > 100, "{names:?}");
    let missing: Vec<_> = names.iter().filter(|it| !KUBERNETES.contains(&format!("{it}:"))).collect();
    assert_eq!(missing, [&""; 0]);
}

#[test]
fn listed_kinds_are_ignored_or_refused() {
    for (chapter, severity) in
        [("Accepted with a warning", Severity::Warning), ("Not supported yet", Severity::Error)]
    {
        let kinds = section(KUBERNETES, chapter).split("So are these kinds:\n").nth(1).unwrap();
        let kinds: Vec<_> = kinds.trim().trim_end_matches('.').split(", ").collect();
        assert!(kinds.len() > 5, "{kinds:?}");
        for kind in kinds {
            let text = format!("apiVersion: v1\nkind: {kind}\nmetadata: {{name: a}}\n---\n{}", smallest());
            let rendered = render_text(Format::Kubernetes, &text);
            let found: Vec<_> = rendered.findings.iter().map(|it| it.severity).collect();
            assert_eq!(found, [severity], "{kind}: {}", told(&rendered));
        }
    }
}

#[test]
fn tests_named_in_the_podman_table_exist() {
    let page = include_str!("../../docs/kubernetes-podman.md");
    let rows = page.lines().skip_while(|it| !it.starts_with("|---")).skip(1);
    let mut sources = String::new();
    for folder in ["tests/it", "tests/e2e", "crates/plan/tests/it"] {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_some_and(|it| it == "rs") {
                sources.push_str(&fs::read_to_string(path).unwrap());
            }
        }
    }
    let mut count = 0;
    for row in rows {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        assert!(sources.contains(&format!("fn {}()", cells[3].trim_matches('`'))), "{row}");
        count += 1;
    }
    assert!(count > 40, "{count} rows");
}

#[test]
fn make_targets_in_the_readme_exist() {
    let named = README.split("make ").skip(1).filter_map(|it| it.split(['`', ' ', '\n']).next());
    let prose = ["it"];
    let named: BTreeSet<_> = named.filter(|it| !prose.contains(it)).collect();
    assert!(named.contains("demo") && named.contains("test"), "{named:?}");
    for name in named {
        assert!(MAKEFILE.contains(&format!("\n{name}: ## ")), "make {name}");
    }
}

#[test]
fn commands_in_documents_parse() {
    // The help texts in docs/cli.md wrap their examples.
    let pages = pages().into_iter().filter(|page| !page.ends_with("cli.md"));
    let texts = pages.map(|page| fs::read_to_string(page).unwrap());
    let commands: BTreeSet<String> = texts.flat_map(|text| commands(&text)).collect();
    assert!(commands.len() > 30, "{commands:?}");
    for command in commands {
        let mut words = shell_words::split(&command).unwrap();
        // The file with these names is that of the user.
        let is_client = !words.iter().any(|word| word == "validate" || word == "preview");
        if let Some(at) = words.iter().position(|word| word == "--host").filter(|_| is_client) {
            words.drain(at..at + 2);
        }
        let parsed = Invocation::parse(words.into_iter().map(Into::into));
        assert!(parsed.is_ok(), "{command}");
    }
}

/// The commands of `driftless` in the code blocks of a page, without comments and what they are piped into.
fn commands(page: &str) -> Vec<String> {
    let blocks = page.split("```").skip(1).step_by(2);
    let lines = blocks.flat_map(str::lines).map(|line| line.trim().trim_start_matches("$ "));
    let first_of = |line: &str| {
        let ends = [" # ", " | ", " > ", " && "].map(|end| line.find(end).unwrap_or(line.len()));
        line[..ends.into_iter().min().unwrap_or_default()].trim_end().to_owned()
    };
    lines.filter(|line| line.starts_with("driftless ")).map(first_of).collect()
}

#[test]
fn configuration_in_the_readme_is_valid() {
    let settings = Settings::parse("driftless.yaml", &block(README, "Configuration"));
    assert_eq!(settings.map(|it| it.repositories.len()), Ok(2));
}

/// The recording is made by `make recording`, not by hand: it has every step of the demo that is run now.
#[test]
fn recording_has_every_step_of_the_demo() {
    let (demo, cast) = (include_str!("../../scripts/demo.sh"), include_str!("../../docs/images/demo.cast"));
    let picture = include_str!("../../docs/images/demo.svg");
    let steps = demo.lines().filter_map(|line| line.strip_prefix("step \"")?.strip_suffix('"'));
    let steps: Vec<&str> = steps.collect();
    assert!(steps.len() > 5, "{steps:?}");
    for step in steps {
        assert!(cast.contains(step) && picture.contains(step), "make recording: {step}");
    }
}

#[test]
fn links_between_documents_resolve() {
    for page in pages() {
        let text = fs::read_to_string(&page).unwrap();
        let folder = page.parent().unwrap();
        for link in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            if link.starts_with("https://") {
                continue;
            }
            let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
            let target = if file.is_empty() { page.clone() } else { folder.join(file) };
            assert!(target.exists(), "{}: {link}", page.display());
            if !anchor.is_empty() {
                let text = fs::read_to_string(&target).unwrap();
                let is_heading =
                    text.lines().filter(|line| line.starts_with('#')).any(|line| slug(line) == anchor);
                let is_there = is_heading || text.contains(&format!("<a id=\"{anchor}\">"));
                assert!(is_there, "{}: {link}", page.display());
            }
        }
    }
}

/// README.md and its siblings, and every page below docs/.
fn pages() -> Vec<PathBuf> {
    let mut pages = Vec::new();
    for folder in ["", "docs", "docs/adr"] {
        for entry in fs::read_dir(Path::new(".").join(folder)).unwrap() {
            let path = Path::new(folder).join(entry.unwrap().file_name());
            if path.extension().is_some_and(|extension| extension == "md") {
                pages.push(path);
            }
        }
    }
    pages
}

/// The anchor of a heading, as GitHub forms it.
fn slug(heading: &str) -> String {
    let text = heading.trim_start_matches('#').trim().to_lowercase();
    let kept = text.chars().filter(|letter| letter.is_alphanumeric() || " -_".contains(*letter));
    kept.map(|letter| if letter == ' ' { '-' } else { letter }).collect()
}

#[test]
fn paths_in_the_guides_for_developers_exist() {
    for page in ["docs/architecture.md", "CONTRIBUTING.md"] {
        let text = fs::read_to_string(page).unwrap();
        let quoted = text.split('`').skip(1).step_by(2);
        let named: BTreeSet<_> = quoted
            .filter(|word| ["src/", "crates/", "tests/"].iter().any(|root| word.starts_with(root)))
            .collect();
        assert!(named.len() > 15, "{page}: {named:?}");
        for path in named {
            assert!(Path::new(path).exists(), "{page}: {path}");
        }
    }
}

#[test]
fn tests_named_in_the_guide_for_developers_exist() {
    let modules = fs::read_to_string("tests/it/main.rs").unwrap();
    let text = fs::read_to_string("CONTRIBUTING.md").unwrap();
    let quoted = text.split('`').skip(1).step_by(2);
    let filters = quoted.filter_map(|word| {
        word.strip_prefix("… ").or_else(|| word.split_once(" --test it ").map(|(_, filters)| filters))
    });
    let named: BTreeSet<&str> = filters
        .flat_map(str::split_whitespace)
        .filter(|word| *word != "--")
        .map(|filter| filter.trim_end_matches(':'))
        .collect();
    assert!(named.len() > 8, "{named:?}");
    for name in named {
        let module = format!("mod {name};");
        assert!(modules.lines().any(|line| line == module), "{name}");
    }
}

/// The chapter of a page under `## heading`.
fn section<'p>(page: &'p str, heading: &str) -> &'p str {
    let after = page.split(&format!("\n## {heading}\n")).nth(1).expect("the page has the heading");
    after.split("\n## ").next().unwrap()
}

/// The first block of YAML in a chapter.
fn block(page: &str, heading: &str) -> String {
    let after = section(page, heading).split("```yaml\n").nth(1).expect("the chapter has an example");
    after.split("```").next().unwrap().to_owned()
}

/// Renders an example, with a file for each path that it names.
fn render_text(format: Format, text: &str) -> Rendered {
    let words = text.split(|it: char| it.is_whitespace() || "[]{},\"".contains(it));
    let paths = words.filter_map(|it| it.split_once("./")).map(|it| it.1.split(':').next().unwrap());
    let built = [("app/Dockerfile", "FROM scratch"), ("web.Dockerfile", "FROM scratch")];
    let mut files =
        MemoryFiles::new([("site/index.html", "hello"), ("app.yaml", text)].into_iter().chain(built));
    for path in paths.filter(|it| !it.is_empty() && !matches!(*it, "site" | "app")) {
        let text = if path.ends_with(".json") { "{}" } else { "A=b" };
        files.0.insert(path.to_owned(), text.as_bytes().into());
    }
    let spec = AppSpec { format, has_listed_files: false, ..AppSpec::compose("shop", &["app.yaml"]) };
    render(&files, &spec)
}

fn smallest() -> &'static str {
    "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\nspec: {selector: {matchLabels: {app: web}}, \
     template: {metadata: {labels: {app: web}}, spec: {containers: [{name: web, image: a:1}]}}}\n"
}

fn places(rendered: &Rendered, severity: Severity) -> BTreeSet<u32> {
    rendered.findings.iter().filter(|it| it.severity == severity).map(|it| it.location.line).collect()
}

fn marked(text: &str, mark: &str) -> BTreeSet<u32> {
    (1..).zip(text.lines()).filter(|(_, it)| it.contains(mark)).map(|(number, _)| number).collect()
}

fn lines(findings: &[Finding]) -> Vec<String> {
    findings.iter().map(ToString::to_string).collect()
}

fn told(rendered: &Rendered) -> String {
    lines(&rendered.findings).join("\n")
}

/// The tables of complaints and of invalid input name tests; all of these tests exist.
#[test]
fn tests_named_in_test_tables_exist() {
    let mut tests = String::new();
    for folder in ["tests", "src", "crates"] {
        read_all(Path::new(folder), &mut tests);
    }
    for page in ["crates/plan/tests/it/scenarios.rs", "tests/it/webhooks.rs"] {
        let text = fs::read_to_string(page).unwrap();
        let rows = text.lines().filter_map(|it| it.strip_prefix("//! | ")).skip(1);
        let named: Vec<&str> =
            rows.flat_map(|it| it.rsplit_once(" | ").unwrap().1.split('`').skip(1).step_by(2)).collect();
        assert!(named.len() > 10, "{page}");
        let missing: Vec<&str> = named
            .into_iter()
            .filter(|name| {
                let is_project = ["", ".yaml"]
                    .iter()
                    .any(|end| Path::new(&format!("tests/e2e/projects/{name}{end}")).exists());
                let is_module = Path::new(&format!("tests/e2e/{name}.rs")).exists();
                let is_script = Path::new("crates/plan/tests/it/scenarios").join(name).is_file();
                !is_project && !is_module && !is_script && !tests.contains(&format!("fn {name}("))
            })
            .collect();
        assert_eq!(missing, [""; 0], "{page}");
    }
}

#[test]
fn counts_of_the_podman_comparison_are_up_to_date() {
    let folder = fs::read_dir("tests/e2e/manifests").unwrap();
    let manifests =
        folder.filter(|it| it.as_ref().unwrap().path().extension().is_some_and(|it| it == "yaml"));
    let table = fs::read_to_string("tests/e2e/manifests/README.md").unwrap();
    let rows = table.lines().filter(|it| it.starts_with("| `"));
    for words in [format!("runs {} manifests", manifests.count()), format!("{} in all", rows.count())] {
        assert!(KUBERNETES.contains(&words), "docs/kubernetes.md does not say `{words}`");
    }
}

fn read_all(folder: &Path, text: &mut String) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            read_all(&path, text);
        } else if path.extension().is_some_and(|it| it == "rs") {
            text.push_str(&fs::read_to_string(&path).unwrap());
        }
    }
}

#[test]
fn output_as_json_is_described_for_every_command() {
    let described = fs::read_to_string("docs/json.md").unwrap();
    let page = driftless::cli::reference();
    let sections = page.split("\n## ").skip(1);
    let with_output = sections.filter(|section| section.contains("-o, --output"));
    let names: Vec<&str> = with_output.filter_map(|section| section.lines().next()).collect();
    assert!(names.len() > 15, "{names:?}");
    let missing = names.into_iter().filter(|name| !described.contains(&format!("\n| `{name}` |")));
    assert_eq!(missing.collect::<Vec<_>>(), Vec::<&str>::new());
}

#[test]
fn variables_named_in_documents_exist() {
    let mut program = String::new();
    for folder in ["src", "crates", "tests"] {
        read_all(Path::new(folder), &mut program);
    }
    for page in pages() {
        let text = fs::read_to_string(&page).unwrap();
        for (start, _) in text.match_indices("DRIFTLESS_") {
            let rest = &text[start..];
            let end = rest.find(|letter: char| !letter.is_ascii_uppercase() && letter != '_');
            let name = &rest[..end.unwrap_or(rest.len())];
            // One for each label of the host; and a prefix names no variable.
            let is_family = name.starts_with("DRIFTLESS_LABEL_") || name.ends_with('_');
            assert!(
                is_family || program.contains(&format!("\"{name}\"")),
                "{}: the program does not know {name}",
                page.display()
            );
        }
    }
}

/// The words in camel case that a text has in quotes.
fn quoted_words(text: &str) -> impl Iterator<Item = &str> {
    let is_word = |word: &&str| {
        word.starts_with(|letter: char| letter.is_ascii_uppercase())
            && word.chars().all(|letter| letter.is_ascii_alphanumeric())
    };
    text.split('"').skip(1).step_by(2).filter(is_word)
}

#[test]
fn every_reason_has_an_anchor_in_troubleshooting() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let read = |path: &str| fs::read_to_string(root.join(path)).unwrap();
    let page = read("docs/troubleshooting.md");
    let mut reasons: BTreeSet<String> =
        driftless_plan::WaitReason::ALL.iter().map(|reason| reason.as_str().to_owned()).collect();
    // Conditions of applications, with their reasons. Those of workloads are of Kubernetes.
    let of_workloads = [ConditionType::Available, ConditionType::Progressing, ConditionType::ReplicaFailure];
    let of_applications = ConditionType::ALL.iter().filter(|kind| !of_workloads.contains(kind));
    reasons.extend(of_applications.map(|kind| kind.as_str().to_owned()));
    for (path, from, to) in [
        ("crates/agent/src/status.rs", "fn conditions(", "fn operation("),
        ("crates/agent/src/commits/held_commit.rs", "fn reason(", "fn event("),
        ("crates/plan/src/status/conditions.rs", "let all = [\n        standing(", "];"),
        ("crates/fleet/src/first_hosts.rs", "fn as_str(", "enum FirstHost "),
    ] {
        let text = read(path);
        let (_, text) = text.split_once(from).unwrap();
        let words: Vec<&str> = quoted_words(text.split_once(to).unwrap().0).collect();
        assert!(words.len() > 1, "{path}: {words:?}");
        reasons.extend(words.into_iter().map(str::to_owned));
    }
    for file in ["commits/status/mod.rs", "commits/trust.rs", "repository.rs"] {
        let path = &format!("crates/agent/src/{file}");
        let has_reason = |line: &&str| line.contains("reason: \"") || line.contains(".fail(\"");
        for line in read(path).lines().filter(has_reason) {
            reasons.extend(quoted_words(line).map(str::to_owned));
        }
    }
    let compared = [StatusCondition::ROLLED_BACK, StatusCondition::DEPENDENCY_UNKNOWN];
    reasons.extend(compared.map(str::to_owned));
    reasons.extend(driftless_git::Cause::ALL.iter().map(|cause| cause.as_str().to_owned()));
    for known in [
        "Blocked",
        "SourceReady",
        "UnknownHost",
        "RenderingFailed",
        "SignatureRefused",
        "DifferenceStays",
        "FirstHostFailed",
    ] {
        assert!(reasons.contains(known), "{known}: {reasons:?}");
    }
    let missing: Vec<&String> =
        reasons.iter().filter(|reason| !page.contains(&format!("<a id=\"{reason}\"></a>"))).collect();
    assert!(missing.is_empty(), "docs/troubleshooting.md has no anchor for {missing:?}");
}

#[test]
fn summary_lists_every_page_once_by_its_heading() {
    let summary = fs::read_to_string("docs/SUMMARY.md").unwrap();
    let mut listed = BTreeMap::new();
    for entry in summary.split('[').skip(1) {
        let (title, rest) = entry.split_once("](").unwrap();
        let page = rest.split(')').next().unwrap();
        assert!(listed.insert(page, title).is_none(), "{page} is listed twice");
    }
    let is_page = |path: &PathBuf| {
        let in_book = path.parent() == Some(Path::new("docs")) || path.ends_with("docs/adr/README.md");
        in_book && !path.ends_with("SUMMARY.md")
    };
    for path in pages().into_iter().filter(is_page) {
        let text = fs::read_to_string(&path).unwrap();
        let heading = text.lines().next().and_then(|line| line.strip_prefix("# ")).unwrap();
        let page = path.strip_prefix("docs").unwrap().to_str().unwrap();
        assert_eq!(listed.remove(page), Some(heading), "{page} in docs/SUMMARY.md");
    }
    assert!(listed.is_empty(), "{listed:?}");
    // A book that creates missing pages would hide a mistake.
    assert!(fs::read_to_string("docs/book.toml").unwrap().contains("create-missing = false"));
}
