//! `driftless fleet wait`: waits until all hosts of the fleet run a commit.

use std::time::Duration;

use clap::{Args, ValueEnum};
use tokio::time::{Instant, sleep};

use driftless_fleet::{FleetGoal, FleetStatus, unreached};

use crate::cli::{
    client::Client,
    context::{Context, Verdict},
    error::{CommandError, Error},
    options::{ServerArgs, parse_span},
    screen::plain,
};

/// The time between two looks.
const LOOK_EVERY: Duration = Duration::from_secs(2);

/// The shortest beginning of a commit.
const SHORTEST: usize = 7;

/// The most hosts that are named when the time is over.
const MOST_LINES: usize = 20;

/// Wait until all hosts run a commit; exit with 1 if that takes too long.
///
/// Exit codes: 0 when every host has reached the state, 1 when the time is over, 2 when the command failed, for example
/// because no agent answers at its start. A host that is stale, lost or expected and never reported has not reached it.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  driftless fleet wait --commit $(git rev-parse HEAD)
  driftless fleet wait --commit 3f2a9c1 --for synced --only nas --timeout 2m")]
pub(in crate::cli) struct FleetWaitArgs {
    /// Id of the commit, or its first 7 digits or more.
    #[arg(long, value_name = "SHA", value_parser = parse_commit)]
    commit: String,
    /// State that every application of the repository must reach.
    #[arg(long = "for", value_name = "STATE", value_enum, default_value_t = FleetState::Healthy)]
    state: FleetState,
    /// Maximum time to wait.
    #[arg(long, value_name = "TIME", default_value = "10m", value_parser = parse_span)]
    timeout: Duration,
    /// Only hosts that follow this repository, by its name in their configuration.
    #[arg(long, value_name = "NAME")]
    repository: Option<String>,
    /// Only this host; give it several times for several [default: all hosts].
    #[arg(long, value_name = "HOST")]
    only: Vec<String>,
    #[command(flatten)]
    server: ServerArgs,
}

/// The state to wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum FleetState {
    /// The host is equal to the commit.
    Synced,
    /// It is, and all is healthy.
    Healthy,
}

/// An agent that no host reports to.
#[derive(Debug, thiserror::Error)]
#[error("the agent at {0} accepts no reports of other hosts")]
struct NoCollector(String);

impl CommandError for NoCollector {
    fn help(&self) -> Option<String> {
        Some("set `fleet: {accept: true}` in its configuration, or name another one with --server".to_owned())
    }
}

fn parse_commit(text: &str) -> Result<String, String> {
    let is_digits = text.bytes().all(|byte| byte.is_ascii_hexdigit());
    if is_digits && (SHORTEST..=64).contains(&text.len()) {
        Ok(text.to_ascii_lowercase())
    } else {
        Err(format!("must be the id of a commit, or its first {SHORTEST} digits or more"))
    }
}

pub(super) async fn wait(args: &FleetWaitArgs, context: &Context<'_>) -> Result<Verdict, Error> {
    let client = Client::new(&args.server, context.environment)?;
    let goal = FleetGoal {
        commit: args.commit.clone(),
        is_healthy: args.state == FleetState::Healthy,
        repository: args.repository.clone(),
        hosts: args.only.clone(),
    };
    let end = Instant::now() + args.timeout;
    let mut spinner = context.spinner();
    // Errors at the start are mistakes; later the collector may be restarting.
    let mut missing = look(&client, &goal).await?;
    loop {
        if missing.is_empty() {
            drop(spinner);
            context.screen.say(format!("every host runs {}", args.commit));
            return Ok(Verdict::Yes);
        }
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            break;
        }
        spinner.show(&format!("waiting for {} hosts: {}", missing.len(), plain(&missing[0])));
        sleep(LOOK_EVERY.min(left)).await;
        match look(&client, &goal).await {
            Ok(now_missing) => missing = now_missing,
            Err(Error::Client(error)) if error.is_absence() => missing = vec![error.to_string()],
            Err(error) => return Err(error),
        }
    }
    drop(spinner);
    for line in missing.iter().take(MOST_LINES) {
        context.screen.say(plain(line));
    }
    let more = missing.len().saturating_sub(MOST_LINES);
    let rest = if more > 0 { format!("and {more} more; ") } else { String::new() };
    context.screen.say(format!("{rest}not every host runs {} after {:?}", args.commit, args.timeout));
    Ok(Verdict::No)
}

async fn look(client: &Client, goal: &FleetGoal) -> Result<Vec<String>, Error> {
    let status: FleetStatus = client.get("/api/v1/fleet/hosts").await?;
    if !status.accepts {
        return Err(NoCollector(client.address()).into());
    }
    Ok(unreached(&status.hosts, goal))
}
