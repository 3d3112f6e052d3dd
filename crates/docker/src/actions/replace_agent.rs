//! Replacing the container that the agent runs in.
//!
//! The agent creates its successor under another name and starts a helper container from the successor's image, with the
//! mounts of the agent. The helper stops the agent, starts the successor, and starts the old agent again if the new one does
//! not get ready. So this call does not return if all goes well: the helper ends it.

use std::{path::PathBuf, sync::Arc, time::Duration};

use bollard::{models as api, query_parameters as query};
use driftless_model::{AgentId, ContainerId, label};
use driftless_plan::{AgentReplacement, Creation};
use tokio::time::{Instant, sleep};

use super::{containers::classify_start_error, create::Creator};
use crate::{
    agent_claims::OwnAgents,
    agent_update::{AgentUpdate, last_output},
    call_error::{CallError, tolerate},
    connection::Connection,
    deadline::DEADLINE,
    error::Error,
};

/// The time in which the helper has to stop the agent.
const HELPER: Duration = Duration::from_mins(1);
/// A helper that the engine has restarted as often does not work.
const MOST_RESTARTS: i64 = 4;
/// The interval at which the helper is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(300);

/// Starts helper containers.
pub(super) struct AgentReplacer {
    connection: Arc<Connection>,
    agents: Arc<OwnAgents>,
}

impl AgentReplacer {
    pub(super) fn new(connection: &Arc<Connection>, agents: &Arc<OwnAgents>) -> Self {
        Self { connection: Arc::clone(connection), agents: Arc::clone(agents) }
    }

    /// Starts the helper, and waits until it stops this process. Returns only an error, unless the helper had started this agent.
    pub(super) async fn replace(
        &self,
        replacement: &AgentReplacement,
        creator: &Creator,
    ) -> Result<ContainerId, Error> {
        let doing = format!("replace the agent in {}", replacement.old);
        let name = AgentUpdate::helper_name(&replacement.creation.name);
        if let Some(own) = self.go_on(&name).await.map_err(|error| error.classify(&doing))? {
            return Ok(own);
        }
        let started = Box::pin(self.start_helper(replacement, creator, &doing)).await?;
        let failed = self.await_end(&started.helper).await.map_err(|error| error.classify(&doing))?;
        for left in [&started.helper, &started.successor] {
            self.discard(left).await.map_err(|error| error.classify(&doing))?;
        }
        Err(Error::Rejected { doing, message: failed })
    }

    /// Starts a stopped helper again that has started this agent and was not done. Returns the agent's own container then.
    async fn go_on(&self, name: &str) -> Result<Option<ContainerId>, CallError> {
        let own = self.connection.own_container();
        let (Some(found), Some(own)) = (self.connection.find_container(name).await?, own) else {
            return Ok(None);
        };
        let helper = self.ours(&found, name)?;
        let labels = found.config.and_then(|config| config.labels).unwrap_or_default();
        if labels.get(label::UPDATE).map(String::as_str) != Some(own.as_str()) {
            return Ok(None);
        }
        let options = None::<query::StartContainerOptions>;
        let start = self.connection.docker().start_container(helper.as_str(), options);
        tolerate(self.connection.call(DEADLINE, start).await, |error| error.code() == Some(304))?;
        Ok(Some(own))
    }

    async fn start_helper(
        &self,
        replacement: &AgentReplacement,
        creator: &Creator,
        doing: &str,
    ) -> Result<Started, Error> {
        let AgentReplacement { old, creation, deadline } = replacement;
        let fail = |error: CallError| error.classify(doing);
        let reject = |message: String| Error::Rejected { doing: doing.to_owned(), message };
        let Some(own) = self.connection.own_container() else {
            return Err(reject("the engine does not know the agent's own container".to_owned()));
        };
        let Some(socket) = self.connection.transport().socket().map(|path| path.display().to_string()) else {
            return Err(reject("the agent does not reach the engine through a socket".to_owned()));
        };
        let state = self.connection.local_paths().content.parent().map(PathBuf::from).unwrap_or_default();
        if let Some(message) = self.connection.unreachable_state() {
            return Err(reject(message));
        }
        let found = self.connection.inspect_container(own.as_str()).await.map_err(fail)?;
        let names = Names::of(&creation.name);
        let successor = self.successor(creation, &names, creator, doing).await?;
        let next = self.connection.inspect_container(successor.as_str()).await.map_err(fail)?;
        let Some(program) = program(&next) else {
            self.discard(&successor).await.map_err(fail)?;
            return Err(reject(
                "its command has no word `run`, so the program in the image is unknown".to_owned(),
            ));
        };
        let update = AgentUpdate {
            old: ContainerId(own.to_string()),
            new: successor.clone(),
            name: creation.name.clone(),
            state,
            socket,
            deadline: *deadline,
        };
        tracing::info!(old = %old, image = next.config.as_ref().and_then(|it| it.image.as_deref()), "replacing the agent");
        // The future is large.
        let helper = Box::pin(self.helper(&found, &next, &names, &program, &update)).await.map_err(fail)?;
        let options = None::<query::StartContainerOptions>;
        let start = self.connection.docker().start_container(helper.as_str(), options);
        let started = self.connection.call(DEADLINE, start).await;
        if let Err(error) = tolerate(started, |error| error.code() == Some(304)) {
            for left in [&helper, &successor] {
                self.discard(left).await.map_err(fail)?;
            }
            return Err(classify_start_error(error, &format!("start the helper container {}", names.helper)));
        }
        Ok(Started { helper, successor })
    }

    /// The container that takes the agent's place, created under another name; an interrupted call may have created it.
    async fn successor(
        &self,
        creation: &Creation,
        names: &Names,
        creator: &Creator,
        doing: &str,
    ) -> Result<ContainerId, Error> {
        let found =
            self.connection.find_container(&names.next).await.map_err(|error| error.classify(doing))?;
        if let Some(found) = found {
            let id = self.ours(&found, &names.next).map_err(|error| error.classify(doing))?;
            let is_unused = found.state.as_ref().and_then(|state| state.status)
                == Some(api::ContainerStateStatusEnum::CREATED);
            let labels = found.config.and_then(|config| config.labels).unwrap_or_default();
            if is_unused && labels.get(label::SPEC).map(String::as_str) == Some(creation.spec.0.as_str()) {
                return Ok(id);
            }
            self.discard(&id).await.map_err(|error| error.classify(doing))?;
        }
        let creation = Creation { name: names.next.clone(), ..creation.clone() };
        Box::pin(creator.create(&creation)).await
    }

    /// The helper container, created; an interrupted call may have created it.
    async fn helper(
        &self,
        own: &api::ContainerInspectResponse,
        next: &api::ContainerInspectResponse,
        names: &Names,
        program: &[String],
        update: &AgentUpdate,
    ) -> Result<ContainerId, CallError> {
        if let Some(found) = self.connection.find_container(&names.helper).await? {
            let id = self.ours(&found, &names.helper)?;
            let labels = found.config.and_then(|config| config.labels).unwrap_or_default();
            if labels.get(label::UPDATE).map(String::as_str) == Some(update.new.as_str()) {
                return Ok(id);
            }
            self.discard(&id).await?;
        }
        let host = own.host_config.clone().unwrap_or_default();
        let labels = [
            (label::AGENT.to_owned(), self.agents.own().to_string()),
            (label::UPDATE.to_owned(), update.new.to_string()),
        ];
        let body = api::ContainerCreateBody {
            image: next.image.clone(),
            entrypoint: Some(program.to_vec()),
            cmd: Some(update.words()),
            user: own.config.as_ref().and_then(|config| config.user.clone()),
            labels: Some(labels.into()),
            // A health check of the image asks an agent.
            healthcheck: Some(api::HealthConfig {
                test: Some(vec!["NONE".to_owned()]),
                ..api::HealthConfig::default()
            }),
            host_config: Some(api::HostConfig {
                // The engine's socket and the state directory.
                volumes_from: Some(vec![update.old.to_string()]),
                network_mode: Some("none".to_owned()),
                // It goes on after a crash of its own and after a start of the host, and removes itself at the end.
                restart_policy: Some(api::RestartPolicy {
                    name: Some(api::RestartPolicyNameEnum::UNLESS_STOPPED),
                    maximum_retry_count: None,
                }),
                readonly_rootfs: host.readonly_rootfs,
                cap_add: host.cap_add,
                cap_drop: host.cap_drop,
                security_opt: host.security_opt,
                group_add: host.group_add,
                privileged: host.privileged,
                userns_mode: host.userns_mode,
                ..api::HostConfig::default()
            }),
            ..api::ContainerCreateBody::default()
        };
        let options = query::CreateContainerOptionsBuilder::new().name(&names.helper).build();
        let creation = Box::pin(self.connection.docker().create_container(Some(options), body));
        Ok(ContainerId(self.connection.call(DEADLINE, creation).await?.id))
    }

    /// Waits until the helper fails. It stops this process before that if all goes well.
    async fn await_end(&self, helper: &ContainerId) -> Result<String, CallError> {
        let end = Instant::now() + HELPER;
        while Instant::now() < end {
            sleep(LOOK_EVERY).await;
            let Some(found) = self.connection.find_container(helper.as_str()).await? else {
                return Ok("the helper container is gone".to_owned());
            };
            let state = found.state.unwrap_or_default();
            let is_up = state.running == Some(true) || state.restarting == Some(true);
            let has_ended = !is_up || found.restart_count.unwrap_or_default() >= MOST_RESTARTS;
            if has_ended {
                let output = last_output(&self.connection, helper).await;
                let code = state.exit_code.unwrap_or_default();
                return Ok(format!("the helper container of the new image exited with code {code}{output}"));
            }
        }
        Ok(format!("the helper container has done nothing within {} s", HELPER.as_secs()))
    }

    /// The id of a container that carries the agent's label. Another one stays, and its name is an error.
    fn ours(&self, found: &api::ContainerInspectResponse, name: &str) -> Result<ContainerId, CallError> {
        let labels = found.config.as_ref().and_then(|config| config.labels.as_ref());
        let agent = labels.and_then(|labels| labels.get(label::AGENT)).map(|agent| AgentId(agent.clone()));
        match (&found.id, agent) {
            (Some(id), Some(agent)) if self.agents.contain(agent.as_str()) => Ok(ContainerId(id.clone())),
            _ => {
                let message =
                    format!("the name {name} is needed for the update, and another container has it");
                Err(CallError::Status { code: 409, message })
            }
        }
    }

    async fn discard(&self, id: &ContainerId) -> Result<(), CallError> {
        let options = query::RemoveContainerOptionsBuilder::new().force(true).build();
        let removal = self.connection.docker().remove_container(id.as_str(), Some(options));
        tolerate(self.connection.call(DEADLINE, removal).await, CallError::is_not_found)
    }
}

/// The containers of an update.
struct Started {
    helper: ContainerId,
    successor: ContainerId,
}

/// The names of the containers of an update.
struct Names {
    next: String,
    helper: String,
}

impl Names {
    fn of(name: &str) -> Self {
        Self { next: format!("{name}-next"), helper: AgentUpdate::helper_name(name) }
    }
}

/// The words that start the program in a container: those before `run`.
fn program(found: &api::ContainerInspectResponse) -> Option<Vec<String>> {
    let words: Vec<String> = found
        .path
        .iter()
        .chain(found.args.iter().flatten())
        .take_while(|word| *word != "run")
        .cloned()
        .collect();
    let all = 1 + found.args.as_ref().map_or(0, Vec::len);
    (!words.is_empty() && words.len() < all).then_some(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn program_is_found_before_the_word_run() {
        let of = |path: &str, args: &[&str]| {
            program(&api::ContainerInspectResponse {
                path: Some(path.to_owned()),
                args: Some(args.iter().map(|&word| word.to_owned()).collect()),
                ..api::ContainerInspectResponse::default()
            })
        };
        assert_eq!(of("/driftless", &["run", "--config", "x"]).unwrap(), ["/driftless"]);
        assert_eq!(of("/lib/ld.so", &["--library-path", "/lib", "/driftless", "run"]).unwrap().len(), 4);
        assert_eq!(of("/driftless", &["status"]), None);
        assert_eq!(of("run", &[]), None);
    }
}
