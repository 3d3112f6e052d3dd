//! `driftless fleet history`: what ran where and when.

use std::fmt::Write as _;

use clap::Args;

use driftless_fleet::{FleetHistoryEntry, FleetHistoryEvent};
use driftless_model::{AppName, CommitId, HostIdentity, Timestamp};

use super::remove::NoHostName;
use crate::cli::{
    client::Client,
    context::{Context, ExitStatus},
    error::{CommandError, Error},
    options::{Output, ServerArgs},
    output::{json, print, yaml},
    screen::{Colours, Paint, plain},
    span::span,
    table::{Cell, Table},
};

/// Show which revision of an application each host began and when, newest first.
///
/// A collector writes an entry when a host reports another revision, a commit that failed, or that an application is gone.
/// It keeps 50,000 entries. A bucket or folder has no history.
#[derive(Debug, Args)]
#[command(after_help = "\
Exit codes:
  0  there are entries
  1  there are none
  2  error: wrong usage, no answer, the agent is no collector

Examples:
  driftless fleet history
  driftless fleet history --only nas --app shop -o json")]
pub(in crate::cli) struct FleetHistoryArgs {
    /// Only this host.
    #[arg(long, value_name = "HOST")]
    only: Option<String>,
    /// Only this application.
    #[arg(long)]
    app: Option<String>,
    /// A bucket or folder, for a clear error: it has no history.
    #[arg(long, value_name = "PLACE", hide = true)]
    from: Option<String>,
    /// Number of entries, at most 1000.
    #[arg(long, value_name = "NUMBER", default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..=1000))]
    limit: u64,
    /// Output format.
    #[arg(short, long, value_name = "FORMAT", value_enum, default_value_t = Output::Table)]
    output: Output,
    #[command(flatten)]
    server: ServerArgs,
}

/// The place keeps the last report of each host only.
#[derive(Debug, thiserror::Error)]
#[error("a bucket or folder has no history: {0} keeps only the last report of each host")]
struct NoHistory(String);

impl CommandError for NoHistory {
    fn help(&self) -> Option<String> {
        Some("ask a collector (`fleet: {accept: true}`) with --server, or run `driftless history APP` on the host".to_owned())
    }
}

pub(super) async fn history(args: &FleetHistoryArgs, context: &Context<'_>) -> Result<ExitStatus, Error> {
    if let Some(place) = &args.from {
        return Err(NoHistory(plain(place)).into());
    }
    let mut path = format!("/api/v1/fleet/history?limit={}", args.limit);
    if let Some(host) = &args.only {
        if !HostIdentity::is_name(host) {
            return Err(NoHostName(host.clone()).into());
        }
        let _ = write!(path, "&host={host}");
    }
    if let Some(app) = &args.app {
        let app = AppName::parse(app)?;
        let _ = write!(path, "&app={app}");
    }
    let client = Client::new(&args.server, context.environment)?;
    let entries: Vec<FleetHistoryEntry> = client.get(&path).await?;
    print(&match args.output {
        Output::Json => json(&entries),
        Output::Yaml => yaml(&entries),
        Output::Table => table(&entries, Some(context.list_width()), context.clock.now(), context.colours),
        Output::Wide => table(&entries, None, context.clock.now(), context.colours),
    })?;
    Ok(if entries.is_empty() { ExitStatus::Negative } else { ExitStatus::Success })
}

fn table(entries: &[FleetHistoryEntry], width: Option<usize>, now: Timestamp, colours: Colours) -> String {
    if entries.is_empty() {
        return "no entries yet\n".to_owned();
    }
    let mut table = Table::new(0, &["AGE", "HOST", "APPLICATION", "EVENT", "REVISION", "COMMIT"]);
    for entry in entries {
        let (paint, event) = match entry.event {
            FleetHistoryEvent::Revision => (Paint::Good, "revision"),
            FleetHistoryEvent::Failed => (Paint::Bad, "failed"),
            FleetHistoryEvent::Removed => (Paint::Soft, "removed"),
        };
        table.row([
            span(now.since(entry.at)).into(),
            Cell::painted(Paint::Strong, plain(&entry.host)),
            plain(entry.application.as_str()).into(),
            Cell::painted(paint, event.to_owned()),
            entry.revision.map_or_else(|| "-".to_owned(), |number| format!("#{number}")).into(),
            entry.commit.as_ref().map_or("-", CommitId::short).into(),
        ]);
    }
    if let Some(width) = width {
        table.fit(width);
    }
    table.render(colours)
}
