//! Facts about an engine and its host, for `driftless doctor`. Nothing here changes the engine.

use std::collections::{BTreeMap, BTreeSet};

use bollard::query_parameters as query;

use crate::{
    ApiVersion, Error,
    call_error::CallError,
    deadline::{ANSWER, DEADLINE, within},
    transport::{Address, Transport},
};
use driftless_config::DockerHost;
use driftless_model::{AgentId, Timestamp, label};

/// Facts about an engine and its host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EngineReport {
    /// The version of the engine, such as `28.2.2`.
    pub version: String,
    /// The newest version of the API. `None`: the engine does not state it.
    pub api: Option<ApiVersion>,
    /// The storage driver, such as `overlay2`.
    pub storage_driver: String,
    /// The folder of the engine on its host.
    pub root_dir: String,
    /// The time of day on the engine's host.
    pub time: Option<Timestamp>,
    /// The engine runs without root.
    pub is_rootless: bool,
    /// The agents that containers on the engine belong to, with the names of these containers.
    pub agents: BTreeMap<AgentId, BTreeSet<String>>,
}

/// Asks the engine at this address about itself.
///
/// # Errors
///
/// If the address is invalid, nothing answers, or the engine refuses the request. The message of a missing socket or
/// permission says what to do.
pub async fn engine_report(host: &DockerHost) -> Result<EngineReport, Error> {
    let doing = format!("ask the engine at {} about itself", host.address);
    let address =
        Address::parse(host).map_err(|message| Error::Rejected { doing: doing.clone(), message })?;
    ask(address).await.map_err(|error| error.classify(&doing))
}

async fn ask(address: Address) -> Result<EngineReport, CallError> {
    let docker = Transport::new(address).bollard()?;
    let version = within(ANSWER, async { docker.version().await.map_err(CallError::from) }).await?;
    let info = within(DEADLINE, async { docker.info().await.map_err(CallError::from) }).await?;
    let all = query::ListContainersOptions { all: true, ..query::ListContainersOptions::default() };
    let containers =
        within(DEADLINE, async { docker.list_containers(Some(all)).await.map_err(CallError::from) }).await?;
    let mut agents: BTreeMap<AgentId, BTreeSet<String>> = BTreeMap::new();
    for container in containers {
        let Some(id) = container.labels.and_then(|mut labels| labels.remove(label::AGENT)) else { continue };
        if id.is_empty() {
            continue;
        }
        let name = container.names.unwrap_or_default().into_iter().next().or(container.id);
        let name = name.unwrap_or_default().trim_start_matches('/').to_owned();
        agents.entry(AgentId::from(id.as_str())).or_default().insert(name);
    }
    let options = info.security_options.unwrap_or_default();
    Ok(EngineReport {
        version: version.version.unwrap_or_default(),
        api: version.api_version.as_deref().and_then(ApiVersion::parse),
        storage_driver: info.driver.unwrap_or_default(),
        root_dir: info.docker_root_dir.unwrap_or_default(),
        time: info.system_time.as_deref().and_then(Timestamp::parse),
        is_rootless: options.iter().any(|option| option.contains("rootless")),
        agents,
    })
}
