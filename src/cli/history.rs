//! `driftless history`: the revisions of an application.

use std::fmt::Write as _;

use clap::Args;

use super::{
    client::{Client, application_path},
    context::{Context, ExitStatus},
    error::Error,
    options::{Output, ServerArgs},
    output::{json, print, yaml},
    screen::{Colours, Paint, plain},
    span::span,
    table::{Cell, Table},
};
use driftless_model::{Cause, Outcome, Revision, Timestamp};

/// Show the revisions of an application, newest first.
///
/// `driftless rollback --to` takes the number of a revision.
#[derive(Debug, Args)]
pub(super) struct HistoryArgs {
    /// Name of the application.
    pub(super) app: String,
    /// Output format.
    #[arg(short, long, value_name = "FORMAT", value_enum, default_value_t = Output::Table)]
    pub(super) output: Output,
    #[command(flatten)]
    pub(super) server: ServerArgs,
}

pub(super) async fn history(args: &HistoryArgs, context: &Context<'_>) -> Result<ExitStatus, Error> {
    let client = Client::new(&args.server, context.environment)?;
    let revisions: Vec<Revision> = client.get(&application_path(&args.app, "/revisions")?).await?;
    let text = match args.output {
        Output::Json => json(&revisions),
        Output::Yaml => yaml(&revisions),
        Output::Table | Output::Wide => {
            let width = context.columns().filter(|_| args.output == Output::Table);
            let mut text = render_history(&revisions, width, context.clock.now(), context.colours);
            if args.output == Output::Wide {
                for revision in revisions.iter().filter(|it| !it.changes.is_empty()) {
                    let _ = writeln!(text, "\n#{}", revision.number);
                    for change in &revision.changes {
                        let _ = writeln!(text, "  {}", plain(change));
                    }
                }
            }
            text
        }
    };
    print(&text)?;
    Ok(ExitStatus::Success)
}

/// The history of one application. It is folded to `width` columns if it is given.
pub fn render_history(
    revisions: &[Revision],
    width: Option<usize>,
    now: Timestamp,
    colours: Colours,
) -> String {
    if revisions.is_empty() {
        return "no revisions yet\n".to_owned();
    }
    let head = ["REVISION", "COMMIT", "AGE", "CAUSE", "RESULT", "TOOK", "AUTHOR", "SUBJECT"];
    let mut table = Table::new(0, &head);
    for it in revisions {
        let (paint, word) = result(&it.outcome);
        let result = match &it.outcome {
            Outcome::Failed { reason } => format!("{word}: {reason}"),
            Outcome::InProgress | Outcome::Succeeded | Outcome::Superseded => word.to_owned(),
        };
        table.row([
            Cell::painted(Paint::Strong, format!("#{}", it.number)),
            it.commit.short().into(),
            span(now.since(it.started)).into(),
            cause(it).into(),
            Cell::painted(paint, result),
            took(it).into(),
            it.commit.author_name().into(),
            it.commit.subject.as_str().into(),
        ]);
    }
    match width.filter(|width| !table.fits(*width)) {
        None => table.render(colours),
        Some(width) => narrow_history(revisions, width, now, colours),
    }
}

/// The history with everything that may be long in the last column.
fn narrow_history(revisions: &[Revision], width: usize, now: Timestamp, colours: Colours) -> String {
    let mut table = Table::new(0, &["REVISION", "COMMIT", "AGE", "RESULT", "TOOK", "CAUSE AND COMMIT"]);
    for it in revisions {
        let (paint, result) = result(&it.outcome);
        let why = match &it.outcome {
            Outcome::Failed { reason } => format!("; failed: {reason}"),
            Outcome::InProgress | Outcome::Succeeded | Outcome::Superseded => String::new(),
        };
        let Revision { commit, .. } = it;
        table.row([
            Cell::painted(Paint::Strong, format!("#{}", it.number)),
            commit.short().into(),
            span(now.since(it.started)).into(),
            Cell::painted(paint, result),
            took(it).into(),
            format!("{}: {} ({}){why}", cause(it), commit.subject, commit.author_name()).into(),
        ]);
    }
    table.fold(width);
    table.render(colours)
}

fn result(outcome: &Outcome) -> (Paint, &'static str) {
    match outcome {
        Outcome::InProgress => (Paint::Busy, "in progress"),
        Outcome::Succeeded => (Paint::Good, "succeeded"),
        Outcome::Failed { .. } => (Paint::Bad, "failed"),
        Outcome::Superseded => (Paint::Soft, "superseded"),
    }
}

fn took(revision: &Revision) -> String {
    revision.finished.map_or_else(|| "-".to_owned(), |end| span(end.since(revision.started)))
}

/// Why a revision exists, and who asked for it.
fn cause(revision: &Revision) -> String {
    let cause = cause_word(revision);
    match &revision.actor {
        Some(actor) => plain(&format!("{cause} by {actor}")),
        None => cause,
    }
}

fn cause_word(revision: &Revision) -> String {
    match (&revision.cause, revision.rollback_of) {
        (Cause::Rollback, Some(number)) => format!("rollback to #{number}"),
        (Cause::Commit, _) => "commit".to_owned(),
        (Cause::User, _) => "user".to_owned(),
        (Cause::Rollback, None) => "rollback".to_owned(),
        (Cause::AutomaticRollback, Some(number)) => format!("automatic rollback to #{number}"),
        (Cause::AutomaticRollback, None) => "automatic rollback".to_owned(),
        (Cause::Resume, _) => "resume".to_owned(),
        (Cause::Start, _) => "start".to_owned(),
        (Cause::Image, _) => "image".to_owned(),
        (Cause::Configuration, _) => "configuration".to_owned(),
        (Cause::Removal, _) => "removal".to_owned(),
    }
}
