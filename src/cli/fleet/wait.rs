//! `driftless fleet wait`: waits until all hosts of the fleet run a commit.

use std::time::Duration;

use clap::{Args, ValueEnum};
use tokio::time::{Instant, sleep};

use driftless_fleet::{FleetGoal, unreached};

use super::picture::{LookError, Picture, PictureArgs};
use crate::cli::{
    context::{Context, ExitStatus},
    error::{CommandError, Error},
    options::parse_span,
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
/// because no agent or server answers at its start. A host that is stale, lost or expected and never reported has not reached it.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  driftless fleet wait --commit $(git rev-parse HEAD)
  driftless fleet wait --commit 3f2a9c1 --for synced --only nas --timeout 2m
  driftless fleet wait --commit 3f2a9c1 --from davs://dav.example.com/fleet")]
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
    picture: PictureArgs,
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
pub(super) struct NoCollector(pub(super) String);

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

pub(super) async fn wait(args: &FleetWaitArgs, context: &Context<'_>) -> Result<ExitStatus, Error> {
    let mut picture = Picture::new(&args.picture, context)?;
    let goal = FleetGoal {
        commit: args.commit.clone(),
        is_healthy: args.state == FleetState::Healthy,
        repository: args.repository.clone(),
        hosts: args.only.clone(),
    };
    let end = Instant::now() + args.timeout;
    let mut spinner = context.spinner();
    // Errors at the start are mistakes; later the collector may be restarting.
    let mut missing = look(&mut picture, &goal, context).await?;
    loop {
        if missing.is_empty() {
            drop(spinner);
            context.screen.say(format!("every host runs {}", args.commit));
            return Ok(ExitStatus::Success);
        }
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            break;
        }
        let hosts = if missing.len() == 1 { "host" } else { "hosts" };
        spinner.show(&format!("waiting for {} {hosts}: {}", missing.len(), plain(&missing[0])));
        sleep(LOOK_EVERY.min(left)).await;
        match look(&mut picture, &goal, context).await {
            Ok(now_missing) => missing = now_missing,
            Err(LookError { error, is_passing: true }) => missing = vec![error.to_string()],
            Err(LookError { error, is_passing: false }) => return Err(error),
        }
    }
    drop(spinner);
    for line in missing.iter().take(MOST_LINES) {
        context.screen.say(plain(line));
    }
    let more = missing.len().saturating_sub(MOST_LINES);
    let rest = if more > 0 { format!("and {more} more; ") } else { String::new() };
    context.screen.say(format!("{rest}not every host runs {} after {:?}", args.commit, args.timeout));
    Ok(ExitStatus::Negative)
}

async fn look(
    picture: &mut Picture,
    goal: &FleetGoal,
    context: &Context<'_>,
) -> Result<Vec<String>, LookError> {
    let status = picture.look(context).await?;
    if !status.accepts && status.source.is_none() {
        return Err(LookError { error: NoCollector(picture.address()).into(), is_passing: false });
    }
    let mut missing = unreached(&status.hosts, goal);
    missing.extend(status.unread(&goal.hosts));
    Ok(missing)
}
