//! `driftless forget`: stops managing an application that Git does not contain any more.

use clap::Args;

use super::{
    client::{Client, application_path},
    context::{Context, Verdict},
    error::Error,
    options::ServerArgs,
    output::print,
};
use driftless_web::Accepted;

/// Stop managing an application that Git does not contain any more. Its containers, networks and volumes stay.
///
/// The labels `driftless.*` stay on them, because Docker cannot change labels. They have no effect for Docker or docker
/// compose. If the application returns to Git, the agent manages the same containers again. Keep the state directory of the
/// agent while the containers exist: files from Git that they mount are there. An application that is still in Git is refused.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  driftless forget shop")]
pub(super) struct ForgetArgs {
    /// Name of the application.
    pub(super) app: String,
    #[command(flatten)]
    pub(super) server: ServerArgs,
}

pub(super) async fn forget(args: &ForgetArgs, context: &Context<'_>) -> Result<Verdict, Error> {
    let client = Client::new(&args.server, context.environment)?;
    let app = &args.app;
    let _: Accepted = client.post(&application_path(app, "/forget")?, None::<&()>).await?;
    print(&format!(
        "{app}: not managed any more; its containers, networks and volumes stay\n\
         to list them: docker ps --all --filter label=driftless.application={app}\n"
    ))?;
    Ok(Verdict::Yes)
}
