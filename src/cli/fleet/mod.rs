//! `driftless fleet`: the hosts that report to an agent.

use clap::Subcommand;

use super::{Context, Error as CliError, ExitStatus};

mod drift;
mod history;
mod invite;
mod join;
mod keys;
mod leave;
mod picture;
mod remove;
mod request;
mod requests;
mod revoke;
mod status;
mod wait;

use drift::{FleetDriftArgs, drift};
use history::{FleetHistoryArgs, history};
use invite::{FleetInviteArgs, invite};
use join::{FleetJoinArgs, join};
use keys::{FleetKeysArgs, keys};
use leave::{FleetLeaveArgs, leave};
use remove::{FleetRemoveArgs, remove};
use request::{FleetRequestArgs, request};
use requests::{FleetRequestsArgs, requests};
use revoke::{FleetRevokeArgs, revoke};
use status::{FleetStatusArgs, status};
use wait::{FleetWaitArgs, wait};

/// Show, wait for, enrol and remove the hosts of a fleet.
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
    Invite(FleetInviteArgs),
    Join(FleetJoinArgs),
    Leave(FleetLeaveArgs),
    Keys(FleetKeysArgs),
    Revoke(FleetRevokeArgs),
    Request(FleetRequestArgs),
    Requests(FleetRequestsArgs),
}

pub(super) async fn fleet(command: &FleetCommand, context: &Context<'_>) -> Result<ExitStatus, CliError> {
    match command {
        FleetCommand::Status(args) => status(args, context).await,
        FleetCommand::Wait(args) => wait(args, context).await,
        FleetCommand::Drift(args) => drift(args, context).await,
        FleetCommand::History(args) => history(args, context).await,
        FleetCommand::Remove(args) => remove(args, context).await,
        FleetCommand::Invite(args) => invite(args, context).await,
        FleetCommand::Join(args) => join(args, context).await,
        FleetCommand::Leave(args) => leave(args, context).await,
        FleetCommand::Keys(args) => keys(args, context).await,
        FleetCommand::Revoke(args) => revoke(args, context).await,
        FleetCommand::Request(args) => request(args, context).await,
        FleetCommand::Requests(args) => requests(args, context).await,
    }
}
