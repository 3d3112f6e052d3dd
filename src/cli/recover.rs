//! `driftless recover`: takes over containers after a loss of state, and applies new commits again.

use clap::Args;

use super::{
    client::Client,
    context::{Context, ExitStatus},
    error::Error,
    options::ServerArgs,
    output::print,
    screen::plain,
};
use driftless_web::Accepted;

/// Take over containers after a loss of state, and apply new commits again.
///
/// The containers of agents that no longer run on this engine are taken over, without a restart. Nothing is changed
/// while such an agent still runs.
///
/// After a loss of state the agent keeps what runs and applies no new commit, because a pin or a suspension may be
/// lost. `driftless status` and `/readyz` say so. Set them again with `driftless rollback` and
/// `driftless suspend` first, then run this command.
///
/// While the engine has lost its data, or is another one than before, nothing is changed at all. Mount the disk of its
/// data or set `docker` back. Or stop what runs on the former engine and restore the volumes, then run this command.
#[derive(Debug, Args)]
pub(super) struct RecoverArgs {
    #[command(flatten)]
    pub(super) server: ServerArgs,
}

pub(super) async fn recover(args: &RecoverArgs, context: &Context<'_>) -> Result<ExitStatus, Error> {
    let client = Client::new(&args.server, context.environment)?;
    let accepted: Accepted = client.post("/api/v1/recover", None::<&()>).await?;
    if accepted.recovered.is_empty() {
        print("nothing to recover: no state was lost\n")?;
    }
    for line in accepted.recovered.iter().flat_map(|it| it.lines()) {
        print(&format!("{}\n", plain(line)))?;
    }
    Ok(ExitStatus::Success)
}
