//! Questions to image registries: which image a tag names, which tags there are, who signed an image. Nothing is downloaded but
//! manifests, these once for each digest, and signatures.

mod authorization;
mod client;
mod error;
mod known_manifests;
mod manifest;
mod question;
mod repository;
mod signature;

pub(crate) use client::RegistryClient;
pub use error::RegistryError;
pub use question::{ImageQuestion, NewestImage, SignatureQuestion, SignedImage};
pub use signature::{SignatureError, key_contents};
