//! `driftless release --all`: stops managing everything.

use std::{fmt::Write as _, time::Duration};

use clap::Args;
use tokio::time::{Instant, sleep};

use super::{
    client::{Client, SUMMARIES},
    context::{Context, Verdict},
    error::{CommandError, Error as CliError},
    options::ServerArgs,
    output::print,
    screen::plain,
};
use driftless_agent::RELEASED;
use driftless_model::{AgentStatus, Application};
use driftless_web::Accepted;

/// The longest time that the agent gets to end its steps and start again.
const LONGEST: Duration = Duration::from_secs(45);

const LOOK_EVERY: Duration = Duration::from_millis(200);

/// Stop managing everything. All containers, networks and volumes stay and keep running.
///
/// The agent ends its running steps, forgets every application with its pin and suspension, and from then on follows no
/// repository: nothing is deployed, healed, rolled out, probed, scheduled or removed, also after a restart of the agent or of the
/// host. History and events stay. Docker cannot change labels, so the labels `driftless.*` stay on the containers; they
/// have no effect for Docker or docker compose. Keep the state directory while containers exist: they may mount files of it.
///
/// `--undo` manages again what Git says. The agent recognizes the containers by its id, and those that run what Git says
/// keep running. Containers that `driftless adopt` took over have to be adopted again.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  driftless release --all
  driftless release --undo")]
pub(super) struct ReleaseArgs {
    /// Release every application.
    #[arg(long, required_unless_present = "undo", conflicts_with = "undo")]
    pub(super) all: bool,
    /// Manage again what Git says.
    #[arg(long)]
    pub(super) undo: bool,
    #[command(flatten)]
    pub(super) server: ServerArgs,
}

/// Why a release is not confirmed.
#[derive(Debug, thiserror::Error)]
#[error("the agent has stored the release and has not started again with it within {} seconds", LONGEST.as_secs())]
struct NotYet;

impl CommandError for NotYet {
    fn help(&self) -> Option<String> {
        Some(
            "`driftless events` says whether the configuration keeps it from starting again; a restart of the agent completes \
             the release"
                .to_owned(),
        )
    }
}

pub(super) async fn release(args: &ReleaseArgs, context: &Context<'_>) -> Result<Verdict, CliError> {
    let client = Client::new(&args.server, context.environment)?;
    let released = async || -> Result<bool, CliError> {
        let agent: AgentStatus = client.get("/api/v1/agent").await?;
        Ok(agent.problems.iter().any(|problem| problem.subject == RELEASED))
    };
    if released().await? != args.undo {
        print(if args.undo {
            "nothing to undo: the agent manages what Git says\n"
        } else {
            "the agent manages nothing already: everything was released before\n"
        })?;
        return Ok(Verdict::Yes);
    }
    let applications: Vec<Application> = client.get(SUMMARIES).await?;
    let path = if args.undo { "/api/v1/release?undo=true" } else { "/api/v1/release" };
    let _: Accepted = client.post(path, None::<&()>).await?;
    let began = Instant::now();
    loop {
        // The agent does not answer while it starts again.
        match released().await {
            Ok(is_released) if is_released != args.undo => break,
            Ok(_) => {}
            Err(CliError::Client(error)) if error.is_absence() => {}
            Err(error) => return Err(error),
        }
        if began.elapsed() > LONGEST {
            return Err(NotYet.into());
        }
        sleep(LOOK_EVERY).await;
    }
    print(&if args.undo { undone() } else { done(&applications) })?;
    Ok(Verdict::Yes)
}

fn undone() -> String {
    "the agent manages again what Git says: see `driftless status`\n\
     containers that were adopted before have to be adopted again: driftless adopt --all --dry-run\n"
        .to_owned()
}

fn done(applications: &[Application]) -> String {
    let mut text = String::new();
    for Application { name, .. } in applications {
        let _ = writeln!(text, "{}: released", plain(name.as_str()));
    }
    text.push_str(
        "nothing is managed any more; all containers, networks and volumes stay and keep running\n\
         their labels driftless.* stay without effect, because Docker cannot change labels\n\
         to list them: docker ps --all --filter label=driftless.agent\n\
         keep the state directory while they exist, because they may mount files of it\n\
         to manage them again: driftless release --undo\n",
    );
    text
}
