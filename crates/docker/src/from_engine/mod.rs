//! The engine's types as ours. Pure functions. For a container created from a specification, the configuration read
//! back here equals the specification applied to the image's defaults.

mod container;
mod host_settings;
mod mounts;
mod namespaces;

pub(crate) use container::*;
pub(crate) use host_settings::*;
pub(crate) use mounts::*;
pub(crate) use namespaces::*;
