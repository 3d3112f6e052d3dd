//! Hooks: commands, requests and pauses after each start and before each stop by the agent. They are read from the
//! container itself, so that a container that Git does not contain any more is stopped as it was specified.

use std::{sync::Arc, time::Duration};

use bollard::{exec::CreateExecOptions, query_parameters as query};
use driftless_clock::Clock;
use driftless_model::{ContainerId, Hook};

use super::http_hooks;
use crate::{
    attribution::Attribution, cache::Cache, call_error::CallError, connection::Connection, error::Error,
    exec::Exec, from_engine,
};

/// The longest time that one hook may take: a stop must end.
const LONGEST: Duration = Duration::from_mins(5);
/// The number of characters of a command's output in an error.
const SHOWN_OUTPUT: usize = 200;

/// Runs hooks.
pub(super) struct Hooks {
    connection: Arc<Connection>,
    cache: Arc<Cache>,
    attribution: Arc<Attribution>,
    exec: Arc<Exec>,
    clock: Clock,
}

/// The hooks of one container.
#[derive(Clone, Debug, Default)]
struct ContainerHooks {
    post_start: Vec<Hook>,
    pre_stop: Vec<Hook>,
}

impl Hooks {
    pub(super) fn new(
        connection: &Arc<Connection>,
        cache: &Arc<Cache>,
        attribution: &Arc<Attribution>,
        exec: &Arc<Exec>,
        clock: Clock,
    ) -> Self {
        Self {
            connection: Arc::clone(connection),
            cache: Arc::clone(cache),
            attribution: Arc::clone(attribution),
            exec: Arc::clone(exec),
            clock,
        }
    }

    /// Runs the hooks after a start. The first that fails stops the container: it is not what was specified and must not
    /// pass for it.
    pub(super) async fn run_post_start(&self, id: &ContainerId, doing: &str) -> Result<(), Error> {
        let hooks = self.hooks_of(id).await.map_err(|error| error.classify(doing))?;
        for hook in &hooks.post_start {
            let Err(message) = self.run(id, "post_start", hook).await else { continue };
            let options = None::<query::StopContainerOptions>;
            self.attribution.begin_agent_stop(id);
            let stop = self.connection.docker().stop_container(id.as_str(), options);
            let stopped = self.connection.call(LONGEST, stop).await;
            self.attribution.end_agent_stop(id, self.clock.now());
            self.cache.invalidate_container(id);
            stopped.map_err(|error| error.classify(&format!("{doing}: {message}, and stop it")))?;
            return Err(Error::Rejected { doing: doing.to_owned(), message });
        }
        Ok(())
    }

    /// Runs the hooks before a stop. The container is stopped even if they fail, so their errors are only returned for
    /// the log.
    pub(super) async fn run_pre_stop(&self, id: &ContainerId) -> Option<String> {
        let hooks = match self.hooks_of(id).await {
            Ok(hooks) => hooks,
            Err(error) if error.is_not_found() => return None,
            Err(error) => return Some(format!("its pre_stop hooks could not be read: {error}")),
        };
        let mut errors = Vec::new();
        for hook in &hooks.pre_stop {
            errors.extend(self.run(id, "pre_stop", hook).await.err());
        }
        (!errors.is_empty()).then(|| errors.join("; "))
    }

    /// Asks the engine only if neither the cache nor the attribution knows.
    async fn hooks_of(&self, id: &ContainerId) -> Result<ContainerHooks, CallError> {
        if let Some(inspected) = self.cache.container(id) {
            let settings = &inspected.instance.config.host;
            let (post_start, pre_stop) = (settings.post_start.clone(), settings.pre_stop.clone());
            return Ok(ContainerHooks { post_start, pre_stop });
        }
        if self.attribution.is_created_without_hooks(id) {
            return Ok(ContainerHooks::default());
        }
        let found = self.connection.inspect_container(id.as_str()).await?;
        let asked = from_engine::asked(found.config.and_then(|config| config.labels).as_ref());
        Ok(ContainerHooks { post_start: asked.post_start, pre_stop: asked.pre_stop })
    }

    async fn run(&self, id: &ContainerId, kind: &str, hook: &Hook) -> Result<(), String> {
        let Hook { command, sleep, http, user, privileged, working_dir, env } = hook;
        if let Some(sleep) = sleep {
            tokio::time::sleep((*sleep).min(LONGEST)).await;
            return Ok(());
        }
        if let Some(http) = http {
            let sent = tokio::time::timeout(LONGEST, http_hooks::send(&self.connection, id, http)).await;
            let sent = sent.unwrap_or_else(|_| Err(format!("no answer within {} s", LONGEST.as_secs())));
            return sent.map_err(|error| format!("its {kind} request failed: {error}"));
        }
        let options = CreateExecOptions {
            cmd: Some(command.clone()),
            user: user.clone(),
            privileged: privileged.then_some(true),
            working_dir: working_dir.clone(),
            env: Some(env.iter().map(|(name, value)| format!("{name}={value}")).collect()),
            attach_stdout: Some(true),
            attach_stderr: Some(true),
            ..CreateExecOptions::default()
        };
        let program = command.first().map_or("", String::as_str);
        match self.exec.run_with(id, options, LONGEST).await {
            Ok((0, _)) => Ok(()),
            Ok((code, output)) => {
                let start = output.char_indices().rev().nth(SHOWN_OUTPUT).map_or(0, |(at, _)| at);
                let output = output.get(start..).unwrap_or_default().split_whitespace();
                let output = output.collect::<Vec<_>>().join(" ");
                Err(format!("its {kind} command `{program}` ended with code {code}: {output}"))
            }
            // The container has exited already.
            Err(error) if error.code() == Some(409) && kind == "pre_stop" => Ok(()),
            Err(error) => Err(format!("its {kind} command `{program}` could not be run: {error}")),
        }
    }
}
