//! `driftless remove`: removes an application that Git does not contain any more.

use clap::Args;

use super::{
    client::{Client, application_path},
    context::{Context, Verdict},
    error::Error,
    options::ServerArgs,
    output::print,
};
use driftless_web::Accepted;

/// Remove an application that Git does not contain any more: its containers and networks.
///
/// Volumes stay, unless `--volumes` is given. A pin and a suspension of the application end. An application that is
/// still in Git is refused, because it would be created again.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  driftless remove shop
  driftless remove shop --volumes             # with its data")]
pub(super) struct RemoveArgs {
    /// Name of the application.
    pub(super) app: String,
    /// Also remove the volumes that the agent created for the application. Their data is lost.
    #[arg(long)]
    pub(super) volumes: bool,
    #[command(flatten)]
    pub(super) server: ServerArgs,
}

pub(super) async fn remove(args: &RemoveArgs, context: &Context<'_>) -> Result<Verdict, Error> {
    let client = Client::new(&args.server, context.environment)?;
    let path = if args.volumes { "/remove?volumes=true" } else { "/remove" };
    let _: Accepted = client.post(&application_path(&args.app, path)?, None::<&()>).await?;
    let what = if args.volumes { "containers, networks and volumes" } else { "containers and networks" };
    print(&format!(
        "{}: {what} are being removed; the application leaves `driftless status` when that is done\n",
        args.app
    ))?;
    Ok(Verdict::Yes)
}
