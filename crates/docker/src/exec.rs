//! Commands inside containers, for probes, health checks and hooks. Their input is closed, and only the end of their output is kept.

use std::{sync::Arc, time::Duration};

use bollard::{
    exec::{CreateExecOptions, StartExecOptions, StartExecResults},
    models as api,
};
use driftless_model::{ContainerId, Healthcheck};
use futures_util::StreamExt;

use crate::{
    attribution::{Attribution, ProbeCommand},
    call_error::CallError,
    connection::Connection,
    deadline::{DEADLINE, within},
    docker::CommandResult,
    error::Error,
};

/// Bytes of output that are kept of a hook.
pub(crate) const OUTPUT: usize = 1024;
/// Bytes of output that are kept of any other command.
const LONG_OUTPUT: usize = 128 * 1024;

/// The shell of an image without `SHELL`.
const SHELL: [&str; 2] = ["/bin/sh", "-c"];
/// The engine's time limit of a health check that has none of its own.
const HEALTH_TIMEOUT: Duration = Duration::from_secs(30);

/// The number of hanging runs of a probe's command from which on it is not run again. A single one may be chance: its request met the
/// one worker of many that is stuck.
const MOST_HANGING: usize = 3;
/// The failure of a probe whose command hangs.
const STILL_RUNS: &str = "earlier runs of the command, which took too long, have not ended";

/// Runs commands inside containers.
#[derive(Debug)]
pub(crate) struct Exec {
    connection: Arc<Connection>,
    attribution: Arc<Attribution>,
}

/// The run of a probe's command. Dropped before its end, as by the time limit of the probe, it is remembered.
struct ProbeRun<'a> {
    attribution: &'a Attribution,
    container: &'a ContainerId,
    command: &'a ProbeCommand,
    id: String,
    has_ended: bool,
}

impl Drop for ProbeRun<'_> {
    fn drop(&mut self) {
        if !self.has_ended {
            self.attribution.record_unended_probe(self.container, &self.id, self.command);
        }
    }
}

impl Exec {
    pub(crate) fn new(connection: &Arc<Connection>, attribution: &Arc<Attribution>) -> Self {
        Self { connection: Arc::clone(connection), attribution: Arc::clone(attribution) }
    }

    /// Runs a command until it ends. A command that takes longer than `timeout`
    /// is a failure; the engine has no call to end it.
    pub(crate) async fn run(
        &self,
        container: &ContainerId,
        command: &[String],
        timeout: Duration,
    ) -> Result<CommandResult, Error> {
        let ran = async {
            let id = self.create(container, with_output(command)).await?;
            self.run_created(&id, LONG_OUTPUT, timeout).await
        };
        self.classified(container, ran.await).await
    }

    /// Runs the command of a probe. It fails while [`MOST_HANGING`] earlier runs that took too long have not ended: one more in each period
    /// would use up the memory and the processes of the container.
    pub(crate) async fn probe(
        &self,
        container: &ContainerId,
        command: &[String],
        timeout: Duration,
    ) -> Result<CommandResult, Error> {
        let command = &ProbeCommand { words: command.to_vec(), limit: timeout };
        let ran = async {
            self.check_hanging(container, command).await?;
            let id = self.create(container, with_output(&command.words)).await?;
            let attribution = &*self.attribution;
            let mut guard = ProbeRun { attribution, container, command, id, has_ended: false };
            let result = self.run_created(&guard.id, LONG_OUTPUT, timeout).await;
            guard.has_ended = result.is_ok();
            result
        };
        self.classified(container, ran.await).await
    }

    /// Fails if [`MOST_HANGING`] runs of a probe's command have not ended that the agent no longer waits for.
    async fn check_hanging(&self, container: &ContainerId, command: &ProbeCommand) -> Result<(), CallError> {
        let mut hanging = 0;
        for id in self.attribution.unended_probes(container, command) {
            match self.connection.call(DEADLINE, self.connection.docker().inspect_exec(&id)).await {
                Ok(found) if found.running == Some(true) => {
                    hanging += 1;
                    continue;
                }
                Ok(_) => {}
                // It has ended with its container, or the engine was started again.
                Err(error) if error.is_not_found() => {}
                Err(error) => return Err(error),
            }
            self.attribution.record_ended_probe(container, &id);
        }
        if hanging >= MOST_HANGING {
            return Err(CallError::Status { code: 409, message: STILL_RUNS.to_owned() });
        }
        Ok(())
    }

    async fn classified(
        &self,
        container: &ContainerId,
        ran: Result<CommandResult, CallError>,
    ) -> Result<CommandResult, Error> {
        let doing = format!("run a command in {}", container.short());
        match ran {
            Ok(ran) => Ok(ran),
            Err(error) => Err(self.attribute_failure(error).await.classify(&doing)),
        }
    }

    /// The failure of a command. A call that took too long, or that something in front of the engine answered, says nothing
    /// about the container if the engine does not answer a ping either.
    async fn attribute_failure(&self, error: CallError) -> CallError {
        let is_doubtful = matches!(&error, CallError::TimedOut(_) | CallError::Status { code: 500.., .. });
        if is_doubtful && self.connection.ping().await.is_err() {
            return CallError::Unreachable(error.to_string());
        }
        error
    }

    /// Runs the health check of a container once, as the engine does.
    pub(crate) async fn check_health(
        &self,
        container: &ContainerId,
        check: &Healthcheck,
    ) -> Result<bool, Error> {
        let doing = format!("run the health check of {}", container.short());
        let command = match check.test.as_slice() {
            [kind, words @ ..] if kind == "CMD" => words.to_vec(),
            [kind, script @ ..] if kind == "CMD-SHELL" => {
                let found = self.connection.inspect_container(container.as_str()).await;
                let config = found.map_err(|error| error.classify(&doing))?.config.unwrap_or_default();
                let shell = config.shell.filter(|shell| !shell.is_empty());
                let shell = shell.unwrap_or_else(|| SHELL.map(str::to_owned).to_vec());
                shell.into_iter().chain(script.iter().cloned()).collect()
            }
            _ => return Err(Error::Refused { doing, message: "it has no test".to_owned() }),
        };
        let result = self.run(container, &command, check.timeout.unwrap_or(HEALTH_TIMEOUT)).await?;
        Ok(result.code == 0)
    }

    /// Makes a command that [`Self::run_created`] can run. Nothing runs yet.
    pub(crate) async fn create(
        &self,
        container: &ContainerId,
        options: CreateExecOptions<String>,
    ) -> Result<String, CallError> {
        let create = self.connection.docker().create_exec(container.as_str(), options);
        let id = self.connection.call(DEADLINE, create).await?.id;
        // Before the start, so that its event does not come first.
        self.attribution.record_agent_exec(&id);
        Ok(id)
    }

    /// Runs a command until it ends, and keeps at most so many of the last bytes of its output.
    pub(crate) async fn run_created(
        &self,
        id: &str,
        most: usize,
        timeout: Duration,
    ) -> Result<CommandResult, CallError> {
        let output = within(timeout, self.output(id, most)).await?;
        let ended = self.connection.call(DEADLINE, self.connection.docker().inspect_exec(id)).await?;
        Ok(CommandResult { code: exit_code(&ended)?, output })
    }

    async fn output(&self, id: &str, most: usize) -> Result<String, CallError> {
        let started = self.connection.docker().start_exec(id, None::<StartExecOptions>).await?;
        let mut kept = Vec::new();
        if let StartExecResults::Attached { mut output, input: _ } = started {
            while let Some(chunk) = output.next().await {
                kept.extend_from_slice(&chunk?.into_bytes());
                let excess = kept.len().saturating_sub(most);
                kept.drain(..excess);
            }
        }
        Ok(String::from_utf8_lossy(&kept).into_owned())
    }
}

/// A command whose output is read.
fn with_output(command: &[String]) -> CreateExecOptions<String> {
    CreateExecOptions {
        cmd: Some(command.to_vec()),
        attach_stdout: Some(true),
        attach_stderr: Some(true),
        ..CreateExecOptions::default()
    }
}

/// The exit code of a command whose output has ended. One that has closed its output may run on, which is a failure of its own
/// and not of the engine.
fn exit_code(ended: &api::ExecInspectResponse) -> Result<i64, CallError> {
    let missing =
        || CallError::Status { code: 500, message: "the command ended without an exit code".to_owned() };
    ended.exit_code.ok_or_else(missing)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_without_an_exit_code_was_answered() {
        let running = api::ExecInspectResponse { running: Some(true), ..api::ExecInspectResponse::default() };
        let error = exit_code(&running).unwrap_err().classify("run a command");
        assert!(matches!(&error, Error::Transient { .. }) && !error.is_unanswered(), "{error:?}");
        let ended = api::ExecInspectResponse { exit_code: Some(3), ..api::ExecInspectResponse::default() };
        assert_eq!(exit_code(&ended), Ok(3));
    }
}
