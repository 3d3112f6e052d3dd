//! `driftless resume`: ends a pin or a suspension, and tries a failed commit again.

use clap::Args;

use super::{
    client::{Client, application_path},
    context::{Context, ExitStatus},
    error::Error,
    options::ServerArgs,
    output::print,
};
use driftless_web::Accepted;

/// Follow Git again: end a pin or a suspension, or try a failed commit again.
#[derive(Debug, Args)]
pub(super) struct ResumeArgs {
    /// Name of the application.
    pub(super) app: String,
    #[command(flatten)]
    pub(super) server: ServerArgs,
}

pub(super) async fn resume(args: &ResumeArgs, context: &Context<'_>) -> Result<ExitStatus, Error> {
    let client = Client::new(&args.server, context.environment)?;
    let _: Accepted = client.post(&application_path(&args.app, "/resume")?, None::<&()>).await?;
    print(&format!("{}: follows Git again\n", args.app))?;
    Ok(ExitStatus::Success)
}
