//! `driftless drift`: compares Git with the live state, through an agent or directly at an engine.

use std::path::PathBuf;

use clap::Args;

use super::{
    context::{Context, Verdict},
    error::Error as CliError,
    folder::docker_host,
    hosts::{EngineArg, this_host},
    options::ServerArgs,
    report::{
        error::Error,
        live::{Deadline, ObservedEngine, Rendered, compare_by_agent, compare_with_engine},
        options::{GitArgs, ReportArgs},
        output::{check, finish},
        repository::{Place, RenderedApp, RenderedFolder, Rendering, mistakes, render},
        selection::Selection,
    },
};
use driftless_report::Report;

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
  2  error: wrong usage, no answer, an application that cannot be rendered or
     observed; takes precedence over drift
     (--detailed-exitcode: 2 is drift and 1 is error)

Examples:
  driftless drift
  driftless drift shop -o diff
  driftless drift -o text -o markdown=drift.md -o sarif=drift.sarif
  driftless drift --docker unix:///var/run/docker.sock --repo . --path sites
  driftless drift --server https://agent.example.com \\
    --fail-on missing,stopped --post")]
pub(super) struct DriftArgs {
    /// Only these applications [default: all]
    #[arg(value_name = "APP", conflicts_with = "app")]
    pub(super) apps: Vec<String>,
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
    #[arg(long, value_name = "URL", requires = "repo", conflicts_with_all = ["server", "token_file", "server_ca_file"])]
    pub(super) docker: Option<String>,
    /// Repository to compare with: a folder in a clone, or a URL.
    #[arg(long, value_name = "DIR|URL", requires = "docker")]
    pub(super) repo: Option<String>,
    /// The engine that runs the applications, if the agent's configuration has the key `engine` [default: as in
    /// driftless.yaml, else docker]
    #[arg(long, value_enum, value_name = "ENGINE", requires = "docker")]
    pub(super) engine: Option<EngineArg>,
    /// State directory of that host's agent, from which containers mount files.
    #[arg(long, value_name = "FOLDER", requires = "docker", default_value = "/var/lib/driftless")]
    pub(super) state_dir: PathBuf,
    /// Runtime directory of that host's agent, from which containers mount secrets.
    #[arg(long, value_name = "FOLDER", requires = "docker", default_value = "/run/driftless")]
    pub(super) runtime_dir: PathBuf,
}

impl DriftArgs {
    fn selection(&self) -> Selection {
        let mut selection = self.report.selection();
        selection.apps.extend_from_slice(&self.apps);
        selection
    }
}

pub(super) async fn drift(args: &DriftArgs, context: &Context<'_>) -> Result<Verdict, CliError> {
    check(&args.report)?;
    let deadline = Deadline::after(args.report.timeout);
    let mut report = if let (Some(docker), Some(repo)) = (&args.direct.docker, &args.direct.repo) {
        at_engine(args, docker, repo, deadline, context).await?
    } else {
        let selection = args.selection();
        compare_by_agent(&args.server, &selection, args.against.as_deref(), deadline, context).await?
    };
    if !args.show_unmanaged {
        report.unmanaged.clear();
    }
    report.generated_at = Some(context.clock.now());
    finish(report, &args.report, context).await
}

/// Compares a commit of a repository with an engine.
async fn at_engine(
    args: &DriftArgs,
    docker: &str,
    repo: &str,
    deadline: Deadline,
    context: &Context<'_>,
) -> Result<Report, CliError> {
    let revision = match args.against.as_deref() {
        None | Some("head") => "HEAD",
        Some("pin") => {
            let text = "only an agent knows pins: give a branch, tag or commit to --against";
            return Err(Error::Usage(text.to_owned()).into());
        }
        Some(other) => other,
    };
    let selection = args.selection();
    let place = Place::open(repo, &args.git)?;
    let (name, folder) = (place.name(), place.folder(args.report.path.as_deref()));
    let checkout = deadline.limit(place.commit(revision, context)).await??;
    let commit = checkout.commit.clone();
    let kind = args.direct.engine;
    let rendering = tokio::task::spawn_blocking(move || {
        let host = this_host(kind).host.unwrap_or_default();
        let source = RenderedFolder {
            files: checkout.files.as_ref(),
            folder: &folder,
            name: &name,
            host: &host,
            engine: kind.map(Into::into),
            host_files: &[],
        };
        render(&source, None, &Rendering::default())
    });
    let rendering = deadline.limit(rendering).await?.map_err(|error| Error::Broken(error.to_string()))?;
    selection.check(rendering.applications.iter().map(|app| app.spec.name.as_str()))?;
    let rendered = |app: RenderedApp| {
        let stack = match (mistakes(&app.findings()), &app.rendered.stack) {
            (Some(mistakes), _) => Err(mistakes),
            (None, Some(stack)) => Ok(stack.clone()),
            (None, None) => Err("it cannot be rendered".to_owned()),
        };
        Rendered { name: app.spec.name, path: app.spec.path, stack }
    };
    let wanted = rendering.applications.into_iter().filter(|app| selection.names(app.spec.name.as_str()));
    let applications = wanted.map(rendered).collect();
    let engine = ObservedEngine {
        host: &docker_host(Some(docker), context),
        state_dir: &args.direct.state_dir,
        runtime_dir: &args.direct.runtime_dir,
    };
    let to = format!("git@{}", commit.short());
    let mut report = compare_with_engine(engine, applications, &to, deadline).await?;
    let errors = rendering.errors.iter().chain(&rendering.missing_folder);
    report.errors = errors.map(ToString::to_string).collect();
    report.head = Some(commit);
    Ok(report)
}
