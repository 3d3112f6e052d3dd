//! `driftless drift`: compares Git with the live state, through an agent or directly at an engine.

use std::path::PathBuf;

use clap::Args;

use super::{
    context::{Context, ExitStatus},
    error::Error as CliError,
    folder::docker_host,
    hosts::{EngineArg, GivenVariable, host_of_engine, parse_given_variable},
    options::{SecretParser, ServerArgs, parse_variable},
    report::{
        error::Error,
        live::{Deadline, ObservedEngine, Rendered, compare_by_agent, compare_with_engine},
        options::{GitArgs, ReportArgs},
        output::{check, finish},
        repository::{Place, RenderedApp, RenderedFolder, RenderedHosts, Rendering, mistakes, render},
        selection::Selection,
    },
};
use driftless_config::{RUNTIME_DIR, STATE_DIR};
use driftless_model::{AppName, HostIdentity};
use driftless_report::Report;

/// Report the differences between Git and the live state, for people and for CI.
///
/// Asks a running agent. With --docker, observes an engine directly and compares it with the repository given by
/// --repo. Changes nothing. An application that cannot be rendered or observed is an error, never an application
/// without drift, and so is a commit without one for the host.
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
  driftless drift --docker tcp://nas:2376 --repo . --host nas
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
    /// The host of that engine: its applications, variables and files are compared [default: the name of this machine]
    #[arg(long, value_name = "NAME", requires = "docker", value_parser = HostIdentity::parse_name)]
    pub(super) host: Option<String>,
    /// Label of that host, as its agent's configuration has it. Can be repeated.
    #[arg(long = "host-label", value_name = "NAME=VALUE", requires = "docker", value_parser = parse_variable)]
    pub(super) host_labels: Vec<(String, String)>,
    /// The engine that runs the applications, if the agent's configuration has the key `engine` [default: as in
    /// driftless.yaml, else docker]
    #[arg(long, value_enum, value_name = "ENGINE", requires = "docker")]
    pub(super) engine: Option<EngineArg>,
    /// Variable of Compose files, for variables that only the configuration of the host has (`variables`,
    /// `valuesFrom`). It is for all applications, as one of `valuesFrom`: `variables` of driftless.yaml override it,
    /// and it overrides `.env`. APP:NAME=VALUE is for one application, and overrides all others. Its value counts as a
    /// secret. Can be repeated.
    #[arg(long = "variable", value_name = "NAME=VALUE", requires = "docker", value_parser = SecretParser(parse_given_variable))]
    pub(super) variables: Vec<GivenVariable>,
    /// State directory of that host's agent, from which containers mount files.
    #[arg(long, value_name = "FOLDER", requires = "docker", default_value = STATE_DIR)]
    pub(super) state_dir: PathBuf,
    /// Runtime directory of that host's agent, from which containers mount secrets.
    #[arg(long, value_name = "FOLDER", requires = "docker", default_value = RUNTIME_DIR)]
    pub(super) runtime_dir: PathBuf,
}

impl DriftArgs {
    fn selection(&self) -> Selection {
        let mut selection = self.report.selection();
        selection.apps.extend_from_slice(&self.apps);
        selection
    }
}

pub(super) async fn drift(args: &DriftArgs, context: &Context<'_>) -> Result<ExitStatus, CliError> {
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
    let DirectArgs { engine, host, host_labels, variables, .. } = &args.direct;
    let given = host_of_engine(host.as_deref(), host_labels, *engine, variables);
    let host = given.one_host();
    let (path, rendered_host) = (folder.clone(), host.clone());
    let rendering = tokio::task::spawn_blocking(move || {
        let source = RenderedFolder {
            files: checkout.files.as_ref(),
            folder: &path,
            name: &name,
            hosts: RenderedHosts::One(&rendered_host),
            given: &given,
        };
        render(&source, None, &Rendering::default())
    });
    let rendering = deadline.limit(rendering).await?.map_err(|error| Error::Broken(error.to_string()))?;
    selection.check(rendering.applications.iter().map(|app| app.spec.name.as_str()))?;
    let found = rendering.errors.iter().chain(&rendering.missing_folder).map(ToString::to_string);
    let mut errors: Vec<String> = found.collect();
    if rendering.applications.is_empty() && errors.is_empty() {
        errors.push(nothing_to_compare(&rendering, &folder, &host.name));
    } else if !rendering.elsewhere.is_empty() {
        let names: Vec<&str> = rendering.elsewhere.iter().map(AppName::as_str).collect();
        let (names, host) = (names.join(", "), &host.name);
        context.screen.say(format!("note: compared for the host `{host}` (--host); not for it: {names}"));
    }
    let rendered = |app: RenderedApp| {
        let stack = match (mistakes(&app.findings()), &app.rendered.stack) {
            (Some(mistakes), _) => Err(mistakes),
            (None, Some(stack)) => Ok(stack.clone()),
            (None, None) => Err("it cannot be rendered".to_owned()),
        };
        Rendered { spec: app.spec, stack }
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
    report.errors = errors;
    report.head = Some(commit);
    Ok(report)
}

/// Why a commit has nothing to compare. An engine with containers would else be one without drift.
fn nothing_to_compare(rendering: &Rendering, folder: &str, host: &str) -> String {
    if !rendering.elsewhere.is_empty() {
        return format!(
            "no application is for the host `{host}`: give the name of the engine's host to --host"
        );
    }
    let place =
        if folder.is_empty() { "the repository".to_owned() } else { format!("the folder `{folder}`") };
    format!("{place} has no application: give the folder that the agent follows to --path")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commit_without_an_application_of_the_host_is_an_error() {
        let mut others = Rendering::default();
        others.elsewhere.push("shop".into());
        let message = nothing_to_compare(&others, "sites", "runner-7");
        assert!(message.contains("for the host `runner-7`") && message.contains("--host"), "{message}");
        let message = nothing_to_compare(&Rendering::default(), "site", "nas");
        assert!(message.contains("the folder `site` has no application"), "{message}");
    }
}
