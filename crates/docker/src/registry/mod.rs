//! Questions to image registries: which image a tag names, which tags there are. Nothing is downloaded but manifests, and
//! these only if a digest has changed.

mod authorization;
mod client;
mod error;
mod manifest;
mod question;

pub(crate) use client::RegistryClient;
pub use error::RegistryError;
pub use question::{ImageQuestion, NewestImage};
