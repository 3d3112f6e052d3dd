//! How a dry run is printed.

use std::{collections::BTreeMap, fmt::Write as _};

use super::{
    findings::counted,
    screen::{Colours, Paint, plain},
};
use driftless_agent::DryRun;
use driftless_model::AppName;

/// The rounds that would follow, application by application.
pub fn render_plan(dry_runs: &BTreeMap<AppName, DryRun>, colours: Colours) -> String {
    let mut out = String::new();
    for (app, DryRun { rounds, adoption, waits, diff: _ }) in dry_runs {
        let rounds: Vec<_> = rounds.iter().filter(|it| !it.is_empty()).collect();
        let sum = match rounds.iter().map(|it| it.len()).sum() {
            0 => "nothing to do".to_owned(),
            steps => format!("{} in {}", counted(steps, "step"), counted(rounds.len(), "round")),
        };
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
