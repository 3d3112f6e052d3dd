//! `driftless forget`: stops managing an application that Git does not contain any more.

use std::{collections::BTreeSet, fmt::Write as _, iter};

use clap::Args;

use super::{
    client::{Client, application_path},
    context::{Context, ExitStatus},
    error::Error,
    options::ServerArgs,
    output::print,
    screen::plain,
};
use driftless_model::{Application, InstanceStatus};
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

pub(super) async fn forget(args: &ForgetArgs, context: &Context<'_>) -> Result<ExitStatus, Error> {
    let client = Client::new(&args.server, context.environment)?;
    let app = &args.app;
    let application: Application = client.get(&application_path(app, "")?).await?;
    let names = containers(&application);
    let Accepted { note, .. } = client.post(&application_path(app, "/forget")?, None::<&()>).await?;
    let mut text = format!("{app}: not managed any more; its containers, networks and volumes stay\n");
    if !names.is_empty() {
        let names = names.into_iter().collect::<Vec<_>>().join(", ");
        let _ = writeln!(text, "{app}: its containers are {}", plain(&names));
    }
    if let Some(note) = note {
        let _ = writeln!(text, "{}", plain(&note));
    }
    print(&context.fold(&text))?;
    Ok(ExitStatus::Success)
}

/// The names of the containers. No filter of Docker finds them all: adopted ones do not have the labels of the agent.
fn containers(application: &Application) -> BTreeSet<&str> {
    let workloads = application.status.workloads.values();
    workloads.flat_map(|workload| &workload.instances).flat_map(names_of).collect()
}

/// The name of an instance, and those of the containers of a pod.
fn names_of(instance: &InstanceStatus) -> impl Iterator<Item = &str> {
    let parts = instance.containers.iter().filter_map(|part| part.instance.as_ref());
    iter::once(instance.name.as_str()).chain(parts.map(|part| part.name.as_str()))
}
