//! Reads containers, networks, volumes and images through the cache. While events arrive, an object that did not change
//! is read once.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use bollard::{models as api, query_parameters as query};
use driftless_clock::Clock;
use driftless_model::{AgentId, AppName, ContainerId, Image, Instance, SpecHash, State, Timestamp, label};
use futures_util::{StreamExt, TryStreamExt};
use tokio::sync::{Notify, Semaphore};

use crate::{
    attribution::Attribution,
    cache::{Cache, InspectedContainer, NamedObject, NamedObjects, ObjectKind, ObjectList},
    call_error::CallError,
    catalogue::Reading,
    connection::Connection,
    container_list::{ContainerList, ListedContainer},
    crash_output::CrashOutputs,
    deadline::DEADLINE,
    engine_start::EngineStart,
    find_image::find_image,
    from_engine,
    shared_images::SharedImages,
};

/// A stop by a user counts as the cause of an exit that follows it within the grace period and this time.
const STOP_MARGIN: Duration = Duration::from_mins(1);

/// The number of containers that are inspected at the same time, for all applications. Each one takes about 60 kB until it is
/// read: with a hundred applications at once, the agent would keep the memory of hundreds of inspections.
const INSPECTIONS: usize = 16;

/// The objects of the engine.
#[derive(Debug)]
pub(crate) struct Inventory {
    connection: Arc<Connection>,
    cache: Arc<Cache>,
    attribution: Arc<Attribution>,
    outputs: CrashOutputs,
    engine_start: EngineStart,
    /// Notified when the event stream seems to have missed an event.
    missed_event: Arc<Notify>,
    images: SharedImages,
    inspections: Semaphore,
    clock: Clock,
}

impl Inventory {
    pub(crate) fn new(
        connection: &Arc<Connection>,
        cache: &Arc<Cache>,
        attribution: &Arc<Attribution>,
        missed_event: &Arc<Notify>,
        clock: Clock,
    ) -> Self {
        Self {
            connection: Arc::clone(connection),
            cache: Arc::clone(cache),
            attribution: Arc::clone(attribution),
            outputs: CrashOutputs::default(),
            engine_start: EngineStart::default(),
            missed_event: Arc::clone(missed_event),
            images: SharedImages::default(),
            inspections: Semaphore::new(INSPECTIONS),
            clock,
        }
    }

    /// All containers of the host.
    pub(crate) async fn containers(&self) -> Result<Arc<ContainerList>, CallError> {
        self.cache.await_first_stream().await;
        let list = self.cache.container_list();
        // Podman does not send an event for every change.
        if self.connection.is_podman() {
            list.outdate();
        }
        list.get(|reading| self.read_containers(reading)).await
    }

    async fn read_containers(&self, reading: Reading<ContainerList>) -> Result<ContainerList, CallError> {
        let list = ContainerList::read(&self.connection, reading).await?;
        self.cache.retain_containers(|id| list.containers.contains_key(id));
        self.attribution.retain_containers(|id| list.containers.contains_key(id));
        self.outputs.retain_containers(|id| list.containers.contains_key(id));
        Ok(list)
    }

    /// All networks or volumes of the host.
    pub(crate) async fn objects(&self, kind: ObjectKind) -> Result<NamedObjects, CallError> {
        let read = |reading| async move {
            match kind {
                ObjectKind::Networks => self.read_networks(reading).await,
                ObjectKind::Volumes => self.read_volumes(reading).await,
            }
        };
        self.cache.await_first_stream().await;
        self.cache.objects(kind).get(read).await.map(|list| Arc::clone(list.by_name()))
    }

    /// A network by its name, not from the known list.
    pub(crate) async fn network_now(&self, name: &str) -> Result<Option<NamedObject>, CallError> {
        let filters = [("name", vec![name.to_owned()])].into();
        let options = query::ListNetworksOptionsBuilder::new().filters(&filters).build();
        let list = self.connection.docker().list_networks(Some(options));
        let found = self.connection.call(DEADLINE, list).await?;
        // The engine's filter takes parts of a name, too.
        Ok(ObjectList::new(found.into_iter().map(network_entry)).by_name().get(name).cloned())
    }

    /// The id of a network. Names need not be unique, and may contain what a path cannot.
    pub(crate) async fn network_id(&self, name: &str) -> Result<String, CallError> {
        let networks = self.objects(ObjectKind::Networks).await?;
        let id = networks.get(name).map(|network| network.id.clone());
        id.ok_or_else(|| CallError::Status { code: 404, message: format!("there is no network {name}") })
    }

    /// One container of the agent, or one with copies of its labels. `None` if it is gone by now.
    pub(crate) async fn instance(
        &self,
        id: &ContainerId,
        listed: &Arc<ListedContainer>,
    ) -> Result<Option<Arc<Instance>>, CallError> {
        let cached = self.cache.container(id);
        if let Some(cached) = cached.filter(|cached| cached.listed == *listed) {
            return Ok(Some(cached.instance));
        }
        // It is never closed.
        let _permit = self.inspections.acquire().await;
        // The future is large: it is made once there is a permit.
        Box::pin(self.inspect(id, listed)).await
    }

    async fn inspect(
        &self,
        id: &ContainerId,
        listed: &Arc<ListedContainer>,
    ) -> Result<Option<Arc<Instance>>, CallError> {
        let token = self.cache.begin_container_read(id);
        let Some(found) = self.connection.find_container(id.as_str()).await? else { return Ok(None) };
        let (paths, defaults) = (self.connection.host_paths(), self.connection.defaults());
        let mut instance = from_engine::instance(id, &found, &paths, &defaults);
        instance.config = self.cache.share_config(instance.config);
        instance.touched_by_hand = Box::pin(self.user_stop(&instance)).await?;
        let has_terminal = found.config.as_ref().and_then(|config| config.tty).unwrap_or_default();
        let is_stopped =
            instance.touched_by_hand.is_some() || self.attribution.is_stopped_by_agent(&instance.id);
        let output = self.outputs.of(&self.connection, &instance, has_terminal, is_stopped);
        instance.last_output = Box::pin(output).await;
        let instance = Arc::new(instance);
        let inspected = InspectedContainer { listed: Arc::clone(listed), instance: Arc::clone(&instance) };
        // No event says that a mount leads to another folder since, so such a container is inspected with each observation.
        if !from_engine::may_lead_to_own_folder(&found, &instance.config.mounts, &paths) {
            self.cache.store_container(id, token, inspected);
        }
        Ok(Some(instance))
    }

    /// Whether a container is in the network of the host.
    pub(crate) async fn is_in_host_network(&self, id: &ContainerId) -> Result<bool, CallError> {
        let found = self.connection.inspect_container(id.as_str()).await?;
        let mode = found.host_config.and_then(|host| host.network_mode);
        Ok(mode.as_deref() == Some("host"))
    }

    /// An image, by name or id; `None` if the engine does not have it.
    pub(crate) async fn image(&self, reference: &str) -> Result<Option<Arc<Image>>, CallError> {
        if let Some(image) = self.cache.image(reference) {
            return Ok(Some(image));
        }
        if !is_reference(reference) {
            return Ok(None);
        }
        // The future is large, and that of every reader would be as large with it.
        self.images.get(reference, Box::pin(self.read_image(reference))).await
    }

    async fn read_image(&self, reference: &str) -> Result<Option<Arc<Image>>, CallError> {
        if let Some(image) = self.cache.image(reference) {
            return Ok(Some(image));
        }
        let token = self.cache.begin_read();
        let Some(image) = find_image(&self.connection, reference).await? else { return Ok(None) };
        let image = Arc::new(image);
        self.cache.store_image(reference, token, &image);
        Ok(Some(image))
    }

    /// The engine creates its default bridge at every start, and nothing else in its API tells when that was. `None`
    /// for an engine without that bridge.
    pub(crate) async fn engine_started(&self) -> Result<Option<Timestamp>, CallError> {
        let networks = self.objects(ObjectKind::Networks).await?;
        let reported = networks.get("bridge").and_then(|network| network.created);
        Ok(reported.map(|reported| self.engine_start.counted(reported, self.clock.now())))
    }

    async fn read_networks(&self, reading: Reading<ObjectList>) -> Result<ObjectList, CallError> {
        let mut found = Vec::new();
        for keys in reading.questions() {
            let options = query::ListNetworksOptionsBuilder::new()
                .filters(&keys.map(|keys| ("id", keys)).into_iter().collect())
                .build();
            let list = self.connection.docker().list_networks(Some(options));
            found.append(&mut self.connection.call(DEADLINE, list).await?);
        }
        Ok(listed(reading, found.into_iter().map(network_entry)))
    }

    async fn read_volumes(&self, reading: Reading<ObjectList>) -> Result<ObjectList, CallError> {
        let mut found = Vec::new();
        for keys in reading.questions() {
            let options = query::ListVolumesOptionsBuilder::new()
                .filters(&keys.map(|keys| ("name", keys)).into_iter().collect())
                .build();
            let list = self.connection.docker().list_volumes(Some(options));
            found.extend(self.connection.call(DEADLINE, list).await?.volumes.into_iter().flatten());
        }
        let found = found.into_iter().map(|volume| {
            let labels: BTreeMap<_, _> = volume.labels.clone().into_iter().collect();
            let object = NamedObject {
                volume: is_compose(&labels).then(|| from_engine::volume(&volume, &labels)),
                ..named_object(volume.name.clone(), &labels)
            };
            (volume.name, object)
        });
        Ok(listed(reading, found))
    }

    /// When a user last stopped, killed or paused a container since it was started. The event stream reported it, or,
    /// if it did not report the exit, the engine's memory of its last 256 events does.
    async fn user_stop(&self, instance: &Instance) -> Result<Option<Timestamp>, CallError> {
        let user_stop = self.attribution.user_stop(&instance.id);
        let finished = match &instance.state {
            State::Paused => return Ok(user_stop),
            State::Exited { finished, .. } => *finished,
            // `docker kill` can send any signal; a container that still runs was not ended by it.
            State::Created
            | State::Running { .. }
            | State::Restarting { .. }
            | State::Removing
            | State::Dead => {
                return Ok(None);
            }
        };
        // Nor was a container that exited long after the signal.
        let longest = instance.config.stop_grace_period.unwrap_or_default().saturating_add(STOP_MARGIN);
        if let Some(at) = user_stop.filter(|at| finished.since(*at) <= longest) {
            return Ok(Some(at));
        }
        let has_reported = self.attribution.has_reported_exit(&instance.id, finished);
        if !has_reported && self.cache.trusted_since().is_some_and(|since| since <= finished) {
            self.missed_event.notify_one();
        }
        if has_reported || self.attribution.is_stopped_by_agent(&instance.id) {
            return Ok(None);
        }
        // A starting engine ends the containers that outlived its predecessor, and remembers that as stops.
        let started = Box::pin(self.engine_started()).await?;
        if started.is_some_and(|started| finished < started) {
            return Ok(None);
        }
        match self.remembered_stop(&instance.id, finished).await {
            // A filter in front of the engine may refuse its events.
            Err(CallError::Status { .. }) => Ok(None),
            remembered => remembered,
        }
    }

    /// The last stop among the events that the engine remembers from around the exit.
    async fn remembered_stop(
        &self,
        id: &ContainerId,
        finished: Timestamp,
    ) -> Result<Option<Timestamp>, CallError> {
        // The event of a signal precedes the exit, that of a stop follows it.
        let margin = u64::try_from(STOP_MARGIN.as_millis()).unwrap_or_default();
        let since = finished.0.saturating_sub(margin) / 1000;
        // Not rounded up: the engine would answer when that second is over.
        let Timestamp(until) = finished.after(STOP_MARGIN).min(self.clock.now());
        let filters = [
            ("type".to_owned(), vec!["container".to_owned()]),
            ("container".to_owned(), vec![id.to_string()]),
            ("event".to_owned(), ["kill", "stop", "pause"].map(str::to_owned).to_vec()),
        ]
        .into();
        let options = query::EventsOptionsBuilder::new()
            .since(&since.to_string())
            .until(&format!("{}.{:03}", until / 1000, until % 1000))
            .filters(&filters)
            .build();
        let events = self.connection.docker().events(Some(options));
        let found = self.connection.call(DEADLINE, events.take(16).try_collect::<Vec<_>>()).await?;
        let nanos = found.iter().filter_map(|event| event.time_nano).filter_map(|it| u64::try_from(it).ok());
        Ok(nanos.max().map(|nanos| Timestamp(nanos / 1_000_000)))
    }
}

/// Whether a text can stand in a path of the API as a reference to an object, and cannot be taken for another path.
pub(crate) fn is_reference(text: &str) -> bool {
    !text.is_empty()
        && text.bytes().all(|it| it.is_ascii_alphanumeric() || b"._-/:@+[]".contains(&it))
        && !text.split('/').any(|it| it == ".." || it == ".")
}

fn is_compose(labels: &BTreeMap<String, String>) -> bool {
    labels.contains_key(label::compose::PROJECT)
}

/// Name and content.
fn network_entry(network: api::Network) -> (String, NamedObject) {
    let labels: BTreeMap<_, _> = network.labels.clone().into_iter().flatten().collect();
    let is_local = network.scope.as_deref() == Some("local");
    let is_of_others = is_compose(&labels) || (!is_local && !labels.contains_key(label::AGENT));
    let object = NamedObject {
        created: network.created.as_deref().and_then(Timestamp::parse),
        network: is_of_others.then(|| from_engine::network(&network, &labels)),
        addresses: from_engine::addresses(network.ipam.as_ref()),
        subnets: from_engine::bridge_subnets(&network),
        publishes_no_ports: from_engine::publishes_no_ports(&network),
        is_local,
        ..named_object(network.id.unwrap_or_default(), &labels)
    };
    (network.name.unwrap_or_default(), object)
}

fn listed(reading: Reading<ObjectList>, found: impl Iterator<Item = (String, NamedObject)>) -> ObjectList {
    match reading {
        Reading::All { .. } => ObjectList::new(found),
        Reading::Changed { before, keys } => before.with(&keys, found),
    }
}

fn named_object(id: String, labels: &BTreeMap<String, String>) -> NamedObject {
    NamedObject {
        id,
        app: labels.get(label::APPLICATION).cloned().map(AppName),
        agent: labels.get(label::AGENT).cloned().map(AgentId),
        spec: labels.get(label::SPEC).cloned().map(SpecHash),
        project: labels.get(label::compose::PROJECT).cloned(),
        network: None,
        addresses: None,
        subnets: Vec::new(),
        is_local: false,
        publishes_no_ports: false,
        volume: None,
        created: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_cannot_name_another_path() {
        for right in ["registry.example.com:5000/a/b@sha256:00ff", "[fd00::2]:5000/shop:1"] {
            assert!(is_reference(right), "{right}");
        }
        for wrong in ["", "a?b", "a#b", "../json", "a/../b", "a b", "a%2fb"] {
            assert!(!is_reference(wrong), "{wrong}");
        }
    }
}
