//! The steps of a plan as calls to the engine. A step whose result is already there succeeds. Nothing is forced, no named
//! volume is removed, and before a container or network is touched its ownership is checked.

use std::sync::Arc;

use driftless_clock::Clock;
use driftless_model::{AgentId, AppName};
use driftless_plan::{Action, Creation};

use crate::{
    agent_claims::OwnAgents, attribution::Attribution, cache::Cache, catalogue::Settled,
    connection::Connection, docker::Effect, error::Error, exec::Exec, helper_image, inventory::Inventory,
    pull::Puller, registry_logins::RegistryLogins, swarm::SwarmActions,
};

mod containers;
mod create;
mod downward;
mod empty_volumes;
mod first_start;
mod hooks;
mod http_hooks;
mod networks;
mod ownership;
mod pod_stops;
mod replace_agent;
mod stand_in;
mod stray_processes;
mod trial;
mod volumes;

use containers::Containers;
use create::Creator;
use first_start::FirstStart;
use hooks::Hooks;
use networks::Networks;
use ownership::Ownership;
use pod_stops::PodStops;
use replace_agent::AgentReplacer;
use stray_processes::StrayProcessesEnder;
use volumes::Volumes;

/// The settings that steps need.
pub(crate) struct ActionOptions {
    pub(crate) agents: Arc<OwnAgents>,
    pub(crate) logins: RegistryLogins,
    pub(crate) clock: Clock,
}

/// Performs steps.
pub(crate) struct Actions {
    connection: Arc<Connection>,
    cache: Arc<Cache>,
    containers: Containers,
    creator: Creator,
    networks: Arc<Networks>,
    volumes: Volumes,
    puller: Puller,
    replacer: AgentReplacer,
    swarm: SwarmActions<Connection>,
}

impl Actions {
    pub(crate) fn new(
        connection: &Arc<Connection>,
        cache: &Arc<Cache>,
        attribution: &Arc<Attribution>,
        inventory: &Arc<Inventory>,
        exec: &Arc<Exec>,
        options: ActionOptions,
    ) -> Self {
        let ActionOptions { agents, logins, clock } = options;
        let (connection, cache) = (Arc::clone(connection), Arc::clone(cache));
        let ownership = Ownership::new(&connection, &cache, attribution, &agents);
        let networks = Arc::new(Networks::new(&connection, &cache, attribution, inventory, &agents));
        Self {
            containers: Containers {
                first_start: FirstStart::new(&connection, &cache, attribution),
                hooks: Hooks::new(&connection, &cache, attribution, exec, clock),
                pod_stops: PodStops::default(),
                stray_processes: StrayProcessesEnder::new(&connection, &cache),
                connection: Arc::clone(&connection),
                cache: Arc::clone(&cache),
                attribution: Arc::clone(attribution),
                networks: Arc::clone(&networks),
                ownership,
                clock,
            },
            creator: Creator::new(&connection, attribution, inventory, &networks),
            volumes: Volumes::new(&connection, &cache, &agents),
            swarm: SwarmActions::new(&connection, logins.clone()),
            puller: Puller::new(&connection, &cache, logins),
            replacer: AgentReplacer::new(&connection, &agents),
            networks,
            connection,
            cache,
        }
    }

    /// Asks the engine whether it accepts a definition.
    pub(crate) async fn try_definition(&self, creation: &Creation) -> Result<(), Error> {
        Box::pin(self.creator.try_definition(creation)).await
    }

    /// Removes what a killed process of an agent has left: the containers of such questions, and volumes of removed containers.
    pub(crate) async fn remove_left(&self, agent: &AgentId) {
        if let Err(error) = trial::remove_left(&self.connection, agent).await {
            tracing::warn!(%error, "could not remove the containers that an earlier process has left");
        }
        if let Err(error) = empty_volumes::remove_left(&self.connection, agent).await {
            tracing::warn!(%error, "could not remove the empty volumes that an earlier process has left");
        }
    }

    /// Performs one step. `progress` receives a sentence now and then while a step takes long.
    ///
    /// The larger futures are boxed, so that one step does not have the room of all actions.
    pub(crate) async fn perform(
        &self,
        app: &AppName,
        action: &Action,
        progress: &(dyn Fn(String) + Send + Sync),
    ) -> Result<Effect, Error> {
        match action {
            Action::PullImage { image, platform, secrets, keys: _ } => {
                Box::pin(self.puller.pull(image, platform.as_deref(), secrets, progress)).await?;
            }
            Action::VerifyImage { image, .. } => {
                let message = "a signature is verified by `Docker::verify_image`".to_owned();
                return Err(Error::Rejected { doing: format!("verify {image}"), message });
            }
            Action::BuildImage { image, .. } => {
                let message = "an image is built by `Docker::build`, with the files of its commit".to_owned();
                return Err(Error::Rejected { doing: format!("build {image}"), message });
            }
            Action::ImportImage { image } => {
                let imported = Box::pin(helper_image::import(&self.connection, image, progress)).await;
                self.cache.invalidate_images();
                imported?;
            }
            Action::CreateNetwork { name, network, project, addresses } => {
                Box::pin(self.networks.create((app, project), name, network, *addresses)).await?;
            }
            Action::RemoveNetwork { name, id } => self.networks.remove(app, name, id).await?,
            Action::CreateVolume { name, volume, project } => {
                self.volumes.create((app, project), name, volume).await?;
            }
            Action::RemoveVolume { name } => self.volumes.remove(app, name).await?,
            Action::CreateInstance(creation) => {
                let created = Box::pin(self.creator.create(creation)).await;
                match &created {
                    Ok(id) => {
                        self.containers.first_start.record_created(id, &creation.container);
                        self.containers.attribution.record_new(id.as_str(), app);
                        self.cache.invalidate_container(id, Settled::Yes);
                    }
                    // A call without an answer may have succeeded.
                    Err(_) => self.cache.container_list().outdate(),
                }
                return created.map(Effect::Created);
            }
            Action::ReplaceAgent(replacement) => {
                let replaced = Box::pin(self.replacer.replace(replacement, &self.creator)).await;
                self.cache.container_list().outdate();
                return replaced.map(Effect::Created);
            }
            Action::Swarm(action) => return Box::pin(self.swarm.perform(app, action)).await,
            // The agent has written them already; the engine is not involved.
            Action::WriteFiles { .. } => {}
            Action::RunHooks { container, instance: _ } => {
                Box::pin(self.containers.run_hooks(container)).await?;
            }
            Action::SignalInstance { container, signal } => {
                self.containers.signal(container, signal).await?;
            }
            Action::StartInstance { container } => Box::pin(self.containers.start(container)).await?,
            Action::StopInstance { container, grace } => {
                Box::pin(self.containers.stop(container, *grace)).await?;
            }
            Action::RemoveInstance { container, with_volumes } => {
                Box::pin(self.containers.remove(container, *with_volumes)).await?;
            }
            Action::UnpauseInstance { container } => self.containers.unpause(container).await?,
            Action::RenameInstance { container, to } => self.containers.rename(container, to).await?,
            Action::UpdateInstance { container, settings } => {
                self.containers.update(container, settings).await?;
            }
            Action::Connect { container, network, attachment } => {
                self.containers.connect(container, network, attachment).await?;
            }
            Action::Disconnect { container, network } => {
                self.containers.disconnect(container, network).await?;
            }
        }
        Ok(Effect::Done)
    }
}
