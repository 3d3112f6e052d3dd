//! `driftless diff`: compares the live state with Git.

use std::collections::BTreeMap;

use super::{
    context::{Context, Verdict},
    dry_run::{PlanArgs, dry_runs},
    error::Error,
    options::TextOrJson,
    output::{json, print},
    screen::{Colours, Paint, plain},
};
use driftless_agent::DryRun;
use driftless_model::AppName;

pub(super) async fn diff(args: &PlanArgs, context: &Context<'_>) -> Result<Verdict, Error> {
    let dry_runs = Box::pin(dry_runs(args, context)).await?;
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

/// What runs against what Git says, as one unified diff.
pub fn render_diff(dry_runs: &BTreeMap<AppName, DryRun>, colours: Colours) -> String {
    let mut out = String::new();
    for line in dry_runs.values().flat_map(|it| it.diff.lines()) {
        let line = plain(line);
        let paint = match line.as_bytes() {
            [b'+', b'+', b'+', ..] | [b'-', b'-', b'-', ..] => Some(Paint::Strong),
            [b'+', ..] => Some(Paint::Good),
            [b'-', ..] => Some(Paint::Bad),
            [b'@', ..] => Some(Paint::Busy),
            _ => None,
        };
        out.push_str(&paint.map_or_else(|| line.clone(), |it| colours.paint(it, &line)));
        out.push('\n');
    }
    out
}
