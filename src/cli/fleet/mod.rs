//! `driftless fleet`: the hosts that report to an agent.

use clap::Subcommand;

use super::{Context, Error as CliError, Verdict};

mod drift;
mod history;
mod picture;
mod remove;
mod status;
mod wait;

use drift::{FleetDriftArgs, drift};
use history::{FleetHistoryArgs, history};
use remove::{FleetRemoveArgs, remove};
use status::{FleetStatusArgs, status};
use wait::{FleetWaitArgs, wait};

/// Show, wait for and remove the hosts of a fleet.
///
/// Hosts report their state to an agent that accepts it (`fleet: {accept: true}`), to a bucket or to a WebDAV folder: see
/// docs/fleet.md.
#[derive(Debug, Subcommand)]
pub(super) enum FleetCommand {
    Status(FleetStatusArgs),
    Wait(FleetWaitArgs),
    Drift(FleetDriftArgs),
    History(FleetHistoryArgs),
    Remove(FleetRemoveArgs),
}

pub(super) async fn fleet(command: &FleetCommand, context: &Context<'_>) -> Result<Verdict, CliError> {
    match command {
        FleetCommand::Status(args) => status(args, context).await,
        FleetCommand::Wait(args) => wait(args, context).await,
        FleetCommand::Drift(args) => drift(args, context).await,
        FleetCommand::History(args) => history(args, context).await,
        FleetCommand::Remove(args) => remove(args, context).await,
    }
}
