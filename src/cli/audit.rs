//! `driftless audit`: who asked the agent for what, and what became of it.

use clap::Args;

use super::{
    client::Client,
    context::{Context, ExitStatus},
    error::Error,
    options::{ServerArgs, TextOrJson},
    output::print,
    screen::{Paint, plain},
};
use driftless_model::{AppName, AuditEntry, AuditResult};

/// Show who asked the agent for what, oldest entry first.
///
/// Every request that changes something is listed: by the API, the command line, the page and webhooks, with the actor,
/// the address and the result. Needs the scope admin.
#[derive(Debug, Args)]
pub(super) struct AuditArgs {
    /// Only entries about this application.
    #[arg(long, value_name = "APP")]
    app: Option<String>,
    /// Number of newest entries.
    #[arg(short = 'n', long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u16).range(1..=1000))]
    limit: u16,
    /// Output format; json prints one entry per line.
    #[arg(short, long, value_name = "FORMAT", value_enum, default_value_t = TextOrJson::Text)]
    output: TextOrJson,
    #[command(flatten)]
    server: ServerArgs,
}

pub(super) async fn audit(args: &AuditArgs, context: &Context<'_>) -> Result<ExitStatus, Error> {
    let client = Client::new(&args.server, context.environment)?;
    let app = args.app.as_deref().map(AppName::parse).transpose()?;
    let filter = app.map_or_else(String::new, |app| format!("&app={app}"));
    let mut entries: Vec<AuditEntry> =
        client.get(&format!("/api/v1/audit?limit={}{filter}", args.limit)).await?;
    if entries.is_empty() && args.output == TextOrJson::Text {
        context.screen.say("no entries");
    }
    entries.reverse();
    for entry in &entries {
        print(&line(entry, args.output, context))?;
    }
    Ok(ExitStatus::Success)
}

/// `2026-01-01T12:00:00Z token ci (api, 192.0.2.7) sync shop: accepted`
fn line(entry: &AuditEntry, output: TextOrJson, context: &Context<'_>) -> String {
    let colours = context.colours;
    if output == TextOrJson::Json {
        return format!("{}\n", serde_json::to_string(entry).expect("the model's types can be serialised"));
    }
    let AuditEntry { sequence: _, at, actor, channel, from, action, app, detail, result, message } = entry;
    let place = if from.is_empty() { channel.to_string() } else { format!("{channel}, {from}") };
    let mut request = action.clone();
    for part in app.iter().map(AppName::as_str).chain(Some(detail.as_str()).filter(|it| !it.is_empty())) {
        request.push(' ');
        request.push_str(part);
    }
    let paint = match result {
        AuditResult::Accepted => Paint::Good,
        AuditResult::Refused => Paint::Warn,
        AuditResult::Failed => Paint::Bad,
    };
    let message = if message.is_empty() { String::new() } else { format!(": {message}") };
    let line = format!(
        "{} {} ({}) {}: {}{}",
        colours.paint(Paint::Soft, &at.to_string()),
        colours.paint(Paint::Strong, &plain(&actor.to_string())),
        plain(&place),
        plain(&request),
        colours.paint(paint, &result.to_string()),
        plain(&message),
    );
    context.fold(&format!("{}\n", line.replace('\n', " ")))
}
