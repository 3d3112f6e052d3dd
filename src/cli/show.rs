//! Commands that read: status, history, plan and diff. How things look is in [`super::status`] and
//! [`super::plan_text`].

use std::{collections::BTreeMap, fmt::Write as _, time::Duration};

use serde::{Serialize, de::DeserializeOwned};
use tokio::time::sleep;

use super::{
    Context, Error, Verdict,
    args::{HistoryArgs, Output, PlanArgs, StatusArgs, TextOrJson},
    client::{Client, application_path},
    offline,
    plan_text::{render_diff, render_plan},
    screen::print,
    status::{Detail, render_history, render_repositories, render_status},
    webhook::render_hooks,
};
use driftless_agent::DryRun;
use driftless_model::{AppName, Application, HookStatus, RepositoryStatus, Revision};

const LOOK_EVERY: Duration = Duration::from_secs(1);

/// To the top left corner, and nothing below.
const HOME_AND_WIPE: &str = "\x1b[H\x1b[2J";

pub(super) async fn status(args: &StatusArgs, context: &Context<'_>) -> Result<Verdict, Error> {
    let client = Client::new(&args.server, context.environment)?;
    if !args.watch {
        print(&status_text(args, &client, context).await?)?;
        return Ok(Verdict::Yes);
    }
    let mut shown = None;
    loop {
        let text = match status_text(args, &client, context).await {
            Ok(text) => text,
            Err(Error::Client(error)) if error.is_absence() && shown.is_some() => format!("{error}\n"),
            Err(error) => return Err(error),
        };
        // Ages tick on a terminal; elsewhere only changes are worth a new block.
        if context.stdout_is_terminal {
            print(&format!("{HOME_AND_WIPE}{text}"))?;
        } else if shown.as_ref() != Some(&text) {
            print(&format!("{text}\n"))?;
        }
        shown = Some(text);
        sleep(LOOK_EVERY).await;
    }
}

pub(super) async fn history(args: &HistoryArgs, context: &Context<'_>) -> Result<Verdict, Error> {
    let client = Client::new(&args.server, context.environment)?;
    let revisions: Vec<Revision> = client.get(&application_path(&args.app, "/revisions")?).await?;
    let text = match args.output {
        Output::Json => json(&revisions),
        Output::Yaml => yaml(&revisions),
        Output::Table | Output::Wide => {
            let mut text = render_history(&revisions, context.clock.now(), context.colours);
            if args.output == Output::Wide {
                for revision in revisions.iter().filter(|it| !it.changes.is_empty()) {
                    let _ = writeln!(text, "\n#{}", revision.number);
                    for change in &revision.changes {
                        let _ = writeln!(text, "  {}", super::screen::plain(change));
                    }
                }
            }
            text
        }
    };
    print(&text)?;
    Ok(Verdict::Yes)
}

pub(super) async fn plan(args: &PlanArgs, context: &Context<'_>) -> Result<Verdict, Error> {
    let dry_runs = dry_runs(args, context).await?;
    print(&match args.output {
        TextOrJson::Json => json(&dry_runs),
        TextOrJson::Text => render_plan(&dry_runs, context.colours),
    })?;
    Ok(Verdict::Yes)
}

pub(super) async fn diff(args: &PlanArgs, context: &Context<'_>) -> Result<Verdict, Error> {
    let dry_runs = dry_runs(args, context).await?;
    print(&match args.output {
        TextOrJson::Json => {
            let diffs: BTreeMap<_, _> = dry_runs.iter().map(|(app, it)| (app, &it.diff)).collect();
            json(&diffs)
        }
        TextOrJson::Text => render_diff(&dry_runs, context.colours),
    })?;
    let differs = dry_runs.values().any(|it| !it.diff.is_empty());
    Ok(if differs { Verdict::No } else { Verdict::Yes })
}

async fn dry_runs(args: &PlanArgs, context: &Context<'_>) -> Result<BTreeMap<AppName, DryRun>, Error> {
    if let Some(dir) = &args.dir {
        return offline::dry_runs(dir, args.app.as_deref(), args.docker_host.as_deref(), context).await;
    }
    let client = Client::new(&args.server, context.environment)?;
    let apps = match &args.app {
        Some(app) => vec![AppName(app.clone())],
        None => client
            .get::<Vec<Application>>("/api/v1/applications")
            .await?
            .into_iter()
            .map(|it| it.name)
            .collect(),
    };
    let mut dry_runs = BTreeMap::new();
    for app in apps {
        let dry_run = client.get(&application_path(app.as_str(), "/plan")?).await?;
        dry_runs.insert(app, dry_run);
    }
    Ok(dry_runs)
}

async fn status_text(args: &StatusArgs, client: &Client, context: &Context<'_>) -> Result<String, Error> {
    if let Some(app) = &args.app {
        let one: Application = client.get(&application_path(app, "")?).await?;
        return Ok(match args.output {
            Output::Json => json(&one),
            Output::Yaml => yaml(&one),
            Output::Table | Output::Wide => {
                let hooks = hooks(client, |it| it == one.spec.repository).await?;
                let now = context.clock.now();
                let text = render_status(&[one], Detail::Everything, now, context.colours);
                text + &render_hooks(&hooks, now, context.colours)
            }
        });
    }
    let all: Vec<Application> = client.get("/api/v1/applications").await?;
    let detail = match args.output {
        Output::Json => return Ok(json(&all)),
        Output::Yaml => return Ok(yaml(&all)),
        Output::Table => Detail::Problems,
        Output::Wide => Detail::Workloads,
    };
    let repositories: Vec<RepositoryStatus> = list(client, "/api/v1/repositories").await?;
    let hooks = hooks(client, |_| true).await?;
    let now = context.clock.now();
    Ok(render_status(&all, detail, now, context.colours)
        + &render_repositories(&repositories, context.colours)
        + &render_hooks(&hooks, now, context.colours))
}

/// The webhooks of the repositories.
async fn hooks(client: &Client, wanted: impl Fn(&str) -> bool) -> Result<Vec<HookStatus>, Error> {
    let hooks: Vec<HookStatus> = list(client, "/api/v1/webhooks").await?;
    Ok(hooks.into_iter().filter(|it| wanted(&it.repository)).collect())
}

/// What an agent of an earlier release may not know.
async fn list<T: DeserializeOwned>(client: &Client, path: &str) -> Result<Vec<T>, Error> {
    match client.get(path).await {
        Ok(list) => Ok(list),
        Err(error) if error.is_not_found() => Ok(Vec::new()),
        Err(error) => Err(error.into()),
    }
}

pub(super) fn json<T: Serialize>(value: &T) -> String {
    let text = serde_json::to_string_pretty(value).expect("what was read as JSON can be written as JSON");
    format!("{text}\n")
}

pub(super) fn yaml<T: Serialize>(value: &T) -> String {
    serde_yaml::to_string(value).expect("what was read as JSON can be written as YAML")
}
