//! `driftless fleet invite`: makes the one-time token with which a host joins.

use clap::Args;

use driftless_model::HostIdentity;
use driftless_web::{CreatedInvite, InviteBody};

use super::remove::NoHostName;
use crate::cli::{
    client::Client,
    context::{Context, ExitStatus},
    error::Error,
    options::ServerArgs,
    output::print,
    screen::plain,
};

/// Invite a host: print a one-time token for `driftless fleet join` on it.
///
/// Runs on the collector and needs the scope admin. The token enrols one host and is stored nowhere; it also names the key of
/// the collector, so the host knows that it joins the right one.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  driftless fleet invite --name nas
  driftless fleet invite --expires 24h > token")]
pub(in crate::cli) struct FleetInviteArgs {
    /// Only the host of this name may use the token. Default: any host.
    #[arg(long, value_name = "HOST")]
    name: Option<String>,
    /// Time in which the token can be used, at most 30d.
    #[arg(long, value_name = "TIME", default_value = "1h")]
    expires: String,
    #[command(flatten)]
    server: ServerArgs,
}

pub(super) async fn invite(args: &FleetInviteArgs, context: &Context<'_>) -> Result<ExitStatus, Error> {
    if let Some(name) = args.name.as_ref().filter(|name| !HostIdentity::is_name(name)) {
        return Err(NoHostName(name.clone()).into());
    }
    let client = Client::new(&args.server, context.environment)?;
    let body = InviteBody { host: args.name.clone(), expires_in: Some(args.expires.clone()) };
    let created: CreatedInvite = client.post("/api/v1/fleet/invites", Some(&body)).await?;
    print(&format!("{}\n", plain(&created.token)))?;
    // Not in the output, so that it can be redirected to a file.
    if context.stdout_is_terminal {
        let text = "this is shown once; on the host: driftless fleet join URL-OF-THIS-AGENT --token TOKEN";
        context.screen.say(text.to_owned());
    }
    Ok(ExitStatus::Success)
}
