//! Lists and inspected objects that have not changed since, according to the engine's events. It is empty and stays so
//! while the event stream is interrupted. It makes no calls: readers store what they read.
//!
//! An answer may be outdated by an event that arrived while it was on its way. So a reader takes a [`ReadToken`] before
//! it asks, and the answer is only stored if no event has invalidated the object since.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::Duration,
};

use driftless_model::{
    AgentId, AppName, Container, ContainerId, Image, Instance, IpNetwork, Network, SpecHash, State,
    Timestamp, Volume,
};
use tokio::{
    sync::SetOnce,
    time::{Instant, timeout},
};

use crate::{
    catalogue::{Catalogue, List, Settled},
    container_list::{ContainerList, ListedContainer},
};

/// The time that an image is kept: not every builder causes an event for the images that it makes.
const IMAGE: Duration = Duration::from_mins(1);

/// The longest time that a reader waits for the first event stream.
const FIRST_STREAM: Duration = Duration::from_millis(200);

/// The cache. Thread-safe.
#[derive(Debug, Default)]
pub(crate) struct Cache {
    containers: Catalogue<ContainerList>,
    networks: Catalogue<ObjectList>,
    volumes: Catalogue<ObjectList>,
    state: Mutex<CacheState>,
    /// Set when the first event stream begins.
    first_stream: SetOnce<()>,
}

/// A container as it was inspected, and its entry in the list at that time.
#[derive(Clone, Debug)]
pub(crate) struct InspectedContainer {
    pub listed: Arc<ListedContainer>,
    pub instance: Arc<Instance>,
}

/// A network or volume, as its list describes it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct NamedObject {
    pub id: String,
    pub app: Option<AppName>,
    pub agent: Option<AgentId>,
    pub spec: Option<SpecHash>,
    /// The Compose project that it was created for.
    pub project: Option<String>,
    /// The specification of a network of a Compose project, or of one of a Swarm that no agent created.
    pub network: Option<Network>,
    /// The addresses that services and tasks can have on a network.
    pub addresses: Option<u64>,
    /// The subnets of a bridge of this host.
    pub subnets: Vec<IpNetwork>,
    /// Whether a network is one of this host alone.
    pub is_local: bool,
    /// Whether a network publishes no ports of containers on the host.
    pub publishes_no_ports: bool,
    /// The specification of a volume of a Compose project.
    pub volume: Option<Volume>,
    /// The creation time of a network.
    pub created: Option<Timestamp>,
}

/// All networks or all volumes, by name.
pub(crate) type NamedObjects = Arc<BTreeMap<String, NamedObject>>;

/// All networks or all volumes.
#[derive(Debug, Default)]
pub(crate) struct ObjectList {
    by_id: BTreeMap<String, (String, NamedObject)>,
    by_name: NamedObjects,
}

impl ObjectList {
    /// Of names and objects. Network names need not be unique. Of several, one with the agent's labels is taken, else
    /// the one with the first id.
    pub(crate) fn new(all: impl IntoIterator<Item = (String, NamedObject)>) -> Self {
        let by_id: BTreeMap<_, _> =
            all.into_iter().map(|(name, object)| (object.id.clone(), (name, object))).collect();
        let mut by_name: BTreeMap<String, NamedObject> = BTreeMap::new();
        for (name, object) in by_id.values() {
            let rank = |object: &NamedObject| (object.agent.is_none(), object.id.clone());
            if by_name.get(name).is_none_or(|other| rank(object) < rank(other)) {
                by_name.insert(name.clone(), object.clone());
            }
        }
        Self { by_id, by_name: Arc::new(by_name) }
    }

    /// The same list with other objects in place of those with these ids.
    pub(crate) fn with(
        &self,
        ids: &BTreeSet<String>,
        found: impl IntoIterator<Item = (String, NamedObject)>,
    ) -> Self {
        let unchanged = self.by_id.iter().filter(|(id, _)| !ids.contains(*id));
        // The engine's filter takes parts of an id, too.
        let found = found.into_iter().filter(|(_, object)| ids.contains(&object.id));
        Self::new(unchanged.map(|(_, entry)| entry.clone()).chain(found))
    }

    pub(crate) fn by_name(&self) -> &NamedObjects {
        &self.by_name
    }

    /// The application that owns an object.
    pub(crate) fn app(&self, id: &str) -> Option<&AppName> {
        self.by_id.get(id)?.1.app.as_ref()
    }
}

impl List for ObjectList {
    fn count(&self) -> usize {
        self.by_id.len()
    }
}

/// The objects that are cached as lists of names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ObjectKind {
    Networks,
    Volumes,
}

/// The permission to store an answer, unless an event invalidates it first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ReadToken(u64);

#[derive(Debug, Default)]
struct CacheState {
    /// Since when no event can have been missed; `None` while the stream is interrupted.
    trusted_since: Option<Timestamp>,
    /// The time in nanoseconds of the last event, by the engine's clock.
    last_event: Option<u64>,
    /// Containers that an earlier process has inspected, until the event stream begins.
    recalled: Vec<(ContainerId, InspectedContainer)>,
    last_token: u64,
    containers: BTreeMap<ContainerId, CachedContainer>,
    /// The configurations in use, by hash: the replicas of a workload share one.
    configs: BTreeMap<SpecHash, Weak<Container>>,
    images: BTreeMap<String, (Arc<Image>, Instant)>,
    /// Tokens up to this one are invalid for images.
    invalid_images: u64,
}

/// A container that is being read, or was.
#[derive(Debug)]
struct CachedContainer {
    token: u64,
    /// The announcements while it was being read.
    announced: Vec<Announcement>,
    inspected: Option<InspectedContainer>,
}

/// The most that is announced during one call: creation, networks and start.
const MOST_ANNOUNCEMENTS: usize = 32;

/// An event that a container which was inspected in time already shows.
///
/// After a call of the agent its own events arrive a moment later than the container is read. Without this, each new
/// container was inspected twice. The events of a container arrive in their order, and each one that takes something
/// back, such as an exit, makes the cache forget the container. So the announced start of a container that is known to
/// run is not newer than what is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Announcement {
    Created,
    /// At this time of the engine.
    Started(Timestamp),
    /// To the network with this id.
    Connected(String),
}

impl Announcement {
    fn is_in(&self, inspected: &InspectedContainer) -> bool {
        let instance = &inspected.instance;
        match self {
            Self::Created => true,
            Self::Started(at) => match instance.state {
                State::Running { .. } => true,
                State::Exited { finished, .. } | State::Restarting { finished, .. } => *at < finished,
                State::Created | State::Paused | State::Removing | State::Dead => false,
            },
            Self::Connected(network) => {
                let mut endpoints = instance.networks.values();
                instance.is_running() && endpoints.any(|endpoint| endpoint.network_id == *network)
            }
        }
    }
}

impl Cache {
    /// Since when no event can have been missed. `None` while the event stream is interrupted: the cache holds nothing then.
    pub(crate) fn trusted_since(&self) -> Option<Timestamp> {
        self.lock().trusted_since
    }

    /// Waits until the first event stream has begun, but not long: an engine that does not answer is a finding.
    ///
    /// Objects that are read before the stream begins have to be read again after it. At a start, both happen at the same time.
    pub(crate) async fn await_first_stream(&self) {
        if !self.first_stream.initialized() {
            // Without the stream, everything is read each time.
            let _ = timeout(FIRST_STREAM, self.first_stream.wait()).await;
        }
    }

    /// The event stream has begun, now.
    pub(crate) fn begin(&self, now: Timestamp) {
        // It is set already after the first one.
        let _ = self.first_stream.set(());
        let mut state = self.lock();
        state.clear();
        state.trusted_since = Some(now);
        for (id, mut inspected) in std::mem::take(&mut state.recalled) {
            if let Some(instance) = Arc::get_mut(&mut inspected.instance) {
                instance.config = state.share_config(Arc::clone(&instance.config));
            }
            let token = state.next_token();
            let entry = CachedContainer { token, announced: Vec::new(), inspected: Some(inspected) };
            state.containers.insert(id, entry);
        }
        self.containers.trust();
        self.networks.trust();
        self.volumes.trust();
    }

    /// Takes the containers that an earlier process has inspected and that have not changed since. They count from
    /// [`Self::begin`] on.
    pub(crate) fn recall(&self, containers: Vec<(ContainerId, InspectedContainer)>) {
        self.lock().recalled = containers;
    }

    /// An event was handled.
    pub(crate) fn note_event(&self, nanos: Option<u64>) {
        let mut state = self.lock();
        state.last_event = nanos.max(state.last_event);
    }

    /// The inspected containers, and the time of the last event that they take into account. `None` while the event stream
    /// is interrupted, and before the first event.
    pub(crate) fn inspected(&self) -> Option<(u64, Vec<(ContainerId, InspectedContainer)>)> {
        let state = self.lock();
        state.trusted_since?;
        let known =
            |(id, entry): (&ContainerId, &CachedContainer)| Some((id.clone(), entry.inspected.clone()?));
        Some((state.last_event?, state.containers.iter().filter_map(known).collect()))
    }

    /// The event stream is interrupted.
    pub(crate) fn interrupt(&self) {
        let mut state = self.lock();
        state.clear();
        state.trusted_since = None;
        self.containers.distrust();
        self.networks.distrust();
        self.volumes.distrust();
    }

    /// The list of all containers.
    pub(crate) fn container_list(&self) -> &Catalogue<ContainerList> {
        &self.containers
    }

    /// The list of all networks or volumes.
    pub(crate) fn objects(&self, kind: ObjectKind) -> &Catalogue<ObjectList> {
        match kind {
            ObjectKind::Networks => &self.networks,
            ObjectKind::Volumes => &self.volumes,
        }
    }

    pub(crate) fn container(&self, id: &ContainerId) -> Option<InspectedContainer> {
        let state = self.lock();
        state.trusted_since?;
        state.containers.get(id)?.inspected.clone()
    }

    /// A token for one container. It invalidates the token of any other reader of the same container.
    pub(crate) fn begin_container_read(&self, id: &ContainerId) -> ReadToken {
        let mut state = self.lock();
        let token = state.next_token();
        let reading = CachedContainer { token, announced: Vec::new(), inspected: None };
        state.containers.insert(id.clone(), reading);
        ReadToken(token)
    }

    pub(crate) fn store_container(&self, id: &ContainerId, token: ReadToken, inspected: InspectedContainer) {
        let mut state = self.lock();
        let is_trusted = state.trusted_since.is_some();
        let entry = state.containers.get_mut(id);
        let Some(entry) = entry.filter(|entry| is_trusted && entry.token == token.0) else { return };
        if entry.announced.iter().all(|announced| announced.is_in(&inspected)) {
            entry.announced.clear();
            entry.inspected = Some(inspected);
        }
    }

    /// The one shared copy of a configuration.
    pub(crate) fn share_config(&self, config: Arc<Container>) -> Arc<Container> {
        self.lock().share_config(config)
    }

    /// An event announces what a container that was read already may show.
    pub(crate) fn announce(&self, id: &ContainerId, announcement: Announcement, settled: Settled) {
        let mut state = self.lock();
        let is_shown = state.containers.get_mut(id).is_none_or(|entry| {
            if let Some(inspected) = &entry.inspected {
                return announcement.is_in(inspected);
            }
            entry.announced.push(announcement);
            entry.announced.len() < MOST_ANNOUNCEMENTS
        });
        if !is_shown {
            state.containers.remove(id);
        }
        self.containers.note_change(id.as_str(), settled);
    }

    /// A container has changed.
    pub(crate) fn invalidate_container(&self, id: &ContainerId, settled: Settled) {
        self.lock().containers.remove(id);
        self.containers.note_change(id.as_str(), settled);
    }

    /// Forgets containers that do not exist any more.
    pub(crate) fn retain_containers(&self, exists: impl Fn(&ContainerId) -> bool) {
        let mut state = self.lock();
        state.containers.retain(|id, entry| entry.inspected.is_none() || exists(id));
        state.configs.retain(|_, config| config.strong_count() > 0);
    }

    /// A token for images.
    pub(crate) fn begin_read(&self) -> ReadToken {
        ReadToken(self.lock().next_token())
    }

    pub(crate) fn image(&self, reference: &str) -> Option<Arc<Image>> {
        let state = self.lock();
        state.trusted_since?;
        let (image, read_at) = state.images.get(reference)?;
        (read_at.elapsed() < IMAGE).then(|| Arc::clone(image))
    }

    pub(crate) fn store_image(&self, reference: &str, token: ReadToken, image: &Arc<Image>) {
        let mut state = self.lock();
        if state.trusted_since.is_some() && token.0 > state.invalid_images {
            state.images.retain(|_, (_, read_at)| read_at.elapsed() < IMAGE);
            state.images.insert(reference.to_owned(), (Arc::clone(image), Instant::now()));
        }
    }

    pub(crate) fn invalidate_images(&self) {
        let mut state = self.lock();
        state.images.clear();
        state.invalid_images = state.last_token;
    }

    fn lock(&self) -> MutexGuard<'_, CacheState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl CacheState {
    fn next_token(&mut self) -> u64 {
        self.last_token = self.last_token.saturating_add(1);
        self.last_token
    }

    fn share_config(&mut self, config: Arc<Container>) -> Arc<Container> {
        let hash = config.spec();
        let known = self.configs.get(&hash).and_then(Weak::upgrade);
        if let Some(known) = known.filter(|known| *known == config) {
            return known;
        }
        self.configs.insert(hash, Arc::downgrade(&config));
        config
    }

    fn clear(&mut self) {
        self.containers.clear();
        self.images.clear();
        self.invalid_images = self.last_token;
    }
}

#[cfg(test)]
mod tests {
    use std::slice;

    use driftless_model::{Endpoint, Health, InstanceId, LiveSettings, Readiness};

    use super::*;

    fn inspected(id: &ContainerId, state: State, network: &str) -> InspectedContainer {
        let endpoint = Endpoint { network_id: network.to_owned(), ..Endpoint::default() };
        let instance = Instance {
            id: id.clone(),
            name: "web-1".to_owned(),
            instance: InstanceId { workload: "web".into(), slot: 1 },
            agent: AgentId::from("a1"),
            spec: SpecHash(String::new()),
            created: Timestamp(1),
            started: None,
            state,
            readiness: Readiness::Ready { since: Timestamp(1) },
            restarts: 0,
            networks: [("net".to_owned(), endpoint)].into(),
            live: LiveSettings::default(),
            config: Arc::default(),
            image_id: String::new(),
            anonymous_volumes: BTreeMap::new(),
            empty_volumes: BTreeMap::new(),
            part: None,
            hosts: BTreeSet::new(),
            volumes_of: BTreeSet::new(),
            bound_ports: Vec::new(),
            touched_by_hand: None,
            last_output: String::new(),
            check_output: String::new(),
            healthy_before: false,
        };
        let listed = ListedContainer {
            name: "web-1".to_owned(),
            app: None,
            agent: None,
            project: None,
            image_id: String::new(),
            state: "running".to_owned(),
            health: Health::Healthy,
            networks: Vec::new(),
            replaces_agent: false,
            ports: Vec::new(),
            workload: String::new(),
            mounts: Vec::new(),
            is_trial: false,
        };
        InspectedContainer { listed: Arc::new(listed), instance: Arc::new(instance) }
    }

    #[tokio::test]
    async fn answer_older_than_an_event_is_not_stored() {
        let cache = Cache::default();
        cache.begin(Timestamp(1));
        let store = |token| cache.store_image("web:1", token, &Arc::default());
        let token = cache.begin_read();
        cache.invalidate_images();
        store(token);
        assert_eq!(cache.image("web:1"), None);
        store(cache.begin_read());
        assert!(cache.image("web:1").is_some());
        cache.interrupt();
        assert_eq!(cache.image("web:1"), None);
    }

    #[test]
    fn events_that_an_inspected_container_shows_are_no_change() {
        let (cache, id) = (Cache::default(), ContainerId::from("1"));
        cache.begin(Timestamp(1));
        let read = |state: &State, announced: &[Announcement]| {
            let token = cache.begin_container_read(&id);
            for announced in announced {
                cache.announce(&id, announced.clone(), Settled::Yes);
            }
            cache.store_container(&id, token, inspected(&id, state.clone(), "n1"));
            cache.container(&id).is_some()
        };
        let running = State::Running { since: Timestamp(1), health: Health::Healthy };
        let connected = |network: &str| Announcement::Connected(network.to_owned());
        let started = Announcement::Started(Timestamp(5));
        let own = [Announcement::Created, connected("n1"), started.clone()];
        assert!(read(&running, &own), "while it was read");
        for shown in own {
            cache.announce(&id, shown, Settled::Yes);
            assert!(cache.container(&id).is_some(), "after it was read");
        }
        cache.announce(&id, connected("n2"), Settled::Soon);
        assert!(cache.container(&id).is_none(), "another network");
        let exited = |at: u64| State::Exited {
            code: 0,
            finished: Timestamp(at),
            out_of_memory: false,
            error: String::new(),
        };
        assert!(!read(&State::Created, slice::from_ref(&started)), "read before its start");
        assert!(read(&exited(6), slice::from_ref(&started)), "read after its end");
        assert!(!read(&exited(4), slice::from_ref(&started)), "another run");
        assert!(read(&State::Created, &[]));
        cache.announce(&id, started, Settled::Yes);
        assert!(cache.container(&id).is_none(), "started since");
        assert!(read(&running, &[]));
        cache.invalidate_container(&id, Settled::Soon);
        assert!(cache.container(&id).is_none(), "an exit");
        assert!(!read(&running, &vec![Announcement::Created; MOST_ANNOUNCEMENTS]), "too many to remember");
    }

    #[test]
    fn changed_objects_replace_those_with_their_ids() {
        let object = |id: &str, app: &str| NamedObject {
            id: id.to_owned(),
            app: Some(AppName::from(app)),
            agent: (app == "ours").then(|| AgentId::from("a1")),
            ..NamedObject::default()
        };
        let named = |name: &str, object| (name.to_owned(), object);
        let list = ObjectList::new([
            named("web", object("1", "theirs")),
            named("web", object("2", "ours")),
            named("db", object("3", "ours")),
        ]);
        assert_eq!(list.by_name()["web"].id, "2", "one of the agent's comes first");
        let gone = ["2".to_owned(), "4".to_owned()].into();
        let found = [named("web", object("22", "ours")), named("cache", object("4", "ours"))];
        let list = list.with(&gone, found);
        let ids: Vec<_> = list.by_name().iter().map(|(name, object)| (&**name, &*object.id)).collect();
        assert_eq!(ids, [("cache", "4"), ("db", "3"), ("web", "1")]);
        assert_eq!(list.app("4"), Some(&AppName::from("ours")));
        assert_eq!(list.app("22"), None, "it was not asked for");
    }

    #[test]
    fn equal_configurations_are_shared_until_the_last_is_dropped() {
        let cache = Cache::default();
        let config = |image: &str| {
            cache.share_config(Arc::new(Container { image: image.to_owned(), ..Container::default() }))
        };
        let (one, same, other) = (config("web:1"), config("web:1"), config("web:2"));
        assert!(Arc::ptr_eq(&one, &same));
        assert_eq!(other.image, "web:2");
        drop((one, same));
        cache.retain_containers(|_| true);
        assert_eq!(cache.lock().configs.len(), 1);
    }
}
