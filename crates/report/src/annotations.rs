//! GitHub workflow commands: annotations on the lines of a pull request.
//!
//! GitHub shows ten annotations of a kind per step, so the nine worst are written and the others are counted.

use std::fmt::Write as _;

use driftless_plan::one_line;

use crate::{
    report::{App, Item, Kind, Report, Type, located},
    text,
};

/// One line per annotation. Forgejo and Gitea read the same commands.
pub fn annotations(report: &Report) -> String {
    let (mut errors, mut warnings, mut notices) = (Vec::new(), Vec::new(), Vec::new());
    for error in &report.errors {
        errors.push(("", 0, "driftless".to_owned(), one_line(error)));
    }
    for error in &report.known_errors {
        notices.push(("", 0, text::whose(error).to_owned(), one_line(error)));
    }
    for app in &report.apps {
        for error in app.error.iter().flat_map(|error| error.lines()) {
            let (file, line, message) = located(error);
            errors.push((file, line, format!("{}: error", app.title()), message.to_owned()));
        }
        for error in app.known_error.iter().flat_map(|error| error.lines()) {
            let (file, line, message) = located(error);
            notices.push((file, line, format!("{}: {KNOWN}", app.title()), message.to_owned()));
        }
        for item in app.counted() {
            let list = if is_notice(item) { &mut notices } else { &mut warnings };
            let title = format!("{}: {} {}", app.title(), item.kind, item.name);
            list.push((item.file.as_str(), item.line, title, item.sentence()));
        }
    }
    let mut out = String::new();
    for (command, list) in [("error", errors), ("warning", warnings), ("notice", notices)] {
        for (file, line, title, message) in list.iter().take(SHOWN) {
            write(&mut out, command, (file, *line), title, message);
        }
        if let Some(more) = list.len().checked_sub(SHOWN).filter(|it| *it > 0) {
            write(
                &mut out,
                command,
                ("", 0),
                "driftless",
                &format!("{more} more: see the log or the report"),
            );
        }
    }
    let counted = text::headline(report);
    let title = match report.kind {
        Kind::Drift => "drift",
        Kind::Preview => "preview",
    };
    let names: Vec<String> = report.apps.iter().filter(|it| it.has_drift).map(count).collect();
    // Not an annotation: a line in the log.
    let _ = writeln!(out, "driftless {title}: {}", one(&counted));
    if !names.is_empty() {
        let _ = writeln!(out, "{}", one(&names.join(", ")));
    }
    out
}

const SHOWN: usize = 9;

/// The title of an error that is not the fault of the change.
const KNOWN: &str = "the base has this error too";

/// Whether a difference is information only: an object that a preview adds, or a volume that stays.
fn is_notice(item: &Item) -> bool {
    matches!(item.change, Type::Added | Type::Kept)
}

fn count(app: &App) -> String {
    format!("{} {}", app.title(), app.counted().count())
}

fn write(out: &mut String, command: &str, (file, line): (&str, u32), title: &str, message: &str) {
    let mut properties = Vec::new();
    if !file.is_empty() {
        properties.push(format!("file={}", property(file)));
        if line > 0 {
            properties.push(format!("line={line},endLine={line}"));
        }
    }
    properties.push(format!("title={}", property(title)));
    let _ = writeln!(out, "::{command} {}::{}", properties.join(","), data(message));
}

/// Escapes a message as GitHub's workflow commands require.
fn data(text: &str) -> String {
    text.replace('%', "%25").replace('\r', "%0D").replace('\n', "%0A")
}

fn property(text: &str) -> String {
    data(text).replace(':', "%3A").replace(',', "%2C")
}

/// One line that GitHub does not read as a command.
fn one(text: &str) -> String {
    one_line(text).replace("::", ": :")
}
