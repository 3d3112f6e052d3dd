//! `driftless remove`: removes an application that Git does not contain any more.

use clap::Args;

use super::{
    client::{Client, application_path},
    context::{Context, ExitStatus},
    error::Error,
    options::ServerArgs,
    output::print,
    screen::plain,
};
use driftless_model::{Application, HookPhase};
use driftless_web::Accepted;

/// Remove an application that Git does not contain any more: its containers and networks.
///
/// Its `PreDelete` hooks run first, and it is kept until they have succeeded. Volumes stay, unless `--volumes` is given. A pin and a suspension of the application end. An application that is
/// still in Git is refused, because it would be created again.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  driftless remove shop
  driftless remove shop --volumes             # with its data
  driftless remove shop --force               # without its PreDelete hooks")]
pub(super) struct RemoveArgs {
    /// Name of the application.
    pub(super) app: String,
    /// Also remove the volumes that the agent created for the application. Their data is lost.
    #[arg(long)]
    pub(super) volumes: bool,
    /// Remove the application without its `PreDelete` hooks. What they would have saved is lost.
    #[arg(long)]
    pub(super) force: bool,
    #[command(flatten)]
    pub(super) server: ServerArgs,
}

pub(super) async fn remove(args: &RemoveArgs, context: &Context<'_>) -> Result<ExitStatus, Error> {
    let client = Client::new(&args.server, context.environment)?;
    let application: Application = client.get(&application_path(&args.app, "")?).await?;
    let hooks = pre_delete_hooks(&application);
    let path = match (args.volumes, args.force) {
        (false, false) => "/remove",
        (true, false) => "/remove?volumes=true",
        (false, true) => "/remove?force=true",
        (true, true) => "/remove?volumes=true&force=true",
    };
    let accepted: Accepted = client.post(&application_path(&args.app, path)?, None::<&()>).await?;
    let what = if args.volumes {
        "containers, and the networks and volumes that the agent created,"
    } else {
        "containers, and the networks that the agent created,"
    };
    let (app, names) = (&args.app, hooks.join(", "));
    let leaves = "the application leaves `driftless status` when that is done";
    print(&context.fold(&match (hooks.is_empty(), args.force) {
        (true, _) => format!("{app}: {what} are being removed; {leaves}\n"),
        (false, false) => format!(
            "{app}: the PreDelete hooks run first ({names})\n{app}: {what} are removed when they have succeeded; {leaves}\n"
        ),
        (false, true) => format!(
            "{app}: the PreDelete hooks do not run ({names}): what they would have saved is lost\n{app}: {what} are being removed; {leaves}\n"
        ),
    }))?;
    if let Some(note) = accepted.note {
        print(&context.fold(&format!("{app}: {}\n", plain(&note))))?;
    }
    Ok(ExitStatus::Success)
}

/// The names of the hooks that run before the application is removed.
fn pre_delete_hooks(application: &Application) -> Vec<&str> {
    let workloads = application.status.workloads.iter();
    let hooks = workloads.filter(|(_, it)| it.hook == Some(HookPhase::PreDelete) && it.job.is_none());
    hooks.map(|(name, _)| name.as_str()).collect()
}
