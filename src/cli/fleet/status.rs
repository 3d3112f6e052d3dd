//! `driftless fleet status`: the hosts of the fleet, worst first.

use std::fmt::Write as _;

use clap::Args;

use driftless_fleet::{
    BehindCommit, FleetStatus, HostReport, HostState, HostView, SourceStatus, TargetStatus,
};
use driftless_model::{CommitId, Timestamp};

use super::picture::{Picture, PictureArgs};
use crate::cli::{
    context::{Context, ExitStatus},
    error::{CommandError, Error},
    options::Output,
    output::{json, print, yaml},
    screen::{Colours, Paint, plain},
    span::span,
    table::{Cell, Table},
};

/// Show the hosts of the fleet, worst first.
///
/// A host is Stale after three missed heartbeats and Lost after ten minutes; then its last state is not shown as if it
/// were true. A host is behind if another one has reported a newer commit of the same branch. Exits with 0 also if hosts are
/// not well.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  driftless fleet status
  driftless fleet status --only nas
  AWS_ENDPOINT_URL_S3=https://s3.local driftless fleet status --from s3://fleet")]
pub(in crate::cli) struct FleetStatusArgs {
    /// Show this host with all of its applications.
    #[arg(long, value_name = "HOST")]
    only: Option<String>,
    /// Output format; wide adds versions and labels.
    #[arg(short, long, value_name = "FORMAT", value_enum, default_value_t = Output::Table)]
    output: Output,
    #[command(flatten)]
    picture: PictureArgs,
}

/// A host that neither has reported nor is expected.
#[derive(Debug, thiserror::Error)]
#[error("there is no host `{0}` in the fleet")]
struct UnknownHostName(String);

impl CommandError for UnknownHostName {
    fn help(&self) -> Option<String> {
        Some("`driftless fleet status` lists the hosts".to_owned())
    }
}

pub(super) async fn status(args: &FleetStatusArgs, context: &Context<'_>) -> Result<ExitStatus, Error> {
    let mut status = Picture::new(&args.picture, context)?.look(context).await?;
    let now = context.clock.now();
    let width = (args.output == Output::Table).then(|| context.list_width());
    if let Some(name) = &args.only {
        status.hosts.retain(|host| host.name == *name);
        let Some(host) = status.hosts.first() else { return Err(UnknownHostName(name.clone()).into()) };
        if matches!(args.output, Output::Table | Output::Wide) {
            let text = host_text(host, width, now, context.colours);
            print(&if width.is_some() { context.fold(&text) } else { text })?;
            return Ok(ExitStatus::Success);
        }
    }
    print(&match args.output {
        Output::Json => json(&status),
        Output::Yaml => yaml(&status),
        Output::Table => context.fold(&text(&status, width, now, context.colours)),
        Output::Wide => text(&status, None, now, context.colours),
    })?;
    Ok(ExitStatus::Success)
}

/// The hosts, cut to a width, or with all columns.
fn text(status: &FleetStatus, width: Option<usize>, now: Timestamp, colours: Colours) -> String {
    let FleetStatus { accepts, hosts, targets, source } = status;
    let mut text = String::new();
    // The line of a source that cannot be read says why no host is known.
    let is_unread = source.as_ref().is_some_and(|source| !source.error.is_empty());
    if !accepts && source.is_none() {
        // A host that reports is no collector, and need not be one.
        if targets.is_empty() {
            text.push_str(
                "this agent accepts no reports: set `fleet: {accept: true}` in its configuration\n",
            );
        }
    } else if hosts.is_empty() && is_unread {
        text.push_str("no host is known\n");
    } else if hosts.is_empty() {
        text.push_str("no host has reported yet: set `report: {to: URL}` in the configuration of a host\n");
    } else {
        text.push_str(&table(hosts, width, now, colours));
    }
    for host in hosts {
        text.push_str(&conflict_line(host, colours));
    }
    if let Some(source) = source {
        text.push_str(&source_line(source, now, colours));
    }
    for target in targets {
        text.push_str(&target_line(target, now, colours));
    }
    text
}

/// A line if another machine uses the name or the key of the host, or the host reports without its key.
fn conflict_line(host: &HostView, colours: Colours) -> String {
    let Some(conflict) = &host.conflict else { return String::new() };
    // A bucket does not know where a report comes from.
    let from = match conflict.from.as_str() {
        "" => String::new(),
        from => format!(" from {}", plain(from)),
    };
    let (name, instance) = (plain(&host.name), plain(&conflict.instance));
    let sentence = if !conflict.reason.is_empty() {
        format!("{name}: {} (it reports{from})", plain(&conflict.reason))
    } else if host.is_refused_itself() {
        format!(
            "{name}: it also reports{from} without its key, and that is refused: if its state was restored, `driftless fleet revoke \
             {name}`, invite it and join again; else its disk was copied"
        )
    } else {
        format!("{name}: another machine reports with this name{from} and is refused (instance {instance})")
    };
    format!("{}\n", colours.paint(Paint::Warn, &sentence))
}

/// One host with all of its applications.
fn host_text(host: &HostView, width: Option<usize>, now: Timestamp, colours: Colours) -> String {
    let mut text = table(std::slice::from_ref(host), width, now, colours);
    text.push_str(&conflict_line(host, colours));
    let Some(report) = &host.report else { return text };
    let versions = [("agent", &report.agent_version), ("engine", &report.engine_version)];
    let versions = versions.into_iter().filter(|(_, version)| !version.is_empty());
    let versions: Vec<String> =
        versions.map(|(name, version)| format!("{name} {}", plain(version))).collect();
    if !versions.is_empty() {
        let _ = writeln!(text, "{}", versions.join(", "));
    }
    if !host.is_known() {
        let note = "its applications are shown as they were when it was last heard";
        let _ = writeln!(text, "{}", colours.paint(Paint::Warn, note));
    }
    if report.applications.is_empty() {
        text.push_str("no applications\n");
        return text;
    }
    let mut table = Table::new(0, &["APPLICATION", "SYNC", "HEALTH", "COMMIT", "DRIFT", "MESSAGE"]);
    for application in &report.applications {
        let paint = match (host.is_known(), application.is_well()) {
            (false, _) => Paint::Soft,
            (true, true) => Paint::Good,
            (true, false) => Paint::Warn,
        };
        table.row([
            Cell::painted(Paint::Strong, plain(application.name.as_str())),
            Cell::painted(paint, format!("{:?}", application.sync)),
            Cell::painted(paint, format!("{:?}", application.health)),
            application.commit.as_ref().map_or("none", short).into(),
            application.drift.to_string().into(),
            plain(&application.message).into(),
        ]);
    }
    if let Some(width) = width {
        table.fit(width);
    }
    text.push('\n');
    text.push_str(&table.render(colours));
    text
}

fn short(commit: &CommitId) -> &str {
    commit.short().get(..7).unwrap_or(commit.short())
}

fn table(hosts: &[HostView], width: Option<usize>, now: Timestamp, colours: Colours) -> String {
    let has_behind = hosts.iter().any(|host| !host.behind.is_empty());
    let mut head = vec!["HOST", "STATE", "HEARD", "COMMIT"];
    head.extend(has_behind.then_some("BEHIND"));
    head.extend(["APPS", "DRIFT"]);
    if width.is_none() {
        head.extend(["AGENT", "ENGINE", "LABELS"]);
    }
    head.push("REASON");
    let mut table = Table::new(0, &head);
    for host in hosts {
        let report = host.report.as_ref();
        let mut cells: Vec<Cell> = vec![
            Cell::painted(Paint::Strong, plain(&host.name)),
            Cell::painted(paint(host.state), host.state.to_string()),
            heard(host, now).into(),
            report.map(|report| commits(report)).unwrap_or_default().into(),
        ];
        if has_behind {
            cells.push(behind(host).into());
        }
        cells.push(report.map(|report| applications(report)).unwrap_or_default().into());
        cells.push(report.map(|report| report.drift().to_string()).unwrap_or_default().into());
        if width.is_none() {
            cells.push(report.map_or(String::new(), |report| plain(&report.agent_version)).into());
            cells.push(report.map_or(String::new(), |report| plain(&report.engine_version)).into());
            cells.push(report.map(|report| labels(report)).unwrap_or_default().into());
        }
        cells.push(plain(&host.reason).into());
        table.row(cells);
    }
    if let Some(width) = width {
        table.fit(width);
    }
    table.render(colours)
}

/// The time since the host was last heard.
fn heard(host: &HostView, now: Timestamp) -> String {
    match host.last_heard {
        Some(at) => span(now.since(at)),
        None if host.state == HostState::NeverReported => "never".to_owned(),
        None => "unknown".to_owned(),
    }
}

/// The commit of the only repository, or the number of repositories.
fn commits(report: &HostReport) -> String {
    match report.repositories.as_slice() {
        [] => "none".to_owned(),
        [one] => one.commit.as_ref().map_or("none", short).to_owned(),
        many => format!("{} repos", many.len()),
    }
}

/// The number of commits and the newest one of the repository in which the host is behind, or the number of such repositories.
fn behind(host: &HostView) -> String {
    match host.behind.as_slice() {
        [] => String::new(),
        [BehindCommit { newest, commits: Some(commits), .. }] => format!("{commits} to {}", short(newest)),
        [BehindCommit { newest, commits: None, .. }] => short(newest).to_owned(),
        many => format!("{} repos", many.len()),
    }
}

/// The number of applications that are well, and of all.
fn applications(report: &HostReport) -> String {
    let all = report.applications.len();
    format!("{}/{all}", all - report.unwell().count())
}

fn labels(report: &HostReport) -> String {
    let labels = report.labels.iter().map(|(label, value)| format!("{}={}", plain(label), plain(value)));
    labels.collect::<Vec<_>>().join(",")
}

/// The place where the reports are read, with its error.
fn source_line(source: &SourceStatus, now: Timestamp, colours: Colours) -> String {
    let SourceStatus { from, last_read, error, missing: _ } = source;
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
    let TargetStatus { to, last_sent, error, warning, blocked: _, signed } = target;
    let last = match last_sent {
        Some(at) => format!("last {} ago", span(now.since(*at))),
        None => "not yet".to_owned(),
    };
    let key = if *signed { " with its key" } else { "" };
    let mut line = format!("this host reports to {}{key}, {last}\n", plain(to));
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
    use driftless_fleet::{ApplicationReport, Freshness, NameConflict};
    use driftless_model::{AppName, HealthStatus, SyncStatus};
    use std::sync::Arc;

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
        let host = |name: &str, state, reason: &str, report: Option<HostReport>| HostView {
            name: name.to_owned(),
            state,
            reason: reason.to_owned(),
            freshness: Some(Freshness::Fresh),
            last_heard: Some(Timestamp(now.0 - 12_000)),
            expected: true,
            conflict: None,
            report: report.map(Arc::new),
            behind: Vec::new(),
        };
        let reason = "shop: web.1 is not ready: GET /healthz answers 503, and that for a long time";
        let mut sick = host("nas", HostState::Degraded, reason, Some(report));
        let [instance, from, reason] = ["b2", "10.0.0.9", ""].map(str::to_owned);
        let conflict = NameConflict { instance, from, reason, at: now };
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
                signed: false,
            }],
            source: Some(SourceStatus {
                from: "s3://fleet/prod".to_owned(),
                last_read: Some(Timestamp(now.0 - 3000)),
                error: "web: it is no gzip".to_owned(),
                missing: String::new(),
            }),
        };
        let text = text(&status, Some(80), now, Colours::Off);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "HOST  STATE          HEARD  COMMIT   APPS  DRIFT  REASON");
        assert_eq!(lines[1], "web   NeverReported  never                        never reported");
        assert!(
            lines[2].starts_with("nas   Degraded       12s    aaaaaaa  0/0   0      shop: web.1 is"),
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

    #[test]
    fn fleet_without_hosts_is_explained() {
        let target = TargetStatus {
            to: "https://hub".to_owned(),
            last_sent: None,
            error: String::new(),
            warning: String::new(),
            blocked: false,
            signed: false,
        };
        let source = SourceStatus { error: "refused".to_owned(), ..SourceStatus::default() };
        let first = |status: &FleetStatus| {
            let text = text(status, None, Timestamp(1), Colours::Off);
            text.lines().next().unwrap_or_default().to_owned()
        };
        let mut status = FleetStatus::default();
        assert!(first(&status).starts_with("this agent accepts no reports: set"));
        status.targets = vec![target];
        assert_eq!(first(&status), "this host reports to https://hub, not yet");
        status.accepts = true;
        assert!(first(&status).starts_with("no host has reported yet: set"));
        status.source = Some(source);
        assert_eq!(first(&status), "no host is known");
    }

    #[test]
    fn host_without_its_key_is_no_other_machine() {
        let now = Timestamp(1_000_000_000);
        let report = HostReport { instance: "a1".to_owned(), ..HostReport::default() };
        let mut host = HostView::unknown("nas", String::new(), Some(Arc::new(report)), Some(now));
        let [instance, from, reason] = ["a1", "10.0.0.9", ""].map(str::to_owned);
        let conflict = NameConflict { instance, from, reason, at: now };
        host.conflict = Some(conflict.clone());
        let line = conflict_line(&host, Colours::Off);
        assert!(line.starts_with("nas: it also reports from 10.0.0.9 without its key"), "{line}");
        assert!(line.contains("`driftless fleet revoke nas`"), "{line}");
        host.conflict = Some(NameConflict { reason: "its disk was copied".to_owned(), ..conflict });
        let line = conflict_line(&host, Colours::Off);
        assert_eq!(line, "nas: its disk was copied (it reports from 10.0.0.9)\n");
    }

    #[test]
    fn one_host_is_shown_with_all_of_its_applications() {
        let now = Timestamp(1_000_000_000);
        let application = |name: &str, health, message: &str| ApplicationReport {
            name: AppName::from(name),
            repository: "infra".to_owned(),
            sync: SyncStatus::Synced,
            health,
            suspended: None,
            pinned: None,
            well: false,
            revision: None,
            revision_commit: None,
            commit: Some(CommitId::from_stored("a".repeat(40))),
            failed: None,
            images: None,
            failed_images: None,
            message: message.to_owned(),
            drift: 0,
        };
        let report = HostReport {
            host: "nas".to_owned(),
            agent_version: "0.1.0".to_owned(),
            engine_version: "20.10.24".to_owned(),
            applications: vec![
                application("mail", HealthStatus::Healthy, ""),
                application("shop", HealthStatus::Degraded, "web.1 is not ready"),
            ],
            ..HostReport::default()
        };
        let newest = CommitId::from_stored("b".repeat(40));
        let mut host = HostView {
            name: "nas".to_owned(),
            state: HostState::Degraded,
            reason: "shop: web.1 is not ready".to_owned(),
            freshness: Some(Freshness::Fresh),
            last_heard: Some(now),
            expected: false,
            conflict: None,
            report: Some(Arc::new(report)),
            behind: vec![BehindCommit { repository: "infra".to_owned(), newest, commits: Some(3) }],
        };
        let text = host_text(&host, Some(80), now, Colours::Off);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "HOST  STATE     HEARD  COMMIT  BEHIND        APPS  DRIFT  REASON");
        assert!(
            lines[1].starts_with("nas   Degraded  0s     none    3 to bbbbbbb  1/2   0      shop: web.1")
        );
        assert_eq!(lines[2..4], ["agent 0.1.0, engine 20.10.24", ""]);
        assert_eq!(lines[5], "mail         Synced  Healthy   aaaaaaa  0");
        assert_eq!(lines[6], "shop         Synced  Degraded  aaaaaaa  0      web.1 is not ready");
        host.state = HostState::Stale;
        let text = host_text(&host, Some(80), now, Colours::Off);
        assert!(text.contains("as they were when it was last heard"), "{text}");
    }
}
