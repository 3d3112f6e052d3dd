//! `driftless fleet revoke`: revokes the key of an enrolled host.

use clap::Args;

use driftless_model::HostIdentity;

use super::remove::NoHostName;
use crate::cli::{
    client::Client,
    context::{Context, ExitStatus},
    error::Error,
    options::ServerArgs,
};

/// Revoke the key of a host: from now on its reports are refused, and another machine may join with its name.
///
/// Runs on the collector and needs the scope admin. Open invites for the host are revoked, too, and requests that wait for it are
/// dropped. Its last report stays until `driftless fleet remove`. Nothing changes on the host itself.
#[derive(Debug, Args)]
pub(in crate::cli) struct FleetRevokeArgs {
    /// Name of the host.
    host: String,
    #[command(flatten)]
    server: ServerArgs,
}

pub(super) async fn revoke(args: &FleetRevokeArgs, context: &Context<'_>) -> Result<ExitStatus, Error> {
    if !HostIdentity::is_name(&args.host) {
        return Err(NoHostName(args.host.clone()).into());
    }
    let client = Client::new(&args.server, context.environment)?;
    client.delete(&format!("/api/v1/fleet/keys/{}", args.host)).await?;
    context.screen.say(format!("reports with the key of {} are refused from now on", args.host));
    Ok(ExitStatus::Success)
}
