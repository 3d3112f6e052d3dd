//! `driftless fleet request`: asks an enrolled host to do something.

use clap::{Args, builder::PossibleValuesParser, builder::TypedValueParser as _};

use driftless_model::{AppName, HostIdentity, HostRequestKind};
use driftless_web::{FleetRequest, FleetRequestBody};

use super::remove::NoHostName;
use crate::cli::{
    client::Client,
    context::{Context, ExitStatus},
    error::Error,
    options::ServerArgs,
    screen::plain,
};

/// Ask an enrolled host to sync, suspend, resume or roll back applications.
///
/// Runs on the collector and needs the scope admin. The host gets the request with the answer to its next report. It does only
/// what `fleet.allowRequests` in its configuration allows, and each request at most once. `driftless fleet requests` shows the
/// result.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  driftless fleet request nas sync shop mail
  driftless fleet request nas rollback shop --to 3 --expires 10m")]
pub(in crate::cli) struct FleetRequestArgs {
    /// Name of the host.
    host: String,
    /// Kind of the request.
    #[arg(value_parser = PossibleValuesParser::new(HostRequestKind::ALL.map(|(word, _)| word)).map(|word| kind(&word)))]
    kind: HostRequestKind,
    /// Names of the applications.
    #[arg(value_name = "APP", required = true)]
    apps: Vec<String>,
    /// Revision or commit of a rollback [default: the one before]
    #[arg(long, value_name = "REVISION")]
    to: Option<String>,
    /// Time in which the request is sent, at most 7d.
    #[arg(long, value_name = "TIME", default_value = "1h")]
    expires: String,
    #[command(flatten)]
    server: ServerArgs,
}

/// The kind of a word that the parser has accepted.
fn kind(word: &str) -> HostRequestKind {
    let found = HostRequestKind::ALL.into_iter().find(|(known, _)| *known == word);
    found.map_or(HostRequestKind::Sync, |(_, kind)| kind)
}

pub(super) async fn request(args: &FleetRequestArgs, context: &Context<'_>) -> Result<ExitStatus, Error> {
    if !HostIdentity::is_name(&args.host) {
        return Err(NoHostName(args.host.clone()).into());
    }
    for app in &args.apps {
        AppName::parse(app)?;
    }
    let client = Client::new(&args.server, context.environment)?;
    for app in &args.apps {
        let body = FleetRequestBody {
            kind: args.kind,
            application: app.clone(),
            to: args.to.clone(),
            expires_in: Some(args.expires.clone()),
        };
        let path = format!("/api/v1/fleet/hosts/{}/requests", args.host);
        let created: FleetRequest = client.post(&path, Some(&body)).await?;
        let (kind, id) = (args.kind.word(), plain(&created.request.id));
        context.screen.say(format!("{kind} {app} waits for the next report of {} (request {id})", args.host));
    }
    Ok(ExitStatus::Success)
}
