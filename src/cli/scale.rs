//! `driftless scale`: another number of instances than Git says, for a time.

use clap::Args;

use super::{
    client::{Client, application_path},
    context::{Context, ExitStatus},
    error::Error,
    options::ServerArgs,
    output::print,
};
use driftless_model::Timestamp;
use driftless_web::{Accepted, ScaleBody};

/// Run another number of instances of a workload than Git says, for a time.
///
/// It is neither drift nor a revision, and holds for commits that are applied meanwhile. At its end, or with `--reset`, the
/// number in Git counts again. Another request for the same workload takes the place of the one before.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  driftless scale shop/web 5 --until 2h
  driftless scale shop/web 0 --until 12h
  driftless scale shop/web --reset")]
pub(super) struct ScaleArgs {
    /// The workload.
    #[arg(value_name = "APP/WORKLOAD", value_parser = workload)]
    what: (String, String),
    /// Number of instances.
    #[arg(required_unless_present_any = ["count", "reset"], conflicts_with = "reset")]
    replicas: Option<u32>,
    /// Number of instances, as kubectl writes it.
    #[arg(long = "replicas", value_name = "NUMBER", hide = true, conflicts_with_all = ["replicas", "reset"])]
    count: Option<u32>,
    /// End: a duration such as 2h, or a time such as 2026-01-31T12:00Z.
    #[arg(long, value_name = "WHEN", required_unless_present = "reset", conflicts_with = "reset", value_parser = check_time)]
    until: Option<String>,
    /// Run the number of instances that Git says again.
    #[arg(long)]
    reset: bool,
    #[command(flatten)]
    server: ServerArgs,
}

pub(super) async fn scale(args: &ScaleArgs, context: &Context<'_>) -> Result<ExitStatus, Error> {
    let client = Client::new(&args.server, context.environment)?;
    let (app, workload) = &args.what;
    let (Some(replicas), Some(until)) = (args.replicas.or(args.count), &args.until) else {
        let route = application_path(app, &format!("/workloads/{workload}/reset-scale"))?;
        let _: Accepted = client.post(&route, None::<&()>).await?;
        print(&format!("{app}/{workload}: the number of instances in Git counts again\n"))?;
        return Ok(ExitStatus::Success);
    };
    let body = ScaleBody { replicas, until: until.clone() };
    let route = application_path(app, &format!("/workloads/{workload}/scale"))?;
    let _: Accepted = client.post(&route, Some(&body)).await?;
    let instances = if replicas == 1 { "1 instance".to_owned() } else { format!("{replicas} instances") };
    let end = if until.contains(':') { format!("until {until}") } else { format!("for {until}") };
    print(&format!("{app}/{workload}: scaled to {instances} {end}; `driftless status {app}` shows it\n"))?;
    Ok(ExitStatus::Success)
}

fn workload(text: &str) -> Result<(String, String), String> {
    let parts = text.split_once('/').filter(|(app, workload)| !app.is_empty() && !workload.is_empty());
    let (app, workload) = parts.ok_or("write the application and the workload, such as shop/web")?;
    let is_in_name = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '.' | '_' | '-');
    if !workload.chars().all(is_in_name) || workload.starts_with('.') {
        return Err(format!("`{workload}` is not the name of a workload"));
    }
    Ok((app.to_owned(), workload.to_owned()))
}

/// Checks the syntax at once. The agent interprets the value, because its clock counts.
fn check_time(text: &str) -> Result<String, String> {
    driftless_web::parse_time(text, Timestamp::default())
        .map(|_| text.to_owned())
        .map_err(|error| error.to_string())
}
