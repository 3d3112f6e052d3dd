//! Our types as the engine's: the bodies of create and update calls. Pure functions. Every field of a specification has
//! one place in the engine's types, where [`crate::from_engine`] reads it back.

mod container;
mod host_settings;
mod labels;
mod mounts;
mod objects;
mod values;

pub(crate) use container::{CreateCall, create_call, endpoint, update_body};
pub(crate) use host_settings::ALL_PATHS;
pub(crate) use objects::{network_body, volume_body};
pub(crate) use values::whole_seconds;
