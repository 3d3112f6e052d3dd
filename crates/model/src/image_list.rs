//! The images of the engine: who brought each one, and what it is kept for.

use std::{collections::BTreeSet, time::Duration};

use serde::{Deserialize, Serialize};

use crate::{
    ImageRef,
    disk_space::{DiskSpace, FreeSpace},
    name::AppName,
    time::Timestamp,
};

/// An image as the engine lists it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListedImage {
    /// `sha256:…`
    pub id: String,
    /// Its names with tags.
    pub names: BTreeSet<String>,
    /// `repository@sha256:…`
    pub digests: BTreeSet<String>,
    /// Its size on the disk, with the layers that it shares with other images.
    pub bytes: u64,
    /// The names of all containers that were created from it, also of those that are stopped.
    pub containers: BTreeSet<String>,
}

impl ListedImage {
    /// Whether a reference means this image: its id, one of its names or one of its digests.
    pub fn is_named(&self, reference: &str) -> bool {
        if self.id == reference || self.names.contains(reference) || self.digests.contains(reference) {
            return true;
        }
        let wanted = ImageRef::parse(reference);
        let is_same = |name: &String| {
            let name = ImageRef::parse(name);
            let is_version = match (name.digest(), wanted.digest()) {
                (Some(found), Some(wanted)) => found == wanted,
                (None, None) => name.effective_tag() == wanted.effective_tag(),
                (Some(_), None) | (None, Some(_)) => false,
            };
            is_version && name.is_same_repository(&wanted)
        };
        self.names.iter().any(is_same) || self.digests.iter().any(is_same)
    }
}

/// An image that the agent pulled or built. The engine did not have it before.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BroughtImage {
    /// `sha256:…`
    pub id: String,
    /// The names that it got from the agent.
    pub names: BTreeSet<String>,
    /// When the agent pulled or built it, or found it there, for the last time.
    pub at: Timestamp,
    /// Whether the agent has pulled it, so that a registry had it.
    #[serde(default)]
    pub is_pulled: bool,
}

/// The images that a kept revision needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RevisionImages {
    /// The application.
    pub app: AppName,
    /// The number of the revision.
    pub number: u64,
    /// References, as the manifests write them and as they were resolved.
    pub images: BTreeSet<String>,
}

/// The limits up to which revisions keep their images. The newest revision, the last one that succeeded and the pinned one always do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImageRetention {
    /// The number of newest revisions of each application, from 1 to 10. Default: 10.
    pub revisions: usize,
    /// The age since its start up to which a revision keeps its images. Default: 30 days.
    pub age: Duration,
}

impl Default for ImageRetention {
    fn default() -> Self {
        Self { revisions: 10, age: Duration::from_hours(30 * 24) }
    }
}

/// The rules of the clean-up that follows each successful sync.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CleanupRules {
    /// The revisions that keep their images.
    pub retention: ImageRetention,
    /// Images are removed only until this much of the engine's disk is free, the oldest first. `None`: all that nothing needs.
    pub min_free: Option<FreeSpace>,
    /// The largest build cache of the engine, in bytes. `None`: it is left alone.
    pub max_build_cache: Option<u64>,
}

/// A reason to keep an image.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "camelCase")]
pub enum KeepReason {
    /// The agent did not bring it.
    NotBrought,
    /// A container was created from it.
    Container {
        /// The name of the container.
        name: String,
    },
    /// A revision needs it.
    Revision {
        /// The application.
        app: AppName,
        /// The number of the revision.
        number: u64,
    },
    /// Somebody else gave it a name.
    OtherName {
        /// The name.
        name: String,
    },
    /// The agent pulled or built it within the last hour.
    New,
}

/// An image of the engine, and what it is kept for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ImageUse {
    /// `sha256:…`
    pub id: String,
    /// Its names with tags; empty if other images have got them.
    pub names: BTreeSet<String>,
    /// Its size in bytes, with the layers that it shares with other images.
    pub bytes: u64,
    /// When the agent pulled or built it for the last time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub brought_at: Option<Timestamp>,
    /// Empty if a clean-up removes it.
    pub kept_for: Vec<KeepReason>,
}

impl ImageUse {
    /// Whether a clean-up removes it.
    pub fn is_unneeded(&self) -> bool {
        self.kept_for.is_empty()
    }
}

/// The result of a clean-up of images.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ImageCleanup {
    /// Those that were removed, oldest first.
    pub removed: Vec<ImageUse>,
    /// One line for each image that the engine did not remove.
    pub failed: Vec<String>,
    /// The engine's disk afterwards. `None` without a floor of free space.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk: Option<DiskSpace>,
}
