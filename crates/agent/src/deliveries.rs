//! The deliveries of one repository's webhook: which fetch answers them, and whether a commit came that no delivery
//! announced. It does not fetch.

use std::time::Duration;

use driftless_forge::webhook;
use driftless_model::{CommitId, CommitInfo, Delivery, DeliveryOutcome, DeliveryResult, Missed, Timestamp};
use driftless_store::{DeliveryState, Error, Store};

use crate::error::chain;

/// A forge may deliver before the pushed commit is visible. After these pauses it is fetched again.
const FETCH_AGAIN: [Duration; 4] =
    [Duration::from_secs(1), Duration::from_secs(2), Duration::from_secs(4), Duration::from_secs(8)];

/// The same for a push that may be to another branch, whose commit no fetch finds.
const FETCH_ONCE_MORE: [Duration; 1] = [Duration::from_secs(2)];

/// Number of the newest deliveries that are searched for one that announced a commit.
const RECENT_DELIVERIES: u64 = 100;

/// Longest time between the fetch that found a commit and the delivery about it.
const DELIVERY_GRACE: Duration = Duration::from_mins(1);

/// Whether a fetch found a commit that was not known before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Newness {
    Known,
    /// Pushed while no agent ran, so that no delivery could reach one.
    PushedBeforeStart,
    /// Pushed while this agent was running.
    New,
}

/// The deliveries of one repository.
pub(crate) struct DeliveryTracker {
    store: Store,
    repository: String,
    /// Whether the repository has a webhook. Without one, nothing is read or stored.
    is_configured: bool,
    /// The newest delivery that the running fetch answers.
    answered: Option<u64>,
    /// The commit that the newest delivery announced.
    awaited: Option<Awaited>,
    /// A commit without a delivery, within the grace time.
    unannounced: Option<Missed>,
    missed: Option<Missed>,
}

/// A commit that a delivery announced and no fetch has found.
struct Awaited {
    commit: CommitId,
    maybe_other_branch: bool,
    /// Number of fetches that have not found it.
    fetches: usize,
}

impl DeliveryTracker {
    pub(crate) fn new(store: Store, repository: &str, is_configured: bool) -> Self {
        let mut tracker = Self {
            store,
            repository: repository.to_owned(),
            is_configured,
            answered: None,
            awaited: None,
            unannounced: None,
            missed: None,
        };
        if is_configured {
            tracker.missed = tracker.in_store(Store::missed).flatten();
        }
        tracker
    }

    /// The last commit that no delivery announced, until the next delivery.
    pub(crate) fn missed(&self) -> Option<&Missed> {
        self.missed.as_ref()
    }

    /// A fetch begins: it answers all deliveries so far.
    pub(crate) fn begin_fetch(&mut self) {
        if !self.is_configured {
            return;
        }
        self.answered = self.in_store(Store::newest_open_delivery).flatten();
        if self.answered.is_none() {
            return;
        }
        let last = self.in_store(Store::last_delivery).flatten();
        let is_answered = |delivery: &Delivery| {
            matches!(delivery.result, DeliveryResult::Accepted | DeliveryResult::Duplicate)
        };
        let announced = last.filter(is_answered).and_then(|delivery| {
            let commit = delivery.commit.filter(|commit| commit != webhook::NO_COMMIT)?;
            Some(Awaited { commit, maybe_other_branch: delivery.maybe_other_branch, fetches: 0 })
        });
        self.awaited = announced.map(|announced| match self.awaited.take() {
            Some(awaited) if awaited.commit == announced.commit => awaited,
            Some(_) | None => announced,
        });
        self.unannounced = None;
        if self.missed.take().is_some() {
            self.in_store(|store, repository| store.set_missed(repository, None));
        }
    }

    /// The fetch found `commit`. Returns the pause before the next fetch, if the announced commit is not visible yet.
    pub(crate) fn fetched(
        &mut self,
        commit: &CommitInfo,
        newness: Newness,
        now: Timestamp,
    ) -> Option<Duration> {
        if !self.is_configured {
            return None;
        }
        let short = commit.short();
        if let Some((pause, maybe_other_branch)) = self.next_fetch(commit, newness) {
            let other = if maybe_other_branch { ", or is one of another branch" } else { "" };
            let message =
                format!("the pushed commit is not visible yet{other} (still at {short}); fetching again");
            self.set_outcome(&DeliveryOutcome { at: now, message }, DeliveryState::Open);
            return Some(pause);
        }
        self.awaited = None;
        let message = match newness {
            Newness::New | Newness::PushedBeforeStart => format!("fetched {short} \"{}\"", commit.subject),
            Newness::Known => format!("nothing new, still at {short}"),
        };
        if self.answered.is_some() {
            self.set_outcome(&DeliveryOutcome { at: now, message }, DeliveryState::Closed);
        } else if newness == Newness::New && self.is_unannounced(&commit.id) {
            self.unannounced = Some(Missed { commit: commit.id.clone(), at: now });
        }
        None
    }

    /// The pause before the next fetch, as long as the announced commit is not found, and whether that may be one of another branch.
    fn next_fetch(&mut self, found: &CommitInfo, newness: Newness) -> Option<(Duration, bool)> {
        self.answered?;
        let awaited = self.awaited.as_mut()?;
        if newness != Newness::Known || awaited.commit == found.id {
            return None;
        }
        let pauses: &[Duration] = if awaited.maybe_other_branch { &FETCH_ONCE_MORE } else { &FETCH_AGAIN };
        let pause = pauses.get(awaited.fetches).copied()?;
        awaited.fetches += 1;
        Some((pause, awaited.maybe_other_branch))
    }

    /// The fetch failed: its deliveries wait for the next one.
    pub(crate) fn fetch_failed(&mut self, error: &str, now: Timestamp) {
        if self.answered.is_some() {
            let message = format!("could not fetch yet: {error}");
            self.set_outcome(&DeliveryOutcome { at: now, message }, DeliveryState::Open);
        }
    }

    /// When a commit without a delivery counts as missed.
    pub(crate) fn due(&self) -> Option<Timestamp> {
        self.unannounced.as_ref().map(|missed| missed.at.after(DELIVERY_GRACE))
    }

    /// Ends the grace time if it is over. True if a commit counts as missed from now on.
    pub(crate) fn end_grace(&mut self, now: Timestamp) -> bool {
        if self.due().is_none_or(|due| now < due) {
            return false;
        }
        self.missed = self.unannounced.take();
        if let Some(missed) = &self.missed {
            tracing::warn!(
                repository = self.repository,
                commit = missed.commit.as_str(),
                "the webhook did not announce a commit"
            );
        }
        self.in_store(|store, repository| store.set_missed(repository, self.missed.as_ref()));
        true
    }

    fn set_outcome(&self, outcome: &DeliveryOutcome, state: DeliveryState) {
        let Some(newest) = self.answered else { return };
        self.in_store(|store, repository| store.set_delivery_outcome(repository, newest, outcome, state));
    }

    /// Whether deliveries came, and none announced this commit. Without any so far, the webhook is not set up at the forge yet. A commit
    /// may become visible after the last fetch that its delivery led to.
    fn is_unannounced(&self, commit: &CommitId) -> bool {
        let read = |store: &Store, repository: &str| store.recent_deliveries(repository, RECENT_DELIVERIES);
        let recent = self.in_store(read).unwrap_or_default();
        !recent.is_empty() && recent.iter().all(|delivery| delivery.commit.as_ref() != Some(commit))
    }

    /// Reads or writes the store. If that fails, deliveries still lead to fetches; they are only not kept.
    fn in_store<T>(&self, call: impl FnOnce(&Store, &str) -> Result<T, Error>) -> Option<T> {
        let result = call(&self.store, &self.repository);
        if let Err(error) = &result {
            tracing::warn!(
                repository = self.repository,
                error = chain(error),
                "could not store webhook deliveries"
            );
        }
        result.ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use driftless_clock::Clock;
    use driftless_model::WebhookProvider;

    const START: Timestamp = Timestamp(1_000_000);

    fn delivery(id: &str, commit: Option<&CommitId>) -> Delivery {
        Delivery {
            id: id.to_owned(),
            at: START,
            provider: WebhookProvider::GitHub,
            event: "push".to_owned(),
            reference: None,
            commit: commit.cloned(),
            maybe_other_branch: false,
            from: String::new(),
            result: DeliveryResult::Accepted,
            message: String::new(),
            outcome: None,
        }
    }

    fn deliver(store: &Store, id: &str, commit: Option<&CommitId>) {
        store.accept_delivery("infra", &delivery(id, commit)).unwrap();
    }

    fn tracker(store: &Store) -> DeliveryTracker {
        DeliveryTracker::new(store.clone(), "infra", true)
    }

    fn commit(id: &str) -> CommitInfo {
        CommitInfo { id: CommitId::from_stored(id.repeat(40)), ..CommitInfo::default() }
    }

    fn later(seconds: u64) -> Timestamp {
        START.after(Duration::from_secs(seconds))
    }

    fn last_message(store: &Store) -> String {
        store.last_delivery("infra").unwrap().unwrap().outcome.unwrap().message
    }

    #[test]
    fn unannounced_commit_is_reported_until_the_next_delivery() {
        let store = Store::in_memory(Clock::System).unwrap();
        let mut deliveries = tracker(&store);
        deliveries.begin_fetch();
        deliveries.fetched(&commit("a"), Newness::New, START);
        assert_eq!(deliveries.due(), None, "without any delivery the webhook is not set up yet");

        deliver(&store, "one", None);
        deliveries.begin_fetch();
        deliveries.fetched(&commit("b"), Newness::New, START);
        assert_eq!(deliveries.due(), None);

        deliveries.begin_fetch();
        deliveries.fetched(&commit("c"), Newness::New, START);
        assert!(!deliveries.end_grace(later(59)) && deliveries.missed().is_none());
        assert!(deliveries.end_grace(later(60)) && !deliveries.end_grace(later(61)));
        assert_eq!(deliveries.missed().map(|missed| missed.commit.clone()), Some(commit("c").id));
        assert!(tracker(&store).missed().is_some(), "it survives a restart");
        assert!(DeliveryTracker::new(store.clone(), "infra", false).missed().is_none());

        deliver(&store, "two", None);
        deliveries.begin_fetch();
        assert_eq!((deliveries.missed(), store.missed("infra").unwrap()), (None, None));
    }

    #[test]
    fn late_delivery_within_the_grace_time_misses_nothing() {
        let store = Store::in_memory(Clock::System).unwrap();
        deliver(&store, "zero", None);
        let mut deliveries = tracker(&store);
        deliveries.begin_fetch();
        deliveries.fetched(&commit("a"), Newness::PushedBeforeStart, START);
        deliveries.begin_fetch();
        deliveries.fetched(&commit("b"), Newness::New, START);
        assert!(deliveries.due().is_some());
        deliver(&store, "one", None);
        deliveries.begin_fetch();
        deliveries.fetched(&commit("b"), Newness::Known, later(1));
        assert!(deliveries.due().is_none() && !deliveries.end_grace(later(600)));
        assert!(last_message(&store).starts_with("nothing new"));
    }

    #[test]
    fn announced_commit_that_is_not_visible_is_fetched_again() {
        let store = Store::in_memory(Clock::System).unwrap();
        let mut deliveries = tracker(&store);
        let old = commit("a");
        deliveries.begin_fetch();
        assert_eq!(deliveries.fetched(&old, Newness::PushedBeforeStart, START), None);
        deliver(&store, "one", Some(&commit("b").id));
        for pause in [1, 2, 4, 8] {
            deliveries.begin_fetch();
            let again = deliveries.fetched(&old, Newness::Known, START);
            assert_eq!(again, Some(Duration::from_secs(pause)));
            assert!(last_message(&store).starts_with("the pushed commit is not visible yet"));
            assert_eq!(store.count_open_deliveries("infra").unwrap(), 1);
        }
        deliveries.begin_fetch();
        assert_eq!(deliveries.fetched(&old, Newness::Known, START), None, "four times are enough");
        assert_eq!(store.count_open_deliveries("infra").unwrap(), 0);

        // A newer commit ends the fetching.
        deliver(&store, "two", Some(&commit("b").id));
        deliveries.begin_fetch();
        assert!(deliveries.fetched(&old, Newness::Known, START).is_some());
        deliveries.begin_fetch();
        assert_eq!(deliveries.fetched(&commit("c"), Newness::New, START), None);
        // A delivery without a commit announces none.
        deliver(&store, "three", None);
        deliveries.begin_fetch();
        assert_eq!(deliveries.fetched(&commit("c"), Newness::Known, START), None);
    }

    #[test]
    fn push_that_may_be_to_another_branch_is_fetched_once_more() {
        let store = Store::in_memory(Clock::System).unwrap();
        let mut deliveries = tracker(&store);
        let (old, tip) = (commit("a"), commit("b"));
        deliveries.begin_fetch();
        deliveries.fetched(&old, Newness::PushedBeforeStart, START);
        let push = Delivery { maybe_other_branch: true, ..delivery("one", Some(&tip.id)) };
        store.accept_delivery("infra", &push).unwrap();
        deliveries.begin_fetch();
        assert_eq!(deliveries.fetched(&old, Newness::Known, START), Some(Duration::from_secs(2)));
        assert!(last_message(&store).contains("not visible yet, or is one of another branch"));
        deliveries.begin_fetch();
        assert_eq!(deliveries.fetched(&old, Newness::Known, START), None);
        assert!(last_message(&store).starts_with("nothing new"));

        // It becomes visible later, also after another delivery.
        deliver(&store, "two", None);
        deliveries.begin_fetch();
        deliveries.fetched(&old, Newness::Known, START);
        deliveries.begin_fetch();
        deliveries.fetched(&tip, Newness::New, START);
        assert_eq!(deliveries.due(), None, "it was announced");
        deliveries.begin_fetch();
        deliveries.fetched(&commit("c"), Newness::New, START);
        assert!(deliveries.due().is_some());
    }

    #[test]
    fn delivery_stays_open_after_a_failed_fetch() {
        let store = Store::in_memory(Clock::System).unwrap();
        deliver(&store, "one", None);
        let mut deliveries = tracker(&store);
        deliveries.begin_fetch();
        deliveries.fetch_failed("no route to host", START);
        assert_eq!(store.count_open_deliveries("infra").unwrap(), 1);
        assert!(last_message(&store).contains("no route"));
        deliveries.begin_fetch();
        deliveries.fetched(&commit("a"), Newness::PushedBeforeStart, START);
        assert_eq!(store.count_open_deliveries("infra").unwrap(), 0);
    }
}
