//! The stream of changes of an open page: parts that have changed, as server-sent events.
//!
//! A page is a set of parts, each one element with an id, and lists that give the order of rows. The server renders them
//! when the agent publishes something, and sends those that differ from what it sent before. A browser that connects again
//! gets everything that it may have missed.

use std::{collections::BTreeMap, convert::Infallible, future::Future, time::Duration};

use axum::{
    extract::OptionalFromRequestParts,
    response::{
        IntoResponse, Response, Sse,
        sse::{Event as Message, KeepAlive},
    },
};
use driftless_agent::Handle;
use driftless_model::{Event, digest_hex};
use futures_util::{StreamExt, stream};
use http::request::Parts as RequestParts;
use maud::Markup;
use serde::Serialize;
use tokio::{
    sync::broadcast::{
        Receiver,
        error::{RecvError, TryRecvError},
    },
    time::sleep,
};

use crate::{error::Error, guard::is_stream, serve::Stopping, shared::Shared};

/// Changes within this time are sent together.
const TOGETHER: Duration = Duration::from_millis(250);

/// The longest time between two looks for changes that nobody announces, such as one of another host.
const LOOK_EVERY: Duration = Duration::from_secs(10);

/// Interval of the events that keep proxies from closing an idle stream, and show the page that the agent answers. The script
/// of the page waits for longer than twice this time.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// Pause of a browser before it connects again.
const RECONNECT: Duration = Duration::from_secs(2);

/// The parts of a page.
#[derive(Default)]
pub(super) struct Parts {
    title: String,
    /// The element by its id.
    elements: BTreeMap<String, String>,
    lists: BTreeMap<String, Vec<String>>,
}

/// The changes of a page.
#[derive(Default, Serialize)]
struct Changes<'a> {
    title: &'a str,
    /// The new element by its id.
    parts: BTreeMap<&'a str, &'a str>,
    /// The ids of the rows of a list, in order. Empty: the list is gone.
    lists: BTreeMap<&'a str, &'a [String]>,
    /// Whether these are all lists, for a page whose version the agent does not know: all others of that page are gone.
    whole: bool,
    /// The version that the page has with these changes.
    version: String,
}

impl Parts {
    pub(super) fn new(title: String) -> Self {
        Self { title, ..Self::default() }
    }

    /// Adds an element that has this id.
    pub(super) fn add(&mut self, id: &str, markup: Markup) {
        self.elements.insert(id.to_owned(), markup.into_string());
    }

    /// Adds the order of the rows in the element that has this id.
    pub(super) fn list(&mut self, id: &str, rows: Vec<String>) {
        self.lists.insert(id.to_owned(), rows);
    }

    /// Identifies what the parts say.
    pub(super) fn version(&self) -> String {
        let mut all = String::new();
        for (id, html) in &self.elements {
            all.extend([id.as_str(), "\n", html.as_str(), "\n"]);
        }
        for (id, rows) in &self.lists {
            all.extend([id.as_str(), "\n", rows.join(" ").as_str(), "\n"]);
        }
        let mut digest = digest_hex(all.as_bytes());
        digest.truncate(16);
        digest
    }

    /// The parts that differ from those before. `None`: nothing has changed.
    fn changes_since<'a>(&'a self, before: &'a Self) -> Option<Changes<'a>> {
        let parts: BTreeMap<_, _> = self
            .elements
            .iter()
            .filter(|(id, html)| before.elements.get(*id) != Some(html))
            .map(|(id, html)| (id.as_str(), html.as_str()))
            .collect();
        let gone = before.lists.keys().filter(|id| !self.lists.contains_key(*id));
        let lists: BTreeMap<_, _> = self
            .lists
            .iter()
            .filter(|(id, rows)| before.lists.get(*id) != Some(rows))
            .map(|(id, rows)| (id.as_str(), rows.as_slice()))
            .chain(gone.map(|id| (id.as_str(), <&[String]>::default())))
            .collect();
        (!parts.is_empty() || !lists.is_empty()).then(|| Changes {
            title: &self.title,
            parts,
            lists,
            whole: false,
            version: self.version(),
        })
    }
}

/// A request for the stream of a page instead of the page.
pub(crate) struct Streaming(Stopping);

impl<S: Send + Sync> OptionalFromRequestParts<S> for Streaming {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut RequestParts, _: &S) -> Result<Option<Self>, Infallible> {
        if !is_stream(&parts.headers) {
            return Ok(None);
        }
        Ok(Some(Self(parts.extensions.get::<Stopping>().cloned().unwrap_or_default())))
    }
}

/// Sends the changes of a page until the client goes, the agent ends, or the page cannot be built any more. `known` is the version
/// that the client has. Errors: those of building the page, such as one of an application that does not exist.
pub(super) async fn stream<F, B>(
    shared: &Shared,
    Streaming(stopping): Streaming,
    known: String,
    build: B,
) -> Result<Response, Error>
where
    F: Future<Output = Result<Parts, Error>> + Send,
    B: Fn() -> F + Send + 'static,
{
    let permit = shared.stream_permit()?;
    // From here on, so that no change after the first look is missed.
    let (handle, events) = (shared.handle.clone(), shared.handle.events());
    let building = build();
    let parts = building.await?;
    // The page that the client has loaded may be up to date.
    let (first, client_has) =
        if parts.version() == known { (None, parts) } else { (Some(parts), Parts::default()) };
    let follower = PageStream { build, handle, events, first, sent: client_has, _permit: permit };
    let messages = stream::unfold(follower, |mut follower| async move {
        let message = follower.next().await?;
        Some((Ok::<_, Infallible>(message), follower))
    });
    let alive = Message::default().event("alive").data("");
    let opening = stream::once(async { Ok(Message::default().comment("connected").retry(RECONNECT)) });
    let messages = opening.chain(messages).take_until(stopping.0.cancelled_owned());
    Ok(Sse::new(messages).keep_alive(KeepAlive::new().interval(KEEP_ALIVE).event(alive)).into_response())
}

/// The state of one stream.
struct PageStream<B, P> {
    build: B,
    handle: Handle,
    events: Receiver<Event>,
    /// The parts that are sent first, all of them, to a page whose version the agent does not know.
    first: Option<Parts>,
    /// The parts that the client has.
    sent: Parts,
    _permit: P,
}

impl<F, B, P> PageStream<B, P>
where
    F: Future<Output = Result<Parts, Error>> + Send,
    B: Fn() -> F + Send,
{
    /// The next message; `None` ends the stream.
    async fn next(&mut self) -> Option<Message> {
        loop {
            let (parts, whole) = if let Some(parts) = self.first.take() {
                (parts, true)
            } else {
                self.wait().await?;
                let building = (self.build)();
                (building.await.ok()?, false)
            };
            let changes = parts.changes_since(&self.sent);
            let data = changes.map(|changes| serde_json::to_string(&Changes { whole, ..changes }));
            self.sent = parts;
            if let Some(Ok(data)) = data {
                return Some(Message::default().event("change").data(data));
            }
        }
    }

    /// Waits until something may have changed. `None`: the agent has ended.
    async fn wait(&mut self) -> Option<()> {
        tokio::select! {
            is_there = self.handle.published() => if !is_there { return None },
            event = self.events.recv() => if matches!(event, Err(RecvError::Closed)) { return None },
            () = sleep(LOOK_EVERY) => {}
        }
        sleep(TOGETHER).await;
        while !matches!(self.events.try_recv(), Err(TryRecvError::Empty | TryRecvError::Closed)) {}
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(rows: &[(&str, &str)]) -> Parts {
        let mut parts = Parts::new("x".to_owned());
        for (id, text) in rows {
            parts.add(id, maud::html! { (text) });
        }
        parts.list("rows", rows.iter().map(|(id, _)| (*id).to_owned()).collect());
        parts
    }

    #[test]
    fn only_changed_parts_are_sent() {
        let before = parts(&[("a", "1"), ("b", "2")]);
        assert!(parts(&[("a", "1"), ("b", "2")]).changes_since(&before).is_none());
        let after = parts(&[("a", "1"), ("b", "3")]);
        let changes = after.changes_since(&before).unwrap();
        assert_eq!(changes.parts.keys().collect::<Vec<_>>(), [&"b"]);
        assert_eq!(changes.version, after.version());
        assert!(changes.lists.is_empty());
        let swapped = parts(&[("b", "2"), ("a", "1")]);
        let changes = swapped.changes_since(&before).unwrap();
        assert!(changes.parts.is_empty());
        assert_eq!(changes.lists["rows"], ["b".to_owned(), "a".to_owned()]);
        assert_ne!(before.version(), swapped.version());
    }

    #[test]
    fn list_that_is_gone_is_sent_as_empty_once() {
        let before = parts(&[("a", "1")]);
        let mut after = Parts::new("x".to_owned());
        after.add("a", maud::html! { "1" });
        let changes = after.changes_since(&before).unwrap();
        assert_eq!((changes.lists["rows"], changes.parts.len()), ([].as_slice(), 0));
        assert!(after.changes_since(&after).is_none());
    }
}
