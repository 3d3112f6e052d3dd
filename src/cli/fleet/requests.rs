//! `driftless fleet requests`: the requests of a collector to its hosts, with their results. It also cancels one.

use clap::Args;

use driftless_model::{HostIdentity, HostRequestOutcome, Timestamp};
use driftless_web::FleetRequest;

use super::remove::NoHostName;
use crate::cli::{
    client::Client,
    context::{Context, ExitStatus},
    error::{CommandError, Error},
    options::{Output, ServerArgs},
    output::{json, print, yaml},
    screen::{Colours, Paint, plain},
    span::span,
    table::{Cell, Table},
};

/// The digits of an id in the table, which suffice to cancel the request.
const SHORT_ID: usize = 12;

/// The digits that an id needs at least.
const SHORTEST_ID: usize = 8;

/// A text that cannot be the id of a request.
#[derive(Debug, thiserror::Error)]
#[error("`{0}` is no id of a request: it has at least {least} hexadecimal digits", least = SHORTEST_ID)]
struct NoRequestId(String);

impl CommandError for NoRequestId {
    fn help(&self) -> Option<String> {
        Some("`driftless fleet requests` lists the requests".to_owned())
    }
}

/// Show the requests to enrolled hosts with their results, newest first, or cancel one.
#[derive(Debug, Args)]
pub(in crate::cli) struct FleetRequestsArgs {
    /// Only this host.
    #[arg(long, value_name = "HOST")]
    only: Option<String>,
    /// Cancel the request with this id: it is not sent any more. Needs the scope admin.
    #[arg(long, value_name = "ID", conflicts_with = "only")]
    cancel: Option<String>,
    /// Output format.
    #[arg(short, long, value_name = "FORMAT", value_enum, default_value_t = Output::Table)]
    output: Output,
    #[command(flatten)]
    server: ServerArgs,
}

pub(super) async fn requests(args: &FleetRequestsArgs, context: &Context<'_>) -> Result<ExitStatus, Error> {
    if let Some(id) = &args.cancel {
        if id.len() < SHORTEST_ID || !id.chars().all(|letter| letter.is_ascii_hexdigit()) {
            return Err(NoRequestId(id.clone()).into());
        }
        let client = Client::new(&args.server, context.environment)?;
        client.delete(&format!("/api/v1/fleet/requests/{id}")).await?;
        let id = plain(id);
        context.screen.say(format!(
            "the request {id} is not sent any more; if its host has it already, it may still do it"
        ));
        return Ok(ExitStatus::Success);
    }
    let query = match &args.only {
        Some(host) if !HostIdentity::is_name(host) => return Err(NoHostName(host.clone()).into()),
        Some(host) => format!("?host={host}"),
        None => String::new(),
    };
    let client = Client::new(&args.server, context.environment)?;
    let requests: Vec<FleetRequest> = client.get(&format!("/api/v1/fleet/requests{query}")).await?;
    print(&match args.output {
        Output::Json => json(&requests),
        Output::Yaml => yaml(&requests),
        Output::Table => {
            context.fold(&table(&requests, context.columns(), context.clock.now(), context.colours))
        }
        Output::Wide => table(&requests, None, context.clock.now(), context.colours),
    })?;
    Ok(ExitStatus::Success)
}

fn table(requests: &[FleetRequest], width: Option<usize>, now: Timestamp, colours: Colours) -> String {
    if requests.is_empty() {
        return "no requests; `driftless fleet request HOST sync APP` makes one\n".to_owned();
    }
    let mut table = Table::new(0, &["AGE", "HOST", "REQUEST", "APPLICATION", "BY", "ID", "STATE"]);
    for it in requests {
        let paint = match it.result.as_ref().map(|result| result.outcome) {
            Some(HostRequestOutcome::Accepted) => Paint::Good,
            Some(HostRequestOutcome::Refused | HostRequestOutcome::Unknown) => Paint::Bad,
            None => Paint::Soft,
        };
        let to = it.request.to.as_ref().map(|to| format!(" to {}", plain(to))).unwrap_or_default();
        table.row([
            span(now.since(it.created)).into(),
            Cell::painted(Paint::Strong, plain(&it.host)),
            format!("{}{to}", it.request.kind.word()).into(),
            plain(it.request.application.as_str()).into(),
            plain(&it.request.actor.to_string()).into(),
            plain(it.request.id.get(..SHORT_ID).unwrap_or(&it.request.id)).into(),
            Cell::painted(paint, plain(&it.state(now))),
        ]);
    }
    if let Some(width) = width {
        table.fold(width);
    }
    table.render(colours)
}

#[cfg(test)]
mod tests {
    use super::*;
    use driftless_model::{Actor, AppName, HostRequest, HostRequestKind, HostRequestResult};

    #[test]
    fn id_that_is_too_short_is_refused_with_the_number_of_digits() {
        let error = NoRequestId("0a1".to_owned()).to_string();
        assert_eq!(error, "`0a1` is no id of a request: it has at least 8 hexadecimal digits");
    }

    #[test]
    fn state_of_each_request_is_shown() {
        let now = Timestamp(10_000_000);
        let request = |kind, to: Option<&str>| HostRequest {
            id: "0a".to_owned(),
            kind,
            application: AppName::from("shop"),
            to: to.map(str::to_owned),
            actor: Actor::agent(),
            expires: Timestamp(now.0 + 1),
        };
        let waiting = FleetRequest {
            host: "nas".to_owned(),
            request: request(HostRequestKind::Rollback, Some("3")),
            created: Timestamp(now.0 - 5_000),
            sent: None,
            ended: None,
            result: None,
        };
        let message = "this host does not allow sync".to_owned();
        let result = HostRequestResult { id: "0a".to_owned(), outcome: HostRequestOutcome::Refused, message };
        let refused = FleetRequest {
            request: request(HostRequestKind::Sync, None),
            sent: Some(now),
            ended: Some(now),
            result: Some(result),
            ..waiting.clone()
        };
        let text = table(&[waiting, refused], None, now, Colours::Off);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines[1],
            "5s   nas   rollback to 3  shop         agent  0a  waits for the next report of the host"
        );
        assert_eq!(
            lines[2],
            "5s   nas   sync           shop         agent  0a  refused: this host does not allow sync"
        );
        assert!(table(&[], None, now, Colours::Off).starts_with("no requests"));
    }
}
