//! The name of one application and the services that all applications share: store, clock, mask and event log.

use std::{collections::BTreeMap, sync::Arc};

use tokio::sync::{Notify, broadcast, watch};

use driftless_clock::Clock;
use driftless_metrics::Metrics;
use driftless_model::{
    Actor, AgentId, AppName, Application, Event, EventKind, ManagedApplications, Mask, Revision, Stack,
    Timestamp,
};
use driftless_store::{ContentDir, Store};

use crate::{
    error::chain,
    fleet::peers::{PeerHosts, Peers},
    known_engine::KnownEngine,
    other_agents::ownership::Ownership,
    proxy_counters::Proxies,
    wakes::Wakes,
};

/// Number of newest events that are searched for one that was written already, perhaps by an earlier run of the agent.
pub(crate) const RECENT_EVENTS: usize = 20;

/// The services that all applications of an agent share, apart from the engine.
pub(crate) struct Services {
    pub(crate) store: Store,
    pub(crate) contents: ContentDir,
    pub(crate) clock: Clock,
    pub(crate) agent: AgentId,
    pub(crate) mask: Mask,
    pub(crate) metrics: Metrics,
    /// The running proxies, whose counters are metrics.
    pub(crate) proxies: Arc<Proxies>,
    /// Every event, after the store has numbered it.
    pub(crate) events: broadcast::Sender<Event>,
    /// The wakes of all applications.
    pub(crate) wakes: Wakes,
    /// Knowledge about the agents on the engine, and whether it is the one of before.
    pub(crate) ownership: Ownership,
    /// The published applications.
    pub(crate) applications: watch::Receiver<Arc<BTreeMap<AppName, Arc<Application>>>>,
    /// The applications of the agent and their stacks in Git. The supervisor writes them before an application gets a new desired state.
    pub(crate) managed: watch::Sender<Arc<ManagedApplications>>,
    /// The reports of the other hosts.
    pub(crate) peers: Peers,
    /// Notified when the supervisor should publish something new.
    pub(crate) changed: Arc<Notify>,
}

/// The name of an application and the services that it uses.
pub(crate) struct AppContext {
    name: AppName,
    services: Arc<Services>,
    /// Hides the secrets of the stacks of the last round.
    mask: Mask,
    /// The number of the present round, from 1 since the agent started.
    round: u64,
}

impl AppContext {
    pub(crate) fn new(name: AppName, services: Arc<Services>) -> Self {
        let mask = services.mask.clone();
        Self { name, services, mask, round: 0 }
    }

    /// The number of the present round, from 1 since the agent started. Log lines of one round have the same.
    pub(crate) fn round(&self) -> u64 {
        self.round
    }

    pub(crate) fn begin_round(&mut self) {
        self.round += 1;
    }

    pub(crate) fn name(&self) -> &AppName {
        &self.name
    }

    pub(crate) fn store(&self) -> &Store {
        &self.services.store
    }

    pub(crate) fn contents(&self) -> &ContentDir {
        &self.services.contents
    }

    pub(crate) fn agent(&self) -> &AgentId {
        &self.services.agent
    }

    pub(crate) fn metrics(&self) -> &Metrics {
        &self.services.metrics
    }

    pub(crate) fn proxies(&self) -> &Proxies {
        &self.services.proxies
    }

    /// All applications of the agent, as they are published now.
    pub(crate) fn applications(&self) -> Arc<BTreeMap<AppName, Arc<Application>>> {
        Arc::clone(&self.services.applications.borrow())
    }

    /// The applications of the agent, with what Git gives to them.
    pub(crate) fn managed(&self) -> Arc<ManagedApplications> {
        Arc::clone(&self.services.managed.borrow())
    }

    #[cfg(test)]
    pub(crate) fn set_managed(&self, managed: ManagedApplications) {
        self.services.managed.send_replace(Arc::new(managed));
    }

    /// The hosts that commits may wait for, or why they are unknown.
    pub(crate) fn peers(&self) -> PeerHosts {
        self.services.peers.hosts(&self.name, self.now())
    }

    pub(crate) fn ownership(&self) -> &Ownership {
        &self.services.ownership
    }

    /// Whether the engine has the data that the agent has deployed to.
    pub(crate) fn engine(&self) -> &KnownEngine {
        self.services.ownership.engine()
    }

    pub(crate) fn clock(&self) -> Clock {
        self.services.clock
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.services.clock.now()
    }

    /// Wakes all applications and the supervisor.
    pub(crate) fn wake_all(&self) {
        self.services.wakes.wake_all();
        self.services.changed.notify_one();
    }

    /// Lets the supervisor compare the applications again.
    pub(crate) fn wake_supervisor(&self) {
        self.services.changed.notify_one();
    }

    /// Hides the secrets of the stacks of the last round.
    pub(crate) fn mask(&self) -> &Mask {
        &self.mask
    }

    /// A mask that hides the secrets of these stacks, also those that are only in mounted files.
    pub(crate) fn mask_of<'a>(&self, stacks: impl IntoIterator<Item = &'a Stack>) -> Mask {
        let stacks: Vec<&Stack> = stacks.into_iter().collect();
        let lines = self.contents().secret_lines(stacks.iter().copied());
        self.services.mask.with_stacks(stacks).with_secret_lines(lines.iter().map(String::as_str))
    }

    /// The revisions in the database, newest first. `None`, with a warning: they cannot be read.
    pub(crate) fn readable_revisions(&self) -> Option<Vec<Revision>> {
        let revisions = self.store().revisions(self.name());
        let warn = |error: &driftless_store::Error| {
            tracing::warn!(app = %self.name(), error = chain(error), "could not read the revisions");
        };
        revisions.inspect_err(warn).ok()
    }

    /// The stacks of all kept revisions. What runs may be of any of them.
    pub(crate) fn kept_stacks(&self) -> Vec<Stack> {
        self.store().stacks(self.name()).unwrap_or_else(|error| {
            tracing::warn!(error = chain(&error), "could not read the revisions whose secrets are hidden");
            Vec::new()
        })
    }

    /// A mask that hides the secrets of this stack and of all kept revisions.
    pub(crate) fn mask_with_kept(&self, stack: &Stack) -> Mask {
        self.mask_of(self.kept_stacks().iter().chain([stack]))
    }

    /// From now on, events and statuses hide what this mask hides.
    pub(crate) fn set_mask(&mut self, mask: Mask) {
        self.mask = mask;
    }

    /// Writes an event about this application to the event log.
    pub(crate) fn event(&self, kind: EventKind, reason: &str, object: &str, message: &str) {
        self.append(self.new_event(kind, reason, object, message));
    }

    /// Writes an event about something that an actor asked for.
    pub(crate) fn event_by(&self, actor: &Actor, kind: EventKind, reason: &str, object: &str, message: &str) {
        let event = self.new_event(kind, reason, object, message);
        self.append(Event { actor: Some(actor.clone()), ..event });
    }

    fn new_event(&self, kind: EventKind, reason: &str, object: &str, message: &str) -> Event {
        Event {
            sequence: 0,
            at: self.now(),
            app: self.name.clone(),
            kind,
            reason: reason.to_owned(),
            object: object.to_owned(),
            message: self.mask.message(message),
            actor: None,
        }
    }

    fn append(&self, event: Event) {
        let reason = event.reason.clone();
        match self.services.store.append_event(event) {
            // There may be no reader.
            Ok(event) => drop(self.services.events.send(event)),
            Err(error) => {
                tracing::warn!(reason, error = chain(&error), "could not store an event");
            }
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::collections::BTreeSet;

    use driftless_model::{Cause, CommitInfo};
    use driftless_store::{NewRevision, StateDir};
    use tempfile::TempDir;

    use super::*;

    /// The application `shop` with a store in memory, at the beginning of 1970. Its folder lives as long as the test.
    pub(crate) fn context() -> (AppContext, TempDir) {
        context_with(|_, clock| Store::in_memory(clock).unwrap())
    }

    /// The same with a store on the disk, in the folder `state`.
    pub(crate) fn context_on_disk() -> (AppContext, TempDir) {
        context_with(|state, clock| Store::open(state, clock).unwrap().store)
    }

    fn context_with(store: impl FnOnce(&StateDir, Clock) -> Store) -> (AppContext, TempDir) {
        let folder = tempfile::tempdir().unwrap();
        let clock = Clock::starting_at(Timestamp(1_000_000));
        let state = StateDir::lock(&folder.path().join("state")).unwrap();
        let services = Services {
            store: store(&state, clock),
            contents: ContentDir::open(&state, &folder.path().join("run"), clock).unwrap(),
            clock,
            agent: AgentId::from("home"),
            mask: Mask::new([0; 32]),
            metrics: Metrics::default(),
            proxies: Arc::default(),
            events: broadcast::channel(16).0,
            wakes: Wakes::default(),
            ownership: Ownership::new(BTreeSet::new()).0,
            applications: watch::channel(Arc::default()).1,
            managed: watch::channel(Arc::default()).0,
            peers: Peers::default(),
            changed: Arc::default(),
        };
        (AppContext::new("shop".into(), Arc::new(services)), folder)
    }

    /// A revision that a commit begins.
    pub(crate) fn new_revision(app: &AppName) -> NewRevision {
        NewRevision {
            app: app.clone(),
            commit: CommitInfo::default(),
            reference: "main".to_owned(),
            cause: Cause::Commit,
            changes: Vec::new(),
            rollback_of: None,
            actor: None,
        }
    }
}
