//! The actions of a plan for a Swarm: one call to a manager each.

use std::fmt;

use driftless_model::{ContentId, ResolvedImage, SharedState, SwarmFile, SwarmFileKind};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// One call to a manager of a Swarm.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum SwarmAction {
    /// Asks the registry for the digest of an image, through the engine.
    ResolveImage {
        image: String,
        /// The contents of its `imagePullSecrets`.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        secrets: Vec<ContentId>,
    },
    /// A config or secret, from a content of the application.
    CreateFile {
        project: String,
        file: SwarmFile,
        /// That of `docker stack deploy` which the service has. It is adopted instead if it has the same content.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        present: Option<PresentFile>,
    },
    RemoveFile {
        name: String,
        id: String,
        secret: bool,
    },
    CreateService {
        name: String,
        image: String,
        /// The contents of the image's `imagePullSecrets`.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        secrets: Vec<ContentId>,
        spec: Value,
    },
    /// Refused if the service has another version by now.
    #[serde(rename_all = "camelCase")]
    UpdateService {
        name: String,
        id: String,
        version: u64,
        image: String,
        /// The contents of the image's `imagePullSecrets`.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        secrets: Vec<ContentId>,
        spec: Value,
    },
    /// Stops the tasks of a service, by an update to a specification without any. Refused as an update is.
    StopService {
        name: String,
        id: String,
        version: u64,
        spec: Value,
    },
    RemoveService {
        name: String,
        id: String,
    },
    /// Writes the state that the agents of all managers share. Refused if it has another version by now.
    ShareState {
        project: String,
        name: String,
        /// Its id and version. `None`: there is none yet.
        present: Option<(String, u64)>,
        state: Box<SharedState>,
    },
}

/// A config or secret that a service of `docker stack deploy` has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PresentFile {
    pub name: String,
    pub id: String,
}

/// The answer of a manager that the record keeps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SwarmResult {
    Resolved(ResolvedImage),
    /// A config or secret of `docker stack deploy` was adopted, which has this name.
    Adopted {
        name: String,
        kind: SwarmFileKind,
    },
    /// A service was written, and this is its specification now.
    Written {
        id: String,
        spec: Value,
    },
}

impl SwarmAction {
    /// The name of the object it acts on.
    pub fn object(&self) -> &str {
        match self {
            Self::ResolveImage { image, .. } => image,
            Self::CreateFile { file, .. } => &file.name,
            Self::RemoveFile { name, .. }
            | Self::CreateService { name, .. }
            | Self::UpdateService { name, .. }
            | Self::StopService { name, .. }
            | Self::RemoveService { name, .. }
            | Self::ShareState { name, .. } => name,
        }
    }

    /// The reason of the event about its success.
    pub fn event_reason(&self) -> &'static str {
        match self {
            Self::ResolveImage { .. } => "Resolved",
            Self::CreateFile { .. } | Self::CreateService { .. } => "Created",
            Self::UpdateService { .. } | Self::ShareState { .. } => "Updated",
            Self::StopService { .. } => "Stopped",
            Self::RemoveFile { .. } | Self::RemoveService { .. } => "Removed",
        }
    }
}

impl fmt::Display for SwarmAction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ResolveImage { image, .. } => write!(f, "find the digest of {image}"),
            Self::CreateFile { file, present: None, .. } => {
                write!(f, "create {} {}", file.kind().word(), file.name)
            }
            Self::CreateFile { file, present: Some(present), .. } => {
                let (kind, name) = (file.kind().word(), &file.name);
                write!(f, "adopt {kind} {}, or create {name} if its content differs", present.name)
            }
            Self::RemoveFile { name, secret, .. } => {
                write!(f, "remove {} {name}", SwarmFileKind::of(*secret).word())
            }
            Self::CreateService { name, image, .. } => write!(f, "create service {name} from {image}"),
            Self::UpdateService { name, .. } => write!(f, "update service {name}"),
            Self::StopService { name, .. } => write!(f, "stop the tasks of service {name}"),
            Self::RemoveService { name, .. } => write!(f, "remove service {name}"),
            Self::ShareState { name, .. } => write!(f, "share the state of the application in config {name}"),
        }
    }
}
