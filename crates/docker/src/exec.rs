//! Runs a command inside a container, for probes and hooks. Its input stays closed, and only the end of its output is kept.

use std::time::Duration;

use bollard::exec::{CreateExecOptions, StartExecOptions, StartExecResults};
use futures_util::StreamExt;

use crate::{
    Error,
    call_error::CallError,
    engine::{DEADLINE, Inner, within},
};
use driftless_model::ContainerId;

/// How many bytes of output are kept.
const OUTPUT: usize = 1024;

impl Inner {
    /// A command that takes longer than `timeout` is a failure; the engine knows no way to end it.
    pub(crate) async fn exec(
        &self,
        container: &ContainerId,
        command: &[String],
        timeout: Duration,
    ) -> Result<(i64, String), Error> {
        let options = CreateExecOptions {
            cmd: Some(command.to_vec()),
            attach_stdout: Some(true),
            attach_stderr: Some(true),
            ..CreateExecOptions::default()
        };
        let ended = self.run_in(container, options, timeout).await;
        ended.map_err(|failure| failure.sort(&format!("run a command in {}", container.short())))
    }

    /// The exit code, and the end of the output.
    pub(crate) async fn run_in(
        &self,
        container: &ContainerId,
        options: CreateExecOptions<String>,
        timeout: Duration,
    ) -> Result<(i64, String), CallError> {
        let id = self.call(DEADLINE, self.docker.create_exec(container.as_str(), options)).await?.id;
        // Before it is started, so that the news of it does not come first.
        self.cache.our_exec(&id);
        let output = within(timeout, self.run(&id)).await?;
        let ended = self.call(DEADLINE, self.docker.inspect_exec(&id)).await?;
        let code = ended
            .exit_code
            .ok_or_else(|| CallError::Unreachable("the command ended without an exit code".into()))?;
        Ok((code, output))
    }

    async fn run(&self, id: &str) -> Result<String, CallError> {
        let started = self.docker.start_exec(id, None::<StartExecOptions>).await?;
        let mut kept = Vec::new();
        if let StartExecResults::Attached { mut output, input: _ } = started {
            while let Some(part) = output.next().await {
                kept.extend_from_slice(&part?.into_bytes());
                let excess = kept.len().saturating_sub(OUTPUT);
                kept.drain(..excess);
            }
        }
        Ok(String::from_utf8_lossy(&kept).into_owned())
    }
}
