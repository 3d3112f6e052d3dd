//! `driftless events`: prints the event log and, with `--follow`, new events. A broken stream continues where it
//! ended.

use std::time::Duration;

use clap::Args;
use tokio::time::sleep;

use super::{
    client::{Client, application_path},
    context::{Context, ExitStatus},
    error::{CommandError, Error},
    options::{ServerArgs, TextOrJson, parse_span},
    output::print,
    report::live::escape,
    screen::{Paint, plain},
};
use driftless_model::{AppName, Application, Event, EventKind, InvalidName, RepositoryStatus};

/// Show the event log, oldest event first.
#[derive(Debug, Args)]
pub(super) struct EventsArgs {
    /// Only events of this application, or about a repository as a whole: repository/NAME.
    #[arg(long, value_name = "APP")]
    pub(super) app: Option<String>,
    /// Only events within this duration, such as 2h; of these, all up to 1000 unless -n is given.
    #[arg(long, value_name = "TIME", value_parser = parse_span)]
    pub(super) since: Option<Duration>,
    /// Follow new events, until interrupted.
    #[arg(short, long)]
    pub(super) follow: bool,
    /// Number of newest events to start with [default: 20]
    #[arg(short = 'n', long, value_name = "N", value_parser = clap::value_parser!(u16).range(0..=1000))]
    pub(super) limit: Option<u16>,
    /// Output format; json prints one event per line.
    #[arg(short, long, value_name = "FORMAT", value_enum, default_value_t = TextOrJson::Text)]
    pub(super) output: TextOrJson,
    #[command(flatten)]
    pub(super) server: ServerArgs,
}

/// Number of events without `-n`.
const DEFAULT_LIMIT: u16 = 20;

/// The most events that the agent returns at once.
const LARGEST_LIMIT: u16 = 1000;

/// Pause before a broken stream is opened again.
const RECONNECT: Duration = Duration::from_secs(2);

/// An event is far smaller; a server that sends more is not an agent.
const LONGEST_LINE: usize = 1024 * 1024;

/// The subject of the events that are asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
enum EventSubject {
    Application(AppName),
    /// A repository as a whole, by its name.
    Repository(String),
}

/// A name that no repository of the agent has.
#[derive(Debug, thiserror::Error)]
#[error("the agent follows no repository `{0}`")]
struct UnknownRepository(String);

impl CommandError for UnknownRepository {
    fn help(&self) -> Option<String> {
        None
    }
}

impl EventSubject {
    fn parse(text: &str) -> Result<Self, InvalidName> {
        match text.strip_prefix("repository/") {
            Some(name) => Ok(Self::Repository(name.to_owned())),
            None => AppName::parse(text).map(Self::Application),
        }
    }

    /// The parameter of the request.
    fn filter(&self) -> String {
        match self {
            Self::Application(app) => format!("&app={app}"),
            Self::Repository(name) => format!("&app=repository/{}", escape(name)),
        }
    }

    /// Asks the agent whether it knows the subject.
    async fn check(&self, client: &Client) -> Result<(), Error> {
        match self {
            Self::Application(app) => {
                let _: Application = client.get(&application_path(app.as_str(), "")?).await?;
                Ok(())
            }
            Self::Repository(name) => {
                let all: Vec<RepositoryStatus> = client.get("/api/v1/repositories").await?;
                let is_known = all.iter().any(|repository| repository.name == *name);
                if is_known { Ok(()) } else { Err(UnknownRepository(name.clone()).into()) }
            }
        }
    }
}

pub(super) async fn events(args: &EventsArgs, context: &Context<'_>) -> Result<ExitStatus, Error> {
    let client = Client::new(&args.server, context.environment)?;
    let subject = args.app.as_deref().map(EventSubject::parse).transpose()?;
    let filter = subject.as_ref().map(EventSubject::filter).unwrap_or_default();
    let limit = args.limit.unwrap_or(if args.since.is_some() { LARGEST_LIMIT } else { DEFAULT_LIMIT });
    // Read before the list: a list without an event says no position to follow from.
    let newest: Vec<Event> =
        if args.follow { client.get("/api/v1/events?limit=1").await? } else { Vec::new() };
    let first: Vec<Event> = client.get(&format!("/api/v1/events?limit={limit}{filter}")).await?;
    // One without events may be a wrong name. One that is followed may come later.
    if let Some(subject) = subject.filter(|_| first.is_empty() && !args.follow) {
        subject.check(&client).await?;
    }
    let now = context.clock.now();
    let is_recent = |event: &&Event| args.since.is_none_or(|since| event.at.after(since) >= now);
    let mut has_events = false;
    for event in first.iter().filter(is_recent) {
        print(&event_text(event, args.output, context))?;
        has_events = true;
    }
    if !args.follow {
        if !has_events && args.output == TextOrJson::Text {
            context.screen.say("no events");
        }
        return Ok(ExitStatus::Success);
    }
    let mut last = first.last().or(newest.last()).map_or(0, |event| event.sequence);
    let mut reported = false;
    loop {
        let path = format!("/api/v1/events?after={last}{filter}");
        match follow(&client, &path, args, context, &mut last).await {
            Ok(()) => reported = false,
            Err(Error::Client(error)) if error.is_absence() => {
                if !reported {
                    context.screen.say(format!("{error}; trying again"));
                    reported = true;
                }
            }
            Err(error) => return Err(error),
        }
        sleep(RECONNECT).await;
    }
}

/// Prints a stream until it ends.
async fn follow(
    client: &Client,
    path: &str,
    args: &EventsArgs,
    context: &Context<'_>,
    last: &mut u64,
) -> Result<(), Error> {
    let mut response = client.stream(path).await?;
    let mut lines = LineBuffer::default();
    while let Some(bytes) = response.chunk().await.map_err(|error| client.broken_stream(&error))? {
        for line in lines.push(&bytes) {
            // Each event is one line of data, which contains everything; other lines are skipped.
            let Some(data) = line.strip_prefix("data:") else { continue };
            let event: Event = serde_json::from_str(data.trim_start())
                .map_err(|error| client.foreign(format!("an event has an unknown form: {error}")))?;
            print(&event_text(&event, args.output, context))?;
            if event.sequence > 0 {
                *last = event.sequence;
            }
        }
    }
    Ok(())
}

/// Joins pieces to whole lines.
#[derive(Debug, Default)]
struct LineBuffer(Vec<u8>);

impl LineBuffer {
    fn push(&mut self, bytes: &[u8]) -> Vec<String> {
        self.0.extend_from_slice(bytes);
        let Some(end) = self.0.iter().rposition(|it| *it == b'\n') else {
            if self.0.len() > LONGEST_LINE {
                self.0.clear();
            }
            return Vec::new();
        };
        let rest = self.0.split_off(end + 1);
        let whole = std::mem::replace(&mut self.0, rest);
        String::from_utf8_lossy(&whole).lines().map(str::to_owned).collect()
    }
}

/// An event as one line of JSON, or as text that is folded to the width of the terminal.
fn event_text(event: &Event, output: TextOrJson, context: &Context<'_>) -> String {
    let colours = context.colours;
    match output {
        TextOrJson::Json => {
            format!("{}\n", serde_json::to_string(event).expect("the model's types can be serialised"))
        }
        TextOrJson::Text => {
            let Event { sequence: _, at, app, kind, reason, object, message, actor } = event;
            let paint = match kind {
                EventKind::Normal => Paint::Good,
                EventKind::Warning => Paint::Warn,
            };
            let line = format!(
                "{} {} {} {}: {}{}",
                colours.paint(Paint::Soft, &at.to_string()),
                colours.paint(Paint::Strong, app.as_str()),
                colours.paint(paint, &plain(reason)),
                plain(object),
                plain(message),
                actor.as_ref().map(|actor| plain(&format!(" (by {actor})"))).unwrap_or_default(),
            );
            context.fold(&format!("{}\n", line.replace('\n', " ")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_of_a_repository_are_selected_by_its_name() {
        let filter = |text: &str| EventSubject::parse(text).map(|subject| subject.filter());
        assert_eq!(filter("shop").unwrap(), "&app=shop");
        assert_eq!(filter("repository/infra").unwrap(), "&app=repository/infra");
        assert_eq!(filter("repository/in fra").unwrap(), "&app=repository/in%20fra");
        assert!(filter("other/infra").is_err());
    }

    #[test]
    fn lines_are_put_together_from_pieces() {
        let mut lines = LineBuffer::default();
        assert!(lines.push(b"data: {\"a").is_empty());
        assert_eq!(lines.push(b"\": 1}\n\ndata: x"), ["data: {\"a\": 1}", ""]);
        assert_eq!(lines.push(b"\r\n"), ["data: x"]);
    }
}
