//! Mounts, and what happens when Git has another content for them.

use std::{fmt, path::PathBuf};

use serde::{Deserialize, Serialize};

use super::{AppName, ContentId, InstanceId, digest_hex};
use crate::defaults::is_default;

/// One mount, by its path inside the container.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Mount {
    pub target: String,
    pub source: MountSource,
    #[serde(default, skip_serializing_if = "is_default")]
    pub read_only: bool,
}

impl Mount {
    /// The path in the application's own folder, if that is what it mounts.
    pub fn app_folder(&self) -> Option<&str> {
        match &self.source {
            MountSource::AppFolder(path) => Some(path),
            MountSource::Volume { .. }
            | MountSource::Anonymous
            | MountSource::Empty
            | MountSource::Bind { .. }
            | MountSource::Tmpfs { .. }
            | MountSource::Image(_)
            | MountSource::Content(_)
            | MountSource::Secret(_)
            | MountSource::InPlace { .. } => None,
        }
    }
}

/// The path at which a Kubernetes cluster gives each container the namespace of its pod.
pub const NAMESPACE_FILE: &str = "/var/run/secrets/kubernetes.io/serviceaccount/namespace";

/// Folders of a host that hold sockets, devices and settings, and the data of no container.
const SYSTEM: [&str; 6] = ["/dev", "/etc", "/proc", "/run", "/sys", "/var/run"];

/// Whether a path of a host is for sockets, devices and settings, and keeps the data of no container.
pub fn is_system_path(path: &str) -> bool {
    let is_in = |folder: &&str| {
        path.strip_prefix(*folder).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    SYSTEM.iter().any(is_in)
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum MountSource {
    /// By the volume's name in Docker.
    #[serde(rename_all = "camelCase")]
    Volume {
        name: String,
        #[serde(default, skip_serializing_if = "is_default")]
        no_copy: bool,
    },
    /// A volume without a name; a successor inherits it.
    Anonymous,
    /// A volume without a name that is empty for each instance, and removed with it (`emptyDir` of Kubernetes).
    Empty,
    /// A path of the host.
    #[serde(rename_all = "camelCase")]
    Bind {
        path: String,
        /// Make the folder when it is missing, as `-v` does; otherwise starting fails.
        #[serde(default, skip_serializing_if = "is_default")]
        create: bool,
        #[serde(default, skip_serializing_if = "is_default")]
        propagation: Option<String>,
        /// `z` or `Z`.
        #[serde(default, skip_serializing_if = "is_default")]
        selinux: Option<String>,
    },
    #[serde(rename_all = "camelCase")]
    Tmpfs {
        #[serde(default, skip_serializing_if = "is_default")]
        size: Option<u64>,
        #[serde(default, skip_serializing_if = "is_default")]
        mode: Option<u32>,
    },
    /// The files of an image, by its reference.
    Image(String),
    /// A file or folder of the repository, or inline text, materialised read-only by content.
    Content(ContentId),
    /// As `Content`, but kept on a memory file system and never printed.
    Secret(ContentId),
    /// A file or folder of the repository, or inline text, that is rewritten in a place of the instance's own when Git
    /// has another. What it holds is in [`Workload::in_place`](super::Workload::in_place), and so no part of the hash.
    #[serde(rename_all = "camelCase")]
    InPlace {
        /// Kept on a memory file system and never printed.
        #[serde(default, skip_serializing_if = "is_default")]
        secret: bool,
        #[serde(default, skip_serializing_if = "is_default")]
        folder: bool,
    },
    /// A path inside the application's own writable folder, relative, with `/`; `.` is the folder itself.
    AppFolder(String),
}

/// A file that is rewritten in place, and the signal to its container when it changes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct InPlace {
    pub content: ContentId,
    #[serde(default, skip_serializing_if = "is_default")]
    pub secret: bool,
    pub on_change: OnChange,
}

/// The action after files of a container were rewritten.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum OnChange {
    /// Its first process is sent this signal, such as `SIGHUP`.
    Signal(String),
    /// The container is stopped and started again.
    Restart,
    /// It looks by itself.
    None,
}

impl fmt::Display for OnChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Signal(name) => write!(f, "signal {name}"),
            Self::Restart => f.write_str("restart"),
            Self::None => f.write_str("none"),
        }
    }
}

/// The folder for what is rewritten in place, in that of the contents. No content is called so.
const FOLDER: &str = ".in-place";

/// The folder of an application's files that are rewritten in place, relative to the folder of the contents.
pub fn in_place_of(app: &AppName) -> PathBuf {
    PathBuf::from(FOLDER).join(app.as_str())
}

/// The path of one mount of one instance, relative to the folder of the contents.
pub fn in_place_path(app: &AppName, instance: &InstanceId, target: &str, is_folder: bool) -> PathBuf {
    let digest = digest_hex(target.as_bytes());
    let name = digest.get(..16).unwrap_or(&digest);
    // A former file is never written into a folder.
    let name = if is_folder { format!("{name}.d") } else { name.to_owned() };
    in_place_of(app).join(instance.to_string()).join(name)
}
