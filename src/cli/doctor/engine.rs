//! Checks of the Docker Engine.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    time::Duration,
};

use super::check::Check;
use crate::cli::context::Context;
use driftless_config::Settings;
use driftless_docker::{EngineReport, engine_report};
use driftless_model::{AgentId, error_chain};
use driftless_store::former_agents;

/// A larger difference between the clocks makes backoff and history misleading.
const CLOCK_DIFFERENCE: Duration = Duration::from_secs(5);

/// More containers of other agents are only counted.
const MOST_CONTAINERS: usize = 3;

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
    let own = fs::read_to_string(settings.state_dir.join("agent-id")).unwrap_or_default();
    checks.push(agents(&report.agents, own.trim(), &former_agents(&settings.state_dir)));
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

/// Whether containers on the engine belong to another agent, and not to one whose containers this agent has taken over.
fn agents(agents: &BTreeMap<AgentId, BTreeSet<String>>, own: &str, taken_over: &BTreeSet<AgentId>) -> Check {
    let is_other = |agent: &AgentId| agent.as_str() != own && !taken_over.contains(agent);
    let others = agents.iter().filter(|(agent, _)| is_other(agent));
    let containers: Vec<String> = others
        .flat_map(|(agent, names)| names.iter().map(move |name| format!("{name} (agent {})", agent.short())))
        .collect();
    if containers.is_empty() {
        return Check::ok("other agents", "all managed containers on the engine belong to this agent");
    }
    let (listed, more) = containers.split_at(containers.len().min(MOST_CONTAINERS));
    let more = if more.is_empty() { String::new() } else { format!(" and {} more", more.len()) };
    let message = format!("containers on the engine belong to other agents: {}{more}", listed.join(", "));
    let help = if own.is_empty() {
        "this state directory has no id yet: if it was lost, restore it or run `driftless recover`"
    } else {
        "if that agent lives, give it different applications or stop it; if not, `driftless recover` takes over what is in Git, \
         and `docker rm -f` removes its other containers; docs/state.md"
    };
    Check::warn("other agents", message, help)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn containers_that_were_taken_over_are_not_another_agents() {
        let of = |agent: &str, names: &[&str]| {
            (AgentId::from(agent), names.iter().map(|name| (*name).to_owned()).collect::<BTreeSet<_>>())
        };
        let found =
            BTreeMap::from([of("own", &["a"]), of("former", &["b"]), of("other", &["c", "d", "e", "f"])]);
        let former = BTreeSet::from([AgentId::from("former")]);
        let check = agents(&found, "own", &former);
        assert!(
            check.message.ends_with(": c (agent other), d (agent other), e (agent other) and 1 more"),
            "{check:?}"
        );
        let check = agents(&found, "other", &former);
        assert!(check.message.ends_with(": a (agent own)"), "{check:?}");
        assert!(check.help.contains("docker rm -f"), "{check:?}");
        assert_eq!(agents(&BTreeMap::from([of("former", &["b"])]), "own", &former).help, "");
    }
}
