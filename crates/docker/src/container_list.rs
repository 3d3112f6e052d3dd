//! The list of all containers. It has no filter, because the names and ports of other containers matter too.

use std::{collections::BTreeMap, net::IpAddr, sync::Arc};

use driftless_model::{
    AgentId, AppName, ComposeService, ContainerId, Health, HeldNames, HostMount, HostSource,
    MountingContainer, NameHolder, Protocol, WorkloadName,
};
use http::Method;
use serde::{Deserialize, Serialize, de::IgnoredAny};
use serde_json::json;

use crate::{
    call_error::CallError,
    catalogue::{List, Reading},
    connection::Connection,
    deadline::{DEADLINE, within},
    percent_encoding,
};

/// All containers of the host at one moment.
#[derive(Debug, Default)]
pub(crate) struct ContainerList {
    pub containers: BTreeMap<ContainerId, Arc<ListedContainer>>,
    /// Those with the application's label, by application.
    pub by_app: BTreeMap<AppName, Vec<ContainerId>>,
    /// The holders of all names.
    pub names: Arc<HeldNames>,
    /// Those that mount a volume or a path of the host.
    pub mounting: Arc<Vec<MountingContainer>>,
}

impl List for ContainerList {
    fn count(&self) -> usize {
        self.containers.len()
    }
}

/// An entry of the list: enough to see that the container changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ListedContainer {
    pub name: String,
    pub app: Option<AppName>,
    pub agent: Option<AgentId>,
    /// The Compose project, unless the container was made for a single command (`docker compose run`).
    pub project: Option<String>,
    pub image_id: String,
    pub state: String,
    pub health: Health,
    /// Names and ids.
    pub networks: Vec<(String, String)>,
    /// It replaces the agent's own container.
    pub replaces_agent: bool,
    /// Published on the host now.
    pub ports: Vec<(u16, Protocol, Option<IpAddr>)>,
    /// The workload in its labels, or its service of Docker Compose. Empty: there is none.
    #[serde(default)]
    pub workload: String,
    /// Volumes and paths of the host.
    #[serde(default)]
    pub mounts: Vec<HostMount>,
    /// It only shows whether the engine accepts a definition, and is removed at once. The list leaves it out.
    #[serde(skip)]
    pub is_trial: bool,
}

impl ListedContainer {
    pub(crate) fn is_running(&self) -> bool {
        matches!(self.state.as_str(), "running" | "paused" | "restarting")
    }
}

/// Whether a container with the label of a trial may be one by its state. An image may have the label, and its containers run. A trial is
/// never started; the engine lists it also while it removes it, and after it has failed to.
pub(crate) fn may_be_trial(state: &str) -> bool {
    matches!(state, "created" | "removing" | "dead")
}

impl ContainerList {
    /// Reads all containers, or those that have changed. Entries equal to those `before` are shared with them.
    pub(crate) async fn read(connection: &Connection, reading: Reading<Self>) -> Result<Self, CallError> {
        connection.api_version().await?;
        let (before, mut containers) = match &reading {
            Reading::All { before } => (before, BTreeMap::new()),
            Reading::Changed { before, keys } => {
                let unchanged = before.containers.iter().filter(|(id, _)| !keys.contains(id.as_str()));
                (before, unchanged.map(|(id, listed)| (id.clone(), Arc::clone(listed))).collect())
            }
        };
        let mut rows: Vec<Row> = Vec::new();
        for keys in reading.questions() {
            let filter = keys.map(|keys| percent_encoding::encode(&json!({ "id": keys }).to_string()));
            let filter = filter.map(|filter| format!("&filters={filter}")).unwrap_or_default();
            let path = format!("/containers/json?all=1{filter}");
            let request = connection.transport().send_json(Method::GET, &path, Vec::new());
            rows.append(&mut within(DEADLINE, request).await?);
        }
        for Row(id, listed) in rows.into_iter().filter(|Row(_, listed)| !listed.is_trial) {
            let known = before.containers.get(&id).filter(|known| ***known == listed);
            let listed = known.map_or_else(|| Arc::new(listed), Arc::clone);
            containers.insert(id, listed);
        }
        Ok(Self::new(containers))
    }

    fn new(containers: BTreeMap<ContainerId, Arc<ListedContainer>>) -> Self {
        let mut by_app: BTreeMap<AppName, Vec<ContainerId>> = BTreeMap::new();
        for (id, listed) in &containers {
            if let Some(app) = &listed.app {
                by_app.entry(app.clone()).or_default().push(id.clone());
            }
        }
        let holder = |(id, listed): (&ContainerId, &Arc<ListedContainer>)| {
            let service =
                |project| ComposeService { project, service: WorkloadName(listed.workload.clone()) };
            let (app, project) = (listed.app.clone(), listed.project.clone().map(service));
            (listed.name.clone(), NameHolder { id: id.clone(), app, project })
        };
        let names = Arc::new(containers.iter().map(holder).collect());
        let mounting = containers.iter().filter(|(_, listed)| !listed.mounts.is_empty());
        let mounting = mounting.map(|(id, listed)| MountingContainer {
            id: id.clone(),
            name: listed.name.clone(),
            app: listed.app.clone(),
            agent: listed.agent.clone(),
            workload: WorkloadName(listed.workload.clone()),
            is_up: listed.is_running(),
            mounts: listed.mounts.clone(),
        });
        let mounting = Arc::new(mounting.collect());
        Self { containers, by_app, names, mounting }
    }
}

/// One entry, converted while it is read: a host may have thousands of them.
#[derive(Deserialize)]
#[serde(from = "Summary")]
struct Row(ContainerId, ListedContainer);

/// The fields that are read. bollard's own type is three times as large.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase", default)]
#[derive(Default)]
struct Summary {
    id: String,
    names: Option<Vec<String>>,
    #[serde(rename = "ImageID")]
    image_id: String,
    state: String,
    status: String,
    labels: Option<Labels>,
    ports: Option<Vec<SummaryPort>>,
    network_settings: Option<SummaryNetworks>,
    mounts: Option<Vec<ListedMount>>,
}

#[derive(Deserialize, Default)]
struct Labels {
    #[serde(rename = "driftless.application")]
    app: Option<AppName>,
    #[serde(rename = "driftless.agent")]
    agent: Option<AgentId>,
    #[serde(rename = "driftless.update")]
    update: Option<String>,
    #[serde(rename = "driftless.trial")]
    trial: Option<String>,
    #[serde(rename = "driftless.workload")]
    workload: Option<String>,
    #[serde(rename = "com.docker.compose.project")]
    project: Option<String>,
    #[serde(rename = "com.docker.compose.service")]
    service: Option<String>,
    #[serde(rename = "com.docker.compose.oneoff")]
    oneoff: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct SummaryPort {
    /// Docker Engine 29 sends an empty text for a port that is exposed and not published; older engines leave it out.
    #[serde(rename = "IP", default)]
    ip: Option<String>,
    public_port: Option<u16>,
    #[serde(rename = "Type", default)]
    protocol: String,
}

/// An old Podman lists only the targets of mounts.
#[derive(Deserialize)]
#[serde(untagged)]
enum ListedMount {
    Known(SummaryMount),
    Unknown(IgnoredAny),
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct SummaryMount {
    #[serde(rename = "Type", default)]
    kind: String,
    #[serde(default)]
    name: String,
    #[serde(default)]
    source: String,
    #[serde(rename = "RW", default = "is_written")]
    is_written: bool,
}

fn is_written() -> bool {
    true
}

impl ListedMount {
    fn on_host(self) -> Option<HostMount> {
        let SummaryMount { kind, name, source, is_written } = match self {
            Self::Known(mount) => mount,
            Self::Unknown(IgnoredAny) => return None,
        };
        let source = match kind.as_str() {
            "volume" if !name.is_empty() => HostSource::Volume(name),
            "bind" if !source.is_empty() => HostSource::Path(source),
            _ => return None,
        };
        Some(HostMount { source, read_only: !is_written })
    }
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "PascalCase", default)]
struct SummaryNetworks {
    networks: Option<BTreeMap<String, SummaryEndpoint>>,
}

#[derive(Deserialize)]
struct SummaryEndpoint {
    #[serde(rename = "NetworkID", default)]
    id: String,
}

impl From<Summary> for Row {
    fn from(summary: Summary) -> Self {
        let Summary { id, names, image_id, state, status, labels, ports, network_settings, mounts } = summary;
        let Labels { app, agent, update, trial, workload, project, service, oneoff } =
            labels.unwrap_or_default();
        let is_one_off = oneoff.is_some_and(|it| it.eq_ignore_ascii_case("true"));
        let project = project.filter(|_| service.is_some() && !is_one_off);
        let workload = workload.or(service).unwrap_or_default();
        // Links are further names with two slashes.
        let name = names
            .into_iter()
            .flatten()
            .map(|it| it.trim_start_matches('/').to_owned())
            .find(|it| !it.contains('/'))
            .unwrap_or_default();
        let health = if status.contains("(unhealthy)") {
            Health::Unhealthy
        } else if status.contains("(health: starting)") {
            Health::Starting
        } else {
            Health::Healthy
        };
        let is_trial = trial.is_some() && app.is_none() && may_be_trial(&state);
        let mut ports: Vec<_> = ports
            .into_iter()
            .flatten()
            .filter_map(|port| {
                let protocol = match port.protocol.as_str() {
                    "udp" => Protocol::Udp,
                    "sctp" => Protocol::Sctp,
                    _ => Protocol::Tcp,
                };
                let ip: Option<IpAddr> = port.ip.and_then(|ip| ip.parse().ok());
                Some((port.public_port?, protocol, ip))
            })
            .collect();
        ports.sort_unstable();
        ports.dedup();
        // The engine lists them in any order.
        let mut mounts: Vec<HostMount> =
            mounts.into_iter().flatten().filter_map(ListedMount::on_host).collect();
        mounts.sort_unstable();
        mounts.dedup();
        let networks = network_settings
            .and_then(|it| it.networks)
            .into_iter()
            .flatten()
            .map(|(name, endpoint)| (name, endpoint.id))
            .collect();
        Self(
            ContainerId(id),
            ListedContainer {
                name,
                app,
                agent,
                project,
                image_id,
                state,
                health,
                networks,
                replaces_agent: update.is_some(),
                ports,
                workload,
                mounts,
                is_trial,
            },
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use driftless_model::label;

    #[test]
    fn ports_without_an_address_are_read() {
        let ports = serde_json::json!([
            { "IP": "", "PrivatePort": 5432, "Type": "tcp" },
            { "PrivatePort": 6379, "Type": "tcp" },
            { "IP": "", "PrivatePort": 53, "PublicPort": 53, "Type": "udp" },
            { "IP": "0.0.0.0", "PrivatePort": 80, "PublicPort": 8080, "Type": "tcp" },
            { "IP": "::", "PrivatePort": 80, "PublicPort": 8080, "Type": "tcp" },
            { "IP": "127.0.0.1", "PrivatePort": 80, "PublicPort": 8081, "Type": "tcp" },
        ]);
        let Row(_, listed) =
            serde_json::from_value(serde_json::json!({ "Id": "c1", "Names": ["/db"], "Ports": ports }))
                .unwrap();
        let [every, every_six, local] = ["0.0.0.0", "::", "127.0.0.1"].map(|address| address.parse().ok());
        assert_eq!(
            listed.ports,
            [
                (53, Protocol::Udp, None),
                (8080, Protocol::Tcp, every),
                (8080, Protocol::Tcp, every_six),
                (8081, Protocol::Tcp, local)
            ]
        );
    }

    #[test]
    fn mounts_of_the_host_are_read_in_one_order() {
        let listed = |mounts: serde_json::Value| {
            let row = serde_json::json!({ "Id": "c1", "Names": ["/db"], "Mounts": mounts });
            let Row(_, listed) = serde_json::from_value(row).unwrap();
            listed.mounts
        };
        let volume = serde_json::json!({
            "Type": "volume", "Name": "shop_data", "Source": "/var/lib/docker/volumes/shop_data/_data",
            "Destination": "/data", "RW": true,
        });
        let bind = serde_json::json!({ "Type": "bind", "Source": "/srv/media", "Destination": "/media", "RW": false });
        let other = serde_json::json!({ "Type": "tmpfs", "Destination": "/tmp", "RW": true });
        let expected = [
            HostMount { source: HostSource::Volume("shop_data".to_owned()), read_only: false },
            HostMount { source: HostSource::Path("/srv/media".to_owned()), read_only: true },
        ];
        assert_eq!(listed(serde_json::json!([volume, bind, other])), expected);
        assert_eq!(listed(serde_json::json!([bind, other, volume])), expected);
        assert!(listed(serde_json::json!(["/data"])).is_empty());
        assert!(listed(serde_json::Value::Null).is_empty());
    }

    #[test]
    fn holder_of_a_name_has_its_compose_project() {
        let labels =
            serde_json::json!({ (label::compose::PROJECT): "docker", (label::compose::SERVICE): "db" });
        let row = serde_json::json!({ "Id": "c1", "Names": ["/docker-db-1"], "Labels": labels });
        let Row(id, listed) = serde_json::from_value(row).unwrap();
        let list = ContainerList::new([(id, Arc::new(listed))].into());
        let expected = ComposeService { project: "docker".to_owned(), service: "db".into() };
        assert_eq!(list.names["docker-db-1"].project, Some(expected));
    }

    #[test]
    fn container_of_an_image_with_the_label_of_a_trial_is_listed() {
        for (app, state, expected) in [
            (None, "created", true),
            (None, "removing", true),
            (None, "dead", true),
            (None, "running", false),
            (None, "exited", false),
            (Some("shop"), "created", false),
        ] {
            let labels = serde_json::json!({ (label::TRIAL): "a1", (label::APPLICATION): app });
            let row = serde_json::json!({ "Id": "c1", "State": state, "Labels": labels });
            let Row(_, listed) = serde_json::from_value(row).unwrap();
            assert_eq!(listed.is_trial, expected, "{app:?} {state}");
        }
    }

    #[test]
    fn labels_are_read_under_the_names_they_are_written() {
        let labels: Labels = serde_json::from_value(serde_json::json!({
            (label::APPLICATION): "shop", (label::AGENT): "a1", (label::UPDATE): "new", "other": "x",
            (label::WORKLOAD): "db", (label::TRIAL): "a2",
            (label::compose::PROJECT): "p", (label::compose::SERVICE): "web", (label::compose::ONEOFF): "False",
        }))
        .unwrap();
        assert_eq!(labels.app, Some("shop".into()));
        assert_eq!(labels.agent, Some("a1".into()));
        assert_eq!(labels.update, Some("new".into()));
        assert_eq!(labels.trial, Some("a2".into()));
        assert_eq!(labels.workload, Some("db".into()));
        let compose = [labels.project, labels.service, labels.oneoff].map(Option::unwrap);
        assert_eq!(compose, ["p", "web", "False"]);
    }
}
