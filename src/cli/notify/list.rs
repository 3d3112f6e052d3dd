//! `driftless notify list`: receivers with their routes and last results, and the open incidents.

use std::fmt::Write as _;

use clap::Args;

use crate::cli::{
    Context, Error, ExitStatus,
    client::Client,
    options::{ServerArgs, TextOrJson},
    output::print,
    screen::{Colours, Paint, plain},
};
use driftless_model::{Incident, IncidentPhase, NotificationStatus, ReceiverStatus, Urgency};

/// List the receivers of notifications and the open incidents.
#[derive(Debug, Args)]
pub(in crate::cli) struct NotifyListArgs {
    /// Output format.
    #[arg(short, long, value_name = "FORMAT", value_enum, default_value_t = TextOrJson::Text)]
    pub(in crate::cli) output: TextOrJson,
    #[command(flatten)]
    pub(in crate::cli) server: ServerArgs,
}

pub(super) async fn list(args: &NotifyListArgs, context: &Context<'_>) -> Result<ExitStatus, Error> {
    let client = Client::new(&args.server, context.environment)?;
    let status: NotificationStatus = client.get("/api/v1/notifications").await?;
    match args.output {
        TextOrJson::Json => {
            print(&format!(
                "{}\n",
                serde_json::to_string(&status).expect("the model's types can be serialised")
            ))?;
        }
        TextOrJson::Text => print(&context.fold(&text(&status, context.colours)))?,
    }
    Ok(ExitStatus::Success)
}

fn text(status: &NotificationStatus, colours: Colours) -> String {
    let NotificationStatus { receivers, incidents } = status;
    if receivers.is_empty() {
        return "no receiver is configured: see `notifications` in docs/notifications.md\n".to_owned();
    }
    let mut text = String::new();
    for receiver in receivers {
        text.push_str(&receiver_text(receiver, colours));
    }
    if incidents.is_empty() {
        text.push_str("no open incident\n");
    }
    for incident in incidents {
        text.push_str(&incident_text(incident, colours));
    }
    text
}

fn receiver_text(receiver: &ReceiverStatus, colours: Colours) -> String {
    let ReceiverStatus { name, kind, routes, waiting, last_sent, error } = receiver;
    let last = last_sent.map_or_else(|| "nothing sent yet".to_owned(), |at| format!("last sent {at}"));
    let mut text = format!("{} ({}), {last}", colours.paint(Paint::Strong, &plain(name)), plain(kind));
    if *waiting > 0 {
        let _ = write!(text, ", {waiting} waiting");
    }
    text.push('\n');
    if routes.is_empty() {
        text.push_str("  no route leads here\n");
    }
    for route in routes {
        let _ = writeln!(text, "  {}", plain(route));
    }
    if !error.is_empty() {
        let _ = writeln!(text, "  {}", colours.paint(Paint::Bad, &plain(error)));
    }
    text
}

fn incident_text(incident: &Incident, colours: Colours) -> String {
    let paint = match incident.urgency {
        Urgency::Info => Paint::Soft,
        Urgency::Warning => Paint::Warn,
        Urgency::Critical => Paint::Bad,
    };
    let headline = plain(&incident.headline(IncidentPhase::Opened));
    let state = match (incident.opened, incident.ended) {
        (None, _) => ", within its grace time",
        (Some(_), Some(_)) => ", seems to be over",
        (Some(_), None) => "",
    };
    let first = format!(
        "{}: {headline} since {}{state}\n",
        colours.paint(paint, incident.urgency.name()),
        incident.since
    );
    format!("{first}  {}\n  to do: {}\n", plain(&incident.message), plain(&incident.advice))
}
