//! The one list of all containers, shared between those who ask at the same time. It is asked for without
//! a filter, because names and ports that others hold matter as much as what is ours.

use std::{
    collections::BTreeMap,
    net::IpAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use http::Method;
use serde::Deserialize;

use crate::{
    call_error::CallError,
    engine::{DEADLINE, Inner, within},
};
use driftless_model::{AgentId, AppName, ContainerId, Health, Protocol};

/// All containers of the host at one moment.
#[derive(Debug, Default)]
pub(crate) struct ContainerList {
    pub containers: BTreeMap<ContainerId, Arc<ListedContainer>>,
    /// Those that carry our label, by application.
    pub by_app: BTreeMap<AppName, Vec<ContainerId>>,
}

/// What a list tells of one container: enough to see that it changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ListedContainer {
    pub name: String,
    pub app: Option<AppName>,
    pub agent: Option<AgentId>,
    /// Of a container that Docker Compose made for a service, and not for one command.
    pub project: Option<String>,
    pub image_id: String,
    pub state: String,
    pub health: Health,
    /// Names and ids.
    pub networks: Vec<(String, String)>,
    /// Published on the host now.
    pub ports: Vec<(u16, Protocol, Option<IpAddr>)>,
}

impl ListedContainer {
    pub(crate) fn is_running(&self) -> bool {
        matches!(self.state.as_str(), "running" | "paused" | "restarting")
    }
}

/// Lets everybody who asks while a list is awaited share the next one.
#[derive(Debug, Default)]
pub(crate) struct SharedList {
    tickets: AtomicU64,
    // A lock of Tokio's, held while the list is awaited: it is the queue of those who share it.
    last: tokio::sync::Mutex<Landed>,
}

#[derive(Debug)]
struct Landed {
    /// All tickets up to this one were drawn before the list was asked for.
    covers: u64,
    listing: Result<Arc<ContainerList>, CallError>,
}

impl Default for Landed {
    fn default() -> Self {
        Self { covers: 0, listing: Ok(Arc::default()) }
    }
}

impl Inner {
    /// A list that was asked for after this call began.
    pub(crate) async fn listing(&self) -> Result<Arc<ContainerList>, CallError> {
        let ticket = self.list.tickets.fetch_add(1, Ordering::AcqRel).saturating_add(1);
        let mut last = self.list.last.lock().await;
        if last.covers >= ticket {
            return last.listing.clone();
        }
        let covers = self.list.tickets.load(Ordering::Acquire);
        let before = last.listing.clone().unwrap_or_default();
        let listing = self.list(&before).await.map(Arc::new);
        if let Ok(listing) = &listing {
            self.cache.keep_only(|id| listing.containers.contains_key(id));
        }
        *last = Landed { covers, listing: listing.clone() };
        listing
    }

    /// What is as it was `before` is held once, here and in the cache.
    async fn list(&self, before: &ContainerList) -> Result<ContainerList, CallError> {
        self.agree().await?;
        let found: Vec<Row> =
            within(DEADLINE, self.transport.ask(Method::GET, "/containers/json?all=1", Vec::new())).await?;
        let mut listing = ContainerList::default();
        for Row(id, listed) in found {
            if let Some(app) = &listed.app {
                listing.by_app.entry(app.clone()).or_default().push(id.clone());
            }
            let known = before.containers.get(&id).filter(|it| ***it == listed);
            let listed = known.map_or_else(|| Arc::new(listed), Arc::clone);
            listing.containers.insert(id, listed);
        }
        Ok(listing)
    }
}

/// One line of the list. Thousands of them are not held twice.
#[derive(Deserialize)]
#[serde(from = "Summary")]
struct Row(ContainerId, ListedContainer);

/// The fields that we read. Bollard's own type holds three times as much for each container.
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
}

#[derive(Deserialize, Default)]
struct Labels {
    #[serde(rename = "driftless.application")]
    app: Option<AppName>,
    #[serde(rename = "driftless.agent")]
    agent: Option<AgentId>,
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
    #[serde(rename = "IP")]
    ip: Option<IpAddr>,
    public_port: Option<u16>,
    #[serde(rename = "Type", default)]
    protocol: String,
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
        let Summary { id, names, image_id, state, status, labels, ports, network_settings } = summary;
        let Labels { app, agent, project, service, oneoff } = labels.unwrap_or_default();
        let is_one_off = oneoff.is_some_and(|it| it.eq_ignore_ascii_case("true"));
        let project = project.filter(|_| service.is_some() && !is_one_off);
        // Links appear as further names with two slashes.
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
        let mut ports: Vec<_> = ports
            .into_iter()
            .flatten()
            .filter_map(|it| {
                let protocol = match it.protocol.as_str() {
                    "udp" => Protocol::Udp,
                    "sctp" => Protocol::Sctp,
                    _ => Protocol::Tcp,
                };
                Some((it.public_port?, protocol, it.ip.filter(|it| !it.is_unspecified())))
            })
            .collect();
        ports.sort_unstable();
        ports.dedup();
        let networks = network_settings
            .and_then(|it| it.networks)
            .into_iter()
            .flatten()
            .map(|(name, endpoint)| (name, endpoint.id))
            .collect();
        Self(
            ContainerId(id),
            ListedContainer { name, app, agent, project, image_id, state, health, networks, ports },
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use driftless_model::label;

    #[test]
    fn the_labels_that_are_read_are_the_labels_that_are_written() {
        let labels: Labels = serde_json::from_value(serde_json::json!({
            (label::APPLICATION): "shop", (label::AGENT): "a1", "other": "x",
            (label::compose::PROJECT): "p", (label::compose::SERVICE): "web", (label::compose::ONEOFF): "False",
        }))
        .unwrap();
        assert_eq!(labels.app, Some("shop".into()));
        assert_eq!(labels.agent, Some("a1".into()));
        let compose = [labels.project, labels.service, labels.oneoff].map(Option::unwrap);
        assert_eq!(compose, ["p", "web", "False"]);
    }
}
