//! `driftless fleet status`: the hosts of the fleet, worst first.

use std::fmt::Write as _;

use clap::Args;

use driftless_fleet::{FleetStatus, HostReport, HostState, HostView, SourceStatus, TargetStatus};
use driftless_model::{CommitId, Timestamp};

use super::picture::{Picture, PictureArgs};
use crate::cli::{
    context::{Context, Verdict},
    error::Error,
    options::Output,
    output::{json, print, yaml},
    screen::{Colours, Paint, plain},
    span::span,
    table::{Cell, Table},
};

/// The width of the table.
const COLUMNS: usize = 80;

/// Show the hosts of the fleet, worst first.
///
/// A host is Stale after three missed heartbeats and Lost after ten minutes; then its last state is not shown as if it
/// were true. Exits with 0 also if hosts are not well.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  driftless fleet status
  AWS_ENDPOINT_URL_S3=https://s3.local driftless fleet status --from s3://fleet")]
pub(in crate::cli) struct FleetStatusArgs {
    /// Output format; wide adds versions and labels.
    #[arg(short, long, value_name = "FORMAT", value_enum, default_value_t = Output::Table)]
    output: Output,
    #[command(flatten)]
    picture: PictureArgs,
}

pub(super) async fn status(args: &FleetStatusArgs, context: &Context<'_>) -> Result<Verdict, Error> {
    let status = Picture::new(&args.picture, context)?.look(context).await?;
    print(&match args.output {
        Output::Json => json(&status),
        Output::Yaml => yaml(&status),
        Output::Table => text(&status, false, context.clock.now(), context.colours),
        Output::Wide => text(&status, true, context.clock.now(), context.colours),
    })?;
    Ok(Verdict::Yes)
}

fn text(status: &FleetStatus, is_wide: bool, now: Timestamp, colours: Colours) -> String {
    let FleetStatus { accepts, hosts, targets, source } = status;
    let mut text = String::new();
    if !accepts && source.is_none() {
        text.push_str("this agent accepts no reports: set `fleet: {accept: true}` in its configuration\n");
    } else if hosts.is_empty() {
        text.push_str("no host has reported yet: set `report: {to: URL}` in the configuration of a host\n");
    } else {
        text.push_str(&table(hosts, is_wide, now, colours));
    }
    for host in hosts {
        if let Some(conflict) = &host.conflict {
            // A bucket does not know where a report comes from.
            let from = match conflict.from.as_str() {
                "" => String::new(),
                from => format!(" from {}", plain(from)),
            };
            let (host, instance) = (plain(&host.name), plain(&conflict.instance));
            let sentence = format!(
                "{host}: another machine reports with this name{from} and is refused (instance {instance})"
            );
            let _ = writeln!(text, "{}", colours.paint(Paint::Warn, &sentence));
        }
    }
    if let Some(source) = source {
        text.push_str(&source_line(source, now, colours));
    }
    for target in targets {
        text.push_str(&target_line(target, now, colours));
    }
    text
}

fn table(hosts: &[HostView], is_wide: bool, now: Timestamp, colours: Colours) -> String {
    let mut head = vec!["HOST", "STATE", "HEARD", "COMMIT", "APPS", "DRIFT"];
    if is_wide {
        head.extend(["AGENT", "LABELS"]);
    }
    head.push("REASON");
    let mut table = Table::new(0, &head);
    for host in hosts {
        let report = host.report.as_ref();
        let drift: Option<usize> = report.map(|report| report.applications.iter().map(|it| it.drift).sum());
        let mut cells: Vec<Cell> = vec![
            Cell::painted(Paint::Strong, plain(&host.name)),
            Cell::painted(paint(host.state), host.state.to_string()),
            host.last_heard.map_or_else(|| "never".to_owned(), |at| span(now.since(at))).into(),
            report.map(commits).unwrap_or_default().into(),
            report.map(|report| report.applications.len().to_string()).unwrap_or_default().into(),
            drift.map(|drift| drift.to_string()).unwrap_or_default().into(),
        ];
        if is_wide {
            cells.push(report.map_or(String::new(), |report| plain(&report.agent_version)).into());
            cells.push(report.map(labels).unwrap_or_default().into());
        }
        cells.push(plain(&host.reason).into());
        table.row(cells);
    }
    if !is_wide {
        table.fit(COLUMNS);
    }
    table.render(colours)
}

/// The commit of the only repository, or the number of repositories.
fn commits(report: &HostReport) -> String {
    match report.repositories.as_slice() {
        [] => "none".to_owned(),
        [one] => one.commit.as_ref().map_or("none", CommitId::short).chars().take(7).collect(),
        many => format!("{} repos", many.len()),
    }
}

fn labels(report: &HostReport) -> String {
    let labels = report.labels.iter().map(|(label, value)| format!("{}={}", plain(label), plain(value)));
    labels.collect::<Vec<_>>().join(",")
}

/// The place where the reports are read, with its error.
fn source_line(source: &SourceStatus, now: Timestamp, colours: Colours) -> String {
    let SourceStatus { from, last_read, error } = source;
    let last = match last_read {
        Some(at) => format!("{} ago", span(now.since(*at))),
        None => "not yet".to_owned(),
    };
    let mut line = format!("read from {}, {last}\n", plain(from));
    if !error.is_empty() {
        let _ = writeln!(line, "  {}", colours.paint(Paint::Bad, &plain(error)));
    }
    line
}

fn target_line(target: &TargetStatus, now: Timestamp, colours: Colours) -> String {
    let TargetStatus { to, last_sent, error, warning, blocked: _ } = target;
    let last = match last_sent {
        Some(at) => format!("last {} ago", span(now.since(*at))),
        None => "not yet".to_owned(),
    };
    let mut line = format!("this host reports to {}, {last}\n", plain(to));
    if !error.is_empty() {
        let _ = writeln!(line, "  {}", colours.paint(Paint::Bad, &plain(error)));
    }
    if !warning.is_empty() {
        let _ = writeln!(line, "  {}", colours.paint(Paint::Warn, &plain(warning)));
    }
    line
}

fn paint(state: HostState) -> Paint {
    match state {
        HostState::Lost | HostState::NeverReported | HostState::Degraded => Paint::Bad,
        HostState::OutOfSync => Paint::Warn,
        HostState::Progressing => Paint::Busy,
        HostState::Stale | HostState::Suspended => Paint::Soft,
        HostState::Healthy => Paint::Good,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use driftless_fleet::{Freshness, NameConflict};

    #[test]
    fn worst_host_is_first_and_lines_have_80_columns() {
        let now = Timestamp(1_000_000_000);
        let report = HostReport {
            host: "nas".to_owned(),
            repositories: vec![driftless_fleet::RepositoryReport {
                name: "infra".to_owned(),
                commit: Some(CommitId::from_stored("a".repeat(40))),
                ..Default::default()
            }],
            ..HostReport::default()
        };
        let host = |name: &str, state, reason: &str, report| HostView {
            name: name.to_owned(),
            state,
            reason: reason.to_owned(),
            freshness: Some(Freshness::Fresh),
            last_heard: Some(Timestamp(now.0 - 12_000)),
            expected: true,
            conflict: None,
            report,
        };
        let reason = "shop: web.1 is not ready: GET /healthz answers 503, and that for a long time";
        let mut sick = host("nas", HostState::Degraded, reason, Some(report));
        let conflict = NameConflict { instance: "b2".to_owned(), from: "10.0.0.9".to_owned(), at: now };
        sick.conflict = Some(conflict);
        let status = FleetStatus {
            accepts: true,
            hosts: vec![
                HostView {
                    last_heard: None,
                    ..host("web", HostState::NeverReported, "never reported", None)
                },
                sick,
            ],
            targets: vec![TargetStatus {
                to: "https://hub.example.com".to_owned(),
                last_sent: None,
                error: "no collector answers: Connection refused".to_owned(),
                warning: "another machine reports as `nas`".to_owned(),
                blocked: false,
            }],
            source: Some(SourceStatus {
                from: "s3://fleet/prod".to_owned(),
                last_read: Some(Timestamp(now.0 - 3000)),
                error: "web: it is no gzip".to_owned(),
            }),
        };
        let text = text(&status, false, now, Colours::Off);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "HOST  STATE          HEARD  COMMIT   APPS  DRIFT  REASON");
        assert_eq!(lines[1], "web   NeverReported  never                        never reported");
        assert!(
            lines[2].starts_with("nas   Degraded       12s    aaaaaaa  0     0      shop: web.1 is"),
            "{text}"
        );
        assert!(lines[2].ends_with('…') && lines[2].chars().count() == 80, "{text}");
        assert_eq!(
            lines[3],
            "nas: another machine reports with this name from 10.0.0.9 and is refused (instance b2)"
        );
        assert_eq!(
            &lines[4..],
            [
                "read from s3://fleet/prod, 3s ago",
                "  web: it is no gzip",
                "this host reports to https://hub.example.com, not yet",
                "  no collector answers: Connection refused",
                "  another machine reports as `nas`"
            ]
        );
    }
}
