//! `driftless history`: the revisions of an application.

use std::fmt::Write as _;

use clap::Args;

use super::{
    client::{Client, application_path},
    context::{Context, Verdict},
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

pub(super) async fn history(args: &HistoryArgs, context: &Context<'_>) -> Result<Verdict, Error> {
    let client = Client::new(&args.server, context.environment)?;
    let revisions: Vec<Revision> = client.get(&application_path(&args.app, "/revisions")?).await?;
    let text = match args.output {
        Output::Json => json(&revisions),
        Output::Yaml => yaml(&revisions),
        Output::Table | Output::Wide => {
            let mut text = render_history(&revisions, context.clock.now(), context.colours);
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
    Ok(Verdict::Yes)
}

/// The history of one application.
pub fn render_history(revisions: &[Revision], now: Timestamp, colours: Colours) -> String {
    if revisions.is_empty() {
        return "no revisions yet\n".to_owned();
    }
    let head = ["REVISION", "COMMIT", "AGE", "CAUSE", "RESULT", "TOOK", "AUTHOR", "SUBJECT"];
    let mut table = Table::new(0, &head);
    for it in revisions {
        let (paint, result) = match &it.outcome {
            Outcome::InProgress => (Paint::Busy, "in progress".to_owned()),
            Outcome::Succeeded => (Paint::Good, "succeeded".to_owned()),
            Outcome::Failed { reason } => (Paint::Bad, format!("failed: {reason}")),
            Outcome::Superseded => (Paint::Soft, "superseded".to_owned()),
        };
        table.row([
            Cell::painted(Paint::Strong, format!("#{}", it.number)),
            it.commit.short().into(),
            span(now.since(it.started)).into(),
            cause(it).into(),
            Cell::painted(paint, result),
            it.finished.map_or_else(|| "-".to_owned(), |end| span(end.since(it.started))).into(),
            it.commit.author_name().into(),
            it.commit.subject.as_str().into(),
        ]);
    }
    table.render(colours)
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
    }
}
