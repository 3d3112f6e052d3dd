//! `driftless drift` and `driftless preview`: build a report, filter it, write it in every requested format, and derive
//! the exit code. [`driftless_report`] defines the report.

use std::{
    fs::OpenOptions,
    io::{self, Write as _},
    path::{Path, PathBuf},
};

use super::{
    Context, Error as CliError, Verdict,
    screen::{Colours, Paint, plain, print},
};
use driftless_agent as controller;
use driftless_forge as forge;
use driftless_git as source;
use driftless_report as report;
use driftless_report::{Ignore, InvalidRule, Report, Type};

pub(super) mod args;
mod ci;
mod drift;
mod post;
mod preview;
mod repository;

pub(super) use drift::drift;
pub(super) use preview::preview;

use args::{Format, Output, ReportArgs};

#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    #[error("there is no application `{0}`")]
    NoSuchApplication(String),
    #[error("only one output can go to standard output: write the others to a file, such as `-o json=FILE`")]
    TwoToStdout,
    #[error("could not read {path}")]
    Read {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("could not write {path}")]
    Write {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error(transparent)]
    Ignore(#[from] InvalidRule),
    #[error(transparent)]
    Source(#[from] source::Error),
    #[error("could not observe the engine")]
    Look(#[source] controller::Error),
    #[error("the report took longer than {0:?}")]
    Timeout(std::time::Duration),
    #[error("{0}")]
    Usage(String),
    #[error("the report could not be posted")]
    Forge(#[from] forge::Error),
    #[error("the report could not be posted: {0}")]
    Post(String),
    #[error("could not create a temporary folder")]
    Temporary(#[source] io::Error),
    #[error("the report failed: {0}")]
    Broken(String),
}

impl Error {
    pub(super) fn help(&self) -> Option<String> {
        match self {
            Self::NoSuchApplication(_) => {
                Some("run the command without --app to see all applications".to_owned())
            }
            Self::Timeout(_) => Some("allow more time with --timeout".to_owned()),
            _ => None,
        }
    }
}

/// Rejects invalid arguments before any work.
fn check(args: &ReportArgs) -> Result<(), Error> {
    let to_stdout = args.output.iter().filter(|it| it.file.is_none()).count();
    if to_stdout > 1 { Err(Error::TwoToStdout) } else { Ok(()) }
}

/// Filters, writes and posts a report, and returns its exit code.
async fn finish(mut report: Report, args: &ReportArgs, context: &Context<'_>) -> Result<Verdict, CliError> {
    if let Some(selector) = &args.selector {
        report::keep_objects(&mut report, selector);
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
    if args.post {
        post::post(&report, args, context).await?;
    }
    Ok(verdict(&report, args))
}

/// Errors take precedence over drift.
fn verdict(report: &Report, args: &ReportArgs) -> Verdict {
    let types: Vec<Type> = match args.fail_on.as_slice() {
        [] => Type::ALL.to_vec(),
        some => some.iter().flat_map(|it| it.types()).collect(),
    };
    if report.has_errors() {
        return Verdict::Code(error_code(args));
    }
    match report.has_drift(&types) {
        false => Verdict::Yes,
        true if args.exit_zero => Verdict::Yes,
        true if args.detailed_exitcode => Verdict::Code(2),
        true => Verdict::Code(args.drift_exit_code.unwrap_or(1)),
    }
}

/// Exit code of an error.
pub(super) fn error_code(args: &ReportArgs) -> u8 {
    if args.detailed_exitcode { 1 } else { 2 }
}

fn write(report: &Report, output: &Output, args: &ReportArgs, context: &Context<'_>) -> Result<(), CliError> {
    let text = match output.format {
        Format::Text => report::text(report),
        Format::Diff => report::diff(report),
        Format::Json => report::json(report),
        Format::Ndjson => report::ndjson(report),
        Format::Markdown => report::markdown(report, &args.post_as, report::COMMENT_LIMIT),
        Format::Github => report::annotations(report),
        Format::Junit => report::junit(report),
        Format::Sarif => report::sarif(report),
    };
    if output.format == Format::Github {
        step_summary(report, args, context)?;
    }
    let is_for_people = matches!(output.format, Format::Text | Format::Diff);
    match &output.file {
        Some(path) => {
            let source = |source| Error::Write { path: path.clone(), source };
            let text = if is_for_people { plain(&text) } else { text };
            std::fs::write(path, text).map_err(source)?;
        }
        None if is_for_people => print(&painted(&plain(&text), context.colours))?,
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
fn painted(text: &str, colours: Colours) -> String {
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

/// Whether an application is selected, by its name and folder.
fn is_selected(args: &ReportArgs, name: &str, folder: &str) -> bool {
    let is_named = args.app.is_empty() || args.app.iter().any(|it| it == name);
    let is_inside = args.path.as_ref().is_none_or(|path| {
        let path = path.trim_matches('/').trim_start_matches("./");
        let below = folder.strip_prefix(path);
        path.is_empty() || path == "." || below.is_some_and(|it| it.is_empty() || it.starts_with('/'))
    });
    is_named && is_inside
}

/// Every given name must exist.
fn check_names<'n>(args: &ReportArgs, names: impl Iterator<Item = &'n str>) -> Result<(), Error> {
    let names: std::collections::BTreeSet<&str> = names.collect();
    match args.app.iter().find(|app| !names.contains(app.as_str())) {
        Some(unknown) => Err(Error::NoSuchApplication(unknown.clone())),
        None => Ok(()),
    }
}
