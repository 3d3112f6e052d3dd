//! `driftless end-processes`: the process in the helper container that ends processes of a container that the engine does not
//! know. [`StrayProcesses`] defines its arguments.

use std::process::ExitCode;

use driftless_docker::StrayProcesses;

use super::helper_container;

/// Ends when no process of the container is left.
pub fn end_processes(arguments: impl IntoIterator<Item = String>) -> ExitCode {
    let arguments: Vec<String> = arguments.into_iter().collect();
    helper_container::run(StrayProcesses::parse(&arguments).map(end))
}

async fn end(stray: StrayProcesses) -> ExitCode {
    match stray.end().await {
        Ok(ended) => {
            tracing::info!(container = %stray.container, ended, "ended the processes");
            ExitCode::SUCCESS
        }
        Err(error) => {
            tracing::error!(container = %stray.container, %error, "could not end the processes");
            ExitCode::FAILURE
        }
    }
}
