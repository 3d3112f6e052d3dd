//! Commands that the manifest wants run inside a container after each start and before each stop that we make. They
//! are found on the container itself, so that one that Git does not name any more is stopped as it was meant to be.

use std::time::Duration;

use bollard::{exec::CreateExecOptions, query_parameters as query};

use crate::{
    Error,
    call_error::CallError,
    engine::{DEADLINE, Inner},
    from_engine,
};
use driftless_model::{ContainerId, Hook};

/// How long one command may take. What takes longer is not waited for: a stop must come to its end.
const LONGEST: Duration = Duration::from_mins(5);
/// How much of a command's output is part of the error.
const SHOWN: usize = 200;

/// Both kinds, as the container carries them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Hooks {
    pub post_start: Vec<Hook>,
    pub pre_stop: Vec<Hook>,
}

impl Inner {
    /// Asks the engine only if nobody knows yet.
    pub(crate) async fn hooks(&self, id: &ContainerId) -> Result<Hooks, CallError> {
        if let Some(seen) = self.cache.container(id) {
            let settings = &seen.instance.config.host;
            let (post_start, pre_stop) = (settings.post_start.clone(), settings.pre_stop.clone());
            return Ok(Hooks { post_start, pre_stop });
        }
        if self.cache.is_made(id) && !self.cache.has_hooks(id) {
            return Ok(Hooks::default());
        }
        let options = None::<query::InspectContainerOptions>;
        let found = self.call(DEADLINE, self.docker.inspect_container(id.as_str(), options)).await?;
        let asked = from_engine::asked(found.config.and_then(|it| it.labels).as_ref());
        Ok(Hooks { post_start: asked.post_start, pre_stop: asked.pre_stop })
    }

    /// Those that run after a start. The first that fails ends the container: it is not what it was meant to be, and
    /// nobody may take it for that.
    pub(crate) async fn after_start(
        &self,
        id: &ContainerId,
        hooks: &Hooks,
        doing: &str,
    ) -> Result<(), Error> {
        for hook in &hooks.post_start {
            let Err(error) = self.hook(id, "post_start", hook).await else { continue };
            let options = None::<query::StopContainerOptions>;
            self.cache.stopping(id, self.clock.now());
            let stopped = self.call(LONGEST, self.docker.stop_container(id.as_str(), options)).await;
            self.cache.invalidate_container(id);
            stopped.map_err(|it| it.sort(&format!("{doing}: {error}, and stop it")))?;
            return Err(Error::Rejected { doing: doing.to_owned(), message: error });
        }
        Ok(())
    }

    /// Those that run before a stop. Whether they succeed or not, it is stopped: what hangs cannot keep itself alive.
    /// What was wrong is returned for the log.
    pub(crate) async fn before_stop(&self, id: &ContainerId) -> Option<String> {
        let hooks = match self.hooks(id).await {
            Ok(hooks) => hooks,
            Err(failure) if failure.code() == Some(404) => return None,
            Err(failure) => return Some(format!("its pre_stop commands could not be read: {failure}")),
        };
        let mut wrong = Vec::new();
        for hook in &hooks.pre_stop {
            wrong.extend(self.hook(id, "pre_stop", hook).await.err());
        }
        (!wrong.is_empty()).then(|| wrong.join("; "))
    }

    async fn hook(&self, id: &ContainerId, kind: &str, hook: &Hook) -> Result<(), String> {
        let Hook { command, sleep, http, user, privileged, working_dir, env } = hook;
        if let Some(sleep) = sleep {
            tokio::time::sleep((*sleep).min(LONGEST)).await;
            return Ok(());
        }
        if let Some(http) = http {
            let asked = tokio::time::timeout(LONGEST, self.http_hook(id, http)).await;
            let asked = asked.unwrap_or_else(|_| Err(format!("no answer within {LONGEST:?}")));
            return asked.map_err(|it| format!("its {kind} request failed: {it}"));
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
        match self.run_in(id, options, LONGEST).await {
            Ok((0, _)) => Ok(()),
            Ok((code, output)) => {
                let start = output.char_indices().rev().nth(SHOWN).map_or(0, |(at, _)| at);
                let output = output.get(start..).unwrap_or_default().split_whitespace();
                let output = output.collect::<Vec<_>>().join(" ");
                Err(format!("its {kind} command `{program}` ended with code {code}: {output}"))
            }
            // It has ended meanwhile, which is for others to see.
            Err(failure) if failure.code() == Some(409) && kind == "pre_stop" => Ok(()),
            Err(failure) => Err(format!("its {kind} command `{program}` could not be run: {failure}")),
        }
    }
}
