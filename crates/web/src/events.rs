//! Events, as a list or as a stream of server-sent events that resumes where the client left off.
//!
//! The store is authoritative: a stream reads it, and the live channel only says that there is something new. Events are stored
//! in the order of their numbers and may be sent in another one, so a stream that took them from the channel would miss some.

use std::{collections::VecDeque, convert::Infallible, time::Duration};

use axum::{
    Extension, Json,
    extract::State,
    response::{
        IntoResponse, Response, Sse,
        sse::{Event as Message, KeepAlive},
    },
};
use futures_util::{Stream, StreamExt, stream};
use http::HeaderMap;
use serde::Deserialize;
use tokio::sync::broadcast::{Receiver, error::RecvError};

use super::{
    error::Error,
    guard::is_stream,
    parameters::Parameters,
    serve::Stopping,
    shared::{Shared, read},
};
use driftless_model::{AppName, Event};
use driftless_store::Store;

/// Default number of events of a list.
const DEFAULT_LIMIT: usize = 100;
const LARGEST_LIMIT: usize = 1000;

/// Number of events of one read while a stream catches up.
const PAGE: usize = 200;

/// Interval of the comments that keep proxies from closing an idle stream.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// Pause of a browser before it connects again.
const RECONNECT: Duration = Duration::from_secs(3);

/// The query of `GET /api/v1/events`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct EventQuery {
    /// Only events after this sequence number. Default: the newest.
    after: Option<u64>,
    /// Default 100, at most 1000. A stream has no limit.
    limit: Option<usize>,
    app: Option<String>,
}

pub(super) async fn events(
    State(shared): State<Shared>,
    stopping: Option<Extension<Stopping>>,
    headers: HeaderMap,
    Parameters(query): Parameters<EventQuery>,
) -> Result<Response, Error> {
    let app = query.app.filter(|it| !it.is_empty()).map(AppName);
    if is_stream(&headers) {
        let after = last_event_id(&headers).or(query.after);
        let stopping = stopping.map(|Extension(it)| it).unwrap_or_default();
        return follow(&shared, after, app, stopping).await;
    }
    let limit = query.limit.unwrap_or(DEFAULT_LIMIT).min(LARGEST_LIMIT);
    let after = query.after;
    let list = read(&shared.store, move |store| match after {
        Some(after) => store.events(after, limit, app.as_ref()),
        None => store.newest_events(limit, app.as_ref()),
    });
    Ok(Json(list.await?).into_response())
}

/// The position of one client's stream.
struct Follower {
    store: Store,
    /// Says that the store has another event.
    live: Receiver<Event>,
    app: Option<AppName>,
    /// The last sequence number that was read.
    last: u64,
    /// Events read from the store and not yet sent.
    backlog: VecDeque<Event>,
    /// Whether the store may have more events than were read.
    behind: bool,
}

async fn follow(
    shared: &Shared,
    after: Option<u64>,
    app: Option<AppName>,
    stopping: Stopping,
) -> Result<Response, Error> {
    let permit = shared.stream_permit()?;
    // Subscribe before reading, so that no event is missed.
    let live = shared.handle.events();
    let newest = read(&shared.store, |store| store.newest_events(1, None)).await?;
    let newest = newest.last().map_or(0, |it| it.sequence);
    // A position beyond the newest belongs to a database that was lost; it would never be reached.
    let last = after.unwrap_or(newest).min(newest);
    let follower =
        Follower { store: shared.store.clone(), live, app, last, backlog: VecDeque::new(), behind: true };
    // The permit is free when the stream ends.
    let events = stream::unfold((follower, permit), |(mut follower, permit)| async move {
        follower.next().await.map(|event| (event, (follower, permit)))
    });
    let opening = stream::once(async { Message::default().comment("connected").retry(RECONNECT) });
    let messages = opening
        .chain(events.map(|event| message(&event)))
        .map(Ok::<_, Infallible>)
        .take_until(stopping.0.cancelled_owned());
    Ok(respond(messages))
}

impl Follower {
    /// The next event for this client; `None` ends the stream, and the client reconnects.
    async fn next(&mut self) -> Option<Event> {
        loop {
            if let Some(event) = self.backlog.pop_front() {
                return Some(event);
            }
            if self.behind {
                self.read_on().await?;
                continue;
            }
            match self.live.recv().await {
                Ok(event) => self.behind = self.is_news(&event),
                Err(RecvError::Lagged(_)) => self.behind = true,
                Err(RecvError::Closed) => return None,
            }
        }
    }

    async fn read_on(&mut self) -> Option<()> {
        let (after, app) = (self.last, self.app.clone());
        let page = read(&self.store, move |store| store.events(after, PAGE, app.as_ref())).await.ok()?;
        self.behind = page.len() == PAGE;
        self.last = page.last().map_or(self.last, |it| it.sequence);
        self.backlog = page.into();
        Some(())
    }

    /// Whether the event is new to the client.
    fn is_news(&self, event: &Event) -> bool {
        event.sequence > self.last && self.app.as_ref().is_none_or(|it| *it == event.app)
    }
}

fn respond(messages: impl Stream<Item = Result<Message, Infallible>> + Send + 'static) -> Response {
    Sse::new(messages).keep_alive(KeepAlive::new().interval(KEEP_ALIVE)).into_response()
}

fn message(event: &Event) -> Message {
    let json = serde_json::to_string(event).expect("the model's types serialise without fail");
    Message::default().event("event").data(json).id(event.sequence.to_string())
}

/// The header that a reconnecting browser sends.
fn last_event_id(headers: &HeaderMap) -> Option<u64> {
    headers.get("last-event-id")?.to_str().ok()?.trim().parse().ok()
}
