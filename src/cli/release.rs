//! `driftless release --all`: stops managing everything.

use std::{fmt::Write as _, time::Duration};

use clap::Args;
use tokio::time::{Instant, sleep};

use super::{
    client::{self, Client, SUMMARIES},
    context::{Context, ExitStatus},
    error::{CommandError, Error as CliError},
    options::ServerArgs,
    output::print,
    run::CONFIGURATION,
    screen::plain,
};
use driftless_agent::{PENDING_RELEASE, RELEASED};
use driftless_model::{AgentStatus, Application};
use driftless_web::Accepted;

/// The longest time that the agent gets to end its steps and start again.
const LONGEST: Duration = Duration::from_secs(45);

/// The longest time that the agent needs to check its configuration. It does not answer any more once it starts again.
const REFUSED_WITHIN: Duration = Duration::from_secs(5);

const LOOK_EVERY: Duration = Duration::from_millis(200);

/// Stop managing everything. All containers, networks and volumes stay, and what runs keeps running.
///
/// The agent ends its running steps, forgets every application with its pin and suspension, and from then on follows no
/// repository: nothing is deployed, healed, rolled out, probed, scheduled or removed, also after a restart of the agent or of the
/// host. History and events stay. Docker cannot change labels, so the labels `driftless.*` stay on the containers; they
/// have no effect for Docker or docker compose. Keep the state directory while containers exist: they may mount files of it.
///
/// `--undo` manages again what Git says. The agent recognizes the containers by its id, and those that run what Git says
/// keep running. Containers that `driftless adopt` took over have to be adopted again.
///
/// Both need a start of the agent, which it makes by itself. While its configuration is refused, they wait until that is
/// corrected, and `driftless status` says so; `--undo` also ends a release that waits.
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
enum NotYet {
    #[error("the agent has stored it and completes it once it can start again: {reason}")]
    Refused { reason: String, undo: bool },
    #[error("the agent has stored it and has not started again with it within {} seconds", LONGEST.as_secs())]
    Slow,
}

impl CommandError for NotYet {
    fn help(&self) -> Option<String> {
        let text = match self {
            Self::Refused { undo: false, .. } => {
                "correct the configuration, then the release completes by itself; `driftless release --undo` ends it before"
            }
            Self::Refused { undo: true, .. } => {
                "correct the configuration, then the agent manages again what Git says"
            }
            Self::Slow => {
                "`driftless events` says whether the configuration keeps it from starting again; a restart of the agent \
                 completes it"
            }
        };
        Some(text.to_owned())
    }
}

/// The state of a release.
struct ReleaseState {
    /// Whether the running agent manages nothing.
    is_released: bool,
    /// Whether the agent has to start again for what is stored.
    is_pending: bool,
    /// Why the configuration is refused, if it is.
    refused: Option<String>,
}

impl ReleaseState {
    async fn read(client: &Client) -> Result<Self, client::Error> {
        let AgentStatus { problems, .. } = client.get("/api/v1/agent").await?;
        let of = |subject: &str| problems.iter().find(|problem| problem.subject == subject);
        Ok(Self {
            is_released: of(RELEASED).is_some(),
            is_pending: of(PENDING_RELEASE).is_some(),
            refused: of(CONFIGURATION).map(|problem| problem.message.clone()),
        })
    }

    /// Whether everything is released, or managed again, and stays so.
    fn is_done(&self, undo: bool) -> bool {
        self.is_released != undo && !self.is_pending
    }
}

pub(super) async fn release(args: &ReleaseArgs, context: &Context<'_>) -> Result<ExitStatus, CliError> {
    let client = Client::new(&args.server, context.environment)?;
    let before = ReleaseState::read(&client).await?;
    let applications: Vec<Application> = client.get(SUMMARIES).await?;
    // Also if there seems to be nothing to do: another release may be stored and not have begun.
    let path = if args.undo { "/api/v1/release?undo=true" } else { "/api/v1/release" };
    let Accepted { note, .. } = client.post(path, None::<&()>).await?;
    let began = Instant::now();
    loop {
        // The agent does not answer while it starts again.
        let refused = match ReleaseState::read(&client).await {
            Ok(state) if state.is_done(args.undo) => break,
            Ok(state) => state.refused,
            Err(error) if error.is_absence() => None,
            Err(error) => return Err(error.into()),
        };
        match refused {
            Some(reason) if began.elapsed() > REFUSED_WITHIN => {
                return Err(NotYet::Refused { reason, undo: args.undo }.into());
            }
            None if began.elapsed() > LONGEST => return Err(NotYet::Slow.into()),
            Some(_) | None => {}
        }
        sleep(LOOK_EVERY).await;
    }
    print(&match (args.undo, before.is_done(args.undo)) {
        (true, true) => "nothing to undo: the agent manages what Git says\n".to_owned(),
        (false, true) => "the agent manages nothing already: everything was released before\n".to_owned(),
        (true, false) if !before.is_released => {
            "the release is ended before it began: the agent goes on managing what Git says\n".to_owned()
        }
        (true, false) => undone(),
        (false, false) => done(&applications, note.as_deref()),
    })?;
    Ok(ExitStatus::Success)
}

fn undone() -> String {
    "the agent manages again what Git says: see `driftless status`\n\
     containers that were adopted before have to be adopted again: driftless adopt --all --dry-run\n"
        .to_owned()
}

fn done(applications: &[Application], note: Option<&str>) -> String {
    let mut text = String::new();
    for Application { name, .. } in applications {
        let _ = writeln!(text, "{}: released", plain(name.as_str()));
    }
    text.push_str(
        "nothing is managed any more; all containers, networks and volumes stay, and what runs keeps running\n\
         their labels driftless.* stay without effect, because Docker cannot change labels\n\
         to list them: docker ps --all --filter label=driftless.agent\n\
         keep the state directory while they exist, because they may mount files of it\n\
         to manage them again: driftless release --undo\n",
    );
    if let Some(note) = note {
        let _ = writeln!(text, "{}", plain(note));
    }
    text
}
