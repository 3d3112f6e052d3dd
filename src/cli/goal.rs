//! Waiting until an application has reached a state. The agent answers when something has changed.

use std::{slice, time::Duration};

use clap::ValueEnum;
use tokio::time::{Instant, sleep};

use super::{
    client,
    client::{Client, application_path},
    context::{Context, ExitStatus},
    error::Error,
    output::print,
    progress::{Spinner, TURN_EVERY},
    screen::plain,
    status::headline,
};
use driftless_model::{Application, ConditionType, HealthStatus, InvalidName};
use driftless_web::Waited;

/// A state to wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Goal {
    Synced,
    Healthy,
    Suspended,
    Degraded,
}

/// The longest wait of one request. Proxies between the agent and a client end longer ones.
const LONGEST_REQUEST: Duration = Duration::from_secs(25);

/// The first and the longest pause before an agent that does not answer is asked again.
const RETRY: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(2));

/// The pause between two looks at several applications.
const LOOK_AGAIN: Duration = Duration::from_millis(500);

/// Follows the status of one application.
pub(super) struct StatusWatch<'a> {
    client: &'a Client,
    path: String,
    /// The version of the last status. Empty before the first one.
    seen: String,
    retry: Duration,
}

impl<'a> StatusWatch<'a> {
    pub(super) fn new(client: &'a Client, app: &str) -> Result<Self, InvalidName> {
        let path = application_path(app, "/wait")?;
        Ok(Self { client, path, seen: String::new(), retry: RETRY.0 })
    }

    /// The status when it has changed, has reached the goals or after `within`; the first one at once. The states count only
    /// in a status that answers the ticket.
    pub(super) async fn next(
        &mut self,
        goals: &[Goal],
        ticket: Option<&str>,
        within: Duration,
    ) -> Result<Waited, client::Error> {
        let within = within.clamp(Duration::from_millis(1), LONGEST_REQUEST).as_millis();
        let states: Vec<&str> = goals.iter().map(|goal| driftless_web::Goal::from(*goal).name()).collect();
        let mut path = format!("{}?within={within}ms&for={}&seen={}", self.path, states.join(","), self.seen);
        if let Some(ticket) = ticket {
            path.push_str("&ticket=");
            path.push_str(ticket);
        }
        let waited: Waited = self.client.get(&path).await?;
        self.seen.clone_from(&waited.version);
        self.retry = RETRY.0;
        Ok(waited)
    }

    /// Like [`Self::next`] without goals. `None`: an agent that is restarted does not answer; a pause has passed.
    pub(super) async fn change(&mut self, within: Duration) -> Result<Option<Waited>, client::Error> {
        let changed = self.next(&[], None, within).await;
        self.forgive(changed, within).await
    }

    /// Like [`Self::next`]. `None`: an agent that is restarted does not answer; a pause has passed.
    async fn answer(
        &mut self,
        goals: &[Goal],
        ticket: Option<&str>,
        within: Duration,
    ) -> Result<Option<Waited>, client::Error> {
        let answer = self.next(goals, ticket, within).await;
        self.forgive(answer, within).await
    }

    /// Turns the absence of an agent that has answered before into a pause.
    async fn forgive(
        &mut self,
        answer: Result<Waited, client::Error>,
        left: Duration,
    ) -> Result<Option<Waited>, client::Error> {
        match answer {
            Ok(waited) => Ok(Some(waited)),
            Err(error) if error.is_absence() && !self.seen.is_empty() => {
                sleep(self.retry.min(left)).await;
                self.retry = (self.retry * 2).min(RETRY.1);
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }
}

impl From<Goal> for driftless_web::Goal {
    fn from(goal: Goal) -> Self {
        match goal {
            Goal::Synced => Self::Synced,
            Goal::Healthy => Self::Healthy,
            Goal::Suspended => Self::Suspended,
            Goal::Degraded => Self::Degraded,
        }
    }
}

/// A wait of a command: the application, the states that it must reach, and the request that must be answered.
pub(super) struct Wait<'a> {
    pub(super) app: &'a str,
    pub(super) goals: &'a [Goal],
    pub(super) ticket: Option<&'a str>,
    pub(super) timeout: Duration,
    /// Whether the application is as wanted, too, if it is gone: Git may not have it any more.
    pub(super) may_be_removed: bool,
}

/// The line about an application that left Git and was removed while it was waited for.
pub(super) fn removed(app: &str) -> String {
    format!("{app}: removed, because it is not in Git any more\n")
}

/// A wait that goes on, and the last status of its application.
struct OpenWait<'a> {
    wait: &'a Wait<'a>,
    watch: StatusWatch<'a>,
    last: Option<Application>,
    /// The agent did not answer when it was asked last.
    is_absent: bool,
}

/// Waits until the application is as wanted, also for an agent that restarts meanwhile.
pub(super) async fn wait_until(
    client: &Client,
    wait: &Wait<'_>,
    context: &Context<'_>,
) -> Result<ExitStatus, Error> {
    let reached = wait_until_all(client, slice::from_ref(wait), Instant::now(), context).await?;
    Ok(if reached.is_empty() { ExitStatus::Negative } else { ExitStatus::Success })
}

/// Waits for several applications at the same time, each for its time after `started`. Returns those that are as wanted.
pub(super) async fn wait_until_all<'a>(
    client: &'a Client,
    waits: &'a [Wait<'a>],
    started: Instant,
    context: &Context<'_>,
) -> Result<Vec<&'a str>, Error> {
    let mut open = Vec::new();
    for wait in waits {
        let watch = StatusWatch::new(client, wait.app)?;
        open.push(OpenWait { wait, watch, last: None, is_absent: false });
    }
    let (mut reached, mut spinner) = (Vec::new(), context.spinner());
    while !open.is_empty() {
        let others = open.len() - 1;
        let mut waiting = Vec::new();
        for (index, mut next) in open.into_iter().enumerate() {
            let Wait { app, goals, ticket, timeout, may_be_removed } = *next.wait;
            let left = timeout.saturating_sub(started.elapsed());
            // An agent has few seats for requests that wait.
            let within = if others == 0 { left } else { Duration::ZERO };
            let answer = match spinning(&mut spinner, context, next.watch.answer(goals, ticket, within)).await
            {
                Err(error) if may_be_removed && error.is_not_found() => {
                    spinner.end();
                    print(&removed(app))?;
                    reached.push(app);
                    continue;
                }
                answer => answer?,
            };
            next.is_absent = answer.is_none();
            match answer {
                Some(Waited { reached: true, application, .. }) => {
                    spinner.end();
                    let (seconds, but) = (started.elapsed().as_secs_f32(), exception(&application, goals));
                    let line = format!("{app}: {} after {seconds:.1} s{but}\n", name_of(goals));
                    print(&context.fold(&line))?;
                    reached.push(app);
                    continue;
                }
                Some(Waited { obstacle: Some(obstacle), .. }) => {
                    spinner.end();
                    next.fail(&format!(": {}", plain(&obstacle).replace('\n', " ")), context);
                    continue;
                }
                Some(Waited { application, .. }) => next.last = Some(application),
                None => {}
            }
            if started.elapsed() >= timeout {
                spinner.end();
                let why = next.last.as_ref().map_or_else(String::new, |last| format!(": {}", found(last)));
                next.fail(&format!(" within {timeout:?}{why}"), context);
                continue;
            }
            if index == 0 {
                spinner.show(&next.progress(others));
            }
            waiting.push(next);
        }
        open = waiting;
        if open.len() > 1 {
            let longest = open.iter().map(|next| next.wait.timeout).max().unwrap_or_default();
            let pause = LOOK_AGAIN.min(longest.saturating_sub(started.elapsed()));
            spinning(&mut spinner, context, sleep(pause)).await;
        }
    }
    Ok(reached)
}

impl OpenWait<'_> {
    /// Says that the application is not as wanted.
    fn fail(&self, why: &str, context: &Context<'_>) {
        let Wait { app, goals, .. } = self.wait;
        context.screen.say_folded(&format!("{app}: not {}{why}", name_of(goals)));
        context.screen.say(format!("help: `driftless status {app}` says more"));
    }

    /// One line about a wait that goes on, and the number of further ones.
    fn progress(&self, others: usize) -> String {
        let more = if others == 0 { String::new() } else { format!(", and {others} more") };
        let app = self.wait.app;
        match &self.last {
            Some(last) if !self.is_absent => format!("{app}: {}{more}", headline(last)),
            Some(_) | None => format!("{app}: the agent does not answer; asking again"),
        }
    }
}

/// The states in words: `Synced and Healthy`.
fn name_of(goals: &[Goal]) -> String {
    goals.iter().map(|goal| format!("{goal:?}")).collect::<Vec<_>>().join(" and ")
}

/// Turns the spinner on a terminal until some work is done.
async fn spinning<T>(spinner: &mut Spinner<'_>, context: &Context<'_>, work: impl Future<Output = T>) -> T {
    tokio::pin!(work);
    loop {
        tokio::select! {
            done = &mut work => return done,
            () = sleep(TURN_EVERY), if context.screen.is_terminal() => spinner.turn(),
        }
    }
}

/// The health of an application that counts as healthy because its Jobs or rollouts are stopped on purpose. Else empty.
fn exception(application: &Application, goals: &[Goal]) -> String {
    let health = application.status.health;
    if !goals.contains(&Goal::Healthy) || health == HealthStatus::Healthy {
        return String::new();
    }
    match application.status.message.as_str() {
        "" => format!(" ({health:?})"),
        message => format!(" ({health:?}: {})", plain(message).replace('\n', " ")),
    }
}

/// The state in which a wait leaves an application.
fn found(application: &Application) -> String {
    let status = &application.status;
    let (sync, health) = (status.sync, status.health);
    // The step that is under way says less than why the last one failed.
    let reason = match status.message.as_str() {
        "" => headline(application),
        message => plain(message).replace('\n', " "),
    };
    let is_unfetched = status.problem(ConditionType::SourceReady).is_some();
    // The states are those of an older commit.
    let fetch = if is_unfetched { "the newest commit was not fetched; " } else { "" };
    format!("{fetch}{sync:?}, {health:?}: {reason}")
}
