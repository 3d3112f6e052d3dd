//! `plan` and `diff` without an agent: the manifests of a folder against what runs. Nothing is done.

use std::{collections::BTreeMap, path::Path};

use super::{
    Context, Error,
    findings::render_findings,
    validate::{Folder, render_folder},
};
use driftless_agent as controller;
use driftless_agent::DryRun;
use driftless_model::{AppName, Finding, Stack};

const DEFAULT_DOCKER_HOST: &str = "unix:///var/run/docker.sock";

/// What an agent would do with each application of a folder, or with one. Errors in a manifest end it: an
/// application that cannot be rendered is not one without differences.
pub(super) async fn dry_runs(
    dir: &Path,
    app: Option<&str>,
    docker_host: Option<&str>,
    context: &Context<'_>,
) -> Result<BTreeMap<AppName, DryRun>, Error> {
    let Folder { applications, findings } = render_folder(dir, "")?;
    if findings.iter().any(Finding::is_error) {
        return Err(Error::Findings(findings));
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
            Err(Error::NoSuchApplication { app: app.to_owned(), dir: dir.to_owned() })
        }
        Some(_) | None => Ok(dry_runs),
    }
}

/// Looks at Docker and plays the rounds through in memory.
async fn plan(stack: &Stack, docker_host: &str) -> Result<DryRun, Error> {
    controller::plan_stack(stack, docker_host).await.map_err(Error::Plan)
}
