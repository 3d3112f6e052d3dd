//! `driftless webhook url`: the URL, the settings for the forge, and a test with curl.

use clap::Args;

use super::{
    error::{active, find},
    instructions::instructions,
};
use crate::{
    cli::Context, cli::Error as CliError, cli::ExitStatus, cli::client::Client, cli::options::ServerArgs,
    cli::output::print,
};

/// Print the URL of the webhook, the settings for the forge, and a test with curl.
#[derive(Debug, Args)]
pub(in crate::cli) struct WebhookUrlArgs {
    /// Name of the repository in the configuration.
    pub(in crate::cli) repository: String,
    #[command(flatten)]
    pub(in crate::cli) server: ServerArgs,
}

pub(super) async fn url(args: &WebhookUrlArgs, context: &Context<'_>) -> Result<ExitStatus, CliError> {
    let client = Client::new(&args.server, context.environment)?;
    let hook = active(find(&client, &args.repository).await?)?;
    print(&instructions(&hook))?;
    Ok(ExitStatus::Success)
}
