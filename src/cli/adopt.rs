//! `driftless adopt`: adopts the containers that Docker Compose started, or the services of `docker stack deploy`.

use std::collections::BTreeMap;

use clap::Args;

use super::{
    client,
    client::{Client, SUMMARIES, application_path},
    context::{Context, ExitStatus},
    error::Error,
    findings::counted,
    options::ServerArgs,
    output::print,
    plan::{PlanResult, render_plan},
    screen::plain,
};
use driftless_agent::DryRun;
use driftless_model::{AppName, Application};
use driftless_web::Accepted;

/// Adopt the containers that `docker compose` started under the application's project name.
///
/// Containers that are equal to Git keep running; containers that differ are replaced, as by a commit. Run it with
/// `--dry-run` first to see both, field by field. If one container cannot be adopted, none of the application is, and the
/// reason is printed. With `--all`, an application that cannot be adopted does not keep the others from it.
///
/// With `engine: swarm`, the services of `docker stack deploy` are adopted: ask the agent on the leader.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  driftless adopt --all --dry-run
  driftless adopt shop")]
pub(super) struct AdoptArgs {
    /// Name of the application.
    #[arg(required_unless_present = "all", conflicts_with = "all")]
    pub(super) app: Option<String>,
    /// All applications of which docker compose or docker stack has started something.
    #[arg(long)]
    pub(super) all: bool,
    /// Show what would be adopted and changed, and do nothing.
    #[arg(long)]
    pub(super) dry_run: bool,
    #[command(flatten)]
    pub(super) server: ServerArgs,
}

pub(super) async fn adopt(args: &AdoptArgs, context: &Context<'_>) -> Result<ExitStatus, Error> {
    let client = Client::new(&args.server, context.environment)?;
    let Some(app) = &args.app else { return adopt_all(&client, args.dry_run, context).await };
    if args.dry_run {
        let plan: DryRun = client.get(&application_path(app, "/plan")?).await?;
        let is_refused = !plan.adoption_obstacles.is_empty();
        if plan.adoption.is_empty() && !is_refused {
            print(&context.fold(&nothing(app)))?;
            return Ok(ExitStatus::Success);
        }
        let plans = BTreeMap::from([(AppName(app.clone()), PlanResult::Plan(plan))]);
        print(&context.fold(&render_plan(&plans, context.colours)))?;
        return Ok(if is_refused { ExitStatus::Negative } else { ExitStatus::Success });
    }
    print(&context.fold(&adopt_one(&client, app).await?))?;
    Ok(ExitStatus::Success)
}

/// Adopts one application. Returns the text for people.
async fn adopt_one(client: &Client, app: &str) -> Result<String, Error> {
    let accepted: Accepted = client.post(&application_path(app, "/adopt")?, None::<&()>).await?;
    if accepted.adopted.is_empty() {
        return Ok(nothing(app));
    }
    let lines = accepted.adopted.iter().flat_map(|object| object.lines());
    let lines: Vec<String> = lines.map(|line| format!("  {}\n", plain(line))).collect();
    Ok(format!("{app}: taken over\n{}", lines.concat()))
}

fn nothing(app: &str) -> String {
    format!(
        "{app}: nothing of it was started by docker compose or docker stack, or all of it was taken over before\n"
    )
}

/// Adopts every application that has something to adopt, or shows what that would do.
async fn adopt_all(client: &Client, dry_run: bool, context: &Context<'_>) -> Result<ExitStatus, Error> {
    let (mut results, mut failed) = (BTreeMap::new(), Vec::new());
    for Application { name, .. } in client.get::<Vec<Application>>(SUMMARIES).await? {
        match client.get::<DryRun>(&application_path(name.as_str(), "/plan")?).await {
            Ok(plan) if plan.adoption.is_empty() && plan.adoption_obstacles.is_empty() => {}
            Ok(plan) => {
                if !plan.adoption_obstacles.is_empty() {
                    failed.push(name.clone());
                }
                results.insert(name, PlanResult::Plan(plan));
            }
            // The agent has answered, so the others can be adopted.
            Err(client::Error::Answer { message, .. }) => {
                failed.push(name.clone());
                results.insert(name, PlanResult::Failed { error: message });
            }
            Err(error) => return Err(error.into()),
        }
    }
    if results.is_empty() {
        print(&context.fold(
            "nothing of any application was started by docker compose or docker stack, or all of it was taken over before\n",
        ))?;
        return Ok(ExitStatus::Success);
    }
    let all = results.len();
    let (possible, mut others) =
        results.into_iter().partition::<BTreeMap<_, _>, _>(|(name, _)| !dry_run && !failed.contains(name));
    for app in possible.into_keys() {
        match adopt_one(client, app.as_str()).await {
            Ok(text) => print(&context.fold(&text))?,
            // The token may be for others, or something has changed since the plan.
            Err(Error::Client(client::Error::Answer { message, .. })) => {
                failed.push(app.clone());
                others.insert(app, PlanResult::Failed { error: message });
            }
            Err(error) => return Err(error),
        }
    }
    if !others.is_empty() {
        print(&context.fold(&render_plan(&others, context.colours)))?;
    }
    if failed.is_empty() {
        return Ok(ExitStatus::Success);
    }
    let names: Vec<&str> = failed.iter().map(AppName::as_str).collect();
    let count = counted(all, "application");
    context.screen.say(format!("error: {} of {count} cannot be adopted: {}", names.len(), names.join(", ")));
    Ok(ExitStatus::Negative)
}
