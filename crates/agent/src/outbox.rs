//! Open incidents and the messages that wait to be sent: in the database, or in memory while that cannot be written, as with a
//! full disk. They are in one place at a time, with all messages and the numbers of both, so that the order, the rate limit and
//! the numbers go on.

use std::sync::{Mutex, MutexGuard, PoisonError};

use driftless_model::Timestamp;
use driftless_store as store;
use driftless_store::{IncidentUpdate, Store};

use crate::error::chain;

/// The incidents of one agent. A restart of the agent loses what is only in memory, and may notify of it again.
pub(crate) struct Outbox {
    store: Store,
    /// The incidents and messages since the database has refused a change.
    memory: Mutex<Option<Store>>,
}

impl Outbox {
    pub(crate) fn new(store: Store) -> Self {
        Self { store, memory: Mutex::default() }
    }

    /// The incidents and messages, to read them.
    pub(crate) fn current(&self) -> Store {
        self.lock().as_ref().unwrap_or(&self.store).clone()
    }

    /// Changes them, while they do not move between database and memory. A message has the same number in both.
    pub(crate) fn change<T>(&self, change: impl FnOnce(&Store) -> T) -> T {
        let memory = self.lock();
        change(memory.as_ref().unwrap_or(&self.store))
    }

    /// Keeps a change of the incidents: in the database, with what is in memory, else in memory.
    pub(crate) fn update(&self, update: &IncidentUpdate, now: Timestamp) -> Result<(), store::Error> {
        let mut memory = self.lock();
        if let Some(current) = memory.as_ref() {
            current.update_incidents(update, now)?;
            match self.store.restore_incidents(current) {
                Ok(()) => {
                    *memory = None;
                    tracing::info!("the incidents are stored again");
                }
                Err(error) => {
                    tracing::warn!(error = chain(&error), "the incidents are still kept in memory only");
                }
            }
            return Ok(());
        }
        if *update == IncidentUpdate::default() {
            return Ok(());
        }
        let Err(error) = self.store.update_incidents(update, now) else { return Ok(()) };
        tracing::warn!(error = chain(&error), "could not store incidents; they are kept in memory");
        let current = self.store.incidents_in_memory(now)?;
        current.update_incidents(update, now)?;
        *memory = Some(current);
        Ok(())
    }

    /// The only change under this lock is an assignment, so a panic of another task leaves a valid value.
    fn lock(&self) -> MutexGuard<'_, Option<Store>> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, fs, path::PathBuf};

    use driftless_clock::Clock;
    use driftless_model::{Incident, IncidentKind, IncidentPhase, Notification};
    use driftless_notify::sample;
    use driftless_store::StateDir;

    use super::*;

    const NOW: Timestamp = Timestamp(1_800_000_000_000);

    /// An outbox whose state directory can be moved away, after which nothing can be stored, as on a full disk.
    struct MovableOutbox {
        outbox: Outbox,
        dir: tempfile::TempDir,
        _state: StateDir,
    }

    impl MovableOutbox {
        fn new() -> Self {
            let dir = tempfile::tempdir().unwrap();
            let state = StateDir::lock(&dir.path().join("state")).unwrap();
            let store = Store::open(&state, Clock::starting_at(NOW)).unwrap().store;
            Self { outbox: Outbox::new(store), dir, _state: state }
        }

        fn places(&self) -> [PathBuf; 2] {
            ["state", "elsewhere"].map(|name| self.dir.path().join(name))
        }

        fn fill_disk(&self) {
            let [path, elsewhere] = self.places();
            fs::rename(path, elsewhere).unwrap();
        }

        fn free_disk(&self) {
            let [path, elsewhere] = self.places();
            fs::rename(elsewhere, path).unwrap();
            self.update(&IncidentUpdate::default());
            assert!(self.outbox.lock().is_none(), "all is stored");
        }

        fn update(&self, update: &IncidentUpdate) {
            self.outbox.update(update, NOW).unwrap();
        }

        /// Opens an incident with a message.
        fn open(&self, kind: IncidentKind) {
            let receivers = BTreeSet::from(["phone".to_owned()]);
            let incident = Incident { ended: None, receivers: receivers.clone(), ..sample(kind, NOW) };
            let notifications = vec![(IncidentPhase::Opened, incident.clone(), receivers)];
            self.update(&IncidentUpdate { kept: vec![incident], notifications, ..IncidentUpdate::default() });
        }

        /// Ends the oldest incident with a message.
        fn end_oldest(&self) {
            let oldest = self.outbox.current().open_incidents().unwrap().remove(0);
            let notifications = vec![(IncidentPhase::Recovered, oldest.clone(), oldest.receivers.clone())];
            self.update(&IncidentUpdate { ended: vec![oldest], notifications, ..IncidentUpdate::default() });
        }

        fn open_numbers(&self) -> Vec<(IncidentKind, u64)> {
            let open = self.outbox.current().open_incidents().unwrap();
            open.iter().map(|incident| (incident.kind, incident.number)).collect()
        }

        fn waiting(&self) -> Vec<Notification> {
            self.outbox.current().waiting_notifications("phone").unwrap()
        }

        /// The messages that wait, with the numbers of their incidents.
        fn phases(&self) -> Vec<(IncidentPhase, u64)> {
            let waiting = self.waiting().into_iter();
            waiting.map(|waiting| (waiting.phase, waiting.incident.number)).collect()
        }

        fn mark(&self, sent: &[Notification], at: Timestamp) {
            self.outbox.change(|store| store.mark_sent("phone", sent, at)).unwrap();
        }

        fn sent_times(&self) -> Vec<Timestamp> {
            self.outbox.current().sent_times("phone", Timestamp(0)).unwrap()
        }
    }

    #[test]
    fn incidents_are_kept_in_memory_while_nothing_can_be_stored() {
        let it = MovableOutbox::new();
        it.open(IncidentKind::Degraded);
        assert!(it.outbox.lock().is_none());
        it.fill_disk();
        it.open(IncidentKind::SyncFailed);
        assert!(it.outbox.lock().is_some());
        assert_eq!(it.phases(), [(IncidentPhase::Opened, 1), (IncidentPhase::Opened, 2)]);
        // One message is sent, another one is not.
        it.mark(&it.waiting()[..1], Timestamp(NOW.0 + 1));
        it.open(IncidentKind::PruneHeld);
        it.free_disk();
        assert_eq!(it.phases(), [(IncidentPhase::Opened, 2), (IncidentPhase::Opened, 3)]);
        let expected =
            [(IncidentKind::Degraded, 1), (IncidentKind::SyncFailed, 2), (IncidentKind::PruneHeld, 3)];
        assert_eq!(it.open_numbers(), expected);
        assert_eq!(it.sent_times(), [Timestamp(NOW.0 + 1)]);
    }

    #[test]
    fn end_in_memory_replaces_the_stored_message_that_waits() {
        let it = MovableOutbox::new();
        it.open(IncidentKind::SyncFailed);
        it.mark(&it.waiting(), NOW);
        it.open(IncidentKind::Degraded);
        it.fill_disk();
        it.end_oldest();
        it.end_oldest();
        let ended = [(IncidentPhase::Recovered, 1), (IncidentPhase::Recovered, 2)];
        assert_eq!(it.phases(), ended, "no message says afterwards that it is degraded");
        assert_eq!(it.sent_times(), [NOW], "the rate limit counts messages of before");
        it.free_disk();
        assert_eq!((it.phases(), it.open_numbers()), (ended.to_vec(), Vec::new()));
    }

    #[test]
    fn numbers_from_memory_are_not_used_again() {
        let it = MovableOutbox::new();
        let mut messages = BTreeSet::new();
        for number in 1..=4 {
            it.fill_disk();
            it.open(IncidentKind::Degraded);
            assert_eq!(it.open_numbers(), [(IncidentKind::Degraded, number)]);
            let opened = it.waiting();
            it.mark(&opened, NOW);
            it.end_oldest();
            let ended = it.waiting();
            it.mark(&ended, NOW);
            it.free_disk();
            messages.extend(opened.iter().chain(&ended).map(|message| message.number));
        }
        assert_eq!(messages.len(), 8, "{messages:?}");
        it.open(IncidentKind::Degraded);
        assert_eq!(it.open_numbers(), [(IncidentKind::Degraded, 5)]);
        assert!(!messages.contains(&it.waiting()[0].number));
    }

    #[test]
    fn numbers_lost_in_a_restart_are_not_used_again() {
        let it = MovableOutbox::new();
        it.open(IncidentKind::Degraded);
        let mut numbers = BTreeSet::new();
        for seconds in 0..3 {
            let now = Timestamp(NOW.0 + 1000 * seconds);
            // The one of the time before is lost.
            let memory = it.outbox.store.incidents_in_memory(now).unwrap();
            let open = memory.open_incidents().unwrap().remove(0);
            let receivers = open.receivers.clone();
            let notifications = vec![(IncidentPhase::Updated, open, receivers)];
            let update = IncidentUpdate { notifications, ..IncidentUpdate::default() };
            memory.update_incidents(&update, now).unwrap();
            let waiting = memory.waiting_notifications("phone").unwrap();
            numbers.extend(waiting.iter().map(|waiting| waiting.number));
        }
        assert_eq!(numbers.len(), 3, "{numbers:?}");
    }

    #[test]
    fn message_that_is_sent_while_the_disk_has_room_again_is_marked() {
        let it = MovableOutbox::new();
        it.fill_disk();
        it.open(IncidentKind::Degraded);
        let sending = it.waiting();
        it.free_disk();
        assert_eq!(it.waiting(), sending, "it would be sent with the same number");
        it.mark(&sending, NOW);
        assert_eq!((it.waiting(), it.sent_times()), (Vec::new(), vec![NOW]));
        // In the other direction as well.
        it.open(IncidentKind::SyncFailed);
        let sending = it.waiting();
        it.fill_disk();
        it.open(IncidentKind::PruneHeld);
        it.mark(&sending, NOW);
        assert_eq!(it.phases(), [(IncidentPhase::Opened, 3)]);
    }
}
