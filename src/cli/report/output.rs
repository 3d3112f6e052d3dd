//! Filters a report, writes it in every requested format, and derives the exit code. [`driftless_report`] defines the
//! report.

use std::{
    fs::OpenOptions,
    io::{self, Write as _},
    path::{Path, PathBuf},
};

use super::{
    error::Error,
    options::{FailOn, ReportArgs, ReportFormat, ReportOutput},
    post::post,
};
use crate::{
    cli::Context, cli::Error as CliError, cli::ExitStatus, cli::findings::counted, cli::output::print,
    cli::screen::Colours, cli::screen::Paint, cli::screen::plain,
};
use driftless_report as report;
use driftless_report::{Ignore, Report, Selector, Type};

/// Rejects invalid arguments before any work.
pub(in crate::cli) fn check(args: &ReportArgs) -> Result<(), Error> {
    let to_stdout = args.output.iter().filter(|it| it.file.is_none()).count();
    if to_stdout > 1 { Err(Error::TwoToStdout) } else { Ok(()) }
}

/// Filters, writes and posts a report, and returns its exit code.
pub(in crate::cli) async fn finish(
    mut report: Report,
    args: &ReportArgs,
    context: &Context<'_>,
) -> Result<ExitStatus, CliError> {
    if let Some(note) = args.selector.as_ref().and_then(|selector| keep_labelled(&mut report, selector)) {
        context.screen.say(context.screen.fold(&note));
    }
    if let Some(path) = &args.ignore_file {
        let source = |source| Error::Read { path: path.clone(), source };
        let text = std::fs::read_to_string(path).map_err(source)?;
        let rules = Ignore::parse(&path.display().to_string(), &text).map_err(Error::from)?;
        report::ignore(&mut report, &rules);
    }
    report::settle(&mut report);
    for output in &args.output {
        write(&report, output, args, context)?;
    }
    let exit_status = exit_status(&report, args);
    if args.post {
        post(&report, args, exit_status, context).await?;
    }
    Ok(exit_status)
}

/// Keeps the differences of objects with some labels. Returns a note if there are differences and none of such an object, because a
/// mistyped label would else look like no difference.
fn keep_labelled(report: &mut Report, selector: &Selector) -> Option<String> {
    let count = |report: &Report| report.apps.iter().map(|app| app.items.len()).sum::<usize>();
    let before = count(report);
    report::keep_objects(report, selector);
    let is_empty = before > 0 && count(report) == 0;
    is_empty.then(|| {
        format!(
            "note: no object that differs has the labels of -l; left out: {}",
            counted(before, "difference")
        )
    })
}

/// Errors take precedence over drift.
fn exit_status(report: &Report, args: &ReportArgs) -> ExitStatus {
    let mut types: Vec<Type> = args.fail_on.iter().flat_map(|it| it.types()).collect();
    if types.is_empty() {
        types = Type::ALL.to_vec();
    }
    if report.has_errors() || (args.fail_on.contains(&FailOn::Any) && report.has_known_errors()) {
        return ExitStatus::Code(error_code(args));
    }
    match report.has_drift(&types) {
        false => ExitStatus::Success,
        true if args.exit_zero => ExitStatus::Success,
        true if args.detailed_exitcode => ExitStatus::Code(2),
        true => ExitStatus::Code(args.drift_exit_code.unwrap_or(1)),
    }
}

/// Exit code of an error.
pub(in crate::cli) fn error_code(args: &ReportArgs) -> u8 {
    if args.detailed_exitcode { 1 } else { 2 }
}

fn write(
    report: &Report,
    output: &ReportOutput,
    args: &ReportArgs,
    context: &Context<'_>,
) -> Result<(), CliError> {
    let text = match output.format {
        ReportFormat::Text => report::text(report),
        ReportFormat::Diff => report::diff(report),
        ReportFormat::Json => report::json(report),
        ReportFormat::Ndjson => report::ndjson(report),
        ReportFormat::Markdown => report::markdown(report, &args.post_as, report::COMMENT_LIMIT),
        ReportFormat::Github => report::annotations(report),
        ReportFormat::Junit => report::junit(report),
        ReportFormat::Sarif => report::sarif(report),
    };
    if output.format == ReportFormat::Github {
        step_summary(report, args, context)?;
    }
    let is_for_people = matches!(output.format, ReportFormat::Text | ReportFormat::Diff);
    match &output.file {
        Some(path) => {
            let source = |source| Error::Write { path: path.clone(), source };
            let text = if is_for_people { plain(&text) } else { text };
            std::fs::write(path, text).map_err(source)?;
        }
        None if output.format == ReportFormat::Text => {
            print(&context.fold(&painted(&plain(&text), context.colours)))?;
        }
        None if is_for_people => {
            print(&painted(&context.fold_comments(&plain(&text)), context.colours))?;
        }
        None => print(&text)?,
    }
    Ok(())
}

/// GitHub shows this file on the page of the run. Other steps may have written to it before.
fn step_summary(report: &Report, args: &ReportArgs, context: &Context<'_>) -> Result<(), Error> {
    let path = (context.environment)("GITHUB_STEP_SUMMARY").filter(|it| !it.is_empty());
    let Some(path) = path.map(PathBuf::from) else { return Ok(()) };
    let there = std::fs::metadata(&path).map_or(0, |it| usize::try_from(it.len()).unwrap_or(usize::MAX));
    let room = report::STEP_SUMMARY_LIMIT.saturating_sub(there).saturating_sub(1);
    let text = report::markdown(report, &args.post_as, room);
    append(&path, &format!("{text}\n")).map_err(|source| Error::Write { path, source })
}

fn append(path: &Path, text: &str) -> io::Result<()> {
    OpenOptions::new().create(true).append(true).open(path)?.write_all(text.as_bytes())
}

/// Colours a line by its first character.
pub(in crate::cli) fn painted(text: &str, colours: Colours) -> String {
    let mut out = String::with_capacity(text.len());
    for line in text.lines() {
        let paint = match line.trim_start().as_bytes() {
            [b'+', b'+', b'+', ..] | [b'-', b'-', b'-', ..] => Some(Paint::Strong),
            [b'+', ..] => Some(Paint::Good),
            [b'-', ..] => Some(Paint::Bad),
            [b'@', b'@', ..] => Some(Paint::Busy),
            [b'~' | b'!', b' ', ..] | [b'#', ..] => Some(Paint::Warn),
            _ if line.starts_with("error:") => Some(Paint::Bad),
            _ => None,
        };
        out.push_str(&paint.map_or_else(|| line.to_owned(), |it| colours.paint(it, line)));
        out.push('\n');
    }
    out
}
