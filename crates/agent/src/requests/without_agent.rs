//! The connection of commands that observe an engine without an agent.

use std::path::Path;

use driftless_clock::Clock;
use driftless_config::DockerHost;
use driftless_docker::{Engine, EngineOptions, RegistryLogins};
use driftless_model::AgentId;

use crate::Error;

/// An id that no agent has, so no object counts as the agent's own.
pub(super) fn nobody() -> AgentId {
    AgentId(String::new())
}

/// Connects to an engine. `state_dir` and `runtime_dir` are the directories of the host's agent: a container that mounts
/// a file from them has the content of that file.
pub(super) fn connect_without_agent(
    host: &DockerHost,
    state_dir: &Path,
    runtime_dir: &Path,
    clock: Clock,
) -> Result<Engine, Error> {
    Engine::connect(EngineOptions {
        remembered: None,
        host: host.clone(),
        agent: nobody(),
        content_dir: state_dir.join("contents"),
        secret_dir: runtime_dir.join("secrets"),
        app_dir: state_dir.join("applications"),
        registries: RegistryLogins::default(),
        clock,
    })
    .map_err(Error::Docker)
}
