//! The start of the commands of helper containers: an agent gives the arguments, and the exit code is the answer.

use std::process::ExitCode;

use tokio::runtime::Builder;

/// Runs a task of a helper container on a runtime of one thread. `None` for arguments that no agent gives.
pub(super) fn run<F: Future<Output = ExitCode>>(task: Option<F>) -> ExitCode {
    let Some(task) = task else {
        tracing::error!("an agent starts this command; it is not for people");
        return ExitCode::from(2);
    };
    match Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime.block_on(task),
        Err(error) => {
            tracing::error!(%error, "could not start the runtime");
            ExitCode::FAILURE
        }
    }
}
