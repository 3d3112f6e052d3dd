//! Containers that the agent has inspected, across its restarts.
//!
//! The result of an inspection changes only with an event. So an agent that starts again needs to inspect only the containers
//! that an event has named since, if the engine still remembers each event since then. That is so if the last event that was
//! handled before is among those that it remembers: it forgets the oldest ones first, and all of them when it starts. In
//! every other case, and for each entry that cannot be read, containers are inspected as if nothing were remembered.
//! Verifying 1,000 containers after a restart costs one list and one question about events instead of 1,000 inspections.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    os::unix::fs::MetadataExt,
    sync::{Arc, Weak},
};

use driftless_clock::Clock;
use driftless_model::{ContainerId, Instance, Timestamp};
use http::Method;
use http_body_util::{BodyExt, Limited};
use serde::{Deserialize, Serialize};

use crate::{
    cache::{Cache, InspectedContainer},
    call_error::CallError,
    connection::Connection,
    container_list::ListedContainer,
    deadline::{ANSWER, within},
    raw_event::changed_container,
};

/// The most bytes of the events since the last one that was handled. The engine keeps 256 events.
const LONGEST_ANSWER: usize = 4 << 20;
/// The most by which the clocks of agent and engine may differ, in milliseconds: the engine states its time in seconds.
const CLOCK_DIFFERENCE: u64 = 2000;

/// The containers that an earlier process of the agent has inspected.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Remembered {
    /// The program and the engine that it was made with.
    pub context: String,
    /// The time in nanoseconds of the last event that it takes into account.
    pub last_event: u64,
    /// The containers by id, in JSON. They contain the values of environment variables.
    pub containers: BTreeMap<String, String>,
}

/// A change of what is stored, so that it remembers the containers as they are known now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RememberedChange {
    /// See [`Remembered::context`].
    pub context: String,
    /// See [`Remembered::last_event`].
    pub last_event: u64,
    /// Everything that is stored is to be forgotten first.
    pub is_first: bool,
    /// The containers that are new or have changed, by id, in JSON.
    pub changed: BTreeMap<String, String>,
    /// The ids of containers to forget.
    pub gone: BTreeSet<String>,
}

#[derive(Serialize, Deserialize)]
struct Entry<L, I> {
    listed: L,
    instance: I,
}

/// Tells what is known of the engine's containers, to be stored.
#[derive(Debug)]
pub struct KnownContainers {
    pub(crate) cache: Arc<Cache>,
    pub(crate) connection: Arc<Connection>,
    /// The containers as they were when they were last taken.
    pub(crate) taken: Option<BTreeMap<ContainerId, Weak<Instance>>>,
}

impl KnownContainers {
    /// Nothing of what was taken could be stored: the next change contains everything.
    #[must_use]
    pub fn from_the_beginning(self) -> Self {
        Self { taken: None, ..self }
    }

    /// The change since it was last called. `None` while the event stream is interrupted, and for engines that do not
    /// send an event for each change.
    pub fn changes(&mut self) -> Option<RememberedChange> {
        let (last_event, known) = self.cache.inspected()?;
        let context = context(&self.connection)?;
        let is_first = self.taken.is_none();
        let before = self.taken.take().unwrap_or_default();
        let mut change = RememberedChange { context, last_event, is_first, ..RememberedChange::default() };
        let mut taken = BTreeMap::new();
        for (id, InspectedContainer { listed, instance }) in known {
            let is_stored = before.get(&id).is_some_and(|before| before.as_ptr() == Arc::as_ptr(&instance));
            if !is_stored {
                let entry = Entry { listed: &*listed, instance: &*instance };
                let Ok(json) = serde_json::to_string(&entry) else { continue };
                change.changed.insert(id.to_string(), json);
            }
            taken.insert(id, Arc::downgrade(&instance));
        }
        let gone = before.into_keys().filter(|id| !taken.contains_key(id));
        change.gone = gone.map(|id| id.to_string()).collect();
        self.taken = Some(taken);
        Some(change)
    }
}

/// The program and the engine: another program may read more of a container, and another engine has other containers.
/// `None`: nothing can be remembered.
fn context(connection: &Connection) -> Option<String> {
    // An engine that is reached over the network may have another time.
    connection.transport().socket()?;
    let info = connection.info().filter(|info| !info.is_podman)?;
    let program = fs::metadata("/proc/self/exe").ok()?;
    let (paths, defaults) = (connection.host_paths(), connection.defaults());
    Some(format!(
        "{}-{}.{} {info:?} {paths:?} {defaults:?}",
        program.size(),
        program.mtime(),
        program.mtime_nsec()
    ))
}

/// The containers that have not changed since they were remembered. Called when the event stream is open, so that no event
/// is missed afterwards; `opened` is the engine's time at that moment.
pub(crate) async fn unchanged(
    connection: &Connection,
    clock: Clock,
    remembered: Remembered,
    opened: Option<Timestamp>,
) -> Vec<(ContainerId, InspectedContainer)> {
    let now = clock.now();
    let has_same_time = opened.is_some_and(|opened| opened.0.abs_diff(now.0) <= CLOCK_DIFFERENCE);
    if !has_same_time || context(connection).as_ref() != Some(&remembered.context) {
        return Vec::new();
    }
    let changed = match changed_since(connection, remembered.last_event, now).await {
        Ok(Some(changed)) => changed,
        Ok(None) => return Vec::new(),
        Err(error) => {
            tracing::debug!(%error, "could not ask for past events; all containers are inspected");
            return Vec::new();
        }
    };
    let containers = remembered.containers.into_iter().filter(|(id, _)| !changed.contains(id));
    let read = containers.filter_map(|(id, json)| {
        let Entry { listed, instance } =
            serde_json::from_str::<Entry<ListedContainer, Instance>>(&json).ok()?;
        let is_same = instance.id.as_str() == id;
        is_same.then(|| {
            (instance.id.clone(), InspectedContainer { listed: listed.into(), instance: instance.into() })
        })
    });
    read.collect()
}

/// The containers that events have named since that one. `None` if the engine does not remember it.
async fn changed_since(
    connection: &Connection,
    last_event: u64,
    now: Timestamp,
) -> Result<Option<BTreeSet<String>>, CallError> {
    let (since, nanos) = (last_event / 1_000_000_000, last_event % 1_000_000_000);
    // Not later: the engine would wait until then.
    let path = format!("/events?since={since}.{nanos:09}&until={}.{:03}", now.0 / 1000, now.0 % 1000);
    let answer = async {
        let response = connection.transport().send(Method::GET, &path, Vec::new()).await?;
        let body = Limited::new(response.into_body(), LONGEST_ANSWER).collect().await;
        Ok(body.map_err(|error| CallError::Unreachable(error.to_string()))?.to_bytes())
    };
    Ok(changed_in(&within(ANSWER, answer).await?, last_event))
}

/// The containers that events name after the first one, which was handled. `None` if that is not the one of this time, or one cannot be read.
fn changed_in(events: &[u8], last_event: u64) -> Option<BTreeSet<String>> {
    let mut lines = events.split(|byte| *byte == b'\n').filter(|line| !line.trim_ascii().is_empty());
    let (first, _) = changed_container(lines.next()?)?;
    if first != Some(last_event) {
        return None;
    }
    let mut changed = BTreeSet::new();
    for line in lines {
        changed.extend(changed_container(line)?.1);
    }
    Some(changed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remembered_containers_need_every_event_since() {
        let event = |time: u64, kind: &str, action: &str, id: &str| {
            format!(
                r#"{{"Type":"{kind}","Action":"{action}","Actor":{{"ID":"{id}","Attributes":{{"container":"of-{id}"}}}},"timeNano":{time}}}"#
            ) + "\n"
        };
        let last = event(7, "container", "start", "a");
        let changed =
            |events: &str| changed_in(events.as_bytes(), 7).map(|ids| ids.into_iter().collect::<Vec<_>>());
        assert_eq!(changed(""), None, "the engine was restarted");
        assert_eq!(changed(&event(8, "container", "die", "b")), None, "it has forgotten events");
        assert_eq!(changed(&format!("{last}nonsense\n")), None);
        let since = [
            last,
            event(8, "container", "exec_start: ls", "b"),
            event(9, "container", "die", "c"),
            event(9, "network", "disconnect", "net"),
            event(9, "image", "pull", "web"),
            event(9, "volume", "create", "data"),
        ];
        assert_eq!(changed(&since.concat()).unwrap(), ["c", "of-net"]);
    }
}
