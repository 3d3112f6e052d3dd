//! JUnit XML for tools that show test results: a suite per application, a case per object.

use std::{collections::BTreeMap, fmt::Write as _};

use driftless_plan::one_line;

use crate::{
    report::{App, Item, Kind, Report, Type},
    text,
};

/// The XML of JUnit, as Jenkins, GitLab and most others read it.
pub fn junit(report: &Report) -> String {
    let name = match report.kind {
        Kind::Drift => "driftless drift",
        Kind::Preview => "driftless preview",
    };
    let mut suites: Vec<Suite> = report.apps.iter().map(suite).collect();
    let (errors, skipped) = (report.errors.len(), report.known_errors.len());
    if errors + skipped > 0 {
        let new = report.errors.iter().map(|error| failed("error", "Error", error, error));
        let known = report.known_errors.iter().map(|error| known(error));
        let cases = new.chain(known).map(|inside| case("report", "report", &inside)).collect();
        let name = "report".to_owned();
        suites.push(Suite { name, cases, tests: errors + skipped, failures: 0, errors, skipped });
    }
    let sum = |count: fn(&Suite) -> usize| suites.iter().map(count).sum::<usize>();
    let mut out = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
    let _ = writeln!(
        out,
        "<testsuites name=\"{name}\" tests=\"{}\" failures=\"{}\" errors=\"{}\">",
        sum(|it| it.tests),
        sum(|it| it.failures),
        sum(|it| it.errors)
    );
    for Suite { name, cases, tests, failures, errors, skipped } in &suites {
        let _ = writeln!(
            out,
            "  <testsuite name=\"{}\" tests=\"{tests}\" failures=\"{failures}\" errors=\"{errors}\" skipped=\"{skipped}\">",
            escaped(name)
        );
        out.push_str(cases);
        out.push_str("  </testsuite>\n");
    }
    out.push_str("</testsuites>\n");
    out
}

struct Suite {
    name: String,
    cases: String,
    tests: usize,
    failures: usize,
    errors: usize,
    skipped: usize,
}

fn suite(app: &App) -> Suite {
    let name = app.title();
    let mut objects: BTreeMap<(&str, &str), Vec<&Item>> = BTreeMap::new();
    for item in &app.items {
        objects.entry((&item.kind, &item.name)).or_default().push(item);
    }
    let mut suite =
        Suite { name: name.clone(), cases: String::new(), tests: 0, failures: 0, errors: 0, skipped: 0 };
    for ((kind, object), items) in objects {
        let counted: Vec<&&Item> = items.iter().filter(|it| it.ignored.is_none()).collect();
        let inside = if let Some(first) = counted.first() {
            suite.failures += 1;
            let lines: Vec<String> =
                counted.iter().map(|it| format!("{}{}", it.sentence(), text::place(it))).collect();
            failed("failure", word(first), &first.sentence(), &lines.join("\n"))
        } else {
            suite.skipped += 1;
            "      <skipped/>\n".to_owned()
        };
        suite.tests += 1;
        suite.cases.push_str(&case(&name, &format!("{kind} {object}"), &inside));
    }
    if let Some(error) = &app.error {
        suite.errors += 1;
        suite.tests += 1;
        let first = error.lines().next().unwrap_or_default();
        suite.cases.push_str(&case(&name, "application", &failed("error", "Error", first, error)));
    } else if let Some(error) = &app.known_error {
        suite.skipped += 1;
        suite.tests += 1;
        suite.cases.push_str(&case(&name, "application", &known(error)));
    } else if suite.tests == 0 {
        suite.tests = 1;
        // A suspended application is compared, but its drift is not a failure.
        let inside = if app.suspended { "      <skipped/>\n" } else { "" };
        suite.skipped += usize::from(app.suspended);
        suite.cases.push_str(&case(&name, "application", inside));
    }
    suite
}

fn case(class: &str, name: &str, inside: &str) -> String {
    let (class, name) = (escaped(class), escaped(name));
    if inside.is_empty() {
        return format!("    <testcase classname=\"{class}\" name=\"{name}\"/>\n");
    }
    format!("    <testcase classname=\"{class}\" name=\"{name}\">\n{inside}    </testcase>\n")
}

fn failed(element: &str, kind: &str, message: &str, text: &str) -> String {
    let (message, text) = (escaped(&one_line(message)), escaped(text));
    format!("      <{element} type=\"{kind}\" message=\"{message}\">{text}</{element}>\n")
}

/// An error that the base has too.
fn known(error: &str) -> String {
    let message = format!("{}: {}", text::whose(error), one_line(error));
    format!("      <skipped message=\"{}\"/>\n", escaped(&message))
}

/// `Modified`.
fn word(item: &Item) -> &'static str {
    match item.change {
        Type::Missing => "Missing",
        Type::Extra => "Extra",
        Type::Modified => "Modified",
        Type::Image => "Image",
        Type::Stopped => "Stopped",
        Type::Added => "Added",
        Type::Removed => "Removed",
        Type::Kept => "Kept",
    }
}

/// Escapes markup and replaces the characters that XML 1.0 does not allow.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for it in text.chars() {
        match it {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\t' | '\n' => out.push(it),
            '\u{fffe}' | '\u{ffff}' => out.push('\u{fffd}'),
            it if it < ' ' => out.push('\u{fffd}'),
            it => out.push(it),
        }
    }
    out
}
