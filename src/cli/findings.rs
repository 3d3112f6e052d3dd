//! Prints findings about manifests like a compiler: message, location, the source line with a marker, and help.

use std::fmt::Write as _;

use super::screen::{Colours, Paint, plain};
use driftless_model::{Finding, Severity};

/// All findings, errors and warnings in the order given, a blank line after each.
pub fn render_findings(findings: &[Finding], colours: Colours) -> String {
    findings.iter().map(|it| render_one(it, colours)).collect()
}

/// `2 errors, 1 warning`
pub fn summary(findings: &[Finding]) -> String {
    let errors = findings.iter().filter(|it| it.is_error()).count();
    let warnings = findings.len() - errors;
    format!("{}, {}", counted(errors, "error"), counted(warnings, "warning"))
}

/// `1 application`, `3 applications`
pub(super) fn counted(count: usize, noun: &str) -> String {
    if count == 1 { format!("1 {noun}") } else { format!("{count} {noun}s") }
}

/// More names are only counted.
const MOST_NAMES: usize = 3;

/// `blog, shop`, `blog, shop, wiki and 4 more`
pub(super) fn first_names(names: &[&str]) -> String {
    let (first, more) = names.split_at(names.len().min(MOST_NAMES));
    let more = if more.is_empty() { String::new() } else { format!(" and {} more", more.len()) };
    format!("{}{more}", first.join(", "))
}

fn render_one(finding: &Finding, colours: Colours) -> String {
    let Finding { severity, location, path, message, help, excerpt } = finding;
    let (paint, word) = match severity {
        Severity::Error => (Paint::Bad, "error"),
        Severity::Warning => (Paint::Warn, "warning"),
    };
    let subject = if path.is_empty() { String::new() } else { format!("{}: ", plain(path)) };
    let mut out = format!("{}: {subject}{}\n", colours.paint(paint, word), plain(message));
    let number = if location.line == 0 { String::new() } else { location.line.to_string() };
    let margin = " ".repeat(number.len());
    let bar = colours.paint(Paint::Busy, "|");
    let _ = writeln!(out, "{margin}{} {}", colours.paint(Paint::Busy, "-->"), plain(&location.to_string()));
    if let Some(excerpt) = excerpt.as_deref().filter(|_| location.line > 0) {
        // A tab is printed as one space, so that the marker is in the right column.
        let line: String = plain(excerpt).replace(['\t', '\n'], " ").trim_end().to_owned();
        let _ = writeln!(out, "{margin} {bar}\n{} {bar} {line}", colours.paint(Paint::Busy, &number));
        if location.column > 0 {
            let _ = writeln!(out, "{margin} {bar} {}", mark(&line, location.column, paint, colours));
        }
    }
    if let Some(help) = help {
        let _ = writeln!(out, "{margin} {} help: {}", colours.paint(Paint::Busy, "="), plain(help));
    }
    out.push('\n');
    out
}

/// `^^^^` under the word that starts in this column, counted from 1.
fn mark(line: &str, column: u32, paint: Paint, colours: Colours) -> String {
    let before = usize::try_from(column).unwrap_or(usize::MAX).saturating_sub(1).min(line.chars().count());
    let word = line.chars().skip(before).take_while(|it| !it.is_whitespace() && *it != ':').count();
    format!("{}{}", " ".repeat(before), colours.paint(paint, &"^".repeat(word.max(1))))
}
