//! `driftless adopt`: adopts the containers that Docker Compose started.

use clap::Args;

use super::{
    client::{Client, application_path},
    context::{Context, Verdict},
    error::Error,
    options::ServerArgs,
    output::print,
    screen::plain,
};
use driftless_web::Accepted;

/// Adopt the containers that `docker compose` started under the application's project name.
///
/// Containers that are equal to Git keep running; containers that differ are replaced, as by a commit. Run
/// `driftless plan APP` first to see both, field by field. If one container cannot be adopted, none is, and
/// the reason is printed.
#[derive(Debug, Args)]
pub(super) struct AdoptArgs {
    /// Name of the application.
    pub(super) app: String,
    #[command(flatten)]
    pub(super) server: ServerArgs,
}

pub(super) async fn adopt(args: &AdoptArgs, context: &Context<'_>) -> Result<Verdict, Error> {
    let client = Client::new(&args.server, context.environment)?;
    let accepted: Accepted = client.post(&application_path(&args.app, "/adopt")?, None::<&()>).await?;
    if accepted.adopted.is_empty() {
        print(&format!(
            "{}: nothing of it was started by docker compose, or all of it was taken over before\n",
            args.app
        ))?;
        return Ok(Verdict::Yes);
    }
    print(&format!("{}: taken over from docker compose\n", args.app))?;
    for line in accepted.adopted.iter().flat_map(|it| it.lines()) {
        print(&format!("  {}\n", plain(line)))?;
    }
    Ok(Verdict::Yes)
}
