//! `driftless resume`: ends a pin and a suspension, and tries a failed commit again.

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

/// Follow Git again: end a pin and a suspension, and try a failed commit again.
#[derive(Debug, Args)]
pub(super) struct ResumeArgs {
    /// Name of the application.
    pub(super) app: String,
    #[command(flatten)]
    pub(super) server: ServerArgs,
}

pub(super) async fn resume(args: &ResumeArgs, context: &Context<'_>) -> Result<ExitStatus, Error> {
    let client = Client::new(&args.server, context.environment)?;
    let app = &args.app;
    let Accepted { note, .. } = client.post(&application_path(app, "/resume")?, None::<&()>).await?;
    let text = match note {
        // It may say that the settings suspend the application still.
        Some(note) => format!("{app}: resumed\n{}\n", plain(&note)),
        None => format!("{app}: follows Git again\n"),
    };
    print(&context.fold(&text))?;
    Ok(ExitStatus::Success)
}
