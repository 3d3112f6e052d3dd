//! Open incidents and the messages that wait to be sent: in the database, or in memory while that cannot be written, as with a
//! full disk.

use std::{
    collections::BTreeSet,
    sync::{Mutex, PoisonError},
};

use driftless_model::{Incident, Timestamp};
use driftless_store as store;
use driftless_store::{IncidentUpdate, Store};

use crate::error::chain;

/// The incidents of one agent. A restart of the agent loses what is only in memory, and may notify of it again.
pub(crate) struct Outbox {
    store: Store,
    /// The incidents and the new messages since the database has refused a change.
    memory: Mutex<Option<Store>>,
}

impl Outbox {
    pub(crate) fn new(store: Store) -> Self {
        Self { store, memory: Mutex::default() }
    }

    /// The messages that the database could not take.
    pub(crate) fn memory(&self) -> Option<Store> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set_memory(&self, memory: Option<Store>) {
        *self.memory.lock().unwrap_or_else(PoisonError::into_inner) = memory;
    }

    /// The place of the open incidents.
    pub(crate) fn incidents(&self) -> Store {
        self.memory().unwrap_or_else(|| self.store.clone())
    }

    /// Keeps a change: in the database, with what is in memory, else in memory.
    pub(crate) fn update(
        &self,
        update: &IncidentUpdate,
        receivers: &BTreeSet<String>,
        now: Timestamp,
    ) -> Result<(), store::Error> {
        if let Some(memory) = self.memory() {
            memory.update_incidents(update, now)?;
            let unstored = self.unstored(&memory, receivers)?;
            if self.store.update_incidents(&unstored, now).is_ok() {
                self.set_memory(None);
                tracing::info!("the incidents are stored again");
            }
            return Ok(());
        }
        if *update == IncidentUpdate::default() {
            return Ok(());
        }
        let Err(error) = self.store.update_incidents(update, now) else { return Ok(()) };
        tracing::warn!(error = chain(&error), "could not store incidents; they are kept in memory");
        let memory = self.store.incidents_in_memory(now)?;
        memory.update_incidents(update, now)?;
        self.set_memory(Some(memory));
        Ok(())
    }

    /// The difference between the memory and the database.
    fn unstored(&self, memory: &Store, receivers: &BTreeSet<String>) -> Result<IncidentUpdate, store::Error> {
        let kept = memory.open_incidents()?;
        let open: BTreeSet<String> = kept.iter().map(Incident::key).collect();
        let mut ended = self.store.open_incidents()?;
        ended.retain(|incident| !open.contains(&incident.key()));
        let mut notifications = Vec::new();
        for receiver in receivers {
            for waiting in memory.waiting_notifications(receiver)? {
                notifications.push((waiting.phase, waiting.incident, BTreeSet::from([receiver.clone()])));
            }
        }
        Ok(IncidentUpdate { kept, ended, notifications, handled_event: memory.handled_event()? })
    }
}

#[cfg(test)]
mod tests {
    use driftless_clock::Clock;
    use driftless_model::{IncidentKind, IncidentPhase};
    use driftless_notify::sample;
    use driftless_store::StateDir;

    use super::*;

    /// The messages that wait for the receiver, by the kind and number of their incident.
    fn waiting(store: &Store) -> Vec<(IncidentKind, u64)> {
        let found = store.waiting_notifications("phone").unwrap().into_iter();
        found.map(|waiting| (waiting.incident.kind, waiting.incident.number)).collect()
    }

    #[test]
    fn incidents_are_kept_in_memory_while_nothing_can_be_stored() {
        let dir = tempfile::tempdir().unwrap();
        let (path, elsewhere) = (dir.path().join("state"), dir.path().join("elsewhere"));
        let state = StateDir::lock(&path).unwrap();
        let now = Timestamp(1_800_000_000_000);
        let store = Store::open(&state, Clock::starting_at(now)).unwrap().store;
        let outbox = Outbox::new(store.clone());
        let receivers = BTreeSet::from(["phone".to_owned()]);
        let opens = |kind| {
            let incident = Incident { ended: None, receivers: receivers.clone(), ..sample(kind, now) };
            let made = (IncidentPhase::Opened, incident.clone(), receivers.clone());
            IncidentUpdate { kept: vec![incident], notifications: vec![made], ..IncidentUpdate::default() }
        };
        outbox.update(&opens(IncidentKind::Degraded), &receivers, now).unwrap();
        assert!(outbox.memory().is_none());
        // As on a full disk.
        std::fs::rename(&path, &elsewhere).unwrap();
        outbox.update(&opens(IncidentKind::SyncFailed), &receivers, now).unwrap();
        let memory = outbox.memory().unwrap();
        assert_eq!(waiting(&memory), [(IncidentKind::SyncFailed, 2)], "the other one waits in the database");
        assert_eq!(outbox.incidents().open_incidents().unwrap().len(), 2);
        // It is sent, another one is not, and one that was stored ends.
        memory.mark_sent("phone", &memory.waiting_notifications("phone").unwrap(), now).unwrap();
        outbox.update(&opens(IncidentKind::PruneHeld), &receivers, now).unwrap();
        let ended = memory.open_incidents().unwrap().into_iter().take(1).collect();
        let ended = IncidentUpdate { ended, ..IncidentUpdate::default() };
        outbox.update(&ended, &receivers, now).unwrap();
        std::fs::rename(&elsewhere, &path).unwrap();
        outbox.update(&IncidentUpdate::default(), &receivers, now).unwrap();
        assert!(outbox.memory().is_none());
        assert_eq!(waiting(&store), [(IncidentKind::Degraded, 1), (IncidentKind::PruneHeld, 3)]);
        let open = store.open_incidents().unwrap();
        let open: Vec<_> = open.iter().map(|incident| (incident.kind, incident.number)).collect();
        assert_eq!(open, [(IncidentKind::SyncFailed, 2), (IncidentKind::PruneHeld, 3)]);
        // No number is used twice.
        outbox.update(&opens(IncidentKind::Degraded), &receivers, now).unwrap();
        assert_eq!(store.open_incidents().unwrap().last().map(|incident| incident.number), Some(4));
    }
}
