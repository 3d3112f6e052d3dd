//! `driftless end-processes`: the process in the helper container that ends processes of a container that the engine does not
//! know. [`StrayProcesses`] defines its arguments.

use std::process::ExitCode;

use driftless_docker::StrayProcesses;
use tokio::runtime::Builder;

/// Ends when no process of the container is left.
pub fn end_processes(arguments: impl IntoIterator<Item = String>) -> ExitCode {
    let arguments: Vec<String> = arguments.into_iter().collect();
    let Some(stray) = StrayProcesses::parse(&arguments) else {
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
    match runtime.block_on(stray.end()) {
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
