//! Ending the processes of a container that the engine does not know, by a helper container: see [`StrayProcesses`].

use std::{sync::Arc, time::Duration};

use bollard::{models as api, query_parameters as query};
use driftless_model::{ContainerId, DEFAULT_STOP_GRACE, HELPER_IMAGE, is_made_helper, label};
use tokio::time::{Instant, sleep};

use crate::{
    agent_update::last_output,
    cache::Cache,
    call_error::{CallError, tolerate},
    connection::Connection,
    deadline::DEADLINE,
    error::Error,
    helper_image,
    stray_processes::StrayProcesses,
};

/// The time of the helper beyond the grace period of the container.
const HELPER: Duration = Duration::from_mins(1);
/// The interval at which the helper is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// Ends processes that the engine does not know.
pub(super) struct StrayProcessesEnder {
    connection: Arc<Connection>,
    cache: Arc<Cache>,
}

impl StrayProcessesEnder {
    pub(super) fn new(connection: &Arc<Connection>, cache: &Arc<Cache>) -> Self {
        Self { connection: Arc::clone(connection), cache: Arc::clone(cache) }
    }

    /// Runs the helper and waits for it. There may be no such process: the engine refuses a start in the same words if only the
    /// name or the folder of the container is left.
    ///
    /// # Errors
    ///
    /// If the helper does not run, or cannot end a process. The container must not be replaced then.
    pub(super) async fn end(&self, id: &ContainerId, doing: &str) -> Result<(), Error> {
        let fail = |error: CallError| Error::Refused {
            doing: doing.to_owned(),
            message: format!(
                "the engine may hold a process of an earlier start, which could not be ended: {error}; restart the engine \
                 (`systemctl restart docker`)"
            ),
        };
        let found = self.connection.inspect_container(id.as_str()).await.map_err(fail)?;
        let name =
            format!("{}-end-processes", found.name.as_deref().unwrap_or_default().trim_start_matches('/'));
        let config = found.config.unwrap_or_default();
        let grace = config.stop_timeout.and_then(|seconds| u64::try_from(seconds).ok());
        let stray = StrayProcesses {
            container: id.clone(),
            signal: config.stop_signal.unwrap_or_else(|| "SIGTERM".to_owned()),
            grace: grace.map_or(DEFAULT_STOP_GRACE, Duration::from_secs),
        };
        tracing::warn!(
            container = name_of(&name),
            "the engine does not know the processes of an earlier start of this container; ending them"
        );
        self.import(doing).await?;
        self.remove(&name).await.map_err(fail)?;
        let ended = self.run(&name, &stray).await;
        let removed = self.remove(&name).await;
        ended.and(removed).map_err(fail)
    }

    /// Imports the image of the helper if it is not there, or if another one has its name.
    async fn import(&self, doing: &str) -> Result<(), Error> {
        let inspect = self.connection.docker().inspect_image(HELPER_IMAGE);
        let config = match self.connection.call(DEADLINE, inspect).await {
            Ok(found) => found.config,
            Err(error) if error.is_not_found() => None,
            Err(error) => return Err(error.classify(doing)),
        };
        let labels = config.and_then(|config| config.labels).unwrap_or_default();
        if is_made_helper(HELPER_IMAGE, |name| labels.get(name).map(String::as_str)) {
            return Ok(());
        }
        let imported = Box::pin(helper_image::import(&self.connection, HELPER_IMAGE, &|_| {})).await;
        self.cache.invalidate_images();
        imported
    }

    async fn run(&self, name: &str, stray: &StrayProcesses) -> Result<(), CallError> {
        let labels = [(label::STRAY_PROCESSES.to_owned(), stray.container.to_string())];
        let body = api::ContainerCreateBody {
            image: Some(HELPER_IMAGE.to_owned()),
            cmd: Some(stray.words()),
            user: Some("0".to_owned()),
            labels: Some(labels.into_iter().collect()),
            host_config: Some(api::HostConfig {
                pid_mode: Some("host".to_owned()),
                // An engine with user namespaces allows the processes of the host only so.
                userns_mode: Some("host".to_owned()),
                network_mode: Some("none".to_owned()),
                readonly_rootfs: Some(true),
                cap_drop: Some(vec!["ALL".to_owned()]),
                cap_add: Some(vec!["KILL".to_owned()]),
                security_opt: Some(vec!["no-new-privileges".to_owned()]),
                ..api::HostConfig::default()
            }),
            ..api::ContainerCreateBody::default()
        };
        let options = query::CreateContainerOptionsBuilder::new().name(name).build();
        // The future is large.
        let creation = Box::pin(self.connection.docker().create_container(Some(options), body));
        let helper = ContainerId(self.connection.call(DEADLINE, creation).await?.id);
        let options = None::<query::StartContainerOptions>;
        let start = self.connection.docker().start_container(helper.as_str(), options);
        self.connection.call(DEADLINE, start).await?;
        let end = Instant::now() + stray.grace + HELPER;
        loop {
            let state = self.connection.inspect_container(helper.as_str()).await?.state.unwrap_or_default();
            if state.running != Some(true) {
                let code = state.exit_code.unwrap_or_default();
                if code == 0 {
                    return Ok(());
                }
                let output = last_output(&self.connection, &helper).await;
                let message = format!("the helper container {name} exited with code {code}{output}");
                return Err(CallError::Status { code: 500, message });
            }
            if Instant::now() >= end {
                let message = format!("the helper container {name} did not end");
                return Err(CallError::Status { code: 500, message });
            }
            sleep(LOOK_EVERY).await;
        }
    }

    /// Removes a helper, such as one that a killed agent left. Another container of its name stays and is an error.
    async fn remove(&self, name: &str) -> Result<(), CallError> {
        let Some(found) = self.connection.find_container(name).await? else { return Ok(()) };
        let labels = found.config.and_then(|config| config.labels).unwrap_or_default();
        if !labels.contains_key(label::STRAY_PROCESSES) {
            let message = format!("the name {name} is needed for a helper, and another container has it");
            return Err(CallError::Status { code: 409, message });
        }
        let options = query::RemoveContainerOptionsBuilder::new().force(true).build();
        let id = found.id.unwrap_or_default();
        let removal = self.connection.docker().remove_container(&id, Some(options));
        tolerate(self.connection.call(DEADLINE, removal).await, CallError::is_not_found)
    }
}

/// The name of the container that a helper is named after.
fn name_of(helper: &str) -> &str {
    helper.strip_suffix("-end-processes").unwrap_or(helper)
}
