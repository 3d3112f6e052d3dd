//! What was seen of the engine and has not changed since, as far as its events tell. While the stream of events
//! is down nothing in here is believed. It asks nobody: those who look put in what they saw.
//!
//! An answer that was on its way while an event arrived may be old, so whoever looks draws a ticket before
//! asking, and what he brings is kept only if no event has torn the ticket meanwhile.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::Duration,
};

use tokio::time::Instant;

use crate::container_list::ListedContainer;
use driftless_model::{
    AgentId, AppName, Container, ContainerId, Image, Instance, Network, SpecHash, Timestamp, Visit, Volume,
};

/// Not every builder tells of the images it makes, so an image is believed only this long.
const IMAGE: Duration = Duration::from_mins(1);
/// How many hands on containers are remembered.
const HANDS: usize = 1000;
/// How many visits of one container are remembered.
const VISITS: usize = 32;
/// How many commands of ours we wait to hear the end of.
const EXECS: usize = 10_000;
/// Copying files into a container is told when it is done. So long before it began.
const COPYING: Duration = Duration::from_secs(1);

#[derive(Debug, Default)]
pub(crate) struct Cache {
    state: Mutex<State>,
}

/// A container as it was inspected, and what the list said of it then.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub listed: Arc<ListedContainer>,
    pub instance: Arc<Instance>,
}

/// A network or volume, as a list tells of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Known {
    pub id: String,
    pub app: Option<AppName>,
    pub agent: Option<AgentId>,
    pub spec: Option<SpecHash>,
    /// The Compose project it was made for, and what it is.
    pub project: Option<String>,
    pub network: Option<Network>,
    pub volume: Option<Volume>,
    /// Of networks: when it was made.
    pub created: Option<Timestamp>,
}

/// By name.
pub(crate) type NamedObjects = Arc<BTreeMap<String, Known>>;

/// The lists that are kept whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ObjectKind {
    Networks,
    Volumes,
}

/// Leave to put something in, unless an event comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ReadToken(u64);

#[derive(Debug, Default)]
struct State {
    /// Since when the stream of events is whole.
    trusted_since: Option<Timestamp>,
    drawn: u64,
    containers: BTreeMap<ContainerId, Slot>,
    /// What the replicas of a workload have in common, all of it, by its hash.
    configs: BTreeMap<SpecHash, Weak<Container>>,
    networks: Option<NamedObjects>,
    volumes: Option<NamedObjects>,
    images: BTreeMap<String, (Arc<Image>, Instant)>,
    /// The last ticket that was torn, of each kind.
    torn_networks: u64,
    torn_volumes: u64,
    torn_images: u64,
    /// Names and ids of containers that we made; labels never change, so these are ours for good.
    made: BTreeMap<String, ContainerId>,
    /// Those among them that have commands to run after a start or before a stop.
    hooked: BTreeSet<ContainerId>,
    /// Containers and networks that were taken over, and by which application. The record says so: labels do not.
    adopted: BTreeMap<AppName, (BTreeSet<ContainerId>, BTreeSet<String>)>,
    /// When somebody last stopped, killed or paused a container.
    hands: BTreeMap<ContainerId, Timestamp>,
    /// Commands that we run in containers, by the engine's ids of them.
    our_execs: BTreeSet<String>,
    /// Who else was in a container, likewise by id.
    visits: BTreeMap<ContainerId, BTreeMap<String, Visit>>,
    /// Containers that we are stopping or have stopped, and since when.
    stopped_by_us: BTreeMap<ContainerId, Timestamp>,
    /// Signals that we sent to say something, and of which the engine has not told yet.
    signals: BTreeMap<ContainerId, u32>,
    /// Copies into it by us that the engine has not told of yet.
    copies: BTreeMap<ContainerId, u32>,
}

#[derive(Debug)]
struct Slot {
    ticket: u64,
    seen: Option<Seen>,
}

impl Cache {
    pub(crate) fn is_trusted(&self) -> bool {
        self.trusted_since().is_some()
    }

    /// Since when no event can have been missed.
    pub(crate) fn trusted_since(&self) -> Option<Timestamp> {
        self.lock().trusted_since
    }

    /// The stream of events has begun: everything is looked at anew.
    pub(crate) fn begin(&self, now: Timestamp) {
        let mut state = self.lock();
        state.forget();
        state.trusted_since = Some(now);
    }

    pub(crate) fn lost(&self) {
        let mut state = self.lock();
        state.forget();
        state.trusted_since = None;
    }

    pub(crate) fn container(&self, id: &ContainerId) -> Option<Seen> {
        let state = self.lock();
        state.trusted_since?;
        state.containers.get(id)?.seen.clone()
    }

    /// Leave to put in a container. It tears the ticket of anybody else who looks at the same one.
    pub(crate) fn begin_container_read(&self, id: &ContainerId) -> ReadToken {
        let mut state = self.lock();
        let ticket = state.draw();
        state.containers.insert(id.clone(), Slot { ticket, seen: None });
        ReadToken(ticket)
    }

    pub(crate) fn store_container(&self, id: &ContainerId, ticket: ReadToken, seen: Seen) {
        let mut state = self.lock();
        let is_trusted = state.trusted_since.is_some();
        if let Some(slot) = state.containers.get_mut(id).filter(|it| is_trusted && it.ticket == ticket.0) {
            slot.seen = Some(seen);
        }
    }

    /// The same configuration, held once for all who have it.
    pub(crate) fn shared(&self, config: Arc<Container>) -> Arc<Container> {
        let hash = config.spec();
        let mut state = self.lock();
        if let Some(known) = state.configs.get(&hash).and_then(Weak::upgrade).filter(|it| *it == config) {
            return known;
        }
        state.configs.insert(hash, Arc::downgrade(&config));
        config
    }

    pub(crate) fn invalidate_container(&self, id: &ContainerId) {
        self.lock().containers.remove(id);
    }

    /// Forgets containers that are gone.
    pub(crate) fn keep_only(&self, exists: impl Fn(&ContainerId) -> bool) {
        let mut state = self.lock();
        state.containers.retain(|id, slot| slot.seen.is_none() || exists(id));
        state.hands.retain(|id, _| exists(id));
        state.stopped_by_us.retain(|id, _| exists(id));
        state.visits.retain(|id, _| exists(id));
        state.signals.retain(|id, _| exists(id));
        state.copies.retain(|id, _| exists(id));
        state.made.retain(|_, id| exists(id));
        state.hooked.retain(|id| exists(id));
        state.configs.retain(|_, it| it.strong_count() > 0);
    }

    pub(crate) fn draw(&self) -> ReadToken {
        ReadToken(self.lock().draw())
    }

    pub(crate) fn objects(&self, which: ObjectKind) -> Option<NamedObjects> {
        let state = self.lock();
        state.trusted_since?;
        match which {
            ObjectKind::Networks => state.networks.clone(),
            ObjectKind::Volumes => state.volumes.clone(),
        }
    }

    pub(crate) fn store_objects(&self, which: ObjectKind, ticket: ReadToken, found: &NamedObjects) {
        let mut state = self.lock();
        let is_trusted = state.trusted_since.is_some();
        let (place, torn) = state.shelf(which);
        if is_trusted && ticket.0 > *torn {
            *place = Some(Arc::clone(found));
        }
    }

    pub(crate) fn invalidate_objects(&self, which: ObjectKind) {
        let mut state = self.lock();
        let drawn = state.drawn;
        let (place, torn) = state.shelf(which);
        *place = None;
        *torn = drawn;
    }

    pub(crate) fn image(&self, reference: &str) -> Option<Arc<Image>> {
        let state = self.lock();
        state.trusted_since?;
        let (image, seen) = state.images.get(reference)?;
        (seen.elapsed() < IMAGE).then(|| Arc::clone(image))
    }

    pub(crate) fn store_image(&self, reference: &str, ticket: ReadToken, image: &Arc<Image>) {
        let mut state = self.lock();
        if state.trusted_since.is_some() && ticket.0 > state.torn_images {
            state.images.retain(|_, (_, seen)| seen.elapsed() < IMAGE);
            state.images.insert(reference.to_owned(), (Arc::clone(image), Instant::now()));
        }
    }

    pub(crate) fn invalidate_images(&self) {
        let mut state = self.lock();
        state.images.clear();
        state.torn_images = state.drawn;
    }

    /// Remembers that we made a container, until it is gone.
    pub(crate) fn made(&self, name: &str, id: &ContainerId, has_hooks: bool) {
        let mut state = self.lock();
        state.made.insert(name.to_owned(), id.clone());
        if has_hooks {
            state.hooked.insert(id.clone());
        }
    }

    /// Of a container that we made.
    pub(crate) fn has_hooks(&self, id: &ContainerId) -> bool {
        self.lock().hooked.contains(id)
    }

    pub(crate) fn is_made(&self, id: &ContainerId) -> bool {
        self.lock().made.values().any(|it| it == id)
    }

    pub(crate) fn made_as(&self, name: &str) -> Option<ContainerId> {
        self.lock().made.get(name).cloned()
    }

    /// What an application has taken over, as of its record.
    pub(crate) fn adopted(
        &self,
        app: &AppName,
        containers: &BTreeSet<ContainerId>,
        networks: &BTreeSet<String>,
    ) {
        let mut state = self.lock();
        if containers.is_empty() && networks.is_empty() {
            state.adopted.remove(app);
        } else {
            state.adopted.insert(app.clone(), (containers.clone(), networks.clone()));
        }
    }

    /// The application that has taken a container over.
    pub(crate) fn adopter(&self, id: &ContainerId) -> Option<AppName> {
        self.lock().adopted.iter().find(|(_, (all, _))| all.contains(id)).map(|(app, _)| app.clone())
    }

    pub(crate) fn is_adopted_network(&self, id: &str) -> bool {
        self.lock().adopted.values().any(|(_, all)| all.contains(id))
    }

    /// The container is gone.
    pub(crate) fn gone(&self, id: &ContainerId) {
        let mut state = self.lock();
        state.containers.remove(id);
        state.hands.remove(id);
        state.visits.remove(id);
        state.stopped_by_us.remove(id);
        state.signals.remove(id);
        state.copies.remove(id);
        state.made.retain(|_, it| it != id);
        state.hooked.remove(id);
    }

    /// What happens to it from here until it is started again is our doing.
    pub(crate) fn stopping(&self, id: &ContainerId, now: Timestamp) {
        self.lock().stopped_by_us.insert(id.clone(), now);
    }

    /// The next signal that the engine tells of is ours, and is not meant to end it.
    pub(crate) fn signalling(&self, id: &ContainerId) {
        expect(&mut self.lock().signals, id);
    }

    /// Whether a signal that the engine tells of is one of ours.
    pub(crate) fn is_our_signal(&self, id: &ContainerId) -> bool {
        is_expected(&mut self.lock().signals, id)
    }

    /// The next copy into it that the engine tells of is ours.
    pub(crate) fn copying(&self, id: &ContainerId) {
        expect(&mut self.lock().copies, id);
    }

    /// Whether a copy that the engine tells of is one of ours.
    pub(crate) fn is_our_copy(&self, id: &ContainerId) -> bool {
        is_expected(&mut self.lock().copies, id)
    }

    /// It runs again, so what was done to it before no longer matters. The news may be older than our order to
    /// stop it.
    pub(crate) fn started(&self, id: &ContainerId, at: Timestamp) {
        let mut state = self.lock();
        state.hands.remove(id);
        if state.stopped_by_us.get(id).is_some_and(|since| *since < at) {
            state.stopped_by_us.remove(id);
        }
    }

    /// Somebody stopped, killed or paused it, if it was not we.
    pub(crate) fn touched(&self, id: &ContainerId, at: Timestamp) {
        let mut state = self.lock();
        if state.stopped_by_us.contains_key(id) {
            return;
        }
        state.hands.insert(id.clone(), at);
        if state.hands.len() > HANDS {
            let oldest = state.hands.iter().min_by_key(|(_, at)| **at).map(|(id, _)| id.clone());
            oldest.and_then(|it| state.hands.remove(&it));
        }
    }

    pub(crate) fn touched_at(&self, id: &ContainerId) -> Option<Timestamp> {
        self.lock().hands.get(id).copied()
    }

    /// A command of ours is about to be run in a container.
    pub(crate) fn our_exec(&self, exec: &str) {
        let mut state = self.lock();
        while state.our_execs.len() >= EXECS {
            state.our_execs.pop_first();
        }
        state.our_execs.insert(exec.to_owned());
    }

    /// Somebody runs a command in a container, if it is not we.
    pub(crate) fn entered(&self, id: &ContainerId, exec: &str, what: String, at: Timestamp) {
        let mut state = self.lock();
        if !state.our_execs.contains(exec) {
            state.visited(id, exec, Visit { from: at, to: None, copies: false, what });
        }
    }

    /// A command has ended. Who ran it, if it is not we.
    pub(crate) fn left(&self, id: &ContainerId, exec: &str, at: Timestamp) -> Option<Visit> {
        let mut state = self.lock();
        if state.our_execs.remove(exec) {
            return None;
        }
        let visit = state.visits.get_mut(id)?.get_mut(exec)?;
        visit.to = Some(at);
        Some(visit.clone())
    }

    /// Somebody has copied files into a container.
    pub(crate) fn copied(&self, id: &ContainerId, what: &str, at: Timestamp) {
        let copying = u64::try_from(COPYING.as_millis()).unwrap_or_default();
        let from = Timestamp(at.0.saturating_sub(copying));
        let visit = Visit { from, to: Some(at), copies: true, what: what.to_owned() };
        self.lock().visited(id, &format!("copy at {}", at.0), visit);
    }

    /// What was no visit after all.
    pub(crate) fn forget_visit(&self, id: &ContainerId, exec: &str) {
        if let Some(visits) = self.lock().visits.get_mut(id) {
            visits.remove(exec);
        }
    }

    pub(crate) fn visits(&self, id: &ContainerId) -> Vec<Visit> {
        self.lock().visits.get(id).into_iter().flat_map(|it| it.values().cloned()).collect()
    }

    pub(crate) fn is_stopped_by_us(&self, id: &ContainerId) -> bool {
        self.lock().stopped_by_us.contains_key(id)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn expect(all: &mut BTreeMap<ContainerId, u32>, id: &ContainerId) {
    let count = all.entry(id.clone()).or_default();
    *count = count.saturating_add(1);
}

fn is_expected(all: &mut BTreeMap<ContainerId, u32>, id: &ContainerId) -> bool {
    let Some(count) = all.get_mut(id) else { return false };
    *count -= 1;
    if *count == 0 {
        all.remove(id);
    }
    true
}

impl State {
    fn draw(&mut self) -> u64 {
        self.drawn = self.drawn.saturating_add(1);
        self.drawn
    }

    fn shelf(&mut self, which: ObjectKind) -> (&mut Option<NamedObjects>, &mut u64) {
        match which {
            ObjectKind::Networks => (&mut self.networks, &mut self.torn_networks),
            ObjectKind::Volumes => (&mut self.volumes, &mut self.torn_volumes),
        }
    }

    fn visited(&mut self, id: &ContainerId, exec: &str, visit: Visit) {
        let visits = self.visits.entry(id.clone()).or_default();
        visits.insert(exec.to_owned(), visit);
        while visits.len() > VISITS {
            let oldest = visits.iter().min_by_key(|(_, it)| it.from).map(|(exec, _)| exec.clone());
            oldest.and_then(|it| visits.remove(&it));
        }
    }

    fn forget(&mut self) {
        self.containers.clear();
        self.networks = None;
        self.volumes = None;
        self.images.clear();
        self.torn_networks = self.drawn;
        self.torn_volumes = self.drawn;
        self.torn_images = self.drawn;
        // What the engine told meanwhile, nobody heard.
        self.signals.clear();
        self.copies.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_answer_that_an_event_overtook_is_not_kept() {
        let cache = Cache::default();
        cache.begin(Timestamp(1));
        let ticket = cache.draw();
        cache.invalidate_objects(ObjectKind::Networks);
        cache.store_objects(ObjectKind::Networks, ticket, &NamedObjects::default());
        assert_eq!(cache.objects(ObjectKind::Networks), None);
        let ticket = cache.draw();
        cache.store_objects(ObjectKind::Networks, ticket, &NamedObjects::default());
        assert!(cache.objects(ObjectKind::Networks).is_some());
        cache.lost();
        assert_eq!(cache.objects(ObjectKind::Networks), None);
    }

    #[test]
    fn equal_configurations_are_stored_once() {
        let cache = Cache::default();
        let of = |image: &str| {
            cache.shared(Arc::new(Container { image: image.to_owned(), ..Container::default() }))
        };
        let (one, same, other) = (of("web:1"), of("web:1"), of("web:2"));
        assert!(Arc::ptr_eq(&one, &same));
        assert_eq!(other.image, "web:2");
        drop((one, same));
        cache.keep_only(|_| true);
        assert_eq!(cache.lock().configs.len(), 1);
    }

    #[test]
    fn our_own_commands_are_no_visits() {
        let cache = Cache::default();
        let id = ContainerId::from("a");
        cache.our_exec("ours");
        cache.entered(&id, "ours", "docker exec probe".to_owned(), Timestamp(1));
        assert_eq!(cache.left(&id, "ours", Timestamp(2)), None);
        cache.entered(&id, "theirs", "docker exec sh".to_owned(), Timestamp(3));
        assert_eq!(cache.visits(&id)[0].to, None);
        assert_eq!(cache.left(&id, "theirs", Timestamp(4)).map(|it| it.to), Some(Some(Timestamp(4))));
        // The end of a command that began before we listened.
        assert_eq!(cache.left(&id, "unknown", Timestamp(4)), None);
        for number in 0..100 {
            cache.entered(&id, &number.to_string(), "docker exec sh".to_owned(), Timestamp(5 + number));
        }
        let visits = cache.visits(&id);
        assert_eq!((visits.len(), visits.iter().map(|it| it.from).min()), (32, Some(Timestamp(73))));
        cache.gone(&id);
        assert_eq!(cache.visits(&id), []);
    }

    #[test]
    fn our_own_hand_is_not_somebody_elses() {
        let cache = Cache::default();
        let id = ContainerId::from("a");
        cache.stopping(&id, Timestamp(4));
        // The news of its start comes late.
        cache.started(&id, Timestamp(3));
        cache.touched(&id, Timestamp(5));
        assert_eq!(cache.touched_at(&id), None);
        cache.started(&id, Timestamp(6));
        cache.touched(&id, Timestamp(7));
        assert_eq!(cache.touched_at(&id), Some(Timestamp(7)));
    }
}
