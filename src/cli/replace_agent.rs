//! `driftless replace-agent`: the process in the helper container that replaces the container of an agent.
//! [`AgentUpdate`] defines its arguments.

use std::process::ExitCode;

use driftless_clock::Clock;
use driftless_docker::AgentUpdate;
use driftless_model::error_chain;

use super::helper_container;

/// Ends when one agent is left, and the helper container with it.
pub fn replace_agent(arguments: impl IntoIterator<Item = String>) -> ExitCode {
    let arguments: Vec<String> = arguments.into_iter().collect();
    helper_container::run(AgentUpdate::parse(&arguments).map(replace))
}

async fn replace(update: AgentUpdate) -> ExitCode {
    match driftless_agent::replace_agent(update, Clock::System).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!("{}", error_chain(&error));
            ExitCode::FAILURE
        }
    }
}
