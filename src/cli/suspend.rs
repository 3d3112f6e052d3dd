//! `driftless suspend`: observes and reports an application, and changes nothing.

use std::fmt::Write as _;

use clap::Args;

use super::{
    client::{Client, application_path},
    context::{Context, ExitStatus},
    error::Error,
    options::ServerArgs,
    output::print,
    screen::plain,
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
    let app = &args.app;
    let Accepted { note, .. } = client.post(&application_path(app, "/suspend")?, None::<&()>).await?;
    let mut text = format!("{app}: suspended: it is observed and reported, and nothing is changed\n");
    if let Some(note) = note {
        let _ = writeln!(text, "{}", plain(&note));
    }
    print(&context.fold(&text))?;
    Ok(ExitStatus::Success)
}
