//! A question to a registry, and its answer.

use std::collections::BTreeSet;

use driftless_model::{ContentId, TagRule};

/// The question for the newest image of a reference of a manifest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageQuestion {
    /// The reference, without a digest.
    pub image: String,
    /// The tags that are followed. `None`: that of the reference.
    pub tags: Option<TagRule>,
    /// The digests by which the images of running containers were pulled.
    pub running: BTreeSet<String>,
    /// The platform that the containers ask for, as Docker writes it. `None`: that of the engine.
    pub platform: Option<String>,
    /// The contents of the application's `imagePullSecrets`.
    pub secrets: Vec<ContentId>,
}

/// The newest image of a reference.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewestImage {
    /// Its tag.
    pub tag: String,
    /// `sha256:…`: what the tag names, which is an index for an image of several platforms.
    pub digest: String,
    /// Whether every image of [`ImageQuestion::running`] is the same one on this platform, under this digest or another.
    pub is_running: bool,
}
