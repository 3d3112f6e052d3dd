//! Commands that ask the agent for something, or wait until an application is as it should be.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::{
    Context, Error, Verdict,
    args::{AppArgs, Goal, RecoverArgs, RollbackArgs, SyncArgs, WaitArgs},
    client::{Client, application_path},
    screen::{plain, print},
    status::headline,
};
use driftless_model::{Application, HealthStatus, SyncStatus, Until};
use driftless_web::{Accepted, RollbackBody};

/// How often the status is read while waiting.
const LOOK_EVERY: Duration = Duration::from_millis(400);

pub(super) async fn sync(args: &SyncArgs, context: &Context<'_>) -> Result<Verdict, Error> {
    let client = Client::new(&args.server, context.environment)?;
    let before: Application = client.get(&application_path(&args.app, "")?).await?;
    let what = match args {
        SyncArgs { accept_rewrite: true, .. } => "/accept-rewrite",
        SyncArgs { prune: true, .. } => "/prune",
        SyncArgs { .. } => "/sync",
    };
    let _: Accepted = client.post(&application_path(&args.app, what)?, None::<&()>).await?;
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
    let wanted = |now: &Application| is_newer(now, &before) && is_settled(now);
    wait_until(&client, &args.app, args.timeout, "Synced and Healthy", context, wanted).await
}

pub(super) async fn wait(args: &WaitArgs, context: &Context<'_>) -> Result<Verdict, Error> {
    let client = Client::new(&args.server, context.environment)?;
    let states: Vec<String> = args.states.iter().map(|it| format!("{it:?}")).collect();
    let wanted = |now: &Application| is_observed(now) && args.states.iter().all(|goal| is_at(now, *goal));
    wait_until(&client, &args.app, args.timeout, &states.join(" and "), context, wanted).await
}

pub(super) async fn rollback(args: &RollbackArgs, context: &Context<'_>) -> Result<Verdict, Error> {
    let client = Client::new(&args.server, context.environment)?;
    let body =
        RollbackBody { to: args.to.clone(), reason: args.reason.clone(), until: Some(args.until.clone()) };
    let accepted: Accepted = client.post(&application_path(&args.app, "/rollback")?, Some(&body)).await?;
    let app = &args.app;
    let Some(pin) = accepted.pin else {
        print(&format!("{app}: rollback asked for; `driftless status {app}` shows it\n"))?;
        return Ok(Verdict::Yes);
    };
    let commit = pin.commit.get(..12).unwrap_or(&pin.commit);
    let until = match pin.until {
        Until::Manual => format!("until `driftless resume {app}`"),
        Until::NextCommit => format!("until the next commit, or `driftless resume {app}`"),
        Until::Time(at) => format!("until {at}, or `driftless resume {app}`"),
    };
    print(&format!("{app}: pinned to revision {} ({commit}), {until}\n", pin.revision))?;
    Ok(Verdict::Yes)
}

pub(super) async fn resume(args: &AppArgs, context: &Context<'_>) -> Result<Verdict, Error> {
    post(args, "/resume", "follows Git again", context).await
}

pub(super) async fn suspend(args: &AppArgs, context: &Context<'_>) -> Result<Verdict, Error> {
    post(args, "/suspend", "suspended: it is observed and reported, and nothing is changed", context).await
}

pub(super) async fn adopt(args: &AppArgs, context: &Context<'_>) -> Result<Verdict, Error> {
    let client = Client::new(&args.server, context.environment)?;
    let accepted: Accepted = client.post(&application_path(&args.app, "/adopt")?, None::<&()>).await?;
    if accepted.adopted.is_empty() {
        print(&format!(
            "{}: nothing of it was started by docker compose, or all of it was taken over before\n",
            args.app
        ))?;
        return Ok(Verdict::Yes);
    }
    print(&format!("{}: taken over from docker compose\n", args.app))?;
    for line in accepted.adopted.iter().flat_map(|it| it.lines()) {
        print(&format!("  {}\n", plain(line)))?;
    }
    Ok(Verdict::Yes)
}

pub(super) async fn recover(args: &RecoverArgs, context: &Context<'_>) -> Result<Verdict, Error> {
    let client = Client::new(&args.server, context.environment)?;
    let accepted: Accepted = client.post("/api/v1/recover", None::<&()>).await?;
    if accepted.recovered.is_empty() {
        print("nothing to recover: no state was lost\n")?;
    }
    for line in accepted.recovered.iter().flat_map(|it| it.lines()) {
        print(&format!("{}\n", plain(line)))?;
    }
    Ok(Verdict::Yes)
}

async fn post(args: &AppArgs, below: &str, done: &str, context: &Context<'_>) -> Result<Verdict, Error> {
    let client = Client::new(&args.server, context.environment)?;
    let _: Accepted = client.post(&application_path(&args.app, below)?, None::<&()>).await?;
    print(&format!("{}: {done}\n", args.app))?;
    Ok(Verdict::Yes)
}

/// Reads the status until it is as wanted. An agent that is being restarted meanwhile is waited for.
async fn wait_until(
    client: &Client,
    app: &str,
    timeout: Duration,
    goal: &str,
    context: &Context<'_>,
    wanted: impl Fn(&Application) -> bool,
) -> Result<Verdict, Error> {
    let path = application_path(app, "")?;
    let started = Instant::now();
    let mut spinner = context.spinner();
    let mut last = None;
    loop {
        match client.get::<Application>(&path).await {
            Ok(application) if wanted(&application) => {
                spinner.end();
                print(&format!("{app}: {goal} after {:.1} s\n", started.elapsed().as_secs_f32()))?;
                return Ok(Verdict::Yes);
            }
            Ok(application) => {
                spinner.show(&format!("{app}: {}", headline(&application)));
                last = Some(application);
            }
            Err(error) if error.is_absence() && last.is_some() => spinner.show(&error.to_string()),
            Err(error) => return Err(error.into()),
        }
        if started.elapsed() >= timeout {
            spinner.end();
            let why = last.as_ref().map_or_else(String::new, |it| {
                format!(": {:?}, {:?}: {}", it.status.sync, it.status.health, headline(it))
            });
            context.screen.say(format!("{app}: not {goal} within {timeout:?}{why}"));
            return Ok(Verdict::No);
        }
        sleep(LOOK_EVERY.min(timeout.saturating_sub(started.elapsed()))).await;
        spinner.turn();
    }
}

/// Whether the agent has fetched the repository and observed the containers since `before`.
///
/// The order of the two does not matter: a fetch that finds a new commit raises the generation, which [`is_observed`]
/// compares; after a fetch without news the agent does not observe again.
fn is_newer(now: &Application, before: &Application) -> bool {
    let (now, before) = (&now.status, &before.status);
    now.fetched_at > before.fetched_at && now.observed_at > before.observed_at
}

fn is_settled(now: &Application) -> bool {
    is_observed(now) && is_at(now, Goal::Synced) && is_at(now, Goal::Healthy)
}

/// The status speaks of what is asked for now, not of an older target.
fn is_observed(now: &Application) -> bool {
    now.status.observed_generation >= now.generation
}

fn is_at(now: &Application, goal: Goal) -> bool {
    match goal {
        Goal::Synced => now.status.sync == SyncStatus::Synced,
        Goal::Healthy => now.status.health == HealthStatus::Healthy,
        Goal::Suspended => now.status.health == HealthStatus::Suspended,
        Goal::Degraded => now.status.health == HealthStatus::Degraded,
    }
}
