//! Existing containers: start, stop, signal, remove, rename, update, connect, disconnect.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use bollard::query_parameters as query;
use driftless_clock::Clock;
use driftless_model::{Attachment, ContainerId, DEFAULT_STOP_GRACE, LiveSettings};
use driftless_plan::{ContainerRef, is_stuck};
use tokio::time::sleep;

use super::{
    empty_volumes,
    first_start::FirstStart,
    hooks::{Hooks, PreStop},
    networks::Networks,
    ownership::Ownership,
    pod_stops::PodStops,
    stand_in,
    stray_processes::StrayProcessesEnder,
};
use crate::{
    attribution::Attribution,
    cache::Cache,
    call_error::{CallError, tolerate},
    catalogue::Settled,
    connection::Connection,
    deadline::DEADLINE,
    error::Error,
    from_engine, to_engine,
};

/// The time beyond its grace period that a stop may take.
const STOP_MARGIN: Duration = Duration::from_secs(30);

/// The starts of a container whose stray processes have ended, and the pause between two.
const STARTS_AFTER_END: usize = 4;
const PAUSE_AFTER_END: Duration = Duration::from_millis(500);

/// Messages of the engine if the host port or address is in use.
const PORT_IN_USE: &[&str] = &["port is already allocated", "address already in use"];
/// Messages of the engine about a start that fails however often it is tried.
const START_IMPOSSIBLE: &[&str] = &[
    "executable file not found",
    "no such file or directory",
    "not a directory",
    "permission denied",
    "exec format error",
];

/// Changes existing containers.
pub(super) struct Containers {
    pub(super) connection: Arc<Connection>,
    pub(super) cache: Arc<Cache>,
    pub(super) attribution: Arc<Attribution>,
    pub(super) ownership: Ownership,
    pub(super) networks: Arc<Networks>,
    pub(super) first_start: FirstStart,
    pub(super) hooks: Hooks,
    pub(super) pod_stops: PodStops,
    pub(super) stray_processes: StrayProcessesEnder,
    pub(super) clock: Clock,
}

impl Containers {
    pub(super) async fn start(&self, container: &ContainerRef) -> Result<(), Error> {
        let doing = format!("start {}", name_of(container));
        let id = self.ownership.require(container, &doing).await?;
        if let Some(part) = self.cache.container(&id).and_then(|inspected| inspected.instance.part.clone()) {
            self.pod_stops.forget(&part.pod);
        }
        self.first_start.prepare(&id).await.map_err(|error| error.classify(&doing))?;
        self.connection.require_acceptance().await.map_err(|error| error.classify(&doing))?;
        let mut started = self.try_start(&id).await;
        if let Err(error) = &started
            && error.contains(&["endpoint with name"])
            && error.contains(&["already exists in network"])
        {
            tracing::warn!(container = name_of(container), %error, "starting the container under another name");
            started = self.start_under_another_name(&id).await;
        }
        if let Err(error) = &started
            && is_stuck(&error.to_string())
        {
            Box::pin(self.stray_processes.end(&id, &doing)).await?;
            started = self.start_after_end(&id).await;
        }
        self.cache.invalidate_container(&id, Settled::Yes);
        match started {
            Ok(()) => Ok(()),
            Err(error) if error.code() == Some(304) => Ok(()),
            Err(error) => Err(classify_start_error(error, &doing)),
        }
    }

    /// Starts a container whose stray processes have ended. The engine hears of that from containerd a little later.
    async fn start_after_end(&self, id: &ContainerId) -> Result<(), CallError> {
        for _ in 0..STARTS_AFTER_END {
            match self.try_start(id).await {
                Err(error) if is_stuck(&error.to_string()) => sleep(PAUSE_AFTER_END).await,
                started => return started,
            }
        }
        self.try_start(id).await
    }

    async fn try_start(&self, id: &ContainerId) -> Result<(), CallError> {
        let options = None::<query::StartContainerOptions>;
        let start = self.connection.docker().start_container(id.as_str(), options);
        self.connection.call(DEADLINE, start).await
    }

    /// Starts a container under another name, and gives its name back. After a failed start, such as one for lack of
    /// space, the engine may keep an endpoint of the container's name in a network, which refuses each further one of
    /// that name until the network or the engine is restarted. The endpoint is made at the start and renamed with the
    /// container.
    async fn start_under_another_name(&self, id: &ContainerId) -> Result<(), CallError> {
        let found = self.connection.inspect_container(id.as_str()).await?;
        let name = found.name.as_deref().unwrap_or_default().trim_start_matches('/').to_owned();
        self.rename_to(id, &format!("{name}_{}", id.short())).await?;
        let started = self.try_start(id).await;
        if let Err(error) = self.rename_to(id, &name).await {
            // The next round finds the other name and corrects it.
            tracing::warn!(container = name, %error, "could not give the container its name back");
        }
        started
    }

    async fn rename_to(&self, id: &ContainerId, name: &str) -> Result<(), CallError> {
        let options = query::RenameContainerOptionsBuilder::new().name(name).build();
        let rename = self.connection.docker().rename_container(id.as_str(), options);
        self.connection.call(DEADLINE, rename).await
    }

    pub(super) async fn stop(&self, container: &ContainerRef, grace: Option<Duration>) -> Result<(), Error> {
        let doing = format!("stop {}", name_of(container));
        let Some(id) = self.ownership.find(container, &doing).await? else { return Ok(()) };
        if let Some(objection) = self.connection.stop_objection(&id) {
            return Err(Error::Rejected { doing, message: objection.to_owned() });
        }
        let inspected = self.cache.container(&id);
        let own_grace = inspected.as_ref().and_then(|inspected| inspected.instance.config.stop_grace_period);
        let whole_grace = grace.or(own_grace).unwrap_or(DEFAULT_STOP_GRACE);
        let grace = match inspected.and_then(|inspected| inspected.instance.part.clone()) {
            Some(part) => Some(self.pod_stops.grace_of(&part, whole_grace)),
            None => grace,
        };
        let PreStop { error, grace: rest } = self.hooks.run_pre_stop(&id, grace).await;
        if let Some(error) = error {
            tracing::warn!(
                container = name_of(container),
                error,
                "a pre_stop hook failed; the container is stopped anyway"
            );
        }
        let grace = rest.or(grace);
        let seconds = grace.map(to_engine::whole_seconds);
        let options = query::StopContainerOptions {
            t: seconds.map(|seconds| i32::try_from(seconds).unwrap_or(i32::MAX)),
            signal: None,
        };
        let deadline = grace.or(own_grace).unwrap_or(DEFAULT_STOP_GRACE).saturating_add(STOP_MARGIN);
        self.attribution.begin_agent_stop(&id);
        let stop = self.connection.docker().stop_container(id.as_str(), Some(options));
        let stopped = self.connection.call(deadline, stop).await;
        self.attribution.end_agent_stop(&id, &stopped, self.clock.now());
        self.cache.invalidate_container(&id, Settled::Soon);
        tolerate(stopped, |error| matches!(error.code(), Some(304 | 404)))
            .map_err(|error| error.classify(&doing))
    }

    pub(super) async fn run_hooks(&self, container: &ContainerRef) -> Result<(), Error> {
        let doing = format!("run the post_start hooks of {}", name_of(container));
        let id = self.ownership.require(container, &doing).await?;
        self.hooks.run_post_start(&id, &doing).await
    }

    pub(super) async fn signal(&self, container: &ContainerRef, signal: &str) -> Result<(), Error> {
        let doing = format!("send {signal} to {}", name_of(container));
        let id = self.ownership.require(container, &doing).await?;
        let options = query::KillContainerOptionsBuilder::new().signal(signal).build();
        self.attribution.expect_signal(&id);
        let kill = self.connection.docker().kill_container(id.as_str(), Some(options));
        let sent = self.connection.call(DEADLINE, kill).await;
        self.cache.invalidate_container(&id, Settled::Soon);
        if sent.is_err() {
            // Its event will not come.
            self.attribution.take_signal(&id);
        }
        sent.map_err(|error| match error.code() {
            // The container has exited: it is observed again and started with its new files.
            Some(404 | 409) => error.refused(&doing),
            _ => error.classify(&doing),
        })
    }

    /// Removes a container, and the anonymous volumes that begin empty with it. With `with_volumes` also those that the engine made
    /// for it alone, unless it shares the volumes of another container: these are among its own then.
    pub(super) async fn remove(&self, container: &ContainerRef, with_volumes: bool) -> Result<(), Error> {
        let doing = format!("remove {}", name_of(container));
        let Some(id) = self.ownership.find(container, &doing).await? else { return Ok(()) };
        let found = self.connection.find_container(id.as_str()).await;
        let found = found.map_err(|error| error.classify(&doing))?;
        if let Some(found) = &found {
            Box::pin(stand_in::remove_of(&self.connection, found))
                .await
                .map_err(|error| error.classify(&doing))?;
        }
        let volumes = found.as_ref().map_or_else(BTreeMap::new, from_engine::empty_volumes);
        let with_volumes =
            with_volumes && found.as_ref().is_some_and(|found| !from_engine::shares_volumes(found));
        let options = query::RemoveContainerOptionsBuilder::new().force(false).v(with_volumes).build();
        let remove = self.connection.docker().remove_container(id.as_str(), Some(options));
        let removed = self.connection.call(DEADLINE, remove).await;
        self.cache.invalidate_container(&id, Settled::Yes);
        tolerate(removed, |error| error.is_not_found() || error.contains(&["already in progress"]))
            .map_err(|error| error.classify(&doing))?;
        self.attribution.forget_container(&id);
        self.first_start.forget(&id);
        for volume in volumes.into_values() {
            let removed = empty_volumes::remove(&self.connection, &volume).await;
            removed.map_err(|error| error.classify(&doing))?;
        }
        Ok(())
    }

    pub(super) async fn unpause(&self, container: &ContainerRef) -> Result<(), Error> {
        let doing = format!("unpause {}", name_of(container));
        let id = self.ownership.require(container, &doing).await?;
        let unpause = self.connection.docker().unpause_container(id.as_str());
        let unpaused = self.connection.call(DEADLINE, unpause).await;
        self.cache.invalidate_container(&id, Settled::Yes);
        tolerate(unpaused, |error| error.contains(&["is not paused"])).map_err(|error| error.classify(&doing))
    }

    pub(super) async fn rename(&self, container: &ContainerRef, to: &str) -> Result<(), Error> {
        let doing = format!("rename {} to {to}", name_of(container));
        let id = self.ownership.require(container, &doing).await?;
        let renamed = self.rename_to(&id, to).await;
        self.cache.invalidate_container(&id, Settled::Yes);
        tolerate(renamed, |error| error.contains(&["same name"])).map_err(|error| error.classify(&doing))
    }

    pub(super) async fn update(
        &self,
        container: &ContainerRef,
        settings: &LiveSettings,
    ) -> Result<(), Error> {
        let doing = format!("update the limits of {}", name_of(container));
        let id = self.ownership.require(container, &doing).await?;
        let body = to_engine::update_body(settings);
        let update = self.connection.docker().update_container(id.as_str(), body);
        let updated = self.connection.call(DEADLINE, update).await;
        self.cache.invalidate_container(&id, Settled::Yes);
        updated.map_err(|error| error.classify(&doing))?;
        self.check_update(&id, settings, &doing).await
    }

    pub(super) async fn connect(
        &self,
        container: &ContainerRef,
        network: &str,
        attachment: &Attachment,
    ) -> Result<(), Error> {
        let doing = format!("connect {} to network {network}", name_of(container));
        let id = self.ownership.require(container, &doing).await?;
        let version = self.connection.api_version().await.map_err(|error| error.classify(&doing))?;
        let endpoint = to_engine::endpoint(attachment, version);
        let connected = self.networks.connect(&id, network, endpoint).await;
        self.cache.invalidate_container(&id, Settled::Soon);
        connected.map_err(|error| error.classify(&doing))
    }

    pub(super) async fn disconnect(&self, container: &ContainerRef, network: &str) -> Result<(), Error> {
        let doing = format!("disconnect {} from network {network}", name_of(container));
        let Some(id) = self.ownership.find(container, &doing).await? else { return Ok(()) };
        let disconnected = self.networks.disconnect(&id, network).await;
        self.cache.invalidate_container(&id, Settled::Soon);
        disconnected.map_err(|error| error.classify(&doing))
    }

    /// Fails if the engine left a limit in place that should go: in an update, an absent limit means "unchanged".
    async fn check_update(
        &self,
        id: &ContainerId,
        settings: &LiveSettings,
        doing: &str,
    ) -> Result<(), Error> {
        let found = self.connection.inspect_container(id.as_str()).await;
        let found = found.map_err(|error| error.classify(doing))?;
        let defaults = self.connection.defaults();
        let actual = found.host_config.map(|host| from_engine::resources(&host, &defaults));
        let (actual, wanted) = (actual.unwrap_or_default(), &settings.resources);
        let remaining = [
            ("CPUs", actual.nano_cpus.is_some() && wanted.nano_cpus.is_none()),
            ("memory", actual.memory.is_some() && wanted.memory.is_none()),
            (
                "memory reservation",
                actual.memory_reservation.is_some() && wanted.memory_reservation.is_none(),
            ),
            ("CPU shares", actual.cpu_shares.is_some() && wanted.cpu_shares.is_none()),
        ];
        let remaining: Vec<&str> =
            remaining.into_iter().filter_map(|(limit, remains)| remains.then_some(limit)).collect();
        if remaining.is_empty() {
            return Ok(());
        }
        let message = format!(
            "the engine cannot take away the limit on {} from a live container; it must be replaced",
            remaining.join(" and ")
        );
        Err(Error::Refused { doing: doing.to_owned(), message })
    }
}

/// The crate's error for a container that does not start.
pub(super) fn classify_start_error(error: CallError, doing: &str) -> Error {
    if error.contains(PORT_IN_USE) {
        return match port_in_use(&error.to_string()) {
            Some(port) => Error::Refused {
                doing: doing.to_owned(),
                message: format!("host port {port} is in use by another container or process"),
            },
            None => error.refused(doing),
        };
    }
    if error.contains(&["network"]) && error.contains(&["not found"]) {
        return error.refused(doing);
    }
    if error.contains(START_IMPOSSIBLE) { error.rejected(doing) } else { error.classify(doing) }
}

/// The port in `Bind for 0.0.0.0:8080 failed: port is already allocated` or `listen tcp4 0.0.0.0:8080: bind: address
/// already in use`: the number after the last `:` of the nearest word before.
fn port_in_use(message: &str) -> Option<u16> {
    let end = PORT_IN_USE.iter().find_map(|text| message.to_lowercase().find(text))?;
    let words = message.get(..end)?.split_whitespace();
    words.rev().find_map(|word| word.trim_end_matches(':').rsplit_once(':')?.1.parse().ok())
}

fn name_of(container: &ContainerRef) -> &str {
    match container {
        ContainerRef::Id(_, name) | ContainerRef::Name(name) => name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn port_in_use_is_read_from_the_message() {
        let allocated = "driver failed programming external connectivity on endpoint a (4f): Bind for 0.0.0.0:8080 failed: port is already allocated";
        assert_eq!(port_in_use(allocated), Some(8080));
        let listening = "driver failed: Error starting userland proxy: listen tcp4 127.0.0.1:18099: bind: address already in use";
        assert_eq!(port_in_use(listening), Some(18099));
        assert_eq!(port_in_use("Address already in use"), None);
    }
}
