//! `driftless notify test`: sends a sample message to one receiver, or shows it.

use clap::Args;

use super::error::NoSuchReceiver;
use crate::cli::{
    Context, Error, ExitStatus, client::Client, options::ServerArgs, output::print, screen::plain,
};
use driftless_model::{IncidentKind, IncidentPhase, NotificationStatus};
use driftless_web::TestMessage;

/// Send a sample message to a receiver, or show it.
///
/// The agent sends it at once, also in quiet hours, and it does not count for the rate limit. The application and the
/// repository in it are made up.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  driftless notify test phone
  driftless notify test phone --event syncFailed --preview
  driftless notify test mail --recovered")]
pub(in crate::cli) struct NotifyTestArgs {
    /// Name of the receiver in the configuration.
    pub(in crate::cli) name: String,
    /// Kind of the incident.
    #[arg(long, value_name = "EVENT", default_value = "degraded", value_parser = parse_event)]
    pub(in crate::cli) event: IncidentKind,
    /// Report that the incident is over.
    #[arg(long)]
    pub(in crate::cli) recovered: bool,
    /// Print the message as the receiver's templates make it, and send nothing.
    #[arg(long)]
    pub(in crate::cli) preview: bool,
    #[command(flatten)]
    pub(in crate::cli) server: ServerArgs,
}

pub(super) async fn test(args: &NotifyTestArgs, context: &Context<'_>) -> Result<ExitStatus, Error> {
    let client = Client::new(&args.server, context.environment)?;
    // The name cannot change the route.
    let name: String = args
        .name
        .chars()
        .filter(|letter| letter.is_ascii_alphanumeric() || "._-".contains(*letter))
        .collect();
    let phase = if args.recovered { IncidentPhase::Recovered } else { IncidentPhase::Opened };
    let phase = if phase == IncidentPhase::Recovered { "recovered" } else { "opened" };
    let event = args.event.name();
    let path =
        format!("/api/v1/notifications/{name}/test?event={event}&phase={phase}&preview={}", args.preview);
    let answer: TestMessage = match client.post(&path, None::<&()>).await {
        Ok(answer) => answer,
        Err(error) if error.is_not_found() && !error.is_unknown_route() => {
            let status: NotificationStatus = client.get("/api/v1/notifications").await?;
            let known = status.receivers.into_iter().map(|receiver| plain(&receiver.name)).collect();
            return Err(NoSuchReceiver::new(&args.name, known).into());
        }
        Err(error) => return Err(error.into()),
    };
    let body = answer.body.lines().map(plain).collect::<Vec<_>>().join("\n");
    print(&format!("{}\n{body}\n", plain(&answer.title)))?;
    if answer.sent {
        context.screen.say(format!("{name} has accepted this message"));
    }
    Ok(ExitStatus::Success)
}

fn parse_event(text: &str) -> Result<IncidentKind, String> {
    let known = IncidentKind::ALL.iter().find(|(name, _)| *name == text);
    known.map(|(_, kind)| *kind).ok_or_else(|| {
        let names: Vec<&str> = IncidentKind::ALL.iter().map(|(name, _)| *name).collect();
        format!("must be one of {}", names.join(", "))
    })
}
