//! `driftless drift`: compares Git with the live state, through an agent or directly at an engine.

use std::{collections::BTreeSet, path::PathBuf, time::Duration};

use clap::Args;
use futures_util::{StreamExt, stream};
use tokio::time::{Instant, timeout_at};

use super::{
    client::{Client, application_path},
    context::{Context, Verdict},
    error::Error as CliError,
    options::ServerArgs,
    report::{
        error::Error,
        options::{GitArgs, ReportArgs},
        output::{check, finish},
        repository::{Place, RenderedApp, Rendering, mistakes, render},
        selection::{check_names, is_selected},
    },
};
use driftless_agent::{Inspection, Inspector};
use driftless_files::AppSpec;
use driftless_model::Application;
use driftless_report as report;
use driftless_report::{Kind, Report};

/// Report the differences between Git and the live state, for people and for CI.
///
/// Asks a running agent. With --docker, observes an engine directly and compares it with the repository given by
/// --repo. Changes nothing. An application that cannot be rendered or observed is an error, never an application
/// without drift.
#[derive(Debug, Args)]
#[command(after_help = "\
Exit codes:
  0  no drift
  1  drift
  2  error: wrong usage, no answer, an application that cannot be rendered or observed; takes precedence over drift
     (--detailed-exitcode: 2 is drift and 1 is error)

Examples:
  driftless drift
  driftless drift --app shop -o diff
  driftless drift -o text -o markdown=drift.md -o sarif=drift.sarif
  driftless drift --docker unix:///var/run/docker.sock --repo . --path sites
  driftless drift --server https://agent.example.com --fail-on missing,stopped --post")]
pub(super) struct DriftArgs {
    /// Revision to compare with: pin (the target, which after a rollback is the pinned revision), head (the newest
    /// commit even while pinned), the number of a revision, or a full commit id. With --docker: a branch, tag or
    /// commit of --repo.
    #[arg(long, value_name = "pin|head|REF", visible_alias = "revision")]
    pub(super) against: Option<String>,
    /// Also list the containers of the host that belong to no application.
    #[arg(long)]
    pub(super) show_unmanaged: bool,
    #[command(flatten)]
    pub(super) report: ReportArgs,
    #[command(flatten)]
    pub(super) direct: DirectArgs,
    #[command(flatten)]
    pub(super) git: GitArgs,
    #[command(flatten)]
    pub(super) server: ServerArgs,
}

/// Options to observe an engine without an agent.
#[derive(Debug, Args)]
#[command(next_help_heading = "Without an agent")]
pub(super) struct DirectArgs {
    /// Address of the Docker Engine to observe, such as `unix:///var/run/docker.sock`.
    #[arg(long, value_name = "URL", requires = "repo", conflicts_with_all = ["server", "token_file"])]
    pub(super) docker: Option<String>,
    /// Repository to compare with: a folder in a clone, or a URL.
    #[arg(long, value_name = "DIR|URL", requires = "docker")]
    pub(super) repo: Option<String>,
    /// State directory of that host's agent, from which containers mount files.
    #[arg(long, value_name = "FOLDER", requires = "docker", default_value = "/var/lib/driftless")]
    pub(super) state_dir: PathBuf,
    /// Runtime directory of that host's agent, from which containers mount secrets.
    #[arg(long, value_name = "FOLDER", requires = "docker", default_value = "/run/driftless")]
    pub(super) runtime_dir: PathBuf,
}

/// Number of parallel requests for applications.
const AT_ONCE: usize = 8;

pub(super) async fn drift(args: &DriftArgs, context: &Context<'_>) -> Result<Verdict, CliError> {
    check(&args.report)?;
    let until = Instant::now() + args.report.timeout;
    let mut report = match (&args.direct.docker, &args.direct.repo) {
        (Some(docker), Some(repo)) => Box::pin(directly(args, docker, repo, until, context)).await?,
        _ => of_agent(args, until, context).await?,
    };
    report.generated_at = Some(context.clock.now());
    finish(report, &args.report, context).await
}

async fn of_agent(args: &DriftArgs, until: Instant, context: &Context<'_>) -> Result<Report, CliError> {
    let client = Client::new(&args.server, context.environment)?;
    let late = || Error::Timeout(args.report.timeout);
    let all = timeout_at(until, client.get::<Vec<Application>>("/api/v1/applications")).await;
    let all = all.map_err(|_| late())??;
    check_names(&args.report, all.iter().map(|it| it.name.as_str()))?;
    let mut report = Report::new(Kind::Drift);
    report.agent = Some(client.address());
    let mut asked = Vec::new();
    for app in all.iter().filter(|it| is_selected(&args.report, it.name.as_str(), &it.spec.path)) {
        let mut path = application_path(app.name.as_str(), "/drift")?;
        if let Some(against) = &args.against {
            path.push_str("?against=");
            path.push_str(&query(against));
        }
        asked.push((app, path));
    }
    let answers: Vec<_> = stream::iter(asked)
        .map(|(app, path)| {
            let client = &client;
            async move { (app, timeout_at(until, client.get::<Inspection>(&path)).await) }
        })
        .buffer_unordered(AT_ONCE)
        .collect()
        .await;
    let mut unmanaged = BTreeSet::new();
    for (app, answer) in answers {
        let failed = |error: String| report::App {
            error: Some(error),
            ..report::application(&app.name, &app.spec.path)
        };
        match answer {
            Ok(Ok(inspection)) => {
                unmanaged.extend(inspection.unmanaged);
                report.apps.push(inspection.app);
            }
            Ok(Err(error)) => report.apps.push(failed(error.to_string())),
            Err(_) => report.apps.push(failed(late_text(args.report.timeout))),
        }
    }
    if args.show_unmanaged {
        report.unmanaged = unmanaged.into_iter().collect();
    }
    report.head = common_commit(&report);
    Ok(report)
}

/// If all applications are compared with the same commit, the report names it once.
fn common_commit(report: &Report) -> Option<driftless_model::CommitInfo> {
    let mut commits = report.apps.iter().map(|it| it.commit.as_ref());
    let first = commits.next()??;
    commits.all(|it| it == Some(first)).then(|| first.clone())
}

fn late_text(timeout: Duration) -> String {
    format!("it was not observed within {timeout:?}")
}

async fn directly(
    args: &DriftArgs,
    docker: &str,
    repo: &str,
    until: Instant,
    context: &Context<'_>,
) -> Result<Report, CliError> {
    let late = || Error::Timeout(args.report.timeout);
    let revision = match args.against.as_deref() {
        None | Some("head") => "HEAD",
        Some("pin") => {
            let text = "only an agent knows pins: give a branch, tag or commit to --against";
            return Err(Error::Usage(text.to_owned()).into());
        }
        Some(other) => other,
    };
    let place = Place::open(repo, &args.git)?;
    let (name, folder) = (place.name(), place.folder(args.report.path.as_deref()));
    let checkout = timeout_at(until, place.commit(revision, context)).await.map_err(|_| late())??;
    let commit = checkout.commit.clone();
    let apps = args.report.app.clone();
    let rendering = tokio::task::spawn_blocking(move || {
        let wanted = |it: &AppSpec| apps.is_empty() || apps.iter().any(|app| app == it.name.as_str());
        render(checkout.files.as_ref(), &folder, &name, wanted, &Rendering::default())
    });
    let rendering = timeout_at(until, rendering).await.map_err(|_| late())?;
    let rendering = rendering.map_err(|it| Error::Broken(it.to_string()))?;
    check_names(&args.report, rendering.applications.iter().map(|it| it.spec.name.as_str()))?;
    let inspector = Inspector::connect(docker, &args.direct.state_dir, &args.direct.runtime_dir);
    let inspector = inspector.map_err(Error::Observe)?;
    // Check that the engine answers before reporting its containers.
    timeout_at(until, inspector.applications()).await.map_err(|_| late())?.map_err(Error::Observe)?;
    let mut report = Report::new(Kind::Drift);
    (report.host, report.errors) = (Some(docker.to_owned()), rendering.errors);
    let to = format!("git@{}", commit.short());
    report.head = Some(commit);
    let mut unmanaged = BTreeSet::new();
    for RenderedApp { spec, rendered, .. } in rendering.applications {
        let failed =
            |error: String| report::App { error: Some(error), ..report::application(&spec.name, &spec.path) };
        let Some(stack) = &rendered.stack else {
            let why = mistakes(&rendered.findings);
            report.apps.push(failed(why.unwrap_or_else(|| "it cannot be rendered".to_owned())));
            continue;
        };
        let shown = report::Context { from: "live", to: &to };
        match timeout_at(until, inspector.inspect(stack, &spec.path, shown)).await {
            Ok(inspection) => {
                unmanaged.extend(inspection.unmanaged);
                report.apps.push(inspection.app);
            }
            Err(_) => report.apps.push(failed(late_text(args.report.timeout))),
        }
    }
    if args.show_unmanaged {
        report.unmanaged = unmanaged.into_iter().collect();
    }
    Ok(report)
}

/// Escapes a value for the query of a URL.
fn query(text: &str) -> String {
    text.bytes()
        .map(|it| {
            if it.is_ascii_alphanumeric() || b"-_.~/".contains(&it) {
                char::from(it).to_string()
            } else {
                format!("%{it:02X}")
            }
        })
        .collect()
}
