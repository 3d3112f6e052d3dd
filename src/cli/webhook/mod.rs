//! `driftless webhook`: the settings for the forge, and a signed sample delivery.

use clap::Subcommand;

use super::{Context, Error as CliError, ExitStatus};

mod error;
mod instructions;
mod test;
mod url;

use test::{WebhookTestArgs, test};
use url::{WebhookUrlArgs, url};

/// Configure and test the webhook of a repository.
#[derive(Debug, Subcommand)]
pub(super) enum WebhookCommand {
    Url(WebhookUrlArgs),
    Test(WebhookTestArgs),
}

pub(super) async fn webhook(command: &WebhookCommand, context: &Context<'_>) -> Result<ExitStatus, CliError> {
    match command {
        WebhookCommand::Url(args) => url(args, context).await,
        WebhookCommand::Test(args) => test(args, context).await,
    }
}
