//! Text for a terminal: differences object by object, or one unified diff.

use std::fmt::Write as _;

use driftless_plan::one_line;

use crate::report::{Action, App, Item, Kind, Report, Type};

/// Applications with drift or errors in full, all others in one line.
pub fn text(report: &Report) -> String {
    let mut out = String::new();
    for error in &report.errors {
        line(&mut out, format_args!("error: {error}"));
    }
    for error in &report.known_errors {
        line(&mut out, format_args!("{}: {error}", whose(error)));
    }
    for app in report.apps.iter().filter(|it| it.is_listed()) {
        application(&mut out, app, report.kind);
    }
    let quiet: Vec<&str> =
        report.apps.iter().filter(|it| !it.is_listed()).map(|it| it.name.as_str()).collect();
    if !quiet.is_empty() {
        line(&mut out, format_args!("{}: {}", nothing(report.kind), quiet.join(", ")));
    }
    if !report.unmanaged.is_empty() {
        line(&mut out, format_args!("of no application: {}", report.unmanaged.join(", ")));
    }
    line(&mut out, format_args!("{}", headline(report)));
    out
}

/// All unified diffs in order, with errors as comments between them.
pub fn diff(report: &Report) -> String {
    let mut out = String::new();
    for error in &report.errors {
        line(&mut out, format_args!("# error: {}", one_line(error)));
    }
    for error in &report.known_errors {
        line(&mut out, format_args!("# {}: {}", whose(error), one_line(error)));
    }
    for app in &report.apps {
        if let Some(error) = &app.error {
            line(&mut out, format_args!("# {}: error: {}", app.name, one_line(error)));
        }
        if let Some(error) = &app.known_error {
            line(&mut out, format_args!("# {}: the base has this error too: {}", app.name, one_line(error)));
        }
        if let Some(note) = &app.note {
            line(&mut out, format_args!("# {}: note: {}", app.name, one_line(note)));
        }
        for item in &app.items {
            let Some(rule) = &item.ignored else { continue };
            let (kind, name, sentence) = (&item.kind, &item.name, item.sentence());
            line(&mut out, format_args!("# {}: {kind} {name}: {sentence}: ignored by {rule}", app.name));
        }
        for diff in &app.diffs {
            out.push_str(&diff.text);
        }
    }
    out
}

/// `2 of 3 applications drift: 1 missing, 4 modified; 1 error`.
pub fn headline(report: &Report) -> String {
    let summary = &report.summary;
    let (verb, [missing, extra]) = match report.kind {
        Kind::Drift => ("drift", ["missing", "extra"]),
        Kind::Preview => ("change", ["added", "removed"]),
    };
    let mut out = match (summary.apps_with_drift, summary.apps) {
        (0, 0) => "no applications".to_owned(),
        (0, 1) if !has_unknown(report) => format!("1 application, {}", nothing(report.kind)),
        (0, all) if !has_unknown(report) => format!("{all} applications, {}", nothing(report.kind)),
        (some, all) => {
            let noun = if all == 1 { "application" } else { "applications" };
            let ending = if some == 1 || all == 1 { "s" } else { "" };
            format!("{some} of {all} {noun} {verb}{ending}")
        }
    };
    let counts = [
        (summary.missing, missing),
        (summary.extra, extra),
        (summary.modified, "modified"),
        (summary.kept, "kept"),
    ];
    let counts: Vec<String> =
        counts.iter().filter(|it| it.0 > 0).map(|(count, word)| format!("{count} {word}")).collect();
    if !counts.is_empty() {
        let _ = write!(out, ": {}", counts.join(", "));
    }
    if summary.ignored > 0 {
        let _ = write!(out, "; {} ignored", summary.ignored);
    }
    let errors = summary.apps_with_errors + report.errors.len();
    if errors > 0 {
        let _ = write!(out, "; {errors} {}", if errors == 1 { "error" } else { "errors" });
    }
    let known = summary.apps_with_known_errors + report.known_errors.len();
    if known > 0 {
        let noun = if known == 1 { "error" } else { "errors" };
        let _ = write!(out, "; {known} {noun} of the base");
        match summary.apps_with_known_errors {
            0 => {}
            1 => out.push_str(", so 1 application is not known"),
            count => {
                let _ = write!(out, ", so {count} applications are not known");
            }
        }
    }
    out
}

/// Whether it is unknown if an application has changed.
fn has_unknown(report: &Report) -> bool {
    report.has_errors() || report.has_known_errors()
}

fn nothing(kind: Kind) -> &'static str {
    match kind {
        Kind::Drift => "no drift",
        Kind::Preview => "no change",
    }
}

fn application(out: &mut String, app: &App, kind: Kind) {
    line(out, format_args!("{}: {}{}", app.name, result(app, kind), remarks(app)));
    if let Some(error) = &app.error {
        for error in error.lines() {
            line(out, format_args!("    {error}"));
        }
    }
    if let Some(error) = &app.known_error {
        line(out, format_args!("    errors that the base has too, so the changes are unknown:"));
        for error in error.lines() {
            line(out, format_args!("    {error}"));
        }
    }
    if let Some(note) = &app.note {
        line(out, format_args!("    note: {}", one_line(note)));
    }
    let mut before = None;
    for item in &app.items {
        let object = (&item.kind, &item.name);
        if before != Some(object) {
            line(
                out,
                format_args!(
                    "  {} {} {}{}{}",
                    sign(item.change),
                    item.kind,
                    item.name,
                    place(item),
                    whole(item)
                ),
            );
        }
        before = Some(object);
        if !item.path.is_empty() {
            line(out, format_args!("      {}{}", item.sentence(), aside(item)));
        }
    }
}

/// `3 differences`, `error`, `no drift`.
pub(super) fn result(app: &App, kind: Kind) -> String {
    let noun = match kind {
        Kind::Drift => "difference",
        Kind::Preview => "change",
    };
    match (app.counted().count(), &app.error, &app.known_error) {
        (_, Some(_), _) => "error".to_owned(),
        (_, None, Some(_)) => "error on the base too".to_owned(),
        (0, None, None) => nothing(kind).to_owned(),
        (1, None, None) => format!("1 {noun}"),
        (count, None, None) => format!("{count} {noun}s"),
    }
}

/// ` (suspended, pinned to 0123456789ab)`
pub(super) fn remarks(app: &App) -> String {
    let mut all = Vec::new();
    if app.suspended {
        all.push("suspended".to_owned());
    }
    if let Some(commit) = &app.pinned {
        all.push(format!("pinned to {}", commit.short()));
    }
    if all.is_empty() { String::new() } else { format!(" ({})", all.join(", ")) }
}

pub(super) fn sign(change: Type) -> char {
    match change {
        Type::Missing | Type::Added => '+',
        Type::Extra | Type::Removed | Type::Kept => '-',
        Type::Modified | Type::Image | Type::Stopped => '~',
    }
}

/// ` (compose.yaml:12)`
pub(super) fn place(item: &Item) -> String {
    match (item.file.as_str(), item.line) {
        ("", _) => String::new(),
        (file, 0) => format!(" ({file})"),
        (file, line) => format!(" ({file}:{line})"),
    }
}

/// The line of an added or removed object.
fn whole(item: &Item) -> String {
    if item.path.is_empty() { format!(": {}{}", item.sentence(), aside(item)) } else { String::new() }
}

fn aside(item: &Item) -> String {
    let mut all: Vec<String> = item.ignored.iter().map(|rule| format!("ignored by {rule}")).collect();
    // `being applied` is the usual case and is not printed.
    all.extend(item.action.filter(|it| *it != Action::Sync).map(|it| it.phrase().to_owned()));
    all.extend(item.first_seen.map(|it| format!("since {it}")));
    if all.is_empty() { String::new() } else { format!("  [{}]", all.join(", ")) }
}

/// Whether an error of the base is one of the head as well. It says so itself.
pub(super) fn whose(known: &str) -> &'static str {
    if known.starts_with("base: ") { "only the base has this error" } else { "the base has this error too" }
}

fn line(out: &mut String, text: std::fmt::Arguments<'_>) {
    writeln!(out, "{text}").expect("writing to a string cannot fail");
}
