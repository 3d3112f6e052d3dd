//! `driftless promote`: end the pause of a canary, or go back from it.

use clap::Args;

use super::{
    client::{Client, application_path, query},
    context::{Context, ExitStatus},
    error::{CommandError, Error},
    options::ServerArgs,
    output::print,
};
use driftless_web::Accepted;

/// An abort of one workload.
#[derive(Debug, thiserror::Error)]
#[error("`--abort` goes back with the whole application, not with {workload} alone")]
struct WholeApplication {
    app: String,
    workload: String,
}

impl CommandError for WholeApplication {
    fn help(&self) -> Option<String> {
        Some(format!("`driftless promote {} --abort`", self.app))
    }
}

/// End the pause of a canary, or go back from it.
///
/// The next step of the canary begins, or all instances are replaced after the last one. With `--abort` the application goes
/// back to the last revision that succeeded, and the commit is skipped until `driftless sync APP --retry` or the next commit.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  driftless promote shop
  driftless promote shop/web --full
  driftless promote shop --abort")]
pub(super) struct PromoteArgs {
    /// The application, and the workload if not all of its canaries are meant.
    #[arg(value_name = "APP[/WORKLOAD]", value_parser = target)]
    what: (String, Option<String>),
    /// Skip all further steps and pauses.
    #[arg(long)]
    full: bool,
    /// Go back to the last revision that succeeded.
    #[arg(long, conflicts_with = "full")]
    abort: bool,
    #[command(flatten)]
    server: ServerArgs,
}

pub(super) async fn promote(args: &PromoteArgs, context: &Context<'_>) -> Result<ExitStatus, Error> {
    let client = Client::new(&args.server, context.environment)?;
    let (app, workload) = &args.what;
    if args.abort {
        if let Some(workload) = workload {
            return Err(WholeApplication { app: app.clone(), workload: workload.clone() }.into());
        }
        let _: Accepted = client.post(&application_path(app, "/abort")?, None::<&()>).await?;
        print(&format!(
            "{app}: goes back to the last revision that succeeded; `driftless status {app}` shows it\n"
        ))?;
        return Ok(ExitStatus::Success);
    }
    let mut pairs = Vec::new();
    pairs.extend(workload.as_deref().map(|workload| ("workload", workload)));
    pairs.extend(args.full.then_some(("full", "true")));
    let route = application_path(app, &format!("/promote{}", query(&pairs)))?;
    let _: Accepted = client.post(&route, None::<&()>).await?;
    let what = workload.as_ref().map_or_else(|| app.clone(), |workload| format!("{app}/{workload}"));
    print(&format!("{what}: promoted; `driftless status {app}` shows it\n"))?;
    Ok(ExitStatus::Success)
}

fn target(text: &str) -> Result<(String, Option<String>), String> {
    let Some((app, workload)) = text.split_once('/') else { return Ok((text.to_owned(), None)) };
    let is_in_name = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '.' | '_' | '-');
    if app.is_empty() || workload.is_empty() || !workload.chars().all(is_in_name) {
        return Err("write the application, or the application and the workload, such as shop/web".to_owned());
    }
    Ok((app.to_owned(), Some(workload.to_owned())))
}
