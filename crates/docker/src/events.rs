//! Listens to the engine for as long as we live: tears up what an event makes old, then tells who is concerned.
//! An event is a hint. Nothing is decided by it, and nothing is lost when one is missed, because after each
//! interruption everybody is told to look again.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use http::Method;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use serde::Deserialize;
use tokio::time::{sleep, timeout};
use tracing::{info, warn};

use crate::{
    EngineEvent,
    cache::ObjectKind,
    call_error::CallError,
    container_files,
    engine::{DEADLINE, Inner, PING, within},
};
use driftless_model::{AppName, ContainerId, Timestamp, label};

/// The pause before the first attempt to connect again, doubled each time up to the longest.
const FIRST_PAUSE: Duration = Duration::from_millis(800);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// After so long without an event the engine is asked for a sign of life.
const QUIET: Duration = Duration::from_secs(30);
/// An event is a few hundred bytes. Who sends a line of this length is no engine.
const LONGEST_LINE: usize = 1 << 20;

/// What containers do all day and what changes nothing for us.
const NOISE: &[&str] = &[
    "archive-path",
    "attach",
    "commit",
    "copy",
    "detach",
    "exec_create",
    "exec_detach",
    "export",
    "mount",
    "push",
    "resize",
    "save",
    "top",
    "unmount",
];

/// What tells that somebody is in a container or was. It changes nothing of what is cached.
const VISITS: &[&str] = &["exec_die", "exec_start", "extract-to-dir"];

/// Runs until it is aborted.
pub(crate) async fn watch(inner: Arc<Inner>) {
    let mut attempt = 0;
    let mut was_there = true;
    loop {
        let failure = match inner.subscribe().await {
            Ok(stream) => {
                attempt = 0;
                if !was_there {
                    info!("the Docker Engine is back");
                }
                was_there = true;
                inner.cache.begin(inner.clock.now());
                inner.tell(EngineEvent::Connected);
                inner.listen(stream).await
            }
            Err(failure) => failure,
        };
        inner.cache.lost();
        inner.transport.agree(None);
        if was_there {
            warn!(error = %failure, "the Docker Engine is away");
            inner.tell(EngineEvent::Disconnected { error: failure.to_string() });
            was_there = false;
        }
        sleep(pause(attempt, inner.clock.now())).await;
        attempt += 1;
    }
}

impl Inner {
    /// Returns once the engine has begun to tell.
    async fn subscribe(&self) -> Result<Incoming, CallError> {
        self.agree().await?;
        let response = within(DEADLINE, self.transport.send(Method::GET, "/events", Vec::new())).await?;
        Ok(response.into_body())
    }

    /// Returns when the stream has ended, and why.
    async fn listen(&self, mut stream: Incoming) -> CallError {
        let mut pending = Vec::new();
        loop {
            let frame = match timeout(QUIET, stream.frame()).await {
                Ok(Some(Ok(frame))) => frame,
                Ok(Some(Err(error))) => return CallError::unreachable(&error),
                Ok(None) => {
                    return CallError::Unreachable("the engine ended the stream of events".to_owned());
                }
                // A stopped daemon keeps the connection open and says nothing.
                Err(_) => match self.ping().await {
                    Ok(()) => continue,
                    Err(_) => return CallError::Late(PING),
                },
            };
            let Ok(data) = frame.into_data() else { continue };
            pending.extend_from_slice(&data);
            while let Some(end) = pending.iter().position(|it| *it == b'\n') {
                let line: Vec<u8> = pending.drain(..=end).collect();
                self.hear(&line);
            }
            if pending.len() > LONGEST_LINE {
                return CallError::Unreachable("the engine sent an event without an end".to_owned());
            }
        }
    }

    /// One event, as the engine wrote it. What cannot be read is a reason to look at everything.
    fn hear(&self, line: &[u8]) {
        if line.trim_ascii().is_empty() {
            return;
        }
        match serde_json::from_slice::<Event>(line) {
            Ok(event) => self.note(event),
            Err(error) => {
                warn!(%error, "could not read an event of the Docker Engine");
                self.cache.begin(self.clock.now());
                self.tell(EngineEvent::Connected);
            }
        }
    }

    fn note(&self, event: Event) {
        let Event { kind, action, actor: Actor { id, attributes }, time_nano } = event;
        let word = action.split(':').next().unwrap_or_default();
        let is_known = matches!(kind.as_str(), "container" | "network" | "volume" | "image" | "daemon");
        if !is_known || NOISE.contains(&word) {
            return;
        }
        let at = time_nano.map(|it| Timestamp(it / 1_000_000));
        if VISITS.contains(&word) && !self.note_visit(&ContainerId(id.clone()), &action, &attributes, at) {
            return;
        }
        let app = match kind.as_str() {
            "container" => {
                let id = ContainerId(id.clone());
                if !VISITS.contains(&word) {
                    self.note_container(&id, word, at);
                }
                let labelled = attributes.get(label::APPLICATION).cloned().map(AppName);
                labelled.or_else(|| self.cache.adopter(&id))
            }
            "network" => self.note_network(&id, word, &attributes),
            "volume" => {
                let app = self.cache.objects(ObjectKind::Volumes).and_then(|it| it.get(&id)?.app.clone());
                self.cache.invalidate_objects(ObjectKind::Volumes);
                app
            }
            "image" => {
                self.cache.invalidate_images();
                None
            }
            _ => None,
        };
        let name = attributes.get("name").cloned().unwrap_or(id);
        self.tell(EngineEvent::ObjectChanged { app, kind, name, action, at });
    }

    /// Somebody was in a container. True once he has left, and may have left something behind.
    fn note_visit(
        &self,
        id: &ContainerId,
        action: &str,
        attributes: &BTreeMap<String, String>,
        at: Option<Timestamp>,
    ) -> bool {
        let at = at.unwrap_or_else(|| self.clock.now());
        let exec = attributes.get("execID").map(String::as_str).unwrap_or_default();
        match action.split_once(": ") {
            Some(("exec_start", command)) => {
                self.cache.entered(id, exec, format!("{}{command}", container_files::EXEC), at);
                false
            }
            None if action == "exec_die" => {
                let Some(visit) = self.cache.left(id, exec, at) else { return false };
                let seen = self.cache.container(id);
                let is_check =
                    seen.is_some_and(|it| container_files::is_healthcheck(&visit.what, &it.instance.config));
                if is_check {
                    self.cache.forget_visit(id, exec);
                }
                !is_check
            }
            None if action == "extract-to-dir" => {
                if self.cache.is_our_copy(id) {
                    return false;
                }
                self.cache.copied(id, container_files::COPY, at);
                true
            }
            _ => false,
        }
    }

    fn note_container(&self, id: &ContainerId, word: &str, at: Option<Timestamp>) {
        let at = at.unwrap_or_else(|| self.clock.now());
        match word {
            "kill" if self.cache.is_our_signal(id) => {}
            "kill" | "stop" | "pause" => self.cache.touched(id, at),
            "start" | "unpause" => self.cache.started(id, at),
            "destroy" => self.cache.gone(id),
            _ => {}
        }
        self.cache.invalidate_container(id);
    }

    /// Joining and leaving concerns whoever owns the container; making and removing, whoever owns the network.
    fn note_network(&self, id: &str, word: &str, attributes: &BTreeMap<String, String>) -> Option<AppName> {
        let networks = self.cache.objects(ObjectKind::Networks);
        let of_network =
            networks.and_then(|it| it.values().find(|it| it.id == id).and_then(|it| it.app.clone()));
        if !matches!(word, "connect" | "disconnect") {
            self.cache.invalidate_objects(ObjectKind::Networks);
            return of_network;
        }
        let container = ContainerId(attributes.get("container")?.clone());
        let of_container = self.cache.container(&container).and_then(|it| it.listed.app.clone());
        let of_container = of_container.or_else(|| self.cache.adopter(&container));
        self.cache.invalidate_container(&container);
        of_container.or(of_network)
    }

    /// Nobody listening is nobody's loss.
    fn tell(&self, event: EngineEvent) {
        let _ = self.changes.send(event);
    }
}

/// Doubles, and varies by a quarter, so that many agents do not come back at the same instant.
fn pause(attempt: u32, now: Timestamp) -> Duration {
    let full = FIRST_PAUSE.saturating_mul(1 << attempt.min(10)).min(LONGEST_PAUSE);
    let part = u32::try_from(now.0 % 251).unwrap_or_default();
    full.saturating_sub(full / 4 * part / 250)
}

#[derive(Deserialize)]
struct Event {
    #[serde(rename = "Type", default)]
    kind: String,
    #[serde(rename = "Action", default)]
    action: String,
    #[serde(rename = "Actor", default)]
    actor: Actor,
    #[serde(rename = "timeNano")]
    time_nano: Option<u64>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Actor {
    #[serde(rename = "ID")]
    id: String,
    #[serde(rename = "Attributes")]
    attributes: BTreeMap<String, String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_half_a_minute_and_differ() {
        for now in [0, 17, 250] {
            assert!(pause(0, Timestamp(now)) <= FIRST_PAUSE);
            assert!(pause(0, Timestamp(now)) >= FIRST_PAUSE * 3 / 4);
            assert!(pause(40, Timestamp(now)) >= LONGEST_PAUSE * 3 / 4);
            assert!(pause(40, Timestamp(now)) <= LONGEST_PAUSE);
        }
        assert_ne!(pause(3, Timestamp(1)), pause(3, Timestamp(100)));
    }
}
