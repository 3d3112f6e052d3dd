//! A simulated host as a manager of a simulated Swarm. The faults of the host hold for its calls, too.

use std::{collections::BTreeMap, future::pending, sync::Arc};

use driftless_model::{AgentId, AppName, LeftInSwarm, Observed, ObservedNetwork, SpecHash, label};
use driftless_plan::Action;
use http::Method;
use serde::Deserialize;

use super::{client::Client, membership::Membership};
use crate::{
    call_error::CallError,
    docker::{Effect, ObserveScope},
    error::Error,
    from_engine,
    mount_paths::MountPaths,
    registry_logins::RegistryLogins,
    swarm::{self, ManagerApi, SwarmActions, ranges},
    to_engine,
};

/// A client's connection to a host that is a manager.
pub(super) struct Manager {
    client: Client,
    membership: Membership,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct NetworkEntry {
    id: String,
    name: String,
    labels: BTreeMap<String, String>,
    #[serde(rename = "IPAM")]
    ipam: bollard::models::Ipam,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct CreatedNetwork {
    id: String,
}

impl NetworkEntry {
    fn label(&self, name: &str) -> Option<String> {
        self.labels.get(name).cloned()
    }

    fn app(&self) -> Option<AppName> {
        self.label(label::APPLICATION).map(AppName)
    }

    fn observed(&self) -> ObservedNetwork {
        ObservedNetwork {
            id: self.id.clone(),
            agent: self.label(label::AGENT).map(AgentId),
            app: self.app(),
            spec: self.label(label::SPEC).map(SpecHash),
            addresses: from_engine::addresses(Some(&self.ipam)),
            ..ObservedNetwork::default()
        }
    }
}

impl Manager {
    pub(super) fn new(client: &Client, membership: Membership) -> Self {
        Self { client: client.clone(), membership }
    }

    /// The Swarm as far as one application is concerned.
    pub(super) async fn observe(&self, app: &AppName, scope: &ObserveScope) -> Result<Observed, Error> {
        let observed = async {
            let networks = self.networks().await?;
            let networks = networks.iter().filter(|network| {
                network.app().as_ref() == Some(app) || scope.networks.contains(&network.name)
            });
            let mut networks = networks.map(|network| (network.name.clone(), network.observed())).collect();
            let swarm = swarm::observe(self, app, scope, &mut networks).await?;
            ranges::note_unallocated(self, &mut networks).await?;
            Ok(Observed { swarm: Some(Box::new(swarm)), networks, ..Observed::default() })
        };
        observed.await.map_err(|error: CallError| error.classify(&format!("observe {app}")))
    }

    /// The objects in the Swarm of an application that runs on the host itself.
    pub(super) async fn objects_of(&self, app: &AppName, scope: &ObserveScope) -> Result<LeftInSwarm, Error> {
        let found = swarm::objects_of(self, app, scope).await;
        found.map_err(|error| error.classify(&format!("observe {app}")))
    }

    /// Performs a step for the Swarm. `None`: it is one for the host.
    pub(super) async fn perform(self, app: &AppName, action: &Action) -> Option<Result<Effect, Error>> {
        let doing = action.to_string();
        let result = match action {
            Action::Swarm(action) => {
                SwarmActions::new(&Arc::new(self), RegistryLogins::default()).perform(app, action).await
            }
            Action::CreateNetwork { name, network, project, addresses }
                if network.driver.as_deref() == Some("overlay") =>
            {
                let created = self.create_network((app, project), name, network, *addresses).await;
                created.map_err(|error| error.classify(&doing))
            }
            Action::RemoveNetwork { id, .. } if id.starts_with("network") => {
                self.remove_network(id).await.map_err(|error| error.classify(&doing))
            }
            _ => return None,
        };
        Some(result)
    }

    async fn networks(&self) -> Result<Vec<NetworkEntry>, CallError> {
        let body = self.send(Method::GET, "/networks", &[], Vec::new()).await?;
        serde_json::from_slice(&body).map_err(|error| CallError::unreachable(&error))
    }

    async fn create_network(
        &self,
        (app, project): (&AppName, &str),
        name: &str,
        network: &driftless_model::Network,
        addresses: Option<u64>,
    ) -> Result<Effect, CallError> {
        let same = |found: &NetworkEntry| {
            found.app().as_ref() == Some(app) && found.observed().spec == Some(SpecHash::of(network))
        };
        if self.networks().await?.iter().any(|found| found.name == name && same(found)) {
            return Ok(Effect::Done);
        }
        let mut body = to_engine::network_body(name, network, (app, project), self.client.host.agent());
        if let Some(addresses) = addresses {
            body.ipam = ranges::choose(self, addresses).await?.or(body.ipam);
        }
        let body = serde_json::to_vec(&body).map_err(|error| CallError::unreachable(&error))?;
        let created = self.send(Method::POST, "/networks/create", &[], body).await?;
        let created: CreatedNetwork =
            serde_json::from_slice(&created).map_err(|error| CallError::unreachable(&error))?;
        if ranges::is_allocated(self, &created.id).await? {
            return Ok(Effect::Done);
        }
        self.remove_network(&created.id).await?;
        Err(CallError::Status { code: 409, message: ranges::NO_RANGE.to_owned() })
    }

    async fn remove_network(&self, id: &str) -> Result<Effect, CallError> {
        match self.send(Method::DELETE, &format!("/networks/{id}"), &[], Vec::new()).await {
            Ok(_) => Ok(Effect::Done),
            Err(error) if error.is_not_found() => Ok(Effect::Done),
            Err(error) => Err(error),
        }
    }
}

impl ManagerApi for Manager {
    async fn send(
        &self,
        method: Method,
        path: &str,
        _headers: &[(&'static str, String)],
        body: Vec<u8>,
    ) -> Result<Vec<u8>, CallError> {
        let unreachable = |error: Error| CallError::Unreachable(error.to_string());
        self.client.call(&format!("{method} {path}")).await.map_err(unreachable)?;
        let Membership { swarm, node, paths: _ } = &self.membership;
        let answer = swarm.call(node, &method, path, &body);
        if method != Method::GET {
            if self.client.count_step() {
                pending::<()>().await;
            }
            if answer.is_ok() && self.client.take_lost_answer() {
                return Err(CallError::Unreachable("connection reset by peer".to_owned()));
            }
        }
        serde_json::to_vec(&answer?).map_err(|error| CallError::unreachable(&error))
    }

    fn paths(&self) -> &MountPaths {
        &self.membership.paths
    }
}
