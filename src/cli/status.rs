//! `driftless status`: a table of all applications, or everything about one.

use std::{collections::BTreeSet, fmt::Write as _, time::Duration};

use clap::Args;
use serde::de::DeserializeOwned;
use tokio::time::sleep;

use super::{
    client::{Client, SUMMARIES, application_path},
    context::{Context, ExitStatus},
    error::Error,
    findings::counted,
    fold::fold,
    missing::{Missing, unobserved, unobserved_sentence},
    options::{Output, ServerArgs},
    output::{json, print, yaml},
    screen::{Colours, Paint, plain},
    span::span,
    table::{Cell, Table},
};
use driftless_agent::RELEASED;
use driftless_model::{
    AgentProblem, AgentStatus, Application, ApplicationStatus, CommitInfo, Delivery, Drift, DriftAction,
    HealthStatus, InstanceStatus, Operation, OperationPhase, Outcome, PinStatus, RepositoryStatus,
    SyncStatus, Timestamp, TrafficStatus, Until, WaitStatus, WebhookStatus, WorkloadStatus,
};

/// Show the status of all applications, one line each.
///
/// Lines are cut to the width of the terminal, or to 80 columns if there is none; `--wide` prints them whole. Below 100
/// columns revisions and commits are left out. With an application: also its workloads, instances, waits, drift and findings.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  driftless status
  driftless status --wide
  driftless status shop --watch
  driftless status -o json | \\
    jq -r '.[] | select(.status.health != \"Healthy\") | .name'

With `-o json` and `-o yaml`, warnings on the standard error say why
applications may be missing.")]
pub(super) struct StatusArgs {
    /// Show this application in full.
    pub(super) app: Option<String>,
    /// Output format.
    #[arg(short, long, value_name = "FORMAT", value_enum, default_value_t = Output::Table)]
    pub(super) output: Output,
    /// Print whole lines instead of cutting them to the width of the terminal.
    #[arg(long)]
    pub(super) wide: bool,
    /// Print the status again whenever it changes, until interrupted.
    #[arg(short, long)]
    pub(super) watch: bool,
    #[command(flatten)]
    pub(super) server: ServerArgs,
}

const LOOK_EVERY: Duration = Duration::from_secs(1);

/// To the top left corner, and nothing below.
const HOME_AND_WIPE: &str = "\x1b[H\x1b[2J";

pub(super) async fn status(args: &StatusArgs, context: &Context<'_>) -> Result<ExitStatus, Error> {
    let client = Client::new(&args.server, context.environment)?;
    if args.app.is_none() && matches!(args.output, Output::Json | Output::Yaml) {
        warn_of_missing(&client, context).await?;
    }
    if !args.watch {
        print(&status_text(args, &client, context).await?)?;
        return Ok(ExitStatus::Success);
    }
    let mut shown = None;
    loop {
        let text = match status_text(args, &client, context).await {
            Ok(text) => text,
            Err(Error::Client(error)) if error.is_absence() && shown.is_some() => format!("{error}\n"),
            Err(error) => return Err(error),
        };
        // Ages tick on a terminal; elsewhere only changes are worth a new block.
        if context.stdout_is_terminal {
            print(&format!("{HOME_AND_WIPE}{text}"))?;
        } else if shown.as_ref() != Some(&text) {
            print(&format!("{text}\n"))?;
        }
        shown = Some(text);
        sleep(LOOK_EVERY).await;
    }
}

/// Says on the standard error why the list of applications may be incomplete, which a document for programs cannot.
async fn warn_of_missing(client: &Client, context: &Context<'_>) -> Result<(), Error> {
    let missing = Missing::read(client).await?;
    let mut sentences = missing.sentences(&client.get::<Vec<Application>>(SUMMARIES).await?);
    let problems = agent_problems(client).await?;
    sentences.extend(problems.into_iter().map(|it| format!("agent: {}: {}", it.subject, it.message)));
    for sentence in sentences {
        context.screen.say(format!("warning: {}", plain(&sentence).replace('\n', " ")));
    }
    Ok(())
}

async fn status_text(args: &StatusArgs, client: &Client, context: &Context<'_>) -> Result<String, Error> {
    let is_wide = args.wide || args.output == Output::Wide;
    if let Some(app) = &args.app {
        let one: Application = client.get(&application_path(app, "")?).await?;
        return Ok(match args.output {
            Output::Json => json(&one),
            Output::Yaml => yaml(&one),
            Output::Table | Output::Wide => {
                let hooks = hooks(client, |repository| repository == one.spec.repository).await?;
                let now = context.clock.now();
                let detail = if args.output == Output::Wide { Detail::Warnings } else { Detail::Everything };
                let width = context.columns().filter(|_| !is_wide);
                let text = render_application(&one, detail, width, now, context.colours)
                    + &render_hooks(&hooks, now, context.colours);
                width.map_or_else(|| text.clone(), |width| fold(&text, width))
            }
        });
    }
    // A table of one line for each application needs no more.
    let path = match args.output {
        Output::Table => SUMMARIES,
        Output::Json | Output::Yaml | Output::Wide => "/api/v1/applications",
    };
    // Before the list, which has them once they are observed.
    let unobserved = unobserved(client).await?;
    let all: Vec<Application> = client.get(path).await?;
    let detail = match args.output {
        Output::Json => return Ok(json(&all)),
        Output::Yaml => return Ok(yaml(&all)),
        Output::Table => None,
        Output::Wide => Some(Detail::Workloads),
    };
    let repositories: Vec<RepositoryStatus> = list(client, "/api/v1/repositories").await?;
    let hooks = hooks(client, |_| true).await?;
    let now = context.clock.now();
    let width = (!is_wide).then(|| context.list_width());
    let problems = agent_problems(client).await?;
    let is_released = problems.iter().any(|problem| problem.subject == RELEASED);
    let unobserved = unobserved_sentence(&unobserved, &all);
    let mut text = if all.is_empty() && is_released {
        "no applications\n".to_owned()
    } else if all.is_empty() && unobserved.is_some() {
        String::new()
    } else {
        render_status(&all, width, now, context.colours)
    };
    text.extend(unobserved.map(|sentence| format!("{sentence}\n")));
    if let Some(detail) = detail {
        for application in &all {
            let name = context.colours.paint(Paint::Strong, application.name.as_str());
            let _ = write!(text, "\n{name}\n{}", block(application, detail, None, now, context.colours));
        }
    }
    text.push_str(&render_problems(&problems, context.colours));
    text.push_str(&render_repositories(&repositories, context.colours));
    text.push_str(&render_hook_problems(&hooks, now, context.colours));
    Ok(if is_wide { text } else { context.fold(&text) })
}

/// The problems of the agent itself. An agent of an earlier release does not list them.
async fn agent_problems(client: &Client) -> Result<Vec<AgentProblem>, Error> {
    match client.get::<AgentStatus>("/api/v1/agent").await {
        Ok(agent) => Ok(agent.problems),
        Err(error) if error.is_not_found() => Ok(Vec::new()),
        Err(error) => Err(error.into()),
    }
}

/// The webhooks of the repositories.
async fn hooks(client: &Client, wanted: impl Fn(&str) -> bool) -> Result<Vec<WebhookStatus>, Error> {
    let hooks: Vec<WebhookStatus> = list(client, "/api/v1/webhooks").await?;
    Ok(hooks.into_iter().filter(|it| wanted(&it.repository)).collect())
}

/// A list that an agent of an earlier release may not have.
async fn list<T: DeserializeOwned>(client: &Client, path: &str) -> Result<Vec<T>, Error> {
    match client.get(path).await {
        Ok(list) => Ok(list),
        Err(error) if error.is_not_found() => Ok(Vec::new()),
        Err(error) => Err(error.into()),
    }
}

/// The parts of an application that are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Detail {
    /// Waits, drift, errors in manifests, workloads and instances.
    Workloads,
    /// Also the source, the conditions and the last plan.
    Everything,
    /// Also the warnings about manifests.
    Warnings,
}

/// One line per application, cut to `width` columns if it is given.
pub fn render_status(
    applications: &[Application],
    width: Option<usize>,
    now: Timestamp,
    colours: Colours,
) -> String {
    if applications.is_empty() {
        return "no applications: the agent has not read its repository yet, or found none for this host in it\n"
            .to_owned();
    }
    // The message says what to do, so it gets the room.
    let is_narrow = width.is_some_and(|width| width < NARROW);
    let head = ["NAME", "SYNC", "HEALTH", "REV", "COMMIT", "MESSAGE"];
    let head = head.into_iter().filter(|column| !is_narrow || !matches!(*column, "REV" | "COMMIT"));
    let mut table = Table::new(0, &head.collect::<Vec<_>>());
    for application in applications {
        let Application { name, spec, generation: _, status } = application;
        let mut row = vec![
            Cell::painted(Paint::Strong, name.as_str()),
            sync_cell(status.sync),
            health_cell(status.health),
        ];
        let message = summary(application, now);
        if is_narrow {
            row.push(without_folder(&message, &spec.path).into());
        } else {
            let commit = commit_of_row(status).map_or("-", CommitInfo::short);
            row.push(status.revision.map_or_else(|| "-".to_owned(), |number| format!("#{number}")).into());
            row.push(commit.into());
            row.push(message.into());
        }
        table.row(row);
    }
    if let Some(width) = width {
        table.fit(width);
    }
    table.render(colours)
}

/// In columns. A narrower table has neither revisions nor commits.
const NARROW: usize = 100;

/// A message without the folder of its application, which the reader knows: `compose.yaml:3:9: unknown key …`.
fn without_folder(message: &str, folder: &str) -> String {
    if folder.is_empty() { message.to_owned() } else { message.replace(&format!("{folder}/"), "") }
}

/// The most important sentence about an application: its message, else its pin or its drift.
fn summary(application: &Application, now: Timestamp) -> String {
    let status = &application.status;
    if !status.message.is_empty() {
        return status.message.clone();
    }
    if let Some(pin) = &status.pin {
        return pin_line(pin, now);
    }
    status.drift.first().map(|drift| drift_line(application, drift, now)).unwrap_or_default()
}

/// Everything about one application. Tables are folded to `width` columns if it is given.
pub fn render_application(
    application: &Application,
    detail: Detail,
    width: Option<usize>,
    now: Timestamp,
    colours: Colours,
) -> String {
    let Application { name, spec: _, generation: _, status } = application;
    let mut table = Table::new(0, &["NAME", "SYNC", "HEALTH", "REV", "COMMIT"]);
    table.row([
        Cell::painted(Paint::Strong, name.as_str()),
        sync_cell(status.sync),
        health_cell(status.health),
        status.revision.map_or_else(|| "-".to_owned(), |number| format!("#{number}")).into(),
        commit_of_row(status).map_or("-", CommitInfo::short).into(),
    ]);
    table.render(colours) + &block(application, detail, width, now, colours)
}

/// The commit in a row of a table: the newest one with what the revision in that row has. That of a revision which was not reached
/// is its own; the application was last in sync with an older one.
fn commit_of_row(status: &ApplicationStatus) -> Option<&CommitInfo> {
    let of_revision = status.revision_commit.as_ref().filter(|_| !is_reached(status));
    of_revision.or(status.commit.as_ref())
}

/// Whether the revision was reached: it has not failed, and is not on its way.
fn is_reached(status: &ApplicationStatus) -> bool {
    let outcome = status.operation.as_ref().and_then(|operation| operation.outcome.as_ref());
    matches!(outcome, None | Some(Outcome::Succeeded | Outcome::Superseded))
}

/// Problems of the agent itself.
fn render_problems(problems: &[AgentProblem], colours: Colours) -> String {
    let mut out = String::new();
    for AgentProblem { subject, message } in problems {
        let name = colours.paint(Paint::Strong, &format!("agent: {}", plain(subject)));
        let message = colours.paint(Paint::Bad, &plain(message).replace('\n', " "));
        let _ = writeln!(out, "\n{name}\n  {message}");
    }
    out
}

/// Repositories with errors. An error of a whole repository belongs to no application.
fn render_repositories(repositories: &[RepositoryStatus], colours: Colours) -> String {
    let mut out = String::new();
    for it in repositories.iter().filter(|it| !it.message.is_empty()) {
        let name = colours.paint(Paint::Strong, &format!("repository {}", plain(&it.name)));
        let message = colours.paint(Paint::Bad, &plain(&it.message).replace('\n', " "));
        let _ = writeln!(out, "\n{name}\n  {message}");
        if !it.reason.is_empty() {
            let line = format!("explained in docs/troubleshooting.md#{}", plain(&it.reason));
            let _ = writeln!(out, "  {}", colours.paint(Paint::Soft, &line));
        }
    }
    out
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
    let PinStatus { revision, commit, reason, at: _, until, behind, actor } = pin;
    let mut line = format!("pinned to #{revision} {}", commit.short());
    if let Some(actor) = actor {
        let _ = write!(line, " by {actor}");
    }
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

/// The lines below an application. No sentence is printed twice.
fn block(
    application: &Application,
    detail: Detail,
    width: Option<usize>,
    now: Timestamp,
    colours: Colours,
) -> String {
    let status = &application.status;
    let mut lines = StatusText { text: String::new(), colours, width };
    if detail >= Detail::Everything {
        for text in origin_lines(application, now) {
            lines.push(Paint::Soft, &text);
        }
    }
    if !status.message.is_empty() {
        lines.push(health_paint(status.health), &status.message);
    }
    if let Some(pin) = &status.pin {
        lines.push(Paint::Warn, &pin_line(pin, now));
    }
    for wait in &status.waits {
        if let Some(line) = wait_line(wait, now, &lines) {
            lines.push(Paint::Warn, &line);
        }
    }
    if detail >= Detail::Everything {
        let waits = status.waits.iter().map(|wait| wait.reason.as_str());
        let problems = status.conditions.iter().filter(|condition| condition.is_problem());
        let reasons: BTreeSet<&str> =
            waits.chain(problems.map(|condition| condition.reason.as_str())).collect();
        let anchors: Vec<String> = reasons.into_iter().map(|reason| format!("#{reason}")).collect();
        if !anchors.is_empty() {
            lines.push(Paint::Soft, &format!("explained in docs/troubleshooting.md{}", anchors.join(", ")));
        }
    }
    let is_wait = |message: &str| status.waits.iter().any(|wait| wait.message == message);
    if let Some(operation) = &status.operation
        && !lines.contain(&operation.message)
        && !is_wait(&operation.message)
        && let Some((paint, text)) = operation_line(operation, now)
    {
        lines.push(paint, &text);
    }
    for drift in &status.drift {
        lines.push(Paint::Warn, &drift_line(application, drift, now));
    }
    for image in status.images.iter() {
        let is_told = image.available.is_some() || detail >= Detail::Everything;
        if let Some(sentence) = image.sentence().filter(|_| is_told) {
            lines.push(Paint::Soft, &sentence);
        }
    }
    for finding in &status.findings {
        let text = finding.to_string();
        match finding.is_error() {
            true if !lines.contain(&text) => lines.push(Paint::Bad, &text),
            false if detail == Detail::Warnings => lines.push(Paint::Warn, &text),
            true | false => {}
        }
    }
    let warnings = status.findings.iter().filter(|finding| !finding.is_error()).count();
    if warnings > 0 && detail == Detail::Everything {
        let text = format!(
            "{} about its manifests: `driftless status {} -o wide` lists them",
            counted(warnings, "warning"),
            application.name
        );
        lines.push(Paint::Soft, &text);
    }
    let workloads = workloads(application, now, &lines);
    lines.text.push_str(&workloads);
    if detail >= Detail::Everything {
        let conditions = conditions(application, now, &lines);
        lines.text.push_str(&conditions);
        lines.text.push_str(&last_plan(application, now));
    }
    lines.text
}

/// Indented lines, without control characters.
struct StatusText {
    text: String,
    colours: Colours,
    /// The width of tables.
    width: Option<usize>,
}

impl StatusText {
    fn push(&mut self, paint: Paint, text: &str) {
        let line = self.colours.paint(paint, &one_line(text));
        let _ = writeln!(self.text, "  {line}");
    }

    /// Whether a sentence is part of a line.
    fn contain(&self, sentence: &str) -> bool {
        self.text.contains(&one_line(sentence))
    }

    /// A sentence, or nothing if it is part of a line.
    fn unless_contained<'t>(&self, sentence: &'t str) -> &'t str {
        if self.contain(sentence) { "" } else { sentence }
    }
}

fn one_line(text: &str) -> String {
    plain(text).replace('\n', " ")
}

fn origin_lines(application: &Application, now: Timestamp) -> Vec<String> {
    let Application { name: _, spec, generation: _, status } = application;
    // An agent that has started after the application left Git does not know its place any more.
    let mut lines = match spec.url.as_str() {
        "" => vec!["not in Git any more".to_owned()],
        url => {
            let folder = if spec.path.is_empty() { "/" } else { &spec.path };
            vec![format!("from {url} ({}), folder {folder}", spec.reference)]
        }
    };
    // The newest commit may have changed only other applications.
    if let Some(commit) = status.revision_commit.as_ref().or(status.commit.as_ref()) {
        let number = status.revision.map_or_else(String::new, |number| format!("revision {number}: "));
        lines.push(format!(
            "{number}{} \"{}\" by {}, {} ago",
            commit.short(),
            commit.subject,
            commit.author_name(),
            span(now.since(commit.time))
        ));
        if let Some(newest) = status.commit.as_ref().filter(|newest| newest.id != commit.id) {
            let words = if is_reached(status) { "unchanged since, up to" } else { "last in sync with" };
            lines.push(format!("{words} commit {}", newest.short()));
        }
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

/// `ImagePullBackOff web, attempt 3, next try in 18s: manifest unknown`. `None`: the lines before say all of it.
fn wait_line(wait: &WaitStatus, now: Timestamp, lines: &StatusText) -> Option<String> {
    let WaitStatus { reason, object, message, attempt, until } = wait;
    let mut line = reason.clone();
    if !object.is_empty() {
        let _ = write!(line, " {object}");
    }
    if let Some(attempt) = attempt {
        let _ = write!(line, ", attempt {attempt}");
    }
    if let Some(until) = until {
        let what = if attempt.is_some() { "next try" } else { "goes on" };
        let _ = write!(line, ", {what} in {}", span(until.since(now)));
    }
    let sentence = message.strip_prefix(object.as_str()).map_or(message.as_str(), str::trim_start);
    // The attempt and its time are in the line already.
    let sentence = match sentence.rsplit_once(", attempt ") {
        Some((sentence, _)) if attempt.is_some() => sentence,
        Some(_) | None => sentence,
    };
    let is_told = lines.contain(message) || lines.contain(&format!("{object}: {reason}: {sentence}"));
    match (is_told, attempt.is_some() || until.is_some()) {
        (false, _) => Some(format!("{line}: {sentence}")),
        (true, true) => Some(line),
        (true, false) => None,
    }
}

fn drift_line(application: &Application, drift: &Drift, now: Timestamp) -> String {
    let Drift { kind, object, workload, field, want, found, at, action } = drift;
    // Healing leaves files inside a container; only a new container has those of its image.
    let is_left = *action == DriftAction::Report && !application.spec.policy.suspended;
    let remedy = workload.as_ref().filter(|_| field == "files" && is_left).map(|workload| {
        format!("; `driftless rollout restart {}/{workload}` replaces the container", application.name)
    });
    let action = match action {
        DriftAction::Heal => "being healed",
        DriftAction::BackOff => "healed after a pause",
        DriftAction::Report => "left alone",
        DriftAction::Ineffective => "given up: healing has no effect",
    };
    let when = at.map_or_else(String::new, |at| format!(", {} ago", span(now.since(at))));
    let remedy = remedy.unwrap_or_default();
    format!("drift: {kind} {object} {field}: wanted {want}, found {found}{when} ({action}){remedy}")
}

fn workloads(application: &Application, now: Timestamp, lines: &StatusText) -> String {
    let workloads = &application.status.workloads;
    if workloads.is_empty() {
        return String::new();
    }
    let rows = workloads.iter().flat_map(|(name, workload)| {
        let instances = workload.instances.iter().map(|instance| instance_row(instance, now, lines));
        std::iter::once(workload_row(name.as_str(), workload, lines)).chain(instances)
    });
    let rows: Vec<WorkloadRow> = rows.collect();
    let head = ["WORKLOAD", "STATE", "READY", "RESTARTS", "AGE", "IMAGE", "PORTS", "MESSAGE"];
    let mut table = Table::new(2, &head);
    for WorkloadRow { cells, image, ports, message } in rows.clone() {
        table.row(cells.into_iter().chain([image, ports, message].map(Cell::from)));
    }
    let Some(width) = lines.width.filter(|width| !table.fits(*width)) else {
        return table.render(lines.colours);
    };
    // No row has both an image and ports.
    let head = ["WORKLOAD", "STATE", "READY", "RESTARTS", "AGE", "IMAGE, PORTS, MESSAGE"];
    let mut table = Table::new(2, &head);
    for WorkloadRow { cells, image, ports, message } in rows {
        let words: Vec<String> =
            [image, ports, message].into_iter().filter(|text| !text.is_empty()).collect();
        table.row(cells.into_iter().chain([words.join(", ").into()]));
    }
    table.fold(width);
    table.render(lines.colours)
}

/// A workload or an instance in the table of workloads.
#[derive(Clone)]
struct WorkloadRow {
    /// Name, state, readiness, restarts and age.
    cells: [Cell; 5],
    image: String,
    ports: String,
    message: String,
}

fn workload_row(name: &str, workload: &WorkloadStatus, lines: &StatusText) -> WorkloadRow {
    let WorkloadStatus { health, reason, message, image, replicas, ready_replicas, .. } = workload;
    let state = if reason.is_empty() {
        health_cell(*health)
    } else {
        Cell::painted(health_paint(*health), reason.as_str())
    };
    let ready = format!("{ready_replicas}/{replicas}");
    WorkloadRow {
        cells: [Cell::painted(Paint::Strong, name), state, ready.into(), "".into(), "".into()],
        image: image.clone(),
        ports: String::new(),
        message: lines.unless_contained(message).to_owned(),
    }
}

fn instance_row(instance: &InstanceStatus, now: Timestamp, lines: &StatusText) -> WorkloadRow {
    let InstanceStatus { name, state, ready, updated, restarts, since, message, ports, traffic, .. } =
        instance;
    let message = traffic.as_ref().map_or_else(|| message.clone(), TrafficStatus::sentence);
    WorkloadRow {
        cells: [
            format!("  {name}").into(),
            if *updated { state.clone() } else { format!("{state} (old)") }.into(),
            if *ready { "yes" } else { "no" }.into(),
            restarts.to_string().into(),
            since.map_or_else(String::new, |it| span(now.since(it))).into(),
        ],
        image: String::new(),
        ports: ports.join(", "),
        message: lines.unless_contained(&message).to_owned(),
    }
}

fn conditions(application: &Application, now: Timestamp, lines: &StatusText) -> String {
    if application.status.conditions.is_empty() {
        return String::new();
    }
    let mut table = Table::new(2, &["CONDITION", "STATUS", "REASON", "SINCE", "MESSAGE"]);
    if let Some(width) = lines.width {
        table.fold(width);
    }
    for it in &application.status.conditions {
        table.row([
            it.kind.as_str().into(),
            format!("{:?}", it.status).into(),
            it.reason.as_str().into(),
            span(now.since(it.last_transition_time)).into(),
            lines.unless_contained(&it.message).into(),
        ]);
    }
    table.render(lines.colours)
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

/// Webhooks, one line each, with their errors.
fn render_hooks(hooks: &[WebhookStatus], now: Timestamp, colours: Colours) -> String {
    let mut out = String::new();
    for hook in hooks {
        let name = colours.paint(Paint::Strong, &hook.repository);
        let _ = writeln!(out, "\nwebhook {name} ({})", hook.provider);
        let mut line = |paint, text: String| {
            let text = plain(&text).replace('\n', " ");
            let _ = writeln!(out, "  {}", colours.paint(paint, &text));
        };
        if let Some(trouble) = &hook.trouble {
            line(Paint::Bad, format!("off: {trouble}"));
        }
        match &hook.last {
            Some(last) => {
                line(Paint::Soft, format!("last {} ago: {}", span(now.since(last.at)), delivery_line(last)));
            }
            None => line(Paint::Soft, "no delivery yet".to_owned()),
        }
        if hook.pending > 0 {
            line(Paint::Warn, format!("{} deliveries wait for a fetch", hook.pending));
        }
        let is_newer = |refused: &&Delivery| hook.last.as_ref().is_none_or(|it| refused.at >= it.at);
        if let Some(refused) = hook.last_refused.as_ref().filter(is_newer) {
            let ago = span(now.since(refused.at));
            line(Paint::Warn, format!("refused {ago} ago, from {}: {}", refused.from, refused.message));
        }
        if let Some(missed) = &hook.missed {
            line(Paint::Warn, format!("WebhookMissed, {} ago: {missed}", span(now.since(missed.at))));
        }
    }
    out
}

/// Webhooks that are off, that refused a delivery, or that missed a push.
fn render_hook_problems(hooks: &[WebhookStatus], now: Timestamp, colours: Colours) -> String {
    let is_newer = |hook: &WebhookStatus, refused: &Delivery| {
        hook.last.as_ref().is_none_or(|last| refused.at >= last.at)
    };
    let has_problem = |hook: &&WebhookStatus| {
        let is_refused = hook.last_refused.as_ref().is_some_and(|refused| is_newer(hook, refused));
        hook.trouble.is_some() || hook.missed.is_some() || is_refused
    };
    let hooks: Vec<WebhookStatus> = hooks.iter().filter(has_problem).cloned().collect();
    render_hooks(&hooks, now, colours)
}

/// `push refs/heads/main by gitea (5b0c…), accepted; fetched 3f2a9c1d0b7e "…"`
fn delivery_line(delivery: &Delivery) -> String {
    let Delivery { id, provider, event, reference, .. } = delivery;
    let reference = reference.as_deref().map(|it| format!(" {it}")).unwrap_or_default();
    format!("{event}{reference} by {provider} ({id}), {}", delivery.summary())
}
