//! `driftless config`: applications and configurations as they are read. Needs neither agent nor Docker.

mod agent;
mod application;
mod effective;

use clap::{Args, Subcommand};

use super::{
    context::{Context, ExitStatus},
    error::Error as CliError,
};
use agent::{CheckArgs, SchemaArgs, check, example, schema};
use application::ApplicationArgs;
use effective::{EffectiveArgs, effective};

/// Print an application in its canonical form, or check the agent's configuration.
///
/// For a Compose application: files are merged, variables interpolated, `include` and `extends` resolved, short forms
/// expanded, and names, networks and dependencies filled in. For Kubernetes manifests: the documents, after the
/// kustomization if there is one. Values that may be secret are masked. Findings go to standard error.
///
/// A folder that is named like a command is written `./check`.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
#[command(after_help = "\
Examples:
  driftless config .
  driftless config ~/infra --path sites/shop -o json
  driftless config . --path overlays/prod
  driftless config . --file compose.yaml --file compose.prod.yaml \\
    --profile debug --variable TAG=1.2
  driftless config check /etc/driftless/driftless.yaml
  driftless config effective shop
  driftless config example > driftless.yaml")]
pub(super) struct ConfigArgs {
    #[command(subcommand)]
    pub(super) command: Option<ConfigCommand>,
    #[command(flatten)]
    pub(super) application: ApplicationArgs,
}

/// Commands about the configuration of the agent.
#[derive(Debug, Subcommand)]
pub(super) enum ConfigCommand {
    Check(CheckArgs),
    Effective(EffectiveArgs),
    /// Print a configuration of the agent with every key, explained.
    Example,
    Schema(SchemaArgs),
}

pub(super) async fn config(args: &ConfigArgs, context: &Context<'_>) -> Result<ExitStatus, CliError> {
    match &args.command {
        None => application::config(&args.application, context),
        Some(ConfigCommand::Check(args)) => check(args, context),
        Some(ConfigCommand::Example) => example(),
        Some(ConfigCommand::Effective(args)) => effective(args, context).await,
        Some(ConfigCommand::Schema(args)) => schema(args),
    }
}
