//! `driftless sync`: fetches from Git and observes Docker now, and may wait for the result.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use clap::Args;
use tokio::time::{Instant, sleep};

use super::{
    client::{Client, application_path, query},
    context::{Context, ExitStatus},
    error::Error,
    goal::{Goal, Wait, removed, wait_until, wait_until_all},
    missing::unobserved,
    options::{ServerArgs, parse_span},
    output::print,
    plan::{PlanResult, render_plan},
};
use driftless_agent::DryRun;
use driftless_model::{AppName, Application, RepositoryStatus};
use driftless_web::Accepted;

/// The time in which a new application is looked for.
const APPEARANCE: Duration = Duration::from_secs(10);

/// The route of the repositories.
const REPOSITORIES: &str = "/api/v1/repositories";

/// The interval at which it is.
const LOOK_AGAIN: Duration = Duration::from_millis(200);

/// The states that a sync waits for.
const GOALS: [Goal; 2] = [Goal::Synced, Goal::Healthy];

/// Sync now: fetch from Git, observe Docker, and end all backoff pauses.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  driftless sync                              # all applications
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
    /// Name of the application. Without it, all are synced.
    pub(super) app: Option<String>,
    /// Accept the rewritten history that was rejected, for all applications of the repository.
    #[arg(long, requires = "app")]
    pub(super) accept_rewrite: bool,
    /// Confirm the removal of workloads that Git does not contain any more (`PruneHeld`).
    #[arg(long, requires = "app", conflicts_with = "accept_rewrite")]
    pub(super) prune: bool,
    /// Try the commit again that failed (`CommitFailed`), instead of waiting for the next one.
    #[arg(long, requires = "app", conflicts_with_all = ["accept_rewrite", "prune", "heal"])]
    pub(super) retry: bool,
    /// Undo drift once, although `selfHeal` is off.
    #[arg(long, requires = "app", conflicts_with_all = ["accept_rewrite", "prune"])]
    pub(super) heal: bool,
    /// Deploy the newer images that are known and only reported, or not old enough yet.
    #[arg(long, requires = "app", conflicts_with_all = ["accept_rewrite", "prune", "retry", "heal"])]
    pub(super) update_images: bool,
    /// Show what the agent would do for the commit that it fetched last, and do nothing. With --prune: what it would do
    /// after the confirmation.
    #[arg(long, requires = "app", conflicts_with_all = ["accept_rewrite", "retry", "heal", "update_images", "wait"])]
    pub(super) dry_run: bool,
    /// Wait until the application is Synced and Healthy, not for the time of `monitor` after that; exit with 1 if the commit
    /// fails, or if that takes longer than --timeout.
    #[arg(short, long)]
    pub(super) wait: bool,
    /// Maximum time to wait.
    #[arg(long, value_name = "TIME", default_value = "5m", value_parser = parse_span)]
    pub(super) timeout: Duration,
    #[command(flatten)]
    pub(super) server: ServerArgs,
}

pub(super) async fn sync(args: &SyncArgs, context: &Context<'_>) -> Result<ExitStatus, Error> {
    let client = Client::new(&args.server, context.environment)?;
    let Some(app) = args.app.as_deref() else { return sync_all(&client, args, context).await };
    if args.dry_run {
        let after: &[_] = if args.prune { &[("after", "prune")] } else { &[] };
        let plan: DryRun = client.get(&(application_path(app, "/plan")? + &query(after))).await?;
        let plans = BTreeMap::from([(AppName(app.to_owned()), PlanResult::Plan(plan))]);
        print(&context.fold(&render_plan(&plans, context.colours)))?;
        return Ok(ExitStatus::Success);
    }
    let before = known(&client, app, context).await?;
    let what = match args {
        SyncArgs { accept_rewrite: true, .. } => "/accept-rewrite",
        SyncArgs { prune: true, .. } => "/prune",
        SyncArgs { retry: true, .. } => "/retry",
        SyncArgs { heal: true, .. } => "/heal",
        SyncArgs { update_images: true, .. } => "/update-images",
        SyncArgs { .. } => "/sync",
    };
    let accepted: Accepted = client.post(&application_path(app, what)?, None::<&()>).await?;
    if !args.wait {
        print(&format!("{app}: sync asked for; `driftless status {app}` shows it\n"))?;
        return Ok(ExitStatus::Success);
    }
    match wait_for(&client, &before, &accepted, args.timeout, context).await? {
        ExitStatus::Success if what == "/sync" => follows_git(&client, app, context).await,
        exit_status => Ok(exit_status),
    }
}

/// The application. One that the agent does not know may be new in Git: then everything is fetched, and it is looked for. One
/// that the agent has not looked at yet is awaited.
async fn known(client: &Client, app: &str, context: &Context<'_>) -> Result<Application, Error> {
    let path = application_path(app, "")?;
    let mut missing = match client.get(&path).await {
        Err(error) if error.is_not_found() || error.is_starting() => error,
        known => return Ok(known?),
    };
    let may_appear = missing.is_starting() || fetch_for(client, app, context).await?;
    let started = Instant::now();
    while may_appear && started.elapsed() < APPEARANCE {
        sleep(LOOK_AGAIN).await;
        match client.get(&path).await {
            // It is found first, and then looked at.
            Err(error) if error.is_not_found() || error.is_absence() => missing = error,
            known => return Ok(known?),
        }
    }
    Err(missing.into())
}

/// Has everything fetched for an application that the agent does not know. Returns whether something is fetched.
async fn fetch_for(client: &Client, app: &str, context: &Context<'_>) -> Result<bool, Error> {
    let fetched = fetch_all(client).await?;
    let mut has_asked = !fetched.is_empty();
    // A token may be for some applications only.
    for other in applications(client).await?.iter().filter(|other| !fetched.contains(&other.spec.repository))
    {
        let path = application_path(other.name.as_str(), "/sync")?;
        has_asked |= client.post::<Accepted>(&path, None::<&()>).await.is_ok();
    }
    if has_asked {
        context.screen.say(format!("{app} is not known yet: looking for it in the newest commits"));
    }
    Ok(has_asked)
}

async fn applications(client: &Client) -> Result<Vec<Application>, Error> {
    Ok(client.get("/api/v1/applications?view=summary").await?)
}

/// Has all repositories fetched that this user may have fetched. Returns their names.
async fn fetch_all(client: &Client) -> Result<Vec<String>, Error> {
    let mut asked = Vec::new();
    for RepositoryStatus { name, .. } in client.get::<Vec<_>>(REPOSITORIES).await? {
        match client.post::<Accepted>(&format!("/api/v1/repositories/{name}/fetch"), None::<&()>).await {
            Ok(_) => asked.push(name),
            // The token is for others, or the agent is older.
            Err(error) if error.is_forbidden() || error.is_not_found() => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(asked)
}

/// The applications of the agent, after everything is fetched. Before there are any, they are looked for.
async fn known_applications(
    client: &Client,
    args: &SyncArgs,
    context: &Context<'_>,
) -> Result<Vec<Application>, Error> {
    let before: Vec<RepositoryStatus> = client.get(REPOSITORIES).await?;
    let asked = fetch_all(client).await?;
    let started = Instant::now();
    let mut all = applications(client).await?;
    if all.is_empty() && !asked.is_empty() {
        context.screen.say(format!("no applications yet: looking for them in {}", asked.join(", ")));
    }
    // A commit may have new ones.
    while (args.wait || all.is_empty()) && started.elapsed() < APPEARANCE.min(args.timeout) {
        let now: Vec<RepositoryStatus> = client.get(REPOSITORIES).await?;
        let is_answered = |name: &String| {
            let of =
                |all: &[RepositoryStatus]| all.iter().find(|it| it.name == *name).map(|it| it.fetched_at);
            of(&now) != of(&before)
        };
        // Before the list, which has them once they are observed.
        let is_complete = unobserved(client).await?.is_empty();
        all = applications(client).await?;
        if !all.is_empty() && is_complete && asked.iter().all(is_answered) || asked.is_empty() {
            break;
        }
        sleep(LOOK_AGAIN).await;
    }
    Ok(all)
}

/// Syncs all applications of the agent, and waits for all at the same time.
async fn sync_all(client: &Client, args: &SyncArgs, context: &Context<'_>) -> Result<ExitStatus, Error> {
    let mut all = known_applications(client, args, context).await?;
    if all.is_empty() {
        print("no applications: `driftless status` says what the agent follows\n")?;
        return Ok(if args.wait { ExitStatus::Negative } else { ExitStatus::Success });
    }
    let started = Instant::now();
    let mut exit_status = ExitStatus::Success;
    let mut known = BTreeSet::new();
    while !all.is_empty() {
        let mut asked = Vec::new();
        let mut forbidden = Vec::new();
        for app in &all {
            let path = application_path(app.name.as_str(), "/sync")?;
            match client.post::<Accepted>(&path, None::<&()>).await {
                Err(error) if error.is_not_found() => print(&removed(app.name.as_str()))?,
                // A token may be for some applications only.
                Err(error) if error.is_forbidden() => forbidden.push((app.name.as_str(), error)),
                accepted => asked.push((app, accepted?)),
            }
        }
        let names: Vec<&str> = forbidden.iter().map(|(name, _)| *name).collect();
        if !names.is_empty() && (!asked.is_empty() || !known.is_empty()) {
            context.screen.say(format!("not asked, because the token is not for them: {}", names.join(", ")));
        } else if let Some((_, error)) = forbidden.into_iter().next() {
            return Err(error.into());
        }
        if !args.wait {
            let applications = if asked.len() == 1 { "application" } else { "applications" };
            print(&format!("{} {applications}: sync asked for; `driftless status` shows it\n", asked.len()))?;
            return Ok(ExitStatus::Success);
        }
        let mut waits = Vec::new();
        for (app, accepted) in &asked {
            if !is_suspended(app, context) {
                let (app, ticket) = (app.name.as_str(), accepted.ticket.as_deref());
                waits.push(Wait { app, goals: &GOALS, ticket, timeout: args.timeout, may_be_removed: true });
            }
        }
        let reached = wait_until_all(client, &waits, started, context).await?;
        if reached.len() < asked.len() {
            exit_status = ExitStatus::Negative;
        }
        for app in reached {
            if follows_git(client, app, context).await? == ExitStatus::Negative {
                exit_status = ExitStatus::Negative;
            }
        }
        // Those that the fetched commits have brought.
        known.extend(all.into_iter().map(|app| app.name));
        all = applications(client).await?;
        all.retain(|app| !known.contains(&app.name));
    }
    Ok(exit_status)
}

/// Whether an application that is as it should be runs the newest commit: no pin keeps it at an older one.
async fn follows_git(client: &Client, app: &str, context: &Context<'_>) -> Result<ExitStatus, Error> {
    let now: Application = match client.get(&application_path(app, "")?).await {
        // It has left Git, and is gone.
        Err(error) if error.is_not_found() => return Ok(ExitStatus::Success),
        now => now?,
    };
    let Some(pin) = now.status.pin.filter(|pin| pin.behind.is_none_or(|behind| behind > 0)) else {
        return Ok(ExitStatus::Success);
    };
    let behind = match pin.behind {
        None => "which may be behind Git".to_owned(),
        Some(1) => "1 commit behind".to_owned(),
        Some(count) => format!("{count} commits behind"),
    };
    context.screen.say_folded(&format!(
        "{app}: no newer commit is deployed, because a rollback pinned it to revision #{}, {behind}; `driftless resume {app}` \
         ends that",
        pin.revision
    ));
    Ok(ExitStatus::Negative)
}

/// Whether an application was suspended before it was asked to sync, which is said.
fn is_suspended(before: &Application, context: &Context<'_>) -> bool {
    let app = &before.name;
    // Its health is `Suspended` too if a Job is suspended or a rollout is paused, and then Git is followed all the same.
    let is_suspended = before.spec.policy.suspended;
    if is_suspended {
        let sentence = if before.has_left_git() {
            format!(
                "{app}: it is not in Git any more, so nothing will be changed: remove it with `driftless remove {app}`, let it run \
                 without the agent with `driftless forget {app}`, or restore it in Git"
            )
        } else {
            format!("{app}: it is suspended, so nothing will be changed; `driftless resume {app}` ends that")
        };
        context.screen.say_folded(&sentence);
    }
    is_suspended
}

/// Waits until an application is as Git says, which may be that it is gone, unless it was suspended before.
async fn wait_for(
    client: &Client,
    before: &Application,
    accepted: &Accepted,
    timeout: Duration,
    context: &Context<'_>,
) -> Result<ExitStatus, Error> {
    if is_suspended(before, context) {
        return Ok(ExitStatus::Negative);
    }
    let (app, ticket) = (before.name.as_str(), accepted.ticket.as_deref());
    let wait = Wait { app, goals: &GOALS, ticket, timeout, may_be_removed: true };
    wait_until(client, &wait, context).await
}
