//! `driftless sync`: fetches from Git and observes Docker now, and may wait for the result.

use std::{collections::BTreeMap, time::Duration};

use clap::Args;

use super::{
    client::{Client, application_path, query},
    context::{Context, Verdict},
    error::Error,
    goal::{Goal, Wait, wait_until},
    options::{ServerArgs, parse_span},
    output::print,
    plan::{PlanResult, render_plan},
};
use driftless_agent::DryRun;
use driftless_model::{AppName, Application, HealthStatus};
use driftless_web::Accepted;

/// Sync now: fetch from Git, observe Docker, and end all backoff pauses.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  driftless sync shop
  driftless sync shop --wait --timeout 3m     # in a pipeline, after a push
  driftless sync shop --dry-run
  driftless sync shop --prune --dry-run       # what a large removal would do
  driftless sync shop --prune                 # confirm it
  driftless sync shop --retry                 # try a failed commit again
  driftless sync shop --heal                  # undo drift once
  driftless sync shop --update-images         # deploy newer images
  driftless sync shop --accept-rewrite        # after a force push")]
#[expect(clippy::struct_excessive_bools, reason = "flags of the command line")]
pub(super) struct SyncArgs {
    /// Name of the application.
    pub(super) app: String,
    /// Accept the rewritten history that was rejected, for all applications of the repository.
    #[arg(long)]
    pub(super) accept_rewrite: bool,
    /// Confirm the removal of workloads that Git does not contain any more (`PruneHeld`).
    #[arg(long, conflicts_with = "accept_rewrite")]
    pub(super) prune: bool,
    /// Try the commit again that failed (`CommitFailed`), instead of waiting for the next one.
    #[arg(long, conflicts_with_all = ["accept_rewrite", "prune", "heal"])]
    pub(super) retry: bool,
    /// Undo drift once, although `selfHeal` is off.
    #[arg(long, conflicts_with_all = ["accept_rewrite", "prune"])]
    pub(super) heal: bool,
    /// Deploy the newer images that are known and only reported, or not old enough yet.
    #[arg(long, conflicts_with_all = ["accept_rewrite", "prune", "retry", "heal"])]
    pub(super) update_images: bool,
    /// Show what the agent would do for the commit that it fetched last, and do nothing. With --prune: what it would do
    /// after the confirmation.
    #[arg(long, conflicts_with_all = ["accept_rewrite", "retry", "heal", "update_images", "wait"])]
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

pub(super) async fn sync(args: &SyncArgs, context: &Context<'_>) -> Result<Verdict, Error> {
    let client = Client::new(&args.server, context.environment)?;
    if args.dry_run {
        let after: &[_] = if args.prune { &[("after", "prune")] } else { &[] };
        let plan: DryRun = client.get(&(application_path(&args.app, "/plan")? + &query(after))).await?;
        let plans = BTreeMap::from([(AppName(args.app.clone()), PlanResult::Plan(plan))]);
        print(&context.fold(&render_plan(&plans, context.colours)))?;
        return Ok(Verdict::Yes);
    }
    let before: Application = client.get(&application_path(&args.app, "")?).await?;
    let what = match args {
        SyncArgs { accept_rewrite: true, .. } => "/accept-rewrite",
        SyncArgs { prune: true, .. } => "/prune",
        SyncArgs { retry: true, .. } => "/retry",
        SyncArgs { heal: true, .. } => "/heal",
        SyncArgs { update_images: true, .. } => "/update-images",
        SyncArgs { .. } => "/sync",
    };
    let accepted: Accepted = client.post(&application_path(&args.app, what)?, None::<&()>).await?;
    if !args.wait {
        print(&format!("{}: sync asked for; `driftless status {0}` shows it\n", args.app))?;
        return Ok(Verdict::Yes);
    }
    if before.status.health == HealthStatus::Suspended {
        context.screen.say(format!(
            "{}: it is suspended, so nothing will be changed; `driftless resume {0}` ends that",
            args.app
        ));
        return Ok(Verdict::No);
    }
    let goals = [Goal::Synced, Goal::Healthy];
    let wait =
        Wait { app: &args.app, goals: &goals, ticket: accepted.ticket.as_deref(), timeout: args.timeout };
    wait_until(&client, &wait, context).await
}
