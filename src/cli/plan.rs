//! `driftless plan`: the dry run, round by round. From the agent or, with `--dir`, from a folder and an engine.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    path::{Path, PathBuf},
};

use clap::Args;
use serde::Serialize;

use super::{
    client,
    client::{Client, SUMMARIES, application_path},
    context::{Context, ExitStatus},
    error::{CommandError, Error as CliError},
    findings::{counted, render_findings},
    folder::{Folder, FolderApp, FolderArgs, render_folder},
    missing::Missing,
    options::{ServerArgs, TextOrJson},
    output::{json, print},
    screen::{Colours, Paint, plain},
};
use driftless_agent as controller;
use driftless_agent::{DryRun, StackPlan};
use driftless_model::{AppName, Application, Finding};

/// Dry run: show what the agent would do now, round by round, and why.
///
/// Without APP, an application that cannot be planned or found is reported, the others are planned, and the exit code
/// is 2.
#[derive(Debug, Args)]
pub(super) struct PlanArgs {
    /// Only this application [default: all]
    pub(super) app: Option<String>,
    #[command(flatten)]
    pub(super) folder: FolderArgs,
    /// Output format.
    #[arg(short, long, value_name = "FORMAT", value_enum, default_value_t = TextOrJson::Text)]
    pub(super) output: TextOrJson,
    #[command(flatten)]
    pub(super) server: ServerArgs,
}

/// Why there is no dry run.
#[derive(Debug, thiserror::Error)]
enum Error {
    #[error("{dir} has no application `{app}`")]
    NoSuchApplication { app: String, dir: PathBuf },
    #[error("could not observe the engine")]
    Observe(#[source] controller::Error),
}

impl CommandError for Error {
    fn help(&self) -> Option<String> {
        match self {
            Self::NoSuchApplication { .. } => Some("`driftless validate DIR -o json` lists them".to_owned()),
            Self::Observe(_) => None,
        }
    }
}

/// The dry run of one application, or why there is none.
#[derive(Clone, Debug, Serialize)]
#[serde(untagged)]
pub enum PlanResult {
    Plan(DryRun),
    Failed { error: String },
}

/// The dry runs of several applications.
#[derive(Debug, Default)]
struct Plans {
    results: BTreeMap<AppName, PlanResult>,
    /// Why others may be missing.
    errors: Vec<String>,
}

impl Plans {
    /// Why they are not the plans of all applications, if they are not.
    fn failures(&self) -> Vec<String> {
        let mut failures = self.errors.clone();
        let is_failed = |result: &PlanResult| matches!(result, PlanResult::Failed { .. });
        let failed = self.results.iter().filter(|(_, result)| is_failed(result));
        let failed: Vec<&str> = failed.map(|(app, _)| app.as_str()).collect();
        if !failed.is_empty() {
            let all = counted(self.results.len(), "application");
            failures.push(format!("no plan for {} of {all}: {}", failed.len(), failed.join(", ")));
        }
        failures
    }
}

pub(super) async fn plan(args: &PlanArgs, context: &Context<'_>) -> Result<ExitStatus, CliError> {
    let plans = match &args.folder.dir {
        Some(dir) => plan_folder(dir, args, context).await?,
        None => plan_by_agent(args, context).await?,
    };
    print(&match args.output {
        TextOrJson::Json => json(&plans.results),
        TextOrJson::Text => context.fold(&render_plan(&plans.results, context.colours)),
    })?;
    let failures = plans.failures();
    for failure in &failures {
        context.screen.say(format!("error: {}", plain(failure)));
    }
    Ok(if failures.is_empty() { ExitStatus::Success } else { ExitStatus::Code(2) })
}

async fn plan_by_agent(args: &PlanArgs, context: &Context<'_>) -> Result<Plans, CliError> {
    let client = Client::new(&args.server, context.environment)?;
    if let Some(app) = &args.app {
        let dry_run = client.get(&application_path(app, "/plan")?).await?;
        let results = BTreeMap::from([(AppName(app.clone()), PlanResult::Plan(dry_run))]);
        return Ok(Plans { results, errors: Vec::new() });
    }
    let mut results = BTreeMap::new();
    let missing = Missing::read(&client).await?;
    let all: Vec<Application> = client.get(SUMMARIES).await?;
    let errors = missing.sentences(&all);
    for Application { name, .. } in all {
        let result = match client.get(&application_path(name.as_str(), "/plan")?).await {
            Ok(dry_run) => PlanResult::Plan(dry_run),
            // The agent has answered, so the others can be planned.
            Err(client::Error::Answer { message, .. }) => PlanResult::Failed { error: message },
            Err(error) => return Err(error.into()),
        };
        results.insert(name, result);
    }
    Ok(Plans { results, errors })
}

/// Plans the applications of a folder as an agent without a record would.
async fn plan_folder(dir: &Path, args: &PlanArgs, context: &Context<'_>) -> Result<Plans, CliError> {
    let Folder { applications, findings, undiscovered, .. } =
        render_folder(dir, &args.folder.host(), context)?;
    let is_wanted = |app: &FolderApp| args.app.as_deref().is_none_or(|name| name == app.spec.name.as_str());
    let applications: Vec<FolderApp> = applications.into_iter().filter(is_wanted).collect();
    if args.app.is_none() && applications.is_empty() && findings.iter().any(Finding::is_error) {
        return Err(CliError::Findings(findings));
    }
    if !findings.is_empty() {
        context.screen.say(render_findings(&findings, context.screen.colours()).trim_end());
    }
    let host = args.folder.docker(context);
    let FolderArgs { state_dir, runtime_dir, .. } = &args.folder;
    let mut results = BTreeMap::new();
    for FolderApp { spec, stack, hosts: _ } in applications {
        let stack = stack.ok_or_else(|| "its manifests have errors".to_owned());
        let result = match stack {
            Ok(stack) => {
                let plan = Box::pin(controller::plan_stack(&spec, &stack, &host, state_dir, runtime_dir));
                let StackPlan { dry_run, note } = plan.await.map_err(Error::Observe)?;
                if let Some(note) = note {
                    let note = plain(&format!("{}: note: {note}", spec.name));
                    context.screen.say(context.screen.fold(&note));
                }
                PlanResult::Plan(dry_run)
            }
            Err(error) => PlanResult::Failed { error },
        };
        results.insert(spec.name, result);
    }
    match &args.app {
        Some(app) if results.is_empty() => {
            Err(Error::NoSuchApplication { app: app.clone(), dir: dir.to_owned() }.into())
        }
        Some(_) => Ok(Plans { results, errors: Vec::new() }),
        None => {
            let sentence = || "applications may be missing because of the errors above".to_owned();
            let errors = (!undiscovered.is_empty()).then(sentence).into_iter().collect();
            Ok(Plans { results, errors })
        }
    }
}

/// The rounds that would follow, application by application.
pub fn render_plan(results: &BTreeMap<AppName, PlanResult>, colours: Colours) -> String {
    let mut out = String::new();
    for (app, result) in results {
        let name = colours.paint(Paint::Strong, app.as_str());
        match result {
            PlanResult::Plan(dry_run) => {
                let mut headline = headline(dry_run);
                if dry_run.suspended {
                    headline = match &dry_run.way_out {
                        Some(_) => format!("suspended; after that: {headline}"),
                        None => format!("suspended; after `driftless resume {app}`: {headline}"),
                    };
                }
                let _ = writeln!(out, "{name}: {headline}");
                details(&mut out, dry_run, colours);
            }
            PlanResult::Failed { error } => {
                let error = plain(error).replace('\n', "\n  ");
                let _ = writeln!(out, "{name}: {}: {error}", colours.paint(Paint::Bad, "error"));
            }
        }
    }
    if results.is_empty() {
        out.push_str("no applications\n");
    }
    out
}

/// `3 steps in 2 rounds`, `nothing to do`, or why nothing is done.
fn headline(dry_run: &DryRun) -> String {
    let DryRun { suspended: _, way_out: _, rounds, adoption, adoption_obstacles, waits } = dry_run;
    let rounds: Vec<_> = rounds.iter().filter(|round| !round.is_empty()).collect();
    let steps: usize = rounds.iter().map(|round| round.len()).sum();
    if !adoption_obstacles.is_empty() && steps == 0 {
        return "nothing is done: it cannot be adopted".to_owned();
    }
    let adopted = match adoption.len() {
        0 => String::new(),
        count => format!("{} to adopt, ", counted(count, "object")),
    };
    match steps {
        0 if !adopted.is_empty() => format!("{adopted}no steps"),
        0 if !waits.is_empty() => "nothing is done now, it waits".to_owned(),
        0 => "nothing to do".to_owned(),
        steps => format!("{adopted}{} in {}", counted(steps, "step"), counted(rounds.len(), "round")),
    }
}

fn details(out: &mut String, dry_run: &DryRun, colours: Colours) {
    let DryRun { suspended: _, way_out, rounds, adoption, adoption_obstacles, waits } = dry_run;
    if let Some(sentence) = way_out {
        let _ = writeln!(out, "  {}", colours.paint(Paint::Warn, &plain(sentence)));
    }
    if !adoption.is_empty() {
        let heading = if adoption_obstacles.is_empty() { "to be adopted" } else { "found running" };
        let _ = writeln!(out, "  {}", colours.paint(Paint::Soft, heading));
        for line in adoption.iter().flat_map(|object| object.lines()) {
            let _ = writeln!(out, "    {}", plain(line));
        }
    }
    let is_named = |obstacle: &&String| adoption.iter().any(|object| object.contains(obstacle.as_str()));
    for obstacle in adoption_obstacles.iter().filter(|obstacle| !is_named(obstacle)) {
        let _ =
            writeln!(out, "  {}", colours.paint(Paint::Warn, &format!("not adopted: {}", plain(obstacle))));
    }
    for (index, round) in rounds.iter().filter(|round| !round.is_empty()).enumerate() {
        let _ = writeln!(out, "  {}", colours.paint(Paint::Soft, &format!("round {}", index + 1)));
        for step in round {
            let _ = writeln!(out, "    {}", plain(step));
        }
    }
    for wait in waits {
        let _ = writeln!(out, "  {}", colours.paint(Paint::Warn, &format!("waits: {}", plain(wait))));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plan_fails_if_applications_may_be_missing() {
        let planned = |errors: &[&str]| Plans {
            results: BTreeMap::from([("shop".into(), PlanResult::Plan(DryRun::default()))]),
            errors: errors.iter().map(|&error| error.to_owned()).collect(),
        };
        assert_eq!(planned(&[]).failures(), Vec::<String>::new());
        let mut plans = planned(&["repository infra: it was not read yet"]);
        assert_eq!(plans.failures(), ["repository infra: it was not read yet"]);
        plans.results.insert("wiki".into(), PlanResult::Failed { error: "no".to_owned() });
        assert_eq!(
            plans.failures(),
            ["repository infra: it was not read yet", "no plan for 1 of 2 applications: wiki"]
        );
    }
}
