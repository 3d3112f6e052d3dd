//! Markdown for pull requests and step summaries. Every application is named and counted; details are left out,
//! longest first, until the text fits the limit.

use std::fmt::Write as _;

use driftless_plan::one_line;

use crate::{
    report::{App, Kind, Report, Type},
    text,
};

/// GitHub refuses a comment of more than 65,536 characters.
pub const COMMENT_LIMIT: usize = 65_000;
/// GitHub drops a step summary of more than 1 MiB, counted in bytes.
pub const STEP_SUMMARY_LIMIT: usize = 1 << 20;

/// The most bytes of the beginning with its errors, so that there is room for the applications.
const MOST_OF_HEAD: usize = 20_000;

/// The invisible HTML comment by which a later report finds the comment of an earlier one.
pub fn marker(kind: Kind, set: &str) -> String {
    // Two dashes would end the HTML comment.
    let set: String = set.chars().filter(|it| it.is_alphanumeric() || "._/".contains(*it)).collect();
    match kind {
        Kind::Drift => format!("<!-- driftless:drift {set} -->"),
        Kind::Preview => format!("<!-- driftless:preview {set} -->"),
    }
}

/// The report in at most `most` characters and bytes. `set` distinguishes several comments on one pull request.
pub fn markdown(report: &Report, set: &str, most: usize) -> String {
    let head = format!("{}\n{}", marker(report.kind, set), head(report));
    let tail = foot(report);
    let noted = |out: String| out.len() <= most;
    let mut bodies: Vec<Option<String>> =
        report.apps.iter().map(|it| Some(body(it, report.kind)).filter(|it| !it.is_empty())).collect();
    let table = table(report);
    let room = most.saturating_sub(head.len() + tail.len() + table.len());
    let left_out = drop_longest(&mut bodies, room);
    let mut out = format!("{head}{table}");
    bodies.into_iter().flatten().for_each(|it| out.push_str(&it));
    if left_out > 0 {
        let _ = write!(out, "\n{}\n", too_long(left_out));
    }
    out.push_str(&tail);
    if noted(out.clone()) {
        return out;
    }
    // Thousands of applications: names and counts only; those that do not fit are counted.
    format!("{head}{}{tail}", names(report, most.saturating_sub(head.len() + tail.len())))
}

const TOO_LONG: usize = 140;

/// The log of the action has counts and annotations only.
const ELSEWHERE: &str = "The summary of the run or the output `-o text` has them.";

fn too_long(count: usize) -> String {
    let noun = if count == 1 { "one application is".to_owned() } else { format!("{count} applications are") };
    format!("The details of {noun} left out, for they are too long. {ELSEWHERE}")
}

/// Removes the longest bodies until the others fit. Returns how many were removed.
fn drop_longest(bodies: &mut [Option<String>], room: usize) -> usize {
    let mut total: usize = bodies.iter().flatten().map(String::len).sum();
    if total <= room {
        return 0;
    }
    let room = room.saturating_sub(TOO_LONG);
    let mut order: Vec<usize> = (0..bodies.len()).collect();
    order
        .sort_by_key(|it| std::cmp::Reverse(bodies.get(*it).and_then(Option::as_ref).map_or(0, String::len)));
    let mut dropped = 0;
    for index in order {
        if total <= room {
            break;
        }
        if let Some(body) = bodies.get_mut(index).and_then(Option::take) {
            total -= body.len();
            dropped += 1;
        }
    }
    dropped
}

fn head(report: &Report) -> String {
    let title = match report.kind {
        Kind::Drift => "Drift",
        Kind::Preview => "Preview",
    };
    let mut out = format!("### {title}: {}\n\n", text::headline(report));
    let commit = |it: &driftless_model::CommitInfo| {
        format!("{} {}", code(it.short()), escaped(&it.subject.chars().take(100).collect::<String>()))
    };
    match (report.kind, &report.base, &report.head) {
        (Kind::Preview, Some(base), Some(head)) => {
            let _ = writeln!(out, "From {} to {}\n", commit(base), commit(head));
        }
        (Kind::Drift, _, Some(head)) => {
            let _ = writeln!(out, "Against {}\n", commit(head));
        }
        _ => {}
    }
    let written = |whose: &str, error: &str| format!("{whose}: {}\n\n", escaped(&one_line(error)));
    let errors = report.errors.iter().map(|error| written("**Error**", error));
    let known = report.known_errors.iter().map(|error| written(text::whose(error), error));
    let mut left_out = 0;
    for error in errors.chain(known) {
        if left_out > 0 || out.len() + error.len() > MOST_OF_HEAD {
            left_out += 1;
        } else {
            out.push_str(&error);
        }
    }
    if left_out > 0 {
        let errors = if left_out == 1 { "error is" } else { "errors are" };
        let _ = writeln!(out, "{left_out} {errors} left out, for they are too long. {ELSEWHERE}\n");
    }
    out
}

fn foot(report: &Report) -> String {
    let mut out = String::new();
    if !report.unmanaged.is_empty() {
        let names: Vec<String> = report.unmanaged.iter().map(|it| code(it)).collect();
        let mut list = names.join(", ");
        if list.len() > 4000 {
            list = format!("{} containers", names.len());
        }
        let _ = writeln!(out, "\nOf no application: {list}");
    }
    if let Some(at) = report.generated_at {
        let from = report.agent.as_ref().or(report.host.as_ref()).map(|it| format!(" from {}", code(it)));
        let _ = writeln!(out, "\n<sub>Looked at {at}{}</sub>", from.unwrap_or_default());
    }
    out
}

/// A row for each application with differences, errors or remarks, and one line for all others.
fn table(report: &Report) -> String {
    let (missing, extra) = match report.kind {
        Kind::Drift => ("missing", "extra"),
        Kind::Preview => ("added", "removed"),
    };
    let (listed, quiet): (Vec<&App>, Vec<&App>) = report.apps.iter().partition(|it| it.is_listed());
    let mut out = String::new();
    if !listed.is_empty() {
        let _ = writeln!(out, "| application | {missing} | {extra} | modified | |\n|---|--:|--:|--:|---|");
    }
    for app in listed {
        let count = |types: &[Type]| match app.counted().filter(|it| types.contains(&it.change)).count() {
            0 => String::new(),
            count => count.to_string(),
        };
        let _ = writeln!(
            out,
            "| {} | {} | {} | {} | {} |",
            code(app.name.as_str()),
            count(&[Type::Missing, Type::Added]),
            count(&[Type::Extra, Type::Removed]),
            count(&[Type::Modified, Type::Image, Type::Stopped]),
            remark(app),
        );
    }
    if !quiet.is_empty() {
        let word = if report.kind == Kind::Drift { "No drift" } else { "No change" };
        let names: Vec<String> = quiet.iter().map(|it| code(it.name.as_str())).collect();
        let _ = writeln!(out, "\n{word} in {}: {}", quiet.len(), names.join(", "));
    }
    out
}

fn remark(app: &App) -> String {
    let mut all = Vec::new();
    if app.error.is_some() {
        all.push("**error**".to_owned());
    }
    if app.known_error.is_some() {
        all.push("error on the base too".to_owned());
    }
    let kept = app.counted().filter(|item| item.change == Type::Kept).count();
    if kept > 0 {
        all.push(if kept == 1 { "1 volume stays".to_owned() } else { format!("{kept} volumes stay") });
    }
    if app.suspended {
        all.push("suspended".to_owned());
    }
    if let Some(commit) = &app.pinned {
        all.push(format!("pinned to {}", code(commit.short())));
    }
    let ignored = app.items.len() - app.counted().count();
    if ignored > 0 {
        all.push(format!("{ignored} ignored"));
    }
    all.join(", ")
}

/// The short form for when the table is too long as well.
fn names(report: &Report, room: usize) -> String {
    let mut out = String::from("\n");
    let room = room.saturating_sub(TOO_LONG);
    let mut rest = 0;
    // Applications with differences or errors come first.
    let mut apps: Vec<&App> = report.apps.iter().collect();
    apps.sort_by_key(|it| !it.is_listed());
    for app in apps {
        let count = app.counted().count();
        let error = if app.error.is_some() { " **error**" } else { "" };
        let one = match count {
            0 => format!("{}{error}, ", code(app.name.as_str())),
            count => format!("{} {count}{error}, ", code(app.name.as_str())),
        };
        if rest > 0 || out.len() + one.len() > room {
            rest += 1;
        } else {
            out.push_str(&one);
        }
    }
    let mut out = out.trim_end_matches(", ").to_owned();
    if rest > 0 {
        let _ = write!(out, " and {rest} more");
    }
    out.push('\n');
    out
}

/// The details of one application, folded.
fn body(app: &App, kind: Kind) -> String {
    if app.items.is_empty() && app.error.is_none() && app.known_error.is_none() && app.note.is_none() {
        return String::new();
    }
    let (name, result) = (html(app.name.as_str()), text::result(app, kind));
    let mut out = format!("\n<details><summary><b>{name}</b>: {result}</summary>\n\n");
    if let Some(error) = &app.error {
        out.push_str(&fenced("", error));
    }
    if let Some(error) = &app.known_error {
        out.push_str("Errors that the base has too, so the changes are unknown:\n\n");
        out.push_str(&fenced("", error));
    }
    if let Some(note) = &app.note {
        let _ = writeln!(out, "{}\n", escaped(&one_line(note)));
    }
    // The diff shows the fields; the list has what a diff does not show.
    for item in app.items.iter().filter(|item| item.ignored.is_some() || item.has_no_diff()) {
        let said = escaped(&one_line(&item.sentence()));
        let rule = item.ignored.as_ref().map(|rule| format!(" (ignored by {})", code(rule)));
        let _ = writeln!(out, "- {} {}: {said}{}", item.kind, code(&item.name), rule.unwrap_or_default());
    }
    let diffs: String = app.diffs.iter().map(|it| it.text.as_str()).collect();
    if !diffs.is_empty() {
        out.push('\n');
        out.push_str(&fenced("diff", &diffs));
    }
    out.push_str("\n</details>\n");
    out
}

/// A code block whose fence is longer than any fence in the text.
fn fenced(language: &str, text: &str) -> String {
    let fence = "`".repeat(longest_run(text).max(2) + 1);
    let text: String = text
        .chars()
        .filter(|it| !driftless_model::is_unprintable(*it) || *it == '\n' || *it == '\t')
        .collect();
    format!("{fence}{language}\n{}\n{fence}\n", text.trim_end_matches('\n'))
}

/// Inline code, also valid inside a table.
fn code(text: &str) -> String {
    let text = one_line(text).replace('|', "\\|");
    let ticks = "`".repeat(longest_run(&text) + 1);
    if ticks.len() == 1 { format!("`{text}`") } else { format!("{ticks} {text} {ticks}") }
}

fn longest_run(text: &str) -> usize {
    text.split(|it| it != '`').map(str::len).max().unwrap_or_default()
}

/// Escapes Markdown and HTML. An `@` mentions nobody: forges decode entities before they look for mentions, so a space without width
/// follows it.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for it in html(text).chars() {
        match it {
            '\\' | '`' | '*' | '_' | '[' | ']' | '|' | '#' | '~' | '!' | '(' | ')' => out.extend(['\\', it]),
            '@' => out.push_str("@&#8203;"),
            letter if driftless_model::is_unprintable(letter) => {}
            it => out.push(it),
        }
    }
    out
}

fn html(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
