//! A list of objects that is read as a whole once. After that, only the objects are read again that events or calls of
//! the agent name.
//!
//! Readers that ask while an answer is awaited share the next one.

use std::{
    collections::{BTreeMap, BTreeSet},
    future::Future,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

use crate::call_error::CallError;

/// The time after which everything is read again, with and without events. Shorter than the interval of full passes, so
/// that each of them reads everything.
const LONGEST_AGE: Duration = Duration::from_secs(290);
/// The time for which an object is read again after an event that the engine sends before its own list is up to date:
/// when a container exits, it takes down the network in between.
const SETTLING: Duration = Duration::from_secs(5);
/// If more objects have to be read, and they are more than half of all, everything is.
const FEW_KEYS: usize = 64;
/// The most objects that one question names. A proxy before the engine may refuse a longer address.
const KEYS_OF_A_QUESTION: usize = 64;
/// Bounds the memory of changes that nobody reads.
const MOST_CHANGES: usize = 4096;

/// The objects that a reader has to ask the engine for.
#[derive(Debug)]
pub(crate) enum Reading<S> {
    /// Everything. `before`: the last list, which may be outdated.
    All { before: Arc<S> },
    /// The objects with these keys. Everything else is as it was `before`.
    Changed { before: Arc<S>, keys: BTreeSet<String> },
}

impl<S> Reading<S> {
    /// The keys that each question to the engine names. One question without keys asks for everything.
    pub(crate) fn questions(&self) -> Vec<Option<Vec<String>>> {
        match self {
            Self::All { .. } => vec![None],
            Self::Changed { keys, .. } => {
                let keys: Vec<String> = keys.iter().cloned().collect();
                keys.chunks(KEYS_OF_A_QUESTION).map(|keys| Some(keys.to_vec())).collect()
            }
        }
    }
}

/// Whether the engine's list is up to date when an event about an object arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Settled {
    Yes,
    /// Within a few seconds.
    Soon,
}

/// A whole list.
pub(crate) trait List: Default {
    /// The number of its objects.
    fn count(&self) -> usize;
}

/// The list of all objects of one kind. `S` is the whole list. It makes no calls itself.
#[derive(Debug)]
pub(crate) struct Catalogue<S> {
    state: Mutex<CatalogueState<S>>,
    /// Held while an answer is awaited: the queue of the readers that share the next one.
    turn: tokio::sync::Mutex<()>,
}

#[derive(Debug)]
struct CatalogueState<S> {
    /// Whether every change is announced by an event.
    is_trusted: bool,
    /// Counts readers and changes, so that their order is known.
    moment: u64,
    last: Option<ListRead<S>>,
    changed: BTreeMap<String, Change>,
    /// Lists that were requested up to this moment may be wrong in any object.
    outdated: u64,
}

/// The last answer of the engine.
#[derive(Debug)]
struct ListRead<S> {
    /// The moment before the request.
    requested: u64,
    /// The time of the last request for everything.
    whole_since: Instant,
    result: Result<Arc<S>, CallError>,
}

#[derive(Clone, Copy, Debug)]
struct Change {
    moment: u64,
    /// The time of the event.
    noted: Instant,
    settles: Instant,
    /// When it was last read since.
    read: Option<Instant>,
}

impl Change {
    /// Whether the object has to be read. One that was read after the event and has not settled is read again when twice
    /// as much time has passed since the event. Each reader used to read it, so a host on which hundreds of containers
    /// exit was read as a whole by each of them.
    fn is_due(&self, now: Instant) -> bool {
        let Some(read) = self.read.filter(|_| now < self.settles) else { return true };
        now.duration_since(self.noted) >= 2 * read.duration_since(self.noted)
    }
}

impl<S> Default for Catalogue<S> {
    fn default() -> Self {
        let state = CatalogueState {
            is_trusted: false,
            moment: 0,
            last: None,
            changed: BTreeMap::new(),
            outdated: 0,
        };
        Self { state: Mutex::new(state), turn: tokio::sync::Mutex::default() }
    }
}

impl<S: List> Catalogue<S> {
    /// The list as it is: the known one if nothing has changed, else what `read` returns. Without events everything is
    /// read each time.
    pub(crate) async fn get<F>(&self, read: impl FnOnce(Reading<S>) -> F + Send) -> Result<Arc<S>, CallError>
    where
        F: Future<Output = Result<S, CallError>> + Send,
    {
        let asked = self.lock().next_moment();
        let _turn = self.turn.lock().await;
        let (reading, requested) = match self.lock().begin(asked) {
            Next::Known(result) => return result,
            Next::Read { reading, requested } => (reading, requested),
        };
        let began = Instant::now();
        let keys = match &reading {
            Reading::All { .. } => None,
            Reading::Changed { keys, .. } => Some(keys.clone()),
        };
        let result = read(reading).await.map(Arc::new);
        self.lock().finish(requested, began, keys.as_ref(), result.clone());
        result
    }

    /// The last list that was read, which may be outdated.
    pub(crate) fn last_known(&self) -> Option<Arc<S>> {
        let state = self.lock();
        state.last.as_ref().and_then(|last| last.result.as_ref().ok().map(Arc::clone))
    }

    /// From now on, each change is announced by an event.
    pub(crate) fn trust(&self) {
        let mut state = self.lock();
        state.is_trusted = true;
        state.outdate();
    }

    /// From now on, events can be missed.
    pub(crate) fn distrust(&self) {
        let mut state = self.lock();
        state.is_trusted = false;
        state.outdate();
    }

    /// An object has changed, has come or is gone.
    pub(crate) fn note_change(&self, key: &str, settled: Settled) {
        let mut state = self.lock();
        let moment = state.next_moment();
        if state.changed.len() >= MOST_CHANGES && !state.changed.contains_key(key) {
            return state.outdate();
        }
        let noted = Instant::now();
        let settles = if settled == Settled::Yes { noted } else { noted + SETTLING };
        let settles = state.changed.get(key).map_or(settles, |before| before.settles.max(settles));
        state.changed.insert(key.to_owned(), Change { moment, noted, settles, read: None });
    }

    /// Everything has to be read again.
    pub(crate) fn outdate(&self) {
        self.lock().outdate();
    }

    fn lock(&self) -> MutexGuard<'_, CatalogueState<S>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The answer to a reader whose turn it is.
enum Next<S> {
    Known(Result<Arc<S>, CallError>),
    Read { reading: Reading<S>, requested: u64 },
}

impl<S: List> CatalogueState<S> {
    fn next_moment(&mut self) -> u64 {
        self.moment = self.moment.saturating_add(1);
        self.moment
    }

    fn outdate(&mut self) {
        self.outdated = self.next_moment();
        self.changed.clear();
    }

    fn begin(&mut self, asked: u64) -> Next<S> {
        let requested = self.next_moment();
        let Some(last) = &self.last else {
            return Next::Read { reading: Reading::All { before: Arc::default() }, requested };
        };
        if last.requested > asked {
            return Next::Known(last.result.clone());
        }
        let before = last.result.as_ref().map(Arc::clone).unwrap_or_default();
        let is_complete = self.is_trusted
            && last.result.is_ok()
            && last.requested > self.outdated
            && last.whole_since.elapsed() < LONGEST_AGE;
        if !is_complete {
            return Next::Read { reading: Reading::All { before }, requested };
        }
        let now = Instant::now();
        let due = self.changed.iter().filter(|(_, change)| change.is_due(now));
        let keys: BTreeSet<String> = due.map(|(key, _)| key.clone()).collect();
        if keys.is_empty() {
            return Next::Known(last.result.clone());
        }
        // The engine takes longer for a list the more objects it has. Asked for 70 of 1,000, it was read as a whole.
        if keys.len() > FEW_KEYS.max(before.count() / 2) {
            return Next::Read { reading: Reading::All { before }, requested };
        }
        Next::Read { reading: Reading::Changed { before, keys }, requested }
    }

    /// `keys`: the objects that were read; `None` if everything was.
    fn finish(
        &mut self,
        requested: u64,
        began: Instant,
        keys: Option<&BTreeSet<String>>,
        result: Result<Arc<S>, CallError>,
    ) {
        if result.is_ok() {
            self.changed.retain(|key, change| {
                let was_read = change.moment <= requested && keys.is_none_or(|keys| keys.contains(key));
                if was_read {
                    change.read = Some(began);
                }
                !was_read || change.settles > began
            });
        }
        let before = self.last.take();
        let whole_since = before.filter(|_| keys.is_some()).map_or(began, |before| before.whole_since);
        self.last = Some(ListRead { requested, whole_since, result });
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use futures_util::future::join_all;

    use super::*;

    type Names = BTreeSet<String>;

    impl List for Names {
        fn count(&self) -> usize {
            self.len()
        }
    }

    /// An engine with objects, and the questions that it was asked.
    #[derive(Default)]
    struct ListedHost {
        names: Mutex<Names>,
        reads: Mutex<Vec<String>>,
        catalogue: Catalogue<Names>,
    }

    impl ListedHost {
        fn new(names: &[&str]) -> Self {
            let host = Self::default();
            host.names.lock().unwrap().extend(names.iter().map(|name| (*name).to_owned()));
            host.catalogue.trust();
            host
        }

        async fn list(&self) -> Vec<String> {
            let read = |reading| async move {
                tokio::task::yield_now().await;
                let exist = self.names.lock().unwrap().clone();
                Ok(match reading {
                    Reading::All { .. } => {
                        self.reads.lock().unwrap().push("all".to_owned());
                        exist
                    }
                    Reading::Changed { before, keys } => {
                        let asked: Vec<_> = keys.iter().cloned().collect();
                        self.reads.lock().unwrap().push(asked.join(" "));
                        &(&*before - &keys) | &(&exist & &keys)
                    }
                })
            };
            self.catalogue.get(read).await.unwrap().iter().cloned().collect()
        }

        fn reads(&self) -> Vec<String> {
            std::mem::take(&mut self.reads.lock().unwrap())
        }
    }

    #[tokio::test(start_paused = true)]
    async fn only_objects_that_changed_are_read_again() {
        let host = ListedHost::new(&["a", "b"]);
        assert_eq!(host.list().await, ["a", "b"]);
        assert_eq!(host.list().await, ["a", "b"]);
        assert_eq!(host.reads(), ["all"]);
        host.names.lock().unwrap().remove("a");
        host.names.lock().unwrap().insert("c".to_owned());
        host.catalogue.note_change("a", Settled::Yes);
        host.catalogue.note_change("c", Settled::Yes);
        assert_eq!(host.list().await, ["b", "c"]);
        assert_eq!(host.list().await, ["b", "c"]);
        assert_eq!(host.reads(), ["a c"]);
        tokio::time::advance(LONGEST_AGE).await;
        assert_eq!(host.list().await, ["b", "c"]);
        assert_eq!(host.reads(), ["all"]);
    }

    #[tokio::test(start_paused = true)]
    async fn object_that_has_not_settled_is_read_again() {
        let host = ListedHost::new(&["a", "b"]);
        host.list().await;
        host.catalogue.note_change("a", Settled::Soon);
        host.catalogue.note_change("b", Settled::Yes);
        tokio::time::advance(Duration::from_millis(10)).await;
        host.list().await;
        host.list().await;
        assert_eq!(host.reads(), ["all", "a b"], "read a moment ago");
        tokio::time::advance(Duration::from_millis(10)).await;
        host.list().await;
        tokio::time::advance(Duration::from_millis(10)).await;
        host.list().await;
        assert_eq!(host.reads(), ["a"], "twice the time has passed, then half as much again");
        tokio::time::advance(SETTLING).await;
        host.list().await;
        host.list().await;
        assert_eq!(host.reads(), ["a"]);
    }

    #[tokio::test(start_paused = true)]
    async fn object_left_out_of_a_read_is_read_later() {
        let host = ListedHost::new(&["a", "b"]);
        host.list().await;
        host.catalogue.note_change("a", Settled::Soon);
        tokio::time::advance(Duration::from_millis(10)).await;
        host.list().await;
        host.catalogue.note_change("b", Settled::Yes);
        host.list().await;
        assert_eq!(host.reads(), ["all", "a", "b"]);
        host.names.lock().unwrap().remove("a");
        tokio::time::advance(SETTLING).await;
        assert_eq!(host.list().await, ["b"]);
        host.list().await;
        assert_eq!(host.reads(), ["a"]);
    }

    #[tokio::test(start_paused = true)]
    async fn everything_is_read_without_trust_and_after_many_changes() {
        let host = ListedHost::new(&["a"]);
        host.list().await;
        host.catalogue.distrust();
        host.list().await;
        host.list().await;
        host.catalogue.trust();
        host.list().await;
        assert_eq!(host.reads(), ["all", "all", "all", "all"]);
        for number in 0..=FEW_KEYS {
            host.catalogue.note_change(&number.to_string(), Settled::Yes);
        }
        host.list().await;
        host.list().await;
        assert_eq!(host.reads(), ["all"]);
    }

    #[tokio::test(start_paused = true)]
    async fn many_changes_of_more_objects_are_read_in_parts() {
        let names: Vec<String> = (0..1000).map(|number| format!("{number:03}")).collect();
        let host = ListedHost::new(&names.iter().map(String::as_str).collect::<Vec<_>>());
        host.list().await;
        names[..500].iter().for_each(|name| host.catalogue.note_change(name, Settled::Yes));
        host.list().await;
        assert_eq!(host.reads(), ["all".to_owned(), names[..500].join(" ")]);
        names[..501].iter().for_each(|name| host.catalogue.note_change(name, Settled::Yes));
        host.list().await;
        assert_eq!(host.reads(), ["all"]);

        let keys: BTreeSet<String> = names[..130].iter().cloned().collect();
        let questions = Reading::Changed { before: Arc::new(Names::new()), keys }.questions();
        let sizes: Vec<_> = questions.iter().map(|keys| keys.as_ref().map(Vec::len)).collect();
        assert_eq!(sizes, [Some(64), Some(64), Some(2)]);
        assert_eq!(Reading::All { before: Arc::new(Names::new()) }.questions(), [None]);
    }

    #[tokio::test(start_paused = true)]
    async fn change_during_a_read_is_read_afterwards() {
        let host = ListedHost::new(&["a"]);
        host.list().await;
        host.catalogue.note_change("a", Settled::Yes);
        let change = async {
            tokio::task::yield_now().await;
            host.catalogue.note_change("a", Settled::Yes);
        };
        tokio::join!(host.list(), change);
        host.list().await;
        assert_eq!(host.reads(), ["all", "a", "a"]);
        let outdate = async {
            tokio::task::yield_now().await;
            host.catalogue.outdate();
        };
        host.catalogue.note_change("a", Settled::Yes);
        tokio::join!(host.list(), outdate);
        host.list().await;
        assert_eq!(host.reads(), ["a", "all"]);
    }

    #[tokio::test]
    async fn readers_that_ask_together_share_an_answer() {
        let (catalogue, calls) = (Catalogue::<Names>::default(), AtomicU64::new(0));
        let read = |_| async {
            calls.fetch_add(1, Ordering::Relaxed);
            tokio::task::yield_now().await;
            Ok(Names::new())
        };
        let found = join_all((0..100).map(|_| catalogue.get(read))).await;
        assert!(found.iter().all(Result::is_ok));
        // All but the first asked while the first call was under way.
        assert!(calls.load(Ordering::Relaxed) <= 2, "{calls:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn failed_read_loses_no_change() {
        let host = ListedHost::new(&["a"]);
        host.list().await;
        host.catalogue.note_change("a", Settled::Yes);
        let failed = host.catalogue.get(|_| async { Err(CallError::Unreachable(String::new())) }).await;
        assert!(failed.is_err());
        host.list().await;
        assert_eq!(host.reads(), ["all", "all"]);
    }

    #[tokio::test(start_paused = true)]
    async fn cancelled_read_loses_no_change() {
        let host = ListedHost::new(&["a"]);
        host.list().await;
        host.catalogue.note_change("a", Settled::Yes);
        let never = host.catalogue.get(|_| std::future::pending());
        assert!(tokio::time::timeout(Duration::from_secs(1), never).await.is_err());
        host.list().await;
        assert_eq!(host.reads(), ["all", "a"]);
    }
}
