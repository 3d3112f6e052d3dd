//! `driftless fleet drift`: where the fleet is not as Git says.

use std::fmt::Write as _;

use clap::Args;

use driftless_fleet::{FleetDrift, UnknownHost, fleet_drift};
use driftless_model::CommitId;

use super::{
    picture::{Picture, PictureArgs},
    wait::NoCollector,
};
use crate::cli::{
    context::{Context, ExitStatus},
    error::{CommandError, Error},
    options::Output,
    output::{json, print, yaml},
    screen::{Colours, Paint, plain},
    table::{Cell, Table},
};

/// List the applications of all hosts that are not as Git says.
///
/// `driftless drift` on the host shows each difference. A host that is stale, lost or expected and never reported is an
/// error, never a host without drift.
#[derive(Debug, Args)]
#[command(after_help = "\
Exit codes:
  0  no drift
  1  drift
  2  error: wrong usage, no answer, a host whose state is not known; takes
     precedence over drift

Examples:
  driftless fleet drift
  driftless fleet drift --only nas -o json
  driftless fleet drift --from s3://fleet/prod")]
pub(in crate::cli) struct FleetDriftArgs {
    /// Only this host; give it several times for several [default: all hosts].
    #[arg(long, value_name = "HOST")]
    only: Vec<String>,
    /// Output format.
    #[arg(short, long, value_name = "FORMAT", value_enum, default_value_t = Output::Table)]
    output: Output,
    #[command(flatten)]
    picture: PictureArgs,
}

/// Hosts whose state is not known.
#[derive(Debug, thiserror::Error)]
#[error("the state of {0} is not known")]
struct UnknownHosts(String);

impl CommandError for UnknownHosts {
    fn help(&self) -> Option<String> {
        Some("`driftless fleet status` says when each host was last heard".to_owned())
    }
}

/// Reports that the agent has not read yet, so that hosts may be missing.
#[derive(Debug, thiserror::Error)]
#[error("the hosts are not all known: {0}")]
struct UnreadSource(String);

impl CommandError for UnreadSource {
    fn help(&self) -> Option<String> {
        Some("the agent reads them again every 15 seconds; `driftless fleet status` says when".to_owned())
    }
}

pub(super) async fn drift(args: &FleetDriftArgs, context: &Context<'_>) -> Result<ExitStatus, Error> {
    let mut picture = Picture::new(&args.picture, context)?;
    let status = picture.look(context).await?;
    if !status.accepts && status.source.is_none() {
        return Err(NoCollector(picture.address()).into());
    }
    let found = fleet_drift(&status.hosts, &args.only);
    print(&match args.output {
        Output::Json => json(&found),
        Output::Yaml => yaml(&found),
        Output::Table => context.fold(&text(&found, Some(context.list_width()), context.colours)),
        Output::Wide => text(&found, None, context.colours),
    })?;
    if let Some(problem) = status.unread(&args.only) {
        return Err(UnreadSource(problem).into());
    }
    if let Some(unknown) = unknown(&found.unknown) {
        return Err(UnknownHosts(unknown).into());
    }
    Ok(if found.applications.is_empty() { ExitStatus::Success } else { ExitStatus::Negative })
}

/// The hosts whose state is not known, in a few words.
fn unknown(hosts: &[UnknownHost]) -> Option<String> {
    let (first, others) = hosts.split_first()?;
    let name = plain(&first.host);
    Some(match others.len() {
        0 => name,
        1 => format!("{name} and 1 more host"),
        more => format!("{name} and {more} more hosts"),
    })
}

fn text(found: &FleetDrift, width: Option<usize>, colours: Colours) -> String {
    let mut text = String::new();
    if !found.applications.is_empty() {
        let mut table = Table::new(0, &["HOST", "APPLICATION", "SYNC", "DRIFT", "COMMIT", "REASON"]);
        for it in &found.applications {
            table.row([
                Cell::painted(Paint::Strong, plain(&it.host)),
                plain(it.application.as_str()).into(),
                Cell::painted(Paint::Warn, format!("{:?}", it.sync)),
                it.drift.to_string().into(),
                it.commit.as_ref().map_or("none", CommitId::short).chars().take(7).collect::<String>().into(),
                plain(&it.message).into(),
            ]);
        }
        if let Some(width) = width {
            table.fit(width);
        }
        text.push_str(&table.render(colours));
    }
    for UnknownHost { host, state, reason } in &found.unknown {
        let line = format!("{}: {state}: {}", plain(host), plain(reason));
        let _ = writeln!(text, "{}", colours.paint(Paint::Bad, &line));
    }
    if text.is_empty() {
        let hosts = if found.hosts == 1 { "1 host" } else { &format!("{} hosts", found.hosts) };
        let _ = writeln!(text, "no drift on {hosts}");
    }
    for host in &found.released {
        let line = format!("{}: everything was released there, so it follows no repository", plain(host));
        let _ = writeln!(text, "{}", colours.paint(Paint::Soft, &line));
    }
    text
}
