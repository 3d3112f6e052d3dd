//! Prints applications: a table of all, or everything about one.

use std::{fmt::Write as _, time::Duration};

use super::{
    screen::{Colours, Paint, plain},
    table::{Cell, Table},
};
use driftless_model::{
    Application, CommitInfo, Drift, DriftAction, Finding, HealthStatus, InstanceStatus, Operation,
    OperationPhase, Outcome, PinStatus, RepositoryStatus, Revision, SyncStatus, Timestamp, Until, WaitStatus,
    WorkloadStatus,
};

/// Details below the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detail {
    /// Problems only.
    Problems,
    /// Also workloads and instances.
    Workloads,
    /// Also the source, the conditions and the last plan.
    Everything,
}

/// One line per application, followed by details.
pub fn render_status(
    applications: &[Application],
    detail: Detail,
    now: Timestamp,
    colours: Colours,
) -> String {
    if applications.is_empty() {
        return "no applications: the agent has not read its repository yet, or found no application in it\n"
            .to_owned();
    }
    let mut table = Table::new(0, &["NAME", "SYNC", "HEALTH", "REVISION", "COMMIT", "MESSAGE"]);
    for Application { name, spec: _, generation: _, status } in applications {
        table.row([
            Cell::painted(Paint::Strong, name.as_str()),
            sync_cell(status.sync),
            health_cell(status.health),
            status.revision.map_or_else(|| "-".to_owned(), |it| format!("#{it}")).into(),
            status.commit.as_ref().map_or("-", CommitInfo::short).into(),
            status.message.as_str().into(),
        ]);
    }
    let mut out = table.render(colours);
    for application in applications {
        let block = block(application, detail, now, colours);
        if !block.is_empty() {
            let _ = write!(out, "\n{}\n{block}", colours.paint(Paint::Strong, application.name.as_str()));
        }
    }
    out
}

/// Repositories with errors. An error of a whole repository belongs to no application.
pub(super) fn render_repositories(repositories: &[RepositoryStatus], colours: Colours) -> String {
    let mut out = String::new();
    for it in repositories.iter().filter(|it| !it.message.is_empty()) {
        let name = colours.paint(Paint::Strong, &format!("repository {}", plain(&it.name)));
        let message = colours.paint(Paint::Bad, &plain(&it.message).replace('\n', " "));
        let _ = writeln!(out, "\n{name}\n  {message}");
    }
    out
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
            author(&it.commit).into(),
            it.commit.subject.as_str().into(),
        ]);
    }
    table.render(colours)
}

/// `45s`, `12m`, `3h`, `5d`: the largest unit that fits.
pub(super) fn span(duration: Duration) -> String {
    match duration.as_secs() {
        seconds @ 0..100 => format!("{seconds}s"),
        seconds @ 100..6000 => format!("{}m", seconds / 60),
        seconds @ 6000..172_800 => format!("{}h", seconds / 3600),
        seconds => format!("{}d", seconds / 86_400),
    }
}

/// The most important sentence about an application that a command waits for.
pub(super) fn headline(application: &Application) -> String {
    let status = &application.status;
    let operation = status.operation.as_ref().filter(|it| it.phase == OperationPhase::Running);
    let text = operation
        .map(|it| it.message.clone())
        .filter(|it| !it.is_empty())
        .or_else(|| Some(status.message.clone()).filter(|it| !it.is_empty()))
        .or_else(|| status.waits.first().map(|it| format!("{} {}: {}", it.reason, it.object, it.message)))
        .unwrap_or_else(|| format!("{:?}, {:?}", status.sync, status.health));
    plain(&text).replace('\n', " ")
}

/// `pinned to #3 3f2a9c1d0b7e, 2 behind, until next-commit: orders fail`
pub(super) fn pin_line(pin: &PinStatus, now: Timestamp) -> String {
    let PinStatus { revision, commit, reason, at: _, until, behind } = pin;
    let mut line = format!("pinned to #{revision} {}", commit.get(..12).unwrap_or(commit));
    if let Some(behind) = behind {
        let _ = write!(line, ", {behind} behind");
    }
    match until {
        Until::Manual => line.push_str(", until resumed"),
        Until::NextCommit => line.push_str(", until next-commit"),
        Until::Time(end) => {
            let _ = write!(line, ", for {} more", span(end.since(now)));
        }
    }
    if !reason.is_empty() {
        let _ = write!(line, ": {reason}");
    }
    line
}

fn block(application: &Application, detail: Detail, now: Timestamp, colours: Colours) -> String {
    let status = &application.status;
    let mut out = String::new();
    let mut line = |paint: Paint, text: String| {
        let _ = writeln!(out, "  {}", colours.paint(paint, &plain(&text).replace('\n', " ")));
    };
    if detail == Detail::Everything {
        for text in origin_lines(application, now) {
            line(Paint::Soft, text);
        }
    }
    if let Some(pin) = &status.pin {
        line(Paint::Warn, pin_line(pin, now));
    }
    if let Some((paint, text)) = status.operation.as_ref().and_then(|it| operation_line(it, now)) {
        line(paint, text);
    }
    for wait in &status.waits {
        line(Paint::Warn, wait_line(wait, now));
    }
    for drift in &status.drift {
        line(Paint::Warn, drift_line(drift, now));
    }
    for finding in &status.findings {
        line(if finding.is_error() { Paint::Bad } else { Paint::Warn }, Finding::to_string(finding));
    }
    if detail != Detail::Problems {
        out.push_str(&workloads(application, now, colours));
    }
    if detail == Detail::Everything {
        out.push_str(&conditions(application, now, colours));
        out.push_str(&last_plan(application, now));
    }
    out
}

fn origin_lines(application: &Application, now: Timestamp) -> Vec<String> {
    let Application { name: _, spec, generation: _, status } = application;
    let mut lines = vec![format!(
        "from {} ({}), folder {}",
        spec.url,
        spec.reference,
        if spec.path.is_empty() { "/" } else { &spec.path }
    )];
    if let Some(commit) = &status.commit {
        lines.push(format!(
            "runs {} \"{}\" by {}, {} ago",
            commit.short(),
            commit.subject,
            author(commit),
            span(now.since(commit.time))
        ));
    }
    let seen = |at: Option<Timestamp>| {
        at.map_or_else(|| "never".to_owned(), |at| format!("{} ago", span(now.since(at))))
    };
    lines.push(format!("Git read {}, Docker read {}", seen(status.fetched_at), seen(status.observed_at)));
    lines
}

fn operation_line(operation: &Operation, now: Timestamp) -> Option<(Paint, String)> {
    let (paint, word) = match operation.phase {
        OperationPhase::Succeeded => return None,
        OperationPhase::Running => (Paint::Busy, "working"),
        OperationPhase::Waiting => (Paint::Warn, "waiting"),
        OperationPhase::Failed => (Paint::Bad, "failed"),
    };
    let mut line = word.to_owned();
    if operation.attempt > 0 {
        let _ = write!(line, ", attempt {}", operation.attempt);
    }
    if let Some(at) = operation.next_retry_at {
        let _ = write!(line, ", next try in {}", span(at.since(now)));
    }
    Some((paint, format!("{line}: {}", operation.message)))
}

/// `ImagePullBackOff web, attempt 3, next try in 18s: manifest unknown`
fn wait_line(wait: &WaitStatus, now: Timestamp) -> String {
    let WaitStatus { reason, object, message, attempt, until } = wait;
    let mut line = reason.clone();
    if !object.is_empty() {
        let _ = write!(line, " {object}");
    }
    if let Some(attempt) = attempt {
        let _ = write!(line, ", attempt {attempt}");
    }
    if let Some(until) = until {
        let _ = write!(line, ", next try in {}", span(until.since(now)));
    }
    if message.is_empty() { line } else { format!("{line}: {message}") }
}

fn drift_line(drift: &Drift, now: Timestamp) -> String {
    let Drift { kind, object, workload: _, field, want, found, at, action } = drift;
    let action = match action {
        DriftAction::Heal => "being healed",
        DriftAction::BackOff => "healed after a pause",
        DriftAction::Report => "left alone",
        DriftAction::Ineffective => "given up: healing has no effect",
    };
    let when = at.map_or_else(String::new, |at| format!(", {} ago", span(now.since(at))));
    format!("drift: {kind} {object} {field}: wanted {want}, found {found}{when} ({action})")
}

fn workloads(application: &Application, now: Timestamp, colours: Colours) -> String {
    if application.status.workloads.is_empty() {
        return String::new();
    }
    let head = ["WORKLOAD", "STATE", "READY", "RESTARTS", "AGE", "IMAGE", "PORTS", "MESSAGE"];
    let mut table = Table::new(2, &head);
    for (name, workload) in &*application.status.workloads {
        let WorkloadStatus { health, reason, message, image, replicas, ready_replicas, .. } = workload;
        let state = if reason.is_empty() {
            health_cell(*health)
        } else {
            Cell::painted(health_paint(*health), reason.as_str())
        };
        let ready = format!("{ready_replicas}/{replicas}");
        table.row([
            Cell::painted(Paint::Strong, name.as_str()),
            state,
            ready.into(),
            "".into(),
            "".into(),
            image.as_str().into(),
            "".into(),
            message.as_str().into(),
        ]);
        for instance in &workload.instances {
            table.row(instance_row(instance, now));
        }
    }
    table.render(colours)
}

fn instance_row(instance: &InstanceStatus, now: Timestamp) -> [Cell; 8] {
    let InstanceStatus {
        name,
        container: _,
        slot: _,
        state,
        ready,
        available: _,
        updated,
        restarts,
        since,
        message,
        spec: _,
        ports,
        ..
    } = instance;
    [
        format!("  {name}").into(),
        if *updated { state.clone() } else { format!("{state} (old)") }.into(),
        if *ready { "yes" } else { "no" }.into(),
        restarts.to_string().into(),
        since.map_or_else(String::new, |it| span(now.since(it))).into(),
        "".into(),
        ports.join(", ").into(),
        message.as_str().into(),
    ]
}

fn conditions(application: &Application, now: Timestamp, colours: Colours) -> String {
    if application.status.conditions.is_empty() {
        return String::new();
    }
    let mut table = Table::new(2, &["CONDITION", "STATUS", "REASON", "SINCE", "MESSAGE"]);
    for it in &application.status.conditions {
        table.row([
            it.kind.as_str().into(),
            format!("{:?}", it.status).into(),
            it.reason.as_str().into(),
            span(now.since(it.last_transition_time)).into(),
            it.message.as_str().into(),
        ]);
    }
    table.render(colours)
}

fn last_plan(application: &Application, now: Timestamp) -> String {
    let status = &application.status;
    if status.last_plan.is_empty() {
        return String::new();
    }
    let when = status.last_plan_at.map_or_else(String::new, |at| format!(", {} ago", span(now.since(at))));
    let mut out = format!("  last plan{when}:\n");
    for step in &*status.last_plan {
        let _ = writeln!(out, "    {}", plain(step));
    }
    out
}

fn sync_cell(sync: SyncStatus) -> Cell {
    let (paint, word) = match sync {
        SyncStatus::Synced => (Paint::Good, "Synced"),
        SyncStatus::OutOfSync => (Paint::Warn, "OutOfSync"),
        SyncStatus::Unknown => (Paint::Soft, "Unknown"),
    };
    Cell::painted(paint, word)
}

fn health_cell(health: HealthStatus) -> Cell {
    let word = match health {
        HealthStatus::Healthy => "Healthy",
        HealthStatus::Suspended => "Suspended",
        HealthStatus::Progressing => "Progressing",
        HealthStatus::Missing => "Missing",
        HealthStatus::Degraded => "Degraded",
        HealthStatus::Unknown => "Unknown",
    };
    Cell::painted(health_paint(health), word)
}

fn health_paint(health: HealthStatus) -> Paint {
    match health {
        HealthStatus::Healthy => Paint::Good,
        HealthStatus::Suspended | HealthStatus::Unknown => Paint::Soft,
        HealthStatus::Progressing => Paint::Busy,
        HealthStatus::Missing => Paint::Warn,
        HealthStatus::Degraded => Paint::Bad,
    }
}

fn cause(revision: &Revision) -> String {
    use driftless_model::Cause;
    match (&revision.cause, revision.rollback_of) {
        (Cause::Rollback, Some(number)) => format!("rollback to #{number}"),
        (Cause::Commit, _) => "commit".to_owned(),
        (Cause::User, _) => "user".to_owned(),
        (Cause::Rollback, None) => "rollback".to_owned(),
        (Cause::Resume, _) => "resume".to_owned(),
        (Cause::Start, _) => "start".to_owned(),
        (Cause::Configuration, _) => "configuration".to_owned(),
    }
}

fn author(commit: &CommitInfo) -> &str {
    commit.author.split('<').next().unwrap_or_default().trim()
}
