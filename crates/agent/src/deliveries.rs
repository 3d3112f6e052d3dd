//! What webhooks announced of one repository, held against what was fetched: which deliveries a fetch answers,
//! and whether a commit came that none announced. It fetches nothing itself.

use std::time::Duration;

use driftless_forge::webhook;
use driftless_model::{CommitInfo, Delivery, DeliveryOutcome, DeliveryResult, Missed, Timestamp};
use driftless_store::{Error, Store};

/// A forge may ring before what was pushed can be seen. So often, and after these pauses, it is asked again when what a
/// webhook announced is not there yet.
const ASK_AGAIN: [Duration; 4] =
    [Duration::from_secs(1), Duration::from_secs(2), Duration::from_secs(4), Duration::from_secs(8)];

/// How long after a commit was found by asking its webhook may still arrive.
const GRACE: Duration = Duration::from_mins(1);

pub(crate) struct Announced {
    store: Store,
    repository: String,
    /// Whether it has a webhook at all. Without, nothing here touches the store.
    is_configured: bool,
    /// The newest delivery that the fetch under way answers.
    answered: Option<u64>,
    /// The commit that the newest delivery speaks of, and how often it was looked for in vain.
    awaited: Option<(String, usize)>,
    /// Found by asking, and not announced so far.
    suspect: Option<Missed>,
    missed: Option<Missed>,
}

impl Announced {
    pub(crate) fn new(store: Store, repository: &str, is_configured: bool) -> Self {
        let mut it = Self {
            store,
            repository: repository.to_owned(),
            is_configured,
            answered: None,
            awaited: None,
            suspect: None,
            missed: None,
        };
        if is_configured {
            it.missed = it.tell(|it| it.store.missed(&it.repository)).flatten();
        }
        it
    }

    pub(crate) fn missed(&self) -> Option<&Missed> {
        self.missed.as_ref()
    }

    /// A fetch begins: whatever rang before is answered by it.
    pub(crate) fn begin(&mut self) {
        if !self.is_configured {
            return;
        }
        self.answered = self.tell(|it| it.store.open_deliveries(&it.repository)).flatten();
        if self.answered.is_some() {
            let last = self.tell(|it| it.store.last_delivery(&it.repository)).flatten();
            let is_due =
                |it: &Delivery| matches!(it.result, DeliveryResult::Accepted | DeliveryResult::Duplicate);
            let commit = last.filter(is_due).and_then(|it| it.commit);
            self.awaited =
                commit.filter(|it| it != webhook::NO_COMMIT).map(|commit| match self.awaited.take() {
                    Some((awaited, tries)) if awaited == commit => (awaited, tries),
                    Some(_) | None => (commit, 0),
                });
            self.suspect = None;
            if self.missed.take().is_some() {
                self.tell(|it| it.store.set_missed(&it.repository, None));
            }
        }
    }

    /// The fetch went well. `is_news`: it found a commit that was made while this agent was looking. Returns after
    /// which pause to fetch again, if the commit that a webhook announced is not visible yet.
    pub(crate) fn fetched(
        &mut self,
        commit: &CommitInfo,
        is_new: bool,
        is_news: bool,
        now: Timestamp,
    ) -> Option<Duration> {
        if !self.is_configured {
            return None;
        }
        if let Some(pause) = self.again(commit, is_new) {
            let message =
                format!("the pushed commit is not visible yet (still at {}); fetching again", commit.short());
            self.settle(&DeliveryOutcome { at: now, message }, false);
            return Some(pause);
        }
        self.awaited = None;
        let message = if is_new {
            format!("fetched {} \"{}\"", commit.short(), commit.subject)
        } else {
            format!("nothing new, still at {}", commit.short())
        };
        if self.answered.is_some() {
            self.settle(&DeliveryOutcome { at: now, message }, true);
        } else if is_news && self.was_heard_once() {
            self.suspect = Some(Missed { commit: commit.id.clone(), at: now });
        }
        None
    }

    /// The pause before the next try, while nothing new came and the announced commit is another than the one found.
    fn again(&mut self, found: &CommitInfo, is_new: bool) -> Option<Duration> {
        self.answered?;
        let (awaited, tries) = self.awaited.as_mut()?;
        if is_new || *awaited == found.id {
            return None;
        }
        let pause = ASK_AGAIN.get(*tries).copied();
        *tries += 1;
        pause
    }

    /// The fetch failed: what rang for it stays open.
    pub(crate) fn failed(&mut self, error: &str, now: Timestamp) {
        if self.answered.is_some() {
            let message = format!("could not be fetched yet: {error}");
            self.settle(&DeliveryOutcome { at: now, message }, false);
        }
    }

    /// When to say that a commit was not announced.
    pub(crate) fn due(&self) -> Option<Timestamp> {
        self.suspect.as_ref().map(|it| it.at.after(GRACE))
    }

    /// Says so when it is time. True when there is something new to say.
    pub(crate) fn look(&mut self, now: Timestamp) -> bool {
        if self.due().is_none_or(|it| now < it) {
            return false;
        }
        self.missed = self.suspect.take();
        if let Some(missed) = &self.missed {
            tracing::warn!(repository = self.repository, "{missed}");
        }
        self.tell(|it| it.store.set_missed(&it.repository, it.missed.as_ref()));
        true
    }

    fn settle(&self, outcome: &DeliveryOutcome, over: bool) {
        let Some(place) = self.answered else { return };
        self.tell(|it| it.store.settle_deliveries(&it.repository, place, outcome, over));
    }

    /// A webhook that never rang is not set up yet.
    fn was_heard_once(&self) -> bool {
        self.tell(|it| it.store.last_delivery(&it.repository)).flatten().is_some()
    }

    /// Without the store, webhooks still ring; they are only not kept.
    fn tell<T>(&self, ask: impl FnOnce(&Self) -> Result<T, Error>) -> Option<T> {
        ask(self)
            .inspect_err(
                |error| tracing::warn!(repository = self.repository, %error, "the inbox of the webhook"),
            )
            .ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use driftless_clock::Clock;
    use driftless_model::HookProvider;

    const START: Timestamp = Timestamp(1_000_000);

    fn ring(store: &Store, id: &str) {
        ring_of(store, id, None);
    }

    fn ring_of(store: &Store, id: &str, commit: Option<&str>) {
        let delivery = Delivery {
            id: id.to_owned(),
            at: START,
            provider: HookProvider::GitHub,
            event: "push".to_owned(),
            reference: None,
            commit: commit.map(str::to_owned),
            from: String::new(),
            result: DeliveryResult::Accepted,
            message: String::new(),
            outcome: None,
        };
        store.accept_delivery("infra", &delivery).unwrap();
    }

    fn commit(id: &str) -> CommitInfo {
        CommitInfo { id: id.repeat(40), ..CommitInfo::default() }
    }

    fn later(seconds: u64) -> Timestamp {
        START.after(Duration::from_secs(seconds))
    }

    #[test]
    fn a_commit_that_no_webhook_announced_is_told_after_a_while_and_until_the_next_ring() {
        let store = Store::in_memory(Clock::System).unwrap();
        let mut announced = Announced::new(store.clone(), "infra", true);
        announced.begin();
        announced.fetched(&commit("a"), true, true, START);
        assert_eq!(announced.due(), None, "it was never heard, so it is not set up yet");

        ring(&store, "one");
        announced.begin();
        announced.fetched(&commit("b"), true, true, START);
        assert_eq!(announced.due(), None);

        announced.begin();
        announced.fetched(&commit("c"), true, true, START);
        assert!(!announced.look(later(59)) && announced.missed().is_none());
        assert!(announced.look(later(60)) && !announced.look(later(61)));
        assert_eq!(announced.missed().map(|it| it.commit.clone()), Some("c".repeat(40)));
        assert!(Announced::new(store.clone(), "infra", true).missed().is_some(), "a restart forgets it not");
        assert!(Announced::new(store.clone(), "infra", false).missed().is_none());

        ring(&store, "two");
        announced.begin();
        assert_eq!((announced.missed(), store.missed("infra").unwrap()), (None, None));
    }

    #[test]
    fn a_webhook_that_is_a_little_late_has_missed_nothing() {
        let store = Store::in_memory(Clock::System).unwrap();
        ring(&store, "zero");
        let mut announced = Announced::new(store.clone(), "infra", true);
        announced.begin();
        announced.fetched(&commit("a"), true, false, START);
        announced.begin();
        announced.fetched(&commit("b"), true, true, START);
        assert!(announced.due().is_some());
        ring(&store, "one");
        announced.begin();
        announced.fetched(&commit("b"), false, false, later(1));
        assert!(announced.due().is_none() && !announced.look(later(600)));
        let outcome = store.last_delivery("infra").unwrap().unwrap().outcome.unwrap();
        assert!(outcome.message.starts_with("nothing new"), "{outcome:?}");
    }

    #[test]
    fn what_is_announced_before_it_can_be_seen_is_asked_for_again_a_few_times() {
        let store = Store::in_memory(Clock::System).unwrap();
        let mut announced = Announced::new(store.clone(), "infra", true);
        let old = commit("a");
        announced.begin();
        assert_eq!(announced.fetched(&old, true, false, START), None);
        ring_of(&store, "one", Some(&commit("b").id));
        for pause in [1, 2, 4, 8] {
            announced.begin();
            assert_eq!(announced.fetched(&old, false, false, START), Some(Duration::from_secs(pause)));
            let outcome = store.last_delivery("infra").unwrap().unwrap().outcome.unwrap();
            assert!(outcome.message.starts_with("the pushed commit is not visible yet"), "{outcome:?}");
            assert_eq!(store.count_open_deliveries("infra").unwrap(), 1);
        }
        announced.begin();
        assert_eq!(announced.fetched(&old, false, false, START), None, "it was asked for often enough");
        assert_eq!(store.count_open_deliveries("infra").unwrap(), 0);

        // What was seen meanwhile, or something newer, ends the asking.
        ring_of(&store, "two", Some(&commit("b").id));
        announced.begin();
        assert!(announced.fetched(&old, false, false, START).is_some());
        announced.begin();
        assert_eq!(announced.fetched(&commit("c"), true, true, START), None);
        // Nothing was announced that could be waited for.
        ring_of(&store, "three", None);
        announced.begin();
        assert_eq!(announced.fetched(&commit("c"), false, false, START), None);
    }

    #[test]
    fn what_rang_for_a_fetch_that_failed_stays_open() {
        let store = Store::in_memory(Clock::System).unwrap();
        ring(&store, "one");
        let mut announced = Announced::new(store.clone(), "infra", true);
        announced.begin();
        announced.failed("no route to host", START);
        assert_eq!(store.count_open_deliveries("infra").unwrap(), 1);
        let outcome = store.last_delivery("infra").unwrap().unwrap().outcome.unwrap();
        assert!(outcome.message.contains("no route"), "{outcome:?}");
        announced.begin();
        announced.fetched(&commit("a"), true, false, START);
        assert_eq!(store.count_open_deliveries("infra").unwrap(), 0);
    }
}
