//! Dry runs of one or all applications, from the agent or, with `--dir`, from a folder and an engine.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use clap::Args;

use super::{
    client::{Client, application_path},
    context::Context,
    error::{CommandError, Error as CliError},
    findings::render_findings,
    folder::{Folder, render_folder},
    options::{ServerArgs, TextOrJson},
};
use driftless_agent as controller;
use driftless_agent::DryRun;
use driftless_model::{AppName, Application, Finding, Stack};

#[derive(Debug, Args)]
pub(super) struct PlanArgs {
    /// Only this application [default: all]
    pub(super) app: Option<String>,
    /// Without an agent: read the manifests of this folder and observe Docker directly.
    #[arg(long, value_name = "FOLDER", conflicts_with_all = ["server", "token_file"])]
    pub(super) dir: Option<PathBuf>,
    /// Address of the Docker Engine, with --dir [default: `DOCKER_HOST`, or the local engine]
    #[arg(long, value_name = "URL", requires = "dir")]
    pub(super) docker_host: Option<String>,
    /// Output format.
    #[arg(short, long, value_name = "FORMAT", value_enum, default_value_t = TextOrJson::Text)]
    pub(super) output: TextOrJson,
    #[command(flatten)]
    pub(super) server: ServerArgs,
}

const DEFAULT_DOCKER_HOST: &str = "unix:///var/run/docker.sock";

/// Why there is no dry run.
#[derive(Debug, thiserror::Error)]
enum Error {
    #[error("{dir} has no application `{app}`")]
    NoSuchApplication { app: String, dir: PathBuf },
    #[error("could not observe the engine")]
    Observe(#[source] controller::Error),
}

impl CommandError for Error {
    fn help(&self) -> Option<String> {
        match self {
            Self::NoSuchApplication { .. } => Some("`driftless validate DIR -o json` lists them".to_owned()),
            Self::Observe(_) => None,
        }
    }
}

pub(super) async fn dry_runs(
    args: &PlanArgs,
    context: &Context<'_>,
) -> Result<BTreeMap<AppName, DryRun>, CliError> {
    if let Some(dir) = &args.dir {
        let runs = dry_runs_of_folder(dir, args.app.as_deref(), args.docker_host.as_deref(), context);
        return Box::pin(runs).await;
    }
    let client = Client::new(&args.server, context.environment)?;
    let apps = match &args.app {
        Some(app) => vec![AppName(app.clone())],
        None => client
            .get::<Vec<Application>>("/api/v1/applications")
            .await?
            .into_iter()
            .map(|it| it.name)
            .collect(),
    };
    let mut dry_runs = BTreeMap::new();
    for app in apps {
        let dry_run = client.get(&application_path(app.as_str(), "/plan")?).await?;
        dry_runs.insert(app, dry_run);
    }
    Ok(dry_runs)
}

/// Dry runs of the applications of a folder, or of one. Errors in a manifest end it: an
/// application that cannot be rendered is not one without differences.
async fn dry_runs_of_folder(
    dir: &Path,
    app: Option<&str>,
    docker_host: Option<&str>,
    context: &Context<'_>,
) -> Result<BTreeMap<AppName, DryRun>, CliError> {
    let Folder { applications, findings } = render_folder(dir, "")?;
    if findings.iter().any(Finding::is_error) {
        return Err(CliError::Findings(findings));
    }
    if !findings.is_empty() {
        context.screen.say(render_findings(&findings, context.screen.colours()).trim_end());
    }
    let ambient = || (context.environment)("DOCKER_HOST").filter(|it| !it.is_empty());
    let docker_host = docker_host.map(str::to_owned).or_else(ambient);
    let docker_host = docker_host.as_deref().unwrap_or(DEFAULT_DOCKER_HOST);
    let mut dry_runs = BTreeMap::new();
    for (spec, stack) in applications {
        let wanted = app.is_none_or(|it| it == spec.name.as_str());
        if let Some(stack) = stack.filter(|_| wanted) {
            dry_runs.insert(spec.name, plan(&stack, docker_host).await?);
        }
    }
    match app {
        Some(app) if dry_runs.is_empty() => {
            Err(Error::NoSuchApplication { app: app.to_owned(), dir: dir.to_owned() }.into())
        }
        Some(_) | None => Ok(dry_runs),
    }
}

/// Observes Docker and plans the rounds in memory.
async fn plan(stack: &Stack, docker_host: &str) -> Result<DryRun, Error> {
    controller::plan_stack(stack, docker_host).await.map_err(Error::Observe)
}
