//! The connection to the engine: calls with deadlines in an agreed version of its API, and what the engine says about
//! itself. The engine need not run when the agent starts: the version is agreed at the first call, and again after
//! every loss of the event stream and every reload of its configuration.

use std::{
    collections::BTreeSet,
    fmt,
    future::Future,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use bollard::{models as api, query_parameters as query};
use driftless_model::{ContainerId, IpNetwork, LimitKind, Mount, MountSource, Platform};
use tokio::{
    sync::Notify,
    time::{Instant, sleep},
};

use crate::{
    call_error::CallError,
    deadline::{ANSWER, DEADLINE, PING, within},
    from_engine::Defaults,
    mount_paths::MountPaths,
    self_container::{self, SelfContainer},
    transport::{Address, ApiVersion, Transport},
};

/// The newest and the oldest version of the API that this client speaks.
const NEWEST: ApiVersion = ApiVersion::new(1, 53);
const OLDEST: ApiVersion = ApiVersion::new(1, 40);

/// Starts within this time share one answer to whether the engine takes new connections.
const SHARED_ANSWER: Duration = Duration::from_millis(300);

/// The pause before the engine is asked about itself once more after a reload.
const RELOAD_PAUSE: Duration = Duration::from_secs(10);

/// The type of the storage driver of an engine that keeps its images in containerd.
const CONTAINERD_STORE: &str = "io.containerd.snapshotter.v1";

/// The facts that the engine states about itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EngineInfo {
    /// Its release, such as `20.10.24`.
    pub version: String,
    /// The agreed version of its API.
    pub api: ApiVersion,
    /// It is Podman, which implements most of Docker's API.
    pub is_podman: bool,
    /// Its architecture in the words of Go, such as `amd64`.
    pub architecture: Option<String>,
    /// Its machine in the words of the kernel, such as `armv7l`. The kernel may be one of 64 bits where the engine is not.
    pub machine: Option<String>,
    /// The folder of its data on its host, such as `/var/lib/docker`.
    pub data_folder: Option<String>,
}

impl EngineInfo {
    /// The platform whose images it runs as its own. Go has one word for all ARM of 32 bits, so the machine says the variant.
    pub fn platform(&self) -> Option<Platform> {
        let architecture = self.architecture.as_deref()?;
        let machine = self.machine.as_deref().unwrap_or_default().to_ascii_lowercase();
        let variant = match architecture {
            "arm" if machine.starts_with("armv5") => "/v5",
            "arm" if machine.starts_with("armv6") => "/v6",
            "arm" if machine.starts_with("armv8") || machine == "aarch64" => "/v8",
            "arm" => "/v7",
            _ => "",
        };
        Some(Platform::parse(&format!("linux/{architecture}{variant}")))
    }
}

/// A connection to one engine.
pub(crate) struct Connection {
    transport: Transport,
    docker: bollard::Docker,
    /// The agent's folders as this process sees them.
    local_paths: MountPaths,
    /// Ids and names that the agent's own container may have; empty outside of containers.
    self_candidates: Vec<String>,
    agreed: Mutex<Option<Agreed>>,
    /// Held while the version is agreed on, with why the last attempt failed: callers that come together share one.
    agreeing: tokio::sync::Mutex<Option<CallError>>,
    /// The number of attempts to agree that have ended.
    attempts: AtomicU64,
    /// Notified when the engine has read its configuration again.
    reloaded: Notify,
    /// Held while the engine is asked before a start: callers that come together share one answer.
    acceptance: tokio::sync::Mutex<Option<Acceptance>>,
    /// Notified when the engine took no new connection before a start.
    doubted: Notify,
    /// The engine answered when the event watcher last found out.
    is_answering: AtomicBool,
}

/// An answer to whether the engine takes new connections.
struct Acceptance {
    ended: Instant,
    result: Result<(), CallError>,
}

/// The result of the last version agreement.
#[derive(Clone, Debug)]
struct Agreed {
    info: EngineInfo,
    defaults: Defaults,
    own: SelfContainer,
}

impl Connection {
    /// Opens no connection yet.
    pub(crate) fn new(address: Address, local_paths: MountPaths) -> Result<Self, CallError> {
        let transport = Transport::new(address);
        let docker = transport.bollard()?;
        let self_candidates = self_container::candidates();
        Ok(Self {
            transport,
            docker,
            local_paths,
            self_candidates,
            agreed: Mutex::default(),
            agreeing: tokio::sync::Mutex::default(),
            attempts: AtomicU64::new(0),
            reloaded: Notify::new(),
            acceptance: tokio::sync::Mutex::default(),
            doubted: Notify::new(),
            is_answering: AtomicBool::new(false),
        })
    }

    /// bollard's client, for use with [`Self::call`].
    pub(crate) fn docker(&self) -> &bollard::Docker {
        &self.docker
    }

    /// For requests that bollard cannot make. Callers agree on a version first: [`Self::api_version`].
    pub(crate) fn transport(&self) -> &Transport {
        &self.transport
    }

    /// One call of bollard, with a deadline, in the agreed version.
    pub(crate) async fn call<T>(
        &self,
        deadline: Duration,
        call: impl Future<Output = Result<T, bollard::errors::Error>> + Send,
    ) -> Result<T, CallError> {
        self.api_version().await?;
        within(deadline, async { call.await.map_err(CallError::from) }).await
    }

    /// A container as the engine describes it, by id or name.
    pub(crate) async fn inspect_container(
        &self,
        container: &str,
    ) -> Result<api::ContainerInspectResponse, CallError> {
        let options = None::<query::InspectContainerOptions>;
        self.call(DEADLINE, self.docker.inspect_container(container, options)).await
    }

    /// Like [`Self::inspect_container`]; `None` if there is no such container.
    pub(crate) async fn find_container(
        &self,
        container: &str,
    ) -> Result<Option<api::ContainerInspectResponse>, CallError> {
        match self.inspect_container(container).await {
            Ok(found) => Ok(Some(found)),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Whether the engine answered when the event watcher last found out.
    pub(crate) fn is_answering(&self) -> bool {
        self.is_answering.load(Ordering::Relaxed)
    }

    /// The event watcher has found out whether the engine answers.
    pub(crate) fn set_answering(&self, is_answering: bool) {
        self.is_answering.store(is_answering, Ordering::Relaxed);
    }

    /// Whether the engine answers.
    pub(crate) async fn ping(&self) -> Result<(), CallError> {
        within(PING, async { self.docker.ping().await.map_err(CallError::from) }).await.map(drop)
    }

    /// Whether the engine answers over a new connection. It may hold these back, for example because it has no file
    /// descriptor left, while it answers over open ones.
    pub(crate) async fn ping_over_new_connection(&self) -> Result<(), CallError> {
        match within(PING, self.transport.get_over_new_connection("/_ping")).await {
            Err(CallError::TimedOut(time)) => Err(CallError::Unreachable(format!(
                "a new connection was not answered within {} s: see the engine's log (`journalctl -u docker`)",
                time.as_secs()
            ))),
            result => result,
        }
    }

    /// Fails if the engine takes no new connection, as while it shuts down. Docker 20.10 closes its socket first, and then
    /// stops its containers; meanwhile it answers open connections, and would start a container again. The process would
    /// outlive the engine.
    pub(crate) async fn require_acceptance(&self) -> Result<(), CallError> {
        let mut last = self.acceptance.lock().await;
        if let Some(answer) = last.as_ref().filter(|answer| answer.ended.elapsed() < SHARED_ANSWER) {
            return answer.result.clone();
        }
        let result = self.ping_over_new_connection().await.map_err(|error| {
            CallError::Unreachable(format!(
                "the engine takes no new connections, as while it shuts down: {error}"
            ))
        });
        if result.is_err() {
            self.doubted.notify_one();
        }
        *last = Some(Acceptance { ended: Instant::now(), result: result.clone() });
        result
    }

    /// Waits until the engine has taken no new connection before a start.
    pub(crate) async fn doubted(&self) {
        self.doubted.notified().await;
    }

    /// The agreed version of the API. Agrees on one first if there is none.
    pub(crate) async fn api_version(&self) -> Result<ApiVersion, CallError> {
        if let Some(version) = self.transport.version() {
            return Ok(version);
        }
        let attempts = self.attempts.load(Ordering::Relaxed);
        let mut failed = self.agreeing.lock().await;
        if let Some(version) = self.transport.version() {
            return Ok(version);
        }
        let has_ended = self.attempts.load(Ordering::Relaxed) > attempts;
        if let Some(error) = failed.as_ref().filter(|_| has_ended) {
            return Err(error.clone());
        }
        // The future is large, and that of every call would be as large with it.
        let agreed = Box::pin(self.agree()).await;
        *failed = agreed.as_ref().err().cloned();
        self.attempts.fetch_add(1, Ordering::Relaxed);
        agreed
    }

    /// The agreed version of the API, if there is one, without a call.
    pub(crate) fn known_api_version(&self) -> Option<ApiVersion> {
        self.transport.version()
    }

    /// The engine has read its configuration again.
    pub(crate) fn note_reload(&self) {
        self.reloaded.notify_one();
    }

    /// Asks the engine about itself again after each reload, until it answers. Calls go on meanwhile with what was agreed on before: the
    /// answer may take longer than a probe has time.
    pub(crate) async fn follow_reloads(&self) {
        loop {
            self.reloaded.notified().await;
            while let Err(error) = self.agree_again().await {
                tracing::debug!(%error, "could not ask the engine about itself after a reload; asking again");
                sleep(RELOAD_PAUSE).await;
            }
        }
    }

    async fn agree_again(&self) -> Result<ApiVersion, CallError> {
        // An older answer must not replace a newer one.
        let _turn = self.agreeing.lock().await;
        Box::pin(self.agree()).await
    }

    /// Forgets the agreed version: another engine may answer next.
    pub(crate) fn forget_version(&self) {
        self.transport.set_version(None);
    }

    /// The facts that the engine stated about itself; `None` while it is unreachable.
    pub(crate) fn info(&self) -> Option<EngineInfo> {
        self.transport.version()?;
        self.agreed().map(|agreed| agreed.info)
    }

    /// The values that the engine fills in by itself.
    pub(crate) fn defaults(&self) -> Defaults {
        self.agreed().map(|agreed| agreed.defaults).unwrap_or_default()
    }

    /// Whether the engine is Podman.
    pub(crate) fn is_podman(&self) -> bool {
        self.agreed().is_some_and(|agreed| agreed.info.is_podman)
    }

    /// The folder of the engine's data on its host.
    pub(crate) fn data_folder(&self) -> Option<String> {
        self.agreed()?.info.data_folder
    }

    /// The container that this agent runs in.
    pub(crate) fn own_container(&self) -> Option<ContainerId> {
        self.agreed()?.own.id
    }

    /// Why this agent does not stop a container, if it runs in it or may do so.
    pub(crate) fn stop_objection(&self, id: &ContainerId) -> Option<&'static str> {
        self.agreed()?.own.stop_objection(id)
    }

    /// The agent's folders as this process sees them.
    pub(crate) fn local_paths(&self) -> &MountPaths {
        &self.local_paths
    }

    /// The agent's folders as the engine's host sees them.
    pub(crate) fn host_paths(&self) -> MountPaths {
        self.agreed().and_then(|agreed| agreed.own.paths).unwrap_or_else(|| self.local_paths.clone())
    }

    /// Why the engine cannot reach a folder of the agent that one of these mounts needs, if it cannot.
    pub(crate) fn unreachable_mount(&self, mounts: &[Mount]) -> Option<String> {
        let own = self.agreed()?.own;
        mounts.iter().find_map(|mount| match &mount.source {
            MountSource::Content(_) | MountSource::InPlace { secret: false, folder: _ } => {
                own.objection(&self.local_paths.content)
            }
            MountSource::Secret(_) | MountSource::InPlace { secret: true, folder: _ } => {
                own.objection(&self.local_paths.secret)
            }
            MountSource::AppFolder(_) => own.objection(&self.local_paths.app),
            MountSource::Volume { .. }
            | MountSource::Anonymous
            | MountSource::Image(_)
            | MountSource::Bind { .. }
            | MountSource::Empty
            | MountSource::Tmpfs { .. } => None,
        })
    }

    /// Why the host cannot reach the agent's state directory, if it cannot.
    pub(crate) fn unreachable_state(&self) -> Option<String> {
        self.agreed()?.own.objection(&self.local_paths.content)
    }

    async fn agree(&self) -> Result<ApiVersion, CallError> {
        // Together: the engine takes its time for its version, because it asks its parts for theirs.
        let (found, info, own) = tokio::try_join!(
            within(ANSWER, async { self.docker.version().await.map_err(CallError::from) }),
            within(DEADLINE, async { self.docker.info().await.map_err(CallError::from) }),
            self_container::find(&self.docker, &self.self_candidates, &self.local_paths),
        )?;
        let parse = |text: &Option<String>| text.as_deref().and_then(ApiVersion::parse);
        let newest = parse(&found.api_version).ok_or_else(|| {
            CallError::Unreachable("the engine does not state the version of its API".to_owned())
        })?;
        let oldest = parse(&found.min_api_version).unwrap_or(OLDEST);
        if newest < OLDEST || oldest > NEWEST {
            return Err(CallError::Status {
                code: 400,
                message: format!(
                    "the engine supports API versions {oldest} to {newest}, this agent {OLDEST} to {NEWEST}"
                ),
            });
        }
        let api = newest.min(NEWEST);
        let unsupported_limits = unsupported_limits(&info);
        let mut components = found.components.iter().flatten();
        let is_podman = components.any(|component| component.name.to_lowercase().contains("podman"));
        let registries = info.registry_config.unwrap_or_default();
        let indexes = registries.index_configs.into_iter().flatten();
        let networks = registries.insecure_registry_cidrs.unwrap_or_default();
        let swarm = info.swarm.unwrap_or_default();
        let is_swarm_manager = swarm.control_available == Some(true);
        let is_swarm_node = swarm.local_node_state == Some(api::LocalNodeState::ACTIVE);
        let defaults = Defaults {
            unsupported_limits,
            // Podman writes any limit as a quota, which the kernel accepts.
            cpus: info.ncpu.filter(|_| !is_podman).and_then(|cpus| u64::try_from(cpus).ok()),
            is_containerd_store: info
                .driver_status
                .iter()
                .flatten()
                .flatten()
                .any(|it| it == CONTAINERD_STORE),
            registries: indexes.map(|(name, index)| (name, index.secure != Some(false))).collect(),
            insecure_networks: networks.iter().filter_map(|network| IpNetwork::parse(network)).collect(),
            log_driver: info.logging_driver.unwrap_or_else(|| "json-file".to_owned()),
            host_name: info.name.unwrap_or_default(),
            is_swarm_manager,
            is_swarm_worker: is_swarm_node && !is_swarm_manager,
        };
        if is_podman {
            let version = found.version.as_deref().unwrap_or_default();
            tracing::warn!(
                version,
                "the engine is Podman; docs/container.md lists what is known to work on it"
            );
        }
        let architecture = found.arch.filter(|name| !name.is_empty());
        let version = found.version.unwrap_or_default();
        let info = EngineInfo {
            version,
            api,
            is_podman,
            architecture,
            machine: info.architecture,
            data_folder: info.docker_root_dir.filter(|folder| !folder.is_empty()),
        };
        let agreed = Agreed { info, defaults, own };
        *self.agreed.lock().unwrap_or_else(PoisonError::into_inner) = Some(agreed);
        self.transport.set_version(Some(api));
        Ok(api)
    }

    fn agreed(&self) -> Option<Agreed> {
        self.agreed.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// The limits that the kernel of the host cannot apply. The engine accepts them, and stores none.
fn unsupported_limits(info: &api::SystemInfo) -> BTreeSet<LimitKind> {
    let all = [
        (LimitKind::Memory, info.memory_limit),
        (LimitKind::MemorySwap, info.swap_limit),
        (LimitKind::Cpus, info.cpu_cfs_quota),
        (LimitKind::CpuShares, info.cpu_shares),
        (LimitKind::Cpuset, info.cpu_set),
        (LimitKind::Pids, info.pids_limit),
    ];
    all.into_iter().filter(|(_, is_supported)| *is_supported == Some(false)).map(|(kind, _)| kind).collect()
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection").field("transport", &self.transport).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn machine_says_the_variant_of_32_bit_arm() {
        for (architecture, machine, expected) in [
            ("amd64", "x86_64", "linux/amd64"),
            ("arm64", "aarch64", "linux/arm64"),
            ("arm", "armv7l", "linux/arm/v7"),
            ("arm", "armv6l", "linux/arm/v6"),
            ("arm", "armv5tel", "linux/arm/v5"),
            ("arm", "aarch64", "linux/arm/v8"),
            ("arm", "", "linux/arm/v7"),
        ] {
            let info = EngineInfo {
                version: String::new(),
                api: NEWEST,
                is_podman: false,
                architecture: Some(architecture.to_owned()),
                machine: Some(machine.to_owned()),
                data_folder: None,
            };
            assert_eq!(info.platform(), Some(Platform::parse(expected)), "{machine}");
        }
    }
}
