//! Hooks: commands, requests and pauses after each start and before each stop by the agent. They are read from the
//! container itself, so that a container that Git does not contain any more is stopped as it was specified.

use std::{sync::Arc, time::Duration};

use bollard::{exec::CreateExecOptions, query_parameters as query};
use driftless_clock::Clock;
use driftless_model::{ContainerId, Hook, label};
use tokio::time::Instant;

use super::http_hooks;
use crate::{
    attribution::Attribution,
    cache::Cache,
    call_error::{CallError, tolerate},
    catalogue::Settled,
    connection::Connection,
    docker::CommandResult,
    error::Error,
    exec::{Exec, OUTPUT},
    from_engine,
};

/// The longest time that one hook before a stop may take, where no grace period limits it: a stop must end.
const LONGEST_PRE_STOP: Duration = Duration::from_mins(5);
/// The longest time that one hook after a start may take, such as a migration or `chown` of a large volume. Neither Compose nor
/// Kubernetes has a limit, but here one that never ends would keep its application from its next commit.
const LONGEST_POST_START: Duration = Duration::from_hours(1);
/// The deadline of the stop after a hook that failed.
const STOP: Duration = Duration::from_mins(5);
/// The grace period that is left at least for the stop signal, as in the kubelet.
const LEAST_GRACE: Duration = Duration::from_secs(2);
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

/// Why a hook has not done its work.
#[derive(Debug)]
enum HookError {
    /// Its command has not begun.
    NotBegun(CallError),
    /// It failed, as a part of a sentence.
    Failed(String),
}

/// The result of the hooks before a stop.
#[derive(Debug, Default)]
pub(super) struct PreStop {
    /// Their errors, for the log.
    pub(super) error: Option<String>,
    /// The rest of the grace period, if the hooks count in it.
    pub(super) grace: Option<Duration>,
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
    /// pass for it. One that the engine has not begun is tried again.
    pub(super) async fn run_post_start(&self, id: &ContainerId, doing: &str) -> Result<(), Error> {
        let hooks = self.hooks_of(id).await.map_err(|error| error.classify(doing))?;
        for hook in &hooks.post_start {
            let message = match self.run(id, "post_start", hook, LONGEST_POST_START).await {
                Ok(()) => continue,
                Err(HookError::NotBegun(error)) => return Err(error.classify(doing)),
                Err(HookError::Failed(message)) => message,
            };
            let options = None::<query::StopContainerOptions>;
            self.attribution.begin_agent_stop(id);
            let stop = self.connection.docker().stop_container(id.as_str(), options);
            let stopped = self.connection.call(STOP, stop).await;
            self.attribution.end_agent_stop(id, &stopped, self.clock.now());
            self.cache.invalidate_container(id, Settled::Soon);
            tolerate(stopped, |error| matches!(error.code(), Some(304 | 404)))
                .map_err(|error| error.classify(&format!("{doing}: {message}, and stop it")))?;
            return Err(Error::Rejected { doing: doing.to_owned(), message });
        }
        Ok(())
    }

    /// Runs the hooks before a stop. The container is stopped even if they fail.
    ///
    /// In Kubernetes the grace period begins before them: they are cut off at its end, and the stop signal gets the rest of
    /// it. In Compose it begins after them. `grace` replaces the grace period of the container.
    pub(super) async fn run_pre_stop(&self, id: &ContainerId, grace: Option<Duration>) -> PreStop {
        let failed = |error: &CallError| {
            let error = Some(format!("its pre_stop hooks could not be read: {error}"));
            PreStop { error, grace: None }
        };
        let hooks = match self.hooks_of(id).await {
            Ok(hooks) if hooks.pre_stop.is_empty() => return PreStop::default(),
            Ok(hooks) => hooks.pre_stop,
            Err(error) if error.is_not_found() => return PreStop::default(),
            Err(error) => return failed(&error),
        };
        let config = match self.connection.inspect_container(id.as_str()).await {
            Ok(found) => found.config.unwrap_or_default(),
            Err(error) if error.is_not_found() => return PreStop::default(),
            Err(error) => return failed(&error),
        };
        let is_compose = config.labels.is_some_and(|labels| labels.contains_key(label::compose::PROJECT));
        let own_grace = config.stop_timeout.and_then(|seconds| u64::try_from(seconds).ok());
        let grace = grace.or(own_grace.map(Duration::from_secs)).filter(|_| !is_compose);
        let begun = Instant::now();
        let mut errors = Vec::new();
        for hook in &hooks {
            let limit = grace.map_or(LONGEST_PRE_STOP, |grace| grace.saturating_sub(begun.elapsed()));
            match tokio::time::timeout(limit, self.run(id, "pre_stop", hook, limit)).await {
                // The container has exited already.
                Ok(Ok(()) | Err(HookError::NotBegun(CallError::Status { code: 409, .. }))) => {}
                Ok(Err(HookError::NotBegun(error))) => {
                    errors.push(format!("its pre_stop command could not be run: {error}"));
                }
                Ok(Err(HookError::Failed(message))) => errors.push(message),
                Err(_) => errors.push(format!("its pre_stop hook did not end within {} s", limit.as_secs())),
            }
        }
        let error = (!errors.is_empty()).then(|| errors.join("; "));
        PreStop { error, grace: grace.map(|grace| rest_of(grace, begun.elapsed())) }
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

    async fn run(&self, id: &ContainerId, kind: &str, hook: &Hook, limit: Duration) -> Result<(), HookError> {
        let Hook { command, sleep, http, user, privileged, working_dir, env } = hook;
        if let Some(sleep) = sleep {
            tokio::time::sleep((*sleep).min(limit)).await;
            return Ok(());
        }
        if let Some(http) = http {
            let sent = tokio::time::timeout(limit, http_hooks::send(&self.connection, id, http)).await;
            let sent = sent.unwrap_or_else(|_| Err(format!("no answer within {} s", limit.as_secs())));
            return sent.map_err(|error| HookError::Failed(format!("its {kind} request failed: {error}")));
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
        let not_run = |error: CallError| {
            HookError::Failed(format!("its {kind} command `{program}` could not be run: {error}"))
        };
        let exec = match self.exec.create(id, options).await {
            Ok(exec) => exec,
            // The engine does not answer, or the container has ended.
            Err(error) if matches!(error.code(), None | Some(404 | 409)) => {
                return Err(HookError::NotBegun(error));
            }
            Err(error) => return Err(not_run(error)),
        };
        match self.exec.run_created(&exec, OUTPUT, limit).await {
            Ok(CommandResult { code: 0, .. }) => Ok(()),
            // The end of a pre_stop hook is logged here, where nobody knows the secrets of the application.
            Ok(CommandResult { code, .. }) if kind == "pre_stop" => {
                Err(HookError::Failed(format!("its {kind} command ended with code {code}")))
            }
            Ok(CommandResult { code, output }) => {
                let output = last_lines(&output);
                let message = format!("its {kind} command `{program}` ended with code {code}: {output}");
                Err(HookError::Failed(message))
            }
            Err(CallError::TimedOut(after)) if after == limit => {
                let minutes = limit.as_secs() / 60;
                Err(HookError::Failed(format!(
                    "its {kind} command `{program}` did not end within {minutes} minutes"
                )))
            }
            Err(error) => Err(not_run(error)),
        }
    }
}

/// The last lines of an output, each whole: a piece of one could be a piece of a secret, which no mask recognises. The first line is left
/// out where the output was cut.
fn last_lines(output: &str) -> String {
    let cut = output.len() >= OUTPUT;
    let lines = output
        .lines()
        .skip(usize::from(cut))
        .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "));
    let lines: Vec<String> = lines.filter(|line| !line.is_empty()).collect();
    let mut length = 0;
    let is_shown = |line: &&String| {
        length += line.chars().count();
        length <= SHOWN_OUTPUT
    };
    let mut shown: Vec<&String> = lines.iter().rev().take_while(is_shown).collect();
    if shown.is_empty() {
        return lines
            .last()
            .cloned()
            .unwrap_or_else(|| if cut { "(a long line)".to_owned() } else { String::new() });
    }
    shown.reverse();
    shown.into_iter().map(String::as_str).collect::<Vec<_>>().join(" ")
}

/// The rest of a grace period, at least [`LEAST_GRACE`].
pub(super) fn rest_of(grace: Duration, elapsed: Duration) -> Duration {
    grace.saturating_sub(elapsed).max(LEAST_GRACE.min(grace))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_a_hook_are_shown_whole() {
        assert_eq!(last_lines("one\n\n  two  words\n"), "one two words");
        let long = "x".repeat(SHOWN_OUTPUT);
        assert_eq!(last_lines(&format!("before\n{long}\n")), long);
        let token = "y".repeat(SHOWN_OUTPUT + 100);
        assert_eq!(last_lines(&format!("before\n{token}")), token, "a mask knows it");
        assert_eq!(last_lines(&"z".repeat(OUTPUT)), "(a long line)");
        assert_eq!(last_lines(&format!("{}\nend", "z".repeat(OUTPUT))), "end");
    }

    #[test]
    fn stop_signal_gets_the_rest_of_the_grace_period() {
        let rest =
            |grace, elapsed| rest_of(Duration::from_secs(grace), Duration::from_secs(elapsed)).as_secs();
        assert_eq!([rest(30, 0), rest(30, 12), rest(30, 29), rest(30, 65), rest(1, 5)], [30, 18, 2, 2, 1]);
    }
}
