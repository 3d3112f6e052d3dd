//! `driftless suspend`: observes and reports an application, and changes nothing.

use clap::Args;

use super::{
    client::{Client, application_path},
    context::{Context, ExitStatus},
    error::Error,
    options::ServerArgs,
    output::print,
};
use driftless_web::Accepted;

/// Suspend an application: observe and report, and change nothing until `resume`.
#[derive(Debug, Args)]
pub(super) struct SuspendArgs {
    /// Name of the application.
    pub(super) app: String,
    #[command(flatten)]
    pub(super) server: ServerArgs,
}

pub(super) async fn suspend(args: &SuspendArgs, context: &Context<'_>) -> Result<ExitStatus, Error> {
    let client = Client::new(&args.server, context.environment)?;
    let _: Accepted = client.post(&application_path(&args.app, "/suspend")?, None::<&()>).await?;
    print(&format!("{}: suspended: it is observed and reported, and nothing is changed\n", args.app))?;
    Ok(ExitStatus::Success)
}
