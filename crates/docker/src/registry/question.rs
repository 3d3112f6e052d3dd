//! A question to a registry, and its answer.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
};

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
    /// Those of them that only the engine says. One that the registry does not have is taken for that of an image that was built or
    /// loaded on the host, and is not compared.
    pub unproven: BTreeSet<String>,
    /// The digest of the newer image that an earlier answer named.
    pub available: Option<String>,
    /// The platforms that count, as Docker writes them: those that the containers ask for, and those of the nodes of a Swarm. `None` is
    /// that of the engine.
    pub platforms: BTreeSet<Option<String>>,
    /// The contents of the application's `imagePullSecrets`.
    pub secrets: Vec<ContentId>,
}

/// The question whether an image that the engine has is signed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SignatureQuestion {
    /// The reference by which the engine knows it.
    pub image: String,
    /// The key files that must have signed it.
    pub keys: BTreeSet<PathBuf>,
    /// The contents of the application's `imagePullSecrets`.
    pub secrets: Vec<ContentId>,
}

/// An image that has all the signatures that it must have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SignedImage {
    /// The id of the image in the engine.
    pub id: String,
    /// The digest in its registry.
    pub digest: String,
    /// `sha256:…` of the key files.
    pub keys: BTreeMap<PathBuf, String>,
}

/// The newest image of a reference.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewestImage {
    /// Its tag.
    pub tag: String,
    /// `sha256:…`: what the tag names, which is an index for an image of several platforms.
    pub digest: String,
    /// Whether every compared image of [`ImageQuestion::running`] is the same one on these platforms, under this digest or another.
    pub is_running: bool,
    /// The digests of [`ImageQuestion::unproven`] that the registry has.
    pub proven: BTreeSet<String>,
    /// Whether [`ImageQuestion::available`] is the same one on these platforms.
    pub is_available: bool,
}
