//! `driftless wait`: waits until an application has reached a state.

use std::time::Duration;

use clap::Args;

use super::{
    client::Client,
    context::{Context, ExitStatus},
    error::Error,
    goal::{Goal, Wait, wait_until},
    options::{ServerArgs, parse_span},
};

/// Wait until an application has reached a state; exit with 1 if that takes too long.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  driftless wait shop
  driftless wait shop --for healthy --timeout 30s")]
pub(super) struct WaitArgs {
    /// Name of the application.
    pub(super) app: String,
    /// States that must all be reached.
    #[arg(
        long = "for",
        value_name = "STATE",
        value_enum,
        value_delimiter = ',',
        default_value = "synced,healthy"
    )]
    pub(super) states: Vec<Goal>,
    /// Maximum time to wait.
    #[arg(long, value_name = "TIME", default_value = "5m", value_parser = parse_span)]
    pub(super) timeout: Duration,
    #[command(flatten)]
    pub(super) server: ServerArgs,
}

pub(super) async fn wait(args: &WaitArgs, context: &Context<'_>) -> Result<ExitStatus, Error> {
    let client = Client::new(&args.server, context.environment)?;
    let wait = Wait {
        app: &args.app,
        goals: &args.states,
        ticket: None,
        timeout: args.timeout,
        may_be_removed: false,
    };
    wait_until(&client, &wait, context).await
}
