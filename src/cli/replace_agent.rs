//! `driftless replace-agent`: the process in the helper container that replaces the container of an agent.
//! [`AgentUpdate`] defines its arguments.

use std::process::ExitCode;

use tokio::runtime::Builder;

use driftless_clock::Clock;
use driftless_docker::AgentUpdate;
use driftless_model::error_chain;

/// Ends when one agent is left, and the helper container with it.
pub fn replace_agent(arguments: impl IntoIterator<Item = String>) -> ExitCode {
    let arguments: Vec<String> = arguments.into_iter().collect();
    let Some(update) = AgentUpdate::parse(&arguments) else {
        tracing::error!("an agent starts this command; it is not for people");
        return ExitCode::from(2);
    };
    let runtime = match Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            tracing::error!(%error, "could not start the runtime");
            return ExitCode::FAILURE;
        }
    };
    match runtime.block_on(driftless_agent::replace_agent(update, Clock::System)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!("{}", error_chain(&error));
            ExitCode::FAILURE
        }
    }
}
