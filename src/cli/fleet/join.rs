//! `driftless fleet join`: enrols this host at a collector.

use clap::Args;

use driftless_agent::Joined;
use driftless_web::EnrolmentBody;

use crate::cli::{
    client::Client,
    context::{Context, ExitStatus},
    error::Error,
    options::ServerArgs,
    screen::plain,
};

/// Join a collector: from now on this host signs its reports with a key of its own.
///
/// Runs on the host and needs the scope admin. The agent must run, with the URL in `report.to` of its configuration. It makes
/// its key at the first use, in the state directory; the private half never leaves it.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  driftless fleet join https://hub.example.com --token driftless_join_…
  driftless fleet join https://hub.example.com --token \"$(cat token)\"")]
pub(in crate::cli) struct FleetJoinArgs {
    /// URL of the collector, as in `report.to`.
    url: String,
    /// One-time token that `driftless fleet invite` has printed on the collector.
    #[arg(long, value_name = "TOKEN")]
    token: String,
    #[command(flatten)]
    server: ServerArgs,
}

pub(super) async fn join(args: &FleetJoinArgs, context: &Context<'_>) -> Result<ExitStatus, Error> {
    let client = Client::new(&args.server, context.environment)?;
    let body = EnrolmentBody { url: args.url.clone(), token: args.token.clone() };
    let joined: Joined = client.post("/api/v1/fleet/enrolments", Some(&body)).await?;
    let Joined { host, key, collector } = &joined;
    context.screen.say(format!("joined {} as {}", plain(&args.url), plain(host)));
    context.screen.say(format!("key of this host:     {}", plain(key)));
    context.screen.say(format!("key of the collector: {}", plain(collector)));
    Ok(ExitStatus::Success)
}
