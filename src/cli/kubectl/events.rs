//! `driftless get events`: the event log in kubectl's columns.

use super::{
    age,
    args::GetArgs,
    args::GetOutput,
    columns,
    objects::{Error, path},
};
use crate::{
    cli::Context, cli::Error as CliError, cli::ExitStatus, cli::client::Client, cli::output::print,
    cli::table::Table,
};
use driftless_model::{Event, EventKind};

/// The most that the agent returns at once.
const MOST: &str = "1000";

/// Whether this is a name of events.
pub(super) fn are_meant(word: &str) -> bool {
    ["events", "event", "ev"].iter().any(|it| word.eq_ignore_ascii_case(it))
}

pub(super) async fn get(args: &GetArgs, context: &Context<'_>) -> Result<ExitStatus, CliError> {
    let unfit = [
        (args.what.len() > 1, "events have no names"),
        (args.scope.namespace.is_some(), "events have no namespace: select an application with --app"),
        (args.selector.is_some() || args.show_labels, "events have no labels"),
        (args.sort_by.is_some(), "events are sorted by time"),
        (args.watch, "use `driftless events --follow`"),
        (
            !matches!(args.output, None | Some(GetOutput::Wide)),
            "`get events` prints only a table; use `driftless events -o json`",
        ),
    ];
    if let Some((_, why)) = unfit.into_iter().find(|(is_so, _)| *is_so) {
        return Err(Error::Usage(why.to_owned()).into());
    }
    let client = Client::new(&args.server, context.environment)?;
    let pairs = [("limit", Some(MOST)), ("app", args.scope.app.as_deref())];
    let pairs = pairs.into_iter().filter_map(|(key, value)| Some((key, value?)));
    let events: Vec<Event> = client.get(&path("/api/v1/events", pairs)).await?;
    if events.is_empty() {
        context.screen.say("No resources found");
        return Ok(ExitStatus::Success);
    }
    let mut table =
        Table::new(0, &["LAST SEEN", "TYPE", "REASON", "APPLICATION", "OBJECT", "MESSAGE"]).spaced(3);
    let now = context.clock.now();
    for Event { sequence: _, at, app, kind, reason, object, message, actor: _ } in &events {
        let kind = match kind {
            EventKind::Normal => "Normal",
            EventKind::Warning => "Warning",
        };
        let age = age::short(now.since(*at));
        let cells = [age.as_str(), kind, reason.as_str(), app.as_str(), object.as_str(), message.as_str()];
        table.row(cells.map(Into::into));
    }
    let text = table.render(context.colours);
    print(if args.no_headers { columns::without_head(&text) } else { text.as_str() })?;
    Ok(ExitStatus::Success)
}
