//! Inspections of images, shared between readers that ask for the same image at the same time.

use std::{
    collections::BTreeMap,
    future::Future,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use driftless_model::Image;

use crate::call_error::CallError;

type Found = Result<Option<Arc<Image>>, CallError>;

/// The inspections that are under way, by image reference.
#[derive(Debug, Default)]
pub(crate) struct SharedImages {
    inspections: Mutex<BTreeMap<String, Arc<Inspection>>>,
}

/// One image that somebody asks for.
#[derive(Debug, Default)]
struct Inspection {
    last_number: AtomicU64,
    // A lock of Tokio's, held while the answer is awaited: it is the queue of the readers that share the next one.
    last: tokio::sync::Mutex<Option<LastRead>>,
}

#[derive(Debug)]
struct LastRead {
    /// Readers up to this number asked before the call was made.
    covers: u64,
    found: Found,
}

impl SharedImages {
    /// The answer of a call that was made after this one began: that of `read`, or of another reader.
    pub(crate) async fn get(&self, reference: &str, read: impl Future<Output = Found> + Send) -> Found {
        let inspection = Arc::clone(self.lock().entry(reference.to_owned()).or_default());
        let number = inspection.last_number.fetch_add(1, Ordering::AcqRel).saturating_add(1);
        let found = {
            let mut last = inspection.last.lock().await;
            if let Some(answer) = last.as_ref().filter(|answer| answer.covers >= number) {
                answer.found.clone()
            } else {
                let covers = inspection.last_number.load(Ordering::Acquire);
                let found = read.await;
                *last = Some(LastRead { covers, found: found.clone() });
                found
            }
        };
        let mut inspections = self.lock();
        // The map and this reader.
        if Arc::strong_count(&inspection) <= 2 {
            inspections.remove(reference);
        }
        found
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Arc<Inspection>>> {
        self.inspections.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use futures_util::future::join_all;

    use super::*;

    #[tokio::test]
    async fn readers_that_ask_together_share_a_call() {
        let (images, calls) = (SharedImages::default(), AtomicU64::new(0));
        let read = || async {
            calls.fetch_add(1, Ordering::Relaxed);
            tokio::task::yield_now().await;
            Ok(Some(Arc::new(Image::default())))
        };
        let found = join_all((0..100).map(|_| images.get("web:1", read()))).await;
        assert!(found.iter().all(|found| matches!(found, Ok(Some(_)))));
        // All but the first asked while the first call was under way.
        assert!(calls.load(Ordering::Relaxed) <= 2, "{calls:?}");
        assert!(images.lock().is_empty());
        assert!(images.get("web:1", read()).await.is_ok());
        assert!(calls.load(Ordering::Relaxed) <= 3, "later readers ask again: {calls:?}");
    }
}
