//! Checks of the Docker Engine.

use std::{fs, time::Duration};

use super::check::Check;
use crate::cli::context::Context;
use driftless_config::Settings;
use driftless_docker::{EngineReport, engine_report};
use driftless_model::error_chain;

/// A larger difference between the clocks makes backoff and history misleading.
const CLOCK_DIFFERENCE: Duration = Duration::from_secs(5);

/// More ids of other agents are only counted.
const MOST_AGENTS: usize = 3;

/// Storage drivers that the Docker documentation calls deprecated or unfit for production.
const POOR_DRIVERS: &[&str] = &["vfs", "aufs", "devicemapper", "overlay"];

pub(super) async fn checks(settings: &Settings, context: &Context<'_>) -> Vec<Check> {
    let host = &settings.docker;
    let report = match engine_report(host).await {
        Ok(report) => report,
        Err(error) => {
            // The error names the socket and the remedy.
            let help = "the agent waits for the engine; `docker info` shows whether it answers this user";
            return vec![Check::fail("engine", error_chain(&error), help)];
        }
    };
    let mut checks = vec![version(&report, &host.address), storage(&report), clock(&report, context)];
    checks.push(agents(&report, settings));
    checks
}

fn version(report: &EngineReport, host: &str) -> Check {
    let rootless = if report.is_rootless { ", rootless" } else { "" };
    match report.api {
        Some(api) => Check::ok("engine", format!("{} (API {api}{rootless}) at {host}", report.version)),
        None => Check::fail(
            "engine",
            format!("the engine at {host} does not state the version of its API"),
            "check that the address is that of a Docker Engine",
        ),
    }
}

fn storage(report: &EngineReport) -> Check {
    let EngineReport { storage_driver, root_dir, .. } = report;
    let message = format!("{storage_driver} in {root_dir}");
    if POOR_DRIVERS.contains(&storage_driver.as_str()) {
        let help = "use overlay2; with vfs every container is a full copy of its image";
        return Check::warn("storage driver", message, help);
    }
    Check::ok("storage driver", message)
}

fn clock(report: &EngineReport, context: &Context<'_>) -> Check {
    let Some(time) = report.time else {
        return Check::warn("clock", "the engine does not state its time", "check `date` on its host");
    };
    let now = context.clock.now();
    let difference = now.since(time).max(time.since(now));
    let message = format!("the engine's clock differs by {} ms", difference.as_millis());
    if difference > CLOCK_DIFFERENCE {
        return Check::warn("clock", message, "synchronize both hosts with NTP (`timedatectl`)");
    }
    Check::ok("clock", message)
}

/// Whether containers on the engine belong to another agent.
fn agents(report: &EngineReport, settings: &Settings) -> Check {
    let own = fs::read_to_string(settings.state_dir.join("agent-id")).unwrap_or_default();
    let own = own.trim();
    let others: Vec<String> = report
        .agents
        .iter()
        .filter(|agent| agent.as_str() != own)
        .map(|agent| agent.as_str().chars().take(12).collect())
        .collect();
    if others.is_empty() {
        return Check::ok("other agents", "all managed containers on the engine belong to this agent");
    }
    let (listed, more) = others.split_at(others.len().min(MOST_AGENTS));
    let more = if more.is_empty() { String::new() } else { format!(" and {} more", more.len()) };
    let message = format!("containers on the engine belong to other agents: {}{more}", listed.join(", "));
    let help = if own.is_empty() {
        "this state directory has no id yet: if it was lost, restore it or run `driftless recover`"
    } else {
        "give the agents different applications, or stop one; docs/state.md"
    };
    Check::warn("other agents", message, help)
}
