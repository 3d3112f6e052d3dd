//! `driftless fleet leave`: ends the enrolment of this host at a collector.

use clap::Args;

use driftless_agent::LeftCollector;

use crate::cli::{
    client::{self, Client, query},
    context::{Context, ExitStatus},
    error::{CommandError, Error},
    options::ServerArgs,
    screen::plain,
};

/// Leave a collector: it removes the key of this host and forgets the host, and this host forgets the key of the collector.
///
/// Runs on the host and needs the scope admin. The request is signed with the key of this host. To end its reports, remove the URL from
/// `report.to` in its configuration, too.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  driftless fleet leave https://hub.example.com
  driftless fleet leave https://hub.example.com --force")]
pub(in crate::cli) struct FleetLeaveArgs {
    /// URL of the collector, as in `report.to`.
    url: String,
    /// Forget the key of the collector also if it does not answer, or does not know this host any more.
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    server: ServerArgs,
}

/// The collector has not removed the key.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
struct StillEnrolled(client::Error);

impl CommandError for StillEnrolled {
    fn help(&self) -> Option<String> {
        Some("--force ends the enrolment on this host only".to_owned())
    }
}

pub(super) async fn leave(args: &FleetLeaveArgs, context: &Context<'_>) -> Result<ExitStatus, Error> {
    let client = Client::new(&args.server, context.environment)?;
    let force = if args.force { "true" } else { "false" };
    let path = format!("/api/v1/fleet/enrolments{}", query(&[("url", &args.url), ("force", force)]));
    let left: LeftCollector = client.delete_for(&path).await.map_err(|error| match error {
        client::Error::Answer { ref code, .. } if code == "collector" => Error::from(StillEnrolled(error)),
        other => other.into(),
    })?;
    let (url, host) = (plain(&args.url), plain(&left.host));
    context.screen.say(format!("left {url}: reports of {host} to it are not signed any more"));
    if !left.same_as.is_empty() {
        let same_as = plain(&left.same_as);
        context
            .screen
            .say(format!("the collector keeps the key of {host}, because {same_as} is the same collector"));
    } else if !left.removed {
        let why = plain(&left.message);
        context.screen.say(format!("the collector has not removed the key of {host} ({why}): run `driftless fleet revoke {host}` there"));
    }
    Ok(ExitStatus::Success)
}
