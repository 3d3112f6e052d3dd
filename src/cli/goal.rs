//! Waiting until an application has reached a state.

use std::time::Duration;

use clap::ValueEnum;
use tokio::time::{Instant, sleep};

use super::{
    client::{Client, application_path},
    context::{Context, Verdict},
    error::Error,
    output::print,
    status::headline,
};
use driftless_model::{Application, HealthStatus, SyncStatus};

/// A state to wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Goal {
    Synced,
    Healthy,
    Suspended,
    Degraded,
}

/// Interval at which the status is read while waiting.
const LOOK_EVERY: Duration = Duration::from_millis(400);

/// Reads the status until it is as wanted. Waits for an agent that restarts meanwhile.
pub(super) async fn wait_until(
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
            let why = last.as_ref().map_or_else(String::new, |application| {
                format!(
                    ": {:?}, {:?}: {}",
                    application.status.sync,
                    application.status.health,
                    headline(application)
                )
            });
            context.screen.say(format!("{app}: not {goal} within {timeout:?}{why}"));
            return Ok(Verdict::No);
        }
        sleep(LOOK_EVERY.min(timeout.saturating_sub(started.elapsed()))).await;
        spinner.turn();
    }
}

/// Whether the status is about the newest target and not about an older one.
pub(super) fn is_observed(now: &Application) -> bool {
    now.status.observed_generation >= now.generation
}

/// Whether an application is in this state.
pub(super) fn is_at(now: &Application, goal: Goal) -> bool {
    match goal {
        Goal::Synced => now.status.sync == SyncStatus::Synced,
        Goal::Healthy => now.status.health == HealthStatus::Healthy,
        Goal::Suspended => now.status.health == HealthStatus::Suspended,
        Goal::Degraded => now.status.health == HealthStatus::Degraded,
    }
}
