//! Shared namespaces and volumes: the container that another one shares with, as Compose writes it (`service:vpn`,
//! `container:legacy`). The planner finds the container behind the name.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::WorkloadName;

/// Another container, shared with by a container of ours.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub enum Peer {
    /// An instance of this workload of the same stack.
    Workload(WorkloadName),
    /// One that somebody else runs, by name or id.
    Container(String),
}

/// A namespace of processes or of shared memory.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(into = "String", from = "String")]
pub enum Namespace {
    Of(Peer),
    /// `host`, `private`, `shareable`, `none`, as the engine takes it.
    Mode(String),
}

/// All volumes of another container, at the same places.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct VolumesFrom {
    pub peer: Peer,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub read_only: bool,
}

impl Peer {
    /// `service:vpn` or `container:legacy`; `None` for anything else.
    pub fn parse(text: &str) -> Option<Self> {
        match text.split_once(':')? {
            (_, "") => None,
            ("service", name) => Some(Self::Workload(WorkloadName(name.to_owned()))),
            ("container", name) => Some(Self::Container(name.to_owned())),
            _ => None,
        }
    }
}

impl Namespace {
    pub fn is_host(&self) -> bool {
        *self == Self::Mode("host".to_owned())
    }

    pub fn peer(&self) -> Option<&Peer> {
        match self {
            Self::Of(peer) => Some(peer),
            Self::Mode(_) => None,
        }
    }

    pub(crate) fn peer_mut(&mut self) -> Option<&mut Peer> {
        match self {
            Self::Of(peer) => Some(peer),
            Self::Mode(_) => None,
        }
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Workload(name) => write!(f, "service:{name}"),
            Self::Container(name) => write!(f, "container:{name}"),
        }
    }
}

impl fmt::Display for Namespace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Of(peer) => peer.fmt(f),
            Self::Mode(mode) => f.write_str(mode),
        }
    }
}

impl From<Peer> for String {
    fn from(peer: Peer) -> Self {
        peer.to_string()
    }
}

impl TryFrom<String> for Peer {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        Self::parse(&text).ok_or_else(|| format!("`{text}` is neither `service:NAME` nor `container:NAME`"))
    }
}

impl From<Namespace> for String {
    fn from(namespace: Namespace) -> Self {
        namespace.to_string()
    }
}

impl From<String> for Namespace {
    fn from(text: String) -> Self {
        Self::from(text.as_str())
    }
}

impl From<&str> for Namespace {
    fn from(text: &str) -> Self {
        Peer::parse(text).map_or_else(|| Self::Mode(text.to_owned()), Self::Of)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mode_without_a_peer_is_written_as_it_always_was() {
        let json = |it: &Namespace| serde_json::to_string(it).unwrap();
        assert_eq!(json(&"host".into()), "\"host\"");
        assert_eq!(json(&"service:vpn".into()), "\"service:vpn\"");
        let back: Namespace = serde_json::from_str("\"container:a\"").unwrap();
        assert_eq!(back, Namespace::Of(Peer::Container("a".into())));
        assert!(serde_json::from_str::<Peer>("\"host\"").is_err());
    }
}
