//! `driftless rollback`: goes back to an earlier revision and pins the application to it.

use std::{collections::BTreeMap, time::Duration};

use clap::Args;

use super::{
    client::{Client, application_path, query},
    context::{Context, ExitStatus},
    error::Error,
    goal::{Goal, Wait, wait_until},
    options::{ServerArgs, parse_span},
    output::print,
    plan::{PlanResult, render_plan},
    screen::plain,
};
use driftless_agent::DryRun;
use driftless_model::{AppName, Pin, Until};
use driftless_web::{Accepted, RollbackBody};

/// Go back to an earlier revision and pin the application to it.
///
/// New commits are not applied until the pin ends; manual changes are still undone. A rollback works while the
/// Git server is unavailable. Data in volumes is not rolled back.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  driftless rollback shop                     # to the last good revision
  driftless rollback shop --to 3 --dry-run
  driftless rollback shop --to 3 --reason 'orders fail'
  driftless rollback shop --to 3f2a9c1 --until next-commit
  driftless rollback shop --until 2h --wait")]
pub(super) struct RollbackArgs {
    /// Name of the application.
    pub(super) app: String,
    /// The same as --to.
    #[arg(value_name = "N|COMMIT", conflicts_with = "to")]
    pub(super) revision: Option<String>,
    /// Number of a revision, or at least 7 digits of a commit id [default: the newest revision that succeeded
    /// and is not the current one]
    #[arg(long, value_name = "N|COMMIT")]
    pub(super) to: Option<String>,
    /// Reason, shown in the status.
    #[arg(long)]
    pub(super) reason: Option<String>,
    /// End of the pin: manual, next-commit, a duration such as 2h, or a time such as 2026-01-31T12:00:00Z.
    #[arg(long, value_name = "WHEN", default_value = "manual", value_parser = check_until)]
    pub(super) until: String,
    /// Show what the agent would do, and do nothing.
    #[arg(long, conflicts_with = "wait")]
    pub(super) dry_run: bool,
    /// Wait until the application is Synced and Healthy; exit with 1 if that takes longer than --timeout.
    #[arg(short, long)]
    pub(super) wait: bool,
    /// Maximum time to wait.
    #[arg(long, value_name = "TIME", default_value = "5m", value_parser = parse_span)]
    pub(super) timeout: Duration,
    #[command(flatten)]
    pub(super) server: ServerArgs,
}

impl RollbackArgs {
    /// The revision to go back to, if one is given.
    fn to(&self) -> Option<&str> {
        self.to.as_deref().or(self.revision.as_deref())
    }
}

pub(super) async fn rollback(args: &RollbackArgs, context: &Context<'_>) -> Result<ExitStatus, Error> {
    let client = Client::new(&args.server, context.environment)?;
    if args.dry_run {
        let to = args.to().map(|to| ("to", to));
        let pairs: Vec<_> = [("after", "rollback")].into_iter().chain(to).collect();
        let path = application_path(&args.app, "/plan")? + &query(&pairs);
        let plan: DryRun = client.get(&path).await?;
        let plans = BTreeMap::from([(AppName(args.app.clone()), PlanResult::Plan(plan))]);
        print(&context.fold(&render_plan(&plans, context.colours)))?;
        return Ok(ExitStatus::Success);
    }
    let body = RollbackBody {
        to: args.to().map(str::to_owned),
        reason: args.reason.clone(),
        until: Some(args.until.clone()),
    };
    let accepted: Accepted = client.post(&application_path(&args.app, "/rollback")?, Some(&body)).await?;
    let app = &args.app;
    match &accepted.pin {
        Some(pin) => print(&pinned(app, pin))?,
        None => print(&format!("{app}: rollback asked for; `driftless status {app}` shows it\n"))?,
    }
    if let Some(note) = &accepted.note {
        context.screen.say(plain(note));
    }
    if !args.wait {
        return Ok(ExitStatus::Success);
    }
    // It would not be reached.
    if accepted.note.is_some() {
        return Ok(ExitStatus::Negative);
    }
    let goals = [Goal::Synced, Goal::Healthy];
    let wait = Wait {
        app,
        goals: &goals,
        ticket: accepted.ticket.as_deref(),
        timeout: args.timeout,
        may_be_removed: false,
    };
    wait_until(&client, &wait, context).await
}

fn pinned(app: &str, pin: &Pin) -> String {
    let commit = pin.commit.short();
    let until = match pin.until {
        Until::Manual => format!("until `driftless resume {app}`"),
        Until::NextCommit => format!("until the next commit, or `driftless resume {app}`"),
        Until::Time(at) => format!("until {at}, or `driftless resume {app}`"),
    };
    format!("{app}: pinned to revision {} ({commit}), {until}\n", pin.revision)
}

/// Checks the syntax at once. The agent interprets the value, because its clock counts.
fn check_until(text: &str) -> Result<String, String> {
    driftless_web::parse_until(text, driftless_model::Timestamp::default())
        .map(|_| text.to_owned())
        .map_err(|error| error.to_string())
}
