//! Our types as the engine's: the bodies of create and update calls. Pure functions. Every field of a specification has
//! one place in the engine's types, where [`crate::from_engine`] reads it back.

mod container;
mod mounts;

pub(crate) use container::*;
