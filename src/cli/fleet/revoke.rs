//! `driftless fleet revoke`: revokes the key of an enrolled host, or withdraws an open invite.

use clap::Args;

use driftless_model::HostIdentity;

use super::remove::NoHostName;
use crate::cli::{
    client::Client,
    context::{Context, ExitStatus},
    error::{CommandError, Error},
    options::ServerArgs,
    screen::plain,
};

/// Revoke the key of a host, or withdraw an open invite.
///
/// From now on the reports of the host are refused, and another machine may join with its name. Runs on the collector and needs the scope admin. Open invites for the host are revoked, too, and requests that wait for it are
/// dropped. Its last report stays until `driftless fleet remove`. Nothing changes on the host itself.
#[derive(Debug, Args)]
pub(in crate::cli) struct FleetRevokeArgs {
    /// Name of the host.
    #[arg(required_unless_present = "invite")]
    host: Option<String>,
    /// Withdraw the open invite with this id, which `driftless fleet keys` lists.
    #[arg(long, value_name = "ID", conflicts_with = "host")]
    invite: Option<String>,
    #[command(flatten)]
    server: ServerArgs,
}

/// A text that cannot be the id of an invite.
#[derive(Debug, thiserror::Error)]
#[error("`{0}` is no id of an invite")]
struct NoInviteId(String);

impl CommandError for NoInviteId {
    fn help(&self) -> Option<String> {
        Some("`driftless fleet keys` lists the open invites".to_owned())
    }
}

pub(super) async fn revoke(args: &FleetRevokeArgs, context: &Context<'_>) -> Result<ExitStatus, Error> {
    let client = Client::new(&args.server, context.environment)?;
    if let Some(id) = &args.invite {
        if id.is_empty() || !id.chars().all(|letter| letter.is_ascii_hexdigit()) {
            return Err(NoInviteId(id.clone()).into());
        }
        client.delete(&format!("/api/v1/fleet/invites/{id}")).await?;
        context.screen.say(format!("nobody can use the invite {} any more", plain(id)));
        return Ok(ExitStatus::Success);
    }
    let host = args.host.as_deref().unwrap_or_default();
    if !HostIdentity::is_name(host) {
        return Err(NoHostName(host.to_owned()).into());
    }
    client.delete(&format!("/api/v1/fleet/keys/{host}")).await?;
    context.screen.say(format!("the key of {host} and open invites for it are refused from now on"));
    Ok(ExitStatus::Success)
}
