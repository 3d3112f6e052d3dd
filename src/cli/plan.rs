//! `driftless plan`: the dry run, round by round.

use std::{collections::BTreeMap, fmt::Write as _};

use super::{
    context::{Context, Verdict},
    dry_run::{PlanArgs, dry_runs},
    error::Error,
    findings::counted,
    options::TextOrJson,
    output::{json, print},
    screen::{Colours, Paint, plain},
};
use driftless_agent::DryRun;
use driftless_model::AppName;

pub(super) async fn plan(args: &PlanArgs, context: &Context<'_>) -> Result<Verdict, Error> {
    let dry_runs = Box::pin(dry_runs(args, context)).await?;
    print(&match args.output {
        TextOrJson::Json => json(&dry_runs),
        TextOrJson::Text => render_plan(&dry_runs, context.colours),
    })?;
    Ok(Verdict::Yes)
}

/// The rounds that would follow, application by application.
pub fn render_plan(dry_runs: &BTreeMap<AppName, DryRun>, colours: Colours) -> String {
    let mut out = String::new();
    for (app, DryRun { suspended, rounds, adoption, waits, diff: _ }) in dry_runs {
        let rounds: Vec<_> = rounds.iter().filter(|it| !it.is_empty()).collect();
        let sum = match rounds.iter().map(|it| it.len()).sum() {
            0 => "nothing to do".to_owned(),
            steps => format!("{} in {}", counted(steps, "step"), counted(rounds.len(), "round")),
        };
        let sum = if *suspended { format!("suspended; after `driftless resume {app}`: {sum}") } else { sum };
        let _ = writeln!(out, "{}: {sum}", colours.paint(Paint::Strong, app.as_str()));
        if !adoption.is_empty() {
            let _ = writeln!(out, "  {}", colours.paint(Paint::Soft, "to be taken over from docker compose"));
            for line in adoption.iter().flat_map(|it| it.lines()) {
                let _ = writeln!(out, "    {}", plain(line));
            }
        }
        for (index, round) in rounds.iter().enumerate() {
            let _ = writeln!(out, "  {}", colours.paint(Paint::Soft, &format!("round {}", index + 1)));
            for step in *round {
                let _ = writeln!(out, "    {}", plain(step));
            }
        }
        for wait in waits {
            let _ = writeln!(out, "  {}", colours.paint(Paint::Warn, &format!("waits: {}", plain(wait))));
        }
    }
    if dry_runs.is_empty() {
        out.push_str("no applications\n");
    }
    out
}
