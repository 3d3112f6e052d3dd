//! Events as the engine writes them.

use std::collections::BTreeMap;

use serde::Deserialize;

/// Frequent events of containers that change nothing for the agent.
pub(crate) const IGNORED: &[&str] = &[
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

/// Events of commands in containers and of copies into them. They change nothing that is cached.
pub(crate) const VISITS: &[&str] = &["exec_die", "exec_start", "extract-to-dir"];

/// An event.
#[derive(Deserialize)]
pub(crate) struct RawEvent {
    #[serde(rename = "Type", default)]
    pub(crate) kind: String,
    #[serde(rename = "Action", default)]
    pub(crate) action: String,
    #[serde(rename = "Actor", default)]
    pub(crate) actor: RawActor,
    #[serde(rename = "timeNano")]
    pub(crate) time_nano: Option<u64>,
}

/// The object of an event.
#[derive(Deserialize, Default)]
#[serde(default)]
pub(crate) struct RawActor {
    #[serde(rename = "ID")]
    pub(crate) id: String,
    #[serde(rename = "Attributes")]
    pub(crate) attributes: BTreeMap<String, String>,
}

/// The time in nanoseconds of an event as the engine wrote it, and the container that it may have changed. `None` if it
/// cannot be read.
pub(crate) fn changed_container(line: &[u8]) -> Option<(Option<u64>, Option<String>)> {
    let RawEvent { kind, action, actor: RawActor { id, mut attributes }, time_nano } =
        serde_json::from_slice(line).ok()?;
    let action = action.split(':').next().unwrap_or_default();
    let changed = match kind.as_str() {
        "container" if !IGNORED.contains(&action) && !VISITS.contains(&action) => Some(id),
        "network" => attributes.remove("container"),
        _ => None,
    };
    Some((time_nano, changed))
}
