//! Calls to ask registries now, because somebody has pushed an image. They carry no data but the name of the image, and are lost
//! with the agent: the next question at its time finds what they were about.

use std::{collections::BTreeMap, sync::Arc};

use driftless_model::ImageRef;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::wakes::Wakes;

/// The most images that are remembered. With more, the oldest calls are forgotten.
const MOST: usize = 1000;

/// The last call about each image, by registry and repository.
#[derive(Clone, Debug)]
pub(crate) struct ImageCalls(Arc<watch::Sender<Calls>>);

#[derive(Debug, Default)]
struct Calls {
    /// The number of the last call.
    last: u64,
    by_image: BTreeMap<(String, String), u64>,
}

impl Default for ImageCalls {
    fn default() -> Self {
        Self(Arc::new(watch::Sender::new(Calls::default())))
    }
}

impl ImageCalls {
    /// Asks the registry about every followed image of this repository, with any tag.
    pub(crate) fn call(&self, image: &str) {
        let image = ImageRef::parse(image);
        self.0.send_modify(|calls| {
            calls.last += 1;
            let name = (image.registry().to_owned(), image.repository().to_owned());
            calls.by_image.insert(name, calls.last);
            if calls.by_image.len() > MOST {
                let oldest = calls.by_image.iter().min_by_key(|(_, number)| **number);
                let oldest = oldest.map(|(name, _)| name.clone());
                oldest.map(|name| calls.by_image.remove(&name));
            }
        });
    }

    /// The number of the last call about an image; 0 if there was none.
    pub(crate) fn number(&self, image: &str) -> u64 {
        let image = ImageRef::parse(image);
        let name = (image.registry().to_owned(), image.repository().to_owned());
        self.0.borrow().by_image.get(&name).copied().unwrap_or_default()
    }

    /// Wakes the applications after each call, until stopped.
    pub(crate) async fn wake(self, wakes: Wakes, stop: CancellationToken) {
        let mut calls = self.0.subscribe();
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                changed = calls.changed() => if changed.is_err() { return },
            }
            wakes.wake_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn call_is_about_all_tags_of_an_image() {
        let calls = ImageCalls::default();
        calls.call("docker.io/library/nginx:1.27");
        let first = calls.number("nginx");
        assert!(first > 0);
        assert_eq!(calls.number("nginx:1.26"), first);
        assert_eq!(calls.number("ghcr.io/library/nginx"), 0);
        calls.call("nginx:latest");
        assert!(calls.number("nginx:1.27") > first);
    }

    #[test]
    fn calls_are_limited() {
        let calls = ImageCalls::default();
        (0..2 * MOST).for_each(|number| calls.call(&format!("web{number}")));
        assert_eq!(calls.0.borrow().by_image.len(), MOST);
        assert_eq!(calls.number("web0"), 0);
        assert!(calls.number(&format!("web{}", 2 * MOST - 1)) > 0);
    }
}
