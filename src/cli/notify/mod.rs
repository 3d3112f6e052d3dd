//! `driftless notify`: the receivers of notifications, and test messages.

use clap::Subcommand;

use super::{Context, Error as CliError, ExitStatus};

mod error;
mod list;
mod test;

use list::{NotifyListArgs, list};
use test::{NotifyTestArgs, test};

/// List and test the receivers of notifications.
#[derive(Debug, Subcommand)]
pub(super) enum NotifyCommand {
    List(NotifyListArgs),
    Test(NotifyTestArgs),
}

pub(super) async fn notify(command: &NotifyCommand, context: &Context<'_>) -> Result<ExitStatus, CliError> {
    match command {
        NotifyCommand::List(args) => list(args, context).await,
        NotifyCommand::Test(args) => test(args, context).await,
    }
}
