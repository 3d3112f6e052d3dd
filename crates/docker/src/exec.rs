//! Commands inside containers, for probes and hooks. Their input is closed, and only the end of their output is kept.

use std::{sync::Arc, time::Duration};

use bollard::exec::{CreateExecOptions, StartExecOptions, StartExecResults};
use driftless_model::ContainerId;
use futures_util::StreamExt;

use crate::{
    attribution::Attribution,
    call_error::CallError,
    connection::Connection,
    deadline::{DEADLINE, within},
    error::Error,
};

/// Bytes of output that are kept.
const OUTPUT: usize = 1024;

/// Runs commands inside containers.
#[derive(Debug)]
pub(crate) struct Exec {
    connection: Arc<Connection>,
    attribution: Arc<Attribution>,
}

impl Exec {
    pub(crate) fn new(connection: &Arc<Connection>, attribution: &Arc<Attribution>) -> Self {
        Self { connection: Arc::clone(connection), attribution: Arc::clone(attribution) }
    }

    /// Runs a command and returns its exit code and the end of its output. A command that takes longer than `timeout`
    /// is a failure; the engine has no call to end it.
    pub(crate) async fn run(
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
        let result = self.run_with(container, options, timeout).await;
        result.map_err(|error| error.classify(&format!("run a command in {}", container.short())))
    }

    /// Like [`Self::run`], with all options of the engine.
    pub(crate) async fn run_with(
        &self,
        container: &ContainerId,
        options: CreateExecOptions<String>,
        timeout: Duration,
    ) -> Result<(i64, String), CallError> {
        let docker = self.connection.docker();
        let id = self.connection.call(DEADLINE, docker.create_exec(container.as_str(), options)).await?.id;
        // Before the start, so that its event does not come first.
        self.attribution.record_agent_exec(&id);
        let output = within(timeout, self.output(&id)).await?;
        let ended = self.connection.call(DEADLINE, docker.inspect_exec(&id)).await?;
        let code = ended
            .exit_code
            .ok_or_else(|| CallError::Unreachable("the command ended without an exit code".to_owned()))?;
        Ok((code, output))
    }

    async fn output(&self, id: &str) -> Result<String, CallError> {
        let started = self.connection.docker().start_exec(id, None::<StartExecOptions>).await?;
        let mut kept = Vec::new();
        if let StartExecResults::Attached { mut output, input: _ } = started {
            while let Some(chunk) = output.next().await {
                kept.extend_from_slice(&chunk?.into_bytes());
                let excess = kept.len().saturating_sub(OUTPUT);
                kept.drain(..excess);
            }
        }
        Ok(String::from_utf8_lossy(&kept).into_owned())
    }
}
